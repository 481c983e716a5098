//! Closing, reopening, checkpoints, deleting.

use super::*;

#[test]
fn closing_writes_and_flushes_what_is_queued() {
    for policy in [FlushOnAck::All, FlushOnAck::Any, FlushOnAck::None] {
        let bed = Bed::new(1);
        let partition = bed.create(config(policy));
        let closed = bed.run(async {
            let tickets: Vec<_> = (0..100)
                .map(|i| {
                    let acks = [Acks::All, Acks::Leader, Acks::None][i % 3];
                    produce(&partition, batch(&["a"]), acks)
                })
                .collect();
            let closed = partition.close().await.expect("a clean stop");
            for ticket in tickets {
                ticket.done.await.expect("drained");
            }
            closed
        });
        assert_eq!(
            closed,
            ClosedPartition {
                recovery_point: 100,
                high_watermark: 100,
                log_start: 0
            }
        );
        assert_eq!(bed.disk().in_flight_count(), 0);
        bed.run(async {
            let refused = partition.produce_now(batch(&["x"]), Acks::All, NOW_MS, None);
            let code = ErrorCode::NotLeaderOrFollower;
            assert_eq!(refused.unwrap_err().code, code);
            assert_eq!(partition.fetch(fetch_from(0)).await.unwrap_err(), code);
            assert_eq!(
                partition.list_offset(LATEST, -1, Reader::Consumer).await,
                Err(code)
            );
            assert_eq!(partition.bytes_available(0, Reader::Consumer), Err(code));
            let again = partition.close().await;
            assert!(matches!(again, Err(CloseError::Stopped)));
        });
        let partition = bed.reload(config(policy), true, Some(closed));
        assert_eq!(partition.numbers().next_offset, 100);
        assert_eq!(partition.numbers().high_watermark, 100);
        assert_eq!(bed.run(read_all(&partition)).len(), 100);
    }
}

#[test]
fn closing_wakes_long_polls() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        let moved = partition.bound_moved().listen();
        partition.close().await.expect("a clean stop");
        moved.await;
    });
}

#[test]
fn a_checkpoint_returns_what_is_durable() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::None));
    bed.run(async {
        for _ in 0..3 {
            let all = produce(&partition, batch(&["a"]), Acks::All);
            all.done.await.expect("acks=all");
        }
        assert_eq!(partition.numbers().flushed_offset, 0);
        assert_eq!(partition.checkpoint().await.expect("a checkpoint"), 3);
        assert_eq!(partition.numbers().flushed_offset, 3);
    });
}

#[test]
fn a_checkpoint_is_due_after_checkpoint_bytes() {
    let bed = Bed::new(1);
    let partition = bed.create(TopicConfig {
        checkpoint_bytes: 3_000,
        ..config(FlushOnAck::All)
    });
    bed.run(async {
        for due in [false, false, true] {
            let all = produce(&partition, batch(&[vec![1; 1_000]]), Acks::All);
            all.done.await.expect("acks=all");
            assert_eq!(partition.checkpoint_is_due(), due);
        }
        partition.checkpoint().await.expect("a checkpoint");
        assert!(!partition.checkpoint_is_due());
    });
}

#[test]
fn deleting_fails_what_is_queued_and_waits_for_io() {
    for seed in 0..30 {
        let bed = Bed::new(seed);
        let partition = bed.create(config(FlushOnAck::All));
        bed.run(async {
            let first = produce(&partition, batch(&["a"]), Acks::All);
            for _ in 0..bed.world.random_below(20) {
                bed.rt.yield_if_needed().await;
            }
            let second = produce(&partition, batch(&["a"]), Acks::All);
            partition.delete().await;
            let code = ErrorCode::UnknownTopicOrPartition;
            assert_eq!(first.done.await, Err(code));
            assert_eq!(second.done.await, Err(code));
            let refused = partition.produce_now(batch(&["x"]), Acks::All, NOW_MS, None);
            assert_eq!(refused.unwrap_err().code, code);
        });
        assert_eq!(bed.disk().in_flight_count(), 0);
    }
}

#[test]
fn a_partition_that_was_not_touched_since_its_load_closes_without_the_disk() {
    let bed = Bed::new(8);
    let config = config(FlushOnAck::All);
    let partition = bed.create(config.clone());
    let mut closed = bed.run(async {
        for _ in 0..3 {
            let all = produce(&partition, batch(&["a"]), Acks::All);
            all.done.await.expect("acks=all");
        }
        partition.close().await.expect("a clean stop")
    });
    for _ in 0..2 {
        let partition = bed.reload(config.clone(), true, Some(closed));
        assert_eq!(bed.run(read_all(&partition)).len(), 3);
        let before = bed.disk().op_counts();
        closed = bed.run(partition.close()).expect("a clean stop");
        assert_eq!(closed.recovery_point, 3);
        assert_eq!(bed.disk().op_counts(), before);
    }
}
