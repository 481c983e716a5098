//! Tests of loading and recovery over the simulator.

mod cases;
mod head;
mod losses;
mod power_cut;
mod producers;
mod recycle;
mod scenario;
mod scrub;
mod sites;
