//! The table of metrics: every family of `/metrics`, with its name, type, labels and what it says.
//!
//! A family that is not here cannot be shown (`page.rs` takes no names), and a test compares a real scrape with this table, so
//! the documentation made from it (`highwater metrics docs`) is true. Names end in their unit; a counter's sample ends in
//! `_total` beside.

use std::fmt::Write;

/// One family of metrics.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Without the unit and without `_total`.
    pub base: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The unit that its name ends in.
    pub unit: Option<Unit>,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says, in a sentence.
    pub help: &'static str,
}

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only rises, until the broker stops (or the topic goes).
    Counter,
    /// It rises and falls.
    Gauge,
    /// Counts of values below rising bounds.
    Histogram,
    /// Always 1; the labels say it.
    Info,
}

/// What its values are measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// As a name ends.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

impl Family {
    /// The family's name: with the unit.
    pub fn name(&self) -> String {
        match self.unit {
            Some(unit) => format!("{}_{}", self.base, unit.name()),
            None => self.base.to_owned(),
        }
    }

    /// The name of its samples, which queries use.
    pub fn sample(&self) -> String {
        let name = self.name();
        match self.kind {
            Kind::Counter => name + "_total",
            Kind::Histogram => name + "_bucket",
            Kind::Info => name + "_info",
            Kind::Gauge => name,
        }
    }
}

/// A Markdown table of all metrics.
pub fn markdown() -> String {
    let mut out = String::from("| metric | type | labels | what it says |\n|---|---|---|---|\n");
    for family in CATALOG {
        let labels: Vec<String> = family.labels.iter().map(|l| format!("`{l}`")).collect();
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            family.sample(),
            family.kind.name(),
            labels.join(", "),
            family.help
        );
    }
    out
}

macro_rules! unit {
    () => {
        None
    };
    ($unit:ident) => {
        Some(Unit::$unit)
    };
}

macro_rules! catalog {
    ($($name:ident: $kind:ident $base:literal $(in $unit:ident)? [$($label:literal),*] $help:literal;)*) => {
        /// Each family by its own name.
        pub mod family {
            use super::{Family, Kind, Unit};
            $(
                #[doc = $help]
                pub static $name: Family = Family {
                    base: $base,
                    kind: Kind::$kind,
                    unit: unit!($($unit)?),
                    labels: &[$($label),*],
                    help: $help,
                };
            )*
        }

        /// All families, in the order of the page.
        pub static CATALOG: &[&Family] = &[$(&family::$name,)*];
    };
}

