//! The way from a file system down to the disks, as /sys tells it: partitions, mapper, RAID and loop devices, and what
//! each says of its cache.
//!
//! What cannot be read is not there: a device of which nothing is told is of an unknown kind.
//!
//! What it is not: a judge, see `honesty.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::mount::Mount;

/// A block device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Device {
    /// As the kernel calls it: `sda1`, `nvme0n1`, `dm-0`.
    pub name: String,
    pub kind: Kind,
    /// How many devices are above it.
    pub depth: usize,
    /// `write back` or `write through`, as the kernel treats it: it sends flushes only to the former.
    pub write_cache: Option<String>,
    /// What the disk itself has said, where the kernel tells that apart.
    pub own_cache: Option<String>,
    /// Whether it takes writes that bypass its cache (forced unit access).
    pub fua: Option<bool>,
    pub rotational: Option<bool>,
    /// The maker's name for it.
    pub model: Option<String>,
}

/// What a device is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// A disk of this machine, as far as it can tell.
    Disk,
    /// A host or a cloud says that there is a disk.
    Virtual(&'static str),
    /// Another machine or a program has it.
    Remote(&'static str),
    /// It is memory.
    Memory(&'static str),
    /// It passes on to those below.
    Above(&'static str),
    /// It shows a file of another file system, which is named.
    File(String),
    #[default]
    Unknown,
}

impl Device {
    pub fn is_cached(&self) -> bool {
        self.write_cache.as_deref() == Some(WRITE_BACK)
    }

    pub fn is_through(&self) -> bool {
        self.write_cache.as_deref() == Some(WRITE_THROUGH)
    }

    /// Whether the kernel was told to send no flushes to a disk that has a cache.
    pub fn is_overridden(&self) -> bool {
        let own = self.own_cache.as_deref().unwrap_or_default();
        self.is_through() && own.starts_with(WRITE_BACK)
    }

    /// For a person.
    pub fn text(&self) -> String {
        let what = match &self.kind {
            Kind::Disk => self.model.clone().unwrap_or("disk".to_owned()),
            Kind::Virtual(what) | Kind::Remote(what) | Kind::Memory(what) | Kind::Above(what) => {
                (*what).to_owned()
            }
            Kind::File(on) => format!("a file on {on}"),
            Kind::Unknown => "of an unknown kind".to_owned(),
        };
        let rotating = match (&self.kind, self.rotational) {
            (Kind::Disk, Some(true)) => ", rotating",
            _ => "",
        };
        let cache = self.write_cache.as_ref();
        let cache = cache.map_or(String::new(), |cache| format!(", {cache}"));
        format!("{} ({what}{rotating}{cache})", self.name)
    }
}

/// All devices below a mount, the upper ones first; none where the file system is on no block device.
pub(super) fn below(sys: &Path, mountinfo: &str, mount: &Mount) -> Vec<Device> {
    let mut walk = Walk {
        sys,
        mountinfo,
        seen: BTreeSet::new(),
        found: Vec::new(),
    };
    walk.mount(mount, 0);
    let mut found = walk.found;
    found.sort_by_key(|device| device.depth);
    found
}

struct Walk<'a> {
    sys: &'a Path,
    mountinfo: &'a str,
    seen: BTreeSet<PathBuf>,
    found: Vec<Device>,
}

impl Walk<'_> {
    fn mount(&mut self, mount: &Mount, depth: usize) {
        let mut tops = Vec::new();
        if is_plain(&mount.device) {
            tops.push(self.sys.join("dev/block").join(&mount.device));
        }
        if !tops.iter().any(|top| top.exists()) {
            // Btrfs has a number of its own, and names one of its devices.
            let name = mount.source.strip_prefix("/dev/").unwrap_or_default();
            tops = self.of_btrfs(name);
            if is_plain(name) {
                tops.push(self.sys.join("class/block").join(name));
            }
        }
        for top in tops {
            self.device(&top, depth);
        }
    }

    /// The devices of the btrfs that has this one.
    fn of_btrfs(&self, name: &str) -> Vec<PathBuf> {
        if !is_plain(name) {
            return Vec::new();
        }
        let systems = entries(&self.sys.join("fs/btrfs")).into_iter();
        let mut devices = systems.map(|system| system.join("devices"));
        let found = devices.find(|devices| devices.join(name).exists());
        found.map_or(Vec::new(), |devices| entries(&devices))
    }

    fn device(&mut self, path: &Path, depth: usize) {
        let Ok(path) = fs::canonicalize(path) else {
            return;
        };
        // A tree that has no end, or is no device's.
        if depth > DEPTH_MAX || self.found.len() >= DEVICES_MAX || !self.seen.insert(path.clone()) {
            return;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let disk = match path.join("partition").exists() {
            true => path.parent().map(Path::to_owned),
            false => None,
        };
        let mut device = Device {
            name: name.into_owned(),
            depth,
            ..Default::default()
        };
        match &disk {
            // Its queue is its disk's.
            Some(disk) => {
                device.kind = Kind::Above("partition");
                self.found.push(device);
                self.device(disk, depth + 1);
            }
            None => {
                let slaves = entries(&path.join("slaves"));
                let backing = told(&path.join("loop/backing_file"));
                device.kind =
                    self.kind(&path, &device.name, !slaves.is_empty(), backing.as_deref());
                device.take_queue(&path);
                self.found.push(device);
                for slave in slaves {
                    self.device(&slave, depth + 1);
                }
                let file = backing.as_deref().map(Path::new);
                if let Some(mount) = file.and_then(|file| Mount::of(self.mountinfo, file)) {
                    self.mount(&mount, depth + 1);
                }
            }
        }
    }

    fn kind(&self, path: &Path, name: &str, has_slaves: bool, backing: Option<&str>) -> Kind {
        if let Some(file) = backing {
            let mount = Mount::of(self.mountinfo, Path::new(file));
            let on = mount.map_or("an unknown file system".to_owned(), |mount| {
                format!("{} at {}", mount.file_system, mount.point.display())
            });
            return Kind::File(on);
        }
        let named = |prefixes: &[&str]| {
            prefixes.iter().any(|prefix| {
                let number = name.strip_prefix(prefix);
                number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
            })
        };
        if named(&["zram", "ram"]) {
            return Kind::Memory("memory");
        }
        if named(&["nbd", "rbd", "drbd", "etherd"]) {
            return Kind::Remote("network block device");
        }
        if named(&["ublkb"]) {
            return Kind::Remote("a program's block device");
        }
        let text = path.to_string_lossy();
        let is_at = |part: &str| text.contains(part);
        let above = if path.join("dm").exists() || named(&["dm-"]) {
            "device mapper"
        } else if path.join("md").exists() || named(&["md"]) {
            "RAID"
        } else if named(&["bcache"]) {
            "bcache"
        } else {
            "a device above others"
        };
        if has_slaves {
            return Kind::Above(above);
        }
        if is_at("/virtual/block/") {
            return Kind::Unknown;
        }
        let (vendor, model) = maker(path);
        let says = |text: &str| vendor.contains(text) || model.contains(text);
        if is_at("/virtio") {
            Kind::Virtual("virtio disk")
        } else if is_at("/vbd-") {
            Kind::Virtual("Xen disk")
        } else if is_at("/VMBUS:") || is_at("/vmbus") {
            Kind::Virtual("Hyper-V disk")
        } else if says("QEMU") || says("VBOX") {
            Kind::Virtual("emulated disk")
        } else if says("VMware") {
            Kind::Virtual("VMware disk")
        } else if says("Amazon Elastic Block Store")
            || says("nvme_card-pd")
            || says("PersistentDisk")
        {
            Kind::Virtual("cloud's disk")
        } else if is_at("/session") || is_at("/rport-") || is_at("nvme-fabrics") {
            Kind::Remote("disk of a storage network")
        } else {
            Kind::Disk
        }
    }
}

impl Device {
    fn take_queue(&mut self, path: &Path) {
        let flag = |name: &str| match told(&path.join("queue").join(name))?.as_str() {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        };
        self.write_cache = told(&path.join("queue/write_cache"));
        self.fua = flag("fua");
        self.rotational = flag("rotational");
        let scsi = entries(&path.join("device/scsi_disk"));
        let mut places = scsi.iter().map(|disk| disk.join("cache_type"));
        self.own_cache = places.find_map(|place| told(&place));
        let (vendor, model) = maker(path);
        let model = format!("{vendor} {model}").trim().to_owned();
        self.model = Some(model).filter(|model| !model.is_empty());
    }
}

fn maker(path: &Path) -> (String, String) {
    let word = |name: &str| told(&path.join("device").join(name)).unwrap_or_default();
    (word("vendor"), word("model"))
}

/// The first line of a file of /sys, as a person can read it; none if there is none, or nothing in it.
fn told(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().next()?.trim();
    let line: String = line
        .chars()
        .filter(|c| !c.is_control())
        .take(TEXT_MAX)
        .collect();
    (!line.is_empty()).then_some(line)
}

/// What is in a folder, by name; nothing if it is none.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    paths
}

/// Whether a name is one level of a path.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && name != "." && name != ".."
}

