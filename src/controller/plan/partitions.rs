//! CreatePartitions, by the rules of Kafka's ReplicationControlManager.

use super::{Placement, Plan};
use crate::controller::request::{ControllerFault, MorePartitions};
use crate::metadata::{Change, TopicImage, OFFSETS_TOPIC_NAME};
use crate::protocol::ErrorCode;
use smallvec::SmallVec;
use std::collections::BTreeMap;

impl Plan<'_> {
    /// Adds partitions to topics. Each fails or succeeds alone. `times_grown` counts the
    /// names of the whole request ([`times_grown`]).
    pub fn create_partitions(
        &mut self,
        topics: &[MorePartitions],
        times_grown: &BTreeMap<&str, usize>,
    ) -> Vec<Result<(), ControllerFault>> {
        let decide = |topic: &MorePartitions| {
            if times_grown[topic.name.as_str()] > 1 {
                return Err(ControllerFault::new(
                    ErrorCode::InvalidRequest,
                    "Duplicate topic name: name each topic once in a request.",
                ));
            }
            self.grow(topic)
        };
        topics.iter().map(decide).collect()
    }

    fn grow(&mut self, more: &MorePartitions) -> Result<(), ControllerFault> {
        let topic = self.image.topic(&more.name).cloned().ok_or_else(|| {
            ControllerFault::new(
                ErrorCode::UnknownTopicOrPartition,
                "This server does not host this topic-partition: no topic has this name.",
            )
        })?;
        if &*topic.name == OFFSETS_TOPIC_NAME {
            return Err(ControllerFault::new(
                ErrorCode::InvalidPartitions,
                format!("With another number of partitions of {OFFSETS_TOPIC_NAME} groups would lose their committed offsets: a group's partition follows from that number."),
            ));
        }
        let there = topic.partitions.len();
        let additional = self.additional(more, there)?;
        let placement = match &more.assignments {
            None => self.place_round(additional, topic.partitions[0].replicas.len()),
            Some(assignments) => self.place_assigned(&topic, assignments, additional)?,
        };
        let partitions = placement
            .into_iter()
            .enumerate()
            .map(|(i, replicas)| self.new_partition(there + i, replicas))
            .collect();
        let id = topic.id;
        self.make(Change::PartitionsAdded { id, partitions });
        Ok(())
    }

    /// How many partitions are to be added; at least one.
    fn additional(&self, more: &MorePartitions, there: usize) -> Result<usize, ControllerFault> {
        let invalid = |message: String| ControllerFault::new(ErrorCode::InvalidPartitions, message);
        let (count, name) = (more.count, &more.name);
        if i64::from(count) == there as i64 {
            return Err(invalid(format!("Topic already has {there} partition(s).")));
        }
        if i64::from(count) < there as i64 {
            return Err(invalid(format!(
                "The topic {name} currently has {there} partition(s); {count} would not be an increase."
            )));
        }
        let additional = count as usize - there;
        if let Some(assignments) = &more.assignments {
            if assignments.len() != additional {
                return Err(ControllerFault::new(
                    ErrorCode::InvalidReplicaAssignment,
                    format!(
                        "Attempted to add {additional} additional partition(s), but {} assignment(s) were specified.",
                        assignments.len()
                    ),
                ));
            }
        }
        self.check_partitions_per_topic(count as usize)?;
        self.check_room(additional)?;
        Ok(additional)
    }

    fn place_assigned(
        &self,
        topic: &TopicImage,
        assignments: &[Vec<i32>],
        additional: usize,
    ) -> Result<Placement, ControllerFault> {
        let factor = topic.partitions[0].replicas.len();
        let mut placement = Placement::with_capacity(additional);
        for replicas in assignments {
            self.check_assignment(replicas, factor).map_err(|message| {
                ControllerFault::new(ErrorCode::InvalidReplicaAssignment, message)
            })?;
            placement.push(SmallVec::from_slice(replicas));
        }
        Ok(placement)
    }
}

/// How often each name stands in a CreatePartitions request.
pub(in crate::controller) fn times_grown(topics: &[MorePartitions]) -> BTreeMap<&str, usize> {
    let mut times = BTreeMap::new();
    for topic in topics {
        *times.entry(topic.name.as_str()).or_default() += 1;
    }
    times
}
