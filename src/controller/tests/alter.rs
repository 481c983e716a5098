//! The rules of altering configs and of adding partitions, one by one.

use super::*;
use crate::config::{BrokerConfig, Sources};
use crate::controller::plan::{times_altered, times_grown, times_named, Plan};
use crate::controller::{
    AlterConfigOp, ConfigTarget, ConfigsAlteration, ConfigsChange, ControllerFault, MorePartitions,
};
use crate::protocol::ErrorCode;
use std::collections::BTreeMap;
use AlterConfigOp::{Append, Delete, Set, Subtract};

type Results = Vec<Result<(), ControllerFault>>;

/// An image of two brokers with these topics, of two partitions each.
fn image_of(topics: &[NewTopic]) -> Image {
    let (limits, rules) = (limits(), BrokerConfig::default());
    let mut plan = Plan::new(image_of_brokers(&[1, 2]), &limits, &rules);
    let mut next = 1000u128;
    let fresh = || {
        next += 1;
        Uuid::from_u128(next)
    };
    for created in plan.create_topics(topics, &times_named(topics), fresh) {
        created.unwrap();
    }
    plan.into_parts().1
}

/// One topic `t` with these configs.
fn image_with(configs: &[(&str, &str)]) -> Image {
    let configs = configs.iter();
    let configs = configs.map(|(name, value)| (name.to_string(), Some(value.to_string())));
    image_of(&[NewTopic {
        configs: configs.collect(),
        ..new_topic("t")
    }])
}

fn alter_as(
    rules: &BrokerConfig,
    image: &Image,
    alterations: &[ConfigsAlteration],
) -> (Results, Vec<Change>, Image) {
    let limits = limits();
    let mut plan = Plan::new(image.clone(), &limits, rules);
    let results = plan.alter_configs(alterations, &times_altered(alterations));
    let (changes, after) = plan.into_parts();
    (results, changes, after)
}

fn incremental(topic: &str, ops: &[(&str, AlterConfigOp)]) -> ConfigsAlteration {
    let ops = ops.iter();
    let ops = ops.map(|(name, op)| (name.to_string(), op.clone()));
    ConfigsAlteration {
        target: ConfigTarget::Topic(topic.into()),
        change: ConfigsChange::Incremental(ops.collect()),
    }
}

fn replace(configs: &[(&str, Option<&str>)]) -> ConfigsAlteration {
    let configs = configs.iter();
    let configs = configs.map(|(name, value)| (name.to_string(), value.map(str::to_owned)));
    ConfigsAlteration {
        target: ConfigTarget::Topic("t".into()),
        change: ConfigsChange::Replace(configs.collect()),
    }
}

fn set(value: &str) -> AlterConfigOp {
    Set(Some(value.into()))
}

/// What the topic `t` overrides after a change that succeeds.
fn altered(image: &Image, alteration: ConfigsAlteration) -> BTreeMap<String, String> {
    let (results, _, after) = alter_as(&BrokerConfig::default(), image, &[alteration]);
    assert_eq!(results, [Ok(())]);
    after.topic("t").unwrap().configs.clone()
}

/// Why a change is refused; nothing may change.
fn refused(image: &Image, alteration: ConfigsAlteration) -> (ErrorCode, String) {
    let (mut results, changes, _) = alter_as(&BrokerConfig::default(), image, &[alteration]);
    assert_eq!(changes, []);
    let fault = results.remove(0).unwrap_err();
    (fault.code, fault.message)
}

