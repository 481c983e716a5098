//! `highwater doctor`: what this machine allows, and what to change.
//!
//! Each check has a verdict: `ok`; `warn`, the broker runs, but slower, or promises more than the machine keeps; `fail`,
//! the broker could not run, and the exit code is 1. The broker need not be there, and nothing is left behind.

mod checks;
mod devices;
mod disk;
mod honesty;
mod mount;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{json, Value};

use super::render::{print, print_json};
use super::CliError;
use crate::runtime::native;
use disk::DiskSpeed;
use honesty::DiskFacts;

/// What is looked at.
#[derive(Debug, Clone, Args)]
pub(super) struct DoctorArgs {
    /// Where the data lies or will lie (log.dirs).
    #[arg(long, value_name = "DIR", default_value = "./highwater-data")]
    data_dir: PathBuf,
    /// Print JSON for scripts.
    #[arg(long)]
    json: bool,
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One check.
#[derive(Debug, Clone, PartialEq)]
struct Check {
    /// A stable name for scripts.
    name: &'static str,
    verdict: Verdict,
    found: String,
    /// What to change.
    advice: Option<String>,
    /// The figures behind it.
    figures: Value,
}

impl Check {
    fn new(name: &'static str, found: impl Into<String>, figures: Value) -> Check {
        Check {
            name,
            verdict: Verdict::Ok,
            found: found.into(),
            advice: None,
            figures,
        }
    }

    fn warn(self, advice: impl Into<String>) -> Check {
        self.judged(Verdict::Warn, advice)
    }

    fn fail(self, advice: impl Into<String>) -> Check {
        self.judged(Verdict::Fail, advice)
    }

    fn judged(mut self, verdict: Verdict, advice: impl Into<String>) -> Check {
        self.verdict = verdict;
        self.advice = Some(advice.into());
        self
    }

    fn json(&self) -> Value {
        json!({
            "check": self.name,
            "verdict": self.verdict.name(),
            "found": self.found,
            "advice": self.advice,
            "figures": self.figures,
        })
    }
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

pub(super) fn run(args: DoctorArgs) -> Result<(), CliError> {
    let (cpus, quota) = (native::cpus(), checks::cpu_quota());
    let mut found = vec![
        checks::kernel(),
        checks::io_uring(&cpus),
        checks::memlock(native::memlock_limit()),
        checks::nofile(native::nofile_limit()),
        checks::cpu(&cpus, quota),
        checks::memory(native::ram_bytes()),
    ];
    let dir = checks::nearest_directory(&args.data_dir);
    let mount = checks::mount_of(&dir);
    found.push(checks::file_system(&args.data_dir, &dir, mount.as_ref()));
    found.push(checks::space(native::space(&dir)));
    let speed = measure(dir);
    found.extend(checks::direct_io(&speed));
    if let Ok(Ok(speed)) = &speed {
        let facts = mount.as_ref().map(|mount| {
            let sys = Path::new("/sys");
            DiskFacts::of(sys, &checks::mountinfo(), mount)
        });
        let write_cache = facts.as_ref().and_then(DiskFacts::write_cache);
        found.push(checks::flush(speed, write_cache));
        found.extend(facts.map(|facts| honesty::check(&facts, speed)));
    }
    let speed = speed.ok().and_then(Result::ok);
    match args.json {
        true => print_json(&document(&args, &found, speed))?,
        false => print(&text(&found, speed))?,
    }
    match found
        .iter()
        .filter(|check| check.verdict == Verdict::Fail)
        .count()
    {
        0 => Ok(()),
        1 => Err(CliError::Found(
            "the broker could not run here; one check failed".to_owned(),
        )),
        n => Err(CliError::Found(format!(
            "the broker could not run here; {n} checks failed"
        ))),
    }
}

type Measured = Result<Result<DiskSpeed, crate::runtime::IoError>, native::StartError>;

fn measure(dir: PathBuf) -> Measured {
    native::run(move |rt| async move { disk::measure(&rt, &dir).await })
}

fn text(found: &[Check], speed: Option<DiskSpeed>) -> String {
    let width = found
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for check in found {
        text += &format!(
            "{:<4}  {:<width$}  {}\n",
            check.verdict.name(),
            check.name,
            check.found
        );
        if let Some(advice) = &check.advice {
            text += &format!("{:<4}  {:<width$}  -> {advice}\n", "", "");
        }
    }
    if let Some(speed) = speed {
        text += &format!(
            "\nExpect acks=all answers in about {} (p50) and {} (p99) on this disk, and the network's time; acks=1 in about {}.\n",
            shown(speed.both.p50),
            shown(speed.both.p99),
            shown(speed.write.p50),
        );
    }
    text + "\n" + UNKNOWABLE + "\n"
}

fn document(args: &DoctorArgs, found: &[Check], speed: Option<DiskSpeed>) -> Value {
    let us = |time: Duration| time.as_micros() as u64;
    json!({
        "data_dir": args.data_dir.display().to_string(),
        "verdict": found.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok).name(),
        "checks": found.iter().map(Check::json).collect::<Vec<_>>(),
        "expected_ack_us": speed.map(|speed| json!({
            "all_p50": us(speed.both.p50),
            "all_p99": us(speed.both.p99),
            "one_p50": us(speed.write.p50),
        })),
        "cannot_be_told": UNKNOWABLE,
    })
}

/// A time for a person.
fn shown(time: Duration) -> String {
    match time.as_micros() {
        us @ 0..=999 => format!("{us} us"),
        us @ 1000..=9999 => format!("{}.{:02} ms", us / 1000, us % 1000 / 10),
        us => format!("{}.{} ms", us / 1000, us % 1000 / 100),
    }
}

/// A size for a person.
fn size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >> shift > 0) {
        None => format!("{bytes} bytes"),
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
    }
}

/// What no program on a machine can find out about its disk.
const UNKNOWABLE: &str = "What cannot be told from here: whether the disk, its controller, or the host below a virtual machine \
keeps what it says is flushed. Only cutting the power while a program writes, and comparing what it was promised with what is \
left, shows that.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units() {
        let times = [7, 999, 1000, 1234, 9999, 12_345].map(|us| shown(Duration::from_micros(us)));
        assert_eq!(
            times,
            ["7 us", "999 us", "1.00 ms", "1.23 ms", "9.99 ms", "12.3 ms"]
        );
        assert_eq!(
            [5, 1 << 10, 3 << 29].map(size),
            ["5 bytes", "1.0 KiB", "1.5 GiB"]
        );
    }

    #[test]
    fn the_worst_verdict_is_the_documents() {
        let args = DoctorArgs {
            data_dir: "x".into(),
            json: true,
        };
        let fine = || Check::new("a", "fine", json!({}));
        let worst = |found: &[Check]| document(&args, found, None)["verdict"].clone();
        assert_eq!(worst(&[fine()]), "ok");
        assert_eq!(worst(&[fine().fail("x"), fine().warn("y")]), "fail");
        let text = text(&[fine().warn("change it")], None);
        assert!(
            text.starts_with("warn  a  fine\n         -> change it\n"),
            "{text}"
        );
    }
}
