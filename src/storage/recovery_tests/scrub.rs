//! Damage at rest: what re-reading finds, what a checked read refuses, where a repair cuts.

use super::cases::{self, bases, batch, check, open, produce, stop_cleanly, DIR};
use crate::protocol::batch::Batches;
use crate::runtime::sim::{SimNode, World};
use crate::storage::log_tests::{limits, stamped};
use crate::storage::repair::{RepairDir, RepairError};
use crate::storage::{
    DataDir, Log, PartitionName, ReadCheck, ReadError, Scrubbed, Storage, StorageLimits, Throttle,
};
use std::path::{Path, PathBuf};

const END: i64 = 150;

fn file(base: i64, extension: &str) -> String {
    format!("{DIR}/{base:020}.{extension}")
}

/// The length of every batch of [`produce`].
fn batch_bytes() -> u64 {
    batch(0).bytes.len() as u64
}

/// Turns a bit in the content of the batch at `offset`, in the segment at `base`.
fn flip(node: &SimNode, base: i64, offset: i64) -> u64 {
    let position = (offset - base) as u64 * batch_bytes();
    let path = file(base, "log");
    let content = node.disk().read_raw(&path).unwrap();
    let at = position + 300;
    node.disk().corrupt(&path, at, &[content[at as usize] ^ 4]);
    assert_ne!(node.disk().read_raw(&path).unwrap(), content);
    position
}

/// A clean stop after [`END`] batches; the bases of the segments.
fn stopped(world: &World, node: &SimNode) -> Vec<i64> {
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        produce(&log, 0..END).await;
        stop_cleanly(&data_dir, &log).await;
    });
    node.kill();
    bases(node)
}

async fn scrub_all(log: &Log, throttle: &Throttle) -> Result<Vec<Scrubbed>, ReadError> {
    let (mut all, mut from) = (Vec::new(), 0);
    while let Some(done) = log.scrub_next(from, throttle).await? {
        from = done.next;
        all.push(done);
    }
    Ok(all)
}

#[test]
fn given_damaged_indexes_when_scrubbed_then_they_are_as_they_were() {
    let world = World::new(4_000);
    let node = world.node("a");
    let bases = stopped(&world, &node);
    let (index, time_index) = (file(bases[1], "index"), file(bases[2], "timeindex"));
    let good = [&index, &time_index].map(|path| node.disk().read_raw(path).unwrap());
    // Plausible, and wrong: an entry in the middle points at another batch.
    node.disk().corrupt(&index, 8 + 7, &[good[0][15] ^ 1]);
    assert!(node.disk().remove_raw(&time_index));
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, _) = open(&rt).await;
        let throttle = Throttle::new(rt.clone(), 64 << 10);
        let before = rt.now();
        let done = scrub_all(&log, &throttle).await.unwrap();
        let bytes: u64 = done.iter().map(|d| d.bytes).sum();
        assert_eq!(done.len(), bases.len() - 1, "every sealed segment");
        assert!(done.iter().all(|d| d.whole && d.reread == 0));
        let took = rt.now().since(before).as_millis() as u64;
        assert!(
            took + 100 >= bytes * 1_000 / (64 << 10),
            "{took} ms for {bytes} bytes"
        );
        let rebuilt: Vec<usize> = (0..done.len())
            .filter(|i| done[*i].rebuilt.is_some())
            .collect();
        assert_eq!(rebuilt, [1, 2]);
        let again = scrub_all(&log, &throttle).await.unwrap();
        assert!(again.iter().all(|d| d.rebuilt.is_none()));
        check(&log, END).await;
    });
    let now = [&index, &time_index].map(|path| node.disk().read_raw(path).unwrap());
    assert_eq!(now, good);
}

