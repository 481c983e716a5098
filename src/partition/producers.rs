//! Idempotent producers (KIP-98): a batch that is sent again is answered, not written
//! again.
//!
//! A partition keeps what it knows of producers twice: the log's state is as of the LEO,
//! the queued one here as of the next offset. A batch is held against the queued one, so
//! a retry is recognised while its original still waits to be written. When queued
//! batches fail, the queued state goes back to the log's together with the next offset:
//! what failed was never there, and its retry is new.
//!
//! What it is not: it does not know the rules of sequences and epochs
//! (`storage/producer_state.rs`), and it gives out no producer ids.

use super::inner::Inner;
use super::produce::{Acks, ProduceError, ProduceTicket};
use super::Partition;
use crate::config::MessageTimestampType;
use crate::protocol::ErrorCode;
use crate::storage::{BatchProducer, LogBatch, ProducedBatch, ProducerCheck, ProducerStates};

impl Partition {
    /// The idempotent producers of the log, as of the LEO (DescribeProducers).
    ///
    /// # Errors
    /// What every call gets from a partition that is offline or stopped.
    pub fn producers(&self) -> Result<ProducerStates, ErrorCode> {
        self.0.check_serving()?;
        Ok(self.0.log().producers())
    }

    /// Forgets the producers that have written nothing for `expiration_ms`. Returns how
    /// many.
    pub fn expire_producers(&self, now_ms: i64, expiration_ms: i64) -> usize {
        let inner = &self.0;
        inner.log().expire_producers(now_ms, expiration_ms);
        inner.producers.borrow_mut().expire(now_ms, expiration_ms)
    }
}

impl Inner {
    /// Holds a batch against what is known of its producer; the original, if it was
    /// accepted before.
    pub(super) fn check_producer(
        &self,
        batch: &BatchProducer,
    ) -> Result<Option<ProducedBatch>, ProduceError> {
        let BatchProducer {
            id,
            epoch,
            base_sequence,
            last_sequence,
            is_transactional,
        } = *batch;
        if is_transactional {
            return Err(ProduceError::new(
                ErrorCode::InvalidTxnState,
                "transactions are not built; send the records without a transactional.id",
            ));
        }
        match self.producers.borrow().check(batch) {
            ProducerCheck::Fresh => Ok(None),
            ProducerCheck::Duplicate(original) => Ok(Some(original)),
            ProducerCheck::OutOfOrder { expected } => Err(ProduceError::new(
                ErrorCode::OutOfOrderSequenceNumber,
                format!(
                    "producer {id} (epoch {epoch}) sent sequences {base_sequence} to {last_sequence}, and {expected} is next"
                ),
            )),
            ProducerCheck::OldEpoch { current } => Err(ProduceError::new(
                ErrorCode::InvalidProducerEpoch,
                format!("producer {id} sent epoch {epoch}, and {current} is in use"),
            )),
        }
    }

    /// Takes in a batch that is about to be queued.
    pub(super) fn add_to_producers(&self, batch: &LogBatch, now_ms: i64) {
        if let Some(producer) = &batch.producer {
            self.producers.borrow_mut().append(
                producer,
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
                now_ms,
            );
        }
    }

    /// The answer to a batch that was accepted before. It waits like the original would
    /// under the retry's acks: that may still be queued, or not flushed.
    pub(super) fn ticket_of(&self, original: &ProducedBatch, acks: Acks) -> ProduceTicket {
        let log_append_time_ms = match self.config.borrow().timestamp_type {
            MessageTimestampType::CreateTime => -1,
            MessageTimestampType::LogAppendTime => original.timestamp,
        };
        ProduceTicket {
            base_offset: original.base_offset(),
            log_append_time_ms,
            log_start_offset: self.replica.borrow().log_start_offset(),
            queued_at: self.storage.rt().now(),
            done: self.wait_for(acks, original.last_offset + 1),
        }
    }
}
