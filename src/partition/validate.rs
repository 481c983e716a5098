//! Validation of a producer's batch. (Signatures; the rest follows.)
use super::produce::ProduceError;
use crate::config::TopicConfig;
use crate::storage::LogBatch;
use bytes::Bytes;

pub(super) struct Limits;
impl Limits {
    pub(super) fn of(config: &TopicConfig, now_ms: i64) -> Limits {
        todo!()
    }
}
pub(super) struct ValidBatch {
    pub(super) last_offset_delta: i32,
}
impl ValidBatch {
    pub(super) fn at(&self, records: Bytes, base_offset: i64, leader_epoch: i32) -> LogBatch {
        todo!()
    }
}
pub(super) fn producer_batch(records: &Bytes, limits: &Limits) -> Result<ValidBatch, ProduceError> {
    todo!()
}
