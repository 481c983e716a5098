//! Changes to the image.

use super::{PartitionImage, TopicImage};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// Changes that are durable in the metadata log, to be applied together.
///
/// Deltas form a chain: a delta applies to the image whose version is
/// [`Delta::previous`], and to no other. Whoever carries deltas to several places
/// applies them in that order ([`super::Image::is_followed_by`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    /// The version of the image that this delta changes.
    pub previous: i64,
    /// The version that it leads to: the offset of its last record in the metadata
    /// log. Greater than `previous`; versions are not contiguous.
    pub offset: i64,
    /// What changes, in order.
    pub changes: Vec<Change>,
}

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A topic with all its partitions and configs is new.
    TopicCreated(Arc<TopicImage>),
    /// A topic is gone, with all its partitions and configs.
    TopicDeleted {
        /// Which one.
        id: Uuid,
        /// Its name, free again.
        name: Arc<str>,
    },
    /// A topic's overridden configs are now these.
    TopicConfigsChanged {
        /// Which topic.
        id: Uuid,
        /// All of its overrides, not only those that changed.
        configs: BTreeMap<String, String>,
    },
    /// The settings of a broker, or of all brokers, that were changed while they run.
    BrokerConfigsChanged {
        /// Which broker; `None`: what all have in common.
        broker: Option<i32>,
        /// All of them, not only those that changed.
        configs: BTreeMap<String, String>,
    },
    /// A topic has more partitions.
    PartitionsAdded {
        /// Which topic.
        id: Uuid,
        /// The new ones; the first follows the last that the topic had.
        partitions: Vec<PartitionImage>,
    },
    /// A broker registered, for the first time or again.
    BrokerRegistered {
        /// `node.id`.
        id: i32,
        /// The offset of its registration: greater than that of every registration
        /// before.
        epoch: i64,
    },
    /// Producer ids below `next` are taken. It does not move the image's version:
    /// only the controller needs to know.
    ProducerIdsAllocated {
        /// The first id that is free.
        next: i64,
    },
}
