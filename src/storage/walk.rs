//! Walking the batches of a segment on disk, and opening a sealed segment.
//!
//! Every header that is walked is checked (magic, length, offset order), because what
//! comes from disk may be damaged: a bad header is [`ReadError::Corrupt`], never a
//! panic and never a silent end. CRCs are checked by recovery, not here.
//!
//! A walk sees the segment as it was when the walk began; it holds the file, so the
//! segment may be closed meanwhile. Its owner holds the log's gate.

use super::batch::{BatchHeader, HEADER_BYTES};
use super::index::{OffsetIndex, TimeIndex};
use super::log::LogShared;
use super::segment::Segment;
use super::ReadError;
use crate::runtime::{File, IoError, IoErrorKind, OpenMode};
use bytes::Bytes;
use std::rc::Rc;

/// A position in a segment's file that moves from batch to batch.
pub(super) struct SegmentWalk<'a> {
    log: &'a LogShared,
    file: File,
    /// Bytes of the segment when the walk began.
    len: u64,
    /// The offset after the segment's last batch then.
    end_offset: i64,
    /// The next batch's base offset is at or above it.
    offset_min: i64,
    position: u64,
    read_bytes: usize,
    chunk: Bytes,
    chunk_position: u64,
}

impl<'a> SegmentWalk<'a> {
    /// A walk from `position`, which must be the start of a batch (or the end), whose
    /// base offset is at or above `offset_min`. Reads `read_bytes` at a time.
    pub(super) fn new(
        log: &'a LogShared,
        segment: &Segment,
        file: File,
        position: u64,
        offset_min: i64,
        read_bytes: usize,
    ) -> SegmentWalk<'a> {
        let extent = segment.extent();
        SegmentWalk {
            log,
            file,
            len: extent.len,
            end_offset: extent.next_offset,
            offset_min,
            position,
            read_bytes,
            chunk: Bytes::new(),
            chunk_position: position,
        }
    }

    /// The next batch's header and position; `None` at the segment's end.
    pub(super) async fn next(&mut self) -> Result<Option<(BatchHeader, u64)>, ReadError> {
        self.log.storage.rt().yield_if_needed().await;
        if self.position == self.len {
            return Ok(None);
        }
        self.load(HEADER_BYTES as u64).await?;
        let header = self.header()?;
        let position = self.position;
        self.position += u64::from(header.len);
        self.offset_min = header.last_offset + 1;
        Ok(Some((header, position)))
    }

    /// The whole bytes of a batch that [`SegmentWalk::next`] just gave.
    pub(super) async fn batch_bytes(
        &mut self,
        header: &BatchHeader,
        position: u64,
    ) -> Result<Bytes, ReadError> {
        let in_chunk = position.checked_sub(self.chunk_position);
        if let Some(start) = in_chunk {
            let (start, len) = (start as usize, header.len as usize);
            if start + len <= self.chunk.len() {
                return Ok(self.chunk.slice(start..start + len));
            }
        }
        self.log
            .read_exact(&self.file, position, header.len as usize)
            .await
    }

    /// Sees to it that `bytes` bytes from the position on are in the chunk.
    async fn load(&mut self, bytes: u64) -> Result<(), ReadError> {
        let chunk_end = self.chunk_position + self.chunk.len() as u64;
        if self.position >= self.chunk_position && self.position + bytes <= chunk_end {
            return Ok(());
        }
        let rest = self.len - self.position;
        if rest < bytes {
            return Err(self.corrupt(format!("{rest} bytes are left, too few for a batch")));
        }
        let wanted = rest.min(bytes.max(self.read_bytes as u64)) as usize;
        self.chunk = self
            .log
            .read_exact(&self.file, self.position, wanted)
            .await?;
        self.chunk_position = self.position;
        Ok(())
    }

    fn header(&self) -> Result<BatchHeader, ReadError> {
        let at = (self.position - self.chunk_position) as usize;
        checked_header(
            &self.chunk[at..],
            self.len - self.position,
            self.offset_min,
            self.end_offset,
        )
        .map_err(|detail| self.corrupt(detail))
    }

    fn corrupt(&self, detail: String) -> ReadError {
        corrupt(&self.file, self.position, detail)
    }
}

/// Reads a header, and holds it against the rest of its segment: `rest` bytes, offsets
/// from `offset_min` up to, not including, `end_offset`.
pub(super) fn checked_header(
    bytes: &[u8],
    rest: u64,
    offset_min: i64,
    end_offset: i64,
) -> Result<BatchHeader, String> {
    let header = BatchHeader::parse(bytes)?;
    if u64::from(header.len) > rest {
        return Err(format!(
            "a batch of {} bytes where the segment has {rest} left",
            header.len
        ));
    }
    if header.base_offset < offset_min || header.last_offset >= end_offset {
        return Err(format!(
            "a batch of offsets {} to {} where {offset_min} up to {end_offset} is possible",
            header.base_offset, header.last_offset
        ));
    }
    Ok(header)
}

pub(super) fn corrupt(file: &File, position: u64, detail: String) -> ReadError {
    ReadError::Corrupt {
        file: file.path().display().to_string(),
        position,
        detail,
    }
}

