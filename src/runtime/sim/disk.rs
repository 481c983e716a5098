//! The simulated disk: operations in flight, faults, power cuts.
//!
//! Every operation takes a time drawn from the seed and takes effect when that time
//! has passed, so operations complete in another order than they were given. An
//! operation belongs to the disk, not to the future that waits for it: dropping the
//! future does not stop it.

use super::content::Change;
use super::executor::{Core, Timer};
use super::fault::{FaultKind, Faults, WriteFault};
use super::fs::{FileSystem, InodeId};
use super::rt::SimRt;
use super::PowerCut;
use crate::runtime::local::{oneshot, OneshotSender};
use crate::runtime::{DirEntry, IoError, IoErrorKind, OpenMode, SyncSite, BLOCK_BYTES};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

#[derive(Default)]
pub(super) struct Disk(pub RefCell<State>);

#[derive(Default)]
pub(super) struct State {
    pub fs: FileSystem,
    in_flight: BTreeMap<u64, InFlight>,
    next_op: u64,
    locks: BTreeSet<InodeId>,
    pub faults: Faults,
    pub disabled: BTreeSet<SyncSite>,
    pub sync_counts: BTreeMap<SyncSite, u64>,
    pub writes: u64,
    pub reads: u64,
    /// How many operations of each name were asked for.
    pub ops: BTreeMap<&'static str, u64>,
    /// How many operations are still taken before the power is cut.
    pub ops_before_cut: Option<(u64, PowerCut)>,
    /// Operations are printed as they complete.
    pub verbose: bool,
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
    /// Fewer than there are.
    Part(Bytes),
    Size(u64),
    Yes(bool),
    Entries(Vec<DirEntry>),
    /// An open file; the token keeps an unlinked file's content.
    Inode(InodeId, Rc<()>),
}

