//! Compaction on the simulator, against a plain list of what was appended.

mod crashes;
mod cuts;
mod keeping;
mod meanwhile;
mod shapes;
mod swaps;

use super::{Compacted, CompactionError, CompactionMeans, CompactionRules};
use crate::protocol::batch::{BatchBuilder, BatchView, Batches, Compression, RecordIter};
use crate::runtime::local::Event;
use crate::runtime::sim::{PowerCut, SimNode, World};
use crate::runtime::{Rt, SyncSite};
use crate::storage::data_dir::CLEANER_FILE;
use crate::storage::log_tests::{limits, DIR};
use crate::storage::segment::{Segment, SegmentPhase};
use crate::storage::{
    inspect, BatchProducer, LoadMode, Log, LogBatch, LogConfig, Recorder, RetentionRules, Storage,
    Throttle,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

/// The wall clock that the rules are given, milliseconds.
const NOW_MS: i64 = 1_000_000_000_000;

/// One record: key, value.
type Pair = (String, Option<String>);

/// Offset, key, value of each record that was appended.
type Written = Vec<(i64, String, Option<String>)>;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 4_000,
        index_interval_bytes: 300,
        file_delete_delay_ms: 10,
        compacted: true,
        ..LogConfig::default()
    }
}

/// The data directory's line, as the owner would keep it.
#[derive(Clone, Default)]
struct Line(Rc<Cell<Option<i64>>>);

impl Line {
    fn means(&self, rt: &Rt, map_bytes: usize) -> CompactionMeans {
        CompactionMeans {
            throttle: Throttle::new(rt.clone(), 0),
            map_bytes,
            record: self.recorder(),
            stop: Event::new(),
        }
    }

    fn recorder(&self) -> Recorder {
        let line = self.0.clone();
        Rc::new(move |offset| {
            let line = line.clone();
            Box::pin(async move {
                line.set(Some(offset));
                Ok(())
            })
        })
    }

    fn rules(&self, log: &Log) -> CompactionRules {
        CompactionRules {
            bound: log.end_offset(),
            first_dirty: self.0.get().unwrap_or(0),
            now_ms: NOW_MS,
            delete_retention_ms: 1_000,
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
        }
    }

    async fn compact(&self, rt: &Rt, log: &Log) -> Compacted {
        let done = log
            .compact(&self.rules(log), &self.means(rt, 1 << 20))
            .await;
        done.unwrap()
    }

    async fn open(&self, rt: &Rt, clean: bool) -> Log {
        self.open_with(rt, clean, config()).await
    }

    async fn open_with(&self, rt: &Rt, clean: bool, config: LogConfig) -> Log {
        let mode = LoadMode {
            clean,
            cleaned_to: self.0.get(),
            ..LoadMode::default()
        };
        let storage = Storage::new(rt.clone(), limits());
        let opened = Log::open(&storage, rt.dir(DIR), config, mode).await;
        let log = opened.unwrap().0;
        log.record_cleaned_with(self.recorder());
        log
    }
}

fn build(base: i64, pairs: &[Pair], compression: Compression, producer: (i64, i32)) -> LogBatch {
    let (id, sequence) = producer;
    let epoch = if id < 0 { -1 } else { 0 };
    let mut builder = BatchBuilder::new()
        .compression(compression)
        .producer(id, epoch, sequence);
    for (n, (key, value)) in pairs.iter().enumerate() {
        let value = value.as_ref().map(|v| v.as_bytes());
        builder.push(5_000 + base + n as i64, Some(key.as_bytes()), value);
    }
    let bytes = builder.build();
    let view = BatchView::parse(bytes.clone()).unwrap();
    LogBatch {
        bytes,
        base_offset: base,
        last_offset: base + pairs.len() as i64 - 1,
        leader_epoch: 2,
        max_timestamp: view.header().max_timestamp,
        producer: BatchProducer::of(view.header()),
    }
}

fn pair(key: impl ToString, value: impl ToString) -> Pair {
    (key.to_string(), Some(value.to_string()))
}

async fn create(rt: &Rt) -> Log {
    create_with(rt, config()).await
}

async fn create_with(rt: &Rt, config: LogConfig) -> Log {
    let storage = Storage::new(rt.clone(), limits());
    Log::create(&storage, rt.dir(DIR), config).await.unwrap()
}

