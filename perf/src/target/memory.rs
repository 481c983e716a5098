//! Whether the machine has what a run needs, asked before anything starts.

use super::spawn::on_cpus;
use super::Share;
use anyhow::{bail, Context, Result};
use nix::sys::statvfs::statvfs;
use std::fs;
use std::path::{Path, PathBuf};

/// An error says what is too little: room for so many bytes where the share's directory is or will be, memory for its
/// limit, or its CPUs.
pub fn check_room(share: &Share, bytes: u64) -> Result<()> {
    check_disk(&share.dir, bytes)?;
    let meminfo = fs::read_to_string("/proc/meminfo").context("/proc/meminfo can't be read")?;
    check_memory(&meminfo, share.memory)?;
    on_cpus(&share.cpus, || ())
}

fn check_disk(dir: &Path, bytes: u64) -> Result<()> {
    let there = nearest(dir)?;
    let space = statvfs(&there)
        .with_context(|| format!("the free space of {} can't be told", there.display()))?;
    let free = space.blocks_available() as u64 * space.fragment_size() as u64;
    if free < bytes {
        bail!(
            "{} has {} free, {} are needed: name another directory, or run less",
            there.display(),
            gib(free),
            gib(bytes)
        );
    }
    Ok(())
}

/// The directory, or the first one above it that exists.
fn nearest(dir: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(dir)?;
    let mut above = absolute.ancestors();
    let there = above.find(|dir| dir.exists()).context("there is no /")?;
    if !there.is_dir() {
        bail!("{} is not a directory: name another", there.display());
    }
    Ok(there.to_owned())
}

fn check_memory(meminfo: &str, bytes: u64) -> Result<()> {
    let kib = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .context("/proc/meminfo tells no MemAvailable")?;
    let available = kib * 1024;
    if (1..BYTES_MIN).contains(&bytes) {
        bail!(
            "no broker can run in {bytes} bytes of memory: give it at least {BYTES_MIN}, or 0 for no limit"
        );
    }
    if available < bytes {
        bail!(
            "{} of memory are available, the broker is to get {}: give it less, or end other programs",
            gib(available),
            gib(bytes)
        );
    }
    Ok(())
}

/// Of a broker; one with less would be killed by the kernel at its start.
const BYTES_MIN: u64 = 64 << 20;

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       25165824 kB\nMemAvailable:    1048576 kB\n";

    fn share() -> Share {
        Share {
            dir: std::env::temp_dir().join("perf-not-there/below"),
            cpus: vec![0],
            memory: 64 << 20,
        }
    }

    #[test]
    fn a_small_share_has_room() {
        check_room(&share(), 4096).unwrap();
    }

    #[test]
    fn too_little_disk_is_told_with_both_figures() {
        let error = check_room(&share(), 1 << 60).unwrap_err().to_string();
        assert!(
            error.contains("GiB free, 1073741824.0 GiB are needed"),
            "{error}"
        );
    }

    #[test]
    fn a_file_is_no_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = check_disk(&file.path().join("below"), 1).unwrap_err();
        assert!(error.to_string().contains("is not a directory"), "{error}");
    }

    #[test]
    fn too_little_memory_is_told_with_both_figures() {
        check_memory(MEMINFO, 1 << 30).unwrap();
        let error = check_memory(MEMINFO, 4 << 30).unwrap_err().to_string();
        assert_eq!(
            error,
            "1.0 GiB of memory are available, the broker is to get 4.0 GiB: give it less, or end other programs"
        );
        let error = check_memory(MEMINFO, 1).unwrap_err().to_string();
        assert!(error.contains("at least 67108864"), "{error}");
        check_memory(MEMINFO, 0).unwrap();
        assert!(check_memory("MemTotal: 5 kB\n", 1).is_err());
    }

    #[test]
    fn cpus_that_are_not_there_are_named() {
        let share = Share {
            cpus: vec![0, 999],
            ..share()
        };
        let error = check_room(&share, 1).unwrap_err().to_string();
        assert!(error.contains("[0, 999]"), "{error}");
    }
}
