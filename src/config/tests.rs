//! Tests of the table and of what is built from it.

use super::*;
use std::path::PathBuf;

fn resolve(fill: impl FnOnce(&mut Sources) -> Result<(), ConfigError>) -> Result<Resolved, String> {
    let mut sources = Sources::new();
    fill(&mut sources)
        .and_then(|()| sources.resolve())
        .map_err(|error| error.to_string())
}

fn with(settings: &[&str]) -> Result<BrokerConfig, String> {
    resolve(|sources| settings.iter().try_for_each(|s| sources.set(s))).map(|r| r.config)
}

#[test]
fn given_nothing_then_the_defaults_build_a_configuration() {
    let config = BrokerConfig::default();
    assert_eq!(config.listener.to_string(), "127.0.0.1:9092");
    assert_eq!(config.data_dirs, [PathBuf::from("./highwater-data")]);
    assert_eq!(config.log_roll_ms, 168 * 3_600_000);
    assert_eq!(config.flush_on_ack, FlushOnAck::All);
    assert_eq!(config.checkpoint_bytes, 64 << 20);
}

#[test]
fn every_broker_default_is_a_value_of_its_own_kind() {
    for setting in SETTINGS.iter().filter(|s| s.scope == Scope::Broker) {
        assert_eq!(
            setting.kind.check(setting.default_text()),
            Ok(()),
            "{}",
            setting.name
        );
    }
}

#[test]
fn every_topic_default_is_of_its_kind_or_names_broker_settings_that_fit_it() {
    for setting in SETTINGS.iter().filter(|s| s.scope == Scope::Topic) {
        let names = match setting.default {
            Fallback::Value(value) => {
                assert_eq!(setting.kind.check(value), Ok(()), "{}", setting.name);
                continue;
            }
            Fallback::Broker(names) => names,
        };
        assert!(!names.is_empty(), "{}", setting.name);
        for name in &names[1..] {
            assert!(find(Scope::Broker, name).is_some(), "{name}");
        }
        let broker = find(Scope::Broker, names[0]).expect(setting.name);
        match (setting.kind, broker.kind) {
            (
                Kind::Int { min, max },
                Kind::OptionalInt {
                    min: low,
                    max: high,
                },
            ) => {
                assert_eq!((min, max), (low, high), "{}", setting.name);
            }
            (topic, broker) => assert_eq!(topic, broker, "{}", setting.name),
        }
        assert_eq!(setting.limit, broker.limit, "{}", setting.name);
    }
}

/// Kafka 4.1's `TopicConfig`: tools read and write any of them.
#[test]
fn every_topic_setting_of_kafka_is_in_the_table() {
    let kafkas = [
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    ];
    let mut names: Vec<&str> = SETTINGS
        .iter()
        .filter(|s| s.scope == Scope::Topic && s.name != "flush.on.ack")
        .map(|s| s.name)
        .collect();
    names.sort_unstable();
    assert_eq!(names, kafkas);
}

/// Each row has its arm in `TopicConfig`, which would panic without.
#[test]
fn every_topic_setting_takes_its_own_default() {
    let broker = BrokerConfig::default();
    for setting in SETTINGS.iter().filter(|s| s.scope == Scope::Topic) {
        let value = match setting.default {
            Fallback::Value(value) => value,
            Fallback::Broker(names) => {
                let rows = names.iter().filter_map(|name| find(Scope::Broker, name));
                let mut values = rows.map(|row| row.default_text());
                values.find(|value| !value.is_empty()).unwrap()
            }
        };
        let resolved = TopicConfig::resolve(&broker, [(setting.name, value)]);
        assert!(resolved.is_ok(), "{}: {resolved:?}", setting.name);
    }
}

#[test]
fn names_are_unique_within_a_scope_and_so_are_their_variables() {
    for scope in [Scope::Broker, Scope::Topic] {
        let settings = || SETTINGS.iter().filter(|s| s.scope == scope);
        for setting in settings() {
            let same = |other: &&Setting| {
                other.name == setting.name
                    || environment_name(other.name) == environment_name(setting.name)
            };
            assert_eq!(settings().filter(same).count(), 1, "{}", setting.name);
            if scope == Scope::Broker {
                assert_eq!(unbuilt::find(setting.name), None, "{}", setting.name);
            }
        }
    }
}

