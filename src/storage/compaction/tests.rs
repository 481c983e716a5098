//! Compaction on the simulator, against a plain list of what was appended.

use super::{Compacted, CompactionError, CompactionMeans, CompactionRules};
use crate::protocol::batch::{BatchBuilder, BatchView, Batches, Compression, RecordIter};
use crate::runtime::local::Event;
use crate::runtime::sim::{PowerCut, SimNode, World};
use crate::runtime::{Rt, SyncSite};
use crate::storage::data_dir::CLEANER_FILE;
use crate::storage::log_tests::{limits, DIR};
use crate::storage::segment::{Segment, SegmentPhase};
use crate::storage::{
    inspect, BatchProducer, LoadMode, Log, LogBatch, LogConfig, RetentionRules, Storage, Throttle,
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
        let line = self.0.clone();
        CompactionMeans {
            throttle: Throttle::new(rt.clone(), 0),
            map_bytes,
            record: Rc::new(move |offset| {
                let line = line.clone();
                Box::pin(async move {
                    line.set(Some(offset));
                    Ok(())
                })
            }),
            stop: Event::new(),
        }
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
        let mode = LoadMode {
            clean,
            cleaned_to: self.0.get(),
            ..LoadMode::default()
        };
        let storage = Storage::new(rt.clone(), limits());
        let opened = Log::open(&storage, rt.dir(DIR), config(), mode).await;
        opened.unwrap().0
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
    let storage = Storage::new(rt.clone(), limits());
    Log::create(&storage, rt.dir(DIR), config()).await.unwrap()
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

#[test]
fn of_each_key_the_last_record_stays_at_its_offset() {
    for seed in 0..12 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        let line = Line::default();
        let mut written = Written::new();
        let wanted = world.block_on(&rt, async {
            let log = create(&rt).await;
            append_many(&world, &log, 60, &mut written).await;
            let mut wanted = Written::new();
            for _ in 0..2 {
                let need = log.compaction_need(&line.rules(&log)).await.unwrap();
                assert!(need.end > need.first_dirty && need.dirty_bytes > 0);
                let done = line.compact(&rt, &log).await;
                assert_eq!((done.cleaned_to, done.ended_early), (need.end, false));
                assert!(done.records_after < done.records_before);
                assert!(done.bytes_after < done.bytes_before);
                wanted = expected(&written, done.cleaned_to);
                check(&rt, &log, &wanted, log.end_offset()).await;
                let after = log.compaction_need(&line.rules(&log)).await.unwrap();
                assert_eq!((after.dirty_bytes, after.end), (0, need.end));
                append_many(&world, &log, 30, &mut written).await;
                wanted = expected(&written, done.cleaned_to);
            }
            log.flush().await.unwrap();
            wanted
        });
        let end = written.last().unwrap().0 + 1;
        node.crash();
        let rt = node.restart();
        world.block_on(&rt, async {
            let log = line.open(&rt, false).await;
            check(&rt, &log, &wanted, end).await;
            log.close().await.unwrap();
        });
        node.kill();
        let rt = node.restart();
        world.block_on(&rt, async {
            let log = line.open(&rt, true).await;
            check(&rt, &log, &wanted, end).await;
        });
        assert!(names(&node, ".swap").is_empty() && names(&node, ".cleaned").is_empty());
    }
}

