//! A file of the simulated disk.

use super::disk::{Op, Outcome};
use super::fs::InodeId;
use super::rt::SimRt;
use crate::runtime::{IoError, OpenMode, SharedBuf, SyncSite, BLOCK_BYTES};
use bytes::{Bytes, BytesMut};
use std::path::{Path, PathBuf};
use std::rc::Rc;

#[derive(Clone)]
pub struct SimFile {
    rt: SimRt,
    inode: InodeId,
    path: PathBuf,
    mode: OpenMode,
    _open: Rc<()>,
}

impl SimFile {
    pub(super) async fn open(
        rt: &SimRt,
        path: PathBuf,
        mode: OpenMode,
    ) -> Result<SimFile, IoError> {
        let op = Op::Open {
            path: path.clone(),
            mode,
        };
        match rt.disk_op(op).await? {
            Outcome::Inode(inode, open) => Ok(SimFile {
                rt: rt.clone(),
                inode,
                path,
                mode,
                _open: open,
            }),
            _ => unreachable!("open answers with a file"),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub async fn write_at(&self, buf: &SharedBuf, pos: u64) -> Result<(), IoError> {
        assert!(
            pos.is_multiple_of(BLOCK_BYTES as u64),
            "direct write at {pos}, not a multiple of the block size"
        );
        assert!(
            buf.len().is_multiple_of(BLOCK_BYTES),
            "direct write of {} bytes, not a multiple of the block size",
            buf.len()
        );
        self.check_writable("write")?;
        let op = Op::Write {
            inode: self.inode,
            path: self.path.clone(),
            pos,
            data: buf.slice(0..buf.len()),
        };
        self.rt.disk_op(op).await.map(|_| ())
    }

    pub async fn read_at(&self, pos: u64, len: usize) -> Result<Bytes, IoError> {
        // A read comes in one piece or in two, with other operations in between.
        let first = match self.rt.core.rng.one_in(4) && len > 1 {
            true => 1 + self.rt.core.rng.below(len as u64 - 1) as usize,
            false => len,
        };
        let head = self.read_on(pos, first).await?;
        if head.len() < first || first == len {
            return Ok(head);
        }
        let tail = self.read_on(pos + first as u64, len - first).await?;
        let mut whole = BytesMut::from(&head[..]);
        whole.extend_from_slice(&tail);
        Ok(whole.freeze())
    }

    /// Reads on after a short read, as the native side does: fewer bytes come only at the end of the file.
    async fn read_on(&self, pos: u64, len: usize) -> Result<Bytes, IoError> {
        let mut joined = BytesMut::new();
        loop {
            let (part, is_short) = self
                .read_piece(pos + joined.len() as u64, len - joined.len())
                .await?;
            if joined.is_empty() && !is_short {
                return Ok(part);
            }
            joined.extend_from_slice(&part);
            if !is_short {
                return Ok(joined.freeze());
            }
        }
    }

    pub async fn sync_data(&self, site: SyncSite) -> Result<(), IoError> {
        let op = Op::SyncData {
            inode: self.inode,
            path: self.path.clone(),
            site,
        };
        self.rt.disk_op(op).await.map(|_| ())
    }

    pub async fn pre_allocate(&self, size: u64) -> Result<(), IoError> {
        self.check_writable("fallocate")?;
        let op = Op::PreAllocate {
            inode: self.inode,
            path: self.path.clone(),
            size,
        };
        self.rt.disk_op(op).await.map(|_| ())
    }

    pub async fn truncate(&self, size: u64) -> Result<(), IoError> {
        self.check_writable("ftruncate")?;
        let op = Op::Truncate {
            inode: self.inode,
            path: self.path.clone(),
            size,
        };
        self.rt.disk_op(op).await.map(|_| ())
    }

    pub async fn size(&self) -> Result<u64, IoError> {
        match self.rt.disk_op(Op::Size { inode: self.inode }).await? {
            Outcome::Size(size) => Ok(size),
            _ => unreachable!("size answers with a size"),
        }
    }

    /// What one read gives, and whether there is more of what was asked for.
    async fn read_piece(&self, pos: u64, len: usize) -> Result<(Bytes, bool), IoError> {
        let op = Op::Read {
            inode: self.inode,
            path: self.path.clone(),
            pos,
            len,
        };
        match self.rt.disk_op(op).await? {
            Outcome::Bytes(bytes) => Ok((bytes, false)),
            Outcome::Part(bytes) => Ok((bytes, true)),
            _ => unreachable!("read answers with bytes"),
        }
    }

    fn check_writable(&self, op: &'static str) -> Result<(), IoError> {
        match self.mode {
            OpenMode::Read => Err(IoError::from_errno(
                op,
                self.path.display().to_string(),
                libc::EBADF,
            )),
            OpenMode::ReadWrite | OpenMode::CreateNew => Ok(()),
        }
    }
}
