//! A file open for direct I/O, on glommio's `DmaFile`.
//!
//! Reads go through `read_at_aligned` alone (glommio-ng 0.12's `read_at` may return
//! stale bytes near the end of a file) and are cut here. Positions and lengths are
//! aligned to the block size of writes. A system error's number is kept: it decides
//! what the log does.
//!
//! What it is not: a cache, and it tracks no size.

use super::buf::read_bytes;
use super::rt::NativeRt;
use crate::runtime::buf::{SharedBuf, SharedBufSide, BLOCK_BYTES};
use crate::runtime::{IoError, IoErrorKind, Queue, SyncSite};
use bytes::{Bytes, BytesMut};
use glommio::io::DmaFile;
use glommio::GlommioError;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The native side of `File`. Cheap to clone; closes with the last clone.
#[derive(Clone)]
pub struct NativeFile(Rc<Open>);

struct Open {
    rt: NativeRt,
    path: PathBuf,
    /// `None` only while it is being closed.
    file: Option<DmaFile>,
}

impl NativeFile {
    pub(super) fn new(rt: &NativeRt, path: PathBuf, file: DmaFile) -> NativeFile {
        NativeFile(Rc::new(Open {
            rt: rt.clone(),
            path,
            file: Some(file),
        }))
    }

    pub fn path(&self) -> &Path {
        &self.0.path
    }

    pub async fn write_at(&self, buf: &SharedBuf, pos: u64) -> Result<(), IoError> {
        let SharedBufSide::Native(buf) = &buf.0 else {
            unreachable!("a buffer never moves between the two sides");
        };
        assert!(
            pos.is_multiple_of(BLOCK_BYTES as u64),
            "a write begins at a multiple of the block size"
        );
        let Some(dma) = buf.dma() else { return Ok(()) };
        let len = dma.len();
        let _operation = self.0.rt.operation();
        let written = self
            .file()
            .write_rc_at(dma, pos)
            .await
            .map_err(|error| self.error("write", &error))?;
        if written != len {
            return Err(IoError::new(
                "write",
                &self.0.path,
                IoErrorKind::ShortWrite,
                format!("{written} of {len} bytes at {pos} were written: the disk may be full"),
            ));
        }
        Ok(())
    }

    pub async fn read_at(&self, pos: u64, len: usize) -> Result<Bytes, IoError> {
        let _operation = self.0.rt.operation();
        let first = self.read_once(pos, len).await?;
        if first.len() == len {
            return Ok(first);
        }
        // Short: nearly always the end of the file, which its size tells.
        let size = self.size().await?;
        let expected = expected_len(pos, len, size);
        if first.len() >= expected {
            return Ok(first);
        }
        // A short read before the end. Rare, so this alone copies.
        let mut joined = BytesMut::with_capacity(expected);
        joined.extend_from_slice(&first);
        drop(first);
        while joined.len() < expected {
            let done = joined.len();
            let part = self.read_once(pos + done as u64, expected - done).await?;
            if part.is_empty() {
                // The file was cut meanwhile.
                break;
            }
            joined.extend_from_slice(&part);
        }
        Ok(joined.freeze())
    }

    pub async fn sync_data(&self, _site: SyncSite) -> Result<(), IoError> {
        let _operation = self.0.rt.operation();
        self.file()
            .fdatasync()
            .await
            .map_err(|error| self.error("fdatasync", &error))
    }

    pub async fn pre_allocate(&self, size: u64) -> Result<(), IoError> {
        if size == 0 {
            return Ok(());
        }
        let _operation = self.0.rt.operation();
        // From 0 and without "keep size": never shrinks, keeps what is there.
        self.file()
            .pre_allocate(size, false)
            .await
            .map_err(|error| self.error("fallocate", &error))
    }

    pub async fn truncate(&self, size: u64) -> Result<(), IoError> {
        let _operation = self.0.rt.operation();
        self.file()
            .truncate(size)
            .await
            .map_err(|error| self.error("truncate", &error))
    }

    pub async fn size(&self) -> Result<u64, IoError> {
        let _operation = self.0.rt.operation();
        self.file()
            .file_size()
            .await
            .map_err(|error| self.error("stat", &error))
    }

    /// One aligned read, cut to the range; short for whatever reason.
    async fn read_once(&self, pos: u64, len: usize) -> Result<Bytes, IoError> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let aligned = aligned_range(pos, len);
        let read = self
            .file()
            .read_at_aligned(aligned.pos, aligned.len)
            .await
            .map_err(|error| self.error("read", &error))?;
        let bytes = read_bytes(self.0.rt.home(), read);
        if bytes.len() <= aligned.skip {
            return Ok(Bytes::new());
        }
        let end = bytes.len().min(aligned.skip + len);
        Ok(bytes.slice(aligned.skip..end))
    }

    fn file(&self) -> &DmaFile {
        self.0.file.as_ref().expect("open until it is dropped")
    }

    fn error(&self, op: &'static str, error: &GlommioError<()>) -> IoError {
        io_error(op, &self.0.path, error)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if !self.rt.home().is_here() {
            // The executor has ended; glommio then closes the descriptor itself.
            return;
        }
        let (rt, path) = (self.rt.clone(), std::mem::take(&mut self.path));
        let operation = self.rt.operation();
        self.rt.spawn(
            Queue::Latency,
            Box::pin(async move {
                let _operation = operation;
                if let Err(error) = file.close().await {
                    tracing::error!(executor = rt.name(), path = %path.display(), %error, "close");
                }
            }),
        );
    }
}

/// glommio's error with the number that the system gave.
pub(super) fn io_error(op: &'static str, path: &Path, error: &GlommioError<()>) -> IoError {
    match error.raw_os_error() {
        Some(errno) => IoError::from_errno(op, path.display().to_string(), errno),
        None => IoError::new(op, path, IoErrorKind::Other, error.to_string()),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Aligned {
    pos: u64,
    len: usize,
    /// Bytes before the range that was asked for.
    skip: usize,
}

fn aligned_range(pos: u64, len: usize) -> Aligned {
    let block = BLOCK_BYTES as u64;
    let start = pos - pos % block;
    let skip = (pos - start) as usize;
    Aligned {
        pos: start,
        len: (skip + len).next_multiple_of(BLOCK_BYTES),
        skip,
    }
}

/// How many bytes of a range exist in a file of `size` bytes.
fn expected_len(pos: u64, len: usize, size: u64) -> usize {
    size.saturating_sub(pos).min(len as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_any_range_when_aligned_then_it_covers_the_range_in_blocks() {
        let cases = [
            (0, 1, 0, 4096, 0),
            (0, 4096, 0, 4096, 0),
            (1, 4096, 0, 8192, 1),
            (4095, 1, 0, 4096, 4095),
            (4096, 10, 4096, 4096, 0),
            (10_000, 20_000, 8192, 24_576, 1808),
        ];
        for (pos, len, a_pos, a_len, skip) in cases {
            let want = Aligned {
                pos: a_pos,
                len: a_len,
                skip,
            };
            assert_eq!(aligned_range(pos, len), want, "{pos} {len}");
        }
    }

    #[test]
    fn given_a_file_size_then_a_range_is_cut_at_the_end() {
        assert_eq!(expected_len(0, 10, 100), 10);
        assert_eq!(expected_len(95, 10, 100), 5);
        assert_eq!(expected_len(100, 10, 100), 0);
        assert_eq!(expected_len(101, 10, 100), 0);
    }
}
