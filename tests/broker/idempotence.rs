//! Idempotent producers against the process: ids, sequences, retries, restarts.

use super::client::{create_topic, fetch_all, list_offset, produce, text, with};
use super::files::{files_of, len_of, scribble};
use super::{data_dir, launch};
use bytes::Bytes;
use highwater::client::BrokerConnection;
use highwater::protocol::batch::BatchBuilder;
use highwater::protocol::messages::*;
use highwater::protocol::ErrorCode;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const TOPIC: &str = "orders";

/// A batch of `records` records.
fn batch(id: i64, epoch: i16, sequence: i32, records: i32) -> Bytes {
    let mut batch = BatchBuilder::new().producer(id, epoch, sequence);
    for n in 0..records {
        let value = format!("{id}-{epoch}-{}", i64::from(sequence) + i64::from(n));
        batch.push(1_700_000_000_000, None, Some(value.as_bytes()));
    }
    batch.build()
}

/// Produces with acks=all: the base offset, or the error code.
async fn send(connection: &BrokerConnection, batch: Bytes) -> Result<i64, ErrorCode> {
    let answer = produce(connection, TOPIC, 0, -1, batch).await;
    match answer.error_code {
        0 => Ok(answer.base_offset),
        code => {
            assert!(answer.error_message.is_some(), "it says why");
            Err(ErrorCode::from_code(code).expect("a code of Kafka's"))
        }
    }
}

async fn end_offset(connection: &BrokerConnection) -> i64 {
    list_offset(connection, TOPIC, 0, -1).await.offset
}

async fn init(connection: &BrokerConnection) -> i64 {
    let answer = connection.call(&request_of_id()).await.expect("an answer");
    assert_eq!((answer.error_code, answer.producer_epoch), (0, 0));
    answer.producer_id
}

/// What a producer without transactions asks.
fn request_of_id() -> InitProducerIdRequest {
    InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..Default::default()
    }
}

/// The sizes of the five batches of one producer.
const SIZES: [i32; 5] = [3, 1, 7, 2, 5];

/// Sends the five batches again: each is answered with its original offset, and nothing
/// is written.
async fn resend_all(connection: &BrokerConnection, id: i64) {
    let end = end_offset(connection).await;
    let (mut sequence, mut offset) = (0, 0);
    for records in SIZES {
        let again = send(connection, batch(id, 0, sequence, records)).await;
        assert_eq!(again, Ok(offset), "sequence {sequence}");
        sequence += records;
        offset += i64::from(records);
    }
    assert_eq!(end_offset(connection).await, end);
}

/// C17 of the field's cases (redpanda#3039, 3038; KAFKA-7692).
#[test]
fn given_five_batches_when_each_is_sent_again_then_its_offset_is_answered_also_after_restarts() {
    let dir = data_dir();
    let launch = launch(dir.path());
    let broker = launch.start();
    let id = with(broker.addr(), |c| async move {
        create_topic(&c, TOPIC, 1, &[]).await;
        let id = init(&c).await;
        let (mut sequence, mut offset) = (0, 0);
        for records in SIZES {
            let sent = send(&c, batch(id, 0, sequence, records)).await;
            assert_eq!(sent, Ok(offset));
            sequence += records;
            offset += i64::from(records);
        }
        resend_all(&c, id).await;
        id
    });
    broker.stop();

    let broker = launch.start();
    with(
        broker.addr(),
        move |c| async move { resend_all(&c, id).await },
    );
    broker.kill();

    let broker = launch.start();
    with(broker.addr(), move |c| async move {
        resend_all(&c, id).await;
        let skipped = send(&c, batch(id, 0, 19, 1)).await;
        assert_eq!(skipped, Err(ErrorCode::OutOfOrderSequenceNumber));
        assert_eq!(send(&c, batch(id, 0, 18, 1)).await, Ok(18), "the next one");
        let oldest = send(&c, batch(id, 0, 0, 3)).await;
        let out_of_order = Err(ErrorCode::OutOfOrderSequenceNumber);
        assert_eq!(oldest, out_of_order, "beyond the last five");
        assert_eq!(send(&c, batch(id, 1, 5, 1)).await, out_of_order);
        assert_eq!(send(&c, batch(id, 1, 0, 1)).await, Ok(19), "a new epoch");
        let older = send(&c, batch(id, 0, 19, 1)).await;
        assert_eq!(older, Err(ErrorCode::InvalidProducerEpoch));
        assert_eq!(end_offset(&c).await, 20);
        assert_eq!(fetch_all(&c, TOPIC, 0, 0).await.len(), 20);
    });
    broker.stop();
}

