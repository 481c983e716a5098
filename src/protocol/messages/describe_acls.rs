//! DescribeAcls: who may do what (KIP-140).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for ACLs.
    request DescribeAclsRequest (DescribeAcls) versions 1..=3 flexible 2 {
        resource_type_filter: i8,
        resource_name_filter: Option<Str> => { default: Some(Str::default()) },
        pattern_type_filter: i8 => { default: 3 },
        principal_filter: Option<Str> => { default: Some(Str::default()) },
        host_filter: Option<Str> => { default: Some(Str::default()) },
        operation: i8,
        permission_type: i8,
    }

    /// The ACLs.
    response DescribeAclsResponse (DescribeAcls) versions 1..=3 flexible 2 {
        throttle_time_ms: i32,
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        resources: Vec<DescribeAclsResource>,
    }

    /// Those of one resource.
    struct DescribeAclsResource {
        resource_type: i8,
        resource_name: Str,
        pattern_type: i8 => { default: 3 },
        acls: Vec<AclDescription>,
    }

    /// One.
    struct AclDescription {
        principal: Str,
        host: Str,
        operation: i8,
        permission_type: i8,
    }
}
