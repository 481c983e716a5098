//! The simulated disk: operations in flight, faults, power cuts.
//!
//! Every operation takes a time drawn from the seed and takes effect when that time
//! has passed, so operations complete in another order than they were given. An
//! operation belongs to the disk, not to the future that waits for it: dropping the
//! future does not stop it.

use super::content::Change;
use super::executor::{Core, Timer};
use super::fault::{Faults, WriteFault};
use super::fs::{FileSystem, InodeId};
use super::rt::SimRt;
use super::world::Node;
use super::PowerCut;
use crate::runtime::local::{oneshot, OneshotSender};
use crate::runtime::{DirEntry, IoError, IoErrorKind, OpenMode, SyncSite, BLOCK_BYTES};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A node's disk, as the tests control it. A handle; cheap to clone.
#[derive(Clone)]
pub struct SimDisk {
    core: Rc<Core>,
    node: Rc<Node>,
}

#[derive(Default)]
pub(super) struct Disk(RefCell<State>);

#[derive(Default)]
struct State {
    fs: FileSystem,
    in_flight: BTreeMap<u64, InFlight>,
    next_op: u64,
    locks: BTreeSet<InodeId>,
    faults: Faults,
    disabled: BTreeSet<SyncSite>,
    sync_counts: BTreeMap<SyncSite, u64>,
    writes: u64,
    reads: u64,
}

struct InFlight {
    op: Op,
    /// The last change that was complete when the operation was given.
    seq_at_start: u64,
    /// Keeps the file while the operation is in flight.
    open: Option<Rc<()>>,
    done: OneshotSender<Result<Outcome, IoError>>,
}

/// What a node asks of its disk.
pub(super) enum Op {
    Write {
        inode: InodeId,
        path: PathBuf,
        pos: u64,
        data: Bytes,
    },
    Read {
        inode: InodeId,
        path: PathBuf,
        pos: u64,
        len: usize,
    },
    SyncData {
        inode: InodeId,
        path: PathBuf,
        site: SyncSite,
    },
    PreAllocate {
        inode: InodeId,
        path: PathBuf,
        size: u64,
    },
    Truncate {
        inode: InodeId,
        path: PathBuf,
        size: u64,
    },
    Size {
        inode: InodeId,
    },
    Open {
        path: PathBuf,
        mode: OpenMode,
    },
    DirExists {
        path: PathBuf,
    },
    CreateDir {
        path: PathBuf,
    },
    List {
        path: PathBuf,
    },
    SyncDir {
        path: PathBuf,
        site: SyncSite,
    },
    RemoveFile {
        path: PathBuf,
    },
    Rename {
        dir: PathBuf,
        from: String,
        to: String,
    },
    RemoveDirAll {
        path: PathBuf,
    },
    ReadWhole {
        path: PathBuf,
        len_max: u64,
    },
    /// Creates the file, or cuts it to nothing, then writes it.
    WriteWhole {
        path: PathBuf,
        content: Bytes,
    },
    Lock {
        path: PathBuf,
    },
}

pub(super) enum Outcome {
    Done,
    Bytes(Bytes),
    Size(u64),
    Yes(bool),
    Entries(Vec<DirEntry>),
    /// An open file; the token keeps an unlinked file's content.
    Inode(InodeId, Rc<()>),
}

impl SimRt {
    /// Gives an operation to the disk and waits for it.
    pub(super) async fn disk_op(&self, op: Op) -> Result<Outcome, IoError> {
        let (name, target) = (op.name(), op.target());
        if !self.is_alive() {
            return Err(self.dead_error(name, target));
        }
        let done = self.node.disk.submit(&self.core, self.node.index, op);
        self.core.note_wait(name);
        match done.await {
            Some(result) => result,
            None => Err(self.dead_error(name, target)),
        }
    }
}