fn map(configs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let configs = configs.iter();
    configs
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

#[test]
fn given_ops_when_altered_one_by_one_then_the_others_stay() {
    let image = image_with(&[("segment.ms", "7"), ("retention.ms", "8")]);
    let ops = [
        ("segment.ms", set("9")),
        ("flush.ms", set("1")),
        ("retention.ms", Delete),
    ];
    let after = altered(&image, incremental("t", &ops));
    assert_eq!(after, map(&[("segment.ms", "9"), ("flush.ms", "1")]));
    let absent = altered(&image, incremental("t", &[("flush.ms", Delete)]));
    assert_eq!(absent, map(&[("segment.ms", "7"), ("retention.ms", "8")]));
}

#[test]
fn given_all_configs_when_replaced_then_what_is_not_named_is_gone() {
    let image = image_with(&[("segment.ms", "7"), ("retention.ms", "8")]);
    let after = altered(&image, replace(&[("segment.ms", Some("9"))]));
    assert_eq!(after, map(&[("segment.ms", "9")]));
    assert_eq!(altered(&image, replace(&[])), map(&[]));
}

#[test]
fn given_lists_when_appended_or_subtracted_then_the_default_is_what_they_start_from() {
    let append = |value: &str| Append(Some(value.into()));
    let subtract = |value: &str| Subtract(Some(value.into()));
    let name = "leader.replication.throttled.replicas";
    let policy = "cleanup.policy";
    for (before, name, op, after) in [
        (None, policy, append("delete"), "delete"),
        (None, policy, subtract("delete"), ""),
        (Some(""), policy, append("delete"), "delete"),
        (None, name, append("0:1,1:1"), "0:1,1:1"),
        (Some("0:1"), name, append("0:1,1:1,1:1"), "0:1,1:1"),
        (Some("0:1,1:1, 2:1"), name, subtract("1:1,3:1"), "0:1,2:1"),
    ] {
        let image = match before {
            Some(before) => image_with(&[(name, before)]),
            None => image_with(&[]),
        };
        let configs = altered(&image, incremental("t", &[(name, op.clone())]));
        assert_eq!(configs, map(&[(name, after)]), "{before:?} {op:?}");
    }
    let image = image_with(&[]);
    for (op, word) in [(append("1"), "APPEND"), (subtract("1"), "SUBTRACT")] {
        let (code, message) = refused(&image, incremental("t", &[("segment.ms", op)]));
        assert_eq!(code, ErrorCode::InvalidConfig);
        let expected = format!("Can't {word} to key segment.ms because its type is not LIST");
        assert!(message.contains(&expected), "{message}");
    }
    let compacted = incremental("t", &[(policy, append("compacted"))]);
    let (code, message) = refused(&image, compacted);
    assert_eq!(code, ErrorCode::InvalidConfig);
    assert!(message.contains("must be a list of"), "{message}");
}

#[test]
fn given_bad_configs_when_altered_then_40_and_the_sentence() {
    let image = image_with(&[("segment.ms", "7")]);
    for (name, value, says) in [
        ("segment.sm", "7", "did you mean 'segment.ms'"),
        ("", "7", "there is no setting ''"),
        ("segment.ms", "0", "at least 1"),
        ("max.message.bytes", "-1", "whole number"),
        ("remote.storage.enable", "true", "no tiered storage"),
        ("min.compaction.lag.ms", "x", "whole number"),
    ] {
        for alteration in [
            incremental("t", &[(name, set(value))]),
            replace(&[(name, Some(value))]),
        ] {
            let (code, message) = refused(&image, alteration);
            assert_eq!(code, ErrorCode::InvalidConfig, "{name}");
            assert!(message.contains(says), "{name}: {message}");
        }
    }
    let long = "0:1,".repeat(9000);
    let name = "follower.replication.throttled.replicas";
    let (code, message) = refused(&image, incremental("t", &[(name, set(&long))]));
    assert_eq!(code, ErrorCode::InvalidConfig);
    assert!(message.contains("at most 32767 bytes"), "{message}");
    assert!(message.len() < 1000, "{} bytes", message.len());
    let long = "x".repeat(40_000);
    let (_, message) = refused(&image, incremental("t", &[(&long, set("1"))]));
    assert!(message.len() < 1000, "{} bytes", message.len());
}

#[test]
fn given_names_twice_or_no_value_when_altered_then_42() {
    let image = image_with(&[("segment.ms", "7")]);
    for alteration in [
        incremental("t", &[("segment.ms", set("8")), ("segment.ms", Delete)]),
        replace(&[("segment.ms", Some("8")), ("segment.ms", Some("8"))]),
        incremental("t", &[("segment.ms", Set(None))]),
        incremental("t", &[("cleanup.policy", Append(None))]),
        replace(&[("segment.ms", None)]),
        incremental("", &[("segment.ms", set("8"))]),
    ] {
        let (code, message) = refused(&image, alteration);
        assert_eq!(code, ErrorCode::InvalidRequest, "{message}");
    }
    let twice = [
        incremental("t", &[("segment.ms", set("8"))]),
        incremental("t", &[("segment.ms", set("9"))]),
    ];
    let (results, changes, _) = alter_as(&BrokerConfig::default(), &image, &twice);
    for result in results {
        assert_eq!(result.unwrap_err().code, ErrorCode::InvalidRequest);
    }
    assert_eq!(changes, []);
}

#[test]
fn given_unknown_topics_when_altered_then_3_or_17_and_the_others_succeed() {
    let image = image_with(&[]);
    let alterations = [
        incremental("nope", &[("segment.ms", set("8"))]),
        incremental("sp ace", &[("segment.ms", set("8"))]),
        incremental("t", &[("segment.ms", set("8"))]),
    ];
    let (results, changes, after) = alter_as(&BrokerConfig::default(), &image, &alterations);
    let codes: Vec<_> = results
        .into_iter()
        .map(|result| result.map_err(|fault| fault.code))
        .collect();
    assert_eq!(
        codes,
        [
            Err(ErrorCode::UnknownTopicOrPartition),
            Err(ErrorCode::InvalidTopicException),
            Ok(())
        ]
    );
    assert_eq!(changes.len(), 1);
    assert_eq!(after.topic("t").unwrap().configs["segment.ms"], "8");
}

#[test]
fn given_what_is_there_already_when_altered_then_nothing_is_written() {
    let image = image_with(&[("segment.ms", "7")]);
    for alteration in [
        incremental("t", &[("segment.ms", set("7"))]),
        incremental("t", &[("flush.ms", Delete)]),
        incremental("t", &[]),
        replace(&[("segment.ms", Some("7"))]),
    ] {
        let (results, changes, _) = alter_as(&BrokerConfig::default(), &image, &[alteration]);
        assert_eq!((results, changes), (vec![Ok(())], vec![]));
    }
}

/// A stored config that is not valid any more can be deleted, and is named until then.
#[test]
fn given_a_config_that_is_not_valid_any_more_when_another_is_altered_then_40_until_it_is_deleted() {
    let mut image = image_with(&[]);
    image.apply_change(&Change::TopicConfigsChanged {
        id: image.topic("t").unwrap().id,
        configs: map(&[("old.setting", "1")]),
    });
    let (code, message) = refused(&image, incremental("t", &[("segment.ms", set("8"))]));
    assert_eq!(code, ErrorCode::InvalidConfig);
    assert!(message.contains("old.setting"), "{message}");
    let both = [("old.setting", Delete), ("segment.ms", set("8"))];
    let after = altered(&image, incremental("t", &both));
    assert_eq!(after, map(&[("segment.ms", "8")]));
}

#[test]
fn given_a_broker_with_its_own_default_when_a_list_is_appended_to_then_it_starts_from_that() {
    let mut sources = Sources::new();
    sources.set("log.cleanup.policy=").unwrap();
    let rules = sources.resolve().unwrap().config;
    let op = Append(Some("delete".into()));
    let alteration = incremental("t", &[("cleanup.policy", op)]);
    let (results, _, after) = alter_as(&rules, &image_with(&[]), &[alteration]);
    assert_eq!(results, [Ok(())]);
    assert_eq!(
        after.topic("t").unwrap().configs,
        map(&[("cleanup.policy", "delete")])
    );
}

fn of_broker(id: Option<i32>, ops: &[(&str, AlterConfigOp)]) -> ConfigsAlteration {
    ConfigsAlteration {
        target: ConfigTarget::Broker(id),
        ..incremental("", ops)
    }
}

const LIMIT: &str = "max.connections.per.ip";
const OVERRIDES: &str = "max.connections.per.ip.overrides";

/// Rows: what all brokers and broker 1 have, whose is altered and how, and what that one has
/// then, or the code and words of the refusal.
#[test]
fn given_settings_of_brokers_when_altered_then_each_layer_by_itself_and_both_together_hold() {
    type Layer<'a> = &'a [(&'a str, &'a str)];
    type Outcome<'a> = Result<Layer<'a>, (ErrorCode, &'a str)>;
    type Row<'a> = (
        Layer<'a>,
        Layer<'a>,
        Option<i32>,
        &'a [(&'a str, AlterConfigOp)],
        Outcome<'a>,
    );
    let refused = |says| Err((ErrorCode::InvalidRequest, says));
    let roll = "log.roll.ms";
    let rows: [Row<'_>; 14] = [
        (&[], &[], None, &[(roll, set("5"))], Ok(&[(roll, "5")])),
        (
            &[(roll, "5")],
            &[],
            Some(1),
            &[(roll, set("6"))],
            Ok(&[(roll, "6")]),
        ),
        (&[], &[(roll, "5")], Some(1), &[(roll, Delete)], Ok(&[])),
        (
            &[],
            &[],
            Some(3),
            &[(roll, set("5"))],
            refused("no broker 3"),
        ),
        (
            &[],
            &[],
            None,
            &[("node.id", set("5"))],
            refused("Cannot update"),
        ),
        (
            &[],
            &[],
            Some(1),
            &[("log.rol.ms", set("5"))],
            Err((ErrorCode::InvalidConfig, "did you mean 'log.roll.ms'")),
        ),
        // 0 needs a list of who may connect: in the same layer or in the one under it.
        (
            &[],
            &[],
            Some(1),
            &[(LIMIT, set("0"))],
            refused("who may connect"),
        ),
        (
            &[],
            &[(OVERRIDES, "::1:1")],
            None,
            &[(LIMIT, set("0"))],
            refused("who may connect"),
        ),
        (
            &[(OVERRIDES, "::1:1")],
            &[],
            Some(1),
            &[(LIMIT, set("0"))],
            Ok(&[(LIMIT, "0")]),
        ),
        (
            &[(OVERRIDES, "::1:1")],
            &[(LIMIT, "0")],
            None,
            &[(OVERRIDES, Delete)],
            refused("who may connect"),
        ),
        // What is not valid any more is named until it is deleted, in either layer first.
        (
            &[("old", "1")],
            &[],
            None,
            &[(roll, set("5"))],
            Err((ErrorCode::InvalidConfig, "old")),
        ),
        (
            &[("old", "1")],
            &[("old", "1")],
            None,
            &[("old", Delete)],
            Ok(&[]),
        ),
        (
            &[("old", "1")],
            &[("old", "1")],
            Some(1),
            &[("old", Delete)],
            Ok(&[]),
        ),
        (
            &[("old", "1")],
            &[(roll, "5")],
            Some(1),
            &[(roll, set("6"))],
            Ok(&[(roll, "6")]),
        ),
    ];
    for (cluster, own, target, ops, outcome) in rows {
        let mut image = image_of(&[]);
        for (broker, configs) in [(None, cluster), (Some(1), own)] {
            let configs = map(configs);
            image.apply_change(&Change::BrokerConfigsChanged { broker, configs });
        }
        let alterations = [of_broker(target, ops)];
        let (mut results, changes, after) =
            alter_as(&BrokerConfig::default(), &image, &alterations);
        let what = format!("{cluster:?} {own:?} {target:?} {ops:?}");
        match (results.remove(0), outcome) {
            (Ok(()), Ok(expected)) => {
                let now = after.broker_configs(target).cloned().unwrap_or_default();
                assert_eq!(now, map(expected), "{what}");
                assert_eq!(changes.len(), 1, "{what}");
            }
            (Err(fault), Err((code, says))) => {
                assert_eq!((fault.code, changes), (code, vec![]), "{what}");
                assert!(fault.message.contains(says), "{what}: {}", fault.message);
            }
            (found, expected) => panic!("{what}: {found:?}, not {expected:?}"),
        }
    }
}

