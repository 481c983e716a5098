//! What the scenarios of the log make of a sync that does nothing. The test of all sites is in
//! `controller/tests/sync_sites.rs`, because the controller has syncs of its own.

use super::{recycle, scenario};
use crate::runtime::SyncSite;

/// Runs a seed of the random life of a partition with the syncs of `site` turned into nothing:
/// how many of them there were, and the promise that was broken, if one was.
pub(crate) fn life_without_sync(seed: u64, site: SyncSite) -> (u64, Option<String>) {
    let (tally, breach) = scenario::run(seed, Some(site));
    (tally.site_syncs, breach)
}

/// Runs a seed of the life of a log with recycled segments, likewise.
pub(crate) fn recycling_without_sync(seed: u64, site: SyncSite) -> (u64, Option<String>) {
    assert_eq!(site, SyncSite::SegmentRecycle, "what is counted");
    recycle::life(seed, Some(site))
}
