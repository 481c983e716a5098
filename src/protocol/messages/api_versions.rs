//! ApiVersions: what is served, in which versions.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks what is served.
    request ApiVersionsRequest (ApiVersions) versions 0..=4 flexible 3 {
        client_software_name: Str => { versions: 3.., ignorable },
        client_software_version: Str => { versions: 3.., ignorable },
    }

    /// What is served. Its header is never flexible, whatever the version.
    response ApiVersionsResponse (ApiVersions) versions 0..=4 flexible 3 {
        error_code: i16,
        api_keys: Vec<ApiVersion>,
        throttle_time_ms: i32 => { versions: 1.., ignorable },
        supported_features: Vec<SupportedFeatureKey> => { versions: 3.., tag: 0, ignorable },
        finalized_features_epoch: i64 => { versions: 3.., tag: 1, default: -1, ignorable },
        finalized_features: Vec<FinalizedFeatureKey> => { versions: 3.., tag: 2, ignorable },
        zk_migration_ready: bool => { versions: 3.., tag: 3, ignorable },
    }

    /// An API and its versions.
    struct ApiVersion {
        api_key: i16,
        min_version: i16,
        max_version: i16,
    }

    /// A feature that the broker could have (KIP-584).
    struct SupportedFeatureKey {
        name: Str,
        min_version: i16,
        max_version: i16,
    }

    /// A feature that the cluster has.
    struct FinalizedFeatureKey {
        name: Str,
        max_version_level: i16,
        min_version_level: i16,
    }
}
