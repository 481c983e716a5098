//! Power cuts, damaged snapshots, full and failing disks, in the simulator.

use super::*;
use crate::controller::options::SnapshotInterval;
use crate::controller::snapshot::{SnapshotName, SnapshotStore};
use crate::controller::{
    AlterConfigOp, ConfigTarget, ConfigsAlteration, ConfigsChange, Controller, ControllerError,
    ControllerFault, ControllerOptions, MorePartitions, TopicSelector,
};
use crate::protocol::ErrorCode;
use crate::runtime::sim::{PowerCut, SimNode, World};
use crate::runtime::{Queue, Rt, SyncSite};
use crate::storage::{Storage, StorageLimits};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

const DATA_DIR: &str = "/data";
/// Work of a round, at most: with snapshots, and before the first.
const LONG: Duration = Duration::from_millis(400);
const SHORT: Duration = Duration::from_millis(40);

fn storage(rt: &Rt) -> Storage {
    Storage::new(
        rt.clone(),
        StorageLimits {
            cache_bytes: 4 << 20,
            cold_read_bytes: 4 << 20,
            write_bytes: 4 << 20,
            flushes_in_flight_max: 4,
            open_segments_max: 4,
        },
    )
}

fn options(clean_at: Option<i64>) -> ControllerOptions {
    ControllerOptions {
        node_id: 1,
        cluster_id: CLUSTER,
        broker_config: Default::default(),
        max_partitions_per_topic: 50,
        max_partitions: 1000,
        clean: clean_at.is_some(),
        recovery_point: clean_at,
    }
}

async fn open(rt: &Rt, clean_at: Option<i64>) -> Result<(Controller, Image), ControllerError> {
    // Snapshots often, so that every run meets some.
    let interval = SnapshotInterval {
        records: 40,
        bytes: 1 << 20,
    };
    let dir = rt.dir(DATA_DIR);
    Controller::open_with(rt, &storage(rt), dir, options(clean_at), interval).await
}

/// What one client knows of one of its names.
#[derive(Debug, Clone, PartialEq)]
enum Known {
    /// It is so.
    Settled(Option<Topic>),
    /// A change was not answered: it is as before or as after, and nothing in between.
    Unsettled {
        before: Option<Topic>,
        after: Option<Topic>,
    },
}

/// A topic as a client knows it.
#[derive(Debug, Clone, PartialEq)]
struct Topic {
    /// `None`: its creation was not answered.
    id: Option<Uuid>,
    partitions: i32,
    segment_ms: String,
}

impl Topic {
    fn of(image: &Image, name: &str) -> Option<Topic> {
        let topic = image.topic(name)?;
        assert_eq!(topic.configs.len(), 1, "{name}");
        Some(Topic {
            id: Some(topic.id),
            partitions: topic.partitions.len() as i32,
            segment_ms: topic.configs["segment.ms"].clone(),
        })
    }
}

/// Whether a topic is what a client knows.
fn fits(known: &Option<Topic>, found: &Option<Topic>) -> bool {
    match (known, found) {
        (None, None) => true,
        (Some(known), Some(found)) => {
            let id = known.id.or(found.id);
            Topic {
                id,
                ..known.clone()
            } == *found
        }
        _ => false,
    }
}

/// What all clients know.
#[derive(Default)]
struct Book {
    topics: RefCell<BTreeMap<String, Known>>,
    producer_ids: RefCell<Vec<Range<i64>>>,
    /// What each client's setting of the broker may be: two values while a change is not answered.
    settings: RefCell<BTreeMap<&'static str, Vec<Option<String>>>>,
    answers: Cell<usize>,
}

impl Book {
    fn of(&self, name: &str) -> Known {
        let topics = self.topics.borrow();
        topics.get(name).cloned().unwrap_or(Known::Settled(None))
    }

    fn note(&self, name: &str, known: Known) {
        self.topics.borrow_mut().insert(name.into(), known);
    }