/// The bounds of a row lie within its field: no bound is changed on its way into the struct.
#[test]
fn both_bounds_of_every_number_arrive_in_its_field() {
    for setting in SETTINGS.iter() {
        let (Kind::Int { min, max } | Kind::OptionalInt { min, max }) = setting.kind else {
            continue;
        };
        if WITHOUT_FIELD.contains(&setting.name) {
            continue;
        }
        for bound in [min, max] {
            let (name, value) = (setting.name, bound.to_string());
            let (debug, field) = match setting.scope {
                Scope::Broker => (
                    // Without an override the least number of connections by address is refused.
                    format!(
                        "{:?}",
                        with(&[
                            "group.min.session.timeout.ms=1",
                            "group.max.session.timeout.ms=2147483647",
                            &format!("{name}={value}"),
                            "max.connections.per.ip.overrides=h:1"
                        ])
                        .unwrap()
                    ),
                    name.replace('.', "_"),
                ),
                Scope::Topic => {
                    let config =
                        TopicConfig::resolve(&BrokerConfig::default(), [(name, value.as_str())]);
                    let field = name
                        .replace('.', "_")
                        .replace("message_timestamp", "timestamp")
                        .replace("compression_", "");
                    (format!("{:?}", config.unwrap()), field)
                }
            };
            let hours = |bound: i64| (bound * 3_600_000).to_string();
            let (field, value) = match name {
                "log.roll.hours" => ("log_roll_ms".to_owned(), hours(bound)),
                "log.roll.jitter.hours" => ("log_roll_jitter_ms".to_owned(), hours(bound)),
                "log.retention.hours" if bound > 0 => ("log_retention_ms".to_owned(), hours(bound)),
                "log.retention.minutes" if bound > 0 => {
                    ("log_retention_ms".to_owned(), (bound * 60_000).to_string())
                }
                "log.retention.hours" | "log.retention.minutes" => {
                    ("log_retention_ms".to_owned(), value)
                }
                "log.flush.scheduler.interval.ms" => ("log_flush_interval_ms".to_owned(), value),
                _ => (field, value),
            };
            let ends = [format!(" {field}: {value},"), format!(" {field}: {value} ")];
            assert!(
                ends.iter().any(|end| debug.contains(end)),
                "{name}={bound}: {debug}"
            );
        }
        for outside in [min.checked_sub(1), max.checked_add(1)]
            .into_iter()
            .flatten()
        {
            assert!(
                setting.kind.check(&outside.to_string()).is_err(),
                "{}={outside}",
                setting.name
            );
        }
    }
}

/// Rows with numbers that have no field: nothing acts on them.
const WITHOUT_FIELD: &[&str] = &[
    "local.retention.ms",
    "local.retention.bytes",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
];

#[test]
fn given_all_sources_then_the_higher_wins() {
    let variable = |value: &str| [("HIGHWATER_NODE_ID".to_owned(), value.to_owned())];
    let of = |depth: usize| {
        resolve(|sources| {
            if depth > 0 {
                sources.file("broker.properties", "node.id=2\n")?;
            }
            if depth > 1 {
                sources.environment(variable("3"))?;
            }
            if depth > 2 {
                sources.set("node.id=4")?;
            }
            if depth > 3 {
                sources.flag("--node-id", "node.id", "5")?;
            }
            Ok(())
        })
        .unwrap()
        .config
        .node_id
    };
    assert_eq!([0, 1, 2, 3, 4].map(of), [1, 2, 3, 4, 5]);
}

