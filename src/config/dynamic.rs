//! Broker settings that are changed while the broker runs (KIP-226): which of them can be, and what is in force
//! then.
//!
//! There are two layers above the file, the environment and the flags: values that all brokers have in common, and
//! above them those of one broker. Settings that can be given in more than one unit are changed by the first of their
//! names only, which wins over the others wherever they stand, so a layer never has to take anything away.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::broker::{BrokerConfig, Given};
use super::error::{shown, ConfigError, Origin};
use super::sources::check_pair;
use super::table::{find, Scope};
use super::unbuilt;
use super::value::Kind;

/// Why a broker setting can't be given a value while the broker runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DynamicFault {
    /// There is such a setting, in Kafka at least, but it holds until a restart.
    #[error("Cannot update these configs dynamically: [{0}]; change it in the broker's file and restart the broker.")]
    NotDynamic(String),
    /// There is no such setting.
    #[error("{0}")]
    Unknown(ConfigError),
    /// It is not a value of this setting, or does not fit the values of others.
    #[error("{0}")]
    Value(ConfigError),
}

/// Checks one pair of a layer, apart from all others.
pub fn check_dynamic(name: &str, value: &str) -> Result<(), DynamicFault> {
    let value = value.trim();
    let Some(row) = find(Scope::Broker, name) else {
        return Err(match unbuilt::find(name) {
            Some(_) => DynamicFault::NotDynamic(shown(name)),
            None => DynamicFault::Unknown(ConfigError::Unknown {
                name: shown(name),
                nearest: super::nearest(Scope::Broker, name),
                origin: Origin::Dynamic,
            }),
        });
    };
    if !row.dynamic {
        return Err(DynamicFault::NotDynamic(name.to_owned()));
    }
    let invalid = |problem: String| {
        DynamicFault::Value(ConfigError::Invalid {
            name: name.to_owned(),
            value: shown(value),
            problem,
            origin: Origin::Dynamic,
        })
    };
    if value.len() > VALUE_BYTES_MAX {
        return Err(invalid(format!(
            "must be at most {VALUE_BYTES_MAX} bytes long, not {}",
            value.len()
        )));
    }
    // In the file an empty text leaves it to another setting; here that is what a deletion is for.
    if value.is_empty() && matches!(row.kind, Kind::OptionalInt { .. }) {
        return Err(invalid(
            "must be a number; delete it to use the file's".to_owned(),
        ));
    }
    check_pair(Scope::Broker, name, value, &Origin::Dynamic).map_err(DynamicFault::Value)?;
    if row.kind == Kind::HostCounts {
        addresses(value).map_err(invalid)?;
    }
    Ok(())
}

impl BrokerConfig {
    /// What is in force on a broker that started with `self`, under the values `cluster` that all brokers have in
    /// common and its `own` above them.
    ///
    /// # Errors
    /// What [`check_dynamic`] refuses, and values that contradict each other.
    pub fn with_dynamic(
        &self,
        cluster: &BTreeMap<String, String>,
        own: &BTreeMap<String, String>,
    ) -> Result<BrokerConfig, DynamicFault> {
        if cluster.is_empty() && own.is_empty() {
            return Ok(BrokerConfig {
                dynamic_cluster: Given::default(),
                dynamic_own: Given::default(),
                ..self.clone()
            });
        }
        let given = self.given.iter();
        let mut values: BTreeMap<&'static str, (String, Origin)> = given
            .map(|(name, value)| (name, (value.to_owned(), Origin::Default)))
            .collect();
        let mut layer = |pairs: &BTreeMap<String, String>| -> Result<Given, DynamicFault> {
            let mut checked = BTreeMap::new();
            for (name, value) in pairs {
                check_dynamic(name, value)?;
                if let Some(row) = find(Scope::Broker, name) {
                    let value = value.trim().to_owned();
                    values.insert(row.name, (value.clone(), Origin::Dynamic));
                    checked.insert(row.name, value);
                }
            }
            Ok(Given::new(checked))
        };
        let (cluster, own) = (layer(cluster)?, layer(own)?);
        let config = BrokerConfig::from_values(&values).map_err(DynamicFault::Value)?;
        Ok(BrokerConfig {
            // As the start filled them in.
            listener: self.listener.clone(),
            advertised_listener: self.advertised_listener.clone(),
            data_dirs: self.data_dirs.clone(),
            given: self.given.clone(),
            dynamic_cluster: cluster,
            dynamic_own: own,
            ..config
        })
    }

