//! Listeners, connections, and one file for each API family.
//!
//! A connection is served by one shard from its first byte to its last. This room
//! turns frames into calls of `shard/` and answers into frames; it decides nothing
//! about records.

mod acceptor;
mod acls;
mod admission;
mod api_versions;
mod broker;
mod client_quotas;
mod config_resources;
mod configs;
mod connection;
mod delete_records;
mod describe_cluster;
mod describe_producers;
mod describe_quorum;
mod describe_topic_partitions;
mod dispatch;
mod elect_leaders;
mod fetch;
mod fetch_list;
mod fetch_sessions;
#[cfg(test)]
mod fetch_sessions_tests;
mod find_coordinator;
mod group_admin;
mod group_membership;
mod group_offsets;
mod groups;
mod http;
mod init_producer_id;
mod list_offsets;
mod log_dirs;
mod lookup;
mod metadata;
mod offset_for_leader_epoch;
mod operations;
mod produce;
mod reassignments;
mod registry;
mod respond;
mod run;
mod scram_credentials;
mod service;
mod simulated;
mod topics;

#[cfg(test)]
mod sim_tests;

pub use broker::{start, Broker};
pub use run::{Ready, ServeError};
pub use simulated::{start_simulated, Simulated, SimulatedPlan};