#[test]
fn given_forged_ids_epochs_and_sequences_then_they_are_taken_or_refused_as_kafka_does() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, TOPIC, 1, &[]).await;
        // Sequences wrap from 2^31-1 to 0, between batches and within one.
        assert_eq!(send(&c, batch(7, 0, i32::MAX - 1, 2)).await, Ok(0));
        assert_eq!(send(&c, batch(7, 0, 0, 1)).await, Ok(2));
        assert_eq!(send(&c, batch(8, 0, i32::MAX, 2)).await, Ok(3));
        assert_eq!(send(&c, batch(8, 0, 1, 1)).await, Ok(5));
        assert_eq!(send(&c, batch(8, 0, i32::MAX, 2)).await, Ok(3), "known");
        // An unknown id may begin anywhere.
        assert_eq!(send(&c, batch(i64::MAX, i16::MAX, 123, 1)).await, Ok(6));
        assert_eq!(send(&c, batch(i64::MAX, i16::MAX, 123, 1)).await, Ok(6));
        let old = send(&c, batch(i64::MAX, 0, 0, 1)).await;
        assert_eq!(old, Err(ErrorCode::InvalidProducerEpoch));
        // No epoch at all.
        assert_eq!(send(&c, batch(9, -1, 4, 1)).await, Ok(7));
        assert_eq!(send(&c, batch(9, -1, 4, 1)).await, Ok(7));
        let none = send(&c, batch(10, -2, 0, 1)).await;
        assert_eq!(none, Err(ErrorCode::InvalidProducerEpoch));
        let negative = send(&c, batch(11, 0, -1, 1)).await;
        assert_eq!(negative, Err(ErrorCode::InvalidRecord));
        // Without an id nothing is compared.
        assert_eq!(send(&c, batch(-1, -1, -1, 1)).await, Ok(8));
        assert_eq!(send(&c, batch(-1, -1, -1, 1)).await, Ok(9));
        assert_eq!(send(&c, batch(-2, 0, 0, 1)).await, Ok(10));
        assert_eq!(send(&c, batch(-2, 0, 0, 1)).await, Ok(11));
        let mut transactional = BatchBuilder::new().producer(7, 0, 1).transactional(true);
        transactional.push(1_700_000_000_000, None, Some(b"x"));
        let refused = send(&c, transactional.build()).await;
        assert_eq!(refused, Err(ErrorCode::InvalidTxnState));
        assert_eq!(end_offset(&c).await, 12);
    });
    // What has wrapped is known as such after either stop.
    let mut broker = broker;
    for clean in [true, false] {
        match clean {
            true => drop(broker.stop()),
            false => broker.kill(),
        }
        broker = launch(dir.path()).start();
        with(broker.addr(), move |c| async move {
            assert_eq!(send(&c, batch(7, 0, i32::MAX - 1, 2)).await, Ok(0), "known");
            assert_eq!(send(&c, batch(7, 0, 0, 1)).await, Ok(2), "known");
            assert_eq!(send(&c, batch(8, 0, i32::MAX, 2)).await, Ok(3), "known");
            let skipped = send(&c, batch(8, 0, 4, 1)).await;
            assert_eq!(skipped, Err(ErrorCode::OutOfOrderSequenceNumber));
            assert_eq!(end_offset(&c).await, 12);
        });
    }
    with(broker.addr(), |c| async move {
        assert_eq!(send(&c, batch(7, 0, 1, 1)).await, Ok(12));
        assert_eq!(send(&c, batch(8, 0, 2, 1)).await, Ok(13));
    });
    broker.stop();
}

/// C6 of the field's cases (KAFKA-5747, 9892).
#[test]
fn given_a_bad_producer_snapshot_after_either_stop_then_a_retry_gets_its_original_offset() {
    for clean in [false, true] {
        let dir = data_dir();
        let launch = launch(dir.path());
        let broker = launch.start();
        with(broker.addr(), |c| async move {
            create_topic(&c, TOPIC, 1, &[]).await;
            for n in 0..4 {
                assert_eq!(send(&c, batch(7, 0, n, 1)).await, Ok(i64::from(n)));
            }
        });
        broker.stop();
        let broker = launch.start();
        with(broker.addr(), |c| async move {
            for n in 4..6 {
                assert_eq!(send(&c, batch(7, 0, n, 1)).await, Ok(i64::from(n)));
            }
        });
        match clean {
            true => drop(broker.stop()),
            false => broker.kill(),
        }
        let snapshots = files_of(dir.path(), "orders-0", "snapshot");
        let newest = snapshots.last().expect("a clean stop wrote one");
        let printed = dump(newest);
        assert!(
            printed.contains("producerId: 7 producerEpoch: 0"),
            "{printed}"
        );
        assert!(
            printed.contains("before it: firstSequence: 1 "),
            "{printed}"
        );
        let zeros = vec![0; len_of(newest) as usize];
        scribble(newest, 0, &zeros);

        let broker = launch.start();
        with(broker.addr(), |c| async move {
            for n in (1..6).rev() {
                let again = send(&c, batch(7, 0, n, 1)).await;
                assert_eq!(again, Ok(i64::from(n)), "sequence {n}");
            }
            assert_eq!(end_offset(&c).await, 6);
            assert_eq!(send(&c, batch(7, 0, 6, 1)).await, Ok(6));
        });
        broker.stop();
    }
}

