//! Creating and loading a partition.

use super::inner::{log_config, Inner, Tasks};
use super::retention::LogStartRecorder;
use super::{
    appender::AppendQueue, waiters::OffsetWaiters, Partition, PartitionId, PartitionState,
};
use crate::config::TopicConfig;
use crate::observe::Traffic;
use crate::replication::{Replica, ReplicaEvent, ReplicaStart};
use crate::runtime::local::{Budget, Event};
use crate::runtime::Dir;
use crate::storage::{LoadError, LoadMode, LoadReport, Log, Recorder, Storage};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

/// What a partition is made of.
pub struct PartitionOptions {
    /// Which partition.
    pub id: PartitionId,
    /// Its directory, `topic-partition`.
    pub dir: Dir,
    /// The topic's settings.
    pub config: TopicConfig,
    /// The epoch under which this broker leads it.
    pub leader_epoch: i32,
    /// How many replicas it is assigned to.
    pub replication_factor: usize,
    /// Whether it is new, and otherwise how it was left.
    pub load: PartitionLoad,
    /// The shard's memory for writes in flight; the appender waits for it.
    pub write_budget: Budget,
    /// Makes a log start offset durable before it holds.
    pub record_log_start: LogStartRecorder,
    /// Makes durable how far the log is compacted, where it ends below that.
    pub record_cleaned: Recorder,
}

/// How to come by the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionLoad {
    /// A new, empty log.
    Create,
    /// The log in the directory.
    Open {
        /// The broker was stopped cleanly: the recovery scan may be skipped.
        clean: bool,
        /// From the recovery-point checkpoint.
        recovery_point: Option<i64>,
        /// From the log-start checkpoint.
        log_start: Option<i64>,
        /// From the cleaner's checkpoint.
        cleaned_to: Option<i64>,
        /// From the HW checkpoint, which holds of the HW what is flushed.
        high_watermark: Option<i64>,
    },
}

impl Partition {
    /// Creates or loads the log and leads from there on: the leader epoch is
    /// recorded with the LEO, and the high watermark rises to what is durable.
    ///
    /// # Errors
    /// The log could not be created or loaded.
    pub async fn open(
        storage: &Storage,
        options: PartitionOptions,
    ) -> Result<(Partition, LoadReport), LoadError> {
        let (log, report, high_watermark) = options.load_log(storage).await?;
        log.record_cleaned_with(options.record_cleaned.clone());
        let end_offset = log.end_offset();
        let producers = log.producers();
        log.assign_epoch(options.leader_epoch, end_offset);
        let replica = Replica::new(ReplicaStart {
            leader_epoch: options.leader_epoch,
            flush_on_ack: options.config.flush_on_ack,
            min_insync_replicas: options.config.min_insync_replicas as usize,
            flush_messages: options.config.flush_messages,
            replication_factor: options.replication_factor,
            log_start_offset: log.log_start_offset(),
            end_offset,
            flushed_offset: log.flushed_offset(),
            high_watermark,
        });
        let inner = Rc::new(Inner {
            id: options.id,
            dir: options.dir,
            storage: storage.clone(),
            write_budget: options.write_budget,
            record_log_start: options.record_log_start,
            record_cleaned: options.record_cleaned,
            config: RefCell::new(options.config),
            log: RefCell::new(log),
            replica: RefCell::new(replica),
            state: Cell::new(PartitionState::Online),
            reason: RefCell::new(String::new()),
            stopping: Cell::new(None),
            next_offset: Cell::new(end_offset),
            producers: RefCell::new(producers),
            queue: AppendQueue::default(),
            traffic: Traffic::default(),
            written: OffsetWaiters::default(),
            durable: OffsetWaiters::default(),
            visible: OffsetWaiters::default(),
            bound_moved: Event::new(),
            tasks: Tasks::default(),
            bytes_since_checkpoint: Cell::new(0),
            unflushed_since: Cell::new(None),
            fences_in_a_row: Cell::new(0),
            is_uncleanable: Cell::new(false),
            device_error_handler: RefCell::new(None),
        });
        inner.on(ReplicaEvent::BecameLeader {
            epoch: options.leader_epoch,
        });
        Ok((Partition(inner), report))
    }
}

impl PartitionOptions {
    async fn load_log(&self, storage: &Storage) -> Result<(Log, LoadReport, i64), LoadError> {
        let config = log_config(&self.config);
        match self.load {
            PartitionLoad::Create => {
                let log = Log::create(storage, self.dir.clone(), config).await?;
                Ok((log, LoadReport::default(), 0))
            }
            PartitionLoad::Open {
                clean,
                recovery_point,
                log_start,
                cleaned_to,
                high_watermark,
            } => {
                let mode = LoadMode {
                    clean,
                    recovery_point,
                    log_start,
                    flushed: high_watermark,
                    cleaned_to,
                };
                let (log, report) = Log::open(storage, self.dir.clone(), config, mode).await?;
                if let Some(now) = log.cleaned_to().filter(|now| Some(*now) < cleaned_to) {
                    // Before anything is appended there.
                    let recorded = (self.record_cleaned)(now).await;
                    recorded.map_err(LoadError::Record)?;
                }
                Ok((log, report, high_watermark.unwrap_or(0)))
            }
        }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}
