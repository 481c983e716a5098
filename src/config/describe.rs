//! Settings as DescribeConfigs shows them: the value in force, where it comes from, and what it would be without.
//!
//! Everything is read from the table, so what is shown is what is documented and checked. No setting holds a secret.

use std::collections::BTreeMap;

use super::rows::SETTINGS;
use super::table::{find, Fallback, Scope, Setting};
use super::value::{unit_ms, HostPort, Kind};
use super::{unbuilt, BrokerConfig};

/// Where a value comes from, with DescribeConfigs' number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigSource {
    /// The topic's own configuration.
    DynamicTopic = 1,
    /// One broker's, changed while it runs.
    DynamicBroker = 2,
    /// All brokers', changed while they run.
    DynamicDefaultBroker = 3,
    /// The broker's file, environment or flags.
    StaticBroker = 4,
    /// The table.
    Default = 5,
    /// What the log was started with.
    DynamicBrokerLogger = 6,
}

/// The type of a setting's value, with DescribeConfigs' number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigType {
    /// `true` or `false`.
    Boolean = 1,
    /// Text.
    String = 2,
    /// A whole number of 32 bits.
    Int = 3,
    /// A whole number of 64 bits.
    Long = 5,
    /// A number.
    Double = 6,
    /// Words separated by commas.
    List = 7,
}

/// One setting of a topic or of the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// The value in force; `None`: it has none, and another setting decides.
    pub value: Option<String>,
    /// Where that comes from.
    pub source: ConfigSource,
    /// It cannot be changed while the broker runs.
    pub read_only: bool,
    /// The type of its values.
    pub config_type: ConfigType,
    /// What it does.
    pub doc: &'static str,
    /// All places that give it a value, the one that wins first.
    pub synonyms: Vec<Synonym>,
}

/// A place that gives a setting its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synonym {
    /// The setting there.
    pub name: &'static str,
    /// Its value there.
    pub value: String,
    /// The place.
    pub source: ConfigSource,
}

/// The settings of a topic with these overrides, in the order of the table.
pub fn describe_topic<'a>(
    broker: &'a BrokerConfig,
    overrides: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = Described> + 'a {
    let rows = SETTINGS.iter().filter(|row| row.scope == Scope::Topic);
    rows.map(|row| topic_setting(row, broker, overrides))
}

/// The broker's own settings, in the order of the table, and behind them those of
/// Kafka's that are held at one value: tools ask for some of these too.
pub fn describe_broker(broker: &BrokerConfig) -> impl Iterator<Item = Described> + '_ {
    let rows = SETTINGS.iter().filter(|row| row.scope == Scope::Broker);
    let own = rows.map(|row| broker_setting(row, broker));
    own.chain(unbuilt::fixed_values().map(fixed_setting))
}

/// What all brokers have in common and was changed while they run.
pub fn describe_cluster(broker: &BrokerConfig) -> impl Iterator<Item = Described> + '_ {
    let common = broker.dynamic_cluster.iter();
    common.filter_map(|(name, text)| {
        let row = find(Scope::Broker, name)?;
        let value = shown_value(row, text);
        let synonym = Synonym {
            name: row.name,
            value: value.clone(),
            source: ConfigSource::DynamicDefaultBroker,
        };
        Some(described(row, value, vec![synonym]))
    })
}

/// What a topic setting is without an override, as text.
pub fn topic_default(setting: &Setting, broker: &BrokerConfig) -> String {
    match setting.default {
        Fallback::Value(value) => value.to_owned(),
        Fallback::Broker(names) => {
            let values = names.iter().map(|name| (*name, broker.text(name)));
            let (name, text) = values
                .into_iter()
                .find(|(name, text)| is_a_value(name, text))
                .unwrap_or((names[0], ""));
            match (unit_ms(name), text.parse::<i64>()) {
                // In minutes or hours, and none of the negative marks.
                (unit, Ok(count)) if unit > 1 && count > 0 => (count * unit).to_string(),
                _ => setting.kind.canonical(text),
            }
        }
    }
}

