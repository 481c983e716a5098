//! What the control executor asks shards for the admin HTTP: whether they answer, and their figures.

use super::messages::{ListOffsetsPart, PartitionKey, Pong, Reply, Request};
use super::metrics::{MetricsOrder, ShardMetrics};
use super::Control;
use crate::metadata::owner_shard;
use crate::partition::{Reader, LATEST};
use crate::runtime::MeshError;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// How far all shards are with their load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadStatus {
    /// Partitions that are loaded, those included that are offline.
    pub loaded: usize,
    /// Partitions that there are.
    pub to_load: usize,
    /// Bytes that recovery scans have read.
    pub scanned_bytes: u64,
    /// Bytes that the scans which have begun are to read.
    pub to_scan_bytes: u64,
    /// How long it takes already.
    pub took: Duration,
}

impl LoadStatus {
    /// The sum of what shards answered.
    pub fn of(pongs: &[Pong]) -> LoadStatus {
        let mut all = LoadStatus::default();
        for pong in pongs {
            all.loaded += pong.loaded;
            all.to_load += pong.to_load;
            all.scanned_bytes += pong.scanned_bytes;
            all.to_scan_bytes += pong.to_scan_bytes;
            all.took = all.took.max(pong.took);
        }
        all
    }

    /// An estimate of the time left: the slower of what the partitions and the bytes of the
    /// scans under way still need at the pace so far. `None` while nothing was done.
    pub fn left(&self) -> Option<Duration> {
        let left = |done: u64, all: u64| {
            let rest = all.saturating_sub(done) as f64;
            (done > 0).then(|| self.took.as_secs_f64() * rest / done as f64)
        };
        let partitions = left(self.loaded as u64, self.to_load as u64);
        let bytes = left(self.scanned_bytes, self.to_scan_bytes);
        let seconds = match (partitions, bytes) {
            (Some(one), Some(other)) => one.max(other),
            (one, other) => one.or(other)?,
        };
        Duration::try_from_secs_f64(seconds).ok()
    }
}

impl fmt::Display for LoadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        write!(f, "{} of {} partitions", self.loaded, self.to_load)?;
        let (scanned, to_scan) = (self.scanned_bytes, self.to_scan_bytes);
        write!(f, ", {} of {} MiB scanned", scanned / MIB, to_scan / MIB)?;
        write!(f, ", {} s so far", self.took.as_secs())?;
        match self.left() {
            Some(left) => write!(f, ", about {} s left", left.as_secs_f64().ceil()),
            None => Ok(()),
        }
    }
}

impl Control {
    /// Asks a shard how far its load is; it answers as soon as it looks at its messages.
    pub async fn load_progress(&self, shard: usize) -> Result<Pong, MeshError> {
        match self.mesh().call(shard, Request::Ping).await? {
            Reply::Pong(pong) => Ok(pong),
            _ => Err(MeshError { peer: shard }),
        }
    }

    /// Resolves with how far the load is when every shard has answered. May be dropped.
    pub async fn load_status(&self) -> Result<LoadStatus, MeshError> {
        let pings = (0..self.shards()).map(|_| Request::Ping).collect();
        let replies = self.call_each(pings).await?.into_iter();
        let pongs = replies.filter_map(|reply| match reply {
            Reply::Pong(pong) => Some(pong),
            _ => None,
        });
        Ok(LoadStatus::of(&pongs.collect::<Vec<_>>()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_load_under_way_then_its_status_says_how_far_it_is_and_what_is_left() {
        let pong = |loaded, scanned: u64, to_scan: u64| Pong {
            loaded,
            to_load: 10,
            scanned_bytes: scanned << 20,
            to_scan_bytes: to_scan << 20,
            took: Duration::from_secs(4),
        };
        let status = LoadStatus::of(&[pong(5, 10, 10), pong(3, 10, 50)]);
        assert_eq!(
            status.to_string(),
            "8 of 20 partitions, 20 of 60 MiB scanned, 4 s so far, about 8 s left"
        );
        let begun = LoadStatus::of(&[pong(0, 0, 50)]);
        assert_eq!(begun.left(), None);
        let partitions = LoadStatus::of(&[pong(2, 0, 0)]);
        assert_eq!(partitions.left(), Some(Duration::from_secs(16)));
    }
}
