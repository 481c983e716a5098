//! The names and files of a simulated disk, live and durable.
//!
//! A directory keeps what the running system sees, what is durable, and the changes
//! in between. A directory sync makes changes durable; at a power cut each change
//! that was not synced survives or not by chance, but a change never survives an
//! earlier one of the same name that was lost.

use super::content::{Change, FileContent};
use super::rng::SimRng;
use super::PowerCut;
use crate::runtime::{DirEntry, IoError, Space, BLOCK_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

pub(super) type InodeId = u64;

pub(super) struct FileSystem {
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    /// Numbers every change, so that a sync covers those before it began.
    seq: u64,
    time_ms: i64,
    capacity: u64,
    used: u64,
    /// Files that may have no name left.
    unlinked: usize,
}

struct Inode {
    modified_ms: i64,
    /// Held by open files.
    token: Rc<()>,
    kind: Kind,
}

enum Kind {
    File(FileContent),
    Dir(Names),
}

#[derive(Default)]
struct Names {
    live: BTreeMap<String, InodeId>,
    durable: BTreeMap<String, InodeId>,
    pending: Vec<(u64, NameChange)>,
}

enum NameChange {
    Link(String, InodeId),
    Unlink(String),
    Rename(String, String),
}

impl Default for FileSystem {
    fn default() -> FileSystem {
        let root = Inode {
            modified_ms: 0,
            token: Rc::default(),
            kind: Kind::Dir(Names::default()),
        };
        FileSystem {
            inodes: BTreeMap::from([(ROOT, root)]),
            next_inode: ROOT + 1,
            seq: 0,
            time_ms: 0,
            capacity: u64::MAX,
            used: 0,
            unlinked: 0,
        }
    }
}

impl FileSystem {
    pub fn last_seq(&self) -> u64 {
        self.seq
    }

    pub fn set_time_ms(&mut self, time_ms: i64) {
        self.time_ms = time_ms;
    }

    pub fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
    }

    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    /// The room of the disk; as large as can be, unless it is limited.
    pub fn space(&self) -> Space {
        Space {
            total_bytes: self.capacity,
            usable_bytes: match self.capacity {
                u64::MAX => u64::MAX,
                limit => limit.saturating_sub(self.used),
            },
        }
    }

    /// The size that a file could grow to on this disk.
    pub fn room_in(&self, inode: InodeId) -> u64 {
        let own = blocks_bytes(self.file(inode).live.size());
        let free = self.capacity.saturating_sub(self.used);
        own.saturating_add(free)
    }

    pub fn file(&self, inode: InodeId) -> &FileContent {
        match &self.inodes[&inode].kind {
            Kind::File(file) => file,
            Kind::Dir(_) => unreachable!("a directory is never open as a file"),
        }
    }

    pub fn file_mut(&mut self, inode: InodeId) -> &mut FileContent {
        match self.inodes.get_mut(&inode).map(|i| &mut i.kind) {
            Some(Kind::File(file)) => file,
            _ => unreachable!("an open file keeps its content"),
        }
    }

    /// A token; while it is held, the file keeps its content without a name.
    pub fn hold(&self, inode: InodeId) -> Rc<()> {
        self.inodes[&inode].token.clone()
    }

    /// Changes a file's content, not durably.
    pub fn change(&mut self, inode: InodeId, change: Change) {
        self.seq += 1;
        let (seq, time_ms) = (self.seq, self.time_ms);
        let file = self.file_mut(inode);
        let before = blocks_bytes(file.live.size());
        file.change(seq, change);
        let after = blocks_bytes(file.live.size());
        self.used = self.used + after - before;
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.modified_ms = time_ms;
        }
    }

    pub fn dir_exists(&self, path: &Path) -> Result<bool, IoError> {
        Ok(self.lookup(path).is_some_and(|id| self.names(id).is_some()))
    }

    pub fn find_file(&self, op: &'static str, path: &Path) -> Result<InodeId, IoError> {
        let id = self.resolve(op, path)?;
        match self.names(id) {
            None => Ok(id),
            Some(_) => Err(errno(op, path, libc::EISDIR)),
        }
    }

    pub fn find_dir(&self, op: &'static str, path: &Path) -> Result<InodeId, IoError> {
        let id = self.resolve(op, path)?;
        match self.names(id) {
            Some(_) => Ok(id),
            None => Err(errno(op, path, libc::ENOTDIR)),
        }
    }

    pub fn create_file(&mut self, op: &'static str, path: &Path) -> Result<InodeId, IoError> {
        self.create(op, path, Kind::File(FileContent::default()))
    }

    /// False if it exists already.
    pub fn create_dir(&mut self, op: &'static str, path: &Path) -> Result<bool, IoError> {
        if self.lookup(path).is_some() {
            return self.find_dir(op, path).map(|_| false);
        }
        self.create(op, path, Kind::Dir(Names::default()))?;
        Ok(true)
    }

    pub fn list(&self, path: &Path) -> Result<Vec<DirEntry>, IoError> {
        let dir = self.find_dir("list", path)?;
        let entries = self.names(dir).into_iter().flat_map(|n| n.live.iter());
        Ok(entries
            .map(|(name, id)| {
                let inode = &self.inodes[id];
                DirEntry {
                    name: name.clone(),
                    is_dir: matches!(inode.kind, Kind::Dir(_)),
                    is_file: matches!(inode.kind, Kind::File(_)),
                    len: match &inode.kind {
                        Kind::File(file) => file.live.size(),
                        Kind::Dir(_) => 0,
                    },
                    modified_ms: inode.modified_ms,
                }
            })
            .collect())
    }

    /// Makes a directory's changes up to `seq` durable.
    pub fn flush_dir(&mut self, dir: InodeId, seq: u64) {
        // The directory may have been removed since the sync began.
        if let Some(names) = self.names_mut(dir) {
            names.flush(seq);
        }
        self.collect_unlinked(64);
    }

    pub fn remove_file(&mut self, path: &Path) -> Result<(), IoError> {
        self.find_file("remove", path)?;
        let (dir, name) = self.parent("remove", path)?;
        self.change_names(dir, NameChange::Unlink(name));
        self.unlinked += 1;
        self.collect_unlinked(256);
        Ok(())
    }

    pub fn rename(&mut self, dir: &Path, from: &str, to: &str) -> Result<(), IoError> {
        let parent = self.find_dir("rename", dir)?;
        let source = self
            .lookup(&dir.join(from))
            .ok_or_else(|| absent("rename", &dir.join(from)))?;
        if let Some(target) = self.lookup(&dir.join(to)) {
            if target == source {
                return Ok(());
            }
            match (self.names(source), self.names(target)) {
                (None, None) => self.unlinked += 1,
                (Some(_), Some(n)) if n.live.is_empty() => self.unlinked += 1,
                (Some(_), Some(_)) => return Err(errno("rename", &dir.join(to), libc::ENOTEMPTY)),
                (Some(_), None) => return Err(errno("rename", &dir.join(to), libc::ENOTDIR)),
                (None, Some(_)) => return Err(errno("rename", &dir.join(to), libc::EISDIR)),
            }
        }
        self.change_names(parent, NameChange::Rename(from.into(), to.into()));
        Ok(())
    }

    pub fn remove_dir_all(&mut self, path: &Path) -> Result<(), IoError> {
        let dir = self.find_dir("remove", path)?;
        let (parent, name) = self.parent("remove", path)?;
        self.empty_dir(dir);
        self.change_names(parent, NameChange::Unlink(name));
        self.unlinked += 1;
        self.collect_unlinked(256);
        Ok(())
    }

    /// Leaves what survives of everything, given the changes that were in flight.
    pub fn power_cut(
        &mut self,
        mut in_flight: BTreeMap<InodeId, Vec<Change>>,
        mode: PowerCut,
        rng: &SimRng,
    ) {
        for (id, inode) in &mut self.inodes {
            match &mut inode.kind {
                Kind::File(file) => {
                    file.power_cut(in_flight.remove(id).unwrap_or_default(), mode, rng)
                }
                Kind::Dir(names) => names.power_cut(mode, rng),
            }
        }
        self.unlinked = 1;
        self.collect_unlinked(0);
        self.count_used();
    }

    fn create(&mut self, op: &'static str, path: &Path, kind: Kind) -> Result<InodeId, IoError> {
        let (dir, name) = self.parent(op, path)?;
        if self.lookup(path).is_some() {
            return Err(errno(op, path, libc::EEXIST));
        }
        let id = self.next_inode;
        self.next_inode += 1;
        let inode = Inode {
            modified_ms: self.time_ms,
            token: Rc::default(),
            kind,
        };
        self.inodes.insert(id, inode);
        self.change_names(dir, NameChange::Link(name, id));
        Ok(id)
    }

    fn change_names(&mut self, dir: InodeId, change: NameChange) {
        self.seq += 1;
        let seq = self.seq;
        if let Some(names) = self.names_mut(dir) {
            change.apply(&mut names.live);
            names.pending.push((seq, change));
        }
    }

    fn empty_dir(&mut self, dir: InodeId) {
        let entries: Vec<(String, InodeId)> = match self.names(dir) {
            Some(names) => names.live.iter().map(|(n, i)| (n.clone(), *i)).collect(),
            None => return,
        };
        for (name, id) in entries {
            self.empty_dir(id);
            self.change_names(dir, NameChange::Unlink(name));
        }
    }

    fn resolve(&self, op: &'static str, path: &Path) -> Result<InodeId, IoError> {
        if let Some(id) = self.lookup(path) {
            return Ok(id);
        }
        let mut above = path.ancestors().skip(1).filter_map(|p| self.lookup(p));
        match above.next().and_then(|id| self.names(id)) {
            Some(_) => Err(absent(op, path)),
            None => Err(errno(op, path, libc::ENOTDIR)),
        }
    }

    fn lookup(&self, path: &Path) -> Option<InodeId> {
        let mut at = ROOT;
        for part in path.components() {
            match part {
                Component::Normal(name) => {
                    at = *self.names(at)?.live.get(name.to_str()?)?;
                }
                Component::RootDir | Component::CurDir => {}
                Component::ParentDir | Component::Prefix(_) => return None,
            }
        }
        Some(at)
    }

    fn parent(&self, op: &'static str, path: &Path) -> Result<(InodeId, String), IoError> {
        let dir = self.find_dir(op, path.parent().unwrap_or(Path::new("/")))?;
        match path.file_name().and_then(|n| n.to_str()) {
            Some(name) => Ok((dir, name.to_string())),
            None => Err(errno(op, path, libc::EINVAL)),
        }
    }

    fn names(&self, id: InodeId) -> Option<&Names> {
        match &self.inodes.get(&id)?.kind {
            Kind::Dir(names) => Some(names),
            Kind::File(_) => None,
        }
    }

    fn names_mut(&mut self, id: InodeId) -> Option<&mut Names> {
        match &mut self.inodes.get_mut(&id)?.kind {
            Kind::Dir(names) => Some(names),
            Kind::File(_) => None,
        }
    }

    /// Frees files that have no name, neither live nor durable nor in a change
    /// between the two, and that nobody holds open; once there may be `least`.
    fn collect_unlinked(&mut self, least: usize) {
        if self.unlinked <= least {
            return;
        }
        self.unlinked = 0;
        let mut reached = BTreeSet::from([ROOT]);
        let mut todo = vec![ROOT];
        while let Some(id) = todo.pop() {
            let Some(names) = self.names(id) else {
                continue;
            };
            let linked = names.pending.iter().filter_map(|(_, change)| match change {
                NameChange::Link(_, id) => Some(*id),
                _ => None,
            });
            let named = names.live.values().chain(names.durable.values()).copied();
            for id in named.chain(linked) {
                if reached.insert(id) {
                    todo.push(id);
                }
            }
        }
        self.inodes
            .retain(|id, inode| reached.contains(id) || Rc::strong_count(&inode.token) > 1);
        self.count_used();
    }

    fn count_used(&mut self) {
        let sizes = self.inodes.values().map(|inode| match &inode.kind {
            Kind::File(file) => blocks_bytes(file.live.size()),
            Kind::Dir(_) => 0,
        });
        self.used = sizes.sum();
    }
}

