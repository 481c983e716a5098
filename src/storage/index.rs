//! The offset index and the time index of one segment, in memory, with Kafka's
//! file format.
//!
//! Both are sparse and hold nothing that the `.log` does not: an index that is
//! missing or fails [`SparseIndex::decode`] is rebuilt by scanning the segment, so
//! a file is never trusted for more than it can prove. `decode` accepts whole
//! entries in strictly increasing order only; [`OffsetIndex::check_within`] then
//! holds them against the segment. What a file can not prove is that an entry
//! points at the start of a batch: a reader checks the batch that it finds there.
//!
//! They do no I/O and are not shared between executors.

/// The entries of one index file in order, generic over what one says ([`OffsetIndex`],
/// [`TimeIndex`]). Offsets are held relative to the segment's base offset, as on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SparseIndex<E> {
    base_offset: i64,
    entries: Vec<E>,
}

/// Maps offsets to positions in the segment. An entry is the batch's **last**
/// offset (i32, relative to the base offset) and the position of its start (i32).
pub type OffsetIndex = SparseIndex<OffsetEntry>;

/// Maps timestamps to offsets. An entry is the largest timestamp so far (i64,
/// milliseconds) and the last offset of the batch that brought it (i32, relative).
/// Timestamps increase strictly.
pub type TimeIndex = SparseIndex<TimeEntry>;

/// An entry of an [`OffsetIndex`], as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetEntry {
    relative: u32,
    position: u32,
}

/// An entry of a [`TimeIndex`], as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeEntry {
    timestamp: i64,
    relative: u32,
}

/// What the two kinds of entries differ in.
pub trait Entry: Copy {
    /// Bytes in the file.
    const BYTES: usize;
    /// An entry with its offset made absolute.
    type Absolute;

    /// Its offset, less the segment's base offset.
    fn relative(&self) -> u32;
    /// It, in the segment with this base offset.
    fn absolute(&self, base_offset: i64) -> Self::Absolute;
    /// Whether it may stand behind `earlier`.
    fn may_follow(&self, earlier: &Self) -> bool;
    /// Appends its bytes.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads its bytes; none if a number is negative.
    fn decode(raw: &[u8]) -> Option<Self>;
}

/// Why an index file is not used. The answer is always to rebuild it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The length is no multiple of the entry size.
    #[error("{len} bytes are not whole entries of {entry_bytes} bytes")]
    NotWholeEntries {
        /// The file's length in bytes.
        len: usize,
        /// The size of an entry in bytes.
        entry_bytes: usize,
    },
    /// A negative offset, position or timestamp.
    #[error("entry {entry} holds a negative number")]
    Negative {
        /// Which entry, from 0.
        entry: usize,
    },
    /// An entry is not above the one before it.
    #[error("entry {entry} is not above the one before it")]
    NotIncreasing {
        /// Which entry, from 0.
        entry: usize,
    },
    /// The last entry points past the segment's end.
    #[error("the last entry points past the segment's end")]
    BeyondSegment,
}

impl<E: Entry> SparseIndex<E> {
    /// The size of an entry in the file, in bytes.
    pub const ENTRY_BYTES: usize = E::BYTES;

    /// An empty index of the segment with this base offset.
    pub fn new(base_offset: i64) -> Self {
        Self {
            base_offset,
            entries: Vec::new(),
        }
    }

    /// The greatest entry.
    pub fn last(&self) -> Option<E::Absolute> {
        self.entries.last().map(|e| e.absolute(self.base_offset))
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = E::Absolute> + '_ {
        self.entries.iter().map(|e| e.absolute(self.base_offset))
    }

