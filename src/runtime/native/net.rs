//! TCP on plain non-blocking sockets; the ring says when they are ready.
//!
//! Each call first tries the system call and waits only on EAGAIN, so a busy
//! connection costs one call for each read and one for up to 1,024 slices written. No
//! byte is copied in user space. The two halves share the socket and wait separately.
//!
//! What it is not: buffered, and it knows no frames.

use super::activity::Connection;
use super::rt::{AtEnd, AtEndGuard, NativeRt};
use crate::runtime::{IoError, IoErrorKind};
use bytes::{Buf, Bytes};
use glommio::io::{PollState, PollableFd};
use smallvec::SmallVec;
use socket2::{Domain, Protocol, Socket, Type};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read};
use std::net::{Shutdown, SocketAddr};
use std::rc::{Rc, Weak};

/// The native side of `Listener`.
pub struct NativeListener(Rc<Listening>);

struct Listening {
    local: SocketAddr,
    /// `None` once closed, so that the port is free again.
    socket: RefCell<Option<Rc<PollableFd<Socket>>>>,
    _at_end: AtEndGuard,
}

/// A connection between two executors. Dropped, it closes.
pub struct NativeAccepted {
    socket: Socket,
    peer: SocketAddr,
}

/// A connection of this executor.
pub struct NativeConn(Rc<Stream>);

/// The reading half.
pub struct NativeConnReader(Rc<Stream>);

/// The writing half.
pub struct NativeConnWriter(Rc<Stream>);

/// Ends the connection from another task.
#[derive(Clone)]
pub struct NativeConnCloser(Weak<Stream>);

struct Stream {
    socket: PollableFd<Socket>,
    peer: SocketAddr,
    _connection: Connection,
    _at_end: AtEndGuard,
}

impl NativeListener {
    pub(super) fn bind(rt: &NativeRt, addr: SocketAddr) -> Result<NativeListener, IoError> {
        let fail = |op: &'static str| move |e: io::Error| error(op, &addr, &e);
        let socket = new_socket(addr).map_err(fail("socket"))?;
        // A restart may take the port while old connections linger. SO_REUSEPORT is
        // left out: a second broker on the same port must be refused.
        socket.set_reuse_address(true).map_err(fail("listen"))?;
        socket.bind(&addr.into()).map_err(|e| taken(&addr, &e))?;
        socket.listen(BACKLOG).map_err(|e| taken(&addr, &e))?;
        let local = socket
            .local_addr()
            .map_err(fail("listen"))?
            .as_socket()
            .ok_or_else(|| not_an_address("listen", &addr))?;
        let socket = Rc::new(pollable(socket));
        Ok(NativeListener(Rc::new_cyclic(
            |listening: &Weak<Listening>| Listening {
                local,
                socket: RefCell::new(Some(socket)),
                _at_end: rt.at_end(listening.clone()),
            },
        )))
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.0.local
    }

    pub async fn accept(&self) -> Result<NativeAccepted, IoError> {
        let listening = &*self.0;
        loop {
            let Some(socket) = listening.socket.borrow().clone() else {
                return Err(closed("accept", &listening.local));
            };
            match socket.get_ref().accept() {
                Ok((accepted, peer)) => {
                    let Some(peer) = peer.as_socket() else {
                        continue;
                    };
                    match configure(&accepted) {
                        Ok(()) => {}
                        // The peer is gone already.
                        Err(_) => continue,
                    }
                    return Ok(NativeAccepted {
                        socket: accepted,
                        peer,
                    });
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    ready(&socket, Direction::Read)
                        .await
                        .map_err(|e| poll_error("accept", &listening.local, &e))?;
                }
                Err(e) if is_transient(&e) => {}
                Err(e) if listening.socket.borrow().is_some() => {
                    return Err(error("accept", &listening.local, &e))
                }
                // Closed while this call waited.
                Err(_) => {}
            }
        }
    }

    pub fn close(&self) {
        self.0.close();
    }
}

