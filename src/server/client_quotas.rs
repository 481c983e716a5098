//! DescribeClientQuotas (KIP-546): there are no quotas, and AlterClientQuotas, which would
//! make some, is not served. A filter is checked as in Kafka all the same.

use super::respond::{shown, Answer, Asked, BadRequest};
use crate::protocol::messages::{
    ClientQuotaFilter, DescribeClientQuotasRequest, DescribeClientQuotasResponse,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;

pub(super) async fn describe(
    _: &Shard,
    asked: Asked,
    request: DescribeClientQuotasRequest,
) -> Result<Answer, BadRequest> {
    let response = match check(&request.components) {
        Ok(()) => DescribeClientQuotasResponse {
            error_message: None,
            ..Default::default()
        },
        Err((code, message)) => DescribeClientQuotasResponse {
            error_code: code.code(),
            error_message: Some(Str::from(message)),
            entries: None,
            ..Default::default()
        },
    };
    Ok(asked.answer(&response)?)
}

fn check(components: &[ClientQuotaFilter]) -> Result<(), (ErrorCode, String)> {
    let invalid = |message: String| (ErrorCode::InvalidRequest, message);
    let mut seen: Vec<&str> = Vec::new();
    for component in components {
        let entity_type = component.entity_type.as_str();
        if entity_type.is_empty() {
            return Err(invalid("Invalid empty entity type.".to_owned()));
        }
        if seen.contains(&entity_type) {
            return Err(invalid(format!(
                "Entity type {entity_type} cannot appear more than once in the filter."
            )));
        }
        if !ENTITY_TYPES.contains(&entity_type) {
            return Err((
                ErrorCode::UnsupportedVersion,
                format!("Unsupported entity type {}", shown(entity_type)),
            ));
        }
        let name = |word, fits| match fits {
            true => Ok(()),
            false => Err(invalid(format!(
                "Request specified {word}, but also specified a match string."
            ))),
        };
        match component.match_type {
            0 if component._match.is_none() => {
                return Err(invalid(
                    "Request specified MATCH_TYPE_EXACT, but set match string to null.".to_owned(),
                ))
            }
            0 => {}
            1 => name("MATCH_TYPE_DEFAULT", component._match.is_none())?,
            2 => name("MATCH_TYPE_SPECIFIED", component._match.is_none())?,
            other => return Err(invalid(format!("Unknown match type {other}"))),
        }
        seen.push(entity_type);
    }
    if seen.contains(&"ip") && seen.len() > 1 {
        return Err(invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component.".to_owned(),
        ));
    }
    Ok(())
}

const ENTITY_TYPES: [&str; 3] = ["user", "client-id", "ip"];

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(components: &[(&'static str, i8, Option<&'static str>)]) -> Option<ErrorCode> {
        let components: Vec<_> = components
            .iter()
            .map(|(entity, match_type, name)| ClientQuotaFilter {
                entity_type: Str::from_static(entity),
                match_type: *match_type,
                _match: name.map(Str::from_static),
            })
            .collect();
        check(&components).err().map(|(code, _)| code)
    }

    #[test]
    fn filters_are_checked_as_in_kafka() {
        let good: [&[_]; 4] = [
            &[],
            &[("user", 0, Some("a")), ("client-id", 1, None)],
            &[("user", 2, None)],
            &[("ip", 0, Some("127.0.0.1"))],
        ];
        for components in good {
            assert_eq!(fault(components), None, "{components:?}");
        }
        let bad: [&[_]; 7] = [
            &[("", 0, Some("a"))],
            &[("user", 0, None)],
            &[("user", 1, Some("a"))],
            &[("user", 2, Some("a"))],
            &[("user", 3, None)],
            &[("user", 2, None), ("user", 1, None)],
            &[("ip", 1, None), ("user", 1, None)],
        ];
        for components in bad {
            let code = Some(ErrorCode::InvalidRequest);
            assert_eq!(fault(components), code, "{components:?}");
        }
        let unknown = fault(&[("group", 1, None)]);
        assert_eq!(unknown, Some(ErrorCode::UnsupportedVersion));
    }
}
