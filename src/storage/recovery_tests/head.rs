//! The head of a log that goes: crashes at every step, what is kept, and what proves
//! the age of a segment.

use super::cases::{bases, batch, config, open, produce, record_recovery_point, stop_cleanly, DIR};
use crate::protocol::batch::BatchBuilder;
use crate::runtime::sim::{PowerCut, SimNode, World};
use crate::runtime::Rt;
use crate::storage::log_tests::{create, limits, stamped};
use crate::storage::{DataDir, Log, LogBatch, LogConfig, ReadError, RetentionRules, Storage};
use std::cell::Cell;
use std::time::Duration;

const LOG_START: i64 = 100;
const END: i64 = 150;

async fn record_log_start(data_dir: &DataDir, offset: i64) {
    let entries = [(("topic".to_owned(), 0), offset)].into();
    data_dir.write_log_starts(&entries).await.unwrap();
}

/// Every offset from the log start on is there with its bytes.
async fn check_from(log: &Log, start: i64) {
    assert_eq!((log.log_start_offset(), log.end_offset()), (start, END));
    for offset in start..END {
        let read = log.read(offset, END, 1, true).await.unwrap();
        assert_eq!(read.slices.concat(), stamped(&batch(offset)));
    }
    if start > 0 {
        assert!(log.read(start - 1, END, 1, true).await.is_err());
    }
    let found = log.offset_for_timestamp(0, END).await.unwrap().unwrap();
    assert_eq!(found.offset, start);
}

fn by_age(retention_ms: i64, now_ms: i64) -> RetentionRules {
    RetentionRules {
        retention_ms,
        retention_bytes: -1,
        bound: i64::MAX,
        now_ms,
    }
}

/// The numbers of the segment files by their extension.
fn count_of(node: &SimNode, extension: &str) -> usize {
    let files = node.disk().list_raw(DIR).into_iter();
    files
        .filter(|(path, _)| path.extension().is_some_and(|e| e == extension))
        .count()
}

#[test]
fn given_a_power_cut_at_any_step_of_a_removal_when_it_loads_then_all_is_explained() {
    let modes = [
        PowerCut::Mixed,
        PowerCut::AllLost,
        PowerCut::AllKept,
        PowerCut::Sectors,
    ];
    let (mut before, mut acknowledged, mut half_removed) = (0, 0, 0);
    for mode in modes {
        for cut_after in 1.. {
            let world = World::new(cut_after);
            let node = world.node("a");
            let rt = node.rt();
            let recorded = Cell::new(false);
            let ended = world.block_on_until_crash(&rt, async {
                let (data_dir, log, _) = open(&rt).await;
                produce(&log, 0..END).await;
                let point = log.checkpoint().await.unwrap();
                record_recovery_point(&data_dir, point).await;
                record_log_start(&data_dir, 0).await;
                node.disk().cut_power_after_ops(cut_after, mode);
                record_log_start(&data_dir, LOG_START).await;
                recorded.set(true);
                log.set_log_start(LOG_START);
                let removed = log.remove_head().await.unwrap();
                assert_eq!(removed.segments, 3);
                rt.sleep(Duration::from_secs(70)).await;
            });
            if ended.is_some() {
                assert!(cut_after > 12, "the steps were cut one by one");
                break;
            }
            let left = bases(&node).len();
            half_removed += usize::from((3..5).contains(&left));
            for _ in 0..2 {
                let rt = node.restart();
                world.block_on(&rt, async {
                    let (data_dir, log, _) = open(&rt).await;
                    let start = data_dir.log_start("topic", 0).unwrap();
                    match recorded.get() {
                        true => assert_eq!(start, LOG_START),
                        false => assert!(start == 0 || start == LOG_START),
                    }
                    check_from(&log, start).await;
                    before += usize::from(start == 0);
                    acknowledged += usize::from(recorded.get());
                });
                if recorded.get() {
                    assert_eq!(bases(&node).len(), 2, "what lies below the start is gone");
                }
                node.crash();
            }
        }
    }
    let seen = (before, acknowledged, half_removed);
    assert!(
        before > 0 && acknowledged > 0 && half_removed > 0,
        "{seen:?}"
    );
}

