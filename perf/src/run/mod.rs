//! `perf run`: measures workloads on targets that take turns, and goes on where an earlier run was stopped.

mod capacity;
mod cold;
mod lifecycle;
mod plan;
mod progress;
pub mod room;
mod session;
#[cfg(test)]
mod session_tests;
mod spec;
mod stream;
mod world;

use crate::report::store;
use crate::results::{Machine, Results, Settings, TargetInfo, VERSION};
use crate::stop::Stop;
use crate::target::{cgroup, memory, spawn::Site, Options, Share, Target};
use crate::workload::{self, Kind, Workload};
use anyhow::{bail, ensure, Context, Result};
use clap::Args;
use plan::Step;
use progress::{clock, Progress};
use session::Session;
use spec::Spec;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use world::Real;

#[derive(Args)]
pub struct RunArgs {
    /// Short turns: figures to look at, not to publish.
    #[arg(long)]
    quick: bool,
    /// A workload by its name, its letter in the table, or the path of its file; may be repeated. Without it, the
    /// whole table (a) to (j).
    #[arg(long = "workload", value_name = "NAME|LETTER|FILE")]
    workloads: Vec<String>,
    /// What is measured: highwater, kafka, floor, nats, redis, HOST:PORT, NAME=HOST:PORT or
    /// NAME=highwater:/path/of/a/binary; may be repeated. The others are compared with the first. Without it: highwater,
    /// kafka, floor, and nats and redis where they are installed.
    #[arg(long = "target", value_name = "SPEC")]
    targets: Vec<String>,
    /// Highwater's binary; without it, the one beside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Where the results, the report and, while it runs, the targets' data are: on the disk that is to be measured.
    /// Without it, target/perf, or target/perf/quick with --quick.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The broker's CPUs, such as 0-3,8; without it, the first half of all.
    #[arg(long, value_name = "LIST")]
    broker_cpus: Option<String>,
    /// The client's CPUs; without it, the others.
    #[arg(long, value_name = "LIST")]
    client_cpus: Option<String>,
    /// Bytes of memory of each broker, its page cache included; 0: no limit. Without it, a quarter of the machine's, at
    /// most 4 GiB.
    #[arg(long, value_name = "BYTES")]
    memory: Option<u64>,
    /// Turns of each target, instead of what the workloads say.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: Option<u32>,
    /// Starts anew, and replaces the results of an earlier run.
    #[arg(long)]
    fresh: bool,
}

/// Disk that is needed beside what one measurement writes, bytes: a warm-up, indexes,
/// preallocated segments, logs.
const DISK_BESIDE: u64 = 4 << 30;

