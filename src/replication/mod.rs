//! The replica of one partition as a pure state machine: events in, effects out.
//!
//! It decides what is visible. It has no clock, file, task or random source, so
//! one sequence of events gives one sequence of effects, and every rule here can
//! be tested by itself. [`crate::partition`] feeds it what the log did and carries
//! out what it asks for.
//!
//! Why acknowledgements are safe: the *durable offset* is the flushed offset
//! wherever the topic's policy asks for flushes, the high watermark (HW) only ever
//! moves to the least durable offset of the in-sync replicas (ISR), and acks=all
//! waits for the HW. So what acks=all acknowledged had been flushed before.
//!
//! What it is not: it neither reads nor writes a log, and it does not know who
//! waits for an offset.

mod replica;

pub use replica::{Replica, ReplicaEffect, ReplicaEffects, ReplicaEvent, ReplicaStart};

#[cfg(test)]
mod tests;
