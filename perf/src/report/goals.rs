//! What Highwater promises beside Apache Kafka and the machine's floor, and whether a run bears it out.

use super::metrics::{Group, PRODUCED, RECORDS};
use super::summary::{Line, Note, Ratio, Row, Summary, Workload};

/// One promise, measured in one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// `(a) capacity: at least 5x kafka`.
    pub goal: String,
    /// Ends with `(!)` where a note of the row says what keeps it from being what it seems.
    pub measured: String,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// In each repeat; in all of them together where one alone has too few samples, which the figure says.
    Met,
    /// By the median, and not in each repeat.
    MetInMedian,
    NotMet,
    NotMeasured,
}

impl Outcome {
    pub fn text(&self) -> &'static str {
        match self {
            Outcome::Met => "met",
            Outcome::MetInMedian => "met by the median",
            Outcome::NotMet => "not met",
            Outcome::NotMeasured => "not measured",
        }
    }
}

/// Each goal with what was measured; none for a run of another broker.
pub fn verdicts(summary: &Summary<'_>) -> Vec<Verdict> {
    let first = summary.targets.first();
    if first.is_none_or(|target| target.name != SUBJECT) {
        return Vec::new();
    }
    let mut verdicts = Vec::new();
    for (letter, times) in TIMES_KAFKA {
        let workload = summary
            .workloads
            .iter()
            .find(|workload| workload.letter.as_deref() == Some(letter));
        let Some(workload) = workload else {
            verdicts.push(Verdict {
                goal: format!("({letter}): {}", times_kafka(times)),
                measured: "workload not run".to_owned(),
                outcome: Outcome::NotMeasured,
            });
            continue;
        };
        of_workload(summary, workload, times, &mut verdicts);
    }
    verdicts
}

/// Whose goals these are.
const SUBJECT: &str = "highwater";
const KAFKA: &str = "kafka";
const FLOOR: &str = "floor";
/// By the letter of the workload: records a second at saturation, as a multiple of Kafka's.
const TIMES_KAFKA: [(&str, f64); 3] = [("a", 5.0), ("b", 2.0), ("c", 1.1)];
/// Of the floor's records a second at saturation.
const SHARE_OF_FLOOR: f64 = 0.9;
/// p99.9 at a rate, as a multiple of the floor's.
const TIMES_FLOOR_LATENCY: f64 = 1.5;

fn of_workload(
    summary: &Summary<'_>,
    workload: &Workload<'_>,
    times: f64,
    verdicts: &mut Vec<Verdict>,
) {
    for case in &workload.cases {
        for row in case.rows.iter().filter(|row| !row.curve) {
            let name = format!("({}) {}", workload.label(), row_name(&case.name, &row.load));
            let mut add = |goal: String, against: &str, line: Option<&Line>, least: f64, words| {
                let place = summary.target(against);
                let ratio = line.zip(place).and_then(|(l, at)| l.ratios[at].as_ref());
                let first = &summary.targets[0].name;
                let goal = format!("{name}: {goal}");
                let why_not = || match place {
                    Some(_) => why_not(row, first, against),
                    None => format!("{against} was not run"),
                };
                let mut verdict = judge(goal, ratio, least, words, why_not);
                let noted = |note: &Note| note.target == *first || note.target == against;
                if ratio.is_some() && row.notes.iter().any(noted) {
                    verdict.measured.push_str(" (!)");
                }
                verdicts.push(verdict);
            };
            if row.rate.is_none() {
                let rate = row.line(Group::Throughput, PRODUCED, RECORDS);
                add(times_kafka(times), KAFKA, rate, times, Words::Times);
                let goal = format!("at least {:.0} % of the floor", SHARE_OF_FLOOR * 100.0);
                add(goal, FLOOR, rate, SHARE_OF_FLOOR, Words::Percent);
            } else {
                let tail = row.percentile(Group::Acknowledged, 99.9);
                let goal = format!("p99.9 within {TIMES_FLOOR_LATENCY}x of the floor's");
                let least = 1.0 / TIMES_FLOOR_LATENCY;
                add(goal, FLOOR, tail, least, Words::TimesAsLong);
            }
        }
    }
}

fn times_kafka(times: f64) -> String {
    format!("at least {times}x {KAFKA}")
}

/// The case and the load in a few words.
pub fn row_name(case: &str, load: &str) -> String {
    if case.is_empty() {
        load.to_owned()
    } else {
        format!("{case}, {load}")
    }
}

/// How a ratio is told.
#[derive(Clone, Copy)]
enum Words {
    Times,
    Percent,
    /// The other way round: latencies.
    TimesAsLong,
}

impl Words {
    fn one(self, ratio: f64) -> String {
        match self {
            Words::Times => format!("{ratio:.2}x"),
            Words::Percent => format!("{:.1} %", ratio * 100.0),
            Words::TimesAsLong => format!("{:.2}x", 1.0 / ratio),
        }
    }

    fn range(self, (low, high): (f64, f64)) -> String {
        let (low, high) = match self {
            Words::TimesAsLong => (high, low),
            _ => (low, high),
        };
        format!("{} to {}", self.one(low), self.one(high))
    }
}

