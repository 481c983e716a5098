//! Futures polled by hand, with wakers that count, for the tests of this folder.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// A future and its waker.
pub(in crate::runtime) struct Probe<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    waker: Arc<Counter>,
}

type Log = Arc<Mutex<Vec<usize>>>;

/// A waker that counts its calls.
pub(in crate::runtime) struct Counter {
    wakes: AtomicUsize,
    log: Option<(usize, Log)>,
}

/// The waker of a probe that is gone or has another now.
pub(in crate::runtime) struct OldWaker(Arc<Counter>);

impl<'a, T> Probe<'a, T> {
    pub fn new(future: impl Future<Output = T> + 'a) -> Probe<'a, T> {
        Probe {
            future: Box::pin(future),
            waker: Counter::new(None),
        }
    }

    /// One that writes `id` into `log` when it is woken.
    pub fn logged(id: usize, log: &Log, future: impl Future<Output = T> + 'a) -> Probe<'a, T> {
        Probe {
            future: Box::pin(future),
            waker: Counter::new(Some((id, log.clone()))),
        }
    }

    pub fn poll(&mut self) -> Poll<T> {
        let waker = Waker::from(self.waker.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub fn wakes(&self) -> usize {
        self.waker.wakes.load(Ordering::Relaxed)
    }

    /// Gives it a new waker, as if another task polled it from now on.
    pub fn renew_waker(&mut self) -> OldWaker {
        OldWaker(std::mem::replace(&mut self.waker, Counter::new(None)))
    }

    /// Drops the future.
    pub fn into_waker(self) -> OldWaker {
        drop(self.future);
        OldWaker(self.waker)
    }
}

impl Probe<'_, ()> {
    pub fn log() -> Log {
        Log::default()
    }

    pub fn entries(log: &Log) -> Vec<usize> {
        log.lock().unwrap().clone()
    }
}

impl OldWaker {
    pub fn wakes(&self) -> usize {
        self.0.wakes.load(Ordering::Relaxed)
    }

    pub fn references(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl Counter {
    fn new(log: Option<(usize, Log)>) -> Arc<Counter> {
        Arc::new(Counter {
            wakes: AtomicUsize::new(0),
            log,
        })
    }
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        if let Some((id, log)) = &self.log {
            log.lock().unwrap().push(*id);
        }
    }
}

/// A waker whose last reference drops `owned`, as the last waker of a task may drop
/// the task.
pub(in crate::runtime) fn owning_waker(owned: impl Any) -> Waker {
    let key = OWNED.with_borrow_mut(|all| {
        let key = all.len();
        all.insert(key, Box::new(owned));
        key
    });
    Waker::from(Arc::new(Owner(key)))
}

struct Owner(usize);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Owner {
    fn drop(&mut self) {
        let owned = OWNED.with_borrow_mut(|all| all.remove(&self.0));
        drop(owned);
    }
}

thread_local! {
    static OWNED: RefCell<BTreeMap<usize, Box<dyn Any>>> = RefCell::default();
}
