//! Reading the files of a log without opening the log, for `log dump` and `log verify`.
//!
//! It opens nothing for writing, creates nothing and takes no lock, so it may look at
//! the files of a running broker (whose last segment then changes under it) and at
//! those that Kafka wrote. Results are plain data; printing is the caller's.
//!
//! What it is not: it repairs nothing, and it reads no records, only batches.

mod index_check;
mod segment_reading;
#[cfg(test)]
mod tests;
mod verify;

pub(super) use self::index_check::IndexCheck;
use self::segment_reading::SegmentReading;
pub use self::verify::verify_dir;
use super::index::{OffsetIndex, TimeIndex};
use super::log_files::{self, parse_name, INDEX, LOG, TIME_INDEX};
use super::producer_snapshot::{self, ProducerEntry};
use super::scan::ScannedBatch;
use super::LoadError;
use crate::runtime::{File, IoError, IoErrorKind, OpenMode, Rt};
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
    /// The offset after the last batch; the base offset of an empty segment.
    pub end_offset: i64,
    /// Bytes behind the last batch that are all zeros: reserved, never written. Normal
    /// in a partition's last segment unless the broker was stopped cleanly.
    pub reserved_bytes: u64,
    /// Offsets are missing between batches, as compaction leaves them.
    pub has_gaps: bool,
    /// What was found wrong.
    pub problems: Vec<Problem>,
}

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes, if the problem has a place.
    pub position: Option<u64>,
    /// What is wrong, a sentence.
    pub detail: String,
}

/// What a partition's directory, or a data directory, holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// Partitions read.
    pub partitions: u64,
    /// Segments read.
    pub segments: u64,
    /// Whole batches.
    pub batches: u64,
    /// Their records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files and segments that a stop in mid-work left unfinished, which the next start
    /// completes, cuts or removes: no problem, and none after a clean stop.
    pub unfinished: u64,
    /// What was found wrong, by file.
    pub problems: Vec<Problem>,
}

/// Why something could not be inspected at all.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InspectError {
    /// The file system refused.
    #[error("cannot be inspected: {0}")]
    Io(#[from] IoError),
    /// Not a file of the kind asked for.
    #[error("{} is not named like a log's file, <20 digits>.{expected}", path.display())]
    Name {
        /// The path.
        path: PathBuf,
        /// The extension expected.
        expected: &'static str,
    },
}

/// Reads the batches of a `.log` file in order. A batch with a wrong checksum is given
/// to `on_batch` too; bytes that are no batch end the reading.
pub async fn dump_segment(
    rt: &Rt,
    path: &Path,
    mut on_batch: impl FnMut(BatchInfo),
) -> Result<Summary, InspectError> {
    let (file, base) = open(rt, path, LOG).await?;
    let reading = SegmentReading::new(base, path);
    let read = reading.run(rt, &file, |batch| on_batch(BatchInfo::from(batch)));
    Ok(read.await?.0)
}

/// Reads an `.index` file: (last offset of a batch, position of its start).
pub async fn dump_offset_index(rt: &Rt, path: &Path) -> Result<IndexDump<u32>, InspectError> {
    let (file, base) = open(rt, path, INDEX).await?;
    let bytes = read_whole(&file).await?;
    Ok(match OffsetIndex::decode(base, &bytes) {
        Ok(index) => IndexDump {
            entries: index.iter().collect(),
            problem: None,
        },
        Err(error) => IndexDump::broken(path, error.to_string()),
    })
}

/// Reads a `.timeindex` file: (timestamp, offset).
pub async fn dump_time_index(rt: &Rt, path: &Path) -> Result<IndexDump<i64>, InspectError> {
    let (file, base) = open(rt, path, TIME_INDEX).await?;
    let bytes = read_whole(&file).await?;
    Ok(match TimeIndex::decode(base, &bytes) {
        Ok(index) => IndexDump {
            entries: index.iter().collect(),
            problem: None,
        },
        Err(error) => IndexDump::broken(path, error.to_string()),
    })
}

/// Reads a `.snapshot` file.
pub async fn dump_snapshot(
    rt: &Rt,
    path: &Path,
) -> Result<Result<Vec<ProducerEntry>, Problem>, InspectError> {
    let (file, _) = open(rt, path, log_files::SNAPSHOT).await?;
    let bytes = read_whole(&file).await?;
    Ok(producer_snapshot::decode(&bytes).map_err(|e| Problem::of(path, e)))
}

/// The entries of an index file, or why there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDump<T> {
    /// The entries in order.
    pub entries: Vec<(i64, T)>,
    /// The file cannot be used as it is.
    pub problem: Option<Problem>,
}

impl From<&ScannedBatch> for BatchInfo {
    fn from(batch: &ScannedBatch) -> BatchInfo {
        let fields = &batch.fields;
        BatchInfo {
            position: batch.position,
            len: batch.header.len,
            base_offset: fields.base_offset,
            last_offset: batch.header.last_offset,
            leader_epoch: fields.leader_epoch,
            attributes: fields.attributes.0,
            base_timestamp: fields.base_timestamp,
            max_timestamp: fields.max_timestamp,
            producer_id: fields.producer_id,
            producer_epoch: fields.producer_epoch,
            base_sequence: fields.base_sequence,
            records: fields.record_count,
            crc: fields.crc,
            crc_valid: batch.crc_valid,
        }
    }
}

impl From<LoadError> for InspectError {
    fn from(error: LoadError) -> InspectError {
        match error {
            LoadError::Io(error) => error.into(),
            other => unreachable!("listing files only meets the file system: {other}"),
        }
    }
}

impl Problem {
    fn of(path: &Path, detail: impl ToString) -> Problem {
        Problem {
            file: path.to_owned(),
            position: None,
            detail: detail.to_string(),
        }
    }
}

impl<T> IndexDump<T> {
    fn broken(path: &Path, detail: String) -> IndexDump<T> {
        IndexDump {
            entries: Vec::new(),
            problem: Some(Problem::of(path, detail)),
        }
    }
}

/// Opens `<20 digits>.<extension>` for reading; its offset.
async fn open(rt: &Rt, path: &Path, expected: &'static str) -> Result<(File, i64), InspectError> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let offset = match parse_name(name) {
        Some((offset, extension)) if extension == expected => offset,
        _ => {
            return Err(InspectError::Name {
                path: path.to_owned(),
                expected,
            })
        }
    };
    let file = rt.dir(parent(path)).open(name, OpenMode::Read).await?;
    Ok((file, offset))
}

/// The directory that a path's last component is in.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Reads a file of bounded size.
async fn read_whole(file: &File) -> Result<bytes::Bytes, InspectError> {
    let size = file.size().await?;
    if size > SMALL_FILE_BYTES_MAX {
        let detail = format!("it has {size} bytes, more than any index or snapshot");
        let kind = IoErrorKind::Other;
        return Err(IoError::new("read", file.path(), kind, detail).into());
    }
    Ok(file.read_at(0, size as usize).await?)
}

const SMALL_FILE_BYTES_MAX: u64 = 256 << 20;