    /// Holds the image against what was answered, and settles what was not.
    fn check(&self, image: &Image, context: &str) {
        for (name, known) in self.topics.borrow_mut().iter_mut() {
            let found = Topic::of(image, name);
            let possible = match known {
                Known::Settled(topic) => fits(topic, &found),
                Known::Unsettled { before, after } => fits(before, &found) || fits(after, &found),
            };
            assert!(possible, "{name} is {found:?} and not {known:?}, {context}");
            *known = Known::Settled(found);
        }
        let book = self.topics.borrow();
        for topic in image.topics() {
            assert!(book.contains_key(&*topic.name), "{}, {context}", topic.name);
        }
        let settings = image.broker_configs(Some(1));
        for (name, possible) in self.settings.borrow_mut().iter_mut() {
            let found = settings.and_then(|all| all.get(*name)).cloned();
            assert!(
                possible.contains(&found),
                "{name} is {found:?} and not of {possible:?}, {context}"
            );
            *possible = vec![found];
        }
        let mut ranges = self.producer_ids.borrow().clone();
        ranges.sort_by_key(|range| range.start);
        for pair in ranges.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?} overlap, {context}");
        }
        if let Some(last) = ranges.last() {
            assert!(image.producer_ids_next() >= last.end, "{context}");
        }
    }
}

/// Creates, alters, grows, deletes and allocates for ever, writing down what is asked
/// before and what is answered after. Names are the client's own.
async fn client(world: Rc<World>, controller: Controller, book: Rc<Book>, number: usize) {
    loop {
        let name = format!("client.{number}.{}", world.random_below(6));
        if world.random_below(5) == 0 {
            let count = 1 + world.random_below(1000) as i32;
            if let Ok(range) = controller.allocate_producer_ids(count).await {
                assert_eq!(range.end - range.start, count as i64);
                book.producer_ids.borrow_mut().push(range);
            }
            book.answers.set(book.answers.get() + 1);
            continue;
        }
        if world.random_below(5) == 0 {
            alter_setting(&world, &controller, &book, number).await;
            book.answers.set(book.answers.get() + 1);
            continue;
        }
        let Known::Settled(before) = book.of(&name) else {
            panic!("{name} is settled before clients start")
        };
        let after = next(&world, &before);
        book.note(
            &name,
            Known::Unsettled {
                before: before.clone(),
                after: after.clone(),
            },
        );
        let changes = change(&controller, &name, &before, &after).await;
        assert_eq!(changes, usize::from(before != after), "{name}");
        let now = Topic::of(&controller.image(), &name);
        assert!(fits(&after, &now), "{name} is {now:?} and not {after:?}");
        book.note(&name, Known::Settled(now));
        book.answers.set(book.answers.get() + 1);
    }
}

/// Sets or deletes the client's own setting of the broker, beside those of the others.
async fn alter_setting(world: &World, controller: &Controller, book: &Book, number: usize) {
    let name = [
        "log.roll.ms",
        "log.segment.delete.delay.ms",
        "message.max.bytes",
    ][number];
    let (after, op) = match world.random_below(3) {
        0 => (None, AlterConfigOp::Delete),
        more => {
            let value = Some((1000 + more).to_string());
            (value.clone(), AlterConfigOp::Set(value))
        }
    };
    {
        let mut settings = book.settings.borrow_mut();
        let possible = settings.entry(name).or_insert_with(|| vec![None]);
        assert_eq!(possible.len(), 1, "{name} is settled before clients start");
        possible.push(after.clone());
    }
    let alteration = ConfigsAlteration {
        target: ConfigTarget::Broker(Some(1)),
        change: ConfigsChange::Incremental(vec![(name.into(), op)]),
    };
    let (results, _) = controller.alter_configs(vec![alteration], false).await;
    assert_eq!(results, [Ok(())], "{name}");
    let now = controller.image();
    let now = now.broker_configs(Some(1)).and_then(|all| all.get(name));
    assert_eq!(now, after.as_ref(), "{name}");
    book.settings.borrow_mut().insert(name, vec![after]);
}

