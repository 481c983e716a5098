//! What a power cut and a kill leave of a disk.

use super::{filled, make_file, DIR_SITE, SITE};
use crate::runtime::sim::{PowerCut, SimNode, World};
use crate::runtime::{OpenMode, BLOCK_BYTES};
use std::collections::BTreeSet;
use std::time::Duration;

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

/// A rename, a creation, a deletion and a size: which of them a power cut keeps is decided for each alone.
#[test]
fn each_change_that_was_not_synced_is_kept_or_lost_without_the_others() {
    let mut seen = BTreeSet::new();
    for seed in 0..600 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let dir = rt.dir("/d");
            dir.create_all(DIR_SITE).await.unwrap();
            for name in ["old", "gone", "long"] {
                let file = dir.open(name, OpenMode::CreateNew).await.unwrap();
                file.write_at(&filled(&rt, 1, 1), 0).await.unwrap();
                file.sync_data(SITE).await.unwrap();
            }
            dir.sync(DIR_SITE).await.unwrap();
            dir.rename("old", "new").await.unwrap();
            dir.open("made", OpenMode::CreateNew).await.unwrap();
            dir.remove_file("gone").await.unwrap();
            let long = dir.open("long", OpenMode::ReadWrite).await.unwrap();
            long.truncate(100).await.unwrap();
        });
        node.crash();
        let left = |name: &str| node.disk().read_raw(format!("/d/{name}"));
        assert!(
            left("old").is_some() != left("new").is_some(),
            "seed {seed}"
        );
        seen.insert([
            left("new").is_some(),
            left("made").is_some(),
            left("gone").is_none(),
            left("long").unwrap().len() == 100,
        ]);
    }
    assert_eq!(seen.len(), 16, "{seen:?}");
}

#[test]
fn what_is_durable_is_what_the_worst_power_cut_leaves() {
    for seed in 0..50 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let file = make_file(&rt).await;
            file.write_at(&filled(&rt, 1, 1), 0).await.unwrap();
            file.sync_data(SITE).await.unwrap();
            file.write_at(&filled(&rt, 1, 2), 4096).await.unwrap();
            let dir = rt.dir("/d");
            dir.rename("f", "g").await.unwrap();
            dir.open("made", OpenMode::CreateNew).await.unwrap();
        });
        let before = node.disk().read_durable("/d");
        assert_eq!(before, [("f".to_string(), vec![1; 4096])]);
        assert!(node.disk().read_durable("/none").is_empty());
        node.crash_with(PowerCut::AllLost);
        assert_eq!(node.disk().read_raw("/d/f"), Some(vec![1; 4096]));
        assert_eq!(node.disk().list_raw("/d").len(), 1);
    }
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
        let limit = Duration::from_micros(world.random_below(5_000));
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
fn a_power_cut_at_any_operation_leaves_what_was_synced_before() {
    let mut cuts = 0;
    for seed in 0..200 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        let file = world.block_on(&rt, make_file(&rt));
        let synced = std::cell::Cell::new(0);
        let n = 1 + world.random_below(30);
        node.disk().cut_power_after_ops(n, PowerCut::Mixed);
        let ended = world.block_on_until_crash(&rt, async {
            for block in 0..10_u64 {
                let buf = filled(&rt, 1, 1 + block as u8);
                file.write_at(&buf, block * 4096).await.unwrap();
                file.sync_data(SITE).await.unwrap();
                synced.set(block + 1);
            }
        });
        assert_eq!(ended.is_none(), n <= 20, "seed {seed}");
        if ended.is_some() {
            assert!(node.disk().power_cut_is_due());
            node.crash();
        }
        cuts += u32::from(ended.is_none());
        assert_eq!(synced.get(), if n <= 20 { (n - 1) / 2 } else { 10 });
        let left = node.disk().read_raw("/d/f").unwrap();
        for block in 0..synced.get() as usize {
            let bytes = &left[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES];
            assert!(bytes.iter().all(|b| *b == 1 + block as u8), "seed {seed}");
        }
        assert!(!node.is_up());
        node.restart();
    }
    assert!(cuts > 50, "only {cuts} power cuts");
}

#[test]
fn a_later_write_may_survive_without_an_earlier_one() {
    let mut seen = 0;
    for seed in 0..100 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let file = make_file(&rt).await;
            file.pre_allocate(8192).await.unwrap();
            file.sync_data(SITE).await.unwrap();
            file.write_at(&filled(&rt, 1, 1), 0).await.unwrap();
            file.write_at(&filled(&rt, 1, 2), 4096).await.unwrap();
        });
        node.crash();
        let left = node.disk().read_raw("/d/f").unwrap();
        assert_eq!(left.len(), 8192, "a synced size is durable, seed {seed}");
        let first_lost = left[..4096].contains(&0);
        let second_kept = left[4096..].contains(&2);
        seen += u32::from(first_lost && second_kept);
    }
    assert!(seen > 0);
}