impl Disk {
    fn submit(
        &self,
        core: &Core,
        node: usize,
        op: Op,
    ) -> crate::runtime::local::OneshotReceiver<Result<Outcome, IoError>> {
        let (done, receiver) = oneshot();
        let latency = op.latency_nanos(core);
        let mut state = self.0.borrow_mut();
        state.next_op += 1;
        let id = state.next_op;
        let in_flight = InFlight {
            open: op.inode().map(|inode| state.fs.hold(inode)),
            op,
            seq_at_start: state.fs.last_seq(),
            done,
        };
        state.in_flight.insert(id, in_flight);
        drop(state);
        core.set_timer(core.now() + latency, Timer::Disk { node, op: id });
        receiver
    }

    pub fn complete(&self, core: &Core, id: u64) {
        let mut state = self.0.borrow_mut();
        // Absent if a crash took it.
        let Some(in_flight) = state.in_flight.remove(&id) else {
            return;
        };
        let result = state.perform(core, in_flight.op, in_flight.seq_at_start);
        drop(state);
        drop(in_flight.open);
        // The waiting future may have been dropped; the operation stands all the same.
        let _ = in_flight.done.send(result);
    }

    pub fn power_cut(&self, core: &Core, mode: PowerCut) {
        let mut state = self.0.borrow_mut();
        let in_flight = std::mem::take(&mut state.in_flight);
        let mut writes: BTreeMap<InodeId, Vec<Change>> = BTreeMap::new();
        for flight in in_flight.values() {
            match &flight.op {
                Op::Write {
                    inode, pos, data, ..
                } => writes.entry(*inode).or_default().push(Change::Write {
                    pos: *pos,
                    data: data.clone(),
                    len: data.len() as u64,
                }),
                Op::Truncate { inode, size, .. } => writes
                    .entry(*inode)
                    .or_default()
                    .push(Change::Resize(*size)),
                Op::PreAllocate { inode, size, .. } => writes
                    .entry(*inode)
                    .or_default()
                    .push(Change::Extend(*size)),
                // Names in flight are as good as names lost.
                _ => {}
            }
        }
        state.fs.power_cut(writes, mode, &core.rng);
        state.locks.clear();
        drop(state);
        drop(in_flight);
    }

    /// The process ended, the machine lives: operations in flight happen or not.
    pub fn process_ended(&self, core: &Core) {
        let in_flight = std::mem::take(&mut self.0.borrow_mut().in_flight);
        for (_, flight) in in_flight {
            if core.rng.one_in(2) {
                let result = self
                    .0
                    .borrow_mut()
                    .perform(core, flight.op, flight.seq_at_start);
                drop(result);
            }
        }
        self.0.borrow_mut().locks.clear();
    }

    pub fn unlock(&self, inode: InodeId) {
        self.0.borrow_mut().locks.remove(&inode);
    }
}

