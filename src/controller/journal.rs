//! The metadata log: changes as record batches, in a `storage::Log` of its own.
//!
//! One batch holds one change, so a crash leaves a change whole or not at all. What
//! [`Journal::commit`] returned for is durable. A commit that found no space leaves nothing:
//! before the next one the log is loaded again from its files, and cut to where it was.

use super::options::SnapshotInterval;
use crate::metadata::records::{MetadataRecord, RecordError, Replay, ReplayError};
use crate::protocol::batch::{BatchBuilder, BatchView};
use crate::protocol::EncodeError;
use crate::runtime::{Dir, IoErrorKind, Rt};
use crate::storage::{
    AppendError, CheckpointError, FlushError, LoadMode, Log, LogBatch, LogConfig, ReadError,
    ReadSlices, RetireError, Storage, TruncateError,
};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The term under which batches are written: there is no quorum yet.
pub(super) const TERM: i32 = 1;

/// A change on its way to the log.
pub(super) struct JournalBatch {
    pub base_offset: i64,
    /// At least one.
    pub records: Vec<MetadataRecord>,
}

/// The writer of the metadata log. Cheap to clone.
#[derive(Clone)]
pub(super) struct Journal(Rc<Inner>);

struct Inner {
    rt: Rt,
    storage: Storage,
    dir: Dir,
    /// Replaced when it was loaded again.
    log: RefCell<Log>,
    /// The offset after the last change that was committed.
    committed: Cell<i64>,
    /// A write found no space: what lies beyond `committed` is to be cut.
    broken: Cell<bool>,
}

/// The metadata log at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogNumbers {
    /// The term under which it is written.
    pub term: i32,
    /// The LEO.
    pub end_offset: i64,
    /// What is durable.
    pub flushed_offset: i64,
}

/// How far the log has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mark {
    /// LEO.
    pub offset: i64,
    /// The log's size in bytes.
    pub bytes: u64,
}

impl Mark {
    /// True if at least an interval was logged from here to `now`.
    pub fn is_due(&self, now: &Mark, interval: SnapshotInterval) -> bool {
        now.offset - self.offset >= interval.records
            || now.bytes.saturating_sub(self.bytes) >= interval.bytes
    }
}

