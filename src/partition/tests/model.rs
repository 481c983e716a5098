//! Producers, readers, checkpoints and changing settings at once, against a model.
//!
//! The model is a list: `produce` is synchronous, so the offset of every record is
//! known when it returns. Readers must see exactly that list, in order, without a
//! gap, never beyond the high watermark, whatever the interleaving.

use super::*;
use crate::runtime::local::Event;
use crate::runtime::Queue;

#[derive(Default)]
struct Model {
    records: RefCell<Vec<Vec<u8>>>,
    producers: Cell<usize>,
    readers: Cell<usize>,
    changes_ended: Cell<bool>,
    ended: Event,
}

#[test]
fn readers_see_what_was_produced_in_order_and_never_beyond_the_high_watermark() {
    for seed in 0..60 {
        run(seed);
    }
}

fn run(seed: u64) {
    let bed = Bed::new(seed);
    let config = TopicConfig {
        segment_bytes: 40 << 10,
        ..config([FlushOnAck::All, FlushOnAck::Any, FlushOnAck::None][seed as usize % 3])
    };
    let partition = bed.create(config.clone());
    let model = Rc::new(Model::default());
    model.producers.set(4);
    model.readers.set(3);
    for _ in 0..4 {
        let task = producer(bed.rt.clone(), partition.clone(), model.clone());
        bed.rt.spawn(Queue::Latency, task);
    }
    for _ in 0..3 {
        let task = reader(bed.rt.clone(), partition.clone(), model.clone());
        bed.rt.spawn(Queue::Latency, task);
    }
    let task = changes(bed.rt.clone(), partition.clone(), model.clone(), config);
    bed.rt.spawn(Queue::Background, task);
    bed.run(
        model
            .ended
            .wait_until(|| model.readers.get() == 0 && model.changes_ended.get()),
    );
    let numbers = partition.numbers();
    assert_eq!(numbers.next_offset, model.records.borrow().len() as i64);
    assert_eq!(numbers.end_offset, numbers.next_offset);
    let closed = bed.run(partition.close()).expect("a clean stop");
    assert_eq!(closed.recovery_point, numbers.end_offset);
}

async fn producer(rt: Rt, partition: Partition, model: Rc<Model>) {
    for n in 0..60 {
        let values: Vec<Vec<u8>> = (0..1 + rt.random_u64() % 4)
            .map(|_| vec![n; 1 + (rt.random_u64() % 2_000) as usize])
            .collect();
        let acks = [Acks::None, Acks::Leader, Acks::All][(rt.random_u64() % 3) as usize];
        let ticket = produce(&partition, batch(&values), acks);
        let end = {
            let mut records = model.records.borrow_mut();
            assert_eq!(ticket.base_offset, records.len() as i64);
            records.extend(values);
            records.len() as i64
        };
        if rt.random_u64().is_multiple_of(3) {
            continue; // Sends the next without waiting for the answer.
        }
        ticket.done.await.expect("no faults here");
        let numbers = partition.numbers();
        assert!(numbers.end_offset >= end, "answered before it was written");
        if acks == Acks::All {
            assert!(numbers.high_watermark >= end, "answered before the HW");
        }
    }
    model.producers.set(model.producers.get() - 1);
    model.ended.notify_all();
}

async fn reader(rt: Rt, partition: Partition, model: Rc<Model>) {
    let mut offset = 0;
    loop {
        let (moved, ended) = (partition.bound_moved().listen(), model.ended.listen());
        let outcome = partition
            .fetch(FetchSpec {
                bytes_max: (rt.random_u64() % 20_000) as usize,
                ..fetch_from(offset)
            })
            .await
            .expect("a fetch");
        assert!(outcome.next_offset <= outcome.high_watermark.max(offset));
        for (at, value) in records_of(&outcome) {
            if at >= offset {
                assert_eq!(at, offset, "a gap");
                assert_eq!(value, model.records.borrow()[at as usize]);
                offset += 1;
            }
        }
        assert_eq!(offset, outcome.next_offset);
        if outcome.bytes > 0 {
            continue;
        }
        let total = model.records.borrow().len() as i64;
        if model.producers.get() == 0 && offset == total {
            break;
        }
        futures_lite::future::or(moved, ended).await;
    }
    model.readers.set(model.readers.get() - 1);
    model.ended.notify_all();
}

/// Checkpoints and changes of the policy. Whatever the last one is, the last records
/// become visible.
async fn changes(rt: Rt, partition: Partition, model: Rc<Model>, config: TopicConfig) {
    while model.producers.get() > 0 {
        rt.sleep(Duration::from_millis(rt.random_u64() % 30)).await;
        if rt.random_u64().is_multiple_of(2) {
            partition.checkpoint().await.expect("a checkpoint");
        } else {
            let flush_on_ack = [FlushOnAck::All, FlushOnAck::Any, FlushOnAck::None]
                [(rt.random_u64() % 3) as usize];
            partition.set_config(TopicConfig {
                flush_on_ack,
                ..config.clone()
            });
        }
        let numbers = partition.numbers();
        assert!(numbers.log_start_offset <= numbers.high_watermark);
        assert!(numbers.high_watermark <= numbers.end_offset);
        assert!(numbers.flushed_offset <= numbers.end_offset);
        assert!(numbers.end_offset <= numbers.next_offset);
    }
    model.changes_ended.set(true);
    model.ended.notify_all();
}
