//! The cluster's image: topics, partitions, overridden configs and brokers.
//!
//! An [`Image`] is an immutable snapshot. The controller makes a [`Delta`] for each
//! change, writes its records to the metadata log, and every shard applies the same
//! delta to its own copy, so all copies of one version are equal. The records of
//! the log, and how they turn back into changes, are here too, so
//! that a reader of the log needs no controller.
//!
//! What it is not: it decides nothing (the controller does) and touches no file.

mod delta;
mod image;
mod names;
pub mod records;

pub use delta::{Change, Delta};
pub use image::{BrokerImage, Image, PartitionImage, TopicImage};
pub use names::{
    collision_key, is_internal_topic, validate_topic_name, METADATA_TOPIC_NAME, OFFSETS_TOPIC_NAME,
    TOPIC_NAME_LEN_MAX,
};

use uuid::Uuid;

/// A topic's id, as Kafka has it (KIP-516): random, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub Uuid);

impl TopicId {
    /// Makes a version 4 id of 128 random bits. `None` for the ids that Kafka reserves
    /// (the nil id, the metadata topic's 1): draw again.
    pub fn from_random(high: u64, low: u64) -> Option<TopicId> {
        let id = TopicId(
            uuid::Builder::from_u128(((high as u128) << 64) | low as u128)
                .with_version(uuid::Version::Random)
                .with_variant(uuid::Variant::RFC4122)
                .into_uuid(),
        );
        (!id.is_reserved()).then_some(id)
    }

    /// True for ids that Kafka keeps for itself: the nil id, the metadata topic's 1,
    /// and those whose text begins with a dash (they break command lines).
    pub fn is_reserved(&self) -> bool {
        // Kafka writes ids in URL-safe base64: a leading '-' is 62 in the top six bits.
        self.0.as_u128() <= 1 || self.0.as_bytes()[0] >> 2 == 62
    }
}

/// The shard that owns a partition: (the id's low 8 bytes, big-endian, + partition)
/// mod `shards`. No seeded hash, so that every broker can compute it.
pub fn owner_shard(topic_id: &Uuid, partition: i32, shards: usize) -> usize {
    assert!(shards > 0, "a broker has at least one shard");
    debug_assert!(partition >= 0, "partition indexes start at 0");
    let (_, low) = topic_id.as_u64_pair();
    ((low as u128 + partition.max(0) as u128) % shards as u128) as usize
}

#[cfg(test)]
mod tests;
