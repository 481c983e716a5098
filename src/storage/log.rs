//! A partition log, as the tasks of its shard share it.
//!
//! [`Log`] is a cheap clone over one [`LogShared`], used by the tasks of one
//! executor: one appender, any number of readers, the flusher, checkpoints. They
//! interleave at every `.await`; what keeps them apart:
//! - the appender writes beyond `end_offset` only, in memory that nobody else sees
//!   until the write completed, and then publishes it in one stretch without an
//!   `.await` (`append.rs`);
//! - a reader works below the `end_offset` that it saw, holding its own refcounts of
//!   segments, files and buffers (`read.rs`);
//! - sealing and checkpoints write files beside the segment, so they exclude each
//!   other by [`LogShared::side_files`] (`segment.rs`, `checkpoint.rs`);
//! - truncation and deletion first close the [`IoGate`] and wait until no I/O is left;
//! - before another log is loaded from the directory, this one is retired (`retire.rs`).
//!
//! What it is not: it does not decide when to flush, checkpoint, or delete.

use super::checkpoint::SideFilesWritten;
use super::flusher::{FlushFence, FlushTurn};
use super::gate::IoGate;
use super::leader_epochs::{EpochEnd, EpochEntry, LeaderEpochs};
use super::producer_state::{BatchProducer, ProducerStates};
use super::read::ReadAhead;
use super::recycle::Recycler;
use super::segment::Segment;
use super::{LogConfig, Recorder, Storage};
use crate::runtime::local::{Budget, Event};
use crate::runtime::Dir;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A batch to append, with its offsets assigned.
#[derive(Debug, Clone)]
pub struct LogBatch {
    /// One whole v2 batch as received; base offset and leader epoch are stamped in
    /// the copy that is written.
    pub bytes: Bytes,
    /// The offset of its first record.
    pub base_offset: i64,
    /// The offset of its last record.
    pub last_offset: i64,
    /// The leader epoch under which it is appended.
    pub leader_epoch: i32,
    /// Its largest timestamp, milliseconds; -1 if it has none.
    pub max_timestamp: i64,
    /// The idempotent producer that made it, if one did.
    pub producer: Option<BatchProducer>,
}

/// One partition's log. Cheap to clone; all clones are the same log.
#[derive(Clone)]
pub struct Log(pub(super) Rc<LogShared>);

pub(super) struct LogShared {
    pub(super) storage: Storage,
    /// Names the log in the cache; never used twice.
    pub(super) id: u64,
    pub(super) dir: Dir,
    pub(super) config: Cell<LogConfig>,
    pub(super) state: RefCell<LogState>,
    pub(super) append_busy: Cell<bool>,
    /// An append was dropped while its write may have been in flight: it may land at
    /// any time.
    pub(super) write_lost: Cell<bool>,
    /// A segment file was created and its name is not durable yet.
    pub(super) name_unsynced: Cell<bool>,
    pub(super) gate: IoGate,
    /// Held by whoever writes the files beside a segment: one at a time.
    pub(super) side_files: Budget,
    pub(super) side_files_written: RefCell<SideFilesWritten>,
    pub(super) seal_task: Cell<SealTask>,
    /// Told when a flush of this log ended, or the log closed.
    pub(super) flush_ended: Event,
    pub(super) read_ahead: ReadAhead,
    /// Offsets may have gaps: the log is, or once was, compacted. Never turns off.
    pub(super) may_have_gaps: Cell<bool>,
    /// Where a read found no batch, though LEO is not below its end.
    pub(super) empty_range: Cell<Option<(i64, i64)>>,
    /// The first offset that was not compacted, once the log began to be.
    pub(super) cleaned_to: Cell<Option<i64>>,
    /// How the owner makes it durable.
    pub(super) record_cleaned: RefCell<Option<Recorder>>,
    /// The smallest delete horizon of what was compacted, as far as it is known, milliseconds.
    pub(super) delete_horizon: Cell<Option<i64>>,
    /// A round of compaction is under way.
    pub(super) compacting: Cell<bool>,
    pub(super) recycler: Rc<Recycler>,
}

pub(super) struct LogState {
    pub(super) log_start_offset: i64,
    /// LEO: written.
    pub(super) end_offset: i64,
    pub(super) flushed_offset: i64,
    pub(super) recovery_point: i64,
    /// In offset order, never empty; the last one is the active segment.
    pub(super) segments: Vec<Rc<Segment>>,
    /// The bytes of the active segment's last, partial block.
    pub(super) tail: Vec<u8>,
    pub(super) append_fence: Option<String>,
    pub(super) flush_fence: Option<FlushFence>,
    /// Set when a close or deletion began: no more appends.
    pub(super) closing: bool,
    pub(super) flush_turn: FlushTurn,
    pub(super) epochs: LeaderEpochs,
    /// The producers as of `end_offset`.
    pub(super) producers: ProducerStates,
    /// How often the log was cut: what was noted of its end before may not hold.
    pub(super) truncations: u64,
}

