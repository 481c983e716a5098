//! The appender: one write in flight, and all that arrives meanwhile joins the next.
//!
//! Batches are queued with their offsets assigned and leave in that order. The
//! batching is natural: no timer delays a write, and the longer a write takes the
//! more the next one carries, up to a limit. The task runs only while there is
//! something to write, so an idle partition costs none.
//!
//! Why the order holds: [`Inner::enqueue`] is called in offset order, one task
//! takes from the front, and a failed write ends with the queue emptied and the
//! next offset and the producers back at the LEO before anything else is queued.

use super::inner::{Inner, Single};
use super::produce::{Keep, ProduceError};
use super::PartitionState;
use crate::protocol::ErrorCode;
use crate::replication::ReplicaEvent;
use crate::runtime::{Mono, Queue, BLOCK_BYTES};
use crate::storage::{AppendError, LogBatch, Taken};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Batches that wait for the appender, and their size.
#[derive(Default)]
pub(super) struct AppendQueue {
    batches: RefCell<VecDeque<Queued>>,
    /// Bytes of the queued batches, for the size of the next write.
    batch_bytes: Cell<usize>,
}

/// A batch on its way to the log.
pub(super) struct Queued {
    batch: LogBatch,
    /// Dropped once the batch is written or has failed.
    held: Held,
    queued_at: Mono,
}

/// What a batch holds until then.
type Held = (Keep, Taken);

impl Queued {
    pub(super) fn new(batch: LogBatch, held: Held, queued_at: Mono) -> Queued {
        Queued {
            batch,
            held,
            queued_at,
        }
    }
}

/// What one write carries, in figures.
#[derive(Debug, Clone, Copy)]
struct Carried {
    batches: u64,
    records: u64,
    bytes: u64,
}

impl Carried {
    fn of(batches: &[LogBatch]) -> Carried {
        let records = batches
            .iter()
            .map(|batch| batch.last_offset - batch.base_offset + 1);
        Carried {
            batches: batches.len() as u64,
            records: records.sum::<i64>() as u64,
            bytes: batches.iter().map(|batch| batch.bytes.len() as u64).sum(),
        }
    }
}

impl Inner {
    /// Refuses a batch that the queue has no room for. The bound lies where the
    /// request memory of a shard would have stopped its clients anyway; each batch
    /// counts some bytes of its own, so that tiny ones are bounded as well.
    pub(super) fn check_queue_room(&self, batch_bytes: usize) -> Result<(), ProduceError> {
        if self.queue.has_room(batch_bytes, QUEUE_BYTES_MAX) {
            return Ok(());
        }
        Err(ProduceError::new(
            ErrorCode::RequestTimedOut,
            format!(
                "{} bytes wait to be written to this partition, which is the limit; try again, or spread the load over more partitions",
                self.queue.held_bytes()
            ),
        ))
    }

    /// Queues a batch whose offsets follow those queued before, and starts the
    /// appender if it rests.
    pub(super) fn enqueue(self: &Rc<Self>, queued: Queued) {
        self.queue.push(queued);
        self.start_appender();
    }

    fn start_appender(self: &Rc<Self>) {
        if self.claim(Single::Appender) {
            let inner = self.clone();
            let rt = self.storage.rt().clone();
            rt.spawn(Queue::Latency, async move {
                inner.append_all().await;
                inner.release(Single::Appender);
            });
        }
    }

    async fn append_all(self: &Rc<Self>) {
        let rt = self.storage.rt().clone();
        while !self.queue.is_empty() {
            if self.state.get() != PartitionState::Online {
                self.fail_queued();
                return;
            }
            let reserve = self.write_reservation();
            let permit = self.write_budget.acquire(reserve).await;
            // The state may have changed while this waited for memory. What was queued
            // meanwhile goes along as far as the memory reaches.
            if self.state.get() == PartitionState::Online && !self.queue.is_empty() {
                let latencies = &self.storage.counters().latencies;
                let began = rt.now();
                let (batches, held) = self.queue.take_write(reserve as usize, |queued_at| {
                    latencies.queue.record(began.nanos_since(queued_at));
                });
                let carried = Carried::of(&batches);
                let outcome = self.log().append(&batches).await;
                latencies.write.record(rt.now().nanos_since(began));
                drop((batches, held, permit));
                self.on_appended(outcome, carried);
            }
            rt.yield_if_needed().await;
        }
    }

