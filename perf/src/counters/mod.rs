//! Figures that noise cannot move: what a request takes, counted and not timed.
//!
//! `perf counters` prints, of this build:
//!
//! - **instructions** for each record, by valgrind's callgrind, of a produce request (acks=all, to its
//!   acknowledgement) and of a fetch of one batch from the cache, at two layers: `partition` (decoding, partition,
//!   log, encoding) and `broker` (from the bytes of a connection through the shard to the log and back). Both run on
//!   the simulator, so system calls and the kernel's work are not in it; what stands in for them is told apart by
//!   function and left out. Valgrind knows no AVX-512, so checksums take their slower way.
//! - **allocations** for each request, from the same profiles: calls that allocate or grow memory. Bytes are not
//!   counted: a profile has calls, not their arguments.
//! - **system calls** for each 1,000 records of the real process, and operations submitted to io_uring
//!   (`syscalls/`), by the kernel's tracepoints or by strace.
//!
//! Requests are sent one at a time for the first two, so nothing is shared between them: under load, a write, a flush
//! and a wake-up are shared, and each costs less.
//!
//! `--json FILE` writes the figures; `--against FILE` shows the change beside each, marks changes above 2 % of
//! instructions and allocations, and fails when one of these has grown by more. `perf/counters.json` is the baseline;
//! it is renewed, with the change that moved it, by `perf counters --json perf/counters.json` of a release build.

mod callgrind;
mod figures;
mod scratch;
mod syscalls;
mod table;
mod work;
mod worker;

use crate::stop::Stop;
use anyhow::{bail, Context, Result};
use clap::{Args, Subcommand};
use figures::Figures;
use indicatif::{ProgressBar, ProgressStyle};
use scratch::Scratch;
use std::path::PathBuf;
use syscalls::{Bench, SyscallsArgs};

#[derive(Args)]
pub struct CountersArgs {
    /// Fewer codecs, fewer records, one repeat.
    #[arg(long, global = true)]
    quick: bool,
    /// Write the figures to this file.
    #[arg(long, value_name = "FILE", global = true)]
    json: Option<PathBuf>,
    /// Show changes from an older file, and fail if instructions or allocations have grown by more than 2 %.
    #[arg(long, value_name = "FILE", global = true)]
    against: Option<PathBuf>,
    /// The broker's file whose system calls are counted; by default `highwater` beside this program.
    #[arg(long, value_name = "FILE", global = true)]
    highwater: Option<PathBuf>,
    /// Where temporary files and the broker's data lie; by default beside this program.
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    /// Instructions and allocations only.
    Work,
    /// System calls only, of Highwater or of any broker that runs.
    Syscalls(SyscallsArgs),
    /// The work that is counted, as a process of its own.
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

pub fn run(args: &CountersArgs) -> Result<()> {
    let (work, calls) = match &args.part {
        None => (true, Some(SyscallsArgs::default())),
        Some(Part::Work) => (true, None),
        Some(Part::Syscalls(calls)) => (false, Some(calls.clone())),
        Some(Part::Worker(worker)) => return worker::run(worker),
    };
    let old = match &args.against {
        Some(path) => Some((Figures::load(path)?, path)),
        None => None,
    };
    if let Some(path) = &args.json {
        Figures::check_path(path)?;
    }
    if work {
        work::check()?;
    }
    let stop = Stop::on_signals()?;
    let scratch = Scratch::new(&directory(args)?)?;
    let highwater = args.highwater.as_deref();
    let bench = match &calls {
        None => None,
        Some(calls) => match Bench::open(calls, highwater, &scratch, &stop) {
            Ok(bench) => Some(bench),
            Err(error) if work => {
                bail!("{error:#} (`perf counters work` counts without system calls)")
            }
            Err(error) => return Err(error),
        },
    };
    let mut figures = Figures::new();
    if figures.build == "debug" {
        println!("a debug build: to see that it works, not for figures");
    }
    let older = old.as_ref().map(|(old, _)| old);
    if work {
        count_work(args.quick, &scratch, &stop, &mut figures, older)?;
    }
    if let Some(bench) = &bench {
        count_calls(bench, args.quick, &mut figures, older)?;
    }
    if let Some(path) = &args.json {
        figures.save(path)?;
    }
    match old {
        Some((old, path)) => figures.judge(&old, path),
        None => Ok(()),
    }
}

fn count_work(
    quick: bool,
    scratch: &Scratch,
    stop: &Stop,
    figures: &mut Figures,
    old: Option<&Figures>,
) -> Result<()> {
    let kinds = work::kinds(quick);
    let progress = progress(kinds.len() as u64);
    let mut rows = Vec::new();
    for kind in kinds {
        progress.set_message(kind.name());
        let cost = kind.count(scratch, stop)?;
        cost.push(&kind, figures);
        rows.push((kind, cost));
        progress.inc(1);
    }
    progress.finish_and_clear();
    print!("{}", table::work(&rows, figures, old));
    Ok(())
}

fn count_calls(
    bench: &Bench<'_>,
    quick: bool,
    figures: &mut Figures,
    old: Option<&Figures>,
) -> Result<()> {
    let progress = progress(syscalls::loads() as u64);
    progress.set_message("system calls");
    let rows = bench.count(quick, |_| progress.inc(1))?;
    progress.set_message("idle");
    let idle = bench.idle()?;
    progress.finish_and_clear();
    bench.push(&rows, idle, figures);
    println!("\nSystem calls: {}", bench.describe());
    print!("{}", table::calls(&rows, idle, bench.name(), figures, old));
    Ok(())
}

/// Only on a terminal.
fn progress(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
    match style {
        Ok(style) => ProgressBar::new(steps).with_style(style),
        Err(_) => ProgressBar::new(steps),
    }
}

/// A file system that takes direct I/O, as that of a build does: /tmp may not be one.
fn directory(args: &CountersArgs) -> Result<PathBuf> {
    if let Some(dir) = &args.dir {
        return Ok(dir.clone());
    }
    let own = std::env::current_exe().context("this program's file can't be found")?;
    let dir = own
        .parent()
        .context("this program's file has no directory")?;
    Ok(dir.to_owned())
}
