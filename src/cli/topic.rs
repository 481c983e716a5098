//! `highwater topic`: the topics of a running broker.
//!
//! A command that changes several topics tries all of them, says what became of each, and fails if one did.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::{json, Value};

use super::config::{self, Change, ConfigValue, Resource};
use super::outcome::Outcomes;
use super::remote::{check_topic, pair, topics, RemoteArgs};
use super::render::{list, print, print_json, shown, Table};
use super::CliError;
use crate::client::{ClientError, Cluster, ListedOffset, PartitionKey, EARLIEST, LATEST};
use crate::protocol::messages::*;
use crate::protocol::{ErrorCode, Str};

/// The commands below `topic`.
#[derive(Debug, Subcommand)]
pub(super) enum TopicCommand {
    /// Create topics.
    Create(CreateArgs),
    /// Print the topics.
    List(ListArgs),
    /// Print partitions, leaders, offsets and overridden settings of topics; of all, without a name.
    Describe(DescribeArgs),
    /// Add partitions to a topic, or change its settings.
    Alter(AlterArgs),
    /// Delete topics with all that they hold.
    Delete(DeleteArgs),
}

/// What is created.
#[derive(Debug, Clone, Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The topics.
    #[arg(value_name = "TOPIC", required = true)]
    names: Vec<String>,
    /// Partitions of each; the broker's num.partitions if not given.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Replicas of each partition; the broker's default if not given.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(i16).range(1..))]
    replication: Option<i16>,
    /// A setting of the topics; may be repeated.
    #[arg(long = "config", short, value_name = "NAME=VALUE", value_parser = pair)]
    configs: Vec<(String, String)>,
    /// A topic that exists is no error.
    #[arg(long)]
    if_not_exists: bool,
    /// Only check whether it could be done.
    #[arg(long)]
    validate_only: bool,
}

#[derive(Debug, Clone, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Print internal topics too.
    #[arg(long)]
    internal: bool,
}

#[derive(Debug, Clone, Args)]
pub(super) struct DescribeArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The topics.
    #[arg(value_name = "TOPIC")]
    names: Vec<String>,
}

/// What is changed.
#[derive(Debug, Clone, Args)]
pub(super) struct AlterArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The topic.
    #[arg(value_name = "TOPIC")]
    name: String,
    /// Partitions in all, more than it has.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Set a setting; may be repeated.
    #[arg(long = "config", short, value_name = "NAME=VALUE", value_parser = pair)]
    configs: Vec<(String, String)>,
    /// Take a setting back to its default; may be repeated.
    #[arg(long, value_name = "NAME")]
    unset: Vec<String>,
    /// A topic that does not exist is no error.
    #[arg(long)]
    if_exists: bool,
    /// Only check whether it could be done.
    #[arg(long)]
    validate_only: bool,
}

#[derive(Debug, Clone, Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The topics.
    #[arg(value_name = "TOPIC", required = true)]
    names: Vec<String>,
    /// A topic that does not exist is no error.
    #[arg(long)]
    if_exists: bool,
}

pub(super) fn run(command: TopicCommand) -> Result<(), CliError> {
    match command {
        TopicCommand::Create(args) => {
            let remote = args.remote.clone();
            remote.run(|_, cluster| async move { create(&cluster, &args).await })
        }
        TopicCommand::List(args) => {
            let remote = args.remote.clone();
            remote.run(|_, cluster| async move { list_topics(&cluster, &args).await })
        }
        TopicCommand::Describe(args) => {
            let remote = args.remote.clone();
            remote.run(|_, cluster| async move { describe(&cluster, &args).await })
        }
        TopicCommand::Alter(args) => {
            let remote = args.remote.clone();
            remote.run(|_, cluster| async move { alter(&cluster, &args).await })
        }
        TopicCommand::Delete(args) => {
            let remote = args.remote.clone();
            remote.run(|_, cluster| async move { delete(&cluster, &args).await })
        }
    }
}

async fn create(cluster: &Cluster, args: &CreateArgs) -> Result<(), CliError> {
    let config = |(name, value): &(String, String)| CreatableTopicConfig {
        name: Str::from(name.clone()),
        value: Some(Str::from(value.clone())),
    };
    let topic = |name: &String| CreatableTopic {
        name: Str::from(name.clone()),
        num_partitions: args.partitions.unwrap_or(-1),
        replication_factor: args.replication.unwrap_or(-1),
        assignments: Vec::new(),
        configs: args.configs.iter().map(config).collect(),
    };
    let request = CreateTopicsRequest {
        topics: args.names.iter().map(topic).collect(),
        timeout_ms: args.remote.timeout_ms(),
        validate_only: args.validate_only,
    };
    let response = cluster.any().await?.call(&request).await?;
    let mut outcomes = Outcomes::new("topic");
    for result in response.topics {
        let name = result.name.as_str();
        let exists = result.error_code == ErrorCode::TopicAlreadyExists.code();
        let doing = || format!("create topic {name}");
        let checked = match exists && args.if_not_exists {
            true => Ok("exists"),
            false => ClientError::check(result.error_code, result.error_message.as_deref(), doing)
                .map(|()| {
                    if args.validate_only {
                        "valid"
                    } else {
                        "created"
                    }
                }),
        };
        let details = match result.error_code {
            0 if result.num_partitions > 0 => vec![
                ("partitions", json!(result.num_partitions)),
                ("replication_factor", json!(result.replication_factor)),
            ],
            _ => Vec::new(),
        };
        outcomes.add(name, checked, &details);
    }
    outcomes.finish(args.remote.json)
}

