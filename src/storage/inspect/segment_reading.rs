//! Reading one segment for people: every batch, and everything that is wrong.

use super::{InspectError, Problem, Summary};
use crate::runtime::{File, Rt};
use crate::storage::scan::{BatchOrder, BatchScanner, ScanStep, ScannedBatch};
use std::path::Path;

/// The reading of one segment.
pub(super) struct SegmentReading<'a> {
    path: &'a Path,
    summary: Summary,
    order: BatchOrder,
    /// Where the batches end that are whole and in order.
    sound: Sound,
}

/// The batches of a segment up to the first that is not whole or not in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sound {
    /// The offset after the last of them.
    pub(super) end: i64,
    /// Their bytes.
    pub(super) len: u64,
    /// What stands behind them, if it is no such batch: why.
    pub(super) bad: Option<String>,
    /// The problems that were met before.
    pub(super) problems: usize,
}

impl<'a> SegmentReading<'a> {
    pub(super) fn new(base: i64, path: &'a Path) -> SegmentReading<'a> {
        SegmentReading {
            path,
            summary: Summary {
                end_offset: base,
                ..Summary::default()
            },
            // Whether a gap is one of compaction is judged elsewhere.
            order: BatchOrder::new(base, base, -1, true),
            sound: Sound {
                end: base,
                len: 0,
                bad: None,
                problems: 0,
            },
        }
    }

    /// Reads the segment to the first bytes that are no batch. A batch with a wrong checksum, or
    /// out of order, is given to `on_batch` too.
    pub(super) async fn run(
        mut self,
        rt: &Rt,
        file: &File,
        mut on_batch: impl FnMut(&ScannedBatch),
    ) -> Result<(Summary, Sound), InspectError> {
        let size = file.size().await?;
        let mut scanner = BatchScanner::new(rt, file, 0, size);
        loop {
            match scanner.next_judged(&self.order).await? {
                (ScanStep::End, _) => break,
                (ScanStep::Batch(batch), refusal) => {
                    self.add(&batch, refusal);
                    on_batch(&batch);
                }
                (ScanStep::Bad(bad), _) => {
                    if bad.zeros && is_zero(rt, file, bad.position, size).await? {
                        self.summary.reserved_bytes = size - bad.position;
                        self.ends_soundly(&bad.detail);
                    } else {
                        self.problem(bad.position, bad.detail);
                    }
                    break;
                }
            }
        }
        Ok((self.summary, self.sound))
    }

    fn add(&mut self, batch: &ScannedBatch, refusal: Option<String>) {
        let header = &batch.header;
        if let Some(detail) = refusal {
            self.problem(batch.position, detail);
        }
        self.summary.has_gaps |= header.base_offset > self.order.end();
        self.order.follow(batch);
        self.summary.end_offset = self.order.end();
        if batch.crc_valid {
            self.summary.batches += 1;
            self.summary.records += batch.fields.record_count.max(0) as u64;
        }
        self.summary.bytes += u64::from(header.len);
        if self.sound.bad.is_none() {
            self.sound.end = self.order.end();
            self.sound.len = self.summary.bytes;
        }
    }

    fn problem(&mut self, position: u64, detail: String) {
        self.ends_soundly(&detail);
        self.summary.problems.push(Problem {
            file: self.path.to_owned(),
            position: Some(position),
            detail,
        });
    }

    /// What stands here is no batch in order: `detail`.
    fn ends_soundly(&mut self, detail: &str) {
        if self.sound.bad.is_none() {
            self.sound.bad = Some(detail.to_owned());
            self.sound.problems = self.summary.problems.len();
        }
    }
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
