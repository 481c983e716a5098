//! Idempotent producers on a partition: a batch that is sent again while its original is
//! queued, unflushed, failed or long written.

use super::*;
use crate::runtime::sim::WriteFault;
use crate::runtime::SyncSite;
use futures_lite::future::poll_once;

/// A batch of `records` records of producer 9.
fn produced(epoch: i16, sequence: i32, records: usize) -> Bytes {
    let mut builder = BatchBuilder::new().producer(9, epoch, sequence);
    for n in 0..records {
        let value = format!("{epoch}-{}", sequence as usize + n);
        builder.push(NOW_MS, None, Some(value.as_bytes()));
    }
    builder.build()
}

fn refusal(partition: &Partition, records: Bytes) -> ErrorCode {
    let refused = partition.produce_now(records, Acks::All, NOW_MS, None);
    let error = refused.expect_err("it is refused");
    assert!(!error.message.is_empty());
    error.code
}

#[test]
fn given_an_original_that_is_queued_when_it_is_sent_again_then_both_wait_for_the_same_write() {
    for seed in 0..20 {
        let bed = Bed::new(seed);
        let partition = bed.create(config(FlushOnAck::All));
        bed.run(async {
            let first = produce(&partition, produced(0, 0, 3), Acks::All);
            let second = produce(&partition, produced(0, 3, 2), Acks::Leader);
            let again = [
                produce(&partition, produced(0, 0, 3), Acks::All),
                produce(&partition, produced(0, 3, 2), Acks::Leader),
            ];
            assert_eq!(partition.numbers().end_offset, 0, "nothing is written yet");
            assert_eq!(again.each_ref().map(|t| t.base_offset), [0, 3]);
            let [mut all, leader] = again;
            assert_eq!(poll_once(&mut all.done).await, None, "it waits");
            leader.done.await.expect("written");
            assert!(partition.numbers().end_offset >= 5);
            all.done.await.expect("flushed");
            assert!(partition.numbers().high_watermark >= 3);
            first.done.await.expect("answered");
            second.done.await.expect("answered");
            assert_eq!(partition.numbers().next_offset, 5);
            assert_eq!(read_all(&partition).await.len(), 5);
        });
    }
}

#[test]
fn given_an_original_that_is_not_flushed_when_it_is_sent_again_then_acks_all_waits_for_the_flush() {
    let mut waited = 0;
    for seed in 0..30 {
        let bed = Bed::new(seed);
        let partition = bed.create(config(FlushOnAck::All));
        bed.run(async {
            let first = produce(&partition, produced(0, 0, 1), Acks::Leader);
            first.done.await.expect("written");
            let before = partition.numbers();
            let leader = produce(&partition, produced(0, 0, 1), Acks::Leader);
            leader.done.await.expect("it is written already");
            let mut all = produce(&partition, produced(0, 0, 1), Acks::All);
            if before.flushed_offset == 0 {
                waited += 1;
                assert_eq!(poll_once(&mut all.done).await, None, "it waits");
            }
            all.done.await.expect("flushed");
            assert_eq!(partition.numbers().high_watermark, 1);
            // And once everything is reached, at once.
            let mut late = produce(&partition, produced(0, 0, 1), Acks::All);
            assert_eq!(poll_once(&mut late.done).await, Some(Ok(())));
        });
    }
    assert!(waited > 0, "no flush was under way");
}

#[test]
fn given_a_flush_that_fails_when_an_unflushed_batch_is_sent_again_then_it_is_not_acknowledged() {
    let bed = Bed::new(3);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        bed.disk()
            .fail_syncs(Some(SyncSite::SegmentFlush), libc::EIO);
        let first = produce(&partition, produced(0, 0, 1), Acks::Leader);
        first.done.await.expect("written");
        let again = partition.produce_now(produced(0, 0, 1), Acks::All, NOW_MS, None);
        let answer = match again {
            Ok(ticket) => ticket.done.await,
            Err(error) => Err(error.code),
        };
        assert_eq!(answer, Err(ErrorCode::KafkaStorageError));
        assert!(bed.disk().faults_fired() > 0, "the flush failed");
    });
}

#[test]
fn given_a_write_that_failed_when_the_batches_are_sent_again_then_they_are_new() {
    for seed in 0..30 {
        let bed = Bed::new(seed);
        let partition = bed.create(config(FlushOnAck::All));
        bed.run(async {
            let kept = produce(&partition, produced(0, 0, 2), Acks::All);
            kept.done.await.expect("before the fault");
            bed.disk()
                .fail_nth_write(1, WriteFault::Errno(libc::ENOSPC));
            let lost: Vec<ProduceTicket> = (1..4)
                .map(|n| produce(&partition, produced(0, 2 * n, 2), Acks::All))
                .collect();
            // A retry shares its original's lot.
            let again = produce(&partition, produced(0, 4, 2), Acks::All);
            assert_eq!(again.base_offset, 4);
            for ticket in lost.into_iter().chain([again]) {
                assert_eq!(ticket.done.await, Err(ErrorCode::KafkaStorageError));
            }
            assert_eq!(bed.disk().faults_fired(), 1, "the write failed");
            eventually(&bed.rt, "rebuilt", || {
                partition.state() == PartitionState::Online
            })
            .await;
            assert_eq!(
                refusal(&partition, produced(0, 4, 2)),
                ErrorCode::OutOfOrderSequenceNumber,
                "what failed was never there"
            );
            let duplicate = produce(&partition, produced(0, 0, 2), Acks::All);
            assert_eq!(duplicate.base_offset, 0, "what was kept is known");
            duplicate.done.await.expect("flushed long ago");
            for n in 1..4 {
                let retry = produce(&partition, produced(0, 2 * n, 2), Acks::All);
                assert_eq!(retry.base_offset, i64::from(2 * n));
                retry.done.await.expect("written now");
            }
            let records = read_all(&partition).await;
            assert_no_hole(&records);
            assert_eq!(records.len(), 8);
        });
    }
}

