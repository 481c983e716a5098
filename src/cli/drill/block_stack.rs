//! A block device whose power can be cut, with a file system on it.
//!
//! ```text
//! image file <- nbdkit (file; cache=writeback; error) <- nbdfuse (one file) <- loop device <- ext4
//! ```
//! nbdkit keeps what is written to it and passes it on to the image when it is told to flush. Killing it loses what was
//! not flushed, as a disk's volatile cache does when the power goes; a kill in the middle of a flush leaves a part of it.
//! A disk may also have written any part of its cache by then: so blocks that the caller chooses are taken from nbdkit's
//! cache, while it is stopped and before it is killed (`unflushed.rs`). Its own filters cannot: the cache filter writes
//! nothing before a flush, also where `cache-max-size` makes it forget blocks. Its error filter makes writes, or reads, fail with EIO while a trigger file exists.
//!
//! What it cannot know: what a disk does that says it has flushed and has not. That is the image's own disk, which keeps
//! running.
//!
//! Root alone may do this, on Linux with FUSE and loop devices. Whatever was set up is taken down when it is dropped,
//! also when setting up failed half-way.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::programs::{self, kill, run, started, wait_stopped};
use super::unflushed::{self, CutBlocks};
use crate::runtime::native::pause;

/// The device and the file system on it. Taken down when dropped.
#[derive(Debug)]
pub struct BlockStack {
    folder: PathBuf,
    mount_point: PathBuf,
    running: Running,
}

/// Why there is no such device.
#[derive(Debug, thiserror::Error)]
pub enum BlockStackError {
    /// The machine lacks something, or we may not use it.
    #[error("{what}: {advice}")]
    Missing {
        /// What is missing.
        what: &'static str,
        /// What to install or to change.
        advice: &'static str,
    },
    /// The place or the size cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// A file in the folder cannot be made or removed.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// What was done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A program did not do its part.
    #[error("{program} failed: {detail}")]
    Program {
        /// The program.
        program: &'static str,
        /// What it said.
        detail: String,
    },
}

pub(super) type Result<T> = std::result::Result<T, BlockStackError>;

/// What is set up at the moment, in the order in which it was.
#[derive(Debug, Default)]
struct Running {
    nbdkit: Option<Child>,
    nbdfuse: Option<Child>,
    /// The folder in which nbdfuse shows its file.
    shown: Option<PathBuf>,
    device: Option<String>,
    mounted: Option<PathBuf>,
}

impl BlockStack {
    /// Whether it can be set up on this machine, by all that can be told without doing so.
    ///
    /// # Errors
    /// What is missing, with the package that has it.
    pub fn check() -> Result<()> {
        let missing = |what, advice| Err(BlockStackError::Missing { what, advice });
        if !is_root() {
            return missing("only root may mount", "run it as root");
        }
        if let Some((what, advice)) = programs::missing() {
            return missing(what, advice);
        }
        if !Path::new("/dev/fuse").exists() {
            return missing(
                "there is no /dev/fuse",
                "load the module (modprobe fuse), or give the container the device (--device /dev/fuse)",
            );
        }
        if !Path::new("/dev/loop-control").exists() {
            return missing(
                "there are no loop devices",
                "load the module (modprobe loop), or run the container with --privileged",
            );
        }
        Ok(())
    }