impl State {
    fn perform(&mut self, core: &Core, op: Op, seq_at_start: u64) -> Result<Outcome, IoError> {
        let now_ms = (core.now() / 1_000_000) as i64;
        self.fs.set_time_ms(super::rt::START_MS + now_ms);
        match op {
            Op::Write {
                inode,
                path,
                pos,
                data,
            } => self.write(core, inode, &path, pos, data),
            Op::Read {
                inode,
                path,
                pos,
                len,
            } => {
                self.reads += 1;
                self.faults.on_read(&path)?;
                Ok(Outcome::Bytes(self.fs.file(inode).live.read(pos, len)))
            }
            Op::SyncData { inode, path, site } => {
                let file = |fs: &mut FileSystem, failed| {
                    if failed {
                        fs.file_mut(inode).fail_flush(seq_at_start, &core.rng);
                    } else {
                        fs.file_mut(inode).flush(seq_at_start);
                    }
                };
                self.sync("fdatasync", &path, site, file)
            }
            Op::PreAllocate { inode, path, size } => {
                self.room_for("fallocate", &path, inode, size)?;
                self.fs.change(inode, Change::Extend(size));
                Ok(Outcome::Done)
            }
            Op::Truncate { inode, path, size } => {
                self.room_for("ftruncate", &path, inode, size)?;
                self.fs.change(inode, Change::Resize(size));
                Ok(Outcome::Done)
            }
            Op::Size { inode } => Ok(Outcome::Size(self.fs.file(inode).live.size())),
            Op::Open { path, mode } => {
                let inode = match mode {
                    OpenMode::Read | OpenMode::ReadWrite => self.fs.find_file("open", &path)?,
                    OpenMode::CreateNew => self.fs.create_file("open", &path)?,
                };
                Ok(Outcome::Inode(inode, self.fs.hold(inode)))
            }
            Op::DirExists { path } => Ok(Outcome::Yes(self.fs.dir_exists(&path)?)),
            Op::CreateDir { path } => Ok(Outcome::Yes(self.fs.create_dir("mkdir", &path)?)),
            Op::List { path } => Ok(Outcome::Entries(self.fs.list(&path)?)),
            Op::SyncDir { path, site } => {
                let inode = self.fs.find_dir("fsync", &path)?;
                self.sync("fsync", &path, site, |fs, failed| {
                    if !failed {
                        fs.flush_dir(inode, seq_at_start);
                    }
                })
            }
            Op::RemoveFile { path } => self.fs.remove_file(&path).map(|()| Outcome::Done),
            Op::Rename { dir, from, to } => {
                self.fs.rename(&dir, &from, &to).map(|()| Outcome::Done)
            }
            Op::RemoveDirAll { path } => self.fs.remove_dir_all(&path).map(|()| Outcome::Done),
            Op::ReadWhole { path, len_max } => {
                self.reads += 1;
                let inode = self.fs.find_file("read", &path)?;
                self.faults.on_read(&path)?;
                let content = &self.fs.file(inode).live;
                if content.size() > len_max {
                    return Err(IoError::new(
                        "read",
                        &path,
                        IoErrorKind::Other,
                        format!(
                            "the file has {} bytes, more than the {len_max} expected",
                            content.size()
                        ),
                    ));
                }
                Ok(Outcome::Bytes(content.read(0, content.size() as usize)))
            }
            Op::WriteWhole { path, content } => self.write_whole(core, &path, content),
            Op::Lock { path } => {
                let inode = match self.fs.find_file("lock", &path) {
                    Err(e) if e.kind == IoErrorKind::NotFound => {
                        self.fs.create_file("lock", &path)?
                    }
                    other => other?,
                };
                if !self.locks.insert(inode) {
                    return Err(IoError::new(
                        "lock",
                        &path,
                        IoErrorKind::AlreadyExists,
                        "another process holds the lock",
                    ));
                }
                Ok(Outcome::Inode(inode, self.fs.hold(inode)))
            }
        }
    }

    fn write(
        &mut self,
        core: &Core,
        inode: InodeId,
        path: &Path,
        pos: u64,
        data: Bytes,
    ) -> Result<Outcome, IoError> {
        self.writes += 1;
        let (data, outcome) = match self.faults.on_write(path) {
            None => match self.room_for("write", path, inode, pos + data.len() as u64) {
                Ok(()) => (data, Ok(Outcome::Done)),
                Err(error) => {
                    // A full disk takes what still fits, or refuses the whole write.
                    let room = self.fs.room_in(inode).saturating_sub(pos) as usize;
                    let fits = (room / BLOCK_BYTES * BLOCK_BYTES).min(data.len());
                    if fits == 0 || core.rng.one_in(2) {
                        return Err(error);
                    }
                    (data.slice(..fits), Err(short_write(path, fits, data.len())))
                }
            },
            Some(WriteFault::Errno(errno)) => {
                return Err(IoError::from_errno(
                    "write",
                    path.display().to_string(),
                    errno,
                ))
            }
            Some(WriteFault::Short) => {
                let blocks = (data.len() / BLOCK_BYTES) as u64;
                let fits = core.rng.below(blocks.max(1)) as usize * BLOCK_BYTES;
                (data.slice(..fits), Err(short_write(path, fits, data.len())))
            }
        };
        if !data.is_empty() {
            let len = data.len() as u64;
            self.fs.change(inode, Change::Write { pos, data, len });
        }
        outcome
    }

