//! DeleteRecords and retention against the process: answers, files, restarts.

use super::broker::Launch;
use super::client::{
    batch_at, create_topic, fetch, fetch_all, fetch_request, list_offset, produce_ok, text, with,
};
use super::files::files_of;
use super::{data_dir, launch};
use bytes::Bytes;
use highwater::client::BrokerConnection;
use highwater::protocol::batch::{BatchBuilder, Batches};
use highwater::protocol::messages::*;
use highwater::protocol::{ErrorCode, Records};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const TOPIC: &str = "orders";
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is right").as_millis() as i64
}

/// A batch of `records` records from now.
fn batch(records: usize) -> Bytes {
    let mut batch = BatchBuilder::new();
    for n in 0..records {
        batch.push(now_ms(), None, Some(format!("record {n}").as_bytes()));
    }
    batch.build()
}

/// A batch of one record of so many bytes, from now.
fn large(bytes: usize) -> Bytes {
    batch_at(now_ms(), &"x".repeat(bytes))
}

/// DeleteRecords of one partition: the low watermark, or the error.
async fn delete_records(
    connection: &BrokerConnection,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<i64, ErrorCode> {
    let asked = request(topic, &[(partition, offset)]);
    let mut response = connection.call(&asked).await.expect("an answer");
    let answer = response.topics.remove(0).partitions.remove(0);
    assert_eq!(answer.partition_index, partition);
    outcome(&answer)
}

fn outcome(answer: &DeleteRecordsPartitionResult) -> Result<i64, ErrorCode> {
    match answer.error_code {
        0 => Ok(answer.low_watermark),
        code => {
            assert_eq!(answer.low_watermark, -1, "none with an error");
            Err(ErrorCode::from_code(code).expect("a code of Kafka's"))
        }
    }
}

fn request(topic: &str, partitions: &[(i32, i64)]) -> DeleteRecordsRequest {
    DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: text(topic),
            partitions: partitions
                .iter()
                .map(|(partition_index, offset)| DeleteRecordsPartition {
                    partition_index: *partition_index,
                    offset: *offset,
                })
                .collect(),
        }],
        timeout_ms: 30_000,
    }
}

async fn create(connection: &BrokerConnection, topic: &str, configs: &[(&str, &str)]) {
    let created = create_topic(connection, topic, 2, configs).await;
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
}

