//! What a fetch returns, and what it refuses.

use super::*;
use crate::runtime::SyncSite;
use futures_lite::future::poll_once;

#[test]
fn a_fetch_returns_nothing_beyond_the_high_watermark() {
    for seed in 0..50 {
        let bed = Bed::new(seed);
        let partition = bed.create(config(FlushOnAck::All));
        bed.run(async {
            let all = produce(&partition, batch(&["visible"]), Acks::All);
            all.done.await.expect("acks=all");
            bed.disk()
                .fail_syncs(Some(SyncSite::SegmentFlush), libc::EIO);
            let one = produce(&partition, batch(&["written"]), Acks::Leader);
            one.done.await.expect("written before the flush failed");
            let numbers = partition.numbers();
            assert_eq!((numbers.high_watermark, numbers.end_offset), (1, 2));
            let outcome = partition.fetch(fetch_from(0)).await.expect("a fetch");
            assert_eq!(records_of(&outcome), [(0, b"visible".to_vec())]);
            assert_eq!(outcome.high_watermark, 1);
            assert_eq!(outcome.last_stable_offset, 1);
            assert_eq!(outcome.next_offset, 1);
            assert_eq!(partition.bytes_available(1, Reader::Consumer), Ok(0));
        });
    }
}

#[test]
fn between_the_high_watermark_and_the_leo_a_fetch_is_empty_and_beyond_it_fails() {
    let bed = Bed::new(1);
    let invisible = TopicConfig {
        min_insync_replicas: 2,
        ..config(FlushOnAck::None)
    };
    let partition = bed.open(PartitionOptions {
        replication_factor: 2,
        ..options(&bed.rt, invisible, PartitionLoad::Create)
    });
    bed.run(async {
        let one = produce(&partition, batch(&["a", "b"]), Acks::Leader);
        one.done.await.expect("written");
        for offset in 0..=2 {
            for reader in [Reader::Consumer, Reader::ReadCommitted] {
                let spec = FetchSpec {
                    reader,
                    ..fetch_from(offset)
                };
                let outcome = partition.fetch(spec).await.expect("in the log");
                assert_eq!((outcome.bytes, outcome.next_offset), (0, offset));
                assert!(outcome.slices.is_empty() && outcome.batch_bytes.is_empty());
            }
            assert_eq!(partition.bytes_available(offset, Reader::Consumer), Ok(0));
        }
        for offset in [-1, 3, i64::MAX, i64::MIN] {
            let refused = partition.fetch(fetch_from(offset)).await.unwrap_err();
            assert_eq!(refused, ErrorCode::OffsetOutOfRange);
            let refused = partition.bytes_available(offset, Reader::Consumer);
            assert_eq!(refused, Err(ErrorCode::OffsetOutOfRange));
        }
    });
}

#[test]
fn another_leader_epoch_is_refused() {
    let bed = Bed::new(1);
    let partition = bed.open(PartitionOptions {
        leader_epoch: 4,
        ..options(&bed.rt, config(FlushOnAck::All), PartitionLoad::Create)
    });
    bed.run(async {
        let known = |current_leader_epoch| FetchSpec {
            current_leader_epoch,
            ..fetch_from(0)
        };
        assert!(partition.fetch(known(4)).await.is_ok());
        assert!(partition.fetch(known(-1)).await.is_ok());
        let refused = partition.fetch(known(3)).await.unwrap_err();
        assert_eq!(refused, ErrorCode::FencedLeaderEpoch);
        let refused = partition.fetch(known(5)).await.unwrap_err();
        assert_eq!(refused, ErrorCode::UnknownLeaderEpoch);
        let refused = partition
            .list_offset(LATEST, 3, Reader::Consumer)
            .await
            .unwrap_err();
        assert_eq!(refused, ErrorCode::FencedLeaderEpoch);
    });
}

#[test]
fn batches_carry_the_leader_epoch_and_their_offsets() {
    let bed = Bed::new(1);
    let partition = bed.open(PartitionOptions {
        leader_epoch: 4,
        ..options(&bed.rt, config(FlushOnAck::All), PartitionLoad::Create)
    });
    bed.run(async {
        for _ in 0..3 {
            let all = produce(&partition, batch(&["a", "b"]), Acks::All);
            all.done.await.expect("acks=all");
        }
        let outcome = partition.fetch(fetch_from(3)).await.expect("a fetch");
        let first = outcome.slices[0].slice(..outcome.batch_bytes[0] as usize);
        let view = BatchView::parse(first).expect("a batch");
        assert_eq!(
            (view.header().base_offset, view.header().leader_epoch),
            (2, 4)
        );
        view.validate_crc().expect("the CRC covers neither");
        assert_eq!(outcome.next_offset, 6);
    });
}

