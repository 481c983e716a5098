//! CreateTopics, DeleteTopics and CreatePartitions. The controller decides; an answer leaves after
//! every shard has applied the change.

use super::respond::{Answer, Asked, BadRequest};
use crate::config::{describe_topic, BrokerConfig};
use crate::controller::{ControllerFault, CreatedTopic, MorePartitions, NewTopic, TopicSelector};
use crate::protocol::messages::{
    CreatableTopicConfigs, CreatableTopicResult, CreatePartitionsRequest, CreatePartitionsResponse,
    CreatePartitionsTopicResult, CreateTopicsRequest, CreateTopicsResponse, DeletableTopicResult,
    DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;

pub(super) async fn create(
    shard: &Shard,
    asked: Asked,
    request: CreateTopicsRequest,
) -> Result<Answer, BadRequest> {
    let names: Vec<Str> = request
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    let new = request
        .topics
        .into_iter()
        .map(|topic| NewTopic {
            name: topic.name.to_string(),
            num_partitions: topic.num_partitions,
            replication_factor: topic.replication_factor,
            assignments: topic
                .assignments
                .into_iter()
                .map(|assignment| (assignment.partition_index, assignment.broker_ids))
                .collect(),
            configs: topic
                .configs
                .into_iter()
                .map(|config| {
                    (
                        config.name.to_string(),
                        config.value.map(|value| value.to_string()),
                    )
                })
                .collect(),
        })
        .collect();
    let results = match shard.create_topics(new, request.validate_only).await {
        Ok(results) => results,
        Err(code) => names.iter().map(|_| Err(unavailable(code))).collect(),
    };
    let topics = names
        .into_iter()
        .zip(results)
        .enumerate()
        .map(|(i, (name, result))| match result {
            Ok(created) => {
                let configs =
                    (i < TOPICS_DESCRIBED_MAX).then(|| configs_of(&shard.config(), &created));
                CreatableTopicResult {
                    name,
                    topic_id: created.id,
                    topic_config_error_code: match configs {
                        Some(_) => ErrorCode::None.code(),
                        None => ErrorCode::InvalidRequest.code(),
                    },
                    num_partitions: created.num_partitions,
                    replication_factor: created.replication_factor,
                    configs,
                    ..Default::default()
                }
            }
            Err(fault) => CreatableTopicResult {
                name,
                error_code: fault.code.code(),
                error_message: Some(Str::from(fault.message)),
                num_partitions: -1,
                replication_factor: -1,
                configs: Some(Vec::new()),
                ..Default::default()
            },
        })
        .collect();
    Ok(asked.answer(&CreateTopicsResponse {
        topics,
        ..Default::default()
    })?)
}

/// All settings of a new topic, as DescribeConfigs would show them.
fn configs_of(broker: &BrokerConfig, created: &CreatedTopic) -> Vec<CreatableTopicConfigs> {
    let all = describe_topic(broker, &created.configs);
    all.map(|described| CreatableTopicConfigs {
        name: Str::from_static(described.name),
        value: described.value.map(Str::from),
        read_only: described.read_only,
        config_source: described.source as i8,
        is_sensitive: false,
    })
    .collect()
}

pub(super) async fn create_partitions(
    shard: &Shard,
    asked: Asked,
    request: CreatePartitionsRequest,
) -> Result<Answer, BadRequest> {
    let names: Vec<Str> = request
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    let topics = request.topics.into_iter().map(|topic| MorePartitions {
        name: topic.name.to_string(),
        count: topic.count,
        assignments: topic.assignments.map(|assignments| {
            let assignments = assignments.into_iter();
            assignments.map(|one| one.broker_ids).collect()
        }),
    });
    let results = shard.create_partitions(topics.collect(), request.validate_only);
    let results = match results.await {
        Ok(results) => results,
        Err(code) => names.iter().map(|_| Err(unavailable(code))).collect(),
    };
    let results = names.into_iter().zip(results).map(|(name, result)| {
        let fault = result.err();
        CreatePartitionsTopicResult {
            name,
            error_code: fault.as_ref().map_or(ErrorCode::None, |f| f.code).code(),
            error_message: fault.map(|fault| Str::from(fault.message)),
        }
    });
    Ok(asked.answer(&CreatePartitionsResponse {
        results: results.collect(),
        ..Default::default()
    })?)
}

pub(super) async fn delete(
    shard: &Shard,
    asked: Asked,
    request: DeleteTopicsRequest,
) -> Result<Answer, BadRequest> {
    let topics: Vec<DeleteTopicState> = match asked.api_version {
        6.. => request.topics,
        _ => {
            let names = request.topic_names.into_iter();
            let by_name = |name| DeleteTopicState {
                name: Some(name),
                ..Default::default()
            };
            names.map(by_name).collect()
        }
    };
    let selected: Vec<_> = topics.iter().map(selector).collect();
    let selectors = selected.iter().flatten().cloned().collect();
    let mut deleted = match shard.delete_topics(selectors).await {
        Ok(results) => Ok(results.into_iter()),
        Err(code) => Err(unavailable(code)),
    };
    let results = selected.into_iter().map(|selected| {
        selected.and_then(|_| match &mut deleted {
            Ok(results) => results.next().expect("one result for each selector"),
            Err(fault) => Err(fault.clone()),
        })
    });
    let responses = topics
        .into_iter()
        .zip(results)
        .map(|(topic, result)| match result {
            Ok((id, name)) => DeletableTopicResult {
                name: Some(Str::from(name)),
                topic_id: id,
                ..Default::default()
            },
            Err(fault) => DeletableTopicResult {
                name: topic.name,
                topic_id: topic.topic_id,
                error_code: fault.code.code(),
                error_message: Some(Str::from(fault.message)),
            },
        })
        .collect();
    Ok(asked.answer(&DeleteTopicsResponse {
        responses,
        ..Default::default()
    })?)
}

/// What a topic of the request names: Kafka wants a name or an id, not both.
fn selector(topic: &DeleteTopicState) -> Result<TopicSelector, ControllerFault> {
    let invalid = |message| Err(ControllerFault::new(ErrorCode::InvalidRequest, message));
    match (&topic.name, topic.topic_id.is_nil()) {
        (Some(name), true) => Ok(TopicSelector::Name(name.to_string())),
        (None, false) => Ok(TopicSelector::Id(topic.topic_id)),
        (Some(_), false) => invalid("You may not specify both topic name and topic id."),
        (None, true) => invalid("Neither topic name nor id were specified."),
    }
}

fn unavailable(code: ErrorCode) -> ControllerFault {
    ControllerFault {
        code,
        message: "The broker is stopping.".to_string(),
    }
}

/// Of how many topics of a request the settings are in the answer, which would otherwise
/// be far larger than the request. The others say so (`topic_config_error_code`).
const TOPICS_DESCRIBED_MAX: usize = 1_000;
