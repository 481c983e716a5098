//! JoinGroup.

use super::member::{Member, Terms};
use super::{join_error, Group, State};
use crate::coordinator::call::{Caller, GroupResponse, Ticket};
use crate::coordinator::outbox::Turn;
use crate::coordinator::NAME_BYTES_MAX;
use crate::protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use crate::protocol::{ErrorCode, Str};
use crate::runtime::local::Permit;
use crate::runtime::Mono;
use std::time::Duration;
use uuid::Uuid;

/// A member id that was given out and has not joined yet.
#[derive(Debug)]
pub(super) struct Pending {
    /// Until when it may.
    pub deadline: Mono,
    /// What it is charged.
    _memory: Permit,
}

/// A join, while it is worked on.
#[derive(Debug)]
pub(in crate::coordinator) struct Join {
    pub ticket: Ticket,
    pub api_version: i16,
    pub caller: Caller,
    pub fresh: Uuid,
    pub request: JoinGroupRequest,
}

impl Join {
    /// What its member takes in memory, bytes, about: with its metadata, or only named.
    fn bytes(&self, with_metadata: bool) -> u64 {
        let request = &self.request;
        let protocols = request.protocols.iter().filter(|_| with_metadata);
        let protocols = protocols.map(|it| PROTOCOL_BYTES + it.name.len() + it.metadata.len());
        // An id is made of one of these names, and kept in several places.
        let instance = self.instance().map_or(0, |instance| instance.len());
        let names = self.caller.client_id.len() + request.member_id.len() + instance;
        (MEMBER_BYTES + 3 * names + protocols.sum::<usize>()) as u64
    }

    /// Memory for that; COORDINATOR_NOT_AVAILABLE, upon which clients try again.
    fn memory(&self, turn: &Turn, with_metadata: bool) -> Result<Permit, ErrorCode> {
        let bytes = self.bytes(with_metadata);
        let memory = turn.settings.members_memory.try_acquire(bytes);
        memory.ok_or_else(|| {
            tracing::debug!(bytes, "no memory for a member (request.memory.bytes)");
            ErrorCode::CoordinatorNotAvailable
        })
    }

    fn refuse(&self, turn: &mut Turn, error: ErrorCode) {
        let response = join_error(error, &self.request.member_id);
        turn.answer(self.ticket, GroupResponse::Join(response));
    }

    fn instance(&self) -> Option<&Str> {
        self.request.group_instance_id.as_ref()
    }
}

impl Group {
    /// A member joins, or comes again.
    pub fn join(&mut self, turn: &mut Turn, join: Join) {
        let id = join.request.member_id.clone();
        if self.state == State::Dead {
            return join.refuse(turn, ErrorCode::CoordinatorNotAvailable);
        }
        if !self.has_room_for(turn, &id) {
            self.remove(turn, &id, ErrorCode::GroupMaxSizeReached);
            let full = join_error(ErrorCode::GroupMaxSizeReached, &Str::default());
            turn.answer(join.ticket, GroupResponse::Join(full));
            return self.complete_join_if_all_joined(turn);
        }
        tracing::trace!(
            group = %self.id, member = %id, reason = join.request.reason.as_deref(), "a join"
        );
        let terms = match join.memory(turn, true) {
            Ok(memory) => Terms::of(&join.request, join.api_version, memory),
            Err(error) => return join.refuse(turn, error),
        };
        if !self.fits(&join.request.protocol_type, &terms) {
            return join.refuse(turn, ErrorCode::InconsistentGroupProtocol);
        }
        if id.is_empty() {
            self.join_unknown(turn, join, terms);
        } else if self.pending.contains_key(&id) {
            match join.instance() {
                // An id that was given to a dynamic member.
                Some(_) => join.refuse(turn, ErrorCode::UnknownMemberId),
                None => self.join_new(turn, join, id, terms),
            }
        } else {
            self.join_known(turn, join, &id, terms);
        }
    }

    /// `group.max.size`. While joins are collected the ones that wait are counted, so that
    /// a group that became too large loses its last members.
    fn has_room_for(&self, turn: &Turn, id: &Str) -> bool {
        let members_max = turn.settings.members_max;
        let member = self.members.get(id);
        match self.state {
            State::Empty | State::Dead => true,
            State::Preparing(_) => {
                member.is_some_and(|member| member.join.is_some()) || self.joining < members_max
            }
            State::Completing | State::Stable => {
                member.is_some() || self.members.len() < members_max
            }
        }
    }

