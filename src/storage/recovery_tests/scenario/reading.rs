//! What the log gives back, held against the model: batches, offsets, timestamps, indexes.

use super::super::producers;
use super::compaction::Left;
use super::{failed, Checked, Life};
use crate::runtime::sim::FaultKind;
use crate::storage::log_tests::stamped;
use crate::storage::segment::Segment;
use crate::storage::{Log, LogBatch, ReadCheck, TimestampOffset};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A batch as a linear scan of a segment's bytes finds it.
struct Scanned {
    position: u32,
    base_offset: i64,
    last_offset: i64,
    max_timestamp: i64,
}

impl Life {
    /// Reads everything, and holds it against the batches; looks up offsets and timestamps;
    /// looks at every entry of every index.
    pub(super) async fn check_content(&self, log: &Log) -> Checked<()> {
        let (start, end) = (log.log_start_offset(), log.end_offset());
        let expected = self.batches_between(start, end);
        self.check_producers(log, end)?;
        if start > 0 && self.read(log, start - 1, end, 1).await.is_ok() {
            return Err(format!("offset {} is read below the log start", start - 1).into());
        }
        let is_compacting = || self.model.borrow().rounds.running.is_some();
        let was_compacting = is_compacting();
        let left = self.check_read(log, start, end, &expected).await?;
        let (expected, there) = match left {
            // What it looks up may change between two looks, or has since the read.
            Some(_) if was_compacting || is_compacting() => return Ok(()),
            Some(left) => (left.batches, Some(left.offsets)),
            None => (expected, None),
        };
        self.check_offsets(log, start, &expected).await?;
        self.check_timestamps(log, start, end, &expected, there.as_ref())
            .await?;
        if self.walks_damage() {
            return Ok(());
        }
        let segments: Vec<Rc<Segment>> = log.0.state.borrow().segments.clone();
        for segment in segments {
            self.check_indexes(log, &segment).await?;
        }
        self.model.borrow_mut().tally.batches_checked += expected.len() as u64;
        Ok(())
    }

    /// Reads, as a consumer, what is flushed. It must never go.
    pub(super) async fn consume(&self, log: &Log) -> Checked<()> {
        let (start, flushed) = (log.log_start_offset(), log.flushed_offset());
        let expected = self.batches_between(start, flushed);
        self.check_read(log, start, flushed, &expected).await?;
        let mut model = self.model.borrow_mut();
        model.acked = model.acked.max(flushed);
        model.tally.batches_consumed += expected.len() as u64;
        Ok(())
    }

    pub(super) fn check_producers(&self, log: &Log, end: i64) -> Checked<()> {
        let model = self.model.borrow();
        let below = model.batches.partition_point(|b| b.last_offset < end);
        let (batches, forgotten) = (&model.batches[..below], model.forgotten());
        let (known, holes) = (log.producers(), model.holes_below);
        Ok(producers::check_with_holes(
            &known, batches, forgotten, holes,
        )?)
    }

    fn batches_between(&self, start: i64, end: i64) -> Vec<LogBatch> {
        let model = self.model.borrow();
        let within = |b: &&LogBatch| b.last_offset < end && b.last_offset >= start;
        model.batches.iter().filter(within).cloned().collect()
    }

    async fn check_read(
        &self,
        log: &Log,
        start: i64,
        end: i64,
        expected: &[LogBatch],
    ) -> Checked<Option<Left>> {
        let bytes_max = 1 + self.draw(50_000) as usize;
        let mut at = start;
        let mut found: Vec<u8> = Vec::new();
        while at < end {
            let read = self.read(log, at, end, bytes_max).await.map_err(failed)?;
            if read.next_offset <= at {
                return Err(format!("a read at {at} of {end} gives nothing").into());
            }
            at = read.next_offset;
            found.extend(read.slices.iter().flat_map(|s| s.iter()));
        }
        if self.config.compacted {
            return self.check_compacted(found, start, end).map(Some);
        }
        let wanted: Vec<u8> = expected.iter().flat_map(|b| stamped(b).to_vec()).collect();
        if found != wanted && !(self.has_damage() && self.damage_shows(&found, expected)) {
            let differs = found.iter().zip(&wanted).position(|(a, b)| a != b);
            return Err(format!(
                "{} bytes are read, {} were written; they differ at {differs:?}",
                found.len(),
                wanted.len()
            )
            .into());
        }
        Ok(None)
    }

