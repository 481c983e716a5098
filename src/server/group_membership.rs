//! JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the coordinator answers them, in the
//! shape of the request's version.

use super::groups::Asker;
use super::respond::{Answer, BadRequest};
use crate::coordinator::{GroupRequest, GroupResponse};
use crate::protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest,
};

macro_rules! handlers {
    ($($name:ident: $request:ident, $kind:ident;)*) => {$(
        pub(super) async fn $name(by: Asker, request: $request) -> Result<Answer, BadRequest> {
            match by.ask(GroupRequest::$kind(request)).await {
                GroupResponse::$kind(response) => by.answer(&response),
                _ => Err(BadRequest::OfAnotherKind),
            }
        }
    )*};
}

handlers! {
    join: JoinGroupRequest, Join;
    sync: SyncGroupRequest, Sync;
    heartbeat: HeartbeatRequest, Heartbeat;
    leave: LeaveGroupRequest, Leave;
}
