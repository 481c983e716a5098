//! What a power cut, a kill and injected faults do to a disk.

use crate::runtime::sim::{PowerCut, SimNode, World, WriteFault};
use crate::runtime::{File, IoErrorKind, OpenMode, Rt, SharedBuf, SyncSite, BLOCK_BYTES};
use std::collections::BTreeSet;

const SITE: SyncSite = SyncSite::SegmentFlush;
const DIR_SITE: SyncSite = SyncSite::SegmentCreate;

fn filled(rt: &Rt, blocks: usize, byte: u8) -> SharedBuf {
    let mut buf = rt.write_buf(blocks * BLOCK_BYTES);
    buf.as_mut_slice().fill(byte);
    buf.freeze()
}

/// A file `/d/f` whose name is durable.
async fn make_file(rt: &Rt) -> File {
    let dir = rt.dir("/d");
    dir.create_all(DIR_SITE).await.unwrap();
    let file = dir.open("f", OpenMode::CreateNew).await.unwrap();
    dir.sync(DIR_SITE).await.unwrap();
    file
}

/// Writes two blocks, perhaps syncs them, cuts the power; what is left.
fn after_a_power_cut(seed: u64, sync: bool, mode: PowerCut, set_up: fn(&SimNode)) -> Vec<u8> {
    let world = World::new(seed);
    let node = world.node("a");
    set_up(&node);
    let rt = node.rt();
    world.block_on(&rt, async {
        let file = make_file(&rt).await;
        file.write_at(&filled(&rt, 2, 7), 0).await.unwrap();
        if sync {
            file.sync_data(SITE).await.unwrap();
        }
    });
    node.crash_with(mode);
    node.restart();
    node.disk().read_raw("/d/f").unwrap()
}

#[test]
fn a_write_without_sync_is_lost_kept_or_torn() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let left = after_a_power_cut(seed, false, PowerCut::Mixed, |_| {});
        assert!(left.iter().all(|b| *b == 0 || *b == 7), "seed {seed}");
        let kept = left.iter().filter(|b| **b == 7).count();
        outcomes.insert(match kept {
            0 => "lost",
            n if n == 2 * BLOCK_BYTES => "kept",
            n => {
                assert_eq!(n % 512, 0, "seed {seed}");
                "torn"
            }
        });
    }
    assert_eq!(outcomes, BTreeSet::from(["kept", "lost", "torn"]));
}

#[test]
fn a_synced_write_survives_every_power_cut() {
    for seed in 0..100 {
        for mode in [PowerCut::Mixed, PowerCut::AllLost, PowerCut::Sectors] {
            let left = after_a_power_cut(seed, true, mode, |_| {});
            assert_eq!(left, vec![7; 2 * BLOCK_BYTES], "seed {seed}");
        }
    }
}

#[test]
fn a_disabled_sync_site_loses_the_write() {
    let left = after_a_power_cut(1, true, PowerCut::AllLost, |node| {
        node.disk().disable_sync(SITE);
    });
    assert_eq!(left, Vec::<u8>::new());
}

#[test]
fn a_write_that_completes_during_a_sync_is_not_covered_by_it() {
    let mut lost = 0;
    for seed in 0..100 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let file = make_file(&rt).await;
            let buf = filled(&rt, 1, 7);
            let sync = file.sync_data(SITE);
            let write = file.write_at(&buf, 0);
            let (synced, written) = futures_lite::future::zip(sync, write).await;
            synced.unwrap();
            written.unwrap();
        });
        node.crash_with(PowerCut::AllLost);
        lost += u32::from(node.disk().read_raw("/d/f").unwrap().is_empty());
    }
    assert_eq!(lost, 100);
}

#[test]
fn a_name_that_was_not_synced_may_vanish_or_stay() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            make_file(&rt).await;
            let dir = rt.dir("/d");
            dir.rename("f", "g").await.unwrap();
        });
        node.crash();
        let disk = node.disk();
        let (old, new) = (disk.read_raw("/d/f"), disk.read_raw("/d/g"));
        assert!(old.is_some() != new.is_some(), "seed {seed}");
        seen.insert(new.is_some());
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_replaced_small_file_is_old_or_new_never_a_mixture() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        let dir = rt.dir("/d");
        world.block_on(&rt, async {
            dir.create_all(DIR_SITE).await.unwrap();
            dir.replace_small("s", vec![1; 5000], SITE).await.unwrap();
            dir.sync(DIR_SITE).await.unwrap();
        });
        let limit = std::time::Duration::from_micros(world.random_below(5_000));
        world.block_on_for(&rt, limit, dir.replace_small("s", vec![2; 6000], SITE));
        node.crash();
        let left = node.disk().read_raw("/d/s").unwrap();
        assert!(
            left == vec![1; 5000] || left == vec![2; 6000],
            "seed {seed}"
        );
        seen.insert(left[0]);
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_failed_write_leaves_nothing_and_counts() {
    let world = World::new(1);
    let node = world.node("a");
    let rt = node.rt();
    node.disk().fail_nth_write(2, WriteFault::Errno(libc::EIO));
    world.block_on(&rt, async {
        let file = make_file(&rt).await;
        file.write_at(&filled(&rt, 1, 1), 0).await.unwrap();
        let error = file.write_at(&filled(&rt, 1, 2), 4096).await.unwrap_err();
        assert_eq!(error.kind, IoErrorKind::Device);
        assert_eq!(file.size().await.unwrap(), 4096);
        file.write_at(&filled(&rt, 1, 3), 4096).await.unwrap();
    });
    assert_eq!(node.disk().faults_fired(), 1);
}

#[test]
fn a_full_disk_refuses_or_writes_a_part() {
    let mut kinds = BTreeSet::new();
    for seed in 0..20 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        node.disk().set_capacity(8192);
        world.block_on(&rt, async {
            let file = make_file(&rt).await;
            let error = file.write_at(&filled(&rt, 3, 1), 0).await.unwrap_err();
            kinds.insert(format!("{:?}", error.kind));
            assert!(file.size().await.unwrap() <= 8192);
        });
        assert_eq!(node.disk().faults_fired(), 1);
    }
    let both = ["NoSpace", "ShortWrite"].map(String::from);
    assert_eq!(kinds, BTreeSet::from(both));
}
