//! DescribeUserScramCredentials (KIP-554): no user has any, and AlterUserScramCredentials,
//! which would give some, is not served.

use super::respond::{shown, Answer, Asked, BadRequest};
use crate::protocol::messages::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;
use std::collections::BTreeMap;

/// Answers each user once.
pub(super) async fn describe(
    _: &Shard,
    asked: Asked,
    request: DescribeUserScramCredentialsRequest,
) -> Result<Answer, BadRequest> {
    let mut times: BTreeMap<Str, usize> = BTreeMap::new();
    for user in request.users.unwrap_or_default() {
        *times.entry(user.name).or_default() += 1;
    }
    let results = times.into_iter().map(|(user, times)| {
        let (code, message) = match times {
            1 => (
                ErrorCode::ResourceNotFound,
                "Attempt to describe a user credential that does not exist: ",
            ),
            _ => (
                ErrorCode::DuplicateResource,
                "Cannot describe SCRAM credentials for the same user twice in a single request: ",
            ),
        };
        DescribeUserScramCredentialsResult {
            error_code: code.code(),
            error_message: Some(Str::from(format!("{message}{}", shown(&user)))),
            user,
            ..Default::default()
        }
    });
    Ok(asked.answer(&DescribeUserScramCredentialsResponse {
        error_message: None,
        results: results.collect(),
        ..Default::default()
    })?)
}
