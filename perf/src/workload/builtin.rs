//! The workloads of the repository, in the order of the report's table.

use super::{parse, Workload};
use anyhow::{bail, Context, Result};
use std::path::Path;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../workloads/", $name, ".toml")))),*]
    };
}

const FILES: &[(&str, &str)] = files![
    "flush-200-connections",
    "flush-16k-batches",
    "flush-1m-batches",
    "produce-and-tail",
    "end-to-end",
    "one-at-a-time",
    "cold-read",
    "fan-out-10",
    "partitions",
    "lifecycle",
    "codecs",
    "steady-1000",
    "keys",
    "backlog-drain",
    "burst",
];

/// All of them.
pub fn builtin(quick: bool) -> Result<Vec<Workload>> {
    let read = |(name, text): &(&str, &str)| parse(text, name, quick);
    FILES.iter().map(read).collect()
}

/// A workload by its name, its letter, or the path of its file.
pub fn find(wanted: &str, quick: bool) -> Result<Workload> {
    let known = builtin(quick)?;
    let is_it = |workload: &&Workload| {
        workload.name == wanted || workload.letter.as_deref() == Some(wanted)
    };
    if let Some(workload) = known.iter().find(is_it) {
        return Ok(workload.clone());
    }
    let path = Path::new(wanted);
    if !path.exists() {
        let names: Vec<&str> = known
            .iter()
            .map(|workload| workload.name.as_str())
            .collect();
        bail!(
            "there is no workload {wanted}, neither as a file nor among: {}",
            names.join(", ")
        );
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("{wanted} can't be read"))?;
    parse(&text, wanted, quick)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Kind;

    #[test]
    fn all_are_valid_and_the_table_is_whole() {
        for quick in [false, true] {
            let all = builtin(quick).unwrap();
            for (workload, (name, _)) in all.iter().zip(FILES) {
                assert_eq!(workload.name, *name, "a file is named as its workload");
            }
            let letters: Vec<&str> = all.iter().filter_map(|w| w.letter.as_deref()).collect();
            assert_eq!(letters, ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        }
    }

    /// With what a record and a batch take beside the values, as the largest request that Kafka takes by default.
    #[test]
    fn batches_stay_below_what_kafka_takes() {
        const MESSAGE_MAX_BYTES: usize = 1_048_588;
        const BESIDE_VALUE_BYTES: usize = 16;
        const BATCH_HEAD_BYTES: usize = 61;
        for workload in builtin(false).unwrap() {
            for case in &workload.cases {
                let record = case.records.bytes + BESIDE_VALUE_BYTES;
                let batch = case.batch_records() * record + BATCH_HEAD_BYTES;
                assert!(batch <= MESSAGE_MAX_BYTES, "{}: {batch}", workload.name);
            }
        }
    }

    #[test]
    fn a_quick_run_takes_less_than_a_third_of_the_time() {
        let seconds = |quick| -> f64 {
            let cases = builtin(quick).unwrap().into_iter().flat_map(|w| w.cases);
            let streams = cases.filter(|case| case.kind == Kind::Stream);
            let of = |case: crate::workload::Case| {
                let timing = case.timing;
                (timing.warmup_s + timing.measure_s)
                    * f64::from(timing.repeats)
                    * case.loads.len() as f64
            };
            streams.map(of).sum()
        };
        assert!(seconds(true) < seconds(false) / 3.0);
    }

    #[test]
    fn the_example_of_the_readme_is_valid_and_tells_the_defaults() {
        let readme = include_str!("../../README.md");
        let (_, example) = readme.split_once("```toml\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let told = parse(example, "example", false).unwrap().cases.remove(0);
        let bare = "name = \"d\"\ntitle = \"\"\n[case]\nconsumers = { sets = 1 }";
        let mut default = parse(bare, "default", false).unwrap().cases.remove(0);
        assert_eq!(told.loads.len(), 6);
        default.loads = told.loads.clone();
        assert_eq!(told, default);
    }

    #[test]
    fn a_workload_is_found_by_name_letter_and_file() {
        assert_eq!(find("a", false).unwrap().name, "flush-200-connections");
        assert_eq!(find("codecs", false).unwrap().letter, None);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/keys.toml");
        assert_eq!(find(path, false).unwrap().name, "keys");
        let unknown = find("no-such", false).unwrap_err().to_string();
        assert!(unknown.contains("flush-200-connections"), "{unknown}");
    }
}
