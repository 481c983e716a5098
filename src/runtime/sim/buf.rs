//! Buffers of the simulated disk: plain memory, frozen into refcounted `Bytes`.

use bytes::Bytes;
use std::ops::Range;

pub struct SimWriteBuf(pub(super) Vec<u8>);

#[derive(Clone)]
pub struct SimSharedBuf(pub(super) Bytes);

impl SimWriteBuf {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }

    pub fn freeze(self) -> SimSharedBuf {
        SimSharedBuf(Bytes::from(self.0))
    }
}

impl SimSharedBuf {
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub fn slice(&self, range: Range<usize>) -> Bytes {
        self.0.slice(range)
    }
}