fn topic_setting(
    row: &'static Setting,
    broker: &BrokerConfig,
    overrides: &BTreeMap<String, String>,
) -> Described {
    let own = overrides.get(row.name).map(|text| Synonym {
        name: row.name,
        value: row.kind.canonical(text),
        source: ConfigSource::DynamicTopic,
    });
    let inherited = match row.default {
        Fallback::Value(_) => Vec::new(),
        Fallback::Broker(names) => broker_synonyms(names, broker),
    };
    let value = match &own {
        Some(own) => own.value.clone(),
        None => topic_default(row, broker),
    };
    described(row, value, own.into_iter().chain(inherited).collect())
}

fn broker_setting(row: &'static Setting, broker: &BrokerConfig) -> Described {
    let value = shown_value(row, broker.text(row.name));
    let family = family_of(row.name);
    // Kafka lists what stands in for a setting, never what it stands in for.
    let from = family.iter().position(|name| *name == row.name);
    let synonyms = match from {
        Some(from) => broker_synonyms(&family[from..], broker),
        None => broker_synonyms(&[row.name], broker),
    };
    // What another setting decides is not this one's.
    let synonyms = match value.is_empty() {
        true if !row.kind.is_list() => Vec::new(),
        _ => synonyms,
    };
    described(row, value, synonyms)
}

fn fixed_setting((name, value, doc): (&'static str, &'static str, &'static str)) -> Described {
    let kinds = [
        Kind::Bool,
        Kind::Int {
            min: i64::MIN,
            max: i64::MAX,
        },
    ];
    let kind = kinds.iter().find(|kind| kind.check(value).is_ok());
    Described {
        name,
        value: (!value.is_empty()).then(|| value.to_owned()),
        source: ConfigSource::Default,
        read_only: true,
        config_type: kind.map_or(ConfigType::String, Kind::config_type),
        doc,
        synonyms: Vec::new(),
    }
}

fn described(row: &'static Setting, value: String, synonyms: Vec<Synonym>) -> Described {
    let first = synonyms.first();
    Described {
        name: row.name,
        source: first.map_or(ConfigSource::Default, |synonym| synonym.source),
        value: (!value.is_empty() || row.kind.is_list()).then_some(value),
        read_only: !row.dynamic,
        config_type: row.kind.config_type(),
        doc: row.doc,
        synonyms,
    }
}

/// The broker settings of one meaning that `name` belongs to, the one that wins first.
fn family_of(name: &str) -> &'static [&'static str] {
    let families = SETTINGS.iter().filter_map(|row| match row.default {
        Fallback::Broker(names) => Some(names),
        Fallback::Value(_) => None,
    });
    let mut families = families.filter(|names| names.contains(&name));
    families.next().unwrap_or_default()
}

