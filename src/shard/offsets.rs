//! ListOffsets across owners.

use super::messages::{ListOffsetsPart, Reply, Request};
use super::Shard;
use crate::partition::ListedOffset;
use crate::protocol::ErrorCode;

impl Shard {
    /// Answers each part in order.
    pub async fn list_offsets(
        &self,
        parts: Vec<ListOffsetsPart>,
    ) -> Vec<Result<ListedOffset, ErrorCode>> {
        let mut all = vec![Err(ErrorCode::UnknownServerError); parts.len()];
        for (owner, places, parts) in self.by_owner(parts, |part| part.key) {
            let results = if owner == self.0.me {
                self.list_offsets_here(parts).await
            } else {
                match self.call(owner, Request::ListOffsets(parts)).await {
                    Ok(Reply::Listed(results)) => results,
                    Ok(_) | Err(_) => vec![Err(ErrorCode::NotLeaderOrFollower); places.len()],
                }
            };
            for (place, result) in places.into_iter().zip(results) {
                all[place] = result;
            }
        }
        all
    }

    pub(super) async fn list_offsets_here(
        &self,
        parts: Vec<ListOffsetsPart>,
    ) -> Vec<Result<ListedOffset, ErrorCode>> {
        let mut results = Vec::with_capacity(parts.len());
        for part in parts {
            results.push(match self.0.partitions.online(&part.key) {
                Ok(partition) => {
                    partition
                        .list_offset(part.timestamp, part.current_leader_epoch, part.reader)
                        .await
                }
                Err(code) => Err(code),
            });
            self.rt().yield_if_needed().await;
        }
        results
    }
}