/// Why the metadata log cannot be written or read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// Loading or creating it failed.
    #[error("the metadata log: {0}")]
    Load(#[from] crate::storage::LoadError),
    /// Writing it failed.
    #[error("the metadata log: {0}")]
    Append(#[from] AppendError),
    /// Making it durable failed.
    #[error("the metadata log: {0}")]
    Flush(#[from] FlushError),
    /// Reading it failed.
    #[error("the metadata log: {0}")]
    Read(#[from] ReadError),
    /// Checkpointing or closing it failed.
    #[error("the metadata log: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// Loading it again after a failed write failed.
    #[error("the metadata log: {0}")]
    Retire(#[from] RetireError),
    /// Taking back a write that failed failed.
    #[error("the metadata log: {0}")]
    Truncate(#[from] TruncateError),
    /// After a failed write less is there than was committed before.
    #[error("the metadata log ends at {end} after a failed write, but {committed} had been committed; restore it from a copy")]
    Lost {
        /// LEO.
        end: i64,
        /// What should be there at least.
        committed: i64,
    },
    /// A record that cannot be written.
    #[error("the metadata log: {0}")]
    Encode(#[from] EncodeError),
    /// A batch whose checksum is right cannot be read.
    #[error("the metadata log holds a batch at offset {offset} that cannot be read: {detail}")]
    Batch {
        /// Its base offset.
        offset: i64,
        /// What is wrong.
        detail: String,
    },
    /// A record that this version cannot read.
    #[error("the metadata log at offset {offset}: {error}")]
    Record {
        /// The record's offset.
        offset: i64,
        /// Why.
        error: RecordError,
    },
    /// A batch makes no sense after those before it.
    #[error("the metadata log at offset {offset}: {error}")]
    Replay {
        /// The batch's base offset.
        offset: i64,
        /// Why.
        error: ReplayError,
    },
}

impl JournalError {
    /// Whether the disk, or a quota, is full: nothing is wrong with what is there.
    pub fn is_want_of_space(&self) -> bool {
        match self {
            JournalError::Append(error) => matches!(
                error,
                AppendError::NoSpace(_) | AppendError::ShortWrite(_) | AppendError::Fenced(_)
            ),
            JournalError::Flush(error) => {
                matches!(error, FlushError::NoSpace(_) | FlushError::Fenced(_))
            }
            JournalError::Checkpoint(error) => error.is_no_space(),
            JournalError::Load(error) => error.is_no_space(),
            JournalError::Truncate(TruncateError::Io(error)) => error.is_no_space(),
            _ => false,
        }
    }

    /// Whether the device failed: what it holds is unknown.
    pub fn is_device_failure(&self) -> bool {
        match self {
            JournalError::Checkpoint(CheckpointError::Flush(error)) => {
                !matches!(error, FlushError::NoSpace(_) | FlushError::Fenced(_))
            }
            JournalError::Checkpoint(CheckpointError::Io(error)) => {
                error.kind == IoErrorKind::Device
            }
            _ => false,
        }
    }
}

impl Journal {
    pub fn new(rt: Rt, storage: Storage, dir: Dir, log: Log) -> Journal {
        Journal(Rc::new(Inner {
            rt,
            storage,
            dir,
            committed: Cell::new(log.end_offset()),
            log: RefCell::new(log),
            broken: Cell::new(false),
        }))
    }

    fn log(&self) -> Log {
        self.0.log.borrow().clone()
    }

    /// The offset that the next record gets.
    pub fn next_offset(&self) -> i64 {
        self.0.committed.get()
    }

    /// The first offset that exists.
    pub fn start_offset(&self) -> i64 {
        self.log().log_start_offset()
    }

    /// The recovery point that may be recorded.
    pub fn recovery_point(&self) -> i64 {
        self.log().recovery_point().min(self.0.committed.get())
    }

    /// The log now.
    pub fn numbers(&self) -> LogNumbers {
        LogNumbers {
            term: TERM,
            end_offset: self.0.committed.get(),
            flushed_offset: self.0.committed.get(),
        }
    }

    /// How far the log has come.
    pub fn mark(&self) -> Mark {
        Mark {
            offset: self.0.committed.get(),
            bytes: self.log().size_bytes(),
        }
    }

    /// Appends the batches, which follow the end of the log, and makes them durable. After
    /// an error for want of space none of them is there, and it may be tried again.
    pub async fn commit(&self, batches: &[JournalBatch]) -> Result<(), JournalError> {
        self.mend().await?;
        self.noting(self.write(batches).await)
    }

    async fn write(&self, batches: &[JournalBatch]) -> Result<(), JournalError> {
        let (rt, log) = (&self.0.rt, self.log());
        let now = rt.wall_clock_ms();
        let mut encoded = Vec::with_capacity(batches.len());
        for batch in batches {
            encoded.push(encode(batch, now)?);
            rt.yield_if_needed().await;
        }
        let end = encoded.last().map(|batch| batch.last_offset + 1);
        log.append(&encoded).await?;
        let flushed = log.flush().await?;
        assert!(
            end.is_some_and(|end| flushed >= end && log.end_offset() == end),
            "the metadata log has one writer, and a flush covers what was written before it"
        );
        self.0.committed.set(log.end_offset());
        Ok(())
    }

    /// Notes that the log is to be loaded again before it is written again; unless its device
    /// failed, of which a fence may be the first sign.
    fn noting<T>(&self, result: Result<T, JournalError>) -> Result<T, JournalError> {
        let result = result.map_err(|error| match self.log().device_failure() {
            Some(failure) => failure.into(),
            None => error,
        });
        if let Err(error) = &result {
            self.0
                .broken
                .set(self.0.broken.get() || error.is_want_of_space());
        }
        result
    }

    /// Loads the log again if a write found no space, without what that write left.
    async fn mend(&self) -> Result<(), JournalError> {
        let inner = &*self.0;
        if !inner.broken.get() {
            return Ok(());
        }
        let old = self.log();
        if let Some(failure) = old.device_failure() {
            return Err(failure.into());
        }
        old.retire().await?;
        let mode = LoadMode {
            clean: false,
            recovery_point: Some(self.recovery_point()),
            log_start: None,
            flushed: Some(self.next_offset()),
            cleaned_to: None,
        };
        let dir = inner.dir.clone();
        let (log, report) = Log::open(&inner.storage, dir, LogConfig::default(), mode).await?;
        let (end, committed) = (log.end_offset(), inner.committed.get());
        if end < committed {
            return Err(JournalError::Lost { end, committed });
        }
        if end > committed {
            log.truncate_to(committed).await?;
        }
        inner.log.replace(log);
        inner.broken.set(false);
        tracing::info!(?report, "the metadata log takes changes again");
        Ok(())
    }

    /// Reads all records from `from` on into `replay`. Returns how many bytes they take.
    pub async fn replay(&self, from: i64, replay: &mut Replay) -> Result<u64, JournalError> {
        let log = self.log();
        let end = log.end_offset();
        let mut bytes = 0;
        let mut next = from;
        while next < end {
            let read = log.read(next, end, READ_BYTES, true).await?;
            if read.next_offset <= next {
                return Err(JournalError::Batch {
                    offset: next,
                    detail: "nothing is there, although the log goes on".into(),
                });
            }
            for batch in batches_of(&read) {
                replay_batch(batch, from, replay)?;
                self.0.rt.yield_if_needed().await;
            }
            bytes += read.bytes as u64;
            next = read.next_offset;
        }
        Ok(bytes)
    }

    /// Writes what a short recovery starts from. Returns the recovery point.
    pub async fn checkpoint(&self) -> Result<i64, JournalError> {
        self.mend().await?;
        let point = self.log().checkpoint().await;
        self.noting(point.map_err(JournalError::from))
    }

    /// Closes the log. Returns the final recovery point.
    pub async fn close(&self) -> Result<i64, JournalError> {
        self.mend().await?;
        Ok(self.log().close().await?)
    }
}

/// One batch of the log, as the log takes it.
fn encode(batch: &JournalBatch, now_ms: i64) -> Result<LogBatch, JournalError> {
    let mut builder = BatchBuilder::new()
        .base_offset(batch.base_offset)
        .leader_epoch(TERM);
    for record in &batch.records {
        builder.push(now_ms, None, Some(&record.encode()?));
    }
    Ok(LogBatch {
        bytes: builder.build(),
        base_offset: batch.base_offset,
        last_offset: batch.base_offset + batch.records.len() as i64 - 1,
        leader_epoch: TERM,
        max_timestamp: now_ms,
        producer: None,
    })
}

/// Applies one batch, if it holds `from` or anything behind it. A snapshot ends where a
/// batch does, so a batch that `from` lies within is damage.
fn replay_batch(bytes: Bytes, from: i64, replay: &mut Replay) -> Result<(), JournalError> {
    let unreadable = |offset, detail: &dyn std::fmt::Display| JournalError::Batch {
        offset,
        detail: detail.to_string(),
    };
    let view = BatchView::parse(bytes).map_err(|error| unreadable(from, &error))?;
    let (base, last) = (view.header().base_offset, view.header().last_offset());
    view.validate_crc()
        .map_err(|error| unreadable(base, &error))?;
    if last < from {
        return Ok(());
    }
    if base < from {
        return Err(unreadable(
            base,
            &format!("a snapshot ends within it, at {from}"),
        ));
    }
    let Some(records) = view.records() else {
        return Err(unreadable(
            base,
            &"it is compressed, which this log never is",
        ));
    };
    let mut decoded = Vec::new();
    for (i, record) in records.enumerate() {
        let offset = base + i as i64;
        let record = record.map_err(|error| unreadable(base, &error))?;
        let Some(value) = record.value else {
            return Err(unreadable(offset, &"the record has no value"));
        };
        let value = Bytes::copy_from_slice(value);
        let value = MetadataRecord::decode(value)
            .map_err(|error| JournalError::Record { offset, error })?;
        decoded.push(value);
    }
    let applied = replay.apply_batch(decoded, last);
    applied.map_err(|error| JournalError::Replay {
        offset: base,
        error,
    })
}

/// The batches of a read, each in one piece (that costs a copy only where a batch lies
/// across two slices).
fn batches_of(read: &ReadSlices) -> Vec<Bytes> {
    let whole = match read.slices.as_slice() {
        [one] => one.clone(),
        slices => Bytes::from(slices.concat()),
    };
    let mut batches = Vec::with_capacity(read.batch_bytes.len());
    let mut from = 0;
    for len in &read.batch_bytes {
        let to = from + *len as usize;
        batches.push(whole.slice(from..to));
        from = to;
    }
    batches
}

/// How much of the log is read at once.
const READ_BYTES: usize = 1 << 20;
