//! Compaction of a partition while its disk fails, its head goes and its records are young.
//! After each the last record of every key is there, once.

use super::*;
use crate::runtime::sim::WriteFault;
use crate::runtime::SyncSite;
use crate::storage::{Compacted, CompactionError, CompactionMeans, Throttle};
use futures_lite::future::zip;
use std::collections::BTreeMap;
use std::path::Path;

const DIR: &str = "/data/orders-3";

fn compacted() -> TopicConfig {
    TopicConfig {
        segment_bytes: 3_000,
        cleanup_compact: true,
        cleanup_delete: true,
        retention_ms: -1,
        retention_bytes: -1,
        file_delete_delay_ms: 0,
        ..config(FlushOnAck::All)
    }
}

/// How far it is compacted, as the data directory would keep it.
#[derive(Clone, Default)]
struct Line(Rc<Cell<Option<i64>>>);

impl Line {
    fn means(&self, rt: &Rt) -> CompactionMeans {
        let line = self.0.clone();
        CompactionMeans {
            throttle: Throttle::new(rt.clone(), 0),
            map_bytes: 1 << 20,
            record: Rc::new(move |offset| {
                line.set(Some(offset));
                Box::pin(std::future::ready(Ok(())))
            }),
            stop: Event::new(),
        }
    }

    async fn compact(
        &self,
        rt: &Rt,
        partition: &Partition,
    ) -> Result<Option<Compacted>, CompactionError> {
        partition.compact(&self.means(rt)).await
    }

    fn load(&self) -> PartitionLoad {
        PartitionLoad::Open {
            clean: false,
            recovery_point: None,
            log_start: None,
            cleaned_to: self.0.get(),
            high_watermark: None,
        }
    }
}

/// Of each key the last offset, and all values by offset.
#[derive(Default)]
struct Produced {
    last: BTreeMap<String, i64>,
    values: BTreeMap<i64, Vec<u8>>,
}

impl Produced {
    /// Produces records over a few keys, and waits until they are durable.
    async fn fill(&mut self, rt: &Rt, partition: &Partition, count: usize) {
        for _ in 0..count {
            let n = self.values.len();
            let key = format!("key {}", n % 7);
            let value = format!("{n:0>400}").into_bytes();
            let now_ms = rt.wall_clock_ms();
            let mut builder = BatchBuilder::new();
            builder.push(now_ms, Some(key.as_bytes()), Some(&value));
            let ticket = partition
                .produce_now(builder.build(), Acks::All, now_ms, None)
                .expect("it is accepted");
            let offset = ticket.base_offset;
            ticket.done.await.expect("it is flushed");
            self.last.insert(key, offset);
            self.values.insert(offset, value);
        }
    }

    /// What is read is what was written, each once, and the last of each key from `start` on.
    async fn check(&self, partition: &Partition) -> usize {
        let there = read_all(partition).await;
        assert!(
            there.windows(2).all(|w| w[0].0 < w[1].0),
            "each once, in order"
        );
        for (offset, value) in &there {
            assert_eq!(self.values.get(offset), Some(value), "at {offset}");
        }
        let start = partition.numbers().log_start_offset;
        for (key, offset) in self.last.iter().filter(|(_, offset)| **offset >= start) {
            assert!(
                there.iter().any(|(at, _)| at == offset),
                "{key} is gone, at {offset}"
            );
        }
        there.len()
    }
}

/// The last segment with records below the line.
fn compacted_segment(bed: &Bed, line: i64) -> i64 {
    let files = bed.disk().list_raw(DIR).into_iter();
    let bases = files.filter(|(_, len)| *len > 0).filter_map(|(path, _)| {
        let name = path.file_name()?.to_str()?.strip_suffix(".log")?.to_owned();
        name.parse::<i64>().ok().filter(|base| *base < line)
    });
    bases.max().expect("some records are left")
}

fn left(bed: &Bed, part: &str) -> usize {
    let files = bed.disk().list_raw(DIR);
    let has = |path: &Path| path.to_string_lossy().contains(part);
    files.iter().filter(|(path, _)| has(path)).count()
}

/// Counts what the owner is told of the device.
fn reports(partition: &Partition) -> Rc<Cell<usize>> {
    let reports = Rc::new(Cell::new(0));
    let counter = reports.clone();
    partition.on_device_error(move |_, _| counter.set(counter.get() + 1));
    reports
}

