//! The rules, one by one.

use super::*;
use crate::config::BrokerConfig;
use crate::controller::plan::{times_found, times_grown, times_named, Plan};
use crate::controller::{ControllerFault, CreatedTopic, MorePartitions, TopicSelector};
use crate::metadata::OFFSETS_TOPIC_NAME;
use crate::protocol::ErrorCode;

fn ids() -> impl FnMut() -> Uuid {
    let mut next = 1000u128;
    move || {
        next += 1;
        Uuid::from_u128(next)
    }
}

fn create(
    image: &Image,
    topics: &[NewTopic],
) -> (Vec<Result<CreatedTopic, ControllerFault>>, Image) {
    let (limits, rules) = (limits(), BrokerConfig::default());
    let mut plan = Plan::new(image.clone(), &limits, &rules);
    let results = plan.create_topics(topics, &times_named(topics), ids());
    let (changes, after) = plan.into_parts();
    assert_eq!(changes.len(), results.iter().flatten().count());
    (results, after)
}

fn create_all(
    plan: &mut Plan<'_>,
    topics: &[NewTopic],
    fresh_id: impl FnMut() -> Uuid,
) -> Vec<Result<CreatedTopic, ControllerFault>> {
    plan.create_topics(topics, &times_named(topics), fresh_id)
}

fn delete_all(
    plan: &mut Plan<'_>,
    topics: &[TopicSelector],
) -> Vec<Result<(Uuid, String), ControllerFault>> {
    let found = plan.find_topics(topics);
    plan.delete_topics(&found, &times_found(&found))
}

/// The code and message that one topic is refused with; the image must not change.
fn refusal(image: &Image, topic: NewTopic) -> (ErrorCode, String) {
    let (mut results, after) = create(image, &[topic]);
    assert_eq!(&after, image);
    let fault = results.remove(0).unwrap_err();
    (fault.code, fault.message)
}

#[test]
fn given_defaults_when_created_then_the_brokers_settings_count_and_leaders_go_round() {
    let image = image_of_brokers(&[1, 2, 3]);
    let mut topic = new_topic("t");
    topic.num_partitions = 4;
    topic.replication_factor = 2;
    let (results, after) = create(&image, &[new_topic("defaults"), topic]);
    let defaults = results[0].as_ref().unwrap();
    assert_eq!(
        (defaults.num_partitions, defaults.replication_factor),
        (2, 1)
    );
    let created = after.topic("t").unwrap();
    assert_eq!(created.id, results[1].as_ref().unwrap().id);
    let leaders: Vec<i32> = created.partitions.iter().map(|p| p.leader).collect();
    assert_eq!(leaders, [3, 1, 2, 3]);
    for (i, partition) in created.partitions.iter().enumerate() {
        assert_eq!(partition.index, i as i32);
        assert_eq!(partition.replicas.len(), 2);
        assert_ne!(partition.replicas[0], partition.replicas[1]);
        assert_eq!(partition.isr, partition.replicas);
        assert_eq!(partition.leader, partition.replicas[0]);
    }
}

#[test]
fn given_bad_names_when_created_then_17_or_36() {
    let (_, image) = create(&image_of_brokers(&[1]), &[new_topic("a.b")]);
    let code = |name: &str| refusal(&image, new_topic(name)).0;
    assert_eq!(code(""), ErrorCode::InvalidTopicException);
    assert_eq!(code(".."), ErrorCode::InvalidTopicException);
    assert_eq!(code("sp ace"), ErrorCode::InvalidTopicException);
    assert_eq!(code("__cluster_metadata"), ErrorCode::InvalidRequest);
    assert_eq!(code("a.b"), ErrorCode::TopicAlreadyExists);
    let (code, message) = refusal(&image, new_topic("a_b"));
    assert_eq!(code, ErrorCode::InvalidTopicException);
    assert!(
        message.contains("collides with existing topic: a.b"),
        "{message}"
    );
}

#[test]
fn given_two_new_names_that_collide_in_one_request_when_created_then_the_second_is_refused() {
    let (results, _) = create(
        &image_of_brokers(&[1]),
        &[new_topic("x_y"), new_topic("x.y")],
    );
    assert!(results[0].is_ok());
    assert_eq!(
        results[1].as_ref().unwrap_err().code,
        ErrorCode::InvalidTopicException
    );
}

