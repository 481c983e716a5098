//! What a life does to its partition, and what the model learns of each step.

use super::model::{Clean, Presence};
use super::opening::name;
use super::{failed, Checked, Life};
use crate::storage::checkpoint_file::CheckpointEntries;
use crate::storage::{partition_dir, DataDir, Log, RetentionRules};

impl Life {
    pub(super) async fn append(&self, log: &Log) -> Checked<()> {
        let batches = self.next_batches();
        log.append(&batches).await.map_err(failed)?;
        let now_ms = self.rt.wall_clock_ms();
        let mut model = self.model.borrow_mut();
        for producer in batches.iter().filter_map(|b| b.producer) {
            model.active_ms.insert(producer.id, now_ms);
        }
        model.written = log.end_offset();
        match model.written == model.end() {
            true => Ok(()),
            false => Err(format!("LEO is {} after an append", model.written).into()),
        }
    }

    pub(super) async fn flush(&self, log: &Log) -> Checked<()> {
        let flushed = log.flush().await.map_err(failed)?;
        let mut model = self.model.borrow_mut();
        model.acked = model.acked.max(flushed);
        Ok(())
    }

    pub(super) async fn checkpoint(&self, data_dir: &DataDir, log: &Log) -> Checked<()> {
        let point = log.checkpoint().await.map_err(failed)?;
        {
            let mut model = self.model.borrow_mut();
            model.acked = model.acked.max(point);
            model.checkpointed = Some(point);
        }
        if self.draw(2) == 0 {
            // Another checkpoint may come before the point is recorded.
            return Ok(());
        }
        let written = data_dir.write_recovery_points(&line(point)).await;
        written.map_err(failed)?;
        self.model.borrow_mut().recorded = Some(point);
        if point % 4 == 0 {
            self.record_high_watermark(data_dir, point).await?;
        }
        Ok(())
    }

    async fn record_high_watermark(&self, data_dir: &DataDir, offset: i64) -> Checked<()> {
        let offset = offset.max(self.model.borrow().recorded_hw.unwrap_or(0));
        let written = data_dir.write_high_watermarks(&line(offset)).await;
        written.map_err(failed)?;
        let log_start = self.model.borrow().log_start;
        let written = data_dir.write_log_starts(&line(log_start)).await;
        written.map_err(failed)?;
        self.model.borrow_mut().recorded_hw = Some(offset);
        Ok(())
    }

    /// DeleteRecords, or a retention that also takes the active segment: the new log start
    /// is recorded, then the log learns of it, then the files go.
    pub(super) async fn move_start(&self, data_dir: &DataDir, log: &Log) -> Checked<()> {
        let (before, acked) = {
            let model = self.model.borrow();
            (model.log_start, model.acked)
        };
        let target = match self.draw(3) {
            0 => {
                let rules = RetentionRules {
                    retention_ms: -1,
                    retention_bytes: [0, 30_000, 200_000][self.draw(3) as usize],
                    bound: acked,
                    now_ms: self.rt.wall_clock_ms(),
                };
                log.expired_up_to(rules).await.map_err(failed)?
            }
            _ => before + self.draw((acked - before + 1) as u64) as i64,
        };
        if !(before..=acked).contains(&target) {
            let range = format!("{before} to {acked}");
            return Err(format!("the log would start at {target}, not {range}").into());
        }
        log.settle_below(target).await.map_err(failed)?;
        {
            let mut model = self.model.borrow_mut();
            // What is to go is sealed first, and that is a checkpoint.
            model.acked = model.acked.max(log.flushed_offset().min(model.written));
            model.log_start_perhaps = target;
        }
        let written = data_dir.write_log_starts(&line(target)).await;
        written.map_err(failed)?;
        {
            let mut model = self.model.borrow_mut();
            model.log_start = target;
            model.tally.starts_moved += 1;
        }
        log.set_log_start(target);
        if self.draw(5) > 0 {
            self.model.borrow_mut().removing = true;
            let removed = log.remove_head().await.map_err(failed)?;
            let mut model = self.model.borrow_mut();
            model.removing = false;
            model.tally.segments_removed += removed.segments;
            model.acked = model.acked.max(log.flushed_offset().min(model.written));
        }
        Ok(())
    }

    pub(super) async fn truncate(&self, data_dir: &DataDir, log: &Log) -> Checked<()> {
        let Some(end) = self.new_end() else {
            return Ok(());
        };
        if self.model.borrow().recorded_hw > Some(end) {
            // A load takes it for flushed, so it comes down first.
            let written = data_dir.write_high_watermarks(&line(end)).await;
            written.map_err(failed)?;
            self.model.borrow_mut().recorded_hw = Some(end);
        }
        let offset = {
            let model = self.model.borrow();
            let batch = model.batches.iter().find(|b| b.base_offset == end);
            let batch = batch.expect("a batch starts there");
            let len = (batch.last_offset - batch.base_offset + 1) as u64;
            batch.base_offset + self.draw(len) as i64
        };
        let cut = log.truncate_to(offset).await.map_err(failed)?;
        {
            let mut model = self.model.borrow_mut();
            let keep = model.batches.partition_point(|b| b.base_offset < end);
            model.batches.truncate(keep);
            model.epoch += 1;
            model.tally.truncations += 1;
            // When those that are left were active is found again.
            model.active_ms.clear();
        }
        self.check_producers(log, end)?;
        match cut == end && log.end_offset() == end {
            true => Ok(()),
            false => Err(format!("cut at {cut}, expected {end}").into()),
        }
    }

