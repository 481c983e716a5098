//! TCP: listeners and connections.

use super::{native, sim, IoError};
use bytes::Bytes;
use std::net::SocketAddr;

/// A listening socket.
pub struct Listener(ListenerSide);

enum ListenerSide {
    Native(native::NativeListener),
    Sim(sim::SimListener),
}

/// A connection on its way from the accepting executor to its owner. `Send`.
pub struct Accepted(pub(super) AcceptedSide);

pub(super) enum AcceptedSide {
    Native(native::NativeAccepted),
    Sim(sim::SimAccepted),
}

/// A connection, owned by one executor.
pub struct Conn(ConnSide);

enum ConnSide {
    Native(native::NativeConn),
    Sim(sim::SimConn),
}

/// The reading half.
pub struct ConnReader(ConnReaderSide);

enum ConnReaderSide {
    Native(native::NativeConnReader),
    Sim(sim::SimConnReader),
}

/// The writing half.
pub struct ConnWriter(ConnWriterSide);

enum ConnWriterSide {
    Native(native::NativeConnWriter),
    Sim(sim::SimConnWriter),
}

/// Ends a connection from another task of the same executor: its pending and
/// later reads and writes fail with `Disconnected` (or read 0 bytes).
#[derive(Clone)]
pub struct ConnCloser(ConnCloserSide);

#[derive(Clone)]
enum ConnCloserSide {
    Native(native::NativeConnCloser),
    Sim(sim::SimConnCloser),
}

impl Listener {
    pub(super) fn native(l: native::NativeListener) -> Listener {
        Listener(ListenerSide::Native(l))
    }

    pub(super) fn sim(l: sim::SimListener) -> Listener {
        Listener(ListenerSide::Sim(l))
    }

    /// The address in force (the chosen port, where 0 was asked).
    pub fn local_addr(&self) -> SocketAddr {
        match &self.0 {
            ListenerSide::Native(l) => l.local_addr(),
            ListenerSide::Sim(l) => l.local_addr(),
        }
    }

    /// Waits for the next connection. One caller at a time. After
    /// [`Listener::close`] it fails with `Disconnected`.
    pub async fn accept(&self) -> Result<Accepted, IoError> {
        match &self.0 {
            ListenerSide::Native(l) => l.accept().await.map(|a| Accepted(AcceptedSide::Native(a))),
            ListenerSide::Sim(l) => l.accept().await.map(|a| Accepted(AcceptedSide::Sim(a))),
        }
    }

    /// Stops listening: a pending accept returns.
    pub fn close(&self) {
        match &self.0 {
            ListenerSide::Native(l) => l.close(),
            ListenerSide::Sim(l) => l.close(),
        }
    }
}

impl Accepted {
    /// The other side's address.
    pub fn peer_addr(&self) -> SocketAddr {
        match &self.0 {
            AcceptedSide::Native(a) => a.peer_addr(),
            AcceptedSide::Sim(a) => a.peer_addr(),
        }
    }
}

impl Conn {
    pub(super) fn native(c: native::NativeConn) -> Conn {
        Conn(ConnSide::Native(c))
    }

    pub(super) fn sim(c: sim::SimConn) -> Conn {
        Conn(ConnSide::Sim(c))
    }

    /// The other side's address.
    pub fn peer_addr(&self) -> SocketAddr {
        match &self.0 {
            ConnSide::Native(c) => c.peer_addr(),
            ConnSide::Sim(c) => c.peer_addr(),
        }
    }

    /// A handle that ends the connection from another task.
    pub fn closer(&self) -> ConnCloser {
        match &self.0 {
            ConnSide::Native(c) => ConnCloser(ConnCloserSide::Native(c.closer())),
            ConnSide::Sim(c) => ConnCloser(ConnCloserSide::Sim(c.closer())),
        }
    }

    /// Two halves for two tasks. The socket closes when both are gone.
    pub fn split(self) -> (ConnReader, ConnWriter) {
        match self.0 {
            ConnSide::Native(c) => {
                let (r, w) = c.split();
                (
                    ConnReader(ConnReaderSide::Native(r)),
                    ConnWriter(ConnWriterSide::Native(w)),
                )
            }
            ConnSide::Sim(c) => {
                let (r, w) = c.split();
                (
                    ConnReader(ConnReaderSide::Sim(r)),
                    ConnWriter(ConnWriterSide::Sim(w)),
                )
            }
        }
    }
}

impl ConnReader {
    /// Reads what is there, at least one byte; 0 means the peer closed its side.
    pub async fn read(&mut self, buf: &mut [u8]) -> Result<usize, IoError> {
        match &mut self.0 {
            ConnReaderSide::Native(r) => r.read(buf).await,
            ConnReaderSide::Sim(r) => r.read(buf).await,
        }
    }
}

impl ConnWriter {
    /// Sends all slices in order, without copying them in user space, at most
    /// 1,024 to a system call. Emptied on success.
    pub async fn write_all(&mut self, slices: &mut Vec<Bytes>) -> Result<(), IoError> {
        match &mut self.0 {
            ConnWriterSide::Native(w) => w.write_all(slices).await,
            ConnWriterSide::Sim(w) => w.write_all(slices).await,
        }
    }
}

impl ConnCloser {
    /// Ends the connection in both directions. Idempotent.
    pub fn close(&self) {
        match &self.0 {
            ConnCloserSide::Native(c) => c.close(),
            ConnCloserSide::Sim(c) => c.close(),
        }
    }
}
