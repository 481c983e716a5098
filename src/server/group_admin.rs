//! DescribeGroups, ListGroups and DeleteGroups.

use super::groups::{Asker, GROUPS_AT_ONCE};
use super::operations::{GROUP_OPERATIONS, OPERATIONS_UNKNOWN};
use super::respond::{Answer, BadRequest};
use crate::coordinator::{GroupOverview, GroupRequest, GroupResponse};
use crate::protocol::messages::{
    DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest,
    DescribeGroupsResponse, DescribedGroup, DescribedGroupMember, ListGroupsRequest,
    ListGroupsResponse, ListedGroup,
};
use crate::protocol::Str;
use crate::runtime::local::join_bounded;
use std::collections::HashSet;

/// Each group as often as it is named, as in Kafka.
pub(super) async fn describe(
    by: Asker,
    request: DescribeGroupsRequest,
) -> Result<Answer, BadRequest> {
    let names = request.groups.into_iter();
    let asks = names.map(|name| (name.clone(), GroupRequest::Describe(name)));
    let mut groups = by
        .ask_each(
            asks,
            |answer| match answer {
                GroupResponse::Described(group) => Some((bytes_of(&group), group)),
                _ => None,
            },
            |group_id, code| DescribedGroup {
                group_id,
                error_code: code.code(),
                error_message: Some(Str::from_static(code.message())),
                ..Default::default()
            },
        )
        .await?;
    for group in &mut groups {
        if by.version() < 6 {
            group.error_message = None;
        }
        let is_wanted = request.include_authorized_operations && group.error_code == 0;
        group.authorized_operations = match is_wanted {
            true => GROUP_OPERATIONS,
            false => OPERATIONS_UNKNOWN,
        };
    }
    by.answer(&DescribeGroupsResponse {
        groups,
        ..Default::default()
    })
}

/// About what it takes in memory and on the wire.
fn bytes_of(group: &DescribedGroup) -> usize {
    let members = group.members.iter().map(|member: &DescribedGroupMember| {
        size_of_val(member)
            + member.member_id.len()
            + member.group_instance_id.as_ref().map_or(0, |id| id.len())
            + member.client_id.len()
            + member.client_host.len()
            + member.member_metadata.len()
            + member.member_assignment.len()
    });
    size_of_val(group) + group.group_id.len() + members.sum::<usize>()
}

/// The groups of all shards; while one of their partitions loads, only that is said.
pub(super) async fn list(by: Asker, request: ListGroupsRequest) -> Result<Answer, BadRequest> {
    let filters = Filters::of(&request);
    let mut response = ListGroupsResponse::default();
    match by.shard.list_groups().await {
        Ok(groups) => {
            let groups = groups.into_iter().filter(|group| filters.pass(group));
            response.groups = groups.map(listed).collect();
        }
        Err(code) => response.error_code = code.code(),
    }
    by.answer(&response)
}

fn listed(group: GroupOverview) -> ListedGroup {
    ListedGroup {
        group_id: group.group_id,
        protocol_type: group.protocol_type,
        group_state: Str::from_static(group.state),
        group_type: Str::from_static(group.group_type),
    }
}

/// Which groups are listed; an empty set passes all. Case and blanks around a state do
/// not count, as in Kafka.
struct Filters {
    states: HashSet<String>,
    types: HashSet<String>,
}

impl Filters {
    fn of(request: &ListGroupsRequest) -> Filters {
        let states = request.states_filter.iter();
        let types = request.types_filter.iter();
        Filters {
            states: states.map(|text| text.trim().to_lowercase()).collect(),
            types: types.map(|text| text.to_lowercase()).collect(),
        }
    }

    fn pass(&self, group: &GroupOverview) -> bool {
        let passes = |filter: &HashSet<String>, text: &str| {
            filter.is_empty() || filter.contains(&text.to_lowercase())
        };
        passes(&self.states, group.state) && passes(&self.types, group.group_type)
    }
}

/// Each group once, however often it is named, as in Kafka.
pub(super) async fn delete(by: Asker, request: DeleteGroupsRequest) -> Result<Answer, BadRequest> {
    let mut seen = HashSet::new();
    let mut names = request.groups_names;
    names.retain(|name| seen.insert(name.clone()));
    drop(seen);
    let asks = names.iter().cloned();
    let asks = asks.map(|name| by.ask(GroupRequest::DeleteGroup(name)));
    let answers = join_bounded(GROUPS_AT_ONCE, asks).await;
    let results = names.into_iter().zip(answers).map(|(group_id, answer)| {
        let GroupResponse::GroupDeleted(code) = answer else {
            return Err(BadRequest::OfAnotherKind);
        };
        Ok(DeletableGroupResult {
            group_id,
            error_code: code.code(),
        })
    });
    by.answer(&DeleteGroupsResponse {
        results: results.collect::<Result<_, _>>()?,
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_listed_by_state_and_type_whatever_the_case() {
        let group = |state| GroupOverview {
            group_id: "g".into(),
            protocol_type: "consumer".into(),
            state,
            group_type: "classic",
        };
        let pass = |states: &[&'static str], types: &[&'static str], state| {
            let text = |texts: &[&'static str]| texts.iter().map(|&text| text.into()).collect();
            let request = ListGroupsRequest {
                states_filter: text(states),
                types_filter: text(types),
            };
            Filters::of(&request).pass(&group(state))
        };
        assert!(pass(&[], &[], "Stable"));
        assert!(pass(&[" sTABLE "], &["CLASSIC"], "Stable"));
        assert!(pass(
            &["Empty", "PreparingRebalance"],
            &[],
            "PreparingRebalance"
        ));
        assert!(!pass(&["Empty"], &[], "Stable"));
        assert!(!pass(&["Stable"], &["consumer"], "Stable"));
        assert!(!pass(&[], &["classical"], "Stable"));
        assert!(pass(&[], &["consumer", "Classic"], "Empty"));
        assert!(!pass(&[""], &[], "Stable"));
    }
}
