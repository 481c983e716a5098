//! The executor of a simulated world, and its clock.
//!
//! One thread runs the tasks of all nodes. The next task to poll is drawn from the
//! seed, so interleavings vary from seed to seed and repeat for one seed. Virtual
//! time stands still while a task can run, and then jumps to the next timer.
//!
//! No borrow is held while a future is polled or dropped, nor while a waker is
//! called: foreign code may come back into the executor at any of these points.

use super::rng::SimRng;
use super::world::Node;
use super::PowerCut;
use crate::runtime::Queue;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// What all nodes of a world share.
pub(super) struct Core {
    pub seed: u64,
    pub rng: SimRng,
    /// Nanoseconds since the start of the world.
    now: Cell<u64>,
    timers: RefCell<BTreeMap<TimerId, Timer>>,
    sequence: Cell<u64>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    ready: Arc<Mutex<Vec<u64>>>,
    current: Cell<u64>,
    polls_at_this_time: Cell<u64>,
    /// A node that loses its power before anything else runs.
    power_cut: Cell<Option<(usize, PowerCut)>>,
    trace: Cell<u64>,
    pub nodes: RefCell<Vec<Rc<Node>>>,
    pub net: super::net::Net,
}

/// When a timer is due, then the order of its making.
pub(super) type TimerId = (u64, u64);

/// What happens when a timer is due.
pub(super) enum Timer {
    Wake(Waker),
    /// Data of one side of a connection arrives.
    Deliver {
        link: Arc<super::net::Link>,
        side: usize,
    },
    /// An operation of a node's disk completes.
    Disk {
        node: usize,
        op: u64,
    },
}

struct Task {
    node: usize,
    shard: usize,
    queue: Queue,
    spawned_at: &'static Location<'static>,
    waits_for: &'static str,
    /// Absent while it is being polled.
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    id: u64,
    queued: AtomicBool,
    ready: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            lock(&self.ready).push(self.id);
        }
    }
}

