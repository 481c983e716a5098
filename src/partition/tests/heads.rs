//! Everything at once: idempotent producers that try again, DeleteRecords, retention,
//! checkpoints, readers, writes that fail, and a power cut at the end. `HIGHWATER_SIM_SEEDS` is how many times.

use super::*;
use crate::runtime::sim::{PowerCut, WriteFault};
use crate::runtime::Queue;
use std::collections::BTreeMap;

const PRODUCERS: i64 = 3;
const BATCHES: i32 = 60;
const SEEDS: u64 = 30;

/// What the outside knows.
#[derive(Default)]
struct Known {
    /// Producer and sequence of each acknowledged record, by its offset.
    acknowledged: RefCell<BTreeMap<i64, (i64, i32)>>,
    /// The log start that was recorded last.
    recorded: Cell<i64>,
    at_work: Cell<i64>,
    retried: Cell<u64>,
    removed: Cell<u64>,
}

fn value(id: i64, sequence: i32) -> Vec<u8> {
    format!("{id:4} {sequence:10} {:>900}", "").into_bytes()
}

/// Sends each batch until it is acknowledged.
async fn produce_all(rt: Rt, partition: Partition, known: Rc<Known>, id: i64) {
    for sequence in 0..BATCHES {
        loop {
            let mut batch = BatchBuilder::new().producer(id, 0, sequence);
            batch.push(NOW_MS, None, Some(&value(id, sequence)));
            let produced = partition
                .produce(batch.build(), Acks::All, NOW_MS, None)
                .await;
            let outcome = match produced {
                Ok(ticket) => ticket.done.await.map(|()| ticket.base_offset),
                Err(error) => Err(error.code),
            };
            match outcome {
                Ok(offset) => {
                    let before = known
                        .acknowledged
                        .borrow_mut()
                        .insert(offset, (id, sequence));
                    assert_eq!(before, None, "offset {offset} was given out twice");
                    break;
                }
                Err(code) => assert_eq!(code, ErrorCode::KafkaStorageError),
            }
            known.retried.set(known.retried.get() + 1);
            rt.sleep(Duration::from_millis(rt.random_u64() % 20)).await;
        }
        rt.sleep(Duration::from_micros(rt.random_u64() % 3_000))
            .await;
    }
    known.at_work.set(known.at_work.get() - 1);
}

async fn delete_and_expire(rt: Rt, partition: Partition, known: Rc<Known>) {
    while known.at_work.get() > 0 {
        match rt.random_u64() % 4 {
            0 => {
                let numbers = partition.numbers();
                let above = (numbers.high_watermark - numbers.log_start_offset) as u64;
                let target = numbers.log_start_offset + (rt.random_u64() % (above / 2 + 1)) as i64;
                match partition.delete_records(target).await {
                    Ok(start) => assert!(start >= target && known.recorded.get() >= target),
                    Err(code) => assert_eq!(code, ErrorCode::KafkaStorageError),
                }
            }
            1 => drop(partition.checkpoint().await),
            _ => {
                if let Ok(removed) = partition.expire(NOW_MS).await {
                    known.removed.set(known.removed.get() + removed.segments);
                }
            }
        }
        rt.sleep(Duration::from_micros(rt.random_u64() % 8_000))
            .await;
    }
}

/// Follows the log; whoever is too slow goes on at its start.
async fn consume(rt: Rt, partition: Partition, known: Rc<Known>) {
    let mut offset = 0;
    while known.at_work.get() > 0 {
        match partition.fetch(fetch_from(offset)).await {
            Ok(outcome) => {
                for (place, (at, _)) in records_of(&outcome).iter().enumerate() {
                    assert_eq!(*at, offset + place as i64, "a hole");
                }
                offset = outcome.next_offset;
            }
            Err(ErrorCode::OffsetOutOfRange) => {
                let start = partition.numbers().log_start_offset;
                assert!(offset < start, "{offset} is not below {start}");
                offset = start;
            }
            Err(code) => panic!("{code} at {offset}"),
        }
        rt.sleep(Duration::from_micros(rt.random_u64() % 4_000))
            .await;
    }
}