/// Asks until the answer is the wanted one.
async fn eventually<T: std::fmt::Debug>(
    what: &str,
    mut ask: impl AsyncFnMut() -> T,
    wanted: impl Fn(&T) -> bool,
) {
    let begun = Instant::now();
    loop {
        let answer = ask().await;
        if wanted(&answer) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: still {answer:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

async fn bounds(connection: &BrokerConnection, topic: &str) -> (i64, i64) {
    let earliest = list_offset(connection, topic, 0, EARLIEST).await.offset;
    let latest = list_offset(connection, topic, 0, LATEST).await.offset;
    (earliest, latest)
}

/// A broker that looks for expired segments all the time.
fn watchful(data_dir: &Path) -> Launch {
    launch(data_dir)
        .set("log.retention.check.interval.ms=50")
        .set("log.initial.task.delay.ms=0")
}

#[test]
fn given_delete_records_in_all_its_cases_then_each_is_answered_as_in_kafka() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |connection| async move {
        create(&connection, TOPIC, &[]).await;
        create(&connection, "kept", &[("cleanup.policy", "")]).await;
        for _ in 0..5 {
            produce_ok(&connection, TOPIC, 0, batch(3)).await;
            produce_ok(&connection, "kept", 0, batch(3)).await;
        }
        let delete = |partition, offset| delete_records(&connection, TOPIC, partition, offset);
        assert_eq!(delete(0, 0).await, Ok(0));
        assert_eq!(delete(0, 7).await, Ok(7), "inside a batch");
        assert_eq!(bounds(&connection, TOPIC).await, (7, 15));
        assert_eq!(delete(0, 3).await, Ok(7), "below the log start");
        assert_eq!(delete(1, -1).await, Ok(0), "nothing is there");
        for beyond in [16, i64::MAX, -2, i64::MIN] {
            assert_eq!(delete(0, beyond).await, Err(ErrorCode::OffsetOutOfRange));
        }
        for unknown in [2, -1, i32::MAX] {
            let answer = delete(unknown, 0).await;
            assert_eq!(answer, Err(ErrorCode::UnknownTopicOrPartition));
        }
        let absent = delete_records(&connection, "absent", 0, 0).await;
        assert_eq!(absent, Err(ErrorCode::UnknownTopicOrPartition));
        let internal = delete_records(&connection, "__consumer_offsets", 0, 0).await;
        assert_eq!(internal, Err(ErrorCode::InvalidTopicException));
        let policy = delete_records(&connection, "kept", 0, 1).await;
        assert_eq!(policy, Err(ErrorCode::PolicyViolation));
        assert_eq!(bounds(&connection, "kept").await, (0, 15));

        let below = fetch(&connection, TOPIC, 0, 6, 0, 1 << 20).await;
        assert_eq!(below.error_code, ErrorCode::OffsetOutOfRange.code());
        let inside = fetch(&connection, TOPIC, 0, 7, 0, 1 << 20).await;
        assert_eq!((inside.error_code, inside.log_start_offset), (0, 7));
        let bytes = inside.records.map(|r: Records| r.to_bytes());
        let first = Batches::new(bytes.unwrap()).next().unwrap().unwrap();
        assert_eq!(first.header().base_offset, 6, "the whole batch");

        // Named twice: the last offset counts, and there is one answer.
        let mut twice = request(TOPIC, &[(0, 8), (1, -1), (0, 9)]);
        twice
            .topics
            .extend(request(TOPIC, &[(0, 10), (7, 0)]).topics);
        let answer = connection.call(&twice).await.expect("an answer");
        assert_eq!(answer.topics.len(), 1);
        let answers = &answer.topics[0].partitions;
        let answers: Vec<_> = answers
            .iter()
            .map(|p| (p.partition_index, outcome(p)))
            .collect();
        let unknown = Err(ErrorCode::UnknownTopicOrPartition);
        assert_eq!(answers, [(0, Ok(10)), (1, Ok(0)), (7, unknown)]);

        for (version, offset) in [(0, 11), (1, 12), (2, -1)] {
            let asked = request(TOPIC, &[(0, offset)]);
            let wait = connection.start_as(&asked, version).await.expect("sent");
            let answer = wait.await.expect("an answer");
            let expected = if offset == -1 { 15 } else { offset };
            assert_eq!(outcome(&answer.topics[0].partitions[0]), Ok(expected));
        }
        assert_eq!(bounds(&connection, TOPIC).await, (15, 15));
        assert_eq!(produce_ok(&connection, TOPIC, 0, batch(1)).await, 15);
        let records = fetch_all(&connection, TOPIC, 0, 15).await;
        assert_eq!(records.len(), 1);
    });
    broker.stop();
}

#[test]
fn given_deleted_records_when_killed_or_stopped_then_they_stay_deleted_and_the_rest_stays() {
    let dir = data_dir();
    let start = |stop: bool, from: i64, to: i64, end: i64| {
        let broker = launch(dir.path()).start();
        with(broker.addr(), move |connection| async move {
            if end == 30 {
                create(&connection, TOPIC, &[("segment.bytes", "1048576")]).await;
            }
            assert_eq!(bounds(&connection, TOPIC).await.0, from);
            for _ in end - 30..end {
                produce_ok(&connection, TOPIC, 0, large(200_000)).await;
            }
            assert_eq!(delete_records(&connection, TOPIC, 0, to).await, Ok(to));
        });
        match stop {
            true => drop(broker.stop()),
            false => broker.kill(),
        }
    };
    start(false, 0, 13, 30);
    start(true, 13, 44, 60);
    start(false, 44, 59, 90);
    let broker = launch(dir.path()).start();
    with(broker.addr(), |connection| async move {
        assert_eq!(bounds(&connection, TOPIC).await, (59, 90));
        let records = fetch_all(&connection, TOPIC, 0, 59).await;
        let offsets: Vec<i64> = records.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, (59..90).collect::<Vec<_>>());
    });
    let logs = files_of(dir.path(), "orders-0", "log");
    assert!(logs.len() < 10, "of 18 segments are left: {logs:?}");
    assert!(files_of(dir.path(), "orders-0", "deleted").is_empty());
    broker.stop();
}