async fn list_topics(cluster: &Cluster, args: &ListArgs) -> Result<(), CliError> {
    let mut found = cluster.metadata(None, false).await?.topics;
    found.retain(|topic| args.internal || !topic.is_internal);
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let mut table = Table::new(["TOPIC", "PARTITIONS", "REPLICATION"]);
    let mut documents = Vec::new();
    for topic in &found {
        let name = topic.name.as_deref().unwrap_or_default();
        let (partitions, replicas) = (topic.partitions.len(), replication(topic));
        table.row([
            name.to_owned(),
            partitions.to_string(),
            replicas.to_string(),
        ]);
        documents.push(json!({
            "topic": name,
            "topic_id": topic.topic_id.to_string(),
            "internal": topic.is_internal,
            "partitions": partitions,
            "replication_factor": replicas,
        }));
    }
    match args.remote.json {
        true => print_json(&Value::Array(documents)),
        false => print(&table.to_string()),
    }
}

fn replication(topic: &MetadataResponseTopic) -> usize {
    let replicas = topic.partitions.iter().map(|p| p.replica_nodes.len());
    replicas.max().unwrap_or(0)
}

type Ends = BTreeMap<PartitionKey, Result<ListedOffset, ErrorCode>>;

async fn describe(cluster: &Cluster, args: &DescribeArgs) -> Result<(), CliError> {
    let found = topics(cluster, &args.names).await?;
    let keys: Vec<PartitionKey> = found.iter().flat_map(partition_keys).collect();
    let queries = |mark: i64| {
        keys.iter()
            .map(|key| (key.clone(), mark))
            .collect::<Vec<_>>()
    };
    let starts = cluster.list_offsets(&queries(EARLIEST), false).await?;
    let ends = cluster.list_offsets(&queries(LATEST), false).await?;
    let resources: Vec<Resource> = found
        .iter()
        .map(|topic| Resource::Topic(topic.name.as_deref().unwrap_or_default().to_owned()))
        .collect();
    let configs = config::describe(cluster, &resources, None).await?;
    let mut documents = Vec::new();
    for (place, topic) in found.iter().enumerate() {
        let overridden: Vec<&ConfigValue> = configs[place]
            .iter()
            .filter(|value| value.is_the_topics())
            .collect();
        match args.remote.json {
            true => documents.push(topic_json(topic, &overridden, &starts, &ends)),
            false => {
                let blank = if place == 0 { "" } else { "\n" };
                print(&format!(
                    "{blank}{}",
                    topic_text(topic, &overridden, &starts, &ends)
                ))?;
            }
        }
    }
    match args.remote.json {
        true => print_json(&Value::Array(documents)),
        false => Ok(()),
    }
}

fn partition_keys(topic: &MetadataResponseTopic) -> Vec<PartitionKey> {
    let name = topic.name.clone().unwrap_or_default();
    let partitions = topic.partitions.iter();
    partitions
        .map(|p| (name.clone(), p.partition_index))
        .collect()
}

fn topic_text(
    topic: &MetadataResponseTopic,
    overridden: &[&ConfigValue],
    starts: &Ends,
    ends: &Ends,
) -> String {
    let name = topic.name.as_deref().unwrap_or_default();
    let mut text = format!(
        "topic {}{}\n",
        shown(name),
        if topic.is_internal { " (internal)" } else { "" }
    );
    text += &format!("  id           {}\n", topic.topic_id);
    text += &format!("  partitions   {}\n", topic.partitions.len());
    text += &format!("  replication  {}\n", replication(topic));
    for value in overridden {
        let is = value.value.as_deref().unwrap_or("(hidden)");
        text += &format!("  config       {}={}\n", value.name, shown(is));
    }
    let mut table = Table::new([
        "PARTITION",
        "LEADER",
        "EPOCH",
        "REPLICAS",
        "IN SYNC",
        "START",
        "END",
        "RECORDS",
    ]);
    for partition in &topic.partitions {
        let key = (
            topic.name.clone().unwrap_or_default(),
            partition.partition_index,
        );
        let (start, end) = (offset_of(starts, &key), offset_of(ends, &key));
        let number =
            |offset: Option<i64>| offset.map_or_else(String::new, |offset| offset.to_string());
        let leader = Some(partition.leader_id).filter(|leader| *leader >= 0);
        table.row([
            partition.partition_index.to_string(),
            leader.map_or("none".to_owned(), |leader| leader.to_string()),
            partition.leader_epoch.to_string(),
            list(&partition.replica_nodes),
            list(&partition.isr_nodes),
            number(start),
            number(end),
            number(start.zip(end).map(|(start, end)| end - start)),
        ]);
    }
    text + &table.to_string()
}

