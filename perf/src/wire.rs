//! A blocking Kafka connection: one socket, frames in, frames out.

use anyhow::{bail, Context, Result};
use bytes::Bytes;
use highwater::protocol::messages::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, MetadataRequest, MetadataRequestTopic,
    MetadataResponse, PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use highwater::protocol::{request_frame, Message, Reader, Records, ResponseHeader, Str};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Versions that Kafka 4.0 and later serve.
pub const PRODUCE_VERSION: i16 = 9;
pub const FETCH_VERSION: i16 = 12;
const METADATA_VERSION: i16 = 9;
const CREATE_TOPICS_VERSION: i16 = 5;
const DELETE_TOPICS_VERSION: i16 = 5;

/// No answer takes longer than this.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 512 << 20;

pub fn connect(broker: &str) -> Result<TcpStream> {
    let socket = TcpStream::connect(broker).with_context(|| format!("no broker at {broker}"))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

pub fn frame<M: Message>(version: i16, request: &M) -> Result<Vec<u8>> {
    let client_id = Str::from("perf");
    Ok(request_frame(0, Some(&client_id), version, request)?.concat())
}

pub fn read_frame(socket: &mut TcpStream) -> Result<Vec<u8>> {
    let mut prefix = [0; 4];
    socket
        .read_exact(&mut prefix)
        .context("the broker closed the connection or did not answer")?;
    let length = i32::from_be_bytes(prefix);
    let length = usize::try_from(length).context("a negative frame length")?;
    if length > ANSWER_BYTES_MAX {
        bail!("an answer of {length} bytes");
    }
    // Not zeroed first: that would cost a client of large answers more than it should.
    let mut frame = Vec::with_capacity(length);
    Read::take(&mut *socket, length as u64).read_to_end(&mut frame)?;
    if frame.len() < length {
        bail!("the broker closed the connection in the middle of an answer");
    }
    Ok(frame)
}

pub fn decode<M: Message>(frame: Vec<u8>, version: i16) -> Result<M> {
    let mut reader = Reader::new(Bytes::from(frame));
    ResponseHeader::decode(&mut reader, M::KEY, version)?;
    Ok(M::decode_versioned(&mut reader, version)?)
}

pub fn call<Q: Message, P: Message>(
    socket: &mut TcpStream,
    version: i16,
    request: &Q,
) -> Result<P> {
    socket.write_all(&frame(version, request)?)?;
    decode(read_frame(socket)?, version)
}

/// Settings of a topic, as `--topic-config NAME=VALUE` gives them.
pub fn topic_configs(configs: &[String]) -> Result<Vec<(String, String)>> {
    let parse = |config: &String| {
        let (name, value) = config
            .split_once('=')
            .with_context(|| format!("--topic-config {config}: name=value is needed"))?;
        Ok((name.to_string(), value.to_string()))
    };
    configs.iter().map(parse).collect()
}

/// Creates a topic and waits until every partition has a leader.
pub fn create_topic(
    broker: &str,
    topic: &str,
    partitions: i32,
    configs: &[(String, String)],
) -> Result<()> {
    let mut socket = connect(broker)?;
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: Str::from(topic.to_string()),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs
                .iter()
                .map(|(name, value)| CreatableTopicConfig {
                    name: Str::from(name.clone()),
                    value: Some(Str::from(value.clone())),
                })
                .collect(),
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let response: CreateTopicsResponse = call(&mut socket, CREATE_TOPICS_VERSION, &request)?;
    for result in &response.topics {
        if result.error_code != 0 {
            bail!(
                "topic {topic} can't be created: error {} {}",
                result.error_code,
                result.error_message.as_deref().unwrap_or_default()
            );
        }
    }
    for _ in 0..100 {
        let request = MetadataRequest {
            topics: Some(vec![MetadataRequestTopic {
                name: Some(Str::from(topic.to_string())),
                ..Default::default()
            }]),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let response: MetadataResponse = call(&mut socket, METADATA_VERSION, &request)?;
        let ready = response.topics.iter().all(|topic| {
            topic.error_code == 0
                && topic.partitions.len() == partitions as usize
                && topic
                    .partitions
                    .iter()
                    .all(|partition| partition.error_code == 0 && partition.leader_id >= 0)
        });
        if ready {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("topic {topic} has no leader after 10 s")
}

/// Deletes a topic.
pub fn delete_topic(broker: &str, topic: &str) -> Result<()> {
    let request = DeleteTopicsRequest {
        topic_names: vec![Str::from(topic.to_string())],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let mut socket = connect(broker)?;
    let response: DeleteTopicsResponse = call(&mut socket, DELETE_TOPICS_VERSION, &request)?;
    match response.responses.iter().find(|r| r.error_code != 0) {
        Some(result) => bail!(
            "topic {topic} can't be deleted: error {}",
            result.error_code
        ),
        None => Ok(()),
    }
}

/// Reads the answer to a produce request and insists that nothing failed.
pub fn check_produced(answer: Vec<u8>) -> Result<()> {
    let response: ProduceResponse = decode(answer, PRODUCE_VERSION)?;
    let failed = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .find(|partition| partition.error_code != 0);
    match failed {
        Some(partition) => bail!(
            "partition {}: the broker answered error {} {}",
            partition.index,
            partition.error_code,
            partition.error_message.as_deref().unwrap_or_default()
        ),
        None => Ok(()),
    }
}

/// A produce request of one batch.
pub fn produce_frame(topic: &str, partition: i32, acks: i16, batch: Bytes) -> Result<Vec<u8>> {
    frame(
        PRODUCE_VERSION,
        &ProduceRequest {
            acks,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: Str::from(topic.to_string()),
                partition_data: vec![PartitionProduceData {
                    index: partition,
                    records: Some(Records::from(batch)),
                }],
                ..Default::default()
            }],
            ..Default::default()
        },
    )
}

/// Milliseconds since the Unix epoch: records with an old timestamp would expire while
/// they are measured.
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}