pub fn run(args: &RunArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let workloads = workloads(args)?;
    let out = args.out.clone().unwrap_or_else(|| default_out(args.quick));
    let all_cpus = room::cpus()?;
    let (broker_cpus, client_cpus) = room::split_cpus(
        &all_cpus,
        args.broker_cpus.as_deref(),
        args.client_cpus.as_deref(),
    )?;
    let memory = args.memory.map_or_else(room::default_memory, Ok)?;
    let share = Share {
        dir: out.join(format!("data-{}", std::process::id())),
        cpus: broker_cpus,
        memory,
    };
    let mut options = Options {
        stop: stop.clone(),
        ..Options::default()
    };
    let specs = specs(args, &options)?;
    options.highwater = world::binary(args.binary.as_deref(), &specs)?;
    let world = Real::new(specs, options, &out)?;
    let models = world.models()?;
    for model in &models {
        model
            .check()
            .and_then(|()| model.check_share(&share))
            .with_context(|| format!("target {}", model.name()))?;
    }
    let is_local = models.iter().any(|model| model.is_started_here());
    if is_local {
        memory::check_room(&share, disk_needed(&workloads))?;
    }

    let _made = Made::dir(&out)?;
    let machine = room::machine(&out)?;
    let _lock = lock(&out)?;
    remove_left_behind(&out)?;
    cgroup::remove_left_behind();
    let _data = Data::make(&share.dir)?;
    let settings = Settings {
        quick: args.quick,
        broker_cpus: share.cpus.clone(),
        client_cpus: client_cpus.clone(),
        broker_memory_bytes: memory,
        memory_limit: memory_limit(&share, is_local)?,
        targets: models.iter().map(|model| info(model.as_ref())).collect(),
    };
    let mut results = begin(args, &world.file(), machine, settings)?;
    let names: Vec<String> = models.iter().map(|model| model.name().to_owned()).collect();
    let steps = plan::whole(&workloads, &names)?;
    plan::drop_outdated(&steps, &mut results.measurements);
    let lacks = |step: &Step| {
        let case = &workloads[step.workload].cases[step.case];
        models[step.target].lacks(case)
    };
    let left = plan::remaining(&steps, &results.measurements, lacks);
    if left.is_empty() {
        eprintln!(
            "all {} measurements are in {} already: nothing is left to measure (--fresh starts anew)",
            steps.len(),
            world.file().display()
        );
    } else {
        let seconds = planned_seconds(&workloads, &left, names.len());
        eprintln!(
            "{} of {} measurements, about {}; results: {}",
            left.len(),
            steps.len(),
            clock(seconds),
            world.file().display()
        );
        let mut progress = Progress::new(left.len(), seconds);
        let outcome = Session {
            world: &world,
            workloads: &workloads,
            steps: &steps,
            share: &share,
            client_cpus: &client_cpus,
            stop: &stop,
            progress: &mut progress,
            results: &mut results,
            models: &models,
        }
        .run(&left);
        drop(progress);
        if stop.is_asked() {
            let left = plan::remaining(&steps, &results.measurements, lacks).len();
            bail!(
                "stopped by a signal: {} of {} measurements are in {}, the same command goes on with the others",
                steps.len() - left,
                steps.len(),
                world.file().display()
            );
        }
        outcome?;
    }
    world.report(&results)?;
    let failed = plan::remaining(&steps, &results.measurements, lacks).len();
    ensure!(
        failed == 0,
        "{failed} of {} measurements have no result, each with its reason in the table: the same command tries them again",
        steps.len()
    );
    Ok(())
}

fn default_out(quick: bool) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    match quick {
        true => target.join("perf/quick"),
        false => target.join("perf"),
    }
}

fn workloads(args: &RunArgs) -> Result<Vec<Workload>> {
    let mut workloads: Vec<Workload> = Vec::new();
    if args.workloads.is_empty() {
        workloads = workload::builtin(args.quick)?;
        workloads.retain(|workload| workload.letter.is_some());
    }
    for wanted in &args.workloads {
        let workload = workload::find(wanted, args.quick)?;
        ensure!(
            workloads.iter().all(|other| other.name != workload.name),
            "--workload {wanted}: {} is there twice",
            workload.name
        );
        workloads.push(workload);
    }
    if let Some(repeats) = args.repeats {
        let cases = workloads
            .iter_mut()
            .flat_map(|workload| &mut workload.cases);
        cases.for_each(|case| case.timing.repeats = repeats);
    }
    Ok(workloads)
}

fn specs(args: &RunArgs, options: &Options) -> Result<Vec<Spec>> {
    if !args.targets.is_empty() {
        return Spec::parse_all(&args.targets);
    }
    let mut specs = Spec::parse_all(&["highwater", "kafka", "floor"])?;
    for peer in Spec::parse_all(&["nats", "redis"])? {
        if world::is_installed(&peer, options)? {
            specs.push(peer);
        }
    }
    Ok(specs)
}

/// What the largest case writes: one target's topics are deleted before the next one's are made.
fn disk_needed(workloads: &[Workload]) -> u64 {
    let cases = workloads.iter().flat_map(|workload| &workload.cases);
    let bytes = cases.map(|case| match case.kind {
        Kind::Stream | Kind::ColdRead => case.timing.bytes_max,
        Kind::Lifecycle => {
            let partitions = u64::from(case.topic.topics) * u64::from(case.topic.partitions);
            let records = u64::from(case.lifecycle.records) + 1;
            partitions.saturating_mul(records * case.records.bytes as u64)
        }
    });
    bytes.max().unwrap_or(0).saturating_add(DISK_BESIDE)
}

