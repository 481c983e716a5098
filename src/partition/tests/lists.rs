//! ListOffsets on a partition.

use super::*;
use crate::config::{MessageTimestampType, TopicCompression};

fn batch_at(timestamps: &[i64]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for timestamp in timestamps {
        builder.push(*timestamp, None, Some(b"v"));
    }
    builder.build()
}

#[test]
fn offsets_are_found_by_timestamp_and_by_name() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    bed.run(async {
        let listed = |timestamp| partition.list_offset(timestamp, -1, Reader::Consumer);
        assert_eq!(listed(MAX_TIMESTAMP).await, Ok(ListedOffset::NONE));
        assert_eq!(listed(0).await, Ok(ListedOffset::NONE));
        assert_eq!(listed(LATEST).await.unwrap().offset, 0);

        for timestamps in [[100, 300, 200], [250, 400, 350]] {
            let all = produce(&partition, batch_at(&timestamps), Acks::All);
            all.done.await.expect("acks=all");
        }
        let found = |timestamp, offset| {
            Ok(ListedOffset {
                timestamp,
                offset,
                leader_epoch: 0,
            })
        };
        assert_eq!(listed(0).await, found(100, 0));
        assert_eq!(listed(100).await, found(100, 0));
        assert_eq!(listed(101).await, found(300, 1));
        assert_eq!(listed(301).await, found(400, 4));
        assert_eq!(listed(401).await, Ok(ListedOffset::NONE));
        assert_eq!(listed(MAX_TIMESTAMP).await, found(400, 4));
        assert_eq!(listed(LATEST).await, found(-1, 6));
        for earliest in [EARLIEST, EARLIEST_LOCAL] {
            let earliest = listed(earliest).await.unwrap();
            assert_eq!((earliest.timestamp, earliest.offset), (-1, 0));
            assert_eq!(earliest.leader_epoch, 0);
        }
        assert_eq!(listed(LATEST_TIERED).await, Ok(ListedOffset::NONE));
        assert_eq!(listed(-6).await, Err(ErrorCode::UnsupportedVersion));
    });
}

#[test]
fn what_is_not_visible_is_not_found() {
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
        let one = produce(&partition, batch_at(&[100]), Acks::Leader);
        one.done.await.expect("written");
        let listed = |timestamp| partition.list_offset(timestamp, -1, Reader::Consumer);
        assert_eq!(listed(LATEST).await.unwrap().offset, 0);
        assert_eq!(listed(50).await, Ok(ListedOffset::NONE));
        assert_eq!(listed(MAX_TIMESTAMP).await, Ok(ListedOffset::NONE));
        // It is visible to replicas.
        let to_replica = |timestamp| partition.list_offset(timestamp, -1, Reader::Replica);
        assert_eq!(to_replica(LATEST).await.unwrap().offset, 1);
        assert_eq!(to_replica(50).await.unwrap().offset, 0);
    });
}

/// A leader that can't tell yet how much was visible before it does not say less.
#[test]
fn while_the_high_watermark_is_below_the_epochs_start_nothing_is_latest() {
    let bed = Bed::new(1);
    let invisible = TopicConfig {
        min_insync_replicas: 2,
        ..config(FlushOnAck::None)
    };
    let replicated = |leader_epoch, load| PartitionOptions {
        replication_factor: 2,
        leader_epoch,
        ..options(&bed.rt, invisible.clone(), load)
    };
    let partition = bed.open(replicated(0, PartitionLoad::Create));
    bed.run(async {
        let one = produce(&partition, batch_at(&[100]), Acks::Leader);
        one.done.await.expect("written");
    });
    let closed = bed.run(partition.close()).expect("it closes");
    assert_eq!(closed.high_watermark, 0, "it was never visible");
    let load = PartitionLoad::Open {
        cleaned_to: None,
        clean: true,
        recovery_point: Some(closed.recovery_point),
        log_start: Some(closed.log_start),
        high_watermark: Some(closed.high_watermark),
    };
    let partition = bed.open(replicated(1, load));
    bed.run(async {
        for timestamp in [LATEST, MAX_TIMESTAMP, 100] {
            let listed = partition.list_offset(timestamp, -1, Reader::Consumer);
            assert_eq!(listed.await, Err(ErrorCode::OffsetNotAvailable));
        }
        let earliest = partition.list_offset(EARLIEST, -1, Reader::Consumer);
        assert_eq!(earliest.await.unwrap().offset, 0);
        let latest = partition.list_offset(LATEST, -1, Reader::Replica);
        assert_eq!(latest.await.unwrap().offset, 1);
    });
}

#[test]
fn under_log_append_time_every_record_of_a_batch_has_the_brokers_time() {
    let bed = Bed::new(1);
    let appended = TopicConfig {
        timestamp_type: MessageTimestampType::LogAppendTime,
        ..config(FlushOnAck::All)
    };
    let partition = bed.create(appended);
    bed.run(async {
        for (now_ms, timestamps) in [(1000, [9000, 8000]), (2000, [5, 6]), (2000, [7, -1])] {
            let ticket = partition
                .produce_now(batch_at(&timestamps), Acks::All, now_ms, None)
                .expect("the producer's clock does not matter");
            assert_eq!(ticket.log_append_time_ms, now_ms);
            ticket.done.await.expect("acks=all");
        }
        let listed = |timestamp| partition.list_offset(timestamp, -1, Reader::Consumer);
        let found = |timestamp, offset| {
            Ok(ListedOffset {
                timestamp,
                offset,
                leader_epoch: 0,
            })
        };
        assert_eq!(listed(0).await, found(1000, 0));
        assert_eq!(listed(1001).await, found(2000, 2));
        assert_eq!(listed(2001).await, Ok(ListedOffset::NONE));
        assert_eq!(listed(MAX_TIMESTAMP).await, found(2000, 2));
    });
}

#[test]
fn within_a_compressed_batch_the_record_is_found() {
    let bed = Bed::new(1);
    let zstd = TopicConfig {
        compression: TopicCompression::Zstd,
        ..config(FlushOnAck::All)
    };
    let partition = bed.create(zstd);
    bed.run(async {
        for timestamps in [[100, 300, 200], [250, 400, 350]] {
            let all = produce(&partition, batch_at(&timestamps), Acks::All);
            assert_eq!(all.log_append_time_ms, -1);
            all.done.await.expect("acks=all");
        }
        for (timestamp, offset) in [(101, 1), (301, 4), (MAX_TIMESTAMP, 4)] {
            let listed = partition.list_offset(timestamp, -1, Reader::Consumer).await;
            assert_eq!(listed.map(|l| l.offset), Ok(offset), "{timestamp}");
        }
    });
}
