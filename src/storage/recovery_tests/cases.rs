//! Faults that were reported against brokers of this kind (C1 to C6), on the storage
//! itself. The machine's files are changed behind its back, between two runs.

use crate::protocol::batch::BatchBuilder;
use crate::runtime::sim::{SimNode, World};
use crate::runtime::Rt;
use crate::storage::log_tests::{limits, stamped};
use crate::storage::{
    inspect, partition_dir, DataDir, DataDirError, LoadReport, Log, LogBatch, LogConfig,
    PartitionName, StartKind, Storage,
};
use std::path::Path;
use uuid::Uuid;

pub(super) const DIR: &str = "/data/topic-0";

pub(super) fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 30_000,
        index_interval_bytes: 1_000,
        ..LogConfig::default()
    }
}

pub(super) fn batch(offset: i64) -> LogBatch {
    let timestamp = 5_000 + offset * 10;
    let mut builder = BatchBuilder::new();
    let value = vec![offset as u8; 900];
    builder.push(timestamp, None, Some(&value));
    LogBatch {
        bytes: builder.build(),
        base_offset: offset,
        last_offset: offset,
        leader_epoch: 0,
        max_timestamp: timestamp,
        producer: None,
    }
}

pub(super) async fn open(rt: &Rt) -> (DataDir, Log, LoadReport) {
    let data_dir = DataDir::open(rt, "/data", 1, None).await.unwrap();
    let storage = Storage::new(rt.clone(), limits());
    let name = PartitionName::parse("topic-0").unwrap();
    if !data_dir.partitions().contains(&name) {
        // As the broker's first checkpoint: no log here has gaps.
        let none = Default::default();
        data_dir.write_cleaner_points(&none).await.unwrap();
        let dir = partition_dir::create(rt, "/data", &name, Uuid::from_u128(7));
        let log = Log::create(&storage, dir.await.unwrap(), config()).await;
        return (data_dir, log.unwrap(), LoadReport::default());
    }
    let mode = data_dir.load_mode("topic", 0);
    let (log, report) = Log::open(&storage, rt.dir(DIR), config(), mode)
        .await
        .unwrap();
    (data_dir, log, report)
}

pub(super) async fn produce(log: &Log, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        log.append(&[batch(offset)]).await.unwrap();
    }
    assert_eq!(log.flush().await.unwrap(), log.end_offset());
}

pub(super) async fn record_recovery_point(data_dir: &DataDir, point: i64) {
    let entries = [(("topic".to_owned(), 0), point)].into();
    data_dir.write_recovery_points(&entries).await.unwrap();
}

pub(super) async fn stop_cleanly(data_dir: &DataDir, log: &Log) {
    let point = log.close().await.unwrap();
    record_recovery_point(data_dir, point).await;
    data_dir.mark_clean().await.unwrap();
}

/// Every offset is there with its bytes, and found by its timestamp.
pub(super) async fn check(log: &Log, end: i64) {
    assert_eq!((log.end_offset(), log.flushed_offset()), (end, end));
    for offset in 0..end {
        let read = log.read(offset, end, 1, true).await.unwrap();
        assert_eq!(read.slices.concat(), stamped(&batch(offset)));
        let found = log.offset_for_timestamp(5_000 + offset * 10, end).await;
        assert_eq!(found.unwrap().unwrap().offset, offset);
    }
    let largest = log.offset_of_max_timestamp(end).await.unwrap().unwrap();
    assert_eq!(largest.offset, end - 1);
}

/// The last segment's path and the bytes of its whole batches.
fn active(node: &SimNode) -> (String, usize) {
    let disk = node.disk();
    let logs = disk.list_raw(DIR).into_iter().map(|(path, _)| path);
    let mut last = logs.filter(|p| p.extension().is_some_and(|e| e == "log"));
    let path = last.next_back().unwrap().display().to_string();
    let bytes = disk.read_raw(&path).unwrap();
    let mut len = 0;
    while bytes.get(len + 16) == Some(&2) {
        let length = i32::from_be_bytes(bytes[len + 8..len + 12].try_into().unwrap());
        len += 12 + length as usize;
    }
    (path, len)
}

