//! Buffers for direct I/O: one copy in, none out.
//!
//! A [`WriteBuf`] is filled once, then frozen into a [`SharedBuf`], which never
//! changes: it goes to disk and then serves readers, on any core, as `Bytes`
//! slices. Its memory is freed by the executor that made it, whoever drops the
//! last slice.

use super::{native, sim};
use bytes::Bytes;
use std::ops::Range;

/// The unit of direct I/O, in bytes: positions and lengths of writes are multiples.
pub const BLOCK_BYTES: usize = 4096;

/// An aligned, zeroed buffer that its holder may still change.
pub struct WriteBuf(pub(super) WriteBufSide);

pub(super) enum WriteBufSide {
    Native(native::NativeWriteBuf),
    Sim(sim::SimWriteBuf),
}

/// An immutable, refcounted buffer, shared between the disk and readers.
#[derive(Clone)]
pub struct SharedBuf(pub(super) SharedBufSide);

#[derive(Clone)]
pub(super) enum SharedBufSide {
    Native(native::NativeSharedBuf),
    Sim(sim::SimSharedBuf),
}

impl WriteBuf {
    /// Its length in bytes, a multiple of [`BLOCK_BYTES`].
    pub fn len(&self) -> usize {
        match &self.0 {
            WriteBufSide::Native(b) => b.len(),
            WriteBufSide::Sim(b) => b.len(),
        }
    }

    /// True for a buffer of no blocks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory, to be filled.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            WriteBufSide::Native(b) => b.as_mut_slice(),
            WriteBufSide::Sim(b) => b.as_mut_slice(),
        }
    }

    /// Ends the changes.
    pub fn freeze(self) -> SharedBuf {
        match self.0 {
            WriteBufSide::Native(b) => SharedBuf(SharedBufSide::Native(b.freeze())),
            WriteBufSide::Sim(b) => SharedBuf(SharedBufSide::Sim(b.freeze())),
        }
    }
}

impl SharedBuf {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// True for a buffer of no blocks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The content.
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            SharedBufSide::Native(b) => b.as_slice(),
            SharedBufSide::Sim(b) => b.as_slice(),
        }
    }

    /// A refcounted slice that any thread may hold and drop.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        match &self.0 {
            SharedBufSide::Native(b) => b.slice(range),
            SharedBufSide::Sim(b) => b.slice(range),
        }
    }
}
