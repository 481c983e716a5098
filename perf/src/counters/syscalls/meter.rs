//! Counts the system calls of a running process: by the kernel's tracepoints, or else by strace.
//!
//! perf reads counters of the kernel and hardly disturbs the process. strace stops it at each call, so that it is
//! slower and does more with one call: its figures are lower, and comparable only with those of strace.

use super::super::scratch::{run, Guarded, Scratch};
use super::parse::{perf_stat, strace, Counts, SUBMITTED};
use crate::stop::Stop;
use anyhow::{anyhow, bail, Context, Result};
use clap::ValueEnum;
use nix::fcntl::OFlag;
use nix::sys::signal::{kill, Signal};
use nix::sys::stat::Mode;
use nix::unistd::{mkfifo, Pid};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// perf stat on the kernel's tracepoints: hardly disturbs the process. Needs root.
    Perf,
    /// strace -c: stops the process at each call. Cannot see what is submitted to io_uring.
    Strace,
}

/// A way of counting that works here.
#[derive(Debug, Clone)]
pub struct Meter {
    by: By,
    /// Of perf: what is counted.
    events: Vec<String>,
}

/// Counting that goes on.
pub struct Running<'a> {
    meter: &'a Meter,
    counter: Guarded,
    scratch: &'a Scratch,
    /// Of perf.
    control: Option<Control>,
}

struct Control {
    commands: File,
    answers: File,
}

impl Meter {
    /// The way that was asked for, or the first that works.
    ///
    /// # Errors
    /// None works: why, in a sentence.
    pub fn find(asked: Option<By>, scratch: &Scratch, stop: &Stop) -> Result<Meter> {
        match asked {
            Some(By::Perf) => Meter::perf(scratch, stop),
            Some(By::Strace) => Meter::strace(scratch, stop),
            None => match Meter::perf(scratch, stop) {
                Ok(meter) => Ok(meter),
                Err(perf) => {
                    Meter::strace(scratch, stop).map_err(|strace| anyhow!("{perf:#}; {strace:#}"))
                }
            },
        }
    }

    pub fn by(&self) -> By {
        self.by
    }

    fn perf(scratch: &Scratch, stop: &Stop) -> Result<Meter> {
        let events = events(&tracepoints()?)?;
        let out = scratch.file("check");
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "-e", &events.join(","), "-o"]);
        command.arg(&out).args(["--", "cat", "/dev/null"]);
        let tried = run(&mut command, scratch, CHECK_MAX, stop)
            .and_then(|()| perf_stat(&fs::read_to_string(&out)?));
        match tried {
            Ok(counts) if counts.calls > 0 => Ok(Meter {
                by: By::Perf,
                events,
            }),
            Ok(_) => bail!("perf stat sees no system calls here: run as root, or use --by strace"),
            Err(error) => {
                let first = first_line(&error);
                bail!("perf stat can't count system calls ({first}): install perf and run as root, or use --by strace")
            }
        }
    }

    /// Tries it on a process that does nothing.
    fn strace(scratch: &Scratch, stop: &Stop) -> Result<Meter> {
        let meter = Meter {
            by: By::Strace,
            events: Vec::new(),
        };
        let tried = Guarded::spawn(Command::new("sleep").arg("60")).and_then(|mut sleeper| {
            let pid = sleeper.child().id();
            meter.attach(pid, scratch, stop)?.detach(stop)
        });
        match tried {
            Ok(_) => Ok(meter),
            Err(error) => {
                let first = first_line(&error);
                bail!("strace can't count system calls ({first}): install strace, and run as root or allow ptrace (sysctl kernel.yama.ptrace_scope=0)")
            }
        }
    }

    /// Counts what the process and its threads do while `work` runs.
    pub fn count(
        &self,
        pid: u32,
        scratch: &Scratch,
        stop: &Stop,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Counts> {
        let mut running = self.attach(pid, scratch, stop)?;
        running.tell("enable", stop)?;
        work()?;
        running.tell("disable", stop)?;
        let text = running.detach(stop)?;
        let counts = match self.by {
            By::Perf => perf_stat(&text),
            By::Strace => strace(&text),
        };
        counts.with_context(|| format!("while process {pid} was counted"))
    }

    /// Comes back when the process is watched; with perf nothing counts before it is told so.
    fn attach<'a>(&'a self, pid: u32, scratch: &'a Scratch, stop: &Stop) -> Result<Running<'a>> {
        let (out, errors) = (scratch.file("counts"), scratch.file("errors"));
        // Of the run before.
        let _ = fs::remove_file(&out);
        let pid_text = pid.to_string();
        let (mut command, control) = match self.by {
            By::Perf => {
                let [commands, answers] = ["commands", "answers"];
                let mut command = Command::new("perf");
                command
                    .args(["stat", "-x,", "-e", &self.events.join(","), "-D", "-1"])
                    // Their directory's name may have a comma.
                    .current_dir(scratch.path())
                    .arg(format!("--control=fifo:{commands},{answers}"))
                    .args(["-p", &pid_text, "-o"])
                    .arg(&out);
                let control = Control {
                    commands: fifo(&scratch.file(commands))?,
                    answers: fifo(&scratch.file(answers))?,
                };
                (command, Some(control))
            }
            By::Strace => {
                let mut command = Command::new("strace");
                command.args(["-f", "-c", "-p", &pid_text, "-o"]).arg(&out);
                (command, None)
            }
        };
        let log = File::create(&errors)?;
        command.stdout(log.try_clone()?).stderr(log);
        let mut running = Running {
            meter: self,
            counter: Guarded::spawn(&mut command)?,
            scratch,
            control,
        };
        if self.by == By::Strace {
            running.wait_until_traced(pid, stop)?;
        }
        Ok(running)
    }
}