/// The partition after a power cut, as the next start loads it, and compacted to the end.
fn check_after_a_power_cut(mut bed: Bed, partition: Partition, line: &Line, produced: &Produced) {
    drop(partition);
    bed.node.crash();
    bed.rt = bed.node.restart();
    bed.storage = storage(&bed.rt);
    let partition = bed.open(options(&bed.rt, compacted(), line.load()));
    bed.run(async {
        assert_eq!(left(&bed, ".cleaned") + left(&bed, ".swap"), 0);
        let before = produced.check(&partition).await;
        let done = line.compact(&bed.rt, &partition).await.unwrap().unwrap();
        assert!(!done.ended_early);
        assert!(produced.check(&partition).await <= before);
    });
}

/// A partition with sealed segments, some of which were compacted before.
fn bed_with_some(seed: u64) -> (Bed, Partition, Line, Produced) {
    let bed = Bed::new(seed);
    let partition = bed.create(compacted());
    let (line, mut produced) = (Line::default(), Produced::default());
    bed.run(async {
        produced.fill(&bed.rt, &partition, 40).await;
        let done = line.compact(&bed.rt, &partition).await.unwrap().unwrap();
        assert!(done.records_after < done.records_before);
        produced.fill(&bed.rt, &partition, 40).await;
    });
    (bed, partition, line, produced)
}

#[test]
fn where_the_device_fails_to_read_the_replica_goes_offline_and_nothing_is_lost() {
    // What is compacted already is read when its successor is begun.
    for (seed, dirty) in [(1, false), (2, true)] {
        let (bed, partition, line, produced) = bed_with_some(seed);
        let reports = reports(&partition);
        let means = line.means(&bed.rt);
        bed.run(async {
            let line = line.0.get().unwrap();
            let base = match dirty {
                false => compacted_segment(&bed, line),
                true => line,
            };
            let path = format!("{DIR}/{base:020}.log");
            bed.disk().fail_reads(&path, libc::EIO);
            let error = partition.compact(&means).await.unwrap_err();
            assert!(bed.disk().faults_fired() > 0, "{path} was read");
            assert!(matches!(error, CompactionError::Unreadable(_)), "{error}");
            bed.disk().clear_faults();
            assert_eq!(partition.state(), PartitionState::Offline);
            assert_eq!(reports.get(), 0, "the directory serves on");
            assert_eq!(left(&bed, ".cleaned"), 0);
            assert!(partition.compaction_need().await.unwrap().is_none());
        });
        check_after_a_power_cut(bed, partition, &line, &produced);
    }
}

#[test]
fn where_the_device_fails_to_write_or_flush_the_directory_is_given_up_and_nothing_is_lost() {
    let flushes = [
        (SyncSite::CompactedSegment, 1),
        (SyncSite::CompactedSegment, 2),
        (SyncSite::CompactedSegment, 4),
        (SyncSite::CompactionSwap, 1),
        (SyncSite::CompactionSwap, 2),
        (SyncSite::CompactionSwap, 3),
        (SyncSite::CompactionSwap, 4),
    ];
    for fault in std::iter::once(None).chain(flushes.into_iter().map(Some)) {
        let (bed, partition, line, produced) = bed_with_some(3);
        let reports = reports(&partition);
        bed.run(async {
            match fault {
                None => bed
                    .disk()
                    .fail_writes(".cleaned", WriteFault::Errno(libc::EIO)),
                Some((site, n)) => bed.disk().fail_nth_sync(Some(site), n, libc::EIO),
            }
            let error = line.compact(&bed.rt, &partition).await.unwrap_err();
            assert_eq!(bed.disk().faults_fired(), 1, "{fault:?}");
            assert!(matches!(error, CompactionError::Device(_)), "{error}");
            assert_eq!(partition.state(), PartitionState::Offline, "{fault:?}");
            assert_eq!(reports.get(), 1, "{fault:?}");
            bed.disk().clear_faults();
        });
        check_after_a_power_cut(bed, partition, &line, &produced);
    }
}

#[test]
fn where_there_is_no_space_the_partition_serves_on_and_is_compacted_once_there_is() {
    // The segment's bytes, its indexes, and its names.
    for step in ["write", "index", "space"] {
        let (bed, partition, line, mut produced) = bed_with_some(4);
        bed.run(async {
            let all = 1 << 30;
            match step {
                "write" => bed
                    .disk()
                    .fail_writes(".log.cleaned", WriteFault::Errno(libc::ENOSPC)),
                "index" => bed
                    .disk()
                    .fail_writes(".index.cleaned", WriteFault::Errno(libc::ENOSPC)),
                _ => bed.disk().set_capacity(bed.disk().used_bytes()),
            }
            for _ in 0..2 {
                let error = line.compact(&bed.rt, &partition).await.unwrap_err();
                assert!(matches!(error, CompactionError::NoSpace(_)), "{error}");
                assert_eq!(partition.state(), PartitionState::Online, "{step}");
                assert_eq!(left(&bed, ".cleaned"), 0, "{step}");
                produced.check(&partition).await;
            }
            assert!(bed.disk().faults_fired() > 1, "{step}");
            bed.disk().clear_faults();
            bed.disk().set_capacity(all);
            produced.fill(&bed.rt, &partition, 3).await;
            let before = produced.check(&partition).await;
            let done = line.compact(&bed.rt, &partition).await.unwrap().unwrap();
            assert!(!done.ended_early);
            assert!(produced.check(&partition).await < before);
        });
        check_after_a_power_cut(bed, partition, &line, &produced);
    }
}

