//! From a socket to frames.
//!
//! Small frames are read many at a time into a buffer that all connections share. A large one is read straight into
//! memory of its own, from a pool, which its records then never leave: they are stamped there, written to the disk from
//! there, and sent to consumers from there.

use anyhow::{ensure, Result};
use bytes::Bytes;
use std::io::{ErrorKind, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// A longer frame closes its connection. Also the most that a fetch is answered with.
pub const FRAME_BYTES_MAX: usize = 8 << 20;
/// Frames from this size on get memory of their own.
const LARGE_BYTES: usize = 32 << 10;
/// What is read of a frame that is probably large, to see its length.
const PEEK_BYTES: usize = 4 << 10;
const LENGTH_BYTES: usize = 4;

/// Memory for large frames, used again.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<Free>>);

#[derive(Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// What is kept in the pool, bytes.
const POOL_BYTES_MAX: usize = 64 << 20;

impl Pool {
    /// Memory of exactly `bytes`, with whatever was in it before.
    pub fn take(&self, bytes: usize) -> Pooled {
        // Few sizes, so that what comes back fits.
        let size = bytes.next_multiple_of(LARGE_BYTES);
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.buffers.iter().rposition(|buffer| buffer.len() == size);
        let buffer = match at {
            Some(at) => {
                free.bytes -= size;
                free.buffers.swap_remove(at)
            }
            None => vec![0; size],
        };
        drop(free);
        Pooled {
            buffer,
            bytes,
            pool: self.clone(),
        }
    }
}

pub struct Pooled {
    buffer: Vec<u8>,
    bytes: usize,
    pool: Pool,
}

impl Pooled {
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.bytes]
    }

    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut free = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.bytes + self.buffer.len() <= POOL_BYTES_MAX {
            free.bytes += self.buffer.len();
            free.buffers.push(std::mem::take(&mut self.buffer));
        }
    }
}

/// A whole frame, without its length.
pub enum Frame<'a> {
    Small(&'a mut [u8]),
    Large(Pooled),
}

/// What a connection has received and nobody has taken yet.
#[derive(Default)]
pub struct Inbox {
    /// The start of a frame, or several frames.
    partial: Vec<u8>,
    /// A large frame, and how much of it is there.
    large: Option<(Pooled, usize)>,
    /// The last frame was long: of the next one little is read into the shared buffer, from which it is copied.
    expects_large: bool,
}

/// Why [`Inbox::read`] came to an end.
#[derive(Debug, PartialEq)]
pub enum End {
    /// The socket has no more for now.
    Empty,
    /// There may be more: it was enough for one turn, or nobody takes frames now.
    More,
    /// The peer has closed it.
    Closed,
}

/// Of one connection in one turn.
const TURN_BYTES: usize = 2 << 20;

