//! The buffer cache of a shard: what was written, and what was read ahead.
//!
//! An entry is one immutable buffer and the list of the whole batches in it, so a hot
//! read parses nothing. Entries are evicted from the cache only: readers hold
//! refcounts of their own, so eviction never waits and never invalidates a slice.
//! The oldest entry goes first; what came from disk has at most a quarter of the
//! cache, so that a consumer of old data cannot push out what the others are
//! reading. An entry counts the whole memory of its buffer.
//!
//! What it is not: it holds nothing that is not on disk, and it makes nothing
//! durable. Losing any entry costs a read.

use super::batch::BatchHeader;
use super::read::{ReadCheck, ReadLimit, ReadSlices};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The cache. Keys are (log, base offset of the entry's first batch).
pub(super) struct Cache(RefCell<CacheState>);

struct CacheState {
    bytes_max: u64,
    bytes: u64,
    cold_bytes: u64,
    next_age: u64,
    entries: BTreeMap<Key, Entry>,
    written_by_age: BTreeMap<u64, Key>,
    cold_by_age: BTreeMap<u64, Key>,
}

type Key = (u64, i64);

struct Entry {
    run: BatchRun,
    age: u64,
    cold: bool,
    /// A cold entry that nobody read yet: its first reader reads ahead.
    read_ahead_due: bool,
}

/// Whole consecutive batches in one buffer.
#[derive(Debug, Clone)]
pub(super) struct BatchRun {
    /// The segment that they are in.
    pub(super) segment_base: i64,
    /// Where in the segment's file the buffer starts.
    pub(super) position: u64,
    /// The buffer; before the first batch and after the last may be other bytes.
    pub(super) buf: Bytes,
    /// In order, adjoining, at least one.
    pub(super) batches: Vec<RunBatch>,
    /// Their CRCs were looked at, or they were never on the disk.
    pub(super) crcs_checked: bool,
}

/// A batch in a [`BatchRun`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunBatch {
    pub(super) base_offset: i64,
    pub(super) last_offset: i64,
    /// Where it starts in the buffer.
    pub(super) start: u32,
    pub(super) len: u32,
}

/// What a look into the cache gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// No entry holds the offset.
    Miss,
    /// Batches were taken up to the entry's end; look again from the next offset.
    Taken,
    /// The bound or the byte limit was reached.
    Stopped,
}

