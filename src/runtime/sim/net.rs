//! The simulated network: streams that deliver late, in pieces, and can be cut.
//!
//! A link is the two directions of one connection. What one side writes is split
//! into pieces that arrive in order, each after a delay from the seed. A link takes
//! a bounded number of bytes in each direction; a writer waits for room.
//!
//! Links lie behind a mutex only because an accepted connection is `Send`; nothing
//! contends for it, and no waker is called under it.
//!
//! What it is not: packets. Nothing is lost or reordered within a connection; the
//! network between two nodes can be cut, and a crash resets connections.

use super::executor::{lock, Core, Sleep, Timer};
use super::rt::SimRt;
use crate::runtime::{IoError, IoErrorKind};
use bytes::{Buf, Bytes};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What of the network all nodes share.
#[derive(Default)]
pub(super) struct Net {
    /// By node and port.
    listeners: RefCell<BTreeMap<(usize, u16), SharedBacklog>>,
    links: RefCell<Vec<Weak<Link>>>,
    cuts: RefCell<BTreeSet<(usize, usize)>>,
    last_port: Cell<u16>,
}

/// Both directions of one connection.
pub(super) struct Link {
    /// The node of the side that connected, and of the side that accepted.
    nodes: [usize; 2],
    addrs: [SocketAddr; 2],
    pipes: Mutex<[Pipe; 2]>,
}

/// One direction, named by the side that writes.
#[derive(Default)]
struct Pipe {
    in_transit: VecDeque<(u64, Piece)>,
    arrived: VecDeque<Bytes>,
    /// Bytes in transit or arrived.
    bytes: usize,
    end: End,
    /// The writer will not write again, and has said so.
    write_closed: bool,
    /// Nobody will read here again.
    read_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

enum Piece {
    Data(Bytes),
    End,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// The peer's end of data has arrived.
    Finished,
    Reset,
}

#[derive(Default)]
struct Backlog {
    waiting: VecDeque<SimAccepted>,
    acceptor: Option<Waker>,
    closed: bool,
}

type SharedBacklog = Arc<Mutex<Backlog>>;

pub struct SimListener {
    rt: SimRt,
    addr: SocketAddr,
    backlog: SharedBacklog,
}

pub struct SimAccepted(Option<Arc<Link>>);

pub struct SimConn(Rc<Socket>);

pub struct SimConnReader(Rc<Socket>);

pub struct SimConnWriter(Rc<Socket>);

#[derive(Clone)]
pub struct SimConnCloser(std::rc::Weak<Socket>);

/// One side of a link, on its executor. Closes when the last handle is dropped.
struct Socket {
    rt: SimRt,
    link: Arc<Link>,
    side: usize,
}

pub(super) async fn connect(rt: &SimRt, addr: SocketAddr) -> Result<SimConn, IoError> {
    let core = &rt.core;
    let failed = |errno| IoError::from_errno("connect", addr.to_string(), errno);
    core.note_wait("a connection to be made");
    Sleep::new(core.clone(), delay(core)).await;
    let node = match addr.ip().is_loopback() {
        true => Some(rt.node.index),
        false => core.node_of(addr.ip()),
    };
    let node = node.ok_or_else(|| failed(libc::EHOSTUNREACH))?;
    if core.net.is_cut(rt.node.index, node) {
        Sleep::new(core.clone(), CONNECT_TIMEOUT).await;
        return Err(failed(libc::ETIMEDOUT));
    }
    let own = SocketAddr::new(
        match addr.ip().is_loopback() {
            true => addr.ip(),
            false => rt.node.ip,
        },
        core.net.next_port(),
    );
    let link = Arc::new(Link {
        nodes: [rt.node.index, node],
        addrs: [own, addr],
        pipes: Mutex::default(),
    });
    let listener = core
        .net
        .listeners
        .borrow()
        .get(&(node, addr.port()))
        .cloned();
    let backlog = listener.ok_or_else(|| failed(libc::ECONNREFUSED))?;
    let accepted = SimAccepted(Some(link.clone()));
    let (acceptor, refused) = {
        let mut backlog = lock(&backlog);
        if backlog.waiting.len() < BACKLOG {
            backlog.waiting.push_back(accepted);
            (backlog.acceptor.take(), None)
        } else {
            (None, Some(accepted))
        }
    };
    if refused.is_some() {
        return Err(failed(libc::ECONNREFUSED));
    }
    core.net.add(&link);
    let conn = SimConn(Rc::new(Socket {
        rt: rt.clone(),
        link,
        side: 0,
    }));
    if let Some(acceptor) = acceptor {
        acceptor.wake();
    }
    Sleep::new(core.clone(), delay(core)).await;
    Ok(conn)
}

pub(super) async fn listen(rt: &SimRt, addr: SocketAddr) -> Result<SimListener, IoError> {
    let failed = |errno| IoError::from_errno("listen", addr.to_string(), errno);
    if !addr.ip().is_unspecified() && !addr.ip().is_loopback() && addr.ip() != rt.node.ip {
        return Err(failed(libc::EADDRNOTAVAIL));
    }
    if !rt.is_alive() {
        return Err(rt.dead_error("listen", addr.to_string()));
    }
    let net = &rt.core.net;
    let port = match addr.port() {
        0 => net.next_port(),
        port => port,
    };
    let mut listeners = net.listeners.borrow_mut();
    if listeners.contains_key(&(rt.node.index, port)) {
        return Err(failed(libc::EADDRINUSE));
    }
    let backlog = SharedBacklog::default();
    listeners.insert((rt.node.index, port), backlog.clone());
    Ok(SimListener {
        rt: rt.clone(),
        addr: SocketAddr::new(addr.ip(), port),
        backlog,
    })
}

impl Net {
    /// Cuts or heals the network between two nodes. What is sent meanwhile arrives
    /// when it is healed.
    pub fn set_cut(&self, core: &Core, a: usize, b: usize, cut: bool) {
        let pair = (a.min(b), a.max(b));
        if cut {
            self.cuts.borrow_mut().insert(pair);
            return;
        }
        self.cuts.borrow_mut().remove(&pair);
        for link in self.live_links() {
            link.deliver(core, 0);
            link.deliver(core, 1);
        }
    }