#[test]
fn given_a_missing_first_segment_when_it_loads_then_the_recorded_log_start_decides() {
    for clean in [false, true] {
        let world = World::new(31);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let (data_dir, log, _) = open(&rt).await;
            produce(&log, 0..END).await;
            record_log_start(&data_dir, 10).await;
            match clean {
                true => stop_cleanly(&data_dir, &log).await,
                false => drop(log.checkpoint().await.unwrap()),
            }
        });
        node.kill();
        let second = bases(&node)[1];
        assert!(node.disk().remove_raw(format!("{DIR}/{:020}.log", 0)));
        let rt = node.restart();
        world.block_on(&rt, async {
            let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
            let storage = Storage::new(rt.clone(), limits());
            let mode = data_dir.load_mode("topic", 0);
            let error = Log::open(&storage, rt.dir(DIR), config(), mode).await;
            let error = error.err().expect("damage").to_string();
            let missing = format!("offsets 10 to {} are missing", second - 1);
            assert!(error.contains(&missing), "{error}");
        });
        // A directory of Apache Kafka's has no record of a log start at a segment's start.
        let path = "/data/log-start-offset-checkpoint";
        node.disk().write_raw(path, b"0\n0\n");
        node.kill();
        let rt = node.restart();
        world.block_on(&rt, async {
            let (_data_dir, log, _) = open(&rt).await;
            check_from(&log, second).await;
        });
    }
}

#[test]
fn given_a_removal_when_the_delay_is_over_then_the_files_are_gone_and_readers_went_on() {
    let world = World::new(32);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        produce(&log, 0..END).await;
        log.checkpoint().await.unwrap();
        let before = log.size_bytes();
        let snapshots = count_of(&node, "snapshot");
        // One that has its file, and one that only has its segment.
        let holder = log.0.segment_for(50);
        let file = log.0.open_file(&holder).await.unwrap();
        let late = log.0.segment_for(0);
        late.close();
        log.set_log_start(LOG_START);
        let removed = log.remove_head().await.unwrap();
        assert_eq!(removed.bytes, before - log.size_bytes());
        assert_eq!((removed.segments, log.segment_count()), (3, 2));
        assert_eq!((count_of(&node, "log"), count_of(&node, "deleted")), (2, 9));
        assert!(count_of(&node, "snapshot") < snapshots);
        assert_eq!(file.read_at(0, 61).await.unwrap().len(), 61);
        let error = log.0.open_file(&late).await.err().expect("it is gone");
        assert!(matches!(error, ReadError::OutOfRange { .. }), "{error}");
        assert_eq!(log.remove_head().await.unwrap().segments, 0);
        rt.sleep(Duration::from_secs(59)).await;
        assert_eq!(count_of(&node, "deleted"), 9);
        rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(count_of(&node, "deleted"), 0);
        check_from(&log, LOG_START).await;
    });
    node.kill();
    let rt = node.restart();
    world.block_on(&rt, async {
        // Not recorded, but the segments are gone: as in a directory of Kafka's.
        let (_data_dir, log, _) = open(&rt).await;
        assert_eq!(log.log_start_offset(), bases(&node)[0]);
    });
}

#[test]
fn given_a_rename_that_fails_when_it_is_tried_again_then_all_goes() {
    let world = World::new(33);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        produce(&log, 0..END).await;
        log.set_log_start(LOG_START);
        let second = format!("{:020}.timeindex", bases(&node)[1]);
        // Sealed first: afterwards only the removal renames.
        log.checkpoint().await.unwrap();
        node.disk().fail_ops("rename", &second, EACCES);
        assert!(log.remove_head().await.is_err());
        assert!(node.disk().faults_fired() > 0);
        assert_eq!(log.segment_count(), 4, "the first one is gone");
        node.disk().clear_faults();
        assert_eq!(log.remove_head().await.unwrap().segments, 2);
        check_from(&log, LOG_START).await;
    });
}

/// The age of a segment comes from what was held against its batches, never from an
/// index as it stands.
#[test]
fn given_a_time_index_of_zeros_after_a_restart_then_nothing_young_is_expired() {
    let world = World::new(34);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..END).await;
        stop_cleanly(&data_dir, &log).await;
    });
    node.kill();
    let all = bases(&node);
    for base in &all {
        let path = format!("{DIR}/{base:020}.timeindex");
        let len = node.disk().read_raw(&path).unwrap().len();
        node.disk().write_raw(&path, &vec![0; len]);
    }
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        // The last record of the second segment is as old as may be.
        let oldest = 5_000 + (all[2] - 1) * 10;
        let expired = log.expired_up_to(by_age(1_000, oldest + 1_000)).await;
        assert_eq!(expired.unwrap(), all[1]);
        let expired = log.expired_up_to(by_age(1_000, oldest + 1_001)).await;
        assert_eq!(expired.unwrap(), all[2]);
        assert_eq!(log.log_start_offset(), 0, "nothing has moved");
    });
}

