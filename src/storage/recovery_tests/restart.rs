//! What a stop and the start after it cost, counted in operations of the disk, and that what a
//! stop leaves out is not missed.

use super::cases::{batch, check, config, open, produce, stop_cleanly, DIR};
use crate::runtime::sim::{PowerCut, SimNode, World};
use crate::runtime::Rt;
use crate::storage::log_tests::limits;
use crate::storage::{BatchProducer, DataDir, LoadReport, Log, LogBatch, LogConfig, Storage};
use std::collections::BTreeMap;

/// What the disk was asked for while `work` ran.
async fn cost<T>(
    node: &SimNode,
    work: impl std::future::Future<Output = T>,
) -> (T, BTreeMap<&'static str, u64>) {
    let before = node.disk().op_counts();
    let result = work.await;
    let mut after = node.disk().op_counts();
    for (name, count) in before {
        *after.get_mut(name).expect("counts do not fall") -= count;
    }
    after.retain(|_, count| *count > 0);
    (result, after)
}

fn none() -> BTreeMap<&'static str, u64> {
    BTreeMap::new()
}

/// The content of every file of the partition.
fn files(node: &SimNode) -> BTreeMap<String, Vec<u8>> {
    let disk = node.disk();
    let paths = disk.list_raw(DIR).into_iter().map(|(path, _)| path);
    let name = |path: &std::path::Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    paths
        .map(|path| (name(&path), disk.read_raw(&path).unwrap()))
        .collect()
}

fn idempotent(offset: i64, id: i64) -> LogBatch {
    LogBatch {
        producer: Some(BatchProducer {
            id,
            epoch: 0,
            base_sequence: 0,
            last_sequence: 0,
            is_transactional: false,
        }),
        ..batch(offset)
    }
}

/// A log that was filled and stopped cleanly; what the next start opens.
fn stopped(seed: u64, end: i64) -> (World, SimNode) {
    let world = World::new(seed);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..end).await;
        stop_cleanly(&data_dir, &log).await;
    });
    node.kill();
    (world, node)
}

#[test]
fn given_a_log_that_was_not_touched_when_closed_then_the_disk_is_asked_for_nothing() {
    // Without a batch, without an index entry, in one segment, in three.
    for (seed, end) in [(1, 0), (2, 1), (3, 20), (4, 80)] {
        let (world, node) = stopped(seed, end);
        let left = files(&node);
        for _ in 0..3 {
            let rt = node.restart();
            world.block_on(&rt, async {
                let (data_dir, log, report) = open(&rt).await;
                assert_eq!(report.recovered_from, end);
                let (closed, asked) = cost(&node, log.close()).await;
                assert_eq!((closed.unwrap(), asked), (end, none()));
                data_dir.mark_clean().await.unwrap();
            });
            node.kill();
            assert_eq!(files(&node), left);
        }
        // What an unclean load relies on is all there.
        node.restart();
        node.crash_with(PowerCut::AllLost);
        let rt = node.restart();
        world.block_on(&rt, async {
            let (_data_dir, log, report) = open(&rt).await;
            assert_eq!(report.recovered_from, end);
            assert_eq!((report.rebuilt_bytes, report.truncated_bytes), (0, 0));
            check_if_any(&log, end).await;
        });
    }
}

#[test]
fn given_a_killed_broker_when_what_was_checkpointed_is_not_touched_then_its_stop_costs_nothing() {
    let (world, node) = stopped(5, 20);
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        produce(&log, 20..25).await;
        assert_eq!(log.checkpoint().await.unwrap(), 25);
    });
    node.kill();
    let rt = node.restart();
    world.block_on(&rt, async {
        let (data_dir, log, report) = open(&rt).await;
        assert_eq!(report.recovered_from, 25);
        let (closed, asked) = cost(&node, log.close()).await;
        assert_eq!(closed.unwrap(), 25);
        // The checkpoint's time index lacks the entry with which a complete one ends.
        assert!(asked.values().sum::<u64>() < 10, "{asked:?}");
        assert_eq!(asked.get("ftruncate"), None, "the load has cut it");
        data_dir.mark_clean().await.unwrap();
    });
    node.kill();
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        check(&log, 25).await;
        let (closed, asked) = cost(&node, log.close()).await;
        assert_eq!((closed.unwrap(), asked), (25, none()));
    });
}

/// As many entries as the files hold are not the same entries: a load drops the last one of the
/// time index, and an append may bring another in its place.
#[test]
fn given_a_batch_that_brings_no_index_entry_when_closed_then_the_time_index_ends_with_it() {
    let (world, node) = stopped(6, 20);
    let last_time = |node: &SimNode| {
        let files = files(node);
        let (_, content) = files
            .iter()
            .find(|(name, _)| name.ends_with(".timeindex"))
            .unwrap();
        let at = content.len() - 12;
        (
            content.len(),
            i64::from_be_bytes(content[at..at + 8].try_into().unwrap()),
        )
    };
    let mut seen = 0;
    for end in 21..=29 {
        let before = (last_time(&node), files(&node));
        let rt = node.restart();
        let index_grew = world.block_on(&rt, async {
            // Wide, so that several batches in a row bring no entry.
            let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
            let (log, _) = load(&rt, &data_dir, 4_000).await;
            let entries = || log.0.active().with_indexes(|index, _| index.len());
            let at_load = entries();
            produce(&log, end - 1..end).await;
            let grew = entries() > at_load;
            let (_, asked) = cost(&node, log.close()).await;
            let replaced = 2 + u64::from(grew);
            assert_eq!(asked["rename"], replaced, "{asked:?}");
            assert_eq!(
                asked["fsync"], 2,
                "the proof comes after what it proves: {asked:?}"
            );
            data_dir.mark_clean().await.unwrap();
            grew
        });
        node.kill();
        let (len, timestamp) = last_time(&node);
        assert_eq!(timestamp, 5_000 + (end - 1) * 10);
        seen += u64::from(!index_grew && len == before.0 .0);
    }
    assert!(seen > 0, "the counts were the same for once");
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        check(&log, 29).await;
    });
}

