//! Tests of the simulator itself.

mod disk;
mod executor;
mod mesh;
mod net;
