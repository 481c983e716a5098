//! `perf compare OLD NEW`: what changed between two runs, told only where it is more than the repeats' own range.

use super::goals::row_name;
use super::metrics::{Metric, DEVICE, RECORDS, STEAL};
use super::summary::{Cell, Row, Summary};
use super::text::{clip, name, paragraph, plain, times, times_range, value};
use super::{show, store};
use crate::results::Results;
use anyhow::Result;
use std::fmt::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct CompareArgs {
    /// The results of the earlier run.
    old: PathBuf,
    /// The results of the later run.
    new: PathBuf,
    /// A smaller change is not marked, however far apart the repeats are.
    #[arg(long, default_value = "5%", value_name = "PERCENT", value_parser = threshold)]
    threshold: f64,
    /// Exits with 1 if a figure of the first target (what the others are compared with) is marked as worse.
    #[arg(long)]
    fail_on_regression: bool,
}

/// Prints the comparison; whether it is a regression that the caller has to exit with 1 for.
pub fn run(args: &CompareArgs) -> Result<bool> {
    let (old, new) = (store::load(&args.old)?, store::load(&args.new)?);
    let comparison = Comparison::of(&old, &new, args.threshold);
    show(&comparison.text())?;
    Ok(args.fail_on_regression && comparison.is_worse())
}

/// Two runs, row by row.
#[derive(Debug)]
pub struct Comparison {
    /// What else is different: the machine, the settings.
    pub differences: Vec<String>,
    pub entries: Vec<Entry>,
    /// What only one of the two has, and which.
    pub one_sided: Vec<String>,
    threshold: f64,
    /// What the others are compared with, in the new run.
    first: String,
}

/// One figure of one target in both runs.
#[derive(Debug)]
pub struct Entry {
    /// `(a) capacity`.
    pub at: String,
    pub target: String,
    pub metric: Metric,
    pub old: f64,
    pub new: f64,
    /// How many times better the new one is; below 1 it is worse.
    pub ratio: Option<f64>,
    /// From the worst of the new repeats beside the best of the old ones to the other way round.
    pub range: Option<(f64, f64)>,
    pub change: Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Better,
    Worse,
    /// Within the threshold, or within what the repeats differ by.
    Same,
    /// Fewer than two repeats have the figure in one of the runs.
    TooFewRepeats,
    /// The case is defined otherwise, or had another rate.
    OtherWork,
}

impl Comparison {
    /// `threshold` is a part: 0.05 for 5 %.
    pub fn of(old: &Results, new: &Results, threshold: f64) -> Comparison {
        let (before, after) = (Summary::of(old), Summary::of(new));
        let mut comparison = Comparison {
            differences: differences(&before, &after),
            entries: Vec::new(),
            one_sided: Vec::new(),
            threshold,
            first: after
                .targets
                .first()
                .map_or(String::new(), |t| t.name.clone()),
        };
        for (workload, case, row) in after.rows() {
            let mut known = before.rows();
            let same = known.find(|(other, of, was)| {
                let place = (&other.name, &of.name, &was.load);
                place == (&workload.name, &case.name, &row.load)
            });
            let at = format!("({}) {}", workload.label(), row_name(&case.name, &row.load));
            match same {
                Some((.., was)) => comparison.add((&before, was), (&after, row), &at),
                None => comparison
                    .one_sided
                    .push(format!("only the new run has {at}")),
            }
        }
        for (workload, case, row) in before.rows() {
            let gone = !after.rows().any(|(other, of, is)| {
                let place = (&other.name, &of.name, &is.load);
                place == (&workload.name, &case.name, &row.load)
            });
            if gone {
                let at = row_name(&case.name, &row.load);
                let at = format!("only the old run has ({}) {at}", workload.label());
                comparison.one_sided.push(at);
            }
        }
        comparison
    }

