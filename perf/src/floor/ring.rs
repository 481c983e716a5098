//! io_uring with a safe face: reads, writes and flushes of files, with buffers that the ring owns while the kernel
//! uses them.
//!
//! Why it is safe: an operation takes its [`Buffer`] and its file by value and keeps both in a slot of the ring until
//! the kernel has answered, so neither can be freed, closed, read or written meanwhile. A ring that is dropped waits for
//! what is in flight; if it can't wait, it leaks the buffers rather than free them under the kernel.
//!
//! What it is not: it knows no sockets, retries nothing, and takes no more operations than it was made for.

#![allow(unsafe_code)]

use anyhow::{ensure, Context, Result};
use io_uring::{opcode, squeue, types, IoUring};
use nix::libc;
use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// What direct I/O is aligned to: memory, offsets and lengths, bytes. Devices that need less take it too.
pub const ALIGNMENT: usize = 4096;

/// Memory for direct I/O, aligned to [`ALIGNMENT`].
pub struct Buffer {
    memory: NonNull<u8>,
    layout: Layout,
    /// The ring with which it is registered, and its index there.
    registered: Option<(u64, u16)>,
}

// SAFETY: the buffer is the only owner of its memory, which is not tied to a thread.
unsafe impl Send for Buffer {}
// SAFETY: through a shared reference the memory can only be read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Zeroed memory; `bytes` is rounded up to [`ALIGNMENT`].
    pub fn new(bytes: usize) -> Result<Buffer> {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        let layout = Layout::from_size_align(bytes, ALIGNMENT).context("a buffer of this size")?;
        // SAFETY: the size of the layout is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else {
            handle_alloc_error(layout);
        };
        Ok(Buffer {
            memory,
            layout,
            registered: None,
        })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is owned, of this size, and was zeroed when it was made.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.layout.size()) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and no operation holds it, as that would own it.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}

/// What is done with a file.
pub enum Work {
    /// Writes the first `len` bytes of the buffer.
    Write {
        buffer: Buffer,
        len: usize,
        offset: u64,
        then: Then,
    },
    /// Reads up to `len` bytes; fewer at the end of the file.
    Read {
        buffer: Buffer,
        len: usize,
        offset: u64,
    },
    /// fdatasync.
    Flush,
}

/// How a write becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Nothing,
    /// An fdatasync, linked: the kernel starts it when the write is done, without a turn through this process.
    Flush,
    /// The write itself is one that is flushed (RWF_DSYNC).
    Dsync,
}

/// What became of an operation.
pub struct Completion {
    /// As it was given.
    pub id: u64,
    /// Bytes read or written; 0 of a flush. A short write is an error.
    pub result: io::Result<usize>,
    pub buffer: Option<Buffer>,
}

pub struct Ring {
    ring: IoUring,
    id: u64,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    completed: VecDeque<Completion>,
}

/// An operation in flight, and all that the kernel uses of it.
struct Slot {
    id: u64,
    buffer: Option<Buffer>,
    /// Holds the file open.
    _file: Arc<File>,
    /// Bytes of a write, which must all be written.
    write_len: Option<usize>,
    /// Answers of the kernel that are still to come.
    missing: u8,
    result: io::Result<usize>,
    /// Of a linked flush.
    flushed: io::Result<usize>,
}

impl Ring {
    /// A ring of `depth` operations at once.
    pub fn new(depth: usize) -> Result<Ring> {
        static RINGS: AtomicU64 = AtomicU64::new(0);
        ensure!((1..=4096).contains(&depth), "a ring's depth is 1 to 4096");
        // Each operation is at most two entries.
        let ring = IoUring::builder()
            .build(2 * depth as u32)
            .context("io_uring is not there: it needs Linux 5.6 and must not be forbidden (sysctl kernel.io_uring_disabled)")?;
        Ok(Ring {
            ring,
            id: RINGS.fetch_add(1, Ordering::Relaxed),
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            completed: VecDeque::new(),
        })
    }

    /// Registers buffers, once for a ring: the kernel then need not pin their pages for each operation. Where the limit
    /// of locked memory forbids it they work without.
    pub fn register(&mut self, buffers: &mut [Buffer]) {
        let vectors: Vec<libc::iovec> = buffers
            .iter()
            .map(|buffer| libc::iovec {
                iov_base: buffer.memory.as_ptr().cast(),
                iov_len: buffer.layout.size(),
            })
            .collect();
        // SAFETY: the memory is valid now. The kernel takes references to its pages, so that it never touches freed
        // memory; and a buffer's index is used only while the buffer itself is in a slot.
        let registered = unsafe { self.ring.submitter().register_buffers(&vectors) };
        if registered.is_ok() {
            for (index, buffer) in buffers.iter_mut().enumerate() {
                buffer.registered = u16::try_from(index).ok().map(|index| (self.id, index));
            }
        }
    }

