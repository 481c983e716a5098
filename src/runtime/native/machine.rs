//! What the machine has and allows: memory, limits, space, names of hosts, where the process runs. Asked once, at start, and by tools.

use std::ffi::CString;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Memory that this process may use, bytes: the machine's, or the cgroup's limit if
/// that is lower.
pub fn ram_bytes() -> u64 {
    let machine = meminfo_total().unwrap_or(RAM_UNKNOWN_BYTES);
    match cgroup_limit() {
        Some(limit) => limit.min(machine),
        None => machine,
    }
}

/// The first address of a host name. Blocks: for the start only.
pub fn resolve(host: &str, port: u16) -> std::io::Result<SocketAddr> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (host, port)
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotFound, "no address"))
}

/// A path without the directory that the process runs in. It need not exist.
pub fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

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

/// The space of a file system, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// In all.
    pub total: u64,
    /// What a process without privileges may still take.
    pub free: u64,
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
        total: found.f_blocks.saturating_mul(found.f_frsize),
        free: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

fn meminfo_total() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The memory limit of the control group (v2). None for "max", or without one.
fn cgroup_limit() -> Option<u64> {
    let group = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = group.lines().find_map(|line| line.strip_prefix("0::"))?;
    let limit = std::fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.max")).ok()?;
    limit.trim().parse().ok()
}

/// Assumed where the system does not tell.
const RAM_UNKNOWN_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        assert!(ram_bytes() > 64 << 20);
    }

    #[test]
    fn limits_and_space_are_told() {
        let files = nofile_limit().unwrap();
        assert!(files.soft.is_none_or(|soft| soft > 0));
        assert!(memlock_limit().is_ok());
        let here = space(Path::new(".")).unwrap();
        assert!(here.total > 0 && here.free <= here.total);
        assert!(space(Path::new("/no/such/path")).is_err());
    }

    #[test]
    fn addresses_resolve_to_themselves() {
        assert_eq!(
            resolve("127.0.0.1", 9092).unwrap(),
            "127.0.0.1:9092".parse().unwrap()
        );
        assert_eq!(resolve("[::1]", 1).unwrap(), "[::1]:1".parse().unwrap());
        assert!(resolve("", 1).is_err());
    }
}
