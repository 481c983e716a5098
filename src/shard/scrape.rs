//! What the control executor asks shards for the admin HTTP: whether they answer, and their figures.

use super::messages::{ListOffsetsPart, PartitionKey, Pong, Reply, Request};
use super::metrics::{MetricsOrder, ShardMetrics};
use super::Control;
use crate::metadata::owner_shard;
use crate::partition::{Reader, LATEST};
use crate::runtime::MeshError;
use std::collections::HashMap;

impl Control {
    /// Asks a shard how far its load is; it answers as soon as it looks at its messages.
    pub async fn load_progress(&self, shard: usize) -> Result<Pong, MeshError> {
        match self.mesh().call(shard, Request::Ping).await? {
            Reply::Pong(pong) => Ok(pong),
            _ => Err(MeshError { peer: shard }),
        }
    }

    /// The figures of every shard, in their order.
    pub async fn metrics(&self, order: MetricsOrder) -> Result<Vec<ShardMetrics>, MeshError> {
        let orders = (0..self.shards()).map(|_| Request::Metrics(order));
        let replies = self.call_each(orders.collect()).await?;
        let figures = replies.into_iter().filter_map(|reply| match reply {
            Reply::Metrics(figures) => Some(*figures),
            _ => None,
        });
        Ok(figures.collect())
    }

    /// The high watermarks of these partitions, as far as they have one.
    pub async fn high_watermarks(
        &self,
        keys: impl IntoIterator<Item = PartitionKey>,
    ) -> Result<HashMap<PartitionKey, i64>, MeshError> {
        let shards = self.shards();
        let mut parts: Vec<Vec<ListOffsetsPart>> = vec![Vec::new(); shards];
        for key in keys {
            parts[owner_shard(&key.topic_id, key.index, shards)].push(ListOffsetsPart {
                key,
                timestamp: LATEST,
                current_leader_epoch: -1,
                reader: Reader::Consumer,
            });
        }
        let orders = parts.iter().cloned().map(Request::ListOffsets);
        let replies = self.call_each(orders.collect()).await?;
        let mut all = HashMap::new();
        for (parts, reply) in parts.iter().zip(replies) {
            let Reply::Listed(listed) = reply else {
                continue;
            };
            let known = parts.iter().zip(listed);
            all.extend(known.filter_map(|(part, listed)| Some((part.key, listed.ok()?.offset))));
        }
        Ok(all)
    }
}
