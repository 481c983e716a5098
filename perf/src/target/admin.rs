//! Topics of a Kafka broker: made, waited for, and deleted.

use crate::wire;
use anyhow::{bail, Context, Result};
use highwater::protocol::messages::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, DescribeConfigsRequest, DescribeConfigsResource,
    DescribeConfigsResponse, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic, MetadataRequest, MetadataRequestTopic, MetadataResponse,
};
use highwater::protocol::{ApiKey, ErrorCode, Str};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Versions that Kafka 4.0 and later serve.
const CREATE_TOPICS: i16 = 5;
const DELETE_TOPICS: i16 = 5;
const DESCRIBE_CONFIGS: i16 = 1;
const LIST_OFFSETS: i16 = 5;
const METADATA: i16 = 9;

/// What is asked of a broker by this module.
pub const NEEDED: &[(ApiKey, i16)] = &[
    (ApiKey::Metadata, METADATA),
    (ApiKey::CreateTopics, CREATE_TOPICS),
    (ApiKey::DeleteTopics, DELETE_TOPICS),
    (ApiKey::ListOffsets, LIST_OFFSETS),
];

/// A topic of a thousand partitions takes a while.
const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(20);

/// A connection for administration.
pub struct Admin(TcpStream);

impl Admin {
    pub fn connect(addr: SocketAddr) -> Result<Admin> {
        const CONNECT: Duration = Duration::from_secs(10);
        let socket = TcpStream::connect_timeout(&addr, CONNECT)
            .with_context(|| format!("no broker at {addr}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Admin(socket))
    }

    /// Creates a topic of one replica and waits until the leader of every partition answers.
    ///
    /// If it does not become usable it is deleted again.
    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: u32,
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let partitions = i32::try_from(partitions).context("too many partitions")?;
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: Str::from(name.to_owned()),
                num_partitions: partitions,
                replication_factor: 1,
                configs: configs
                    .iter()
                    .map(|(name, value)| CreatableTopicConfig {
                        name: Str::from((*name).to_owned()),
                        value: Some(Str::from((*value).to_owned())),
                    })
                    .collect(),
                ..Default::default()
            }],
            timeout_ms: PATIENCE.as_millis() as i32,
            ..Default::default()
        };
        let response: CreateTopicsResponse = wire::call(&mut self.0, CREATE_TOPICS, &request)?;
        let result = response.topics.first();
        let result = result.context("the broker's answer leaves the topic out")?;
        if result.error_code != 0 {
            let why = explained(result.error_code, result.error_message.as_deref());
            bail!("topic {name} can't be created: {why}");
        }
        let usable = self.wait_usable(name, partitions);
        if usable.is_err() {
            // The first error says more than another one of this.
            let _ = self.delete_topic(name);
        }
        usable
    }

    /// Deletes a topic and waits until it is not known any more. Its files may go later.
    pub fn delete_topic(&mut self, name: &str) -> Result<()> {
        let request = DeleteTopicsRequest {
            topic_names: vec![Str::from(name.to_owned())],
            timeout_ms: PATIENCE.as_millis() as i32,
            ..Default::default()
        };
        let response: DeleteTopicsResponse = wire::call(&mut self.0, DELETE_TOPICS, &request)?;
        let result = response.responses.first();
        let result = result.context("the broker's answer leaves the topic out")?;
        if result.error_code != 0 {
            let why = explained(result.error_code, result.error_message.as_deref());
            bail!("topic {name} can't be deleted: {why}");
        }
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let metadata = self.metadata(Some(name))?;
            let unknown = ErrorCode::UnknownTopicOrPartition.code();
            if metadata.topics.iter().all(|t| t.error_code == unknown) {
                return Ok(());
            }
            std::thread::sleep(STEP);
        }
        bail!("topic {name} is still there {PATIENCE:?} after it was deleted")
    }

    /// About a topic, or about the brokers only.
    pub fn metadata(&mut self, topic: Option<&str>) -> Result<MetadataResponse> {
        let topic = topic.map(|name| MetadataRequestTopic {
            name: Some(Str::from(name.to_owned())),
            ..Default::default()
        });
        let request = MetadataRequest {
            topics: Some(topic.into_iter().collect()),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        wire::call(&mut self.0, METADATA, &request)
    }

    /// Whether a broker has a setting of this name.
    pub fn has_setting(&mut self, broker: i32, name: &str) -> Result<bool> {
        const BROKER: i8 = 4;
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: BROKER,
                resource_name: Str::from(broker.to_string()),
                configuration_keys: Some(vec![Str::from(name.to_owned())]),
            }],
            ..Default::default()
        };
        let response: DescribeConfigsResponse =
            wire::call(&mut self.0, DESCRIBE_CONFIGS, &request)?;
        let mut settings = response.results.iter().flat_map(|result| &result.configs);
        Ok(settings.any(|setting| &*setting.name == name))
    }

    /// A leader may be named before it has made its log, so each one is asked for its log's end.
    fn wait_usable(&mut self, name: &str, partitions: i32) -> Result<()> {
        let begun = Instant::now();
        let mut led = false;
        while begun.elapsed() < PATIENCE {
            led = led || self.is_led(name, partitions)?;
            if led && self.answers(name, partitions)? {
                return Ok(());
            }
            std::thread::sleep(STEP);
        }
        bail!(
            "topic {name} can't be used {PATIENCE:?} after it was made: partitions have no leader"
        )
    }

    fn is_led(&mut self, name: &str, partitions: i32) -> Result<bool> {
        let metadata = self.metadata(Some(name))?;
        Ok(metadata.topics.len() == 1
            && metadata.topics.iter().all(|topic| {
                topic.error_code == 0
                    && topic.partitions.len() == partitions as usize
                    && topic
                        .partitions
                        .iter()
                        .all(|partition| partition.error_code == 0 && partition.leader_id >= 0)
            }))
    }

    fn answers(&mut self, name: &str, partitions: i32) -> Result<bool> {
        const LATEST: i64 = -1;
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: Str::from(name.to_owned()),
                partitions: (0..partitions)
                    .map(|partition_index| ListOffsetsPartition {
                        partition_index,
                        current_leader_epoch: -1,
                        timestamp: LATEST,
                    })
                    .collect(),
            }],
            ..Default::default()
        };
        let response: ListOffsetsResponse = wire::call(&mut self.0, LIST_OFFSETS, &request)?;
        let answered = response.topics.iter().flat_map(|topic| &topic.partitions);
        Ok(answered.filter(|p| p.error_code == 0).count() == partitions as usize)
    }
}

