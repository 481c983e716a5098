//! ListGroups: all groups that a broker coordinates.

use crate::protocol::codec::{messages, Str};

messages! {
    /// Which groups.
    request ListGroupsRequest (ListGroups) versions 0..=5 flexible 3 {
        /// Empty: in any state.
        states_filter: Vec<Str> => { versions: 4.. },
        /// Empty: of any type.
        types_filter: Vec<Str> => { versions: 5.. },
    }

    /// The groups.
    response ListGroupsResponse (ListGroups) versions 0..=5 flexible 3 {
        throttle_time_ms: i32 => { versions: 1.., ignorable },
        error_code: i16,
        groups: Vec<ListedGroup>,
    }

    /// A group.
    struct ListedGroup {
        group_id: Str,
        protocol_type: Str,
        group_state: Str => { versions: 4.., ignorable },
        group_type: Str => { versions: 5.., ignorable },
    }
}
