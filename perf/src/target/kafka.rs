//! Apache Kafka, broker and controller in one process (KRaft), started from its jars.
//!
//! Its settings are in `kafka_settings.rs`, each with its reason.

use super::admin::Admin;
use super::kafka_settings::{heap_bytes, jvm_flags, server_properties, HEAP_BYTES_MIN, SETTINGS};
use super::spawn::{free_port, is_address_in_use, wait_listening, Site, Spawned};
use super::{Endpoint, Options, Protocol, Share, Target};
use crate::stop::Stop;
use crate::workload::{Case, TopicPlan};
use anyhow::{bail, ensure, Context, Result};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub struct Kafka {
    name: String,
    /// `None`: nobody named them.
    jars: Option<PathBuf>,
    /// Lines of server.properties beside the others.
    settings: Vec<String>,
    stop: Stop,
    /// Before its site, so that it is dropped first.
    process: Option<Spawned>,
    site: Option<Site>,
    data_dir: Option<PathBuf>,
    /// Since its first start.
    ports: Option<Ports>,
    heap_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    broker: u16,
    controller: u16,
}

impl Kafka {
    pub fn new(
        name: &str,
        jars: Option<PathBuf>,
        settings: Vec<String>,
        options: &Options,
    ) -> Kafka {
        Kafka {
            name: name.to_owned(),
            jars,
            settings,
            stop: options.stop.clone(),
            process: None,
            site: None,
            data_dir: None,
            ports: None,
            heap_bytes: None,
        }
    }

    fn jars(&self) -> Result<&Path> {
        self.jars.as_deref().context(NO_JARS)
    }

    fn versions(&self) -> Result<(String, String)> {
        Ok((kafka_version(self.jars()?)?, java_version()?))
    }

    /// Formats and starts, with other ports if a stranger has taken one meanwhile.
    fn first_start(&mut self, share: &Share) -> Result<Duration> {
        const ATTEMPTS: usize = 3;
        let mut attempt = 1;
        loop {
            let ports = Ports {
                broker: free_port()?,
                controller: free_port()?,
            };
            self.format(ports)?;
            match self.launch(ports, share) {
                Ok(took) => {
                    self.ports = Some(ports);
                    return Ok(took);
                }
                Err(error) if is_address_in_use(&error) && attempt < ATTEMPTS => {}
                Err(error) => return Err(error),
            }
            attempt += 1;
        }
    }

    /// Writes server.properties and an empty data directory.
    fn format(&mut self, ports: Ports) -> Result<()> {
        let site = self.site.as_ref().context("no site")?;
        let data_dir = site.dir().join("data");
        if data_dir.exists() {
            fs::remove_dir_all(&data_dir)?;
        }
        let mut text = server_properties(&data_dir, ports.broker, ports.controller);
        for setting in &self.settings {
            text += setting;
            text += "\n";
        }
        let properties = site.dir().join(PROPERTIES);
        fs::write(&properties, text)
            .with_context(|| format!("{} can't be written", properties.display()))?;
        let mut command = self.java(64 << 20)?;
        command
            .args(["kafka.tools.StorageTool", "format", "--standalone"])
            .args(["-t", CLUSTER_ID, "-c"])
            .arg(&properties);
        let mut process = site.start(&command)?;
        loop {
            match process.ended()? {
                None if process.started().elapsed() > PATIENCE => bail!(
                    "Kafka's storage is not formatted after {PATIENCE:?}: {}",
                    process.last_words()
                ),
                None => self.stop.sleep(Duration::from_millis(10))?,
                Some(status) if status.success() => break,
                Some(status) => bail!(
                    "Kafka's storage can't be formatted, {status}: {}",
                    process.last_words()
                ),
            }
        }
        self.data_dir = Some(data_dir);
        Ok(())
    }

    fn launch(&mut self, ports: Ports, share: &Share) -> Result<Duration> {
        let site = self.site.as_ref().context("no site")?;
        let heap = heap_bytes(share.memory);
        let mut command = self.java(heap)?;
        command.arg("kafka.Kafka").arg(site.dir().join(PROPERTIES));
        let mut process = site.start(&command)?;
        let addr = SocketAddr::from(([127, 0, 0, 1], ports.broker));
        let took = wait_listening(addr, PATIENCE, &mut process, &self.stop)?;
        self.heap_bytes = Some(heap);
        self.process = Some(process);
        Ok(took)
    }

