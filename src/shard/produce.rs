//! Produce: from the connection's shard to the owners, and what an owner does.

use super::messages::{
    PartitionKey, ProduceFault, ProduceOrder, ProducePart, Produced, Reply, Request,
};
use super::Shard;
use crate::partition::{Acks, ProduceTicket};
use crate::protocol::ErrorCode;
use crate::runtime::{Mono, Rt};
use bytes::Bytes;
use futures_lite::future::poll_once;
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// The outcome of one part.
pub type ProduceResult = Result<Produced, ProduceFault>;

type Results = Pin<Box<dyn Future<Output = Vec<ProduceResult>>>>;

impl Shard {
    /// Hands the parts to their owners in this order and returns what to wait for.
    /// When this resolves every own part is queued, and every message to another
    /// owner is in its lane: the next call's parts come after these.
    pub async fn start_produce(
        &self,
        parts: Vec<ProducePart>,
        acks: Acks,
        timeout: Duration,
    ) -> impl Future<Output = Vec<ProduceResult>> + 'static {
        let parts_len = parts.len();
        let mut waits: SmallVec<[(Vec<usize>, Results); 2]> = SmallVec::new();
        for (owner, places, parts) in self.by_owner(parts, |part| part.key) {
            let order = ProduceOrder {
                parts,
                acks,
                timeout,
                sent_at: None,
            };
            if owner == self.0.me {
                let queued = self.queue_order(order).await;
                waits.push((places, Box::pin(queued.outcomes(self.rt().clone()))));
                continue;
            }
            let mut results: Results =
                Box::pin(self.clone().produce_there(owner, order, places.len()));
            // The first poll takes the message's place in the lane.
            match poll_once(&mut results).await {
                Some(done) => waits.push((places, Box::pin(async move { done }))),
                None => waits.push((places, results)),
            }
        }
        async move {
            let mut all: Vec<ProduceResult> =
                vec![Err(fault(ErrorCode::UnknownServerError)); parts_len];
            for (places, results) in waits {
                for (place, result) in places.into_iter().zip(results.await) {
                    all[place] = result;
                }
            }
            all
        }
    }

    async fn produce_there(
        self,
        owner: usize,
        mut order: ProduceOrder,
        parts_len: usize,
    ) -> Vec<ProduceResult> {
        order.sent_at = Some(self.rt().now());
        match self.call(owner, Request::Produce(order)).await {
            Ok(Reply::Produced(results)) => results,
            Ok(_) | Err(_) => vec![Err(fault(ErrorCode::NotLeaderOrFollower)); parts_len],
        }
    }

    /// Validates and queues, then resolves as `acks` asks. Orders are queued in the order
    /// in which this was first polled.
    pub(super) async fn produce_here(self, order: ProduceOrder) -> Vec<ProduceResult> {
        if let Some(sent_at) = order.sent_at {
            let hop = self.rt().now().nanos_since(sent_at);
            self.counters().latencies.mesh.record(hop);
        }
        let queued = self.queue_order(order).await;
        queued.outcomes(self.rt().clone()).await
    }

    /// Validates and queues every part. Nearly always done with the first poll; but the
    /// batches of one request may take seconds to decompress, so between two of them, and
    /// within a large one, other tasks get their slice, and later orders then wait for
    /// their turn: the order of orders is kept.
    async fn queue_order(&self, order: ProduceOrder) -> QueuedOrder {
        let turns = &self.0.produce_turns;
        let _turn = match turns.try_acquire(1) {
            Some(turn) => turn,
            None => turns.acquire(1).await,
        };
        let mut tickets = SmallVec::with_capacity(order.parts.len());
        for (index, part) in order.parts.into_iter().enumerate() {
            if index > 0 {
                self.rt().yield_if_needed().await;
            }
            tickets.push(self.queue(part.key, part.records, order.acks).await);
        }
        let last = tickets.iter().rev().flatten().next();
        let queued_at = last.map(|ticket: &ProduceTicket| ticket.queued_at);
        QueuedOrder {
            acks: order.acks,
            timeout: order.timeout,
            queued_at: queued_at.unwrap_or_else(|| self.rt().now()),
            tickets,
        }
    }

    async fn queue(
        &self,
        key: PartitionKey,
        records: Bytes,
        acks: Acks,
    ) -> Result<ProduceTicket, ProduceFault> {
        let now_ms = self.rt().wall_clock_ms();
        let partition = self.0.partitions.online(&key).map_err(|code| {
            self.counters().produce_errors.add(1);
            fault(code)
        })?;
        self.rt().working_at(key.topic_id.as_u128(), key.index);
        let produced = partition.produce(records, acks, now_ms, None).await;
        produced.map_err(|error| {
            partition.count_refused();
            ProduceFault {
                code: error.code,
                message: error.message,
                record_errors: error.record_errors,
            }
        })
    }
}

/// An order whose parts are queued, or refused.
struct QueuedOrder {
    tickets: SmallVec<[Result<ProduceTicket, ProduceFault>; 4]>,
    acks: Acks,
    timeout: Duration,
    /// From here the timeout counts, whenever the outcomes are first asked for.
    queued_at: Mono,
}

impl QueuedOrder {
    /// What becomes of each part.
    async fn outcomes(self, rt: Rt) -> Vec<ProduceResult> {
        let mut results: Vec<ProduceResult> = Vec::with_capacity(self.tickets.len());
        let mut waits: SmallVec<[_; 4]> = SmallVec::new();
        for ticket in self.tickets {
            match ticket {
                Ok(ticket) => {
                    results.push(Ok(Produced {
                        base_offset: ticket.base_offset,
                        log_append_time_ms: ticket.log_append_time_ms,
                        log_start_offset: ticket.log_start_offset,
                    }));
                    waits.push((results.len() - 1, ticket.done));
                }
                Err(fault) => results.push(Err(fault)),
            }
        }
        let mut finished = 0;
        let wait = async {
            for (place, done) in &mut waits {
                if let Err(code) = done.await {
                    results[*place] = Err(fault(code));
                }
                finished += 1;
            }
        };
        let in_time = match self.acks {
            Acks::All => {
                let waited = rt.now().since(self.queued_at);
                let left = self.timeout.saturating_sub(waited);
                rt.timeout(left, wait).await.is_ok()
            }
            Acks::Leader | Acks::None => {
                wait.await;
                true
            }
        };
        if !in_time {
            // Others behind the one that was waited for may be done. The records of the
            // rest stay in the log; whether they get committed is unknown.
            for (place, done) in &mut waits[finished..] {
                match poll_once(done).await {
                    Some(Ok(())) => {}
                    Some(Err(code)) => results[*place] = Err(fault(code)),
                    None => results[*place] = Err(fault(ErrorCode::RequestTimedOut)),
                }
            }
        }
        results
    }
}

fn fault(code: ErrorCode) -> ProduceFault {
    ProduceFault {
        code,
        message: String::new(),
        record_errors: Vec::new(),
    }
}
