//! A condition that tasks wait for.
//!
//! No waker is called or dropped while the state is borrowed: dropping a waker may
//! drop its task, and with it another waiter of the same event.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes every task that waits. A waiter looks at its condition, takes
/// [`Event::listen`] *before* it looks, and waits only if the condition does not
/// hold, so a wake-up between looking and waiting is not lost.
///
/// A notification that nobody waits for costs an addition; one that wakes keeps its
/// list for the next waiters. To stop waiting costs a binary search and a move.
#[derive(Clone, Default)]
pub struct Event(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    /// Counts the notifications.
    generation: u64,
    next_id: u64,
    /// Those that listen since the last notification, by rising id.
    waiting: Vec<(u64, Waker)>,
}

/// Resolves at the first [`Event::notify_all`] after it was made.
#[must_use = "it waits only when awaited"]
pub struct Listen {
    event: Event,
    generation: u64,
    id: Option<u64>,
}

impl Event {
    /// A new event that nobody waits for.
    pub fn new() -> Event {
        Event::default()
    }

    /// A future that resolves at the next [`Event::notify_all`].
    pub fn listen(&self) -> Listen {
        Listen {
            event: self.clone(),
            generation: self.0.borrow().generation,
            id: None,
        }
    }

    /// Waits until `condition` holds, looking again at every notification.
    pub async fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        loop {
            let listen = self.listen();
            if condition() {
                return;
            }
            listen.await;
        }
    }

    /// Wakes all that listen now, in the order in which they began to wait.
    pub fn notify_all(&self) {
        let mut woken = {
            let mut state = self.0.borrow_mut();
            state.generation += 1;
            if state.waiting.is_empty() {
                return;
            }
            std::mem::take(&mut state.waiting)
        };
        for (_, waker) in woken.drain(..) {
            waker.wake();
        }
        let mut state = self.0.borrow_mut();
        if state.waiting.capacity() == 0 {
            state.waiting = woken;
        }
    }
}

impl Future for Listen {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut state = this.event.0.borrow_mut();
        if state.generation != this.generation {
            this.id = None;
            return Poll::Ready(());
        }
        let Some(id) = this.id else {
            state.next_id += 1;
            this.id = Some(state.next_id);
            let entry = (state.next_id, cx.waker().clone());
            state.waiting.push(entry);
            return Poll::Pending;
        };
        let mut replaced = None;
        if let Ok(index) = state.position(id) {
            let waker = &mut state.waiting[index].1;
            if !waker.will_wake(cx.waker()) {
                replaced = Some(std::mem::replace(waker, cx.waker().clone()));
            }
        }
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Listen {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut state = self.event.0.borrow_mut();
        if state.generation != self.generation {
            return;
        }
        let removed = match state.position(id) {
            Ok(index) => Some(state.waiting.remove(index)),
            Err(_) => None,
        };
        drop(state);
        drop(removed);
    }
}

impl State {
    fn position(&self, id: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&id, |(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Probe;
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_notification_wakes_all_that_listen_in_order() {
        let event = Event::new();
        let log = Probe::log();
        let mut probes: Vec<_> = (0..5)
            .map(|i| Probe::logged(i, &log, event.listen()))
            .collect();
        for probe in &mut probes {
            assert!(probe.poll().is_pending());
        }
        event.notify_all();
        assert_eq!(Probe::entries(&log), [0, 1, 2, 3, 4]);
        for probe in &mut probes {
            assert!(probe.poll().is_ready());
        }
    }

    #[test]
    fn a_notification_between_listening_and_waiting_is_not_lost() {
        let event = Event::new();
        let mut before = Probe::new(event.listen());
        event.notify_all();
        let mut after = Probe::new(event.listen());
        assert!(before.poll().is_ready());
        assert!(after.poll().is_pending());
        assert_eq!(after.wakes(), 0);
    }

    #[test]
    fn a_listener_that_moved_to_another_task_wakes_that_task() {
        let event = Event::new();
        let mut probe = Probe::new(event.listen());
        assert!(probe.poll().is_pending());
        let old = probe.renew_waker();
        assert!(probe.poll().is_pending());
        event.notify_all();
        assert_eq!((old.wakes(), probe.wakes()), (0, 1));
    }

    #[test]
    fn a_dropped_listener_is_forgotten_and_the_others_wake() {
        let event = Event::new();
        let mut probes: Vec<_> = (0..5).map(|_| Probe::new(event.listen())).collect();
        for probe in &mut probes {
            assert!(probe.poll().is_pending());
        }
        let dropped = probes.remove(2).into_waker();
        assert_eq!(event.0.borrow().waiting.len(), 4);
        event.notify_all();
        assert_eq!(dropped.wakes(), 0);
        assert!(probes.iter().all(|p| p.wakes() == 1));
        // Woken but not polled: dropping it must not touch those who listen now.
        let mut late = Probe::new(event.listen());
        assert!(late.poll().is_pending());
        drop(probes);
        event.notify_all();
        assert_eq!(late.wakes(), 1);
    }

    #[test]
    fn a_condition_is_looked_at_before_and_after_each_wait() {
        let event = Event::new();
        let count = Rc::new(Cell::new(0));
        let seen = count.clone();
        let mut probe = Probe::new(event.wait_until(move || seen.get() >= 2));
        assert!(probe.poll().is_pending());
        for expected in [false, true] {
            count.set(count.get() + 1);
            event.notify_all();
            assert_eq!(probe.poll().is_ready(), expected);
        }
    }

    #[test]
    fn a_notification_without_waiters_and_a_repeated_wait_allocate_nothing_new() {
        let event = Event::new();
        event.notify_all();
        assert_eq!(event.0.borrow().waiting.capacity(), 0);
        let mut probe = Probe::new(event.listen());
        assert!(probe.poll().is_pending());
        event.notify_all();
        let kept = event.0.borrow().waiting.capacity();
        assert!(kept > 0);
        let mut again = Probe::new(event.listen());
        assert!(again.poll().is_pending());
        assert_eq!(event.0.borrow().waiting.capacity(), kept);
    }

    #[test]
    fn a_waker_that_drops_another_waiter_of_the_event_does_no_harm() {
        let event = Event::new();
        let inner = {
            let mut inner = Probe::new(event.listen());
            assert!(inner.poll().is_pending());
            inner
        };
        // A waker whose last reference owns a waiter of the same event.
        let mut outer = Box::pin(event.listen());
        {
            let waker = super::super::testing::owning_waker(inner);
            let polled = outer.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        drop(outer);
        assert!(event.0.borrow().waiting.is_empty());
        event.notify_all();
    }

    #[test]
    fn thousands_of_waiters_come_and_go() {
        let event = Event::new();
        let mut probes: Vec<_> = (0..5_000).map(|_| Probe::new(event.listen())).collect();
        for probe in &mut probes {
            assert!(probe.poll().is_pending());
        }
        let left = probes.split_off(2_500);
        drop(left);
        event.notify_all();
        assert!(probes.iter_mut().all(|p| p.poll().is_ready()));
    }
}
