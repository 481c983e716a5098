//! DescribeProducers: the producers that partitions know (KIP-664).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for the producers of partitions.
    request DescribeProducersRequest (DescribeProducers) versions 0..=0 flexible 0 {
        topics: Vec<DescribeProducersTopic>,
    }

    /// The partitions of one topic (Kafka's `TopicRequest`).
    struct DescribeProducersTopic {
        name: Str,
        partition_indexes: Vec<i32>,
    }

    /// The producers.
    response DescribeProducersResponse (DescribeProducers) versions 0..=0 flexible 0 {
        throttle_time_ms: i32,
        topics: Vec<DescribeProducersTopicResult>,
    }

    /// The partitions of one topic (Kafka's `TopicResponse`).
    struct DescribeProducersTopicResult {
        name: Str,
        partitions: Vec<DescribeProducersPartitionResult>,
    }

    /// The producers of one partition (Kafka's `PartitionResponse`).
    struct DescribeProducersPartitionResult {
        partition_index: i32,
        error_code: i16,
        error_message: Option<Str>,
        active_producers: Vec<DescribeProducersState>,
    }

    /// What the partition knows of one producer (Kafka's `ProducerState`).
    struct DescribeProducersState {
        producer_id: i64,
        producer_epoch: i32,
        /// -1: it has none.
        last_sequence: i32 => { default: -1 },
        /// -1: it has none.
        last_timestamp: i64 => { default: -1 },
        coordinator_epoch: i32,
        /// -1: no transaction is open.
        current_txn_start_offset: i64 => { default: -1 },
    }
}