impl Listening {
    fn close(&self) {
        if let Some(socket) = self.socket.borrow_mut().take() {
            // Wakes a pending accept, which then lets go of the descriptor. Cannot
            // fail on a listening socket.
            if let Err(error) = socket.get_ref().shutdown(Shutdown::Both) {
                tracing::warn!(addr = %self.local, %error, "closing a listener");
            }
        }
    }
}

impl AtEnd for Listening {
    fn executor_ends(&self) {
        self.close();
    }
}

impl NativeAccepted {
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

impl NativeConn {
    pub(super) async fn connect(rt: &NativeRt, addr: SocketAddr) -> Result<NativeConn, IoError> {
        let fail = |op: &'static str| move |e: io::Error| error(op, &addr, &e);
        let _operation = rt.operation();
        let socket = new_socket(addr).map_err(fail("socket"))?;
        let pending = match socket.connect(&addr.into()) {
            Ok(()) => false,
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => true,
            Err(e) => return Err(error("connect", &addr, &e)),
        };
        configure(&socket).map_err(fail("connect"))?;
        let socket = pollable(socket);
        if pending {
            ready(&socket, Direction::Write)
                .await
                .map_err(|e| poll_error("connect", &addr, &e))?;
            if let Some(e) = socket.get_ref().take_error().map_err(fail("connect"))? {
                return Err(error("connect", &addr, &e));
            }
        }
        Ok(NativeConn(Stream::new(rt, socket, addr)))
    }

    pub(super) fn adopt(rt: &NativeRt, accepted: NativeAccepted) -> Result<NativeConn, IoError> {
        let socket = pollable(accepted.socket);
        Ok(NativeConn(Stream::new(rt, socket, accepted.peer)))
    }

    pub fn peer_addr(&self) -> SocketAddr {
        self.0.peer
    }

    pub fn closer(&self) -> NativeConnCloser {
        NativeConnCloser(Rc::downgrade(&self.0))
    }

    pub fn split(self) -> (NativeConnReader, NativeConnWriter) {
        (NativeConnReader(self.0.clone()), NativeConnWriter(self.0))
    }
}

impl NativeConnReader {
    pub async fn read(&mut self, buf: &mut [u8]) -> Result<usize, IoError> {
        let stream = &*self.0;
        loop {
            match stream.socket.get_ref().read(buf) {
                Ok(read) => return Ok(read),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    stream
                        .socket
                        .readable()
                        .await
                        .map_err(|e| poll_error("read", &stream.peer, &e))?
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(error("read", &stream.peer, &e)),
            }
        }
    }
}

impl NativeConnWriter {
    pub async fn write_all(&mut self, slices: &mut Vec<Bytes>) -> Result<(), IoError> {
        let stream = &*self.0;
        let mut first = 0;
        loop {
            while slices.get(first).is_some_and(Bytes::is_empty) {
                first += 1;
            }
            if first == slices.len() {
                slices.clear();
                return Ok(());
            }
            match send(stream.socket.get_ref(), &slices[first..]) {
                Ok(sent) => advance(slices, &mut first, sent),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    stream
                        .socket
                        .writable()
                        .await
                        .map_err(|e| poll_error("write", &stream.peer, &e))?
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(error("write", &stream.peer, &e)),
            }
        }
    }
}

impl NativeConnCloser {
    pub fn close(&self) {
        if let Some(stream) = self.0.upgrade() {
            stream.shut_down();
        }
    }
}

impl Stream {
    fn new(rt: &NativeRt, socket: PollableFd<Socket>, peer: SocketAddr) -> Rc<Stream> {
        Rc::new_cyclic(|stream: &Weak<Stream>| Stream {
            socket,
            peer,
            _connection: rt.connection(),
            _at_end: rt.at_end(stream.clone()),
        })
    }

