//! The files of the floor.
//!
//! A [`Log`] is a file that is written from start to end, and then from the start again. A *place* counts all bytes
//! that were ever written to it, so a place says both where something is and whether it is still there.
//!
//! Records that are flushed go to a file whose blocks were all written before, since that is the cheapest flush there
//! is. All records of a turn go into one buffer, are written directly, and flushed once ([`FlushLog`]). Records that are
//! not flushed are copied into the page cache of another file ([`CacheLog`]): the least that a broker does with records
//! that it must keep.

use crate::floor::raw::scratch::fill;
use crate::floor::ring::{Buffer, Ring, Then, Work, ALIGNMENT};
use anyhow::{Context, Result};
use bytes::Bytes;
use nix::libc::O_DIRECT;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::inbox::FRAME_BYTES_MAX;

/// A turn with as many bytes takes no more records.
const TURN_BYTES: usize = 4 << 20;
/// Slices of one write (IOV_MAX).
const SLICES_MAX: usize = 1024;

pub struct Log {
    pub file: Arc<File>,
    capacity: u64,
    next: u64,
}

impl Log {
    pub fn new(file: File, capacity: u64, next: u64) -> Log {
        Log {
            file: Arc::new(file),
            capacity,
            next,
        }
    }

    /// The place of the next bytes, `len` of which will not reach over the file's end.
    fn prepare(&mut self, len: u64) -> u64 {
        if self.next % self.capacity + len > self.capacity {
            self.next = self.next.next_multiple_of(self.capacity);
        }
        self.next
    }

    /// Where in the file a place is.
    pub fn position(&self, place: u64) -> u64 {
        place % self.capacity
    }

    /// Whether what was written at a place is still there.
    pub fn holds(&self, place: u64) -> bool {
        // What a turn still gathers will overwrite as much.
        place < self.next && place + self.capacity >= self.next + BUFFER_BYTES as u64
    }

    pub fn next(&self) -> u64 {
        self.next
    }
}

pub fn open(path: &Path, flags: i32) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
        .with_context(|| format!("{} can't be opened", path.display()))
}

/// Direct writes, flushed.
pub struct FlushLog<T> {
    log: Log,
    by: FlushBy,
    ring: Ring,
    free: Vec<Buffer>,
    filling: Option<Buffer>,
    filled: usize,
    /// What `filling` begins with.
    place: u64,
    turn: Vec<T>,
    in_flight: VecDeque<InFlight<T>>,
    turns: u64,
    /// What a turn takes on the disk, a moving average.
    usual: Duration,
}

/// A turn that is being written and flushed.
struct InFlight<T> {
    id: u64,
    begun: Instant,
    is_done: bool,
    turn: Vec<T>,
}

/// How a turn is written and flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FlushBy {
    /// The faster of the two, by how long turns take.
    ///
    /// io_uring gives every fdatasync to a worker thread, since it may block. Where a flush takes as little as 20
    /// microseconds, the switches to that thread and back (they share the CPU) and the wake-up by epoll make an
    /// acknowledgement about 30 microseconds later than a pwrite and an fdatasync by this thread. Where turns take
    /// longer than [`HOLD_MAX`] it is worth more to gather the next one meanwhile.
    Fastest,
    /// io_uring: a write and a linked fdatasync; meanwhile the next turn is gathered.
    Ring,
    /// pwrite and fdatasync, which hold the thread.
    Syscalls,
}

/// The longest turn for which the thread is held.
const HOLD_MAX: Duration = Duration::from_micros(250);

/// A turn and the largest frame that can still come into it.
const BUFFER_BYTES: usize = TURN_BYTES + FRAME_BYTES_MAX;

