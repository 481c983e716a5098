//! The control executor: it owns the data directory's own files and the metadata
//! log, and carries metadata changes to the shards.
//!
//! It has no partitions, so a stalled data shard never holds up the metadata, and
//! the checkpoint files of the data directory have exactly one writer.

use super::directories::Directories;
use super::messages::{
    CheckpointLine, LoadDir, LoadOrder, LoadSummary, PlacedPartition, QuorumState, Reply, Request,
};
use super::{configs_in_force, Incoming, Seat};
use crate::config::BrokerConfig;
use crate::controller::{Controller, ControllerError, ControllerOptions};
use crate::metadata::{owner_shard, Change, Delta, Image};
use crate::observe::Counters;
use crate::runtime::local::{Budget, Event};
use crate::runtime::{IoError, Mesh, MeshError, Queue, ReplyTo, Rt};
use crate::storage::{DataDirError, StartKind, Storage, StorageLimits};
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
    /// Two paths of `log.dirs` are one directory, or one is a copy of the other.
    #[error("log.dirs: {one} and {other} are one data directory, or one is a copy of the other (they have the same directory.id); name it once, or remove the copy")]
    Twins {
        /// A path.
        one: String,
        /// The other.
        other: String,
    },
    /// Which metadata log holds is not known.
    #[error("log.dirs: {one} and {other} both hold a metadata log (__cluster_metadata-0), and only one can be this broker's; move the other away")]
    TwoMetadataLogs {
        /// A path.
        one: String,
        /// The other.
        other: String,
    },
    /// A disk is not mounted, most likely.
    #[error("log.dirs: {used} belongs to a broker that has run, but none of these directories holds its metadata log (__cluster_metadata-0); mount the disk that is missing, or name its directory")]
    NoMetadataLog {
        /// One that has been used.
        used: String,
    },
    /// Partitions did not close; the next start re-reads what may not be on disk.
    #[error("not a clean stop: {}", .0.join("; "))]
    NotClean(Vec<String>),
}

/// The control executor's state. Cheap to clone, `!Send`.
#[derive(Clone)]
pub struct Control(pub(super) Rc<Inner>);

pub(super) struct Inner {
    pub(super) rt: Rt,
    shards: usize,
    pub(super) checkpoint_pause: Duration,
    pub(super) controller: Controller,
    pub(super) dirs: Directories,
    /// What the broker started with.
    started: Arc<BrokerConfig>,
    /// The same under what was changed while it runs.
    config: RefCell<Arc<BrokerConfig>>,
    mesh: RefCell<Option<Mesh<Request, Reply>>>,
    /// Changes reach the shards one after the other.
    change: Budget,
    /// What the checkpoint files hold, or are to hold.
    pub(super) lines: RefCell<BTreeMap<(String, i32), CheckpointLine>>,
    /// Lines of partitions that lie nowhere for sure: kept as they are.
    pub(super) lines_held: RefCell<Vec<CheckpointLine>>,
    /// Where each partition was at the start, until the shards have loaded.
    placed: RefCell<Vec<PlacedPartition>>,
    pub(super) lines_changed: Event,
    /// The metadata log's recovery point as the file has it.
    pub(super) metadata_point: Cell<Option<i64>>,
    pub(super) stopping: Cell<bool>,
    pub(super) writing: Budget,
    /// A checkpoint file could not be written for want of space.
    pub(super) wants_space: Cell<bool>,
    /// The files may hold lines of topics that are gone.
    pub(super) lines_owed: Cell<bool>,
    failed: Event,
    failure: RefCell<Option<String>>,
    counters: Counters,
}

