use super::*;
use crate::measure::Measured;
use crate::report::metrics::{PRODUCED, RECORDS, STEAL};
use crate::report::sample::{self, cost, empty, latencies, moved, turn};
use crate::results::{Better, Figure};

fn produced(target: &str, repeat: u32, records_per_second: f64) -> Measurement {
    let mut turn = turn("a", "capacity", target, repeat);
    turn.measured = Some(Measured {
        produced: moved(records_per_second, 1024),
        ..Measured::default()
    });
    turn
}

fn timed(target: &str, repeat: u32, median_us: f64, samples: u64) -> Measurement {
    let mut turn = turn("a", "half", target, repeat);
    turn.rate = Some(1000.0);
    turn.measured = Some(Measured {
        acknowledged: latencies(median_us, samples, 7),
        ..Measured::default()
    });
    turn
}

fn with(turns: Vec<Measurement>) -> Results {
    let mut results = empty(&["one", "two"]);
    results.measurements = turns;
    results
}

#[test]
fn a_rate_is_the_median_and_its_ratio_is_taken_within_each_repeat() {
    let results = with(vec![
        produced("one", 1, 1000.0),
        produced("two", 1, 500.0),
        produced("one", 2, 3000.0),
        produced("two", 2, 1000.0),
        produced("one", 3, 2000.0),
        produced("two", 3, 2000.0),
        // Without a turn of the other in the same repeat there is no pair.
        produced("two", 4, 1.0),
    ]);
    let summary = Summary::of(&results);
    let row = &summary.workloads[0].cases[0].rows[0];
    let line = row.line(Group::Throughput, PRODUCED, RECORDS).unwrap();
    assert_eq!(line.cells[0].value, Some(2000.0));
    assert_eq!(line.cells[0].range(), Some((1000.0, 3000.0)));
    assert_eq!(line.cells[1].value, Some(750.0));
    assert_eq!(line.ratios[0], None);
    let ratio = line.ratios[1].as_ref().unwrap();
    assert_eq!((ratio.median, ratio.range()), (2.0, Some((1.0, 3.0))));
}

#[test]
fn a_latency_is_better_when_it_is_lower() {
    let turns = [("one", 100.0), ("two", 300.0)];
    let turns = turns.map(|(target, us)| timed(target, 1, us, 2_000));
    let results = with(turns.to_vec());
    let summary = Summary::of(&results);
    let row = &summary.workloads[0].cases[0].rows[0];
    let line = row.percentile(Group::Acknowledged, 50.0).unwrap();
    let ratio = line.ratios[1].as_ref().unwrap();
    assert!((2.98..3.02).contains(&ratio.median), "{ratio:?}");
    assert_eq!(ratio.range(), None, "one pair has no range");
}

#[test]
fn percentiles_are_of_all_repeats_together_and_need_samples_beyond_them() {
    // 6,000 samples have a p50, and only two repeats together a p99.
    let results = with(vec![
        timed("one", 1, 100.0, 6_000),
        timed("two", 1, 200.0, 6_000),
        timed("one", 2, 100.0, 6_000),
    ]);
    let summary = Summary::of(&results);
    let row = &summary.workloads[0].cases[0].rows[0];
    let p99 = row.percentile(Group::Acknowledged, 99.0).unwrap();
    assert!(p99.cells[0].value.is_some() && p99.cells[0].repeats.is_empty());
    assert_eq!(p99.cells[1].value, None);
    assert_eq!(p99.ratios[1], None);
    let p50 = row.percentile(Group::Acknowledged, 50.0).unwrap();
    assert_eq!(p50.cells[0].repeats.len(), 2);
    assert_eq!(p50.ratios[1].as_ref().unwrap().pairs.len(), 1);
    let of = |percentile| row.percentile(Group::Acknowledged, percentile);
    assert!(of(99.9).is_some() && of(99.99).is_none());
}

#[test]
fn repeats_too_short_for_a_percentile_are_compared_together() {
    let turns = [1, 2]
        .map(|repeat| [("one", 100.0), ("two", 200.0)].map(|(t, us)| timed(t, repeat, us, 6_000)));
    let results = with(turns.into_iter().flatten().collect());
    let summary = Summary::of(&results);
    let row = &summary.workloads[0].cases[0].rows[0];
    let p99 = row.percentile(Group::Acknowledged, 99.0).unwrap();
    let ratio = p99.ratios[1].as_ref().unwrap();
    assert!(ratio.pairs.is_empty() && (1.9..2.1).contains(&ratio.median));
}

#[test]
fn one_repeat_that_is_too_short_for_a_percentile_leaves_no_range_of_the_others() {
    let long = |target, us| [1, 2].map(|repeat| timed(target, repeat, us, 12_000));
    let mut turns = [long("one", 100.0), long("two", 200.0)].concat();
    turns.push(timed("one", 3, 900.0, 9_000));
    turns.push(timed("two", 3, 200.0, 12_000));
    let results = with(turns);
    let summary = Summary::of(&results);
    let row = &summary.workloads[0].cases[0].rows[0];
    let p99 = row.percentile(Group::Acknowledged, 99.0).unwrap();
    assert_eq!(p99.cells[0].range(), None);
    assert_eq!(p99.cells[1].repeats.len(), 3);
    // Of all samples: by the first two repeats alone it would be 2.
    let ratio = p99.ratios[1].as_ref().unwrap();
    assert!(ratio.pairs.is_empty() && ratio.median < 1.0, "{ratio:?}");
}

