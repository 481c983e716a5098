//! When a batch is answered, under each policy, and how many writes it takes.

use super::*;
use crate::runtime::SyncSite;
use futures_lite::future::poll_once;

#[test]
fn under_all_acks_all_waits_for_the_flush_and_acks_one_for_the_write() {
    for seed in 0..50 {
        let bed = Bed::new(seed);
        let partition = bed.create(config(FlushOnAck::All));
        let before = bed.disk().sync_count(SyncSite::SegmentFlush);
        bed.run(async {
            let one = produce(&partition, batch(&["a"]), Acks::Leader);
            let all = produce(&partition, batch(&["b"]), Acks::All);
            assert_eq!((one.base_offset, all.base_offset), (0, 1));
            one.done.await.expect("acks=1");
            let numbers = partition.numbers();
            assert!(numbers.end_offset >= 1);
            assert_eq!(numbers.flushed_offset, 0, "acks=1 came before the flush");
            all.done.await.expect("acks=all");
        });
        let numbers = partition.numbers();
        assert_eq!(numbers.flushed_offset, 2);
        assert_eq!(numbers.high_watermark, 2);
        assert!(bed.disk().sync_count(SyncSite::SegmentFlush) > before);
    }
}

#[test]
fn under_all_acks_all_is_not_answered_while_flushes_do_not_happen() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    bed.disk()
        .fail_syncs(Some(SyncSite::SegmentFlush), libc::EIO);
    let answer = bed.run(async {
        let all = produce(&partition, batch(&["a"]), Acks::All);
        all.done.await
    });
    assert!(bed.disk().faults_fired() > 0, "the flush failed");
    assert_eq!(answer, Err(ErrorCode::KafkaStorageError));
    assert_eq!(partition.numbers().high_watermark, 0);
}

#[test]
fn under_any_acks_one_waits_for_the_flush() {
    for seed in 0..50 {
        let bed = Bed::new(seed);
        let partition = bed.create(config(FlushOnAck::Any));
        bed.run(async {
            let one = produce(&partition, batch(&["a"]), Acks::Leader);
            one.done.await.expect("acks=1");
        });
        assert_eq!(partition.numbers().flushed_offset, 1);
    }
}

#[test]
fn under_none_nothing_is_flushed_and_acks_all_waits_for_the_write() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::None));
    let before = bed.disk().sync_count(SyncSite::SegmentFlush);
    bed.run(async {
        let all = produce(&partition, batch(&["a"]), Acks::All);
        all.done.await.expect("acks=all");
        bed.rt.sleep(Duration::from_secs(60)).await;
    });
    assert_eq!(bed.disk().sync_count(SyncSite::SegmentFlush), before);
    let numbers = partition.numbers();
    assert_eq!((numbers.flushed_offset, numbers.high_watermark), (0, 1));
}

#[test]
fn acks_zero_completes_when_written_and_releases_what_was_kept() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    let budget = Budget::new(10);
    let permit = budget.try_acquire(10).expect("room");
    bed.run(async {
        let ticket = partition
            .produce_now(batch(&["a"]), Acks::None, NOW_MS, Some(Box::new(permit)))
            .expect("accepted");
        assert_eq!(budget.available(), 0, "kept while the batch is queued");
        ticket.done.await.expect("written");
    });
    assert_eq!(budget.available(), 10);
}

#[test]
fn acks_one_traffic_alone_moves_the_high_watermark() {
    for policy in [FlushOnAck::All, FlushOnAck::Any] {
        let bed = Bed::new(1);
        let partition = bed.create(config(policy));
        bed.run(async {
            for _ in 0..5 {
                let one = produce(&partition, batch(&["a"]), Acks::Leader);
                one.done.await.expect("acks=1");
            }
            eventually(&bed.rt, "the HW reaches the LEO", || {
                partition.numbers().high_watermark == 5
            })
            .await;
        });
    }
}

#[test]
fn when_the_policy_loosens_those_who_wait_for_a_flush_are_answered() {
    let bed = Bed::new(3);
    let partition = bed.create(config(FlushOnAck::Any));
    bed.run(async {
        let mut one = produce(&partition, batch(&["a"]), Acks::Leader);
        eventually(&bed.rt, "written", || partition.numbers().end_offset == 1).await;
        if partition.numbers().flushed_offset == 0 {
            assert!(poll_once(&mut one.done).await.is_none());
        }
        partition.set_config(config(FlushOnAck::None));
        assert_eq!(poll_once(&mut one.done).await, Some(Ok(())));
        assert_eq!(partition.numbers().high_watermark, 1);
    });
}

