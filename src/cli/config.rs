//! `highwater config`: what can be configured, and the settings of topics and brokers that run.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{json, Value};

use super::outcome::Outcomes;
use super::remote::{pair, RemoteArgs};
use super::render::{print, print_json, Table};
use super::CliError;
use crate::client::{BrokerConnection, ClientError, Cluster};
use crate::protocol::messages::*;
use crate::protocol::Str;

/// The commands below `config`.
#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Print all settings as Markdown.
    Docs,
    /// Print the settings of a topic or of a broker: value, where it comes from, default.
    Get(GetArgs),
    /// Change the settings of a topic or of a broker while it runs.
    Set(SetArgs),
}

/// What has settings.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// A topic.
    Topic,
    /// A broker by its id; `default` stands for all brokers.
    Broker,
}

#[derive(Debug, Clone, Args)]
pub(super) struct GetArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// What has the settings.
    #[arg(value_enum)]
    kind: Kind,
    /// The topic's name, or the broker's id (`default`: of all brokers).
    #[arg(value_name = "NAME")]
    name: String,
    /// The settings; all of them if none is named.
    #[arg(value_name = "SETTING")]
    settings: Vec<String>,
    /// Only what is not at its default.
    #[arg(long)]
    overridden: bool,
}

/// What is changed.
#[derive(Debug, Clone, Args)]
pub(super) struct SetArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// What has the settings.
    #[arg(value_enum)]
    kind: Kind,
    /// The topic's name, or the broker's id (`default`: of all brokers).
    #[arg(value_name = "NAME")]
    name: String,
    /// The new values.
    #[arg(value_name = "SETTING=VALUE", value_parser = pair)]
    values: Vec<(String, String)>,
    /// Take a setting back to its default; may be repeated.
    #[arg(long, value_name = "SETTING")]
    unset: Vec<String>,
    /// Add to a setting that is a list; may be repeated.
    #[arg(long, value_name = "SETTING=VALUE", value_parser = pair)]
    append: Vec<(String, String)>,
    /// Take out of a setting that is a list; may be repeated.
    #[arg(long, value_name = "SETTING=VALUE", value_parser = pair)]
    subtract: Vec<(String, String)>,
    /// Only check whether it could be done.
    #[arg(long)]
    validate_only: bool,
}

pub(super) fn run(command: ConfigCommand) -> Result<(), CliError> {
    match command {
        ConfigCommand::Docs => print(&crate::config::markdown()),
        ConfigCommand::Get(args) => {
            let remote = args.remote.clone();
            remote.run(|_, cluster| async move { get(&cluster, &args).await })
        }
        ConfigCommand::Set(args) => {
            let remote = args.remote.clone();
            remote.run(|_, cluster| async move { set(&cluster, &args).await })
        }
    }
}

async fn get(cluster: &Cluster, args: &GetArgs) -> Result<(), CliError> {
    let resource = Resource::new(args.kind, &args.name)?;
    let keys = (!args.settings.is_empty()).then_some(args.settings.as_slice());
    let mut found = describe(cluster, &[resource], keys).await?.remove(0);
    for name in &args.settings {
        if !found.iter().any(|value| &value.name == name) {
            let sentence = format!(
                "{} {} has no setting {name}",
                kind_name(args.kind),
                args.name
            );
            return Err(CliError::Found(sentence));
        }
    }
    if args.overridden {
        found.retain(|value| value.source != SOURCE_DEFAULT);
    }
    if args.remote.json {
        return print_json(&Value::Array(found.iter().map(ConfigValue::json).collect()));
    }
    let mut table = Table::new(["SETTING", "VALUE", "SOURCE", "DEFAULT"]);
    for value in &found {
        let shown = if value.is_sensitive {
            Some("(hidden)")
        } else {
            value.value.as_deref()
        };
        table.row([
            value.name.clone(),
            shown.unwrap_or_default().to_owned(),
            source_words(value.source).to_owned(),
            match (&value.default, &value.default_name) {
                (Some(default), Some(name)) => format!("{default} ({name})"),
                (default, _) => default.clone().unwrap_or_default(),
            },
        ]);
    }
    print(&table.to_string())
}

async fn set(cluster: &Cluster, args: &SetArgs) -> Result<(), CliError> {
    let changes = Change::all(&args.values, &args.unset, &args.append, &args.subtract);
    if changes.is_empty() {
        let sentence =
            "nothing is to be changed: give SETTING=VALUE, --unset, --append or --subtract";
        return Err(CliError::Usage(sentence.to_owned()));
    }
    let resource = Resource::new(args.kind, &args.name)?;
    alter(cluster, &resource, &changes, args.validate_only).await?;
    let mut outcomes = Outcomes::new(kind_name(args.kind));
    let word = if args.validate_only {
        "valid"
    } else {
        "altered"
    };
    outcomes.add(&args.name, Ok(word), &[]);
    outcomes.finish(args.remote.json)
}

/// What has settings, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Resource {
    Topic(String),
    /// `None`: all brokers.
    Broker(Option<i32>),
}