/// Locks; a panic elsewhere does not matter, as the world ends with it.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    pub fn new(seed: u64) -> Core {
        Core {
            seed,
            rng: SimRng::new(seed),
            now: Cell::new(0),
            timers: RefCell::default(),
            sequence: Cell::new(0),
            tasks: RefCell::default(),
            ready: Arc::default(),
            current: Cell::new(0),
            polls_at_this_time: Cell::new(0),
            power_cut: Cell::new(None),
            trace: Cell::new(seed),
            nodes: RefCell::default(),
            net: super::net::Net::default(),
        }
    }

    pub fn now(&self) -> u64 {
        self.now.get()
    }

    pub fn node(&self, node: usize) -> Rc<Node> {
        self.nodes.borrow()[node].clone()
    }

    /// Cuts a node's power as soon as the task that runs now has paused.
    pub fn cut_power_soon(&self, node: usize, mode: PowerCut) {
        self.power_cut.set(Some((node, mode)));
    }

    /// The node's run has ended in another way.
    pub fn forget_power_cut(&self, node: usize) {
        if self.power_cut.get().is_some_and(|(n, _)| n == node) {
            self.power_cut.set(None);
        }
    }

    pub fn next_sequence(&self) -> u64 {
        self.sequence.set(self.sequence.get() + 1);
        self.sequence.get()
    }

    /// Mixes an event into the fingerprint of this run.
    pub fn trace(&self, event: u64) {
        let mixed = (self.trace.get() ^ event).wrapping_mul(0x0100_0000_01b3);
        self.trace.set(mixed.rotate_left(23) ^ self.now());
    }

    pub fn trace_hash(&self) -> u64 {
        self.trace.get()
    }

    pub fn set_timer(&self, at: u64, timer: Timer) -> TimerId {
        let id = (at.max(self.now()), self.next_sequence());
        self.timers.borrow_mut().insert(id, timer);
        id
    }

    pub fn cancel_timer(&self, id: TimerId) {
        let timer = self.timers.borrow_mut().remove(&id);
        drop(timer);
    }

    /// Renews the waker of a timer; false if it has fired.
    pub fn renew_timer(&self, id: TimerId, waker: &Waker) -> bool {
        let mut timers = self.timers.borrow_mut();
        let Some(Timer::Wake(old)) = timers.get_mut(&id) else {
            return false;
        };
        if !old.will_wake(waker) {
            let old = std::mem::replace(old, waker.clone());
            drop(timers);
            drop(old);
        }
        true
    }

    /// Says what the running task waits for, for the report of a deadlock.
    pub fn note_wait(&self, what: &'static str) {
        if let Some(task) = self.tasks.borrow_mut().get_mut(&self.current.get()) {
            task.waits_for = what;
        }
    }

    #[track_caller]
    pub fn spawn(
        &self,
        (node, shard): (usize, usize),
        queue: Queue,
        future: Pin<Box<dyn Future<Output = ()>>>,
    ) {
        let id = self.next_sequence();
        let waker = self.waker(id);
        let task = Task {
            node,
            shard,
            queue,
            spawned_at: Location::caller(),
            waits_for: "its first poll",
            future: Some(future),
            waker: waker.clone(),
        };
        self.tasks.borrow_mut().insert(id, task);
        waker.wake();
    }

    fn waker(&self, id: u64) -> Arc<TaskWaker> {
        Arc::new(TaskWaker {
            id,
            queued: AtomicBool::new(false),
            ready: self.ready.clone(),
        })
    }

    /// Runs until `future` is done, or until `deadline`, or until `stop` says so.
    pub fn block_on<T>(
        &self,
        future: impl Future<Output = T>,
        deadline: u64,
        stop: impl Fn() -> bool,
    ) -> Option<T> {
        assert_eq!(
            self.current.get(),
            0,
            "a task of the world cannot run the world"
        );
        let mut future = std::pin::pin!(future);
        let id = self.next_sequence();
        let waker = self.waker(id);
        waker.clone().wake();
        let started = self.now();
        loop {
            if let Some((node, mode)) = self.power_cut.take() {
                self.node(node).crash(self, mode);
            }
            if stop() {
                return None;
            }
            match self.pick() {
                Some(picked) if picked == id => {
                    waker.queued.store(false, Ordering::Relaxed);
                    let shared = Waker::from(waker.clone());
                    let mut context = Context::from_waker(&shared);
                    let guard = Running::new(self, id);
                    let polled = future.as_mut().poll(&mut context);
                    drop(guard);
                    if let Poll::Ready(value) = polled {
                        self.trace(id);
                        return Some(value);
                    }
                }
                Some(picked) => self.poll_task(picked),
                None => match self.next_timer() {
                    None if deadline == u64::MAX => self.stuck("nothing can run any more"),
                    Some(at) if at <= deadline => self.advance(),
                    _ => {
                        self.now.set(self.now().max(deadline));
                        return None;
                    }
                },
            }
            if deadline == u64::MAX && self.now() - started > LIMIT_NANOS {
                self.stuck("a virtual week passed");
            }
        }
    }

    /// Draws the next task to poll. A task that never stops running does not stop
    /// time: now and then a timer fires although tasks can run.
    fn pick(&self) -> Option<u64> {
        let polls = self.polls_at_this_time.get() + 1;
        self.polls_at_this_time.set(polls);
        if polls.is_multiple_of(POLLS_AT_ONE_TIME) && self.next_timer().is_some() {
            self.advance();
        }
        if polls > POLLS_WITHOUT_TIME {
            self.stuck("tasks run on and on while time stands still");
        }
        let mut ready = lock(&self.ready);
        if ready.is_empty() {
            return None;
        }
        let index = self.rng.below(ready.len() as u64) as usize;
        Some(ready.swap_remove(index))
    }

    fn next_timer(&self) -> Option<u64> {
        self.timers.borrow().keys().next().map(|(at, _)| *at)
    }

    fn advance(&self) {
        let Some(((at, sequence), timer)) = self.timers.borrow_mut().pop_first() else {
            return;
        };
        if at > self.now() {
            self.now.set(at);
            self.polls_at_this_time.set(0);
        }
        self.trace(sequence);
        match timer {
            Timer::Wake(waker) => waker.wake(),
            Timer::Deliver { link, side } => link.deliver(self, side),
            Timer::Disk { node, op } => {
                let node = self.node(node);
                node.disk.complete(self, op, node.clock_ms(self))
            }
        }
    }

    fn poll_task(&self, id: u64) {
        let taken = match self.tasks.borrow_mut().get_mut(&id) {
            // It has ended, or was dropped by a crash.
            None => return,
            Some(task) => {
                task.waker.queued.store(false, Ordering::Relaxed);
                task.waits_for = "a wake-up";
                task.future.take().map(|f| (f, task.waker.clone()))
            }
        };
        let Some((mut future, waker)) = taken else {
            return;
        };
        self.trace(id);
        let waker = Waker::from(waker);
        let guard = Running::new(self, id);
        let polled = future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready();
        drop(guard);
        let mut future = Some(future);
        let mut ended = None;
        {
            let mut tasks = self.tasks.borrow_mut();
            if polled {
                ended = tasks.remove(&id);
            } else if let Some(task) = tasks.get_mut(&id) {
                task.future = future.take();
            }
        }
        // If a crash took the task's entry while it ran, its future ends here too.
        drop((future, ended));
    }

    /// Drops the tasks for which `which` holds, without running them further.
    pub fn drop_tasks(&self, which: impl Fn(usize) -> bool) {
        loop {
            let ids: Vec<u64> = self
                .tasks
                .borrow()
                .iter()
                .filter(|(_, t)| which(t.node))
                .map(|(id, _)| *id)
                .collect();
            if ids.is_empty() {
                return;
            }
            for id in ids {
                let task = self.tasks.borrow_mut().remove(&id);
                drop(task);
            }
        }
    }

    /// Forgets the timers, wake-ups and nodes, when the world ends.
    pub fn clear(&self) {
        // A destructor may try to spawn or to use a disk: nothing is up any more.
        for node in &*self.nodes.borrow() {
            node.up.set(false);
        }
        self.drop_tasks(|_| true);
        let timers = std::mem::take(&mut *self.timers.borrow_mut());
        drop(timers);
        lock(&self.ready).clear();
        let nodes = std::mem::take(&mut *self.nodes.borrow_mut());
        drop(nodes);
    }

    fn stuck(&self, why: &str) -> ! {
        let mut report = format!(
            "{why} (seed {}, virtual time {:?}); waiting:",
            self.seed,
            Duration::from_nanos(self.now())
        );
        let tasks = self.tasks.borrow();
        for (id, task) in tasks.iter().take(REPORTED_TASKS) {
            let _ = write!(
                report,
                "\n  task {id} of {}/{} ({:?}), spawned at {}, waits for {}",
                self.node(task.node).name,
                task.shard,
                task.queue,
                task.spawned_at,
                task.waits_for
            );
        }
        if tasks.len() > REPORTED_TASKS {
            let _ = write!(report, "\n  and {} more", tasks.len() - REPORTED_TASKS);
        }
        drop(tasks);
        panic!("{report}");
    }
}

