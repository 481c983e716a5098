//! Tests of the table and of what is built from it.

use super::*;

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
    assert_eq!(config.data_dir.to_str(), Some("./highwater-data"));
    assert_eq!(config.log_roll_ms, 168 * 3_600_000);
    assert_eq!(config.flush_on_ack, FlushOnAck::All);
    assert_eq!(config.checkpoint_bytes, 64 << 20);
}

#[test]
fn every_broker_default_is_a_value_of_its_own_kind() {
    for setting in SETTINGS.iter().filter(|s| s.scope == Scope::Broker) {
        assert_eq!(
            setting.kind.check(setting.default),
            Ok(()),
            "{}",
            setting.name
        );
    }
}

#[test]
fn every_topic_default_names_a_broker_setting_that_fits_it() {
    for setting in SETTINGS.iter().filter(|s| s.scope == Scope::Topic) {
        let broker = find(Scope::Broker, setting.default).expect(setting.name);
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
            assert_eq!(unbuilt::find(scope, setting.name), None, "{}", setting.name);
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
        for bound in [min, max] {
            let (name, value) = (setting.name, bound.to_string());
            let (debug, field) = match setting.scope {
                Scope::Broker => (
                    format!("{:?}", with(&[&format!("{name}={value}")]).unwrap()),
                    name.replace('.', "_"),
                ),
                Scope::Topic => {
                    let config =
                        TopicConfig::resolve(&BrokerConfig::default(), [(name, value.as_str())]);
                    let field = name
                        .replace('.', "_")
                        .replace("message_timestamp", "timestamp");
                    (format!("{:?}", config.unwrap()), field)
                }
            };
            let (field, value) = match name {
                "log.roll.hours" => ("log_roll_ms".to_owned(), (bound * 3_600_000).to_string()),
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
        with(&["log.retention.hours=168"]).unwrap_err(),
        "--set: log.retention.hours=168 is not supported yet \
         (records are kept until the topic is deleted, so only '-1' is accepted)"
    );
    assert!(with(&["log.retention.ms=-1", "log.cleanup.policy=delete"]).is_ok());
    for name in [
        "ssl.keystore.location",
        "sasl.enabled.mechanisms",
        "controller.quorum.voters",
        "replica.lag.time.max.ms",
        "offsets.topic.replication.factor",
        "transaction.state.log.min.isr",
        "group.initial.rebalance.delay.ms",
        "log.cleaner.threads",
        "listener.security.protocol.map",
        "log.local.retention.ms",
        "metadata.log.dir",
        "replica.fetch.max.bytes",
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
fn one_data_directory_is_taken_and_two_are_refused() {
    let config = with(&["log.dir=/a", "log.dirs=/b"]).unwrap();
    assert_eq!(config.data_dir.to_str(), Some("/b"));
    assert_eq!(with(&["log.dir=/a"]).unwrap().data_dir.to_str(), Some("/a"));
    assert!(with(&["log.dirs=/a,/b"])
        .unwrap_err()
        .contains("only one data directory"));
    assert!(with(&["log.dir="]).is_err());
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
        error("cleanup.policy", "compact").to_string(),
        "topic configuration: cleanup.policy=compact is not supported yet \
         (compaction is not built, so only 'delete' is accepted)"
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