/// What tests do behind the system's back: at once, and durably.
impl FileSystem {
    pub fn corrupt(&mut self, path: &Path, offset: u64, bytes: &[u8]) {
        let found = self.find_file("corrupt", path);
        let inode = found.unwrap_or_else(|e| panic!("{e}"));
        self.patch(inode, offset, bytes);
    }

    pub fn patch(&mut self, inode: InodeId, offset: u64, bytes: &[u8]) {
        let file = self.file_mut(inode);
        file.live.patch(offset, bytes);
        file.durable.patch(offset, bytes);
        self.count_used();
    }

    /// The files of a directory with what of them is durable, by their durable names.
    pub fn list_durable(&self, dir: &Path) -> Vec<(String, Vec<u8>)> {
        let mut at = ROOT;
        for part in dir.components() {
            if let Component::Normal(name) = part {
                let names = self.names(at).map(|n| &n.durable);
                let next = names.and_then(|n| n.get(name.to_str()?));
                match next {
                    Some(next) => at = *next,
                    None => return Vec::new(),
                }
            }
        }
        let names = self.names(at).into_iter().flat_map(|n| n.durable.iter());
        let files = names.filter_map(|(name, id)| match &self.inodes.get(id)?.kind {
            Kind::File(file) => {
                let content = &file.durable;
                let bytes = content.read(0, content.size() as usize).to_vec();
                Some((name.clone(), bytes))
            }
            Kind::Dir(_) => None,
        });
        files.collect()
    }

