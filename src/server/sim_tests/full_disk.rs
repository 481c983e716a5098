//! A disk that becomes full, and has space again: the guard, and what happens without it.

use super::settings::{create_with, text};
use super::*;

const NAME: &str = "t";
const ENOSPC: i32 = 28;
/// Room that a test leaves on the disk, bytes.
const ROOM: u64 = 1 << 20;

/// One record of 2,000 bytes; its offset, or the error with its message.
async fn produce_large(
    connection: &BrokerConnection,
    topic: &str,
    partition: i32,
) -> Result<i64, (i16, String)> {
    produce_record(connection, topic, partition, &[7; 2_000]).await
}

/// One record; its offset, or the error with its message.
pub(super) async fn produce_record(
    connection: &BrokerConnection,
    topic: &str,
    partition: i32,
    value: &[u8],
) -> Result<i64, (i16, String)> {
    let mut batch = BatchBuilder::new();
    batch.push(1_700_000_000_000, None, Some(value));
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: text(topic),
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Records::from(batch.build())),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let sent = connection.start_as(&request, 12).await.expect("it is sent");
    let answer = sent.await.expect("an answer");
    let partition = &answer.responses[0].partition_responses[0];
    let message = partition.error_message.as_ref();
    match partition.error_code {
        0 => Ok(partition.base_offset),
        code => Err((
            code,
            message.map_or_else(String::new, |text| text.to_string()),
        )),
    }
}

/// Produces to the partitions in turn until one refuses; how many each has, and why.
async fn fill(
    connection: &BrokerConnection,
    topic: &str,
    partitions: i32,
    has: &mut [i64],
) -> String {
    for n in 0.. {
        let partition = n % partitions;
        match produce_large(connection, topic, partition).await {
            Ok(offset) => {
                assert_eq!(offset, has[partition as usize]);
                has[partition as usize] += 1;
            }
            Err((code, message)) => {
                assert_eq!(code, STORAGE, "{message}");
                return message;
            }
        }
        assert!(n < 100_000, "it never refuses");
    }
    unreachable!("the numbers do not end")
}

/// Produces again and again, in virtual time, until it is taken.
async fn until_taken(rt: &Rt, connection: &BrokerConnection, topic: &str, partition: i32) -> i64 {
    let mut why = String::new();
    for _ in 0..3_000 {
        match produce_large(connection, topic, partition).await {
            Ok(offset) => return offset,
            Err((code, message)) => {
                assert_eq!(code, STORAGE, "{message}");
                why = message;
            }
        }
        rt.sleep(Duration::from_millis(100)).await;
    }
    panic!("{topic}-{partition} takes no records although there is space: {why}");
}

async fn create_code(connection: &BrokerConnection, topic: &str) -> i16 {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: text(topic),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let answer = connection.call(&request).await.expect("an answer");
    answer.topics[0].error_code
}

