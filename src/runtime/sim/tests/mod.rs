//! Tests of the simulator itself.

mod disk;
