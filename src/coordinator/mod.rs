//! Groups and their committed offsets, as pure state machines.
//!
//! Calls, the end of appends and time go in; answers and records of
//! `__consumer_offsets` come out. No clock, file, socket or random source is used here:
//! `shard/groups` carries out what is asked for.

pub mod offsets;
pub mod records;
