//! Settings of topics and of the broker, described and altered while it runs, and
//! topics that grow.

use super::client::{
    batch_of, create_topic, fetch_all, list_offset, produce, produce_ok, text, with,
};
use super::{data_dir, launch};
use highwater::client::BrokerConnection;
use highwater::protocol::messages::*;
use highwater::protocol::{ApiKey, Str};

pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;

pub(super) const SET: i8 = 0;
pub(super) const DELETE: i8 = 1;
pub(super) const APPEND: i8 = 2;
pub(super) const SUBTRACT: i8 = 3;

pub(super) const INVALID_CONFIG: i16 = 40;
pub(super) const INVALID_REQUEST: i16 = 42;
const INVALID_PARTITIONS: i16 = 37;
const POLICY_VIOLATION: i16 = 44;
const INVALID_REPLICA_ASSIGNMENT: i16 = 39;
const UNKNOWN_TOPIC: i16 = 3;
pub(super) const MESSAGE_TOO_LARGE: i16 = 10;

/// One change: name, operation, value.
pub(super) type Op<'a> = (&'a str, i8, Option<&'a str>);

pub(super) fn alteration(
    resource_type: i8,
    name: &str,
    ops: &[Op<'_>],
) -> IncrementalAlterConfigsResource {
    IncrementalAlterConfigsResource {
        resource_type,
        resource_name: text(name),
        configs: ops
            .iter()
            .map(|(name, operation, value)| IncrementalAlterableConfig {
                name: text(name),
                config_operation: *operation,
                value: value.map(text),
            })
            .collect(),
    }
}

/// Alters resources one by one; error code and message of each.
pub(super) async fn alter_all(
    c: &BrokerConnection,
    resources: Vec<IncrementalAlterConfigsResource>,
    validate_only: bool,
) -> Vec<(i16, String)> {
    let request = IncrementalAlterConfigsRequest {
        resources,
        validate_only,
    };
    let response = c.call(&request).await.expect("an answer");
    let responses = response.responses.into_iter();
    responses
        .map(|one| (one.error_code, said(one.error_message)))
        .collect()
}

pub(super) async fn alter(c: &BrokerConnection, topic: &str, ops: &[Op<'_>]) -> (i16, String) {
    let resource = alteration(TOPIC, topic, ops);
    alter_all(c, vec![resource], false).await.remove(0)
}

/// AlterConfigs: all settings at once.
pub(super) async fn replace(
    c: &BrokerConnection,
    resource_type: i8,
    name: &str,
    configs: &[(&str, Option<&str>)],
    validate_only: bool,
) -> (i16, String) {
    let request = AlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type,
            resource_name: text(name),
            configs: configs
                .iter()
                .map(|(name, value)| AlterableConfig {
                    name: text(name),
                    value: value.map(text),
                })
                .collect(),
        }],
        validate_only,
    };
    let mut response = c.call(&request).await.expect("an answer");
    let one = response.responses.remove(0);
    (one.error_code, said(one.error_message))
}

pub(super) fn said(message: Option<Str>) -> String {
    message.map(|m| m.to_string()).unwrap_or_default()
}

pub(super) fn description(
    resource_type: i8,
    name: &str,
    keys: Option<&[&str]>,
) -> DescribeConfigsRequest {
    DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type,
            resource_name: text(name),
            configuration_keys: keys.map(|keys| keys.iter().map(|key| text(key)).collect()),
        }],
        include_synonyms: true,
        include_documentation: true,
    }
}

pub(super) async fn describe(
    c: &BrokerConnection,
    resource_type: i8,
    name: &str,
    keys: Option<&[&str]>,
) -> DescribeConfigsResult {
    let request = description(resource_type, name, keys);
    let mut response = c.call(&request).await.expect("an answer");
    response.results.remove(0)
}

/// One setting of a topic.
pub(super) async fn setting(
    c: &BrokerConnection,
    topic: &str,
    name: &str,
) -> DescribeConfigsResourceResult {
    let mut result = describe(c, TOPIC, topic, Some(&[name])).await;
    assert_eq!((result.error_code, result.configs.len()), (0, 1), "{name}");
    result.configs.remove(0)
}

pub(super) async fn value_of(c: &BrokerConnection, topic: &str, name: &str) -> String {
    said(setting(c, topic, name).await.value)
}

