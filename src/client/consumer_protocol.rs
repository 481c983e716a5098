//! What consumers tell each other through their group: subscriptions and assignments (`ConsumerProtocolSubscription`,
//! `ConsumerProtocolAssignment`), and the range assignment.
//!
//! The coordinator passes these bytes on without reading them. They begin with a version; a newer one than is known is
//! read as the newest known, as Kafka's consumers do.

use super::PartitionKey;
use crate::protocol::codec::{messages, Versioned};
use crate::protocol::{DecodeError, EncodeError, Reader, Str, Writer};
use bytes::{Buf, Bytes};
use std::collections::{BTreeMap, BTreeSet};

messages! {
    /// What a member wants, and what it has.
    record ConsumerSubscription versions 0..=3 flexible 32767 {
        topics: Vec<Str>,
        user_data: Option<Bytes>,
        owned_partitions: Vec<ConsumerTopicPartitions> => { versions: 1.., ignorable },
        generation_id: i32 => { versions: 2.., default: -1, ignorable },
        rack_id: Option<Str> => { versions: 3.., ignorable },
    }

    /// What a member gets.
    record ConsumerAssignment versions 0..=3 flexible 32767 {
        assigned_partitions: Vec<ConsumerTopicPartitions>,
        user_data: Option<Bytes>,
    }

    /// Partitions of one topic.
    struct ConsumerTopicPartitions {
        topic: Str,
        partitions: Vec<i32>,
    }
}

/// The protocol type of consumer groups.
pub const CONSUMER_PROTOCOL: &str = "consumer";

impl ConsumerSubscription {
    /// Reads the metadata of a member.
    pub fn of_bytes(bytes: Bytes) -> Result<ConsumerSubscription, DecodeError> {
        versioned(bytes)
    }

    /// The metadata of a member.
    pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        bytes_of(self)
    }
}

impl ConsumerAssignment {
    /// Reads the assignment of a member; no bytes are no partitions.
    pub fn of_bytes(bytes: Bytes) -> Result<ConsumerAssignment, DecodeError> {
        if bytes.is_empty() {
            return Ok(ConsumerAssignment::default());
        }
        versioned(bytes)
    }

    /// The assignment of these partitions.
    pub fn of(partitions: &[PartitionKey]) -> ConsumerAssignment {
        let mut topics: BTreeMap<&Str, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in partitions {
            topics.entry(topic).or_default().push(*partition);
        }
        let topic = |(topic, partitions): (&Str, Vec<i32>)| ConsumerTopicPartitions {
            topic: topic.clone(),
            partitions,
        };
        ConsumerAssignment {
            assigned_partitions: topics.into_iter().map(topic).collect(),
            user_data: None,
        }
    }

    /// The bytes for the coordinator.
    pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        bytes_of(self)
    }

    /// One by one.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionKey> + '_ {
        let of_topic = |topic: &ConsumerTopicPartitions| {
            let name = topic.topic.clone();
            topic
                .partitions
                .clone()
                .into_iter()
                .map(move |partition| (name.clone(), partition))
        };
        self.assigned_partitions.iter().flat_map(of_topic)
    }
}

fn versioned<T: Versioned>(bytes: Bytes) -> Result<T, DecodeError> {
    let mut bytes = bytes;
    // Too short for a version: too short for the rest as well, which then says so.
    let version = if bytes.len() >= 2 { bytes.get_i16() } else { 0 };
    let version = version.clamp(*T::VERSIONS.start(), *T::VERSIONS.end());
    T::decode_prefix(&mut Reader::new(bytes), version)
}

fn bytes_of<T: Versioned>(value: &T) -> Result<Bytes, EncodeError> {
    // The version that every consumer knows.
    let version = *T::VERSIONS.start();
    let mut writer = Writer::new();
    value.encode_versioned(&mut writer, version)?;
    let mut bytes = version.to_be_bytes().to_vec();
    writer
        .finish()
        .iter()
        .for_each(|chunk| bytes.extend_from_slice(chunk));
    Ok(bytes.into())
}

