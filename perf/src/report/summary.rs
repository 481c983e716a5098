//! From turns to rows: what each target reached, and how many times better the first one is than each other.
//!
//! Percentiles are of the histograms of all repeats together; rates and figures are medians over the repeats. A
//! ratio is taken within each repeat, whose turns followed each other, and is told as the median with the range.

use super::goals::{self, Verdict};
use super::metrics::{scalars, Group, Metric, Percentile, Scale, PERCENTILES, RECORDS};
use super::text::value;
use crate::measure::Recorder;
use crate::results::{Measurement, Results, TargetInfo};

#[derive(Debug)]
pub struct Summary<'a> {
    pub results: &'a Results,
    /// The first is what the others are compared with; all rows have their cells in this order.
    pub targets: Vec<TargetInfo>,
    pub workloads: Vec<Workload<'a>>,
    pub goals: Vec<Verdict>,
}

#[derive(Debug)]
pub struct Workload<'a> {
    pub name: String,
    pub letter: Option<String>,
    pub title: String,
    pub cases: Vec<Case<'a>>,
}

#[derive(Debug)]
pub struct Case<'a> {
    pub name: String,
    pub rows: Vec<Row<'a>>,
}

/// One load of a case.
#[derive(Debug)]
pub struct Row<'a> {
    pub load: String,
    /// Records a second that were asked for, of the first target that has any; `None` at saturation, and where there
    /// is no load.
    pub rate: Option<f64>,
    /// Of each target.
    pub rates: Vec<Option<f64>>,
    /// Whether all targets were asked for the same rate; otherwise, as at shares of each one's own capacity, they are
    /// not compared.
    pub same_rate: bool,
    pub definition: String,
    /// Measured in fewer repeats than its case, or by each target at a rate of its own: a point of a curve.
    pub curve: bool,
    pub lines: Vec<Line>,
    pub notes: Vec<Note>,
    /// Why a target has no result.
    pub missing: Vec<Note>,
    /// Of each target, its turns by repeat.
    pub turns: Vec<Vec<&'a Measurement>>,
}

/// One metric of a row.
#[derive(Debug, Clone)]
pub struct Line {
    pub metric: Metric,
    /// Of each target.
    pub cells: Vec<Cell>,
    /// Of the first target to each target; `None` for itself and where one of the two has no value.
    pub ratios: Vec<Option<Ratio>>,
}

#[derive(Debug, Clone, Default)]
pub struct Cell {
    /// Over all repeats.
    pub value: Option<f64>,
    /// Of each repeat that has one; of a percentile none at all if one of them has fewer than 100 samples beyond it.
    pub repeats: Vec<(u32, f64)>,
}

/// How many times better the first target is: below 1 it is worse.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    pub median: f64,
    /// Of each pair of turns of the same repeat; empty if only all repeats together have samples enough.
    pub pairs: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    pub target: String,
    pub text: String,
    /// More of them, with other numbers.
    pub others: usize,
}

impl Note {
    pub fn said(&self) -> String {
        match self.others {
            0 => self.text.clone(),
            others => format!("{} (and {others} more like it)", self.text),
        }
    }
}

