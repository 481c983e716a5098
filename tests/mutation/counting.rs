//! An allocator that counts the bytes that this thread holds.
//!
//! What it is not: it sees no memory of C libraries (zstd), which bound their own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

thread_local! {
    /// Bytes held now and at most since the start; less than nothing if freed elsewhere.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// The most bytes that `f` held at any moment beyond what was held before it.
pub fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    HELD.set((0, 0));
    let result = f();
    let (_, peak) = HELD.get();
    (result, peak as usize)
}

fn add(bytes: isize) {
    let (held, peak) = HELD.get();
    let held = held + bytes;
    HELD.set((held, peak.max(held)));
}

// SAFETY: every call is passed on to the system's allocator as it came, and its answer
// is given back; only a number of this thread is changed besides, without allocating.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        System.alloc_zeroed(layout)
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size as isize - layout.size() as isize);
        System.realloc(block, layout, size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        System.dealloc(block, layout);
    }
}