    pub(super) fn checks_crcs(&self) -> bool {
        self.check == ReadCheck::Crcs
    }

    /// Whether bits of the medium have changed, or come wrong for once beside what reads check.
    fn has_damage(&self) -> bool {
        let count = |kind| self.disk.planned_faults(kind);
        let once = self.checks_crcs() && count(FaultKind::BitFlip) > 0;
        once || count(FaultKind::LastingBitFlip) > 0
    }

    /// Whether all batches that are not what was written fail their own CRC, so that whoever
    /// reads them notices, or there are none where reads look at it. Offset, length and leader
    /// epoch are not in it.
    fn damage_shows(&self, found: &[u8], expected: &[LogBatch]) -> bool {
        let mut rest = found;
        for batch in expected {
            let wanted = stamped(batch);
            let Some((bytes, after)) = rest.split_at_checked(wanted.len()) else {
                return false;
            };
            rest = after;
            let crc = crc_fast::crc32_iscsi(&bytes[21..]).to_be_bytes();
            let is_whole = self.checks_crcs() || bytes[17..21] == crc;
            if bytes[16..] != wanted[16..] && is_whole {
                return false;
            }
        }
        rest.is_empty()
    }

    /// Whether bits came wrong where a search decides by what no CRC covers: offsets and leader
    /// epochs of batches, and the indexes.
    fn walks_damage(&self) -> bool {
        let flips = [FaultKind::BitFlip, FaultKind::LastingBitFlip];
        flips.iter().any(|kind| self.disk.planned_faults(*kind) > 0)
    }

    /// Reads from single offsets: each gives the batch that holds it.
    async fn check_offsets(&self, log: &Log, start: i64, expected: &[LogBatch]) -> Checked<()> {
        let Some(last) = expected.last() else {
            return Ok(());
        };
        for _ in 0..LOOKUPS {
            let offset = start + self.draw((last.last_offset - start + 1) as u64) as i64;
            let holder = expected.iter().find(|b| b.last_offset >= offset);
            let wanted = stamped(holder.expect("below the end"));
            let read = self.read(log, offset, i64::MAX, 1).await;
            let found = read.map_err(failed)?.slices.concat();
            let batch = std::slice::from_ref(holder.expect("below the end"));
            let damaged = self.has_damage() && self.damage_shows(&found, batch);
            if found != wanted && !damaged {
                let base = |bytes: &[u8]| bytes.first_chunk::<8>().map(|b| i64::from_be_bytes(*b));
                let (found, wanted) = ((base(&found), found.len()), (base(&wanted), wanted.len()));
                return Err(format!(
                    "offset {offset} gives (base offset, bytes) {found:?}, expected {wanted:?}"
                )
                .into());
            }
        }
        Ok(())
    }

