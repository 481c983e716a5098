//! Reading the files of a log without opening the log, for `log dump` and `log verify`.
//!
//! It opens nothing for writing, creates nothing and takes no lock, so it may look at
//! the files of a running broker (whose last segment then changes under it) and at
//! those that Kafka wrote. Results are plain data; printing is the caller's.
//!
//! What it is not: it repairs nothing, and it reads no records, only batches.

mod index_check;
#[cfg(test)]
mod tests;

pub(super) use self::index_check::IndexCheck;
use super::checkpoint_file::{self, Checkpoint};
use super::data_dir::{
    CLEAN_MARKER_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE,
};
use super::index::{OffsetIndex, TimeIndex};
use super::leader_epochs::{LeaderEpochs, LEADER_EPOCH_FILE};
use super::log_files::{self, file_name, parse_name, LogFiles, INDEX, LOG, TIME_INDEX};
use super::partition_dir::PartitionName;
use super::producer_snapshot::{self, ProducerEntry};
use super::scan::{BatchScanner, ScanStep, ScannedBatch};
use super::LoadError;
use crate::runtime::{Dir, File, IoError, IoErrorKind, OpenMode, Rt};
use std::path::{Path, PathBuf};

/// One batch of a segment, as its header has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchInfo {
    /// Where it starts in the file.
    pub position: u64,
    /// Its whole length in bytes.
    pub len: u32,
    /// The offset of its first record.
    pub base_offset: i64,
    /// The offset of its last record.
    pub last_offset: i64,
    /// The leader epoch that wrote it.
    pub leader_epoch: i32,
    /// The attribute bits.
    pub attributes: i16,
    /// The timestamp of its first record, milliseconds.
    pub base_timestamp: i64,
    /// Its largest timestamp, milliseconds.
    pub max_timestamp: i64,
    /// The producer's id; -1 if none.
    pub producer_id: i64,
    /// The producer's epoch; -1 if none.
    pub producer_epoch: i16,
    /// The sequence of the first record; -1 if none.
    pub base_sequence: i32,
    /// Number of records.
    pub records: i32,
    /// The checksum stored.
    pub crc: u32,
    /// True if the stored checksum is that of the content.
    pub crc_valid: bool,
}

/// What a segment holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Whole batches.
    pub batches: u64,
    /// Their records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The offset after the last batch; the base offset of an empty segment.
    pub end_offset: i64,
    /// Bytes behind the last batch that are all zeros: reserved, never written. Normal
    /// in a partition's last segment unless the broker was stopped cleanly.
    pub reserved_bytes: u64,
    /// Offsets are missing between batches, as compaction leaves them.
    pub has_gaps: bool,
    /// What was found wrong.
    pub problems: Vec<Problem>,
}

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Where in it, in bytes, if the problem has a place.
    pub position: Option<u64>,
    /// What is wrong, a sentence.
    pub detail: String,
}

/// What a partition's directory, or a data directory, holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// Partitions read.
    pub partitions: u64,
    /// Segments read.
    pub segments: u64,
    /// Whole batches.
    pub batches: u64,
    /// Their records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files and segments that a stop in mid-work left unfinished, which the next start
    /// completes, cuts or removes: no problem, and none after a clean stop.
    pub unfinished: u64,
    /// What was found wrong, by file.
    pub problems: Vec<Problem>,
}

