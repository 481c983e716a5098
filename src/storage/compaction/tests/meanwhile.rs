//! What happens to the log while a round runs.

use super::*;

#[test]
fn a_reader_sees_every_surviving_record_once_while_segments_are_replaced() {
    // Which segments there are below an offset.
    let sealed = |log: &Log, below: i64| -> Vec<*const Segment> {
        let state = log.0.state.borrow();
        let complete = state.segments.iter().filter(|s| s.next_offset() < below);
        complete.map(Rc::as_ptr).collect()
    };
    let mut swapped_beneath = 0;
    for seed in 20..26 {
        let (world, _node, rt, line) = world_with_log(seed);
        world.block_on(&rt, async {
            let log = create(&rt).await;
            let mut written = Written::new();
            append_many(&world, &log, 80, &mut written).await;
            let before = log.end_offset();
            let means = line.means(&rt, 1 << 20);
            means.throttle.set_bytes_per_second(200_000);
            let rules = line.rules(&log);
            let read = async {
                let mut all = Vec::new();
                // Until the last group is swapped, and once after that.
                let mut is_done = false;
                while !is_done {
                    is_done = log.cleaned_to().is_some_and(|to| to > 0);
                    log.0.storage.0.cache.remove_log(log.0.id);
                    let segments = sealed(&log, before);
                    all.push(read_from(&log, 0).await);
                    swapped_beneath += usize::from(segments != sealed(&log, before));
                    rt.sleep(std::time::Duration::from_millis(3)).await;
                }
                all
            };
            let more = async {
                let mut more = Written::new();
                for n in 0..10 {
                    append(&log, &[pair("late", n)], &mut more).await;
                    rt.sleep(std::time::Duration::from_millis(7)).await;
                }
                more
            };
            let compact = log.compact(&rules, &means);
            let ((done, reads), more) =
                futures_lite::future::zip(futures_lite::future::zip(compact, read), more).await;
            let done = done.unwrap();
            assert!(done.segments_after > 1 && done.bytes_after < done.bytes_before);
            let mut all = written.clone();
            all.extend(more);
            let survive = expected(&written, done.cleaned_to);
            for read in &reads {
                assert!(
                    read.windows(2).all(|w| w[0].0 < w[1].0),
                    "each once, in order"
                );
                assert!(read.iter().all(|record| all.contains(record)));
                for record in &survive {
                    assert!(read.contains(record), "{record:?} was not seen");
                }
            }
            let sizes: BTreeSet<usize> = reads
                .iter()
                .map(|r| r.iter().filter(|w| w.0 < before).count())
                .collect();
            assert!(
                sizes.len() > 2,
                "some were read between two swaps: {sizes:?}"
            );
        });
    }
    assert!(swapped_beneath > 0, "no read was under way during a swap");
}

#[test]
fn truncation_retention_and_close_in_between_end_a_round_without_harm() {
    let (mut early, mut whole) = (0, 0);
    for what in 0..3u8 {
        for after_ms in (0..400).step_by(40) {
            let (world, _node, rt, line) = world_with_log(40 + after_ms);
            world.block_on(&rt, async {
                let log = create(&rt).await;
                log.record_cleaned_with(line.recorder());
                let mut written = Written::new();
                append_many(&world, &log, 80, &mut written).await;
                let end = log.end_offset();
                let means = line.means(&rt, 1 << 20);
                means.throttle.set_bytes_per_second(100_000);
                let rules = line.rules(&log);
                let meanwhile = async {
                    rt.sleep(std::time::Duration::from_millis(after_ms)).await;
                    match what {
                        0 => assert!(log.truncate_to(end / 2).await.unwrap() <= end / 2),
                        1 => {
                            let rules = RetentionRules {
                                retention_ms: -1,
                                retention_bytes: 6_000,
                                bound: end,
                                now_ms: NOW_MS,
                            };
                            let start = log.expired_up_to(rules).await.unwrap();
                            log.settle_below(start).await.unwrap();
                            log.set_log_start(start);
                            log.remove_head().await.unwrap();
                        }
                        _ => assert_eq!(log.close().await.unwrap(), end),
                    }
                };
                let (done, ()) =
                    futures_lite::future::zip(log.compact(&rules, &means), meanwhile).await;
                match &done {
                    Ok(done) if !done.ended_early => whole += 1,
                    Ok(_) => early += 1,
                    Err(CompactionError::Closed(_)) if what == 2 => early += 1,
                    Err(error) => panic!("{error}"),
                }
                let end = match what {
                    2 => end,
                    _ => {
                        let end = log.end_offset();
                        log.close().await.unwrap();
                        end
                    }
                };
                let log_start = log.log_start_offset();
                let mode = LoadMode {
                    clean: true,
                    cleaned_to: line.0.get(),
                    log_start: (what == 1).then_some(log_start),
                    ..LoadMode::default()
                };
                let storage = Storage::new(rt.clone(), limits());
                let opened = Log::open(&storage, rt.dir(DIR), config(), mode).await;
                let log = opened.unwrap().0;
                assert_eq!(log.end_offset(), end);
                let there = read_from(&log, log_start).await;
                let kept: Written = written.iter().filter(|w| w.0 < end).cloned().collect();
                for record in expected(&kept, end).iter().filter(|w| w.0 >= log_start) {
                    // A cut may take what superseded a record that was compacted away before.
                    let superseded = written.iter().any(|w| w.1 == record.1 && w.0 > record.0);
                    assert!(
                        there.contains(record) || (what == 0 && superseded),
                        "{record:?}"
                    );
                }
                log.compact(&line.rules(&log), &line.means(&rt, 1 << 20))
                    .await
                    .unwrap();
            });
        }
    }
    assert!(early > 5 && whole > 0, "{early} early, {whole} whole");
}