catalog! {
    BUILD: Info "highwater_build" ["version"] "The broker's version.";
    UPTIME: Gauge "highwater_uptime" in Seconds [] "Since the broker took its data directory.";
    READY: Gauge "highwater_ready" [] "1 when partitions are loaded and connections are accepted, as /readyz says.";
    RESIDENT: Gauge "process_resident_memory" in Bytes [] "Memory of the process that is in RAM.";
    VIRTUAL: Gauge "process_virtual_memory" in Bytes [] "Address space of the process.";
    CPU: Counter "process_cpu" in Seconds [] "CPU time of the process, user and system.";
    OPEN_FDS: Gauge "process_open_fds" [] "Open file descriptors.";
    MAX_FDS: Gauge "process_max_fds" [] "The limit of open file descriptors.";
    THREADS: Gauge "process_threads" [] "Threads of the process.";

    SHARD_CONNECTIONS: Gauge "highwater_shard_connections" ["shard"] "Connections open, by the shard that serves them.";
    SHARD_PARTITIONS: Gauge "highwater_shard_partitions" ["shard"] "Partitions that are online, by the shard that owns them.";
    SHARD_REQUESTS: Counter "highwater_shard_requests" ["shard"] "Requests read, by the shard of their connection.";

    CONNECTIONS: Counter "highwater_connections" [] "Connections accepted.";
    CONNECTIONS_OPEN: Gauge "highwater_connections_open" [] "Connections open.";
    CONNECTIONS_CLOSED: Counter "highwater_connections_closed" ["reason"] "Connections that the broker closed: idle (connections.max.idle.ms), slow (min.request.progress), bad (what they sent is no request).";
    CONNECTIONS_REFUSED: Counter "highwater_connections_refused" [] "Connections refused by max.connections or max.connections.per.ip.";

    REQUESTS: Counter "highwater_requests" ["api"] "Requests read, by API.";
    REQUESTS_UNKNOWN: Counter "highwater_requests_unknown" [] "Requests with an API key that no version of Kafka has.";
    REQUESTS_NOW: Gauge "highwater_requests_in_progress" [] "Requests that are read and not answered.";
    REQUEST_DURATION: Histogram "highwater_request_duration" in Seconds ["api"] "From the last byte of a request to the last byte of its answer, by API; of a fetch without what it waited for records.";
    FETCH_WAIT: Histogram "highwater_fetch_wait" in Seconds [] "How long fetches waited for records (fetch.min.bytes, fetch.max.wait.ms); those that waited.";
    RECEIVED: Counter "highwater_received" in Bytes [] "Bytes of requests.";
    SENT: Counter "highwater_sent" in Bytes [] "Bytes of answers.";

    PRODUCED_BATCHES: Counter "highwater_produced_batches" [] "Record batches appended.";
    PRODUCED_RECORDS: Counter "highwater_produced_records" [] "Records appended.";
    PRODUCED: Counter "highwater_produced" in Bytes [] "Bytes of record batches appended.";
    PRODUCE_ERRORS: Counter "highwater_produce_errors" [] "Record batches refused, or failed by a write.";
    PRODUCE_STAGE: Histogram "highwater_produce_stage_duration" in Seconds ["stage"] "The stages of a produce: mesh (an order on its way to another shard), queue (a validated batch until its write begins), write (one write of all that was queued), flush (one flush of a partition), reply (a produce from its outcome to the last byte of its answer).";

    FETCHED: Counter "highwater_fetched" in Bytes [] "Bytes of record batches returned by fetches.";
    FETCH_WAITS: Counter "highwater_fetch_waits" [] "Fetches that had to wait for records.";
    FETCH_READS: Counter "highwater_fetch_reads" ["from"] "Reads of one partition, by where the records were: cache, or disk.";
    FETCH_COLD: Counter "highwater_fetch_disk_read" in Bytes [] "Bytes that fetches read from the disk, ahead of readers too.";
    FETCH_INCREMENTAL: Counter "highwater_fetch_incremental" [] "Fetches of a session that were answered with what is new.";
    FETCH_SESSIONS: Counter "highwater_fetch_sessions" [] "Fetch sessions made.";

    WRITES: Counter "highwater_log_writes" [] "Writes to segments.";
    WRITTEN: Counter "highwater_log_written" in Bytes [] "Bytes of those writes, padding included.";
    FLUSHES: Counter "highwater_log_flushes" [] "Flushes of partitions.";
    ROLLS: Counter "highwater_segments_rolled" [] "Segments rolled.";
    REMOVED_SEGMENTS: Counter "highwater_segments_removed" [] "Segments removed by retention and DeleteRecords.";
    REMOVED: Counter "highwater_log_removed" in Bytes [] "Bytes of batches in the segments removed.";

    COMPACTION_ROUNDS: Counter "highwater_compaction_rounds" [] "Rounds of compaction that ended well; each is over one log.";
    COMPACTION_FAILURES: Counter "highwater_compaction_failures" [] "Rounds of compaction that failed; the log says why.";
    COMPACTION_NOW: Gauge "highwater_compaction_rounds_in_progress" [] "Rounds of compaction under way.";
    COMPACTION_TIME: Counter "highwater_compaction_busy" in Seconds [] "How long the rounds of compaction that ended lasted, throttling included.";
    COMPACTION_READ: Counter "highwater_compaction_read" in Bytes [] "Bytes that compaction read.";
    COMPACTION_WRITTEN: Counter "highwater_compaction_written" in Bytes [] "Bytes that compaction wrote.";
    COMPACTION_RECORDS: Counter "highwater_compaction_removed_records" [] "Records that compaction removed.";
    COMPACTION_REMOVED: Counter "highwater_compaction_removed" in Bytes [] "Bytes by which compaction made logs smaller.";
    COMPACTION_MAP: Gauge "highwater_compaction_map" in Bytes [] "Memory of the map of keys in the latest round, of the shard where it was largest; log.cleaner.dedupe.buffer.size limits it.";
    COMPACTION_DIRTY: Gauge "highwater_compaction_max_dirty_percent" [] "The dirty part of the dirtiest log that could be compacted, at the latest look.";
    COMPACTION_UNCLEANABLE: Gauge "highwater_compaction_uncleanable_partitions" [] "Partitions whose latest compaction failed; they are tried again, ever more seldom.";
    SCRUB_SEGMENTS: Counter "highwater_scrub_segments" [] "Sealed segments re-read to find damage (log.scrub.max.bytes.per.second).";
    SCRUB: Counter "highwater_scrub" in Bytes [] "Bytes re-read to find damage.";
    SCRUB_PASSES: Counter "highwater_scrub_passes" [] "Passes over all partitions of a shard that were completed.";
    SCRUB_REREADS: Counter "highwater_scrub_rereads" [] "Batches that were wrong when they were re-read and right at the second time; check the disk and its cables.";
    SCRUB_INDEXES: Counter "highwater_scrub_indexes_rebuilt" [] "Segments whose indexes were found damaged and were rebuilt.";
    SCRUB_DAMAGED: Counter "highwater_scrub_damaged_segments" [] "Damaged segments that re-reading found; their partitions are offline.";
    SCRUB_OLDEST_AGE: Gauge "highwater_scrub_oldest_age" in Seconds [] "For how long the sealed segment that waits longest has not been re-read to find damage, counted from its creation or from the broker's start where this process has not re-read it yet; well above log.scrub.interval.hours the scrubber does not keep up, or is off.";
    RECOVERY_PARTITIONS: Counter "highwater_recovery_partitions" [] "Partitions loaded since the start of the broker, or tried.";
    RECOVERY_SCANNED: Counter "highwater_recovery_scanned" in Bytes [] "Bytes that loading read and checked because nothing proves them flushed: those written since the last checkpoint.";
    RECOVERY_REBUILT: Counter "highwater_recovery_rebuilt" in Bytes [] "Bytes of segments that loading read again because an index, a snapshot or the epochs could not be used.";
    RECOVERY_ENDS: Counter "highwater_recovery_ends" in Bytes [] "Bytes that loading read at the ends of sealed segments, where a segment may be missing.";
    RECOVERY_TRUNCATED: Counter "highwater_recovery_truncated" in Bytes [] "Bytes that loading cut or removed because they were no valid batches.";
    RECOVERY_SEGMENTS: Counter "highwater_recovery_segments_opened" [] "Segment files that loading opened.";
    RECOVERY_INDEXES: Counter "highwater_recovery_indexes_rebuilt" [] "Segments whose indexes loading rebuilt.";

    MEMORY_USED: Gauge "highwater_memory_used" in Bytes ["budget"] "Memory taken, by budget: requests, small_requests, decoding, answers, small_answers, group_members, writes, grown, cold_reads, cache.";
    MEMORY_LIMIT: Gauge "highwater_memory_limit" in Bytes ["budget"] "The size of each budget.";
    MEMORY_WAITS: Counter "highwater_memory_waits" [] "Requests that waited for request memory before they were read.";
    MESH_REQUESTS: Counter "highwater_mesh_requests" [] "Requests from one shard to another.";

    STALLS: Counter "highwater_stalls" ["executor"] "Tasks that held a core for longer than stall.threshold.ms; /debug/stalls names the latest.";
    STALLED: Counter "highwater_stalled" in Seconds ["executor"] "How long those that have ended lasted.";

    DIR_OFFLINE: Gauge "highwater_log_dir_offline" ["dir"] "1 once a data directory has failed: its partitions are offline until a restart.";
    DIR_USABLE: Gauge "highwater_log_dir_usable" in Bytes ["dir"] "Free bytes of a data directory's file system, as of the last look.";
    DIR_REFUSES: Gauge "highwater_log_dir_refuses_records" ["dir"] "1 while a data directory takes no records because less than log.dir.min.free.bytes is free.";
    DIR_REFUSED: Counter "highwater_log_dir_refused_batches" ["dir"] "Record batches refused for that.";

    TOPICS: Gauge "highwater_topics" [] "Topics.";
    PARTITIONS: Gauge "highwater_partitions" ["state"] "Partitions: online, fenced (no writes until it is rebuilt), offline.";
    TOPIC_IN: Counter "highwater_topic_produced" in Bytes ["topic"] "Bytes of record batches appended, by topic; (other): all beyond metrics.topics.max.";
    TOPIC_IN_RECORDS: Counter "highwater_topic_produced_records" ["topic"] "Records appended, by topic.";
    TOPIC_IN_BATCHES: Counter "highwater_topic_produced_batches" ["topic"] "Record batches appended, by topic.";
    TOPIC_IN_ERRORS: Counter "highwater_topic_produce_errors" ["topic"] "Record batches refused, or failed by a write, by topic.";
    TOPIC_OUT: Counter "highwater_topic_fetched" in Bytes ["topic"] "Bytes of record batches read for consumers, by topic.";
    TOPIC_OUT_RECORDS: Counter "highwater_topic_fetched_records" ["topic"] "Records read for consumers, by topic.";
    TOPIC_OUT_BATCHES: Counter "highwater_topic_fetched_batches" ["topic"] "Record batches read for consumers, by topic.";
    TOPIC_OUT_ERRORS: Counter "highwater_topic_fetch_errors" ["topic"] "Reads refused (an offset out of range, another leader epoch) or failed, by topic.";
    TOPIC_SIZE: Gauge "highwater_topic_log" in Bytes ["topic"] "Bytes of the partitions' logs, by topic.";
    LOG_START: Gauge "highwater_partition_log_start_offset" ["topic", "partition"] "The first offset of a partition.";
    HIGH_WATERMARK: Gauge "highwater_partition_high_watermark" ["topic", "partition"] "The high watermark: consumers see what lies below.";
    END_OFFSET: Gauge "highwater_partition_log_end_offset" ["topic", "partition"] "The LEO: the offset after the last record written.";
    PARTITION_SIZE: Gauge "highwater_partition_log" in Bytes ["topic", "partition"] "Bytes of a partition's log.";
    SEGMENTS: Gauge "highwater_partition_segments" ["topic", "partition"] "Segments of a partition.";

    GROUPS: Gauge "highwater_groups" ["state"] "Consumer groups, by state.";
    LAG: Gauge "highwater_group_lag_records" ["group", "topic", "partition"] "What a group has yet to read of a partition: its high watermark less the committed offset.";
    COMMITTED: Gauge "highwater_group_committed_offset" ["group", "topic", "partition"] "The offset that a group has committed.";

    LEFT_OUT: Gauge "highwater_metrics_left_out" ["kind"] "What the page leaves out: topics (metrics.topics.max; their sums are under (other)), partitions (metrics.partitions.max), group_offsets (metrics.group.offsets.max).";
    SCRAPE: Gauge "highwater_scrape_duration" in Seconds [] "How long gathering this page took.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_valid_unique_and_end_in_their_units_only_once() {
        let mut names = BTreeSet::new();
        for family in CATALOG {
            let name = family.name();
            let valid = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(valid), "{name}");
            for end in ["_total", "_bucket", "_info", "_count", "_sum"] {
                assert!(!name.ends_with(end), "{name}");
            }
            for unit in ["seconds", "bytes"] {
                assert!(!family.base.contains(unit), "{name}");
            }
            for label in family.labels {
                assert!(
                    label.chars().all(valid) && *label != "le",
                    "{name}: {label}"
                );
            }
            assert!(family.help.ends_with('.'), "{name}");
            assert!(names.insert(name), "twice: {}", family.name());
        }
        assert!(CATALOG.len() > 50);
    }

    #[test]
    fn the_document_has_a_row_for_each() {
        let text = markdown();
        assert_eq!(text.lines().count(), CATALOG.len() + 2);
        assert!(text.contains(
            "| `highwater_produced_bytes_total` | counter |  | Bytes of record batches appended. |"
        ));
        assert!(
            text.contains("| `highwater_request_duration_seconds_bucket` | histogram | `api` |")
        );
    }
}
