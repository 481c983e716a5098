//! The machine's own floor, as a server that is started, pinned and limited like a broker: `perf floor-server`.

use super::admin::Admin;
use super::spawn::{wait_listening, Site, Spawned};
use super::{Endpoint, Options, Protocol, Share, Target};
use crate::floor::server::{FLUSH_SETTING, FRAME_BYTES_MAX, KEEP_BYTES, PARTITIONS_MAX};
use crate::stop::Stop;
use crate::workload::{Case, Kind, TopicPlan};
use anyhow::{bail, Context, Result};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub struct Floor {
    name: String,
    /// Of its command line, `NAME=VALUE`.
    settings: Vec<String>,
    stop: Stop,
    /// Before its site, so that it is dropped first.
    process: Option<Spawned>,
    site: Option<Site>,
    data_dir: Option<PathBuf>,
    addr: Option<SocketAddr>,
}

impl Floor {
    pub fn new(name: &str, settings: Vec<String>, options: &Options) -> Floor {
        Floor {
            name: name.to_owned(),
            settings,
            stop: options.stop.clone(),
            process: None,
            site: None,
            data_dir: None,
            addr: None,
        }
    }

    fn command(&self, data_dir: &Path, share: &Share) -> Result<Command> {
        let own = std::env::current_exe().context("this program's own file is not known")?;
        let mut command = Command::new(own);
        command.args(["floor-server", "--dir"]).arg(data_dir);
        // Memory of old records is used again as it is: given back to the kernel, it comes back by page faults, which
        // were a sixth of the server's time.
        command.env("MIMALLOC_PURGE_DELAY", "-1");
        if share.memory > 0 {
            let window = WINDOW_BYTES.min(share.memory / 4);
            command.arg(format!("--window-bytes={window}"));
        }
        for setting in &self.settings {
            command.arg(format!("--{setting}"));
        }
        Ok(command)
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
                bail!("{} does not listen after {PATIENCE:?}", self.name);
            }
            self.stop.sleep(Duration::from_millis(1))?;
        }
    }

    fn running(&mut self) -> Result<Spawned> {
        self.addr = None;
        let process = self.process.take();
        process.with_context(|| format!("{} does not run", self.name))
    }
}

impl Target for Floor {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let mut text = "the least that a broker must do: one thread; flushed records in one direct write and one \
                        fdatasync a turn, over blocks that were written before; others copied into the page cache; \
                        nothing checked"
            .to_owned();
        for setting in &self.settings {
            text += ", ";
            text += setting;
        }
        if let Some(site) = &self.site {
            text += &format!(", memory limit: {}", site.memory_limit());
        }
        text
    }

    fn lacks(&self, case: &Case) -> Option<String> {
        /// Of a request, beside its records.
        const REQUEST_BYTES: usize = 64 << 10;
        let largest = case.producers.batch_bytes.max(case.records.bytes);
        let partitions = case.topic.topics as usize * case.topic.partitions as usize;
        if case.kind == Kind::Lifecycle && case.lifecycle.groups > 0 {
            return Some("it has no consumer groups".to_owned());
        }
        if case.kind == Kind::ColdRead && case.topic.flush {
            return Some("over a restart it keeps only records that were not flushed".to_owned());
        }
        if case.kind == Kind::ColdRead && case.timing.bytes_max > KEEP_BYTES / 2 {
            return Some(format!("it keeps {} GiB", KEEP_BYTES >> 30));
        }
        if largest + REQUEST_BYTES > FRAME_BYTES_MAX {
            return Some(format!(
                "it takes requests of {} MiB",
                FRAME_BYTES_MAX >> 20
            ));
        }
        if partitions > PARTITIONS_MAX {
            return Some(format!("it takes {PARTITIONS_MAX} partitions"));
        }
        None
    }

    fn check(&self) -> Result<()> {
        crate::floor::check()
    }

    fn start(&mut self, share: &Share) -> Result<Duration> {
        if self.process.is_some() {
            bail!("{} runs already", self.name);
        }
        let site = match self.site.take() {
            Some(site) => site,
            None => Site::make(&self.name, share)?,
        };
        let data_dir = site.dir().join("data");
        self.site = Some(site);
        self.data_dir = Some(data_dir.clone());
        let command = self.command(&data_dir, share)?;
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
        let flush = if plan.flush { "true" } else { "false" };
        let config = (FLUSH_SETTING, flush);
        let mut admin = Admin::connect(self.endpoint()?.addr)?;
        admin.create_topic(name, plan.partitions, &[config])
    }

    fn delete_topic(&self, name: &str) -> Result<()> {
        Admin::connect(self.endpoint()?.addr)?.delete_topic(name)
    }

    fn stop(&mut self) -> Result<Duration> {
        let process = self.running()?;
        let (status, took) = process.terminate(PATIENCE)?;
        if !status.success() {
            bail!("{} did not stop cleanly: {status}", self.name);
        }
        Ok(took)
    }

    fn kill(&mut self) -> Result<()> {
        self.running()?.kill()
    }
}

