//! A directory of the simulated disk.

use super::disk::{Op, Outcome};
use super::file::SimFile;
use super::fs::InodeId;
use super::rt::SimRt;
use crate::runtime::{DirEntry, IoError, OpenMode, Space, SyncSite};
use bytes::Bytes;
use std::path::{Path, PathBuf};

#[derive(Clone)]
pub struct SimDir {
    rt: SimRt,
    path: PathBuf,
}

pub struct SimDirLock {
    rt: SimRt,
    inode: InodeId,
}

impl SimDir {
    pub(super) fn new(rt: SimRt, path: &Path) -> SimDir {
        SimDir {
            rt,
            path: path.to_path_buf(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn subdir(&self, name: &str) -> SimDir {
        SimDir::new(self.rt.clone(), &self.path.join(name))
    }

    pub async fn exists(&self) -> Result<bool, IoError> {
        let path = self.path.clone();
        match self.rt.disk_op(Op::DirExists { path }).await? {
            Outcome::Yes(yes) => Ok(yes),
            _ => unreachable!("the question has two answers"),
        }
    }

    pub async fn create_all(&self, site: SyncSite) -> Result<(), IoError> {
        let mut missing = Vec::new();
        for path in self.path.ancestors() {
            let path = path.to_path_buf();
            match self
                .rt
                .disk_op(Op::DirExists { path: path.clone() })
                .await?
            {
                Outcome::Yes(true) => break,
                _ => missing.push(path),
            }
        }
        for path in missing.into_iter().rev() {
            let parent = path.parent().unwrap_or(Path::new("/")).to_path_buf();
            // If somebody else made it meanwhile, its name is synced all the same.
            self.rt.disk_op(Op::CreateDir { path }).await?;
            self.rt.disk_op(Op::SyncDir { path: parent, site }).await?;
        }
        Ok(())
    }

    pub async fn list(&self) -> Result<Vec<DirEntry>, IoError> {
        let path = self.path.clone();
        match self.rt.disk_op(Op::List { path }).await? {
            Outcome::Entries(entries) => Ok(entries),
            _ => unreachable!("a listing answers with entries"),
        }
    }

    pub async fn list_measuring(
        &self,
        measured: fn(&str) -> bool,
    ) -> Result<Vec<DirEntry>, IoError> {
        let mut entries = self.list().await?;
        for entry in entries.iter_mut().filter(|entry| !measured(&entry.name)) {
            (entry.len, entry.modified_ms) = (0, 0);
        }
        Ok(entries)
    }

    /// As large as can be, unless a test limits it.
    pub fn space(&self) -> Space {
        self.rt.node.disk.0.borrow().fs.space()
    }

    pub async fn sync(&self, site: SyncSite) -> Result<(), IoError> {
        let path = self.path.clone();
        self.rt.disk_op(Op::SyncDir { path, site }).await?;
        Ok(())
    }

    pub async fn open(&self, name: &str, mode: OpenMode) -> Result<SimFile, IoError> {
        SimFile::open(&self.rt, self.path.join(name), mode).await
    }

    pub async fn remove_file(&self, name: &str) -> Result<(), IoError> {
        let path = self.path.join(name);
        self.rt.disk_op(Op::RemoveFile { path }).await?;
        Ok(())
    }

    pub async fn rename(&self, from: &str, to: &str) -> Result<(), IoError> {
        let op = Op::Rename {
            dir: self.path.clone(),
            from: from.to_string(),
            to: to.to_string(),
        };
        self.rt.disk_op(op).await?;
        Ok(())
    }

    pub async fn remove_dir_all(&self, name: &str) -> Result<(), IoError> {
        let path = self.path.join(name);
        self.rt.disk_op(Op::RemoveDirAll { path }).await?;
        Ok(())
    }

    pub async fn read_small(&self, name: &str, len_max: u64) -> Result<Vec<u8>, IoError> {
        let path = self.path.join(name);
        match self.rt.disk_op(Op::ReadWhole { path, len_max }).await? {
            Outcome::Bytes(bytes) => Ok(bytes.to_vec()),
            _ => unreachable!("read answers with bytes"),
        }
    }

    pub async fn replace_small(
        &self,
        name: &str,
        content: Vec<u8>,
        site: SyncSite,
    ) -> Result<(), IoError> {
        let temporary = format!("{name}.tmp");
        let path = self.path.join(&temporary);
        let write = Op::WriteWhole {
            path: path.clone(),
            content: Bytes::from(content),
        };
        self.rt.disk_op(write).await?;
        let file = SimFile::open(&self.rt, path, OpenMode::ReadWrite).await?;
        file.sync_data(site).await?;
        self.rename(&temporary, name).await
    }

    pub async fn lock(&self, name: &str) -> Result<SimDirLock, IoError> {
        let path = self.path.join(name);
        match self.rt.disk_op(Op::Lock { path }).await? {
            Outcome::Inode(inode, _) => Ok(SimDirLock {
                rt: self.rt.clone(),
                inode,
            }),
            _ => unreachable!("a lock answers with its file"),
        }
    }
}

impl Drop for SimDirLock {
    fn drop(&mut self) {
        // The end of a run has released the locks of that run.
        if self.rt.is_alive() {
            self.rt.node.disk.unlock(self.inode);
        }
    }
}