impl Cache {
    /// A cache of at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: u64) -> Cache {
        Cache(RefCell::new(CacheState {
            bytes_max,
            bytes: 0,
            cold_bytes: 0,
            next_age: 0,
            entries: BTreeMap::new(),
            written_by_age: BTreeMap::new(),
            cold_by_age: BTreeMap::new(),
        }))
    }

    /// Adds a buffer that was written at the end of the log. Entries that lie wholly
    /// in its bytes (the block that was written again) are dropped, and their batches
    /// join the new entry.
    pub(super) fn insert_written(&self, log: u64, mut run: BatchRun) {
        let mut state = self.0.borrow_mut();
        while let Some(key) = state.last_covered(log, &run) {
            let old = state.remove(key).run;
            run.prepend(old);
        }
        state.insert(log, run, false, false);
    }

    /// Adds batches that were read from disk. `read_ahead` says that nobody read them
    /// yet. Kept out if an entry with the same first batch exists.
    pub(super) fn insert_cold(&self, log: u64, run: BatchRun, read_ahead: bool) {
        let mut state = self.0.borrow_mut();
        let key = (log, run.batches[0].base_offset);
        if !state.entries.contains_key(&key) {
            state.insert(log, run, true, read_ahead);
        }
    }

    /// Takes batches from the one that holds `from` on into `out`. The second value is
    /// where the caller should read ahead from, if it should. What came from the disk and
    /// has a wrong CRC is forgotten, not taken, where the reader demands a look at it.
    pub(super) fn take(
        &self,
        log: u64,
        from: i64,
        limit: &ReadLimit,
        out: &mut ReadSlices,
    ) -> (Lookup, Option<i64>) {
        let mut state = self.0.borrow_mut();
        let Some(entry) = state.holding(log, from) else {
            return (Lookup::Miss, None);
        };
        if limit.check == ReadCheck::Crcs && !entry.run.crcs_checked {
            entry.run.crcs_checked = entry.run.crcs_match();
            if !entry.run.crcs_checked {
                let key = (log, entry.run.batches[0].base_offset);
                state.remove(key);
                return (Lookup::Miss, None);
            }
        }
        let due = std::mem::take(&mut entry.read_ahead_due);
        let read_ahead = due.then(|| entry.run.last_offset() + 1);
        let lookup = if entry.run.take_into(from, limit, out) {
            Lookup::Taken
        } else {
            Lookup::Stopped
        };
        (lookup, read_ahead)
    }

    /// Where in its segment's file the batch that holds `offset` starts: (segment
    /// base offset, position).
    pub(super) fn position_of(&self, log: u64, offset: i64) -> Option<(i64, u64)> {
        let mut state = self.0.borrow_mut();
        let run = &state.holding(log, offset)?.run;
        let at = run.first_holding(offset)?;
        Some((
            run.segment_base,
            run.position + u64::from(run.batches[at].start),
        ))
    }

    /// Where the entry ends whose last batch ends right before `offset`: (segment
    /// base offset, position).
    pub(super) fn position_before(&self, log: u64, offset: i64) -> Option<(i64, u64)> {
        let state = self.0.borrow();
        let (key, entry) = state.entries.range(..(log, offset)).next_back()?;
        (key.0 == log && entry.run.last_offset() + 1 == offset)
            .then(|| (entry.run.segment_base, entry.run.end_position()))
    }

    /// Forgets the batches at or above `offset`.
    pub(super) fn clip(&self, log: u64, offset: i64) {
        let mut state = self.0.borrow_mut();
        let touched: Vec<Key> = state
            .entries
            .range((log, i64::MIN)..=(log, i64::MAX))
            .filter(|(_, entry)| entry.run.last_offset() >= offset)
            .map(|(key, _)| *key)
            .collect();
        for key in touched {
            let mut entry = state.remove(key);
            let keep = entry
                .run
                .batches
                .partition_point(|b| b.last_offset < offset);
            entry.run.batches.truncate(keep);
            if keep > 0 {
                state.insert(log, entry.run, entry.cold, entry.read_ahead_due);
            }
        }
    }

    /// Forgets the entries that lie wholly below `offset`.
    pub(super) fn remove_below(&self, log: u64, offset: i64) {
        let mut state = self.0.borrow_mut();
        let below: Vec<Key> = state
            .entries
            .range((log, i64::MIN)..(log, offset))
            .filter(|(_, entry)| entry.run.last_offset() < offset)
            .map(|(key, _)| *key)
            .collect();
        for key in below {
            state.remove(key);
        }
    }

    /// Forgets the entries that hold an offset from `from` up to, not including, `to`.
    pub(super) fn remove_range(&self, log: u64, from: i64, to: i64) {
        let mut state = self.0.borrow_mut();
        let touched: Vec<Key> = state
            .entries
            .range((log, i64::MIN)..(log, to))
            .filter(|(_, entry)| entry.run.last_offset() >= from)
            .map(|(key, _)| *key)
            .collect();
        for key in touched {
            state.remove(key);
        }
    }

    /// Forgets all of a log.
    pub(super) fn remove_log(&self, log: u64) {
        self.clip(log, i64::MIN);
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        self.0.borrow().bytes
    }

    /// Entries held of a log.
    #[cfg(test)]
    pub(super) fn entry_count(&self, log: u64) -> usize {
        let state = self.0.borrow();
        state
            .entries
            .range((log, i64::MIN)..=(log, i64::MAX))
            .count()
    }
}

impl CacheState {
    fn holding(&mut self, log: u64, offset: i64) -> Option<&mut Entry> {
        let (key, entry) = self.entries.range_mut(..=(log, offset)).next_back()?;
        (key.0 == log && entry.run.last_offset() >= offset).then_some(entry)
    }

    /// The log's last entry, if it lies wholly in the bytes of `run`.
    fn last_covered(&self, log: u64, run: &BatchRun) -> Option<Key> {
        let (key, last) = self.entries.range(..=(log, i64::MAX)).next_back()?;
        (key.0 == log
            && last.run.segment_base == run.segment_base
            && last.run.position >= run.position)
            .then_some(*key)
    }

    fn insert(&mut self, log: u64, run: BatchRun, cold: bool, read_ahead_due: bool) {
        run.check();
        let cost = run.buf.len() as u64;
        if cost > self.bytes_max {
            return;
        }
        let key = (log, run.batches[0].base_offset);
        if self.entries.contains_key(&key) {
            self.remove(key);
        }
        let age = self.next_age;
        self.next_age += 1;
        self.bytes += cost;
        if cold {
            self.cold_bytes += cost;
            self.cold_by_age.insert(age, key);
        } else {
            self.written_by_age.insert(age, key);
        }
        let entry = Entry {
            run,
            age,
            cold,
            read_ahead_due,
        };
        self.entries.insert(key, entry);
        self.evict();
    }

