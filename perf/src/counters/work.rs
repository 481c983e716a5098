//! Instructions and allocations of a request, counted by valgrind.
//!
//! Each figure is the difference of two runs of the worker that differ in the number of requests only, so that
//! neither start nor set-up counts.

use super::callgrind::{Profile, CALLERS};
use super::figures::Figures;
use super::scratch::{is_installed, run, Scratch};
use super::worker::{Layer, PathName, WorkerArgs};
use crate::stop::Stop;
use crate::workload::CodecName;
use anyhow::{bail, Context, Result};
use clap::ValueEnum;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Requests of one kind that are counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kind {
    pub layer: Layer,
    pub path: PathName,
    pub codec: CodecName,
    /// Records in the one batch of a request.
    pub records: usize,
}

/// What one request takes more when there is one request more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    pub instructions_per_record: f64,
    pub allocations_per_request: f64,
    /// Instructions of what stands in for the kernel.
    pub simulator_per_record: f64,
}

/// Says in one sentence what is missing.
pub fn check() -> Result<()> {
    if !is_installed("valgrind") {
        bail!("valgrind is missing, which counts instructions: install the package valgrind");
    }
    Ok(())
}

/// What is counted, in the order of the table.
pub fn kinds(quick: bool) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for layer in [Layer::Partition, Layer::Broker] {
        for path in [PathName::Produce, PathName::Fetch] {
            for codec in [
                CodecName::None,
                CodecName::Gzip,
                CodecName::Snappy,
                CodecName::Lz4,
                CodecName::Zstd,
            ] {
                // A fetch hands batches on as they are.
                if codec != CodecName::None && (quick || path == PathName::Fetch) {
                    continue;
                }
                kinds.extend([1, 64].map(|records| Kind {
                    layer,
                    path,
                    codec,
                    records,
                }));
            }
        }
    }
    kinds
}

impl Kind {
    /// `broker/produce/none/64`.
    pub fn name(&self) -> String {
        let (layer, path, codec) = (name(self.layer), name(self.path), name(self.codec));
        format!("{layer}/{path}/{codec}/{}", self.records)
    }

    /// Counts with two runs of the worker.
    pub fn count(&self, scratch: &Scratch, stop: &Stop) -> Result<Cost> {
        // A large batch costs more, and varies less.
        let (few, many) = if self.records == 1 {
            (100, 600)
        } else {
            (20, 100)
        };
        let first = self.profile(few, scratch, stop)?;
        let second = self.profile(many, scratch, stop)?;
        let requests = (many - few) as f64;
        Ok(Cost::of(second - first, requests, self.records as f64))
    }

    fn profile(&self, requests: usize, scratch: &Scratch, stop: &Stop) -> Result<Profile> {
        let worker = std::env::current_exe().context("this program's file can't be found")?;
        let out = scratch.file("callgrind.out");
        let mut command = Command::new("valgrind");
        command
            .arg("--tool=callgrind")
            .arg(format!("--separate-callers={CALLERS}"))
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(worker)
            .args(self.worker_arguments(requests));
        run(&mut command, scratch, WORKER_TIME_MAX, stop)?;
        let profile = read(&out);
        fs::remove_file(&out)?;
        profile
    }

    fn worker_arguments(&self, requests: usize) -> Vec<String> {
        let args = WorkerArgs {
            layer: self.layer,
            path: self.path,
            codec: self.codec,
            batch_records: self.records,
            requests,
        };
        let (layer, path, codec) = (name(args.layer), name(args.path), name(args.codec));
        let text = format!(
            "counters worker --layer {layer} --path {path} --codec {codec} --batch-records {} --requests {}",
            args.batch_records, args.requests
        );
        text.split(' ').map(str::to_owned).collect()
    }
}

impl Cost {
    fn of(difference: Profile, requests: f64, records: f64) -> Cost {
        Cost {
            instructions_per_record: difference.instructions.broker as f64 / (requests * records),
            allocations_per_request: difference.allocations.broker as f64 / requests,
            simulator_per_record: difference.instructions.simulator as f64 / (requests * records),
        }
    }

    pub fn push(&self, kind: &Kind, figures: &mut Figures) {
        let name = kind.name();
        let (instructions, allocations) =
            (self.instructions_per_record, self.allocations_per_request);
        figures.push(
            format!("instructions/{name}"),
            instructions,
            "per record",
            true,
        );
        figures.push(
            format!("allocations/{name}"),
            allocations,
            "per request",
            true,
        );
    }
}

fn read(path: &Path) -> Result<Profile> {
    let file = File::open(path).context("callgrind has written no profile")?;
    Profile::read(BufReader::new(file))
}

/// As on the command line.
fn name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A run takes seconds, of a debug build some more.
const WORKER_TIME_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::super::callgrind::Split;
    use super::*;
    use clap::Parser;

    #[test]
    fn given_two_runs_then_the_difference_is_by_record_and_by_request() {
        let split = |broker, simulator, client| Split {
            broker,
            simulator,
            client,
        };
        let difference = Profile {
            instructions: split(640_000, 320_000, 1),
            allocations: split(50, 7, 9),
        };
        let cost = Cost::of(difference, 10.0, 64.0);
        assert_eq!(cost.instructions_per_record, 1000.0);
        assert_eq!(cost.simulator_per_record, 500.0);
        assert_eq!(cost.allocations_per_request, 5.0);
    }

    #[test]
    fn given_quick_then_fewer_kinds_and_each_once() {
        let (quick, full) = (kinds(true), kinds(false));
        assert_eq!((quick.len(), full.len()), (8, 24));
        assert!(quick.iter().all(|kind| full.contains(kind)));
        let names: std::collections::BTreeSet<_> = full.iter().map(Kind::name).collect();
        assert_eq!(names.len(), full.len());
        assert!(names.contains("broker/produce/none/64"));
    }

    #[test]
    fn the_worker_understands_what_it_is_told() {
        #[derive(Parser)]
        struct Worker {
            #[command(flatten)]
            args: WorkerArgs,
        }
        for kind in kinds(false) {
            // Without `counters`: clap takes the first for the program's name.
            let told = kind.worker_arguments(7).split_off(1);
            let args = Worker::try_parse_from(told).unwrap().args;
            assert_eq!((args.layer, args.path), (kind.layer, kind.path));
            assert!(args.codec == kind.codec);
            assert_eq!((args.batch_records, args.requests), (kind.records, 7));
        }
    }
}
