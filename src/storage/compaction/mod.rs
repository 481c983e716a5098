//! Compaction: of each key the last record stays.
//!
//! A round goes over one log. It reads the *dirty* part, which no round has been over, into
//! an offset map (key to last offset, in fixed memory: `offset_map.rs`), rewrites the sealed segments up to
//! the end of that part without the records that the map supersedes (`retain.rs` decides), and
//! puts the rewritten segments in the place of the old ones, one group at a time
//! (`swap.rs`). Offsets stay as they were, so that there are gaps between them.
//!
//! Why a crash at any point is safe:
//! - a line in the data directory's `cleaner-offset-checkpoint` is durable before the first
//!   swap, so that every later load expects gaps there;
//! - that line says how far the log *was* compacted until all of the round's swaps are
//!   durable, so that what a crash left undone is dirty still;
//! - groups are swapped in the order of their offsets, so that a deletion marker never goes
//!   before what it deletes;
//! - within one group every step is durable before the next (`swap.rs`), and
//!   [`LogFiles::clean_up`] finishes or undoes it by the names of the files alone.
//!
//! What excludes what: reading and writing go on beside appends, reads, retention, truncation
//! and a close, entering the log's gate anew for each piece of I/O; what happened meanwhile is
//! noticed at the next piece or at the swap, which checks that what it replaces is still there.
//!
//! What it is not: it does not decide when a log is compacted (`shard/compaction.rs`).
//!
//! [`LogFiles::clean_up`]: super::log_files::LogFiles::clean_up

mod fill;
mod group;
mod horizon;
mod need;
mod offset_map;
mod pace;
mod retain;
mod round;
mod source;
mod swap;
mod target;
#[cfg(test)]
mod tests;
mod transactions;

pub(super) use self::horizon::read_horizon;
use super::{ReadError, Throttle};
use crate::runtime::local::Event;
use crate::runtime::{IoError, IoErrorKind};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// What a round may touch, and when what expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionRules {
    /// Nothing at or above it is touched: min(high watermark, last stable offset).
    pub bound: i64,
    /// The first offset that no round has been over, as the cleaner's checkpoint has it.
    pub first_dirty: i64,
    /// The wall clock, milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// `delete.retention.ms`: how long deletion markers stay once what is before them is
    /// compacted.
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`: a segment with a younger record is left alone.
    pub min_lag_ms: i64,
    /// `max.compaction.lag.ms`: an older record makes the log overdue.
    pub max_lag_ms: i64,
}

/// How much there is to compact in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionNeed {
    /// The first offset that no round has been over, within the log.
    pub first_dirty: i64,
    /// The first offset that a round would not touch. Equal to `first_dirty` if nothing is
    /// dirty.
    pub end: i64,
    /// Bytes of the segments below `first_dirty`.
    pub clean_bytes: u64,
    /// Bytes of the segments from `first_dirty` to `end`.
    pub dirty_bytes: u64,
    /// `max.compaction.lag.ms` is reached.
    pub overdue: bool,
    /// Deletion markers below `first_dirty` have been kept for long enough.
    pub deletes_due: bool,
}

impl CompactionNeed {
    /// The part that is dirty of what a round would read, 0 to 1.
    pub fn dirty_ratio(&self) -> f64 {
        let all = self.clean_bytes + self.dirty_bytes;
        self.dirty_bytes as f64 / all.max(1) as f64
    }
}

/// Makes the first offset that was not compacted durable, wherever the owner keeps it; the
/// error is for people.
pub type Recorder = Rc<dyn Fn(i64) -> Pin<Box<dyn Future<Output = Result<(), String>>>>>;

/// What a round works with.
#[derive(Clone)]
pub struct CompactionMeans {
    /// Limits the bytes that are read and written.
    pub throttle: Throttle,
    /// Memory for the map of keys, in bytes. Where it is too small for what is dirty, the
    /// round ends early.
    pub map_bytes: usize,
    /// Records how far the log is compacted.
    pub record: Recorder,
    /// Told to end the round early.
    pub stop: Event,
}

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compacted {
    /// The first offset that was not compacted, as it was recorded.
    pub cleaned_to: i64,
    /// Segments that were rewritten.
    pub segments_before: usize,
    /// Segments that took their place.
    pub segments_after: usize,
    /// Bytes of the segments that were rewritten.
    pub bytes_before: u64,
    /// Bytes of those that took their place.
    pub bytes_after: u64,
    /// Records of the segments that were rewritten.
    pub records_before: u64,
    /// Records of those that took their place.
    pub records_after: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Memory that the map of keys took, in bytes.
    pub map_bytes: usize,
    /// The most memory that buffers took at one time, in bytes: of reads, of writes and of
    /// the one batch that was rewritten.
    pub buffer_bytes_max: usize,
    /// Whether the round ended before the end of what is dirty: it was told to, or the map
    /// was full, or the log was cut or closed.
    pub ended_early: bool,
    /// How long it took.
    pub took: Duration,
}

/// Why a log was not compacted. The log is as it was before, or compacted up to some
/// segment; it serves on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CompactionError {
    /// The bytes on disk are not what was written. The log is not compacted until it is
    /// repaired.
    #[error("compaction stopped at damage in {file} at byte {position}: {detail}; stop the broker and look at it with: highwater log verify; cut it with: highwater log repair --truncate, or restore the file")]
    Corrupt {
        /// The segment file.
        file: String,
        /// Where in it.
        position: u64,
        /// What is wrong.
        detail: String,
    },
    /// The device fails to read what was flushed: the partition goes offline.
    #[error("the log cannot be read: {0}; check the disk")]
    Unreadable(IoError),
    /// The device failed: the data directory goes offline.
    #[error("the device failed: {0}; the data directory must go offline, check the disk")]
    Device(IoError),
    /// There is no space for the compacted segments beside the old ones.
    #[error("no space to compact the log: {0}; free space on the data directory (log.dirs)")]
    NoSpace(IoError),
    /// Any other error of the file system.
    #[error("compaction failed: {0}")]
    Io(IoError),
    /// How far the log is compacted could not be recorded.
    #[error("how far the log is compacted could not be recorded: {0}")]
    Record(String),
    /// The settings or the format have no room for what the log holds: a sentence.
    #[error("the log cannot be compacted: {0}")]
    Unfit(String),
    /// The log is fenced, closed, deleted, or is being compacted already.
    #[error("the log takes no changes: {0}")]
    Closed(String),
}

impl From<IoError> for CompactionError {
    fn from(error: IoError) -> CompactionError {
        match error.kind {
            IoErrorKind::Device => CompactionError::Device(error),
            IoErrorKind::NoSpace => CompactionError::NoSpace(error),
            _ => CompactionError::Io(error),
        }
    }
}

impl From<ReadError> for CompactionError {
    fn from(error: ReadError) -> CompactionError {
        match error {
            ReadError::Corrupt {
                file,
                position,
                detail,
            } => CompactionError::Corrupt {
                file,
                position,
                detail,
            },
            ReadError::Device(error) => CompactionError::Unreadable(error),
            ReadError::Io(error) => error.into(),
            ReadError::OutOfRange { .. } => {
                CompactionError::Closed("what was to be read left it meanwhile".to_owned())
            }
            ReadError::Closed => CompactionError::Closed("it is closed".to_owned()),
        }
    }
}
