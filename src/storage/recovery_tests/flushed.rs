//! Damage below what is known to be flushed, where no snapshot proves it: a load says so and
//! cuts nothing.

use super::cases::{batch, config, open, produce, DIR};
use crate::runtime::sim::{SimNode, World};
use crate::storage::log_tests::{limits, stamped};
use crate::storage::{DataDir, LoadError, Log, LogConfig, Storage};
use std::path::PathBuf;

const END: i64 = 100;

async fn record_flushed(data_dir: &DataDir, offset: i64) {
    let entries = [(("topic".to_owned(), 0), offset)].into();
    data_dir.write_high_watermarks(&entries).await.unwrap();
}

/// A killed broker's log of one segment without a checkpoint, all of it flushed and on record
/// as such.
fn killed_broker() -> (World, SimNode) {
    let world = World::new(15);
    let node = world.node("a");
    let rt = node.rt();
    world.block_on(&rt, async {
        let (data_dir, log, _) = open(&rt).await;
        log.set_config(LogConfig {
            segment_bytes: 1 << 20,
            ..config()
        });
        produce(&log, 0..END).await;
        assert_eq!(log.segment_count(), 1);
        record_flushed(&data_dir, END).await;
    });
    node.kill();
    (world, node)
}

fn segment() -> String {
    format!("{DIR}/{:020}.log", 0)
}

/// Where the batch stands in the segment.
fn place_of(node: &SimNode, offset: i64) -> usize {
    let content = node.disk().read_raw(segment()).unwrap();
    let wanted = stamped(&batch(offset));
    let found = content.windows(wanted.len()).position(|w| w == wanted);
    found.expect("it is there, whole")
}

fn files(node: &SimNode) -> Vec<(PathBuf, Vec<u8>)> {
    let listed = node.disk().list_raw(DIR).into_iter();
    let logs = listed.filter(|(path, _)| path.extension().is_some_and(|e| e == "log"));
    logs.map(|(path, _)| (path.clone(), node.disk().read_raw(&path).unwrap()))
        .collect()
}

fn overwrite(node: &SimNode, at: std::ops::Range<usize>, byte: u8) {
    let mut content = node.disk().read_raw(segment()).unwrap();
    assert!(content[at.clone()].iter().any(|b| *b != byte));
    content[at].fill(byte);
    node.disk().write_raw(segment(), &content);
}

fn refused(world: &World, node: &SimNode) -> LoadError {
    let rt = node.restart();
    let error = world.block_on(&rt, async {
        let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
        let storage = Storage::new(rt.clone(), limits());
        let mode = data_dir.load_mode("topic", 0);
        assert_eq!((mode.clean, mode.flushed), (false, Some(END)));
        let opened = Log::open(&storage, rt.dir(DIR), config(), mode).await;
        opened.err().expect("damage")
    });
    node.kill();
    error
}

#[test]
fn given_damage_below_what_was_flushed_when_it_loads_then_it_is_named_and_nothing_is_cut() {
    let one_byte = |node: &SimNode| {
        let at = place_of(node, 50) + 500;
        overwrite(node, at..at + 1, 0xEE);
    };
    // As a sector that the disk lost: it looks like space that was never written.
    let zeros = |node: &SimNode| {
        let at = place_of(node, 50);
        overwrite(node, at..at + 512, 0);
    };
    for kind in ["a byte", "zeros"] {
        let (world, node) = killed_broker();
        match kind {
            "zeros" => zeros(&node),
            _ => one_byte(&node),
        }
        let before = files(&node);
        for _ in 0..2 {
            let error = refused(&world, &node);
            assert!(
                matches!(error, LoadError::Damaged { .. }),
                "{kind}: {error}"
            );
            let flushed = format!("all below offset {END} was flushed");
            assert!(error.to_string().contains(&flushed), "{kind}: {error}");
            assert_eq!(files(&node), before, "{kind}");
        }
        // What `highwater log repair --truncate` leaves.
        let rt = node.restart();
        world.block_on(&rt, async {
            let data_dir = DataDir::open(&rt, "/data", 1, None).await.unwrap();
            record_flushed(&data_dir, 50).await;
        });
        node.kill();
        let rt = node.restart();
        world.block_on(&rt, async {
            let (_data_dir, log, _) = open(&rt).await;
            assert_eq!(log.end_offset(), 50, "{kind}");
        });
    }
}

/// Nothing is left that could be cut: whoever opened the log tells of the loss.
#[test]
fn given_a_disk_that_lost_the_end_when_it_loads_then_the_rest_is_served() {
    let (world, node) = killed_broker();
    let len = node.disk().read_raw(segment()).unwrap().len();
    let at = place_of(&node, 50);
    overwrite(&node, at..len, 0);
    let rt = node.restart();
    world.block_on(&rt, async {
        let (_data_dir, log, report) = open(&rt).await;
        assert_eq!((log.end_offset(), report.truncated_bytes), (50, 0));
    });
}
