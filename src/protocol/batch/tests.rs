//! Unit tests of the batch.

use bytes::Bytes;

use super::*;

const LIMIT: usize = 1 << 20;
const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

fn builder() -> BatchBuilder {
    let mut builder = BatchBuilder::new().producer(9, 1, 4);
    builder.push(1000, Some(b"k0"), Some(b"value 0"));
    builder.push_with_headers(1030, None, Some(b"v1"), &[("h", Some(b"x")), ("n", None)]);
    builder.push(1010, Some(b"k2"), None);
    builder
}

/// A batch whose header field at `place` is overwritten, with the right CRC.
fn with_field(batch: &Bytes, place: usize, value: &[u8]) -> Bytes {
    let mut bytes = batch.to_vec();
    bytes[place..place + value.len()].copy_from_slice(value);
    fix_crc(bytes)
}

/// A batch of `count` records with these record bytes and the right length and CRC.
fn with_records(records: &[u8], count: i32, compression: Compression) -> BatchView {
    let mut bytes = builder().compression(compression).build()[..HEADER_BYTES].to_vec();
    bytes.extend_from_slice(records);
    let length = (bytes.len() - LENGTH_OVERHEAD_BYTES) as i32;
    bytes[at::LENGTH..at::LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    bytes[at::RECORD_COUNT..].splice_in(&count.to_be_bytes());
    bytes[at::LAST_OFFSET_DELTA..].splice_in(&(count - 1).to_be_bytes());
    let batch = BatchView::parse(fix_crc(bytes)).unwrap();
    batch.validate_crc().unwrap();
    batch
}

trait SpliceIn {
    fn splice_in(&mut self, value: &[u8]);
}

impl SpliceIn for [u8] {
    fn splice_in(&mut self, value: &[u8]) {
        self[..value.len()].copy_from_slice(value);
    }
}

fn fix_crc(mut bytes: Vec<u8>) -> Bytes {
    let crc = view::crc(&bytes);
    bytes[at::CRC..].splice_in(&crc.to_be_bytes());
    bytes.into()
}

#[test]
fn crc_32c_has_its_known_values() {
    // RFC 3720, B.4.
    assert_eq!(crc_fast::crc32_iscsi(b"123456789"), 0xe306_9283);
    assert_eq!(crc_fast::crc32_iscsi(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc_fast::crc32_iscsi(&[0xff; 32]), 0x62a8_ab43);
    let ascending: Vec<u8> = (0..32).collect();
    assert_eq!(crc_fast::crc32_iscsi(&ascending), 0x46dd_794e);
}

#[test]
fn what_is_built_is_read() {
    for codec in CODECS {
        let bytes = builder().compression(codec).build();
        let batch = BatchView::parse_produced(bytes.clone()).unwrap();
        let header = *batch.header();
        assert_eq!(header.size_bytes(), bytes.len());
        assert_eq!(header.attributes.compression(), Ok(codec));
        assert_eq!((header.base_timestamp, header.max_timestamp), (1000, 1030));
        assert_eq!(
            (
                header.producer_id,
                header.producer_epoch,
                header.base_sequence
            ),
            (9, 1, 4)
        );
        assert_eq!((header.last_offset(), header.next_offset()), (2, 3));
        assert_eq!(batch.records().is_some(), codec == Compression::None);

        let summary = batch.validate_records(LIMIT).unwrap();
        assert_eq!(summary.max_timestamp, (1030, 1));
        assert!(!summary.has_all_keys);

        let records = batch.decompressed(LIMIT).unwrap();
        assert_eq!(summary.records_bytes, records.len());
        let records: Vec<_> = RecordIter::new(&records, header.record_count)
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(records.len(), 3);
        assert_eq!(records[0].key, Some(&b"k0"[..]));
        assert_eq!(records[0].value, Some(&b"value 0"[..]));
        assert_eq!(records[1].key, None);
        assert_eq!(records[1].timestamp_delta, 30);
        let headers: Vec<_> = records[1].headers.collect();
        assert_eq!(records[1].headers.len(), 2);
        assert_eq!(
            (headers[0].key, headers[0].value),
            (&b"h"[..], Some(&b"x"[..]))
        );
        assert_eq!((headers[1].key, headers[1].value), (&b"n"[..], None));
        assert_eq!(records[2].value, None);
        assert!(records[2].headers.is_empty());
    }
}

#[test]
fn stamping_keeps_the_crc() {
    let mut bytes = builder().build().to_vec();
    stamp(&mut bytes, 1 << 40, 77);
    let batch = BatchView::parse(bytes.into()).unwrap();
    batch.validate_crc().unwrap();
    assert_eq!(batch.header().base_offset, 1 << 40);
    assert_eq!(batch.header().leader_epoch, 77);
    assert_eq!(batch.header().last_offset(), (1 << 40) + 2);
}

#[test]
fn lengths_must_be_exact() {
    let bytes = builder().build();
    let mut longer = bytes.to_vec();
    longer.push(0);
    assert_eq!(
        BatchView::parse(longer.into()),
        Err(BatchError::Trailing(1))
    );
    for cut in 0..bytes.len() {
        let error = BatchView::parse(bytes.slice(..cut)).unwrap_err();
        assert!(
            matches!(error, BatchError::Incomplete { have, .. } if have == cut),
            "{error}"
        );
    }
    for length in [-1i32, 0, 48, i32::MIN] {
        let bad = with_field(&bytes, at::LENGTH, &length.to_be_bytes());
        assert_eq!(BatchView::parse(bad), Err(BatchError::BadLength(length)));
    }
    let huge = with_field(&bytes, at::LENGTH, &i32::MAX.to_be_bytes());
    assert!(matches!(
        BatchView::parse(huge),
        Err(BatchError::Incomplete { .. })
    ));
}

#[test]
fn what_a_producer_may_not_send_is_refused() {
    let good = builder().build();
    let refused = |bytes| BatchView::parse_produced(bytes).unwrap_err();

    let mut flipped = good.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    let error = refused(flipped.into());
    assert!(matches!(error, BatchError::BadCrc { .. }), "{error}");
    assert_eq!(error.error_code(), ErrorCode::CorruptMessage);

    assert_eq!(
        refused(with_field(&good, at::MAGIC, &[1])),
        BatchError::BadMagic(1)
    );
    assert_eq!(
        refused(with_field(&good, at::ATTRIBUTES, &[0, 5])),
        BatchError::UnknownCompression(5)
    );
    assert_eq!(
        refused(builder().control(true).build()),
        BatchError::Control
    );
    assert_eq!(
        refused(builder().base_offset(3).build()),
        BatchError::BaseOffset(3)
    );
    for count in [2i32, 4, 0, -1, i32::MIN] {
        let bad = with_field(&good, at::RECORD_COUNT, &count.to_be_bytes());
        let last_offset_delta = 2;
        let error = refused(bad);
        assert_eq!(
            error,
            BatchError::CountMismatch {
                count,
                last_offset_delta
            }
        );
        assert_eq!(error.error_code(), ErrorCode::InvalidRecord);
    }
    assert_eq!(refused(Bytes::new()), BatchError::Missing);
    // Damage in the header is damage, whatever it looks like.
    let mut damaged = good.to_vec();
    damaged[at::RECORD_COUNT] ^= 1;
    assert!(matches!(refused(damaged.into()), BatchError::BadCrc { .. }));
    let empty = BatchBuilder::new().build();
    assert!(matches!(
        refused(empty),
        BatchError::CountMismatch { count: 0, .. }
    ));
}

#[test]
fn malformed_records_are_refused() {
    let good = builder().build().slice(HEADER_BYTES..);
    let kind = |records: &[u8], count| {
        let batch = with_records(records, count, Compression::None);
        match batch.validate_records(LIMIT).unwrap_err() {
            BatchError::Record(error) => error.kind,
            other => panic!("{other}"),
        }
    };
    // The count is exact, and nothing follows.
    assert_eq!(kind(&good, 4), RecordErrorKind::Missing);
    assert!(matches!(kind(&good, 2), RecordErrorKind::Trailing(_)));
    let mut longer = good.to_vec();
    longer.push(0);
    assert_eq!(kind(&longer, 3), RecordErrorKind::Trailing(1));
    // Cut anywhere.
    for cut in 0..good.len() {
        kind(&good[..cut], 3);
    }
    // An offset delta that is not the record's place: the same record twice.
    let first = &good[..1 + (good[0] >> 1) as usize];
    assert_eq!(
        kind(&[first, first].concat(), 2),
        RecordErrorKind::OffsetDelta(0)
    );
    // Lengths that reach out of the record, or are negative. Zigzag: 20 is 10, 3 is -2, 1 is -1.
    assert!(matches!(
        kind(&[12, 0, 0, 0, 20, 0, 0], 1),
        RecordErrorKind::Length {
            what: "key",
            length: 10,
            ..
        }
    ));
    assert!(matches!(
        kind(&[12, 0, 0, 0, 3, 0, 0], 1),
        RecordErrorKind::Length {
            what: "key",
            length: -2,
            ..
        }
    ));
    assert!(matches!(
        kind(&[12, 0, 0, 0, 1, 1, 1], 1),
        RecordErrorKind::Length {
            what: "list of headers",
            length: -1,
            ..
        }
    ));
    assert!(matches!(
        kind(&[12, 0, 0, 0, 1, 1, 126], 1),
        RecordErrorKind::Length {
            what: "list of headers",
            length: 63,
            ..
        }
    ));
    assert!(matches!(
        kind(&[1], 1),
        RecordErrorKind::Length {
            what: "record",
            length: -1,
            ..
        }
    ));
    assert!(matches!(
        kind(&[0], 1),
        RecordErrorKind::Length {
            what: "record",
            length: 0,
            ..
        }
    ));
    // A header key may not be null.
    assert!(matches!(
        kind(&[16, 0, 0, 0, 1, 1, 2, 1, 1], 1),
        RecordErrorKind::Length {
            what: "header key",
            length: -1,
            ..
        }
    ));
    // A byte after the last header, inside the record.
    assert_eq!(
        kind(&[14, 0, 0, 0, 1, 1, 0, 9], 1),
        RecordErrorKind::TrailingInRecord(1)
    );
    // And one that is right, so that the above fail for their own reasons.
    with_records(&[12, 0, 0, 0, 1, 1, 0], 1, Compression::None)
        .validate_records(LIMIT)
        .unwrap();
}

#[test]
fn batches_follow_each_other() {
    let one = builder().build();
    let two = builder()
        .base_offset(3)
        .compression(Compression::Lz4)
        .build();
    let all: Bytes = [one.clone(), two.clone()].concat().into();
    let got: Vec<_> = Batches::new(all.clone())
        .map(|b| b.unwrap().into_bytes())
        .collect();
    assert_eq!(got, [one.clone(), two]);

    let cut_off = all.slice(..all.len() - 1);
    let got: Vec<_> = Batches::new(cut_off).collect();
    assert_eq!(got.len(), 2);
    assert_eq!(got[0].as_ref().unwrap().bytes(), &one);
    assert!(matches!(got[1], Err(BatchError::Incomplete { .. })));
    assert_eq!(Batches::new(Bytes::new()).count(), 0);
}

#[test]
fn timestamps_are_found_exactly() {
    for codec in CODECS {
        let bytes = builder().base_offset(100).compression(codec).build();
        let batch = BatchView::parse(bytes).unwrap();
        let find = |timestamp| batch.offset_for_timestamp(timestamp, LIMIT).unwrap();
        assert_eq!(find(0), Some((1000, 100)));
        assert_eq!(find(1000), Some((1000, 100)));
        assert_eq!(find(1005), Some((1030, 101)));
        assert_eq!(find(1030), Some((1030, 101)));
        assert_eq!(find(1031), None);
    }
    let appended = builder()
        .base_offset(100)
        .timestamp_type(TimestampType::LogAppendTime)
        .build();
    let batch = BatchView::parse(appended).unwrap();
    assert_eq!(
        batch.offset_for_timestamp(1005, LIMIT),
        Ok(Some((1030, 100)))
    );
    assert_eq!(
        batch.validate_records(LIMIT).unwrap().max_timestamp,
        (1030, 0)
    );
}

#[test]
fn every_codec_gives_back_what_it_took() {
    let text: Vec<u8> = (0..200_000u32).map(|i| (i / 7 % 251) as u8).collect();
    for codec in CODECS {
        for input in [&text[..], &text[..1], b""] {
            let packed = compress(codec, input).unwrap();
            assert_eq!(
                decompress(codec, &packed, input.len()).unwrap(),
                input,
                "{codec:?}"
            );
            if !input.is_empty() {
                let limit = input.len() - 1;
                let error = decompress(codec, &packed, limit).unwrap_err();
                assert_eq!(error, DecompressError::TooLarge { limit }, "{codec:?}");
            }
        }
    }
}

#[test]
fn cut_off_or_damaged_input_is_an_error() {
    let text: Vec<u8> = (0..5000u32).map(|i| (i * i % 251) as u8).collect();
    for codec in CODECS.into_iter().skip(1) {
        let packed = compress(codec, &text).unwrap();
        let end = packed.len();
        for cut in 1..end {
            let got = decompress(codec, &packed[..cut], LIMIT);
            // Xerial framing without a block is whole, and empty.
            let is_refused = got.map_or(true, |out| codec == Compression::Snappy && out.is_empty());
            assert!(is_refused, "{codec:?} cut at {cut} of {end}");
        }
        let mut longer = packed.clone();
        longer.extend(b"garbage!");
        assert!(decompress(codec, &longer, LIMIT).is_err(), "{codec:?}");
        assert!(
            decompress(codec, b"no such thing as this", LIMIT).is_err(),
            "{codec:?}"
        );
    }
}

#[test]
fn a_zstd_context_carries_nothing_over_from_a_refused_batch() {
    let text = vec![b'x'; 300_000];
    let packed = compress(Compression::Zstd, &text).unwrap();
    for _ in 0..3 {
        let half = &packed[..packed.len() / 2];
        decompress(Compression::Zstd, half, LIMIT).unwrap_err();
        decompress(Compression::Zstd, &packed, 1000).unwrap_err();
        decompress(Compression::Zstd, b"garbage", LIMIT).unwrap_err();
        assert_eq!(
            decompress(Compression::Zstd, &packed, LIMIT),
            Ok(text.clone())
        );
    }
}

#[test]
fn bombs_are_errors() {
    let zeros = vec![0; 32 << 20];
    for codec in CODECS.into_iter().skip(1) {
        let packed = compress(codec, &zeros).unwrap();
        assert!(packed.len() < zeros.len() / 20, "{codec:?} makes no bomb");
        let limit = 1 << 20;
        let error = decompress(codec, &packed, limit).unwrap_err();
        assert_eq!(error, DecompressError::TooLarge { limit }, "{codec:?}");
        let batch = with_records(&packed, 1, codec);
        let error = batch.validate_records(limit).unwrap_err();
        assert_eq!(
            error,
            BatchError::Decompress(DecompressError::TooLarge { limit })
        );
    }
}

#[test]
fn snappy_is_read_raw_and_in_xerial_framing() {
    // "snappy" by hand: length 6, a literal of 6 bytes.
    let raw = [6, 5 << 2, b's', b'n', b'a', b'p', b'p', b'y'];
    assert_eq!(decompress(Compression::Snappy, &raw, 6).unwrap(), b"snappy");

    let framed = |blocks: &[&[u8]]| {
        let mut bytes = vec![
            0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1,
        ];
        for block in blocks {
            bytes.extend((block.len() as i32).to_be_bytes());
            bytes.extend(*block);
        }
        bytes
    };
    let two = framed(&[&raw, &raw]);
    assert_eq!(
        decompress(Compression::Snappy, &two, 12).unwrap(),
        b"snappysnappy"
    );
    let limit = 11;
    assert_eq!(
        decompress(Compression::Snappy, &two, limit),
        Err(DecompressError::TooLarge { limit })
    );
    // A prefix that claims 4 GiB, with a limit that would allow it.
    let claims = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    for bytes in [&claims[..], &framed(&[&claims])] {
        let error = decompress(Compression::Snappy, bytes, usize::MAX).unwrap_err();
        assert!(
            matches!(error, DecompressError::Malformed { .. }),
            "{error}"
        );
    }
    for block_length in [-1i32, 9, i32::MAX] {
        let mut bytes = framed(&[]);
        bytes.extend(block_length.to_be_bytes());
        bytes.extend(raw);
        assert!(decompress(Compression::Snappy, &bytes, LIMIT).is_err());
    }
    assert!(decompress(Compression::Snappy, &framed(&[])[..12], LIMIT).is_err());
}
