//! Power cuts in the simulator: what was answered survives, the rest is whole or absent.

use super::simulated::open;
use super::*;
use crate::controller::{
    AlterConfigOp, ConfigTarget, ConfigsAlteration, ConfigsChange, Controller, ControllerFault,
    MorePartitions, TopicSelector,
};
use crate::runtime::sim::{SimNode, World};
use crate::runtime::{Queue, SyncSite};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Work of a round, at most: with snapshots, and before the first.
const LONG: Duration = Duration::from_millis(400);
const SHORT: Duration = Duration::from_millis(40);

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
