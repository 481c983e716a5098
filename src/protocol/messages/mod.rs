//! The messages, each stated once, as in Kafka 4.1's schema: names, types, versions,
//! nullability, defaults and tags.
//!
//! Field docs are Kafka's protocol guide; a field is documented here where there is
//! more to say. `ErrorCode` values are plain `i16` fields, as a peer may send one that
//! we do not know.
//!
//! What it is not: nothing here says what a value means for a partition.

mod api_versions;
mod create_topics;
mod delete_topics;
mod fetch;
mod list_offsets;
mod metadata;
#[cfg(test)]
mod oracle_tests;
mod produce;

pub use api_versions::*;
pub use create_topics::*;
pub use delete_topics::*;
pub use fetch::*;
pub use list_offsets::*;
pub use metadata::*;
pub use produce::*;

use super::api::ApiKey;
use super::codec::Versioned;

/// A request or a response.
pub trait Message: Versioned {
    /// The API that it belongs to.
    const KEY: ApiKey;
    /// Whether it is the request.
    const IS_REQUEST: bool;
}