impl Running<'_> {
    /// Of perf: has it begin or end, and waits until it has.
    fn tell(&mut self, command: &str, stop: &Stop) -> Result<()> {
        let Some(control) = &mut self.control else {
            return Ok(());
        };
        control
            .commands
            .write_all(format!("{command}\n").as_bytes())?;
        let mut answer = Vec::new();
        let start = Instant::now();
        while !answer.ends_with(b"ack\n") && !answer.ends_with(b"ack\n\0") {
            let mut chunk = [0; 16];
            let control = self.control.as_mut().context("perf is controlled")?;
            match control.answers.read(&mut chunk) {
                Ok(read) => answer.extend(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.still_runs()?;
                    if start.elapsed() > ATTACH_MAX {
                        bail!("perf stat does not answer");
                    }
                    stop.sleep(Duration::from_millis(1))?;
                }
                Err(error) => return Err(error).context("perf stat's answer"),
            }
        }
        Ok(())
    }

    fn wait_until_traced(&mut self, pid: u32, stop: &Stop) -> Result<()> {
        let start = Instant::now();
        while !all_traced(pid)? {
            self.still_runs()?;
            if start.elapsed() > ATTACH_MAX {
                bail!("strace does not attach to process {pid}");
            }
            stop.sleep(Duration::from_millis(5))?;
        }
        Ok(())
    }

    fn still_runs(&mut self) -> Result<()> {
        if let Some(status) = self.counter.child().try_wait()? {
            bail!("{} ended with {status}: {}", self.name(), self.errors());
        }
        Ok(())
    }

    /// Ends the counting; what was written.
    fn detach(mut self, stop: &Stop) -> Result<String> {
        self.still_runs()?;
        let pid = i32::try_from(self.counter.child().id())?;
        kill(Pid::from_raw(pid), Signal::SIGINT)?;
        self.counter.wait(ATTACH_MAX, stop)?;
        let out = self.scratch.file("counts");
        let text = fs::read_to_string(out);
        text.with_context(|| format!("{} has written nothing: {}", self.name(), self.errors()))
    }

    fn name(&self) -> &'static str {
        match self.meter.by {
            By::Perf => "perf stat",
            By::Strace => "strace",
        }
    }

    fn errors(&self) -> String {
        let text = fs::read_to_string(self.scratch.file("errors")).unwrap_or_default();
        text.trim().to_owned()
    }
}

