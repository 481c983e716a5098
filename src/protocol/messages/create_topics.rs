//! CreateTopics.

use uuid::Uuid;

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for topics to be created.
    request CreateTopicsRequest (CreateTopics) versions 2..=7 flexible 5 {
        topics: Vec<CreatableTopic>,
        timeout_ms: i32 => { default: 60_000 },
        validate_only: bool,
    }

    /// A topic to create.
    struct CreatableTopic {
        name: Str,
        /// -1: the default (KIP-464), or as the assignments have it.
        num_partitions: i32,
        /// -1: the default (KIP-464), or as the assignments have it.
        replication_factor: i16,
        assignments: Vec<CreatableReplicaAssignment>,
        configs: Vec<CreatableTopicConfig>,
    }

    /// Where the replicas of a partition shall be.
    struct CreatableReplicaAssignment {
        partition_index: i32,
        broker_ids: Vec<i32>,
    }

    /// A setting of the topic.
    struct CreatableTopicConfig {
        name: Str,
        value: Option<Str> => { default: Some(Str::default()) },
    }

    /// What became of each topic.
    response CreateTopicsResponse (CreateTopics) versions 2..=7 flexible 5 {
        throttle_time_ms: i32,
        topics: Vec<CreatableTopicResult>,
    }

    /// What became of one topic.
    struct CreatableTopicResult {
        name: Str,
        topic_id: Uuid => { versions: 7.., ignorable },
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        topic_config_error_code: i16 => { versions: 5.., tag: 0, ignorable },
        num_partitions: i32 => { versions: 5.., default: -1, ignorable },
        replication_factor: i16 => { versions: 5.., default: -1, ignorable },
        configs: Option<Vec<CreatableTopicConfigs>> => {
            versions: 5.., default: Some(Vec::new()), ignorable
        },
    }

    /// A setting that the topic has now.
    struct CreatableTopicConfigs {
        name: Str,
        value: Option<Str> => { default: Some(Str::default()) },
        read_only: bool,
        config_source: i8 => { default: -1 },
        is_sensitive: bool,
    }
}
