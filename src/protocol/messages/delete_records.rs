//! DeleteRecords: moves the log start of partitions.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for the records below an offset to be deleted.
    request DeleteRecordsRequest (DeleteRecords) versions 0..=2 flexible 2 {
        topics: Vec<DeleteRecordsTopic>,
        timeout_ms: i32,
    }

    /// The partitions of one topic.
    struct DeleteRecordsTopic {
        name: Str,
        partitions: Vec<DeleteRecordsPartition>,
    }

    /// What is deleted of one partition.
    struct DeleteRecordsPartition {
        partition_index: i32,
        /// The new log start offset; -1: the high watermark.
        offset: i64,
    }

    /// What became of each partition.
    response DeleteRecordsResponse (DeleteRecords) versions 0..=2 flexible 2 {
        throttle_time_ms: i32,
        topics: Vec<DeleteRecordsTopicResult>,
    }

    /// The partitions of one topic.
    struct DeleteRecordsTopicResult {
        name: Str,
        partitions: Vec<DeleteRecordsPartitionResult>,
    }

    /// What became of one partition.
    struct DeleteRecordsPartitionResult {
        partition_index: i32,
        /// The lowest log start offset of the replicas; -1 with an error.
        low_watermark: i64,
        error_code: i16,
    }
}
