//! FindCoordinator. There is one broker, so it coordinates every group, once it has
//! `__consumer_offsets`, which is created when it is first asked for.
//!
//! Transactions and share groups are not built. Whoever asks for a transaction's
//! coordinator gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client takes for
//! final (`init_producer_id` says why this code), share groups get Kafka's refusal where
//! they are off.

use super::respond::{Answer, Asked, BadRequest};
use crate::protocol::messages::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;

pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: FindCoordinatorRequest,
) -> Result<Answer, BadRequest> {
    let is_batch = asked.api_version >= 4;
    let is_nothing = is_batch && request.coordinator_keys.is_empty();
    let found = match refusal(request.key_type) {
        Some(refused) => Err(refused),
        None if is_nothing => Err((ErrorCode::None, "")),
        None => match shard.ensure_offsets_topic().await {
            Ok(()) => here(shard).ok_or((ErrorCode::CoordinatorNotAvailable, NOT_YET)),
            Err(code) => Err((code, NOT_YET)),
        },
    };
    let answer = |key: Str| coordinator(shard.config().node_id, &found, key);
    let response = if is_batch {
        FindCoordinatorResponse {
            coordinators: request.coordinator_keys.into_iter().map(answer).collect(),
            ..Default::default()
        }
    } else {
        let one = answer(request.key);
        FindCoordinatorResponse {
            error_code: one.error_code,
            error_message: match found {
                // Kafka's word.
                Ok(_) => Some(Str::from_static("NONE")),
                Err(_) => one.error_message,
            },
            node_id: one.node_id,
            host: one.host,
            port: one.port,
            ..Default::default()
        }
    };
    Ok(asked.answer(&response)?)
}

type Refused = (ErrorCode, &'static str);

fn refusal(key_type: i8) -> Option<Refused> {
    match key_type {
        GROUP => None,
        TRANSACTION => Some((
            ErrorCode::TransactionalIdAuthorizationFailed,
            "This broker has no transactions.",
        )),
        SHARE => Some((
            ErrorCode::InvalidRequest,
            "This broker has no share groups.",
        )),
        _ => Some((
            ErrorCode::InvalidRequest,
            "There is no such type of coordinator.",
        )),
    }
}

fn here(shard: &Shard) -> Option<(Str, u16)> {
    let config = shard.config();
    let address = config.advertised_listener.as_ref()?;
    Some((Str::from(address.host.clone()), address.port))
}

fn coordinator(node_id: i32, found: &Result<(Str, u16), Refused>, key: Str) -> Coordinator {
    match found {
        Ok((host, port)) => Coordinator {
            key,
            node_id,
            host: host.clone(),
            port: i32::from(*port),
            ..Default::default()
        },
        Err((code, message)) => Coordinator {
            key,
            node_id: NO_NODE,
            port: NO_NODE,
            error_code: code.code(),
            error_message: Some(Str::from_static(message)),
            ..Default::default()
        },
    }
}

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;
const NO_NODE: i32 = -1;
const NOT_YET: &str = "The topic of the groups' offsets is not there yet.";
