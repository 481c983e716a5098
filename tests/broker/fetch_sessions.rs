//! Fetch over the wire: sessions in the versions that name topics differently, exact
//! limits, long polls for many bytes, and many readers of one copy.

use super::client::{batch_of, create_topic, fetch, produce_ok, text, with};
use super::{data_dir, launch};
use bytes::Bytes;
use highwater::client::{BrokerConnection, ConnectionOptions};
use highwater::protocol::messages::*;
use highwater::runtime::native;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use uuid::Uuid;

const DAY_MS: i32 = 86_400_000;
const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
const FETCH_SESSION_TOPIC_ID_ERROR: i16 = 106;

/// A topic by both of its names.
#[derive(Clone)]
struct Topic {
    name: &'static str,
    id: Uuid,
}

impl Topic {
    async fn create(connection: &BrokerConnection, name: &'static str, partitions: i32) -> Topic {
        let created = create_topic(connection, name, partitions, &[]).await;
        assert_eq!(created.error_code, 0);
        Topic {
            name,
            id: created.topic_id,
        }
    }
}

/// A fetch in the making.
struct Ask {
    version: i16,
    request: FetchRequest,
}

impl Ask {
    fn new(version: i16, session_id: i32, session_epoch: i32) -> Ask {
        Ask {
            version,
            request: FetchRequest {
                min_bytes: 1,
                max_bytes: 1 << 20,
                session_id,
                session_epoch,
                ..Default::default()
            },
        }
    }