    fn on_appended(self: &Rc<Self>, outcome: Result<(), AppendError>, carried: Carried) {
        match outcome {
            // Gone offline meanwhile: everybody has been answered.
            _ if self.state.get() == PartitionState::Offline => self.count_errors(carried.batches),
            Ok(()) => {
                self.fences_in_a_row.set(0);
                self.bytes_since_checkpoint
                    .set(self.bytes_since_checkpoint.get() + carried.bytes);
                self.count_appended(carried);
                let end_offset = self.log().end_offset();
                self.on(ReplicaEvent::Written { end_offset });
                self.note_unflushed();
            }
            Err(error) => {
                self.count_errors(carried.batches);
                self.on_append_error(&error);
                self.fail_queued();
            }
        }
    }

    fn count_appended(&self, carried: Carried) {
        let (counters, traffic) = (self.storage.counters(), &self.traffic);
        counters.produce_batches.add(carried.batches);
        counters.produce_records.add(carried.records);
        counters.produce_bytes.add(carried.bytes);
        traffic.in_batches.add(carried.batches);
        traffic.in_records.add(carried.records);
        traffic.in_bytes.add(carried.bytes);
    }

    /// Counts batches that were refused or failed.
    pub(super) fn count_errors(&self, batches: u64) {
        self.storage.counters().produce_errors.add(batches);
        self.traffic.in_errors.add(batches);
    }

    /// Fails, in order, the batches of a failed write and all queued behind them.
    /// The next offset and the producers go back to the LEO.
    fn fail_queued(&self) {
        let end_offset = self.replica.borrow().end_offset();
        self.count_errors(self.queue.take_all().len() as u64);
        self.next_offset.set(end_offset);
        self.producers.replace(self.log().producers());
        self.fail_waiters_beyond(end_offset, ErrorCode::KafkaStorageError);
    }

    /// Write memory for the next write: the batches, the partial block before them
    /// and the zeros after. A write larger than the whole budget takes all of it.
    fn write_reservation(&self) -> u64 {
        let bytes = self.queue.next_write_bytes() + WRITE_OVERHEAD_BYTES;
        (bytes as u64).min(self.write_budget.total())
    }
}

impl AppendQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.batches.borrow().is_empty()
    }

    fn has_room(&self, batch_bytes: usize, bytes_max: usize) -> bool {
        self.held_bytes() + batch_bytes + QUEUED_BATCH_OVERHEAD_BYTES <= bytes_max
    }

    fn held_bytes(&self) -> usize {
        self.batch_bytes.get() + self.batches.borrow().len() * QUEUED_BATCH_OVERHEAD_BYTES
    }

    fn push(&self, queued: Queued) {
        self.batch_bytes
            .set(self.batch_bytes.get() + queued.batch.bytes.len());
        self.batches.borrow_mut().push_back(queued);
    }

    fn next_write_bytes(&self) -> usize {
        let first = self.batches.borrow().front().map_or(0, Queued::bytes);
        self.batch_bytes.get().min(WRITE_BYTES_MAX).max(first)
    }

    /// Takes what one write carries: whole batches up to the limits and to what fits in
    /// `reserved` bytes, at least one. Tells when each was queued.
    fn take_write(&self, reserved: usize, tell: impl Fn(Mono)) -> (Vec<LogBatch>, Vec<Held>) {
        let bytes_max = reserved
            .saturating_sub(WRITE_OVERHEAD_BYTES)
            .min(WRITE_BYTES_MAX);
        let mut queue = self.batches.borrow_mut();
        let mut bytes = 0;
        let count = queue
            .iter()
            .take(WRITE_BATCHES_MAX)
            .take_while(|queued| {
                let fits = bytes == 0 || bytes + queued.bytes() <= bytes_max;
                bytes += if fits { queued.bytes() } else { 0 };
                fits
            })
            .count();
        self.batch_bytes.set(self.batch_bytes.get() - bytes);
        queue
            .drain(..count)
            .map(|queued| {
                tell(queued.queued_at);
                (queued.batch, queued.held)
            })
            .unzip()
    }

    pub(super) fn take_all(&self) -> VecDeque<Queued> {
        self.batch_bytes.set(0);
        std::mem::take(&mut *self.batches.borrow_mut())
    }
}

