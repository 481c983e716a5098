//! `__consumer_offsets`: its creation, and which of its partitions coordinates a group.

use super::Shard;
use crate::controller::NewTopic;
use crate::metadata::{TopicImage, OFFSETS_TOPIC_NAME};
use crate::protocol::ErrorCode;
use crate::shard::PartitionKey;
use std::sync::Arc;

/// The partition of `__consumer_offsets` that coordinates a group, of `partitions` (at
/// least 1): Java's `Math.abs(group.hashCode()) % partitions`, with Kafka's 0 for the one
/// number that has no absolute value.
fn coordinator_partition(group: &str, partitions: i32) -> i32 {
    let hash = group.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    hash.checked_abs().unwrap_or(0) % partitions.max(1)
}

impl Shard {
    /// Creates `__consumer_offsets` unless it is there. When this returns, every shard has it.
    ///
    /// # Errors
    /// COORDINATOR_NOT_AVAILABLE, upon which clients try again; why was logged.
    pub async fn ensure_offsets_topic(&self) -> Result<(), ErrorCode> {
        if self.offsets_topic().is_some() {
            return Ok(());
        }
        let _creating = self.0.groups.creating.acquire(1).await;
        if self.offsets_topic().is_some() {
            return Ok(());
        }
        let Some(image) = self.image() else {
            return Err(ErrorCode::CoordinatorNotAvailable);
        };
        let (config, brokers) = (self.config(), image.brokers().count());
        let factor = (config.offsets_topic_replication_factor).min(brokers.max(1) as i16);
        let text = |name: &str, value: String| (name.to_owned(), Some(value));
        let topic = NewTopic {
            name: OFFSETS_TOPIC_NAME.to_owned(),
            num_partitions: config.offsets_topic_num_partitions,
            replication_factor: factor,
            assignments: Vec::new(),
            configs: vec![
                text("cleanup.policy", "compact".to_owned()),
                text(
                    "segment.bytes",
                    config.offsets_topic_segment_bytes.to_string(),
                ),
                // The codec is chosen by the broker's setting, with each batch.
                text("compression.type", "producer".to_owned()),
            ],
        };
        let created = self.create_topics(vec![topic], false).await;
        match created.map(|mut results| results.pop()) {
            Ok(Some(Ok(_))) => Ok(()),
            // Another shard was faster.
            Ok(Some(Err(fault))) if fault.code == ErrorCode::TopicAlreadyExists => Ok(()),
            Ok(Some(Err(fault))) => {
                tracing::warn!(error = %fault, "{OFFSETS_TOPIC_NAME} could not be created");
                Err(ErrorCode::CoordinatorNotAvailable)
            }
            Ok(None) | Err(_) => Err(ErrorCode::CoordinatorNotAvailable),
        }
    }

    /// The partition that coordinates the group, which exists when this returns.
    pub(super) async fn coordinator_key(&self, group: &str) -> Result<PartitionKey, ErrorCode> {
        self.ensure_offsets_topic().await?;
        let topic = self.offsets_topic();
        let topic = topic.ok_or(ErrorCode::CoordinatorNotAvailable)?;
        Ok(PartitionKey {
            topic_id: topic.id,
            index: coordinator_partition(group, topic.partitions.len() as i32),
        })
    }

    fn offsets_topic(&self) -> Option<Arc<TopicImage>> {
        self.image()?.topic(OFFSETS_TOPIC_NAME).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are Java's.
    #[test]
    fn a_groups_partition_is_javas() {
        for (group, partition) in [
            ("", 0),
            ("a", 47),
            ("my-group", 12),
            ("console-consumer-12345", 6),
            ("gr\u{fc}n", 49),
            ("\u{1f600}", 49),
            // Its hash is the least integer.
            ("polygenelubricants", 0),
        ] {
            assert_eq!(coordinator_partition(group, 50), partition, "{group}");
        }
    }
}
