//! [`ErrorCode`]: Kafka's error codes, their names, and whether a client may try again.
//!
//! What it is not: it is no Rust error of this program; rooms map theirs to it where
//! an answer is made.

macro_rules! error_codes {
    ($($variant:ident = $code:literal, $name:literal, $retriable:literal, $message:literal;)*) => {
        /// A protocol error code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i16)]
        pub enum ErrorCode {
            $(#[doc = $message] $variant = $code,)*
        }

        impl ErrorCode {
            /// All codes, in the order of their numbers.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// The code of a number on the wire; none if Kafka 4.1 has no such code.
            pub const fn from_code(code: i16) -> Option<Self> {
                match code {
                    $($code => Some(ErrorCode::$variant),)*
                    _ => None,
                }
            }

            /// Kafka's name, such as `NOT_LEADER_OR_FOLLOWER`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $name,)*
                }
            }

            /// What it means, for a person.
            pub const fn message(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $message,)*
                }
            }

            /// Whether a client may send the same request again.
            pub const fn is_retriable(self) -> bool {
                match self {
                    $(ErrorCode::$variant => $retriable,)*
                }
            }
        }
    };
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Whether it is an error at all.
    pub const fn is_error(self) -> bool {
        !matches!(self, ErrorCode::None)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> i16 {
        code.code()
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.code(), self.message())
    }
}

