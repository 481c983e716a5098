//! The immutable snapshot of the cluster's metadata.
//!
//! The maps are `imbl`'s persistent B-trees: a clone is a few counter increments,
//! and a change copies one path of nodes, whatever the number of topics; all else is
//! shared with the image before. They iterate in key order and need no hash seed.

use super::names::collision_key;
use super::{Change, Delta};
use imbl::OrdMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// A snapshot of the cluster's metadata. Cheap to clone, `Send + Sync`.
#[derive(Clone, PartialEq)]
pub struct Image {
    cluster_id: Uuid,
    controller_id: i32,
    version: i64,
    topics: OrdMap<Arc<str>, Arc<TopicImage>>,
    topics_by_id: OrdMap<Uuid, Arc<TopicImage>>,
    /// Of topics whose names hold `.` or `_`: collision key to name.
    collision_keys: OrdMap<Arc<str>, Arc<str>>,
    brokers: OrdMap<i32, BrokerImage>,
    partition_count: usize,
    producer_ids_next: i64,
    /// What was changed while brokers run, by broker; `None`: what all have in common.
    broker_configs: OrdMap<Option<i32>, Arc<BTreeMap<String, String>>>,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicImage {
    /// Its id: another topic of the same name has another.
    pub id: Uuid,
    /// Its name.
    pub name: Arc<str>,
    /// Its partitions; the one at position `i` has index `i`.
    pub partitions: Vec<PartitionImage>,
    /// The overridden configs only.
    pub configs: BTreeMap<String, String>,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionImage {
    /// Its index within the topic, from 0.
    pub index: i32,
    /// The brokers that hold a replica, the preferred leader first.
    pub replicas: SmallVec<[i32; 3]>,
    /// The in-sync replicas.
    pub isr: SmallVec<[i32; 3]>,
    /// The leader, or -1.
    pub leader: i32,
    /// Rises with every change of leader.
    pub leader_epoch: i32,
    /// Rises with every change of this partition.
    pub partition_epoch: i32,
    /// The data directory (`directory.id`) of each replica, in the order of `replicas`
    /// (KIP-858). Nil, or missing: it is where it is found.
    pub directories: SmallVec<[Uuid; 3]>,
}

impl PartitionImage {
    /// The data directory that a broker's replica was given; nil if none was.
    pub fn directory(&self, broker: i32) -> Uuid {
        let at = self.replicas.iter().position(|replica| *replica == broker);
        let directory = at.and_then(|at| self.directories.get(at));
        directory.copied().unwrap_or_default()
    }
}

/// A registered broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerImage {
    /// `node.id`.
    pub id: i32,
    /// The offset of its last registration.
    pub epoch: i64,
}

impl Image {
    /// The image before the first record: version -1, nothing in it.
    pub fn empty(cluster_id: Uuid, controller_id: i32) -> Image {
        Image {
            cluster_id,
            controller_id,
            version: -1,
            topics: OrdMap::new(),
            topics_by_id: OrdMap::new(),
            collision_keys: OrdMap::new(),
            brokers: OrdMap::new(),
            partition_count: 0,
            producer_ids_next: 0,
            broker_configs: OrdMap::new(),
        }
    }

    /// The topic of this name.
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.get(name)
    }

    /// The topic of this id.
    pub fn topic_by_id(&self, id: &Uuid) -> Option<&Arc<TopicImage>> {
        self.topics_by_id.get(id)
    }

