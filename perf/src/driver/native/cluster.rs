//! Where the partitions of the topics are: leaders and offsets, asked for before anything is measured.

use crate::stop::Stop;
use crate::wire;
use anyhow::{bail, ensure, Context, Result};
use highwater::protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, ListOffsetsPartition, ListOffsetsRequest,
    ListOffsetsResponse, ListOffsetsTopic, MetadataRequest, MetadataRequestTopic, MetadataResponse,
};
use highwater::protocol::{ApiKey, ErrorCode, Str};
use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// Topics, their partitions and the leaders of these.
///
/// A partition's number runs through all topics: the first topic's partitions come first.
pub struct Cluster {
    topics: Vec<String>,
    numbers: HashMap<Vec<u8>, u32>,
    /// Of each topic.
    partitions: u32,
    leaders: Vec<SocketAddr>,
    /// By a partition's number.
    leader_of: Vec<u32>,
}

/// Which end of a log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    Start,
    Latest,
}

impl Cluster {
    /// Asks the broker at `addr` for the leaders; until all partitions have one, at most ten seconds.
    pub fn discover(
        addr: SocketAddr,
        topics: &[String],
        partitions: u32,
        stop: &Stop,
    ) -> Result<Cluster> {
        ensure!(!topics.is_empty() && partitions > 0, "no topic to measure");
        let mut missing = String::new();
        for _ in 0..100 {
            let answer = metadata(addr, topics)?;
            match Cluster::of_answer(addr, topics, partitions, &answer)? {
                Found::All(cluster) => return Ok(cluster),
                Found::Missing(what) => missing = what,
            }
            stop.sleep(Duration::from_millis(100))?;
        }
        bail!("{missing}, after ten seconds")
    }

    fn of_answer(
        addr: SocketAddr,
        topics: &[String],
        partitions: u32,
        answer: &MetadataResponse,
    ) -> Result<Found> {
        let mut cluster = Cluster {
            topics: topics.to_vec(),
            numbers: HashMap::new(),
            partitions,
            leaders: Vec::new(),
            leader_of: Vec::new(),
        };
        let mut nodes: HashMap<i32, u32> = HashMap::new();
        for (number, name) in topics.iter().enumerate() {
            cluster.numbers.insert(name.clone().into(), number as u32);
            let named = |topic: &&_| {
                let topic: &highwater::protocol::messages::MetadataResponseTopic = topic;
                topic.name.as_deref() == Some(name.as_str())
            };
            let topic = answer.topics.iter().find(named);
            let Some(topic) = topic.filter(|topic| topic.error_code == 0) else {
                let code = topic.map_or(ErrorCode::UnknownTopicOrPartition.code(), |topic| {
                    topic.error_code
                });
                return Ok(Found::Missing(format!("topic {name}: {}", code_text(code))));
            };
            ensure!(
                topic.partitions.len() <= partitions as usize,
                "topic {name} has {} partitions where {partitions} are expected",
                topic.partitions.len()
            );
            for index in 0..partitions {
                let partition = topic
                    .partitions
                    .iter()
                    .find(|partition| partition.partition_index == index as i32);
                let Some(leader) = partition
                    .map(|partition| partition.leader_id)
                    .filter(|leader| *leader >= 0)
                else {
                    return Ok(Found::Missing(format!(
                        "partition {index} of topic {name} has no leader"
                    )));
                };
                let leader = match nodes.get(&leader) {
                    Some(number) => *number,
                    None => {
                        let number = cluster.leaders.len() as u32;
                        cluster.leaders.push(node_addr(addr, answer, leader)?);
                        nodes.insert(leader, number);
                        number
                    }
                };
                cluster.leader_of.push(leader);
            }
        }
        Ok(Found::All(cluster))
    }

    /// Partitions of all topics.
    pub fn partitions(&self) -> u32 {
        self.leader_of.len() as u32
    }

    pub fn leaders(&self) -> &[SocketAddr] {
        &self.leaders
    }

    /// The number of a partition's leader.
    pub fn leader_of(&self, partition: u32) -> usize {
        self.leader_of[partition as usize] as usize
    }

    /// Topic and index of a partition.
    pub fn place(&self, partition: u32) -> (&str, i32) {
        let topic = &self.topics[(partition / self.partitions) as usize];
        (topic, (partition % self.partitions) as i32)
    }

    /// The number of a partition that an answer names.
    pub fn number(&self, topic: &[u8], index: i32) -> Result<u32> {
        let topic = self.numbers.get(topic);
        let index = u32::try_from(index)
            .ok()
            .filter(|index| *index < self.partitions);
        match (topic, index) {
            (Some(topic), Some(index)) => Ok(topic * self.partitions + index),
            _ => bail!("the broker answered for a partition that was not asked for"),
        }
    }

