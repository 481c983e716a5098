//! Unit tests of the batch.

use bytes::Bytes;

use super::*;

const LIMIT: usize = 1 << 20;
const CODECS: [Compression; 5] = Compression::ALL;

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

fn scan_all(batch: &BatchView, limit: usize) -> Result<Vec<ScannedRecord>, BatchError> {
    batch.scan(limit)?.collect()
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

        let mut scan = batch.scan(LIMIT).unwrap();
        let scanned: Vec<_> = scan.by_ref().collect::<Result<_, _>>().unwrap();
        let scanned = scanned
            .iter()
            .map(|r| (r.offset_delta, r.timestamp_delta, r.has_key));
        assert!(scanned.eq([(0, 0, true), (1, 30, false), (2, 10, true)]));

        let records = batch.decompressed(LIMIT).unwrap();
        assert_eq!(scan.total_bytes(), records.len());
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
        let scanned = match scan_all(&batch, LIMIT).unwrap_err() {
            BatchError::Record(error) => error.kind,
            other => panic!("{other}"),
        };
        // In memory, the same is wrong, if not always in the same words.
        RecordIter::new(records, count)
            .collect::<Result<Vec<_>, _>>()
            .unwrap_err();
        scanned
    };
    // The count is exact, and nothing follows.
    assert_eq!(kind(&good, 4), RecordErrorKind::Missing);
    assert!(matches!(kind(&good, 2), RecordErrorKind::Trailing));
    let mut longer = good.to_vec();
    longer.push(0);
    assert_eq!(kind(&longer, 3), RecordErrorKind::Trailing);
    // Cut anywhere.
    for cut in 0..good.len() {
        kind(&good[..cut], 3);
    }
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
    let right = with_records(&[12, 0, 0, 0, 1, 1, 0], 1, Compression::None);
    assert_eq!(scan_all(&right, LIMIT).unwrap().len(), 1);
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
fn bombs_are_errors() {
    let mut bomb = BatchBuilder::new();
    bomb.push(1000, None, Some(&vec![0; 6 << 20]));
    let zeros = bomb.build().slice(HEADER_BYTES..);
    for codec in CODECS.into_iter().skip(1) {
        let packed = compress(codec, &zeros).unwrap();
        assert!(packed.len() < zeros.len() / 20, "{codec:?} makes no bomb");
        let limit = 1 << 20;
        let error = decompress(codec, &packed, limit).unwrap_err();
        assert_eq!(error, DecompressError::TooLarge { limit }, "{codec:?}");
        let batch = with_records(&packed, 1, codec);
        let error = scan_all(&batch, limit).unwrap_err();
        assert_eq!(
            error,
            BatchError::Decompress(DecompressError::TooLarge { limit })
        );
    }
}

