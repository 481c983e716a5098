//! A Kafka client connection: version negotiation and pipelined requests.
//!
//! It is what follower fetch, the quorum's transport, the command line and the
//! benchmarks use. Requests go out in the order of the calls and are answered in
//! that order, as the protocol promises; any answer that breaks the order ends the
//! connection. What is in flight is bounded.
//!
//! [`Cluster`] is several of them: it knows which broker leads what, and looks again when told to. [`GroupClient`] finds
//! a group's coordinator.
//!
//! What it is not: it batches nothing, and but for a coordinator that moves it does not retry.

mod cluster;
mod connection;
mod consumer_protocol;
mod error;
mod groups;
mod murmur2;

pub use cluster::{Cluster, ListedOffset, OffsetQuery, PartitionKey, EARLIEST, LATEST};
pub use connection::{BrokerConnection, Call, ConnectionOptions};
pub use consumer_protocol::{
    assign_ranges, ConsumerAssignment, ConsumerSubscription, ConsumerTopicPartitions,
    CONSUMER_PROTOCOL,
};
pub use error::ClientError;
pub use groups::{CommittedOffset, GroupClient, Membership};
pub use murmur2::murmur2;
