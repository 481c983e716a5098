//! Cutting damaged logs of a broker that does not run, for `log repair`.
//!
//! A log ends at its first damaged batch: whatever follows it goes, because a log of Kafka's
//! has no holes. [`RepairDir::look`] only reads and says what would go; [`RepairDir::apply`]
//! does it, in an order in which a crash leaves what another look finds and finishes: the
//! clean-shutdown marker and the checkpoints' lines first, then snapshots and later segments
//! (`recover.rs`), then the cut, then epochs and indexes, each durable before the next.
//!
//! What a stop in mid-work left behind the last batch is no damage: the next start cuts it.
//!
//! What it is not: it repairs no bytes, and asks nobody else for them.

use super::checkpoint_file::{self, Checkpoint};
use super::data_dir::{
    read_checkpoint, take_clean_marker, CLEANER_FILE, CLEAN_MARKER_FILE, HIGH_WATERMARK_FILE,
    LOCK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE,
};
use super::index_files::write_indexes;
use super::inspect::{IndexCheck, InspectError};
use super::leader_epochs::{LeaderEpochs, LEADER_EPOCH_FILE};
use super::log_files::{file_name, remove_if_there, LogFiles, INDEX, LOG, TIME_INDEX};
use super::recover::remove_beyond;
use super::scan::{scan_segment, BatchOrder, BatchScanner, ScanStart, ScanStep, ScannedBatch};
use super::segment_end::{BatchesEnd, Proof, SegmentEnd};
use super::small_file::{read_small_file, Belief, SmallFile};
use super::{DataDirError, LoadError, PartitionName};
use crate::runtime::{Dir, DirLock, IoError, IoErrorKind, OpenMode, Rt, SyncSite};
use std::path::{Path, PathBuf};

/// A data directory whose broker does not run, locked.
pub struct RepairDir {
    rt: Rt,
    dir: Dir,
    _lock: DirLock,
    /// Partitions with a directory, in order of their names.
    partitions: Vec<PartitionName>,
}

/// What is wrong with one partition's log, and what a repair does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepairPlan {
    /// Where the log is cut, if it is.
    pub cut: Option<Cut>,
    /// Complete segments with bytes behind their last batch: base offset, bytes that stay.
    pub trims: Vec<(i64, u64)>,
    /// Base offsets of the segments whose indexes are written anew.
    pub indexes: Vec<i64>,
    /// What no cut repairs: a sentence.
    pub beyond_repair: Option<String>,
}

/// A cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The file with the damage.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub position: u64,
    /// What is wrong there.
    pub detail: String,
    /// Where the log ends then.
    pub end_offset: i64,
    /// The base offset of the segment that is the last one then, and its bytes.
    last: (i64, u64),
    /// What goes.
    pub lost: Lost,
}

/// What a cut takes away, as far as it can still be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Bytes of files.
    pub bytes: u64,
    /// Batches whose header could be read, the damaged ones among them.
    pub batches: u64,
    /// Their records, as the headers say.
    pub records: u64,
    /// The last offset of the last of them.
    pub last_offset: Option<i64>,
    /// Their smallest and largest timestamps, milliseconds.
    pub timestamps: Option<(i64, i64)>,
}

