//! A partition's files, as a fault leaves them.

#![allow(dead_code)] // Each test crate uses a part of it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The segments of a partition with that extension, oldest first.
pub fn files_of(data_dir: &Path, partition: &str, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(data_dir.join(partition))
        .expect("the partition has a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files
}

/// The active segment.
pub fn active_log(data_dir: &Path, partition: &str) -> PathBuf {
    files_of(data_dir, partition, "log")
        .pop()
        .expect("a partition has a segment")
}

/// Where the last whole batch of a segment ends.
pub fn end_of_batches(path: &Path) -> u64 {
    let bytes = std::fs::read(path).expect("the segment can be read");
    let mut position = 0;
    while let Some(header) = bytes.get(position..position + 12) {
        let length = i32::from_be_bytes(header[8..12].try_into().expect("four bytes"));
        let end = position + 12 + length.max(0) as usize;
        if length < 49 || end > bytes.len() {
            break;
        }
        position = end;
    }
    position as u64
}

/// Writes bytes into a file and proves that they are there.
pub fn scribble(path: &Path, position: u64, bytes: &[u8]) {
    let file = open(path);
    file.write_all_at(bytes, position)
        .expect("the file can be written");
    file.sync_all().expect("the file can be synced");
    let mut back = vec![0; bytes.len()];
    file.read_exact_at(&mut back, position)
        .expect("it can be read back");
    assert_eq!(back, bytes, "the fault happened");
}

/// Sets a file's length.
pub fn set_len(path: &Path, len: u64) {
    open(path).set_len(len).expect("the length can be set");
    assert_eq!(len_of(path), len, "the fault happened");
}

pub fn len_of(path: &Path) -> u64 {
    std::fs::metadata(path).expect("the file is there").len()
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("the file can be opened")
}