    /// The same for values that were valid when they were given and may not be now, under another file or another
    /// version: those that do not hold are left out, and why is said of each.
    pub fn with_dynamic_that_holds(
        &self,
        cluster: &BTreeMap<String, String>,
        own: &BTreeMap<String, String>,
    ) -> (BrokerConfig, Vec<DynamicFault>) {
        if let Ok(config) = self.with_dynamic(cluster, own) {
            return (config, Vec::new());
        }
        let mut layers = [BTreeMap::new(), BTreeMap::new()];
        let mut left: Vec<_> = [cluster, own]
            .into_iter()
            .enumerate()
            .flat_map(|(at, pairs)| pairs.iter().map(move |pair| (at, pair)))
            .collect();
        let mut config = BrokerConfig {
            dynamic_cluster: Given::default(),
            dynamic_own: Given::default(),
            ..self.clone()
        };
        loop {
            let (count, mut faults) = (left.len(), Vec::new());
            left.retain(|(at, (name, value))| {
                layers[*at].insert((*name).clone(), (*value).clone());
                match self.with_dynamic(&layers[0], &layers[1]) {
                    Ok(with) => config = with,
                    Err(fault) => {
                        layers[*at].remove(*name);
                        faults.push(fault);
                        return true;
                    }
                }
                false
            });
            // One may need another that came behind it.
            if left.len() == count || left.is_empty() {
                return (config, faults);
            }
        }
    }

    /// `max.connections.per.ip.overrides` by address, if it was changed while the broker runs; `None`: what the start
    /// resolved still holds.
    pub fn dynamic_connection_overrides(&self) -> Option<Vec<(IpAddr, u32)>> {
        let name = "max.connections.per.ip.overrides";
        let layers = [&self.dynamic_own, &self.dynamic_cluster];
        let text = layers.into_iter().find_map(|layer| layer.get(name))?;
        addresses(text).ok()
    }
}

/// Reads `ADDRESS:COUNT` pairs: a name server is asked only when the broker starts.
fn addresses(text: &str) -> Result<Vec<(IpAddr, u32)>, String> {
    let pairs = super::value::parse_host_counts(text)?.into_iter();
    let parsed = pairs.map(|(host, count)| match host.parse() {
        Ok(address) => Ok((address, count)),
        Err(_) => Err(format!(
            "'{}' must be an IP address: names are resolved only when the broker starts",
            shown(&host)
        )),
    });
    parsed.collect()
}