/// Records of every length from one byte to some pieces: each field of one straddles two
/// pieces at some time.
#[test]
fn records_are_scanned_across_pieces_as_in_memory() {
    for codec in CODECS {
        let mut builder = BatchBuilder::new().compression(codec);
        let noise: Vec<u8> = (0..100_000u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        for i in 0..200usize {
            let length = match i % 60 {
                0 => 70_000 + i,
                n => 19 * n + i,
            };
            let key = (i % 3 > 0).then_some(&noise[i..i + i % 200]);
            let value = Some(&noise[i..i + length]);
            let headers = [("header", value), ("", None)];
            let timestamp = 1000 + (i as i64 % 7) * 1_000_000;
            builder.push_with_headers(timestamp, key, value, &headers[..i % 3]);
        }
        let batch = BatchView::parse_produced(builder.build()).unwrap();
        let count = batch.header().record_count;
        let in_memory = batch.decompressed(8 << 20).unwrap();
        let in_memory: Vec<_> = RecordIter::new(&in_memory, count)
            .map(|record| record.unwrap())
            .map(|record| ScannedRecord {
                offset_delta: record.offset_delta,
                timestamp_delta: record.timestamp_delta,
                has_key: record.key.is_some(),
            })
            .collect();
        assert_eq!(in_memory.len(), 200);
        assert_eq!(scan_all(&batch, 8 << 20).unwrap(), in_memory, "{codec:?}");

        // Cut anywhere, it is noticed, also where a piece ends.
        let records = batch.decompressed(8 << 20).unwrap();
        let piece = 64 << 10;
        let cuts = [1, piece - 1, piece, piece + 1, 4 * piece, records.len() - 1];
        for cut in cuts {
            let packed = compress(codec, &records[..cut]).unwrap();
            let cut_off = with_records(&packed, 200, codec);
            let error = scan_all(&cut_off, 8 << 20).unwrap_err();
            assert!(matches!(error, BatchError::Record(_)), "{codec:?}: {error}");
        }
    }
}

#[test]
fn memory_of_a_scan_is_a_piece_whatever_one_record_decompresses_to() {
    let mut builder = BatchBuilder::new();
    builder.push(1000, None, Some(&vec![b'x'; 3 << 20]));
    let plain = BatchView::parse(builder.build()).unwrap();
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let packed = compress(codec, plain.records_bytes()).unwrap();
        let mut pieces = Pieces::new(codec, &packed, 32 << 20);
        let mut total = 0;
        loop {
            let piece = pieces.next_piece().unwrap().len();
            assert!(piece <= 64 << 10, "{codec:?}: a piece of {piece} bytes");
            total += piece;
            if piece == 0 {
                break;
            }
        }
        assert_eq!(total, plain.records_bytes().len());
        let batch = with_records(&packed, 1, codec);
        assert_eq!(scan_all(&batch, 32 << 20).unwrap().len(), 1);
    }
}

#[test]
fn what_is_rewritten_keeps_records_and_producer() {
    for from in CODECS {
        for to in CODECS {
            let batch = builder().transactional(true).compression(from).build();
            let batch = BatchView::parse(batch).unwrap();
            let records = batch.decompressed(LIMIT).unwrap();
            let timestamps = Timestamps {
                timestamp_type: TimestampType::LogAppendTime,
                max_timestamp: 5000,
            };
            let bounds = RecompressBounds {
                records_bytes: records.len(),
                batch_bytes_max: LIMIT,
            };
            let new = batch
                .recompressed_now(Encoding::of(to), timestamps, bounds)
                .unwrap();
            let restamped = batch.with_timestamps(timestamps);
            for (new, codec) in [(&new, to), (&restamped, from)] {
                let reparsed = BatchView::parse_produced(new.bytes().clone()).unwrap();
                assert_eq!(&reparsed, new);
                assert_eq!(new.decompressed(LIMIT).unwrap(), records);
                let mut header = *new.header();
                assert_eq!(header.attributes.compression(), Ok(codec));
                assert_eq!(new.timestamps(), timestamps);
                let old = batch.header();
                header.attributes = old.attributes;
                header.max_timestamp = old.max_timestamp;
                (header.crc, header.batch_length) = (old.crc, old.batch_length);
                assert_eq!(&header, old);
            }
            let small = RecompressBounds {
                batch_bytes_max: new.bytes().len() - 1,
                ..bounds
            };
            let error = batch.recompressed_now(Encoding::of(to), timestamps, small);
            assert_eq!(error, Err(BatchError::Outgrown(small.batch_bytes_max)));
            let exact = RecompressBounds {
                batch_bytes_max: new.bytes().len(),
                ..bounds
            };
            let fits = batch.recompressed_now(Encoding::of(to), timestamps, exact);
            assert_eq!(fits, Ok(new), "{from:?} to {to:?}");
        }
    }
}

impl BatchView {
    fn recompressed_now(
        &self,
        encoding: Encoding,
        timestamps: Timestamps,
        bounds: RecompressBounds,
    ) -> Result<Self, BatchError> {
        let done = self.recompressed(encoding, timestamps, bounds, async || {});
        futures_lite::future::block_on(done)
    }
}