/// Why a data directory cannot be looked at or repaired.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RepairError {
    /// A broker runs on it.
    #[error("{} is in use by another process; stop that broker first", .0.display())]
    InUse(PathBuf),
    /// It is no data directory.
    #[error("{} is no data directory: it has no meta.properties", .0.display())]
    NoDataDir(PathBuf),
    /// A file cannot be read or written. The repair may be tried again.
    #[error("{0}")]
    Io(#[from] IoError),
    /// The same.
    #[error("{0}")]
    Inspect(#[from] InspectError),
    /// The same.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The same.
    #[error("{0}")]
    DataDir(#[from] DataDirError),
}

impl RepairPlan {
    /// Nothing is wrong.
    pub fn is_empty(&self) -> bool {
        *self == RepairPlan::default()
    }

    /// Bytes of the log go.
    pub fn cuts(&self) -> bool {
        self.cut.is_some() || !self.trims.is_empty()
    }
}

impl Lost {
    fn add(&mut self, batch: &ScannedBatch) {
        self.batches += 1;
        self.records += batch.fields.record_count.max(0) as u64;
        let last = batch.header.last_offset;
        self.last_offset = Some(self.last_offset.map_or(last, |other| other.max(last)));
        let largest = batch.header.max_timestamp;
        if largest >= 0 {
            let first = batch.fields.base_timestamp;
            let (from, to) = self.timestamps.unwrap_or((first, largest));
            self.timestamps = Some((from.min(first), to.max(largest)));
        }
    }
}

impl RepairDir {
    /// Takes a data directory's lock. Changes nothing in it.
    pub async fn lock(rt: &Rt, path: &Path) -> Result<RepairDir, RepairError> {
        let dir = rt.dir(path);
        let entries = match dir.exists().await? {
            true => dir.list().await?,
            false => Vec::new(),
        };
        if !entries.iter().any(|e| e.name == "meta.properties") {
            return Err(RepairError::NoDataDir(path.to_owned()));
        }
        let lock = match dir.lock(LOCK_FILE).await {
            Err(e) if e.kind == IoErrorKind::AlreadyExists => {
                return Err(RepairError::InUse(path.to_owned()));
            }
            other => other?,
        };
        let dirs = entries.iter().filter(|e| e.is_dir);
        let mut partitions: Vec<PartitionName> =
            dirs.filter_map(|e| PartitionName::parse(&e.name)).collect();
        partitions.sort();
        Ok(RepairDir {
            rt: rt.clone(),
            dir,
            _lock: lock,
            partitions,
        })
    }

    /// The partitions that have a directory.
    pub fn partitions(&self) -> &[PartitionName] {
        &self.partitions
    }

    /// Reads a partition's log, and says what is wrong. Changes nothing.
    pub async fn look(&self, name: &PartitionName) -> Result<RepairPlan, RepairError> {
        let dir = self.dir.subdir(&name.to_string());
        let files = LogFiles::list(&dir).await?;
        let mut plan = RepairPlan::default();
        if files.interrupted().any(|name| name.ends_with(".swap")) {
            let sentence = "a compaction was interrupted; start the broker once, which finishes it";
            plan.beyond_repair = Some(sentence.to_owned());
            return Ok(plan);
        }
        let clean = self.dir.list().await?;
        let clean = clean.iter().any(|e| e.name == CLEAN_MARKER_FILE);
        let proven = files.newest_proof(&dir).await?;
        // Segments that lie wholly below the log start go at the next start, unread.
        let log_start = self.recorded(LOG_START_FILE, name).await?;
        let live = files.segments.range(..=log_start).next_back();
        let live = live.map_or(0, |(base, _)| *base);
        let Some((first, _)) = files.segments.range(live..).next() else {
            return Ok(plan);
        };
        let cleaned_to = self.cleaned_to(name).await?;
        let proof = Proof {
            proven: proven.unwrap_or(*first).max(*first),
            by_snapshot: proven.is_some(),
            flushed: self.recorded(HIGH_WATERMARK_FILE, name).await?,
            gaps: cleaned_to.is_some(),
            cleaned_to,
        };
        let mut order = BatchOrder::new(*first, *first, -1, proof.gaps);
        for (base, found) in files.segments.range(live..) {
            let file_name = file_name(*base, LOG);
            let path = dir.path().join(&file_name);
            let size = found.log_bytes;
            if let Some(cut) = &mut plan.cut {
                self.count_lost(&dir, &file_name, 0, size, &mut cut.lost)
                    .await?;
                continue;
            }
            order.enter(*base);
            let next = files.base_after(*base);
            let sealed = clean || next.is_some_and(|next| Some(next) <= proven);
            let mut indexes = IndexCheck::read(&dir, *base, sealed, found).await?;
            let file = dir.open(&file_name, OpenMode::Read).await?;
            let mut scanner = BatchScanner::new(&self.rt, &file, 0, size);
            let mut position = 0;
            let bad = loop {
                match scanner.next_in_order(&mut order).await? {
                    ScanStep::End => break None,
                    ScanStep::Bad(bad) => break Some(bad.detail),
                    ScanStep::Batch(batch) => {
                        indexes.on_batch(&batch);
                        position = batch.position + u64::from(batch.header.len);
                    }
                }
            };
            if bad.is_none() {
                indexes.finish();
                if !indexes.problems.is_empty() {
                    plan.indexes.push(*base);
                }
            }
            let end = proof.judge(&BatchesEnd {
                offset: order.end(),
                len: position,
                bad: bad.as_deref(),
                next_base: next,
            });
            let detail = match end {
                SegmentEnd::GoesOn => continue,
                // Where it was not sealed, a start cuts it.
                SegmentEnd::Unsealed => {
                    if sealed {
                        plan.trims.push((*base, position));
                    }
                    continue;
                }
                // A start cuts what follows; but a clean stop leaves nothing to cut.
                SegmentEnd::EndOfLog if !clean => break,
                SegmentEnd::EndOfLog => match (bad, next) {
                    (None, None) => break,
                    (Some(detail), _) => detail,
                    (None, Some(_)) => format!("the log ends at offset {}", order.end()),
                },
                SegmentEnd::Damage(detail) => detail,
            };
            let mut cut = Cut {
                file: path,
                position,
                detail,
                end_offset: order.end(),
                last: (*base, position),
                lost: Lost::default(),
            };
            self.count_lost(&dir, &file_name, position, size, &mut cut.lost)
                .await?;
            plan.cut = Some(cut);
        }
        if let Some(cut) = plan.cut.take_if(|cut| cut.end_offset < log_start) {
            plan.beyond_repair = Some(format!(
                "{} is damaged at byte {}, below the log start offset {log_start}: a cut there would take all records that are left; restore the segment from a copy, or delete the topic",
                cut.file.display(),
                cut.position
            ));
        }
        Ok(plan)
    }

    /// What a checkpoint file holds of the partition; 0 if nothing.
    async fn recorded(&self, file: &str, name: &PartitionName) -> Result<i64, RepairError> {
        let checkpoint = read_checkpoint(&self.dir, file).await?;
        let recorded = checkpoint.get(&name.topic, name.partition);
        Ok(recorded.unwrap_or(0))
    }

    /// Counts what stands in a file from `from` on, as far as headers can be read.
    async fn count_lost(
        &self,
        dir: &Dir,
        name: &str,
        from: u64,
        size: u64,
        lost: &mut Lost,
    ) -> Result<(), RepairError> {
        lost.bytes += size - from;
        let file = dir.open(name, OpenMode::Read).await?;
        let mut scanner = BatchScanner::new(&self.rt, &file, from, size);
        while let ScanStep::Batch(batch) = scanner.next().await? {
            lost.add(&batch);
        }
        Ok(())
    }

    /// The partition's line in the cleaner's checkpoint. Where that is lost, as a start takes it.
    async fn cleaned_to(&self, name: &PartitionName) -> Result<Option<i64>, RepairError> {
        let checkpoint = read_checkpoint(&self.dir, CLEANER_FILE).await?;
        Ok(match &checkpoint {
            Checkpoint::Read(_) => checkpoint.get(&name.topic, name.partition),
            Checkpoint::Missing | Checkpoint::Malformed(_) => Some(0),
        })
    }

    /// Does what a look at the same partition said. May be repeated.
    pub async fn apply(&self, name: &PartitionName, plan: &RepairPlan) -> Result<(), RepairError> {
        let dir = self.dir.subdir(&name.to_string());
        if plan.cuts() {
            // From here on the next start takes nothing below the newest snapshot for granted.
            take_clean_marker(&self.dir).await?;
        }
        for (base, len) in &plan.trims {
            self.truncate(&dir, *base, *len).await?;
        }
        if let Some(cut) = &plan.cut {
            let end = cut.end_offset;
            let site = SyncSite::RecoveryPointCheckpoint;
            self.lower(RECOVERY_POINT_FILE, name, end, site).await?;
            let site = SyncSite::HighWatermarkCheckpoint;
            self.lower(HIGH_WATERMARK_FILE, name, end, site).await?;
            // What comes after the cut has not been compacted.
            let site = SyncSite::CleanerCheckpoint;
            self.lower(CLEANER_FILE, name, end, site).await?;
            let mut files = LogFiles::list(&dir).await?;
            remove_beyond(&dir, &mut files, cut.last.0, end).await?;
            self.truncate(&dir, cut.last.0, cut.last.1).await?;
            lower_epochs(&dir, end).await?;
            self.write_indexes(&dir, cut.last.0).await?;
        }
        for base in &plan.indexes {
            self.write_indexes(&dir, *base).await?;
        }
        Ok(dir.sync(SyncSite::PartitionDir).await?)
    }

    async fn truncate(&self, dir: &Dir, base: i64, len: u64) -> Result<(), RepairError> {
        let file = dir.open(&file_name(base, LOG), OpenMode::ReadWrite).await?;
        file.truncate(len).await?;
        Ok(file.sync_data(SyncSite::Truncate).await?)
    }

    /// Writes a segment's indexes anew, or removes them, to be found again, where only a load
    /// knows how (a log with gaps).
    async fn write_indexes(&self, dir: &Dir, base: i64) -> Result<(), RepairError> {
        let file = dir.open(&file_name(base, LOG), OpenMode::Read).await?;
        let size = file.size().await?;
        // Whether the batches belong there was judged before.
        let start = ScanStart::segment_start(base).with_gaps(true);
        let scan = scan_segment(&self.rt, &file, base, size, start, INTERVAL_BYTES, -1).await?;
        match scan.bad {
            None => write_indexes(dir, base, &scan.index, &scan.complete_time_index()).await?,
            Some(_) => {
                remove_if_there(dir, &file_name(base, INDEX)).await?;
                remove_if_there(dir, &file_name(base, TIME_INDEX)).await?;
            }
        }
        Ok(())
    }

    /// Lowers a partition's line in a checkpoint of the data directory, durably.
    async fn lower(
        &self,
        file: &str,
        name: &PartitionName,
        offset: i64,
        site: SyncSite,
    ) -> Result<(), RepairError> {
        let Checkpoint::Read(mut entries) = read_checkpoint(&self.dir, file).await? else {
            return Ok(());
        };
        match entries.get_mut(&(name.topic.clone(), name.partition)) {
            Some(line) if *line > offset => *line = offset,
            _ => return Ok(()),
        }
        let content = checkpoint_file::encode(&entries);
        self.dir.replace_small(file, content, site).await?;
        Ok(self.dir.sync(site).await?)
    }
}

async fn lower_epochs(dir: &Dir, end: i64) -> Result<(), RepairError> {
    let (name, belief) = (LEADER_EPOCH_FILE, Belief::ReadTwice);
    let file = read_small_file(dir, name, EPOCH_BYTES_MAX, belief, LeaderEpochs::parse);
    // One that cannot be read is found again from the batches by the next start.
    if let SmallFile::Read(mut epochs) = file.await? {
        if epochs.truncate_from_end(end) {
            dir.replace_small(
                LEADER_EPOCH_FILE,
                epochs.encode(),
                SyncSite::EpochCheckpoint,
            )
            .await?;
        }
    }
    Ok(())
}

/// Kafka's `index.interval.bytes`: any other does as well.
const INTERVAL_BYTES: u32 = 4096;
const EPOCH_BYTES_MAX: u64 = 256 << 20;