impl LogShared {
    /// Reads exactly `len` bytes that the segment is known to have, within the budget
    /// for cold reads.
    pub(super) async fn read_exact(
        &self,
        file: &File,
        position: u64,
        len: usize,
    ) -> Result<Bytes, ReadError> {
        let budget = &self.storage.0.cold_reads;
        let _permit = budget.acquire((len as u64).min(budget.total())).await;
        let bytes = file.read_at(position, len).await?;
        if bytes.len() != len {
            let detail = format!("the file ends after {} of {len} bytes", bytes.len());
            return Err(corrupt(file, position, detail));
        }
        Ok(bytes)
    }

    /// The file of a segment, opened with its indexes if it was not. An index that is
    /// absent or does not fit its segment is rebuilt.
    pub(super) async fn open_file(&self, segment: &Rc<Segment>) -> Result<File, ReadError> {
        if let Some(file) = segment.file() {
            self.note_use(segment);
            return Ok(file);
        }
        let file = self
            .dir
            .open(&segment.file_name("log"), OpenMode::Read)
            .await?;
        let stored = self.stored_indexes(segment, &file).await?;
        let (index, time_index) = match stored {
            Some(indexes) => indexes,
            None => self.rebuilt_indexes(segment, &file).await?,
        };
        segment.set_open(file.clone(), index, time_index);
        self.note_use(segment);
        Ok(file)
    }

    /// Replaces the indexes in memory of a segment whose stored ones proved wrong.
    pub(super) async fn rebuild_indexes(
        &self,
        segment: &Rc<Segment>,
        file: &File,
    ) -> Result<(), ReadError> {
        let (index, time_index) = self.rebuilt_indexes(segment, file).await?;
        segment.set_open(file.clone(), index, time_index);
        self.note_use(segment);
        Ok(())
    }

    fn note_use(&self, segment: &Rc<Segment>) {
        if segment.phase() == super::segment::SegmentPhase::Sealed {
            self.storage.0.open_segments.used(segment);
        }
    }

    /// Both indexes as stored, if they can be trusted: whole, in order, within the
    /// segment, and their last entry at a batch that ends at its offset.
    async fn stored_indexes(
        &self,
        segment: &Segment,
        file: &File,
    ) -> Result<Option<(OffsetIndex, TimeIndex)>, ReadError> {
        let (base, extent) = (segment.base_offset, segment.extent());
        let Some(index) = self.stored(&segment.file_name("index")).await? else {
            return Ok(None);
        };
        let Some(time_index) = self.stored(&segment.file_name("timeindex")).await? else {
            return Ok(None);
        };
        let (Ok(index), Ok(time_index)) = (
            OffsetIndex::decode(base, &index),
            TimeIndex::decode(base, &time_index),
        ) else {
            return Ok(None);
        };
        let fits = index
            .check_within(extent.len, Some(extent.next_offset))
            .and_then(|()| time_index.check_within(extent.next_offset));
        if fits.is_err() {
            return Ok(None);
        }
        if let Some((offset, position)) = index.last() {
            let position = u64::from(position);
            let rest = extent.len - position;
            if rest < HEADER_BYTES as u64 {
                return Ok(None);
            }
            let bytes = self.read_exact(file, position, HEADER_BYTES).await?;
            match checked_header(&bytes, rest, base, extent.next_offset) {
                Ok(header) if header.last_offset == offset => {}
                _ => return Ok(None),
            }
        }
        Ok(Some((index, time_index)))
    }

    /// `None` for a file that is absent or too large to be an index.
    async fn stored(&self, name: &str) -> Result<Option<Vec<u8>>, IoError> {
        match self.dir.read_small(name, INDEX_FILE_BYTES_MAX).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind == IoErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn rebuilt_indexes(
        &self,
        segment: &Segment,
        file: &File,
    ) -> Result<(OffsetIndex, TimeIndex), ReadError> {
        let base = segment.base_offset;
        let interval = u64::from(self.config.get().index_interval_bytes);
        let (mut index, mut time_index) = (OffsetIndex::new(base), TimeIndex::new(base));
        let mut max_timestamp = (-1, base);
        let mut bytes_since_index = 0;
        let mut walk = SegmentWalk::new(self, segment, file.clone(), 0, base, REBUILD_READ_BYTES);
        while let Some((header, position)) = walk.next().await? {
            if header.max_timestamp > max_timestamp.0 {
                max_timestamp = (header.max_timestamp, header.last_offset);
            }
            if bytes_since_index > interval {
                index.append(header.last_offset, position as u32);
                time_index.maybe_append(max_timestamp.0, max_timestamp.1);
                bytes_since_index = 0;
            }
            bytes_since_index += u64::from(header.len);
        }
        time_index.maybe_append(max_timestamp.0, max_timestamp.1);
        Ok((index, time_index))
    }
}

/// No index is larger: entries of 12 bytes for 2 GiB at an interval of 61 bytes.
const INDEX_FILE_BYTES_MAX: u64 = 512 << 20;
const REBUILD_READ_BYTES: usize = 1 << 20;
