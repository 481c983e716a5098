//! Noticing at a load that a segment of the log is missing.
//!
//! A complete segment ends where the next one begins (at or below it, where the log may have
//! been compacted). For segments that a load scans,
//! the scan says so. The others (sealed long ago) are not opened: a load costs the same
//! whatever the log holds. The names of files tell instead: a segment is sealed with a
//! producer snapshot at its end, which stays as long as a segment begins there. So where a
//! snapshot stands *inside* a segment, either it is one of the few that checkpoints keep,
//! or the segment that began there is gone; only then the end of the segment before is
//! read: the last entry of the index, and the batches from there on.
//!
//! What it is not: a check of the segment or its index. Where the snapshot is gone too, or
//! the index is absent or does not lead to the end, nothing is concluded here; the segment
//! is read when it is opened for the first time, and held against the next one then
//! (`walk.rs`), so a reader never passes over the hole.

use super::index::OffsetIndex;
use super::log_files::{damaged, file_name, LogFiles, INDEX, LOG};
use super::scan::{BatchScanner, ScanStep};
use super::LoadError;
use crate::runtime::{Dir, IoError, IoErrorKind, OpenMode, Rt};

/// What a check of ends read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EndsChecked {
    /// Segment files opened.
    pub(super) opened: usize,
    /// Bytes of their ends.
    pub(super) bytes: u64,
}

/// Checks, for each segment before the one at `below` in which a snapshot stands, that it
/// ends where the next one begins.
pub(super) async fn check_ends(
    rt: &Rt,
    dir: &Dir,
    files: &LogFiles,
    gaps: bool,
    below: i64,
) -> Result<EndsChecked, LoadError> {
    let mut checked = EndsChecked::default();
    let bases = files.segments.keys().skip(1);
    for ((base, segment), next) in files.segments.range(..below).zip(bases) {
        let mut inside = files.snapshots.range(base + 1..*next);
        if inside.next().is_none() {
            continue;
        }
        let len = segment.log_bytes;
        let end = quick_end(rt, dir, *base, len, gaps, &mut checked).await?;
        if let Some(detail) = end.and_then(|end| misfit(end, *next, gaps)) {
            return Err(damaged(dir, &file_name(*base, LOG), len, &detail));
        }
    }
    Ok(checked)
}

/// What is wrong with a segment that ends at `end` before one that begins at `next`, of a log
/// that may have gaps or not.
pub(super) fn misfit(end: i64, next: i64, gaps: bool) -> Option<String> {
    if end < next && !gaps {
        return Some(format!(
            "the segment ends at offset {end} and the next one begins at {next}: offsets {end} to {} are missing, with the segment file {}",
            next - 1,
            file_name(end, LOG)
        ));
    }
    (end > next).then(|| {
        format!("the segment ends at offset {end}, but the next one begins at {next} already")
    })
}

/// The offset after the last batch of a sealed segment of `len` bytes, if its index
/// leads there.
async fn quick_end(
    rt: &Rt,
    dir: &Dir,
    base: i64,
    len: u64,
    gaps: bool,
    checked: &mut EndsChecked,
) -> Result<Option<i64>, IoError> {
    let entry = match last_entry(dir, base).await? {
        Some(entry) => entry,
        None => return Ok(None),
    };
    let position = entry.map_or(0, |(_, position)| u64::from(position));
    if len
        .checked_sub(position)
        .is_none_or(|tail| tail > TAIL_BYTES_MAX)
    {
        return Ok(None);
    }
    let file = dir.open(&file_name(base, LOG), OpenMode::Read).await?;
    checked.opened += 1;
    checked.bytes += len - position;
    let mut scanner = BatchScanner::new(rt, &file, position, len);
    let mut end = None;
    loop {
        match (scanner.next().await?, end, entry) {
            (ScanStep::End, None, None) => return Ok(Some(base)),
            (ScanStep::End, end, _) => return Ok(end),
            (ScanStep::Batch(batch), end_before, entry) if batch.crc_valid => {
                let header = batch.header;
                let follows = match (end_before, entry) {
                    (Some(end), _) => {
                        header.base_offset == end || (gaps && header.base_offset > end)
                    }
                    (None, Some((last_offset, _))) => header.last_offset == last_offset,
                    (None, None) => {
                        header.base_offset == base || (gaps && header.base_offset > base)
                    }
                };
                if !follows {
                    return Ok(None);
                }
                end = Some(header.last_offset + 1);
            }
            (ScanStep::Batch(_) | ScanStep::Bad(_), ..) => return Ok(None),
        }
    }
}

/// The last entry of a segment's offset index: `Some(None)` if it has no entries,
/// `None` if there is no such file or it is no index.
async fn last_entry(dir: &Dir, base: i64) -> Result<Option<Option<(i64, u32)>>, IoError> {
    let file = match dir.open(&file_name(base, INDEX), OpenMode::Read).await {
        Ok(file) => file,
        Err(e) if e.kind == IoErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let size = file.size().await?;
    let entry_bytes = OffsetIndex::ENTRY_BYTES;
    if size % entry_bytes as u64 != 0 {
        return Ok(None);
    }
    if size == 0 {
        return Ok(Some(None));
    }
    let bytes = file.read_at(size - entry_bytes as u64, entry_bytes).await?;
    match OffsetIndex::decode(base, &bytes) {
        Ok(index) => Ok(index.last().map(Some)),
        Err(_) => Ok(None),
    }
}

/// What is read at most behind the last index entry: two of the largest batches that
/// are usual.
const TAIL_BYTES_MAX: u64 = 4 << 20;
