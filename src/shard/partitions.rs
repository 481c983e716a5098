//! The partitions that this shard owns: loading, creating, deleting, closing.

use super::messages::{
    CheckpointLine, CloseSummary, LoadOrder, LoadSummary, PartitionKey, Pong, Request,
};
use super::space::{checkpointed, half_made};
use super::Shard;
use crate::config::{ConfigError, TopicConfig};
use crate::metadata::{Change, Delta, TopicImage, OFFSETS_TOPIC_NAME};
use crate::partition::{Partition, PartitionId, PartitionLoad, PartitionOptions};
use crate::protocol::ErrorCode;
use crate::runtime::local::join_bounded;
use crate::runtime::{Dir, IoError, Mono, Queue};
use crate::storage::partition_dir::{self, PartitionDirError};
use crate::storage::{LoadError, LoadReport, PartitionName, Room};
use futures_lite::future::or;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The table of a shard's partitions.
#[derive(Default)]
pub(super) struct Partitions {
    slots: RefCell<HashMap<PartitionKey, Slot>>,
    data_dir: RefCell<Option<PathBuf>>,
    /// What writers may take of its space.
    room: RefCell<Room>,
    /// How far the load at start is.
    pub loading: Cell<Pong>,
}

pub(super) enum Slot {
    Online(Named),
    /// It could not be opened; the reason was logged.
    Offline {
        name: String,
    },
}

/// Why a partition is offline.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("its settings are not valid any more: {0}")]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Directory(#[from] PartitionDirError),
    #[error(transparent)]
    Io(#[from] IoError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{path} is gone, and with it what was flushed up to offset {flushed}; restore it, or delete the topic")]
    DirectoryLost { path: String, flushed: i64 },
    #[error("{path} has lost its partition.metadata, although records were flushed there up to offset {flushed}; restore that file, or delete the topic")]
    IdLost { path: String, flushed: i64 },
    #[error("{path} belongs to another topic by its partition.metadata, although records of this one were flushed there up to offset {flushed}; restore the directory, or delete the topic")]
    OtherTopic { path: String, flushed: i64 },
}

impl OpenError {
    /// Whether the disk, or a quota, is full.
    pub fn is_no_space(&self) -> bool {
        match self {
            OpenError::Io(error) | OpenError::Directory(PartitionDirError::Io(error)) => {
                error.is_no_space()
            }
            OpenError::Load(error) => error.is_no_space(),
            _ => false,
        }
    }
}

/// A partition with the name that checkpoint files use.
#[derive(Clone)]
pub(super) struct Named {
    pub key: PartitionKey,
    pub topic: Arc<str>,
    pub partition: Partition,
    /// What the checkpoint files held when it was opened; 0 if nothing.
    pub recovery_point: i64,
    /// The same.
    pub high_watermark: i64,
}

impl Named {
    /// `topic-N`.
    pub fn name(&self) -> String {
        format!("{}-{}", self.topic, self.key.index)
    }
}

impl Partitions {
    /// The partition, if this shard has it and it can be used.
    pub fn online(&self, key: &PartitionKey) -> Result<Partition, ErrorCode> {
        match self.slots.borrow().get(key) {
            Some(Slot::Online(named)) => Ok(named.partition.clone()),
            Some(Slot::Offline { .. }) => Err(ErrorCode::KafkaStorageError),
            None => Err(ErrorCode::UnknownTopicOrPartition),
        }
    }

    /// All that are online, for background work. Sorted, so that the work is the same
    /// in every run of the simulator.
    pub fn all_online(&self) -> Vec<Named> {
        let mut online: Vec<Named> = self
            .slots
            .borrow()
            .values()
            .filter_map(|slot| match slot {
                Slot::Online(named) => Some(named.clone()),
                Slot::Offline { .. } => None,
            })
            .collect();
        online.sort_unstable_by_key(|named| named.key);
        online
    }

