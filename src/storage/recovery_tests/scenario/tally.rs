//! What happened over many seeds, so that a test can prove that it saw something.

use crate::runtime::sim::FaultKind;
use std::fmt;

/// Counts of one seed, or of many.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::storage) struct Tally {
    pub(in crate::storage) lives: u64,
    pub(in crate::storage) power_cuts: u64,
    /// Those of them that came right after an operation.
    pub(in crate::storage) cuts_at_operations: u64,
    pub(in crate::storage) kills: u64,
    pub(in crate::storage) opened: u64,
    pub(in crate::storage) opened_clean: u64,
    pub(in crate::storage) cut_while_opening: u64,
    pub(in crate::storage) truncated_bytes: u64,
    pub(in crate::storage) segments_max: u64,
    pub(in crate::storage) batches_checked: u64,
    pub(in crate::storage) index_entries_checked: u64,
    pub(in crate::storage) timestamps_checked: u64,
    pub(in crate::storage) durable_checks: u64,
    pub(in crate::storage) unflushed_lost: u64,
    pub(in crate::storage) truncations: u64,
    pub(in crate::storage) starts_moved: u64,
    pub(in crate::storage) segments_removed: u64,
    pub(in crate::storage) removals_cut_short: u64,
    pub(in crate::storage) partitions_deleted: u64,
    pub(in crate::storage) deletions_cut_short: u64,
    pub(in crate::storage) batches_consumed: u64,
    pub(in crate::storage) producers_expired: u64,
    pub(in crate::storage) rounds: u64,
    pub(in crate::storage) rounds_cut_short: u64,
    pub(in crate::storage) records_compacted: u64,
    pub(in crate::storage) segments_merged: u64,
    pub(in crate::storage) failures_met: u64,
    pub(in crate::storage) loads_refused: u64,
    pub(in crate::storage) rebuilt_in_place: u64,
    /// Of each kind in [`FaultKind::ALL`].
    pub(in crate::storage) faults: [u64; FaultKind::ALL.len()],
    /// Syncs that were turned into nothing.
    pub(in crate::storage) site_syncs: u64,
}

impl Tally {
    pub(in crate::storage) fn add(&mut self, other: &Tally) {
        let segments_max = self.segments_max.max(other.segments_max);
        for ((_, mine), (_, theirs)) in self.numbers_mut().into_iter().zip(other.numbers()) {
            *mine += theirs;
        }
        self.segments_max = segments_max;
        for (mine, theirs) in self.faults.iter_mut().zip(other.faults) {
            *mine += theirs;
        }
    }

    pub(in crate::storage) fn faults_of(&self, kind: FaultKind) -> u64 {
        let at = FaultKind::ALL.iter().position(|k| *k == kind);
        self.faults[at.expect("all kinds are there")]
    }

    fn numbers(&self) -> Vec<(&'static str, u64)> {
        let mut copy = *self;
        let numbers = copy.numbers_mut();
        numbers.into_iter().map(|(name, n)| (name, *n)).collect()
    }

    fn numbers_mut(&mut self) -> Vec<(&'static str, &mut u64)> {
        vec![
            ("lives", &mut self.lives),
            ("power cuts", &mut self.power_cuts),
            (
                "of them right after an operation",
                &mut self.cuts_at_operations,
            ),
            ("kills", &mut self.kills),
            ("loads that ended", &mut self.opened),
            ("of them after a clean stop", &mut self.opened_clean),
            ("loads cut short", &mut self.cut_while_opening),
            ("bytes cut by recovery", &mut self.truncated_bytes),
            ("segments at most", &mut self.segments_max),
            ("batches checked", &mut self.batches_checked),
            ("index entries checked", &mut self.index_entries_checked),
            ("timestamps looked up", &mut self.timestamps_checked),
            ("looks at what is durable", &mut self.durable_checks),
            ("unflushed batches lost", &mut self.unflushed_lost),
            ("truncations", &mut self.truncations),
            ("log starts moved", &mut self.starts_moved),
            ("segments removed", &mut self.segments_removed),
            ("removals cut short", &mut self.removals_cut_short),
            ("partitions deleted", &mut self.partitions_deleted),
            ("deletions cut short", &mut self.deletions_cut_short),
            ("batches consumed", &mut self.batches_consumed),
            ("producers expired", &mut self.producers_expired),
            ("rounds of compaction", &mut self.rounds),
            ("rounds cut short", &mut self.rounds_cut_short),
            ("records compacted", &mut self.records_compacted),
            ("segments merged", &mut self.segments_merged),
            ("failures met", &mut self.failures_met),
            ("loads refused", &mut self.loads_refused),
            ("logs rebuilt in place", &mut self.rebuilt_in_place),
            ("syncs turned into nothing", &mut self.site_syncs),
        ]
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, number) in self.numbers().iter().filter(|(_, n)| *n > 0) {
            writeln!(f, "{number:>12} {name}")?;
        }
        for (kind, number) in FaultKind::ALL.iter().zip(self.faults) {
            if number > 0 {
                writeln!(f, "{number:>12} {kind:?}")?;
            }
        }
        Ok(())
    }
}
