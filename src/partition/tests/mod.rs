//! A partition on the simulator: acks, group commit, faults, power cuts, reads.

mod acks;
mod compaction;
mod durability;
mod faults;
mod flushing;
mod heads;
mod lists;
mod model;
mod producers;
mod reads;
mod retention;
mod stopping;
mod validation;

use super::*;
use crate::config::{BrokerConfig, FlushOnAck};
use crate::protocol::batch::{BatchBuilder, BatchView};
use crate::runtime::local::Budget;
use crate::runtime::sim::{SimDisk, SimNode, World};
use crate::runtime::Rt;
use crate::storage::{Storage, StorageLimits};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// One simulated broker with one partition.
struct Bed {
    world: World,
    node: SimNode,
    rt: Rt,
    storage: Storage,
}

/// The wall clock that batches are made and validated with.
const NOW_MS: i64 = 1_700_000_000_000;

impl Bed {
    fn new(seed: u64) -> Bed {
        let world = World::new(seed);
        let node = world.node("broker");
        let rt = node.rt();
        let storage = storage(&rt);
        Bed {
            world,
            node,
            rt,
            storage,
        }
    }

    fn disk(&self) -> SimDisk {
        self.node.disk()
    }

    fn run<T>(&self, future: impl std::future::Future<Output = T>) -> T {
        self.world.block_on(&self.rt, future)
    }

    /// A new partition with these settings.
    fn create(&self, config: TopicConfig) -> Partition {
        let options = options(&self.rt, config, PartitionLoad::Create);
        self.open(options)
    }

    fn open(&self, options: PartitionOptions) -> Partition {
        let opened = self.run(Partition::open(&self.storage, options));
        opened.expect("the partition opens").0
    }

    /// The partition after an unclean stop, with nothing checkpointed.
    fn reopen_unclean(&mut self, config: TopicConfig) -> Partition {
        self.rt = self.node.restart();
        self.storage = storage(&self.rt);
        self.reload(config, false, None)
    }

    /// The partition opened once more by the running broker.
    fn reload(
        &self,
        config: TopicConfig,
        clean: bool,
        closed: Option<ClosedPartition>,
    ) -> Partition {
        let load = PartitionLoad::Open {
            cleaned_to: None,
            clean,
            recovery_point: closed.map(|c| c.recovery_point),
            log_start: closed.map(|c| c.log_start),
            high_watermark: closed.map(|c| c.high_watermark),
        };
        self.open(options(&self.rt, config, load))
    }
}

fn storage(rt: &Rt) -> Storage {
    Storage::new(
        rt.clone(),
        StorageLimits {
            cache_bytes: 1 << 20,
            cold_read_bytes: 1 << 20,
            write_bytes: 8 << 20,
            flushes_in_flight_max: 4,
            open_segments_max: 16,
        },
    )
}

fn options(rt: &Rt, config: TopicConfig, load: PartitionLoad) -> PartitionOptions {
    PartitionOptions {
        id: PartitionId {
            topic_id: Uuid::from_u128(7),
            topic: Rc::from("orders"),
            index: 3,
        },
        dir: rt.dir("/data/orders-3"),
        config,
        leader_epoch: 0,
        replication_factor: 1,
        load,
        write_budget: Budget::new(8 << 20),
        record_log_start: Rc::new(|_| Box::pin(std::future::ready(Ok(())))),
        record_cleaned: Rc::new(|_| Box::pin(std::future::ready(Ok(())))),
    }
}

fn config(flush_on_ack: FlushOnAck) -> TopicConfig {
    TopicConfig {
        flush_on_ack,
        ..TopicConfig::from_broker(&BrokerConfig::default())
    }
}

/// A batch with one record for each value.
fn batch<V: AsRef<[u8]>>(values: &[V]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(NOW_MS, None, Some(value.as_ref()));
    }
    builder.build()
}

impl Partition {
    /// Produces without waiting for others when a validation pauses.
    fn produce_now(
        &self,
        records: Bytes,
        acks: Acks,
        now_ms: i64,
        keep: Keep,
    ) -> Result<ProduceTicket, ProduceError> {
        futures_lite::future::block_on(self.produce(records, acks, now_ms, keep))
    }
}

fn produce(partition: &Partition, records: Bytes, acks: Acks) -> ProduceTicket {
    partition
        .produce_now(records, acks, NOW_MS, None)
        .expect("the batch is accepted")
}

fn fetch_from(offset: i64) -> FetchSpec {
    FetchSpec {
        offset,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        bytes_max: 1 << 20,
        whole_first_batch: true,
        reader: Reader::Consumer,
        check_crc: false,
    }
}

/// All visible records: (offset, value), in the order of the log.
async fn read_all(partition: &Partition) -> Vec<(i64, Vec<u8>)> {
    let mut records = Vec::new();
    let mut offset = partition.numbers().log_start_offset;
    loop {
        let outcome = partition.fetch(fetch_from(offset)).await;
        let reason = partition.0.why_refused();
        let outcome = outcome.unwrap_or_else(|code| panic!("{code} at {offset}: {reason}"));
        if outcome.bytes == 0 {
            return records;
        }
        records.extend(records_of(&outcome));
        assert!(outcome.next_offset > offset, "the fetch got on");
        offset = outcome.next_offset;
    }
}

/// The records of a fetch.
fn records_of(outcome: &FetchOutcome) -> Vec<(i64, Vec<u8>)> {
    let bytes: Vec<u8> = outcome.slices.concat();
    assert_eq!(bytes.len(), outcome.bytes);
    let mut bytes = Bytes::from(bytes);
    let mut records = Vec::new();
    for len in &outcome.batch_bytes {
        let whole = bytes.split_to(*len as usize);
        let view = BatchView::parse(whole).expect("a whole batch");
        view.validate_crc().expect("a right CRC");
        for record in view.records().expect("not compressed") {
            let record = record.expect("a record");
            let value = record.value.expect("a value").to_vec();
            records.push((
                view.header().base_offset + i64::from(record.offset_delta),
                value,
            ));
        }
    }
    assert!(bytes.is_empty());
    records
}

/// Asserts that a log's records stand at consecutive offsets from 0.
fn assert_no_hole(records: &[(i64, Vec<u8>)]) {
    for (expected, (offset, _)) in records.iter().enumerate() {
        assert_eq!(*offset, expected as i64, "a hole in the log");
    }
}

/// Waits, in virtual time, until `condition` holds.
async fn eventually(rt: &Rt, what: &str, condition: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        rt.sleep(Duration::from_millis(10)).await;
    }
    panic!("never came true: {what}");
}
