//! DescribeQuorum: who votes in the metadata quorum, and how far each is (KIP-595, KIP-853).

use crate::protocol::codec::{messages, Str};
use uuid::Uuid;

messages! {
    /// Asks for a quorum.
    request DescribeQuorumRequest (DescribeQuorum) versions 0..=2 flexible 0 {
        topics: Vec<DescribeQuorumTopic>,
    }

    /// Partitions of one topic (Kafka's `TopicData`).
    struct DescribeQuorumTopic {
        topic_name: Str,
        partitions: Vec<DescribeQuorumPartition>,
    }

    /// A partition (Kafka's `PartitionData`).
    struct DescribeQuorumPartition {
        partition_index: i32,
    }

    /// The quorum.
    response DescribeQuorumResponse (DescribeQuorum) versions 0..=2 flexible 0 {
        error_code: i16,
        error_message: Option<Str> => {
            versions: 2.., nullable: 2.., default: Some(Str::default()), ignorable
        },
        topics: Vec<DescribeQuorumTopicResult>,
        nodes: Vec<QuorumNode> => { versions: 2.. },
    }

    /// Partitions of one topic (Kafka's `TopicData`).
    struct DescribeQuorumTopicResult {
        topic_name: Str,
        partitions: Vec<DescribeQuorumPartitionResult>,
    }

    /// A partition (Kafka's `PartitionData`).
    struct DescribeQuorumPartitionResult {
        partition_index: i32,
        error_code: i16,
        error_message: Option<Str> => {
            versions: 2.., nullable: 2.., default: Some(Str::default()), ignorable
        },
        /// -1: unknown.
        leader_id: i32,
        leader_epoch: i32,
        high_watermark: i64,
        current_voters: Vec<QuorumReplicaState>,
        observers: Vec<QuorumReplicaState>,
    }

    /// How far one replica is (Kafka's `ReplicaState`).
    struct QuorumReplicaState {
        replica_id: i32,
        replica_directory_id: Uuid => { versions: 2.. },
        /// -1: unknown.
        log_end_offset: i64,
        /// Milliseconds since the Unix epoch, by the leader's clock; -1: unknown.
        last_fetch_timestamp: i64 => { versions: 1.., default: -1, ignorable },
        /// When it last had all that the leader had; -1: unknown.
        last_caught_up_timestamp: i64 => { versions: 1.., default: -1, ignorable },
    }

    /// Where a voter listens (Kafka's `Node`).
    struct QuorumNode {
        node_id: i32 => { versions: 2.. },
        listeners: Vec<QuorumListener> => { versions: 2.. },
    }

    /// One listener (Kafka's `Listener`).
    struct QuorumListener {
        name: Str => { versions: 2.. },
        host: Str => { versions: 2.. },
        port: u16 => { versions: 2.. },
    }
}
