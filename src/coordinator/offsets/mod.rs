//! [`GroupOffsets`]: how far one group has read, by topic and partition.
//!
//! A change is prepared, which gives the records to append, and holds once they are
//! durable ([`GroupOffsets::done`]) or never ([`GroupOffsets::failed`]). Until then a
//! fetch shows what was before. Changes have an order, that of their records in the log,
//! and an earlier one never replaces a later: so the state is what a replay of the log
//! gives. Changes end in their order, but for those that fail.
//!
//! What a producer commits in a transaction waits beside until the transaction ends, as
//! Kafka has it; it gets here by a replay only, since transactions are not served.
//!
//! Memory: names and metadata are copied, so that no request's frame is kept. A committed
//! offset takes some 90 bytes and its metadata, a topic some 200 and its name.
//!
//! What it is not: it knows no member and no generation, and no clock.

mod by_topic;
mod changes;
mod expiry;
#[cfg(test)]
mod tests;

pub use changes::{CommitTerms, PendingChange, Prepared};
pub use expiry::{Expired, RetentionFrom};

use super::records::{OffsetCommitValue, NO_TIMESTAMP};
use crate::protocol::messages::{
    OffsetFetchRequestTopics, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use crate::protocol::{ErrorCode, Str};
use by_topic::ByTopic;
use std::collections::BTreeMap;

/// An offset that a group has committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch of the record before it, -1 if the client did not say.
    pub leader_epoch: i32,
    /// The client's own words.
    pub metadata: Box<str>,
    /// When it was committed, ms since the Unix epoch.
    pub commit_timestamp_ms: i64,
    /// When it expires, if the client said that (OffsetCommit before version 5).
    pub expire_timestamp_ms: Option<i64>,
    /// Its place in the order of changes.
    order: i64,
}

/// The committed offsets of one group.
#[derive(Debug, Default)]
pub struct GroupOffsets {
    committed: ByTopic<Box<CommittedOffset>>,
    /// Commits whose records are not durable yet: how many of each partition.
    in_flight: ByTopic<u32>,
    /// What open transactions have committed, by producer id.
    transactions: BTreeMap<i64, ByTopic<Box<CommittedOffset>>>,
    next_order: i64,
}

impl GroupOffsets {
    /// No offset is kept, none is being committed, and no transaction is open.
    pub fn is_empty(&self) -> bool {
        self.committed.is_empty() && self.in_flight.is_empty() && self.transactions.is_empty()
    }

    /// How many offsets are committed.
    pub fn len(&self) -> usize {
        self.committed.iter().count()
    }

