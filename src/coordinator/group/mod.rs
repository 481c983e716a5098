//! [`Group`]: one group of the classic protocol, its members and how they come to an
//! assignment.
//!
//! A generation goes by this way: a member joins or leaves, and the group prepares a
//! rebalance; every member joins, or is left behind at the rebalance timeout; the
//! generation is numbered, its leader chosen, and each join is answered; the leader's
//! sync brings the assignments, which are appended to the log, and once they are durable
//! each sync is answered and the group is stable. A group that lost its last member is
//! empty, and remembers its offsets.
//!
//! The rules are Kafka 4.1's (`ClassicGroup`, `GroupMetadataManager`), with these
//! decisions of our own: a group is in the log from its first generation or offset on, not from its first
//! join; a join or sync that another of the same member overtakes is answered with
//! REBALANCE_IN_PROGRESS, not left behind; ties between protocols go by the leader's
//! preference; names longer than a record can hold are refused; what members and their
//! metadata take is charged to a budget, and a join for which there is none is answered with
//! COORDINATOR_NOT_AVAILABLE; a group with many offsets is deleted with several appends.
//!
//! What it is not: it finds no group, keeps no clock, and appends nothing itself.

mod appended;
mod describe;
mod join;
mod leave;
mod member;
mod offsets;
#[cfg(test)]
mod probe;
mod rebalance;
mod record;
mod statics;
mod subscription;
mod sync;
mod timers;

pub(super) use appended::{AfterAppend, Left};
pub(super) use describe::described_dead;
pub(super) use join::Join;
use join::Pending;
pub(super) use leave::nobody_left;
pub(super) use offsets::fetched;
#[cfg(test)]
pub(super) use probe::Snapshot;

use super::call::{GroupResponse, Now, Ticket};
use super::offsets::GroupOffsets;
use super::outbox::{Deadlines, Outbox, Turn};
use crate::protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use crate::protocol::{ErrorCode, Str};
use crate::runtime::Mono;
use member::{Member, Terms};
use std::collections::BTreeMap;
use std::time::Duration;

/// One group. See the module's docs.
#[derive(Debug)]
pub(super) struct Group {
    id: Str,
    state: State,
    /// When it came into its state, ms since the Unix epoch, if that is known.
    state_since_ms: Option<i64>,
    /// The current generation; 0 before the first.
    generation: i32,
    /// What kind of group it is (`consumer`, `connect`); a group that nobody ever joined
    /// has none.
    protocol_type: Option<Str>,
    /// The protocol that this generation chose.
    protocol: Option<Str>,
    leader: Option<Str>,
    members: BTreeMap<Str, Member>,
    /// The member of each instance id (KIP-345).
    instances: BTreeMap<Str, Str>,
    /// Member ids that were given out and have not joined yet (KIP-394).
    pending: BTreeMap<Str, Pending>,
    /// How many members know each protocol.
    knowing: BTreeMap<Str, usize>,
    /// How many members wait for the answer to a join.
    joining: usize,
    /// How many members have not synced in this generation.
    owing_syncs: usize,
    /// When members that owe a sync are left behind.
    sync_deadline: Option<Mono>,
    /// The leader's assignments of this generation are being appended.
    is_assigning: bool,
    /// When it is looked at next. See [`super::outbox::Deadlines`].
    queued: Option<Mono>,
    /// Appends of its own metadata that have not ended.
    records_under_way: usize,
    offsets: GroupOffsets,
}

/// Where a group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has no member.
    Empty,
    /// Its members are to join.
    Preparing(Preparing),
    /// Its members have joined and wait for the leader's assignments.
    Completing,
    /// Every member has its assignment.
    Stable,
    /// It is being deleted: tombstones are under way.
    Dead,
}

/// How a rebalance is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Preparing {
    /// When to go on without those who did not join.
    at: Mono,
    /// The group was empty: it waits for more members, not only for those it knows.
    initial: Option<InitialDelay>,
}

/// The delay of a group's first rebalance; it grows while members come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InitialDelay {
    /// The length of the current delay.
    delay: Duration,
    /// How much it may still grow.
    remaining: Duration,
    /// A member came during the current delay.
    has_grown: bool,
}

