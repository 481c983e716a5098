//! A bounded queue from many senders to one receiver.
//!
//! Room in the queue is a [`Budget`]: each value holds one unit until it is received,
//! so senders get room in the order in which they asked, and a sender that stops
//! waiting passes its turn on.

use super::{Budget, Permit};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

struct Shared<T> {
    queue: RefCell<VecDeque<(T, Permit)>>,
    room: Budget,
    senders: Cell<usize>,
    receiver_gone: Cell<bool>,
    receiver: RefCell<Option<Waker>>,
}

/// A sending end; cloneable.
pub struct Sender<T>(Rc<Shared<T>>);

/// The receiving end.
pub struct Receiver<T>(Rc<Shared<T>>);

/// Why [`Sender::try_send`] gave the value back.
#[derive(Debug, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The queue holds its capacity, or other senders wait for room.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

/// Makes a queue for at most `capacity` values.
///
/// # Panics
/// If `capacity` is 0.
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a queue needs room for one value");
    let shared = Rc::new(Shared {
        queue: RefCell::new(VecDeque::new()),
        room: Budget::new(capacity as u64),
        senders: Cell::new(1),
        receiver_gone: Cell::new(false),
        receiver: RefCell::new(None),
    });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    /// Queues a value if there is room that nobody waits for.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        if self.0.receiver_gone.get() {
            return Err(TrySendError::Closed(value));
        }
        match self.0.room.try_acquire(1) {
            Some(room) => {
                self.0.push(value, room);
                Ok(())
            }
            None => Err(TrySendError::Full(value)),
        }
    }

    /// Waits for room; gives the value back if the receiver is gone.
    pub async fn send(&self, value: T) -> Result<(), T> {
        let room = self.0.room.acquire(1).await;
        if self.0.receiver_gone.get() {
            return Err(value);
        }
        self.0.push(value, room);
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.set(self.0.senders.get() + 1);
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.senders.set(self.0.senders.get() - 1);
        if self.0.senders.get() == 0 {
            self.0.wake_receiver();
        }
    }
}

impl<T> Receiver<T> {
    /// Takes a value if one is there.
    pub fn try_recv(&mut self) -> Option<T> {
        let taken = self.0.queue.borrow_mut().pop_front();
        // The room is given back outside the borrow: that wakes a sender.
        taken.map(|(value, _room)| value)
    }

    /// Waits for a value; `None` once the queue is empty and every sender is gone.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| {
            if let Some(value) = self.try_recv() {
                return Poll::Ready(Some(value));
            }
            if self.0.senders.get() == 0 {
                return Poll::Ready(None);
            }
            let replaced = self.0.receiver.replace(Some(cx.waker().clone()));
            drop(replaced);
            Poll::Pending
        })
        .await
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.receiver_gone.set(true);
        let waker = self.0.receiver.take();
        // Its room wakes the first waiting sender, which passes it on.
        let left = std::mem::take(&mut *self.0.queue.borrow_mut());
        drop((waker, left));
    }
}

impl<T> Shared<T> {
    fn push(&self, value: T, room: Permit) {
        self.queue.borrow_mut().push_back((value, room));
        self.wake_receiver();
    }

    fn wake_receiver(&self) {
        let waker = self.receiver.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Probe;
    use super::*;

    #[test]
    fn values_arrive_in_order_and_wake_the_receiver() {
        let (sender, mut receiver) = channel(4);
        let mut probe = Probe::new(receiver.recv());
        assert!(probe.poll().is_pending());
        assert_eq!(sender.try_send(1), Ok(()));
        assert_eq!(sender.try_send(2), Ok(()));
        assert_eq!(probe.wakes(), 1);
        assert_eq!(probe.poll(), Poll::Ready(Some(1)));
        drop(probe);
        assert_eq!(receiver.try_recv(), Some(2));
        assert_eq!(receiver.try_recv(), None);
    }

    #[test]
    fn a_full_queue_refuses_and_makes_senders_wait_in_order() {
        let (sender, mut receiver) = channel(1);
        assert_eq!(sender.try_send(0), Ok(()));
        assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
        let mut first = Probe::new(sender.send(1));
        let mut second = Probe::new(sender.send(2));
        assert!(first.poll().is_pending());
        assert!(second.poll().is_pending());
        assert_eq!(receiver.try_recv(), Some(0));
        assert_eq!((first.wakes(), second.wakes()), (1, 0));
        // Whoever comes now does not overtake those who wait.
        assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
        assert!(second.poll().is_pending());
        assert_eq!(first.poll(), Poll::Ready(Ok(())));
        assert_eq!(receiver.try_recv(), Some(1));
        assert_eq!(second.poll(), Poll::Ready(Ok(())));
        assert_eq!(receiver.try_recv(), Some(2));
    }

    #[test]
    fn a_woken_sender_that_is_dropped_passes_its_turn_on() {
        let (sender, mut receiver) = channel(1);
        assert_eq!(sender.try_send(0), Ok(()));
        let mut first = Probe::new(sender.send(1));
        let mut second = Probe::new(sender.send(2));
        assert!(first.poll().is_pending());
        assert!(second.poll().is_pending());
        assert_eq!(receiver.try_recv(), Some(0));
        drop(first);
        assert_eq!(second.wakes(), 1);
        assert_eq!(second.poll(), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_dropped_receiver_gives_every_waiting_sender_its_value_back() {
        let (sender, receiver) = channel(1);
        assert_eq!(sender.try_send(0), Ok(()));
        let mut probes: Vec<_> = (1..4).map(|i| Probe::new(sender.send(i))).collect();
        for probe in &mut probes {
            assert!(probe.poll().is_pending());
        }
        drop(receiver);
        for (probe, value) in probes.iter_mut().zip(1..4) {
            assert_eq!(probe.wakes(), 1);
            assert_eq!(probe.poll(), Poll::Ready(Err(value)));
        }
        assert_eq!(sender.try_send(9), Err(TrySendError::Closed(9)));
    }

    #[test]
    fn the_last_sender_ends_the_queue_once_it_is_empty() {
        let (sender, mut receiver) = channel(2);
        let other = sender.clone();
        assert_eq!(other.try_send(1), Ok(()));
        drop(other);
        assert_eq!(receiver.try_recv(), Some(1));
        let mut probe = Probe::new(receiver.recv());
        assert!(probe.poll().is_pending());
        assert_eq!(sender.try_send(2), Ok(()));
        drop(sender);
        assert_eq!(probe.poll(), Poll::Ready(Some(2)));
        drop(probe);
        assert_eq!(Probe::new(receiver.recv()).poll(), Poll::Ready(None));
    }

    #[test]
    fn a_wait_for_a_value_that_was_dropped_loses_nothing() {
        let (sender, mut receiver) = channel(1);
        let mut given_up = Probe::new(receiver.recv());
        assert!(given_up.poll().is_pending());
        drop(given_up);
        assert_eq!(sender.try_send(1), Ok(()));
        assert_eq!(Probe::new(receiver.recv()).poll(), Poll::Ready(Some(1)));
    }
}
