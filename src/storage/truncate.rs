//! Cutting a log's end: a follower drops what its leader does not have.
//!
//! It takes the log for itself (no I/O of it is in flight), and makes everything
//! durable first, so that nothing but the cut is left to chance. Where the log was compacted
//! beyond the new end, the line that says so is lowered, durably: below it a load after a crash takes
//! what is missing for compacted, which must not be said of what is appended later. Then, each step
//! durable before the next: snapshots beyond the new end go (from then on no recovery
//! point beyond it counts, whatever the data directory's checkpoint says), later
//! segments go, the file is cut, indexes and epochs
//! follow, and the producers are found again from the newest snapshot that is left. A crash in between leaves
//! a log that ends somewhere between the new and the old end without a gap, which the
//! owner then truncates again.
//!
//! What it is not: it does not decide where to cut, and the data directory's
//! checkpoints are the owner's to write.

use super::assemble::LoadedSegment;
use super::index_files::write_indexes;
use super::leader_epochs::LEADER_EPOCH_FILE;
use super::log::LogShared;
use super::log_files::{file_name, LogFiles, LOG};
use super::producer_replay::producers_at;
use super::recover::remove_beyond;
use super::scan::{scan_segment, ScanStart};
use super::segment::Segment;
use super::walk::SegmentWalk;
use super::{Log, TruncateError};
use crate::runtime::{OpenMode, SyncSite};
use std::rc::Rc;

impl Log {
    /// Cuts the log so that it ends at `offset`, or at the start of the batch that
    /// holds `offset`; never below the log start offset. Returns the new LEO. Bytes
    /// already handed to readers stay readable. After an error the log is fenced,
    /// flushes included, and whatever the cut may have reached is no part of it.
    ///
    /// Where the checkpoint of high watermarks says more than `offset`, the owner lowers it
    /// first, durably: a load takes it for what was flushed ([`LoadMode::flushed`]).
    ///
    /// [`LoadMode::flushed`]: super::LoadMode::flushed
    pub async fn truncate_to(&self, offset: i64) -> Result<i64, TruncateError> {
        let log = &*self.0;
        let _alone = log
            .gate
            .exclusive()
            .await
            .map_err(|_| TruncateError::Closed)?;
        if let Some(reason) = log.fence() {
            return Err(TruncateError::Fenced(reason));
        }
        if offset >= self.end_offset() {
            return Ok(self.end_offset());
        }
        let result = log.cut(offset.max(self.log_start_offset())).await;
        if let Err(error) = &result {
            log.fence_off(error.into());
        }
        result
    }
}

impl LogShared {
    /// Why nothing is written any more, if so.
    pub(super) fn fence(&self) -> Option<String> {
        let state = self.state.borrow();
        let flush_fence = state.flush_fence.as_ref().map(|e| e.to_string());
        state.append_fence.clone().or(flush_fence)
    }

