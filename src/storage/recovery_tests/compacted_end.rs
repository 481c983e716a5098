//! KAFKA-17076 as far as one node goes: what ends the compacted part is gone, nothing follows it,
//! and the log is found again from its segments alone. No offset is given twice.

use super::cases::DIR;
use crate::protocol::batch::BatchBuilder;
use crate::runtime::local::Event;
use crate::runtime::sim::{SimNode, World};
use crate::runtime::Rt;
use crate::storage::log_tests::limits;
use crate::storage::{
    CompactionMeans, CompactionRules, LoadMode, Log, LogBatch, LogConfig, RetentionRules, Storage,
    Throttle,
};
use std::cell::Cell;
use std::rc::Rc;

const NOW_MS: i64 = 1_000_000_000_000;

/// What the last records of the compacted part are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Older values of a key; its last one is a deletion marker that is due.
    Superseded,
    /// Data of a transaction that was aborted, and the marker of that.
    Aborted,
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 4_000,
        index_interval_bytes: 300,
        file_delete_delay_ms: 0,
        compacted: true,
        ..LogConfig::default()
    }
}

fn batch(base: i64, builder: BatchBuilder, value: Option<&[u8]>, key: &[u8]) -> LogBatch {
    let mut builder = builder;
    builder.push(5_000 + base, Some(key), value);
    LogBatch {
        bytes: builder.build(),
        base_offset: base,
        last_offset: base,
        leader_epoch: 2,
        max_timestamp: 5_000 + base,
        producer: None,
    }
}

async fn fill(log: &Log, ends: Ends) {
    let large = [b'z'; 400];
    for n in 0..30 {
        let one = batch(n, BatchBuilder::new(), Some(&large), b"key");
        log.append(&[one]).await.unwrap();
    }
    for n in 30..60 {
        let one = match ends {
            Ends::Superseded => batch(n, BatchBuilder::new(), Some(&large), b"key"),
            Ends::Aborted => {
                let builder = BatchBuilder::new().producer(7, 0, n as i32 - 30);
                batch(n, builder.transactional(true), Some(&large), b"other")
            }
        };
        log.append(&[one]).await.unwrap();
    }
    let last = match ends {
        Ends::Superseded => batch(60, BatchBuilder::new(), None, b"key"),
        Ends::Aborted => {
            let builder = BatchBuilder::new().producer(7, 0, -1).transactional(true);
            batch(60, builder.control(true), Some(b""), &[0, 0, 0, 0])
        }
    };
    log.append(&[last]).await.unwrap();
}

/// Rolls the active segment, and compacts all before it, twice: markers come due.
async fn compact_all(rt: &Rt, log: &Log, line: &Rc<Cell<Option<i64>>>) {
    let end = log.end_offset();
    let expire = RetentionRules {
        retention_ms: 0,
        retention_bytes: -1,
        bound: end,
        now_ms: NOW_MS,
    };
    assert_eq!(log.expired_up_to(expire).await.unwrap(), end);
    log.checkpoint().await.unwrap();
    for later_ms in [0, 100_000] {
        let rules = CompactionRules {
            bound: end,
            first_dirty: 0,
            now_ms: NOW_MS + later_ms,
            delete_retention_ms: 1_000,
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
        };
        let line = line.clone();
        let means = CompactionMeans {
            throttle: Throttle::new(rt.clone(), 0),
            map_bytes: 1 << 20,
            record: Rc::new(move |offset| {
                line.set(Some(offset));
                Box::pin(std::future::ready(Ok(())))
            }),
            stop: Event::new(),
        };
        log.compact(&rules, &means).await.unwrap();
    }
}

/// How many records are left, by the headers of the batches.
async fn records(log: &Log) -> i64 {
    let (mut at, mut count) = (0, 0);
    while at < log.end_offset() {
        let read = log.read(at, i64::MAX, 1 << 20, true).await.unwrap();
        assert!(read.next_offset > at, "it goes on to the end");
        at = read.next_offset;
        for batch in crate::protocol::batch::Batches::new(read.slices.concat().into()) {
            count += i64::from(batch.unwrap().header().record_count);
        }
    }
    count
}

/// All files but the segments go, and that is proved.
fn lose_the_rest(node: &SimNode) {
    let disk = node.disk();
    let all = disk.list_raw(DIR);
    let is_log = |path: &std::path::Path| path.extension().is_some_and(|e| e == "log");
    let rest: Vec<_> = all.iter().filter(|(path, _)| !is_log(path)).collect();
    assert!(rest.len() > 2, "{all:?}");
    for (path, _) in rest {
        assert!(disk.remove_raw(path));
    }
    assert!(disk.list_raw(DIR).iter().all(|(path, _)| is_log(path)));
}

#[test]
fn given_a_compacted_part_that_ends_with_nothing_when_it_is_found_again_then_the_end_stays() {
    for ends in [Ends::Superseded, Ends::Aborted] {
        for (clean, alone) in [(false, false), (false, true), (true, false), (true, true)] {
            let world = World::new(17_076);
            let node = world.node("a");
            let line = Rc::new(Cell::new(None));
            let rt = node.rt();
            let told = format!("{ends:?}, clean {clean}, segments alone {alone}");
            let left = world.block_on(&rt, async {
                let storage = Storage::new(rt.clone(), limits());
                let log = Log::create(&storage, rt.dir(DIR), config()).await.unwrap();
                fill(&log, ends).await;
                compact_all(&rt, &log, &line).await;
                assert_eq!(log.end_offset(), 61);
                let left = records(&log).await;
                assert!(left < 5, "{told}: {left} records are left");
                match clean {
                    true => drop(log.close().await.unwrap()),
                    false => drop(log.flush().await.unwrap()),
                }
                left
            });
            match clean {
                true => node.kill(),
                false => node.crash(),
            }
            if alone {
                lose_the_rest(&node);
            }
            for (again, end) in [61, 62, 63].into_iter().enumerate() {
                let rt = node.restart();
                world.block_on(&rt, async {
                    let storage = Storage::new(rt.clone(), limits());
                    let mode = LoadMode {
                        clean: clean && again == 0,
                        cleaned_to: line.get(),
                        ..LoadMode::default()
                    };
                    let opened = Log::open(&storage, rt.dir(DIR), config(), mode).await;
                    let (log, _) = opened.unwrap_or_else(|e| panic!("{told}: {e}"));
                    assert_eq!(log.end_offset(), end, "{told}");
                    assert_eq!(records(&log).await, left + again as i64, "{told}");
                    // Built again while the broker runs, as after a full disk.
                    log.retire().await.unwrap();
                    let mode = LoadMode {
                        clean: false,
                        ..mode
                    };
                    let rebuilt = Log::open(&storage, rt.dir(DIR), config(), mode).await;
                    let log = rebuilt.unwrap_or_else(|e| panic!("{told}: {e}")).0;
                    assert_eq!(log.end_offset(), end, "{told}");
                    let new = batch(end, BatchBuilder::new(), Some(b"new"), b"new");
                    log.append(&[new]).await.unwrap();
                    log.flush().await.unwrap();
                });
                node.crash();
            }
        }
    }
}
