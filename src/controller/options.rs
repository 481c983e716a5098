//! What the controller needs to know, and why it may fail.

use super::journal::JournalError;
use super::snapshot::SnapshotError;
use crate::config::BrokerConfig;
use crate::runtime::IoErrorKind;
use std::sync::Arc;
use uuid::Uuid;

/// What the controller needs to know of the broker.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// `node.id`.
    pub node_id: i32,
    /// The cluster's id, from `meta.properties`.
    pub cluster_id: Uuid,
    /// What topics inherit (`num.partitions`, `default.replication.factor`, and what
    /// their overridden configs are checked on top of).
    pub broker_config: Arc<BrokerConfig>,
    /// The most partitions that one topic may have.
    pub max_partitions_per_topic: i32,
    /// The most partitions that all topics may have together.
    pub max_partitions: i32,
    /// The last stop was clean (the marker was found).
    pub clean: bool,
    /// The metadata log's recovery point, if the checkpoint has one.
    pub recovery_point: Option<i64>,
}

/// A snapshot is due when either was logged since the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SnapshotInterval {
    /// So many records.
    pub records: i64,
    /// So many bytes.
    pub bytes: u64,
}

impl Default for SnapshotInterval {
    fn default() -> SnapshotInterval {
        SnapshotInterval {
            records: 10_000,
            bytes: 1 << 20,
        }
    }
}

/// Why the controller could not be opened, or closed cleanly.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ControllerError {
    /// The metadata log failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A snapshot could not be read or written.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The log does not hold what the snapshots do not.
    #[error("the metadata log holds offsets {log_start_offset} to {end_offset}, but {need}; records are missing: restore {directory} from a copy, or format a new data directory")]
    RecordsMissing {
        /// Its first offset.
        log_start_offset: i64,
        /// LEO.
        end_offset: i64,
        /// What was needed.
        need: String,
        /// The metadata log's directory.
        directory: String,
    },
    /// A write failed before; the controller refuses changes.
    #[error("the metadata log takes no changes since a failed write ({0}); restart the broker once the disk is well")]
    Failed(String),
    /// The controller was closed before.
    #[error("the controller is closed")]
    Closed,
}

impl ControllerError {
    /// True if the device failed: what it holds is unknown.
    pub(super) fn is_device_failure(&self) -> bool {
        match self {
            ControllerError::Snapshot(SnapshotError::Io(error)) => {
                error.kind == IoErrorKind::Device
            }
            ControllerError::Journal(error) => error.is_device_failure(),
            _ => false,
        }
    }
}
