//! [`ApiKey`] and the list of what is served, built from the declared messages.
//!
//! A version that is not declared cannot be offered: ApiVersions, the check of a
//! request's version and the decoders read the same ranges. The one exception is
//! Produce 0-2: offered, because librdkafka takes a broker that does not offer them
//! for one that knows no compression, and answered UNSUPPORTED_VERSION.

use std::ops::RangeInclusive;

use super::error_code::ErrorCode;
use super::messages::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, CreateTopicsRequest, DeleteTopicsRequest,
    FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest,
};

/// An API that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i16)]
pub enum ApiKey {
    /// Appends record batches.
    Produce = 0,
    /// Reads record batches, for consumers and followers.
    Fetch = 1,
    /// Finds offsets by timestamp.
    ListOffsets = 2,
    /// Brokers, topics, partitions and their leaders.
    Metadata = 3,
    /// What is served, in which versions.
    ApiVersions = 18,
    /// Creates topics.
    CreateTopics = 19,
    /// Deletes topics.
    DeleteTopics = 20,
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
    /// All of them, in the order of their numbers.
    pub const ALL: [ApiKey; 7] = [
        ApiKey::Produce,
        ApiKey::Fetch,
        ApiKey::ListOffsets,
        ApiKey::Metadata,
        ApiKey::ApiVersions,
        ApiKey::CreateTopics,
        ApiKey::DeleteTopics,
    ];

    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The API of a number on the wire, if it is served.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.code() == code)
    }

    /// The versions whose requests are decoded.
    pub const fn decoded_versions(self) -> RangeInclusive<i16> {
        match self {
            ApiKey::Produce => ProduceRequest::VERSIONS,
            ApiKey::Fetch => FetchRequest::VERSIONS,
            ApiKey::ListOffsets => ListOffsetsRequest::VERSIONS,
            ApiKey::Metadata => MetadataRequest::VERSIONS,
            ApiKey::ApiVersions => ApiVersionsRequest::VERSIONS,
            ApiKey::CreateTopics => CreateTopicsRequest::VERSIONS,
            ApiKey::DeleteTopics => DeleteTopicsRequest::VERSIONS,
        }
    }

    /// The versions that are offered in ApiVersions.
    pub const fn served_versions(self) -> RangeInclusive<i16> {
        let decoded = self.decoded_versions();
        match self {
            ApiKey::Produce => 0..=*decoded.end(),
            _ => decoded,
        }
    }

    /// The first flexible version of the request (and of the response).
    pub const fn flexible_from(self) -> i16 {
        match self {
            ApiKey::Produce => ProduceRequest::FLEXIBLE_FROM,
            ApiKey::Fetch => FetchRequest::FLEXIBLE_FROM,
            ApiKey::ListOffsets => ListOffsetsRequest::FLEXIBLE_FROM,
            ApiKey::Metadata => MetadataRequest::FLEXIBLE_FROM,
            ApiKey::ApiVersions => ApiVersionsRequest::FLEXIBLE_FROM,
            ApiKey::CreateTopics => CreateTopicsRequest::FLEXIBLE_FROM,
            ApiKey::DeleteTopics => DeleteTopicsRequest::FLEXIBLE_FROM,
        }
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
    ApiKey::ALL.into_iter().map(|key| ServedApi {
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
    use crate::protocol::messages::{
        CreateTopicsResponse, DeleteTopicsResponse, FetchResponse, ListOffsetsResponse,
        MetadataResponse, ProduceResponse,
    };

    #[test]
    fn every_offered_version_has_a_response() {
        let responses = [
            (ApiKey::Produce, ProduceResponse::VERSIONS),
            (ApiKey::Fetch, FetchResponse::VERSIONS),
            (ApiKey::ListOffsets, ListOffsetsResponse::VERSIONS),
            (ApiKey::Metadata, MetadataResponse::VERSIONS),
            (ApiKey::ApiVersions, ApiVersionsResponse::VERSIONS),
            (ApiKey::CreateTopics, CreateTopicsResponse::VERSIONS),
            (ApiKey::DeleteTopics, DeleteTopicsResponse::VERSIONS),
        ];
        assert_eq!(responses.len(), ApiKey::ALL.len());
        for (key, versions) in responses {
            assert_eq!(key.served_versions(), versions, "{key:?}");
        }
    }

    #[test]
    fn keys_survive_the_wire() {
        for key in ApiKey::ALL {
            assert_eq!(ApiKey::from_code(key.code()), Some(key));
        }
        assert_eq!(ApiKey::from_code(-1), None);
        assert_eq!(ApiKey::from_code(9999), None);
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