/// Puts `bytes` at `at` of the last segment, and proves that they are there.
fn tear(node: &SimNode, at: usize, bytes: &[u8]) {
    let (path, _) = active(node);
    let mut content = node.disk().read_raw(&path).unwrap();
    content.resize(content.len().max(at + bytes.len()), 0);
    content[at..at + bytes.len()].copy_from_slice(bytes);
    node.disk().write_raw(&path, &content);
    let found = node.disk().read_raw(&path).unwrap();
    assert_eq!(found[at..at + bytes.len()], *bytes);
}

fn torn_tails() -> Vec<(&'static str, Vec<u8>)> {
    let next = stamped(&batch(100));
    vec![
        ("half a batch", next[..next.len() / 2].to_vec()),
        ("5 bytes", vec![0xAB; 5]),
        ("a bare header", next[..61].to_vec()),
        ("4 KiB of zeros", vec![0; 4096]),
        ("noise", (0..777u32).map(|i| (i * 31 + 7) as u8).collect()),
    ]
}

#[test]
fn c1_given_a_torn_tail_when_the_log_loads_then_the_tail_is_cut() {
    for (name, bytes) in torn_tails() {
        for at_file_end in [false, true] {
            let world = World::new(1);
            let node = world.node("a");
            let rt = node.rt();
            world.block_on(&rt, async {
                let (_data_dir, log, _) = open(&rt).await;
                produce(&log, 0..100).await;
            });
            node.kill();
            let (path, len) = active(&node);
            let size = node.disk().read_raw(&path).unwrap().len();
            tear(&node, if at_file_end { size } else { len }, &bytes);

            let rt = node.restart();
            world.block_on(&rt, async {
                let (_data_dir, log, report) = open(&rt).await;
                check(&log, 100).await;
                assert_eq!(node.disk().read_raw(&path).unwrap().len(), len, "{name}");
                if !at_file_end && name != "4 KiB of zeros" {
                    assert!(report.truncated_bytes >= bytes.len() as u64, "{name}");
                }
                produce(&log, 100..101).await;
            });
            node.crash();
            let rt = node.restart();
            world.block_on(&rt, async {
                let (_data_dir, log, _) = open(&rt).await;
                check(&log, 101).await;
            });
        }
    }
}

#[test]
fn c2_given_a_kill_while_loading_when_it_starts_again_then_it_is_no_clean_stop() {
    for life_us in [300, 3_000, 8_000, 15_000] {
        let world = World::new(2);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let (data_dir, log, _) = open(&rt).await;
            produce(&log, 0..100).await;
            stop_cleanly(&data_dir, &log).await;
        });
        node.kill();
        let rt = node.restart();
        let marker = Path::new("/data/.kafka_cleanshutdown");
        assert!(node.disk().read_raw(marker).is_some());
        let life = std::time::Duration::from_micros(life_us);
        world.block_on_for(&rt, life, open(&rt));
        node.crash();
        let interrupted = node.disk().read_raw(marker).is_none();
        let (_, len) = active(&node);
        tear(&node, len, &stamped(&batch(100))[..300]);

        let rt = node.restart();
        if interrupted {
            world.block_on(&rt, async {
                let (data_dir, log, _) = open(&rt).await;
                assert_eq!(data_dir.start_kind(), StartKind::Unclean);
                check(&log, 100).await;
            });
        }
        assert!(interrupted || life_us < 8_000, "no run got into the load");
    }
}

#[test]
fn c3_given_a_recovery_point_beyond_the_end_when_it_loads_then_the_tail_is_cut() {
    let world = World::new(3);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..80).await;
        let point = log.checkpoint().await.unwrap();
        record_recovery_point(&data_dir, point).await;
        produce(&log, 80..100).await;
    });
    node.kill();
    let path = "/data/recovery-point-offset-checkpoint";
    node.disk().write_raw(path, b"0\n1\ntopic 0 1100\n");
    for _ in 0..3 {
        let (_, len) = active(&node);
        tear(&node, len, &stamped(&batch(100))[..300]);
        let rt = node.restart();
        world.block_on(&rt, async {
            let (_data_dir, log, report) = open(&rt).await;
            assert!(report.truncated_bytes >= 300);
            check(&log, 100).await;
            assert!(log.recovery_point() <= 100);
        });
        node.kill();
    }
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        assert!(log.checkpoint().await.unwrap() <= 100);
    });
}

