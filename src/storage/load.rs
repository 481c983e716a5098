//! Opening the log of an existing partition.
//!
//! After a clean stop nothing is scanned but the end of the last segment, from its
//! last index entry on; otherwise `recover.rs` finds the end of the log. Sealed
//! segments are opened when they are first needed; that one of them is missing a load
//! notices by the names of files (`segment_ends.rs`), and whoever reads there otherwise.
//!
//! The directory is listed once and each small file read once: what the listing tells is not asked
//! for again. What of the files is as a stop would write it, the log remembers
//! (`checkpoint.rs`), so that a stop need not.
//!
//! The recorded log start offset explains the head: sealed segments that lie wholly below
//! it are what an interrupted removal left (`retention.rs`), and go; a first segment that
//! begins above it has lost what stood before it, which is damage. Without a record the
//! first segment is taken as it is: Apache Kafka records a log start only where it lies
//! inside a segment, and this broker records every one before it removes anything. When [`Log::open`] returns, every
//! byte of the log is durable.
//!
//! What it is not: it does not decide whether a stop was clean, and it writes no
//! checkpoint of the data directory (`data_dir.rs`).

use super::assemble::{LoadedLog, LoadedSegment};
use super::checkpoint::SideFilesWritten;
use super::compaction::read_horizon;
use super::epochs_of_batches::epochs_of_batches;
use super::index_files::open_indexes;
use super::leader_epochs::{LeaderEpochs, LEADER_EPOCH_FILE};
use super::log_files::{
    damaged, file_name, remove_if_there, LogFiles, INDEX, LOG, TIME_INDEX, TXN_INDEX,
};
use super::producer_replay::producers_at;
use super::recover::{remove_beyond, Recovery, RecoveryStart, ScannedSegment};
use super::segment::MAX_TIMESTAMP_UNKNOWN;
use super::segment_ends::check_ends;
use super::small_file::{read_or_set_aside, Belief, SmallFile};
use super::{LoadError, Log, LogConfig, Storage};
use crate::runtime::{Dir, OpenMode, SyncSite};
use std::time::Duration;

/// How to open a log: what the data directory says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadMode {
    /// The broker was stopped cleanly: nothing below the end needs a look.
    pub clean: bool,
    /// The recovery point, as the checkpoint has it.
    pub recovery_point: Option<i64>,
    /// The log start offset, as the checkpoint has it.
    pub log_start: Option<i64>,
    /// An offset below which everything was flushed at some time. A log that ends below it has
    /// lost records: what stands beyond its end is not cut.
    pub flushed: Option<i64>,
    /// The first offset that was not compacted, as the cleaner's checkpoint has it. A line
    /// there, whatever it says, means that offsets below the end may have gaps.
    pub cleaned_to: Option<i64>,
}

/// What a load did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadReport {
    /// Bytes of batches that were read and checked because nothing proves them flushed:
    /// what was written since the last checkpoint, and up to one index interval before.
    pub scanned_bytes: u64,
    /// Bytes of segments that were read because what a checkpoint or a clean stop had left
    /// of them (indexes, snapshot, epochs) could not be used.
    pub rebuilt_bytes: u64,
    /// Bytes read at the ends of sealed segments, where names hint at a missing one.
    pub ends_bytes: u64,
    /// Segment files that were opened.
    pub segments_opened: usize,
    /// Bytes that were cut or removed because they were no valid batches (zeros that
    /// were merely preallocated not counted).
    pub truncated_bytes: u64,
    /// Segments of the log.
    pub segments: usize,
    /// The offset from which on batches were not known to be durable; LEO after a
    /// clean stop.
    pub recovered_from: i64,
    /// Segments whose indexes had to be rebuilt by reading them.
    pub indexes_rebuilt: usize,
    /// How long it took.
    pub took: Duration,
}

