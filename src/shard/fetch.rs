//! Fetch: reads over several owners, long polls, and the byte limits.
//!
//! Each owner reads with the full limit; the connection's shard then cuts at batch
//! boundaries in the order of the request, so the answer is the same whoever owns
//! what.

use super::messages::{FetchOrder, FetchPart, Reply, Request};
use super::Shard;
use crate::partition::{FetchOutcome, FetchSpec, Reader};
use crate::protocol::ErrorCode;
use crate::runtime::local::{Event, Listen, Permit};
use futures_lite::future::{or, poll_once};
use smallvec::SmallVec;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// What a fetch request asks for.
pub struct FetchPlan {
    /// What to read, in the order of the request.
    pub parts: Vec<FetchPart>,
    /// Bytes of the whole answer; one batch may exceed it.
    pub bytes_max: usize,
    /// Wait until this many bytes are there.
    pub bytes_min: usize,
    /// Wait no longer than this.
    pub wait_max: Duration,
    /// Who reads.
    pub reader: Reader,
    /// Ends the wait early.
    pub hurry: Hurry,
}

/// Says that nobody wants to wait any longer: what is there is the answer. Cheap to
/// clone; once set it stays.
#[derive(Clone, Default)]
pub struct Hurry(Rc<(Cell<bool>, Event)>);

impl Hurry {
    /// Ends all waits.
    pub fn set(&self) {
        self.0 .0.set(true);
        self.0 .1.notify_all();
    }

    /// True once set.
    pub fn is_set(&self) -> bool {
        self.0 .0.get()
    }

    /// Resolves when it is set after this call.
    pub(super) fn listen(&self) -> Listen {
        self.0 .1.listen()
    }
}

/// The answer, with the memory that it is charged to until it is sent.
pub struct Fetched {
    /// In the order of the plan's parts.
    pub outcomes: Vec<Result<FetchOutcome, ErrorCode>>,
    /// Drop it when the last byte has been sent.
    pub charge: Permit,
}

impl Shard {
    /// Reads, waiting for `bytes_min` as long as the plan allows. `None` if there was
    /// no memory for the answer until nobody waited for it any more.
    pub async fn fetch(&self, plan: FetchPlan) -> Option<Fetched> {
        let deadline = self.rt().now() + plan.wait_max;
        let mut bytes_max = plan.bytes_max;
        loop {
            let outcomes = self.read_all(&plan, bytes_max).await;
            let bytes: usize = outcomes.iter().flatten().map(|outcome| outcome.bytes).sum();
            let failed = outcomes.iter().any(Result::is_err);
            let left = deadline.since(self.rt().now());
            let wait = bytes < plan.bytes_min
                && !failed
                && !plan.parts.is_empty()
                && !left.is_zero()
                && !self.is_stopping()
                && !plan.hurry.is_set();
            if !wait {
                match self.memory().try_response(bytes) {
                    Some(charge) => return Some(Fetched { outcomes, charge }),
                    None => {
                        // Let go of the slices while waiting for memory, then read
                        // again, no more than what was granted.
                        drop(outcomes);
                        let hurry = plan.hurry.listen();
                        if plan.hurry.is_set() {
                            return None;
                        }
                        let granted = async { Some(self.memory().response(bytes).await) };
                        let given_up = async {
                            hurry.await;
                            None
                        };
                        let granted = or(granted, given_up).await?;
                        bytes_max = (granted.amount() as usize).max(1);
                        let outcomes = self.read_all(&plan, bytes_max).await;
                        return Some(Fetched {
                            outcomes,
                            charge: granted,
                        });
                    }
                }
            }
            let seen = plan
                .parts
                .iter()
                .zip(&outcomes)
                .filter_map(|(part, outcome)| {
                    let outcome = outcome.as_ref().ok()?;
                    Some((part.key, outcome.high_watermark))
                })
                .collect();
            drop(outcomes);
            self.wait_for_bounds(seen, deadline, &plan.hurry).await;
        }
    }

    async fn read_all(
        &self,
        plan: &FetchPlan,
        bytes_max: usize,
    ) -> Vec<Result<FetchOutcome, ErrorCode>> {
        let mut all: Vec<Result<FetchOutcome, ErrorCode>> = plan
            .parts
            .iter()
            .map(|_| Err(ErrorCode::UnknownServerError))
            .collect();
        type Results = Pin<Box<dyn Future<Output = Vec<Result<FetchOutcome, ErrorCode>>>>>;
        let mut waits: SmallVec<[(Vec<usize>, Results); 2]> = SmallVec::new();
        let groups = self.by_owner(plan.parts.clone(), |part| part.key);
        let one_owner = groups.len() == 1;
        for (owner, places, parts) in groups {
            let order = FetchOrder {
                parts,
                bytes_max,
                reader: plan.reader,
            };
            let shard = self.clone();
            let mut results: Results = if owner == self.0.me {
                Box::pin(async move { shard.fetch_here(order).await })
            } else {
                let parts_len = places.len();
                Box::pin(async move { shard.fetch_there(owner, order, parts_len).await })
            };
            // All owners read at the same time.
            match poll_once(&mut results).await {
                Some(done) => waits.push((places, Box::pin(async move { done }))),
                None => waits.push((places, results)),
            }
        }
        for (places, results) in waits {
            for (place, result) in places.into_iter().zip(results.await) {
                all[place] = result;
            }
        }
        if !one_owner {
            cut_to(&mut all, bytes_max);
        }
        all
    }

