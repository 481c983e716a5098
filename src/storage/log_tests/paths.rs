//! Single paths through the log, each for what it must not do.

use super::{batch, create, limits, stamped, DIR};
use crate::protocol::batch::{BatchBuilder, Compression, TimestampType};
use crate::runtime::sim::World;
use crate::runtime::SyncSite;
use crate::storage::{AppendError, CheckpointError, FlushError, ReadError};
use crate::storage::{LoadMode, Log, LogBatch, LogConfig, Storage, StorageLimits};
use futures_lite::future::zip;

fn batches(from: i64, n: i64, payload: usize) -> Vec<LogBatch> {
    (from..from + n).map(|o| batch(o, 1, payload, o)).collect()
}

#[test]
fn hot_reads_never_touch_the_disk_and_share_one_slice() {
    let world = World::new(1);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let log = create(&rt, DIR, limits(), LogConfig::default()).await;
        log.append(&batches(0, 10, 500)).await.unwrap();
        let got = log.read(0, 10, 1 << 20, true).await.unwrap();
        assert_eq!(got.next_offset, 10);
        assert_eq!(got.slices.len(), 1, "adjoining batches are one slice");
    });
    assert_eq!(node.disk().read_count(), 0);
}

#[test]
fn small_appends_in_one_block_hold_one_cache_entry() {
    let world = World::new(2);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let log = create(&rt, DIR, limits(), LogConfig::default()).await;
        for offset in 0..20 {
            log.append(&batches(offset, 1, 60)).await.unwrap();
        }
        let cache = &log.0.storage.0.cache;
        assert_eq!(cache.entry_count(log.0.id), 1);
        assert_eq!(cache.bytes(), 4096);
        let got = log.read(0, 20, 1 << 20, true).await.unwrap();
        assert_eq!((got.slices.len(), got.next_offset), (1, 20));
        assert_eq!(node.disk().read_count(), 0);
    });
}

#[test]
fn cold_sequential_reads_share_chunks_and_are_read_ahead() {
    let world = World::new(3);
    let node = world.node("a");
    let rt = node.rt();
    let n = 4_000;
    world.block_on(&rt, async {
        let log = create(&rt, DIR, limits(), LogConfig::default()).await;
        for o in (0..n).step_by(100) {
            log.append(&batches(o, 100, 1_000)).await.unwrap();
        }
        let written = batches(0, n, 1_000);
        log.0.storage.0.cache.remove_log(log.0.id);
        let (mut at, mut content) = (0, Vec::new());
        let mut reads = 0;
        while at < n {
            let got = log.read(at, n, 20_000, true).await.unwrap();
            assert!(got.next_offset > at);
            at = got.next_offset;
            content.extend(got.slices.concat());
            reads += 1;
        }
        let expected: Vec<u8> = written.iter().flat_map(stamped).collect();
        assert!(content == expected);
        // Chunks of 128 KiB to 1 MiB, each perhaps in two pieces.
        let disk_reads = node.disk().read_count();
        assert!(
            reads >= 200 && disk_reads < 40,
            "{reads} reads, {disk_reads} of disk"
        );
    });
}

#[test]
fn waiters_share_a_flush_and_later_ones_the_next() {
    let world = World::new(4);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let log = create(&rt, DIR, limits(), LogConfig::default()).await;
        log.append(&batches(0, 1, 10)).await.unwrap();
        let (a, b) = zip(log.flush(), log.flush()).await;
        assert_eq!((a.unwrap(), b.unwrap()), (1, 1));
        assert_eq!(node.disk().sync_count(SyncSite::SegmentFlush), 1);
        log.flush().await.unwrap();
        assert_eq!(
            node.disk().sync_count(SyncSite::SegmentFlush),
            1,
            "nothing was written since"
        );
        let late = async {
            log.append(&batches(1, 1, 10)).await.unwrap();
            log.append(&batches(2, 1, 10)).await.unwrap();
            log.flush().await.unwrap()
        };
        let (_, late) = zip(log.flush(), late).await;
        assert_eq!(late, 3);
        assert_eq!(log.flushed_offset(), 3);
    });
}

