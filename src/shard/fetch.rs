//! Fetch: reads over several owners, long polls, and the byte limits.
//!
//! Each owner reads with the full limit; the connection's shard then cuts at batch
//! boundaries in the order of the request, so the answer is the same whoever owns
//! what.
//!
//! A long poll for more than one byte looks before it reads: while the indexes say that
//! too little is there, no record is touched, however often a bound moves.

use super::messages::{FetchOrder, FetchPart, FetchedParts, Reply, Request};
use super::owners::Groups;
use super::Shard;
use crate::partition::{FetchOutcome, FetchSpec, Reader};
use crate::protocol::ErrorCode;
use crate::runtime::local::{Event, Listen, Permit};
use crate::runtime::Mono;
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

/// Says that a connection's requests may not wait any longer: what is there is the
/// answer. Cheap to clone.
#[derive(Clone, Default)]
pub struct Hurry(Rc<Urges>);

#[derive(Default)]
struct Urges {
    is_set: Cell<bool>,
    is_pressed: Cell<bool>,
    holding: Cell<usize>,
    changed: Event,
}

/// A request that holds memory for its lists, until dropped.
pub struct Holding(Hurry);

impl Drop for Holding {
    fn drop(&mut self) {
        let holding = &self.0 .0.holding;
        holding.set(holding.get() - 1);
    }
}

impl Hurry {
    /// Ends all waits for ever: nobody wants the answers.
    pub fn set(&self) {
        self.0.is_set.set(true);
        self.0.changed.notify_all();
    }

    /// Counts a request that holds memory for its lists.
    pub fn holding(&self) -> Holding {
        self.0.holding.set(self.0.holding.get() + 1);
        Holding(self.clone())
    }

    /// Ends waits, until told otherwise, if others want the memory for lists and a
    /// request holds some, be it behind another that waits.
    pub fn press(&self, is_wanted: bool) {
        let is_pressed = is_wanted && self.0.holding.get() > 0;
        if self.0.is_pressed.replace(is_pressed) != is_pressed {
            self.0.changed.notify_all();
        }
    }

    /// True if no request may wait now.
    pub(super) fn ends_waits(&self) -> bool {
        self.0.is_set.get() || self.0.is_pressed.get()
    }

    /// Resolves when it changes after this call.
    pub(super) fn listen(&self) -> Listen {
        self.0.changed.listen()
    }

    /// Resolves once it is set.
    async fn until_set(&self) {
        self.0.changed.wait_until(|| self.0.is_set.get()).await;
    }
}

/// The answer, with the memory that it is charged to until it is sent.
pub struct Fetched {
    /// In the order of the plan's parts.
    pub outcomes: Vec<Result<FetchOutcome, ErrorCode>>,
    /// Drop it when the last byte has been sent.
    pub charge: Permit,
    /// How long it waited for records.
    pub waited_nanos: u64,
}

impl Shard {
    /// Reads, waiting for `bytes_min` as long as the plan allows: while too little is
    /// there, nothing is read. `None` if there was no memory for the answer until
    /// nobody waited for it any more.
    pub async fn fetch(&self, mut plan: FetchPlan) -> Option<Fetched> {
        let deadline = self.rt().now() + plan.wait_max;
        let mut waiting: Option<Mono> = None;
        let (mut waited, mut waited_nanos) = (false, 0);
        loop {
            let now = self.rt().now();
            if let Some(since) = waiting.take() {
                waited_nanos += now.nanos_since(since);
            }
            let is_over = plan.parts.is_empty()
                || deadline.since(now).is_zero()
                || self.is_stopping()
                || plan.hurry.ends_waits();
            let bytes_least = if is_over { 0 } else { plan.bytes_min };
            let outcomes = self.read_if(&plan, plan.bytes_max, bytes_least).await;
            let bytes: usize = outcomes.iter().flatten().map(|outcome| outcome.bytes).sum();
            if is_over || bytes >= plan.bytes_min || is_final(&outcomes) {
                if waited {
                    self.counters().latencies.fetch_wait.record(waited_nanos);
                }
                let mut fetched = self.charge(plan, outcomes, bytes).await?;
                fetched.waited_nanos = waited_nanos;
                return Some(fetched);
            }
            if !waited {
                self.counters().fetch_waits.add(1);
                waited = true;
            }
            let mut seen = Vec::with_capacity(plan.parts.len());
            for (part, outcome) in plan.parts.iter_mut().zip(&outcomes) {
                let Ok(outcome) = outcome else { continue };
                seen.push((part.key, outcome.high_watermark));
                if outcome.bytes > 0 {
                    part.counted = Some((outcome.bytes, outcome.next_offset));
                }
            }
            drop(outcomes);
            waiting = Some(self.rt().now());
            self.wait_for_bounds(seen, deadline, &plan.hurry).await;
        }
    }