    /// An error that a broker answered for a partition; `said` is what else it said.
    pub fn failed(&self, partition: u32, code: i16, said: Option<&[u8]>) -> anyhow::Error {
        let (topic, index) = self.place(partition);
        let said = said.map(String::from_utf8_lossy).unwrap_or_default();
        let colon = if said.is_empty() { "" } else { ": " };
        anyhow::anyhow!(
            "partition {index} of topic {topic}: the broker answered {}{colon}{said}",
            code_text(code)
        )
    }

    /// The offset of an end of each partition's log.
    pub fn offsets(&self, end: End) -> Result<Vec<i64>> {
        let mut offsets = vec![0; self.leader_of.len()];
        for (leader, addr) in self.leaders.iter().enumerate() {
            self.offsets_at(end, leader, *addr, &mut offsets)
                .with_context(|| format!("the offsets can't be asked for at {addr}"))?;
        }
        Ok(offsets)
    }

    fn offsets_at(
        &self,
        end: End,
        leader: usize,
        addr: SocketAddr,
        offsets: &mut [i64],
    ) -> Result<()> {
        let timestamp = match end {
            End::Start => -2,
            End::Latest => -1,
        };
        let topics = self.topics.iter().enumerate().map(|(number, name)| {
            let first = number as u32 * self.partitions;
            let led = (0..self.partitions)
                .filter(|index| self.leader_of(first + index) == leader)
                .map(|index| ListOffsetsPartition {
                    partition_index: index as i32,
                    timestamp,
                    ..Default::default()
                });
            ListOffsetsTopic {
                name: Str::from(name.clone()),
                partitions: led.collect(),
            }
        });
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: topics
                .filter(|topic| !topic.partitions.is_empty())
                .collect(),
            ..Default::default()
        };
        let mut socket = wire::connect(&addr.to_string())?;
        let answer: ListOffsetsResponse = wire::call(&mut socket, LIST_OFFSETS_VERSION, &request)?;
        let mut left: usize = request
            .topics
            .iter()
            .map(|topic| topic.partitions.len())
            .sum();
        for topic in &answer.topics {
            for partition in &topic.partitions {
                let number = self.number(topic.name.as_bytes(), partition.partition_index)?;
                if partition.error_code != 0 {
                    return Err(self.failed(number, partition.error_code, None));
                }
                offsets[number as usize] = partition.offset;
                left = left.saturating_sub(1);
            }
        }
        ensure!(left == 0, "the broker left out partitions");
        Ok(())
    }
}

enum Found {
    All(Cluster),
    /// Not yet: what is missing.
    Missing(String),
}

fn metadata(addr: SocketAddr, topics: &[String]) -> Result<MetadataResponse> {
    let named = |name: &String| MetadataRequestTopic {
        name: Some(Str::from(name.clone())),
        ..Default::default()
    };
    let request = MetadataRequest {
        topics: Some(topics.iter().map(named).collect()),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    let mut socket = wire::connect(&addr.to_string())?;
    wire::call(&mut socket, METADATA_VERSION, &request)
        .with_context(|| format!("the topics can't be asked for at {addr}"))
}

/// The address of a node. A broker that is alone is where it was asked, whatever it advertises.
fn node_addr(asked: SocketAddr, answer: &MetadataResponse, node: i32) -> Result<SocketAddr> {
    if answer.brokers.len() <= 1 {
        return Ok(asked);
    }
    let broker = answer.brokers.iter().find(|broker| broker.node_id == node);
    let broker = broker.with_context(|| format!("the broker does not say where node {node} is"))?;
    let port = u16::try_from(broker.port).context("a port that is none")?;
    (broker.host.as_str(), port)
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next())
        .with_context(|| {
            format!(
                "node {node} advertises {}:{port}, which can't be found from here",
                broker.host.as_str()
            )
        })
}

/// A code by its name and number.
pub fn code_text(code: i16) -> String {
    match ErrorCode::from_code(code) {
        Some(ErrorCode::UnsupportedVersion) => format!(
            "UNSUPPORTED_VERSION ({code}); Produce {}, Fetch {}, ListOffsets {LIST_OFFSETS_VERSION} and Metadata {METADATA_VERSION} are needed, which Kafka has since 2.8",
            wire::PRODUCE_VERSION,
            wire::FETCH_VERSION
        ),
        Some(known) => format!("{} ({code})", known.name()),
        None => format!("an unknown error ({code})"),
    }
}