/// What `highwater log dump` prints of a snapshot.
fn dump(snapshot: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_highwater"))
        .args(["log", "dump"])
        .arg(snapshot)
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

#[test]
fn given_crashes_and_stops_and_many_who_ask_at_once_then_no_producer_id_is_given_out_twice() {
    let dir = data_dir();
    let mut all = BTreeSet::new();
    for round in 0..5 {
        // Another number of shards each time: blocks are the broker's, not a shard's.
        let broker = launch(dir.path()).shards(1 + round % 3).start();
        let addr = broker.addr();
        let askers: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(move || {
                    with(addr, |c| async move {
                        let mut ids = Vec::new();
                        for _ in 0..200 {
                            ids.push(init(&c).await);
                        }
                        ids
                    })
                })
            })
            .collect();
        for asker in askers {
            for id in asker.join().expect("it is answered") {
                assert!(id >= 0);
                assert!(all.insert(id), "{id} was given out twice");
            }
        }
        match round {
            1 | 3 => drop(broker.stop()),
            _ => broker.kill(),
        }
    }
    assert_eq!(all.len(), 5 * 8 * 200);
}

#[test]
fn given_requests_for_a_producer_id_then_they_are_answered_by_kafkas_rules() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        let mut ids = BTreeSet::new();
        for version in 0..=5 {
            let wait = c.start_as(&request_of_id(), version).await.expect("sent");
            let answer = wait.await.expect("an answer");
            assert_eq!((answer.error_code, answer.producer_epoch), (0, 0));
            assert!(ids.insert(answer.producer_id), "v{version}: a new id");
        }
        let with_id = InitProducerIdRequest {
            producer_id: 0,
            producer_epoch: 3,
            ..request_of_id()
        };
        let answer = c.call(&with_id).await.expect("an answer");
        assert_eq!((answer.error_code, answer.producer_epoch), (0, 0));
        assert!(ids.insert(answer.producer_id), "a new id, whatever it had");
        let refused = [
            (Some(""), -1, -1, ErrorCode::InvalidRequest),
            (None, 5, -1, ErrorCode::InvalidRequest),
            (None, -1, 5, ErrorCode::InvalidRequest),
            (
                Some("payments"),
                -1,
                -1,
                ErrorCode::TransactionalIdAuthorizationFailed,
            ),
        ];
        for (transactional_id, producer_id, producer_epoch, code) in refused {
            let request = InitProducerIdRequest {
                transactional_id: transactional_id.map(text),
                transaction_timeout_ms: 60_000,
                producer_id,
                producer_epoch,
            };
            let answer = c.call(&request).await.expect("an answer");
            assert_eq!(answer.error_code, code.code());
            assert_eq!((answer.producer_id, answer.producer_epoch), (-1, -1));
        }
    });
    broker.stop();
}

/// The producers of a partition by id: epoch, last sequence, last timestamp.
async fn described(
    c: &BrokerConnection,
    topic: &str,
    partition: i32,
) -> Result<BTreeMap<i64, (i32, i32, i64)>, i16> {
    let request = DescribeProducersRequest {
        topics: vec![DescribeProducersTopic {
            name: text(topic),
            partition_indexes: vec![partition],
        }],
    };
    let mut answer = c.call(&request).await.expect("an answer");
    let answer = answer.topics.remove(0).partitions.remove(0);
    assert_eq!(answer.partition_index, partition);
    if answer.error_code != 0 {
        return Err(answer.error_code);
    }
    let state = |p: &DescribeProducersState| {
        assert_eq!((p.coordinator_epoch, p.current_txn_start_offset), (-1, -1));
        let state = (p.producer_epoch, p.last_sequence, p.last_timestamp);
        (p.producer_id, state)
    };
    Ok(answer.active_producers.iter().map(state).collect())
}

