//! Walking the batches of a segment on disk, and opening a sealed segment.
//!
//! Every header that is walked is checked (magic, length, offset order), because what
//! comes from disk may be damaged: a bad header is [`ReadError::Corrupt`], never a
//! panic and never a silent end. So is the CRC, because a walk decides something: which record
//! a timestamp is at, or where a log is cut.
//!
//! A walk sees the segment as it was when the walk began; it holds the file, so the
//! segment may be closed meanwhile. Its owner holds the log's gate.

use super::batch::{BatchHeader, HEADER_BYTES};
use super::index_files::open_indexes;
use super::log::LogShared;
use super::scan::{scan_segment, ScanStart, SegmentScan, READ_BYTES};
use super::segment::Segment;
use super::segment_ends::misfit;
use super::ReadError;
use crate::runtime::local::Permit;
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

    /// The next batch's header and position, once its bytes have proved whole; `None` at the
    /// segment's end.
    pub(super) async fn next(&mut self) -> Result<Option<(BatchHeader, u64)>, ReadError> {
        self.log.storage.rt().yield_if_needed().await;
        if self.position == self.len {
            return Ok(None);
        }
        self.load(HEADER_BYTES as u64).await?;
        let header = self.header()?;
        self.load(u64::from(header.len)).await?;
        let at = (self.position - self.chunk_position) as usize;
        let batch = &self.chunk[at..at + header.len as usize];
        if !BatchHeader::crc_matches(batch) {
            return Err(self.corrupt("its CRC does not match".to_owned()));
        }
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
        self.corrupt_at(self.position, detail)
    }

    /// The error for damage at `position`.
    pub(super) fn corrupt_at(&self, position: u64, detail: String) -> ReadError {
        corrupt(&self.file, position, detail)
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
    /// absent or does not fit its segment is rebuilt. [`ReadError::OutOfRange`] for one that
    /// was removed from the head of the log, or replaced by compaction, meanwhile.
    pub(super) async fn open_file(&self, segment: &Rc<Segment>) -> Result<File, ReadError> {
        if let Some(file) = segment.file() {
            self.note_use(segment);
            return Ok(file);
        }
        let opened = self.open_closed(segment).await;
        match segment.is_replaced() {
            // Whatever was opened may be that of the segment in its place.
            true => {
                segment.close();
                Err(self.out_of_range(segment))
            }
            false => opened,
        }
    }

    async fn open_closed(&self, segment: &Rc<Segment>) -> Result<File, ReadError> {
        if segment.is_replaced() {
            return Err(self.out_of_range(segment));
        }
        let name = segment.file_name("log");
        let file = match self.dir.open(&name, OpenMode::Read).await {
            Err(error) if error.kind == IoErrorKind::NotFound => {
                return Err(self.missing(segment, error));
            }
            other => other?,
        };
        let (size, interval) = self.index_rules(segment);
        let rt = self.storage.rt();
        let base = segment.base_offset;
        let _permit = self.scan_permit().await;
        let gaps = self.may_have_gaps.get();
        let indexed = match open_indexes(rt, &self.dir, &file, base, size, interval, gaps).await {
            // An index that went between its opening and its reading.
            Err(error) if error.kind == IoErrorKind::NotFound => {
                return Err(self.missing(segment, error));
            }
            other => other?,
        };
        self.take_scan(segment, &file, indexed.scan)?;
        Ok(file)
    }

    /// Replaces the indexes in memory of a sealed segment whose stored ones proved wrong.
    pub(super) async fn rebuild_indexes(
        &self,
        segment: &Rc<Segment>,
        file: &File,
    ) -> Result<(), ReadError> {
        let (size, interval) = self.index_rules(segment);
        let (rt, base) = (self.storage.rt(), segment.base_offset);
        let _permit = self.scan_permit().await;
        let start = ScanStart::segment_start(base).with_gaps(self.may_have_gaps.get());
        let scan = scan_segment(rt, file, base, size, start, interval, -1).await?;
        self.take_scan(segment, file, scan)
    }

    /// A segment's file is gone: with the head of the log, or by a fault.
    fn missing(&self, segment: &Segment, error: IoError) -> ReadError {
        let log_start_offset = self.state.borrow().log_start_offset;
        match segment.next_offset() <= log_start_offset {
            true => self.out_of_range(segment),
            false => error.into(),
        }
    }

    /// The error for a segment that is no part of the log any more.
    fn out_of_range(&self, segment: &Segment) -> ReadError {
        let state = self.state.borrow();
        ReadError::OutOfRange {
            offset: segment.base_offset,
            log_start_offset: state.log_start_offset,
            end_offset: state.end_offset,
        }
    }

    fn index_rules(&self, segment: &Segment) -> (u64, u32) {
        (segment.len(), self.config.get().index_interval_bytes)
    }

    /// Budget for the buffer of a scan.
    async fn scan_permit(&self) -> Permit {
        let budget = &self.storage.0.cold_reads;
        budget.acquire(READ_BYTES.min(budget.total())).await
    }

    /// Takes over the indexes that a scan to the segment's end gave.
    pub(super) fn take_scan(
        &self,
        segment: &Rc<Segment>,
        file: &File,
        scan: SegmentScan,
    ) -> Result<(), ReadError> {
        if let Some(bad) = scan.bad {
            return Err(corrupt(file, bad.position, bad.detail));
        }
        let gaps = self.may_have_gaps.get();
        // A load that could not tell left this to the first who opens the segment.
        if let Some(detail) = misfit(scan.next_offset, segment.next_offset(), gaps) {
            return Err(corrupt(file, scan.len, detail));
        }
        let time_index = scan.complete_time_index();
        segment.set_open(file.clone(), scan.index, time_index);
        self.note_use(segment);
        Ok(())
    }

    fn note_use(&self, segment: &Rc<Segment>) {
        if segment.may_close() {
            self.storage.0.open_segments.used(segment);
        }
    }
}
