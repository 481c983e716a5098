//! [`ApiKey`] and the list of what is served, built from the declared messages.
//!
//! A version that is not declared cannot be offered: ApiVersions, the check of a
//! request's version and the decoders read the same ranges. The one exception is
//! Produce 0-2: offered, because librdkafka takes a broker that does not offer them
//! for one that knows no compression, and answered UNSUPPORTED_VERSION.

use std::ops::RangeInclusive;

use super::error_code::ErrorCode;
use super::messages::*;

/// The APIs, each with its messages.
macro_rules! apis {
    ($($(#[$meta:meta])* $key:ident = $code:literal: $request:ident, $response:ident;)*) => {
        /// An API whose messages are declared. [`ApiKey::ALL`] are those that are served.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i16)]
        pub enum ApiKey {
            $($(#[$meta])* $key = $code,)*
        }

        impl ApiKey {
            /// All whose messages are declared, served or not, in the order of their numbers.
            pub const DECLARED: &'static [ApiKey] = &[$(ApiKey::$key,)*];

            /// Its name in Kafka.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ApiKey::$key => stringify!($key),)*
                }
            }

            /// The versions whose requests are decoded.
            pub const fn decoded_versions(self) -> RangeInclusive<i16> {
                match self {
                    $(ApiKey::$key => $request::VERSIONS,)*
                }
            }

            /// The versions that are offered in ApiVersions: those that can be answered.
            pub const fn served_versions(self) -> RangeInclusive<i16> {
                match self {
                    $(ApiKey::$key => $response::VERSIONS,)*
                }
            }

            /// The first flexible version of the request (and of the response).
            pub const fn flexible_from(self) -> i16 {
                match self {
                    $(ApiKey::$key => $request::FLEXIBLE_FROM,)*
                }
            }
        }
    };
}

apis! {
    /// Appends record batches.
    Produce = 0: ProduceRequest, ProduceResponse;
    /// Reads record batches, for consumers and followers.
    Fetch = 1: FetchRequest, FetchResponse;
    /// Finds offsets by timestamp.
    ListOffsets = 2: ListOffsetsRequest, ListOffsetsResponse;
    /// Brokers, topics, partitions and their leaders.
    Metadata = 3: MetadataRequest, MetadataResponse;
    /// Keeps how far a group has read.
    OffsetCommit = 8: OffsetCommitRequest, OffsetCommitResponse;
    /// How far groups have read.
    OffsetFetch = 9: OffsetFetchRequest, OffsetFetchResponse;
    /// The broker that coordinates a group.
    FindCoordinator = 10: FindCoordinatorRequest, FindCoordinatorResponse;
    /// Becomes a member of a group.
    JoinGroup = 11: JoinGroupRequest, JoinGroupResponse;
    /// Says that a member is alive.
    Heartbeat = 12: HeartbeatRequest, HeartbeatResponse;
    /// Members leave a group.
    LeaveGroup = 13: LeaveGroupRequest, LeaveGroupResponse;
    /// The assignments of a group's generation.
    SyncGroup = 14: SyncGroupRequest, SyncGroupResponse;
    /// The state of groups and their members.
    DescribeGroups = 15: DescribeGroupsRequest, DescribeGroupsResponse;
    /// All groups.
    ListGroups = 16: ListGroupsRequest, ListGroupsResponse;
    /// What is served, in which versions.
    ApiVersions = 18: ApiVersionsRequest, ApiVersionsResponse;
    /// Creates topics.
    CreateTopics = 19: CreateTopicsRequest, CreateTopicsResponse;
    /// Deletes topics.
    DeleteTopics = 20: DeleteTopicsRequest, DeleteTopicsResponse;
    /// Moves the log start of partitions.
    DeleteRecords = 21: DeleteRecordsRequest, DeleteRecordsResponse;
    /// Gives a producer its id and epoch.
    InitProducerId = 22: InitProducerIdRequest, InitProducerIdResponse;
    /// Finds the end of a leader epoch.
    OffsetForLeaderEpoch = 23: OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse;
    /// Who may do what.
    DescribeAcls = 29: DescribeAclsRequest, DescribeAclsResponse;
    /// Lets somebody do something, or forbids it.
    CreateAcls = 30: CreateAclsRequest, CreateAclsResponse;
    /// Takes ACLs away.
    DeleteAcls = 31: DeleteAclsRequest, DeleteAclsResponse;
    /// The settings of topics and brokers.
    DescribeConfigs = 32: DescribeConfigsRequest, DescribeConfigsResponse;
    /// Replaces all settings of a topic or broker.
    AlterConfigs = 33: AlterConfigsRequest, AlterConfigsResponse;
    /// Moves replicas between data directories.
    AlterReplicaLogDirs = 34: AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse;
    /// What each data directory holds.
    DescribeLogDirs = 35: DescribeLogDirsRequest, DescribeLogDirsResponse;
    /// Adds partitions to topics.
    CreatePartitions = 37: CreatePartitionsRequest, CreatePartitionsResponse;
    /// Removes groups without members.
    DeleteGroups = 42: DeleteGroupsRequest, DeleteGroupsResponse;
    /// Gives partitions back to their preferred leaders.
    ElectLeaders = 43: ElectLeadersRequest, ElectLeadersResponse;
    /// Changes single settings of a topic or broker.
    IncrementalAlterConfigs = 44: IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse;
    /// Moves partitions to other brokers.
    AlterPartitionReassignments = 45: AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse;
    /// Which partitions are being moved.
    ListPartitionReassignments = 46: ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse;
    /// Forgets how far a group has read.
    OffsetDelete = 47: OffsetDeleteRequest, OffsetDeleteResponse;
    /// The quotas of users, client ids and addresses.
    DescribeClientQuotas = 48: DescribeClientQuotasRequest, DescribeClientQuotasResponse;
    /// Which users can log in with SCRAM.
    DescribeUserScramCredentials = 50: DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse;
    /// Who votes in the metadata quorum.
    DescribeQuorum = 55: DescribeQuorumRequest, DescribeQuorumResponse;
    /// The brokers of the cluster.
    DescribeCluster = 60: DescribeClusterRequest, DescribeClusterResponse;
    /// The producers that partitions know.
    DescribeProducers = 61: DescribeProducersRequest, DescribeProducersResponse;
    /// What has settings.
    ListConfigResources = 74: ListConfigResourcesRequest, ListConfigResourcesResponse;
    /// Topics and partitions page by page.
    DescribeTopicPartitions = 75: DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse;
}

/// One served API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedApi {
    /// The API.
    pub key: ApiKey,
    /// The versions that are offered in ApiVersions.
    pub offered: RangeInclusive<i16>,
    /// The versions whose requests are decoded; the rest of `offered` is answered
    /// UNSUPPORTED_VERSION.
    pub decoded: RangeInclusive<i16>,
}

/// A request that cannot be decoded, because its API or its version is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnservedApi {
    /// No such API; the layout of the request is unknown, and the connection is closed.
    #[error("API key {0} is not served")]
    UnknownKey(i16),
    /// The API, but not in this version. ApiVersions is answered with
    /// [`api_versions_downgrade`], Produce 0-2 with an error for each partition, and
    /// for any other the connection is closed.
    #[error("{key:?} is served in versions {} to {}, not in {version}", key.decoded_versions().start(), key.decoded_versions().end())]
    UnsupportedVersion {
        /// The API.
        key: ApiKey,
        /// The version asked for.
        version: i16,
    },
}

