//! One segment of a log: a `.log` file, its indexes, and what is known of both.
//!
//! A segment is **active** (the last one, appended to), then **rolled** (complete,
//! not yet cut to its length), **cut** (exact and durable), then **sealed** (its
//! indexes durable too: immutable). Until it is sealed it keeps its file and indexes;
//! sealed ones open them when they are needed and give them up to [`OpenSegments`].
//! Whoever uses a file holds a clone of it, so giving it up never takes it from a
//! reader.
//!
//! What it is not: it does no writing (`append.rs`, `flusher.rs`) and takes no
//! decision on its own beyond the roll rules of [`Extent::must_roll`].

use super::assemble::LoadedSegment;
use super::index::{OffsetIndex, TimeIndex};
use super::producer_state::ProducerStates;
use super::{LogBatch, LogConfig};
use crate::runtime::File;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// A segment. Shared between the log's list and whoever works on it.
pub(super) struct Segment {
    pub(super) base_offset: i64,
    pub(super) clock: RollClock,
    state: RefCell<SegmentState>,
    used: Cell<u64>,
    /// Compaction put another in its place: its files are not those of its names any more.
    replaced: Cell<bool>,
    /// Its files do not have their names yet: it stays open.
    pinned: Cell<bool>,
    /// When it was re-read last and found good, by the wall clock; at first when it was
    /// created or loaded.
    scrubbed_ms: Cell<i64>,
}

/// What decides beside its batches when a segment has reached `segment.ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RollClock {
    /// Wall clock of its creation (or load), for batches without timestamps.
    pub(super) created_ms: i64,
    /// By how much earlier it is rolled (`segment.jitter.ms`).
    pub(super) jitter_ms: i64,
}

struct SegmentState {
    extent: Extent,
    allocated: u64,
    phase: SegmentPhase,
    open: Option<OpenFile>,
    /// The producers as of its end, from the roll until it is sealed.
    producers: Option<ProducerStates>,
}

/// An open file with its indexes.
struct OpenFile {
    file: File,
    index: OffsetIndex,
    time_index: TimeIndex,
}

/// Where a segment is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SegmentPhase {
    /// Appended to.
    Active,
    /// Complete; its file may be longer than its content.
    Rolled,
    /// Complete, exact and durable; its indexes are not yet.
    Cut,
    /// Exact, durable, never changed again.
    Sealed,
}

/// How far a segment reaches. A copy of it is the appender's working state until
/// its write completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Bytes of whole batches.
    pub(super) len: u64,
    /// The offset after the last batch; the base offset while empty.
    pub(super) next_offset: i64,
    /// The largest timestamp of the first batch.
    pub(super) first_batch_timestamp: Option<i64>,
    /// The largest timestamp; -1 if there is none.
    pub(super) max_timestamp: i64,
    /// The last offset of the batch that brought it.
    pub(super) max_timestamp_offset: i64,
    /// Bytes since the last index entry.
    pub(super) bytes_since_index: u64,
    pub(super) index_entries: usize,
    pub(super) time_index_entries: usize,
}

/// An entry due in both indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) last_offset: i64,
    pub(super) position: u32,
    pub(super) max_timestamp: i64,
    pub(super) max_timestamp_offset: i64,
}

impl Segment {
    /// A new, empty, active segment.
    pub(super) fn new_active(base_offset: i64, file: File, clock: RollClock) -> Segment {
        Segment {
            base_offset,
            clock,
            state: RefCell::new(SegmentState {
                extent: Extent::empty(base_offset),
                allocated: 0,
                phase: SegmentPhase::Active,
                open: Some(OpenFile {
                    file,
                    index: OffsetIndex::new(base_offset),
                    time_index: TimeIndex::new(base_offset),
                }),
                producers: None,
            }),
            used: Cell::new(0),
            replaced: Cell::new(false),
            pinned: Cell::new(false),
            scrubbed_ms: Cell::new(clock.created_ms),
        }
    }

