//! Processes that are started to be measured: pinned, limited in memory, and gone when they are dropped.
//!
//! A [`Site`] is what a target keeps over its restarts: a directory, and a memory cgroup. A [`Spawned`] is one process on
//! it. Drop the process before its site (declare it first).
//!
//! If the harness itself is killed by SIGKILL its processes die too where util-linux's `setpriv` is installed; their
//! directories and cgroups then stay. The kernel binds that to the *thread* that started the process: it must live as
//! long as the process, so start processes from the main thread.

use super::cgroup::Cgroup;
use super::listener::listens;
use super::Share;
use crate::stop::Stop;
use anyhow::{bail, Context, Result};
use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A target's directory and memory cgroup; both are removed on drop.
pub struct Site {
    name: String,
    dir: PathBuf,
    cpus: Vec<usize>,
    cgroup: Option<Cgroup>,
    memory_limit: String,
    dies_with_us: bool,
}

impl Site {
    /// Makes the directory `share.dir/name`, which must not exist, and a cgroup where that can be done.
    pub fn make(name: &str, share: &Share) -> Result<Site> {
        let dir = std::path::absolute(share.dir.join(name))?;
        if dir.exists() {
            bail!(
                "{} is there already, perhaps of a run that was killed: remove it",
                dir.display()
            );
        }
        fs::create_dir_all(&dir).with_context(|| format!("{} can't be made", dir.display()))?;
        let mut site = Site {
            name: name.to_owned(),
            dir,
            cpus: share.cpus.clone(),
            cgroup: None,
            memory_limit: "none asked for".to_owned(),
            dies_with_us: setpriv_works(),
        };
        if share.memory > 0 {
            match Cgroup::make(name, share.memory) {
                Ok(cgroup) => {
                    site.memory_limit = cgroup.kind().to_owned();
                    site.cgroup = Some(cgroup);
                }
                Err(reason) => site.memory_limit = format!("not held: {reason:#}"),
            }
        }
        Ok(site)
    }

    /// Absolute.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the output of its processes goes.
    pub fn log(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }

    /// How the memory limit is held: `cgroup v1`, `cgroup v2`, or why it is not.
    pub fn memory_limit(&self) -> &str {
        &self.memory_limit
    }

    /// Starts a command, with its arguments, environment and working directory, on this site.
    pub fn start(&self, command: &Command) -> Result<Spawned> {
        let log = self.log();
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("{} can't be written", log.display()))?;
        let log_from = output.metadata()?.len();
        let mut wrapped = self.wrap(command);
        wrapped
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        raise_open_files()?;
        let started = Instant::now();
        let child = on_cpus(&self.cpus, || wrapped.spawn())?
            .with_context(|| format!("{} can't be run", command.get_program().display()))?;
        Ok(Spawned {
            name: self.name.clone(),
            child,
            started,
            log,
            log_from,
        })
    }

    /// The command behind a shell that enters the cgroup and `setpriv`; both become the command by exec, so the
    /// process id is the command's.
    fn wrap(&self, command: &Command) -> Command {
        const ENTER: &str = r#"echo $$ >"$0" && exec "$@""#;
        let mut words: Vec<OsString> = Vec::new();
        if let Some(cgroup) = &self.cgroup {
            words.extend(["sh", "-c", ENTER].map(OsString::from));
            words.push(cgroup.procs().into());
        }
        if self.dies_with_us {
            words.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(OsString::from));
        }
        words.push(command.get_program().to_owned());
        words.extend(command.get_args().map(OsStr::to_owned));
        let mut wrapped = Command::new(&words[0]);
        wrapped.args(&words[1..]);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            wrapped.current_dir(dir);
        }
        wrapped
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("{} can't be removed: {error}", self.dir.display());
        }
        // After the directory: with the files goes the page cache that the cgroup is charged with.
        self.cgroup = None;
    }
}

/// A running process. Killed on drop, with all of its process group.
pub struct Spawned {
    name: String,
    child: Child,
    started: Instant,
    log: PathBuf,
    /// Where this process's part of the log begins.
    log_from: u64,
}