fn judge(
    goal: String,
    ratio: Option<&Ratio>,
    least: f64,
    words: Words,
    why_not: impl FnOnce() -> String,
) -> Verdict {
    let Some(ratio) = ratio else {
        return Verdict {
            goal,
            measured: why_not(),
            outcome: Outcome::NotMeasured,
        };
    };
    // 1 / 1.5 is not a whole number of bits; a goal reached to the digit is reached.
    let reached = |value: f64| value >= least - 1e-9;
    let outcome = match (
        reached(ratio.median),
        ratio.pairs.iter().all(|p| reached(*p)),
    ) {
        (false, _) => Outcome::NotMet,
        (true, true) => Outcome::Met,
        (true, false) => Outcome::MetInMedian,
    };
    let median = words.one(ratio.median);
    let measured = match ratio.range() {
        Some(range) => format!("{median} ({})", words.range(range)),
        None if ratio.pairs.is_empty() => format!("{median} (all repeats together)"),
        None => format!("{median} (one repeat)"),
    };
    Verdict {
        goal,
        measured,
        outcome,
    }
}

fn why_not(row: &Row<'_>, first: &str, against: &str) -> String {
    for name in [first, against] {
        if let Some(note) = row.missing.iter().find(|note| note.target == name) {
            return format!("{name}: {}", note.said());
        }
    }
    "not run, or too few samples".to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::sample::{empty, latencies, moved, turn};
    use super::*;
    use crate::measure::Measured;
    use crate::results::Results;

    const TARGETS: [&str; 3] = ["highwater", "kafka", "floor"];

    /// Records a second of the three targets in each repeat.
    fn capacities(letter: &str, repeats: &[[f64; 3]]) -> Results {
        let mut results = empty(&TARGETS);
        for (n, repeat) in repeats.iter().enumerate() {
            for (target, rate) in TARGETS.iter().zip(repeat) {
                let mut turn = turn(letter, "capacity", target, n as u32 + 1);
                turn.measured = Some(Measured {
                    produced: moved(*rate, 1024),
                    ..Measured::default()
                });
                results.measurements.push(turn);
            }
        }
        results
    }

    fn outcomes(results: &Results, of: &str) -> Vec<(String, Outcome)> {
        let verdicts = Summary::of(results).goals;
        let own = verdicts.into_iter().filter(|v| v.goal.starts_with(of));
        own.map(|v| (v.measured, v.outcome)).collect()
    }

    #[test]
    fn a_goal_is_met_in_each_repeat_or_by_the_median_or_not() {
        let good = capacities("a", &[[500.0, 100.0, 500.0], [600.0, 100.0, 620.0]]);
        let told = |text: &str, outcome| (text.to_owned(), outcome);
        assert_eq!(
            outcomes(&good, "(a)"),
            [
                told("5.50x (5.00x to 6.00x)", Outcome::Met),
                told("98.4 % (96.8 % to 100.0 %)", Outcome::Met),
            ]
        );
        let mixed = [
            [500.0, 100.0, 1000.0],
            [510.0, 100.0, 1000.0],
            [490.0, 100.0, 1000.0],
        ];
        assert_eq!(
            outcomes(&capacities("a", &mixed), "(a)"),
            [
                told("5.00x (4.90x to 5.10x)", Outcome::MetInMedian),
                told("50.0 % (49.0 % to 51.0 %)", Outcome::NotMet),
            ]
        );
        let same = capacities("b", &[[200.0, 100.0, 200.0]]);
        assert_eq!(
            outcomes(&same, "(b)")[0],
            told("2.00x (one repeat)", Outcome::Met)
        );
    }

    #[test]
    fn the_tail_is_held_against_the_floors() {
        for (us, outcome) in [(140.0, Outcome::Met), (160.0, Outcome::NotMet)] {
            let mut results = empty(&TARGETS);
            for (target, us) in [("highwater", us), ("floor", 100.0)] {
                for repeat in 1..=4 {
                    let mut turn = turn("c", "half", target, repeat);
                    turn.rate = Some(1000.0);
                    turn.measured = Some(Measured {
                        acknowledged: latencies(us, 30_000, 3),
                        ..Measured::default()
                    });
                    results.measurements.push(turn);
                }
            }
            let verdicts = Summary::of(&results).goals;
            let tail = verdicts.iter().find(|v| v.goal.contains("p99.9")).unwrap();
            assert_eq!(tail.outcome, outcome, "{tail:?}");
            assert!(
                tail.measured.starts_with(&format!("{:.1}", us / 100.0)),
                "{tail:?}"
            );
        }
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let mut results = capacities("a", &[[500.0, 100.0, 500.0]]);
        results
            .measurements
            .retain(|turn| turn.key.target != "floor");
        for turn in &mut results.measurements {
            if turn.key.target == "kafka" {
                turn.measured = None;
                turn.missing = Some("no jars".to_owned());
            }
        }
        let told = outcomes(&results, "(");
        assert_eq!(told.len(), 4, "two of (a), and (b) and (c)");
        assert!(told
            .iter()
            .all(|(_, outcome)| *outcome == Outcome::NotMeasured));
        assert_eq!(told[0].0, "kafka: no jars");
    }

    #[test]
    fn a_figure_with_a_note_says_so() {
        let mut results = capacities("a", &[[500.0, 100.0, 500.0]]);
        results.measurements[2].notes = vec!["the client was the limit".to_owned()];
        let told = outcomes(&results, "(a)");
        assert!(
            !told[0].0.contains("(!)") && told[1].0.ends_with("(!)"),
            "{told:?}"
        );
    }

    #[test]
    fn another_broker_has_none_of_these_goals() {
        let mut results = capacities("a", &[[500.0, 100.0, 500.0]]);
        results.settings.targets.swap(0, 1);
        assert!(Summary::of(&results).goals.is_empty());
    }
}
