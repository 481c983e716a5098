//! Whether the disk keeps what it says is flushed, as far as can be told without cutting its power.
//!
//! Four states. *honoured*: the device says that it has no cache that forgets. *plausible*: it has one, and a flush takes
//! as long as emptying it must. *not proven*: somebody below decides of whom nothing is known (a host, a network, another
//! device). *suspicious*: a flush is faster than can be, or is switched off on the way.
//!
//! What it cannot know: whether a controller's battery is well, and whether anything below lies in good time.

use std::time::Duration;

use serde_json::json;

use super::disk::DiskSpeed;
use super::mount::Mount;
use super::{shown, Check};

/// What the kernel and the mount say of the way to the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DiskFacts {
    file_system: String,
    /// A mount option that switches flushes off.
    without_barriers: bool,
    /// `write back` or `write through`; none if it is no block device, or does not say.
    write_cache: Option<String>,
    /// Whether the device takes writes that bypass its cache (forced unit access).
    fua: Option<bool>,
    rotational: Option<bool>,
    /// Where the device is in /sys, as `/sys/devices/pci0000:00/.../virtio2/block/vda`.
    device: String,
}

impl DiskFacts {
    pub fn of(mount: &Mount) -> DiskFacts {
        let flag = |name: &str| mount.queue(name).map(|value| value == "1");
        let device = std::fs::canonicalize(format!("/sys/dev/block/{}", mount.device));
        DiskFacts {
            file_system: mount.file_system.clone(),
            without_barriers: mount.has("nobarrier") || mount.has("barrier=0"),
            write_cache: mount.write_cache(),
            fua: flag("fua"),
            rotational: flag("rotational"),
            device: device.map_or(String::new(), |path| path.display().to_string()),
        }
    }

    /// Who decides below, if it is not a disk of this machine.
    fn below(&self) -> Option<&'static str> {
        let is_at = |part: &str| self.device.contains(part);
        match self.file_system.as_str() {
            "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "virtiofs" => {
                return Some("a server or a host keeps the files, and decides")
            }
            "overlay" => return Some("an overlay lies above another file system, which decides"),
            name if name.starts_with("fuse") => {
                return Some("a program keeps the files, and decides")
            }
            _ => {}
        }
        if is_at("/virtio") || is_at("/vbd-") || is_at("/VMBUS:") || is_at("/vmbus") {
            return Some("the disk is virtual: its host decides (cache=unsafe keeps nothing)");
        }
        is_at("/virtual/block/")
            .then_some("the device (loop, mapper, RAID) lies above others, which decide")
    }
}

pub(super) fn check(speed: &DiskSpeed, mount: &Mount) -> Check {
    judged(&DiskFacts::of(mount), speed.write.p50, speed.flush.p50)
}

fn judged(facts: &DiskFacts, write: Duration, flush: Duration) -> Check {
    let is_cached = facts.write_cache.as_deref() == Some("write back");
    let is_through = facts.write_cache.as_deref() == Some("write through");
    let is_rotational = facts.rotational == Some(true);
    let (state, why) = match facts.file_system.as_str() {
        "tmpfs" | "ramfs" => ("suspicious", "it is memory"),
        _ if facts.without_barriers => {
            ("suspicious", "the file system is mounted without barriers")
        }
        _ if is_cached && flush < FLUSH_MIN => (
            "suspicious",
            "the disk says that it has a volatile cache, and none is emptied so fast: either it is protected against power cuts, or flushes are ignored on the way (a virtual disk with cache=unsafe does that)",
        ),
        _ if facts.below().is_some() => ("not proven", facts.below().unwrap_or_default()),
        _ if is_cached && is_rotational && flush < FLUSH_ROTATIONAL_MIN => (
            "suspicious",
            "a platter does not turn so fast: its cache is protected by a battery, or flushes are ignored",
        ),
        _ if is_through => (
            "honoured",
            "the disk says that it has no cache that forgets (power-loss protection, or write through)",
        ),
        _ if is_cached => (
            "plausible",
            "the disk has a volatile cache, and a flush takes as long as emptying it may",
        ),
        _ => ("not proven", "the kernel does not say whether the disk has a cache"),
    };
    let found = format!(
        "flushes {state}: {why} (a write takes {}, its flush {} more)",
        shown(write),
        shown(flush)
    );
    let figures = json!({
        "state": state,
        "write_cache": facts.write_cache,
        "fua": facts.fua,
        "rotational": facts.rotational,
        "device": facts.device,
        "write_p50_us": write.as_micros() as u64,
        "flush_p50_us": flush.as_micros() as u64,
    });
    let mut check = Check::new("durability", found, figures);
    if state == "suspicious" {
        return check.warn(format!("do not count on what is flushed here; {PROOF}"));
    }
    check.advice = Some(PROOF.to_owned());
    check
}