#[test]
fn c4_given_a_corrupt_index_when_it_loads_then_it_is_rebuilt() {
    type Damage = fn(Vec<u8>) -> Option<Vec<u8>>;
    let damages: [(&str, Damage); 6] = [
        ("zero-padded", |mut b| {
            b.resize(10 << 20, 0);
            Some(b)
        }),
        ("last entry 0xFF", |mut b| {
            let at = b.len().saturating_sub(8);
            b[at..].fill(0xFF);
            Some(b)
        }),
        ("3 bytes", |mut b| {
            b.truncate(3);
            Some(b)
        }),
        ("empty", |_| Some(Vec::new())),
        ("zeros", |b| Some(vec![0; b.len()])),
        ("deleted", |_| None),
    ];
    for (name, damage) in damages {
        for extension in ["index", "timeindex"] {
            for clean in [false, true] {
                let world = World::new(4);
                let node = world.node("a");
                let rt = node.rt();
                world.block_on(&rt, async {
                    let (data_dir, log, _) = open(&rt).await;
                    produce(&log, 0..100).await;
                    let point = log.checkpoint().await.unwrap();
                    record_recovery_point(&data_dir, point).await;
                    assert!(log.segment_count() > 2);
                    if clean {
                        stop_cleanly(&data_dir, &log).await;
                    }
                });
                node.kill();
                let disk = node.disk();
                let mut damaged = 0;
                for (path, len) in disk.list_raw(DIR) {
                    if len > 0 && path.extension().is_some_and(|e| e == extension) {
                        damaged += 1;
                        match damage(disk.read_raw(&path).unwrap()) {
                            Some(bytes) => disk.write_raw(&path, &bytes),
                            None => assert!(disk.remove_raw(&path)),
                        }
                    }
                }
                assert!(damaged > 2, "sealed segments and the active one");
                let rt = node.restart();
                world.block_on(&rt, async {
                    println!("{name} {extension} clean: {clean}");
                    let (_data_dir, log, _) = open(&rt).await;
                    check(&log, 100).await;
                    produce(&log, 100..140).await;
                    check(&log, 140).await;
                });
            }
        }
    }
}

#[test]
fn c5_given_an_interrupted_swap_when_it_loads_then_the_swap_wins_unless_a_lower_cleaned_stands() {
    for with_cleaned in [false, true] {
        let world = World::new(5);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let (data_dir, log, _) = open(&rt).await;
            produce(&log, 0..100).await;
            stop_cleanly(&data_dir, &log).await;
        });
        node.kill();
        let disk = node.disk();
        let bases: Vec<i64> = bases(&node);
        let file = |base: i64, suffix: &str| format!("{DIR}/{base:020}.{suffix}");
        let mut merged = disk.read_raw(file(bases[0], "log")).unwrap();
        merged.extend(disk.read_raw(file(bases[1], "log")).unwrap());
        disk.write_raw(file(bases[0], "log.swap"), &merged);
        disk.write_raw(file(bases[1], "log.deleted"), b"stray");
        if with_cleaned {
            disk.write_raw(file(bases[0], "log.cleaned"), &merged[..100]);
        }
        let rt = node.restart();
        world.block_on(&rt, async {
            let (_data_dir, log, _) = open(&rt).await;
            check(&log, 100).await;
            let expected = bases.len() - usize::from(!with_cleaned);
            assert_eq!(log.segment_count(), expected);
        });
        let left = disk.list_raw(DIR);
        let strays = ["swap", "deleted", "cleaned"];
        let is_stray = |p: &Path| {
            p.extension()
                .is_some_and(|e| strays.contains(&e.to_str().unwrap()))
        };
        assert!(left.iter().all(|(path, _)| !is_stray(path)), "{left:?}");
    }
}

