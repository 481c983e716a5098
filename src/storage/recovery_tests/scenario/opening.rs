//! A start: the data directory, then the partition, both held against the model.

use super::model::{Clean, Presence, BATCH_BYTES_MAX};
use super::{failed, Checked, Life};
use crate::runtime::sim::FaultKind;
use crate::storage::leader_epochs::LeaderEpochs;
use crate::storage::partition_dir::TopicIdFile;
use crate::storage::{
    partition_dir, DataDir, LoadReport, Log, PartitionName, StartKind, Storage, StorageLimits,
};
use uuid::Uuid;

impl Life {
    pub(super) async fn open_and_check(&self) -> Checked<(DataDir, Log)> {
        let model = &self.model;
        let clean_before = std::mem::replace(&mut model.borrow_mut().clean, Clean::Perhaps);
        let opened = DataDir::open(&self.rt, "/data", 1, None).await;
        let data_dir = opened.map_err(failed)?;
        model.borrow_mut().clean = Clean::No;
        match (clean_before, data_dir.start_kind()) {
            (Clean::No, StartKind::Clean) => {
                return Err("a crash was taken for a clean stop".into())
            }
            (Clean::Yes, StartKind::Unclean) => return Err("a clean stop was forgotten".into()),
            _ => {}
        }
        let there = data_dir.partitions().contains(&name());
        let presence = match (model.borrow().presence, there) {
            (Presence::Gone, true) => return Err("a deleted partition came back".into()),
            (Presence::Made, false) => return Err("the partition's directory was lost".into()),
            (Presence::Going, true) => Presence::Made,
            (Presence::Going, false) => Presence::Gone,
            (presence, _) => presence,
        };
        model.borrow_mut().presence = presence;
        let log = if presence == Presence::Gone {
            self.forget_lines(&data_dir).await?;
            self.create(&data_dir).await?
        } else {
            self.check_checkpoints(&data_dir)?;
            self.check_cleaner_line(&data_dir)?;
            match there {
                true => self.open_log(&data_dir).await?,
                false => self.create(&data_dir).await?,
            }
        };
        let rates = self.model.borrow_mut().rates.take();
        if let Some(rates) = rates {
            self.disk.faults_by_seed(rates);
        }
        self.check_opened(&log).await?;
        self.check_durable(&log)?;
        Ok((data_dir, log))
    }

    /// What was recorded durably is read again.
    fn check_checkpoints(&self, data_dir: &DataDir) -> Checked<()> {
        let model = &mut *self.model.borrow_mut();
        if data_dir.high_watermark("topic", 0) < model.recorded_hw {
            return Err("the high watermark's checkpoint was lost".into());
        }
        let log_start = data_dir.log_start("topic", 0);
        let possible = model.log_start..=model.log_start_perhaps;
        let needed = model.recorded_hw.is_some() || model.log_start > 0;
        if log_start.is_some_and(|start| !possible.contains(&start))
            || (needed && log_start.is_none())
        {
            let told = format!("the log start is recorded as {log_start:?}");
            return Err(format!("{told}, expected {possible:?}").into());
        }
        model.log_start = log_start.unwrap_or(0);
        model.log_start_perhaps = model.log_start;
        if data_dir.load_mode("topic", 0).recovery_point < model.recorded {
            return Err("the recovery point's checkpoint was lost".into());
        }
        Ok(())
    }

    /// Makes the partition, as the owner of a new topic's partition does.
    pub(super) async fn create(&self, data_dir: &DataDir) -> Checked<Log> {
        // As the broker's first checkpoint: no log here has gaps.
        let written = data_dir.write_cleaner_points(&Default::default()).await;
        written.map_err(failed)?;
        let dir = partition_dir::create(&self.rt, "/data", &name(), self.topic_id()).await;
        let log = Log::create(&self.storage(), dir.map_err(failed)?, self.config).await;
        let log = log.map_err(failed)?;
        self.model.borrow_mut().presence = Presence::Made;
        Ok(log)
    }

    async fn open_log(&self, data_dir: &DataDir) -> Checked<Log> {
        let dir = self.rt.dir("/data").subdir(&name().to_string());
        if self.model.borrow().presence == Presence::Absent {
            // The creation was interrupted; nobody was told that it succeeded.
            let made = partition_dir::create(&self.rt, "/data", &name(), self.topic_id()).await;
            made.map_err(failed)?;
        } else {
            let topic_id = partition_dir::read_topic_id(&dir, self.topic_id())
                .await
                .map_err(failed)?;
            let damaged = self.disk.planned_faults(FaultKind::LastingBitFlip) > 0;
            if topic_id != TopicIdFile::Read(self.topic_id()) && damaged {
                // A bit of it has changed for good. As the owner, to whom a line in a
                // checkpoint says whose the directory is.
                let name = name();
                let made = partition_dir::create(&self.rt, "/data", &name, self.topic_id());
                made.await.map_err(failed)?;
            } else if topic_id != TopicIdFile::Read(self.topic_id()) {
                return Err(format!("partition.metadata was lost: {topic_id:?}").into());
            }
        }
        let mode = data_dir.load_mode("topic", 0);
        let opened = Log::open(&self.storage(), dir, self.config, mode).await;
        let (log, report) = opened.map_err(failed)?;
        self.model.borrow_mut().tally.opened_clean += u64::from(mode.clean);
        self.check_report(&log, report, mode.clean)?;
        self.model.borrow_mut().presence = Presence::Made;
        Ok(log)
    }

