//! What starting again costs: after SIGKILL and after a clean stop, by the broker's own counters.
//!
//! Each part makes a broker of its own in a directory of its own, fills it, ends it, starts it, and reads from
//! `/metrics` what loading read. What lies beyond the last checkpoint is exact: the log is filled, the broker stopped
//! cleanly (which checkpoints all of it), and the rest written by one that checkpoints nothing.
//!
//! The page cache plays no part: the broker reads segments by direct I/O, and so does the raw read beside it. What the
//! disk, or its host, keeps in memory is not known.

use crate::floor::ring::Buffer;
use crate::stop::Stop;
use crate::target::spawn::{Site, Spawned};
use crate::target::Share;
use crate::wire;
use anyhow::{bail, ensure, Context, Result};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use highwater::protocol::batch::BatchBuilder;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct RecoveryArgs {
    /// The broker's binary.
    #[arg(long, default_value = "target/release/highwater")]
    binary: PathBuf,
    /// Below it the brokers' directories are made, and removed again.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// CPUs of the broker, `0,1`; by default any.
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
    /// MiB of the one log that is recovered.
    #[arg(long, default_value_t = 10 << 10)]
    log_mib: u64,
    /// MiB of them beyond the last checkpoint.
    #[arg(long, default_value_t = 64)]
    tail_mib: u64,
    /// Partitions that are recovered at once, each with a batch beyond its checkpoint.
    #[arg(long, default_value_t = 1_000)]
    partitions: i32,
    /// Partitions that are started again after a clean stop.
    #[arg(long, default_value_t = 10_000)]
    clean_partitions: i32,
    /// Parts of it.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Also writes all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Part {
    /// One large log after SIGKILL, with its tail beyond the checkpoint.
    Log,
    /// The same log without anything that proves it flushed: all of it is read, beside a raw read of its files.
    Scan,
    /// Many partitions after SIGKILL.
    Partitions,
    /// Many partitions after a clean stop.
    Clean,
}

/// One start.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Start {
    part: Part,
    /// What was started, in a few words.
    what: String,
    /// Until it listens.
    seconds: f64,
    /// The counters of loading, by the end of their names.
    read: BTreeMap<String, u64>,
    /// Bytes of the raw read of the same files a second, where there was one.
    raw_bytes_per_second: Option<f64>,
}

const TOPIC: &str = "perf-recovery";
const MIB: u64 = 1 << 20;
/// A batch of the one log: 15 records of this size.
const RECORD_BYTES: usize = 64 << 10;
const RECORDS: usize = 15;
/// Requests in flight while a log is filled.
const IN_FLIGHT: usize = 16;
/// For a start that reads everything, and a stop of many partitions.
const PATIENCE: Duration = Duration::from_secs(1_800);
/// One that is never reached.
const NO_CHECKPOINT: &str = "checkpoint.bytes=1099511627776";

pub fn run(args: &RecoveryArgs) -> Result<()> {
    ensure!(
        args.tail_mib <= args.log_mib,
        "--tail-mib is at most --log-mib"
    );
    ensure!(
        args.partitions > 0 && args.clean_partitions > 0,
        "--partitions and --clean-partitions are above 0"
    );
    let stop = Stop::on_signals()?;
    if let Some(json) = &args.json {
        // Before minutes are spent.
        fs::write(json, "").with_context(|| format!("{} can't be written", json.display()))?;
    }
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    let mut starts = Vec::new();
    println!(
        "{:<44}{:>10}{:>12}{:>12}{:>10}{:>10}{:>10}",
        "", "seconds", "scanned MiB", "rebuilt MiB", "segments", "MB/s", "raw MB/s"
    );
    let mut show = |found: Start| {
        found.print();
        starts.push(found);
    };
    if wanted(Part::Log) || wanted(Part::Scan) {
        let mut world = World::make("recovery-log", args, &stop)?;
        world.fill_log(args)?;
        world.kill()?;
        let found = world.start(
            Part::Log,
            format!("{} MiB, killed, {} MiB beyond", args.log_mib, args.tail_mib),
        )?;
        if wanted(Part::Log) {
            show(found);
        }
        if wanted(Part::Scan) {
            world.kill()?;
            world.forget_proofs()?;
            let raw = world.raw_read()?;
            let mut found = world.start(
                Part::Scan,
                format!("{} MiB, no checkpoint left", args.log_mib),
            )?;
            found.raw_bytes_per_second = Some(raw);
            show(found);
        }
    }
    if wanted(Part::Partitions) {
        let mut world = World::make("recovery-partitions", args, &stop)?;
        world.fill_partitions(args.partitions, true)?;
        world.kill()?;
        show(world.start(
            Part::Partitions,
            format!("{} partitions, killed", args.partitions),
        )?);
    }
    if wanted(Part::Clean) {
        let mut world = World::make("recovery-clean", args, &stop)?;
        world.fill_partitions(args.clean_partitions, false)?;
        let what = format!("{} partitions, clean", args.clean_partitions);
        show(world.start(Part::Clean, what)?);
    }
    if let Some(json) = &args.json {
        let text = serde_json::to_string_pretty(&starts)?;
        fs::write(json, text).with_context(|| format!("{} can't be written", json.display()))?;
    }
    Ok(())
}

