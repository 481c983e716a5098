//! A file read and written by direct I/O.

use super::{native, sim, IoError, SharedBuf, SyncSite};
use bytes::Bytes;
use std::path::Path;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading only; it must exist.
    Read,
    /// Reading and writing; it must exist.
    ReadWrite,
    /// Reading and writing; it must not exist yet.
    CreateNew,
}

/// A file open for direct I/O. Cheap to clone (the descriptor is shared) within
/// its executor; the descriptor closes when the last clone is dropped.
#[derive(Clone)]
pub struct File(FileSide);

#[derive(Clone)]
enum FileSide {
    Native(native::NativeFile),
    Sim(sim::SimFile),
}

impl File {
    pub(super) fn native(file: native::NativeFile) -> File {
        File(FileSide::Native(file))
    }

    pub(super) fn sim(file: sim::SimFile) -> File {
        File(FileSide::Sim(file))
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        match &self.0 {
            FileSide::Native(f) => f.path(),
            FileSide::Sim(f) => f.path(),
        }
    }

    /// Writes the whole buffer at `pos`, a multiple of the block size. A short
    /// write is an error of its own kind, never retried here.
    pub async fn write_at(&self, buf: &SharedBuf, pos: u64) -> Result<(), IoError> {
        match &self.0 {
            FileSide::Native(f) => f.write_at(buf, pos).await,
            FileSide::Sim(f) => f.write_at(buf, pos).await,
        }
    }

    /// Reads `len` bytes at `pos` (neither need be aligned). Returns fewer only at
    /// the end of the file. No copy is made.
    pub async fn read_at(&self, pos: u64, len: usize) -> Result<Bytes, IoError> {
        match &self.0 {
            FileSide::Native(f) => f.read_at(pos, len).await,
            FileSide::Sim(f) => f.read_at(pos, len).await,
        }
    }

    /// fdatasync: all writes that were complete when this was called are durable
    /// once it returns.
    pub async fn sync_data(&self, site: SyncSite) -> Result<(), IoError> {
        match &self.0 {
            FileSide::Native(f) => f.sync_data(site).await,
            FileSide::Sim(f) => f.sync_data(site).await,
        }
    }

    /// Reserves space so that the file is at least `size` bytes (zeros beyond what
    /// was written). Bytes below are kept.
    pub async fn pre_allocate(&self, size: u64) -> Result<(), IoError> {
        match &self.0 {
            FileSide::Native(f) => f.pre_allocate(size).await,
            FileSide::Sim(f) => f.pre_allocate(size).await,
        }
    }

    /// Cuts (or extends with zeros) to exactly `size` bytes. Not durable until
    /// [`File::sync_data`].
    pub async fn truncate(&self, size: u64) -> Result<(), IoError> {
        match &self.0 {
            FileSide::Native(f) => f.truncate(size).await,
            FileSide::Sim(f) => f.truncate(size).await,
        }
    }

    /// The file's size in bytes, as the file system has it.
    pub async fn size(&self) -> Result<u64, IoError> {
        match &self.0 {
            FileSide::Native(f) => f.size().await,
            FileSide::Sim(f) => f.size().await,
        }
    }
}