#[test]
fn where_there_is_no_space_within_a_swap_the_partition_is_rebuilt_and_serves_on() {
    // A rename may need a block of the directory: to `.swap`, away, and to the final names.
    let to_swap = [".timeindex.cleaned", ".index.cleaned", ".log.cleaned"];
    let to_final = [".timeindex.swap", ".index.swap", ".log.swap"];
    let away = [".index", ".timeindex", ".log"];
    for (at, name) in to_swap.into_iter().chain(to_final).chain(away).enumerate() {
        let (bed, partition, line, mut produced) = bed_with_some(5);
        bed.run(async {
            let name = match at < 6 {
                true => name.to_owned(),
                false => format!("{:020}{name}", line.0.get().unwrap()),
            };
            bed.disk().fail_ops("rename", &name, libc::ENOSPC);
            let failed = line.compact(&bed.rt, &partition).await;
            assert!(bed.disk().faults_fired() > 0, "{name}");
            assert!(failed.is_err(), "{name}");
            bed.disk().clear_faults();
            eventually(&bed.rt, "rebuilt", || {
                partition.state() == PartitionState::Online
            })
            .await;
            produced.check(&partition).await;
            produced.fill(&bed.rt, &partition, 3).await;
            let done = line.compact(&bed.rt, &partition).await.unwrap().unwrap();
            assert!(!done.ended_early);
            produced.check(&partition).await;
        });
        check_after_a_power_cut(bed, partition, &line, &produced);
    }
}

#[test]
fn a_stop_in_the_midst_ends_a_round_quietly_and_leaves_nothing_half_made() {
    let (mut early, mut whole) = (0, 0);
    for after_ms in (0..1_500).step_by(100) {
        let (bed, partition, line, produced) = bed_with_some(after_ms);
        bed.run(async {
            let means = line.means(&bed.rt);
            means.throttle.set_bytes_per_second(100_000);
            let stop = async {
                bed.rt.sleep(Duration::from_millis(after_ms)).await;
                means.stop.notify_all();
            };
            let (done, ()) = zip(partition.compact(&means), stop).await;
            match done.unwrap().unwrap().ended_early {
                true => early += 1,
                false => whole += 1,
            }
            assert_eq!(left(&bed, ".cleaned") + left(&bed, ".swap"), 0);
            assert_eq!(partition.state(), PartitionState::Online);
            produced.check(&partition).await;
            let done = line.compact(&bed.rt, &partition).await.unwrap().unwrap();
            assert!(!done.ended_early);
            produced.check(&partition).await;
        });
        check_after_a_power_cut(bed, partition, &line, &produced);
    }
    assert!(early > 3 && whole > 0, "{early} early, {whole} whole");
}

#[test]
fn a_partition_that_closes_in_the_midst_of_a_round_is_no_failure() {
    let mut within = 0;
    for after_ms in (0..300).step_by(20) {
        let (bed, partition, line, produced) = bed_with_some(after_ms);
        bed.run(async {
            let means = line.means(&bed.rt);
            means.throttle.set_bytes_per_second(100_000);
            let close = async {
                bed.rt.sleep(Duration::from_millis(after_ms)).await;
                partition.close().await.unwrap();
            };
            let (done, ()) = zip(partition.compact(&means), close).await;
            within += usize::from(!matches!(done.unwrap(), Some(done) if !done.ended_early));
        });
        check_after_a_power_cut(bed, partition, &line, &produced);
    }
    assert!(within > 3, "{within} rounds were ended by the close");
}