impl Queued {
    fn bytes(&self) -> usize {
        self.batch.bytes.len()
    }
}

/// Bytes that one write carries at most, unless one batch alone is larger.
const WRITE_BYTES_MAX: usize = 4 << 20;

/// The partial block before a write's batches and the zeros after them.
const WRITE_OVERHEAD_BYTES: usize = 2 * BLOCK_BYTES;

/// Batches that one write carries at most.
const WRITE_BATCHES_MAX: usize = 1_000;

/// What may wait in one partition: as much as the request memory of a shard can be.
const QUEUE_BYTES_MAX: usize = 1 << 30;

/// What a queued batch counts beside its bytes.
const QUEUED_BATCH_OVERHEAD_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn queued(base_offset: i64, bytes: usize) -> Queued {
        let batch = LogBatch {
            bytes: Bytes::from(vec![0; bytes]),
            base_offset,
            last_offset: base_offset,
            leader_epoch: 0,
            max_timestamp: 0,
            producer: None,
        };
        Queued::new(batch, (None, Taken::none()), Mono::default())
    }

    #[test]
    fn a_write_takes_whole_batches_in_order_up_to_its_limit_and_at_least_one() {
        let queue = AppendQueue::default();
        queue.push(queued(0, WRITE_BYTES_MAX + 1));
        queue.push(queued(1, WRITE_BYTES_MAX - 100));
        queue.push(queued(2, 100));
        queue.push(queued(3, 1));
        let mut writes = Vec::new();
        while !queue.is_empty() {
            let reserved = queue.next_write_bytes();
            let (batches, _) = queue.take_write(reserved + WRITE_OVERHEAD_BYTES, |_| {});
            let bytes: usize = batches.iter().map(|b| b.bytes.len()).sum();
            assert!(bytes <= reserved, "memory was reserved for it");
            writes.push(batches.iter().map(|b| b.base_offset).collect::<Vec<_>>());
        }
        assert_eq!(writes, [vec![0], vec![1, 2], vec![3]]);
        assert_eq!(queue.held_bytes(), 0);
    }

    #[test]
    fn what_is_queued_after_memory_was_reserved_goes_along_only_as_far_as_that_reaches() {
        let queue = AppendQueue::default();
        queue.push(queued(0, 1_000));
        let reserved = queue.next_write_bytes() + WRITE_OVERHEAD_BYTES;
        queue.push(queued(1, 100_000));
        let (batches, _) = queue.take_write(reserved, |_| {});
        assert_eq!(batches.len(), 1);
        let (batches, _) = queue.take_write(0, |_| {});
        assert_eq!(
            batches.len(),
            1,
            "one at least, or it would never be written"
        );
    }

    #[test]
    fn a_queue_at_its_limit_has_no_room_and_tiny_batches_count_too() {
        let queue = AppendQueue::default();
        let limit = 3 * (1_000 + QUEUED_BATCH_OVERHEAD_BYTES);
        for offset in 0..3 {
            assert!(queue.has_room(1_000, limit));
            queue.push(queued(offset, 1_000));
        }
        assert!(!queue.has_room(1, limit));
        drop(queue.take_write(usize::MAX, |_| {}));
        assert!(queue.has_room(1_000, limit));
        for offset in 0..3 {
            queue.push(queued(offset, 1));
        }
        assert_eq!(queue.held_bytes(), 3 * (1 + QUEUED_BATCH_OVERHEAD_BYTES));
        drop(queue.take_all());
        assert_eq!(queue.held_bytes(), 0);
    }
}
