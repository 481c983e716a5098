//! What of a log is dirty, and how far a round may go.

use super::{CompactionError, CompactionNeed, CompactionRules};
use crate::storage::batch::{BatchHeader, HEADER_BYTES};
use crate::storage::log::LogShared;
use crate::storage::segment::Segment;
use crate::storage::{CheckpointError, FlushError, Log, ReadError, RetentionError};
use std::rc::Rc;

/// What a round would work on.
pub(super) struct Range {
    pub(super) first_dirty: i64,
    pub(super) end: i64,
    /// The complete segments below `end`, from the first one of the log on.
    pub(super) segments: Vec<Rc<Segment>>,
}

impl Log {
    /// What of the log is dirty, by `rules`. Reads a few headers and indexes at most.
    ///
    /// # Errors
    /// The work may be tried again.
    pub async fn compaction_need(
        &self,
        rules: &CompactionRules,
    ) -> Result<CompactionNeed, CompactionError> {
        let log = &*self.0;
        let (range, first) = loop {
            let range = log.compaction_range(rules, |_| true).await?;
            let is_dirty = |s: &&Rc<Segment>| s.next_offset() > range.first_dirty;
            let oldest = range.segments.iter().find(is_dirty);
            match oldest.filter(|_| rules.max_lag_ms < i64::MAX) {
                None => break (range, -1),
                Some(segment) => match log.first_timestamp(segment).await {
                    Err(error) if left_the_log(&error) => {}
                    first => {
                        let first = first?;
                        break (range, first);
                    }
                },
            }
        };
        let (mut clean_bytes, mut dirty_bytes) = (0, 0);
        for segment in &range.segments {
            match segment.next_offset() <= range.first_dirty {
                true => clean_bytes += segment.len(),
                false => dirty_bytes += segment.len(),
            }
        }
        let overdue = first >= 0 && rules.now_ms.saturating_sub(first) > rules.max_lag_ms;
        let horizon = log.delete_horizon.get();
        Ok(CompactionNeed {
            first_dirty: range.first_dirty,
            end: range.end,
            clean_bytes,
            dirty_bytes,
            overdue,
            deletes_due: horizon.is_some_and(|horizon| horizon <= rules.now_ms),
        })
    }
}

impl LogShared {
    /// The complete segments that a round may rewrite, up to the first that is not `wanted`,
    /// and where its dirty part is.
    pub(super) async fn compaction_range(
        &self,
        rules: &CompactionRules,
        wanted: fn(&Segment) -> bool,
    ) -> Result<Range, CompactionError> {
        loop {
            match self.range_now(rules, wanted).await {
                // Its head went, which says nothing of what is left.
                Err(RetentionError::Read(error)) if left_the_log(&error) => {}
                range => return range.map_err(of_retention),
            }
        }
    }

    async fn range_now(
        &self,
        rules: &CompactionRules,
        wanted: fn(&Segment) -> bool,
    ) -> Result<Range, RetentionError> {
        let (segments, log_start) = {
            let state = self.state.borrow();
            (state.segments.clone(), state.log_start_offset)
        };
        let complete = &segments[..segments.len() - 1];
        // What lies below the log start is about to go.
        let below = complete
            .iter()
            .skip_while(|s| s.next_offset() <= log_start)
            .take_while(|s| s.next_offset() <= rules.bound && wanted(s));
        let mut segments: Vec<Rc<Segment>> = below.cloned().collect();
        let end_of = |segments: &[Rc<Segment>]| {
            segments
                .last()
                .map_or(log_start, |s| s.next_offset().max(log_start))
        };
        let mut first_dirty = rules.first_dirty.max(log_start);
        if first_dirty > self.state.borrow().end_offset {
            // Of another log of this name, or of one that was cut since.
            first_dirty = log_start;
        }
        if rules.min_lag_ms > 0 {
            let dirty = segments.partition_point(|s| s.next_offset() <= first_dirty);
            for at in dirty..segments.len() {
                let youngest = self.age_of(&segments[at]).await?;
                if rules.now_ms.saturating_sub(youngest) < rules.min_lag_ms {
                    segments.truncate(at);
                    break;
                }
            }
        }
        let end = end_of(&segments).max(first_dirty);
        Ok(Range {
            first_dirty,
            end,
            segments,
        })
    }

    /// The largest timestamp of a segment's first batch; -1 if there is none.
    async fn first_timestamp(&self, segment: &Rc<Segment>) -> Result<i64, ReadError> {
        if let Some(known) = segment.extent().first_batch_timestamp {
            return Ok(known);
        }
        let _io = self.gate.enter().await.map_err(|_| ReadError::Closed)?;
        let file = self.open_file(segment).await?;
        let head = file.read_at(0, HEADER_BYTES).await?;
        if head.len() < HEADER_BYTES {
            return Ok(-1);
        }
        Ok(BatchHeader::parse(&head).map_or(-1, |header| header.max_timestamp))
    }

    /// Enters the gate, if the log takes changes.
    pub(super) async fn enter_for_compaction(
        &self,
    ) -> Result<crate::storage::gate::IoGuard, CompactionError> {
        let closed = |reason: &str| CompactionError::Closed(reason.to_owned());
        let io = self
            .gate
            .enter()
            .await
            .map_err(|_| closed("it is closed"))?;
        match self.fence() {
            Some(reason) => Err(closed(&reason)),
            None => Ok(io),
        }
    }
}

/// Whether what was to be read is no part of the log any more.
fn left_the_log(error: &ReadError) -> bool {
    matches!(error, ReadError::OutOfRange { .. })
}

pub(super) fn of_retention(error: RetentionError) -> CompactionError {
    match error {
        RetentionError::Read(error) => error.into(),
        RetentionError::Io(error) | RetentionError::Seal(CheckpointError::Io(error)) => {
            error.into()
        }
        RetentionError::Seal(CheckpointError::Flush(
            FlushError::Device(error) | FlushError::NoSpace(error) | FlushError::Io(error),
        )) => error.into(),
        other => CompactionError::Closed(other.to_string()),
    }
}