async fn grow(
    c: &BrokerConnection,
    topic: &str,
    count: i32,
    assignments: Option<&[&[i32]]>,
    validate_only: bool,
) -> (i16, String) {
    let request = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: text(topic),
            count,
            assignments: assignments.map(|all| {
                let all = all.iter();
                all.map(|one| CreatePartitionsAssignment {
                    broker_ids: one.to_vec(),
                })
                .collect()
            }),
        }],
        timeout_ms: 30_000,
        validate_only,
    };
    let mut response = c.call(&request).await.expect("an answer");
    let one = response.results.remove(0);
    (one.error_code, said(one.error_message))
}

async fn partitions_of(c: &BrokerConnection, topic: &str) -> usize {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(text(topic)),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let response = c.call(&request).await.expect("an answer");
    assert_eq!(response.topics[0].error_code, 0);
    response.topics[0].partitions.len()
}

#[test]
fn given_a_live_topic_when_max_message_bytes_is_altered_then_every_partition_feels_it() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "live", 6, &[]).await;
        let two_kib = || batch_of(&"x".repeat(2_000));
        for partition in 0..6 {
            produce_ok(&c, "live", partition, two_kib()).await;
        }
        let limit = ("max.message.bytes", SET, Some("1000"));
        assert_eq!(alter(&c, "live", &[limit]).await.0, 0);
        for partition in 0..6 {
            let refused = produce(&c, "live", partition, -1, two_kib()).await;
            assert_eq!(refused.error_code, MESSAGE_TOO_LARGE, "{partition}");
            produce_ok(&c, "live", partition, batch_of("small")).await;
        }
        let back = ("max.message.bytes", DELETE, None);
        assert_eq!(alter(&c, "live", &[back]).await.0, 0);
        for partition in 0..6 {
            produce_ok(&c, "live", partition, two_kib()).await;
        }
    });
    broker.stop();
}

/// C10: what is stored stays readable, through restarts, when the limit falls below it.
#[test]
fn given_a_large_record_when_the_limit_is_lowered_then_it_is_still_read_and_new_ones_are_held_to_it(
) {
    let dir = data_dir();
    let large = "l".repeat(900_000);
    let broker = launch(dir.path()).start();
    let value = large.clone();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "c10", 1, &[]).await;
        produce_ok(&c, "c10", 0, batch_of(&value)).await;
        let limit = ("max.message.bytes", SET, Some("1000"));
        assert_eq!(alter(&c, "c10", &[limit]).await.0, 0);
    });
    let check = |broker: &super::broker::Broker, next: i64| {
        let value = large.clone();
        with(broker.addr(), move |c| async move {
            assert_eq!(value_of(&c, "c10", "max.message.bytes").await, "1000");
            let records = fetch_all(&c, "c10", 0, 0).await;
            assert_eq!(records[0], (0, value));
            assert_eq!(records.len() as i64, next);
            let refused = produce(&c, "c10", 0, -1, batch_of(&"x".repeat(2_000))).await;
            assert_eq!(refused.error_code, MESSAGE_TOO_LARGE);
            assert_eq!(produce_ok(&c, "c10", 0, batch_of("small")).await, next);
        });
    };
    check(&broker, 1);
    broker.kill();
    let broker = launch(dir.path()).start();
    check(&broker, 2);
    broker.stop();
    let broker = launch(dir.path()).start();
    check(&broker, 3);
    broker.stop();
}

#[test]
fn given_altered_settings_when_killed_or_stopped_then_they_are_in_force_afterwards() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "kept", 3, &[("segment.ms", "9000")]).await;
        let ops = [
            ("retention.ms", SET, Some("123456")),
            ("segment.ms", DELETE, None),
        ];
        assert_eq!(alter(&c, "kept", &ops).await.0, 0);
        let policy = ("cleanup.policy", SUBTRACT, Some("delete"));
        assert_eq!(alter(&c, "kept", &[policy]).await.0, 0);
    });
    let check = |broker: &super::broker::Broker| {
        with(broker.addr(), |c| async move {
            let all = describe(&c, TOPIC, "kept", None).await.configs;
            let own: Vec<(String, String)> = all
                .into_iter()
                .filter(|one| one.config_source == 1)
                .map(|one| (one.name.to_string(), said(one.value)))
                .collect();
            let expected = [("cleanup.policy", ""), ("retention.ms", "123456")];
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(own, expected);
            assert_eq!(value_of(&c, "kept", "segment.ms").await, "604800000");
        });
    };
    broker.kill();
    let broker = launch(dir.path()).start();
    check(&broker);
    broker.stop();
    let broker = launch(dir.path()).start();
    check(&broker);
    broker.stop();
}

