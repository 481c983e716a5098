//! What the kernel tells of a broker's process, and a broker that is started here.

pub use crate::target::cost::{cpu_time, resident_bytes};
use anyhow::{bail, Context, Result};
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The process that listens on a broker's address, if this user may see it.
pub fn listener_owner(broker: &str) -> Result<u32> {
    let addr = broker
        .to_socket_addrs()
        .with_context(|| format!("{broker} is no address"))?
        .next()
        .with_context(|| format!("{broker} is no address"))?;
    let inodes = listening_inodes(addr.port())?;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process that ended meanwhile, or another user's.
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        let owns = |target: &str| {
            let inode = target
                .strip_prefix("socket:[")
                .and_then(|t| t.strip_suffix(']'));
            inode.is_some_and(|inode| inodes.contains(inode))
        };
        for descriptor in descriptors.flatten() {
            if let Ok(target) = fs::read_link(descriptor.path()) {
                if target.to_str().is_some_and(owns) {
                    return Ok(pid);
                }
            }
        }
    }
    bail!("no process that listens on {broker} can be seen here: name the broker's with --pid")
}

/// The inodes of sockets that listen on a port.
fn listening_inodes(port: u16) -> Result<HashSet<String>> {
    const LISTEN: &str = "0A";
    let mut inodes = HashSet::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(table) = fs::read_to_string(path) else {
            continue;
        };
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if let [_, local, _, LISTEN, _, _, _, _, _, inode, ..] = fields[..] {
                if local.ends_with(&format!(":{port:04X}")) {
                    inodes.insert(inode.to_owned());
                }
            }
        }
    }
    Ok(inodes)
}

/// A broker that was started here. Killed when dropped.
pub struct Process {
    child: Child,
    pub addr: SocketAddr,
    /// From the start of the process to the line that says where it listens.
    pub ready_after: Duration,
}

impl Process {
    /// Starts `highwater serve` on a free port.
    pub fn start(binary: &Path, data_dir: &Path, settings: &[String]) -> Result<Process> {
        let mut command = Command::new(binary);
        command
            .args(["serve", "--listener", "127.0.0.1:0"])
            // Others may run at the same time.
            .args(["--admin-listener", "", "--data-dir"])
            .arg(data_dir);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let start = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} can't be run", binary.display()))?;
        let mut process = Process {
            child,
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
            ready_after: Duration::ZERO,
        };
        let stdout = process.child.stdout.take().context("stdout is piped")?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        loop {
            line.clear();
            if stdout.read_line(&mut line)? == 0 {
                let status = process.child.wait()?;
                bail!("{} did not start: {status}", binary.display());
            }
            if let Some(rest) = line.trim_start().strip_prefix("listening") {
                process.ready_after = start.elapsed();
                let addr = rest.trim().split([',', ' ']).next().unwrap_or_default();
                process.addr = addr
                    .parse()
                    .with_context(|| format!("no address in {line:?}"))?;
                // Later lines are of no interest, but the pipe must not fill.
                std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
                return Ok(process);
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGTERM, and waits for a clean end. How long that took.
    pub fn stop(mut self) -> Result<Duration> {
        let start = Instant::now();
        let sent = Command::new("kill").arg(self.pid().to_string()).status()?;
        if !sent.success() {
            bail!("the broker can't be told to stop");
        }
        let status = self.wait()?;
        if !status.success() {
            bail!("the broker did not stop cleanly: {status}");
        }
        Ok(start.elapsed())
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn wait(&mut self) -> Result<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < STOP_MAX {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        bail!("the broker did not stop within {STOP_MAX:?}")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const STOP_MAX: Duration = Duration::from_secs(120);
