//! The controller: the one writer of the metadata log, `__cluster_metadata-0`.
//!
//! Requests come in through a bounded queue to one task. It decides each against
//! the image that all decisions before it lead to ([`plan`], pure functions), writes
//! the records of the whole group as record batches, flushes once, and only then
//! answers and moves the image that others see. So requests take effect in the order
//! of their arrival, nothing is answered that a power cut could take back, and a
//! caller that goes away leaves nothing half done.
//!
//! A device that fails a write or a flush ends it: what reached the disk is unknown, so every
//! later change is refused with KAFKA_STORAGE_ERROR until the controller is opened again
//! and has read the log. A write that found no space fails its own changes only: before the
//! next, the log is loaded again and cut to where it was. One topic's records are one batch: after a crash the topic
//! is wholly there or wholly absent.
//!
//! What it is not: it is no quorum yet (the term is always 1), and it applies
//! nothing to shards. Whoever called carries the returned [`Delta`] to every shard
//! before the client is answered.

mod committer;
mod journal;
mod open;
mod options;
mod plan;
mod request;
mod snapshot;

#[cfg(test)]
mod tests;

pub use journal::{JournalError, LogNumbers};
pub use options::{ControllerError, ControllerOptions};
pub use request::{
    AlterConfigOp, ConfigTarget, ConfigsAlteration, ConfigsChange, ControllerFault, CreatedTopic,
    MorePartitions, NewTopic, TopicSelector,
};
pub use snapshot::SnapshotError;

use crate::metadata::{Delta, Image};
use crate::protocol::ErrorCode;
use crate::runtime::local::{channel, oneshot, OneshotSender, Sender};
use crate::runtime::{Dir, Queue, Rt};
use crate::storage::Storage;
use committer::{refused, Call, CALLS_QUEUED_MAX};
use options::SnapshotInterval;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use uuid::Uuid;

/// A handle to the controller. Cheap to clone, for its executor only.
#[derive(Clone)]
pub struct Controller {
    calls: Sender<Call>,
    published: Rc<Published>,
    journal: journal::Journal,
}

/// What a request for topics returns: a result for each topic, in the request's
/// order, and the delta to carry to every shard if anything changed.
pub type TopicAnswer<T> = (Vec<Result<T, ControllerFault>>, Option<Delta>);

/// What the task shows to the handles.
struct Published {
    image: RefCell<Image>,
    failure: RefCell<Option<String>>,
    /// The data directories that take new partitions.
    directories: RefCell<Rc<[Uuid]>>,
}

impl Controller {
    /// Reads the newest whole snapshot and the log behind it, and starts the task.
    /// The image is what every shard starts from; deltas follow it.
    pub async fn open(
        rt: &Rt,
        storage: &Storage,
        data_dir: Dir,
        options: ControllerOptions,
    ) -> Result<(Controller, Image), ControllerError> {
        let interval = SnapshotInterval::default();
        Controller::open_with(rt, storage, data_dir, options, interval).await
    }

    async fn open_with(
        rt: &Rt,
        storage: &Storage,
        data_dir: Dir,
        options: ControllerOptions,
        interval: SnapshotInterval,
    ) -> Result<(Controller, Image), ControllerError> {
        let committer = open::open(rt, storage, data_dir, options, interval).await?;
        let (calls, queue) = channel(CALLS_QUEUED_MAX);
        let controller = Controller {
            calls,
            published: committer.published.clone(),
            journal: committer.journal.clone(),
        };
        rt.spawn(Queue::Latency, committer.run(queue));
        let image = controller.image();
        Ok((controller, image))
    }

    /// The image of all that is durable.
    pub fn image(&self) -> Image {
        self.published.image()
    }

    /// The metadata log's recovery point, for the data directory's checkpoint.
    pub fn recovery_point(&self) -> i64 {
        self.journal.recovery_point()
    }

    /// Why every change is refused until the controller is opened again, if it is.
    pub fn failure(&self) -> Option<String> {
        self.published.failure()
    }

    /// Puts partitions that are created from now on into these data directories, by their
    /// `directory.id`, each into the one with the fewest.
    pub fn set_directories(&self, directories: Vec<Uuid>) {
        *self.published.directories.borrow_mut() = directories.into();
    }

    /// How far the metadata log is.
    pub fn log_numbers(&self) -> LogNumbers {
        self.journal.numbers()
    }

