//! What the clones and the tasks of one partition share, and how the replica's
//! effects are carried out.
//!
//! All of it belongs to one executor. Every borrow ends before a waker runs and
//! before an `.await`.

use super::appender::AppendQueue;
use super::retention::LogStartRecorder;
use super::waiters::{FailedWaiters, OffsetWaiters};
use super::{Numbers, PartitionId, PartitionState};
use crate::config::TopicConfig;
use crate::observe::Traffic;
use crate::protocol::ErrorCode;
use crate::replication::{Replica, ReplicaEffect, ReplicaEvent};
use crate::runtime::local::{Budget, Event};
use crate::runtime::{Dir, Mono};
use crate::storage::{Log, LogConfig, ProducerStates, Recorder, Storage};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub(super) type DeviceErrorHandler = Box<dyn FnOnce(&PartitionId, &str)>;

/// Why a partition takes no new work although its state may be online.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopping {
    /// Closed: another broker, or a later start, may lead it.
    Close,
    /// Deleted with its topic.
    Delete,
}

/// One partition's shared state.
pub(super) struct Inner {
    pub(super) id: PartitionId,
    pub(super) dir: Dir,
    pub(super) storage: Storage,
    pub(super) write_budget: Budget,
    pub(super) record_log_start: LogStartRecorder,
    pub(super) record_cleaned: Recorder,
    pub(super) config: RefCell<TopicConfig>,
    /// Replaced as a whole when the log is rebuilt after a failed write.
    pub(super) log: RefCell<Log>,
    pub(super) replica: RefCell<Replica>,
    pub(super) state: Cell<PartitionState>,
    /// What made the state other than online, for messages.
    pub(super) reason: RefCell<String>,
    pub(super) stopping: Cell<Option<Stopping>>,
    /// The offset that the next produced record gets.
    pub(super) next_offset: Cell<i64>,
    /// The idempotent producers as of the next offset: those of the log, and the
    /// batches that are queued.
    pub(super) producers: RefCell<ProducerStates>,
    pub(super) queue: AppendQueue,
    pub(super) traffic: Traffic,
    /// Waits for the LEO.
    pub(super) written: OffsetWaiters,
    /// Waits for the replica's durable offset.
    pub(super) durable: OffsetWaiters,
    /// Waits for the high watermark.
    pub(super) visible: OffsetWaiters,
    pub(super) bound_moved: Event,
    pub(super) tasks: Tasks,
    /// Written since the last checkpoint.
    pub(super) bytes_since_checkpoint: Cell<u64>,
    /// Since when something is written and not flushed, or an earlier time; kept only
    /// where `flush.ms` asks for it.
    pub(super) unflushed_since: Cell<Option<Mono>>,
    /// Fences since the last write that succeeded: how long to wait before the
    /// next rebuild.
    pub(super) fences_in_a_row: Cell<u32>,
    /// Compaction found damage: it is not tried again.
    pub(super) is_uncleanable: Cell<bool>,
    pub(super) device_error_handler: RefCell<Option<DeviceErrorHandler>>,
}

/// What is under way in this partition, so that stopping and rebuilding can wait
/// for it.
#[derive(Default)]
pub(super) struct Tasks {
    appending: Cell<bool>,
    flushing: Cell<bool>,
    rebuilding: Cell<bool>,
    checkpoints: Cell<usize>,
    readers: Cell<usize>,
    /// Told when one of them ended, and when the partition stops.
    pub(super) changed: Event,
}

/// A task of a kind of which one runs at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Single {
    Appender,
    Flush,
    Rebuild,
}

/// Counts one read or checkpoint; ends when dropped.
pub(super) struct Running {
    inner: Rc<Inner>,
    kind: Counted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    Read,
    Checkpoint,
}

impl Inner {
    pub(super) fn log(&self) -> Log {
        self.log.borrow().clone()
    }

    pub(super) fn numbers(&self) -> Numbers {
        let replica = self.replica.borrow();
        Numbers {
            log_start_offset: replica.log_start_offset(),
            next_offset: self.next_offset.get(),
            end_offset: replica.end_offset(),
            flushed_offset: replica.flushed_offset(),
            high_watermark: replica.high_watermark(),
            last_stable_offset: self.last_stable_offset(),
            leader_epoch: replica.leader_epoch(),
        }
    }

    /// The LSO: below it every transaction is decided. There are no transactions yet,
    /// so it is the high watermark.
    pub(super) fn last_stable_offset(&self) -> i64 {
        self.replica.borrow().high_watermark()
    }

    /// Refuses what a stopped or offline partition refuses, reads included.
    pub(super) fn check_serving(&self) -> Result<(), ErrorCode> {
        match (self.stopping.get(), self.state.get()) {
            (Some(stopping), _) => Err(stopping.code()),
            (None, PartitionState::Offline) => Err(ErrorCode::KafkaStorageError),
            (None, PartitionState::Online | PartitionState::Fenced) => Ok(()),
        }
    }

    /// Compares the leader epoch that a client knows (-1: none) with this leader's.
    pub(super) fn check_leader_epoch(&self, current_leader_epoch: i32) -> Result<(), ErrorCode> {
        let ours = self.replica.borrow().leader_epoch();
        match current_leader_epoch {
            -1 => Ok(()),
            known if known < ours => Err(ErrorCode::FencedLeaderEpoch),
            known if known > ours => Err(ErrorCode::UnknownLeaderEpoch),
            _ => Ok(()),
        }
    }

