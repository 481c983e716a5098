//! What can go wrong between a client and a broker.

use crate::protocol::{ApiKey, DecodeError, EncodeError, ErrorCode};
use crate::runtime::IoError;
use std::ops::RangeInclusive;

/// Why a request has no answer. After any of them but `Encode` and
/// `UnsupportedVersion` the connection is of no more use.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] IoError),
    /// Nothing listens there, or nothing answers.
    #[error("cannot connect to {peer}: {detail}")]
    Unreachable {
        /// The broker's address.
        peer: String,
        /// Why, in the system's words.
        detail: String,
    },
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
    #[error("{peer} {}", unshared(*api, ours, theirs.as_ref()))]
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
    /// The broker answered with an error code.
    #[error("cannot {doing}: {}", refusal(*code, message.as_deref()))]
    Refused {
        /// What was asked, as "create topic x".
        doing: String,
        /// The error code, which we may not know.
        code: i16,
        /// The broker's words, where it gave some.
        message: Option<String>,
    },
}

impl ClientError {
    /// The error that an answer carries, if it carries one.
    pub fn check(
        code: i16,
        message: Option<&str>,
        doing: impl FnOnce() -> String,
    ) -> Result<(), ClientError> {
        if code == ErrorCode::None.code() {
            return Ok(());
        }
        Err(ClientError::Refused {
            doing: doing(),
            code,
            message: message.filter(|words| !words.is_empty()).map(str::to_owned),
        })
    }

    /// The error code of an answer, if this is one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ClientError::Refused { code, .. } => ErrorCode::from_code(*code),
            _ => None,
        }
    }

    /// Whether the same request may succeed later: on a new connection, or by another leader.
    pub fn is_retriable(&self) -> bool {
        match self {
            ClientError::Io(_)
            | ClientError::Unreachable { .. }
            | ClientError::Closed { .. }
            | ClientError::TimedOut { .. } => true,
            ClientError::Refused { .. } => self.code().is_some_and(ErrorCode::is_retriable),
            ClientError::Decode { .. }
            | ClientError::Encode(_)
            | ClientError::UnsupportedVersion { .. }
            | ClientError::NotABroker { .. } => false,
        }
    }
}

/// A code and the broker's words, without the stop that a sentence inside another must not have.
fn refusal(code: i16, message: Option<&str>) -> String {
    let known = ErrorCode::from_code(code);
    let name = known.map_or("error", ErrorCode::name);
    let words = message.filter(|words| !words.is_empty());
    let words = words
        .or(known.map(ErrorCode::message))
        .unwrap_or("a code that is not known");
    format!(
        "{name} ({code}): {}",
        words.trim_end().trim_end_matches('.')
    )
}

fn unshared(
    api: ApiKey,
    ours: &RangeInclusive<i16>,
    theirs: Option<&RangeInclusive<i16>>,
) -> String {
    match theirs {
        None => format!("does not offer {api:?}"),
        Some(theirs) => format!(
            "offers {api:?} in versions {} to {} and we know {} to {}: no version is shared",
            theirs.start(),
            theirs.end(),
            ours.start(),
            ours.end()
        ),
    }
}
