//! What the system allows this process: limits, and space on a file system. For tools.

use crate::runtime::Space;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A limit of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimit {
    /// What is in force; `None`: no limit.
    pub soft: Option<u64>,
    /// What the process may raise it to; `None`: no limit.
    pub hard: Option<u64>,
}

/// RLIMIT_MEMLOCK, bytes.
pub fn memlock_limit() -> io::Result<ProcessLimit> {
    process_limit(libc::RLIMIT_MEMLOCK)
}

/// RLIMIT_NOFILE.
pub fn nofile_limit() -> io::Result<ProcessLimit> {
    process_limit(libc::RLIMIT_NOFILE)
}

#[allow(unsafe_code)]
fn process_limit(resource: libc::__rlimit_resource_t) -> io::Result<ProcessLimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure outlives the call.
    if unsafe { libc::getrlimit(resource, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let finite = |value| (value != libc::RLIM_INFINITY).then_some(value);
    Ok(ProcessLimit {
        soft: finite(limit.rlim_cur),
        hard: finite(limit.rlim_max),
    })
}

/// The space of the file system that `path` lies on.
#[allow(unsafe_code)]
pub fn space(path: &Path) -> io::Result<Space> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a statvfs of zeros is a value of its type.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the string ends in zero, and both outlive the call.
    if unsafe { libc::statvfs(path.as_ptr(), &mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Space {
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        usable_bytes: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_space_are_told() {
        let files = nofile_limit().unwrap();
        assert!(files.soft.is_none_or(|soft| soft > 0));
        assert!(memlock_limit().is_ok());
        let here = space(Path::new(".")).unwrap();
        assert!(here.total_bytes > 0 && here.usable_bytes <= here.total_bytes);
        assert!(space(Path::new("/no/such/path")).is_err());
    }
}