#[test]
fn given_a_missing_first_segment_then_the_partition_is_offline_unless_the_log_start_explains_it() {
    let dir = data_dir();
    let fill = |topic: &'static str| {
        let broker = launch(dir.path()).start();
        with(broker.addr(), move |connection| async move {
            create(&connection, topic, &[("segment.bytes", "1048576")]).await;
            for _ in 0..20 {
                produce_ok(&connection, topic, 0, large(200_000)).await;
            }
        });
        broker.stop();
    };
    fill(TOPIC);
    let first = files_of(dir.path(), "orders-0", "log").remove(0);
    std::fs::remove_file(first).expect("it can be removed");
    let broker = launch(dir.path()).start();
    let answer = with(broker.addr(), |connection| async move {
        let answer = fetch(&connection, TOPIC, 0, 10, 0, 1 << 20).await;
        ErrorCode::from_code(answer.error_code)
    });
    assert_eq!(answer, Some(ErrorCode::KafkaStorageError));
    let (_, said) = broker.end_by("TERM");
    assert!(said.contains("are missing before it"), "{said}");
    // As a directory of Kafka's has it: no record, and the log begins where it begins.
    let checkpoint = dir.path().join("log-start-offset-checkpoint");
    std::fs::write(&checkpoint, "0\n0\n").expect("it can be written");
    let broker = launch(dir.path()).start();
    let (earliest, latest) = with(broker.addr(), |connection| async move {
        bounds(&connection, TOPIC).await
    });
    assert!(earliest > 0, "it begins at the second segment");
    assert_eq!(latest, 20);
    broker.stop();
}

#[test]
fn given_a_directory_that_is_gone_when_records_had_been_deleted_then_the_partition_does_not_begin_anew(
) {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |connection| async move {
        create(&connection, TOPIC, &[]).await;
        produce_ok(&connection, TOPIC, 0, batch(10)).await;
        assert_eq!(delete_records(&connection, TOPIC, 0, 10).await, Ok(10));
    });
    // Before any recovery point is recorded: what counts is the log start.
    broker.kill();
    std::fs::remove_dir_all(dir.path().join("orders-0")).expect("it can be removed");
    let broker = launch(dir.path()).start();
    let answer = with(broker.addr(), |connection| async move {
        let answer = fetch(&connection, TOPIC, 0, 10, 0, 1 << 20).await;
        ErrorCode::from_code(answer.error_code)
    });
    // New records would begin at offset 0, below the log start, and go at the next start.
    assert_eq!(answer, Some(ErrorCode::KafkaStorageError));
    let (_, said) = broker.end_by("TERM");
    assert!(said.contains("orders-0 is gone"), "{said}");
}

#[test]
fn given_retention_by_size_then_old_segments_go_and_the_newest_records_stay() {
    let dir = data_dir();
    let broker = watchful(dir.path()).start();
    let path = dir.path().to_owned();
    with(broker.addr(), move |connection| async move {
        let configs = [
            ("segment.bytes", "1048576"),
            ("retention.bytes", "3000000"),
            ("file.delete.delay.ms", "0"),
        ];
        create(&connection, TOPIC, &configs).await;
        for _ in 0..50 {
            produce_ok(&connection, TOPIC, 0, large(200_000)).await;
        }
        // Each segment holds five; 3 MB are kept, and what of a segment is above them.
        eventually(
            "earliest and latest offset",
            async || bounds(&connection, TOPIC).await,
            |(earliest, latest)| *latest == 50 && (30..=35).contains(earliest),
        )
        .await;
        let (earliest, _) = bounds(&connection, TOPIC).await;
        eventually(
            "files",
            async || files_of(&path, "orders-0", "log").len(),
            |files| *files <= 4,
        )
        .await;
        eventually(
            "files that are being deleted",
            async || files_of(&path, "orders-0", "deleted"),
            Vec::is_empty,
        )
        .await;
        let gone = fetch(&connection, TOPIC, 0, earliest - 1, 0, 1 << 20).await;
        assert_eq!(gone.error_code, ErrorCode::OffsetOutOfRange.code());
        let records = fetch_all(&connection, TOPIC, 0, earliest).await;
        assert_eq!(records.len() as i64, 50 - earliest);
    });
    broker.kill();
    let broker = watchful(dir.path()).start();
    with(broker.addr(), |connection| async move {
        let (earliest, latest) = bounds(&connection, TOPIC).await;
        assert!((30..=35).contains(&earliest) && latest == 50);
    });
    broker.stop();
}