pub(super) async fn delete_code(connection: &BrokerConnection, topic: &str) -> i16 {
    let request = DeleteTopicsRequest {
        topic_names: vec![text(topic)],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let sent = connection.start_as(&request, 5).await.expect("it is sent");
    let answer = sent.await.expect("an answer");
    answer.responses[0].error_code
}

async fn offset_of(connection: &BrokerConnection, partition: i32, timestamp: i64) -> i64 {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: text(NAME),
            partitions: vec![ListOffsetsPartition {
                partition_index: partition,
                timestamp,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    let answer = connection.call(&request).await.expect("an answer");
    let partition = &answer.topics[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    partition.offset
}

async fn delete_records(connection: &BrokerConnection, partition: i32) -> i16 {
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: text(NAME),
            partitions: vec![DeleteRecordsPartition {
                partition_index: partition,
                offset: -1,
            }],
        }],
        timeout_ms: 30_000,
    };
    let sent = connection.start_as(&request, 2).await.expect("it is sent");
    let answer = sent.await.expect("an answer");
    answer.topics[0].partitions[0].error_code
}

#[test]
fn given_a_disk_that_fills_then_the_guard_closes_before_it_is_full_and_opens_by_itself() {
    for seed in 0..5 {
        let story = Story::new(seed);
        let min_free = ROOM / 4;
        story.min_free.set(min_free as i64);
        let running = story.boot().expect("no power cut is ordered");
        let (rt, clients) = (story.broker.rt(), story.client.rt());
        let disk = story.broker.disk();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            // Each segment has three files beside it, which nobody counts before.
            create_with(&connection, NAME, 3, &[("segment.bytes", "65536")]).await;
            let large = [("file.delete.delay.ms", "0"), ("segment.bytes", "1048576")];
            create_with(&connection, "ballast", 1, &large).await;
            // Well above what the next segments reserve.
            for n in 0..400 {
                assert_eq!(produce_large(&connection, "ballast", 0).await, Ok(n));
            }
            // Until its files stand.
            rt.sleep(Duration::from_secs(5)).await;
            let capacity = disk.used_bytes() + ROOM;
            disk.set_capacity(capacity);
            // A disk does not become small all at once: let it be looked at.
            rt.sleep(Duration::from_secs(2)).await;
            let mut has = [0; 3];
            let why = fill(&connection, NAME, 3, &mut has).await;
            assert!(why.contains("/data") || why.contains("try again"), "{why}");
            assert!(why.contains("log.dir.min.free.bytes"), "{why}");
            assert_eq!(disk.faults_fired(), 0, "it was never full");
            let free = capacity - disk.used_bytes();
            assert!(free >= min_free / 2, "{free} bytes are free of {capacity}");
            // Reads and the topics' own changes go on.
            rt.sleep(Duration::from_secs(3)).await;
            let free = capacity - disk.used_bytes();
            assert!(free >= min_free / 2, "{free} bytes are free of {capacity}");
            for partition in 0..3 {
                let has = has[partition as usize];
                assert_eq!(offset_of(&connection, partition, -1).await, has);
            }
            assert_eq!(delete_code(&connection, "ballast").await, 0);
            for partition in 0..3 {
                let offset = until_taken(&rt, &connection, NAME, partition).await;
                assert_eq!(offset, has[partition as usize]);
            }
            assert_eq!(disk.faults_fired(), 0, "it was never full");
            running.stop.send(()).expect("it waits for that");
            let ended = running.ended.await.expect("it ends");
            ended.expect("a clean stop");
        });
    }
}

#[test]
fn given_no_guard_and_a_full_disk_then_it_serves_on_and_recovers_by_itself() {
    for seed in 0..5 {
        let story = Story::new(seed);
        story.min_free.set(0);
        let running = story.boot().expect("no power cut is ordered");
        let (rt, clients) = (story.broker.rt(), story.client.rt());
        let disk = story.broker.disk();
        let mut has = [0; 3];
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            create_with(&connection, NAME, 3, &[]).await;
            create_with(&connection, "doomed", 1, &[]).await;
            disk.set_capacity(disk.used_bytes() + ROOM / 4);
            fill(&connection, NAME, 3, &mut has).await;
            assert!(disk.faults_fired() > 0, "the disk was full");
            // Full to the last block, for longer than any checkpoint waits.
            disk.set_capacity(disk.used_bytes());
            let fired = disk.faults_fired();
            rt.sleep(Duration::from_secs(10)).await;
            for partition in 0..3 {
                let end = offset_of(&connection, partition, -1).await;
                assert_eq!(end, has[partition as usize], "reads go on");
                let refused = produce_large(&connection, NAME, partition).await;
                assert_eq!(refused.map_err(|(code, _)| code), Err(STORAGE));
            }
            assert!(disk.faults_fired() > fired, "it wrote to a full disk");
            let code = delete_code(&connection, "doomed").await;
            assert!(code == 0 || code == STORAGE, "{code}");
            disk.set_capacity(u64::MAX);
            for partition in 0..3 {
                let offset = until_taken(&rt, &connection, NAME, partition).await;
                assert_eq!(offset, has[partition as usize]);
                has[partition as usize] += 1;
            }
            assert_eq!(create_code(&connection, "later").await, 0);
            until_taken(&rt, &connection, "later", 0).await;
            drop(running.stop);
        });
        story.broker.kill();
        let rt = story.broker.restart();
        let running = story.boot().expect("no power cut is ordered");
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            for partition in 0..3 {
                let end = offset_of(&connection, partition, -1).await;
                assert_eq!(end, has[partition as usize], "no more and no less");
            }
        });
    }
}

