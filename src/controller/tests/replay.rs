//! For any run of requests: records, deltas and snapshots lead to the same image.

use super::*;
use crate::config::BrokerConfig;
use crate::controller::committer::Group;
use crate::controller::plan::{times_altered, times_found, times_grown, times_named, Plan};
use crate::controller::snapshot::{self, SnapshotError, SnapshotName};
use crate::controller::{
    AlterConfigOp, ConfigTarget, ConfigsAlteration, ConfigsChange, MorePartitions, TopicSelector,
};
use crate::metadata::records::{
    MetadataRecord, ProducerIdsRecord, RecordError, Replay, ReplayError,
};
use crate::metadata::Delta;
use crate::runtime::sim::World;
use bytes::Bytes;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Create(Vec<(&'static str, i32, bool)>),
    Delete(Vec<&'static str>),
    /// Topic, and how many partitions it is to have.
    Grow(Vec<(&'static str, i32)>),
    /// Topic, and its `segment.ms`, or none.
    Alter(Vec<(&'static str, Option<u8>)>),
    /// Broker, or all of them, and its `log.roll.ms`, or none.
    AlterBroker(Vec<(Option<i32>, Option<u8>)>),
    ProducerIds(i32),
}

/// Few names, so that they meet; some collide.
const NAMES: [&str; 6] = ["a", "b", "a.b", "a_b", "..", "__consumer_offsets"];

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::sample::select(&NAMES[..]);
    let topic = (name(), -1..8i32, any::<bool>());
    prop_oneof![
        3 => prop::collection::vec(topic, 1..4).prop_map(Step::Create),
        2 => prop::collection::vec(name(), 1..4).prop_map(Step::Delete),
        2 => prop::collection::vec((name(), -1..20i32), 1..3).prop_map(Step::Grow),
        2 => prop::collection::vec((name(), any::<Option<u8>>()), 1..3).prop_map(Step::Alter),
        2 => prop::collection::vec((prop::option::of(1..3i32), any::<Option<u8>>()), 1..3)
            .prop_map(Step::AlterBroker),
        1 => (1..2000i32).prop_map(Step::ProducerIds),
    ]
}

/// What a run of steps leaves behind.
struct Run {
    /// Last offset and encoded records of each batch.
    batches: Vec<(i64, Vec<Bytes>)>,
    deltas: Vec<Delta>,
    /// The image after each step, and the offset of the next record.
    images: Vec<(Image, i64)>,
}

fn run(steps: &[Step]) -> Run {
    let (limits, rules) = (limits(), BrokerConfig::default());
    let mut next_id = 1u128 << 70;
    let mut fresh_id = || {
        next_id += 1;
        Uuid::from_u128(next_id)
    };
    let mut image = image_of_brokers(&[]);
    let mut next_offset = 0;
    let mut run = Run {
        batches: vec![],
        deltas: vec![],
        images: vec![],
    };
    for (i, step) in steps.iter().enumerate() {
        let mut group = Group::new(image, next_offset);
        let mut plan = Plan::new(group.working.clone(), &limits, &rules);
        match step {
            _ if i == 0 => plan.register_broker(1, next_offset),
            Step::Create(topics) => {
                let topics: Vec<_> = topics
                    .iter()
                    .map(|(name, partitions, configured)| NewTopic {
                        num_partitions: *partitions,
                        configs: match configured {
                            true => vec![("segment.ms".into(), Some("100".into()))],
                            false => vec![],
                        },
                        ..new_topic(name)
                    })
                    .collect();
                plan.create_topics(&topics, &times_named(&topics), &mut fresh_id);
            }
            Step::Delete(names) => {
                let names: Vec<_> = names
                    .iter()
                    .map(|name| TopicSelector::Name(name.to_string()))
                    .collect();
                let found = plan.find_topics(&names);
                plan.delete_topics(&found, &times_found(&found));
            }
            Step::Grow(topics) => {
                let topics: Vec<_> = topics
                    .iter()
                    .map(|(name, count)| MorePartitions {
                        name: name.to_string(),
                        count: *count,
                        assignments: None,
                    })
                    .collect();
                plan.create_partitions(&topics, &times_grown(&topics));
            }
            Step::Alter(topics) => {
                let topics = topics.iter();
                alter(
                    &mut plan,
                    topics.map(|(name, ms)| {
                        (ConfigTarget::Topic(name.to_string()), "segment.ms", *ms)
                    }),
                );
            }
            Step::AlterBroker(brokers) => {
                let brokers = brokers.iter();
                alter(
                    &mut plan,
                    brokers.map(|(id, ms)| (ConfigTarget::Broker(*id), "log.roll.ms", *ms)),
                );
            }
            Step::ProducerIds(count) => {
                plan.allocate_producer_ids(*count).unwrap();
            }
        }
        run.deltas.extend(group.take(plan));
        for batch in &group.batches {
            let records: Vec<_> = batch.records.iter().map(|r| r.encode().unwrap()).collect();
            let last_offset = batch.base_offset + records.len() as i64 - 1;
            run.batches.push((last_offset, records));
        }
        (image, next_offset) = (group.working, group.next_offset);
        run.images.push((image.clone(), next_offset));
    }
    run
}

fn alter<'a>(
    plan: &mut Plan<'_>,
    changes: impl Iterator<Item = (ConfigTarget, &'a str, Option<u8>)>,
) {
    let alteration = |(target, name, ms): (_, &str, Option<u8>)| {
        let op = match ms {
            Some(ms) => AlterConfigOp::Set(Some(ms.to_string())),
            None => AlterConfigOp::Delete,
        };
        ConfigsAlteration {
            target,
            change: ConfigsChange::Incremental(vec![(name.into(), op)]),
        }
    };
    let alterations: Vec<_> = changes.map(alteration).collect();
    plan.alter_configs(&alterations, &times_altered(&alterations));
}

fn replay(start: Image, batches: &[(i64, Vec<Bytes>)]) -> Image {
    let mut replay = Replay::new(start);
    for (last_offset, records) in batches {
        let records = records
            .iter()
            .map(|value| MetadataRecord::decode(value.clone()).unwrap());
        replay.apply_batch(records, *last_offset).unwrap();
    }
    replay.into_image()
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    #[test]
    fn records_replayed_and_deltas_applied_give_the_image_decided_on(
        steps in prop::collection::vec(step(), 1..20)
    ) {
        let run = run(&steps);
        let (decided, _) = run.images.last().unwrap();
        let empty = image_of_brokers(&[]);

        prop_assert_eq!(&replay(empty.clone(), &run.batches), decided);

        // A shard's copy does not hear of producer ids that were allocated alone.
        let mut copy = empty;
        for delta in &run.deltas {
            prop_assert!(copy.is_followed_by(delta));
            copy = copy.apply(delta);
        }
        prop_assert_eq!(copy.version(), decided.version());
        prop_assert!(copy.topics().eq(decided.topics()));
        prop_assert!(copy.brokers().eq(decided.brokers()));
        prop_assert!(copy.all_broker_configs().eq(decided.all_broker_configs()));
        prop_assert_eq!(copy.partition_count(), decided.partition_count());
        for topic in decided.topics() {
            prop_assert_eq!(copy.topic_by_id(&topic.id), Some(topic));
        }
        for name in NAMES {
            prop_assert_eq!(copy.colliding_topic(name), decided.colliding_topic(name));
        }
    }

    #[test]
    fn a_snapshot_and_the_log_behind_it_give_what_the_whole_log_gives(
        steps in prop::collection::vec(step(), 1..20),
        at in any::<prop::sample::Index>(),
    ) {
        let run = run(&steps);
        let (decided, _) = run.images.last().unwrap();
        let (image, offset) = at.get(&run.images);
        let name = SnapshotName { offset: *offset, epoch: 1 };
        let world = World::new(1);
        let rt = world.node("n").rt();
        let restored = world.block_on(&rt, async {
            let content = snapshot::encode(&rt, name, image).await.unwrap();
            snapshot::decode(&rt, name, content.into(), image_of_brokers(&[])).await.unwrap()
        });
        prop_assert_eq!(&restored, image);
        let behind: Vec<_> = run.batches.iter().filter(|b| b.0 >= *offset).cloned().collect();
        prop_assert_eq!(&replay(restored, &behind), decided);
    }

    #[test]
    fn a_damaged_snapshot_is_told_as_damaged(
        steps in prop::collection::vec(step(), 1..6),
        at in any::<prop::sample::Index>(),
        bit in 0..8u32,
        cut in any::<bool>(),
    ) {
        let run = run(&steps);
        let (image, offset) = run.images.last().unwrap();
        let name = SnapshotName { offset: *offset, epoch: 1 };
        let world = World::new(1);
        let rt = world.node("n").rt();
        let read = world.block_on(&rt, async {
            let mut content = snapshot::encode(&rt, name, image).await.unwrap();
            let at = at.index(content.len());
            if cut { content.truncate(at) } else { content[at] ^= 1 << bit }
            snapshot::decode(&rt, name, content.into(), image_of_brokers(&[])).await
        });
        prop_assert!(matches!(read, Err(SnapshotError::Damaged { .. })), "{:?}", read.is_ok());
    }

    #[test]
    fn no_bytes_make_a_record_panic(value in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut framed = vec![64, value.first().map_or(1, |b| b % 8), 0];
        framed.extend_from_slice(&value);
        for bytes in [value, framed] {
            if let Ok(record) = MetadataRecord::decode(bytes.into()) {
                // Whatever it says, replay refuses or takes it.
                let mut replay = Replay::new(image_of_brokers(&[1]));
                let _ = replay.apply_batch([record], 5);
            }
        }
    }
}

#[test]
fn given_records_of_a_later_version_when_decoded_then_refused_with_what_to_do() {
    let record = MetadataRecord::ProducerIds(ProducerIdsRecord {
        next_producer_id: 9,
    });
    let value = record.encode().unwrap();
    assert_eq!(MetadataRecord::decode(value.clone()), Ok(record));
    let with = |at: usize, byte: u8| {
        let mut value = value.to_vec();
        value[at] = byte;
        MetadataRecord::decode(value.into()).unwrap_err()
    };
    assert_eq!(with(0, 1), RecordError::FrameVersion(1));
    assert_eq!(with(1, 99), RecordError::Type(99));
    let unknown = RecordError::Version {
        record_type: 5,
        version: 1,
    };
    assert_eq!(with(2, 1), unknown);
    assert!(unknown.to_string().contains("later version"));
    let mut longer = value.to_vec();
    longer.push(0);
    assert!(matches!(
        MetadataRecord::decode(longer.into()),
        Err(RecordError::Malformed(_))
    ));
}

#[test]
fn given_records_that_make_no_sense_when_replayed_then_refused() {
    let image = run(&[
        Step::ProducerIds(1),
        Step::ProducerIds(100),
        Step::Create(vec![("a", 2, false)]),
    ]);
    let decoded = |batch: &(i64, Vec<Bytes>)| -> Vec<MetadataRecord> {
        let records = batch.1.iter();
        records
            .map(|value| MetadataRecord::decode(value.clone()).unwrap())
            .collect()
    };
    let topic = decoded(image.batches.last().unwrap());
    let (before, _) = image.images[1].clone();
    let (after, _) = image.images[2].clone();
    let replayed = |start: &Image, records: Vec<MetadataRecord>| {
        Replay::new(start.clone())
            .apply_batch(records, 99)
            .unwrap_err()
    };
    assert!(matches!(
        replayed(&before, topic[..1].to_vec()),
        ReplayError::TopicWithoutPartitions { .. }
    ));
    assert!(matches!(
        replayed(&before, topic[1..].to_vec()),
        ReplayError::PartitionOutOfPlace { partition: 0, .. }
    ));
    let swapped = vec![topic[0].clone(), topic[2].clone(), topic[1].clone()];
    assert!(matches!(
        replayed(&before, swapped),
        ReplayError::PartitionOutOfPlace { partition: 1, .. }
    ));
    assert!(matches!(
        replayed(&after, topic.clone()),
        ReplayError::TopicExists { .. }
    ));
    // Partitions of a topic that exists: the next one, and no other.
    let grown = |index: i32| {
        let MetadataRecord::Partition(mut record) = topic[1].clone() else {
            unreachable!("a topic's record is followed by its partitions")
        };
        record.partition_id = index;
        MetadataRecord::Partition(record)
    };
    for (records, wrong) in [
        (vec![grown(1)], 1),
        (vec![grown(3)], 3),
        (vec![grown(2), grown(2)], 2),
        (vec![grown(2), grown(4)], 4),
    ] {
        assert!(matches!(
            replayed(&after, records),
            ReplayError::PartitionOutOfPlace { partition, .. } if partition == wrong
        ));
    }
    let mut replay = Replay::new(after.clone());
    replay.apply_batch([grown(2), grown(3)], 99).unwrap();
    let four = replay.into_image();
    assert_eq!(four.topic("a").unwrap().partitions.len(), 4);
    assert_eq!(four.partition_count(), after.partition_count() + 2);
    let fall = MetadataRecord::ProducerIds(ProducerIdsRecord {
        next_producer_id: 99,
    });
    assert_eq!(
        replayed(&after, vec![fall]),
        ReplayError::ProducerIdsFall { from: 100, to: 99 }
    );
}

#[test]
fn snapshot_names_are_kafkas() {
    let name = SnapshotName {
        offset: 1234,
        epoch: 1,
    };
    assert_eq!(name.file(), "00000000000000001234-0000000001.checkpoint");
    assert_eq!(SnapshotName::parse(&name.file()), Some(name));
    for other in [
        "leader-epoch-checkpoint",
        "1-1.checkpoint",
        "00000000000000001234-0000000001.checkpoint.tmp",
        "-0000000000000001234-0000000001.checkpoint",
        "00000000000000001234.log",
    ] {
        assert_eq!(SnapshotName::parse(other), None, "{other}");
    }
}
