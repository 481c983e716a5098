//! Fetch: reads record batches, for consumers and followers.

use uuid::Uuid;

use crate::protocol::codec::{messages, Records, Str};

messages! {
    /// Asks for record batches.
    request FetchRequest (Fetch) versions 4..=18 flexible 12 {
        cluster_id: Option<Str> => { versions: 12.., tag: 0, ignorable },
        /// The follower that asks, or -1 for a consumer; from version 15 in `replica_state`.
        replica_id: i32 => { versions: ..=14, default: -1 },
        replica_state: ReplicaState => { versions: 15.., tag: 1 },
        max_wait_ms: i32,
        min_bytes: i32,
        max_bytes: i32 => { default: i32::MAX },
        /// 0: read_uncommitted, 1: read_committed.
        isolation_level: i8,
        /// The fetch session (KIP-227), or 0.
        session_id: i32 => { versions: 7.., ignorable },
        session_epoch: i32 => { versions: 7.., default: -1, ignorable },
        topics: Vec<FetchTopic>,
        forgotten_topics_data: Vec<ForgottenTopic> => { versions: 7.. },
        rack_id: Str => { versions: 11.., ignorable },
    }

    /// Who asks.
    struct ReplicaState {
        replica_id: i32 => { default: -1 },
        replica_epoch: i64 => { default: -1 },
    }

    /// The partitions of one topic.
    struct FetchTopic {
        topic: Str => { versions: ..=12, ignorable },
        topic_id: Uuid => { versions: 13.., ignorable },
        partitions: Vec<FetchPartition>,
    }

    /// Where to read one partition.
    struct FetchPartition {
        partition: i32,
        current_leader_epoch: i32 => { versions: 9.., default: -1, ignorable },
        fetch_offset: i64,
        /// The epoch of the last record that a follower has; -1 if it is none.
        last_fetched_epoch: i32 => { versions: 12.., default: -1 },
        log_start_offset: i64 => { versions: 5.., default: -1, ignorable },
        partition_max_bytes: i32,
        replica_directory_id: Uuid => { versions: 17.., tag: 0, ignorable },
        /// The HW that a follower knows; `i64::MAX` if it does not say.
        high_watermark: i64 => { versions: 18.., tag: 1, default: i64::MAX, ignorable },
    }

    /// Partitions that leave the fetch session.
    struct ForgottenTopic {
        topic: Str => { versions: ..=12, ignorable },
        topic_id: Uuid => { versions: 13.., ignorable },
        partitions: Vec<i32>,
    }

    /// The record batches.
    response FetchResponse (Fetch) versions 4..=18 flexible 12 {
        throttle_time_ms: i32,
        error_code: i16 => { versions: 7.., ignorable },
        session_id: i32 => { versions: 7.. },
        responses: Vec<FetchableTopicResponse>,
        /// Where the leaders are that `current_leader` names; left out of versions without it.
        node_endpoints: Vec<FetchNodeEndpoint> => { versions: 16.., tag: 0, ignorable },
    }

    /// The partitions of one topic.
    struct FetchableTopicResponse {
        topic: Str => { versions: ..=12, ignorable },
        topic_id: Uuid => { versions: 13.., ignorable },
        partitions: Vec<PartitionData>,
    }

    /// What one partition holds.
    struct PartitionData {
        partition_index: i32,
        error_code: i16,
        high_watermark: i64,
        last_stable_offset: i64 => { default: -1 },
        log_start_offset: i64 => { versions: 5.., default: -1, ignorable },
        /// Where a follower's log parts from the leader's (KIP-595).
        diverging_epoch: EpochEndOffset => { versions: 12.., tag: 0 },
        /// With NOT_LEADER_OR_FOLLOWER; left out of versions without it.
        current_leader: FetchLeaderIdAndEpoch => { versions: 12.., tag: 1, ignorable },
        snapshot_id: SnapshotId => { versions: 12.., tag: 2 },
        aborted_transactions: Option<Vec<AbortedTransaction>> => { default: Some(Vec::new()) },
        preferred_read_replica: i32 => { versions: 11.., default: -1 },
        records: Option<Records> => { default: Some(Records::new()) },
    }

    /// Where an epoch ends.
    struct EpochEndOffset {
        epoch: i32 => { default: -1 },
        end_offset: i64 => { default: -1 },
    }

    /// The leader that the client does not know yet (KIP-951).
    struct FetchLeaderIdAndEpoch {
        leader_id: i32 => { default: -1 },
        leader_epoch: i32 => { default: -1 },
    }

    /// A snapshot to start from (KIP-630).
    struct SnapshotId {
        end_offset: i64 => { default: -1 },
        epoch: i32 => { default: -1 },
    }

    /// A transaction whose records are to be left out.
    struct AbortedTransaction {
        producer_id: i64,
        first_offset: i64,
    }

    /// Where a broker is (KIP-951).
    struct FetchNodeEndpoint {
        node_id: i32,
        host: Str,
        port: i32,
        rack: Option<Str>,
    }
}
