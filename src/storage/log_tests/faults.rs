//! Failing devices: what the log refuses, and what stays readable.

use super::{batch, create, limits, DIR};
use crate::runtime::sim::{World, WriteFault};
use crate::runtime::{Queue, SyncSite};
use crate::storage::{
    AppendError, CheckpointError, FlushError, Log, LogBatch, LogConfig, ReadError, RetireError,
    StorageLimits,
};
use std::time::Duration;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn cold() -> StorageLimits {
    StorageLimits {
        cache_bytes: 0,
        ..limits()
    }
}

async fn append_one(log: &Log) -> Result<(), AppendError> {
    log.append(&[batch(log.end_offset(), 1, 3_000, 0)]).await
}

#[test]
fn a_failed_write_moves_nothing_and_fences_appends() {
    let faults = [
        WriteFault::Errno(ENOSPC),
        WriteFault::Errno(EIO),
        WriteFault::Short,
    ];
    for (i, fault) in faults.into_iter().enumerate() {
        let world = World::new(i as u64);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let log = create(&rt, DIR, cold(), LogConfig::default()).await;
            append_one(&log).await.unwrap();
            node.disk().fail_nth_write(1, fault);
            let error = append_one(&log).await.unwrap_err();
            assert_eq!(node.disk().faults_fired(), 1);
            match fault {
                WriteFault::Errno(ENOSPC) => assert!(matches!(error, AppendError::NoSpace(_))),
                WriteFault::Errno(_) => assert!(matches!(error, AppendError::Device(_))),
                WriteFault::Short => assert!(matches!(error, AppendError::ShortWrite(_))),
            }
            let writes = node.disk().write_count();
            let again = append_one(&log).await.unwrap_err();
            assert!(matches!(again, AppendError::Fenced(_)));
            assert_eq!(node.disk().write_count(), writes);
            assert_eq!(log.end_offset(), 1);
            assert_eq!(log.flush().await.unwrap(), 1, "what was written stays");
            assert_eq!(log.read(0, 9, 1, true).await.unwrap().next_offset, 1);
            let closed = log.close().await.unwrap_err();
            assert!(matches!(closed, CheckpointError::Fenced(_)));
        });
    }
}

#[test]
fn a_failure_after_a_roll_shows_nothing_of_the_append() {
    let world = World::new(4);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let config = LogConfig {
            segment_bytes: 4_000,
            ..LogConfig::default()
        };
        let log = create(&rt, DIR, limits(), config).await;
        node.disk().fail_nth_write(2, WriteFault::Errno(ENOSPC));
        let both = [batch(0, 1, 3_000, 0), batch(1, 1, 3_000, 0)];
        assert!(log.append(&both).await.is_err());
        assert_eq!(node.disk().faults_fired(), 1);
        assert_eq!((log.end_offset(), log.segment_count()), (0, 1));
        assert_eq!(log.size_bytes(), 0);
        assert_eq!(log.read(0, 9, 1, true).await.unwrap().bytes, 0);
    });
}

#[test]
fn a_failed_flush_is_never_tried_again() {
    let sites = [
        SyncSite::SegmentFlush,
        SyncSite::SegmentCreate,
        SyncSite::SegmentSeal,
        SyncSite::Index,
        SyncSite::ProducerSnapshot,
        SyncSite::PartitionDir,
    ];
    for site in sites {
        let world = World::new(5);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let config = LogConfig {
                segment_bytes: 4_000,
                ..LogConfig::default()
            };
            let log = create(&rt, DIR, limits(), config).await;
            append_one(&log).await.unwrap();
            append_one(&log).await.unwrap();
            node.disk().fail_nth_sync(Some(site), 1, EIO);
            let point = log.recovery_point();
            match log.flush().await {
                Err(error) => {
                    assert!(matches!(error, FlushError::Device(_)), "{site:?}: {error}");
                    assert!(log.flushed_offset() < 2);
                }
                Ok(flushed) => {
                    assert_eq!(flushed, 2);
                    // What follows in the background failed: the next flush tells.
                    rt.sleep(Duration::from_millis(100)).await;
                    let told = log.flush().await.unwrap_err();
                    assert!(matches!(told, FlushError::Device(_)), "{site:?}: {told}");
                }
            }
            assert_eq!(node.disk().faults_fired(), 1, "{site:?}");
            assert_eq!(log.recovery_point(), point);
            let again = log.flush().await.unwrap_err();
            assert!(matches!(again, FlushError::Fenced(_)));
            let append = append_one(&log).await.unwrap_err();
            assert!(matches!(append, AppendError::Fenced(_)));
            assert!(log.checkpoint().await.is_err());
            assert!(log.close().await.is_err());
        });
    }
}

