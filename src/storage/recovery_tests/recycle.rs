//! Expired segments that become new ones: crashes at every step, readers meanwhile.

use super::cases::{self, batch, stop_cleanly, DIR};
use crate::protocol::batch::{BatchBuilder, HEADER_BYTES};
use crate::runtime::sim::{PowerCut, SimNode, World};
use crate::runtime::{Queue, Rt, SyncSite};
use crate::storage::batch::BatchHeader;
use crate::storage::log_tests::{limits, stamped};
use crate::storage::{
    partition_dir, DataDir, Log, LogBatch, LogConfig, PartitionName, ReadError, Storage,
    StorageLimits,
};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

fn config() -> LogConfig {
    LogConfig {
        recycle_segments: true,
        file_delete_delay_ms: 0,
        ..cases::config()
    }
}

async fn open(rt: &Rt, limits: StorageLimits) -> (DataDir, Log) {
    let data_dir = DataDir::open(rt, "/data", 1, None).await.unwrap();
    let storage = Storage::new(rt.clone(), limits);
    let name = PartitionName::parse("topic-0").unwrap();
    if !data_dir.partitions().contains(&name) {
        let dir = partition_dir::create(rt, "/data", &name, Uuid::from_u128(7));
        let log = Log::create(&storage, dir.await.unwrap(), config()).await;
        return (data_dir, log.unwrap());
    }
    let mode = data_dir.load_mode("topic", 0);
    let log = Log::open(&storage, rt.dir(DIR), config(), mode).await;
    (data_dir, log.unwrap().0)
}

async fn record_log_start(data_dir: &DataDir, offset: i64) {
    let entries = [(("topic".to_owned(), 0), offset)].into();
    data_dir.write_log_starts(&entries).await.unwrap();
}

/// The head goes, up to the segment before the last.
async fn expire(data_dir: &DataDir, log: &Log) {
    let segments = log.0.state.borrow().segments.clone();
    let start = segments[segments.len() - 2].base_offset;
    log.settle_below(start).await.unwrap();
    record_log_start(data_dir, start).await;
    log.set_log_start(start);
    log.remove_head().await.unwrap();
}

fn recycled(node: &SimNode) -> u64 {
    // One for the file, one for its name.
    node.disk().sync_count(SyncSite::SegmentRecycle) / 2
}

#[test]
fn given_a_power_cut_at_any_step_of_recycling_when_it_loads_then_only_new_batches_are_there() {
    let modes = [
        PowerCut::Mixed,
        PowerCut::AllLost,
        PowerCut::AllKept,
        PowerCut::Sectors,
    ];
    let (mut cuts, mut with_recycled, mut unflushed_lost) = (0, 0, 0);
    for mode in modes {
        for cut_after in 1.. {
            let world = World::new(1_000 + cut_after);
            let node = world.node("a");
            let rt = node.rt();
            let (acked, written) = (Cell::new(0), Cell::new(0));
            let ended = world.block_on_until_crash(&rt, async {
                let (data_dir, log) = open(&rt, limits()).await;
                cases::produce(&log, 0..100).await;
                record_log_start(&data_dir, 0).await;
                acked.set(100);
                written.set(100);
                node.disk().cut_power_after_ops(cut_after * 3, mode);
                expire(&data_dir, &log).await;
                rt.sleep(Duration::from_millis(100)).await;
                for offset in 100..180 {
                    written.set(offset + 1);
                    log.append(&[batch(offset)]).await.unwrap();
                    if offset % 3 == 0 {
                        acked.set(log.flush().await.unwrap());
                    }
                }
            });
            if ended.is_some() {
                assert!(cut_after > 30, "the steps were cut one by one");
                assert!(recycled(&node) > 0, "nothing was recycled");
                break;
            }
            cuts += 1;
            with_recycled += u64::from(recycled(&node) > 0);
            let rt = node.restart();
            world.block_on(&rt, async {
                let (data_dir, log) = open(&rt, limits()).await;
                let (start, end) = (log.log_start_offset(), log.end_offset());
                let possible = acked.get()..=written.get();
                assert!(possible.contains(&end), "{end} of {possible:?}");
                unflushed_lost += u64::from(end < written.get());
                for offset in start..end {
                    let read = log.read(offset, end, 1, true).await.unwrap();
                    assert_eq!(read.slices.concat(), stamped(&batch(offset)));
                }
                let deleted = node.disk().list_raw(DIR).into_iter();
                let deleted =
                    deleted.filter(|(p, _)| p.extension().is_some_and(|e| e == "deleted"));
                assert_eq!(deleted.count(), 0, "a load removes what was kept");
                cases::produce(&log, end..end + 40).await;
                stop_cleanly(&data_dir, &log).await;
            });
        }
    }
    println!("{cuts} cuts, {with_recycled} with a recycled file, {unflushed_lost} lost something unflushed");
    assert!(cuts > 100 && with_recycled > 20 && unflushed_lost > 10);
}

