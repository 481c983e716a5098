//! What was sent, what was acknowledged and what a consumer saw, kept outside the broker; and the comparison of that with
//! what is left. Pure.
//!
//! A record is known by a hash of its content. Nothing is sent twice, so whatever is there twice is a duplicate.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Of key and value.
    pub hash: u64,
    /// Of the key.
    pub key: u64,
}

impl Entry {
    /// The entry of a record. It is the same in every version, as ledgers are kept in files.
    pub fn of(key: Option<&[u8]>, value: Option<&[u8]>) -> Entry {
        let hash = |parts: &[Option<&[u8]>]| {
            let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
            for part in parts {
                // None is another length than an empty one's.
                let length = part.map_or(u64::MAX, |part| part.len() as u64);
                digest.update(&length.to_be_bytes());
                digest.update(part.unwrap_or_default());
            }
            digest.finalize()
        };
        Entry {
            hash: hash(&[key, value]),
            key: hash(&[key]),
        }
    }
}

/// What the broker may do with records that it has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Nothing.
    Keep,
    /// Retention may delete from the start.
    Delete,
    /// Compaction may remove what has a later record of the same key.
    Compact,
}

impl Policy {
    /// A stable name for files.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Keep => "keep",
            Policy::Delete => "delete",
            Policy::Compact => "compact",
        }
    }

    /// The policy of a name.
    pub fn parse(name: &str) -> Option<Policy> {
        let all = [Policy::Keep, Policy::Delete, Policy::Compact];
        all.into_iter().find(|policy| policy.name() == name)
    }
}

/// The ledger of one partition.
#[derive(Debug, Clone)]
pub struct PartitionLedger {
    policy: Policy,
    /// Whether an acknowledgement promised the flush.
    promised: bool,
    sent: HashSet<u64>,
    acknowledged: BTreeMap<i64, Entry>,
    seen: BTreeMap<i64, Entry>,
}

/// What was read back of one partition.
#[derive(Debug, Clone, Default)]
pub struct ReadBack {
    /// The log start offset, asked for after the reading.
    pub log_start: i64,
    /// The end of the log.
    pub end: i64,
    /// The records in the order in which they came.
    pub records: Vec<(i64, Entry)>,
}

/// What is wrong with a record or an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// An acknowledged record is gone.
    Missing,
    /// An acknowledged record is at another offset.
    Moved {
        /// Where it is.
        to: i64,
    },
    /// Another record is at the offset of an acknowledged one, which is nowhere.
    Replaced,
    /// A record that a consumer has seen is gone or another.
    SeenGone,
    /// A record is there twice.
    Duplicate {
        /// Where it is, too.
        first: i64,
    },
    /// No record has this offset, and later ones are there.
    Hole,
    /// An offset is not above the one before it.
    Disorder,
    /// Nobody has sent such a record.
    NeverSent,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Missing => f.write_str("acknowledged, and gone"),
            Fault::Moved { to } => write!(f, "acknowledged, and now at offset {to}"),
            Fault::Replaced => f.write_str("acknowledged, and another record is there"),
            Fault::SeenGone => f.write_str("seen by a consumer, and gone"),
            Fault::Duplicate { first } => write!(f, "the same record as at offset {first}"),
            Fault::Hole => f.write_str("no record has this offset, and later ones are there"),
            Fault::Disorder => f.write_str("not above the offset before it"),
            Fault::NeverSent => f.write_str("a record that was never sent"),
        }
    }
}

/// What a comparison found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judged {
    /// What is wrong, by offset; the first [`FAULTS_MAX`].
    pub faults: Vec<(i64, Fault)>,
    /// How many things are wrong.
    pub fault_count: u64,
    /// Acknowledged records that had to be there, and were compared.
    pub compared: u64,
    /// Acknowledged records without a promise of a flush that are gone.
    pub unpromised_lost: u64,
}

