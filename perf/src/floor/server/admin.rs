//! The requests that are not about records: versions, topics, offsets.

use super::produce::VERSION_MAX as PRODUCE_VERSION_MAX;
use super::store::{Store, Topic};
use highwater::protocol::messages::{
    ApiVersion, ApiVersionsResponse, CreatableTopic, CreatableTopicResult, CreateTopicsRequest,
    CreateTopicsResponse, DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse,
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic, ListOffsetsTopicResponse, MetadataRequest, MetadataResponse,
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use highwater::protocol::{ApiKey, ErrorCode, Str};
use std::net::SocketAddr;

/// Whether a topic's acknowledgements wait for a flush; a setting of this server alone.
pub const FLUSH_SETTING: &str = "floor.flush";
/// Of all topics.
pub const PARTITIONS_MAX: usize = 200_000;
const NODE: i32 = 0;

/// What is served; Produce below 3 is offered for clients that read more than that from it, and not answered.
pub const SERVED: [(ApiKey, i16, i16); 7] = [
    (ApiKey::Produce, 0, PRODUCE_VERSION_MAX),
    (ApiKey::Fetch, 4, 12),
    (ApiKey::ListOffsets, 1, 7),
    (ApiKey::Metadata, 0, 9),
    (ApiKey::ApiVersions, 0, 3),
    (ApiKey::CreateTopics, 2, 6),
    (ApiKey::DeleteTopics, 1, 5),
];

pub fn is_served(api: i16, version: i16) -> Option<ApiKey> {
    let served = SERVED
        .iter()
        .find(|(key, min, max)| key.code() == api && (*min..=*max).contains(&version));
    served.map(|(key, ..)| *key)
}

pub fn api_versions(error: ErrorCode) -> ApiVersionsResponse {
    let api = |(key, min_version, max_version): (ApiKey, i16, i16)| ApiVersion {
        api_key: key.code(),
        min_version,
        max_version,
    };
    ApiVersionsResponse {
        error_code: error.code(),
        api_keys: SERVED.map(api).into(),
        ..Default::default()
    }
}

pub fn metadata(
    store: &Store,
    request: &MetadataRequest,
    version: i16,
    addr: SocketAddr,
) -> MetadataResponse {
    let wants_all = match &request.topics {
        None => true,
        Some(topics) => version == 0 && topics.is_empty(),
    };
    let topics = if wants_all {
        store.topics().map(topic_metadata).collect()
    } else {
        let wanted = request.topics.iter().flatten();
        let one = |name: Str| match store.id(&name).and_then(|id| store.topic(id)) {
            Some(topic) => topic_metadata(topic),
            None => MetadataResponseTopic {
                error_code: ErrorCode::UnknownTopicOrPartition.code(),
                name: Some(name),
                ..Default::default()
            },
        };
        wanted
            .filter_map(|topic| topic.name.clone())
            .map(one)
            .collect()
    };
    MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: NODE,
            host: Str::from(addr.ip().to_string()),
            port: i32::from(addr.port()),
            rack: None,
        }],
        cluster_id: Some(Str::from_static("floor")),
        controller_id: NODE,
        topics,
        ..Default::default()
    }
}

fn topic_metadata(topic: &Topic) -> MetadataResponseTopic {
    let partition = |partition_index| MetadataResponsePartition {
        partition_index,
        leader_id: NODE,
        leader_epoch: 0,
        replica_nodes: vec![NODE],
        isr_nodes: vec![NODE],
        ..Default::default()
    };
    MetadataResponseTopic {
        name: Some(topic.name.clone()),
        partitions: (0..topic.partitions.len() as i32).map(partition).collect(),
        ..Default::default()
    }
}

