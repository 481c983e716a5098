//! What can go wrong with a file or a socket.

use std::path::{Path, PathBuf};

/// An I/O error that says what was being done, and to what.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{op} {target}: {detail}")]
pub struct IoError {
    /// What was attempted: `open`, `write`, `fdatasync`, ...
    pub op: &'static str,
    /// The file, directory or address.
    pub target: String,
    /// What the caller can decide on.
    pub kind: IoErrorKind,
    /// The system's error number, where there is one.
    pub errno: Option<i32>,
    /// The sentence for a person.
    pub detail: String,
}

/// The kinds of error that callers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// No such file or directory.
    NotFound,
    /// The file, or the listening address, is taken.
    AlreadyExists,
    /// No space, or over quota: ENOSPC, EDQUOT.
    NoSpace,
    /// Fewer bytes were written than given.
    ShortWrite,
    /// The device failed, or the file system did over it: EIO and its kind, EROFS.
    Device,
    /// The file system refuses direct I/O.
    DirectIoRefused,
    /// EMFILE, ENFILE.
    TooManyFiles,
    /// EACCES, EPERM.
    Denied,
    /// What has the name is no regular file, or is larger than such a file may be.
    Unusable,
    /// The peer closed, reset, or the socket was shut down on our side.
    Disconnected,
    /// Anything else.
    Other,
}

impl IoError {
    /// Builds an error from a system error number.
    pub fn from_errno(op: &'static str, target: impl Into<String>, errno: i32) -> IoError {
        IoError {
            op,
            target: target.into(),
            kind: match IoErrorKind::from_errno(errno) {
                // Whatever the reason, nobody knows what has reached the disk.
                IoErrorKind::Other if SYNC_OPS.contains(&op) => IoErrorKind::Device,
                kind => kind,
            },
            errno: Some(errno),
            detail: std::io::Error::from_raw_os_error(errno).to_string(),
        }
    }

    /// Builds an error from std's, keeping its number.
    pub fn from_std(op: &'static str, path: &Path, error: &std::io::Error) -> IoError {
        match error.raw_os_error() {
            Some(errno) => IoError::from_errno(op, path.display().to_string(), errno),
            None => IoError {
                op,
                target: path.display().to_string(),
                kind: match error.kind() {
                    std::io::ErrorKind::NotFound => IoErrorKind::NotFound,
                    std::io::ErrorKind::AlreadyExists => IoErrorKind::AlreadyExists,
                    std::io::ErrorKind::UnexpectedEof => IoErrorKind::Disconnected,
                    _ => IoErrorKind::Other,
                },
                errno: None,
                detail: error.to_string(),
            },
        }
    }

    /// Builds an error that has no system error number.
    pub fn new(
        op: &'static str,
        path: impl Into<PathBuf>,
        kind: IoErrorKind,
        detail: impl Into<String>,
    ) -> IoError {
        IoError {
            op,
            target: path.into().display().to_string(),
            kind,
            errno: None,
            detail: detail.into(),
        }
    }
}

impl IoError {
    /// Whether the file system, or a quota, is full.
    pub fn is_no_space(&self) -> bool {
        self.kind == IoErrorKind::NoSpace
    }
}

impl IoErrorKind {
    /// Sorts a system error number.
    pub fn from_errno(errno: i32) -> IoErrorKind {
        match errno {
            libc::ENOENT => IoErrorKind::NotFound,
            libc::EEXIST | libc::EADDRINUSE => IoErrorKind::AlreadyExists,
            libc::ENOSPC | libc::EDQUOT => IoErrorKind::NoSpace,
            libc::EIO | libc::ENXIO | libc::EREMOTEIO => IoErrorKind::Device,
            // A medium, a link, a reservation, a timeout or a checksum of the block layer; a file
            // system that found itself damaged, or that the kernel has made read-only because its
            // device failed.
            libc::ENODATA
            | libc::ETIMEDOUT
            | libc::ETIME
            | libc::EBADE
            | libc::ENOLINK
            | libc::EILSEQ
            | libc::ENODEV
            | libc::EUCLEAN
            | libc::EBADMSG
            | libc::EROFS => IoErrorKind::Device,
            libc::EMFILE | libc::ENFILE => IoErrorKind::TooManyFiles,
            libc::EISDIR | libc::ELOOP => IoErrorKind::Unusable,
            libc::EACCES | libc::EPERM => IoErrorKind::Denied,
            libc::ECONNRESET
            | libc::EPIPE
            | libc::ENOTCONN
            | libc::ECONNABORTED
            | libc::ESHUTDOWN => IoErrorKind::Disconnected,
            _ => IoErrorKind::Other,
        }
    }
}

/// The operations that make something durable.
const SYNC_OPS: [&str; 3] = ["fdatasync", "fsync", "sync directory"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_a_full_quota_and_a_failed_device_are_told_apart() {
        for errno in [libc::ENOSPC, libc::EDQUOT] {
            assert_eq!(IoErrorKind::from_errno(errno), IoErrorKind::NoSpace);
        }
        for errno in [libc::EIO, libc::EROFS, libc::EUCLEAN, libc::ENODATA] {
            assert_eq!(IoErrorKind::from_errno(errno), IoErrorKind::Device);
        }
        assert_eq!(IoErrorKind::from_errno(libc::EACCES), IoErrorKind::Denied);
    }
}