#[test]
fn a_power_cut_at_any_step_leaves_the_log_compacted_or_not() {
    let run = |seed: u64, cut_after: u64| -> (bool, Vec<String>) {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        let line = Line::default();
        let mut written = Written::new();
        let log = world.block_on(&rt, async {
            let log = create(&rt).await;
            append_many(&world, &log, 70, &mut written).await;
            log
        });
        let end = log.end_offset();
        let mode = CUTS[(seed + cut_after) as usize % CUTS.len()];
        node.disk().cut_power_after_ops(cut_after, mode);
        let done = world.block_on_until_crash(&rt, line.compact(&rt, &log));
        drop(log);
        let was_cut = done.is_none();
        if !was_cut {
            node.crash();
        }
        let left: Vec<String> = [".cleaned", ".swap", ".deleted"]
            .iter()
            .filter(|part| !names(&node, part).is_empty())
            .map(|part| (*part).to_owned())
            .collect();
        let rt = node.restart();
        world.block_on(&rt, async {
            let log = line.open(&rt, false).await;
            assert_eq!(log.end_offset(), end);
            let there = read_from(&log, 0).await;
            let last = expected(&written, end);
            for record in &there {
                assert!(written.contains(record), "an invented record {record:?}");
            }
            for record in &last {
                assert!(there.contains(record), "{record:?} is gone");
            }
            let done = line.compact(&rt, &log).await;
            check(&rt, &log, &expected(&written, done.cleaned_to), end).await;
        });
        (was_cut, left)
    };
    let mut seen = BTreeSet::new();
    for seed in 7..10 {
        let mut cuts = 0;
        loop {
            let (was_cut, left) = run(seed, cuts + 1);
            seen.extend(left);
            if !was_cut {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 40, "{cuts} cuts");
    }
    assert_eq!(seen.len(), 3, "every kind of file was met: {seen:?}");
}

const CUTS: [PowerCut; 5] = [
    PowerCut::Mixed,
    PowerCut::AllLost,
    PowerCut::AllKept,
    PowerCut::Prefix,
    PowerCut::Sectors,
];

fn world_with_log(seed: u64) -> (World, SimNode, Rt, Line) {
    let world = World::new(seed);
    let node = world.node("a");
    let rt = node.rt();
    (world, node, rt, Line::default())
}

#[test]
fn a_deletion_marker_goes_once_its_horizon_has_passed_and_not_before() {
    let (world, _node, rt, line) = world_with_log(3);
    world.block_on(&rt, async {
        let log = create(&rt).await;
        let mut written = Written::new();
        append(&log, &[pair("a", 1), pair("b", 1)], &mut written).await;
        append(&log, &[("a".to_owned(), None)], &mut written).await;
        for n in 0..30 {
            append(&log, &[pair("filler", "x".repeat(300 + n))], &mut written).await;
        }
        log.checkpoint().await.unwrap();
        line.compact(&rt, &log).await;
        let there = read_from(&log, 0).await;
        assert_eq!(there[0], (1, "b".to_owned(), Some("1".to_owned())));
        assert_eq!(there[1], (2, "a".to_owned(), None));
        let mut rules = line.rules(&log);
        assert!(!log.compaction_need(&rules).await.unwrap().deletes_due);
        rules.now_ms += 999;
        let done = log
            .compact(&rules, &line.means(&rt, 1 << 20))
            .await
            .unwrap();
        assert_eq!(done.bytes_read, 0, "nothing was due");
        rules.now_ms += 1;
        assert!(log.compaction_need(&rules).await.unwrap().deletes_due);
        let done = log
            .compact(&rules, &line.means(&rt, 1 << 20))
            .await
            .unwrap();
        assert_eq!(done.records_before - done.records_after, 1);
        let left = read_from(&log, 0).await;
        assert!(left.iter().all(|(_, key, _)| key != "a"), "{left:?}");
        assert_eq!(left[0].0, 1);
        assert!(!log.compaction_need(&rules).await.unwrap().deletes_due);
    });
}

#[test]
fn a_reader_sees_every_surviving_record_once_while_segments_are_replaced() {
    // Which segments there are below an offset.
    let sealed = |log: &Log, below: i64| -> Vec<*const Segment> {
        let state = log.0.state.borrow();
        let complete = state.segments.iter().filter(|s| s.next_offset() < below);
        complete.map(Rc::as_ptr).collect()
    };
    let mut swapped_beneath = 0;
    for seed in 20..26 {
        let (world, _node, rt, line) = world_with_log(seed);
        world.block_on(&rt, async {
            let log = create(&rt).await;
            let mut written = Written::new();
            append_many(&world, &log, 80, &mut written).await;
            let before = log.end_offset();
            let means = line.means(&rt, 1 << 20);
            means.throttle.set_bytes_per_second(200_000);
            let rules = line.rules(&log);
            let read = async {
                let mut all = Vec::new();
                // Until the last group is swapped, and once after that.
                let mut is_done = false;
                while !is_done {
                    is_done = log.cleaned_to().is_some_and(|to| to > 0);
                    log.0.storage.0.cache.remove_log(log.0.id);
                    let segments = sealed(&log, before);
                    all.push(read_from(&log, 0).await);
                    swapped_beneath += usize::from(segments != sealed(&log, before));
                    rt.sleep(std::time::Duration::from_millis(3)).await;
                }
                all
            };
            let more = async {
                let mut more = Written::new();
                for n in 0..10 {
                    append(&log, &[pair("late", n)], &mut more).await;
                    rt.sleep(std::time::Duration::from_millis(7)).await;
                }
                more
            };
            let compact = log.compact(&rules, &means);
            let ((done, reads), more) =
                futures_lite::future::zip(futures_lite::future::zip(compact, read), more).await;
            let done = done.unwrap();
            assert!(done.segments_after > 1 && done.bytes_after < done.bytes_before);
            let mut all = written.clone();
            all.extend(more);
            let survive = expected(&written, done.cleaned_to);
            for read in &reads {
                assert!(
                    read.windows(2).all(|w| w[0].0 < w[1].0),
                    "each once, in order"
                );
                assert!(read.iter().all(|record| all.contains(record)));
                for record in &survive {
                    assert!(read.contains(record), "{record:?} was not seen");
                }
            }
            let sizes: BTreeSet<usize> = reads
                .iter()
                .map(|r| r.iter().filter(|w| w.0 < before).count())
                .collect();
            assert!(
                sizes.len() > 2,
                "some were read between two swaps: {sizes:?}"
            );
        });
    }
    assert!(swapped_beneath > 0, "no read was under way during a swap");
}

#[test]
fn truncation_retention_and_close_in_between_end_a_round_without_harm() {
    let (mut early, mut whole) = (0, 0);
    for what in 0..3u8 {
        for after_ms in (0..400).step_by(40) {
            let (world, _node, rt, line) = world_with_log(40 + after_ms);
            world.block_on(&rt, async {
                let log = create(&rt).await;
                let mut written = Written::new();
                append_many(&world, &log, 80, &mut written).await;
                let end = log.end_offset();
                let means = line.means(&rt, 1 << 20);
                means.throttle.set_bytes_per_second(100_000);
                let rules = line.rules(&log);
                let meanwhile = async {
                    rt.sleep(std::time::Duration::from_millis(after_ms)).await;
                    match what {
                        0 => assert!(log.truncate_to(end / 2).await.unwrap() <= end / 2),
                        1 => {
                            let rules = RetentionRules {
                                retention_ms: -1,
                                retention_bytes: 6_000,
                                bound: end,
                                now_ms: NOW_MS,
                            };
                            let start = log.expired_up_to(rules).await.unwrap();
                            log.settle_below(start).await.unwrap();
                            log.set_log_start(start);
                            log.remove_head().await.unwrap();
                        }
                        _ => assert_eq!(log.close().await.unwrap(), end),
                    }
                };
                let (done, ()) =
                    futures_lite::future::zip(log.compact(&rules, &means), meanwhile).await;
                match &done {
                    Ok(done) if !done.ended_early => whole += 1,
                    Ok(_) => early += 1,
                    Err(CompactionError::Closed(_)) if what == 2 => early += 1,
                    Err(error) => panic!("{error}"),
                }
                let end = match what {
                    2 => end,
                    _ => {
                        let end = log.end_offset();
                        log.close().await.unwrap();
                        end
                    }
                };
                let log_start = log.log_start_offset();
                let mode = LoadMode {
                    clean: true,
                    cleaned_to: line.0.get(),
                    log_start: (what == 1).then_some(log_start),
                    ..LoadMode::default()
                };
                let storage = Storage::new(rt.clone(), limits());
                let opened = Log::open(&storage, rt.dir(DIR), config(), mode).await;
                let log = opened.unwrap().0;
                assert_eq!(log.end_offset(), end);
                let there = read_from(&log, log_start).await;
                let kept: Written = written.iter().filter(|w| w.0 < end).cloned().collect();
                for record in expected(&kept, end).iter().filter(|w| w.0 >= log_start) {
                    // A cut may take what superseded a record that was compacted away before.
                    let superseded = written.iter().any(|w| w.1 == record.1 && w.0 > record.0);
                    assert!(
                        there.contains(record) || (what == 0 && superseded),
                        "{record:?}"
                    );
                }
                log.compact(&line.rules(&log), &line.means(&rt, 1 << 20))
                    .await
                    .unwrap();
            });
        }
    }
    assert!(early > 5 && whole > 0, "{early} early, {whole} whole");
}

#[test]
fn producers_are_known_after_compaction_even_without_a_snapshot() {
    let (world, node, rt, line) = world_with_log(5);
    let known = |log: &Log| {
        let each = log.producers();
        let last =
            |p: crate::storage::ProducerInfo| (p.id, p.epoch, p.last.map(|b| b.last_sequence));
        each.iter().map(last).collect::<Vec<_>>()
    };
    let before = world.block_on(&rt, async {
        let log = create(&rt).await;
        let mut sequences = [0i32; 3];
        for n in 0..60 {
            let id = if n < 40 { n % 3 } else { 2 };
            let pairs = [pair("one key", "y".repeat(200)), pair("one key", n)];
            let producer = (id as i64, sequences[id]);
            sequences[id] += 2;
            let batch = build(log.end_offset(), &pairs, Compression::None, producer);
            log.append(&[batch]).await.unwrap();
        }
        log.checkpoint().await.unwrap();
        line.compact(&rt, &log).await;
        log.flush().await.unwrap();
        known(&log)
    });
    node.crash();
    for name in names(&node, ".snapshot") {
        assert!(node.disk().remove_raw(format!("{DIR}/{name}")));
    }
    let rt = node.restart();
    world.block_on(&rt, async {
        let log = line.open(&rt, false).await;
        assert_eq!(
            known(&log),
            before,
            "each producer's last batch stands in the log"
        );
        assert_eq!(before.len(), 3);
    });
}

#[test]
fn c8_given_a_gap_of_more_than_2_31_offsets_then_the_log_rolls_at_the_offset_behind_it() {
    let (world, node, rt, line) = world_with_log(8);
    let far = 5_000_000_000;
    world.block_on(&rt, async {
        let log = create(&rt).await;
        log.append(&[build(0, &[pair("a", 1)], Compression::None, (-1, -1))])
            .await
            .unwrap();
        log.append(&[build(far, &[pair("b", 2)], Compression::None, (-1, -1))])
            .await
            .unwrap();
        log.append(&[build(far + 1, &[pair("c", 3)], Compression::None, (-1, -1))])
            .await
            .unwrap();
        log.checkpoint().await.unwrap();
        assert_eq!(log.segment_count(), 2);
        line.compact(&rt, &log).await;
        for from in [0, 1, far - 1, far] {
            let read = log.read(from, i64::MAX, 1, true).await.unwrap();
            let first = BatchView::parse(read.slices[0].clone()).unwrap();
            assert_eq!(
                first.header().base_offset,
                if from == 0 { 0 } else { far },
                "{from}"
            );
        }
    });
    assert!(names(&node, ".log").contains(&format!("{far:020}.log")));
    node.crash();
    let rt = node.restart();
    world.block_on(&rt, async {
        let log = line.open(&rt, false).await;
        assert_eq!(log.end_offset(), far + 2);
        assert_eq!(
            log.read(7, i64::MAX, 1, true).await.unwrap().next_offset,
            far + 1
        );
    });
}

#[test]
fn c9_given_superseded_records_before_an_empty_active_segment_then_the_end_offset_stays() {
    for clean in [false, true] {
        let (world, node, rt, line) = world_with_log(9);
        let end = world.block_on(&rt, async {
            let log = create(&rt).await;
            let mut written = Written::new();
            for n in 0..30 {
                append(
                    &log,
                    &[pair("k", n), pair("k", "z".repeat(400))],
                    &mut written,
                )
                .await;
            }
            // The last of all is gone when the round comes again.
            append(&log, &[("k".to_owned(), None)], &mut written).await;
            let end = log.end_offset();
            let expire = RetentionRules {
                retention_ms: 0,
                retention_bytes: -1,
                bound: end,
                now_ms: NOW_MS,
            };
            // Rolls the active segment; nothing is expired by it alone.
            assert_eq!(log.expired_up_to(expire).await.unwrap(), end);
            log.checkpoint().await.unwrap();
            line.compact(&rt, &log).await;
            let mut rules = line.rules(&log);
            rules.now_ms += 10_000;
            let done = log
                .compact(&rules, &line.means(&rt, 1 << 20))
                .await
                .unwrap();
            assert_eq!(done.records_after, 0, "no record at all is left");
            assert!(read_empty(&log, end).await);
            match clean {
                true => drop(log.close().await.unwrap()),
                false => drop(log.flush().await.unwrap()),
            }
            end
        });
        node.crash();
        let rt = node.restart();
        world.block_on(&rt, async {
            let log = line.open(&rt, clean).await;
            assert_eq!(log.end_offset(), end);
            let mut more = Written::new();
            append(&log, &[pair("new", 1)], &mut more).await;
            assert_eq!(read_from(&log, 0).await, more);
        });
    }
}

/// Whether the log has batches and no record, up to its end.
async fn read_empty(log: &Log, end: i64) -> bool {
    let read = log.read(0, i64::MAX, 1 << 20, true).await.unwrap();
    read.next_offset == end && read_from(log, 0).await.is_empty()
}

#[test]
fn c10_and_bounded_memory_given_batches_of_any_size_and_a_small_map_then_rounds_get_through() {
    let (world, _node, rt, line) = world_with_log(10);
    world.block_on(&rt, async {
        let log = create(&rt).await;
        let mut written = Written::new();
        // Larger than a segment, than a read, and than what max.message.bytes may be now.
        for n in 0..3 {
            let large = format!("{n}{}", "w".repeat(1_500_000));
            let all = [pair("large", &large), pair(format!("l{n}"), n)];
            log.append(&[build(log.end_offset(), &all, Compression::None, (-1, -1))])
                .await
                .unwrap();
            written.push((2 * n, "large".to_owned(), Some(large)));
            written.push((2 * n + 1, format!("l{n}"), Some(n.to_string())));
        }
        for n in 0..200 {
            append(&log, &[pair(n % 60, n), pair("k", n)], &mut written).await;
        }
        log.checkpoint().await.unwrap();
        let map_bytes = 40 * 24;
        let mut rounds = 0;
        loop {
            let rules = line.rules(&log);
            let done = log
                .compact(&rules, &line.means(&rt, map_bytes))
                .await
                .unwrap();
            assert!(done.map_bytes <= map_bytes);
            // A window of the large batch, and what is written.
            assert!(done.buffer_bytes_max < 9 << 20, "{}", done.buffer_bytes_max);
            assert!(done.cleaned_to > rules.first_dirty);
            rounds += 1;
            if !done.ended_early {
                break;
            }
        }
        assert!(rounds > 2, "the map was too small for one round");
        let end = line.0.get().unwrap();
        check(&rt, &log, &expected(&written, end), log.end_offset()).await;
    });
}

#[test]
fn damage_stops_the_round_and_is_named_and_nothing_is_dropped() {
    let (world, node, rt, line) = world_with_log(11);
    world.block_on(&rt, async {
        let log = create(&rt).await;
        let mut written = Written::new();
        append_many(&world, &log, 60, &mut written).await;
        let segments = names(&node, ".log");
        let second = format!("{DIR}/{}", segments[1]);
        node.disk().corrupt(&second, 70, b"#");
        let done = log
            .compact(&line.rules(&log), &line.means(&rt, 1 << 20))
            .await;
        let error = done.unwrap_err();
        let CompactionError::Corrupt { file, position, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((file.as_str(), *position), (second.as_str(), 0));
        assert!(error.to_string().contains("highwater log repair"));
        assert_eq!(names(&node, ".log").len(), segments.len());
        assert_eq!(log.end_offset(), written.last().unwrap().0 + 1);
        assert!(log.fence_reason().is_none());
    });
}

#[test]
fn aborted_data_goes_at_once_and_never_supersedes_what_was_committed() {
    let (world, _node, rt, line) = world_with_log(12);
    world.block_on(&rt, async {
        let log = create(&rt).await;
        let put = async |base: i64, control: bool, key: &[u8], value: Option<&[u8]>| {
            let mut builder = BatchBuilder::new()
                .producer(7, 0, if control { -1 } else { base as i32 })
                .transactional(true)
                .control(control);
            builder.push(5_000 + base, Some(key), value);
            let bytes = builder.build();
            let batch = LogBatch {
                bytes,
                base_offset: base,
                last_offset: base,
                leader_epoch: 2,
                max_timestamp: 5_000 + base,
                producer: None,
            };
            log.append(&[batch]).await.unwrap();
        };
        let (abort, commit): (&[u8], &[u8]) = (&[0, 0, 0, 0], &[0, 0, 0, 1]);
        put(0, false, b"k", Some(b"committed")).await;
        put(1, true, commit, Some(b"")).await;
        put(2, false, b"k", Some(b"aborted")).await;
        put(3, true, abort, Some(b"")).await;
        let mut written = Written::new();
        for n in 0..40 {
            append(&log, &[pair("filler", "x".repeat(200 + n))], &mut written).await;
        }
        log.checkpoint().await.unwrap();
        line.compact(&rt, &log).await;
        let mut seen = Vec::new();
        let read = log.read(0, 4, 1 << 20, true).await.unwrap();
        for view in read.slices.into_iter().flat_map(Batches::new) {
            let header = *view.unwrap().header();
            seen.push((header.base_offset, header.record_count));
        }
        assert_eq!(seen, [(0, 1), (1, 1), (3, 1)]);
    });
}

#[test]
fn where_a_cut_leaves_no_batch_a_read_goes_to_the_end_and_then_on_to_what_is_appended() {
    let (world, _node, rt, line) = world_with_log(13);
    world.block_on(&rt, async {
        let log = create(&rt).await;
        let mut written = Written::new();
        append(&log, &[pair("first", 1)], &mut written).await;
        for n in 0..60 {
            append(&log, &[pair("k", n), pair("k", n)], &mut written).await;
            let filler = (0..300).map(|_| char::from(b'a' + world.random_below(26) as u8));
            append(&log, &[pair("k", filler.collect::<String>())], &mut written).await;
        }
        log.checkpoint().await.unwrap();
        line.compact(&rt, &log).await;
        let (second, third) = {
            let state = log.0.state.borrow();
            let base = |n: usize| state.segments[n].base_offset;
            (base(1), base(2))
        };
        // The second segment holds nothing, nor does the end of the first.
        assert_eq!(log.truncate_to(third - 1).await.unwrap(), second);
        assert!(second > 2);
        assert!(log.bytes_between(0, i64::MAX) > 0);
        let read = log.read(1, i64::MAX, 1 << 20, true).await.unwrap();
        assert_eq!((read.bytes, read.next_offset), (0, second));
        assert_eq!(log.bytes_between(1, i64::MAX), 0, "nobody need ask again");
        let mut more = Written::new();
        append(&log, &[pair("new", 1)], &mut more).await;
        assert!(log.bytes_between(1, i64::MAX) > 0);
        assert_eq!(read_from(&log, 1).await, more);
        // What comes after another cut is no part of what was found empty.
        assert_eq!(log.truncate_to(1).await.unwrap(), 1);
        append(&log, &[pair("again", 1)], &mut more).await;
        assert!(log.bytes_between(1, i64::MAX) > 0);
        assert_eq!(read_from(&log, 1).await, more[1..]);
    });
}

#[test]
fn segments_that_rolled_are_compacted_without_waiting_for_a_checkpoint() {
    let (world, _node, rt, line) = world_with_log(14);
    world.block_on(&rt, async {
        let log = create(&rt).await;
        let mut written = Written::new();
        for n in 0..60 {
            append(&log, &[pair("k", n), pair("k", n)], &mut written).await;
        }
        let unsealed = |log: &Log| {
            let state = log.0.state.borrow();
            let complete = &state.segments[..state.segments.len() - 1];
            let phases = complete.iter().map(|s| s.phase());
            phases.filter(|p| *p != SegmentPhase::Sealed).count()
        };
        assert!(unsealed(&log) > 0, "a checkpoint came first");
        let active = log.0.state.borrow().segments.last().unwrap().base_offset;
        let need = log.compaction_need(&line.rules(&log)).await.unwrap();
        assert_eq!(need.end, active);
        assert!(need.dirty_bytes > 0);
        let done = line.compact(&rt, &log).await;
        assert_eq!((done.cleaned_to, unsealed(&log)), (active, 0));
        check(&rt, &log, &expected(&written, active), log.end_offset()).await;
    });
}