#[test]
fn every_error_names_its_source() {
    let file = resolve(|s| s.file("b.properties", "# a comment\n\nnum.partitions=many\n"));
    assert_eq!(
        file.unwrap_err(),
        "b.properties:3: num.partitions=many: must be a whole number, 1 to 10000"
    );
    let variable = ("HIGHWATER_FLUSH_ON_ACK".to_owned(), "some".to_owned());
    assert_eq!(
        resolve(|s| s.environment([variable])).unwrap_err(),
        "environment variable HIGHWATER_FLUSH_ON_ACK: flush.on.ack=some: must be one of all, any, none"
    );
    assert_eq!(
        with(&["shards=-1"]).unwrap_err(),
        "--set: shards=-1: must be a whole number, 0 to 1024"
    );
    assert_eq!(
        resolve(|s| s.flag("--listener", "listeners", "9092")).unwrap_err(),
        "--listener: listeners=9092: must be HOST:PORT, for instance 127.0.0.1:9092 or [::1]:9092"
    );
    assert_eq!(
        with(&["nonsense"]).unwrap_err(),
        "--set: 'nonsense' has no '='; write --set NAME=VALUE"
    );
    assert_eq!(
        resolve(|s| s.file("b.properties", "node.id=1\nnode.id=2")).unwrap_err(),
        "b.properties:2: 'node.id' is set a second time, first on line 1; keep one"
    );
}

#[test]
fn given_an_unknown_name_then_the_nearest_is_suggested() {
    let near = |name: &str| with(&[&format!("{name}=1")]).unwrap_err();
    assert_eq!(
        near("log.segment.byte"),
        "--set: there is no setting 'log.segment.byte' (did you mean 'log.segment.bytes'?)"
    );
    assert!(near("flush_on_ack").contains("did you mean 'flush.on.ack'?"));
    let interval = near("replica.high.watermark.checkpoint.interval");
    assert!(
        interval.contains("did you mean 'replica.high"),
        "{interval}"
    );
    let far = near("tea.time");
    assert_eq!(
        far,
        "--set: there is no setting 'tea.time'; `highwater config docs` lists them all"
    );
    assert!(near(&"x".repeat(100_000)).contains("there is no setting"));
}