#[test]
fn an_unsynced_truncation_may_be_lost_and_shows_zeros_when_extended() {
    let mut sizes = BTreeSet::new();
    for seed in 0..100 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let file = make_file(&rt).await;
            file.write_at(&filled(&rt, 2, 9), 0).await.unwrap();
            file.sync_data(SITE).await.unwrap();
            file.truncate(1000).await.unwrap();
            file.pre_allocate(12_288).await.unwrap();
            let seen = file.read_at(0, 20_000).await.unwrap();
            assert_eq!(seen.len(), 12_288);
            assert_eq!(&seen[..1000], &[9; 1000]);
            assert!(seen[1000..].iter().all(|b| *b == 0));
        });
        node.crash();
        let left = node.disk().read_raw("/d/f").unwrap();
        let cut = left.len() == 1000 || left.get(1000) == Some(&0);
        let nines = left.iter().filter(|b| **b == 9).count();
        assert_eq!(nines, if cut { 1000 } else { 8192 }, "seed {seed}");
        sizes.insert((left.len(), cut));
    }
    let all = [(1000, true), (8192, false), (12_288, true), (12_288, false)];
    assert_eq!(sizes, BTreeSet::from(all));
}

#[test]
fn a_synced_truncation_is_durable() {
    for seed in 0..50 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let file = make_file(&rt).await;
            file.write_at(&filled(&rt, 2, 9), 0).await.unwrap();
            file.truncate(1000).await.unwrap();
            file.sync_data(SITE).await.unwrap();
        });
        node.crash();
        assert_eq!(node.disk().read_raw("/d/f"), Some(vec![9; 1000]));
    }
}

#[test]
fn a_kill_keeps_what_was_written_and_drops_locks() {
    let world = World::new(1);
    let node = world.node("a");
    let rt = node.rt();
    let lock = world.block_on(&rt, async {
        let file = make_file(&rt).await;
        file.write_at(&filled(&rt, 1, 5), 0).await.unwrap();
        rt.dir("/d").rename("f", "g").await.unwrap();
        rt.dir("/d").lock(".lock").await.unwrap()
    });
    node.kill();
    let rt = node.restart();
    assert_eq!(node.disk().read_raw("/d/g"), Some(vec![5; 4096]));
    let again = world.block_on(&rt, async { rt.dir("/d").lock(".lock").await.unwrap() });
    // The lock of the old run does not release that of the new one.
    drop(lock);
    let third = world.block_on(&rt, async { rt.dir("/d").lock(".lock").await.err() });
    assert!(third.is_some());
    drop(again);
    let free = world.block_on(&rt, async { rt.dir("/d").lock(".lock").await.is_ok() });
    assert!(free);
}

#[test]
fn a_write_in_flight_at_a_kill_lands_or_not() {
    let mut sizes = BTreeSet::new();
    for seed in 0..100 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        let file = world.block_on(&rt, make_file(&rt));
        let buf = filled(&rt, 3, 5);
        let early = Duration::from_micros(10);
        assert!(world
            .block_on_for(&rt, early, file.write_at(&buf, 0))
            .is_none());
        assert_eq!(node.disk().in_flight_count(), 1);
        node.kill();
        sizes.insert(node.disk().read_raw("/d/f").unwrap().len());
    }
    assert_eq!(sizes, BTreeSet::from([0, 4096, 8192, 12_288]));
}

#[test]
fn a_write_whose_future_was_dropped_still_lands() {
    let world = World::new(1);
    let node = world.node("a");
    let rt = node.rt();
    let file = world.block_on(&rt, make_file(&rt));
    let buf = filled(&rt, 1, 5);
    let early = Duration::from_micros(1);
    assert!(world
        .block_on_for(&rt, early, file.write_at(&buf, 0))
        .is_none());
    drop(file);
    world.run_for(Duration::from_millis(10));
    assert_eq!(node.disk().read_raw("/d/f"), Some(vec![5; 4096]));
}

