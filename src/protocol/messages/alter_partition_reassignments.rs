//! AlterPartitionReassignments: moves partitions to other brokers, or stops that (KIP-455).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for reassignments.
    request AlterPartitionReassignmentsRequest (AlterPartitionReassignments) versions 0..=1 flexible 0 {
        timeout_ms: i32 => { default: 60_000 },
        allow_replication_factor_change: bool => { versions: 1.., default: true },
        topics: Vec<ReassignableTopic>,
    }

    /// Partitions of one topic.
    struct ReassignableTopic {
        name: Str,
        partitions: Vec<ReassignablePartition>,
    }

    /// One partition.
    struct ReassignablePartition {
        partition_index: i32,
        /// The brokers that are to hold it; null: stop a reassignment that is under way.
        replicas: Option<Vec<i32>> => { default: None },
    }

    /// What came of it.
    response AlterPartitionReassignmentsResponse (AlterPartitionReassignments) versions 0..=1 flexible 0 {
        throttle_time_ms: i32,
        allow_replication_factor_change: bool => { versions: 1.., default: true, ignorable },
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        responses: Vec<ReassignableTopicResponse>,
    }

    /// Partitions of one topic.
    struct ReassignableTopicResponse {
        name: Str,
        partitions: Vec<ReassignablePartitionResponse>,
    }

    /// One partition.
    struct ReassignablePartitionResponse {
        partition_index: i32,
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
    }
}
