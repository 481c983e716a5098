//! DescribeQuorum (KIP-595): the quorum of the metadata log, which has one voter.

use super::respond::{Answer, Asked, BadRequest, Messages};
use crate::metadata::METADATA_TOPIC_NAME;
use crate::protocol::messages::{
    DescribeQuorumPartitionResult, DescribeQuorumRequest, DescribeQuorumResponse,
    DescribeQuorumTopic, DescribeQuorumTopicResult, QuorumListener, QuorumNode, QuorumReplicaState,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::{QuorumState, Shard};

pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: DescribeQuorumRequest,
) -> Result<Answer, BadRequest> {
    if !is_the_metadata_log(&request.topics) {
        let messages = Messages::of(request.topics.iter().map(|topic| topic.partitions.len()));
        let topics = request.topics.into_iter();
        let topics = topics.map(|topic| unknown(topic, &messages));
        return Ok(asked.answer(&DescribeQuorumResponse {
            error_message: None,
            topics: topics.collect(),
            ..Default::default()
        })?);
    }
    let response = match shard.quorum().await {
        Ok(state) => the_quorum(shard, &state, asked.api_version),
        Err(code) => DescribeQuorumResponse {
            error_code: code.code(),
            error_message: Some(Str::from_static(code.message())),
            ..Default::default()
        },
    };
    Ok(asked.answer(&response)?)
}

fn the_quorum(shard: &Shard, state: &QuorumState, api_version: i16) -> DescribeQuorumResponse {
    let config = shard.config();
    // Directories and nodes are younger than the first versions.
    let knows_nodes = api_version >= 2;
    let voter = QuorumReplicaState {
        replica_id: config.node_id,
        replica_directory_id: match knows_nodes {
            true => state.directory_id,
            false => Default::default(),
        },
        log_end_offset: state.end_offset,
        // A leader has, at each moment, all that it has.
        last_fetch_timestamp: state.now_ms,
        last_caught_up_timestamp: state.now_ms,
    };
    let partition = DescribeQuorumPartitionResult {
        partition_index: 0,
        error_message: None,
        leader_id: config.node_id,
        leader_epoch: state.leader_epoch,
        high_watermark: state.high_watermark,
        current_voters: vec![voter],
        ..Default::default()
    };
    // The controller has no listener of its own.
    let listener = config.advertised_listener.iter().map(|at| QuorumListener {
        name: Str::from_static("PLAINTEXT"),
        host: Str::from(at.host.clone()),
        port: at.port,
    });
    DescribeQuorumResponse {
        error_message: None,
        topics: vec![DescribeQuorumTopicResult {
            topic_name: Str::from_static(METADATA_TOPIC_NAME),
            partitions: vec![partition],
        }],
        nodes: match knows_nodes {
            true => vec![QuorumNode {
                node_id: config.node_id,
                listeners: listener.collect(),
            }],
            false => Vec::new(),
        },
        ..Default::default()
    }
}

/// A request that Kafka takes names the one partition of the metadata log and nothing else.
fn is_the_metadata_log(topics: &[DescribeQuorumTopic]) -> bool {
    let [topic] = topics else { return false };
    topic.topic_name == METADATA_TOPIC_NAME
        && matches!(topic.partitions.as_slice(), [one] if one.partition_index == 0)
}

fn unknown(topic: DescribeQuorumTopic, messages: &Messages) -> DescribeQuorumTopicResult {
    let code = ErrorCode::UnknownTopicOrPartition;
    let partitions = topic.partitions.into_iter();
    let partitions = partitions.map(|partition| DescribeQuorumPartitionResult {
        partition_index: partition.partition_index,
        error_code: code.code(),
        error_message: messages.say(|| Str::from_static(code.message())),
        ..Default::default()
    });
    DescribeQuorumTopicResult {
        topic_name: topic.topic_name,
        partitions: partitions.collect(),
    }
}
