//! Validation as a function: bytes and rules in, a batch or a refusal out.

use super::*;
use crate::config::{BrokerConfig, TopicConfig};
use crate::protocol::batch::{compress, BatchBuilder, Compression, Encoding};
use bytes::BytesMut;
use futures_lite::future::block_on;
use kafka_protocol::records as oracle;
use proptest::prelude::*;

/// Where the fields of a batch are, in bytes.
mod at {
    pub const LENGTH: usize = 8;
    pub const MAGIC: usize = 16;
    pub const CRC: usize = 17;
    pub const ATTRIBUTES: usize = 21;
    pub const LAST_OFFSET_DELTA: usize = 23;
    pub const MAX_TIMESTAMP: usize = 35;
    pub const RECORD_COUNT: usize = 57;
    pub const RECORDS: usize = 61;
}

/// Without others to pause for.
fn producer_batch(records: Bytes, rules: &Rules) -> Result<ValidBatch, ProduceError> {
    block_on(super::producer_batch(records, rules, async || {}))
}

const NOW_MS: i64 = 1_700_000_000_000;

fn rules() -> Rules {
    let broker = BrokerConfig::default();
    Rules::of(&TopicConfig::from_broker(&broker), NOW_MS)
}

/// A batch of these record bytes, which claims `count` records.
fn of_records(compression: Compression, records: &[u8], count: i32) -> Bytes {
    let mut template = BatchBuilder::new().compression(compression);
    template.push(NOW_MS, None, None);
    let mut bytes = template.build()[..at::RECORDS].to_vec();
    bytes.extend_from_slice(records);
    let length = bytes.len() as i32 - 12;
    let mut set = |place: usize, value: i32| {
        bytes[place..place + 4].copy_from_slice(&value.to_be_bytes());
    };
    set(at::LENGTH, length);
    set(at::RECORD_COUNT, count);
    set(at::LAST_OFFSET_DELTA, count.wrapping_sub(1));
    sealed(bytes)
}

/// With the CRC that goes with the bytes.
fn sealed(mut bytes: Vec<u8>) -> Bytes {
    let crc = crc_fast::crc32_iscsi(&bytes[at::ATTRIBUTES..]);
    bytes[at::CRC..at::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

/// With some bytes overwritten.
fn forged(good: &Bytes, at: usize, bytes: &[u8]) -> Bytes {
    let mut forged = good.to_vec();
    forged[at..at + bytes.len()].copy_from_slice(bytes);
    sealed(forged)
}

fn code(records: Bytes, rules: &Rules) -> ErrorCode {
    let error = producer_batch(records, rules).expect_err("refused");
    assert!(!error.message.is_empty());
    error.code
}

fn good(compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::new().compression(compression);
    builder.push(NOW_MS, Some(b"key"), Some(&[b'v'; 200]));
    builder.push(NOW_MS + 1, Some(b"key"), None);
    builder.build()
}

/// Timestamp, key, value, headers.
type Row = (
    i64,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(String, Option<Vec<u8>>)>,
);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let bytes = || prop::option::of(prop::collection::vec(any::<u8>(), 0..40));
    // Long enough, a few times, that a batch takes several pieces.
    let value = prop_oneof![
        9 => bytes(),
        1 => (any::<u8>(), 0usize..90_000).prop_map(|(b, n)| Some(vec![b; n])),
    ];
    let headers = prop::collection::vec(("[a-z]{0,8}", bytes()), 0..3);
    let timestamp = NOW_MS - 1_000_000..NOW_MS;
    prop::collection::vec((timestamp, bytes(), value, headers), 1..20)
}

fn build(rows: &[Row], compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::new()
        .producer(77, 3, 500)
        .transactional(true)
        .compression(compression);
    for (timestamp, key, value, headers) in rows {
        let headers: Vec<_> = headers
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_deref()))
            .collect();
        builder.push_with_headers(*timestamp, key.as_deref(), value.as_deref(), &headers);
    }
    builder.build()
}

/// What another implementation reads in a batch, stamped with offset 1000.
fn read_by_oracle(batch: &ValidBatch) -> Vec<oracle::Record> {
    let mut bytes = batch.bytes.to_vec();
    crate::protocol::batch::stamp(&mut bytes, 1000, 5);
    let mut bytes = BytesMut::from(&bytes[..]).freeze();
    let set = oracle::RecordBatchDecoder::decode(&mut bytes).expect("the oracle reads it");
    assert!(bytes.is_empty());
    set.records
}