#[test]
fn given_producers_when_described_then_their_last_batches_are_told_until_they_expire() {
    let dir = data_dir();
    let launch = launch(dir.path());
    let broker = launch.start();
    let expected = BTreeMap::from([
        (7, (0, 3, 1_700_000_000_000)),
        (8, (2, 11, 1_700_000_000_000)),
    ]);
    let wanted = expected.clone();
    with(broker.addr(), move |c| async move {
        create_topic(&c, TOPIC, 2, &[]).await;
        for (id, epoch, sequence, records) in [(7, 0, 0, 2), (8, 2, 11, 1), (7, 0, 2, 2)] {
            let sent = send(&c, batch(id, epoch, sequence, records)).await;
            sent.expect("taken");
        }
        assert_eq!(described(&c, TOPIC, 0).await, Ok(wanted));
        assert_eq!(described(&c, TOPIC, 1).await, Ok(BTreeMap::new()));
        let unknown = Err(ErrorCode::UnknownTopicOrPartition.code());
        assert_eq!(described(&c, TOPIC, 2).await, unknown);
        assert_eq!(described(&c, TOPIC, -1).await, unknown);
        assert_eq!(described(&c, "none", 0).await, unknown);
    });
    broker.stop();
    // The records are old, but the producers were at work just now.
    let broker = launch.start();
    with(broker.addr(), move |c| async move {
        assert_eq!(described(&c, TOPIC, 0).await, Ok(expected));
    });
    broker.stop();
    let broker = launch
        .set("producer.id.expiration.ms=1")
        .set("producer.id.expiration.check.interval.ms=50")
        .start();
    with(broker.addr(), |c| async move {
        let start = std::time::Instant::now();
        while described(&c, TOPIC, 0).await != Ok(BTreeMap::new()) {
            let waited = start.elapsed();
            assert!(waited < std::time::Duration::from_secs(60), "never expired");
        }
        let unknown = send(&c, batch(7, 0, 99, 1)).await;
        assert_eq!(unknown, Ok(5), "any sequence will do");
    });
    broker.stop();
}

#[test]
fn given_a_hundred_thousand_forged_producer_ids_then_memory_is_bounded_and_who_is_at_work_is_known()
{
    const FORGED: i64 = 100_000;
    const WINDOW: i64 = 250;
    /// What a partition remembers at most.
    const KNOWN_MAX: usize = 12_500;
    /// Two states of the partition, the batches themselves, and what the allocator keeps.
    const GROWTH_MAX: u64 = 32 << 20;
    let dir = data_dir();
    let launch = launch(dir.path())
        .set("cache.bytes=1048576")
        .set("flush.on.ack=none");
    let broker = launch.start();
    let before = broker.resident_bytes();
    with(broker.addr(), |c| async move {
        create_topic(&c, TOPIC, 1, &[]).await;
        for first in (0..FORGED).step_by(WINDOW as usize) {
            let sequence = (first / WINDOW) as i32;
            let at_work = send(&c, batch(1, 0, sequence, 1)).await;
            at_work.expect("in sequence");
            let mut waits = Vec::new();
            for id in first..first + WINDOW {
                let forged = batch(1_000_000 + id, 0, 5, 1);
                let request = super::client::produce_request(TOPIC, 0, 1, forged);
                waits.push(c.start_as(&request, 12).await.expect("sent"));
            }
            for wait in waits {
                let answer = wait.await.expect("an answer");
                assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
            }
        }
        let known = described(&c, TOPIC, 0).await.expect("described");
        assert!(known.len() <= KNOWN_MAX, "{} are known", known.len());
        assert!(known.contains_key(&(1_000_000 + FORGED - 1)), "the newest");
        let last = (FORGED / WINDOW) as i32 - 1;
        assert_eq!(known.get(&1).map(|p| p.1), Some(last), "the one at work");
        let end = end_offset(&c).await;
        let again = send(&c, batch(1, 0, last, 1)).await;
        assert_eq!(again, Ok(end - WINDOW - 1), "its last batch is known");
        assert_eq!(end_offset(&c).await, end);
    });
    let grown = broker.resident_bytes().saturating_sub(before);
    println!("memory grew by {grown} bytes");
    assert!(grown < GROWTH_MAX, "memory grew by {grown} bytes");
    broker.kill();
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        let known = described(&c, TOPIC, 0).await.expect("described");
        assert!(known.len() <= KNOWN_MAX && known.contains_key(&1));
    });
    broker.stop();
}
