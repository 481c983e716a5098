//! The brokers of a cluster by the address of one: who leads what, and a connection to each.
//!
//! What is known of the cluster is as of the last [`Cluster::metadata`]. A connection that has failed is made again
//! when it is asked for; a leader that has moved is found by asking for the metadata again.
//!
//! What it is not: it never asks twice by itself. Whether a failed request is repeated is the caller's to decide.

use super::{BrokerConnection, ClientError, ConnectionOptions};
use crate::protocol::messages::*;
use crate::protocol::{ErrorCode, Str};
use crate::runtime::local::{join_bounded, Budget, Permit};
use crate::runtime::{native, Rt};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;
use uuid::Uuid;

/// A topic and a partition of it.
pub type PartitionKey = (Str, i32);

/// Brokers that are asked at once.
const BROKERS_AT_ONCE: usize = 16;

/// A cluster. Cheap to clone; its connections close with the last clone.
#[derive(Clone)]
pub struct Cluster(Rc<Inner>);

struct Inner {
    rt: Rt,
    bootstrap: String,
    options: ConnectionOptions,
    first: RefCell<BrokerConnection>,
    nodes: RefCell<HashMap<i32, BrokerConnection>>,
    /// Whose turn it is to connect to a broker (`None`: the one that was named), so that several who need it share one
    /// connection: a second one would take the first one's place, and close it with what it had to send.
    turns: RefCell<HashMap<Option<i32>, Budget>>,
    view: RefCell<View>,
}

/// What the last metadata said.
#[derive(Default)]
struct View {
    brokers: BTreeMap<i32, (String, i32)>,
    leaders: HashMap<Str, HashMap<i32, i32>>,
    topic_ids: HashMap<Str, Uuid>,
}

/// What is asked of a partition: the mark, or the time in ms, of ListOffsets.
pub type OffsetQuery = (PartitionKey, i64);

/// The mark of the end of a log: what a consumer may read up to.
pub const LATEST: i64 = -1;
/// The mark of the start of a log.
pub const EARLIEST: i64 = -2;

/// What ListOffsets answered for one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedOffset {
    /// The offset; -1 if no record is at or after the time asked for.
    pub offset: i64,
    /// The timestamp of the record there, ms; -1 for a mark.
    pub timestamp: i64,
}

impl Cluster {
    /// Connects to the broker at `address`, `HOST:PORT` (the port may be missing: 9092).
    pub async fn connect(
        rt: &Rt,
        address: &str,
        options: ConnectionOptions,
    ) -> Result<Cluster, ClientError> {
        let first = dial(rt, address, &options).await?;
        Ok(Cluster(Rc::new(Inner {
            rt: rt.clone(),
            bootstrap: address.to_owned(),
            options,
            first: RefCell::new(first),
            nodes: RefCell::default(),
            turns: RefCell::default(),
            view: RefCell::default(),
        })))
    }

    /// The executor that it runs on.
    pub fn rt(&self) -> &Rt {
        &self.0.rt
    }

    /// A connection to the broker that was named.
    pub async fn any(&self) -> Result<BrokerConnection, ClientError> {
        let open = || Some(self.0.first.borrow().clone()).filter(BrokerConnection::is_open);
        if let Some(open) = open() {
            return Ok(open);
        }
        let _turn = self.turn(None).await;
        if let Some(open) = open() {
            return Ok(open);
        }
        let again = dial(&self.0.rt, &self.0.bootstrap, &self.0.options).await?;
        *self.0.first.borrow_mut() = again.clone();
        Ok(again)
    }

    /// A connection to a broker of the cluster.
    pub async fn node(&self, id: i32) -> Result<BrokerConnection, ClientError> {
        let open = || {
            let known = self.0.nodes.borrow().get(&id).cloned();
            known.filter(BrokerConnection::is_open)
        };
        if let Some(open) = open() {
            return Ok(open);
        }
        let _turn = self.turn(Some(id)).await;
        if let Some(open) = open() {
            return Ok(open);
        }
        let Some((host, port)) = self.0.view.borrow().brokers.get(&id).cloned() else {
            return Err(ClientError::Unreachable {
                peer: format!("broker {id}"),
                detail: "the cluster does not know it".to_owned(),
            });
        };
        let address = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let made = dial(&self.0.rt, &address, &self.0.options).await;
        let made = made.map_err(|error| match error {
            ClientError::Unreachable { peer, detail } if address != self.0.bootstrap => {
                let detail = format!(
                    "{detail} ({} names this address for broker {id}; see its advertised.listeners)",
                    self.0.bootstrap
                );
                ClientError::Unreachable { peer, detail }
            }
            error => error,
        })?;
        self.0.nodes.borrow_mut().insert(id, made.clone());
        Ok(made)
    }

    async fn turn(&self, broker: Option<i32>) -> Permit {
        let turn = {
            let mut turns = self.0.turns.borrow_mut();
            turns
                .entry(broker)
                .or_insert_with(|| Budget::new(1))
                .clone()
        };
        turn.acquire(1).await
    }

    /// Asks about topics by name; `None`: all of them. What it says is remembered for the calls that need a leader.
    pub async fn metadata(
        &self,
        topics: Option<&[Str]>,
        create: bool,
    ) -> Result<MetadataResponse, ClientError> {
        let of_name = |name: &Str| MetadataRequestTopic {
            name: Some(name.clone()),
            ..Default::default()
        };
        let request = MetadataRequest {
            topics: topics.map(|names| names.iter().map(of_name).collect()),
            allow_auto_topic_creation: create,
            ..Default::default()
        };
        let response = self.any().await?.call(&request).await?;
        ClientError::check(response.error_code, None, || {
            "ask for the cluster's topics".to_owned()
        })?;
        self.0.view.borrow_mut().learn(&response);
        Ok(response)
    }

