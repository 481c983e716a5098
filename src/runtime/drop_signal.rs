//! Bytes whose last holder, on whatever thread, tells a task that they are gone.
//!
//! A frame's slices travel to other cores inside messages, but the memory that it is
//! charged to belongs to the executor that read it, whose permits are `!Send`. So the
//! permit stays at home with a task that waits for [`Freed`].
//!
//! Safe without a lock order: the lock is held to exchange a waker, never while one is
//! called or dropped. A waker may be called from another thread, as the mesh does.

use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// Resolves when the last slice of some bytes is dropped.
pub struct Freed(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_freed: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

struct Owner {
    content: Vec<u8>,
    shared: Arc<Shared>,
}

/// Shares `content`, not copied, and says when the last slice of it is gone.
pub fn bytes_and_end(content: Vec<u8>) -> (Bytes, Freed) {
    let shared = Arc::new(Shared::default());
    let freed = Freed(shared.clone());
    (Bytes::from_owner(Owner { content, shared }), freed)
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The memory goes first: who is told may reserve it again.
        self.content = Vec::new();
        self.shared.is_freed.store(true, Ordering::Release);
        let waker = self.shared.waker().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Shared {
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Future for Freed {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = &*self.0;
        if shared.is_freed.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let replaced = shared.waker().replace(cx.waker().clone());
        drop(replaced);
        // The owner may have gone between the two: then it found no waker, or the old one.
        match shared.is_freed.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Freed {
    fn drop(&mut self) {
        // No waker outlives the task that it wakes.
        let left = self.0.waker().take();
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::super::local::testing::Probe;
    use super::*;

    #[test]
    fn the_last_slice_tells_and_no_other_does() {
        let (bytes, freed) = bytes_and_end(vec![1, 2, 3]);
        let slice = bytes.slice(1..);
        let mut probe = Probe::new(freed);
        assert!(probe.poll().is_pending());
        drop(bytes);
        assert_eq!((&slice[..], probe.wakes()), (&[2, 3][..], 0));
        drop(slice);
        assert_eq!(probe.wakes(), 1);
        assert!(probe.poll().is_ready());
    }

    #[test]
    fn bytes_that_are_gone_before_anybody_waits_are_told_at_once() {
        let (bytes, freed) = bytes_and_end(Vec::new());
        drop(bytes);
        assert!(Probe::new(freed).poll().is_ready());
        let (bytes, freed) = bytes_and_end(vec![0; 9]);
        drop(freed);
        drop(bytes);
    }

    #[test]
    fn slices_may_be_dropped_by_other_threads() {
        for _ in 0..200 {
            let (bytes, freed) = bytes_and_end(vec![0; 100]);
            let slices: Vec<Bytes> = (0..4).map(|i| bytes.slice(i..)).collect();
            drop(bytes);
            let threads: Vec<_> = slices
                .into_iter()
                .map(|slice| std::thread::spawn(move || drop(slice)))
                .collect();
            futures_lite::future::block_on(freed);
            for thread in threads {
                thread.join().expect("it only drops");
            }
        }
    }
}