fn offset_of(offsets: &Ends, key: &PartitionKey) -> Option<i64> {
    Some(offsets.get(key)?.as_ref().ok()?.offset)
}

fn topic_json(
    topic: &MetadataResponseTopic,
    overridden: &[&ConfigValue],
    starts: &Ends,
    ends: &Ends,
) -> Value {
    let partition = |partition: &MetadataResponsePartition| {
        let key = (
            topic.name.clone().unwrap_or_default(),
            partition.partition_index,
        );
        json!({
            "partition": partition.partition_index,
            "leader": Some(partition.leader_id).filter(|leader| *leader >= 0),
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replica_nodes,
            "isr": partition.isr_nodes,
            "offline_replicas": partition.offline_replicas,
            "start_offset": offset_of(starts, &key),
            "end_offset": offset_of(ends, &key),
        })
    };
    let configs = overridden
        .iter()
        .map(|value| (value.name.clone(), json!(value.value)));
    json!({
        "topic": topic.name.as_deref(),
        "topic_id": topic.topic_id.to_string(),
        "internal": topic.is_internal,
        "replication_factor": replication(topic),
        "configs": configs.collect::<serde_json::Map<_, _>>(),
        "partitions": topic.partitions.iter().map(partition).collect::<Vec<_>>(),
    })
}

async fn alter(cluster: &Cluster, args: &AlterArgs) -> Result<(), CliError> {
    let changes = Change::all(&args.configs, &args.unset, &[], &[]);
    if args.partitions.is_none() && changes.is_empty() {
        let sentence = "nothing is to be changed: give --partitions, --config or --unset";
        return Err(CliError::Usage(sentence.to_owned()));
    }
    let mut outcomes = Outcomes::new("topic");
    let asked = [Str::from(args.name.clone())];
    let found = cluster.metadata(Some(&asked), false).await?.topics;
    let missing = ErrorCode::UnknownTopicOrPartition.code();
    if args.if_exists && found.iter().all(|topic| topic.error_code == missing) {
        outcomes.add(&args.name, Ok("absent"), &[]);
        return outcomes.finish(args.remote.json);
    }
    found.iter().try_for_each(check_topic)?;
    let word = if args.validate_only {
        "valid"
    } else {
        "altered"
    };
    // The settings first: partitions cannot be taken away again.
    if !changes.is_empty() {
        let resource = Resource::Topic(args.name.clone());
        config::alter(cluster, &resource, &changes, args.validate_only).await?;
    }
    let mut details = Vec::new();
    if let Some(count) = args.partitions {
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: asked[0].clone(),
                count,
                assignments: None,
            }],
            timeout_ms: args.remote.timeout_ms(),
            validate_only: args.validate_only,
        };
        let response = cluster.any().await?.call(&request).await?;
        for result in &response.results {
            ClientError::check(result.error_code, result.error_message.as_deref(), || {
                let done = if changes.is_empty() || args.validate_only {
                    ""
                } else {
                    " (its settings are changed)"
                };
                format!("give topic {} {count} partitions{done}", args.name)
            })?;
        }
        details.push(("partitions", json!(count)));
    }
    outcomes.add(&args.name, Ok(word), &details);
    outcomes.finish(args.remote.json)
}

async fn delete(cluster: &Cluster, args: &DeleteArgs) -> Result<(), CliError> {
    let names: Vec<Str> = args.names.iter().cloned().map(Str::from).collect();
    let connection = cluster.any().await?;
    // Version 6 names topics in another field.
    let by_state = connection.version_of(crate::protocol::ApiKey::DeleteTopics)? >= 6;
    let state = |name: &Str| DeleteTopicState {
        name: Some(name.clone()),
        ..Default::default()
    };
    let request = DeleteTopicsRequest {
        topics: if by_state {
            names.iter().map(state).collect()
        } else {
            Vec::new()
        },
        topic_names: if by_state { Vec::new() } else { names },
        timeout_ms: args.remote.timeout_ms(),
    };
    let response = connection.call(&request).await?;
    let mut outcomes = Outcomes::new("topic");
    for result in response.responses {
        let name = result.name.as_deref().unwrap_or_default();
        let missing = result.error_code == ErrorCode::UnknownTopicOrPartition.code();
        let outcome = match missing && args.if_exists {
            true => Ok("absent"),
            false => ClientError::check(result.error_code, result.error_message.as_deref(), || {
                format!("delete topic {name}")
            })
            .map(|()| "deleted"),
        };
        outcomes.add(name, outcome, &[]);
    }
    outcomes.finish(args.remote.json)
}
