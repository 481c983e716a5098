//! CreateTopics and DeleteTopics. The controller decides; an answer leaves after
//! every shard has applied the change.

use super::respond::{Answer, Asked, BadRequest};
use crate::controller::{ControllerFault, NewTopic, TopicSelector};
use crate::protocol::messages::{
    CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
    DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse,
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
        .map(|(name, result)| match result {
            Ok(created) => CreatableTopicResult {
                name,
                topic_id: created.id,
                num_partitions: created.num_partitions,
                replication_factor: created.replication_factor,
                configs: Some(
                    created
                        .configs
                        .into_iter()
                        .map(|(config, value)| CreatableTopicConfigs {
                            name: Str::from(config),
                            value: Some(Str::from(value)),
                            config_source: SOURCE_TOPIC,
                            ..Default::default()
                        })
                        .collect(),
                ),
                ..Default::default()
            },
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

pub(super) async fn delete(
    shard: &Shard,
    asked: Asked,
    request: DeleteTopicsRequest,
) -> Result<Answer, BadRequest> {
    let selectors: Vec<TopicSelector> = if asked.api_version >= 6 {
        request
            .topics
            .into_iter()
            .map(|topic| match topic.name {
                Some(name) => TopicSelector::Name(name.to_string()),
                None => TopicSelector::Id(topic.topic_id),
            })
            .collect()
    } else {
        request
            .topic_names
            .into_iter()
            .map(|name| TopicSelector::Name(name.to_string()))
            .collect()
    };
    let results = match shard.delete_topics(selectors.clone()).await {
        Ok(results) => results,
        Err(code) => selectors.iter().map(|_| Err(unavailable(code))).collect(),
    };
    let responses = selectors
        .into_iter()
        .zip(results)
        .map(|(selector, result)| match result {
            Ok((id, name)) => DeletableTopicResult {
                name: Some(Str::from(name)),
                topic_id: id,
                ..Default::default()
            },
            Err(fault) => {
                let (name, topic_id) = match selector {
                    TopicSelector::Name(name) => (Some(Str::from(name)), Default::default()),
                    TopicSelector::Id(id) => (None, id),
                };
                DeletableTopicResult {
                    name,
                    topic_id,
                    error_code: fault.code.code(),
                    error_message: Some(Str::from(fault.message)),
                }
            }
        })
        .collect();
    Ok(asked.answer(&DeleteTopicsResponse {
        responses,
        ..Default::default()
    })?)
}

fn unavailable(code: ErrorCode) -> ControllerFault {
    ControllerFault {
        code,
        message: "The broker is stopping.".to_string(),
    }
}

/// Where a topic's setting comes from, as DescribeConfigs numbers it.
const SOURCE_TOPIC: i8 = 1;
