//! The ledgers of all partitions, and the file that goes with them.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::ledger::{Entry, PartitionLedger, ReadBack, FAULTS_MAX};
use super::ledger_file::LedgerWriter;
use super::report::Round;
use crate::client::PartitionKey;

/// All ledgers.
pub(super) struct Ledgers {
    pub partitions: BTreeMap<PartitionKey, PartitionLedger>,
    /// What the user can look at, or another process judge by.
    pub file: Rc<LedgerWriter>,
    pub sent_records: u64,
    /// Acknowledged, with and without a promise of a flush.
    pub acknowledged_records: u64,
    /// Of these, without.
    pub unpromised_records: u64,
    /// Answers that cannot be: an idempotent producer's retry that was refused for its sequence.
    pub refusals: Vec<String>,
}

impl Ledgers {
    pub fn new(file: LedgerWriter) -> Ledgers {
        Ledgers {
            partitions: BTreeMap::new(),
            file: Rc::new(file),
            sent_records: 0,
            acknowledged_records: 0,
            unpromised_records: 0,
            refusals: Vec::new(),
        }
    }

    /// Records are about to be sent: not before the file is secured.
    pub fn sending(&mut self, key: &PartitionKey, entries: &[Entry]) {
        self.sent_records += entries.len() as u64;
        self.file.entries("sent", key, NOWHERE_YET, entries);
        if let Some(ledger) = self.partitions.get_mut(key) {
            entries.iter().for_each(|entry| ledger.sent(*entry));
        }
    }

    /// They were acknowledged; the first is at `base`.
    pub fn acknowledged(&mut self, key: &PartitionKey, base: i64, entries: &[Entry]) {
        self.acknowledged_records += entries.len() as u64;
        self.file.entries("acknowledged", key, base, entries);
        if let Some(ledger) = self.partitions.get_mut(key) {
            ledger.acknowledged(base, entries);
            if !ledger.is_promised() {
                self.unpromised_records += entries.len() as u64;
            }
        }
    }

    /// The consumer has seen them.
    pub fn seen(&mut self, key: &PartitionKey, records: &[(i64, Entry)]) {
        // Compaction leaves gaps.
        for run in records.chunk_by(|(a, _), (b, _)| *b == a + 1) {
            let entries: Vec<Entry> = run.iter().map(|(_, entry)| *entry).collect();
            self.file.entries("seen", key, run[0].0, &entries);
        }
        if let Some(ledger) = self.partitions.get_mut(key) {
            for (offset, entry) in records {
                ledger.seen(*offset, *entry);
            }
        }
    }

    /// An idempotent producer was refused.
    pub fn refused(&mut self, why: String) {
        if self.refusals.len() < FAULTS_MAX {
            self.refusals.push(why);
        }
    }
}

/// Compares each partition with what is left of it; what is wrong goes into the round. What is fine is settled.
pub(super) fn compare(
    partitions: &mut BTreeMap<PartitionKey, PartitionLedger>,
    read: &BTreeMap<PartitionKey, ReadBack>,
    round: &mut Round,
) {
    let nothing = ReadBack::default();
    for (key, ledger) in partitions {
        let read = read.get(key).unwrap_or(&nothing);
        let judged = ledger.judge(read);
        round.compared += judged.compared;
        round.unflushed_lost += judged.unpromised_lost;
        for (offset, fault) in &judged.faults {
            round.loss(format!(
                "{} partition {} offset {offset}: {fault}",
                key.0, key.1
            ));
        }
        round.loss_count += judged.fault_count - judged.faults.len() as u64;
        if judged.fault_count == 0 {
            ledger.settle(read);
        }
    }
}

/// The offset of records that have none yet.
const NOWHERE_YET: i64 = -1;
