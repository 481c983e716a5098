//! System calls of a broker's process for 1,000 records, and operations that it submits to io_uring.
//!
//! A broker that uses io_uring hands many operations over with one call, so both are told. The loads are fixed
//! numbers of records, sent as fast as the broker answers: how many requests share a call depends on how they meet,
//! so these figures vary by some percent, unlike instructions. The median of the repeats is told, and the range.

mod load;
mod meter;
mod parse;
mod process;

use super::figures::Figures;
use super::scratch::Scratch;
use crate::stop::Stop;
use crate::target::cost::cpu_time;
use crate::target::listener::listener_owner;
use crate::wire;
use anyhow::{bail, Context, Result};
use clap::Args;
use load::{Load, Prepared, LOADS};
pub use meter::{By, Meter};
use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use parse::Counts;
use process::Process;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Args, Debug, Clone, Default)]
pub struct SyscallsArgs {
    /// A broker that runs, of any make; without it, Highwater is started with one shard.
    #[arg(long, value_name = "ADDRESS")]
    broker: Option<String>,
    /// The broker's process; without it, the one that listens on the address.
    #[arg(long, requires = "broker")]
    pid: Option<u32>,
    /// What counts; by default perf, and where that can't, strace.
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Settings of the topics that are made, `name=value`; may be repeated.
    #[arg(long = "topic-config", value_name = "NAME=VALUE")]
    topic_configs: Vec<String>,
}

/// A broker, and how it is counted.
pub struct Bench<'a> {
    broker: String,
    pid: u32,
    /// In the names of figures: `highwater`, or `other`.
    name: &'static str,
    meter: Meter,
    topic_configs: Vec<(String, String)>,
    scratch: &'a Scratch,
    stop: &'a Stop,
    /// Ends when dropped.
    _started: Option<Process>,
}

/// Counts of one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub load: Load,
    /// Counts for each 1,000 records, by repeat.
    pub calls: Vec<f64>,
    pub submitted: Vec<f64>,
    /// The names most called, with calls for each 1,000 records, in the last repeat.
    pub most: Vec<(String, f64)>,
}

impl<'a> Bench<'a> {
    /// Finds or starts the broker. Says in one sentence what is missing, before anything starts.
    pub fn open(
        args: &SyscallsArgs,
        highwater: Option<&Path>,
        scratch: &'a Scratch,
        stop: &'a Stop,
    ) -> Result<Bench<'a>> {
        let topic_configs = wire::topic_configs(&args.topic_configs)?;
        let binary = match args.broker {
            None => Some(binary(highwater)?),
            Some(_) => None,
        };
        let meter = Meter::find(args.by, scratch, stop)?;
        let (broker, pid, started) = match (&args.broker, binary) {
            (Some(broker), _) => {
                wire::connect(broker)?;
                let pid = match args.pid {
                    Some(pid) => pid,
                    None => listener_owner(broker)?,
                };
                cpu_time(pid)?;
                (broker.clone(), pid, None)
            }
            (None, Some(binary)) => {
                // As many as the machine has CPUs would make the figures the machine's.
                let settings = ["shards=1".to_owned()];
                let started = Process::start(&binary, &scratch.file("data"), &settings)?;
                leave_first_cpu()?;
                (started.addr.to_string(), started.pid(), Some(started))
            }
            (None, None) => bail!("no broker"),
        };
        Ok(Bench {
            broker,
            pid,
            name: if started.is_some() {
                "highwater"
            } else {
                "other"
            },
            meter,
            topic_configs,
            scratch,
            stop,
            _started: started,
        })
    }

    /// What is counted, in a line.
    pub fn describe(&self) -> String {
        let by = match self.meter.by() {
            By::Perf => "perf stat",
            By::Strace => "strace (which slows the broker, so that it does more with one call)",
        };
        format!("process {} at {}, counted by {by}", self.pid, self.broker)
    }

    /// Counts each load `repeats` times; `done` is told of each.
    pub fn count(&self, quick: bool, mut done: impl FnMut(&Row)) -> Result<Vec<Row>> {
        let repeats = if quick { 1 } else { REPEATS };
        let loads = LOADS.map(|load| if quick { load.quick() } else { load });
        let count = |load: Load| {
            let mut row = Row::new(load);
            for repeat in 0..repeats {
                row.add(&self.one(load, repeat)?);
            }
            done(&row);
            Ok(row)
        };
        loads.into_iter().map(count).collect()
    }

    fn one(&self, load: Load, repeat: usize) -> Result<Counts> {
        let topic = format!(
            "perf-counters-{}-{}-{repeat}",
            std::process::id(),
            load.name
        );
        let mut prepared =
            Prepared::new(load, &self.broker, topic, &self.topic_configs, self.stop)?;
        let work = || prepared.run();
        let counts = self.meter.count(self.pid, self.scratch, self.stop, work)?;
        if counts.calls == 0 {
            bail!(
                "process {} made no system call for {} records: it is not the broker at {}",
                self.pid,
                load.records,
                self.broker
            );
        }
        Ok(counts)
    }

    /// Calls in a second of the broker when nobody asks for anything: they are part of the other figures.
    pub fn idle(&self) -> Result<f64> {
        // What the load has left, such as deleting its topics, is done.
        self.stop.sleep(Duration::from_secs(2))?;
        let mut seconds = 0.0;
        let work = || {
            let start = Instant::now();
            self.stop.sleep(IDLE)?;
            seconds = start.elapsed().as_secs_f64();
            Ok(())
        };
        let counts = self.meter.count(self.pid, self.scratch, self.stop, work)?;
        Ok(counts.calls as f64 / seconds)
    }

    pub fn push(&self, rows: &[Row], idle: f64, figures: &mut Figures) {
        let name = self.name;
        for row in rows {
            let load = row.load.name;
            let unit = "per 1,000 records";
            let calls = format!("syscalls/{name}/{load}");
            figures.push(calls, median(&row.calls), unit, false);
            if !row.submitted.is_empty() {
                let submitted = format!("submitted/{name}/{load}");
                figures.push(submitted, median(&row.submitted), unit, false);
            }
        }
        figures.push(format!("syscalls/{name}/idle"), idle, "per second", false);
    }

    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl Row {
    fn new(load: Load) -> Row {
        Row {
            load,
            calls: Vec::new(),
            submitted: Vec::new(),
            most: Vec::new(),
        }
    }

    fn add(&mut self, counts: &Counts) {
        let per = |count: u64| count as f64 * 1000.0 / self.load.records as f64;
        self.calls.push(per(counts.calls));
        self.submitted.extend(counts.submitted.map(per));
        let named = counts.named.iter().filter(|(_, count)| **count > 0);
        let mut most: Vec<_> = named.map(|(n, count)| (n.clone(), per(*count))).collect();
        let unnamed = counts.calls.saturating_sub(counts.named.values().sum());
        if unnamed > 0 {
            most.push(("others".to_owned(), per(unnamed)));
        }
        most.sort_by(|one, other| other.1.total_cmp(&one.1));
        most.truncate(MOST);
        self.most = most;
    }
}