impl Log {
    /// Opens the log of an existing partition, recovering it if the broker was not
    /// stopped cleanly. Afterwards every byte of it is durable.
    pub async fn open(
        storage: &Storage,
        dir: Dir,
        config: LogConfig,
        mode: LoadMode,
    ) -> Result<(Log, LoadReport), LoadError> {
        let rt = storage.rt().clone();
        let started = rt.now();
        let gaps = config.compacted || mode.cleaned_to.is_some();
        let mut files = LogFiles::clean_up(&rt, &dir, gaps).await?;
        if let Some(log_start) = mode.log_start {
            check_head(&dir, &files, log_start)?;
            remove_expired_head(&dir, &mut files, log_start, mode.clean).await?;
        }
        let epochs_on_disk = read_epochs(&dir).await?;
        let mut load = Load {
            epochs: epochs_on_disk.clone().unwrap_or_default(),
            epochs_known: epochs_on_disk.is_some(),
            storage,
            dir: &dir,
            config,
            mode,
            files,
            report: LoadReport::default(),
        };
        let mut scanned = load.segments().await?;
        let end = scanned.last().map_or(0, |s| s.scan.next_offset);
        let first = scanned.first().map_or(0, |s| s.base_offset);
        let first = load.files.segments.keys().next().map_or(first, |b| *b);
        let mut log_start = mode.log_start.unwrap_or(first).max(first);
        if end < log_start {
            scanned = vec![load.start_over(log_start, end).await?];
        }
        log_start = log_start.max(load.files.segments.keys().next().map_or(0, |b| *b));
        if load.epochs.truncate_from_start(log_start)
            || epochs_on_disk.as_ref() != Some(&load.epochs)
        {
            load.write_epochs().await?;
        }
        let mut report = load.report;
        let log = load.assemble(scanned, log_start).await?;
        if mode.cleaned_to.is_some() {
            log.0.recycler.end();
            log.0.delete_horizon.set(read_horizon(&log.0.dir).await?);
        }
        let read_bytes = report.scanned_bytes + report.rebuilt_bytes;
        if read_bytes >= RECHECKPOINT_BYTES && !mode.clean {
            log.checkpoint().await.map_err(LoadError::Checkpoint)?;
        }
        report.segments = log.segment_count();
        report.took = rt.now().since(started);
        Ok((log, report))
    }
}

/// A load on its way.
struct Load<'a> {
    storage: &'a Storage,
    dir: &'a Dir,
    config: LogConfig,
    mode: LoadMode,
    files: LogFiles,
    epochs: LeaderEpochs,
    /// They were in the file.
    epochs_known: bool,
    report: LoadReport,
}