#[test]
fn a_removed_directory_comes_back_whole_in_part_or_not_at_all() {
    let mut left = BTreeSet::new();
    for seed in 0..100 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let dir = rt.dir("/d/topic-0");
            dir.create_all(DIR_SITE).await.unwrap();
            for name in ["a", "b", "c"] {
                dir.replace_small(name, vec![1], SITE).await.unwrap();
            }
            dir.sync(DIR_SITE).await.unwrap();
            rt.dir("/d").remove_dir_all("topic-0").await.unwrap();
            assert!(!dir.exists().await.unwrap());
        });
        node.crash();
        left.insert(node.disk().list_raw("/d").len());
    }
    assert_eq!(left, BTreeSet::from([0, 1, 2, 3]));
}

#[test]
fn random_runs_keep_to_a_model() {
    for seed in 0..300 {
        model_run(seed);
    }
}

/// Writes, sizes and syncs in a random order. What readers see is what a plain array
/// would hold; after a power cut every sector holds what was durable or something
/// that was written there since.
fn model_run(seed: u64) {
    const SECTORS: usize = 64;
    let world = World::new(seed);
    let node = world.node("a");
    let rt = node.rt();
    let mut live: Vec<u8> = Vec::new();
    // What a sector may hold after a power cut; beyond the size: nothing, as zero.
    let mut possible: Vec<BTreeSet<u8>> = vec![BTreeSet::from([0]); SECTORS];
    world.block_on(&rt, async {
        let file = make_file(&rt).await;
        for step in 0..30 {
            match world.random_below(6) {
                0..=2 => {
                    let (pos, value) = (world.random_below(7) as usize, 1 + step as u8);
                    file.write_at(&filled(&rt, 1, value), pos as u64 * 4096)
                        .await
                        .unwrap();
                    live.resize(live.len().max((pos + 1) * 4096), 0);
                    live[pos * 4096..(pos + 1) * 4096].fill(value);
                    for sector in &mut possible[pos * 8..(pos + 1) * 8] {
                        sector.insert(value);
                    }
                }
                3 => {
                    let size = world.random_below(60) as usize * 512;
                    file.truncate(size as u64).await.unwrap();
                    live.resize(size, 0);
                    for sector in &mut possible {
                        sector.insert(0);
                    }
                }
                4 => {
                    let size = world.random_below(60) as usize * 512;
                    file.pre_allocate(size as u64).await.unwrap();
                    live.resize(live.len().max(size), 0);
                }
                _ => {
                    file.sync_data(SITE).await.unwrap();
                    for (index, sector) in possible.iter_mut().enumerate() {
                        let byte = live.get(index * 512).copied().unwrap_or(0);
                        *sector = BTreeSet::from([byte]);
                    }
                }
            }
            let seen = file.read_at(0, 1 << 20).await.unwrap();
            assert!(seen[..] == live[..], "seed {seed}, step {step}");
            let size = file.size().await.unwrap();
            assert_eq!(size, live.len() as u64, "seed {seed}, step {step}");
        }
        let again = rt.dir("/d").open("f", OpenMode::Read).await.unwrap();
        let at = world.random_below(10_000);
        let part = again.read_at(at, 777).await.unwrap();
        let expected = live.get(at as usize..).unwrap_or(&[]);
        assert!(
            part[..] == expected[..expected.len().min(777)],
            "seed {seed}"
        );
    });
    node.crash();
    let left = node.disk().read_raw("/d/f").unwrap();
    for (index, sector) in left.chunks(512).enumerate() {
        assert!(
            possible[index].contains(&sector[0]),
            "seed {seed}, sector {index}"
        );
        assert!(sector.iter().all(|b| *b == sector[0]), "seed {seed}");
    }
}

#[test]
fn large_preallocated_files_cost_nothing() {
    for seed in 0..1000 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let file = make_file(&rt).await;
            file.pre_allocate(32 << 20).await.unwrap();
            for block in 0..10 {
                file.write_at(&filled(&rt, 1, 7), block * 4096)
                    .await
                    .unwrap();
                file.sync_data(SITE).await.unwrap();
            }
        });
        node.crash();
        assert_eq!(node.disk().used_bytes(), 32 << 20);
    }
}

#[test]
fn stale_sectors_show_only_where_that_was_asked_for() {
    let mut stale = 0;
    for seed in 0..50 {
        let left = after_a_power_cut(seed, false, PowerCut::Stale, |_| {});
        assert!(left.iter().all(|b| [7, 0xa5].contains(b)), "seed {seed}");
        stale += u32::from(left.contains(&0xa5));
        let synced = after_a_power_cut(seed, true, PowerCut::Stale, |_| {});
        assert_eq!(synced, vec![7; 2 * BLOCK_BYTES], "seed {seed}");
    }
    assert!(stale > 10);
}
