//! What an unclean load starts from: a log's own checkpoint.
//!
//! A checkpoint makes durable, beside the segment that holds the recovery point, the
//! index entries below that point, the producer snapshot at it and the leader epochs.
//! Only when all of them (and their names) are durable does the recovery point move;
//! recording it in the data directory's file is the owner's next step. A crash in
//! between, or several checkpoints before it, do no harm: a load starts from the newest
//! snapshot. Should that one turn out damaged, the few kept before it take its place.
//!
//! A checkpoint runs beside appends: it notes LEO and the producers together, flushes,
//! and then works on a copy of the index entries below that LEO; so the snapshot at a
//! point is the state as of that point. It excludes sealing by `side_files`, because both write
//! the same index files.
//!
//! A close ends in the same files, for the whole log. What of them is as it should be already is
//! not written again: a log that was not touched since its load is closed without the disk. So
//! what an unclean load starts from is always there, written by the stop before if not by this.
//!
//! What it is not: it does not write the data directory's checkpoint files.

use super::index::{OffsetIndex, TimeIndex};
use super::leader_epochs::LEADER_EPOCH_FILE;
use super::log::{LogShared, SealTask};
use super::log_files::remove_if_there;
use super::producer_snapshot;
use super::producer_state::ProducerStates;
use super::segment::{Segment, SegmentPhase};
use super::{CheckpointError, Log};
use crate::runtime::{IoError, IoErrorKind, SyncSite};
use std::collections::BTreeSet;

/// What the files beside the active segment, and its own file, are known to be, durably but
/// for what is `unsynced`: so that a checkpoint and a close write only what has changed. A load
/// begins it with what it has found again; nothing is taken from a name that may still be lost.
#[derive(Debug, Default)]
pub(super) struct SideFilesWritten {
    /// The log was cut so often then: a cut writes these files itself.
    pub(super) truncations: u64,
    /// The content of the epoch file.
    pub(super) epochs: Option<Vec<u8>>,
    /// What the index files of a segment hold.
    pub(super) indexes: Option<(i64, StoredIndexes)>,
    /// A snapshot: its offset, and how many producers it holds. As of one offset producers
    /// only go, so as many are the same.
    pub(super) snapshot: Option<(i64, usize)>,
    /// A segment whose file is exactly so long.
    pub(super) exact: Option<(i64, u64)>,
    /// A file was replaced, and its name is not durable yet.
    pub(super) unsynced: bool,
}

/// What an index file holds: how many entries, and the last one of the time index. A log that
/// is not cut only adds entries, but for that one: a load drops and finds it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StoredIndexes {
    pub(super) entries: Option<usize>,
    pub(super) time_entries: Option<(usize, Option<(i64, i64)>)>,
}

impl StoredIndexes {
    pub(super) fn of(index: &OffsetIndex, time_index: &TimeIndex) -> StoredIndexes {
        StoredIndexes {
            entries: Some(index.len()),
            time_entries: Some((time_index.len(), time_index.last())),
        }
    }
}

impl Log {
    /// Flushes, then writes what an unclean load starts from (index prefix, time
    /// index, producer snapshot, epochs), durably. Returns the recovery point that
    /// may be recorded now.
    pub async fn checkpoint(&self) -> Result<i64, CheckpointError> {
        let log = &*self.0;
        let (point, producers, holder, _guards) = loop {
            let (point, producers, truncations) = {
                let state = log.state.borrow();
                let producers = state.producers.clone();
                (state.end_offset, producers, state.truncations)
            };
            self.flush_and_cut().await?;
            let io = log
                .gate
                .enter()
                .await
                .map_err(|_| CheckpointError::Closed)?;
            let side_files = log.side_files.acquire(1).await;
            let state = log.state.borrow();
            if let Some(fence) = &state.flush_fence {
                return Err(fence.error().clone().into());
            }
            // A snapshot at the end of a segment says that the segment is exact. One that
            // rolled just now is not: cut it first. And a log that was cut meanwhile may
            // hold other batches below the point.
            if state.rolled_below(point) || state.truncations != truncations {
                continue;
            }
            let mut newest_first = state.segments.iter().rev();
            let holder = newest_first.find(|s| s.base_offset < point).cloned();
            break (point, producers, holder, (io, side_files));
        };
        log.durable(log.seal().await)?;
        log.seal_task.set(SealTask::Idle);
        if let Some(segment) = holder.filter(|s| s.phase() != SegmentPhase::Sealed) {
            log.durable(log.write_indexes(&segment, point).await)?;
        }
        let sealed_to = log.state.borrow().recovery_point;
        if sealed_to > point {
            // A segment was sealed meanwhile; its snapshot proves more.
            return Ok(sealed_to);
        }
        log.durable(log.write_checkpoint_at(point, &producers).await)
    }

