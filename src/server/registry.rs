//! The open connections of one shard, and the sweep that ends those which hold
//! memory that others wait for, or which have been silent for too long.

use super::connection;
use super::fetch::Turns;
use super::fetch_sessions::{FetchSessions, SessionLimits};
use super::respond::Backlog;
use crate::runtime::local::Event;
use crate::runtime::{ConnCloser, Mono, Queue, Rt};
use crate::shard::{ConnectionHost, Hurry, Incoming, Shard};
use futures_lite::future::or;
use futures_lite::FutureExt;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// How long a stop waits for connections to take their last answers.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// How often connections are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// A slow transfer is judged only after this time.
const GRACE: Duration = Duration::from_secs(10);
/// Lines about peers' faults that one shard logs in a span.
const LOG_LINES_MAX: u32 = 10;
/// The span.
const LOG_SPAN: Duration = Duration::from_secs(10);

/// What the sweep knows of one connection.
pub(super) struct Open {
    pub peer: SocketAddr,
    closer: ConnCloser,
    /// When bytes last came or went.
    pub active_at: Cell<Mono>,
    /// A frame that holds memory and is not wholly read: length, bytes read, since.
    pub reading: Cell<Option<Transfer>>,
    /// Answers that are being sent.
    pub writing: Cell<Option<Transfer>>,
    /// Requests whose answers are not sent yet.
    in_flight: Cell<usize>,
    /// No answer will be sent any more.
    writer_gone: Cell<bool>,
    /// Notified when one of the two above changes.
    answered: Event,
    /// Set when the shard stops: read no further frame.
    pub draining: Cell<bool>,
    /// The reader waits for a frame's first byte; it may be closed at once.
    pub between_frames: Cell<bool>,
    /// Answers that the peer has not taken.
    pub backlog: Backlog,
    /// The order in which fetches get memory for their answers.
    pub fetch_turns: Turns,
    /// Set when no long poll of this connection may go on.
    pub hurry: Hurry,
    /// The shard's, of all its connections.
    pub fetch_sessions: Rc<RefCell<FetchSessions>>,
    pub log_limit: Rc<LogLimit>,
}

/// Bounds what peers can make this shard log: a scanner must not fill the disk.
#[derive(Default)]
pub(super) struct LogLimit {
    since: Cell<Option<Mono>>,
    lines: Cell<u32>,
}

impl LogLimit {
    /// True if a line about a peer's fault may be logged now.
    pub fn allows(&self, now: Mono) -> bool {
        let over = self
            .since
            .get()
            .is_none_or(|since| now.since(since) >= LOG_SPAN);
        if over {
            let left_out = self.lines.get().saturating_sub(LOG_LINES_MAX);
            if left_out > 0 {
                tracing::warn!(
                    left_out,
                    "more connections were closed for their peers' faults"
                );
            }
            self.since.set(Some(now));
            self.lines.set(0);
        }
        self.lines.set(self.lines.get().saturating_add(1));
        self.lines.get() <= LOG_LINES_MAX
    }
}

/// Bytes on their way, and how many there were when they were last looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    bytes: usize,
    done: usize,
    looked_at: Mono,
    done_then: usize,
}

impl Transfer {
    /// One of `bytes` that begins.
    pub fn new(bytes: usize, now: Mono) -> Transfer {
        Transfer {
            bytes,
            done: 0,
            looked_at: now,
            done_then: 0,
        }
    }

    /// `done` bytes of it have come or gone.
    pub fn reached(transfer: &Cell<Option<Transfer>>, done: usize) {
        transfer.set(transfer.get().map(|t| Transfer { done, ..t }));
    }

    /// True if it moved by less than `per_second` since a look more than [`GRACE`] ago.
    /// What a peer's buffers took at once long ago is no progress now.
    fn is_slow(transfer: &Cell<Option<Transfer>>, now: Mono, per_second: f64) -> bool {
        let Some(t) = transfer.get() else {
            return false;
        };
        let took = now.since(t.looked_at);
        if took <= GRACE {
            return false;
        }
        let moved = (t.done - t.done_then) as f64;
        let is_slow = moved < per_second * took.as_secs_f64();
        if !is_slow {
            transfer.set(Some(Transfer {
                looked_at: now,
                done_then: t.done,
                ..t
            }));
        }
        is_slow
    }
}

