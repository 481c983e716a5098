//! What a partition knows of its idempotent producers (KIP-98): the epoch of each, and
//! its last five batches.
//!
//! A pure state machine. [`ProducerStates::check`] says what a batch is before it is
//! appended (new, a duplicate of one that is there, or out of order), and
//! [`ProducerStates::append`] takes in one that was. The rules are those of Kafka's
//! `ProducerAppendInfo` and `ProducerStateEntry`; five is what Kafka's clients rely on:
//! they have at most five requests in flight (`max.in.flight.requests.per.connection`).
//!
//! The map is persistent, so a clone takes no time and costs memory only for what
//! changes afterwards: a checkpoint keeps the state of one moment that way.
//!
//! It is bounded. A partition remembers [`PRODUCERS_MAX`] producers (and a quarter more
//! until it tidies up); beyond that those that have been inactive for longest are
//! forgotten, so ids that somebody makes up cost a few MB at most. A producer that was
//! forgotten is an unknown one, which may begin at any sequence.
//!
//! What it is not: it keeps no transactions. Batches without a producer id never come
//! here.

use super::producer_snapshot::ProducerEntry;
use crate::protocol::batch::BatchHeader;
use imbl::OrdMap;
use smallvec::SmallVec;

/// What a batch says of the producer that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchProducer {
    /// The producer's id, 0 or above.
    pub id: i64,
    /// The producer's epoch.
    pub epoch: i16,
    /// The sequence of the first record; below 0 in a transaction marker.
    pub base_sequence: i32,
    /// The sequence of the last record. Sequences wrap from 2^31-1 to 0.
    pub last_sequence: i32,
    /// Whether the batch is part of a transaction.
    pub is_transactional: bool,
}

/// A batch that was appended, as it is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProducedBatch {
    /// The sequence of its last record.
    pub last_sequence: i32,
    /// Last minus first offset, and so last minus first sequence.
    pub offset_delta: i32,
    /// The offset of its last record.
    pub last_offset: i64,
    /// Its largest timestamp, milliseconds.
    pub timestamp: i64,
}

/// What a batch is to the state before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The next one of its producer, or the first of one that is not known.
    Fresh,
    /// It stands in the log already: one of the producer's last five has its epoch and
    /// its sequences.
    Duplicate(ProducedBatch),
    /// Something between this batch and the last one is missing, or it is older than
    /// the last five: OUT_OF_ORDER_SEQUENCE_NUMBER.
    OutOfOrder {
        /// The sequence that the next batch must begin with.
        expected: i32,
    },
    /// The producer's epoch is a newer one: INVALID_PRODUCER_EPOCH.
    OldEpoch {
        /// The newest epoch known.
        current: i16,
    },
}

/// The producers of one partition up to some offset. A clone costs nothing.
#[derive(Debug, Clone, Default)]
pub struct ProducerStates(OrdMap<i64, Producer>);

/// What is known of one producer. As small as it can be: thousands are kept.
#[derive(Debug, Clone, Copy)]
struct Producer {
    epoch: i16,
    batch_count: u8,
    /// The last ones, the newest last.
    batches: [ProducedBatch; BATCHES_MAX],
    /// Wall clock of the last append.
    active_ms: i64,
}

/// One producer, for people and for snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerInfo {
    /// The producer's id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// Its last batch, if one is known.
    pub last: Option<ProducedBatch>,
}

impl BatchProducer {
    /// What the header says; `None` without a producer id.
    pub fn of(header: &BatchHeader) -> Option<BatchProducer> {
        header.has_producer_id().then(|| BatchProducer {
            id: header.producer_id,
            epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            last_sequence: match header.base_sequence {
                base if base < 0 => NO_SEQUENCE,
                base => sequence_after(base, header.last_offset_delta),
            },
            is_transactional: header.attributes.is_transactional(),
        })
    }
}

impl ProducedBatch {
    /// The sequence of its first record.
    pub fn base_sequence(&self) -> i32 {
        sequence_after(self.last_sequence, self.offset_delta.wrapping_neg())
    }

