//! One value from one task to another.
//!
//! No waker is called or dropped, and no value dropped, while the slot is borrowed.

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
        let same = slot.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker()));
        if !same {
            let replaced = slot.waker.replace(cx.waker().clone());
            drop(slot);
            drop(replaced);
        }
        Poll::Pending
    }
}

impl<T> Drop for OneshotReceiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut slot = self.0.borrow_mut();
            slot.receiver_gone = true;
            (slot.value.take(), slot.waker.take())
        };
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Probe;
    use super::*;

    #[test]
    fn a_value_wakes_the_receiver_once_and_is_handed_over() {
        let (sender, receiver) = oneshot();
        let mut probe = Probe::new(receiver);
        assert!(probe.poll().is_pending());
        assert_eq!(sender.send(7), Ok(()));
        assert_eq!(probe.wakes(), 1);
        assert_eq!(probe.poll(), Poll::Ready(Some(7)));
    }

    #[test]
    fn a_value_sent_before_the_receiver_waits_is_there() {
        let (sender, receiver) = oneshot();
        assert_eq!(sender.send("x"), Ok(()));
        assert_eq!(Probe::new(receiver).poll(), Poll::Ready(Some("x")));
    }

    #[test]
    fn a_dropped_sender_wakes_the_receiver_with_nothing() {
        let (sender, receiver) = oneshot::<u32>();
        let mut probe = Probe::new(receiver);
        assert!(probe.poll().is_pending());
        drop(sender);
        assert_eq!(probe.wakes(), 1);
        assert_eq!(probe.poll(), Poll::Ready(None));
    }

    #[test]
    fn a_dropped_receiver_gives_the_value_back_and_lets_its_task_go() {
        let (sender, receiver) = oneshot();
        let mut probe = Probe::new(receiver);
        assert!(probe.poll().is_pending());
        let waker = probe.into_waker();
        assert_eq!(waker.references(), 1, "the slot keeps no waker");
        assert_eq!(sender.send(7), Err(7));
    }

    #[test]
    fn a_receiver_that_moved_to_another_task_wakes_that_task() {
        let (sender, receiver) = oneshot();
        let mut probe = Probe::new(receiver);
        assert!(probe.poll().is_pending());
        let old = probe.renew_waker();
        assert!(probe.poll().is_pending());
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!((old.wakes(), probe.wakes()), (0, 1));
    }

    #[test]
    fn a_value_nobody_took_is_dropped_with_the_receiver() {
        let value = Rc::new(());
        let (sender, receiver) = oneshot();
        assert!(sender.send(value.clone()).is_ok());
        drop(receiver);
        assert_eq!(Rc::strong_count(&value), 1);
    }

    #[test]
    fn a_value_that_owns_the_other_end_does_no_harm() {
        let (sender, receiver) = oneshot::<Box<dyn std::any::Any>>();
        let (inner_sender, inner_receiver) = oneshot::<()>();
        assert!(sender.send(Box::new(inner_sender)).is_ok());
        let mut probe = Probe::new(inner_receiver);
        assert!(probe.poll().is_pending());
        drop(receiver);
        assert_eq!(probe.poll(), Poll::Ready(None));
    }
}