/// Marks which task runs, also when it panics.
struct Running<'a>(&'a Core);

impl<'a> Running<'a> {
    fn new(core: &'a Core, id: u64) -> Running<'a> {
        core.current.set(id);
        Running(core)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.current.set(0);
    }
}

/// Resolves at a point of virtual time.
pub(super) struct Sleep {
    core: Rc<Core>,
    until: u64,
    timer: Option<TimerId>,
}

impl Sleep {
    pub fn new(core: Rc<Core>, duration: Duration) -> Sleep {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let until = core.now().saturating_add(nanos);
        Sleep {
            core,
            until,
            timer: None,
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(id) = self.timer {
            if self.core.renew_timer(id, cx.waker()) {
                return Poll::Pending;
            }
        }
        if self.core.now() >= self.until && self.timer.take().is_some() {
            return Poll::Ready(());
        }
        self.core.note_wait("a timer");
        let id = self
            .core
            .set_timer(self.until, Timer::Wake(cx.waker().clone()));
        self.timer = Some(id);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.timer {
            self.core.cancel_timer(id);
        }
    }
}

/// Lets other tasks run once.
#[derive(Default)]
pub(super) struct YieldOnce(bool);

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Polls at one point of time after which a timer fires anyway.
const POLLS_AT_ONE_TIME: u64 = 10_000;
/// Polls at one point of time that can only be a loop without end.
const POLLS_WITHOUT_TIME: u64 = 20_000_000;
/// Virtual time within one `block_on` that can only be a wait without end.
const LIMIT_NANOS: u64 = 7 * 24 * 3600 * 1_000_000_000;
const REPORTED_TASKS: usize = 50;
