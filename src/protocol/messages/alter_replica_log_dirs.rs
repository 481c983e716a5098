//! AlterReplicaLogDirs: moves replicas between data directories of one broker (KIP-113).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for moves.
    request AlterReplicaLogDirsRequest (AlterReplicaLogDirs) versions 1..=2 flexible 2 {
        dirs: Vec<AlterReplicaLogDir>,
    }

    /// Where to.
    struct AlterReplicaLogDir {
        path: Str,
        topics: Vec<AlterReplicaLogDirTopic>,
    }

    /// Partitions of one topic.
    struct AlterReplicaLogDirTopic {
        name: Str,
        partitions: Vec<i32>,
    }

    /// What came of it.
    response AlterReplicaLogDirsResponse (AlterReplicaLogDirs) versions 1..=2 flexible 2 {
        throttle_time_ms: i32,
        results: Vec<AlterReplicaLogDirTopicResult>,
    }

    /// Partitions of one topic.
    struct AlterReplicaLogDirTopicResult {
        topic_name: Str,
        partitions: Vec<AlterReplicaLogDirPartitionResult>,
    }

    /// One partition.
    struct AlterReplicaLogDirPartitionResult {
        partition_index: i32,
        error_code: i16,
    }
}
