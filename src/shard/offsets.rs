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
        let answer = |reply| match reply {
            Reply::Listed(results) => Some(results),
            _ => None,
        };
        let here = async |parts| self.list_offsets_here(parts).await;
        self.ask_each_owner(parts, |part| part.key, here, Request::ListOffsets, answer)
            .await
    }

    pub(super) async fn list_offsets_here(
        &self,
        parts: Vec<ListOffsetsPart>,
    ) -> Vec<Result<ListedOffset, ErrorCode>> {
        self.each_here(
            parts,
            |part| part.key,
            async |partition, part| {
                partition
                    .list_offset(part.timestamp, part.current_leader_epoch, part.reader)
                    .await
            },
        )
        .await
    }
}