fn assert_same(rows: &[Row], batch: &ValidBatch, timestamp_type: TimestampType) {
    let records = read_by_oracle(batch);
    assert_eq!(records.len(), rows.len());
    for (i, (record, row)) in records.iter().zip(rows).enumerate() {
        assert_eq!(record.offset, 1000 + i as i64);
        assert_eq!(record.sequence, 500 + i as i32);
        assert_eq!((record.producer_id, record.producer_epoch), (77, 3));
        assert!(record.transactional && !record.control);
        assert_eq!(record.key.as_deref(), row.1.as_deref());
        assert_eq!(record.value.as_deref(), row.2.as_deref());
        let headers = record.headers.iter();
        let headers: Vec<_> = headers
            .map(|(key, value)| (key.to_string(), value.as_ref().map(|v| v.to_vec())))
            .collect();
        // The oracle's headers are a map: of two with the same key it has the last.
        for (key, value) in &headers {
            let last = row.3.iter().rfind(|(name, _)| name == key);
            assert_eq!(last.map(|(_, value)| value), Some(value));
        }
        if timestamp_type == TimestampType::CreateTime {
            assert_eq!(record.timestamp, row.0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_needs_no_change_is_kept_to_the_byte(rows in rows()) {
        for codec in Compression::ALL {
            let bytes = build(&rows, codec);
            for encoding in [None, Some(Encoding { compression: codec, level: 1 })] {
                let rules = Rules { encoding, ..rules() };
                let batch = producer_batch(bytes.clone(), &rules).unwrap();
                prop_assert_eq!(batch.bytes.as_ptr(), bytes.as_ptr(), "no copy is made");
                prop_assert_eq!(batch.bytes.len(), bytes.len());
                prop_assert_eq!(batch.log_append_time_ms(), -1);
                assert_same(&rows, &batch, TimestampType::CreateTime);
            }
        }
    }

    #[test]
    fn what_is_compressed_again_holds_the_same_records(rows in rows(), from in 0usize..5) {
        let from = Compression::ALL[from];
        let bytes = build(&rows, from);
        let latest = rows.iter().map(|row| row.0).max();
        for to in Compression::ALL {
            for timestamp_type in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
                let rules = Rules {
                    encoding: Some(Encoding::of(to)),
                    timestamp_type,
                    batch_bytes_max: 4 << 20,
                    ..rules()
                };
                let batch = producer_batch(bytes.clone(), &rules).unwrap();
                let header = batch.header;
                prop_assert_eq!(header.attributes.compression(), Ok(to));
                prop_assert_eq!(header.attributes.timestamp_type(), timestamp_type);
                let view = BatchView::parse_produced(batch.bytes.clone()).unwrap();
                prop_assert_eq!(view.header(), &header);
                match timestamp_type {
                    TimestampType::CreateTime => {
                        prop_assert_eq!(Some(header.max_timestamp), latest);
                        prop_assert_eq!(batch.log_append_time_ms(), -1);
                    }
                    TimestampType::LogAppendTime => {
                        prop_assert_eq!(header.max_timestamp, NOW_MS);
                        prop_assert_eq!(batch.log_append_time_ms(), NOW_MS);
                    }
                }
                assert_same(&rows, &batch, timestamp_type);
            }
        }
    }

    /// Whatever the records are, it is an answer: no panic, and never a batch that
    /// reads otherwise than it was judged.
    #[test]
    fn any_bytes_for_records_are_judged(
        records in prop::collection::vec(any::<u8>(), 0..300),
        count in -2i32..40,
        codec in 0usize..5,
        is_packed in any::<bool>(),
    ) {
        let codec = Compression::ALL[codec];
        let packed = if is_packed { compress(codec, &records).unwrap() } else { records };
        let bytes = of_records(codec, &packed, count);
        let rules = Rules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
        match producer_batch(bytes, &rules) {
            Err(error) => prop_assert_eq!(error.code, ErrorCode::InvalidRecord),
            Ok(batch) => prop_assert_eq!(read_by_oracle(&batch).len(), count as usize),
        }
    }
}

#[test]
fn each_bad_form_has_kafkas_code() {
    let good = good(Compression::None);
    let mut flipped = good.to_vec();
    flipped[80] ^= 1;
    let mut short = good.to_vec();
    short.truncate(20);
    let i16_at = |at, value: i16| forged(&good, at, &value.to_be_bytes());
    let i32_at = |at, value: i32| forged(&good, at, &value.to_be_bytes());
    use ErrorCode::{CorruptMessage, InvalidRecord};
    let cases = [
        ("no bytes", Bytes::new(), InvalidRecord),
        ("a part", Bytes::from(short), InvalidRecord),
        ("a flipped bit", Bytes::from(flipped), CorruptMessage),
        (
            "a length below a header",
            i32_at(at::LENGTH, 48),
            CorruptMessage,
        ),
        ("a negative length", i32_at(at::LENGTH, -1), CorruptMessage),
        (
            "two batches",
            Bytes::from([&good[..], &good[..]].concat()),
            InvalidRecord,
        ),
        ("magic 0", forged(&good, at::MAGIC, &[0]), InvalidRecord),
        ("magic 1", forged(&good, at::MAGIC, &[1]), InvalidRecord),
        ("magic 3", forged(&good, at::MAGIC, &[3]), CorruptMessage),
        (
            "magic -1",
            forged(&good, at::MAGIC, &[0xff]),
            CorruptMessage,
        ),
        (
            "base offset 1",
            forged(&good, 0, &1i64.to_be_bytes()),
            InvalidRecord,
        ),
        ("compression 5", i16_at(at::ATTRIBUTES, 5), InvalidRecord),
        ("compression 6", i16_at(at::ATTRIBUTES, 6), InvalidRecord),
        ("compression 7", i16_at(at::ATTRIBUTES, 7), InvalidRecord),
        (
            "a control batch",
            i16_at(at::ATTRIBUTES, 0x20),
            InvalidRecord,
        ),
        (
            "a transactional control batch",
            i16_at(at::ATTRIBUTES, 0x30),
            InvalidRecord,
        ),
        ("count 3", i32_at(at::RECORD_COUNT, 3), InvalidRecord),
        ("count -1", i32_at(at::RECORD_COUNT, -1), InvalidRecord),
        (
            "last offset delta 0",
            i32_at(at::LAST_OFFSET_DELTA, 0),
            InvalidRecord,
        ),
        (
            "last offset delta 2",
            i32_at(at::LAST_OFFSET_DELTA, 2),
            InvalidRecord,
        ),
        (
            "last offset delta -1",
            i32_at(at::LAST_OFFSET_DELTA, -1),
            InvalidRecord,
        ),
        (
            "count 0",
            of_records(Compression::None, &[], 0),
            InvalidRecord,
        ),
        (
            "count 0 of one",
            of_records(Compression::None, &good[at::RECORDS..], 0),
            InvalidRecord,
        ),
        (
            "count 2^31-1",
            of_records(Compression::None, &[], i32::MAX),
            InvalidRecord,
        ),
    ];
    for (what, bytes, expected) in cases {
        assert_eq!(code(bytes, &rules()), expected, "{what}");
    }
    let mut producer = BatchBuilder::new().producer(9, 0, -1);
    producer.push(NOW_MS, None, None);
    assert_eq!(code(producer.build(), &rules()), InvalidRecord);
}

/// Zigzag varints of a byte: 0 is 0, 1 is -1, 2 is 1, 3 is -2.
#[test]
fn bad_records_are_refused_in_every_codec() {
    // Length, attributes, timestamp delta, offset delta, key, value, headers.
    let first: &[u8] = &[12, 0, 0, 0, 1, 1, 0];
    let second: &[u8] = &[12, 0, 0, 2, 1, 1, 0];
    let join = |records: &[&[u8]]| records.concat();
    let cases = [
        ("nothing", join(&[]), 1),
        ("one of two", join(&[first]), 2),
        ("two of one", join(&[first, second]), 1),
        ("a byte behind", join(&[first, second, &[0]]), 2),
        ("the same delta twice", join(&[first, first]), 2),
        ("a gap", join(&[first, &[12, 0, 0, 4, 1, 1, 0]]), 2),
        ("a negative delta", join(&[&[12, 0, 0, 1, 1, 1, 0]]), 1),
        ("deltas from 1", join(&[second]), 1),
        ("a length of 0", join(&[&[0]]), 1),
        ("a negative length", join(&[&[1]]), 1),
        (
            "a length beyond the end",
            join(&[&[14, 0, 0, 0, 1, 1, 0]]),
            1,
        ),
        (
            "a length beyond 2 GiB",
            join(&[&[0xfe, 0xff, 0xff, 0xff, 0x0f, 0]]),
            1,
        ),
        ("a length that is no varint", join(&[&[0xff; 11]]), 1),
        (
            "a body longer than its fields",
            join(&[&[14, 0, 0, 0, 1, 1, 0, 0]]),
            1,
        ),
        (
            "a key beyond the record",
            join(&[&[12, 0, 0, 0, 20, 0, 0]]),
            1,
        ),
        ("a key of -2", join(&[&[12, 0, 0, 0, 3, 1, 0]]), 1),
        (
            "a value beyond the record",
            join(&[&[12, 0, 0, 0, 1, 20, 0]]),
            1,
        ),
        ("-1 headers", join(&[&[12, 0, 0, 0, 1, 1, 1]]), 1),
        (
            "2^30 headers",
            join(&[&[20, 0, 0, 0, 1, 1, 0x80, 0x80, 0x80, 0x80, 0x08]]),
            1,
        ),
        (
            "a header without a key",
            join(&[&[16, 0, 0, 0, 1, 1, 2, 1, 1]]),
            1,
        ),
        (
            "a timestamp that is no varint",
            {
                let mut long = vec![28, 0];
                long.extend([0xff; 11]);
                long.extend([0, 1, 1, 0]);
                long
            },
            1,
        ),
    ];
    for codec in Compression::ALL {
        for (what, records, count) in &cases {
            let bytes = of_records(codec, &compress(codec, records).unwrap(), *count);
            let error = producer_batch(bytes, &rules()).expect_err(what);
            assert_eq!(error.code, ErrorCode::InvalidRecord, "{codec:?}, {what}");
            assert_eq!(error.record_errors, [], "{codec:?}, {what}");
        }
        let right = compress(codec, &join(&[first, second])).unwrap();
        let rules = Rules {
            timestamp_type: TimestampType::LogAppendTime,
            ..rules()
        };
        producer_batch(of_records(codec, &right, 2), &rules).expect("so the others fail alone");
        for junk in [&b"no such thing"[..], &right[..right.len() / 2], b""] {
            if codec != Compression::None {
                let bytes = of_records(codec, junk, 2);
                assert_eq!(code(bytes, &rules), ErrorCode::InvalidRecord, "{codec:?}");
            }
        }
    }
}

#[test]
fn a_bomb_is_refused_at_its_limit_and_less_is_taken() {
    let mut builder = BatchBuilder::new();
    builder.push(NOW_MS, None, Some(&vec![0; 3 << 20]));
    let records = builder.build().slice(at::RECORDS..);
    for codec in &Compression::ALL[1..] {
        let bomb = of_records(*codec, &compress(*codec, &records).unwrap(), 1);
        let limited = |records_bytes_max| Rules {
            records_bytes_max,
            ..rules()
        };
        assert!(bomb.len() < 1 << 20, "it passes max.message.bytes");
        let refused = code(bomb.clone(), &limited(records.len() - 1));
        assert_eq!(refused, ErrorCode::MessageTooLarge, "{codec:?}");
        producer_batch(bomb, &limited(records.len())).expect("at the limit");
    }
}

#[test]
fn what_compresses_to_a_hundredth_is_taken_as_kafka_takes_it() {
    let broker = BrokerConfig::default();
    let limit = |max_message_bytes| {
        let config = TopicConfig {
            max_message_bytes,
            ..TopicConfig::from_broker(&broker)
        };
        Rules::of(&config, NOW_MS).records_bytes_max
    };
    assert_eq!(limit(0), 100 << 20);
    assert_eq!(limit(1 << 20), 100 << 20);
    // A batch that is not compressed is never refused for its decompressed size.
    assert_eq!(limit(300 << 20), 300 << 20);
    let mut builder = BatchBuilder::new().compression(Compression::Zstd);
    let value = br#"{"level":"INFO","message":"ready"}"#.repeat(32_000);
    for _ in 0..60 {
        builder.push(NOW_MS, None, Some(&value));
    }
    let batch = builder.build();
    assert!(batch.len() < 1 << 20, "it passes max.message.bytes");
    producer_batch(batch, &rules()).expect("60 MiB of log lines are taken");
}

#[test]
fn a_batch_that_grows_beyond_the_limits_is_too_large() {
    let mut builder = BatchBuilder::new().compression(Compression::Zstd);
    builder.push(NOW_MS, None, Some(&vec![7; 100_000]));
    let small = builder.build();
    let uncompressed = Rules {
        encoding: Some(Encoding::of(Compression::None)),
        ..rules()
    };
    let batch = producer_batch(small.clone(), &uncompressed).unwrap();
    let bytes = batch.size_bytes();
    assert!(small.len() < 1000 && bytes > 100_000, "it grows");
    for (batch_bytes_max, segment_bytes, expected) in [
        (bytes, bytes, None),
        (bytes - 1, bytes, Some(ErrorCode::MessageTooLarge)),
        (bytes, bytes - 1, Some(ErrorCode::RecordListTooLarge)),
    ] {
        let rules = Rules {
            batch_bytes_max,
            segment_bytes,
            ..uncompressed
        };
        let got = producer_batch(small.clone(), &rules).err();
        assert_eq!(got.map(|error| error.code), expected);
    }
    // As it comes, it is judged by its own size.
    let as_it_comes = Rules {
        batch_bytes_max: small.len() - 1,
        ..rules()
    };
    assert_eq!(code(small, &as_it_comes), ErrorCode::MessageTooLarge);
}

#[test]
fn log_append_time_is_set_in_place_and_asks_nothing_of_the_producers_clock() {
    let rules = Rules {
        timestamp_type: TimestampType::LogAppendTime,
        timestamp_min: NOW_MS,
        timestamp_max: NOW_MS,
        ..rules()
    };
    for codec in Compression::ALL {
        let mut builder = BatchBuilder::new().compression(codec);
        builder.push(5, None, Some(b"long ago"));
        builder.push(NOW_MS * 2, None, Some(b"far ahead"));
        let bytes = builder.build();
        let batch = producer_batch(bytes.clone(), &rules).unwrap();
        let header = batch.header;
        assert_eq!(
            header.attributes.timestamp_type(),
            TimestampType::LogAppendTime
        );
        assert_eq!((header.base_timestamp, header.max_timestamp), (5, NOW_MS));
        assert_eq!(batch.log_append_time_ms(), NOW_MS);
        assert_eq!(
            batch.bytes[at::RECORDS..],
            bytes[at::RECORDS..],
            "{codec:?}"
        );
        BatchView::parse_produced(batch.bytes).expect("a right CRC");
    }
}

#[test]
fn each_refused_record_is_named_up_to_a_bound() {
    let window = Rules {
        timestamp_min: NOW_MS - 10,
        timestamp_max: NOW_MS + 10,
        needs_keys: true,
        ..rules()
    };
    for codec in Compression::ALL {
        let built = |records: &[(i64, Option<&[u8]>)]| {
            let mut builder = BatchBuilder::new().compression(codec);
            for (timestamp, key) in records {
                builder.push(*timestamp, *key, Some(b"value"));
            }
            builder.build()
        };
        let key = Some(&b"k"[..]);
        let no_key = RecordRefusalReason::NoKey;
        let late = RecordRefusalReason::Timestamp {
            timestamp: NOW_MS + 11,
            earliest: NOW_MS - 10,
            latest: NOW_MS + 10,
        };
        let refused = |records: &[(i64, Option<&[u8]>)]| {
            producer_batch(built(records), &window).expect_err("refused")
        };
        let error = refused(&[(NOW_MS, None), (NOW_MS, key), (-1, None)]);
        assert_eq!(error.code, ErrorCode::InvalidRecord);
        let named = |index, reason| RecordRefusal { index, reason };
        assert_eq!(error.record_errors, [named(0, no_key), named(2, no_key)]);
        // One bad timestamp makes it a matter of timestamps; the key is looked at first.
        let error = refused(&[(NOW_MS + 11, None), (NOW_MS + 11, key), (NOW_MS, key)]);
        assert_eq!(error.code, ErrorCode::InvalidTimestamp);
        assert_eq!(error.record_errors, [named(0, no_key), named(1, late)]);
        assert!(
            error.message.contains("2 of 3 records"),
            "{}",
            error.message
        );
        let error = refused(&[(NOW_MS, None); 5000]);
        assert_eq!(error.record_errors.len(), 32);
        assert!(error.message.contains("5000 of 5000"), "{}", error.message);
        producer_batch(built(&[(NOW_MS, key), (-1, key)]), &window).expect("taken");
    }
}

#[test]
fn a_producer_may_not_mark_timestamps_as_the_brokers() {
    for timestamp_type in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
        let mut marked = BatchBuilder::new().timestamp_type(TimestampType::LogAppendTime);
        marked.push(NOW_MS, None, None);
        let rules = Rules {
            timestamp_type,
            ..rules()
        };
        let error = producer_batch(marked.build(), &rules).expect_err("refused");
        assert_eq!(error.code, ErrorCode::InvalidTimestamp);
        let reason = RecordRefusalReason::LogAppendTime;
        assert_eq!(error.record_errors, [RecordRefusal { index: 0, reason }]);
    }
}

#[test]
fn a_wrong_largest_timestamp_is_corrected_in_every_codec() {
    for codec in Compression::ALL {
        let good = good(codec);
        let wrong = forged(&good, at::MAX_TIMESTAMP, &(NOW_MS + 99).to_be_bytes());
        assert_ne!(wrong, good);
        let batch = producer_batch(wrong, &rules()).unwrap();
        assert_eq!(batch.bytes, good, "{codec:?}");
        assert_eq!(batch.header.max_timestamp, NOW_MS + 1);
    }
}

#[test]
fn settings_become_rules() {
    let broker = BrokerConfig::default();
    let encoding = |pairs: &[(&str, &str)]| {
        let config = TopicConfig::resolve(&broker, pairs.iter().copied()).unwrap();
        Rules::of(&config, NOW_MS).encoding
    };
    let of = |compression, level| Some(Encoding { compression, level });
    assert_eq!(encoding(&[]), None);
    assert_eq!(encoding(&[("compression.type", "producer")]), None);
    let uncompressed = Some(Encoding::of(Compression::None));
    assert_eq!(
        encoding(&[("compression.type", "uncompressed")]),
        uncompressed
    );
    let snappy = Some(Encoding::of(Compression::Snappy));
    assert_eq!(encoding(&[("compression.type", "snappy")]), snappy);
    let leveled = |name: &str, level: &str| {
        let setting = format!("compression.{name}.level");
        encoding(&[("compression.type", name), (&setting, level)])
    };
    assert_eq!(leveled("gzip", "9"), of(Compression::Gzip, 9));
    assert_eq!(leveled("lz4", "17"), of(Compression::Lz4, 17));
    assert_eq!(leveled("zstd", "-5"), of(Compression::Zstd, -5));
    assert_eq!(
        encoding(&[("compression.type", "gzip")]),
        Some(Encoding::of(Compression::Gzip))
    );
    assert_eq!(
        encoding(&[("compression.type", "lz4")]),
        Some(Encoding::of(Compression::Lz4))
    );
    assert_eq!(
        encoding(&[("compression.type", "zstd")]),
        Some(Encoding::of(Compression::Zstd))
    );
    let config = TopicConfig::resolve(&broker, [("message.timestamp.type", "LogAppendTime")]);
    let rules = Rules::of(&config.unwrap(), NOW_MS);
    assert_eq!(rules.timestamp_type, TimestampType::LogAppendTime);
}

#[test]
fn a_large_batch_pauses_for_others_and_a_small_one_does_not() {
    let pauses = |records: Bytes, encoding| {
        let count = std::cell::Cell::new(0);
        let pause = async || count.set(count.get() + 1);
        let rules = Rules {
            encoding,
            ..rules()
        };
        let done = block_on(super::producer_batch(records, &rules, pause));
        done.expect("taken");
        count.get()
    };
    let built = |codec, records: usize, bytes| {
        let mut builder = BatchBuilder::new().compression(codec);
        let value = vec![b'v'; bytes];
        for _ in 0..records {
            builder.push(NOW_MS, None, Some(&value));
        }
        builder.build()
    };
    for codec in Compression::ALL {
        for to in Compression::ALL {
            let to = Some(Encoding::of(to));
            assert_eq!(
                pauses(built(codec, 10, 1_000), to),
                0,
                "{codec:?} to {to:?}"
            );
        }
        assert!(pauses(built(codec, 40_000, 10), None) >= 4, "{codec:?}");
    }
    for codec in &Compression::ALL[1..] {
        let large = built(*codec, 80, 100_000);
        assert!(pauses(large.clone(), None) >= 7, "{codec:?}");
        for to in &Compression::ALL[1..] {
            if to != codec {
                let to = Some(Encoding::of(*to));
                assert!(pauses(large.clone(), to) >= 7 + 100, "{codec:?} to {to:?}");
            }
        }
    }
}
