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
        let mut all = vec![Err(ErrorCode::UnknownServerError); parts.len()];
        for (owner, places, parts) in self.by_owner(parts, |part| part.key) {
            let results = if owner == self.0.me {
                self.epoch_ends_here(&parts)
            } else {
                match self.call(owner, Request::EpochEnds(parts)).await {
                    Ok(Reply::EpochEnds(results)) => results,
                    Ok(_) | Err(_) => vec![Err(ErrorCode::NotLeaderOrFollower); places.len()],
                }
            };
            for (place, result) in places.into_iter().zip(results) {
                all[place] = result;
            }
        }
        all
    }

    pub(super) fn epoch_ends_here(
        &self,
        parts: &[EpochEndPart],
    ) -> Vec<Result<Option<EpochEnd>, ErrorCode>> {
        parts
            .iter()
            .map(|part| {
                let partition = self.0.partitions.online(&part.key)?;
                partition.epoch_end(part.leader_epoch, part.current_leader_epoch)
            })
            .collect()
    }
}
