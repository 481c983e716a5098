//! Faults that tests inject, each of which counts when it fires.

use super::{filled, make_file, DIR_SITE, SITE};
use crate::runtime::sim::{FaultKind, FaultRates, PowerCut, World, WriteFault};
use crate::runtime::{IoError, IoErrorKind, OpenMode, Rt};
use std::collections::BTreeSet;

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

#[test]
fn a_short_write_is_an_error_of_its_own_kind() {
    let mut sizes = BTreeSet::new();
    for seed in 0..50 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        node.disk().fail_nth_write(1, WriteFault::Short);
        world.block_on(&rt, async {
            let file = make_file(&rt).await;
            let error = file.write_at(&filled(&rt, 3, 1), 0).await.unwrap_err();
            assert_eq!(error.kind, IoErrorKind::ShortWrite);
            sizes.insert(file.size().await.unwrap());
        });
        assert_eq!(node.disk().faults_fired(), 1);
    }
    assert_eq!(sizes, BTreeSet::from([0, 4096, 8192]));
}

#[test]
fn a_failed_sync_is_not_made_good_by_a_later_one() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..100 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        node.disk().fail_nth_sync(Some(SITE), 1, libc::EIO);
        world.block_on(&rt, async {
            let file = make_file(&rt).await;
            file.write_at(&filled(&rt, 1, 7), 0).await.unwrap();
            let error = file.sync_data(SITE).await.unwrap_err();
            assert_eq!(error.kind, IoErrorKind::Device);
            file.sync_data(SITE).await.unwrap();
            // Readers still see it.
            assert_eq!(file.read_at(0, 4096).await.unwrap(), vec![7; 4096]);
        });
        assert_eq!(node.disk().faults_fired(), 1);
        assert_eq!(node.disk().sync_count(SITE), 2);
        node.crash_with(PowerCut::AllKept);
        let left = node.disk().read_raw("/d/f").unwrap();
        outcomes.insert(left == vec![7; 4096]);
    }
    assert_eq!(outcomes.len(), 2, "kept in some runs, lost in others");
}

#[test]
fn syncs_fail_at_one_site_only_until_cleared() {
    let world = World::new(1);
    let node = world.node("a");
    let rt = node.rt();
    node.disk().fail_syncs(Some(SITE), libc::EIO);
    world.block_on(&rt, async {
        let file = make_file(&rt).await;
        for _ in 0..3 {
            assert!(file.sync_data(SITE).await.is_err());
        }
        node.disk().clear_faults();
        assert!(file.sync_data(SITE).await.is_ok());
    });
    assert_eq!(node.disk().faults_fired(), 3);
    // Two directories were made, then the file.
    assert_eq!(node.disk().sync_count(DIR_SITE), 2);
}

#[test]
fn reads_and_writes_fail_by_path() {
    let world = World::new(1);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let file = make_file(&rt).await;
        let dir = rt.dir("/d");
        let other = dir.open("other", OpenMode::CreateNew).await.unwrap();
        let buf = filled(&rt, 1, 1);
        node.disk()
            .fail_writes("d/oth", WriteFault::Errno(libc::ENOSPC));
        file.write_at(&buf, 0).await.unwrap();
        let error = other.write_at(&buf, 0).await.unwrap_err();
        assert_eq!(error.kind, IoErrorKind::NoSpace);
        node.disk().fail_reads("d/f", libc::EIO);
        assert!(file.read_at(0, 10).await.is_err());
        assert!(dir.read_small("f", 10_000).await.is_err());
        assert!(other.read_at(0, 10).await.is_ok());
    });
    assert_eq!(node.disk().faults_fired(), 3);
}

#[test]
fn operations_on_names_fail_by_name() {
    let world = World::new(1);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        make_file(&rt).await;
        let dir = rt.dir("/d");
        node.disk().fail_ops("rename", "/d", libc::EIO);
        node.disk().fail_ops("list", "/d", libc::EACCES);
        assert!(dir.rename("f", "g").await.is_err());
        let error = dir.list().await.unwrap_err();
        assert_eq!(error.kind, IoErrorKind::Denied);
        node.disk().clear_faults();
        assert_eq!(dir.list().await.unwrap()[0].name, "f");
    });
    assert_eq!(node.disk().faults_fired(), 2);
}