impl Resource {
    fn new(kind: Kind, name: &str) -> Result<Resource, CliError> {
        match (kind, name) {
            (Kind::Topic, name) => Ok(Resource::Topic(name.to_owned())),
            (Kind::Broker, "default") => Ok(Resource::Broker(None)),
            (Kind::Broker, id) => id
                .parse()
                .map(|id| Resource::Broker(Some(id)))
                .map_err(|_| {
                    CliError::Usage(format!(
                        "{id} is not a broker's id; write a number, or `default` for all brokers"
                    ))
                }),
        }
    }

    fn code(&self) -> i8 {
        match self {
            Resource::Topic(_) => 2,
            Resource::Broker(_) => 4,
        }
    }

    fn name(&self) -> String {
        match self {
            Resource::Topic(name) => name.clone(),
            Resource::Broker(id) => id.map_or_else(String::new, |id| id.to_string()),
        }
    }

    /// The broker that must be asked: one's own settings only it knows.
    async fn connection(&self, cluster: &Cluster) -> Result<BrokerConnection, CliError> {
        let Resource::Broker(Some(id)) = self else {
            return Ok(cluster.any().await?);
        };
        cluster.metadata(Some(&[]), false).await?;
        let known = cluster.brokers();
        if !known.contains(id) {
            let sentence = format!("there is no broker {id}; there are {known:?}");
            return Err(CliError::Found(sentence));
        }
        Ok(cluster.node(*id).await?)
    }
}

/// One setting as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConfigValue {
    pub name: String,
    pub value: Option<String>,
    /// Kafka's number for where it comes from.
    pub source: i8,
    pub default: Option<String>,
    /// The setting that has the default, if it is another one: the broker's, perhaps in another unit.
    pub default_name: Option<String>,
    pub is_sensitive: bool,
    pub is_read_only: bool,
}

impl ConfigValue {
    fn of(result: DescribeConfigsResourceResult) -> ConfigValue {
        let synonym = result.synonyms.iter().find(|s| s.source == SOURCE_DEFAULT);
        let default = match synonym {
            Some(synonym) => synonym.value.clone(),
            None => result
                .value
                .clone()
                .filter(|_| result.config_source == SOURCE_DEFAULT),
        };
        ConfigValue {
            default: default.map(|text| text.to_string()),
            default_name: synonym
                .map(|s| s.name.to_string())
                .filter(|name| *name != *result.name),
            name: result.name.to_string(),
            value: result.value.map(|text| text.to_string()),
            source: result.config_source,
            is_sensitive: result.is_sensitive,
            is_read_only: result.read_only,
        }
    }

    /// Whether it was set for this topic.
    pub fn is_the_topics(&self) -> bool {
        self.source == SOURCE_TOPIC
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "value": self.value,
            "source": source_name(self.source),
            "default": self.default,
            "default_name": self.default_name,
            "sensitive": self.is_sensitive,
            "read_only": self.is_read_only,
        })
    }
}

/// The settings of each resource, sorted by name. All resources must be of one connection: topics, or one broker.
pub(super) async fn describe(
    cluster: &Cluster,
    resources: &[Resource],
    keys: Option<&[String]>,
) -> Result<Vec<Vec<ConfigValue>>, CliError> {
    let Some(first) = resources.first() else {
        return Ok(Vec::new());
    };
    let keys = keys.map(|keys| keys.iter().cloned().map(Str::from).collect::<Vec<_>>());
    let asked = |resource: &Resource| DescribeConfigsResource {
        resource_type: resource.code(),
        resource_name: Str::from(resource.name()),
        configuration_keys: keys.clone(),
    };
    let request = DescribeConfigsRequest {
        resources: resources.iter().map(asked).collect(),
        include_synonyms: true,
        include_documentation: false,
    };
    let response = first.connection(cluster).await?.call(&request).await?;
    let mut all = vec![Vec::new(); resources.len()];
    for result in response.results {
        let resource = resources.iter().position(|resource| {
            resource.code() == result.resource_type && *resource.name() == *result.resource_name
        });
        ClientError::check(result.error_code, result.error_message.as_deref(), || {
            format!(
                "read the settings of {}",
                described(result.resource_type, &result.resource_name)
            )
        })?;
        if let Some(place) = resource {
            all[place] = result.configs.into_iter().map(ConfigValue::of).collect();
            all[place].sort_by(|a: &ConfigValue, b| a.name.cmp(&b.name));
        }
    }
    Ok(all)
}

/// One change of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    name: String,
    /// Kafka's number: 0 set, 1 delete, 2 append, 3 subtract.
    operation: i8,
    value: Option<String>,
}

impl Change {
    /// Those of a command line.
    pub fn all(
        set: &[(String, String)],
        unset: &[String],
        append: &[(String, String)],
        subtract: &[(String, String)],
    ) -> Vec<Change> {
        let with = |operation: i8| {
            move |(name, value): &(String, String)| Change {
                name: name.clone(),
                operation,
                value: Some(value.clone()),
            }
        };
        let without = |name: &String| Change {
            name: name.clone(),
            operation: 1,
            value: None,
        };
        let set = set.iter().map(with(0));
        let set = set.chain(unset.iter().map(without));
        set.chain(append.iter().map(with(2)))
            .chain(subtract.iter().map(with(3)))
            .collect()
    }
}

