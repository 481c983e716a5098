//! What becomes of batches on their way into the log: compression, timestamps, and what
//! is refused.

use super::client::{
    batch_at, batch_of, create_topic, fetch, fetch_all, list_offset, produce, produce_ok,
    produce_request, with,
};
use super::{data_dir, launch};
use bytes::Bytes;
use highwater::client::BrokerConnection;
use highwater::protocol::batch::{
    compress, BatchBuilder, BatchView, Compression, RecordIter, TimestampType,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const TYPES: [(&str, Option<Compression>); 6] = [
    ("producer", None),
    ("uncompressed", Some(Compression::None)),
    ("gzip", Some(Compression::Gzip)),
    ("snappy", Some(Compression::Snappy)),
    ("lz4", Some(Compression::Lz4)),
    ("zstd", Some(Compression::Zstd)),
];

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a clock after 1970").as_millis() as i64
}

/// Two pieces and some, so that records straddle them.
fn sample(codec: Compression, producer_id: i64) -> Bytes {
    let mut builder = BatchBuilder::new()
        .producer(producer_id, 0, 0)
        .compression(codec);
    for i in 0..150usize {
        let value: Vec<u8> = (0..1000).map(|n| (n * (i + 1) % 251) as u8).collect();
        let key = format!("key {i}");
        let key = (i % 2 == 0).then_some(key.as_bytes());
        let timestamp = 1_700_000_000_000 + (i as i64 * 7) % 100;
        builder.push_with_headers(timestamp, key, Some(&value), &[("h", None)]);
    }
    builder.build()
}

/// Timestamp, key, value, headers.
type Content = Vec<(i64, Option<Vec<u8>>, Option<Vec<u8>>, usize)>;

fn content(batch: &BatchView) -> Content {
    let bytes = batch.decompressed(1 << 20).expect("sound data");
    RecordIter::new(&bytes, batch.header().record_count)
        .map(|record| record.expect("a sound record"))
        .map(|record| {
            (
                batch.header().base_timestamp + record.timestamp_delta,
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
                record.headers.len(),
            )
        })
        .collect()
}

async fn stored(c: &BrokerConnection, topic: &str, offset: i64) -> BatchView {
    let answer = fetch(c, topic, 0, offset, 0, 1).await;
    assert_eq!(answer.error_code, 0);
    let bytes = answer.records.expect("records").to_bytes();
    let batch = BatchView::parse(bytes).expect("exactly one batch");
    batch.validate_crc().expect("the CRC is right");
    batch
}

#[test]
fn given_each_codec_and_each_compression_type_then_the_same_records_come_back() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        for (name, target) in TYPES {
            for timestamp_type in ["CreateTime", "LogAppendTime"] {
                let topic = format!("{name}-{timestamp_type}");
                let configs = [
                    ("compression.type", name),
                    ("message.timestamp.type", timestamp_type),
                    ("compression.gzip.level", "1"),
                    ("compression.lz4.level", "3"),
                    ("compression.zstd.level", "1"),
                ];
                assert_eq!(create_topic(&c, &topic, 1, &configs).await.error_code, 0);
                for (n, source) in Compression::ALL.into_iter().enumerate() {
                    let what = format!("{source:?} to {topic}");
                    let sent = sample(source, 4000 + n as i64);
                    let before = now_ms();
                    let answer = produce(&c, &topic, 0, -1, sent.clone()).await;
                    assert_eq!(answer.error_code, 0, "{what}: {:?}", answer.error_message);
                    assert_eq!(answer.base_offset, 150 * n as i64);
                    let sent = BatchView::parse(sent).expect("a batch");
                    let got = stored(&c, &topic, answer.base_offset).await;
                    assert_eq!(content(&got), content(&sent), "{what}");
                    let header = got.header();
                    let codec = header.attributes.compression();
                    assert_eq!(codec, Ok(target.unwrap_or(source)), "{what}");
                    assert_eq!(header.producer_id, 4000 + n as i64);
                    assert_eq!((header.producer_epoch, header.base_sequence), (0, 0));
                    let (expected_type, append_time) = match timestamp_type {
                        "CreateTime" => (TimestampType::CreateTime, -1),
                        _ => (TimestampType::LogAppendTime, header.max_timestamp),
                    };
                    assert_eq!(header.attributes.timestamp_type(), expected_type, "{what}");
                    assert_eq!(answer.log_append_time_ms, append_time, "{what}");
                    if append_time >= 0 {
                        assert!(append_time >= before, "{what}: the broker's clock");
                        let first = list_offset(&c, &topic, 0, append_time).await;
                        assert!(first.offset <= answer.base_offset && first.offset % 150 == 0);
                    } else {
                        assert_eq!(header.max_timestamp, 1_700_000_000_099, "{what}");
                        // Within the compressed batch: the record 14 is the first with 98.
                        let at = list_offset(&c, &topic, 0, 1_700_000_000_098).await;
                        assert_eq!((at.offset, at.timestamp), (14, 1_700_000_000_098));
                    }
                }
            }
        }
    });
    broker.stop();
}

