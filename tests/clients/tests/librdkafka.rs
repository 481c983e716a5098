//! librdkafka against the real process: topics, acks 0, 1 and all, several shards,
//! clean restarts, and SIGKILL under load with a torn tail.

use client_tests::files::{active_log, end_of_batches, scribble};
use client_tests::{
    assert_kept, consume_all, create_topic, data_dir, delete_topic, launch, produce, producer,
    PATIENCE,
};
use rdkafka::producer::{BaseRecord, Producer};
use std::path::Path;
use std::time::{Duration, Instant};

const PARTITIONS: i32 = 6;

#[test]
fn given_each_acks_when_produced_then_all_is_consumed() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    create_topic(&broker, "acks", PARTITIONS, &[]);
    let all = produce(&broker, "acks", PARTITIONS, "all", 1000);
    let leader = produce(&broker, "acks", PARTITIONS, "1", 1000);
    assert_eq!(all.0.lock().unwrap().len(), 1000);
    assert_eq!(leader.0.lock().unwrap().len(), 1000);
    produce(&broker, "acks", PARTITIONS, "0", 1000);
    let start = Instant::now();
    loop {
        // acks=0 is answered by the client alone; the records arrive in their time.
        let read = consume_all(&broker, "acks", PARTITIONS);
        assert_kept(&read, &all);
        assert_kept(&read, &leader);
        if read.iter().map(|partition| partition.len()).sum::<usize>() == 3000 {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "acks=0 records are missing");
        std::thread::sleep(Duration::from_millis(100));
    }
    broker.stop();
}

#[test]
fn given_each_flush_on_ack_when_produced_then_all_is_consumed() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    for policy in ["all", "any", "none"] {
        let topic = format!("flush-{policy}");
        create_topic(&broker, &topic, 2, &[("flush.on.ack", policy)]);
        let acknowledged = produce(&broker, &topic, 2, "all", 200);
        let read = consume_all(&broker, &topic, 2);
        assert_kept(&read, &acknowledged);
    }
    broker.stop();
}

#[test]
fn given_clean_restarts_then_every_record_and_offset_stays() {
    let dir = data_dir();
    let launch = launch(dir.path()).set("log.segment.bytes=65536");
    let mut acknowledged = Vec::new();
    for start in 0..4 {
        // Another count of shards each time: partitions move to other owners.
        let broker = launch.clone().shards(1 + start % 3).start();
        if start == 0 {
            create_topic(&broker, "restarts", PARTITIONS, &[]);
        }
        acknowledged.push(produce(&broker, "restarts", PARTITIONS, "all", 1500));
        let read = consume_all(&broker, "restarts", PARTITIONS);
        for acknowledged in &acknowledged {
            assert_kept(&read, acknowledged);
        }
        broker.stop();
        assert!(
            dir.path().join(".kafka_cleanshutdown").exists(),
            "a clean stop leaves its marker"
        );
    }
}

#[test]
fn given_sigkill_under_load_and_a_torn_tail_then_nothing_acknowledged_is_lost() {
    let dir = data_dir();
    let launch = launch(dir.path()).set("log.segment.bytes=262144");
    let broker = launch.start();
    create_topic(&broker, "killed", PARTITIONS, &[]);
    let mut broker = Some(broker);
    let mut rounds = Vec::new();
    for round in 0..4 {
        let running = broker.take().unwrap();
        let (producer, acknowledged) = producer(&running, "all");
        let mut n = 0;
        while acknowledged.0.lock().unwrap().len() < 2000 {
            let value = format!("{round}-{n}-{}", "x".repeat(100));
            let record: BaseRecord<'_, str, str> = BaseRecord::to("killed")
                .partition(n % PARTITIONS)
                .payload(&value);
            if producer.send(record).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
            n += 1;
        }
        assert!(producer.in_flight_count() > 0, "it is killed under load");
        running.kill();
        producer.purge(rdkafka::producer::PurgeConfig::default().queue().inflight());
        drop(producer);
        rounds.push(acknowledged);
        let torn = tear_tails(dir.path(), "killed");
        assert!(torn > 0, "no tail was torn");
        let running = launch.start();
        let read = consume_all(&running, "killed", PARTITIONS);
        for acknowledged in &rounds {
            assert_kept(&read, acknowledged);
        }
        broker = Some(running);
    }
    broker.unwrap().stop();
}

#[test]
fn given_a_deleted_topic_when_created_again_then_it_is_empty() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    for _ in 0..3 {
        create_topic(&broker, "again", 2, &[]);
        produce(&broker, "again", 2, "all", 50);
        let read = consume_all(&broker, "again", 2);
        assert_eq!(
            read.iter().map(|partition| partition.len()).sum::<usize>(),
            50
        );
        delete_topic(&broker, "again");
    }
    broker.stop();
}

/// Writes half a batch header's worth of noise behind the last written byte of each
/// partition's last segment. Returns how many were torn.
fn tear_tails(data_dir: &Path, topic: &str) -> usize {
    let noise: Vec<u8> = (0..30).map(|n| 0xa5 ^ n).collect();
    let mut torn = 0;
    for entry in std::fs::read_dir(data_dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name.starts_with(&format!("{topic}-")) {
            let log = active_log(data_dir, &name);
            scribble(&log, end_of_batches(&log), &noise);
            torn += 1;
        }
    }
    torn
}
