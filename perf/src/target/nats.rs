//! NATS with JetStream in files.
//!
//! Whether an acknowledgement waits for the disk is a property of the server: `sync_interval: always`, or its default,
//! which is to sync every two minutes. A topic that needs the other one than the server runs with restarts it, on the
//! same address and data but as a new process: ask for [`Target::pid`] after the topics are made.

use super::single;
use super::spawn::{free_port, is_address_in_use, wait_listening, Site, Spawned};
use super::{Endpoint, Protocol, Share, Target};
use crate::driver::nats::{stream_config, stream_name, Control};
use crate::stop::Stop;
use crate::workload::{Case, TopicPlan};
use anyhow::{bail, ensure, Context, Result};
use serde_json::json;
use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// See [`super::nats`].
pub struct Nats {
    name: String,
    program: PathBuf,
    stop: Stop,
    /// Before the site, so that the process ends before its directory goes.
    running: RefCell<Option<Running>>,
    site: Option<Site>,
    data_dir: PathBuf,
    /// Bytes; 0: no limit.
    memory: u64,
}

struct Running {
    process: Spawned,
    addr: SocketAddr,
    flush: bool,
}

impl Nats {
    /// `program`: `nats-server`, if it is not $NATS_SERVER or the one on the PATH.
    pub fn new(name: &str, program: Option<&Path>, stop: &Stop) -> Nats {
        Nats {
            name: name.to_owned(),
            program: single::program(program, "NATS_SERVER", "nats-server"),
            stop: stop.clone(),
            running: RefCell::default(),
            site: None,
            data_dir: PathBuf::new(),
            memory: 0,
        }
    }

    /// Starts the process and waits until JetStream answers.
    fn start_on(&self, addr: SocketAddr, flush: bool) -> Result<(Running, Duration)> {
        let site = self.site.as_ref().context("NATS has no directory yet")?;
        let path = site.dir().join("nats.conf");
        let text = config(addr, &self.data_dir, flush);
        fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))?;
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(&path);
        if self.memory > 0 {
            // As its operators are advised to: the collector works harder before the limit is reached.
            command.env("GOMEMLIMIT", single::below(self.memory).to_string());
        }
        let mut process = site.start(&command)?;
        wait_listening(addr, PATIENCE, &mut process, &self.stop)?;
        loop {
            let asked = Control::connect(addr)
                .and_then(|mut control| control.ask("$JS.API.INFO", &json!({})));
            let error = match asked {
                Ok(_) => break,
                Err(error) => error,
            };
            process.check()?;
            if process.started().elapsed() > PATIENCE {
                return Err(error.context("NATS does not get ready"));
            }
            self.stop.sleep(Duration::from_millis(2))?;
        }
        let took = process.started().elapsed();
        let running = Running {
            process,
            addr,
            flush,
        };
        Ok((running, took))
    }

    /// Restarts it if it runs with the other mode.
    fn ensure_flush(&self, flush: bool) -> Result<()> {
        let mut slot = self.running.borrow_mut();
        let running = slot.take().context("NATS does not run")?;
        if running.flush == flush {
            *slot = Some(running);
            return Ok(());
        }
        let addr = running.addr;
        end(running)?;
        *slot = Some(self.start_on(addr, flush)?.0);
        Ok(())
    }
}

/// SIGTERM, and waits for a clean end.
fn end(running: Running) -> Result<Duration> {
    let words = running.process.last_words();
    let (status, took) = running.process.terminate(PATIENCE)?;
    // It ends with 1 after SIGTERM, and with 0 in lame duck mode.
    ensure!(
        status.code().is_some(),
        "NATS did not stop cleanly ({status}): {words}"
    );
    Ok(took)
}

fn config(addr: SocketAddr, data_dir: &Path, flush: bool) -> String {
    let sync = if flush {
        "    sync_interval: always\n"
    } else {
        ""
    };
    // A JSON string is one of its configuration's too.
    let dir = json!(data_dir.to_string_lossy());
    format!(
        "server_name: perf\nlisten: \"{addr}\"\nmax_payload: {PAYLOAD_MAX}\n\
         jetstream {{\n    store_dir: {dir}\n{sync}}}\n"
    )
}

