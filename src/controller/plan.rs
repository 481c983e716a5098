//! What a request changes: pure functions of an image, the request and fresh ids.
//!
//! A [`Plan`] starts from an image, decides requests one after the other, each
//! against what those before it lead to, and collects the changes. Nothing is
//! written here, so the rules are tested without a log. They and their error codes
//! are those of Kafka's ReplicationControlManager.

mod configs;
mod partitions;

pub(super) use configs::{times_altered, ConfigRules};
pub(super) use partitions::times_grown;

use super::request::{ControllerFault, CreatedTopic, NewTopic, TopicSelector};
use crate::metadata::{
    validate_topic_name, Change, Image, PartitionImage, TopicId, TopicImage, METADATA_TOPIC_NAME,
};
use crate::protocol::ErrorCode;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// The limits and defaults that the rules need.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub num_partitions: i32,
    pub default_replication_factor: i16,
    pub max_partitions_per_topic: i32,
    pub max_partitions: i32,
}

/// Decisions in the making.
pub(super) struct Plan<'a> {
    image: Image,
    changes: Vec<Change>,
    limits: &'a Limits,
    rules: &'a dyn ConfigRules,
    /// The data directories that take new partitions.
    directories: Rc<[Uuid]>,
    /// How many partitions each of them has, once it matters.
    loads: Option<Vec<usize>>,
}

/// A topic that a selector names, or why there is none.
pub(super) type Found = Result<Arc<TopicImage>, ControllerFault>;

/// How the partitions of a new topic are placed: the brokers of each, in index order.
type Placement = Vec<SmallVec<[i32; 3]>>;

