//! The runtime handle: the only code that names glommio or makes a system call.
//!
//! Everything above takes time, randomness, tasks, files and sockets from [`Rt`],
//! so the same program runs in production (`native/`, on glommio) and under a
//! seeded simulator (`sim/`). Each public type here is a struct around an enum of
//! the two sides; all its functions are inherent.
//!
//! What it is not: it knows nothing of Kafka, logs or shards.

mod buf;
mod dir;
mod drop_signal;
mod error;
mod file;
pub mod local;
mod mesh;
pub mod native;
mod net;
pub mod sim;
mod sync_site;
mod time;

pub use buf::{SharedBuf, WriteBuf, BLOCK_BYTES};
pub use dir::{Dir, DirEntry, DirLock, Space};
pub use drop_signal::{bytes_and_end, Freed};
pub use error::{IoError, IoErrorKind};
pub use file::{File, OpenMode};
pub use mesh::{Mesh, MeshError, MeshSeat, ReplyTo};
pub use net::{Accepted, Conn, ConnCloser, ConnReader, ConnWriter, Listener};
pub use sync_site::SyncSite;
pub use time::Mono;

use crate::observe::Work;
use std::future::{poll_fn, Future};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

/// The task queues of an executor. Latency-sensitive queues are polled for I/O
/// within a millisecond; background work has a small share of the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Connections, the mesh, appenders, flushes: what a client waits for.
    Latency,
    /// Retention, recovery, checkpoints, read-ahead: what nobody waits for.
    Background,
}

/// A handle to the executor that the caller runs on. Cheap to clone, `!Send`.
#[derive(Clone)]
pub struct Rt(Side);

#[derive(Clone)]
enum Side {
    Native(native::NativeRt),
    Sim(sim::SimRt),
}

/// The time given to [`Rt::timeout`] passed before the future finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("timed out")]
pub struct Elapsed;

/// A closure given to [`Rt::spawn_blocking`], or a spawned task, panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a task panicked: {0}")]
pub struct Panicked(pub String);

impl Rt {
    /// Monotonic time since an arbitrary origin (virtual in the simulator).
    pub fn now(&self) -> Mono {
        match &self.0 {
            Side::Native(rt) => rt.now(),
            Side::Sim(rt) => rt.now(),
        }
    }

    /// Wall-clock time in milliseconds since the Unix epoch.
    pub fn wall_clock_ms(&self) -> i64 {
        match &self.0 {
            Side::Native(rt) => rt.wall_clock_ms(),
            Side::Sim(rt) => rt.wall_clock_ms(),
        }
    }

    /// Waits for at least `duration`.
    pub async fn sleep(&self, duration: Duration) {
        match &self.0 {
            Side::Native(rt) => rt.sleep(duration).await,
            Side::Sim(rt) => rt.sleep(duration).await,
        }
    }

    /// Runs `future` for at most `duration`; past it the future is dropped. Use
    /// only with futures that may be dropped (never an I/O in flight).
    pub async fn timeout<T>(
        &self,
        duration: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        futures_lite::future::or(async { Ok(future.await) }, async {
            self.sleep(duration).await;
            Err(Elapsed)
        })
        .await
    }

    /// Starts a task. It runs to its end: tasks are never cancelled from outside,
    /// they end by a message or a token.
    #[track_caller]
    pub fn spawn(&self, queue: Queue, future: impl Future<Output = ()> + 'static) {
        match &self.0 {
            Side::Native(rt) => rt.spawn(queue, Box::pin(future)),
            Side::Sim(rt) => rt.spawn(queue, Box::pin(future)),
        }
    }

    /// Runs `work` on a helper thread (in the simulator: at once, on this one).
    pub async fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        match &self.0 {
            Side::Native(rt) => rt.spawn_blocking(work).await,
            Side::Sim(rt) => rt.spawn_blocking(work).await,
        }
    }

    /// Lets other tasks run, if this one has had its slice. Call it in every loop.
    pub async fn yield_if_needed(&self) {
        match &self.0 {
            Side::Native(rt) => rt.yield_if_needed().await,
            Side::Sim(rt) => rt.yield_if_needed().await,
        }
    }

    /// Says what the calling task works on, for the record of stalls: until this poll of
    /// it ends. It costs a few stores; the simulator, whose time stands still, passes over it.
    pub fn working_on(&self, work: &Work) {
        if let Side::Native(rt) = &self.0 {
            rt.working_on(work);
        }
    }

    /// Says which partition it works on: its topic's id and its number.
    pub fn working_at(&self, topic: u128, index: i32) {
        if let Side::Native(rt) = &self.0 {
            rt.working_at(topic, index);
        }
    }

    /// Runs `future`, and says at each poll that it is `work`.
    pub async fn work<T>(&self, work: Work, future: impl Future<Output = T> + Unpin) -> T {
        let mut future = future;
        poll_fn(|cx| {
            self.working_on(&work);
            Pin::new(&mut future).poll(cx)
        })
        .await
    }

    /// A random number: from the seed in the simulator, from the system otherwise.
    pub fn random_u64(&self) -> u64 {
        match &self.0 {
            Side::Native(rt) => rt.random_u64(),
            Side::Sim(rt) => rt.random_u64(),
        }
    }

    /// Allocates a buffer for direct I/O, zeroed, of `len` bytes rounded up to
    /// [`BLOCK_BYTES`].
    pub fn write_buf(&self, len: usize) -> WriteBuf {
        match &self.0 {
            Side::Native(rt) => rt.write_buf(len),
            Side::Sim(rt) => rt.write_buf(len),
        }
    }

    /// A handle to a directory, which need not exist yet.
    pub fn dir(&self, path: impl AsRef<Path>) -> Dir {
        match &self.0 {
            Side::Native(rt) => Dir::native(rt.dir(path.as_ref())),
            Side::Sim(rt) => Dir::sim(rt.dir(path.as_ref())),
        }
    }

    /// Opens a TCP connection (TCP_NODELAY set).
    pub async fn connect(&self, addr: SocketAddr) -> Result<Conn, IoError> {
        match &self.0 {
            Side::Native(rt) => rt.connect(addr).await.map(Conn::native),
            Side::Sim(rt) => rt.connect(addr).await.map(Conn::sim),
        }
    }

    /// Listens on `addr`, without SO_REUSEPORT: a second listener is refused.
    pub async fn listen(&self, addr: SocketAddr) -> Result<Listener, IoError> {
        match &self.0 {
            Side::Native(rt) => rt.listen(addr).await.map(Listener::native),
            Side::Sim(rt) => rt.listen(addr).await.map(Listener::sim),
        }
    }

    /// Takes over a connection that another executor accepted.
    pub fn adopt(&self, accepted: Accepted) -> Result<Conn, IoError> {
        match (&self.0, accepted.0) {
            (Side::Native(rt), net::AcceptedSide::Native(a)) => rt.adopt(a).map(Conn::native),
            (Side::Sim(rt), net::AcceptedSide::Sim(a)) => rt.adopt(a).map(Conn::sim),
            _ => unreachable!("a connection never moves between the two sides"),
        }
    }
}

impl From<native::NativeRt> for Rt {
    fn from(rt: native::NativeRt) -> Rt {
        Rt(Side::Native(rt))
    }
}

impl From<sim::SimRt> for Rt {
    fn from(rt: sim::SimRt) -> Rt {
        Rt(Side::Sim(rt))
    }
}
