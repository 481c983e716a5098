//! A byte budget: reservations are granted in order, and waiting is back-pressure.
//!
//! The first waiter is woken as soon as its amount is free, and wakes the next one
//! when it takes it. A waiter that is woken and then neither polled nor dropped holds
//! up those behind it: keep an [`Acquire`] no longer than it is awaited.
//!
//! No waker is called or dropped while the state is borrowed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A number of bytes (or other units) that tasks reserve and give back. First
/// come, first served: a large reservation is not starved by small ones.
#[derive(Clone)]
pub struct Budget(Rc<RefCell<State>>);

struct State {
    total: u64,
    available: u64,
    next_id: u64,
    /// In the order of arrival, so by rising id.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    id: u64,
    amount: u64,
    waker: Waker,
}

/// A reservation; given back when dropped.
pub struct Permit {
    budget: Budget,
    amount: u64,
}

/// A reservation that waits for its turn.
#[must_use = "it waits only when awaited"]
pub struct Acquire {
    budget: Budget,
    amount: u64,
    id: Option<u64>,
}

impl Budget {
    /// A budget of `total` units, all available.
    pub fn new(total: u64) -> Budget {
        Budget(Rc::new(RefCell::new(State {
            total,
            available: total,
            next_id: 0,
            waiting: VecDeque::new(),
        })))
    }

    /// The size of the whole budget.
    pub fn total(&self) -> u64 {
        self.0.borrow().total
    }

    /// What is not reserved now.
    pub fn available(&self) -> u64 {
        self.0.borrow().available
    }

    /// True if a reservation waits.
    pub fn is_contended(&self) -> bool {
        !self.0.borrow().waiting.is_empty()
    }

    /// Reserves at once, if nothing waits and there is enough.
    pub fn try_acquire(&self, amount: u64) -> Option<Permit> {
        let mut state = self.0.borrow_mut();
        if !state.waiting.is_empty() || state.available < amount {
            return None;
        }
        state.available -= amount;
        Some(Permit {
            budget: self.clone(),
            amount,
        })
    }

    /// Waits for `amount` units. The caller keeps `amount` within
    /// [`Budget::total`]: more could never be granted, and all behind it would wait
    /// for ever.
    ///
    /// # Panics
    /// If `amount` is more than the whole budget.
    pub fn acquire(&self, amount: u64) -> Acquire {
        let total = self.total();
        assert!(
            amount <= total,
            "a reservation of {amount} from a budget of {total}"
        );
        Acquire {
            budget: self.clone(),
            amount,
            id: None,
        }
    }

    fn give_back(&self, amount: u64) {
        let woken = {
            let mut state = self.0.borrow_mut();
            state.available += amount;
            debug_assert!(state.available <= state.total);
            state.front_waker()
        };
        if let Some(waker) = woken {
            waker.wake();
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} of {})", self.available(), self.total())
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({})", self.amount)
    }
}

impl State {
    fn front_waker(&self) -> Option<Waker> {
        self.waiting
            .front()
            .filter(|front| front.amount <= self.available)
            .map(|front| front.waker.clone())
    }

    fn position(&self, id: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&id, |w| w.id)
    }
}