impl SimRt {
    /// Gives an operation to the disk and waits for it.
    pub(super) async fn disk_op(&self, op: Op) -> Result<Outcome, IoError> {
        let name = op.name();
        if !self.is_alive() {
            return Err(self.dead_error(name, op.target()));
        }
        let done = self.node.disk.submit(&self.core, self.node.index, op);
        self.core.note_wait(name);
        match done.await {
            Some(result) => result,
            None => Err(self.dead_error(name, "its disk")),
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
        let mut state = self.0.borrow_mut();
        let latency = op.latency_nanos(core) * state.slowness(&op);
        *state.ops.entry(op.name()).or_default() += 1;
        state.next_op += 1;
        let id = state.next_op;
        let in_flight = InFlight {
            open: op.inode().map(|inode| state.fs.hold(inode)),
            op,
            seq_at_start: state.fs.last_seq(),
            done,
        };
        state.in_flight.insert(id, in_flight);
        if let Some((left, mode)) = &mut state.ops_before_cut {
            *left -= 1;
            if *left == 0 {
                core.cut_power_soon(node, *mode);
                state.ops_before_cut = None;
            }
        }
        drop(state);
        core.set_timer(core.now() + latency, Timer::Disk { node, op: id });
        receiver
    }

    pub fn complete(&self, core: &Core, id: u64, clock_ms: i64) {
        let mut state = self.0.borrow_mut();
        state.fs.set_time_ms(clock_ms);
        // Absent if a crash took it.
        let Some(in_flight) = state.in_flight.remove(&id) else {
            return;
        };
        let told = state.verbose.then(|| in_flight.op.describe());
        let result = state.perform(core, in_flight.op, in_flight.seq_at_start);
        drop(state);
        if let Some(told) = told {
            let error = result.as_ref().err();
            let at = std::time::Duration::from_nanos(core.now());
            eprintln!(
                "{at:?} {told} {}",
                error.map_or("ok".into(), |e| e.to_string())
            );
        }
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
        state.ops_before_cut = None;
        drop(state);
        drop(in_flight);
    }

    /// The process ended, the machine lives: operations in flight happen or not.
    pub fn process_ended(&self, core: &Core) {
        let in_flight = std::mem::take(&mut self.0.borrow_mut().in_flight);
        self.0.borrow_mut().ops_before_cut = None;
        for (_, mut flight) in in_flight {
            if core.rng.one_in(2) {
                if let Op::Write { data, .. } = &mut flight.op {
                    if core.rng.one_in(2) {
                        let blocks = (data.len() / BLOCK_BYTES) as u64;
                        data.truncate(core.rng.below(blocks + 1) as usize * BLOCK_BYTES);
                    }
                }
                let result = self
                    .0
                    .borrow_mut()
                    .perform(core, flight.op, flight.seq_at_start);
                drop(result);
            }
        }
        self.0.borrow_mut().locks.clear();
    }

    pub fn in_flight_count(&self) -> usize {
        self.0.borrow().in_flight.len()
    }

    pub fn unlock(&self, inode: InodeId) {
        self.0.borrow_mut().locks.remove(&inode);
    }
}

impl State {
    fn perform(&mut self, core: &Core, op: Op, seq_at_start: u64) -> Result<Outcome, IoError> {
        self.faults.on_op(op.name(), || op.target())?;
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
                let mut bytes = self.fs.file(inode).live.read(pos, len);
                let short = bytes.len() > 1 && self.faults.strikes(FaultKind::ShortRead, &path);
                if short {
                    let fewer = 1 + self.faults.draw_below(bytes.len() as u64 - 1);
                    bytes.truncate(fewer as usize);
                }
                let bytes = self.flip(inode, &path, pos, bytes);
                Ok(match short {
                    true => Outcome::Part(bytes),
                    false => Outcome::Bytes(bytes),
                })
            }
            Op::SyncData { inode, path, site } => {
                let file = |fs: &mut FileSystem, failed| {
                    if failed {
                        fs.file_mut(inode).fail_flush(seq_at_start, &core.rng);
                    } else {
                        fs.file_mut(inode).flush(seq_at_start);
                    }
                };
                self.sync("fdatasync", &path, site, FaultKind::FlushError, file)
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
                let dir = |fs: &mut FileSystem, failed: bool| {
                    if !failed {
                        fs.flush_dir(inode, seq_at_start);
                    }
                };
                self.sync("fsync", &path, site, FaultKind::DirSyncError, dir)
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
                        IoErrorKind::Unusable,
                        format!(
                            "the file has {} bytes, more than the {len_max} expected",
                            content.size()
                        ),
                    ));
                }
                let bytes = content.read(0, content.size() as usize);
                Ok(Outcome::Bytes(self.flip(inode, &path, 0, bytes)))
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
        kind: FaultKind,
        flush: impl FnOnce(&mut FileSystem, bool),
    ) -> Result<Outcome, IoError> {
        *self.sync_counts.entry(site).or_default() += 1;
        if let Some(errno) = self.faults.on_sync(site, kind, path) {
            flush(&mut self.fs, true);
            return Err(IoError::from_errno(op, path.display().to_string(), errno));
        }
        if !self.disabled.contains(&site) {
            flush(&mut self.fs, false);
        }
        Ok(Outcome::Done)
    }

    /// What a read of the file at `pos` gives, where the plan may have a bit wrong.
    fn flip(&mut self, inode: InodeId, path: &Path, pos: u64, bytes: Bytes) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        let lasting = self.faults.strikes(FaultKind::LastingBitFlip, path);
        if !lasting && !self.faults.strikes(FaultKind::BitFlip, path) {
            return bytes;
        }
        let bit = self.faults.draw_below(bytes.len() as u64 * 8);
        let at = (bit / 8) as usize;
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (bit % 8);
        if lasting {
            self.fs.patch(inode, pos + at as u64, &flipped[at..at + 1]);
        }
        Bytes::from(flipped)
    }

    /// How many times longer than usual an operation takes.
    fn slowness(&mut self, op: &Op) -> u64 {
        let (Op::SyncData { path, .. } | Op::SyncDir { path, .. }) = op else {
            return 1;
        };
        match self.faults.strikes(FaultKind::SlowFlush, path) {
            true => 10 + self.faults.draw_below(991),
            false => 1,
        }
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

    /// For people who follow a run.
    fn describe(&self) -> String {
        let detail = match self {
            Op::Write { pos, data, .. } => format!(" {} bytes at {pos}", data.len()),
            Op::Read { pos, len, .. } => format!(" {len} bytes at {pos}"),
            Op::SyncData { site, .. } | Op::SyncDir { site, .. } => format!(" ({site:?})"),
            Op::PreAllocate { size, .. } | Op::Truncate { size, .. } => format!(" to {size}"),
            Op::Rename { to, .. } => format!(" to {to}"),
            Op::WriteWhole { content, .. } => format!(" {} bytes", content.len()),
            _ => String::new(),
        };
        format!("{} {}{detail}", self.name(), self.target())
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