pub fn list_offsets(store: &Store, request: &ListOffsetsRequest) -> ListOffsetsResponse {
    const LATEST: i64 = -1;
    const EARLIEST: i64 = -2;
    let topic = |topic: &ListOffsetsTopic| {
        let id = store.id(&topic.name);
        let partition = |wanted: &ListOffsetsPartition| {
            let found = id.and_then(|id| store.partition(id, wanted.partition_index));
            let (error, offset) = match (found, wanted.timestamp) {
                (None, _) => (ErrorCode::UnknownTopicOrPartition, -1),
                (Some(partition), LATEST) => (ErrorCode::None, partition.visible),
                (Some(partition), EARLIEST) => (ErrorCode::None, partition.start()),
                // Nobody looks at timestamps here.
                (Some(_), _) => (ErrorCode::UnsupportedVersion, -1),
            };
            ListOffsetsPartitionResponse {
                partition_index: wanted.partition_index,
                error_code: error.code(),
                offset,
                leader_epoch: 0,
                ..Default::default()
            }
        };
        ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions: topic.partitions.iter().map(partition).collect(),
        }
    };
    ListOffsetsResponse {
        topics: request.topics.iter().map(topic).collect(),
        ..Default::default()
    }
}

/// Whether a topic that is flushed is to be created.
pub fn wants_flush(request: &CreateTopicsRequest) -> bool {
    request
        .topics
        .iter()
        .any(|topic| flush_setting(topic) == Ok(true))
}

pub fn create_topics(store: &mut Store, request: &CreateTopicsRequest) -> CreateTopicsResponse {
    let mut create = |topic: &CreatableTopic| {
        let (error, message) = match create_topic(store, topic) {
            Ok(()) => (ErrorCode::None, None),
            Err((error, message)) => (error, Some(Str::from(message))),
        };
        CreatableTopicResult {
            name: topic.name.clone(),
            error_code: error.code(),
            error_message: message,
            num_partitions: topic.num_partitions,
            replication_factor: 1,
            ..Default::default()
        }
    };
    CreateTopicsResponse {
        topics: request.topics.iter().map(&mut create).collect(),
        ..Default::default()
    }
}

type Refused = (ErrorCode, String);

fn create_topic(store: &mut Store, topic: &CreatableTopic) -> Result<(), Refused> {
    let flush = flush_setting(topic)?;
    let partitions = match topic.num_partitions {
        -1 => 1,
        count => usize::try_from(count).unwrap_or(0),
    };
    let there: usize = store.topics().map(|topic| topic.partitions.len()).sum();
    if partitions == 0 || there + partitions > PARTITIONS_MAX {
        let message = format!("1 to {PARTITIONS_MAX} partitions, of all topics");
        return Err((ErrorCode::InvalidPartitions, message));
    }
    if topic.replication_factor > 1 {
        let message = "there is one broker".to_owned();
        return Err((ErrorCode::InvalidReplicationFactor, message));
    }
    match store.create(topic.name.clone(), partitions, flush) {
        Some(_) => Ok(()),
        None => {
            let message = format!("topic {} is there already", topic.name);
            Err((ErrorCode::TopicAlreadyExists, message))
        }
    }
}

fn flush_setting(topic: &CreatableTopic) -> Result<bool, Refused> {
    let mut flush = false;
    for config in &topic.configs {
        flush = match (&*config.name, config.value.as_deref()) {
            (FLUSH_SETTING, Some("true")) => true,
            (FLUSH_SETTING, Some("false")) => false,
            _ => {
                let message = format!(
                    "{}: only {FLUSH_SETTING}=true or false is known",
                    config.name
                );
                return Err((ErrorCode::InvalidConfig, message));
            }
        };
    }
    Ok(flush)
}

/// The answer, and what is deleted.
pub fn delete_topics(
    store: &mut Store,
    request: &DeleteTopicsRequest,
) -> (DeleteTopicsResponse, Vec<Topic>) {
    let mut gone = Vec::new();
    let mut responses = Vec::new();
    for name in &request.topic_names {
        let error = match store.delete(name) {
            Some(topic) => {
                gone.push(topic);
                ErrorCode::None
            }
            None => ErrorCode::UnknownTopicOrPartition,
        };
        responses.push(DeletableTopicResult {
            name: Some(name.clone()),
            error_code: error.code(),
            ..Default::default()
        });
    }
    let answer = DeleteTopicsResponse {
        responses,
        ..Default::default()
    };
    (answer, gone)
}
