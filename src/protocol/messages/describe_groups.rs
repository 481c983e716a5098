//! DescribeGroups: the state of groups and their members.

use bytes::Bytes;

use crate::protocol::codec::{messages, Str};

messages! {
    /// Which groups.
    request DescribeGroupsRequest (DescribeGroups) versions 0..=6 flexible 5 {
        groups: Vec<Str>,
        include_authorized_operations: bool => { versions: 3.. },
    }

    /// The groups.
    response DescribeGroupsResponse (DescribeGroups) versions 0..=6 flexible 5 {
        throttle_time_ms: i32 => { versions: 1.., ignorable },
        groups: Vec<DescribedGroup>,
    }

    /// A group.
    struct DescribedGroup {
        error_code: i16,
        error_message: Option<Str> => { versions: 6.. },
        group_id: Str,
        /// As Kafka names it: `Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable`, `Dead`.
        group_state: Str,
        protocol_type: Str,
        /// The chosen protocol.
        protocol_data: Str,
        members: Vec<DescribedGroupMember>,
        authorized_operations: i32 => { versions: 3.., default: i32::MIN },
    }

    /// A member.
    struct DescribedGroupMember {
        member_id: Str,
        group_instance_id: Option<Str> => { versions: 4.., ignorable },
        client_id: Str,
        client_host: Str,
        member_metadata: Bytes,
        member_assignment: Bytes,
    }
}
