//! `highwater serve`: gathers the settings, starts the log, and runs the broker until it is told to stop.
//!
//! What the settings are, and which source wins, is the `config` room's; this file only reads the file, the
//! environment and the flags, and hands over their text.

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;

use super::CliError;
use crate::config::{BrokerConfig, FlushOnAck, HostPort, Resolved, Sources};
use crate::observe::{start_log, FILTER_VARIABLE};
use crate::runtime::native::ServiceManager;
use crate::server::{self, Ready};
use crate::storage::StartKind;

/// Flags of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "Settings: `highwater config docs`. Log level: HIGHWATER_LOG=debug.")]
pub(super) struct ServeArgs {
    /// Read settings from this .properties file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one setting; may be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Where the data lies (log.dirs); may be repeated, once for each disk.
    #[arg(long, value_name = "DIR")]
    data_dir: Vec<String>,
    /// Where to listen (listeners); port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT")]
    listener: Option<String>,
    /// Where metrics and health are served over HTTP (admin.listener, by default 127.0.0.1:9644); empty: nowhere.
    #[arg(long, value_name = "HOST:PORT")]
    admin_listener: Option<String>,
    /// What clients are told to connect to (advertised.listeners).
    #[arg(long, value_name = "HOST:PORT")]
    advertised_listener: Option<String>,
    /// Threads that own partitions and connections (shards); 0: one for each usable CPU.
    #[arg(long, value_name = "N")]
    shards: Option<String>,
    /// This broker's id (node.id).
    #[arg(long, value_name = "ID")]
    node_id: Option<String>,
}

pub(super) fn run(args: &ServeArgs) -> Result<(), CliError> {
    let Resolved { config, notes } = resolve(args)?;
    let _log = start_log(variable(FILTER_VARIABLE)?.as_deref())?;
    for note in notes {
        tracing::warn!("{note}");
    }
    let manager = ServiceManager::from_environment().unwrap_or_else(|error| {
        tracing::warn!("NOTIFY_SOCKET: the service manager there cannot be told anything: {error}");
        ServiceManager::default()
    });
    let ended = start(config, manager.clone());
    if let Err(error) = &ended {
        // The last it hears; whoever asks `systemctl status` need not search the log.
        let told = manager.tell(&format!("STATUS=Failed: {}", one_line(&error.to_string())));
        if let Err(error) = told {
            tracing::warn!(%error, "the service manager (NOTIFY_SOCKET) cannot be told of the failure");
        }
    }
    ended
}

/// The text without line breaks: a message to the service manager has a line for each of its variables.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs the broker to its end. It prints the [`Banner`] when it listens.
fn start(config: BrokerConfig, manager: ServiceManager) -> Result<(), CliError> {
    let broker = server::start(config, manager, |ready| {
        let printed = print_banner(&Banner::of(ready));
        if let Err(error) = printed {
            tracing::warn!(%error, "the banner could not be printed");
        }
        tell_load(ready);
    })?;
    Ok(broker.join()?)
}

/// Logs how the last stop was, and what loading found.
fn tell_load(ready: &Ready) {
    let loaded = &ready.loaded;
    match ready.start {
        StartKind::Fresh => tracing::info!("new data directory"),
        StartKind::Clean => tracing::info!(partitions = loaded.online, "loaded after a clean stop"),
        StartKind::Unclean => tracing::warn!(
            partitions = loaded.online,
            scanned_bytes = loaded.scanned_bytes,
            rebuilt_bytes = loaded.rebuilt_bytes,
            truncated_bytes = loaded.truncated_bytes,
            "recovered after an unclean stop"
        ),
    }
    if !loaded.offline.is_empty() {
        tracing::error!(
            partitions = loaded.offline.len(),
            "partitions are offline; each was named above"
        );
    }
}

/// What a start says to the person who made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Banner {
    /// `node.id`.
    pub node_id: i32,
    /// The address in force: the chosen port, where 0 was asked.
    pub listening: SocketAddr,
    /// What clients are told to connect to.
    pub advertised: HostPort,
    /// Where the admin HTTP listens, if it does.
    pub admin: Option<SocketAddr>,
    /// The data directory.
    pub data_dirs: Vec<PathBuf>,
    /// The CPU of each shard; `None`: not pinned.
    pub shard_cpus: Vec<Option<usize>>,
    /// The broker's `flush.on.ack`.
    pub flush_on_ack: FlushOnAck,
    /// Request memory over all shards, bytes.
    pub request_memory_bytes: u64,
    /// Largest frame accepted, bytes.
    pub frame_bytes_max: u64,
}