/// A small batch of `codec` whose one record has `bytes` zeros.
fn bomb(codec: Compression, bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new().compression(codec);
    builder.push(1_700_000_000_000, None, Some(&vec![0; bytes]));
    builder.build()
}

/// A batch whose snappy data claims 4 GiB, which it cannot hold: what snappy makes is at
/// most 22 times its input.
fn snappy_claim() -> Bytes {
    let mut bytes = bomb(Compression::Snappy, 1)[..61].to_vec();
    bytes.extend([0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    sealed(bytes)
}

fn sealed(mut bytes: Vec<u8>) -> Bytes {
    let crc = crc_fast::crc32_iscsi(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

/// With the record bytes replaced, whatever they are then.
fn with_records(codec: Compression, records: &[u8]) -> Bytes {
    let mut bytes = bomb(codec, 1)[..61].to_vec();
    bytes.extend_from_slice(records);
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    sealed(bytes)
}

#[test]
fn given_bombs_and_bad_records_then_each_gets_its_code_and_others_are_served() {
    let dir = data_dir();
    let broker = launch(dir.path()).shards(2).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "bombed", 1, &[]).await;
        create_topic(&c, "served", 4, &[]).await;
    });
    let before = broker.resident_bytes();
    let (is_over, served) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (addr, over, count) = (broker.addr(), is_over.clone(), served.clone());
    let other = std::thread::spawn(move || {
        with(addr, move |c| async move {
            let mut partition = 0;
            while !over.load(Ordering::SeqCst) {
                produce_ok(&c, "served", partition, batch_of("x")).await;
                partition = (partition + 1) % 4;
                count.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    let progress = served.clone();
    with(broker.addr(), move |c| async move {
        let mut cases = vec![("a claim of snappy", snappy_claim(), 87)];
        for codec in [Compression::Gzip, Compression::Lz4, Compression::Zstd] {
            // 100 MiB is what the records of a batch may decompress to.
            let bomb = bomb(codec, 101 << 20);
            assert!(bomb.len() < 1_000_000, "{codec:?}: {} bytes", bomb.len());
            cases.push(("a bomb", bomb, 10));
        }
        for codec in Compression::ALL {
            let packed = |records: &[u8]| compress(codec, records).expect("compresses");
            for records in [
                packed(&[0]),
                packed(&[0xff; 40]),
                packed(&[14, 0, 0, 0, 1, 1, 0]),
                packed(&[12, 0, 0, 2, 1, 1, 0]),
                packed(&[12, 0, 0, 0, 1, 1, 0, 0]),
                b"no such data".to_vec(),
                Vec::new(),
            ] {
                cases.push(("bad records", with_records(codec, &records), 87));
            }
        }
        for (n, (what, batch, code)) in cases.into_iter().enumerate() {
            let seen = progress.load(Ordering::SeqCst);
            let answer = produce(&c, "bombed", 0, -1, batch).await;
            let message = answer.error_message;
            assert_eq!(answer.error_code, code, "case {n}, {what}: {message:?}");
            assert!(message.is_some_and(|message| !message.is_empty()));
            // The other connection goes on: its next answer comes.
            while progress.load(Ordering::SeqCst) == seen {
                list_offset(&c, "served", 0, -1).await;
            }
        }
        assert_eq!(list_offset(&c, "bombed", 0, -1).await.offset, 0);
        assert_eq!(produce_ok(&c, "bombed", 0, batch_of("fine")).await, 0);
    });
    is_over.store(true, Ordering::SeqCst);
    other.join().expect("the other connection was served");
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for bombs");
    broker.stop();
}

#[test]
fn given_bad_timestamps_then_the_answer_names_the_records() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let window = [
            ("message.timestamp.before.max.ms", "60000"),
            ("message.timestamp.after.max.ms", "60000"),
        ];
        create_topic(&c, "window", 1, &window).await;
        let now = now_ms();
        for codec in Compression::ALL {
            let mut builder = BatchBuilder::new().compression(codec);
            for timestamp in [now, 5, -1, now + 3_600_000] {
                builder.push(timestamp, None, Some(b"v"));
            }
            let batch = builder.build();
            let answer = produce(&c, "window", 0, -1, batch.clone()).await;
            assert_eq!(
                (answer.error_code, answer.base_offset),
                (32, -1),
                "{codec:?}"
            );
            assert!(answer.error_message.is_some());
            let named: Vec<i32> = answer.record_errors.iter().map(|e| e.batch_index).collect();
            assert_eq!(named, [1, 3]);
            for error in &answer.record_errors {
                let message = error.batch_index_error_message.as_ref();
                let message = message.expect("a message").as_str();
                assert!(message.contains("message.timestamp."), "{message}");
            }
            // Before version 8 there is only the code.
            let request = produce_request("window", 0, -1, batch);
            let wait = c.start_as(&request, 7).await.expect("sent");
            let answer = wait.await.expect("an answer");
            assert_eq!(answer.responses[0].partition_responses[0].error_code, 32);
        }
        let marked = BatchBuilder::new().timestamp_type(TimestampType::LogAppendTime);
        let mut marked = marked.clone();
        marked.push(now, None, None);
        let answer = produce(&c, "window", 0, -1, marked.build()).await;
        assert_eq!((answer.error_code, answer.record_errors.len()), (32, 1));
        assert_eq!(
            produce_ok(&c, "window", 0, batch_at(now, "in time")).await,
            0
        );
    });
    broker.stop();
}

#[test]
fn given_zstd_in_an_old_version_then_it_is_not_supported() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "zstd", 1, &[]).await;
        let mut zstd = BatchBuilder::new().compression(Compression::Zstd);
        zstd.push(1, None, Some(b"v"));
        let zstd = zstd.build();
        for (version, code) in [(3, 76), (6, 76), (7, 0), (12, 0)] {
            let request = produce_request("zstd", 0, -1, zstd.clone());
            let wait = c.start_as(&request, version).await.expect("sent");
            let answer = wait.await.expect("an answer");
            let answer = &answer.responses[0].partition_responses[0];
            assert_eq!(answer.error_code, code, "v{version}");
        }
        assert_eq!(list_offset(&c, "zstd", 0, -1).await.offset, 2);
    });
    broker.stop();
}

