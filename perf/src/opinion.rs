//! A second opinion: Kafka's own `kafka-producer-perf-test` on the same targets, in turns.
//!
//! All targets run at the same time, each pinned and limited as in a run, and one is worked on at a time; so a turn
//! finds a broker that is warm. The tool itself is no open loop: it sends at its intended times only while its buffer
//! has room, tells whole milliseconds, and a Java client takes more CPU than some of the brokers. What it is good for is
//! that we did not write it.

mod perf_test;
mod table;

use crate::run::room;
use crate::stop::Stop;
use crate::target::kafka::{find_jars, java_version, kafka_version};
use crate::target::spawn::{Site, Spawned};
use crate::target::{memory, parse, Options, Protocol, Share, Target};
use crate::workload::TopicPlan;
use anyhow::{bail, ensure, Context, Result};
use clap::{Args, ValueEnum};
use perf_test::{Load, Summary};
use serde::Serialize;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use table::{rate_of, table};

#[derive(Args)]
pub struct OpinionArgs {
    /// What is measured: highwater, kafka, NAME=highwater:BINARY, HOST:PORT, NAME=HOST:PORT; may be repeated. The others
    /// are compared with the first. Without it: highwater and kafka.
    #[arg(long = "target", value_name = "SPEC")]
    targets: Vec<String>,
    /// Highwater's binary.
    #[arg(long, default_value = "target/release/highwater")]
    binary: PathBuf,
    /// The directory of Kafka's jars; without it, KAFKA_JARS, or where scripts/kafka-jars puts them.
    #[arg(long, value_name = "DIR")]
    kafka_jars: Option<PathBuf>,
    /// What is sent; may be repeated. Without it, all three.
    #[arg(long = "shape")]
    shapes: Vec<Shape>,
    /// The brokers do not flush before they acknowledge.
    #[arg(long)]
    no_flush: bool,
    /// Records a second at the fixed rate; without it, half of what the slowest target took at saturation.
    #[arg(long)]
    rate: Option<f64>,
    /// Turns of each target.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// One turn of each target, a fifth as long.
    #[arg(long)]
    quick: bool,
    /// Where the data goes while it runs: a directory on the disk that is to be measured.
    #[arg(long, value_name = "DIR", default_value = "target/perf")]
    dir: PathBuf,
    /// The file for the results.
    #[arg(long, value_name = "FILE", default_value = "target/perf/opinion.json")]
    out: PathBuf,
    /// The broker's CPUs, such as 0-3,8; without it, the first half of all.
    #[arg(long, value_name = "LIST")]
    broker_cpus: Option<String>,
    /// The tool's CPUs; without it, the others.
    #[arg(long, value_name = "LIST")]
    client_cpus: Option<String>,
    /// Bytes of memory of each broker, its page cache included; 0: no limit. Without it, a quarter of the machine's, at
    /// most 4 GiB.
    #[arg(long, value_name = "BYTES")]
    memory: Option<u64>,
}

/// Records of 1 KiB, one partition, acks=all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Shape {
    /// Each record is a request of its own.
    Single,
    /// Batches of 16 KiB.
    #[value(name = "16k")]
    #[serde(rename = "16k")]
    Small,
    /// Batches of 1 MiB.
    #[value(name = "1m")]
    #[serde(rename = "1m")]
    Large,
}

