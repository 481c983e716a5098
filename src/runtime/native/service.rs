//! What the service manager is told: sd_notify's protocol, one datagram for each message to the socket that
//! `NOTIFY_SOCKET` names (systemd's `Type=notify`, podman's `--sdnotify=container`).
//!
//! Sending never waits. The address is resolved anew for each message, since a manager may have been replaced.
//!
//! What it is not: it does not decide what is told, or when (`server/service.rs` does).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// The manager that started this process, if there is one. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ServiceManager {
    socket: Option<Arc<(UnixDatagram, SocketAddr)>>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// By `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`; nobody, where the first is not set.
    ///
    /// # Errors
    /// `NOTIFY_SOCKET` is not the address of a socket, or no socket can be made.
    pub fn from_environment() -> io::Result<ServiceManager> {
        match std::env::var_os("NOTIFY_SOCKET") {
            Some(address) if !address.is_empty() => {
                let variable = |name| std::env::var(name).ok();
                let (period, pid) = (variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
                let watchdog = watchdog(period.as_deref(), pid.as_deref(), std::process::id());
                ServiceManager::at(&address, watchdog)
            }
            _ => Ok(ServiceManager::default()),
        }
    }

    fn at(address: &OsStr, watchdog: Option<Duration>) -> io::Result<ServiceManager> {
        let address = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(ServiceManager {
            socket: Some(Arc::new((socket, address))),
            watchdog,
        })
    }

    /// Whether anybody listens.
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// How long the manager goes without `WATCHDOG=1` before it takes the process for dead; `None`: for ever.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Sends one message: lines of `NAME=VALUE`. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` while the manager's queue is full; anything else if it is gone.
    pub fn tell(&self, message: &str) -> io::Result<()> {
        match self.socket.as_deref() {
            Some((socket, address)) => socket.send_to_addr(message.as_bytes(), address).map(|_| ()),
            None => Ok(()),
        }
    }
}

/// What `WATCHDOG_USEC` asks for, unless it is meant for another process.
fn watchdog(period: Option<&str>, pid: Option<&str>, me: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(me)) {
        return None;
    }
    let micros: u64 = period?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buf = [0; 512];
        let len = socket.recv(&mut buf).expect("a message");
        String::from_utf8(buf[..len].to_vec()).expect("text")
    }

    #[test]
    fn messages_reach_a_socket_by_path_and_by_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::at(path.as_os_str(), None).unwrap();
        manager.tell("READY=1\nSTATUS=serving").unwrap();
        assert_eq!(received(&by_path), "READY=1\nSTATUS=serving");

        let name = format!("highwater-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        let manager = ServiceManager::at(OsStr::new(&format!("@{name}")), None).unwrap();
        manager.tell("STOPPING=1").unwrap();
        assert_eq!(received(&by_name), "STOPPING=1");
    }

    #[test]
    fn a_manager_that_does_not_read_is_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let _deaf = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::at(path.as_os_str(), None).unwrap();
        let refused = (0..100_000).find_map(|_| manager.tell("WATCHDOG=1").err());
        let refused = refused.expect("the queue has an end").kind();
        assert_eq!(refused, io::ErrorKind::WouldBlock);
    }

    #[test]
    fn nobody_is_told_without_error() {
        let nobody = ServiceManager::default();
        assert!(!nobody.is_there());
        nobody.tell("READY=1").unwrap();
    }

    #[test]
    fn a_watchdog_is_for_the_process_that_it_names() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(Some("1000000"), Some("7"), 7), second);
        assert_eq!(watchdog(Some("1000000"), None, 7), second);
        assert_eq!(watchdog(Some("1000000"), Some("8"), 7), None);
        assert_eq!(watchdog(Some("0"), None, 7), None);
        assert_eq!(watchdog(Some("soon"), None, 7), None);
        assert_eq!(watchdog(None, Some("7"), 7), None);
    }
}
