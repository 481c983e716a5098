//! JoinGroup: becomes a member of a group, or begins a new generation of it.

use bytes::Bytes;

use crate::protocol::codec::{messages, Str};

messages! {
    /// Joins.
    request JoinGroupRequest (JoinGroup) versions 0..=9 flexible 6 {
        group_id: Str,
        session_timeout_ms: i32,
        /// -1 (version 0): the session timeout.
        rebalance_timeout_ms: i32 => { versions: 1.., default: -1, ignorable },
        /// Empty: a new member.
        member_id: Str,
        group_instance_id: Option<Str> => { versions: 5.. },
        protocol_type: Str,
        protocols: Vec<JoinGroupRequestProtocol>,
        reason: Option<Str> => { versions: 8.., ignorable },
    }

    /// A way of assignment that the member can take, the best first.
    struct JoinGroupRequestProtocol {
        name: Str,
        metadata: Bytes,
    }

    /// The generation; its leader is told of all members.
    response JoinGroupResponse (JoinGroup) versions 0..=9 flexible 6 {
        throttle_time_ms: i32 => { versions: 2.., ignorable },
        error_code: i16,
        generation_id: i32 => { default: -1 },
        protocol_type: Option<Str> => { versions: 7.., ignorable },
        protocol_name: Option<Str> => { nullable: 7.., default: Some(Str::default()) },
        leader: Str,
        skip_assignment: bool => { versions: 9.. },
        member_id: Str,
        members: Vec<JoinGroupResponseMember>,
    }

    /// A member.
    struct JoinGroupResponseMember {
        member_id: Str,
        group_instance_id: Option<Str> => { versions: 5.., ignorable },
        metadata: Bytes,
    }
}
