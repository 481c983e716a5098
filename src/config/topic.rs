//! What one topic runs with: the broker's defaults, overridden by the topic's own configuration.

use std::fmt;
use std::str::FromStr;

use super::error::{ConfigError, Origin};
use super::sources::check_pair;
use super::table::Scope;
use super::value::parse_int;
use super::BrokerConfig;

/// Which acknowledgements wait for the flush (`flush.on.ack`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FlushOnAck {
    /// `acks=all` waits for the flush, `acks=1` for the write. The default.
    #[default]
    All,
    /// `acks=1` waits for the flush too.
    Any,
    /// No acknowledgement waits for a flush: Kafka's way.
    None,
}

impl FlushOnAck {
    /// The word that stands for it in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            FlushOnAck::All => "all",
            FlushOnAck::Any => "any",
            FlushOnAck::None => "none",
        }
    }
}

impl fmt::Display for FlushOnAck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FlushOnAck {
    type Err = String;

    fn from_str(text: &str) -> Result<FlushOnAck, String> {
        match text {
            "all" => Ok(FlushOnAck::All),
            "any" => Ok(FlushOnAck::Any),
            "none" => Ok(FlushOnAck::None),
            _ => Err("must be one of all, any, none".to_owned()),
        }
    }
}

/// A topic's settings, all of them checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// `flush.on.ack`.
    pub flush_on_ack: FlushOnAck,
    /// `segment.bytes`: a segment that would grow past this is rolled.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment whose first batch is older than this is rolled.
    pub segment_ms: i64,
    /// `index.interval.bytes`: bytes of log between two entries of the offset index.
    pub index_interval_bytes: u32,
    /// `segment.index.bytes`: largest size of an index file.
    pub segment_index_bytes: u32,
    /// `max.message.bytes`: largest record batch accepted.
    pub max_message_bytes: u32,
    /// `min.insync.replicas`: the least ISR with which `acks=all` is accepted.
    pub min_insync_replicas: u32,
    /// `message.timestamp.before.max.ms`: how far a record's timestamp may lie in the past.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far a record's timestamp may lie in the future.
    pub timestamp_after_max_ms: i64,
    /// `checkpoint.bytes` of the broker: bytes flushed in a partition between two checkpoints.
    pub checkpoint_bytes: u64,
}

impl TopicConfig {
    /// The broker's defaults with `overrides` (topic setting names and values) on top.
    ///
    /// # Errors
    /// An unknown name, a value out of range, or one of Kafka's topic settings that is not built and does not have
    /// the value that equals what this version does.
    pub fn resolve<'a>(
        broker: &BrokerConfig,
        overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<TopicConfig, ConfigError> {
        let mut config = TopicConfig::from_broker(broker);
        for (name, value) in overrides {
            if check_pair(Scope::Topic, name, value, &Origin::Topic)?.is_some() {
                config
                    .set(name, value)
                    .map_err(|problem| ConfigError::Invalid {
                        name: name.to_owned(),
                        value: value.to_owned(),
                        problem,
                        origin: Origin::Topic,
                    })?;
            }
        }
        Ok(config)
    }

    /// What a topic without configuration of its own runs with.
    pub fn from_broker(broker: &BrokerConfig) -> TopicConfig {
        TopicConfig {
            flush_on_ack: broker.flush_on_ack,
            segment_bytes: broker.log_segment_bytes,
            segment_ms: broker.log_roll_ms,
            index_interval_bytes: broker.log_index_interval_bytes,
            segment_index_bytes: broker.log_index_size_max_bytes,
            max_message_bytes: broker.message_max_bytes,
            min_insync_replicas: broker.min_insync_replicas,
            timestamp_before_max_ms: broker.log_message_timestamp_before_max_ms,
            timestamp_after_max_ms: broker.log_message_timestamp_after_max_ms,
            checkpoint_bytes: broker.checkpoint_bytes,
        }
    }

    /// Sets one field from a value that the table has already checked; the conversions check again at no cost.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let u32_of = |text: &str| parse_int(text, 0, i64::from(u32::MAX)).map(|value| value as u32);
        let i64_of = |text: &str| parse_int(text, i64::MIN, i64::MAX);
        match name {
            "flush.on.ack" => self.flush_on_ack = value.parse()?,
            "segment.bytes" => self.segment_bytes = u32_of(value)?,
            "segment.ms" => self.segment_ms = i64_of(value)?,
            "index.interval.bytes" => self.index_interval_bytes = u32_of(value)?,
            "segment.index.bytes" => self.segment_index_bytes = u32_of(value)?,
            "max.message.bytes" => self.max_message_bytes = u32_of(value)?,
            "min.insync.replicas" => self.min_insync_replicas = u32_of(value)?,
            "message.timestamp.before.max.ms" => self.timestamp_before_max_ms = i64_of(value)?,
            "message.timestamp.after.max.ms" => self.timestamp_after_max_ms = i64_of(value)?,
            other => unreachable!("topic setting {other} stands in the table but has no field"),
        }
        Ok(())
    }
}