/// One request whose records are more than the metadata log's own memory, one after the other.
#[test]
fn given_many_topics_with_long_values_in_one_request_when_killed_then_all_of_it_is_there() {
    const TOPICS: usize = 72;
    let dir = data_dir();
    let names = || (0..TOPICS).map(|n| format!("long-{n}"));
    let pairs: Vec<String> = (0..4_600).map(|n| format!("{n}:1")).collect();
    let long = pairs.join(",");
    assert!(long.len() > 30_000 && 2 * TOPICS * long.len() > 4 << 20);
    let broker = launch(dir.path()).start();
    let value = long.clone();
    with(broker.addr(), move |c| async move {
        for name in names() {
            assert_eq!(create_topic(&c, &name, 1, &[]).await.error_code, 0);
        }
        let lists = [
            "leader.replication.throttled.replicas",
            "follower.replication.throttled.replicas",
        ];
        let ops = lists.map(|list| (list, SET, Some(value.as_str())));
        let resources = names().map(|name| alteration(TOPIC, &name, &ops)).collect();
        let answers = alter_all(&c, resources, false).await;
        assert_eq!(answers.len(), TOPICS);
        assert!(answers.iter().all(|answer| answer.0 == 0), "{answers:?}");
        // Text of any kind is refused with its error, and the broker serves on.
        for (name, value) in [
            ("segment.ms", "\u{665}\u{664}"),
            ("compression.type", "z\u{301}std"),
            ("r\u{e9}tention.ms", "5"),
        ] {
            let answer = alter(&c, "long-0", &[(name, SET, Some(value))]).await;
            assert_eq!(answer.0, INVALID_CONFIG, "{}", answer.1);
            let created = create_topic(&c, "other", 1, &[(name, value)]).await;
            assert_eq!(created.error_code, INVALID_CONFIG);
        }
    });
    let check = |broker: &super::broker::Broker| {
        let value = long.clone();
        with(broker.addr(), move |c| async move {
            for name in names() {
                let list = "follower.replication.throttled.replicas";
                assert!(value_of(&c, &name, list).await == value, "{name}");
            }
        });
    };
    broker.kill();
    let broker = launch(dir.path()).start();
    check(&broker);
    broker.stop();
    let broker = launch(dir.path()).start();
    check(&broker);
    broker.stop();
}