impl Target for Nats {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let version = single::version(&self.program, "nats");
        format!(
            "{}, JetStream in files; sync_interval always where flush, its default of 2 minutes otherwise",
            version.unwrap_or_else(|error| format!("{error:#}"))
        )
    }

    fn lacks(&self, case: &Case) -> Option<String> {
        if case.records.bytes > PAYLOAD_MAX {
            return Some(format!("records of at most {PAYLOAD_MAX} bytes"));
        }
        single::lacks(case)
    }

    fn check(&self) -> Result<()> {
        let version = single::version(&self.program, "nats")?;
        let numbers = version.split_once(": v").map_or("", |(_, rest)| rest);
        let mut numbers = numbers.split('.').map(|number| number.parse::<u32>().ok());
        let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
        ensure!(
            (major, minor) >= (Some(2), Some(10)),
            "{} is {version:?}, and sync_interval needs 2.10: eval \"$(scripts/peers nats)\" prepares a newer one",
            self.program.display()
        );
        Ok(())
    }

    fn start(&mut self, share: &Share) -> Result<Duration> {
        ensure!(self.running.borrow().is_none(), "NATS runs already");
        if self.site.is_none() {
            self.site = Some(Site::make(&self.name, share)?);
        }
        let site = self.site.as_ref().context("NATS has no directory")?;
        self.data_dir = site.dir().join("data");
        self.memory = share.memory;
        for _ in 0..PORTS_MAX {
            let addr = SocketAddr::from(([127, 0, 0, 1], free_port()?));
            match self.start_on(addr, true) {
                Err(error) if is_address_in_use(&error) => {}
                Err(error) => return Err(error),
                Ok((running, took)) => {
                    *self.running.borrow_mut() = Some(running);
                    return Ok(took);
                }
            }
        }
        bail!("NATS found no free port")
    }

    fn endpoint(&self) -> Result<Endpoint> {
        let running = self.running.borrow();
        let running = running.as_ref().context("NATS does not run")?;
        Ok(Endpoint {
            protocol: Protocol::Nats,
            addr: running.addr,
        })
    }

    fn pid(&self) -> Option<u32> {
        let running = self.running.borrow();
        running.as_ref().map(|running| running.process.pid())
    }

    fn data_dir(&self) -> Option<&Path> {
        self.site.as_ref().map(|_| self.data_dir.as_path())
    }

    fn create_topic(&self, name: &str, plan: &TopicPlan) -> Result<()> {
        self.ensure_flush(plan.flush)?;
        let subject = format!("$JS.API.STREAM.CREATE.{}", stream_name(name));
        let mut control = Control::connect(self.endpoint()?.addr)?;
        control.ask(&subject, &stream_config(name))?;
        Ok(())
    }

    fn delete_topic(&self, name: &str) -> Result<()> {
        let subject = format!("$JS.API.STREAM.DELETE.{}", stream_name(name));
        let mut control = Control::connect(self.endpoint()?.addr)?;
        control.ask(&subject, &json!({}))?;
        Ok(())
    }

    fn stop(&mut self) -> Result<Duration> {
        let running = self.running.borrow_mut().take();
        end(running.context("NATS does not run")?)
    }

    fn kill(&mut self) -> Result<()> {
        let running = self.running.borrow_mut().take();
        running.context("NATS does not run")?.process.kill()
    }
}

/// Bytes of a record; NATS advises against more.
const PAYLOAD_MAX: usize = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(120);
const PORTS_MAX: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_says_where_and_how_it_stores() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 4222));
        let dir = Path::new("/data/with \"quotes\"");
        let flushed = config(addr, dir, true);
        assert!(flushed.contains("listen: \"127.0.0.1:4222\""));
        assert!(flushed.contains(r#"store_dir: "/data/with \"quotes\"""#));
        assert!(flushed.contains("sync_interval: always"));
        assert!(!config(addr, dir, false).contains("sync_interval"));
    }
}
