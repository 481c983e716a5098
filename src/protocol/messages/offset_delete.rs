//! OffsetDelete: forgets how far a group has read.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Which offsets.
    request OffsetDeleteRequest (OffsetDelete) versions 0..=0 flexible 32767 {
        group_id: Str,
        topics: Vec<OffsetDeleteRequestTopic>,
    }

    /// A topic.
    struct OffsetDeleteRequestTopic {
        name: Str,
        partitions: Vec<OffsetDeleteRequestPartition>,
    }

    /// A partition.
    struct OffsetDeleteRequestPartition {
        partition_index: i32,
    }

    /// The answer.
    response OffsetDeleteResponse (OffsetDelete) versions 0..=0 flexible 32767 {
        error_code: i16,
        throttle_time_ms: i32 => { ignorable },
        topics: Vec<OffsetDeleteResponseTopic>,
    }

    /// A topic.
    struct OffsetDeleteResponseTopic {
        name: Str,
        partitions: Vec<OffsetDeleteResponsePartition>,
    }

    /// A partition.
    struct OffsetDeleteResponsePartition {
        partition_index: i32,
        error_code: i16,
    }
}
