//! Memory of direct I/O, shared with other threads and freed at home.
//!
//! glommio's `DmaBuffer` and `ReadResult` are `!Send` and end on the executor that
//! made them, but their bytes are served to connections on any core. So each is put
//! into a [`Parcel`] that is owned by a `Bytes` (its count is the only count): the
//! last drop, on whatever thread, pushes the parcel on its home's lock-free stack,
//! and the reclaim task at home frees it. On the home thread it is freed at once.
//!
//! Why it is safe: bytes are written only before [`NativeWriteBuf::freeze`], and by
//! the kernel only before a read completes; afterwards they are read-only until the
//! last `Bytes` is gone. What is `!Send` in a parcel (an `Rc`'s count, glommio's
//! source) is touched by the home thread alone, or, after the home has closed, by
//! the one owner that is left (see `Parcel::free_abroad`).
//!
//! What it is not: a pool. Memory comes from the global allocator, which reuses it.

use super::activity::Activity;
use super::stack::{Node, Stack};
use bytes::Bytes;
use glommio::io::{DmaBuffer, ReadResult};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A buffer that its holder may still change.
pub struct NativeWriteBuf {
    /// `None` for a buffer of no blocks.
    dma: Option<DmaBuffer>,
    home: Arc<Home>,
}

/// A frozen buffer. `!Send`; its slices are `Send`.
#[derive(Clone)]
pub struct NativeSharedBuf {
    bytes: Bytes,
    /// Points into the parcel that `bytes` owns; `None` for a buffer of no blocks.
    dma: Option<std::ptr::NonNull<Rc<DmaBuffer>>>,
    home: Arc<Home>,
}

impl NativeWriteBuf {
    /// A zeroed buffer of `len` bytes, a multiple of the block size.
    pub(super) fn new(home: &Arc<Home>, len: usize) -> NativeWriteBuf {
        let dma = (len > 0).then(|| {
            let mut dma = glommio::allocate_dma_buffer_global(len);
            zero(&mut dma);
            dma
        });
        NativeWriteBuf {
            dma,
            home: home.clone(),
        }
    }

    pub fn len(&self) -> usize {
        self.dma.as_ref().map_or(0, DmaBuffer::len)
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.dma.as_mut().map_or(&mut [], DmaBuffer::as_bytes_mut)
    }

    pub fn freeze(self) -> NativeSharedBuf {
        let Some(dma) = self.dma else {
            return NativeSharedBuf {
                bytes: Bytes::new(),
                dma: None,
                home: self.home,
            };
        };
        let node = Node::new(Parcel(Storage::Written(Rc::new(dma))));
        let Storage::Written(dma) = &node.get().0 else {
            unreachable!("made one line above");
        };
        let dma = std::ptr::NonNull::from(dma);
        NativeSharedBuf {
            bytes: Owner::bytes(node, self.home.clone()),
            dma: Some(dma),
            home: self.home,
        }
    }
}

impl NativeSharedBuf {
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    pub fn slice(&self, range: Range<usize>) -> Bytes {
        self.bytes.slice(range)
    }

    /// The buffer as glommio writes it; `None` for a buffer of no blocks. Only on
    /// the executor that made it.
    #[allow(unsafe_code)]
    pub(super) fn dma(&self) -> Option<Rc<DmaBuffer>> {
        assert!(
            self.home.is_here(),
            "a buffer is written only by the executor that made it"
        );
        // SAFETY: the pointer leads into the boxed node that `self.bytes` keeps
        // alive and that nobody moves or changes. The `Rc`'s count is touched by the
        // home thread alone, which the assertion says is this one.
        self.dma.map(|dma| unsafe { Rc::clone(dma.as_ref()) })
    }
}

/// What a read returned, as bytes that any thread may hold.
pub(super) fn read_bytes(home: &Arc<Home>, read: ReadResult) -> Bytes {
    if read.is_empty() {
        return Bytes::new();
    }
    Owner::bytes(Node::new(Parcel(Storage::Read(read))), home.clone())
}

/// Where the buffers of one executor come back to.
pub(super) struct Home {
    id: u64,
    returned: Stack<Parcel>,
    outstanding: AtomicU64,
}

