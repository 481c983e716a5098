//! Finding the end of a log after an unclean stop.
//!
//! Everything below one offset is *proven* flushed: it is never cut, and a fault in
//! it is [`LoadError::Damaged`]. From that offset on, batches are checked one by one,
//! and the log ends at the first bytes that are no valid batch in order. Why nothing
//! acknowledged is lost: an acknowledgement follows an fdatasync of every byte up to
//! it, so all of them stand before the first bad byte. Why nothing is invented: what
//! is kept has a right CRC and follows what stands before it, and is made durable
//! before it counts.
//!
//! What proves an offset: a producer snapshot of that name that decodes. It is written
//! only after everything below it was made durable, with the index entries and epochs
//! (at a checkpoint, at a roll once the segments before are sealed, at a clean stop),
//! and it goes, durably, before anything below it is cut. So the newest one counts,
//! whether or not the data directory's recovery point got as far: checkpoints that
//! follow each other faster than that file is written cost no reading. A recovery
//! point beyond it proves nothing (a stale or foreign checkpoint).
//!
//! It may be interrupted anywhere and repeated: snapshots beyond the end go first,
//! then later segments, then the file is cut, each durably.

use super::checkpoint::StoredIndexes;
use super::index_files::{read_indexes, write_indexes};
use super::leader_epochs::{LeaderEpochs, LEADER_EPOCH_FILE};
use super::log_files::{
    damaged, file_name, remove_if_there, LogFiles, INDEX, LOG, TIME_INDEX, TXN_INDEX,
};
use super::producer_replay::ProducerReplay;
use super::producer_state::ProducerStates;
use super::scan::{read_surely, scan_segment, ScanStart, SegmentScan};
use super::segment_end::{BatchesEnd, Proof, SegmentEnd};
use super::{producer_snapshot, LoadError, LoadReport};
use crate::observe::Counters;
use crate::runtime::{Dir, File, OpenMode, Rt, SyncSite};

/// Where recovery begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecoveryStart {
    /// Everything below it is proven flushed.
    pub(super) proven: i64,
    /// The base offset of the segment that holds the last offset below it (the first
    /// segment if there is none).
    pub(super) segment: i64,
    /// A snapshot says so; without one, `proven` is merely where the log begins.
    by_snapshot: bool,
}

/// A scanned segment with its file.
pub(super) struct ScannedSegment {
    pub(super) base_offset: i64,
    pub(super) file: File,
    pub(super) scan: SegmentScan,
    /// The producers as of its end.
    pub(super) producers: ProducerStates,
    /// What its index files hold, where all of that was found again.
    pub(super) stored: StoredIndexes,
    /// A snapshot holds these producers.
    pub(super) has_snapshot: bool,
}

impl ScannedSegment {
    /// A new segment.
    pub(super) fn empty(base_offset: i64, file: File) -> ScannedSegment {
        ScannedSegment {
            base_offset,
            file,
            scan: SegmentScan::empty(base_offset),
            producers: ProducerStates::default(),
            stored: StoredIndexes::default(),
            has_snapshot: false,
        }
    }

    /// Whether the scan found more than was proven and stored already.
    fn is_news(&self, proven: i64) -> bool {
        let scan = &self.scan;
        scan.next_offset > proven || scan.bad.is_some() || scan.prefix_refused
    }
}

/// The recovery of one log.
pub(super) struct Recovery<'a> {
    pub(super) rt: &'a Rt,
    pub(super) dir: &'a Dir,
    pub(super) counters: &'a Counters,
    pub(super) index_interval_bytes: u32,
    /// What the checkpoint says was flushed. Where nothing proves it any more, what lies
    /// below is read again, and counted apart.
    pub(super) recovery_point: i64,
    /// Everything below it was flushed once, though no snapshot says so.
    pub(super) flushed: i64,
    pub(super) files: LogFiles,
    pub(super) report: LoadReport,
    /// The producers, as far as the log was scanned.
    pub(super) producers: ProducerReplay,
    /// The log is, or once was, compacted: offsets may be missing.
    pub(super) gaps: bool,
    /// The first offset that was not compacted, if the log ever was.
    pub(super) cleaned_to: Option<i64>,
}

