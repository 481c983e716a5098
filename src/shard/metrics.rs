//! What a shard tells of itself: a scrape of `/metrics` asks every shard, and the control executor adds up.
//!
//! It is background work that gives way after each partition, so a scrape delays no client; and it is bounded: figures of
//! topics are summed here, of partitions and committed offsets only the first few by name are told.

use super::compaction::CompactionFigures;
use super::messages::PartitionKey;
use super::partitions::Named;
use super::space::SpaceFigures;
use super::Shard;
use crate::observe::{CountersSnapshot, LatenciesSnapshot, TrafficSnapshot};
use crate::partition::{Numbers, PartitionState};
use crate::protocol::Str;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How much a scrape wants to know.
#[derive(Debug, Clone, Copy)]
pub struct MetricsOrder {
    /// `metrics.partitions.max`.
    pub partitions_max: usize,
    /// `metrics.group.offsets.max`.
    pub offsets_max: usize,
}

/// The figures of one shard.
pub struct ShardMetrics {
    /// What it has counted.
    pub counters: CountersSnapshot,
    /// What it has measured.
    pub latencies: LatenciesSnapshot,
    /// Memory budgets: name, bytes taken, bytes in all.
    pub memory: Vec<(&'static str, u64, u64)>,
    /// Its partitions, by state.
    pub states: PartitionStates,
    /// Its share of each topic that it has partitions of.
    pub topics: Vec<TopicFigures>,
    /// Partitions that were opened.
    pub opened: u64,
    /// Its partitions, the first ones by topic and number.
    pub partitions: Vec<PartitionFigures>,
    /// What its compaction is at.
    pub compaction: CompactionFigures,
    /// For how long the sealed segment that waits longest has not been re-read.
    pub scrub_age: Duration,
    /// The groups that it coordinates.
    pub groups: GroupFigures,
    /// The data directories, in their order.
    pub spaces: Vec<SpaceFigures>,
}

/// How many partitions are in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartitionStates {
    /// They read and write.
    pub online: u64,
    /// They take no writes until they are rebuilt.
    pub fenced: u64,
    /// They could not be opened, or their device failed.
    pub offline: u64,
}

/// The figures of one topic's partitions, added up.
#[derive(Debug, Clone)]
pub struct TopicFigures {
    /// The topic's id.
    pub id: Uuid,
    /// The topic's name.
    pub name: Arc<str>,
    /// What went in and out.
    pub traffic: TrafficSnapshot,
    /// Bytes of the logs.
    pub log_bytes: u64,
}

/// The figures of one partition.
#[derive(Debug, Clone)]
pub struct PartitionFigures {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition.
    pub key: PartitionKey,
    /// Its offsets.
    pub numbers: Numbers,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Segments of its log.
    pub segments: u64,
}

/// The figures of groups.
#[derive(Debug, Clone, Default)]
pub struct GroupFigures {
    /// Groups by the name of their state.
    pub states: BTreeMap<&'static str, u64>,
    /// Committed offsets, the first ones by group, topic and partition.
    pub offsets: Vec<CommittedFigures>,
    /// How many there are in all.
    pub offsets_all: usize,
}

/// One committed offset.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommittedFigures {
    /// Who committed.
    pub group: Str,
    /// Of which topic.
    pub topic: Str,
    /// Of which partition.
    pub partition: i32,
    /// The offset that is read next.
    pub offset: i64,
}

impl Shard {
    /// Its figures.
    pub(super) async fn metrics_here(&self, order: MetricsOrder) -> ShardMetrics {
        let inner = &self.0;
        let (online, offline) = inner.partitions.named_and_offline();
        let mut states = PartitionStates {
            offline,
            ..PartitionStates::default()
        };
        let mut topics: HashMap<Uuid, TopicFigures> = HashMap::new();
        let (now_ms, mut scrub_age) = (self.rt().wall_clock_ms(), Duration::ZERO);
        for named in &online {
            scrub_age = scrub_age.max(named.partition.scrub_age(now_ms));
            match named.partition.state() {
                PartitionState::Online => states.online += 1,
                PartitionState::Fenced => states.fenced += 1,
                PartitionState::Offline => states.offline += 1,
            }
            let (log_bytes, _) = named.partition.size();
            let traffic = named.partition.traffic();
            match topics.entry(named.key.topic_id) {
                Entry::Occupied(mut topic) => {
                    topic.get_mut().traffic.merge(&traffic);
                    topic.get_mut().log_bytes += log_bytes;
                }
                Entry::Vacant(place) => {
                    place.insert(TopicFigures {
                        id: named.key.topic_id,
                        name: named.topic.clone(),
                        traffic,
                        log_bytes,
                    });
                }
            }
            self.rt().yield_if_needed().await;
        }
        let opened = online.len() as u64;
        let first = first_by(online, order.partitions_max, |a, b| {
            (&a.topic, a.key.index).cmp(&(&b.topic, b.key.index))
        });
        self.rt().yield_if_needed().await;
        let groups = self.group_figures(order.offsets_max).await;
        ShardMetrics {
            counters: inner.counters.snapshot(),
            latencies: inner.counters.latencies.snapshot(),
            memory: self.memory_figures(),
            states,
            opened,
            topics: topics.into_values().collect(),
            partitions: first.iter().map(figures_of).collect(),
            compaction: inner.compaction.figures(),
            scrub_age,
            groups,
            spaces: self.space_figures(),
        }
    }

    fn memory_figures(&self) -> Vec<(&'static str, u64, u64)> {
        let writes = &self.0.write_budget;
        let written = writes.total() - writes.available().min(writes.total());
        let mut figures = Vec::from(self.0.memory.figures());
        figures.push(("writes", written, writes.total()));
        figures.extend(self.0.storage.memory());
        figures
    }
}

fn figures_of(named: &Named) -> PartitionFigures {
    let (log_bytes, segments) = named.partition.size();
    PartitionFigures {
        topic: named.topic.clone(),
        key: named.key,
        numbers: named.partition.numbers(),
        log_bytes,
        segments: segments as u64,
    }
}

/// The first `max` in order, without sorting the rest.
pub(super) fn first_by<T>(
    mut all: Vec<T>,
    max: usize,
    order: impl Fn(&T, &T) -> std::cmp::Ordering,
) -> Vec<T> {
    if all.len() > max {
        all.select_nth_unstable_by(max, &order);
        all.truncate(max);
    }
    all.sort_unstable_by(order);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_those_of_a_full_sort() {
        let all = vec![5, 3, 9, 1, 1, 7, 0];
        for max in 0..9 {
            let mut sorted = all.clone();
            sorted.sort();
            sorted.truncate(max);
            assert_eq!(first_by(all.clone(), max, Ord::cmp), sorted);
        }
    }
}
