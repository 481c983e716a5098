//! Power cuts at random moments: what was acknowledged is there afterwards.

use super::*;
use crate::runtime::sim::WriteFault;
use crate::runtime::{Queue, SyncSite};
use crate::storage::LoadError;

/// A batch that was answered: its offset, its value, what it had waited for.
type Acked = Rc<RefCell<Vec<(i64, Vec<u8>, Acks)>>>;

/// How many acknowledged batches were lost, by the acks they had waited for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Lost {
    leader: usize,
    all: usize,
}

/// One run: what is random comes from the seed.
#[derive(Debug, Clone, Copy)]
struct Run {
    seed: u64,
    policy: FlushOnAck,
    /// A sync that answers success and does nothing.
    broken: Option<SyncSite>,
    /// Writes that fail now and then, in ways that leave the device usable.
    faults: bool,
}

impl Run {
    fn new(seed: u64, policy: FlushOnAck) -> Run {
        Run {
            seed,
            policy,
            broken: None,
            faults: false,
        }
    }
}

#[test]
fn under_all_what_acks_all_acknowledged_survives_every_power_cut() {
    let mut lost_leader = 0;
    for seed in 0..150 {
        let lost = cut_and_recover(Run::new(seed, FlushOnAck::All)).0;
        assert_eq!(lost.all, 0, "an acknowledged batch is lost (seed {seed})");
        lost_leader += lost.leader;
    }
    assert!(
        lost_leader > 0,
        "no power cut lost anything: none was tested"
    );
}

#[test]
fn under_any_what_acks_one_acknowledged_survives_too() {
    for seed in 1_000..1_100 {
        let lost = cut_and_recover(Run::new(seed, FlushOnAck::Any)).0;
        assert_eq!(lost, Lost::default(), "a batch is lost (seed {seed})");
    }
}

#[test]
fn without_the_flush_the_same_run_notices_the_loss() {
    let lost: usize = (2_000..2_040)
        .map(|seed| {
            let run = Run {
                broken: Some(SyncSite::SegmentFlush),
                ..Run::new(seed, FlushOnAck::All)
            };
            // What was never flushed may also be served with a wrong CRC.
            let ended = std::panic::catch_unwind(|| cut_and_recover(run).0.all);
            ended.unwrap_or(1)
        })
        .sum();
    assert!(lost > 0, "the test would not notice a missing flush");
}

#[test]
fn with_failing_writes_and_rebuilds_in_between_nothing_acknowledged_is_lost() {
    let mut fired = 0;
    for seed in 3_000..3_100 {
        let run = Run {
            faults: true,
            ..Run::new(seed, [FlushOnAck::All, FlushOnAck::Any][seed as usize % 2])
        };
        let (lost, faults) = cut_and_recover(run);
        assert_eq!(lost.all, 0, "an acknowledged batch is lost (seed {seed})");
        if run.policy == FlushOnAck::Any {
            assert_eq!(
                lost.leader, 0,
                "an acknowledged batch is lost (seed {seed})"
            );
        }
        fired += faults;
    }
    assert!(fired > 100, "{fired} writes failed, which is too few");
}

