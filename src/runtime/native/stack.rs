//! A lock-free stack from many threads to one, whose consumer can sleep.
//!
//! Producers push nodes that they own; the consumer takes all that is there with
//! one swap and sees it in the order of the pushes. Two values of the head that
//! are no nodes say that the consumer sleeps (then the push that replaces it wakes
//! it, once) and that the stack is closed (then a push hands its node back).
//!
//! Why it is safe: a node is owned by its producer until the exchange that makes
//! it reachable, and by whoever swapped it out afterwards; only whole lists are
//! taken, so there is no ABA. Bounds are the callers': a node is a buffer that
//! exists anyway, or a message that holds a credit.
//!
//! `tests/stack_loom.rs` runs this file under loom.
//!
//! What it is not: a channel with capacity, or fair between producers.

use super::sync::{AtomicPtr, Mutex, Ordering};
use std::future::poll_fn;
use std::ptr;
use std::task::{Context, Poll, Waker};

/// One element, in an allocation of its own that travels with it.
pub(super) struct Node<T> {
    next: *mut Node<T>,
    value: T,
}

// SAFETY: `next` is only read and written by the node's owner: the producer before
// the push, the consumer after the swap. So a node is as `Send` as its value.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Node<T> {}

impl<T> Node<T> {
    pub(super) fn new(value: T) -> Box<Node<T>> {
        Box::new(Node {
            next: ptr::null_mut(),
            value,
        })
    }

    pub(super) fn get(&self) -> &T {
        &self.value
    }

    /// Exchanges the value: a message's node serves for its answer too.
    pub(super) fn replace(&mut self, value: T) -> T {
        std::mem::replace(&mut self.value, value)
    }

    pub(super) fn into_inner(self) -> T {
        self.value
    }
}

/// The stack. See the head of the file.
pub(super) struct Stack<T> {
    head: AtomicPtr<Node<T>>,
    /// Touched when the consumer goes to sleep or is woken, never by a push to a
    /// stack whose consumer is awake.
    waker: Mutex<Option<Waker>>,
}

// SAFETY: the stack owns the nodes that are reachable from its head and gives them
// out by value; see `Node`.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Stack<T> {}
// SAFETY: as above; every access to the head is an atomic operation.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Stack<T> {}

impl<T: Send> Stack<T> {
    pub(super) fn new() -> Stack<T> {
        Stack {
            head: AtomicPtr::new(ptr::null_mut()),
            waker: Mutex::new(None),
        }
    }

    /// Adds a node, from any thread. Gives it back if the stack is closed.
    #[allow(unsafe_code)]
    pub(super) fn push(&self, node: Box<Node<T>>) -> Result<(), Box<Node<T>>> {
        let node = Box::into_raw(node);
        let mut old = self.head.load(Ordering::Acquire);
        loop {
            if old == closed() {
                // SAFETY: the node came from `Box::into_raw` above and was never
                // made reachable.
                return Err(unsafe { Box::from_raw(node) });
            }
            let next = if old == parked() {
                ptr::null_mut()
            } else {
                old
            };
            // SAFETY: until the exchange below succeeds the node is ours alone.
            unsafe { (*node).next = next };
            match self
                .head
                .compare_exchange(old, node, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if old == parked() {
            self.wake();
        }
        Ok(())
    }

    /// Takes all that is there, oldest first.
    pub(super) fn take(&self) -> Taken<T> {
        let mut old = self.head.load(Ordering::Acquire);
        loop {
            if old.is_null() || old == parked() || old == closed() {
                return Taken(ptr::null_mut());
            }
            match self.head.compare_exchange(
                old,
                ptr::null_mut(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(list) => return Taken::in_order_of_pushes(list),
                Err(now) => old = now,
            }
        }
    }

    /// Sleeps until there is something to take, or the stack is closed. One
    /// consumer at a time.
    pub(super) async fn wait(&self) {
        poll_fn(|cx| self.poll_wait(cx)).await
    }

    pub(super) fn poll_wait(&self, cx: &mut Context<'_>) -> Poll<()> {
        let head = self.head.load(Ordering::Acquire);
        if !head.is_null() && head != parked() {
            return Poll::Ready(());
        }
        {
            let mut waker = self.waker.lock().unwrap_or_else(|e| e.into_inner());
            match &mut *waker {
                Some(old) if old.will_wake(cx.waker()) => {}
                slot => *slot = Some(cx.waker().clone()),
            }
        }
        match self.head.compare_exchange(
            ptr::null_mut(),
            parked(),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => Poll::Pending,
            Err(head) if head == parked() => Poll::Pending,
            Err(_) => Poll::Ready(()),
        }
    }

    /// Closes the stack for good and takes what was left. A sleeping consumer wakes.
    pub(super) fn close(&self) -> Taken<T> {
        let old = self.head.swap(closed(), Ordering::AcqRel);
        if old == parked() {
            self.wake();
        }
        *self.waker.lock().unwrap_or_else(|e| e.into_inner()) = None;
        if old == parked() || old == closed() {
            return Taken(ptr::null_mut());
        }
        Taken::in_order_of_pushes(old)
    }

    fn wake(&self) {
        let waker = self.waker.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(waker) = &*waker {
            waker.wake_by_ref();
        }
    }
}

impl<T> Drop for Stack<T> {
    fn drop(&mut self) {
        let head = self.head.load(Ordering::Acquire);
        if head != parked() && head != closed() {
            drop(Taken(head));
        }
    }
}

/// Nodes that were taken out; iterates over them.
pub(super) struct Taken<T>(*mut Node<T>);

impl<T> Taken<T> {
    #[allow(unsafe_code)]
    fn in_order_of_pushes(mut list: *mut Node<T>) -> Taken<T> {
        let mut reversed = ptr::null_mut();
        while !list.is_null() {
            // SAFETY: the whole list was swapped out of the head, so its nodes are
            // ours alone and each is live.
            unsafe {
                let next = (*list).next;
                (*list).next = reversed;
                reversed = list;
                list = next;
            }
        }
        Taken(reversed)
    }
}

impl<T> Iterator for Taken<T> {
    type Item = Box<Node<T>>;

    #[allow(unsafe_code)]
    fn next(&mut self) -> Option<Box<Node<T>>> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the list is ours alone; each node came from `Box::into_raw`.
        let mut node = unsafe { Box::from_raw(self.0) };
        self.0 = std::mem::replace(&mut node.next, ptr::null_mut());
        Some(node)
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        for node in self.by_ref() {
            drop(node);
        }
    }
}

/// The head while the consumer sleeps. Never dereferenced; no node has an odd
/// address.
fn parked<T>() -> *mut Node<T> {
    ptr::without_provenance_mut(1)
}

/// The head once the stack is closed. Never dereferenced.
fn closed<T>() -> *mut Node<T> {
    ptr::without_provenance_mut(3)
}