    fn read(mut self, topic: &Topic, partition: i32, fetch_offset: i64) -> Ask {
        let mut asked = FetchTopic {
            partitions: vec![FetchPartition {
                partition,
                fetch_offset,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        };
        match self.version {
            13.. => asked.topic_id = topic.id,
            _ => asked.topic = text(topic.name),
        }
        self.request.topics.push(asked);
        self
    }

    fn forget(mut self, topic: &Topic, partition: i32) -> Ask {
        let mut forgotten = ForgottenTopic {
            partitions: vec![partition],
            ..Default::default()
        };
        match self.version {
            13.. => forgotten.topic_id = topic.id,
            _ => forgotten.topic = text(topic.name),
        }
        self.request.forgotten_topics_data.push(forgotten);
        self
    }

    fn wait(mut self, max_wait_ms: i32) -> Ask {
        self.request.max_wait_ms = max_wait_ms;
        self
    }

    fn set(mut self, change: impl FnOnce(&mut FetchRequest)) -> Ask {
        change(&mut self.request);
        self
    }

    async fn send(self, connection: &BrokerConnection) -> FetchResponse {
        let wait = connection.start_as(&self.request, self.version).await;
        wait.expect("it is sent").await.expect("an answer")
    }
}

/// Partition and bytes of records, in the order of the answer.
fn answered(response: &FetchResponse) -> Vec<(i32, usize)> {
    let partitions = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions);
    partitions
        .map(|partition| {
            assert_eq!(partition.error_code, 0);
            let records = partition.records.as_ref();
            (
                partition.partition_index,
                records.map_or(0, |records| records.len()),
            )
        })
        .collect()
}

async fn connect(rt: &highwater::runtime::Rt, addr: SocketAddr) -> BrokerConnection {
    let options = ConnectionOptions {
        request_timeout: Duration::from_secs(120),
        ..ConnectionOptions::default()
    };
    BrokerConnection::connect(rt, addr, options)
        .await
        .expect("the broker can be connected to")
}

#[test]
fn given_a_session_in_any_version_then_answers_hold_what_is_new() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        for (version, name) in [(7, "v7"), (12, "v12"), (13, "v13"), (18, "v18")] {
            let topic = Topic::create(&c, name, 4).await;
            let size = batch_of("x").len();
            let mut full = Ask::new(version, 0, 0);
            for partition in 0..4 {
                full = full.read(&topic, partition, 0);
            }
            let response = full.send(&c).await;
            let id = response.session_id;
            assert!(response.error_code == 0 && id != 0, "v{version}");
            assert_eq!(answered(&response), [(0, 0), (1, 0), (2, 0), (3, 0)]);
            // Nothing is new.
            let response = Ask::new(version, id, 1).wait(20).send(&c).await;
            assert_eq!((response.error_code, response.session_id), (0, id));
            assert_eq!(answered(&response), []);
            // One has records; the next fetch says that they were read.
            produce_ok(&c, name, 2, batch_of("x")).await;
            let response = Ask::new(version, id, 2).send(&c).await;
            assert_eq!(answered(&response), [(2, size)], "v{version}");
            let read = Ask::new(version, id, 3).read(&topic, 2, 1).wait(20);
            assert_eq!(answered(&read.send(&c).await), []);
            // A long poll, on partitions of all shards.
            let asked = Ask::new(version, id, 4).wait(DAY_MS);
            let waiting = c.start_as(&asked.request, version).await.expect("sent");
            produce_ok(&c, name, 1, batch_of("x")).await;
            let response = waiting.await.expect("an answer");
            assert_eq!(answered(&response), [(1, size)], "v{version}");
            // Forgotten, and wanted again.
            let forget = Ask::new(version, id, 5)
                .read(&topic, 1, 1)
                .forget(&topic, 0)
                .wait(20);
            assert_eq!(answered(&forget.send(&c).await), []);
            produce_ok(&c, name, 0, batch_of("x")).await;
            let response = Ask::new(version, id, 6).wait(20).send(&c).await;
            assert_eq!(answered(&response), []);
            let again = Ask::new(version, id, 7).read(&topic, 0, 0);
            assert_eq!(answered(&again.send(&c).await), [(0, size)]);
            // Mistakes leave the session as it is.
            for (wrong_id, epoch, code) in [
                (id, 7, INVALID_FETCH_SESSION_EPOCH),
                (id, 9, INVALID_FETCH_SESSION_EPOCH),
                (id ^ 1, 8, FETCH_SESSION_ID_NOT_FOUND),
                (0, 8, FETCH_SESSION_ID_NOT_FOUND),
            ] {
                let response = Ask::new(version, wrong_id, epoch).send(&c).await;
                assert_eq!((response.error_code, response.session_id), (code, 0));
                assert!(response.responses.is_empty());
            }
            let other_version = if version < 13 { 13 } else { 12 };
            let response = Ask::new(other_version, id, 8).send(&c).await;
            assert_eq!(response.error_code, FETCH_SESSION_TOPIC_ID_ERROR);
            let response = Ask::new(version, id, 8).read(&topic, 0, 1).wait(20);
            assert_eq!(answered(&response.send(&c).await), []);
            // The last fetch closes it.
            let last = Ask::new(version, id, -1).read(&topic, 3, 0).send(&c).await;
            assert_eq!((answered(&last), last.session_id), (vec![(3, 0)], 0));
            let response = Ask::new(version, id, 9).send(&c).await;
            assert_eq!(response.error_code, FETCH_SESSION_ID_NOT_FOUND);
        }
    });
    broker.stop();
}

#[test]
fn given_a_limit_of_one_batch_then_the_partitions_of_a_session_take_turns() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let topic = Topic::create(&c, "turns", 3).await;
        let batch = batch_of(&"x".repeat(1_000));
        for partition in 0..3 {
            for _ in 0..4 {
                produce_ok(&c, "turns", partition, batch.clone()).await;
            }
        }
        let limit = |request: &mut FetchRequest| request.max_bytes = batch.len() as i32;
        let mut full = Ask::new(18, 0, 0).set(limit);
        for partition in 0..3 {
            full = full.read(&topic, partition, 0);
        }
        let mut response = full.send(&c).await;
        let id = response.session_id;
        let mut offsets = BTreeMap::from([(0, 0), (1, 0), (2, 0)]);
        let mut turns = Vec::new();
        for epoch in 1..=12 {
            let with_records: Vec<i32> = answered(&response)
                .into_iter()
                .filter(|(_, bytes)| *bytes > 0)
                .map(|(partition, _)| partition)
                .collect();
            let [partition] = with_records[..] else {
                panic!("one batch fits: {with_records:?}");
            };
            turns.push(partition);
            let offset = offsets.get_mut(&partition).expect("it was asked for");
            *offset += 1;
            let next = Ask::new(18, id, epoch).read(&topic, partition, *offset);
            response = next.set(limit).send(&c).await;
        }
        assert_eq!(turns, [0, 1, 2].repeat(4));
    });
    broker.stop();
}

