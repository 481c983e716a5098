//! Full disks, short writes, failed devices: who is told what, and what goes on.

use super::*;
use crate::runtime::sim::WriteFault;
use crate::runtime::SyncSite;
use crate::storage::{CheckpointError, FlushError};

const STORAGE_ERROR: Result<(), ErrorCode> = Err(ErrorCode::KafkaStorageError);

#[test]
fn a_failed_write_fails_its_batches_and_all_queued_behind_and_then_goes_on() {
    let faults = [
        WriteFault::Errno(libc::ENOSPC),
        WriteFault::Short,
        WriteFault::Errno(libc::EMFILE),
    ];
    for (seed, fault) in (0..60).zip(faults.into_iter().cycle()) {
        let bed = Bed::new(seed);
        let partition = bed.create(config(FlushOnAck::All));
        bed.run(async {
            let kept = produce(&partition, batch(&["kept"]), Acks::All);
            kept.done.await.expect("before the fault");
            bed.disk().fail_nth_write(1, fault);
            let mut tickets = vec![produce(&partition, batch(&[vec![1; 9_000]]), Acks::Leader)];
            for _ in 0..bed.world.random_below(3) {
                bed.rt.yield_if_needed().await;
            }
            for i in 0..20 {
                let acks = [Acks::All, Acks::Leader, Acks::None][i % 3];
                tickets.push(produce(&partition, batch(&["lost"]), acks));
            }
            for ticket in tickets {
                assert_eq!(ticket.done.await, STORAGE_ERROR);
            }
            assert_eq!(bed.disk().faults_fired(), 1, "the write failed");
            let numbers = partition.numbers();
            assert_eq!((numbers.end_offset, numbers.next_offset), (1, 1));
            let refused = partition.produce_now(batch(&["x"]), Acks::All, NOW_MS, None);
            assert_eq!(refused.unwrap_err().code, ErrorCode::KafkaStorageError);
            assert_eq!(read_all(&partition).await.len(), 1, "reads go on");

            eventually(&bed.rt, "rebuilt", || {
                partition.state() == PartitionState::Online
            })
            .await;
            let next = produce(&partition, batch(&["next"]), Acks::All);
            assert_eq!(
                next.base_offset, 1,
                "the offsets of failed batches are free"
            );
            next.done.await.expect("after the rebuild");
            let values: Vec<_> = read_all(&partition).await;
            assert_eq!(values, [(0, b"kept".to_vec()), (1, b"next".to_vec())]);
        });
    }
}

#[test]
fn the_log_before_a_rebuild_writes_nothing_beside_the_new_one() {
    for seed in 0..20 {
        let bed = Bed::new(seed);
        let config = TopicConfig {
            segment_bytes: 4_000,
            ..config(FlushOnAck::All)
        };
        let partition = bed.create(config);
        bed.run(async {
            let tickets: Vec<_> = (0..9u8)
                .map(|i| produce(&partition, batch(&[vec![i; 3_000]]), Acks::All))
                .collect();
            for ticket in tickets {
                ticket.done.await.expect("before the fault");
            }
            // Sealing goes on in the background.
            bed.disk().fail_writes(".log", WriteFault::Short);
            let lost = produce(&partition, batch(&["lost"]), Acks::All);
            assert_eq!(lost.done.await, STORAGE_ERROR);
            assert!(bed.disk().faults_fired() > 0, "the write failed");
            bed.disk().clear_faults();
            let old = partition.0.log();
            eventually(&bed.rt, "rebuilt", || {
                partition.state() == PartitionState::Online
            })
            .await;
            assert!(old.flush().await.is_err() && old.checkpoint().await.is_err());
            let next = produce(&partition, batch(&["next"]), Acks::All);
            next.done.await.expect("after the rebuild");
            partition.checkpoint().await.expect("a checkpoint");
            assert_no_hole(&read_all(&partition).await);
        });
    }
}

