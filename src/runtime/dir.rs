//! Directories, and the small files in them that are read and written whole.

use super::{native, sim, File, IoError, OpenMode, SyncSite};
use std::path::Path;

/// A handle to a directory. All work is done on a helper thread.
#[derive(Clone)]
pub struct Dir(DirSide);

#[derive(Clone)]
enum DirSide {
    Native(native::NativeDir),
    Sim(sim::SimDir),
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name (names that are not UTF-8 are left out of listings).
    pub name: String,
    /// True for a directory, or a link to one.
    pub is_dir: bool,
    /// True for a regular file, or a link to one.
    pub is_file: bool,
    /// Size in bytes; 0 for a directory.
    pub len: u64,
    /// Last modification, milliseconds since the Unix epoch.
    pub modified_ms: i64,
}

/// The room of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total_bytes: u64,
    /// What this process may still write.
    pub usable_bytes: u64,
}

/// An exclusive lock on a file, held until dropped or the process ends.
pub struct DirLock {
    /// Held for its drop.
    _side: DirLockSide,
}

#[allow(dead_code)]
enum DirLockSide {
    Native(native::NativeDirLock),
    Sim(sim::SimDirLock),
}

impl Dir {
    pub(super) fn native(dir: native::NativeDir) -> Dir {
        Dir(DirSide::Native(dir))
    }

    pub(super) fn sim(dir: sim::SimDir) -> Dir {
        Dir(DirSide::Sim(dir))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        match &self.0 {
            DirSide::Native(d) => d.path(),
            DirSide::Sim(d) => d.path(),
        }
    }

    /// A handle to a directory below this one.
    pub fn subdir(&self, name: &str) -> Dir {
        match &self.0 {
            DirSide::Native(d) => Dir::native(d.subdir(name)),
            DirSide::Sim(d) => Dir::sim(d.subdir(name)),
        }
    }

    /// True if it exists and is a directory.
    pub async fn exists(&self) -> Result<bool, IoError> {
        match &self.0 {
            DirSide::Native(d) => d.exists().await,
            DirSide::Sim(d) => d.exists().await,
        }
    }

    /// Creates it and what is missing above it, and syncs the parents of what was
    /// created. No error if it exists.
    pub async fn create_all(&self, site: SyncSite) -> Result<(), IoError> {
        match &self.0 {
            DirSide::Native(d) => d.create_all(site).await,
            DirSide::Sim(d) => d.create_all(site).await,
        }
    }

    /// Its entries, sorted by name.
    pub async fn list(&self) -> Result<Vec<DirEntry>, IoError> {
        match &self.0 {
            DirSide::Native(d) => d.list().await,
            DirSide::Sim(d) => d.list().await,
        }
    }

    /// The same, where the size and the time of most are not wanted: of an entry whose name
    /// `measured` refuses both are 0, and nothing but the listing is read for it.
    pub async fn list_measuring(
        &self,
        measured: fn(&str) -> bool,
    ) -> Result<Vec<DirEntry>, IoError> {
        match &self.0 {
            DirSide::Native(d) => d.list_measuring(measured).await,
            DirSide::Sim(d) => d.list_measuring(measured).await,
        }
    }

    /// The room of the file system that it lies on.
    pub async fn space(&self) -> Result<Space, IoError> {
        match &self.0 {
            DirSide::Native(d) => d.space().await,
            DirSide::Sim(d) => Ok(d.space()),
        }
    }

    /// fsync of the directory: names created, renamed or removed before are durable.
    pub async fn sync(&self, site: SyncSite) -> Result<(), IoError> {
        match &self.0 {
            DirSide::Native(d) => d.sync(site).await,
            DirSide::Sim(d) => d.sync(site).await,
        }
    }

    /// Opens a file in it for direct I/O. What is no regular file is
    /// [`super::IoErrorKind::Unusable`].
    pub async fn open(&self, name: &str, mode: OpenMode) -> Result<File, IoError> {
        match &self.0 {
            DirSide::Native(d) => d.open(name, mode).await.map(File::native),
            DirSide::Sim(d) => d.open(name, mode).await.map(File::sim),
        }
    }

    /// Removes a file. Not durable until [`Dir::sync`].
    pub async fn remove_file(&self, name: &str) -> Result<(), IoError> {
        match &self.0 {
            DirSide::Native(d) => d.remove_file(name).await,
            DirSide::Sim(d) => d.remove_file(name).await,
        }
    }

    /// Renames a file or a directory within this directory, replacing a file of the
    /// new name. Not durable until [`Dir::sync`].
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), IoError> {
        match &self.0 {
            DirSide::Native(d) => d.rename(from, to).await,
            DirSide::Sim(d) => d.rename(from, to).await,
        }
    }

    /// Removes a directory below this one with all that it holds. Not durable until
    /// [`Dir::sync`].
    pub async fn remove_dir_all(&self, name: &str) -> Result<(), IoError> {
        match &self.0 {
            DirSide::Native(d) => d.remove_dir_all(name).await,
            DirSide::Sim(d) => d.remove_dir_all(name).await,
        }
    }

    /// Reads a small file whole. Absent is [`super::IoErrorKind::NotFound`], never an
    /// empty file. A file larger than `len_max` bytes, and what is no regular file, is
    /// [`super::IoErrorKind::Unusable`].
    pub async fn read_small(&self, name: &str, len_max: u64) -> Result<Vec<u8>, IoError> {
        match &self.0 {
            DirSide::Native(d) => d.read_small(name, len_max).await,
            DirSide::Sim(d) => d.read_small(name, len_max).await,
        }
    }

    /// As [`Dir::read_small`], of a file that was just read: from the device again, where the
    /// system can be told to forget what it keeps of the file in memory.
    pub async fn read_small_again(&self, name: &str, len_max: u64) -> Result<Vec<u8>, IoError> {
        match &self.0 {
            DirSide::Native(d) => d.read_small_again(name, len_max).await,
            DirSide::Sim(d) => d.read_small(name, len_max).await,
        }
    }

    /// Replaces a small file whole and atomically: writes `name.tmp`, syncs it,
    /// renames it over `name`. The new name is durable only after [`Dir::sync`]; until
    /// then either the old or the new content is found, never a mixture.
    pub async fn replace_small(
        &self,
        name: &str,
        content: Vec<u8>,
        site: SyncSite,
    ) -> Result<(), IoError> {
        match &self.0 {
            DirSide::Native(d) => d.replace_small(name, content, site).await,
            DirSide::Sim(d) => d.replace_small(name, content, site).await,
        }
    }

    /// Takes an exclusive lock on a file in this directory (created if absent).
    /// [`super::IoErrorKind::AlreadyExists`] if another process holds it.
    pub async fn lock(&self, name: &str) -> Result<DirLock, IoError> {
        match &self.0 {
            DirSide::Native(d) => d.lock(name).await.map(|l| DirLock {
                _side: DirLockSide::Native(l),
            }),
            DirSide::Sim(d) => d.lock(name).await.map(|l| DirLock {
                _side: DirLockSide::Sim(l),
            }),
        }
    }
}
