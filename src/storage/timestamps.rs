//! Finding offsets by timestamp.
//!
//! A segment whose largest timestamp is too small is passed over; in the first that
//! qualifies, the time index says up to which offset no record does, the offset index
//! where that is, and a walk over batch headers finds the batch. Within the batch the
//! records decide, compressed ones too.
//!
//! What it is not: it is no hot path; it reads from disk, within the budget for cold
//! reads.

use super::batch::BatchHeader;
use super::log::LogShared;
use super::segment::Segment;
use super::walk::SegmentWalk;
use super::{Log, ReadError};
use crate::protocol::batch::{
    BatchError, BatchView, DecompressError, TimestampType, RECORDS_BYTES_MAX,
};
use std::rc::Rc;

/// A record found by its timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    /// Its timestamp, milliseconds.
    pub timestamp: i64,
    /// Its offset.
    pub offset: i64,
    /// The leader epoch of its batch.
    pub leader_epoch: i32,
}

impl Log {
    /// The first record at or above the log start and below `bound` whose timestamp is
    /// at or above `timestamp`. (Kafka's `ListOffsets` by timestamp.)
    pub async fn offset_for_timestamp(
        &self,
        timestamp: i64,
        bound: i64,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let log = &*self.0;
        let _io = log.gate.enter().await.map_err(|_| ReadError::Closed)?;
        let bound = bound.min(self.end_offset());
        loop {
            match log.first_at(timestamp, bound).await {
                // The head of the log went meanwhile.
                Err(ReadError::OutOfRange { .. }) => continue,
                other => return other,
            }
        }
    }

    /// The first record from the log start on and below `bound` with the largest
    /// timestamp. (KIP-734.)
    pub async fn offset_of_max_timestamp(
        &self,
        bound: i64,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let log = &*self.0;
        let _io = log.gate.enter().await.map_err(|_| ReadError::Closed)?;
        let bound = bound.min(self.end_offset());
        loop {
            match log.first_largest(bound).await {
                Err(ReadError::OutOfRange { .. }) => continue,
                other => return other,
            }
        }
    }
}

impl LogShared {
    async fn first_at(
        &self,
        timestamp: i64,
        bound: i64,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let (segments, log_start) = self.segments();
        for segment in segments {
            if segment.base_offset >= bound {
                break;
            }
            if segment.extent().max_timestamp < timestamp {
                continue;
            }
            let mut walk = self
                .walk_after(&segment, |_, times| times.lookup(timestamp))
                .await?;
            while let Some((header, position)) = walk.next().await? {
                if header.base_offset >= bound {
                    return Ok(None);
                }
                if header.records_max_timestamp() < timestamp || header.last_offset < log_start {
                    continue;
                }
                let found =
                    first_record(&mut walk, &header, position, timestamp, log_start).await?;
                if let Some(found) = found {
                    return Ok((found.offset < bound).then_some(found));
                }
            }
        }
        Ok(None)
    }

    async fn first_largest(&self, bound: i64) -> Result<Option<TimestampOffset>, ReadError> {
        let (segments, log_start) = self.segments();
        let mut best: Option<(Rc<Segment>, LargestIn)> = None;
        for segment in segments {
            let best_timestamp = best.as_ref().map_or(-1, |(_, found)| found.timestamp);
            if segment.base_offset >= bound {
                break;
            }
            if segment.extent().max_timestamp <= best_timestamp {
                continue;
            }
            let reaches_bound = segment.next_offset() > bound;
            let found = self
                .max_batch(&segment, best_timestamp, log_start, bound, reaches_bound)
                .await?;
            if let Some(found) = found {
                best = Some((segment, found));
            }
        }
        let Some((segment, found)) = best else {
            return Ok(None);
        };
        let file = self.open_file(&segment).await?;
        let LargestIn {
            header,
            position,
            timestamp,
        } = found;
        let mut walk = SegmentWalk::new(self, &segment, file, position, 0, WALK_READ_BYTES);
        first_record(&mut walk, &header, position, timestamp, log_start).await
    }

    /// The segments that reach above the log start offset, and that offset.
    fn segments(&self) -> (Vec<Rc<Segment>>, i64) {
        let state = self.state.borrow();
        let start = state.log_start_offset;
        let below = state.segments.partition_point(|s| s.next_offset() <= start);
        (state.segments[below..].to_vec(), start)
    }

