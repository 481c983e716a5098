//! The checkpoint files of the data directories and when they are written: the control
//! executor is the one writer of them all.
//!
//! A shard sends the lines of its partitions; each belongs to a directory, whose files are
//! replaced whole when something in them has changed. What fails to be written for want of
//! space is written again later; any other failure takes that directory offline.

use super::control::METADATA_TOPIC;
use super::directories::Directory;
use super::messages::CheckpointLine;
use super::{Control, ControlError};
use crate::controller::ControllerFault;
use crate::protocol::ErrorCode;
use crate::storage::{DataDir, DataDirError};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Which files of a directory lag behind.
pub(super) struct Dirty {
    recovery_points: Cell<bool>,
    high_watermarks: Cell<bool>,
    log_starts: Cell<bool>,
    cleaner_points: Cell<bool>,
}

impl Dirty {
    /// The files may still name topics that were deleted just before a crash.
    pub fn all() -> Dirty {
        Dirty {
            recovery_points: Cell::new(true),
            high_watermarks: Cell::new(true),
            log_starts: Cell::new(true),
            cleaner_points: Cell::new(true),
        }
    }

    fn set_all(&self) {
        self.recovery_points.set(true);
        self.high_watermarks.set(true);
        self.log_starts.set(true);
        self.cleaner_points.set(true);
    }

    fn any(&self) -> bool {
        self.recovery_points.get()
            || self.high_watermarks.get()
            || self.log_starts.get()
            || self.cleaner_points.get()
    }
}

impl Control {
    /// Takes over what shards say of partitions.
    pub(super) fn merge(&self, lines: Vec<CheckpointLine>) {
        let image = self.0.controller.image();
        let mut all = self.0.lines.borrow_mut();
        for line in lines {
            // A late line of a deleted topic must not speak for its successor.
            if image.topic_by_id(&line.key.topic_id).is_none() {
                continue;
            }
            let dirty = &self.0.dirs.get(line.dir).dirty;
            let entry = all
                .entry((line.topic.clone(), line.key.index))
                .or_insert_with(|| {
                    CheckpointLine::of_nothing(line.key, line.topic.clone(), line.dir)
                });
            // A log start never falls; a line that was sent earlier may come later.
            let log_start = match entry.key == line.key {
                true => line.log_start.max(entry.log_start),
                false => line.log_start,
            };
            entry.key = line.key;
            entry.dir = line.dir;
            put(
                &mut entry.recovery_point,
                line.recovery_point,
                &dirty.recovery_points,
            );
            put(
                &mut entry.high_watermark,
                line.high_watermark,
                &dirty.high_watermarks,
            );
            put(&mut entry.log_start, log_start, &dirty.log_starts);
            put(
                &mut entry.cleaned_to,
                line.cleaned_to,
                &dirty.cleaner_points,
            );
        }
        drop(all);
        self.0.lines_changed.notify_all();
    }

    /// Forgets the lines of deleted topics, and writes the files without them.
    pub(super) async fn drop_lines(&self, deleted: impl Fn(&CheckpointLine) -> bool) {
        self.0.lines.borrow_mut().retain(|_, line| !deleted(line));
        self.0.lines_held.borrow_mut().retain(|line| !deleted(line));
        for (_, directory) in self.0.dirs.all() {
            directory.dirty.set_all();
        }
        self.0.lines_owed.set(true);
        if self.write_all().await.is_err() {
            self.0.lines_changed.notify_all();
        }
    }

    /// Lines of deleted topics that are still on the disk would speak for new topics of
    /// their names.
    pub(super) async fn drop_lines_owed(&self) -> Result<(), ControllerFault> {
        if !self.0.lines_owed.get() {
            return Ok(());
        }
        self.write_all().await.map_err(|error| {
            ControllerFault::new(
                ErrorCode::KafkaStorageError,
                format!("no topic can be created before the checkpoint files are written without those that were deleted: {error}"),
            )
        })
    }

    /// Writes what changes, now and then, until the broker stops.
    pub(super) async fn write_checkpoints(&self) {
        loop {
            self.0
                .lines_changed
                .wait_until(|| self.dirty() || self.0.stopping.get())
                .await;
            if self.0.stopping.get() {
                return;
            }
            if self.write_all().await.is_err() && self.failure().is_some() {
                return;
            }
            self.0.rt.sleep(self.0.checkpoint_pause).await;
        }
    }

    fn dirty(&self) -> bool {
        self.0.dirs.online().any(|(_, d, _)| d.dirty.any()) || self.metadata_point_moved()
    }

    fn metadata_point_moved(&self) -> bool {
        self.0.metadata_point.get() != Some(self.0.controller.recovery_point())
    }

    /// Makes a new log start durable. Those that come while a write is under way share
    /// the next.
    pub(super) async fn record_log_start(&self, line: CheckpointLine) -> Result<(), ControlError> {
        let dir = line.dir;
        self.merge(vec![line]);
        let _writing = self.0.writing.acquire(1).await;
        let written = match self.usable(dir) {
            Ok((directory, data)) => self.write_log_starts(dir, directory, data).await,
            Err(error) => Err(error),
        };
        self.judge(dir, written)
    }