#[test]
fn what_is_corrupted_stays_corrupted() {
    let world = World::new(1);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let file = make_file(&rt).await;
        file.write_at(&filled(&rt, 2, 7), 0).await.unwrap();
        file.sync_data(SITE).await.unwrap();
        node.disk().corrupt("/d/f", 4095, &[1, 2]);
        let seen = file.read_at(4094, 4).await.unwrap();
        assert_eq!(seen, vec![7, 1, 2, 7]);
    });
    node.crash();
    let left = node.disk().read_raw("/d/f").unwrap();
    assert_eq!(left[4094..4098], [7, 1, 2, 7]);
    node.disk().write_raw("/new/dir/file", b"hello");
    assert!(node.disk().remove_raw("/d/f"));
    assert!(!node.disk().remove_raw("/d/f"));
    node.restart();
    node.crash_with(PowerCut::AllLost);
    let files = node.disk().list_raw("/");
    assert_eq!(files, [("/new/dir/file".into(), 5)]);
}

/// What one planned fault does to a file of 40 blocks: the program works on it until something fails.
async fn work(rt: &Rt) -> Result<(), IoError> {
    let dir = rt.dir("/d");
    dir.create_all(DIR_SITE).await?;
    let file = dir.open("f", OpenMode::CreateNew).await?;
    for block in 0..40 {
        dir.sync(DIR_SITE).await?;
        let buf = filled(rt, 1, block as u8);
        file.write_at(&buf, block * 4096).await?;
        file.sync_data(SITE).await?;
        let read = file.read_at(block * 4096, 4096).await?;
        assert_eq!(read.len(), 4096, "read_at reads on after a short read");
    }
    Ok(())
}

#[test]
fn each_kind_of_the_plan_happens_is_counted_and_does_what_it_says() {
    for kind in FaultKind::ALL {
        let (mut fired, mut errors, mut wrong, mut slowest) = (0, BTreeSet::new(), 0, 0);
        for seed in 0..30 {
            let world = World::new(seed);
            let node = world.node("a");
            let rt = node.rt();
            node.disk()
                .faults_by_seed(FaultRates::none().with(kind, 20).on_paths("/d"));
            let result = world.block_on(&rt, work(&rt));
            errors.extend(result.err().map(|e| format!("{:?}", e.kind)));
            slowest = slowest.max(world.now().as_millis());
            fired += node.disk().planned_faults(kind);
            let others = FaultKind::ALL.iter().filter(|other| **other != kind);
            assert!(others.clone().all(|k| node.disk().planned_faults(*k) == 0));
            assert_eq!(node.disk().faults_fired(), node.disk().planned_faults(kind));
            node.disk().clear_faults();
            let content = node.disk().read_raw("/d/f").unwrap_or_default();
            let is_wrong = |(at, byte): (usize, &u8)| *byte != (at / 4096) as u8;
            wrong += content.iter().enumerate().filter(|x| is_wrong(*x)).count();
        }
        assert!(fired > 5, "{kind:?} happened {fired} times");
        let expected = match kind {
            FaultKind::WriteError
            | FaultKind::FlushError
            | FaultKind::DirSyncError
            | FaultKind::ReadError => &["Device"][..],
            FaultKind::NoSpace => &["NoSpace"],
            FaultKind::ShortWrite => &["ShortWrite"],
            _ => &[],
        };
        let errors: Vec<&str> = errors.iter().map(String::as_str).collect();
        assert_eq!(errors, expected, "{kind:?}");
        let is_lasting = kind == FaultKind::LastingBitFlip;
        assert_eq!(wrong > 0, is_lasting, "{kind:?}: {wrong} bytes are wrong");
        // 80 syncs of at most 5 ms each, and little beside.
        assert_eq!(slowest > 1_000, kind == FaultKind::SlowFlush, "{kind:?}");
    }
}

#[test]
fn a_bit_flips_once_or_for_good() {
    for (kind, lasts) in [
        (FaultKind::BitFlip, false),
        (FaultKind::LastingBitFlip, true),
    ] {
        let world = World::new(3);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let file = make_file(&rt).await;
            file.write_at(&filled(&rt, 2, 0), 0).await.unwrap();
            file.sync_data(SITE).await.unwrap();
            node.disk().faults_by_seed(FaultRates::none().with(kind, 1));
            let flipped = file.read_at(4096, 4096).await.unwrap();
            let bits: u32 = flipped.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(u64::from(bits), node.disk().planned_faults(kind));
            node.disk().clear_faults();
            let again = file.read_at(4096, 4096).await.unwrap();
            assert_eq!(again == flipped, lasts);
            assert_eq!(again == vec![0; 4096], !lasts);
        });
        node.crash_with(PowerCut::AllLost);
        let left = node.disk().read_raw("/d/f").unwrap();
        let wrong = left.iter().any(|byte| *byte != 0);
        assert_eq!(wrong, lasts, "what has changed on the medium stays changed");
    }
}
