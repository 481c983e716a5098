//! A small disk of its own: an image file, mounted through a loop device as ext4.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The file system. Unmounted, and its loop device detached, when dropped.
pub struct LoopDisk {
    mount_point: PathBuf,
    /// The image and the mount point.
    _folder: tempfile::TempDir,
}

impl LoopDisk {
    /// A disk of so many bytes, all of which whoever writes may have. `None`, and a line on
    /// standard error, where this machine cannot mount one.
    pub fn new(test: &str, bytes: u64) -> Option<LoopDisk> {
        if let Some(missing) = missing() {
            eprintln!("SKIPPED {test}: {missing}");
            return None;
        }
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let image = folder.path().join("image");
        let mount_point = folder.path().join("mnt");
        std::fs::create_dir(&mount_point).expect("a mount point");
        let file = std::fs::File::create_new(&image).expect("an image");
        file.set_len(bytes).expect("the image has its size");
        // No blocks for root alone: they would be free for a broker that runs as root.
        run("mkfs.ext4", &["-q", "-F", "-m", "0", &text(&image)]);
        // The loop device goes with the mount.
        run(
            "mount",
            &[
                "-t",
                "ext4",
                "-o",
                "loop",
                &text(&image),
                &text(&mount_point),
            ],
        );
        Some(LoopDisk {
            mount_point,
            _folder: folder,
        })
    }

    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Bytes that are free, by df.
    pub fn free_bytes(&self) -> u64 {
        self.df("avail")
    }

    /// Bytes in all, by df.
    pub fn total_bytes(&self) -> u64 {
        self.df("size")
    }

    fn df(&self, what: &str) -> u64 {
        let column = format!("--output={what}");
        let said = run("df", &["-B1", &column, &text(&self.mount_point)]);
        let number = said.lines().last().unwrap_or_default().trim();
        number.parse().expect("df says a number")
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let point = text(&self.mount_point);
        // A broker that was killed a moment ago may still have its files open.
        let gone = ["", "-l"].iter().any(|option| {
            let mut command = Command::new("umount");
            if !option.is_empty() {
                command.arg(option);
            }
            command
                .arg(&point)
                .status()
                .is_ok_and(|status| status.success())
        });
        if !gone {
            eprintln!("{point} is left mounted");
        }
    }
}

fn missing() -> Option<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    if uid.and_then(|ids| ids.split_whitespace().nth(1)) != Some("0") {
        return Some("only root may mount");
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("there are no loop devices");
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let there =
        |program: &str| std::env::split_paths(&paths).any(|dir| dir.join(program).is_file());
    match there("mkfs.ext4") && there("mount") && there("umount") {
        true => None,
        false => Some("mkfs.ext4 (e2fsprogs) or mount is not installed"),
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