    /// Topic, partition and offset of each that is committed, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i32, &CommittedOffset)> {
        let all = self.committed.iter();
        all.map(|(topic, partition, committed)| (topic, partition, &**committed))
    }

    /// The committed offset of a partition.
    pub fn get(&self, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.committed.get(topic, partition).map(|found| &**found)
    }

    /// Whether an open transaction has committed an offset of the partition.
    pub fn is_unstable(&self, topic: &str, partition: i32) -> bool {
        let mut open = self.transactions.values();
        open.any(|offsets| offsets.get(topic, partition).is_some())
    }

    /// The answer to OffsetFetch: the partitions asked for, or all (`None`). One without an
    /// offset has -1 and no error; one that `require_stable` must wait for has
    /// UNSTABLE_OFFSET_COMMIT.
    pub fn fetch(
        &self,
        topics: Option<&[OffsetFetchRequestTopics]>,
        require_stable: bool,
    ) -> Vec<OffsetFetchResponseTopics> {
        let answer = |topic: &str, partition: i32| {
            if require_stable && self.is_unstable(topic, partition) {
                let mut unstable = fetched(partition, None);
                unstable.error_code = ErrorCode::UnstableOffsetCommit.code();
                return unstable;
            }
            fetched(partition, self.get(topic, partition))
        };
        match topics {
            Some(topics) => {
                let topics = topics.iter();
                let of_topic = |topic: &OffsetFetchRequestTopics| OffsetFetchResponseTopics {
                    name: topic.name.clone(),
                    partitions: (topic.partition_indexes.iter())
                        .map(|partition| answer(&topic.name, *partition))
                        .collect(),
                };
                topics.map(of_topic).collect()
            }
            None => {
                let topics = self.committed.topics();
                let of_topic = |topic: &str| OffsetFetchResponseTopics {
                    name: Str::from(topic.to_owned()),
                    partitions: (self.committed.partitions(topic))
                        .map(|partition| answer(topic, partition))
                        .collect(),
                };
                topics.map(of_topic).collect()
            }
        }
    }

    /// Takes a record of the log back in. `offset` is the record's, `transaction` the
    /// producer id of a batch that belongs to a transaction.
    pub fn replay(
        &mut self,
        offset: i64,
        transaction: Option<i64>,
        topic: &str,
        partition: i32,
        value: Option<&OffsetCommitValue>,
    ) {
        self.next_order = self.next_order.max(offset.saturating_add(1));
        let Some(value) = value else {
            self.remove(topic, partition, offset);
            return;
        };
        let committed = Box::new(CommittedOffset::of_record(value, offset));
        let name = self.name_of(topic);
        match transaction {
            None => self.committed.insert(&name, partition, committed),
            Some(producer_id) => {
                let pending = self.transactions.entry(producer_id).or_default();
                pending.insert(&name, partition, committed);
            }
        }
    }

    /// Ends the transaction of a producer: what it has committed holds, unless something
    /// later does, or is forgotten.
    pub fn end_transaction(&mut self, producer_id: i64, is_committed: bool) {
        let Some(pending) = self.transactions.remove(&producer_id) else {
            return;
        };
        if is_committed {
            for (topic, partition, committed) in pending.into_entries() {
                self.put(&topic, partition, committed);
            }
        }
    }

    /// Puts an offset in force unless a later one is.
    fn put(&mut self, topic: &std::rc::Rc<str>, partition: i32, committed: Box<CommittedOffset>) {
        let before = self.committed.get(topic, partition);
        if before.is_none_or(|before| before.order <= committed.order) {
            self.committed.insert(topic, partition, committed);
        }
    }

    /// Forgets an offset, also in open transactions, unless it is later than `order`.
    fn remove(&mut self, topic: &str, partition: i32, order: i64) {
        let open = self.transactions.values_mut();
        for offsets in open.chain([&mut self.committed]) {
            let found = offsets.get(topic, partition);
            if found.is_some_and(|committed| committed.order <= order) {
                offsets.remove(topic, partition);
            }
        }
    }

    /// The name as it is kept already, or a copy of it.
    fn name_of(&self, topic: &str) -> std::rc::Rc<str> {
        let known = self.committed.name(topic);
        let known = known.or_else(|| self.in_flight.name(topic));
        known.cloned().unwrap_or_else(|| topic.into())
    }
}

impl CommittedOffset {
    fn of_record(value: &OffsetCommitValue, order: i64) -> CommittedOffset {
        CommittedOffset {
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: value.metadata.as_str().into(),
            commit_timestamp_ms: value.commit_timestamp,
            expire_timestamp_ms: (value.expire_timestamp != NO_TIMESTAMP)
                .then_some(value.expire_timestamp),
            order,
        }
    }
}

fn fetched(partition: i32, committed: Option<&CommittedOffset>) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index: partition,
        committed_offset: committed.map_or(-1, |committed| committed.offset),
        committed_leader_epoch: committed.map_or(-1, |committed| committed.leader_epoch),
        metadata: Some(match committed {
            Some(committed) => Str::from(String::from(&*committed.metadata)),
            None => Str::default(),
        }),
        error_code: ErrorCode::None.code(),
    }
}
