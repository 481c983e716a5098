//! Power cuts at random moments: what was acknowledged is there afterwards.

use super::*;
use crate::runtime::SyncSite;

/// A batch that was answered: its offset, its value, what it had waited for.
type Acked = Rc<RefCell<Vec<(i64, Vec<u8>, Acks)>>>;

/// How many acknowledged batches were lost, by the acks they had waited for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Lost {
    leader: usize,
    all: usize,
}

#[test]
fn under_all_what_acks_all_acknowledged_survives_every_power_cut() {
    let mut lost_leader = 0;
    for seed in 0..150 {
        let lost = cut_and_recover(seed, FlushOnAck::All, None);
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
        let lost = cut_and_recover(seed, FlushOnAck::Any, None);
        assert_eq!(lost, Lost::default(), "a batch is lost (seed {seed})");
    }
}

#[test]
fn without_the_flush_the_same_run_notices_the_loss() {
    let lost: usize = (2_000..2_040)
        .map(|seed| cut_and_recover(seed, FlushOnAck::All, Some(SyncSite::SegmentFlush)).all)
        .sum();
    assert!(lost > 0, "the test would not notice a missing flush");
}

/// Runs producers and checkpoints, cuts the power twice, and compares what the log
/// then holds with what was acknowledged.
fn cut_and_recover(seed: u64, policy: FlushOnAck, broken: Option<SyncSite>) -> Lost {
    let mut bed = Bed::new(seed);
    if let Some(site) = broken {
        bed.disk().disable_sync(site);
    }
    let config = TopicConfig {
        segment_bytes: 32 << 10,
        ..config(policy)
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
            bed.rt.spawn(crate::runtime::Queue::Latency, task);
        }
        let task = checkpoint_on(bed.rt.clone(), partition.clone(), recovery_point.clone());
        bed.rt.spawn(crate::runtime::Queue::Background, task);
        let cut_after = Duration::from_micros(bed.world.random_below(120_000));
        bed.world.run_for(cut_after);
        bed.node.crash();
        drop(partition);

        bed.rt = bed.node.restart();
        bed.storage = storage(&bed.rt);
        let load = PartitionLoad::Open {
            clean: false,
            recovery_point: recovery_point.get(),
            log_start: None,
            high_watermark: None,
        };
        partition = bed.open(options(&bed.rt, config.clone(), load));
        let records = bed.run(read_all(&partition));
        assert_no_hole(&records);
        acked.borrow_mut().retain(|(offset, value, acks)| {
            let found = records.get(*offset as usize);
            // Without the flush, offsets are given out again: that is a loss as well.
            let kept = found.is_some_and(|(_, found)| found == value);
            assert!(
                kept || found.is_none() || broken.is_some(),
                "another record stands at {offset} (seed {seed})"
            );
            match acks {
                _ if kept => {}
                Acks::All => lost.all += 1,
                Acks::Leader | Acks::None => lost.leader += 1,
            }
            kept
        });
    }
    lost
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
        let ticket = produce(&partition, batch(&[&value]), acks);
        ticket.done.await.expect("no fault but the power cut");
        acked.borrow_mut().push((ticket.base_offset, value, acks));
    }
}

async fn checkpoint_on(rt: Rt, partition: Partition, recovery_point: Rc<Cell<Option<i64>>>) {
    loop {
        rt.sleep(Duration::from_millis(rt.random_u64() % 40)).await;
        let point = partition.checkpoint().await.expect("a checkpoint");
        recovery_point.set(Some(point));
    }
}