#[test]
fn given_damage_in_a_sealed_segment_when_scrubbed_then_its_place_is_named() {
    for seed in 0..20 {
        let world = World::new(4_100 + seed);
        let node = world.node("a");
        let bases = stopped(&world, &node);
        let base = bases[world.random_below(bases.len() as u64 - 1) as usize];
        let offset = base + world.random_below(20) as i64;
        let position = flip(&node, base, offset);
        let rt = node.restart();
        world.block_on(&rt, async {
            let (_data_dir, log, _) = open(&rt).await;
            let throttle = Throttle::new(rt.clone(), 0);
            match scrub_all(&log, &throttle).await {
                Err(ReadError::Corrupt {
                    file, position: at, ..
                }) => {
                    assert!(file.ends_with(&format!("{base:020}.log")), "{file}");
                    assert_eq!(at, position);
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        });
    }
}

/// A head that goes, and a close, while a segment is read.
#[test]
fn given_a_segment_that_leaves_the_log_when_scrubbed_then_that_is_no_damage() {
    for seed in 0..30 {
        let world = World::new(4_200 + seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let (_data_dir, log, _) = open(&rt).await;
            produce(&log, 0..END).await;
            log.checkpoint().await.unwrap();
            let throttle = Throttle::new(rt.clone(), 1 << 20);
            let scrubbed = scrub_all(&log, &throttle);
            let expire = async {
                rt.sleep(std::time::Duration::from_micros(rt.random_u64() % 60_000))
                    .await;
                log.set_log_start(100);
                log.remove_head().await.unwrap();
                log.close().await.unwrap();
            };
            match futures_lite::future::zip(scrubbed, expire).await.0 {
                Ok(_) | Err(ReadError::Closed) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
        });
    }
}

#[test]
fn given_damage_when_read_with_checks_then_it_is_never_served() {
    let cold = StorageLimits {
        cache_bytes: 0,
        ..limits()
    };
    for check in [ReadCheck::Headers, ReadCheck::Crcs] {
        for cached in [false, true] {
            let world = World::new(4_300);
            let node = world.node("a");
            let base = stopped(&world, &node)[1];
            let offset = base + 7;
            flip(&node, base, offset);
            let rt = node.restart();
            world.block_on(&rt, async {
                let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
                let storage = Storage::new(rt.clone(), if cached { limits() } else { cold });
                let config = cases::config();
                let mode = data_dir.load_mode("topic", 0);
                let opened = Log::open(&storage, rt.dir(DIR), config, mode).await;
                let log = opened.unwrap().0;
                // From the segment's start in large reads: what is cached and read ahead
                // holds the damage too.
                let mut at = base;
                let refused = loop {
                    match log.read_checked(at, END, 5_000, true, check).await {
                        Ok(read) => {
                            let served = read.slices.concat();
                            for batch in Batches::new(served.into()) {
                                let batch = batch.unwrap();
                                let base = batch.header().base_offset;
                                let right = batch.validate_crc().is_ok();
                                assert_eq!(right, base != offset, "offset {base}");
                            }
                            at = read.next_offset;
                            if at >= END {
                                break None;
                            }
                        }
                        Err(error) => break Some((at, error)),
                    }
                };
                match (check, refused) {
                    (ReadCheck::Headers, None) => {}
                    (ReadCheck::Crcs, Some((at, ReadError::Corrupt { .. }))) => {
                        assert_eq!(at, offset)
                    }
                    other => panic!("{other:?}"),
                }
            });
        }
    }
}

/// All files of the machine's disk.
fn content(node: &SimNode) -> Vec<(PathBuf, Vec<u8>)> {
    let disk = node.disk();
    let mut all = Vec::new();
    for dir in ["/data", DIR] {
        for (path, _) in disk.list_raw(dir) {
            if let Some(bytes) = disk.read_raw(&path) {
                all.push((path, bytes));
            }
        }
    }
    all
}

#[test]
fn given_damage_when_repaired_with_power_cuts_on_the_way_then_the_log_ends_there() {
    let name = PartitionName::parse("topic-0").unwrap();
    let mut cuts = 0;
    for cut_after in 1.. {
        let world = World::new(4_400 + cut_after);
        let node = world.node("a");
        let bases = stopped(&world, &node);
        let offset = bases[1] + 7;
        let position = flip(&node, bases[1], offset);
        let rt = node.restart();
        let before = content(&node);
        world.block_on(&rt, async {
            let dir = RepairDir::lock(&rt, Path::new("/data")).await.unwrap();
            let plan = dir.look(&name).await.unwrap();
            let cut = plan.cut.unwrap();
            assert_eq!((cut.end_offset, cut.position), (offset, position));
            let gone = (END - offset) as u64;
            assert_eq!((cut.lost.records, cut.lost.batches), (gone, gone));
            assert_eq!(cut.lost.bytes, gone * batch_bytes());
            assert_eq!(cut.lost.last_offset, Some(END - 1));
            let times = (5_000 + offset * 10, 5_000 + (END - 1) * 10);
            assert_eq!(cut.lost.timestamps, Some(times));
            let busy = RepairDir::lock(&rt, Path::new("/data")).await;
            assert!(matches!(busy, Err(RepairError::InUse(_))));
        });
        assert_eq!(content(&node), before, "a look changes nothing");
        node.disk()
            .cut_power_after_ops(cut_after, crate::runtime::sim::PowerCut::Mixed);
        let ended = world.block_on_until_crash(&rt, async {
            let dir = RepairDir::lock(&rt, Path::new("/data")).await.unwrap();
            let plan = dir.look(&name).await.unwrap();
            dir.apply(&name, &plan).await.unwrap();
        });
        let rt = match ended {
            Some(()) => {
                // Which ends the order to cut.
                node.kill();
                node.restart()
            }
            None => {
                cuts += 1;
                let rt = node.restart();
                world.block_on(&rt, async {
                    let dir = RepairDir::lock(&rt, Path::new("/data")).await.unwrap();
                    let plan = dir.look(&name).await.unwrap();
                    dir.apply(&name, &plan).await.unwrap();
                });
                rt
            }
        };
        world.block_on(&rt, async {
            let dir = RepairDir::lock(&rt, Path::new("/data")).await.unwrap();
            let plan = dir.look(&name).await.unwrap();
            assert!(plan.is_empty(), "{plan:?}");
        });
        node.kill();
        let rt = node.restart();
        world.block_on(&rt, async {
            let (data_dir, log, _) = open(&rt).await;
            check(&log, offset).await;
            produce(&log, offset..END + 20).await;
            check(&log, END + 20).await;
            assert_eq!(
                log.read(offset, END, 1, true)
                    .await
                    .unwrap()
                    .slices
                    .concat(),
                stamped(&batch(offset))
            );
            stop_cleanly(&data_dir, &log).await;
        });
        if ended.is_some() {
            assert!(cuts > 10, "the steps were cut one by one");
            break;
        }
    }
}