    async fn check_timestamps(
        &self,
        log: &Log,
        start: i64,
        end: i64,
        expected: &[LogBatch],
        there: Option<&BTreeSet<i64>>,
    ) -> Checked<()> {
        let records: Vec<TimestampOffset> = {
            let model = self.model.borrow();
            let of = |batch: &LogBatch| {
                let (base, leader_epoch) = (batch.base_offset, batch.leader_epoch);
                let times = model.times[&base].clone().into_iter();
                times
                    .zip(base..)
                    .map(move |(timestamp, offset)| TimestampOffset {
                        timestamp,
                        offset,
                        leader_epoch,
                    })
            };
            let all = expected.iter().flat_map(of);
            let is_there = |offset: &i64| there.is_none_or(|there| there.contains(offset));
            all.filter(|record| record.offset >= start && is_there(&record.offset))
                .collect()
        };
        let Some(last) = records.last() else {
            return Ok(());
        };
        let mut asked = vec![0, last.timestamp, last.timestamp + 1_000];
        for _ in 0..LOOKUPS {
            let near = records[self.draw(records.len() as u64) as usize].timestamp;
            asked.push(near - 2 + self.draw(5) as i64);
        }
        for timestamp in asked {
            let found = log.offset_for_timestamp(timestamp, end).await;
            let wanted = records.iter().find(|record| record.timestamp >= timestamp);
            if self.walks_damage() {
                continue;
            }
            same(
                &format!("timestamp {timestamp}"),
                found.map_err(failed)?,
                wanted,
            )?;
            self.model.borrow_mut().tally.timestamps_checked += 1;
        }
        let found = log.offset_of_max_timestamp(end).await.map_err(failed)?;
        if self.walks_damage() {
            return Ok(());
        }
        let most = records.iter().map(|record| record.timestamp).max();
        let wanted = records.iter().find(|record| Some(record.timestamp) == most);
        same("the largest timestamp", found, wanted)
    }

    /// Every entry of both indexes says what a scan over the segment's bytes finds.
    async fn check_indexes(&self, log: &Log, segment: &Rc<Segment>) -> Checked<()> {
        let file = log.0.open_file(segment).await.map_err(failed)?;
        let (len, base) = (segment.len() as usize, segment.base_offset);
        let bytes = file.read_at(0, len).await.map_err(failed)?;
        let batches = scan(&bytes);
        if segment.len() as usize != len {
            return Ok(());
        }
        let wrong = |what: String| format!("in the segment {base} {what}");
        let compared = segment.with_indexes(|index, times| {
            let (mut entries, mut before) = (0, None);
            for (last_offset, position) in index.iter() {
                let is_batch = |b: &Scanned| b.position == position && b.last_offset == last_offset;
                if !batches.iter().any(is_batch) || before >= Some(last_offset) {
                    return Err(wrong(format!("no batch ends at {last_offset}, {position}")));
                }
                before = Some(last_offset);
                entries += 1;
            }
            let mut before = None;
            for (timestamp, offset) in times.iter() {
                let below = batches.iter().filter(|b| b.last_offset <= offset);
                let largest = below.map(|b| b.max_timestamp).max();
                if largest != Some(timestamp) || before >= Some(timestamp) {
                    return Err(wrong(format!("{timestamp} is not the largest at {offset}")));
                }
                before = Some(timestamp);
                entries += 1;
            }
            for batch in &batches {
                for offset in batch.base_offset..=batch.last_offset {
                    let before = index.lookup(offset).map_or(0, |(_, position)| position);
                    let at = batches.iter().find(|b| b.position == before);
                    if at.is_none_or(|b| b.base_offset > offset) {
                        return Err(wrong(format!("{offset} is looked for behind it")));
                    }
                }
            }
            Ok(entries)
        });
        // Closed meanwhile: there is nothing to compare.
        let entries: u64 = compared.unwrap_or(Ok(0))?;
        self.model.borrow_mut().tally.index_entries_checked += entries;
        Ok(())
    }
}

fn same(
    asked: &str,
    found: Option<TimestampOffset>,
    wanted: Option<&TimestampOffset>,
) -> Checked<()> {
    match found.as_ref() == wanted {
        true => Ok(()),
        false => Err(format!("{asked} is at {found:?}, a scan finds {wanted:?}").into()),
    }
}

/// The batches in the bytes of a segment, one after the other.
fn scan(bytes: &[u8]) -> Vec<Scanned> {
    let number = |at: usize| i64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let small = |at: usize| i32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let (mut found, mut at) = (Vec::new(), 0);
    while at + 61 <= bytes.len() {
        let base_offset = number(at);
        found.push(Scanned {
            position: at as u32,
            base_offset,
            last_offset: base_offset + i64::from(small(at + 23)),
            // Of a batch without records nothing is found.
            max_timestamp: match small(at + 57) {
                0 => -1,
                _ => number(at + 35),
            },
        });
        at += 12 + small(at + 8) as usize;
    }
    found
}

const LOOKUPS: usize = 6;
