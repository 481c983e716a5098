//! DescribeAcls, CreateAcls and DeleteAcls: SECURITY_DISABLED, as Kafka answers without an
//! authorizer. Tools tell by this code that everybody may do everything.

use super::respond::{Answer, Asked, BadRequest};
use crate::protocol::messages::{
    AclCreationResult, CreateAclsRequest, CreateAclsResponse, DeleteAclsFilterResult,
    DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest, DescribeAclsResponse,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;

pub(super) async fn describe(
    _: &Shard,
    asked: Asked,
    _: DescribeAclsRequest,
) -> Result<Answer, BadRequest> {
    Ok(asked.answer(&DescribeAclsResponse {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some(Str::from_static(
            "No Authorizer is configured on the broker",
        )),
        ..Default::default()
    })?)
}

pub(super) async fn create(
    _: &Shard,
    asked: Asked,
    request: CreateAclsRequest,
) -> Result<Answer, BadRequest> {
    let refused = AclCreationResult {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some(WHY),
    };
    Ok(asked.answer(&CreateAclsResponse {
        results: vec![refused; request.creations.len()],
        ..Default::default()
    })?)
}

pub(super) async fn delete(
    _: &Shard,
    asked: Asked,
    request: DeleteAclsRequest,
) -> Result<Answer, BadRequest> {
    let refused = DeleteAclsFilterResult {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some(WHY),
        ..Default::default()
    };
    Ok(asked.answer(&DeleteAclsResponse {
        filter_results: vec![refused; request.filters.len()],
        ..Default::default()
    })?)
}

const WHY: Str = Str::from_static("No Authorizer is configured.");
