//! Failed writes, flushes and reads: fence and rebuild, or go offline.
//!
//! - There is no space, a write was cut short or failed in another way that says
//!   nothing against the device: the partition is *fenced*. Writes get
//!   KAFKA_STORAGE_ERROR, reads go on. Once its own writes have ended it is loaded
//!   again from disk as after an unclean stop, which cuts what the failed write left
//!   behind; then it is online again. Fences that follow each other without a
//!   successful write wait longer and longer before they rebuild.
//! - The device failed (EIO on a write or a flush): nobody knows what it holds. The
//!   partition goes *offline*, and its owner is told to give up the directory.
//! - A flush failed otherwise, or flushed data is damaged or unreadable: this
//!   replica alone goes offline.
//!
//! Why a rebuild loses nothing: what was written and not flushed is still in the
//! files, the load scans it and flushes it before it counts. If less is found than
//! was written, the replica goes offline instead of starting to give out offsets
//! again. Why it disturbs nobody: the old log is retired first; it serves reads until
//! the new one takes its place, and writes nothing more.

use super::inner::{Inner, Single};
use super::{inner, PartitionState};
use crate::protocol::ErrorCode;
use crate::replication::ReplicaEvent;
use crate::runtime::{IoError, IoErrorKind, Queue};
use crate::storage::{
    AppendError, CompactionError, FlushError, LoadError, LoadMode, Log, ReadError, RetireError,
    TruncateError,
};
use std::rc::Rc;
use std::time::Duration;

/// How a rebuild ended that did not succeed.
enum RebuildError {
    /// Worth trying again.
    Refused(String),
    /// The device failed.
    Device(String),
    /// The log on disk lacks what had been written, or may not be loaded again.
    Damaged(String),
}

impl Inner {
    pub(super) fn set_device_error_handler(&self, handler: inner::DeviceErrorHandler) {
        self.device_error_handler.replace(Some(handler));
    }

    /// Sorts a failed append. The caller fails what was queued.
    pub(super) fn on_append_error(self: &Rc<Self>, error: &AppendError) {
        match error {
            AppendError::Fenced(_) if self.log().device_failure().is_some() => {
                self.device_failed(&error.to_string())
            }
            AppendError::Device(_) => self.device_failed(&error.to_string()),
            AppendError::OutOfOrder { .. } => {
                // Offsets are assigned in one place; this cannot be repaired by
                // writing on.
                debug_assert!(false, "{error}");
                self.go_offline(&error.to_string());
            }
            AppendError::Closed => self.go_offline(&error.to_string()),
            AppendError::NoSpace(_)
            | AppendError::ShortWrite(_)
            | AppendError::Io(_)
            | AppendError::Fenced(_) => self.fence(&error.to_string()),
        }
    }

    /// Sorts a failed flush. Space or a descriptor is found missing by the files beside
    /// a segment (indexes, snapshots): record bytes are written directly, before the
    /// flush. After any other error nobody knows what the device holds, and a later
    /// flush would not say: nothing is rebuilt on top of it.
    pub(super) fn on_flush_error(self: &Rc<Self>, error: &FlushError) {
        match error {
            FlushError::Fenced(_) if self.log().device_failure().is_some() => {
                self.device_failed(&error.to_string())
            }
            FlushError::Device(_) => self.device_failed(&error.to_string()),
            FlushError::NoSpace(_) | FlushError::Fenced(_) => self.fence(&error.to_string()),
            FlushError::Io(io) if is_of_side_file(io.kind) => self.fence(&error.to_string()),
            FlushError::Io(_) | FlushError::Closed => self.go_offline(&error.to_string()),
        }
    }

    /// Sorts a failed read and says what the reader is told.
    pub(super) fn on_read_error(self: &Rc<Self>, error: &ReadError) -> ErrorCode {
        match error {
            ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            ReadError::Corrupt { .. } => {
                // Said here and not by the log, which knows of no command.
                self.go_offline(&format!("{error}; `highwater log repair` cuts it there"));
                ErrorCode::KafkaStorageError
            }
            ReadError::Device(_) => {
                self.go_offline(&error.to_string());
                ErrorCode::KafkaStorageError
            }
            ReadError::Io(_) => {
                tracing::warn!(partition = %self.id, %error, "a read failed");
                ErrorCode::KafkaStorageError
            }
            ReadError::Closed => match self.stopping.get() {
                Some(stopping) => stopping.code(),
                None => ErrorCode::KafkaStorageError,
            },
        }
    }