#[test]
fn when_the_policy_tightens_what_is_not_flushed_gets_flushed() {
    let bed = Bed::new(3);
    let partition = bed.create(config(FlushOnAck::None));
    bed.run(async {
        let all = produce(&partition, batch(&["a"]), Acks::All);
        all.done.await.expect("acks=all");
        assert_eq!(partition.numbers().flushed_offset, 0);
        partition.set_config(config(FlushOnAck::All));
        assert_eq!(partition.numbers().high_watermark, 1, "it never falls");
        eventually(&bed.rt, "flushed", || {
            partition.numbers().flushed_offset == 1
        })
        .await;
    });
}

#[test]
fn with_too_few_in_sync_acks_all_is_refused_before_the_append() {
    let bed = Bed::new(1);
    let two_needed = TopicConfig {
        min_insync_replicas: 2,
        ..config(FlushOnAck::None)
    };
    let partition = bed.open(PartitionOptions {
        replication_factor: 3,
        ..options(&bed.rt, two_needed, PartitionLoad::Create)
    });
    let refused = partition.produce_now(batch(&["a"]), Acks::All, NOW_MS, None);
    assert_eq!(refused.unwrap_err().code, ErrorCode::NotEnoughReplicas);
    assert_eq!(partition.numbers().next_offset, 0);
    bed.run(async {
        let one = produce(&partition, batch(&["a"]), Acks::Leader);
        one.done.await.expect("acks=1 is accepted");
        assert!(read_all(&partition).await.is_empty(), "but invisible");
    });
    partition.set_config(config(FlushOnAck::None));
    assert_eq!(partition.numbers().high_watermark, 1, "now visible");
}

#[test]
fn batches_that_arrive_together_share_writes_and_flushes() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    let (writes, flushes) = (
        bed.disk().write_count(),
        bed.disk().sync_count(SyncSite::SegmentFlush),
    );
    bed.run(async {
        let tickets: Vec<_> = (0..500)
            .map(|_| produce(&partition, batch(&["a"]), Acks::All))
            .collect();
        assert_eq!(partition.numbers().next_offset, 500);
        assert_eq!(partition.numbers().end_offset, 0, "nothing is written yet");
        for ticket in tickets {
            ticket.done.await.expect("acks=all");
        }
    });
    assert_eq!(bed.disk().write_count() - writes, 1);
    assert_eq!(bed.disk().sync_count(SyncSite::SegmentFlush) - flushes, 1);
}

#[test]
fn what_arrives_during_a_write_joins_the_next() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::None));
    let writes = bed.disk().write_count();
    bed.run(async {
        let first = produce(&partition, batch(&["a"]), Acks::Leader);
        eventually(&bed.rt, "the write is in flight", || {
            bed.disk().in_flight_count() > 0 || partition.numbers().end_offset > 0
        })
        .await;
        let rest: Vec<_> = (0..100)
            .map(|_| produce(&partition, batch(&["b"]), Acks::Leader))
            .collect();
        first.done.await.expect("the first");
        for ticket in rest {
            ticket.done.await.expect("the rest");
        }
    });
    assert_eq!(bed.disk().write_count() - writes, 2);
}

#[test]
fn a_write_carries_at_most_a_thousand_batches() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::None));
    let writes = bed.disk().write_count();
    bed.run(async {
        let tickets: Vec<_> = (0..2_500)
            .map(|_| produce(&partition, batch(&["a"]), Acks::Leader))
            .collect();
        for ticket in tickets {
            ticket.done.await.expect("written");
        }
    });
    assert_eq!(bed.disk().write_count() - writes, 3);
}

#[test]
fn the_appender_waits_for_write_memory_and_then_goes_on() {
    let bed = Bed::new(1);
    let budget = Budget::new(64 << 10);
    let partition = bed.open(PartitionOptions {
        write_budget: budget.clone(),
        ..options(&bed.rt, config(FlushOnAck::None), PartitionLoad::Create)
    });
    let held = budget.try_acquire(64 << 10).expect("all of it");
    bed.run(async {
        let ticket = produce(&partition, batch(&["a"]), Acks::Leader);
        // Larger than the budget: it takes the whole of it, and gets on.
        let large = produce(&partition, batch(&[vec![7; 200 << 10]]), Acks::Leader);
        bed.rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(partition.numbers().end_offset, 0, "no memory, no write");
        drop(held);
        ticket.done.await.expect("written");
        large.done.await.expect("written");
    });
    assert_eq!(budget.available(), budget.total());
}