#[test]
fn given_a_batch_that_is_too_large_once_it_is_stored_then_it_is_refused() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let uncompressed = [
            ("compression.type", "uncompressed"),
            ("max.message.bytes", "10000"),
        ];
        create_topic(&c, "plain", 1, &uncompressed).await;
        create_topic(&c, "kept", 1, &uncompressed[1..]).await;
        let small = bomb(Compression::Zstd, 50_000);
        assert!(small.len() < 1000);
        let answer = produce(&c, "plain", 0, -1, small.clone()).await;
        assert_eq!(answer.error_code, 10, "{:?}", answer.error_message);
        assert_eq!(produce_ok(&c, "kept", 0, small).await, 0);
        let fits = bomb(Compression::Zstd, 9_000);
        assert_eq!(produce_ok(&c, "plain", 0, fits).await, 0);
        let large = bomb(Compression::None, 10_000);
        for topic in ["plain", "kept"] {
            let answer = produce(&c, topic, 0, -1, large.clone()).await;
            assert_eq!(answer.error_code, 10, "{topic}");
        }
    });
    broker.stop();
}

/// acks=0 has no answer, so an error can only be told by closing.
#[test]
fn given_acks_0_then_each_kind_of_refusal_closes_the_connection() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let configs = [
            ("max.message.bytes", "10000"),
            ("message.timestamp.before.max.ms", "1000"),
        ];
        create_topic(&c, "silent", 1, &configs).await;
    });
    let now = now_ms();
    let good = batch_at(now + 60_000, "good");
    let mut flipped = good.to_vec();
    *flipped.last_mut().expect("bytes") ^= 1;
    let mut zstd = BatchBuilder::new().compression(Compression::Zstd);
    zstd.push(now + 60_000, None, Some(b"v"));
    let cases = [
        ("damage", Bytes::from(flipped), 12),
        ("a bad record", with_records(Compression::None, &[0]), 12),
        ("no batch", Bytes::new(), 12),
        ("a large batch", bomb(Compression::None, 10_000), 12),
        ("a bomb", snappy_claim(), 12),
        ("an old timestamp", batch_at(now - 60_000, "late"), 12),
        ("zstd in version 6", zstd.build(), 6),
    ];
    for (what, batch, version) in cases {
        with(broker.addr(), move |c| async move {
            let request = produce_request("silent", 0, 0, batch);
            let wait = c.start_as(&request, version).await.expect("sent");
            assert!(wait.await.is_err(), "{what}: closed without an answer");
        });
    }
    with(broker.addr(), move |c| async move {
        assert_eq!(list_offset(&c, "silent", 0, -1).await.offset, 0);
        let request = produce_request("silent", 0, 0, good);
        c.send_only_as(&request, 12).await.expect("sent");
        assert_eq!(
            produce_ok(&c, "silent", 0, batch_at(now + 60_000, "b")).await,
            1
        );
        let records = fetch_all(&c, "silent", 0, 0).await;
        assert_eq!(
            records.len(),
            2,
            "a good one is stored, and its connection stays"
        );
    });
    broker.stop();
}

