//! Flushes: one flusher for the logs of a shard.
//!
//! A flush notes LEO, then makes everything below it durable: new names, then rolled
//! segments in order (cut on the way), then the active one. So `flushed_offset`
//! never covers a byte whose file, or whose file's name, could still be lost. What is
//! left of sealing (index files, snapshot) delays no waiter: it follows in the
//! background, and holds back the recovery point only. A flush
//! serves every waiter whose bytes were written before it began; later ones share
//! the next, which is queued at once when the current ends. Of one log at most one
//! flush runs; of all logs at most `in_flight_max`, first come, first served.
//!
//! A flush that failed is never tried again: the kernel may have dropped the pages
//! and would then report success. The log is fenced for good, appends included.
//!
//! What it is not: callers do not learn how bytes were made durable, and it does not
//! decide when to flush.

use super::log::{LogShared, LogState, SealTask};
use super::segment::{Segment, SegmentPhase};
use super::{FlushError, Log};
use crate::runtime::{IoError, Queue, Rt, SyncSite};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
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

/// The failure after which nothing more is made durable.
pub(super) struct FlushFence {
    error: FlushError,
    /// A caller was told the error itself.
    reported: bool,
}

impl FlushFence {
    /// The failure.
    pub(super) fn error(&self) -> &FlushError {
        &self.error
    }
}

impl fmt::Display for FlushFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
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
            log.start_sealing();
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
            match &state.flush_fence {
                Some(fence) if fence.reported => {
                    return Err(FlushError::Fenced(fence.error.to_string()));
                }
                _ => state.end_offset,
            }
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

    /// Makes everything below LEO durable, and cuts every rolled segment below it.
    pub(super) async fn flush_and_cut(&self) -> Result<(), FlushError> {
        self.flush().await?;
        loop {
            let ended = self.0.flush_ended.listen();
            let flushed = self.0.state.borrow().flushed_offset;
            if let Some(result) = self.0.flush_result(flushed) {
                result?;
            }
            if !self.0.state.borrow().rolled_below(flushed) {
                return Ok(());
            }
            if self.0.gate.is_closed() {
                return Err(FlushError::Closed);
            }
            self.request_flush();
            ended.await;
        }
    }

    /// Has cut segments sealed in the background: nobody waits for their indexes.
    fn start_sealing(&self) {
        let cut = self.0.state.borrow().newest_segments_in(SegmentPhase::Cut);
        if !cut.is_empty() && self.0.seal_task.get() == SealTask::Idle {
            self.0.seal_task.set(SealTask::Running);
            let log = self.clone();
            let rt = self.0.storage.rt();
            rt.spawn(Queue::Background, async move {
                log.0.seal_in_background().await;
            });
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

impl Log {
    /// Writes nothing from now on, and ends a round of compaction that is under way: the
    /// directory is given up.
    pub fn give_up(&self, reason: &str) {
        self.0.fence_off(FlushError::Fenced(reason.to_owned()));
    }

    /// The failure of the device that fenced the log, if one did. It may not have been told
    /// yet: what is written in the background has nobody to tell.
    pub fn device_failure(&self) -> Option<FlushError> {
        let state = self.0.state.borrow();
        let fence = state.flush_fence.as_ref()?;
        matches!(fence.error, FlushError::Device(_)).then(|| fence.error.clone())
    }
}

impl LogShared {
    fn flush_result(&self, target: i64) -> Option<Result<i64, FlushError>> {
        let mut state = self.state.borrow_mut();
        if let Some(fence) = &mut state.flush_fence {
            fence.reported = true;
            return Some(Err(fence.error.clone()));
        }
        if state.flushed_offset >= target {
            return Some(Ok(state.flushed_offset));
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
        match self.make_durable().await {
            Ok(()) => self.storage.0.counters.flushes.add(1),
            Err(error) => self.fence_off(error.into()),
        }
    }

    /// Names, then rolled segments in order, then the active one.
    pub(super) async fn make_durable(&self) -> Result<(), IoError> {
        let (noted, flushed, rolled, active) = {
            let state = self.state.borrow();
            let rolled = state.newest_segments_in(SegmentPhase::Rolled);
            (
                state.end_offset,
                state.flushed_offset,
                rolled,
                self.active(),
            )
        };
        if self.name_unsynced.replace(false) {
            self.dir.sync(SyncSite::SegmentCreate).await?;
        }
        for segment in rolled {
            self.cut_rolled(&segment).await?;
        }
        if noted > flushed.max(active.base_offset) {
            let file = active.file().expect("the active segment is open");
            file.sync_data(SyncSite::SegmentFlush).await?;
        }
        let mut state = self.state.borrow_mut();
        state.flushed_offset = state.flushed_offset.max(noted);
        Ok(())
    }

    /// Cuts a rolled segment to its exact length, durably. Only then may the flushed
    /// offset pass its end: no zeros and no stale bytes may stand before what follows.
    async fn cut_rolled(&self, segment: &Rc<Segment>) -> Result<(), IoError> {
        let file = segment.file().expect("a rolled segment is open");
        let extent = segment.extent();
        file.truncate(extent.len).await?;
        file.sync_data(SyncSite::SegmentSeal).await?;
        segment.set_allocated(extent.len);
        segment.complete_time_index();
        segment.set_phase(SegmentPhase::Cut);
        let mut state = self.state.borrow_mut();
        state.flushed_offset = state.flushed_offset.max(extent.next_offset);
        Ok(())
    }

    /// Seals what was cut: writes the exact indexes of each segment, the epochs and the
    /// producer snapshot at its end, durably. Only then may the recovery point pass its end.
    /// The caller holds `side_files`.
    pub(super) async fn seal(&self) -> Result<(), IoError> {
        let cut = {
            let state = self.state.borrow();
            state.newest_segments_in(SegmentPhase::Cut)
        };
        for segment in cut {
            let end = segment.next_offset();
            self.write_indexes(&segment, i64::MAX).await?;
            let producers = segment
                .producers()
                .expect("kept until the segment is sealed");
            self.write_proof(end, &producers).await?;
            segment.seal();
            self.storage.0.open_segments.used(&segment);
            let mut state = self.state.borrow_mut();
            state.recovery_point = state.recovery_point.max(end);
        }
        Ok(())
    }

    /// Fences the log after a failure to make something durable.
    pub(super) fn fence_off(&self, error: FlushError) {
        let mut state = self.state.borrow_mut();
        state.append_fence.get_or_insert_with(|| error.to_string());
        state.flush_fence.get_or_insert(FlushFence {
            error,
            reported: false,
        });
    }
}

impl LogState {
    /// Whether a segment that ends at or below `offset` is not cut yet.
    pub(super) fn rolled_below(&self, offset: i64) -> bool {
        let rolled = self.newest_segments_in(SegmentPhase::Rolled);
        rolled.iter().any(|s| s.next_offset() <= offset)
    }

    /// The segments in this phase, in offset order. Phases never rise along a log, so
    /// only the newest segments are looked at.
    fn newest_segments_in(&self, phase: SegmentPhase) -> Vec<Rc<Segment>> {
        let newest_first = self.segments.iter().rev();
        let unsealed = newest_first.take_while(|s| s.phase() != SegmentPhase::Sealed);
        let mut found: Vec<Rc<Segment>> =
            unsealed.filter(|s| s.phase() == phase).cloned().collect();
        found.reverse();
        found
    }
}