    pub fn read_raw(&self, path: &Path) -> Option<Vec<u8>> {
        let inode = self.find_file("read", path).ok()?;
        let content = &self.file(inode).live;
        Some(content.read(0, content.size() as usize).to_vec())
    }

    pub fn write_raw(&mut self, path: &Path, bytes: &[u8]) {
        let mut above: Vec<PathBuf> = path.ancestors().skip(1).map(PathBuf::from).collect();
        above.reverse();
        for dir in above {
            self.create_dir("write_raw", &dir)
                .unwrap_or_else(|e| panic!("{e}"));
        }
        self.remove_raw(path);
        let made = self.create_file("write_raw", path);
        let inode = made.unwrap_or_else(|e| panic!("{e}"));
        self.file_mut(inode).live.patch(0, bytes);
        self.file_mut(inode).settle();
        self.settle_names_above(path);
        self.count_used();
    }

    pub fn remove_raw(&mut self, path: &Path) -> bool {
        let gone = self.remove_file(path).is_ok();
        self.settle_names_above(path);
        gone
    }

    pub fn list_raw(&self, dir: &Path) -> Vec<(PathBuf, u64)> {
        let mut out = Vec::new();
        for entry in self.list(dir).unwrap_or_default() {
            let path = dir.join(&entry.name);
            if entry.is_dir {
                out.extend(self.list_raw(&path));
            } else {
                out.push((path, entry.len));
            }
        }
        out.sort();
        out
    }

