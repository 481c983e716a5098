//! Disks that are full and that fail, in the simulator.

use super::simulated::{create, open};
use crate::controller::TopicSelector;
use crate::protocol::ErrorCode;
use crate::runtime::sim::{SimNode, World};
use crate::runtime::SyncSite;

/// Creates topics until the disk refuses, and holds all answers against each other.
///
/// `mends`: it takes changes again once the disk is well, without another start.
fn disk_fault(seed: u64, mends: bool, strike: impl Fn(&SimNode), heal: impl Fn(&SimNode)) {
    let world = World::new(seed);
    let node = world.node("broker");
    let rt = node.rt();
    let (answered, refused) = world.block_on(&rt, async {
        let (controller, _) = open(&rt, None).await.unwrap();
        let mut answered = vec![];
        answered.push((
            "before".to_owned(),
            create(&controller, "before").await.unwrap(),
        ));
        strike(&node);
        let fired = node.disk().faults_fired();
        let mut refused = vec![];
        for i in 0..20_000 {
            let name = format!("t-{i}");
            match create(&controller, &name).await {
                Ok(id) => answered.push((name, id)),
                Err(code) => {
                    assert_eq!(code, ErrorCode::KafkaStorageError);
                    refused.push(name);
                    break;
                }
            }
            if answered.len() < 10 {
                continue;
            }
            let names = answered.drain(..).map(|(name, _)| name);
            let selectors: Vec<_> = names.map(TopicSelector::Name).collect();
            let (results, _) = controller.delete_topics(selectors).await;
            if let Err(fault) = &results[0] {
                // Unless it mends, nobody knows now whether the topics are there.
                assert_eq!(fault.code, ErrorCode::KafkaStorageError);
                assert!(results.iter().all(Result::is_err));
                break;
            }
        }
        assert!(
            node.disk().faults_fired() > fired,
            "the disk never failed, seed {seed}"
        );
        // What was refused is not shown.
        let image = controller.image();
        assert!(refused.iter().all(|name| image.topic(name).is_none()));
        if mends {
            // It stays usable, however often it fails; what it had reserved may do for one.
            match create(&controller, "too-early").await {
                Ok(id) => answered.push(("too-early".to_owned(), id)),
                Err(code) => {
                    assert_eq!(code, ErrorCode::KafkaStorageError);
                    refused.push("too-early".to_owned());
                }
            }
            heal(&node);
            let id = create(&controller, "again").await.unwrap();
            answered.push(("again".to_owned(), id));
            if let Some(name) = refused.pop() {
                let id = create(&controller, &name).await.unwrap();
                answered.push((name, id));
            }
            assert_eq!(controller.failure(), None);
            return (answered, refused);
        }
        heal(&node);
        // Nothing is taken from now on.
        assert_eq!(
            create(&controller, "later").await,
            Err(ErrorCode::KafkaStorageError)
        );
        let fault = controller.allocate_producer_ids(5).await.unwrap_err();
        assert_eq!(fault.code, ErrorCode::KafkaStorageError);
        assert_eq!(controller.image(), image);
        assert!(controller.close().await.is_err());
        (answered, Vec::new())
    });
    node.kill();
    let rt = node.restart();
    world.block_on(&rt, async {
        let (controller, image) = open(&rt, None).await.unwrap();
        for (name, id) in &answered {
            assert_eq!(image.topic(name).map(|t| t.id), Some(*id), "{name}");
        }
        assert!(refused.iter().all(|name| image.topic(name).is_none()));
        assert!(image.topic("later").is_none());
        create(&controller, "later").await.unwrap();
        assert_eq!(controller.allocate_producer_ids(5).await.unwrap(), 0..5);
    });
}

#[test]
fn given_a_full_disk_then_56_and_no_wrong_answer_and_all_is_well_once_space_returns() {
    for seed in 0..10 {
        disk_fault(
            seed,
            true,
            |node| {
                node.disk()
                    .set_capacity(node.disk().used_bytes() + (96 << 10))
            },
            |node| node.disk().set_capacity(u64::MAX),
        );
    }
}

#[test]
fn given_a_flush_that_fails_then_56_and_no_wrong_answer() {
    for seed in 0..10 {
        disk_fault(
            seed,
            false,
            |node| {
                node.disk()
                    .fail_nth_sync(Some(SyncSite::SegmentFlush), 1 + seed, 5)
            },
            |node| node.disk().clear_faults(),
        );
    }
}
