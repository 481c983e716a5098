//! The log start offset: DeleteRecords and retention.
//!
//! A new log start is recorded durably before it holds, and files go only after that
//! ([`LogStartRecorder`]); so neither an acknowledged DeleteRecords nor a removed
//! segment is forgotten by a crash. It never falls, and never passes the high
//! watermark.
//!
//! A move counts among the partition's writers: a close, a deletion and a rebuild of
//! the log wait for its end.
//!
//! What it is not: it does not decide what has expired (`storage/retention.rs`), nor
//! when somebody looks.

use super::inner::{Counted, Inner};
use super::{Partition, PartitionState};
use crate::protocol::ErrorCode;
use crate::replication::ReplicaEvent;
use crate::storage::{ReadError, RemovedHead, RetentionError, RetentionRules};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Records a log start offset durably, wherever the owner keeps it; the error is for
/// people. An offset below one that was recorded before changes nothing.
pub type LogStartRecorder = Rc<dyn Fn(i64) -> Recording>;

/// A recording under way.
pub type Recording = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// Asks DeleteRecords for everything below the high watermark.
pub const HIGH_WATERMARK: i64 = -1;

impl Partition {
    /// Deletes the records below `offset` ([`HIGH_WATERMARK`]: all that are visible), and
    /// returns the log start offset. It may lie inside a batch, which is then returned
    /// whole by a fetch. Once this returns, the log start is durable; the files go with
    /// [`Partition::remove_segments`].
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE above the high watermark; POLICY_VIOLATION where
    /// `cleanup.policy` lacks `delete`; KAFKA_STORAGE_ERROR when the partition takes no
    /// writes or the log start could not be recorded; and what a stopped partition
    /// answers.
    pub async fn delete_records(&self, offset: i64) -> Result<i64, ErrorCode> {
        let inner = &self.0;
        inner.check_online()?;
        if !inner.config.borrow().cleanup_delete {
            return Err(ErrorCode::PolicyViolation);
        }
        let (log_start, high_watermark) = {
            let replica = inner.replica.borrow();
            (replica.log_start_offset(), replica.high_watermark())
        };
        let target = match offset {
            HIGH_WATERMARK => high_watermark,
            other => other,
        };
        if !(0..=high_watermark).contains(&target) {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        if target > log_start {
            let _running = inner.count(Counted::Checkpoint);
            if let Err(reason) = inner.move_log_start(target).await {
                tracing::warn!(partition = %inner.id, %reason, "the log start offset could not be moved");
                return Err(ErrorCode::KafkaStorageError);
            }
            inner.check_serving()?;
        }
        Ok(inner.replica.borrow().log_start_offset())
    }

    /// Moves the log start past what `retention.ms` and `retention.bytes` have expired by
    /// `now_ms` (milliseconds since the Unix epoch), and removes the segments below it.
    ///
    /// # Errors
    /// The work may be tried again; a failed device has taken the partition offline.
    pub async fn expire(&self, now_ms: i64) -> Result<RemovedHead, RetentionError> {
        let inner = &self.0;
        if inner.check_online().is_err() {
            return Ok(RemovedHead::default());
        }
        let _running = inner.count(Counted::Checkpoint);
        let rules = inner.retention_rules(now_ms);
        let expired = match inner.log().expired_up_to(rules).await {
            Ok(expired) => expired,
            Err(error) => return inner.sort_retention_error(error),
        };
        if expired > inner.replica.borrow().log_start_offset() {
            inner.move_log_start(expired).await?;
        }
        inner.remove_head().await
    }

    /// Removes the segments that lie wholly below the log start offset.
    ///
    /// # Errors
    /// As [`Partition::expire`].
    pub async fn remove_segments(&self) -> Result<RemovedHead, RetentionError> {
        let inner = &self.0;
        if inner.check_online().is_err() {
            return Ok(RemovedHead::default());
        }
        let _running = inner.count(Counted::Checkpoint);
        inner.remove_head().await
    }
}

impl Inner {
    /// Refuses what a partition refuses that takes no writes at the moment.
    fn check_online(&self) -> Result<(), ErrorCode> {
        self.check_serving()?;
        match self.state.get() {
            PartitionState::Online => Ok(()),
            PartitionState::Fenced | PartitionState::Offline => Err(ErrorCode::KafkaStorageError),
        }
    }

    fn retention_rules(&self, now_ms: i64) -> RetentionRules {
        let config = self.config.borrow();
        let (retention_ms, retention_bytes) = match config.cleanup_delete {
            true => (config.retention_ms, config.retention_bytes),
            false => (-1, -1),
        };
        RetentionRules {
            retention_ms,
            retention_bytes,
            bound: self.replica.borrow().high_watermark(),
            now_ms,
        }
    }

    /// Records the new log start, then lets it hold. Those who wait to read below it find
    /// out.
    async fn move_log_start(self: &Rc<Self>, offset: i64) -> Result<(), RetentionError> {
        self.log().settle_below(offset).await?;
        (self.record_log_start)(offset)
            .await
            .map_err(RetentionError::Record)?;
        self.log().set_log_start(offset);
        self.on(ReplicaEvent::LogStartMoved { offset });
        self.bound_moved.notify_all();
        Ok(())
    }

    async fn remove_head(self: &Rc<Self>) -> Result<RemovedHead, RetentionError> {
        match self.log().remove_head().await {
            Ok(removed) => {
                if removed.segments > 0 {
                    tracing::info!(
                        partition = %self.id,
                        segments = removed.segments,
                        bytes = removed.bytes,
                        log_start_offset = self.replica.borrow().log_start_offset(),
                        "segments were removed"
                    );
                }
                Ok(removed)
            }
            Err(error) => self.sort_retention_error(error),
        }
    }

    /// Only a failed device says anything about the partition; the rest is tried again.
    /// What was stopped or rebuilt meanwhile is no failure.
    fn sort_retention_error(
        self: &Rc<Self>,
        error: RetentionError,
    ) -> Result<RemovedHead, RetentionError> {
        match &error {
            RetentionError::Closed(_) | RetentionError::Read(ReadError::Closed) => {
                return Ok(RemovedHead::default());
            }
            RetentionError::Io(io) => self.on_checkpoint_io_error(io),
            RetentionError::Seal(checkpoint) => self.on_checkpoint_error(checkpoint),
            RetentionError::Read(_) | RetentionError::Record(_) => {}
        }
        Err(error)
    }
}