    /// A segment as a load found it.
    pub(super) fn loaded(
        loaded: LoadedSegment,
        active: bool,
        now_ms: i64,
        jitter_ms: i64,
    ) -> Segment {
        let LoadedSegment {
            base_offset,
            next_offset,
            len,
            allocated,
            first_batch_timestamp,
            max_timestamp,
            open,
        } = loaded;
        assert!(
            !active || open.is_some(),
            "the active segment is loaded with its file"
        );
        let open = open.map(|(file, index, time_index)| OpenFile {
            file,
            index,
            time_index,
        });
        let last_indexed = open.as_ref().and_then(|o| o.index.last());
        Segment {
            base_offset,
            clock: RollClock {
                created_ms: now_ms,
                jitter_ms,
            },
            state: RefCell::new(SegmentState {
                extent: Extent {
                    len,
                    next_offset,
                    first_batch_timestamp,
                    max_timestamp: max_timestamp.0,
                    max_timestamp_offset: max_timestamp.1,
                    bytes_since_index: len - last_indexed.map_or(0, |(_, p)| u64::from(p)),
                    index_entries: open.as_ref().map_or(0, |o| o.index.len()),
                    time_index_entries: open.as_ref().map_or(0, |o| o.time_index.len()),
                },
                allocated,
                phase: if active {
                    SegmentPhase::Active
                } else {
                    SegmentPhase::Sealed
                },
                open,
                producers: None,
            }),
            used: Cell::new(0),
            replaced: Cell::new(false),
            pinned: Cell::new(false),
            scrubbed_ms: Cell::new(now_ms),
        }
    }

    /// When it was re-read last and found good; before that, when it was created or loaded.
    pub(super) fn scrubbed_ms(&self) -> i64 {
        self.scrubbed_ms.get()
    }

    pub(super) fn set_scrubbed(&self, now_ms: i64) {
        self.scrubbed_ms.set(now_ms);
    }

