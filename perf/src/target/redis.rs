//! Redis with its append-only file.
//!
//! Where a topic asks for flushed acknowledgements, `appendfsync always`: Redis writes and syncs what one turn of its
//! event loop brought, then answers. Otherwise `no`: it writes before it answers and leaves the rest to the kernel, as
//! the other brokers do (`everysec`, its default, would flush once a second where they do not). It is set when a topic is made, for the whole server. Everything is held in memory, below `maxmemory`, and
//! nothing is thrown out: a full server answers an error. The file is not rewritten while it is measured, which costs
//! Redis nothing that it would not do better later; when a topic is deleted it is.

use super::single;
use super::spawn::{free_port, is_address_in_use, wait_listening, Site, Spawned};
use super::{Endpoint, Protocol, Share, Target};
use crate::driver::redis::{stream_key, Control};
use crate::stop::Stop;
use crate::workload::{Case, TopicPlan};
use anyhow::{bail, ensure, Context, Result};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// See [`super::redis`].
pub struct Redis {
    name: String,
    program: PathBuf,
    stop: Stop,
    /// Before the site, so that the process ends before its directory goes.
    running: Option<(Spawned, SocketAddr)>,
    site: Option<Site>,
    data_dir: PathBuf,
    /// Partitions of each.
    topics: RefCell<HashMap<String, u32>>,
}

impl Redis {
    /// `program`: `redis-server`, if it is not $REDIS_SERVER or the one on the PATH.
    pub fn new(name: &str, program: Option<&Path>, stop: &Stop) -> Redis {
        Redis {
            name: name.to_owned(),
            program: single::program(program, "REDIS_SERVER", "redis-server"),
            stop: stop.clone(),
            running: None,
            site: None,
            data_dir: PathBuf::new(),
            topics: RefCell::default(),
        }
    }

