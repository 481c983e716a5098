//! The controller: the one writer of the metadata log, `__cluster_metadata-0`.
//!
//! Requests come in through a bounded queue to one task. It decides each against
//! the image that all decisions before it lead to ([`plan`], pure functions), writes
//! the records of the whole group as record batches, flushes once, and only then
//! answers and moves the image that others see. So requests take effect in the order
//! of their arrival, nothing is answered that a power cut could take back, and a
//! caller that goes away leaves nothing half done.
//!
//! A failed write or flush ends it: what reached the disk is unknown, so every later
//! change is refused with KAFKA_STORAGE_ERROR until the controller is opened again
//! and has read the log. One topic's records are one batch: after a crash the topic
//! is wholly there or wholly absent.
//!
//! What it is not: it is no quorum yet (the term is always 1), and it applies
//! nothing to shards. Whoever called carries the returned [`Delta`] to every shard
//! before the client is answered.

mod interim;
mod plan;
mod request;

pub use interim::{ErrorCode, Storage};
pub use request::{ControllerFault, CreatedTopic, NewTopic, TopicSelector};

use crate::metadata::{Delta, Image};
use crate::runtime::{Dir, IoError, Rt};
use std::ops::Range;
use uuid::Uuid;

/// What the controller needs to know of the broker.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// `node.id`.
    pub node_id: i32,
    /// The cluster's id, from `meta.properties`.
    pub cluster_id: Uuid,
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i16,
    /// The most partitions that one topic may have.
    pub max_partitions_per_topic: i32,
    /// The most partitions that all topics may have together.
    pub max_partitions: i32,
    /// The last stop was clean (the marker was found).
    pub clean: bool,
    /// The metadata log's recovery point, if the checkpoint has one.
    pub recovery_point: Option<i64>,
}

/// Why the controller could not be opened, or closed cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The disk failed.
    #[error("the metadata log: {0}")]
    Io(#[from] IoError),
    /// An earlier write failed; the controller refuses changes.
    #[error("the metadata log is out of use since a failed write: {0}")]
    Failed(String),
}

/// A handle to the controller. Cheap to clone, for its executor only.
#[derive(Clone)]
pub struct Controller {}

/// What a request for topics returns: a result for each topic, in the request's
/// order, and the delta to carry to every shard if anything changed.
pub type TopicAnswer<T> = (Vec<Result<T, ControllerFault>>, Option<Delta>);

impl Controller {
    /// Reads the newest valid snapshot and the log behind it, and starts the task.
    /// The image is what every shard starts from.
    pub async fn open(
        _rt: &Rt,
        _storage: &Storage,
        _data_dir: Dir,
        _options: ControllerOptions,
    ) -> Result<(Controller, Image), ControllerError> {
        Err(ControllerError::Failed("not built yet".into()))
    }

    /// The image of all that is durable.
    pub fn image(&self) -> Image {
        todo!()
    }

    /// Creates topics. Each fails or succeeds alone. With `validate_only` nothing is
    /// changed and no delta comes back.
    pub async fn create_topics(
        &self,
        _topics: Vec<NewTopic>,
        _validate_only: bool,
    ) -> TopicAnswer<CreatedTopic> {
        todo!()
    }

    /// Deletes topics. Each fails or succeeds alone.
    pub async fn delete_topics(&self, _topics: Vec<TopicSelector>) -> TopicAnswer<(Uuid, String)> {
        todo!()
    }

    /// Takes `count` producer ids that were never handed out and never will be again.
    pub async fn allocate_producer_ids(&self, _count: i32) -> Result<Range<i64>, ControllerFault> {
        todo!()
    }

    /// Finishes what is queued, writes a snapshot, and closes the log. Returns its
    /// recovery point. Later requests get NOT_CONTROLLER.
    pub async fn close(&self) -> Result<i64, ControllerError> {
        todo!()
    }
}
