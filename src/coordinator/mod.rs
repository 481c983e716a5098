//! Groups and their committed offsets, as pure state machines.
//!
//! Calls, the end of appends and time go in; answers and records of
//! `__consumer_offsets` come out. No clock, file, socket or random source is used here:
//! `shard/groups` carries out what is asked for.
//!
//! What is answered holds: a commit, an assignment, a deletion is answered once its
//! records are durable. What fails to be appended leaves a group as it was, but for the
//! assignments of a generation: then, as in Kafka, its members join again; and for the parts
//! of a long deletion that were appended before.
//!
//! Every call is answered exactly once: at once, by a later call, append or tick, or by
//! [`Coordinator::stop`].

mod call;
mod effects;
mod group;
pub mod offsets;
mod outbox;
pub mod records;
mod settings;
#[cfg(test)]
mod tests;

pub use call::{Caller, GroupCall, GroupRequest, GroupResponse, Now, Ticket};
pub use effects::{Append, AppendId, Committed, Effects, GroupOverview};
pub use records::{OffsetsRecord, RecordFault, Replayed};
pub use settings::GroupSettings;

use crate::protocol::messages::{HeartbeatResponse, JoinGroupRequest};
use crate::protocol::{ErrorCode, Str};
use crate::runtime::Mono;
use group::{Group, Join, Left};
use offsets::GroupOffsets;
use outbox::{Deadlines, Outbox, Turn};
use records::Entry;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The coordinator of the groups of one partition of `__consumer_offsets`.
///
/// It lives on the shard that owns the partition. After [`Coordinator::new`] the partition
/// is read from its log start ([`Coordinator::replay`]), then [`Coordinator::loaded`]
/// begins its work; [`Coordinator::stop`] ends it.
#[derive(Debug)]
pub struct Coordinator {
    partition: i32,
    settings: GroupSettings,
    phase: Phase,
    groups: BTreeMap<Str, Group>,
    outbox: Outbox,
    deadlines: Deadlines,
    expiry: Expiry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Loading,
    Serving,
    Stopped,
}

/// Where the search for expired offsets stands.
#[derive(Debug, Default)]
struct Expiry {
    /// When it goes on; none before the load.
    at: Option<Mono>,
    /// The last group that was looked at, while a search is under way.
    after: Option<Str>,
}

impl Coordinator {
    /// A coordinator that has loaded nothing yet.
    pub fn new(partition: i32, settings: GroupSettings) -> Coordinator {
        Coordinator {
            partition,
            settings,
            phase: Phase::Loading,
            groups: BTreeMap::new(),
            outbox: Outbox::default(),
            deadlines: Deadlines::default(),
            expiry: Expiry::default(),
        }
    }

    /// Takes in a record of the log, in the log's order, before [`Coordinator::loaded`].
    ///
    /// # Errors
    /// A record that contradicts itself. The caller decides whether to go on.
    pub fn replay(&mut self, record: Replayed) -> Result<(), RecordFault> {
        match record {
            Replayed::Record {
                entry: Entry::Group { group, value },
                ..
            } => {
                let has_value = value.is_some();
                if let Some(group) = self.replayed_group(&group, has_value) {
                    group.replay(value.as_ref());
                }
                self.forget_unused(&group);
            }
            Replayed::Record {
                offset,
                transaction,
                entry: Entry::Offset { key, value },
            } => {
                if let Some(group) = self.replayed_group(&key.group, value.is_some()) {
                    let offsets = group.offsets_mut();
                    offsets.replay(
                        offset,
                        transaction,
                        &key.topic,
                        key.partition,
                        value.as_ref(),
                    );
                }
                self.forget_unused(&key.group);
            }
            // Of a group of another protocol, which Kafka's older brokers pass over too.
            Replayed::Record {
                entry: Entry::Unknown(_),
                ..
            } => {}
            Replayed::EndTransaction {
                producer_id,
                committed,
            } => {
                for group in self.groups.values_mut() {
                    group.offsets_mut().end_transaction(producer_id, committed);
                }
                self.groups.retain(|_, group| !group.is_unused());
            }
        }
        Ok(())
    }

