//! Reading files of a log without opening the log, for `log dump` and `log verify`.
//! (Signatures; the rest follows.)

use crate::runtime::{IoError, Rt};
use std::path::{Path, PathBuf};

/// One batch of a segment, as its header has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchInfo {
    /// Where it starts in the file.
    pub position: u64,
    /// Its whole length in bytes.
    pub len: u32,
    /// The offset of its first record.
    pub base_offset: i64,
    /// The offset of its last record.
    pub last_offset: i64,
    /// The leader epoch that wrote it.
    pub leader_epoch: i32,
    /// The attribute bits.
    pub attributes: i16,
    /// The timestamp of its first record, milliseconds.
    pub base_timestamp: i64,
    /// Its largest timestamp, milliseconds.
    pub max_timestamp: i64,
    /// The producer's id; -1 if none.
    pub producer_id: i64,
    /// The producer's epoch; -1 if none.
    pub producer_epoch: i16,
    /// The sequence of the first record; -1 if none.
    pub base_sequence: i32,
    /// Number of records.
    pub records: i32,
    /// The checksum stored.
    pub crc: u32,
    /// True if the stored checksum is that of the content.
    pub crc_valid: bool,
}

/// What a segment holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Whole batches.
    pub batches: u64,
    /// Their records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was found wrong.
    pub problems: Vec<Problem>,
}

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where in it, if the problem has a place.
    pub position: Option<u64>,
    /// What is wrong, a sentence.
    pub detail: String,
}

/// What a directory of logs holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// Segments read.
    pub segments: u64,
    /// Whole batches.
    pub batches: u64,
    /// Their records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was found wrong, by file.
    pub problems: Vec<Problem>,
}

/// Why a file could not be inspected at all.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InspectError {
    /// The file system refused.
    #[error("cannot be inspected: {0}")]
    Io(#[from] IoError),
    /// Not a file of a log.
    #[error("{} is no file of a log: expected <20 digits>.log, .index, .timeindex or .snapshot", path.display())]
    NotALogFile {
        /// The path.
        path: PathBuf,
    },
}

/// Reads the batches of a `.log` file in order.
pub async fn dump_segment(
    rt: &Rt,
    path: &Path,
    on_batch: impl FnMut(BatchInfo),
) -> Result<Summary, InspectError> {
    todo!()
}

/// Reads every segment and every file beside it in a partition's directory, or in
/// all partitions' directories of a data directory. Changes nothing.
pub async fn verify_dir(rt: &Rt, path: &Path) -> Result<VerifyReport, InspectError> {
    todo!()
}