    /// Never evicts the newest entry: it fits, and it is the last to go.
    fn evict(&mut self) {
        while self.cold_bytes > self.bytes_max / 4 && self.cold_by_age.len() > 1 {
            let oldest = self.cold_by_age.first_key_value().map(|(_, key)| *key);
            self.remove(oldest.expect("cold bytes belong to cold entries"));
        }
        while self.bytes > self.bytes_max {
            let written = self.written_by_age.first_key_value();
            let cold = self.cold_by_age.first_key_value();
            let oldest = match (written, cold) {
                (Some(w), Some(c)) => *(if w.0 < c.0 { w.1 } else { c.1 }),
                (Some(one), None) | (None, Some(one)) => *one.1,
                (None, None) => unreachable!("bytes belong to entries"),
            };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, key: Key) -> Entry {
        let entry = self.entries.remove(&key).expect("the key names an entry");
        let cost = entry.run.buf.len() as u64;
        self.bytes -= cost;
        if entry.cold {
            self.cold_bytes -= cost;
            self.cold_by_age.remove(&entry.age);
        } else {
            self.written_by_age.remove(&entry.age);
        }
        entry
    }
}

impl BatchRun {
    /// The last batch's last offset.
    pub(super) fn last_offset(&self) -> i64 {
        self.batches[self.batches.len() - 1].last_offset
    }

    /// Where the last batch ends in the segment's file.
    pub(super) fn end_position(&self) -> u64 {
        let last = self.batches[self.batches.len() - 1];
        self.position + u64::from(last.start) + u64::from(last.len)
    }

    /// Takes batches from the one that holds `from` on. True if the last batch was
    /// taken, false if the bound or the limit came first.
    pub(super) fn take_into(&self, from: i64, limit: &ReadLimit, out: &mut ReadSlices) -> bool {
        let Some(first) = self.first_holding(from) else {
            return true;
        };
        let bytes_before = out.bytes;
        let mut taken = 0;
        for batch in &self.batches[first..] {
            if !limit.admits(batch.last_offset, batch.len, out) {
                break;
            }
            out.batch_bytes.push(batch.len);
            out.bytes += batch.len as usize;
            out.next_offset = batch.last_offset + 1;
            taken += 1;
        }
        if taken > 0 {
            let start = self.batches[first].start as usize;
            let slice = self.buf.slice(start..start + (out.bytes - bytes_before));
            out.slices.push(slice);
        }
        first + taken == self.batches.len()
    }

    fn crcs_match(&self) -> bool {
        self.batches.iter().all(|batch| {
            let start = batch.start as usize;
            BatchHeader::crc_matches(&self.buf[start..start + batch.len as usize])
        })
    }

    fn first_holding(&self, offset: i64) -> Option<usize> {
        let first = self.batches.partition_point(|b| b.last_offset < offset);
        (first < self.batches.len()).then_some(first)
    }

    /// Puts the batches of an older buffer, whose bytes this one holds too, first. They
    /// are left out unless they adjoin: the entry between may have been evicted, or
    /// the older one been cut short.
    fn prepend(&mut self, older: BatchRun) {
        let shift = (older.position - self.position) as u32;
        let first_here = self.batches[0].base_offset;
        let mut batches = older.batches;
        batches.retain(|b| b.last_offset < first_here);
        for batch in &mut batches {
            batch.start += shift;
        }
        let adjoin = |last: &RunBatch| last.start + last.len == self.batches[0].start;
        if batches.last().is_some_and(adjoin) {
            batches.append(&mut self.batches);
            self.batches = batches;
            self.crcs_checked &= older.crcs_checked;
        }
    }

