//! The partitions that this shard owns: loading, creating, deleting, closing.

use super::messages::{
    CheckpointLine, CloseSummary, LoadOrder, LoadSummary, PartitionKey,
};
use super::Shard;
use crate::config::TopicConfig;
use crate::metadata::{Change, Delta, TopicImage};
use crate::partition::{Partition, PartitionId, PartitionLoad, PartitionOptions};
use crate::protocol::ErrorCode;
use crate::runtime::{Dir, IoErrorKind, Queue, SyncSite};
use crate::storage::LoadReport;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// The table of a shard's partitions.
#[derive(Default)]
pub(super) struct Partitions {
    slots: RefCell<HashMap<PartitionKey, Slot>>,
    dir: RefCell<Option<Dir>>,
}

enum Slot {
    Online(Named),
    /// It could not be opened, or its files failed; the reason was logged.
    Offline,
}

/// A partition with the name that checkpoint files use.
#[derive(Clone)]
pub(super) struct Named {
    pub key: PartitionKey,
    pub topic: Arc<str>,
    pub partition: Partition,
}

impl Partitions {
    /// The partition, if this shard has it and it can be used.
    pub fn online(&self, key: &PartitionKey) -> Result<Partition, ErrorCode> {
        match self.slots.borrow().get(key) {
            Some(Slot::Online(named)) => Ok(named.partition.clone()),
            Some(Slot::Offline) => Err(ErrorCode::KafkaStorageError),
            None => Err(ErrorCode::UnknownTopicOrPartition),
        }
    }

    /// All that are online, for background work.
    pub fn all_online(&self) -> Vec<Named> {
        self.slots
            .borrow()
            .values()
            .filter_map(|slot| match slot {
                Slot::Online(named) => Some(named.clone()),
                Slot::Offline => None,
            })
            .collect()
    }

    /// Takes every partition offline, after the data directory has failed.
    pub fn take_all_offline(&self) {
        for slot in self.slots.borrow_mut().values_mut() {
            *slot = Slot::Offline;
        }
    }

    fn put(&self, key: PartitionKey, slot: Slot) {
        self.slots.borrow_mut().insert(key, slot);
    }

    fn take(&self, key: &PartitionKey) -> Option<Slot> {
        self.slots.borrow_mut().remove(key)
    }

    fn dir(&self) -> Dir {
        self.dir
            .borrow()
            .clone()
            .expect("partitions are touched only after the load order named the directory")
    }
}

impl Shard {
    /// Opens the partitions of the image that this shard owns.
    pub(super) async fn load(&self, order: LoadOrder) -> LoadSummary {
        let dir = self.rt().dir(&order.data_dir);
        *self.0.partitions.dir.borrow_mut() = Some(dir);
        let lines: HashMap<PartitionKey, &CheckpointLine> = order
            .checkpoints
            .iter()
            .map(|line| (line.key, line))
            .collect();
        let mut summary = LoadSummary::default();
        for topic in order.image.topics() {
            for (key, index) in self.owned(topic) {
                let line = lines.get(&key);
                let load = PartitionLoad::Open {
                    clean: order.clean,
                    recovery_point: line.and_then(|line| line.recovery_point),
                    log_start: line.and_then(|line| line.log_start),
                    high_watermark: line.and_then(|line| line.high_watermark),
                };
                match self.open(topic, key, load).await {
                    Ok(report) => {
                        summary.online += 1;
                        summary.scanned_bytes += report.scanned_bytes;
                        summary.truncated_bytes += report.truncated_bytes;
                    }
                    Err(reason) => {
                        let name = directory_name(&topic.name, index);
                        tracing::error!(partition = %name, %reason, "partition is offline");
                        summary.offline.push((name, reason));
                    }
                }
                self.rt().yield_if_needed().await;
            }
        }
        *self.0.image.borrow_mut() = Some(order.image);
        summary
    }

    /// Applies a metadata change: creates or deletes what this shard owns, then
    /// routes by the new image.
    pub(super) async fn apply(&self, delta: Delta) {
        let Some(image) = self.image() else {
            unreachable!("the control executor sends changes only after the load")
        };
        let next = image.apply(&delta);
        for change in &delta.changes {
            match change {
                Change::TopicCreated(topic) => self.create_owned(topic).await,
                Change::TopicDeleted { id, .. } => {
                    // Route no new work to it before its partitions go.
                    *self.0.image.borrow_mut() = Some(next.clone());
                    if let Some(topic) = image.topic_by_id(id) {
                        self.delete_owned(topic).await;
                    }
                }
                Change::TopicConfigsChanged { .. }
                | Change::BrokerRegistered { .. }
                | Change::ProducerIdsAllocated { .. } => {}
            }
        }
        *self.0.image.borrow_mut() = Some(next);
    }