    /// Those that were opened, in no order, and how many could not be.
    pub fn named_and_offline(&self) -> (Vec<Named>, u64) {
        let slots = self.slots.borrow();
        let mut named = Vec::with_capacity(slots.len());
        let mut offline = 0;
        for slot in slots.values() {
            match slot {
                Slot::Online(one) => named.push(one.clone()),
                Slot::Offline { .. } => offline += 1,
            }
        }
        (named, offline)
    }

    /// Those that are offline, with the reason to give at a stop.
    fn all_offline(&self) -> Vec<(String, String)> {
        self.slots
            .borrow()
            .values()
            .filter_map(|slot| match slot {
                Slot::Online(_) => None,
                Slot::Offline { name } => Some((name.clone(), "it is offline".to_string())),
            })
            .collect()
    }

    /// True if it could not be opened.
    pub fn is_offline(&self, key: &PartitionKey) -> bool {
        matches!(self.slots.borrow().get(key), Some(Slot::Offline { .. }))
    }

    pub fn put(&self, key: PartitionKey, slot: Slot) {
        self.slots.borrow_mut().insert(key, slot);
    }

    fn take(&self, key: &PartitionKey) -> Option<Slot> {
        self.slots.borrow_mut().remove(key)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.data_dir
            .borrow()
            .clone()
            .expect("partitions are touched only after the load order named the directory")
    }
}

impl Shard {
    /// Opens the partitions of the image that this shard owns.
    pub(super) async fn load(&self, order: LoadOrder) -> LoadSummary {
        self.adopt_configs(&order.image);
        let room = self.guard_space(&order.data_dir).await;
        self.0.partitions.room.replace(room);
        *self.0.partitions.data_dir.borrow_mut() = Some(order.data_dir);
        let lines: HashMap<PartitionKey, &CheckpointLine> = order
            .checkpoints
            .iter()
            .map(|line| (line.key, line))
            .collect();
        let mut wanted = Vec::new();
        for topic in order.image.topics() {
            for key in self.owned(topic) {
                let line = lines.get(&key);
                let load = PartitionLoad::Open {
                    clean: order.clean,
                    recovery_point: line.and_then(|line| line.recovery_point),
                    log_start: line.and_then(|line| line.log_start),
                    cleaned_to: line.and_then(|line| line.cleaned_to),
                    high_watermark: line.and_then(|line| line.high_watermark),
                };
                wanted.push((topic, key, load));
            }
        }
        let progress = Progress::new(self, wanted.len());
        self.0.partitions.loading.set(Pong {
            loaded: 0,
            to_load: wanted.len(),
        });
        let loads = wanted
            .into_iter()
            .map(|(topic, key, load)| self.load_one(topic, key, load, &progress));
        join_bounded(PARTITIONS_AT_ONCE, loads).await;
        let summary = progress.summary.into_inner();
        let offsets_topic = order.image.topic(OFFSETS_TOPIC_NAME).cloned();
        *self.0.image.borrow_mut() = Some(order.image);
        if let Some(topic) = offsets_topic {
            self.take_coordinators(&topic);
        }
        summary
    }

    async fn load_one(
        &self,
        topic: &Arc<TopicImage>,
        key: PartitionKey,
        load: PartitionLoad,
        progress: &Progress,
    ) {
        let opened = self.open(topic, key, load).await;
        if let Err(reason) = &opened {
            let name = name_of(topic, key);
            tracing::error!(partition = %name, %reason, "partition is offline");
        }
        progress.count(self, name_of(topic, key), opened);
        self.rt().yield_if_needed().await;
    }