/// An error code's name, and what the broker says of it.
fn explained(code: i16, message: Option<&str>) -> String {
    let name = ErrorCode::from_code(code).map_or("an unknown error", ErrorCode::name);
    match message {
        Some(message) if !message.is_empty() => format!("{name} ({message})"),
        _ => format!("{name} ({code})"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeBroker;
    use super::*;
    use highwater::protocol::messages::{
        CreatableTopicResult, ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
        MetadataResponsePartition, MetadataResponseTopic,
    };

    fn created(error_code: i16, message: Option<&'static str>) -> CreateTopicsResponse {
        CreateTopicsResponse {
            topics: vec![CreatableTopicResult {
                name: Str::from("t"),
                error_code,
                error_message: message.map(Str::from),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn led_by(leader_id: i32) -> MetadataResponse {
        MetadataResponse {
            topics: vec![MetadataResponseTopic {
                partitions: vec![MetadataResponsePartition {
                    leader_id,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn end(error_code: i16) -> ListOffsetsResponse {
        ListOffsetsResponse {
            topics: vec![ListOffsetsTopicResponse {
                partitions: vec![ListOffsetsPartitionResponse {
                    error_code,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    #[test]
    fn a_topic_is_waited_for_until_its_leaders_answer() {
        let broker = FakeBroker::start(vec![
            FakeBroker::answer(CREATE_TOPICS, &created(0, None)),
            FakeBroker::answer(METADATA, &led_by(-1)),
            FakeBroker::answer(METADATA, &led_by(1)),
            FakeBroker::answer(LIST_OFFSETS, &end(ErrorCode::NotLeaderOrFollower.code())),
            FakeBroker::answer(LIST_OFFSETS, &end(0)),
        ]);
        let mut admin = Admin::connect(broker.addr()).unwrap();
        admin.create_topic("t", 1, &[]).unwrap();
        assert_eq!(
            broker.finish(),
            [
                ApiKey::CreateTopics.code(),
                ApiKey::Metadata.code(),
                ApiKey::Metadata.code(),
                ApiKey::ListOffsets.code(),
                ApiKey::ListOffsets.code(),
            ]
        );
    }

    #[test]
    fn a_refused_topic_is_told_by_name_and_message() {
        let refusal = created(ErrorCode::InvalidConfig.code(), Some("no such setting"));
        let broker = FakeBroker::start(vec![FakeBroker::answer(CREATE_TOPICS, &refusal)]);
        let mut admin = Admin::connect(broker.addr()).unwrap();
        let error = admin.create_topic("t", 1, &[("a", "b")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "topic t can't be created: INVALID_CONFIG (no such setting)"
        );
        broker.finish();
    }

    #[test]
    fn codes_without_a_message_are_told_by_number() {
        assert_eq!(explained(36, None), "TOPIC_ALREADY_EXISTS (36)");
        assert_eq!(explained(9999, Some("")), "an unknown error (9999)");
    }
}
