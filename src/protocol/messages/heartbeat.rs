//! Heartbeat: a member is alive, and learns whether a rebalance goes on.

use crate::protocol::codec::{messages, Str};

messages! {
    /// The member is alive.
    request HeartbeatRequest (Heartbeat) versions 0..=4 flexible 4 {
        group_id: Str,
        generation_id: i32,
        member_id: Str,
        group_instance_id: Option<Str> => { versions: 3.. },
    }

    /// The answer.
    response HeartbeatResponse (Heartbeat) versions 0..=4 flexible 4 {
        throttle_time_ms: i32 => { versions: 1.., ignorable },
        error_code: i16,
    }
}