const WRITE_BACK: &str = "write back";
const WRITE_THROUGH: &str = "write through";
const DEPTH_MAX: usize = 16;
const DEVICES_MAX: usize = 64;
const TEXT_MAX: usize = 256;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A tree like /sys.
    pub(in crate::cli::doctor) struct Sys(tempfile::TempDir);

    impl Sys {
        pub fn new() -> Sys {
            let dir = env!("CARGO_MANIFEST_DIR").to_owned() + "/target";
            let sys = Sys(tempfile::tempdir_in(dir).unwrap());
            for folder in ["dev/block", "class/block", "fs/btrfs"] {
                fs::create_dir_all(sys.path().join(folder)).unwrap();
            }
            sys
        }

        pub fn path(&self) -> &Path {
            self.0.path()
        }

        /// A device at a place below `devices/`, by its number; its files with their content.
        pub fn device(&self, place: &str, number: &str, files: &[(&str, &str)]) {
            let path = self.path().join("devices").join(place);
            fs::create_dir_all(&path).unwrap();
            for (name, content) in files {
                let file = path.join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, content).unwrap();
            }
            let name = path.file_name().unwrap();
            symlink(&path, self.path().join("dev/block").join(number)).unwrap();
            symlink(&path, self.path().join("class/block").join(name)).unwrap();
        }

        pub fn slave(&self, above: &str, below: &str) {
            let slaves = self.path().join("class/block").join(above).join("slaves");
            fs::create_dir_all(&slaves).unwrap();
            let below = self.path().join("class/block").join(below);
            symlink(
                fs::canonicalize(&below).unwrap(),
                slaves.join(below.file_name().unwrap()),
            )
            .unwrap();
        }

        pub fn below(&self, mountinfo: &str, path: &str) -> Vec<Device> {
            let mount = Mount::of(mountinfo, Path::new(path)).unwrap();
            below(self.path(), mountinfo, &mount)
        }
    }

    pub(in crate::cli::doctor) const SATA: &str =
        "pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda";
    pub(in crate::cli::doctor) const CACHED: &[(&str, &str)] = &[
        ("queue/write_cache", "write back\n"),
        ("queue/fua", "0\n"),
        ("queue/rotational", "1\n"),
        ("device/vendor", "ATA     \n"),
        ("device/model", "ST4000NM0035\n"),
        ("device/scsi_disk/0:0:0:0/cache_type", "write back\n"),
    ];

    fn texts(devices: &[Device]) -> Vec<String> {
        devices.iter().map(Device::text).collect()
    }

    #[test]
    fn a_partition_is_on_its_disk() {
        let sys = Sys::new();
        sys.device(SATA, "8:0", CACHED);
        sys.device(&format!("{SATA}/sda1"), "8:1", &[("partition", "1\n")]);
        let found = sys.below("1 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "/data");
        assert_eq!(
            texts(&found),
            [
                "sda1 (partition)",
                "sda (ATA ST4000NM0035, rotating, write back)"
            ]
        );
        assert_eq!(found[1].own_cache.as_deref(), Some("write back"));
        assert_eq!(
            (found[1].fua, found[1].rotational),
            (Some(false), Some(true))
        );
        assert!(found[1].is_cached() && !found[1].is_overridden());
    }

    #[test]
    fn mapper_and_raid_lead_to_every_disk_once() {
        let sys = Sys::new();
        sys.device(SATA, "8:0", CACHED);
        let other = SATA.replace("ata1", "ata2").replace("sda", "sdb");
        sys.device(&other, "8:16", &[("queue/write_cache", "write through\n")]);
        sys.device("virtual/block/md0", "9:0", &[("md/level", "raid1\n")]);
        sys.device("virtual/block/dm-0", "252:0", &[("dm/name", "lv\n")]);
        sys.slave("md0", "sda");
        sys.slave("md0", "sdb");
        sys.slave("dm-0", "md0");
        // What leads back to itself.
        sys.slave("sdb", "dm-0");
        let found = sys.below("1 1 252:0 / / rw - xfs /dev/mapper/lv rw\n", "/data");
        let names: Vec<(&str, usize)> = found
            .iter()
            .map(|device| (device.name.as_str(), device.depth))
            .collect();
        assert_eq!(names, [("dm-0", 0), ("md0", 1), ("sda", 2), ("sdb", 2)]);
        assert_eq!(found[0].kind, Kind::Above("device mapper"));
        assert_eq!(found[1].kind, Kind::Above("RAID"));
        assert_eq!(found[2].kind, Kind::Disk);
    }

    #[test]
    fn a_loop_device_leads_to_the_disk_of_its_file() {
        let sys = Sys::new();
        let virtio = "pci0000:00/0000:00:02.0/virtio1/block/vda";
        sys.device(virtio, "254:0", &[("queue/write_cache", "write back\n")]);
        let backing = [("loop/backing_file", "/images/disk.img\n")];
        sys.device("virtual/block/loop3", "7:3", &backing);
        let mountinfo =
            "1 1 254:0 / / rw - ext4 /dev/vda rw\n2 1 7:3 / /data rw - ext4 /dev/loop3 rw\n";
        let found = sys.below(mountinfo, "/data/x");
        assert_eq!(
            texts(&found),
            [
                "loop3 (a file on ext4 at /)",
                "vda (virtio disk, write back)"
            ]
        );
        // A file on what is mounted from it does not go round for ever.
        let backing = [("loop/backing_file", "/data/own.img\n")];
        sys.device("virtual/block/loop4", "7:4", &backing);
        let round = "2 1 7:4 / /data rw - ext4 /dev/loop4 rw\n";
        assert_eq!(sys.below(round, "/data").len(), 1);
    }

    #[test]
    fn btrfs_has_all_its_devices() {
        let sys = Sys::new();
        sys.device(SATA, "8:0", CACHED);
        let other = SATA.replace("sda", "sdb");
        sys.device(&other, "8:16", CACHED);
        let devices = sys.path().join("fs/btrfs/some-uuid/devices");
        fs::create_dir_all(&devices).unwrap();
        for name in ["sda", "sdb"] {
            symlink(
                sys.path().join("class/block").join(name),
                devices.join(name),
            )
            .unwrap();
        }
        let found = sys.below("1 1 0:45 / / rw - btrfs /dev/sda rw\n", "/");
        assert_eq!(found.len(), 2);
        // One alone, of which no more is told.
        fs::remove_dir_all(sys.path().join("fs/btrfs")).unwrap();
        let found = sys.below("1 1 0:45 / / rw - btrfs /dev/sdb rw\n", "/");
        assert_eq!(found[0].name, "sdb");
    }

    #[test]
    fn who_has_a_disk_is_told() {
        let kind = |place: &str, files: &[(&str, &str)]| {
            let sys = Sys::new();
            sys.device(place, "1:1", files);
            let mut found = sys.below("1 1 1:1 / / rw - ext4 /dev/x rw\n", "/");
            found.remove(0).kind
        };
        let nvme = "pci0000:00/0000:00:1d.0/0000:01:00.0/nvme/nvme0/nvme0n1";
        assert_eq!(kind(nvme, &[("device/model", "Samsung PM9A3")]), Kind::Disk);
        assert_eq!(
            kind(nvme, &[("device/model", "Amazon Elastic Block Store  ")]),
            Kind::Virtual("cloud's disk")
        );
        assert_eq!(
            kind(
                SATA,
                &[("device/vendor", "QEMU"), ("device/model", "QEMU HARDDISK")]
            ),
            Kind::Virtual("emulated disk")
        );
        assert_eq!(kind("vbd-51712/block/xvda", &[]), Kind::Virtual("Xen disk"));
        assert_eq!(
            kind("platform/host3/session1/target3:0:0/3:0:0:1/block/sdc", &[]),
            Kind::Remote("disk of a storage network")
        );
        assert_eq!(kind("virtual/block/zram0", &[]), Kind::Memory("memory"));
        assert_eq!(
            kind("virtual/block/nbd0", &[]),
            Kind::Remote("network block device")
        );
        assert_eq!(kind("virtual/block/strange", &[]), Kind::Unknown);
    }

    #[test]
    fn garbage_is_nothing() {
        let sys = Sys::new();
        for device in ["0:1", "", "..", "../..", "x/y", "8:0"] {
            let mountinfo = format!("1 1 {device} / / rw - ext4 ../../etc rw\n");
            assert_eq!(sys.below(&mountinfo, "/"), [], "{device}");
        }
        let long = "x".repeat(100_000);
        let files: &[(&str, &str)] = &[
            ("queue/write_cache", "\0\u{7}\n"),
            ("queue/fua", "perhaps\n"),
            ("queue/rotational", ""),
            ("device/model", &long),
            ("loop/backing_file", "\n"),
            ("slaves", "no folder"),
        ];
        sys.device("pci0/block/sdz", "8:0", files);
        let found = sys.below("1 1 8:0 / / rw - ext4 /dev/sdz rw\n", "/");
        assert_eq!(found.len(), 1);
        assert_eq!(
            (
                found[0].write_cache.as_ref(),
                found[0].fua,
                found[0].rotational
            ),
            (None, None, None)
        );
        assert!(found[0].text().len() < 400);
        let path = sys.path().join("class/block/sdz/device/vendor");
        fs::write(path, [0xff, 0xfe]).unwrap();
        sys.below("1 1 8:0 / / rw - ext4 /dev/sdz rw\n", "/");
        // A chain without an end.
        for n in 0..30 {
            sys.device(&format!("virtual/block/dm-{n}"), &format!("252:{n}"), &[]);
            if n > 0 {
                sys.slave(&format!("dm-{}", n - 1), &format!("dm-{n}"));
            }
        }
        let chain = sys.below("1 1 252:0 / / rw - ext4 /dev/dm-0 rw\n", "/");
        assert_eq!(chain.len(), DEPTH_MAX + 1);
    }
}
