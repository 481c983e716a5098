//! What one topic runs with: the broker's defaults, overridden by the topic's own configuration.

use super::error::{shown, ConfigError, Origin};
use super::sources::{check_kind, check_pair};
use super::table::Scope;
use super::value::{list_entries, parse_int};
use super::{BrokerConfig, FlushOnAck, MessageTimestampType, TopicCompression};

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
    /// `message.timestamp.type`: whose clock a record's timestamp is from.
    pub timestamp_type: MessageTimestampType,
    /// `compression.type`: how batches are stored.
    pub compression: TopicCompression,
    /// `compression.gzip.level`: 1 to 9; -1: the codec's own default.
    pub gzip_level: i32,
    /// `compression.lz4.level`: 1 to 17.
    pub lz4_level: i32,
    /// `compression.zstd.level`: -131072 to 22.
    pub zstd_level: i32,
    /// `cleanup.policy` contains `delete`: segments past retention are deleted, and clients may delete records.
    pub cleanup_delete: bool,
    /// `cleanup.policy` contains `compact`: every record has a key.
    pub cleanup_compact: bool,
    /// `retention.ms`: age at which records may be deleted; -1: never.
    pub retention_ms: i64,
    /// `retention.bytes`: size of a partition's log above which its oldest segments are deleted; -1: any size.
    pub retention_bytes: i64,
    /// `file.delete.delay.ms`: how long the files of a deleted segment stay.
    pub file_delete_delay_ms: u64,
    /// `segment.jitter.ms`: the most by which a roll by age is made earlier, at random.
    pub segment_jitter_ms: i64,
    /// `flush.messages`: records written but not flushed at which a flush is started.
    pub flush_messages: i64,
    /// `flush.ms`: age of an unflushed record at which a flush is started.
    pub flush_ms: i64,
    /// `log.segment.recycle` of the broker: whether files of deleted segments become new ones.
    pub recycle_segments: bool,
    /// `log.read.check.crcs` of the broker: whether reads from the disk check batches' checksums.
    pub check_crc_on_read: bool,
    /// `checkpoint.bytes` of the broker: bytes flushed in a partition between two checkpoints.
    pub checkpoint_bytes: u64,
}

impl TopicConfig {
    /// The broker's defaults with `overrides` (topic setting names and values) on top.
    ///
    /// # Errors
    /// An unknown name, a value out of range, one that this version does not do yet, or two that contradict each
    /// other.
    pub fn resolve<'a>(
        broker: &BrokerConfig,
        overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<TopicConfig, ConfigError> {
        TopicConfig::resolve_checked(broker, overrides, check_pair)
    }

    /// The same for one of the broker's own topics, which may have `cleanup.policy=compact`:
    /// nothing is deleted from it by age or size. That it is not compacted yet costs space.
    ///
    /// # Errors
    /// As [`TopicConfig::resolve`].
    pub fn resolve_internal<'a>(
        broker: &BrokerConfig,
        overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<TopicConfig, ConfigError> {
        let check = |scope, name: &str, value: &str, origin: &Origin| match name {
            "cleanup.policy" => check_kind(scope, name, value, origin),
            _ => check_pair(scope, name, value, origin).map(|_| ()),
        };
        TopicConfig::resolve_checked(broker, overrides, check)
    }