    /// Whether the first target got worse in something; the others tell about the machine, or about other brokers.
    pub fn is_worse(&self) -> bool {
        let mut own = self.entries.iter().filter(|e| e.target == self.first);
        own.any(|entry| entry.change == Change::Worse)
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        for difference in &self.differences {
            paragraph(&mut out, difference);
        }
        let threshold = self.threshold * 100.0;
        paragraph(
            &mut out,
            &format!(
                "Ratios say how many times better the new run is (below 1 it is worse). Marked is what changed by more \
                 than {threshold} % with ranges of the repeats that do not overlap."
            ),
        );
        let mut last = (String::new(), String::new());
        for entry in &self.entries {
            let place = (entry.at.clone(), entry.target.clone());
            if place != last {
                let head = format!("{}, {}", entry.at, entry.target);
                let head = clip(&plain(&head), NAME - 1);
                let _ = writeln!(out, "\n{head:<NAME$}{:>VALUE$}{:>VALUE$}", "old", "new");
                last = place;
            }
            let shown = |figure| value(figure, &entry.metric.unit);
            let ratio = match (entry.ratio, entry.range) {
                (Some(ratio), Some(range)) => format!("{} ({})", times(ratio), times_range(range)),
                (Some(ratio), None) => times(ratio),
                (None, _) => "-".to_owned(),
            };
            let label = clip(&plain(&name(&entry.metric)), NAME - 3);
            let mark = match entry.change {
                Change::Better => "better",
                Change::Worse => "WORSE",
                Change::Same => "",
                Change::TooFewRepeats => "too few repeats",
                Change::OtherWork => "not the same work",
            };
            let line = format!(
                "  {label:<0$}{1:>VALUE$}{2:>VALUE$}  {ratio:<20}{mark}",
                NAME - 2,
                shown(entry.old),
                shown(entry.new),
            );
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out.push('\n');
        for one_sided in &self.one_sided {
            paragraph(&mut out, one_sided);
        }
        let count = |change| self.entries.iter().filter(|e| e.change == change).count();
        paragraph(
            &mut out,
            &format!(
                "{} figures in both runs: {} better, {} worse, {} that could not be judged; {} that only one has.",
                self.entries.len(),
                count(Change::Better),
                count(Change::Worse),
                count(Change::TooFewRepeats) + count(Change::OtherWork),
                self.one_sided.len(),
            ),
        );
        out
    }

    fn add(
        &mut self,
        (before, was): (&Summary<'_>, &Row<'_>),
        (after, is): (&Summary<'_>, &Row<'_>),
        at: &str,
    ) {
        let same_case = was.definition == is.definition;
        if !same_case {
            let text = format!("{at} is not the same case in both runs");
            self.differences.push(text);
        }
        for (place, target) in after.targets.iter().enumerate() {
            let old_place = before.target(&target.name);
            let new_has = has_any(is, Some(place));
            let old_has = has_any(was, old_place);
            if new_has != old_has {
                let run = if new_has { "new" } else { "old" };
                let text = format!("only the {run} run has {at}, {}", target.name);
                self.one_sided.push(text);
            }
            let Some(old_place) = old_place.filter(|_| new_has && old_has) else {
                continue;
            };
            let (old_rate, new_rate) = (was.rates[old_place], is.rates[place]);
            let same_rate = self.is_same_rate(old_rate, new_rate);
            if let (true, false, Some(old), Some(new)) = (same_case, same_rate, old_rate, new_rate)
            {
                let (old, new) = (value(old, RECORDS), value(new, RECORDS));
                let text =
                    format!("{at} had a rate of {old} in the old run and of {new} in the new one");
                if !self.differences.contains(&text) {
                    self.differences.push(text);
                }
            }
            let same_work = same_case && same_rate;
            for line in is.lines.iter().filter(|line| line.metric.name != STEAL) {
                let old = was.lines.iter().find(|old| old.metric == line.metric);
                let cells = old.map(|old| (&old.cells[old_place], &line.cells[place]));
                if let Some((old, new)) = cells {
                    let entry = self.entry(at, &target.name, &line.metric, (old, new), same_work);
                    self.entries.extend(entry);
                }
            }
        }
        for target in &before.targets {
            if after.target(&target.name).is_none() && has_any(was, before.target(&target.name)) {
                let text = format!("only the old run has {at}, {}", target.name);
                self.one_sided.push(text);
            }
        }
    }

    fn entry(
        &self,
        at: &str,
        target: &str,
        metric: &Metric,
        (old, new): (&Cell, &Cell),
        same_work: bool,
    ) -> Option<Entry> {
        let ratio = metric.advantage(new.value?, old.value?);
        let enough = old.repeats.len() > 1 && new.repeats.len() > 1;
        let ranges = old.range().zip(new.range()).filter(|_| enough);
        let range = ranges.and_then(|(old, new)| {
            let one = metric.advantage(new.0, old.1)?;
            let other = metric.advantage(new.1, old.0)?;
            Some((one.min(other), one.max(other)))
        });
        let change = match (ratio, ranges) {
            _ if !same_work => Change::OtherWork,
            (_, None) => Change::TooFewRepeats,
            (Some(ratio), Some((old, new))) => {
                let apart = old.1 < new.0 || new.1 < old.0;
                let beyond = ratio.max(1.0 / ratio) > 1.0 + self.threshold;
                match (apart && beyond, ratio > 1.0) {
                    (false, _) => Change::Same,
                    (true, true) => Change::Better,
                    (true, false) => Change::Worse,
                }
            }
            (None, _) => Change::Same,
        };
        // The client's own delay and what all processes wrote are told; they are no merit of a broker.
        let change = match metric.is_of_target() && metric.name != DEVICE {
            true => change,
            false => Change::Same,
        };
        Some(Entry {
            at: at.to_owned(),
            target: target.to_owned(),
            metric: metric.clone(),
            old: old.value?,
            new: new.value?,
            ratio,
            range,
            change,
        })
    }

    fn is_same_rate(&self, old: Option<f64>, new: Option<f64>) -> bool {
        match (old, new) {
            (Some(old), Some(new)) => old.max(new) <= old.min(new) * (1.0 + self.threshold),
            (old, new) => old.is_none() && new.is_none(),
        }
    }
}

const NAME: usize = 56;
const VALUE: usize = 12;

/// `5%` or `5`, as a part of 1.
fn threshold(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("a percentage of 0 to 1000 is expected, like 5%".to_owned()),
    }
}