#[test]
fn given_bad_alterations_then_each_is_answered_with_its_code_and_nothing_changes() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "t", 1, &[]).await;
        let before = describe(&c, TOPIC, "t", None).await;
        let bad: Vec<(i8, &str, Vec<Op<'_>>, i16, &str)> = vec![
            (
                TOPIC,
                "t",
                vec![("segment.ms", SET, Some("0"))],
                INVALID_CONFIG,
                "at least 1",
            ),
            (
                TOPIC,
                "t",
                vec![("segment.sm", SET, Some("1"))],
                INVALID_CONFIG,
                "did you mean",
            ),
            (
                TOPIC,
                "t",
                vec![("", SET, Some("1"))],
                INVALID_CONFIG,
                "no setting",
            ),
            (
                TOPIC,
                "t",
                vec![("cleanup.policy", SET, Some("compacted"))],
                INVALID_CONFIG,
                "a list of compact, delete",
            ),
            (
                TOPIC,
                "t",
                vec![
                    ("min.compaction.lag.ms", SET, Some("6")),
                    ("max.compaction.lag.ms", SET, Some("5")),
                ],
                INVALID_CONFIG,
                "must not be more than max.compaction.lag.ms",
            ),
            (
                TOPIC,
                "t",
                vec![("remote.storage.enable", SET, Some("true"))],
                INVALID_CONFIG,
                "tiered",
            ),
            (
                TOPIC,
                "t",
                vec![("segment.ms", APPEND, Some("1"))],
                INVALID_CONFIG,
                "not LIST",
            ),
            (
                TOPIC,
                "t",
                vec![("segment.ms", SUBTRACT, Some("1"))],
                INVALID_CONFIG,
                "not LIST",
            ),
            (
                TOPIC,
                "t",
                vec![("segment.ms", SET, None)],
                INVALID_REQUEST,
                "Null value",
            ),
            (
                TOPIC,
                "t",
                vec![("segment.ms", 7, Some("1"))],
                INVALID_REQUEST,
                "operation 7",
            ),
            (
                TOPIC,
                "t",
                vec![("segment.ms", SET, Some("1")), ("segment.ms", DELETE, None)],
                INVALID_REQUEST,
                "duplicate",
            ),
            (
                TOPIC,
                "",
                vec![("segment.ms", SET, Some("1"))],
                INVALID_REQUEST,
                "Default topic",
            ),
            (
                TOPIC,
                "nope",
                vec![("segment.ms", SET, Some("1"))],
                UNKNOWN_TOPIC,
                "does not exist",
            ),
            (
                TOPIC,
                "a/b",
                vec![("segment.ms", SET, Some("1"))],
                17,
                "invalid",
            ),
            (
                8,
                "1",
                vec![],
                INVALID_REQUEST,
                "Unsupported resource type: 8",
            ),
            (
                16,
                "x",
                vec![],
                INVALID_REQUEST,
                "Unsupported resource type: 16",
            ),
            (
                32,
                "x",
                vec![],
                INVALID_REQUEST,
                "Unsupported resource type: 32",
            ),
            (
                0,
                "x",
                vec![],
                INVALID_REQUEST,
                "Unsupported resource type: 0",
            ),
            (
                -1,
                "x",
                vec![],
                INVALID_REQUEST,
                "Unsupported resource type: -1",
            ),
        ];
        for (resource_type, name, ops, code, says) in &bad {
            for validate_only in [true, false] {
                let resource = alteration(*resource_type, name, ops);
                let answer = alter_all(&c, vec![resource], validate_only).await.remove(0);
                assert_eq!(
                    answer.0, *code,
                    "{resource_type} {name} {ops:?}: {}",
                    answer.1
                );
                assert!(answer.1.contains(says), "{says}: {}", answer.1);
            }
        }
        for (configs, code) in [
            (&[("segment.ms", Some("0"))][..], INVALID_CONFIG),
            (&[("segment.ms", None)], INVALID_REQUEST),
            (
                &[("flush.ms", Some("1")), ("flush.ms", Some("1"))],
                INVALID_REQUEST,
            ),
            (
                &[("flush.ms", Some("1")), ("nope", Some("1"))],
                INVALID_CONFIG,
            ),
        ] {
            assert_eq!(
                replace(&c, TOPIC, "t", configs, false).await.0,
                code,
                "{configs:?}"
            );
        }
        let nope = replace(&c, TOPIC, "nope", &[], false).await;
        assert_eq!(nope.0, UNKNOWN_TOPIC);
        // A list that grows past what the protocol can tell.
        let pairs = |from: i32, to: i32| {
            let pairs: Vec<String> = (from..to).map(|i| format!("{i}:1")).collect();
            pairs.join(",")
        };
        let list = "leader.replication.throttled.replicas";
        let (first, second) = (pairs(0, 4_000), pairs(4_000, 6_000));
        assert_eq!(alter(&c, "t", &[(list, SET, Some(&first))]).await.0, 0);
        let (code, message) = alter(&c, "t", &[(list, APPEND, Some(&second))]).await;
        assert_eq!(code, INVALID_CONFIG);
        assert!(message.contains("at most 32767 bytes"), "{message}");
        assert_eq!(value_of(&c, "t", list).await, first);
        assert_eq!(alter(&c, "t", &[(list, DELETE, None)]).await.0, 0);
        // The same topic twice, beside one that is right.
        let set = |topic| alteration(TOPIC, topic, &[("flush.ms", SET, Some("5"))]);
        create_topic(&c, "u", 1, &[]).await;
        let answers = alter_all(&c, vec![set("t"), set("u"), set("t")], false).await;
        let codes: Vec<i16> = answers.into_iter().map(|answer| answer.0).collect();
        assert_eq!(codes, [INVALID_REQUEST, 0, INVALID_REQUEST]);
        // Also where one of the two would be refused by itself.
        let unknown = alteration(TOPIC, "t", &[("flush.ms", 7, Some("5"))]);
        let answers = alter_all(&c, vec![unknown, set("t")], false).await;
        assert!(
            answers
                .iter()
                .all(|(code, says)| *code == INVALID_REQUEST && says.contains("at most once")),
            "{answers:?}"
        );
        assert_eq!(value_of(&c, "u", "flush.ms").await, "5");
        assert_eq!(describe(&c, TOPIC, "t", None).await, before);
    });
    broker.stop();
}

