//! Faults that tests inject into a disk, and the count of those that fired.

use crate::runtime::{IoError, SyncSite};
use std::path::Path;

/// How a write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteFault {
    /// With this error number; nothing is written.
    Errno(i32),
    /// Only a part, in whole blocks, is written.
    Short,
}

#[derive(Default)]
pub(super) struct Faults {
    pub fired: u64,
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
        let fired = self.fired;
        *self = Faults {
            fired,
            ..Faults::default()
        };
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
        hit
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
        let Some((_, errno)) = self.reads.iter().find(|(part, _)| text.contains(part)) else {
            return Ok(());
        };
        self.fired += 1;
        Err(IoError::from_errno("read", text, *errno))
    }

    pub fn on_sync(&mut self, site: SyncSite) -> Option<i32> {
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
        hit
    }
}
