//! Fetch, without sessions: every answer has session id 0, so clients keep sending
//! the full list (KIP-227 allows it).

use super::produce::has_partition;
use super::respond::{Answer, Asked};
use crate::partition::Reader;
use crate::protocol::messages::{
    FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData,
};
use crate::protocol::{ErrorCode, Records};
use crate::runtime::local::{oneshot, OneshotReceiver, OneshotSender};
use crate::shard::{FetchPart, FetchPlan, Hurry, PartitionKey, Shard};
use std::cell::RefCell;
use std::time::Duration;

/// The fetches of one connection get memory for their answers in the order of the
/// requests. Otherwise a later one could hold the memory that an earlier one waits
/// for, and could not be sent before it.
#[derive(Default)]
pub(super) struct Turns {
    last: RefCell<Option<OneshotReceiver<()>>>,
}

/// One fetch's place among its connection's.
pub(super) struct Turn {
    before: Option<OneshotReceiver<()>>,
    /// Dropped when the next one may go on.
    _after: OneshotSender<()>,
}

impl Turns {
    /// Takes the place after all that were taken.
    pub fn next(&self) -> Turn {
        let (after, next) = oneshot();
        Turn {
            before: self.last.borrow_mut().replace(next),
            _after: after,
        }
    }
}

impl Turn {
    async fn come(&mut self) {
        if let Some(before) = self.before.take() {
            // Resolves when the turn before it is dropped; nothing is ever sent.
            before.await;
        }
    }
}

/// Reads and answers; `None` closes the connection.
pub(super) async fn run(
    shard: Shard,
    asked: Asked,
    request: FetchRequest,
    mut turn: Turn,
    hurry: Hurry,
) -> Option<Answer> {
    turn.come().await;
    if let Some(code) = refusal(&request) {
        return asked.answer_or_close(&FetchResponse {
            error_code: code.code(),
            ..Default::default()
        });
    }
    let (mut response, parts, places) = plan_of(&shard, asked, &request);
    let unknown = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
        .any(|partition| partition.error_code != 0);
    let wait_ms = if unknown {
        0
    } else {
        // A connection that waits looks idle to the network between, too.
        u64::from(request.max_wait_ms.max(0) as u32).min(shard.config().connections_max_idle_ms)
    };
    let plan = FetchPlan {
        parts,
        bytes_max: clamp(request.max_bytes).min(shard.config().fetch_max_bytes as usize),
        bytes_min: clamp(request.min_bytes),
        wait_max: Duration::from_millis(wait_ms),
        reader: match request.isolation_level {
            0 => Reader::Consumer,
            _ => Reader::ReadCommitted,
        },
        hurry,
    };
    let fetched = shard.fetch(plan).await?;
    let mut bytes = 0;
    for ((topic, partition), outcome) in places.into_iter().zip(fetched.outcomes) {
        let answer = &mut response.responses[topic].partitions[partition];
        match outcome {
            Ok(outcome) => {
                bytes += outcome.bytes as u64;
                answer.high_watermark = outcome.high_watermark;
                answer.last_stable_offset = outcome.last_stable_offset;
                answer.log_start_offset = outcome.log_start_offset;
                answer.records = Some(outcome.slices.into_iter().collect());
            }
            Err(code) => answer.error_code = code.code(),
        }
    }
    shard.counters().fetch_bytes.add(bytes);
    let mut answer = asked.answer_or_close(&response)?;
    answer.charge = Some(fetched.charge);
    Some(answer)
}

fn refusal(request: &FetchRequest) -> Option<ErrorCode> {
    if request.session_id != 0 {
        return Some(ErrorCode::FetchSessionIdNotFound);
    }
    let replica = request.replica_id.max(request.replica_state.replica_id);
    if replica >= 0 {
        // Follower fetches come with replication.
        return Some(ErrorCode::InvalidRequest);
    }
    None
}

type Places = Vec<(usize, usize)>;

fn plan_of(
    shard: &Shard,
    asked: Asked,
    request: &FetchRequest,
) -> (FetchResponse, Vec<FetchPart>, Places) {
    let image = shard.image();
    let by_id = asked.api_version >= 13;
    let mut response = FetchResponse::default();
    let mut parts = Vec::new();
    let mut places = Vec::new();
    for topic in &request.topics {
        let found = image.as_ref().and_then(|image| {
            if by_id {
                image.topic_by_id(&topic.topic_id)
            } else {
                image.topic(&topic.topic)
            }
        });
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let mut answer = PartitionData {
                partition_index: partition.partition,
                high_watermark: -1,
                last_stable_offset: -1,
                log_start_offset: -1,
                records: Some(Records::default()),
                ..Default::default()
            };
            match found {
                None if by_id => answer.error_code = ErrorCode::UnknownTopicId.code(),
                Some(found) if has_partition(found.partitions.len(), partition.partition) => {
                    places.push((response.responses.len(), partitions.len()));
                    parts.push(FetchPart {
                        key: PartitionKey {
                            topic_id: found.id,
                            index: partition.partition,
                        },
                        offset: partition.fetch_offset,
                        current_leader_epoch: partition.current_leader_epoch,
                        bytes_max: clamp(partition.partition_max_bytes),
                    });
                }
                _ => answer.error_code = ErrorCode::UnknownTopicOrPartition.code(),
            }
            partitions.push(answer);
        }
        response.responses.push(FetchableTopicResponse {
            topic: topic.topic.clone(),
            topic_id: topic.topic_id,
            partitions,
        });
    }
    (response, parts, places)
}

fn clamp(bytes: i32) -> usize {
    bytes.max(0) as usize
}