impl ApiKey {
    /// All that are served, in the order of their numbers. A request of any other is
    /// one of an unknown API, and ApiVersions does not name it.
    pub const ALL: &'static [ApiKey] = &[
        ApiKey::Produce,
        ApiKey::Fetch,
        ApiKey::ListOffsets,
        ApiKey::Metadata,
        ApiKey::OffsetCommit,
        ApiKey::OffsetFetch,
        ApiKey::FindCoordinator,
        ApiKey::JoinGroup,
        ApiKey::Heartbeat,
        ApiKey::LeaveGroup,
        ApiKey::SyncGroup,
        ApiKey::DescribeGroups,
        ApiKey::ListGroups,
        ApiKey::ApiVersions,
        ApiKey::CreateTopics,
        ApiKey::DeleteTopics,
        ApiKey::DeleteRecords,
        ApiKey::InitProducerId,
        ApiKey::OffsetForLeaderEpoch,
        ApiKey::DescribeAcls,
        ApiKey::CreateAcls,
        ApiKey::DeleteAcls,
        ApiKey::DescribeConfigs,
        ApiKey::AlterConfigs,
        ApiKey::AlterReplicaLogDirs,
        ApiKey::DescribeLogDirs,
        ApiKey::CreatePartitions,
        ApiKey::DeleteGroups,
        ApiKey::ElectLeaders,
        ApiKey::IncrementalAlterConfigs,
        ApiKey::AlterPartitionReassignments,
        ApiKey::ListPartitionReassignments,
        ApiKey::OffsetDelete,
        ApiKey::DescribeClientQuotas,
        ApiKey::DescribeUserScramCredentials,
        ApiKey::DescribeQuorum,
        ApiKey::DescribeCluster,
        ApiKey::DescribeProducers,
        ApiKey::ListConfigResources,
        ApiKey::DescribeTopicPartitions,
    ];

    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The API of a number on the wire, if it is served.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.code() == code)
    }

    /// The API of a number on the wire, if its messages are declared: what a client of
    /// another broker can write and read.
    pub fn declared(code: i16) -> Option<Self> {
        Self::DECLARED
            .iter()
            .copied()
            .find(|key| key.code() == code)
    }

    /// Whether the request header of `version` ends in tagged fields (header version 2, not 1).
    pub const fn request_header_is_flexible(self, version: i16) -> bool {
        version >= self.flexible_from()
    }

    /// Whether the response header of `version` ends in tagged fields (header version
    /// 1, not 0). Never for ApiVersions: its reader may not know our version yet (KIP-511).
    pub const fn response_header_is_flexible(self, version: i16) -> bool {
        !matches!(self, ApiKey::ApiVersions) && version >= self.flexible_from()
    }
}