/// What a client makes of a topic next.
fn next(world: &World, before: &Option<Topic>) -> Option<Topic> {
    let Some(before) = before else {
        return Some(Topic {
            id: None,
            partitions: 1 + world.random_below(9) as i32,
            segment_ms: "60000".into(),
        });
    };
    let mut after = before.clone();
    match world.random_below(3) {
        0 => return None,
        1 => after.partitions += 1 + world.random_below(3) as i32,
        // Sometimes the same again.
        _ => after.segment_ms = (1 + world.random_below(4)).to_string(),
    }
    Some(after).filter(|after| after.partitions <= 50)
}

/// Asks for what leads from `before` to `after`, which is to succeed. Returns how many
/// changes came back.
async fn change(
    controller: &Controller,
    name: &str,
    before: &Option<Topic>,
    after: &Option<Topic>,
) -> usize {
    let ok = |results: Vec<Result<(), ControllerFault>>| assert_eq!(results, [Ok(())], "{name}");
    let delta = match (before, after) {
        (Some(before), None) => {
            let selector = TopicSelector::Name(name.into());
            let (results, delta) = controller.delete_topics(vec![selector]).await;
            assert_eq!(results, [Ok((before.id.unwrap(), name.into()))]);
            delta
        }
        (Some(before), Some(after)) if before.partitions != after.partitions => {
            let more = MorePartitions {
                name: name.into(),
                count: after.partitions,
                assignments: None,
            };
            let (results, delta) = controller.create_partitions(vec![more], false).await;
            ok(results);
            delta
        }
        (Some(_), Some(after)) => {
            let set = AlterConfigOp::Set(Some(after.segment_ms.clone()));
            let alteration = ConfigsAlteration {
                target: ConfigTarget::Topic(name.into()),
                change: ConfigsChange::Incremental(vec![("segment.ms".into(), set)]),
            };
            let (results, delta) = controller.alter_configs(vec![alteration], false).await;
            ok(results);
            delta
        }
        (None, after) => {
            let after = after.as_ref().expect("an absent topic is created");
            let topic = NewTopic {
                num_partitions: after.partitions,
                configs: vec![("segment.ms".into(), Some(after.segment_ms.clone()))],
                ..new_topic(name)
            };
            let (results, delta) = controller.create_topics(vec![topic], false).await;
            assert!(results[0].is_ok(), "{results:?}");
            delta
        }
    };
    delta.map_or(0, |delta| delta.changes.len())
}

/// Rounds of work of up to `work_max` each, ended by a power cut or a clean stop. Returns
/// how many requests were answered.
fn power_cuts(seed: u64, work_max: Duration, prepare: impl Fn(&SimNode)) -> usize {
    let world = Rc::new(World::new(seed));
    let node = world.node("broker");
    let book = Rc::new(Book::default());
    let mut clean_at = None;
    for round in 0..6 {
        let context = format!("seed {seed}, round {round}");
        if !node.is_up() {
            node.restart();
        }
        let rt = node.rt();
        prepare(&node);
        // A power cut may also come while it loads.
        let load_limit = match world.random_below(4) {
            0 => Duration::from_micros(world.random_below(20_000)),
            _ => Duration::from_secs(3600),
        };
        let opened = world.block_on_for(&rt, load_limit, open(&rt, clean_at));
        clean_at = None;
        let Some(opened) = opened else {
            node.crash();
            continue;
        };
        let (controller, image) =
            opened.unwrap_or_else(|error| panic!("the controller opens: {error} ({context})"));
        book.check(&image, &context);
        for number in 0..3 {
            let work = client(world.clone(), controller.clone(), book.clone(), number);
            rt.spawn(Queue::Latency, work);
        }
        world.run_for(Duration::from_micros(
            world.random_below(work_max.as_micros() as u64),
        ));
        if world.random_below(3) == 0 {
            // A clean stop, but only once the clients are gone: they expect answers.
            node.kill();
            let rt = node.restart();
            let closed = world.block_on(&rt, async {
                let (controller, image) = open(&rt, None).await.unwrap();
                book.check(&image, &context);
                controller.close().await.unwrap()
            });
            clean_at = Some(closed);
            node.kill();
        } else {
            node.crash();
        }
    }
    book.answers.get()
}

