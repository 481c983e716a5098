//! Random operations against a model: a list of batches.

use super::{batch, create, limits, stamped, DIR};
use crate::runtime::native;
use crate::runtime::sim::World;
use crate::storage::index::{OffsetIndex, TimeIndex};
use crate::storage::{Log, LogBatch, LogConfig, ReadError, ReadSlices, StorageLimits};
use futures_lite::future::zip;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
enum Op {
    /// Batches of (records, payload bytes).
    Append(Vec<(u32, usize)>),
    /// From and bound in thousandths of LEO, a few past it.
    Read(u32, u32, usize, bool),
    Flush,
    Checkpoint,
    /// All at once: an append, a flush, a read, a checkpoint.
    Together(Vec<(u32, usize)>, u32, usize),
    /// Read all from the start, in steps of so many bytes.
    ReadThrough(usize),
}

fn sizes() -> impl Strategy<Value = Vec<(u32, usize)>> {
    let size = prop_oneof![4 => 0usize..200, 2 => 0usize..9_000, 1 => 20_000usize..40_000];
    prop::collection::vec((1u32..20, size), 1..5)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => sizes().prop_map(Op::Append),
        6 => (0u32..1_010, 0u32..1_010, 0usize..50_000, any::<bool>())
            .prop_map(|(f, b, m, w)| Op::Read(f, b, m, w)),
        2 => Just(Op::Flush),
        1 => Just(Op::Checkpoint),
        2 => (sizes(), 0u32..1_000, 0usize..50_000).prop_map(|(s, f, m)| Op::Together(s, f, m)),
        1 => (1usize..60_000).prop_map(Op::ReadThrough),
    ]
}

fn set_up() -> impl Strategy<Value = (StorageLimits, LogConfig)> {
    (
        prop_oneof![Just(0u64), Just(6_000), Just(60_000), Just(4 << 20)],
        prop_oneof![Just(100u64), Just(1 << 20)],
        1usize..4,
        8_000u32..120_000,
        prop_oneof![Just(0u32), Just(500), Just(4_096)],
        prop_oneof![Just(60u32), Just(10 << 20)],
    )
        .prop_map(|(cache, cold, open, segment, interval, index)| {
            let limits = StorageLimits {
                cache_bytes: cache,
                cold_read_bytes: cold,
                open_segments_max: open,
                ..limits()
            };
            let config = LogConfig {
                segment_bytes: segment,
                index_interval_bytes: interval,
                index_bytes_max: index,
                ..LogConfig::default()
            };
            (limits, config)
        })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: Some(Box::new(
            proptest::test_runner::FileFailurePersistence::Direct(
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proptest-regressions/storage_log.txt"),
            ),
        )),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_log_gives_back_what_was_appended(
        seed in any::<u64>(),
        (limits, config) in set_up(),
        ops in prop::collection::vec(op(), 1..40),
    ) {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        let model = world.block_on(&rt, async {
            let log = create(&rt, DIR, limits, config).await;
            run_all(log, ops).await
        });
        let paths = node.disk().list_raw(DIR).into_iter().map(|(path, _)| path);
        model.check_files(paths.collect(), |path| node.disk().read_raw(path).unwrap());
    }
}

/// The same against the kernel: direct I/O on a real file system.
#[test]
fn a_log_on_a_real_disk_gives_back_what_was_appended() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..4 {
        let temp = tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/target")).unwrap();
        let dir = temp.path().join("topic-0");
        let (limits, config) = set_up().new_tree(&mut runner).unwrap().current();
        let ops = prop::collection::vec(op(), 30..40);
        let ops = ops.new_tree(&mut runner).unwrap().current();
        let path = dir.clone();
        let model = native::run(move |rt| async move {
            let log = create(&rt, &path, limits, config).await;
            run_all(log, ops).await
        });
        let model = model.unwrap();
        let entries = std::fs::read_dir(&dir).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
        paths.sort();
        model.check_files(paths, |path| std::fs::read(path).unwrap());
    }
}

async fn run_all(log: Log, ops: Vec<Op>) -> Files {
    let mut model = Model {
        log,
        batches: Vec::new(),
    };
    for op in ops {
        model.run(op).await;
    }
    model.close().await;
    Files(model.batches)
}

struct Model {
    log: Log,
    batches: Vec<LogBatch>,
}