/// The longest value, as for a topic's settings.
const VALUE_BYTES_MAX: usize = 32_767;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{describe_broker, describe_cluster, describe_topic, ConfigSource, Sources};

    fn started(settings: &[&str]) -> BrokerConfig {
        let mut sources = Sources::new();
        for setting in settings {
            sources.set(setting).unwrap();
        }
        sources.resolve().unwrap().config
    }

    fn layer(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs.map(|(n, v)| (n.to_string(), v.to_string())).collect()
    }

    #[test]
    fn a_brokers_own_value_wins_over_the_clusters_and_that_over_the_file() {
        let started = started(&["log.retention.ms=1000", "message.max.bytes=2000"]);
        let cluster = layer(&[("log.retention.ms", "2000"), ("message.max.bytes", "3000")]);
        let own = layer(&[("log.retention.ms", "3000")]);
        let now = started.with_dynamic(&cluster, &own).unwrap();
        assert_eq!((now.log_retention_ms, now.message_max_bytes), (3000, 3000));
        let now = now.with_dynamic(&cluster, &layer(&[])).unwrap();
        assert_eq!((now.log_retention_ms, now.message_max_bytes), (2000, 3000));
        let now = started.with_dynamic(&layer(&[]), &layer(&[])).unwrap();
        assert_eq!(now, started);
    }

    #[test]
    fn a_change_wins_over_another_unit_in_the_file() {
        let started = started(&["log.retention.hours=1", "log.roll.hours=1"]);
        let cluster = layer(&[("log.retention.ms", "5"), ("log.roll.ms", "6")]);
        let now = started.with_dynamic(&cluster, &layer(&[])).unwrap();
        assert_eq!((now.log_retention_ms, now.log_roll_ms), (5, 6));
    }

    #[test]
    fn what_can_not_be_changed_is_told_from_what_there_is_not() {
        let fault = |name, value| check_dynamic(name, value).unwrap_err();
        for name in [
            "node.id",
            "log.retention.hours",
            "num.io.threads",
            "ssl.keystore.type",
        ] {
            assert_eq!(fault(name, "5"), DynamicFault::NotDynamic(name.into()));
        }
        assert!(matches!(fault("foo.bar", "5"), DynamicFault::Unknown(_)));
        for (name, value) in [
            ("log.retention.ms", "abc"),
            ("log.retention.ms", ""),
            ("log.segment.bytes", "1"),
            ("compression.type", "best"),
            ("log.cleanup.policy", "compacted"),
            ("log.cleaner.min.cleanable.ratio", "1.1"),
            ("log.cleaner.io.max.bytes.per.second", "0"),
            ("max.connections.per.ip.overrides", "localhost:5"),
        ] {
            assert!(
                matches!(fault(name, value), DynamicFault::Value(_)),
                "{name}={value}"
            );
        }
        let together = started(&[]).with_dynamic(&layer(&[("log.retention.ms", "0")]), &layer(&[]));
        assert!(matches!(together, Err(DynamicFault::Value(_))));
    }

    #[test]
    fn given_values_that_do_not_hold_any_more_then_the_others_do() {
        let limit = "max.connections.per.ip";
        let overrides = "max.connections.per.ip.overrides";
        let cluster = layer(&[
            ("gone.setting", "1"),
            ("log.retention.ms", "2"),
            (limit, "0"),
        ]);
        let own = layer(&[("message.max.bytes", "3000"), ("log.segment.bytes", "x")]);
        let (now, faults) = started(&[]).with_dynamic_that_holds(&cluster, &own);
        assert_eq!((now.log_retention_ms, now.message_max_bytes), (2, 3000));
        assert_eq!(now.max_connections_per_ip, i32::MAX as u32);
        assert_eq!(faults.len(), 3, "{faults:?}");
        // This one held until the file lost the overrides.
        let file = started(&["max.connections.per.ip.overrides=10.0.0.1:1"]);
        let (now, faults) = file.with_dynamic_that_holds(&cluster, &own);
        assert_eq!((now.max_connections_per_ip, faults.len()), (0, 2));
        // A value may need one that comes behind it.
        let own = layer(&[(overrides, "10.0.0.1:1"), ("log.segment.bytes", "x")]);
        let (now, faults) = started(&[]).with_dynamic_that_holds(&cluster, &own);
        assert_eq!((now.max_connections_per_ip, faults.len()), (0, 2));
        assert_eq!(now.dynamic_own.iter().count(), 1);
    }

    #[test]
    fn every_dynamic_setting_takes_its_own_default() {
        let settings = crate::config::SETTINGS.iter();
        let dynamic = settings.filter(|row| row.scope == Scope::Broker && row.dynamic);
        let mut count = 0;
        for row in dynamic {
            count += 1;
            if !row.default_text().is_empty() {
                check_dynamic(row.name, row.default_text()).unwrap();
            }
        }
        assert!(count >= 20, "{count}");
    }

    #[test]
    fn each_layer_is_shown_with_its_source_the_nearest_first() {
        let started = started(&["log.retention.hours=5"]);
        let cluster = layer(&[("log.retention.ms", "6000")]);
        let own = layer(&[("log.retention.ms", "5000")]);
        let now = started.with_dynamic(&cluster, &own).unwrap();
        let overrides = BTreeMap::new();
        let topic = describe_topic(&now, &overrides).find(|one| one.name == "retention.ms");
        let broker = describe_broker(&now).find(|one| one.name == "log.retention.ms");
        let (topic, broker) = (topic.unwrap(), broker.unwrap());
        for shown in [&topic, &broker] {
            assert_eq!(shown.value.as_deref(), Some("5000"));
            assert_eq!(shown.source, ConfigSource::DynamicBroker);
            let synonyms = shown.synonyms.iter();
            let synonyms: Vec<_> = synonyms
                .map(|s| (s.name, &*s.value, s.source as i8))
                .collect();
            let expected = [
                ("log.retention.ms", "5000", 2),
                ("log.retention.ms", "6000", 3),
                ("log.retention.hours", "5", 4),
                ("log.retention.hours", "168", 5),
            ];
            assert_eq!(synonyms, expected);
        }
        assert!(!broker.read_only);
        let common: Vec<_> = describe_cluster(&now).collect();
        assert_eq!(common.len(), 1);
        assert_eq!(common[0].value.as_deref(), Some("6000"));
        assert_eq!(common[0].source, ConfigSource::DynamicDefaultBroker);
        assert_eq!(common[0].synonyms.len(), 1);
    }
}
