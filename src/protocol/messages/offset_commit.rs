//! OffsetCommit: keeps how far a group has read.
//!
//! Version 10 (topic ids) is unstable in Kafka 4.1: no client sends it.

use crate::protocol::codec::{messages, Str};

messages! {
    /// The offsets.
    request OffsetCommitRequest (OffsetCommit) versions 2..=9 flexible 8 {
        group_id: Str,
        /// -1: from who is no member.
        generation_id_or_member_epoch: i32 => { default: -1, ignorable },
        member_id: Str => { ignorable },
        group_instance_id: Option<Str> => { versions: 7.. },
        retention_time_ms: i64 => { versions: ..=4, default: -1, ignorable },
        topics: Vec<OffsetCommitRequestTopic>,
    }

    /// A topic.
    struct OffsetCommitRequestTopic {
        name: Str,
        partitions: Vec<OffsetCommitRequestPartition>,
    }

    /// A partition.
    struct OffsetCommitRequestPartition {
        partition_index: i32,
        committed_offset: i64,
        committed_leader_epoch: i32 => { versions: 6.., default: -1, ignorable },
        committed_metadata: Option<Str> => { default: Some(Str::default()) },
    }

    /// The answer.
    response OffsetCommitResponse (OffsetCommit) versions 2..=9 flexible 8 {
        throttle_time_ms: i32 => { versions: 3.., ignorable },
        topics: Vec<OffsetCommitResponseTopic>,
    }

    /// A topic.
    struct OffsetCommitResponseTopic {
        name: Str,
        partitions: Vec<OffsetCommitResponsePartition>,
    }

    /// A partition.
    struct OffsetCommitResponsePartition {
        partition_index: i32,
        error_code: i16,
    }
}
