//! C5: several segments become one, and the machine stops at every step of it, and of the
//! load that finishes it.

use super::*;
use crate::storage::ProducerCheck;

/// Small segments, all of which fit in one of [`merging`].
fn small() -> LogConfig {
    LogConfig {
        segment_bytes: 900,
        ..config()
    }
}

fn merging() -> LogConfig {
    LogConfig {
        segment_bytes: 60_000,
        ..config()
    }
}

/// What was written to the log, and where the compacted part ends.
struct Before {
    written: Written,
    /// The five batches of the producer.
    batches: Vec<LogBatch>,
    end: i64,
}

/// A log of several sealed segments with a producer's five batches in them, opened so that
/// they are merged.
async fn log_to_merge(rt: &Rt, line: &Line) -> (Log, Before) {
    let log = create_with(rt, small()).await;
    let (mut written, mut batches) = (Written::new(), Vec::new());
    for n in 0..20i32 {
        let pairs = [pair(n % 4, "x".repeat(90)), pair("one", n)];
        if n % 4 != 1 {
            append(&log, &pairs, &mut written).await;
            continue;
        }
        let base = log.end_offset();
        let batch = build(base, &pairs, Compression::None, (7, n / 4 * 2));
        log.append(std::slice::from_ref(&batch)).await.unwrap();
        batches.push(batch);
        let each = pairs.into_iter().enumerate();
        written.extend(each.map(|(at, (k, v))| (base + at as i64, k, v)));
    }
    assert_eq!(batches.len(), 5);
    log.close().await.unwrap();
    let log = line.open_with(rt, true, merging()).await;
    assert!(log.segment_count() > 3, "{} segments", log.segment_count());
    let end = log.end_offset();
    let before = Before {
        written,
        batches,
        end,
    };
    (log, before)
}

/// All five are known, each at its offset.
fn check_producer(log: &Log, before: &Before) {
    let producers = log.producers();
    for batch in &before.batches {
        let again = producers.check(&batch.producer.unwrap());
        let ProducerCheck::Duplicate(original) = again else {
            panic!("the batch at {} sent again is {again:?}", batch.base_offset);
        };
        assert_eq!(original.base_offset(), batch.base_offset);
    }
}

/// What the files say that a swap had reached.
fn left_by_swap(node: &SimNode) -> BTreeSet<&'static str> {
    let kinds = [
        ".timeindex.cleaned",
        ".index.cleaned",
        ".log.cleaned",
        ".timeindex.swap",
        ".index.swap",
        ".log.swap",
        ".deleted",
    ];
    kinds
        .into_iter()
        .filter(|kind| !names(node, kind).is_empty())
        .collect()
}

/// One run: power cuts at the n-th operation of the round, and at the m-th of the load after it.
/// Whether each came, and what the first left.
fn run(in_round: u64, in_load: u64, mode: PowerCut) -> (bool, bool, BTreeSet<&'static str>) {
    let (world, node, rt, line) = world_with_log(5);
    let (log, before) = world.block_on(&rt, log_to_merge(&rt, &line));
    node.disk().cut_power_after_ops(in_round, mode);
    let done = world.block_on_until_crash(&rt, line.compact(&rt, &log));
    drop(log);
    let cut_round = done.is_none();
    if !cut_round {
        node.crash();
    }
    let left = left_by_swap(&node);
    let is_cleaned = left.iter().any(|kind| kind.ends_with(".cleaned"));
    let must_win = left.contains(".log.swap") && !is_cleaned;
    let rt = node.restart();
    let mode = CUTS[(in_round + in_load) as usize % CUTS.len()];
    node.disk().cut_power_after_ops(in_load, mode);
    let opened = world.block_on_until_crash(&rt, line.open_with(&rt, false, merging()));
    let cut_load = opened.is_none();
    drop(opened);
    if !cut_load {
        node.crash();
    }
    let rt = node.restart();
    world.block_on(&rt, async {
        let log = line.open_with(&rt, false, merging()).await;
        for part in [".swap", ".cleaned", ".deleted", ".tmp"] {
            assert_eq!(names(&node, part), [""; 0], "strays of {left:?}");
        }
        check_producer(&log, &before);
        let there = read_from(&log, 0).await;
        let compacted = expected(&before.written, last_base(&log));
        let is_compacted = there != before.written;
        if is_compacted {
            assert_eq!(log.segment_count(), 2, "{left:?}");
            assert_eq!(there, compacted, "{left:?}");
        }
        assert!(is_compacted || !must_win, "the swap did not win: {left:?}");
        check(&rt, &log, &there, before.end).await;
        // Nothing of the old segments comes back.
        log.close().await.unwrap();
    });
    node.kill();
    let rt = node.restart();
    world.block_on(&rt, async {
        let log = line.open_with(&rt, true, merging()).await;
        line.compact(&rt, &log).await;
        let wanted = expected(&before.written, last_base(&log));
        check(&rt, &log, &wanted, before.end).await;
        check_producer(&log, &before);
    });
    (cut_round, cut_load, left)
}

