//! Power cuts within a round, and what is known after them.

use super::*;
use crate::runtime::sim::{FaultKind, FaultRates};

#[test]
fn a_power_cut_at_any_step_leaves_the_log_compacted_or_not() {
    let run = |seed: u64, cut_after: u64| -> (bool, Vec<String>) {
        let world = World::new(seed);
        let node = world.node("a");
        let rt = node.rt();
        let line = Line::default();
        let mut written = Written::new();
        let log = world.block_on(&rt, async {
            let log = create(&rt).await;
            append_many(&world, &log, 70, &mut written).await;
            log
        });
        let end = log.end_offset();
        let mode = CUTS[(seed + cut_after) as usize % CUTS.len()];
        node.disk().cut_power_after_ops(cut_after, mode);
        let done = world.block_on_until_crash(&rt, line.compact(&rt, &log));
        drop(log);
        let was_cut = done.is_none();
        if !was_cut {
            node.crash();
        }
        let left: Vec<String> = [".cleaned", ".swap", ".deleted"]
            .iter()
            .filter(|part| !names(&node, part).is_empty())
            .map(|part| (*part).to_owned())
            .collect();
        let rt = node.restart();
        world.block_on(&rt, async {
            let log = line.open(&rt, false).await;
            assert_eq!(log.end_offset(), end);
            let there = read_from(&log, 0).await;
            let last = expected(&written, end);
            for record in &there {
                assert!(written.contains(record), "an invented record {record:?}");
            }
            for record in &last {
                assert!(there.contains(record), "{record:?} is gone");
            }
            let done = line.compact(&rt, &log).await;
            check(&rt, &log, &expected(&written, done.cleaned_to), end).await;
        });
        (was_cut, left)
    };
    let mut seen = BTreeSet::new();
    for seed in 7..10 {
        let mut cuts = 0;
        loop {
            let (was_cut, left) = run(seed, cuts + 1);
            seen.extend(left);
            if !was_cut {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 40, "{cuts} cuts");
    }
    assert_eq!(seen.len(), 3, "every kind of file was met: {seen:?}");
}

/// Base offset and leader epoch are outside the CRC, so that a round that believed one read
/// would write what was never written.
#[test]
fn a_bit_that_is_wrong_once_never_becomes_the_data() {
    let (mut flips, mut done, mut refused) = (0, 0, 0);
    for seed in 0..150 {
        let (world, node, rt, line) = world_with_log(seed);
        world.block_on(&rt, async {
            let log = create(&rt).await;
            let mut written = Written::new();
            append_many(&world, &log, 40, &mut written).await;
            line.compact(&rt, &log).await;
            append_many(&world, &log, 30, &mut written).await;
            let end = log.end_offset();
            log.close().await.unwrap();
            let log = line.open(&rt, true).await;
            let rates = FaultRates::none().with(FaultKind::BitFlip, 6);
            node.disk().faults_by_seed(rates.on_paths(".log"));
            let rules = line.rules(&log);
            let outcome = log.compact(&rules, &line.means(&rt, 1 << 20)).await;
            flips += node.disk().planned_faults(FaultKind::BitFlip);
            node.disk().clear_faults();
            match outcome {
                Ok(_) => done += 1,
                Err(CompactionError::Corrupt { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            line.compact(&rt, &log).await;
            let cleaned_to = line.0.get().unwrap();
            check(&rt, &log, &expected(&written, cleaned_to), end).await;
        });
    }
    println!("{flips} flips, {done} rounds done, {refused} refused");
    assert!(flips > 300 && done > 100, "{flips}, {done}, {refused}");
}

#[test]
fn producers_are_known_after_compaction_even_without_a_snapshot() {
    let (world, node, rt, line) = world_with_log(5);
    let known = |log: &Log| {
        let each = log.producers();
        let last =
            |p: crate::storage::ProducerInfo| (p.id, p.epoch, p.last.map(|b| b.last_sequence));
        each.iter().map(last).collect::<Vec<_>>()
    };
    let before = world.block_on(&rt, async {
        let log = create(&rt).await;
        let mut sequences = [0i32; 3];
        for n in 0..60 {
            let id = if n < 40 { n % 3 } else { 2 };
            let pairs = [pair("one key", "y".repeat(200)), pair("one key", n)];
            let producer = (id as i64, sequences[id]);
            sequences[id] += 2;
            let batch = build(log.end_offset(), &pairs, Compression::None, producer);
            log.append(&[batch]).await.unwrap();
        }
        log.checkpoint().await.unwrap();
        line.compact(&rt, &log).await;
        log.flush().await.unwrap();
        known(&log)
    });
    node.crash();
    for name in names(&node, ".snapshot") {
        assert!(node.disk().remove_raw(format!("{DIR}/{name}")));
    }
    let rt = node.restart();
    world.block_on(&rt, async {
        let log = line.open(&rt, false).await;
        assert_eq!(
            known(&log),
            before,
            "each producer's last batch stands in the log"
        );
        assert_eq!(before.len(), 3);
    });
}