    /// The log is read to its end: members get a fresh session, calls are served.
    pub fn loaded(&mut self, now: Now) -> Effects {
        tracing::debug!(
            partition = self.partition,
            groups = self.groups.len(),
            "the groups of a partition are loaded"
        );
        self.phase = Phase::Serving;
        self.expiry.at = Some(now.mono + self.settings.offsets_retention_check_interval);
        let (groups, mut turn) = self.turn(now);
        for group in groups.values_mut() {
            group.loaded(&mut turn);
        }
        self.outbox.take()
    }

    /// A call. Its answer is among the effects, or comes with later ones, exactly once.
    pub fn call(&mut self, ticket: Ticket, call: GroupCall, now: Now) -> Effects {
        self.outbox.begin(ticket);
        let group_id = call.body.group_id();
        let refusal = match self.phase {
            Phase::Loading => Some(ErrorCode::CoordinatorLoadInProgress),
            Phase::Stopped => Some(ErrorCode::NotCoordinator),
            Phase::Serving if group_id.is_empty() && call.body.needs_group_id() => {
                Some(ErrorCode::InvalidGroupId)
            }
            Phase::Serving if group_id.len() > NAME_BYTES_MAX => Some(ErrorCode::InvalidGroupId),
            Phase::Serving => None,
        };
        match refusal {
            Some(error) => {
                let answer = call.body.refused(call.api_version, error);
                self.outbox.answer(ticket, answer);
            }
            None => self.serve(ticket, call, now),
        }
        self.outbox.take()
    }

    /// An append is durable, or failed: the error is the one that calls which wait for it
    /// are answered with. Ends come in the order of the appends.
    pub fn appended(&mut self, id: AppendId, result: Result<(), ErrorCode>, now: Now) -> Effects {
        if let Some(ended) = self.outbox.landed(id) {
            let (groups, mut turn) = self.turn(now);
            let before = turn.appends();
            let group = groups.get_mut(&ended.group);
            if group.map(|group| group.landed(&mut turn, ended.after, result))
                == Some(Left::Nothing)
            {
                self.forget(&ended.group);
            }
            if let Some((ticket, response)) = ended.answer {
                match result {
                    // What is left to do, as of a long deletion, comes first.
                    Ok(()) => (self.turn(now).1).answer_after_appends(before, ticket, response),
                    Err(error) => self.outbox.answer(ticket, response.failed(error)),
                }
            }
        }
        self.outbox.take()
    }

    /// Does what is due: session and rebalance timeouts, the initial delay, the expiry of
    /// offsets. Bounded: what is left is due at once ([`Coordinator::next_deadline`]).
    pub fn tick(&mut self, now: Now) -> Effects {
        for _ in 0..TICK_GROUPS_MAX {
            let Some(id) = self.deadlines.due(now.mono) else {
                break;
            };
            let (groups, mut turn) = self.turn(now);
            if let Some(group) = groups.get_mut(&id) {
                group.on_time(&mut turn);
            }
            self.forget_unused(&id);
        }
        if self.expiry.at.is_some_and(|at| at <= now.mono) {
            self.expire_offsets(now);
        }
        self.outbox.take()
    }

    /// When to call [`Coordinator::tick`] next. May move with every call.
    pub fn next_deadline(&self) -> Option<Mono> {
        let expiry = self.expiry.at;
        self.deadlines.first().into_iter().chain(expiry).min()
    }

    /// Topics are gone, and with them the offsets committed for them.
    pub fn topics_deleted(&mut self, names: &[&str], now: Now) -> Effects {
        if self.phase == Phase::Serving {
            let (groups, mut turn) = self.turn(now);
            for group in groups.values_mut() {
                group.topics_deleted(&mut turn, names);
            }
        }
        self.outbox.take()
    }