#[test]
fn given_whole_batches_of_a_failed_write_on_the_disk_when_rebuilt_then_they_are_not_known() {
    let bed = Bed::new(8);
    let config = TopicConfig {
        segment_bytes: 4_000,
        ..config(FlushOnAck::All)
    };
    let partition = bed.create(config);
    bed.run(async {
        let kept = produce(&partition, produced(0, 0, 1), Acks::All);
        kept.done.await.expect("before the fault");
        // Queued together, they go to two segments: the first write succeeds.
        let large = |sequence: i32| {
            let mut builder = BatchBuilder::new().producer(9, 0, sequence);
            builder.push(NOW_MS, None, Some(&[b'v'; 3_000]));
            builder.build()
        };
        bed.disk()
            .fail_nth_write(2, WriteFault::Errno(libc::ENOSPC));
        let lost = [1, 2].map(|n| produce(&partition, large(n), Acks::All));
        for ticket in lost {
            assert_eq!(ticket.done.await, Err(ErrorCode::KafkaStorageError));
        }
        assert_eq!(bed.disk().faults_fired(), 1, "the second write failed");
        eventually(&bed.rt, "rebuilt", || {
            partition.state() == PartitionState::Online
        })
        .await;
        assert_eq!(partition.numbers().end_offset, 1);
        for n in [1, 2] {
            let retry = produce(&partition, large(n), Acks::All);
            assert_eq!(retry.base_offset, i64::from(n));
            retry.done.await.expect("written now");
        }
        assert_eq!(read_all(&partition).await.len(), 3);
    });
}

#[test]
fn what_a_producer_may_not_send_is_refused_with_kafkas_codes_and_changes_nothing() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        for sequence in 0..6 {
            let ticket = produce(&partition, produced(3, sequence, 1), Acks::All);
            ticket.done.await.expect("in sequence");
        }
        let mut transactional = BatchBuilder::new().producer(9, 3, 6).transactional(true);
        transactional.push(NOW_MS, None, Some(b"x"));
        let cases = [
            (produced(3, 7, 1), ErrorCode::OutOfOrderSequenceNumber),
            (produced(3, 0, 1), ErrorCode::OutOfOrderSequenceNumber),
            (produced(3, 4, 2), ErrorCode::OutOfOrderSequenceNumber),
            (produced(4, 1, 1), ErrorCode::OutOfOrderSequenceNumber),
            (produced(2, 0, 1), ErrorCode::InvalidProducerEpoch),
            (transactional.build(), ErrorCode::InvalidTxnState),
        ];
        for (records, code) in cases {
            assert_eq!(refusal(&partition, records), code);
        }
        assert_eq!(partition.numbers().next_offset, 6, "nothing was queued");
        let next = produce(&partition, produced(3, 6, 1), Acks::All);
        next.done.await.expect("in sequence");
        let known = partition.producers().expect("it is online");
        let known: Vec<_> = known.iter().map(|p| (p.id, p.epoch)).collect();
        assert_eq!(known, [(9, 3)]);
    });
}

#[test]
fn given_a_producer_that_expired_then_both_states_forget_it() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        let day_ms = 86_400_000;
        let now_ms = bed.rt.wall_clock_ms();
        let ticket = partition.produce_now(produced(0, 0, 1), Acks::All, now_ms, None);
        ticket.expect("taken").done.await.expect("written");
        assert_eq!(partition.expire_producers(now_ms, 2 * day_ms), 0);
        assert_eq!(partition.expire_producers(now_ms + 3 * day_ms, day_ms), 1);
        assert!(partition.producers().expect("online").is_empty());
        let unknown = produce(&partition, produced(0, 77, 1), Acks::All);
        assert_eq!(unknown.base_offset, 1, "any sequence will do");
        unknown.done.await.expect("written");
    });
}

#[test]
fn given_restarts_of_both_kinds_then_each_of_the_last_five_batches_is_known() {
    for clean in [false, true] {
        let mut bed = Bed::new(5);
        let partition = bed.create(config(FlushOnAck::All));
        let closed = bed.run(async {
            for n in 0..7 {
                let ticket = produce(&partition, produced(0, 2 * n, 2), Acks::All);
                ticket.done.await.expect("written");
            }
            match clean {
                true => Some(partition.close().await.expect("a clean stop")),
                false => None,
            }
        });
        drop(partition);
        let partition = match closed {
            Some(_) => bed.reload(config(FlushOnAck::All), true, closed),
            None => {
                bed.node.kill();
                bed.reopen_unclean(config(FlushOnAck::All))
            }
        };
        bed.run(async {
            for n in 2..7 {
                let again = produce(&partition, produced(0, 2 * n, 2), Acks::All);
                assert_eq!(again.base_offset, i64::from(2 * n), "clean: {clean}");
                again.done.await.expect("flushed long ago");
            }
            assert_eq!(partition.numbers().next_offset, 14);
        });
    }
}