    /// All topics, in the order of their names.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.topics.values()
    }

    /// The topics from this name on, in the order of their names.
    pub fn topics_from<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Arc<TopicImage>> {
        self.topics
            .range::<_, str>((std::ops::Bound::Included(name), std::ops::Bound::Unbounded))
            .map(|(_, topic)| topic)
    }

    /// How many topics there are.
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// How many partitions all topics have together.
    pub fn partition_count(&self) -> usize {
        self.partition_count
    }

    /// The registered brokers, in the order of their ids.
    pub fn brokers(&self) -> impl Iterator<Item = &BrokerImage> {
        self.brokers.values()
    }

    /// The registered broker of this id.
    pub fn broker(&self, id: i32) -> Option<&BrokerImage> {
        self.brokers.get(&id)
    }

    /// The settings of a broker, or of all brokers (`None`), that were changed while they
    /// run; `None` if there are none.
    pub fn broker_configs(&self, broker: Option<i32>) -> Option<&BTreeMap<String, String>> {
        self.broker_configs.get(&broker).map(|configs| &**configs)
    }

    /// All of those.
    pub fn all_broker_configs(
        &self,
    ) -> impl Iterator<Item = (Option<i32>, &BTreeMap<String, String>)> {
        let all = self.broker_configs.iter();
        all.map(|(broker, configs)| (*broker, &**configs))
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> Uuid {
        self.cluster_id
    }

    /// The broker that runs the active controller.
    pub fn controller_id(&self) -> i32 {
        self.controller_id
    }

    /// The offset of the last delta applied; -1 if there was none.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The existing topic that a new one of this name would collide with because
    /// metric names do not tell `.` from `_`. Never the topic of this very name.
    pub fn colliding_topic(&self, name: &str) -> Option<&Arc<str>> {
        let other = self.collision_keys.get(collision_key(name)?.as_str())?;
        (&**other != name).then_some(other)
    }

    /// The first producer id that was never handed out. Kept right by the controller
    /// only: other copies do not hear of allocations.
    pub fn producer_ids_next(&self) -> i64 {
        self.producer_ids_next
    }

    /// True if `delta` is the next one for this image.
    pub fn is_followed_by(&self, delta: &Delta) -> bool {
        delta.previous == self.version
    }

    /// The image after `delta`. Deltas come from the controller alone and in order;
    /// anything else is a broken invariant and panics.
    pub fn apply(&self, delta: &Delta) -> Image {
        assert!(
            self.is_followed_by(delta) && delta.offset > delta.previous,
            "the delta {} -> {} does not follow version {}",
            delta.previous,
            delta.offset,
            self.version
        );
        let mut image = self.clone();
        for change in &delta.changes {
            image.apply_change(change);
        }
        image.version = delta.offset;
        image
    }

    /// Applies one change without moving the version.
    pub(crate) fn apply_change(&mut self, change: &Change) {
        match change {
            Change::TopicCreated(topic) => self.insert_topic(topic),
            Change::TopicDeleted { id, name } => self.remove_topic(id, name),
            Change::TopicConfigsChanged { id, configs } => self.set_configs(id, configs),
            Change::PartitionsAdded { id, partitions } => self.add_partitions(id, partitions),
            Change::BrokerConfigsChanged { broker, configs } => {
                match configs.is_empty() {
                    true => self.broker_configs.remove(broker),
                    false => self.broker_configs.insert(*broker, configs.clone().into()),
                };
            }
            Change::BrokerRegistered { id, epoch } => {
                self.brokers.insert(
                    *id,
                    BrokerImage {
                        id: *id,
                        epoch: *epoch,
                    },
                );
            }
            Change::ProducerIdsAllocated { next } => {
                assert!(
                    *next >= self.producer_ids_next,
                    "producer ids are never handed out twice"
                );
                self.producer_ids_next = *next;
            }
        }
    }

    /// The same image at another version.
    pub(crate) fn at_version(mut self, version: i64) -> Image {
        self.version = version;
        self
    }

    pub(crate) fn set_version(&mut self, version: i64) {
        self.version = version;
    }

    fn insert_topic(&mut self, topic: &Arc<TopicImage>) {
        let same_name = self.topics.insert(topic.name.clone(), topic.clone());
        assert!(same_name.is_none(), "the topic {} exists", topic.name);
        let same_id = self.topics_by_id.insert(topic.id, topic.clone());
        assert!(same_id.is_none(), "the topic id {} exists", topic.id);
        if let Some(key) = collision_key(&topic.name) {
            self.collision_keys.insert(key.into(), topic.name.clone());
        }
        self.partition_count += topic.partitions.len();
    }

    fn remove_topic(&mut self, id: &Uuid, name: &str) {
        let topic = self.topics_by_id.remove(id);
        let topic = topic.unwrap_or_else(|| panic!("no topic with the id {id} to delete"));
        assert!(*topic.name == *name, "topic {id} has another name");
        self.topics.remove(name);
        if let Some(key) = collision_key(name) {
            if self.collision_keys.get(key.as_str()) == Some(&topic.name) {
                self.collision_keys.remove(key.as_str());
            }
        }
        self.partition_count -= topic.partitions.len();
    }

    fn set_configs(&mut self, id: &Uuid, configs: &BTreeMap<String, String>) {
        self.change_topic(id, |topic| topic.configs = configs.clone());
    }

    fn add_partitions(&mut self, id: &Uuid, partitions: &[PartitionImage]) {
        self.change_topic(id, |topic| {
            for partition in partitions {
                assert!(
                    partition.index as usize == topic.partitions.len(),
                    "partition {} of topic {id} is not the next one",
                    partition.index
                );
                topic.partitions.push(partition.clone());
            }
        });
        self.partition_count += partitions.len();
    }

    fn change_topic(&mut self, id: &Uuid, change: impl FnOnce(&mut TopicImage)) {
        let topic = self.topics_by_id.get(id);
        let topic = topic.unwrap_or_else(|| panic!("no topic with the id {id} to change"));
        let mut topic = TopicImage::clone(topic);
        change(&mut topic);
        let changed = Arc::new(topic);
        self.topics.insert(changed.name.clone(), changed.clone());
        self.topics_by_id.insert(*id, changed);
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("cluster_id", &self.cluster_id)
            .field("controller_id", &self.controller_id)
            .field("version", &self.version)
            .field("topics", &self.topics.values().collect::<Vec<_>>())
            .field("brokers", &self.brokers.values().collect::<Vec<_>>())
            .field("producer_ids_next", &self.producer_ids_next)
            .field("broker_configs", &self.broker_configs)
            .finish()
    }
}
