//! Tests of loading and recovery over the simulator.

mod cases;
mod checkpoints;
mod head;
mod losses;
mod power_cut;
mod producers;
mod scenario;
mod sites;
