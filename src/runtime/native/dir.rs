//! Directories and small files: std's calls on a helper thread.
//!
//! A file for direct I/O is opened twice: once on the helper thread, where its file
//! system and its willingness to do direct I/O are looked at, and once more by glommio
//! through `/proc/self/fd`, so that both mean the same file even if its name is
//! removed at that moment (glommio panics if a path vanishes between its open and its
//! statfs).
//!
//! What it is not: for the hot path.

use super::file::{io_error, NativeFile};
use super::rt::NativeRt;
use crate::runtime::{DirEntry, IoError, IoErrorKind, OpenMode, Space, SyncSite};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The native side of `Dir`.
#[derive(Clone)]
pub struct NativeDir {
    rt: NativeRt,
    path: PathBuf,
}

/// A lock held by an open file; ends when the file closes.
pub struct NativeDirLock(#[allow(dead_code)] fs::File);

impl NativeDir {
    pub(super) fn new(rt: NativeRt, path: &Path) -> NativeDir {
        NativeDir {
            rt,
            path: path.to_owned(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn subdir(&self, name: &str) -> NativeDir {
        NativeDir {
            rt: self.rt.clone(),
            path: self.path.join(name),
        }
    }

    pub async fn exists(&self) -> Result<bool, IoError> {
        self.blocking(|dir| match fs::metadata(dir) {
            Ok(found) => Ok(found.is_dir()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(IoError::from_std("stat", dir, &e)),
        })
        .await
    }

    pub async fn create_all(&self, _site: SyncSite) -> Result<(), IoError> {
        self.blocking(create_all).await
    }

    pub async fn list(&self) -> Result<Vec<DirEntry>, IoError> {
        self.list_measuring(|_| true).await
    }

    pub async fn list_measuring(
        &self,
        measured: fn(&str) -> bool,
    ) -> Result<Vec<DirEntry>, IoError> {
        self.blocking(move |dir| list(dir, measured)).await
    }

    pub async fn space(&self) -> Result<Space, IoError> {
        self.blocking(space).await
    }

    pub async fn sync(&self, _site: SyncSite) -> Result<(), IoError> {
        self.blocking(sync_dir).await
    }

    pub async fn open(&self, name: &str, mode: OpenMode) -> Result<NativeFile, IoError> {
        let path = self.path.join(name);
        let _operation = self.rt.operation();
        let opened = self.blocking({
            let path = path.clone();
            move |_| open_direct(&path, mode)
        });
        let first = opened.await?;
        let link = format!("/proc/self/fd/{}", first.as_raw_fd());
        let file = glommio::io::OpenOptions::new()
            .read(true)
            .write(mode != OpenMode::Read)
            .dma_open(&link)
            .await
            .map_err(|error| match error.raw_os_error() {
                // The file is there: it is open. Never to be taken for "absent".
                Some(libc::ENOENT) => IoError::new(
                    "open",
                    &path,
                    IoErrorKind::Other,
                    format!("{link} does not exist: /proc must be mounted"),
                ),
                _ => io_error("open", &path, &error),
            })?;
        drop(first);
        Ok(NativeFile::new(&self.rt, path, file))
    }

    pub async fn remove_file(&self, name: &str) -> Result<(), IoError> {
        let path = self.path.join(name);
        self.blocking(move |_| {
            fs::remove_file(&path).map_err(|e| IoError::from_std("remove", &path, &e))
        })
        .await
    }

    pub async fn rename(&self, from: &str, to: &str) -> Result<(), IoError> {
        let (from, to) = (self.path.join(from), self.path.join(to));
        self.blocking(move |_| {
            fs::rename(&from, &to).map_err(|e| IoError::from_std("rename", &from, &e))
        })
        .await
    }

    pub async fn remove_dir_all(&self, name: &str) -> Result<(), IoError> {
        let path = self.path.join(name);
        self.blocking(move |_| {
            fs::remove_dir_all(&path).map_err(|e| IoError::from_std("remove", &path, &e))
        })
        .await
    }

    pub async fn read_small(&self, name: &str, len_max: u64) -> Result<Vec<u8>, IoError> {
        let path = self.path.join(name);
        self.blocking(move |_| read_small(&path, len_max, false))
            .await
    }

    pub async fn read_small_again(&self, name: &str, len_max: u64) -> Result<Vec<u8>, IoError> {
        let path = self.path.join(name);
        self.blocking(move |_| read_small(&path, len_max, true))
            .await
    }

    pub async fn replace_small(
        &self,
        name: &str,
        content: Vec<u8>,
        _site: SyncSite,
    ) -> Result<(), IoError> {
        let path = self.path.join(name);
        let tmp = self.path.join(format!("{name}.tmp"));
        self.blocking(move |_| replace_small(&path, &tmp, &content))
            .await
    }

    pub async fn lock(&self, name: &str) -> Result<NativeDirLock, IoError> {
        let path = self.path.join(name);
        self.blocking(move |_| lock(&path)).await.map(NativeDirLock)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, IoError> + Send + 'static,
    ) -> Result<T, IoError> {
        let dir = self.path.clone();
        match self.rt.spawn_blocking(move || work(&dir)).await {
            Ok(result) => result,
            Err(panicked) => Err(IoError::new(
                "helper thread",
                &self.path,
                IoErrorKind::Other,
                panicked.to_string(),
            )),
        }
    }
}

fn space(dir: &Path) -> Result<Space, IoError> {
    super::limits::space(dir).map_err(|error| IoError::from_std("statvfs", dir, &error))
}

fn create_all(dir: &Path) -> Result<(), IoError> {
    let mut missing = Vec::new();
    let mut at = Some(dir);
    while let Some(path) = at.filter(|p| !p.as_os_str().is_empty()) {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => break,
            Ok(_) => {
                return Err(IoError::from_errno(
                    "mkdir",
                    path.display().to_string(),
                    libc::ENOTDIR,
                ))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => missing.push(path),
            Err(e) => return Err(IoError::from_std("stat", path, &e)),
        }
        at = path.parent();
    }
    for path in missing.into_iter().rev() {
        match fs::create_dir(path) {
            Ok(()) => {}
            // Somebody else made it meanwhile; its name is synced all the same.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(IoError::from_std("mkdir", path, &e)),
        }
        sync_dir(parent_of(path))?;
    }
    Ok(())
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn list(dir: &Path, measured: fn(&str) -> bool) -> Result<Vec<DirEntry>, IoError> {
    let fail = |e: &io::Error| IoError::from_std("list", dir, e);
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| fail(&e))? {
        let entry = entry.map_err(|e| fail(&e))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        match entry.file_type() {
            Ok(kind) if !kind.is_symlink() && !measured(&name) => {
                entries.push(DirEntry {
                    name,
                    is_dir: kind.is_dir(),
                    is_file: kind.is_file(),
                    len: 0,
                    modified_ms: 0,
                });
                continue;
            }
            // What is wrong with it, the next look says.
            Ok(_) | Err(_) => {}
        }
        let found = match entry.metadata() {
            // A link is what it leads to; one that leads nowhere is itself.
            Ok(found) if found.is_symlink() => fs::metadata(entry.path()).unwrap_or(found),
            Ok(found) => found,
            // Removed while we were listing.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(IoError::from_std("stat", &entry.path(), &e)),
        };
        entries.push(DirEntry {
            name,
            is_dir: found.is_dir(),
            is_file: found.is_file(),
            len: if found.is_dir() { 0 } else { found.len() },
            modified_ms: found.mtime() * 1000 + found.mtime_nsec() / 1_000_000,
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn sync_dir(dir: &Path) -> Result<(), IoError> {
    fs::File::open(dir)
        .and_then(|opened| opened.sync_all())
        .map_err(|e| IoError::from_std("sync directory", dir, &e))
}

fn open_direct(path: &Path, mode: OpenMode) -> Result<fs::File, IoError> {
    let mut options = fs::OpenOptions::new();
    // Without O_NONBLOCK a FIFO would hold up whoever opens it.
    options
        .read(true)
        .custom_flags(libc::O_DIRECT | libc::O_NONBLOCK);
    match mode {
        OpenMode::Read => {}
        OpenMode::ReadWrite => {
            options.write(true);
        }
        OpenMode::CreateNew => {
            options.write(true).create_new(true).mode(0o644);
        }
    }
    let opened = match options.open(path) {
        Ok(opened) => opened,
        Err(e) => {
            if mode != OpenMode::CreateNew && fs::metadata(path).is_ok_and(|f| !f.is_file()) {
                return Err(no_regular_file(path));
            }
            if e.raw_os_error() != Some(libc::EINVAL) {
                return Err(IoError::from_std("open", path, &e));
            }
            // The kernel has made the file by then: it is not left behind.
            if mode == OpenMode::CreateNew {
                remove_refused(path);
            }
            return Err(direct_io_refused(path, "open says so (EINVAL)"));
        }
    };
    let found = opened.metadata();
    if !found
        .map_err(|e| IoError::from_std("stat", path, &e))?
        .is_file()
    {
        return Err(no_regular_file(path));
    }
    if is_tmpfs(&opened).map_err(|e| IoError::from_std("statfs", path, &e))? {
        if mode == OpenMode::CreateNew {
            remove_refused(path);
        }
        return Err(direct_io_refused(path, "it is a tmpfs, which is memory"));
    }
    Ok(opened)
}

fn no_regular_file(path: &Path) -> IoError {
    let detail = "it is no regular file";
    IoError::new("open", path, IoErrorKind::Unusable, detail)
}

fn remove_refused(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(path = %path.display(), %error, "cannot remove"),
    }
}

fn direct_io_refused(path: &Path, why: &str) -> IoError {
    IoError::new(
        "open",
        path,
        IoErrorKind::DirectIoRefused,
        format!(
            "the file system does no direct I/O: {why}. Put `log.dirs` on a local disk's \
             file system (ext4 or xfs)"
        ),
    )
}

#[allow(unsafe_code)]
fn is_tmpfs(file: &fs::File) -> io::Result<bool> {
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open, and the structure is written by the call.
    if unsafe { libc::fstatfs(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it filled the structure.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_type == libc::TMPFS_MAGIC)
}

/// `anew`: not from what the system keeps of the file in memory, if that can be had.
fn read_small(path: &Path, len_max: u64, anew: bool) -> Result<Vec<u8>, IoError> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| IoError::from_std("open", path, &e))?;
    let found = file.metadata();
    let found = found.map_err(|e| IoError::from_std("stat", path, &e))?;
    if !found.is_file() {
        return Err(no_regular_file(path));
    }
    if anew {
        forget_cached(&file);
    }
    if found.len() > len_max {
        return Err(IoError::new(
            "read",
            path,
            IoErrorKind::Unusable,
            format!("larger than the {len_max} bytes that such a file may have"),
        ));
    }
    read_whole(&file, found.len() as usize).map_err(|e| IoError::from_std("read", path, &e))
}

/// Reads a file of `len` bytes, which nobody changes: where the first read gives them all,
/// there is no second one to find the end.
fn read_whole(mut file: &fs::File, len: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; len];
    let mut done = 0;
    while done < len {
        match file.read(&mut content[done..]) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    content.truncate(done);
    Ok(content)
}

/// Asks the system to forget what it keeps of a file in memory. It may keep it.
#[allow(unsafe_code)]
fn forget_cached(file: &fs::File) {
    // SAFETY: the descriptor is open for the length of the call, which touches no memory.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn replace_small(path: &Path, tmp: &Path, content: &[u8]) -> Result<(), IoError> {
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(tmp)?;
        file.write_all(content)?;
        file.sync_all()
    };
    write().map_err(|e| IoError::from_std("write", tmp, &e))?;
    fs::rename(tmp, path).map_err(|e| IoError::from_std("rename", tmp, &e))
}

#[allow(unsafe_code)]
fn lock(path: &Path) -> Result<fs::File, IoError> {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .open(path)
        .map_err(|e| IoError::from_std("open", path, &e))?;
    // SAFETY: the descriptor is open for the length of the call.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(file);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EWOULDBLOCK) {
        let mut taken = IoError::new(
            "lock",
            path,
            IoErrorKind::AlreadyExists,
            "another process holds it: a broker is already running on this directory",
        );
        taken.errno = Some(libc::EWOULDBLOCK);
        return Err(taken);
    }
    Err(IoError::from_std("lock", path, &error))
}
