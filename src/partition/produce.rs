//! Producing: validate, assign offsets, queue. No I/O happens here.

use super::appender::Queued;
use super::inner::Inner;
use super::validate::{self, RecordRefusal, Rules};
use super::waiters::ProduceDone;
use super::Partition;
use crate::config::FlushOnAck;
use crate::protocol::ErrorCode;
use crate::runtime::local::Permit;
use crate::runtime::Mono;
use bytes::Bytes;
use std::any::Any;
use std::rc::Rc;

/// What a batch waits for before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// acks=0: the client gets no answer; the ticket completes when it is written.
    None,
    /// acks=1: written (under `flush.on.ack` = `any`: flushed).
    Leader,
    /// acks=all: the high watermark has passed it.
    All,
}

/// Something to hold until a batch is written or has failed, such as the memory
/// reservation of the request that its bytes belong to.
pub type Keep = Option<Box<dyn Any>>;

/// A queued batch: its offsets are assigned, the answer is still to come.
#[derive(Debug)]
pub struct ProduceTicket {
    /// The offset of the batch's first record.
    pub base_offset: i64,
    /// The time that was set as the records' timestamp, in milliseconds; -1 where
    /// the producer's timestamps stand (`message.timestamp.type` = CreateTime).
    pub log_append_time_ms: i64,
    /// The log start offset now.
    pub log_start_offset: i64,
    /// When it was queued; of a retry, when it came.
    pub queued_at: Mono,
    /// Resolves when the acks policy is met or cannot be met any more.
    pub done: ProduceDone,
}

/// A batch that was refused; nothing was queued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProduceError {
    /// What the client is told.
    pub code: ErrorCode,
    /// Why, and what to change.
    pub message: String,
    /// The records that are to blame, where single records are: the first of them.
    pub record_errors: Vec<RecordRefusal>,
}

impl ProduceError {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> ProduceError {
        ProduceError {
            code,
            message: message.into(),
            record_errors: Vec::new(),
        }
    }
}

impl Partition {
    /// Validates one record batch, assigns its offsets and queues it for writing.
    /// Validating a large batch lets other tasks run in between; offsets are in the
    /// order in which these calls end, so the caller makes them one after the other.
    /// `records` is the partition's records field of the request, as it came.
    /// `keep` is dropped once the batch is written or has failed. `now_ms` is the
    /// wall clock, for the timestamp window and as the LogAppendTime.
    ///
    /// A batch that an idempotent producer sends again is not written again: the ticket
    /// has its original offset, and resolves when `acks` is met for that offset, as it
    /// would if the batch were new.
    ///
    /// # Errors
    /// What Kafka's validation of a batch answers (CORRUPT_MESSAGE,
    /// MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP,
    /// INVALID_RECORD, ...; see `validate`); OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH and
    /// INVALID_TXN_STATE for what a producer may not send; NOT_ENOUGH_REPLICAS for acks=all with a too small ISR;
    /// KAFKA_STORAGE_ERROR while fenced or offline, and while the data directory is short of space; NOT_LEADER_OR_FOLLOWER once
    /// closed; REQUEST_TIMED_OUT when the queue is full.
    pub async fn produce(
        &self,
        records: Bytes,
        acks: Acks,
        now_ms: i64,
        keep: Keep,
    ) -> Result<ProduceTicket, ProduceError> {
        let inner = &self.0;
        let received_bytes = records.len();
        inner.check_takes(acks, received_bytes)?;
        let rules = Rules::of(&inner.config.borrow(), now_ms);
        let rt = inner.storage.rt();
        let pause = async || {
            rt.yield_if_needed().await;
            rt.working_at(inner.id.topic_id.as_u128(), inner.id.index);
        };
        let batch = validate::producer_batch(records, &rules, pause).await?;
        // From here on nothing waits: what holds now holds until the batch is queued.
        inner.check_takes(acks, received_bytes)?;
        let producer = batch.producer();
        if let Some(producer) = &producer {
            if let Some(original) = inner.check_producer(producer)? {
                return Ok(inner.ticket_of(&original, acks));
            }
        }
        let room = inner.storage.room();
        let taken = room.admit(batch.size_bytes() as u64).map_err(no_room)?;
        let keep = match batch.size_bytes().saturating_sub(received_bytes) {
            0 => keep,
            grown_bytes => Some(Box::new((keep, inner.reserve_growth(grown_bytes)?)) as _),
        };

        let base_offset = inner.next_offset.get();
        let end = base_offset
            .checked_add(i64::from(batch.last_offset_delta()) + 1)
            .ok_or_else(|| {
                ProduceError::new(
                    ErrorCode::InvalidRecord,
                    "the partition has used up its offsets; create a new topic",
                )
            })?;
        inner.next_offset.set(end);
        let done = inner.wait_for(acks, end);
        let (leader_epoch, log_start_offset) = {
            let replica = inner.replica.borrow();
            (replica.leader_epoch(), replica.log_start_offset())
        };
        let log_append_time_ms = batch.log_append_time_ms();
        let batch = batch.at(base_offset, leader_epoch);
        if producer.is_some() {
            inner.add_to_producers(&batch, now_ms);
        }
        let queued_at = rt.now();
        inner.enqueue(Queued::new(batch, (keep, taken), queued_at));
        Ok(ProduceTicket {
            base_offset,
            log_append_time_ms,
            log_start_offset,
            queued_at,
            done,
        })
    }
}

