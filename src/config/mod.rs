//! Settings: one static table in Kafka's names that is the parser, the validator and the documentation.
//!
//! A value comes from the defaults, a `.properties` file, the environment, `--set` or a named flag, in rising
//! precedence ([`Sources`]). It is checked once, when [`BrokerConfig`] or [`TopicConfig`] is built; nothing that holds
//! one of these structs checks again, and every error names where the value came from.
//!
//! What it is not: this is the bottom room. It opens no file, reads no variable and knows no clock: the caller hands
//! it text. A Kafka setting that is not built is never accepted silently ([`unbuilt`] says how each is answered).

mod broker;
mod choices;
mod describe;
mod docs;
mod dynamic;
mod error;
mod properties;
mod rows;
mod sources;
mod table;
mod topic;
pub mod unbuilt;
mod value;

#[cfg(test)]
mod tests;

pub use broker::{BrokerConfig, Given};
pub use choices::{FlushOnAck, MessageTimestampType, TopicCompression};
pub use describe::{
    describe_broker, describe_cluster, describe_topic, topic_default, ConfigSource, ConfigType,
    Described, Synonym,
};
pub use docs::markdown;
pub use dynamic::{check_dynamic, DynamicFault};
pub use error::{ConfigError, Origin};
pub use properties::{parse_properties, Property, PropertyError};
pub use rows::SETTINGS;
pub use sources::{environment_name, Resolved, Sources};
pub use table::{find, nearest, Fallback, Limit, Scope, Setting};
pub use topic::TopicConfig;
pub use value::{HostPort, Kind, Ratio};
