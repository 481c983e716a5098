//! Re-reading sealed segments, to find damage before somebody needs what is damaged.
//!
//! One segment at a time is read with a buffer of its own (no cached buffer is pushed out,
//! and no budget of a reader's is taken): sizes, CRCs, the order of offsets and leader
//! epochs, and both index files against the batches. An index that is wrong is
//! written anew from the batches. A batch that is wrong is read a second time, and counts
//! only if it is wrong again: what went wrong on the way from the disk is no damage.
//!
//! A segment may leave the log meanwhile: the gate is entered anew for each piece, and
//! whoever is inside sees first whether the segment is still there.
//!
//! What it is not: it does not decide what becomes of a damaged log, nor when to look.

use super::gate::IoGuard;
use super::index_files::write_indexes;
use super::inspect::{IndexCheck, InspectError};
use super::log::LogShared;
use super::log_files::{SegmentFiles, INDEX, TIME_INDEX};
use super::scan::{scan_segment, BatchScanner, ScanStart, ScanStep, ScannedBatch};
use super::segment::{Segment, SegmentPhase};
use super::walk::corrupt;
use super::{Log, ReadError, Throttle};
use crate::runtime::{File, IoError, IoErrorKind, OpenMode, SyncSite};
use std::rc::Rc;
use std::time::Duration;

/// What [`Log::scrub_next`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scrubbed {
    /// Where to go on: the base offset that the next segment has at least.
    pub next: i64,
    /// Whether the segment was read to its end; false if it left the log meanwhile.
    pub whole: bool,
    /// Bytes read.
    pub bytes: u64,
    /// Batches that were wrong once and right when they were read again.
    pub reread: u64,
    /// The index files were wrong and have been rebuilt: what was wrong, a sentence.
    pub rebuilt: Option<String>,
}

impl Log {
    /// Re-reads the first sealed segment whose base offset is at or above `from`; `None` if
    /// there is none. `throttle` is told of every piece that was read. May be dropped.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] or [`ReadError::Device`] if a second read found the same: the
    /// segment is damaged.
    pub async fn scrub_next(
        &self,
        from: i64,
        throttle: &Throttle,
    ) -> Result<Option<Scrubbed>, ReadError> {
        let Some(segment) = self.0.first_sealed(from) else {
            return Ok(None);
        };
        let mut done = Scrubbed {
            next: segment.base_offset + 1,
            ..Scrubbed::default()
        };
        let Some(guard) = self.0.enter_for(&segment).await? else {
            return Ok(Some(done));
        };
        let name = segment.file_name("log");
        let file = match self.0.dir.open(&name, OpenMode::Read).await {
            Err(error) if self.0.is_expired(&segment, &error) => return Ok(Some(done)),
            other => other?,
        };
        let mut scrub = Scrub {
            log: &self.0,
            end: segment.base_offset,
            segment,
            file,
            epoch: -1,
            guard: Some(guard),
        };
        match scrub.run(throttle, &mut done).await {
            // Another file may have taken its name meanwhile: nothing is said of that one.
            Err(_) if !self.0.is_usable(&scrub.segment) => Ok(Some(done)),
            ended => ended.map(|()| Some(done)),
        }
    }
}

impl Log {
    /// For how long, at the wall clock's `now_ms`, the sealed segment that waits longest has not
    /// been re-read: since then, or since it was created or loaded by this process. Zero where
    /// there is no sealed segment.
    pub fn scrub_age(&self, now_ms: i64) -> Duration {
        let state = self.0.state.borrow();
        let sealed = state.segments.iter();
        let sealed = sealed.filter(|s| s.phase() == SegmentPhase::Sealed);
        let oldest = sealed.map(|s| s.scrubbed_ms()).min();
        let ms = oldest.map_or(0, |since| now_ms.saturating_sub(since).max(0));
        Duration::from_millis(ms as u64)
    }
}

impl LogShared {
    fn first_sealed(&self, from: i64) -> Option<Rc<Segment>> {
        let state = self.state.borrow();
        let at = state.segments.partition_point(|s| s.base_offset < from);
        let segment = state.segments.get(at)?;
        (segment.phase() == SegmentPhase::Sealed).then(|| segment.clone())
    }

    /// Whether a file is missing because its segment goes with the head of the log.
    fn is_expired(&self, segment: &Segment, error: &IoError) -> bool {
        let below = segment.next_offset() <= self.state.borrow().log_start_offset;
        error.kind == IoErrorKind::NotFound && below
    }

    fn is_usable(&self, segment: &Rc<Segment>) -> bool {
        let here = {
            let state = self.state.borrow();
            state.segments.iter().any(|s| Rc::ptr_eq(s, segment))
        };
        here && segment.phase() == SegmentPhase::Sealed && self.fence().is_none()
    }

    /// Enters the gate; `None` if the segment is no part of the log any more, or nothing is
    /// written to the log's directory any more.
    async fn enter_for(&self, segment: &Rc<Segment>) -> Result<Option<IoGuard>, ReadError> {
        let guard = self.gate.enter().await.map_err(|_| ReadError::Closed)?;
        Ok(self.is_usable(segment).then_some(guard))
    }
}

/// One segment on its way.
struct Scrub<'a> {
    log: &'a LogShared,
    segment: Rc<Segment>,
    file: File,
    /// The offset after the last batch.
    end: i64,
    epoch: i32,
    guard: Option<IoGuard>,
}

