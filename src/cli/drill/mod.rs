//! `highwater drill`: cuts a broker of its own off under load, on the user's own disk, starts it again, and compares what
//! was acknowledged with what is left.
//!
//! ```text
//! workload (producers, a consumer) -> broker of its own -> data directory below --dir
//!        | told                                          \-> with --cut block: on a block stack, whose power is cut
//! ledger (this process, and a file) -> judge <- everything read back, and `log verify`
//! ```
//! The verdict names the fault that was really made: a SIGKILL leaves the page cache, so it proves no flush; a cut of the
//! block stack counts only where it took something.
//!
//! With `--broker` the broker is another machine's, whose plug the user pulls; see `plug.rs`.
//!
//! What it is not: it does not cut the power of the disk itself, which keeps running below the block stack's image.

mod block_stack;
mod ledger;
mod ledger_file;
mod ledgers;
mod own_broker;
mod plug;
mod plug_report;
mod programs;
mod report;
mod run;
mod unflushed;
mod workload;

pub use block_stack::{BlockStack, BlockStackError};
pub use ledger::{Entry, Fault, Judged, PartitionLedger, Policy, ReadBack, FAULTS_MAX};
pub use unflushed::CutBlocks;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures_lite::FutureExt;

use super::render::{print, print_json};
use super::CliError;
use crate::runtime::{native, Rt};
use report::Report;

/// How the broker is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cut {
    /// `block` where that is possible, otherwise `kill`.
    Auto,
    /// SIGKILL: the page cache survives.
    Kill,
    /// The power of a block device in a file, with a file system on it, and SIGKILL. Needs root, nbdkit and nbdfuse.
    Block,
}

/// What is drilled.
#[derive(Debug, Clone, Args)]
#[command(after_help = DRILL_HELP)]
pub(super) struct DrillArgs {
    /// On which disk: an empty directory, made if it is missing. Each drill has a folder of its own in it.
    #[arg(long, value_name = "DIR", default_value = "./highwater-drill")]
    dir: PathBuf,
    /// How often the broker is cut off.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// The longest load of a round: 5 s by default; with --broker 600 s.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    duration: Option<u32>,
    /// How it is cut off.
    #[arg(long, value_enum, default_value = "auto")]
    cut: Cut,
    /// Of the moments and the records; by default another each time.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Producers at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
    /// Set one of the broker's settings; may be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<String>,
    /// Drill a broker that does not flush, which must lose: it shows that the drill can fail. Implies --cut block.
    #[arg(long)]
    self_test: bool,
    /// Keep the folder of the drill.
    #[arg(long)]
    keep: bool,
    /// Drill this broker, on a machine whose plug you pull; it is given topics of its own.
    #[arg(long, short, value_name = "HOST:PORT", requires = "ledger", conflicts_with_all = OF_OWN_BROKER)]
    broker: Option<String>,
    /// Where what that broker acknowledged is kept: a new file, on another machine than it.
    #[arg(long, value_name = "FILE", requires = "broker")]
    ledger: Option<PathBuf>,
    /// Compare what is there with the ledger, after the machine is up again.
    #[arg(long, requires = "ledger", conflicts_with_all = ["duration", "clients", "seed"])]
    check: bool,
    /// Print JSON for scripts.
    #[arg(long)]
    json: bool,
}

/// What makes no sense with a broker that is not the drill's.
const OF_OWN_BROKER: [&str; 6] = ["dir", "rounds", "cut", "settings", "self_test", "keep"];

const DRILL_HELP: &str = "\
Exit code 0: nothing acknowledged was lost (with --self-test: the loss was noticed); 1: something was, or the drill could
not be made; 2: the command line cannot be used.
No broker but its own, or the one that is named, is touched. At most 256 MiB are produced, over all rounds.

To pull a machine's plug: run a broker there, and on another machine
  highwater drill --broker HOST:PORT --ledger FILE           load, until the plug is pulled (or Ctrl-C)
  highwater drill --broker HOST:PORT --ledger FILE --check   when the machine and its broker are up again: the verdict";

/// Where the drill's broker lies and listens is the drill's to say.
fn setting(text: &str) -> Result<String, String> {
    let (name, _) = super::remote::pair(text)?;
    match OWN_SETTINGS.contains(&name.as_str()) {
        true => Err(format!("{name} is the drill's own to set")),
        false => Ok(text.to_owned()),
    }
}

const OWN_SETTINGS: &[&str] = &[
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "listeners",
    "advertised.listeners",
    "admin.listener",
];