/// Why something could not be inspected at all.
#[derive(Debug, Clone, thiserror::Error)]
pub enum InspectError {
    /// The file system refused.
    #[error("cannot be inspected: {0}")]
    Io(#[from] IoError),
    /// Not a file of the kind asked for.
    #[error("{} is not named like a log's file, <20 digits>.{expected}", path.display())]
    Name {
        /// The path.
        path: PathBuf,
        /// The extension expected.
        expected: &'static str,
    },
}

/// Reads the batches of a `.log` file in order. A batch with a wrong checksum is given
/// to `on_batch` too; bytes that are no batch end the reading.
pub async fn dump_segment(
    rt: &Rt,
    path: &Path,
    mut on_batch: impl FnMut(BatchInfo),
) -> Result<Summary, InspectError> {
    let (file, base) = open(rt, path, LOG).await?;
    let mut segment = SegmentReading::new(base, path);
    segment
        .run(rt, &file, |batch| on_batch(BatchInfo::from(batch)))
        .await
}

/// Reads an `.index` file: (last offset of a batch, position of its start).
pub async fn dump_offset_index(rt: &Rt, path: &Path) -> Result<IndexDump<u32>, InspectError> {
    let (file, base) = open(rt, path, INDEX).await?;
    let bytes = read_whole(&file).await?;
    Ok(match OffsetIndex::decode(base, &bytes) {
        Ok(index) => IndexDump {
            entries: index.iter().collect(),
            problem: None,
        },
        Err(error) => IndexDump::broken(path, error.to_string()),
    })
}

/// Reads a `.timeindex` file: (timestamp, offset).
pub async fn dump_time_index(rt: &Rt, path: &Path) -> Result<IndexDump<i64>, InspectError> {
    let (file, base) = open(rt, path, TIME_INDEX).await?;
    let bytes = read_whole(&file).await?;
    Ok(match TimeIndex::decode(base, &bytes) {
        Ok(index) => IndexDump {
            entries: index.iter().collect(),
            problem: None,
        },
        Err(error) => IndexDump::broken(path, error.to_string()),
    })
}

/// Reads a `.snapshot` file.
pub async fn dump_snapshot(
    rt: &Rt,
    path: &Path,
) -> Result<Result<Vec<ProducerEntry>, Problem>, InspectError> {
    let (file, _) = open(rt, path, log_files::SNAPSHOT).await?;
    let bytes = read_whole(&file).await?;
    Ok(producer_snapshot::decode(&bytes).map_err(|e| Problem::of(path, e)))
}

/// The entries of an index file, or why there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDump<T> {
    /// The entries in order.
    pub entries: Vec<(i64, T)>,
    /// The file cannot be used as it is.
    pub problem: Option<Problem>,
}

/// Reads every segment and every file beside it in a partition's directory, or in all
/// partitions' directories of a data directory.
pub async fn verify_dir(rt: &Rt, path: &Path) -> Result<VerifyReport, InspectError> {
    let dir = rt.dir(path);
    let mut report = VerifyReport::default();
    let entries = dir.list().await?;
    let is_log = |name: &str| matches!(parse_name(name), Some((_, LOG)));
    if entries.iter().any(|e| !e.is_dir && is_log(&e.name)) {
        let name = path.file_name().and_then(|name| name.to_str());
        let cleaned_to = match name.and_then(PartitionName::parse) {
            Some(name) => Cleaned::read(&rt.dir(parent(path))).await?.to(&name),
            None => None,
        };
        let in_use = is_in_use(&rt.dir(parent(path))).await?;
        report.add(verify_partition(rt, &dir, cleaned_to, in_use).await?);
        return Ok(report);
    }
    let cleaned = Cleaned::read(&dir).await?;
    report.problems.extend(cleaned.problem.clone());
    verify_checkpoints(&dir, &mut report).await?;
    let in_use = is_in_use(&dir).await?;
    for entry in entries.iter().filter(|e| e.is_dir) {
        if let Some(name) = PartitionName::parse(&entry.name) {
            let cleaned_to = cleaned.to(&name);
            let dir = dir.subdir(&entry.name);
            report.add(verify_partition(rt, &dir, cleaned_to, in_use).await?);
        }
    }
    Ok(report)
}

/// Whether a broker runs on a data directory, or was stopped in mid-work.
async fn is_in_use(data_dir: &Dir) -> Result<bool, InspectError> {
    let entries = data_dir.list().await?;
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    Ok(has("meta.properties") && !has(CLEAN_MARKER_FILE))
}