#[test]
fn young_records_wait_for_the_least_lag_and_old_ones_make_the_log_overdue() {
    let bed = Bed::new(7);
    let config = TopicConfig {
        min_compaction_lag_ms: 60_000,
        max_compaction_lag_ms: 120_000,
        ..compacted()
    };
    let partition = bed.create(config);
    let (line, mut produced) = (Line::default(), Produced::default());
    bed.run(async {
        produced.fill(&bed.rt, &partition, 40).await;
        let need = || async { partition.compaction_need().await.unwrap().unwrap() };
        let young = need().await;
        assert_eq!((young.dirty_bytes, young.overdue), (0, false));
        let done = line.compact(&bed.rt, &partition).await.unwrap().unwrap();
        assert_eq!((done.segments_before, line.0.get()), (0, None));
        assert_eq!(produced.check(&partition).await, 40);

        bed.rt.sleep(Duration::from_secs(61)).await;
        let grown = need().await;
        assert!(grown.dirty_bytes > 0 && !grown.overdue, "{grown:?}");
        bed.rt.sleep(Duration::from_secs(60)).await;
        assert!(need().await.overdue);
        // Those that come now are young again.
        produced.fill(&bed.rt, &partition, 40).await;
        let end = need().await.end;
        assert!(end <= 40, "{end}");
        let done = line.compact(&bed.rt, &partition).await.unwrap().unwrap();
        assert_eq!(done.cleaned_to, end);
        assert!(produced.check(&partition).await < 80);
        let there = read_all(&partition).await;
        assert_eq!(
            there.iter().filter(|(at, _)| *at >= end).count(),
            80 - end as usize
        );
        assert!(!need().await.overdue);
    });
    check_after_a_power_cut(bed, partition, &line, &produced);
}

#[test]
fn where_the_head_goes_meanwhile_a_round_and_a_look_end_quietly() {
    let (mut early, mut whole, mut moved) = (0, 0, 0);
    for seed in 0..120u64 {
        // Loaded anew, so that segments are opened when they are first asked for.
        let (mut bed, partition, line, produced) = bed_with_some(seed);
        bed.run(async { partition.close().await.unwrap() });
        drop(partition);
        bed.node.kill();
        bed.rt = bed.node.restart();
        bed.storage = storage(&bed.rt);
        let config = TopicConfig {
            min_compaction_lag_ms: 1,
            max_compaction_lag_ms: 5,
            ..compacted()
        };
        let mut partition_options = options(&bed.rt, config, line.load());
        let delay = Duration::from_micros(seed % 7 * 150);
        let rt = bed.rt.clone();
        partition_options.record_log_start = Rc::new(move |_| {
            let rt = rt.clone();
            Box::pin(async move {
                rt.sleep(delay).await;
                Ok(())
            })
        });
        let partition = bed.open(partition_options);
        bed.run(async {
            bed.rt.sleep(Duration::from_millis(20)).await;
            let means = line.means(&bed.rt);
            if seed % 2 == 0 {
                means.throttle.set_bytes_per_second(3_000_000);
            }
            let end = partition.numbers().end_offset;
            let to = 10 + (seed as i64 * 13) % (end - 10);
            let remove = async {
                bed.rt
                    .sleep(Duration::from_micros(seed * 1_370 % 200_000))
                    .await;
                partition.delete_records(to).await.unwrap();
                partition.remove_segments().await.unwrap();
            };
            let look = async {
                for _ in 0..8 {
                    partition.compaction_need().await.unwrap().unwrap();
                    bed.rt.yield_if_needed().await;
                }
            };
            let round = zip(look, partition.compact(&means));
            let (((), done), ()) = zip(round, remove).await;
            match done.unwrap().unwrap().ended_early {
                true => early += 1,
                false => whole += 1,
            }
            assert_eq!(partition.numbers().log_start_offset, to);
            moved += usize::from(left(&bed, &format!("{:020}.log", 0)) == 0);
            assert_eq!(left(&bed, ".cleaned") + left(&bed, ".swap"), 0);
            produced.check(&partition).await;
            let done = line.compact(&bed.rt, &partition).await.unwrap().unwrap();
            assert!(!done.ended_early);
            produced.check(&partition).await;
        });
    }
    println!("{early} early, {whole} whole, {moved} heads removed");
    assert!(early > 10 && whole > 10 && moved > 50);
}

#[test]
fn what_no_setting_makes_room_for_is_said_and_not_taken_for_a_stop() {
    let (bed, partition, line, produced) = bed_with_some(8);
    bed.run(async {
        let means = CompactionMeans {
            map_bytes: 1,
            ..line.means(&bed.rt)
        };
        let error = partition.compact(&means).await.unwrap_err();
        assert!(matches!(error, CompactionError::Unfit(_)), "{error}");
        assert!(error.to_string().contains("log.cleaner.dedupe.buffer.size"));
        assert_eq!(partition.state(), PartitionState::Online);
        produced.check(&partition).await;
    });
}
