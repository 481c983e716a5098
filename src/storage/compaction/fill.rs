//! The first pass: the keys of the dirty part, and where transactions ended.

use super::need::Range;
use super::offset_map::OffsetMap;
use super::pace::{Buffer, Halt, Pace};
use super::source::Source;
use super::transactions::{marker_commits, TooMany, Transactions};
use super::CompactionError;
use crate::protocol::batch::{BatchView, RecordIter, RECORDS_BYTES_MAX};
use std::collections::HashSet;

/// The keys of the dirty part.
pub(super) struct Filled {
    pub(super) map: OffsetMap,
    /// The map says it of all records below this offset.
    pub(super) end: i64,
    /// Of a log that has transactions.
    pub(super) transactions: Option<Transactions>,
}

/// Reads the dirty part into a map of at most `map_bytes`. Where that is full, the part ends
/// before the batch that did not fit; inside it, if it is the first one.
pub(super) async fn fill(
    pace: &Pace<'_>,
    range: &Range,
    bound: i64,
    map_bytes: usize,
) -> Result<Filled, Halt> {
    let mut transactions = None;
    loop {
        let rt = pace.log.storage.rt();
        let seeds = [rt.random_u64(), rt.random_u64()];
        let keys_max = (range.end - range.first_dirty) as u64;
        let mut map = OffsetMap::new(map_bytes, keys_max, seeds);
        let ended = fill_map(pace, range, &mut map, transactions.as_ref()).await?;
        match ended {
            Ended::At(end) => {
                return Ok(Filled {
                    map,
                    end,
                    transactions,
                })
            }
            Ended::MetTransaction => transactions = Some(read_transactions(pace, bound).await?),
        }
    }
}

enum Ended {
    At(i64),
    /// Whether its records count is not known yet.
    MetTransaction,
}

async fn fill_map(
    pace: &Pace<'_>,
    range: &Range,
    map: &mut OffsetMap,
    transactions: Option<&Transactions>,
) -> Result<Ended, Halt> {
    let first_dirty = range.first_dirty;
    for segment in &range.segments {
        if segment.next_offset() <= first_dirty {
            continue;
        }
        let mut source = Source::open(pace, segment).await?;
        while let Some(view) = source.next().await? {
            let header = *view.header();
            let attributes = header.attributes;
            if header.last_offset() < first_dirty || attributes.is_control() {
                continue;
            }
            if attributes.is_transactional() {
                let Some(known) = transactions else {
                    return Ok(Ended::MetTransaction);
                };
                if known.is_aborted(header.producer_id, header.base_offset) {
                    continue;
                }
            }
            let put = put_keys(pace, &source, &view, first_dirty, map).await?;
            if let Some(refused) = put {
                let batch_start = header.base_offset.max(first_dirty);
                let end = match batch_start > first_dirty {
                    true => batch_start,
                    false => refused,
                };
                if end > first_dirty {
                    return Ok(Ended::At(end));
                }
                return Err(Halt::Failed(CompactionError::Unfit(format!(
                    "the map of keys has {} bytes, too few for one record; raise log.cleaner.dedupe.buffer.size",
                    map.bytes()
                ))));
            }
        }
    }
    Ok(Ended::At(range.end))
}

/// Puts the keys of a batch into the map; the offset of the first record that finds no room.
async fn put_keys(
    pace: &Pace<'_>,
    source: &Source<'_>,
    view: &BatchView,
    first_dirty: i64,
    map: &mut OffsetMap,
) -> Result<Option<i64>, Halt> {
    let damage = |e: &dyn std::fmt::Display| source.damage_in(view, e.to_string());
    let records = view
        .decompressed(RECORDS_BYTES_MAX)
        .map_err(|e| damage(&e))?;
    pace.holds(Buffer::Batch, records.len());
    let header = view.header();
    for (n, record) in RecordIter::new(&records, header.record_count).enumerate() {
        let record = record.map_err(|e| damage(&e))?;
        let offset = header.base_offset + i64::from(record.offset_delta);
        if let Some(key) = record.key.filter(|_| offset >= first_dirty) {
            if map.put(key, offset).is_err() {
                return Ok(Some(offset));
            }
        }
        if n % RECORDS_AT_ONCE == RECORDS_AT_ONCE - 1 {
            pace.log.storage.rt().yield_if_needed().await;
        }
    }
    pace.holds(Buffer::Batch, 0);
    Ok(None)
}

/// Goes over the whole log below `bound` for the ends of its transactions.
async fn read_transactions(pace: &Pace<'_>, bound: i64) -> Result<Transactions, Halt> {
    let segments = pace.log.state.borrow().segments.clone();
    let mut transactions = Transactions::default();
    for segment in segments.iter().filter(|s| s.base_offset < bound) {
        let mut source = Source::open(pace, segment).await?;
        while let Some(view) = source.next().await? {
            let header = view.header();
            if header.base_offset >= bound {
                break;
            }
            if !header.attributes.is_transactional() {
                continue;
            }
            let producer = header.producer_id;
            let noted = match marker_of(&view) {
                Some(commits) => transactions.marker(producer, header.base_offset, commits),
                None if header.attributes.is_control() => Ok(()),
                None => transactions.data(producer, header.base_offset),
            };
            noted.map_err(|TooMany| {
                CompactionError::Unfit("it has more aborted transactions than fit in memory".into())
            })?;
        }
    }
    Ok(transactions)
}

/// Whether a batch is a transaction's marker, and if so whether it commits.
fn marker_of(view: &BatchView) -> Option<bool> {
    if !view.header().attributes.is_control() {
        return None;
    }
    let record = view.records()?.next()?.ok()?;
    marker_commits(record.key?)
}

/// Which markers end a transaction of which this round has met no data.
#[derive(Default)]
pub(super) struct OpenTransactions(HashSet<i64>);

impl OpenTransactions {
    /// Takes in the next batch of the log; true for a marker that ends nothing.
    pub(super) fn is_empty_marker(&mut self, view: &BatchView) -> bool {
        let header = view.header();
        if !header.attributes.is_transactional() {
            return false;
        }
        match marker_of(view) {
            Some(_) => !self.0.remove(&header.producer_id),
            None => {
                if !header.attributes.is_control() {
                    self.0.insert(header.producer_id);
                }
                false
            }
        }
    }
}

/// Records that are gone over without a look at the clock.
pub(super) const RECORDS_AT_ONCE: usize = 256;