#[test]
fn given_power_cuts_at_random_moments_then_what_was_answered_survives_and_the_rest_is_whole_or_absent(
) {
    let mut answers = 0;
    for seed in 0..40 {
        answers += power_cuts(seed, LONG, |_| {});
        power_cuts(seed, SHORT, |_| {});
    }
    assert!(answers > 1000, "only {answers} requests were answered");
}

/// The test above must notice if answers do not wait for the disk.
#[test]
fn given_a_sync_that_does_nothing_then_the_power_cut_test_notices() {
    // Snapshots sync the directory too, so names are lost early or never.
    for (site, work_max) in [
        (SyncSite::SegmentFlush, LONG),
        (SyncSite::SegmentCreate, SHORT),
        (SyncSite::PartitionCreate, SHORT),
    ] {
        let noticed = (0..100).any(|seed| {
            let lying = || power_cuts(seed, work_max, |node| node.disk().disable_sync(site));
            let Err(panic) = std::panic::catch_unwind(lying) else {
                return false;
            };
            // The message of a check that failed, not of something that broke otherwise.
            let message = panic.downcast_ref::<String>().expect("a check's message");
            assert!(message.contains(&format!("seed {seed}")), "{message}");
            true
        });
        assert!(noticed, "no seed notices that {site:?} does nothing");
    }
}

#[test]
fn given_snapshots_that_a_power_cut_may_tear_then_the_log_makes_up_for_them() {
    let mut answers = 0;
    for seed in 0..15 {
        answers += power_cuts(seed, LONG, |node| {
            node.disk().disable_sync(SyncSite::MetadataSnapshot);
        });
    }
    assert!(answers > 300, "only {answers} requests were answered");
}

/// A snapshot that was written stays whole. `sync_sites` shows that this fails without its sync.
#[test]
fn given_a_snapshot_when_the_power_is_cut_then_it_is_there_whole() {
    for seed in 0..10 {
        let (syncs, breach) = snapshot_after_a_power_cut(seed, None);
        assert_eq!(breach, None, "seed {seed}");
        assert!(syncs > 0);
    }
}

/// Writes snapshots, cuts the power, and reads the newest. How many syncs snapshots made, and what
/// is wrong afterwards.
pub(super) fn snapshot_after_a_power_cut(
    seed: u64,
    disabled: Option<SyncSite>,
) -> (u64, Option<String>) {
    let world = World::new(seed);
    let node = world.node("broker");
    if let Some(site) = disabled {
        node.disk().disable_sync(site);
    }
    let rt = node.rt();
    world.block_on(&rt, async {
        let (controller, _) = open(&rt, None).await.unwrap();
        for i in 0..60 {
            create(&controller, &format!("t-{i}")).await.unwrap();
        }
        // Answered after the snapshot before it was written.
        controller.allocate_producer_ids(1).await.unwrap();
    });
    assert!(!snapshots(&node).is_empty(), "no snapshot was written");
    node.crash_with(PowerCut::AllLost);
    let rt = node.restart();
    let breach = world.block_on(&rt, async {
        let store = SnapshotStore::new(rt.dir(DATA_DIR).subdir("__cluster_metadata-0"));
        let names = store.list().await.unwrap();
        let empty = || Image::empty(CLUSTER, 1);
        match names.first() {
            Some(name) => store
                .read(&rt, *name, empty())
                .await
                .err()
                .map(|e| e.to_string()),
            None => Some("the snapshot is gone".to_owned()),
        }
    });
    (node.disk().sync_count(SyncSite::MetadataSnapshot), breach)
}

