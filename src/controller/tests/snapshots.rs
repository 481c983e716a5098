//! Snapshots of the metadata in the simulator: lost, torn, of others, and no room for them.

use super::simulated::{create, open, options, snapshots, storage, topic_names, DATA_DIR};
use super::*;
use crate::controller::snapshot::SnapshotStore;
use crate::controller::{Controller, ControllerError, ControllerOptions};
use crate::runtime::sim::{PowerCut, SimNode, World, WriteFault};
use crate::runtime::SyncSite;
use std::path::PathBuf;

/// A snapshot that was written stays whole. `sync_sites` shows that this fails without its sync.
#[test]
fn given_a_snapshot_when_the_power_is_cut_then_it_is_there_whole() {
    for seed in 0..10 {
        let (syncs, breach) = snapshot_after_a_power_cut(seed, None);
        assert_eq!(breach, None, "seed {seed}");
        assert!(syncs > 0);
    }
}

/// Writes snapshots, cuts the power, and reads the newest. How many syncs snapshots made, and what
/// is wrong afterwards.
pub(super) fn snapshot_after_a_power_cut(
    seed: u64,
    disabled: Option<SyncSite>,
) -> (u64, Option<String>) {
    let world = World::new(seed);
    let node = world.node("broker");
    if let Some(site) = disabled {
        node.disk().disable_sync(site);
    }
    let rt = node.rt();
    world.block_on(&rt, async {
        let (controller, _) = open(&rt, None).await.unwrap();
        for i in 0..60 {
            create(&controller, &format!("t-{i}")).await.unwrap();
        }
        // Answered after the snapshot before it was written.
        controller.allocate_producer_ids(1).await.unwrap();
    });
    assert!(!snapshots(&node).is_empty(), "no snapshot was written");
    node.crash_with(PowerCut::AllLost);
    let rt = node.restart();
    let breach = world.block_on(&rt, async {
        let store = SnapshotStore::new(rt.dir(DATA_DIR).subdir("__cluster_metadata-0"));
        let names = store.list().await.unwrap();
        let empty = || Image::empty(CLUSTER, 1);
        match names.first() {
            Some(name) => store
                .read(&rt, *name, empty())
                .await
                .err()
                .map(|e| e.to_string()),
            None => Some("the snapshot is gone".to_owned()),
        }
    });
    (node.disk().sync_count(SyncSite::MetadataSnapshot), breach)
}

/// Opens and closes twice with a topic each, so that there are two snapshots.
fn two_snapshots(world: &World, node: &SimNode) -> Image {
    let rt = node.rt();
    let mut clean_at = None;
    for name in ["first", "second"] {
        let closed = world.block_on(&rt, async {
            let (controller, _) = open(&rt, clean_at).await.unwrap();
            create(&controller, name).await.unwrap();
            (controller.close().await.unwrap(), controller.image())
        });
        clean_at = Some(closed.0);
        if name == "second" {
            assert_eq!(topic_names(&closed.1), ["first", "second"]);
            assert_eq!(snapshots(node).len(), 2);
            return closed.1;
        }
    }
    unreachable!()
}

fn tear(node: &SimNode, path: &PathBuf) {
    let mut content = node.disk().read_raw(path).unwrap();
    content.truncate(content.len() - 7);
    node.disk().write_raw(path, &content);
}

#[test]
fn given_torn_snapshots_when_opened_then_older_ones_and_the_log_give_the_same_image() {
    for torn in [0, 1, 2] {
        let world = World::new(torn as u64);
        let node = world.node("broker");
        let before = two_snapshots(&world, &node);
        for (_, path) in snapshots(&node).iter().rev().take(torn) {
            tear(&node, path);
        }
        let rt = node.rt();
        let after = world.block_on(&rt, async { open(&rt, None).await.unwrap().1 });
        assert_eq!(after, before, "{torn} torn");
    }
}

#[test]
fn given_snapshots_but_no_log_when_opened_then_it_says_that_records_are_missing() {
    let world = World::new(1);
    let node = world.node("broker");
    two_snapshots(&world, &node);
    for (path, _) in node.disk().list_raw(DATA_DIR) {
        if path.extension().is_some_and(|e| e == "log") {
            assert!(node.disk().remove_raw(path));
        }
    }
    let rt = node.rt();
    let error = world.block_on(&rt, async { open(&rt, None).await.err().unwrap() });
    assert!(
        matches!(error, ControllerError::RecordsMissing { .. }),
        "{error}"
    );
}

#[test]
fn given_another_clusters_snapshot_when_opened_then_refused() {
    let world = World::new(1);
    let node = world.node("broker");
    two_snapshots(&world, &node);
    let rt = node.rt();
    let error = world.block_on(&rt, async {
        let options = ControllerOptions {
            cluster_id: Uuid::from_u128(0xBAD),
            ..options(None)
        };
        let opened = Controller::open(&rt, &storage(&rt), rt.dir(DATA_DIR), options).await;
        opened.err().unwrap()
    });
    assert!(error.to_string().contains("another cluster"), "{error}");
}

#[test]
fn given_a_snapshot_that_cannot_be_written_for_space_then_requests_are_served_on() {
    let world = World::new(3);
    let node = world.node("broker");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (controller, _) = open(&rt, None).await.unwrap();
        node.disk()
            .fail_writes(".checkpoint", WriteFault::Errno(28));
        node.disk().fail_syncs(Some(SyncSite::MetadataSnapshot), 28);
        for i in 0..60 {
            create(&controller, &format!("t-{i}")).await.unwrap();
        }
        assert!(node.disk().faults_fired() > 0, "no snapshot was tried");
        assert!(snapshots(&node).is_empty());
        node.disk().clear_faults();
        for i in 60..120 {
            create(&controller, &format!("t-{i}")).await.unwrap();
        }
        assert!(!snapshots(&node).is_empty(), "the next try succeeds");
        // A stop does not fail for it either.
        node.disk().fail_syncs(Some(SyncSite::MetadataSnapshot), 28);
        let fired = node.disk().faults_fired();
        create(&controller, "last").await.unwrap();
        controller.close().await.unwrap();
        assert!(node.disk().faults_fired() > fired, "no snapshot was tried");
    });
}
