//! An answer on its way to the socket.

use crate::protocol::{response_frame, EncodeError, Message};
use crate::runtime::local::Permit;
use bytes::Bytes;

/// The chunks of one response frame, and the memory that they are charged to until
/// the last byte is sent. No chunks: the request has no answer (acks=0).
pub(super) struct Answer {
    pub chunks: Vec<Bytes>,
    pub charge: Option<Permit>,
}

impl Answer {
    /// The answer to a request that wants none.
    pub fn nothing() -> Answer {
        Answer {
            chunks: Vec::new(),
            charge: None,
        }
    }
}

/// Where an answer belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub api_version: i16,
    pub correlation_id: i32,
}

impl Asked {
    /// Encodes `response` as the answer.
    pub fn answer<M: Message>(&self, response: &M) -> Result<Answer, EncodeError> {
        let chunks = response_frame(self.correlation_id, self.api_version, response)?;
        Ok(Answer {
            chunks,
            charge: None,
        })
    }
}
