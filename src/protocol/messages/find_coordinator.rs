//! FindCoordinator: the broker that has a group's (or a transaction's) state.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for coordinators.
    request FindCoordinatorRequest (FindCoordinator) versions 0..=6 flexible 3 {
        key: Str => { versions: ..=3 },
        /// 0: groups, 1: transactions, 2: share groups.
        key_type: i8 => { versions: 1.. },
        coordinator_keys: Vec<Str> => { versions: 4.. },
    }

    /// The coordinators.
    response FindCoordinatorResponse (FindCoordinator) versions 0..=6 flexible 3 {
        throttle_time_ms: i32 => { versions: 1.., ignorable },
        error_code: i16 => { versions: ..=3 },
        error_message: Option<Str> => {
            versions: 1..=3, default: Some(Str::default()), ignorable
        },
        node_id: i32 => { versions: ..=3 },
        host: Str => { versions: ..=3 },
        port: i32 => { versions: ..=3 },
        coordinators: Vec<Coordinator> => { versions: 4.. },
    }

    /// The coordinator of one key.
    struct Coordinator {
        key: Str,
        node_id: i32,
        host: Str,
        port: i32,
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
    }
}