#[test]
fn the_size_limit_holds_but_for_one_whole_batch() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        for _ in 0..4 {
            let all = produce(&partition, batch(&[vec![7; 1_000]]), Acks::All);
            all.done.await.expect("acks=all");
        }
        let limited = |bytes_max, whole_first_batch| FetchSpec {
            bytes_max,
            whole_first_batch,
            ..fetch_from(0)
        };
        let batches = |outcome: FetchOutcome| outcome.batch_bytes.len();
        assert_eq!(
            batches(partition.fetch(limited(10, true)).await.unwrap()),
            1
        );
        assert_eq!(
            batches(partition.fetch(limited(10, false)).await.unwrap()),
            0
        );
        let two = partition.fetch(limited(2_500, true)).await.unwrap();
        assert_eq!(two.next_offset, 2);
        assert!(two.bytes <= 2_500);
        assert!(partition.bytes_available(0, Reader::Consumer).unwrap() > 4_000);
    });
}

#[test]
fn a_long_poll_wakes_when_the_bound_moves() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        let mut moved = partition.bound_moved().listen();
        assert_eq!(partition.fetch(fetch_from(0)).await.unwrap().bytes, 0);
        assert!(poll_once(&mut moved).await.is_none());
        let all = produce(&partition, batch(&["a"]), Acks::All);
        moved.await;
        assert!(partition.fetch(fetch_from(0)).await.unwrap().bytes > 0);
        all.done.await.expect("acks=all");
    });
}

/// A log with records of epochs 2 (offsets 0 to 3) and 5 (4 and 5).
fn two_epochs(bed: &Bed) -> Partition {
    let mut closed = None;
    let mut last = None;
    for (leader_epoch, batches) in [(2, 2), (5, 1)] {
        let load = match closed {
            None => PartitionLoad::Create,
            Some(ClosedPartition {
                recovery_point,
                high_watermark,
                log_start,
                ..
            }) => PartitionLoad::Open {
                cleaned_to: None,
                clean: true,
                recovery_point: Some(recovery_point),
                log_start: Some(log_start),
                high_watermark: Some(high_watermark),
            },
        };
        let partition = bed.open(PartitionOptions {
            leader_epoch,
            ..options(&bed.rt, config(FlushOnAck::All), load)
        });
        bed.run(async {
            for _ in 0..batches {
                let all = produce(&partition, batch(&["a", "b"]), Acks::All);
                all.done.await.expect("acks=all");
            }
        });
        if leader_epoch == 2 {
            closed = Some(bed.run(partition.close()).expect("it closes"));
        } else {
            last = Some(partition);
        }
    }
    last.expect("two were opened")
}

#[test]
fn the_end_of_an_epoch_is_the_start_of_the_next_or_the_leo() {
    let bed = Bed::new(1);
    let partition = two_epochs(&bed);
    let end = |epoch, current| {
        let end = partition.epoch_end(epoch, current)?;
        Ok(end.map(|end| (end.epoch, end.end_offset)))
    };
    assert_eq!(end(5, -1), Ok(Some((5, 6))));
    assert_eq!(end(4, 5), Ok(Some((2, 4))));
    assert_eq!(end(2, 5), Ok(Some((2, 4))));
    assert_eq!(end(1, 5), Ok(Some((1, 0))));
    assert_eq!(end(6, 5), Ok(None));
    assert_eq!(end(-1, 5), Ok(None));
    assert_eq!(end(5, 4), Err(ErrorCode::FencedLeaderEpoch));
    assert_eq!(end(5, 6), Err(ErrorCode::UnknownLeaderEpoch));
}

#[test]
fn a_reader_whose_log_has_parted_is_told_where_and_reads_nothing() {
    let bed = Bed::new(1);
    let partition = two_epochs(&bed);
    bed.run(async {
        let fetch = |offset, last_fetched_epoch| {
            partition.fetch(FetchSpec {
                last_fetched_epoch,
                ..fetch_from(offset)
            })
        };
        // It has what this log has.
        for (offset, epoch) in [(4, 2), (3, 2), (6, 5), (0, 5), (0, -1)] {
            let outcome = fetch(offset, epoch).await.expect("no error");
            assert_eq!(outcome.diverging, None, "{offset} of {epoch}");
            assert_eq!(outcome.bytes > 0, offset < 6);
        }
        // It has more of an epoch, or an epoch that is unknown here; even offsets
        // beyond the log.
        for (offset, epoch, end) in [
            (5, 2, (2, 4)),
            (99, 2, (2, 4)),
            (4, 3, (2, 4)),
            (7, 5, (5, 6)),
            (0, 1, (1, 0)),
        ] {
            let outcome = fetch(offset, epoch).await.expect("no error");
            let found = outcome.diverging.map(|end| (end.epoch, end.end_offset));
            let parts = epoch != 1;
            assert_eq!(found, parts.then_some(end), "{offset} of {epoch}");
            if parts {
                assert_eq!((outcome.bytes, outcome.high_watermark), (0, 6));
            }
        }
        let unknown = fetch(6, 6).await.unwrap_err();
        assert_eq!(unknown, ErrorCode::OffsetOutOfRange);
    });
}