    /// Applies a metadata change: creates or deletes what this shard owns, then
    /// routes by the new image.
    pub(super) async fn apply(&self, delta: Delta) {
        let Some(image) = self.image() else {
            unreachable!("the control executor sends changes only after the load")
        };
        let next = image.apply(&delta);
        let mut deleted = Vec::new();
        for change in &delta.changes {
            match change {
                Change::TopicCreated(topic) => {
                    self.create_owned(topic, 0).await;
                    self.take_coordinators(topic);
                }
                Change::PartitionsAdded { id, partitions } => {
                    let first = partitions.first().map_or(0, |partition| partition.index);
                    if let Some(topic) = next.topic_by_id(id) {
                        self.create_owned(topic, first).await;
                    }
                }
                Change::TopicConfigsChanged { id, .. } => {
                    if let Some(topic) = next.topic_by_id(id) {
                        self.configure_owned(topic);
                    }
                }
                Change::BrokerConfigsChanged { .. } => {
                    self.adopt_configs(&next);
                    // Whatever a topic does not set itself may have changed.
                    for topic in next.topics() {
                        self.configure_owned(topic);
                        self.rt().yield_if_needed().await;
                    }
                }
                Change::TopicDeleted { id, .. } => {
                    // Route no new work to it before its partitions go.
                    *self.0.image.borrow_mut() = Some(next.clone());
                    if let Some(topic) = image.topic_by_id(id) {
                        self.drop_coordinators(topic);
                        deleted.push(&*topic.name);
                        self.delete_owned(topic).await;
                    }
                }
                Change::BrokerRegistered { .. } | Change::ProducerIdsAllocated { .. } => {}
            }
            // One request may alter many topics.
            self.rt().yield_if_needed().await;
        }
        *self.0.image.borrow_mut() = Some(next);
        if !deleted.is_empty() {
            self.forget_offsets_of(&deleted);
        }
    }

    /// Creates the partitions from the index `first` on.
    async fn create_owned(&self, topic: &Arc<TopicImage>, first: i32) {
        let new = self.owned(topic).into_iter();
        let creations = new.filter(|key| key.index >= first).map(|key| async move {
            if let Err(reason) = self.open(topic, key, PartitionLoad::Create).await {
                let name = name_of(topic, key);
                tracing::error!(partition = %name, %reason, "partition could not be created");
            }
        });
        join_bounded(PARTITIONS_AT_ONCE, creations).await;
    }

