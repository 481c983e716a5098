//! The producers of a log after power cuts, kills, clean stops, truncations and damage to
//! their snapshots. What is expected is found from the batches alone, by other means than
//! the log's.

use super::cases::{config, open, record_recovery_point, stop_cleanly, DIR};
use crate::protocol::batch::BatchBuilder;
use crate::runtime::sim::{SimNode, World};
use crate::storage::log_tests::limits;
use crate::storage::{
    BatchProducer, DataDir, LoadError, Log, LogBatch, ProducerCheck, ProducerStates, Storage,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the producer of a new batch of `records` records is, behind `batches`: none, or
/// one of a few in sequence. `draw` gives a random number below its argument.
pub(super) fn next_producer(
    batches: &[LogBatch],
    records: u64,
    mut draw: impl FnMut(u64) -> u64,
) -> Option<BatchProducer> {
    if draw(4) == 0 {
        return None;
    }
    let id = draw(5) as i64;
    let of_id = batches.iter().rev().filter_map(|b| b.producer);
    let last = of_id.clone().find(|p| p.id == id);
    let (epoch, base_sequence) = match last {
        None => (0, [0, i32::MAX - 3][draw(2) as usize]),
        Some(last) if draw(20) == 0 => (last.epoch + 1, 0),
        Some(last) => (last.epoch, after(last.last_sequence, 1)),
    };
    Some(BatchProducer {
        id,
        epoch,
        base_sequence,
        last_sequence: after(base_sequence, records as i32 - 1),
        is_transactional: false,
    })
}

/// A batch's builder, as its producer begins it.
pub(super) fn builder(producer: &Option<BatchProducer>) -> BatchBuilder {
    match producer {
        None => BatchBuilder::new(),
        Some(p) => BatchBuilder::new().producer(p.id, p.epoch, p.base_sequence),
    }
}

/// Holds producers against the batches of a log: each one's last five under its newest
/// epoch are known, and nothing else is. Those of a producer below `forgotten_below` it need not be.
pub(super) fn check(
    producers: &ProducerStates,
    batches: &[LogBatch],
    forgotten_below: impl Fn(i64) -> i64,
) -> Result<(), String> {
    check_with_holes(producers, batches, forgotten_below, 0)
}

/// As [`check`], where any of the batches below `holes_below` need not be known, because the
/// producers were found from a log of which they had been compacted away.
pub(super) fn check_with_holes(
    producers: &ProducerStates,
    batches: &[LogBatch],
    forgotten_below: impl Fn(i64) -> i64,
    holes_below: i64,
) -> Result<(), String> {
    let mut expected: BTreeMap<i64, Vec<&LogBatch>> = BTreeMap::new();
    for batch in batches {
        let Some(producer) = batch.producer else {
            continue;
        };
        let known = expected.entry(producer.id).or_default();
        known.retain(|b| b.producer.is_some_and(|p| p.epoch == producer.epoch));
        known.push(batch);
    }
    if let Some(unheard) = producers.iter().find(|p| !expected.contains_key(&p.id)) {
        return Err(format!("{unheard:?} is known, but not in the log"));
    }
    for (id, batches) in expected {
        let known = producers.batches_of(id).map_or(0, |(_, known)| known.len());
        let mut last_five = &batches[batches.len().saturating_sub(5)..];
        while let [first, rest @ ..] = last_five {
            if last_five.len() <= known || first.last_offset >= forgotten_below(id) {
                break;
            }
            last_five = rest;
        }
        let wanted: Vec<(i64, i64)> = last_five
            .iter()
            .map(|b| (b.base_offset, b.last_offset))
            .collect();
        let known = producers.batches_of(id).map_or(&[][..], |(_, known)| known);
        let holes = last_five.partition_point(|b| b.last_offset < holes_below);
        let known = match holes {
            0 => known,
            // Others may be known in the place of those.
            _ => &known[known.len().saturating_sub(last_five.len() - holes)..],
        };
        last_five = &last_five[holes..];
        let wanted = &wanted[holes..];
        let found: Vec<(i64, i64)> = known
            .iter()
            .map(|b| (b.base_offset(), b.last_offset))
            .collect();
        if found != wanted {
            return Err(format!(
                "of producer {id} the batches {found:?} are known, {wanted:?} are in the log"
            ));
        }
        for batch in last_five {
            let producer = batch.producer.expect("it has one");
            match producers.check(&producer) {
                ProducerCheck::Duplicate(original)
                    if original.base_offset() == batch.base_offset
                        && original.timestamp == batch.max_timestamp => {}
                other => return Err(format!("{producer:?} sent again is {other:?}")),
            }
        }
        let Some(last) = last_five.last().and_then(|b| b.producer) else {
            continue;
        };
        let skipped = BatchProducer {
            base_sequence: after(last.last_sequence, 2),
            last_sequence: after(last.last_sequence, 2),
            ..last
        };
        if !matches!(producers.check(&skipped), ProducerCheck::OutOfOrder { .. }) {
            return Err(format!("a gap of producer {id} is not noticed"));
        }
    }
    Ok(())
}

/// Sequences wrap from 2^31-1 to 0.
fn after(sequence: i32, delta: i32) -> i32 {
    sequence.wrapping_add(delta) & i32::MAX
}

/// A batch of one record by one of three producers that take turns; some have none.
fn batch(offset: i64) -> LogBatch {
    let (turn, round) = (offset % 4, (offset / 4) as i32);
    let producer = (turn < 3).then_some(BatchProducer {
        id: turn,
        epoch: 1,
        base_sequence: round,
        last_sequence: round,
        is_transactional: false,
    });
    let mut builder = builder(&producer);
    let timestamp = 5_000 + offset;
    builder.push(timestamp, None, Some(&[offset as u8; 900]));
    LogBatch {
        bytes: builder.build(),
        base_offset: offset,
        last_offset: offset,
        leader_epoch: 0,
        max_timestamp: timestamp,
        producer,
    }
}

fn batches(end: i64) -> Vec<LogBatch> {
    (0..end).map(batch).collect()
}

async fn append(log: &Log, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        log.append(&[batch(offset)]).await.unwrap();
    }
    log.flush().await.unwrap();
}