    /// Stops the log cleanly: refuses new work, waits for I/O in flight, flushes, cuts
    /// the active segment to its exact length, writes everything a clean load needs.
    /// Returns the final recovery point, which is LEO. After an error no clean-shutdown
    /// marker may be written.
    pub async fn close(&self) -> Result<i64, CheckpointError> {
        let log = &*self.0;
        if std::mem::replace(&mut log.state.borrow_mut().closing, true) {
            return Err(CheckpointError::Closed);
        }
        let flushed = self.flush().await;
        log.gate.close().await;
        let closed = match flushed {
            Ok(_) => log.write_final().await,
            Err(error) => Err(error.into()),
        };
        log.drop_memory();
        closed
    }
}

impl LogShared {
    /// Sorts the end of work on the files beside a segment. They are replaced whole, so
    /// a failure leaves the old ones, and the work may be tried again; but a device
    /// that failed is not trusted any more, and fences the log.
    fn durable<T>(&self, result: Result<T, IoError>) -> Result<T, CheckpointError> {
        result.map_err(|error| {
            if error.kind == IoErrorKind::Device {
                self.fence_off(error.clone().into());
            }
            error.into()
        })
    }

    /// Seals what was cut while nobody waits (see [`LogShared::seal`]).
    pub(super) async fn seal_in_background(&self) {
        let Ok(_io) = self.gate.enter().await else {
            return;
        };
        let _side_files = self.side_files.acquire(1).await;
        if self.state.borrow().flush_fence.is_some() {
            self.seal_task.set(SealTask::Failed);
            return;
        }
        let sealed = self.durable(self.seal().await);
        let task = match &sealed {
            Ok(()) => SealTask::Idle,
            Err(error) => {
                tracing::warn!("sealing in {} failed: {error}", self.dir.path().display());
                SealTask::Failed
            }
        };
        self.seal_task.set(task);
    }

    /// The last files of a log that nobody uses any more. An append that was in flight
    /// when the close began may have moved LEO past the flush: flushing comes first.
    async fn write_final(&self) -> Result<i64, CheckpointError> {
        {
            let state = self.state.borrow();
            if let Some(fence) = &state.flush_fence {
                return Err(fence.error().clone().into());
            }
            if let Some(reason) = &state.append_fence {
                return Err(CheckpointError::Fenced(reason.clone()));
            }
        }
        self.make_durable().await.map_err(super::FlushError::from)?;
        let _side_files = self.side_files.acquire(1).await;
        self.seal().await?;
        let active = self.active();
        let extent = active.extent();
        let is_exact = active.allocated() == extent.len
            && self.written(|written| written.exact == Some((active.base_offset, extent.len)));
        if !is_exact {
            let file = active.file().expect("the active segment is open");
            file.truncate(extent.len).await?;
            file.sync_data(SyncSite::SegmentSeal).await?;
        }
        active.complete_time_index();
        self.write_indexes(&active, i64::MAX).await?;
        let (end_offset, producers) = {
            let state = self.state.borrow();
            (state.end_offset, state.producers.clone())
        };
        Ok(self.write_checkpoint_at(end_offset, &producers).await?)
    }

    /// Epochs and snapshot at `point`; then the recovery point moves. The caller has
    /// written the indexes.
    async fn write_checkpoint_at(
        &self,
        point: i64,
        producers: &ProducerStates,
    ) -> Result<i64, IoError> {
        let is_new = self.write_proof(point, producers).await?;
        {
            let mut state = self.state.borrow_mut();
            state.recovery_point = state.recovery_point.max(point);
        }
        if is_new {
            self.remove_old_snapshots().await?;
        }
        Ok(point)
    }

