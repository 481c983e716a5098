//! The index files of a segment: read and proven, or rebuilt from the segment.
//!
//! A file is used only if it decodes, stays within the segment, its last entry points
//! at a batch with that last offset, and the time index knows that batch; the batches
//! behind the last entry are read, so that nothing about the segment's end is taken
//! from an index. Whatever fails this is rebuilt by reading the segment; garbage costs
//! a read, never a wrong answer about where the log ends.

use super::checkpoint::StoredIndexes;
use super::index::{IndexError, OffsetIndex, TimeIndex};
use super::log_files::{file_name, INDEX, LOG, TIME_INDEX};
use super::scan::{scan_segment, ScanStart, SegmentScan};
use crate::runtime::{Dir, File, IoError, IoErrorKind, Rt, SyncSite};

/// A segment's file with indexes that hold for all of it.
pub(super) struct IndexedSegment {
    pub(super) scan: SegmentScan,
    /// The files could not be used; the segment was read whole.
    pub(super) rebuilt: bool,
    /// What the files hold, where they were used.
    pub(super) stored: StoredIndexes,
}

/// Opens the indexes of a segment whose bytes are all durable: a sealed one, or the
/// last one after a clean stop. `size` is the file's. The caller looks at
/// `scan.bad`: damage to the segment itself. `gaps`: the log may be compacted.
pub(super) async fn open_indexes(
    rt: &Rt,
    dir: &Dir,
    file: &File,
    base: i64,
    size: u64,
    index_interval_bytes: u32,
    gaps: bool,
) -> Result<IndexedSegment, IoError> {
    let mut stored = StoredIndexes::default();
    let (start, mut refusal) = match read_indexes(dir, base, size).await? {
        Ok((index, time_index)) => {
            stored = StoredIndexes::of(&index, &time_index);
            (ScanStart::below(index, time_index, i64::MAX), None)
        }
        Err(reason) => (ScanStart::segment_start(base), Some(reason)),
    };
    let start = start.with_gaps(gaps);
    let scan = scan_segment(rt, file, base, size, start, index_interval_bytes, -1).await?;
    if scan.prefix_refused {
        refusal = Some("an entry points at no such batch".to_owned());
    }
    if let Some(reason) = &refusal {
        stored = StoredIndexes::default();
        tracing::warn!(
            "rebuilt the indexes of {}: {reason}",
            dir.path().join(file_name(base, LOG)).display()
        );
    }
    Ok(IndexedSegment {
        scan,
        rebuilt: refusal.is_some(),
        stored,
    })
}

/// Reads both index files of a segment of `size` bytes. The inner error says why they
/// cannot be used.
pub(super) async fn read_indexes(
    dir: &Dir,
    base: i64,
    size: u64,
) -> Result<Result<(OffsetIndex, TimeIndex), String>, IoError> {
    let index = read_index_file(dir, &file_name(base, INDEX)).await?;
    let time_index = read_index_file(dir, &file_name(base, TIME_INDEX)).await?;
    let (index, time_index) = match (index, time_index) {
        (Ok(index), Ok(time_index)) => (index, time_index),
        (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
    };
    let decode = || -> Result<(OffsetIndex, TimeIndex), IndexError> {
        let index = OffsetIndex::decode(base, &index)?;
        let time_index = TimeIndex::decode(base, &time_index)?;
        index.check_within(size, None)?;
        Ok((index, time_index))
    };
    Ok(decode().map_err(|e| e.to_string()))
}

/// Writes both index files of a segment; the caller syncs the directory.
pub(super) async fn write_indexes(
    dir: &Dir,
    base: i64,
    index: &OffsetIndex,
    time_index: &TimeIndex,
) -> Result<(), IoError> {
    let site = SyncSite::Index;
    dir.replace_small(&file_name(base, INDEX), index.encode(), site)
        .await?;
    dir.replace_small(&file_name(base, TIME_INDEX), time_index.encode(), site)
        .await
}

async fn read_index_file(dir: &Dir, name: &str) -> Result<Result<Vec<u8>, String>, IoError> {
    match dir.read_small(name, INDEX_FILE_BYTES_MAX).await {
        Ok(bytes) => Ok(Ok(bytes)),
        Err(e) if e.kind == IoErrorKind::NotFound => Ok(Err(format!("{name} is missing"))),
        Err(e) if e.kind == IoErrorKind::Unusable => Ok(Err(e.to_string())),
        Err(e) => Err(e),
    }
}

/// Index files above this size are not read (`segment.index.bytes` is far below).
const INDEX_FILE_BYTES_MAX: u64 = 256 << 20;
