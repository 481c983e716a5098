//! SyncGroup: the leader gives the assignments of a generation, each member takes its own.

use bytes::Bytes;

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for the assignment.
    request SyncGroupRequest (SyncGroup) versions 0..=5 flexible 4 {
        group_id: Str,
        generation_id: i32,
        member_id: Str,
        group_instance_id: Option<Str> => { versions: 3.. },
        protocol_type: Option<Str> => { versions: 5.., ignorable },
        protocol_name: Option<Str> => { versions: 5.., ignorable },
        /// Empty from any but the leader.
        assignments: Vec<SyncGroupRequestAssignment>,
    }

    /// The assignment of a member.
    struct SyncGroupRequestAssignment {
        member_id: Str,
        assignment: Bytes,
    }

    /// The assignment.
    response SyncGroupResponse (SyncGroup) versions 0..=5 flexible 4 {
        throttle_time_ms: i32 => { versions: 1.., ignorable },
        error_code: i16,
        protocol_type: Option<Str> => { versions: 5.., ignorable },
        protocol_name: Option<Str> => { versions: 5.., ignorable },
        assignment: Bytes,
    }
}