/// What was given for any of these, then their defaults.
fn broker_synonyms(names: &[&'static str], broker: &BrokerConfig) -> Vec<Synonym> {
    let given = broker.layers().into_iter().flat_map(|(layer, source)| {
        names.iter().filter_map(move |name| {
            let text = layer.get(name)?;
            is_a_value(name, text).then_some((*name, text, source))
        })
    });
    let defaults = names.iter().filter_map(|name| {
        let text = find(Scope::Broker, name)?.default_text();
        is_a_value(name, text).then_some((*name, text, ConfigSource::Default))
    });
    let all = given.chain(defaults);
    all.map(|(name, text, source)| Synonym {
        name,
        value: find(Scope::Broker, name).map_or(text.to_owned(), |row| shown_value(row, text)),
        source,
    })
    .collect()
}

/// A broker's value as tools know it from Kafka, which gives each listener its protocol.
fn shown_value(row: &Setting, text: &str) -> String {
    match (row.kind, HostPort::parse(text)) {
        (Kind::Address, Ok(address)) => format!("PLAINTEXT://{address}"),
        _ => row.kind.canonical(text),
    }
}

/// An empty text is a value only of a list; of any other setting it means that it has none.
fn is_a_value(name: &str, text: &str) -> bool {
    !text.is_empty() || find(Scope::Broker, name).is_some_and(|row| row.kind.is_list())
}

impl Kind {
    /// The type of its values.
    pub fn config_type(&self) -> ConfigType {
        match self {
            Kind::Bool => ConfigType::Boolean,
            Kind::Int { min, max }
            | Kind::OptionalInt { min, max }
            | Kind::IntOr { min, max, .. } => {
                let fits = |bound: i64| i32::try_from(bound).is_ok();
                match fits(*min) && fits(*max) {
                    true => ConfigType::Int,
                    false => ConfigType::Long,
                }
            }
            Kind::Ratio | Kind::Rate => ConfigType::Double,
            Kind::Words(_) | Kind::ThrottledReplicas => ConfigType::List,
            Kind::Choice(_)
            | Kind::HostCounts
            | Kind::Address
            | Kind::Directory
            | Kind::Directories => ConfigType::String,
        }
    }

    /// Whether its values are lists, which can be appended to.
    pub fn is_list(&self) -> bool {
        self.config_type() == ConfigType::List
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn broker(settings: &[&str]) -> BrokerConfig {
        let mut sources = Sources::new();
        for setting in settings {
            sources.set(setting).unwrap();
        }
        sources.resolve().unwrap().config
    }

    fn topic(broker: &BrokerConfig, name: &str, value: Option<&str>) -> Described {
        let overrides = value.map(|value| (name.to_owned(), value.to_owned()));
        let overrides = overrides.into_iter().collect();
        let mut all = describe_topic(broker, &overrides);
        all.find(|described| described.name == name).unwrap()
    }

    fn synonyms(described: &Described) -> Vec<(&str, &str, i8)> {
        let synonyms = described.synonyms.iter();
        synonyms
            .map(|s| (s.name, s.value.as_str(), s.source as i8))
            .collect()
    }

    #[test]
    fn given_nothing_then_every_topic_setting_has_its_default() {
        let broker = broker(&[]);
        let none = BTreeMap::new();
        for described in describe_topic(&broker, &none) {
            assert_eq!(
                described.source,
                ConfigSource::Default,
                "{}",
                described.name
            );
            let row = find(Scope::Topic, described.name).unwrap();
            let value = described.value.unwrap();
            assert_eq!(row.kind.check(&value), Ok(()), "{}", row.name);
            assert!(!described.read_only, "{}", row.name);
        }
        let retention = topic(&broker, "retention.ms", None);
        assert_eq!(retention.value.as_deref(), Some("604800000"));
        assert_eq!(synonyms(&retention), [("log.retention.hours", "168", 5)]);
        assert_eq!(retention.config_type, ConfigType::Long);
    }

    #[test]
    fn given_an_override_and_a_broker_setting_then_the_topics_stands_first() {
        let broker = broker(&["log.segment.bytes=0020000", "log.retention.minutes=2"]);
        let own = topic(&broker, "segment.bytes", Some(" 30000 "));
        assert_eq!(own.value.as_deref(), Some("30000"));
        assert_eq!(own.source, ConfigSource::DynamicTopic);
        let expected = [
            ("segment.bytes", "30000", 1),
            ("log.segment.bytes", "20000", 4),
            ("log.segment.bytes", "1073741824", 5),
        ];
        assert_eq!(synonyms(&own), expected);
        let retention = topic(&broker, "retention.ms", None);
        assert_eq!(retention.value.as_deref(), Some("120000"));
        assert_eq!(retention.source, ConfigSource::StaticBroker);
        let expected = [
            ("log.retention.minutes", "2", 4),
            ("log.retention.hours", "168", 5),
        ];
        assert_eq!(synonyms(&retention), expected);
    }

    /// What is shown is what the topic runs with.
    #[test]
    fn the_default_shown_is_the_one_in_force() {
        for given in [
            &[][..],
            &["log.cleanup.policy="],
            &[
                "log.cleanup.policy=compact,delete",
                "log.cleaner.min.cleanable.ratio=0.25",
                "log.cleaner.delete.retention.ms=5",
                "log.cleaner.min.compaction.lag.ms=6",
                "log.cleaner.max.compaction.lag.ms=7",
            ],
            &["log.retention.hours=-1", "log.roll.hours=3"],
            &[
                "log.retention.minutes=7",
                "log.roll.jitter.hours=1",
                "log.roll.ms=9",
            ],
            &[
                "log.flush.scheduler.interval.ms=6",
                "log.flush.interval.messages=5",
            ],
        ] {
            let broker = broker(given);
            let inherited = crate::config::TopicConfig::from_broker(&broker);
            for row in SETTINGS.iter().filter(|row| row.scope == Scope::Topic) {
                let default = topic_default(row, &broker);
                let explicit =
                    crate::config::TopicConfig::resolve(&broker, [(row.name, default.as_str())]);
                assert_eq!(explicit.as_ref(), Ok(&inherited), "{} {given:?}", row.name);
            }
        }
    }

    #[test]
    fn the_brokers_own_say_what_can_be_changed_and_what_stands_in_for_them() {
        let broker = broker(&["log.retention.hours=5", "node.id=7"]);
        let of = |name: &str| {
            let mut all = describe_broker(&broker);
            all.find(|described| described.name == name).unwrap()
        };
        let read_only = [
            "node.id",
            "log.retention.hours",
            "delete.topic.enable",
            "num.partitions",
        ];
        assert!(read_only.iter().all(|name| of(name).read_only));
        let dynamic = ["log.retention.ms", "message.max.bytes", "max.connections"];
        assert!(dynamic.iter().all(|name| !of(name).read_only));
        let id = of("node.id");
        assert_eq!((id.value.as_deref(), id.source as i8), (Some("7"), 4));
        assert_eq!(synonyms(&id), [("node.id", "7", 4), ("node.id", "1", 5)]);
        let fixed = of("delete.topic.enable");
        assert_eq!(fixed.value.as_deref(), Some("true"));
        assert_eq!(fixed.config_type, ConfigType::Boolean);
        let ms = of("log.retention.ms");
        assert_eq!((ms.value, ms.source as i8), (None, 5));
        assert!(ms.synonyms.is_empty());
        let hours = of("log.retention.hours");
        let expected = [
            ("log.retention.hours", "5", 4),
            ("log.retention.hours", "168", 5),
        ];
        assert_eq!(synonyms(&hours), expected);
    }

    #[test]
    fn given_listeners_in_any_form_then_they_are_shown_as_kafka_shows_them() {
        let of = |settings: &[&str], name: &str| {
            let broker = broker(settings);
            let mut all = describe_broker(&broker);
            let described = all.find(|described| described.name == name).unwrap();
            let synonyms = described.synonyms.into_iter().map(|s| s.value);
            (described.value, synonyms.collect::<Vec<_>>())
        };
        let default = "PLAINTEXT://127.0.0.1:9092".to_owned();
        for given in ["[::1]:7", "plaintext://[::1]:7", "PLAINTEXT://[::1]:7"] {
            let shown = "PLAINTEXT://[::1]:7".to_owned();
            assert_eq!(
                of(&[&format!("listeners={given}")], "listeners"),
                (Some(shown.clone()), vec![shown, default.clone()])
            );
        }
        assert_eq!(
            of(&[], "listeners"),
            (Some(default.clone()), vec![default.clone()])
        );
        assert_eq!(of(&[], "advertised.listeners"), (None, vec![]));
        let told = "PLAINTEXT://broker.example:9094".to_owned();
        let given = ["advertised.listeners=broker.example:9094"];
        assert_eq!(
            of(&given, "advertised.listeners"),
            (Some(told.clone()), vec![told])
        );
    }

    #[test]
    fn types_are_kafkas() {
        let of = |name: &str| find(Scope::Topic, name).unwrap().kind.config_type() as i8;
        for (name, number) in [
            ("preallocate", 1),
            ("compression.type", 2),
            ("message.timestamp.type", 2),
            ("segment.bytes", 3),
            ("max.message.bytes", 3),
            ("min.insync.replicas", 3),
            ("compression.gzip.level", 3),
            ("retention.ms", 5),
            ("retention.bytes", 5),
            ("flush.messages", 5),
            ("file.delete.delay.ms", 5),
            ("min.cleanable.dirty.ratio", 6),
            ("cleanup.policy", 7),
            ("leader.replication.throttled.replicas", 7),
        ] {
            assert_eq!(of(name), number, "{name}");
        }
    }
}