pub(super) fn bases(node: &SimNode) -> Vec<i64> {
    let files = node.disk().list_raw(DIR).into_iter().map(|(path, _)| path);
    files
        .filter(|p| p.extension().is_some_and(|e| e == "log"))
        .map(|p| p.file_stem().unwrap().to_str().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn c6_given_a_bad_producer_snapshot_when_it_loads_then_it_starts() {
    let world = World::new(6);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..100).await;
        let point = log.checkpoint().await.unwrap();
        record_recovery_point(&data_dir, point).await;
    });
    node.kill();
    let files = node.disk().list_raw(DIR);
    let mut snapshots = files
        .iter()
        .filter(|(p, _)| p.extension().is_some_and(|e| e == "snapshot"));
    let (newest, len) = snapshots.next_back().unwrap();
    node.disk().write_raw(newest, &vec![0; *len as usize]);
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, report) = open(&rt).await;
        check(&log, 100).await;
        assert!(
            report.recovered_from < 100,
            "the snapshot proves nothing now"
        );
        produce(&log, 100..101).await;
    });
}

#[test]
fn given_damage_below_the_recovery_point_when_it_loads_then_nothing_is_cut() {
    let world = World::new(7);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..100).await;
        let point = log.checkpoint().await.unwrap();
        record_recovery_point(&data_dir, point).await;
    });
    node.kill();
    let (path, len) = active(&node);
    node.disk().corrupt(&path, len as u64 - 10, &[0xAA; 5]);
    let before = node.disk().read_raw(&path);
    let rt = node.restart();
    world.block_on(&rt, async {
        let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
        let storage = Storage::new(rt.clone(), limits());
        let mode = data_dir.load_mode("topic", 0);
        let error = Log::open(&storage, rt.dir(DIR), config(), mode).await;
        let error = error.err().unwrap().to_string();
        assert!(error.contains("is damaged"), "{error}");
    });
    assert_eq!(node.disk().read_raw(&path), before);
}

#[test]
fn given_a_log_start_beyond_the_end_when_it_loads_then_it_starts_over_there() {
    let world = World::new(8);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        produce(&log, 0..100).await;
    });
    node.kill();
    let path = "/data/log-start-offset-checkpoint";
    node.disk().write_raw(path, b"0\n1\ntopic 0 500\n");
    for _ in 0..2 {
        let rt = node.restart();
        world.block_on(&rt, async {
            let (_data_dir, log, _) = open(&rt).await;
            assert_eq!((log.log_start_offset(), log.end_offset()), (500, 500));
        });
        node.crash();
    }
    assert_eq!(bases(&node), [500]);
}

#[test]
fn a_data_directory_is_refused_with_a_sentence_to_whom_it_does_not_belong() {
    let world = World::new(9);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let first = DataDir::open(&rt, "/data", 1, None).await.unwrap();
        assert_eq!(first.start_kind(), StartKind::Fresh);
        let second = DataDir::open(&rt, "/data", 1, None).await;
        assert!(matches!(second, Err(DataDirError::InUse { .. })));
        let cluster = first.meta().cluster_id;
        drop(first);
        let again = DataDir::open(&rt, "/data", 1, Some(cluster)).await.unwrap();
        assert_eq!(again.start_kind(), StartKind::Unclean);
        drop(again);
        let other = DataDir::open(&rt, "/data", 2, None).await;
        let other = other.err().unwrap().to_string();
        assert!(
            other.contains("node.id 1") && other.contains("/data"),
            "{other}"
        );
        let other = DataDir::open(&rt, "/data", 1, Some(Uuid::from_u128(1))).await;
        assert!(matches!(other, Err(DataDirError::OtherCluster { .. })));
    });
}

