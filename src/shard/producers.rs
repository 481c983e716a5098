//! Idempotent producers on a shard: the ids that it gives out, what its partitions know
//! of producers, and when that expires.
//!
//! Ids come from blocks that the controller has made durable before it hands them over
//! (`Controller::allocate_producer_ids`), so none is given out twice; what is left of a
//! block at a stop is never used. All who wait for an id share one request for the next
//! block, made by a task of its own: a connection that ends in between takes nothing
//! from the others.
//!
//! What it is not: it keeps no producer's epoch. Every id is new, with epoch 0.

use super::messages::{PartitionKey, Reply, Request};
use super::Shard;
use crate::partition::Partition;
use crate::protocol::ErrorCode;
use crate::runtime::local::{oneshot, OneshotSender};
use crate::runtime::Queue;
use crate::storage::ProducerStates;
use futures_lite::future::or;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// The producer ids that a shard may give out.
pub(super) struct ProducerIds {
    block: RefCell<Range<i64>>,
    waiting: RefCell<VecDeque<OneshotSender<Result<i64, ErrorCode>>>>,
    is_fetching: Cell<bool>,
}

impl Default for ProducerIds {
    fn default() -> ProducerIds {
        ProducerIds {
            block: RefCell::new(0..0),
            waiting: RefCell::default(),
            is_fetching: Cell::new(false),
        }
    }
}

impl ProducerIds {
    fn take(&self) -> Option<i64> {
        self.block.borrow_mut().next()
    }

    /// Serves those who wait, first come, first served, as far as the block goes.
    fn serve(&self) {
        while !self.waiting.borrow().is_empty() {
            let Some(mut id) = self.take() else { return };
            // One whose asker has gone goes to the next.
            while let Some(waiting) = self.pop_waiting() {
                match waiting.send(Ok(id)) {
                    Ok(()) => break,
                    Err(unused) => id = unused.unwrap_or(id),
                }
            }
        }
    }

    fn fail(&self, code: ErrorCode) {
        while let Some(waiting) = self.pop_waiting() {
            // Nobody wants the answer of an asker that has gone.
            let _unwanted = waiting.send(Err(code));
        }
    }

    fn pop_waiting(&self) -> Option<OneshotSender<Result<i64, ErrorCode>>> {
        self.waiting.borrow_mut().pop_front()
    }
}

impl Shard {
    /// A producer id that no producer ever had.
    ///
    /// # Errors
    /// COORDINATOR_LOAD_IN_PROGRESS, upon which clients try again, if none could be
    /// allocated now.
    pub async fn next_producer_id(&self) -> Result<i64, ErrorCode> {
        let ids = &self.0.producer_ids;
        if let Some(id) = ids.take() {
            return Ok(id);
        }
        let (reply, answer) = oneshot();
        ids.waiting.borrow_mut().push_back(reply);
        if !ids.is_fetching.replace(true) {
            let shard = self.clone();
            self.rt().spawn(Queue::Latency, async move {
                shard.fetch_producer_ids().await;
                shard.0.producer_ids.is_fetching.set(false);
            });
        }
        answer.await.unwrap_or(Err(ErrorCode::BrokerNotAvailable))
    }

    /// Fetches blocks until nobody waits.
    async fn fetch_producer_ids(&self) {
        let ids = &self.0.producer_ids;
        while !ids.waiting.borrow().is_empty() {
            let request = Request::AllocateProducerIds(BLOCK_IDS);
            match self.call_control(request).await {
                Ok(Reply::ProducerIdsAllocated(Ok(block))) => {
                    ids.block.replace(block);
                    ids.serve();
                }
                Ok(Reply::ProducerIdsAllocated(Err(fault))) => {
                    tracing::warn!(error = %fault, "no producer ids could be allocated");
                    ids.fail(ErrorCode::CoordinatorLoadInProgress);
                }
                Ok(_) | Err(_) => ids.fail(ErrorCode::CoordinatorLoadInProgress),
            }
        }
    }

    /// What the logs of these partitions know of producers, in their order.
    pub async fn producers(
        &self,
        keys: Vec<PartitionKey>,
    ) -> Vec<Result<ProducerStates, ErrorCode>> {
        let answer = |reply| match reply {
            Reply::ProducersDescribed(results) => Some(results),
            _ => None,
        };
        let here = async |keys| self.producers_here(keys).await;
        self.ask_each_owner(keys, |key| *key, here, Request::DescribeProducers, answer)
            .await
    }

    pub(super) async fn producers_here(
        &self,
        keys: Vec<PartitionKey>,
    ) -> Vec<Result<ProducerStates, ErrorCode>> {
        let producers = async |partition: Partition, _| partition.producers();
        self.each_here(keys, |key| *key, producers).await
    }
}

/// Forgets inactive producers, at each `producer.id.expiration.check.interval.ms`.
pub(super) async fn expire(shard: Shard) {
    let config = shard.config();
    let interval = Duration::from_millis(config.producer_id_expiration_check_interval_ms);
    loop {
        let stop = shard.stop_event().listen();
        if shard.is_stopping() {
            return;
        }
        or(stop, shard.rt().sleep(interval)).await;
        let now_ms = shard.rt().wall_clock_ms();
        let expiration_ms = shard.config().producer_id_expiration_ms;
        for named in shard.0.partitions.all_online() {
            let expired = named.partition.expire_producers(now_ms, expiration_ms);
            if expired > 0 {
                tracing::debug!(partition = %named.name(), expired, "inactive producers were forgotten");
            }
            shard.rt().yield_if_needed().await;
        }
    }
}

/// The ids in a block, as in Kafka (`ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`).
const BLOCK_IDS: i32 = 1_000;