fn topic_names(image: &Image) -> Vec<String> {
    image.topics().map(|t| t.name.to_string()).collect()
}

async fn create(controller: &Controller, name: &str) -> Result<Uuid, ErrorCode> {
    let (mut results, _) = controller.create_topics(vec![new_topic(name)], false).await;
    results.remove(0).map(|t| t.id).map_err(|fault| fault.code)
}

fn snapshots(node: &SimNode) -> Vec<(SnapshotName, PathBuf)> {
    let files = node.disk().list_raw(DATA_DIR);
    let mut found: Vec<_> = files
        .into_iter()
        .filter_map(|(path, _)| {
            let name = SnapshotName::parse(path.file_name()?.to_str()?)?;
            Some((name, path))
        })
        .collect();
    found.sort();
    found
}

/// Opens and closes twice with a topic each, so that there are two snapshots.
fn two_snapshots(world: &World, node: &SimNode) -> Image {
    let rt = node.rt();
    let mut clean_at = None;
    for name in ["first", "second"] {
        let closed = world.block_on(&rt, async {
            let (controller, _) = open(&rt, clean_at).await.unwrap();
            create(&controller, name).await.unwrap();
            (controller.close().await.unwrap(), controller.image())
        });
        clean_at = Some(closed.0);
        if name == "second" {
            assert_eq!(topic_names(&closed.1), ["first", "second"]);
            assert_eq!(snapshots(node).len(), 2);
            return closed.1;
        }
    }
    unreachable!()
}

fn tear(node: &SimNode, path: &PathBuf) {
    let mut content = node.disk().read_raw(path).unwrap();
    content.truncate(content.len() - 7);
    node.disk().write_raw(path, &content);
}

#[test]
fn given_torn_snapshots_when_opened_then_older_ones_and_the_log_give_the_same_image() {
    for torn in [0, 1, 2] {
        let world = World::new(torn as u64);
        let node = world.node("broker");
        let before = two_snapshots(&world, &node);
        for (_, path) in snapshots(&node).iter().rev().take(torn) {
            tear(&node, path);
        }
        let rt = node.rt();
        let after = world.block_on(&rt, async { open(&rt, None).await.unwrap().1 });
        assert_eq!(after, before, "{torn} torn");
    }
}

#[test]
fn given_snapshots_but_no_log_when_opened_then_it_says_that_records_are_missing() {
    let world = World::new(1);
    let node = world.node("broker");
    two_snapshots(&world, &node);
    for (path, _) in node.disk().list_raw(DATA_DIR) {
        if path.extension().is_some_and(|e| e == "log") {
            assert!(node.disk().remove_raw(path));
        }
    }
    let rt = node.rt();
    let error = world.block_on(&rt, async { open(&rt, None).await.err().unwrap() });
    assert!(
        matches!(error, ControllerError::RecordsMissing { .. }),
        "{error}"
    );
}

#[test]
fn given_another_clusters_snapshot_when_opened_then_refused() {
    let world = World::new(1);
    let node = world.node("broker");
    two_snapshots(&world, &node);
    let rt = node.rt();
    let error = world.block_on(&rt, async {
        let options = ControllerOptions {
            cluster_id: Uuid::from_u128(0xBAD),
            ..options(None)
        };
        let opened = Controller::open(&rt, &storage(&rt), rt.dir(DATA_DIR), options).await;
        opened.err().unwrap()
    });
    assert!(error.to_string().contains("another cluster"), "{error}");
}

