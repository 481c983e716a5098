//! Offsets by timestamp and by mark, and the ends of leader epochs.

use super::client::{batch_at, create_topic, list_offset, produce, produce_ok, text, with};
use super::{data_dir, launch};
use bytes::Bytes;
use highwater::client::BrokerConnection;
use highwater::protocol::batch::{BatchBuilder, Compression};
use highwater::protocol::messages::*;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const T: i64 = 1_700_000_000_000;

fn compressed(compression: Compression, timestamps: &[i64]) -> Bytes {
    let mut batch = BatchBuilder::new().compression(compression);
    for timestamp in timestamps {
        batch.push(*timestamp, None, Some(&[b'v'; 100]));
    }
    batch.build()
}

fn ask(topic: &str, timestamps: &[i64]) -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: text(topic),
            partitions: timestamps
                .iter()
                .enumerate()
                .map(|(partition, timestamp)| ListOffsetsPartition {
                    partition_index: partition as i32,
                    current_leader_epoch: -1,
                    timestamp: *timestamp,
                })
                .collect(),
        }],
        ..Default::default()
    }
}

/// Error, offset and timestamp of each partition.
async fn listed(
    connection: &BrokerConnection,
    request: &ListOffsetsRequest,
    version: i16,
) -> Vec<(i16, i64, i64)> {
    let wait = connection.start_as(request, version).await.expect("sent");
    let response = wait.await.expect("an answer");
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|p| (p.error_code, p.offset, p.timestamp))
        .collect()
}

#[test]
fn given_compressed_batches_then_every_record_is_found_by_its_timestamp() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        for (name, codec) in [
            ("none", Compression::None),
            ("gzip", Compression::Gzip),
            ("snappy", Compression::Snappy),
            ("lz4", Compression::Lz4),
            ("zstd", Compression::Zstd),
        ] {
            create_topic(&c, name, 1, &[]).await;
            produce_ok(&c, name, 0, compressed(codec, &[T + 10, T + 30, T + 20])).await;
            produce_ok(&c, name, 0, compressed(codec, &[T + 5, T + 40, T + 40])).await;
            let found = |timestamp| {
                let c = c.clone();
                async move {
                    let found = list_offset(&c, name, 0, timestamp).await;
                    assert_eq!(found.error_code, 0, "{name}");
                    (found.offset, found.timestamp)
                }
            };
            assert_eq!(found(0).await, (0, T + 10), "{name}");
            assert_eq!(found(T + 10).await, (0, T + 10), "{name}");
            assert_eq!(found(T + 11).await, (1, T + 30), "{name}");
            assert_eq!(found(T + 31).await, (4, T + 40), "{name}");
            assert_eq!(found(T + 41).await, (-1, -1), "{name}");
            assert_eq!(found(MAX_TIMESTAMP).await, (4, T + 40), "{name}");
            assert_eq!(found(LATEST).await, (6, -1), "{name}");
            assert_eq!(found(EARLIEST).await, (0, -1), "{name}");
            assert_eq!(found(EARLIEST_LOCAL).await, (0, -1), "{name}");
            assert_eq!(found(LATEST_TIERED).await, (-1, -1), "{name}");
        }
    });
    broker.stop();
}

#[test]
fn given_each_version_then_a_mark_is_refused_before_the_version_that_brought_it() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "marks", 6, &[]).await;
        for partition in 0..6 {
            produce_ok(&c, "marks", partition, batch_at(T, "v")).await;
        }
        let request = ask(
            "marks",
            &[
                LATEST,
                EARLIEST,
                MAX_TIMESTAMP,
                EARLIEST_LOCAL,
                LATEST_TIERED,
                -6,
            ],
        );
        for version in 1..=10 {
            let known = |from, offset, timestamp| match version >= from {
                true => (0, offset, timestamp),
                false => (35, -1, -1),
            };
            let expected = [
                known(1, 1, -1),
                known(1, 0, -1),
                known(7, 0, T),
                known(8, 0, -1),
                known(9, -1, -1),
                (35, -1, -1),
            ];
            assert_eq!(listed(&c, &request, version).await, expected, "v{version}");
        }
    });
    broker.stop();
}