    /// Charges the answer to the memory for answers. If that is taken, the answer is let
    /// go, and read again when its memory is there.
    async fn charge(
        &self,
        plan: FetchPlan,
        outcomes: Vec<Result<FetchOutcome, ErrorCode>>,
        bytes: usize,
    ) -> Option<Fetched> {
        if let Some(charge) = self.memory().try_response(bytes) {
            return Some(Fetched {
                outcomes,
                charge,
                waited_nanos: 0,
            });
        }
        drop(outcomes);
        let granted = async { Some(self.memory().response(bytes).await) };
        let given_up = async {
            plan.hurry.until_set().await;
            None
        };
        let charge = or(given_up, granted).await?;
        let bytes_max = (charge.amount() as usize).max(1);
        let outcomes = self.read_if(&plan, bytes_max, 0).await;
        Some(Fetched {
            outcomes,
            charge,
            waited_nanos: 0,
        })
    }

    /// Reads if `bytes_least` are there, as far as that can be told without reading, or
    /// if something can't wait. Otherwise the outcomes are what was seen.
    async fn read_if(
        &self,
        plan: &FetchPlan,
        bytes_max: usize,
        bytes_least: usize,
    ) -> Vec<Result<FetchOutcome, ErrorCode>> {
        let groups = self.by_owner(plan.parts.clone(), |part| part.key);
        let mut order = OrderTerms {
            bytes_max,
            // One byte is there or is not: reading what is not there costs nothing.
            bytes_least: if bytes_least <= 1 { 0 } else { bytes_least },
            reader: plan.reader,
        };
        if groups.len() == 1 {
            return self
                .ask_owners(plan.parts.len(), groups, order)
                .await
                .outcomes;
        }
        let mut groups = groups;
        if order.bytes_least > 0 {
            let look = OrderTerms {
                bytes_least: usize::MAX,
                ..order
            };
            let looked = self.ask_owners(plan.parts.len(), groups, look).await;
            if looked.bytes_available < order.bytes_least && !is_urgent(&looked.outcomes) {
                return looked.outcomes;
            }
            order.bytes_least = 0;
            groups = self.by_owner(plan.parts.clone(), |part| part.key);
        }
        let mut outcomes = self
            .ask_owners(plan.parts.len(), groups, order)
            .await
            .outcomes;
        cut_to(&mut outcomes, &plan.parts, bytes_max);
        outcomes
    }

