//! The tables of a report in plain text, at most 120 columns wide.

use super::goals::row_name;
use super::metrics::{Group, CONSUMED, PRODUCED, RECORDS};
use super::summary::{Line, Note, Row, Summary, Workload};
use super::text::{clip, name, paragraph, plain, times, times_range, value, WIDTH};
use std::fmt::Write;

/// All of it, ready to print.
pub fn text(summary: &Summary<'_>) -> String {
    let mut out = String::new();
    head(&mut out, summary);
    for workload in &summary.workloads {
        block(&mut out, summary, workload);
    }
    goals(&mut out, summary);
    out
}

/// Whether a line is for the first look; the others are on the page, folded up.
pub fn at_first_look(row: &Row<'_>, line: &Line) -> bool {
    let metric = &line.metric;
    let is = |name: &str, unit: &str| metric.name == name && metric.unit == unit;
    let saturated = row.rate.is_none();
    match metric.group {
        Group::Throughput if saturated => {
            let produced = row.line(Group::Throughput, PRODUCED, RECORDS).is_some();
            metric.name == PRODUCED || is(CONSUMED, "MB/s") || !produced
        }
        Group::Throughput => false,
        Group::Acknowledged | Group::Delivered => {
            let none = line.cells.iter().all(|cell| cell.value.is_none());
            if none && metric.name.ends_with(" p99.9") {
                return false;
            }
            !saturated || metric.name.ends_with(" p50") || metric.name.ends_with(" p99")
        }
        Group::ScheduleDelay | Group::Figure => true,
        // A lifecycle has figures of its own for these.
        Group::Cost
            if row
                .lines
                .iter()
                .all(|line| line.metric.group >= Group::Figure) =>
        {
            false
        }
        Group::Cost => metric.name == "broker CPU" || metric.name == "resident memory",
    }
}

/// What is said of missing values.
pub const DASH: &str = "A dash: no result, or fewer than 100 samples beyond a percentile.";
/// Of the metrics' names at least; more where there are fewer targets.
const NAME: usize = 26;
const VALUE: usize = 10;
const RATIO: usize = 18;
/// Other targets beside the first in one table: so many fit.
const OTHERS: usize = (WIDTH - NAME - VALUE) / (VALUE + RATIO);

fn head(out: &mut String, summary: &Summary<'_>) {
    let machine = &summary.results.machine;
    let settings = &summary.results.settings;
    paragraph(
        out,
        &format!(
            "{}, {} CPUs, {} of memory, Linux {}, {}{}",
            machine.cpu,
            machine.cpus,
            value(machine.memory_bytes as f64, "bytes"),
            machine.kernel,
            machine.file_system,
            if settings.quick {
                "; a quick run: short, and not for publishing"
            } else {
                ""
            }
        ),
    );
    for target in &summary.targets {
        paragraph(out, &format!("{}: {}", target.name, target.description));
    }
    if let [first, _, ..] = summary.targets.as_slice() {
        paragraph(
            out,
            &format!(
                "Beside each other target: how many times better {} is (below 1 it is worse), the median of the \
                 repeats, and their range. {DASH}",
                first.name
            ),
        );
    }
}

fn block(out: &mut String, summary: &Summary<'_>, workload: &Workload<'_>) {
    let title = match &workload.letter {
        Some(letter) => format!("({letter}) {}", workload.title),
        None => format!("{}: {}", workload.name, workload.title),
    };
    out.push('\n');
    paragraph(out, &title);
    let rows = || workload.cases.iter().flat_map(|case| &case.rows);
    // Targets that have nothing in this workload take no columns.
    let has = |target: &usize| {
        let mut lines = rows().flat_map(|row| &row.lines);
        lines.any(|line| line.cells[*target].value.is_some())
    };
    let others: Vec<usize> = (1..summary.targets.len()).filter(has).collect();
    let mut tables: Vec<&[usize]> = others.chunks(OTHERS).collect();
    if tables.is_empty() {
        tables.push(&[]);
    }
    for others in tables {
        table(out, summary, workload, others);
    }
    let points = rows().filter(|row| row.curve).count();
    if points > 0 {
        paragraph(out, &format!("Points of curves, on the page: {points}"));
    }
    for case in &workload.cases {
        for row in &case.rows {
            let at = row_name(&case.name, &row.load);
            notes(out, &format!("! {at}"), &row.notes);
            notes(out, &format!("- {at}"), &row.missing);
        }
    }
}

