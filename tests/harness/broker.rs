//! A real broker process for tests: started on a free port and a directory of its
//! own, stopped by a signal or killed.

#![allow(dead_code)] // Each test crate uses a part of it.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A running broker. Killed when dropped.
pub struct Broker {
    child: Child,
    addr: SocketAddr,
    admin: Option<SocketAddr>,
    stderr: mpsc::Receiver<String>,
}

/// How a broker is started.
#[derive(Clone)]
pub struct Launch {
    binary: PathBuf,
    data_dir: PathBuf,
    shards: usize,
    settings: Vec<String>,
    env: Vec<(String, String)>,
    under: Vec<String>,
}

/// What a broker that did not start said.
pub struct Refused {
    pub status: ExitStatus,
    pub stderr: String,
}

/// No admin HTTP.
const NO_ADMIN: &str = "admin.listener=";
/// No start and no stop takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

impl Launch {
    pub fn new(binary: impl Into<PathBuf>, data_dir: impl Into<PathBuf>) -> Launch {
        Launch {
            binary: binary.into(),
            data_dir: data_dir.into(),
            shards: 3,
            // Tests write records of all times; those about retention set a finer unit.
            settings: vec![
                "log.retention.hours=-1".to_owned(),
                // Many brokers run at the same time.
                NO_ADMIN.to_owned(),
            ],
            env: Vec::new(),
            under: Vec::new(),
        }
    }

    pub fn shards(mut self, shards: usize) -> Launch {
        self.shards = shards;
        self
    }

    pub fn set(mut self, setting: impl Into<String>) -> Launch {
        self.settings.push(setting.into());
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Launch {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Starts it by a command that changes what it may do and then becomes it (`prlimit --memlock=..`).
    pub fn under(mut self, command: &[&str]) -> Launch {
        self.under
            .extend(command.iter().map(|&word| word.to_owned()));
        self
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Starts it and waits until it listens.
    pub fn start(&self) -> Broker {
        match self.try_start("127.0.0.1:0") {
            Ok(broker) => broker,
            Err(refused) => panic!("the broker did not start: {}", refused.stderr),
        }
    }

    /// Starts it on an address; what it said, if it does not start.
    pub fn try_start(&self, listener: &str) -> Result<Broker, Refused> {
        let mut broker = self.spawn(listener);
        let mut stdout = BufReader::new(broker.child.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        loop {
            line.clear();
            let read = stdout.read_line(&mut line).expect("stdout can be read");
            if read == 0 {
                let (status, stderr) = broker.end();
                return Err(Refused { status, stderr });
            }
            if let Some(rest) = line.trim_start().strip_prefix("listening") {
                let addr = rest.trim().split([',', ' ']).next().unwrap_or_default();
                broker.addr = addr.parse().expect("the banner names the address");
            }
            if let Some(rest) = line.trim_start().strip_prefix("admin") {
                let url = rest.trim().strip_prefix("http://");
                let addr = url.and_then(|url| url.split('/').next());
                broker.admin = addr.map(|addr| addr.parse().expect("it is an address"));
                // Later lines are of no interest, but the pipe must not fill.
                std::thread::spawn(move || {
                    let mut rest = Vec::new();
                    let _ = stdout.read_to_end(&mut rest);
                });
                return Ok(broker);
            }
        }
    }

    /// With the admin HTTP on a free port.
    pub fn with_admin(self) -> Launch {
        self.set("admin.listener=127.0.0.1:0")
    }

    /// With the admin HTTP where it is by default.
    pub fn with_default_admin(mut self) -> Launch {
        self.settings.retain(|set| set != NO_ADMIN);
        self
    }

    /// Starts it and waits for its admin HTTP only: it may be loading then.
    pub fn start_loading(&self) -> Broker {
        let mut broker = self.spawn("127.0.0.1:0");
        loop {
            let line = broker.stderr.recv_timeout(PATIENCE);
            let line = line.expect("it says where its admin HTTP is");
            if let Some((_, addr)) = line.split_once("served over HTTP addr=") {
                broker.admin = Some(addr.trim().parse().expect("it is an address"));
                return broker;
            }
        }
    }

    /// Starts it, sends it a signal while it loads, and waits for the end.
    pub fn end_while_loading(&self, signal: &str) -> (ExitStatus, String) {
        let broker = self.spawn("127.0.0.1:0");
        let mut said = String::new();
        while !said.contains("loading partitions") {
            let line = broker.stderr.recv_timeout(PATIENCE);
            said += &line.expect("it says that it loads");
            said.push('\n');
        }
        let (status, stderr) = broker.end_by(signal);
        (status, said + &stderr)
    }

    /// Starts it; it listens on no known address yet.
    fn spawn(&self, listener: &str) -> Broker {
        let mut words = self.under.iter().map(AsRef::as_ref).collect::<Vec<_>>();
        words.push(self.binary.as_os_str());
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .arg("serve")
            .args(["--listener", listener])
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(["--shards", &self.shards.to_string()]);
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.binary.display()));
        let (lines, stderr) = mpsc::channel();
        // From here on it is waited for, whatever happens.
        let mut broker = Broker {
            child,
            addr: SocketAddr::from(([0, 0, 0, 0], 0)),
            admin: None,
            stderr,
        };
        let pipe = broker.child.stderr.take().expect("stderr is piped");
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        broker
    }
}

impl Broker {
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where the admin HTTP listens.
    pub fn admin(&self) -> SocketAddr {
        self.admin.expect("it was started with an admin.listener")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory, bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .expect("the process lives");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("the kernel tells the resident size");
        let kib: u64 = line
            .split_whitespace()
            .next()
            .and_then(|kib| kib.parse().ok())
            .expect("a number of KiB");
        kib * 1024
    }

    /// What it said on standard error since this was asked last.
    pub fn said(&self) -> String {
        let lines: Vec<String> = self.stderr.try_iter().collect();
        lines.join("\n")
    }

    /// SIGKILL, and wait for the end.
    pub fn kill(mut self) {
        self.child.kill().expect("the process can be killed");
        let status = self.child.wait().expect("the process can be waited for");
        assert!(
            status.code().is_none(),
            "it was killed, not stopped: {status}"
        );
    }

    /// SIGTERM, wait for the end, and insist that it was clean.
    pub fn stop(self) -> String {
        let (status, stderr) = self.end_by("TERM");
        assert!(status.success(), "not a clean stop: {status}\n{stderr}");
        stderr
    }

    /// Sends a signal and waits for the end.
    pub fn end_by(self, signal: &str) -> (ExitStatus, String) {
        self.signal(signal);
        self.end()
    }

    /// Waits for the end, with what it said until then.
    fn end(mut self) -> (ExitStatus, String) {
        let status = self.wait();
        let lines: Vec<String> = std::iter::from_fn(|| self.stderr.recv().ok()).collect();
        (status, lines.join("\n"))
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .expect("kill can be run");
        assert!(sent.success());
    }

    /// Waits for an end that something else causes.
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self
                .child
                .try_wait()
                .expect("the process can be waited for")
            {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the broker does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
