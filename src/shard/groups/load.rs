//! How a shard gets its coordinators, and loses them.
//!
//! A partition of `__consumer_offsets` is read from its log start to what was its end when
//! the shard got it, `offsets.load.buffer.size` at a time, [`LOADS_AT_ONCE`] partitions at
//! a time, giving way between batches. Nothing else waits for that; who asks for one of its
//! groups is told to try again. An empty one is ready at once.
//!
//! Offsets of topics that are gone were to be forgotten when these were deleted; a crash
//! between may have kept them, so a load ends with that.

use super::{Held, Shard, Slot};
use crate::coordinator::records::Entry;
use crate::coordinator::{Coordinator, RecordFault, Replayed};
use crate::metadata::{TopicImage, OFFSETS_TOPIC_NAME};
use crate::partition::{FetchSpec, Partition, Reader};
use crate::protocol::batch::{BatchError, BatchView, Batches, RecordIter, RECORDS_BYTES_MAX};
use crate::protocol::ErrorCode;
use crate::runtime::local::join_bounded;
use crate::runtime::Queue;
use crate::shard::PartitionKey;
use bytes::Bytes;
use futures_lite::future::or;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Why a partition of `__consumer_offsets` can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadFault {
    #[error("it could not be read: {0}")]
    Read(ErrorCode),
    #[error("the batch at offset {offset}: {error}")]
    Batch { offset: i64, error: BatchError },
    #[error("the record at offset {offset}: {error}")]
    Record { offset: i64, error: RecordFault },
    /// The shard stops, or the topic is gone: nothing is amiss.
    #[error("it is no longer needed")]
    Unneeded,
}

/// What a load found.
#[derive(Default)]
pub(super) struct Loaded {
    records: u64,
    /// Of kinds that this version does not know.
    pub(super) unknown: u64,
    /// Topics that offsets were committed for.
    topics: BTreeSet<String>,
}

impl Shard {
    /// Takes over the partitions of `topic`, if it is `__consumer_offsets`, that this shard
    /// owns.
    pub(in crate::shard) fn take_coordinators(&self, topic: &Arc<TopicImage>) {
        if &*topic.name != OFFSETS_TOPIC_NAME {
            return;
        }
        let mut to_load = Vec::new();
        for key in self.owned(topic) {
            // One that is offline has no slot: its groups are told so.
            let Ok(partition) = self.0.partitions.online(&key) else {
                continue;
            };
            let numbers = partition.numbers();
            self.set_slot(key, Slot::Loading);
            if numbers.log_start_offset == numbers.end_offset {
                let coordinator = Coordinator::new(key.index, self.group_settings());
                self.open_coordinator(key, &partition, coordinator, &BTreeSet::new());
            } else {
                to_load.push((key, partition));
            }
        }
        if !to_load.is_empty() {
            let shard = self.clone();
            self.rt().spawn(Queue::Latency, async move {
                let loads = to_load.into_iter();
                let loads = loads.map(|(key, partition)| shard.load_coordinator(key, partition));
                join_bounded(LOADS_AT_ONCE, loads).await;
            });
        }
    }