/// Checks that the checkpoints of a data directory can be read. Kafka creates them empty.
async fn verify_checkpoints(dir: &Dir, report: &mut VerifyReport) -> Result<(), InspectError> {
    for name in [RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE] {
        match dir.read_small(name, SMALL_FILE_BYTES_MAX).await {
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => {
                if let Err(error) = checkpoint_file::parse(&bytes) {
                    let path = dir.path().join(name);
                    report.problems.push(Problem::of(&path, error));
                }
            }
            Err(e) if e.kind == IoErrorKind::NotFound => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// How far each partition of a data directory was compacted, as the cleaner's checkpoint has it.
struct Cleaned {
    checkpoint: Checkpoint,
    problem: Option<Problem>,
}

impl Cleaned {
    async fn read(data_dir: &Dir) -> Result<Cleaned, InspectError> {
        let read = data_dir
            .read_small(CLEANER_CHECKPOINT_FILE, SMALL_FILE_BYTES_MAX)
            .await;
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(e) if e.kind == IoErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e.into()),
        };
        // Kafka creates it empty.
        if bytes.is_empty() {
            return Ok(Cleaned {
                checkpoint: Checkpoint::Missing,
                problem: None,
            });
        }
        Ok(match checkpoint_file::parse(&bytes) {
            Ok(entries) => Cleaned {
                checkpoint: Checkpoint::Read(entries),
                problem: None,
            },
            Err(error) => Cleaned {
                problem: Some(Problem::of(
                    &data_dir.path().join(CLEANER_CHECKPOINT_FILE),
                    &error,
                )),
                checkpoint: Checkpoint::Malformed(error),
            },
        })
    }

    /// The first offset that no compaction has been over, if one began.
    fn to(&self, name: &PartitionName) -> Option<i64> {
        self.checkpoint.get(&name.topic, name.partition)
    }
}

impl VerifyReport {
    fn add(&mut self, partition: VerifyReport) {
        self.partitions += partition.partitions;
        self.segments += partition.segments;
        self.batches += partition.batches;
        self.records += partition.records;
        self.bytes += partition.bytes;
        self.unfinished += partition.unfinished;
        self.problems.extend(partition.problems);
    }
}

/// Checks a partition whose offsets may have been compacted away if there is a `cleaned_to`. A broker that runs may remove
/// files between their listing and their reading: then it looks again, and finds nothing where the partition is gone.
async fn verify_partition(
    rt: &Rt,
    dir: &Dir,
    cleaned_to: Option<i64>,
    in_use: bool,
) -> Result<VerifyReport, InspectError> {
    for _ in 1..LOOKS_MAX {
        match verify_files(rt, dir, cleaned_to, in_use).await {
            Err(InspectError::Io(e)) if e.kind == IoErrorKind::NotFound => {
                if !dir.exists().await? {
                    return Ok(VerifyReport::default());
                }
            }
            outcome => return outcome,
        }
    }
    verify_files(rt, dir, cleaned_to, in_use).await
}

async fn verify_files(
    rt: &Rt,
    dir: &Dir,
    cleaned_to: Option<i64>,
    in_use: bool,
) -> Result<VerifyReport, InspectError> {
    let mut report = VerifyReport {
        partitions: 1,
        ..VerifyReport::default()
    };
    let files = LogFiles::list(dir).await?;
    // Up to the newest snapshot all is sealed. What lies above it, recovery finishes.
    let sealed_to = files.newest_proof(dir).await?;
    let mut previous: Option<Summary> = None;
    for (base, segment_files) in &files.segments {
        let path = dir.path().join(file_name(*base, LOG));
        let file = dir.open(&file_name(*base, LOG), OpenMode::Read).await?;
        let next_base = files.base_after(*base);
        let sealed = next_base.is_some_and(|next| sealed_to.is_some_and(|to| next <= to));
        let mut check = IndexCheck::read(dir, *base, sealed, segment_files).await?;
        let mut reading = SegmentReading::new(*base, &path);
        let read = reading.run(rt, &file, |batch| check.on_batch(batch));
        let mut summary = read.await?;
        check.finish();
        // What a stop in mid-work left behind what was flushed: the next start cuts it.
        let proven = sealed_to.unwrap_or(*base);
        match reading.trouble {
            Some((at, end)) if in_use && next_base.is_none() && end >= proven => {
                summary.problems.truncate(at);
                report.unfinished += 1;
            }
            _ => {}
        }
        summary.problems.append(&mut check.problems);
        let whole = summary.reserved_bytes == 0 && segment_files.has_indexes();
        if next_base.is_some() && !sealed && !whole {
            report.unfinished += 1;
        }
        if summary.reserved_bytes > 0 && sealed {
            let position = Some(summary.bytes);
            let detail = "zeros behind the last batch of a segment that was sealed";
            summary.problems.push(Problem {
                file: path.clone(),
                position,
                detail: detail.to_owned(),
            });
        }
        if let Some(previous) = &previous {
            let compacted = previous.has_gaps || summary.has_gaps || cleaned_to.is_some();
            let end = previous.end_offset;
            if end > *base || (end < *base && !compacted) {
                let detail = format!("the segment before ends at offset {end}, not at {base}");
                summary.problems.push(Problem::of(&path, detail));
            }
        }
        report.segments += 1;
        report.batches += summary.batches;
        report.records += summary.records;
        report.bytes += summary.bytes;
        report.problems.append(&mut summary.problems);
        previous = Some(summary);
    }
    verify_small_files(dir, &files, &mut report).await?;
    Ok(report)
}

async fn verify_small_files(
    dir: &Dir,
    files: &LogFiles,
    report: &mut VerifyReport,
) -> Result<(), InspectError> {
    for offset in &files.snapshots {
        let name = producer_snapshot::file_name(*offset);
        let bytes = dir.read_small(&name, SMALL_FILE_BYTES_MAX).await?;
        if let Err(error) = producer_snapshot::decode(&bytes) {
            let path = dir.path().join(&name);
            report.problems.push(Problem::of(&path, error));
        }
    }
    report.unfinished += files.interrupted().count() as u64;
    for name in files.orphans() {
        let path = dir.path().join(name);
        let detail = "an index without its segment; the next start removes it";
        report.problems.push(Problem::of(&path, detail));
    }
    let path = dir.path().join(LEADER_EPOCH_FILE);
    match dir
        .read_small(LEADER_EPOCH_FILE, SMALL_FILE_BYTES_MAX)
        .await
    {
        Ok(bytes) => {
            if let Err(error) = LeaderEpochs::parse(&bytes) {
                report.problems.push(Problem::of(&path, error));
            }
        }
        Err(e) if e.kind == IoErrorKind::NotFound => {}
        Err(e) => return Err(e.into()),
    }
    Ok(())
}

/// The reading of one segment.
struct SegmentReading<'a> {
    path: &'a Path,
    summary: Summary,
    epoch: i32,
    /// The first problem's index, and the offset after the last batch before it.
    trouble: Option<(usize, i64)>,
}

