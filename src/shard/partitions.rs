//! The partitions that this shard owns: loading, creating, deleting, closing.

use super::messages::{
    CheckpointLine, CloseSummary, Elsewhere, Homeless, LoadOrder, LoadSummary, PartitionKey,
    PlacedPartition, Pong, Request,
};
use super::place::{Directories, Home, OpenError};
use super::space::{checkpointed, half_made};
use super::Shard;
use crate::config::{ConfigError, TopicConfig};
use crate::metadata::{Change, Delta, TopicImage, OFFSETS_TOPIC_NAME};
use crate::partition::{Partition, PartitionId, PartitionLoad, PartitionOptions};
use crate::protocol::ErrorCode;
use crate::runtime::local::{join_bounded, Event};
use crate::runtime::{Mono, Queue};
use crate::storage::{LoadReport, PartitionName, Room};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The table of a shard's partitions.
#[derive(Default)]
pub(super) struct Partitions {
    slots: RefCell<HashMap<PartitionKey, Slot>>,
    pub(super) dirs: Directories,
    /// Every partition of the broker that was not where it is recorded, at the start.
    pub(super) elsewhere: RefCell<Arc<Elsewhere>>,
    /// Those that were offline and are being opened.
    pub(super) reopening: Reopening,
    /// How far the load at start is.
    loading: Cell<Loading>,
}

/// The partitions that are being opened in the background. Whoever deletes one waits for that:
/// a directory goes by its name, and its successor may get the same.
#[derive(Default)]
pub(super) struct Reopening {
    keys: RefCell<HashSet<PartitionKey>>,
    changed: Event,
}

impl Reopening {
    /// Notes one until the guard is dropped.
    pub fn begin(&self, key: PartitionKey) -> impl Drop + '_ {
        struct Guard<'a>(&'a Reopening, PartitionKey);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.keys.borrow_mut().remove(&self.1);
                self.0.changed.notify_all();
            }
        }
        self.keys.borrow_mut().insert(key);
        Guard(self, key)
    }

    async fn ended(&self, key: &PartitionKey) {
        let is_over = || !self.keys.borrow().contains(key);
        self.changed.wait_until(is_over).await;
    }
}

/// How far a load is.
#[derive(Debug, Clone, Copy, Default)]
struct Loading {
    loaded: usize,
    to_load: usize,
    began: Option<Mono>,
    ended: Option<Mono>,
}

pub(super) enum Slot {
    Online(Named),
    /// It could not be opened; the reason was logged.
    Offline {
        name: String,
        /// Where it is, if that is known.
        dir: Option<usize>,
    },
}

/// A partition with the name that checkpoint files use.
#[derive(Clone)]
pub(super) struct Named {
    pub key: PartitionKey,
    pub topic: Arc<str>,
    /// The data directory that it is in, by its place in `log.dirs`.
    pub dir: usize,
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

