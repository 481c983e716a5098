//! The figures as text.

use super::figures::Figures;
use super::syscalls::{median, Row};
use super::work::{Cost, Kind};

/// Instructions and allocations.
pub fn work(rows: &[(Kind, Cost)], figures: &Figures, old: Option<&Figures>) -> String {
    let mut text = format!(
        "{:<28} {:>14} {:>10} {:>14} {:>10} {:>12}\n",
        "layer/path/codec/batch", "instr./record", "", "alloc./request", "", "simulator"
    );
    for (kind, cost) in rows {
        let name = kind.name();
        let change = |what: &str| change(figures, old, &format!("{what}/{name}"));
        text += &format!(
            "{name:<28} {:>14.0} {:>10} {:>14.2} {:>10} {:>12.0}\n",
            cost.instructions_per_record,
            change("instructions"),
            cost.allocations_per_request,
            change("allocations"),
            // Not "-0".
            cost.simulator_per_record.round() + 0.0,
        );
    }
    text
}

/// System calls of 1,000 records.
pub fn calls(
    rows: &[Row],
    idle: f64,
    broker: &str,
    figures: &Figures,
    old: Option<&Figures>,
) -> String {
    let mut text = format!(
        "{:<16} {:>12} {:>19} {:>10} {:>16}  {}\n",
        "of 1,000 records", "system calls", "range", "", "io_uring op.", "most called"
    );
    for row in rows {
        let name = format!("syscalls/{broker}/{}", row.load.name);
        let submitted = match row.submitted.as_slice() {
            [] => "not counted".to_owned(),
            some => format!("{:.0}", median(some)),
        };
        let most = row.most.iter();
        let most: Vec<String> = most.map(|(name, n)| format!("{name} {n:.0}")).collect();
        text += &format!(
            "{:<16} {:>12.0} {:>19} {:>10} {submitted:>16}  {}\n",
            row.load.name,
            median(&row.calls),
            range(&row.calls),
            change(figures, old, &name),
            most.join(", "),
        );
    }
    let name = format!("syscalls/{broker}/idle");
    text += &format!(
        "{:<16} {idle:>12.1} {:>19} {:>10}\n\n",
        "idle, a second",
        "",
        change(figures, old, &name),
    );
    for row in rows {
        text += &format!("{}: {}\n", row.load.name, row.load.title);
    }
    text
}

fn range(values: &[f64]) -> String {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(0.0, f64::max);
    match values.len() {
        0 | 1 => String::new(),
        _ => format!("{min:.0} to {max:.0}"),
    }
}

/// Empty without an older file.
fn change(figures: &Figures, old: Option<&Figures>, name: &str) -> String {
    let exact = figures.get(name).is_some_and(|figure| figure.exact);
    let change = old.and_then(|old| figures.change(name, old));
    change.map_or_else(String::new, |change| change.text(exact))
}

#[cfg(test)]
mod tests {
    use super::super::work;
    use super::*;

    #[test]
    fn given_an_older_file_then_the_change_stands_beside_the_figure() {
        let kind = work::kinds(true)[0];
        let cost = Cost {
            instructions_per_record: 1_100.0,
            allocations_per_request: 5.0,
            simulator_per_record: 300.0,
        };
        let mut old = Figures::new();
        old.push(
            format!("instructions/{}", kind.name()),
            1_000.0,
            "per record",
            true,
        );
        let mut new = Figures::new();
        cost.push(&kind, &mut new);
        let text = super::work(&[(kind, cost)], &new, Some(&old));
        let line: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = [
            "partition/produce/none/1",
            "1100",
            "+10.0",
            "%",
            "!",
            "5.00",
            "new",
            "300",
        ];
        assert_eq!(line, expected);
        let alone = super::work(&[(kind, cost)], &new, None);
        assert!(!alone.contains('%'), "{alone}");
    }

    #[test]
    fn a_range_is_of_repeats() {
        assert_eq!(range(&[5.0]), "");
        assert_eq!(range(&[5.4, 1.0, 3.0]), "1 to 5");
    }
}
