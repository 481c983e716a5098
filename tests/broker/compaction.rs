//! Compaction against the process: what stays, what goes, what clients see meanwhile.

use super::broker::Broker;
use super::client::{batch_of as keyless, fetch, list_offset, produce, produce_ok, text, with};
use super::files::files_of;
use super::keyed::*;
use super::open_metrics::{Scrape, PATIENCE};
use super::settings::{alter, SET};
use super::{data_dir, launch};
use bytes::Bytes;
use highwater::client::BrokerConnection;
use highwater::protocol::batch::{BatchView, Compression};
use highwater::protocol::messages::*;
use highwater::protocol::ErrorCode;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TOPIC: &str = "accounts";
/// Bytes of a table with one value for each key, or two, and of an active segment.
const SMALL: f64 = 30_000.0;
/// Keys of the tables.
const KEYS: i64 = 25;

/// The value of one round for a key; 200 bytes, so that a segment has some 70.
fn value(round: i64, key: i64) -> String {
    format!("{round:08} of {key:<188}")
}

fn key(key: i64) -> String {
    format!("key {key:03}")
}

/// One batch for each round, with every key's value in it.
async fn produce_rounds(c: &BrokerConnection, topic: &str, rounds: std::ops::Range<i64>) {
    for round in rounds {
        let records: Vec<Keyed> = (0..KEYS).map(|n| keyed(key(n), value(round, n))).collect();
        produce_ok(c, topic, 0, batch_of(&records, Compression::None)).await;
    }
}

/// Every key's value of this round.
fn table_of(round: i64) -> BTreeMap<String, String> {
    (0..KEYS).map(|n| (key(n), value(round, n))).collect()
}

/// Creates the topic and fills it with rounds of values.
fn fill(broker: &Broker, configs: &[(&'static str, &'static str)], rounds: i64) {
    let configs = configs.to_vec();
    with(broker.addr(), move |c| async move {
        create(&c, TOPIC, &configs).await;
        produce_rounds(&c, TOPIC, 0..rounds).await;
    });
}

fn read(broker: &Broker) -> Vec<Read> {
    with(
        broker.addr(),
        |c| async move { read_all(&c, TOPIC, 0).await },
    )
}

fn end(broker: &Broker) -> i64 {
    with(broker.addr(), |c| async move { end_of(&c, TOPIC).await })
}

#[test]
fn given_many_values_of_few_keys_then_the_last_of_each_stays_also_after_a_kill() {
    let dir = data_dir();
    let launch = diligent(dir.path());
    let broker = launch.start();
    let rounds = 100;
    fill(&broker, &COMPACTED, rounds);
    let scrape = wait_for_bytes(&broker, TOPIC, SMALL);
    assert!(scrape.one(ROUNDS, &[]) >= 1.0);
    assert!(scrape.one(REMOVED, &[]) > 1_000.0);
    for figure in [
        "busy_seconds",
        "read_bytes",
        "written_bytes",
        "removed_bytes",
    ] {
        let figure = format!("highwater_compaction_{figure}_total");
        assert!(scrape.one(&figure, &[]) > 0.0, "{figure}");
    }
    assert!(scrape.one("highwater_compaction_map_bytes", &[]) > 0.0);
    let failed = scrape.one("highwater_compaction_failures_total", &[]);
    assert_eq!(failed, 0.0);
    let said = broker.said();
    assert!(said.contains("a log was compacted"), "{said}");

    let records = read(&broker);
    assert_eq!(table(&records), table_of(rounds - 1));
    assert!(
        records.len() < 300,
        "{} of {}",
        records.len(),
        KEYS * rounds
    );
    // The offsets are those that the records had.
    for record in &records {
        let round = record.offset / KEYS;
        let expected = value(round, record.offset % KEYS);
        assert_eq!(record.value.as_deref(), Some(expected.as_str()));
    }
    assert_eq!(end(&broker), KEYS * rounds);
    // An offset that is gone is read on from the next that is there.
    let next = with(
        broker.addr(),
        |c| async move { read_all(&c, TOPIC, 5).await },
    );
    assert_eq!(next, records);

    broker.kill();
    let broker = launch.start();
    assert_eq!(read(&broker), records);
    assert_eq!(end(&broker), KEYS * rounds, "no offset is given twice");
    let last = with(broker.addr(), move |c| async move {
        let one = [keyed("one more", "value")];
        produce_ok(&c, TOPIC, 0, batch_of(&one, Compression::None)).await
    });
    assert_eq!(last, KEYS * rounds);
    broker.stop();
    verify(dir.path());
}