    /// The offset of its first record.
    pub fn base_offset(&self) -> i64 {
        self.last_offset.wrapping_sub(i64::from(self.offset_delta))
    }
}

impl ProducerStates {
    /// How many producers are known.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if none is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What this batch is, before it is appended.
    pub fn check(&self, batch: &BatchProducer) -> Check {
        let unknown = Producer::unknown();
        let producer = self.0.get(&batch.id).unwrap_or(&unknown);
        if batch.epoch == producer.epoch {
            if let Some(original) = producer.duplicate_of(batch) {
                return Check::Duplicate(original);
            }
        }
        if batch.epoch < producer.epoch {
            return Check::OldEpoch {
                current: producer.epoch,
            };
        }
        let expected = match batch.epoch == producer.epoch {
            true => producer.next_sequence(),
            false => 0,
        };
        // Nothing is known of its sequences: any will do.
        if producer.epoch == NO_EPOCH || batch.base_sequence == expected {
            return Check::Fresh;
        }
        Check::OutOfOrder { expected }
    }

    /// Takes in a batch that was appended at these offsets. `timestamp` is its largest,
    /// `now_ms` the wall clock, by which inactive producers expire.
    pub fn append(
        &mut self,
        batch: &BatchProducer,
        base_offset: i64,
        last_offset: i64,
        timestamp: i64,
        now_ms: i64,
    ) {
        let producer = self.0.entry(batch.id).or_insert_with(Producer::unknown);
        if producer.epoch != batch.epoch {
            producer.epoch = batch.epoch;
            producer.batch_count = 0;
        }
        producer.active_ms = now_ms;
        // A transaction marker has an epoch and no sequence.
        if batch.base_sequence >= 0 {
            producer.push(ProducedBatch {
                last_sequence: batch.last_sequence,
                offset_delta: (last_offset - base_offset) as i32,
                last_offset,
                timestamp,
            });
        }
        if self.0.len() > PRODUCERS_MAX + TIDY_AFTER {
            self.forget_longest_inactive();
        }
    }

    /// Forgets the producers that have appended nothing for `expiration_ms`
    /// (`producer.id.expiration.ms`). Returns how many.
    ///
    /// Kafka measures by the timestamps of the records, which forgets a producer that
    /// writes old records while it is at work; ours by the clock of the broker.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        let expired: Vec<i64> = self
            .0
            .iter()
            .filter(|(_, p)| now_ms.saturating_sub(p.active_ms) >= expiration_ms)
            .map(|(id, _)| *id)
            .collect();
        for id in &expired {
            self.0.remove(id);
        }
        expired.len()
    }

    /// The producers in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = ProducerInfo> + '_ {
        self.0.iter().map(|(id, producer)| ProducerInfo {
            id: *id,
            epoch: producer.epoch,
            last: producer.last().copied(),
        })
    }

    /// A producer's epoch and its last batches, the newest last.
    pub fn batches_of(&self, id: i64) -> Option<(i16, &[ProducedBatch])> {
        let producer = self.0.get(&id)?;
        Some((producer.epoch, producer.batches()))
    }

    /// What a snapshot holds.
    pub(super) fn entries(&self) -> Vec<ProducerEntry> {
        let entry = |(id, producer): (&i64, &Producer)| {
            let last = producer.last().copied().unwrap_or(ProducedBatch {
                last_sequence: NO_SEQUENCE,
                offset_delta: 0,
                last_offset: -1,
                timestamp: -1,
            });
            let batches = producer.batches();
            ProducerEntry {
                producer_id: *id,
                producer_epoch: producer.epoch,
                last_sequence: last.last_sequence,
                last_offset: last.last_offset,
                offset_delta: last.offset_delta,
                timestamp: last.timestamp,
                coordinator_epoch: -1,
                current_txn_first_offset: -1,
                active_ms: Some(producer.active_ms),
                earlier: SmallVec::from_slice(&batches[..batches.len().saturating_sub(1)]),
            }
        };
        self.0.iter().map(entry).collect()
    }

    /// The state that a snapshot holds. Producers of which it does not say when they
    /// were active (Kafka's does not) were active `now_ms`.
    pub(super) fn of_entries(entries: &[ProducerEntry], now_ms: i64) -> ProducerStates {
        let mut states = ProducerStates::default();
        for entry in entries {
            let mut producer = Producer {
                epoch: entry.producer_epoch,
                active_ms: entry.active_ms.unwrap_or(now_ms),
                ..Producer::unknown()
            };
            for batch in &entry.earlier {
                producer.push(*batch);
            }
            if entry.last_sequence >= 0 {
                producer.push(ProducedBatch {
                    last_sequence: entry.last_sequence,
                    offset_delta: entry.offset_delta,
                    last_offset: entry.last_offset,
                    timestamp: entry.timestamp,
                });
            }
            states.0.insert(entry.producer_id, producer);
        }
        if states.0.len() > PRODUCERS_MAX + TIDY_AFTER {
            states.forget_longest_inactive();
        }
        states
    }

    /// Brings the number back to [`PRODUCERS_MAX`]. It looks at all, which is little for
    /// each of the [`TIDY_AFTER`] producers that came since the last time.
    fn forget_longest_inactive(&mut self) {
        let mut by_activity: Vec<(i64, i64)> =
            self.0.iter().map(|(id, p)| (p.activity(), *id)).collect();
        let surplus = by_activity.len().saturating_sub(PRODUCERS_MAX);
        if surplus > 0 {
            by_activity.select_nth_unstable(surplus - 1);
            for (_, id) in &by_activity[..surplus] {
                self.0.remove(id);
            }
        }
    }
}

