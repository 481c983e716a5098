//! Faults that tests inject into a disk, and the count of those that fired.

use super::rng::SimRng;
use crate::runtime::{IoError, SyncSite};
use std::collections::BTreeMap;
use std::path::Path;

/// How a write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteFault {
    /// With this error number; nothing is written.
    Errno(i32),
    /// Only a part, in whole blocks, is written.
    Short,
}

/// What a plan does to operations (see [`FaultRates`]); each kind is counted by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// A write fails with EIO; nothing is written.
    WriteError,
    /// A write finds no space; nothing is written.
    NoSpace,
    /// Only a part of a write, in whole blocks, is written.
    ShortWrite,
    /// A file's flush fails with EIO: what it covered may be durable or not, and no later one tries again.
    FlushError,
    /// A directory's sync fails with EIO: its names are as undecided as before.
    DirSyncError,
    /// A sync takes 10 to 1000 times as long.
    SlowFlush,
    /// A read fails with EIO.
    ReadError,
    /// A read gives fewer bytes than there are, at least one.
    ShortRead,
    /// One bit of what a read gives is wrong, this once.
    BitFlip,
    /// One bit of what a read gives is wrong, and stays so until it is written again: the medium has changed.
    LastingBitFlip,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [FaultKind; 10] = [
        FaultKind::WriteError,
        FaultKind::NoSpace,
        FaultKind::ShortWrite,
        FaultKind::FlushError,
        FaultKind::DirSyncError,
        FaultKind::SlowFlush,
        FaultKind::ReadError,
        FaultKind::ShortRead,
        FaultKind::BitFlip,
        FaultKind::LastingBitFlip,
    ];
}

/// How often the operations of a disk fail: of each kind once in so many operations that it could happen to, on
/// average. A kind without a rate never happens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultRates {
    once_in: BTreeMap<FaultKind, u64>,
    path: String,
}

impl FaultRates {
    /// Nothing fails.
    pub fn none() -> FaultRates {
        FaultRates::default()
    }

    /// `kind` happens once in `operations`, on average; with 1 always.
    #[must_use]
    pub fn with(mut self, kind: FaultKind, operations: u64) -> FaultRates {
        assert!(operations > 0, "a kind that never happens has no rate");
        self.once_in.insert(kind, operations);
        self
    }

    /// `kind` does not happen.
    #[must_use]
    pub fn without(mut self, kind: FaultKind) -> FaultRates {
        self.once_in.remove(&kind);
        self
    }

    /// Only operations on paths that contain `part` fail.
    #[must_use]
    pub fn on_paths(mut self, part: &str) -> FaultRates {
        self.path = part.to_string();
        self
    }
}

/// Rates and the chance that decides, of its own, so that what else is drawn from the world's does not depend on
/// how many operations could fail.
struct Plan {
    rates: FaultRates,
    rng: SimRng,
}

#[derive(Default)]
pub(super) struct Faults {
    pub fired: u64,
    fired_by_kind: BTreeMap<FaultKind, u64>,
    plan: Option<Plan>,
    nth_writes: Vec<(u64, WriteFault)>,
    writes: Vec<(String, WriteFault)>,
    reads: Vec<(String, i32)>,
    ops: Vec<(&'static str, String, i32)>,
    syncs: Vec<(Option<SyncSite>, i32)>,
    nth_syncs: Vec<(Option<SyncSite>, u64, i32)>,
}

impl Faults {
    pub fn fail_nth_write(&mut self, n: u64, fault: WriteFault) {
        assert!(n > 0, "the next write is number 1");
        self.nth_writes.push((n, fault));
    }

    pub fn fail_writes(&mut self, path: &str, fault: WriteFault) {
        self.writes.push((path.to_string(), fault));
    }

    pub fn fail_reads(&mut self, path: &str, errno: i32) {
        self.reads.push((path.to_string(), errno));
    }

    pub fn fail_ops(&mut self, op: &'static str, path: &str, errno: i32) {
        self.ops.push((op, path.to_string(), errno));
    }

    pub fn fail_syncs(&mut self, site: Option<SyncSite>, errno: i32) {
        self.syncs.push((site, errno));
    }

    pub fn fail_nth_sync(&mut self, site: Option<SyncSite>, n: u64, errno: i32) {
        assert!(n > 0, "the next sync is number 1");
        self.nth_syncs.push((site, n, errno));
    }