    fn check(&self) {
        assert!(!self.batches.is_empty(), "a run holds a batch");
        assert!(
            self.batches.windows(2).all(|w| {
                w[0].start + w[0].len == w[1].start && w[0].last_offset < w[1].base_offset
            }),
            "batches of a run adjoin: {:?}",
            self.batches
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::batch::BatchBuilder;

    /// Batches of 100 bytes and one record in a buffer of its own.
    fn run(base_offset: i64, count: i64, position: u64) -> BatchRun {
        let batch = |i| RunBatch {
            base_offset: base_offset + i,
            last_offset: base_offset + i,
            start: 100 * i as u32,
            len: 100,
        };
        BatchRun {
            segment_base: 0,
            position,
            buf: Bytes::from(vec![base_offset as u8; 100 * count as usize]),
            batches: (0..count).map(batch).collect(),
            crcs_checked: true,
        }
    }

    fn take(cache: &Cache, log: u64, from: i64) -> (Lookup, ReadSlices) {
        let limit = ReadLimit {
            check: ReadCheck::Headers,
            bound: i64::MAX,
            bytes_max: usize::MAX,
            whole_first_batch: true,
        };
        let mut out = ReadSlices::default();
        let (lookup, _) = cache.take(log, from, &limit, &mut out);
        (lookup, out)
    }

    #[test]
    fn the_oldest_entry_of_all_logs_goes_first_and_slices_outlive_it() {
        let cache = Cache::new(1_000);
        cache.insert_written(1, run(0, 5, 0));
        let (_, held) = take(&cache, 1, 0);
        cache.insert_written(2, run(0, 5, 0));
        cache.insert_written(2, run(5, 5, 8_192));
        assert_eq!(cache.bytes(), 1_000);
        assert_eq!(take(&cache, 1, 0).0, Lookup::Miss);
        assert_eq!(take(&cache, 2, 0).0, Lookup::Taken);
        assert_eq!(held.slices[0], vec![0; 500]);
    }

    #[test]
    fn cold_entries_have_a_quarter_and_push_out_themselves() {
        let cache = Cache::new(2_000);
        cache.insert_written(1, run(1_000, 10, 0));
        for i in 0..20 {
            cache.insert_cold(2, run(i * 2, 2, i as u64 * 200), false);
        }
        assert_eq!(cache.entry_count(1), 1, "what was written stays");
        assert_eq!(cache.entry_count(2), 2, "400 of 500 bytes");
        assert_eq!(take(&cache, 2, 38).0, Lookup::Taken, "the newest stays");
    }

    #[test]
    fn a_buffer_larger_than_the_cache_is_not_kept() {
        let cache = Cache::new(400);
        cache.insert_written(1, run(0, 5, 0));
        assert_eq!((cache.bytes(), take(&cache, 1, 0).0), (0, Lookup::Miss));
    }

    #[test]
    fn a_clipped_entry_ends_below_the_offset() {
        let cache = Cache::new(10_000);
        cache.insert_written(1, run(0, 5, 0));
        cache.insert_written(1, run(5, 5, 4_096));
        cache.insert_written(2, run(0, 5, 0));
        cache.clip(1, 3);
        assert_eq!(take(&cache, 1, 0).1.next_offset, 3);
        assert_eq!(take(&cache, 1, 3).0, Lookup::Miss);
        assert_eq!(take(&cache, 1, 6).0, Lookup::Miss);
        cache.remove_log(1);
        assert_eq!((cache.bytes(), cache.entry_count(2)), (500, 1));
    }

    #[test]
    fn an_older_entry_that_does_not_adjoin_is_dropped_not_merged() {
        let cache = Cache::new(10_000);
        cache.insert_written(1, run(0, 2, 0));
        // Offsets 2 and 3 were written between, and evicted.
        let mut newer = run(4, 2, 0);
        newer.buf = Bytes::from((0..600).map(|n| (n / 100) as u8).collect::<Vec<u8>>());
        for batch in &mut newer.batches {
            batch.start += 400;
        }
        cache.insert_written(1, newer);
        assert_eq!(take(&cache, 1, 0).0, Lookup::Miss);
        let (lookup, out) = take(&cache, 1, 4);
        assert_eq!(lookup, Lookup::Taken);
        assert_eq!(out.slices.concat(), [vec![4; 100], vec![5; 100]].concat());
        assert_eq!(out.next_offset, 6);
    }

    #[test]
    fn what_was_read_without_a_look_at_crcs_is_looked_at_when_one_is_demanded() {
        let demanding = ReadLimit {
            check: ReadCheck::Crcs,
            bound: i64::MAX,
            bytes_max: usize::MAX,
            whole_first_batch: true,
        };
        let batch = |value: &[u8]| {
            let mut builder = BatchBuilder::new();
            builder.push(0, None, Some(value));
            builder.build()
        };
        for damaged in [false, true] {
            let cache = Cache::new(10_000);
            let mut bytes = batch(b"value").to_vec();
            bytes[70] ^= u8::from(damaged);
            let mut cold = run(0, 1, 0);
            cold.batches[0].len = bytes.len() as u32;
            cold.buf = Bytes::from(bytes);
            cold.crcs_checked = false;
            cache.insert_cold(1, cold, false);
            assert_eq!(take(&cache, 1, 0).0, Lookup::Taken, "it is not demanded");
            let mut out = ReadSlices::default();
            let (lookup, _) = cache.take(1, 0, &demanding, &mut out);
            let (wanted, left) = match damaged {
                true => (Lookup::Miss, 0),
                false => (Lookup::Taken, 1),
            };
            assert_eq!((lookup, cache.entry_count(1)), (wanted, left));
            assert_eq!(out.bytes == 0, damaged, "nothing wrong is given");
        }
    }

    #[test]
    fn the_first_reader_of_a_chunk_reads_ahead_and_no_other() {
        let cache = Cache::new(10_000);
        cache.insert_cold(1, run(0, 2, 0), true);
        let limit = ReadLimit {
            check: ReadCheck::Headers,
            bound: 1,
            bytes_max: 100,
            whole_first_batch: false,
        };
        let ahead = || cache.take(1, 0, &limit, &mut ReadSlices::default());
        assert_eq!(ahead(), (Lookup::Stopped, Some(2)));
        assert_eq!(ahead(), (Lookup::Stopped, None));
    }
}
