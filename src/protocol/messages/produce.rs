//! Produce: appends record batches.

use uuid::Uuid;

use crate::protocol::codec::{messages, Records, Str};
use crate::protocol::ErrorCode;

messages! {
    /// Appends record batches.
    request ProduceRequest (Produce) versions 3..=13 flexible 9 {
        transactional_id: Option<Str>,
        /// 0: no answer, 1: the leader has it, -1: all in-sync replicas have it.
        acks: i16,
        timeout_ms: i32,
        topic_data: Vec<TopicProduceData>,
    }

    /// The partitions of one topic.
    struct TopicProduceData {
        name: Str => { versions: ..=12, ignorable },
        topic_id: Uuid => { versions: 13.., ignorable },
        partition_data: Vec<PartitionProduceData>,
    }

    /// The records for one partition.
    struct PartitionProduceData {
        index: i32,
        records: Option<Records> => { default: Some(Records::new()) },
    }

    /// What became of each partition's records. Versions 0-2 answer a
    /// [`LegacyProduceRequest`] and only ever carry an error.
    response ProduceResponse (Produce) versions 0..=13 flexible 9 {
        responses: Vec<TopicProduceResponse>,
        throttle_time_ms: i32 => { versions: 1.., ignorable },
        /// Where the leaders are that `current_leader` names; left out of versions without it.
        node_endpoints: Vec<ProduceNodeEndpoint> => { versions: 10.., tag: 0, ignorable },
    }

    /// The partitions of one topic.
    struct TopicProduceResponse {
        name: Str => { versions: ..=12, ignorable },
        topic_id: Uuid => { versions: 13.., ignorable },
        partition_responses: Vec<PartitionProduceResponse>,
    }

    /// What became of one partition's records.
    struct PartitionProduceResponse {
        index: i32,
        error_code: i16,
        base_offset: i64,
        log_append_time_ms: i64 => { versions: 2.., default: -1, ignorable },
        log_start_offset: i64 => { versions: 5.., default: -1, ignorable },
        record_errors: Vec<BatchIndexAndErrorMessage> => { versions: 8.., ignorable },
        error_message: Option<Str> => { versions: 8.., ignorable },
        /// With NOT_LEADER_OR_FOLLOWER; left out of versions without it.
        current_leader: ProduceLeaderIdAndEpoch => { versions: 10.., tag: 0, ignorable },
    }

    /// A record for which its whole batch was refused.
    struct BatchIndexAndErrorMessage {
        batch_index: i32,
        batch_index_error_message: Option<Str>,
    }

    /// The leader that the client does not know yet (KIP-951).
    struct ProduceLeaderIdAndEpoch {
        leader_id: i32 => { default: -1 },
        leader_epoch: i32 => { default: -1 },
    }

    /// Where a broker is (KIP-951).
    struct ProduceNodeEndpoint {
        node_id: i32,
        host: Str,
        port: i32,
        rack: Option<Str>,
    }

    /// Produce 0-2: offered for librdkafka's sake and decoded only to be answered with
    /// an error for each partition. Its records are of a format that is not accepted.
    request LegacyProduceRequest (Produce) versions 0..=2 flexible 32767 {
        acks: i16,
        timeout_ms: i32,
        topic_data: Vec<LegacyTopicProduceData>,
    }

    /// The partitions of one topic.
    struct LegacyTopicProduceData {
        name: Str,
        partition_data: Vec<PartitionProduceData>,
    }
}

impl LegacyProduceRequest {
    /// The answer: UNSUPPORTED_VERSION for each partition.
    pub fn unsupported(&self) -> ProduceResponse {
        let refuse = |partition: &PartitionProduceData| PartitionProduceResponse {
            index: partition.index,
            error_code: ErrorCode::UnsupportedVersion.code(),
            base_offset: -1,
            ..Default::default()
        };
        let responses = self.topic_data.iter().map(|topic| TopicProduceResponse {
            name: topic.name.clone(),
            partition_responses: topic.partition_data.iter().map(refuse).collect(),
            ..Default::default()
        });
        ProduceResponse {
            responses: responses.collect(),
            ..Default::default()
        }
    }
}