    /// Asks all owners at the same time.
    async fn ask_owners(
        &self,
        parts_len: usize,
        groups: Groups<FetchPart>,
        terms: OrderTerms,
    ) -> FetchedParts {
        let mut all = refused(parts_len, ErrorCode::UnknownServerError);
        type Results = Pin<Box<dyn Future<Output = FetchedParts>>>;
        let mut waits: SmallVec<[(Vec<usize>, Results); 2]> = SmallVec::new();
        for (owner, places, parts) in groups {
            let order = FetchOrder {
                parts,
                bytes_max: terms.bytes_max,
                bytes_least: terms.bytes_least,
                reader: terms.reader,
            };
            let shard = self.clone();
            let mut results: Results = if owner == self.0.me {
                Box::pin(async move { shard.fetch_here(order).await })
            } else {
                let parts_len = places.len();
                Box::pin(async move { shard.fetch_there(owner, order, parts_len).await })
            };
            match poll_once(&mut results).await {
                Some(done) => waits.push((places, Box::pin(async move { done }))),
                None => waits.push((places, results)),
            }
        }
        for (places, results) in waits {
            let fetched = results.await;
            all.bytes_available = all.bytes_available.saturating_add(fetched.bytes_available);
            for (place, outcome) in places.into_iter().zip(fetched.outcomes) {
                all.outcomes[place] = outcome;
            }
        }
        all
    }

    async fn fetch_there(&self, owner: usize, order: FetchOrder, parts_len: usize) -> FetchedParts {
        match self.call(owner, Request::Fetch(order)).await {
            Ok(Reply::Fetched(fetched)) => fetched,
            Ok(_) | Err(_) => refused(parts_len, ErrorCode::NotLeaderOrFollower),
        }
    }

    /// Reads the parts one after the other within the limit, or only looks.
    pub(super) async fn fetch_here(&self, order: FetchOrder) -> FetchedParts {
        if order.bytes_least > 0 {
            let looked = self.look_here(&order).await;
            if looked.bytes_available < order.bytes_least && !is_urgent(&looked.outcomes) {
                return looked;
            }
        }
        let mut left = order.bytes_max;
        let mut empty_so_far = true;
        let mut outcomes = Vec::with_capacity(order.parts.len());
        for part in &order.parts {
            let result = match self.0.partitions.online(&part.key) {
                Ok(partition) => {
                    self.rt()
                        .working_at(part.key.topic_id.as_u128(), part.key.index);
                    let mut spec = spec_of(part, order.reader);
                    spec.bytes_max = part.bytes_max.min(left);
                    spec.whole_first_batch = empty_so_far;
                    partition.fetch(spec).await
                }
                Err(code) => Err(code),
            };
            if let Ok(outcome) = &result {
                left = left.saturating_sub(outcome.bytes);
                empty_so_far &= outcome.bytes == 0;
            }
            outcomes.push(result);
            self.rt().yield_if_needed().await;
        }
        FetchedParts {
            outcomes,
            bytes_available: 0,
        }
    }

    async fn look_here(&self, order: &FetchOrder) -> FetchedParts {
        let mut bytes_available: usize = 0;
        let mut outcomes = Vec::with_capacity(order.parts.len());
        for part in &order.parts {
            let looked = self.0.partitions.online(&part.key).and_then(|partition| {
                let outcome = partition.look(&spec_of(part, order.reader))?;
                let (counted, from) = part.counted.unwrap_or((0, part.offset));
                let available = match outcome.diverging {
                    None => partition.bytes_available(from, order.reader)?,
                    Some(_) => 0,
                };
                let available = counted.saturating_add(available as usize);
                bytes_available = bytes_available.saturating_add(available.min(part.bytes_max));
                Ok(outcome)
            });
            outcomes.push(looked);
            self.rt().yield_if_needed().await;
        }
        FetchedParts {
            outcomes,
            bytes_available,
        }
    }
}

/// What all owners of one fetch are told.
#[derive(Clone, Copy)]
struct OrderTerms {
    bytes_max: usize,
    bytes_least: usize,
    reader: Reader,
}

fn spec_of(part: &FetchPart, reader: Reader) -> FetchSpec {
    FetchSpec {
        offset: part.offset,
        current_leader_epoch: part.current_leader_epoch,
        last_fetched_epoch: part.last_fetched_epoch,
        bytes_max: part.bytes_max,
        whole_first_batch: false,
        reader,
        check_crc: false,
    }
}

fn refused(parts_len: usize, code: ErrorCode) -> FetchedParts {
    FetchedParts {
        outcomes: (0..parts_len).map(|_| Err(code)).collect(),
        bytes_available: 0,
    }
}