    /// Makes a folder `block-stack` in `dir`, and a device of so many bytes (at least 16 MiB) with an empty ext4 on it.
    ///
    /// # Errors
    /// What is missing on this machine, or which step failed. Nothing is left then.
    pub fn start(dir: &Path, bytes: u64) -> Result<BlockStack> {
        BlockStack::check()?;
        if bytes < BYTES_MIN {
            return Err(BlockStackError::Unusable(format!(
                "a device of {bytes} bytes is too small for a file system: it needs {BYTES_MIN}"
            )));
        }
        let dir = fs::canonicalize(dir).map_err(failed("find", dir))?;
        let folder = dir.join("block-stack");
        if folder.join(SOCKET).as_os_str().len() > SOCKET_PATH_MAX {
            return Err(BlockStackError::Unusable(format!(
                "the path {} is too long for a socket below it: name a directory with a shorter path",
                dir.display()
            )));
        }
        // One that is there belongs to somebody else, who may be using it.
        fs::create_dir(&folder).map_err(failed("make", &folder))?;
        let mut stack = BlockStack {
            mount_point: folder.join("mnt"),
            folder,
            running: Running::default(),
        };
        let image = stack.image();
        fs::create_dir(&stack.mount_point).map_err(failed("make", &stack.mount_point))?;
        let file = File::create_new(&image).map_err(failed("make", &image))?;
        file.set_len(bytes).map_err(failed("extend", &image))?;
        let device = stack.attach()?;
        let made = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        run(
            "mkfs.ext4",
            &["-q", "-F", "-b", "4096", "-E", made, &device],
        )?;
        stack.mount(&device)?;
        Ok(stack)
    }

    /// Where the file system is.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// The file that stands for the platters.
    pub fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// From now on every write to the device fails with EIO (and with it fsync), or does so no longer.
    ///
    /// # Errors
    /// The trigger file cannot be made or removed.
    pub fn fail_io(&self, fail: bool) -> Result<()> {
        self.pull(TRIGGER, fail)
    }

    /// From now on every read from the device fails with EIO, or does so no longer. What the kernel has cached can still
    /// be read.
    ///
    /// # Errors
    /// The trigger file cannot be made or removed.
    pub fn fail_reads(&self, fail: bool) -> Result<()> {
        self.pull(READ_TRIGGER, fail)
    }

