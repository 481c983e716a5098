//! Log starts that were recorded, or were not: failing disks, and topics that go and come
//! back under the same name, under power cuts.

use super::settings::{create_with, produce_one, text};
use super::*;

const NAME: &str = "t";
const COUNT: i32 = 3;

/// What is known of one partition of the topic that was created last.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// Records that were acknowledged, and sent.
    acknowledged: i64,
    sent: i64,
    /// Log starts that were acknowledged, and asked for.
    start: i64,
    start_asked: i64,
}

/// What is known of the topic.
#[derive(Debug, Clone)]
enum Life {
    /// Its deletion is under way: nothing.
    Going,
    /// It does not exist, or is as good as new.
    Coming,
    /// It exists.
    There([Part; COUNT as usize]),
}

#[test]
fn given_a_disk_that_records_no_log_start_then_no_deletion_is_acknowledged() {
    for seed in 0..5 {
        let story = Story::new(seed);
        let running = story.boot().expect("no power cut is ordered");
        let (rt, clients) = (story.broker.rt(), story.client.rt());
        let disk = story.broker.disk();
        let partitions = 12;
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            create_with(&connection, NAME, partitions, &[]).await;
            for partition in 0..partitions {
                let produced = produce_one(&connection, NAME, partition).await;
                assert_eq!(produced, Ok(0));
            }
            disk.fail_syncs(Some(SyncSite::LogStartCheckpoint), EIO);
            // All at once, so that they share writes of the file.
            let all: Vec<(i32, i64)> = (0..partitions).map(|partition| (partition, -1)).collect();
            // Without an answer nothing is acknowledged either.
            if let Ok(codes) = delete_records(&connection, &all).await {
                assert!(codes.iter().all(|code| *code == STORAGE), "{codes:?}");
            }
            match running.ended.await.expect("the control executor ends") {
                Err(ServeError::Failed(reason)) => assert!(!reason.is_empty()),
                other => panic!("not a failed disk: {other:?}"),
            }
        });
        assert!(disk.faults_fired() > 0);
    }
}

#[test]
fn given_power_cuts_when_a_topic_comes_back_then_its_log_start_is_its_own() {
    let (mut there, mut coming, mut deleted) = (0, 0, 0);
    for seed in seeds() {
        let story = Story::new(seed);
        let life = Rc::new(RefCell::new(Life::Coming));
        for _ in 0..6 {
            let after = 1 + story.world.random_below(1_500);
            let disk = story.broker.disk();
            disk.cut_power_after_ops(after, PowerCut::Mixed);
            if let Some(running) = story.boot() {
                let (clients, known) = (story.client.rt(), life.clone());
                story
                    .world
                    .block_on_until_crash(&story.broker.rt(), async move {
                        // An error is the power cut.
                        let _ = come_and_go(&clients, running.addr, &known).await;
                    });
            }
            if story.broker.is_up() {
                story.broker.crash();
            }
            story.broker.restart();
            match &*life.borrow() {
                Life::Going => {}
                Life::Coming => coming += 1,
                Life::There(parts) => {
                    there += 1;
                    deleted += parts.iter().filter(|part| part.start > 0).count();
                }
            }
        }
        let running = story.boot().expect("no power cut is ordered");
        let clients = story.client.rt();
        story.world.block_on(&story.broker.rt(), async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            check(&connection, &life).await.expect("an answer");
        });
    }
    println!("{there} there, {coming} coming, {deleted} with a log start");
    if std::env::var_os(SEED_VARIABLE).is_none() {
        assert!(there > SEEDS && coming > 0 && deleted > SEEDS as usize);
    }
}

/// Checks what is known, then produces, deletes records, deletes the topic and creates it
/// again, until an error.
async fn come_and_go(rt: &Rt, addr: SocketAddr, life: &RefCell<Life>) -> Result<(), ClientError> {
    let connection = connect(rt, addr).await?;
    let other = connect(rt, addr).await?;
    check(&connection, life).await?;
    loop {
        if !matches!(*life.borrow(), Life::There(_)) {
            delete_topic(&connection).await?;
            *life.borrow_mut() = Life::Coming;
            if create_topic(&connection).await? {
                *life.borrow_mut() = Life::There(Default::default());
            }
            continue;
        }
        let index = rt.random_u64() as i32 & 1;
        let mut part = part_of(life, index);
        match rt.random_u64() % 40 {
            0..25 => {
                part.sent += 1;
                note(life, index, part);
                let Some(offset) = produce_to(&connection, index).await? else {
                    continue;
                };
                part.acknowledged = part.acknowledged.max(offset + 1);
                part.sent = part.sent.max(offset + 1);
                note(life, index, part);
            }
            25..38 => {
                part.start_asked = part.start_asked.max(part.acknowledged);
                note(life, index, part);
                let asked = [(index, part.acknowledged)];
                if delete_records(&connection, &asked).await? == [0] {
                    part.start = part.start.max(part.acknowledged);
                    note(life, index, part);
                }
            }
            _ => {
                // While it goes, its records are deleted too.
                *life.borrow_mut() = Life::Going;
                let all: Vec<(i32, i64)> = (0..COUNT).map(|index| (index, -1)).collect();
                let records = other.start_as(&deletion(&all), 2).await?;
                delete_topic(&connection).await?;
                *life.borrow_mut() = Life::Coming;
                if create_topic(&connection).await? {
                    *life.borrow_mut() = Life::There(Default::default());
                }
                records.await?;
            }
        }
    }
}

