//! A condition that tasks wait for.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes every task that waits. A waiter looks at its condition, takes
/// [`Event::listen`] *before* it looks, and waits only if the condition does not
/// hold, so a wake-up between looking and waiting is not lost.
#[derive(Clone, Default)]
pub struct Event(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    generation: u64,
    next_id: u64,
    waiting: Vec<(u64, Waker)>,
}

/// Resolves at the first [`Event::notify_all`] after it was made.
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

    /// Wakes all that listen now.
    pub fn notify_all(&self) {
        let woken = {
            let mut state = self.0.borrow_mut();
            state.generation += 1;
            std::mem::take(&mut state.waiting)
        };
        for (_, waker) in woken {
            waker.wake();
        }
    }
}

impl Future for Listen {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let event = self.event.clone();
        let mut state = event.0.borrow_mut();
        if state.generation != self.generation {
            self.id = None;
            return Poll::Ready(());
        }
        let id = *self.id.get_or_insert_with(|| {
            state.next_id += 1;
            state.next_id
        });
        match state.waiting.iter_mut().find(|(other, _)| *other == id) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => state.waiting.push((id, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Listen {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.event
                .0
                .borrow_mut()
                .waiting
                .retain(|(other, _)| *other != id);
        }
    }
}
