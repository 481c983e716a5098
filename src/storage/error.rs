//! What can go wrong with a partition log, sorted by what the owner must do.

use crate::runtime::{IoError, IoErrorKind};

/// Why [`super::Log::append`] failed. LEO did not move. After every kind but
/// [`AppendError::OutOfOrder`] and [`AppendError::Closed`] the log is fenced: it
/// takes no more appends until it is rebuilt from disk.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// The disk is full, or over quota. Rebuild the log when space returns.
    #[error("no space for the partition: {0}; free space on the data directory (log.dirs) or lower retention.bytes")]
    NoSpace(IoError),
    /// The device took fewer bytes than given. Rebuild the log.
    #[error("a write was cut short: {0}; the partition must be rebuilt from disk")]
    ShortWrite(IoError),
    /// The device failed: the data directory goes offline.
    #[error("the device failed: {0}; the data directory must go offline, check the disk")]
    Device(IoError),
    /// Any other error of the file system. Treated like [`AppendError::ShortWrite`].
    #[error("a write failed: {0}; the partition must be rebuilt from disk")]
    Io(IoError),
    /// An earlier failure fenced the log.
    #[error(
        "the log takes no appends until it is rebuilt, because an earlier operation failed: {0}"
    )]
    Fenced(String),
    /// The batches do not follow the end of the log. Nothing was written.
    #[error("a batch starts at offset {got}, but the log or the batch before it ends at {expected}; offsets must follow without a gap")]
    OutOfOrder {
        /// The base offset that would have been right.
        expected: i64,
        /// The base offset given.
        got: i64,
    },
    /// The log was closed or deleted.
    #[error("the log is closed")]
    Closed,
}

impl From<IoError> for AppendError {
    fn from(error: IoError) -> AppendError {
        match error.kind {
            IoErrorKind::NoSpace => AppendError::NoSpace(error),
            IoErrorKind::ShortWrite => AppendError::ShortWrite(error),
            IoErrorKind::Device => AppendError::Device(error),
            _ => AppendError::Io(error),
        }
    }
}

/// Why [`super::Log::flush`] failed. The flushed offset did not move. Nothing is
/// tried again: after a failed flush nobody knows what the device holds.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FlushError {
    /// The device failed: the data directory goes offline.
    #[error("the device failed to make data durable: {0}; the data directory must go offline, check the disk")]
    Device(IoError),
    /// Writing what belongs to a flush (an index, a name) found no space.
    #[error(
        "no space to make the partition durable: {0}; free space on the data directory (log.dirs)"
    )]
    NoSpace(IoError),
    /// Any other error of the file system.
    #[error("a flush failed: {0}; the partition must be rebuilt from disk")]
    Io(IoError),
    /// An earlier flush failed.
    #[error("the log takes no flushes until it is rebuilt, because an earlier flush failed: {0}")]
    Fenced(String),
    /// The log was closed or deleted before the bytes were flushed.
    #[error("the log is closed")]
    Closed,
}

impl From<IoError> for FlushError {
    fn from(error: IoError) -> FlushError {
        match error.kind {
            IoErrorKind::Device => FlushError::Device(error),
            IoErrorKind::NoSpace => FlushError::NoSpace(error),
            _ => FlushError::Io(error),
        }
    }
}

/// Why a read failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// Below the log start offset, or above LEO.
    #[error(
        "offset {offset} is outside the log, which holds {log_start_offset} up to {end_offset}"
    )]
    OutOfRange {
        /// What was asked for.
        offset: i64,
        /// The first offset that exists.
        log_start_offset: i64,
        /// LEO.
        end_offset: i64,
    },
    /// The bytes on disk are not what was written: the replica goes offline.
    #[error("the log is damaged in {file} at byte {position}: {detail}; the replica must go offline, check the disk")]
    Corrupt {
        /// The segment file.
        file: String,
        /// Where in it.
        position: u64,
        /// What is wrong.
        detail: String,
    },
    /// The device failed to read: the replica goes offline.
    #[error("the device failed to read: {0}; the replica must go offline, check the disk")]
    Device(IoError),
    /// Any other error of the file system; the read may be tried again.
    #[error("a read failed: {0}")]
    Io(IoError),
    /// The log was closed or deleted.
    #[error("the log is closed")]
    Closed,
}

impl From<IoError> for ReadError {
    fn from(error: IoError) -> ReadError {
        match error.kind {
            IoErrorKind::Device => ReadError::Device(error),
            _ => ReadError::Io(error),
        }
    }
}

