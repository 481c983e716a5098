//! A bounded queue from many senders to one receiver.

use super::Event;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

struct Shared<T> {
    queue: RefCell<VecDeque<T>>,
    capacity: usize,
    senders: Cell<usize>,
    receiver_gone: Cell<bool>,
    changed: Event,
}

/// A sending end; cloneable.
pub struct Sender<T>(Rc<Shared<T>>);

/// The receiving end.
pub struct Receiver<T>(Rc<Shared<T>>);

/// Why [`Sender::try_send`] gave the value back.
#[derive(Debug, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The queue holds its capacity.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

/// Makes a queue for at most `capacity` values.
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a queue needs room for one value");
    let shared = Rc::new(Shared {
        queue: RefCell::new(VecDeque::new()),
        capacity,
        senders: Cell::new(1),
        receiver_gone: Cell::new(false),
        changed: Event::new(),
    });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    /// Queues a value if there is room.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        if self.0.receiver_gone.get() {
            return Err(TrySendError::Closed(value));
        }
        if self.0.queue.borrow().len() >= self.0.capacity {
            return Err(TrySendError::Full(value));
        }
        self.0.queue.borrow_mut().push_back(value);
        self.0.changed.notify_all();
        Ok(())
    }

    /// Waits for room; gives the value back if the receiver is gone.
    pub async fn send(&self, value: T) -> Result<(), T> {
        let mut value = value;
        loop {
            let listen = self.0.changed.listen();
            match self.try_send(value) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(back)) => return Err(back),
                Err(TrySendError::Full(back)) => value = back,
            }
            listen.await;
        }
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
            self.0.changed.notify_all();
        }
    }
}

impl<T> Receiver<T> {
    /// Takes a value if one is there.
    pub fn try_recv(&mut self) -> Option<T> {
        let value = self.0.queue.borrow_mut().pop_front();
        if value.is_some() {
            self.0.changed.notify_all();
        }
        value
    }

    /// Waits for a value; `None` once the queue is empty and every sender is gone.
    pub async fn recv(&mut self) -> Option<T> {
        loop {
            let listen = self.0.changed.listen();
            if let Some(value) = self.try_recv() {
                return Some(value);
            }
            if self.0.senders.get() == 0 {
                return None;
            }
            listen.await;
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.receiver_gone.set(true);
        let left = std::mem::take(&mut *self.0.queue.borrow_mut());
        drop(left);
        self.0.changed.notify_all();
    }
}