    /// Whether another one is in its place.
    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.get()
    }

    /// Another one takes its place. Whoever holds it reads on.
    pub(super) fn set_replaced(&self) {
        self.replaced.set(true);
    }

    /// Keeps it open, or not any more.
    pub(super) fn set_pinned(&self, pinned: bool) {
        self.pinned.set(pinned);
    }

    /// Whether it can be closed, to be opened by its names again.
    pub(super) fn may_close(&self) -> bool {
        self.phase() == SegmentPhase::Sealed && !self.pinned.get() && !self.replaced.get()
    }

    /// Bytes of whole batches.
    pub(super) fn len(&self) -> u64 {
        self.state.borrow().extent.len
    }

    /// How far it reaches.
    pub(super) fn extent(&self) -> Extent {
        self.state.borrow().extent
    }

    /// The offset after its last batch.
    pub(super) fn next_offset(&self) -> i64 {
        self.state.borrow().extent.next_offset
    }

    /// Takes what follows `len` bytes out of it; index entries may still point there.
    pub(super) fn shorten(&self, len: u64, next_offset: i64) {
        let mut state = self.state.borrow_mut();
        state.extent.len = len;
        state.extent.next_offset = next_offset;
    }

    /// Where it is in its life.
    pub(super) fn phase(&self) -> SegmentPhase {
        self.state.borrow().phase
    }

    pub(super) fn set_phase(&self, phase: SegmentPhase) {
        self.state.borrow_mut().phase = phase;
    }

    /// Completes it; `producers` is the state as of its end.
    pub(super) fn roll(&self, producers: ProducerStates) {
        let mut state = self.state.borrow_mut();
        state.phase = SegmentPhase::Rolled;
        state.producers = Some(producers);
    }

    /// The producers as of its end, while it is complete and not sealed.
    pub(super) fn producers(&self) -> Option<ProducerStates> {
        self.state.borrow().producers.clone()
    }

    /// Its indexes are durable, and so is the snapshot of the producers at its end.
    pub(super) fn seal(&self) {
        let mut state = self.state.borrow_mut();
        state.phase = SegmentPhase::Sealed;
        state.producers = None;
    }

    /// Bytes that its file is known to reach, with what is reserved.
    pub(super) fn allocated(&self) -> u64 {
        self.state.borrow().allocated
    }

    pub(super) fn set_allocated(&self, bytes: u64) {
        self.state.borrow_mut().allocated = bytes;
    }

    /// The file, if it is open; always, until the segment is sealed.
    pub(super) fn file(&self) -> Option<File> {
        self.state.borrow().open.as_ref().map(|o| o.file.clone())
    }

    /// Takes over a file and indexes that were opened for it.
    pub(super) fn set_open(&self, file: File, index: OffsetIndex, time_index: TimeIndex) {
        let mut state = self.state.borrow_mut();
        if state.extent.is_max_timestamp_unknown() {
            let largest = time_index.last().unwrap_or((-1, self.base_offset));
            state.extent.max_timestamp = largest.0;
            state.extent.max_timestamp_offset = largest.1;
        }
        state.open = Some(OpenFile {
            file,
            index,
            time_index,
        });
    }

    /// Lets go of file and indexes.
    pub(super) fn close(&self) {
        self.state.borrow_mut().open = None;
    }

    /// Makes what was written visible: the extent after the write and the index
    /// entries due on the way.
    pub(super) fn publish(&self, extent: Extent, entries: &[IndexEntry]) {
        let mut state = self.state.borrow_mut();
        assert_eq!(
            state.phase,
            SegmentPhase::Active,
            "only the active segment grows"
        );
        let open = state.open.as_mut().expect("the active segment is open");
        for entry in entries {
            open.index.append(entry.last_offset, entry.position);
            open.time_index
                .maybe_append(entry.max_timestamp, entry.max_timestamp_offset);
        }
        let (index_entries, time_index_entries) = (open.index.len(), open.time_index.len());
        state.extent = Extent {
            index_entries,
            time_index_entries,
            ..extent
        };
    }

    /// Adds the last entry of the time index, which a complete segment has.
    pub(super) fn complete_time_index(&self) {
        let mut state = self.state.borrow_mut();
        let extent = state.extent;
        if let Some(open) = state.open.as_mut() {
            open.time_index
                .maybe_append(extent.max_timestamp, extent.max_timestamp_offset);
            state.extent.time_index_entries = state.open.as_ref().map_or(0, |o| o.time_index.len());
        }
    }

    /// Looks at the indexes, if they are open.
    pub(super) fn with_indexes<T>(
        &self,
        look: impl FnOnce(&OffsetIndex, &TimeIndex) -> T,
    ) -> Option<T> {
        let state = self.state.borrow();
        state.open.as_ref().map(|o| look(&o.index, &o.time_index))
    }

    /// About where the batch that holds `offset` starts, by the index where it is in
    /// memory, in proportion otherwise.
    pub(super) fn estimate(&self, offset: i64) -> u64 {
        let extent = self.extent();
        match self.with_indexes(|index, _| index.lookup(offset)) {
            Some(entry) => entry.map_or(0, |(_, position)| u64::from(position)),
            None => {
                let offsets = (extent.next_offset - self.base_offset).max(1) as u128;
                let below = (offset - self.base_offset).max(0) as u128;
                ((u128::from(extent.len) * below / offsets) as u64).min(extent.len)
            }
        }
    }

    /// The name of the segment's file with this extension.
    pub(super) fn file_name(&self, extension: &str) -> String {
        file_name(self.base_offset, extension)
    }
}

/// The largest timestamp of a sealed segment that was not opened since the load: it
/// rules nothing out. Opening the segment replaces it by what the time index says.
pub(super) const MAX_TIMESTAMP_UNKNOWN: (i64, i64) = (i64::MAX, 0);

/// `00000000000000000042.log` and its kind.
pub(super) fn file_name(offset: i64, extension: &str) -> String {
    format!("{offset:020}.{extension}")
}

impl Extent {
    /// Of a segment without a batch.
    pub(super) fn empty(base_offset: i64) -> Extent {
        Extent {
            len: 0,
            next_offset: base_offset,
            first_batch_timestamp: None,
            max_timestamp: -1,
            max_timestamp_offset: base_offset,
            bytes_since_index: 0,
            index_entries: 0,
            time_index_entries: 0,
        }
    }

