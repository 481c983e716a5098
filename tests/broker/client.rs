//! The client room against the process: a few calls that tests share.

use bytes::Bytes;
use highwater::client::{BrokerConnection, ConnectionOptions};
use highwater::protocol::batch::{BatchBuilder, Batches};
use highwater::protocol::messages::*;
use highwater::protocol::{Records, Str};
use highwater::runtime::native;
use std::future::Future;
use std::net::SocketAddr;

/// Runs `work` with a connection to the broker.
pub fn with<T, W>(addr: SocketAddr, work: impl FnOnce(BrokerConnection) -> W + Send + 'static) -> T
where
    T: Send + 'static,
    W: Future<Output = T> + 'static,
{
    native::run(move |rt| async move {
        let connection = BrokerConnection::connect(&rt, addr, ConnectionOptions::default())
            .await
            .expect("the broker can be connected to");
        work(connection).await
    })
    .expect("an executor can be started")
}

pub async fn create_topic(
    connection: &BrokerConnection,
    topic: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> CreatableTopicResult {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: text(topic),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs
                .iter()
                .map(|(name, value)| CreatableTopicConfig {
                    name: text(name),
                    value: Some(text(value)),
                })
                .collect(),
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let mut response = connection.call(&request).await.expect("an answer");
    response.topics.remove(0)
}

pub async fn delete_topic(connection: &BrokerConnection, topic: &str) {
    let request = DeleteTopicsRequest {
        topic_names: vec![text(topic)],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let wait = connection
        .start_as(&request, 5)
        .await
        .expect("the request is sent");
    let response = wait.await.expect("an answer");
    assert_eq!(response.responses[0].error_code, 0);
}

/// Produces by topic id, as the newest version has it, and insists on success.
pub async fn produce_ok(
    connection: &BrokerConnection,
    topic: &str,
    partition: i32,
    batch: Bytes,
) -> i64 {
    let answer = produce(connection, topic, partition, -1, batch).await;
    assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
    answer.base_offset
}

pub async fn produce(
    connection: &BrokerConnection,
    topic: &str,
    partition: i32,
    acks: i16,
    batch: Bytes,
) -> PartitionProduceResponse {
    let request = produce_request(topic, partition, acks, batch);
    let wait = connection
        .start_as(&request, 12)
        .await
        .expect("the request is sent");
    let mut response = wait.await.expect("an answer");
    response.responses.remove(0).partition_responses.remove(0)
}

pub fn produce_request(topic: &str, partition: i32, acks: i16, batch: Bytes) -> ProduceRequest {
    ProduceRequest {
        acks,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: text(topic),
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Records::from(batch)),
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A batch of one record.
pub fn batch_of(value: &str) -> Bytes {
    batch_at(1_700_000_000_000, value)
}

/// A batch of one record with that timestamp.
pub fn batch_at(timestamp: i64, value: &str) -> Bytes {
    let mut batch = BatchBuilder::new();
    batch.push(timestamp, None, Some(value.as_bytes()));
    batch.build()
}

/// Every record of a partition from `offset` up to the high watermark.
pub async fn fetch_all(
    connection: &BrokerConnection,
    topic: &str,
    partition: i32,
    mut offset: i64,
) -> Vec<(i64, String)> {
    let mut records = Vec::new();
    loop {
        let answer = fetch(connection, topic, partition, offset, 0, 1 << 20).await;
        assert_eq!(answer.error_code, 0, "fetch at {offset}");
        let bytes = answer.records.map(|r| r.to_bytes()).unwrap_or_default();
        if bytes.is_empty() {
            assert_eq!(
                offset, answer.high_watermark,
                "reads reach the high watermark"
            );
            return records;
        }
        for batch in Batches::new(bytes) {
            let batch = batch.expect("whole batches are returned");
            batch.validate_crc().expect("the CRC is right");
            let base = batch.header().base_offset;
            for record in batch.records().expect("no compression") {
                let record = record.expect("a whole record");
                let at = base + i64::from(record.offset_delta);
                if at >= offset {
                    let value = String::from_utf8_lossy(record.value.unwrap_or_default());
                    records.push((at, value.into_owned()));
                }
            }
            offset = offset.max(batch.header().next_offset());
        }
    }
}

pub async fn fetch(
    connection: &BrokerConnection,
    topic: &str,
    partition: i32,
    offset: i64,
    max_wait_ms: i32,
    max_bytes: i32,
) -> PartitionData {
    let request = fetch_request(topic, partition, offset, max_wait_ms, max_bytes);
    let wait = connection
        .start_as(&request, 12)
        .await
        .expect("the request is sent");
    let mut response = wait.await.expect("an answer");
    assert_eq!(response.error_code, 0);
    response.responses.remove(0).partitions.remove(0)
}

pub fn fetch_request(
    topic: &str,
    partition: i32,
    offset: i64,
    max_wait_ms: i32,
    max_bytes: i32,
) -> FetchRequest {
    FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        max_bytes,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: text(topic),
            partitions: vec![FetchPartition {
                partition,
                fetch_offset: offset,
                partition_max_bytes: max_bytes,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// ListOffsets: -1 is the latest, -2 the earliest, or a time.
pub async fn list_offset(
    connection: &BrokerConnection,
    topic: &str,
    partition: i32,
    timestamp: i64,
) -> ListOffsetsPartitionResponse {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: text(topic),
            partitions: vec![ListOffsetsPartition {
                partition_index: partition,
                current_leader_epoch: -1,
                timestamp,
            }],
        }],
        ..Default::default()
    };
    let mut response = connection.call(&request).await.expect("an answer");
    response.topics.remove(0).partitions.remove(0)
}

pub fn text(text: &str) -> Str {
    Str::from(text.to_string())
}