/// Between the batches of a request the broker lets other work run; what comes later
/// must still come later. Sequences tell: one batch out of order is refused.
#[test]
fn given_pipelined_requests_of_many_slow_batches_then_each_partition_keeps_their_order() {
    const PARTITIONS: i32 = 8;
    const REQUESTS: i32 = 24;
    let dir = data_dir();
    let broker = launch(dir.path()).shards(2).start();
    let addr = broker.addr();
    with(addr, move |c| async move {
        let slow = [("compression.type", "gzip")];
        for topic in ["a", "b"] {
            create_topic(&c, topic, PARTITIONS, &slow).await;
        }
    });
    let batch = |producer_id, sequence| {
        let mut builder = BatchBuilder::new()
            .producer(producer_id, 0, sequence)
            .compression(Compression::Zstd);
        for n in 0..10usize {
            let value: Vec<u8> = (0..2000).map(|i| (i * (n + 3) % 253) as u8).collect();
            builder.push(1_700_000_000_000, None, Some(&value));
        }
        builder.build()
    };
    let clients = ["a", "b"].map(|topic| {
        std::thread::spawn(move || {
            with(addr, move |c| async move {
                let mut waits = Vec::new();
                for n in 0..REQUESTS {
                    let mut request = produce_request(topic, 0, -1, batch(77, n * 10));
                    let parts = &mut request.topic_data[0].partition_data;
                    for partition in 1..PARTITIONS {
                        let mut part = parts[0].clone();
                        part.index = partition;
                        parts.push(part);
                    }
                    waits.push(c.start_as(&request, 12).await.expect("sent"));
                }
                for (n, wait) in waits.into_iter().enumerate() {
                    let answer = wait.await.expect("an answer");
                    for part in &answer.responses[0].partition_responses {
                        let got = (part.error_code, part.base_offset);
                        let message = &part.error_message;
                        assert_eq!(got, (0, n as i64 * 10), "{topic} {n}: {message:?}");
                    }
                }
            })
        })
    });
    for client in clients {
        client.join().expect("its requests were answered in order");
    }
    broker.stop();
}