    /// A virtual machine up to the name of the class.
    fn java(&self, heap: u64) -> Result<Command> {
        let mut command = Command::new("java");
        command
            .args(jvm_flags(heap))
            .arg("-cp")
            .arg(self.jars()?.join("*"));
        Ok(command)
    }

    fn admin(&self) -> Result<Admin> {
        Admin::connect(self.endpoint()?.addr)
    }

    fn running(&mut self) -> Result<Spawned> {
        let process = self.process.take();
        process.with_context(|| format!("{} does not run", self.name))
    }
}

impl Target for Kafka {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let versions = match self.versions() {
            Ok((kafka, java)) => {
                format!("Apache Kafka {kafka}, broker and controller in one process, {java}")
            }
            Err(error) => format!("{error:#}"),
        };
        let flags = match self.heap_bytes {
            Some(heap) => jvm_flags(heap).join(" "),
            None => "heap: the smaller of 1 GiB and a quarter of its memory".to_owned(),
        };
        let own = SETTINGS.iter().map(|s| format!("{}={}", s.name, s.value));
        let settings: Vec<String> = own.chain(self.settings.iter().cloned()).collect();
        let mut text = format!("{versions}, {flags}, {}", settings.join(" "));
        if let Some(site) = &self.site {
            text += &format!(", memory limit: {}", site.memory_limit());
        }
        text
    }

    fn lacks(&self, _: &Case) -> Option<String> {
        None
    }

    fn check(&self) -> Result<()> {
        self.versions().map(drop)
    }

    fn check_share(&self, share: &Share) -> Result<()> {
        ensure!(
            heap_bytes(share.memory) >= HEAP_BYTES_MIN,
            "Kafka can't run in {} MiB of memory: give brokers at least {} MiB",
            share.memory >> 20,
            (HEAP_BYTES_MIN * 4) >> 20
        );
        Ok(())
    }

    fn start(&mut self, share: &Share) -> Result<Duration> {
        if self.process.is_some() {
            bail!("{} runs already", self.name);
        }
        self.check_share(share)?;
        if self.site.is_none() {
            self.site = Some(Site::make(&self.name, share)?);
        }
        match self.ports {
            Some(ports) => self.launch(ports, share),
            None => self.first_start(share),
        }
    }

    fn endpoint(&self) -> Result<Endpoint> {
        let ports = self.ports.filter(|_| self.process.is_some());
        let ports = ports.with_context(|| format!("{} does not run", self.name))?;
        Ok(Endpoint {
            protocol: Protocol::Kafka,
            addr: SocketAddr::from(([127, 0, 0, 1], ports.broker)),
        })
    }

    fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Spawned::pid)
    }

    fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    fn create_topic(&self, name: &str, plan: &TopicPlan) -> Result<()> {
        let configs: &[(&str, &str)] = if plan.flush { &[FLUSH] } else { &[] };
        self.admin()?.create_topic(name, plan.partitions, configs)
    }

    fn delete_topic(&self, name: &str) -> Result<()> {
        self.admin()?.delete_topic(name)
    }

    fn stop(&mut self) -> Result<Duration> {
        /// Of a virtual machine that ended in order because of SIGTERM.
        const TERMINATED: i32 = 128 + 15;
        let (status, took) = self.running()?.terminate(PATIENCE)?;
        match status.code() {
            Some(0 | TERMINATED) => Ok(took),
            _ => bail!("{} did not stop cleanly: {status}", self.name),
        }
    }

    fn kill(&mut self) -> Result<()> {
        self.running()?.kill()
    }
}

