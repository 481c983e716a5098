//! `log verify`: the files of a partition, or of a data directory, held against each other.

use super::SMALL_FILE_BYTES_MAX;
use super::{parent, IndexCheck, InspectError, Problem, SegmentReading, Summary, VerifyReport};
use crate::runtime::{Dir, IoErrorKind, OpenMode, Rt};
use crate::storage::checkpoint_file::{self, Checkpoint, CheckpointEntries, CheckpointFileError};
use crate::storage::data_dir::{
    CLEANER_FILE, CLEAN_MARKER_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE,
};
use crate::storage::leader_epochs::{LeaderEpochs, LEADER_EPOCH_FILE};
use crate::storage::log_files::{file_name, parse_name, LogFiles, LOG};
use crate::storage::partition_dir::PartitionName;
use crate::storage::producer_snapshot;
use crate::storage::segment_end::{BatchesEnd, Proof, SegmentEnd};
use crate::storage::small_file::{read_small_file, Belief, SmallFile};
use std::fmt::Display;
use std::path::Path;

/// Reads every segment and every file beside it in a partition's directory, or in all
/// partitions' directories of a data directory.
pub async fn verify_dir(rt: &Rt, path: &Path) -> Result<VerifyReport, InspectError> {
    let dir = rt.dir(path);
    let mut report = VerifyReport::default();
    let entries = dir.list().await?;
    let is_log = |name: &str| matches!(parse_name(name), Some((_, LOG)));
    if entries.iter().any(|e| !e.is_dir && is_log(&e.name)) {
        let name = path.file_name().and_then(|name| name.to_str());
        let data_dir = rt.dir(parent(path));
        let mut known = Known::default();
        if let Some(name) = name.and_then(PartitionName::parse) {
            known.cleaned_to = Cleaned::read(&data_dir).await?.to(&name);
            known.flushed = flushed(&data_dir).await?.get(&name.topic, name.partition);
        }
        known.in_use = is_in_use(&data_dir).await?;
        report.add(verify_partition(rt, &dir, known).await?);
        return Ok(report);
    }
    let cleaned = Cleaned::read(&dir).await?;
    report.problems.extend(cleaned.problem.clone());
    verify_checkpoints(&dir, &mut report).await?;
    let (in_use, flushed) = (is_in_use(&dir).await?, flushed(&dir).await?);
    for entry in entries.iter().filter(|e| e.is_dir) {
        if let Some(name) = PartitionName::parse(&entry.name) {
            let known = Known {
                cleaned_to: cleaned.to(&name),
                flushed: flushed.get(&name.topic, name.partition),
                in_use,
            };
            let dir = dir.subdir(&entry.name);
            report.add(verify_partition(rt, &dir, known).await?);
        }
    }
    Ok(report)
}

/// What the data directory says of a partition.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    /// The first offset that no compaction has been over, if one began.
    cleaned_to: Option<i64>,
    /// Everything below it was flushed.
    flushed: Option<i64>,
    /// A broker runs, or was stopped in mid-work.
    in_use: bool,
}