/// The snapshots in the order of their offsets.
fn snapshots(node: &SimNode) -> Vec<PathBuf> {
    let files = node.disk().list_raw(DIR).into_iter().map(|(path, _)| path);
    let is_snapshot = |path: &PathBuf| path.extension().is_some_and(|e| e == "snapshot");
    files.filter(is_snapshot).collect()
}

/// Writes zeros over a file, and proves that they are there.
fn zero(node: &SimNode, path: &PathBuf) {
    let len = node.disk().read_raw(path).unwrap().len();
    assert!(len > 10 + 46, "{} holds producers", path.display());
    node.disk().write_raw(path, &vec![0; len]);
    assert_eq!(node.disk().read_raw(path).unwrap(), vec![0; len]);
}

#[test]
fn c6_given_bad_snapshots_when_it_loads_after_either_stop_then_all_producers_are_known() {
    for clean in [false, true] {
        for all in [false, true] {
            let world = World::new(6);
            let node = world.node("a");
            let rt = node.rt();
            world.block_on(&rt, async {
                let (data_dir, log, _) = open(&rt).await;
                append(&log, 0..70).await;
                let point = log.checkpoint().await.unwrap();
                record_recovery_point(&data_dir, point).await;
                append(&log, 70..100).await;
                match clean {
                    true => stop_cleanly(&data_dir, &log).await,
                    false => assert_eq!(log.checkpoint().await.unwrap(), 100),
                }
            });
            node.kill();
            let snapshots = snapshots(&node);
            assert!(snapshots.len() > 1);
            let newest = snapshots.len() - 1;
            for path in &snapshots[if all { 0 } else { newest }..] {
                zero(&node, path);
            }
            let rt = node.restart();
            world.block_on(&rt, async {
                let (_data_dir, log, report) = open(&rt).await;
                assert_eq!(log.end_offset(), 100);
                println!("clean {clean}, all {all}: {report:?}");
                check(&log.producers(), &batches(100), |_| 0).unwrap();
                append(&log, 100..120).await;
                check(&log.producers(), &batches(120), |_| 0).unwrap();
            });
        }
    }
}