impl Control {
    /// Opens and locks the data directory and reads the metadata log. The clean
    /// marker is gone from the disk when this returns.
    pub async fn prepare(rt: &Rt, options: &ControlOptions) -> Result<Control, ControlError> {
        let config = &options.config;
        let dirs = Directories::open(rt, config).await?;
        let (_, data_dir) = dirs.metadata();
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
            rt.dir(data_dir.path()),
            ControllerOptions {
                node_id: config.node_id,
                cluster_id: data_dir.meta().cluster_id,
                broker_config: config.clone(),
                max_partitions_per_topic: PARTITIONS_PER_TOPIC_MAX,
                max_partitions: PARTITIONS_MAX,
                clean: data_dir.start_kind() == StartKind::Clean,
                recovery_point: data_dir.recovery_point(METADATA_TOPIC, 0),
            },
        )
        .await?;
        controller.set_directories(dirs.online_ids());
        dirs.tell_strays(&image);
        let placed = dirs.place(&image);
        let at_home = placed.iter().filter(|placed| placed.home.is_ok());
        let lines = at_home.map(|placed| (placed.line.name(), placed.line.clone()));
        let homeless = placed.iter().filter(|placed| placed.home.is_err());
        let held = homeless.flat_map(|placed| dirs.lines_everywhere(&placed.line));
        let (lines, held) = (lines.collect(), held.collect());
        let in_force = configs_in_force(config, &image);
        Ok(Control(Rc::new(Inner {
            rt: rt.clone(),
            shards: options.shards,
            checkpoint_pause: Duration::from_millis(
                config.replica_high_watermark_checkpoint_interval_ms,
            ),
            controller,
            dirs,
            started: config.clone(),
            config: RefCell::new(in_force),
            mesh: RefCell::new(None),
            change: Budget::new(1),
            lines: RefCell::new(lines),
            lines_held: RefCell::new(held),
            placed: RefCell::new(placed),
            lines_changed: Event::new(),
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
        self.0.dirs.start_kind()
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> Uuid {
        self.0.dirs.metadata().1.meta().cluster_id
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
            if self.failure().is_some() {
                return Err(error);
            }
        }
        let image = self.0.controller.image();
        let mut placed: Vec<Vec<PlacedPartition>> = vec![Vec::new(); self.0.shards];
        let all_placed = self.0.placed.take();
        let elsewhere = Arc::new(self.0.dirs.elsewhere(&image, &all_placed));
        for partition in all_placed {
            let key = &partition.line.key;
            placed[owner_shard(&key.topic_id, key.index, self.0.shards)].push(partition);
        }
        let orders = placed.into_iter().map(|partitions| {
            Request::Load(Box::new(LoadOrder {
                image: image.clone(),
                dirs: self.load_dirs(),
                partitions,
                elsewhere: elsewhere.clone(),
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

    fn load_dirs(&self) -> Vec<LoadDir> {
        let dirs = self.0.dirs.all().map(|(_, directory)| LoadDir {
            id: directory.id(),
            path: directory.path.clone(),
            clean: directory.is_clean(),
            offline: directory.failure(),
        });
        dirs.collect()
    }

    /// The data directories, and why those are offline that are.
    pub fn data_dirs(&self) -> Vec<(String, Option<String>)> {
        let all = self.0.dirs.all();
        all.map(|(_, dir)| (dir.path.display().to_string(), dir.failure()))
            .collect()
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
                failed.extend(summary.failed);
            }
        }
        self.0.controller.close().await?;
        self.write_all().await?;
        let mut reasons = Vec::new();
        for (dir, directory, data) in self.0.dirs.online() {
            // Where a partition lies that is not known to lie elsewhere.
            let not_clean = |(at, _, _): &(Option<usize>, _, _)| at.is_none_or(|at| at == dir);
            if self.failure().is_none() && !failed.iter().any(not_clean) {
                let marked = data.mark_clean().await;
                if let Err(error) = marked {
                    reasons.push(format!("{}: {error}", directory.path.display()));
                }
            }
        }
        for (_, directory) in self.0.dirs.all() {
            if let Some(reason) = directory.failure() {
                let path = directory.path.display();
                reasons.push(format!("the data directory {path} is offline: {reason}"));
            }
        }
        let failed = failed.into_iter();
        reasons.extend(failed.map(|(_, partition, reason)| format!("{partition}: {reason}")));
        match reasons.is_empty() {
            true => Ok(()),
            false => Err(ControlError::NotClean(reasons)),
        }
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
                        tracing::debug!(%error, "a line is not recorded");
                        Reply::Busy
                    }
                });
            }),
            Request::RecordCleaned(line) => self.0.rt.spawn(Queue::Latency, async move {
                let recorded = control.record_cleaned(line).await;
                reply.send(match recorded {
                    Ok(()) => Reply::Done,
                    Err(error) => {
                        tracing::debug!(%error, "a line is not recorded");
                        Reply::Busy
                    }
                });
            }),
            Request::DataDirFailed { dir, reason } => {
                self.directory_failed(dir, &reason);
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
            | Request::DirectoryOffline { .. }
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
            directory_id: self.0.dirs.metadata().1.meta().directory_id,
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
        self.drop_lines(|line| deleted.contains(&line.key.topic_id))
            .await;
    }

    fn adopt_configs(&self, delta: &Delta) {
        let mut changes = delta.changes.iter();
        if changes.any(|change| matches!(change, Change::BrokerConfigsChanged { .. })) {
            let image = self.0.controller.image();
            *self.0.config.borrow_mut() = configs_in_force(&self.0.started, &image);
        }
    }

    /// A controller that can't write its log any more refuses every change until a restart,
    /// so the broker does not go on without it. For want of space alone it goes on.
    fn fail_with_the_controller(&self) {
        if let Some(reason) = self.0.controller.failure() {
            self.fail(reason);
        }
    }

    /// Takes a data directory offline: with the metadata log the broker stops, else the
    /// partitions of the directory do, and the others serve on.
    pub(super) fn directory_failed(&self, dir: usize, reason: &str) {
        if !self.0.dirs.fail(dir, reason) {
            return;
        }
        let path = self.0.dirs.get(dir).path.display().to_string();
        if dir == self.0.dirs.metadata().0 {
            return self.fail(reason.to_owned());
        }
        tracing::error!(dir = %path, %reason, "a data directory is offline until a restart; its partitions take and give no records");
        self.0.controller.set_directories(self.0.dirs.online_ids());
        let control = self.clone();
        let reason = reason.to_owned();
        self.0.rt.spawn(Queue::Latency, async move {
            let tell = |_| Request::DirectoryOffline {
                dir,
                reason: reason.clone(),
            };
            let told = control.call_each((0..control.0.shards).map(tell).collect());
            if let Err(error) = told.await {
                control.fail(error.to_string());
            }
        });
    }

    fn fail(&self, reason: String) {
        if self.0.failure.borrow().is_none() {
            tracing::error!(%reason, "the data directory is offline");
            *self.0.failure.borrow_mut() = Some(reason);
        }
        self.0.failed.notify_all();
    }
}

/// The topic name under which the metadata log is kept, as in Kafka.
pub(super) const METADATA_TOPIC: &str = "__cluster_metadata";
/// Memory for the metadata log's cache, reads and writes, bytes.
const METADATA_CACHE_BYTES: u64 = 4 << 20;
/// One topic's partitions, at most.
const PARTITIONS_PER_TOPIC_MAX: i32 = 10_000;
/// All topics' partitions, at most.
const PARTITIONS_MAX: i32 = 100_000;
