//! ApiVersions: what is served, each API at every version that is advertised.

use super::respond::{Answer, Asked, BadRequest};
use crate::protocol::api::{
    api_versions_downgrade, api_versions_response, API_VERSIONS_DOWNGRADE_VERSION,
};
use crate::protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use crate::protocol::ErrorCode;
use crate::shard::Shard;

pub(super) async fn run(
    _: &Shard,
    asked: Asked,
    request: ApiVersionsRequest,
) -> Result<Answer, BadRequest> {
    let named = asked.api_version < 3
        || (is_name(&request.client_software_name) && is_name(&request.client_software_version));
    let response = if named {
        api_versions_response()
    } else {
        // KIP-511: software names are [a-zA-Z0-9] with dots and dashes inside.
        ApiVersionsResponse {
            error_code: ErrorCode::InvalidRequest.code(),
            ..Default::default()
        }
    };
    Ok(asked.answer(&response)?)
}

/// The answer to a version that is not served: the newest client learns what to
/// downgrade to (KIP-511).
pub(super) fn downgrade(asked: Asked) -> Result<Answer, BadRequest> {
    let asked = Asked {
        api_version: API_VERSIONS_DOWNGRADE_VERSION,
        ..asked
    };
    Ok(asked.answer(&api_versions_downgrade())?)
}

fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(name.chars().next()) && edge(name.chars().last()) && name.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn software_names_follow_kip_511() {
        for good in ["librdkafka", "apache-kafka-java", "2.0.2-RC1", "a"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "-a", "a.", "a b", "a\u{e9}"] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
