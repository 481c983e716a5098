//! A broker that is started here as it is, neither pinned nor limited, to be counted and not timed.

use anyhow::{bail, Context, Result};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A broker that was started here. Killed when dropped.
pub struct Process {
    child: Child,
    pub addr: SocketAddr,
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
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} can't be run", binary.display()))?;
        let mut process = Process {
            child,
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
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
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
