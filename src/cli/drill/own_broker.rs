//! A broker of the drill's own: this binary, a data directory that is the drill's, a free port.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::runtime::Rt;

/// A running broker. Killed when dropped.
pub(super) struct OwnBroker {
    child: Child,
    /// Where it listens.
    pub address: String,
}

/// How it is started.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub data_dir: PathBuf,
    /// What it says goes there, behind what earlier ones said.
    pub log: PathBuf,
    pub settings: Vec<String>,
}

impl Launch {
    /// Starts it, and waits until it listens; the error is why it does not.
    pub async fn start(&self, rt: &Rt) -> Result<OwnBroker, String> {
        let failed = |error: &dyn std::fmt::Display| format!("the broker cannot be run: {error}");
        let binary = std::env::current_exe().map_err(|error| failed(&error))?;
        let log = self.open_log().map_err(|error| failed(&error))?;
        // Out of the reach of our terminal's Ctrl-C: how it ends is the drill's to decide.
        let mut command = Command::new("setsid");
        command.arg(binary).arg("serve");
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        command.arg("--data-dir").arg(&self.data_dir);
        command.args(["--listener", "127.0.0.1:0", "--admin-listener", ""]);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("HIGHWATER_") || name == "NOTIFY_SOCKET" {
                command.env_remove(&*name);
            }
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let stdout = child.stdout.take();
        let mut broker = OwnBroker {
            child,
            address: String::new(),
        };
        let banner = rt.spawn_blocking(move || stdout.and_then(address_of));
        match rt.timeout(START_MAX, banner).await {
            Ok(Ok(Some(address))) => {
                broker.address = address;
                Ok(broker)
            }
            Ok(_) => {
                let status = broker.end(rt, Duration::from_secs(5)).await;
                let status = status.map_or("it runs on".to_owned(), |status| status.to_string());
                let last = last_words(&self.log);
                Err(format!("the broker did not start ({status}): {last}"))
            }
            Err(_) => Err(format!(
                "the broker did not listen within {} s",
                START_MAX.as_secs()
            )),
        }
    }

    fn open_log(&self) -> std::io::Result<File> {
        OpenOptions::new().create(true).append(true).open(&self.log)
    }
}

impl OwnBroker {
    /// SIGKILL, and waits for its end.
    pub fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// SIGTERM, and waits for a clean end; the error is that there was none.
    pub async fn stop(&mut self, rt: &Rt) -> Result<(), String> {
        let sent = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        match sent {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("kill -TERM failed: {status}")),
            Err(error) => return Err(format!("kill cannot be run: {error}")),
        }
        match self.end(rt, STOP_MAX).await {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("the broker did not stop cleanly ({status})")),
            None => Err(format!(
                "the broker did not stop within {} s",
                STOP_MAX.as_secs()
            )),
        }
    }

    /// How it ended, if it does so within this time.
    async fn end(&mut self, rt: &Rt, patience: Duration) -> Option<ExitStatus> {
        let deadline = rt.now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                _ if rt.now() >= deadline => return None,
                _ => rt.sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

impl Drop for OwnBroker {
    fn drop(&mut self) {
        // One that has ended is not there any more, which is as well.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            if let Err(error) = self.kill() {
                let id = self.child.id();
                eprintln!("highwater: the drill's broker (process {id}) is left behind: {error}");
            }
        }
    }
}

/// The address that the banner names, once all of it is there.
fn address_of(stdout: std::process::ChildStdout) -> Option<String> {
    let mut address = None;
    let mut lines = BufReader::new(stdout).lines();
    while let Some(Ok(line)) = lines.next() {
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("listening") {
            address = rest.trim().split([',', ' ']).next().map(str::to_owned);
        }
        // The last line.
        if line.starts_with("requests") {
            break;
        }
    }
    address
}

/// The end of what a broker said, on one line.
pub(super) fn last_words(log: &Path) -> String {
    let mut bytes = Vec::new();
    // A log that cannot be read says nothing.
    if let Ok(file) = File::open(log) {
        let _ = file.take(LOG_BYTES_MAX).read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("it said nothing").to_owned()
}

/// A start may have much to recover.
const START_MAX: Duration = Duration::from_secs(120);
const STOP_MAX: Duration = Duration::from_secs(60);
const LOG_BYTES_MAX: u64 = 16 << 20;
