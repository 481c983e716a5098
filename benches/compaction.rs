//! Compaction of a log of 256 MiB on real files: `cargo bench --bench compaction`.
//!
//! Values of 1 KiB that do not compress, batches of 100 records, a tenth of the keys distinct, in no order. All of it
//! is dirty, so a round reads it twice (once for the map of keys, once to copy) and writes a tenth. The throughput is of
//! the log's bytes, not of what was moved. Beside it stands what a plain read of the same files takes, in the same
//! pieces and by the same direct I/O. What the map of keys took is printed.
//!
//! Files are in the build's directory, on whatever disk that is.

use bytes::Bytes;
use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use highwater::protocol::batch::BatchBuilder;
use highwater::runtime::{native, OpenMode, Rt};
use highwater::storage::{
    CompactionMeans, CompactionRules, Log, LogBatch, LogConfig, Storage, StorageLimits, Throttle,
};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

const BYTES: usize = 256 << 20;
const VALUE_BYTES: usize = 1 << 10;
const RECORDS_A_BATCH: usize = 100;
const RECORDS: usize = BYTES / VALUE_BYTES;
const KEYS: usize = RECORDS / 10;
const SEGMENT_BYTES: u32 = 32 << 20;
const READ_BYTES: usize = 1 << 20;

/// splitmix64
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn batch(state: &mut u64) -> Bytes {
    let mut builder = BatchBuilder::new();
    let mut value = vec![0; VALUE_BYTES];
    for _ in 0..RECORDS_A_BATCH {
        let key = format!("key-{:08}", next(state) as usize % KEYS);
        for piece in value.chunks_mut(8) {
            let bytes = next(state).to_be_bytes();
            piece.copy_from_slice(&bytes[..piece.len()]);
        }
        builder.push(1_700_000_000_000, Some(key.as_bytes()), Some(&value));
    }
    builder.build()
}

fn storage(rt: &Rt) -> Storage {
    let limits = StorageLimits {
        cache_bytes: 16 << 20,
        cold_read_bytes: 16 << 20,
        write_bytes: 8 << 20,
        flushes_in_flight_max: 4,
        open_segments_max: 64,
    };
    Storage::new(rt.clone(), limits)
}

async fn filled(rt: &Rt, path: &Path) -> Log {
    let config = LogConfig {
        segment_bytes: SEGMENT_BYTES,
        compacted: true,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    };
    let log = Log::create(&storage(rt), rt.dir(path), config)
        .await
        .expect("a log");
    let mut state = 1;
    let mut offset = 0;
    while offset < RECORDS as i64 {
        let last_offset = offset + RECORDS_A_BATCH as i64 - 1;
        let batch = LogBatch {
            bytes: batch(&mut state),
            base_offset: offset,
            last_offset,
            leader_epoch: 0,
            max_timestamp: 1_700_000_000_000,
            producer: None,
        };
        log.append(&[batch]).await.expect("appended");
        offset = last_offset + 1;
    }
    log.flush().await.expect("flushed");
    log.checkpoint().await.expect("sealed");
    log
}

/// On a log of its own each time: how long it took, and the memory of the map.
fn compact() -> (Duration, usize) {
    let (_dir, path) = directory();
    native::run(move |rt| async move {
        let log = filled(&rt, &path).await;
        let rules = CompactionRules {
            bound: log.end_offset(),
            first_dirty: 0,
            now_ms: rt.wall_clock_ms(),
            delete_retention_ms: 86_400_000,
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
        };
        let means = CompactionMeans {
            throttle: Throttle::new(rt.clone(), 0),
            map_bytes: 128 << 20,
            record: Rc::new(|_| Box::pin(async { Ok(()) })),
            stop: Default::default(),
        };
        let began = Instant::now();
        let done = log.compact(&rules, &means).await.expect("compacted");
        let took = began.elapsed();
        assert!(done.records_after < done.records_before / 5, "{done:?}");
        log.close().await.expect("closed");
        (took, done.map_bytes)
    })
    .expect("an executor")
}

/// Every segment, from the first byte to the last.
fn read() -> Duration {
    let (_dir, path) = directory();
    native::run(move |rt| async move {
        let log = filled(&rt, &path).await;
        log.close().await.expect("closed");
        let dir = rt.dir(&path);
        let began = Instant::now();
        for entry in dir.list().await.expect("a directory") {
            if !entry.name.ends_with(".log") {
                continue;
            }
            let file = dir.open(&entry.name, OpenMode::Read).await.expect("a file");
            let (size, mut at) = (file.size().await.expect("its size"), 0);
            while at < size {
                let read = file.read_at(at, READ_BYTES).await.expect("its bytes");
                at += read.len() as u64;
            }
        }
        began.elapsed()
    })
    .expect("an executor")
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = dir.path().join("bench-0");
    std::fs::create_dir(&path).expect("a directory");
    (dir, path)
}

fn compaction(c: &mut Criterion) {
    let mut group = c.benchmark_group("compaction");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(1))
        .measurement_time(Duration::from_secs(1))
        .throughput(Throughput::Bytes(BYTES as u64));
    group.bench_function("read 256 MiB", |b| {
        b.iter_custom(|rounds| (0..rounds).map(|_| read()).sum())
    });
    let mut map_bytes = 0;
    group.bench_function(
        "compact 256 MiB of 1 KiB values, a tenth of the keys",
        |b| {
            b.iter_custom(|rounds| {
                let round = |_| {
                    let (took, map) = compact();
                    map_bytes = map;
                    took
                };
                (0..rounds).map(round).sum()
            })
        },
    );
    group.finish();
    println!("the map of {KEYS} keys took {map_bytes} bytes");
}

criterion_group!(all, compaction);
criterion_main!(all);