    fn write_whole(
        &mut self,
        core: &Core,
        path: &Path,
        content: Bytes,
    ) -> Result<Outcome, IoError> {
        let inode = match self.fs.find_file("write", path) {
            Ok(inode) => {
                self.fs.change(inode, Change::Resize(0));
                inode
            }
            Err(e) if e.kind == IoErrorKind::NotFound => self.fs.create_file("write", path)?,
            Err(e) => return Err(e),
        };
        let len = content.len() as u64;
        let mut padded = content.to_vec();
        padded.resize(padded.len().next_multiple_of(BLOCK_BYTES), 0);
        let outcome = self.write(core, inode, path, 0, Bytes::from(padded))?;
        self.fs.change(inode, Change::Resize(len));
        Ok(outcome)
    }

    fn sync(
        &mut self,
        op: &'static str,
        path: &Path,
        site: SyncSite,
        flush: impl FnOnce(&mut FileSystem, bool),
    ) -> Result<Outcome, IoError> {
        *self.sync_counts.entry(site).or_default() += 1;
        if let Some(errno) = self.faults.on_sync(site) {
            flush(&mut self.fs, true);
            return Err(IoError::from_errno(op, path.display().to_string(), errno));
        }
        if !self.disabled.contains(&site) {
            flush(&mut self.fs, false);
        }
        Ok(Outcome::Done)
    }

    fn room_for(
        &mut self,
        op: &'static str,
        path: &Path,
        inode: InodeId,
        size: u64,
    ) -> Result<(), IoError> {
        if size <= self.fs.room_in(inode) {
            return Ok(());
        }
        self.faults.fired += 1;
        Err(IoError::from_errno(
            op,
            path.display().to_string(),
            libc::ENOSPC,
        ))
    }
}

fn short_write(path: &Path, done: usize, asked: usize) -> IoError {
    IoError::new(
        "write",
        path,
        IoErrorKind::ShortWrite,
        format!("{done} of {asked} bytes were written"),
    )
}

impl Op {
    fn name(&self) -> &'static str {
        match self {
            Op::Write { .. } | Op::WriteWhole { .. } => "write",
            Op::Read { .. } | Op::ReadWhole { .. } => "read",
            Op::SyncData { .. } => "fdatasync",
            Op::PreAllocate { .. } => "fallocate",
            Op::Truncate { .. } => "ftruncate",
            Op::Size { .. } | Op::DirExists { .. } => "stat",
            Op::Open { .. } => "open",
            Op::CreateDir { .. } => "mkdir",
            Op::List { .. } => "list",
            Op::SyncDir { .. } => "fsync",
            Op::RemoveFile { .. } | Op::RemoveDirAll { .. } => "remove",
            Op::Rename { .. } => "rename",
            Op::Lock { .. } => "lock",
        }
    }

    fn target(&self) -> String {
        match self {
            Op::Write { path, .. }
            | Op::Read { path, .. }
            | Op::SyncData { path, .. }
            | Op::PreAllocate { path, .. }
            | Op::Truncate { path, .. }
            | Op::Open { path, .. }
            | Op::DirExists { path }
            | Op::CreateDir { path }
            | Op::List { path }
            | Op::SyncDir { path, .. }
            | Op::RemoveFile { path }
            | Op::RemoveDirAll { path }
            | Op::ReadWhole { path, .. }
            | Op::WriteWhole { path, .. }
            | Op::Lock { path } => path.display().to_string(),
            Op::Rename { dir, from, .. } => dir.join(from).display().to_string(),
            Op::Size { inode } => format!("inode {inode}"),
        }
    }

    fn inode(&self) -> Option<InodeId> {
        match self {
            Op::Write { inode, .. }
            | Op::Read { inode, .. }
            | Op::SyncData { inode, .. }
            | Op::PreAllocate { inode, .. }
            | Op::Truncate { inode, .. }
            | Op::Size { inode } => Some(*inode),
            _ => None,
        }
    }

    fn latency_nanos(&self, core: &Core) -> u64 {
        match self {
            Op::SyncData { .. } | Op::SyncDir { .. } => core.rng.within(100_000..5_000_000),
            _ => core.rng.within(20_000..500_000),
        }
    }
}