impl Start {
    fn count(&self, name: &str) -> u64 {
        self.read.get(name).copied().unwrap_or(0)
    }

    fn print(&self) {
        let (scanned, rebuilt) = (self.count("scanned_bytes"), self.count("rebuilt_bytes"));
        let mb = |bytes: f64| format!("{:.0}", bytes / 1e6);
        let rate = match scanned + rebuilt {
            0 => "-".to_owned(),
            bytes => mb(bytes as f64 / self.seconds),
        };
        println!(
            "{:<44}{:>10.3}{:>12.1}{:>12.1}{:>10}{:>10}{:>10}",
            self.what,
            self.seconds,
            scanned as f64 / MIB as f64,
            rebuilt as f64 / MIB as f64,
            self.count("segments_opened"),
            rate,
            self.raw_bytes_per_second.map_or("-".to_owned(), mb),
        );
    }
}

/// A broker and its directory. The process is dropped before its site.
struct World<'a> {
    running: Option<Running>,
    site: Site,
    data_dir: PathBuf,
    binary: &'a Path,
    stop: &'a Stop,
}

struct Running {
    process: Spawned,
    addr: SocketAddr,
    admin: SocketAddr,
    took: Duration,
}

impl<'a> World<'a> {
    fn make(name: &str, args: &'a RecoveryArgs, stop: &'a Stop) -> Result<World<'a>> {
        let share = Share {
            dir: args.dir.clone(),
            cpus: args.cpus.clone(),
            memory: 0,
        };
        let name = format!("perf-{name}-{}", std::process::id());
        let site = Site::make(&name, &share)?;
        let data_dir = site.dir().join("data");
        Ok(World {
            running: None,
            site,
            data_dir,
            binary: &args.binary,
            stop,
        })
    }

    /// Starts the broker and waits until it listens.
    fn boot(&mut self, settings: &[&str]) -> Result<()> {
        let binary = std::path::absolute(self.binary)?;
        let mut command = Command::new(binary);
        command
            .args(["serve", "--listener", "127.0.0.1:0"])
            .args(["--admin-listener", "127.0.0.1:0", "--data-dir"])
            .arg(&self.data_dir);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let mut process = self.site.start(&command)?;
        loop {
            // Before the look: whoever ends may have printed it.
            let alive = process.check();
            if let Some((addr, admin)) = addresses(&process.output()) {
                self.running = Some(Running {
                    took: process.started().elapsed(),
                    process,
                    addr,
                    admin,
                });
                return Ok(());
            }
            alive?;
            let elapsed = process.started().elapsed();
            ensure!(
                elapsed < PATIENCE,
                "the broker does not listen after {PATIENCE:?}"
            );
            self.stop.sleep(Duration::from_millis(1))?;
        }
    }

    /// Starts it, and reads what loading read.
    fn start(&mut self, part: Part, what: String) -> Result<Start> {
        self.boot(&[])?;
        let running = self.running()?;
        Ok(Start {
            part,
            what,
            seconds: running.took.as_secs_f64(),
            read: loaded(running.admin)?,
            raw_bytes_per_second: None,
        })
    }

    fn running(&self) -> Result<&Running> {
        self.running.as_ref().context("the broker does not run")
    }

    fn take(&mut self) -> Result<Spawned> {
        let running = self.running.take();
        Ok(running.context("the broker does not run")?.process)
    }

    fn kill(&mut self) -> Result<()> {
        self.take()?.kill()
    }

    fn stop_cleanly(&mut self) -> Result<()> {
        let (status, _) = self.take()?.terminate(PATIENCE)?;
        ensure!(
            status.success(),
            "the broker did not stop cleanly: {status}"
        );
        Ok(())
    }

    /// One log, checkpointed but for its tail.
    fn fill_log(&mut self, args: &RecoveryArgs) -> Result<()> {
        self.boot(&[])?;
        wire::create_topic(&self.running()?.addr.to_string(), TOPIC, 1, &[])?;
        let mut batch = BatchBuilder::new();
        for _ in 0..RECORDS {
            batch.push(wire::now_ms(), None, Some(&vec![b'x'; RECORD_BYTES]));
        }
        let batch = batch.build();
        let batches = |mib: u64| vec![0; (mib * MIB).div_ceil(batch.len() as u64) as usize];
        self.produce(&batches(args.log_mib - args.tail_mib), &batch)?;
        self.stop_cleanly()?;
        self.boot(&[
            NO_CHECKPOINT,
            "log.flush.offset.checkpoint.interval.ms=2147483647",
        ])?;
        self.produce(&batches(args.tail_mib), &batch)
    }

    /// Many partitions with a record each, stopped cleanly; with `again` another record each after that.
    fn fill_partitions(&mut self, partitions: i32, again: bool) -> Result<()> {
        self.boot(&[])?;
        wire::create_topic(&self.running()?.addr.to_string(), TOPIC, partitions, &[])?;
        let mut batch = BatchBuilder::new();
        batch.push(wire::now_ms(), None, Some(&[b'x'; 1024]));
        let (batch, all) = (batch.build(), (0..partitions).collect::<Vec<_>>());
        self.produce(&all, &batch)?;
        self.stop_cleanly()?;
        if again {
            self.boot(&[NO_CHECKPOINT])?;
            self.produce(&all, &batch)?;
        }
        Ok(())
    }

    /// A batch to each of these partitions, acknowledged when it is flushed.
    fn produce(&self, partitions: &[i32], batch: &Bytes) -> Result<()> {
        let mut socket = wire::connect(&self.running()?.addr.to_string())?;
        for (n, partition) in partitions.iter().enumerate() {
            self.stop.check()?;
            if n >= IN_FLIGHT {
                wire::check_produced(wire::read_frame(&mut socket)?)?;
            }
            let frame = wire::produce_frame(TOPIC, *partition, -1, batch.clone())?;
            socket.write_all(&frame)?;
        }
        for _ in 0..partitions.len().min(IN_FLIGHT) {
            wire::check_produced(wire::read_frame(&mut socket)?)?;
        }
        Ok(())
    }

    fn partition_dir(&self) -> PathBuf {
        self.data_dir.join(format!("{TOPIC}-0"))
    }

    fn files(&self, extension: &str) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.partition_dir())? {
            let path = entry?.path();
            if path.extension().is_some_and(|found| found == extension) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Removes what says that records were flushed, as if no checkpoint had ever been.
    fn forget_proofs(&self) -> Result<()> {
        let snapshots = self.files("snapshot")?;
        ensure!(!snapshots.is_empty(), "the broker has left no snapshot");
        for path in snapshots {
            fs::remove_file(path)?;
        }
        let points = self.data_dir.join("recovery-point-offset-checkpoint");
        Ok(fs::remove_file(points)?)
    }

    /// Reads the segments as recovery does, directly, 1 MiB at a time, one read after the other; bytes a second.
    fn raw_read(&self) -> Result<f64> {
        let mut buffer = Buffer::new(MIB as usize)?;
        let (mut bytes, begun) = (0u64, Instant::now());
        for path in self.files("log")? {
            let file = fs::OpenOptions::new()
                .read(true)
                .custom_flags(nix::libc::O_DIRECT)
                .open(&path)
                .with_context(|| format!("{} can't be read directly", path.display()))?;
            let mut position = 0;
            loop {
                self.stop.check()?;
                match file.read_at(&mut buffer, position)? {
                    0 => break,
                    read => position += read as u64,
                }
            }
            bytes += position;
        }
        Ok(bytes as f64 / begun.elapsed().as_secs_f64())
    }
}

