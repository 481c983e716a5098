//! From what a request calls a topic to the partitions that exist: the one place where
//! produce, fetch and the offset APIs look a topic up, by name or by id.
//!
//! What it is not: it says nothing about who owns a partition, nor whether it is online.

use crate::metadata::{is_internal_topic, Image, TopicImage};
use crate::protocol::ErrorCode;
use crate::shard::{PartitionKey, Shard};
use uuid::Uuid;

/// The topics as they are at one moment: all of one request is looked up in the same
/// image.
pub(super) struct Topics(Option<Image>);

/// A topic that was looked for.
#[derive(Clone, Copy)]
pub(super) struct Found<'a>(Result<&'a TopicImage, ErrorCode>);

impl Topics {
    /// The topics now.
    pub fn now(shard: &Shard) -> Topics {
        Topics(shard.image())
    }

    /// Looks for a topic the way the request's version names it: by id or by name.
    pub fn find(&self, by_id: bool, name: &str, id: &Uuid) -> Found<'_> {
        if by_id {
            self.by_id(id)
        } else {
            self.by_name(name)
        }
    }

    /// Looks for a topic by name: UNKNOWN_TOPIC_OR_PARTITION if there is none.
    pub fn by_name(&self, name: &str) -> Found<'_> {
        let found = self.0.as_ref().and_then(|image| image.topic(name));
        let found = found.map(|topic| &**topic);
        Found(found.ok_or(ErrorCode::UnknownTopicOrPartition))
    }

    /// Looks for a topic by id: UNKNOWN_TOPIC_ID if there is none.
    pub fn by_id(&self, id: &Uuid) -> Found<'_> {
        let found = self.0.as_ref().and_then(|image| image.topic_by_id(id));
        let found = found.map(|topic| &**topic);
        Found(found.ok_or(ErrorCode::UnknownTopicId))
    }
}

impl Found<'_> {
    /// Whether it is there and one of the broker's own.
    pub fn is_internal(&self) -> bool {
        self.0.is_ok_and(|topic| is_internal_topic(&topic.name))
    }

    /// The partition of this number: UNKNOWN_TOPIC_OR_PARTITION if the topic does not
    /// have it.
    pub fn partition(&self, index: i32) -> Result<PartitionKey, ErrorCode> {
        let topic = self.0?;
        match usize::try_from(index) {
            Ok(place) if place < topic.partitions.len() => Ok(PartitionKey {
                topic_id: topic.id,
                index,
            }),
            _ => Err(ErrorCode::UnknownTopicOrPartition),
        }
    }
}
