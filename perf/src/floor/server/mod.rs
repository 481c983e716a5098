//! The floor as a server: Kafka's protocol with as little behind it as a broker can do.
//!
//! One thread, pinned like a broker's, waits in epoll (it does not spin: a broker that is idle should cost nothing) and
//! works in turns. A turn reads all sockets that have something; puts the records that are flushed into one aligned
//! buffer, which is written directly and flushed once, and copies the others into the page cache; answers; and sends.
//! While a turn is written and flushed the next one is gathered. Batches stay in memory for consumers, who get the
//! very bytes that were received.
//!
//! It checks no checksum, no timestamp, no sequence number, and recovers nothing after a crash. What it does with
//! records is what no broker can avoid; any broker's latency is to be seen beside its.

mod admin;
mod broker;
mod cold;
mod fetch;
mod files;
mod inbox;
mod log;
mod outbox;
mod produce;
mod saved;
mod store;

pub use admin::{FLUSH_SETTING, PARTITIONS_MAX};
pub use inbox::FRAME_BYTES_MAX;

use anyhow::{Context, Result};
use broker::{Broker, ConnId};
use clap::Args;
use inbox::{End, Inbox};
use log::FlushBy;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream, UnixStream};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use outbox::Outbox;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// Its files are here.
    #[arg(long)]
    dir: PathBuf,
    /// Port 0 takes a free one, which is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The CPU of its thread.
    #[arg(long)]
    cpu: Option<usize>,
    /// Bytes of the latest batches that stay in memory.
    #[arg(long, default_value_t = 256 << 20)]
    window_bytes: usize,
    /// Bytes of the file of flushed records, which is written from the start again when it is full.
    #[arg(long, default_value_t = 512 << 20, value_parser = parse_file_bytes)]
    flush_bytes: u64,
    /// The same of records that are not flushed.
    #[arg(long, default_value_t = KEEP_BYTES, value_parser = parse_file_bytes)]
    keep_bytes: u64,
    /// How turns are flushed.
    #[arg(long, value_enum, default_value = "ring")]
    flush_by: FlushBy,
    /// Turns that may be under way to the disk at once.
    #[arg(long, default_value_t = 1)]
    depth: usize,
}

/// What is kept of records that are not flushed, bytes.
pub const KEEP_BYTES: u64 = 8 << 30;

fn parse_file_bytes(text: &str) -> Result<u64, String> {
    const MIB: u64 = 1 << 20;
    match text.parse() {
        Ok(bytes) if bytes >= 64 * MIB && bytes % MIB == 0 && bytes <= 1 << 40 => Ok(bytes),
        _ => Err("bytes, a multiple of 1048576 and at least 67108864".to_owned()),
    }
}

/// Serves until SIGTERM, SIGINT or SIGHUP.
pub fn run(args: &ServerArgs) -> Result<()> {
    let (stop, told) = std::os::unix::net::UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, told.try_clone()?)?;
    }
    serve(args, stop, |addr| println!("listening {addr}"))
}

/// Serves until `stop` is readable or closed.
fn serve(
    args: &ServerArgs,
    stop: std::os::unix::net::UnixStream,
    listening: impl FnOnce(SocketAddr),
) -> Result<()> {
    super::pin(args.cpu)?;
    std::fs::create_dir_all(&args.dir)
        .with_context(|| format!("{} can't be made", args.dir.display()))?;
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("{} can't be listened on", args.listen))?;
    let addr = listener.local_addr()?;
    stop.set_nonblocking(true)?;
    let mut server = Server {
        poll: Poll::new()?,
        listener,
        stop: UnixStream::from_std(stop),
        broker: Broker::open(args, addr)?,
        flush_is_watched: false,
        conns: Vec::new(),
        free: Vec::new(),
        serials: 0,
        ready: VecDeque::new(),
        sending: Vec::new(),
        scratch: inbox::scratch(),
    };
    let registry = server.poll.registry();
    registry.register(&mut server.listener, LISTENER, Interest::READABLE)?;
    registry.register(&mut server.stop, STOP, Interest::READABLE)?;
    listening(addr);
    server.run()?;
    server.broker.close()
}

const LISTENER: Token = Token(0);
const STOP: Token = Token(1);
const FLUSHED: Token = Token(2);
/// Of the first connection.
const CONNS: usize = 3;
const CONNS_MAX: usize = 20_000;

struct Server {
    poll: Poll,
    listener: TcpListener,
    stop: UnixStream,
    broker: Broker,
    flush_is_watched: bool,
    conns: Vec<Option<Conn>>,
    free: Vec<usize>,
    serials: u64,
    /// Connections with something to read.
    ready: VecDeque<usize>,
    /// Connections with something to send.
    sending: Vec<usize>,
    scratch: Vec<u8>,
}

struct Conn {
    socket: TcpStream,
    peer: SocketAddr,
    serial: u64,
    inbox: Inbox,
    outbox: Outbox,
    /// The socket may have something that was not read.
    is_readable: bool,
    /// The peer sends no more.
    is_ended: bool,
    /// In `ready`.
    is_ready: bool,
    /// In `sending`.
    is_sending: bool,
}

