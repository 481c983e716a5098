//! ListPartitionReassignments: which partitions are being moved (KIP-455).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for reassignments.
    request ListPartitionReassignmentsRequest (ListPartitionReassignments) versions 0..=0 flexible 0 {
        timeout_ms: i32 => { default: 60_000 },
        /// Null: all.
        topics: Option<Vec<ListPartitionReassignmentsTopics>> => { default: None },
    }

    /// Partitions of one topic.
    struct ListPartitionReassignmentsTopics {
        name: Str,
        partition_indexes: Vec<i32>,
    }

    /// The reassignments.
    response ListPartitionReassignmentsResponse (ListPartitionReassignments) versions 0..=0 flexible 0 {
        throttle_time_ms: i32,
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        topics: Vec<OngoingTopicReassignment>,
    }

    /// Those of one topic.
    struct OngoingTopicReassignment {
        name: Str,
        partitions: Vec<OngoingPartitionReassignment>,
    }

    /// One.
    struct OngoingPartitionReassignment {
        partition_index: i32,
        replicas: Vec<i32>,
        adding_replicas: Vec<i32>,
        removing_replicas: Vec<i32>,
    }
}