    fn pull(&self, trigger: &str, fail: bool) -> Result<()> {
        let trigger = self.folder.join(trigger);
        match fail {
            true => File::create(&trigger)
                .map(drop)
                .map_err(failed("make", &trigger)),
            false => match fs::remove_file(&trigger) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(failed("remove", &trigger)(error))
                }
                _ => Ok(()),
            },
        }
    }

    /// Cuts the power: what was not flushed is lost, and every further access fails. Whoever has files open there keeps
    /// the dead file system until it ends.
    ///
    /// # Errors
    /// The power is cut already, or the device could not be killed.
    pub fn cut_power(&mut self) -> Result<()> {
        let mut nbdkit = self.running.nbdkit.take().ok_or_else(is_cut)?;
        kill(&mut nbdkit).map_err(|error| BlockStackError::Program {
            program: "nbdkit",
            detail: format!("it cannot be killed: {error}"),
        })?;
        self.running.take_down();
        Ok(())
    }

    /// The same, but the blocks that were not flushed and that `keeps` chooses, asked once for each, are on the disk all
    /// the same.
    ///
    /// # Errors
    /// The power is cut already, or the device could not be stopped or its cache not be read.
    pub fn cut_power_keeping(&mut self, keeps: impl FnMut() -> bool) -> Result<CutBlocks> {
        let id = self.running.nbdkit.as_ref().ok_or_else(is_cut)?.id();
        run("kill", &["-STOP", &id.to_string()])?;
        wait_stopped(id)?;
        let cache = self.cache_of(id)?;
        let path = self.image();
        let image = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed("open", &path))?;
        let cut = unflushed::settle(cache, image, keeps);
        let cut = cut.map_err(failed("write unflushed blocks to", &path))?;
        self.cut_power()?;
        Ok(cut)
    }

    /// The file in which nbdkit has what it was given; its name is deleted.
    fn cache_of(&self, nbdkit: u32) -> Result<File> {
        let files = PathBuf::from(format!("/proc/{nbdkit}/fd"));
        for entry in fs::read_dir(&files).map_err(failed("look at", &files))? {
            let path = entry.map_err(failed("look at", &files))?.path();
            // One that was closed in between is not it.
            let Ok(name) = fs::read_link(&path) else {
                continue;
            };
            if name.starts_with(&self.folder) && name.to_string_lossy().ends_with(" (deleted)") {
                return File::open(&path).map_err(failed("open", &path));
            }
        }
        Err(BlockStackError::Program {
            program: "nbdkit",
            detail: "the file of its cache cannot be found".to_owned(),
        })
    }

    /// Gives it power again: the device with what was flushed. The mount replays the file system's journal.
    ///
    /// # Errors
    /// The power is on, or which step failed.
    pub fn restore(&mut self) -> Result<()> {
        if self.running.nbdkit.is_some() {
            return Err(BlockStackError::Unusable(
                "the power is on: cut it first".to_owned(),
            ));
        }
        let device = self.attach()?;
        self.mount(&device)
    }

    /// Starts the programs and the loop device; its path.
    fn attach(&mut self) -> Result<String> {
        let socket = self.folder.join(SOCKET);
        if let Err(error) = fs::remove_file(&socket) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(failed("remove", &socket)(error));
            }
        }
        let own = |name: &str, path: &Path| format!("{name}={}", path.display());
        let mut nbdkit = self.background("nbdkit");
        nbdkit
            .args(["-f", "--filter=error", "--filter=cache", "-U"])
            .arg(&socket)
            .args([
                "file",
                &own("file", &self.image()),
                "cache=writeback",
                "cache-min-block-size=4096",
                "error-pwrite=EIO",
                "error-pwrite-rate=100%",
            ])
            .arg(own("error-pwrite-file", &self.folder.join(TRIGGER)))
            .args(["error-pread=EIO", "error-pread-rate=100%"])
            .arg(own("error-pread-file", &self.folder.join(READ_TRIGGER)));
        self.running.nbdkit = Some(started("nbdkit", nbdkit)?);
        self.wait("nbdkit", &socket)?;

        let shown = self.folder.join("device");
        if !shown.exists() {
            fs::create_dir(&shown).map_err(failed("make", &shown))?;
        }
        let mut nbdfuse = self.background("nbdfuse");
        nbdfuse.arg(&shown).arg("--unix").arg(&socket);
        self.running.shown = Some(shown.clone());
        self.running.nbdfuse = Some(started("nbdfuse", nbdfuse)?);
        let file = shown.join("nbd");
        self.wait("nbdfuse", &file)?;

        let device = attached(&file)?;
        self.running.device = Some(device.clone());
        Ok(device)
    }

    fn mount(&mut self, device: &str) -> Result<()> {
        let point = self.mount_point.display().to_string();
        run("mount", &["-t", "ext4", device, &point])?;
        self.running.mounted = Some(self.mount_point.clone());
        Ok(())
    }

    /// A program that runs beside us, out of the reach of our terminal's Ctrl-C. Its words go to a file.
    fn background(&self, program: &'static str) -> Command {
        let mut command = Command::new("setsid");
        command
            .arg(program)
            // Where the cache filter has its file, which is deleted while it is used.
            .env("TMPDIR", &self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let log = File::create(self.words(program));
        command.stderr(log.map_or_else(|_| Stdio::null(), Stdio::from));
        command
    }

    fn words(&self, program: &str) -> PathBuf {
        self.folder.join(format!("{program}.log"))
    }

    /// Waits until a program shows its file.
    fn wait(&mut self, program: &'static str, file: &Path) -> Result<()> {
        let child = match program {
            "nbdkit" => &mut self.running.nbdkit,
            _ => &mut self.running.nbdfuse,
        };
        let mut ended = None;
        for _ in 0..START_PAUSES {
            if file.exists() {
                return Ok(());
            }
            ended = child
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() {
                break;
            }
            pause(START_PAUSE);
        }
        let said = fs::read_to_string(self.words(program)).unwrap_or_default();
        let how = match ended {
            Some(status) => format!("it ended ({status})"),
            None => format!("{} did not appear", file.display()),
        };
        Err(BlockStackError::Program {
            program,
            detail: format!("{how} {}", said.trim()).trim_end().to_owned(),
        })
    }
}

impl Drop for BlockStack {
    fn drop(&mut self) {
        self.running.take_down();
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!(
                "highwater: {} is left behind: {error}",
                self.folder.display()
            );
        }
    }
}

