//! Results as a run leaves them, made up: for the tests of what reports say.

use crate::measure::{Measured, Moved, Recorder};
use crate::results::{
    Better, Cost, Figure, Key, Machine, Measurement, Results, Settings, TargetInfo, VERSION,
};
use std::time::Duration;

pub const TARGETS: [&str; 5] = ["highwater", "kafka", "floor", "nats", "redis"];

/// Without measurements.
pub fn empty(targets: &[&str]) -> Results {
    let target = |name: &&str| TargetInfo {
        name: (*name).to_owned(),
        description: format!("{name} 1.0, settings as recommended"),
    };
    Results {
        version: VERSION,
        started_at: 1_790_000_000,
        machine: Machine {
            cpu: "Sample CPU".to_owned(),
            cpus: 2,
            memory_bytes: 24 << 30,
            kernel: "6.18".to_owned(),
            file_system: "ext4".to_owned(),
        },
        settings: Settings {
            quick: false,
            broker_cpus: vec![0],
            client_cpus: vec![1],
            broker_memory_bytes: 4 << 30,
            memory_limit: "cgroup".to_owned(),
            targets: targets.iter().map(target).collect(),
        },
        measurements: Vec::new(),
    }
}

/// A turn without any figure.
pub fn turn(workload: &str, load: &str, target: &str, repeat: u32) -> Measurement {
    Measurement {
        key: Key {
            workload: workload.to_owned(),
            case: String::new(),
            load: load.to_owned(),
            target: target.to_owned(),
            repeat,
        },
        letter: Some(workload.chars().take(1).collect()),
        title: format!("Workload {workload}"),
        definition: "d".to_owned(),
        rate: None,
        measured: None,
        figures: Vec::new(),
        cost: None,
        notes: Vec::new(),
        missing: None,
    }
}

/// So many records of 1 KiB a second, for eight seconds.
pub fn moved(records_per_second: f64, bytes: u64) -> Moved {
    let records = (records_per_second * 8.0) as u64;
    Moved {
        records,
        bytes: records * bytes,
        requests: records.div_ceil((16_384 / bytes).max(1)),
        seconds: 8.0,
    }
}

/// Latencies around a median, with a tail as real ones have.
pub fn latencies(median_us: f64, samples: u64, seed: u64) -> Recorder {
    let mut recorder = Recorder::default();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for n in 0..samples {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let even = ((state >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        // A Pareto tail on top of an exponential body.
        let us = median_us * (0.6 - 0.55 * even.ln() + 0.02 * even.powf(-0.55));
        let at = Duration::from_secs_f64(8.0 * n as f64 / samples as f64);
        recorder.record(at, Duration::from_nanos((us * 1e3) as u64));
    }
    recorder
}

pub fn cost(cpu_seconds: f64) -> Cost {
    Cost {
        seconds: 8.0,
        cpu_seconds,
        resident_bytes: (cpu_seconds * 2e7) as u64,
        voluntary_switches: 40_000,
        involuntary_switches: 1_000,
        written_bytes: 300_000_000,
        device_written_bytes: Some(350_000_000),
        steal_seconds: 0.02,
    }
}

/// All kinds of rows: saturation, rates, curves, consumers, figures, notes, and what is missing.
pub fn whole(samples: u64) -> Results {
    let mut results = empty(&TARGETS);
    // Relative capacity and latency.
    let speed = [1.0, 0.18, 1.06, 0.55, 0.7];
    for (workload, load, share, rate) in ROWS {
        let repeats = if load.ends_with('%') { 1 } else { 3 };
        for repeat in 1..=repeats {
            for (n, target) in TARGETS.iter().enumerate() {
                let mut turn = turn(workload, load, target, repeat);
                let seed = (n as u64 + 1) * 31 + u64::from(repeat);
                let wobble = 1.0 + 0.04 * (seed % 5) as f64;
                sample_turn(&mut turn, rate, speed[n] * wobble, (samples, seed, share));
                results.measurements.push(turn);
            }
        }
    }
    results
}

const ROWS: [(&str, &str, f64, f64); 11] = [
    ("a-connections", "capacity", 1.0, 0.0),
    ("a-connections", "half of the slowest", 0.1, 7_200.0),
    ("a-connections", "20%", 0.04, 2_880.0),
    ("a-connections", "70%", 0.15, 10_000.0),
    ("a-connections", "90%", 0.3, 13_000.0),
    ("c-big", "capacity", 1.0, 0.0),
    ("e-end-to-end", "half of kafka", 0.1, 90_000.0),
    ("e-end-to-end", "burst", 0.5, 90_000.0),
    ("g-cold", "read", 1.0, 0.0),
    ("i-partitions", "capacity", 1.0, 0.0),
    ("j-lifecycle", "lifecycle", 1.0, 0.0),
];

fn sample_turn(turn: &mut Measurement, rate: f64, speed: f64, shape: (u64, u64, f64)) {
    let (samples, seed, share) = shape;
    let target = turn.key.target.clone();
    let workload = turn.key.workload.clone();
    if target == "redis" && workload != "a-connections" {
        turn.missing = Some("no batches in its protocol".to_owned());
        return;
    }
    turn.cost = Some(cost(2.0 / speed));
    if workload == "j-lifecycle" {
        let figure = |name: &str, value: f64, unit: &str, better| Figure {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            better,
        };
        turn.figures = vec![
            figure(
                "listens after a clean stop",
                0.05 / speed,
                "s",
                Better::Lower,
            ),
            figure("listens after a kill", 0.09 / speed, "s", Better::Lower),
            figure("idle memory", 3e7 / speed, "bytes", Better::Lower),
            figure("idle CPU", 0.001 / speed, "% of a CPU", Better::Lower),
        ];
        return;
    }
    let bytes = if workload == "c-big" { 16_384 } else { 1024 };
    let mut measured = Measured::default();
    let at = if rate > 0.0 { rate } else { 80_000.0 * speed };
    if workload == "g-cold" {
        measured.consumed = moved(at * 8.0, bytes);
        turn.measured = Some(measured);
        return;
    }
    measured.produced = moved(at, bytes);
    measured.acknowledged = latencies(180.0 / speed * (1.0 + share), samples, seed);
    if rate > 0.0 {
        turn.rate = Some(rate);
        measured.schedule_delay = latencies(4.0, samples, seed);
    }
    if workload == "e-end-to-end" && target != "floor" {
        measured.consumed = measured.produced;
        measured.delivered = latencies(260.0 / speed, samples, seed + 7);
    }
    if target == "floor" && rate == 0.0 {
        turn.notes = vec!["the client was busy 97 % of the time: it may be the limit".to_owned()];
    }
    if workload == "i-partitions" {
        turn.key.case = "100 partitions, flush".to_owned();
    }
    turn.measured = Some(measured);
}
