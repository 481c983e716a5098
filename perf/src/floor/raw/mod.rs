//! `perf floor`: what the machine does by itself, part by part.
//!
//! Each cell is one kind of work, done for a fixed time by one pinned thread: round trips to a server that does
//! nothing, direct writes with flushes, vectored sends, direct reads. A latency is from the start of an operation to its
//! end; only paced round trips count from the time at which they were due. Blocks of the disk are the file system's:
//! a flush is an fdatasync, and what a virtual disk does with it is the host's matter.

mod disk_read;
mod disk_write;
mod echo;
mod meter;
pub(in crate::floor) mod scratch;
mod send;
mod table;

use crate::stop::Stop;
use anyhow::{ensure, Context, Result};
use clap::{Args, ValueEnum};
use meter::Cell;
use nix::sched::{sched_getaffinity, CpuSet};
use nix::unistd::Pid;
use scratch::Scratch;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub struct FloorArgs {
    /// Where the files are written and removed again: the file system of the broker's data.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// CPUs of the server and of the client, `0/1`; by default the first, and the first of the second half.
    #[arg(long, value_name = "BROKER/CLIENT", value_parser = parse_cpus)]
    cpus: Option<Cpus>,
    /// Seconds of each cell; 1, or 0.3 with --quick.
    #[arg(long)]
    seconds: Option<f64>,
    /// Round trips a second where they are paced; half of what goes back to back, if that is less.
    #[arg(long, default_value_t = 2000.0)]
    rate: f64,
    /// Fewer cells, shorter.
    #[arg(long)]
    quick: bool,
    /// Parts of it.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Also writes all cells, with their histograms, to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Round trips to a server that does nothing, by request size.
    Echo,
    /// Direct writes, flushed, by size, files, state of the blocks, and depth.
    Write,
    /// Vectored sends, by response size.
    Send,
    /// Direct reads, by size and depth, at random and in sequence.
    Read,
}

/// `None`: not pinned.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cpus {
    pub broker: Option<usize>,
    pub client: Option<usize>,
}

/// What all cells share.
pub struct Plan {
    pub cpus: Cpus,
    pub time: Duration,
    pub rate: f64,
    pub quick: bool,
    pub stop: Stop,
}

pub fn run(args: &FloorArgs) -> Result<()> {
    let seconds = args.seconds.unwrap_or(if args.quick { 0.3 } else { 1.0 });
    ensure!(
        seconds > 0.0 && seconds <= 3600.0,
        "--seconds is above 0 and at most 3600"
    );
    ensure!(
        args.rate > 0.0 && args.rate <= 1e6,
        "--rate is above 0 and at most 1000000"
    );
    let plan = Plan {
        cpus: match args.cpus {
            Some(cpus) => cpus,
            None => default_cpus()?,
        },
        time: Duration::from_secs_f64(seconds),
        rate: args.rate,
        quick: args.quick,
        stop: Stop::on_signals()?,
    };
    for cpu in [plan.cpus.broker, plan.cpus.client] {
        std::thread::scope(|scope| scope.spawn(|| super::pin(cpu)).join())
            .expect("pinning has no panic")?;
    }
    if let Some(json) = &args.json {
        // Before minutes are spent.
        std::fs::write(json, "").with_context(|| format!("{} can't be written", json.display()))?;
    }
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    let on_disk = wanted(Part::Write) || wanted(Part::Read);
    let scratch = on_disk.then(|| Scratch::make(&args.dir, plan.quick));
    let scratch = scratch.transpose()?;
    print_head(&plan, scratch.as_ref());

    let mut cells = Vec::new();
    if wanted(Part::Echo) {
        echo::measure(&plan, &mut table::Printer::new(Part::Echo, &mut cells))?;
    }
    if wanted(Part::Send) {
        send::measure(&plan, &mut table::Printer::new(Part::Send, &mut cells))?;
    }
    if let Some(scratch) = &scratch {
        if wanted(Part::Write) {
            let printer = &mut table::Printer::new(Part::Write, &mut cells);
            disk_write::measure(&plan, scratch, printer)?;
        }
        if wanted(Part::Read) {
            let printer = &mut table::Printer::new(Part::Read, &mut cells);
            disk_read::measure(&plan, scratch, printer)?;
        }
    }
    if let Some(json) = &args.json {
        let text = serde_json::to_string_pretty(&Figures {
            cpus: plan.cpus,
            seconds,
            cells: &cells,
        })?;
        std::fs::write(json, text)
            .with_context(|| format!("{} can't be written", json.display()))?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Figures<'a> {
    cpus: Cpus,
    /// Of each cell.
    seconds: f64,
    cells: &'a [Cell],
}

fn print_head(plan: &Plan, scratch: Option<&Scratch>) {
    let cpu = |cpu: Option<usize>| cpu.map_or("not pinned".to_owned(), |cpu| format!("CPU {cpu}"));
    println!(
        "server {}, client {}, {:?} a cell",
        cpu(plan.cpus.broker),
        cpu(plan.cpus.client),
        plan.time
    );
    if let Some(scratch) = scratch {
        println!(
            "files in {}, direct I/O aligned to {} bytes",
            scratch.dir().display(),
            scratch.alignment()
        );
    }
    println!("a percentile is told with at least 100 samples beyond it; 1 MB is a million bytes");
}

fn parse_cpus(text: &str) -> Result<Cpus, String> {
    let parsed = text
        .split_once('/')
        .and_then(|(broker, client)| Some((broker.parse().ok()?, client.parse().ok()?)));
    let (broker, client) = parsed.ok_or("two CPUs, as in 0/1")?;
    Ok(Cpus {
        broker: Some(broker),
        client: Some(client),
    })
}

/// The first CPU that this process may use, and the first of the second half; with only one, none is pinned.
fn default_cpus() -> Result<Cpus> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).context("the CPUs can't be told")?;
    let cpus: Vec<usize> = (0..CpuSet::count())
        .filter(|&cpu| allowed.is_set(cpu) == Ok(true))
        .collect();
    Ok(match cpus.len() {
        0 | 1 => Cpus {
            broker: None,
            client: None,
        },
        count => Cpus {
            broker: Some(cpus[0]),
            client: Some(cpus[count.div_ceil(2)]),
        },
    })
}

/// `4 KiB`.
fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