#[test]
fn a_removed_partition_stays_removed_after_a_power_cut() {
    // With the sync that makes it so, and without it in some seed.
    let comes_back = |seed: u64, disabled: bool| {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        let name = PartitionName::parse("topic-0").unwrap();
        world.block_on(&rt, async {
            let (_data_dir, log, _) = open(&rt).await;
            produce(&log, 0..3).await;
            log.abandon().await;
            if disabled {
                node.disk()
                    .disable_sync(crate::runtime::SyncSite::PartitionRemove);
            }
            partition_dir::begin_delete(&rt, "/data", &name)
                .await
                .unwrap();
        });
        node.crash();
        let rt = node.restart();
        world.block_on(&rt, async {
            let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
            let renamed = rt.dir("/data").list().await.unwrap();
            assert!(renamed.iter().all(|e| !e.name.ends_with("-delete")));
            data_dir.partitions().contains(&name)
        })
    };
    assert!((0..30).all(|seed| !comes_back(seed, false)));
    assert!((0..30).any(|seed| comes_back(seed, true)));
}

#[test]
fn verification_finds_nothing_in_a_good_directory_and_names_what_is_damaged() {
    let world = World::new(10);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..100).await;
        stop_cleanly(&data_dir, &log).await;
    });
    let verify = |path: &'static str| {
        let report = world.block_on(&rt, inspect::verify_dir(&rt, Path::new(path)));
        report.unwrap()
    };
    let good = verify("/data");
    assert_eq!(good.problems, []);
    assert_eq!((good.partitions, good.batches, good.records), (1, 100, 100));
    assert_eq!(verify(DIR), good);

    let first = format!("{DIR}/{:020}.log", 0);
    let mut dumped = Vec::new();
    let dump = inspect::dump_segment(&rt, Path::new(&first), |batch| dumped.push(batch));
    let summary = world.block_on(&rt, dump).unwrap();
    assert_eq!(summary.batches, dumped.len() as u64);
    assert_eq!((dumped[3].base_offset, dumped[3].crc_valid), (3, true));

    node.disk()
        .corrupt(&first, dumped[5].position + 100, &[1, 2, 3]);
    let index = format!("{DIR}/{:020}.index", bases(&node)[1]);
    node.disk().corrupt(&index, 7, &[1]);
    let problems = verify("/data").problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!(problems[0].position, Some(dumped[5].position));
    assert_eq!(problems[1].file, Path::new(&index));
}

#[test]
fn given_batches_larger_than_a_read_when_it_loads_then_each_is_checked_whole() {
    let world = World::new(11);
    let node = world.node("a");
    let rt = node.rt();
    let large = |offset: i64| {
        let mut builder = BatchBuilder::new();
        let value = vec![offset as u8; 1_000_000 + offset as usize * 700_000];
        builder.push(5_000 + offset, None, Some(&value));
        LogBatch {
            bytes: builder.build(),
            ..batch(offset)
        }
    };
    let large_config = LogConfig::default();
    let create = async |rt: &Rt| {
        let storage = Storage::new(rt.clone(), limits());
        let log = Log::create(&storage, rt.dir(DIR), large_config).await;
        log.unwrap()
    };
    let load = async |rt: &Rt| {
        let storage = Storage::new(rt.clone(), limits());
        let mode = Default::default();
        let opened = Log::open(&storage, rt.dir(DIR), large_config, mode).await;
        opened.unwrap()
    };
    world.block_on(&rt, async {
        let log = create(&rt).await;
        for offset in 0..5 {
            log.append(&[large(offset)]).await.unwrap();
        }
        log.flush().await.unwrap();
    });
    node.kill();
    let four: u64 = (0..4).map(|o| large(o).bytes.len() as u64).sum();
    let last = large(4).bytes.len() as u64;
    let (path, len) = active(&node);
    assert_eq!(len as u64, four + last);
    node.disk().corrupt(&path, four + last - 1, &[0xEE]);

    let rt = node.restart();
    world.block_on(&rt, async {
        let (log, report) = load(&rt).await;
        assert_eq!((log.end_offset(), report.scanned_bytes), (4, four));
        assert!(report.truncated_bytes >= last);
        assert_eq!(log.recovery_point(), 4, "so much is not read twice");
        let read = log.read(3, 4, 1, true).await.unwrap();
        assert_eq!(read.slices.concat(), stamped(&large(3)));
    });
}
