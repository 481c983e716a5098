//! A map by topic and partition that needs no owned name to look something up, and no
//! memory for topics that have nothing left.

use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ByTopic<V>(BTreeMap<Rc<str>, BTreeMap<i32, V>>);

impl<V> Default for ByTopic<V> {
    fn default() -> ByTopic<V> {
        ByTopic(BTreeMap::new())
    }
}

impl<V> ByTopic<V> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, topic: &str, partition: i32) -> Option<&V> {
        self.0.get(topic)?.get(&partition)
    }

    pub fn get_mut(&mut self, topic: &str, partition: i32) -> Option<&mut V> {
        self.0.get_mut(topic)?.get_mut(&partition)
    }

    pub fn insert(&mut self, topic: &Rc<str>, partition: i32, value: V) {
        let partitions = self.0.entry(topic.clone()).or_default();
        partitions.insert(partition, value);
    }

    pub fn remove(&mut self, topic: &str, partition: i32) {
        if let Some(partitions) = self.0.get_mut(topic) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                self.0.remove(topic);
            }
        }
    }

    /// The topic's name as it is kept here.
    pub fn name(&self, topic: &str) -> Option<&Rc<str>> {
        self.0.get_key_value(topic).map(|(name, _)| name)
    }

    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|topic| &**topic)
    }

    pub fn partitions(&self, topic: &str) -> impl Iterator<Item = i32> + '_ {
        let partitions = self.0.get(topic).into_iter();
        partitions.flat_map(|partitions| partitions.keys().copied())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, i32, &V)> {
        self.0.iter().flat_map(|(topic, partitions)| {
            let partitions = partitions.iter();
            partitions.map(|(partition, value)| (&**topic, *partition, value))
        })
    }

    pub fn into_entries(self) -> impl Iterator<Item = (Rc<str>, i32, V)> {
        self.0.into_iter().flat_map(|(topic, partitions)| {
            let partitions = partitions.into_iter();
            partitions.map(move |(partition, value)| (topic.clone(), partition, value))
        })
    }
}
