//! AlterConfigs and IncrementalAlterConfigs of topics and brokers, by the rules of Kafka's
//! ConfigurationControlManager, and for brokers those of its DynamicBrokerConfig.

use super::Plan;
use crate::config::{find, topic_default, BrokerConfig, DynamicFault, Scope, TopicConfig};
use crate::controller::request::{
    AlterConfigOp, ConfigTarget, ConfigsAlteration, ConfigsChange, ControllerFault,
};
use crate::metadata::{validate_topic_name, Change, Image, TopicImage};
use crate::protocol::ErrorCode;
use std::collections::{BTreeMap, BTreeSet};

/// Configs by name.
type Configs = BTreeMap<String, String>;

/// What the plan has to know of configs.
pub(in crate::controller) trait ConfigRules {
    /// Says what is wrong with a topic's overridden configs, if anything.
    fn check(&self, overrides: &Configs) -> Result<(), String>;

    /// Says what is wrong with configs that a broker is to have while it runs: those of
    /// all brokers, and above them its own.
    fn check_broker(&self, cluster: &Configs, own: &Configs) -> Result<(), DynamicFault>;

    /// What a list of a topic or of a broker is where `image` gives it no value; `None` for
    /// a config that is no list.
    fn list_default(&self, image: &Image, scope: Scope, name: &str) -> Option<String>;
}

/// The rules of a broker: what it takes on top of its own settings.
impl ConfigRules for BrokerConfig {
    fn check(&self, overrides: &Configs) -> Result<(), String> {
        let pairs = overrides
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        match TopicConfig::resolve(self, pairs) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check_broker(&self, cluster: &Configs, own: &Configs) -> Result<(), DynamicFault> {
        self.with_dynamic(cluster, own).map(drop)
    }

    fn list_default(&self, image: &Image, scope: Scope, name: &str) -> Option<String> {
        let row = find(scope, name).filter(|row| row.kind.is_list())?;
        let none = Configs::new();
        let layer = |broker| image.broker_configs(broker).unwrap_or(&none);
        let (now, _) = self.with_dynamic_that_holds(layer(None), layer(Some(self.node_id)));
        Some(match scope {
            Scope::Topic => topic_default(row, &now),
            Scope::Broker => now.text(name).to_owned(),
        })
    }
}

impl Plan<'_> {
    /// Alters configs. Each target fails or succeeds alone; one that changes nothing makes
    /// no change. `times_altered` counts the targets of the whole request
    /// ([`times_altered`]).
    pub fn alter_configs(
        &mut self,
        alterations: &[ConfigsAlteration],
        times_altered: &BTreeMap<&ConfigTarget, usize>,
    ) -> Vec<Result<(), ControllerFault>> {
        let decide = |alteration: &ConfigsAlteration| {
            if times_altered[&alteration.target] > 1 {
                return Err(invalid_request(
                    "Each resource must appear at most once; name each topic and broker once in a request.",
                ));
            }
            match &alteration.target {
                ConfigTarget::Topic(name) => self.alter_topic(name, &alteration.change),
                ConfigTarget::Broker(id) => self.alter_broker(*id, &alteration.change),
            }
        };
        alterations.iter().map(decide).collect()
    }

    fn alter_topic(&mut self, name: &str, change: &ConfigsChange) -> Result<(), ControllerFault> {
        let topic = self.topic_to_alter(name)?;
        let configs = self.changed(&topic.configs, Scope::Topic, change)?;
        let invalid = |message| ControllerFault::new(ErrorCode::InvalidConfig, message);
        let checked = self.rules.check(&configs);
        checked.map_err(invalid)?;
        if configs != topic.configs {
            let id = topic.id;
            self.make(Change::TopicConfigsChanged { id, configs });
        }
        Ok(())
    }

    /// Kafka gives INVALID_REQUEST to whatever is wrong here, and takes names that it does
    /// not know, for plug-ins; here a name that nobody reads is refused.
    fn alter_broker(
        &mut self,
        broker: Option<i32>,
        change: &ConfigsChange,
    ) -> Result<(), ControllerFault> {
        if let Some(id) = broker.filter(|id| self.image.broker(*id).is_none()) {
            return Err(invalid_request(format!("There is no broker {id}.")));
        }
        let current = self.image.broker_configs(broker).cloned();
        let current = current.unwrap_or_default();
        let configs = self.changed(&current, Scope::Broker, change)?;
        let none = Configs::new();
        let fits = |cluster: &Configs, own: &Configs| {
            let checked = self.rules.check_broker(cluster, own);
            checked.map_err(|fault| match fault {
                DynamicFault::Unknown(_) => {
                    ControllerFault::new(ErrorCode::InvalidConfig, fault.to_string())
                }
                DynamicFault::NotDynamic(_) | DynamicFault::Value(_) => {
                    invalid_request(fault.to_string())
                }
            })
        };
        match broker {
            // The layer by itself, and under what each broker has above it. What was at
            // fault before must not keep the other layer from being put right.
            None => {
                fits(&configs, &none)?;
                for broker in self.image.brokers() {
                    let own = self.image.broker_configs(Some(broker.id)).unwrap_or(&none);
                    if fits(&current, own).is_ok() {
                        fits(&configs, own)?;
                    }
                }
            }
            Some(_) => {
                let cluster = self.image.broker_configs(None).unwrap_or(&none);
                let fits_alone = fits(cluster, &none).is_ok();
                fits(if fits_alone { cluster } else { &none }, &configs)?
            }
        }
        if configs != current {
            self.make(Change::BrokerConfigsChanged { broker, configs });
        }
        Ok(())
    }

    /// What `current` becomes.
    fn changed(
        &self,
        current: &Configs,
        scope: Scope,
        change: &ConfigsChange,
    ) -> Result<Configs, ControllerFault> {
        check_names_and_values(change)?;
        Ok(match change {
            ConfigsChange::Replace(configs) => configs
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.clone()?)))
                .collect(),
            ConfigsChange::Incremental(ops) => {
                let mut configs = current.clone();
                for (name, op) in ops {
                    self.apply_op(&mut configs, scope, name, op)?;
                }
                configs
            }
        })
    }

    fn topic_to_alter(&self, name: &str) -> Result<std::sync::Arc<TopicImage>, ControllerFault> {
        if name.is_empty() {
            return Err(invalid_request(
                "Default topic resources are not allowed; name a topic, or change the broker's settings.",
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
        configs: &mut Configs,
        scope: Scope,
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
        let Some(default) = self.rules.list_default(&self.image, scope, name) else {
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

/// How often each target stands in a request.
pub(in crate::controller) fn times_altered(
    alterations: &[ConfigsAlteration],
) -> BTreeMap<&ConfigTarget, usize> {
    let mut times = BTreeMap::new();
    for alteration in alterations {
        *times.entry(&alteration.target).or_default() += 1;
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