    pub fn clear(&mut self) {
        *self = Faults {
            fired: self.fired,
            fired_by_kind: std::mem::take(&mut self.fired_by_kind),
            ..Faults::default()
        };
    }

    pub fn plan(&mut self, rates: FaultRates, seed: u64) {
        self.plan = Some(Plan {
            rates,
            rng: SimRng::new(seed),
        });
    }

    pub fn fired_of(&self, kind: FaultKind) -> u64 {
        self.fired_by_kind.get(&kind).copied().unwrap_or(0)
    }

    /// Whether the plan has `kind` happen to an operation on `path` now.
    pub fn strikes(&mut self, kind: FaultKind, path: &Path) -> bool {
        let Some(plan) = &self.plan else {
            return false;
        };
        let hit = match plan.rates.once_in.get(&kind) {
            Some(n) => path.to_string_lossy().contains(&plan.rates.path) && plan.rng.one_in(*n),
            None => false,
        };
        if hit {
            self.fired += 1;
            *self.fired_by_kind.entry(kind).or_default() += 1;
        }
        hit
    }

    /// A number from the plan's chance.
    pub fn draw_below(&self, bound: u64) -> u64 {
        let plan = self.plan.as_ref().expect("a plan that has just struck");
        plan.rng.below(bound)
    }

    pub fn on_write(&mut self, path: &Path) -> Option<WriteFault> {
        let mut hit = None;
        self.nth_writes.retain_mut(|(n, fault)| {
            *n -= 1;
            if *n == 0 {
                hit = Some(*fault);
            }
            *n > 0
        });
        let text = path.to_string_lossy();
        let by_path = self.writes.iter().find(|(part, _)| text.contains(part));
        let hit = hit.or(by_path.map(|(_, fault)| *fault));
        self.fired += u64::from(hit.is_some());
        hit.or_else(|| self.planned_write(path))
    }

    fn planned_write(&mut self, path: &Path) -> Option<WriteFault> {
        let kinds = [
            (FaultKind::WriteError, WriteFault::Errno(libc::EIO)),
            (FaultKind::NoSpace, WriteFault::Errno(libc::ENOSPC)),
            (FaultKind::ShortWrite, WriteFault::Short),
        ];
        let struck = kinds
            .into_iter()
            .find(|(kind, _)| self.strikes(*kind, path));
        struck.map(|(_, fault)| fault)
    }

    pub fn on_op(
        &mut self,
        op: &'static str,
        target: impl FnOnce() -> String,
    ) -> Result<(), IoError> {
        if self.ops.is_empty() {
            return Ok(());
        }
        let target = target();
        let hit = |f: &&(&str, String, i32)| f.0 == op && target.contains(&f.1);
        let Some((_, _, errno)) = self.ops.iter().find(hit) else {
            return Ok(());
        };
        self.fired += 1;
        Err(IoError::from_errno(op, target, *errno))
    }

    pub fn on_read(&mut self, path: &Path) -> Result<(), IoError> {
        let text = path.to_string_lossy();
        let listed = self.reads.iter().find(|(part, _)| text.contains(part));
        let errno = match listed.map(|(_, errno)| *errno) {
            Some(errno) => {
                self.fired += 1;
                errno
            }
            None if self.strikes(FaultKind::ReadError, path) => libc::EIO,
            None => return Ok(()),
        };
        Err(IoError::from_errno("read", text, errno))
    }

    pub fn on_sync(&mut self, site: SyncSite, kind: FaultKind, path: &Path) -> Option<i32> {
        let at = |wanted: Option<SyncSite>| wanted.is_none_or(|s| s == site);
        let mut hit = None;
        self.nth_syncs.retain_mut(|(wanted, n, errno)| {
            if !at(*wanted) {
                return true;
            }
            *n -= 1;
            if *n == 0 {
                hit = Some(*errno);
            }
            *n > 0
        });
        let lasting = self.syncs.iter().find(|(wanted, _)| at(*wanted));
        let hit = hit.or(lasting.map(|(_, errno)| *errno));
        self.fired += u64::from(hit.is_some());
        hit.or_else(|| self.strikes(kind, path).then_some(libc::EIO))
    }
}
