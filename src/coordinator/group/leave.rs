//! Heartbeat and LeaveGroup.

use super::{Group, State};
use crate::coordinator::call::{GroupResponse, Ticket};
use crate::coordinator::outbox::Turn;
use crate::protocol::messages::{
    HeartbeatRequest, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse,
};
use crate::protocol::ErrorCode;

impl Group {
    /// A member says that it is alive, and learns whether to join again.
    pub fn heartbeat(&mut self, turn: &mut Turn, request: &HeartbeatRequest) -> ErrorCode {
        let id = &request.member_id;
        if self.state == State::Dead {
            return ErrorCode::CoordinatorNotAvailable;
        }
        if let Err(error) = self.check_member(id, request.group_instance_id.as_ref()) {
            return error;
        }
        if request.generation_id != self.generation {
            return ErrorCode::IllegalGeneration;
        }
        self.touch(turn, id);
        match self.state {
            State::Preparing(_) => ErrorCode::RebalanceInProgress,
            _ => ErrorCode::None,
        }
    }

    /// Members leave, or are removed by an operator, by id or by instance id. If the group
    /// is empty thereafter, the answer waits until that is in the log.
    pub fn leave(
        &mut self,
        turn: &mut Turn,
        ticket: Ticket,
        api_version: i16,
        request: &LeaveGroupRequest,
    ) {
        if self.state == State::Dead {
            let error = ErrorCode::CoordinatorNotAvailable;
            return turn.answer(ticket, answer(error, Vec::new()));
        }
        let appends_before = turn.appends();
        let mut members = Vec::new();
        for identity in leaving(api_version, request) {
            let result = self.let_go(turn, &identity);
            members.push(left(identity, result));
        }
        let has_left = members
            .iter()
            .any(|it| it.error_code == ErrorCode::None.code());
        match self.state {
            State::Completing | State::Stable if has_left => {
                self.prepare_rebalance(turn, "members left");
            }
            State::Preparing(_) if has_left => self.complete_join_if_all_joined(turn),
            _ => {}
        }
        let response = left_together(api_version, members);
        turn.answer_after_appends(appends_before, ticket, response);
    }

    fn let_go(&mut self, turn: &mut Turn, identity: &MemberIdentity) -> Result<(), ErrorCode> {
        let instance = identity.group_instance_id.as_ref();
        let id = if identity.member_id.is_empty() {
            let known = instance.and_then(|instance| self.instances.get(instance));
            known.cloned().ok_or(ErrorCode::UnknownMemberId)?
        } else {
            if !self.pending.contains_key(&identity.member_id) {
                self.check_member(&identity.member_id, instance)?;
            }
            identity.member_id.clone()
        };
        self.remove(turn, &id, ErrorCode::UnknownMemberId);
        tracing::debug!(
            group = %self.id(), member = %id, reason = identity.reason.as_deref(), "a member left"
        );
        Ok(())
    }
}

/// The answer where there is no such group.
pub(in crate::coordinator) fn nobody_left(
    api_version: i16,
    request: &LeaveGroupRequest,
) -> GroupResponse {
    let members = leaving(api_version, request).into_iter();
    let members = members.map(|identity| left(identity, Err(ErrorCode::UnknownMemberId)));
    left_together(api_version, members.collect())
}

/// Who is to leave: before version 3 one member.
fn leaving(api_version: i16, request: &LeaveGroupRequest) -> Vec<MemberIdentity> {
    match api_version < BATCHES_FROM {
        true => vec![MemberIdentity {
            member_id: request.member_id.clone(),
            ..Default::default()
        }],
        false => request.members.clone(),
    }
}

fn left(identity: MemberIdentity, result: Result<(), ErrorCode>) -> MemberResponse {
    MemberResponse {
        member_id: identity.member_id,
        group_instance_id: identity.group_instance_id,
        error_code: result.err().unwrap_or(ErrorCode::None).code(),
    }
}

/// Before version 3 the one member's error is that of the answer.
fn left_together(api_version: i16, members: Vec<MemberResponse>) -> GroupResponse {
    match (api_version < BATCHES_FROM, members.first()) {
        (true, Some(only)) => {
            let error = ErrorCode::from_code(only.error_code);
            answer(error.unwrap_or(ErrorCode::UnknownServerError), Vec::new())
        }
        _ => answer(ErrorCode::None, members),
    }
}

fn answer(error: ErrorCode, members: Vec<MemberResponse>) -> GroupResponse {
    GroupResponse::Leave(LeaveGroupResponse {
        error_code: error.code(),
        members,
        ..Default::default()
    })
}

/// The first version in which several members may leave with one request.
const BATCHES_FROM: i16 = 3;