/// Changes settings of one resource: all of the changes, or none.
pub(super) async fn alter(
    cluster: &Cluster,
    resource: &Resource,
    changes: &[Change],
    validate_only: bool,
) -> Result<(), CliError> {
    let config = |change: &Change| IncrementalAlterableConfig {
        name: Str::from(change.name.clone()),
        config_operation: change.operation,
        value: change.value.clone().map(Str::from),
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![IncrementalAlterConfigsResource {
            resource_type: resource.code(),
            resource_name: Str::from(resource.name()),
            configs: changes.iter().map(config).collect(),
        }],
        validate_only,
    };
    let response = resource.connection(cluster).await?.call(&request).await?;
    for result in response.responses {
        ClientError::check(result.error_code, result.error_message.as_deref(), || {
            format!(
                "change the settings of {}",
                described(result.resource_type, &result.resource_name)
            )
        })?;
    }
    Ok(())
}

fn described(code: i8, name: &str) -> String {
    match (code, name) {
        (2, name) => format!("topic {name}"),
        (_, "") => "all brokers".to_owned(),
        (_, id) => format!("broker {id}"),
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Topic => "topic",
        Kind::Broker => "broker",
    }
}

const SOURCE_TOPIC: i8 = 1;
const SOURCE_DEFAULT: i8 = 5;

/// Each source: Kafka's number and name, and words for a person.
const SOURCES: [(i8, &str, &str); 8] = [
    (SOURCE_TOPIC, "DYNAMIC_TOPIC_CONFIG", "topic"),
    (2, "DYNAMIC_BROKER_CONFIG", "broker, while it runs"),
    (
        3,
        "DYNAMIC_DEFAULT_BROKER_CONFIG",
        "all brokers, while they run",
    ),
    (4, "STATIC_BROKER_CONFIG", "broker, at its start"),
    (SOURCE_DEFAULT, "DEFAULT_CONFIG", "default"),
    (6, "DYNAMIC_BROKER_LOGGER_CONFIG", "logger"),
    (7, "DYNAMIC_CLIENT_METRICS_CONFIG", "client metrics"),
    (8, "DYNAMIC_GROUP_CONFIG", "group"),
];

fn source_name(source: i8) -> &'static str {
    let known = SOURCES.iter().find(|(code, _, _)| *code == source);
    known.map_or("UNKNOWN", |(_, name, _)| name)
}

fn source_words(source: i8) -> &'static str {
    let known = SOURCES.iter().find(|(code, _, _)| *code == source);
    known.map_or("unknown", |(_, _, words)| words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_value_itself_or_among_the_synonyms() {
        let synonym = |source, value: &'static str| DescribeConfigsSynonym {
            name: Str::from("x"),
            value: Some(Str::from(value)),
            source,
        };
        let mut result = DescribeConfigsResourceResult {
            name: Str::from("x"),
            value: Some(Str::from("1")),
            config_source: SOURCE_TOPIC,
            synonyms: vec![
                synonym(SOURCE_TOPIC, "1"),
                synonym(4, "2"),
                synonym(SOURCE_DEFAULT, "3"),
            ],
            ..Default::default()
        };
        let value = ConfigValue::of(result.clone());
        assert_eq!(value.default.as_deref(), Some("3"));
        assert!(value.is_the_topics());
        assert_eq!(value.default_name, None);
        result.synonyms[2].name = Str::from("log.x");
        let value = ConfigValue::of(result.clone());
        assert_eq!(value.default_name.as_deref(), Some("log.x"));
        result.config_source = SOURCE_DEFAULT;
        result.synonyms.clear();
        let value = ConfigValue::of(result);
        assert_eq!(value.default.as_deref(), Some("1"));
        assert!(!value.is_the_topics());
    }

    #[test]
    fn changes_carry_kafkas_operations() {
        let pair = |name: &str| (name.to_owned(), "v".to_owned());
        let all = Change::all(&[pair("a")], &["b".to_owned()], &[pair("c")], &[pair("d")]);
        let operations: Vec<(&str, i8, bool)> = all
            .iter()
            .map(|c| (c.name.as_str(), c.operation, c.value.is_some()))
            .collect();
        assert_eq!(
            operations,
            [
                ("a", 0, true),
                ("b", 1, false),
                ("c", 2, true),
                ("d", 3, true)
            ]
        );
    }

    #[test]
    fn a_broker_has_a_number() {
        assert_eq!(
            Resource::new(Kind::Broker, "7").unwrap(),
            Resource::Broker(Some(7))
        );
        assert_eq!(
            Resource::new(Kind::Broker, "default").unwrap(),
            Resource::Broker(None)
        );
        assert!(Resource::new(Kind::Broker, "seven").is_err());
    }
}