#[derive(Serialize)]
struct Opinion {
    tool: String,
    java: String,
    /// Short turns: not to be published.
    quick: bool,
    flush: bool,
    targets: Vec<TargetInfo>,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct TargetInfo {
    name: String,
    description: String,
}

/// One shape at one load.
#[derive(Serialize)]
struct Row {
    shape: Shape,
    /// Records a second; null: saturation.
    rate: Option<f64>,
    /// In the order of the targets: a summary for each turn.
    turns: Vec<Vec<Summary>>,
}

const RECORD_BYTES: u32 = 1024;
/// Of a turn: 2 GB.
const RECORDS_MAX: u64 = 2_000_000;
/// A turn that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(600);

pub fn run(args: &OpinionArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    if args
        .rate
        .is_some_and(|rate| !rate.is_finite() || rate <= 0.0)
    {
        bail!("--rate: a number of records a second above 0 is needed");
    }
    let jars = find_jars(args.kafka_jars.as_deref());
    let jars = jars.context("download Kafka's jars by scripts/kafka-jars, which needs Maven")?;
    let (kafka, java) = (kafka_version(&jars)?, java_version()?);
    let options = Options {
        highwater: args.binary.clone(),
        kafka_jars: Some(jars.clone()),
        stop: stop.clone(),
    };
    let usual = ["highwater".to_owned(), "kafka".to_owned()];
    let specs = if args.targets.is_empty() {
        &usual[..]
    } else {
        &args.targets[..]
    };
    let mut targets: Vec<Box<dyn Target>> = Vec::new();
    for spec in specs {
        let target = parse(spec, &options)?;
        target.check()?;
        ensure!(
            targets.iter().all(|other| other.name() != target.name()),
            "two targets are named {}: name one of them NAME={spec}",
            target.name()
        );
        targets.push(target);
    }
    let (broker_cpus, client_cpus) = room::split_cpus(
        &room::cpus()?,
        args.broker_cpus.as_deref(),
        args.client_cpus.as_deref(),
    )?;
    let share = Share {
        dir: args.dir.join(format!("opinion-{}", std::process::id())),
        cpus: broker_cpus,
        memory: args.memory.map_or_else(room::default_memory, Ok)?,
    };
    let of_all = Share {
        memory: share.memory.saturating_mul(targets.len() as u64),
        ..share.clone()
    };
    memory::check_room(&of_all, DISK_BYTES)?;
    for target in &targets {
        target.check_share(&share)?;
    }
    check_writable(&args.out)?;

    let _made = Made::dir(&share.dir)?;
    // Moved behind the directory, so that they are dropped before it.
    let mut targets = targets;
    for target in &mut targets {
        let took = target.start(&share)?;
        eprintln!(
            "{} listens after {:.2} s",
            target.name(),
            took.as_secs_f64()
        );
        ensure!(
            target.endpoint()?.protocol == Protocol::Kafka,
            "target {}: kafka-producer-perf-test speaks Kafka's protocol only",
            target.name()
        );
    }
    let tool = Site::make(
        "perf-test",
        &Share {
            cpus: client_cpus,
            memory: 0,
            ..share.clone()
        },
    )?;
    let bench = Bench {
        args,
        targets: &targets,
        tool: &tool,
        jars: &jars,
        stop: &stop,
    };
    let opinion = Opinion {
        tool: format!("kafka-producer-perf-test of Apache Kafka {kafka}"),
        java,
        quick: args.quick,
        flush: !args.no_flush,
        targets: targets
            .iter()
            .map(|target| TargetInfo {
                name: target.name().to_owned(),
                description: target.describe(),
            })
            .collect(),
        rows: bench.rows()?,
    };
    fs::write(&args.out, serde_json::to_vec_pretty(&opinion)?)
        .with_context(|| format!("{} can't be written", args.out.display()))?;
    print!("{}", table(&opinion));
    println!("{}", args.out.display());
    Ok(())
}

struct Bench<'a> {
    args: &'a OpinionArgs,
    targets: &'a [Box<dyn Target>],
    tool: &'a Site,
    jars: &'a Path,
    stop: &'a Stop,
}

impl Bench<'_> {
    fn rows(&self) -> Result<Vec<Row>> {
        let all = [Shape::Single, Shape::Small, Shape::Large];
        let shapes = if self.args.shapes.is_empty() {
            &all[..]
        } else {
            &self.args.shapes[..]
        };
        let mut rows = Vec::new();
        for &shape in shapes {
            let saturation = self.row(shape, None)?;
            let slowest = saturation.turns.iter().map(|turns| rate_of(turns));
            let half = slowest.fold(f64::INFINITY, f64::min) / 2.0;
            rows.push(saturation);
            rows.push(self.row(shape, Some(self.args.rate.unwrap_or(half).round().max(1.0)))?);
        }
        Ok(rows)
    }

    /// At saturation a first turn of each target, of few records, does not count: it tells how many the others need.
    fn row(&self, shape: Shape, rate: Option<f64>) -> Result<Row> {
        let seconds = if self.args.quick { 3.0 } else { 15.0 };
        let mut loads = Vec::new();
        for target in self.targets {
            let expected = match rate {
                Some(rate) => rate,
                None => {
                    let summary = self.turn(target.as_ref(), &shape.load(None, shape.first()))?;
                    progress(shape, "warm-up", target.as_ref(), &summary);
                    summary.records_per_second
                }
            };
            let records = ((expected * seconds) as u64).clamp(1000, RECORDS_MAX);
            loads.push(shape.load(rate, records));
        }
        let repeats = if self.args.quick {
            1
        } else {
            self.args.repeats
        };
        let mut turns = vec![Vec::new(); self.targets.len()];
        for repeat in 1..=repeats {
            for ((target, load), turns) in self.targets.iter().zip(&loads).zip(&mut turns) {
                let summary = self.turn(target.as_ref(), load)?;
                progress(shape, &format!("turn {repeat}"), target.as_ref(), &summary);
                turns.push(summary);
            }
        }
        Ok(Row { shape, rate, turns })
    }

    fn turn(&self, target: &dyn Target, load: &Load) -> Result<Summary> {
        const TOPIC: &str = "perf-opinion";
        let plan = TopicPlan {
            flush: !self.args.no_flush,
            ..TopicPlan::default()
        };
        let topic = format!("{TOPIC}-{}", std::process::id());
        target.create_topic(&topic, &plan)?;
        let summary = self.produce(target, &topic, load);
        let deleted = target.delete_topic(&topic);
        let summary = summary.with_context(|| format!("target {}", target.name()))?;
        deleted?;
        Ok(summary)
    }

    fn produce(&self, target: &dyn Target, topic: &str, load: &Load) -> Result<Summary> {
        let broker = target.endpoint()?.addr.to_string();
        let command = perf_test::command(self.jars, &broker, topic, load);
        let mut process = self.tool.start(&command)?;
        self.wait(&mut process)?;
        perf_test::parse(&process.output(), load).with_context(|| process.last_words())
    }

    fn wait(&self, process: &mut Spawned) -> Result<()> {
        loop {
            match process.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!(
                    "kafka-producer-perf-test failed, {status}: {}",
                    process.last_words()
                ),
                None if process.started().elapsed() > PATIENCE => bail!(
                    "kafka-producer-perf-test did not end within {PATIENCE:?}: {}",
                    process.last_words()
                ),
                None => self.stop.sleep(Duration::from_millis(20))?,
            }
        }
    }
}