impl Model {
    async fn run(&mut self, op: Op) {
        match op {
            Op::Append(sizes) => {
                let new = self.next_batches(&sizes);
                self.log.append(&new).await.unwrap();
                self.batches.extend(new);
            }
            Op::Read(from, bound, bytes_max, whole) => {
                let (from, bound) = (self.scaled(from), self.scaled(bound));
                let got = self.log.read(from, bound, bytes_max, whole).await;
                self.check_read(from, bound, bytes_max, whole, got);
            }
            Op::Flush => {
                let end = self.log.end_offset();
                assert!(self.log.flush().await.unwrap() >= end);
                assert_eq!(self.log.flushed_offset(), end);
            }
            Op::Checkpoint => {
                let end = self.log.end_offset();
                assert_eq!(self.log.checkpoint().await.unwrap(), end);
                assert_eq!(self.log.recovery_point(), end);
            }
            Op::Together(sizes, from, bytes_max) => {
                let new = self.next_batches(&sizes);
                let (from, bound) = (self.scaled(from), self.log.end_offset());
                let writes = zip(self.log.append(&new), self.log.flush());
                let others = zip(
                    self.log.read(from, bound, bytes_max, true),
                    self.log.checkpoint(),
                );
                let ((appended, flushed), (got, point)) = zip(writes, others).await;
                appended.unwrap();
                assert!(flushed.unwrap() >= bound);
                assert!(point.unwrap() >= bound);
                self.check_read(from, bound, bytes_max, true, got);
                self.batches.extend(new);
            }
            Op::ReadThrough(bytes_max) => {
                let mut at = 0;
                let bound = self.log.end_offset();
                while at < bound {
                    let got = self.log.read(at, bound, bytes_max, true).await;
                    at = self.check_read(at, bound, bytes_max, true, got);
                }
                assert_eq!(at, bound);
            }
        }
        let written: usize = self.batches.iter().map(|b| b.bytes.len()).sum();
        assert_eq!(self.log.size_bytes(), written as u64);
        let end = self.batches.last().map_or(0, |b| b.last_offset + 1);
        assert_eq!(self.log.end_offset(), end);
        assert!(self.log.flushed_offset() <= end);
        assert!(self.log.recovery_point() <= self.log.flushed_offset());
    }

    fn next_batches(&self, sizes: &[(u32, usize)]) -> Vec<LogBatch> {
        let mut next = self.log.end_offset();
        let mut out = Vec::new();
        for (count, payload) in sizes {
            let one = batch(next, *count, *payload, 1_000 + next % 7);
            next = one.last_offset + 1;
            out.push(one);
        }
        out
    }

    fn scaled(&self, thousandths: u32) -> i64 {
        self.log.end_offset() * i64::from(thousandths) / 1_000
    }

    /// Checks a read; where the next one goes on.
    fn check_read(
        &self,
        from: i64,
        bound: i64,
        bytes_max: usize,
        whole: bool,
        got: Result<ReadSlices, ReadError>,
    ) -> i64 {
        let end = self.batches.last().map_or(0, |b| b.last_offset + 1);
        if from > end {
            assert!(matches!(got, Err(ReadError::OutOfRange { .. })), "{got:?}");
            return from;
        }
        let got = got.unwrap();
        let mut next = from;
        let mut bytes = 0;
        let below = self
            .batches
            .iter()
            .skip_while(|b| b.last_offset < from)
            .take_while(|b| b.last_offset < bound && from < bound);
        let mut expected = Vec::new();
        for b in below {
            let first_whole = whole && expected.is_empty();
            if bytes + b.bytes.len() > bytes_max && !first_whole {
                break;
            }
            bytes += b.bytes.len();
            expected.push(b);
        }
        assert!(
            !got.batch_bytes.is_empty() || expected.is_empty(),
            "nothing read at {from} below {bound}"
        );
        assert!(got.batch_bytes.len() <= expected.len(), "read past a limit");
        let content: Vec<u8> = got.slices.concat();
        let mut at = 0;
        for (b, len) in expected.iter().zip(&got.batch_bytes) {
            assert_eq!(*len as usize, b.bytes.len());
            assert!(content[at..at + *len as usize] == stamped(b), "other bytes");
            at += *len as usize;
            next = b.last_offset + 1;
        }
        assert_eq!(content.len(), at);
        assert_eq!(got.bytes, at);
        assert_eq!(got.next_offset, next);
        let estimate = self.log.bytes_between(from, bound);
        assert!(estimate > 0 || from >= bound.min(self.log.end_offset()));
        next
    }

    async fn close(&self) {
        let end = self.log.end_offset();
        assert_eq!(self.log.close().await.unwrap(), end);
        let closed = self.log.read(0, end, 1, true).await;
        assert!(matches!(closed, Err(ReadError::Closed)));
    }
}

/// What a log's files must hold.
struct Files(Vec<LogBatch>);

impl Files {
    /// After a clean stop every file is exact.
    fn check_files(&self, paths: Vec<PathBuf>, read: impl Fn(&Path) -> Vec<u8>) {
        let mut rest = &self.0[..];
        let mut logs = Vec::new();
        for path in &paths {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(!name.ends_with(".tmp"), "{name} was left");
            if let Some(stem) = name.strip_suffix(".log") {
                logs.push((stem.parse::<i64>().unwrap(), path));
            }
        }
        assert!(!logs.is_empty());
        for (i, (base, path)) in logs.iter().enumerate() {
            let end = logs.get(i + 1).map_or(i64::MAX, |(base, _)| *base);
            let count = rest.partition_point(|b| b.base_offset < end);
            let (here, later) = rest.split_at(count);
            rest = later;
            let read = |extension| read(&path.with_extension(extension));
            let content = read("log");
            let expected: Vec<u8> = here.iter().flat_map(stamped).collect();
            assert!(content == expected, "segment {base} is not exact");
            let index = OffsetIndex::decode(*base, &read("index")).unwrap();
            let mut position = 0;
            let mut starts = Vec::new();
            for b in here {
                starts.push((b.last_offset, position as u32));
                position += b.bytes.len();
            }
            assert!(index.iter().all(|entry| starts.contains(&entry)));
            let times = TimeIndex::decode(*base, &read("timeindex")).unwrap();
            let largest = here.iter().map(|b| b.max_timestamp).max();
            assert_eq!(times.last().map(|(t, _)| t), largest);
        }
        assert!(rest.is_empty());
    }
}