/// Highwater's only shard is pinned to the first CPU that this process may use: the client takes the others.
fn leave_first_cpu() -> Result<()> {
    let usable = sched_getaffinity(Pid::from_raw(0))?;
    let cpus = (0..CpuSet::count()).filter(|cpu| usable.is_set(*cpu).unwrap_or(false));
    let mut others = CpuSet::new();
    let mut some = false;
    for cpu in cpus.skip(1) {
        others.set(cpu)?;
        some = true;
    }
    if some {
        sched_setaffinity(Pid::from_raw(0), &others)?;
    }
    Ok(())
}

/// `highwater` beside this program, unless another is named.
fn binary(named: Option<&Path>) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => {
            let own = std::env::current_exe().context("this program's file can't be found")?;
            own.with_file_name("highwater")
        }
    };
    if !path.is_file() {
        bail!(
            "there is no broker at {}: build it, name another file with --highwater, or a broker that runs with `perf counters syscalls --broker ADDRESS`",
            path.display()
        );
    }
    Ok(path)
}

/// Of what a row has, the middle; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// How many loads are counted.
pub fn loads() -> usize {
    LOADS.len()
}

const REPEATS: usize = 3;
const MOST: usize = 4;
const IDLE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_counts_then_a_row_is_by_1000_records_with_the_names_most_called() {
        let load = LOADS[0];
        assert_eq!(load.records, 2_000);
        let mut row = Row::new(load);
        let named = [("read", 10), ("io_uring_enter", 3_000), ("futex", 0)];
        let counts = Counts {
            calls: 3_030,
            submitted: Some(8_000),
            named: named.map(|(name, n)| (name.to_owned(), n)).into(),
        };
        row.add(&counts);
        row.add(&Counts {
            submitted: None,
            ..counts
        });
        assert_eq!(row.calls, [1515.0, 1515.0]);
        assert_eq!(row.submitted, [4000.0]);
        let most: Vec<(&str, f64)> = row.most.iter().map(|(n, c)| (n.as_str(), *c)).collect();
        let expected = [("io_uring_enter", 1500.0), ("others", 10.0), ("read", 5.0)];
        assert_eq!(most, expected);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn each_load_splits_into_whole_requests() {
        for load in LOADS.into_iter().chain(LOADS.map(Load::quick)) {
            let one_each = load.batch_records * load.connections;
            assert_eq!(load.records % one_each, 0, "{load:?}");
        }
    }

    #[test]
    fn given_no_broker_then_it_is_said_before_anything_starts() {
        let dir = tempfile::tempdir().unwrap();
        let (scratch, stop) = (Scratch::new(dir.path()).unwrap(), Stop::default());
        let refused = |args: &SyscallsArgs, binary: Option<&Path>| {
            let opened = Bench::open(args, binary, &scratch, &stop);
            format!("{:#}", opened.err().expect("it is refused"))
        };
        let missing = refused(&SyscallsArgs::default(), Some(Path::new("/nowhere/x")));
        assert!(
            missing.starts_with("there is no broker at /nowhere/x"),
            "{missing}"
        );
        let config = SyscallsArgs {
            topic_configs: vec!["x".to_owned()],
            ..SyscallsArgs::default()
        };
        assert!(refused(&config, None).contains("name=value is needed"));
    }
}
