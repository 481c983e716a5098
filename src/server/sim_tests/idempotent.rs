//! An idempotent producer that outlives the broker: what was not answered when the power
//! was cut it sends again to the next life, with the same sequences, as clients do. Each
//! of its records is then in the log exactly once and in order.

use super::{connect, Known, PARTITIONS, STORAGE, TOPIC};
use crate::client::{BrokerConnection, ClientError};
use crate::protocol::batch::BatchBuilder;
use crate::protocol::messages::*;
use crate::protocol::{Records, Str};
use crate::runtime::Rt;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

/// What such a producer remembers over the lives of the broker.
#[derive(Default)]
pub(super) struct Outbox {
    /// The lives of the broker so far. A task of an earlier one changes nothing any more.
    pub(super) life: Cell<u64>,
    id: Cell<Option<i64>>,
    /// By partition.
    partitions: RefCell<Vec<Pending>>,
    /// Batches that were answered although they had been sent before.
    pub(super) retried: Cell<u64>,
    /// Those of them that a consumer had seen before they were sent again.
    pub(super) duplicates: Cell<u64>,
}

#[derive(Default)]
struct Pending {
    next_sequence: i32,
    /// Not answered, the oldest first: no more than a client has in flight.
    batches: VecDeque<Batch>,
}

#[derive(Clone, Copy)]
struct Batch {
    sequence: i32,
    records: i32,
    sent_before: bool,
}

impl Batch {
    fn build(&self, id: i64, timestamp: i64) -> Bytes {
        let mut builder = BatchBuilder::new().producer(id, 0, self.sequence);
        for sequence in self.sequence..self.sequence + self.records {
            builder.push(timestamp, None, Some(value(sequence).as_bytes()));
        }
        builder.build()
    }
}

fn value(sequence: i32) -> String {
    format!("{PREFIX}{sequence}")
}

/// Sends what is left of earlier lives, and then new batches, until an error.
pub(super) async fn produce(rt: &Rt, addr: SocketAddr, known: &Known) -> Result<(), ClientError> {
    let outbox = &known.outbox;
    let life = outbox.life.get();
    let connection = connect(rt, addr).await?;
    if outbox.id.get().is_none() {
        let request = InitProducerIdRequest {
            transactional_id: None,
            ..Default::default()
        };
        let answer = connection.call(&request).await?;
        if answer.error_code != 0 || outbox.life.get() != life {
            return Ok(());
        }
        outbox.id.set(Some(answer.producer_id));
        let pending = (0..PARTITIONS).map(|_| Pending::default());
        outbox.partitions.replace(pending.collect());
    }
    let id = outbox.id.get().expect("it was given one");
    while outbox.life.get() == life {
        let partition = (rt.random_u64() % PARTITIONS as u64) as usize;
        let batches = outbox.fill(partition, rt);
        let mut waits = Vec::new();
        for batch in &batches {
            let records = batch.build(id, rt.wall_clock_ms());
            waits.push(send(&connection, partition as i32, records).await?);
        }
        for (batch, wait) in batches.into_iter().zip(waits) {
            let answer = wait.await?;
            if outbox.life.get() != life {
                return Ok(());
            }
            let answer = &answer.responses[0].partition_responses[0];
            if answer.error_code != 0 {
                let why = &answer.error_message;
                assert_eq!(answer.error_code, STORAGE, "{}: {why:?}", batch.sequence);
                return Ok(());
            }
            outbox.answered(partition, batch, answer.base_offset, known);
        }
        rt.sleep(std::time::Duration::from_micros(rt.random_u64() % 5_000))
            .await;
    }
    Ok(())
}

async fn send(
    connection: &BrokerConnection,
    partition: i32,
    records: Bytes,
) -> Result<impl std::future::Future<Output = Result<ProduceResponse, ClientError>>, ClientError> {
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 60_000,
        topic_data: vec![TopicProduceData {
            name: Str::from(TOPIC),
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Records::from(records)),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    connection.start_as(&request, 12).await
}

impl Outbox {
    /// What to send to a partition: everything that was not answered, and new batches.
    fn fill(&self, partition: usize, rt: &Rt) -> Vec<Batch> {
        let mut partitions = self.partitions.borrow_mut();
        let pending = &mut partitions[partition];
        let wanted = 1 + rt.random_u64() as usize % IN_FLIGHT_MAX;
        while pending.batches.len() < wanted {
            let records = 1 + (rt.random_u64() % 3) as i32;
            pending.batches.push_back(Batch {
                sequence: pending.next_sequence,
                records,
                sent_before: false,
            });
            pending.next_sequence += records;
        }
        let batches = pending.batches.iter().copied().collect();
        for batch in &mut pending.batches {
            batch.sent_before = true;
        }
        batches
    }

    /// Takes in an answer: answers come in order.
    fn answered(&self, partition: usize, batch: Batch, base_offset: i64, known: &Known) {
        let mut partitions = self.partitions.borrow_mut();
        let oldest = partitions[partition].batches.pop_front();
        assert_eq!(oldest.map(|b| b.sequence), Some(batch.sequence));
        if batch.sent_before {
            self.retried.set(self.retried.get() + 1);
            let place = (partition as i32, base_offset);
            let seen = known.records.borrow().contains_key(&place);
            self.duplicates.set(self.duplicates.get() + u64::from(seen));
        }
        for n in 0..batch.records {
            let offset = base_offset + i64::from(n);
            known.learn(partition as i32, offset, value(batch.sequence + n));
        }
    }
}

/// Checks the records of one partition, in order: none stands there twice, and those of the
/// idempotent producer have no gap.
pub(super) fn check<'a>(partition: i32, values: impl Iterator<Item = &'a String>) {
    let mut all = BTreeSet::new();
    let mut next = 0;
    for found in values {
        assert!(
            all.insert(found),
            "partition {partition}: {found} is there twice"
        );
        if found.starts_with(PREFIX) {
            assert_eq!(*found, value(next), "partition {partition}: out of order");
            next += 1;
        }
    }
}

/// How the values of an idempotent producer begin.
const PREFIX: &str = "sequence-";

/// `max.in.flight.requests.per.connection` of Kafka's clients.
const IN_FLIGHT_MAX: usize = 5;
