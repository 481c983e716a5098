//! Files of a log that are lost or were not written: what a load makes of the rest.

use super::cases::{
    bases, batch, check, config, open, produce, record_recovery_point, stop_cleanly, DIR,
};
use crate::runtime::sim::World;
use crate::storage::log_tests::limits;
use crate::storage::{inspect, DataDir, Log, LogBatch, Storage};
use std::path::Path;

#[test]
fn given_checkpoints_that_were_not_recorded_when_it_loads_then_little_is_read() {
    let world = World::new(12);
    let node = world.node("a");
    let rt = node.rt();
    let batch_bytes = batch(0).bytes.len() as u64;
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..50).await;
        let point = log.checkpoint().await.unwrap();
        record_recovery_point(&data_dir, point).await;
        // All in the segment that begins before the recorded point.
        for offset in 50..54 {
            produce(&log, offset..offset + 1).await;
            assert_eq!(log.checkpoint().await.unwrap(), offset + 1);
        }
        produce(&log, 54..55).await;
    });
    let last_base = *bases(&node).last().unwrap();
    assert!(
        last_base < 50,
        "the recorded point is inside the last segment"
    );
    let recorded = format!("{DIR}/{:020}.snapshot", 50);
    assert_eq!(node.disk().read_raw(recorded), None, "its snapshot is gone");
    node.crash();
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, report) = open(&rt).await;
        check(&log, 55).await;
        assert_eq!(report.recovered_from, 54);
        let slack = u64::from(config().index_interval_bytes) + 2 * batch_bytes;
        assert!(report.scanned_bytes <= batch_bytes + slack, "{report:?}");
    });
}

#[test]
fn given_a_missing_segment_when_it_loads_then_the_hole_is_named_and_nothing_changed() {
    for clean in [false, true] {
        for which in [1, 2] {
            let world = World::new(13);
            let node = world.node("a");
            let rt = node.rt();
            world.block_on(&rt, async {
                let (data_dir, log, _) = open(&rt).await;
                produce(&log, 0..150).await;
                let point = log.checkpoint().await.unwrap();
                record_recovery_point(&data_dir, point).await;
                match clean {
                    true => stop_cleanly(&data_dir, &log).await,
                    false => produce(&log, 150..155).await,
                }
            });
            node.kill();
            let bases = bases(&node);
            assert!(bases.len() > 4, "the segments around it are sealed");
            let (missing, next) = (bases[which], bases[which + 1]);
            assert!(node.disk().remove_raw(format!("{DIR}/{missing:020}.log")));
            let names = || -> Vec<_> {
                let files = node.disk().list_raw(DIR).into_iter();
                files
                    .filter(|(p, _)| p.extension().is_some_and(|e| e == "log"))
                    .collect()
            };
            let before = names();
            let rt = node.restart();
            let error = world.block_on(&rt, async {
                let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
                let storage = Storage::new(rt.clone(), limits());
                let mode = data_dir.load_mode("topic", 0);
                assert_eq!(mode.clean, clean);
                let opened = Log::open(&storage, rt.dir(DIR), config(), mode).await;
                opened.err().expect("a hole").to_string()
            });
            let hole = format!("offsets {missing} to {} are missing", next - 1);
            assert!(error.contains(&hole), "{error}");
            assert_eq!(names(), before);
        }
    }
}

/// Where an index does not lead to the end of a segment, the load concludes nothing;
/// whoever reads there is told.
#[test]
fn given_a_missing_segment_behind_a_lost_index_when_it_is_read_then_nothing_is_skipped() {
    let world = World::new(14);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..150).await;
        stop_cleanly(&data_dir, &log).await;
    });
    node.kill();
    let bases = bases(&node);
    assert!(node
        .disk()
        .remove_raw(format!("{DIR}/{:020}.log", bases[2])));
    assert!(node
        .disk()
        .remove_raw(format!("{DIR}/{:020}.index", bases[1])));
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        for offset in [bases[1], bases[2] - 1, bases[2], bases[3] - 1] {
            let error = log.read(offset, 150, 1, true).await.unwrap_err();
            assert!(error.to_string().contains("are missing"), "{error}");
        }
        assert!(log.read(bases[3], 150, 1, true).await.is_ok());
    });
}

