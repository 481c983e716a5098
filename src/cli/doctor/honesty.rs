//! Whether the disk keeps what it says is flushed, as far as can be told without cutting its power.
//!
//! Four states. *honoured*: every disk below says that it has no cache that forgets. *plausible*: one has such a cache, and
//! a flush takes as long as emptying it must. *not proven*: somebody below decides of whom nothing is known (a host, a
//! network, a program). *suspicious*: a flush is faster than can be, or is switched off on the way.
//!
//! What it cannot know: whether a controller's battery is well, and whether anything below lies in good time.

use std::path::Path;
use std::time::Duration;

use serde_json::{json, Value};

use super::devices::{below, Device, Kind};
use super::disk::DiskSpeed;
use super::mount::Mount;
use super::{shown, Check};

/// What the kernel and the mount say of the way to the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DiskFacts {
    file_system: String,
    /// A mount option that switches flushes off.
    unflushed_by: Option<String>,
    /// From the one below the file system down to the disks.
    devices: Vec<Device>,
}

impl DiskFacts {
    /// What `sys` (`/sys`) and the mounts of this machine tell of one of them.
    pub fn of(sys: &Path, mountinfo: &str, mount: &Mount) -> DiskFacts {
        DiskFacts {
            file_system: mount.file_system.clone(),
            unflushed_by: mount.unflushed_by().map(str::to_owned),
            devices: below(sys, mountinfo, mount),
        }
    }

    /// What the kernel thinks the device below the file system does with writes: `write back` or `write through`; none
    /// if there is none, or it does not say.
    pub fn write_cache(&self) -> Option<&str> {
        let mut told = self.devices.iter().filter_map(|d| d.write_cache.as_deref());
        told.next()
    }

    /// Those that pass nothing on.
    fn lowest(&self) -> impl Iterator<Item = &Device> {
        let passes_on = |kind: &Kind| matches!(kind, Kind::Above(_) | Kind::File(_));
        self.devices.iter().filter(move |d| !passes_on(&d.kind))
    }

    /// Why no flush can be what it says.
    fn broken(&self) -> Option<String> {
        if matches!(self.file_system.as_str(), "tmpfs" | "ramfs") {
            return Some("it is memory".to_owned());
        }
        if let Some(option) = &self.unflushed_by {
            return Some(format!(
                "the file system is mounted with {option}, so no flush reaches the disk"
            ));
        }
        for device in &self.devices {
            let name = &device.name;
            if matches!(device.kind, Kind::Memory(_)) {
                return Some(format!("{name} is memory"));
            }
            if device.is_overridden() {
                return Some(format!(
                    "{name} has a volatile cache, and the kernel was told to send it no flushes (its queue/write_cache says write through)"
                ));
            }
        }
        // The kernel drops flushes at the first device that says it needs none.
        let stops = self
            .devices
            .iter()
            .find(|d| d.is_through() && matches!(d.kind, Kind::Above(_) | Kind::File(_)))?;
        let cached = self
            .devices
            .iter()
            .find(|d| d.depth > stops.depth && d.is_cached())?;
        Some(format!(
            "{} says that it needs no flushes, and {} below it has a volatile cache",
            stops.name, cached.name
        ))
    }

    /// Who decides below, if it is not a disk of this machine.
    fn decided_by(&self) -> Option<String> {
        match self.file_system.as_str() {
            "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "virtiofs" => {
                return Some("a server or a host keeps the files, and decides".to_owned())
            }
            "overlay" => {
                return Some("an overlay lies above another file system, which decides".to_owned())
            }
            "zfs" | "bcachefs" => {
                return Some(format!(
                    "{} has its own way to its disks, which is not looked at",
                    self.file_system
                ))
            }
            name if name.starts_with("fuse") => {
                return Some("a program keeps the files, and decides".to_owned())
            }
            _ => {}
        }
        let decides = |device: &Device| {
            match &device.kind {
            Kind::Virtual(what) => Some(format!(
                "{} is virtual ({what}): a flush is its host's promise (cache=unsafe keeps nothing)",
                device.name
            )),
            Kind::Remote(what) => Some(format!(
                "{} is a {what}: a flush is the other side's promise",
                device.name
            )),
            Kind::Unknown => Some(format!("what is below {} is not known", device.name)),
            // Its file system is on no block device.
            Kind::File(on) if self.lowest().next().is_none() => {
                Some(format!("{} is a file on {on}, which decides", device.name))
            }
            // None of the devices below could be found.
            Kind::Above(_) if self.lowest().next().is_none() => {
                Some(format!("what is below {} is not known", device.name))
            }
            _ => None,
        }
        };
        self.devices.iter().find_map(decides)
    }
}

pub(super) fn check(facts: &DiskFacts, speed: &DiskSpeed) -> Check {
    judged(facts, speed.write.p50, speed.flush.p50)
}