#[test]
fn given_deleted_keys_then_their_markers_go_after_delete_retention_and_not_before() {
    let dir = data_dir();
    let broker = diligent(dir.path()).start();
    let markers = |records: &[Read]| {
        let markers = records.iter().filter(|record| record.value.is_none());
        markers.map(|record| record.key.clone()).collect::<Vec<_>>()
    };
    with(broker.addr(), |c| async move {
        for (topic, retention_ms) in [("kept", "86400000"), ("brief", "300")] {
            let mut configs = COMPACTED.to_vec();
            configs.push(("delete.retention.ms", retention_ms));
            create(&c, topic, &configs).await;
            let doomed: Vec<Keyed> = (0..20)
                .map(|n| keyed(format!("doomed {n:02}"), "x"))
                .collect();
            produce_ok(&c, topic, 0, batch_of(&doomed, Compression::None)).await;
            let deleted: Vec<Keyed> = doomed.into_iter().map(|(key, _)| (key, None)).collect();
            produce_ok(&c, topic, 0, batch_of(&deleted, Compression::None)).await;
            produce_rounds(&c, topic, 0..20).await;
        }
    });
    // The values went before the markers.
    wait_for_bytes(&broker, "kept", SMALL);
    let kept = with(
        broker.addr(),
        |c| async move { read_all(&c, "kept", 0).await },
    );
    assert_eq!(markers(&kept).len(), 20, "all markers are there");
    assert!(kept
        .iter()
        .all(|record| record.value.as_deref() != Some("x")));
    // Nothing is produced any more: it is the time alone that has them removed.
    let begun = Instant::now();
    loop {
        let brief = with(
            broker.addr(),
            |c| async move { read_all(&c, "brief", 0).await },
        );
        assert_eq!(table(&brief), table_of(19));
        if markers(&brief).is_empty() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{:?}", markers(&brief));
    }
    let kept = with(
        broker.addr(),
        |c| async move { read_all(&c, "kept", 0).await },
    );
    assert_eq!(markers(&kept).len(), 20, "theirs is a day");
    broker.stop();
    verify(dir.path());
}