#[test]
fn given_no_timestamps_then_the_time_of_the_files_change_counts() {
    let world = World::new(35);
    let node = world.node("a");
    let rt = node.rt();
    let without = |offset: i64| {
        let mut builder = BatchBuilder::new();
        builder.push(-1, None, Some(&[7; 900]));
        LogBatch {
            bytes: builder.build(),
            max_timestamp: -1,
            ..batch(offset)
        }
    };
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        for offset in 0..100 {
            log.append(&[without(offset)]).await.unwrap();
        }
        log.checkpoint().await.unwrap();
        let second = bases(&node)[1];
        let changed = rt.dir(DIR).list().await.unwrap();
        let first = changed.iter().find(|e| e.name.ends_with("00.log")).unwrap();
        let hour = 3_600_000;
        let at = |ms: i64| log.expired_up_to(by_age(hour, first.modified_ms + ms));
        assert_eq!(at(hour).await.unwrap(), 0);
        assert!(at(hour + 1).await.unwrap() >= second);
    });
}

#[test]
fn given_a_wholly_expired_log_then_it_is_rolled_and_goes_on_at_its_end() {
    let world = World::new(36);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..END).await;
        let all = by_age(0, i64::MAX / 2);
        let bounded = RetentionRules { bound: 149, ..all };
        let active = *bases(&node).last().unwrap();
        assert_eq!(log.expired_up_to(bounded).await.unwrap(), active);
        assert_eq!(log.expired_up_to(all).await.unwrap(), END);
        record_log_start(&data_dir, END).await;
        log.set_log_start(END);
        assert_eq!(log.remove_head().await.unwrap().segments, 5);
        assert_eq!((log.segment_count(), log.size_bytes()), (1, 0));
        assert_eq!(
            log.expired_up_to(all).await.unwrap(),
            END,
            "an empty one stays"
        );
        assert_eq!(bases(&node), [END]);
        assert_eq!(log.offset_of_max_timestamp(END).await.unwrap(), None);
        log.append(&[batch(END)]).await.unwrap();
        assert_eq!(log.flush().await.unwrap(), END + 1);
        assert_eq!(log.log_start_offset(), END);
    });
    node.crash();
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        assert_eq!((log.log_start_offset(), log.end_offset()), (END, END + 1));
    });
}

/// The record with a batch's largest timestamp may lie below the log start.
#[test]
fn given_a_log_start_inside_a_batch_then_timestamps_are_found_from_there_on() {
    let world = World::new(37);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        for (base, times) in [(0, [500, 900, 700]), (3, [100, 600, 200])] {
            let mut builder = BatchBuilder::new();
            for time in times {
                builder.push(time, None, Some(b"value"));
            }
            let one = LogBatch {
                bytes: builder.build(),
                base_offset: base,
                last_offset: base + 2,
                max_timestamp: *times.iter().max().unwrap(),
                ..batch(0)
            };
            log.append(&[one]).await.unwrap();
        }
        let largest = async || {
            let found = log.offset_of_max_timestamp(6).await.unwrap().unwrap();
            (found.offset, found.timestamp)
        };
        let first_at = async |time: i64| {
            let found = log.offset_for_timestamp(time, 6).await.unwrap();
            found.map(|found| found.offset)
        };
        assert_eq!(largest().await, (1, 900));
        log.set_log_start(2);
        assert_eq!((largest().await, first_at(0).await), ((2, 700), Some(2)));
        assert_eq!(first_at(701).await, None);
        log.set_log_start(3);
        assert_eq!((largest().await, first_at(150).await), ((4, 600), Some(4)));
        let whole = log.read(3, 6, 1, true).await.unwrap();
        assert_eq!(whole.next_offset, 6);
    });
}

#[test]
fn given_a_jitter_then_segments_roll_earlier_each_at_its_own_age_and_never_later() {
    let mut ages = Vec::new();
    for seed in 0..20 {
        let world = World::new(seed);
        let rt = world.node("a").rt();
        let settings = LogConfig {
            segment_ms: 10_000,
            segment_jitter_ms: 8_000,
            ..config()
        };
        ages.push(world.block_on(&rt, first_roll(&rt, settings)));
        let steady = LogConfig {
            segment_jitter_ms: 0,
            ..settings
        };
        assert_eq!(world.block_on(&rt, first_roll(&rt, steady)), 10_500);
    }
    assert!(
        ages.iter().all(|age| (2_000..=10_500).contains(age)),
        "{ages:?}"
    );
    ages.sort_unstable();
    ages.dedup();
    assert!(ages.len() > 5, "{ages:?}");
}

/// The timestamp, from the first batch's on, at which a log rolls.
async fn first_roll(rt: &Rt, settings: LogConfig) -> i64 {
    let name = format!("/data/jitter-{}", settings.segment_jitter_ms);
    let log = create(rt, name, limits(), settings).await;
    for n in 0.. {
        let one = LogBatch {
            max_timestamp: n * 500,
            ..batch(n)
        };
        log.append(&[one]).await.unwrap();
        if log.segment_count() > 1 {
            return n * 500;
        }
    }
    unreachable!("it rolls")
}

/// A failure that says nothing against the device.
const EACCES: i32 = 13;