#[test]
fn given_a_clean_stop_then_the_load_reads_the_snapshot_at_the_end_and_no_batches_for_it() {
    let world = World::new(7);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        append(&log, 0..100).await;
        stop_cleanly(&data_dir, &log).await;
    });
    node.kill();
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, report) = open(&rt).await;
        check(&log.producers(), &batches(100), |_| 0).unwrap();
        assert!(report.scanned_bytes < 5_000, "{report:?}");
    });
}

#[test]
fn given_appends_during_a_checkpoint_then_its_snapshot_is_the_state_as_of_its_point() {
    let mut moved = 0;
    for seed in 0..40 {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let (_data_dir, log, _) = open(&rt).await;
            append(&log, 0..40).await;
            let point = futures_lite::future::zip(log.checkpoint(), append(&log, 40..60)).await;
            let point = point.0.unwrap();
            moved += i32::from(point < 60);
            // What the snapshot holds shows when nothing behind it counts.
            log.truncate_to(point).await.unwrap();
            check(&log.producers(), &batches(point), |_| 0).unwrap();
        });
    }
    assert!(moved > 0, "no append came during a checkpoint");
}

#[test]
fn given_a_truncation_then_the_producers_are_those_of_the_new_end() {
    for end in [0, 1, 33, 69, 70, 99] {
        let world = World::new(9);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let (_data_dir, log, _) = open(&rt).await;
            append(&log, 0..70).await;
            log.checkpoint().await.unwrap();
            append(&log, 70..100).await;
            assert_eq!(log.truncate_to(end).await.unwrap(), end);
            check(&log.producers(), &batches(end), |_| 0).unwrap();
            append(&log, end..110).await;
            check(&log.producers(), &batches(110), |_| 0).unwrap();
        });
    }
}

/// To go on without what stands behind the damage would take a retry of it for a new batch.
#[test]
fn given_damage_in_the_batches_that_the_producers_are_found_from_then_the_log_is_refused() {
    for damage in [false, true] {
        let world = World::new(10);
        let node = world.node("a");
        let rt = node.rt();
        world.block_on(&rt, async {
            let (data_dir, log, _) = open(&rt).await;
            append(&log, 0..100).await;
            stop_cleanly(&data_dir, &log).await;
        });
        node.kill();
        let snapshots = snapshots(&node);
        assert!(!snapshots.is_empty());
        for path in snapshots {
            assert!(node.disk().remove_raw(path));
        }
        let first = format!("{DIR}/{:020}.log", 0);
        if damage {
            let at = batch(0).bytes.len() * 3 + 100;
            let mut bytes = node.disk().read_raw(&first).unwrap();
            bytes[at] ^= 1;
            node.disk().write_raw(&first, &bytes);
        }
        let rt = node.restart();
        world.block_on(&rt, async {
            let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
            let mode = data_dir.load_mode("topic", 0);
            assert!(mode.clean);
            let storage = Storage::new(rt.clone(), limits());
            match Log::open(&storage, rt.dir(DIR), config(), mode).await {
                Ok((log, _)) => {
                    assert!(!damage, "it goes on without producers");
                    check(&log.producers(), &batches(100), |_| 0).unwrap();
                }
                Err(LoadError::Damaged { file, position, .. }) => {
                    let expected = (first.clone(), 3 * batch(0).bytes.len() as u64);
                    assert_eq!((damage, (file, position)), (true, expected));
                }
                Err(error) => panic!("{error}"),
            }
        });
    }
}
