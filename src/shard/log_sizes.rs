//! The sizes of logs across owners (DescribeLogDirs), and the data directories that they are in.

use super::messages::{PartitionKey, Reply, Request};
use super::Shard;
use crate::partition::Partition;
use crate::protocol::ErrorCode;

/// The size of a log, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSize {
    /// Bytes.
    pub bytes: u64,
    /// The data directory, by its place in `log.dirs`.
    pub dir: usize,
}

impl Shard {
    /// The bytes that each partition's log takes and where, in the order of the keys.
    pub async fn log_sizes(&self, keys: Vec<PartitionKey>) -> Vec<Result<LogSize, ErrorCode>> {
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
    ) -> Vec<Result<LogSize, ErrorCode>> {
        let size = async |partition: Partition, key: PartitionKey| {
            let named = self.0.partitions.named(&key);
            let dir = named.ok_or(ErrorCode::KafkaStorageError)?.dir;
            let bytes = partition.size().0;
            Ok(LogSize { bytes, dir })
        };
        self.each_here(keys, |key| *key, size).await
    }
}