#[test]
fn damage_and_device_errors_are_told_apart_when_read() {
    let world = World::new(6);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let log = create(&rt, DIR, cold(), LogConfig::default()).await;
        for _ in 0..4 {
            append_one(&log).await.unwrap();
        }
        let segment = format!("{DIR}/{:020}.log", 0);
        node.disk().fail_reads(".log", EIO);
        let error = log.read(0, 4, 1, true).await.unwrap_err();
        assert_eq!(node.disk().faults_fired(), 1);
        assert!(matches!(error, ReadError::Device(_)));
        node.disk().clear_faults();
        assert!(log.read(0, 4, 1, true).await.is_ok());

        let header = 3_061;
        let whole = node.disk().read_raw(&segment).unwrap();
        let damages: [(u64, &[u8]); 5] = [
            (0, &[0x7F]),
            (7, &[0]),
            (8, &[0x7F, 0xFF, 0xFF, 0xFF]),
            (16, &[1]),
            (23, &[0, 0, 1, 0]),
        ];
        for (at, bytes) in damages {
            node.disk().corrupt(&segment, header + at, bytes);
            let error = log.read(1, 4, 1, true).await.unwrap_err();
            assert!(
                matches!(
                    error,
                    ReadError::Corrupt {
                        position: 3_061,
                        ..
                    }
                ),
                "{at}: {error}"
            );
            node.disk().corrupt(&segment, 0, &whole);
            assert!(log.read(1, 4, 1, true).await.is_ok());
        }
    });
}

#[test]
fn a_dropped_append_fences_the_log() {
    let world = World::new(7);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let log = create(&rt, DIR, limits(), LogConfig::default()).await;
        let mut append = Box::pin(append_one(&log));
        assert!(futures_lite::future::poll_once(append.as_mut())
            .await
            .is_none());
        drop(append);
        let error = append_one(&log).await.unwrap_err();
        assert!(matches!(error, AppendError::Fenced(_)));
        // Nobody learns when the write ends: no other log may be loaded here.
        assert!(node.disk().in_flight_count() > 0, "it is under way");
        assert_eq!(log.retire().await, Err(RetireError::WriteLost));
        assert_eq!(log.retire().await, Err(RetireError::WriteLost));
    });
}

#[test]
fn an_append_dropped_before_its_write_began_loses_none() {
    let world = World::new(7);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let log = create(&rt, DIR, limits(), LogConfig::default()).await;
        let alone = log.0.gate.exclusive().await.unwrap();
        let mut append = Box::pin(append_one(&log));
        assert!(futures_lite::future::poll_once(append.as_mut())
            .await
            .is_none());
        drop(append);
        drop(alone);
        assert_eq!(node.disk().in_flight_count(), 0);
        assert_eq!(log.retire().await, Ok(()));
    });
}

#[test]
fn a_failed_truncation_leaves_nothing_that_claims_to_be_durable() {
    let sites = [
        SyncSite::TruncateRemove,
        SyncSite::Truncate,
        SyncSite::Index,
        SyncSite::EpochCheckpoint,
    ];
    for site in sites {
        let world = World::new(5);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let config = LogConfig {
                segment_bytes: 10_000,
                ..LogConfig::default()
            };
            let log = create(&rt, DIR, cold(), config).await;
            for _ in 0..8 {
                append_one(&log).await.unwrap();
            }
            log.checkpoint().await.unwrap();
            node.disk().fail_nth_sync(Some(site), 1, ENOSPC);
            log.truncate_to(2).await.unwrap_err();
            assert_eq!(node.disk().faults_fired(), 1, "{site:?}");
            node.disk().clear_faults();
            let numbers = (log.end_offset(), log.flushed_offset(), log.recovery_point());
            assert_eq!(numbers, (2, 2, 2), "{site:?}");
            assert!(log.flush().await.is_err(), "{site:?}");
            assert!(log.flush().await.is_err(), "{site:?}");
            assert!(append_one(&log).await.is_err(), "{site:?}");
            // What would be nothing to do is no success either.
            assert!(log.truncate_to(5).await.is_err(), "{site:?}");
            assert!(log.checkpoint().await.is_err(), "{site:?}");
            let read = log.read(0, 2, 1 << 20, true).await.unwrap();
            assert_eq!(read.next_offset, 2, "{site:?}");
            assert!(log.close().await.is_err(), "{site:?}");
        });
    }
}

