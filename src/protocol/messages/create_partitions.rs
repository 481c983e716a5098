//! CreatePartitions: adds partitions to topics.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for more partitions.
    request CreatePartitionsRequest (CreatePartitions) versions 0..=3 flexible 2 {
        topics: Vec<CreatePartitionsTopic>,
        timeout_ms: i32,
        validate_only: bool,
    }

    /// A topic that grows.
    struct CreatePartitionsTopic {
        name: Str,
        /// How many partitions it shall have in all.
        count: i32,
        /// The replicas of each new partition; null: the controller decides.
        assignments: Option<Vec<CreatePartitionsAssignment>> => { default: Some(Vec::new()) },
    }

    /// Where the replicas of a new partition shall be.
    struct CreatePartitionsAssignment {
        broker_ids: Vec<i32>,
    }

    /// What became of each topic.
    response CreatePartitionsResponse (CreatePartitions) versions 0..=3 flexible 2 {
        throttle_time_ms: i32,
        results: Vec<CreatePartitionsTopicResult>,
    }

    /// What became of one topic.
    struct CreatePartitionsTopicResult {
        name: Str,
        error_code: i16,
        error_message: Option<Str>,
    }
}
