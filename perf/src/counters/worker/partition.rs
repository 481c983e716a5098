//! A partition on the simulator, and what a connection would do for it: decode the request, encode the answer.

use super::{Bed, LENGTH_BYTES, TOPIC};
use anyhow::{bail, Context, Result};
use bytes::Bytes;
use highwater::config::{BrokerConfig, TopicConfig};
use highwater::partition::{
    Acks, FetchSpec, Partition, PartitionId, PartitionLoad, PartitionOptions, Reader as ReadBy,
};
use highwater::protocol::messages::{
    FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData, PartitionProduceResponse,
    ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use highwater::protocol::{response_frame, Reader, RequestHeader};
use highwater::runtime::local::Budget;
use highwater::runtime::Rt;
use highwater::storage::{Storage, StorageLimits};
use std::rc::Rc;

/// A partition on the simulator.
pub struct PartitionBed {
    partition: Partition,
    now_ms: i64,
}

impl PartitionBed {
    pub async fn open(rt: &Rt) -> Result<PartitionBed> {
        const MIB: u64 = 1 << 20;
        let limits = StorageLimits {
            cache_bytes: 256 * MIB,
            cold_read_bytes: 8 * MIB,
            write_bytes: 8 * MIB,
            flushes_in_flight_max: 4,
            open_segments_max: 16,
        };
        let options = PartitionOptions {
            id: PartitionId {
                topic_id: uuid::Uuid::from_u128(1),
                topic: Rc::from(TOPIC),
                index: 0,
            },
            dir: rt.dir(format!("/data/{TOPIC}-0")),
            config: TopicConfig::from_broker(&BrokerConfig::default()),
            leader_epoch: 0,
            replication_factor: 1,
            load: PartitionLoad::Create,
            write_budget: Budget::new(8 * MIB),
            record_log_start: Rc::new(|_| Box::pin(std::future::ready(Ok(())))),
            record_cleaned: Rc::new(|_| Box::pin(std::future::ready(Ok(())))),
        };
        let (partition, _) = Partition::open(&Storage::new(rt.clone(), limits), options).await?;
        Ok(PartitionBed {
            partition,
            now_ms: rt.wall_clock_ms(),
        })
    }
}

impl Bed for PartitionBed {
    /// As a connection hands it over: without the length.
    fn request(frame: Vec<u8>) -> Bytes {
        Bytes::from(frame).slice(LENGTH_BYTES..)
    }

    async fn produce(&mut self, frame: &Bytes) -> Result<i64> {
        let mut reader = Reader::new(frame.clone());
        let header = RequestHeader::decode(&mut reader)?;
        let request = ProduceRequest::decode(&mut reader, header.api_version)?;
        let topic = request.topic_data.into_iter().next().context("a topic")?;
        let data = topic
            .partition_data
            .into_iter()
            .next()
            .context("a partition")?;
        let records = data.records.context("records")?.to_bytes();
        let ticket = self
            .partition
            .produce(records, Acks::All, self.now_ms, None)
            .await?;
        let (base_offset, log_start_offset) = (ticket.base_offset, ticket.log_start_offset);
        let done = ticket.done.await;
        if let Err(code) = done {
            bail!("a batch was not written: {code:?}");
        }
        let response = ProduceResponse {
            responses: vec![TopicProduceResponse {
                name: topic.name,
                partition_responses: vec![PartitionProduceResponse {
                    index: data.index,
                    base_offset,
                    log_start_offset,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        response_frame(header.correlation_id, header.api_version, &response)?;
        Ok(base_offset)
    }

    async fn fetch(&mut self, frame: &Bytes) -> Result<usize> {
        let mut reader = Reader::new(frame.clone());
        let header = RequestHeader::decode(&mut reader)?;
        let request = FetchRequest::decode(&mut reader, header.api_version)?;
        let topic = request.topics.into_iter().next().context("a topic")?;
        let wanted = topic.partitions.into_iter().next().context("a partition")?;
        let spec = FetchSpec {
            offset: wanted.fetch_offset,
            current_leader_epoch: wanted.current_leader_epoch,
            last_fetched_epoch: wanted.last_fetched_epoch,
            bytes_max: wanted.partition_max_bytes as usize,
            whole_first_batch: true,
            reader: ReadBy::Consumer,
            check_crc: false,
        };
        let outcome = self.partition.fetch(spec).await;
        let outcome = outcome.map_err(|code| anyhow::anyhow!("a fetch failed: {code:?}"))?;
        let response = FetchResponse {
            responses: vec![FetchableTopicResponse {
                topic: topic.topic,
                partitions: vec![PartitionData {
                    partition_index: wanted.partition,
                    high_watermark: outcome.high_watermark,
                    last_stable_offset: outcome.last_stable_offset,
                    log_start_offset: outcome.log_start_offset,
                    records: Some(outcome.slices.into_iter().collect()),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let chunks = response_frame(header.correlation_id, header.api_version, &response)?;
        Ok(chunks.iter().map(Bytes::len).sum())
    }
}