impl Group {
    pub fn new(id: &Str, now: Now) -> Group {
        Group::empty(id.detached(), Some(now.wall_ms))
    }

    /// A group of the log, before its own record is read.
    pub fn replayed(id: &Str) -> Group {
        Group::empty(id.detached(), None)
    }

    fn empty(id: Str, state_since_ms: Option<i64>) -> Group {
        Group {
            id,
            state: State::Empty,
            state_since_ms,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            pending: BTreeMap::new(),
            knowing: BTreeMap::new(),
            joining: 0,
            owing_syncs: 0,
            sync_deadline: None,
            is_assigning: false,
            queued: None,
            records_under_way: 0,
            offsets: GroupOffsets::default(),
        }
    }

    pub fn offsets(&self) -> &GroupOffsets {
        &self.offsets
    }

    pub fn offsets_mut(&mut self) -> &mut GroupOffsets {
        &mut self.offsets
    }

    pub fn id(&self) -> &Str {
        &self.id
    }

    /// Nothing of it is, or may come to be, in the log, and nobody is on the way to it:
    /// it can be forgotten without a word.
    pub fn is_unused(&self) -> bool {
        self.state == State::Empty
            && self.generation == 0
            && self.protocol_type.is_none()
            && self.pending.is_empty()
            && self.records_under_way == 0
            && self.offsets.is_empty()
    }

    /// Nobody is to look at it any more.
    pub fn forget_deadline(&mut self, deadlines: &mut Deadlines) {
        deadlines.forget(&self.id, &mut self.queued);
    }

    /// The coordinator ends: members that wait are told so.
    pub fn stop(&mut self, outbox: &mut Outbox, error: ErrorCode) {
        for member in self.members.values_mut() {
            if let Some(ticket) = member.join.take() {
                let response = join_error(error, &member.id);
                outbox.answer(ticket, GroupResponse::Join(response));
            }
            if let Some(ticket) = member.sync.take() {
                outbox.answer(ticket, GroupResponse::Sync(sync_error(error)));
            }
        }
    }

    fn is_preparing(&self) -> bool {
        matches!(self.state, State::Preparing(_))
    }