#[test]
fn an_unknown_variable_is_noted_and_a_misspelled_one_gets_a_hint() {
    let variables = [
        ("PATH", "/bin"),
        ("HIGHWATER_LOG", "debug"),
        ("HIGHWATER_PORT", "tcp://10.0.0.1:9092"),
        ("HIGHWATER_NODE_IDS", "7"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let resolved = resolve(|s| s.environment(variables)).unwrap();
    assert_eq!(resolved.config, BrokerConfig::default());
    assert_eq!(
        resolved.notes,
        [
            "environment variable HIGHWATER_PORT names no setting and is ignored",
            "environment variable HIGHWATER_NODE_IDS names no setting and is ignored; \
             did you mean HIGHWATER_NODE_ID?",
        ]
    );
}

#[test]
fn kafkas_settings_that_are_not_built_are_refused_where_they_would_change_something() {
    assert_eq!(
        with(&["log.preallocate=true"]).unwrap_err(),
        "--set: log.preallocate=true is not supported yet \
         (preallocation grows with the segment by itself, so only 'false' is accepted)"
    );
    assert!(with(&["log.preallocate=false", "log.cleanup.policy=delete"]).is_ok());
    for name in [
        "ssl.keystore.location",
        "sasl.enabled.mechanisms",
        "controller.quorum.voters",
        "replica.lag.time.max.ms",
        "share.coordinator.threads",
        "transaction.state.log.min.isr",
        "group.consumer.session.timeout.ms",
        "log.cleaner.hash.algorithm",
        "listener.security.protocol.map",
        "log.local.retention.ms",
        "metadata.log.dir",
        "replica.fetch.max.bytes",
        "log.dir.failure.timeout.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "follower.fetch.last.tiered.offset.enable",
        "request.timeout.ms",
        "server.max.startup.time.ms",
        "socket.connection.setup.timeout.max.ms",
        "unclean.leader.election.interval.ms",
        "unstable.api.versions.enable",
        "add.partitions.to.txn.retry.backoff.ms",
    ] {
        let error = with(&[&format!("{name}=1")]).unwrap_err();
        assert!(error.contains("not supported yet"), "{error}");
    }
    let noted = resolve(|s| s.set("num.io.threads=8")).unwrap();
    assert_eq!(noted.config, BrokerConfig::default());
    assert_eq!(
        noted.notes,
        ["--set: num.io.threads has no effect: each shard is one thread; see `shards`"]
    );
}

#[test]
fn the_largest_session_timeout_is_not_below_the_least() {
    let error = with(&["group.max.session.timeout.ms=5999"]).unwrap_err();
    assert!(
        error.contains("must not be less than group.min.session.timeout.ms, 6000"),
        "{error}"
    );
    assert!(with(&["group.max.session.timeout.ms=6000"]).is_ok());
}

#[test]
fn limits_by_address_are_pairs_and_the_one_for_all_others_may_then_be_zero() {
    let listed = |text: &str| {
        with(&[
            &format!("max.connections.per.ip.overrides={text}"),
            "max.connections.per.ip=0",
        ])
        .map(|config| config.max_connections_per_ip_overrides)
    };
    let pair = |host: &str, count| (host.to_owned(), count);
    assert_eq!(
        listed("10.0.0.1:100, a-host:2,::1:0,[fe80::1]:7"),
        Ok(vec![
            pair("10.0.0.1", 100),
            pair("a-host", 2),
            pair("::1", 0),
            pair("fe80::1", 7)
        ])
    );
    for bad in [
        "10.0.0.1",
        "10.0.0.1:",
        ":5",
        "a:-1",
        "a:1,,b:2",
        "a:2147483648",
    ] {
        let error = listed(bad).unwrap_err();
        assert!(error.contains("must be HOST:COUNT"), "{error}");
    }
    let error = with(&["max.connections.per.ip=0"]).unwrap_err();
    assert!(
        error.contains("max.connections.per.ip.overrides"),
        "{error}"
    );
}

#[test]
fn a_listener_that_clients_cannot_reach_is_refused() {
    assert!(with(&["listeners=0.0.0.0:9092"])
        .unwrap_err()
        .contains("advertised.listeners"));
    assert!(with(&["listeners=PLAINTEXT://:9092"]).is_err());
    let both = [
        "listeners=[::]:0",
        "advertised.listeners=PLAINTEXT://broker.example:0",
    ];
    let config = with(&both).unwrap();
    assert_eq!(config.listener.to_string(), "[::]:0");
    assert_eq!(
        config.advertised_listener.unwrap().to_string(),
        "broker.example:0"
    );
    assert!(with(&["advertised.listeners=0.0.0.0:1"]).is_err());
    assert!(with(&["listeners="]).is_err());
    assert!(with(&["listeners=SSL://a:1"])
        .unwrap_err()
        .contains("PLAINTEXT"));
    assert!(with(&["listeners=a:1,b:2"])
        .unwrap_err()
        .contains("only one listener"));
    for bad in [
        "a:65536",
        "a:-1",
        "::1:9092",
        "[::1:9092",
        "[x]:1",
        "a b:1",
        "a/b:1",
        "a",
    ] {
        assert!(HostPort::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn data_directories_are_a_list_without_gaps_and_repetitions() {
    let dirs = |settings: &[&str]| with(settings).map(|config| config.data_dirs);
    let paths = |paths: &[&str]| Ok(paths.iter().map(PathBuf::from).collect::<Vec<_>>());
    assert_eq!(dirs(&["log.dir=/a", "log.dirs=/b"]), paths(&["/b"]));
    assert_eq!(dirs(&["log.dir=/a"]), paths(&["/a"]));
    assert_eq!(dirs(&["log.dirs=/a, /b,/c"]), paths(&["/a", "/b", "/c"]));
    for (settings, problem) in [
        ("log.dirs=/a,/b,/a", "names /a twice"),
        ("log.dirs=/a,,/b", "between any two commas"),
        ("log.dir=/a,/b", "log.dirs takes several"),
        ("log.dir=", "must name the data directory"),
    ] {
        let error = dirs(&[settings]).unwrap_err();
        assert!(error.contains(problem), "{settings}: {error}");
    }
}

#[test]
fn a_roll_in_ms_wins_over_one_in_hours() {
    assert_eq!(with(&["log.roll.hours=1"]).unwrap().log_roll_ms, 3_600_000);
    assert_eq!(
        with(&["log.roll.ms=5", "log.roll.hours=1"])
            .unwrap()
            .log_roll_ms,
        5
    );
}

#[test]
fn retention_is_taken_from_the_finest_unit_that_is_given() {
    let retention = |settings: &[&str]| with(settings).map(|config| config.log_retention_ms);
    assert_eq!(retention(&[]), Ok(168 * 3_600_000));
    assert_eq!(retention(&["log.retention.hours=2"]), Ok(7_200_000));
    let minutes = ["log.retention.hours=2", "log.retention.minutes=3"];
    assert_eq!(retention(&minutes), Ok(180_000));
    let all = [minutes[0], minutes[1], "log.retention.ms=4"];
    assert_eq!(retention(&all), Ok(4));
    for unit in ["ms", "minutes", "hours"] {
        assert_eq!(retention(&[&format!("log.retention.{unit}=-1")]), Ok(-1));
        let zero = retention(&[&format!("log.retention.{unit}=0")]).unwrap_err();
        assert!(zero.contains("at least 1, or -1"), "{zero}");
    }
    let topic = TopicConfig::resolve(&BrokerConfig::default(), [("retention.ms", "0")]);
    assert_eq!(topic.unwrap().retention_ms, 0);
}

#[test]
fn jitter_and_flush_age_are_taken_from_the_finer_setting() {
    let config = with(&[
        "log.roll.jitter.hours=1",
        "log.flush.scheduler.interval.ms=9",
    ])
    .unwrap();
    assert_eq!(
        (config.log_roll_jitter_ms, config.log_flush_interval_ms),
        (3_600_000, 9)
    );
    let config = with(&[
        "log.roll.jitter.hours=1",
        "log.flush.scheduler.interval.ms=9",
        "log.roll.jitter.ms=2",
        "log.flush.interval.ms=8",
    ])
    .unwrap();
    assert_eq!(
        (config.log_roll_jitter_ms, config.log_flush_interval_ms),
        (2, 8)
    );
    let config = BrokerConfig::default();
    assert_eq!(
        (config.log_roll_jitter_ms, config.log_flush_interval_ms),
        (0, i64::MAX)
    );
}

#[test]
fn compression_levels_have_kafkas_ranges() {
    let broker = BrokerConfig::default();
    let level = |name: &str, value: &str| TopicConfig::resolve(&broker, [(name, value)]);
    for good in ["-1", "1", "9"] {
        let config = level("compression.gzip.level", good).unwrap();
        assert_eq!(config.gzip_level.to_string(), good);
    }
    for bad in ["0", "-2", "10", ""] {
        let error = level("compression.gzip.level", bad)
            .unwrap_err()
            .to_string();
        assert!(error.contains("1 to 9, or -1"), "{error}");
    }
    let defaults = TopicConfig::from_broker(&broker);
    assert_eq!(
        (defaults.gzip_level, defaults.lz4_level, defaults.zstd_level),
        (-1, 9, 3)
    );
    for (name, bad) in [
        ("lz4", "0"),
        ("lz4", "18"),
        ("zstd", "23"),
        ("zstd", "-131073"),
    ] {
        assert!(
            level(&format!("compression.{name}.level"), bad).is_err(),
            "{name} {bad}"
        );
    }
}

#[test]
fn a_topics_words_lists_and_pairs_are_read_as_kafka_reads_them() {
    let broker = BrokerConfig::default();
    let of = |name: &str, value: &str| TopicConfig::resolve(&broker, [(name, value)]);
    assert!(
        of("cleanup.policy", " delete , delete ")
            .unwrap()
            .cleanup_delete
    );
    assert!(!of("cleanup.policy", "").unwrap().cleanup_delete);
    assert!(of("cleanup.policy", "keep").is_err());
    assert!(of("cleanup.policy", "delete,").is_err());
    for word in TopicCompression::WORDS {
        let config = of("compression.type", word).unwrap();
        assert_eq!(config.compression.as_str(), *word);
    }
    assert!(of("compression.type", "none").is_err());
    assert_eq!(
        of("message.timestamp.type", "LogAppendTime")
            .unwrap()
            .timestamp_type,
        MessageTimestampType::LogAppendTime
    );
    assert!(of("message.timestamp.type", "logappendtime").is_err());
    assert_eq!(of("retention.ms", " 5 ").unwrap().retention_ms, 5);
    for good in ["", "*", "0:1", "0:1, 12:3"] {
        let name = "leader.replication.throttled.replicas";
        assert!(of(name, good).is_ok(), "{good}");
    }
    for bad in ["1", "a:1", "0:1,*", "0:1:2", ":"] {
        let name = "follower.replication.throttled.replicas";
        assert!(of(name, bad).is_err(), "{bad}");
    }
    for bad in ["-0.1", "1.1", "NaN", "half", ""] {
        assert!(of("min.cleanable.dirty.ratio", bad).is_err(), "{bad}");
    }
    assert!(of("min.cleanable.dirty.ratio", "0.01").is_ok());
    for (name, other) in [
        ("remote.storage.enable", "true"),
        ("remote.log.copy.disable", "true"),
        ("remote.log.delete.on.disable", "true"),
        ("local.retention.ms", "-1"),
        ("local.retention.bytes", "5"),
    ] {
        let error = of(name, other).unwrap_err().to_string();
        assert!(error.contains("there is no tiered storage"), "{error}");
    }
    assert!(of("remote.storage.enable", "FALSE").is_ok());
}

#[test]
fn a_least_compaction_lag_above_the_greatest_is_refused() {
    let lags = |min, max| {
        let overrides = [
            ("min.compaction.lag.ms", min),
            ("max.compaction.lag.ms", max),
        ];
        TopicConfig::resolve(&BrokerConfig::default(), overrides)
    };
    assert!(lags("5", "5").is_ok());
    assert_eq!(
        lags("6", "5").unwrap_err().to_string(),
        "topic configuration: min.compaction.lag.ms=6: must not be more than max.compaction.lag.ms, 5"
    );
    assert_eq!(
        with(&[
            "log.cleaner.min.compaction.lag.ms=6",
            "log.cleaner.max.compaction.lag.ms=5"
        ])
        .unwrap_err(),
        "--set: log.cleaner.min.compaction.lag.ms=6: must not be more than log.cleaner.max.compaction.lag.ms, 5"
    );
}

/// A topic that was valid stays so whatever the broker's lags become.
#[test]
fn a_topics_own_lag_wins_over_the_brokers_other_one() {
    let broker = with(&[
        "log.cleaner.min.compaction.lag.ms=10",
        "log.cleaner.max.compaction.lag.ms=20",
    ])
    .unwrap();
    let lags = |overrides: &[(&str, &str)]| {
        let config = TopicConfig::resolve(&broker, overrides.iter().copied()).unwrap();
        (config.min_compaction_lag_ms, config.max_compaction_lag_ms)
    };
    assert_eq!(lags(&[]), (10, 20));
    assert_eq!(lags(&[("max.compaction.lag.ms", "5")]), (5, 5));
    assert_eq!(lags(&[("max.compaction.lag.ms", "50")]), (10, 50));
    assert_eq!(lags(&[("min.compaction.lag.ms", "30")]), (30, 30));
    assert_eq!(lags(&[("min.compaction.lag.ms", "0")]), (0, 20));
}

#[test]
fn each_cleanup_policy_is_of_the_broker_and_of_the_topic() {
    for (policy, delete, compact) in [
        ("delete", true, false),
        ("compact", false, true),
        ("compact,delete", true, true),
        (" delete , compact ", true, true),
        ("", false, false),
    ] {
        let broker = with(&[&format!("log.cleanup.policy={policy}")]).unwrap();
        let topic = TopicConfig::resolve(&broker, []).unwrap();
        assert_eq!(
            (topic.cleanup_delete, topic.cleanup_compact),
            (delete, compact)
        );
        let own = [("cleanup.policy", policy)];
        let topic = TopicConfig::resolve(&BrokerConfig::default(), own).unwrap();
        assert_eq!(
            (topic.cleanup_delete, topic.cleanup_compact),
            (delete, compact)
        );
    }
}

#[test]
fn the_compactions_bandwidth_is_any_number_from_one_on() {
    let of = |value: &str| with(&[&format!("log.cleaner.io.max.bytes.per.second={value}")]);
    let rate = |value: &str| of(value).unwrap().log_cleaner_io_max_bytes_per_second;
    assert_eq!(
        BrokerConfig::default().log_cleaner_io_max_bytes_per_second,
        u64::MAX
    );
    assert_eq!(rate("1.7976931348623157E308"), u64::MAX);
    assert_eq!((rate("1"), rate("1.5"), rate("1e6")), (1, 1, 1_000_000));
    for bad in ["0", "-1", "0.9", "NaN", "inf", "fast", ""] {
        let error = of(bad).unwrap_err();
        assert!(
            error.contains("must be a number, at least 1"),
            "{bad}: {error}"
        );
    }
}

#[test]
fn a_topic_takes_the_brokers_values_and_overrides_them() {
    let broker = with(&[
        "log.segment.bytes=20000",
        "flush.on.ack=any",
        "log.roll.ms=7",
    ])
    .unwrap();
    let topic = TopicConfig::resolve(&broker, []).unwrap();
    assert_eq!((topic.segment_bytes, topic.segment_ms), (20_000, 7));
    assert_eq!(topic.flush_on_ack, FlushOnAck::Any);
    let topic = TopicConfig::resolve(&broker, [("segment.bytes", "30000")]).unwrap();
    assert_eq!(topic.segment_bytes, 30_000);
    let error = |name, value| TopicConfig::resolve(&broker, [(name, value)]).unwrap_err();
    assert_eq!(
        error("segment.bytes", "1").to_string(),
        "topic configuration: segment.bytes=1: must be a whole number, 16384 to 2147483647"
    );
    assert_eq!(
        error("cleanup.policy", "compacted").to_string(),
        "topic configuration: cleanup.policy=compacted: must be a list of compact, delete"
    );
    assert!(matches!(
        error("flush.on.acks", "all"),
        ConfigError::Unknown {
            nearest: Some("flush.on.ack"),
            ..
        }
    ));
    assert!(matches!(
        error("log.segment.bytes", "20000"),
        ConfigError::Unknown { .. }
    ));
    let same = [
        ("cleanup.policy", "delete"),
        ("compression.type", "producer"),
        ("message.timestamp.type", "CreateTime"),
        ("retention.bytes", "-1"),
    ];
    assert_eq!(
        TopicConfig::resolve(&broker, same).unwrap().segment_bytes,
        20_000
    );
}

#[test]
fn the_documentation_has_a_row_for_every_setting() {
    let markdown = markdown();
    for setting in SETTINGS {
        let row = format!("| `{}` | ", setting.name);
        let rows = markdown.lines().filter(|line| line.starts_with(&row));
        let scopes = SETTINGS.iter().filter(|other| other.name == setting.name);
        assert_eq!(rows.count(), scopes.count(), "{}", setting.name);
        assert!(!setting.doc.contains(['|', '\n']), "{}", setting.name);
        assert!(setting.doc.ends_with('.'), "{}", setting.name);
    }
    for line in markdown.lines().filter(|line| line.starts_with('|')) {
        assert_eq!(line.matches('|').count(), 5, "{line}");
    }
    for (name, values) in [
        ("remote.storage.enable", "false"),
        ("cleanup.policy", "a list of compact, delete"),
        ("log.cleaner.io.max.bytes.per.second", "at least 1"),
        ("compression.gzip.level", "-1, or 1 to 9"),
    ] {
        let row = format!("| `{name}` | {values} | ");
        assert!(markdown.contains(&row), "{row}");
    }
}

/// The tables in the README are a selection of the rows that `highwater config docs` prints.
#[test]
fn each_settings_row_of_the_readme_is_a_row_of_the_documentation() {
    let readme = include_str!("../../README.md");
    let markdown = markdown();
    let rows: Vec<&str> = readme
        .lines()
        .skip_while(|line| !line.starts_with("## Settings"))
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with("| `"))
        .collect();
    assert!(rows.len() >= 5, "the README has no table of settings");
    for row in rows {
        assert!(
            markdown.lines().any(|line| line == row),
            "README.md: this row is not what `highwater config docs` prints:\n{row}"
        );
    }
}