    fn start_on(&self, site: &Site, addr: SocketAddr, memory: u64) -> Result<(Spawned, Duration)> {
        let mut command = Command::new(&self.program);
        let port = addr.port().to_string();
        let memory = single::below(memory).to_string();
        command
            .args(["--bind", "127.0.0.1", "--port", &port, "--dir"])
            .arg(&self.data_dir)
            .args(["--daemonize", "no", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always"])
            .args(["--auto-aof-rewrite-percentage", "0"])
            .args(["--maxmemory", &memory, "--maxmemory-policy", "noeviction"]);
        let mut process = site.start(&command)?;
        wait_listening(addr, PATIENCE, &mut process, &self.stop)?;
        // It listens before it has read its file, and answers LOADING until then.
        loop {
            let error = match Control::connect(addr)?.ask(&[b"PING"]) {
                Ok(_) => break,
                Err(error) => error,
            };
            process.check()?;
            if process.started().elapsed() > PATIENCE {
                return Err(error.context("Redis does not get ready"));
            }
            self.stop.sleep(Duration::from_millis(2))?;
        }
        let took = process.started().elapsed();
        Ok((process, took))
    }

    fn control(&self) -> Result<Control> {
        Control::connect(self.endpoint()?.addr)
    }

    /// Deletes streams, and the file's part of them.
    fn delete(&self, control: &mut Control, name: &str, partitions: u32) -> Result<()> {
        let keys: Vec<String> = (0..partitions).map(|n| stream_key(name, n)).collect();
        let mut words: Vec<&[u8]> = vec![b"DEL"];
        words.extend(keys.iter().map(|key| key.as_bytes()));
        control.ask(&words)?;
        control.ask(&[b"BGREWRITEAOF"])?;
        let start = Instant::now();
        loop {
            let info = control.ask(&[b"INFO", b"persistence"])?.concat();
            let info = String::from_utf8_lossy(&info);
            if info.contains("aof_rewrite_in_progress:0")
                && info.contains("aof_rewrite_scheduled:0")
            {
                ensure!(
                    info.contains("aof_last_bgrewrite_status:ok"),
                    "Redis could not rewrite its append-only file"
                );
                return Ok(());
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "Redis does not finish the rewrite of its append-only file"
            );
            self.stop.sleep(Duration::from_millis(5))?;
        }
    }
}

impl Target for Redis {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let version = single::version(&self.program, "redis");
        format!(
            "{}, streams; appendfsync always where flush, no otherwise; noeviction",
            version.unwrap_or_else(|error| format!("{error:#}"))
        )
    }

    fn lacks(&self, case: &Case) -> Option<String> {
        single::lacks(case)
    }

    fn check(&self) -> Result<()> {
        let version = single::version(&self.program, "redis")?;
        let major = version
            .split_once("v=")
            .and_then(|(_, rest)| rest.split('.').next()?.parse::<u32>().ok());
        ensure!(
            major.is_some_and(|major| major >= 5),
            "{} is {version:?}: Redis 5 or newer is needed, 7 was tried",
            self.program.display()
        );
        Ok(())
    }

    fn start(&mut self, share: &Share) -> Result<Duration> {
        ensure!(self.running.is_none(), "Redis runs already");
        let site = match self.site.take() {
            Some(site) => site,
            None => Site::make(&self.name, share)?,
        };
        self.data_dir = site.dir().join("data");
        let outcome = std::fs::create_dir_all(&self.data_dir)
            .with_context(|| format!("{} can't be made", self.data_dir.display()))
            .and_then(|()| {
                for _ in 0..PORTS_MAX {
                    let addr = SocketAddr::from(([127, 0, 0, 1], free_port()?));
                    match self.start_on(&site, addr, share.memory) {
                        Err(error) if is_address_in_use(&error) => {}
                        Err(error) => return Err(error),
                        Ok((process, took)) => return Ok((process, addr, took)),
                    }
                }
                bail!("Redis found no free port")
            });
        self.site = Some(site);
        let (process, addr, took) = outcome?;
        self.running = Some((process, addr));
        Ok(took)
    }

    fn endpoint(&self) -> Result<Endpoint> {
        let (_, addr) = self.running.as_ref().context("Redis does not run")?;
        Ok(Endpoint {
            protocol: Protocol::Redis,
            addr: *addr,
        })
    }

    fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|(process, _)| process.pid())
    }

    fn data_dir(&self) -> Option<&Path> {
        self.site.as_ref().map(|_| self.data_dir.as_path())
    }

    fn create_topic(&self, name: &str, plan: &TopicPlan) -> Result<()> {
        let mut control = self.control()?;
        let mode: &[u8] = if plan.flush { b"always" } else { b"no" };
        control.ask(&[b"CONFIG", b"SET", b"appendfsync", mode])?;
        for partition in 0..plan.partitions {
            // A stream is made by its first record.
            let key = stream_key(name, partition);
            let there = control.ask(&[b"EXISTS", key.as_bytes()])?;
            ensure!(there == [b"0"], "Redis has a key {key} already");
        }
        self.topics
            .borrow_mut()
            .insert(name.to_owned(), plan.partitions);
        Ok(())
    }

    fn delete_topic(&self, name: &str) -> Result<()> {
        let partitions = self.topics.borrow().get(name).copied();
        let partitions =
            partitions.with_context(|| format!("there is no topic {name} in Redis"))?;
        self.delete(&mut self.control()?, name, partitions)?;
        self.topics.borrow_mut().remove(name);
        Ok(())
    }

    fn stop(&mut self) -> Result<Duration> {
        let (process, _) = self.running.take().context("Redis does not run")?;
        let words = process.last_words();
        let (status, took) = process.terminate(PATIENCE)?;
        ensure!(
            status.success(),
            "Redis did not stop cleanly ({status}): {words}"
        );
        Ok(took)
    }

    fn kill(&mut self) -> Result<()> {
        let (process, _) = self.running.take().context("Redis does not run")?;
        process.kill()
    }
}

const PATIENCE: Duration = Duration::from_secs(120);
const PORTS_MAX: u32 = 5;