    /// A load says how much it read; that is bounded by what was written since the last
    /// checkpoint.
    pub(super) fn check_report(&self, log: &Log, report: LoadReport, clean: bool) -> Checked<()> {
        let mut model = self.model.borrow_mut();
        model.tally.truncated_bytes += report.truncated_bytes;
        let end = log.end_offset();
        if let (Some(point), false, false) = (model.checkpointed, clean, model.faulty) {
            // What was written since the checkpoint, and one step of the index before it.
            let since: u64 = model.bytes_in(point, end);
            let slack = u64::from(self.config.index_interval_bytes) + 2 * BATCH_BYTES_MAX;
            let read = report.scanned_bytes + report.rebuilt_bytes;
            if read > since + slack {
                return Err(format!(
                    "recovery read {read} bytes, {since} were written since the checkpoint at {point}: {report:?}",
                )
                .into());
            }
        }
        match report.segments == log.segment_count() {
            true => Ok(()),
            false => Err(format!("{report:?} with {} segments", log.segment_count()).into()),
        }
    }

    /// Holds a log that was just opened against the model.
    pub(super) async fn check_opened(&self, log: &Log) -> Checked<()> {
        let end = log.end_offset();
        self.check_ends(log, end)?;
        self.check_content(log).await?;
        let mut model = self.model.borrow_mut();
        model.opened = true;
        model.written = end;
        model.acked = end;
        model.floor = end;
        model.epoch += 1;
        model.active_ms.clear();
        let segments = log.segment_count() as u64;
        model.tally.opened += 1;
        model.tally.segments_max = model.tally.segments_max.max(segments);
        Ok(())
    }

    fn check_ends(&self, log: &Log, end: i64) -> Checked<()> {
        let model = &mut *self.model.borrow_mut();
        // Bits that have changed for good look like a torn write: the log may end there.
        let damaged = self.disk.planned_faults(FaultKind::LastingBitFlip) > 0;
        if end < model.floor && !damaged {
            return Err(format!("LEO is {end}, but {} was acknowledged", model.floor).into());
        }
        if end > model.end() {
            return Err(format!("LEO is {end}, but only {} was written", model.end()).into());
        }
        let flushed = log.flushed_offset();
        if flushed != end {
            return Err(format!("{flushed} of {end} flushed after a load").into());
        }
        let keep = model.batches.partition_point(|b| b.last_offset < end);
        // What ends below its start begins anew there, which may be inside a batch.
        let anew = damaged && end == model.log_start;
        if keep > 0 && model.batches[keep - 1].last_offset + 1 != end && !anew {
            return Err(format!("LEO {end} is inside a batch").into());
        }
        model.tally.unflushed_lost += (model.batches.len() - keep) as u64;
        model.batches.truncate(keep);
        let mut epochs = LeaderEpochs::new();
        for batch in &model.batches {
            epochs.assign(batch.leader_epoch, batch.base_offset);
        }
        epochs.truncate_from_start(model.log_start);
        let (start, segments, found) = {
            let state = log.0.state.borrow();
            let segments = state.segments.clone();
            (state.log_start_offset, segments, state.epochs.clone())
        };
        if start != model.log_start {
            return Err(format!(
                "the log starts at {start}, {} was recorded",
                model.log_start
            )
            .into());
        }
        let expired = segments.len() > 1 && segments[0].next_offset() <= start;
        if expired && segments[0].next_offset() <= model.checkpointed.unwrap_or(0) {
            return Err(format!("a segment below the log start {start} is left").into());
        }
        // A log without batches has the epoch of none (as in Kafka); and no CRC covers the epoch of
        // a batch, so that its bits may have changed for good unnoticed.
        if found != epochs && start < end && !damaged {
            return Err(format!("the epochs are {found:?}, expected {epochs:?}").into());
        }
        Ok(())
    }

    /// Each partition of the name has an id of its own.
    fn topic_id(&self) -> Uuid {
        Uuid::from_u128(7 + u128::from(self.model.borrow().incarnation))
    }

    pub(super) fn storage(&self) -> Storage {
        let limits = StorageLimits {
            cache_bytes: [0, 20_000, 1 << 20][self.draw(3) as usize],
            open_segments_max: 1 + self.draw(3) as usize,
            ..crate::storage::log_tests::limits()
        };
        Storage::new(self.rt.clone(), limits)
    }
}

pub(super) fn name() -> PartitionName {
    PartitionName {
        topic: "topic".to_owned(),
        partition: 0,
    }
}