error_codes! {
    UnknownServerError = -1, "UNKNOWN_SERVER_ERROR", false, "An unexpected error in the broker.";
    None = 0, "NONE", false, "No error.";
    OffsetOutOfRange = 1, "OFFSET_OUT_OF_RANGE", false, "The offset is outside the log.";
    CorruptMessage = 2, "CORRUPT_MESSAGE", true, "The batch fails its CRC, is of a wrong size, or is otherwise damaged.";
    UnknownTopicOrPartition = 3, "UNKNOWN_TOPIC_OR_PARTITION", true, "This broker has no such topic or partition.";
    InvalidFetchSize = 4, "INVALID_FETCH_SIZE", false, "The fetch size is not valid.";
    LeaderNotAvailable = 5, "LEADER_NOT_AVAILABLE", true, "The partition has no leader at the moment.";
    NotLeaderOrFollower = 6, "NOT_LEADER_OR_FOLLOWER", true, "This broker is not the leader, or not a replica, of the partition.";
    RequestTimedOut = 7, "REQUEST_TIMED_OUT", true, "The request took longer than its timeout.";
    BrokerNotAvailable = 8, "BROKER_NOT_AVAILABLE", false, "The broker is not available.";
    ReplicaNotAvailable = 9, "REPLICA_NOT_AVAILABLE", true, "The replica is not available on this broker.";
    MessageTooLarge = 10, "MESSAGE_TOO_LARGE", false, "The batch is larger than max.message.bytes.";
    StaleControllerEpoch = 11, "STALE_CONTROLLER_EPOCH", false, "The controller has moved to another broker.";
    OffsetMetadataTooLarge = 12, "OFFSET_METADATA_TOO_LARGE", false, "The metadata of the committed offset is too large.";
    NetworkException = 13, "NETWORK_EXCEPTION", true, "The connection was closed before the answer came.";
    CoordinatorLoadInProgress = 14, "COORDINATOR_LOAD_IN_PROGRESS", true, "The coordinator is still loading.";
    CoordinatorNotAvailable = 15, "COORDINATOR_NOT_AVAILABLE", true, "The coordinator is not available.";
    NotCoordinator = 16, "NOT_COORDINATOR", true, "This broker is not the coordinator.";
    InvalidTopicException = 17, "INVALID_TOPIC_EXCEPTION", false, "The topic's name is not valid, or the operation is not allowed on it.";
    RecordListTooLarge = 18, "RECORD_LIST_TOO_LARGE", false, "The batch is larger than segment.bytes.";
    NotEnoughReplicas = 19, "NOT_ENOUGH_REPLICAS", true, "Fewer replicas are in sync than min.insync.replicas asks for.";
    NotEnoughReplicasAfterAppend = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", true, "The batch is written, but to fewer in-sync replicas than min.insync.replicas asks for.";
    InvalidRequiredAcks = 21, "INVALID_REQUIRED_ACKS", false, "acks is none of 0, 1 and -1.";
    IllegalGeneration = 22, "ILLEGAL_GENERATION", false, "The group's generation is another one.";
    InconsistentGroupProtocol = 23, "INCONSISTENT_GROUP_PROTOCOL", false, "The member's protocols do not fit those of the group.";
    InvalidGroupId = 24, "INVALID_GROUP_ID", false, "The group id is not valid.";
    UnknownMemberId = 25, "UNKNOWN_MEMBER_ID", false, "The coordinator does not know this member.";
    InvalidSessionTimeout = 26, "INVALID_SESSION_TIMEOUT", false, "The session timeout is outside group.min.session.timeout.ms to group.max.session.timeout.ms.";
    RebalanceInProgress = 27, "REBALANCE_IN_PROGRESS", false, "The group is rebalancing; join again.";
    InvalidCommitOffsetSize = 28, "INVALID_COMMIT_OFFSET_SIZE", false, "The committed offsets are too large.";
    TopicAuthorizationFailed = 29, "TOPIC_AUTHORIZATION_FAILED", false, "Not authorized for the topic.";
    GroupAuthorizationFailed = 30, "GROUP_AUTHORIZATION_FAILED", false, "Not authorized for the group.";
    ClusterAuthorizationFailed = 31, "CLUSTER_AUTHORIZATION_FAILED", false, "Not authorized for the cluster.";
    InvalidTimestamp = 32, "INVALID_TIMESTAMP", false, "The record's timestamp is out of the allowed range.";
    UnsupportedSaslMechanism = 33, "UNSUPPORTED_SASL_MECHANISM", false, "The SASL mechanism is not enabled.";
    IllegalSaslState = 34, "ILLEGAL_SASL_STATE", false, "The request does not fit the state of the SASL exchange.";
    UnsupportedVersion = 35, "UNSUPPORTED_VERSION", false, "This version of the API is not served.";
    TopicAlreadyExists = 36, "TOPIC_ALREADY_EXISTS", false, "A topic of this name exists.";
    InvalidPartitions = 37, "INVALID_PARTITIONS", false, "The number of partitions is not valid.";
    InvalidReplicationFactor = 38, "INVALID_REPLICATION_FACTOR", false, "The replication factor is below 1 or above the number of brokers.";
    InvalidReplicaAssignment = 39, "INVALID_REPLICA_ASSIGNMENT", false, "The replica assignment is not valid.";
    InvalidConfig = 40, "INVALID_CONFIG", false, "A setting is not valid.";
    NotController = 41, "NOT_CONTROLLER", true, "This broker is not the controller.";
    InvalidRequest = 42, "INVALID_REQUEST", false, "The request is malformed or contradicts itself.";
    UnsupportedForMessageFormat = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", false, "The record format does not support the request.";
    PolicyViolation = 44, "POLICY_VIOLATION", false, "The request breaks a policy of the broker.";
    OutOfOrderSequenceNumber = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER", false, "The producer's sequence number leaves a gap.";
    DuplicateSequenceNumber = 46, "DUPLICATE_SEQUENCE_NUMBER", false, "The producer's sequence number was seen before.";
    InvalidProducerEpoch = 47, "INVALID_PRODUCER_EPOCH", false, "The producer's epoch is an old one.";
    InvalidTxnState = 48, "INVALID_TXN_STATE", false, "The operation does not fit the state of the transaction.";
    InvalidProducerIdMapping = 49, "INVALID_PRODUCER_ID_MAPPING", false, "The producer id is not the one of the transactional id.";
    InvalidTransactionTimeout = 50, "INVALID_TRANSACTION_TIMEOUT", false, "The transaction timeout is larger than transaction.max.timeout.ms.";
    ConcurrentTransactions = 51, "CONCURRENT_TRANSACTIONS", true, "Another operation on the same transaction is under way.";
    TransactionCoordinatorFenced = 52, "TRANSACTION_COORDINATOR_FENCED", false, "The sender is no longer the producer's transaction coordinator.";
    TransactionalIdAuthorizationFailed = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", false, "Not authorized for the transactional id.";
    SecurityDisabled = 54, "SECURITY_DISABLED", false, "Security features are not enabled.";
    OperationNotAttempted = 55, "OPERATION_NOT_ATTEMPTED", false, "Not attempted, because another part of the request failed.";
    KafkaStorageError = 56, "KAFKA_STORAGE_ERROR", true, "The disk that holds the log failed.";
    LogDirNotFound = 57, "LOG_DIR_NOT_FOUND", false, "The broker has no such log directory.";
    SaslAuthenticationFailed = 58, "SASL_AUTHENTICATION_FAILED", false, "SASL authentication failed.";
    UnknownProducerId = 59, "UNKNOWN_PRODUCER_ID", false, "The broker has nothing about this producer id any more.";
    ReassignmentInProgress = 60, "REASSIGNMENT_IN_PROGRESS", false, "The partition is being reassigned.";
    DelegationTokenAuthDisabled = 61, "DELEGATION_TOKEN_AUTH_DISABLED", false, "Delegation tokens are not enabled.";
    DelegationTokenNotFound = 62, "DELEGATION_TOKEN_NOT_FOUND", false, "There is no such delegation token.";
    DelegationTokenOwnerMismatch = 63, "DELEGATION_TOKEN_OWNER_MISMATCH", false, "The principal is not the owner or renewer of the delegation token.";
    DelegationTokenRequestNotAllowed = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", false, "Delegation tokens cannot be asked for on this connection.";
    DelegationTokenAuthorizationFailed = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", false, "Not authorized for the delegation token.";
    DelegationTokenExpired = 66, "DELEGATION_TOKEN_EXPIRED", false, "The delegation token has expired.";
    InvalidPrincipalType = 67, "INVALID_PRINCIPAL_TYPE", false, "The principal's type is not supported.";
    NonEmptyGroup = 68, "NON_EMPTY_GROUP", false, "The group has members.";
    GroupIdNotFound = 69, "GROUP_ID_NOT_FOUND", false, "There is no such group.";
    FetchSessionIdNotFound = 70, "FETCH_SESSION_ID_NOT_FOUND", true, "There is no such fetch session.";
    InvalidFetchSessionEpoch = 71, "INVALID_FETCH_SESSION_EPOCH", true, "The fetch session is at another epoch.";
    ListenerNotFound = 72, "LISTENER_NOT_FOUND", true, "The leader has no listener of this name.";
    TopicDeletionDisabled = 73, "TOPIC_DELETION_DISABLED", false, "Deleting topics is not enabled.";
    FencedLeaderEpoch = 74, "FENCED_LEADER_EPOCH", true, "The request's leader epoch is older than the broker's.";
    UnknownLeaderEpoch = 75, "UNKNOWN_LEADER_EPOCH", true, "The request's leader epoch is newer than the broker's.";
    UnsupportedCompressionType = 76, "UNSUPPORTED_COMPRESSION_TYPE", false, "The client does not support the partition's compression.";
    StaleBrokerEpoch = 77, "STALE_BROKER_EPOCH", false, "The broker epoch has changed.";
    OffsetNotAvailable = 78, "OFFSET_NOT_AVAILABLE", true, "The new leader's high watermark is not certain yet.";
    MemberIdRequired = 79, "MEMBER_ID_REQUIRED", false, "The member must join again with the id that it was given.";
    PreferredLeaderNotAvailable = 80, "PREFERRED_LEADER_NOT_AVAILABLE", true, "The preferred leader is not available.";
    GroupMaxSizeReached = 81, "GROUP_MAX_SIZE_REACHED", false, "The group is full.";
    FencedInstanceId = 82, "FENCED_INSTANCE_ID", false, "Another member has registered with the same group.instance.id.";
    EligibleLeadersNotAvailable = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", true, "No eligible leader is available.";
    ElectionNotNeeded = 84, "ELECTION_NOT_NEEDED", true, "The partition needs no election.";
    NoReassignmentInProgress = 85, "NO_REASSIGNMENT_IN_PROGRESS", false, "No reassignment is under way.";
    GroupSubscribedToTopic = 86, "GROUP_SUBSCRIBED_TO_TOPIC", false, "The group is subscribed to the topic.";
    InvalidRecord = 87, "INVALID_RECORD", false, "The record breaks a rule of the broker or the topic.";
    UnstableOffsetCommit = 88, "UNSTABLE_OFFSET_COMMIT", true, "Some offsets belong to an open transaction.";
    ThrottlingQuotaExceeded = 89, "THROTTLING_QUOTA_EXCEEDED", true, "A quota is exceeded.";
    ProducerFenced = 90, "PRODUCER_FENCED", false, "A newer producer has the same transactional id.";
    ResourceNotFound = 91, "RESOURCE_NOT_FOUND", false, "There is no such resource.";
    DuplicateResource = 92, "DUPLICATE_RESOURCE", false, "The request names the same resource twice.";
    UnacceptableCredential = 93, "UNACCEPTABLE_CREDENTIAL", false, "The credential does not meet the criteria.";
    InconsistentVoterSet = 94, "INCONSISTENT_VOTER_SET", false, "Sender or recipient is not among the expected voters.";
    InvalidUpdateVersion = 95, "INVALID_UPDATE_VERSION", false, "The update was made from another version.";
    FeatureUpdateFailed = 96, "FEATURE_UPDATE_FAILED", false, "The features could not be updated.";
    PrincipalDeserializationFailure = 97, "PRINCIPAL_DESERIALIZATION_FAILURE", false, "The forwarded principal could not be read.";
    SnapshotNotFound = 98, "SNAPSHOT_NOT_FOUND", false, "There is no such snapshot.";
    PositionOutOfRange = 99, "POSITION_OUT_OF_RANGE", false, "The position is outside the snapshot.";
    UnknownTopicId = 100, "UNKNOWN_TOPIC_ID", true, "This broker has no topic of this id.";
    DuplicateBrokerRegistration = 101, "DUPLICATE_BROKER_REGISTRATION", false, "The broker id is in use.";
    BrokerIdNotRegistered = 102, "BROKER_ID_NOT_REGISTERED", false, "The broker id is not registered.";
    InconsistentTopicId = 103, "INCONSISTENT_TOPIC_ID", true, "The log has another topic id than the request.";
    InconsistentClusterId = 104, "INCONSISTENT_CLUSTER_ID", false, "The request is for another cluster id.";
    TransactionalIdNotFound = 105, "TRANSACTIONAL_ID_NOT_FOUND", false, "There is no such transactional id.";
    FetchSessionTopicIdError = 106, "FETCH_SESSION_TOPIC_ID_ERROR", true, "The fetch session mixes requests with and without topic ids.";
    IneligibleReplica = 107, "INELIGIBLE_REPLICA", false, "The new in-sync set holds a replica that may not be in it.";
    NewLeaderElected = 108, "NEW_LEADER_ELECTED", false, "The partition was changed, and its leader too.";
    OffsetMovedToTieredStorage = 109, "OFFSET_MOVED_TO_TIERED_STORAGE", false, "The offset is in tiered storage.";
    FencedMemberEpoch = 110, "FENCED_MEMBER_EPOCH", false, "The member's epoch is fenced; it must give up its partitions and join again.";
    UnreleasedInstanceId = 111, "UNRELEASED_INSTANCE_ID", false, "Another member still has the instance id.";
    UnsupportedAssignor = 112, "UNSUPPORTED_ASSIGNOR", false, "The group does not support the assignor.";
    StaleMemberEpoch = 113, "STALE_MEMBER_EPOCH", false, "The member's epoch is old; try again after the next heartbeat.";
    MismatchedEndpointType = 114, "MISMATCHED_ENDPOINT_TYPE", false, "The request went to an endpoint of the wrong type.";
    UnsupportedEndpointType = 115, "UNSUPPORTED_ENDPOINT_TYPE", false, "This type of endpoint is not supported.";
    UnknownControllerId = 116, "UNKNOWN_CONTROLLER_ID", false, "There is no such controller.";
    UnknownSubscriptionId = 117, "UNKNOWN_SUBSCRIPTION_ID", false, "The telemetry subscription id is not valid or out of date.";
    TelemetryTooLarge = 118, "TELEMETRY_TOO_LARGE", false, "The telemetry is too large.";
    InvalidRegistration = 119, "INVALID_REGISTRATION", false, "The broker's registration is not valid.";
    TransactionAbortable = 120, "TRANSACTION_ABORTABLE", false, "The transaction must be aborted before going on.";
    InvalidRecordState = 121, "INVALID_RECORD_STATE", false, "The record is in a state that cannot be acknowledged.";
    ShareSessionNotFound = 122, "SHARE_SESSION_NOT_FOUND", true, "There is no such share session.";
    InvalidShareSessionEpoch = 123, "INVALID_SHARE_SESSION_EPOCH", true, "The share session is at another epoch.";
    FencedStateEpoch = 124, "FENCED_STATE_EPOCH", false, "The share group's state epoch is another one.";
    InvalidVoterKey = 125, "INVALID_VOTER_KEY", false, "The voter's key is not the replica's.";
    DuplicateVoter = 126, "DUPLICATE_VOTER", false, "The voter is one already.";
    VoterNotFound = 127, "VOTER_NOT_FOUND", false, "There is no such voter.";
    InvalidRegularExpression = 128, "INVALID_REGULAR_EXPRESSION", false, "The regular expression is not valid.";
    RebootstrapRequired = 129, "REBOOTSTRAP_REQUIRED", false, "The client's metadata is stale; it must bootstrap again.";
    StreamsInvalidTopology = 130, "STREAMS_INVALID_TOPOLOGY", false, "The topology is not valid.";
    StreamsInvalidTopologyEpoch = 131, "STREAMS_INVALID_TOPOLOGY_EPOCH", false, "The topology epoch is not valid.";
    StreamsTopologyFenced = 132, "STREAMS_TOPOLOGY_FENCED", false, "The topology epoch is out of date.";
    ShareSessionLimitReached = 133, "SHARE_SESSION_LIMIT_REACHED", true, "There are too many share sessions.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_dense_and_survive_the_wire() {
        for (code, &error) in (-1..).zip(ErrorCode::ALL) {
            assert_eq!(error.code(), code);
            assert_eq!(ErrorCode::from_code(code), Some(error));
        }
        assert_eq!(ErrorCode::from_code(ErrorCode::ALL.len() as i16 - 1), None);
        assert_eq!(ErrorCode::from_code(i16::MIN), None);
    }

    #[test]
    fn names_are_the_variants_in_capitals() {
        for error in ErrorCode::ALL {
            let mut spelled = String::new();
            for (i, c) in format!("{error:?}").chars().enumerate() {
                if c.is_uppercase() && i > 0 {
                    spelled.push('_');
                }
                spelled.push(c.to_ascii_uppercase());
            }
            assert_eq!(error.name(), spelled);
        }
    }
}
