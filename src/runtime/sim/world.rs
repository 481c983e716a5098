//! The control side of the simulator: worlds, their machines, crashes.

use super::control::SimDisk;
use super::disk::Disk;
use super::executor::Core;
use super::rt::SimRt;
use super::PowerCut;
use crate::runtime::Rt;
use std::cell::Cell;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;

/// A simulated world: nodes, one clock, one seed. Everything in it runs on the
/// calling thread, and only while one of the functions here runs it. The same seed
/// and the same program give the same run.
///
/// When it is dropped, all of its tasks are dropped; if that happens in a panic,
/// the seed is printed.
pub struct World {
    core: Rc<Core>,
}

/// A machine with a disk, a clock and an address. A handle; cheap to clone.
#[derive(Clone)]
pub struct SimNode {
    core: Rc<Core>,
    node: Rc<Node>,
}

pub(super) struct Node {
    pub index: usize,
    pub name: String,
    pub ip: IpAddr,
    /// Counts the runs: raised when a run ends.
    pub life: Cell<u64>,
    pub up: Cell<bool>,
    pub clock_skew_ms: Cell<i64>,
    pub disk: Disk,
}

impl World {
    /// A world without nodes.
    pub fn new(seed: u64) -> World {
        World {
            core: Rc::new(Core::new(seed)),
        }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.core.seed
    }

    /// Adds a machine with an empty disk; it is up.
    pub fn node(&self, name: &str) -> SimNode {
        let mut nodes = self.core.nodes.borrow_mut();
        let index = nodes.len();
        assert!(index < 250, "a world has at most 250 nodes");
        let node = Rc::new(Node {
            index,
            name: name.to_string(),
            ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1)),
            life: Cell::new(0),
            up: Cell::new(true),
            clock_skew_ms: Cell::new(0),
            disk: Disk::default(),
        });
        nodes.push(node.clone());
        drop(nodes);
        SimNode {
            core: self.core.clone(),
            node,
        }
    }

    /// Runs the world until `future`, which runs on `rt`'s node, is done.
    ///
    /// # Panics
    /// If nothing can run any more, or if the node crashed meanwhile (use
    /// [`World::block_on_until_crash`] where that is expected).
    pub fn block_on<T>(&self, rt: &Rt, future: impl Future<Output = T>) -> T {
        let done = self.block_on_until_crash(rt, future);
        done.unwrap_or_else(|| panic!("the node crashed (seed {})", self.seed()))
    }

    /// Runs the world until `future` is done, or until its node crashes or is
    /// killed (then `None`, and `future` is dropped).
    pub fn block_on_until_crash<T>(&self, rt: &Rt, future: impl Future<Output = T>) -> Option<T> {
        let rt = SimRt::of(rt).clone();
        self.core.block_on(future, u64::MAX, || !rt.is_alive())
    }

    /// Runs the world until `future` is done, for at most `limit` of virtual time.
    /// If it is not done then, it is dropped: that is the moment for
    /// [`SimNode::crash`].
    pub fn block_on_for<T>(
        &self,
        rt: &Rt,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let rt = SimRt::of(rt).clone();
        let deadline = self.core.now().saturating_add(limit.as_nanos() as u64);
        self.core.block_on(future, deadline, || !rt.is_alive())
    }

    /// Runs all tasks for this much virtual time.
    pub fn run_for(&self, duration: Duration) {
        let deadline = self.core.now().saturating_add(duration.as_nanos() as u64);
        self.core
            .block_on(std::future::pending::<()>(), deadline, || false);
    }

    /// Cuts the network between two nodes: what is sent arrives after
    /// [`World::heal`], new connections time out.
    pub fn cut(&self, a: &SimNode, b: &SimNode) {
        let (a, b) = (a.node.index, b.node.index);
        self.core.net.set_cut(&self.core, a, b, true);
    }

    /// Undoes [`World::cut`].
    pub fn heal(&self, a: &SimNode, b: &SimNode) {
        let (a, b) = (a.node.index, b.node.index);
        self.core.net.set_cut(&self.core, a, b, false);
    }

    /// Virtual time since the start of the world.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.core.now())
    }

    /// A number from the seed, for the choices of a test.
    pub fn random_below(&self, bound: u64) -> u64 {
        self.core.rng.below(bound)
    }

    /// A fingerprint of all that has happened: equal for equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.core.trace_hash()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "simulator: seed {}, virtual time {:?}",
                self.seed(),
                self.now()
            );
        }
        self.core.clear();
    }
}

impl SimNode {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// Its address.
    pub fn ip(&self) -> IpAddr {
        self.node.ip
    }

    /// The handle of its first executor.
    ///
    /// # Panics
    /// If the node is down.
    pub fn rt(&self) -> Rt {
        self.rt_shard(0)
    }

    /// The handle of one of its executors.
    ///
    /// # Panics
    /// If the node is down.
    pub fn rt_shard(&self, shard: usize) -> Rt {
        assert!(
            self.node.up.get(),
            "{} is down; restart it first",
            self.node.name
        );
        Rt::from(SimRt {
            core: self.core.clone(),
            node: self.node.clone(),
            life: self.node.life.get(),
            shard,
        })
    }

    /// Its disk, which survives crashes.
    pub fn disk(&self) -> SimDisk {
        SimDisk::new(self.core.clone(), self.node.clone())
    }

    /// True until a crash or a kill, and after a restart.
    pub fn is_up(&self) -> bool {
        self.node.up.get()
    }

    /// Sets its wall clock ahead (or back) of the world's.
    pub fn set_clock_skew_ms(&self, skew_ms: i64) {
        self.node.clock_skew_ms.set(skew_ms);
    }

    /// A power cut: its tasks are dropped where they stand, I/O in flight lands
    /// wholly, in part or not at all, and what was not flushed survives only by
    /// chance.
    pub fn crash(&self) {
        self.crash_with(PowerCut::Mixed);
    }

    /// A power cut with a given fate for what was not flushed.
    pub fn crash_with(&self, mode: PowerCut) {
        self.node.crash(&self.core, mode);
    }

    /// SIGKILL: its tasks are dropped where they stand. All that was written stays;
    /// I/O in flight lands or not.
    pub fn kill(&self) {
        self.node.kill(&self.core);
    }

    /// Starts it again on the surviving disk: a first executor's handle.
    ///
    /// # Panics
    /// If it is up.
    pub fn restart(&self) -> Rt {
        assert!(!self.node.up.get(), "{} is up already", self.node.name);
        self.node.up.set(true);
        self.rt()
    }
}

impl Node {
    pub fn clock_ms(&self, core: &Core) -> i64 {
        START_MS + (core.now() / 1_000_000) as i64 + self.clock_skew_ms.get()
    }

    pub fn crash(&self, core: &Core, mode: PowerCut) {
        if self.end_run(core) {
            self.disk.power_cut(core, mode);
        }
    }

    fn kill(&self, core: &Core) {
        if self.end_run(core) {
            self.disk.process_ended(core);
        }
    }

    /// Ends the run; false if the node was down.
    fn end_run(&self, core: &Core) -> bool {
        if !self.up.replace(false) {
            return false;
        }
        self.life.set(self.life.get() + 1);
        core.trace(self.life.get());
        core.forget_power_cut(self.index);
        // First, so that peers see a reset and not the orderly end that dropped
        // connections would send.
        core.net.node_down(core, self.index);
        core.drop_tasks(|node| node == self.index);
        true
    }
}

/// The wall clock at the start of every world: 2024-01-01T00:00:00Z.
const START_MS: i64 = 1_704_067_200_000;
