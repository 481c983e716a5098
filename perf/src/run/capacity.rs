//! How many records a second a load asks for.

use crate::report::summary::median;
use crate::results::Measurement;
use crate::workload::{Case, LoadPoint};
use anyhow::{Context, Result};

/// The rate of a load, and what is to be said about it.
#[derive(Debug, Default, PartialEq)]
pub struct Rate {
    /// `None` at saturation.
    pub per_second: Option<f64>,
    pub note: Option<String>,
}

/// What was found of one case so far.
pub struct Found<'a> {
    pub workload: &'a str,
    pub case: &'a Case,
    pub measurements: &'a [Measurement],
    /// The targets among which `slowest` is looked for: the brokers, not the floor, unless there is nothing else.
    pub brokers: &'a [String],
}

impl Found<'_> {
    /// The rate of a load on a target.
    pub fn rate(&self, load: &LoadPoint, target: &str) -> Result<Rate> {
        let Some(share) = load.share else {
            return Ok(Rate {
                per_second: load.rate,
                note: None,
            });
        };
        let place = self.case.loads.iter().position(|other| other == load);
        let before = &self.case.loads[..place.unwrap_or(self.case.loads.len())];
        let base = before.iter().rfind(|other| other.saturate);
        let base = &base.context("no load with saturate comes before it")?.name;
        let (capacity, note) = match load.of.as_str() {
            "slowest" => (self.slowest(base), None),
            "self" => (self.median(base, target), None),
            other => match self.median(base, other) {
                Some(capacity) => (Some(capacity), None),
                None => {
                    let note = format!(
                        "a share of the slowest's capacity, since there is none of {other}"
                    );
                    (self.slowest(base), Some(note))
                }
            },
        };
        let capacity =
            capacity.with_context(|| format!("no capacity was found of which this is {share}"))?;
        Ok(Rate {
            per_second: Some(capacity * share),
            note,
        })
    }

    fn slowest(&self, base: &str) -> Option<f64> {
        let medians = self
            .brokers
            .iter()
            .filter_map(|name| self.median(base, name));
        medians.reduce(f64::min)
    }

    /// Of the repeats of one target.
    fn median(&self, base: &str, target: &str) -> Option<f64> {
        let of_it = self.measurements.iter().filter(|measurement| {
            let key = &measurement.key;
            key.workload == self.workload
                && key.case == self.case.name
                && key.load == base
                && key.target == target
        });
        let rates = of_it
            .filter(|measurement| measurement.missing.is_none())
            .filter_map(|measurement| measurement.measured.as_ref())
            .map(|measured| measured.produced.records_per_second())
            .filter(|rate| *rate > 0.0);
        median(rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Measured, Moved};
    use crate::results::Key;
    use crate::workload::parse;

    fn found(target: &str, repeat: u32, rate: u64) -> Measurement {
        Measurement {
            key: Key {
                workload: "w".to_owned(),
                case: String::new(),
                load: "capacity".to_owned(),
                target: target.to_owned(),
                repeat,
            },
            letter: None,
            title: String::new(),
            definition: String::new(),
            rate: None,
            measured: Some(Measured {
                produced: Moved {
                    records: rate * 2,
                    seconds: 2.0,
                    ..Moved::default()
                },
                ..Measured::default()
            }),
            figures: Vec::new(),
            cost: None,
            notes: Vec::new(),
            missing: None,
        }
    }

    fn rate(of: &str, target: &str, measurements: &[Measurement]) -> Result<Rate> {
        let file = format!(
            "name = \"w\"\ntitle = \"\"\n[case]\nloads = [{{ name = \"capacity\", saturate = true }}, \
             {{ name = \"half\", share = 0.5, of = \"{of}\" }}]"
        );
        let workload = parse(&file, "w", false)?;
        let case = &workload.cases[0];
        Found {
            workload: "w",
            case,
            measurements,
            brokers: &["a".to_owned(), "b".to_owned()],
        }
        .rate(&case.loads[1], target)
    }

    #[test]
    fn a_share_is_of_the_median_of_a_targets_repeats() {
        let all = [
            found("a", 1, 100),
            found("a", 2, 900),
            found("a", 3, 300),
            found("b", 1, 200),
            found("b", 2, 240),
            found("floor", 1, 10),
        ];
        let per_second = |of, target| rate(of, target, &all).unwrap().per_second;
        assert_eq!(per_second("self", "a"), Some(150.0));
        assert_eq!(per_second("self", "b"), Some(110.0));
        assert_eq!(per_second("self", "floor"), Some(5.0));
        assert_eq!(per_second("a", "b"), Some(150.0));
        // The floor is no broker.
        assert_eq!(per_second("slowest", "a"), Some(110.0));
    }

    #[test]
    fn without_the_one_that_is_named_it_is_the_slowest_and_said() {
        let all = [found("a", 1, 100), found("b", 1, 200)];
        let rate = rate("kafka", "b", &all).unwrap();
        assert_eq!(rate.per_second, Some(50.0));
        assert!(rate.note.unwrap().contains("kafka"));
    }

    #[test]
    fn without_any_capacity_there_is_no_rate() {
        let mut failed = found("a", 1, 100);
        failed.missing = Some("it died".to_owned());
        for of in ["slowest", "self", "kafka"] {
            assert!(rate(of, "a", std::slice::from_ref(&failed)).is_err());
        }
    }
}