impl<'a> Plan<'a> {
    /// Decides on top of `image`.
    pub fn new(image: Image, limits: &'a Limits, rules: &'a dyn ConfigRules) -> Plan<'a> {
        Plan {
            image,
            changes: Vec::new(),
            limits,
            rules,
            directories: Rc::from([]),
            loads: None,
        }
    }

    /// Puts new partitions into these data directories.
    pub fn in_directories(self, directories: Rc<[Uuid]>) -> Plan<'a> {
        Plan {
            directories,
            ..self
        }
    }

    /// The changes, in order, and the image that they lead to (its version unmoved).
    pub fn into_parts(self) -> (Vec<Change>, Image) {
        (self.changes, self.image)
    }

    /// CreateTopics, or a part of one. `times_named` counts the names of the whole
    /// request ([`times_named`]), `fresh_id` gives random topic ids.
    pub fn create_topics(
        &mut self,
        topics: &[NewTopic],
        times_named: &BTreeMap<&str, usize>,
        mut fresh_id: impl FnMut() -> Uuid,
    ) -> Vec<Result<CreatedTopic, ControllerFault>> {
        let decide = |topic: &NewTopic| {
            if times_named[topic.name.as_str()] > 1 {
                return Err(ControllerFault::new(
                    ErrorCode::InvalidRequest,
                    "Duplicate topic name: name each topic once in a request.",
                ));
            }
            self.create_topic(topic, &mut fresh_id)
        };
        topics.iter().map(decide).collect()
    }

    fn create_topic(
        &mut self,
        new: &NewTopic,
        fresh_id: &mut impl FnMut() -> Uuid,
    ) -> Result<CreatedTopic, ControllerFault> {
        self.check_name(&new.name)?;
        let configs = self.resolve_configs(&new.configs)?;
        let placement = self.place(new)?;
        self.check_room(placement.len())?;
        let id = self.unused_id(fresh_id);
        let replication_factor = placement[0].len() as i16;
        let placed = placement.into_iter().enumerate();
        let partitions = placed.map(|(index, replicas)| self.new_partition(index, replicas));
        let topic = Arc::new(TopicImage {
            id,
            name: new.name.as_str().into(),
            partitions: partitions.collect(),
            configs,
        });
        let created = CreatedTopic {
            id,
            name: topic.name.clone(),
            num_partitions: topic.partitions.len() as i32,
            replication_factor,
            configs: topic.configs.clone(),
        };
        self.make(Change::TopicCreated(topic));
        Ok(created)
    }

    /// Looks up the topics of DeleteTopics, or of a part of one. All of a request are
    /// looked up before any is deleted, so that a topic named twice (also once by name
    /// and once by id) is refused at both places.
    pub fn find_topics(&self, topics: &[TopicSelector]) -> Vec<Found> {
        topics.iter().map(|topic| self.find(topic)).collect()
    }

    /// DeleteTopics, or a part of one. `times_found` counts the topics of the whole
    /// request ([`times_found`]).
    pub fn delete_topics(
        &mut self,
        found: &[Found],
        times_found: &BTreeMap<Uuid, usize>,
    ) -> Vec<Result<(Uuid, String), ControllerFault>> {
        let decide = |found: &Found| {
            let topic = found.as_ref().map_err(ControllerFault::clone)?;
            if times_found[&topic.id] > 1 {
                return Err(ControllerFault::new(
                    ErrorCode::InvalidRequest,
                    format!(
                        "Topic '{}' is given more than once; name each topic once, by its name or by its id.",
                        topic.name
                    ),
                ));
            }
            self.make(Change::TopicDeleted {
                id: topic.id,
                name: topic.name.clone(),
            });
            Ok((topic.id, topic.name.to_string()))
        };
        found.iter().map(decide).collect()
    }

    /// Takes the next `count` producer ids.
    pub fn allocate_producer_ids(&mut self, count: i32) -> Result<Range<i64>, ControllerFault> {
        if count <= 0 {
            return Err(ControllerFault::new(
                ErrorCode::InvalidRequest,
                format!("{count} producer ids were asked for; ask for at least 1."),
            ));
        }
        let first = self.image.producer_ids_next();
        let Some(next) = first.checked_add(count as i64) else {
            return Err(ControllerFault::new(
                ErrorCode::InvalidRequest,
                "All producer ids are taken.",
            ));
        };
        self.make(Change::ProducerIdsAllocated { next });
        Ok(first..next)
    }

    /// Registers a broker, if it is not. `epoch` is the offset that its record gets.
    pub fn register_broker(&mut self, id: i32, epoch: i64) {
        if self.image.broker(id).is_none() {
            self.make(Change::BrokerRegistered { id, epoch });
        }
    }

    /// A partition of a new or growing topic, in the data directory that has the fewest.
    fn new_partition(&mut self, index: usize, replicas: SmallVec<[i32; 3]>) -> PartitionImage {
        let directories = self.lightest().into_iter().collect();
        PartitionImage {
            index: index as i32,
            leader: replicas[0],
            isr: replicas.clone(),
            replicas,
            leader_epoch: 0,
            partition_epoch: 0,
            directories,
        }
    }

    /// Takes a place in the data directory that has the fewest partitions, the first of
    /// those.
    fn lightest(&mut self) -> Option<Uuid> {
        let (image, directories) = (&self.image, &self.directories);
        let loads = self.loads.get_or_insert_with(|| {
            let mut loads = vec![0; directories.len()];
            for partition in image.topics().flat_map(|topic| &topic.partitions) {
                for directory in &partition.directories {
                    if let Some(at) = directories.iter().position(|d| d == directory) {
                        loads[at] += 1;
                    }
                }
            }
            loads
        });
        let least = loads.iter().enumerate().min_by_key(|(_, load)| **load)?.0;
        loads[least] += 1;
        Some(directories[least])
    }

    fn make(&mut self, change: Change) {
        self.image.apply_change(&change);
        self.changes.push(change);
    }

    fn find(&self, topic: &TopicSelector) -> Found {
        match topic {
            TopicSelector::Name(name) => self.image.topic(name).cloned().ok_or_else(|| {
                ControllerFault::new(
                    ErrorCode::UnknownTopicOrPartition,
                    "This server does not host this topic-partition: no topic has this name.",
                )
            }),
            TopicSelector::Id(id) => self.image.topic_by_id(id).cloned().ok_or_else(|| {
                ControllerFault::new(
                    ErrorCode::UnknownTopicId,
                    "This server does not host this topic ID: the topic never existed or was deleted.",
                )
            }),
        }
    }

    fn check_name(&self, name: &str) -> Result<(), ControllerFault> {
        let invalid = |message| ControllerFault::new(ErrorCode::InvalidTopicException, message);
        validate_topic_name(name).map_err(invalid)?;
        if name == METADATA_TOPIC_NAME {
            return Err(ControllerFault::new(
                ErrorCode::InvalidRequest,
                format!("Creation of internal topic {METADATA_TOPIC_NAME} is prohibited."),
            ));
        }
        if self.image.topic(name).is_some() {
            return Err(ControllerFault::new(
                ErrorCode::TopicAlreadyExists,
                format!("Topic '{name}' already exists."),
            ));
        }
        if let Some(other) = self.image.colliding_topic(name) {
            return Err(invalid(format!(
                "Topic '{name}' collides with existing topic: {other}; names must differ in more than '.' and '_'."
            )));
        }
        Ok(())
    }

    fn resolve_configs(
        &self,
        configs: &[(String, Option<String>)],
    ) -> Result<BTreeMap<String, String>, ControllerFault> {
        let invalid = |message| ControllerFault::new(ErrorCode::InvalidConfig, message);
        let mut overrides = BTreeMap::new();
        for (name, value) in configs {
            let Some(value) = value else {
                return Err(invalid(format!(
                    "Null value not supported for topic configs: {name}; leave it out to use the default."
                )));
            };
            // The last one counts, as in Kafka.
            overrides.insert(name.clone(), value.clone());
        }
        self.rules.check(&overrides).map_err(invalid)?;
        Ok(overrides)
    }

    fn place(&self, new: &NewTopic) -> Result<Placement, ControllerFault> {
        if new.assignments.is_empty() {
            self.place_by_count(new)
        } else {
            self.place_by_assignment(new)
        }
    }

    fn place_by_count(&self, new: &NewTopic) -> Result<Placement, ControllerFault> {
        let (factor, factor_source) = match new.replication_factor {
            -1 => (
                self.limits.default_replication_factor,
                " (the broker's default.replication.factor)",
            ),
            factor if factor > 0 => (factor, ""),
            _ => {
                return Err(ControllerFault::new(
                    ErrorCode::InvalidReplicationFactor,
                    "Replication factor must be larger than 0, or -1 to use the default value.",
                ))
            }
        };
        let count = match new.num_partitions {
            -1 => self.limits.num_partitions,
            count if count > 0 => count,
            _ => {
                return Err(ControllerFault::new(
                    ErrorCode::InvalidPartitions,
                    "Number of partitions was set to an invalid non-positive value; use at least 1, or -1 for the default.",
                ))
            }
        };
        self.check_partitions_per_topic(count as usize)?;
        let brokers = self.image.brokers().count();
        if factor as usize > brokers {
            return Err(ControllerFault::new(
                ErrorCode::InvalidReplicationFactor,
                format!(
                    "The target replication factor of {factor}{factor_source} cannot be reached because only {brokers} broker(s) are registered.",
                ),
            ));
        }
        Ok(self.place_round(count as usize, factor as usize))
    }

    /// Leaders go round the brokers, and each topic starts at another one. There are at
    /// least `factor` brokers.
    fn place_round(&self, count: usize, factor: usize) -> Placement {
        let brokers: Vec<i32> = self.image.brokers().map(|broker| broker.id).collect();
        let start = self.image.partition_count();
        let replicas = |partition: usize| {
            let nth = |replica: usize| brokers[(start + partition + replica) % brokers.len()];
            (0..factor).map(nth).collect()
        };
        (0..count).map(replicas).collect()
    }

    fn place_by_assignment(&self, new: &NewTopic) -> Result<Placement, ControllerFault> {
        for (set, name) in [
            (new.replication_factor != -1, "replication factor"),
            (new.num_partitions != -1, "numPartitions"),
        ] {
            if set {
                return Err(ControllerFault::new(
                    ErrorCode::InvalidRequest,
                    format!("A manual partition assignment was specified, but {name} was not set to -1."),
                ));
            }
        }
        self.check_partitions_per_topic(new.assignments.len())?;
        let invalid =
            |message: String| ControllerFault::new(ErrorCode::InvalidReplicaAssignment, message);
        let mut by_index: BTreeMap<i32, &Vec<i32>> = BTreeMap::new();
        for (index, replicas) in &new.assignments {
            if by_index.insert(*index, replicas).is_some() {
                return Err(invalid(format!(
                    "Found multiple manual partition assignments for partition {index}."
                )));
            }
        }
        let factor = by_index
            .values()
            .next()
            .map_or(0, |replicas| replicas.len());
        let mut placement = Placement::with_capacity(by_index.len());
        for (expected, (index, replicas)) in by_index.into_iter().enumerate() {
            if index as i64 != expected as i64 {
                return Err(invalid(
                    "Partitions should be a consecutive 0-based integer sequence.".into(),
                ));
            }
            self.check_assignment(replicas, factor).map_err(invalid)?;
            placement.push(SmallVec::from_slice(replicas));
        }
        Ok(placement)
    }

    fn check_assignment(&self, replicas: &[i32], factor: usize) -> Result<(), String> {
        if replicas.is_empty() {
            return Err("The manual partition assignment includes an empty replica list.".into());
        }
        if replicas.len() != factor {
            return Err(format!(
                "The manual partition assignment includes a partition with {} replica(s), but this is not consistent with previous partitions, which have {factor} replica(s).",
                replicas.len()
            ));
        }
        // Brokers are few, so a list of distinct known ones is short: checked in this
        // order, the search below never runs over a client's long list.
        let mut seen: SmallVec<[i32; 8]> = SmallVec::new();
        for broker in replicas {
            if self.image.broker(*broker).is_none() {
                return Err(format!(
                    "The manual partition assignment includes broker {broker}, but no such broker is registered."
                ));
            }
            if seen.contains(broker) {
                return Err(format!(
                    "The manual partition assignment includes the broker {broker} more than once."
                ));
            }
            seen.push(*broker);
        }
        Ok(())
    }

    fn check_partitions_per_topic(&self, count: usize) -> Result<(), ControllerFault> {
        let max = self.limits.max_partitions_per_topic;
        if count as i64 > max as i64 {
            return Err(ControllerFault::new(
                ErrorCode::InvalidPartitions,
                format!("A topic may have at most {max} partitions here, not {count} (the broker's limit for one topic)."),
            ));
        }
        Ok(())
    }

    fn check_room(&self, count: usize) -> Result<(), ControllerFault> {
        let (there, max) = (self.image.partition_count(), self.limits.max_partitions);
        if (there + count) as i64 > max as i64 {
            return Err(ControllerFault::new(
                ErrorCode::InvalidPartitions,
                format!("{count} more partitions would exceed the broker's limit of {max} in all; {there} exist. Delete topics or raise the limit."),
            ));
        }
        Ok(())
    }

    fn unused_id(&self, fresh_id: &mut impl FnMut() -> Uuid) -> Uuid {
        // Random ids never meet in practice; the bound only ends a broken source.
        for _ in 0..128 {
            let id = fresh_id();
            if !TopicId(id).is_reserved() && self.image.topic_by_id(&id).is_none() {
                return id;
            }
        }
        panic!("the source of random numbers repeats itself");
    }
}