#[test]
fn a_full_disk_loses_nothing_acknowledged_and_heals_when_space_returns() {
    for seed in 0..30 {
        let mut bed = Bed::new(seed);
        let config = TopicConfig {
            segment_bytes: 100 << 10,
            ..config(FlushOnAck::All)
        };
        let partition = bed.create(config.clone());
        bed.disk()
            .set_capacity(bed.disk().used_bytes() + (300 << 10));
        let value = |n: u32| {
            let mut value = vec![0; 5_000];
            value[..4].copy_from_slice(&n.to_be_bytes());
            value
        };
        let acked = bed.run(async {
            let mut acked: Vec<(i64, Vec<u8>)> = Vec::new();
            let mut failed = 0;
            let mut n = 0;
            while failed < 20 {
                let sent: Vec<_> = (0..4)
                    .filter_map(|_| {
                        n += 1;
                        let records = batch(&[value(n)]);
                        let ticket = partition.produce_now(records, Acks::All, NOW_MS, None);
                        match ticket {
                            Ok(ticket) => Some((value(n), ticket)),
                            Err(error) => {
                                assert_eq!(error.code, ErrorCode::KafkaStorageError);
                                failed += 1;
                                None
                            }
                        }
                    })
                    .collect();
                for (value, ticket) in sent {
                    match ticket.done.await {
                        Ok(()) => acked.push((ticket.base_offset, value)),
                        Err(code) => {
                            assert_eq!(code, ErrorCode::KafkaStorageError);
                            failed += 1;
                        }
                    }
                }
                bed.rt.sleep(Duration::from_millis(20)).await;
            }
            assert!(bed.disk().faults_fired() > 0, "the disk was full");
            assert!(acked.len() > 10, "some were written before");
            assert_ne!(partition.state(), PartitionState::Offline);
            bed.disk().set_capacity(64 << 20);
            eventually(&bed.rt, "rebuilt", || {
                partition.state() == PartitionState::Online
            })
            .await;
            n += 1;
            let next = produce(&partition, batch(&[value(n)]), Acks::All);
            next.done.await.expect("space has returned");
            acked.push((next.base_offset, value(n)));
            acked
        });
        drop(partition);
        bed.node.kill();
        let partition = bed.reopen_unclean(config);
        let records = bed.run(read_all(&partition));
        assert_no_hole(&records);
        for (offset, value) in acked {
            assert_eq!(records[offset as usize].1, value, "offset {offset}");
        }
    }
}

#[test]
fn a_failed_device_takes_the_partition_offline_and_is_reported_once() {
    for site in ["write", "flush"] {
        let bed = Bed::new(5);
        let partition = bed.create(config(FlushOnAck::All));
        let reports = Rc::new(Cell::new(0));
        let counter = reports.clone();
        partition.on_device_error(move |id, reason| {
            assert_eq!(id.index, 3);
            assert!(!reason.is_empty());
            counter.set(counter.get() + 1);
        });
        bed.run(async {
            let kept = produce(&partition, batch(&["kept"]), Acks::All);
            kept.done.await.expect("before the fault");
            match site {
                "write" => bed.disk().fail_writes(".log", WriteFault::Errno(libc::EIO)),
                _ => bed
                    .disk()
                    .fail_syncs(Some(SyncSite::SegmentFlush), libc::EIO),
            }
            let lost = produce(&partition, batch(&["lost"]), Acks::All);
            assert_eq!(lost.done.await, STORAGE_ERROR);
            assert!(bed.disk().faults_fired() > 0, "the device failed at {site}");
            assert_eq!(partition.state(), PartitionState::Offline);
            bed.disk().clear_faults();
            bed.rt.sleep(Duration::from_secs(60)).await;
            let refused = partition.produce_now(batch(&["x"]), Acks::Leader, NOW_MS, None);
            assert_eq!(refused.unwrap_err().code, ErrorCode::KafkaStorageError);
            let read = partition.fetch(fetch_from(0)).await;
            assert_eq!(read.unwrap_err(), ErrorCode::KafkaStorageError);
            assert!(matches!(
                partition.close().await,
                Err(CloseError::NotOnline(_))
            ));
        });
        assert_eq!(reports.get(), 1);
        assert_eq!(bed.disk().in_flight_count(), 0);
    }
}

#[test]
fn flushed_data_that_cannot_be_read_takes_this_replica_alone_offline() {
    let bed = Bed::new(5);
    let partition = bed.create(config(FlushOnAck::All));
    let closed = bed.run(async {
        let kept = produce(&partition, batch(&["kept"]), Acks::All);
        kept.done.await.expect("written");
        partition.close().await.expect("a clean stop")
    });
    let partition = bed.reload(config(FlushOnAck::All), true, Some(closed));
    let reported = Rc::new(Cell::new(false));
    let flag = reported.clone();
    partition.on_device_error(move |_, _| flag.set(true));
    bed.disk().fail_reads(".log", libc::EIO);
    bed.run(async {
        let read = partition.fetch(fetch_from(0)).await;
        assert!(bed.disk().faults_fired() > 0, "the read failed");
        assert_eq!(read.unwrap_err(), ErrorCode::KafkaStorageError);
    });
    assert_eq!(partition.state(), PartitionState::Offline);
    assert!(!reported.get(), "the directory stays online");
}

#[test]
fn a_partition_that_is_offline_holds_no_memory_once_it_is_closed() {
    let bed = Bed::new(6);
    let partition = bed.create(config(FlushOnAck::All));
    let cached = || bed.storage.memory().map(|(_, taken, _)| taken)[2];
    bed.run(async {
        let kept = produce(&partition, batch(&["kept"]), Acks::All);
        kept.done.await.expect("written");
        assert!(cached() > 0, "what was written is in the cache");
        partition.take_offline("a read failed");
        assert!(cached() > 0, "readers may be at it");
        let closed = partition.close().await;
        assert!(matches!(closed, Err(CloseError::NotOnline(_))));
    });
    assert_eq!(cached(), 0);
}