#[test]
fn given_a_reader_from_the_beginning_while_rounds_go_on_then_it_misses_no_last_value() {
    let dir = data_dir();
    let broker = diligent(dir.path()).start();
    fill(&broker, &COMPACTED, 20);
    let produced = Arc::new(AtomicI64::new(20));
    let enough = Arc::new(AtomicBool::new(false));
    let (addr, produced_, enough_) = (broker.addr(), produced.clone(), enough.clone());
    let producer = std::thread::spawn(move || {
        with(addr, move |c| async move {
            while !enough_.load(Ordering::SeqCst) {
                let round = produced_.load(Ordering::SeqCst);
                produce_rounds(&c, TOPIC, round..round + 1).await;
                produced_.store(round + 1, Ordering::SeqCst);
                // Else the log, which every pass reads whole, grows faster than it is read.
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    });
    let begun = Instant::now();
    let mut passes = 0;
    loop {
        // What was acknowledged before the pass began is seen by it, or what replaced it is.
        let known = produced.load(Ordering::SeqCst) - 1;
        let seen = table(&read(&broker));
        assert_eq!(seen.len() as i64, KEYS);
        for (key, value) in &seen {
            assert!(
                value.as_str() >= &format!("{known:08}")[..],
                "{key}: {value}"
            );
        }
        passes += 1;
        if Scrape::of(&broker).one(ROUNDS, &[]) >= 8.0 && passes >= 8 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "rounds go on");
    }
    enough.store(true, Ordering::SeqCst);
    producer.join().expect("the producer saw no error");
    let last = produced.load(Ordering::SeqCst) - 1;
    assert_eq!(table(&read(&broker)), table_of(last));
    broker.stop();
    verify(dir.path());
}

/// Names of a partition's files that a round leaves when it is cut.
fn unfinished(data_dir: &Path) -> usize {
    let partition = format!("{TOPIC}-0");
    let count = |extension| files_of(data_dir, &partition, extension).len();
    count("cleaned") + count("swap")
}

#[test]
fn given_a_kill_within_a_round_then_nothing_is_lost_and_the_next_start_goes_on() {
    let dir = data_dir();
    // So that a round takes a while.
    let slow = diligent(dir.path()).set("log.cleaner.io.max.bytes.per.second=400000");
    let rounds = 150;
    let broker = launch(dir.path()).set("log.cleaner.enable=false").start();
    fill(&broker, &COMPACTED, rounds);
    let before = read(&broker);
    assert_eq!(before.len() as i64, KEYS * rounds, "nothing was compacted");
    broker.stop();
    for _ in 0..3 {
        let broker = slow.start();
        let begun = Instant::now();
        while unfinished(dir.path()) == 0 {
            assert!(
                begun.elapsed() < PATIENCE,
                "a round writes: {}",
                broker.said()
            );
            std::thread::yield_now();
        }
        assert_eq!(
            Scrape::of(&broker).one(RUNNING, &[]),
            1.0,
            "a round is under way"
        );
        broker.kill();
        assert!(unfinished(dir.path()) > 0, "the kill was within the round");
    }
    let broker = slow.start();
    assert_eq!(table(&read(&broker)), table_of(rounds - 1));
    assert_eq!(end(&broker), KEYS * rounds);
    // A stop within a round does not wait for it.
    wait_for(&broker, "a round", |scrape| scrape.one(RUNNING, &[]) > 0.0);
    broker.stop();
    let broker = diligent(dir.path()).start();
    wait_for_bytes(&broker, TOPIC, SMALL);
    assert_eq!(table(&read(&broker)), table_of(rounds - 1));
    assert_eq!(end(&broker), KEYS * rounds);
    broker.stop();
    assert_eq!(unfinished(dir.path()), 0);
    verify(dir.path());
}

#[test]
fn given_a_topic_that_becomes_compacted_and_is_not_any_more_then_its_gaps_stay_readable() {
    let dir = data_dir();
    let launch = diligent(dir.path());
    let broker = launch.start();
    let rounds = 60;
    let deleted = [("segment.bytes", "16384"), ("file.delete.delay.ms", "0")];
    fill(&broker, &deleted, rounds);
    assert_eq!(read(&broker).len() as i64, KEYS * rounds);
    let set = |broker: &Broker, name: &'static str, to: &'static str| {
        let altered = with(broker.addr(), move |c| async move {
            alter(&c, TOPIC, &[(name, SET, Some(to))]).await
        });
        assert_eq!(altered.0, 0, "{}", altered.1);
    };
    set(&broker, "cleanup.policy", "compact");
    wait_for_bytes(&broker, TOPIC, SMALL);
    let compacted = read(&broker);
    assert!(compacted.len() < 300, "{}", compacted.len());
    broker.stop();
    let broker = launch.start();
    assert_eq!(read(&broker), compacted);
    set(&broker, "cleanup.policy", "delete");
    with(broker.addr(), move |c| async move {
        produce_rounds(&c, TOPIC, rounds..rounds + 20).await
    });
    let all = read(&broker);
    assert_eq!(all.len(), compacted.len() + 20 * KEYS as usize);
    assert_eq!(all[..compacted.len()], compacted);
    // Neither start takes a gap for the end of the log.
    broker.kill();
    let broker = launch.start();
    assert_eq!(read(&broker), all);
    broker.stop();
    let broker = launch.start();
    assert_eq!(read(&broker), all);
    set(&broker, "cleanup.policy", "compact,delete");
    wait_for_bytes(&broker, TOPIC, SMALL);
    assert_eq!(table(&read(&broker)), table_of(rounds + 19));
    broker.stop();
    verify(dir.path());
}

#[test]
fn given_batches_of_each_codec_then_what_stays_of_them_is_as_it_was_sent() {
    let dir = data_dir();
    let broker = diligent(dir.path()).start();
    let rounds = 60;
    let sent = |codec: Compression, round: i64, n: i64| {
        // Little of it can be compressed, so that segments fill.
        let seed = (codec as i64 * 1_000 + round) * 1_000 + n;
        let mut state = seed as u64;
        let mut value = format!("{round} ");
        while value.len() < 400 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            value += &format!("{:x}", state >> 20);
        }
        keyed(key(n), value)
    };
    for codec in Compression::ALL {
        let topic = format!("{codec:?}");
        let records = with(broker.addr(), {
            let topic = topic.clone();
            move |c| async move {
                create(&c, &topic, &COMPACTED).await;
                for round in 0..rounds {
                    let records: Vec<Keyed> = (0..KEYS).map(|n| sent(codec, round, n)).collect();
                    produce_ok(&c, &topic, 0, batch_of(&records, codec)).await;
                }
                read_all(&c, &topic, 0).await
            }
        });
        let expected = table(&records);
        wait_for_bytes(&broker, &topic, SMALL);
        let (records, first) = with(broker.addr(), move |c| async move {
            let first = fetch(&c, &topic, 0, 0, 0, 1).await;
            let first = first.records.expect("records").to_bytes();
            let first = BatchView::parse(first).expect("one batch");
            (read_all(&c, &topic, 0).await, *first.header())
        });
        assert_eq!(table(&records), expected, "{codec:?}");
        assert!((records.len() as i64) < KEYS * rounds, "{codec:?}");
        assert_eq!(first.attributes.compression(), Ok(codec));
    }
    broker.stop();
    verify(dir.path());
}

#[test]
fn given_an_idempotent_producer_then_its_last_batch_is_known_after_compaction_and_a_kill() {
    let dir = data_dir();
    let launch = diligent(dir.path());
    let broker = launch.start();
    let (id, offset) = with(broker.addr(), |c| async move {
        create(&c, TOPIC, &COMPACTED).await;
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: i32::MAX,
            ..Default::default()
        };
        let answer = c.call(&request).await.expect("an answer");
        assert_eq!(answer.error_code, 0);
        let id = answer.producer_id;
        let first = [keyed(key(0), "first"), keyed(key(1), "first")];
        produce_ok(&c, TOPIC, 0, batch_by(id, 0, &first)).await;
        let second = [keyed(key(2), "second")];
        let offset = produce_ok(&c, TOPIC, 0, batch_by(id, 2, &second)).await;
        // Others replace all of its records.
        produce_rounds(&c, TOPIC, 0..60).await;
        (id, offset)
    });
    wait_for_bytes(&broker, TOPIC, SMALL);
    let again = move |broker: &Broker| {
        with(broker.addr(), move |c| async move {
            let records = read_all(&c, TOPIC, 0).await;
            assert!(records.iter().all(|r| r.value.as_deref() != Some("second")));
            let end = end_of(&c, TOPIC).await;
            let second = batch_by(id, 2, &[keyed(key(2), "second")]);
            let answer = produce(&c, TOPIC, 0, -1, second).await;
            assert_eq!((answer.error_code, answer.base_offset), (0, offset));
            assert_eq!(end_of(&c, TOPIC).await, end, "nothing was written");
            let gap = produce(&c, TOPIC, 0, -1, batch_by(id, 4, &[keyed("k", "v")])).await;
            let code = ErrorCode::OutOfOrderSequenceNumber.code();
            assert_eq!(gap.error_code, code);
        })
    };
    again(&broker);
    broker.kill();
    // Not even a snapshot is there: the log itself tells.
    for snapshot in files_of(dir.path(), &format!("{TOPIC}-0"), "snapshot") {
        std::fs::remove_file(snapshot).expect("it can be removed");
    }
    let broker = launch.start();
    again(&broker);
    with(broker.addr(), move |c| async move {
        let next = batch_by(id, 3, &[keyed("next", "third")]);
        let end = end_of(&c, TOPIC).await;
        assert_eq!(produce_ok(&c, TOPIC, 0, next).await, end);
    });
    broker.stop();
    verify(dir.path());
}