    async fn create_owned(&self, topic: &Arc<TopicImage>) {
        for (key, index) in self.owned(topic) {
            if let Err(reason) = self.open(topic, key, PartitionLoad::Create).await {
                let name = directory_name(&topic.name, index);
                tracing::error!(partition = %name, %reason, "partition could not be created");
            }
        }
    }

    async fn delete_owned(&self, topic: &Arc<TopicImage>) {
        let dir = self.0.partitions.dir();
        for (key, index) in self.owned(topic) {
            let slot = self.0.partitions.take(&key);
            if let Some(Slot::Online(named)) = slot {
                named.partition.delete().await;
            }
            let name = directory_name(&topic.name, index);
            let doomed = format!("{name}.{}-delete", topic.id.simple());
            let renamed = dir.rename(&name, &doomed).await;
            let synced = match &renamed {
                Ok(()) => dir.sync(SyncSite::PartitionRemove).await,
                Err(error) if error.kind == IoErrorKind::NotFound => Ok(()),
                Err(error) => Err(error.clone()),
            };
            if let Err(error) = synced {
                tracing::error!(partition = %name, %error, "directory of a deleted partition stays; it is removed at the next start");
                continue;
            }
            let dir = dir.clone();
            self.rt().spawn(Queue::Background, async move {
                if let Err(error) = dir.remove_dir_all(&doomed).await {
                    if error.kind != IoErrorKind::NotFound {
                        tracing::warn!(%error, "files of a deleted partition stay; they are removed at the next start");
                    }
                }
            });
        }
    }

    async fn open(
        &self,
        topic: &Arc<TopicImage>,
        key: PartitionKey,
        load: PartitionLoad,
    ) -> Result<LoadReport, String> {
        let opened = self.try_open(topic, key, load).await;
        let (slot, result) = match opened {
            Ok((partition, report)) => {
                let named = Named {
                    key,
                    topic: topic.name.clone(),
                    partition,
                };
                (Slot::Online(named), Ok(report))
            }
            Err(reason) => (Slot::Offline, Err(reason)),
        };
        self.0.partitions.put(key, slot);
        result
    }

    async fn try_open(
        &self,
        topic: &Arc<TopicImage>,
        key: PartitionKey,
        load: PartitionLoad,
    ) -> Result<(Partition, LoadReport), String> {
        let overrides = topic
            .configs
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let config =
            TopicConfig::resolve(self.config(), overrides).map_err(|error| error.to_string())?;
        let image = &topic.partitions[key.index as usize];
        let options = PartitionOptions {
            id: PartitionId {
                topic_id: topic.id,
                topic: Rc::from(topic.name.as_ref()),
                index: key.index,
            },
            dir: self
                .0
                .partitions
                .dir()
                .subdir(&directory_name(&topic.name, key.index)),
            config,
            leader_epoch: image.leader_epoch,
            replication_factor: image.replicas.len(),
            load,
            write_budget: self.0.write_budget.clone(),
        };
        Partition::open(&self.0.storage, options)
            .await
            .map_err(|error| error.to_string())
    }

    /// Flushes and closes every partition.
    pub(super) async fn close_partitions(&self) -> CloseSummary {
        let mut summary = CloseSummary::default();
        for named in self.0.partitions.all_online() {
            match named.partition.close().await {
                Ok(closed) => summary.lines.push(CheckpointLine {
                    key: named.key,
                    topic: named.topic.to_string(),
                    recovery_point: Some(closed.recovery_point),
                    high_watermark: Some(closed.high_watermark),
                    log_start: Some(closed.log_start),
                }),
                Err(error) => summary.failed.push((
                    directory_name(&named.topic, named.key.index),
                    error.to_string(),
                )),
            }
        }
        let offline = self
            .0
            .partitions
            .slots
            .borrow()
            .iter()
            .filter(|(_, slot)| matches!(slot, Slot::Offline))
            .map(|(key, _)| (format!("{}-{}", key.topic_id, key.index), "offline".into()))
            .collect::<Vec<(String, String)>>();
        summary.failed.extend(offline);
        summary
    }

    fn owned(&self, topic: &Arc<TopicImage>) -> Vec<(PartitionKey, i32)> {
        topic
            .partitions
            .iter()
            .map(|partition| PartitionKey {
                topic_id: topic.id,
                index: partition.index,
            })
            .filter(|key| self.owner(key) == self.0.me)
            .map(|key| (key, key.index))
            .collect()
    }
}

/// The name of a partition's directory: `topic-N`.
pub(super) fn directory_name(topic: &str, index: i32) -> String {
    format!("{topic}-{index}")
}

