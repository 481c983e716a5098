//! A whole broker on one machine of a simulated world, and a client on another.
//!
//! The client sends frames that were made before, and looks at fixed places of the answers: decoding them would use
//! the broker's own functions, and nobody could tell whose work it was.

use super::{Bed, LENGTH_BYTES, TOPIC};
use crate::wire;
use anyhow::{bail, Context, Result};
use bytes::Bytes;
use highwater::config::{BrokerConfig, HostPort};
use highwater::protocol::messages::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use highwater::protocol::Str;
use highwater::runtime::sim::SimNode;
use highwater::runtime::{ConnReader, ConnWriter, Rt};
use highwater::server::{start_simulated, Simulated, SimulatedPlan};
use highwater::shard::ShardSizes;

/// One: the connection and its partition are at home on the same shard, as most are that clients care for.
pub const SHARDS: usize = 1;

pub struct BrokerBed {
    client: Client,
    /// Dropped, the broker could not be told to stop.
    _broker: Simulated,
}

impl BrokerBed {
    pub async fn start(node: SimNode, client: &Rt) -> Result<BrokerBed> {
        const MIB: u64 = 1 << 20;
        let plan = SimulatedPlan {
            config: BrokerConfig {
                listener: HostPort {
                    host: node.ip().to_string(),
                    port: 9092,
                },
                data_dirs: vec!["/data".into()],
                ..BrokerConfig::default()
            },
            shards: SHARDS,
            sizes: ShardSizes {
                request_bytes: 256 * MIB,
                response_bytes: 256 * MIB,
                frame_bytes_max: 32 << 20,
                write_bytes: 64 * MIB,
                cache_bytes: 256 * MIB,
                cold_read_bytes: 64 * MIB,
                open_segments_max: 1024,
            },
            mesh_window: 1024,
            admin: None,
        };
        let broker = start_simulated(node, plan).await?;
        let connection = client.connect(broker.ready.listen).await?;
        let (reader, writer) = connection.split();
        let mut client = Client {
            reader,
            writer,
            answer: vec![0; ANSWER_BYTES_MAX],
            slices: Vec::new(),
        };
        create_topic(&mut client).await?;
        Ok(BrokerBed {
            client,
            _broker: broker,
        })
    }
}

impl Bed for BrokerBed {
    fn request(frame: Vec<u8>) -> Bytes {
        Bytes::from(frame)
    }

    async fn produce(&mut self, frame: &Bytes) -> Result<i64> {
        let answer = self.client.call(frame).await?;
        produced_offset(answer)
    }

    async fn fetch(&mut self, frame: &Bytes) -> Result<usize> {
        Ok(self.client.call(frame).await?.len())
    }
}

struct Client {
    reader: ConnReader,
    writer: ConnWriter,
    /// Used again for each answer.
    answer: Vec<u8>,
    slices: Vec<Bytes>,
}

impl Client {
    /// Sends a frame and reads its answer, the length left off.
    async fn call(&mut self, frame: &Bytes) -> Result<&[u8]> {
        self.slices.push(frame.clone());
        self.writer.write_all(&mut self.slices).await?;
        self.read_to(0, LENGTH_BYTES).await?;
        let prefix = self.answer.first_chunk().context("a length")?;
        let length = usize::try_from(i32::from_be_bytes(*prefix)).context("a negative length")?;
        if length > self.answer.len() - LENGTH_BYTES {
            bail!("an answer of {length} bytes");
        }
        self.read_to(LENGTH_BYTES, LENGTH_BYTES + length).await?;
        Ok(&self.answer[LENGTH_BYTES..LENGTH_BYTES + length])
    }

    async fn read_to(&mut self, from: usize, to: usize) -> Result<()> {
        let mut filled = from;
        while filled < to {
            match self.reader.read(&mut self.answer[filled..to]).await? {
                0 => bail!("the broker closed the connection"),
                read => filled += read,
            }
        }
        Ok(())
    }
}

async fn create_topic(client: &mut Client) -> Result<()> {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: Str::from(TOPIC),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    const VERSION: i16 = 5;
    let frame = Bytes::from(wire::frame(VERSION, &request)?);
    let answer = client.call(&frame).await?.to_vec();
    let response: CreateTopicsResponse = wire::decode(answer, VERSION)?;
    match response.topics.first() {
        Some(topic) if topic.error_code == 0 => Ok(()),
        Some(topic) => bail!("topic {TOPIC} can't be created: error {}", topic.error_code),
        None => bail!("topic {TOPIC} was not created"),
    }
}

/// The offset of the one batch of a request. The answer begins with the correlation id, no tags, a list of one topic,
/// its name, and a list of one partition; then come its index, the error and the offset.
fn produced_offset(answer: &[u8]) -> Result<i64> {
    const ERROR_AT: usize = 4 + 1 + 1 + (1 + TOPIC.len()) + 1 + 4;
    let found = answer.get(ERROR_AT..ERROR_AT + 10);
    let found = found.context("an answer to a produce request is too short")?;
    let (error, offset) = found.split_first_chunk().context("an error code")?;
    let error = i16::from_be_bytes(*error);
    if error != 0 {
        bail!("a batch was not written: the broker answered error {error}");
    }
    Ok(i64::from_be_bytes(offset.try_into()?))
}

/// Enough for a batch of as many records as the worker takes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use highwater::protocol::messages::{
        PartitionProduceResponse, ProduceResponse, TopicProduceResponse,
    };
    use highwater::protocol::response_frame;

    fn answer(error_code: i16, base_offset: i64) -> Vec<u8> {
        let response = ProduceResponse {
            responses: vec![TopicProduceResponse {
                name: Str::from(TOPIC),
                partition_responses: vec![PartitionProduceResponse {
                    error_code,
                    base_offset,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let frame = response_frame(7, wire::PRODUCE_VERSION, &response).unwrap();
        frame.concat().split_off(LENGTH_BYTES)
    }

    #[test]
    fn given_an_answer_then_its_offset_is_found_where_it_is_encoded() {
        let offset = 0x0102_0304_0506_0708;
        assert_eq!(produced_offset(&answer(0, offset)).unwrap(), offset);
    }

    #[test]
    fn given_an_error_or_half_an_answer_then_it_is_no_offset() {
        let error = produced_offset(&answer(56, -1)).unwrap_err();
        assert!(error.to_string().ends_with("error 56"), "{error}");
        assert!(produced_offset(&answer(0, 1)[..20]).is_err());
    }
}
