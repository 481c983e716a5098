//! Reading whole batches: from the cache where they are, from disk where not.
//!
//! A read takes its bounds first (the caller's and LEO), then data below them. Hot
//! batches are refcounted slices of the very buffers that were written; nothing is
//! parsed. On a miss one chunk is read, and its buffer itself becomes the response;
//! batches of it that this read does not take stay in the cache, so that the next one
//! of a sequential reader is hot, and what follows the chunk is then read ahead in
//! the background.
//!
//! Several consecutive batches in one buffer are one slice. A read may return less
//! than there is: at most one chunk comes from disk.
//!
//! Whether CRCs are looked at is the reader's to say ([`ReadCheck`]), not the log's: a reader that
//! passes batches on, or decides by them, demands it whatever the settings are. The CRC of every
//! batch in a chunk is then checked once, when the chunk is read, or when it is first taken from
//! the cache by such a reader; what was appended was never on the disk.
//!
//! What it is not: it knows no high watermark.

use super::batch::{BatchHeader, HEADER_BYTES};
use super::cache::{BatchRun, Lookup, RunBatch};
use super::log::LogShared;
use super::segment::{Segment, SegmentPhase};
use super::walk::{checked_header, corrupt};
use super::{Log, ReadError};
use crate::runtime::local::Event;
use crate::runtime::{File, Queue};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Consecutive whole batches, as refcounted slices.
#[derive(Debug, Clone, Default)]
pub struct ReadSlices {
    /// The bytes, in order; a slice may hold several batches.
    pub slices: Vec<Bytes>,
    /// The length of each batch, in order.
    pub batch_bytes: Vec<u32>,
    /// Where to read on: the offset after the last batch, or where the read began; the bound
    /// where a compacted log has no batch up to it.
    pub next_offset: i64,
    /// The sum of the lengths.
    pub bytes: usize,
}

/// Against what a read holds the batches that it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadCheck {
    /// Their headers: magic, length, order of offsets. The content is as the disk gives it.
    Headers,
    /// Their CRCs as well, where they come from the disk.
    Crcs,
}

/// What ends a read, and what is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadLimit {
    pub(super) check: ReadCheck,
    pub(super) bound: i64,
    pub(super) bytes_max: usize,
    pub(super) whole_first_batch: bool,
}

impl ReadLimit {
    /// Whether a batch may follow what was taken.
    pub(super) fn admits(&self, last_offset: i64, len: u32, taken: &ReadSlices) -> bool {
        let first_whole = self.whole_first_batch && taken.bytes == 0;
        last_offset < self.bound && (first_whole || taken.bytes + len as usize <= self.bytes_max)
    }
}

impl Log {
    /// [`Log::read_checked`] without a look at CRCs.
    pub async fn read(
        &self,
        from: i64,
        bound: i64,
        bytes_max: usize,
        whole_first_batch: bool,
    ) -> Result<ReadSlices, ReadError> {
        let check = ReadCheck::Headers;
        self.read_checked(from, bound, bytes_max, whole_first_batch, check)
            .await
    }

    /// Reads whole batches from the one that holds `from` on, none whose last offset is
    /// at or above `bound`, at most `bytes_max` bytes; the first one whatever its size
    /// if `whole_first_batch`. May return fewer than there are, but none only if the
    /// limits admit none (or, in a log that was compacted, nothing is left up to LEO). The first
    /// batch may begin above `from` there. Empty at or past the bound; [`ReadError::OutOfRange`] below
    /// the log start or above LEO.
    pub async fn read_checked(
        &self,
        from: i64,
        bound: i64,
        bytes_max: usize,
        whole_first_batch: bool,
        check: ReadCheck,
    ) -> Result<ReadSlices, ReadError> {
        let limit = ReadLimit {
            check,
            bound: self.0.check_range(from, bound)?,
            bytes_max,
            whole_first_batch,
        };
        let mut out = ReadSlices {
            next_offset: from,
            ..ReadSlices::default()
        };
        let mut chunk_read = false;
        while out.next_offset < limit.bound {
            let at = out.next_offset;
            let cache = &self.0.storage.0.cache;
            let (lookup, read_ahead) = cache.take(self.0.id, at, &limit, &mut out);
            if let Some(from) = read_ahead {
                self.start_read_ahead(from, check);
            }
            match lookup {
                Lookup::Stopped => break,
                Lookup::Taken => {}
                Lookup::Miss if chunk_read || out.bytes > 0 => break,
                Lookup::Miss => {
                    if self.0.read_ahead.wait_for(at).await {
                        continue;
                    }
                    self.take_cold(at, &limit, &mut out).await?;
                    chunk_read = true;
                    if out.next_offset == at {
                        break;
                    }
                }
            }
        }
        let counters = &self.0.storage.0.counters;
        if chunk_read {
            counters.fetch_cold_reads.add(1);
        } else if out.bytes > 0 {
            counters.fetch_cache_reads.add(1);
        }
        Ok(out)
    }