async fn check(partition: &Partition, known: &Known) {
    let start = partition.numbers().log_start_offset;
    let records: BTreeMap<i64, Vec<u8>> = read_all(partition).await.into_iter().collect();
    let acknowledged = known.acknowledged.borrow();
    for (offset, (id, sequence)) in acknowledged.range(start..) {
        let found = records.get(offset);
        assert_eq!(found, Some(&value(*id, *sequence)), "at {offset}");
    }
    let distinct: std::collections::BTreeSet<&Vec<u8>> = records.values().collect();
    assert_eq!(distinct.len(), records.len(), "a record is there twice");
    assert_eq!(acknowledged.len() as i64, PRODUCERS * i64::from(BATCHES));
    assert_eq!(partition.numbers().next_offset, acknowledged.len() as i64);
}

#[test]
fn given_everything_at_once_when_the_power_is_cut_then_what_lies_above_the_log_start_is_there_once()
{
    let (mut retried, mut removed) = (0, 0);
    let count = std::env::var("HIGHWATER_SIM_SEEDS").map(|count| count.parse());
    let count = count.map_or(SEEDS, |count| count.expect("a number of seeds"));
    for seed in 0..count {
        let mut bed = Bed::new(seed);
        let config = TopicConfig {
            segment_bytes: 16 << 10,
            retention_ms: -1,
            retention_bytes: 40_000,
            file_delete_delay_ms: seed % 3 * 20,
            ..config(FlushOnAck::All)
        };
        let known = Rc::new(Known::default());
        known.at_work.set(PRODUCERS);
        let mut options = options(&bed.rt, config.clone(), PartitionLoad::Create);
        let (recorder, rt) = (known.clone(), bed.rt.clone());
        options.record_log_start = Rc::new(move |offset| {
            let (known, rt) = (recorder.clone(), rt.clone());
            Box::pin(async move {
                rt.sleep(Duration::from_micros(rt.random_u64() % 5_000))
                    .await;
                known.recorded.set(known.recorded.get().max(offset));
                Ok(())
            })
        });
        let partition = bed.open(options);
        bed.run(async {
            let (rt, queue) = (&bed.rt, Queue::Latency);
            for id in 0..PRODUCERS {
                rt.spawn(
                    queue,
                    produce_all(rt.clone(), partition.clone(), known.clone(), id),
                );
            }
            for _ in 0..2 {
                let (partition, known) = (partition.clone(), known.clone());
                rt.spawn(queue, delete_and_expire(rt.clone(), partition, known));
            }
            rt.spawn(queue, consume(rt.clone(), partition.clone(), known.clone()));
            while known.at_work.get() > 0 {
                let fault = WriteFault::Errno(libc::ENOSPC);
                // One at a time: those that wait for writes must not add up while a partition
                // that waits for its rebuild writes nothing.
                bed.disk().clear_faults();
                bed.disk().fail_nth_write(1 + rt.random_u64() % 30, fault);
                rt.sleep(Duration::from_millis(20 + rt.random_u64() % 100))
                    .await;
            }
            bed.disk().clear_faults();
            eventually(rt, "online", || partition.state() == PartitionState::Online).await;
            check(&partition, &known).await;
        });
        drop(partition);
        bed.node.crash_with(PowerCut::Mixed);
        bed.rt = bed.node.restart();
        bed.storage = storage(&bed.rt);
        let load = PartitionLoad::Open {
            cleaned_to: None,
            clean: false,
            recovery_point: None,
            log_start: Some(known.recorded.get()),
            high_watermark: None,
        };
        let partition = bed.open(super::options(&bed.rt, config, load));
        bed.run(async {
            assert_eq!(partition.numbers().log_start_offset, known.recorded.get());
            check(&partition, &known).await;
            for id in 0..PRODUCERS {
                let mut again = BatchBuilder::new().producer(id, 0, BATCHES - 1);
                again.push(NOW_MS, None, Some(&value(id, BATCHES - 1)));
                let again = produce(&partition, again.build(), Acks::All);
                let original = known.acknowledged.borrow()[&again.base_offset];
                assert_eq!(original, (id, BATCHES - 1));
            }
        });
        retried += known.retried.get();
        removed += known.removed.get();
    }
    assert!(retried > count && removed > count, "{retried}, {removed}");
}