impl Permit {
    /// The units held.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Gives back what exceeds `amount`.
    pub fn shrink_to(&mut self, amount: u64) {
        if amount < self.amount {
            let surplus = self.amount - amount;
            self.amount = amount;
            self.budget.give_back(surplus);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.give_back(self.amount);
    }
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let this = &mut *self;
        let mut state = this.budget.0.borrow_mut();
        let first = match (this.id, state.waiting.front()) {
            (_, None) => true,
            (Some(id), Some(front)) => front.id == id,
            (None, Some(_)) => false,
        };
        if first && state.available >= this.amount {
            state.available -= this.amount;
            let own = this.id.take().and_then(|_| state.waiting.pop_front());
            let next = state.front_waker();
            drop(state);
            drop(own);
            if let Some(waker) = next {
                waker.wake();
            }
            return Poll::Ready(Permit {
                amount: this.amount,
                budget: this.budget.clone(),
            });
        }
        let mut replaced = None;
        match this.id {
            Some(id) => {
                if let Ok(index) = state.position(id) {
                    let waker = &mut state.waiting[index].waker;
                    if !waker.will_wake(cx.waker()) {
                        replaced = Some(std::mem::replace(waker, cx.waker().clone()));
                    }
                }
            }
            None => {
                state.next_id += 1;
                let id = state.next_id;
                state.waiting.push_back(Waiting {
                    id,
                    amount: this.amount,
                    waker: cx.waker().clone(),
                });
                this.id = Some(id);
            }
        }
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut state = self.budget.0.borrow_mut();
        let removed = match state.position(id) {
            Ok(index) => state.waiting.remove(index),
            Err(_) => None,
        };
        // Those behind a large reservation may fit now.
        let next = state.front_waker();
        drop(state);
        drop(removed);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Probe;
    use super::*;
    use crate::runtime::sim::World;
    use crate::runtime::Queue;
    use std::cell::Cell;
    use std::time::Duration;

    fn ready(poll: Poll<Permit>) -> Permit {
        match poll {
            Poll::Ready(permit) => permit,
            Poll::Pending => panic!("the reservation still waits"),
        }
    }

    #[test]
    fn what_is_free_is_granted_at_once_and_given_back() {
        let budget = Budget::new(10);
        let permit = ready(Probe::new(budget.acquire(7)).poll());
        assert_eq!((budget.available(), permit.amount()), (3, 7));
        assert!(budget.try_acquire(4).is_none());
        drop(permit);
        assert_eq!((budget.available(), budget.total()), (10, 10));
    }

    #[test]
    fn reservations_are_granted_first_come_first_served() {
        let budget = Budget::new(10);
        let held = budget.try_acquire(8);
        let mut large = Probe::new(budget.acquire(9));
        let mut small = Probe::new(budget.acquire(1));
        assert!(large.poll().is_pending());
        // Two units are free, but the small one came later.
        assert!(small.poll().is_pending());
        assert!(budget.is_contended());
        assert!(budget.try_acquire(1).is_none());
        drop(held);
        assert_eq!((large.wakes(), small.wakes()), (1, 0));
        let _large = ready(large.poll());
        assert_eq!(small.wakes(), 1);
        let _small = ready(small.poll());
        assert_eq!(budget.available(), 0);
    }

    #[test]
    fn a_large_reservation_that_gives_up_lets_the_small_ones_behind_it_through() {
        let budget = Budget::new(10);
        let _held = budget.try_acquire(8);
        let mut large = Probe::new(budget.acquire(9));
        let mut small = Probe::new(budget.acquire(1));
        let mut other = Probe::new(budget.acquire(1));
        for probe in [&mut large, &mut small, &mut other] {
            assert!(probe.poll().is_pending());
        }
        drop(large);
        assert_eq!((small.wakes(), other.wakes()), (1, 0));
        let _small = ready(small.poll());
        assert_eq!(other.wakes(), 1);
        let _other = ready(other.poll());
    }

    #[test]
    fn a_woken_reservation_that_gives_up_passes_its_turn_on() {
        let budget = Budget::new(1);
        let held = budget.try_acquire(1);
        let mut first = Probe::new(budget.acquire(1));
        let mut second = Probe::new(budget.acquire(1));
        assert!(first.poll().is_pending());
        assert!(second.poll().is_pending());
        drop(held);
        assert_eq!((first.wakes(), second.wakes()), (1, 0));
        drop(first);
        assert_eq!(second.wakes(), 1);
        drop(ready(second.poll()));
        assert_eq!(budget.available(), 1);
    }

    #[test]
    fn a_waiter_in_the_middle_that_gives_up_changes_nothing_for_the_others() {
        let budget = Budget::new(2);
        let held = budget.try_acquire(2);
        let mut probes: Vec<_> = (0..3).map(|_| Probe::new(budget.acquire(2))).collect();
        for probe in &mut probes {
            assert!(probe.poll().is_pending());
        }
        drop(probes.remove(1));
        drop(held);
        let granted = ready(probes[0].poll());
        assert!(probes[1].poll().is_pending());
        drop(granted);
        drop(ready(probes[1].poll()));
    }

    #[test]
    fn a_permit_that_shrinks_gives_the_surplus_to_the_next() {
        let budget = Budget::new(10);
        let mut permit = ready(Probe::new(budget.acquire(10)).poll());
        let mut waiting = Probe::new(budget.acquire(4));
        assert!(waiting.poll().is_pending());
        permit.shrink_to(8);
        assert!(waiting.poll().is_pending());
        permit.shrink_to(9);
        assert_eq!(permit.amount(), 8);
        permit.shrink_to(6);
        let _four = ready(waiting.poll());
        assert_eq!(budget.available(), 0);
    }

    #[test]
    #[should_panic(expected = "a reservation of 11 from a budget of 10")]
    fn more_than_the_whole_budget_is_refused_loudly() {
        drop(Budget::new(10).acquire(11));
    }

    #[test]
    fn busy_tasks_of_all_sizes_all_get_their_turn() {
        for seed in 0..20 {
            let world = World::new(seed);
            let node = world.node("a");
            let budget = Budget::new(10);
            let turns: Rc<Vec<Cell<u32>>> = Rc::new(vec![Cell::new(0); 10]);
            for task in 0..10_u64 {
                let (rt, budget, turns) = (node.rt(), budget.clone(), turns.clone());
                rt.clone().spawn(Queue::Latency, async move {
                    loop {
                        // Now and then a wait is given up.
                        let limit = Duration::from_nanos(1 + rt.random_u64() % 50_000_000);
                        let granted = rt.timeout(limit, budget.acquire(task + 1)).await;
                        if let Ok(_permit) = granted {
                            rt.sleep(Duration::from_micros(rt.random_u64() % 2_000))
                                .await;
                            let turn = &turns[task as usize];
                            turn.set(turn.get() + 1);
                        }
                    }
                });
            }
            world.run_for(Duration::from_secs(2));
            let turns: Vec<u32> = turns.iter().map(Cell::get).collect();
            assert!(turns.iter().all(|t| *t > 50), "seed {seed}: {turns:?}");
            let held = budget.total() - budget.available();
            assert!(held > 0, "seed {seed}");
        }
    }
}