impl PartitionLedger {
    /// An empty one.
    pub fn new(policy: Policy, promised: bool) -> PartitionLedger {
        PartitionLedger {
            policy,
            promised,
            sent: HashSet::new(),
            acknowledged: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// A record is about to be sent.
    pub fn sent(&mut self, entry: Entry) {
        self.sent.insert(entry.hash);
    }

    /// A batch was acknowledged; its first record is at `base`.
    pub fn acknowledged(&mut self, base: i64, batch: &[Entry]) {
        self.acknowledged
            .extend((base..).zip(batch.iter().copied()));
    }

    /// A consumer has seen a record.
    pub fn seen(&mut self, offset: i64, entry: Entry) {
        self.seen.insert(offset, entry);
    }

    /// Whether an acknowledgement promised the flush.
    pub fn is_promised(&self) -> bool {
        self.promised
    }

    /// How many records were acknowledged.
    pub fn acknowledged_count(&self) -> u64 {
        self.acknowledged.len() as u64
    }

    /// How many records a consumer has seen.
    pub fn seen_count(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Compares with what is left.
    pub fn judge(&self, read: &ReadBack) -> Judged {
        let mut judged = Judged::default();
        let mut places: HashMap<u64, i64> = HashMap::new();
        let mut latest: HashMap<u64, i64> = HashMap::new();
        let mut at: BTreeMap<i64, Entry> = BTreeMap::new();
        let mut expected = read.log_start;
        for (offset, entry) in read.records.iter().copied() {
            // Retention went on while it was read.
            if offset < read.log_start && self.policy == Policy::Delete {
                continue;
            }
            if at.last_key_value().is_some_and(|(last, _)| offset <= *last) {
                judged.found(offset, Fault::Disorder);
            } else if offset > expected && self.policy != Policy::Compact {
                judged.found(expected, Fault::Hole);
            }
            expected = offset.saturating_add(1);
            if !self.sent.contains(&entry.hash) {
                judged.found(offset, Fault::NeverSent);
            }
            if let Some(first) = places.insert(entry.hash, offset) {
                judged.found(offset, Fault::Duplicate { first });
            }
            latest.insert(entry.key, offset);
            at.insert(offset, entry);
        }
        if expected < read.end && self.policy != Policy::Compact {
            judged.found(expected, Fault::Hole);
        }
        let may_be_gone = |offset: i64, entry: &Entry| match self.policy {
            Policy::Keep => false,
            Policy::Delete => offset < read.log_start,
            Policy::Compact => latest.get(&entry.key).is_some_and(|last| *last > offset),
        };
        for (offset, entry) in &self.acknowledged {
            let fault = match (at.get(offset), places.get(&entry.hash)) {
                (Some(there), _) if there == entry => None,
                (None, None) if may_be_gone(*offset, entry) => continue,
                (_, Some(to)) => Some(Fault::Moved { to: *to }),
                (None, None) => Some(Fault::Missing),
                (Some(_), None) => Some(Fault::Replaced),
            };
            match fault {
                Some(_) if !self.promised => judged.unpromised_lost += 1,
                Some(fault) => judged.found(*offset, fault),
                None if self.promised => judged.compared += 1,
                None => {}
            }
        }
        for (offset, entry) in &self.seen {
            let is_there = at.get(offset) == Some(entry);
            let is_told = self.acknowledged.get(offset) == Some(entry);
            if self.promised && !is_there && !is_told && !may_be_gone(*offset, entry) {
                judged.found(*offset, Fault::SeenGone);
            }
        }
        judged.faults.sort_by_key(|(offset, _)| *offset);
        judged.faults.truncate(FAULTS_MAX);
        judged
    }

    /// Takes over what is left: records that may be gone and are, and those without a promise that are lost, are no
    /// longer looked for. For a partition in which nothing is wrong.
    pub fn settle(&mut self, read: &ReadBack) {
        let (start, end) = (read.log_start, read.end);
        match self.policy {
            Policy::Delete => {
                self.acknowledged = self.acknowledged.split_off(&start);
                self.seen = self.seen.split_off(&start);
            }
            Policy::Keep | Policy::Compact => {}
        }
        if !self.promised {
            self.acknowledged.split_off(&end);
            self.seen.split_off(&end);
        }
    }
}

impl Judged {
    fn found(&mut self, offset: i64, fault: Fault) {
        self.fault_count += 1;
        // Twice as many, of which the first by offset are kept.
        if self.faults.len() < 2 * FAULTS_MAX {
            self.faults.push((offset, fault));
        }
    }
}

/// How many of a partition's faults are listed.
pub const FAULTS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(n: u64) -> Entry {
        Entry::of(Some(&(n % 3).to_be_bytes()), Some(&n.to_be_bytes()))
    }

    /// A ledger of records 0 to n - 1 at their offsets, and the log that has them.
    fn kept(policy: Policy, promised: bool, n: u64) -> (PartitionLedger, ReadBack) {
        let mut ledger = PartitionLedger::new(policy, promised);
        let entries: Vec<Entry> = (0..n).map(entry).collect();
        entries.iter().for_each(|entry| ledger.sent(*entry));
        ledger.acknowledged(0, &entries);
        let read = ReadBack {
            log_start: 0,
            end: n as i64,
            records: (0..).zip(entries).collect(),
        };
        (ledger, read)
    }

    fn faults(ledger: &PartitionLedger, read: &ReadBack) -> Vec<(i64, Fault)> {
        ledger.judge(read).faults
    }

    #[test]
    fn a_record_has_the_same_entry_in_every_version() {
        let of = |key: Option<&str>, value: Option<&str>| {
            Entry::of(key.map(str::as_bytes), value.map(str::as_bytes))
        };
        assert_eq!(
            of(Some("k"), Some("value")),
            Entry {
                hash: 0xee2c_bce8_19ea_a70d,
                key: 0x50c9_a4b9_fe34_e7f6
            }
        );
        let others = [
            of(Some("kv"), Some("alue")),
            of(None, Some("value")),
            of(Some(""), Some("value")),
            of(Some("k"), None),
        ];
        assert!(others
            .iter()
            .all(|other| *other != of(Some("k"), Some("value"))));
    }

    #[test]
    fn what_is_all_there_is_fine() {
        for policy in [Policy::Keep, Policy::Delete, Policy::Compact] {
            let (mut ledger, mut read) = kept(policy, true, 10);
            ledger.seen(4, entry(4));
            let judged = ledger.judge(&read);
            assert_eq!((judged.fault_count, judged.compared), (0, 10), "{policy:?}");
            // One that was sent and not acknowledged may be there.
            ledger.sent(entry(10));
            read.records.push((10, entry(10)));
            read.end = 11;
            assert_eq!(faults(&ledger, &read), []);
        }
    }

    #[test]
    fn each_kind_of_loss_is_named() {
        let (ledger, full) = kept(Policy::Keep, true, 6);
        let changed = |change: &dyn Fn(&mut ReadBack)| {
            let mut read = full.clone();
            change(&mut read);
            faults(&ledger, &read)
        };
        let tail = changed(&|read| {
            read.records.truncate(5);
            read.end = 5;
        });
        assert_eq!(tail, [(5, Fault::Missing)]);
        let head = changed(&|read| {
            read.records.remove(0);
            read.log_start = 1;
        });
        assert_eq!(head, [(0, Fault::Missing)]);
        let hole = changed(&|read| {
            read.records.remove(2);
        });
        assert_eq!(hole, [(2, Fault::Hole), (2, Fault::Missing)]);
        let unread = changed(&|read| {
            read.records.pop();
        });
        assert_eq!(unread, [(5, Fault::Hole), (5, Fault::Missing)]);
        let strange = changed(&|read| read.records[3].1 = entry(99));
        assert_eq!(strange, [(3, Fault::NeverSent), (3, Fault::Replaced)]);
        let swapped = changed(&|read| {
            read.records[1].1 = entry(2);
            read.records[2].1 = entry(1);
        });
        assert_eq!(
            swapped,
            [(1, Fault::Moved { to: 2 }), (2, Fault::Moved { to: 1 })]
        );
        let twice = changed(&|read| {
            read.records.push((6, entry(0)));
            read.end = 7;
        });
        assert_eq!(twice, [(6, Fault::Duplicate { first: 0 })]);
        let back = changed(&|read| read.records.swap(4, 5));
        assert!(back.contains(&(4, Fault::Disorder)), "{back:?}");
    }

    #[test]
    fn what_was_seen_must_stay() {
        let (mut ledger, mut read) = kept(Policy::Keep, true, 3);
        ledger.sent(entry(3));
        ledger.seen(3, entry(3));
        assert_eq!(faults(&ledger, &read), [(3, Fault::SeenGone)]);
        read.records.push((3, entry(3)));
        read.end = 4;
        assert_eq!(faults(&ledger, &read), []);
    }

    #[test]
    fn retention_explains_the_head_only() {
        let (mut ledger, mut read) = kept(Policy::Delete, true, 6);
        read.log_start = 2;
        assert_eq!(faults(&ledger, &read), [], "what was read before it went");
        read.records.drain(..2);
        assert_eq!(faults(&ledger, &read), []);
        ledger.settle(&read);
        assert_eq!(ledger.acknowledged_count(), 4);
        read.records.pop();
        read.end = 5;
        assert_eq!(faults(&ledger, &read), [(5, Fault::Missing)]);
    }

    #[test]
    fn compaction_explains_what_has_a_later_record_of_its_key() {
        let (ledger, mut read) = kept(Policy::Compact, true, 6);
        read.records.drain(..3);
        assert_eq!(faults(&ledger, &read), []);
        // The last record of its key.
        read.records.remove(0);
        assert_eq!(
            faults(&ledger, &read),
            [(0, Fault::Missing), (3, Fault::Missing)]
        );
    }

    #[test]
    fn without_a_promise_losses_are_counted_apart_and_settled() {
        let (mut ledger, mut read) = kept(Policy::Keep, false, 6);
        ledger.seen(5, entry(5));
        read.records.truncate(4);
        read.end = 4;
        let judged = ledger.judge(&read);
        assert_eq!((judged.fault_count, judged.unpromised_lost), (0, 2));
        ledger.settle(&read);
        assert_eq!((ledger.acknowledged_count(), ledger.seen_count()), (4, 0));
        // Offsets are given again.
        ledger.sent(entry(9));
        ledger.acknowledged(4, &[entry(9)]);
        read.records.push((4, entry(9)));
        read.end = 5;
        assert_eq!(ledger.judge(&read), Judged::default());
    }

    proptest! {
        /// Whatever single thing is done to a log, the judge finds it.
        #[test]
        fn no_damage_passes(n in 1u64..40, place in 0usize..40, kind in 0u8..5) {
            let (ledger, mut read) = kept(Policy::Keep, true, n);
            let place = place % n as usize;
            match kind {
                0 => {
                    read.records.remove(place);
                }
                1 => read.records[place].1 = entry(1000),
                2 => {
                    read.records.truncate(place);
                    read.end = place as i64;
                }
                3 => read.records.push((n as i64, entry(place as u64))),
                _ => {
                    read.log_start = place as i64 + 1;
                    read.records.drain(..=place);
                }
            }
            prop_assert!(ledger.judge(&read).fault_count > 0);
        }
    }
}