impl Load<'_> {
    /// Whether offsets may be missing between the batches: only where the log is, or once was,
    /// compacted.
    fn may_have_gaps(&self) -> bool {
        self.config.compacted || self.mode.cleaned_to.is_some()
    }

    /// The segments that had to be looked at, the last one last.
    async fn segments(&mut self) -> Result<Vec<ScannedSegment>, LoadError> {
        match (self.files.segments.is_empty(), self.mode.clean) {
            (true, _) => {
                let proven = self.files.newest_proof(self.dir).await?;
                let flushed = proven.max(self.mode.recovery_point);
                if let Some(point) = flushed.filter(|point| *point > 0) {
                    let detail = format!("there are no segments, but {point} offsets were flushed");
                    return Err(damaged(self.dir, "", 0, &detail));
                }
                let base = self.mode.log_start.unwrap_or(0);
                self.report.recovered_from = base;
                Ok(vec![self.create_segment(base).await?])
            }
            (false, true) => {
                let (last_base, _) = self.files.segments.last_key_value().expect("a segment");
                self.find_lost_epochs(*last_base).await?;
                match self.last_after_clean_stop().await? {
                    Some(last) => {
                        self.check_ends(last.base_offset).await?;
                        Ok(vec![last])
                    }
                    None => self.recovered().await,
                }
            }
            (false, false) => self.recovered().await,
        }
    }

    /// Finds the end of a log that was not stopped cleanly.
    async fn recovered(&mut self) -> Result<Vec<ScannedSegment>, LoadError> {
        let point = self.mode.recovery_point;
        let now_ms = self.storage.rt().wall_clock_ms();
        let found = RecoveryStart::find(self.dir, &self.files, point, now_ms);
        let (start, producers) = found.await?;
        // Before anything is changed: a damaged log is left as it is.
        self.check_ends(start.segment).await?;
        // Recovery reads the epochs of what it scans; unless that is all, the rest
        // of them is in the file.
        if start.proven > *self.files.segments.keys().next().expect("a segment") {
            self.find_lost_epochs(start.proven).await?;
        }
        let mut recovery = Recovery {
            rt: self.storage.rt(),
            dir: self.dir,
            counters: self.storage.counters(),
            index_interval_bytes: self.config.index_interval_bytes,
            recovery_point: point.unwrap_or(0),
            flushed: self.mode.flushed.unwrap_or(0),
            files: std::mem::take(&mut self.files),
            report: self.report,
            producers,
            gaps: self.may_have_gaps(),
            cleaned_to: self.mode.cleaned_to,
        };
        let scanned = recovery.run(start, &mut self.epochs).await?;
        self.files = recovery.files;
        self.report = recovery.report;
        Ok(scanned)
    }

    /// Reads the epochs from the batches if their file cannot be used. Everything below
    /// `proven` is durable.
    async fn find_lost_epochs(&mut self, proven: i64) -> Result<(), LoadError> {
        if self.epochs_known {
            return Ok(());
        }
        let rt = self.storage.rt();
        let interval = self.config.index_interval_bytes;
        let found = epochs_of_batches(
            rt,
            self.dir,
            &self.files,
            interval,
            self.may_have_gaps(),
            proven,
        )
        .await?;
        tracing::warn!(
            "{} was lost; {} epochs were read from the batches",
            self.dir.path().join(LEADER_EPOCH_FILE).display(),
            found.0.entries().len()
        );
        self.epochs = found.0;
        self.report.rebuilt_bytes += found.1;
        self.report.segments_opened += self.files.segments.len();
        Ok(())
    }

    async fn check_ends(&mut self, below: i64) -> Result<(), LoadError> {
        let checked = check_ends(
            self.storage.rt(),
            self.dir,
            &self.files,
            self.may_have_gaps(),
            below,
        )
        .await?;
        self.report.ends_bytes += checked.bytes;
        self.report.segments_opened += checked.opened;
        Ok(())
    }

    /// Opens the last segment, which a clean stop left exact and durable. `None` if all that
    /// it held then is there, but something that is no batch follows: that is cut as after
    /// an unclean stop.
    async fn last_after_clean_stop(&mut self) -> Result<Option<ScannedSegment>, LoadError> {
        let (base, files) = self.files.segments.last_key_value().expect("a segment");
        let base = *base;
        let name = file_name(base, LOG);
        let file = self.dir.open(&name, OpenMode::ReadWrite).await?;
        let size = files.log_bytes;
        let rt = self.storage.rt();
        let interval = self.config.index_interval_bytes;
        let indexed = open_indexes(
            rt,
            self.dir,
            &file,
            base,
            size,
            interval,
            self.may_have_gaps(),
        )
        .await?;
        let scan = indexed.scan;
        self.report.segments_opened += 1;
        match indexed.rebuilt {
            true => self.report.rebuilt_bytes += scan.scanned_bytes,
            false => self.report.scanned_bytes += scan.scanned_bytes,
        }
        self.report.indexes_rebuilt = usize::from(indexed.rebuilt);
        self.report.recovered_from = scan.next_offset;
        let newest = self.files.snapshots.last();
        let proven = match newest.is_some_and(|offset| *offset > scan.next_offset) {
            true => self.files.newest_proof(self.dir).await?,
            false => None,
        };
        let flushed = self.mode.recovery_point.max(proven);
        if let Some(point) = flushed.filter(|point| *point > scan.next_offset) {
            let mut detail = format!(
                "it ends at offset {}, but {point} was flushed",
                scan.next_offset
            );
            if let Some(bad) = &scan.bad {
                detail = format!("{detail}: {}", bad.detail);
            }
            return Err(damaged(self.dir, &name, scan.len, &detail));
        }
        if let Some(bad) = &scan.bad {
            // Without either nobody knows how much there was.
            if self.mode.recovery_point.is_none() && newest.is_none() {
                return Err(damaged(self.dir, &name, bad.position, &bad.detail));
            }
            tracing::warn!(
                "{} was changed since the clean stop: {}",
                self.dir.path().join(&name).display(),
                bad.detail
            );
            return Ok(None);
        }
        for (epoch, offset) in &scan.epochs {
            if self
                .epochs
                .latest()
                .is_none_or(|latest| latest.epoch < *epoch)
            {
                self.epochs.assign(*epoch, *offset);
            }
        }
        let end = scan.next_offset;
        let gaps = self.may_have_gaps();
        let producers = producers_at(rt, self.dir, &self.files, end, gaps).await?;
        self.report.rebuilt_bytes += producers.scanned_bytes;
        self.report.segments_opened += producers.segments_opened;
        Ok(Some(ScannedSegment {
            base_offset: base,
            file,
            scan,
            producers: producers.states,
            stored: indexed.stored,
            has_snapshot: producers.by_snapshot,
        }))
    }

    /// The log ends below its start (everything was expired or deleted, and the end
    /// was lost): drops all of it. The new segment is there before the old ones go, so
    /// that a crash between leaves a gap, which the next load ends the same way.
    async fn start_over(&mut self, log_start: i64, end: i64) -> Result<ScannedSegment, LoadError> {
        tracing::warn!(
            "{} ends at offset {end}, below its log start offset {log_start}; starting over there",
            self.dir.path().display()
        );
        remove_beyond(self.dir, &mut self.files, i64::MAX - 1, -1).await?;
        let segment = self.create_segment(log_start).await?;
        let mut old = std::mem::take(&mut self.files);
        self.files.segments = old.segments.split_off(&log_start);
        self.report.truncated_bytes += old.segments.values().map(|f| f.log_bytes).sum::<u64>();
        remove_beyond(self.dir, &mut old, -1, -1).await?;
        self.epochs = LeaderEpochs::new();
        Ok(segment)
    }

    /// Creates an empty segment, its name durable.
    async fn create_segment(&mut self, base: i64) -> Result<ScannedSegment, LoadError> {
        let mode = OpenMode::CreateNew;
        let file = self.dir.open(&file_name(base, LOG), mode).await?;
        self.dir.sync(SyncSite::SegmentCreate).await?;
        self.files.segments.insert(base, Default::default());
        Ok(ScannedSegment::empty(base, file))
    }

    async fn write_epochs(&self) -> Result<(), LoadError> {
        let content = self.epochs.encode();
        self.dir
            .replace_small(LEADER_EPOCH_FILE, content, SyncSite::EpochCheckpoint)
            .await?;
        Ok(self.dir.sync(SyncSite::PartitionDir).await?)
    }

    async fn assemble(
        self,
        mut scanned: Vec<ScannedSegment>,
        log_start: i64,
    ) -> Result<Log, LoadError> {
        let ScannedSegment {
            base_offset,
            file,
            scan,
            producers,
            stored,
            has_snapshot,
        } = scanned.pop().expect("at least one segment");
        let tail = scan.last_block(&file).await?;
        let mut segments = Vec::new();
        for (base, files) in self.files.segments.range(..base_offset) {
            let found = scanned.iter().find(|s| s.base_offset == *base);
            segments.push(LoadedSegment {
                base_offset: *base,
                next_offset: self.files.base_after(*base).expect("a later segment"),
                len: found.map_or(files.log_bytes, |s| s.scan.len),
                allocated: found.map_or(files.log_bytes, |s| s.scan.len),
                first_batch_timestamp: None,
                max_timestamp: found.map_or(MAX_TIMESTAMP_UNKNOWN, |s| s.scan.max_timestamp),
                open: None,
            });
        }
        // Nothing is at work in the directory, and its names are durable by now.
        let side_files = SideFilesWritten {
            epochs: Some(self.epochs.encode()),
            indexes: Some((base_offset, stored)),
            snapshot: has_snapshot.then(|| (scan.next_offset, producers.len())),
            exact: Some((base_offset, scan.len)),
            ..SideFilesWritten::default()
        };
        segments.push(LoadedSegment {
            base_offset,
            next_offset: scan.next_offset,
            len: scan.len,
            allocated: scan.len,
            first_batch_timestamp: scan.first_batch_timestamp,
            max_timestamp: scan.max_timestamp,
            open: Some((file, scan.index, scan.time_index)),
        });
        Ok(Log::assemble(LoadedLog {
            storage: self.storage.clone(),
            dir: self.dir.clone(),
            config: self.config,
            log_start_offset: log_start,
            recovery_point: self.report.recovered_from.min(scan.next_offset),
            segments,
            tail,
            epochs: self.epochs,
            producers,
            // A log that was cut meanwhile is not compacted beyond its end.
            cleaned_to: self.mode.cleaned_to.map(|to| to.min(scan.next_offset)),
            side_files,
        }))
    }
}