#[test]
fn given_a_name_twice_in_a_request_when_created_then_42_for_both_and_the_others_stand() {
    let topics = [new_topic("a"), new_topic("b"), new_topic("a")];
    let (results, after) = create(&image_of_brokers(&[1]), &topics);
    for i in [0, 2] {
        let fault = results[i].as_ref().unwrap_err();
        assert_eq!(fault.code, ErrorCode::InvalidRequest);
    }
    assert!(results[1].is_ok());
    assert!(after.topic("a").is_none() && after.topic("b").is_some());
}

#[test]
fn given_bad_counts_when_created_then_37_and_38_with_the_limit_in_the_message() {
    let image = image_of_brokers(&[1]);
    let with = |partitions, factor| NewTopic {
        num_partitions: partitions,
        replication_factor: factor,
        ..new_topic("t")
    };
    for partitions in [0, -2, i32::MIN] {
        let (code, _) = refusal(&image, with(partitions, 1));
        assert_eq!(code, ErrorCode::InvalidPartitions);
    }
    let (code, message) = refusal(&image, with(51, 1));
    assert_eq!(code, ErrorCode::InvalidPartitions);
    assert!(message.contains("50"), "{message}");
    for factor in [0, -2, i16::MIN] {
        let (code, _) = refusal(&image, with(1, factor));
        assert_eq!(code, ErrorCode::InvalidReplicationFactor);
    }
    let (code, message) = refusal(&image, with(1, 2));
    assert_eq!(code, ErrorCode::InvalidReplicationFactor);
    assert!(message.contains("only 1 broker(s)"), "{message}");
    assert_eq!(
        refusal(&image, with(i32::MAX, 1)).0,
        ErrorCode::InvalidPartitions
    );
}

#[test]
fn given_the_total_limit_when_it_would_be_passed_then_37_and_room_returns_with_a_delete() {
    let of = |name: &str| NewTopic {
        num_partitions: 50,
        ..new_topic(name)
    };
    let (results, image) = create(&image_of_brokers(&[1]), &[of("a"), of("b"), of("c")]);
    assert!(results[0].is_ok() && results[1].is_ok());
    let fault = results[2].as_ref().unwrap_err();
    assert_eq!(fault.code, ErrorCode::InvalidPartitions);
    assert!(fault.message.contains("limit of 100"), "{}", fault.message);
    let (limits, rules) = (limits(), BrokerConfig::default());
    let mut plan = Plan::new(image, &limits, &rules);
    assert!(delete_all(&mut plan, &[TopicSelector::Name("a".into())])[0].is_ok());
    assert!(create_all(&mut plan, &[of("c")], ids())[0].is_ok());
}

#[test]
fn given_assignments_when_wrong_then_39_or_42() {
    let image = image_of_brokers(&[1, 2]);
    let with = |assignments: &[(i32, &[i32])]| NewTopic {
        assignments: assignments
            .iter()
            .map(|(index, replicas)| (*index, replicas.to_vec()))
            .collect(),
        ..new_topic("t")
    };
    for wrong in [
        &[(1, &[1][..])][..],
        &[(-1, &[1]), (0, &[1])],
        &[(0, &[1]), (2, &[1])],
        &[(0, &[1]), (0, &[2])],
        &[(0, &[])],
        &[(0, &[1, 1])],
        &[(0, &[3])],
        &[(0, &[1, 2]), (1, &[1])],
    ] {
        let (code, message) = refusal(&image, with(wrong));
        assert_eq!(
            code,
            ErrorCode::InvalidReplicaAssignment,
            "{wrong:?}: {message}"
        );
    }
    let mut both = with(&[(0, &[1])]);
    both.num_partitions = 1;
    assert_eq!(refusal(&image, both).0, ErrorCode::InvalidRequest);
    let mut both = with(&[(0, &[1])]);
    both.replication_factor = 1;
    assert_eq!(refusal(&image, both).0, ErrorCode::InvalidRequest);

    // Right, though not in order.
    let (results, after) = create(&image, &[with(&[(1, &[1, 2]), (0, &[2, 1])])]);
    assert_eq!(results[0].as_ref().unwrap().replication_factor, 2);
    let leaders: Vec<i32> = after
        .topic("t")
        .unwrap()
        .partitions
        .iter()
        .map(|p| p.leader)
        .collect();
    assert_eq!(leaders, [2, 1]);
}