/// More operations than there are.
const NEVER: u64 = 1_000_000;

fn last_base(log: &Log) -> i64 {
    let state = log.0.state.borrow();
    state.segments.last().unwrap().base_offset
}

#[test]
fn c5_given_a_power_cut_at_every_step_of_a_merge_when_it_loads_then_all_of_it_or_nothing_shows() {
    let mut seen: BTreeSet<BTreeSet<&str>> = BTreeSet::new();
    let mut cuts = 0;
    for mode in CUTS {
        for in_round in 1.. {
            let (was_cut, _, left) = run(in_round, NEVER, mode);
            seen.insert(left);
            if !was_cut {
                break;
            }
            cuts += 1;
        }
    }
    println!("{cuts} operations, {} states: {seen:?}", seen.len());
    assert!(cuts > 150, "{cuts} cuts");
    let has = |wanted: &[&str]| {
        let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
        seen.contains(&wanted)
    };
    // Between the renames: to `.swap`, away, and to the final names.
    assert!(has(&[".timeindex.swap", ".index.cleaned", ".log.cleaned"]));
    assert!(has(&[".timeindex.swap", ".index.swap", ".log.cleaned"]));
    assert!(has(&[".timeindex.swap", ".index.swap", ".log.swap"]));
    assert!(has(&[
        ".timeindex.swap",
        ".index.swap",
        ".log.swap",
        ".deleted"
    ]));
    assert!(has(&[".index.swap", ".log.swap", ".deleted"]));
    assert!(has(&[".log.swap", ".deleted"]));
}

#[test]
fn c5_given_a_power_cut_at_every_step_of_the_load_after_one_then_another_finishes_it() {
    let (mut in_rounds, mut in_loads) = (0, 0);
    for in_round in 1.. {
        let mode = CUTS[in_round as usize % CUTS.len()];
        let (cut_round, _, left) = run(in_round, NEVER, mode);
        if !cut_round {
            break;
        }
        if !left.iter().any(|kind| kind.ends_with(".swap")) {
            continue;
        }
        in_rounds += 1;
        for in_load in 1.. {
            println!("cut at operation {in_round} of the round, {in_load} of the load");
            let (_, cut_load, _) = run(in_round, in_load, mode);
            if !cut_load {
                break;
            }
            in_loads += 1;
        }
    }
    println!("{in_rounds} interrupted swaps, {in_loads} interrupted loads");
    assert!(in_rounds > 8 && in_loads > 100, "{in_rounds}, {in_loads}");
}

/// The files of a directory by name.
type Files = BTreeMap<String, Vec<u8>>;

fn files_of(node: &SimNode) -> Files {
    let listed = names(node, "").into_iter();
    let content = |name: &String| node.disk().read_raw(format!("{DIR}/{name}")).unwrap();
    listed.map(|name| (name.clone(), content(&name))).collect()
}

/// A directory with these files, loaded after an unclean stop: its records and the names
/// that are left.
fn load_files(files: &Files, before: &Before) -> (Written, Vec<String>) {
    let (world, node, rt, line) = world_with_log(6);
    line.0.set(Some(0));
    let there = world.block_on(&rt, async {
        let dir = rt.dir(DIR);
        dir.create_all(SyncSite::PartitionDir).await.unwrap();
        for (name, bytes) in files {
            node.disk().write_raw(format!("{DIR}/{name}"), bytes);
        }
        let log = line.open_with(&rt, false, merging()).await;
        check_producer(&log, before);
        let there = read_from(&log, 0).await;
        check(&rt, &log, &there, before.end).await;
        there
    });
    (there, names(&node, ""))
}

/// The directory of a log before and after its segments were merged; the compacted records.
fn merged() -> (Before, Files, Files) {
    let (world, node, rt, line) = world_with_log(5);
    let (log, before) = world.block_on(&rt, log_to_merge(&rt, &line));
    let old = files_of(&node);
    world.block_on(&rt, async {
        let done = line.compact(&rt, &log).await;
        assert_eq!(done.segments_after, 1);
        log.flush().await.unwrap();
        rt.sleep(std::time::Duration::from_millis(100)).await;
    });
    let new = files_of(&node);
    assert!(
        new.keys().all(|name| !name.ends_with(".deleted")),
        "{new:?}"
    );
    (before, old, new)
}

