//! ElectLeaders: gives partitions back to their preferred leaders, or to any (KIP-183, KIP-460).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for elections.
    request ElectLeadersRequest (ElectLeaders) versions 0..=2 flexible 2 {
        /// 0: the preferred leader, 1: an unclean one where there is none.
        election_type: i8 => { versions: 1.. },
        /// Null: all partitions.
        topic_partitions: Option<Vec<ElectLeadersTopic>> => { default: Some(Vec::new()) },
        timeout_ms: i32 => { default: 60_000 },
    }

    /// Partitions of one topic (Kafka's `TopicPartitions`).
    struct ElectLeadersTopic {
        topic: Str,
        partitions: Vec<i32>,
    }

    /// The elections.
    response ElectLeadersResponse (ElectLeaders) versions 0..=2 flexible 2 {
        throttle_time_ms: i32,
        error_code: i16 => { versions: 1.. },
        replica_election_results: Vec<ReplicaElectionResult>,
    }

    /// Those of one topic.
    struct ReplicaElectionResult {
        topic: Str,
        partition_result: Vec<ElectLeadersPartitionResult>,
    }

    /// One (Kafka's `PartitionResult`).
    struct ElectLeadersPartitionResult {
        partition_id: i32,
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
    }
}
