//! The sizes of logs across owners (DescribeLogDirs).

use super::messages::{PartitionKey, Reply, Request};
use super::Shard;
use crate::partition::Partition;
use crate::protocol::ErrorCode;
use std::path::PathBuf;

impl Shard {
    /// The bytes that each partition's log takes, in the order of the keys.
    pub async fn log_sizes(&self, keys: Vec<PartitionKey>) -> Vec<Result<u64, ErrorCode>> {
        let answer = |reply| match reply {
            Reply::LogSizes(results) => Some(results),
            _ => None,
        };
        let here = async |keys| self.log_sizes_here(keys).await;
        self.ask_each_owner(keys, |key| *key, here, Request::LogSizes, answer)
            .await
    }

    pub(super) async fn log_sizes_here(
        &self,
        keys: Vec<PartitionKey>,
    ) -> Vec<Result<u64, ErrorCode>> {
        let size = async |partition: Partition, _| Ok(partition.size().0);
        self.each_here(keys, |key| *key, size).await
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.0.partitions.data_dir()
    }
}
