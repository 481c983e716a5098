//! A partition log and what the logs of one shard share.
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
//! - truncation and deletion first close the [`IoGate`] and wait until no I/O is left.
//!
//! What it is not: it does not decide when to flush, checkpoint, or delete.

use super::cache::Cache;
use super::flusher::Flusher;
use super::index::{OffsetIndex, TimeIndex};
use super::segment::{OpenSegments, Segment};
use super::{AppendError, FlushError, LoadError};
use crate::runtime::local::{Budget, Event};
use crate::runtime::{Dir, File, Rt};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What the logs of one shard share: buffer cache, cold-read budget, flusher, open
/// files. Cheap to clone, `!Send`.
#[derive(Clone)]
pub struct Storage(pub(super) Rc<StorageShared>);

pub(super) struct StorageShared {
    pub(super) rt: Rt,
    pub(super) limits: StorageLimits,
    pub(super) cache: Cache,
    pub(super) cold_reads: Budget,
    pub(super) flusher: Flusher,
    pub(super) open_segments: OpenSegments,
    next_log: Cell<u64>,
}

/// The limits of one shard's [`Storage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageLimits {
    /// Bytes of written and read buffers kept for readers.
    pub cache_bytes: u64,
    /// Bytes of reads from disk in flight.
    pub cold_read_bytes: u64,
    /// Bytes of appends in flight; the appender reserves them, the log does not.
    pub write_bytes: u64,
    /// fdatasyncs in flight at once, of all logs.
    pub flushes_in_flight_max: usize,
    /// Sealed segments whose file and indexes are open at once, of all logs.
    pub open_segments_max: usize,
}

/// The settings of one log. `Default` is Kafka's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`.
    pub segment_bytes: u32,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `segment.index.bytes`.
    pub index_bytes_max: u32,
    /// Flushed bytes after which the owner should call [`Log::checkpoint`].
    pub checkpoint_bytes: u64,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            index_interval_bytes: 4096,
            index_bytes_max: 10 << 20,
            checkpoint_bytes: 64 << 20,
        }
    }
}

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
    /// The timestamp of its first record, milliseconds; -1 if it has none.
    pub first_timestamp: i64,
    /// Its largest timestamp, milliseconds; -1 if it has none.
    pub max_timestamp: i64,
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
    pub(super) gate: IoGate,
    /// Held by whoever writes the files beside a segment: one at a time.
    pub(super) side_files: Budget,
    /// Told when a flush of this log ended, or the log closed.
    pub(super) flush_ended: Event,
    pub(super) read_ahead: super::read::ReadAhead,
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
    pub(super) flush_fence: Option<FlushError>,
    pub(super) closed: bool,
    pub(super) flush_queued: bool,
    /// (leader epoch, first offset), both increasing.
    pub(super) epochs: Vec<(i32, i64)>,
}

/// What a load found, for [`Log::assemble`].
pub(super) struct LoadedLog {
    pub(super) storage: Storage,
    pub(super) dir: Dir,
    pub(super) config: LogConfig,
    pub(super) log_start_offset: i64,
    /// Every byte below the end is durable: a load syncs what it scanned.
    pub(super) recovery_point: i64,
    /// In offset order, at least one. The last becomes the active segment and must
    /// have its file (open for writing) and indexes.
    pub(super) segments: Vec<LoadedSegment>,
    /// The bytes of the last segment from its last block boundary to its end.
    pub(super) tail: Vec<u8>,
    /// (leader epoch, first offset), both increasing.
    pub(super) epochs: Vec<(i32, i64)>,
}

/// One segment as a load found it.
pub(super) struct LoadedSegment {
    pub(super) base_offset: i64,
    /// The offset after its last batch.
    pub(super) next_offset: i64,
    /// Bytes of whole batches.
    pub(super) len: u64,
    /// The file's size, which preallocation may have taken past `len`.
    pub(super) allocated: u64,
    /// The largest timestamp of the first batch, if there is a batch.
    pub(super) first_batch_timestamp: Option<i64>,
    /// The largest timestamp and the last offset of the batch that brought it; -1
    /// and the base offset if there is none.
    pub(super) max_timestamp: (i64, i64),
    /// Open file and indexes; a sealed segment opens them when they are first needed.
    pub(super) open: Option<(File, OffsetIndex, TimeIndex)>,
}

impl Storage {
    /// Makes the shared part of one shard.
    pub fn new(rt: Rt, limits: StorageLimits) -> Storage {
        Storage(Rc::new(StorageShared {
            cache: Cache::new(limits.cache_bytes),
            cold_reads: Budget::new(limits.cold_read_bytes),
            flusher: Flusher::new(rt.clone(), limits.flushes_in_flight_max),
            open_segments: OpenSegments::new(limits.open_segments_max),
            next_log: Cell::new(0),
            rt,
            limits,
        }))
    }

    /// The runtime of the shard.
    pub fn rt(&self) -> &Rt {
        &self.0.rt
    }

    /// The limits in force.
    pub fn limits(&self) -> StorageLimits {
        self.0.limits
    }
}

impl Log {
    /// Creates a new, empty log that starts at offset 0, its directory and first
    /// segment durable.
    pub async fn create(storage: &Storage, dir: Dir, config: LogConfig) -> Result<Log, LoadError> {
        todo!()
    }

    /// Makes a log of what a load found.
    pub(super) fn assemble(loaded: LoadedLog) -> Log {
        todo!()
    }

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
    }

    /// The latest leader epoch that the log knows.
    pub fn latest_leader_epoch(&self) -> Option<i32> {
        self.0.state.borrow().epochs.last().map(|e| e.0)
    }

    /// Notes that `epoch` starts at `start_offset`; ignored unless it is later than
    /// the latest one known.
    pub fn assign_epoch(&self, epoch: i32, start_offset: i64) {
        self.0.state.borrow_mut().assign_epoch(epoch, start_offset);
    }

    /// Ends the log's use before its directory is removed: refuses new work, waits
    /// for I/O in flight, drops cached buffers and files. Removing the directory is
    /// the caller's.
    pub async fn delete(self) {
        todo!()
    }
}

impl LogState {
    pub(super) fn assign_epoch(&mut self, epoch: i32, start_offset: i64) {
        todo!()
    }
}

/// Counts I/O in flight, so that truncation and deletion can wait until none is left.
pub(super) struct IoGate;