fn more(name: &str, count: i32) -> MorePartitions {
    MorePartitions {
        name: name.into(),
        count,
        assignments: None,
    }
}

fn assigned(count: i32, assignments: &[&[i32]]) -> MorePartitions {
    let assignments = assignments.iter().map(|replicas| replicas.to_vec());
    MorePartitions {
        assignments: Some(assignments.collect()),
        ..more("t", count)
    }
}

fn grow(image: &Image, topics: &[MorePartitions]) -> (Results, Image) {
    let (limits, rules) = (limits(), BrokerConfig::default());
    let mut plan = Plan::new(image.clone(), &limits, &rules);
    let results = plan.create_partitions(topics, &times_grown(topics));
    let (changes, after) = plan.into_parts();
    assert_eq!(changes.len(), results.iter().flatten().count());
    (results, after)
}

fn code_of(image: &Image, more: MorePartitions) -> (ErrorCode, String) {
    let (mut results, after) = grow(image, &[more]);
    assert_eq!(&after, image);
    let fault = results.remove(0).unwrap_err();
    (fault.code, fault.message)
}

#[test]
fn given_a_larger_count_when_grown_then_the_new_partitions_follow_the_old() {
    let image = image_with(&[("segment.ms", "7")]);
    let (results, after) = grow(&image, &[more("t", 5)]);
    assert_eq!(results, [Ok(())]);
    let (before, topic) = (image.topic("t").unwrap(), after.topic("t").unwrap());
    assert_eq!(topic.partitions[..2], before.partitions[..]);
    assert_eq!((topic.id, &topic.configs), (before.id, &before.configs));
    for (i, partition) in topic.partitions.iter().enumerate() {
        assert_eq!(partition.index, i as i32);
        assert_eq!(
            partition.replicas.len(),
            before.partitions[0].replicas.len()
        );
        assert_eq!(partition.leader, partition.replicas[0]);
        assert_eq!(partition.isr, partition.replicas);
    }
    assert_eq!(after.topic_by_id(&topic.id), Some(topic));
    assert_eq!(after.partition_count(), 5);
}

