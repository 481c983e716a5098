//! The handle to the executor of the calling thread.
//!
//! Two task queues: what a client waits for has nearly all shares and is polled for
//! I/O within a millisecond; background work has few. Tasks are detached and run to
//! their end (cancelling one leaks its allocation in glommio-ng 0.12).
//!
//! A panic in a task is fatal to the executor: its invariants are broken, and the
//! other executors would wait for it. Connections catch their own, above.

use super::activity::{Activity, Connection, Operation};
use super::buf::{Home, NativeWriteBuf};
use super::watch::{Beat, Watch};
use super::{dir::NativeDir, executor::ExecutorPlan, net};
use crate::observe::Work;
use crate::runtime::buf::{WriteBuf, WriteBufSide, BLOCK_BYTES};
use crate::runtime::local::Event;
use crate::runtime::{IoError, Mono, Panicked, Queue};
use futures_lite::FutureExt;
use glommio::{Latency, Shares, TaskQueueHandle};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{poll_fn, Future};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, Location};
use std::path::Path;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The native side of `Rt`. Cheap to clone, `!Send`.
#[derive(Clone)]
pub struct NativeRt(Rc<Inner>);

struct Inner {
    name: String,
    latency: TaskQueueHandle,
    background: TaskQueueHandle,
    random: Cell<[u64; 4]>,
    home: Arc<Home>,
    activity: Activity,
    abort_on_panic: bool,
    /// The first panic of a task, where that does not abort the process.
    fatal: RefCell<Option<String>>,
    fatal_set: Event,
    at_end: Rc<AtEndList>,
    /// What this executor does at the moment, for who watches it.
    beat: Arc<Beat>,
}

/// What wants to know that its executor ends, while its tasks still run: sockets and
/// meshes, which then end the waits on them. (glommio leaks a task that is still
/// pending, with all that it holds.)
pub(super) trait AtEnd {
    fn executor_ends(&self);
}

#[derive(Default)]
struct AtEndList {
    next: Cell<u64>,
    targets: RefCell<BTreeMap<u64, Weak<dyn AtEnd>>>,
}

/// Takes a registration back when dropped.
pub(super) struct AtEndGuard {
    list: Rc<AtEndList>,
    id: u64,
}

impl Drop for AtEndGuard {
    fn drop(&mut self) {
        let removed = self.list.targets.borrow_mut().remove(&self.id);
        drop(removed);
    }
}

impl NativeRt {
    /// Makes the handle, on the executor's thread, and starts its own tasks.
    pub(super) fn start(plan: &ExecutorPlan, home: Arc<Home>) -> NativeRt {
        let executor = glommio::executor();
        let latency = executor.create_task_queue(
            Shares::Static(LATENCY_SHARES),
            Latency::Matters(plan.preempt_timer),
            "latency",
        );
        let background = executor.create_task_queue(
            Shares::Static(BACKGROUND_SHARES),
            Latency::Matters(plan.preempt_timer),
            "background",
        );
        let rt = NativeRt(Rc::new(Inner {
            name: plan.name.clone(),
            latency,
            background,
            random: Cell::new(seed()),
            home: home.clone(),
            activity: Activity::default(),
            abort_on_panic: plan.abort_on_panic,
            fatal: RefCell::new(None),
            fatal_set: Event::new(),
            at_end: Rc::default(),
            beat: Arc::default(),
        }));
        if let Some(stalls) = &plan.stalls {
            rt.0.beat.begin();
            let (name, beat) = (plan.name.clone(), rt.0.beat.clone());
            let watch = Watch::new(name, beat, stalls.clone());
            rt.0.activity.watch(watch);
        }
        rt.spawn(
            Queue::Background,
            Box::pin(home.reclaim(rt.0.activity.clone())),
        );
        rt
    }

    /// Lets the nudging thread wake this executor from now on, by the calling task's
    /// waker first, which needs no second turn of the run loop.
    pub(super) async fn take_nap(&self) {
        let mut nap = self.0.activity.nap();
        if futures_lite::future::poll_once(&mut nap).await.is_none() {
            self.spawn(Queue::Latency, Box::pin(nap));
        }
    }

    pub fn now(&self) -> Mono {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let origin = *ORIGIN.get_or_init(Instant::now);
        Mono(origin.elapsed().as_nanos().min(u64::MAX as u128) as u64)
    }