impl RecoveryStart {
    /// Begins where the newest snapshot that decodes says, with the producers that it
    /// holds, or at the log's first offset. `recovery_point` is the checkpoint's word.
    /// There is at least one segment.
    pub(super) async fn find(
        dir: &Dir,
        files: &LogFiles,
        recovery_point: Option<i64>,
        now_ms: i64,
    ) -> Result<(RecoveryStart, ProducerReplay), LoadError> {
        let first = *files.segments.keys().next().expect("a segment");
        let newest = files.newest_snapshot(dir, i64::MAX).await?;
        let by_snapshot = newest.is_some();
        let (proven, producers) = match newest {
            Some((offset, entries)) => {
                let states = ProducerStates::of_entries(&entries, now_ms);
                (offset, ProducerReplay::new(states, offset, now_ms))
            }
            None => {
                let none = ProducerStates::default();
                (first, ProducerReplay::new(none, first, now_ms))
            }
        };
        let proven = proven.max(first);
        if let Some(point) = recovery_point.filter(|point| *point > proven) {
            tracing::info!(
                "the recovery point {point} of {} has no snapshot; recovering from {proven}",
                dir.path().display()
            );
        }
        // Strictly below: a checkpoint right before a roll proves the bytes of the segment
        // that rolled, but not that it was cut to its length.
        let holder = files.segments.range(..proven).next_back();
        let segment = holder.map_or(first, |(base, _)| *base);
        let start = RecoveryStart {
            proven,
            segment,
            by_snapshot,
        };
        Ok((start, producers))
    }
}

