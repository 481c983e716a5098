//! SyncGroup: the leader hands in the assignments, each member takes its own.

use super::{AfterAppend, Group, State};
use crate::coordinator::call::{GroupResponse, Ticket};
use crate::coordinator::outbox::Turn;
use crate::protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use crate::protocol::{ErrorCode, Str};
use crate::runtime::local::Permit;
use bytes::Bytes;
use std::collections::BTreeMap;

impl Group {
    /// A member asks for its assignment; the leader brings those of all.
    pub fn sync(
        &mut self,
        turn: &mut Turn,
        ticket: Ticket,
        api_version: i16,
        request: &SyncGroupRequest,
    ) -> Result<(), ErrorCode> {
        let id = &request.member_id;
        self.check_sync(api_version, request)?;
        match self.state {
            State::Preparing(_) => return Err(ErrorCode::RebalanceInProgress),
            State::Completing => {
                // What the leader sent first is what counts.
                let is_assignment = self.is_leader(id) && !self.is_assigning;
                let bytes = if is_assignment { bytes_of(request) } else { 0 };
                let memory = turn.settings.members_memory.try_acquire(bytes);
                let memory = memory.ok_or(ErrorCode::CoordinatorNotAvailable)?;
                // One that is overtaken by another of the same member.
                self.answer_sync_error(turn, id, ErrorCode::RebalanceInProgress);
                self.update(id, |member| {
                    member.sync = Some(ticket);
                    member.owes_sync = false;
                });
                self.stop_waiting_for_syncs();
                if is_assignment {
                    self.assign(turn, request, memory);
                }
            }
            State::Stable => {
                self.update(id, |member| member.owes_sync = false);
                self.stop_waiting_for_syncs();
                let response = self.assignment_for(id);
                turn.answer(ticket, GroupResponse::Sync(response));
            }
            // Without members none was found.
            State::Empty | State::Dead => return Err(ErrorCode::UnknownMemberId),
        }
        Ok(())
    }

    fn check_sync(&self, api_version: i16, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
        let is_named = request.protocol_type.is_some() && request.protocol_name.is_some();
        if api_version >= NAMED_FROM && !is_named {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        if self.state == State::Dead {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        self.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        if request.generation_id != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        let is_other = |asked: &Option<Str>, own: &Option<Str>| match (asked, own) {
            (Some(asked), Some(own)) => asked != own,
            _ => false,
        };
        if is_other(&request.protocol_type, &self.protocol_type)
            || is_other(&request.protocol_name, &self.protocol)
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        Ok(())
    }

    /// Has the leader's assignments appended. A member that got none has an empty one.
    fn assign(&mut self, turn: &mut Turn, request: &SyncGroupRequest, memory: Permit) {
        let assignments = request.assignments.iter();
        let known = assignments.filter_map(|given| {
            let (id, _) = self.members.get_key_value(&given.member_id)?;
            Some((id.clone(), Bytes::copy_from_slice(&given.assignment)))
        });
        let assignments: BTreeMap<Str, Bytes> = known.collect();
        self.is_assigning = true;
        let after = AfterAppend::Assigned {
            generation: self.generation,
            assignments: assignments.clone(),
            memory,
        };
        self.append_metadata(turn, &assignments, after);
    }

    /// The assignments of `generation` are durable, or could not be appended. By then the
    /// group may be on its way to another generation.
    pub(super) fn assigned(
        &mut self,
        turn: &mut Turn,
        generation: i32,
        mut assignments: BTreeMap<Str, Bytes>,
        result: Result<(), ErrorCode>,
    ) {
        if self.state != State::Completing || self.generation != generation {
            return;
        }
        self.is_assigning = false;
        if let Err(error) = result {
            self.reset_assignments(turn, error);
            return self.prepare_rebalance(turn, "the assignments could not be appended");
        }
        for (id, member) in &mut self.members {
            member.assignment = assignments.remove(id).unwrap_or_default();
        }
        for id in self.member_ids() {
            let response = self.assignment_for(&id);
            if self.answer_sync(turn, &id, response) {
                self.touch(turn, &id);
            }
        }
        self.enter(turn, State::Stable);
    }

    /// Takes the assignments away; members that wait for one get the error.
    pub(super) fn reset_assignments(&mut self, turn: &mut Turn, error: ErrorCode) {
        for id in self.member_ids() {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = Bytes::new();
            }
            if self.answer_sync_error(turn, &id, error) {
                self.touch(turn, &id);
            }
        }
    }

    fn assignment_for(&self, id: &Str) -> SyncGroupResponse {
        let member = self.members.get(id);
        SyncGroupResponse {
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol.clone(),
            assignment: member
                .map(|member| member.assignment.clone())
                .unwrap_or_default(),
            ..Default::default()
        }
    }

    fn stop_waiting_for_syncs(&mut self) {
        if self.owing_syncs == 0 {
            self.sync_deadline = None;
        }
    }

    /// Members that did not sync in time are left behind.
    pub(super) fn sync_time_is_over(&mut self, turn: &mut Turn) {
        self.sync_deadline = None;
        if !matches!(self.state, State::Completing | State::Stable) {
            return;
        }
        let owing = self.members.values().filter(|member| member.owes_sync);
        let owing: Vec<Str> = owing.map(|member| member.id.clone()).collect();
        if owing.is_empty() {
            return;
        }
        for id in &owing {
            self.remove(turn, id, ErrorCode::UnknownMemberId);
        }
        self.prepare_rebalance(turn, "members did not sync");
    }
}

/// What the assignments take while they are appended, about: they, and their record.
fn bytes_of(request: &SyncGroupRequest) -> u64 {
    let assignments = request.assignments.iter();
    let bytes = assignments.map(|it| ASSIGNMENT_BYTES + it.member_id.len() + it.assignment.len());
    2 * bytes.sum::<usize>() as u64
}

/// What an assignment takes besides its bytes, about.
const ASSIGNMENT_BYTES: usize = 100;
/// The first version that has to name the protocol and its type.
const NAMED_FROM: i16 = 5;
