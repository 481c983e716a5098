//! What coordinators write: one batch for each append, in their order, acks=all.
//!
//! Several are under way at once, and end in their order, because offsets are assigned
//! and become visible in order. A batch that takes longer than `offsets.commit.timeout.ms`
//! counts as failed; what became of it is known after a restart, as of any write whose
//! answer was lost. Later ones of the group follow it in the log, so it never replaces
//! what came after it.
//!
//! Bounded by those who wait: a call has one append at a time before it is answered.

use super::{Held, Shard};
use crate::coordinator::{Append, AppendId, OffsetsRecord};
use crate::partition::{Acks, ProduceDone};
use crate::protocol::batch::{BatchBuilder, Compression};
use crate::protocol::ErrorCode;
use crate::runtime::{Mono, Queue};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// The appends of one coordinator.
#[derive(Default)]
pub(super) struct Appends {
    /// Not given to the partition yet.
    queued: RefCell<VecDeque<Append>>,
    is_submitting: Cell<bool>,
    /// Given to it, or refused.
    submitted: RefCell<VecDeque<Submitted>>,
    is_finishing: Cell<bool>,
}

struct Submitted {
    id: AppendId,
    done: Result<ProduceDone, ErrorCode>,
    at: Mono,
}

impl Shard {
    /// Queues appends of a coordinator.
    pub(super) fn append(&self, held: &Rc<Held>, appends: Vec<Append>) {
        if appends.is_empty() {
            return;
        }
        held.appends.queued.borrow_mut().extend(appends);
        if !held.appends.is_submitting.replace(true) {
            let (shard, held) = (self.clone(), held.clone());
            self.rt().spawn(Queue::Latency, async move {
                shard.submit(&held).await;
            });
        }
    }

    async fn submit(&self, held: &Rc<Held>) {
        while let Some(append) = held.appends.next_queued() {
            let now_ms = self.rt().wall_clock_ms();
            let batch = self.batch_of(&append.records, now_ms);
            let produced = held.partition.produce(batch, Acks::All, now_ms, None).await;
            let done = produced.map(|ticket| ticket.done).map_err(|error| {
                let partition = held.partition.id();
                tracing::warn!(%partition, %error, "offsets or groups could not be written");
                error.code
            });
            let submitted = Submitted {
                id: append.id,
                done,
                at: self.rt().now(),
            };
            held.appends.submitted.borrow_mut().push_back(submitted);
            if !held.appends.is_finishing.replace(true) {
                let (shard, held) = (self.clone(), held.clone());
                self.rt().spawn(Queue::Latency, async move {
                    shard.finish(&held).await;
                });
            }
            self.rt().yield_if_needed().await;
        }
        held.appends.is_submitting.set(false);
    }

    async fn finish(&self, held: &Rc<Held>) {
        let timeout = Duration::from_millis(self.config().offsets_commit_timeout_ms.into());
        while let Some(submitted) = held.appends.next_submitted() {
            let result = match submitted.done {
                Ok(done) => {
                    let left = timeout.saturating_sub(self.rt().now().since(submitted.at));
                    let done = self.rt().timeout(left, done).await;
                    done.unwrap_or(Err(ErrorCode::RequestTimedOut))
                }
                Err(code) => Err(code),
            };
            let result = result.map_err(coordinator_code);
            let now = self.group_time();
            let effects = held
                .coordinator
                .borrow_mut()
                .appended(submitted.id, result, now);
            self.carry_out(held, effects, None);
            self.rt().yield_if_needed().await;
        }
        held.appends.is_finishing.set(false);
    }

    fn batch_of(&self, records: &[OffsetsRecord], now_ms: i64) -> Bytes {
        let mut batch = BatchBuilder::new().compression(self.offsets_compression());
        for record in records {
            batch.push(now_ms, Some(&record.key), record.value.as_deref());
        }
        batch.build()
    }

    fn offsets_compression(&self) -> Compression {
        match self.config().offsets_topic_compression_codec {
            1 => Compression::Gzip,
            2 => Compression::Snappy,
            3 => Compression::Lz4,
            4 => Compression::Zstd,
            // The setting's other values are refused.
            _ => Compression::None,
        }
    }
}

impl Appends {
    fn next_queued(&self) -> Option<Append> {
        self.queued.borrow_mut().pop_front()
    }

    fn next_submitted(&self) -> Option<Submitted> {
        self.submitted.borrow_mut().pop_front()
    }
}

/// What a client of a group is told when a write failed, as Kafka translates it: what the
/// partition answers to a producer would mislead it.
fn coordinator_code(code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => ErrorCode::UnknownServerError,
        other => other,
    }
}
