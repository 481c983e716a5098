//! InitProducerId: gives a producer its id and epoch.
//!
//! Version 6 (two-phase commit, KIP-939) is unstable in Kafka 4.1: no client sends it.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for a producer id, or for the next epoch of one.
    request InitProducerIdRequest (InitProducerId) versions 0..=5 flexible 2 {
        /// Null: an idempotent producer without transactions.
        transactional_id: Option<Str> => { default: Some(Str::default()) },
        transaction_timeout_ms: i32,
        /// The id that the producer has, or -1 (KIP-360).
        producer_id: i64 => { versions: 3.., default: -1 },
        /// The epoch that the producer has, or -1 (KIP-360).
        producer_epoch: i16 => { versions: 3.., default: -1 },
    }

    /// The id and its epoch.
    response InitProducerIdResponse (InitProducerId) versions 0..=5 flexible 2 {
        throttle_time_ms: i32,
        error_code: i16,
        producer_id: i64 => { default: -1 },
        producer_epoch: i16,
    }
}