    /// Where a truncation shall cut; from here on nothing behind it is promised.
    fn new_end(&self) -> Option<i64> {
        let model = &mut *self.model.borrow_mut();
        if model.flushes > 0 {
            return None;
        }
        let log_start = model.log_start;
        // What is compacted is committed, and never cut.
        let least = log_start.max(model.rounds.bound);
        let below = model.batches.partition_point(|b| b.base_offset < least);
        let left = (model.batches.len() - below) as u64;
        if left == 0 {
            return None;
        }
        let end = model.batches[below + self.draw(left) as usize].base_offset;
        model.acked = model.acked.min(end);
        model.written = model.written.min(end);
        model.floor = model.floor.min(end);
        model.recorded = None;
        model.checkpointed = None;
        model.forgotten_below = log_start;
        model.holes_below = model.rounds.bound;
        Some(end)
    }

    /// Producers that were inactive for long are forgotten, and no others.
    pub(super) fn expire_producers(&self, log: &Log) -> Checked<()> {
        let expiration_ms = [0, 5, 50, 500][self.draw(4) as usize];
        let now_ms = self.rt.wall_clock_ms();
        let before = log.producers();
        let count = log.expire_producers(now_ms, expiration_ms);
        let after = log.producers();
        let model = &mut *self.model.borrow_mut();
        let end = log.end_offset();
        let mut gone = 0;
        for producer in before.iter() {
            let is_gone = after.batches_of(producer.id).is_none();
            let active_ms = model.active_ms.get(&producer.id);
            let expected = active_ms.map(|active_ms| now_ms - active_ms >= expiration_ms);
            if expected.is_some_and(|expected| expected != is_gone) {
                let active = now_ms - active_ms.expect("it was found");
                return Err(format!(
                    "a producer that was active {active} ms ago is gone: {is_gone}; they expire after {expiration_ms} ms"
                )
                .into());
            }
            if is_gone {
                model.expired.insert(producer.id, end);
                gone += 1;
            }
        }
        model.tally.producers_expired += gone;
        match gone == count as u64 {
            true => Ok(()),
            false => Err(format!("{count} producers expired, {gone} are gone").into()),
        }
    }

    /// Deletes the partition, and creates another of its name.
    pub(super) async fn delete_and_create(&self, data_dir: &DataDir, log: &mut Log) -> Checked<()> {
        if self.model.borrow().flushes > 0 {
            return Ok(());
        }
        self.end_round().await;
        log.clone().abandon().await;
        {
            let mut model = self.model.borrow_mut();
            model.presence = Presence::Going;
            model.tally.partitions_deleted += 1;
            // One until the deletion has ended.
            model.tally.deletions_cut_short += 1;
        }
        let renamed = partition_dir::begin_delete(&self.rt, "/data", &name()).await;
        let renamed = renamed.map_err(failed)?;
        self.model.borrow_mut().presence = Presence::Gone;
        if self.draw(4) > 0 {
            let finished = partition_dir::finish_delete(&self.rt, "/data", &renamed).await;
            finished.map_err(failed)?;
        }
        self.forget_lines(data_dir).await?;
        self.model.borrow_mut().tally.deletions_cut_short -= 1;
        *log = self.create(data_dir).await?;
        Ok(())
    }

    /// Removes the lines of a deleted partition, before its name can be used again.
    pub(super) async fn forget_lines(&self, data_dir: &DataDir) -> Checked<()> {
        let none = CheckpointEntries::new();
        let written = data_dir.write_recovery_points(&none).await;
        written.map_err(failed)?;
        let written = data_dir.write_high_watermarks(&none).await;
        written.map_err(failed)?;
        let written = data_dir.write_log_starts(&none).await;
        written.map_err(failed)?;
        let written = data_dir.write_cleaner_points(&none).await;
        written.map_err(failed)?;
        let mut model = self.model.borrow_mut();
        model.forget_partition();
        Ok(())
    }

    pub(super) async fn stop_cleanly(&self, data_dir: &DataDir, log: &Log) -> Checked<()> {
        // Flushes in flight end with the close: they are not waited for here.
        let point = log.close().await.map_err(failed)?;
        self.end_round().await;
        let end = self.model.borrow().end();
        if point != end {
            return Err(format!("closed at {point}, expected {end}").into());
        }
        self.model.borrow_mut().acked = end;
        let written = data_dir.write_recovery_points(&line(point)).await;
        written.map_err(failed)?;
        {
            let mut model = self.model.borrow_mut();
            model.recorded = Some(point);
            model.checkpointed = Some(point);
            model.clean = Clean::Perhaps;
        }
        data_dir.mark_clean().await.map_err(failed)?;
        self.model.borrow_mut().clean = Clean::Yes;
        Ok(())
    }
}

/// A checkpoint's only line.
pub(super) fn line(offset: i64) -> CheckpointEntries {
    [(("topic".to_owned(), 0), offset)].into()
}
