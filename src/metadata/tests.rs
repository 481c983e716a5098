use super::*;
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::sync::Arc;

fn topic(name: &str, id: u128, partitions: i32) -> Arc<TopicImage> {
    let partition = |index| PartitionImage {
        index,
        replicas: smallvec![1],
        isr: smallvec![1],
        leader: 1,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: Default::default(),
    };
    Arc::new(TopicImage {
        id: Uuid::from_u128(id),
        name: name.into(),
        partitions: (0..partitions).map(partition).collect(),
        configs: BTreeMap::new(),
    })
}

fn created(image: &Image, topics: &[Arc<TopicImage>]) -> Image {
    image.apply(&Delta {
        previous: image.version(),
        offset: image.version() + 10,
        changes: topics.iter().cloned().map(Change::TopicCreated).collect(),
    })
}

fn empty() -> Image {
    Image::empty(Uuid::from_u128(7), 1)
}

#[test]
fn given_topics_when_looked_up_then_found_by_name_and_id_and_listed_in_name_order() {
    let image = created(
        &empty(),
        &[topic("b", 20, 2), topic("a", 10, 3), topic("c", 30, 1)],
    );
    assert_eq!(image.topic("a").unwrap().id, Uuid::from_u128(10));
    assert_eq!(&*image.topic_by_id(&Uuid::from_u128(20)).unwrap().name, "b");
    let names: Vec<&str> = image.topics().map(|t| &*t.name).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let from: Vec<&str> = image.topics_from("aa").map(|t| &*t.name).collect();
    assert_eq!(from, ["b", "c"]);
    assert_eq!((image.topic_count(), image.partition_count()), (3, 6));
    assert_eq!(image.version(), 9);
}

#[test]
fn given_an_image_when_a_delta_is_applied_to_its_copy_then_the_image_itself_is_unchanged() {
    let before = created(&empty(), &[topic("a", 10, 3)]);
    let after = before.apply(&Delta {
        previous: before.version(),
        offset: 50,
        changes: vec![
            Change::TopicDeleted {
                id: Uuid::from_u128(10),
                name: "a".into(),
            },
            Change::TopicCreated(topic("a", 11, 1)),
            Change::TopicConfigsChanged {
                id: Uuid::from_u128(11),
                configs: BTreeMap::from([("segment.ms".into(), "5000".into())]),
            },
        ],
    });
    assert_eq!(before.topic("a").unwrap().id, Uuid::from_u128(10));
    assert_eq!(after.topic("a").unwrap().id, Uuid::from_u128(11));
    assert_eq!(after.topic("a"), after.topic_by_id(&Uuid::from_u128(11)));
    assert_eq!(after.topic("a").unwrap().configs["segment.ms"], "5000");
    assert!(after.topic_by_id(&Uuid::from_u128(10)).is_none());
    assert_eq!((before.partition_count(), after.partition_count()), (3, 1));
}

#[test]
#[should_panic(expected = "does not follow version")]
fn given_a_delta_of_another_version_when_applied_then_it_panics() {
    let image = created(&empty(), &[topic("a", 10, 1)]);
    image.apply(&Delta {
        previous: image.version() - 1,
        offset: 50,
        changes: vec![],
    });
}

#[test]
fn given_names_with_dots_and_underscores_when_asked_then_only_other_topics_collide() {
    let image = created(&empty(), &[topic("a.b_c", 10, 1), topic("plain", 11, 1)]);
    assert_eq!(image.colliding_topic("a_b_c").map(|n| &**n), Some("a.b_c"));
    assert_eq!(image.colliding_topic("a.b_c"), None);
    assert_eq!(image.colliding_topic("plain"), None);
    assert_eq!(image.colliding_topic("a-b-c"), None);
    let gone = image.apply(&Delta {
        previous: image.version(),
        offset: 50,
        changes: vec![Change::TopicDeleted {
            id: Uuid::from_u128(10),
            name: "a.b_c".into(),
        }],
    });
    assert_eq!(gone.colliding_topic("a_b_c"), None);
}

#[test]
fn an_image_can_be_sent_to_every_shard() {
    fn is_send_and_sync<T: Send + Sync + Clone>() {}
    is_send_and_sync::<Image>();
    is_send_and_sync::<Delta>();
}

#[test]
fn topic_names_follow_kafkas_rule() {
    let longest = "x".repeat(249);
    for good in [
        "a",
        "A.b_c-9",
        "...",
        "__consumer_offsets",
        longest.as_str(),
    ] {
        assert_eq!(validate_topic_name(good), Ok(()), "{good}");
    }
    let too_long = "x".repeat(250);
    for bad in [
        "",
        ".",
        "..",
        "a b",
        "a/b",
        "a\0",
        "é",
        "a:b",
        too_long.as_str(),
    ] {
        assert!(validate_topic_name(bad).is_err(), "{bad}");
    }
}

#[test]
fn ids_are_version_4_and_never_reserved() {
    let TopicId(id) = TopicId::from_random(0x1234_5678_9abc_def0, u64::MAX).unwrap();
    assert_eq!(id.get_version_num(), 4);
    assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
    // Base64 text that begins with a dash.
    assert_eq!(TopicId::from_random(0xF800_0000_0000_0000, 1), None);
    assert!(TopicId(Uuid::nil()).is_reserved());
    assert!(TopicId(Uuid::from_u128(1)).is_reserved());
}

#[test]
fn the_owner_shard_is_low_bytes_plus_partition_mod_shards() {
    let id = Uuid::from_u64_pair(99, 10);
    assert_eq!(owner_shard(&id, 0, 4), 2);
    assert_eq!(owner_shard(&id, 3, 4), 1);
    // The sum does not wrap: 2^64 - 1 + 1 is 1 mod 3.
    let id = Uuid::from_u64_pair(0, u64::MAX);
    assert_eq!(owner_shard(&id, 0, 3), 0);
    assert_eq!(owner_shard(&id, 1, 3), 1);
}

#[test]
fn given_changed_broker_settings_when_replayed_then_the_same_and_gone_once_they_are_empty() {
    let configs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs.map(|(n, v)| (n.to_string(), v.to_string())).collect()
    };
    let changed = |broker, pairs| Change::BrokerConfigsChanged {
        broker,
        configs: configs(pairs),
    };
    let image = empty().apply(&Delta {
        previous: -1,
        offset: 5,
        changes: vec![
            changed(None, &[("log.retention.ms", "1"), ("max.connections", "2")]),
            changed(Some(1), &[("log.retention.ms", "3")]),
            changed(Some(2), &[("log.retention.ms", "4")]),
            changed(Some(2), &[]),
        ],
    });
    assert_eq!(image.broker_configs(None).map(BTreeMap::len), Some(2));
    assert_eq!(
        image.broker_configs(Some(1)).unwrap()["log.retention.ms"],
        "3"
    );
    assert_eq!(image.broker_configs(Some(2)), None);
    let mut replay = records::Replay::new(empty());
    for record in records::records_of_image(&image) {
        let bytes = record.encode().unwrap();
        let record = records::MetadataRecord::decode(bytes).unwrap();
        replay.push(record).unwrap();
    }
    assert_eq!(replay.finish(5).unwrap(), image);
}