#[test]
fn given_a_topic_that_does_not_exist_yet_then_a_session_finds_it_later() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let codes = |response: &FetchResponse| -> Vec<(i32, i16)> {
            let partitions = response
                .responses
                .iter()
                .flat_map(|topic| &topic.partitions);
            partitions
                .map(|partition| (partition.partition_index, partition.error_code))
                .collect()
        };
        let exists = Topic::create(&c, "exists", 1).await;
        let unknown = Topic {
            name: "later",
            id: Uuid::from_u128(99),
        };
        let mixed = Ask::new(12, 0, 0).read(&exists, 0, 0).read(&unknown, 0, 0);
        let response = mixed.read(&exists, 7, 0).send(&c).await;
        assert_eq!(codes(&response), [(0, 0), (0, 3), (7, 3)]);
        let id = response.session_id;
        // Errors are answered again and again, and what is well once.
        let response = Ask::new(12, id, 1).send(&c).await;
        assert_eq!(codes(&response), [(0, 3), (7, 3)]);
        Topic::create(&c, "later", 1).await;
        let response = Ask::new(12, id, 2).send(&c).await;
        assert_eq!(codes(&response), [(0, 0), (7, 3)]);
        assert_eq!(response.responses[0].topic, text("later"));
        let by_id = Ask::new(13, 0, 0).read(&unknown, 0, 0).read(&exists, 0, 0);
        let response = by_id.send(&c).await;
        assert_eq!(codes(&response), [(0, 100), (0, 0)]);
        let again = Ask::new(13, response.session_id, 1).send(&c).await;
        assert_eq!(codes(&again), [(0, 100)]);
    });
    broker.stop();
}

#[test]
fn given_two_connections_of_one_shard_then_they_share_a_session_and_one_at_a_time_moves_it() {
    let dir = data_dir();
    let broker = launch(dir.path()).shards(1).start();
    let addr = broker.addr();
    native::run(move |rt| async move {
        let (a, b) = (connect(&rt, addr).await, connect(&rt, addr).await);
        let topic = Topic::create(&a, "shared", 1).await;
        let full = Ask::new(18, 0, 0).read(&topic, 0, 0).send(&a).await;
        let id = full.session_id;
        let response = Ask::new(18, id, 1).send(&b).await;
        assert_eq!((response.error_code, response.session_id), (0, id));
        // The first waits, the second moves the session on: the first can't know what
        // the second was told.
        let asked = Ask::new(18, id, 2).wait(DAY_MS);
        let mut waiting = Box::pin(a.start_as(&asked.request, 18).await.expect("sent"));
        loop {
            let response = Ask::new(18, id, 3).send(&b).await;
            if response.error_code == 0 {
                break;
            }
            // The long poll has not arrived yet.
            assert_eq!(response.error_code, INVALID_FETCH_SESSION_EPOCH);
            rt.sleep(Duration::from_millis(5)).await;
        }
        let pending = futures_lite::future::poll_once(&mut waiting).await;
        assert!(pending.is_none());
        produce_ok(&b, "shared", 0, batch_of("x")).await;
        let response = waiting.await.expect("an answer");
        assert_eq!(response.error_code, INVALID_FETCH_SESSION_EPOCH);
    })
    .expect("an executor can be started");
    broker.stop();
}

#[test]
fn given_a_fetch_that_waits_when_another_connection_forgets_its_partitions_then_both_are_answered()
{
    let dir = data_dir();
    let broker = launch(dir.path()).shards(1).start();
    let addr = broker.addr();
    native::run(move |rt| async move {
        let (a, b) = (connect(&rt, addr).await, connect(&rt, addr).await);
        let topic = Topic::create(&a, "shared", 1).await;
        let full = Ask::new(18, 0, 0).read(&topic, 0, 0).send(&a).await;
        let id = full.session_id;
        let asked = Ask::new(18, id, 1).wait(DAY_MS);
        let waiting = a.start_as(&asked.request, 18).await.expect("sent");
        loop {
            let ask = Ask::new(18, id, 2).forget(&topic, 0);
            let response = ask.send(&b).await;
            if response.error_code == 0 {
                assert_eq!((response.session_id, answered(&response)), (0, vec![]));
                break;
            }
            // The long poll has not arrived yet.
            assert_eq!(response.error_code, INVALID_FETCH_SESSION_EPOCH);
            rt.sleep(Duration::from_millis(5)).await;
        }
        produce_ok(&b, "shared", 0, batch_of("x")).await;
        let response = waiting.await.expect("an answer");
        assert_eq!(response.error_code, INVALID_FETCH_SESSION_EPOCH);
    })
    .expect("an executor can be started");
    broker.stop();
}