/// Readers of the old segments, without any cache, while their files become new ones.
#[test]
fn given_readers_of_a_segment_when_it_is_recycled_then_each_reads_what_it_asked_for() {
    let (mut reads, mut refused, mut files) = (0, 0, 0);
    for seed in 0..60 {
        let world = World::new(2_000 + seed);
        let node = world.node("a");
        let rt = node.rt();
        let counts = Rc::new(Cell::new((0, 0)));
        world.block_on(&rt, async {
            let cold = StorageLimits {
                cache_bytes: 0,
                ..limits()
            };
            let (data_dir, log) = open(&rt, cold).await;
            cases::produce(&log, 0..100).await;
            log.checkpoint().await.unwrap();
            for reader in 0..8 {
                let (rt, log, counts) = (rt.clone(), log.clone(), counts.clone());
                rt.clone().spawn(Queue::Latency, async move {
                    for n in 0..60 {
                        let end = log.end_offset();
                        let offset = (n * 37 + reader * 11) % end;
                        let (mut done, mut out) = counts.get();
                        match log.read(offset, end, 1, true).await {
                            Ok(read) => {
                                assert_eq!(read.slices.concat(), stamped(&batch(offset)));
                                done += 1;
                            }
                            Err(ReadError::OutOfRange { .. }) => out += 1,
                            Err(error) => panic!("seed {seed}: {error}"),
                        }
                        counts.set((done.max(counts.get().0), out.max(counts.get().1)));
                        rt.sleep(Duration::from_micros(rt.random_u64() % 200)).await;
                    }
                });
            }
            for round in 1..=4 {
                expire(&data_dir, &log).await;
                rt.sleep(Duration::from_millis(rt.random_u64() % 30)).await;
                cases::produce(&log, round * 100..(round + 1) * 100).await;
                log.checkpoint().await.unwrap();
            }
        });
        let (done, out) = counts.get();
        reads += done;
        refused += out;
        files += recycled(&node);
    }
    println!("{reads} reads, {refused} out of range, {files} files recycled");
    assert!(reads > 100 && refused > 100 && files > 60);
}

/// A log that was retired for a rebuild may have readers still.
#[test]
fn given_readers_of_a_retired_log_when_a_segment_expires_then_its_file_is_not_used() {
    let world = World::new(3_000);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, old) = open(&rt, limits()).await;
        cases::produce(&old, 0..100).await;
        record_log_start(&data_dir, 0).await;
        old.retire().await.unwrap();
        let mode = data_dir.load_mode("topic", 0);
        let storage = old.0.storage.clone();
        let opened = Log::open(&storage, rt.dir(DIR), config(), mode).await;
        let log = opened.unwrap().0;
        expire(&data_dir, &log).await;
        rt.sleep(Duration::from_millis(200)).await;
        assert_eq!(log.0.recycler.spares(), 0);
        drop(old);
        cases::produce(&log, 100..200).await;
        expire(&data_dir, &log).await;
        rt.sleep(Duration::from_millis(200)).await;
        assert!(log.0.recycler.spares() > 0);
        // Nor is one of a log that may be compacted from now on.
        log.set_config(LogConfig {
            compacted: true,
            ..config()
        });
        log.set_config(config());
        let before = node.disk().sync_count(SyncSite::SegmentRecycle);
        cases::produce(&log, 200..300).await;
        assert_eq!(node.disk().sync_count(SyncSite::SegmentRecycle), before);
    });
}

