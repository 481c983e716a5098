//! Lives of a compacted log: rounds of compaction among all that else happens to it.
//!
//! What a round may do is known from what was written alone: below the bound that some round
//! was given, a record may be gone if its key has a later one there, or if it is itself that
//! later one, a deletion marker that is due. All else is there, as it was written, in its
//! order and at its offset; and where a marker is gone, what it deleted is gone as well.

use super::{failed, Checked, Life, Step};
use crate::protocol::batch::{BatchView, Batches, RecordIter};
use crate::runtime::local::Event;
use crate::storage::{
    Compacted, CompactionError, CompactionMeans, CompactionRules, DataDir, Log, LogBatch, Throttle,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// What is known of the compaction of the log.
#[derive(Default)]
pub(super) struct Rounds {
    /// The greatest bound that a round was given: above it all is as it was written.
    pub(super) bound: i64,
    /// The line that was recorded last, and one that may have been.
    pub(super) recorded: Option<i64>,
    pub(super) perhaps: Option<i64>,
    /// A round runs.
    pub(super) running: Option<Event>,
}

/// What a compacted log gave back.
pub(super) struct Left {
    /// Its batches as they are now.
    pub(super) batches: Vec<LogBatch>,
    /// The offsets of the records in them.
    pub(super) offsets: BTreeSet<i64>,
}

/// A record as it was written.
struct Written {
    offset: i64,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Life {
    /// A step that only a compacted log takes, or none.
    pub(super) async fn compaction_step(
        &self,
        data_dir: &Rc<DataDir>,
        log: &Log,
    ) -> Checked<Option<Step>> {
        match self.draw(24) {
            0 => self.compact(data_dir, log).await?,
            1 => {
                let (life, data_dir, log) = (self.clone(), data_dir.clone(), log.clone());
                self.spawn(async move { life.compact(&data_dir, &log).await });
            }
            2 if self.draw(3) == 0 => {
                // The life ends within a round, or right after it.
                let (life, data_dir, log) = (self.clone(), data_dir.clone(), log.clone());
                self.spawn(async move { life.compact(&data_dir, &log).await });
                let time = Duration::from_micros(self.draw(40_000));
                self.rt.sleep(time).await;
                return Ok(Some(Step::EndsLife));
            }
            3 => {
                // Deletion markers come due.
                let time = Duration::from_millis(self.draw(20));
                self.rt.sleep(time).await;
            }
            _ => return Ok(None),
        }
        Ok(Some(Step::GoesOn))
    }

    /// One round, if none runs, up to some bound of what is acknowledged.
    async fn compact(&self, data_dir: &Rc<DataDir>, log: &Log) -> Checked<()> {
        let stop = Event::new();
        let bound = {
            let model = &mut *self.model.borrow_mut();
            if model.rounds.running.is_some() {
                return Ok(());
            }
            let least = model.rounds.bound.max(model.log_start).min(model.acked);
            let bound = match self.draw(3) {
                0 => least + self.draw((model.acked - least + 1) as u64) as i64,
                _ => model.acked,
            };
            model.rounds.running = Some(stop.clone());
            model.rounds.bound = model.rounds.bound.max(bound);
            model.tally.rounds_cut_short += 1;
            bound
        };
        let rules = CompactionRules {
            bound,
            first_dirty: log.cleaned_to().unwrap_or(0),
            now_ms: self.rt.wall_clock_ms(),
            delete_retention_ms: self.delete_retention_ms(),
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
        };
        let means = self.means(data_dir, stop);
        let outcome = match log.compaction_need(&rules).await {
            Ok(need) if need.end > bound.max(need.first_dirty) => {
                return Err(format!("{need:?} reaches above the bound {bound}").into());
            }
            Ok(_) => log.compact(&rules, &means).await,
            Err(error) => Err(error),
        };
        let model = &mut *self.model.borrow_mut();
        model.rounds.running = None;
        model.tally.rounds_cut_short -= 1;
        match outcome {
            Ok(done) => self.check_round(&rules, &done, model.rounds.recorded)?,
            // Closed, deleted or cut meanwhile.
            Err(CompactionError::Closed(_)) => return Ok(()),
            Err(error) => return Err(failed(error)),
        }
        let done = outcome.expect("it was looked at");
        model.tally.rounds += 1;
        model.tally.records_compacted += done.records_before - done.records_after;
        model.tally.segments_merged +=
            done.segments_before.saturating_sub(done.segments_after) as u64;
        Ok(())
    }

    fn check_round(
        &self,
        rules: &CompactionRules,
        done: &Compacted,
        recorded: Option<i64>,
    ) -> Checked<()> {
        let most = rules.bound.max(rules.first_dirty);
        let is_wrong = done.cleaned_to > most && done.segments_before > 0
            || done.records_after > done.records_before
            || (done.segments_before > 0 && !done.ended_early && Some(done.cleaned_to) != recorded);
        match is_wrong {
            true => Err(format!("{done:?} of {rules:?}, the line is {recorded:?}").into()),
            false => Ok(()),
        }
    }

    fn means(&self, data_dir: &Rc<DataDir>, stop: Event) -> CompactionMeans {
        let (life, data_dir) = (self.clone(), data_dir.clone());
        CompactionMeans {
            throttle: Throttle::new(self.rt.clone(), 0),
            map_bytes: [100, 400, 1 << 20][self.draw(3) as usize],
            record: Rc::new(move |offset| {
                let (life, data_dir) = (life.clone(), data_dir.clone());
                Box::pin(async move {
                    life.model.borrow_mut().rounds.perhaps = Some(offset);
                    let line = super::steps::line(offset);
                    let written = data_dir.write_cleaner_points(&line).await;
                    written.map_err(|error| error.to_string())?;
                    life.model.borrow_mut().rounds.recorded = Some(offset);
                    Ok(())
                })
            }),
            stop,
        }
    }

    /// The round that runs is told to end, and has ended.
    pub(super) async fn end_round(&self) {
        loop {
            match &self.model.borrow().rounds.running {
                Some(stop) => stop.notify_all(),
                None => return,
            }
            self.rt.sleep(Duration::from_micros(200)).await;
        }
    }

    /// The line that was recorded durably is read again.
    pub(super) fn check_cleaner_line(&self, data_dir: &DataDir) -> Checked<()> {
        if !self.config.compacted {
            return Ok(());
        }
        let rounds = &mut self.model.borrow_mut().rounds;
        let line = data_dir.cleaned_to("topic", 0);
        if line != rounds.recorded && line != rounds.perhaps {
            let (was, perhaps) = (rounds.recorded, rounds.perhaps);
            return Err(format!(
                "the cleaner's line is {line:?}; {was:?} was recorded, perhaps {perhaps:?}"
            )
            .into());
        }
        rounds.recorded = line;
        rounds.perhaps = line;
        Ok(())
    }

    /// How long deletion markers stay: in some lives of the log for ever.
    fn delete_retention_ms(&self) -> i64 {
        match self.model.borrow().markers_stay {
            true => i64::MAX / 2,
            false => 5,
        }
    }

    /// Holds the bytes of a compacted log from `start` to `end` against what was written.
    pub(super) fn check_compacted(&self, bytes: Vec<u8>, start: i64, end: i64) -> Checked<Left> {
        let model = self.model.borrow();
        let mut left = Left {
            batches: Vec::new(),
            offsets: BTreeSet::new(),
        };
        for view in Batches::new(bytes.into()) {
            let view = view.map_err(|e| format!("what is read is no batch: {e}"))?;
            let header = view.header();
            let at = model
                .batches
                .binary_search_by_key(&header.base_offset, |b| b.base_offset);
            let Ok(at) = at else {
                return Err(format!("no batch was written at {}", header.base_offset).into());
            };
            let written = &model.batches[at];
            let before = left.batches.last().map_or(-1, |b| b.last_offset);
            if header.base_offset <= before {
                return Err(format!("{} comes after {before}", header.base_offset).into());
            }
            let offsets = check_batch(&view, written)?;
            left.offsets.extend(offsets);
            left.batches.push(LogBatch {
                bytes: view.bytes().clone(),
                ..written.clone()
            });
        }
        let all = model.batches.iter().filter(|b| b.last_offset < end);
        let records: Vec<Written> = all.flat_map(records_of).collect();
        self.check_missing(&records, &left.offsets, start, model.rounds.bound)?;
        Ok(left)
    }

    fn check_missing(
        &self,
        records: &[Written],
        there: &BTreeSet<i64>,
        start: i64,
        bound: i64,
    ) -> Checked<()> {
        let markers_stay = self.model.borrow().markers_stay;
        // The last of each key below the bound.
        let mut last: BTreeMap<&[u8], &Written> = BTreeMap::new();
        for record in records.iter().filter(|r| r.offset < bound) {
            last.insert(&record.key, record);
        }
        for record in records.iter().filter(|r| r.offset >= start) {
            let (offset, key) = (record.offset, String::from_utf8_lossy(&record.key));
            let latest = last.get(&record.key[..]).filter(|_| offset < bound);
            let Some(latest) = latest else {
                if !there.contains(&offset) {
                    return Err(format!("the record at {offset} is gone, above {bound}").into());
                }
                continue;
            };
            let may_go = latest.offset > offset || (latest.value.is_none() && !markers_stay);
            match there.contains(&offset) {
                false if !may_go => {
                    return Err(format!("the last record of {key} is gone, at {offset}").into());
                }
                true if !there.contains(&latest.offset) => {
                    let marker = latest.offset;
                    return Err(format!(
                        "{key} is back: {offset} is there, its marker at {marker} is gone"
                    )
                    .into());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// That a batch holds nothing that was not written: the offsets of its records.
fn check_batch(view: &BatchView, written: &LogBatch) -> Checked<Vec<i64>> {
    let header = view.header();
    let base = header.base_offset;
    view.validate_crc()
        .map_err(|e| format!("the batch at {base}: {e}"))?;
    let (id, epoch, sequence) = match written.producer {
        Some(p) => (p.id, p.epoch, p.base_sequence),
        None => (-1, -1, -1),
    };
    let same = header.last_offset() == written.last_offset
        && header.leader_epoch == written.leader_epoch
        && (header.producer_id, header.producer_epoch) == (id, epoch)
        && header.base_sequence == sequence;
    if !same {
        return Err(format!("the batch at {base} is {header:?}, written was {written:?}").into());
    }
    let (mut offsets, before) = (Vec::new(), records_of(written));
    for record in RecordIter::new(view.records_bytes(), header.record_count) {
        let record = record.map_err(|e| format!("the batch at {base}: {e}"))?;
        let offset = base + i64::from(record.offset_delta);
        let is_it = |w: &Written| {
            w.offset == offset
                && record.key == Some(&w.key[..])
                && record.value == w.value.as_deref()
        };
        if !before.iter().any(is_it) || offsets.last() >= Some(&offset) {
            return Err(format!("the record at {offset} is not what was written").into());
        }
        offsets.push(offset);
    }
    Ok(offsets)
}

fn records_of(batch: &LogBatch) -> Vec<Written> {
    let view = BatchView::parse(batch.bytes.clone()).expect("it was built here");
    let records = RecordIter::new(view.records_bytes(), view.header().record_count);
    let written = records.map(|record| {
        let record = record.expect("it was built here");
        Written {
            offset: batch.base_offset + i64::from(record.offset_delta),
            key: record.key.expect("all have keys").to_vec(),
            value: record.value.map(<[u8]>::to_vec),
        }
    });
    written.collect()
}
