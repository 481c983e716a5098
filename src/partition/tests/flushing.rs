//! `flush.messages` and `flush.ms`, where no acknowledgement asks for a flush.

use super::*;
use crate::runtime::sim::PowerCut;
use crate::runtime::SyncSite;

fn unflushed_by_ack(flush_messages: i64, flush_ms: i64) -> TopicConfig {
    TopicConfig {
        flush_messages,
        flush_ms,
        ..config(FlushOnAck::None)
    }
}

/// One record, written and acknowledged.
async fn write(partition: &Partition) {
    produce(partition, batch(&["x"]), Acks::All)
        .done
        .await
        .expect("it is acknowledged");
}

/// Lets whatever was started end, and asserts that nothing was flushed.
async fn assert_unflushed(bed: &Bed, partition: &Partition, flushes: u64) {
    bed.rt.sleep(Duration::from_millis(200)).await;
    assert_eq!(bed.disk().sync_count(SyncSite::SegmentFlush), flushes);
    let numbers = partition.numbers();
    assert!(numbers.flushed_offset < numbers.end_offset, "{numbers:?}");
}

#[test]
fn given_flush_messages_when_so_many_are_unflushed_then_they_are_flushed_and_survive() {
    let mut bed = Bed::new(1);
    let settings = unflushed_by_ack(5, i64::MAX);
    let partition = bed.create(settings.clone());
    bed.run(async {
        let flushes = bed.disk().sync_count(SyncSite::SegmentFlush);
        for _ in 0..4 {
            write(&partition).await;
        }
        assert_unflushed(&bed, &partition, flushes).await;
        write(&partition).await;
        eventually(&bed.rt, "five are flushed", || {
            partition.numbers().flushed_offset == 5
        })
        .await;
        let flushed = bed.disk().sync_count(SyncSite::SegmentFlush);
        assert!(flushed > flushes, "no sync was called");
        for _ in 0..4 {
            write(&partition).await;
        }
        assert_unflushed(&bed, &partition, flushed).await;
    });
    bed.node.crash_with(PowerCut::AllLost);
    let partition = bed.reopen_unclean(settings);
    assert_eq!(partition.numbers().end_offset, 5);
}

#[test]
fn given_flush_ms_when_something_is_so_old_then_it_is_flushed_and_survives() {
    let mut bed = Bed::new(2);
    let settings = unflushed_by_ack(i64::MAX, 10_000);
    let partition = bed.create(settings.clone());
    bed.run(async {
        let flushes = bed.disk().sync_count(SyncSite::SegmentFlush);
        write(&partition).await;
        bed.rt.sleep(Duration::from_secs(9)).await;
        write(&partition).await;
        partition.flush_old();
        assert_unflushed(&bed, &partition, flushes).await;
        bed.rt.sleep(Duration::from_secs(1)).await;
        partition.flush_old();
        eventually(&bed.rt, "both are flushed", || {
            partition.numbers().flushed_offset == 2
        })
        .await;
        assert!(bed.disk().sync_count(SyncSite::SegmentFlush) > flushes);
        // The age of what comes now is counted anew.
        let flushes = bed.disk().sync_count(SyncSite::SegmentFlush);
        write(&partition).await;
        partition.flush_old();
        assert_unflushed(&bed, &partition, flushes).await;
    });
    bed.node.crash_with(PowerCut::AllLost);
    let partition = bed.reopen_unclean(settings);
    assert_eq!(partition.numbers().end_offset, 2);
}

#[test]
fn given_neither_setting_when_records_are_old_then_nothing_is_flushed() {
    let bed = Bed::new(3);
    let partition = bed.create(unflushed_by_ack(i64::MAX, i64::MAX));
    bed.run(async {
        let flushes = bed.disk().sync_count(SyncSite::SegmentFlush);
        for _ in 0..100 {
            write(&partition).await;
        }
        bed.rt.sleep(Duration::from_secs(86_400)).await;
        partition.flush_old();
        assert_unflushed(&bed, &partition, flushes).await;
    });
}

#[test]
fn given_settings_that_change_when_something_is_unflushed_then_the_new_ones_hold_for_it() {
    let bed = Bed::new(4);
    let partition = bed.create(unflushed_by_ack(i64::MAX, i64::MAX));
    bed.run(async {
        let flushes = bed.disk().sync_count(SyncSite::SegmentFlush);
        for _ in 0..3 {
            write(&partition).await;
        }
        assert_unflushed(&bed, &partition, flushes).await;
        partition.set_config(unflushed_by_ack(3, i64::MAX));
        eventually(&bed.rt, "three are flushed", || {
            partition.numbers().flushed_offset == 3
        })
        .await;
        partition.set_config(unflushed_by_ack(i64::MAX, i64::MAX));
        write(&partition).await;
        partition.set_config(unflushed_by_ack(i64::MAX, 1_000));
        bed.rt.sleep(Duration::from_secs(1)).await;
        partition.flush_old();
        eventually(&bed.rt, "the fourth is flushed", || {
            partition.numbers().flushed_offset == 4
        })
        .await;
    });
}