    /// Drops the entries at or above `offset`.
    pub fn truncate_to(&mut self, offset: i64) {
        let keep = self
            .entries
            .partition_point(|e| self.base_offset + i64::from(e.relative()) < offset);
        self.entries.truncate(keep);
    }

    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.entries.len() * E::BYTES);
        for entry in &self.entries {
            entry.encode(&mut out);
        }
        out
    }

    /// Reads a file's content, and proves that it is whole entries in increasing order
    /// (of timestamps, in a [`TimeIndex`], whose offsets do not decrease).
    pub fn decode(base_offset: i64, bytes: &[u8]) -> Result<Self, IndexError> {
        if !bytes.len().is_multiple_of(E::BYTES) {
            return Err(IndexError::NotWholeEntries {
                len: bytes.len(),
                entry_bytes: E::BYTES,
            });
        }
        let mut entries: Vec<E> = Vec::with_capacity(bytes.len() / E::BYTES);
        for (entry, raw) in bytes.chunks_exact(E::BYTES).enumerate() {
            let next = E::decode(raw).ok_or(IndexError::Negative { entry })?;
            if entries.last().is_some_and(|last| !next.may_follow(last)) {
                return Err(IndexError::NotIncreasing { entry });
            }
            entries.push(next);
        }
        // Offsets are added to the base when they are looked up; no log reaches the last
        // of all.
        let relative_max = entries.last().map_or(0, E::relative);
        match base_offset.checked_add(i64::from(relative_max)) {
            Some(_) => Ok(Self {
                base_offset,
                entries,
            }),
            None => Err(IndexError::BeyondSegment),
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The segment's base offset.
    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// The greatest of the first entries for which `is_before` holds, of which none comes
    /// after one for which it does not.
    fn last_where(&self, is_before: impl FnMut(&E) -> bool) -> Option<E::Absolute> {
        let after = self.entries.partition_point(is_before);
        let entry = &self.entries[after.checked_sub(1)?];
        Some(entry.absolute(self.base_offset))
    }
}

impl OffsetIndex {
    /// Adds an entry: `last_offset` of a batch and the position of its start. The
    /// caller goes forward only; anything else is a broken invariant and panics.
    pub fn append(&mut self, last_offset: i64, position: u32) {
        let entry = OffsetEntry {
            relative: relative(self.base_offset, last_offset),
            position,
        };
        let last = self.entries.last();
        assert!(
            last.is_none_or(|last| entry.may_follow(last)),
            "offset index goes backwards: {last:?} then {entry:?}"
        );
        assert!(
            position <= i32::MAX as u32,
            "position {position} is beyond i32"
        );
        self.entries.push(entry);
    }

    /// The greatest entry whose offset is at or below `target`: (last offset of a
    /// batch, position of its start). `None`: scan from the segment's start.
    pub fn lookup(&self, target: i64) -> Option<(i64, u32)> {
        self.last_where(|e| self.base_offset + i64::from(e.relative) <= target)
    }

    /// Holds the index against its segment of `log_len` bytes that ends (exclusively)
    /// at `end_offset`, where that is known.
    pub fn check_within(&self, log_len: u64, end_offset: Option<i64>) -> Result<(), IndexError> {
        match self.last() {
            Some((offset, position))
                if u64::from(position) >= log_len
                    || end_offset.is_some_and(|end| offset >= end) =>
            {
                Err(IndexError::BeyondSegment)
            }
            _ => Ok(()),
        }
    }

    /// True if one more than `entries` would exceed `bytes_max` (`segment.index.bytes`).
    pub fn is_full(entries: usize, bytes_max: usize) -> bool {
        entries >= bytes_max / Self::ENTRY_BYTES
    }
}

impl TimeIndex {
    /// Adds an entry if `timestamp_max` is above the last entry's: the largest
    /// timestamp of the segment so far, and the last offset of the batch that brought
    /// it (or of any later batch). A negative timestamp (none) adds nothing. An
    /// offset that goes backwards is a broken invariant and panics.
    pub fn maybe_append(&mut self, timestamp_max: i64, offset: i64) {
        let last = self.entries.last();
        if timestamp_max < 0 || last.is_some_and(|l| timestamp_max <= l.timestamp) {
            return;
        }
        let entry = TimeEntry {
            timestamp: timestamp_max,
            relative: relative(self.base_offset, offset),
        };
        assert!(
            last.is_none_or(|last| entry.may_follow(last)),
            "time index goes backwards: {last:?} then {entry:?}"
        );
        self.entries.push(entry);
    }

    /// Where to start the search for the first record whose timestamp is >= `target`:
    /// the greatest entry whose timestamp is **below** it (timestamp, offset). No
    /// record up to and including that offset qualifies. `None`: scan from the
    /// segment's start.
    pub fn lookup(&self, target: i64) -> Option<(i64, i64)> {
        self.last_where(|e| e.timestamp < target)
    }

    /// Holds the index against its segment that ends (exclusively) at `end_offset`.
    pub fn check_within(&self, end_offset: i64) -> Result<(), IndexError> {
        match self.last() {
            Some((_, offset)) if offset >= end_offset => Err(IndexError::BeyondSegment),
            _ => Ok(()),
        }
    }

    /// True if one more than `entries`, beside the one kept for the roll, would exceed
    /// `bytes_max` (`segment.index.bytes`).
    pub fn is_full(entries: usize, bytes_max: usize) -> bool {
        entries + 1 >= bytes_max / Self::ENTRY_BYTES
    }
}

/// Absolute: (last offset of a batch, position of its start).
impl Entry for OffsetEntry {
    const BYTES: usize = 8;
    type Absolute = (i64, u32);

    fn relative(&self) -> u32 {
        self.relative
    }

    fn absolute(&self, base_offset: i64) -> (i64, u32) {
        (base_offset + i64::from(self.relative), self.position)
    }

    fn may_follow(&self, earlier: &Self) -> bool {
        self.relative > earlier.relative && self.position > earlier.position
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.relative.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn decode(raw: &[u8]) -> Option<Self> {
        Some(OffsetEntry {
            relative: non_negative_i32(&raw[0..4])?,
            position: non_negative_i32(&raw[4..8])?,
        })
    }
}

/// Absolute: (largest timestamp so far, offset).
impl Entry for TimeEntry {
    const BYTES: usize = 12;
    type Absolute = (i64, i64);

    fn relative(&self) -> u32 {
        self.relative
    }

    fn absolute(&self, base_offset: i64) -> (i64, i64) {
        (self.timestamp, base_offset + i64::from(self.relative))
    }

    fn may_follow(&self, earlier: &Self) -> bool {
        self.timestamp > earlier.timestamp && self.relative >= earlier.relative
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.relative.to_be_bytes());
    }

    fn decode(raw: &[u8]) -> Option<Self> {
        let timestamp = raw[0..8].iter().fold(0u64, |n, b| n << 8 | u64::from(*b)) as i64;
        let relative = non_negative_i32(&raw[8..12])?;
        (timestamp >= 0).then_some(TimeEntry {
            timestamp,
            relative,
        })
    }
}

/// An offset as an index entry has it. The log rolls before it stops fitting.
fn relative(base_offset: i64, offset: i64) -> u32 {
    let relative = offset - base_offset;
    assert!(
        (0..=i64::from(i32::MAX)).contains(&relative),
        "offset {offset} does not fit a segment with base offset {base_offset}"
    );
    relative as u32
}

fn non_negative_i32(raw: &[u8]) -> Option<u32> {
    let n = u32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]]);
    (n <= i32::MAX as u32).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset_index() -> OffsetIndex {
        let mut index = OffsetIndex::new(1_000);
        index.append(1_009, 4_100);
        index.append(1_019, 8_200);
        index.append(1_020, 12_300);
        index
    }

    #[test]
    fn offset_lookup_gives_the_greatest_entry_at_or_below() {
        let index = offset_index();
        assert_eq!(index.lookup(1_008), None);
        assert_eq!(index.lookup(1_009), Some((1_009, 4_100)));
        assert_eq!(index.lookup(1_018), Some((1_009, 4_100)));
        assert_eq!(index.lookup(9_999), Some((1_020, 12_300)));
        assert_eq!(index.lookup(0), None);
    }

    #[test]
    fn offset_index_has_kafkas_bytes_and_reads_them_back() {
        let index = offset_index();
        let bytes = index.encode();
        assert_eq!(bytes[..8], [0, 0, 0, 9, 0, 0, 0x10, 0x04]);
        assert_eq!(OffsetIndex::decode(1_000, &bytes).unwrap(), index);
        assert_eq!(OffsetIndex::decode(5, &[]).unwrap(), OffsetIndex::new(5));
    }

    #[test]
    fn damaged_offset_indexes_are_refused() {
        let good = offset_index().encode();
        let refused = |bytes: &[u8]| OffsetIndex::decode(1_000, bytes).unwrap_err();

        assert!(matches!(
            refused(&good[..3]),
            IndexError::NotWholeEntries { len: 3, .. }
        ));
        let mut padded = good.clone();
        padded.resize(10 << 20, 0);
        assert_eq!(refused(&padded), IndexError::NotIncreasing { entry: 3 });
        let mut ones = good.clone();
        ones[16..24].fill(0xFF);
        assert_eq!(refused(&ones), IndexError::Negative { entry: 2 });
        let mut same_position = good;
        same_position.copy_within(4..8, 12);
        assert_eq!(
            refused(&same_position),
            IndexError::NotIncreasing { entry: 1 }
        );
    }

    #[test]
    fn an_offset_index_is_held_against_its_segment() {
        let index = offset_index();
        assert_eq!(index.check_within(12_301, Some(1_021)), Ok(()));
        assert_eq!(
            index.check_within(12_300, None),
            Err(IndexError::BeyondSegment)
        );
        assert_eq!(
            index.check_within(99_999, Some(1_020)),
            Err(IndexError::BeyondSegment)
        );
        assert_eq!(OffsetIndex::new(7).check_within(0, Some(7)), Ok(()));
    }

    #[test]
    fn truncation_drops_entries_at_or_above_the_offset() {
        let mut index = offset_index();
        index.truncate_to(1_019);
        assert_eq!(index.last(), Some((1_009, 4_100)));
        index.truncate_to(1_000);
        assert!(index.is_empty());

        let mut times = TimeIndex::new(0);
        times.maybe_append(10, 5);
        times.maybe_append(20, 9);
        times.truncate_to(9);
        assert_eq!(times.last(), Some((10, 5)));
    }

    #[test]
    fn an_index_is_full_at_its_bytes() {
        let entries = offset_index().len();
        assert_eq!(entries, 3);
        assert!(OffsetIndex::is_full(entries, 31) && !OffsetIndex::is_full(entries, 32));
        assert!(TimeIndex::is_full(1, 24), "one entry is kept for the roll");
        assert!(!TimeIndex::is_full(1, 36));
    }

    #[test]
    #[should_panic(expected = "goes backwards")]
    fn an_offset_index_never_goes_backwards() {
        offset_index().append(1_020, 20_000);
    }

    #[test]
    fn time_index_keeps_strictly_increasing_timestamps() {
        let mut times = TimeIndex::new(100);
        times.maybe_append(-1, 100);
        assert!(times.is_empty(), "no timestamp, no entry");
        times.maybe_append(50, 101);
        times.maybe_append(50, 105);
        times.maybe_append(40, 106);
        times.maybe_append(60, 110);
        let entries: Vec<_> = times.iter().collect();
        assert_eq!(entries, [(50, 101), (60, 110)]);
        assert_eq!(times.lookup(50), None, "the record at 101 itself qualifies");
        assert_eq!(times.lookup(51), Some((50, 101)));
        assert_eq!(times.lookup(1_000), Some((60, 110)));
    }

    #[test]
    fn time_index_has_kafkas_bytes_and_refuses_damage() {
        let mut times = TimeIndex::new(100);
        times.maybe_append(50, 101);
        times.maybe_append(60, 110);
        let bytes = times.encode();
        assert_eq!(bytes[..12], [0, 0, 0, 0, 0, 0, 0, 50, 0, 0, 0, 1]);
        assert_eq!(TimeIndex::decode(100, &bytes).unwrap(), times);

        let mut padded = bytes.clone();
        padded.resize(24 + 120, 0);
        assert_eq!(
            TimeIndex::decode(100, &padded).unwrap_err(),
            IndexError::NotIncreasing { entry: 2 }
        );
        let mut ones = bytes.clone();
        ones[12..].fill(0xFF);
        assert_eq!(
            TimeIndex::decode(100, &ones).unwrap_err(),
            IndexError::Negative { entry: 1 }
        );
        assert!(TimeIndex::decode(100, &bytes[..3]).is_err());
        assert_eq!(times.check_within(110), Err(IndexError::BeyondSegment));
        assert_eq!(times.check_within(111), Ok(()));
    }
}
