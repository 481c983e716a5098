//! Opening the log of an existing partition. (Signatures; the rest follows.)

use super::{LoadError, Log, LogConfig, Storage};
use crate::runtime::Dir;
use std::time::Duration;

/// How to open a log: what the data directory says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadMode {
    /// The broker was stopped cleanly: nothing below the end needs a look.
    pub clean: bool,
    /// The recovery point, as the checkpoint has it.
    pub recovery_point: Option<i64>,
    /// The log start offset, as the checkpoint has it.
    pub log_start: Option<i64>,
}

/// What a load did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadReport {
    /// Bytes of segments that were read and checked.
    pub scanned_bytes: u64,
    /// Bytes that were cut or removed because they were no valid batches (zeros that
    /// were merely preallocated not counted).
    pub truncated_bytes: u64,
    /// Segments of the log.
    pub segments: usize,
    /// The offset from which batches were checked.
    pub recovered_from: i64,
    /// Indexes that had to be rebuilt by reading a segment.
    pub indexes_rebuilt: usize,
    /// How long it took.
    pub took: Duration,
}

impl Log {
    /// Opens the log of an existing partition, recovering it if the broker was not
    /// stopped cleanly. Afterwards every byte of it is durable.
    pub async fn open(
        storage: &Storage,
        dir: Dir,
        config: LogConfig,
        mode: LoadMode,
    ) -> Result<(Log, LoadReport), LoadError> {
        todo!()
    }
}
