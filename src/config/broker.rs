//! What the broker runs with. Fields carry the settings' names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::{ConfigError, Origin};
use super::table::{find, Scope};
use super::value::{
    list_entries, parse_bool, parse_host_counts, parse_int, parse_rate, parse_ratio, unit_ms,
    HostPort,
};
use super::{ConfigSource, FlushOnAck, MessageTimestampType, Ratio, Sources, TopicCompression};

/// The broker's settings, all of them checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerConfig {
    /// `node.id`.
    pub node_id: i32,
    /// `listeners`; port 0 takes a free one.
    pub listener: HostPort,
    /// `advertised.listeners`; `None`: the listener's own address. Port 0 stands for the listener's port.
    pub advertised_listener: Option<HostPort>,
    /// `log.dirs`, or `log.dir` where that is empty. At least one, no two the same.
    pub data_dirs: Vec<PathBuf>,
    /// `shards`; 0: one for each usable CPU.
    pub shards: usize,
    /// `auto.create.topics.enable`.
    pub auto_create_topics_enable: bool,
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i16,
    /// `flush.on.ack`, the default of topics.
    pub flush_on_ack: FlushOnAck,
    /// `min.insync.replicas`, the default of topics.
    pub min_insync_replicas: u32,
    /// `log.segment.recycle`.
    pub log_segment_recycle: bool,
    /// `log.read.check.crcs`.
    pub log_read_check_crcs: bool,
    /// `log.scrub.max.bytes.per.second`; 0: no scrubbing.
    pub log_scrub_max_bytes_per_second: u64,
    /// `log.scrub.interval.hours`, hours.
    pub log_scrub_interval_hours: u64,
    /// `checkpoint.bytes`.
    pub checkpoint_bytes: u64,
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub log_flush_offset_checkpoint_interval_ms: u64,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub replica_high_watermark_checkpoint_interval_ms: u64,
    /// `message.max.bytes`.
    pub message_max_bytes: u32,
    /// `log.segment.bytes`.
    pub log_segment_bytes: u32,
    /// `log.dir.min.free.bytes`; -1: by the size of the file system, 0: no limit.
    pub log_dir_min_free_bytes: i64,
    /// `log.roll.ms`, or `log.roll.hours` where that is empty.
    pub log_roll_ms: i64,
    /// `log.roll.jitter.ms`, or `log.roll.jitter.hours` where that is empty.
    pub log_roll_jitter_ms: i64,
    /// `log.cleanup.policy` contains `delete`.
    pub log_cleanup_delete: bool,
    /// `log.cleanup.policy` contains `compact`.
    pub log_cleanup_compact: bool,
    /// `log.cleaner.enable`.
    pub log_cleaner_enable: bool,
    /// `log.cleaner.backoff.ms`.
    pub log_cleaner_backoff_ms: u64,
    /// `log.cleaner.dedupe.buffer.size`, over all shards.
    pub log_cleaner_dedupe_buffer_size: u64,
    /// `log.cleaner.io.max.bytes.per.second`, over all shards; `u64::MAX`: no limit.
    pub log_cleaner_io_max_bytes_per_second: u64,
    /// `log.cleaner.min.cleanable.ratio`.
    pub log_cleaner_min_cleanable_ratio: Ratio,
    /// `log.cleaner.delete.retention.ms`.
    pub log_cleaner_delete_retention_ms: i64,
    /// `log.cleaner.min.compaction.lag.ms`; not above the next.
    pub log_cleaner_min_compaction_lag_ms: i64,
    /// `log.cleaner.max.compaction.lag.ms`.
    pub log_cleaner_max_compaction_lag_ms: i64,
    /// `log.retention.ms`, or `log.retention.minutes`, or `log.retention.hours`; -1: forever.
    pub log_retention_ms: i64,
    /// `log.retention.bytes`; -1: no limit.
    pub log_retention_bytes: i64,
    /// `log.retention.check.interval.ms`.
    pub log_retention_check_interval_ms: u64,
    /// `log.initial.task.delay.ms`.
    pub log_initial_task_delay_ms: u64,
    /// `log.segment.delete.delay.ms`.
    pub log_segment_delete_delay_ms: u64,
    /// `log.flush.interval.messages`.
    pub log_flush_interval_messages: i64,
    /// `log.flush.interval.ms`, or `log.flush.scheduler.interval.ms` where that is empty.
    pub log_flush_interval_ms: i64,
    /// `compression.type`.
    pub compression_type: TopicCompression,
    /// `compression.gzip.level`; -1: the codec's own default.
    pub compression_gzip_level: i32,
    /// `compression.lz4.level`.
    pub compression_lz4_level: i32,
    /// `compression.zstd.level`.
    pub compression_zstd_level: i32,
    /// `log.message.timestamp.type`.
    pub log_message_timestamp_type: MessageTimestampType,
    /// `log.index.interval.bytes`.
    pub log_index_interval_bytes: u32,
    /// `log.index.size.max.bytes`.
    pub log_index_size_max_bytes: u32,
    /// `log.message.timestamp.before.max.ms`.
    pub log_message_timestamp_before_max_ms: i64,
    /// `log.message.timestamp.after.max.ms`.
    pub log_message_timestamp_after_max_ms: i64,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i64,
    /// `producer.id.expiration.check.interval.ms`.
    pub producer_id_expiration_check_interval_ms: u64,
    /// `group.min.session.timeout.ms`.
    pub group_min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`.
    pub group_max_session_timeout_ms: i32,
    /// `group.initial.rebalance.delay.ms`.
    pub group_initial_rebalance_delay_ms: u32,
    /// `group.max.size`.
    pub group_max_size: u32,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_max_bytes: u32,
    /// `offsets.commit.timeout.ms`.
    pub offsets_commit_timeout_ms: u32,
    /// `offsets.retention.minutes`.
    pub offsets_retention_minutes: i32,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_retention_check_interval_ms: u64,
    /// `offsets.topic.num.partitions`.
    pub offsets_topic_num_partitions: i32,
    /// `offsets.topic.replication.factor`.
    pub offsets_topic_replication_factor: i16,
    /// `offsets.topic.segment.bytes`.
    pub offsets_topic_segment_bytes: u32,
    /// `offsets.topic.compression.codec`: Kafka's number of it.
    pub offsets_topic_compression_codec: u8,
    /// `offsets.load.buffer.size`.
    pub offsets_load_buffer_size: u32,
    /// `socket.request.max.bytes`; the frame limit is this or an eighth of the shard's budget.
    pub socket_request_max_bytes: u32,
    /// `request.memory.bytes`, over all shards; 0: 1/16 of RAM, at most 1 GiB a shard.
    pub request_memory_bytes: u64,
    /// `min.request.progress`, bytes a second; 0: never closed for being slow.
    pub min_request_progress: u32,
    /// `fetch.max.bytes`.
    pub fetch_max_bytes: u32,
    /// `max.incremental.fetch.session.cache.slots`, over all shards; 0: no fetch sessions.
    pub max_incremental_fetch_session_cache_slots: u32,
    /// `cache.bytes`, over all shards; 0: chosen from the machine's RAM.
    pub cache_bytes: u64,
    /// `max.connections`.
    pub max_connections: u32,
    /// `max.request.partition.size.limit`.
    pub max_request_partition_size_limit: u32,
    /// `max.connections.per.ip`.
    pub max_connections_per_ip: u32,
    /// `max.connections.per.ip.overrides`: addresses or names, and their limits.
    pub max_connections_per_ip_overrides: Vec<(String, u32)>,
    /// `max.connection.creation.rate`, in connections a second.
    pub max_connection_creation_rate: u32,
    /// `connections.max.idle.ms`.
    pub connections_max_idle_ms: u64,
    /// `admin.listener`; `None`: no admin HTTP. Port 0 takes a free one.
    pub admin_listener: Option<HostPort>,
    /// `metrics.topics.max`.
    pub metrics_topics_max: usize,
    /// `metrics.partitions.max`.
    pub metrics_partitions_max: usize,
    /// `metrics.group.offsets.max`.
    pub metrics_group_offsets_max: usize,
    /// `stall.threshold.ms`; 0: stalls are not recorded.
    pub stall_threshold_ms: u32,
    /// What was given as text, by name, for those who ask what the broker runs with.
    pub given: Given,
    /// What all brokers were given while they run.
    pub dynamic_cluster: Given,
    /// What this broker was given while it runs; wins over the others.
    pub dynamic_own: Given,
}

/// The values that were given, by the settings' names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given(BTreeMap<&'static str, String>);

impl Given {
    pub(super) fn new(values: BTreeMap<&'static str, String>) -> Given {
        Given(values)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// What was given for a setting.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl Default for BrokerConfig {
    /// The table's defaults.
    fn default() -> BrokerConfig {
        Sources::new()
            .resolve()
            .expect("the table's defaults are valid; a test checks each")
            .config
    }
}

impl BrokerConfig {
    /// A setting's value as text: what was given, or the default.
    pub fn text(&self, name: &str) -> &str {
        let mut layers = self.layers().into_iter();
        match layers.find_map(|(layer, _)| layer.get(name)) {
            Some(value) => value,
            None => row(name).default_text(),
        }
    }

    /// The places where a value can be given, the one that wins first.
    pub(super) fn layers(&self) -> [(&Given, ConfigSource); 3] {
        [
            (&self.dynamic_own, ConfigSource::DynamicBroker),
            (&self.dynamic_cluster, ConfigSource::DynamicDefaultBroker),
            (&self.given, ConfigSource::StaticBroker),
        ]
    }

    /// Builds the configuration from checked values; what is not given has the table's default.
    pub(super) fn from_values(
        given: &BTreeMap<&'static str, (String, Origin)>,
    ) -> Result<BrokerConfig, ConfigError> {
        let values = Values { given };
        let listener = values.address("listeners")?.ok_or_else(|| {
            values.invalid(
                "listeners",
                "must not be empty; write HOST:PORT, for instance 127.0.0.1:9092",
            )
        })?;
        let advertised_listener = values.address("advertised.listeners")?;
        values.check_advertised(&listener, advertised_listener.as_ref())?;
        Ok(BrokerConfig {
            node_id: values.int("node.id")? as i32,
            listener,
            advertised_listener,
            data_dirs: values.data_dirs()?,
            shards: values.int("shards")? as usize,
            auto_create_topics_enable: values.bool("auto.create.topics.enable")?,
            num_partitions: values.int("num.partitions")? as i32,
            default_replication_factor: values.int("default.replication.factor")? as i16,
            flush_on_ack: values.word("flush.on.ack")?,
            min_insync_replicas: values.int("min.insync.replicas")? as u32,
            log_segment_recycle: values.bool("log.segment.recycle")?,
            log_read_check_crcs: values.bool("log.read.check.crcs")?,
            log_scrub_max_bytes_per_second: values.int("log.scrub.max.bytes.per.second")? as u64,
            log_scrub_interval_hours: values.int("log.scrub.interval.hours")? as u64,
            checkpoint_bytes: values.int("checkpoint.bytes")? as u64,
            log_flush_offset_checkpoint_interval_ms: values
                .int("log.flush.offset.checkpoint.interval.ms")?
                as u64,
            replica_high_watermark_checkpoint_interval_ms: values
                .int("replica.high.watermark.checkpoint.interval.ms")?
                as u64,
            message_max_bytes: values.int("message.max.bytes")? as u32,
            log_segment_bytes: values.int("log.segment.bytes")? as u32,
            log_dir_min_free_bytes: values.int("log.dir.min.free.bytes")?,
            log_roll_ms: values.log_roll_ms()?,
            log_roll_jitter_ms: values.log_roll_jitter_ms()?,
            log_cleanup_delete: values.list("log.cleanup.policy")?.contains(&"delete"),
            log_cleanup_compact: values.list("log.cleanup.policy")?.contains(&"compact"),
            log_cleaner_enable: values.bool("log.cleaner.enable")?,
            log_cleaner_backoff_ms: values.int("log.cleaner.backoff.ms")? as u64,
            log_cleaner_dedupe_buffer_size: values.int("log.cleaner.dedupe.buffer.size")? as u64,
            log_cleaner_io_max_bytes_per_second: values.log_cleaner_io_max_bytes_per_second()?,
            log_cleaner_min_cleanable_ratio: values.log_cleaner_min_cleanable_ratio()?,
            log_cleaner_delete_retention_ms: values.int("log.cleaner.delete.retention.ms")?,
            log_cleaner_min_compaction_lag_ms: values.log_cleaner_min_compaction_lag_ms()?,
            log_cleaner_max_compaction_lag_ms: values.int("log.cleaner.max.compaction.lag.ms")?,
            log_retention_ms: values.log_retention_ms()?,
            log_retention_bytes: values.int("log.retention.bytes")?,
            log_retention_check_interval_ms: values.int("log.retention.check.interval.ms")? as u64,
            log_initial_task_delay_ms: values.int("log.initial.task.delay.ms")? as u64,
            log_segment_delete_delay_ms: values.int("log.segment.delete.delay.ms")? as u64,
            log_flush_interval_messages: values.int("log.flush.interval.messages")?,
            log_flush_interval_ms: values.log_flush_interval_ms()?,
            compression_type: values.word("compression.type")?,
            compression_gzip_level: values.int("compression.gzip.level")? as i32,
            compression_lz4_level: values.int("compression.lz4.level")? as i32,
            compression_zstd_level: values.int("compression.zstd.level")? as i32,
            log_message_timestamp_type: values.word("log.message.timestamp.type")?,
            log_index_interval_bytes: values.int("log.index.interval.bytes")? as u32,
            log_index_size_max_bytes: values.int("log.index.size.max.bytes")? as u32,
            log_message_timestamp_before_max_ms: values
                .int("log.message.timestamp.before.max.ms")?,
            log_message_timestamp_after_max_ms: values.int("log.message.timestamp.after.max.ms")?,
            producer_id_expiration_ms: values.int("producer.id.expiration.ms")?,
            producer_id_expiration_check_interval_ms: values
                .int("producer.id.expiration.check.interval.ms")?
                as u64,
            group_min_session_timeout_ms: values.int("group.min.session.timeout.ms")? as i32,
            group_max_session_timeout_ms: values.group_max_session_timeout_ms()?,
            group_initial_rebalance_delay_ms: values.int("group.initial.rebalance.delay.ms")?
                as u32,
            group_max_size: values.int("group.max.size")? as u32,
            offset_metadata_max_bytes: values.int("offset.metadata.max.bytes")? as u32,
            offsets_commit_timeout_ms: values.int("offsets.commit.timeout.ms")? as u32,
            offsets_retention_minutes: values.int("offsets.retention.minutes")? as i32,
            offsets_retention_check_interval_ms: values
                .int("offsets.retention.check.interval.ms")?
                as u64,
            offsets_topic_num_partitions: values.int("offsets.topic.num.partitions")? as i32,
            offsets_topic_replication_factor: values.int("offsets.topic.replication.factor")?
                as i16,
            offsets_topic_segment_bytes: values.int("offsets.topic.segment.bytes")? as u32,
            offsets_topic_compression_codec: values.int("offsets.topic.compression.codec")? as u8,
            offsets_load_buffer_size: values.int("offsets.load.buffer.size")? as u32,
            socket_request_max_bytes: values.int("socket.request.max.bytes")? as u32,
            request_memory_bytes: values.int("request.memory.bytes")? as u64,
            min_request_progress: values.int("min.request.progress")? as u32,
            fetch_max_bytes: values.int("fetch.max.bytes")? as u32,
            max_incremental_fetch_session_cache_slots: values
                .int("max.incremental.fetch.session.cache.slots")?
                as u32,
            cache_bytes: values.int("cache.bytes")? as u64,
            max_connections: values.int("max.connections")? as u32,
            max_request_partition_size_limit: values.int("max.request.partition.size.limit")?
                as u32,
            max_connections_per_ip: values.connections_per_ip()?,
            max_connections_per_ip_overrides: values
                .host_counts("max.connections.per.ip.overrides")?,
            max_connection_creation_rate: values.int("max.connection.creation.rate")? as u32,
            connections_max_idle_ms: values.int("connections.max.idle.ms")? as u64,
            admin_listener: values.address("admin.listener")?,
            metrics_topics_max: values.int("metrics.topics.max")? as usize,
            metrics_partitions_max: values.int("metrics.partitions.max")? as usize,
            metrics_group_offsets_max: values.int("metrics.group.offsets.max")? as usize,
            stall_threshold_ms: values.int("stall.threshold.ms")? as u32,
            given: Given(
                given
                    .iter()
                    .map(|(name, (value, _))| (*name, value.clone()))
                    .collect(),
            ),
            dynamic_cluster: Given::default(),
            dynamic_own: Given::default(),
        })
    }
}

/// Values by name, with the table's defaults below them. The casts above are safe because each row's bounds lie
/// within its field's type; a test holds every row's bounds against its field.
struct Values<'a> {
    given: &'a BTreeMap<&'static str, (String, Origin)>,
}

impl<'a> Values<'a> {
    fn text(&self, name: &str) -> &'a str {
        match self.given.get(name) {
            Some((value, _)) => value,
            None => row(name).default_text(),
        }
    }

    fn origin(&self, name: &str) -> Origin {
        self.given
            .get(name)
            .map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    fn invalid(&self, name: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError::Invalid {
            name: name.to_owned(),
            value: self.text(name).to_owned(),
            problem: problem.into(),
            origin: self.origin(name),
        }
    }

    fn int(&self, name: &str) -> Result<i64, ConfigError> {
        row(name)
            .kind
            .check(self.text(name))
            .map_err(|problem| self.invalid(name, problem))?;
        parse_int(self.text(name), i64::MIN, i64::MAX)
            .map_err(|problem| self.invalid(name, problem))
    }

    fn host_counts(&self, name: &str) -> Result<Vec<(String, u32)>, ConfigError> {
        parse_host_counts(self.text(name)).map_err(|problem| self.invalid(name, problem))
    }

    /// Nobody could connect at 0 without an address that has another limit.
    fn connections_per_ip(&self) -> Result<u32, ConfigError> {
        let limit = self.int("max.connections.per.ip")? as u32;
        if limit == 0 && self.text("max.connections.per.ip.overrides").is_empty() {
            return Err(self.invalid(
                "max.connections.per.ip",
                "can be 0 only if max.connections.per.ip.overrides lists who may connect",
            ));
        }
        Ok(limit)
    }

    fn bool(&self, name: &str) -> Result<bool, ConfigError> {
        parse_bool(self.text(name)).map_err(|problem| self.invalid(name, problem))
    }

    fn address(&self, name: &str) -> Result<Option<HostPort>, ConfigError> {
        match self.text(name) {
            "" => Ok(None),
            text => HostPort::parse(text)
                .map(Some)
                .map_err(|problem| self.invalid(name, problem)),
        }
    }

    fn word<T: FromStr<Err = String>>(&self, name: &str) -> Result<T, ConfigError> {
        let word = self.text(name).parse();
        word.map_err(|problem| self.invalid(name, problem))
    }

    fn list(&self, name: &str) -> Result<Vec<&'a str>, ConfigError> {
        let text = self.text(name);
        let checked = row(name).kind.check(text);
        checked.map_err(|problem| self.invalid(name, problem))?;
        Ok(list_entries(text).collect())
    }

    fn data_dirs(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let listed = self.list("log.dirs")?;
        let dirs: Vec<PathBuf> = match listed.is_empty() {
            true => vec![PathBuf::from(self.text("log.dir"))],
            false => listed.into_iter().map(PathBuf::from).collect(),
        };
        if dirs[0].as_os_str().is_empty() {
            return Err(self.invalid("log.dir", "must name the data directory"));
        }
        for (at, dir) in dirs.iter().enumerate() {
            if dirs[..at].contains(dir) {
                let problem = format!("names {} twice", dir.display());
                return Err(self.invalid("log.dirs", problem));
            }
        }
        Ok(dirs)
    }

    /// The first of these settings of one meaning that has a value, and that in milliseconds. The last has a default.
    /// -1 is the same in every unit.
    fn first_ms(&self, names: &[&'static str]) -> Result<(&'static str, i64), ConfigError> {
        let given = names.iter().find(|name| !self.text(name).is_empty());
        let name = given.unwrap_or(&names[names.len() - 1]);
        let count = self.int(name)?;
        Ok((
            name,
            if count < 0 {
                count
            } else {
                count * unit_ms(name)
            },
        ))
    }

    fn log_roll_ms(&self) -> Result<i64, ConfigError> {
        Ok(self.first_ms(&["log.roll.ms", "log.roll.hours"])?.1)
    }

    fn log_roll_jitter_ms(&self) -> Result<i64, ConfigError> {
        let names = ["log.roll.jitter.ms", "log.roll.jitter.hours"];
        Ok(self.first_ms(&names)?.1)
    }

    /// Kafka takes -1 in each of the three units for "forever", and refuses 0: it would delete what is still read.
    fn log_retention_ms(&self) -> Result<i64, ConfigError> {
        match self.first_ms(&[
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
        ])? {
            (name, 0) => {
                Err(self.invalid(name, "must be at least 1, or -1 to keep records forever"))
            }
            (_, retention_ms) => Ok(retention_ms),
        }
    }

    fn log_flush_interval_ms(&self) -> Result<i64, ConfigError> {
        let names = ["log.flush.interval.ms", "log.flush.scheduler.interval.ms"];
        Ok(self.first_ms(&names)?.1)
    }

    fn log_cleaner_io_max_bytes_per_second(&self) -> Result<u64, ConfigError> {
        let name = "log.cleaner.io.max.bytes.per.second";
        parse_rate(self.text(name)).map_err(|problem| self.invalid(name, problem))
    }

    fn log_cleaner_min_cleanable_ratio(&self) -> Result<Ratio, ConfigError> {
        let name = "log.cleaner.min.cleanable.ratio";
        parse_ratio(self.text(name)).map_err(|problem| self.invalid(name, problem))
    }

    fn log_cleaner_min_compaction_lag_ms(&self) -> Result<i64, ConfigError> {
        let (min, max) = (
            "log.cleaner.min.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
        );
        if self.int(min)? > self.int(max)? {
            let problem = format!("must not be more than {max}, {}", self.text(max));
            return Err(self.invalid(min, problem));
        }
        self.int(min)
    }

    fn group_max_session_timeout_ms(&self) -> Result<i32, ConfigError> {
        let (min, max) = (
            "group.min.session.timeout.ms",
            "group.max.session.timeout.ms",
        );
        if self.int(max)? < self.int(min)? {
            let problem = format!("must not be less than {min}, {}", self.text(min));
            return Err(self.invalid(max, problem));
        }
        Ok(self.int(max)? as i32)
    }

    /// Clients can connect to what they are told: never to the address of every interface.
    fn check_advertised(
        &self,
        listener: &HostPort,
        advertised: Option<&HostPort>,
    ) -> Result<(), ConfigError> {
        match advertised {
            Some(advertised) if advertised.is_wildcard() => Err(self.invalid(
                "advertised.listeners",
                "clients cannot connect to the address of every interface; name this machine",
            )),
            None if listener.is_wildcard() => Err(self.invalid(
                "listeners",
                "listens on every interface, so advertised.listeners must say which address clients are to use",
            )),
            _ => Ok(()),
        }
    }
}

fn row(name: &str) -> &'static super::Setting {
    find(Scope::Broker, name)
        .expect("each field's setting stands in the table; a test builds the defaults")
}