/// Kafka's limit of one request (`MAX_PARTITIONS_PER_BATCH`), which is refused as a whole.
pub(super) fn check_partitions_per_request(
    counts: impl Iterator<Item = i64>,
    what: &str,
) -> Result<(), ControllerFault> {
    let total = counts.fold(0i64, |sum, count| sum.saturating_add(count.max(0)));
    if total <= PARTITIONS_PER_REQUEST_MAX {
        return Ok(());
    }
    Err(ControllerFault::new(
        ErrorCode::PolicyViolation,
        format!(
            "Excessively large number of {what} per request: {total}, of at most {PARTITIONS_PER_REQUEST_MAX}."
        ),
    ))
}

const PARTITIONS_PER_REQUEST_MAX: i64 = 10_000;

/// How often each name stands in a CreateTopics request.
pub(super) fn times_named(topics: &[NewTopic]) -> BTreeMap<&str, usize> {
    let mut times = BTreeMap::new();
    for topic in topics {
        *times.entry(topic.name.as_str()).or_default() += 1;
    }
    times
}

/// How often each topic stands in a DeleteTopics request.
pub(super) fn times_found(found: &[Found]) -> BTreeMap<Uuid, usize> {
    let mut times = BTreeMap::new();
    for topic in found.iter().flatten() {
        *times.entry(topic.id).or_default() += 1;
    }
    times
}
