//! LeaveGroup: members leave a group at once.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Who leaves.
    request LeaveGroupRequest (LeaveGroup) versions 0..=5 flexible 4 {
        group_id: Str,
        member_id: Str => { versions: ..=2 },
        members: Vec<MemberIdentity> => { versions: 3.. },
    }

    /// A member, by its id or by its instance.
    struct MemberIdentity {
        member_id: Str,
        group_instance_id: Option<Str>,
        reason: Option<Str> => { versions: 5.., ignorable },
    }

    /// The answer.
    response LeaveGroupResponse (LeaveGroup) versions 0..=5 flexible 4 {
        throttle_time_ms: i32 => { versions: 1.., ignorable },
        error_code: i16,
        members: Vec<MemberResponse> => { versions: 3.. },
    }

    /// What became of one.
    struct MemberResponse {
        member_id: Str,
        group_instance_id: Option<Str> => { default: Some(Str::default()) },
        error_code: i16,
    }
}
