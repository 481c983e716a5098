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
//! What it is not: a check of the log. A batch that is not valid ends the reading of its
//! segment; what it means for the log is the load's to decide.

use super::index_files::read_indexes;
use super::log_files::{file_name, LogFiles, LOG};
use super::producer_state::{BatchProducer, ProducerStates};
use super::scan::{BatchScanner, ScanStep, ScannedBatch};
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

/// The producers as of `end`, in a log whose batches up to there are whole and durable.
/// Reads nothing but the snapshot at `end` where there is one.
pub(super) async fn producers_at(
    rt: &Rt,
    dir: &Dir,
    files: &LogFiles,
    end: i64,
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
            scanned_bytes += replay_segment(rt, dir, *base, end, &mut replay).await?;
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

/// Takes in the batches of one segment from the replay's offset up to `end`. Returns the
/// bytes that were read.
async fn replay_segment(
    rt: &Rt,
    dir: &Dir,
    base: i64,
    end: i64,
    replay: &mut ProducerReplay,
) -> Result<u64, LoadError> {
    let file = dir.open(&file_name(base, LOG), OpenMode::Read).await?;
    let size = file.size().await?;
    let start = start_position(rt, dir, &file, base, size, replay.next_offset).await?;
    let mut scanner = BatchScanner::new(rt, &file, start, size);
    let mut reached = start;
    while let ScanStep::Batch(batch) = scanner.next().await? {
        if !batch.crc_valid || batch.header.base_offset >= end {
            break;
        }
        replay.add(&batch);
        reached = batch.position + u64::from(batch.header.len);
    }
    Ok(reached - start)
}

/// The position of a batch at or below `offset`, from the index if that proves right.
async fn start_position(
    rt: &Rt,
    dir: &Dir,
    file: &File,
    base: i64,
    size: u64,
    offset: i64,
) -> Result<u64, IoError> {
    if offset <= base {
        return Ok(0);
    }
    let Ok((index, _)) = read_indexes(dir, base, size).await? else {
        return Ok(0);
    };
    let Some((last_offset, position)) = index.lookup(offset - 1) else {
        return Ok(0);
    };
    let position = u64::from(position);
    let step = BatchScanner::new(rt, file, position, size).next().await?;
    match step {
        ScanStep::Batch(batch) if batch.crc_valid && batch.header.last_offset == last_offset => {
            Ok(position)
        }
        _ => Ok(0),
    }
}

/// How much of the log is read where no snapshot is left.
const REPLAY_BYTES_MAX: u64 = 256 << 20;