/// The connections of one shard.
pub(super) struct Registry {
    next: Cell<u64>,
    open: RefCell<BTreeMap<u64, Rc<Open>>>,
    gone: Event,
    log_limit: Rc<LogLimit>,
    fetch_sessions: Rc<RefCell<FetchSessions>>,
}

impl Registry {
    pub fn new(shard: &Shard) -> Rc<Registry> {
        let registry = Rc::new(Registry {
            next: Cell::new(0),
            open: RefCell::new(BTreeMap::new()),
            gone: Event::new(),
            log_limit: Rc::default(),
            fetch_sessions: Rc::new(RefCell::new(FetchSessions::new(session_limits(shard)))),
        });
        let sweeper = registry.clone();
        let shard_ = shard.clone();
        shard.rt().spawn(Queue::Latency, async move {
            sweeper.sweep(shard_).await;
        });
        registry
    }

    async fn sweep(&self, shard: Shard) {
        let idle_max = Duration::from_millis(shard.config().connections_max_idle_ms);
        loop {
            let stop = shard.stop_event().listen();
            if shard.is_stopping() {
                return;
            }
            or(stop, shard.rt().sleep(SWEEP)).await;
            let now = shard.rt().now();
            let answers_wait = shard.memory().take_responses_waited();
            let decoding_waits = shard.memory().decoding_waits();
            let open: Vec<Rc<Open>> = self.open.borrow().values().cloned().collect();
            for connection in open {
                connection.hurry.press(decoding_waits);
                let counters = shard.counters();
                let reason = if connection.stalls_others(&shard, now, answers_wait) {
                    counters.connections_slow_closed.add(1);
                    "it held memory that others wait for and made too little progress (min.request.progress)"
                } else if connection.is_idle(now, idle_max) {
                    counters.connections_idle_closed.add(1);
                    "it was idle for longer than connections.max.idle.ms"
                } else {
                    continue;
                };
                tracing::info!(peer = %connection.peer, "connection closed: {reason}");
                connection.close();
            }
        }
    }
}

impl Open {
    /// Ends the connection in both directions.
    pub fn close(&self) {
        self.closer.close();
    }