/// Kafka's range assignor: of each topic the members that want it, in the order of their ids, get ranges of its
/// partitions, the first ones one more.
pub fn assign_ranges(
    subscriptions: &BTreeMap<Str, BTreeSet<Str>>,
    partitions: &BTreeMap<Str, i32>,
) -> BTreeMap<Str, Vec<PartitionKey>> {
    let mut assigned: BTreeMap<Str, Vec<PartitionKey>> = subscriptions
        .keys()
        .map(|member| (member.clone(), Vec::new()))
        .collect();
    for (topic, count) in partitions {
        let wants = |(_, topics): &(&Str, &BTreeSet<Str>)| topics.contains(topic);
        let members: Vec<&Str> = subscriptions
            .iter()
            .filter(wants)
            .map(|(member, _)| member)
            .collect();
        let mut next = 0;
        for (place, member) in members.iter().enumerate() {
            let (each, more) = (
                *count as usize / members.len(),
                *count as usize % members.len(),
            );
            let end = next + (each + usize::from(place < more)) as i32;
            let range = (next..end).map(|partition| (topic.clone(), partition));
            if let Some(of_member) = assigned.get_mut(*member) {
                of_member.extend(range);
            }
            next = end;
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Str {
        Str::from(text)
    }

    #[test]
    fn what_is_written_can_be_read() {
        let subscription = ConsumerSubscription {
            topics: vec![text("a"), text("b")],
            ..Default::default()
        };
        let bytes = subscription.to_bytes().unwrap();
        assert_eq!(ConsumerSubscription::of_bytes(bytes).unwrap(), subscription);
        let partitions = [(text("a"), 0), (text("a"), 2), (text("b"), 1)];
        let bytes = ConsumerAssignment::of(&partitions).to_bytes().unwrap();
        let read = ConsumerAssignment::of_bytes(bytes).unwrap();
        assert_eq!(read.partitions().collect::<Vec<_>>(), partitions);
    }

    #[test]
    fn a_newer_version_is_read_as_the_newest_known_and_damage_is_an_error() {
        // Version 9: the fields of version 3, and a byte that is not known.
        let mut bytes = vec![0, 9, 0, 0, 0, 1, 0, 1, b'a'];
        bytes.extend([255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 7, 255, 255, 42]);
        let read = ConsumerSubscription::of_bytes(bytes.into()).unwrap();
        assert_eq!((read.topics, read.generation_id), (vec![text("a")], 7));
        for bad in [&[][..], &[0], &[0, 0, 0], &[0, 0, 127, 255, 255, 255]] {
            assert!(
                ConsumerSubscription::of_bytes(Bytes::from_static(bad)).is_err(),
                "{bad:?}"
            );
        }
        assert_eq!(
            ConsumerAssignment::of_bytes(Bytes::new())
                .unwrap()
                .partitions()
                .count(),
            0
        );
    }

    #[test]
    fn ranges_cover_every_partition_once_and_only_members_that_want_the_topic() {
        let wants = |topics: &[&'static str]| topics.iter().map(|t| text(t)).collect();
        let subscriptions = BTreeMap::from([
            (text("m1"), wants(&["a", "b"])),
            (text("m2"), wants(&["a"])),
            (text("m3"), wants(&["a"])),
        ]);
        let partitions = BTreeMap::from([(text("a"), 7), (text("b"), 2), (text("unwanted"), 1)]);
        let assigned = assign_ranges(&subscriptions, &partitions);
        let of = |member| {
            let keys: &Vec<PartitionKey> = &assigned[&text(member)];
            keys.iter()
                .map(|(topic, partition)| format!("{topic}{partition}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(of("m1"), "a0 a1 a2 b0 b1");
        assert_eq!(of("m2"), "a3 a4");
        assert_eq!(of("m3"), "a5 a6");
    }
}
