//! `highwater log`: looks at partition logs on disk. Only `repair` (`repair.rs`) changes anything.
//!
//! `dump` prints a line for each batch, as Kafka's dump tool does, so that scripts written for one read the other.
//! `verify` reads everything and prints only what is wrong. Both end with exit code 1 when something is.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::records::RecordPrinter;
use super::repair::{self, RepairArgs};
use super::snapshot::ProducerLines;
use super::CliError;
use crate::runtime::{native, Rt};
use crate::storage::inspect::{self, BatchInfo, Problem, Summary, VerifyReport};

/// The commands below `log`.
#[derive(Debug, Subcommand)]
pub(super) enum LogCommand {
    /// Print the batches of a segment, or of all segments in a partition's directory, or
    /// the producers in a snapshot.
    Dump {
        /// A .log or a .snapshot file, or a partition's directory.
        #[arg(value_name = "FILE|DIR")]
        path: PathBuf,
        /// Print every record too, its key and value escaped.
        #[arg(long)]
        records: bool,
    },
    /// Check everything in partition directories or whole data directories.
    Verify {
        /// A partition's directory or a data directory.
        #[arg(value_name = "DIR", required = true)]
        dirs: Vec<PathBuf>,
    },
    /// Cut damaged logs of a stopped broker at their first damaged batch, and rebuild damaged indexes.
    Repair(RepairArgs),
}

pub(super) fn run(command: &LogCommand) -> Result<(), CliError> {
    let problems = match command {
        LogCommand::Dump { path, records } => {
            let (path, records) = (path.clone(), *records);
            native::run(move |rt| async move { dump(&rt, &path, records).await })??
        }
        LogCommand::Verify { dirs } => {
            let dirs = dirs.clone();
            native::run(move |rt| async move { verify(&rt, &dirs).await })??
        }
        LogCommand::Repair(args) => {
            let args = args.clone();
            return native::run(move |rt| async move { repair::run(&rt, &args).await })?;
        }
    };
    match problems {
        0 => Ok(()),
        1 => Err(CliError::Found("1 problem was found".to_owned())),
        n => Err(CliError::Found(format!("{n} problems were found"))),
    }
}

/// Prints a segment's batches, or those of all segments of a directory, or a snapshot's producers. Returns how many
/// problems there are.
async fn dump(rt: &Rt, path: &Path, records: bool) -> Result<usize, CliError> {
    if path
        .extension()
        .is_some_and(|extension| extension == "snapshot")
    {
        return dump_snapshot(rt, path).await;
    }
    let mut out = BufWriter::new(io::stdout());
    let mut problems = 0;
    for segment in segments(rt, path).await? {
        writeln!(out, "Dumping {}", segment.display())?;
        let unreadable = |error| CliError::Read {
            path: segment.clone(),
            error,
        };
        let mut printer = match records {
            true => Some(RecordPrinter::open(&segment).map_err(unreadable)?),
            false => None,
        };
        let mut written = Ok(());
        let summary = inspect::dump_segment(rt, &segment, |batch| {
            if written.is_ok() {
                written = print_batch(&mut out, printer.as_mut(), &batch);
            }
        })
        .await;
        written?;
        let summary = summary.map_err(|error| CliError::inspect(&segment, error))?;
        writeln!(out, "{}", SummaryLine(&summary))?;
        out.flush()?;
        problems += print_problems(&summary.problems);
    }
    out.flush()?;
    Ok(problems)
}

/// Prints the producers of a snapshot. Returns how many problems there are.
async fn dump_snapshot(rt: &Rt, path: &Path) -> Result<usize, CliError> {
    let mut out = BufWriter::new(io::stdout());
    writeln!(out, "Dumping {}", path.display())?;
    let read = inspect::dump_snapshot(rt, path).await;
    let problems = match read.map_err(|error| CliError::inspect(path, error))? {
        Ok(entries) => {
            for entry in &entries {
                writeln!(out, "{}", ProducerLines(entry))?;
            }
            writeln!(
                out,
                "{}",
                Count(entries.len() as u64, "producer", "producers")
            )?;
            Vec::new()
        }
        Err(problem) => vec![problem],
    };
    out.flush()?;
    Ok(print_problems(&problems))
}

