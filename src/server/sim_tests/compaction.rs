//! A topic that is compacted all the time, under power cuts.

use super::settings::text;
use super::*;

const NAME: &str = "table";
const KEYS: u64 = 6;

/// What is known of the topic's one partition.
#[derive(Default)]
struct Ledger {
    /// By key: the last value that was acknowledged, and the last one sent. They rise.
    keys: RefCell<BTreeMap<u64, (i64, i64)>>,
    /// No record is at or above it that was not acknowledged.
    end: Cell<i64>,
    /// Records that readers missed between others: what compaction has removed.
    removed: Cell<u64>,
}

#[test]
fn given_power_cuts_while_a_topic_is_compacted_then_the_last_value_of_each_key_is_there() {
    let (mut removed, mut sent) = (0, 0);
    for seed in seeds() {
        let story = Story::new(seed);
        let ledger = Rc::new(Ledger::default());
        for _ in 0..5 {
            let after = 1 + story.world.random_below(4_000);
            let disk = story.broker.disk();
            disk.cut_power_after_ops(after, PowerCut::Mixed);
            if let Some(running) = story.boot() {
                let (clients, ledger) = (story.client.rt(), ledger.clone());
                let rt = story.broker.rt();
                story.world.block_on_until_crash(&rt, async move {
                    // An error is the power cut.
                    let _ = live(&clients, running.addr, &ledger).await;
                });
            }
            if story.broker.is_up() {
                story.broker.crash();
            }
            story.broker.restart();
        }
        let running = story.boot().expect("no power cut is ordered");
        let clients = story.client.rt();
        story.world.block_on(&story.broker.rt(), async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            check(&connection, &ledger).await.expect("an answer");
            let told = running.stop.send(());
            assert!(told.is_ok(), "it waits for the stop");
            let ended = running.ended.await.expect("the control executor ends");
            ended.expect("a clean stop");
        });
        removed += ledger.removed.get();
        let keys = ledger.keys.borrow();
        sent += keys.values().map(|(_, sent)| sent).sum::<i64>();
    }
    println!("{sent} sent, {removed} found removed");
    if std::env::var_os(SEED_VARIABLE).is_none() {
        assert!(sent > 100 * SEEDS as i64, "{sent} sent");
        assert!(removed > 20 * SEEDS, "{removed} found removed");
    }
}

/// Checks what is known, then replaces values until an error.
async fn live(rt: &Rt, addr: SocketAddr, ledger: &Ledger) -> Result<(), ClientError> {
    let connection = connect(rt, addr).await?;
    create(&connection).await?;
    check(&connection, ledger).await?;
    for n in 0..400 {
        let key = rt.random_u64() % KEYS;
        let (acknowledged, sent) = ledger.keys.borrow().get(&key).copied().unwrap_or((0, 0));
        let value = sent + 1;
        ledger.keys.borrow_mut().insert(key, (acknowledged, value));
        let Some(offset) = produce(&connection, key, value).await? else {
            continue;
        };
        ledger.keys.borrow_mut().insert(key, (value, value));
        assert!(offset >= ledger.end.get(), "{offset} was given before");
        ledger.end.set(offset + 1);
        if n % 40 == 0 {
            check(&connection, ledger).await?;
            rt.sleep(Duration::from_millis(200)).await;
        }
    }
    check(&connection, ledger).await
}

/// Creates the topic, unless it is there.
async fn create(connection: &BrokerConnection) -> Result<(), ClientError> {
    let configs = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("delete.retention.ms", "100"),
        ("file.delete.delay.ms", "0"),
    ];
    let config = |(name, value): (&str, &str)| CreatableTopicConfig {
        name: text(name),
        value: Some(text(value)),
    };
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: text(NAME),
            num_partitions: 1,
            replication_factor: 1,
            configs: configs.into_iter().map(config).collect(),
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    connection.call(&request).await.map(drop)
}

/// Reads everything: of each key the last value that was acknowledged, or a later one that was sent.
async fn check(connection: &BrokerConnection, ledger: &Ledger) -> Result<(), ClientError> {
    let known = ledger.keys.borrow().clone();
    let Some(end) = offset_of(connection, -1).await? else {
        assert_eq!(ledger.end.get(), 0);
        return Ok(());
    };
    assert!(end >= ledger.end.get(), "{end}");
    let (mut next, mut found, mut records) = (0, BTreeMap::new(), 0);
    while next < end {
        let (read, after) = fetch_from(connection, next).await?;
        assert!(after > next, "nothing is read at {next} of {end}");
        for (key, value) in read {
            records += 1;
            found.insert(key, value);
        }
        next = after;
    }
    for (key, (acknowledged, sent)) in known.iter().filter(|(_, known)| known.0 > 0) {
        let value: i64 = found.get(key).copied().unwrap_or(0);
        let fits = *acknowledged..=*sent;
        assert!(fits.contains(&value), "key {key}: {value} in {fits:?}");
    }
    let removed = (next as u64).saturating_sub(records);
    ledger.removed.set(ledger.removed.get().max(removed));
    Ok(())
}

/// `None`: there is no such topic.
async fn offset_of(connection: &BrokerConnection, at: i64) -> Result<Option<i64>, ClientError> {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: text(NAME),
            partitions: vec![ListOffsetsPartition {
                timestamp: at,
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
    Ok((code == 0).then_some(partition.offset))
}

/// Keys and values from an offset on, and the offset after what was read.
async fn fetch_from(
    connection: &BrokerConnection,
    offset: i64,
) -> Result<(Vec<(u64, i64)>, i64), ClientError> {
    let request = FetchRequest {
        min_bytes: 1,
        max_bytes: 2_000,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: text(NAME),
            partitions: vec![FetchPartition {
                fetch_offset: offset,
                partition_max_bytes: 2_000,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = connection.start_as(&request, 12).await?.await?;
    let answer = &response.responses[0].partitions[0];
    assert_eq!(answer.error_code, 0, "at {offset}");
    let bytes = answer.records.as_ref().map(|r| r.to_bytes());
    let (mut read, mut next) = (Vec::new(), offset);
    for batch in Batches::new(bytes.unwrap_or_default()) {
        let batch = batch.expect("whole batches are returned");
        batch.validate_crc().expect("the CRC is right");
        let header = batch.header();
        assert!(header.base_offset >= next || header.last_offset() >= next);
        for record in batch.records().expect("no compression") {
            let record = record.expect("a whole record");
            if header.base_offset + i64::from(record.offset_delta) < offset {
                continue;
            }
            let key = record.key.expect("every record has a key");
            let key = u64::from_be_bytes(key.try_into().expect("eight bytes"));
            let value = &record.value.expect("nothing is deleted")[..8];
            let value = i64::from_be_bytes(value.try_into().expect("eight bytes"));
            read.push((key, value));
        }
        next = header.next_offset();
    }
    Ok((read, next))
}

/// The offset, if it was acknowledged.
async fn produce(
    connection: &BrokerConnection,
    key: u64,
    value: i64,
) -> Result<Option<i64>, ClientError> {
    let mut bytes = vec![7; 400];
    bytes[..8].copy_from_slice(&value.to_be_bytes());
    let mut batch = BatchBuilder::new();
    batch.push(1_700_000_000_000, Some(&key.to_be_bytes()), Some(&bytes));
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 60_000,
        topic_data: vec![TopicProduceData {
            name: text(NAME),
            partition_data: vec![PartitionProduceData {
                records: Some(Records::from(batch.build())),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = connection.start_as(&request, 12).await?.await?;
    let answer = &answer.responses[0].partition_responses[0];
    Ok((answer.error_code == 0).then_some(answer.base_offset))
}
