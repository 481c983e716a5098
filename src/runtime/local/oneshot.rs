//! One value from one task to another.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Slot<T> {
    value: Option<T>,
    sender_gone: bool,
    receiver_gone: bool,
    waker: Option<Waker>,
}

/// The sending end.
pub struct OneshotSender<T>(Rc<RefCell<Slot<T>>>);

/// The receiving end: a future of the value, or `None` if the sender was dropped.
pub struct OneshotReceiver<T>(Rc<RefCell<Slot<T>>>);

/// Makes a pair.
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let slot = Rc::new(RefCell::new(Slot {
        value: None,
        sender_gone: false,
        receiver_gone: false,
        waker: None,
    }));
    (OneshotSender(slot.clone()), OneshotReceiver(slot))
}

impl<T> OneshotSender<T> {
    /// Hands the value over; gives it back if nobody waits any more.
    pub fn send(self, value: T) -> Result<(), T> {
        let waker = {
            let mut slot = self.0.borrow_mut();
            if slot.receiver_gone {
                return Err(value);
            }
            slot.value = Some(value);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.borrow_mut();
            slot.sender_gone = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for OneshotReceiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.0.borrow_mut();
        if let Some(value) = slot.value.take() {
            return Poll::Ready(Some(value));
        }
        if slot.sender_gone {
            return Poll::Ready(None);
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for OneshotReceiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut slot = self.0.borrow_mut();
            slot.receiver_gone = true;
            slot.value.take()
        };
        drop(left);
    }
}
