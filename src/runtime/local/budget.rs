//! A byte budget: reservations are granted in order, and waiting is back-pressure.

use std::cell::RefCell;
use std::collections::VecDeque;
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
    /// [`Budget::total`]; more could never be granted.
    pub fn acquire(&self, amount: u64) -> Acquire {
        debug_assert!(
            amount <= self.total(),
            "a reservation larger than the budget"
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

impl State {
    fn front_waker(&self) -> Option<Waker> {
        self.waiting
            .front()
            .filter(|front| front.amount <= self.available)
            .map(|front| front.waker.clone())
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
        let budget = self.budget.clone();
        let mut state = budget.0.borrow_mut();
        let first = match (self.id, state.waiting.front()) {
            (_, None) => true,
            (Some(id), Some(front)) => front.id == id,
            (None, Some(_)) => false,
        };
        if first && state.available >= self.amount {
            state.available -= self.amount;
            if self.id.take().is_some() {
                state.waiting.pop_front();
            }
            let next = state.front_waker();
            drop(state);
            if let Some(waker) = next {
                waker.wake();
            }
            return Poll::Ready(Permit {
                amount: self.amount,
                budget: self.budget.clone(),
            });
        }
        match self.id {
            Some(id) => {
                if let Some(entry) = state.waiting.iter_mut().find(|w| w.id == id) {
                    entry.waker.clone_from(cx.waker());
                }
            }
            None => {
                state.next_id += 1;
                let id = state.next_id;
                state.waiting.push_back(Waiting {
                    id,
                    amount: self.amount,
                    waker: cx.waker().clone(),
                });
                self.id = Some(id);
            }
        }
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let woken = {
            let mut state = self.budget.0.borrow_mut();
            state.waiting.retain(|w| w.id != id);
            state.front_waker()
        };
        if let Some(waker) = woken {
            waker.wake();
        }
    }
}
