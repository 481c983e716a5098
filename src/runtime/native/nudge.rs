//! The thread that bounds a fault of glommio.
//!
//! The fault (glommio-ng 0.12, `LocalExecutor::run`): if the preemption timer has
//! already fired when the run loop is entered, no queue is run, "nothing ran" is
//! taken for "nothing is runnable", and the executor parks with runnable tasks. They
//! then wait for the next event, whatever that is: a lost wake-up. It needs the
//! thread to lose its CPU between arming the timer and the loop: about one in 20
//! million round trips on a quiet machine, one in some ten thousand where other
//! processes want the core.
//!
//! A timer of the executor itself is no cure: the task that it wakes may be among
//! those that are parked on, and then no timer is left (seen: an executor that slept
//! for good while it loaded partitions). A wake from another thread always ends a
//! park. So one thread for the whole process wakes every executor each 10 ms while any
//! of them has connections or operations, and each 250 ms otherwise (an accept or a
//! signal can be hit on an idle executor too).
//!
//! The same thread looks whether a task holds its core (`watch.rs`).

use super::watch::Watch;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// An executor that is to be woken. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Nudged(Arc<Target>);

#[derive(Default)]
struct Target {
    busy: AtomicBool,
    ended: AtomicBool,
    waker: Mutex<Option<Waker>>,
    watch: OnceLock<Watch>,
}

/// What an executor runs so that it can be woken: pending until [`Nudged::end`].
pub(super) struct Nap(Nudged);

impl Nudged {
    /// Has the executor watched too. Once, before [`Nudged::start`].
    pub fn watch(&self, watch: Watch) {
        self.0.watch.set(watch).expect("one watch for an executor");
    }

    /// Registers the calling executor; it must run the nap.
    pub fn start(&self) -> Nap {
        let (targets, thread) = nudger();
        locked(targets).push(Arc::downgrade(&self.0));
        thread.unpark();
        Nap(self.clone())
    }

    /// Whether it has connections or operations in flight.
    pub fn set_busy(&self, busy: bool) {
        self.0.busy.store(busy, Ordering::Relaxed);
        if busy && DOZING.swap(false, Ordering::Relaxed) {
            if let Some((_, thread)) = NUDGER.get() {
                thread.unpark();
            }
        }
    }

    /// Ends the nap; the executor is woken no more.
    pub fn end(&self) {
        self.0.ended.store(true, Ordering::Relaxed);
        let waker = locked(&self.0.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Nap {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let target = &self.0 .0;
        if target.ended.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let mut waker = locked(&target.waker);
        let old = match &*waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => waker.replace(cx.waker().clone()),
        };
        // A waker is not dropped under a lock that its drop might want.
        drop(waker);
        drop(old);
        Poll::Pending
    }
}

type Targets = Mutex<Vec<Weak<Target>>>;

static NUDGER: OnceLock<(Arc<Targets>, std::thread::Thread)> = OnceLock::new();

fn nudger() -> &'static (Arc<Targets>, std::thread::Thread) {
    NUDGER.get_or_init(|| {
        let targets: Arc<Targets> = Arc::default();
        let mine = targets.clone();
        let thread = std::thread::Builder::new()
            .name("nudge".to_string())
            .spawn(move || run(&mine))
            .expect("a thread can be started");
        (targets, thread.thread().clone())
    })
}

fn run(targets: &Targets) {
    let mut busy_at = Instant::now();
    loop {
        let alive: Vec<Arc<Target>> = {
            let mut targets = locked(targets);
            targets.retain(|target| target.strong_count() > 0);
            targets.iter().filter_map(Weak::upgrade).collect()
        };
        for target in &alive {
            let is_polling = target.watch.get().is_some_and(Watch::look);
            if is_polling || target.busy.load(Ordering::Relaxed) {
                busy_at = Instant::now();
            }
            if let Some(waker) = &*locked(&target.waker) {
                waker.wake_by_ref();
            }
        }
        drop(alive);
        if busy_at.elapsed() < ALERT {
            std::thread::park_timeout(BUSY_PERIOD);
        } else {
            DOZING.store(true, Ordering::Relaxed);
            std::thread::park_timeout(IDLE_PERIOD);
            DOZING.store(false, Ordering::Relaxed);
        }
    }
}

/// Time since the first call.
pub(super) fn since_start() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing that runs under these locks panics half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread sleeps for the long period: whoever becomes busy calls it.
static DOZING: AtomicBool = AtomicBool::new(false);

/// How long after the last busy moment the short period stays.
const ALERT: Duration = Duration::from_secs(1);
const BUSY_PERIOD: Duration = Duration::from_millis(10);
const IDLE_PERIOD: Duration = Duration::from_millis(250);