/// The addresses that the banner tells, once both lines are whole.
fn addresses(output: &str) -> Option<(SocketAddr, SocketAddr)> {
    let whole_lines = &output[..output.rfind('\n')?];
    let find = |head: &str| {
        let mut lines = whole_lines.lines().map(str::trim_start);
        lines
            .find_map(|line| line.strip_prefix(head))
            .map(str::trim)
    };
    let addr = find("listening ")?.split([',', ' ']).next()?.parse().ok()?;
    let admin = find("admin ")?.strip_prefix("http://")?;
    Some((addr, admin.split('/').next()?.parse().ok()?))
}

/// The counters of loading.
fn loaded(admin: SocketAddr) -> Result<BTreeMap<String, u64>> {
    let mut socket = TcpStream::connect(admin).context("no admin HTTP")?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    socket.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\n\r\n").as_bytes())?;
    let mut page = String::new();
    socket.read_to_string(&mut page)?;
    let counters = parse_loaded(&page);
    if counters.is_empty() {
        bail!("{admin} answers without the counters of loading: is the binary older than this program?");
    }
    Ok(counters)
}

fn parse_loaded(page: &str) -> BTreeMap<String, u64> {
    let lines = page.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("highwater_recovery_")?.split_once(' ')?;
        Some((name.strip_suffix("_total")?.to_owned(), value.parse().ok()?))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_banner_tells_both_addresses_once_it_is_whole() {
        let banner = "Highwater, node 1\n  listening   127.0.0.1:4012, clients are told a:1\n  admin       http://127.0.0.1:4013/metrics, /healthz\n";
        let both = (
            "127.0.0.1:4012".parse().unwrap(),
            "127.0.0.1:4013".parse().unwrap(),
        );
        assert_eq!(addresses(banner), Some(both));
        assert_eq!(addresses(&banner[..banner.len() - 1]), None);
        assert_eq!(addresses(""), None);
    }

    #[test]
    fn the_counters_of_loading_are_found_on_the_page() {
        let page = "# TYPE highwater_recovery_scanned_bytes counter\nhighwater_recovery_scanned_bytes_total 42\nhighwater_other_total 7\n";
        assert_eq!(
            parse_loaded(page),
            [("scanned_bytes".to_owned(), 42)].into()
        );
    }
}