/// Why a file is overwritten before it is used again: of a write that is torn at a sector's
/// end inside a header, the load could not tell the old rest from a new one.
#[test]
fn an_old_batch_behind_the_first_bytes_of_a_new_header_is_a_valid_batch() {
    let (old, new) = (stamped(&batch(40)), stamped(&batch(90)));
    assert_eq!(old.len(), new.len());
    for torn in 0..HEADER_BYTES {
        let mixed = [&new[..torn], &old[torn..]].concat();
        let header = BatchHeader::parse(&mixed).unwrap();
        let taken = header.base_offset == 90 && BatchHeader::crc_matches(&mixed);
        assert_eq!(taken, (8..=17).contains(&torn), "{torn}");
    }
}

/// Batches that stand so that the end of a sector is within the first bytes of some headers,
/// outside of what their CRC covers.
fn torn_batch(offset: i64) -> LogBatch {
    let mut builder = BatchBuilder::new();
    builder.push(5_000, None, Some(&[offset as u8; TORN_VALUE_BYTES]));
    LogBatch {
        bytes: builder.build(),
        base_offset: offset,
        last_offset: offset,
        leader_epoch: 0,
        max_timestamp: 5_000,
        producer: None,
    }
}

/// A life that ends by a power cut while a recycled segment is written, with the syncs of
/// recycling turned into nothing if so told: how many there were, and what was given back that
/// nobody wrote, or not given back.
pub(super) fn life(seed: u64, disabled: Option<SyncSite>) -> (u64, Option<String>) {
    let world = World::new(seed);
    let node = world.node("a");
    if let Some(site) = disabled {
        node.disk().disable_sync(site);
    }
    let (acked, written) = (Cell::new(0), Cell::new(0));
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log) = open(&rt, limits()).await;
        let append = async |count: i64| {
            for _ in 0..count {
                let end = log.end_offset();
                log.append(&[torn_batch(end)]).await.unwrap();
                written.set(end + 1);
            }
        };
        assert_eq!(torn_batch(0).bytes.len(), 1_020);
        append(80).await;
        log.flush().await.unwrap();
        expire(&data_dir, &log).await;
        rt.sleep(Duration::from_millis(100)).await;
        let segments = log.segment_count();
        while log.segment_count() == segments {
            append(1).await;
            acked.set(log.flush().await.unwrap());
        }
        append(1 + (rt.random_u64() % 8) as i64).await;
        if rt.random_u64().is_multiple_of(4) {
            acked.set(log.flush().await.unwrap());
        }
    });
    let syncs = node.disk().sync_count(SyncSite::SegmentRecycle);
    node.crash_with(PowerCut::Sectors);
    let rt = node.restart();
    let breach = world.block_on(&rt, async {
        let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
        let storage = Storage::new(rt.clone(), limits());
        let mode = data_dir.load_mode("topic", 0);
        let opened = Log::open(&storage, rt.dir(DIR), config(), mode).await;
        let log = match opened {
            Ok((log, _)) => log,
            Err(error) => return Some(format!("it does not load: {error}")),
        };
        let (start, end) = (log.log_start_offset(), log.end_offset());
        if !(acked.get()..=written.get()).contains(&end) {
            return Some(format!("LEO is {end}, {} was acknowledged", acked.get()));
        }
        for offset in start..end {
            match log.read(offset, end, 1, true).await {
                Ok(read) if read.slices.concat() == stamped(&torn_batch(offset)) => {}
                Ok(_) => return Some(format!("nobody produced what is at {offset}")),
                Err(error) => return Some(error.to_string()),
            }
        }
        None
    });
    (syncs, breach)
}

#[test]
fn given_a_power_cut_in_a_recycled_segment_when_it_loads_then_nothing_old_is_in_it() {
    for seed in 0..60 {
        let (syncs, breach) = life(seed, None);
        assert!(syncs > 0, "seed {seed}: nothing was recycled");
        assert_eq!(breach, None, "seed {seed}");
    }
}

/// With it a batch has 1,020 bytes: the third begins 12 bytes before the end of a sector.
const TORN_VALUE_BYTES: usize = 950;