/// The versions that are needed and that the broker does not serve, for people: what a closed connection may mean.
/// `None` if there are none, or if the broker does not say.
pub fn unserved(addr: SocketAddr) -> Option<String> {
    let mut socket = wire::connect(&addr.to_string()).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let answer: ApiVersionsResponse =
        wire::call(&mut socket, 0, &ApiVersionsRequest::default()).ok()?;
    let needed = [
        (ApiKey::Produce, wire::PRODUCE_VERSION),
        (ApiKey::Fetch, wire::FETCH_VERSION),
        (ApiKey::ListOffsets, LIST_OFFSETS_VERSION),
        (ApiKey::Metadata, METADATA_VERSION),
    ];
    let is_served = |api: ApiKey, version: i16| {
        answer.api_keys.iter().any(|served| {
            served.api_key == api.code()
                && (served.min_version..=served.max_version).contains(&version)
        })
    };
    let missing: Vec<String> = needed
        .into_iter()
        .filter(|(api, version)| !is_served(*api, *version))
        .map(|(api, version)| format!("{api:?} {version}"))
        .collect();
    (!missing.is_empty()).then(|| format!("the broker does not serve {}", missing.join(", ")))
}

const LIST_OFFSETS_VERSION: i16 = 6;
const METADATA_VERSION: i16 = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use highwater::protocol::messages::{
        MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };

    fn answer(leaders: &[i32]) -> MetadataResponse {
        let topic = |name: &str| MetadataResponseTopic {
            name: Some(Str::from(name.to_owned())),
            partitions: (0..)
                .zip(leaders)
                .map(|(index, leader)| MetadataResponsePartition {
                    partition_index: index,
                    leader_id: *leader,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
        let broker = |node: i32| MetadataResponseBroker {
            node_id: node,
            host: Str::from_static("127.0.0.1"),
            port: 1000 + node,
            ..Default::default()
        };
        MetadataResponse {
            brokers: vec![broker(1), broker(2), broker(3)],
            topics: vec![topic("b"), topic("a")],
            ..Default::default()
        }
    }

    fn found(partitions: u32, answer: &MetadataResponse) -> Result<Found> {
        let topics = ["a".to_owned(), "b".to_owned()];
        Cluster::of_answer(
            SocketAddr::from(([127, 0, 0, 1], 9)),
            &topics,
            partitions,
            answer,
        )
    }

    #[test]
    fn partitions_are_numbered_through_topics_and_have_their_leader_s_address() {
        let Ok(Found::All(cluster)) = found(3, &answer(&[2, 1, 2])) else {
            panic!("all partitions have leaders");
        };
        assert_eq!(cluster.partitions(), 6);
        assert_eq!(cluster.place(4), ("b", 1));
        assert_eq!(cluster.number(b"b", 1).unwrap(), 4);
        let ports: Vec<u16> = (0..3)
            .map(|partition| cluster.leaders()[cluster.leader_of(partition)].port())
            .collect();
        assert_eq!(ports, [1002, 1001, 1002]);
        assert_eq!(cluster.leaders().len(), 2);
        assert!(cluster.number(b"c", 0).is_err() && cluster.number(b"a", 3).is_err());
    }

    #[test]
    fn a_broker_that_is_alone_is_where_it_was_asked() {
        let mut answer = answer(&[1]);
        answer.brokers.truncate(1);
        let Ok(Found::All(cluster)) = found(1, &answer) else {
            panic!("the partition has a leader");
        };
        assert_eq!(cluster.leaders()[0].port(), 9);
    }

    #[test]
    fn what_is_missing_is_said() {
        let said = |partitions, answer: &MetadataResponse| match found(partitions, answer) {
            Ok(Found::Missing(what)) => what,
            Ok(Found::All(_)) => "all".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(
            said(2, &answer(&[1, -1])),
            "partition 1 of topic a has no leader"
        );
        assert_eq!(
            said(2, &answer(&[1])),
            "partition 1 of topic a has no leader"
        );
        assert_eq!(
            said(1, &answer(&[1, 1])),
            "topic a has 2 partitions where 1 are expected"
        );
        let mut unknown = answer(&[1]);
        unknown.topics[1].error_code = 3;
        assert_eq!(said(1, &unknown), "topic a: UNKNOWN_TOPIC_OR_PARTITION (3)");
    }

    #[test]
    fn codes_are_told_by_name() {
        assert_eq!(code_text(6), "NOT_LEADER_OR_FOLLOWER (6)");
        assert!(code_text(35).starts_with("UNSUPPORTED_VERSION (35); Produce 9, Fetch 12"));
        assert_eq!(code_text(9999), "an unknown error (9999)");
    }
}
