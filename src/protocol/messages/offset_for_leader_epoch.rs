//! OffsetForLeaderEpoch: where a leader epoch ends (KIP-101, KIP-320).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks where epochs end.
    request OffsetForLeaderEpochRequest (OffsetForLeaderEpoch) versions 2..=4 flexible 4 {
        /// The follower that asks; -1: a consumer, -2: it does not say.
        replica_id: i32 => { versions: 3.., default: -2, ignorable },
        topics: Vec<OffsetForLeaderTopic>,
    }

    /// The partitions of one topic.
    struct OffsetForLeaderTopic {
        topic: Str,
        partitions: Vec<OffsetForLeaderPartition>,
    }

    /// The epoch that is asked for.
    struct OffsetForLeaderPartition {
        partition: i32,
        /// The epoch that the asker knows, which fences it; -1: none.
        current_leader_epoch: i32 => { default: -1 },
        leader_epoch: i32,
    }

    /// Where they end.
    response OffsetForLeaderEpochResponse (OffsetForLeaderEpoch) versions 2..=4 flexible 4 {
        throttle_time_ms: i32,
        topics: Vec<OffsetForLeaderTopicResult>,
    }

    /// The partitions of one topic.
    struct OffsetForLeaderTopicResult {
        topic: Str,
        partitions: Vec<OffsetForLeaderPartitionResult>,
    }

    /// Where the epoch ends (Kafka's `EpochEndOffset`, a name that Fetch has too).
    struct OffsetForLeaderPartitionResult {
        error_code: i16,
        partition: i32,
        /// The largest epoch up to the one asked for; -1: none.
        leader_epoch: i32 => { default: -1 },
        /// The offset behind its last record; -1: unknown.
        end_offset: i64 => { default: -1 },
    }
}
