//! Every sync that the log makes is needed: without it, some seed breaks a promise.

use super::power_cut::env_number;
use super::scenario;
use crate::runtime::SyncSite;

/// Without each of these the scenario loses something within [`SEEDS_MAX`] seeds.
const NEEDED: &[SyncSite] = &[
    SyncSite::SegmentFlush,
    SyncSite::SegmentSeal,
    SyncSite::SegmentCreate,
    SyncSite::RecoveryScan,
    SyncSite::Truncate,
    SyncSite::TruncateRemove,
    SyncSite::Index,
    SyncSite::ProducerSnapshot,
    SyncSite::EpochCheckpoint,
    SyncSite::PartitionDir,
    SyncSite::RecoveryPointCheckpoint,
    SyncSite::HighWatermarkCheckpoint,
    SyncSite::LogStartCheckpoint,
    SyncSite::PartitionCreate,
    SyncSite::DataDirFormat,
    SyncSite::CleanMarkerWrite,
    SyncSite::CleanMarkerRemove,
];

#[test]
fn each_sync_of_the_log_is_noticed_when_it_is_missing() {
    let seeds = env_number("HIGHWATER_SIM_SITE_SEEDS").unwrap_or(SEEDS_MAX);
    let mut unnoticed = Vec::new();
    for site in NEEDED {
        let breach = (0..seeds).find_map(|seed| {
            let breach = scenario::run(seed, Some(*site)).err()?;
            Some((seed, breach))
        });
        match breach {
            Some((seed, breach)) => println!("{site:?}: seed {seed}: {breach}"),
            None => unnoticed.push(*site),
        }
    }
    assert!(
        unnoticed.is_empty(),
        "nobody notices the loss of {unnoticed:?}"
    );
}

const SEEDS_MAX: u64 = 1_000;