#[test]
fn given_checkpoint_files_without_space_then_they_wait_and_nothing_is_promised_without_them() {
    for seed in 0..5 {
        let story = Story::new(seed);
        let running = story.boot().expect("no power cut is ordered");
        let (rt, clients) = (story.broker.rt(), story.client.rt());
        let disk = story.broker.disk();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            create_with(&connection, NAME, 1, &[]).await;
            create_with(&connection, "gone", 1, &[]).await;
            assert_eq!(produce_large(&connection, NAME, 0).await, Ok(0));
            let fault = crate::runtime::sim::WriteFault::Errno(ENOSPC);
            disk.fail_writes("-offset-checkpoint", fault);
            assert_eq!(produce_large(&connection, NAME, 0).await, Ok(1));
            rt.sleep(Duration::from_secs(3)).await;
            assert!(disk.faults_fired() > 0, "no checkpoint was written");
            assert_eq!(produce_large(&connection, NAME, 0).await, Ok(2));
            assert_eq!(delete_records(&connection, 0).await, STORAGE);
            assert_eq!(offset_of(&connection, 0, -2).await, 0, "it was refused");
            // A topic goes; its successor would inherit its lines.
            assert_eq!(delete_code(&connection, "gone").await, 0);
            assert_eq!(create_code(&connection, "gone").await, STORAGE);
            disk.clear_faults();
            assert_eq!(create_code(&connection, "gone").await, 0);
            assert_eq!(delete_records(&connection, 0).await, 0);
            assert_eq!(offset_of(&connection, 0, -2).await, 3);
            running.stop.send(()).expect("it waits for that");
            let ended = running.ended.await.expect("it ends");
            ended.expect("a clean stop");
        });
    }
}

#[test]
fn given_no_space_for_a_partitions_directory_then_it_comes_when_there_is_space() {
    for seed in 0..5 {
        let story = Story::new(seed);
        let running = story.boot().expect("no power cut is ordered");
        let (rt, clients) = (story.broker.rt(), story.client.rt());
        let disk = story.broker.disk();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            for op in ["mkdir", "open"] {
                let topic = format!("made-{op}");
                disk.fail_ops(op, &topic, ENOSPC);
                let fired = disk.faults_fired();
                assert_eq!(create_code(&connection, &topic).await, 0);
                assert!(disk.faults_fired() > fired);
                let refused = produce_large(&connection, &topic, 0).await;
                assert_eq!(refused.map_err(|(code, _)| code), Err(STORAGE));
                rt.sleep(Duration::from_secs(3)).await;
                disk.clear_faults();
                assert_eq!(until_taken(&rt, &connection, &topic, 0).await, 0);
            }
            // One that is deleted before there is space stays away.
            disk.fail_ops("mkdir", "never", ENOSPC);
            assert_eq!(create_code(&connection, "never").await, 0);
            assert_eq!(delete_code(&connection, "never").await, 0);
            disk.clear_faults();
            rt.sleep(Duration::from_secs(5)).await;
            let left = disk.list_raw("/data");
            let of_it = |path: &std::path::Path| path.to_string_lossy().contains("never-0");
            assert!(!left.iter().any(|(path, _)| of_it(path)));
            running.stop.send(()).expect("it waits for that");
            let ended = running.ended.await.expect("it ends");
            ended.expect("a clean stop");
        });
    }
}

/// What a client is told of a storage that takes nothing.
const STORAGE: i16 = 56;