#[test]
fn given_retention_by_age_then_the_whole_log_goes_after_a_roll_and_offsets_go_on() {
    let dir = data_dir();
    let broker = watchful(dir.path()).start();
    let path = dir.path().to_owned();
    with(broker.addr(), move |connection| async move {
        let delay = ("file.delete.delay.ms", "3600000");
        create(&connection, TOPIC, &[("retention.ms", "1"), delay]).await;
        create(&connection, "young", &[("retention.ms", "3600000")]).await;
        for _ in 0..7 {
            produce_ok(&connection, TOPIC, 0, batch(3)).await;
            produce_ok(&connection, "young", 0, batch(3)).await;
        }
        eventually(
            "earliest and latest offset",
            async || bounds(&connection, TOPIC).await,
            |bounds| *bounds == (21, 21),
        )
        .await;
        eventually(
            "segments",
            async || files_of(&path, "orders-0", "log"),
            |files| files.len() == 1,
        )
        .await;
        assert!(
            !files_of(&path, "orders-0", "deleted").is_empty(),
            "files stay for file.delete.delay.ms"
        );
        assert_eq!(bounds(&connection, "young").await, (0, 21));
        assert_eq!(produce_ok(&connection, TOPIC, 0, batch(1)).await, 21);
    });
    broker.kill();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |connection| async move {
        let (earliest, latest) = bounds(&connection, TOPIC).await;
        assert!(earliest >= 21 && latest == 22, "{earliest} {latest}");
        assert_eq!(fetch_all(&connection, "young", 0, 0).await.len(), 21);
    });
    assert!(files_of(dir.path(), "orders-0", "deleted").is_empty());
    broker.stop();
}

#[test]
fn given_a_consumer_that_reads_while_its_segments_go_then_it_sees_whole_records_or_out_of_range() {
    let dir = data_dir();
    // Little cache: what is read comes from the files that go.
    let broker = launch(dir.path()).set("cache.bytes=8388608").start();
    let addr = broker.addr();
    let lost = with(addr, move |connection| async move {
        create(&connection, TOPIC, &[("segment.bytes", "1048576")]).await;
        for _ in 0..150 {
            produce_ok(&connection, TOPIC, 0, large(200_000)).await;
        }
        let deleter = std::thread::spawn(move || {
            with(addr, |connection| async move {
                for offset in (5..=145).step_by(7) {
                    let answer = delete_records(&connection, TOPIC, 0, offset).await;
                    assert_eq!(answer, Ok(offset));
                }
            })
        });
        let (mut at, mut lost) = (0, 0);
        while at < 150 {
            let answer = fetch(&connection, TOPIC, 0, at, 0, 700_000).await;
            if answer.error_code != 0 {
                assert_eq!(answer.error_code, ErrorCode::OffsetOutOfRange.code());
                let start = list_offset(&connection, TOPIC, 0, EARLIEST).await.offset;
                assert!(start > at, "only what was deleted is out of range");
                (at, lost) = (start, lost + 1);
                continue;
            }
            let bytes = answer.records.expect("records").to_bytes();
            for batch in Batches::new(bytes) {
                let batch = batch.expect("a whole batch");
                batch.validate_crc().expect("the CRC is right");
                assert_eq!(batch.header().base_offset, at, "none is passed over");
                at = batch.header().next_offset();
            }
        }
        deleter.join().expect("all were deleted");
        assert_eq!(bounds(&connection, TOPIC).await, (145, 150));
        lost
    });
    println!("the consumer was overtaken {lost} times");
    broker.stop();
}

#[test]
fn given_a_fetch_that_waits_when_its_offset_is_deleted_then_it_is_told_at_once() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    let addr = broker.addr();
    with(addr, move |connection| async move {
        create(&connection, TOPIC, &[]).await;
        produce_ok(&connection, TOPIC, 0, batch(10)).await;
        // Far more bytes than there are, and more time than the test has.
        let mut waiting = fetch_request(TOPIC, 0, 2, 100_000_000, 1 << 20);
        waiting.min_bytes = 1 << 20;
        let wait = connection.start_as(&waiting, 12).await.expect("sent");
        let deleter = std::thread::spawn(move || {
            with(addr, |connection| async move {
                delete_records(&connection, TOPIC, 0, 5).await
            })
        });
        let mut answer = wait.await.expect("an answer");
        let answer = answer.responses.remove(0).partitions.remove(0);
        assert_eq!(answer.error_code, ErrorCode::OffsetOutOfRange.code());
        assert_eq!(deleter.join().expect("it ends"), Ok(5));
    });
    broker.stop();
}