    /// Sorts an error of a checkpoint's own files. Only the device's failure says
    /// anything about the log; the rest is the checkpoint's, which can be tried again.
    pub(super) fn on_checkpoint_io_error(self: &Rc<Self>, error: &IoError) {
        match error.kind {
            IoErrorKind::Device => self.device_failed(&error.to_string()),
            _ => tracing::warn!(partition = %self.id, %error, "a checkpoint failed"),
        }
    }

    /// Sorts the failure of compacting `log`. A failed device is given up; where it cannot be
    /// read, this replica alone; a log that was left half-way between old segments and new is
    /// loaded again; damage ends the compaction, not the partition. What was stopped or
    /// rebuilt meanwhile is no failure.
    pub(super) fn sort_compaction_error<T>(
        self: &Rc<Self>,
        log: &Log,
        error: CompactionError,
    ) -> Result<Option<T>, CompactionError> {
        match (&error, log.fence_reason()) {
            (CompactionError::Device(_), _) => self.device_failed(&error.to_string()),
            (CompactionError::Unreadable(_), _) => self.go_offline(&error.to_string()),
            (CompactionError::Closed(reason), None) if self.stopping.get().is_some() => {
                tracing::debug!(partition = %self.id, reason, "compaction ended");
                return Ok(None);
            }
            (CompactionError::Closed(_), Some(_)) => return Ok(None),
            (_, Some(_)) => self.fence(&error.to_string()),
            (CompactionError::Corrupt { .. }, None) => self.is_uncleanable.set(true),
            (_, None) => {}
        }
        Err(error)
    }

    /// Goes offline and tells the owner that the device failed.
    fn device_failed(self: &Rc<Self>, reason: &str) {
        self.go_offline(reason);
        if let Some(handler) = self.device_error_handler.take() {
            handler(&self.id, reason);
        }
    }

    /// Gives up: all that is queued or waits gets KAFKA_STORAGE_ERROR, now and later.
    pub(super) fn go_offline(&self, reason: &str) {
        if self.state.replace(PartitionState::Offline) == PartitionState::Offline {
            return;
        }
        tracing::error!(partition = %self.id, reason, "the partition is offline");
        self.reason.replace(reason.to_owned());
        self.count_errors(self.queue.take_all().len() as u64);
        self.fail_waiters_beyond(-1, ErrorCode::KafkaStorageError);
        self.bound_moved.notify_all();
        self.tasks.changed.notify_all();
    }

    /// Takes no more writes and starts the rebuild.
    fn fence(self: &Rc<Self>, reason: &str) {
        if self.state.get() != PartitionState::Online {
            return;
        }
        tracing::warn!(partition = %self.id, reason, "the partition takes no writes until it is rebuilt");
        self.reason.replace(reason.to_owned());
        self.state.set(PartitionState::Fenced);
        if self.claim(Single::Rebuild) {
            let inner = self.clone();
            let rt = self.storage.rt().clone();
            rt.spawn(Queue::Background, async move {
                inner.rebuild_until_done().await;
                inner.release(Single::Rebuild);
            });
        }
    }

    async fn rebuild_until_done(self: &Rc<Self>) {
        self.tasks.writers_ended().await;
        loop {
            self.back_off().await;
            if self.stopping.get().is_some() || self.state.get() == PartitionState::Offline {
                return;
            }
            match self.rebuild().await {
                Ok(log) => return self.resume(log),
                Err(RebuildError::Refused(reason)) => {
                    tracing::warn!(partition = %self.id, reason, "the partition could not be rebuilt yet");
                    self.reason.replace(reason);
                }
                Err(RebuildError::Device(reason)) => return self.device_failed(&reason),
                Err(RebuildError::Damaged(reason)) => return self.go_offline(&reason),
            }
        }
    }

    /// Waits before a rebuild: not at all the first time, then longer and longer.
    /// Stopping the partition ends the wait.
    async fn back_off(&self) {
        let before = self.fences_in_a_row.get();
        self.fences_in_a_row.set(before.saturating_add(1));
        if before == 0 {
            return;
        }
        let delay = (REBUILD_DELAY_MIN * 2u32.pow((before - 1).min(16))).min(REBUILD_DELAY_MAX);
        let stopped = self
            .tasks
            .changed
            .wait_until(|| self.stopping.get().is_some());
        // Running into the limit is the usual case: nobody stopped the partition.
        let _elapsed = self.storage.rt().timeout(delay, stopped).await;
    }

