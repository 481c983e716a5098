//! One piece of a round's I/O after the other: what it waits for, what ends it, what it costs.

use super::{CompactionError, CompactionMeans};
use crate::runtime::local::{Listen, Permit};
use crate::storage::gate::IoGuard;
use crate::storage::log::LogShared;
use futures_lite::future::{or, poll_once};
use std::cell::Cell;

/// The pace of one round.
pub(super) struct Pace<'a> {
    pub(super) log: &'a LogShared,
    means: &'a CompactionMeans,
    /// `None` once the round is to end.
    stop: Cell<Option<Listen>>,
    /// How often the log had been cut when the round began.
    truncations: u64,
    pub(super) bytes_read: Cell<u64>,
    pub(super) bytes_written: Cell<u64>,
    /// Memory of the buffers of reads, of writes, and of the batch that is rewritten.
    buffers: [Cell<usize>; 3],
    pub(super) buffers_max: Cell<usize>,
}

/// Whose memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffer {
    Read,
    Write,
    Batch,
}

/// Why a round ends here.
pub(super) enum Halt {
    /// It was told to, or the log was cut.
    Early,
    Failed(CompactionError),
}

impl<E: Into<CompactionError>> From<E> for Halt {
    fn from(error: E) -> Halt {
        Halt::Failed(error.into())
    }
}

impl<'a> Pace<'a> {
    pub(super) fn new(log: &'a LogShared, means: &'a CompactionMeans) -> Pace<'a> {
        Pace {
            log,
            means,
            stop: Cell::new(Some(means.stop.listen())),
            truncations: log.state.borrow().truncations,
            bytes_read: Cell::new(0),
            bytes_written: Cell::new(0),
            buffers: Default::default(),
            buffers_max: Cell::new(0),
        }
    }

    /// Enters the log's gate for one piece of I/O, unless the round is to end.
    pub(super) async fn enter(&self) -> Result<IoGuard, Halt> {
        if let Some(mut listen) = self.stop.take() {
            if poll_once(&mut listen).await.is_none() {
                self.stop.set(Some(listen));
                let io = self.log.enter_for_compaction().await?;
                if self.log.state.borrow().truncations == self.truncations {
                    return Ok(io);
                }
            }
        }
        self.stop.set(None);
        Err(Halt::Early)
    }

    /// The budget for a piece of I/O of so many bytes.
    pub(super) async fn permit(&self, bytes: u64) -> Permit {
        let budget = &self.log.storage.0.cold_reads;
        budget.acquire(bytes.min(budget.total())).await
    }

    /// Waits until what was moved is paid for, or the round is to end. The caller is outside
    /// the gate.
    pub(super) async fn moved(&self, bytes: u64) {
        let Some(mut listen) = self.stop.take() else {
            return;
        };
        let paid = async {
            self.means.throttle.moved(bytes).await;
            false
        };
        let stopped = async {
            (&mut listen).await;
            true
        };
        if !or(paid, stopped).await {
            self.stop.set(Some(listen));
        }
    }

    /// Notes the memory that a buffer takes now.
    pub(super) fn holds(&self, whose: Buffer, bytes: usize) {
        self.buffers[whose as usize].set(bytes);
        let all = self.buffers.iter().map(Cell::get).sum();
        self.buffers_max.set(self.buffers_max.get().max(all));
    }
}
