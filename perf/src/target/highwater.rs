//! Highwater, started from its binary.

use super::admin::Admin;
use super::spawn::{wait_listening, Site, Spawned};
use super::{Endpoint, Options, Protocol, Share, Target};
use crate::stop::Stop;
use crate::workload::{Case, TopicPlan};
use anyhow::{bail, Context, Result};
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// `highwater serve`, as many shards as it gets CPUs.
pub struct Highwater {
    name: String,
    binary: PathBuf,
    /// Of the broker, `NAME=VALUE`, beside those that a run needs.
    settings: Vec<String>,
    stop: Stop,
    /// Before its site, so that it is dropped first.
    process: Option<Spawned>,
    site: Option<Site>,
    data_dir: Option<PathBuf>,
    addr: Option<SocketAddr>,
}

impl Highwater {
    pub fn new(name: &str, binary: &Path, settings: Vec<String>, options: &Options) -> Highwater {
        Highwater {
            name: name.to_owned(),
            binary: binary.to_owned(),
            settings,
            stop: options.stop.clone(),
            process: None,
            site: None,
            data_dir: None,
            addr: None,
        }
    }

    fn version(&self) -> Result<String> {
        let told = Command::new(&self.binary)
            .arg("--version")
            .output()
            .with_context(|| {
                format!(
                    "{} can't be run: build it with `cargo build --release`, or name another binary",
                    self.binary.display()
                )
            })?;
        let text = String::from_utf8_lossy(&told.stdout).trim().to_owned();
        if !told.status.success() || !text.starts_with("highwater ") {
            bail!("{} is no highwater binary", self.binary.display());
        }
        Ok(text)
    }

    fn command(&self, data_dir: &Path, share: &Share) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(["serve", "--listener", "127.0.0.1:0"])
            // Others may run at the same time.
            .args(["--admin-listener", "", "--data-dir"])
            .arg(data_dir)
            // What is deleted makes room soon.
            .args(["--set", "log.segment.delete.delay.ms=1000"]);
        if share.memory > 0 {
            for setting in memory_settings(share.memory) {
                command.args(["--set", &setting]);
            }
        }
        // Last: they may say otherwise.
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        command
    }

    /// Waits for the line that tells its port.
    fn wait_for_addr(&self, process: &mut Spawned) -> Result<SocketAddr> {
        loop {
            // Before the look: whoever ends may have printed it.
            let alive = process.check();
            if let Some(addr) = listening(&process.output()) {
                return Ok(addr);
            }
            alive?;
            if process.started().elapsed() > PATIENCE {
                bail!(
                    "{} does not listen after {PATIENCE:?}: {}",
                    self.name,
                    process.last_words()
                );
            }
            self.stop.sleep(Duration::from_millis(2))?;
        }
    }

    fn admin(&self) -> Result<Admin> {
        Admin::connect(self.endpoint()?.addr)
    }

    fn running(&mut self) -> Result<Spawned> {
        self.addr = None;
        let process = self.process.take();
        process.with_context(|| format!("{} does not run", self.name))
    }
}

impl Target for Highwater {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let version = self.version().unwrap_or_else(|error| format!("{error:#}"));
        let mut text = format!("{version}, one shard for each CPU");
        if let Ok(checksum) = checksum(&self.binary) {
            text = format!("{version} (binary {checksum:08x}), one shard for each CPU");
        }
        for setting in &self.settings {
            text += ", ";
            text += setting;
        }
        if let Some(site) = &self.site {
            text += &format!(", memory limit: {}", site.memory_limit());
        }
        text
    }

    fn lacks(&self, _: &Case) -> Option<String> {
        None
    }

    fn check(&self) -> Result<()> {
        self.version().map(drop)
    }

    fn start(&mut self, share: &Share) -> Result<Duration> {
        if self.process.is_some() {
            bail!("{} runs already", self.name);
        }
        let site = match self.site.take() {
            Some(site) => site,
            None => Site::make(&self.name, share)?,
        };
        let site = self.site.insert(site);
        let data_dir = site.dir().join("data");
        self.data_dir = Some(data_dir.clone());
        let command = self.command(&data_dir, share);
        let site = self.site.as_ref().context("the site was just made")?;
        let mut process = site.start(&command)?;
        let addr = self.wait_for_addr(&mut process)?;
        let took = wait_listening(addr, PATIENCE, &mut process, &self.stop)?;
        self.addr = Some(addr);
        self.process = Some(process);
        Ok(took)
    }

    fn endpoint(&self) -> Result<Endpoint> {
        let addr = self
            .addr
            .with_context(|| format!("{} does not run", self.name))?;
        Ok(Endpoint {
            protocol: Protocol::Kafka,
            addr,
        })
    }

    fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Spawned::pid)
    }

    fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    fn create_topic(&self, name: &str, plan: &TopicPlan) -> Result<()> {
        let config = ("flush.on.ack", flush_on_ack(plan.flush));
        self.admin()?.create_topic(name, plan.partitions, &[config])
    }

    fn delete_topic(&self, name: &str) -> Result<()> {
        self.admin()?.delete_topic(name)
    }

    fn stop(&mut self) -> Result<Duration> {
        let (status, took) = self.running()?.terminate(PATIENCE)?;
        if !status.success() {
            bail!("{} did not stop cleanly: {status}", self.name);
        }
        Ok(took)
    }

    fn kill(&mut self) -> Result<()> {
        self.running()?.kill()
    }
}

