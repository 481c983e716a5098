//! From the parts of a request to the shards that own them, and back in order.

use super::messages::{PartitionKey, Reply, Request};
use super::Shard;
use crate::partition::Partition;
use crate::protocol::ErrorCode;
use smallvec::SmallVec;

/// Parts by owner: the owner, their places in the request, the parts.
pub(super) type Groups<T> = SmallVec<[(usize, Vec<usize>, Vec<T>); 2]>;

impl Shard {
    /// Groups parts by the shard that owns them, keeping their order and places.
    pub(super) fn by_owner<T>(&self, parts: Vec<T>, key: impl Fn(&T) -> PartitionKey) -> Groups<T> {
        let mut groups = Groups::new();
        for (place, part) in parts.into_iter().enumerate() {
            let owner = self.owner(&key(&part));
            match groups.iter_mut().find(|(other, _, _)| *other == owner) {
                Some((_, places, parts)) => {
                    places.push(place);
                    parts.push(part);
                }
                None => groups.push((owner, vec![place], vec![part])),
            }
        }
        groups
    }

    /// Asks the owner of each part, one owner after the other, and answers in the order
    /// of the parts: `here` works on this shard's own, `request` asks another shard for
    /// the same, and `answer` takes the results out of its reply.
    pub(super) async fn ask_each_owner<T, R: Clone>(
        &self,
        parts: Vec<T>,
        key: impl Fn(&T) -> PartitionKey,
        here: impl AsyncFn(Vec<T>) -> Vec<Result<R, ErrorCode>>,
        request: impl Fn(Vec<T>) -> Request,
        answer: impl Fn(Reply) -> Option<Vec<Result<R, ErrorCode>>>,
    ) -> Vec<Result<R, ErrorCode>> {
        let mut all = vec![Err(ErrorCode::UnknownServerError); parts.len()];
        for (owner, places, parts) in self.by_owner(parts, key) {
            let results = if owner == self.0.me {
                here(parts).await
            } else {
                let reply = self.call(owner, request(parts)).await;
                let results = reply.ok().and_then(&answer);
                results.unwrap_or_else(|| vec![Err(ErrorCode::NotLeaderOrFollower); places.len()])
            };
            for (place, result) in places.into_iter().zip(results) {
                all[place] = result;
            }
        }
        all
    }

    /// Works on parts of this shard one after the other, giving way between them.
    pub(super) async fn each_here<T, R>(
        &self,
        parts: Vec<T>,
        key: impl Fn(&T) -> PartitionKey,
        work: impl AsyncFn(Partition, T) -> Result<R, ErrorCode>,
    ) -> Vec<Result<R, ErrorCode>> {
        let mut results = Vec::with_capacity(parts.len());
        for part in parts {
            results.push(match self.0.partitions.online(&key(&part)) {
                Ok(partition) => work(partition, part).await,
                Err(code) => Err(code),
            });
            self.rt().yield_if_needed().await;
        }
        results
    }
}
