//! Cutting a compacted log below what is compacted: the line that says so falls first.

use super::*;
use crate::storage::TruncateError;

/// A log that was compacted up to its line; the offset that it is to be cut at, far below.
async fn compacted_log(world: &World, rt: &Rt, line: &Line) -> (Log, Written, i64) {
    let log = create(rt).await;
    let mut written = Written::new();
    append_many(world, &log, 80, &mut written).await;
    line.compact(rt, &log).await;
    log.flush().await.unwrap();
    let cleaned_to = line.0.get().unwrap();
    assert!(cleaned_to > 120, "{cleaned_to}");
    (log, written, cleaned_to / 3)
}

/// Whether a power cut left a hole in what was appended after a cut, where no flush covered it.
fn has_hole(seed: u64, line_falls: bool) -> bool {
    let (world, node, rt, line) = world_with_log(seed);
    let cut = world.block_on(&rt, async {
        let (log, mut written, at) = compacted_log(&world, &rt, &line).await;
        match line_falls {
            true => log.record_cleaned_with(line.recorder()),
            false => log.record_cleaned_with(Rc::new(|_| Box::pin(async { Ok(()) }))),
        }
        let before = line.0.get();
        let cut = log.truncate_to(at).await.unwrap();
        assert!(cut <= at);
        assert!(log.cleaned_to() <= Some(cut));
        assert_eq!(line.0.get() < before, line_falls);
        for n in 0..25 {
            append(&log, &[pair(n, "y".repeat(900))], &mut written).await;
        }
        assert!(Some(log.end_offset()) < before);
        cut
    });
    node.crash_with([PowerCut::Mixed, PowerCut::Sectors][seed as usize % 2]);
    let rt = node.restart();
    world.block_on(&rt, async {
        let log = line.open(&rt, false).await;
        let there = read_from(&log, cut).await;
        let offsets: Vec<i64> = there.iter().map(|record| record.0).collect();
        let all: Vec<i64> = (cut..log.end_offset()).collect();
        offsets != all
    })
}

#[test]
fn what_a_power_cut_takes_from_behind_a_cut_is_not_taken_for_compacted() {
    let holes = |line_falls| (0..60).filter(|seed| has_hole(*seed, line_falls)).count();
    assert!(holes(false) > 0, "no power cut left a hole");
    assert_eq!(holes(true), 0);
}

#[test]
fn a_power_cut_at_every_step_of_a_cut_leaves_no_line_above_the_end() {
    // Where the log ends then: between two batches that are left.
    let run = |after: u64, cut_at: i64| -> (bool, i64) {
        let (world, node, rt, line) = world_with_log(3);
        let (log, written, at) = world.block_on(&rt, compacted_log(&world, &rt, &line));
        log.record_cleaned_with(line.recorder());
        let cleaned_to = line.0.get().unwrap();
        let end = log.end_offset();
        let mode = CUTS[after as usize % CUTS.len()];
        node.disk().cut_power_after_ops(after, mode);
        let cut = world.block_on_until_crash(&rt, log.truncate_to(at));
        let was_cut = cut.is_none();
        drop((log, cut));
        if !was_cut {
            node.crash();
        }
        let rt = node.restart();
        world.block_on(&rt, async {
            let log = line.open(&rt, false).await;
            let now = log.end_offset();
            assert!((cut_at..=end).contains(&now), "it ends at {now}");
            assert!(
                line.0.get() <= Some(now),
                "{line:?} above {now}",
                line = line.0
            );
            let there = read_from(&log, 0).await;
            let kept = expected(&written, cleaned_to);
            let wanted: Written = kept.into_iter().filter(|w| w.0 < now).collect();
            assert_eq!(there, wanted);
            let end = log.truncate_to(at).await.unwrap();
            let mut more = Written::new();
            append(&log, &[pair("new", 1)], &mut more).await;
            log.flush().await.unwrap();
            assert_eq!(read_from(&log, end).await, more);
            (was_cut, end)
        })
    };
    let (was_cut, cut_at) = run(1_000_000, 0);
    assert!(!was_cut);
    let cuts = (1..).take_while(|after| run(*after, cut_at).0).count();
    assert!(cuts > 15, "{cuts} cuts");
}

#[test]
fn where_nobody_records_it_a_log_is_not_cut_below_what_is_compacted() {
    let (world, _node, rt, line) = world_with_log(2);
    world.block_on(&rt, async {
        let (log, _, at) = compacted_log(&world, &rt, &line).await;
        let end = log.end_offset();
        log.record_cleaned_with(Rc::new(|_| Box::pin(async { Err("no space".to_owned()) })));
        let error = log.truncate_to(at).await.unwrap_err();
        assert!(matches!(error, TruncateError::Record(_)), "{error}");
        assert_eq!((log.end_offset(), log.cleaned_to()), (end, line.0.get()));
        assert!(log.fence_reason().is_some(), "it is rebuilt, and cut then");
    });
}