/// The task that seals in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SealTask {
    /// None runs.
    Idle,
    /// One runs, or waits for its turn.
    Running,
    /// The last one failed. The next checkpoint tries again.
    Failed,
}

impl Log {
    /// The first offset that exists.
    pub fn log_start_offset(&self) -> i64 {
        self.0.state.borrow().log_start_offset
    }

    /// LEO: the offset after the last written batch.
    pub fn end_offset(&self) -> i64 {
        self.0.state.borrow().end_offset
    }

    /// Every batch below it is durable.
    pub fn flushed_offset(&self) -> i64 {
        self.0.state.borrow().flushed_offset
    }

    /// The recovery point that may be recorded: at or below the flushed offset.
    pub fn recovery_point(&self) -> i64 {
        self.0.state.borrow().recovery_point
    }

    /// Bytes of all segments.
    pub fn size_bytes(&self) -> u64 {
        let state = self.0.state.borrow();
        state.segments.iter().map(|s| s.len()).sum()
    }

    /// Number of segments, the active one included.
    pub fn segment_count(&self) -> usize {
        self.0.state.borrow().segments.len()
    }

    /// Replaces the settings; they hold from the next append on.
    pub fn set_config(&self, config: LogConfig) {
        self.0.config.set(config);
        if config.compacted {
            self.0.may_have_gaps.set(true);
            // For good: from now on it may be compacted at any time.
            self.0.recycler.end();
        } else if !config.recycle_segments {
            self.0
                .recycler
                .drop_spares(self.0.storage.rt(), &self.0.dir);
        }
    }

    /// The first offset that was not compacted, if the log ever was: its offsets may have
    /// gaps.
    pub fn cleaned_to(&self) -> Option<i64> {
        self.0.cleaned_to.get()
    }

    /// How the first offset that was not compacted is made durable. A log that was compacted
    /// is cut below it only with this.
    pub fn record_cleaned_with(&self, recorder: Recorder) {
        self.0.record_cleaned.replace(Some(recorder));
    }

    /// The latest leader epoch that the log knows.
    pub fn latest_leader_epoch(&self) -> Option<i32> {
        self.latest_epoch().map(|entry| entry.epoch)
    }

    /// The same with its start offset.
    pub fn latest_epoch(&self) -> Option<EpochEntry> {
        self.0.state.borrow().epochs.latest()
    }

    /// The leader epoch that wrote `offset`, or that will.
    pub fn epoch_of(&self, offset: i64) -> Option<i32> {
        self.0.state.borrow().epochs.epoch_for_offset(offset)
    }

    /// Where a leader epoch ended (see [`LeaderEpochs::end_offset_for`]); the latest
    /// ends at `end_offset`.
    pub fn end_of_epoch(&self, epoch: i32, end_offset: i64) -> Option<EpochEnd> {
        let state = self.0.state.borrow();
        state.epochs.end_offset_for(epoch, end_offset)
    }

    /// Notes that `epoch` starts at `start_offset` (see [`LeaderEpochs::assign`]). It
    /// becomes durable with the next checkpoint; an epoch that wrote something is
    /// found again by recovery even before.
    pub fn assign_epoch(&self, epoch: i32, start_offset: i64) {
        self.0.state.borrow_mut().epochs.assign(epoch, start_offset);
    }

    /// The idempotent producers as of LEO. Costs nothing.
    pub fn producers(&self) -> ProducerStates {
        self.0.state.borrow().producers.clone()
    }

    /// Forgets inactive producers (see [`ProducerStates::expire`]). Returns how many.
    pub fn expire_producers(&self, now_ms: i64, expiration_ms: i64) -> usize {
        let mut state = self.0.state.borrow_mut();
        state.producers.expire(now_ms, expiration_ms)
    }

    /// Ends the log's use and makes nothing durable, where it failed or its directory is
    /// to be removed: refuses new work, waits for I/O in flight, drops cached buffers and
    /// files.
    pub async fn abandon(self) {
        self.0.state.borrow_mut().closing = true;
        self.0.gate.close().await;
        self.0.drop_memory();
    }
}

impl LogShared {
    /// The active segment.
    pub(super) fn active(&self) -> Rc<Segment> {
        let state = self.state.borrow();
        state.segments[state.segments.len() - 1].clone()
    }

    /// Lets go of buffers and files, once the gate is closed.
    pub(super) fn drop_memory(&self) {
        self.storage.0.cache.remove_log(self.id);
        for segment in &self.state.borrow().segments {
            segment.close();
        }
        self.flush_ended.notify_all();
    }
}

impl Drop for LogShared {
    /// Nobody asks for its buffers any more.
    fn drop(&mut self) {
        self.storage.0.cache.remove_log(self.id);
    }
}