fn print_batch(
    out: &mut impl Write,
    printer: Option<&mut RecordPrinter>,
    batch: &BatchInfo,
) -> io::Result<()> {
    writeln!(out, "{}", BatchLine(batch))?;
    printer.map_or(Ok(()), |printer| printer.print(out, batch))
}

/// The file itself, or the segments of a directory in the order of their offsets.
async fn segments(rt: &Rt, path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let dir = rt.dir(path);
    if !dir.exists().await? {
        return Ok(vec![path.to_owned()]);
    }
    let entries = dir.list().await?;
    let logs = entries
        .iter()
        .filter(|entry| !entry.is_dir && entry.name.ends_with(".log"));
    let segments: Vec<PathBuf> = logs.map(|entry| path.join(&entry.name)).collect();
    if segments.is_empty() {
        let sentence = format!(
            "there is no .log file in {}; name a partition's directory",
            path.display()
        );
        return Err(CliError::Found(sentence));
    }
    Ok(segments)
}

/// Checks each directory and prints a line about it. Returns how many problems there are.
async fn verify(rt: &Rt, dirs: &[PathBuf]) -> Result<usize, CliError> {
    let mut problems = 0;
    for dir in dirs {
        if !rt.dir(dir).exists().await? {
            return Err(CliError::Found(format!(
                "there is no directory {}",
                dir.display()
            )));
        }
        let report = inspect::verify_dir(rt, dir)
            .await
            .map_err(|error| CliError::inspect(dir, error))?;
        let mut out = io::stdout().lock();
        writeln!(out, "{}: {}", dir.display(), ReportLine(&report))?;
        out.flush()?;
        problems += print_problems(&report.problems);
    }
    Ok(problems)
}

fn print_problems(problems: &[Problem]) -> usize {
    for Problem {
        file,
        position,
        detail,
    } in problems
    {
        match position {
            Some(position) => eprintln!("{}, byte {position}: {detail}", file.display()),
            None => eprintln!("{}: {detail}", file.display()),
        }
    }
    problems.len()
}

/// One batch, in the words of Kafka's dump tool.
struct BatchLine<'a>(&'a BatchInfo);

impl fmt::Display for BatchLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batch = self.0;
        let bit = |bit: u32| batch.attributes & (1 << bit) != 0;
        write!(
            f,
            "baseOffset: {} lastOffset: {} ",
            batch.base_offset, batch.last_offset
        )?;
        write!(
            f,
            "count: {} baseSequence: {} ",
            batch.records, batch.base_sequence
        )?;
        write!(
            f,
            "lastSequence: {} producerId: {} ",
            last_sequence(batch),
            batch.producer_id
        )?;
        write!(f, "producerEpoch: {} ", batch.producer_epoch)?;
        write!(f, "partitionLeaderEpoch: {} ", batch.leader_epoch)?;
        write!(f, "isTransactional: {} isControl: {} ", bit(4), bit(5))?;
        match bit(6) {
            true => write!(
                f,
                "deleteHorizonMs: OptionalLong[{}] ",
                batch.base_timestamp
            )?,
            false => f.write_str("deleteHorizonMs: OptionalLong.empty ")?,
        }
        let timestamp = if bit(3) {
            "LogAppendTime"
        } else {
            "CreateTime"
        };
        write!(
            f,
            "position: {} {timestamp}: {} ",
            batch.position, batch.max_timestamp
        )?;
        write!(
            f,
            "size: {} magic: 2 compresscodec: {} ",
            batch.len,
            codec(batch.attributes)
        )?;
        write!(f, "crc: {} isvalid: {}", batch.crc, batch.crc_valid)
    }
}

/// The sequence of the last record: sequences wrap from 2^31-1 to 0.
fn last_sequence(batch: &BatchInfo) -> i64 {
    if batch.base_sequence < 0 {
        return -1;
    }
    let delta = batch.last_offset.wrapping_sub(batch.base_offset);
    i64::from(batch.base_sequence)
        .wrapping_add(delta)
        .rem_euclid(1 << 31)
}

/// The codec in the three low bits of the attributes.
fn codec(attributes: i16) -> &'static str {
    match attributes & 7 {
        0 => "none",
        1 => "gzip",
        2 => "snappy",
        3 => "lz4",
        4 => "zstd",
        _ => "unknown",
    }
}

struct SummaryLine<'a>(&'a Summary);

