//! Metadata: brokers, topics, partitions and their leaders.

use uuid::Uuid;

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks about topics.
    request MetadataRequest (Metadata) versions 0..=13 flexible 9 {
        /// Null: all topics. Empty: none, but in version 0 all.
        topics: Option<Vec<MetadataRequestTopic>> => { nullable: 1.., default: Some(Vec::new()) },
        allow_auto_topic_creation: bool => { versions: 4.., default: true },
        include_cluster_authorized_operations: bool => { versions: 8..=10 },
        include_topic_authorized_operations: bool => { versions: 8.. },
    }

    /// A topic, by id or by name.
    struct MetadataRequestTopic {
        topic_id: Uuid => { versions: 10.., ignorable },
        name: Option<Str> => { nullable: 10.., default: Some(Str::default()) },
    }

    /// The answer.
    response MetadataResponse (Metadata) versions 0..=13 flexible 9 {
        throttle_time_ms: i32 => { versions: 3.., ignorable },
        brokers: Vec<MetadataResponseBroker>,
        cluster_id: Option<Str> => { versions: 2.., ignorable },
        controller_id: i32 => { versions: 1.., default: -1, ignorable },
        topics: Vec<MetadataResponseTopic>,
        cluster_authorized_operations: i32 => { versions: 8..=10, default: i32::MIN },
        error_code: i16 => { versions: 13.., ignorable },
    }

    /// A broker.
    struct MetadataResponseBroker {
        node_id: i32,
        host: Str,
        port: i32,
        rack: Option<Str> => { versions: 1.., ignorable },
    }

    /// A topic.
    struct MetadataResponseTopic {
        error_code: i16,
        name: Option<Str> => { nullable: 12.., default: Some(Str::default()) },
        topic_id: Uuid => { versions: 10.., ignorable },
        is_internal: bool => { versions: 1.., ignorable },
        partitions: Vec<MetadataResponsePartition>,
        topic_authorized_operations: i32 => { versions: 8.., default: i32::MIN },
    }

    /// A partition.
    struct MetadataResponsePartition {
        error_code: i16,
        partition_index: i32,
        leader_id: i32,
        leader_epoch: i32 => { versions: 7.., default: -1, ignorable },
        replica_nodes: Vec<i32>,
        isr_nodes: Vec<i32>,
        offline_replicas: Vec<i32> => { versions: 5.., ignorable },
    }
}