/// Runs producers and checkpoints, cuts the power twice, and compares what the log
/// then holds with what was acknowledged. Returns the losses, and how many writes
/// failed.
fn cut_and_recover(run: Run) -> (Lost, u64) {
    let mut bed = Bed::new(run.seed);
    if let Some(site) = run.broken {
        bed.disk().disable_sync(site);
    }
    let config = TopicConfig {
        segment_bytes: 32 << 10,
        ..config(run.policy)
    };
    let acked = Acked::default();
    // As the checkpoint file of the data directory would hold it.
    let recovery_point = Rc::new(Cell::new(None));
    let mut partition = bed.create(config.clone());
    let mut lost = Lost::default();
    for round in 0..2 {
        for producer in 0..4 {
            let name = format!("{round}-{producer}");
            let task = produce_on(bed.rt.clone(), partition.clone(), name, acked.clone());
            bed.rt.spawn(Queue::Latency, task);
        }
        let task = checkpoint_on(bed.rt.clone(), partition.clone(), recovery_point.clone());
        bed.rt.spawn(Queue::Background, task);
        if run.faults {
            let task = fail_writes_on(bed.rt.clone(), bed.disk());
            bed.rt.spawn(Queue::Background, task);
        }
        let cut_after = Duration::from_micros(bed.world.random_below(120_000));
        bed.world.run_for(cut_after);
        bed.node.crash();
        bed.disk().clear_faults();
        drop(partition);

        bed.rt = bed.node.restart();
        bed.storage = storage(&bed.rt);
        let load = PartitionLoad::Open {
            cleaned_to: None,
            clean: false,
            recovery_point: recovery_point.get(),
            log_start: None,
            high_watermark: None,
        };
        let options = options(&bed.rt, config.clone(), load);
        partition = match bed.run(Partition::open(&bed.storage, options)) {
            Ok((partition, _)) => partition,
            Err(LoadError::Damaged { .. }) if run.broken.is_some() => {
                // Flushed data is missing, and the load says so.
                lost.all += acked.borrow().len();
                return (lost, 0);
            }
            Err(error) => panic!("{error} (seed {})", run.seed),
        };
        let records = bed.run(read_all(&partition));
        assert_no_hole(&records);
        acked.borrow_mut().retain(|(offset, value, acks)| {
            let found = records.get(*offset as usize);
            // Without the flush, offsets are given out again: that is a loss as well.
            let kept = found.is_some_and(|(_, found)| found == value);
            assert!(
                kept || found.is_none() || run.broken.is_some(),
                "another record stands at {offset} (seed {})",
                run.seed
            );
            match acks {
                _ if kept => {}
                Acks::All => lost.all += 1,
                Acks::Leader | Acks::None => lost.leader += 1,
            }
            kept
        });
    }
    (lost, bed.disk().faults_fired())
}

async fn produce_on(rt: Rt, partition: Partition, name: String, acked: Acked) {
    for n in 0.. {
        let size = rt.random_u64() % 3_000;
        let mut value = format!("{name}-{n}").into_bytes();
        value.resize(value.len() + size as usize, b'.');
        let acks = match rt.random_u64() % 3 {
            0 => Acks::Leader,
            _ => Acks::All,
        };
        let done = match partition.produce_now(batch(&[&value]), acks, NOW_MS, None) {
            Ok(ticket) => {
                let base_offset = ticket.base_offset;
                ticket.done.await.map(|()| base_offset)
            }
            Err(error) => Err(error.code),
        };
        match done {
            Ok(base_offset) => acked.borrow_mut().push((base_offset, value, acks)),
            Err(code) => {
                assert_eq!(code, ErrorCode::KafkaStorageError);
                let reason = partition.0.why_refused();
                assert_ne!(partition.state(), PartitionState::Offline, "{reason}");
                rt.sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

async fn fail_writes_on(rt: Rt, disk: SimDisk) {
    loop {
        rt.sleep(Duration::from_millis(1 + rt.random_u64() % 15))
            .await;
        let fault = match rt.random_u64() % 3 {
            0 => WriteFault::Errno(libc::ENOSPC),
            1 => WriteFault::Errno(libc::EMFILE),
            _ => WriteFault::Short,
        };
        disk.fail_nth_write(1 + rt.random_u64() % 5, fault);
    }
}

async fn checkpoint_on(rt: Rt, partition: Partition, recovery_point: Rc<Cell<Option<i64>>>) {
    loop {
        rt.sleep(Duration::from_millis(rt.random_u64() % 40)).await;
        // Refused while the partition is fenced, or hit by a failing write itself.
        if let Ok(point) = partition.checkpoint().await {
            recovery_point.set(Some(point));
        }
    }
}