    /// A walk from the batch after which `skip` (looking at the indexes) says that the
    /// search must go on: it gives an entry of the time index.
    async fn walk_after(
        &self,
        segment: &Rc<Segment>,
        skip: impl Fn(&super::index::OffsetIndex, &super::index::TimeIndex) -> Option<(i64, i64)>,
    ) -> Result<SegmentWalk<'_>, ReadError> {
        let file = self.open_file(segment).await?;
        let start = segment.with_indexes(|index, times| {
            let (_, offset) = skip(index, times)?;
            index.lookup(offset)
        });
        let position = start.flatten().map_or(0, |(_, p)| u64::from(p));
        Ok(SegmentWalk::new(
            self,
            segment,
            file,
            position,
            segment.base_offset,
            WALK_READ_BYTES,
        ))
    }

    /// The first batch below `bound` with the largest timestamp above `above` of a record
    /// that is not below the log start.
    async fn max_batch(
        &self,
        segment: &Rc<Segment>,
        above: i64,
        log_start: i64,
        bound: i64,
        reaches_bound: bool,
    ) -> Result<Option<LargestIn>, ReadError> {
        self.open_file(segment).await?;
        let largest = segment.extent().max_timestamp;
        // Where the whole segment counts, its largest timestamp is known; otherwise the
        // last time index entry below the bound is the least that there is.
        let mut walk = self
            .walk_after(segment, |_, times| {
                if !reaches_bound {
                    return times.lookup(largest);
                }
                let known = times.iter().take_while(|(_, o)| *o < bound).last()?;
                times.lookup(known.0)
            })
            .await?;
        let mut best: Option<LargestIn> = None;
        while let Some((header, position)) = walk.next().await? {
            if header.last_offset >= bound {
                break;
            }
            let least = best.as_ref().map_or(above, |found| found.timestamp);
            if header.records_max_timestamp() <= least || header.last_offset < log_start {
                continue;
            }
            // The record with the batch's largest timestamp may lie below the log start.
            let timestamp = match header.base_offset < log_start {
                true => largest_record(&mut walk, &header, position, log_start).await?,
                false => header.max_timestamp,
            };
            if timestamp > least {
                best = Some(LargestIn {
                    header,
                    position,
                    timestamp,
                });
                if timestamp >= largest {
                    break;
                }
            }
        }
        Ok(best)
    }
}

/// A batch, and the largest timestamp of those of its records that exist.
struct LargestIn {
    header: BatchHeader,
    position: u64,
    timestamp: i64,
}

/// The largest timestamp of the records of a batch that are not below `offset_min`; -1 if
/// there is none.
async fn largest_record(
    walk: &mut SegmentWalk<'_>,
    header: &BatchHeader,
    position: u64,
    offset_min: i64,
) -> Result<i64, ReadError> {
    let mut largest = -1;
    let look = |timestamp: i64, _| {
        largest = largest.max(timestamp);
        false
    };
    visit_records(walk, header, position, offset_min, look).await?;
    Ok(largest)
}

/// The first record of a batch at or above `timestamp`, not below `offset_min`. The batch
/// reaches `timestamp`.
async fn first_record(
    walk: &mut SegmentWalk<'_>,
    header: &BatchHeader,
    position: u64,
    timestamp: i64,
    offset_min: i64,
) -> Result<Option<TimestampOffset>, ReadError> {
    let mut found = None;
    let look = |at, offset| {
        if at >= timestamp {
            found = Some(TimestampOffset {
                timestamp: at,
                offset,
                leader_epoch: header.leader_epoch,
            });
        }
        found.is_some()
    };
    visit_records(walk, header, position, offset_min, look).await?;
    Ok(found)
}

/// Shows timestamp and offset of a batch's records that are not below `offset_min`, in
/// order, until `look` says that it has seen enough. A batch whose records all have one
/// timestamp, or are too much to search, is shown as one record: none may be missed.
async fn visit_records(
    walk: &mut SegmentWalk<'_>,
    header: &BatchHeader,
    position: u64,
    offset_min: i64,
    mut look: impl FnMut(i64, i64) -> bool,
) -> Result<(), ReadError> {
    let bytes = walk.batch_bytes(header, position).await?;
    let corrupt = |e: BatchError| walk.corrupt_at(position, e.to_string());
    let view = BatchView::parse(bytes).map_err(corrupt)?;
    let first = header.base_offset.max(offset_min);
    let attributes = view.header().attributes;
    // Of a batch that was compacted the first offset may be gone.
    let is_whole = view.header().validate_count().is_ok();
    if is_whole && attributes.timestamp_type() == TimestampType::LogAppendTime {
        look(header.max_timestamp, first);
        return Ok(());
    }
    for record in view.scan(RECORDS_BYTES_MAX).map_err(corrupt)? {
        let record = match record {
            Ok(record) => record,
            // Too much to search: the batch's start, so that no record is missed.
            Err(BatchError::Decompress(DecompressError::TooLarge { .. })) => {
                look(header.max_timestamp, first);
                return Ok(());
            }
            Err(error) => return Err(corrupt(error)),
        };
        let offset = header.base_offset + i64::from(record.offset_delta);
        let at = view.header().timestamp(record.timestamp_delta);
        if offset >= offset_min && look(at, offset) {
            break;
        }
    }
    Ok(())
}

const WALK_READ_BYTES: usize = 128 << 10;
