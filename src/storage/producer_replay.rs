//! Finding the producers of a log again: a snapshot, and the batches behind it.
//!
//! [`ProducerReplay`] takes in batches that somebody else scans (recovery does, which
//! checks them all the same). [`producers_at`] reads them itself, where nothing else has
//! to be scanned: after a clean stop, when the newest snapshot is damaged or was lost,
//! and after a truncation, which removes the snapshots beyond the new end (the one at the
//! base offset of the last segment is left).
//!
//! Where no snapshot is left to start from, the whole log would have to be read. Instead
//! the last segments are, up to [`REPLAY_BYTES_MAX`] (at least one): the producers that
//! are at work have their last batches there. One that wrote nothing in them is forgotten,
//! as one that has expired is.
//!
//! What [`producers_at`] reads was flushed: a batch there that is not valid is damage, as
//! for any reader, and the log is refused. To go on without the batches behind it would take
//! a retry of them for a new batch.

use super::index_files::read_indexes;
use super::log_files::{damaged, file_name, LogFiles, LOG};
use super::producer_state::{BatchProducer, ProducerStates};
use super::scan::{BadBatch, BatchOrder, BatchScanner, ScanStep, ScannedBatch};
use super::segment_ends::misfit;
use super::LoadError;
use crate::runtime::{Dir, File, IoError, OpenMode, Rt};

/// Producers that follow the batches of a log in order.
#[derive(Debug, Default)]
pub(super) struct ProducerReplay {
    states: ProducerStates,
    /// Batches below it are in the states.
    next_offset: i64,
    now_ms: i64,
}

/// What [`producers_at`] found.
pub(super) struct FoundProducers {
    pub(super) states: ProducerStates,
    /// Bytes that were read for it.
    pub(super) scanned_bytes: u64,
    /// Segment files that were opened for it.
    pub(super) segments_opened: usize,
    /// They are those of a snapshot at that very offset.
    pub(super) by_snapshot: bool,
}

impl ProducerReplay {
    /// Goes on from `states`, which are as of `offset`. Producers that are met count as
    /// active at `now_ms`: when they were, the batches do not say.
    pub(super) fn new(states: ProducerStates, offset: i64, now_ms: i64) -> ProducerReplay {
        ProducerReplay {
            states,
            next_offset: offset,
            now_ms,
        }
    }

    /// Takes in the next batch, unless it is in the states already.
    pub(super) fn add(&mut self, batch: &ScannedBatch) {
        let header = &batch.header;
        if header.base_offset < self.next_offset {
            return;
        }
        self.next_offset = header.last_offset + 1;
        if let Some(producer) = BatchProducer::of(&batch.fields) {
            self.states.append(
                &producer,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                self.now_ms,
            );
        }
    }

    /// The producers so far.
    pub(super) fn states(&self) -> &ProducerStates {
        &self.states
    }
}

/// The producers as of `end`, in a log whose batches up to there were flushed; what of them is
/// read and is not whole is [`LoadError::Damaged`]. Reads nothing but the snapshot at `end`
/// where there is one. `gaps`: the log may be compacted.
pub(super) async fn producers_at(
    rt: &Rt,
    dir: &Dir,
    files: &LogFiles,
    end: i64,
    gaps: bool,
) -> Result<FoundProducers, LoadError> {
    let now_ms = rt.wall_clock_ms();
    let newest = files.newest_snapshot(dir, end).await?;
    let by_snapshot = newest.as_ref().is_some_and(|(offset, _)| *offset == end);
    let (from, states) = match newest {
        Some((offset, entries)) => (offset, ProducerStates::of_entries(&entries, now_ms)),
        None => (fallback_start(files, end), ProducerStates::default()),
    };
    let mut replay = ProducerReplay::new(states, from, now_ms);
    let (mut scanned_bytes, mut segments_opened) = (0, 0);
    if from < end {
        let first = files.segments.range(..=from).next_back();
        let first = first.map_or(i64::MIN, |(base, _)| *base);
        for (base, _) in files.segments.range(first..end) {
            let next = files.base_after(*base);
            let part = Part {
                base: *base,
                end: next.map_or(end, |next| next.min(end)),
                gaps,
                is_sealed: next.is_some_and(|next| files.snapshots.contains(&next)),
            };
            scanned_bytes += part.replay(rt, dir, &mut replay).await?;
            segments_opened += 1;
        }
        tracing::info!(
            "{}: the producers at offset {end} were read from the batches behind offset {from} ({scanned_bytes} bytes)",
            dir.path().display()
        );
    }
    Ok(FoundProducers {
        states: replay.states,
        scanned_bytes,
        segments_opened,
        by_snapshot,
    })
}

