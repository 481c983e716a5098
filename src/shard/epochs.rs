//! Where leader epochs ended, across owners (OffsetForLeaderEpoch).

use super::messages::{EpochEndPart, Reply, Request};
use super::Shard;
use crate::protocol::ErrorCode;
use crate::storage::leader_epochs::EpochEnd;

impl Shard {
    /// Answers each part in order; `None` for an epoch that the leader can't know.
    pub async fn epoch_ends(
        &self,
        parts: Vec<EpochEndPart>,
    ) -> Vec<Result<Option<EpochEnd>, ErrorCode>> {
        let answer = |reply| match reply {
            Reply::EpochEnds(results) => Some(results),
            _ => None,
        };
        let here = async |parts| self.epoch_ends_here(parts).await;
        self.ask_each_owner(parts, |part| part.key, here, Request::EpochEnds, answer)
            .await
    }

    pub(super) async fn epoch_ends_here(
        &self,
        parts: Vec<EpochEndPart>,
    ) -> Vec<Result<Option<EpochEnd>, ErrorCode>> {
        self.each_here(
            parts,
            |part| part.key,
            async |partition, part| {
                partition.epoch_end(part.leader_epoch, part.current_leader_epoch)
            },
        )
        .await
    }
}