#[test]
fn looking_says_what_a_fetch_says_without_reading() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        let all = produce(&partition, batch(&["a"]), Acks::All);
        all.done.await.expect("acks=all");
        let looked = partition.look(&fetch_from(0)).expect("in the log");
        assert_eq!((looked.high_watermark, looked.bytes), (1, 0));
        assert!(!looked.reaches_bound && looked.slices.is_empty());
        assert!(partition.look(&fetch_from(1)).unwrap().reaches_bound);
        let refused = partition.look(&fetch_from(2)).unwrap_err();
        assert_eq!(refused, ErrorCode::OffsetOutOfRange);
        let read = partition.fetch(fetch_from(0)).await.expect("a fetch");
        assert!(read.reaches_bound);
        let numbers = partition.numbers();
        assert_eq!(numbers.last_stable_offset, numbers.high_watermark);
    });
}

#[test]
fn without_room_for_a_batch_the_disk_is_left_alone() {
    let mut bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        let all = produce(&partition, batch(&["a"]), Acks::All);
        all.done.await.expect("acks=all");
    });
    bed.node.crash();
    let partition = bed.reopen_unclean(config(FlushOnAck::All));
    let before = bed.disk().read_count();
    bed.run(async {
        for bytes_max in [0, 60] {
            let none = FetchSpec {
                bytes_max,
                whole_first_batch: false,
                ..fetch_from(0)
            };
            let outcome = partition.fetch(none).await.expect("a fetch");
            assert_eq!((outcome.bytes, outcome.reaches_bound), (0, false));
        }
        assert_eq!(bed.disk().read_count(), before);
        assert!(partition.fetch(fetch_from(0)).await.unwrap().bytes > 0);
    });
    assert!(bed.disk().read_count() > before, "it was cold");
}

/// `log.read.check.crcs` is off: consumers check what they get. Who demands a look gets one, also
/// of what others have brought into the cache, and the partition is given up.
#[test]
fn given_damage_when_a_reader_demands_crcs_then_it_is_not_served_whatever_the_setting_is() {
    type Demand = fn(FetchSpec) -> FetchSpec;
    let demands: [Demand; 2] = [
        |spec| FetchSpec {
            reader: Reader::Replica,
            ..spec
        },
        |spec| FetchSpec {
            check_crc: true,
            ..spec
        },
    ];
    for demand in demands {
        for cached in [false, true] {
            let mut bed = Bed::new(1);
            let partition = bed.create(config(FlushOnAck::All));
            let closed = bed.run(async {
                for value in ["good", "damaged"] {
                    let all = produce(&partition, batch(&[value]), Acks::All);
                    all.done.await.expect("acks=all");
                }
                partition.close().await.expect("it closes")
            });
            bed.node.kill();
            bed.rt = bed.node.restart();
            bed.storage = storage(&bed.rt);
            let partition = bed.reload(config(FlushOnAck::All), true, Some(closed));
            // Behind the back of the load, which reads so little itself.
            let log = "/data/orders-3/00000000000000000000.log";
            let bytes = bed.disk().read_raw(log).expect("it is there");
            let at = bytes.windows(7).position(|w| w == b"damaged");
            let at = at.expect("its value") as u64;
            bed.disk().corrupt(log, at, b"D");
            assert_ne!(bed.disk().read_raw(log), Some(bytes));
            assert!(!partition.0.config.borrow().check_crc_on_read);
            bed.run(async {
                if cached {
                    // A small read leaves what it does not take in the cache.
                    let first = FetchSpec {
                        bytes_max: 1,
                        ..fetch_from(0)
                    };
                    let read = partition.fetch(first).await.expect("it is good");
                    assert_eq!(read.next_offset, 1);
                    let before = bed.disk().read_count();
                    let served = partition.fetch(fetch_from(1)).await.expect("as it is");
                    assert!(served.slices.concat().windows(7).any(|w| w == b"Damaged"));
                    assert_eq!(bed.disk().read_count(), before, "it was in the cache");
                }
                let before = bed.disk().read_count();
                let code = partition.fetch(demand(fetch_from(1))).await.unwrap_err();
                assert_eq!(code, ErrorCode::KafkaStorageError);
                assert!(bed.disk().read_count() > before, "the disk is asked again");
            });
            assert_eq!(partition.state(), PartitionState::Offline);
        }
    }
}
