//! The messages, each stated once, as in Kafka 4.1's schema: names, types, versions,
//! nullability, defaults and tags.
//!
//! Field docs are Kafka's protocol guide; a field is documented here where there is
//! more to say. `ErrorCode` values are plain `i16` fields, as a peer may send one that
//! we do not know.
//!
//! What it is not: nothing here says what a value means for a partition.

mod alter_configs;
mod alter_partition_reassignments;
mod alter_replica_log_dirs;
mod api_versions;
mod create_acls;
mod create_partitions;
mod create_topics;
mod delete_acls;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_acls;
mod describe_client_quotas;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_quorum;
mod describe_topic_partitions;
mod describe_user_scram_credentials;
mod elect_leaders;
mod fetch;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod list_partition_reassignments;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
#[cfg(test)]
mod oracle_tests;
mod produce;
mod sync_group;

pub use alter_configs::*;
pub use alter_partition_reassignments::*;
pub use alter_replica_log_dirs::*;
pub use api_versions::*;
pub use create_acls::*;
pub use create_partitions::*;
pub use create_topics::*;
pub use delete_acls::*;
pub use delete_groups::*;
pub use delete_records::*;
pub use delete_topics::*;
pub use describe_acls::*;
pub use describe_client_quotas::*;
pub use describe_cluster::*;
pub use describe_configs::*;
pub use describe_groups::*;
pub use describe_log_dirs::*;
pub use describe_producers::*;
pub use describe_quorum::*;
pub use describe_topic_partitions::*;
pub use describe_user_scram_credentials::*;
pub use elect_leaders::*;
pub use fetch::*;
pub use find_coordinator::*;
pub use heartbeat::*;
pub use incremental_alter_configs::*;
pub use init_producer_id::*;
pub use join_group::*;
pub use leave_group::*;
pub use list_config_resources::*;
pub use list_groups::*;
pub use list_offsets::*;
pub use list_partition_reassignments::*;
pub use metadata::*;
pub use offset_commit::*;
pub use offset_delete::*;
pub use offset_fetch::*;
pub use offset_for_leader_epoch::*;
pub use produce::*;
pub use sync_group::*;

use super::api::ApiKey;
use super::codec::Versioned;

/// A request or a response.
pub trait Message: Versioned {
    /// The API that it belongs to.
    const KEY: ApiKey;
    /// Whether it is the request.
    const IS_REQUEST: bool;
}