/// Why [`super::Log::checkpoint`] or [`super::Log::close`] failed. The recovery
/// point did not move.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CheckpointError {
    /// The flush that comes first failed.
    #[error(transparent)]
    Flush(#[from] FlushError),
    /// Writing one of the checkpoint's files failed.
    #[error("a checkpoint of the log failed: {0}")]
    Io(#[from] IoError),
    /// An earlier failure fenced the log, so that nobody knows what its files hold
    /// past LEO: it can not be stopped cleanly.
    #[error("the log cannot be stopped cleanly, because an earlier operation failed: {0}; the next start recovers it")]
    Fenced(String),
    /// The log was closed or deleted.
    #[error("the log is closed")]
    Closed,
}

/// Why a log could not be created or loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadError {
    /// The file system refused.
    #[error("the log could not be loaded: {0}")]
    Io(#[from] IoError),
    /// [`super::Log::create`] found a log in the directory.
    #[error("{0} already holds a log; a new partition needs an empty directory")]
    NotEmpty(String),
    /// The checkpoint after a recovery failed.
    #[error("the log was recovered, but not checkpointed: {0}")]
    Checkpoint(CheckpointError),
    /// The log ends below what was compacted of it, which could not be recorded.
    #[error("how far the log is compacted could not be recorded: {0}")]
    Record(String),
    /// Data that had been made durable is no longer what was written. Nothing was cut;
    /// the replica goes offline.
    #[error(
        "the log is damaged in {file} at byte {position}, below the recovery point: {detail}; nothing \
         was changed, the replica stays offline: check the disk, `log verify` lists what is damaged"
    )]
    Damaged {
        /// The segment file.
        file: String,
        /// Where in it.
        position: u64,
        /// What is wrong.
        detail: String,
    },
}

impl CheckpointError {
    /// Whether the disk, or a quota, is full.
    pub fn is_no_space(&self) -> bool {
        match self {
            CheckpointError::Flush(FlushError::NoSpace(_)) => true,
            CheckpointError::Io(error) => error.is_no_space(),
            _ => false,
        }
    }
}

impl LoadError {
    /// Whether the disk, or a quota, is full.
    pub fn is_no_space(&self) -> bool {
        match self {
            LoadError::Io(error) => error.is_no_space(),
            LoadError::Checkpoint(error) => error.is_no_space(),
            _ => false,
        }
    }
}

/// Why [`super::Log::truncate_to`] failed. The log is fenced, unless it was closed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TruncateError {
    /// The device failed: the data directory goes offline.
    #[error("the device failed while the log was truncated: {0}; the data directory must go offline, check the disk")]
    Device(IoError),
    /// Any other error of the file system.
    #[error("truncating the log failed: {0}; the partition must be rebuilt from disk")]
    Io(IoError),
    /// The bytes on disk are not what was written: the replica goes offline.
    #[error("the log is damaged in {file} at byte {position}: {detail}; the replica must go offline, check the disk")]
    Corrupt {
        /// The segment file.
        file: String,
        /// Where in it.
        position: u64,
        /// What is wrong.
        detail: String,
    },
    /// How far the log is compacted could not be recorded. Nothing was cut.
    #[error(
        "the log is not truncated, because how far it is compacted could not be recorded: {0}"
    )]
    Record(String),
    /// An earlier failure fenced the log.
    #[error(
        "the log cannot be truncated until it is rebuilt, because an earlier operation failed: {0}"
    )]
    Fenced(String),
    /// The log was closed or deleted.
    #[error("the log is closed")]
    Closed,
}

impl From<IoError> for TruncateError {
    fn from(error: IoError) -> TruncateError {
        match error.kind {
            IoErrorKind::Device => TruncateError::Device(error),
            _ => TruncateError::Io(error),
        }
    }
}

impl From<ReadError> for TruncateError {
    fn from(error: ReadError) -> TruncateError {
        match error {
            ReadError::Corrupt {
                file,
                position,
                detail,
            } => TruncateError::Corrupt {
                file,
                position,
                detail,
            },
            ReadError::Device(error) | ReadError::Io(error) => error.into(),
            ReadError::Closed => TruncateError::Closed,
            ReadError::OutOfRange { .. } => unreachable!("a walk takes no offset range"),
        }
    }
}

/// What flushes are told after a truncation that failed half-way.
impl From<&TruncateError> for FlushError {
    fn from(error: &TruncateError) -> FlushError {
        match error {
            TruncateError::Device(error) => FlushError::Device(error.clone()),
            TruncateError::Io(error) => error.clone().into(),
            TruncateError::Corrupt { .. }
            | TruncateError::Record(_)
            | TruncateError::Fenced(_)
            | TruncateError::Closed => FlushError::Fenced(error.to_string()),
        }
    }
}

impl From<LoadError> for TruncateError {
    fn from(error: LoadError) -> TruncateError {
        match error {
            LoadError::Io(error) => error.into(),
            LoadError::Damaged {
                file,
                position,
                detail,
            } => TruncateError::Corrupt {
                file,
                position,
                detail,
            },
            LoadError::Checkpoint(_) | LoadError::Record(_) | LoadError::NotEmpty(_) => {
                unreachable!("listing and removing files neither checkpoints nor creates")
            }
        }
    }
}
