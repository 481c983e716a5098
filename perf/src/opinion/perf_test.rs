//! Kafka's `kafka-producer-perf-test`: how it is run, and what it says.

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use std::path::Path;
use std::process::Command;

/// What is asked of the tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Of a record's value.
    pub record_bytes: u32,
    /// That count.
    pub records: u64,
    /// Before them.
    pub warmup_records: u64,
    /// Records a second; `None`: as many as it can.
    pub rate: Option<f64>,
    /// Settings of the producer, `NAME=VALUE`.
    pub settings: &'static [&'static str],
}

/// What the tool says of the records after the warm-up. It tells latencies in whole milliseconds, from `send` to the
/// acknowledgement; at saturation that is mostly the wait in its own buffer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    pub records: u64,
    pub records_per_second: f64,
    /// 1 MB is 2^20 bytes here.
    pub mb_per_second: f64,
    pub average_ms: f64,
    pub max_ms: f64,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
}

/// With Kafka's jars and the options that its script gives to the virtual machine.
pub fn command(jars: &Path, broker: &str, topic: &str, load: &Load) -> Command {
    let throughput = load.rate.map_or(-1.0, |rate| rate);
    let mut command = Command::new("java");
    command
        .args(JVM_FLAGS)
        .arg("-cp")
        .arg(jars.join("*"))
        .arg("org.apache.kafka.tools.ProducerPerformance")
        .args(["--bootstrap-server", broker, "--topic", topic])
        .args(["--record-size", &load.record_bytes.to_string()])
        .args([
            "--num-records",
            &(load.warmup_records + load.records).to_string(),
        ])
        .args(["--warmup-records", &load.warmup_records.to_string()])
        .args(["--throughput", &throughput.to_string()])
        .arg("--command-property")
        .args(load.settings);
    command
}

/// Reads its output. An error if records are missing: the tool goes on, and ends well, when some could not be sent.
pub fn parse(output: &str, load: &Load) -> Result<Summary> {
    let steady = output.lines().rev().find_map(|line| summary(line.trim()));
    let steady = steady.context("kafka-producer-perf-test printed no summary")?;
    ensure!(
        steady.records == load.records,
        "kafka-producer-perf-test sent {} of {} records",
        steady.records,
        load.records
    );
    Ok(steady)
}

/// `15000 steady state records sent, 3160.5 records/sec (3.09 MB/sec), 3.1 ms avg latency, 9.0 ms max latency,
/// 3 ms 50th, 4 ms 95th, 5 ms 99th, 6 ms 99.9th.`
fn summary(line: &str) -> Option<Summary> {
    let line = line.strip_suffix(" ms 99.9th.")?;
    let (records, line) = line.split_once(" steady state records sent, ")?;
    let (records_per_second, line) = line.split_once(" records/sec (")?;
    let (mb_per_second, line) = line.split_once(" MB/sec), ")?;
    let (average_ms, line) = line.split_once(" ms avg latency, ")?;
    let (max_ms, line) = line.split_once(" ms max latency, ")?;
    let (p50_ms, line) = line.split_once(" ms 50th, ")?;
    let (p95_ms, line) = line.split_once(" ms 95th, ")?;
    let (p99_ms, p999_ms) = line.split_once(" ms 99th, ")?;
    Some(Summary {
        records: records.parse().ok()?,
        records_per_second: number(records_per_second)?,
        mb_per_second: number(mb_per_second)?,
        average_ms: number(average_ms)?,
        max_ms: number(max_ms)?,
        p50_ms: number(p50_ms)?,
        p95_ms: number(p95_ms)?,
        p99_ms: number(p99_ms)?,
        p999_ms: number(p999_ms)?,
    })
}

/// Not `NaN`, which it prints of nothing.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// As kafka-producer-perf-test.sh and kafka-run-class.sh set them.
const JVM_FLAGS: [&str; 8] = [
    "-Xmx512M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Warmup first 5000 records. Steady state results will print after the complete test summary.
9000 records sent, 1800.0 records/sec (1.76 MB/sec), 1950.5 ms avg latency, 2800.0 ms max latency.
20000 records sent, 3561.887801 records/sec (3.48 MB/sec), 3007.07 ms avg latency, 4297.00 ms max latency, 3228 ms 50th, 4166 ms 95th, 4269 ms 99th, 4295 ms 99.9th.
15000 steady state records sent, 3160.556258 records/sec (3.09 MB/sec), 3461.13 ms avg latency, 4297.00 ms max latency, 3493 ms 50th, 4196 ms 95th, 4273 ms 99th, 4296 ms 99.9th.
";

    fn load() -> Load {
        Load {
            record_bytes: 1024,
            records: 15_000,
            warmup_records: 5000,
            rate: None,
            settings: &["linger.ms=0", "batch.size=1"],
        }
    }

    #[test]
    fn the_steady_state_is_read() {
        assert_eq!(
            parse(OUTPUT, &load()).unwrap(),
            Summary {
                records: 15_000,
                records_per_second: 3160.556258,
                mb_per_second: 3.09,
                average_ms: 3461.13,
                max_ms: 4297.0,
                p50_ms: 3493.0,
                p95_ms: 4196.0,
                p99_ms: 4273.0,
                p999_ms: 4296.0,
            }
        );
    }

    #[test]
    fn records_that_were_not_sent_are_an_error() {
        let load = Load {
            records: 15_001,
            ..load()
        };
        let error = parse(OUTPUT, &load).unwrap_err().to_string();
        assert_eq!(
            error,
            "kafka-producer-perf-test sent 15000 of 15001 records"
        );
    }

    #[test]
    fn what_is_no_summary_is_an_error() {
        let whole = OUTPUT.lines().next_back().unwrap();
        let not_a_number = whole.replace("3.09", "NaN");
        let cut = &whole[..whole.len() - 10];
        for bad in [
            "",
            "java.lang.Error",
            OUTPUT.lines().nth(2).unwrap(),
            cut,
            &not_a_number,
        ] {
            let error = parse(bad, &load()).unwrap_err().to_string();
            assert!(error.contains("printed no summary"), "{bad}: {error}");
        }
    }

    #[test]
    fn the_command_names_the_load() {
        let command = command(Path::new("/jars"), "127.0.0.1:1", "t", &load());
        let words: Vec<&str> = command.get_args().map(|w| w.to_str().unwrap()).collect();
        let text = words.join(" ");
        assert!(
            text.contains("-cp /jars/* org.apache.kafka.tools.ProducerPerformance"),
            "{text}"
        );
        assert!(
            text.contains("--num-records 20000 --warmup-records 5000 --throughput -1 "),
            "{text}"
        );
        assert!(
            text.ends_with("--command-property linger.ms=0 batch.size=1"),
            "{text}"
        );
    }
}
