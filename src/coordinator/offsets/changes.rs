//! Changes: commits and deletions, from the request to the records, and what becomes of
//! them.

use super::{CommittedOffset, GroupOffsets};
use crate::coordinator::records::{OffsetCommitValue, OffsetsRecord, NO_TIMESTAMP};
use crate::protocol::messages::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic, OffsetDeleteRequestTopic, OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
};
use crate::protocol::{ErrorCode, Str};
use std::collections::BTreeSet;
use std::rc::Rc;

/// What a commit is held against.
#[derive(Debug, Clone, Copy)]
pub struct CommitTerms {
    /// The wall clock, ms since the Unix epoch.
    pub now_ms: i64,
    /// `retention_time_ms` of the request, which versions 2 to 4 have; -1: the broker's.
    pub retention_time_ms: i64,
    /// `offset.metadata.max.bytes`.
    pub metadata_bytes_max: usize,
}

/// Records to append, and the change that they stand for.
#[derive(Debug)]
pub struct Prepared {
    /// To be given to [`GroupOffsets::done`] or [`GroupOffsets::failed`].
    pub change: PendingChange,
    /// In this order, one batch.
    pub records: Vec<OffsetsRecord>,
}

/// A change whose records are not durable yet.
#[derive(Debug)]
#[must_use = "done or failed: until then the offsets are in flight"]
pub struct PendingChange {
    order: i64,
    committed: Vec<(Rc<str>, i32, Box<CommittedOffset>)>,
    removed: Vec<(Rc<str>, i32)>,
}

impl GroupOffsets {
    /// OffsetCommit: the answer that holds if the append succeeds, and what to append;
    /// `None`: nothing, every partition is refused (OFFSET_METADATA_TOO_LARGE,
    /// INVALID_GROUP_ID for an id that no record can hold).
    pub fn commit(
        &mut self,
        group: &Str,
        topics: &[OffsetCommitRequestTopic],
        terms: CommitTerms,
    ) -> (Vec<OffsetCommitResponseTopic>, Option<Prepared>) {
        let mut change = self.next_change();
        let mut records = Vec::new();
        let mut answers = Vec::with_capacity(topics.len());
        for topic in topics {
            let name = self.name_of(&topic.name);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let index = partition.partition_index;
                let prepared = prepare(group, &topic.name, partition, terms, change.order);
                let code = match prepared {
                    Ok((record, committed)) => {
                        records.push(record);
                        change.committed.push((name.clone(), index, committed));
                        ErrorCode::None
                    }
                    Err(code) => code,
                };
                partitions.push(OffsetCommitResponsePartition {
                    partition_index: index,
                    error_code: code.code(),
                });
            }
            answers.push(OffsetCommitResponseTopic {
                name: topic.name.clone(),
                partitions,
            });
        }
        (answers, self.begin(change, records))
    }

    /// OffsetDelete: as [`GroupOffsets::commit`]. Topics that the group is `subscribed` to
    /// get GROUP_SUBSCRIBED_TO_TOPIC; a partition without an offset is no error.
    pub fn delete(
        &mut self,
        group: &Str,
        topics: &[OffsetDeleteRequestTopic],
        subscribed: &dyn Fn(&str) -> bool,
    ) -> (Vec<OffsetDeleteResponseTopic>, Option<Prepared>) {
        let mut removed = Vec::new();
        let mut answers = Vec::with_capacity(topics.len());
        for topic in topics {
            let code = match subscribed(&topic.name) {
                true => ErrorCode::GroupSubscribedToTopic,
                false => ErrorCode::None,
            };
            let name = self.name_of(&topic.name);
            let partitions = topic.partitions.iter().map(|partition| {
                let index = partition.partition_index;
                if code == ErrorCode::None && self.is_there(&topic.name, index) {
                    removed.push((name.clone(), index));
                }
                OffsetDeleteResponsePartition {
                    partition_index: index,
                    error_code: code.code(),
                }
            });
            answers.push(OffsetDeleteResponseTopic {
                name: topic.name.clone(),
                partitions: partitions.collect(),
            });
        }
        (answers, self.remove_all(group, removed))
    }

    /// Forgets offsets, because the group is deleted, and says whether these are all: as
    /// many as one batch should hold.
    pub fn delete_some(&mut self, group: &Str) -> (Option<Prepared>, bool) {
        let transactions = self.transactions.values();
        let pending = transactions.flat_map(|offsets| offsets.topics());
        let all = self.committed.topics().chain(self.in_flight.topics());
        let topics: BTreeSet<String> = all.chain(pending).map(str::to_owned).collect();
        let mut removed = self.all_of(topics.iter().map(String::as_str));
        let some = one_batch(group, &removed);
        let is_all = some == removed.len();
        removed.truncate(some);
        (self.remove_all(group, removed), is_all)
    }

    /// Forgets the offsets of topics that are gone, some at a time.
    pub fn topics_deleted(&mut self, group: &Str, names: &[&str]) -> Vec<Prepared> {
        let mut removed = self.all_of(names.iter().copied());
        let mut prepared = Vec::new();
        while !removed.is_empty() {
            let rest = removed.split_off(one_batch(group, &removed));
            prepared.extend(self.remove_all(group, std::mem::replace(&mut removed, rest)));
        }
        prepared
    }

    /// The records are durable: the change holds.
    pub fn done(&mut self, change: PendingChange) {
        self.land(&change);
        for (topic, partition, committed) in change.committed {
            self.put(&topic, partition, committed);
        }
        for (topic, partition) in change.removed {
            self.remove(&topic, partition, change.order);
        }
    }

    /// The records were not appended, or it is not known whether they were: nothing
    /// changes (until a replay finds them).
    pub fn failed(&mut self, change: PendingChange) {
        self.land(&change);
    }

    fn next_change(&mut self) -> PendingChange {
        let order = self.next_order;
        self.next_order += 1;
        PendingChange {
            order,
            committed: Vec::new(),
            removed: Vec::new(),
        }
    }

    fn begin(&mut self, change: PendingChange, records: Vec<OffsetsRecord>) -> Option<Prepared> {
        if records.is_empty() {
            return None;
        }
        for (topic, partition, _) in &change.committed {
            match self.in_flight.get_mut(topic, *partition) {
                Some(commits) => *commits += 1,
                None => self.in_flight.insert(topic, *partition, 1),
            }
        }
        Some(Prepared { change, records })
    }

    fn land(&mut self, change: &PendingChange) {
        for (topic, partition, _) in &change.committed {
            match self.in_flight.get_mut(topic, *partition) {
                Some(commits) if *commits > 1 => *commits -= 1,
                _ => self.in_flight.remove(topic, *partition),
            }
        }
    }

    /// What there is of these topics, each once.
    fn all_of<'a>(&self, topics: impl Iterator<Item = &'a str>) -> Vec<(Rc<str>, i32)> {
        let mut all = Vec::new();
        for topic in topics {
            let transactions = self.transactions.values();
            let pending = transactions.flat_map(|offsets| offsets.partitions(topic));
            let there = self.committed.partitions(topic);
            let partitions = there.chain(self.in_flight.partitions(topic)).chain(pending);
            let partitions: BTreeSet<i32> = partitions.collect();
            if !partitions.is_empty() {
                let name = self.name_of(topic);
                all.extend(partitions.into_iter().map(|it| (name.clone(), it)));
            }
        }
        all
    }

    pub(super) fn remove_all(
        &mut self,
        group: &Str,
        removed: Vec<(Rc<str>, i32)>,
    ) -> Option<Prepared> {
        let mut change = self.next_change();
        let tombstone = |(topic, partition): &(Rc<str>, i32)| {
            let topic = Str::from(topic.to_string());
            // What is kept came from such a record, so one can be written.
            OffsetsRecord::offset(group, &topic, *partition, None).ok()
        };
        let records = removed.iter().filter_map(tombstone).collect();
        change.removed = removed;
        self.begin(change, records)
    }

    /// Whether a tombstone is needed.
    fn is_there(&self, topic: &str, partition: i32) -> bool {
        self.get(topic, partition).is_some()
            || self.is_in_flight(topic, partition)
            || self.is_unstable(topic, partition)
    }

    pub(super) fn is_in_flight(&self, topic: &str, partition: i32) -> bool {
        self.in_flight.get(topic, partition).is_some()
    }
}