impl fmt::Display for SummaryLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary {
            batches,
            records,
            bytes,
            end_offset,
            reserved_bytes,
            has_gaps,
            problems,
            ..
        } = self.0;
        let (batches, records) = (
            Count(*batches, "batch", "batches"),
            Count(*records, "record", "records"),
        );
        write!(
            f,
            "{batches}, {records}, {bytes} bytes, ends at offset {end_offset}"
        )?;
        if *reserved_bytes > 0 {
            write!(f, ", {reserved_bytes} bytes reserved")?;
        }
        if *has_gaps {
            write!(f, ", with gaps between offsets")?;
        }
        write!(f, ", {}", Problems(problems.len()))
    }
}

struct ReportLine<'a>(&'a VerifyReport);

impl fmt::Display for ReportLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VerifyReport {
            partitions,
            segments,
            batches,
            records,
            bytes,
            unfinished,
            problems,
        } = self.0;
        let (partitions, segments) = (
            Count(*partitions, "partition", "partitions"),
            Count(*segments, "segment", "segments"),
        );
        let (batches, records) = (
            Count(*batches, "batch", "batches"),
            Count(*records, "record", "records"),
        );
        write!(
            f,
            "{partitions}, {segments}, {batches}, {records}, {bytes} bytes"
        )?;
        if *unfinished > 0 {
            write!(
                f,
                ", {unfinished} unfinished for the next start to complete"
            )?;
        }
        write!(f, ", {}", Problems(problems.len()))
    }
}

/// A number with its noun.
struct Count(u64, &'static str, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count(n, one, many) = self;
        write!(f, "{n} {}", if *n == 1 { one } else { many })
    }
}

struct Problems(usize);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("no problems"),
            n => write!(f, "{}", Count(n as u64, "problem", "problems")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> BatchInfo {
        BatchInfo {
            position: 130,
            len: 69,
            base_offset: 5,
            last_offset: 6,
            leader_epoch: 3,
            attributes: 0,
            base_timestamp: 1000,
            max_timestamp: 1001,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records: 2,
            crc: 4_000_000_000,
            crc_valid: true,
        }
    }

    /// The line that `kafka-dump-log.sh` prints for the same batch.
    #[test]
    fn a_batch_is_printed_as_kafkas_tool_prints_it() {
        assert_eq!(
            BatchLine(&batch()).to_string(),
            "baseOffset: 5 lastOffset: 6 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 \
             producerEpoch: -1 partitionLeaderEpoch: 3 isTransactional: false isControl: false \
             deleteHorizonMs: OptionalLong.empty position: 130 CreateTime: 1001 size: 69 magic: 2 \
             compresscodec: none crc: 4000000000 isvalid: true"
        );
    }

    #[test]
    fn the_attribute_bits_are_told_apart() {
        let line = |attributes| {
            BatchLine(&BatchInfo {
                attributes,
                ..batch()
            })
            .to_string()
        };
        assert!(line(0b0001_0100).contains("isTransactional: true isControl: false "));
        assert!(line(0b0001_0100).contains("compresscodec: zstd "));
        assert!(line(0b0010_0000).contains("isTransactional: false isControl: true "));
        assert!(line(0b0100_0000).contains("deleteHorizonMs: OptionalLong[1000] "));
        assert!(line(0b0000_1000).contains("LogAppendTime: 1001 "));
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let last = |base_sequence| {
            last_sequence(&BatchInfo {
                base_sequence,
                ..batch()
            })
        };
        assert_eq!([last(-1), last(0), last(i32::MAX)], [-1, 1, 0]);
    }

    #[test]
    fn a_report_is_a_sentence() {
        let mut report = VerifyReport {
            partitions: 1,
            segments: 1,
            records: 2,
            ..VerifyReport::default()
        };
        let line = ReportLine(&report).to_string();
        assert_eq!(
            line,
            "1 partition, 1 segment, 0 batches, 2 records, 0 bytes, no problems"
        );
        let problem = Problem {
            file: PathBuf::from("f"),
            position: None,
            detail: "d".to_owned(),
        };
        report.problems = vec![problem];
        report.unfinished = 2;
        let end = ", 2 unfinished for the next start to complete, 1 problem";
        assert!(ReportLine(&report).to_string().ends_with(end));
    }
}