    fn join_unknown(&mut self, turn: &mut Turn, join: Join, terms: Terms) {
        let name = join.instance().unwrap_or(&join.caller.client_id);
        let id = Str::from(format!("{name}-{}", join.fresh));
        if id.len() > NAME_BYTES_MAX {
            return join.refuse(turn, ErrorCode::InvalidRequest);
        }
        if self.pending.len() >= PENDING_MAX {
            return join.refuse(turn, ErrorCode::GroupMaxSizeReached);
        }
        let replaced = join
            .instance()
            .and_then(|instance| self.instances.get(instance));
        if let Some(old) = replaced.cloned() {
            self.join_replacing(turn, join, &old, id, terms);
        } else if join.instance().is_none() && join.api_version >= MEMBER_ID_REQUIRED_FROM {
            let session_timeout = super::member::duration_ms(terms.session_timeout_ms);
            let deadline = turn.now.mono + session_timeout;
            drop(terms);
            let _memory = match join.memory(turn, false) {
                Ok(memory) => memory,
                Err(error) => return join.refuse(turn, error),
            };
            let pending = Pending { deadline, _memory };
            self.pending.insert(id.clone(), pending);
            self.look_again(turn, deadline);
            let response = join_error(ErrorCode::MemberIdRequired, &id);
            turn.answer(join.ticket, GroupResponse::Join(response));
        } else {
            self.join_new(turn, join, id, terms);
        }
    }

    fn join_new(&mut self, turn: &mut Turn, join: Join, id: Str, terms: Terms) {
        let id = id.detached();
        let instance = join.instance().map(Str::detached);
        let deadline = turn.now.mono + NEW_MEMBER_TIMEOUT;
        let member = Member {
            join: Some(join.ticket),
            is_new: true,
            deadline,
            ..Member::new(id, instance, &join.caller, terms)
        };
        if let State::Preparing(preparing) = &mut self.state {
            if let Some(initial) = &mut preparing.initial {
                initial.has_grown = true;
            }
        }
        self.add(member, &join.request.protocol_type);
        self.look_again(turn, deadline);
        self.rebalance_or_complete_join(turn, "a member joined");
    }

    fn join_known(&mut self, turn: &mut Turn, join: Join, id: &Str, terms: Terms) {
        if let Err(error) = self.check_member(id, join.instance()) {
            return join.refuse(turn, error);
        }
        let is_same = self.members[id].terms.protocols == terms.protocols;
        match self.state {
            State::Preparing(_) => self.rejoin(turn, join, id, terms, "a member joined again"),
            // It did not get the answer to its join.
            State::Completing if is_same => self.answer_generation(turn, join.ticket, id),
            // The leader may know of what others can't see, such as new partitions.
            State::Stable if is_same && !self.is_leader(id) => {
                self.answer_generation(turn, join.ticket, id)
            }
            State::Completing | State::Stable => self.rejoin(
                turn,
                join,
                id,
                terms,
                "a member changed, or the leader joined again",
            ),
            State::Empty | State::Dead => join.refuse(turn, ErrorCode::UnknownMemberId),
        }
    }

    fn rejoin(&mut self, turn: &mut Turn, join: Join, id: &Str, terms: Terms, why: &str) {
        self.set_join(turn, id, join.ticket);
        self.update(id, |member| member.terms = terms);
        self.rebalance_or_complete_join(turn, why);
    }

    fn answer_generation(&mut self, turn: &mut Turn, ticket: Ticket, id: &Str) {
        let response = self.generation_for(id);
        turn.answer(ticket, GroupResponse::Join(response));
    }

    /// The answer to a join that tells of the current generation. The leader gets the
    /// members.
    pub(super) fn generation_for(&self, id: &Str) -> JoinGroupResponse {
        let protocol = self.protocol.as_ref();
        JoinGroupResponse {
            error_code: ErrorCode::None.code(),
            generation_id: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: Some(self.protocol.clone().unwrap_or_default()),
            leader: self.leader.clone().unwrap_or_default(),
            member_id: id.clone(),
            members: match self.is_leader(id) {
                true => {
                    let members = self.members.values();
                    members.map(|member| member.for_leader(protocol)).collect()
                }
                false => Vec::new(),
            },
            ..Default::default()
        }
    }

    /// Forgets ids that were given out and never joined with.
    pub(super) fn expire_pending(&mut self, turn: &mut Turn) {
        let is_due =
            |(id, it): (&Str, &Pending)| (it.deadline <= turn.now.mono).then(|| id.clone());
        let due: Vec<Str> = self.pending.iter().filter_map(is_due).collect();
        for id in &due {
            self.pending.remove(id);
        }
        if !due.is_empty() && self.is_preparing() && self.has_all_joined() {
            self.complete_join(turn);
        }
    }
}

/// The first version in which a dynamic member has to join with an id that it was given
/// (KIP-394).
const MEMBER_ID_REQUIRED_FROM: i16 = 4;
/// How long a join of a new member waits at most: it can't be told from one whose client
/// went away. Kafka's, and no setting of it.
const NEW_MEMBER_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// What a member takes besides its names and metadata, and a protocol besides its own, about.
const MEMBER_BYTES: usize = 512;
const PROTOCOL_BYTES: usize = 160;
/// How many ids of a group may be given out and not joined with.
const PENDING_MAX: usize = 10_000;