impl Producer {
    fn unknown() -> Producer {
        Producer {
            epoch: NO_EPOCH,
            batch_count: 0,
            batches: [ProducedBatch::default(); BATCHES_MAX],
            active_ms: 0,
        }
    }

    fn batches(&self) -> &[ProducedBatch] {
        &self.batches[..usize::from(self.batch_count)]
    }

    fn last(&self) -> Option<&ProducedBatch> {
        self.batches().last()
    }

    fn push(&mut self, batch: ProducedBatch) {
        if usize::from(self.batch_count) == BATCHES_MAX {
            self.batches.rotate_left(1);
        } else {
            self.batch_count += 1;
        }
        self.batches[usize::from(self.batch_count) - 1] = batch;
    }

    fn duplicate_of(&self, batch: &BatchProducer) -> Option<ProducedBatch> {
        let same = |known: &&ProducedBatch| {
            known.last_sequence == batch.last_sequence
                && known.base_sequence() == batch.base_sequence
        };
        self.batches().iter().rev().find(same).copied()
    }

    fn next_sequence(&self) -> i32 {
        self.last()
            .map_or(0, |last| sequence_after(last.last_sequence, 1))
    }

    /// Rises with each batch of the partition.
    fn activity(&self) -> i64 {
        self.last().map_or(-1, |last| last.last_offset)
    }
}

/// The sequence `delta` after `sequence`; they wrap from 2^31-1 to 0.
fn sequence_after(sequence: i32, delta: i32) -> i32 {
    (i64::from(sequence) + i64::from(delta)).rem_euclid(1 << 31) as i32
}

/// Producers that a partition remembers.
pub const PRODUCERS_MAX: usize = 10_000;

/// Batches of a producer that are remembered (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
const BATCHES_MAX: usize = 5;

/// How many producers more than [`PRODUCERS_MAX`] there may be before some are forgotten.
const TIDY_AFTER: usize = PRODUCERS_MAX / 4;

/// `RecordBatch.NO_PRODUCER_EPOCH`: nothing is known of the producer.
const NO_EPOCH: i16 = -1;

/// `RecordBatch.NO_SEQUENCE`.
const NO_SEQUENCE: i32 = -1;

#[cfg(test)]
#[path = "producer_state_tests.rs"]
mod tests;