impl SimDisk {
    pub(super) fn new(core: Rc<Core>, node: Rc<Node>) -> SimDisk {
        SimDisk { core, node }
    }

    fn state(&self) -> std::cell::RefMut<'_, State> {
        self.node.disk.0.borrow_mut()
    }

    /// Turns every sync that passes this site into one that answers success and
    /// does nothing.
    pub fn disable_sync(&self, site: SyncSite) {
        self.state().disabled.insert(site);
    }

    /// Undoes [`SimDisk::disable_sync`].
    pub fn enable_sync(&self, site: SyncSite) {
        self.state().disabled.remove(&site);
    }

    /// How many syncs passed this site, disabled and failed ones included.
    pub fn sync_count(&self, site: SyncSite) -> u64 {
        self.state().sync_counts.get(&site).copied().unwrap_or(0)
    }

    /// How many writes were carried out or failed.
    pub fn write_count(&self) -> u64 {
        self.state().writes
    }

    /// How many reads were carried out or failed.
    pub fn read_count(&self) -> u64 {
        self.state().reads
    }

    /// How many operations are in flight.
    pub fn in_flight_count(&self) -> usize {
        self.state().in_flight.len()
    }

    /// The `n`th write from now (1 is the next) fails.
    pub fn fail_nth_write(&self, n: u64, fault: WriteFault) {
        self.state().faults.fail_nth_write(n, fault);
    }

    /// All writes to paths that contain `path` fail.
    pub fn fail_writes(&self, path: &str, fault: WriteFault) {
        self.state().faults.fail_writes(path, fault);
    }

    /// All reads from paths that contain `path` fail.
    pub fn fail_reads(&self, path: &str, errno: i32) {
        self.state().faults.fail_reads(path, errno);
    }

    /// All syncs at this site (or anywhere) fail. What they covered may be durable or
    /// not, and no later sync tries again.
    pub fn fail_syncs(&self, site: Option<SyncSite>, errno: i32) {
        self.state().faults.fail_syncs(site, errno);
    }

    /// The `n`th sync from now (1 is the next) at this site (or anywhere) fails.
    pub fn fail_nth_sync(&self, site: Option<SyncSite>, n: u64, errno: i32) {
        self.state().faults.fail_nth_sync(site, n, errno);
    }

    /// Ends all faults but the capacity.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// How many times an injected fault (a full disk is one) has fired.
    pub fn faults_fired(&self) -> u64 {
        self.state().faults.fired
    }

    /// Limits the sum of all files' sizes, rounded up to blocks.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().fs.set_capacity(bytes);
    }

    /// The sum of all files' sizes, rounded up to blocks.
    pub fn used_bytes(&self) -> u64 {
        self.state().fs.used_bytes()
    }

    /// Overwrites bytes of a file, durably, behind the system's back.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn corrupt(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) {
        self.state().fs.corrupt(path.as_ref(), offset, bytes);
    }

    /// A file's content as the running system sees it; `None` if there is none.
    pub fn read_raw(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.state().fs.read_raw(path.as_ref())
    }

    /// Makes a file of this content, durably, with the directories above it.
    pub fn write_raw(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        self.state().fs.write_raw(path.as_ref(), bytes);
    }

    /// Removes a file, durably; false if there is none.
    pub fn remove_raw(&self, path: impl AsRef<Path>) -> bool {
        self.state().fs.remove_raw(path.as_ref())
    }

    /// The paths of all files at or below a directory, with their sizes, sorted.
    pub fn list_raw(&self, dir: impl AsRef<Path>) -> Vec<(PathBuf, u64)> {
        self.state().fs.list_raw(dir.as_ref())
    }

    /// Makes all that is there durable, as if synced.
    pub fn settle(&self) {
        self.state().fs.settle();
    }

    /// The node's seed source, so that a test may draw where to strike.
    pub fn random_below(&self, bound: u64) -> u64 {
        self.core.rng.below(bound)
    }
}