/// Refused before anything is written: the disk would become too full.
fn no_room(why: Rc<str>) -> ProduceError {
    ProduceError::new(ErrorCode::KafkaStorageError, &*why)
}

impl Inner {
    /// The waiter for a batch that ends before `end`; it may have been written before.
    pub(super) fn wait_for(&self, acks: Acks, end: i64) -> ProduceDone {
        let replica = self.replica.borrow();
        let (waiters, reached) = match (acks, replica.flush_on_ack()) {
            (Acks::All, _) => (&self.visible, replica.high_watermark()),
            (Acks::Leader, FlushOnAck::Any) => (&self.durable, replica.durable_offset()),
            (Acks::Leader | Acks::None, _) => (&self.written, replica.end_offset()),
        };
        waiters.add_unless(reached, end)
    }

    /// Memory by which a batch is larger in the topic's compression than it came, until
    /// it is written.
    fn reserve_growth(&self, grown_bytes: usize) -> Result<Permit, ProduceError> {
        let budget = self.storage.grown();
        // A batch beyond the whole budget takes all of it.
        let amount = (grown_bytes as u64).min(budget.total());
        budget.try_acquire(amount).ok_or_else(|| {
            ProduceError::new(
                ErrorCode::RequestTimedOut,
                format!(
                    "batches that wait to be written have grown by {} bytes in the compression that their topics ask for (compression.type), which is the limit; try again",
                    budget.total() - budget.available()
                ),
            )
        })
    }

    fn check_takes(&self, acks: Acks, received_bytes: usize) -> Result<(), ProduceError> {
        self.check_writable()?;
        self.storage.room().check().map_err(no_room)?;
        if acks == Acks::All {
            self.check_in_sync()?;
        }
        self.check_queue_room(received_bytes)
    }

    fn check_writable(&self) -> Result<(), ProduceError> {
        self.check_serving()
            .and_then(|()| match self.state.get() {
                super::PartitionState::Online => Ok(()),
                _ => Err(ErrorCode::KafkaStorageError),
            })
            .map_err(|code| ProduceError::new(code, self.why_refused()))
    }

    fn check_in_sync(&self) -> Result<(), ProduceError> {
        let replica = self.replica.borrow();
        if replica.has_enough_in_sync() {
            return Ok(());
        }
        Err(ProduceError::new(
            ErrorCode::NotEnoughReplicas,
            format!(
                "{} in-sync replicas, acks=all needs {}; start the other replicas or lower min.insync.replicas",
                replica.in_sync_replicas(),
                replica.in_sync_replicas_min(),
            ),
        ))
    }
}
