//! The simulator side of the runtime: one thread, one seed, virtual time.
//!
//! A [`World`] holds nodes; each node has a disk that loses what was not synced when
//! the power is cut, a network address and any number of executors. The whole world
//! runs on the calling thread; which task runs next, how long I/O takes and what a
//! power cut leaves are drawn from the seed, so a failing run is repeated by its
//! seed alone.
//!
//! A test makes a world, runs a future on a node, cuts the power, looks at what is
//! left, or runs on after a restart:
//!
//! ```text
//! for seed in 0..1000 {
//!     let world = World::new(seed);
//!     let node = world.node("broker");
//!     let rt = node.rt();
//!     node.disk().cut_power_after_ops(1 + world.random_below(50), PowerCut::Mixed);
//!     let ended = world.block_on_until_crash(&rt, program(rt.clone()));
//!     if ended.is_none() {
//!         let rt = node.restart();
//!         world.block_on(&rt, check(rt.clone()));
//!     }
//! }
//! ```
//!
//! `SimDisk::disable_sync` makes one `SyncSite` lie, to prove that the test notices;
//! `SimDisk::set_verbose` prints what the disk does in a failing run.
//!
//! For the run to repeat, a program must not depend on anything else that varies: no
//! map with a random hasher decides an order, no thread, no address, no real clock.
//!
//! What it is not: a model of performance. Latencies exist to vary the order of
//! events.
#![allow(missing_docs)]

mod buf;
mod content;
mod control;
mod dir;
mod disk;
mod executor;
mod fault;
mod file;
mod fs;
mod mesh;
mod net;
mod rng;
mod rt;
#[cfg(test)]
mod tests;
mod world;

pub use buf::{SimSharedBuf, SimWriteBuf};
pub use control::SimDisk;
pub use dir::{SimDir, SimDirLock};
pub use fault::{FaultKind, FaultRates, WriteFault};
pub use file::SimFile;
pub use mesh::{mesh, SimMesh, SimMeshSeat, SimReplyTo};
pub use net::{SimAccepted, SimConn, SimConnCloser, SimConnReader, SimConnWriter, SimListener};
pub use rng::SimRng;
pub use rt::SimRt;
pub use world::{SimNode, World};

/// What a power cut does to changes that no sync has covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PowerCut {
    /// One of the others, drawn anew for each file and each directory.
    Mixed,
    /// All are lost.
    AllLost,
    /// All survive.
    AllKept,
    /// The first ones survive, in order; the last of a file may be torn.
    Prefix,
    /// Each sector and each change of a name or a size survives by itself, so later
    /// ones may survive without earlier ones (but for one name: in order).
    Sectors,
    /// As `Sectors`, and a lost sector in a block that never held durable data shows
    /// what some deleted file left there. File systems that the broker recommends
    /// show zeros instead, so `Mixed` never draws this one.
    Stale,
}

impl PowerCut {
    fn draw(rng: &SimRng) -> PowerCut {
        match rng.below(6) {
            0 => PowerCut::AllLost,
            1 => PowerCut::AllKept,
            2 => PowerCut::Prefix,
            _ => PowerCut::Sectors,
        }
    }
}

impl SimRt {
    /// The simulator's side of a handle.
    fn of(rt: &super::Rt) -> &SimRt {
        match &rt.0 {
            super::Side::Sim(rt) => rt,
            super::Side::Native(_) => panic!("this handle belongs to no simulated world"),
        }
    }
}
