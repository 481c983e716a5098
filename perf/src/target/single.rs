//! What the peers have in common whose protocol takes one record in a request: NATS and Redis.

use crate::workload::{Case, CodecName, DriverName, Keys, Kind};
use anyhow::{bail, Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Partitions of all topics of a case: each is a subject or a key of its own.
const PARTITIONS_MAX: u32 = 100;

/// Why a case would not be the same work, in a few words.
///
/// Measured are producers that send each record by itself (one at a time, or many connections), with consumers that
/// get each record as it comes, as one or as several sets. A batch in one request, with one checksum and one place in
/// the log, has no like in either protocol: a pipeline of single records is other work for both sides, so cases with
/// batches are left out, and so is what only Kafka's protocol has.
pub fn lacks(case: &Case) -> Option<String> {
    let reason = if case.producers.driver == DriverName::Librdkafka {
        "librdkafka speaks Kafka's protocol only"
    } else if case.kind == Kind::ColdRead {
        "no fetch of a stated number of bytes"
    } else if case.kind == Kind::Lifecycle {
        "starts are measured by Kafka's protocol"
    } else if case.batch_records() > 1 {
        "no batches: each record is a request"
    } else if case.records.codec != CodecName::None {
        "no codecs"
    } else if case.records.keys != Keys::None {
        "no keys that choose the partition"
    } else if case.has_consumers() && case.consumers.min_bytes > 1 {
        "no fetch that waits for more than one record"
    } else if case.topic.topics.saturating_mul(case.topic.partitions) > PARTITIONS_MAX {
        return Some(format!(
            "partitions are made of subjects or keys: measured up to {PARTITIONS_MAX}"
        ));
    } else {
        return None;
    };
    Some(reason.to_owned())
}

/// The program that was named, or that of an environment variable, or of this name on the PATH.
pub fn program(named: Option<&Path>, variable: &str, name: &str) -> PathBuf {
    if let Some(named) = named {
        return named.to_owned();
    }
    let from_environment = std::env::var_os(variable).filter(|path| !path.is_empty());
    from_environment.map_or_else(|| PathBuf::from(name), PathBuf::from)
}

/// What a program prints about its version; an error says how to get it.
pub fn version(program: &Path, peer: &str) -> Result<String> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .with_context(|| {
            format!(
                "{} can't be run: eval \"$(scripts/peers {peer})\" prepares it",
                program.display()
            )
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.lines().next().unwrap_or_default();
    // Redis goes on with checksums of its build.
    let first = first.split(" sha=").next().unwrap_or_default().trim();
    if !output.status.success() || first.is_empty() {
        bail!(
            "{} does not tell its version: is it {peer}'s server?",
            program.display()
        );
    }
    Ok(first.to_owned())
}

/// Three quarters: what a server's own limit may be, so that the process as a whole stays below the limit.
pub fn below(memory: u64) -> u64 {
    memory / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{find, parse};

    fn case(text: &str) -> Case {
        let text = format!("name = \"t\"\ntitle = \"t\"\n[case]\n{text}");
        parse(&text, "test", false).unwrap().cases.remove(0)
    }

    #[test]
    fn single_records_are_measured_with_and_without_consumers() {
        for text in [
            "producers = { count = 200 }",
            "records = { bytes = 1024 }\nproducers = { batch_bytes = 2047, in_flight = 5 }",
            "producers = { count = 4 }\nconsumers = { sets = 10 }\ntopic = { partitions = 100 }",
        ] {
            assert_eq!(lacks(&case(text)), None, "{text}");
        }
        for case in find("a", false).unwrap().cases {
            assert_eq!(lacks(&case), None);
        }
    }

    #[test]
    fn other_work_is_left_out_with_its_reason() {
        for (text, reason) in [
            ("producers = { batch_bytes = 16384 }", "batches"),
            ("producers = { driver = \"librdkafka\" }", "librdkafka"),
            ("kind = \"cold-read\"", "fetch"),
            ("records = { codec = \"lz4\" }", "codecs"),
            ("records = { keys = \"zipf\" }", "keys"),
            ("consumers = { sets = 1, min_bytes = 2 }", "waits"),
            ("topic = { partitions = 101 }", "up to 100"),
            (
                "kind = \"lifecycle\"\nlifecycle = { idle_s = 1.0 }",
                "starts",
            ),
        ] {
            let lacks = lacks(&case(text)).unwrap();
            assert!(lacks.contains(reason), "{text}: {lacks}");
        }
    }

    #[test]
    fn a_missing_program_is_said_with_the_way_to_get_it() {
        let error = version(Path::new("/nonexistent/nats-server"), "nats").unwrap_err();
        assert!(error.to_string().contains("scripts/peers nats"), "{error}");
        let error = version(Path::new("false"), "nats").unwrap_err();
        assert!(error.to_string().contains("is it nats's"), "{error}");
    }
}