    async fn rebuild(&self) -> Result<Log, RebuildError> {
        if let Some(error) = self.log().device_failure() {
            return Err(RebuildError::Device(error.to_string()));
        }
        // From here on nothing but the new log writes to the directory.
        self.log().retire().await?;
        self.tasks.writers_ended().await;
        let end_offset = self.replica.borrow().end_offset();
        let mode = LoadMode {
            clean: false,
            recovery_point: Some(self.log().recovery_point()),
            log_start: Some(self.replica.borrow().log_start_offset()),
            flushed: Some(self.log().flushed_offset()),
            cleaned_to: self.log().cleaned_to(),
        };
        let config = inner::log_config(&self.config.borrow());
        let (log, report) = Log::open(&self.storage, self.dir.clone(), config, mode).await?;
        log.record_cleaned_with(self.record_cleaned.clone());
        if log.end_offset() < end_offset {
            return Err(RebuildError::Damaged(format!(
                "the log in {} ends at {} after a failed write, but {end_offset} had been written; copy the replica or restore the directory",
                self.dir.path().display(),
                log.end_offset(),
            )));
        }
        // Whole batches of the failed write may have reached the disk. Their producers
        // were told that they failed, and will send them again.
        if log.end_offset() > end_offset {
            log.truncate_to(end_offset).await?;
        }
        tracing::info!(partition = %self.id, ?report, "the partition was rebuilt");
        Ok(log)
    }

    /// Goes on with the rebuilt log.
    fn resume(self: &Rc<Self>, log: Log) {
        if self.state.get() == PartitionState::Offline {
            return;
        }
        let end_offset = log.end_offset();
        let flushed_offset = log.flushed_offset();
        log.assign_epoch(self.replica.borrow().leader_epoch(), end_offset);
        log.set_config(inner::log_config(&self.config.borrow()));
        self.producers.replace(log.producers());
        self.log.replace(log);
        self.next_offset.set(end_offset);
        self.reason.replace(String::new());
        self.state.set(PartitionState::Online);
        self.on(ReplicaEvent::Written { end_offset });
        self.on(ReplicaEvent::Flushed {
            offset: flushed_offset,
        });
    }
}

/// Errors that a sync cannot give, only the writing of a file.
fn is_of_side_file(kind: IoErrorKind) -> bool {
    matches!(kind, IoErrorKind::ShortWrite | IoErrorKind::TooManyFiles)
}

impl From<LoadError> for RebuildError {
    fn from(error: LoadError) -> RebuildError {
        match &error {
            LoadError::Io(io) if io.kind == IoErrorKind::Device => {
                RebuildError::Device(error.to_string())
            }
            LoadError::Io(_) | LoadError::Record(_) => RebuildError::Refused(error.to_string()),
            LoadError::Checkpoint(checkpoint) if checkpoint.is_no_space() => {
                RebuildError::Refused(error.to_string())
            }
            _ => RebuildError::Damaged(error.to_string()),
        }
    }
}

impl From<RetireError> for RebuildError {
    fn from(error: RetireError) -> RebuildError {
        match error {
            RetireError::WriteLost => RebuildError::Damaged(error.to_string()),
            RetireError::Closed => RebuildError::Refused(error.to_string()),
        }
    }
}

impl From<TruncateError> for RebuildError {
    fn from(error: TruncateError) -> RebuildError {
        match &error {
            TruncateError::Device(_) => RebuildError::Device(error.to_string()),
            TruncateError::Corrupt { .. } => RebuildError::Damaged(error.to_string()),
            TruncateError::Io(_)
            | TruncateError::Record(_)
            | TruncateError::Fenced(_)
            | TruncateError::Closed => RebuildError::Refused(error.to_string()),
        }
    }
}

/// The wait before the second rebuild in a row; it doubles from there.
const REBUILD_DELAY_MIN: Duration = Duration::from_millis(100);

/// The longest wait before a rebuild.
const REBUILD_DELAY_MAX: Duration = Duration::from_secs(10);
