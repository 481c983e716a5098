//! AlterConfigs and IncrementalAlterConfigs of topics, by the rules of Kafka's
//! ConfigurationControlManager.

use super::Plan;
use crate::config::{find, topic_default, BrokerConfig, Scope, TopicConfig};
use crate::controller::request::{
    AlterConfigOp, ConfigsAlteration, ConfigsChange, ControllerFault,
};
use crate::metadata::{validate_topic_name, Change, TopicImage, OFFSETS_TOPIC_NAME};
use crate::protocol::ErrorCode;
use std::collections::{BTreeMap, BTreeSet};

/// What the plan has to know of topic configs.
pub(in crate::controller) trait ConfigRules {
    /// Says what is wrong with the overridden configs of the topic of this name, if anything.
    fn check(&self, topic: &str, overrides: &BTreeMap<String, String>) -> Result<(), String>;

    /// What a list is without an override; `None` for a config that is no list.
    fn list_default(&self, name: &str) -> Option<String>;
}

/// The rules of a broker: what it takes on top of its own settings.
impl ConfigRules for BrokerConfig {
    fn check(&self, topic: &str, overrides: &BTreeMap<String, String>) -> Result<(), String> {
        let pairs = overrides
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let resolved = match topic {
            OFFSETS_TOPIC_NAME => TopicConfig::resolve_internal(self, pairs),
            _ => TopicConfig::resolve(self, pairs),
        };
        match resolved {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn list_default(&self, name: &str) -> Option<String> {
        let row = find(Scope::Topic, name).filter(|row| row.kind.is_list())?;
        Some(topic_default(row, self))
    }
}

impl Plan<'_> {
    /// Alters the configs of topics. Each fails or succeeds alone; one that changes
    /// nothing makes no change. `times_altered` counts the topics of the whole request
    /// ([`times_altered`]).
    pub fn alter_configs(
        &mut self,
        alterations: &[ConfigsAlteration],
        times_altered: &BTreeMap<&str, usize>,
    ) -> Vec<Result<(), ControllerFault>> {
        let decide = |alteration: &ConfigsAlteration| {
            if times_altered[alteration.topic.as_str()] > 1 {
                return Err(invalid_request(
                    "Each resource must appear at most once; name each topic once in a request.",
                ));
            }
            self.alter(alteration)
        };
        alterations.iter().map(decide).collect()
    }

    fn alter(&mut self, alteration: &ConfigsAlteration) -> Result<(), ControllerFault> {
        let topic = self.topic_to_alter(&alteration.topic)?;
        check_names_and_values(&alteration.change)?;
        let configs = match &alteration.change {
            ConfigsChange::Replace(configs) => configs
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.clone()?)))
                .collect(),
            ConfigsChange::Incremental(ops) => {
                let mut configs = topic.configs.clone();
                for (name, op) in ops {
                    self.apply_op(&mut configs, name, op)?;
                }
                configs
            }
        };
        let invalid = |message| ControllerFault::new(ErrorCode::InvalidConfig, message);
        let checked = self.rules.check(&topic.name, &configs);
        checked.map_err(invalid)?;
        if configs != topic.configs {
            let id = topic.id;
            self.make(Change::TopicConfigsChanged { id, configs });
        }
        Ok(())
    }

    fn topic_to_alter(&self, name: &str) -> Result<std::sync::Arc<TopicImage>, ControllerFault> {
        if name.is_empty() {
            return Err(invalid_request(
                "Default topic resources are not allowed; name a topic, or change the broker's file.",
            ));
        }
        let invalid = |message| ControllerFault::new(ErrorCode::InvalidTopicException, message);
        validate_topic_name(name).map_err(invalid)?;
        self.image.topic(name).cloned().ok_or_else(|| {
            ControllerFault::new(
                ErrorCode::UnknownTopicOrPartition,
                format!("The topic '{name}' does not exist."),
            )
        })
    }

    fn apply_op(
        &self,
        configs: &mut BTreeMap<String, String>,
        name: &str,
        op: &AlterConfigOp,
    ) -> Result<(), ControllerFault> {
        let (word, value, append) = match op {
            AlterConfigOp::Set(value) => {
                let value = value.clone().unwrap_or_default();
                configs.insert(name.to_owned(), value);
                return Ok(());
            }
            AlterConfigOp::Delete => {
                configs.remove(name);
                return Ok(());
            }
            AlterConfigOp::Unknown(number) => {
                return Err(invalid_request(format!(
                    "Unknown config operation {number}; use 0 (SET), 1 (DELETE), 2 (APPEND) or 3 (SUBTRACT)."
                )))
            }
            AlterConfigOp::Append(value) => ("APPEND", value, true),
            AlterConfigOp::Subtract(value) => ("SUBTRACT", value, false),
        };
        let Some(default) = self.rules.list_default(name) else {
            return Err(ControllerFault::new(
                ErrorCode::InvalidConfig,
                format!("Can't {word} to key {name} because its type is not LIST; use SET."),
            ));
        };
        let current = configs.get(name).unwrap_or(&default);
        let mut entries: Vec<&str> = entries_of(current).collect();
        let given: Vec<&str> = entries_of(value.as_deref().unwrap_or_default()).collect();
        if append {
            let mut there: BTreeSet<&str> = entries.iter().copied().collect();
            entries.extend(given.into_iter().filter(|entry| there.insert(entry)));
        } else {
            let gone: BTreeSet<&str> = given.into_iter().collect();
            entries.retain(|entry| !gone.contains(entry));
        }
        let list = entries.join(",");
        configs.insert(name.to_owned(), list);
        Ok(())
    }
}

/// How often each topic stands in a request.
pub(in crate::controller) fn times_altered(
    alterations: &[ConfigsAlteration],
) -> BTreeMap<&str, usize> {
    let mut times = BTreeMap::new();
    for alteration in alterations {
        *times.entry(alteration.topic.as_str()).or_default() += 1;
    }
    times
}

/// Kafka refuses a request that names a config twice, or gives none a value.
fn check_names_and_values(change: &ConfigsChange) -> Result<(), ControllerFault> {
    let pairs: Vec<(&str, bool)> = match change {
        ConfigsChange::Replace(configs) => configs
            .iter()
            .map(|(name, value)| (name.as_str(), value.is_some()))
            .collect(),
        ConfigsChange::Incremental(ops) => ops
            .iter()
            .map(|(name, op)| (name.as_str(), op.has_what_it_needs()))
            .collect(),
    };
    let mut seen = BTreeSet::new();
    for (name, has_value) in pairs {
        if !seen.insert(name) {
            return Err(invalid_request(format!(
                "Error due to duplicate config keys: {name} is given more than once."
            )));
        }
        if !has_value {
            return Err(invalid_request(format!(
                "Null value not supported for : {name}; delete it to use the default."
            )));
        }
    }
    Ok(())
}

fn entries_of(list: &str) -> impl Iterator<Item = &str> {
    let entries = list.split(',').map(str::trim);
    entries.filter(|entry| !entry.is_empty())
}

fn invalid_request(message: impl Into<String>) -> ControllerFault {
    ControllerFault::new(ErrorCode::InvalidRequest, message)
}