/// The address in the line of a server that listens.
fn listening(output: &str) -> Option<SocketAddr> {
    let whole_lines = &output[..output.rfind('\n')?];
    let mut lines = whole_lines.lines();
    lines
        .find_map(|line| line.strip_prefix("listening "))?
        .parse()
        .ok()
}

/// What the server keeps in memory if it may.
const WINDOW_BYTES: u64 = 256 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn floor() -> Floor {
        Floor::new("floor", vec!["depth=2".to_owned()], &Options::default())
    }

    fn case(change: impl FnOnce(&mut Case)) -> Case {
        let text = "name = \"x\"\ntitle = \"x\"\n[case]\n";
        let mut case = crate::workload::parse(text, "x", false)
            .unwrap()
            .cases
            .remove(0);
        change(&mut case);
        case
    }

    #[test]
    fn what_it_cannot_do_is_said() {
        let lacks = |change: fn(&mut Case)| floor().lacks(&case(change)).unwrap_or_default();
        assert_eq!(lacks(|_| ()), "");
        assert_eq!(lacks(|case| case.producers.batch_bytes = 1 << 20), "");
        let cold = lacks(|case| case.kind = Kind::ColdRead);
        assert!(cold.contains("not flushed"), "{cold}");
        let unflushed = lacks(|case| {
            case.kind = Kind::ColdRead;
            case.topic.flush = false;
        });
        assert_eq!(unflushed, "");
        let groups = lacks(|case| {
            case.kind = Kind::Lifecycle;
            case.lifecycle.groups = 3;
        });
        assert!(groups.contains("groups"), "{groups}");
        let large = lacks(|case| case.producers.batch_bytes = 8 << 20);
        assert!(large.contains("8 MiB"), "{large}");
    }

    #[test]
    fn its_command_line_has_the_settings_and_its_part_of_the_memory() {
        let share = Share {
            dir: "/d".into(),
            cpus: vec![0],
            memory: 512 << 20,
        };
        let command = floor().command(Path::new("/d/floor/data"), &share).unwrap();
        let words: Vec<&str> = command
            .get_args()
            .filter_map(|word| word.to_str())
            .collect();
        let want = [
            "floor-server",
            "--dir",
            "/d/floor/data",
            "--window-bytes=134217728",
            "--depth=2",
        ];
        assert_eq!(words, want);
        assert!(command
            .get_envs()
            .any(|(name, _)| name == "MIMALLOC_PURGE_DELAY"));
    }

    #[test]
    fn the_address_is_found_in_a_whole_line_only() {
        let addr = Some("127.0.0.1:40123".parse().unwrap());
        assert_eq!(listening("listening 127.0.0.1:40123\n"), addr);
        assert_eq!(listening("listening 127.0.0.1:401"), None);
        assert_eq!(listening("x\nlistening nowhere\n"), None);
    }

    #[test]
    fn what_does_not_run_has_no_address() {
        let mut target = floor();
        assert!(target.endpoint().is_err() && target.stop().is_err() && target.kill().is_err());
        target.check().unwrap();
    }
}