    async fn cut(&self, offset: i64) -> Result<i64, TruncateError> {
        self.make_durable().await?;
        let segment = self.segment_for(offset);
        let base = segment.base_offset;
        let (end, kept_end, len) = self.batch_start(&segment, offset).await?;

        self.lower_cleaned(kept_end).await?;
        let mut files = LogFiles::list(&self.dir).await?;
        // From the first file that goes, nothing behind the new end may count, even if
        // a later step fails.
        self.lower_ends(&segment, end, len);
        remove_beyond(&self.dir, &mut files, base, end).await?;
        self.storage.0.cache.clip(self.id, end);
        self.read_ahead.forget();

        let name = file_name(base, LOG);
        let file = self.dir.open(&name, OpenMode::ReadWrite).await?;
        file.truncate(len).await?;
        file.sync_data(SyncSite::Truncate).await?;

        let (index, time_index) = segment
            .with_indexes(|index, time_index| (index.clone(), time_index.clone()))
            .expect("batch_start opened the segment");
        let start = ScanStart::below(index, time_index, end).with_gaps(self.may_have_gaps.get());
        let interval = self.config.get().index_interval_bytes;
        let rt = self.storage.rt();
        let scan = scan_segment(rt, &file, base, len, start, interval, -1).await?;
        if let Some(bad) = scan.bad {
            return Err(TruncateError::Corrupt {
                file: file.path().display().to_string(),
                position: bad.position,
                detail: bad.detail,
            });
        }
        write_indexes(&self.dir, base, &scan.index, &scan.time_index).await?;
        let epochs = {
            let mut state = self.state.borrow_mut();
            state.epochs.truncate_from_end(end);
            state.epochs.encode()
        };
        self.dir
            .replace_small(LEADER_EPOCH_FILE, epochs, SyncSite::EpochCheckpoint)
            .await?;
        self.dir.sync(SyncSite::PartitionDir).await?;

        let gaps = self.may_have_gaps.get();
        let producers = producers_at(rt, &self.dir, &files, end, gaps).await?;

        let tail = scan.last_block(&file).await?;
        let active = LoadedSegment {
            base_offset: base,
            next_offset: end,
            len,
            allocated: len,
            first_batch_timestamp: scan.first_batch_timestamp,
            max_timestamp: scan.max_timestamp,
            open: Some((file, scan.index, scan.time_index)),
        };
        let jitter_ms = self.config.get().draw_jitter_ms(rt);
        let active = Rc::new(Segment::loaded(active, true, rt.wall_clock_ms(), jitter_ms));
        let mut state = self.state.borrow_mut();
        let keep = state.segments.partition_point(|s| s.base_offset < base);
        state.segments.truncate(keep);
        state.segments.push(active);
        state.tail = tail;
        state.producers = producers.states;
        Ok(end)
    }

    /// Takes what lies behind the new end, in `segment` at `len`, out of the log.
    fn lower_ends(&self, segment: &Segment, end: i64, len: u64) {
        let mut state = self.state.borrow_mut();
        segment.shorten(len, end);
        let keep = state
            .segments
            .partition_point(|s| s.base_offset <= segment.base_offset);
        state.segments.truncate(keep);
        state.truncations += 1;
        state.end_offset = end;
        state.flushed_offset = end;
        state.recovery_point = state.recovery_point.min(end);
        self.empty_range.set(None);
    }

    /// What comes behind `end`, where the batches that stay end, was never compacted.
    async fn lower_cleaned(&self, end: i64) -> Result<(), TruncateError> {
        if self.cleaned_to.get().is_none_or(|to| to <= end) {
            return Ok(());
        }
        let record = self.record_cleaned.borrow().clone();
        let Some(record) = record else {
            let nobody = "nobody records it for this log".to_owned();
            return Err(TruncateError::Record(nobody));
        };
        record(end).await.map_err(TruncateError::Record)?;
        self.cleaned_to.set(Some(end));
        Ok(())
    }

    /// The start of the batch that holds `offset` (or of the first one above it): the
    /// offset at which the log ends if it and all behind it go, that at which the batches end
    /// which stay (below it, where compaction left a gap), and its position.
    async fn batch_start(
        &self,
        segment: &Rc<Segment>,
        offset: i64,
    ) -> Result<(i64, i64, u64), TruncateError> {
        let file = self.open_file(segment).await?;
        let from = segment.with_indexes(|index, _| index.lookup(offset - 1));
        let position = from.flatten().map_or(0, |(_, p)| u64::from(p));
        let base = segment.base_offset;
        let mut end = (base, 0);
        let mut walk = SegmentWalk::new(self, segment, file, position, base, WALK_READ_BYTES);
        while let Some((header, position)) = walk.next().await? {
            if header.last_offset >= offset {
                // Between two batches of a compacted log: it ends with the first of them.
                let in_gap = header.base_offset > offset;
                let end_offset = if in_gap { end.0 } else { header.base_offset };
                return Ok((end_offset, end.0, position));
            }
            end = (header.last_offset + 1, position + u64::from(header.len));
        }
        Ok((end.0, end.0, end.1))
    }
}

const WALK_READ_BYTES: usize = 128 << 10;