/// Creates topics until the disk refuses, and holds all answers against each other.
///
/// `mends`: it takes changes again once the disk is well, without another start.
fn disk_fault(seed: u64, mends: bool, strike: impl Fn(&SimNode), heal: impl Fn(&SimNode)) {
    let world = World::new(seed);
    let node = world.node("broker");
    let rt = node.rt();
    let (answered, refused) = world.block_on(&rt, async {
        let (controller, _) = open(&rt, None).await.unwrap();
        let mut answered = vec![];
        answered.push((
            "before".to_owned(),
            create(&controller, "before").await.unwrap(),
        ));
        strike(&node);
        let fired = node.disk().faults_fired();
        let mut refused = vec![];
        for i in 0..20_000 {
            let name = format!("t-{i}");
            match create(&controller, &name).await {
                Ok(id) => answered.push((name, id)),
                Err(code) => {
                    assert_eq!(code, ErrorCode::KafkaStorageError);
                    refused.push(name);
                    break;
                }
            }
            if answered.len() < 10 {
                continue;
            }
            let names = answered.drain(..).map(|(name, _)| name);
            let selectors: Vec<_> = names.map(TopicSelector::Name).collect();
            let (results, _) = controller.delete_topics(selectors).await;
            if let Err(fault) = &results[0] {
                // Unless it mends, nobody knows now whether the topics are there.
                assert_eq!(fault.code, ErrorCode::KafkaStorageError);
                assert!(results.iter().all(Result::is_err));
                break;
            }
        }
        assert!(
            node.disk().faults_fired() > fired,
            "the disk never failed, seed {seed}"
        );
        // What was refused is not shown.
        let image = controller.image();
        assert!(refused.iter().all(|name| image.topic(name).is_none()));
        if mends {
            // It stays usable, however often it fails; what it had reserved may do for one.
            match create(&controller, "too-early").await {
                Ok(id) => answered.push(("too-early".to_owned(), id)),
                Err(code) => {
                    assert_eq!(code, ErrorCode::KafkaStorageError);
                    refused.push("too-early".to_owned());
                }
            }
            heal(&node);
            let id = create(&controller, "again").await.unwrap();
            answered.push(("again".to_owned(), id));
            if let Some(name) = refused.pop() {
                let id = create(&controller, &name).await.unwrap();
                answered.push((name, id));
            }
            assert_eq!(controller.failure(), None);
            return (answered, refused);
        }
        heal(&node);
        // Nothing is taken from now on.
        assert_eq!(
            create(&controller, "later").await,
            Err(ErrorCode::KafkaStorageError)
        );
        let fault = controller.allocate_producer_ids(5).await.unwrap_err();
        assert_eq!(fault.code, ErrorCode::KafkaStorageError);
        assert_eq!(controller.image(), image);
        assert!(controller.close().await.is_err());
        (answered, Vec::new())
    });
    node.kill();
    let rt = node.restart();
    world.block_on(&rt, async {
        let (controller, image) = open(&rt, None).await.unwrap();
        for (name, id) in &answered {
            assert_eq!(image.topic(name).map(|t| t.id), Some(*id), "{name}");
        }
        assert!(refused.iter().all(|name| image.topic(name).is_none()));
        assert!(image.topic("later").is_none());
        create(&controller, "later").await.unwrap();
        assert_eq!(controller.allocate_producer_ids(5).await.unwrap(), 0..5);
    });
}

#[test]
fn given_a_full_disk_then_56_and_no_wrong_answer_and_all_is_well_once_space_returns() {
    for seed in 0..10 {
        disk_fault(
            seed,
            true,
            |node| {
                node.disk()
                    .set_capacity(node.disk().used_bytes() + (96 << 10))
            },
            |node| node.disk().set_capacity(u64::MAX),
        );
    }
}

#[test]
fn given_a_flush_that_fails_then_56_and_no_wrong_answer() {
    for seed in 0..10 {
        disk_fault(
            seed,
            false,
            |node| {
                node.disk()
                    .fail_nth_sync(Some(SyncSite::SegmentFlush), 1 + seed, 5)
            },
            |node| node.disk().clear_faults(),
        );
    }
}