    fn resolve_checked<'a, T>(
        broker: &BrokerConfig,
        overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
        check: impl Fn(Scope, &str, &str, &Origin) -> Result<T, ConfigError>,
    ) -> Result<TopicConfig, ConfigError> {
        let mut config = TopicConfig::from_broker(broker);
        let mut lags = CompactionLags::default();
        for (name, value) in overrides {
            let value = value.trim();
            let invalid = |problem| ConfigError::Invalid {
                name: name.to_owned(),
                value: shown(value),
                problem,
                origin: Origin::Topic,
            };
            if value.len() > VALUE_BYTES_MAX {
                return Err(invalid(format!(
                    "must be at most {VALUE_BYTES_MAX} bytes long, not {}",
                    value.len()
                )));
            }
            check(Scope::Topic, name, value, &Origin::Topic)?;
            config.set(name, value).map_err(invalid)?;
            lags.set(name, value).map_err(invalid)?;
        }
        lags.check()?;
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
            timestamp_type: broker.log_message_timestamp_type,
            compression: broker.compression_type,
            gzip_level: broker.compression_gzip_level,
            lz4_level: broker.compression_lz4_level,
            zstd_level: broker.compression_zstd_level,
            cleanup_delete: broker.log_cleanup_delete,
            // The broker's own setting refuses the word.
            cleanup_compact: false,
            retention_ms: broker.log_retention_ms,
            retention_bytes: broker.log_retention_bytes,
            file_delete_delay_ms: broker.log_segment_delete_delay_ms,
            segment_jitter_ms: broker.log_roll_jitter_ms,
            flush_messages: broker.log_flush_interval_messages,
            flush_ms: broker.log_flush_interval_ms,
            recycle_segments: broker.log_segment_recycle,
            check_crc_on_read: broker.log_read_check_crcs,
            checkpoint_bytes: broker.checkpoint_bytes,
        }
    }

    /// Sets one field from a value that the table has already checked; the conversions check again at no cost.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let u32_of = |text: &str| parse_int(text, 0, i64::from(u32::MAX)).map(|value| value as u32);
        let i32_of = |text: &str| {
            parse_int(text, i64::from(i32::MIN), i64::from(i32::MAX)).map(|value| value as i32)
        };
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
            "message.timestamp.type" => self.timestamp_type = value.parse()?,
            "compression.type" => self.compression = value.parse()?,
            "compression.gzip.level" => self.gzip_level = i32_of(value)?,
            "compression.lz4.level" => self.lz4_level = i32_of(value)?,
            "compression.zstd.level" => self.zstd_level = i32_of(value)?,
            "cleanup.policy" => {
                self.cleanup_delete = list_entries(value).any(|policy| policy == "delete");
                self.cleanup_compact = list_entries(value).any(|policy| policy == "compact");
            }
            "retention.ms" => self.retention_ms = i64_of(value)?,
            "retention.bytes" => self.retention_bytes = i64_of(value)?,
            "file.delete.delay.ms" => {
                self.file_delete_delay_ms = parse_int(value, 0, i64::MAX)? as u64
            }
            "segment.jitter.ms" => self.segment_jitter_ms = i64_of(value)?,
            "flush.messages" => self.flush_messages = i64_of(value)?,
            "flush.ms" => self.flush_ms = i64_of(value)?,
            // Nothing reads these: the table says of each why any value that it accepts changes nothing.
            "delete.retention.ms"
            | "min.cleanable.dirty.ratio"
            | "min.compaction.lag.ms"
            | "max.compaction.lag.ms"
            | "unclean.leader.election.enable"
            | "preallocate"
            | "leader.replication.throttled.replicas"
            | "follower.replication.throttled.replicas"
            | "remote.storage.enable"
            | "remote.log.copy.disable"
            | "remote.log.delete.on.disable"
            | "local.retention.ms"
            | "local.retention.bytes" => {}
            other => unreachable!("topic setting {other} stands in the table but has no field"),
        }
        Ok(())
    }
}

/// `min.compaction.lag.ms` and `max.compaction.lag.ms`, held against each other as Kafka does. Compaction is not
/// built, so nothing else needs them.
struct CompactionLags {
    min_ms: i64,
    max_ms: i64,
}

impl Default for CompactionLags {
    fn default() -> CompactionLags {
        CompactionLags {
            min_ms: 0,
            max_ms: i64::MAX,
        }
    }
}

impl CompactionLags {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "min.compaction.lag.ms" => self.min_ms = parse_int(value, 0, i64::MAX)?,
            "max.compaction.lag.ms" => self.max_ms = parse_int(value, 1, i64::MAX)?,
            _ => {}
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.min_ms <= self.max_ms {
            return Ok(());
        }
        Err(ConfigError::Invalid {
            name: "min.compaction.lag.ms".to_owned(),
            value: self.min_ms.to_string(),
            problem: format!(
                "must not be more than max.compaction.lag.ms, {}",
                self.max_ms
            ),
            origin: Origin::Topic,
        })
    }
}

/// The longest value of a topic's setting: what a string of the protocol's old versions can hold.
const VALUE_BYTES_MAX: usize = 32_767;