/// Where the replay begins if there is no snapshot.
fn fallback_start(files: &LogFiles, end: i64) -> i64 {
    let mut bytes = 0;
    let mut start = end;
    for (base, segment) in files.segments.range(..end).rev() {
        bytes += segment.log_bytes;
        if start < end && bytes > REPLAY_BYTES_MAX {
            break;
        }
        start = *base;
    }
    start
}

/// What one segment holds below the end of the replay.
struct Part {
    base: i64,
    /// Where its batches must end.
    end: i64,
    gaps: bool,
    /// A snapshot says that nothing stands behind its last batch.
    is_sealed: bool,
}

impl Part {
    /// Takes in its batches from the replay's offset on. Returns the bytes that were read.
    async fn replay(
        &self,
        rt: &Rt,
        dir: &Dir,
        replay: &mut ProducerReplay,
    ) -> Result<u64, LoadError> {
        let name = file_name(self.base, LOG);
        let file = dir.open(&name, OpenMode::Read).await?;
        let size = file.size().await?;
        let (start, from) = self.start(rt, dir, &file, size, replay.next_offset).await?;
        let mut scanner = BatchScanner::new(rt, &file, start, size);
        let mut order = BatchOrder::new(self.base, from, -1, self.gaps);
        let mut reached = start;
        let bad = loop {
            let end = order.end();
            match scanner.next_in_order(&mut order).await? {
                ScanStep::Batch(batch) if batch.header.base_offset < self.end => {
                    replay.add(&batch);
                    reached = batch.position + u64::from(batch.header.len);
                }
                ScanStep::Batch(_) => break self.misfit(end, None),
                ScanStep::Bad(bad) => break self.misfit(end, Some(bad)),
                ScanStep::End => break self.misfit(end, None),
            }
        };
        match bad {
            None => Ok(reached - start),
            Some(detail) => Err(damaged(dir, &name, reached, &detail)),
        }
    }

    /// What is wrong if the batches end at `end`, and what stands there is no batch.
    fn misfit(&self, end: i64, bad: Option<BadBatch>) -> Option<String> {
        let is_roll_cut_short =
            |bad: &BadBatch| !self.is_sealed && (end == self.end || (self.gaps && bad.zeros));
        match bad {
            Some(bad) if is_roll_cut_short(&bad) => None,
            Some(bad) if end < self.end => Some(bad.detail),
            _ => misfit(end.min(self.end), self.end, self.gaps),
        }
    }

    /// The position and the base offset of a batch at or below `offset`, from the index if that
    /// proves right.
    async fn start(
        &self,
        rt: &Rt,
        dir: &Dir,
        file: &File,
        size: u64,
        offset: i64,
    ) -> Result<(u64, i64), IoError> {
        let whole = (0, self.base);
        if offset <= self.base {
            return Ok(whole);
        }
        let Ok((index, _)) = read_indexes(dir, self.base, size).await? else {
            return Ok(whole);
        };
        let Some((last_offset, position)) = index.lookup(offset - 1) else {
            return Ok(whole);
        };
        let position = u64::from(position);
        let step = BatchScanner::new(rt, file, position, size).next().await?;
        match step {
            ScanStep::Batch(batch)
                if batch.crc_valid && batch.header.last_offset == last_offset =>
            {
                Ok((position, batch.header.base_offset))
            }
            _ => Ok(whole),
        }
    }
}

/// How much of the log is read where no snapshot is left.
const REPLAY_BYTES_MAX: u64 = 256 << 20;