    fn is_leader(&self, member: &str) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader == member)
    }

    /// Every member waits for the answer to a join, and nobody else is on the way.
    fn has_all_joined(&self) -> bool {
        self.members.len() == self.joining && self.pending.is_empty()
    }

    /// The longest that any member asks to be waited for.
    fn rebalance_timeout(&self) -> Duration {
        let timeouts = self.members.values();
        let timeouts = timeouts.map(|member| member.terms.rebalance_timeout_ms);
        member::duration_ms(timeouts.max().unwrap_or(0))
    }

    /// Kafka's rule for a member that calls: an instance id has to be that of the member.
    fn check_member(&self, member: &Str, instance: Option<&Str>) -> Result<(), ErrorCode> {
        if let Some(instance) = instance {
            match self.instances.get(instance) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(known) if known != member => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        match self.members.contains_key(member) {
            true => Ok(()),
            false => Err(ErrorCode::UnknownMemberId),
        }
    }

    /// Whether a member with these could be one of the group: it has to know a protocol
    /// that all others know.
    fn fits(&self, protocol_type: &str, terms: &Terms) -> bool {
        if self.state == State::Empty {
            return !protocol_type.is_empty() && !terms.protocols.is_empty();
        }
        let is_known_to_all = |name: &Str| {
            let knowing = self.knowing.get(name).copied().unwrap_or(0);
            knowing == self.members.len()
        };
        let mut protocols = terms.protocols.iter();
        self.protocol_type
            .as_ref()
            .is_some_and(|own| own == protocol_type)
            && protocols.any(|protocol| is_known_to_all(&protocol.name))
    }

    /// Takes a member in, which [`Group::fits`].
    fn add(&mut self, member: Member, protocol_type: &str) {
        if self.members.is_empty() {
            self.protocol_type = Some(Str::from(protocol_type.to_owned()));
        }
        if self.leader.is_none() {
            self.leader = Some(member.id.clone());
        }
        if let Some(instance) = &member.instance {
            let before = self.instances.insert(instance.clone(), member.id.clone());
            debug_assert!(before.is_none(), "{instance} has two members");
        }
        self.pending.remove(&member.id);
        self.count(&member, true);
        self.members.insert(member.id.clone(), member);
    }

    /// Lets a member, or one that is pending, go; what it waits for is answered with `error`.
    fn remove(&mut self, turn: &mut Turn, id: &str, error: ErrorCode) -> Option<Member> {
        self.pending.remove(id);
        self.answer_join_error(turn, id, error);
        self.answer_sync_error(turn, id, error);
        let member = self.members.remove(id)?;
        self.count(&member, false);
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    /// Brings the counts up to date with a member that comes or goes.
    fn count(&mut self, member: &Member, comes: bool) {
        for protocol in &member.terms.protocols {
            if comes {
                *self.knowing.entry(protocol.name.clone()).or_insert(0) += 1;
            } else if let Some(knowing) = self.knowing.get_mut(&protocol.name) {
                *knowing -= 1;
                if *knowing == 0 {
                    self.knowing.remove(&protocol.name);
                }
            }
        }
        let step = |count: &mut usize, is_counted: bool| match (is_counted, comes) {
            (false, _) => {}
            (true, true) => *count += 1,
            (true, false) => *count -= 1,
        };
        step(&mut self.joining, member.join.is_some());
        step(&mut self.owing_syncs, member.owes_sync);
    }

    /// Changes a member through `change`, and the counts with it.
    fn update<T>(&mut self, id: &str, change: impl FnOnce(&mut Member) -> T) -> Option<T> {
        let (id, mut member) = self.members.remove_entry(id)?;
        self.count(&member, false);
        let result = change(&mut member);
        self.count(&member, true);
        self.members.insert(id, member);
        Some(result)
    }

    /// The member was heard from: its session begins anew.
    fn touch(&mut self, turn: &mut Turn, id: &str) {
        if let Some(member) = self.members.get_mut(id) {
            member.deadline = turn.now.mono + member.session_timeout();
            let deadline = member.deadline;
            self.look_again(turn, deadline);
        }
    }

    /// Makes sure that the group is looked at no later than `at`.
    fn look_again(&mut self, turn: &mut Turn, at: Mono) {
        turn.deadlines.no_later(&self.id, &mut self.queued, at);
    }

    fn enter(&mut self, turn: &Turn, state: State) {
        self.state = state;
        self.state_since_ms = Some(turn.now.wall_ms);
    }

    /// Answers the join that the member waits for, if it does.
    fn answer_join(&mut self, turn: &mut Turn, id: &str, response: JoinGroupResponse) -> bool {
        let Some(member) = self.members.get_mut(id) else {
            return false;
        };
        let Some(ticket) = member.join.take() else {
            return false;
        };
        self.joining -= 1;
        turn.answer(ticket, GroupResponse::Join(response));
        true
    }

    fn answer_join_error(&mut self, turn: &mut Turn, id: &str, error: ErrorCode) -> bool {
        self.answer_join(turn, id, join_error(error, &Str::default()))
    }

    /// Answers the sync that the member waits for, if it does.
    fn answer_sync(&mut self, turn: &mut Turn, id: &str, response: SyncGroupResponse) -> bool {
        let ticket = self
            .members
            .get_mut(id)
            .and_then(|member| member.sync.take());
        if let Some(ticket) = ticket {
            turn.answer(ticket, GroupResponse::Sync(response));
        }
        ticket.is_some()
    }

    fn answer_sync_error(&mut self, turn: &mut Turn, id: &str, error: ErrorCode) -> bool {
        self.answer_sync(turn, id, sync_error(error))
    }

    fn set_join(&mut self, turn: &mut Turn, id: &str, ticket: Ticket) {
        // One that is overtaken by another of the same member, whose client gave it up.
        self.answer_join_error(turn, id, ErrorCode::RebalanceInProgress);
        self.update(id, |member| member.join = Some(ticket));
    }

    fn member_ids(&self) -> Vec<Str> {
        self.members.keys().cloned().collect()
    }
}

fn join_error(error: ErrorCode, member_id: &Str) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code: error.code(),
        member_id: member_id.clone(),
        ..Default::default()
    }
}

fn sync_error(error: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse {
        error_code: error.code(),
        ..Default::default()
    }
}
