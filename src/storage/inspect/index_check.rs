//! Holding the indexes of a segment against its batches.

use super::{read_whole, InspectError, Problem};
use crate::runtime::{Dir, OpenMode};
use crate::storage::index::{OffsetIndex, TimeIndex};
use crate::storage::log_files::{file_name, SegmentFiles, INDEX, TIME_INDEX};
use crate::storage::scan::ScannedBatch;
use std::path::PathBuf;

/// Holds a segment's indexes against its batches as they are read.
pub(in crate::storage) struct IndexCheck {
    index_path: PathBuf,
    time_index_path: PathBuf,
    /// Entries not yet met, in order.
    entries: std::vec::IntoIter<(i64, u32)>,
    next: Option<(i64, u32)>,
    times: std::vec::IntoIter<(i64, i64)>,
    next_time: Option<(i64, i64)>,
    timestamp_max: i64,
    pub(in crate::storage) problems: Vec<Problem>,
}

impl IndexCheck {
    /// Reads both indexes. A segment that is not sealed may have none, or one that Kafka
    /// reserved space in (zeros behind the entries).
    pub(in crate::storage) async fn read(
        dir: &Dir,
        base: i64,
        sealed: bool,
        files: &SegmentFiles,
    ) -> Result<IndexCheck, InspectError> {
        let mut check = IndexCheck {
            index_path: dir.path().join(file_name(base, INDEX)),
            time_index_path: dir.path().join(file_name(base, TIME_INDEX)),
            entries: Vec::new().into_iter(),
            next: None,
            times: Vec::new().into_iter(),
            next_time: None,
            timestamp_max: -1,
            problems: Vec::new(),
        };
        if let Some(bytes) = check
            .used(dir, base, INDEX, files.index_bytes, sealed)
            .await?
        {
            match OffsetIndex::decode(base, &bytes) {
                Ok(index) => check.entries = index.iter().collect::<Vec<_>>().into_iter(),
                Err(e) => check.problems.push(Problem::of(&check.index_path, e)),
            }
        }
        let stored = files.time_index_bytes;
        if let Some(bytes) = check.used(dir, base, TIME_INDEX, stored, sealed).await? {
            match TimeIndex::decode(base, &bytes) {
                Ok(index) => check.times = index.iter().collect::<Vec<_>>().into_iter(),
                Err(e) => check.problems.push(Problem::of(&check.time_index_path, e)),
            }
        }
        check.next = check.entries.next();
        check.next_time = check.times.next();
        Ok(check)
    }

    /// An index file's bytes; `None` if it is not there, which a sealed segment's must.
    async fn used(
        &mut self,
        dir: &Dir,
        base: i64,
        extension: &'static str,
        stored_bytes: Option<u64>,
        sealed: bool,
    ) -> Result<Option<bytes::Bytes>, InspectError> {
        let name = file_name(base, extension);
        if stored_bytes.is_none() {
            if sealed {
                let path = dir.path().join(&name);
                let problem = Problem::of(&path, "missing; it is rebuilt when needed");
                self.problems.push(problem);
            }
            return Ok(None);
        }
        let file = dir.open(&name, OpenMode::Read).await?;
        let bytes = read_whole(&file).await?;
        let entry_bytes = match extension {
            TIME_INDEX => TimeIndex::ENTRY_BYTES,
            _ => OffsetIndex::ENTRY_BYTES,
        };
        let used = used_bytes(&bytes, entry_bytes, sealed);
        Ok(Some(bytes.slice(..used)))
    }

    pub(in crate::storage) fn on_batch(&mut self, batch: &ScannedBatch) {
        let header = &batch.header;
        while let Some((offset, position)) = self.next {
            if u64::from(position) > batch.position {
                break;
            }
            if u64::from(position) < batch.position || offset != header.last_offset {
                self.index_problem(offset, position);
            }
            self.next = self.entries.next();
        }
        while let Some((timestamp, offset)) = self.next_time {
            if offset >= header.last_offset {
                break;
            }
            self.time_problem(timestamp, offset);
        }
        self.timestamp_max = self.timestamp_max.max(header.max_timestamp);
        while let Some((timestamp, offset)) = self.next_time {
            if offset > header.last_offset {
                break;
            }
            if timestamp < self.timestamp_max {
                self.time_problem(timestamp, offset);
                continue;
            }
            self.next_time = self.times.next();
        }
    }

    pub(in crate::storage) fn finish(&mut self) {
        while let Some((offset, position)) = self.next {
            self.index_problem(offset, position);
            self.next = self.entries.next();
        }
        while let Some((timestamp, offset)) = self.next_time {
            self.time_problem(timestamp, offset);
        }
    }

    fn index_problem(&mut self, offset: i64, position: u32) {
        let detail = format!(
            "the entry for offset {offset} points at byte {position}, where no batch with that \
             last offset starts"
        );
        self.problems.push(Problem::of(&self.index_path, detail));
    }

    fn time_problem(&mut self, timestamp: i64, offset: i64) {
        let detail = format!(
            "the entry of timestamp {timestamp} and offset {offset} does not hold for the batches \
             up to it"
        );
        self.problems
            .push(Problem::of(&self.time_index_path, detail));
        self.next_time = self.times.next();
    }
}

/// The bytes of an index without the zeros that Kafka reserves before it is sealed.
fn used_bytes(bytes: &[u8], entry_bytes: usize, sealed: bool) -> usize {
    match bytes.iter().rposition(|b| *b != 0) {
        Some(last) if !sealed => (last + 1).next_multiple_of(entry_bytes).min(bytes.len()),
        None if !sealed => 0,
        _ => bytes.len(),
    }
}