    /// Counts a request that will be answered.
    pub fn request_started(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// Its answer was sent (or it has none).
    pub fn request_answered(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
        self.answered.notify_all();
        self.close_if_drained();
    }

    /// The writing side has ended.
    pub fn writer_ended(&self) {
        self.writer_gone.set(true);
        self.hurry.set();
        self.answered.notify_all();
        self.close();
    }

    /// Waits until at most `left` requests are unanswered. False if the writing side
    /// has ended.
    pub async fn answered_down_to(&self, left: usize) -> bool {
        self.answered
            .wait_until(|| self.in_flight.get() <= left || self.writer_gone.get())
            .await;
        !self.writer_gone.get()
    }

    /// Closes a connection of a stopping shard that owes no answer and has not begun
    /// a frame.
    fn close_if_drained(&self) {
        if self.draining.get() && self.between_frames.get() && self.in_flight.get() == 0 {
            self.close();
        }
    }

    /// Neither does a half-sent frame keep a connection, nor an answer that the peer
    /// does not take; a request that is being served does.
    fn is_idle(&self, now: Mono, idle_max: Duration) -> bool {
        let is_serving = self.in_flight.get() > 0 && self.writing.get().is_none();
        !is_serving && now.since(self.active_at.get()) > idle_max
    }

    fn stalls_others(&self, shard: &Shard, now: Mono, answers_wait: bool) -> bool {
        let per_second = f64::from(shard.config().min_request_progress);
        let is_slow = |transfer| Transfer::is_slow(transfer, now, per_second);
        let frame_bytes = self.reading.get().map_or(0, |t| t.bytes);
        let reads = is_slow(&self.reading) && shard.memory().frames_wait(frame_bytes);
        let writes = is_slow(&self.writing) && answers_wait;
        reads || writes
    }
}

/// A shard's share of the fetch sessions, and of the memory for requests.
fn session_limits(shard: &Shard) -> SessionLimits {
    let shards = shard.shards();
    let slots = shard.config().max_incremental_fetch_session_cache_slots as usize;
    SessionLimits {
        sessions_max: slots.div_ceil(shards),
        bytes_max: shard.memory().session_bytes_max(),
        shard: (shard.me(), shards),
    }
}

/// The shard's side of connections: what the mesh's handler calls.
pub(super) struct Host(pub Rc<Registry>);

impl ConnectionHost for Host {
    fn serve(&self, shard: &Shard, incoming: Incoming) {
        let Incoming { accepted, counted } = incoming;
        let conn = match shard.rt().adopt(accepted) {
            Ok(conn) => conn,
            Err(error) => {
                tracing::warn!(%error, "an accepted connection was lost");
                return;
            }
        };
        let registry = self.0.clone();
        let id = registry.next.get();
        registry.next.set(id + 1);
        let open = Rc::new(Open {
            peer: conn.peer_addr(),
            closer: conn.closer(),
            active_at: Cell::new(shard.rt().now()),
            reading: Cell::new(None),
            writing: Cell::new(None),
            in_flight: Cell::new(0),
            writer_gone: Cell::new(false),
            answered: Event::new(),
            draining: Cell::new(shard.is_stopping()),
            between_frames: Cell::new(true),
            backlog: Backlog::default(),
            fetch_turns: Turns::default(),
            hurry: Hurry::default(),
            fetch_sessions: registry.fetch_sessions.clone(),
            log_limit: registry.log_limit.clone(),
        });
        registry.open.borrow_mut().insert(id, open.clone());
        shard.counters().connections.add(1);
        shard.counters().connections_open.add(1);
        let shard_ = shard.clone();
        shard.rt().spawn(Queue::Latency, async move {
            let peer = open.peer;
            // A fault in one connection's code must not take the shard with it.
            let served = AssertUnwindSafe(connection::serve(&shard_, conn, open.clone()))
                .catch_unwind()
                .await;
            if served.is_err() {
                tracing::error!(%peer, "connection closed: its task panicked");
                open.writer_ended();
            }
            registry.open.borrow_mut().remove(&id);
            drop(counted);
            let counters = shard_.counters();
            counters.connections_open.sub(1);
            // What nobody will answer any more.
            counters.requests_now.sub(open.in_flight.get() as u64);
            registry.gone.notify_all();
        });
    }

    fn drain(&self, shard: &Shard) -> Pin<Box<dyn Future<Output = ()>>> {
        let registry = self.0.clone();
        let rt: Rt = shard.rt().clone();
        Box::pin(async move {
            for connection in registry.open.borrow().values() {
                connection.draining.set(true);
                connection.close_if_drained();
            }
            let all_gone = registry
                .gone
                .wait_until(|| registry.open.borrow().is_empty());
            if rt.timeout(DRAIN_MAX, all_gone).await.is_err() {
                let left: Vec<Rc<Open>> = registry.open.borrow().values().cloned().collect();
                tracing::warn!(
                    connections = left.len(),
                    "connections did not take their last answers in time"
                );
                for connection in left {
                    connection.close();
                }
                registry
                    .gone
                    .wait_until(|| registry.open.borrow().is_empty())
                    .await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_judged_by_what_moved_lately() {
        let at = |ms: u64| Mono(ms * 1_000_000);
        let transfer = Cell::new(Some(Transfer::new(100 << 20, at(0))));
        let slow = |ms| Transfer::is_slow(&transfer, at(ms), 1000.0);
        // At first it has time; then a burst counts for one look, and no longer.
        assert!(!slow(9_000));
        Transfer::reached(&transfer, 5 << 20);
        assert!(!slow(11_000));
        assert!(!slow(20_000));
        assert!(slow(22_000));
        // As fast as it must be.
        Transfer::reached(&transfer, (5 << 20) + 12_000);
        assert!(!slow(23_000));
        assert!(!slow(32_000));
        assert!(slow(34_000));
        transfer.set(None);
        assert!(!slow(99_000));
    }
}