impl<'a> SegmentReading<'a> {
    fn new(base: i64, path: &'a Path) -> SegmentReading<'a> {
        SegmentReading {
            path,
            summary: Summary {
                end_offset: base,
                ..Summary::default()
            },
            epoch: -1,
            trouble: None,
        }
    }

    async fn run(
        &mut self,
        rt: &Rt,
        file: &File,
        mut on_batch: impl FnMut(&ScannedBatch),
    ) -> Result<Summary, InspectError> {
        let size = file.size().await?;
        let mut scanner = BatchScanner::new(rt, file, 0, size);
        loop {
            match scanner.next().await? {
                ScanStep::End => break,
                ScanStep::Batch(batch) => {
                    self.add(&batch);
                    on_batch(&batch);
                }
                ScanStep::Bad(bad) => {
                    if bad.zeros && is_zero(rt, file, bad.position, size).await? {
                        self.summary.reserved_bytes = size - bad.position;
                    } else {
                        self.problem(bad.position, bad.detail);
                    }
                    break;
                }
            }
        }
        Ok(std::mem::take(&mut self.summary))
    }

    fn add(&mut self, batch: &ScannedBatch) {
        let header = &batch.header;
        if !batch.crc_valid {
            let detail = "the batch's CRC does not match its content";
            self.problem(batch.position, detail.to_owned());
        }
        let end = self.summary.end_offset;
        if header.base_offset < end {
            let detail = format!(
                "a batch starts at offset {}, below {end}",
                header.base_offset
            );
            self.problem(batch.position, detail);
        }
        self.summary.has_gaps |= header.base_offset > end;
        if header.leader_epoch < self.epoch {
            let detail = format!(
                "a batch of leader epoch {} follows one of {}",
                header.leader_epoch, self.epoch
            );
            self.problem(batch.position, detail);
        }
        self.epoch = self.epoch.max(header.leader_epoch);
        self.summary.end_offset = header.last_offset.saturating_add(1).max(end);
        if batch.crc_valid {
            self.summary.batches += 1;
            self.summary.records += batch.fields.record_count.max(0) as u64;
        }
        self.summary.bytes += u64::from(header.len);
    }

    fn problem(&mut self, position: u64, detail: String) {
        let before = (self.summary.problems.len(), self.summary.end_offset);
        self.trouble.get_or_insert(before);
        self.summary.problems.push(Problem {
            file: self.path.to_owned(),
            position: Some(position),
            detail,
        });
    }
}

impl From<&ScannedBatch> for BatchInfo {
    fn from(batch: &ScannedBatch) -> BatchInfo {
        let fields = &batch.fields;
        BatchInfo {
            position: batch.position,
            len: batch.header.len,
            base_offset: fields.base_offset,
            last_offset: batch.header.last_offset,
            leader_epoch: fields.leader_epoch,
            attributes: fields.attributes.0,
            base_timestamp: fields.base_timestamp,
            max_timestamp: fields.max_timestamp,
            producer_id: fields.producer_id,
            producer_epoch: fields.producer_epoch,
            base_sequence: fields.base_sequence,
            records: fields.record_count,
            crc: fields.crc,
            crc_valid: batch.crc_valid,
        }
    }
}

impl From<LoadError> for InspectError {
    fn from(error: LoadError) -> InspectError {
        match error {
            LoadError::Io(error) => error.into(),
            other => unreachable!("listing files only meets the file system: {other}"),
        }
    }
}

impl Problem {
    fn of(path: &Path, detail: impl ToString) -> Problem {
        Problem {
            file: path.to_owned(),
            position: None,
            detail: detail.to_string(),
        }
    }
}

impl<T> IndexDump<T> {
    fn broken(path: &Path, detail: String) -> IndexDump<T> {
        IndexDump {
            entries: Vec::new(),
            problem: Some(Problem::of(path, detail)),
        }
    }
}

/// Opens `<20 digits>.<extension>` for reading; its offset.
async fn open(rt: &Rt, path: &Path, expected: &'static str) -> Result<(File, i64), InspectError> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let offset = match parse_name(name) {
        Some((offset, extension)) if extension == expected => offset,
        _ => {
            return Err(InspectError::Name {
                path: path.to_owned(),
                expected,
            })
        }
    };
    let file = rt.dir(parent(path)).open(name, OpenMode::Read).await?;
    Ok((file, offset))
}