#[test]
fn a_damaged_batch_on_disk_takes_this_replica_offline() {
    let bed = Bed::new(5);
    let partition = bed.create(config(FlushOnAck::All));
    let closed = bed.run(async {
        let kept = produce(&partition, batch(&["kept"]), Acks::All);
        kept.done.await.expect("written");
        partition.close().await.expect("a clean stop")
    });
    let partition = bed.reload(config(FlushOnAck::All), true, Some(closed));
    let (log, _) = bed.disk().list_raw("/data/orders-3")[0..]
        .iter()
        .find(|(path, _)| path.extension().is_some_and(|e| e == "log"))
        .cloned()
        .expect("a segment");
    // The magic byte.
    bed.disk().corrupt(&log, 16, &[9]);
    let read = bed.run(partition.fetch(fetch_from(0)));
    assert_eq!(read.unwrap_err(), ErrorCode::KafkaStorageError);
    assert_eq!(partition.state(), PartitionState::Offline);
}

/// What is written in the background has nobody to tell; the next who writes is told, and
/// takes nothing for a fence that a rebuild heals.
#[test]
fn a_device_that_fails_while_a_segment_is_sealed_is_reported_by_the_next_write() {
    let bed = Bed::new(5);
    let partition = bed.create(TopicConfig {
        segment_bytes: 4_000,
        ..config(FlushOnAck::All)
    });
    let reports = Rc::new(Cell::new(0));
    let counter = reports.clone();
    partition.on_device_error(move |_, _| counter.set(counter.get() + 1));
    bed.run(async {
        bed.disk().fail_syncs(Some(SyncSite::Index), libc::EIO);
        let value = "v".repeat(1_000);
        let mut refused = None;
        for _ in 0..20 {
            let one = produce(&partition, batch(&[&value]), Acks::All);
            refused = one.done.await.err();
            if refused.is_some() {
                break;
            }
            bed.rt.sleep(Duration::from_secs(1)).await;
        }
        assert!(bed.disk().faults_fired() > 0, "sealing met the fault");
        assert_eq!(refused, STORAGE_ERROR.err());
        bed.disk().clear_faults();
        bed.rt.sleep(Duration::from_secs(60)).await;
        assert_eq!(partition.state(), PartitionState::Offline);
    });
    assert_eq!(reports.get(), 1);
}

#[test]
fn a_partition_taken_offline_answers_all_who_wait() {
    let bed = Bed::new(5);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        let moved = partition.bound_moved().listen();
        let waiting = produce(&partition, batch(&["a"]), Acks::All);
        partition.take_offline("the data directory is offline");
        moved.await;
        assert_eq!(waiting.done.await, STORAGE_ERROR);
        let refused = partition.produce_now(batch(&["x"]), Acks::Leader, NOW_MS, None);
        assert!(refused.unwrap_err().message.contains("data directory"));
        // Nothing is made durable, sealed or compacted where a device has failed.
        let log = partition.0.log();
        assert!(matches!(log.flush().await, Err(FlushError::Fenced(_))));
        assert!(matches!(
            log.checkpoint().await,
            Err(CheckpointError::Flush(FlushError::Fenced(_)))
        ));
        // The write that was in flight ends and changes nothing any more.
        bed.rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(partition.state(), PartitionState::Offline);
        assert_eq!(partition.numbers().high_watermark, 0);
    });
}

#[test]
fn a_device_that_fails_during_the_rebuild_takes_the_partition_offline() {
    let bed = Bed::new(5);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        let kept = produce(&partition, batch(&["kept"]), Acks::All);
        kept.done.await.expect("before the fault");
        bed.disk()
            .fail_nth_write(1, WriteFault::Errno(libc::ENOSPC));
        bed.disk().fail_reads(".log", libc::EIO);
        let lost = produce(&partition, batch(&["lost"]), Acks::All);
        assert_eq!(lost.done.await, STORAGE_ERROR);
        eventually(&bed.rt, "offline", || {
            partition.state() == PartitionState::Offline
        })
        .await;
        assert!(bed.disk().faults_fired() > 1, "write and read failed");
    });
}

#[test]
fn closing_does_not_wait_for_a_rebuild_that_waits_for_space() {
    let bed = Bed::new(5);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        bed.disk().fail_writes(".log", WriteFault::Short);
        // Each failure makes the next rebuild wait longer.
        for _ in 0..6 {
            eventually(&bed.rt, "online", || {
                partition.state() == PartitionState::Online
            })
            .await;
            let lost = produce(&partition, batch(&["lost"]), Acks::All);
            assert_eq!(lost.done.await, STORAGE_ERROR);
        }
        let before = bed.rt.now();
        let closed = partition.close().await;
        assert!(matches!(closed, Err(CloseError::NotOnline(_))));
        assert!(bed.rt.now().since(before) < Duration::from_secs(1));
    });
    assert_eq!(bed.disk().in_flight_count(), 0);
}