/// Prints the banner on standard output, at once.
///
/// # Errors
/// Standard output cannot be written. A broker serves on without it.
pub fn print_banner(banner: &Banner) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "{banner}")?;
    out.flush()
}

impl Banner {
    fn of(ready: &Ready) -> Banner {
        let config = &ready.config;
        Banner {
            node_id: config.node_id,
            listening: ready.listen,
            advertised: ready.advertised.clone(),
            admin: ready.admin,
            data_dirs: config.data_dirs.clone(),
            shard_cpus: ready.cpus.clone(),
            flush_on_ack: config.flush_on_ack,
            request_memory_bytes: ready.sizes.request_bytes * ready.cpus.len() as u64,
            frame_bytes_max: ready.sizes.frame_bytes_max as u64,
        }
    }
}

impl fmt::Display for Banner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = env!("CARGO_PKG_VERSION");
        writeln!(f, "Highwater {version}, node {}", self.node_id)?;
        writeln!(f, "  listening   {}", Listening(self))?;
        match self.admin {
            Some(admin) => writeln!(f, "  admin       http://{admin}/metrics, /healthz, /readyz")?,
            None => writeln!(f, "  admin       none (admin.listener)")?,
        }
        for (at, dir) in self.data_dirs.iter().enumerate() {
            let title = if at == 0 { "data" } else { "" };
            writeln!(f, "  {title:10}  {}", dir.display())?;
        }
        writeln!(f, "  shards      {}", Shards(&self.shard_cpus))?;
        writeln!(f, "  durability  {}", durability(self.flush_on_ack))?;
        let (memory, frame) = (
            Bytes(self.request_memory_bytes),
            Bytes(self.frame_bytes_max),
        );
        writeln!(f, "  requests    {memory} of memory, largest frame {frame}")
    }
}

/// The address, and the advertised one where it is another.
struct Listening<'a>(&'a Banner);

impl fmt::Display for Listening<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Banner {
            listening,
            advertised,
            ..
        } = self.0;
        write!(f, "{listening}")?;
        if advertised.to_string() != listening.to_string() {
            write!(f, ", clients are told {advertised}")?;
        }
        Ok(())
    }
}

/// How many shards, and on which CPUs.
struct Shards<'a>(&'a [Option<usize>]);

impl fmt::Display for Shards<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = self.0;
        let cpus: Vec<String> = shards.iter().flatten().map(usize::to_string).collect();
        write!(f, "{}", shards.len())?;
        match cpus.as_slice() {
            [] => f.write_str(", not pinned"),
            [cpu] => write!(f, " on CPU {cpu}"),
            cpus => write!(f, " on CPUs {}", cpus.join(", ")),
        }?;
        match shards.len() - cpus.len() {
            0 => Ok(()),
            _ if cpus.is_empty() => Ok(()),
            unpinned => write!(f, "; {unpinned} not pinned"),
        }
    }
}

/// What an acknowledgement promises, in words.
fn durability(flush_on_ack: FlushOnAck) -> &'static str {
    match flush_on_ack {
        FlushOnAck::All => {
            "acks=all waits for the flush to disk, acks=1 for the write (flush.on.ack=all)"
        }
        FlushOnAck::Any => "acks=all and acks=1 wait for the flush to disk (flush.on.ack=any)",
        FlushOnAck::None => "no acknowledgement waits for a flush to disk (flush.on.ack=none)",
    }
}

/// A size for a person: the largest unit that keeps it at 1 or more.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match units.iter().find(|(_, shift)| self.0 >> shift > 0) {
            None => write!(f, "{} bytes", self.0),
            Some((unit, shift)) => {
                let whole = self.0 >> shift;
                let tenths = ((self.0 & ((1 << shift) - 1)) * 10) >> shift;
                match tenths {
                    0 => write!(f, "{whole} {unit}"),
                    _ => write!(f, "{whole}.{tenths} {unit}"),
                }
            }
        }
    }
}

