//! Where leader epochs end: what a client compares its own log with (KIP-101, KIP-320).

use super::inner::Inner;
use super::Partition;
use crate::protocol::ErrorCode;
use crate::storage::leader_epochs::EpochEnd;

impl Partition {
    /// Where `leader_epoch` ended: the greatest epoch at or below it, and the start of
    /// the next one; the LEO for the latest. `None` for an epoch that is later than
    /// all, or negative. As in Kafka, the LEO counts for consumers too.
    ///
    /// # Errors
    /// FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH for another current leader epoch (-1:
    /// the client knows none); what every call gets from a partition that is offline or
    /// stopped.
    pub fn epoch_end(
        &self,
        leader_epoch: i32,
        current_leader_epoch: i32,
    ) -> Result<Option<EpochEnd>, ErrorCode> {
        self.0.check_serving()?;
        self.0.check_leader_epoch(current_leader_epoch)?;
        Ok(self.0.end_of_epoch(leader_epoch))
    }
}

impl Inner {
    pub(super) fn end_of_epoch(&self, leader_epoch: i32) -> Option<EpochEnd> {
        let end_offset = self.replica.borrow().end_offset();
        self.log.borrow().end_of_epoch(leader_epoch, end_offset)
    }
}
