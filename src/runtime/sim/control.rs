//! What a test may do to a node's disk: count, disable, break, look behind.

use super::disk::State;
use super::executor::Core;
use super::fault::{FaultKind, FaultRates, WriteFault};
use super::world::Node;
use super::PowerCut;
use crate::runtime::SyncSite;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A node's disk, as the tests control it. A handle; cheap to clone.
#[derive(Clone)]
pub struct SimDisk {
    core: Rc<Core>,
    node: Rc<Node>,
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

    /// How many operations were asked for, by the names of [`SimDisk::fail_ops`].
    pub fn op_counts(&self) -> BTreeMap<&'static str, u64> {
        self.state().ops.clone()
    }

    /// How many operations are in flight.
    pub fn in_flight_count(&self) -> usize {
        self.node.disk.in_flight_count()
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

    /// All operations of this name on paths that contain `path` fail: `open`,
    /// `read`, `write`, `fdatasync`, `fsync`, `fallocate`, `ftruncate`, `stat`,
    /// `mkdir`, `list`, `remove`, `rename`, `lock`. A sync that fails so keeps what it
    /// covered for a later one, unlike [`SimDisk::fail_syncs`].
    pub fn fail_ops(&self, op: &'static str, path: &str, errno: i32) {
        self.state().faults.fail_ops(op, path, errno);
    }

    /// All syncs at this site (or anywhere) fail. What a file's sync covered may be
    /// durable or not, and no later sync tries again; a directory's sync may be
    /// repeated.
    pub fn fail_syncs(&self, site: Option<SyncSite>, errno: i32) {
        self.state().faults.fail_syncs(site, errno);
    }

    /// The `n`th sync from now (1 is the next) at this site (or anywhere) fails.
    pub fn fail_nth_sync(&self, site: Option<SyncSite>, n: u64, errno: i32) {
        self.state().faults.fail_nth_sync(site, n, errno);
    }

    /// From now on operations fail by chance, by these rates; the node's seed decides when. Replaces the rates
    /// before; [`SimDisk::clear_faults`] ends it.
    pub fn faults_by_seed(&self, rates: FaultRates) {
        let seed = self.core.rng.next_u64();
        self.state().faults.plan(rates, seed);
    }

    /// How many times the rates of [`SimDisk::faults_by_seed`] have had `kind` happen.
    pub fn planned_faults(&self, kind: FaultKind) -> u64 {
        self.state().faults.fired_of(kind)
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

    /// The files of a directory, by name, with what of each would be left if the power were cut now and all that
    /// is not durable were lost. A directory whose own name is not durable has none.
    pub fn read_durable(&self, dir: impl AsRef<Path>) -> Vec<(String, Vec<u8>)> {
        self.state().fs.list_durable(dir.as_ref())
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

    /// Cuts the power right after the `n`th operation from now (1 is the next) has
    /// been given to the disk: it is then in flight, and nothing runs any further.
    /// A run that asks for fewer operations ends without a power cut; a kill or a
    /// crash ends the order.
    pub fn cut_power_after_ops(&self, n: u64, mode: PowerCut) {
        assert!(n > 0, "the next operation is number 1");
        self.state().ops_before_cut = Some((n, mode));
    }

    /// True while an ordered power cut has not happened.
    pub fn power_cut_is_due(&self) -> bool {
        self.state().ops_before_cut.is_some()
    }

    /// Prints every operation as it completes, to follow a failing seed.
    pub fn set_verbose(&self, verbose: bool) {
        self.state().verbose = verbose;
    }

    /// The node's seed source, so that a test may draw where to strike.
    pub fn random_below(&self, bound: u64) -> u64 {
        self.core.rng.below(bound)
    }
}
