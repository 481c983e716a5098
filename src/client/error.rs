//! What can go wrong between a client and a broker.

use crate::protocol::{ApiKey, DecodeError, EncodeError};
use crate::runtime::IoError;
use std::ops::RangeInclusive;

/// Why a request has no answer. After any of them but `Encode` and
/// `UnsupportedVersion` the connection is of no more use.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] IoError),
    /// The broker closed the connection before it answered.
    #[error("{peer} closed the connection")]
    Closed {
        /// The broker's address.
        peer: String,
    },
    /// No answer within the time allowed.
    #[error("{peer} did not answer within {timeout_ms} ms")]
    TimedOut {
        /// The broker's address.
        peer: String,
        /// The limit, milliseconds.
        timeout_ms: u64,
    },
    /// The answer can't be read.
    #[error("the answer of {peer} can't be read: {error}")]
    Decode {
        /// The broker's address.
        peer: String,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// The request can't be expressed in the version agreed on.
    #[error("{0}")]
    Encode(#[from] EncodeError),
    /// The broker and we share no version of this API.
    #[error("{peer} serves {api:?} in versions {theirs:?}, we in {ours:?}: no version is shared")]
    UnsupportedVersion {
        /// The broker's address.
        peer: String,
        /// The API.
        api: ApiKey,
        /// What we know.
        ours: RangeInclusive<i16>,
        /// What the broker offers; `None` if it does not know the API.
        theirs: Option<RangeInclusive<i16>>,
    },
    /// The peer does not speak Kafka's protocol, or not as it should.
    #[error("{peer} does not answer as a Kafka broker: {detail}")]
    NotABroker {
        /// The peer's address.
        peer: String,
        /// What it did.
        detail: String,
    },
}