    pub fn settle(&mut self) {
        for inode in self.inodes.values_mut() {
            match &mut inode.kind {
                Kind::File(file) => file.settle(),
                Kind::Dir(names) => names.flush(u64::MAX),
            }
        }
    }

    fn settle_names_above(&mut self, path: &Path) {
        for dir in path.ancestors().skip(1) {
            if let Some(names) = self.lookup(dir).and_then(|id| self.names_mut(id)) {
                names.flush(u64::MAX);
            }
        }
    }
}

impl Names {
    fn flush(&mut self, seq: u64) {
        let count = self.pending.partition_point(|(s, _)| *s <= seq);
        for (_, change) in self.pending.drain(..count) {
            change.apply(&mut self.durable);
        }
    }

    fn power_cut(&mut self, mode: PowerCut, rng: &SimRng) {
        let mode = match mode {
            PowerCut::Mixed => PowerCut::draw(rng),
            fixed => fixed,
        };
        let pending = std::mem::take(&mut self.pending);
        let prefix = match mode {
            PowerCut::AllLost => 0,
            PowerCut::Prefix => rng.below(pending.len() as u64 + 1) as usize,
            _ => pending.len(),
        };
        let mut lost = BTreeSet::new();
        for (_, change) in &pending[..prefix] {
            let names = change.names();
            let each = matches!(mode, PowerCut::Sectors | PowerCut::Stale);
            let chance = each && rng.one_in(2);
            if chance || names.iter().any(|n| lost.contains(*n)) {
                lost.extend(names.iter().map(|n| n.to_string()));
            } else {
                change.apply(&mut self.durable);
            }
        }
        self.live = self.durable.clone();
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, InodeId>) {
        match self {
            NameChange::Link(name, id) => {
                names.insert(name.clone(), *id);
            }
            NameChange::Unlink(name) => {
                names.remove(name);
            }
            NameChange::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
        }
    }

    fn names(&self) -> Vec<&str> {
        match self {
            NameChange::Link(name, _) | NameChange::Unlink(name) => vec![name],
            NameChange::Rename(from, to) => vec![from, to],
        }
    }
}

fn blocks_bytes(size: u64) -> u64 {
    size.next_multiple_of(BLOCK_BYTES as u64)
}

fn errno(op: &'static str, path: &Path, errno: i32) -> IoError {
    IoError::from_errno(op, path.display().to_string(), errno)
}

fn absent(op: &'static str, path: &Path) -> IoError {
    errno(op, path, libc::ENOENT)
}

const ROOT: InodeId = 1;