impl<'a> Summary<'a> {
    pub fn of(results: &'a Results) -> Summary<'a> {
        let targets = targets(results);
        let mut workloads: Vec<Workload<'a>> = Vec::new();
        for (first, turns) in grouped(results) {
            let row = Row::of(&turns, &targets, results.machine.cpus);
            let workload = match workloads.iter().position(|w| w.name == first.key.workload) {
                Some(at) => &mut workloads[at],
                None => {
                    workloads.push(Workload {
                        name: first.key.workload.clone(),
                        letter: first.letter.clone(),
                        title: first.title.clone(),
                        cases: Vec::new(),
                    });
                    workloads.last_mut().expect("it was just pushed")
                }
            };
            match workload.cases.iter_mut().find(|c| c.name == first.key.case) {
                Some(case) => case.rows.push(row),
                None => workload.cases.push(Case {
                    name: first.key.case.clone(),
                    rows: vec![row],
                }),
            }
        }
        for case in workloads.iter_mut().flat_map(|w| &mut w.cases) {
            let most = case.rows.iter().map(Row::repeats).max().unwrap_or(0);
            for row in &mut case.rows {
                let few = row.repeats() < most;
                row.curve = row.rate.is_some() && (few || !row.same_rate);
            }
        }
        let mut summary = Summary {
            results,
            targets,
            workloads,
            goals: Vec::new(),
        };
        summary.goals = goals::verdicts(&summary);
        summary
    }

    /// The place of a target.
    pub fn target(&self, name: &str) -> Option<usize> {
        self.targets.iter().position(|target| target.name == name)
    }

    pub fn rows(&self) -> impl Iterator<Item = (&Workload<'a>, &Case<'a>, &Row<'a>)> {
        self.workloads.iter().flat_map(|workload| {
            let cases = workload.cases.iter();
            cases.flat_map(move |case| case.rows.iter().map(move |row| (workload, case, row)))
        })
    }
}

impl Workload<'_> {
    /// `a`, or the name of a workload without a letter.
    pub fn label(&self) -> &str {
        self.letter.as_deref().unwrap_or(&self.name)
    }
}