    /// About how many bytes lie from `from` up to `bound`, without any I/O; never 0
    /// while `from` is below both the bound and LEO, unless a read has found that no batch is
    /// there. Off by up to an index interval
    /// (by more in a sealed segment whose index is not in memory).
    pub fn bytes_between(&self, from: i64, bound: i64) -> u64 {
        let state = self.0.state.borrow();
        let bound = bound.min(state.end_offset);
        let from = from.max(state.log_start_offset);
        let empty = self.0.empty_range.get();
        if from >= bound || empty.is_some_and(|(start, end)| start <= from && bound <= end) {
            return 0;
        }
        let holding = |offset| {
            let after = state.segments.partition_point(|s| s.base_offset <= offset);
            after.saturating_sub(1)
        };
        let (first, last) = (holding(from), holding(bound));
        let between: u64 = state.segments[first..last].iter().map(|s| s.len()).sum();
        let end = between + self.0.estimate(&state.segments[last], bound);
        end.saturating_sub(self.0.estimate(&state.segments[first], from))
            .max(1)
    }

    /// Reads a chunk that begins with the batch that holds `at`, and takes what the
    /// limits admit.
    async fn take_cold(
        &self,
        at: i64,
        limit: &ReadLimit,
        out: &mut ReadSlices,
    ) -> Result<(), ReadError> {
        let log = &*self.0;
        let _io = log.gate.enter().await.map_err(|_| ReadError::Closed)?;
        // A truncation may have come first.
        let bound = log.check_range(at, limit.bound)?;
        let sequential = log.read_ahead.is_sequential(at);
        let wanted = Wanted {
            at,
            bytes: limit.bytes_max,
            check: limit.check,
        };
        let Some((run, in_place)) = log.read_chunk(wanted).await? else {
            // Compaction left nothing there, and a cut nothing behind it. What is appended
            // from now on lies above.
            log.empty_range.set(Some((at, bound)));
            out.next_offset = bound;
            return Ok(());
        };
        let run_end = run.last_offset() + 1;
        if in_place {
            log.read_ahead.note_end(&run);
        }
        if !run.take_into(at, limit, out) && in_place {
            log.storage.0.cache.insert_cold(log.id, run, false);
        }
        if sequential {
            self.start_read_ahead(run_end, limit.check);
        }
        Ok(())
    }

    /// Reads the chunk from `at` on in the background, if there is something, the
    /// budget has room, and nobody is at it.
    fn start_read_ahead(&self, at: i64, check: ReadCheck) {
        let log = &self.0;
        let budget = &log.storage.0.cold_reads;
        let has_room = !budget.is_contended() && budget.available() >= CHUNK_BYTES_MAX as u64;
        let in_cache = log.storage.0.cache.position_of(log.id, at).is_some();
        if in_cache || !has_room || at >= self.end_offset() || !log.read_ahead.begin(at) {
            return;
        }
        let log = self.clone();
        let rt = self.0.storage.rt();
        rt.spawn(Queue::Background, async move {
            log.read_ahead(at, check).await;
            log.0.read_ahead.end(at);
        });
    }

    /// An error here is not lost: the reader that comes meets it again.
    async fn read_ahead(&self, at: i64, check: ReadCheck) {
        let log = &*self.0;
        let Ok(_io) = log.gate.enter().await else {
            return;
        };
        let in_cache = log.storage.0.cache.position_of(log.id, at).is_some();
        if log.check_range(at, i64::MAX).is_ok() && at < self.end_offset() && !in_cache {
            log.read_ahead.started(at);
            let wanted = Wanted {
                at,
                bytes: CHUNK_BYTES_MAX,
                check,
            };
            if let Ok(Some((run, true))) = log.read_chunk(wanted).await {
                log.read_ahead.note_end(&run);
                log.storage.0.cache.insert_cold(log.id, run, true);
            }
        }
    }
}

impl LogShared {
    /// The bound of a read: the caller's, at most LEO.
    pub(super) fn check_range(&self, from: i64, bound: i64) -> Result<i64, ReadError> {
        let state = self.state.borrow();
        if self.gate.is_closed() {
            return Err(ReadError::Closed);
        }
        if from < state.log_start_offset || from > state.end_offset {
            return Err(ReadError::OutOfRange {
                offset: from,
                log_start_offset: state.log_start_offset,
                end_offset: state.end_offset,
            });
        }
        Ok(bound.min(state.end_offset))
    }

