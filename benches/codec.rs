//! The codec on the hot path: a Produce request decoded and checked, a Fetch answer
//! encoded, the CRC over batches. `cargo bench --bench codec`.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use highwater::protocol::batch::{BatchBuilder, BatchView};
use highwater::protocol::messages::*;
use highwater::protocol::{request_frame, response_frame, Reader, Records, RequestHeader, Str};

fn batch(records: usize, value_bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new();
    let value = vec![7; value_bytes];
    for i in 0..records {
        builder.push(1000 + i as i64, None, Some(&value));
    }
    builder.build()
}

fn produce(c: &mut Criterion) {
    let mut group = c.benchmark_group("produce");
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 1500,
        topic_data: vec![TopicProduceData {
            name: "topic".into(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(Records::from(batch(1, 1024))),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let client: Str = "client".into();
    for version in [7, 12, 13] {
        let chunks = request_frame(1, Some(&client), version, &request).unwrap();
        let frame = Bytes::from(chunks.concat()).slice(4..);
        group.bench_function(format!("decode v{version}"), |b| {
            b.iter(|| {
                let mut r = Reader::new(frame.clone());
                let header = RequestHeader::decode(&mut r).unwrap();
                black_box(ProduceRequest::decode(&mut r, header.api_version).unwrap())
            })
        });
    }
    group.finish();
}

fn fetch(c: &mut Criterion) {
    let mut group = c.benchmark_group("fetch");
    let records = batch(100, 1024);
    let response = FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic: "topic".into(),
            partitions: (0..10)
                .map(|partition_index| PartitionData {
                    partition_index,
                    records: Some(Records::from(records.clone())),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    for version in [11, 17] {
        group.bench_function(format!("encode v{version}, 10 x 100 KiB"), |b| {
            b.iter(|| black_box(response_frame(1, version, &response).unwrap()))
        });
    }
    group.finish();
}

fn batches(c: &mut Criterion) {
    let mut group = c.benchmark_group("batch");
    for (name, bytes) in [
        ("1 KiB", batch(1, 1024)),
        ("64 KiB", batch(64, 1024)),
        ("1 MiB", batch(1024, 1024)),
    ] {
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("parse and CRC, {name}"), |b| {
            b.iter(|| black_box(BatchView::parse_produced(bytes.clone()).unwrap()))
        });
        let view = BatchView::parse(bytes.clone()).unwrap();
        group.bench_function(format!("read records, {name}"), |b| {
            b.iter(|| black_box(view.scan(usize::MAX).unwrap().all(|r| r.is_ok())))
        });
    }
    group.finish();
}

criterion_group!(all, produce, fetch, batches);
criterion_main!(all);