    /// Answers all that wait with NOT_COORDINATOR; nothing is served from here on.
    pub fn stop(&mut self) -> Effects {
        self.phase = Phase::Stopped;
        self.expiry = Expiry::default();
        let error = ErrorCode::NotCoordinator;
        for mut group in std::mem::take(&mut self.groups).into_values() {
            group.stop(&mut self.outbox, error);
        }
        for ended in self.outbox.abandoned() {
            if let Some((ticket, response)) = ended.answer {
                self.outbox.answer(ticket, response.failed(error));
            }
        }
        self.deadlines.clear();
        debug_assert_eq!(self.outbox.waiting(), 0, "a call is left without an answer");
        self.outbox.take()
    }

    /// Nobody waits for this answer any more. The call stands, as in Kafka: a member whose
    /// asker went away leaves by its timeouts.
    pub fn gone(&mut self, ticket: Ticket) {
        self.outbox.gone(ticket);
    }

    /// The groups, as ListGroups shows them.
    pub fn groups(&self) -> impl Iterator<Item = GroupOverview> + '_ {
        self.groups.values().map(Group::overview)
    }

    /// The committed offsets of all groups.
    pub fn committed(&self) -> impl Iterator<Item = Committed<'_>> + '_ {
        self.groups.values().flat_map(Group::committed)
    }

    fn serve(&mut self, ticket: Ticket, call: GroupCall, now: Now) {
        let GroupCall {
            api_version,
            caller,
            fresh,
            body,
        } = call;
        let id = body.group_id().clone();
        let may_create = match &body {
            GroupRequest::Join(request) => {
                if let Err(error) = self.check_join(request) {
                    let answer = body.refused(api_version, error);
                    return self.outbox.answer(ticket, answer);
                }
                request.member_id.is_empty()
            }
            GroupRequest::CommitOffsets(request) => request.generation_id_or_member_epoch < 0,
            _ => false,
        };
        if may_create && !self.groups.contains_key(&id) {
            let group = Group::new(&id, now);
            self.groups.insert(group.id().clone(), group);
        }
        let (groups, mut turn) = self.turn(now);
        let Some(group) = groups.get_mut(&id) else {
            let answer = without_group(api_version, &body);
            return self.outbox.answer(ticket, answer);
        };
        let result = match &body {
            GroupRequest::Join(_) => Ok(()),
            GroupRequest::Sync(request) => group.sync(&mut turn, ticket, api_version, request),
            GroupRequest::Heartbeat(request) => {
                let error_code = group.heartbeat(&mut turn, request).code();
                let answer = HeartbeatResponse {
                    error_code,
                    ..Default::default()
                };
                turn.answer(ticket, GroupResponse::Heartbeat(answer));
                Ok(())
            }
            GroupRequest::Leave(request) => {
                group.leave(&mut turn, ticket, api_version, request);
                Ok(())
            }
            GroupRequest::CommitOffsets(request) => group.commit(&mut turn, ticket, request),
            GroupRequest::FetchOffsets {
                group: request,
                require_stable,
            } => {
                let answer = group::fetched(group.offsets(), request, *require_stable);
                turn.answer(ticket, answer);
                Ok(())
            }
            GroupRequest::DeleteOffsets(request) => {
                group.delete_offsets(&mut turn, ticket, request)
            }
            GroupRequest::Describe(_) => {
                turn.answer(ticket, GroupResponse::Described(group.described()));
                Ok(())
            }
            GroupRequest::DeleteGroup(_) => group.delete(&mut turn, ticket),
        };
        if let Err(error) = result {
            turn.answer(ticket, body.refused(api_version, error));
        }
        if let GroupRequest::Join(request) = body {
            let join = Join {
                ticket,
                api_version,
                caller,
                fresh,
                request,
            };
            group.join(&mut turn, join);
        }
        self.forget_unused(&id);
    }

    fn check_join(&self, request: &JoinGroupRequest) -> Result<(), ErrorCode> {
        let settings = &self.settings;
        let allowed = settings.session_timeout_ms_min..=settings.session_timeout_ms_max;
        if !allowed.contains(&request.session_timeout_ms) {
            return Err(ErrorCode::InvalidSessionTimeout);
        }
        if request.protocols.len() > PROTOCOLS_MAX {
            return Err(ErrorCode::InvalidRequest);
        }
        let protocols = request.protocols.iter().map(|protocol| &protocol.name);
        let names = protocols.chain([&request.protocol_type, &request.member_id]);
        let mut names = names.chain(&request.group_instance_id);
        match names.any(|name| name.len() > NAME_BYTES_MAX) {
            true => Err(ErrorCode::InvalidRequest),
            false => Ok(()),
        }
    }

    /// Looks for expired offsets in some groups.
    fn expire_offsets(&mut self, now: Now) {
        let after = match self.expiry.after.take() {
            Some(after) => Bound::Excluded(after),
            None => Bound::Unbounded,
        };
        let (groups, mut turn) = self.turn(now);
        let some = groups
            .range_mut((after, Bound::Unbounded))
            .take(TICK_GROUPS_MAX);
        let mut last = None;
        let mut looked_at = 0;
        for (id, group) in some {
            group.expire_offsets(&mut turn);
            last = Some(id.clone());
            looked_at += 1;
        }
        if looked_at < TICK_GROUPS_MAX {
            self.expiry.at = Some(now.mono + self.settings.offsets_retention_check_interval);
        } else {
            self.expiry.after = last;
        }
    }

    fn turn(&mut self, now: Now) -> (&mut BTreeMap<Str, Group>, Turn<'_>) {
        let turn = Turn {
            settings: &self.settings,
            now,
            outbox: &mut self.outbox,
            deadlines: &mut self.deadlines,
        };
        (&mut self.groups, turn)
    }

    fn replayed_group(&mut self, id: &Str, may_create: bool) -> Option<&mut Group> {
        if may_create && !self.groups.contains_key(id) {
            let group = Group::replayed(id);
            self.groups.insert(group.id().clone(), group);
        }
        self.groups.get_mut(id)
    }

    fn forget_unused(&mut self, id: &Str) {
        if self.groups.get(id).is_some_and(Group::is_unused) {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: &Str) {
        if let Some(mut group) = self.groups.remove(id) {
            group.forget_deadline(&mut self.deadlines);
        }
    }
}