/// How the limit of memory is held, or why it is not.
fn memory_limit(share: &Share, is_local: bool) -> Result<String> {
    match is_local {
        true => Ok(Site::make("probe", share)?.memory_limit().to_owned()),
        false => Ok("no broker runs here".to_owned()),
    }
}

fn info(target: &dyn Target) -> TargetInfo {
    TargetInfo {
        name: target.name().to_owned(),
        description: target.describe(),
    }
}

/// The results of the earlier run with which this one goes on, or none yet.
fn begin(args: &RunArgs, file: &Path, machine: Machine, settings: Settings) -> Result<Results> {
    if !args.fresh {
        if let Some(earlier) = store::load_if_there(file)? {
            if let Some(differs) = difference(&earlier, &machine, &settings) {
                bail!(
                    "{} was measured with {differs}: --fresh starts anew in its place, --out DIR elsewhere",
                    file.display()
                );
            }
            return Ok(earlier);
        }
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Ok(Results {
        version: VERSION,
        started_at: since.map_or(0, |since| since.as_secs()),
        machine,
        settings,
        measurements: Vec::new(),
    })
}

/// What keeps earlier results and new ones from being compared.
fn difference(earlier: &Results, machine: &Machine, settings: &Settings) -> Option<String> {
    let (then, now) = (&earlier.settings, settings);
    let told = |what: &str, then: &dyn std::fmt::Debug, now: &dyn std::fmt::Debug| {
        Some(format!("{what} {then:?}, not {now:?}"))
    };
    if earlier.machine != *machine {
        return told("the machine", &earlier.machine, machine);
    }
    if then.quick != now.quick {
        return told("--quick", &then.quick, &now.quick);
    }
    if then.broker_cpus != now.broker_cpus {
        return told("broker CPUs", &then.broker_cpus, &now.broker_cpus);
    }
    if then.client_cpus != now.client_cpus {
        return told("client CPUs", &then.client_cpus, &now.client_cpus);
    }
    if (then.broker_memory_bytes, &then.memory_limit)
        != (now.broker_memory_bytes, &now.memory_limit)
    {
        let limit =
            |of: &Settings| format!("{} bytes ({})", of.broker_memory_bytes, of.memory_limit);
        return told("a memory limit of", &limit(then), &limit(now));
    }
    if then.targets != now.targets {
        let names = |of: &Settings| -> Vec<String> {
            of.targets
                .iter()
                .map(|target| target.name.clone())
                .collect()
        };
        if names(then) != names(now) {
            return told("targets", &names(then), &names(now));
        }
        let pairs = then.targets.iter().zip(&now.targets);
        let (then, now) = pairs.into_iter().find(|(then, now)| then != now)?;
        return told(
            &format!("{}:", then.name),
            &then.description,
            &now.description,
        );
    }
    None
}

fn planned_seconds(workloads: &[Workload], left: &[Step], targets: usize) -> f64 {
    /// Starting all targets of a workload, seconds each.
    const START_S: f64 = 1.3;
    let case = |step: &Step| &workloads[step.workload].cases[step.case];
    let turns: f64 = left.iter().map(|step| plan::seconds(case(step))).sum();
    let of_workloads = left.chunk_by(|one, other| one.workload == other.workload);
    let starts = of_workloads.map(|steps| {
        let settle = match case(&steps[0]).kind {
            Kind::Stream => case(&steps[0]).timing.settle_s,
            _ => 0.0,
        };
        (START_S + settle) * targets as f64
    });
    turns + starts.sum::<f64>()
}

/// Two runs in one directory would write each other's results over, and measure each other. Held while the file is open.
fn lock(out: &Path) -> Result<File> {
    let dir = File::open(out).with_context(|| format!("{} can't be read", out.display()))?;
    match dir.try_lock() {
        Ok(()) => Ok(dir),
        Err(TryLockError::WouldBlock) => bail!(
            "another run is going on in {}: wait for its end, or name another directory by --out",
            out.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("{} can't be locked", out.display()))
        }
    }
}

