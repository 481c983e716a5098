//! DeleteGroups: removes groups that have no members, and their offsets.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Which groups.
    request DeleteGroupsRequest (DeleteGroups) versions 0..=2 flexible 2 {
        groups_names: Vec<Str>,
    }

    /// The answer.
    response DeleteGroupsResponse (DeleteGroups) versions 0..=2 flexible 2 {
        throttle_time_ms: i32,
        results: Vec<DeletableGroupResult>,
    }

    /// What became of one.
    struct DeletableGroupResult {
        group_id: Str,
        error_code: i16,
    }
}