#[test]
fn given_no_slots_then_every_answer_is_full_and_without_a_session() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .set("max.incremental.fetch.session.cache.slots=0")
        .start();
    with(broker.addr(), move |c| async move {
        let topic = Topic::create(&c, "none", 2).await;
        for _ in 0..2 {
            let full = Ask::new(18, 0, 0).read(&topic, 0, 0).read(&topic, 1, 0);
            let response = full.send(&c).await;
            assert_eq!(response.session_id, 0);
            assert_eq!(answered(&response), [(0, 0), (1, 0)]);
        }
    });
    broker.stop();
}

/// More than a session may remember: served without one, within the memory.
#[test]
fn given_a_list_of_200_000_partitions_then_it_is_answered_within_the_memory() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .shards(1)
        .set("request.memory.bytes=134217728")
        .start();
    let addr = broker.addr();
    let before = broker.resident_bytes();
    native::run(move |rt| async move {
        let c = connect(&rt, addr).await;
        let topic = Topic::create(&c, "few", 2).await;
        let partition = |partition| FetchPartition {
            partition,
            partition_max_bytes: 1 << 20,
            ..Default::default()
        };
        for by_far in [12, 18] {
            let mut huge = Ask::new(by_far, 0, 0).read(&topic, 0, 0).wait(DAY_MS);
            huge.request.min_bytes = 0;
            huge.request.topics[0].partitions = (0..200_000).map(partition).collect();
            let response = huge.send(&c).await;
            assert_eq!(response.session_id, 0);
            let partitions = &response.responses[0].partitions;
            assert_eq!(partitions.len(), 200_000);
            let sound = partitions.iter().filter(|p| p.error_code == 0).count();
            assert_eq!(sound, 2);
        }
        let few = Ask::new(18, 0, 0).read(&topic, 0, 0).send(&c).await;
        assert_ne!(few.session_id, 0);
        // And growing into it is no way around.
        let mut grown = Ask::new(18, few.session_id, 1).read(&topic, 0, 0);
        grown.request.topics[0].partitions = (0..200_000).map(partition).collect();
        let response = grown.send(&c).await;
        assert_eq!(response.error_code, FETCH_SESSION_ID_NOT_FOUND);
    })
    .expect("an executor can be started");
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 400 << 20, "{} MiB", grown >> 20);
    broker.stop();
}

#[test]
fn given_limits_at_and_below_nothing_then_one_batch_gets_through() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let topic = Topic::create(&c, "exact", 6).await;
        let batch = batch_of(&"x".repeat(2_000));
        let size = batch.len();
        for partition in 1..6 {
            for _ in 0..2 {
                produce_ok(&c, "exact", partition, batch.clone()).await;
            }
        }
        let all = |of_all: i32, of_part: i32| {
            let mut ask = Ask::new(18, 0, -1);
            for partition in 0..6 {
                ask = ask.read(&topic, partition, 0);
            }
            ask.set(|request| {
                request.max_bytes = of_all;
                for asked in &mut request.topics {
                    asked.partitions[0].partition_max_bytes = of_part;
                }
            })
        };
        for limit in [i32::MIN, -1, 0, 1, size as i32 - 1] {
            for ask in [all(limit, i32::MAX), all(i32::MAX, limit)] {
                let bytes: Vec<usize> = answered(&ask.send(&c).await)
                    .iter()
                    .map(|(_, bytes)| *bytes)
                    .collect();
                assert_eq!(bytes, [0, size, 0, 0, 0, 0], "limit {limit}");
            }
        }
        let exact = all(5 * size as i32, i32::MAX).send(&c).await;
        let bytes: Vec<usize> = answered(&exact).iter().map(|(_, b)| *b).collect();
        assert_eq!(bytes, [0, 2 * size, 2 * size, size, 0, 0]);
        // Named twice: read once, as named last.
        let twice = Ask::new(18, 0, 0)
            .read(&topic, 1, 0)
            .read(&topic, 2, 0)
            .read(&topic, 1, 1);
        let response = twice.send(&c).await;
        assert_eq!(answered(&response), [(1, size), (2, 2 * size)]);
        // Nothing named: nothing to wait for.
        for epoch in [-1, 0] {
            let response = Ask::new(18, 0, epoch).wait(DAY_MS).send(&c).await;
            assert!(response.responses.is_empty());
            assert_eq!(response.session_id != 0, epoch == 0, "{epoch}");
            let none = Ask::new(18, 0, epoch).wait(DAY_MS).set(|request| {
                request.topics.push(FetchTopic {
                    topic_id: topic.id,
                    ..Default::default()
                });
            });
            assert!(none.send(&c).await.responses.is_empty());
        }
    });
    broker.stop();
}

