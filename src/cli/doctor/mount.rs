//! What a path is mounted on, as `/proc/self/mountinfo` tells, and what the kernel knows of the device below.

use std::path::{Path, PathBuf};

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub point: PathBuf,
    pub file_system: String,
    /// The device, or what stands for one.
    pub source: String,
    /// Options of the mount and of the file system.
    pub options: Vec<String>,
    /// Major and minor number, `8:1`.
    pub device: String,
}

impl Mount {
    /// The mount that a path (absolute, without links) lies on.
    pub fn of(mountinfo: &str, path: &Path) -> Option<Mount> {
        let mounts = mountinfo.lines().filter_map(Mount::parse);
        // Of equal points the last one is on top.
        mounts
            .filter(|mount| path.starts_with(&mount.point))
            .max_by_key(|mount| mount.point.as_os_str().len())
    }

    /// `36 35 98:0 /root /point rw,noatime shared:1 - ext3 /dev/root rw,errors=continue`
    fn parse(line: &str) -> Option<Mount> {
        let (front, behind) = line.split_once(" - ")?;
        let front: Vec<&str> = front.split(' ').collect();
        let mut behind = behind.split(' ');
        let (file_system, source) = (behind.next()?, behind.next()?);
        let options = front
            .get(5)?
            .split(',')
            .chain(behind.next().unwrap_or_default().split(','));
        Some(Mount {
            point: PathBuf::from(unescaped(front.get(4)?)),
            file_system: file_system.to_owned(),
            source: unescaped(source),
            options: options
                .filter(|option| !option.is_empty())
                .map(str::to_owned)
                .collect(),
            device: (*front.get(2)?).to_owned(),
        })
    }

    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|own| own == option)
    }

    /// The option that switches flushes off, if there is one.
    pub fn unflushed_by(&self) -> Option<&str> {
        let switches_off = |option: &&String| {
            let of_overlay = self.file_system == "overlay" && *option == "volatile";
            UNFLUSHED.contains(&option.as_str()) || of_overlay
        };
        self.options.iter().find(switches_off).map(String::as_str)
    }
}

/// Mount options that keep flushes from the disk: of ext3 and ext4, XFS, btrfs, f2fs, ReiserFS and JFS.
const UNFLUSHED: &[&str] = &[
    "nobarrier",
    "barrier=0",
    "barrier=none",
    "fsync_mode=nobarrier",
    "nointegrity",
];

/// Blanks are octal escapes.
fn unescaped(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (escape, character)| {
        text.replace(escape, character)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
23 22 0:21 / /proc rw - proc proc rw
24 22 8:17 /sub /mnt/my\\040data ro,noatime shared:7 master:1 - xfs /dev/sdb1 rw,attr2
25 22 0:40 / /mnt rw - tmpfs tmpfs rw,size=1g
26 22 0:41 / /mnt rw - overlay overlay rw
short
";

    #[test]
    fn the_longest_point_wins_and_of_equal_ones_the_last() {
        let of = |path: &str| Mount::of(MOUNTS, Path::new(path)).unwrap();
        assert_eq!(of("/var/lib").file_system, "ext4");
        let data = of("/mnt/my data/highwater");
        assert_eq!(
            (data.file_system.as_str(), data.device.as_str()),
            ("xfs", "8:17")
        );
        assert!(data.has("ro") && data.has("attr2") && !data.has("discard"));
        assert_eq!(of("/mnt/other").file_system, "overlay");
        assert_eq!(of("/mntx").file_system, "ext4");
        assert_eq!(Mount::of("nothing", Path::new("/")), None);
    }

    #[test]
    fn options_that_switch_flushes_off_are_known() {
        let by = |line: &str| {
            let mount = Mount::parse(line).unwrap();
            mount.unflushed_by().map(str::to_owned)
        };
        let of = |option: &str| by(&format!("1 1 8:1 / / rw - ext4 /dev/sda1 rw,{option}"));
        for option in UNFLUSHED {
            assert_eq!(of(option).as_deref(), Some(*option));
        }
        for option in [
            "barrier",
            "barrier=1",
            "data=writeback",
            "nobarriers",
            "volatile",
        ] {
            assert_eq!(of(option), None, "{option}");
        }
        let before = by("1 1 8:1 / / rw,nobarrier shared:1 - xfs /dev/sda1 rw");
        assert_eq!(before.as_deref(), Some("nobarrier"));
        let overlay = by("1 1 0:5 / / rw - overlay overlay rw,lowerdir=/a,volatile");
        assert_eq!(overlay.as_deref(), Some("volatile"));
    }

    #[test]
    fn garbage_is_no_mount() {
        let lines = [
            "",
            " - ",
            " - - - ",
            "1 2 3 - ext4",
            "1 2 3 - ext4 /dev/x",
            "1 1 8:1 / /p - ext4",
            "- - - - - - - - -",
            "\u{0}\u{0}\u{0}",
            "1 1 8:1 / / rw",
            "1 1 8:1 / / rw -ext4 /dev/x rw",
        ];
        for line in lines {
            assert_eq!(Mount::of(line, Path::new("/p")), None, "{line:?}");
        }
        // Without options of its own, and with a point that has escapes of every kind.
        let odd = "1 1 8:1 / /a\\040\\011\\012\\134b\\999 rw - ext4 none";
        let found = Mount::of(odd, Path::new("/a \t\n\\b\\999/c")).unwrap();
        assert_eq!(found.options, ["rw"]);
    }

    #[test]
    fn this_machine_has_a_root() {
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(Mount::of(&text, Path::new("/")).is_some());
    }
}
