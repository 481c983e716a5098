//! Tests of loading and recovery over the simulator.

mod cases;
mod checkpoints;
mod compacted_end;
mod flips;
mod flushed;
mod head;
mod losses;
mod power_cut;
mod producers;
mod recipes;
mod recycle;
mod restart;
mod scenario;
mod scrub;
mod sites;

pub(crate) use power_cut::env_number;
pub(crate) use sites::{life_without_sync, recycling_without_sync};