    /// It, if it was opened.
    pub(super) fn named(&self, key: &PartitionKey) -> Option<Named> {
        match self.slots.borrow().get(key) {
            Some(Slot::Online(named)) => Some(named.clone()),
            _ => None,
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
    fn all_offline(&self) -> Vec<(Option<usize>, String, String)> {
        self.slots
            .borrow()
            .values()
            .filter_map(|slot| match slot {
                Slot::Online(_) => None,
                Slot::Offline { name, dir } => {
                    Some((*dir, name.clone(), "it is offline".to_string()))
                }
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
}

impl Shard {
    /// Opens the partitions of the image that this shard owns.
    pub(super) async fn load(&self, order: LoadOrder) -> LoadSummary {
        self.adopt_configs(&order.image);
        for dir in &order.dirs {
            let room = match dir.offline {
                None => self.guard_space(&dir.path).await,
                Some(_) => Room::default(),
            };
            self.0.partitions.dirs.add(dir, room);
        }
        *self.0.partitions.elsewhere.borrow_mut() = order.elsewhere;
        let mut wanted = Vec::new();
        for PlacedPartition {
            line,
            home,
            may_create,
        } in order.partitions
        {
            let Some(topic) = order.image.topic_by_id(&line.key.topic_id) else {
                unreachable!("the partitions are those of the image");
            };
            let home = home.map(|dir| Home { dir, may_create });
            let clean = home.as_ref().is_ok_and(|home| order.dirs[home.dir].clean);
            let load = PartitionLoad::Open {
                clean,
                recovery_point: line.recovery_point,
                log_start: line.log_start,
                cleaned_to: line.cleaned_to,
                high_watermark: line.high_watermark,
            };
            wanted.push((topic, line.key, load, home));
        }
        let progress = Progress::default();
        self.0.partitions.loading.set(Loading {
            to_load: wanted.len(),
            began: Some(self.rt().now()),
            ..Loading::default()
        });
        let loads = wanted
            .into_iter()
            .map(|(topic, key, load, home)| self.load_one(topic, key, load, home, &progress));
        join_bounded(PARTITIONS_AT_ONCE, loads).await;
        let loading = &self.0.partitions.loading;
        loading.set(Loading {
            ended: Some(self.rt().now()),
            ..loading.get()
        });
        let summary = progress.summary.into_inner();
        let offsets_topic = order.image.topic(OFFSETS_TOPIC_NAME).cloned();
        *self.0.image.borrow_mut() = Some(order.image);
        if let Some(topic) = offsets_topic {
            self.take_coordinators(&topic);
        }
        summary
    }

    /// How far its load at the start is.
    pub(super) fn load_progress(&self) -> Pong {
        let loading = self.0.partitions.loading.get();
        let counters = self.0.storage.counters();
        let now = || loading.ended.unwrap_or_else(|| self.rt().now());
        let took = loading.began.map(|began| now().since(began));
        Pong {
            loaded: loading.loaded,
            to_load: loading.to_load,
            scanned_bytes: counters.recovery_done_bytes.get(),
            to_scan_bytes: counters.recovery_due_bytes.get(),
            took: took.unwrap_or_default(),
        }
    }

    async fn load_one(
        &self,
        topic: &Arc<TopicImage>,
        key: PartitionKey,
        load: PartitionLoad,
        home: Result<Home, Homeless>,
        progress: &Progress,
    ) {
        let opened = self.open(topic, key, load, home).await;
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
            let home = self.home_of_new(&topic.partitions[key.index as usize]);
            let opened = self.open(topic, key, PartitionLoad::Create, home);
            if let Err(reason) = opened.await {
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
                self.interrupt_compaction(&key);
            }
        }
    }

    fn config_of(&self, topic: &TopicImage) -> Result<TopicConfig, ConfigError> {
        let overrides = topic
            .configs
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        TopicConfig::resolve(&self.config(), overrides)
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
        let dir = match self.0.partitions.take(&key) {
            Some(Slot::Online(named)) => {
                delay = named.partition.file_delete_delay();
                self.interrupt_compaction(&key);
                named.partition.delete().await;
                Some(named.dir)
            }
            Some(Slot::Offline { dir, .. }) => {
                self.0.partitions.reopening.ended(&key).await;
                dir
            }
            None => None,
        };
        let name = name_of(topic, key);
        // Where it lies is not known: wherever there is one of its name.
        let all = 0..self.0.partitions.dirs.count();
        let dirs = dir.map_or(all, |dir| dir..dir + 1);
        for dir in dirs {
            if let Err(error) = self.remove_directory(&name, topic.id, dir, delay).await {
                tracing::error!(partition = %name, %error, "the directory of a deleted partition stays until the next start");
            }
        }
    }

    async fn open(
        &self,
        topic: &Arc<TopicImage>,
        key: PartitionKey,
        load: PartitionLoad,
        home: Result<Home, Homeless>,
    ) -> Result<LoadReport, String> {
        let (recovery_point, high_watermark) = checkpointed(load);
        let dir = home
            .as_ref()
            .map_or_else(|homeless| homeless.dir, |home| Some(home.dir));
        let opened = match home {
            Ok(home) => self
                .try_open(topic, key, load, home)
                .await
                .map(|opened| (opened, home.dir)),
            Err(homeless) => Err(OpenError::Homeless(homeless.reason)),
        };
        let (slot, result) = match opened {
            Ok(((partition, report), dir)) => {
                let named = Named {
                    key,
                    topic: topic.name.clone(),
                    dir,
                    partition,
                    recovery_point,
                    high_watermark,
                };
                (Slot::Online(named), Ok(report))
            }
            Err(error) => {
                let name = name_of(topic, key).to_string();
                if let (true, Some(dir)) = (error.is_no_space(), dir) {
                    let home = Home {
                        dir,
                        may_create: true,
                    };
                    self.open_when_there_is_space(topic.clone(), key, half_made(load), home);
                }
                (Slot::Offline { name, dir }, Err(error.to_string()))
            }
        };
        self.0.partitions.put(key, slot);
        self.follow_directory(&key);
        result
    }

    pub(super) async fn try_open(
        &self,
        topic: &Arc<TopicImage>,
        key: PartitionKey,
        load: PartitionLoad,
        home: Home,
    ) -> Result<(Partition, LoadReport), OpenError> {
        let config = self.config_of(topic)?;
        let image = &topic.partitions[key.index as usize];
        let (dir, load) = self
            .directory(&name_of(topic, key), home, topic.id, load)
            .await?;
        let storage = self
            .0
            .storage
            .in_room(self.0.partitions.dirs.room(home.dir));
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
            record_log_start: self.log_start_recorder(key, topic.name.clone(), home.dir),
            record_cleaned: self.cleaned_recorder(key, topic.name.clone(), home.dir),
        };
        let recorded = match options.load {
            PartitionLoad::Open { high_watermark, .. } => high_watermark.unwrap_or(0),
            PartitionLoad::Create => 0,
        };
        let path = options.dir.path().to_owned();
        let (partition, report) = Partition::open(&storage, options).await?;
        let end = partition.numbers().end_offset;
        if recorded > end {
            tracing::warn!(
                "{}/ ends at offset {end}, but its high watermark was {recorded}: the records between are lost",
                path.display()
            );
        }
        let shard = self.clone();
        partition.on_device_error(move |id, reason| {
            let request = Request::DataDirFailed {
                dir: home.dir,
                reason: format!("partition {id}: {reason}"),
            };
            let rt = shard.rt().clone();
            rt.spawn(Queue::Latency, async move {
                // Without a control executor the process is ending anyway.
                let _ = shard.call_control(request).await;
            });
        });
        Ok((partition, report))
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
                    dir: named.dir,
                    recovery_point: Some(closed.recovery_point),
                    high_watermark: Some(closed.high_watermark),
                    log_start: Some(closed.log_start),
                    cleaned_to: None,
                }),
                Err(error) => {
                    let (dir, name) = (Some(named.dir), named.name());
                    summary.failed.push((dir, name, error.to_string()));
                }
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

/// What a load found so far.
#[derive(Default)]
struct Progress {
    summary: RefCell<LoadSummary>,
}

impl Progress {
    fn count(&self, shard: &Shard, name: PartitionName, opened: Result<LoadReport, String>) {
        let mut summary = self.summary.borrow_mut();
        let counters = shard.0.storage.counters();
        counters.recovery_partitions.add(1);
        match opened {
            Ok(report) => {
                summary.online += 1;
                summary.scanned_bytes += report.scanned_bytes;
                summary.rebuilt_bytes += report.rebuilt_bytes;
                summary.truncated_bytes += report.truncated_bytes;
                counters.recovery_scanned_bytes.add(report.scanned_bytes);
                counters.recovery_rebuilt_bytes.add(report.rebuilt_bytes);
                counters.recovery_ends_bytes.add(report.ends_bytes);
                counters
                    .recovery_truncated_bytes
                    .add(report.truncated_bytes);
                counters
                    .recovery_segments_opened
                    .add(report.segments_opened as u64);
                counters
                    .recovery_indexes_rebuilt
                    .add(report.indexes_rebuilt as u64);
            }
            Err(reason) => summary.offline.push((name.to_string(), reason)),
        }
        let loading = &shard.0.partitions.loading;
        loading.set(Loading {
            loaded: loading.get().loaded + 1,
            ..loading.get()
        });
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