    /// The segment with the first batch at or after `offset`. `offset` is below LEO.
    pub(super) fn segment_for(&self, offset: i64) -> Rc<Segment> {
        let state = self.state.borrow();
        let segments = &state.segments;
        let after = segments.partition_point(|s| s.base_offset <= offset);
        let mut at = after.saturating_sub(1);
        while at + 1 < segments.len() && segments[at].next_offset() <= offset {
            at += 1;
        }
        segments[at].clone()
    }

    /// Reads from disk: whole batches from the one that holds `wanted.at` on (or the first above it,
    /// where compaction left a gap), at least one, about `wanted.bytes` (between
    /// [`CHUNK_BYTES_MIN`] and [`CHUNK_BYTES_MAX`], more if one batch needs it). `None` if there
    /// is none up to LEO. The second value says whether the segment is still in its place:
    /// otherwise positions in it mean nothing.
    async fn read_chunk(&self, mut wanted: Wanted) -> Result<Option<(BatchRun, bool)>, ReadError> {
        while wanted.at < self.state.borrow().end_offset {
            let segment = self.segment_for(wanted.at);
            match self.read_chunk_of(&segment, wanted).await {
                // Compaction put another in its place before it was opened.
                Err(ReadError::OutOfRange { .. }) if segment.is_replaced() => {}
                Err(error) => return Err(error),
                Ok(Some(run)) => return Ok(Some((run, !segment.is_replaced()))),
                Ok(None) => wanted.at = segment.next_offset().max(wanted.at + 1),
            }
        }
        Ok(None)
    }

    /// The same of one segment; `None` if a gap reaches to its end.
    async fn read_chunk_of(
        &self,
        segment: &Rc<Segment>,
        mut wanted: Wanted,
    ) -> Result<Option<BatchRun>, ReadError> {
        let file = self.open_file(segment).await?;
        let (position, offset_min, indexed) = self.locate(segment, wanted.at);
        wanted.bytes = wanted.bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        let found = self
            .run_from(segment, &file, position, offset_min, wanted)
            .await;
        match found {
            // The index may be what is wrong: it can not prove where it points.
            Err(ReadError::Corrupt { .. })
                if indexed && segment.phase() == SegmentPhase::Sealed =>
            {
                self.rebuild_indexes(segment, &file).await?;
                let (position, offset_min, _) = self.locate(segment, wanted.at);
                self.run_from(segment, &file, position, offset_min, wanted)
                    .await
            }
            other => other,
        }
    }

    /// Where to start the walk to the batch that holds `at`: a position, the least base
    /// offset there, and whether the index said so.
    fn locate(&self, segment: &Segment, at: i64) -> (u64, i64, bool) {
        let known = self
            .read_ahead
            .position_at(at)
            .or_else(|| self.storage.0.cache.position_before(self.id, at));
        let known = known.filter(|_| !segment.is_replaced());
        if let Some((base, position)) = known {
            if base == segment.base_offset && position < segment.len() {
                return (position, at, false);
            }
        }
        let entry = segment.with_indexes(|index, _| index.lookup(at)).flatten();
        match entry {
            Some((_, position)) => (u64::from(position), segment.base_offset, true),
            None => (0, segment.base_offset, false),
        }
    }

    /// Walks from `position` to the batch that holds `wanted.at`, reading as it goes, and
    /// returns it with the whole batches after it in the same buffer. `None` if a compacted log
    /// has none left in this segment.
    async fn run_from(
        &self,
        segment: &Segment,
        file: &File,
        mut position: u64,
        mut offset_min: i64,
        wanted: Wanted,
    ) -> Result<Option<BatchRun>, ReadError> {
        let extent = segment.extent();
        let Wanted {
            at,
            bytes: mut bytes_wanted,
            check,
        } = wanted;
        loop {
            self.storage.rt().yield_if_needed().await;
            let rest = extent.len.saturating_sub(position);
            if rest == 0 && self.may_have_gaps.get() {
                return Ok(None);
            }
            if rest < HEADER_BYTES as u64 {
                let detail = format!("no batch with offset {at}, which must be below it");
                return Err(corrupt(file, position, detail));
            }
            let len = rest.min(bytes_wanted as u64) as usize;
            let buf = self.read_exact(file, position, len).await?;
            let mut batches: Vec<RunBatch> = Vec::new();
            let mut start = 0;
            let mut partial_bytes = HEADER_BYTES;
            while start + HEADER_BYTES <= buf.len() {
                let rest = rest - start as u64;
                let header = checked_header(&buf[start..], rest, offset_min, extent.next_offset)
                    .map_err(|detail| corrupt(file, position + start as u64, detail))?;
                let needed = header.last_offset >= at;
                let end = start + header.len as usize;
                if needed && end > buf.len() {
                    partial_bytes = header.len as usize;
                    break;
                }
                let looks = needed && check == ReadCheck::Crcs;
                if looks && !BatchHeader::crc_matches(&buf[start..end]) {
                    let detail = "the batch's CRC does not match its content".to_owned();
                    // What stands before it is good, and is served.
                    if batches.is_empty() {
                        return Err(corrupt(file, position + start as u64, detail));
                    }
                    break;
                }
                if needed {
                    batches.push(RunBatch {
                        base_offset: header.base_offset,
                        last_offset: header.last_offset,
                        start: start as u32,
                        len: header.len,
                    });
                }
                offset_min = header.last_offset + 1;
                start = end;
            }
            let counters = &self.storage.0.counters;
            counters.fetch_cold_bytes.add(buf.len() as u64);
            if !batches.is_empty() {
                return Ok(Some(BatchRun {
                    segment_base: segment.base_offset,
                    position,
                    buf,
                    batches,
                    crcs_checked: check == ReadCheck::Crcs,
                }));
            }
            // Go on at the batch that is needed, or at the next one to skip.
            position += start as u64;
            bytes_wanted = bytes_wanted.max(partial_bytes);
        }
    }