#[test]
fn given_configs_when_unknown_or_null_then_40_and_else_they_are_kept() {
    let image = image_of_brokers(&[1]);
    let with = |name: &str, value: Option<&str>| NewTopic {
        configs: vec![(name.into(), value.map(str::to_owned))],
        ..new_topic("t")
    };
    let (code, message) = refusal(&image, with("segment.sm", Some("1")));
    assert_eq!(code, ErrorCode::InvalidConfig);
    assert!(message.contains("segment.sm"), "{message}");
    assert_eq!(
        refusal(&image, with("segment.ms", None)).0,
        ErrorCode::InvalidConfig
    );
    let (_, after) = create(&image, &[with("segment.ms", Some("7"))]);
    assert_eq!(after.topic("t").unwrap().configs["segment.ms"], "7");
}

#[test]
fn given_selectors_when_deleted_then_3_and_100_for_unknown_ones_and_42_for_doubles() {
    let (results, image) = create(&image_of_brokers(&[1]), &[new_topic("a"), new_topic("b")]);
    let id_of_a = results[0].as_ref().unwrap().id;
    let (limits, rules) = (limits(), BrokerConfig::default());
    let mut plan = Plan::new(image, &limits, &rules);
    let selectors = [
        TopicSelector::Name("a".into()),
        TopicSelector::Id(id_of_a),
        TopicSelector::Name("nope".into()),
        TopicSelector::Id(Uuid::from_u128(5)),
        TopicSelector::Name("b".into()),
    ];
    let results = delete_all(&mut plan, &selectors);
    let codes: Vec<_> = results
        .iter()
        .map(|r| r.as_ref().map_err(|f| f.code))
        .collect();
    assert_eq!(codes[0], Err(ErrorCode::InvalidRequest));
    assert_eq!(codes[1], Err(ErrorCode::InvalidRequest));
    assert_eq!(codes[2], Err(ErrorCode::UnknownTopicOrPartition));
    assert_eq!(codes[3], Err(ErrorCode::UnknownTopicId));
    assert_eq!(codes[4].map(|(_, name)| name.as_str()), Ok("b"));
    let (_, after) = plan.into_parts();
    assert!(after.topic("a").is_some() && after.topic("b").is_none());
}

#[test]
fn given_producer_id_counts_when_allocated_then_ranges_follow_each_other() {
    let (limits, rules) = (limits(), BrokerConfig::default());
    let mut plan = Plan::new(image_of_brokers(&[1]), &limits, &rules);
    assert_eq!(plan.allocate_producer_ids(1000).unwrap(), 0..1000);
    assert_eq!(plan.allocate_producer_ids(1).unwrap(), 1000..1001);
    for count in [0, -1, i32::MIN] {
        let fault = plan.allocate_producer_ids(count).unwrap_err();
        assert_eq!(fault.code, ErrorCode::InvalidRequest);
    }
    assert_eq!(plan.into_parts().1.producer_ids_next(), 1001);
}

#[test]
fn given_ids_that_are_taken_or_reserved_when_created_then_another_is_drawn() {
    let (results, image) = create(&image_of_brokers(&[1]), &[new_topic("a")]);
    let taken = results[0].as_ref().unwrap().id;
    let fresh = Uuid::from_u128(77);
    let mut source = [taken, Uuid::nil(), Uuid::from_u128(1), fresh].into_iter();
    let (limits, rules) = (limits(), BrokerConfig::default());
    let mut plan = Plan::new(image, &limits, &rules);
    let results = create_all(&mut plan, &[new_topic("b")], || source.next().unwrap());
    assert_eq!(results[0].as_ref().unwrap().id, fresh);
}

#[test]
fn given_the_topic_of_committed_offsets_then_it_may_be_compacted_and_never_grows() {
    let image = image_of_brokers(&[1]);
    let compacted = |name: &str| NewTopic {
        configs: vec![("cleanup.policy".into(), Some("compact".into()))],
        ..new_topic(name)
    };
    let (results, after) = create(&image, &[compacted(OFFSETS_TOPIC_NAME)]);
    assert!(results[0].is_ok(), "{results:?}");
    let (limits, rules) = (limits(), BrokerConfig::default());
    let mut plan = Plan::new(after, &limits, &rules);
    let more = [MorePartitions {
        name: OFFSETS_TOPIC_NAME.into(),
        count: 100,
        assignments: None,
    }];
    let results = plan.create_partitions(&more, &times_grown(&more));
    let fault = results[0].as_ref().unwrap_err();
    assert_eq!(fault.code, ErrorCode::InvalidPartitions);
}
