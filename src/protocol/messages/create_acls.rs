//! CreateAcls: lets somebody do something, or forbids it (KIP-140).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for ACLs to be made.
    request CreateAclsRequest (CreateAcls) versions 1..=3 flexible 2 {
        creations: Vec<AclCreation>,
    }

    /// One.
    struct AclCreation {
        resource_type: i8,
        resource_name: Str,
        resource_pattern_type: i8 => { default: 3 },
        principal: Str,
        host: Str,
        operation: i8,
        permission_type: i8,
    }

    /// What came of it, in the order of the request.
    response CreateAclsResponse (CreateAcls) versions 1..=3 flexible 2 {
        throttle_time_ms: i32,
        results: Vec<AclCreationResult>,
    }

    /// One.
    struct AclCreationResult {
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
    }
}