#[test]
fn given_counts_that_do_not_grow_or_pass_a_limit_then_37() {
    let image = image_with(&[]);
    for (count, says) in [
        (2, "already has 2 partition(s)"),
        (1, "1 would not be an increase"),
        (0, "would not be an increase"),
        (-1, "would not be an increase"),
        (i32::MIN, "would not be an increase"),
        (51, "at most 50 partitions"),
        (i32::MAX, "at most 50 partitions"),
    ] {
        let (code, message) = code_of(&image, more("t", count));
        assert_eq!(code, ErrorCode::InvalidPartitions, "{count}");
        assert!(message.contains(says), "{message}");
    }
    // 100 in all.
    let image = image_of(&[new_topic("t"), new_topic("u"), new_topic("v")]);
    let (results, after) = grow(&image, &[more("t", 50), more("u", 48), more("v", 3)]);
    assert_eq!(results[..2], [Ok(()), Ok(())]);
    let fault = results[2].as_ref().unwrap_err();
    assert_eq!(fault.code, ErrorCode::InvalidPartitions);
    assert!(fault.message.contains("limit of 100"), "{}", fault.message);
    assert_eq!(after.partition_count(), 100);
}

#[test]
fn given_assignments_when_grown_then_they_are_checked_as_those_of_a_new_topic() {
    let image = image_with(&[]);
    for wrong in [
        assigned(4, &[]),
        assigned(4, &[&[1]]),
        assigned(3, &[&[1], &[2]]),
        assigned(3, &[&[]]),
        assigned(3, &[&[1, 2]]),
        assigned(3, &[&[3]]),
        assigned(3, &[&[1, 1]]),
    ] {
        let (code, message) = code_of(&image, wrong.clone());
        assert_eq!(
            code,
            ErrorCode::InvalidReplicaAssignment,
            "{wrong:?}: {message}"
        );
    }
    let (results, after) = grow(&image, &[assigned(4, &[&[2], &[2]])]);
    assert_eq!(results, [Ok(())]);
    let topic = after.topic("t").unwrap();
    assert_eq!(
        (topic.partitions[2].leader, topic.partitions[3].leader),
        (2, 2)
    );
}

#[test]
fn given_unknown_topics_or_a_name_twice_when_grown_then_3_or_42_and_the_others_stand() {
    let image = image_of(&[new_topic("t"), new_topic("u")]);
    let topics = [more("t", 3), more("nope", 3), more("u", 3), more("t", 4)];
    let (results, after) = grow(&image, &topics);
    let codes: Vec<_> = results
        .into_iter()
        .map(|result| result.map_err(|fault| fault.code))
        .collect();
    assert_eq!(
        codes,
        [
            Err(ErrorCode::InvalidRequest),
            Err(ErrorCode::UnknownTopicOrPartition),
            Ok(()),
            Err(ErrorCode::InvalidRequest),
        ]
    );
    assert_eq!(after.topic("t").unwrap().partitions.len(), 2);
    assert_eq!(after.topic("u").unwrap().partitions.len(), 3);
}