/// A pipe with a name, both ends of it open here, so that nobody waits for the other side to open it.
fn fifo(path: &Path) -> Result<File> {
    if !path.exists() {
        mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)
            .with_context(|| format!("{} can't be made", path.display()))?;
    }
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits());
    Ok(options.open(path)?)
}

/// Whether each thread of a process has a tracer.
fn all_traced(pid: u32) -> Result<bool> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.with_context(|| format!("no process {pid}"))? {
        // One that ended meanwhile.
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else {
            continue;
        };
        if status.lines().any(|line| line == "TracerPid:\t0") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The directory of the kernel's tracepoints.
fn tracepoints() -> Result<PathBuf> {
    ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.join("raw_syscalls/sys_enter").is_dir())
        .context("the kernel's tracepoints can't be seen: run as root with tracefs mounted on /sys/kernel/tracing, or use --by strace")
}

/// What perf is to count, of what this kernel has.
fn events(tracepoints: &Path) -> Result<Vec<String>> {
    let has = |event: &String| tracepoints.join(event.replace(':', "/")).is_dir();
    let mut events = vec!["raw_syscalls:sys_enter".to_owned()];
    // Before Linux 6.4 it had another name.
    events.extend(
        SUBMITTED
            .map(|name| format!("io_uring:{name}"))
            .into_iter()
            .find(has),
    );
    let named = NAMED.map(|name| format!("syscalls:sys_enter_{name}"));
    events.extend(named.into_iter().filter(has));
    Ok(events)
}

fn first_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.take(2).collect::<Vec<_>>().join(" ")
}

/// The calls that brokers make much of, told by name.
const NAMED: [&str; 14] = [
    "io_uring_enter",
    "epoll_wait",
    "epoll_ctl",
    "read",
    "write",
    "writev",
    "sendto",
    "sendmsg",
    "recvfrom",
    "pwrite64",
    "fsync",
    "fdatasync",
    "futex",
    "membarrier",
];
const CHECK_MAX: Duration = Duration::from_secs(30);
const ATTACH_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_kernel_then_only_what_it_has_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let make = |event: &str| fs::create_dir_all(dir.path().join(event)).unwrap();
        make("io_uring/io_uring_submit_sqe");
        make("syscalls/sys_enter_futex");
        let events = events(dir.path()).unwrap();
        assert_eq!(
            events,
            [
                "raw_syscalls:sys_enter",
                "io_uring:io_uring_submit_sqe",
                "syscalls:sys_enter_futex"
            ]
        );
    }

    #[test]
    fn given_no_process_then_that_is_said() {
        let error = all_traced(u32::MAX).unwrap_err();
        assert_eq!(error.to_string(), format!("no process {}", u32::MAX));
        assert!(!all_traced(std::process::id()).unwrap());
    }

    #[test]
    fn given_a_counter_that_works_here_then_it_counts_the_calls_of_a_process() {
        let dir = tempfile::tempdir().unwrap();
        let (scratch, stop) = (Scratch::new(dir.path()).unwrap(), Stop::default());
        for by in [By::Perf, By::Strace] {
            let meter = match Meter::find(Some(by), &scratch, &stop) {
                Ok(meter) => meter,
                Err(error) => {
                    // Where it can't be used, it says what to do.
                    assert!(error.to_string().contains("root"), "{error:#}");
                    continue;
                }
            };
            // Two calls for each byte, as long as it is watched.
            let mut busy = Command::new("dd");
            busy.args(["if=/dev/zero", "of=/dev/null", "bs=1", "status=none"]);
            let mut busy = Guarded::spawn(&mut busy).unwrap();
            let pid = busy.child().id();
            let work = || stop.sleep(Duration::from_millis(100));
            let counts = meter.count(pid, &scratch, &stop, work).unwrap();
            assert!(counts.calls > 10, "{by:?}: {counts:?}");
            let named = |name| counts.named.get(name).copied().unwrap_or(0);
            assert!(
                named("read") > 0 && named("write") > 0,
                "{by:?}: {counts:?}"
            );
            assert!(named("read") + named("write") <= counts.calls);
        }
    }
}