    /// Wakes whoever waits on the socket.
    fn shut_down(&self) {
        match self.socket.get_ref().shutdown(Shutdown::Both) {
            Ok(()) => {}
            // The peer was faster.
            Err(e) if e.raw_os_error() == Some(libc::ENOTCONN) => {}
            Err(error) => tracing::debug!(peer = %self.peer, %error, "closing a connection"),
        }
    }
}

impl AtEnd for Stream {
    fn executor_ends(&self) {
        self.shut_down();
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// Waits until the socket is ready, failed or hung up. It may be polled again by a
/// task that waits for other things too: glommio keeps a waker for each poll, so the
/// registration is renewed now and then.
async fn ready(
    socket: &PollableFd<Socket>,
    direction: Direction,
) -> Result<(), glommio::GlommioError<()>> {
    let mut registration = PollState::new();
    let mut polls = 0u32;
    poll_fn(|cx| {
        polls += 1;
        if polls.is_multiple_of(POLLS_MAX) {
            registration = PollState::new();
        }
        match direction {
            Direction::Read => socket.poll_readable(cx, &mut registration),
            Direction::Write => socket.poll_writable(cx, &mut registration),
        }
    })
    .await
}

/// One sendmsg of the first slices, without waiting and without SIGPIPE.
fn send(socket: &Socket, slices: &[Bytes]) -> io::Result<usize> {
    let vector: SmallVec<[IoSlice<'_>; 32]> = slices
        .iter()
        .take(SLICES_MAX)
        .map(|slice| IoSlice::new(slice))
        .collect();
    socket.send_vectored_with_flags(&vector, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
}

/// Lets go of what was sent: whole slices are dropped at once, so that their memory
/// goes home while the rest still waits for a slow reader.
fn advance(slices: &mut [Bytes], first: &mut usize, mut sent: usize) {
    while sent > 0 {
        let slice = &mut slices[*first];
        if sent < slice.len() {
            slice.advance(sent);
            return;
        }
        sent -= slice.len();
        *slice = Bytes::new();
        *first += 1;
    }
}

fn new_socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// As Kafka sets up the connections of a broker: no delay, keep-alive.
fn configure(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)
}

fn pollable(socket: Socket) -> PollableFd<Socket> {
    PollableFd::new(socket).expect("only makes a pair; cannot fail")
}

fn is_transient(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(
            libc::EINTR
                | libc::ECONNABORTED
                | libc::EPROTO
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ENONET
                | libc::ETIMEDOUT
        )
    )
}

fn error(op: &'static str, addr: &SocketAddr, e: &io::Error) -> IoError {
    match e.raw_os_error() {
        Some(errno) => IoError::from_errno(op, addr.to_string(), errno),
        None => IoError::new(op, addr.to_string(), IoErrorKind::Other, e.to_string()),
    }
}

fn poll_error(op: &'static str, addr: &SocketAddr, e: &glommio::GlommioError<()>) -> IoError {
    match e.raw_os_error() {
        Some(errno) => IoError::from_errno(op, addr.to_string(), errno),
        None => IoError::new(op, addr.to_string(), IoErrorKind::Other, e.to_string()),
    }
}

fn taken(addr: &SocketAddr, e: &io::Error) -> IoError {
    let mut failed = error("listen", addr, e);
    match failed.errno {
        Some(libc::EADDRINUSE) => {
            failed.detail = "the port is taken: stop the process that listens on it (`ss -ltnp`), \
                             or choose another port"
                .to_owned();
        }
        Some(libc::EADDRNOTAVAIL) => {
            failed.detail = "no interface of this host has the address: choose another".to_owned();
        }
        _ => {}
    }
    failed
}

fn closed(op: &'static str, addr: &SocketAddr) -> IoError {
    IoError::new(
        op,
        addr.to_string(),
        IoErrorKind::Disconnected,
        "the listener was closed",
    )
}

fn not_an_address(op: &'static str, addr: &SocketAddr) -> IoError {
    IoError::new(
        op,
        addr.to_string(),
        IoErrorKind::Other,
        "the socket has no IP address",
    )
}

/// Slices for one system call: UIO_MAXIOV.
const SLICES_MAX: usize = 1024;
const BACKLOG: i32 = 1024;
/// Polls of one registration with the ring.
const POLLS_MAX: u32 = 64;