/// In the order of their renames. A `.txnindex` is none of this broker's.
const OURS: &[&str] = &["timeindex", "index", "log"];
const KAFKAS: &[&str] = &["log", "index", "timeindex", "txnindex"];

#[test]
fn c5_given_files_between_the_renames_of_this_broker_and_of_kafka_then_the_swap_wins() {
    let (before, old, new) = merged();
    let base = format!("{:020}", 0);
    let is_merged = |name: &str| name.starts_with(&base) && !name.ends_with("snapshot");
    let last_base = {
        let mut logs = old.keys().filter(|name| name.ends_with(".log"));
        logs.next_back().unwrap()[..20].to_owned()
    };
    let is_covered = |name: &str| name[..20] < *last_base && !name.ends_with("snapshot");
    let mut states = 0;
    let wanted = expected(&before.written, last_base.parse().unwrap());
    assert_ne!(wanted, before.written);
    for order in [OURS, KAFKAS] {
        for renamed in 0..=order.len() {
            // How many of the files of old segments still have their names.
            let covered: Vec<&String> = old.keys().filter(|name| is_covered(name)).collect();
            let left_behind = match renamed {
                0 => 0..=covered.len(),
                _ => 0..=0,
            };
            for left in left_behind {
                let mut files = old.clone();
                for name in &covered[..covered.len() - left] {
                    let bytes = files.remove(*name).unwrap();
                    files.insert(format!("{name}.deleted"), bytes);
                }
                for (at, extension) in order.iter().enumerate() {
                    let name = format!("{base}.{extension}");
                    let bytes = match *extension {
                        "txnindex" => Vec::new(),
                        _ => new[&name].clone(),
                    };
                    assert!(is_merged(&name));
                    match at < renamed {
                        true => files.insert(name, bytes),
                        false => files.insert(format!("{name}.swap"), bytes),
                    };
                }
                files.insert(format!("{:020}.log.deleted", 99), vec![1; 70]);
                files.insert("leader-epoch-checkpoint.tmp".to_owned(), vec![1; 7]);
                let (there, names) = load_files(&files, &before);
                assert_eq!(there, wanted, "{order:?}, {renamed} renamed, {left} left");
                let strays = ["swap", "deleted", "cleaned", "tmp"];
                let is_stray = |name: &String| strays.iter().any(|s| name.ends_with(s));
                assert!(!names.iter().any(is_stray), "{names:?}");
                let logs = names.iter().filter(|name| name.ends_with(".log"));
                assert_eq!(logs.count(), 2, "{names:?}");
                let has_txn_index = names.contains(&format!("{base}.txnindex"));
                assert_eq!(has_txn_index, order == KAFKAS, "{names:?}");
                states += 1;
            }
        }
    }
    assert!(states > 20, "{states} states");
}

#[test]
fn c5_given_a_lower_cleaned_then_the_swap_of_a_split_segment_is_discarded() {
    // One large segment; its second half stands ready, the first is not finished.
    let (world, node, rt, line) = world_with_log(5);
    let (log, before) = world.block_on(&rt, log_to_merge(&rt, &line));
    world.block_on(&rt, async {
        line.compact(&rt, &log).await;
        log.close().await.unwrap();
    });
    let whole = files_of(&node);
    let first = format!("{:020}", 0);
    let bytes = whole[&format!("{first}.log")].clone();
    let (mut half_at, mut half_base) = (0, 0);
    for view in Batches::new(bytes.clone().into()).map(Result::unwrap) {
        half_base = view.header().base_offset;
        if half_at > bytes.len() / 2 {
            break;
        }
        half_at += view.bytes().len();
    }
    assert!(half_base > 0 && half_at < bytes.len());
    let (wanted, wanted_names) = load_files(&whole, &before);
    for lower in [true, false] {
        let mut files = whole.clone();
        let half = format!("{half_base:020}.log.swap");
        files.insert(half, bytes[half_at..].to_vec());
        let cleaned = match lower {
            true => format!("{first}.log.cleaned"),
            false => format!("{half_base:020}.index.cleaned"),
        };
        files.insert(cleaned, bytes[..half_at / 2].to_vec());
        let (there, names) = load_files(&files, &before);
        assert_eq!(there, wanted, "nothing twice, nothing lost");
        assert_eq!(names, wanted_names);
    }
}