impl<T> FlushLog<T> {
    /// Writes the whole file, which takes as long as that takes. `depth` turns may be under way at once.
    pub fn make(path: &Path, capacity: u64, by: FlushBy, depth: usize) -> Result<FlushLog<T>> {
        let file = open(path, O_DIRECT)
            .with_context(|| format!("{} must take direct I/O (O_DIRECT)", path.display()))?;
        fill(&file, capacity)?;
        let mut ring = Ring::new(depth)?;
        let mut free = (0..=depth)
            .map(|_| Buffer::new(BUFFER_BYTES))
            .collect::<Result<Vec<_>>>()?;
        ring.register(&mut free);
        Ok(FlushLog {
            log: Log::new(file, capacity, 0),
            by,
            ring,
            filling: free.pop(),
            free,
            filled: 0,
            place: 0,
            turn: Vec::new(),
            in_flight: VecDeque::new(),
            turns: 0,
            usual: Duration::ZERO,
        })
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Whether no more records can be taken before a turn has ended.
    pub fn is_full(&self) -> bool {
        self.filling.is_none() || self.filled >= TURN_BYTES
    }

    /// Adds record bytes to the turn that is gathered; their place. Only while it is not full.
    pub fn push(&mut self, bytes: &[u8]) -> Result<u64> {
        if self.filled == 0 {
            self.place = self.log.prepare(BUFFER_BYTES as u64);
        }
        let buffer = self.filling.as_mut().context("no buffer is free")?;
        let room = buffer.get_mut(self.filled..self.filled + bytes.len());
        room.context("the turn is full")?.copy_from_slice(bytes);
        let place = self.place + self.filled as u64;
        self.filled += bytes.len();
        Ok(place)
    }

    /// What is to be told once the turn that is gathered is flushed.
    pub fn then(&mut self, what: T) {
        self.turn.push(what);
    }

    /// Writes and flushes what was gathered, if a turn may begin.
    pub fn submit(&mut self) -> Result<()> {
        let by_ring = match self.by {
            FlushBy::Fastest => self.usual > HOLD_MAX,
            by => by == FlushBy::Ring,
        };
        if self.filled == 0 || (by_ring && self.ring.room() == 0) {
            return Ok(());
        }
        let Some(mut buffer) = self.filling.take() else {
            return Ok(());
        };
        let len = self.filled.next_multiple_of(ALIGNMENT);
        buffer[self.filled..len].fill(0);
        self.filled = 0;
        self.log.next = self.place + len as u64;
        self.turns += 1;
        let turn = std::mem::take(&mut self.turn);
        let offset = self.log.position(self.place);
        self.in_flight.push_back(InFlight {
            id: self.turns,
            begun: Instant::now(),
            is_done: false,
            turn,
        });
        if by_ring {
            let work = Work::Write {
                buffer,
                len,
                offset,
                then: Then::Flush,
            };
            self.ring.push(self.turns, &self.log.file, work)?;
            self.ring.submit()?;
            self.filling = self.free.pop();
            return Ok(());
        }
        self.log
            .file
            .write_all_at(&buffer[..len], offset)
            .context("a direct write fails")?;
        self.log.file.sync_data().context("a flush fails")?;
        self.filling = Some(buffer);
        self.done(self.turns);
        Ok(())
    }

    fn done(&mut self, id: u64) {
        let turn = self.in_flight.iter_mut().find(|turn| turn.id == id);
        if let Some(turn) = turn {
            turn.is_done = true;
            self.usual = (self.usual * 7 + turn.begun.elapsed()) / 8;
        }
    }

    /// The oldest turn, if it is flushed.
    pub fn flushed(&mut self) -> Result<Option<Vec<T>>> {
        while let Some(completion) = self.ring.completed() {
            completion
                .result
                .context("a direct write or a flush fails")?;
            self.done(completion.id);
            self.free.extend(completion.buffer);
            if self.filling.is_none() {
                self.filling = self.free.pop();
            }
        }
        let is_done = self.in_flight.front().is_some_and(|turn| turn.is_done);
        let turn = is_done.then(|| self.in_flight.pop_front()).flatten();
        Ok(turn.map(|turn| turn.turn))
    }
}

impl<T> AsRawFd for FlushLog<T> {
    /// Readable when a turn is flushed.
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

/// Writes into the page cache.
pub struct CacheLog<T> {
    log: Log,
    /// Places below were written by an earlier process, and are not in the page cache.
    cold_below: u64,
    slices: Vec<Bytes>,
    bytes: usize,
    turn: Vec<T>,
}

impl<T> CacheLog<T> {
    /// `next` is where an earlier process ended, if its records are kept; else 0, and the file is emptied.
    pub fn open(path: &Path, capacity: u64, next: u64) -> Result<CacheLog<T>> {
        let file = open(path, 0)?;
        if next == 0 {
            file.set_len(0)?;
        }
        Ok(CacheLog {
            log: Log::new(file, capacity, next),
            cold_below: next,
            slices: Vec::new(),
            bytes: 0,
            turn: Vec::new(),
        })
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Bytes from a place on that an earlier process wrote; `None` if this one wrote what is there.
    pub fn cold_bytes(&self, place: u64) -> Option<u64> {
        let bytes = self.cold_below.saturating_sub(place);
        (bytes > 0).then_some(bytes)
    }

    pub fn is_full(&self) -> bool {
        self.bytes >= TURN_BYTES
    }

    /// Adds record bytes to the turn; their place.
    pub fn push(&mut self, bytes: Bytes) -> u64 {
        if self.bytes == 0 {
            self.log.prepare(BUFFER_BYTES as u64);
        }
        let place = self.log.next + self.bytes as u64;
        self.bytes += bytes.len();
        self.slices.push(bytes);
        place
    }

    /// What is to be told once the turn is written.
    pub fn then(&mut self, what: T) {
        self.turn.push(what);
    }

    /// Writes the turn.
    pub fn write(&mut self) -> Result<Vec<T>> {
        if self.bytes > 0 {
            let mut file = &*self.log.file;
            file.seek(SeekFrom::Start(self.log.position(self.log.next)))?;
            for slices in self.slices.chunks(SLICES_MAX) {
                let mut slices: Vec<IoSlice<'_>> =
                    slices.iter().map(|bytes| IoSlice::new(bytes)).collect();
                let mut slices = &mut slices[..];
                while !slices.is_empty() {
                    let written = file.write_vectored(slices).context("a write fails")?;
                    anyhow::ensure!(written > 0, "a write takes nothing: is the disk full?");
                    IoSlice::advance_slices(&mut slices, written);
                }
            }
            self.log.next += self.bytes as u64;
            self.bytes = 0;
            self.slices.clear();
        }
        Ok(std::mem::take(&mut self.turn))
    }

    /// Gives the disk back, once no batch is in it. Only between turns.
    pub fn empty(&mut self) -> Result<()> {
        self.log.next = self.log.next.next_multiple_of(self.log.capacity);
        self.cold_below = self.log.next;
        self.log.file.set_len(0).context("a file can't be emptied")
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