/// Of a file: builds have the same version, and are not the same.
fn checksum(path: &Path) -> std::io::Result<u32> {
    let mut file = std::fs::File::open(path)?;
    let mut part = vec![0; 1 << 20];
    let mut hasher = crc32fast::Hasher::new();
    loop {
        match file.read(&mut part)? {
            0 => return Ok(hasher.finalize()),
            count => hasher.update(&part[..count]),
        }
    }
}

/// `any`: a produce with acks=1 waits for the flush too, as with Kafka's `flush.messages=1`.
pub fn flush_on_ack(flush: bool) -> &'static str {
    if flush {
        "any"
    } else {
        "none"
    }
}

/// The parts of its memory that the broker takes when it can tell how much it has: it does not see a limit by a
/// cgroup v1, nor one of a cgroup above its own.
fn memory_settings(bytes: u64) -> [String; 2] {
    [
        format!("request.memory.bytes={}", bytes / 16),
        format!("cache.bytes={}", bytes / 8),
    ]
}

/// The address in the banner of a broker that listens.
fn listening(output: &str) -> Option<SocketAddr> {
    let whole_lines = &output[..output.rfind('\n')?];
    let mut lines = whole_lines.lines().map(str::trim_start);
    let rest = lines.find_map(|line| line.strip_prefix("listening "))?;
    rest.trim().split([',', ' ']).next()?.parse().ok()
}

/// For a start with many partitions, and a stop.
const PATIENCE: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_a_whole_line_only() {
        let banner = "Highwater 0.1.0, node 1\n  listening   127.0.0.1:40123, clients are told a:1\n  data /d\n";
        let addr = Some("127.0.0.1:40123".parse().unwrap());
        assert_eq!(listening(banner), addr);
        assert_eq!(listening("  listening   127.0.0.1:40123\n"), addr);
        assert_eq!(listening("  listening   127.0.0.1:401"), None);
        assert_eq!(listening("x\n  listening   127.0.0.1:401"), None);
        assert_eq!(listening("  listening   nowhere\n"), None);
        assert_eq!(listening(""), None);
    }

    #[test]
    fn settings_of_the_caller_come_last() {
        let mine = vec!["cache.bytes=5".to_owned()];
        let target = Highwater::new("a", Path::new("/b"), mine, &Options::default());
        let share = Share {
            dir: "/d".into(),
            cpus: vec![0],
            memory: 1 << 30,
        };
        let command = target.command(Path::new("/d/a/data"), &share);
        let words: Vec<&str> = command.get_args().map(|w| w.to_str().unwrap()).collect();
        let at = |word: &str| words.iter().position(|w| *w == word).unwrap();
        assert!(
            at("cache.bytes=134217728") < at("cache.bytes=5"),
            "{words:?}"
        );
        assert!(
            words.contains(&"request.memory.bytes=67108864"),
            "{words:?}"
        );
    }

    #[test]
    fn a_binary_that_is_missing_or_another_is_told() {
        let target =
            |path: &str| Highwater::new("a", Path::new(path), Vec::new(), &Options::default());
        let error = target("/no/such").check().unwrap_err().to_string();
        assert!(error.contains("cargo build --release"), "{error}");
        let error = target("/bin/true").check().unwrap_err().to_string();
        assert_eq!(error, "/bin/true is no highwater binary");
    }

    #[test]
    fn what_does_not_run_is_not_stopped() {
        let mut target = Highwater::new("a", Path::new("/b"), Vec::new(), &Options::default());
        assert_eq!(target.stop().unwrap_err().to_string(), "a does not run");
        assert_eq!(target.kill().unwrap_err().to_string(), "a does not run");
        assert!(target.endpoint().is_err());
    }
}