/// Everything that is served, in the order of the API keys.
pub fn served_apis() -> impl Iterator<Item = ServedApi> {
    ApiKey::ALL.iter().map(|&key| ServedApi {
        key,
        offered: key.served_versions(),
        decoded: key.decoded_versions(),
    })
}

/// The answer to ApiVersions: what is served, without an error.
pub fn api_versions_response() -> ApiVersionsResponse {
    ApiVersionsResponse {
        api_keys: served_apis()
            .map(|api| ApiVersion {
                api_key: api.key.code(),
                min_version: *api.offered.start(),
                max_version: *api.offered.end(),
            })
            .collect(),
        ..Default::default()
    }
}

/// The answer to ApiVersions in a version that is not served: to be encoded in
/// version 0 ([`API_VERSIONS_DOWNGRADE_VERSION`]), which every client reads. It says
/// UNSUPPORTED_VERSION and what is served, so that the client can ask again (KIP-511).
pub fn api_versions_downgrade() -> ApiVersionsResponse {
    ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        ..api_versions_response()
    }
}

/// The version that [`api_versions_downgrade`] is encoded in.
pub const API_VERSIONS_DOWNGRADE_VERSION: i16 = *ApiVersionsResponse::VERSIONS.start();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_but_produce_decodes_all_that_it_offers() {
        for key in ApiKey::DECLARED {
            let from = match key {
                ApiKey::Produce => 3,
                _ => *key.served_versions().start(),
            };
            let end = *key.served_versions().end();
            assert_eq!(key.decoded_versions(), from..=end, "{key:?}");
        }
    }

    #[test]
    fn keys_survive_the_wire_if_they_are_served() {
        for key in ApiKey::DECLARED {
            let served = ApiKey::ALL.contains(key).then_some(*key);
            assert_eq!(ApiKey::from_code(key.code()), served);
            assert_eq!(ApiKey::declared(key.code()), Some(*key));
        }
        for code in [-1, 9999] {
            assert_eq!(
                (ApiKey::from_code(code), ApiKey::declared(code)),
                (None, None)
            );
        }
    }

    #[test]
    fn lists_are_in_the_order_of_the_numbers() {
        assert!(ApiKey::ALL.is_sorted() && ApiKey::DECLARED.is_sorted());
        assert!(ApiKey::ALL.iter().all(|key| ApiKey::DECLARED.contains(key)));
    }

    #[test]
    fn produce_is_offered_from_zero_and_decoded_from_three() {
        assert_eq!(ApiKey::Produce.served_versions(), 0..=13);
        assert_eq!(ApiKey::Produce.decoded_versions(), 3..=13);
    }

    #[test]
    fn the_downgrade_answer_lists_everything_in_version_zero() {
        let mut w = crate::protocol::Writer::new();
        let answer = api_versions_downgrade();
        answer
            .encode(&mut w, API_VERSIONS_DOWNGRADE_VERSION)
            .unwrap();
        let bytes = w.finish().concat();
        assert_eq!(&bytes[..2], &35i16.to_be_bytes());
        assert_eq!(bytes.len(), 2 + 4 + 6 * ApiKey::ALL.len());
    }
}
