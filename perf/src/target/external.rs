//! A Kafka broker, of whatever make, that runs somewhere already.
//!
//! It is only spoken to: its CPUs, its memory and its disk are its owner's, and it is neither stopped nor killed.

use super::admin::{self, Admin};
use super::highwater::flush_on_ack;
use super::listener::listener_owner;
use super::{Endpoint, Protocol, Share, Target};
use crate::wire;
use crate::workload::{Case, Kind, TopicPlan};
use anyhow::{bail, Context, Result};
use highwater::protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, MetadataResponse};
use highwater::protocol::ApiKey;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

pub struct External {
    name: String,
    /// As it was given: HOST:PORT.
    address: String,
    flush: Flush,
}

/// How a topic's flush policy is set.
#[derive(Debug, Clone, PartialEq)]
enum Flush {
    /// As the broker's settings suggest: Highwater's `flush.on.ack`, otherwise Kafka's `flush.messages=1`.
    ByKind,
    /// By this setting of a topic.
    Setting(String, String),
    /// Not at all: the broker does by itself what a workload asks for.
    Default,
}

impl External {
    /// `flush`: `NAME=VALUE`, the setting that a topic with flushes gets, or `default` for none.
    pub fn new(name: &str, address: &str, flush: Option<&str>) -> Result<External> {
        let flush = match flush {
            None => Flush::ByKind,
            Some("default") => Flush::Default,
            Some(setting) => {
                let (name, value) = setting.split_once('=').with_context(|| {
                    format!("flush={setting}: flush=NAME=VALUE or flush=default is needed")
                })?;
                Flush::Setting(name.to_owned(), value.to_owned())
            }
        };
        Ok(External {
            name: name.to_owned(),
            address: address.to_owned(),
            flush,
        })
    }

    fn addr(&self) -> Result<SocketAddr> {
        let address = &self.address;
        let mut found = address
            .to_socket_addrs()
            .with_context(|| format!("{address} is no address that can be found"))?;
        found
            .next()
            .with_context(|| format!("{address} has no address"))
    }

    /// Connected, and it has what is needed.
    fn probe(&self) -> Result<MetadataResponse> {
        let addr = self.addr()?;
        let versions = api_versions(addr, &self.address)?;
        check_versions(&versions, &self.address)?;
        let metadata = Admin::connect(addr)?.metadata(None)?;
        match metadata.brokers.len() {
            1 => Ok(metadata),
            count => bail!(
                "the cluster at {} has {count} brokers; only a cluster of one can be measured",
                self.address
            ),
        }
    }

    fn admin(&self) -> Result<Admin> {
        Admin::connect(self.addr()?)
    }

    fn topic_configs(&self, admin: &mut Admin, flush: bool) -> Result<Vec<(String, String)>> {
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Ok(match (&self.flush, flush) {
            (Flush::Setting(name, value), true) => vec![own(name, value)],
            (Flush::ByKind, flush) if is_highwater(admin)? => {
                vec![own(FLUSH_ON_ACK, flush_on_ack(flush))]
            }
            (Flush::ByKind, true) => vec![own("flush.messages", "1")],
            (Flush::ByKind | Flush::Setting(..), false) | (Flush::Default, _) => Vec::new(),
        })
    }
}

impl Target for External {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let flush = match &self.flush {
            Flush::ByKind => "flush by its kind's setting".to_owned(),
            Flush::Setting(name, value) => format!("flush by {name}={value}"),
            Flush::Default => "flush as its own settings say".to_owned(),
        };
        format!(
            "the broker at {}, {flush}; neither pinned nor limited here",
            self.address
        )
    }

    fn lacks(&self, case: &Case) -> Option<String> {
        match case.kind {
            Kind::Stream => None,
            Kind::ColdRead | Kind::Lifecycle => {
                Some("it was not started here and is not stopped".to_owned())
            }
        }
    }

    fn is_started_here(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        self.probe().map(drop)
    }

    fn start(&mut self, _: &Share) -> Result<Duration> {
        let begun = Instant::now();
        self.probe()?;
        Ok(begun.elapsed())
    }

    fn endpoint(&self) -> Result<Endpoint> {
        Ok(Endpoint {
            protocol: Protocol::Kafka,
            addr: self.addr()?,
        })
    }

    fn pid(&self) -> Option<u32> {
        let addr = self.addr().ok()?;
        // Somebody else may listen on that port here.
        let is_here = TcpListener::bind((addr.ip(), 0)).is_ok();
        if is_here {
            listener_owner(&self.address).ok()
        } else {
            None
        }
    }

    fn data_dir(&self) -> Option<&Path> {
        None
    }

    fn create_topic(&self, name: &str, plan: &TopicPlan) -> Result<()> {
        let mut admin = self.admin()?;
        let configs = self.topic_configs(&mut admin, plan.flush)?;
        let given: Vec<(&str, &str)> = configs
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let created = admin.create_topic(name, plan.partitions, &given);
        match configs.first() {
            Some((setting, value)) => created.with_context(|| {
                format!(
                    "{} was asked for a topic with {setting}={value}; if it does not know that, \
                     say how it flushes: {}={},flush=NAME=VALUE, or flush=default",
                    self.address, self.name, self.address
                )
            }),
            None => created,
        }
    }

    fn delete_topic(&self, name: &str) -> Result<()> {
        self.admin()?.delete_topic(name)
    }

    fn stop(&mut self) -> Result<Duration> {
        bail!(NOT_OURS)
    }

    fn kill(&mut self) -> Result<()> {
        bail!(NOT_OURS)
    }
}