/// DeleteRecords of the partition up to the high watermark: the error.
async fn delete_all(c: &BrokerConnection, topic: &str) -> i16 {
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: text(topic),
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset: -1,
            }],
        }],
        timeout_ms: 30_000,
    };
    let mut answer = c.call(&request).await.expect("an answer");
    answer.topics.remove(0).partitions.remove(0).error_code
}

#[test]
fn given_each_policy_then_keys_are_demanded_and_records_deleted_as_in_kafka() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .with_admin()
        .set("log.cleaner.backoff.ms=50")
        .set("log.retention.check.interval.ms=50")
        .set("log.initial.task.delay.ms=0")
        .start();
    let rounds = 40;
    with(broker.addr(), move |c| async move {
        for (topic, policy) in [("compact", "compact"), ("both", "compact,delete")] {
            let mut configs = COMPACTED.to_vec();
            configs[0] = ("cleanup.policy", policy);
            // Old at once.
            configs.push(("retention.ms", "1"));
            create(&c, topic, &configs).await;
            let refused = produce(&c, topic, 0, -1, keyless("no key")).await;
            assert_eq!(refused.error_code, ErrorCode::InvalidRecord.code());
            assert_eq!(refused.record_errors.len(), 1);
            assert_eq!(refused.record_errors[0].batch_index, 0);
            assert_eq!(end_of(&c, topic).await, 0, "nothing of it was written");
            produce_rounds(&c, topic, 0..rounds).await;
        }
        let code = ErrorCode::PolicyViolation.code();
        assert_eq!(delete_all(&c, "compact").await, code);
    });
    // By its age all of it goes where the policy has `delete`.
    wait_for(&broker, "retention", |scrape| {
        let labels = [("topic", "both")];
        let name = "highwater_partition_log_start_offset";
        scrape.one(name, &labels) == (KEYS * rounds) as f64
    });
    wait_for_bytes(&broker, "compact", SMALL);
    with(broker.addr(), move |c| async move {
        let records = read_all(&c, "compact", 0).await;
        assert_eq!(table(&records), table_of(rounds - 1));
        assert_eq!(list_offset(&c, "compact", 0, -2).await.offset, 0);
        assert_eq!(end_of(&c, "both").await, KEYS * rounds);
        assert_eq!(delete_all(&c, "both").await, 0);
    });
    broker.stop();
    verify(dir.path());
}