/// Gathers the settings in rising precedence: file, environment, `--set`, named flags.
fn resolve(args: &ServeArgs) -> Result<Resolved, CliError> {
    let mut sources = Sources::new();
    if let Some(path) = &args.config {
        sources.file(&path.display().to_string(), &read(path)?)?;
    }
    sources.environment(highwater_variables()?)?;
    for setting in &args.settings {
        sources.set(setting)?;
    }
    let data_dirs = (!args.data_dir.is_empty()).then(|| args.data_dir.join(","));
    let flags = [
        ("--data-dir", "log.dirs", &data_dirs),
        ("--listener", "listeners", &args.listener),
        ("--admin-listener", "admin.listener", &args.admin_listener),
        (
            "--advertised-listener",
            "advertised.listeners",
            &args.advertised_listener,
        ),
        ("--shards", "shards", &args.shards),
        ("--node-id", "node.id", &args.node_id),
    ];
    for (flag, name, value) in flags {
        if let Some(value) = value {
            sources.flag(flag, name, value)?;
        }
    }
    Ok(sources.resolve()?)
}

fn read(path: &Path) -> Result<String, CliError> {
    let unreadable = |error| CliError::Read {
        path: path.to_owned(),
        error,
    };
    std::fs::read_to_string(path).map_err(unreadable)
}

fn variable(name: &str) -> Result<Option<String>, CliError> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(CliError::Variable(name.to_owned())),
    }
}

/// The variables that may be settings, in the order of their names.
fn highwater_variables() -> Result<Vec<(String, String)>, CliError> {
    let mut variables = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("HIGHWATER_")) else {
            continue;
        };
        let value = value
            .into_string()
            .map_err(|_| CliError::Variable(name.to_owned()))?;
        variables.push((name.to_owned(), value));
    }
    variables.sort();
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banner() -> Banner {
        Banner {
            node_id: 1,
            listening: "127.0.0.1:40123".parse().unwrap(),
            advertised: HostPort {
                host: "127.0.0.1".to_owned(),
                port: 40123,
            },
            admin: Some("127.0.0.1:9644".parse().unwrap()),
            data_dirs: vec![PathBuf::from("./highwater-data")],
            shard_cpus: vec![Some(0), Some(2)],
            flush_on_ack: FlushOnAck::All,
            request_memory_bytes: 3 << 29,
            frame_bytes_max: 100 << 20,
        }
    }

    #[test]
    fn the_banner_says_what_is_in_force() {
        let expected = format!(
            "Highwater {}, node 1
  listening   127.0.0.1:40123
  admin       http://127.0.0.1:9644/metrics, /healthz, /readyz
  data        ./highwater-data
  shards      2 on CPUs 0, 2
  durability  acks=all waits for the flush to disk, acks=1 for the write (flush.on.ack=all)
  requests    1.5 GiB of memory, largest frame 100 MiB
",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(banner().to_string(), expected);
    }

    #[test]
    fn the_banner_names_an_advertised_address_that_differs_and_shards_without_a_cpu() {
        let mut banner = banner();
        banner.advertised.host = "broker.example".to_owned();
        banner.shard_cpus = vec![None, None];
        banner.admin = None;
        let text = banner.to_string();
        assert!(
            text.contains("127.0.0.1:40123, clients are told broker.example:40123\n"),
            "{text}"
        );
        assert!(text.contains("  shards      2, not pinned\n"), "{text}");
        assert!(
            text.contains("  admin       none (admin.listener)\n"),
            "{text}"
        );
        banner.shard_cpus = vec![Some(3), None];
        assert!(banner.to_string().contains("2 on CPU 3; 1 not pinned\n"));
    }

    #[test]
    fn sizes_are_told_in_their_largest_unit() {
        let texts = [0, 1023, 1024, 1536, (1 << 20) - 1, 5 << 30].map(|n| Bytes(n).to_string());
        assert_eq!(
            texts,
            [
                "0 bytes",
                "1023 bytes",
                "1 KiB",
                "1.5 KiB",
                "1023.9 KiB",
                "5 GiB"
            ]
        );
    }
}