#[test]
fn rolls_by_size_time_index_and_offset() {
    let rolled = |config: LogConfig, second: LogBatch| {
        let world = World::new(5);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let log = create(&rt, DIR, limits(), config).await;
            let first = batch(0, second.base_offset as u32, 1_000, 5_000);
            log.append(&[first, second]).await.unwrap();
            log.segment_count() == 2
        })
    };
    let base = LogConfig::default();
    let small = |bytes| LogConfig {
        segment_bytes: bytes,
        ..base
    };
    assert!(!rolled(small(2_122), batch(1, 1, 1_000, 0)));
    assert!(rolled(small(2_121), batch(1, 1, 1_000, 0)));
    let short = LogConfig {
        segment_ms: 100,
        ..base
    };
    assert!(!rolled(short, batch(1, 1, 10, 5_100)));
    assert!(rolled(short, batch(1, 1, 10, 5_101)));
    assert!(!rolled(base, batch(1 << 30, 1, 10, 0)));
    assert!(!rolled(base, batch(i64::from(i32::MAX), 1, 10, 0)));
    assert!(rolled(base, batch(i64::from(i32::MAX), 2, 10, 0)));
    let no_index = LogConfig {
        index_bytes_max: 7,
        ..base
    };
    assert!(rolled(no_index, batch(1, 1, 10, 0)));
}

#[test]
fn preallocation_grows_with_the_segment_and_is_cut_at_the_roll() {
    let world = World::new(6);
    let node = world.node("a");
    let rt = node.rt();
    let size = |base: i64| {
        let raw = node.disk().read_raw(format!("{DIR}/{base:020}.log"));
        raw.map(|bytes| bytes.len())
    };
    world.block_on(&rt, async {
        let config = LogConfig {
            segment_bytes: 150_000,
            ..LogConfig::default()
        };
        let log = create(&rt, DIR, limits(), config).await;
        assert_eq!(size(0), Some(0), "nothing while empty");
        log.append(&batches(0, 1, 10)).await.unwrap();
        assert_eq!(size(0), Some(64 << 10));
        log.append(&batches(1, 1, 70_000)).await.unwrap();
        assert_eq!(size(0), Some(128 << 10));
        log.append(&batches(2, 1, 70_000)).await.unwrap();
        assert_eq!(size(0), Some(150_000usize.next_multiple_of(4096)));
        log.append(&batches(3, 1, 70_000)).await.unwrap();
        log.flush().await.unwrap();
        assert_eq!(size(0), Some(71 + 2 * 70_061));
    });
}

#[test]
fn ten_logs_flush_within_the_flushers_limit() {
    let world = World::new(7);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let storage = Storage::new(rt.clone(), limits());
        let mut logs = Vec::new();
        for i in 0..10 {
            let dir = rt.dir(format!("/data/t-{i}"));
            let log = Log::create(&storage, dir, LogConfig::default())
                .await
                .unwrap();
            log.append(&batches(0, 3, 100)).await.unwrap();
            logs.push(log);
        }
        let mut in_flight_max = 0;
        let (done, wait) = crate::runtime::local::oneshot();
        let flushes = logs.clone();
        rt.spawn(crate::runtime::Queue::Latency, async move {
            let all: Vec<_> = flushes.iter().map(Log::flush).collect();
            let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
            futures_lite::future::poll_fn(|cx| {
                all.retain_mut(|f| std::future::Future::poll(f.as_mut(), cx).is_pending());
                match all.is_empty() {
                    true => std::task::Poll::Ready(()),
                    false => std::task::Poll::Pending,
                }
            })
            .await;
            assert!(done.send(()).is_ok());
        });
        let mut wait = Box::pin(wait);
        loop {
            in_flight_max = in_flight_max.max(node.disk().in_flight_count());
            let tick = async {
                rt.sleep(std::time::Duration::from_micros(5)).await;
                None
            };
            if futures_lite::future::or(wait.as_mut(), tick)
                .await
                .is_some()
            {
                break;
            }
        }
        assert_eq!(in_flight_max, limits().flushes_in_flight_max);
        assert!(logs.iter().all(|log| log.flushed_offset() == 3));
    });
}

#[test]
fn sealed_segments_are_opened_when_needed_and_closed_when_too_many() {
    let world = World::new(8);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let config = LogConfig {
            segment_bytes: 10_000,
            ..LogConfig::default()
        };
        let no_cache = StorageLimits {
            cache_bytes: 0,
            ..limits()
        };
        let log = create(&rt, DIR, no_cache, config).await;
        for o in 0..20 {
            log.append(&batches(o, 1, 9_000)).await.unwrap();
        }
        log.checkpoint().await.unwrap();
        assert_eq!(log.segment_count(), 20);
        assert_eq!(log.0.storage.0.open_segments.len(), 2);
        node.disk().remove_raw(format!("{DIR}/{:020}.index", 3));
        node.disk()
            .corrupt(format!("{DIR}/{:020}.timeindex", 4), 0, &[0xFF; 12]);
        for o in 0..20 {
            let got = log.read(o, 20, 1, true).await.unwrap();
            assert_eq!(got.next_offset, o + 1);
            let open = log
                .0
                .state
                .borrow()
                .segments
                .iter()
                .filter(|s| s.file().is_some())
                .count();
            assert!(open <= 3, "two sealed ones and the active one");
        }
    });
}

