//! Every sync of the code is needed: where it does nothing, some scenario on the simulator breaks
//! a promise. It stands here because the controller is the highest room that has syncs of its
//! own; the scenarios of the log are in `storage/recovery_tests/`.

use super::snapshots::snapshot_after_a_power_cut;
use crate::runtime::SyncSite;
use crate::storage::recovery_tests::{env_number, life_without_sync, recycling_without_sync};

/// A seed's run in which the syncs of a site do nothing: how many there were, and the promise that
/// was broken, if one was.
type Scenario = fn(u64, SyncSite) -> (u64, Option<String>);

/// No arm for all others: a new site does not compile until somebody has said here what notices
/// its loss.
fn scenario_of(site: SyncSite) -> Scenario {
    match site {
        SyncSite::SegmentFlush
        | SyncSite::SegmentSeal
        | SyncSite::SegmentCreate
        | SyncSite::RecoveryScan
        | SyncSite::Truncate
        | SyncSite::TruncateRemove
        | SyncSite::Index
        | SyncSite::ProducerSnapshot
        | SyncSite::EpochCheckpoint
        | SyncSite::PartitionDir
        | SyncSite::RecoveryPointCheckpoint
        | SyncSite::HighWatermarkCheckpoint
        | SyncSite::LogStartCheckpoint
        | SyncSite::PartitionCreate
        | SyncSite::PartitionRemove
        | SyncSite::DataDirFormat
        | SyncSite::CleanMarkerWrite
        | SyncSite::CleanMarkerRemove
        | SyncSite::CompactedSegment
        | SyncSite::CompactionSwap
        | SyncSite::CleanerCheckpoint => life_without_sync,
        SyncSite::SegmentRecycle => recycling_without_sync,
        SyncSite::MetadataSnapshot => metadata_snapshot,
    }
}

fn metadata_snapshot(seed: u64, site: SyncSite) -> (u64, Option<String>) {
    assert_eq!(site, SyncSite::MetadataSnapshot, "what is counted");
    snapshot_after_a_power_cut(seed, Some(site))
}

/// Runs seeds until one breaks a promise: how many syncs there were, and the seed with the breach.
fn search(scenario: Scenario, site: SyncSite, seeds: u64) -> (u64, Option<(u64, String)>) {
    let mut reached = 0;
    for seed in 0..seeds {
        let (syncs, breach) = scenario(seed, site);
        reached += syncs;
        if let Some(breach) = breach {
            return (reached, Some((seed, breach)));
        }
    }
    (reached, None)
}

#[test]
fn each_sync_is_reached_and_is_noticed_when_it_is_missing() {
    let seeds = env_number("HIGHWATER_SIM_SITE_SEEDS").unwrap_or(SEEDS_MAX);
    let (mut caught, mut wrong) = (0, Vec::new());
    for site in SyncSite::ALL {
        match search(scenario_of(site), site, seeds) {
            (reached, Some((seed, breach))) if reached > 0 => {
                println!("{site:?}: {reached} syncs, seed {seed}: {breach}");
                caught += 1;
            }
            (reached, found) => wrong.push(format!(
                "{site:?} was reached {reached} times, and what was noticed is {found:?}"
            )),
        }
    }
    let all = SyncSite::ALL.len();
    println!("flushes removed and caught: {caught} of {all}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

const SEEDS_MAX: u64 = 1_000;
