//! Directories that compaction or a running broker has changed, on the simulator.

use super::verify::{verify_partition, Known};
use super::*;
use crate::protocol::batch::BatchBuilder;
use crate::runtime::sim::{SimNode, World};
use crate::runtime::SyncSite;
use crate::storage::log_files::{file_name, LogFiles};
use crate::storage::log_tests::limits;
use crate::storage::{LogBatch, LogConfig, Storage};

const DATA_DIR: &str = "/data";
const PARTITION: &str = "/data/topic-0";
const CHECKPOINT: &str = "/data/cleaner-offset-checkpoint";

/// A partition of several sealed segments; their base offsets.
fn segments(world: &World, node: &SimNode) -> Vec<i64> {
    let rt = node.rt();
    world.block_on(&rt, async {
        let dir = rt.dir(PARTITION);
        dir.create_all(SyncSite::PartitionDir).await.unwrap();
        let config = LogConfig {
            segment_bytes: 16_384,
            ..LogConfig::default()
        };
        let storage = Storage::new(rt.clone(), limits());
        let log = super::super::Log::create(&storage, dir.clone(), config)
            .await
            .unwrap();
        for offset in 0..60 {
            log.append(&[batch(offset)]).await.unwrap();
        }
        log.close().await.unwrap();
        let files = LogFiles::list(&dir).await.unwrap();
        files.segments.keys().copied().collect()
    })
}

fn batch(offset: i64) -> LogBatch {
    let mut builder = BatchBuilder::new();
    builder.push(offset, None, Some(&[7; 1000]));
    LogBatch {
        bytes: builder.build(),
        base_offset: offset,
        last_offset: offset,
        leader_epoch: 0,
        max_timestamp: offset,
        producer: None,
    }
}

/// Leaves a segment without any batch, as compaction may.
fn empty(node: &SimNode, base: i64) {
    for extension in [LOG, INDEX, TIME_INDEX] {
        let path = format!("{PARTITION}/{}", file_name(base, extension));
        assert!(node.disk().read_raw(&path).is_some(), "{path} is there");
        node.disk().write_raw(&path, &[]);
    }
}

fn verify(world: &World, node: &SimNode, path: &str) -> VerifyReport {
    let rt = node.rt();
    world
        .block_on(&rt, verify_dir(&rt, Path::new(path)))
        .unwrap()
}

#[test]
fn a_hole_between_segments_is_a_problem_unless_the_cleaner_has_been_there() {
    let world = World::new(1);
    let node = world.node("a");
    let bases = segments(&world, &node);
    assert!(bases.len() > 3, "{bases:?}");
    assert_eq!(verify(&world, &node, DATA_DIR).problems, []);
    empty(&node, bases[1]);
    let hole = |path| verify(&world, &node, path).problems;
    for path in [DATA_DIR, PARTITION] {
        assert_eq!(hole(path).len(), 1, "{:?}", hole(path));
        assert!(hole(path)[0].detail.starts_with("the segment before ends"));
    }
    let cleaned_to = |to: i64| {
        let text = format!("0\n1\ntopic 0 {to}\n");
        node.disk().write_raw(CHECKPOINT, text.as_bytes());
    };
    node.disk().write_raw(CHECKPOINT, b"0\n1\nother 0 9\n");
    assert_eq!(hole(DATA_DIR).len(), 1, "the cleaner was at another log");
    // A round that was cut short leaves gaps above its line.
    cleaned_to(0);
    for path in [DATA_DIR, PARTITION] {
        assert_eq!(hole(path), []);
    }
}

#[test]
fn a_cleaners_checkpoint_may_be_empty_but_not_malformed() {
    let world = World::new(2);
    let node = world.node("a");
    segments(&world, &node);
    node.disk().write_raw(CHECKPOINT, b"");
    assert_eq!(verify(&world, &node, DATA_DIR).problems, []);
    node.disk().write_raw(CHECKPOINT, b"0\n2\ntopic 0 1\n");
    let problems = verify(&world, &node, DATA_DIR).problems;
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].file, Path::new(CHECKPOINT));
}

#[test]
fn a_file_that_always_fails_to_be_there_is_an_error_and_a_removed_partition_none() {
    let world = World::new(3);
    let node = world.node("a");
    let bases = segments(&world, &node);
    let rt = node.rt();
    let path = format!("{PARTITION}/{}", file_name(bases[0], LOG));
    node.disk().fail_ops("open", &path, 2);
    let error = world
        .block_on(&rt, verify_dir(&rt, Path::new(DATA_DIR)))
        .unwrap_err();
    assert!(node.disk().faults_fired() > 0);
    assert!(matches!(error, InspectError::Io(e) if e.kind == IoErrorKind::NotFound));
    node.disk().clear_faults();
    let gone = rt.dir("/data/gone-0");
    let report = world
        .block_on(&rt, verify_partition(&rt, &gone, Known::default()))
        .unwrap();
    assert_eq!(report, VerifyReport::default());
}
