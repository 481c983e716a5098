//! What a checkpoint costs: the files that have changed, and no more.

use super::cases::{batch, check, open, produce};
use crate::runtime::sim::{SimNode, World};
use crate::runtime::SyncSite;

const SITES: [SyncSite; 4] = [
    SyncSite::Index,
    SyncSite::EpochCheckpoint,
    SyncSite::ProducerSnapshot,
    SyncSite::PartitionDir,
];

fn syncs(node: &SimNode) -> [u64; 4] {
    SITES.map(|site| node.disk().sync_count(site))
}

#[test]
fn given_little_that_is_new_when_checkpointed_then_only_the_snapshot_is_written() {
    let world = World::new(31);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        // The first one writes everything; an index entry comes each second batch.
        produce(&log, 0..5).await;
        assert_eq!(log.checkpoint().await.unwrap(), 5);
        let before = syncs(&node);
        let mut grown = 0;
        for end in 6..=14 {
            let entries = log.0.active().with_indexes(|index, _| index.len());
            produce(&log, end - 1..end).await;
            let before = syncs(&node);
            assert_eq!(log.checkpoint().await.unwrap(), end);
            let after = syncs(&node);
            let cost: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
            let has_grown = log.0.active().with_indexes(|index, _| index.len()) > entries;
            grown += u64::from(has_grown);
            match has_grown {
                true => assert_eq!(cost, [2, 0, 1, 2], "both indexes, and their names first"),
                false => assert_eq!(cost, [0, 0, 1, 1], "the snapshot alone"),
            }
        }
        assert!(grown > 2 && grown < 9, "{grown} of 9 had new entries");
        let after = syncs(&node);
        assert_eq!(after[1], before[1], "the epochs are as they were");
    });
    node.crash();
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, report) = open(&rt).await;
        assert_eq!((report.recovered_from, report.rebuilt_bytes), (14, 0));
        check(&log, 14).await;
    });
}

/// A cut writes the same files; what a checkpoint wrote before is no word on them.
#[test]
fn given_a_log_that_was_cut_when_checkpointed_then_its_files_are_written_again() {
    let world = World::new(32);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        produce(&log, 0..12).await;
        log.checkpoint().await.unwrap();
        let entries = || log.0.active().with_indexes(|index, _| index.len());
        let before_the_cut = entries();
        log.truncate_to(6).await.unwrap();
        for offset in 6..12 {
            let mut other = batch(offset);
            other.leader_epoch = 1;
            log.append(&[other]).await.unwrap();
        }
        assert_eq!(entries(), before_the_cut, "as many as before");
        let before = syncs(&node);
        log.checkpoint().await.unwrap();
        let after = syncs(&node);
        assert_eq!((after[0] - before[0], after[1] - before[1]), (2, 1));
    });
    node.crash();
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, report) = open(&rt).await;
        assert_eq!((report.recovered_from, report.rebuilt_bytes), (12, 0));
        let epochs = log.0.state.borrow().epochs.clone();
        assert_eq!(epochs.entries().len(), 2);
    });
}