impl<'a> Row<'a> {
    fn of(turns: &[&'a Measurement], targets: &[TargetInfo], cpus: usize) -> Row<'a> {
        let of_target = |target: &TargetInfo| {
            let own = turns.iter().filter(|turn| turn.key.target == target.name);
            let mut own: Vec<&Measurement> = own.copied().collect();
            own.sort_by_key(|turn| turn.key.repeat);
            own
        };
        let by_target: Vec<Vec<&Measurement>> = targets.iter().map(of_target).collect();
        let all = || by_target.iter().flatten();
        let measured = all().find_map(|turn| turn.measured.as_ref());
        let rate_of = |turns: &Vec<&Measurement>| turns.iter().find_map(|turn| turn.rate);
        let rates: Vec<Option<f64>> = by_target.iter().map(rate_of).collect();
        let asked = || rates.iter().flatten().copied();
        let same_rate = range(asked()).is_none_or(|(low, high)| high <= low * SAME_RATE);
        let mut lines = lines(&by_target, Scale::of(measured, cpus));
        for line in &mut lines {
            // What was asked for and came is nobody's merit.
            let given = line.metric.group == Group::Throughput && asked().next().is_some();
            if given || !same_rate {
                line.ratios.fill(None);
            }
        }
        let mut row = Row {
            load: turns.first().map_or(String::new(), |t| t.key.load.clone()),
            rate: asked().next(),
            rates,
            same_rate,
            definition: turns
                .first()
                .map_or(String::new(), |t| t.definition.clone()),
            curve: false,
            lines,
            notes: Vec::new(),
            missing: Vec::new(),
            turns: Vec::new(),
        };
        for turn in all() {
            for text in &turn.notes {
                add_note(&mut row.notes, &turn.key.target, text);
            }
            if let Some(text) = &turn.missing {
                add_note(&mut row.missing, &turn.key.target, text);
            }
        }
        row.turns = by_target;
        row
    }

    /// The load, with its rate.
    pub fn at(&self) -> String {
        match self.rate {
            None => self.load.clone(),
            Some(_) if !self.same_rate => format!("{}, each at its own rate", self.load),
            Some(rate) => format!("{}, {}", self.load, value(rate, RECORDS)),
        }
    }

    fn repeats(&self) -> usize {
        self.turns.iter().map(Vec::len).max().unwrap_or(0)
    }

    pub fn line(&self, group: Group, name: &str, unit: &str) -> Option<&Line> {
        self.lines.iter().find(|line| {
            let metric = &line.metric;
            metric.group == group && metric.name == name && metric.unit == unit
        })
    }

    pub fn percentile(&self, of: Group, percentile: f64) -> Option<&Line> {
        let last = format!(" p{percentile}");
        let mut lines = self.lines.iter();
        lines.find(|line| line.metric.group == of && line.metric.name.ends_with(&last))
    }

    /// What a row is about: the rate at saturation, else the latency, the figures of a lifecycle.
    pub fn headlines(&self) -> Vec<&Line> {
        let of_group = |group| self.lines.iter().filter(move |l| l.metric.group == group);
        if self.rate.is_some() {
            let compared = |(of, percentile)| {
                let line = self.percentile(of, percentile)?;
                line.ratios.iter().any(Option::is_some).then_some(line)
            };
            // The median where there are too few samples for more.
            let latency = [99.0, 50.0]
                .into_iter()
                .flat_map(|p| [(Group::Delivered, p), (Group::Acknowledged, p)])
                .find_map(compared);
            return latency.into_iter().collect();
        }
        let records = |line: &&Line| line.metric.unit == RECORDS;
        let rates: Vec<&Line> = of_group(Group::Throughput).filter(records).collect();
        if rates.is_empty() {
            return of_group(Group::Figure).collect();
        }
        rates
    }

    /// The latencies of all repeats of a target together.
    pub fn merged(&self, target: usize, of: Group) -> Recorder {
        merged(&self.turns[target], of)
    }
}

impl Cell {
    /// The smallest and the largest of the repeats.
    pub fn range(&self) -> Option<(f64, f64)> {
        range(self.repeats.iter().map(|(_, value)| *value))
    }
}

impl Ratio {
    /// Of two pairs at least.
    pub fn range(&self) -> Option<(f64, f64)> {
        range(self.pairs.iter().copied()).filter(|_| self.pairs.len() > 1)
    }
}

/// Rates that differ by less are the same.
const SAME_RATE: f64 = 1.01;

/// The middle one; of an even number the mean of the two in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

/// Those of the settings, then any that only measurements name.
fn targets(results: &Results) -> Vec<TargetInfo> {
    let mut targets = results.settings.targets.clone();
    for measurement in &results.measurements {
        let name = &measurement.key.target;
        if targets.iter().all(|target| target.name != *name) {
            targets.push(TargetInfo {
                name: name.clone(),
                description: String::new(),
            });
        }
    }
    targets
}

/// The turns of each row, in the order of the file.
fn grouped(results: &Results) -> Vec<(&Measurement, Vec<&Measurement>)> {
    let mut groups: Vec<(&Measurement, Vec<&Measurement>)> = Vec::new();
    for turn in &results.measurements {
        let same = |first: &Measurement| {
            let (one, other) = (&first.key, &turn.key);
            (&one.workload, &one.case, &one.load) == (&other.workload, &other.case, &other.load)
        };
        match groups.iter_mut().find(|(first, _)| same(first)) {
            Some((_, turns)) => turns.push(turn),
            None => groups.push((turn, vec![turn])),
        }
    }
    groups
}

/// Notes that differ in their numbers only are told once, by the first.
fn add_note(notes: &mut Vec<Note>, target: &str, text: &str) {
    let words = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    let same = |note: &&mut Note| note.target == target && words(&note.text) == words(text);
    match notes.iter_mut().find(same) {
        Some(note) if note.text == text => {}
        Some(note) => note.others += 1,
        None => notes.push(Note {
            target: target.to_owned(),
            text: text.to_owned(),
            others: 0,
        }),
    }
}

fn lines(by_target: &[Vec<&Measurement>], scale: Scale) -> Vec<Line> {
    let mut found: Vec<(Metric, Vec<Cell>)> = Vec::new();
    for (target, turns) in by_target.iter().enumerate() {
        for turn in turns {
            for (metric, value) in scalars(turn, scale) {
                let at = found.iter().position(|(known, _)| *known == metric);
                let at = at.unwrap_or_else(|| {
                    found.push((metric, vec![Cell::default(); by_target.len()]));
                    found.len() - 1
                });
                found[at].1[target].repeats.push((turn.key.repeat, value));
            }
        }
    }
    for (_, cells) in &mut found {
        for cell in cells {
            cell.value = median(cell.repeats.iter().map(|(_, value)| *value));
        }
    }
    for of in [Group::Acknowledged, Group::Delivered, Group::ScheduleDelay] {
        let merged: Vec<Recorder> = by_target.iter().map(|turns| merged(turns, of)).collect();
        if merged.iter().all(Recorder::is_empty) {
            continue;
        }
        let word = word(by_target, of);
        for percentile in PERCENTILES.iter().filter(|percentile| percentile.of == of) {
            let targets = by_target.iter().zip(&merged);
            let cells: Vec<Cell> = targets
                .map(|(turns, merged)| percentile_cell(turns, merged, *percentile))
                .collect();
            // The far tail is left out where nobody has samples for it; the others get their dashes.
            if percentile.percentile < 99.95 || cells.iter().any(|cell| cell.value.is_some()) {
                found.push((percentile.metric(word), cells));
            }
        }
    }
    // Stable: within a group in the order in which they were found.
    found.sort_by_key(|(metric, _)| metric.group);
    found.into_iter().map(|(m, cells)| line(m, cells)).collect()
}

/// What a latency is of.
pub fn word(by_target: &[Vec<&Measurement>], of: Group) -> &'static str {
    let mut turns = by_target.iter().flatten();
    let reads = |turn: &&Measurement| {
        let measured = turn.measured.as_ref();
        measured.is_some_and(|m| m.produced.records == 0 && m.consumed.records > 0)
    };
    match of {
        Group::Delivered => "delivered",
        Group::ScheduleDelay => "schedule delay",
        // Where nothing is produced it is the time of a fetch.
        _ if turns.any(reads) => "fetched",
        _ => "acknowledged",
    }
}

fn percentile_cell(turns: &[&Measurement], merged: &Recorder, percentile: Percentile) -> Cell {
    let of_turn = |turn: &&Measurement| {
        let recorder = percentile.recorder(turn.measured.as_ref()?);
        let value = recorder.percentile_us(percentile.percentile);
        (!recorder.is_empty()).then_some(value.map(|value| (turn.key.repeat, value)))
    };
    // All of them or none: the few that have samples enough are no range of all.
    let repeats: Option<Vec<(u32, f64)>> = turns.iter().filter_map(of_turn).collect();
    Cell {
        value: merged.percentile_us(percentile.percentile),
        repeats: repeats.unwrap_or_default(),
    }
}

fn merged(turns: &[&Measurement], of: Group) -> Recorder {
    let mut whole = Recorder::default();
    for measured in turns.iter().filter_map(|turn| turn.measured.as_ref()) {
        let recorder = super::metrics::recorder(of, measured);
        if !recorder.is_empty() {
            whole
                .merge(recorder)
                .expect("all recorders have the same bounds");
        }
    }
    whole
}

fn line(metric: Metric, cells: Vec<Cell>) -> Line {
    let ratio = |(place, other): (usize, &Cell)| {
        let first = &cells[0];
        if place == 0 || !metric.is_of_target() {
            return None;
        }
        let pair = |(repeat, value): &(u32, f64)| {
            let (_, other) = other.repeats.iter().find(|(of, _)| of == repeat)?;
            metric.advantage(*value, *other)
        };
        let pairs: Vec<f64> = first.repeats.iter().filter_map(pair).collect();
        let together = || metric.advantage(first.value?, other.value?);
        let median = median(pairs.iter().copied()).or_else(together)?;
        Some(Ratio { median, pairs })
    };
    let ratios = cells.iter().enumerate().map(ratio).collect();
    Line {
        metric,
        cells,
        ratios,
    }
}

#[cfg(test)]
mod tests;