#[test]
fn given_odd_requests_then_each_partition_has_its_own_error() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "odd", 2, &[]).await;
        produce_ok(&c, "odd", 0, batch_at(T, "v")).await;
        // Named twice, in one topic and in two; another partition is not concerned.
        let mut twice = ask("odd", &[LATEST, LATEST]);
        let again = twice.topics[0].partitions[0].clone();
        twice.topics[0].partitions.push(again.clone());
        let answers = listed(&c, &twice, 10).await;
        assert_eq!(answers, [(42, -1, -1), (0, 0, -1), (42, -1, -1)]);
        twice.topics[0].partitions.pop();
        twice.topics.push(ListOffsetsTopic {
            name: text("odd"),
            partitions: vec![again],
        });
        let answers = listed(&c, &twice, 10).await;
        assert_eq!(answers, [(42, -1, -1), (0, 0, -1), (42, -1, -1)]);
        // A partition and a topic that do not exist.
        let absent = ask("odd", &[LATEST, LATEST, LATEST]);
        assert_eq!(listed(&c, &absent, 6).await[2], (3, -1, -1));
        let absent = ask("nowhere", &[LATEST]);
        assert_eq!(listed(&c, &absent, 6).await, [(3, -1, -1)]);
        // Who asks, and how.
        for (replica_id, isolation_level, expected) in [
            (-1, 0, (0, 1, -1)),
            (-1, 1, (0, 1, -1)),
            (-1, 2, (42, -1, -1)),
            (-2, 0, (0, 1, -1)),
        ] {
            let request = ListOffsetsRequest {
                replica_id,
                isolation_level,
                ..ask("odd", &[LATEST])
            };
            assert_eq!(listed(&c, &request, 10).await, [expected]);
        }
        // Another leader epoch.
        let mut fenced = ask("odd", &[LATEST]);
        fenced.topics[0].partitions[0].current_leader_epoch = 1_000;
        assert_eq!(listed(&c, &fenced, 10).await, [(75, -1, -1)]);
        assert!(listed(&c, &ask("odd", &[]), 10).await.is_empty());
    });
    broker.stop();
}

/// What DeleteRecords took away within a batch is not found, though the batch's header
/// counts it; a fetch session tells that the log starts later.
#[test]
fn given_a_log_start_within_a_batch_then_nothing_below_it_is_found() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let topic_id = create_topic(&c, "cut", 1, &[]).await.topic_id;
        let batch = compressed(Compression::Zstd, &[T + 90, T + 20, T + 50, T + 30]);
        produce_ok(&c, "cut", 0, batch).await;
        let mut fetch = FetchRequest {
            max_wait_ms: 20,
            min_bytes: 1,
            max_bytes: 1 << 20,
            session_epoch: 0,
            topics: vec![FetchTopic {
                topic_id,
                partitions: vec![FetchPartition {
                    fetch_offset: 4,
                    partition_max_bytes: 1 << 20,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let full = c.call(&fetch).await.expect("an answer");
        let delete = DeleteRecordsRequest {
            topics: vec![DeleteRecordsTopic {
                name: text("cut"),
                partitions: vec![DeleteRecordsPartition {
                    partition_index: 0,
                    offset: 1,
                }],
            }],
            timeout_ms: 30_000,
        };
        let deleted = c.call(&delete).await.expect("an answer");
        assert_eq!(deleted.topics[0].partitions[0].error_code, 0);
        for (timestamp, offset, found) in [
            (0, 1, T + 20),
            (T + 21, 2, T + 50),
            (T + 51, -1, -1),
            (MAX_TIMESTAMP, 2, T + 50),
            (EARLIEST, 1, -1),
            (EARLIEST_LOCAL, 1, -1),
            (LATEST, 4, -1),
        ] {
            let listed = list_offset(&c, "cut", 0, timestamp).await;
            assert_eq!((listed.offset, listed.timestamp), (offset, found));
        }
        fetch.topics.clear();
        (fetch.session_id, fetch.session_epoch) = (full.session_id, 1);
        let told = c.call(&fetch).await.expect("an answer");
        let partition = &told.responses[0].partitions[0];
        assert_eq!((partition.error_code, partition.log_start_offset), (0, 1));
        fetch.session_epoch = 2;
        let told = c.call(&fetch).await.expect("an answer");
        assert!(told.responses.is_empty(), "once is enough");
    });
    broker.stop();
}

#[test]
fn given_the_time_of_the_append_then_a_batch_is_found_by_it_at_its_first_record() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let configs = [("message.timestamp.type", "LogAppendTime")];
        create_topic(&c, "appended", 1, &configs).await;
        let mut times = Vec::new();
        for _ in 0..2 {
            let batch = compressed(Compression::Gzip, &[T + 90, T + 20]);
            let answer = produce(&c, "appended", 0, -1, batch).await;
            assert_eq!(answer.error_code, 0);
            assert!(answer.log_append_time_ms > T + 90);
            times.push(answer.log_append_time_ms);
        }
        let found = |timestamp| {
            let c = c.clone();
            async move {
                let listed = list_offset(&c, "appended", 0, timestamp).await;
                (listed.offset, listed.timestamp)
            }
        };
        assert_eq!(found(T).await, (0, times[0]));
        assert_eq!(found(times[0]).await, (0, times[0]));
        assert_eq!(found(times[1] + 1).await, (-1, -1));
        let later = if times[1] > times[0] { 2 } else { 0 };
        assert_eq!(found(MAX_TIMESTAMP).await, (later, times[1]));
    });
    broker.stop();
}

