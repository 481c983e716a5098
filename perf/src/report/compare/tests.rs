use super::*;
use crate::measure::Measured;
use crate::report::metrics::PRODUCED;
use crate::report::sample::{empty, latencies, moved, turn, whole};
use crate::report::text::WIDTH;

fn capacities(rates: &[f64]) -> Results {
    let mut results = empty(&["highwater", "kafka"]);
    for (n, rate) in rates.iter().enumerate() {
        for (target, times) in [("highwater", 1.0), ("kafka", 0.5)] {
            let mut turn = turn("a", "capacity", target, n as u32 + 1);
            turn.measured = Some(Measured {
                produced: moved(rate * times, 1024),
                ..Measured::default()
            });
            results.measurements.push(turn);
        }
    }
    results
}

fn change(old: &[f64], new: &[f64], threshold: f64) -> Change {
    let comparison = Comparison::of(&capacities(old), &capacities(new), threshold);
    let entry = &comparison.entries[0];
    assert_eq!(
        (entry.metric.name.as_str(), entry.metric.unit.as_str()),
        (PRODUCED, RECORDS)
    );
    assert_eq!(comparison.is_worse(), entry.change == Change::Worse);
    entry.change
}

#[test]
fn only_what_is_beyond_the_threshold_and_the_ranges_is_marked() {
    let old = [1000.0, 1010.0, 990.0];
    assert_eq!(change(&old, &[1200.0, 1210.0], 0.05), Change::Better);
    assert_eq!(change(&old, &[800.0, 810.0], 0.05), Change::Worse);
    // Ranges that meet, however far the medians are.
    assert_eq!(change(&old, &[500.0, 995.0, 510.0], 0.05), Change::Same);
    // Apart, and within the threshold.
    assert_eq!(change(&old, &[1020.0, 1030.0], 0.05), Change::Same);
    assert_eq!(change(&old, &[1020.0, 1030.0], 0.01), Change::Better);
    assert_eq!(change(&old, &[500.0], 0.05), Change::TooFewRepeats);
    assert_eq!(change(&old, &old, 0.0), Change::Same);
}

#[test]
fn lower_latency_is_better_and_a_range_goes_from_worst_to_best() {
    let timed = |us: [f64; 2]| {
        let mut results = empty(&["highwater"]);
        for (n, us) in us.iter().enumerate() {
            let mut turn = turn("a", "half", "highwater", n as u32 + 1);
            turn.rate = Some(100.0);
            turn.measured = Some(Measured {
                acknowledged: latencies(*us, 500, 5),
                ..Measured::default()
            });
            results.measurements.push(turn);
        }
        results
    };
    let comparison = Comparison::of(&timed([200.0, 220.0]), &timed([100.0, 110.0]), 0.05);
    let entry = &comparison.entries[0];
    assert_eq!(entry.change, Change::Better);
    let (low, high) = entry.range.unwrap();
    assert!(
        (1.78..1.86).contains(&low) && (2.15..2.25).contains(&high),
        "{entry:?}"
    );
    let back = Comparison::of(&timed([100.0, 110.0]), &timed([200.0, 220.0]), 0.05);
    assert!(back.is_worse() && back.text().contains("WORSE"));
}

#[test]
fn other_work_is_told_and_not_marked() {
    let old = capacities(&[1000.0, 1000.0]);
    let mut new = capacities(&[500.0, 500.0]);
    for turn in &mut new.measurements {
        turn.definition = "another".to_owned();
    }
    let comparison = Comparison::of(&old, &new, 0.05);
    assert!(comparison
        .entries
        .iter()
        .all(|e| e.change == Change::OtherWork));
    assert!(comparison.text().contains("not the same case"));
    let with_rate = |rate| {
        let mut results = capacities(&[1000.0, 1000.0]);
        for turn in &mut results.measurements {
            turn.rate = Some(rate);
        }
        results
    };
    let rates = Comparison::of(&with_rate(100.0), &with_rate(200.0), 0.05);
    assert!(rates.entries.iter().all(|e| e.change == Change::OtherWork));
    assert!(rates.text().contains("a rate of 100 /s in the old run"));
}

#[test]
fn another_broker_that_got_worse_is_marked_and_is_no_regression() {
    let old = capacities(&[1000.0, 1000.0]);
    let mut new = old.clone();
    for turn in &mut new.measurements {
        let measured = turn.measured.as_mut().unwrap();
        if turn.key.target == "kafka" {
            measured.produced = moved(100.0, 1024);
        }
    }
    let comparison = Comparison::of(&old, &new, 0.05);
    assert!(comparison.text().contains("WORSE"));
    assert!(!comparison.is_worse());
}

#[test]
fn what_one_run_alone_has_and_another_machine_are_listed() {
    let mut old = capacities(&[1000.0, 1000.0]);
    let mut new = whole(300);
    old.measurements.push(turn("z", "gone", "highwater", 1));
    new.machine.cpu = "Another CPU".to_owned();
    new.settings.quick = true;
    let text = Comparison::of(&old, &new, 0.05).text();
    for part in [
        "only the old run has (z) gone",
        "only the old run has (a) capacity",
        "only the new run has (j) lifecycle",
        "The machine is not the same: Sample CPU",
        "The length of the runs is not the same: full",
        "Another CPU",
        "quick in the new one",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    new.measurements.clear();
    let nothing = Comparison::of(&old, &new, 0.05);
    assert!(nothing.entries.is_empty() && !nothing.is_worse());
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
}

#[test]
fn a_target_that_one_run_alone_has_is_listed() {
    let old = capacities(&[1000.0, 1000.0]);
    let mut new = old.clone();
    new.settings.targets.pop();
    new.measurements
        .retain(|turn| turn.key.target == "highwater");
    for (old, new, run) in [(&old, &new, "old"), (&new, &old, "new")] {
        let comparison = Comparison::of(old, new, 0.05);
        let expected = format!("only the {run} run has (a) capacity, kafka");
        assert_eq!(comparison.one_sided, [expected]);
    }
}

#[test]
fn files_that_cannot_be_compared_are_errors_of_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    store::save(&path("good.json"), &capacities(&[1.0, 2.0])).unwrap();
    std::fs::write(path("bad.json"), "{\"version\": 99}").unwrap();
    let compare = |old: &str, new: &str| {
        run(&CompareArgs {
            old: path(old),
            new: path(new),
            threshold: 0.05,
            fail_on_regression: true,
        })
    };
    assert!(!compare("good.json", "good.json").unwrap());
    for (old, new, part) in [
        ("good.json", "none.json", "no such file"),
        ("bad.json", "good.json", "version 99"),
    ] {
        let error = compare(old, new).unwrap_err().to_string();
        assert!(
            error.contains(part) && error.lines().count() == 1,
            "{error}"
        );
    }
    store::save(&path("fast.json"), &capacities(&[10.0, 20.0])).unwrap();
    assert!(compare("fast.json", "good.json").unwrap());
}

#[test]
fn a_threshold_is_a_percentage() {
    assert_eq!(threshold("5%"), Ok(0.05));
    assert_eq!(threshold("0"), Ok(0.0));
    for bad in ["", "%", "-1", "nan", "inf", "5%%", "x", "1001"] {
        assert!(threshold(bad).is_err(), "{bad}");
    }
}
