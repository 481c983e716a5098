//! CRC-32C, and what validation spends on a batch of 100 records of 1 KiB.

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use futures_lite::future::block_on;
use highwater::protocol::batch::{
    BatchBuilder, BatchView, Compression, Encoding, RecompressBounds, RECORDS_BYTES_MAX,
};
use std::hint::black_box;
use std::time::Duration;

const RECORDS: usize = 100;
const RECORD_BYTES: usize = 1024;

/// Text that compresses about as well as log lines do.
fn batch(codec: Compression) -> Bytes {
    let mut state = 1u64;
    let mut word = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % 5000
    };
    let mut builder = BatchBuilder::new().compression(codec);
    for i in 0..RECORDS {
        let mut value = String::new();
        while value.len() < RECORD_BYTES {
            value += &format!(
                "{{\"level\":\"INFO\",\"request\":{},\"took\":{}}} ",
                word(),
                word()
            );
        }
        value.truncate(RECORD_BYTES);
        builder.push(1000 + i as i64, Some(&[i as u8; 8]), Some(value.as_bytes()));
    }
    builder.build()
}

pub fn crc(c: &mut Criterion) {
    let mut group = c.benchmark_group("crc-32c");
    group.measurement_time(Duration::from_secs(2));
    for bytes in [61, 1 << 10, 16 << 10, 1 << 20] {
        let data: Vec<u8> = (0..bytes).map(|i| (i * 7) as u8).collect();
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("{bytes} bytes"), |b| {
            b.iter(|| crc_fast::crc32_iscsi(black_box(&data)))
        });
    }
    group.finish();
}

/// Form, CRC and every record: what a batch costs that is kept as it came. Bytes are
/// those of the records, not compressed.
pub fn validate(c: &mut Criterion) {
    let mut group = c.benchmark_group("validate 100 x 1 KiB");
    group.measurement_time(Duration::from_secs(2));
    group.throughput(Throughput::Bytes((RECORDS * RECORD_BYTES) as u64));
    for codec in Compression::ALL {
        let bytes = batch(codec);
        group.bench_function(format!("{codec:?}, {} bytes", bytes.len()), |b| {
            b.iter(|| {
                let view = BatchView::parse_produced(bytes.clone()).unwrap();
                let scan = view.scan(1 << 20).unwrap();
                scan.map(|record| record.unwrap().timestamp_delta).max()
            })
        });
    }
    group.finish();
}

/// What a batch of one small record costs: nearly all of it is setting up.
pub fn validate_small(c: &mut Criterion) {
    let mut group = c.benchmark_group("validate 1 x 100 bytes");
    group.measurement_time(Duration::from_secs(2));
    for codec in Compression::ALL {
        let mut builder = BatchBuilder::new().compression(codec);
        builder.push(1000, Some(b"key"), Some(&[b'v'; 100]));
        let bytes = builder.build();
        group.bench_function(format!("{codec:?}"), |b| {
            b.iter(|| {
                let view = BatchView::parse_produced(bytes.clone()).unwrap();
                let scan = view.scan(RECORDS_BYTES_MAX).unwrap();
                scan.map(|record| record.unwrap().timestamp_delta).max()
            })
        });
    }
    group.finish();
}

/// What `compression.type` adds.
pub fn recompress(c: &mut Criterion) {
    let mut group = c.benchmark_group("recompress 100 x 1 KiB from none");
    group.measurement_time(Duration::from_secs(2));
    group.throughput(Throughput::Bytes((RECORDS * RECORD_BYTES) as u64));
    let view = BatchView::parse(batch(Compression::None)).unwrap();
    let bounds = RecompressBounds {
        records_bytes: view.records_bytes().len(),
        batch_bytes_max: 1 << 20,
    };
    for codec in &Compression::ALL[1..] {
        group.bench_function(format!("{codec:?}"), |b| {
            b.iter(|| {
                let encoding = Encoding::of(*codec);
                let done = view.recompressed(encoding, view.timestamps(), bounds, async || {});
                block_on(done).unwrap()
            })
        });
    }
    group.finish();
}

/// The longest that a batch holds a core, if it is a single record (between records
/// others get their turn): until it is refused at the limit.
pub fn bombs(c: &mut Criterion) {
    let mut group = c.benchmark_group("refuse a bomb at 100 MiB");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(2));
    for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let mut builder = BatchBuilder::new().compression(codec);
        builder.push(1000, None, Some(&vec![0; 101 << 20]));
        let view = BatchView::parse(builder.build()).unwrap();
        group.bench_function(format!("{codec:?}, {} bytes", view.bytes().len()), |b| {
            b.iter(|| {
                let mut scan = view.scan(RECORDS_BYTES_MAX).unwrap();
                assert!(scan.next().unwrap().is_err());
            })
        });
    }
    // Snappy makes at most 22 bytes of one, so a batch that passes `max.message.bytes`
    // is read to its end.
    let mut builder = BatchBuilder::new().compression(Compression::Snappy);
    builder.push(1000, None, Some(&vec![0; 20 << 20]));
    let view = BatchView::parse(builder.build()).unwrap();
    group.bench_function(format!("Snappy, {} bytes", view.bytes().len()), |b| {
        b.iter(|| {
            let mut scan = view.scan(RECORDS_BYTES_MAX).unwrap();
            assert!(scan.next().unwrap().is_ok());
        })
    });
    group.finish();
}
