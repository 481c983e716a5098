//! Logs of odd shapes: gaps, large batches, damage, segments without batches.

use super::*;

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
fn where_a_cut_leaves_no_batch_a_read_goes_to_the_end_and_then_on_to_what_is_appended() {
    let (world, _node, rt, line) = world_with_log(13);
    world.block_on(&rt, async {
        let log = create(&rt).await;
        log.record_cleaned_with(line.recorder());
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