/// The directory of Kafka's jars: the one that is named, or `KAFKA_JARS`, or one that scripts/kafka-jars has filled.
pub fn find_jars(named: Option<&Path>) -> Option<PathBuf> {
    if let Some(named) = named {
        return Some(named.to_owned());
    }
    if let Some(jars) = std::env::var_os("KAFKA_JARS").filter(|jars| !jars.is_empty()) {
        return Some(jars.into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let states = fs::read_dir(target.join("kafka-jars")).ok()?;
    let mut filled: Vec<PathBuf> = states
        .flatten()
        .map(|state| state.path())
        .filter(|dir| kafka_version(dir).is_ok())
        .collect();
    // Of several states, the last that was downloaded.
    filled.sort_by_key(|dir| fs::metadata(dir).and_then(|dir| dir.modified()).ok());
    filled.pop()
}

/// From the names of the jars.
pub fn kafka_version(jars: &Path) -> Result<String> {
    let entries = fs::read_dir(jars)
        .with_context(|| format!("{} can't be read; {NO_JARS}", jars.display()))?;
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let version = name.strip_prefix("kafka_2.13-");
        if let Some(version) = version.and_then(|name| name.strip_suffix(".jar")) {
            return Ok(version.to_owned());
        }
    }
    bail!("{} holds no jar of Kafka's; {NO_JARS}", jars.display())
}

/// As `java` tells it, if it is new enough.
pub fn java_version() -> Result<String> {
    const NEEDED: &str = "install Java 17 or later (Debian: openjdk-17-jre-headless)";
    let told = Command::new("java")
        .arg("-version")
        .output()
        .with_context(|| format!("java can't be run: {NEEDED}"))?;
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    let (line, major) = java_version_of(&text)
        .with_context(|| format!("`java -version` tells no version: {NEEDED}"))?;
    if major < JAVA_MIN {
        bail!("Kafka needs a later Java than {line}: {NEEDED}");
    }
    Ok(line)
}

/// `OpenJDK 17.0.15` and 17.
fn java_version_of(text: &str) -> Option<(String, u32)> {
    let line = text.lines().find(|line| line.contains(" version \""))?;
    let (name, rest) = line.split_once(" version \"")?;
    let (version, _) = rest.split_once('"')?;
    let mut parts = version.split(['.', '-', '+', '_']);
    let major = match parts.next()? {
        // Up to Java 8: 1.8.
        "1" => parts.next()?,
        major => major,
    };
    let name = if name == "openjdk" { "OpenJDK" } else { name };
    Some((format!("{name} {version}"), major.parse().ok()?))
}

const NO_JARS: &str =
    "download Kafka by `export KAFKA_JARS=$(scripts/kafka-jars)`, which needs Maven";
/// Of Kafka 4.
const JAVA_MIN: u32 = 17;
const PROPERTIES: &str = "server.properties";
const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qk";
/// Every append is flushed before it is answered.
const FLUSH: (&str, &str) = ("flush.messages", "1");
/// For a start with many partitions, and a stop.
const PATIENCE: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_java_are_understood() {
        let debian = "openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment (x)\n";
        let expected = Some(("OpenJDK 17.0.15".to_owned(), 17));
        assert_eq!(java_version_of(debian), expected);
        let picked = format!("Picked up JAVA_TOOL_OPTIONS: -Dx\n{debian}");
        assert_eq!(java_version_of(&picked), expected);
        assert_eq!(
            java_version_of("java version \"1.8.0_402\"\n"),
            Some(("java 1.8.0_402".to_owned(), 8))
        );
        assert_eq!(
            java_version_of("openjdk version \"25-ea\" 2025\n"),
            Some(("OpenJDK 25-ea".to_owned(), 25))
        );
        for bad in [
            "",
            "no java",
            "openjdk version \"x\"\n",
            "openjdk version \"17",
        ] {
            assert_eq!(java_version_of(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_version_of_kafka_is_that_of_its_jar() {
        let jars = tempfile::tempdir().unwrap();
        let error = kafka_version(jars.path()).unwrap_err().to_string();
        assert!(error.contains("scripts/kafka-jars"), "{error}");
        fs::write(jars.path().join("kafka_2.13-4.4.0.jar"), "").unwrap();
        fs::write(jars.path().join("kafka-clients-4.4.0.jar"), "").unwrap();
        assert_eq!(kafka_version(jars.path()).unwrap(), "4.4.0");
        let error = kafka_version(&jars.path().join("missing")).unwrap_err();
        assert!(error.to_string().contains("scripts/kafka-jars"), "{error}");
    }

    #[test]
    fn a_share_that_is_too_small_is_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let mut kafka = Kafka::new("kafka", None, Vec::new(), &Options::default());
        let share = Share {
            dir: dir.path().to_owned(),
            cpus: Vec::new(),
            memory: 512 << 20,
        };
        let error = kafka.start(&share).unwrap_err().to_string();
        assert_eq!(
            error,
            "Kafka can't run in 512 MiB of memory: give brokers at least 1024 MiB"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_jars_the_command_that_fetches_them_is_told() {
        let kafka = Kafka::new("kafka", None, Vec::new(), &Options::default());
        assert_eq!(kafka.check().unwrap_err().to_string(), NO_JARS);
    }
}