impl Running {
    /// Takes down what there is, from the top. What fails is told, and the rest goes on.
    fn take_down(&mut self) {
        let told = |done: Result<String>| {
            if let Err(error) = done {
                eprintln!("highwater: {error}");
            }
        };
        if let Some(point) = self.mounted.take() {
            told(run("umount", &["-l", &point.display().to_string()]));
        }
        if let Some(device) = self.device.take() {
            // While a dead file system is still in use, the kernel detaches it when the last user has ended.
            told(run("losetup", &["-d", &device]));
        }
        for child in [&mut self.nbdfuse, &mut self.nbdkit] {
            if let Some(mut child) = child.take() {
                if let Err(error) = kill(&mut child) {
                    eprintln!("highwater: process {} is left behind: {error}", child.id());
                }
            }
        }
        if let Some(shown) = self.shown.take() {
            if is_mounted(&shown) {
                told(run("umount", &["-l", &shown.display().to_string()]));
            }
        }
    }
}

/// A free loop device that shows the file, directly where the kernel can.
fn attached(file: &Path) -> Result<String> {
    let file = file.display().to_string();
    let mut failure = None;
    for _ in 0..LOOP_ATTEMPTS {
        match run("losetup", &["--find", "--show", &file]) {
            Ok(device) => {
                // Otherwise there is one more cache of the kernel below the file system, which flushes pass through.
                let _ = run("losetup", &["--direct-io=on", &device]);
                return Ok(device);
            }
            // Another took the same one.
            Err(error) => failure = Some(error),
        }
        pause(START_PAUSE);
    }
    Err(failure.unwrap_or(BlockStackError::Missing {
        what: "there is no free loop device",
        advice: "detach one (losetup -D)",
    }))
}

fn is_cut() -> BlockStackError {
    BlockStackError::Unusable("the power is cut already: restore it first".to_owned())
}

pub(super) fn failed(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> BlockStackError {
    let path = path.to_owned();
    move |error| BlockStackError::Io { doing, path, error }
}

fn is_root() -> bool {
    // Uid: real effective saved file system
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.and_then(|line| line.split_whitespace().nth(1)) == Some("0")
}

fn is_mounted(point: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let point = point.display().to_string().replace(' ', "\\040");
    mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(point.as_str()))
}