/// Flushes, sealing and a checkpoint are under way, and more of them are waiting.
#[test]
fn a_retired_log_writes_nothing_more_and_is_read_on() {
    let mut busy = 0;
    for seed in 0..40 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let config = LogConfig {
                segment_bytes: 4_000,
                ..LogConfig::default()
            };
            let log = create(&rt, DIR, cold(), config).await;
            for _ in 0..10 {
                append_one(&log).await.unwrap();
            }
            log.flush().await.unwrap();
            for _ in 0..3 {
                append_one(&log).await.unwrap();
            }
            for _ in 0..2 {
                let (flushed, checkpointed) = (log.clone(), log.clone());
                rt.spawn(Queue::Latency, async move {
                    let _refused_or_done = flushed.flush().await;
                });
                rt.spawn(Queue::Background, async move {
                    let _refused_or_done = checkpointed.checkpoint().await;
                });
            }
            let wait_us = world.random_below(600);
            rt.sleep(Duration::from_micros(wait_us)).await;
            busy += usize::from(node.disk().in_flight_count() > 0);

            log.retire().await.unwrap();
            assert_eq!(node.disk().in_flight_count(), 0, "seed {seed}");
            let files = node.disk().list_raw(DIR);
            let counts = || {
                let disk = node.disk();
                let syncs = [
                    SyncSite::SegmentFlush,
                    SyncSite::PartitionDir,
                    SyncSite::Index,
                ];
                (disk.write_count(), syncs.map(|site| disk.sync_count(site)))
            };
            let before = counts();
            rt.sleep(Duration::from_secs(1)).await;
            assert!(append_one(&log).await.is_err());
            assert!(log.flush().await.is_err());
            assert!(log.checkpoint().await.is_err());
            assert!(log.truncate_to(1).await.is_err());
            assert_eq!(log.read(5, 13, 1, true).await.unwrap().next_offset, 6);
            assert!(log.close().await.is_err());
            assert_eq!(counts(), before, "seed {seed}");
            assert_eq!(node.disk().list_raw(DIR), files, "seed {seed}");
        });
    }
    assert!(busy > 10, "I/O was under way when the log was retired");
}

#[test]
fn batches_out_of_order_are_refused_without_harm() {
    let world = World::new(8);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let log = create(&rt, DIR, limits(), LogConfig::default()).await;
        append_one(&log).await.unwrap();
        // Below the end, and past it: a load would take a gap for the end of the log.
        let refused: [(&[LogBatch], i64, i64); 3] = [
            (&[batch(0, 1, 10, 0)], 1, 0),
            (&[batch(2, 1, 10, 0)], 1, 2),
            (&[batch(1, 1, 10, 0), batch(3, 1, 10, 0)], 2, 3),
        ];
        for (batches, wanted, given) in refused {
            let error = log.append(batches).await.unwrap_err();
            let AppendError::OutOfOrder { expected, got } = error else {
                panic!("{error}");
            };
            assert_eq!((expected, got), (wanted, given));
        }
        append_one(&log).await.unwrap();
        assert_eq!(log.end_offset(), 2);
    });
}

#[test]
fn a_checkpoint_without_space_may_be_tried_again() {
    for site in [
        SyncSite::Index,
        SyncSite::EpochCheckpoint,
        SyncSite::ProducerSnapshot,
    ] {
        let world = World::new(9);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let config = LogConfig {
                segment_bytes: 4_000,
                ..LogConfig::default()
            };
            let log = create(&rt, DIR, limits(), config).await;
            append_one(&log).await.unwrap();
            append_one(&log).await.unwrap();
            // Both the sealing in the background and the checkpoint meet it.
            node.disk().fail_syncs(Some(site), ENOSPC);
            log.flush().await.unwrap();
            rt.sleep(Duration::from_millis(100)).await;
            assert_eq!(node.disk().faults_fired(), 1, "{site:?}");
            let error = log.checkpoint().await.unwrap_err();
            assert!(matches!(error, CheckpointError::Io(_)), "{error}");
            assert_eq!(log.recovery_point(), 0);
            append_one(&log).await.unwrap();
            log.flush().await.unwrap();
            node.disk().clear_faults();
            assert_eq!(log.checkpoint().await.unwrap(), 3);
            assert_eq!(log.close().await.unwrap(), 3);
        });
    }
}
