//! ListConfigResources (KIP-1142): what DescribeConfigs can be asked about.
//!
//! Topics, the broker and its loggers. There are no client metrics, which is all that
//! version 0 asks for, and no groups with settings of their own.

use super::respond::{Answer, Asked, BadRequest};
use crate::protocol::messages::{
    ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;

pub(super) async fn list(
    shard: &Shard,
    asked: Asked,
    request: ListConfigResourcesRequest,
) -> Result<Answer, BadRequest> {
    let types = match (asked.api_version, request.resource_types) {
        (0, _) => vec![CLIENT_METRICS],
        (_, types) if types.is_empty() => TYPES.to_vec(),
        (_, types) => types,
    };
    if types.iter().any(|kind| !TYPES.contains(kind)) {
        return Ok(asked.answer(&ListConfigResourcesResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            ..Default::default()
        })?);
    }
    let mut config_resources = Vec::new();
    let mut list = |resource_type, resource_name| {
        config_resources.push(ConfigResource {
            resource_name,
            resource_type,
        })
    };
    if types.contains(&TOPIC) {
        for topic in shard.image().iter().flat_map(|image| image.topics()) {
            list(TOPIC, Str::from(topic.name.to_string()));
        }
    }
    for kind in [BROKER, BROKER_LOGGER] {
        if types.contains(&kind) {
            list(kind, Str::from(shard.config().node_id.to_string()));
        }
    }
    Ok(asked.answer(&ListConfigResourcesResponse {
        config_resources,
        ..Default::default()
    })?)
}

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;
const TYPES: [i8; 5] = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];
