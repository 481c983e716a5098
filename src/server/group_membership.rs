//! JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the coordinator decides; here its
//! answers get the shape of the request's version.

use super::groups::Asker;
use super::respond::{Answer, BadRequest};
use crate::coordinator::{GroupRequest, GroupResponse};
use crate::protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity,
    SyncGroupRequest,
};
use crate::protocol::ErrorCode;

pub(super) async fn join(by: Asker, mut request: JoinGroupRequest) -> Result<Answer, BadRequest> {
    if by.version() == 0 {
        request.rebalance_timeout_ms = request.session_timeout_ms;
    }
    let GroupResponse::Join(mut response) = by.ask(GroupRequest::Join(request)).await else {
        return Err(BadRequest::OfAnotherKind);
    };
    if by.version() < 7 {
        response.protocol_name.get_or_insert_default();
    }
    by.answer(&response)
}

pub(super) async fn sync(by: Asker, request: SyncGroupRequest) -> Result<Answer, BadRequest> {
    let has_protocol = request.protocol_type.is_some() && request.protocol_name.is_some();
    let request = GroupRequest::Sync(request);
    let response = match by.version() >= 5 && !has_protocol {
        true => request.refused(by.version(), ErrorCode::InconsistentGroupProtocol),
        false => by.ask(request).await,
    };
    let GroupResponse::Sync(response) = response else {
        return Err(BadRequest::OfAnotherKind);
    };
    by.answer(&response)
}

pub(super) async fn heartbeat(by: Asker, request: HeartbeatRequest) -> Result<Answer, BadRequest> {
    let GroupResponse::Heartbeat(response) = by.ask(GroupRequest::Heartbeat(request)).await else {
        return Err(BadRequest::OfAnotherKind);
    };
    by.answer(&response)
}

pub(super) async fn leave(by: Asker, mut request: LeaveGroupRequest) -> Result<Answer, BadRequest> {
    let names_one = by.version() < 3;
    if names_one {
        request.members = vec![MemberIdentity {
            member_id: std::mem::take(&mut request.member_id),
            ..Default::default()
        }];
    }
    let GroupResponse::Leave(mut response) = by.ask(GroupRequest::Leave(request)).await else {
        return Err(BadRequest::OfAnotherKind);
    };
    if names_one {
        response = of_one(response);
    }
    by.answer(&response)
}

/// What became of the one member, as versions below 3 say it.
fn of_one(response: LeaveGroupResponse) -> LeaveGroupResponse {
    let of_member = response.members.first().map_or(0, |one| one.error_code);
    LeaveGroupResponse {
        error_code: match response.error_code {
            0 => of_member,
            of_group => of_group,
        },
        ..Default::default()
    }
}