    /// Puts a topic's settings in force where it is online. The controller has checked
    /// them; should they not hold here all the same, its partitions serve on with those
    /// that they have.
    fn configure_owned(&self, topic: &Arc<TopicImage>) {
        let config = match self.config_of(topic) {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(topic = %topic.name, %error, "changed settings are not in force: they are not valid here");
                return;
            }
        };
        for key in self.owned(topic) {
            if let Ok(partition) = self.0.partitions.online(&key) {
                partition.set_config(config.clone());
            }
        }
    }

    fn config_of(&self, topic: &TopicImage) -> Result<TopicConfig, ConfigError> {
        let overrides = topic
            .configs
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        match &*topic.name {
            OFFSETS_TOPIC_NAME => TopicConfig::resolve_internal(&self.config(), overrides),
            _ => TopicConfig::resolve(&self.config(), overrides),
        }
    }

    async fn delete_owned(&self, topic: &Arc<TopicImage>) {
        let deletions = self
            .owned(topic)
            .into_iter()
            .map(|key| self.delete_one(topic, key));
        join_bounded(PARTITIONS_AT_ONCE, deletions).await;
    }

    async fn delete_one(&self, topic: &Arc<TopicImage>, key: PartitionKey) {
        let mut delay = Duration::from_millis(self.config().log_segment_delete_delay_ms);
        if let Some(Slot::Online(named)) = self.0.partitions.take(&key) {
            delay = named.partition.file_delete_delay();
            named.partition.delete().await;
        }
        let name = name_of(topic, key);
        if let Err(error) = self.remove_directory(&name, delay).await {
            tracing::error!(partition = %name, %error, "the directory of a deleted partition stays until the next start");
        }
    }

    /// Renames a partition's directory away, durably, and removes it in the background
    /// after `delay` (`file.delete.delay.ms`). A stop before leaves that to the next start.
    pub(super) async fn remove_directory(
        &self,
        name: &PartitionName,
        delay: Duration,
    ) -> Result<(), PartitionDirError> {
        let data_dir = self.0.partitions.data_dir();
        if !self
            .rt()
            .dir(&data_dir)
            .subdir(&name.to_string())
            .exists()
            .await?
        {
            return Ok(());
        }
        let renamed = partition_dir::begin_delete(self.rt(), &data_dir, name).await?;
        let shard = self.clone();
        self.rt().spawn(Queue::Background, async move {
            let (rt, stop) = (shard.rt(), shard.stop_event().listen());
            if !shard.is_stopping() {
                or(stop, rt.sleep(delay)).await;
            }
            if shard.is_stopping() {
                return;
            }
            if let Err(error) = partition_dir::finish_delete(rt, &data_dir, &renamed).await {
                tracing::warn!(%error, "files of a deleted partition stay until the next start");
            }
        });
        Ok(())
    }

    async fn open(
        &self,
        topic: &Arc<TopicImage>,
        key: PartitionKey,
        load: PartitionLoad,
    ) -> Result<LoadReport, String> {
        let (recovery_point, high_watermark) = checkpointed(load);
        let opened = self.try_open(topic, key, load).await;
        let (slot, result) = match opened {
            Ok((partition, report)) => {
                let named = Named {
                    key,
                    topic: topic.name.clone(),
                    partition,
                    recovery_point,
                    high_watermark,
                };
                (Slot::Online(named), Ok(report))
            }
            Err(error) => {
                let name = name_of(topic, key).to_string();
                if error.is_no_space() {
                    self.open_when_there_is_space(topic.clone(), key, half_made(load));
                }
                (Slot::Offline { name }, Err(error.to_string()))
            }
        };
        self.0.partitions.put(key, slot);
        result
    }

    pub(super) async fn try_open(
        &self,
        topic: &Arc<TopicImage>,
        key: PartitionKey,
        load: PartitionLoad,
    ) -> Result<(Partition, LoadReport), OpenError> {
        let config = self.config_of(topic)?;
        let image = &topic.partitions[key.index as usize];
        let (dir, load) = self.directory(&name_of(topic, key), topic.id, load).await?;
        let room = self.0.partitions.room.borrow().clone();
        let storage = self.0.storage.in_room(room);
        let options = PartitionOptions {
            id: PartitionId {
                topic_id: topic.id,
                topic: Rc::from(topic.name.as_ref()),
                index: key.index,
            },
            dir,
            config,
            leader_epoch: image.leader_epoch,
            replication_factor: image.replicas.len(),
            load,
            write_budget: self.0.write_budget.clone(),
            record_log_start: self.log_start_recorder(key, topic.name.clone()),
        };
        let (partition, report) = Partition::open(&storage, options).await?;
        let shard = self.clone();
        partition.on_device_error(move |id, reason| {
            let request = Request::DataDirFailed(format!("partition {id}: {reason}"));
            let rt = shard.rt().clone();
            rt.spawn(Queue::Latency, async move {
                // Without a control executor the process is ending anyway.
                let _ = shard.call_control(request).await;
            });
        });
        Ok((partition, report))
    }

    /// Finds or makes a partition's directory. The metadata log is the truth: what a
    /// crash left between it and the directory is finished here.
    async fn directory(
        &self,
        name: &PartitionName,
        topic_id: Uuid,
        load: PartitionLoad,
    ) -> Result<(Dir, PartitionLoad), OpenError> {
        let data_dir = self.0.partitions.data_dir();
        let dir = self.rt().dir(&data_dir).subdir(&name.to_string());
        let path = || dir.path().display().to_string();
        let flushed = match load {
            // A log start is recorded at once, a recovery point now and then.
            PartitionLoad::Open {
                recovery_point,
                log_start,
                ..
            } => recovery_point.max(log_start).unwrap_or(0),
            PartitionLoad::Create => 0,
        };
        if dir.exists().await? {
            match partition_dir::read_topic_id(&dir).await? {
                Some(found) if found == topic_id => return Ok((dir, load)),
                // This topic's records were flushed, so the one before was gone by then.
                Some(_) if flushed > 0 => {
                    return Err(OpenError::OtherTopic {
                        path: path(),
                        flushed,
                    })
                }
                // Of a deleted topic of the same name, whose removal was cut short.
                Some(_) => self.remove_directory(name, Duration::ZERO).await?,
                None if flushed > 0 => {
                    return Err(OpenError::IdLost {
                        path: path(),
                        flushed,
                    })
                }
                // Its creation was cut short.
                None => {}
            }
        } else if flushed > 0 {
            return Err(OpenError::DirectoryLost {
                path: path(),
                flushed,
            });
        }
        let dir = partition_dir::create(self.rt(), &data_dir, name, topic_id).await?;
        Ok((dir, PartitionLoad::Create))
    }

    /// Flushes and closes every partition.
    pub(super) async fn close_partitions(&self) -> CloseSummary {
        let mut summary = CloseSummary::default();
        let closing = self.0.partitions.all_online().into_iter();
        let closing = closing.map(|named| async move { (named.partition.close().await, named) });
        for (closed, named) in join_bounded(PARTITIONS_AT_ONCE, closing).await {
            match closed {
                Ok(closed) => summary.lines.push(CheckpointLine {
                    key: named.key,
                    topic: named.topic.to_string(),
                    recovery_point: Some(closed.recovery_point),
                    high_watermark: Some(closed.high_watermark),
                    log_start: Some(closed.log_start),
                    cleaned_to: None,
                }),
                Err(error) => summary.failed.push((named.name(), error.to_string())),
            }
        }
        summary.failed.extend(self.0.partitions.all_offline());
        summary
    }

    pub(super) fn owned(&self, topic: &Arc<TopicImage>) -> Vec<PartitionKey> {
        topic
            .partitions
            .iter()
            .map(|partition| PartitionKey {
                topic_id: topic.id,
                index: partition.index,
            })
            .filter(|key| self.owner(key) == self.0.me)
            .collect()
    }
}