    pub fn wall_clock_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_millis() as i64,
            Err(before) => -(before.duration().as_millis() as i64),
        }
    }

    pub async fn sleep(&self, duration: Duration) {
        glommio::timer::sleep(duration).await;
    }

    #[track_caller]
    pub fn spawn(&self, queue: Queue, future: Pin<Box<dyn Future<Output = ()>>>) {
        let started_at = Location::caller();
        let handle = match queue {
            Queue::Latency => self.0.latency,
            Queue::Background => self.0.background,
        };
        let rt = self.clone();
        let task = async move {
            let mut future = AssertUnwindSafe(future).catch_unwind();
            let beat = &*rt.0.beat;
            let polls = poll_fn(|cx| beat.poll(started_at, || Pin::new(&mut future).poll(cx)));
            if let Err(panic) = polls.await {
                rt.task_panicked(panic_text(&*panic));
            }
        };
        glommio::spawn_local_into(task, handle)
            .expect("both queues live as long as the executor")
            .detach();
    }

    pub async fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        let _operation = self.operation();
        glommio::executor()
            .spawn_blocking(move || {
                std::panic::catch_unwind(AssertUnwindSafe(work))
                    .map_err(|panic| Panicked(panic_text(&*panic)))
            })
            .await
    }

    pub async fn yield_if_needed(&self) {
        glommio::yield_if_needed().await;
    }

    pub fn working_on(&self, work: &Work) {
        self.0.beat.working_on(work);
    }

    pub fn working_at(&self, topic: u128, index: i32) {
        self.0.beat.working_at(topic, index);
    }

    pub fn random_u64(&self) -> u64 {
        // xoshiro256++ (Blackman and Vigna, public domain).
        let mut s = self.0.random.get();
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        self.0.random.set(s);
        result
    }

    pub fn write_buf(&self, len: usize) -> WriteBuf {
        let len = len.next_multiple_of(BLOCK_BYTES);
        WriteBuf(WriteBufSide::Native(NativeWriteBuf::new(&self.0.home, len)))
    }

    pub fn dir(&self, path: &Path) -> NativeDir {
        NativeDir::new(self.clone(), path)
    }

    pub async fn connect(&self, addr: SocketAddr) -> Result<net::NativeConn, IoError> {
        net::NativeConn::connect(self, addr).await
    }

    pub async fn listen(&self, addr: SocketAddr) -> Result<net::NativeListener, IoError> {
        net::NativeListener::bind(self, addr)
    }

    pub fn adopt(&self, accepted: net::NativeAccepted) -> Result<net::NativeConn, IoError> {
        net::NativeConn::adopt(self, accepted)
    }

    /// The executor's name.
    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    pub(super) fn home(&self) -> &Arc<Home> {
        &self.0.home
    }

    pub(super) fn operation(&self) -> Operation {
        self.0.activity.operation()
    }

    pub(super) fn connection(&self) -> Connection {
        self.0.activity.connection()
    }

    pub(super) fn latency_queue(&self) -> TaskQueueHandle {
        self.0.latency
    }

    /// Has `target` told when the executor ends.
    pub(super) fn at_end(&self, target: Weak<dyn AtEnd>) -> AtEndGuard {
        let list = self.0.at_end.clone();
        let id = list.next.get();
        list.next.set(id + 1);
        list.targets.borrow_mut().insert(id, target);
        AtEndGuard { list, id }
    }

    /// Resolves with the text once a task has panicked.
    pub(super) async fn fatal(&self) -> String {
        loop {
            let listen = self.0.fatal_set.listen();
            if let Some(text) = self.0.fatal.borrow().clone() {
                return text;
            }
            listen.await;
        }
    }

    /// Ends what runs: tells who wants to know, lets I/O in flight land, takes back
    /// the buffers that came home.
    pub(super) async fn end(&self) {
        let targets = std::mem::take(&mut *self.0.at_end.targets.borrow_mut());
        for target in targets.values().filter_map(Weak::upgrade) {
            target.executor_ends();
        }
        let begun = Instant::now();
        loop {
            let limit = match self.0.activity.counts() {
                (0, 0) => break,
                // Sockets that were shut down; their tasks end if they look at it.
                (_, 0) => LINGER_MAX,
                _ => DRAIN_MAX,
            };
            if begun.elapsed() >= limit {
                break;
            }
            glommio::timer::sleep(Duration::from_millis(1)).await;
        }
        let (_, left) = self.0.activity.counts();
        if left > 0 {
            tracing::error!(executor = %self.0.name, left, "ends with I/O in flight");
        }
        self.0.activity.end();
        // Tasks that were told to end get their last turns.
        for _ in 0..LAST_TURNS {
            glommio::executor().yield_task_queue_now().await;
        }
        self.0.home.reclaim_now();
    }

    /// The main future panicked: like a task's panic.
    pub(super) fn main_panicked(&self, text: &str) {
        if self.0.abort_on_panic {
            self.abort(text);
        }
    }

    fn task_panicked(&self, text: String) {
        tracing::error!(executor = %self.0.name, panic = %text, "a task panicked");
        if self.0.abort_on_panic {
            self.abort(&text);
        }
        self.0.fatal.borrow_mut().get_or_insert(text);
        self.0.fatal_set.notify_all();
    }

    fn abort(&self, text: &str) -> ! {
        // Also where no subscriber writes the log: nothing else can say it now.
        eprintln!(
            "executor {}: a task panicked ({text}); stopping the process at once, because \
             the others would wait for this one",
            self.0.name
        );
        std::process::abort();
    }
}

/// The text that a panic carries.
pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a text".to_owned()
    }
}

/// Four random words from the system, not all zero.
#[allow(unsafe_code)]
fn seed() -> [u64; 4] {
    let mut seed = [0u64; 4];
    let size = std::mem::size_of_val(&seed);
    // SAFETY: `seed` has room for the `size` bytes that the call may write.
    let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), size, 0) };
    // Up to 256 bytes are never short once the system's pool is ready, and the call
    // waits for that.
    assert_eq!(got, size as isize, "getrandom failed");
    if seed == [0; 4] {
        seed[0] = 1;
    }
    seed
}

const LATENCY_SHARES: usize = 1000;
const BACKGROUND_SHARES: usize = 50;
const DRAIN_MAX: Duration = Duration::from_secs(10);
const LINGER_MAX: Duration = Duration::from_millis(200);
const LAST_TURNS: usize = 8;