const PROOF: &str = "`highwater drill --cut block` (as root) proves the broker's and the file system's part; the disk's own \
part shows only when its plug is pulled under load";
/// A cache is not emptied into flash faster: either it is protected against power cuts, or flushes are ignored on the way.
const FLUSH_MIN: Duration = Duration::from_micros(40);
/// A platter at 15,000 turns a minute needs 4 ms for one.
const FLUSH_ROTATIONAL_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn the_state_says_what_can_be_told() {
        let disk = |cache: &str| DiskFacts {
            file_system: "ext4".to_owned(),
            write_cache: Some(cache.to_owned()),
            device: "/sys/devices/pci0000:00/0000:00:1d.0/nvme/nvme0/nvme0n1".to_owned(),
            rotational: Some(false),
            ..Default::default()
        };
        let us = Duration::from_micros;
        let state = |facts: &DiskFacts, flush: u64| {
            let check = judged(facts, us(15), us(flush));
            assert!(check.advice.is_some());
            let state = check.figures["state"].as_str().unwrap().to_owned();
            assert_eq!(state == "suspicious", check.verdict == Verdict::Warn);
            state
        };
        assert_eq!(state(&disk("write through"), 3), "honoured");
        assert_eq!(state(&disk("write back"), 900), "plausible");
        assert_eq!(state(&disk("write back"), 39), "suspicious");
        let virtual_disk = DiskFacts {
            device: "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda".to_owned(),
            ..disk("write back")
        };
        assert_eq!(state(&virtual_disk, 10), "suspicious");
        assert_eq!(state(&virtual_disk, 300), "not proven");
        let unknown = DiskFacts {
            write_cache: None,
            ..disk("")
        };
        assert_eq!(state(&unknown, 900), "not proven");
        let platter = DiskFacts {
            rotational: Some(true),
            ..disk("write back")
        };
        assert_eq!(state(&platter, 900), "suspicious");
        assert_eq!(state(&platter, 8000), "plausible");
        let without_barriers = DiskFacts {
            without_barriers: true,
            ..disk("write through")
        };
        assert_eq!(state(&without_barriers, 900), "suspicious");
    }

    #[test]
    fn who_decides_below_is_named() {
        let on = |file_system: &str, device: &str| {
            let facts = DiskFacts {
                file_system: file_system.to_owned(),
                device: device.to_owned(),
                write_cache: Some("write through".to_owned()),
                ..Default::default()
            };
            judged(
                &facts,
                Duration::from_micros(15),
                Duration::from_micros(100),
            )
            .found
        };
        let virtual_disk = on(
            "ext4",
            "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda",
        );
        assert!(
            virtual_disk.contains("not proven: the disk is virtual"),
            "{virtual_disk}"
        );
        assert!(on("ext4", "/sys/devices/virtual/block/loop0").contains("lies above others"));
        assert!(on("nfs4", "").contains("not proven: a server"));
        assert!(on("fuse.sshfs", "").contains("not proven: a program"));
        assert!(on("tmpfs", "").contains("suspicious: it is memory"));
    }
}