pub(super) fn run(mut args: DrillArgs) -> Result<(), CliError> {
    if let (Some(broker), Some(ledger)) = (args.broker.take(), args.ledger.take()) {
        let plan = plug::PlugPlan {
            broker,
            ledger,
            duration: seconds(args.duration, PLUG_SECONDS),
            clients: args.clients,
            seed: args.seed,
            as_json: args.json,
        };
        return match args.check {
            true => plug::check(plan),
            false => plug::load(plan),
        };
    }
    let signals = native::signals()?;
    let as_json = args.json;
    let is_self_test = args.self_test;
    let report = native::run(move |rt| async move {
        let drilled = async { Ok(Some(drill(&rt, &args).await?)) };
        let interrupted = async {
            signals.recv().await;
            Ok::<_, CliError>(None)
        };
        drilled.or(interrupted).await
    })??;
    // Whatever the drill had set up is taken down by now.
    let Some(report) = report else {
        return Err(CliError::Found(
            "interrupted; the broker is stopped and the drill's folder removed".to_owned(),
        ));
    };
    match as_json {
        true => print_json(&report.json())?,
        false => print(&report.text())?,
    }
    match (report.is_lost(), is_self_test) {
        (false, false) | (true, true) => Ok(()),
        (true, false) => Err(CliError::Found(format!(
            "the drill found losses; run it again with --seed {}",
            report.seed
        ))),
        (false, true) => Err(CliError::Found(
            "the broker did not flush and the drill found no loss: its verdicts prove nothing here"
                .to_owned(),
        )),
    }
}

fn seconds(asked: Option<u32>, default: u32) -> Duration {
    Duration::from_secs(u64::from(asked.unwrap_or(default)))
}

/// Sets everything up, and takes it down again.
async fn drill(rt: &Rt, args: &DrillArgs) -> Result<Report, CliError> {
    let seed = args.seed.unwrap_or_else(|| rt.random_u64() >> 32);
    if args.self_test && args.cut == Cut::Kill {
        return Err(CliError::Usage(
            "--self-test needs --cut block: a SIGKILL takes nothing that was written".to_owned(),
        ));
    }
    let mut folder = Folder::make(&args.dir, seed)?;
    let wanted = match args.self_test {
        true => Cut::Block,
        false => args.cut,
    };
    let (stack, why_kill) = match wanted {
        Cut::Kill => (None, "it was asked for".to_owned()),
        _ => match BlockStack::start(&folder.path, run::DEVICE_BYTES) {
            Ok(stack) => (Some(stack), String::new()),
            Err(error) if wanted == Cut::Auto => (None, error.to_string()),
            Err(error) => {
                return Err(CliError::Found(format!(
                    "the power below the file system cannot be cut here: {error}"
                )))
            }
        },
    };
    match &stack {
        Some(_) => eprintln!("cutting the power below an ext4 of the drill's own, on a device in a file; seed {seed}"),
        None => eprintln!("cutting by SIGKILL, not below the file system ({why_kill}); seed {seed}"),
    }
    let plan = run::Plan {
        seed,
        rounds: args.rounds,
        duration: seconds(args.duration, ROUND_SECONDS),
        clients: args.clients,
        settings: args.settings.clone(),
        is_self_test: args.self_test,
    };
    let mut report = run::run(rt, &plan, stack, &folder.path).await?;
    report.why_kill = why_kill;
    if args.keep || report.is_lost() && !args.self_test {
        report.kept_at = Some(folder.path.clone());
        folder.keep = true;
    }
    Ok(report)
}

/// The folder of one drill. Removed when dropped, unless it is to be kept.
struct Folder {
    /// Absolute.
    path: PathBuf,
    keep: bool,
    /// The directory around it, if the drill has made that.
    made: Option<PathBuf>,
}

impl Folder {
    fn make(dir: &Path, seed: u64) -> Result<Folder, CliError> {
        let unusable = |error: std::io::Error| {
            CliError::Usage(format!("cannot use {}: {error}", dir.display()))
        };
        let is_new = !dir.exists();
        if is_new {
            fs::create_dir_all(dir).map_err(unusable)?;
        }
        let mut folder = Folder {
            path: PathBuf::new(),
            keep: false,
            made: is_new.then(|| dir.to_owned()),
        };
        for entry in fs::read_dir(dir).map_err(unusable)? {
            let name = entry.map_err(unusable)?.file_name();
            if !name.to_string_lossy().starts_with(FOLDER_PREFIX) {
                return Err(CliError::Usage(format!(
                    "{} holds {}, which is no drill's: name an empty directory, or one that does not exist, with --dir",
                    dir.display(),
                    name.to_string_lossy()
                )));
            }
        }
        let free = native::space(dir).map_err(unusable)?.usable_bytes;
        if free < run::SPACE_BYTES_MIN {
            return Err(CliError::Usage(format!(
                "{} has {} MiB free, and a drill needs {}",
                dir.display(),
                free >> 20,
                run::SPACE_BYTES_MIN >> 20
            )));
        }
        let path = fs::canonicalize(dir).map_err(unusable)?;
        let path = path.join(format!("{FOLDER_PREFIX}{seed:x}-{}", std::process::id()));
        fs::create_dir(&path).map_err(unusable)?;
        folder.path = path;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if !self.path.as_os_str().is_empty() {
            if let Err(error) = fs::remove_dir_all(&self.path) {
                eprintln!("highwater: {} is left behind: {error}", self.path.display());
            }
        }
        if let Some(dir) = &self.made {
            // Another drill may be using it.
            let _ = fs::remove_dir(dir);
        }
    }
}

const ROUND_SECONDS: u32 = 5;
const PLUG_SECONDS: u32 = 600;
const FOLDER_PREFIX: &str = "drill-";