impl Spawned {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Its status, once it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// An error, with the end of its log, once it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.ended()? {
            Some(status) => bail!("{} ended with {status}: {}", self.name, self.last_words()),
            None => Ok(()),
        }
    }

    /// What it has printed so far, at most the last 64 KiB.
    pub fn output(&self) -> String {
        self.printed(64 << 10).unwrap_or_default()
    }

    /// The last lines that it has printed, for an error; without those of a Java stack.
    pub fn last_words(&self) -> String {
        const LINES: usize = 8;
        match self.printed(16 << 10) {
            Err(error) => format!("its log {} can't be read: {error}", self.log.display()),
            Ok(text) if text.trim().is_empty() => "it printed nothing".to_owned(),
            Ok(text) => {
                let in_stack = |line: &&str| line.trim_start().starts_with("at ");
                let lines = text.trim_end().lines().filter(|line| !in_stack(line));
                let lines: Vec<&str> = lines.collect();
                lines[lines.len().saturating_sub(LINES)..].join("\n")
            }
        }
    }

    fn printed(&self, bytes_max: u64) -> std::io::Result<String> {
        let mut file = File::open(&self.log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(
            self.log_from.max(length.saturating_sub(bytes_max)),
        ))?;
        let mut text = Vec::new();
        file.take(bytes_max).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// SIGTERM, and waits for the end; killed, and an error, if it does not end in time. Its status, and how long that
    /// took.
    pub fn terminate(mut self, patience: Duration) -> Result<(ExitStatus, Duration)> {
        const STEP: Duration = Duration::from_millis(2);
        self.check()?;
        let start = Instant::now();
        killpg(self.group(), Signal::SIGTERM)
            .with_context(|| format!("{} can't be told to stop", self.name))?;
        loop {
            if let Some(status) = self.ended()? {
                return Ok((status, start.elapsed()));
            }
            if start.elapsed() > patience {
                bail!("{} did not stop within {patience:?}", self.name);
            }
            std::thread::sleep(STEP);
        }
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(mut self) -> Result<()> {
        self.check()?;
        killpg(self.group(), Signal::SIGKILL)
            .with_context(|| format!("{} can't be killed", self.name))?;
        self.child.wait()?;
        Ok(())
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // It may have ended already; a member of its group may still run.
        let _ = killpg(self.group(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Waits until a process listens; how long that took since its start.
///
/// An error if it ends meanwhile (with its last words), is too slow, or a stop is asked for. The kernel is asked, and
/// no connection tried: on a port where nobody listens yet one may connect to itself, and then the port is taken.
pub fn wait_listening(
    addr: SocketAddr,
    patience: Duration,
    process: &mut Spawned,
    stop: &Stop,
) -> Result<Duration> {
    const STEP: Duration = Duration::from_millis(2);
    loop {
        process.check()?;
        if listens(process.pid(), addr.port()) {
            return Ok(process.started.elapsed());
        }
        if process.started.elapsed() > patience {
            bail!(
                "{} does not listen on {addr} after {patience:?}: {}",
                process.name,
                process.last_words()
            );
        }
        stop.sleep(STEP)?;
    }
}

/// A port of 127.0.0.1 that nobody listens on.
///
/// Another process may take it before the one that it is meant for: whoever starts one tries again with another port
/// if it says that the address is in use.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Whether an error of [`wait_listening`] says that another process has taken the port.
pub fn is_address_in_use(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}").to_lowercase();
    text.contains("address already in use") || text.contains("address in use")
}

/// Does something on a thread that may only run on these CPUs (empty: any), and lets it run where it could before.
///
/// Threads and processes that it starts meanwhile stay on these CPUs.
pub fn on_cpus<T>(cpus: &[usize], what: impl FnOnce() -> T) -> Result<T> {
    if cpus.is_empty() {
        return Ok(what());
    }
    let this_thread = Pid::from_raw(0);
    let before = sched_getaffinity(this_thread)?;
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu)
            .with_context(|| format!("there is no CPU {cpu}"))?;
    }
    sched_setaffinity(this_thread, &set)
        .with_context(|| format!("processes can't be pinned to the CPUs {cpus:?}"))?;
    // The kernel leaves out, without a word, CPUs that are not there.
    let pinned = sched_getaffinity(this_thread)? == set;
    let outcome = pinned.then(what);
    sched_setaffinity(this_thread, &before)?;
    outcome.with_context(|| format!("of the CPUs {cpus:?} some are not there"))
}

/// The soft limit of open files becomes the hard one; for this process and those that it starts.
pub fn raise_open_files() -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(())
}

/// Whether a process can be told to die with the one that started it.
fn setpriv_works() -> bool {
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
#[path = "spawn_tests.rs"]
mod tests;
