//! Files to measure on, removed when they are dropped.

use crate::floor::ring::{direct_alignment, Buffer, ALIGNMENT};
use anyhow::{bail, ensure, Context, Result};
use nix::libc::O_DIRECT;
use nix::sys::statvfs::statvfs;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes at once where a file is filled beforehand, bytes.
const FILL_BYTES: usize = 1 << 20;
/// Files that are written together, at most.
pub const FILES_MAX: usize = 16;
/// Of the disk that stay free.
const SPARE_BYTES: u64 = 256 << 20;

/// A directory of its own.
pub struct Scratch {
    dir: PathBuf,
    alignment: usize,
    quick: bool,
}

impl Scratch {
    /// Makes the directory below `parent`, and sees that direct I/O works there and there is room.
    pub fn make(parent: &Path, quick: bool) -> Result<Scratch> {
        ensure!(
            parent.is_dir(),
            "--dir {} is no directory: make it, or name another",
            parent.display()
        );
        let dir = parent.join(format!("perf-floor-{}", std::process::id()));
        fs::create_dir(&dir)
            .with_context(|| format!("--dir {} can't be written to", parent.display()))?;
        let mut scratch = Scratch {
            dir,
            alignment: ALIGNMENT,
            quick,
        };
        scratch.alignment = scratch.check()?;
        Ok(scratch)
    }

    fn check(&self) -> Result<usize> {
        let probe = self.open("probe").with_context(|| {
            format!(
                "{} takes no direct I/O (O_DIRECT), as in tmpfs: name a directory on a disk with --dir",
                self.dir.display()
            )
        })?;
        let alignment = direct_alignment(&probe);
        if alignment > ALIGNMENT {
            bail!("direct I/O here is aligned to {alignment} bytes, and at most {ALIGNMENT} are written at once: name another --dir");
        }
        let block = Buffer::new(ALIGNMENT)?;
        probe
            .write_all_at(&block, 0)
            .with_context(|| format!("a direct write to {} fails", self.dir.display()))?;
        let needed = self.file_bytes() * FILES_MAX as u64 + self.read_bytes() + SPARE_BYTES;
        let space = statvfs(&self.dir).context("the free space can't be told")?;
        let free = space.blocks_available() as u64 * space.fragment_size() as u64;
        ensure!(
            free >= needed,
            "{} has {} MiB free and {} MiB are needed: free some, or name another --dir",
            self.dir.display(),
            free >> 20,
            needed >> 20
        );
        Ok(alignment)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Of each file that is written.
    pub fn file_bytes(&self) -> u64 {
        if self.quick {
            16 << 20
        } else {
            64 << 20
        }
    }

    /// Of the file that is read.
    pub fn read_bytes(&self) -> u64 {
        if self.quick {
            128 << 20
        } else {
            512 << 20
        }
    }

    /// A file for direct I/O, made if it is not there.
    pub fn open(&self, name: &str) -> Result<File> {
        let path = self.dir.join(name);
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .custom_flags(O_DIRECT)
            .open(&path)
            .with_context(|| format!("{} can't be opened", path.display()))
    }

    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.dir.join(name);
        fs::remove_file(&path).with_context(|| format!("{} can't be removed", path.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("{} can't be removed: {error}", self.dir.display());
        }
    }
}

/// Writes each block once, and flushes: so that a later write is an overwrite, and a read finds data on the disk.
pub fn fill(file: &File, bytes: u64) -> Result<()> {
    let mut buffer = Buffer::new(FILL_BYTES)?;
    for (n, byte) in buffer.iter_mut().enumerate() {
        // No block of zeros, which a device may keep as nothing.
        *byte = (n % 251) as u8;
    }
    for at in (0..bytes).step_by(FILL_BYTES) {
        file.write_all_at(&buffer, at)
            .context("a file can't be filled")?;
    }
    file.sync_all().context("a file can't be flushed")
}
