//! DescribeCluster (KIP-700): the brokers of the cluster.
//!
//! There is one broker, and it is registered and not fenced while it serves, so
//! `include_fenced_brokers` adds nothing.

use super::operations::{CLUSTER_OPERATIONS, OPERATIONS_UNKNOWN};
use super::respond::{Answer, Asked, BadRequest};
use crate::protocol::messages::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;
use crate::storage::uuid_text;

pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: DescribeClusterRequest,
) -> Result<Answer, BadRequest> {
    if let Some((code, message)) = refusal(asked.api_version, request.endpoint_type) {
        return Ok(asked.answer(&DescribeClusterResponse {
            error_code: code.code(),
            error_message: Some(Str::from(message)),
            ..Default::default()
        })?);
    }
    let config = shard.config();
    let broker = |address: &crate::config::HostPort| DescribeClusterBroker {
        broker_id: config.node_id,
        host: Str::from(address.host.clone()),
        port: i32::from(address.port),
        ..Default::default()
    };
    Ok(asked.answer(&DescribeClusterResponse {
        endpoint_type: ENDPOINT_BROKERS,
        cluster_id: shard
            .image()
            .map(|image| Str::from(uuid_text::encode(image.cluster_id())))
            .unwrap_or_default(),
        controller_id: config.node_id,
        brokers: config.advertised_listener.iter().map(broker).collect(),
        cluster_authorized_operations: match request.include_cluster_authorized_operations {
            true => CLUSTER_OPERATIONS,
            false => OPERATIONS_UNKNOWN,
        },
        ..Default::default()
    })?)
}

/// Why an endpoint of this type can't be described here: this is a broker's (KIP-919).
fn refusal(api_version: i16, endpoint_type: i8) -> Option<(ErrorCode, String)> {
    let (code, message) = match endpoint_type {
        ENDPOINT_BROKERS => return None,
        ENDPOINT_CONTROLLERS => (
            ErrorCode::MismatchedEndpointType,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of \
             type CONTROLLER"
                .to_owned(),
        ),
        other => (
            ErrorCode::UnsupportedEndpointType,
            format!("Unsupported endpoint type {other}"),
        ),
    };
    // The codes are younger than version 0.
    let code = if api_version == 0 {
        ErrorCode::InvalidRequest
    } else {
        code
    };
    Some((code, message))
}

const ENDPOINT_BROKERS: i8 = 1;
const ENDPOINT_CONTROLLERS: i8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brokers_are_described_and_the_code_fits_the_version() {
        let code = |version, endpoint| refusal(version, endpoint).map(|(code, _)| code);
        assert_eq!(code(1, ENDPOINT_BROKERS), None);
        let expected = [
            (1, 2, ErrorCode::MismatchedEndpointType),
            (2, 2, ErrorCode::MismatchedEndpointType),
            (1, 0, ErrorCode::UnsupportedEndpointType),
            (2, 3, ErrorCode::UnsupportedEndpointType),
            (2, -1, ErrorCode::UnsupportedEndpointType),
            (0, 2, ErrorCode::InvalidRequest),
        ];
        for (version, endpoint, expected) in expected {
            assert_eq!(code(version, endpoint), Some(expected));
        }
    }
}