#[test]
fn given_no_cleaner_then_nothing_is_compacted_until_there_is_one() {
    let dir = data_dir();
    let watchful = |enable: &str| {
        diligent(dir.path())
            .set(format!("log.cleaner.enable={enable}"))
            .set("log.retention.check.interval.ms=20")
            .set("log.initial.task.delay.ms=0")
    };
    let broker = watchful("false").start();
    fill(&broker, &COMPACTED, 40);
    // Other background work comes and goes meanwhile, seven times.
    for n in 0..7 {
        with(broker.addr(), move |c| async move {
            let topic = format!("expires-{n}");
            create(&c, &topic, &[("retention.ms", "1")]).await;
            produce_ok(&c, &topic, 0, keyless("old")).await;
        });
        wait_for(&broker, "retention", |scrape| {
            scrape.one("highwater_segments_removed_total", &[]) > f64::from(n)
        });
    }
    assert_eq!(Scrape::of(&broker).one(ROUNDS, &[]), 0.0);
    assert_eq!(read(&broker).len() as i64, KEYS * 40);
    broker.stop();
    let broker = watchful("true").start();
    wait_for_bytes(&broker, TOPIC, SMALL);
    assert!(Scrape::of(&broker).one(ROUNDS, &[]) >= 1.0);
    broker.stop();
}

/// C10 of the field's cases (KAFKA-9617, 6834).
#[test]
fn given_records_larger_than_is_allowed_now_then_they_are_compacted_and_read_all_the_same() {
    let dir = data_dir();
    let launch = diligent(dir.path());
    let broker = launch.start();
    let large = |n: i64| "x".repeat(900_000) + &n.to_string();
    with(broker.addr(), move |c| async move {
        let mut configs = COMPACTED.to_vec();
        // No look for dirty logs finds it yet.
        configs[1] = ("segment.bytes", "2000000");
        configs[2] = ("min.cleanable.dirty.ratio", "1");
        create(&c, TOPIC, &configs).await;
        for n in 0..6 {
            let batch = batch_of(&[keyed("large", large(n))], Compression::None);
            produce_ok(&c, TOPIC, 0, batch).await;
        }
        let ops = [
            ("max.message.bytes", SET, Some("1000")),
            ("min.cleanable.dirty.ratio", SET, Some("0.01")),
        ];
        let altered = alter(&c, TOPIC, &ops).await;
        assert_eq!(altered.0, 0, "{}", altered.1);
    });
    wait_for(&broker, "compaction", |scrape| {
        scrape.one(REMOVED, &[]) > 0.0
    });
    broker.kill();
    let broker = launch.start();
    let records = read(&broker);
    let last = BTreeMap::from([("large".to_owned(), large(5))]);
    assert_eq!(table(&records), last);
    assert!(records.len() < 6);
    let refused = with(broker.addr(), |c| async move {
        let batch: Bytes = batch_of(&[keyed("k", "y".repeat(2_000))], Compression::None);
        produce(&c, TOPIC, 0, -1, batch).await.error_code
    });
    assert_eq!(refused, ErrorCode::MessageTooLarge.code());
    broker.stop();
    verify(dir.path());
}
