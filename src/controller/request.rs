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

/// What has configs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigTarget {
    /// The topic of this name.
    Topic(String),
    /// The broker of this id; `None`: what all brokers have in common.
    Broker(Option<i32>),
}

/// A topic or a broker whose configs are to be altered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigsAlteration {
    /// Which one.
    pub target: ConfigTarget,
    /// What to alter.
    pub change: ConfigsChange,
}

/// How its configs are to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigsChange {
    /// These in place of all that there were (AlterConfigs). A null value is refused.
    Replace(Vec<(String, Option<String>)>),
    /// One by one (IncrementalAlterConfigs).
    Incremental(Vec<(String, AlterConfigOp)>),
}

/// One change of IncrementalAlterConfigs. A null value is refused where one is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlterConfigOp {
    /// To this value.
    Set(Option<String>),
    /// Back to the default.
    Delete,
    /// A list, by these entries that it does not hold.
    Append(Option<String>),
    /// A list, without these entries.
    Subtract(Option<String>),
    /// An operation that there is not, by its number. Always refused.
    Unknown(i8),
}

impl AlterConfigOp {
    /// False if it lacks its value.
    pub(super) fn has_what_it_needs(&self) -> bool {
        match self {
            AlterConfigOp::Delete | AlterConfigOp::Unknown(_) => true,
            AlterConfigOp::Set(value)
            | AlterConfigOp::Append(value)
            | AlterConfigOp::Subtract(value) => value.is_some(),
        }
    }
}

/// A topic that is to have more partitions, as CreatePartitions has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MorePartitions {
    /// Its name.
    pub name: String,
    /// How many partitions it is to have in all.
    pub count: i32,
    /// The replicas of each new partition, if the client chooses them.
    pub assignments: Option<Vec<Vec<i32>>>,
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
    /// A fault with its message, which is cut where a client's long input made it long.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ControllerFault {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            let mut ends = (0..=MESSAGE_BYTES_MAX).rev();
            let end = ends.find(|end| message.is_char_boundary(*end));
            message.truncate(end.unwrap_or(0));
            message.push_str("...");
        }
        ControllerFault { code, message }
    }
}

/// The longest message, in bytes: a response of an old version has no room for 32 KiB.
const MESSAGE_BYTES_MAX: usize = 2_000;
