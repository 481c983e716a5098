//! Static members that come again under a new member id (KIP-345, KIP-814).

use super::join::Join;
use super::member::{Member, Terms};
use super::{AfterAppend, Group, State};
use crate::coordinator::call::Ticket;
use crate::coordinator::outbox::Turn;
use crate::protocol::messages::JoinGroupResponse;
use crate::protocol::{ErrorCode, Str};

/// A static member of a stable group that was replaced by itself, until that is in the log.
#[derive(Debug)]
pub(in crate::coordinator) struct Replacement {
    ticket: Ticket,
    generation: i32,
    new_id: Str,
    /// The member as it was.
    old: Member,
    /// The leader before; it may be the member's old id.
    old_leader: Option<Str>,
    /// The old one was itself not in the log yet.
    old_is_unrecorded: bool,
    can_skip_assignment: bool,
}

impl Group {
    /// A client of a known instance joins without a member id: it takes the place of the
    /// member `old_id`, which is fenced. A stable group whose protocol stays the same goes on
    /// as it is; any other state means a rebalance.
    pub(super) fn join_replacing(
        &mut self,
        turn: &mut Turn,
        join: Join,
        old_id: &Str,
        new_id: Str,
        terms: Terms,
    ) {
        let Some((_, old)) = self.members.get_key_value(old_id) else {
            return;
        };
        let old = old.clone();
        let replacement = Replacement {
            ticket: join.ticket,
            generation: self.generation,
            new_id: new_id.clone(),
            old_leader: self.leader.clone(),
            old_is_unrecorded: old.join.is_some(),
            old: Member {
                join: None,
                sync: None,
                ..old
            },
            can_skip_assignment: join.api_version >= SKIPPING_FROM,
        };
        self.answer_join(turn, old_id, fenced(old_id));
        self.answer_sync_error(turn, old_id, ErrorCode::FencedInstanceId);
        self.rename(old_id, &new_id);
        self.touch(turn, &new_id);
        self.update(&new_id, |member| {
            member.terms = terms;
            member.join = Some(join.ticket);
        });
        match self.state {
            State::Stable if self.select_protocol() == self.protocol => {
                let after = AfterAppend::Replaced(Box::new(replacement));
                let assignments = self.members.iter();
                let assignments = assignments.map(|(id, it)| (id.clone(), it.assignment.clone()));
                let assignments = assignments.collect();
                self.append_metadata(turn, &assignments, after);
            }
            // The leader may already know the old id: what it assigns to that would be lost.
            State::Stable | State::Completing => {
                self.prepare_rebalance(turn, "a static member came again");
            }
            State::Preparing(_) => self.complete_join_if_all_joined(turn),
            State::Empty | State::Dead => debug_assert!(false, "a member of an empty group"),
        }
    }

    /// The replacement is in the log, or could not be appended: then the member is again
    /// what it was, unless the group has moved on with it.
    pub(super) fn replaced(
        &mut self,
        turn: &mut Turn,
        replacement: Replacement,
        result: Result<(), ErrorCode>,
    ) {
        let id = &replacement.new_id;
        let waits = |member: &Member| member.join == Some(replacement.ticket);
        let is_there = self.members.get(id).is_some_and(waits);
        if !is_there || self.state != State::Stable || self.generation != replacement.generation {
            // It was answered, or will be by the rebalance that is under way.
            return;
        }
        match result {
            Ok(()) => {
                let response = self.replacement_for(&replacement);
                self.answer_join(turn, id, response);
                self.touch(turn, id);
            }
            Err(error) => {
                let response = JoinGroupResponse {
                    error_code: error.code(),
                    generation_id: self.generation,
                    protocol_type: self.protocol_type.clone(),
                    protocol_name: Some(self.protocol.clone().unwrap_or_default()),
                    leader: replacement.old_leader.clone().unwrap_or_default(),
                    ..Default::default()
                };
                self.answer_join(turn, id, response);
                self.rename(id, &replacement.old.id);
                let old = replacement.old;
                let old_id = old.id.clone();
                self.update(&old_id, |member| {
                    member.terms = old.terms;
                    member.is_new = old.is_new;
                });
                self.touch(turn, &old_id);
                if self.records_under_way > 0 || replacement.old_is_unrecorded {
                    // The log holds, or will hold, another id: a generation is to follow it.
                    self.prepare_rebalance(turn, "a static member could not be recorded");
                }
            }
        }
    }

    /// From version 9 on a leader that comes again is told so, with the members, and that it
    /// need not assign anew. To an older one the leader is its old id, so that it does not
    /// take itself for it.
    fn replacement_for(&self, replacement: &Replacement) -> JoinGroupResponse {
        let mut response = self.generation_for(&replacement.new_id);
        if replacement.can_skip_assignment {
            response.skip_assignment = self.is_leader(&replacement.new_id);
        } else {
            response.leader = replacement.old_leader.clone().unwrap_or_default();
            response.members = Vec::new();
        }
        response
    }

    /// The member `from` goes by the id `to` from here on.
    fn rename(&mut self, from: &Str, to: &Str) {
        if let Some(mut member) = self.members.remove(from) {
            member.id = to.clone();
            if let Some(instance) = &member.instance {
                self.instances.insert(instance.clone(), to.clone());
            }
            self.members.insert(to.clone(), member);
        }
        if self.is_leader(from) {
            self.leader = Some(to.clone());
        }
    }
}

fn fenced(old_id: &Str) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code: ErrorCode::FencedInstanceId.code(),
        member_id: old_id.clone(),
        ..Default::default()
    }
}

/// The first version in which a leader can be told to skip the assignment (KIP-814).
const SKIPPING_FROM: i16 = 9;
