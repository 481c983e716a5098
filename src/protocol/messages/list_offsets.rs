//! ListOffsets: finds offsets by timestamp.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for offsets.
    request ListOffsetsRequest (ListOffsets) versions 1..=10 flexible 6 {
        /// The follower that asks, or -1 for a consumer.
        replica_id: i32,
        /// 0: read_uncommitted, 1: read_committed.
        isolation_level: i8 => { versions: 2.. },
        topics: Vec<ListOffsetsTopic>,
        timeout_ms: i32 => { versions: 10.., ignorable },
    }

    /// The partitions of one topic.
    struct ListOffsetsTopic {
        name: Str,
        partitions: Vec<ListOffsetsPartition>,
    }

    /// What is asked of one partition.
    struct ListOffsetsPartition {
        partition_index: i32,
        current_leader_epoch: i32 => { versions: 4.., default: -1, ignorable },
        /// Milliseconds, or -1: latest, -2: earliest, -3: of the largest timestamp,
        /// -4: earliest local, -5: latest tiered.
        timestamp: i64,
    }

    /// The offsets.
    response ListOffsetsResponse (ListOffsets) versions 1..=10 flexible 6 {
        throttle_time_ms: i32 => { versions: 2.., ignorable },
        topics: Vec<ListOffsetsTopicResponse>,
    }

    /// The partitions of one topic.
    struct ListOffsetsTopicResponse {
        name: Str,
        partitions: Vec<ListOffsetsPartitionResponse>,
    }

    /// The offset in one partition.
    struct ListOffsetsPartitionResponse {
        partition_index: i32,
        error_code: i16,
        timestamp: i64 => { default: -1 },
        offset: i64 => { default: -1 },
        leader_epoch: i32 => { versions: 4.., default: -1 },
    }
}
