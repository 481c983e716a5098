//! DescribeProducers (KIP-664): what partitions know of idempotent producers, from the
//! state of their logs.
//!
//! The answer is bounded: partitions that would bring it beyond
//! [`PRODUCERS_PER_ANSWER_MAX`] producers get INVALID_REQUEST, to be asked for again by
//! themselves.

use super::lookup::Topics;
use super::respond::{Answer, Asked, BadRequest};
use crate::protocol::messages::{
    DescribeProducersPartitionResult, DescribeProducersRequest, DescribeProducersResponse,
    DescribeProducersState, DescribeProducersTopicResult,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;
use crate::storage::{ProducerInfo, ProducerStates};

pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: DescribeProducersRequest,
) -> Result<Answer, BadRequest> {
    let topics = Topics::now(shard);
    let mut response = DescribeProducersResponse::default();
    let mut keys = Vec::new();
    let mut places = Vec::new();
    for topic in request.topics {
        let found = topics.by_name(&topic.name);
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for index in topic.partition_indexes {
            let mut answer = DescribeProducersPartitionResult {
                partition_index: index,
                ..Default::default()
            };
            match found.partition(index) {
                Ok(key) => {
                    places.push((response.topics.len(), partitions.len()));
                    keys.push(key);
                }
                Err(code) => refuse(&mut answer, code, None),
            }
            partitions.push(answer);
        }
        response.topics.push(DescribeProducersTopicResult {
            name: topic.name,
            partitions,
        });
    }
    let mut room = PRODUCERS_PER_ANSWER_MAX;
    for ((topic, partition), result) in places.into_iter().zip(shard.producers(keys).await) {
        let answer = &mut response.topics[topic].partitions[partition];
        match result {
            Ok(producers) => fill(answer, &producers, &mut room),
            Err(code) => refuse(answer, code, None),
        }
    }
    Ok(asked.answer(&response)?)
}

fn fill(
    answer: &mut DescribeProducersPartitionResult,
    producers: &ProducerStates,
    room: &mut usize,
) {
    let Some(left) = room.checked_sub(producers.len()) else {
        let why = format!(
            "the answer has room for {PRODUCERS_PER_ANSWER_MAX} producers; ask for fewer partitions at once"
        );
        return refuse(answer, ErrorCode::InvalidRequest, Some(why));
    };
    *room = left;
    answer.active_producers = producers.iter().map(state).collect();
}

fn state(producer: ProducerInfo) -> DescribeProducersState {
    DescribeProducersState {
        producer_id: producer.id,
        producer_epoch: i32::from(producer.epoch),
        last_sequence: producer.last.map_or(-1, |last| last.last_sequence),
        last_timestamp: producer.last.map_or(-1, |last| last.timestamp),
        coordinator_epoch: -1,
        current_txn_start_offset: -1,
    }
}

fn refuse(answer: &mut DescribeProducersPartitionResult, code: ErrorCode, why: Option<String>) {
    answer.error_code = code.code();
    answer.error_message = why.map(Str::from);
}

/// Producers that one answer describes, about 50 bytes each.
const PRODUCERS_PER_ANSWER_MAX: usize = 200_000;