impl GroupRequest {
    /// What tools and old consumers may do with the empty group id is left to them, as in
    /// Kafka; nobody can join it.
    fn needs_group_id(&self) -> bool {
        match self {
            GroupRequest::Join(_)
            | GroupRequest::Sync(_)
            | GroupRequest::Heartbeat(_)
            | GroupRequest::Leave(_)
            | GroupRequest::DeleteOffsets(_) => true,
            GroupRequest::CommitOffsets(_)
            | GroupRequest::FetchOffsets { .. }
            | GroupRequest::Describe(_)
            | GroupRequest::DeleteGroup(_) => false,
        }
    }
}

/// The answer where there is no such group.
fn without_group(api_version: i16, body: &GroupRequest) -> GroupResponse {
    let error = match body {
        GroupRequest::Leave(request) => return group::nobody_left(api_version, request),
        GroupRequest::Describe(id) => {
            return GroupResponse::Described(group::described_dead(api_version, id))
        }
        GroupRequest::FetchOffsets {
            group,
            require_stable,
        } => return group::fetched(&GroupOffsets::default(), group, *require_stable),
        GroupRequest::Join(_) | GroupRequest::Sync(_) | GroupRequest::Heartbeat(_) => {
            ErrorCode::UnknownMemberId
        }
        GroupRequest::CommitOffsets(_) if api_version < COMMIT_NOT_FOUND_FROM => {
            ErrorCode::IllegalGeneration
        }
        GroupRequest::CommitOffsets(_)
        | GroupRequest::DeleteOffsets(_)
        | GroupRequest::DeleteGroup(_) => ErrorCode::GroupIdNotFound,
    };
    body.refused(api_version, error)
}

/// The first version of OffsetCommit that knows GROUP_ID_NOT_FOUND.
const COMMIT_NOT_FOUND_FROM: i16 = 9;
/// The longest name that a record, or an old version of an answer, can hold.
const NAME_BYTES_MAX: usize = i16::MAX as usize;
/// How many protocols a member may know: each is counted whenever the member changes.
const PROTOCOLS_MAX: usize = 1_000;
/// How many groups one tick looks at.
const TICK_GROUPS_MAX: usize = 64;