fn part_of(life: &RefCell<Life>, index: i32) -> Part {
    match &*life.borrow() {
        Life::There(parts) => parts[index as usize],
        other => panic!("it is there, not {other:?}"),
    }
}

fn note(life: &RefCell<Life>, index: i32, part: Part) {
    match &mut *life.borrow_mut() {
        Life::There(parts) => parts[index as usize] = part,
        other => panic!("it is there, not {other:?}"),
    }
}

async fn check(connection: &BrokerConnection, life: &RefCell<Life>) -> Result<(), ClientError> {
    let known = life.borrow().clone();
    for index in 0..COUNT {
        let start = offset_at(connection, index, -2).await?;
        let end = offset_at(connection, index, -1).await?;
        match &known {
            Life::Going => {}
            // It may not be there.
            Life::Coming => assert!(start <= 0 && end <= 0, "{start} to {end}"),
            Life::There(parts) => {
                let part = parts[index as usize];
                let starts = part.start..=part.start_asked.max(part.start);
                assert!(starts.contains(&start), "{start} in {part:?}");
                let ends = part.acknowledged..=part.sent;
                assert!(ends.contains(&end), "{end} in {part:?}");
            }
        }
    }
    Ok(())
}

/// -1 if there is no such partition.
async fn offset_at(
    connection: &BrokerConnection,
    index: i32,
    timestamp: i64,
) -> Result<i64, ClientError> {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: text(NAME),
            partitions: vec![ListOffsetsPartition {
                partition_index: index,
                timestamp,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    let answer = connection.call(&request).await?;
    let partition = &answer.topics[0].partitions[0];
    let gone = ErrorCode::UnknownTopicOrPartition.code();
    let code = partition.error_code;
    assert!(code == 0 || code == gone, "{code}");
    Ok(partition.offset)
}

fn deletion(parts: &[(i32, i64)]) -> DeleteRecordsRequest {
    let part = |(index, offset): &(i32, i64)| DeleteRecordsPartition {
        partition_index: *index,
        offset: *offset,
    };
    DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: text(NAME),
            partitions: parts.iter().map(part).collect(),
        }],
        timeout_ms: 60_000,
    }
}

/// The error code of each partition.
async fn delete_records(
    connection: &BrokerConnection,
    parts: &[(i32, i64)],
) -> Result<Vec<i16>, ClientError> {
    let answer = connection.start_as(&deletion(parts), 2).await?.await?;
    let partitions = answer.topics[0].partitions.iter();
    Ok(partitions.map(|partition| partition.error_code).collect())
}

/// The offset, if it was acknowledged.
async fn produce_to(connection: &BrokerConnection, index: i32) -> Result<Option<i64>, ClientError> {
    let mut batch = BatchBuilder::new();
    batch.push(1_700_000_000_000, None, Some(&[7; 900]));
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 60_000,
        topic_data: vec![TopicProduceData {
            name: text(NAME),
            partition_data: vec![PartitionProduceData {
                index,
                records: Some(Records::from(batch.build())),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = connection.start_as(&request, 12).await?.await?;
    let answer = &answer.responses[0].partition_responses[0];
    Ok((answer.error_code == 0).then_some(answer.base_offset))
}

async fn create_topic(connection: &BrokerConnection) -> Result<bool, ClientError> {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: text(NAME),
            num_partitions: COUNT,
            replication_factor: 1,
            configs: vec![CreatableTopicConfig {
                name: text("retention.ms"),
                value: Some(text("-1")),
            }],
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    Ok(connection.call(&request).await?.topics[0].error_code == 0)
}

async fn delete_topic(connection: &BrokerConnection) -> Result<(), ClientError> {
    let request = DeleteTopicsRequest {
        topic_names: vec![text(NAME)],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let answer = connection.start_as(&request, 5).await?.await?;
    let gone = ErrorCode::UnknownTopicOrPartition.code();
    let code = answer.responses[0].error_code;
    assert!(code == 0 || code == gone || code == STORAGE, "{code}");
    Ok(())
}
