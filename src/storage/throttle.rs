//! A limit on the bytes that background work moves in a second.

use crate::runtime::local::Event;
use crate::runtime::{Mono, Rt};
use futures_lite::future::or;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Shares out a bandwidth among the background work of one shard (compaction, scrubbing).
/// Cheap to clone; all clones are one limit.
///
/// Bytes are paid for after they were moved: whoever took too many waits before the next
/// ones, so that no piece of work is ever larger than the limit allows. Unused time is not
/// saved up beyond [`BURST`].
#[derive(Clone)]
pub struct Throttle(Rc<Inner>);

struct Inner {
    rt: Rt,
    /// 0: no limit.
    bytes_per_second: Cell<u64>,
    /// When all bytes that were taken are paid for.
    paid_at: Cell<Mono>,
    /// Told when the limit changes.
    changed: Event,
}

impl Throttle {
    /// A limit in bytes per second; 0 is none.
    pub fn new(rt: Rt, bytes_per_second: u64) -> Throttle {
        Throttle(Rc::new(Inner {
            paid_at: Cell::new(rt.now()),
            bytes_per_second: Cell::new(bytes_per_second),
            changed: Event::new(),
            rt,
        }))
    }

    /// The runtime that it waits on.
    pub(super) fn rt(&self) -> &Rt {
        &self.0.rt
    }

    /// Changes the limit at once: what was moved and is not paid for costs what it costs now.
    pub fn set_bytes_per_second(&self, bytes_per_second: u64) {
        let inner = &*self.0;
        let before = inner.bytes_per_second.replace(bytes_per_second);
        if before != bytes_per_second {
            let (now, paid_at) = (inner.rt.now(), inner.paid_at.get());
            let paid_at = repriced(now, paid_at, before, bytes_per_second);
            inner.paid_at.set(paid_at);
            inner.changed.notify_all();
        }
    }

    /// Takes note of bytes that were moved, and waits until they are paid for. May be dropped:
    /// they count all the same.
    pub async fn moved(&self, bytes: u64) {
        let mut limit = self.0.bytes_per_second.get();
        if limit == 0 {
            return self.0.rt.yield_if_needed().await;
        }
        let now = self.0.rt.now();
        let price = Duration::from_nanos(
            (u128::from(bytes) * 1_000_000_000 / u128::from(limit)).min(u128::from(u64::MAX))
                as u64,
        );
        // Time that nobody used is forgotten, but for a short burst.
        let from = match now.since(self.0.paid_at.get()) > BURST {
            true => now,
            false => self.0.paid_at.get(),
        };
        let mut paid_at = from + price;
        self.0.paid_at.set(paid_at);
        self.0.rt.yield_if_needed().await;
        loop {
            let changed = self.0.changed.listen();
            let (now, limit_now) = (self.0.rt.now(), self.0.bytes_per_second.get());
            if limit_now != limit {
                paid_at = repriced(now, paid_at, limit, limit_now);
                limit = limit_now;
            }
            let wait = paid_at.since(now);
            if wait.is_zero() {
                return;
            }
            or(self.0.rt.sleep(wait), changed).await;
        }
    }
}

/// When what is owed `now` is paid for once the limit has changed.
fn repriced(now: Mono, paid_at: Mono, before: u64, after: u64) -> Mono {
    let owed = paid_at.since(now);
    if owed.is_zero() {
        return paid_at;
    }
    match after {
        0 => now,
        _ => {
            let nanos = owed.as_nanos().saturating_mul(u128::from(before)) / u128::from(after);
            now + Duration::from_nanos(nanos.min(u128::from(u64::MAX)) as u64)
        }
    }
}

/// Time that work may be behind its limit and still catch up.
const BURST: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::sim::World;
    use futures_lite::future::poll_once;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn work_takes_as_long_as_its_bytes_cost() {
        let world = World::new(1);
        let rt = world.node("a").rt();
        world.block_on(&rt, async {
            let throttle = Throttle::new(rt.clone(), 1_000_000);
            let started = rt.now();
            for _ in 0..50 {
                throttle.moved(100_000).await;
            }
            let took = rt.now().since(started);
            assert!((5 * SECOND..6 * SECOND).contains(&took), "{took:?}");
        });
    }

    #[test]
    fn time_that_nobody_used_is_not_saved_up() {
        let world = World::new(2);
        let rt = world.node("a").rt();
        world.block_on(&rt, async {
            let throttle = Throttle::new(rt.clone(), 1_000_000);
            rt.sleep(60 * SECOND).await;
            let started = rt.now();
            throttle.moved(2_000_000).await;
            let took = rt.now().since(started);
            assert!(took >= 2 * SECOND, "{took:?}");
        });
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let world = World::new(3);
        let rt = world.node("a").rt();
        world.block_on(&rt, async {
            let throttle = Throttle::new(rt.clone(), 0);
            let started = rt.now();
            throttle.moved(u64::MAX).await;
            assert!(rt.now().since(started) < SECOND);
            throttle.set_bytes_per_second(1_000);
            throttle.moved(3_000).await;
            assert!(rt.now().since(started) >= 3 * SECOND);
        });
    }

    #[test]
    fn a_change_of_the_limit_holds_at_once_for_who_waits_and_for_what_is_owed() {
        let world = World::new(3);
        let rt = world.node("a").rt();
        world.block_on(&rt, async {
            let throttle = Throttle::new(rt.clone(), 1);
            let started = rt.now();
            let change = async {
                rt.sleep(SECOND).await;
                throttle.set_bytes_per_second(1_000_000);
            };
            futures_lite::future::zip(throttle.moved(1_000_000), change).await;
            let took = rt.now().since(started);
            // Of the million one was paid for at the old price.
            assert!((SECOND..3 * SECOND).contains(&took), "{took:?}");

            throttle.set_bytes_per_second(1);
            // Nobody waits for it any more, and it is owed.
            let given_up = poll_once(throttle.moved(1_000_000)).await;
            assert!(given_up.is_none());
            throttle.set_bytes_per_second(0);
            throttle.set_bytes_per_second(1_000_000);
            let started = rt.now();
            throttle.moved(1_000_000).await;
            let took = rt.now().since(started);
            assert!((SECOND / 2..2 * SECOND).contains(&took), "{took:?}");
        });
    }
}