    async fn fetch_there(
        &self,
        owner: usize,
        order: FetchOrder,
        parts_len: usize,
    ) -> Vec<Result<FetchOutcome, ErrorCode>> {
        match self.call(owner, Request::Fetch(order)).await {
            Ok(Reply::Fetched(results)) => results,
            Ok(_) | Err(_) => (0..parts_len)
                .map(|_| Err(ErrorCode::NotLeaderOrFollower))
                .collect(),
        }
    }

    /// Reads the parts one after the other within the limit.
    pub(super) async fn fetch_here(
        &self,
        order: FetchOrder,
    ) -> Vec<Result<FetchOutcome, ErrorCode>> {
        let mut left = order.bytes_max;
        let mut empty_so_far = true;
        let mut results = Vec::with_capacity(order.parts.len());
        for part in order.parts {
            let result = match self.0.partitions.online(&part.key) {
                Ok(partition) => {
                    partition
                        .fetch(FetchSpec {
                            offset: part.offset,
                            current_leader_epoch: part.current_leader_epoch,
                            bytes_max: part.bytes_max.min(left),
                            whole_first_batch: empty_so_far,
                            reader: order.reader,
                        })
                        .await
                }
                Err(code) => Err(code),
            };
            if let Ok(outcome) = &result {
                left = left.saturating_sub(outcome.bytes);
                empty_so_far &= outcome.bytes == 0;
            }
            results.push(result);
            self.rt().yield_if_needed().await;
        }
        results
    }
}

/// Cuts the outcomes of several owners, which each had the full limit, to the limit
/// over all: at batch boundaries, in order, the first non-empty one keeping at least
/// one batch.
fn cut_to(outcomes: &mut [Result<FetchOutcome, ErrorCode>], bytes_max: usize) {
    let mut left = bytes_max;
    let mut empty_so_far = true;
    for outcome in outcomes.iter_mut().flatten() {
        let mut keep = 0;
        let mut batches = 0;
        for batch_bytes in &outcome.batch_bytes {
            let batch_bytes = *batch_bytes as usize;
            let first = empty_so_far && batches == 0;
            if keep + batch_bytes > left && !first {
                break;
            }
            keep += batch_bytes;
            batches += 1;
        }
        outcome.batch_bytes.truncate(batches);
        cut_slices(outcome, keep);
        left = left.saturating_sub(keep);
        empty_so_far &= keep == 0;
    }
}

fn cut_slices(outcome: &mut FetchOutcome, keep: usize) {
    let mut left = keep;
    outcome.slices.retain_mut(|slice| {
        if slice.len() > left {
            slice.truncate(left);
        }
        left -= slice.len();
        !slice.is_empty()
    });
    outcome.bytes = keep;
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn outcome(batches: &[u32]) -> Result<FetchOutcome, ErrorCode> {
        let bytes: u32 = batches.iter().sum();
        Ok(FetchOutcome {
            high_watermark: 0,
            last_stable_offset: 0,
            log_start_offset: 0,
            slices: vec![Bytes::from(vec![7; bytes as usize])],
            batch_bytes: batches.to_vec(),
            bytes: bytes as usize,
            next_offset: 0,
        })
    }

    fn kept(outcomes: &[Result<FetchOutcome, ErrorCode>]) -> Vec<usize> {
        outcomes
            .iter()
            .flatten()
            .map(|outcome| {
                let in_slices: usize = outcome.slices.iter().map(Bytes::len).sum();
                assert_eq!(in_slices, outcome.bytes);
                outcome.bytes
            })
            .collect()
    }

    #[test]
    fn given_two_owners_then_the_limit_is_cut_at_batches_in_order() {
        let mut all = vec![
            outcome(&[100, 100, 100]),
            outcome(&[50, 60]),
            outcome(&[10]),
        ];
        cut_to(&mut all, 365);
        assert_eq!(kept(&all), [300, 50, 10]);
    }

    #[test]
    fn given_a_first_batch_above_the_limit_then_it_alone_is_kept_whole() {
        let mut all = vec![outcome(&[]), outcome(&[500, 1]), outcome(&[1])];
        cut_to(&mut all, 100);
        assert_eq!(kept(&all), [0, 500, 0]);
    }
}
