//! What is refused before it is queued, and with which error.

use super::*;
use crate::config::TopicCompression;
use crate::protocol::batch::{Compression, TimestampType};

/// Where the fields of a batch are, in bytes.
mod at {
    pub const LENGTH: usize = 8;
    pub const MAGIC: usize = 16;
    pub const CRC: usize = 17;
    pub const ATTRIBUTES: usize = 21;
    pub const LAST_OFFSET_DELTA: usize = 23;
    pub const MAX_TIMESTAMP: usize = 35;
    pub const RECORD_COUNT: usize = 57;
}

/// A good batch with some bytes overwritten, and the CRC that goes with them.
fn forged(good: &Bytes, at: usize, bytes: &[u8]) -> Bytes {
    let mut forged = good.to_vec();
    forged[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc_fast::crc32_iscsi(&forged[at::ATTRIBUTES..]);
    forged[at::CRC..at::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    forged.into()
}

fn built(change: impl FnOnce(BatchBuilder) -> BatchBuilder, timestamps: &[i64]) -> Bytes {
    let mut builder = change(BatchBuilder::new());
    for timestamp in timestamps {
        builder.push(*timestamp, Some(b"key"), Some(&[b'v'; 200]));
    }
    builder.build()
}

fn refused(config: TopicConfig, records: Bytes) -> ProduceError {
    let bed = Bed::new(1);
    let partition = bed.create(config);
    let error = partition
        .produce_now(records, Acks::All, NOW_MS, None)
        .expect_err("refused");
    assert!(!error.message.is_empty());
    assert_eq!(partition.numbers().next_offset, 0, "nothing is queued");
    bed.run(async {
        let next = produce(&partition, batch(&["fine"]), Acks::All);
        next.done.await.expect("the next one is taken");
    });
    error
}

fn code(records: Bytes) -> ErrorCode {
    refused(config(FlushOnAck::All), records).code
}

#[test]
fn damaged_bytes_are_corrupt() {
    let good = batch(&["a", "b"]);
    let mut flipped = good.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    assert_eq!(code(flipped.into()), ErrorCode::CorruptMessage);
    // What is no whole batch holds no batch at all, as Kafka sees it.
    for cut in [1, 16, 60, good.len() - 1] {
        assert_eq!(code(good.slice(..cut)), ErrorCode::InvalidRecord, "{cut}");
    }
    for length in [0i32, -1, i32::MIN, 48] {
        let bad = forged(&good, at::LENGTH, &length.to_be_bytes());
        assert_eq!(code(bad), ErrorCode::CorruptMessage);
    }
}

#[test]
fn what_no_producer_may_send_is_an_invalid_record() {
    let good = batch(&["a", "b"]);
    let two = Bytes::from([good.clone(), good.clone()].concat());
    let cases = [
        ("nothing", Bytes::new()),
        ("two batches", two),
        ("magic 1", forged(&good, at::MAGIC, &[1])),
        ("magic 0, shorter than a v2 header", {
            let mut old = vec![0; 30];
            old[11] = 18;
            old.into()
        }),
        ("base offset", built(|b| b.base_offset(5), &[NOW_MS])),
        ("no records", built(|b| b, &[])),
        ("control", built(|b| b.control(true), &[NOW_MS])),
        (
            "count",
            forged(&good, at::RECORD_COUNT, &3i32.to_be_bytes()),
        ),
        (
            "last offset delta",
            forged(&good, at::LAST_OFFSET_DELTA, &5i32.to_be_bytes()),
        ),
        ("fewer records than claimed", {
            let bad = forged(&good, at::RECORD_COUNT, &3i32.to_be_bytes());
            forged(&bad, at::LAST_OFFSET_DELTA, &2i32.to_be_bytes())
        }),
        ("more records than claimed", {
            let bad = forged(&good, at::RECORD_COUNT, &1i32.to_be_bytes());
            forged(&bad, at::LAST_OFFSET_DELTA, &0i32.to_be_bytes())
        }),
        (
            "compression 5",
            forged(&good, at::ATTRIBUTES, &5i16.to_be_bytes()),
        ),
        (
            "not gzip",
            forged(&good, at::ATTRIBUTES, &1i16.to_be_bytes()),
        ),
        ("offset delta", {
            // The second record's: after its length, attributes and timestamp delta.
            let second = good.len() - 7 + 2;
            assert_eq!(good[second], 2, "the delta 1 as a varint");
            forged(&good, second, &[8])
        }),
        ("sequence", built(|b| b.producer(9, 0, -1), &[NOW_MS])),
    ];
    for (what, records) in cases {
        assert_eq!(code(records), ErrorCode::InvalidRecord, "{what}");
    }
}

#[test]
fn large_batches_are_refused_by_the_setting_that_they_exceed() {
    let large = batch(&[vec![7; 3_000]]);
    let small_message = TopicConfig {
        max_message_bytes: 3_000,
        ..config(FlushOnAck::All)
    };
    let error = refused(small_message, large.clone());
    assert_eq!(error.code, ErrorCode::MessageTooLarge);
    assert!(error.message.contains("max.message.bytes"));
    let small_segment = TopicConfig {
        segment_bytes: 3_000,
        ..config(FlushOnAck::All)
    };
    let error = refused(small_segment, large);
    assert_eq!(error.code, ErrorCode::RecordListTooLarge);
    assert!(error.message.contains("segment.bytes"));
}

#[test]
fn timestamps_outside_the_window_are_refused() {
    let window = TopicConfig {
        timestamp_before_max_ms: 1_000,
        timestamp_after_max_ms: 500,
        ..config(FlushOnAck::All)
    };
    for bad in [NOW_MS - 1_001, NOW_MS + 501, 0] {
        let records = built(|b| b, &[NOW_MS, bad]);
        let error = refused(window.clone(), records);
        assert_eq!(error.code, ErrorCode::InvalidTimestamp, "{bad}");
    }
    let appended = built(
        |b| b.timestamp_type(TimestampType::LogAppendTime),
        &[NOW_MS],
    );
    assert_eq!(code(appended), ErrorCode::InvalidTimestamp);
    let bed = Bed::new(1);
    let partition = bed.create(window);
    bed.run(async {
        for good in [NOW_MS - 1_000, NOW_MS + 500, -1] {
            let all = produce(&partition, built(|b| b, &[good]), Acks::All);
            all.done.await.expect("inside the window, or none at all");
        }
    });
}

#[test]
fn compressed_batches_are_read_through_and_kept_as_they_came() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    let all = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    for compression in all {
        let good = built(|b| b.compression(compression), &[NOW_MS, NOW_MS + 1]);
        bed.run(async {
            let ticket = produce(&partition, good.clone(), Acks::All);
            ticket.done.await.expect("taken");
            let outcome = partition.fetch(fetch_from(ticket.base_offset)).await;
            let stored = outcome.expect("a fetch").slices.concat();
            assert_eq!(stored[at::MAGIC..], good[at::MAGIC..], "{compression:?}");
        });
        if compression != Compression::None {
            let bad = forged(&good, at::RECORD_COUNT, &3i32.to_be_bytes());
            let bad = forged(&bad, at::LAST_OFFSET_DELTA, &2i32.to_be_bytes());
            assert_eq!(code(bad), ErrorCode::InvalidRecord, "{compression:?}");
        }
    }
}

#[test]
fn a_wrong_largest_timestamp_is_corrected() {
    let bed = Bed::new(1);
    let partition = bed.create(config(FlushOnAck::All));
    let good = built(|b| b, &[NOW_MS, NOW_MS + 5]);
    let wrong = forged(&good, at::MAX_TIMESTAMP, &(NOW_MS - 9).to_be_bytes());
    bed.run(async {
        let ticket = produce(&partition, wrong, Acks::All);
        ticket.done.await.expect("taken");
        let outcome = partition.fetch(fetch_from(0)).await.expect("a fetch");
        let stored = outcome.slices.concat();
        assert_eq!(stored[at::MAGIC..], good[at::MAGIC..]);
    });
}

/// What a batch is larger than it came is in no request's memory.
#[test]
fn batches_that_grow_are_bounded_until_they_are_written() {
    let bed = Bed::new(1);
    let partition = bed.create(TopicConfig {
        compression: TopicCompression::Uncompressed,
        ..config(FlushOnAck::All)
    });
    let mut small = BatchBuilder::new().compression(Compression::Zstd);
    small.push(NOW_MS, None, Some(&vec![0; 1_000_000]));
    let small = small.build();
    assert!(small.len() < 1_000);
    // Nothing is written meanwhile: the executor does not run.
    let mut tickets = Vec::new();
    let error = loop {
        match partition.produce_now(small.clone(), Acks::All, NOW_MS, None) {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => break error,
        }
        assert!(tickets.len() < 100, "no bound");
    };
    assert_eq!(error.code, ErrorCode::RequestTimedOut);
    assert!(error.message.contains("compression.type"), "{error}");
    assert_eq!(tickets.len(), 8, "of 8 MiB");
    assert_eq!(
        partition.numbers().next_offset,
        8,
        "the refused one took no offset"
    );
    bed.run(async {
        for ticket in tickets {
            ticket.done.await.expect("written");
        }
        let next = produce(&partition, small.clone(), Acks::All);
        assert_eq!(next.base_offset, 8);
        next.done.await.expect("there is room again");
    });
}