    /// Tells the replica what happened and carries out what it asks for.
    pub(super) fn on(self: &Rc<Self>, event: ReplicaEvent) {
        let effects = self.replica.borrow_mut().on(event);
        // The flush first: it takes longest, and all of the rest can be done while
        // it is under way.
        if effects.contains(&ReplicaEffect::FlushWanted) {
            self.start_flush();
        }
        let (end_offset, durable_offset) = {
            let replica = self.replica.borrow();
            (replica.end_offset(), replica.durable_offset())
        };
        self.written.complete_to(end_offset);
        self.durable.complete_to(durable_offset);
        for effect in effects {
            match effect {
                ReplicaEffect::HighWatermarkMoved { high_watermark } => {
                    self.visible.complete_to(high_watermark);
                    self.bound_moved.notify_all();
                }
                ReplicaEffect::FlushWanted => {}
            }
        }
    }

    /// Puts changed topic settings in force.
    pub(super) fn set_config(self: &Rc<Self>, config: TopicConfig) {
        self.log().set_config(log_config(&config));
        let event = ReplicaEvent::PolicyChanged {
            flush_on_ack: config.flush_on_ack,
            min_insync_replicas: config.min_insync_replicas as usize,
            flush_messages: config.flush_messages,
        };
        self.config.replace(config);
        self.on(event);
        self.note_unflushed();
    }

    /// Answers everybody who waits for an offset beyond `kept` with `code`.
    pub(super) fn fail_waiters_beyond(&self, kept: i64, code: ErrorCode) {
        let mut failed = FailedWaiters::default();
        self.written.take_beyond(kept, &mut failed);
        self.durable.take_beyond(kept, &mut failed);
        self.visible.take_beyond(kept, &mut failed);
        failed.fail(code);
    }

    /// Why [`Inner::check_serving`] or a write was refused, for people.
    pub(super) fn why_refused(&self) -> String {
        match self.stopping.get() {
            Some(Stopping::Close) => "the partition is closed on this broker".to_owned(),
            Some(Stopping::Delete) => "the partition is being deleted".to_owned(),
            None => self.reason.borrow().clone(),
        }
    }

    /// Starts a task of a kind of which one runs at a time, unless it runs.
    pub(super) fn claim(&self, kind: Single) -> bool {
        !self.tasks.single(kind).replace(true)
    }

    /// Ends what [`Inner::claim`] began.
    pub(super) fn release(&self, kind: Single) {
        self.tasks.single(kind).set(false);
        self.tasks.changed.notify_all();
    }

    pub(super) fn count(self: &Rc<Self>, kind: Counted) -> Running {
        let counter = self.tasks.counter(kind);
        counter.set(counter.get() + 1);
        Running {
            inner: self.clone(),
            kind,
        }
    }
}

impl Tasks {
    /// Waits until nothing writes to the log any more. The caller has seen to it
    /// that nothing new starts.
    pub(super) async fn writers_ended(&self) {
        self.changed
            .wait_until(|| {
                !self.appending.get() && !self.flushing.get() && self.checkpoints.get() == 0
            })
            .await;
    }

    /// Waits until nothing at all is under way.
    pub(super) async fn all_ended(&self) {
        self.changed
            .wait_until(|| {
                !self.appending.get()
                    && !self.flushing.get()
                    && !self.rebuilding.get()
                    && self.checkpoints.get() == 0
                    && self.readers.get() == 0
            })
            .await;
    }

    fn single(&self, kind: Single) -> &Cell<bool> {
        match kind {
            Single::Appender => &self.appending,
            Single::Flush => &self.flushing,
            Single::Rebuild => &self.rebuilding,
        }
    }

    fn counter(&self, kind: Counted) -> &Cell<usize> {
        match kind {
            Counted::Read => &self.readers,
            Counted::Checkpoint => &self.checkpoints,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let counter = self.inner.tasks.counter(self.kind);
        counter.set(counter.get() - 1);
        self.inner.tasks.changed.notify_all();
    }
}

impl Stopping {
    /// What a client is told that comes too late.
    pub(super) fn code(self) -> ErrorCode {
        match self {
            Stopping::Close => ErrorCode::NotLeaderOrFollower,
            Stopping::Delete => ErrorCode::UnknownTopicOrPartition,
        }
    }
}

/// The log's share of a topic's settings.
pub(super) fn log_config(config: &TopicConfig) -> LogConfig {
    LogConfig {
        segment_bytes: config.segment_bytes,
        segment_ms: match config.cleanup_compact {
            // What is in the active segment is not compacted (KIP-354).
            true => config.segment_ms.min(config.max_compaction_lag_ms),
            false => config.segment_ms,
        },
        index_interval_bytes: config.index_interval_bytes,
        index_bytes_max: config.segment_index_bytes,
        checkpoint_bytes: config.checkpoint_bytes,
        segment_jitter_ms: config.segment_jitter_ms,
        file_delete_delay_ms: config.file_delete_delay_ms,
        compacted: config.cleanup_compact,
        recycle_segments: config.recycle_segments,
    }
}
