//! Putting a compacted segment in the place of those that it was made of.
//!
//! Each step is durable before the next, so that a load after a crash at any point finds one
//! of these states by the names alone:
//! 1. `.cleaned` files, durable: they go, the old segments stand.
//! 2. All names are `.swap`, durable: the load finishes what follows. Until the last of them is,
//!    one that is still `.cleaned` says that the old segments stand.
//! 3. In memory the new segment takes the place of the old ones, in one stretch: from here on
//!    nobody opens an old one by its name.
//! 4. The old files are `.deleted`, durable: none may come back beside the new segment.
//! 5. The new files get their final names, durable. Unlinking the old ones can wait.
//!
//! An error from step 2 on fences the log: what its directory holds is for a load to sort out.

use super::pace::{Halt, Pace};
use super::target::cleaned_name;
use super::CompactionError;
use crate::runtime::{IoError, SyncSite};
use crate::storage::assemble::LoadedSegment;
use crate::storage::log::LogShared;
use crate::storage::log_files::{file_name, remove_if_there, INDEX, LOG, TIME_INDEX};
use crate::storage::segment::{Segment, SegmentPhase};
use crate::storage::FlushError;
use std::ops::Range;
use std::rc::Rc;

impl LogShared {
    /// Puts `target` in the place of `sources`. False, and the log is as it was, if one of
    /// them is no part of it any more.
    pub(super) async fn replace(
        &self,
        pace: &Pace<'_>,
        sources: &[Rc<Segment>],
        target: LoadedSegment,
    ) -> Result<bool, Halt> {
        let _io = pace.enter().await?;
        // Nothing is sealed or removed meanwhile.
        let _side_files = self.side_files.acquire(1).await;
        if let Some(reason) = self.fence() {
            return Err(Halt::Failed(CompactionError::Closed(reason)));
        }
        if self.place_of(sources).is_none() {
            self.discard(target.base_offset).await?;
            return Ok(false);
        }
        let mut swap = Swap {
            log: self,
            error: Some(FlushError::Fenced(
                "a compaction was dropped before it ended".to_owned(),
            )),
        };
        match self.swap(sources, target).await {
            Ok(()) => {
                swap.error = None;
                Ok(true)
            }
            Err(error) => {
                swap.error = Some(error.clone().into());
                Err(error.into())
            }
        }
    }

    /// Removes a segment that is not wanted after all. The caller is inside the gate.
    pub(super) async fn discard(&self, base_offset: i64) -> Result<(), IoError> {
        for extension in [INDEX, TIME_INDEX, LOG] {
            let name = cleaned_name(base_offset, extension);
            remove_if_there(&self.dir, &name).await?;
            // An index that found no space.
            remove_if_there(&self.dir, &format!("{name}.tmp")).await?;
        }
        Ok(())
    }

    /// Where these segments are in the log, if all of them are.
    fn place_of(&self, sources: &[Rc<Segment>]) -> Option<usize> {
        let state = self.state.borrow();
        let first = state
            .segments
            .iter()
            .position(|s| Rc::ptr_eq(s, &sources[0]))?;
        let there = state.segments[first..].iter().zip(sources);
        let same = there
            .filter(|(a, b)| Rc::ptr_eq(a, b) && a.phase() == SegmentPhase::Sealed)
            .count();
        (same == sources.len()).then_some(first)
    }

    async fn swap(&self, sources: &[Rc<Segment>], target: LoadedSegment) -> Result<(), IoError> {
        let (base, end) = (target.base_offset, target.next_offset);
        let swap_name = |extension| format!("{}.swap", file_name(base, extension));
        for extension in [TIME_INDEX, INDEX, LOG] {
            let cleaned = cleaned_name(base, extension);
            self.dir.rename(&cleaned, &swap_name(extension)).await?;
        }
        self.dir.sync(SyncSite::CompactionSwap).await?;

        let now_ms = self.storage.rt().wall_clock_ms();
        let segment = Rc::new(Segment::loaded(target, false, now_ms, 0));
        segment.set_pinned(true);
        let first = self.place_of(sources).expect("side_files keeps them there");
        for source in sources {
            source.set_replaced();
        }
        let places = first..first + sources.len();
        self.put_in_place(places, &segment);
        self.storage.0.cache.remove_range(self.id, base, end);
        self.read_ahead.forget();

        let mut renamed = Vec::new();
        for source in sources {
            self.rename_away(source, &mut renamed).await?;
        }
        self.dir.sync(SyncSite::CompactionSwap).await?;
        for extension in [TIME_INDEX, INDEX, LOG] {
            let name = file_name(base, extension);
            self.dir.rename(&swap_name(extension), &name).await?;
        }
        self.dir.sync(SyncSite::CompactionSwap).await?;
        segment.set_pinned(false);
        self.storage.0.open_segments.used(&segment);
        self.unlink_later(renamed);
        self.remove_old_snapshots().await
    }
}

impl LogShared {
    fn put_in_place(&self, places: Range<usize>, segment: &Rc<Segment>) {
        let mut state = self.state.borrow_mut();
        state.segments.splice(places, [segment.clone()]);
    }
}

/// A swap under way: fences the log unless it succeeds.
struct Swap<'a> {
    log: &'a LogShared,
    error: Option<FlushError>,
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        if let Some(error) = self.error.take() {
            self.log.fence_off(error);
        }
    }
}