#[test]
fn given_every_version_of_the_alter_apis_then_they_alter_and_with_validate_only_they_do_not() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "t", 1, &[]).await;
        for version in ApiKey::IncrementalAlterConfigs.decoded_versions() {
            for (validate_only, value) in [(true, "604800000"), (false, "7000")] {
                let op = ("segment.ms", SET, Some("7000"));
                let request = IncrementalAlterConfigsRequest {
                    resources: vec![alteration(TOPIC, "t", &[op])],
                    validate_only,
                };
                let wait = c.start_as(&request, version).await.expect("sent");
                let answer = wait.await.expect("an answer").responses.remove(0);
                assert_eq!((answer.error_code, answer.resource_type), (0, TOPIC));
                assert_eq!(answer.resource_name, "t");
                assert_eq!(value_of(&c, "t", "segment.ms").await, value, "v{version}");
            }
            assert_eq!(alter(&c, "t", &[("segment.ms", DELETE, None)]).await.0, 0);
        }
        for version in ApiKey::AlterConfigs.decoded_versions() {
            for (validate_only, value) in [(true, "9"), (false, "604800000")] {
                let own = [("segment.ms", SET, Some("9"))];
                assert_eq!(alter(&c, "t", &own).await.0, 0);
                let request = AlterConfigsRequest {
                    resources: vec![AlterConfigsResource {
                        resource_type: TOPIC,
                        resource_name: text("t"),
                        configs: vec![AlterableConfig {
                            name: text("flush.ms"),
                            value: Some(text("3")),
                        }],
                    }],
                    validate_only,
                };
                let wait = c.start_as(&request, version).await.expect("sent");
                let answer = wait.await.expect("an answer").responses.remove(0);
                assert_eq!(answer.error_code, 0);
                assert_eq!(value_of(&c, "t", "segment.ms").await, value, "v{version}");
            }
            assert_eq!(value_of(&c, "t", "flush.ms").await, "3");
            assert_eq!(replace(&c, TOPIC, "t", &[], false).await.0, 0);
        }
    });
    broker.stop();
}

#[test]
fn given_what_is_asked_for_when_described_then_that_is_answered_and_no_more() {
    let dir = data_dir();
    let launch = launch(dir.path()).set("log.retention.minutes=5");
    let broker = launch.set("log.segment.bytes=20000").start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "t", 1, &[("segment.bytes", "30000")]).await;
        for version in ApiKey::DescribeConfigs.decoded_versions() {
            for (synonyms, documentation) in [(true, true), (false, false)] {
                let mut request = description(TOPIC, "t", Some(&["segment.bytes", "nope"]));
                request.include_synonyms = synonyms;
                request.include_documentation = documentation && version >= 3;
                let wait = c.start_as(&request, version).await.expect("sent");
                let result = wait.await.expect("an answer").results.remove(0);
                assert_eq!((result.error_code, result.configs.len()), (0, 1));
                let one = &result.configs[0];
                assert_eq!(one.name, "segment.bytes");
                assert_eq!(one.value.as_ref().map(Str::as_str), Some("30000"));
                assert_eq!(
                    (one.config_source, one.read_only, one.is_sensitive),
                    (1, false, false)
                );
                let found: Vec<(&str, &str, i8)> = one
                    .synonyms
                    .iter()
                    .map(|s| (s.name.as_str(), s.value.as_deref().unwrap_or(""), s.source))
                    .collect();
                let expected = [
                    ("segment.bytes", "30000", 1),
                    ("log.segment.bytes", "20000", 4),
                    ("log.segment.bytes", "1073741824", 5),
                ];
                assert_eq!(
                    found,
                    expected[..if synonyms { 3 } else { 0 }],
                    "v{version}"
                );
                if version >= 3 {
                    assert_eq!(one.config_type, 3);
                    let documented = one.documentation.as_ref().is_some_and(|d| !d.is_empty());
                    assert_eq!(documented, documentation, "v{version}");
                }
            }
        }
        let retention = setting(&c, "t", "retention.ms").await;
        assert_eq!(said(retention.value), "300000");
        assert_eq!((retention.config_source, retention.config_type), (4, 5));
        let all = describe(&c, TOPIC, "t", None).await.configs;
        let none_named = describe(&c, TOPIC, "t", Some(&[])).await.configs;
        assert_eq!(all, none_named);
        assert!(all.len() >= 34, "{}", all.len());
        assert!(all.iter().all(|one| one.value.is_some()));

        let own = describe(&c, BROKER, "1", None).await;
        assert_eq!(own.error_code, 0);
        let changes = |name: &str| !own.configs.iter().any(|c| c.name == name && c.read_only);
        assert!(changes("log.segment.bytes") && !changes("log.retention.hours"));
        let named = describe(&c, BROKER, "1", Some(&["log.segment.bytes"])).await;
        let one = &named.configs[0];
        assert_eq!((one.config_source, one.synonyms.len()), (4, 2));
        let common = describe(&c, BROKER, "", None).await;
        assert_eq!((common.error_code, common.configs.len()), (0, 0));
        for (resource_type, name, code) in [
            (BROKER, "2", INVALID_REQUEST),
            (BROKER, "one", INVALID_REQUEST),
            (TOPIC, "nope", UNKNOWN_TOPIC),
            (TOPIC, "", 17),
            (TOPIC, "a b", 17),
            (8, "1", 0),
            (8, "", INVALID_REQUEST),
            (8, "2", INVALID_REQUEST),
            (16, "m", 0),
            (16, "", INVALID_REQUEST),
            (32, "g", 0),
            (32, "", INVALID_REQUEST),
            (0, "", INVALID_REQUEST),
        ] {
            let result = describe(&c, resource_type, name, None).await;
            assert_eq!(result.error_code, code, "{resource_type} {name}");
            let root = result.configs.iter().filter(|one| one.name == "root");
            let levels: Vec<_> = root.map(|one| (one.read_only, one.config_source)).collect();
            match (resource_type, code) {
                (8, 0) => assert_eq!(levels, [(true, 6)]),
                _ => assert_eq!(result.configs, []),
            }
            assert_eq!(said(result.error_message).is_empty(), code == 0);
        }
    });
    broker.stop();
}

