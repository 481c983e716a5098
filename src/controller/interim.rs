//! Names that other rooms are about to provide, so that callers can compile against
//! the controller's signatures. Goes away with them.

/// Kafka's error codes that the controller answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ErrorCode {
    UnknownTopicOrPartition,
    InvalidTopicException,
    TopicAlreadyExists,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidReplicaAssignment,
    InvalidConfig,
    NotController,
    InvalidRequest,
    KafkaStorageError,
    UnknownTopicId,
}

/// What the logs of one executor share.
pub struct Storage;