    /// Gives up the coordinators of a topic that is being deleted.
    pub(in crate::shard) fn drop_coordinators(&self, topic: &TopicImage) {
        let mut slots = self.0.groups.slots.borrow_mut();
        let (gone, kept): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut *slots)
            .into_iter()
            .partition(|(key, _)| key.topic_id == topic.id);
        *slots = kept;
        drop(slots);
        for (_, slot) in gone {
            if let Slot::Ready(held) = slot {
                self.stop_coordinator(&held);
            }
        }
    }

    async fn load_coordinator(&self, key: PartitionKey, partition: Partition) {
        let name = partition.id().to_string();
        let mut coordinator = Coordinator::new(key.index, self.group_settings());
        let began = self.rt().now();
        match self.replay(key, &partition, &mut coordinator).await {
            Ok(loaded) => {
                let took_ms = self.rt().now().since(began).as_millis() as u64;
                tracing::debug!(partition = %name, records = loaded.records, took_ms, "groups were loaded");
                if loaded.unknown > 0 {
                    tracing::warn!(partition = %name, records = loaded.unknown, "records of kinds that this version does not know were passed over");
                }
                self.open_coordinator(key, &partition, coordinator, &loaded.topics);
            }
            Err(LoadFault::Unneeded) => {}
            Err(fault) => {
                tracing::error!(partition = %name, %fault, "its groups are not available");
                if self.is_loading(&key) {
                    self.set_slot(key, Slot::Failed);
                }
            }
        }
    }

    /// Begins to serve the groups of a partition.
    fn open_coordinator(
        &self,
        key: PartitionKey,
        partition: &Partition,
        mut coordinator: Coordinator,
        topics: &BTreeSet<String>,
    ) {
        let now = self.group_time();
        let opened = coordinator.loaded(now);
        let image = self.image();
        let is_there = |topic: &str| image.as_ref().is_none_or(|it| it.topic(topic).is_some());
        let topics = topics.iter().map(String::as_str);
        let absent: Vec<&str> = topics.filter(|topic| !is_there(topic)).collect();
        let forgotten = (!absent.is_empty()).then(|| coordinator.topics_deleted(&absent, now));
        let held = Rc::new(Held {
            partition: partition.clone(),
            coordinator: RefCell::new(coordinator),
            appends: Default::default(),
        });
        self.set_slot(key, Slot::Ready(held.clone()));
        self.carry_out(&held, opened, None);
        if let Some(forgotten) = forgotten {
            self.carry_out(&held, forgotten, None);
        }
    }

    async fn replay(
        &self,
        key: PartitionKey,
        partition: &Partition,
        coordinator: &mut Coordinator,
    ) -> Result<Loaded, LoadFault> {
        let numbers = partition.numbers();
        let (mut at, end) = (numbers.log_start_offset, numbers.end_offset);
        let mut loaded = Loaded::default();
        while at < end {
            let moved = partition.bound_moved().listen();
            let stop = self.stop_event().listen();
            if self.is_stopping() || !self.is_loading(&key) {
                return Err(LoadFault::Unneeded);
            }
            let read = partition.fetch(FetchSpec {
                offset: at,
                current_leader_epoch: -1,
                last_fetched_epoch: -1,
                bytes_max: self.config().offsets_load_buffer_size as usize,
                whole_first_batch: true,
                reader: Reader::Consumer,
                check_crc: true,
            });
            let read = read.await.map_err(|code| match code {
                ErrorCode::NotLeaderOrFollower => LoadFault::Unneeded,
                code => LoadFault::Read(code),
            })?;
            if read.next_offset == at {
                // What follows is not visible yet.
                or(moved, stop).await;
                continue;
            }
            for slice in read.slices {
                for batch in Batches::new(slice) {
                    let batch = batch.map_err(|error| LoadFault::Batch { offset: at, error })?;
                    loaded.replay(&batch, coordinator)?;
                    at = batch.header().next_offset();
                    self.rt().yield_if_needed().await;
                }
            }
            at = read.next_offset;
        }
        Ok(loaded)
    }

    fn set_slot(&self, key: PartitionKey, slot: Slot) {
        self.0.groups.slots.borrow_mut().insert(key, slot);
    }

    fn is_loading(&self, key: &PartitionKey) -> bool {
        let slots = self.0.groups.slots.borrow();
        matches!(slots.get(key), Some(Slot::Loading))
    }
}

impl Loaded {
    /// Gives the records of a batch to the coordinator.
    pub(super) fn replay(
        &mut self,
        batch: &BatchView,
        coordinator: &mut Coordinator,
    ) -> Result<(), LoadFault> {
        let header = batch.header();
        let base = header.base_offset;
        let of_batch = |error: BatchError| LoadFault::Batch {
            offset: base,
            error,
        };
        let bytes = batch.decompressed(RECORDS_BYTES_MAX).map_err(of_batch)?;
        for record in RecordIter::new(&bytes, header.record_count) {
            let record = record.map_err(|error| of_batch(error.into()))?;
            let offset = base + i64::from(record.offset_delta);
            let key = record
                .key
                .map(|key| bytes.slice_ref(key))
                .unwrap_or_default();
            let replayed = if header.attributes.is_control() {
                match end_of_transaction(&key) {
                    Some(committed) => Replayed::EndTransaction {
                        producer_id: header.producer_id,
                        committed,
                    },
                    // Of another kind: it says nothing about offsets.
                    None => continue,
                }
            } else {
                let value = record.value.map(|value| bytes.slice_ref(value));
                let entry = Entry::decode(key, value);
                let entry = entry.map_err(|error| LoadFault::Record { offset, error })?;
                match &entry {
                    Entry::Unknown(_) => {
                        self.unknown += 1;
                        continue;
                    }
                    Entry::Offset {
                        key,
                        value: Some(_),
                    } => {
                        if !self.topics.contains(key.topic.as_str()) {
                            self.topics.insert(key.topic.to_string());
                        }
                    }
                    Entry::Offset { value: None, .. } | Entry::Group { .. } => {}
                }
                Replayed::Record {
                    offset,
                    transaction: (header.attributes.is_transactional())
                        .then_some(header.producer_id),
                    entry,
                }
            };
            let replay = coordinator.replay(replayed);
            replay.map_err(|error| LoadFault::Record { offset, error })?;
            self.records += 1;
        }
        Ok(())
    }
}

/// Reads the key of a control record: true for a commit, false for an abort. Versions
/// after 0 may add fields.
fn end_of_transaction(key: &Bytes) -> Option<bool> {
    match (key.get(..2)?, key.get(2..4)?) {
        ([0, _], [0, 0]) => Some(false),
        ([0, _], [0, 1]) => Some(true),
        _ => None,
    }
}

/// Partitions that one shard reads at the same time.
const LOADS_AT_ONCE: usize = 2;