    /// Whether the largest timestamp is [`MAX_TIMESTAMP_UNKNOWN`].
    pub(super) fn is_max_timestamp_unknown(&self) -> bool {
        self.max_timestamp == MAX_TIMESTAMP_UNKNOWN.0
    }

    /// Whether `batch` must go to a new segment: by size (`segment.bytes`), by age
    /// (`segment.ms` less the segment's jitter), because an index is full (`segment.index.bytes`), or because its
    /// offset does not fit beside the base offset.
    pub(super) fn must_roll(
        &self,
        base_offset: i64,
        clock: RollClock,
        batch: &LogBatch,
        config: &LogConfig,
        now_ms: i64,
    ) -> bool {
        let offset_fits = batch.last_offset - base_offset <= i64::from(i32::MAX);
        if self.len == 0 {
            return !offset_fits;
        }
        let size_fits = self.len + batch.bytes.len() as u64 <= u64::from(config.segment_bytes);
        let age_ms = match self.first_batch_timestamp {
            Some(first) if first >= 0 && batch.max_timestamp >= 0 => {
                batch.max_timestamp.saturating_sub(first)
            }
            _ => now_ms.saturating_sub(clock.created_ms),
        };
        let index_bytes_max = config.index_bytes_max as usize;
        let index_full = OffsetIndex::is_full(self.index_entries, index_bytes_max)
            || TimeIndex::is_full(self.time_index_entries, index_bytes_max);
        !offset_fits || !size_fits || age_ms > config.segment_ms - clock.jitter_ms || index_full
    }

    /// Moves past `batch`; the index entry that is due for it, if one is.
    pub(super) fn add(
        &mut self,
        batch: &LogBatch,
        index_interval_bytes: u32,
    ) -> Option<IndexEntry> {
        let position = self.len;
        if batch.max_timestamp > self.max_timestamp {
            self.max_timestamp = batch.max_timestamp;
            self.max_timestamp_offset = batch.last_offset;
        }
        let mut entry = None;
        if self.bytes_since_index > u64::from(index_interval_bytes) {
            entry = Some(IndexEntry {
                last_offset: batch.last_offset,
                position: u32::try_from(position).expect("segment.bytes is below 2 GiB"),
                max_timestamp: self.max_timestamp,
                max_timestamp_offset: self.max_timestamp_offset,
            });
            self.bytes_since_index = 0;
            self.index_entries += 1;
            self.time_index_entries += 1;
        }
        let len = batch.bytes.len() as u64;
        self.bytes_since_index += len;
        self.len += len;
        self.next_offset = batch.last_offset + 1;
        self.first_batch_timestamp
            .get_or_insert(batch.max_timestamp);
        entry
    }
}

/// The sealed segments of a shard that are open, the least recently used one first.
pub(super) struct OpenSegments {
    max: usize,
    next_use: Cell<u64>,
    by_use: RefCell<BTreeMap<u64, Weak<Segment>>>,
}

impl OpenSegments {
    /// At most `max` (at least 1) segments stay open.
    pub(super) fn new(max: usize) -> OpenSegments {
        OpenSegments {
            max: max.max(1),
            next_use: Cell::new(1),
            by_use: RefCell::new(BTreeMap::new()),
        }
    }

    /// Notes a use of an open, sealed segment, and closes the one that was not used
    /// for longest where there are too many.
    pub(super) fn used(&self, segment: &Rc<Segment>) {
        let mut by_use = self.by_use.borrow_mut();
        by_use.remove(&segment.used.get());
        let now = self.next_use.get();
        self.next_use.set(now + 1);
        segment.used.set(now);
        by_use.insert(now, Rc::downgrade(segment));
        while by_use.len() > self.max {
            if let Some(oldest) = by_use.pop_first().and_then(|(_, weak)| weak.upgrade()) {
                oldest.used.set(0);
                oldest.close();
            }
        }
    }

    /// How many are noted as open.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_use.borrow().len()
    }
}