async fn append(log: &Log, pairs: &[Pair], written: &mut Written) {
    let base = log.end_offset();
    let compression = Compression::ALL[base as usize % Compression::ALL.len()];
    log.append(&[build(base, pairs, compression, (-1, -1))])
        .await
        .unwrap();
    let each = pairs.iter().enumerate();
    written.extend(each.map(|(n, (k, v))| (base + n as i64, k.clone(), v.clone())));
}

/// Appends batches of some records over a few keys; all but the last segment is sealed then.
async fn append_many(world: &World, log: &Log, batches: usize, written: &mut Written) {
    for _ in 0..batches {
        let count = 1 + world.random_below(5);
        let pairs: Vec<Pair> = (0..count)
            .map(|_| {
                let key = format!("key {}", world.random_below(12));
                let filler = "x".repeat(world.random_below(150) as usize);
                let value = format!("{} {filler}", log.end_offset());
                match world.random_below(6) {
                    0 => (key, None),
                    _ => (key, Some(value)),
                }
            })
            .collect();
        append(log, &pairs, written).await;
    }
    log.checkpoint().await.unwrap();
}

/// All records from `from` on.
async fn read_from(log: &Log, from: i64) -> Written {
    let (mut at, mut out) = (from, Written::new());
    while at < log.end_offset() {
        let read = log.read(at, i64::MAX, 700, true).await.unwrap();
        if read.next_offset == at {
            // A cut may leave a log whose end nothing reaches.
            break;
        }
        at = read.next_offset;
        for slice in read.slices {
            for view in Batches::new(slice) {
                let view = view.unwrap();
                view.validate_crc().unwrap();
                let bytes = view.decompressed(1 << 20).unwrap();
                for record in RecordIter::new(&bytes, view.header().record_count) {
                    let record = record.unwrap();
                    let offset = view.header().base_offset + i64::from(record.offset_delta);
                    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
                    assert_eq!(
                        view.header().timestamp(record.timestamp_delta),
                        5_000 + offset
                    );
                    out.push((offset, text(record.key.unwrap()), record.value.map(text)));
                }
            }
        }
    }
    out.retain(|(offset, ..)| *offset >= from);
    out
}

/// What must be there: of each key the last record below `end`, and all from `end` on.
fn expected(written: &Written, end: i64) -> Written {
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for (offset, key, _) in written.iter().filter(|w| w.0 < end) {
        last.insert(key, *offset);
    }
    let stays = |(offset, key, _): &&(i64, String, Option<String>)| {
        *offset >= end || last.get(key.as_str()) == Some(offset)
    };
    written.iter().filter(stays).cloned().collect()
}

/// Reads, lookups by time, and the files hold what they must.
async fn check(rt: &Rt, log: &Log, expected: &Written, end: i64) {
    assert_eq!(log.end_offset(), end);
    assert_eq!(read_from(log, 0).await, *expected);
    for from in (0..end).step_by(3) {
        let left: Written = expected.iter().filter(|r| r.0 >= from).cloned().collect();
        assert_eq!(read_from(log, from).await, left, "from {from}");
        let found = log.offset_for_timestamp(5_000 + from, end).await.unwrap();
        assert_eq!(found.map(|f| f.offset), left.first().map(|r| r.0));
    }
    let largest = log.offset_of_max_timestamp(end).await.unwrap();
    let last = expected.last().map(|r| r.0);
    assert_eq!(largest.map(|f| f.offset), last);
    if let Some(to) = log.cleaned_to() {
        // As the data directory has it: a segment without any batch shows no gap by itself.
        let line = format!("0\n1\ntopic 0 {to}\n").into_bytes();
        let data = rt.dir("/data");
        let site = SyncSite::CleanerCheckpoint;
        data.replace_small(CLEANER_FILE, line, site).await.unwrap();
    }
    let report = inspect::verify_dir(rt, Path::new(DIR)).await.unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

fn names(node: &SimNode, part: &str) -> Vec<String> {
    let files = node.disk().list_raw(DIR);
    let name = |p: &Path| p.file_name().unwrap().to_str().unwrap().to_owned();
    let all = files.iter().map(|(path, _)| name(path));
    all.filter(|name| name.contains(part)).collect()
}

fn world_with_log(seed: u64) -> (World, SimNode, Rt, Line) {
    let world = World::new(seed);
    let node = world.node("a");
    let rt = node.rt();
    (world, node, rt, Line::default())
}

const CUTS: [PowerCut; 5] = [
    PowerCut::Mixed,
    PowerCut::AllLost,
    PowerCut::AllKept,
    PowerCut::Prefix,
    PowerCut::Sectors,
];