/// The directory that a path's last component is in.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Reads a file of bounded size.
async fn read_whole(file: &File) -> Result<bytes::Bytes, InspectError> {
    let size = file.size().await?;
    if size > SMALL_FILE_BYTES_MAX {
        let detail = format!("it has {size} bytes, more than any index or snapshot");
        let kind = IoErrorKind::Other;
        return Err(IoError::new("read", file.path(), kind, detail).into());
    }
    Ok(file.read_at(0, size as usize).await?)
}

/// Whether the file holds nothing but zeros from `from` to `to`.
async fn is_zero(rt: &Rt, file: &File, from: u64, to: u64) -> Result<bool, InspectError> {
    let mut at = from;
    while at < to {
        let bytes = file.read_at(at, (to - at).min(1 << 20) as usize).await?;
        if bytes.iter().any(|b| *b != 0) {
            return Ok(false);
        }
        if bytes.is_empty() {
            break;
        }
        at += bytes.len() as u64;
        rt.yield_if_needed().await;
    }
    Ok(true)
}

const SMALL_FILE_BYTES_MAX: u64 = 256 << 20;
/// How often a partition is looked at whose files vanish meanwhile.
const LOOKS_MAX: usize = 5;
/// Kafka's name for it, too.
const CLEANER_CHECKPOINT_FILE: &str = "cleaner-offset-checkpoint";