    /// The ids of the brokers that the last metadata named.
    pub fn brokers(&self) -> Vec<i32> {
        self.0.view.borrow().brokers.keys().copied().collect()
    }

    /// The leader of a partition; none if it has none, or is not known.
    pub fn leader(&self, partition: &PartitionKey) -> Option<i32> {
        let (topic, index) = partition;
        self.0.view.borrow().leaders.get(topic)?.get(index).copied()
    }

    /// The id of a topic; nil with brokers that do not tell.
    pub fn topic_id(&self, topic: &Str) -> Uuid {
        let view = self.0.view.borrow();
        view.topic_ids.get(topic).copied().unwrap_or_default()
    }

    /// The name of a topic by its id.
    pub fn topic_name(&self, id: Uuid) -> Option<Str> {
        let view = self.0.view.borrow();
        let found = view.topic_ids.iter().find(|(_, known)| **known == id);
        found.map(|(name, _)| name.clone())
    }

    /// Asks each leader for offsets. A partition without a known leader is answered LEADER_NOT_AVAILABLE.
    pub async fn list_offsets(
        &self,
        queries: &[OffsetQuery],
        read_committed: bool,
    ) -> Result<BTreeMap<PartitionKey, Result<ListedOffset, ErrorCode>>, ClientError> {
        let mut answers = BTreeMap::new();
        let mut by_leader: BTreeMap<i32, Vec<&OffsetQuery>> = BTreeMap::new();
        for query in queries {
            match self.leader(&query.0) {
                Some(leader) => by_leader.entry(leader).or_default().push(query),
                None => {
                    answers.insert(query.0.clone(), Err(ErrorCode::LeaderNotAvailable));
                }
            }
        }
        let calls = by_leader.into_iter().map(|(leader, queries)| async move {
            let request = offsets_request(&queries, read_committed);
            self.node(leader).await?.call(&request).await
        });
        for response in join_bounded(BROKERS_AT_ONCE, calls).await {
            for topic in response?.topics {
                for found in topic.partitions {
                    let answer = match ErrorCode::from_code(found.error_code) {
                        Some(ErrorCode::None) => Ok(ListedOffset {
                            offset: found.offset,
                            timestamp: found.timestamp,
                        }),
                        code => Err(code.unwrap_or(ErrorCode::UnknownServerError)),
                    };
                    answers.insert((topic.name.clone(), found.partition_index), answer);
                }
            }
        }
        Ok(answers)
    }
}

impl View {
    fn learn(&mut self, response: &MetadataResponse) {
        let broker = |b: &MetadataResponseBroker| (b.node_id, (b.host.to_string(), b.port));
        self.brokers = response.brokers.iter().map(broker).collect();
        for topic in &response.topics {
            let Some(name) = &topic.name else { continue };
            self.topic_ids.insert(name.clone(), topic.topic_id);
            let led = topic.partitions.iter().filter(|p| p.leader_id >= 0);
            let led = led.map(|p| (p.partition_index, p.leader_id));
            self.leaders.insert(name.clone(), led.collect());
        }
    }
}

async fn dial(
    rt: &Rt,
    address: &str,
    options: &ConnectionOptions,
) -> Result<BrokerConnection, ClientError> {
    let peer = resolve(rt, address).await?;
    BrokerConnection::connect(rt, peer, options.clone()).await
}

/// The socket address of `HOST:PORT`, `HOST` or `[IPV6]:PORT`.
async fn resolve(rt: &Rt, address: &str) -> Result<SocketAddr, ClientError> {
    let unreachable = |detail: String| ClientError::Unreachable {
        peer: address.to_owned(),
        detail,
    };
    let (host, port) = host_and_port(address).ok_or_else(|| {
        unreachable("it is not an address; write HOST:PORT, such as 127.0.0.1:9092".to_owned())
    })?;
    let host = host.to_owned();
    let found = rt
        .spawn_blocking(move || native::resolve(&host, port))
        .await;
    match found {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(unreachable(error.to_string())),
        Err(panicked) => Err(unreachable(panicked.to_string())),
    }
}

fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().ok().filter(|port| *port > 0)?)
        }
        // A name alone, or an IPv6 address without brackets.
        _ => (address, DEFAULT_PORT),
    };
    (!host.is_empty()).then_some((host, port))
}

fn offsets_request(queries: &[&OffsetQuery], read_committed: bool) -> ListOffsetsRequest {
    let mut topics: BTreeMap<Str, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for ((topic, partition), timestamp) in queries {
        let asked = ListOffsetsPartition {
            partition_index: *partition,
            current_leader_epoch: -1,
            timestamp: *timestamp,
        };
        topics.entry(topic.clone()).or_default().push(asked);
    }
    let topic = |(name, partitions)| ListOffsetsTopic { name, partitions };
    ListOffsetsRequest {
        replica_id: -1,
        isolation_level: i8::from(read_committed),
        topics: topics.into_iter().map(topic).collect(),
        timeout_ms: OFFSETS_TIMEOUT_MS,
    }
}

const DEFAULT_PORT: u16 = 9092;
const OFFSETS_TIMEOUT_MS: i32 = 30_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_perhaps_a_port() {
        let cases = [
            ("localhost", Some(("localhost", 9092))),
            ("localhost:1", Some(("localhost", 1))),
            ("[::1]:7", Some(("[::1]", 7))),
            ("::1", Some(("::1", 9092))),
            ("host:", None),
            ("host:0", None),
            ("host:70000", None),
            (":9092", None),
            ("", None),
        ];
        for (address, expected) in cases {
            assert_eq!(host_and_port(address), expected, "{address}");
        }
    }
}
