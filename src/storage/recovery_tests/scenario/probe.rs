//! What the log says is durable, held against what the disk has.

use super::{Checked, Life};
use crate::runtime::sim::FaultKind;
use crate::storage::checkpoint_file;
use crate::storage::data_dir::RECOVERY_POINT_FILE;
use crate::storage::scan::READ_BYTES;
use crate::storage::segment::Segment;
use crate::storage::{Log, LogBatch};
use std::collections::BTreeMap;
use std::rc::Rc;

impl Life {
    /// Neither what is acknowledged nor a recovery point, in memory or in the file, exceeds
    /// what would be left if the power were cut now and all that is not durable were lost.
    pub(super) fn check_durable(&self, log: &Log) -> Checked<()> {
        let damaged = self.disk.planned_faults(FaultKind::LastingBitFlip) > 0;
        if damaged || !self.model.borrow().probes {
            return Ok(());
        }
        let (flushed, point) = (log.flushed_offset(), log.recovery_point());
        if point > flushed {
            return Err(format!("the recovery point is {point}, {flushed} is flushed").into());
        }
        let durable = self.durable_end(log);
        if flushed > durable {
            return Err(format!("{flushed} is flushed, but only {durable} is durable").into());
        }
        let model = &mut *self.model.borrow_mut();
        let in_file = self.recovery_point_in_file()?;
        // After a truncation the file may say more: then no snapshot proves it.
        if let Some(recorded) = model.recorded {
            if in_file.is_none_or(|point| point < recorded || point > durable) {
                let told = format!("the recovery point's file has {in_file:?}");
                return Err(
                    format!("{told}; {recorded} was recorded, {durable} is durable").into(),
                );
            }
        }
        model.tally.durable_checks += 1;
        Ok(())
    }

    /// The recovery point that a start would read after the worst power cut.
    fn recovery_point_in_file(&self) -> Checked<Option<i64>> {
        let files: BTreeMap<_, _> = self.disk.read_durable("/data").into_iter().collect();
        let Some(bytes) = files.get(RECOVERY_POINT_FILE) else {
            return Ok(None);
        };
        let entries = checkpoint_file::parse(bytes).map_err(|e| e.to_string())?;
        Ok(entries.get(&("topic".to_owned(), 0)).copied())
    }

    /// The offset up to which durable files hold the batches that were written, from the log's
    /// start on without a hole.
    fn durable_end(&self, log: &Log) -> i64 {
        let model = self.model.borrow();
        let files = self.disk.read_durable("/data/topic-0").into_iter();
        let segments: BTreeMap<i64, Vec<u8>> = files
            .filter_map(|(name, bytes)| {
                let base = name.strip_suffix(".log")?.parse().ok()?;
                Some((base, bytes))
            })
            .collect();
        let start = log.log_start_offset();
        // What is compacted was sealed before, and shows in what a load gives back.
        let first_whole = {
            let state = log.0.state.borrow();
            let whole = |s: &&Rc<Segment>| s.next_offset() > model.rounds.bound;
            let found = state.segments.iter().find(whole).or(state.segments.last());
            found.map_or(start, |s| s.base_offset)
        };
        let start = match model.rounds.bound {
            0 => start,
            _ => start.max(first_whole),
        };
        let first = segments.range(..=start).next_back();
        let mut end = first.map_or(start, |(base, _)| *base);
        while let Some(bytes) = segments.get(&end) {
            let before = end;
            let from = model.batches.partition_point(|b| b.base_offset < end);
            end = prefix_end(bytes, &model.batches[from..], end);
            if end == before {
                break;
            }
        }
        end
    }
}

/// The offset after the last of `batches` that the bytes of a segment begin with.
fn prefix_end(mut bytes: &[u8], batches: &[LogBatch], base: i64) -> i64 {
    assert!((bytes.len() as u64) < READ_BYTES, "segments are small here");
    let mut end = base;
    for batch in batches {
        let len = batch.bytes.len();
        if bytes.len() < len || bytes[..8] != batch.base_offset.to_be_bytes() {
            break;
        }
        // All that a stamp does not change.
        if bytes[8..12] != batch.bytes[8..12] || bytes[16..len] != batch.bytes[16..] {
            break;
        }
        bytes = &bytes[len..];
        end = batch.last_offset + 1;
    }
    end
}
