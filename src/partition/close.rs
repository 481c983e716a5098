//! Checkpoints, closing and deleting.

use super::inner::{Counted, Inner, Stopping};
use super::{Partition, PartitionState};
use crate::storage::{CheckpointError, FlushError};
use std::rc::Rc;

/// What a cleanly closed partition leaves for the checkpoint files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedPartition {
    /// Everything below is durable: the LEO.
    pub recovery_point: i64,
    /// The high watermark.
    pub high_watermark: i64,
    /// The log start offset.
    pub log_start: i64,
}

/// Why a partition could not be closed cleanly. It is stopped all the same; no
/// clean-shutdown marker may be written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CloseError {
    /// A failed write or flush had fenced it, or it was offline.
    #[error("the partition was not online: {0}; it will be recovered at the next start")]
    NotOnline(String),
    /// The last flush or checkpoint failed.
    #[error(transparent)]
    Log(#[from] CheckpointError),
    /// It was closed or deleted before.
    #[error("the partition was stopped before")]
    Stopped,
}

impl Partition {
    /// Flushes, and writes what an unclean load starts from. Returns the recovery
    /// point that may be recorded.
    ///
    /// # Errors
    /// The recovery point did not move; a failed device takes the partition offline.
    pub async fn checkpoint(&self) -> Result<i64, CheckpointError> {
        let inner = &self.0;
        if inner.check_serving().is_err() || inner.state.get() != PartitionState::Online {
            return Err(CheckpointError::Closed);
        }
        let _running = inner.count(Counted::Checkpoint);
        let log = inner.log();
        let covered = inner.bytes_since_checkpoint.get();
        let outcome = log.checkpoint().await;
        match &outcome {
            Ok(_) => {
                let left = inner.bytes_since_checkpoint.get().saturating_sub(covered);
                inner.bytes_since_checkpoint.set(left);
                inner.on_flushed(log.flushed_offset());
            }
            Err(error) => inner.on_checkpoint_error(error),
        }
        outcome
    }

    /// True once `checkpoint.bytes` were written since the last checkpoint.
    pub fn checkpoint_is_due(&self) -> bool {
        let inner = &self.0;
        inner.state.get() == PartitionState::Online
            && inner.bytes_since_checkpoint.get() >= inner.config.borrow().checkpoint_bytes
    }

    /// Closes cleanly: refuses new work with NOT_LEADER_OR_FOLLOWER, writes what is
    /// queued, flushes, cuts the log to its exact length.
    ///
    /// # Errors
    /// The partition is stopped, but not cleanly.
    pub async fn close(&self) -> Result<ClosedPartition, CloseError> {
        let inner = &self.0;
        inner.stop(Stopping::Close)?;
        inner.tasks.all_ended().await;
        let outcome = inner.close_log().await;
        // All who could be answered have been.
        inner.fail_waiters_beyond(-1, Stopping::Close.code());
        outcome
    }

    /// Stops for good: refuses new work and fails what is queued with
    /// UNKNOWN_TOPIC_OR_PARTITION, and waits until no I/O is under way. Removing the
    /// directory is the owner's.
    pub async fn delete(&self) {
        let inner = &self.0;
        if inner.stop(Stopping::Delete).is_err() {
            // Closed, or deleted by another caller: nothing is left but to wait.
            inner.tasks.all_ended().await;
            return;
        }
        drop(inner.queue.take_all());
        inner.fail_waiters_beyond(-1, Stopping::Delete.code());
        inner.tasks.all_ended().await;
        inner.log().abandon().await;
    }
}

impl Inner {
    /// Takes no new work from here on. Long polls wake and find out.
    fn stop(&self, stopping: Stopping) -> Result<(), CloseError> {
        if self.stopping.get().is_some() {
            return Err(CloseError::Stopped);
        }
        self.stopping.set(Some(stopping));
        self.tasks.changed.notify_all();
        self.bound_moved.notify_all();
        Ok(())
    }

    async fn close_log(self: &Rc<Self>) -> Result<ClosedPartition, CloseError> {
        let log = self.log();
        if self.state.get() != PartitionState::Online {
            // Its buffers and files do not outlive the shard.
            log.abandon().await;
            return Err(CloseError::NotOnline(self.reason.borrow().clone()));
        }
        let recovery_point = match log.close().await {
            Ok(recovery_point) => recovery_point,
            Err(error) => {
                self.on_checkpoint_error(&error);
                return Err(error.into());
            }
        };
        self.on_flushed(recovery_point);
        let replica = self.replica.borrow();
        Ok(ClosedPartition {
            recovery_point,
            high_watermark: replica.high_watermark(),
            log_start: replica.log_start_offset(),
        })
    }

    pub(super) fn on_checkpoint_error(self: &Rc<Self>, error: &CheckpointError) {
        match error {
            CheckpointError::Flush(FlushError::Closed) | CheckpointError::Closed => {}
            // What fenced the log has been dealt with where it happened.
            CheckpointError::Fenced(_) => {}
            CheckpointError::Flush(error) => self.on_flush_error(error),
            CheckpointError::Io(error) => self.on_checkpoint_io_error(error),
        }
    }
}