/// The high watermarks' checkpoint, which holds what is flushed of them.
async fn flushed(data_dir: &Dir) -> Result<Checkpoint, InspectError> {
    let (name, belief) = (HIGH_WATERMARK_FILE, Belief::ReadTwice);
    let file = read_small_file(data_dir, name, SMALL_FILE_BYTES_MAX, belief, checkpoint);
    Ok(match file.await? {
        SmallFile::Read(Some(entries)) => Checkpoint::Read(entries),
        // What ails it is told apart.
        _ => Checkpoint::Missing,
    })
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
        report
            .problems
            .extend(problem_of(dir, name, checkpoint).await?);
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
        let (name, belief) = (CLEANER_FILE, Belief::Proven);
        let file = read_small_file(data_dir, name, SMALL_FILE_BYTES_MAX, belief, checkpoint);
        let problem = |detail: String| Some(Problem::of(&data_dir.path().join(name), detail));
        Ok(match file.await? {
            SmallFile::Read(Some(entries)) => Cleaned {
                checkpoint: Checkpoint::Read(entries),
                problem: None,
            },
            SmallFile::Read(None) | SmallFile::Missing => Cleaned {
                checkpoint: Checkpoint::Missing,
                problem: None,
            },
            SmallFile::Unusable(why) => Cleaned {
                checkpoint: Checkpoint::Missing,
                problem: problem(why),
            },
            SmallFile::Malformed(error) => Cleaned {
                problem: problem(error.to_string()),
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

/// Checks a partition. A broker that runs may remove
/// files between their listing and their reading: then it looks again, and finds nothing where the partition is gone.
pub(super) async fn verify_partition(
    rt: &Rt,
    dir: &Dir,
    known: Known,
) -> Result<VerifyReport, InspectError> {
    for _ in 1..LOOKS_MAX {
        match verify_files(rt, dir, known).await {
            Err(InspectError::Io(e)) if e.kind == IoErrorKind::NotFound => {
                if !dir.exists().await? {
                    return Ok(VerifyReport::default());
                }
            }
            outcome => return outcome,
        }
    }
    verify_files(rt, dir, known).await
}

async fn verify_files(rt: &Rt, dir: &Dir, known: Known) -> Result<VerifyReport, InspectError> {
    let mut report = VerifyReport {
        partitions: 1,
        ..VerifyReport::default()
    };
    let Known {
        cleaned_to, in_use, ..
    } = known;
    let files = LogFiles::list(dir).await?;
    // Up to the newest snapshot all is sealed. What lies above it, recovery finishes.
    let sealed_to = files.newest_proof(dir).await?;
    let first = files.segments.keys().next().copied().unwrap_or(0);
    let proof = Proof {
        proven: sealed_to.unwrap_or(first).max(first),
        by_snapshot: sealed_to.is_some(),
        flushed: known.flushed.unwrap_or(0),
        gaps: cleaned_to.is_some(),
        cleaned_to,
    };
    let mut previous: Option<Summary> = None;
    for (base, segment_files) in &files.segments {
        let path = dir.path().join(file_name(*base, LOG));
        let file = dir.open(&file_name(*base, LOG), OpenMode::Read).await?;
        let next_base = files.base_after(*base);
        let sealed = next_base.is_some_and(|next| sealed_to.is_some_and(|to| next <= to));
        let mut check = IndexCheck::read(dir, *base, sealed, segment_files).await?;
        let reading = SegmentReading::new(*base, &path);
        let read = reading.run(rt, &file, |batch| check.on_batch(batch));
        let (mut summary, sound) = read.await?;
        check.finish();
        let end = proof.judge(&BatchesEnd {
            offset: sound.end,
            len: sound.len,
            bad: sound.bad.as_deref(),
            next_base,
        });
        // A running broker may have compacted what was no hole before.
        let may_have_gaps = |s: &Summary| cleaned_to.is_some() || s.has_gaps;
        let is_hole = |s: &Summary| next_base.is_some() && !may_have_gaps(s);
        let is_cut = match end {
            // What a stop in mid-work left behind what was flushed: the next start cuts it.
            SegmentEnd::EndOfLog
                if in_use && (!summary.problems.is_empty() || is_hole(&summary)) =>
            {
                summary.problems.truncate(sound.problems);
                report.unfinished += 1;
                true
            }
            SegmentEnd::Damage(detail) if next_base.is_none() && sound.bad.is_none() => {
                summary.problems.push(Problem::of(&path, detail));
                false
            }
            _ => false,
        };
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
        if is_cut {
            // The segments that follow go with it.
            report.unfinished += files.segments.range(base + 1..).count() as u64;
            break;
        }
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
        let problem = problem_of(dir, &name, producer_snapshot::decode);
        report.problems.extend(problem.await?);
    }
    report.unfinished += files.interrupted().count() as u64;
    for name in files.orphans() {
        let path = dir.path().join(name);
        let detail = "an index without its segment; the next start removes it";
        report.problems.push(Problem::of(&path, detail));
    }
    let problem = problem_of(dir, LEADER_EPOCH_FILE, LeaderEpochs::parse);
    report.problems.extend(problem.await?);
    Ok(())
}

/// What is wrong with a small file, if two reads say so. None if it is not there.
async fn problem_of<T, E: Display>(
    dir: &Dir,
    name: &str,
    parse: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<Option<Problem>, InspectError> {
    let (len_max, belief) = (SMALL_FILE_BYTES_MAX, Belief::Proven);
    let detail = match read_small_file(dir, name, len_max, belief, parse).await? {
        SmallFile::Missing | SmallFile::Read(_) => return Ok(None),
        SmallFile::Unusable(why) => why,
        SmallFile::Malformed(error) => error.to_string(),
    };
    Ok(Some(Problem::of(&dir.path().join(name), detail)))
}

/// A checkpoint's entries; none if it is empty, as Kafka creates it.
fn checkpoint(bytes: &[u8]) -> Result<Option<CheckpointEntries>, CheckpointFileError> {
    match bytes.is_empty() {
        true => Ok(None),
        false => checkpoint_file::parse(bytes).map(Some),
    }
}

/// How often a partition is looked at whose files vanish meanwhile.
const LOOKS_MAX: usize = 5;
