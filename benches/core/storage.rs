//! Appending to a log by direct I/O, and looking up in its indexes.

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput};
use hdrhistogram::Histogram;
use highwater::protocol::batch::BatchBuilder;
use highwater::runtime::{native, Rt};
use highwater::storage::index::{OffsetIndex, TimeIndex};
use highwater::storage::{Log, LogBatch, LogConfig, Storage, StorageLimits};
use std::cell::RefCell;
use std::future::Future;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A full segment of 1 GiB has an entry for each 4 KiB; the largest index has 10 MiB.
pub fn index_lookup(c: &mut Criterion) {
    let mut group = c.benchmark_group("index lookup");
    group.measurement_time(Duration::from_secs(2));
    for entries in [262_144u32, 1_310_720] {
        let mut offsets = OffsetIndex::new(1 << 40);
        let mut times = TimeIndex::new(1 << 40);
        for i in 1..=entries {
            offsets.append((1 << 40) + i64::from(i) * 10, i * 800);
            times.maybe_append(
                1_700_000_000_000 + i64::from(i),
                (1 << 40) + i64::from(i) * 10,
            );
        }
        // Far apart, so that the caches do not hold the way.
        let mut n = 0u32;
        let mut next = move || {
            n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            i64::from(n % entries)
        };
        group.bench_function(format!("offset, {entries} entries"), |b| {
            b.iter_batched(
                &mut next,
                |i| black_box(offsets.lookup((1 << 40) + i * 10 + 5)),
                BatchSize::SmallInput,
            )
        });
        group.bench_function(format!("time, {entries} entries"), |b| {
            b.iter_batched(
                &mut next,
                |i| black_box(times.lookup(1_700_000_000_000 + i)),
                BatchSize::SmallInput,
            )
        });
    }
    group.finish();
}

/// One write after the other, each of one batch, without a flush: the copy, the direct
/// write and what becomes visible. In the directory of the build, whatever disk that is.
pub fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("append");
    // What is appended stays on disk until a round ends.
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    for value_bytes in [1 << 10, 16 << 10, 256 << 10] {
        let bytes = batch_of(value_bytes);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("{} KiB", value_bytes >> 10), |b| {
            b.iter_custom(|rounds| append_all(bytes.clone(), rounds))
        });
    }
    group.finish();
}

fn append_all(bytes: Bytes, rounds: u64) -> Duration {
    on_a_new_log(LogConfig::default(), move |_rt, log| async move {
        let start = Instant::now();
        for offset in 0..rounds as i64 {
            let batch = at(offset, &bytes);
            log.append(&[batch]).await.expect("appended");
        }
        let took = start.elapsed();
        log.close().await.expect("closed");
        took
    })
}

/// A batch of one small record, appended and flushed, one after the other, into small
/// segments that expire at once: with the files of expired segments, and with new ones.
/// Only appends and flushes count, 1,000 of them a round; the percentiles are of single ones.
pub fn flushed_append(c: &mut Criterion) {
    let mut group = c.benchmark_group("flushed append");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(10))
        .throughput(Throughput::Elements(FLUSHES_A_ROUND));
    for segment_mib in [1, 16] {
        for recycle_segments in [false, true] {
            let config = LogConfig {
                segment_bytes: segment_mib << 20,
                file_delete_delay_ms: 0,
                recycle_segments,
                ..LogConfig::default()
            };
            let files = if recycle_segments { "recycled" } else { "new" };
            let singles = RefCell::new(Histogram::new(3).expect("a histogram"));
            group.bench_function(format!("{segment_mib} MiB segments, {files} files"), |b| {
                b.iter_custom(|rounds| flush_each(config, rounds, &mut singles.borrow_mut()))
            });
            let singles = singles.into_inner();
            let at = |quantile| singles.value_at_quantile(quantile);
            println!(
                "{} single appends: p50 {} us, p99 {} us, p99.9 {} us",
                singles.len(),
                at(0.5),
                at(0.99),
                at(0.999)
            );
        }
    }
    group.finish();
}

const FLUSHES_A_ROUND: u64 = 1_000;

fn flush_each(config: LogConfig, rounds: u64, singles: &mut Histogram<u64>) -> Duration {
    let each = on_a_new_log(config, move |rt, log| async move {
        // Three segments of large batches, of which two expire: spare files are there.
        let mut offset = 0;
        let mut append = |bytes: &Bytes| {
            offset += 1;
            at(offset - 1, bytes)
        };
        let (large, small) = (batch_of(64 << 10), batch_of(200));
        while log.segment_count() < 4 {
            log.append(&[append(&large)]).await.expect("appended");
        }
        let mut segments = 0;
        let mut each = Vec::new();
        for _ in 0..rounds * FLUSHES_A_ROUND {
            if log.segment_count() > 2 || segments == 0 {
                segments += 1;
                log.checkpoint().await.expect("checkpoint");
                log.set_log_start(log.end_offset() - 1);
                log.remove_head().await.expect("removed");
                // The files are prepared in the background.
                rt.sleep(Duration::from_millis(700)).await;
                log.append(&[append(&large)]).await.expect("appended");
                while log.segment_count() < 2 {
                    log.append(&[append(&large)]).await.expect("appended");
                }
                log.flush().await.expect("flushed");
            }
            let batch = append(&small);
            let start = Instant::now();
            log.append(&[batch]).await.expect("appended");
            log.flush().await.expect("flushed");
            each.push(start.elapsed());
        }
        log.close().await.expect("closed");
        each
    });
    for took in &each {
        singles.saturating_record(took.as_micros() as u64);
    }
    each.iter().sum()
}

/// Runs work on a new log, in the directory of the build.
fn on_a_new_log<T: 'static, W: Future<Output = T> + 'static>(
    config: LogConfig,
    work: impl FnOnce(Rt, Log) -> W + 'static,
) -> T {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = dir.path().join("bench-0");
    std::fs::create_dir(&path).expect("a directory");
    native::run(move |rt| async move {
        let limits = StorageLimits {
            cache_bytes: 16 << 20,
            cold_read_bytes: 4 << 20,
            write_bytes: 8 << 20,
            flushes_in_flight_max: 1,
            open_segments_max: 4,
        };
        let storage = Storage::new(rt.clone(), limits);
        let log = Log::create(&storage, rt.dir(path), config).await;
        work(rt, log.expect("a log")).await
    })
    .expect("an executor")
}

/// A batch of one record with a value of so many bytes.
fn batch_of(value_bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new();
    builder.push(TIME_MS, None, Some(&vec![7; value_bytes]));
    builder.build()
}

fn at(offset: i64, bytes: &Bytes) -> LogBatch {
    LogBatch {
        bytes: bytes.clone(),
        base_offset: offset,
        last_offset: offset,
        leader_epoch: 0,
        max_timestamp: TIME_MS,
        producer: None,
    }
}

const TIME_MS: i64 = 1_700_000_000_000;