const SOCKET: &str = "socket";
const TRIGGER: &str = "fail";
const READ_TRIGGER: &str = "fail-reads";
/// What the kernel takes for a socket's path, less its last zero.
const SOCKET_PATH_MAX: usize = 107;
const BYTES_MIN: u64 = 16 << 20;
const START_PAUSE: Duration = Duration::from_millis(20);
/// 20 s.
const START_PAUSES: usize = 1000;
const LOOP_ATTEMPTS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn stack(name: &str) -> Option<(tempfile::TempDir, BlockStack)> {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR").to_owned() + "/target").unwrap();
        match BlockStack::start(dir.path(), 32 << 20) {
            Ok(stack) => Some((dir, stack)),
            Err(missing @ BlockStackError::Missing { .. }) => {
                eprintln!("SKIPPED {name}: {missing}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn write(path: &Path, text: &str, flush: bool) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        match flush {
            true => file.sync_all(),
            false => Ok(()),
        }
    }

    #[test]
    fn a_cut_takes_what_was_not_flushed_and_nothing_else() {
        let Some((dir, mut stack)) = stack("a_cut_takes_what_was_not_flushed_and_nothing_else")
        else {
            return;
        };
        let at = |name: &str| dir.path().join("block-stack/mnt").join(name);
        assert_eq!(at(""), stack.mount_point().join(""));
        write(&at("flushed"), "kept", true).unwrap();
        write(&at("unflushed"), "lost", false).unwrap();
        stack.cut_power().unwrap();
        assert!(stack.cut_power().is_err());
        assert!(!at("flushed").exists(), "the file system is gone");
        stack.restore().unwrap();
        assert!(stack.restore().is_err());
        assert_eq!(fs::read_to_string(at("flushed")).unwrap(), "kept");
        assert!(!at("unflushed").exists());

        // Once more, and with the device in use when it ends.
        write(&at("second"), "kept", true).unwrap();
        let open = File::open(at("second")).unwrap();
        stack.cut_power().unwrap();
        stack.restore().unwrap();
        assert_eq!(fs::read_to_string(at("second")).unwrap(), "kept");
        drop(open);
        drop(stack);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_cut_may_keep_some_of_what_was_not_flushed() {
        let Some((_dir, mut stack)) = stack("a_cut_may_keep_some_of_what_was_not_flushed") else {
            return;
        };
        let file = stack.mount_point().join("file");
        let blocks = |byte: u8| vec![byte; 64 * 4096];
        fs::write(&file, blocks(1)).unwrap();
        File::open(&file).unwrap().sync_all().unwrap();
        // Given to the device, and not flushed.
        let image = stack.image();
        let written = |stack: &BlockStack| {
            let to = format!("of={}", stack.mount_point().join("file").display());
            let how = ["bs=4096", "count=64", "conv=notrunc", "oflag=direct"];
            let fill = "tr '\\0' '\\2' < /dev/zero | dd iflag=fullblock \"$@\"";
            run("sh", &[&["-c", fill, "sh", &to], &how[..]].concat()).unwrap();
        };
        let twos = || {
            let bytes = fs::read(&image).unwrap();
            let blocks = bytes.chunks(4096);
            blocks
                .filter(|block| block.iter().all(|byte| *byte == 2))
                .count()
        };
        written(&stack);
        assert_eq!(twos(), 0, "it is not on the disk");
        let mut number = 0;
        let cut = stack.cut_power_keeping(|| {
            number += 1;
            number % 2 == 0
        });
        let cut = cut.unwrap();
        assert!(cut.kept_bytes > 0 && cut.lost_bytes > 0, "{cut:?}");
        assert!((20..=44).contains(&twos()), "{} of 64: {cut:?}", twos());
        assert!(stack.cut_power_keeping(|| true).is_err());
        stack.restore().unwrap();
        let left = fs::read(&file).unwrap();
        let of = |byte: u8| left.chunks(4096).filter(|block| block[0] == byte).count();
        assert_eq!(
            (of(2), of(1) + of(2)),
            (twos(), 64),
            "each block is old or new"
        );

        // What was flushed is not the cut's to choose.
        written(&stack);
        File::open(&file).unwrap().sync_all().unwrap();
        stack.cut_power_keeping(|| false).unwrap();
        assert_eq!(twos(), 64);
    }

    #[test]
    fn a_failing_device_fails_flushes_until_it_is_well() {
        let Some((_dir, mut stack)) = stack("a_failing_device_fails_flushes_until_it_is_well")
        else {
            return;
        };
        let file = stack.mount_point().join("file");
        write(&file, "before", true).unwrap();
        stack.fail_io(true).unwrap();
        let error = write(&file, "after", true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "{error}");
        stack.fail_io(false).unwrap();
        stack.fail_io(false).unwrap();
        stack.cut_power().unwrap();
        stack.restore().unwrap();
        write(&file, "again", true).unwrap();
    }

    #[test]
    fn what_cannot_be_is_said_and_nothing_is_left() {
        let Some((dir, stack)) = stack("what_cannot_be_is_said_and_nothing_is_left") else {
            return;
        };
        // A second one in the same place.
        let error = BlockStack::start(dir.path(), 32 << 20).unwrap_err();
        assert!(error.to_string().starts_with("cannot make "), "{error}");
        assert!(stack.mount_point().join("lost+found").exists());
        drop(stack);
        let error = BlockStack::start(dir.path(), 1).unwrap_err();
        assert!(error.to_string().contains("too small"), "{error}");
        let long = dir.path().join("x".repeat(120));
        fs::create_dir(&long).unwrap();
        let error = BlockStack::start(&long, 32 << 20).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
        assert_eq!(fs::read_dir(&long).unwrap().count(), 0);
    }
}
