//! Empties the page cache of a directory's files, so that what is read next comes from the disk.
//!
//! A disk's own cache, or a hypervisor's, is out of reach.

use anyhow::{bail, Context, Result};
use nix::fcntl::{posix_fadvise, PosixFadviseAdvice};
use nix::unistd::syncfs;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evicted {
    pub files: u64,
    /// Of all files.
    pub bytes: u64,
    /// Bytes that are still in the page cache; `None` without util-linux's `fincore`, which tells it.
    pub left_bytes: Option<u64>,
}

/// Flushes a directory's file system and has the kernel forget the pages of every file below the directory.
///
/// If many stay the whole page cache is dropped, which only root may; an error if more than 1 % of the bytes stay
/// after that. Call it when the broker has stopped: pages that a process has mapped stay.
pub fn evict(dir: &Path) -> Result<Evicted> {
    let files = files_below(dir)?;
    // Dirty pages are not forgotten. All at once: a call for each of thousands of files would take a minute.
    syncfs(File::open(dir)?).with_context(|| format!("{} can't be flushed", dir.display()))?;
    let mut bytes = 0;
    for path in &files {
        let evicted = evict_file(path);
        bytes += evicted.with_context(|| format!("{} can't be evicted", path.display()))?;
    }
    let mut left_bytes = cached_bytes(&files)?;
    if left_bytes.is_some_and(|left| left > bytes / 100) {
        fs::write("/proc/sys/vm/drop_caches", "1")
            .context("pages stay in the page cache, and only root may drop it: run this as root")?;
        left_bytes = cached_bytes(&files)?;
    }
    match left_bytes {
        Some(left) if left > bytes / 100 => bail!(
            "{left} of {bytes} bytes in {} stay in the page cache: is it used by another process?",
            dir.display()
        ),
        _ => Ok(Evicted {
            files: files.len() as u64,
            bytes,
            left_bytes,
        }),
    }
}

/// Its size.
fn evict_file(path: &Path) -> Result<u64> {
    let file = File::open(path)?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(file.metadata()?.len())
}

/// Links are not followed.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let entries =
            fs::read_dir(&dir).with_context(|| format!("{} can't be read", dir.display()))?;
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    Ok(files)
}

/// Bytes of these files in the page cache, as `fincore` tells them.
fn cached_bytes(files: &[PathBuf]) -> Result<Option<u64>> {
    /// Of one command, whose arguments have a limit.
    const FILES_MAX: usize = 500;
    let mut total = 0;
    for some in files.chunks(FILES_MAX) {
        let told = Command::new("fincore")
            .args(["--bytes", "--raw", "--noheadings", "--output", "RES", "--"])
            .args(some)
            .stdin(Stdio::null())
            .output();
        let told = match told {
            Ok(told) => told,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("fincore can't be run"),
        };
        if !told.status.success() {
            let why = String::from_utf8_lossy(&told.stderr).trim().to_owned();
            bail!("fincore failed: {why}");
        }
        total += sum_of_lines(&String::from_utf8_lossy(&told.stdout))?;
    }
    Ok(Some(total))
}

fn sum_of_lines(text: &str) -> Result<u64> {
    text.lines()
        .map(|line| {
            let bytes: Result<u64, _> = line.trim().parse();
            bytes.with_context(|| format!("fincore says {line:?}, not a number of bytes"))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::super::fake::beside_the_tests;
    use super::*;

    #[test]
    fn pages_of_files_in_all_directories_are_gone() {
        // Not in /tmp, which may be memory.
        let dir = tempfile::tempdir_in(beside_the_tests()).unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        let files = [dir.path().join("a"), dir.path().join("below/b")];
        for file in &files {
            fs::write(file, vec![1; 1 << 20]).unwrap();
        }
        let before = cached_bytes(&files).unwrap();
        assert!(before.is_none_or(|bytes| bytes > 0), "{before:?}");
        let evicted = evict(dir.path()).unwrap();
        assert_eq!((evicted.files, evicted.bytes), (2, 2 << 20));
        assert_eq!(evicted.left_bytes.is_some(), before.is_some());
        assert_eq!(evicted.left_bytes.unwrap_or(0), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let error = evict(Path::new("/no/such/dir")).unwrap_err();
        assert_eq!(error.to_string(), "/no/such/dir can't be read");
    }

    #[test]
    fn lines_that_are_no_numbers_are_an_error() {
        assert_eq!(sum_of_lines("4096\n 0\n8192\n").unwrap(), 12288);
        assert_eq!(sum_of_lines("").unwrap(), 0);
        assert!(sum_of_lines("4096\n4K\n").is_err());
    }
}