fn has_any(row: &Row<'_>, target: Option<usize>) -> bool {
    let value = |target: usize| {
        let mut lines = row.lines.iter();
        lines.any(|line| line.cells[target].value.is_some())
    };
    target.is_some_and(value)
}

fn differences(old: &Summary<'_>, new: &Summary<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let mut add = |what: &str, old: String, new: String| {
        if old != new {
            all.push(format!(
                "{what} is not the same: {old} in the old run, {new} in the new one."
            ));
        }
    };
    let machine = |summary: &Summary<'_>| {
        let machine = &summary.results.machine;
        let memory = value(machine.memory_bytes as f64, "bytes");
        let (cpu, cpus) = (&machine.cpu, machine.cpus);
        let (kernel, files) = (&machine.kernel, &machine.file_system);
        format!("{cpu} with {cpus} CPUs, {memory}, Linux {kernel}, {files}")
    };
    add("The machine", machine(old), machine(new));
    let length = |summary: &Summary<'_>| {
        let quick = summary.results.settings.quick;
        if quick { "quick" } else { "full" }.to_owned()
    };
    add("The length of the runs", length(old), length(new));
    let share = |summary: &Summary<'_>| {
        let settings = &summary.results.settings;
        format!(
            "broker on CPUs {:?} with {} bytes ({}), client on CPUs {:?}",
            settings.broker_cpus,
            settings.broker_memory_bytes,
            settings.memory_limit,
            settings.client_cpus
        )
    };
    add("The share of the machine", share(old), share(new));
    for target in &new.targets {
        if let Some(place) = old.target(&target.name) {
            let old = old.targets[place].description.clone();
            add(&target.name, old, target.description.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests;
