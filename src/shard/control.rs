//! The control executor: it owns the data directory's own files and the metadata
//! log, and carries metadata changes to the shards.
//!
//! It has no partitions, so a stalled data shard never holds up the metadata, and
//! the checkpoint files of the data directory have exactly one writer.

use super::messages::{
    CheckpointLine, LoadOrder, LoadSummary, PartitionKey, QuorumState, Reply, Request,
};
use super::{configs_in_force, Incoming, Seat};
use crate::config::BrokerConfig;
use crate::controller::{Controller, ControllerError, ControllerFault, ControllerOptions};
use crate::metadata::{owner_shard, Change, Delta, Image};
use crate::observe::Counters;
use crate::protocol::ErrorCode;
use crate::runtime::local::{Budget, Event};
use crate::runtime::{IoError, Mesh, MeshError, Queue, ReplyTo, Rt};
use crate::storage::{DataDir, DataDirError, StartKind, Storage, StorageLimits};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// What the control executor works with.
pub struct ControlOptions {
    /// The broker's settings.
    pub config: Arc<BrokerConfig>,
    /// How many shards there are; the control executor has the place after them.
    pub shards: usize,
}

/// Why the broker can't start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The data directory can't be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The metadata log can't be used.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// A checkpoint file or the clean-shutdown marker could not be written.
    #[error("{0}")]
    Io(#[from] IoError),
    /// A shard ended.
    #[error("{0}")]
    Shard(#[from] MeshError),
    /// Partitions did not close; the next start re-reads what may not be on disk.
    #[error("not a clean stop: {}", .0.join("; "))]
    NotClean(Vec<String>),
}

/// The control executor's state. Cheap to clone, `!Send`.
#[derive(Clone)]
pub struct Control(Rc<Inner>);

struct Inner {
    rt: Rt,
    shards: usize,
    checkpoint_pause: Duration,
    controller: Controller,
    data_dir: DataDir,
    start: StartKind,
    /// What the broker started with.
    started: Arc<BrokerConfig>,
    /// The same under what was changed while it runs.
    config: RefCell<Arc<BrokerConfig>>,
    mesh: RefCell<Option<Mesh<Request, Reply>>>,
    /// Changes reach the shards one after the other.
    change: Budget,
    lines: RefCell<BTreeMap<(String, i32), CheckpointLine>>,
    lines_changed: Event,
    recovery_points_dirty: Cell<bool>,
    high_watermarks_dirty: Cell<bool>,
    log_starts_dirty: Cell<bool>,
    cleaner_points_dirty: Cell<bool>,
    /// The metadata log's recovery point as the file has it.
    metadata_point: Cell<Option<i64>>,
    stopping: Cell<bool>,
    writing: Budget,
    /// A checkpoint file could not be written for want of space.
    wants_space: Cell<bool>,
    /// The files may hold lines of topics that are gone.
    lines_owed: Cell<bool>,
    failed: Event,
    failure: RefCell<Option<String>>,
    counters: Counters,
}

impl Control {
    /// Opens and locks the data directory and reads the metadata log. The clean
    /// marker is gone from the disk when this returns.
    pub async fn prepare(rt: &Rt, options: &ControlOptions) -> Result<Control, ControlError> {
        let config = &options.config;
        let data_dir = DataDir::open(rt, &config.data_dir, config.node_id, None).await?;
        let start = data_dir.start_kind();
        let storage = Storage::new(
            rt.clone(),
            StorageLimits {
                cache_bytes: METADATA_CACHE_BYTES,
                cold_read_bytes: METADATA_CACHE_BYTES,
                write_bytes: METADATA_CACHE_BYTES,
                flushes_in_flight_max: 1,
                open_segments_max: 4,
            },
        );
        let (controller, image) = Controller::open(
            rt,
            &storage,
            rt.dir(&config.data_dir),
            ControllerOptions {
                node_id: config.node_id,
                cluster_id: data_dir.meta().cluster_id,
                broker_config: config.clone(),
                max_partitions_per_topic: PARTITIONS_PER_TOPIC_MAX,
                max_partitions: PARTITIONS_MAX,
                clean: start == StartKind::Clean,
                recovery_point: data_dir.recovery_point(METADATA_TOPIC, 0),
            },
        )
        .await?;
        let lines = lines_of(&image, &data_dir);
        let in_force = configs_in_force(config, &image);
        Ok(Control(Rc::new(Inner {
            rt: rt.clone(),
            shards: options.shards,
            checkpoint_pause: Duration::from_millis(
                config.replica_high_watermark_checkpoint_interval_ms,
            ),
            controller,
            data_dir,
            start,
            started: config.clone(),
            config: RefCell::new(in_force),
            mesh: RefCell::new(None),
            change: Budget::new(1),
            lines: RefCell::new(lines),
            lines_changed: Event::new(),
            // The files may still name topics that were deleted just before a crash.
            recovery_points_dirty: Cell::new(true),
            high_watermarks_dirty: Cell::new(true),
            log_starts_dirty: Cell::new(true),
            cleaner_points_dirty: Cell::new(true),
            metadata_point: Cell::new(None),
            stopping: Cell::new(false),
            writing: Budget::new(1),
            wants_space: Cell::new(false),
            lines_owed: Cell::new(true),
            failed: Event::new(),
            failure: RefCell::new(None),
            counters: Counters::default(),
        })))
    }

    /// How the last stop was.
    pub fn start_kind(&self) -> StartKind {
        self.0.start
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> Uuid {
        self.0.data_dir.meta().cluster_id
    }

    /// What the control executor counts: refused connections.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// The cluster's image.
    pub fn image(&self) -> Image {
        self.0.controller.image()
    }

    /// Why the data directory is offline, if it is.
    pub fn failure(&self) -> Option<String> {
        self.0.failure.borrow().clone()
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.0.shards
    }

    /// The broker's settings as they are in force now.
    pub fn config(&self) -> Arc<BrokerConfig> {
        self.0.config.borrow().clone()
    }

    /// Takes the last seat of the mesh and starts to answer.
    pub async fn join(&self, seat: Seat) {
        let control = self.clone();
        let mesh = seat
            .join(
                &self.0.rt,
                Rc::new(move |_, request, reply| control.handle(request, reply)),
            )
            .await;
        *self.0.mesh.borrow_mut() = Some(mesh);
        let control = self.clone();
        self.0.rt.spawn(Queue::Background, async move {
            control.write_checkpoints().await;
        });
    }

    /// Lets every shard load its partitions, all at the same time. Before that, the
    /// lines of topics that no longer exist leave the checkpoint files: a crash may
    /// have kept them there, and a later topic of that name must not inherit them.
    pub async fn load_shards(&self) -> Result<LoadSummary, ControlError> {
        if let Err(error) = self.write_all().await {
            self.checkpoint_failed(&error);
            if self.failure().is_some() {
                return Err(error);
            }
        }
        let image = self.0.controller.image();
        let lines: Vec<CheckpointLine> = self.0.lines.borrow().values().cloned().collect();
        let orders = (0..self.0.shards).map(|shard| {
            let lines = lines
                .iter()
                .filter(|line| {
                    owner_shard(&line.key.topic_id, line.key.index, self.0.shards) == shard
                })
                .cloned()
                .collect();
            Request::Load(Box::new(LoadOrder {
                image: image.clone(),
                data_dir: self.0.data_dir.path().to_path_buf(),
                clean: self.0.start == StartKind::Clean,
                checkpoints: lines,
            }))
        });
        let mut all = LoadSummary::default();
        for reply in self.call_each(orders.collect()).await? {
            if let Reply::Loaded(summary) = reply {
                all.online += summary.online;
                all.offline.extend(summary.offline);
                all.scanned_bytes += summary.scanned_bytes;
                all.rebuilt_bytes += summary.rebuilt_bytes;
                all.truncated_bytes += summary.truncated_bytes;
            }
        }
        Ok(all)
    }

    /// Hands a connection to a shard.
    pub async fn connection(&self, shard: usize, incoming: Incoming) -> Result<(), MeshError> {
        self.mesh()
            .call(shard, Request::Connection(incoming))
            .await
            .map(|_| ())
    }

    /// Resolves with the reason when the data directory has failed and the broker
    /// can't go on.
    pub async fn failed(&self) -> String {
        self.0
            .failed
            .wait_until(|| self.0.failure.borrow().is_some())
            .await;
        self.0.failure.borrow().clone().unwrap_or_default()
    }

    /// The clean stop: answer and end connections, close partitions, close the
    /// metadata log, write the checkpoints, and, if all of that succeeded, the
    /// marker.
    pub async fn stop(&self) -> Result<(), ControlError> {
        self.call_each((0..self.0.shards).map(|_| Request::Drain).collect())
            .await?;
        // No metadata change may be half-way when partitions close.
        let _change = self.0.change.acquire(1).await;
        let closed = self
            .call_each((0..self.0.shards).map(|_| Request::Close).collect())
            .await?;
        // These are the last lines: one that a shard sent before is older.
        self.0.stopping.set(true);
        self.0.lines_changed.notify_all();
        let mut failed = Vec::new();
        for reply in closed {
            if let Reply::Closed(summary) = reply {
                self.merge(summary.lines);
                failed.extend(
                    summary
                        .failed
                        .into_iter()
                        .map(|(partition, reason)| format!("{partition}: {reason}")),
                );
            }
        }
        self.0.controller.close().await?;
        self.write_all().await?;
        if let Some(reason) = self.0.failure.borrow().clone() {
            failed.push(reason);
        }
        if !failed.is_empty() {
            return Err(ControlError::NotClean(failed));
        }
        self.0.data_dir.mark_clean().await?;
        Ok(())
    }

    /// Releases the shards, whose executors end, and leaves the mesh.
    pub async fn leave(&self) {
        let released = self
            .call_each((0..self.0.shards).map(|_| Request::Leave).collect())
            .await;
        if let Err(error) = released {
            tracing::error!(%error, "a shard had ended before it was released");
        }
        self.mesh().close();
    }

    pub(super) fn mesh(&self) -> Mesh<Request, Reply> {
        self.0
            .mesh
            .borrow()
            .clone()
            .expect("the control executor works only after it has joined the mesh")
    }

    /// Sends one request to each shard and waits for all replies.
    pub(super) async fn call_each(&self, requests: Vec<Request>) -> Result<Vec<Reply>, MeshError> {
        let mesh = self.mesh();
        let mut calls: Vec<_> = requests
            .into_iter()
            .enumerate()
            .map(|(shard, request)| {
                let mesh = mesh.clone();
                Box::pin(async move { mesh.call(shard, request).await })
            })
            .collect();
        let mut early = Vec::with_capacity(calls.len());
        for call in &mut calls {
            early.push(futures_lite::future::poll_once(call).await);
        }
        let mut replies = Vec::with_capacity(calls.len());
        for (call, early) in calls.into_iter().zip(early) {
            replies.push(match early {
                Some(reply) => reply?,
                None => call.await?,
            });
        }
        Ok(replies)
    }

    fn handle(&self, request: Request, reply: ReplyTo<Reply>) {
        let control = self.clone();
        match request {
            Request::CreateTopics {
                topics,
                validate_only,
            } => self.0.rt.spawn(Queue::Latency, async move {
                let _change = control.0.change.acquire(1).await;
                if let Err(fault) = control.drop_lines_owed().await {
                    let results = topics.iter().map(|_| Err(fault.clone())).collect();
                    return reply.send(Reply::TopicsCreated(results));
                }
                let (results, delta) = control
                    .0
                    .controller
                    .create_topics(topics, validate_only)
                    .await;
                control.carry(delta).await;
                control.fail_with_the_controller();
                reply.send(Reply::TopicsCreated(results));
            }),
            Request::DeleteTopics(topics) => self.0.rt.spawn(Queue::Latency, async move {
                let _change = control.0.change.acquire(1).await;
                let (results, delta) = control.0.controller.delete_topics(topics).await;
                control.carry(delta).await;
                control.fail_with_the_controller();
                reply.send(Reply::TopicsDeleted(results));
            }),
            Request::AlterConfigs {
                alterations,
                validate_only,
            } => self.0.rt.spawn(Queue::Latency, async move {
                let _change = control.0.change.acquire(1).await;
                let controller = &control.0.controller;
                let (results, delta) = controller.alter_configs(alterations, validate_only).await;
                control.carry(delta).await;
                control.fail_with_the_controller();
                reply.send(Reply::Changed(results));
            }),
            Request::CreatePartitions {
                topics,
                validate_only,
            } => self.0.rt.spawn(Queue::Latency, async move {
                let _change = control.0.change.acquire(1).await;
                let controller = &control.0.controller;
                let (results, delta) = controller.create_partitions(topics, validate_only).await;
                control.carry(delta).await;
                control.fail_with_the_controller();
                reply.send(Reply::Changed(results));
            }),
            Request::AllocateProducerIds(count) => self.0.rt.spawn(Queue::Latency, async move {
                let block = control.0.controller.allocate_producer_ids(count).await;
                control.fail_with_the_controller();
                // The metadata log has grown, and may have checkpointed itself.
                control.0.lines_changed.notify_all();
                reply.send(Reply::ProducerIdsAllocated(block));
            }),
            Request::Checkpointed(lines) => {
                if !self.0.stopping.get() {
                    self.merge(lines);
                }
                reply.send(Reply::Done);
            }
            Request::RecordLogStart(line) => self.0.rt.spawn(Queue::Latency, async move {
                let recorded = control.record_log_start(line).await;
                reply.send(match recorded {
                    Ok(()) => Reply::Done,
                    Err(error) => {
                        control.checkpoint_failed(&error);
                        Reply::Busy
                    }
                });
            }),
            Request::RecordCleaned(line) => self.0.rt.spawn(Queue::Latency, async move {
                let recorded = control.record_cleaned(line).await;
                reply.send(match recorded {
                    Ok(()) => Reply::Done,
                    Err(error) => {
                        control.checkpoint_failed(&error);
                        Reply::Busy
                    }
                });
            }),
            Request::DataDirFailed(reason) => {
                self.fail(reason);
                reply.send(Reply::Done);
            }
            Request::DescribeQuorum => reply.send(Reply::Quorum(self.quorum())),
            Request::Load(_)
            | Request::Apply(_)
            | Request::Connection(_)
            | Request::Drain
            | Request::Close
            | Request::Leave
            | Request::Ping
            | Request::Produce(_)
            | Request::Fetch(_)
            | Request::ListOffsets(_)
            | Request::DeleteRecords(_)
            | Request::DescribeProducers(_)
            | Request::LogSizes(_)
            | Request::EpochEnds(_)
            | Request::Group(_)
            | Request::GroupAnswered { .. }
            | Request::GroupGone { .. }
            | Request::ListGroups
            | Request::Watch(_)
            | Request::Unwatch(_)
            | Request::Metrics(_)
            | Request::Notice(_) => unreachable!("only shards are sent these"),
        }
    }

    fn quorum(&self) -> QuorumState {
        let numbers = self.0.controller.log_numbers();
        QuorumState {
            leader_epoch: numbers.term,
            end_offset: numbers.end_offset,
            high_watermark: numbers.flushed_offset,
            directory_id: self.0.data_dir.meta().directory_id,
            now_ms: self.0.rt.wall_clock_ms(),
        }
    }

    /// Brings a change to every shard. A deleted topic's lines are off the disk
    /// before anybody can create a topic of that name.
    async fn carry(&self, delta: Option<Delta>) {
        let Some(delta) = delta else { return };
        self.adopt_configs(&delta);
        let requests = (0..self.0.shards)
            .map(|_| Request::Apply(delta.clone()))
            .collect();
        if let Err(error) = self.call_each(requests).await {
            self.fail(error.to_string());
            return;
        }
        let deleted: BTreeSet<Uuid> = delta
            .changes
            .iter()
            .filter_map(|change| match change {
                Change::TopicDeleted { id, .. } => Some(*id),
                _ => None,
            })
            .collect();
        if deleted.is_empty() {
            // The metadata log has grown, and may have checkpointed itself.
            self.0.lines_changed.notify_all();
            return;
        }
        self.0
            .lines
            .borrow_mut()
            .retain(|_, line| !deleted.contains(&line.key.topic_id));
        self.all_dirty();
        self.0.lines_owed.set(true);
        if let Err(error) = self.write_all().await {
            self.checkpoint_failed(&error);
            self.0.lines_changed.notify_all();
        }
    }

    fn adopt_configs(&self, delta: &Delta) {
        let mut changes = delta.changes.iter();
        if changes.any(|change| matches!(change, Change::BrokerConfigsChanged { .. })) {
            let image = self.0.controller.image();
            *self.0.config.borrow_mut() = configs_in_force(&self.0.started, &image);
        }
    }

    fn merge(&self, lines: Vec<CheckpointLine>) {
        let image = self.0.controller.image();
        let mut all = self.0.lines.borrow_mut();
        for line in lines {
            // A late line of a deleted topic must not speak for its successor.
            if image.topic_by_id(&line.key.topic_id).is_none() {
                continue;
            }
            let entry = all
                .entry((line.topic.clone(), line.key.index))
                .or_insert_with(|| CheckpointLine {
                    key: line.key,
                    topic: line.topic.clone(),
                    recovery_point: None,
                    high_watermark: None,
                    log_start: None,
                    cleaned_to: None,
                });
            // A log start never falls; a line that was sent earlier may come later.
            let log_start = match entry.key == line.key {
                true => line.log_start.max(entry.log_start),
                false => line.log_start,
            };
            entry.key = line.key;
            put(
                &mut entry.recovery_point,
                line.recovery_point,
                &self.0.recovery_points_dirty,
            );
            put(
                &mut entry.high_watermark,
                line.high_watermark,
                &self.0.high_watermarks_dirty,
            );
            put(&mut entry.log_start, log_start, &self.0.log_starts_dirty);
            put(
                &mut entry.cleaned_to,
                line.cleaned_to,
                &self.0.cleaner_points_dirty,
            );
        }
        drop(all);
        self.0.lines_changed.notify_all();
    }

    fn all_dirty(&self) {
        self.0.recovery_points_dirty.set(true);
        self.0.high_watermarks_dirty.set(true);
        self.0.log_starts_dirty.set(true);
        self.0.cleaner_points_dirty.set(true);
    }

    fn dirty(&self) -> bool {
        self.recovery_points_dirty()
            || self.0.high_watermarks_dirty.get()
            || self.0.log_starts_dirty.get()
            || self.0.cleaner_points_dirty.get()
    }

    fn recovery_points_dirty(&self) -> bool {
        self.0.recovery_points_dirty.get()
            || self.0.metadata_point.get() != Some(self.0.controller.recovery_point())
    }

    async fn write_checkpoints(&self) {
        loop {
            self.0
                .lines_changed
                .wait_until(|| self.dirty() || self.0.stopping.get())
                .await;
            if self.0.stopping.get() {
                return;
            }
            if let Err(error) = self.write_all().await {
                self.checkpoint_failed(&error);
                if self.failure().is_some() {
                    return;
                }
            }
            self.0.rt.sleep(self.0.checkpoint_pause).await;
        }
    }

    /// Makes a new log start durable. Those that come while a write is under way share
    /// the next.
    async fn record_log_start(&self, line: CheckpointLine) -> Result<(), ControlError> {
        self.merge(vec![line]);
        let _writing = self.0.writing.acquire(1).await;
        self.write_log_starts().await
    }

    /// The caller is the one who writes.
    async fn write_log_starts(&self) -> Result<(), ControlError> {
        if self.0.log_starts_dirty.replace(false) {
            let starts = self.column(|line| line.log_start);
            let written = self.0.data_dir.write_log_starts(&starts).await;
            still_dirty(&self.0.log_starts_dirty, &written);
            written?;
        }
        Ok(())
    }

    /// Makes durable how far a log was compacted; shared as log starts are.
    async fn record_cleaned(&self, line: CheckpointLine) -> Result<(), ControlError> {
        self.merge(vec![line]);
        let _writing = self.0.writing.acquire(1).await;
        self.write_cleaner_points().await
    }

    /// The caller is the one who writes.
    async fn write_cleaner_points(&self) -> Result<(), ControlError> {
        if self.0.cleaner_points_dirty.replace(false) {
            let points = self.column(|line| line.cleaned_to);
            let written = self.0.data_dir.write_cleaner_points(&points).await;
            still_dirty(&self.0.cleaner_points_dirty, &written);
            written?;
        }
        Ok(())
    }

    fn column(&self, pick: fn(&CheckpointLine) -> Option<i64>) -> BTreeMap<(String, i32), i64> {
        let lines = self.0.lines.borrow();
        let picked = lines
            .iter()
            .filter_map(|(name, line)| pick(line).map(|value| (name.clone(), value)));
        picked.collect()
    }

    /// Writes the files that have changed. One write at a time.
    async fn write_all(&self) -> Result<(), ControlError> {
        let _writing = self.0.writing.acquire(1).await;
        let data_dir = &self.0.data_dir;
        if self.recovery_points_dirty() {
            self.0.recovery_points_dirty.set(false);
            let mut points = self.column(|line| line.recovery_point);
            // Without it every start after a crash would re-read the whole log.
            let point = self.0.controller.recovery_point();
            points.insert((METADATA_TOPIC.to_string(), 0), point);
            let written = data_dir.write_recovery_points(&points).await;
            still_dirty(&self.0.recovery_points_dirty, &written);
            written?;
            self.0.metadata_point.set(Some(point));
        }
        if self.0.high_watermarks_dirty.replace(false) {
            let watermarks = self.column(|line| line.high_watermark);
            let written = data_dir.write_high_watermarks(&watermarks).await;
            still_dirty(&self.0.high_watermarks_dirty, &written);
            written?;
        }
        self.write_log_starts().await?;
        self.write_cleaner_points().await?;
        self.0.lines_owed.set(false);
        if self.0.wants_space.replace(false) {
            tracing::info!("there is space: the checkpoints are written");
        }
        Ok(())
    }

    /// A controller that can't write its log any more refuses every change until a restart,
    /// so the broker does not go on without it. For want of space alone it goes on.
    fn fail_with_the_controller(&self) {
        if let Some(reason) = self.0.controller.failure() {
            self.fail(reason);
        }
    }

    /// A checkpoint file was not written. It is replaced whole, so for want of space it
    /// keeps what it held, and is written again when there is some.
    fn checkpoint_failed(&self, error: &ControlError) {
        let wants_space = matches!(
            error,
            ControlError::DataDir(DataDirError::Io(io)) | ControlError::Io(io) if io.is_no_space()
        );
        if !wants_space {
            self.fail(error.to_string());
        } else if !self.0.wants_space.replace(true) {
            tracing::warn!(%error, "checkpoints wait for space; until then a restart after a crash reads more");
        }
    }

    /// Lines of deleted topics that are still on the disk would speak for new topics of
    /// their names.
    async fn drop_lines_owed(&self) -> Result<(), ControllerFault> {
        if !self.0.lines_owed.get() {
            return Ok(());
        }
        self.write_all().await.map_err(|error| {
            self.checkpoint_failed(&error);
            ControllerFault::new(
                ErrorCode::KafkaStorageError,
                format!("no topic can be created before the checkpoint files are written without those that were deleted: {error}"),
            )
        })
    }

    fn fail(&self, reason: String) {
        if self.0.failure.borrow().is_none() {
            tracing::error!(%reason, "the data directory is offline");
            *self.0.failure.borrow_mut() = Some(reason);
        }
        self.0.failed.notify_all();
    }
}

/// A write that failed is still to be done: whoever waits to share it must not take it
/// for done.
fn still_dirty<E>(dirty: &Cell<bool>, written: &Result<(), E>) {
    if written.is_err() {
        dirty.set(true);
    }
}

fn put(slot: &mut Option<i64>, value: Option<i64>, dirty: &Cell<bool>) {
    if value.is_some() && *slot != value {
        *slot = value;
        dirty.set(true);
    }
}

fn lines_of(image: &Image, data_dir: &DataDir) -> BTreeMap<(String, i32), CheckpointLine> {
    let mut lines = BTreeMap::new();
    for topic in image.topics() {
        for partition in &topic.partitions {
            let index = partition.index;
            let line = CheckpointLine {
                key: PartitionKey {
                    topic_id: topic.id,
                    index,
                },
                topic: topic.name.to_string(),
                recovery_point: data_dir.recovery_point(&topic.name, index),
                high_watermark: data_dir.high_watermark(&topic.name, index),
                log_start: data_dir.log_start(&topic.name, index),
                cleaned_to: data_dir.cleaned_to(&topic.name, index),
            };
            lines.insert((topic.name.to_string(), index), line);
        }
    }
    lines
}

/// The topic name under which the metadata log is kept, as in Kafka.
const METADATA_TOPIC: &str = "__cluster_metadata";
/// Memory for the metadata log's cache, reads and writes, bytes.
const METADATA_CACHE_BYTES: u64 = 4 << 20;
/// One topic's partitions, at most.
const PARTITIONS_PER_TOPIC_MAX: i32 = 10_000;
/// All topics' partitions, at most.
const PARTITIONS_MAX: i32 = 100_000;
