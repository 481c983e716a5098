//! A non-blocking connection: one request is written at a time, answers are split out of a reused buffer.
//!
//! What it is not: it knows no message, and it does not wait; its owner asks again when the socket is ready.

use super::batch::Template;
use super::messages::{LENGTH_BYTES, PRODUCE_TAIL};
use anyhow::{bail, Context, Result};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

pub struct Conn {
    socket: TcpStream,
    addr: SocketAddr,
    frames: Frames,
    /// The request that is being written; all of it but a batch.
    head: Vec<u8>,
    /// Its batch, and the bytes of it that count.
    body: Option<(Template, usize)>,
    /// Bytes of the request that are written; none is being written once that is all.
    written: usize,
}

/// What has become of a request.
pub enum Written {
    /// The socket has it all, and its template is free again.
    All(Option<Template>),
    /// The rest follows when the socket has room.
    Part,
}

impl Conn {
    /// Connects; `read_bytes` is the room for answers to begin with.
    pub fn open(addr: SocketAddr, read_bytes: usize) -> Result<Conn> {
        let socket = std::net::TcpStream::connect_timeout(&addr, CONNECT_MAX)
            .with_context(|| format!("no broker answers at {addr}"))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Conn {
            socket: TcpStream::from_std(socket),
            addr,
            frames: Frames::new(read_bytes),
            head: Vec::new(),
            body: None,
            written: 0,
        })
    }

    pub fn register(&mut self, registry: &Registry, token: usize) -> Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut self.socket, Token(token), interest)?;
        Ok(())
    }

    /// Whether the last request is not all written: no other may be sent.
    pub fn is_writing(&self) -> bool {
        self.written < self.request_bytes()
    }

    fn request_bytes(&self) -> usize {
        let body = self.body.as_ref();
        self.head.len() + body.map_or(0, |(_, bytes)| bytes + PRODUCE_TAIL.len())
    }

    /// Where the next request is made, whole or up to its batch.
    pub fn head(&mut self) -> &mut Vec<u8> {
        debug_assert!(!self.is_writing());
        self.written = 0;
        &mut self.head
    }

    /// Sends what is in [`Conn::head`], with so many bytes of a template behind it.
    pub fn send(&mut self, body: Option<(Template, usize)>) -> Result<Written> {
        self.body = body;
        self.written = 0;
        self.write()
    }

    /// Writes on.
    pub fn write(&mut self) -> Result<Written> {
        while self.is_writing() {
            let body = match &self.body {
                Some((template, bytes)) => template.batch(*bytes),
                None => &[],
            };
            let tail: &[u8] = match self.body {
                Some(_) => &PRODUCE_TAIL,
                None => &[],
            };
            let mut parts = [&self.head, body, tail].map(IoSlice::new);
            let mut parts = &mut parts[..];
            IoSlice::advance_slices(&mut parts, self.written);
            match self.socket.write_vectored(parts) {
                Ok(0) => return Err(self.closed()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Written::Part),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        // Nothing of it is left to be written, with the body or without.
        let body = self.body.take();
        self.written = self.head.len();
        Ok(Written::All(body.map(|(template, _)| template)))
    }

    /// Reads what is there, as far as there is room; whether there may be more. `drain`: until nothing is.
    pub fn read(&mut self, drain: bool) -> Result<bool> {
        loop {
            let space = self.frames.space()?;
            let room = space.len();
            match self.socket.read(space) {
                Ok(0) => return Err(self.closed()),
                Ok(count) => {
                    self.frames.filled(count);
                    return Ok(count == room || drain);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// The next whole answer, without its length.
    pub fn next_answer(&mut self) -> Result<Option<&[u8]>> {
        let frame = self.frames.next_frame()?;
        Ok(frame.map(|frame| &self.frames.buf[frame]))
    }

    fn closed(&self) -> anyhow::Error {
        Closed(format!("the broker at {} closed a connection", self.addr)).into()
    }

    fn failed(&self, error: std::io::Error) -> anyhow::Error {
        Closed(format!("a connection to {} ended: {error}", self.addr)).into()
    }
}

/// A connection that ended while it was needed.
#[derive(Debug)]
pub struct Closed(String);

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Closed {}

/// Splits a stream of bytes into frames.
struct Frames {
    buf: Vec<u8>,
    /// What is received and not yet taken.
    start: usize,
    end: usize,
    read_bytes: usize,
}

impl Frames {
    fn new(read_bytes: usize) -> Frames {
        Frames {
            buf: Vec::new(),
            start: 0,
            end: 0,
            read_bytes,
        }
    }

    /// The length of the frame at the front, without the length itself; `None` before all of that is there.
    fn length(&self) -> Result<Option<usize>> {
        let Some(prefix) = self.buf[self.start..self.end].first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        match usize::try_from(i32::from_be_bytes(*prefix)) {
            Ok(length) if length <= ANSWER_BYTES_MAX => Ok(Some(length)),
            _ => bail!("what the broker answers is not Kafka's protocol"),
        }
    }

    /// Where to receive: room for the rest of the frame at the front, never none.
    fn space(&mut self) -> Result<&mut [u8]> {
        let have = self.end - self.start;
        if have == 0 {
            (self.start, self.end) = (0, 0);
        }
        let frame = self.length()?.map_or(0, |length| LENGTH_BYTES + length);
        let want = frame.saturating_sub(have).max(MIN_READ_BYTES);
        if self.buf.len() - self.end < want && self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, have);
        }
        if self.buf.len() - self.end < want {
            self.buf.resize((self.end + want).max(self.read_bytes), 0);
        }
        Ok(&mut self.buf[self.end..])
    }

    /// That so many bytes were received.
    fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Takes the frame at the front.
    fn next_frame(&mut self) -> Result<Option<Range<usize>>> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        let start = self.start + LENGTH_BYTES;
        if self.end - start < length {
            return Ok(None);
        }
        self.start = start + length;
        Ok(Some(start..self.start))
    }
}

const CONNECT_MAX: Duration = Duration::from_secs(5);
const MIN_READ_BYTES: usize = 512;
/// The largest answer that is read: ten times what a fetch asks for at most.
const ANSWER_BYTES_MAX: usize = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_split_however_they_arrive(
            lengths in prop::collection::vec(0usize..3000, 0..20),
            pieces in prop::collection::vec(1usize..5000, 1..50),
            read_bytes in 0usize..2000,
        ) {
            let mut sent = Vec::new();
            let mut expected = Vec::new();
            for (n, length) in lengths.iter().enumerate() {
                let frame = vec![n as u8; *length];
                sent.extend((*length as i32).to_be_bytes());
                sent.extend_from_slice(&frame);
                expected.push(frame);
            }
            let mut frames = Frames::new(read_bytes);
            let mut got = Vec::new();
            let mut pieces = pieces.into_iter().cycle();
            let mut rest = &sent[..];
            while !rest.is_empty() {
                let space = frames.space().unwrap();
                prop_assert!(!space.is_empty());
                let count = pieces.next().unwrap().min(rest.len()).min(space.len());
                space[..count].copy_from_slice(&rest[..count]);
                frames.filled(count);
                rest = &rest[count..];
                while let Some(frame) = frames.next_frame().unwrap() {
                    got.push(frames.buf[frame].to_vec());
                }
            }
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn a_byte_at_a_time_makes_the_frame_and_then_nothing() {
        let mut frames = Frames::new(0);
        for byte in [0, 0, 0, 2, 7, 8] {
            assert_eq!(frames.next_frame().unwrap(), None);
            frames.space().unwrap()[0] = byte;
            frames.filled(1);
        }
        let frame = frames.next_frame().unwrap().unwrap();
        assert_eq!(frames.buf[frame], [7, 8]);
        assert_eq!(frames.next_frame().unwrap(), None);
    }

    #[test]
    fn a_length_that_is_none_is_an_error() {
        for length in [-1, i32::MAX] {
            let mut frames = Frames::new(0);
            frames.space().unwrap()[..4].copy_from_slice(&length.to_be_bytes());
            frames.filled(4);
            assert!(frames.next_frame().is_err());
            assert!(frames.space().is_err());
        }
    }
}