/// A small request must not make a huge answer.
#[test]
fn given_a_topic_named_very_often_when_described_then_refused_and_memory_stays_bounded() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "t", 1, &[]).await;
        let mut request = description(TOPIC, "t", None);
        let one = request.resources[0].clone();
        request.resources = vec![one.clone(); 1_000];
        let answer = c.call(&request).await.expect("an answer");
        assert_eq!(answer.results.len(), 1_000);
        assert!(answer.results.iter().all(|result| result.error_code == 0));
        request.resources = vec![one; 50_000];
        let answer = c.call(&request).await.expect("an answer");
        assert_eq!(answer.results.len(), 50_000);
        for result in answer.results {
            assert_eq!(result.error_code, INVALID_REQUEST);
            assert!(said(result.error_message).contains("describe fewer"));
        }
    });
    let resident = broker.resident_bytes();
    assert!(resident < 512 << 20, "{resident} bytes");
    broker.stop();
}

#[test]
fn given_a_new_topic_then_its_answer_holds_the_settings_that_it_runs_with() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        let created = create_topic(&c, "t", 1, &[("retention.ms", "5000")]).await;
        let told = created.configs.expect("settings");
        let described = describe(&c, TOPIC, "t", None).await.configs;
        assert_eq!(told.len(), described.len());
        for (told, described) in told.iter().zip(&described) {
            assert_eq!(told.name, described.name);
            assert_eq!(told.value, described.value);
            assert_eq!(told.config_source, described.config_source);
            let own = told.name == "retention.ms";
            assert_eq!(told.config_source == 1, own, "{}", told.name);
        }
        for (name, value, says) in [
            ("retention.ms", "-2", "at least -1"),
            (
                "cleanup.policy",
                "compact,keep",
                "a list of compact, delete",
            ),
            ("nope", "1", "no setting"),
        ] {
            let refused = create_topic(&c, "bad", 1, &[(name, value)]).await;
            assert_eq!(refused.error_code, INVALID_CONFIG);
            let message = said(refused.error_message);
            assert!(message.contains(says), "{message}");
        }
    });
    broker.stop();
}