fn judged(facts: &DiskFacts, write: Duration, flush: Duration) -> Check {
    let (state, why) = state_of(facts, flush);
    let way = levels(&facts.devices);
    let found = format!(
        "flushes {state}: {why}{} (a write takes {}, its flush {} more)",
        if way.is_empty() {
            String::new()
        } else {
            format!("; on {way}")
        },
        shown(write),
        shown(flush)
    );
    let figures = json!({
        "state": state,
        "write_cache": facts.write_cache(),
        "mount_option": facts.unflushed_by,
        "devices": facts.devices.iter().map(device_json).collect::<Vec<_>>(),
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

fn state_of(facts: &DiskFacts, flush: Duration) -> (&'static str, String) {
    if let Some(why) = facts.broken() {
        return ("suspicious", why);
    }
    let cached = || facts.lowest().find(|device| device.is_cached());
    if let Some(device) = cached().filter(|_| flush < FLUSH_MIN) {
        let why = "has a volatile cache, and none is emptied so fast: either it is protected against power cuts, or flushes are ignored on the way (a virtual disk with cache=unsafe does that)";
        return ("suspicious", format!("{} {why}", device.name));
    }
    if let Some(why) = facts.decided_by() {
        return ("not proven", why);
    }
    let rotating = facts.lowest().find(|device| {
        device.kind == Kind::Disk && device.rotational == Some(true) && device.is_cached()
    });
    if let Some(device) = rotating.filter(|_| flush < FLUSH_ROTATIONAL_MIN) {
        let why = "has a platter, which does not turn so fast: its cache is protected by a battery, or flushes are ignored";
        return ("suspicious", format!("{} {why}", device.name));
    }
    if let Some(device) = cached() {
        let why = "has a volatile cache, and a flush takes as long as emptying it may";
        return ("plausible", format!("{} {why}", device.name));
    }
    match facts.lowest().next().is_some() && facts.lowest().all(Device::is_through) {
        true => (
            "honoured",
            "the disk says that it has no cache that forgets (power-loss protection, or write through)"
                .to_owned(),
        ),
        false => (
            "not proven",
            "the kernel does not say whether the disk has a cache".to_owned(),
        ),
    }
}

/// The devices from the top, those of one level side by side.
fn levels(devices: &[Device]) -> String {
    let levels = devices.chunk_by(|a, b| a.depth == b.depth);
    let level = |devices: &[Device]| {
        let texts: Vec<String> = devices.iter().map(Device::text).collect();
        texts.join(" and ")
    };
    levels.map(level).collect::<Vec<_>>().join(" on ")
}

fn device_json(device: &Device) -> Value {
    json!({
        "name": device.name,
        "depth": device.depth,
        "text": device.text(),
        "write_cache": device.write_cache,
        "own_cache": device.own_cache,
        "fua": device.fua,
        "rotational": device.rotational,
    })
}

const PROOF: &str = "`highwater drill --cut block` (as root) proves the broker's and the file system's part; the disk's own \
part shows only when its plug is pulled under load, for which `highwater drill --broker` keeps the ledger on another machine";
/// A cache is not emptied into flash faster: either it is protected against power cuts, or flushes are ignored on the way.
const FLUSH_MIN: Duration = Duration::from_micros(40);
/// A platter at 15,000 turns a minute needs 4 ms for one.
const FLUSH_ROTATIONAL_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::super::devices::tests::{Sys, CACHED, SATA};
    use super::super::Verdict;
    use super::*;

    fn device(name: &str, kind: Kind, depth: usize, cache: &str) -> Device {
        Device {
            name: name.to_owned(),
            kind,
            depth,
            write_cache: Some(cache.to_owned()).filter(|cache| !cache.is_empty()),
            rotational: Some(false),
            ..Default::default()
        }
    }

    fn on(file_system: &str, devices: &[Device]) -> DiskFacts {
        DiskFacts {
            file_system: file_system.to_owned(),
            unflushed_by: None,
            devices: devices.to_vec(),
        }
    }

    fn check_of(facts: &DiskFacts, flush_us: u64) -> Check {
        let us = Duration::from_micros;
        let check = judged(facts, us(15), us(flush_us));
        assert!(check.advice.is_some());
        let is_suspicious = check.figures["state"] == "suspicious";
        assert_eq!(is_suspicious, check.verdict == Verdict::Warn);
        check
    }

    fn state(facts: &DiskFacts, flush_us: u64) -> String {
        let check = check_of(facts, flush_us);
        check.figures["state"].as_str().unwrap().to_owned()
    }

    const BACK: &str = "write back";
    const THROUGH: &str = "write through";

    #[test]
    fn the_state_says_what_can_be_told() {
        let disk = |cache: &str| on("ext4", &[device("nvme0n1", Kind::Disk, 0, cache)]);
        assert_eq!(state(&disk(THROUGH), 3), "honoured");
        assert_eq!(state(&disk(BACK), 900), "plausible");
        assert_eq!(state(&disk(BACK), 39), "suspicious");
        assert_eq!(state(&disk(""), 900), "not proven");
        assert_eq!(state(&on("ext4", &[]), 900), "not proven");
        let virtual_disk = on(
            "ext4",
            &[device("vda", Kind::Virtual("virtio disk"), 0, BACK)],
        );
        assert_eq!(state(&virtual_disk, 10), "suspicious");
        assert_eq!(state(&virtual_disk, 300), "not proven");
        let mut platter = disk(BACK);
        platter.devices[0].rotational = Some(true);
        assert_eq!(state(&platter, 900), "suspicious");
        assert_eq!(state(&platter, 8000), "plausible");
        let without_barriers = DiskFacts {
            unflushed_by: Some("nobarrier".to_owned()),
            ..disk(THROUGH)
        };
        assert_eq!(state(&without_barriers, 900), "suspicious");
        let mut overridden = disk(THROUGH);
        overridden.devices[0].own_cache = Some("write back, no read (daft)".to_owned());
        let found = check_of(&overridden, 900).found;
        assert!(
            found.contains("suspicious: nvme0n1 has a volatile cache, and the kernel was told"),
            "{found}"
        );
    }

    #[test]
    fn every_disk_below_counts() {
        let pair = |first: &str, second: &str| {
            let above = Kind::Above("RAID");
            on(
                "xfs",
                &[
                    device("md0", above, 0, BACK),
                    device("sda", Kind::Disk, 1, first),
                    device("sdb", Kind::Disk, 1, second),
                ],
            )
        };
        assert_eq!(state(&pair(THROUGH, THROUGH), 900), "honoured");
        assert_eq!(state(&pair(THROUGH, BACK), 900), "plausible");
        assert_eq!(state(&pair(THROUGH, BACK), 20), "suspicious");
        assert_eq!(state(&pair(THROUGH, ""), 900), "not proven");
        let found = check_of(&pair(THROUGH, BACK), 900).found;
        assert!(
            found.contains(
                "sdb has a volatile cache, and a flush takes as long as emptying it may; on md0 (RAID, write back) on sda (disk, write through) and sdb (disk, write back) ("
            ),
            "{found}"
        );
        // One that passes no flushes on.
        let mut deaf = pair(THROUGH, BACK);
        deaf.devices[0].write_cache = Some(THROUGH.to_owned());
        let found = check_of(&deaf, 900).found;
        assert!(
            found.contains("suspicious: md0 says that it needs no flushes, and sdb below it"),
            "{found}"
        );
        deaf.devices[2].write_cache = Some(THROUGH.to_owned());
        assert_eq!(state(&deaf, 900), "honoured");
    }

    #[test]
    fn who_decides_below_is_named() {
        let found =
            |file_system: &str, devices: &[Device]| check_of(&on(file_system, devices), 100).found;
        let virtual_disk = [
            device("vda1", Kind::Above("partition"), 0, ""),
            device("vda", Kind::Virtual("virtio disk"), 1, THROUGH),
        ];
        assert!(found("ext4", &virtual_disk)
            .contains("not proven: vda is virtual (virtio disk): a flush is its host's promise"));
        let remote = [device(
            "nbd0",
            Kind::Remote("network block device"),
            0,
            THROUGH,
        )];
        assert!(found("ext4", &remote).contains("nbd0 is a network block device"));
        let alone = [device("dm-0", Kind::Above("device mapper"), 0, THROUGH)];
        assert!(found("ext4", &alone).contains("not proven: what is below dm-0 is not known"));
        let file = Kind::File("fuse.nbdfuse at /mnt".to_owned());
        let on_fuse = [device("loop0", file, 0, BACK)];
        assert!(found("ext4", &on_fuse)
            .contains("not proven: loop0 is a file on fuse.nbdfuse at /mnt, which decides"));
        let memory = [device("zram0", Kind::Memory("memory"), 0, BACK)];
        assert!(found("ext4", &memory).contains("suspicious: zram0 is memory"));
        assert!(found("nfs4", &[]).contains("not proven: a server"));
        assert!(found("fuse.sshfs", &[]).contains("not proven: a program"));
        assert!(found("zfs", &[]).contains("not proven: zfs has its own way"));
        assert!(found("tmpfs", &[]).contains("suspicious: it is memory"));
    }

    #[test]
    fn the_facts_are_taken_from_the_mount_and_the_devices() {
        let sys = Sys::new();
        sys.device(SATA, "8:0", CACHED);
        sys.device(&format!("{SATA}/sda1"), "8:1", &[("partition", "1\n")]);
        let facts = |options: &str| {
            let text = format!("1 1 8:1 / /data rw - xfs /dev/sda1 {options}\n");
            let mount = Mount::of(&text, Path::new("/data/highwater")).unwrap();
            DiskFacts::of(sys.path(), &text, &mount)
        };
        assert_eq!(facts("rw").write_cache(), Some(BACK));
        assert_eq!(state(&facts("rw"), 9000), "plausible");
        assert_eq!(state(&facts("rw"), 900), "suspicious", "it has a platter");
        assert_eq!(state(&facts("rw,nobarrier"), 9000), "suspicious");
    }
}