impl Recovery<'_> {
    /// Scans from `start`, cuts what is no part of the log, and makes the rest
    /// durable. The scanned segments in order: at least one, the last is the last of
    /// the log. `epochs` is brought in line with the batches.
    pub(super) async fn run(
        &mut self,
        start: RecoveryStart,
        epochs: &mut LeaderEpochs,
    ) -> Result<Vec<ScannedSegment>, LoadError> {
        self.report.recovered_from = start.proven;
        let mut scanned: Vec<ScannedSegment> = Vec::new();
        let mut base = start.segment;
        loop {
            let epoch_min = scanned
                .last()
                .and_then(|s| s.scan.epochs.last())
                .map_or(-1, |e| e.0);
            let segment = self.scan(base, start, epoch_min).await?;
            let next_base = self.files.base_after(base);
            let verdict = self.judge(&segment, next_base, start)?;
            match &verdict {
                SegmentEnd::GoesOn | SegmentEnd::Damage(_) => {}
                SegmentEnd::Unsealed => self.trim(&segment).await?,
                SegmentEnd::EndOfLog => self.check_flushed(&segment, next_base).await?,
            }
            scanned.push(segment);
            match (verdict, next_base) {
                (SegmentEnd::GoesOn | SegmentEnd::Unsealed, Some(next)) => base = next,
                _ => break,
            }
        }
        let last = scanned.last().expect("one was scanned");
        self.end_log_at(last).await?;
        self.align_epochs(&scanned, epochs);
        self.make_durable(&scanned, start.proven, epochs).await?;
        Ok(scanned)
    }

    async fn scan(
        &mut self,
        base: i64,
        start: RecoveryStart,
        epoch_min: i32,
    ) -> Result<ScannedSegment, LoadError> {
        let file = self
            .dir
            .open(&file_name(base, LOG), OpenMode::ReadWrite)
            .await?;
        let size = file.size().await?;
        let mut known = self.recovery_point > start.proven.max(base);
        let mut stored = StoredIndexes::default();
        let from = if start.proven > base {
            match read_indexes(self.dir, base, size).await? {
                Ok((index, time_index)) => {
                    stored = StoredIndexes::of(&index, &time_index);
                    ScanStart::below(index, time_index, start.proven)
                }
                Err(reason) => {
                    self.rebuilding(base, &reason);
                    known = true;
                    ScanStart::segment_start(base)
                }
            }
        } else {
            ScanStart::segment_start(base)
        };
        let due_bytes = size - from.position().min(size);
        self.counters.recovery_due_bytes.add(due_bytes);
        let interval = self.index_interval_bytes;
        let from = from
            .with_gaps(self.gaps)
            .with_producers(std::mem::take(&mut self.producers));
        let mut scan = scan_segment(self.rt, &file, base, size, from, interval, epoch_min).await?;
        self.producers = scan.producers.take().expect("the scan keeps the producers");
        if scan.prefix_refused || start.proven != scan.next_offset {
            stored = StoredIndexes::default();
        }
        if scan.prefix_refused {
            self.rebuilding(base, "an entry points at no such batch");
        }
        self.counters.recovery_done_bytes.add(due_bytes);
        self.report.segments_opened += 1;
        match known || scan.prefix_refused {
            true => self.report.rebuilt_bytes += scan.scanned_bytes,
            false => self.report.scanned_bytes += scan.scanned_bytes,
        }
        Ok(ScannedSegment {
            base_offset: base,
            file,
            has_snapshot: start.by_snapshot && start.proven == scan.next_offset,
            scan,
            producers: self.producers.states().clone(),
            stored,
        })
    }

    fn rebuilding(&mut self, base: i64, reason: &str) {
        tracing::warn!(
            "rebuilding the indexes of {}: {reason}",
            self.dir.path().join(file_name(base, LOG)).display()
        );
        self.report.indexes_rebuilt += 1;
    }

    /// Decides what the end of a segment's scan means.
    fn judge(
        &self,
        segment: &ScannedSegment,
        next_base: Option<i64>,
        start: RecoveryStart,
    ) -> Result<SegmentEnd, LoadError> {
        let scan = &segment.scan;
        let proof = Proof {
            proven: start.proven,
            by_snapshot: start.by_snapshot,
            // Looked at apart: zeros are no damage here.
            flushed: 0,
            gaps: self.gaps,
            cleaned_to: self.cleaned_to,
        };
        let end = BatchesEnd {
            offset: scan.next_offset,
            len: scan.len,
            bad: scan.bad.as_ref().map(|bad| bad.detail.as_str()),
            next_base,
        };
        match proof.judge(&end) {
            SegmentEnd::Damage(detail) => {
                let name = file_name(segment.base_offset, LOG);
                Err(damaged(self.dir, &name, scan.len, &detail))
            }
            other => Ok(other),
        }
    }

    /// A log that ends below what was flushed has lost records, and what stands beyond its end
    /// may be the rest of them: that is not cut. Zeros are no trace of any.
    async fn check_flushed(
        &self,
        last: &ScannedSegment,
        next_base: Option<i64>,
    ) -> Result<(), LoadError> {
        let (scan, flushed) = (&last.scan, self.flushed);
        if scan.next_offset >= flushed {
            return Ok(());
        }
        if next_base.is_none() && zeros_to_the_end(&last.file, scan.len).await? {
            return Ok(());
        }
        let bad = scan.bad.as_ref();
        let why = bad.map_or("batches are missing", |bad| bad.detail.as_str());
        let name = file_name(last.base_offset, LOG);
        let detail = format!("{why}, although all below offset {flushed} was flushed");
        Err(damaged(self.dir, &name, scan.len, &detail))
    }

    /// Cuts a complete segment to its length; `make_durable` syncs it.
    async fn trim(&mut self, segment: &ScannedSegment) -> Result<(), LoadError> {
        self.count_cut(segment).await?;
        Ok(segment.file.truncate(segment.scan.len).await?)
    }

    async fn count_cut(&mut self, segment: &ScannedSegment) -> Result<(), LoadError> {
        if segment.scan.bad.as_ref().is_some_and(|bad| !bad.zeros) {
            self.report.truncated_bytes += segment.file.size().await? - segment.scan.len;
        }
        Ok(())
    }

    /// Removes everything after the last segment's scanned end, durably.
    async fn end_log_at(&mut self, last: &ScannedSegment) -> Result<(), LoadError> {
        let end = last.scan.next_offset;
        let removed = remove_beyond(self.dir, &mut self.files, last.base_offset, end).await?;
        self.report.truncated_bytes += removed;
        if let Some(bad) = &last.scan.bad {
            let path = last.file.path().display();
            if bad.zeros {
                tracing::debug!("cutting {path} to {} bytes", last.scan.len);
            } else {
                tracing::warn!("cutting {path} to {} bytes: {}", last.scan.len, bad.detail);
            }
            self.count_cut(last).await?;
            last.file.truncate(last.scan.len).await?;
            last.file.sync_data(SyncSite::Truncate).await?;
        }
        Ok(())
    }

    fn align_epochs(&self, scanned: &[ScannedSegment], epochs: &mut LeaderEpochs) {
        let end = scanned.last().map_or(0, |s| s.scan.next_offset);
        let met = || scanned.iter().flat_map(|s| &s.scan.epochs);
        // What the cache holds from the first scanned batch on is found again; but for what was
        // compacted: the batches with which an epoch began may be gone, or all of them.
        let found_again = met().next().filter(|_| !self.gaps);
        epochs.truncate_from_end(found_again.map_or(end, |(_, offset)| *offset));
        for (epoch, offset) in met() {
            let mut known = epochs.entries().iter();
            if !known.any(|entry| entry.epoch == *epoch && entry.start_offset <= *offset) {
                epochs.truncate_from_end(*offset);
                epochs.assign(*epoch, *offset);
            }
        }
        epochs.truncate_from_end(end);
    }

    /// Makes what was scanned above `proven` durable, and the files beside the
    /// complete segments, which are read from disk when they are first needed.
    async fn make_durable(
        &mut self,
        scanned: &[ScannedSegment],
        proven: i64,
        epochs: &LeaderEpochs,
    ) -> Result<(), LoadError> {
        let mut sealed: Option<&ScannedSegment> = None;
        for segment in scanned {
            if let Some(previous) = sealed.replace(segment) {
                self.seal(previous, proven, epochs).await?;
            }
            // Even where nothing is new: a killed process may have cut the file just
            // before, and the cut may not be durable.
            segment.file.sync_data(SyncSite::RecoveryScan).await?;
        }
        // Names that were created before the stop, and those of this recovery.
        Ok(self.dir.sync(SyncSite::RecoveryScan).await?)
    }

    /// Writes the indexes of a complete segment and the epochs, and then the snapshot
    /// that says that it is sealed: a load that finds the snapshot does not read the
    /// segment again. (Its bytes are durable: segments are synced in order.)
    async fn seal(
        &mut self,
        segment: &ScannedSegment,
        proven: i64,
        epochs: &LeaderEpochs,
    ) -> Result<(), LoadError> {
        if !segment.is_news(proven) {
            return Ok(());
        }
        let base = segment.base_offset;
        let scan = &segment.scan;
        write_indexes(self.dir, base, &scan.index, &scan.complete_time_index()).await?;
        let next = segment.scan.next_offset;
        if !self.files.proves_flushed(self.dir, next).await? {
            self.dir
                .replace_small(
                    LEADER_EPOCH_FILE,
                    epochs.encode(),
                    SyncSite::EpochCheckpoint,
                )
                .await?;
            self.dir.sync(SyncSite::PartitionDir).await?;
            let name = producer_snapshot::file_name(next);
            let content = producer_snapshot::encode(&segment.producers.entries());
            self.dir
                .replace_small(&name, content, SyncSite::ProducerSnapshot)
                .await?;
            self.files.snapshots.insert(next);
        }
        Ok(())
    }
}

