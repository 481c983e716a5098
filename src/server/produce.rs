//! Produce.

use super::lookup::Topics;
use super::respond::{Answer, Asked};
use crate::partition::{Acks, RecordRefusal};
use crate::protocol::batch::{BatchHeader, Compression};
use crate::protocol::messages::{
    BatchIndexAndErrorMessage, LegacyProduceRequest, PartitionProduceResponse, ProduceRequest,
    ProduceResponse, TopicProduceResponse,
};
use crate::protocol::{ErrorCode, Records, Str};
use crate::shard::{ProduceFault, ProducePart, Shard};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Hands the batches to their owners, in order, and returns what answers. Only Kafka's
/// admin tools, known by their client id, may write the broker's own topics.
pub(super) async fn start(
    shard: &Shard,
    asked: Asked,
    client_id: Option<&str>,
    request: ProduceRequest,
) -> Pin<Box<dyn Future<Output = Option<Answer>>>> {
    let mut response = ProduceResponse::default();
    let Some(acks) = acks_of(request.acks) else {
        let response = refuse_all(&request, ErrorCode::InvalidRequiredAcks);
        return Box::pin(async move { asked.answer_or_close(&response) });
    };
    if request.transactional_id.is_some() {
        // Transactions are not built, so none can be open.
        if matches!(acks, Acks::None) {
            // Nobody reads an answer to acks=0; a closed connection is one.
            return Box::pin(async { None });
        }
        let response = refuse_all(&request, ErrorCode::InvalidTxnState);
        return Box::pin(async move { asked.answer_or_close(&response) });
    }
    let topics = Topics::now(shard);
    let mut parts = Vec::new();
    let mut places = Vec::new();
    for topic in request.topic_data {
        let by_id = asked.api_version >= 13;
        let found = topics.find(by_id, &topic.name, &topic.topic_id);
        let mut partition_responses = Vec::with_capacity(topic.partition_data.len());
        for partition in topic.partition_data {
            let mut answer = refused(partition.index, ErrorCode::None, None);
            match found.partition(partition.index) {
                Err(code) => answer.error_code = code.code(),
                Ok(_) if found.is_internal() && client_id != Some(ADMIN_CLIENT_ID) => {
                    let message = "the broker's own topics are written by the broker alone";
                    answer.error_code = ErrorCode::InvalidTopicException.code();
                    answer.error_message =
                        (asked.api_version >= 8).then(|| Str::from_static(message));
                }
                Ok(_) if asked.api_version < 7 && is_zstd(partition.records.as_ref()) => {
                    let message = "zstd needs Produce version 7 (KIP-110); use a newer client";
                    answer.error_code = ErrorCode::UnsupportedCompressionType.code();
                    answer.error_message = Some(Str::from_static(message));
                }
                Ok(key) => {
                    places.push((response.responses.len(), partition_responses.len()));
                    parts.push(ProducePart {
                        key,
                        records: partition
                            .records
                            .map(|records| records.to_bytes())
                            .unwrap_or_else(Bytes::new),
                    });
                }
            }
            partition_responses.push(answer);
        }
        response.responses.push(TopicProduceResponse {
            name: topic.name,
            topic_id: topic.topic_id,
            partition_responses,
        });
    }
    let timeout = Duration::from_millis(request.timeout_ms.max(0) as u64);
    let done = shard.start_produce(parts, acks, timeout).await;
    Box::pin(async move {
        for ((topic, partition), result) in places.into_iter().zip(done.await) {
            let answer = &mut response.responses[topic].partition_responses[partition];
            match result {
                Ok(produced) => {
                    answer.base_offset = produced.base_offset;
                    answer.log_append_time_ms = produced.log_append_time_ms;
                    answer.log_start_offset = produced.log_start_offset;
                }
                Err(ProduceFault {
                    code,
                    message,
                    record_errors,
                }) => {
                    answer.error_code = code.code();
                    if !message.is_empty() && asked.api_version >= 8 {
                        answer.error_message = Some(Str::from(message));
                        answer.record_errors = record_errors.iter().map(record_error).collect();
                    }
                }
            }
        }
        if matches!(acks, Acks::None) {
            let failed = response
                .responses
                .iter()
                .flat_map(|topic| &topic.partition_responses)
                .any(|answer| answer.error_code != 0);
            // A closed connection is the only way to tell: the client then asks for
            // fresh metadata.
            return (!failed).then(Answer::nothing);
        }
        asked.answer_or_close(&response)
    })
}

/// The answer to a version before 3, which is offered (librdkafka stops compressing
/// otherwise) and not served. acks=0 has no answer but a closed connection.
pub(super) fn too_old(
    asked: Asked,
    request: &LegacyProduceRequest,
) -> Pin<Box<dyn Future<Output = Option<Answer>>>> {
    let response = (request.acks != 0).then(|| request.unsupported());
    Box::pin(async move { asked.answer_or_close(&response?) })
}

fn refuse_all(request: &ProduceRequest, code: ErrorCode) -> ProduceResponse {
    ProduceResponse {
        responses: request
            .topic_data
            .iter()
            .map(|topic| TopicProduceResponse {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partition_responses: topic
                    .partition_data
                    .iter()
                    .map(|partition| refused(partition.index, code, None))
                    .collect(),
            })
            .collect(),
        ..Default::default()
    }
}

fn refused(index: i32, code: ErrorCode, message: Option<Str>) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index,
        error_code: code.code(),
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        error_message: message,
        ..Default::default()
    }
}

fn record_error(refusal: &RecordRefusal) -> BatchIndexAndErrorMessage {
    BatchIndexAndErrorMessage {
        batch_index: refusal.index,
        batch_index_error_message: Some(Str::from(refusal.reason.to_string())),
    }
}

/// A client that sends zstd in a version that does not have it would not be able to
/// read it back.
fn is_zstd(records: Option<&Records>) -> bool {
    records
        .and_then(|records| BatchHeader::parse(&records.to_bytes()).ok())
        .is_some_and(|header| header.attributes.compression() == Ok(Compression::Zstd))
}

fn acks_of(acks: i16) -> Option<Acks> {
    match acks {
        0 => Some(Acks::None),
        1 => Some(Acks::Leader),
        -1 => Some(Acks::All),
        _ => None,
    }
}

/// What Kafka's admin tools call themselves.
const ADMIN_CLIENT_ID: &str = "__admin_client";