impl Shape {
    fn load(self, rate: Option<f64>, records: u64) -> Load {
        Load {
            record_bytes: RECORD_BYTES,
            records,
            warmup_records: records / 4,
            rate,
            // A small buffer where records are slow: the tool fills it at saturation, and what waits in it expires.
            settings: match self {
                // A record fills its batch at once.
                Shape::Single => &[
                    "acks=all",
                    "linger.ms=0",
                    "batch.size=1",
                    "buffer.memory=262144",
                ],
                Shape::Small => &[
                    "acks=all",
                    "linger.ms=5",
                    "batch.size=16384",
                    "buffer.memory=4194304",
                ],
                Shape::Large => &[
                    "acks=all",
                    "linger.ms=5",
                    "batch.size=1048576",
                    "max.request.size=2097152",
                    "buffer.memory=67108864",
                ],
            },
        }
    }

    /// Records of the first turn.
    fn first(self) -> u64 {
        match self {
            Shape::Single => 2000,
            Shape::Small => 30_000,
            Shape::Large => 200_000,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Shape::Single => "one record a request",
            Shape::Small => "16 KiB batches",
            Shape::Large => "1 MiB batches",
        }
    }
}

/// Of all that lies on the disk at once: a topic that is being deleted, and the next, with room for indexes.
const DISK_BYTES: u64 = RECORDS_MAX * RECORD_BYTES as u64 * 3 + (1 << 30);

fn progress(shape: Shape, what: &str, target: &dyn Target, summary: &Summary) {
    let (name, rate) = (target.name(), summary.records_per_second);
    eprintln!("{}, {what}: {name} {rate:.0} records/s", shape.title());
}

/// Makes the directory of a file, and sees that the file can be written, which is left as it was.
fn check_writable(file: &Path) -> Result<()> {
    let is_there = file.exists();
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| File::options().append(true).create(true).open(file))
        .with_context(|| format!("--out {} can't be written", file.display()))?;
    if !is_there {
        fs::remove_file(file)?;
    }
    Ok(())
}

/// A directory that is removed at the end, if it is empty by then.
struct Made(PathBuf);

impl Made {
    fn dir(dir: &Path) -> Result<Made> {
        fs::create_dir_all(dir).with_context(|| format!("{} can't be made", dir.display()))?;
        Ok(Made(dir.to_owned()))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("{} can't be removed: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_told_and_one_that_can_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("below/new.json");
        check_writable(&new).unwrap();
        assert!(!new.exists());
        fs::write(&new, "old").unwrap();
        check_writable(&new).unwrap();
        assert_eq!(fs::read_to_string(&new).unwrap(), "old");
        let error = check_writable(&new.join("x")).unwrap_err().to_string();
        assert!(error.starts_with("--out "), "{error}");
    }

    #[test]
    fn a_load_has_a_warm_up_of_a_quarter() {
        let load = Shape::Single.load(Some(100.0), 1500);
        assert_eq!((load.records, load.warmup_records), (1500, 375));
    }
}
