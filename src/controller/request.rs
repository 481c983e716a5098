//! What the controller is asked, and what it answers.

use crate::protocol::ErrorCode;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// A topic to create, as CreateTopics has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; -1 for the broker's default, or with `assignments`.
    pub num_partitions: i32,
    /// How many replicas each; -1 for the broker's default, or with `assignments`.
    pub replication_factor: i16,
    /// The replicas of each partition (index, brokers), if the client chooses them.
    pub assignments: Vec<(i32, Vec<i32>)>,
    /// Overridden configs. A null value is refused.
    pub configs: Vec<(String, Option<String>)>,
}

/// A topic that was created, or would have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Its id. With `validate_only` the nil id: no topic has it.
    pub id: Uuid,
    /// Its name.
    pub name: Arc<str>,
    /// How many partitions it has.
    pub num_partitions: i32,
    /// How many replicas each has.
    pub replication_factor: i16,
    /// Its overridden configs.
    pub configs: BTreeMap<String, String>,
}

/// A topic to delete, as DeleteTopics has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicSelector {
    /// By its name.
    Name(String),
    /// By its id.
    Id(Uuid),
}

/// Why a request, or one topic of it, was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ControllerFault {
    /// Kafka's error code.
    pub code: ErrorCode,
    /// What to change, for a person.
    pub message: String,
}

impl ControllerFault {
    /// A fault with its message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ControllerFault {
        ControllerFault {
            code,
            message: message.into(),
        }
    }
}
