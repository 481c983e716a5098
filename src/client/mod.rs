//! A Kafka client connection: version negotiation and pipelined requests.
//!
//! It is what follower fetch, the quorum's transport, the command line and the
//! benchmarks use. Requests go out in the order of the calls and are answered in
//! that order, as the protocol promises; any answer that breaks the order ends the
//! connection. What is in flight is bounded.
//!
//! What it is not: it does not look for leaders, retry, batch or group.

mod connection;
mod error;

pub use connection::{BrokerConnection, Call, ConnectionOptions};
pub use error::ClientError;