#[test]
fn what_is_missing_is_a_dash_with_its_reason_once() {
    let mut turns = vec![produced("one", 1, 10.0), produced("one", 2, 10.0)];
    for repeat in [1, 2] {
        let mut missing = turn("a", "capacity", "two", repeat);
        missing.missing = Some("it has no flush".to_owned());
        turns.push(missing);
    }
    turns[0].notes.push("the client was busy 99 %".to_owned());
    turns[1].notes.push("the client was busy 9 %".to_owned());
    let results = with(turns);
    let summary = Summary::of(&results);
    let row = &summary.workloads[0].cases[0].rows[0];
    let line = row.line(Group::Throughput, PRODUCED, RECORDS).unwrap();
    assert_eq!(line.cells[1].value, None);
    assert_eq!(line.ratios[1], None);
    let note = |target: &str, text: &str, others| Note {
        target: target.to_owned(),
        text: text.to_owned(),
        others,
    };
    assert_eq!(row.missing, [note("two", "it has no flush", 0)]);
    assert_eq!(row.notes, [note("one", "the client was busy 99 %", 1)]);
}

#[test]
fn costs_are_by_record_or_by_byte_and_the_machines_steal_is_nobodys_merit() {
    let mut small = produced("one", 1, 125_000.0);
    small.cost = Some(cost(4.0));
    let mut other = produced("two", 1, 125_000.0);
    other.cost = Some(cost(8.0));
    let results = with(vec![small.clone(), other]);
    let summary = Summary::of(&results);
    let row = &summary.workloads[0].cases[0].rows[0];
    let line = |name: &str, unit: &str| row.line(Group::Cost, name, unit).unwrap();
    let cpu = line("broker CPU", "s/M records");
    assert_eq!(cpu.cells[0].value, Some(4.0));
    assert_eq!(cpu.ratios[1].as_ref().unwrap().median, 2.0);
    let switches = line("context switches", "/1,000 records");
    assert_eq!(switches.cells[0].value, Some(41.0));
    let written = line("written by the broker", "B/payload B").cells[0].value;
    assert!((written.unwrap() - 300.0 / 1024.0).abs() < 1e-9);
    let steal = line(STEAL, "%");
    assert!((steal.cells[0].value.unwrap() - 0.125).abs() < 1e-9);
    assert_eq!(steal.ratios[1], None);

    let measured = small.measured.as_mut().unwrap();
    measured.produced.requests = measured.produced.bytes / (1 << 20);
    let results = with(vec![small]);
    let summary = Summary::of(&results);
    let row = &summary.workloads[0].cases[0].rows[0];
    let cpu = row.line(Group::Cost, "broker CPU", "s/GB").unwrap();
    assert!((cpu.cells[0].value.unwrap() - 4.0 / 1.024).abs() < 1e-9);
}

#[test]
fn figures_of_the_same_name_and_another_unit_are_not_mixed() {
    let figure = |unit: &str, value, better| Figure {
        name: "start".to_owned(),
        value,
        unit: unit.to_owned(),
        better,
    };
    let mut one = turn("j", "lifecycle", "one", 1);
    one.figures = vec![figure("s", 2.0, Better::Lower)];
    let mut two = turn("j", "lifecycle", "two", 1);
    two.figures = vec![
        figure("s", 0.0, Better::Lower),
        figure("starts/s", 1.0, Better::Higher),
    ];
    let results = with(vec![one, two]);
    let summary = Summary::of(&results);
    let row = &summary.workloads[0].cases[0].rows[0];
    assert_eq!(row.lines.len(), 2);
    let line = row.line(Group::Figure, "start", "s").unwrap();
    assert_eq!(line.cells[1].value, Some(0.0));
    assert_eq!(line.ratios[1], None, "nothing is so many times zero");
}

#[test]
fn rows_keep_the_order_of_the_file_and_points_of_curves_are_told_apart() {
    let results = sample::whole(300);
    let summary = Summary::of(&results);
    let names: Vec<&str> = summary.workloads.iter().map(Workload::label).collect();
    assert_eq!(names, ["a", "c", "e", "g", "i", "j"]);
    let curves = summary.workloads[0].cases[0].rows.iter();
    let curves: Vec<bool> = curves.map(|row| row.curve).collect();
    assert_eq!(curves, [false, false, true, true, true]);
    assert_eq!(summary.workloads[4].cases[0].name, "100 partitions, flush");
}

#[test]
fn a_median_is_the_middle() {
    assert_eq!(median([]), None);
    assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
}

#[test]
fn targets_at_rates_of_their_own_are_a_curve_and_are_not_compared() {
    let mut turns = [("one", 100.0), ("two", 300.0)].map(|(t, us)| timed(t, 1, us, 2_000));
    for (turn, same) in [(0, true), (1, false)] {
        turns[turn].rate = Some(1000.0 * (turn + 1) as f64);
        if same {
            turns[1].rate = turns[0].rate;
        }
        let results = with(turns.to_vec());
        let summary = Summary::of(&results);
        let row = &summary.workloads[0].cases[0].rows[0];
        let line = row.percentile(Group::Acknowledged, 50.0).unwrap();
        assert_eq!(line.ratios[1].is_some(), same);
        assert_eq!((row.same_rate, row.curve), (same, !same));
        let at = if same {
            "half, 1.00 k/s"
        } else {
            "half, each at its own rate"
        };
        assert_eq!(row.at(), at);
    }
}