fn table(out: &mut String, summary: &Summary<'_>, workload: &Workload<'_>, others: &[usize]) {
    let target = |place: usize| {
        let name = summary.targets.get(place).map_or("", |target| &target.name);
        clip(&plain(name), VALUE - 1)
    };
    let mut longest = 0;
    for row in workload.cases.iter().flat_map(|case| &case.rows) {
        for line in row.lines.iter().filter(|line| at_first_look(row, line)) {
            longest = longest.max(name(&line.metric).chars().count());
        }
    }
    let room = WIDTH - VALUE - others.len() * (VALUE + RATIO);
    let width = (longest + 3).clamp(NAME, room.max(NAME));
    let mut head = format!("{:width$}{:>VALUE$}", "", target(0));
    for other in others {
        let _ = write!(head, "{:>VALUE$}{:RATIO$}", target(*other), "");
    }
    let _ = writeln!(out, "{}", head.trim_end());
    for case in &workload.cases {
        for row in case.rows.iter().filter(|row| !row.curve) {
            let load = plain(&row_name(&case.name, &row.at()));
            let _ = writeln!(out, "{}", clip(&load, WIDTH));
            for line in row.lines.iter().filter(|line| at_first_look(row, line)) {
                table_line(out, line, others, width);
            }
        }
    }
}

fn table_line(out: &mut String, line: &Line, others: &[usize], width: usize) {
    let cell = |target: usize| {
        let found = line.cells.get(target).and_then(|cell| cell.value);
        found.map_or("-".to_owned(), |found| value(found, &line.metric.unit))
    };
    let label = clip(&plain(&name(&line.metric)), width - 3);
    let mut text = format!("  {label:<0$}{1:>VALUE$}", width - 2, cell(0));
    for other in others {
        let ratio = match &line.ratios[*other] {
            None => String::new(),
            Some(ratio) => match ratio.range() {
                Some(range) => format!("{} ({})", times(ratio.median), times_range(range)),
                None => times(ratio.median),
            },
        };
        let _ = write!(text, "{:>VALUE$} {ratio:<1$}", cell(*other), RATIO - 1);
    }
    let _ = writeln!(out, "{}", text.trim_end());
}

fn goals(out: &mut String, summary: &Summary<'_>) {
    if summary.goals.is_empty() {
        return;
    }
    let quick = match summary.results.settings.quick {
        true => ", in a quick run",
        false => "",
    };
    let _ = writeln!(
        out,
        "\nGoals{quick}; where there is a (!) a note above says what the figures are not"
    );
    for verdict in &summary.goals {
        let goal = clip(&plain(&verdict.goal), 60);
        let measured = clip(&plain(&verdict.measured), 38);
        let outcome = verdict.outcome.text();
        let _ = writeln!(out, "  {goal:<60} {measured:<38} {outcome}");
    }
}

fn notes(out: &mut String, at: &str, notes: &[Note]) {
    for note in notes {
        paragraph(out, &format!("{at}: {}: {}", note.target, note.said()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{empty, moved, turn, whole, TARGETS};
    use super::*;
    use crate::measure::Measured;
    use crate::results::Results;

    fn small() -> Results {
        let mut results = empty(&["highwater", "kafka", "floor"]);
        let rates = [[500.0, 100.0, 540.0], [520.0, 104.0, 520.0]];
        for (n, rates) in rates.iter().enumerate() {
            for (target, rate) in TARGETS.iter().zip(rates) {
                let mut turn = turn("a", "capacity", target, n as u32 + 1);
                turn.measured = Some(Measured {
                    produced: moved(rate * 1e3, 1024),
                    ..Measured::default()
                });
                results.measurements.push(turn);
            }
        }
        let mut missing = turn("j", "start", "kafka", 1);
        missing.missing = Some("its jars are not there".to_owned());
        results.measurements.push(missing);
        results
    }

    #[test]
    fn a_report_is_a_table_with_ratios_goals_and_what_is_missing() {
        let results = small();
        let text = text(&Summary::of(&results));
        let expected = include_str!("terminal.txt");
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let mut results = whole(300);
        let long = "an extremely long name ".repeat(20);
        for turn in &mut results.measurements {
            turn.title.push_str(&long);
            turn.key.load.push_str(&long);
            turn.notes.push(long.clone());
        }
        let text = text(&Summary::of(&results));
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(WIDTH), "{text}");
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        let mut results = small();
        results.settings.targets[1].description = "\u{1b}[2J".to_owned();
        for turn in &mut results.measurements {
            turn.key.target = turn.key.target.replace("kafka", "\u{1b}]0;k");
            turn.key.load = "\u{1b}[31m\r\n".to_owned();
            turn.notes = vec!["\u{7}".to_owned()];
        }
        let text = text(&Summary::of(&results));
        let control = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(control), "{text:?}");
    }

    #[test]
    fn nothing_measured_is_a_report_too() {
        let results = empty(&[]);
        let text = text(&Summary::of(&results));
        assert_eq!(
            text,
            "Sample CPU, 2 CPUs, 24.0 GiB of memory, Linux 6.18, ext4\n"
        );
    }
}
