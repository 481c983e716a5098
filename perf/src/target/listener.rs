//! Whose process listens on an address.

use anyhow::{bail, Context, Result};
use std::collections::HashSet;
use std::fs;
use std::net::ToSocketAddrs;

/// The process that listens on a broker's address, if this user may see it.
pub fn listener_owner(broker: &str) -> Result<u32> {
    let addr = broker
        .to_socket_addrs()
        .with_context(|| format!("{broker} is no address"))?
        .next()
        .with_context(|| format!("{broker} is no address"))?;
    let inodes = listening_inodes(addr.port());
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process that ended meanwhile, or another user's.
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        if holds_one(descriptors, &inodes) {
            return Ok(pid);
        }
    }
    bail!("no process that listens on {broker} can be seen here: name the broker's with --pid")
}

/// Whether a process listens on a port; that another one does is not mistaken for it.
pub fn listens(pid: u32, port: u16) -> bool {
    let inodes = listening_inodes(port);
    // It may have ended.
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    !inodes.is_empty() && descriptors.is_ok_and(|descriptors| holds_one(descriptors, &inodes))
}

fn holds_one(descriptors: fs::ReadDir, inodes: &HashSet<String>) -> bool {
    let mut targets = descriptors
        .flatten()
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    targets.any(|target| {
        let inode = target
            .to_str()
            .and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(inode))
    })
}

/// The inodes of sockets that listen on a port.
fn listening_inodes(port: u16) -> HashSet<String> {
    // Without IPv6 the second is not there.
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let tables = tables.iter().flatten();
    tables.flat_map(|table| inodes_of(table, port)).collect()
}

/// In a table of the kernel's.
fn inodes_of(table: &str, port: u16) -> HashSet<String> {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    let lines = table.lines().skip(1);
    let inodes = lines.filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[..] {
            [_, local, _, LISTEN, _, _, _, _, _, inode, ..] if local.ends_with(&port) => {
                Some(inode.to_owned())
            }
            _ => None,
        }
    });
    inodes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn listeners_are_told_from_connections_and_other_ports() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0
   1: 0100007F:2384 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0 100 0 0 10 0
   2: 0100007F:2385 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0 0 10 0
   3: short
";
        assert_eq!(inodes_of(table, 9092), HashSet::from(["111".to_owned()]));
        assert_eq!(inodes_of("", 9092), HashSet::new());
    }

    #[test]
    fn this_process_owns_its_listener_and_no_other_does() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let addr = format!("127.0.0.1:{port}");
        assert_eq!(listener_owner(&addr).unwrap(), std::process::id());
        assert!(listens(std::process::id(), port));
        assert!(!listens(1, port) && !listens(u32::MAX, port));
        assert!(listener_owner("nothing").is_err());
    }
}
