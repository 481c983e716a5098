//! The partition log on disk: segments, indexes, the buffer cache, flushes.
//!
//! A [`Log`] belongs to one shard and is used by its tasks only. It appends by
//! direct I/O, serves readers from the very buffers it wrote, and makes bytes
//! durable through the shard's flusher. Three numbers rise in this order: written
//! (LEO), flushed, recovery point.
//!
//! What it is not: it knows no high watermark (callers pass a bound), no
//! replication, no client. It validates no record; callers hand it whole batches
//! with their offsets assigned.

mod append;
mod assemble;
mod batch;
mod cache;
mod checkpoint;
pub mod checkpoint_file;
mod compaction;
mod data_dir;
mod epochs_of_batches;
mod error;
mod flusher;
mod gate;
pub mod index;
mod index_files;
pub mod inspect;
pub mod leader_epochs;
mod load;
mod log;
mod log_config;
mod log_files;
#[cfg(test)]
mod log_tests;
pub mod partition_dir;
mod producer_replay;
pub mod producer_snapshot;
mod producer_state;
mod read;
mod recover;
#[cfg(test)]
pub(crate) mod recovery_tests;
mod recycle;
pub mod repair;
mod retention;
mod retire;
mod room;
mod scan;
mod scrub;
mod segment;
mod segment_end;
mod segment_ends;
mod shared;
mod small_file;
mod throttle;
mod timestamps;
mod truncate;
mod unusable;
pub mod uuid_text;
mod walk;

pub use compaction::{
    Compacted, CompactionError, CompactionMeans, CompactionNeed, CompactionRules, Recorder,
};
pub use data_dir::{DataDir, DataDirError, MetaProperties, StartKind};
pub use error::{AppendError, CheckpointError, FlushError, LoadError, ReadError, TruncateError};
pub use load::{LoadMode, LoadReport};
pub use log::{Log, LogBatch};
pub use log_config::LogConfig;
pub use partition_dir::PartitionName;
pub use producer_state::{
    BatchProducer, Check as ProducerCheck, ProducedBatch, ProducerInfo, ProducerStates,
    PRODUCERS_MAX,
};
pub use read::{ReadCheck, ReadSlices};
pub use retention::{RemovedHead, RetentionError, RetentionRules};
pub use retire::RetireError;
pub use room::{Allowance, Room, Taken};
pub use scrub::Scrubbed;
pub use shared::{Storage, StorageLimits};
pub use throttle::Throttle;
pub use timestamps::TimestampOffset;
