//! DescribeTopicPartitions: topics and partitions page by page, with the eligible
//! leader replicas (KIP-966).

use uuid::Uuid;

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks about topics.
    request DescribeTopicPartitionsRequest (DescribeTopicPartitions) versions 0..=0 flexible 0 {
        /// None: all topics.
        topics: Vec<DescribeTopicPartitionsTopic>,
        response_partition_limit: i32 => { default: 2000 },
        /// Where to begin.
        cursor: Option<DescribeTopicPartitionsCursor>,
    }

    /// A topic (Kafka's `TopicRequest`).
    struct DescribeTopicPartitionsTopic {
        name: Str,
    }

    /// The place of one partition among all (Kafka's `Cursor`).
    struct DescribeTopicPartitionsCursor {
        topic_name: Str,
        partition_index: i32,
    }

    /// One page.
    response DescribeTopicPartitionsResponse (DescribeTopicPartitions) versions 0..=0 flexible 0 {
        throttle_time_ms: i32,
        topics: Vec<DescribeTopicPartitionsResponseTopic>,
        /// Where the next page begins; null: this was the last.
        next_cursor: Option<DescribeTopicPartitionsCursor>,
    }

    /// A topic.
    struct DescribeTopicPartitionsResponseTopic {
        error_code: i16,
        name: Option<Str> => { default: Some(Str::default()) },
        topic_id: Uuid,
        is_internal: bool,
        partitions: Vec<DescribeTopicPartitionsResponsePartition>,
        /// A bit for each operation (KIP-430); `i32::MIN`: it can't be told.
        topic_authorized_operations: i32 => { default: i32::MIN },
    }

    /// A partition.
    struct DescribeTopicPartitionsResponsePartition {
        error_code: i16,
        partition_index: i32,
        leader_id: i32,
        leader_epoch: i32 => { default: -1 },
        replica_nodes: Vec<i32>,
        isr_nodes: Vec<i32>,
        eligible_leader_replicas: Option<Vec<i32>>,
        last_known_elr: Option<Vec<i32>>,
        offline_replicas: Vec<i32>,
    }
}