/// True if a part has something to tell that can't wait for more records.
fn is_urgent(outcomes: &[Result<FetchOutcome, ErrorCode>]) -> bool {
    outcomes.iter().any(|outcome| match outcome {
        Ok(outcome) => outcome.diverging.is_some(),
        Err(_) => true,
    })
}

/// True if waiting would bring no more: something can't wait, or a limit ended the
/// read before the records did.
fn is_final(outcomes: &[Result<FetchOutcome, ErrorCode>]) -> bool {
    let was_read = outcomes.iter().flatten().any(|outcome| outcome.bytes > 0);
    let has_more = |outcome: &FetchOutcome| !outcome.reaches_bound;
    is_urgent(outcomes) || was_read && outcomes.iter().flatten().any(has_more)
}

/// Cuts the outcomes of several owners, which each had the full limit, to the limit
/// over all: at batch boundaries, in order, the first non-empty one keeping at least
/// one batch. Each owner let its own first part exceed the part's limit; only the
/// first of all may.
fn cut_to(outcomes: &mut [Result<FetchOutcome, ErrorCode>], parts: &[FetchPart], bytes_max: usize) {
    let mut left = bytes_max;
    let mut empty_so_far = true;
    for (outcome, part) in outcomes.iter_mut().zip(parts) {
        let Ok(outcome) = outcome else { continue };
        let room = left.min(part.bytes_max);
        let mut keep = 0;
        let mut batches = 0;
        for batch_bytes in &outcome.batch_bytes {
            let batch_bytes = *batch_bytes as usize;
            let first = empty_so_far && batches == 0;
            if keep + batch_bytes > room && !first {
                break;
            }
            keep += batch_bytes;
            batches += 1;
        }
        if batches < outcome.batch_bytes.len() {
            outcome.reaches_bound = false;
            outcome.batch_bytes.truncate(batches);
            cut_slices(outcome, keep);
        }
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
    use crate::shard::PartitionKey;
    use bytes::Bytes;

    fn outcome(batches: &[u32]) -> Result<FetchOutcome, ErrorCode> {
        let bytes: u32 = batches.iter().sum();
        Ok(FetchOutcome {
            high_watermark: 0,
            last_stable_offset: 0,
            log_start_offset: 0,
            diverging: None,
            reaches_bound: true,
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

    fn parts(limits: &[usize]) -> Vec<FetchPart> {
        let part = |bytes_max: &usize| FetchPart {
            key: PartitionKey {
                topic_id: uuid::Uuid::from_u128(1),
                index: 0,
            },
            offset: 0,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            bytes_max: *bytes_max,
            counted: None,
        };
        limits.iter().map(part).collect()
    }

    #[test]
    fn given_two_owners_then_the_limit_is_cut_at_batches_in_order() {
        let mut all = vec![
            outcome(&[100, 100, 100]),
            outcome(&[50, 60]),
            outcome(&[10]),
        ];
        cut_to(&mut all, &parts(&[1_000; 3]), 365);
        assert_eq!(kept(&all), [300, 50, 10]);
        let whole: Vec<bool> = all.iter().flatten().map(|o| o.reaches_bound).collect();
        assert_eq!(whole, [true, false, true]);
    }

    #[test]
    fn given_a_first_batch_above_the_limit_then_it_alone_is_kept_whole() {
        let mut all = vec![outcome(&[]), outcome(&[500, 1]), outcome(&[1])];
        cut_to(&mut all, &parts(&[1_000; 3]), 100);
        assert_eq!(kept(&all), [0, 500, 0]);
    }

    #[test]
    fn given_small_limits_of_parts_then_only_the_first_of_all_exceeds_its_own() {
        let mut all = vec![outcome(&[500]), outcome(&[500]), outcome(&[90, 20])];
        cut_to(&mut all, &parts(&[0, 499, 100]), 10_000);
        assert_eq!(kept(&all), [500, 0, 90]);
    }
}