fn is_highwater(admin: &mut Admin) -> Result<bool> {
    let metadata = admin.metadata(None)?;
    let broker = metadata
        .brokers
        .first()
        .context("a cluster of no brokers")?;
    admin.has_setting(broker.node_id, FLUSH_ON_ACK)
}

/// Asks who is there, and does not trust the answer.
fn api_versions(addr: SocketAddr, address: &str) -> Result<ApiVersionsResponse> {
    const VERSION: i16 = 0;
    let mut socket = TcpStream::connect_timeout(&addr, PATIENCE)
        .with_context(|| format!("nothing can be reached at {address}: is the broker running?"))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.write_all(&wire::frame(VERSION, &ApiVersionsRequest::default())?)?;
    let answer = small_frame(&mut socket);
    let answer = answer.and_then(|frame| wire::decode::<ApiVersionsResponse>(frame, VERSION));
    let answer = answer.with_context(|| {
        format!("what listens at {address} does not answer as a Kafka broker without TLS does")
    })?;
    if answer.error_code != 0 {
        bail!(
            "the broker at {address} refuses to tell its versions: error {}",
            answer.error_code
        );
    }
    Ok(answer)
}

/// The answer to ApiVersions, within the time of [`PATIENCE`].
fn small_frame(socket: &mut TcpStream) -> Result<Vec<u8>> {
    const BYTES_MAX: usize = 64 << 10;
    let deadline = Instant::now() + PATIENCE;
    let mut frame = Vec::new();
    let mut wanted = 4;
    let mut prefix = None;
    while frame.len() < wanted {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("no answer within {PATIENCE:?}");
        }
        socket.set_read_timeout(Some(left))?;
        let mut part = vec![0; wanted - frame.len()];
        let count = match socket.read(&mut part) {
            Ok(0) => bail!("it closed the connection"),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                bail!("no answer within {PATIENCE:?}")
            }
            Err(error) => return Err(error.into()),
        };
        frame.extend_from_slice(&part[..count]);
        if prefix.is_none() && frame.len() == wanted {
            let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
            if length > BYTES_MAX {
                bail!("its answer is no frame");
            }
            prefix = Some(length);
            frame.clear();
            wanted = length;
        }
    }
    Ok(frame)
}

fn check_versions(told: &ApiVersionsResponse, address: &str) -> Result<()> {
    let clients = [
        (ApiKey::Produce, wire::PRODUCE_VERSION),
        (ApiKey::Fetch, wire::FETCH_VERSION),
    ];
    let serves = |(key, version): &(ApiKey, i16)| {
        let served = told.api_keys.iter().find(|api| api.api_key == key.code());
        served.is_some_and(|api| (api.min_version..=api.max_version).contains(version))
    };
    let lacking: Vec<String> = clients
        .iter()
        .chain(admin::NEEDED)
        .filter(|needed| !serves(needed))
        .map(|(key, version)| format!("{} {version}", key.name()))
        .collect();
    if !lacking.is_empty() {
        bail!(
            "the broker at {address} does not serve {}: brokers since Kafka 2.8 do",
            lacking.join(", ")
        );
    }
    Ok(())
}

const FLUSH_ON_ACK: &str = "flush.on.ack";
const NOT_OURS: &str = "a broker that was not started here is not stopped";
/// For whoever is there to answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
#[path = "external_tests.rs"]
mod tests;