#[test]
fn offsets_are_found_by_timestamp_up_to_the_bound() {
    let world = World::new(9);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let config = LogConfig {
            segment_bytes: 3_000,
            index_interval_bytes: 100,
            ..LogConfig::default()
        };
        let log = create(&rt, DIR, limits(), config).await;
        // Batches of three records, every other one compressed.
        let times = [50, 10, 70, 70, 20, 90, 30, 60, 90, 5, 91, 1, 2, 91, 3];
        for (i, three) in times.chunks(3).enumerate() {
            let compression = match i % 2 {
                0 => Compression::None,
                _ => Compression::Lz4,
            };
            let mut builder = BatchBuilder::new().compression(compression);
            for t in three {
                builder.push(*t, None, Some(&[0; 300]));
            }
            let base = 3 * i as i64;
            let batch = LogBatch {
                bytes: builder.build(),
                base_offset: base,
                last_offset: base + 2,
                leader_epoch: 7,
                max_timestamp: *three.iter().max().unwrap(),
                producer: None,
            };
            log.append(&[batch]).await.unwrap();
        }
        let n = times.len();
        for target in 0..100 {
            for bound in 0..=n as i64 {
                let found = log.offset_for_timestamp(target, bound).await.unwrap();
                let first = times.iter().position(|t| *t >= target);
                let expected = first.map(|o| o as i64).filter(|o| *o < bound);
                assert_eq!(found.map(|f| f.offset), expected, "{target} below {bound}");
            }
        }
        for bound in (0..=n).step_by(3) {
            let found = log.offset_of_max_timestamp(bound as i64).await.unwrap();
            let largest = times[..bound].iter().max();
            let expected = times[..bound].iter().position(|t| Some(t) == largest);
            assert_eq!(found.map(|f| f.offset), expected.map(|o| o as i64));
            assert!(found.is_none_or(|f| Some(&f.timestamp) == largest && f.leader_epoch == 7));
        }
    });
}

/// Under LogAppendTime every record has the batch's timestamp, whatever it says itself.
#[test]
fn in_a_batch_with_the_time_of_its_append_the_first_record_is_found() {
    let world = World::new(12);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let log = create(&rt, DIR, limits(), LogConfig::default()).await;
        for (base, compression) in [(0, Compression::None), (3, Compression::Zstd)] {
            let mut builder = BatchBuilder::new()
                .compression(compression)
                .timestamp_type(TimestampType::LogAppendTime);
            for t in [50, 90, 70] {
                builder.push(t, None, Some(b"v"));
            }
            let batch = LogBatch {
                bytes: builder.build(),
                max_timestamp: 90,
                ..batch(base, 3, 0, 90)
            };
            log.append(&[batch]).await.unwrap();
        }
        for target in [0, 51, 90] {
            let found = log.offset_for_timestamp(target, 6).await.unwrap();
            assert_eq!(found.map(|f| (f.offset, f.timestamp)), Some((0, 90)));
        }
        assert_eq!(log.offset_for_timestamp(91, 6).await.unwrap(), None);
        let found = log.offset_of_max_timestamp(6).await.unwrap();
        assert_eq!(found.map(|f| (f.offset, f.timestamp)), Some((0, 90)));
    });
}

