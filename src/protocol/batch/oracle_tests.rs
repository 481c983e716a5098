//! The batch against `kafka-protocol`'s, both ways, in every compression.

use bytes::{Bytes, BytesMut};
use kafka_protocol::records as oracle;
use proptest::prelude::*;

use super::*;

type Row = (
    i64,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(u8, Option<Vec<u8>>)>,
);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let bytes = || prop::option::of(prop::collection::vec(any::<u8>(), 0..200));
    let headers = prop::collection::vec((0..26u8, bytes()), 0..4);
    prop::collection::vec((0..1i64 << 40, bytes(), bytes(), headers), 1..20)
}

/// The oracle keeps headers in a map: no key twice.
fn headers_of(row: &Row) -> Vec<(String, Option<&[u8]>)> {
    let mut headers: Vec<(String, Option<&[u8]>)> = Vec::new();
    for (key, value) in &row.3 {
        let key = char::from(b'a' + key).to_string();
        if !headers.iter().any(|(seen, _)| *seen == key) {
            headers.push((key, value.as_deref()));
        }
    }
    headers
}

fn theirs(compression: Compression) -> oracle::Compression {
    match compression {
        Compression::None => oracle::Compression::None,
        Compression::Gzip => oracle::Compression::Gzip,
        Compression::Snappy => oracle::Compression::Snappy,
        Compression::Lz4 => oracle::Compression::Lz4,
        Compression::Zstd => oracle::Compression::Zstd,
    }
}

fn compressions() -> impl Iterator<Item = Compression> {
    (0..).map_while(Compression::from_code)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_we_build_the_oracle_reads(rows in rows()) {
        for compression in compressions() {
            let mut builder = BatchBuilder::new()
                .base_offset(500)
                .leader_epoch(3)
                .producer(9, 2, 40)
                .transactional(true)
                .compression(compression);
            for row in &rows {
                let headers = headers_of(row);
                let headers: Vec<_> = headers.iter().map(|(k, v)| (k.as_str(), *v)).collect();
                builder.push_with_headers(row.0, row.1.as_deref(), row.2.as_deref(), &headers);
            }
            let mut bytes = builder.build();
            let set = oracle::RecordBatchDecoder::decode(&mut bytes).unwrap();
            prop_assert!(bytes.is_empty());
            prop_assert_eq!(set.records.len(), rows.len());
            for (i, (record, row)) in set.records.iter().zip(&rows).enumerate() {
                prop_assert_eq!(record.offset, 500 + i as i64);
                prop_assert_eq!(record.sequence, 40 + i as i32);
                prop_assert_eq!(record.timestamp, row.0);
                prop_assert_eq!(record.key.as_deref(), row.1.as_deref());
                prop_assert_eq!(record.value.as_deref(), row.2.as_deref());
                prop_assert_eq!(record.partition_leader_epoch, 3);
                prop_assert_eq!((record.producer_id, record.producer_epoch), (9, 2));
                prop_assert!(record.transactional && !record.control);
                let headers: Vec<_> = record
                    .headers
                    .iter()
                    .map(|(k, v)| (k.to_string(), v.as_deref()))
                    .collect();
                prop_assert_eq!(headers, headers_of(row));
            }
        }
    }

    #[test]
    fn what_the_oracle_builds_we_read(rows in rows()) {
        for compression in compressions() {
            let records: Vec<_> = rows.iter().enumerate().map(|(i, row)| oracle::Record {
                transactional: false,
                control: false,
                delete_horizon: false,
                partition_leader_epoch: -1,
                producer_id: -1,
                producer_epoch: -1,
                timestamp_type: oracle::TimestampType::Creation,
                offset: i as i64,
                sequence: i as i32 - 1,
                timestamp: row.0,
                key: row.1.clone().map(Bytes::from),
                value: row.2.clone().map(Bytes::from),
                headers: headers_of(row)
                    .into_iter()
                    .map(|(k, v)| (k.into(), v.map(Bytes::copy_from_slice)))
                    .collect(),
            }).collect();
            let options = oracle::RecordEncodeOptions { version: 2, compression: theirs(compression) };
            let mut bytes = BytesMut::new();
            oracle::RecordBatchEncoder::encode(&mut bytes, &records, &options).unwrap();

            let batch = BatchView::parse_produced(bytes.freeze()).unwrap();
            let header = *batch.header();
            prop_assert_eq!(header.attributes.compression(), Ok(compression));
            let scanned: Vec<_> = batch.scan(1 << 20).unwrap().map(Result::unwrap).collect();
            let latest = rows.iter().map(|row| row.0).max();
            let scanned_latest = scanned.iter().map(|r| header.timestamp(r.timestamp_delta)).max();
            prop_assert_eq!(scanned_latest, latest);
            prop_assert_eq!(Some(header.max_timestamp), latest);
            let inner = batch.decompressed(1 << 20).unwrap();
            for (record, row) in RecordIter::new(&inner, header.record_count).zip(&rows) {
                let record = record.unwrap();
                prop_assert_eq!(header.timestamp(record.timestamp_delta), row.0);
                prop_assert_eq!(record.key, row.1.as_deref());
                prop_assert_eq!(record.value, row.2.as_deref());
                let headers: Vec<_> = record
                    .headers
                    .map(|h| (String::from_utf8(h.key.to_vec()).unwrap(), h.value))
                    .collect();
                prop_assert_eq!(headers, headers_of(row));
            }
        }
    }
}