#[test]
fn given_a_topic_that_grows_then_the_new_partitions_take_data_and_survive_a_kill() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "g", 2, &[("max.message.bytes", "1000")]).await;
        produce_ok(&c, "g", 1, batch_of("old")).await;
        assert_eq!(
            produce(&c, "g", 2, -1, batch_of("x")).await.error_code,
            UNKNOWN_TOPIC
        );
        assert_eq!(grow(&c, "g", 9, None, true).await.0, 0);
        assert_eq!(partitions_of(&c, "g").await, 2);
        assert_eq!(grow(&c, "g", 9, None, false).await.0, 0);
        // The answer comes after every shard has them: no retry is needed.
        assert_eq!(partitions_of(&c, "g").await, 9);
        for partition in 2..9 {
            let value = format!("new-{partition}");
            assert_eq!(produce_ok(&c, "g", partition, batch_of(&value)).await, 0);
            let large = produce(&c, "g", partition, -1, batch_of(&"x".repeat(2_000))).await;
            assert_eq!(large.error_code, MESSAGE_TOO_LARGE);
        }
    });
    broker.kill();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        assert_eq!(partitions_of(&c, "g").await, 9);
        let old = fetch_all(&c, "g", 1, 0).await;
        assert_eq!(old, [(0, "old".to_owned())]);
        for partition in 2..9 {
            let records = fetch_all(&c, "g", partition, 0).await;
            assert_eq!(records, [(0, format!("new-{partition}"))]);
            assert_eq!(produce_ok(&c, "g", partition, batch_of("more")).await, 1);
        }
        // Once more, now that the topic was read back from the log.
        assert_eq!(grow(&c, "g", 10, Some(&[&[1]]), false).await.0, 0);
        assert_eq!(produce_ok(&c, "g", 9, batch_of("x")).await, 0);
    });
    broker.stop();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        assert_eq!(partitions_of(&c, "g").await, 10);
        assert_eq!(list_offset(&c, "g", 9, -1).await.offset, 1);
        assert_eq!(list_offset(&c, "g", 8, -1).await.offset, 2);
    });
    broker.stop();
}

#[test]
fn given_bad_counts_and_assignments_when_a_topic_is_to_grow_then_each_has_its_code() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "g", 3, &[]).await;
        for (topic, count, assignments, code) in [
            ("g", 3, None, INVALID_PARTITIONS),
            ("g", 2, None, INVALID_PARTITIONS),
            ("g", 0, None, INVALID_PARTITIONS),
            ("g", -1, None, INVALID_PARTITIONS),
            ("g", i32::MIN, None, INVALID_PARTITIONS),
            ("g", i32::MAX, None, POLICY_VIOLATION),
            ("g", 10_001, None, INVALID_PARTITIONS),
            ("g", 4, Some(&[][..]), INVALID_REPLICA_ASSIGNMENT),
            ("g", 5, Some(&[&[1][..]]), INVALID_REPLICA_ASSIGNMENT),
            ("g", 4, Some(&[&[][..]]), INVALID_REPLICA_ASSIGNMENT),
            ("g", 4, Some(&[&[2][..]]), INVALID_REPLICA_ASSIGNMENT),
            ("g", 4, Some(&[&[1, 1][..]]), INVALID_REPLICA_ASSIGNMENT),
            ("nope", 4, None, UNKNOWN_TOPIC),
            ("", 4, None, UNKNOWN_TOPIC),
        ] {
            for validate_only in [true, false] {
                let answer = grow(&c, topic, count, assignments, validate_only).await;
                assert_eq!(answer.0, code, "{topic} {count} {assignments:?}");
                assert!(!answer.1.is_empty());
            }
        }
        let more = |count| CreatePartitionsTopic {
            name: text("g"),
            count,
            assignments: None,
        };
        for version in ApiKey::CreatePartitions.decoded_versions() {
            let mut request = CreatePartitionsRequest {
                topics: vec![more(20), more(21)],
                timeout_ms: 30_000,
                validate_only: false,
            };
            let wait = c.start_as(&request, version).await.expect("sent");
            for result in wait.await.expect("an answer").results {
                assert_eq!(result.error_code, INVALID_REQUEST, "v{version}");
            }
            let count = 4 + i32::from(version);
            request.topics = vec![more(count)];
            let wait = c.start_as(&request, version).await.expect("sent");
            let result = wait.await.expect("an answer").results.remove(0);
            assert_eq!(result.error_code, 0, "v{version}");
            assert_eq!(partitions_of(&c, "g").await, count as usize);
        }
    });
    broker.stop();
}
