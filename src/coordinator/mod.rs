//! Groups and their committed offsets, as pure state machines.
//!
//! Calls, the end of appends and time go in; answers and records of
//! `__consumer_offsets` come out. No clock, file, socket or random source is used here:
//! `shard/groups` carries out what is asked for.

mod call;
mod effects;
pub mod offsets;
pub mod records;
mod settings;

pub use call::{Caller, GroupCall, GroupRequest, GroupResponse, Now, Ticket};
pub use effects::{Append, AppendId, Committed, Effects, GroupOverview};
pub use records::{OffsetsRecord, RecordFault, Replayed};
pub use settings::GroupSettings;

use crate::protocol::ErrorCode;
use crate::runtime::Mono;

/// The coordinator of the groups of one partition of `__consumer_offsets`.
///
/// It lives on the shard that owns the partition. After [`Coordinator::new`] the partition
/// is read from its log start ([`Coordinator::replay`]), then [`Coordinator::loaded`]
/// begins its work; [`Coordinator::stop`] ends it.
#[derive(Debug)]
pub struct Coordinator {}

impl Coordinator {
    /// A coordinator that has loaded nothing yet.
    pub fn new(_partition: i32, _settings: GroupSettings) -> Coordinator {
        Coordinator {}
    }

    /// Takes in a record of the log, in the log's order, before [`Coordinator::loaded`].
    ///
    /// # Errors
    /// A record that cannot be what this coordinator wrote. The caller decides whether to go on.
    pub fn replay(&mut self, _record: Replayed) -> Result<(), RecordFault> {
        Ok(())
    }

    /// The log is read to its end: members get a fresh session, calls are served.
    pub fn loaded(&mut self, _now: Now) -> Effects {
        Effects::default()
    }

    /// A call. Its answer is among the effects, or comes with later ones, exactly once.
    pub fn call(&mut self, ticket: Ticket, call: GroupCall, _now: Now) -> Effects {
        let error = ErrorCode::CoordinatorNotAvailable;
        let mut effects = Effects::default();
        let answer = call.body.refused(call.api_version, error);
        effects.answers.push((ticket, answer));
        effects
    }

    /// An append is durable, or failed. Ends come in the order of the appends.
    pub fn appended(
        &mut self,
        _id: AppendId,
        _result: Result<(), ErrorCode>,
        _now: Now,
    ) -> Effects {
        Effects::default()
    }

    /// Does what is due: session and rebalance timeouts, the initial delay, the expiry of
    /// offsets. Bounded: what is left is due at once ([`Coordinator::next_deadline`]).
    pub fn tick(&mut self, _now: Now) -> Effects {
        Effects::default()
    }

    /// When to call [`Coordinator::tick`] next. May move with every call.
    pub fn next_deadline(&self) -> Option<Mono> {
        None
    }

    /// Topics are gone, and with them the offsets committed for them.
    pub fn topics_deleted(&mut self, _names: &[&str], _now: Now) -> Effects {
        Effects::default()
    }

    /// Answers all that wait with NOT_COORDINATOR; nothing is served from here on.
    pub fn stop(&mut self) -> Effects {
        Effects::default()
    }

    /// Nobody waits for this answer any more. The call stands, as in Kafka: a member whose
    /// asker went away leaves by its timeouts.
    pub fn gone(&mut self, _ticket: Ticket) {}

    /// The groups, as ListGroups shows them.
    pub fn groups(&self) -> impl Iterator<Item = GroupOverview> + '_ {
        std::iter::empty()
    }

    /// The committed offsets of all groups.
    pub fn committed(&self) -> impl Iterator<Item = Committed<'_>> + '_ {
        std::iter::empty()
    }
}