    /// A node's run has ended: its listeners are gone, its connections reset.
    pub fn node_down(&self, core: &Core, node: usize) {
        let gone: Vec<_> = {
            let mut listeners = self.listeners.borrow_mut();
            let keys: Vec<_> = listeners.keys().filter(|k| k.0 == node).copied().collect();
            keys.iter().filter_map(|k| listeners.remove(k)).collect()
        };
        for backlog in gone {
            close_backlog(&backlog);
        }
        for link in self.live_links() {
            if link.nodes.contains(&node) {
                // What was on its way arrives or not.
                link.reset(core.rng.one_in(2));
            }
        }
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cuts.borrow().contains(&(a.min(b), a.max(b)))
    }

    fn add(&self, link: &Arc<Link>) {
        let mut links = self.links.borrow_mut();
        if links.len() == links.capacity() {
            links.retain(|l| l.strong_count() > 0);
        }
        links.push(Arc::downgrade(link));
    }

    fn live_links(&self) -> Vec<Arc<Link>> {
        self.links
            .borrow()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    fn next_port(&self) -> u16 {
        let port = self.last_port.get().max(FIRST_PORT - 1);
        assert!(port < u16::MAX, "a world has ports for some 30,000 sockets");
        self.last_port.set(port + 1);
        port + 1
    }
}

impl Core {
    fn node_of(&self, ip: IpAddr) -> Option<usize> {
        self.nodes.borrow().iter().position(|n| n.ip == ip)
    }
}

impl Link {
    /// Hands over what is due of the data that `side` wrote.
    pub fn deliver(&self, core: &Core, side: usize) {
        if core.net.is_cut(self.nodes[0], self.nodes[1]) {
            return;
        }
        let reader = {
            let pipe = &mut lock(&self.pipes)[side];
            while let Some((due, _)) = pipe.in_transit.front() {
                if *due > core.now() {
                    break;
                }
                match pipe.in_transit.pop_front() {
                    Some((_, Piece::Data(bytes))) => pipe.arrived.push_back(bytes),
                    Some((_, Piece::End)) => pipe.finish(),
                    None => break,
                }
            }
            pipe.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Ends both directions at once; what is in transit is lost, or still arrives.
    fn reset(&self, data_arrives: bool) {
        let mut woken = Vec::new();
        for pipe in &mut *lock(&self.pipes) {
            let rest = std::mem::take(&mut pipe.in_transit);
            if data_arrives {
                for (_, piece) in rest {
                    if let Piece::Data(bytes) = piece {
                        pipe.arrived.push_back(bytes);
                    }
                }
            } else {
                pipe.arrived.clear();
            }
            pipe.end = End::Reset;
            woken.extend(pipe.reader.take());
            woken.extend(pipe.writer.take());
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Pipe {
    fn finish(&mut self) {
        if self.end == End::Open {
            self.end = End::Finished;
        }
    }

    fn due_after(&self, due: u64) -> u64 {
        self.in_transit
            .back()
            .map_or(due, |(last, _)| due.max(*last))
    }
}

impl SimListener {
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    pub async fn accept(&self) -> Result<SimAccepted, IoError> {
        self.rt.core.note_wait("a connection to accept");
        poll_fn(|cx| {
            let mut backlog = lock(&self.backlog);
            if let Some(accepted) = backlog.waiting.pop_front() {
                return Poll::Ready(Ok(accepted));
            }
            if backlog.closed {
                return Poll::Ready(Err(IoError::new(
                    "accept",
                    self.addr.to_string(),
                    IoErrorKind::Disconnected,
                    "the listener was closed",
                )));
            }
            backlog.acceptor = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    pub fn close(&self) {
        let key = (self.rt.node.index, self.addr.port());
        let mut listeners = self.rt.core.net.listeners.borrow_mut();
        // A later run may listen there now.
        let own = listeners
            .get(&key)
            .is_some_and(|b| Arc::ptr_eq(b, &self.backlog));
        if own {
            listeners.remove(&key);
        }
        drop(listeners);
        close_backlog(&self.backlog);
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.close();
    }
}

fn close_backlog(backlog: &Mutex<Backlog>) {
    let (refused, acceptor) = {
        let mut backlog = lock(backlog);
        backlog.closed = true;
        (
            std::mem::take(&mut backlog.waiting),
            backlog.acceptor.take(),
        )
    };
    drop(refused);
    if let Some(acceptor) = acceptor {
        acceptor.wake();
    }
}

impl SimAccepted {
    pub(super) fn adopt(mut self, rt: &SimRt) -> Result<SimConn, IoError> {
        match self.0.take() {
            Some(link) if rt.is_alive() => Ok(SimConn(Rc::new(Socket {
                rt: rt.clone(),
                link,
                side: 1,
            }))),
            Some(link) => {
                link.reset(false);
                Err(rt.dead_error("adopt", link.addrs[0].to_string()))
            }
            None => unreachable!("it is adopted once"),
        }
    }
}

impl SimAccepted {
    pub fn peer_addr(&self) -> SocketAddr {
        match &self.0 {
            // The side that connected.
            Some(link) => link.addrs[0],
            None => unreachable!("an adopted connection is no longer here"),
        }
    }
}

impl Drop for SimAccepted {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            link.reset(true);
        }
    }
}

impl SimConn {
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.link.addrs[1 - self.0.side]
    }

    pub fn closer(&self) -> SimConnCloser {
        SimConnCloser(Rc::downgrade(&self.0))
    }

    pub fn split(self) -> (SimConnReader, SimConnWriter) {
        (SimConnReader(self.0.clone()), SimConnWriter(self.0))
    }
}

impl SimConnReader {
    pub async fn read(&mut self, buf: &mut [u8]) -> Result<usize, IoError> {
        assert!(!buf.is_empty(), "a read into nothing looks like the end");
        self.0.rt.core.note_wait("data from a connection");
        poll_fn(|cx| self.0.poll_read(cx, buf)).await
    }
}

impl SimConnWriter {
    pub async fn write_all(&mut self, slices: &mut Vec<Bytes>) -> Result<(), IoError> {
        self.0.rt.core.note_wait("room in a connection");
        let mut left: VecDeque<Bytes> = slices.iter().filter(|s| !s.is_empty()).cloned().collect();
        poll_fn(|cx| self.0.poll_write(cx, &mut left)).await?;
        slices.clear();
        Ok(())
    }
}

impl SimConnCloser {
    pub fn close(&self) {
        // Absent if the connection is closed already.
        if let Some(socket) = self.0.upgrade() {
            socket.close();
        }
    }
}

impl Socket {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize, IoError>> {
        let rng = &self.rt.core.rng;
        let mut pipes = lock(&self.link.pipes);
        let pipe = &mut pipes[1 - self.side];
        if pipe.read_closed {
            return Poll::Ready(Err(self.error("read", libc::ESHUTDOWN)));
        }
        if let Some(first) = pipe.arrived.front_mut() {
            let most = first.len().min(buf.len());
            let count = match rng.one_in(3) {
                true => rng.within(1..most as u64 + 1) as usize,
                false => most,
            };
            first.copy_to_slice(&mut buf[..count]);
            if first.is_empty() {
                pipe.arrived.pop_front();
            }
            pipe.bytes -= count;
            let writer = pipe.writer.take();
            drop(pipes);
            if let Some(writer) = writer {
                writer.wake();
            }
            return Poll::Ready(Ok(count));
        }
        match pipe.end {
            End::Finished => Poll::Ready(Ok(0)),
            End::Reset => Poll::Ready(Err(self.error("read", libc::ECONNRESET))),
            End::Open => {
                pipe.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        left: &mut VecDeque<Bytes>,
    ) -> Poll<Result<(), IoError>> {
        let core = &self.rt.core;
        loop {
            let due = {
                let mut pipes = lock(&self.link.pipes);
                let pipe = &mut pipes[self.side];
                if pipe.write_closed {
                    return Poll::Ready(Err(self.error("write", libc::EPIPE)));
                }
                if pipe.read_closed || pipe.end == End::Reset {
                    return Poll::Ready(Err(self.error("write", libc::ECONNRESET)));
                }
                let Some(first) = left.front_mut() else {
                    return Poll::Ready(Ok(()));
                };
                let most = first.len().min(PIPE_BYTES.saturating_sub(pipe.bytes));
                if most == 0 {
                    pipe.writer = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                let count = match core.rng.one_in(4) {
                    true => core.rng.within(1..most as u64 + 1) as usize,
                    false => most,
                };
                let piece = first.split_to(count);
                if first.is_empty() {
                    left.pop_front();
                }
                pipe.bytes += count;
                let due = pipe.due_after(core.now() + delay(core).as_nanos() as u64);
                pipe.in_transit.push_back((due, Piece::Data(piece)));
                due
            };
            self.arrive_at(due);
        }
    }

    /// Ends the connection in both directions; the peer reads what is in transit,
    /// then the end.
    fn close(&self) {
        let core = &self.rt.core;
        let mut woken = Vec::new();
        let due = {
            let mut pipes = lock(&self.link.pipes);
            let incoming = &mut pipes[1 - self.side];
            incoming.read_closed = true;
            incoming.arrived.clear();
            incoming.in_transit.clear();
            woken.extend(incoming.reader.take());
            woken.extend(incoming.writer.take());
            let outgoing = &mut pipes[self.side];
            woken.extend(outgoing.writer.take());
            if !outgoing.write_closed {
                outgoing.write_closed = true;
                let due = outgoing.due_after(core.now() + delay(core).as_nanos() as u64);
                outgoing.in_transit.push_back((due, Piece::End));
                Some(due)
            } else {
                None
            }
        };
        woken.into_iter().for_each(Waker::wake);
        if let Some(due) = due {
            self.arrive_at(due);
        }
    }

    fn arrive_at(&self, due: u64) {
        let (link, side) = (self.link.clone(), self.side);
        self.rt.core.set_timer(due, Timer::Deliver { link, side });
    }

    fn error(&self, op: &'static str, errno: i32) -> IoError {
        IoError::from_errno(op, self.link.addrs[1 - self.side].to_string(), errno)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
    }
}

/// The time that one piece is on its way.
fn delay(core: &Core) -> Duration {
    Duration::from_nanos(match core.rng.one_in(30) {
        true => core.rng.within(500_000..10_000_000),
        false => core.rng.within(10_000..300_000),
    })
}

/// What one direction of a connection holds.
const PIPE_BYTES: usize = 64 * 1024;
const BACKLOG: usize = 1024;
const FIRST_PORT: u16 = 32_768;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
