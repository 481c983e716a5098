//! What the machine has: memory, names of hosts, where the process runs. Asked once, at start.

use std::net::{SocketAddr, ToSocketAddrs};
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

/// Blocks the calling thread for so long: for a tool that waits for another program, never on an executor.
pub fn pause(time: std::time::Duration) {
    std::thread::sleep(time);
}

/// A path without the directory that the process runs in. It need not exist.
pub fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// Whether two paths lead to one directory that exists.
pub fn is_same_place(one: &Path, other: &Path) -> bool {
    match (std::fs::canonicalize(one), std::fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
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
    fn addresses_resolve_to_themselves() {
        assert_eq!(
            resolve("127.0.0.1", 9092).unwrap(),
            "127.0.0.1:9092".parse().unwrap()
        );
        assert_eq!(resolve("[::1]", 1).unwrap(), "[::1]:1".parse().unwrap());
        assert!(resolve("", 1).is_err());
    }
}
