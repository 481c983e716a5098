//! An answer on its way to the socket, or why there is none.

use crate::protocol::{response_frame, DecodeError, EncodeError, Message, Str, UnservedApi};
use crate::runtime::local::{Event, Permit};
use crate::runtime::Mono;
use crate::shard::SMALL_FRAME_BYTES;
use bytes::Bytes;
use std::cell::Cell;
use std::rc::Rc;

/// The chunks of one response frame, and the memory that they are charged to until
/// the last byte is sent. No chunks: the request has no answer (acks=0).
pub(super) struct Answer {
    pub chunks: Vec<Bytes>,
    pub charge: Option<Permit>,
    /// Memory of the request that stands for the answer's lists.
    pub lists: Option<Permit>,
    /// Counted among what its connection has not taken yet.
    pub unsent: Option<Unsent>,
    /// How long the request waited for records: no work.
    pub waited_nanos: u64,
    /// When the outcome of a produce was known.
    pub known_at: Option<Mono>,
}

impl Answer {
    /// The answer to a request that wants none.
    pub fn nothing() -> Answer {
        Answer {
            chunks: Vec::new(),
            charge: None,
            lists: None,
            unsent: None,
            waited_nanos: 0,
            known_at: None,
        }
    }

    /// The length of the frame.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    /// Counts it as not taken, and keeps `listed`, the memory of its request, for what
    /// no charge stands for if that is much: until it is sent, whoever does not read.
    pub fn hold(&mut self, backlog: &Backlog, listed: Option<Permit>) {
        let bytes = self.bytes();
        self.unsent = Some(backlog.add(bytes));
        let charged = self.charge.as_ref().map_or(0, Permit::amount);
        let lists = (bytes as u64).saturating_sub(charged);
        let is_long = lists > SMALL_FRAME_BYTES as u64;
        self.lists = self.lists.take().or(listed).filter(|_| is_long);
        if let Some(permit) = &mut self.lists {
            permit.shrink_to(lists);
        }
    }
}

/// Bytes that a connection has not taken yet, from which on no request of it is served.
pub(super) const UNSENT_BYTES_MAX: usize = 1 << 20;

/// The bytes of one connection's answers that are there but not sent.
#[derive(Clone, Default)]
pub(super) struct Backlog(Rc<(Cell<usize>, Event)>);

/// A part of a [`Backlog`], until dropped.
pub(super) struct Unsent {
    backlog: Backlog,
    bytes: usize,
}

impl Backlog {
    /// Waits until there is less than `bytes_max`.
    pub async fn below(&self, bytes_max: usize) {
        let (bytes, shrunk) = &*self.0;
        shrunk.wait_until(|| bytes.get() < bytes_max).await;
    }

    /// Counts an answer.
    pub fn add(&self, bytes: usize) -> Unsent {
        let total = &self.0 .0;
        total.set(total.get() + bytes);
        Unsent {
            backlog: self.clone(),
            bytes,
        }
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        let (bytes, shrunk) = &*self.backlog.0;
        bytes.set(bytes.get() - self.bytes);
        shrunk.notify_all();
    }
}

/// Whether each partition of an answer has a message beside its code. A request can name
/// very many at a few bytes each: then it has the codes, whose meaning clients know.
pub(super) struct Messages(bool);

impl Messages {
    /// For an answer about as many partitions as these are together.
    pub fn of(partitions: impl Iterator<Item = usize>) -> Messages {
        Messages(partitions.sum::<usize>() <= MESSAGES_MAX)
    }

    /// The message, if there is to be one.
    pub fn say(&self, message: impl FnOnce() -> Str) -> Option<Str> {
        self.0.then(message)
    }
}

const MESSAGES_MAX: usize = 10_000;

/// A client's text within a message: its beginning, if it is long.
pub(super) fn shown(text: &str) -> &str {
    let end = text.char_indices().nth(SHOWN_CHARS_MAX);
    &text[..end.map_or(text.len(), |(end, _)| end)]
}

const SHOWN_CHARS_MAX: usize = 200;

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
            ..Answer::nothing()
        })
    }

    /// The same for a pipelined request: `None`, which closes the connection, if the
    /// answer can't be expressed.
    pub fn answer_or_close<M: Message>(&self, response: &M) -> Option<Answer> {
        match self.answer(response) {
            Ok(answer) => Some(answer),
            Err(error) => {
                tracing::error!(%error, "an answer could not be encoded");
                None
            }
        }
    }
}

/// A request that no answer can be given to: the connection is closed, as Kafka does.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadRequest {
    #[error("the request can't be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("the answer can't be expressed in the version asked for: {0}")]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Unserved(#[from] UnservedApi),
    #[error("a group's coordinator gave an answer to another request (a fault of this broker)")]
    OfAnotherKind,
}