/// How far a load is, for the log.
struct Progress {
    wanted: usize,
    done: Cell<usize>,
    told_at: Cell<Mono>,
    summary: RefCell<LoadSummary>,
}

impl Progress {
    fn new(shard: &Shard, wanted: usize) -> Progress {
        Progress {
            wanted,
            done: Cell::new(0),
            told_at: Cell::new(shard.rt().now()),
            summary: RefCell::default(),
        }
    }

    fn count(&self, shard: &Shard, name: PartitionName, opened: Result<LoadReport, String>) {
        let mut summary = self.summary.borrow_mut();
        match opened {
            Ok(report) => {
                summary.online += 1;
                summary.scanned_bytes += report.scanned_bytes;
                summary.truncated_bytes += report.truncated_bytes;
            }
            Err(reason) => summary.offline.push((name.to_string(), reason)),
        }
        self.done.set(self.done.get() + 1);
        shard.0.partitions.loading.set(Pong {
            loaded: self.done.get(),
            to_load: self.wanted,
        });
        let now = shard.rt().now();
        if now.since(self.told_at.get()) >= PROGRESS_PAUSE && self.done.get() < self.wanted {
            self.told_at.set(now);
            tracing::info!(
                shard = shard.me(),
                loaded = self.done.get(),
                of = self.wanted,
                offline = summary.offline.len(),
                scanned_bytes = summary.scanned_bytes,
                "loading partitions goes on"
            );
        }
    }
}

pub(super) fn name_of(topic: &TopicImage, key: PartitionKey) -> PartitionName {
    PartitionName {
        topic: topic.name.to_string(),
        partition: key.index,
    }
}

/// Partitions that are loaded, created, deleted or closed at the same time.
const PARTITIONS_AT_ONCE: usize = 16;
/// The time between two lines of the log about a load.
const PROGRESS_PAUSE: Duration = Duration::from_secs(5);