    /// Makes durable how far a log was compacted; shared as log starts are.
    pub(super) async fn record_cleaned(&self, line: CheckpointLine) -> Result<(), ControlError> {
        let dir = line.dir;
        self.merge(vec![line]);
        let _writing = self.0.writing.acquire(1).await;
        let written = match self.usable(dir) {
            Ok((directory, data)) => self.write_cleaner_points(dir, directory, data).await,
            Err(error) => Err(error),
        };
        self.judge(dir, written)
    }

    fn usable(&self, dir: usize) -> Result<(&Directory, &DataDir), ControlError> {
        let mut online = self.0.dirs.online();
        let found = online.find(|(at, _, _)| *at == dir);
        let found = found.map(|(_, directory, data)| (directory, data));
        found.ok_or_else(|| {
            let failure = self.0.dirs.get(dir).failure().unwrap_or_default();
            ControlError::NotClean(vec![failure])
        })
    }

    /// Writes the files that have changed, of every directory. One write at a time. An
    /// error is of the directory with the metadata log, or the want of space.
    pub(super) async fn write_all(&self) -> Result<(), ControlError> {
        let _writing = self.0.writing.acquire(1).await;
        let mut outcome = Ok(());
        for (dir, directory, data) in self.0.dirs.online() {
            let written = self.write_dir(dir, directory, data).await;
            if let Err(error) = self.judge(dir, written) {
                if wants_space(&error) || dir == self.0.dirs.metadata().0 {
                    outcome = Err(error);
                }
            }
        }
        outcome?;
        self.0.lines_owed.set(false);
        if self.0.wants_space.replace(false) {
            tracing::info!("there is space: the checkpoints are written");
        }
        Ok(())
    }

    async fn write_dir(
        &self,
        dir: usize,
        directory: &Directory,
        data: &DataDir,
    ) -> Result<(), ControlError> {
        let dirty = &directory.dirty;
        let holds_metadata = dir == self.0.dirs.metadata().0;
        if dirty.recovery_points.replace(false) || (holds_metadata && self.metadata_point_moved()) {
            let mut points = self.column(dir, |line| line.recovery_point);
            let point = self.0.controller.recovery_point();
            if holds_metadata {
                // Without it every start after a crash would re-read the whole log.
                points.insert((METADATA_TOPIC.to_string(), 0), point);
            }
            let written = data.write_recovery_points(&points).await;
            still_dirty(&dirty.recovery_points, &written);
            written?;
            if holds_metadata {
                self.0.metadata_point.set(Some(point));
            }
        }
        if dirty.high_watermarks.replace(false) {
            let watermarks = self.column(dir, |line| line.high_watermark);
            let written = data.write_high_watermarks(&watermarks).await;
            still_dirty(&dirty.high_watermarks, &written);
            written?;
        }
        self.write_log_starts(dir, directory, data).await?;
        self.write_cleaner_points(dir, directory, data).await
    }

    /// The caller is the one who writes.
    async fn write_log_starts(
        &self,
        dir: usize,
        directory: &Directory,
        data: &DataDir,
    ) -> Result<(), ControlError> {
        let dirty = &directory.dirty.log_starts;
        if dirty.replace(false) {
            let starts = self.column(dir, |line| line.log_start);
            let written = data.write_log_starts(&starts).await;
            still_dirty(dirty, &written);
            written?;
        }
        Ok(())
    }

    /// The caller is the one who writes.
    async fn write_cleaner_points(
        &self,
        dir: usize,
        directory: &Directory,
        data: &DataDir,
    ) -> Result<(), ControlError> {
        let dirty = &directory.dirty.cleaner_points;
        if dirty.replace(false) {
            let points = self.column(dir, |line| line.cleaned_to);
            let written = data.write_cleaner_points(&points).await;
            still_dirty(dirty, &written);
            written?;
        }
        Ok(())
    }

    fn column(
        &self,
        dir: usize,
        pick: fn(&CheckpointLine) -> Option<i64>,
    ) -> BTreeMap<(String, i32), i64> {
        let (lines, held) = (self.0.lines.borrow(), self.0.lines_held.borrow());
        let lines = lines.values().chain(held.iter());
        let picked = lines
            .filter(|line| line.dir == dir)
            .filter_map(|line| Some(((line.topic.clone(), line.key.index), pick(line)?)));
        picked.collect()
    }

    /// A checkpoint file was not written. It is replaced whole, so for want of space it
    /// keeps what it held, and is written again when there is some.
    fn judge(&self, dir: usize, written: Result<(), ControlError>) -> Result<(), ControlError> {
        let error = match written {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if !wants_space(&error) {
            self.directory_failed(dir, &error.to_string());
        } else if !self.0.wants_space.replace(true) {
            tracing::warn!(%error, "checkpoints wait for space; until then a restart after a crash reads more");
        }
        Err(error)
    }
}

fn wants_space(error: &ControlError) -> bool {
    matches!(
        error,
        ControlError::DataDir(DataDirError::Io(io)) | ControlError::Io(io) if io.is_no_space()
    )
}

/// A write that failed is still to be done: whoever waits to share it must not take it
/// for done.
fn still_dirty<E>(dirty: &Cell<bool>, written: &Result<(), E>) {
    if written.is_err() {
        dirty.set(true);
    }
}

fn put(slot: &mut Option<i64>, value: Option<i64>, dirty: &Cell<bool>) {
    if value.is_some() && *slot != value {
        *slot = value;
        dirty.set(true);
    }
}
