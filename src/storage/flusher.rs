//! Flushes: one flusher for the logs of a shard.
//!
//! A flush notes LEO, then makes everything below it durable: new names, then rolled
//! segments in order (sealed on the way), then the active one. So `flushed_offset`
//! never covers a byte whose file, or whose file's name, could still be lost. It
//! serves every waiter whose bytes were written before it began; later ones share
//! the next, which is queued at once when the current ends. Of one log at most one
//! flush runs; of all logs at most `in_flight_max`, first come, first served.
//!
//! A flush that failed is never tried again: the kernel may have dropped the pages
//! and would then report success. The log is fenced for good, appends included.
//!
//! What it is not: callers do not learn how bytes were made durable, and it does not
//! decide when to flush.

use super::log::LogShared;
use super::segment::{Segment, SegmentPhase};
use super::{FlushError, Log};
use crate::runtime::{IoError, Queue, Rt, SyncSite};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Runs the flushes of a shard. Cheap to clone.
#[derive(Clone)]
pub(super) struct Flusher(Rc<FlusherShared>);

struct FlusherShared {
    rt: Rt,
    in_flight_max: usize,
    /// Logs that are due; each at most once (see [`FlushTurn`]).
    queue: RefCell<VecDeque<Log>>,
    workers: Cell<usize>,
}

/// Where a log stands with the flusher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlushTurn {
    /// Nobody waits.
    Idle,
    /// In the queue.
    Queued,
    /// Running; nobody came since it began.
    Running,
    /// Running, and another is wanted after it.
    RunningWantedAgain,
}

impl Flusher {
    pub(super) fn new(rt: Rt, in_flight_max: usize) -> Flusher {
        Flusher(Rc::new(FlusherShared {
            rt,
            in_flight_max: in_flight_max.max(1),
            queue: RefCell::new(VecDeque::new()),
            workers: Cell::new(0),
        }))
    }

    fn submit(&self, log: Log) {
        self.0.queue.borrow_mut().push_back(log);
        if self.0.workers.get() < self.0.in_flight_max {
            self.0.workers.set(self.0.workers.get() + 1);
            self.0.rt.spawn(Queue::Latency, self.clone().work());
        }
    }

    /// Takes logs from the queue until it is empty.
    async fn work(self) {
        loop {
            let next = self.0.queue.borrow_mut().pop_front();
            let Some(log) = next else { break };
            log.0.state.borrow_mut().flush_turn = FlushTurn::Running;
            log.0.flush_once().await;
            let again = {
                let mut state = log.0.state.borrow_mut();
                let again = state.flush_turn == FlushTurn::RunningWantedAgain;
                state.flush_turn = if again {
                    FlushTurn::Queued
                } else {
                    FlushTurn::Idle
                };
                again
            };
            log.0.flush_ended.notify_all();
            if again {
                self.0.queue.borrow_mut().push_back(log);
            }
        }
        self.0.workers.set(self.0.workers.get() - 1);
    }
}

impl Log {
    /// Makes everything below LEO (as of this call) durable, sharing flushes with
    /// other callers. Returns the flushed offset, at or above that LEO.
    pub async fn flush(&self) -> Result<i64, FlushError> {
        let target = {
            let state = self.0.state.borrow();
            if let Some(earlier) = &state.flush_fence {
                return Err(FlushError::Fenced(earlier.to_string()));
            }
            state.end_offset
        };
        loop {
            let ended = self.0.flush_ended.listen();
            if let Some(result) = self.0.flush_result(target) {
                return result;
            }
            self.request_flush();
            ended.await;
        }
    }

    fn request_flush(&self) {
        let turn = self.0.state.borrow().flush_turn;
        let (next, submit) = match turn {
            FlushTurn::Idle => (FlushTurn::Queued, true),
            FlushTurn::Queued => (FlushTurn::Queued, false),
            FlushTurn::Running | FlushTurn::RunningWantedAgain => {
                (FlushTurn::RunningWantedAgain, false)
            }
        };
        self.0.state.borrow_mut().flush_turn = next;
        if submit {
            self.0.storage.0.flusher.submit(self.clone());
        }
    }
}

impl LogShared {
    fn flush_result(&self, target: i64) -> Option<Result<i64, FlushError>> {
        let state = self.state.borrow();
        if state.flushed_offset >= target {
            return Some(Ok(state.flushed_offset));
        }
        if let Some(error) = &state.flush_fence {
            return Some(Err(error.clone()));
        }
        self.gate.is_closed().then_some(Err(FlushError::Closed))
    }

    /// One flush. Its outcome is in the log's state.
    async fn flush_once(&self) {
        let Ok(_io) = self.gate.enter().await else {
            return;
        };
        if self.state.borrow().flush_fence.is_some() {
            return;
        }
        if let Err(error) = self.make_durable().await {
            let error = FlushError::from(error);
            let mut state = self.state.borrow_mut();
            state.append_fence.get_or_insert_with(|| error.to_string());
            state.flush_fence = Some(error);
        }
    }

    pub(super) async fn make_durable(&self) -> Result<(), IoError> {
        let (noted, rolled, active) = {
            let state = self.state.borrow();
            let is_rolled = |s: &&Rc<Segment>| s.phase() == SegmentPhase::Rolled;
            let rolled: Vec<Rc<Segment>> =
                state.segments.iter().filter(is_rolled).cloned().collect();
            (state.end_offset, rolled, self.active())
        };
        if self.name_unsynced.replace(false) {
            self.dir.sync(SyncSite::SegmentCreate).await?;
        }
        for segment in rolled {
            self.seal(&segment).await?;
        }
        let flushed = self.state.borrow().flushed_offset;
        if noted > flushed.max(active.base_offset) {
            let file = active.file().expect("the active segment is open");
            file.sync_data(SyncSite::SegmentFlush).await?;
        }
        let mut state = self.state.borrow_mut();
        state.flushed_offset = state.flushed_offset.max(noted);
        Ok(())
    }

    /// Cuts a rolled segment to its exact length and makes it, its indexes and the
    /// producer snapshot at its end durable. Only then may the flushed offset and the
    /// recovery point pass its end: nothing below them is read again by recovery, so
    /// no zeros and no stale bytes may stand there.
    async fn seal(&self, segment: &Rc<Segment>) -> Result<(), IoError> {
        let file = segment.file().expect("a rolled segment is open");
        let extent = segment.extent();
        file.truncate(extent.len).await?;
        file.sync_data(SyncSite::SegmentSeal).await?;
        segment.set_allocated(extent.len);
        segment.complete_time_index();
        let _side_files = self.side_files.acquire(1).await;
        self.write_indexes(segment, i64::MAX).await?;
        self.write_snapshot(extent.next_offset).await?;
        self.dir.sync(SyncSite::PartitionDir).await?;
        segment.set_phase(SegmentPhase::Sealed);
        self.storage.0.open_segments.used(segment);
        let mut state = self.state.borrow_mut();
        state.flushed_offset = state.flushed_offset.max(extent.next_offset);
        state.recovery_point = state.recovery_point.max(extent.next_offset);
        Ok(())
    }
}
