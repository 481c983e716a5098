//! The runtime handle of one simulated executor.

use super::buf::SimWriteBuf;
use super::dir::SimDir;
use super::executor::{Core, Sleep, YieldOnce};
use super::net::{SimAccepted, SimConn, SimListener};
use super::world::Node;
use crate::runtime::buf::WriteBufSide;
use crate::runtime::{IoError, IoErrorKind, Mono, Panicked, Queue, WriteBuf, BLOCK_BYTES};
use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// One executor of one run of a node: after a crash or a kill it is dead, and a
/// restart gives a new one.
#[derive(Clone)]
pub struct SimRt {
    pub(super) core: Rc<Core>,
    pub(super) node: Rc<Node>,
    /// The run of the node that it belongs to.
    pub(super) life: u64,
    pub(super) shard: usize,
}

impl SimRt {
    pub fn now(&self) -> Mono {
        Mono(self.core.now())
    }

    pub fn wall_clock_ms(&self) -> i64 {
        self.node.clock_ms(&self.core)
    }

    pub async fn sleep(&self, duration: Duration) {
        Sleep::new(self.core.clone(), duration).await;
    }

    /// A task of a run that has ended is dropped unpolled.
    #[track_caller]
    pub fn spawn(&self, queue: Queue, future: Pin<Box<dyn Future<Output = ()>>>) {
        if self.is_alive() {
            self.core
                .spawn((self.node.index, self.shard), queue, future);
        }
    }

    pub async fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        let result = std::panic::catch_unwind(AssertUnwindSafe(work));
        let delay = Duration::from_nanos(self.core.rng.within(20_000..500_000));
        self.sleep(delay).await;
        result.map_err(|panic| {
            let text = panic
                .downcast_ref::<&str>()
                .map(|s| s.to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned());
            Panicked(text.unwrap_or_else(|| "a panic without a message".into()))
        })
    }

    pub async fn yield_if_needed(&self) {
        if self.core.rng.one_in(4) {
            self.core.note_wait("its next turn");
            YieldOnce::default().await;
        }
    }

    pub fn random_u64(&self) -> u64 {
        self.core.rng.next_u64()
    }

    pub fn write_buf(&self, len: usize) -> WriteBuf {
        let len = len.next_multiple_of(BLOCK_BYTES);
        WriteBuf(WriteBufSide::Sim(SimWriteBuf(vec![0; len])))
    }

    pub fn dir(&self, path: &Path) -> SimDir {
        SimDir::new(self.clone(), path)
    }

    pub async fn connect(&self, addr: SocketAddr) -> Result<SimConn, IoError> {
        super::net::connect(self, addr).await
    }

    pub async fn listen(&self, addr: SocketAddr) -> Result<SimListener, IoError> {
        super::net::listen(self, addr).await
    }

    pub fn adopt(&self, accepted: SimAccepted) -> Result<SimConn, IoError> {
        accepted.adopt(self)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.node.life.get() == self.life && self.node.up.get()
    }

    pub(super) fn dead_error(&self, op: &'static str, target: impl Into<String>) -> IoError {
        IoError::new(
            op,
            target.into(),
            IoErrorKind::Other,
            format!("this run of {} has ended (crash or kill)", self.node.name),
        )
    }
}