    /// Creates topics. Each fails or succeeds alone. With `validate_only` nothing is
    /// changed, no delta comes back, and the ids are nil.
    ///
    /// Errors: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, POLICY_VIOLATION, INVALID_CONFIG,
    /// INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT,
    /// INVALID_REQUEST; for all topics KAFKA_STORAGE_ERROR (then it is not known which
    /// of them will be there when the controller is opened again) and NOT_CONTROLLER.
    pub async fn create_topics(
        &self,
        topics: Vec<NewTopic>,
        validate_only: bool,
    ) -> TopicAnswer<CreatedTopic> {
        let count = topics.len();
        let call = |reply| Call::Create {
            topics,
            validate_only,
            reply,
        };
        self.call_for_topics(count, call).await
    }

    /// Deletes topics. Each fails or succeeds alone.
    ///
    /// Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST; for all
    /// topics KAFKA_STORAGE_ERROR and NOT_CONTROLLER.
    pub async fn delete_topics(&self, topics: Vec<TopicSelector>) -> TopicAnswer<(Uuid, String)> {
        let count = topics.len();
        let call = |reply| Call::Delete { topics, reply };
        self.call_for_topics(count, call).await
    }

    /// Alters the configs of topics and brokers. Each fails or succeeds alone. With `validate_only`
    /// nothing is changed; a change that changes nothing brings no delta either.
    ///
    /// Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG,
    /// INVALID_REQUEST; for all topics KAFKA_STORAGE_ERROR and NOT_CONTROLLER.
    pub async fn alter_configs(
        &self,
        alterations: Vec<ConfigsAlteration>,
        validate_only: bool,
    ) -> TopicAnswer<()> {
        let count = alterations.len();
        let call = |reply| Call::AlterConfigs {
            alterations,
            validate_only,
            reply,
        };
        self.call_for_topics(count, call).await
    }

    /// Adds partitions to topics. Each fails or succeeds alone. With `validate_only`
    /// nothing is changed.
    ///
    /// Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS,
    /// INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST; for all topics KAFKA_STORAGE_ERROR
    /// and NOT_CONTROLLER.
    pub async fn create_partitions(
        &self,
        topics: Vec<MorePartitions>,
        validate_only: bool,
    ) -> TopicAnswer<()> {
        let count = topics.len();
        let call = |reply| Call::CreatePartitions {
            topics,
            validate_only,
            reply,
        };
        self.call_for_topics(count, call).await
    }

    /// Takes `count` producer ids that were never handed out and never will be again.
    ///
    /// Errors: INVALID_REQUEST, KAFKA_STORAGE_ERROR, NOT_CONTROLLER.
    pub async fn allocate_producer_ids(&self, count: i32) -> Result<Range<i64>, ControllerFault> {
        match self.call(|reply| Call::ProducerIds { count, reply }).await {
            Some(answer) => answer,
            None => Err(closed()),
        }
    }

    /// Finishes what is queued, writes a snapshot, and closes the log. Returns its
    /// recovery point. Later requests get NOT_CONTROLLER.
    pub async fn close(&self) -> Result<i64, ControllerError> {
        match self.call(|reply| Call::Close { reply }).await {
            Some(closed) => closed,
            None => Err(ControllerError::Closed),
        }
    }

    /// Queues a call about `count` topics; each is refused if the task has ended.
    async fn call_for_topics<T>(
        &self,
        count: usize,
        make: impl FnOnce(OneshotSender<TopicAnswer<T>>) -> Call,
    ) -> TopicAnswer<T> {
        match self.call(make).await {
            Some(answer) => answer,
            None => (refused(count, &closed()), None),
        }
    }

    /// Queues a call and waits for its answer; `None` if the task has ended.
    async fn call<T>(&self, make: impl FnOnce(OneshotSender<T>) -> Call) -> Option<T> {
        let (reply, answer) = oneshot();
        self.calls.send(make(reply)).await.ok()?;
        answer.await
    }
}

impl Published {
    fn new(image: Image) -> Published {
        Published {
            image: RefCell::new(image),
            failure: RefCell::new(None),
            directories: RefCell::new(Rc::from([])),
        }
    }

    fn image(&self) -> Image {
        self.image.borrow().clone()
    }

    fn set_image(&self, image: Image) {
        *self.image.borrow_mut() = image;
    }

    /// Why changes are refused, if they are.
    fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Refuses changes from now on; the first reason stays.
    fn fail(&self, reason: String) {
        self.failure.borrow_mut().get_or_insert(reason);
    }
}

fn closed() -> ControllerFault {
    ControllerFault::new(
        ErrorCode::NotController,
        "The controller is stopping; ask again once the broker is back.",
    )
}
