//! The figures that a turn yields: each with its name, unit, and which way is better.

use crate::measure::{Measured, Recorder};
use crate::results::{Better, Cost, Measurement};

/// What is compared between targets; one line of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    pub name: String,
    /// `us`, `records/s`, `MB/s`, or what the figure of a workload says.
    pub unit: String,
    pub better: Better,
    pub group: Group,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Throughput,
    Acknowledged,
    Delivered,
    ScheduleDelay,
    /// What only this kind of workload has.
    Figure,
    Cost,
}

/// A percentile of one of the latencies of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentile {
    pub of: Group,
    /// 0 to 100.
    pub percentile: f64,
}

pub const PERCENTILES: [Percentile; 8] = [
    of(Group::Acknowledged, 50.0),
    of(Group::Acknowledged, 99.0),
    of(Group::Acknowledged, 99.9),
    of(Group::Acknowledged, 99.99),
    of(Group::Delivered, 50.0),
    of(Group::Delivered, 99.0),
    of(Group::Delivered, 99.9),
    of(Group::ScheduleDelay, 99.0),
];

pub const PRODUCED: &str = "produced";
pub const CONSUMED: &str = "consumed";
pub const RECORDS: &str = "records/s";
/// Whoever wrote it.
pub const DEVICE: &str = "written to the device";
/// The CPU that all others took of the machine: of the machine, not of a target.
pub const STEAL: &str = "steal of all CPUs";

impl Metric {
    fn new(name: &str, unit: &str, better: Better, group: Group) -> Metric {
        Metric {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better,
            group,
        }
    }

    /// Whether a target can be better than another by it: the client's own delay and what other machines' work takes
    /// are told, and not compared.
    pub fn is_of_target(&self) -> bool {
        self.group != Group::ScheduleDelay && self.name != STEAL
    }

    /// How many times better `one` is than `other`; `None` where that has no meaning.
    pub fn advantage(&self, one: f64, other: f64) -> Option<f64> {
        let sensible = |value: f64| value.is_finite() && value > 0.0;
        if !sensible(one) || !sensible(other) {
            return None;
        }
        Some(match self.better {
            Better::Higher => one / other,
            Better::Lower => other / one,
        })
    }
}

impl Percentile {
    /// `word` says what the latency is of.
    pub fn metric(&self, word: &str) -> Metric {
        let name = format!("{word} p{}", self.percentile);
        Metric::new(&name, "us", Better::Lower, self.of)
    }

    pub fn recorder<'a>(&self, measured: &'a Measured) -> &'a Recorder {
        recorder(self.of, measured)
    }
}

/// The latencies of a group.
pub fn recorder(of: Group, measured: &Measured) -> &Recorder {
    match of {
        Group::Delivered => &measured.delivered,
        Group::ScheduleDelay => &measured.schedule_delay,
        _ => &measured.acknowledged,
    }
}

/// What the figures of a row are told by.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// CPU time is told for each GB instead of each million records.
    pub per_gb: bool,
    /// Of the machine.
    pub cpus: usize,
}

impl Scale {
    /// By the size of the requests of a measurement.
    pub fn of(measured: Option<&Measured>, cpus: usize) -> Scale {
        let per_gb = measured.is_some_and(|measured| {
            let moved = main_work(measured);
            moved.requests > 0 && moved.bytes / moved.requests >= BIG_REQUEST_BYTES
        });
        Scale { per_gb, cpus }
    }
}

/// All figures of a turn but its percentiles, in the order of a table.
pub fn scalars(turn: &Measurement, scale: Scale) -> Vec<(Metric, f64)> {
    let mut all = Vec::new();
    if let Some(measured) = &turn.measured {
        for (name, moved) in [(PRODUCED, measured.produced), (CONSUMED, measured.consumed)] {
            if moved.records == 0 {
                continue;
            }
            let mut add = |unit: &str, value| {
                let metric = Metric::new(name, unit, Better::Higher, Group::Throughput);
                all.push((metric, value));
            };
            add(RECORDS, moved.records_per_second());
            add("MB/s", moved.mb_per_second());
        }
        if let Some(seconds) = measured.drained_after_s {
            let metric = Metric::new("backlog drained after", "s", Better::Lower, Group::Figure);
            all.push((metric, seconds));
        }
    }
    for figure in &turn.figures {
        let metric = Metric::new(&figure.name, &figure.unit, figure.better, Group::Figure);
        all.push((metric, figure.value));
    }
    if let Some(cost) = &turn.cost {
        costs(cost, turn.measured.as_ref(), scale, &mut all);
    }
    all.retain(|(_, value)| value.is_finite());
    all
}

/// Requests from this size on are measured by bytes.
const BIG_REQUEST_BYTES: u64 = 64 << 10;

const fn of(of: Group, percentile: f64) -> Percentile {
    Percentile { of, percentile }
}

/// What the broker's costs are divided by: what was produced, or else what was consumed.
fn main_work(measured: &Measured) -> crate::measure::Moved {
    if measured.produced.records > 0 {
        measured.produced
    } else {
        measured.consumed
    }
}

fn costs(cost: &Cost, measured: Option<&Measured>, scale: Scale, all: &mut Vec<(Metric, f64)>) {
    let mut add = |name: &str, unit: &str, value: f64| {
        let metric = Metric::new(name, unit, Better::Lower, Group::Cost);
        all.push((metric, value));
    };
    let moved = measured.map(main_work).unwrap_or_default();
    let timed = cost.seconds > 0.0 && moved.seconds > 0.0;
    if moved.records > 0 && timed {
        // Rates, since the process may be watched a little longer than the clients.
        let each = |count: f64, units: f64| (count / cost.seconds) / (units / moved.seconds);
        if scale.per_gb {
            let gb = moved.bytes as f64 / 1e9;
            add("broker CPU", "s/GB", each(cost.cpu_seconds, gb));
        } else {
            let millions = moved.records as f64 / 1e6;
            add(
                "broker CPU",
                "s/M records",
                each(cost.cpu_seconds, millions),
            );
        }
        let switches = cost.voluntary_switches + cost.involuntary_switches;
        let thousands = moved.records as f64 / 1e3;
        let switches = each(switches as f64, thousands);
        add("context switches", "/1,000 records", switches);
        let produced = measured.map_or(0, |measured| measured.produced.bytes) as f64;
        if produced > 0.0 {
            let written = each(cost.written_bytes as f64, produced);
            add("written by the broker", "B/payload B", written);
            if let Some(device) = cost.device_written_bytes {
                let written = each(device as f64, produced);
                add(DEVICE, "B/payload B", written);
            }
        }
    } else {
        add("broker CPU", "s", cost.cpu_seconds);
    }
    if cost.resident_bytes > 0 {
        let mib = cost.resident_bytes as f64 / f64::from(1 << 20);
        add("resident memory", "MiB", mib);
    }
    if cost.seconds > 0.0 && scale.cpus > 0 {
        let share = cost.steal_seconds / (cost.seconds * scale.cpus as f64);
        add(STEAL, "%", share * 100.0);
    }
}