impl Inbox {
    /// Reads what there is and gives each frame to `take`, which says whether it takes more in this turn.
    pub fn read(
        &mut self,
        socket: &mut impl Read,
        scratch: &mut [u8],
        pool: &Pool,
        mut take: impl FnMut(Frame<'_>) -> Result<bool>,
    ) -> Result<End> {
        if !self.partial.is_empty() && self.large.is_none() {
            let mut partial = std::mem::take(&mut self.partial);
            if !self.split(&mut partial, pool, &mut take)? {
                return Ok(End::More);
            }
        }
        let mut turn = 0;
        while turn < TURN_BYTES {
            if let Some((frame, filled)) = &mut self.large {
                let count = match read(socket, &mut frame.bytes_mut()[*filled..])? {
                    Some(0) => return Ok(End::Closed),
                    None => return Ok(End::Empty),
                    Some(count) => count,
                };
                *filled += count;
                turn += count;
                if *filled == frame.as_ref().len() {
                    if let Some((frame, _)) = self.large.take() {
                        if !take(Frame::Large(frame))? {
                            return Ok(End::More);
                        }
                    }
                }
                continue;
            }
            // What is there already lies before what comes.
            let kept = self.partial.len();
            scratch[..kept].copy_from_slice(&self.partial);
            let room = if self.expects_large {
                scratch.len().min(kept + PEEK_BYTES)
            } else {
                scratch.len()
            };
            let count = match read(socket, &mut scratch[kept..room])? {
                Some(0) => return Ok(End::Closed),
                None => return Ok(End::Empty),
                Some(count) => count,
            };
            self.partial.clear();
            turn += count;
            let is_drained = kept + count < room;
            if !self.split(&mut scratch[..kept + count], pool, &mut take)? {
                return Ok(End::More);
            }
            // A socket that gave less than there was room for has no more; if more has come since, the poll tells.
            if is_drained && self.large.is_none() {
                return Ok(End::Empty);
            }
        }
        Ok(End::More)
    }

    /// Cuts bytes into frames and keeps the rest. False if frames are left that nobody takes now.
    fn split(
        &mut self,
        bytes: &mut [u8],
        pool: &Pool,
        take: &mut impl FnMut(Frame<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let mut is_taken = true;
        let mut at = 0;
        while let Some(prefix) = bytes[at..].first_chunk::<LENGTH_BYTES>() {
            let length = usize::try_from(i32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
            ensure!(
                length <= FRAME_BYTES_MAX,
                "a frame of {length} bytes: at most {FRAME_BYTES_MAX} are taken"
            );
            if !is_taken {
                break;
            }
            self.expects_large = length >= 2 * LARGE_BYTES;
            let rest = &mut bytes[at + LENGTH_BYTES..];
            if let Some(frame) = rest.get_mut(..length) {
                is_taken = take(Frame::Small(frame))?;
                at += LENGTH_BYTES + length;
            } else if length >= LARGE_BYTES {
                let mut frame = pool.take(length);
                frame.bytes_mut()[..rest.len()].copy_from_slice(rest);
                self.large = Some((frame, rest.len()));
                return Ok(is_taken);
            } else {
                break;
            }
        }
        self.partial.extend_from_slice(&bytes[at..]);
        Ok(is_taken)
    }
}

/// Bytes that all connections read into. No less than twice a small frame: what is kept of one must fit.
pub fn scratch() -> Vec<u8> {
    vec![0; 256 << 10]
}

/// `None` if there is nothing for now.
fn read(socket: &mut impl Read, into: &mut [u8]) -> Result<Option<usize>> {
    loop {
        match socket.read(into) {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::io;

    /// Gives the bytes in pieces, and between them says that there is nothing for now.
    struct Pieces(VecDeque<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some(mut piece) = self.0.pop_front() else {
                return Ok(0);
            };
            if piece.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = piece.len().min(into.len());
            into[..count].copy_from_slice(&piece[..count]);
            let rest = piece.split_off(count);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
            Ok(count)
        }
    }

    fn framed(sizes: &[usize]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let frames: Vec<Vec<u8>> = sizes
            .iter()
            .enumerate()
            .map(|(n, size)| vec![n as u8 + 1; *size])
            .collect();
        let with_length =
            |frame: &Vec<u8>| [&(frame.len() as u32).to_be_bytes(), &frame[..]].concat();
        let wire = frames.iter().flat_map(with_length).collect();
        (frames, wire)
    }

    fn read_all(wire: &[u8], piece: usize, takes: usize) -> Vec<Vec<u8>> {
        let mut pieces = VecDeque::new();
        for piece in wire.chunks(piece) {
            pieces.extend([piece.to_vec(), Vec::new()]);
        }
        let (mut inbox, mut scratch, pool) = (Inbox::default(), scratch(), Pool::default());
        let mut socket = Pieces(pieces);
        let mut seen: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut left = takes;
            let end = inbox.read(&mut socket, &mut scratch, &pool, |frame| {
                seen.push(match frame {
                    Frame::Small(bytes) => bytes.to_vec(),
                    Frame::Large(frame) => frame.as_ref().to_vec(),
                });
                left -= 1;
                Ok(left > 0)
            });
            if end.unwrap() == End::Closed {
                return seen;
            }
        }
    }

    #[test]
    fn frames_come_whole_however_they_are_cut() {
        let (frames, wire) = framed(&[1, 100, 0, 31_000, 40_000, 5, 300_000, 32 << 10, 7]);
        for piece in [1, 3, 4, 5, 1000, 40_003, wire.len()] {
            for takes in [1, 2, 100] {
                let seen = read_all(&wire, piece, takes);
                assert!(seen == frames, "pieces of {piece}, {takes} at a time");
            }
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_an_error_before_memory_is_taken_for_it() {
        for length in [FRAME_BYTES_MAX as i32 + 1, i32::MAX, -1] {
            let mut wire = &length.to_be_bytes()[..];
            let mut inbox = Inbox::default();
            let read = inbox.read(&mut wire, &mut scratch(), &Pool::default(), |_| Ok(true));
            assert!(read.unwrap_err().to_string().contains("a frame of"));
        }
    }

    #[test]
    fn the_memory_of_large_frames_is_used_again_and_bounded() {
        let pool = Pool::default();
        let first = pool.take(40_000);
        let place = first.as_ref().as_ptr();
        let bytes = first.freeze();
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_ne!(pool.take(40_000).as_ref().as_ptr(), place, "it is in use");
        drop(part);
        let again: Vec<Pooled> = (0..2).map(|_| pool.take(50_000)).collect();
        assert!(again.iter().any(|one| one.as_ref().as_ptr() == place));
        assert_eq!(again[0].as_ref().len(), 50_000);
        let many: Vec<Pooled> = (0..20).map(|_| pool.take(FRAME_BYTES_MAX)).collect();
        drop(many);
        assert!(pool.0.lock().unwrap().bytes <= POOL_BYTES_MAX);
    }
}
