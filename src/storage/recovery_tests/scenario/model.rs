//! What is known outside the machine: the ledger of acknowledgements, and all that was written.

use super::super::producers;
use super::compaction::Rounds;
use super::{Ended, Life, Tally};
use crate::protocol::batch::Compression;
use crate::runtime::sim::FaultRates;
use crate::storage::LogBatch;
use std::collections::BTreeMap;

pub(super) struct Model {
    /// Every batch handed to the log, in order, that may be in it.
    pub(super) batches: Vec<LogBatch>,
    /// The timestamps of a batch's records, by its base offset.
    pub(super) times: BTreeMap<i64, Vec<i64>>,
    /// LEO after the last append that completed.
    pub(super) written: i64,
    /// The offset up to which a completed flush (or recovery) answered, or to which a consumer
    /// has read.
    pub(super) acked: i64,
    /// The least LEO that the next load may find.
    pub(super) floor: i64,
    pub(super) epoch: i32,
    unique: i64,
    /// Flushes that run beside the life.
    pub(super) flushes: usize,
    pub(super) presence: Presence,
    /// How many partitions of this name there were before this one.
    pub(super) incarnation: u64,
    pub(super) clean: Clean,
    pub(super) opened: bool,
    /// The recovery point that was durably recorded last.
    pub(super) recorded: Option<i64>,
    /// The offset of the last checkpoint that completed, recorded or not.
    pub(super) checkpointed: Option<i64>,
    /// The high watermark that was durably recorded last, with the log start.
    pub(super) recorded_hw: Option<i64>,
    /// The log start that was acknowledged last, and one that may have been recorded.
    pub(super) log_start: i64,
    pub(super) log_start_perhaps: i64,
    /// A truncation may leave no snapshot, and then the producers are found from what is
    /// left of the log: this is where it began at the last truncation.
    pub(super) forgotten_below: i64,
    /// Likewise, that part of the log may have been compacted then.
    pub(super) holes_below: i64,
    /// Producers that have expired, with LEO then: batches below it need not be known.
    pub(super) expired: BTreeMap<i64, i64>,
    /// When producers appended last, in this life, by the broker's clock.
    pub(super) active_ms: BTreeMap<i64, i64>,
    pub(super) removing: bool,
    pub(super) rounds: Rounds,
    /// Deletion markers are never due.
    pub(super) markers_stay: bool,
    /// What ended something that ran beside the life.
    pub(super) background: Option<Ended>,
    /// Whether what is durable is looked at. Not where a sync is turned into nothing: there the
    /// loss must show by what the log gives back.
    pub(super) probes: bool,
    /// Some batches are compressed.
    pub(super) compresses: bool,
    /// Whether the disk is made to fail.
    pub(super) faulty: bool,
    /// How the disk fails once the load has ended.
    pub(super) rates: Option<FaultRates>,
    pub(super) tally: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clean {
    No,
    Perhaps,
    Yes,
}

/// Whether the partition is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is not, and no checkpoint has a line of it; or its creation was interrupted.
    Absent,
    /// It was created.
    Made,
    /// Its deletion began; nobody was told that it ended.
    Going,
    /// It was deleted. Lines of it may be left in the checkpoints.
    Gone,
}

impl Model {
    pub(super) fn new() -> Model {
        Model {
            batches: Vec::new(),
            times: BTreeMap::new(),
            written: 0,
            acked: 0,
            floor: 0,
            epoch: 0,
            unique: 0,
            flushes: 0,
            presence: Presence::Absent,
            incarnation: 0,
            clean: Clean::No,
            opened: false,
            recorded: None,
            checkpointed: None,
            recorded_hw: None,
            log_start: 0,
            log_start_perhaps: 0,
            forgotten_below: 0,
            holes_below: 0,
            expired: BTreeMap::new(),
            active_ms: BTreeMap::new(),
            removing: false,
            rounds: Rounds::default(),
            markers_stay: false,
            background: None,
            probes: true,
            compresses: false,
            faulty: false,
            rates: None,
            tally: Tally::default(),
        }
    }

    /// The partition is gone with all its lines; another of its name may come.
    pub(super) fn forget_partition(&mut self) {
        *self = Model {
            epoch: self.epoch,
            unique: self.unique,
            incarnation: self.incarnation + 1,
            clean: self.clean,
            opened: self.opened,
            probes: self.probes,
            markers_stay: self.markers_stay,
            compresses: self.compresses,
            faulty: self.faulty,
            rates: self.rates.take(),
            tally: self.tally,
            ..Model::new()
        };
    }

    /// The offset after the last batch that may be in the log.
    pub(super) fn end(&self) -> i64 {
        self.batches.last().map_or(0, |b| b.last_offset + 1)
    }

    pub(super) fn bytes_in(&self, from: i64, to: i64) -> u64 {
        self.batches
            .iter()
            .filter(|b| b.last_offset >= from && b.base_offset < to)
            .map(|b| b.bytes.len() as u64)
            .sum()
    }

    /// Below which offset the batches of a producer need not be known.
    pub(super) fn forgotten(&self) -> impl Fn(i64) -> i64 + '_ {
        |id| {
            let expired = self.expired.get(&id).copied().unwrap_or(0);
            expired.max(self.forgotten_below)
        }
    }
}

impl Life {
    pub(super) fn next_batches(&self) -> Vec<LogBatch> {
        let count = 1 + self.draw(4);
        (0..count).map(|_| self.next_batch()).collect()
    }

    fn next_batch(&self) -> LogBatch {
        let records = 1 + self.draw(5);
        let compacted = self.config.compacted;
        let value_bytes = match self.draw(12) {
            _ if compacted => self.draw(150),
            0 => self.draw(2_300),
            1..=3 => self.draw(1_000),
            _ => self.draw(100),
        };
        let model = &mut *self.model.borrow_mut();
        model.unique += 1;
        let producer = producers::next_producer(&model.batches, records, |n| self.draw(n));
        let mut builder = producers::builder(&producer);
        if model.compresses {
            let codec = Compression::from_code(self.draw(5) as u8).expect("five of them");
            builder = builder.compression(codec);
        }
        // Mostly rising, with late ones among them.
        let times: Vec<i64> = (0..records)
            .map(|_| {
                let late = match self.draw(4) {
                    0 => self.draw(300) as i64,
                    _ => 0,
                };
                10_000 + model.unique * 10 - late
            })
            .collect();
        for (record, timestamp) in times.iter().enumerate() {
            let byte = (model.unique as u64 + record as u64) as u8;
            let value = vec![byte; value_bytes as usize];
            if compacted {
                let key = format!("key {}", self.draw(5));
                let value = (self.draw(5) > 0).then_some(&value[..]);
                builder.push(*timestamp, Some(key.as_bytes()), value);
            } else {
                builder.push(*timestamp, None, Some(&value));
            }
        }
        let base_offset = model.end();
        let batch = LogBatch {
            bytes: builder.build(),
            base_offset,
            last_offset: base_offset + records as i64 - 1,
            leader_epoch: model.epoch,
            max_timestamp: *times.iter().max().expect("a batch has a record"),
            producer,
        };
        assert!(batch.bytes.len() as u64 <= BATCH_BYTES_MAX);
        model.times.insert(base_offset, times);
        model.batches.push(batch.clone());
        batch
    }
}

pub(super) const BATCH_BYTES_MAX: u64 = 12 << 10;