impl Home {
    pub(super) fn new() -> Arc<Home> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Home {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            returned: Stack::new(),
            outstanding: AtomicU64::new(0),
        })
    }

    /// Marks this thread as the home's, until the guard drops.
    pub(super) fn enter(&self) -> HomeGuard {
        HomeGuard(HERE.replace(self.id))
    }

    /// True on the thread that runs this home's executor.
    pub(super) fn is_here(&self) -> bool {
        // While a thread ends, its locals may be gone; then nothing is at home.
        HERE.try_with(Cell::get).is_ok_and(|here| here == self.id)
    }

    /// Buffers frozen or read that were not freed yet.
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::Acquire)
    }

    /// Frees what other threads sent back, until the executor ends.
    pub(super) async fn reclaim(self: Arc<Self>, activity: Activity) {
        while !activity.has_ended() {
            futures_lite::future::or(self.returned.wait(), activity.ended()).await;
            for node in self.returned.take() {
                self.free(node);
                glommio::yield_if_needed().await;
            }
        }
    }

    /// Frees what is there now. On the home thread.
    pub(super) fn reclaim_now(&self) {
        for node in self.returned.take() {
            self.free(node);
        }
    }

    /// After the executor is gone, on its thread: frees what came back late, and
    /// lets later owners free theirs where they are.
    pub(super) fn close(&self) {
        for node in self.returned.close() {
            self.free(node);
        }
    }

    fn free(&self, node: Box<Node<Parcel>>) {
        drop(node);
        self.outstanding.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Restores what was here before.
pub(super) struct HomeGuard(u64);

impl Drop for HomeGuard {
    fn drop(&mut self) {
        HERE.set(self.0);
    }
}

thread_local! {
    /// The home of the executor that runs on this thread; 0 if none does.
    static HERE: Cell<u64> = const { Cell::new(0) };
}

enum Storage {
    /// Kept for its bytes; glommio holds another count while a write is in flight.
    Written(#[allow(dead_code)] Rc<DmaBuffer>),
    Read(ReadResult),
}

/// Storage on its way home.
struct Parcel(Storage);

// SAFETY: a parcel that is abroad is only carried: its bytes are read through
// `Owner::as_ref`, which touches no count, and it is opened (dropped) at home, or
// by `free_abroad`, which says why that is sound.
#[allow(unsafe_code)]
unsafe impl Send for Parcel {}

impl Parcel {
    /// Frees a parcel whose executor has ended, on any thread.
    fn free_abroad(self) {
        match self.0 {
            // The executor and its ring are gone, and `Stack::close`, seen by an
            // acquiring load, came after that: no other thread holds a count any
            // more (a task that was leaked pending may, but nobody runs it). The
            // memory is plain heap, which any thread may free.
            Storage::Written(dma) => drop(dma),
            // May share glommio's sources and arena with other results that are
            // freed at this moment by other threads. Leaked, and said.
            Storage::Read(read) => {
                tracing::error!(
                    bytes = read.len(),
                    "a slice of a read outlived its executor; its buffer is leaked"
                );
                std::mem::forget(read);
            }
        }
    }
}

/// What a `Bytes` owns: the parcel, and where it goes.
struct Owner {
    node: Option<Box<Node<Parcel>>>,
    home: Arc<Home>,
    start: *const u8,
    len: usize,
}

// SAFETY: `start` and `len` name memory that the node keeps alive and that nobody
// changes; the node is `Send` because `Parcel` is.
#[allow(unsafe_code)]
unsafe impl Send for Owner {}

impl Owner {
    fn bytes(node: Box<Node<Parcel>>, home: Arc<Home>) -> Bytes {
        let content: &[u8] = match &node.get().0 {
            Storage::Written(dma) => dma.as_bytes(),
            Storage::Read(read) => read,
        };
        let (start, len) = (content.as_ptr(), content.len());
        home.outstanding.fetch_add(1, Ordering::AcqRel);
        Bytes::from_owner(Owner {
            node: Some(node),
            home,
            start,
            len,
        })
    }
}

impl AsRef<[u8]> for Owner {
    #[allow(unsafe_code)]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the memory belongs to the node, which lives as long as `self`; the
        // heap block (or arena slot) does not move with it; nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let Some(node) = self.node.take() else { return };
        if self.home.is_here() {
            self.home.free(node);
            return;
        }
        if let Err(node) = self.home.returned.push(node) {
            node.into_inner().free_abroad();
            self.home.outstanding.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[allow(unsafe_code)]
fn zero(dma: &mut DmaBuffer) {
    // The memory is fresh from the allocator and not initialised: it is filled
    // through the pointer, and no slice of it exists before.
    // SAFETY: `as_mut_ptr` points to `len` bytes that this buffer owns.
    unsafe { std::ptr::write_bytes(dma.as_mut_ptr(), 0, dma.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(home: &Arc<Home>, byte: u8) -> NativeSharedBuf {
        let mut buf = NativeWriteBuf::new(home, 8192);
        assert!(buf.as_mut_slice().iter().all(|b| *b == 0));
        buf.as_mut_slice().fill(byte);
        buf.freeze()
    }

    #[test]
    fn given_a_buffer_dropped_at_home_then_it_is_freed_at_once() {
        let home = Home::new();
        let _here = home.enter();
        let buf = written(&home, 7);
        let slice = buf.slice(10..20);
        drop(buf);
        assert_eq!(home.outstanding(), 1);
        assert_eq!(&slice[..], &[7; 10]);
        drop(slice);
        assert_eq!(home.outstanding(), 0);
    }

    #[test]
    fn given_slices_dropped_abroad_then_every_buffer_comes_home() {
        let home = Home::new();
        let _here = home.enter();
        for round in 0..200u32 {
            let slices: Vec<Bytes> = (0..8u8)
                .map(|n| written(&home, n).slice(n as usize..8192))
                .collect();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let slices = slices.clone();
                    std::thread::spawn(move || {
                        for (n, slice) in slices.into_iter().enumerate() {
                            assert!(slice.iter().all(|b| *b == n as u8));
                        }
                    })
                })
                .collect();
            drop(slices);
            for thread in threads {
                thread.join().unwrap();
            }
            home.reclaim_now();
            assert_eq!(home.outstanding(), 0, "round {round}");
        }
    }

    #[test]
    fn given_a_home_that_closed_then_a_late_slice_is_still_valid_and_freed() {
        let home = Home::new();
        let guard = home.enter();
        let slice = written(&home, 9).slice(0..8192);
        let late = written(&home, 8).slice(0..1);
        drop(guard);
        home.close();
        std::thread::spawn(move || {
            assert!(slice.iter().all(|b| *b == 9));
            drop(slice);
        })
        .join()
        .unwrap();
        drop(late);
        assert_eq!(home.outstanding(), 0);
    }

    #[test]
    fn given_a_buffer_of_no_blocks_then_it_has_no_memory() {
        let home = Home::new();
        let mut buf = NativeWriteBuf::new(&home, 0);
        assert_eq!(buf.len(), 0);
        assert!(buf.as_mut_slice().is_empty());
        let buf = buf.freeze();
        assert!(buf.as_slice().is_empty());
        assert_eq!(home.outstanding(), 0);
    }
}