/// How many of these tombstones one batch should hold: at least one, if there is one.
fn one_batch(group: &Str, removed: &[(Rc<str>, i32)]) -> usize {
    let mut bytes = 0;
    let fits = removed.iter().take_while(|(topic, _)| {
        let fits = bytes < BATCH_BYTES_MAX;
        bytes += tombstone_bytes(group, topic);
        fits
    });
    fits.count()
}

/// What a tombstone takes in a batch, about.
pub(super) fn tombstone_bytes(group: &str, topic: &str) -> usize {
    group.len() + topic.len() + TOMBSTONE_BYTES
}

fn prepare(
    group: &Str,
    topic: &Str,
    partition: &OffsetCommitRequestPartition,
    terms: CommitTerms,
    order: i64,
) -> Result<(OffsetsRecord, Box<CommittedOffset>), ErrorCode> {
    let metadata = partition.committed_metadata.clone().unwrap_or_default();
    if is_too_long(&metadata, terms.metadata_bytes_max) {
        return Err(ErrorCode::OffsetMetadataTooLarge);
    }
    if group.len() > RECORD_STRING_BYTES_MAX {
        return Err(ErrorCode::InvalidGroupId);
    }
    let value = OffsetCommitValue {
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata,
        commit_timestamp: terms.now_ms,
        expire_timestamp: match terms.retention_time_ms {
            NO_TIMESTAMP => NO_TIMESTAMP,
            retention_ms => terms.now_ms.saturating_add(retention_ms),
        },
    };
    let index = partition.partition_index;
    let record = OffsetsRecord::offset(group, topic, index, Some(&value));
    let record = record.map_err(|_| ErrorCode::UnknownServerError)?;
    let mut committed = CommittedOffset::of_record(&value, order);
    if value.expire_timestamp != NO_TIMESTAMP {
        // The record's version has no place for it, and a replay would not find it.
        committed.leader_epoch = -1;
    }
    Ok((record, Box::new(committed)))
}

/// Kafka counts `offset.metadata.max.bytes` in UTF-16 units.
fn is_too_long(metadata: &str, units_max: usize) -> bool {
    metadata.len() > RECORD_STRING_BYTES_MAX
        || metadata.len() > units_max && metadata.encode_utf16().count() > units_max
}

/// The longest string that the records' format can hold.
const RECORD_STRING_BYTES_MAX: usize = i16::MAX as usize;
/// How many bytes of tombstones one batch should hold, about: fewer than any batch may have.
pub(super) const BATCH_BYTES_MAX: usize = 512 * 1024;
/// What a tombstone takes besides its names, about.
const TOMBSTONE_BYTES: usize = 32;