/// Refuses a log whose first segment begins above the recorded log start.
fn check_head(dir: &Dir, files: &LogFiles, log_start: i64) -> Result<(), LoadError> {
    match files.segments.keys().next() {
        Some(first) if *first > log_start => {
            let detail = format!(
                "offsets {log_start} to {} are missing before it; restore them, or, to go on \
                 without them, remove the partition's line from log-start-offset-checkpoint",
                first - 1
            );
            Err(damaged(dir, &file_name(*first, LOG), 0, &detail))
        }
        _ => Ok(()),
    }
}

/// Finishes an interrupted removal: sealed segments that end at or below the recorded log
/// start go. One that is not sealed is read by the recovery first, for its epochs and
/// producers, and goes when the log is in use. Not made durable: the record makes any
/// later load repeat it.
async fn remove_expired_head(
    dir: &Dir,
    files: &mut LogFiles,
    log_start: i64,
    clean: bool,
) -> Result<(), LoadError> {
    let first_left = |below: i64| files.segments.range(..=below).next_back();
    if first_left(log_start).map(|(base, _)| base) <= files.segments.keys().next() {
        return Ok(());
    }
    let sealed_to = match clean {
        true => i64::MAX,
        false => files.newest_proof(dir).await?.unwrap_or(-1),
    };
    let Some((kept, _)) = first_left(log_start.min(sealed_to)) else {
        return Ok(());
    };
    let kept = *kept;
    let left = files.segments.split_off(&kept);
    let expired = std::mem::replace(&mut files.segments, left);
    for base in expired.keys() {
        for extension in [INDEX, TIME_INDEX, TXN_INDEX, LOG] {
            remove_if_there(dir, &file_name(*base, extension)).await?;
        }
    }
    if !expired.is_empty() {
        let bytes: u64 = expired.values().map(|f| f.log_bytes).sum();
        tracing::info!(
            "removed {} segments of {bytes} bytes below the log start offset {log_start} of {}",
            expired.len(),
            dir.path().display()
        );
    }
    Ok(())
}

/// Reads the leader-epoch checkpoint. `None` if there is none that can be used: the
/// epochs are then read from the batches.
async fn read_epochs(dir: &Dir) -> Result<Option<LeaderEpochs>, LoadError> {
    let (name, belief) = (LEADER_EPOCH_FILE, Belief::ReadTwice);
    let parse = LeaderEpochs::parse;
    match read_or_set_aside(dir, name, EPOCH_FILE_BYTES_MAX, belief, parse).await? {
        SmallFile::Read(epochs) => Ok(Some(epochs)),
        SmallFile::Malformed(error) => {
            let path = dir.path().join(name);
            tracing::warn!("{} is malformed and not used: {error}", path.display());
            Ok(None)
        }
        SmallFile::Missing | SmallFile::Unusable(_) => Ok(None),
    }
}

/// A recovery that read more than this writes a checkpoint at once, so that the next
/// one does not read it again.
const RECHECKPOINT_BYTES: u64 = 1 << 20;
const EPOCH_FILE_BYTES_MAX: u64 = 64 << 20;