#[test]
fn given_a_snapshot_that_cannot_be_written_for_space_then_requests_are_served_on() {
    let world = World::new(3);
    let node = world.node("broker");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (controller, _) = open(&rt, None).await.unwrap();
        node.disk()
            .fail_writes(".checkpoint", crate::runtime::sim::WriteFault::Errno(28));
        node.disk().fail_syncs(Some(SyncSite::MetadataSnapshot), 28);
        for i in 0..60 {
            create(&controller, &format!("t-{i}")).await.unwrap();
        }
        assert!(node.disk().faults_fired() > 0, "no snapshot was tried");
        assert!(snapshots(&node).is_empty());
        node.disk().clear_faults();
        for i in 60..120 {
            create(&controller, &format!("t-{i}")).await.unwrap();
        }
        assert!(!snapshots(&node).is_empty(), "the next try succeeds");
        // A stop does not fail for it either.
        node.disk().fail_syncs(Some(SyncSite::MetadataSnapshot), 28);
        let fired = node.disk().faults_fired();
        create(&controller, "last").await.unwrap();
        controller.close().await.unwrap();
        assert!(node.disk().faults_fired() > fired, "no snapshot was tried");
    });
}

#[test]
fn given_a_closed_controller_when_asked_then_not_controller() {
    let world = World::new(4);
    let node = world.node("broker");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (controller, _) = open(&rt, None).await.unwrap();
        controller.close().await.unwrap();
        assert_eq!(
            create(&controller, "t").await,
            Err(ErrorCode::NotController)
        );
        let fault = controller.allocate_producer_ids(1).await.unwrap_err();
        assert_eq!(fault.code, ErrorCode::NotController);
        assert!(matches!(
            controller.close().await,
            Err(ControllerError::Closed)
        ));
    });
}

#[test]
fn given_calls_at_once_then_they_take_effect_in_order_and_share_flushes() {
    let world = World::new(5);
    let node = world.node("broker");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (controller, start) = open(&rt, None).await.unwrap();
        let flushes = node.disk().sync_count(SyncSite::SegmentFlush);
        let answers = Rc::new(RefCell::new(vec![]));
        let left = Rc::new(Cell::new(40));
        for i in 0..40 {
            let (controller, answers, left) = (controller.clone(), answers.clone(), left.clone());
            rt.spawn(Queue::Latency, async move {
                let topic = new_topic(&format!("t-{}", i % 4));
                let (_, delta) = match i % 8 {
                    0..4 => {
                        let (results, delta) = controller.create_topics(vec![topic], false).await;
                        (results.len(), delta)
                    }
                    _ => {
                        let selector = TopicSelector::Name(topic.name);
                        let (results, delta) = controller.delete_topics(vec![selector]).await;
                        (results.len(), delta)
                    }
                };
                answers.borrow_mut().extend(delta);
                left.set(left.get() - 1);
            });
        }
        while left.get() > 0 {
            rt.sleep(Duration::from_millis(1)).await;
        }
        let mut deltas = answers.take();
        deltas.sort_by_key(|delta| delta.offset);
        let copy = deltas.iter().fold(start, |image, delta| image.apply(delta));
        assert_eq!(copy, controller.image());
        let flushes = node.disk().sync_count(SyncSite::SegmentFlush) - flushes;
        assert!(
            flushes < deltas.len() as u64,
            "{flushes} flushes, {} deltas",
            deltas.len()
        );
    });
}

#[test]
fn given_validate_only_then_nothing_changes() {
    let world = World::new(6);
    let node = world.node("broker");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (controller, start) = open(&rt, None).await.unwrap();
        let topics = vec![new_topic("a"), new_topic("a b")];
        let (results, delta) = controller.create_topics(topics, true).await;
        assert_eq!(results[0].as_ref().unwrap().id, Uuid::nil());
        assert_eq!(
            results[1].as_ref().unwrap_err().code,
            ErrorCode::InvalidTopicException
        );
        assert!(delta.is_none());
        assert_eq!(controller.image(), start);
    });
}