    /// Writes the leader epochs, makes them and the names of indexes that were written
    /// durable, and only then writes the snapshot of the producers as of `point`. The
    /// snapshot proves to a load that everything below
    /// it is durable and needs no scan, epochs included; so it comes last. False if there was
    /// one already.
    pub(super) async fn write_proof(
        &self,
        point: i64,
        producers: &ProducerStates,
    ) -> Result<bool, IoError> {
        let epochs = self.state.borrow().epochs.encode();
        if self.written(|written| written.epochs.as_ref() != Some(&epochs)) {
            self.written(|written| (written.epochs, written.unsynced) = (None, true));
            self.dir
                .replace_small(LEADER_EPOCH_FILE, epochs.clone(), SyncSite::EpochCheckpoint)
                .await?;
            self.written(|written| written.epochs = Some(epochs));
        }
        if self.written(|written| written.unsynced) {
            self.dir.sync(SyncSite::PartitionDir).await?;
            self.written(|written| written.unsynced = false);
        }
        let snapshot = Some((point, producers.len()));
        if self.written(|written| written.snapshot == snapshot) {
            return Ok(false);
        }
        self.dir
            .replace_small(
                &producer_snapshot::file_name(point),
                producer_snapshot::encode(&producers.entries()),
                SyncSite::ProducerSnapshot,
            )
            .await?;
        self.dir.sync(SyncSite::PartitionDir).await?;
        self.written(|written| written.snapshot = snapshot);
        Ok(true)
    }

    /// Writes the entries below `end_offset` of both indexes, where the files hold others.
    pub(super) async fn write_indexes(
        &self,
        segment: &Segment,
        end_offset: i64,
    ) -> Result<(), IoError> {
        let (index, time_index) = segment
            .with_indexes(|index, time_index| {
                let (mut index, mut time_index) = (index.clone(), time_index.clone());
                index.truncate_to(end_offset);
                time_index.truncate_to(end_offset);
                (index, time_index)
            })
            .expect("a segment is open until it is sealed");
        let wanted = StoredIndexes::of(&index, &time_index);
        let base = segment.base_offset;
        let mut stored = match self.written(|written| written.indexes) {
            Some((of, stored)) if of == base => stored,
            _ => StoredIndexes::default(),
        };
        if stored.entries != wanted.entries {
            stored.entries = None;
            self.replace_index(segment, "index", index.encode(), stored)
                .await?;
            stored.entries = wanted.entries;
            self.written(|written| written.indexes = Some((base, stored)));
        }
        if stored.time_entries != wanted.time_entries {
            stored.time_entries = None;
            self.replace_index(segment, "timeindex", time_index.encode(), stored)
                .await?;
            self.written(|written| written.indexes = Some((base, wanted)));
        }
        Ok(())
    }

    /// Replaces one index file; `stored` is what is known of both until that is done.
    async fn replace_index(
        &self,
        segment: &Segment,
        extension: &str,
        content: Vec<u8>,
        stored: StoredIndexes,
    ) -> Result<(), IoError> {
        self.written(|written| {
            written.indexes = Some((segment.base_offset, stored));
            written.unsynced = true;
        });
        let name = segment.file_name(extension);
        self.dir
            .replace_small(&name, content, SyncSite::Index)
            .await
    }

    /// Looks at what was written beside the segments since the log was last cut.
    fn written<T>(&self, look: impl FnOnce(&mut SideFilesWritten) -> T) -> T {
        let truncations = self.state.borrow().truncations;
        let mut written = self.side_files_written.borrow_mut();
        if written.truncations != truncations {
            *written = SideFilesWritten {
                truncations,
                unsynced: true,
                ..SideFilesWritten::default()
            };
        }
        look(&mut written)
    }

    /// Keeps the newest few snapshots, and those at the base offsets of segments, from
    /// which a truncation finds the producers again. The removal is not made durable: an
    /// older snapshot that comes back is as true as it was, because a truncation below it
    /// finds a newer one to remove and makes that removal, and with it this one, durable.
    pub(super) async fn remove_old_snapshots(&self) -> Result<(), IoError> {
        let entries = self.dir.list().await?;
        let mut names: Vec<String> = entries
            .into_iter()
            .map(|entry| entry.name)
            .filter(|name| name.ends_with(".snapshot"))
            .collect();
        names.sort_unstable();
        names.truncate(names.len().saturating_sub(SNAPSHOTS_KEPT));
        {
            let state = self.state.borrow();
            let bases = state.segments.iter().map(|s| s.base_offset);
            let kept: BTreeSet<String> = bases.map(producer_snapshot::file_name).collect();
            names.retain(|name| !kept.contains(name));
        }
        for name in names {
            remove_if_there(&self.dir, &name).await?;
        }
        Ok(())
    }
}

const SNAPSHOTS_KEPT: usize = 3;
