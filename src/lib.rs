//! Highwater, a Kafka-wire-compatible log broker.
//!
//! `src/README.md` is the map of the source: which room holds what, and which
//! rooms a room may use. `tests/rooms.rs` holds the code to that map.

pub mod cli;
pub mod client;
pub mod config;
pub mod controller;
pub mod coordinator;
pub mod metadata;
pub mod observe;
pub mod partition;
pub mod protocol;
pub mod replication;
pub mod runtime;
pub mod server;
pub mod shard;
pub mod storage;
