//! What a coordinator wants done, and what it tells of its groups.

use super::call::{GroupResponse, Ticket};
use super::records::OffsetsRecord;
use crate::protocol::Str;
use smallvec::SmallVec;

/// What is to be done after a call, the end of an append, or a tick. Answers may leave
/// at once: what has to be durable first is answered only after its append.
#[derive(Debug, Default, PartialEq)]
pub struct Effects {
    /// Calls that are answered.
    pub answers: SmallVec<[(Ticket, GroupResponse); 1]>,
    /// What is to be appended, in this order. The end of each is to be told
    /// ([`Coordinator::appended`](super::Coordinator::appended)).
    pub appends: Vec<Append>,
}

/// Names an append. The coordinator chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppendId(pub u64);

/// Records for the coordinator's partition of `__consumer_offsets`.
#[derive(Debug, PartialEq, Eq)]
pub struct Append {
    /// Its name.
    pub id: AppendId,
    /// One batch: all of them, or none. Never empty.
    pub records: Vec<OffsetsRecord>,
}

/// A group as ListGroups shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOverview {
    /// Its id.
    pub group_id: Str,
    /// `consumer` for consumers; empty if nobody has ever joined.
    pub protocol_type: Str,
    /// Its state, as Kafka names it: `Stable`, `Empty` and so on.
    pub state: &'static str,
    /// `classic`.
    pub group_type: &'static str,
}

/// A committed offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed<'a> {
    /// Whose.
    pub group: &'a Str,
    /// The topic.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
}
