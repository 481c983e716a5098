//! DeleteAcls: takes ACLs away (KIP-140).

use crate::protocol::codec::{messages, Str};

messages! {
    /// Asks for ACLs to go.
    request DeleteAclsRequest (DeleteAcls) versions 1..=3 flexible 2 {
        filters: Vec<DeleteAclsFilter>,
    }

    /// Which ones.
    struct DeleteAclsFilter {
        resource_type_filter: i8,
        resource_name_filter: Option<Str> => { default: Some(Str::default()) },
        pattern_type_filter: i8 => { default: 3 },
        principal_filter: Option<Str> => { default: Some(Str::default()) },
        host_filter: Option<Str> => { default: Some(Str::default()) },
        operation: i8,
        permission_type: i8,
    }

    /// What came of it, in the order of the request.
    response DeleteAclsResponse (DeleteAcls) versions 1..=3 flexible 2 {
        throttle_time_ms: i32,
        filter_results: Vec<DeleteAclsFilterResult>,
    }

    /// What one filter found.
    struct DeleteAclsFilterResult {
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        matching_acls: Vec<DeleteAclsMatchingAcl>,
    }

    /// One ACL.
    struct DeleteAclsMatchingAcl {
        error_code: i16,
        error_message: Option<Str> => { default: Some(Str::default()) },
        resource_type: i8,
        resource_name: Str,
        pattern_type: i8 => { default: 3 },
        principal: Str,
        host: Str,
        operation: i8,
        permission_type: i8,
    }
}