    /// About where in `segment` the batch that holds `offset` starts.
    fn estimate(&self, segment: &Segment, offset: i64) -> u64 {
        let extent = segment.extent();
        if offset >= extent.next_offset {
            return extent.len;
        }
        match self.storage.0.cache.position_of(self.id, offset) {
            Some((base, position)) if base == segment.base_offset => position,
            _ => segment.estimate(offset),
        }
    }
}

/// What a chunk is read for.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// The offset that it is to begin with.
    at: i64,
    /// About how many bytes.
    bytes: usize,
    check: ReadCheck,
}

/// Where sequential readers are, and what is being read ahead for them. Small and
/// bounded; forgetting costs a read.
pub(super) struct ReadAhead(RefCell<ReadAheadState>);

struct ReadAheadState {
    /// Where chunks ended: offset, segment base offset, position. Newest last.
    ends: VecDeque<(i64, i64, u64)>,
    /// Offsets from which a chunk is being read, or will be; true once it is.
    in_flight: Vec<(i64, bool)>,
    ended: Event,
}

impl ReadAhead {
    pub(super) fn new() -> ReadAhead {
        ReadAhead(RefCell::new(ReadAheadState {
            ends: VecDeque::new(),
            in_flight: Vec::new(),
            ended: Event::new(),
        }))
    }

    /// Forgets all positions, after a truncation.
    pub(super) fn forget(&self) {
        self.0.borrow_mut().ends.clear();
    }

    fn note_end(&self, run: &BatchRun) {
        let mut state = self.0.borrow_mut();
        if state.ends.len() == READERS_NOTED {
            state.ends.pop_front();
        }
        let end = run.last_offset() + 1;
        state
            .ends
            .push_back((end, run.segment_base, run.end_position()));
    }

    /// Whether a chunk ended at `at`: then its reader goes on sequentially.
    fn is_sequential(&self, at: i64) -> bool {
        self.position_at(at).is_some()
    }

    fn position_at(&self, at: i64) -> Option<(i64, u64)> {
        let state = self.0.borrow();
        let found = state.ends.iter().find(|(offset, _, _)| *offset == at);
        found.map(|(_, base, position)| (*base, *position))
    }

    fn begin(&self, at: i64) -> bool {
        let mut state = self.0.borrow_mut();
        let known = state.in_flight.iter().any(|(other, _)| *other == at);
        if state.in_flight.len() >= READERS_NOTED || known {
            return false;
        }
        state.in_flight.push((at, false));
        true
    }

    fn started(&self, at: i64) {
        let mut state = self.0.borrow_mut();
        for (offset, started) in &mut state.in_flight {
            *started |= *offset == at;
        }
    }

    fn is_started(&self, at: i64) -> bool {
        self.0.borrow().in_flight.contains(&(at, true))
    }

    fn end(&self, at: i64) {
        let ended = {
            let mut state = self.0.borrow_mut();
            state.in_flight.retain(|(other, _)| *other != at);
            state.ended.clone()
        };
        ended.notify_all();
    }

    /// Waits for the chunk that is being read from `at` on; false if there is none. One
    /// that still waits for its turn in the background is not waited for.
    async fn wait_for(&self, at: i64) -> bool {
        if !self.is_started(at) {
            return false;
        }
        let ended = self.0.borrow().ended.clone();
        ended.wait_until(|| !self.is_started(at)).await;
        true
    }
}

const READERS_NOTED: usize = 8;
const CHUNK_BYTES_MIN: usize = 128 << 10;
const CHUNK_BYTES_MAX: usize = 1 << 20;
