//! `highwater group`: consumer groups of a running broker.

mod describe;
mod reset;

use clap::{Args, Subcommand};
use serde_json::{json, Value};

use super::outcome::Outcomes;
use super::remote::RemoteArgs;
use super::render::{print, print_json, Table};
use super::CliError;
use crate::client::{ClientError, Cluster, GroupClient};
use crate::protocol::messages::*;
use crate::protocol::ErrorCode;

/// The commands below `group`.
#[derive(Debug, Subcommand)]
pub(super) enum GroupCommand {
    /// Print the groups of all brokers.
    List(ListArgs),
    /// Print members, assignments, committed offsets and lag of groups.
    Describe(describe::DescribeArgs),
    /// Delete groups without members, and their offsets.
    Delete(DeleteArgs),
    /// Put a group's committed offsets elsewhere, while it has no members; only shown without --execute.
    ResetOffsets(reset::ResetArgs),
}

#[derive(Debug, Clone, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Debug, Clone, Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The groups.
    #[arg(value_name = "GROUP", required = true)]
    names: Vec<String>,
}

pub(super) fn run(command: GroupCommand) -> Result<(), CliError> {
    match command {
        GroupCommand::List(args) => {
            let remote = args.remote.clone();
            remote.run(|_, cluster| async move { list(&cluster, &args).await })
        }
        GroupCommand::Describe(args) => {
            let remote = args.remote.clone();
            remote.run(|_, cluster| async move { describe::describe(&cluster, &args).await })
        }
        GroupCommand::Delete(args) => {
            let remote = args.remote.clone();
            remote.run(|_, cluster| async move { delete(&cluster, &args).await })
        }
        GroupCommand::ResetOffsets(args) => {
            let remote = args.remote.clone();
            remote.run(|rt, cluster| async move { reset::reset(&rt, &cluster, &args).await })
        }
    }
}

async fn list(cluster: &Cluster, args: &ListArgs) -> Result<(), CliError> {
    let groups = all(cluster).await?;
    if args.remote.json {
        let row = |group: &ListedGroup| {
            json!({
                "group": group.group_id.as_str(),
                "state": group.group_state.as_str(),
                "type": group.group_type.as_str(),
                "protocol_type": group.protocol_type.as_str(),
            })
        };
        return print_json(&Value::Array(groups.iter().map(row).collect()));
    }
    let mut table = Table::new(["GROUP", "STATE", "TYPE", "PROTOCOL"]);
    for group in &groups {
        table.row([
            group.group_id.to_string(),
            group.group_state.to_string(),
            group.group_type.to_string(),
            group.protocol_type.to_string(),
        ]);
    }
    print(&table.to_string())
}

/// The groups of every broker, sorted.
async fn all(cluster: &Cluster) -> Result<Vec<ListedGroup>, CliError> {
    cluster.metadata(Some(&[]), false).await?;
    let mut groups = Vec::new();
    for broker in cluster.brokers() {
        let answer = cluster
            .node(broker)
            .await?
            .call(&ListGroupsRequest::default())
            .await?;
        ClientError::check(answer.error_code, None, || {
            format!("list the groups of broker {broker}")
        })?;
        groups.extend(answer.groups);
    }
    groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    Ok(groups)
}

async fn delete(cluster: &Cluster, args: &DeleteArgs) -> Result<(), CliError> {
    let mut outcomes = Outcomes::new("group");
    for name in &args.names {
        let deleted = delete_one(cluster, name, args).await;
        outcomes.add(name, deleted.map(|()| "deleted"), &[]);
    }
    outcomes.finish(args.remote.json)
}

async fn delete_one(cluster: &Cluster, name: &str, args: &DeleteArgs) -> Result<(), ClientError> {
    let group = GroupClient::new(cluster.clone(), name, args.remote.timeout());
    let request = DeleteGroupsRequest {
        groups_names: vec![group.name().clone()],
    };
    let code = |answer: &DeleteGroupsResponse| {
        answer.results.first().map_or(0, |result| result.error_code)
    };
    let answer = group.call(&request, code).await?;
    ClientError::check(code(&answer), None, || format!("delete group {name}"))
}

/// A group as its coordinator describes it; `None` if there is no such group.
async fn described(group: &GroupClient) -> Result<Option<DescribedGroup>, CliError> {
    let request = DescribeGroupsRequest {
        groups: vec![group.name().clone()],
        include_authorized_operations: false,
    };
    let code =
        |answer: &DescribeGroupsResponse| answer.groups.first().map_or(0, |group| group.error_code);
    let answer = group.call(&request, code).await?;
    if code(&answer) == ErrorCode::GroupIdNotFound.code() {
        return Ok(None);
    }
    let message = answer
        .groups
        .first()
        .and_then(|group| group.error_message.as_deref());
    ClientError::check(code(&answer), message, || {
        format!("describe group {}", group.name())
    })?;
    // Before version 6 a group that does not exist is a dead one.
    Ok(answer
        .groups
        .into_iter()
        .next()
        .filter(|group| group.group_state != "Dead"))
}
