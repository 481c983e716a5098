//! Which records stay.

use super::*;

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
fn a_deletion_marker_goes_once_its_horizon_has_passed_and_not_before() {
    // Also one that shares its batch with what stays: the batch keeps its horizon.
    for beside in [None, Some(pair("kept", 1))] {
        let (world, _node, rt, line) = world_with_log(3);
        world.block_on(&rt, async {
            let log = create(&rt).await;
            let mut written = Written::new();
            append(&log, &[pair("a", 1), pair("b", 1)], &mut written).await;
            let marker = [("a".to_owned(), None)].into_iter().chain(beside);
            append(&log, &marker.collect::<Vec<_>>(), &mut written).await;
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
}

#[test]
fn when_a_marker_is_due_is_known_after_a_restart() {
    for clean in [true, false] {
        let (world, node, rt, line) = world_with_log(4);
        world.block_on(&rt, async {
            let log = create(&rt).await;
            let mut written = Written::new();
            append(&log, &[pair("a", 1)], &mut written).await;
            append(&log, &[("a".to_owned(), None)], &mut written).await;
            for n in 0..30 {
                append(&log, &[pair("filler", "x".repeat(300 + n))], &mut written).await;
            }
            log.checkpoint().await.unwrap();
            line.compact(&rt, &log).await;
            log.flush().await.unwrap();
            if clean {
                log.close().await.unwrap();
            }
        });
        node.kill();
        let rt = node.restart();
        world.block_on(&rt, async {
            let log = line.open(&rt, clean).await;
            let mut rules = line.rules(&log);
            rules.now_ms += 999;
            let need = log.compaction_need(&rules).await.unwrap();
            assert!(!need.deletes_due && need.dirty_bytes == 0, "{need:?}");
            rules.now_ms += 1;
            assert!(log.compaction_need(&rules).await.unwrap().deletes_due);
            let means = line.means(&rt, 1 << 20);
            let done = log.compact(&rules, &means).await.unwrap();
            assert_eq!(done.records_before - done.records_after, 1);
            assert!(!log.compaction_need(&rules).await.unwrap().deletes_due);
            log.close().await.unwrap();
        });
        node.kill();
        let rt = node.restart();
        world.block_on(&rt, async {
            let log = line.open(&rt, true).await;
            let mut rules = line.rules(&log);
            rules.now_ms += 1_000_000;
            assert!(!log.compaction_need(&rules).await.unwrap().deletes_due);
        });
    }
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
