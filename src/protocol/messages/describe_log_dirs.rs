//! DescribeLogDirs: what each data directory holds, and the room in it (KIP-113, KIP-827).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for data directories.
    request DescribeLogDirsRequest (DescribeLogDirs) versions 1..=4 flexible 2 {
        /// Null: everything.
        topics: Option<Vec<DescribableLogDirTopic>> => { default: Some(Vec::new()) },
    }

    /// Partitions of one topic.
    struct DescribableLogDirTopic {
        topic: Str,
        partitions: Vec<i32>,
    }

    /// The data directories.
    response DescribeLogDirsResponse (DescribeLogDirs) versions 1..=4 flexible 2 {
        throttle_time_ms: i32,
        error_code: i16 => { versions: 3.., ignorable },
        results: Vec<DescribeLogDirsResult>,
    }

    /// One data directory.
    struct DescribeLogDirsResult {
        error_code: i16,
        log_dir: Str,
        topics: Vec<DescribeLogDirsTopic>,
        /// Of the file system; -1: unknown.
        total_bytes: i64 => { versions: 4.., default: -1, ignorable },
        /// What may still be written there; -1: unknown.
        usable_bytes: i64 => { versions: 4.., default: -1, ignorable },
    }

    /// Partitions of one topic.
    struct DescribeLogDirsTopic {
        name: Str,
        partitions: Vec<DescribeLogDirsPartition>,
    }

    /// A replica in the directory.
    struct DescribeLogDirsPartition {
        partition_index: i32,
        /// In bytes.
        partition_size: i64,
        /// How far it lags behind the high watermark, or, of a future replica, behind the current one.
        offset_lag: i64,
        is_future_key: bool,
    }
}
