//! What files and directories do while nothing fails.

use super::{filled, make_file, DIR_SITE, SITE};
use crate::runtime::sim::World;
use crate::runtime::{IoErrorKind, OpenMode, Rt};
use std::future::Future;

fn run<F: Future<Output = ()>>(program: impl Fn(Rt) -> F) {
    for seed in 0..10 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, program(rt.clone()));
    }
}

#[test]
fn absent_present_and_wrong_kinds_are_told_apart() {
    run(|rt| async move {
        let dir = rt.dir("/d");
        assert!(!dir.exists().await.unwrap());
        assert_eq!(dir.list().await.unwrap_err().kind, IoErrorKind::NotFound);
        make_file(&rt).await;
        assert!(dir.exists().await.unwrap());
        for mode in [OpenMode::Read, OpenMode::ReadWrite] {
            let error = dir.open("none", mode).await.err().unwrap();
            assert_eq!(error.kind, IoErrorKind::NotFound);
        }
        let error = dir.open("f", OpenMode::CreateNew).await.err().unwrap();
        assert_eq!(error.kind, IoErrorKind::AlreadyExists);
        let error = dir.read_small("none", 10).await.unwrap_err();
        assert_eq!(error.kind, IoErrorKind::NotFound);
        let error = dir.remove_file("none").await.unwrap_err();
        assert_eq!(error.kind, IoErrorKind::NotFound);
        assert!(dir.rename("none", "other").await.is_err());
        assert!(dir.subdir("f").list().await.is_err());
    });
}

#[test]
fn a_file_open_for_reading_refuses_changes() {
    run(|rt| async move {
        make_file(&rt).await;
        let file = rt.dir("/d").open("f", OpenMode::Read).await.unwrap();
        assert!(file.write_at(&filled(&rt, 1, 1), 0).await.is_err());
        assert!(file.truncate(0).await.is_err());
        assert!(file.pre_allocate(1).await.is_err());
    });
}

#[test]
fn small_files_are_replaced_whole_and_limited_when_read() {
    run(|rt| async move {
        let dir = rt.dir("/d");
        dir.create_all(DIR_SITE).await.unwrap();
        for content in [vec![1; 10_000], vec![2; 3], vec![]] {
            dir.replace_small("s", content.clone(), SITE).await.unwrap();
            assert_eq!(dir.read_small("s", 10_000).await.unwrap(), content);
        }
        dir.replace_small("s", vec![3; 11], SITE).await.unwrap();
        assert!(dir.read_small("s", 10).await.is_err());
        let names: Vec<String> = dir
            .list()
            .await
            .unwrap()
            .into_iter()
            .map(|e| e.name)
            .collect();
        assert_eq!(names, ["s"]);
    });
}

#[test]
fn listings_are_sorted_and_tell_kinds_and_sizes() {
    run(|rt| async move {
        let file = make_file(&rt).await;
        file.write_at(&filled(&rt, 2, 1), 4096).await.unwrap();
        let dir = rt.dir("/d");
        dir.subdir("b").create_all(DIR_SITE).await.unwrap();
        dir.replace_small("c", vec![1; 5], SITE).await.unwrap();
        let entries = dir.list().await.unwrap();
        let seen: Vec<_> = entries
            .iter()
            .map(|e| (e.name.as_str(), e.is_dir, e.len))
            .collect();
        assert_eq!(
            seen,
            [("b", true, 0), ("c", false, 5), ("f", false, 12_288)]
        );
        assert!(entries.iter().all(|e| e.modified_ms >= 1_704_067_200_000));
    });
}

#[test]
fn a_removed_or_replaced_file_stays_readable_while_it_is_open() {
    run(|rt| async move {
        let file = make_file(&rt).await;
        file.write_at(&filled(&rt, 1, 7), 0).await.unwrap();
        let dir = rt.dir("/d");
        dir.remove_file("f").await.unwrap();
        dir.sync(DIR_SITE).await.unwrap();
        assert_eq!(file.read_at(0, 9).await.unwrap(), vec![7; 9]);
        dir.open("f", OpenMode::CreateNew).await.unwrap();
        assert_eq!(file.size().await.unwrap(), 4096);
    });
}

#[test]
fn space_comes_back_once_a_removed_file_is_closed() {
    let world = World::new(1);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        for _ in 0..300 {
            let file = make_file(&rt).await;
            file.pre_allocate(1 << 20).await.unwrap();
            rt.dir("/d").remove_file("f").await.unwrap();
            rt.dir("/d").sync(DIR_SITE).await.unwrap();
        }
    });
    node.crash();
    assert_eq!(node.disk().used_bytes(), 0);
}

#[test]
fn a_directory_moves_with_what_it_holds() {
    run(|rt| async move {
        make_file(&rt).await;
        rt.dir("/").rename("d", "e").await.unwrap();
        assert_eq!(rt.dir("/e").list().await.unwrap()[0].name, "f");
        assert!(!rt.dir("/d").exists().await.unwrap());
        make_file(&rt).await;
        assert!(rt.dir("/").rename("d", "e").await.is_err(), "not empty");
    });
}

#[test]
#[should_panic(expected = "not a multiple of the block size")]
fn an_unaligned_direct_write_is_a_broken_invariant() {
    run(|rt| async move {
        let file = make_file(&rt).await;
        let _ = file.write_at(&filled(&rt, 1, 1), 100).await;
    });
}