impl Scrub<'_> {
    async fn run(&mut self, throttle: &Throttle, done: &mut Scrubbed) -> Result<(), ReadError> {
        let rt = self.log.storage.rt();
        let file = self.file.clone();
        let extent = self.segment.extent();
        let size = file.size().await?;
        if size != extent.len {
            let detail = format!("the file has {size} bytes, expected {}", extent.len);
            return Err(corrupt(&file, size.min(extent.len), detail));
        }
        let mut indexes = match self.read_indexes().await {
            Err(error) if self.log.is_expired(&self.segment, &error) => return Ok(()),
            other => other?,
        };
        let mut scanner = BatchScanner::new(rt, &file, 0, size);
        let (mut position, mut unpaid) = (0, 0);
        while position < size {
            let batch = match self.next(&mut scanner).await {
                Ok(batch) => batch,
                Err(_) => {
                    // Only what a second read confirms is damage.
                    scanner = BatchScanner::new(rt, &file, position, size);
                    let batch = self.next(&mut scanner).await?;
                    done.reread += 1;
                    batch
                }
            };
            indexes.on_batch(&batch);
            self.end = batch.header.last_offset + 1;
            self.epoch = batch.header.leader_epoch;
            let len = u64::from(batch.header.len);
            position += len;
            unpaid += len;
            done.bytes += len;
            if unpaid >= PIECE_BYTES {
                self.guard = None;
                throttle.moved(std::mem::take(&mut unpaid)).await;
                self.guard = self.log.enter_for(&self.segment).await?;
                if self.guard.is_none() {
                    return Ok(());
                }
            }
        }
        let fits = match self.gaps_allowed() {
            true => self.end <= extent.next_offset,
            false => self.end == extent.next_offset,
        };
        if !fits {
            let (end, expected) = (self.end, extent.next_offset);
            let detail = format!("the segment ends at offset {end}, expected {expected}");
            return Err(corrupt(&file, size, detail));
        }
        indexes.finish();
        if let Some(problem) = indexes.problems.first() {
            self.rebuild().await?;
            done.rebuilt = Some(format!("{}: {}", problem.file.display(), problem.detail));
        }
        done.whole = true;
        self.segment.set_scrubbed(rt.wall_clock_ms());
        self.guard = None;
        throttle.moved(unpaid).await;
        Ok(())
    }

    /// The next batch, if it is one that may follow.
    async fn next(&self, scanner: &mut BatchScanner<'_>) -> Result<ScannedBatch, ReadError> {
        let (position, detail) = match scanner.next().await? {
            ScanStep::Batch(batch) => match self.refusal(&batch) {
                None => return Ok(batch),
                Some(detail) => (batch.position, detail),
            },
            ScanStep::Bad(bad) => (bad.position, bad.detail),
            ScanStep::End => (self.segment.len(), "the file became shorter".to_owned()),
        };
        Err(corrupt(&self.file, position, detail))
    }

    fn refusal(&self, batch: &ScannedBatch) -> Option<String> {
        let header = &batch.header;
        let gap = header.base_offset > self.end && !self.gaps_allowed();
        if !batch.crc_valid {
            Some("the batch's CRC does not match its content".into())
        } else if header.base_offset < self.end || gap {
            let (base, expected) = (header.base_offset, self.end);
            Some(format!(
                "a batch starts at offset {base}, expected {expected}"
            ))
        } else if header.leader_epoch < self.epoch {
            let (epoch, before) = (header.leader_epoch, self.epoch);
            Some(format!(
                "a batch of leader epoch {epoch} follows one of {before}"
            ))
        } else {
            None
        }
    }

    /// In a log that is or was compacted.
    fn gaps_allowed(&self) -> bool {
        self.log.may_have_gaps.get()
    }

    async fn read_indexes(&self) -> Result<IndexCheck, IoError> {
        let dir = &self.log.dir;
        let mut files = SegmentFiles::default();
        for (extension, bytes) in [
            (INDEX, &mut files.index_bytes),
            (TIME_INDEX, &mut files.time_index_bytes),
        ] {
            let name = self.segment.file_name(extension);
            *bytes = match dir.open(&name, OpenMode::Read).await {
                Ok(file) => Some(file.size().await?),
                Err(error) if error.kind == IoErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        let read = IndexCheck::read(dir, self.segment.base_offset, true, &files).await;
        read.map_err(|error| match error {
            InspectError::Io(error) => error,
            InspectError::Name { path, .. } => {
                unreachable!("{} is an index", path.display())
            }
        })
    }

    /// Writes the index files anew from the batches, which were found good.
    async fn rebuild(&self) -> Result<(), ReadError> {
        let (log, base) = (self.log, self.segment.base_offset);
        let _side_files = log.side_files.acquire(1).await;
        // It may have left the log while this waited for its turn.
        if !log.is_usable(&self.segment) {
            return Ok(());
        }
        let interval = log.config.get().index_interval_bytes;
        let (rt, len) = (log.storage.rt(), self.segment.len());
        let start = ScanStart::segment_start(base).with_gaps(self.gaps_allowed());
        let scan = scan_segment(rt, &self.file, base, len, start, interval, -1).await?;
        if let Some(bad) = &scan.bad {
            return Err(corrupt(&self.file, bad.position, bad.detail.clone()));
        }
        write_indexes(&log.dir, base, &scan.index, &scan.complete_time_index()).await?;
        log.dir.sync(SyncSite::PartitionDir).await?;
        match self.segment.file() {
            Some(_) => log.take_scan(&self.segment, &self.file, scan),
            None => Ok(()),
        }
    }
}

/// What is read between two pauses, about.
const PIECE_BYTES: u64 = 512 << 10;