/// Removes data of runs that were killed; nobody else runs here.
fn remove_left_behind(out: &Path) -> Result<()> {
    for entry in fs::read_dir(out).with_context(|| format!("{} can't be read", out.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix("data-")?.parse::<u32>().ok());
        if pid.is_some() {
            let path = entry.path();
            fs::remove_dir_all(&path)
                .with_context(|| format!("{} can't be removed", path.display()))?;
        }
    }
    Ok(())
}

/// A directory that may have been made for the run, and is removed if nothing came into it.
struct Made(PathBuf);

impl Made {
    fn dir(dir: &Path) -> Result<Made> {
        room::writable(dir)?;
        Ok(Made(dir.to_owned()))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Fails if something is in it, as it should be.
        let _ = fs::remove_dir(&self.0);
    }
}

/// The directory of all targets' data, removed at the end.
struct Data(PathBuf);

impl Data {
    fn make(dir: &Path) -> Result<Data> {
        fs::create_dir(dir).with_context(|| format!("{} can't be made", dir.display()))?;
        Ok(Data(dir.to_owned()))
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} can't be removed: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        Results {
            version: VERSION,
            started_at: 0,
            machine: Machine {
                cpu: "c".to_owned(),
                cpus: 2,
                memory_bytes: 1,
                kernel: "k".to_owned(),
                file_system: "f".to_owned(),
            },
            settings: Settings {
                quick: false,
                broker_cpus: vec![0],
                client_cpus: vec![1],
                broker_memory_bytes: 1,
                memory_limit: "cgroup".to_owned(),
                targets: vec![TargetInfo {
                    name: "a".to_owned(),
                    description: "version 1".to_owned(),
                }],
            },
            measurements: Vec::new(),
        }
    }

    #[test]
    fn what_differs_from_the_earlier_run_is_named() {
        let earlier = results();
        let differs = |change: fn(&mut Results)| {
            let mut now = results();
            change(&mut now);
            difference(&earlier, &now.machine, &now.settings).unwrap()
        };
        assert_eq!(
            difference(&earlier, &earlier.machine, &earlier.settings),
            None
        );
        assert!(differs(|now| now.machine.cpus = 4).contains("machine"));
        assert!(differs(|now| now.settings.quick = true).contains("--quick"));
        assert!(
            differs(|now| now.settings.client_cpus = vec![3]).contains("client CPUs [1], not [3]")
        );
        assert!(differs(|now| now.settings.memory_limit = "none".to_owned()).contains("memory"));
        let version = differs(|now| now.settings.targets[0].description = "version 2".to_owned());
        assert_eq!(version, "a: \"version 1\", not \"version 2\"");
        let target = differs(|now| now.settings.targets[0].name = "b".to_owned());
        assert_eq!(target, "targets [\"a\"], not [\"b\"]");
    }

    /// Of the whole table, with three targets, as it is expected to take.
    #[test]
    fn the_table_takes_forty_minutes_and_quickly_five() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let minutes = |quick| {
            let mut table = workload::builtin(quick).unwrap();
            table.retain(|workload| workload.letter.is_some());
            let steps = plan::whole(&table, &names).unwrap();
            planned_seconds(&table, &steps, names.len()) / 60.0
        };
        let (quick, whole) = (minutes(true), minutes(false));
        assert!(
            quick <= 5.5 && whole <= 40.0,
            "{quick:.1} and {whole:.1} minutes"
        );
    }

    #[test]
    fn the_largest_case_tells_the_disk_that_is_needed() {
        let workloads = workload::builtin(false).unwrap();
        let needed = disk_needed(&workloads);
        assert_eq!(needed, 4_000_000_000 + DISK_BESIDE);
    }
}