    /// Operations that may be begun now.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Queues an operation; [`Ring::submit`] or [`Ring::wait`] gives it to the kernel. An error if there is no room.
    pub fn push(&mut self, id: u64, file: &Arc<File>, work: Work) -> Result<()> {
        let fd = types::Fd(file.as_raw_fd());
        let index = *self.free.last().context("the ring is full")?;
        let data = (index as u64) << 1;
        let mut write_len = None;
        let mut entries: Vec<squeue::Entry> = Vec::with_capacity(2);
        let buffer = match work {
            Work::Write {
                buffer,
                len,
                offset,
                then,
            } => {
                ensure!(len <= buffer.len(), "a write beyond its buffer");
                write_len = Some(len);
                let flags = if then == Then::Dsync {
                    libc::RWF_DSYNC
                } else {
                    0
                };
                let start = buffer.memory.as_ptr().cast_const();
                let len = u32::try_from(len).context("a write of 4 GiB or more")?;
                let write = match self.registered(&buffer) {
                    Some(at) => opcode::WriteFixed::new(fd, start, len, at)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                    None => opcode::Write::new(fd, start, len)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                };
                if then == Then::Flush {
                    entries.push(write.flags(squeue::Flags::IO_LINK).user_data(data));
                    entries.push(fdatasync(fd).user_data(data | 1));
                } else {
                    entries.push(write.user_data(data));
                }
                Some(buffer)
            }
            Work::Read {
                buffer,
                len,
                offset,
            } => {
                ensure!(len <= buffer.len(), "a read beyond its buffer");
                let start = buffer.memory.as_ptr();
                let len = u32::try_from(len).context("a read of 4 GiB or more")?;
                let read = match self.registered(&buffer) {
                    Some(at) => opcode::ReadFixed::new(fd, start, len, at)
                        .offset(offset)
                        .build(),
                    None => opcode::Read::new(fd, start, len).offset(offset).build(),
                };
                entries.push(read.user_data(data));
                Some(buffer)
            }
            Work::Flush => {
                entries.push(fdatasync(fd).user_data(data));
                None
            }
        };
        let queued = self.ring.submission().len() + entries.len();
        if queued > self.ring.params().sq_entries() as usize {
            self.submit()?;
        }
        // The slot owns buffer and file from before the kernel can see the entries until it has answered all of them.
        self.free.pop();
        self.slots[index] = Some(Slot {
            id,
            buffer,
            _file: file.clone(),
            write_len,
            missing: entries.len() as u8,
            result: Ok(0),
            flushed: Ok(0),
        });
        // SAFETY: the entries name the file and the memory that the slot owns, and lengths within that memory.
        let pushed = unsafe { self.ring.submission().push_multiple(&entries) };
        if pushed.is_err() {
            // All or none are pushed: the kernel sees none of it.
            self.slots[index] = None;
            self.free.push(index);
            pushed.context("the ring's queue is full")?;
        }
        Ok(())
    }

    fn registered(&self, buffer: &Buffer) -> Option<u16> {
        let (ring, index) = buffer.registered?;
        (ring == self.id).then_some(index)
    }

    /// Gives what is queued to the kernel and does not wait.
    pub fn submit(&mut self) -> Result<()> {
        self.enter(0)
    }

    /// Gives what is queued to the kernel and waits until `count` of its answers are there (a write with a linked
    /// flush has two); no more than are to come.
    pub fn wait(&mut self, count: usize) -> Result<()> {
        let to_come: usize = self
            .slots
            .iter()
            .flatten()
            .map(|s| s.missing as usize)
            .sum();
        self.enter(count.min(to_come))
    }

    fn enter(&mut self, count: usize) -> Result<()> {
        loop {
            match self.ring.submit_and_wait(count) {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error).context("io_uring takes no operations"),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// An operation that has ended, if there is one.
    pub fn completed(&mut self) -> Option<Completion> {
        self.reap();
        self.completed.pop_front()
    }

    /// The next operation that ends; `None` if none is in flight.
    pub fn next_completed(&mut self) -> Result<Option<Completion>> {
        loop {
            if let Some(completion) = self.completed() {
                return Ok(Some(completion));
            }
            if self.in_flight() == 0 {
                return Ok(None);
            }
            self.wait(1)?;
        }
    }

    fn reap(&mut self) {
        for entry in self.ring.completion() {
            let index = (entry.user_data() >> 1) as usize;
            let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            let is_linked_flush = entry.user_data() & 1 == 1;
            let result = match entry.result() {
                error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
                bytes => Ok(bytes as usize),
            };
            slot.took(is_linked_flush, result);
            if slot.missing == 0 {
                if let Some(slot) = self.slots[index].take() {
                    self.free.push(index);
                    self.completed.push_back(slot.end());
                }
            }
        }
    }
}

impl Slot {
    fn took(&mut self, is_linked_flush: bool, result: io::Result<usize>) {
        self.missing = self.missing.saturating_sub(1);
        if is_linked_flush {
            self.flushed = result;
        } else {
            self.result = result;
        }
    }

    /// What became of the whole: the write's error says more than that its flush was cancelled for it.
    fn end(self) -> Completion {
        let result = match (self.result, self.write_len, self.flushed) {
            (Ok(bytes), Some(len), _) if bytes < len => Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("{bytes} of {len} bytes were written: is the disk full?"),
            )),
            (Ok(_), _, Err(error)) | (Err(error), ..) => Err(error),
            (Ok(bytes), ..) => Ok(bytes),
        };
        Completion {
            id: self.id,
            result,
            buffer: self.buffer,
        }
    }
}

impl AsRawFd for Ring {
    /// Readable while there are answers.
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            if self.wait(1).is_err() {
                // The kernel may still use them.
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
            self.reap();
        }
    }
}

fn fdatasync(fd: types::Fd) -> squeue::Entry {
    opcode::Fsync::new(fd)
        .flags(types::FsyncFlags::DATASYNC)
        .build()
}

/// What direct I/O to a file must be aligned to, bytes: as statx says (Linux 6.1), else [`ALIGNMENT`].
pub fn direct_alignment(file: &File) -> usize {
    let mut status = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty C string, which with AT_EMPTY_PATH means the open file; the kernel fills the struct,
    // for which all zeros are valid.
    let status = unsafe {
        let failed = libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            status.as_mut_ptr(),
        );
        if failed != 0 {
            return ALIGNMENT;
        }
        status.assume_init()
    };
    let alignment = status.stx_dio_mem_align.max(status.stx_dio_offset_align) as usize;
    if status.stx_mask & libc::STATX_DIOALIGN == 0 || !alignment.is_power_of_two() {
        return ALIGNMENT;
    }
    alignment
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