/// Where an epoch ends: error, epoch, offset.
async fn epoch_end(
    connection: &BrokerConnection,
    topic: &str,
    partition: i32,
    leader_epoch: i32,
    current_leader_epoch: i32,
    version: i16,
) -> (i16, i32, i64) {
    let request = OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: text(topic),
            partitions: vec![OffsetForLeaderPartition {
                partition,
                current_leader_epoch,
                leader_epoch,
            }],
        }],
    };
    let wait = connection.start_as(&request, version).await.expect("sent");
    let mut response = wait.await.expect("an answer");
    let answer = response.topics.remove(0).partitions.remove(0);
    assert_eq!(answer.partition, partition);
    (answer.error_code, answer.leader_epoch, answer.end_offset)
}

#[test]
fn given_restarts_of_both_kinds_then_the_latest_epoch_ends_at_the_end_of_the_log() {
    let dir = data_dir();
    let mut end = 0;
    for round in 0..4 {
        let broker = launch(dir.path()).start();
        end = with(broker.addr(), move |c| async move {
            if round == 0 {
                create_topic(&c, "ends", 3, &[]).await;
            }
            for partition in 0..3 {
                produce_ok(&c, "ends", partition, batch_at(T, "v")).await;
            }
            let end = end + 1;
            for partition in 0..3 {
                let latest = list_offset(&c, "ends", partition, LATEST).await;
                assert_eq!(latest.offset, end);
                let epoch = latest.leader_epoch;
                assert!(epoch >= 0);
                for version in 2..=4 {
                    let ends =
                        |epoch, current| epoch_end(&c, "ends", partition, epoch, current, version);
                    assert_eq!(ends(epoch, -1).await, (0, epoch, end));
                    assert_eq!(ends(epoch, epoch).await, (0, epoch, end));
                    assert_eq!(ends(epoch + 1, epoch).await, (0, -1, -1));
                    assert_eq!(ends(-1, epoch).await, (0, -1, -1));
                    assert_eq!(ends(epoch, epoch + 1).await, (75, -1, -1));
                }
                // The first epoch ended where a later one began, or goes on.
                let (code, first, first_end) = epoch_end(&c, "ends", partition, 0, -1, 4).await;
                assert_eq!((code, first), (0, 0));
                assert!((1..=end).contains(&first_end));
            }
            assert_eq!(epoch_end(&c, "ends", 9, 0, -1, 4).await, (3, -1, -1));
            assert_eq!(epoch_end(&c, "nowhere", 0, 0, -1, 4).await, (3, -1, -1));
            end
        });
        if round % 2 == 0 {
            broker.kill();
        } else {
            broker.stop();
        }
    }
    assert_eq!(end, 4);
}
