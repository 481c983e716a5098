//! OffsetFetch: how far groups have read; one group before version 8.
//!
//! Version 10 (topic ids) is unstable in Kafka 4.1: no client sends it.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for offsets.
    request OffsetFetchRequest (OffsetFetch) versions 1..=9 flexible 6 {
        group_id: Str => { versions: ..=7 },
        /// Null: all of the group.
        topics: Option<Vec<OffsetFetchRequestTopic>> => {
            versions: ..=7, nullable: 2.., default: Some(Vec::new())
        },
        groups: Vec<OffsetFetchRequestGroup> => { versions: 8.. },
        require_stable: bool => { versions: 7.. },
    }

    /// A topic.
    struct OffsetFetchRequestTopic {
        name: Str,
        partition_indexes: Vec<i32>,
    }

    /// A group.
    struct OffsetFetchRequestGroup {
        group_id: Str,
        member_id: Option<Str> => { versions: 9.., ignorable },
        member_epoch: i32 => { versions: 9.., default: -1, ignorable },
        /// Null: all of the group.
        topics: Option<Vec<OffsetFetchRequestTopics>> => { default: Some(Vec::new()) },
    }

    /// A topic of a group.
    struct OffsetFetchRequestTopics {
        name: Str,
        partition_indexes: Vec<i32>,
    }

    /// The offsets.
    response OffsetFetchResponse (OffsetFetch) versions 1..=9 flexible 6 {
        throttle_time_ms: i32 => { versions: 3.., ignorable },
        topics: Vec<OffsetFetchResponseTopic> => { versions: ..=7 },
        error_code: i16 => { versions: 2..=7, ignorable },
        groups: Vec<OffsetFetchResponseGroup> => { versions: 8.. },
    }

    /// A topic.
    struct OffsetFetchResponseTopic {
        name: Str,
        partitions: Vec<OffsetFetchResponsePartition>,
    }

    /// A partition.
    struct OffsetFetchResponsePartition {
        partition_index: i32,
        committed_offset: i64,
        committed_leader_epoch: i32 => { versions: 5.., default: -1, ignorable },
        metadata: Option<Str> => { default: Some(Str::default()) },
        error_code: i16,
    }

    /// A group.
    struct OffsetFetchResponseGroup {
        group_id: Str,
        topics: Vec<OffsetFetchResponseTopics>,
        error_code: i16,
    }

    /// A topic of a group.
    struct OffsetFetchResponseTopics {
        name: Str,
        partitions: Vec<OffsetFetchResponsePartitions>,
    }

    /// A partition of a group's topic.
    struct OffsetFetchResponsePartitions {
        partition_index: i32,
        committed_offset: i64,
        committed_leader_epoch: i32 => { default: -1 },
        metadata: Option<Str> => { default: Some(Str::default()) },
        error_code: i16,
    }
}
