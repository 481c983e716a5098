//! InitProducerId: an idempotent producer gets its id. Each request gets a new one, with
//! epoch 0, also from a producer that has one already (it asks after an error that only a
//! new id gets it over), as in Kafka.
//!
//! Transactions are not built. A client that asks for a transactional id gets
//! TRANSACTIONAL_ID_AUTHORIZATION_FAILED: of all codes it is the one that Java's client,
//! librdkafka and franz-go each take for final and report to their user, where they would
//! ask for ever, or silently go on, after others. (They hardly come here: they ask for a
//! transaction coordinator first, and `find_coordinator` answers the same.)

use super::respond::{Answer, Asked, BadRequest};
use crate::protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};
use crate::protocol::ErrorCode;
use crate::shard::Shard;

pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: InitProducerIdRequest,
) -> Result<Answer, BadRequest> {
    let id = match refusal(&request) {
        Some(code) => Err(code),
        None => shard.next_producer_id().await,
    };
    let response = match id {
        Ok(producer_id) => InitProducerIdResponse {
            producer_id,
            producer_epoch: 0,
            ..Default::default()
        },
        Err(code) => InitProducerIdResponse {
            error_code: code.code(),
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            ..Default::default()
        },
    };
    Ok(asked.answer(&response)?)
}

fn refusal(request: &InitProducerIdRequest) -> Option<ErrorCode> {
    let has_id = request.producer_id != NO_PRODUCER_ID;
    let has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH;
    match &request.transactional_id {
        _ if has_id != has_epoch => Some(ErrorCode::InvalidRequest),
        None => None,
        Some(id) if id.is_empty() => Some(ErrorCode::InvalidRequest),
        Some(_) => Some(ErrorCode::TransactionalIdAuthorizationFailed),
    }
}

const NO_PRODUCER_ID: i64 = -1;
const NO_PRODUCER_EPOCH: i16 = -1;