/// Whether nothing but zeros stands in the file from `position` on.
async fn zeros_to_the_end(file: &File, mut position: u64) -> Result<bool, LoadError> {
    let size = file.size().await?;
    while position < size {
        let len = (size - position).min(1 << 20) as usize;
        let bytes = read_surely(file, position, len).await?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        position += len as u64;
    }
    Ok(true)
}

/// Removes snapshots beyond `end` and the segments after `last_base`, in an order in
/// which a crash leaves nothing that could be taken for a part of the log. Returns the
/// bytes of removed segments.
pub(super) async fn remove_beyond(
    dir: &Dir,
    files: &mut LogFiles,
    last_base: i64,
    end: i64,
) -> Result<u64, LoadError> {
    let snapshots = files.snapshots.split_off(&(end + 1));
    if !snapshots.is_empty() {
        for offset in &snapshots {
            remove_if_there(dir, &producer_snapshot::file_name(*offset)).await?;
        }
        // First, and durably: without it no recovery point beyond the end counts.
        dir.sync(SyncSite::TruncateRemove).await?;
    }
    let later = files.segments.split_off(&(last_base + 1));
    for base in later.keys().rev() {
        for extension in [INDEX, TIME_INDEX, TXN_INDEX, LOG] {
            remove_if_there(dir, &file_name(*base, extension)).await?;
        }
        // One after the other: where offsets may have gaps, a later one that stays behind one
        // that is gone would be a part of the log.
        dir.sync(SyncSite::TruncateRemove).await?;
    }
    Ok(later.values().map(|f| f.log_bytes).sum())
}