#[test]
fn given_isolation_levels_then_only_read_committed_lists_aborted_transactions() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let topic = Topic::create(&c, "levels", 1).await;
        produce_ok(&c, "levels", 0, batch_of("x")).await;
        for (level, aborted) in [(0, None), (1, Some(Vec::new()))] {
            let read = Ask::new(18, 0, -1).read(&topic, 0, 0);
            let response = read.set(|r| r.isolation_level = level).send(&c).await;
            let partition = &response.responses[0].partitions[0];
            assert_eq!(partition.aborted_transactions, aborted);
            assert_eq!(
                (partition.high_watermark, partition.last_stable_offset),
                (1, 1)
            );
            assert_eq!(partition.preferred_read_replica, -1);
        }
        for version in [5, 12, 18] {
            let read = Ask::new(version, 0, -1).read(&topic, 0, 0);
            let response = read.set(|r| r.isolation_level = 2).send(&c).await;
            let codes: Vec<i16> = response
                .responses
                .iter()
                .flat_map(|topic| &topic.partitions)
                .map(|partition| partition.error_code)
                .collect();
            match version {
                13.. => assert_eq!((response.error_code, codes), (42, vec![])),
                _ => assert_eq!(codes, [42], "v{version}"),
            }
        }
    });
    broker.stop();
}

#[test]
fn given_another_epoch_last_fetched_then_the_fetch_says_where_the_logs_part() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let topic = Topic::create(&c, "epochs", 1).await;
        produce_ok(&c, "epochs", 0, batch_of("x")).await;
        let epoch = super::client::list_offset(&c, "epochs", 0, -1)
            .await
            .leader_epoch;
        let fetch = |version, offset, last_fetched_epoch, wait| {
            let ask = Ask::new(version, 0, -1).read(&topic, 0, offset).wait(wait);
            let ask =
                ask.set(|r| r.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch);
            let c = c.clone();
            async move { ask.send(&c).await.responses.remove(0).partitions.remove(0) }
        };
        for version in [12, 18] {
            let agrees = fetch(version, 1, epoch, 0).await;
            assert_eq!((agrees.error_code, agrees.diverging_epoch.epoch), (0, -1));
            // It has more than this log ever had: no wait.
            let parts = fetch(version, 7, epoch, DAY_MS).await;
            assert_eq!(parts.error_code, 0);
            let end = (
                parts.diverging_epoch.epoch,
                parts.diverging_epoch.end_offset,
            );
            assert_eq!(end, (epoch, 1));
            assert!(parts.records.is_none_or(|records| records.is_empty()));
            let unknown = fetch(version, 1, epoch + 9, 0).await;
            assert_eq!(unknown.error_code, 1);
        }
        let fenced = Ask::new(18, 0, -1).read(&topic, 0, 0);
        let fenced = fenced.set(|r| r.topics[0].partitions[0].current_leader_epoch = epoch + 1);
        let response = fenced.send(&c).await;
        assert_eq!(response.responses[0].partitions[0].error_code, 75);
    });
    broker.stop();
}

