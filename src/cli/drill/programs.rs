//! The programs that a block stack is made of: whether they are there, how they are run, stopped and killed.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::block_stack::{failed, BlockStackError, Result};
use crate::runtime::native::pause;

/// What of the programs is not installed, and what to do about it.
pub(super) fn missing() -> Option<(&'static str, &'static str)> {
    let mut missing = PROGRAMS
        .iter()
        .filter(|(program, ..)| !is_installed(program));
    missing.next().map(|(_, what, advice)| (*what, *advice))
}

/// Runs a program to its end; what it printed.
pub(super) fn run(program: &'static str, arguments: &[&str]) -> Result<String> {
    let done = Command::new("timeout")
        .args([PROGRAM_SECONDS, program])
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let detail = match done {
        Ok(output) if output.status.success() => {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("{} ({})", said.trim(), output.status)
        }
        Err(error) => error.to_string(),
    };
    Err(BlockStackError::Program { program, detail })
}

pub(super) fn started(program: &'static str, mut command: Command) -> Result<Child> {
    command.spawn().map_err(|error| BlockStackError::Program {
        program,
        detail: error.to_string(),
    })
}

/// SIGKILL, and waits for its end.
pub(super) fn kill(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

/// Waits until every thread of a process that was sent SIGSTOP has stopped.
pub(super) fn wait_stopped(process: u32) -> Result<()> {
    let threads = PathBuf::from(format!("/proc/{process}/task"));
    for _ in 0..STOP_PAUSES {
        let mut all = true;
        for thread in fs::read_dir(&threads).map_err(failed("look at", &threads))? {
            let path = thread
                .map_err(failed("look at", &threads))?
                .path()
                .join("stat");
            // One that has ended is no more.
            let stat = fs::read_to_string(&path).unwrap_or_default();
            // Behind the name, which may have blanks and brackets.
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
            all &= state.is_none_or(|state| state.starts_with('T'));
        }
        if all {
            return Ok(());
        }
        pause(STOP_PAUSE);
    }
    Err(BlockStackError::Program {
        program: "nbdkit",
        detail: "it does not stop".to_owned(),
    })
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    found
}

/// What is run, and which package has it.
const PROGRAMS: &[(&str, &str, &str)] = &[
    (
        "nbdkit",
        "nbdkit is not installed",
        "install the package nbdkit",
    ),
    (
        "nbdfuse",
        "nbdfuse is not installed",
        "install the package nbdfuse (libnbd), and fuse3",
    ),
    (
        "losetup",
        "losetup is not installed",
        "install the package mount (Debian) or util-linux",
    ),
    (
        "mount",
        "mount is not installed",
        "install the package mount (Debian) or util-linux",
    ),
    (
        "umount",
        "umount is not installed",
        "install the package mount (Debian) or util-linux",
    ),
    (
        "setsid",
        "setsid is not installed",
        "install the package util-linux",
    ),
    (
        "timeout",
        "timeout is not installed",
        "install the package coreutils",
    ),
    (
        "kill",
        "kill is not installed",
        "install the package procps",
    ),
    (
        "mkfs.ext4",
        "mkfs.ext4 is not installed, or /usr/sbin is not in PATH",
        "install the package e2fsprogs",
    ),
];
/// No program of a single step takes longer.
const PROGRAM_SECONDS: &str = "60";
const STOP_PAUSE: Duration = Duration::from_millis(2);
/// 20 s.
const STOP_PAUSES: usize = 10_000;