#[test]
fn given_a_lost_epoch_checkpoint_when_it_loads_then_the_batches_tell_all_epochs() {
    let damages: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"0\n3\n0 0\n"), Some(b"\0\0\0\0")];
    for (damage, clean) in damages.iter().flat_map(|d| [(d, false), (d, true)]) {
        let world = World::new(15);
        let node = world.node("a");
        let rt = node.rt();
        let of_epoch = |offset: i64| LogBatch {
            leader_epoch: (offset / 20) as i32,
            ..batch(offset)
        };
        let expected = world.block_on(&rt, async {
            let (data_dir, log, _) = open(&rt).await;
            for offset in 0..150 {
                log.append(&[of_epoch(offset)]).await.unwrap();
            }
            let point = log.checkpoint().await.unwrap();
            record_recovery_point(&data_dir, point).await;
            for offset in 150..170 {
                log.append(&[of_epoch(offset)]).await.unwrap();
            }
            let epochs = log.0.state.borrow().epochs.clone();
            if clean {
                stop_cleanly(&data_dir, &log).await;
            }
            epochs
        });
        assert_eq!(expected.entries().len(), 9);
        node.kill();
        let path = format!("{DIR}/leader-epoch-checkpoint");
        match damage {
            None => assert!(node.disk().remove_raw(&path)),
            Some(bytes) => node.disk().write_raw(&path, bytes),
        }
        // It is read once, and then kept again.
        for again in [false, true] {
            let rt = node.restart();
            world.block_on(&rt, async {
                let (_data_dir, log, report) = open(&rt).await;
                assert_eq!(log.0.state.borrow().epochs, expected, "{damage:?} {clean}");
                assert_eq!(log.end_offset(), 170);
                let all = log.size_bytes();
                assert_eq!(report.rebuilt_bytes >= all, !again, "{report:?}");
            });
            node.crash();
        }
    }
}

#[test]
fn given_a_lost_epoch_checkpoint_and_damage_when_it_loads_then_it_stays_offline() {
    let world = World::new(16);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..100).await;
        stop_cleanly(&data_dir, &log).await;
    });
    node.kill();
    assert!(node
        .disk()
        .remove_raw(format!("{DIR}/leader-epoch-checkpoint")));
    let first = format!("{DIR}/{:020}.log", 0);
    node.disk().corrupt(&first, 5_000, &[0xAA; 9]);
    let rt = node.restart();
    world.block_on(&rt, async {
        let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
        let storage = Storage::new(rt.clone(), limits());
        let mode = data_dir.load_mode("topic", 0);
        let opened = Log::open(&storage, rt.dir(DIR), config(), mode).await;
        let error = opened.err().expect("damage").to_string();
        assert!(error.contains("leader-epoch-checkpoint is lost"), "{error}");
    });
}

#[test]
fn given_a_killed_broker_when_its_directory_is_verified_then_nothing_false_is_reported() {
    let mut unfinished = 0;
    for seed in 0..40 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        let life = std::time::Duration::from_micros(10_000 + world.random_below(60_000));
        world.block_on_for(&rt, life, async {
            let (_data_dir, log, _) = open(&rt).await;
            for offset in (0..10_000).step_by(20) {
                produce(&log, offset..offset + 20).await;
                if world.random_below(8) == 0 {
                    log.checkpoint().await.unwrap();
                }
            }
        });
        node.kill();
        let rt = node.restart();
        world.block_on(&rt, async {
            let verify = || async {
                let report = inspect::verify_dir(&rt, Path::new("/data")).await.unwrap();
                assert_eq!(report.problems, [], "seed {seed}");
                report
            };
            let killed = verify().await;
            unfinished += killed.unfinished;
            let (data_dir, log, _) = open(&rt).await;
            stop_cleanly(&data_dir, &log).await;
            let stopped = verify().await;
            assert_eq!((stopped.unfinished, stopped.batches), (0, killed.batches));
        });
    }
    assert!(
        unfinished > 10,
        "{unfinished}: too few were killed in mid-work"
    );
}