#[test]
fn given_min_bytes_then_a_long_poll_answers_once_with_at_least_that() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    let addr = broker.addr();
    native::run(move |rt| async move {
        // Two: what is produced behind a long poll is answered behind it.
        let (c, other) = (connect(&rt, addr).await, connect(&rt, addr).await);
        let topic = Topic::create(&c, "many", 3).await;
        let batch = batch_of(&"x".repeat(500));
        let size = batch.len();
        for partitions in [vec![0], vec![0, 1, 2]] {
            let mut begin = BTreeMap::new();
            for partition in &partitions {
                let latest = super::client::list_offset(&c, "many", *partition, -1).await;
                begin.insert(*partition, latest.offset);
            }
            let mut ask = Ask::new(18, 0, -1).wait(DAY_MS);
            for (partition, offset) in begin {
                ask = ask.read(&topic, partition, offset);
            }
            ask.request.min_bytes = 5 * size as i32;
            let mut waiting = Box::pin(c.start_as(&ask.request, 18).await.expect("sent"));
            for n in 0..5 {
                let early = futures_lite::future::poll_once(&mut waiting).await;
                assert!(early.is_none(), "after {n} batches");
                produce_ok(
                    &other,
                    "many",
                    partitions[n % partitions.len()],
                    batch.clone(),
                )
                .await;
            }
            let response = waiting.await.expect("an answer");
            let bytes: usize = answered(&response).iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(bytes, 5 * size);
        }
        // No answer can be larger than the limit: it counts as the least, too.
        let capped = Ask::new(18, 0, -1).read(&topic, 0, 0).wait(DAY_MS);
        let capped = capped.set(|request| {
            request.min_bytes = i32::MAX;
            request.max_bytes = 2 * size as i32;
        });
        assert_eq!(answered(&capped.send(&c).await), [(0, 2 * size)]);
    })
    .expect("an executor can be started");
    broker.stop();
}

/// Fifty readers, one copy in memory, nothing from the disk.
#[test]
fn given_fifty_consumers_of_fresh_records_then_the_disk_is_not_read() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .shards(2)
        .set("cache.bytes=134217728")
        .start();
    let addr = broker.addr();
    let records = 160;
    let value = "x".repeat(100_000);
    with(addr, move |c| async move {
        create_topic(&c, "fan", 2, &[]).await;
        for n in 0..records {
            produce_ok(&c, "fan", n % 2, batch_of(&value)).await;
        }
    });
    let (disk, memory) = (disk_bytes_read(broker.pid()), broker.resident_bytes());
    native::run(move |rt| async move {
        let mut consumers = Vec::new();
        for _ in 0..50 {
            consumers.push((connect(&rt, addr).await, [0i64; 2]));
        }
        // All together, a megabyte at a time.
        for _ in 0..8 {
            for (consumer, offsets) in &mut consumers {
                for partition in 0..2 {
                    let at = &mut offsets[partition as usize];
                    let answer = fetch(consumer, "fan", partition, *at, 0, 1 << 20).await;
                    let bytes: Bytes = answer.records.expect("records").to_bytes();
                    *at += bytes.len() as i64 / 100_000;
                }
            }
        }
        for (_, offsets) in &consumers {
            assert_eq!(offsets, &[80; 2]);
        }
    })
    .expect("an executor can be started");
    assert_eq!(
        disk_bytes_read(broker.pid()),
        disk,
        "all came from the cache"
    );
    let grown = broker.resident_bytes().saturating_sub(memory);
    assert!(grown < 60 << 20, "{} MiB for 50 readers", grown >> 20);
    broker.stop();
    // After a restart the same records do come from the disk, and this count tells.
    let broker = launch(dir.path()).shards(2).start();
    let disk = disk_bytes_read(broker.pid());
    with(broker.addr(), move |c| async move {
        let answer = fetch(&c, "fan", 0, 0, 0, 1 << 20).await;
        assert!(!answer.records.expect("records").is_empty());
    });
    assert!(disk_bytes_read(broker.pid()) > disk);
    broker.stop();
}

/// What a process had the disk read, as the kernel counts it.
fn disk_bytes_read(pid: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("the process lives");
    io.lines()
        .find_map(|line| line.strip_prefix("read_bytes:"))
        .and_then(|bytes| bytes.trim().parse().ok())
        .expect("the kernel counts reads")
}