#[test]
fn given_a_log_that_was_touched_when_closed_then_what_changed_is_written_and_no_more() {
    let touched = |touch: fn(&Log)| {
        let (world, node) = stopped(7, 20);
        let rt = node.restart();
        let asked = world.block_on(&rt, async {
            let (data_dir, log, _) = open(&rt).await;
            touch(&log);
            let (closed, asked) = cost(&node, log.close()).await;
            assert_eq!(closed.unwrap(), 20);
            data_dir.mark_clean().await.unwrap();
            asked
        });
        node.kill();
        let rt = node.restart();
        world.block_on(&rt, async {
            let (_data_dir, log, _) = open(&rt).await;
            check(&log, 20).await;
            let latest = log.latest_leader_epoch();
            assert_eq!(cost(&node, log.close()).await.1, none());
            (asked, latest)
        })
    };
    let (asked, epoch) = touched(|log| log.assign_epoch(0, 20));
    assert_eq!(
        (asked, epoch),
        (none(), Some(0)),
        "it leads under it already"
    );
    let (asked, epoch) = touched(|log| log.assign_epoch(7, 20));
    // The temporary file is written, opened and synced.
    let replaced = [
        ("write", 1),
        ("open", 1),
        ("fdatasync", 1),
        ("rename", 1),
        ("fsync", 1),
    ];
    assert_eq!((asked, epoch), (BTreeMap::from(replaced), Some(7)));
}

#[test]
fn given_a_producer_that_expired_when_closed_then_the_next_start_does_not_know_it() {
    let world = World::new(8);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        for offset in 0..4 {
            log.append(&[idempotent(offset, offset)]).await.unwrap();
        }
        stop_cleanly(&data_dir, &log).await;
    });
    for (expire, left) in [(false, 4), (true, 0), (false, 0)] {
        node.kill();
        let rt = node.restart();
        world.block_on(&rt, async {
            let (data_dir, log, _) = open(&rt).await;
            if expire {
                assert_eq!(log.expire_producers(rt.wall_clock_ms() + 1_000, 1), 4);
            }
            assert_eq!(log.producers().len(), left);
            let (_, asked) = cost(&node, log.close()).await;
            assert_eq!(asked.get("rename"), expire.then_some(&1), "{asked:?}");
            data_dir.mark_clean().await.unwrap();
        });
    }
}

#[test]
fn given_files_that_a_clean_stop_did_not_leave_so_when_closed_then_they_are_written() {
    for lost in [
        ".snapshot",
        ".index",
        ".timeindex",
        "leader-epoch-checkpoint",
    ] {
        let (world, node) = stopped(9, 20);
        let before = files(&node);
        let (name, _) = before
            .iter()
            .find(|(name, _)| name.ends_with(lost))
            .unwrap();
        assert!(node.disk().remove_raw(format!("{DIR}/{name}")));
        let rt = node.restart();
        world.block_on(&rt, async {
            let (data_dir, log, _) = open(&rt).await;
            stop_cleanly(&data_dir, &log).await;
        });
        node.kill();
        assert_eq!(files(&node), before, "{lost}");
    }
}

/// What a clean start asks of the disk for one partition: no more than this, however large it is.
#[test]
fn given_a_clean_stop_when_opened_then_each_file_is_read_once() {
    for (seed, end) in [(11, 1), (12, 20), (13, 80)] {
        let (world, node) = stopped(seed, end);
        let rt = node.restart();
        world.block_on(&rt, async {
            let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
            let opened = cost(&node, load(&rt, &data_dir, 1_000)).await;
            let ((log, report), mut asked) = opened;
            // The end of the segment is read twice, and where it has index entries its first
            // batch; the simulator may give each in two pieces.
            let direct = 2 + u64::from(report.scanned_bytes < log.0.active().len());
            let reads = asked.remove("read").unwrap();
            assert!(reads >= SMALL_FILES + direct, "{reads} for {end} batches");
            assert!(
                reads <= SMALL_FILES + 2 * direct,
                "{reads} for {end} batches"
            );
            let others = [("list", 1), ("open", 1)];
            assert_eq!(asked, BTreeMap::from(others), "{end} batches");
            check(&log, end).await;
        });
    }
}

async fn load(rt: &Rt, data_dir: &DataDir, index_interval_bytes: u32) -> (Log, LoadReport) {
    let storage = Storage::new(rt.clone(), limits());
    let config = LogConfig {
        index_interval_bytes,
        ..config()
    };
    let mode = data_dir.load_mode("topic", 0);
    assert!(mode.clean);
    let opened = Log::open(&storage, rt.dir(DIR), config, mode).await;
    opened.unwrap()
}

async fn check_if_any(log: &Log, end: i64) {
    match end {
        0 => assert_eq!(log.end_offset(), 0),
        _ => check(log, end).await,
    }
}

/// Of a partition that was stopped cleanly, but for `partition.metadata`: the epochs, two indexes
/// and a snapshot.
const SMALL_FILES: u64 = 4;