impl Server {
    fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, self.timeout()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled.context("epoll fails")?,
            }
            for event in &events {
                match event.token() {
                    STOP => return Ok(()),
                    LISTENER => self.accept()?,
                    FLUSHED => {}
                    Token(token) => self.event(token - CONNS, event),
                }
            }
            self.read_ready();
            self.broker.turn()?;
            if let Some(deadline) = self.broker.deadline() {
                let now = Instant::now();
                if deadline <= now {
                    self.broker.expire(now)?;
                }
            }
            self.deliver();
            self.send();
            self.watch_flush()?;
        }
    }

    /// How long to wait for events; `None`: until there is one.
    fn timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty() && !self.broker.is_full() {
            return Some(Duration::ZERO);
        }
        let deadline = self.broker.deadline()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    fn watch_flush(&mut self) -> Result<()> {
        if !self.flush_is_watched {
            if let Some(fd) = self.broker.flush_fd() {
                let registry = self.poll.registry();
                registry.register(&mut SourceFd(&fd), FLUSHED, Interest::READABLE)?;
                self.flush_is_watched = true;
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let (mut socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error).context("no connection can be accepted"),
            };
            if self.conns.len() - self.free.len() >= CONNS_MAX {
                eprintln!("connection from {peer}: there are {CONNS_MAX} already");
                continue;
            }
            let index = self.free.pop().unwrap_or(self.conns.len());
            if index == self.conns.len() {
                self.conns.push(None);
            }
            let both = Interest::READABLE | Interest::WRITABLE;
            let registry = self.poll.registry();
            let registered = socket
                .set_nodelay(true)
                .and_then(|()| registry.register(&mut socket, Token(CONNS + index), both));
            if let Err(error) = registered {
                eprintln!("connection from {peer}: {error}");
                self.free.push(index);
                continue;
            }
            self.serials += 1;
            self.conns[index] = Some(Conn {
                socket,
                peer,
                serial: self.serials,
                inbox: Inbox::default(),
                outbox: Outbox::default(),
                is_readable: false,
                is_ended: false,
                is_ready: false,
                is_sending: false,
            });
        }
    }

    fn event(&mut self, index: usize, event: &Event) {
        let Some(conn) = self.conns.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            conn.is_readable = true;
            conn.is_ended |= event.is_read_closed();
            conn.list_ready(index, &mut self.ready);
        }
        if event.is_writable() && conn.outbox.has_chunks() {
            conn.list_sending(index, &mut self.sending);
        }
    }

    /// Reads each connection that is ready, once, while records can be taken.
    fn read_ready(&mut self) {
        for _ in 0..self.ready.len() {
            if self.broker.is_full() {
                return;
            }
            let Some(index) = self.ready.pop_front() else {
                return;
            };
            let Some(mut conn) = self.conns[index].take() else {
                continue;
            };
            conn.is_ready = false;
            match self.read(index, &mut conn) {
                Ok(true) => self.conns[index] = Some(conn),
                Ok(false) => self.close(index, conn),
                Err(error) => {
                    eprintln!("connection from {}: {error:#}", conn.peer);
                    self.close(index, conn);
                }
            }
        }
    }

    /// False if it has ended.
    fn read(&mut self, index: usize, conn: &mut Conn) -> Result<bool> {
        if conn.outbox.is_full() {
            // Again once it has sent some.
            return Ok(true);
        }
        let id = ConnId {
            index,
            serial: conn.serial,
        };
        let (broker, outbox) = (&mut self.broker, &mut conn.outbox);
        let pool = broker.pool.clone();
        let end = conn
            .inbox
            .read(&mut conn.socket, &mut self.scratch, &pool, |frame| {
                broker.take(id, outbox, frame)?;
                Ok(!outbox.is_full() && !broker.is_full())
            })?;
        match end {
            End::Closed => return Ok(false),
            // Nothing is left in a socket whose end was told before it was read.
            End::Empty if conn.is_ended => return Ok(false),
            End::Empty => conn.is_readable = false,
            End::More => conn.list_ready(index, &mut self.ready),
        }
        Ok(true)
    }

    /// Hands answers to their connections.
    fn deliver(&mut self) {
        for (id, number, frame) in self.broker.answers.drain(..) {
            let conn = self.conns.get_mut(id.index).and_then(Option::as_mut);
            let Some(conn) = conn.filter(|conn| conn.serial == id.serial) else {
                continue;
            };
            conn.outbox.answer(number, frame);
            if conn.outbox.has_chunks() {
                conn.list_sending(id.index, &mut self.sending);
            }
        }
    }

    fn send(&mut self) {
        for index in std::mem::take(&mut self.sending) {
            let Some(mut conn) = self.conns[index].take() else {
                continue;
            };
            conn.is_sending = false;
            if let Err(error) = conn.outbox.send(&mut conn.socket) {
                eprintln!("connection from {}: {error:#}", conn.peer);
                self.close(index, conn);
                continue;
            }
            if conn.is_readable && !conn.outbox.is_full() {
                conn.list_ready(index, &mut self.ready);
            }
            self.conns[index] = Some(conn);
        }
    }

    fn close(&mut self, index: usize, mut conn: Conn) {
        let id = ConnId {
            index,
            serial: conn.serial,
        };
        self.broker.closed(id);
        if let Err(error) = self.poll.registry().deregister(&mut conn.socket) {
            eprintln!("connection from {}: {error}", conn.peer);
        }
        self.free.push(index);
    }
}

impl Conn {
    fn list_ready(&mut self, index: usize, ready: &mut VecDeque<usize>) {
        if !std::mem::replace(&mut self.is_ready, true) {
            ready.push_back(index);
        }
    }

    fn list_sending(&mut self, index: usize, sending: &mut Vec<usize>) {
        if !std::mem::replace(&mut self.is_sending, true) {
            sending.push(index);
        }
    }
}

#[cfg(test)]
mod tests;