/// A log start within a batch (DeleteRecords): what lies below it is not found, though
/// the batch's header counts it.
#[test]
fn below_a_log_start_within_a_batch_no_timestamp_is_found() {
    let codecs = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    for (seed, compression) in codecs.into_iter().enumerate() {
        let world = World::new(seed as u64);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let config = LogConfig {
                index_interval_bytes: 100,
                ..LogConfig::default()
            };
            let log = create(&rt, DIR, limits(), config).await;
            let times = [[80, 95, 20, 60], [30, 60, 10, 5]];
            for (i, four) in times.iter().enumerate() {
                let mut builder = BatchBuilder::new().compression(compression);
                for t in four {
                    builder.push(*t, None, Some(&[0; 30]));
                }
                let base = 4 * i as i64;
                let batch = LogBatch {
                    bytes: builder.build(),
                    base_offset: base,
                    last_offset: base + 3,
                    max_timestamp: *four.iter().max().unwrap(),
                    ..batch(base, 4, 0, four[0])
                };
                log.append(&[batch]).await.unwrap();
            }
            log.checkpoint().await.unwrap();
            log.close().await.unwrap();
            let times = times.concat();
            for log_start in 0..=8 {
                let mode = LoadMode {
                    cleaned_to: None,
                    clean: true,
                    recovery_point: Some(8),
                    log_start: Some(log_start),
                    flushed: None,
                };
                let storage = Storage::new(rt.clone(), limits());
                let (log, _) = Log::open(&storage, rt.dir(DIR), config, mode)
                    .await
                    .unwrap();
                assert_eq!(log.log_start_offset(), log_start);
                let visible = &times[log_start as usize..];
                let at = |place: usize| log_start + place as i64;
                for target in 0..100 {
                    let found = log.offset_for_timestamp(target, 8).await.unwrap();
                    let first = visible.iter().position(|t| *t >= target);
                    assert_eq!(found.map(|f| f.offset), first.map(at), "{target}");
                }
                let found = log.offset_of_max_timestamp(8).await.unwrap();
                let largest = visible.iter().max();
                let first = visible.iter().position(|t| Some(t) == largest);
                assert_eq!(found.map(|f| f.offset), first.map(at), "from {log_start}");
                assert_eq!(found.map(|f| f.timestamp), largest.copied());
                log.close().await.unwrap();
            }
        });
    }
}

#[test]
fn fifty_readers_of_fresh_data_share_one_copy_and_leave_the_disk_alone() {
    let world = World::new(11);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let log = create(&rt, DIR, limits(), LogConfig::default()).await;
        for o in (0..500).step_by(10) {
            log.append(&batches(o, 10, 1_000)).await.unwrap();
        }
        let storage = log.0.storage.clone();
        let held = storage.0.cache.bytes();
        let mut answers = Vec::new();
        for _ in 0..50 {
            let got = log.read(0, 500, 10 << 20, true).await.unwrap();
            assert_eq!(got.next_offset, 500);
            answers.push(got);
        }
        assert_eq!(storage.0.cache.bytes(), held, "readers add nothing");
        let first = &answers[0].slices;
        for answer in &answers {
            let same = answer.slices.iter().zip(first);
            assert!(same.clone().count() == first.len());
            for (slice, other) in same {
                assert!(std::ptr::eq(slice.as_ptr(), other.as_ptr()), "one copy");
            }
        }
        let counters = storage.counters();
        assert_eq!(counters.fetch_cache_reads.get(), 50);
        assert_eq!(counters.fetch_cold_reads.get(), 0);
        assert_eq!(counters.fetch_cold_bytes.get(), 0);
        // The counters do count the disk.
        storage.0.cache.remove_log(log.0.id);
        log.read(0, 500, 1, true).await.unwrap();
        assert_eq!(counters.fetch_cold_reads.get(), 1);
        assert!(counters.fetch_cold_bytes.get() > 0);
    });
}

#[test]
fn deleting_waits_for_reads_and_drops_what_is_cached() {
    let world = World::new(10);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let log = create(&rt, DIR, limits(), LogConfig::default()).await;
        log.append(&batches(0, 10, 5_000)).await.unwrap();
        log.0.storage.0.cache.remove_log(log.0.id);
        let mut read = Box::pin(log.read(0, 10, 1, true));
        assert!(futures_lite::future::poll_once(read.as_mut())
            .await
            .is_none());
        let mut delete = Box::pin(log.clone().abandon());
        assert!(futures_lite::future::poll_once(delete.as_mut())
            .await
            .is_none());
        let (got, ()) = zip(read, delete).await;
        assert_eq!(got.unwrap().next_offset, 1);
        assert_eq!(log.0.storage.0.cache.bytes(), 0);
        assert_eq!(node.disk().in_flight_count(), 0);
        let append = log.append(&batches(10, 1, 10)).await;
        assert!(matches!(append, Err(AppendError::Closed)));
        assert!(matches!(
            log.read(0, 10, 1, true).await,
            Err(ReadError::Closed)
        ));
        assert!(matches!(log.flush().await, Err(FlushError::Closed)));
        assert!(matches!(
            log.checkpoint().await,
            Err(CheckpointError::Flush(FlushError::Closed))
        ));
    });
}
