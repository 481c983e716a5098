//! Counters: one plain struct for each shard, added to by its own thread only.
//!
//! A shard's counters are `Cell`s, so counting is an addition without a lock or an atomic. Another thread never sees
//! them: it is sent a [`CountersSnapshot`], and snapshots of several shards are merged by addition. All counts only
//! rise, except for the gauges, whose names end in `_open` and `_now`.

use super::Latencies;
use std::cell::Cell;

/// API keys that are counted by key; a larger or negative key counts as unknown.
pub const API_KEYS: usize = 96;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one shard counts. `!Sync`: only its own thread adds.
        #[derive(Debug)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Count,)*
            /// Requests read, by API key.
            requests_by_api: [Count; API_KEYS],
            /// How long they took, and the stages of a produce.
            pub latencies: Latencies,
        }

        /// The counts of one shard at one moment, or of several added together.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct CountersSnapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Requests read, by API key.
            pub requests_by_api: [u64; API_KEYS],
        }

        impl Default for Counters {
            fn default() -> Counters {
                Counters {
                    $($name: Count::default(),)*
                    requests_by_api: std::array::from_fn(|_| Count::default()),
                    latencies: Latencies::default(),
                }
            }
        }

        impl Default for CountersSnapshot {
            fn default() -> CountersSnapshot {
                CountersSnapshot { $($name: 0,)* requests_by_api: [0; API_KEYS] }
            }
        }

        impl Counters {
            /// The counts now, without the latencies.
            pub fn snapshot(&self) -> CountersSnapshot {
                CountersSnapshot {
                    $($name: self.$name.get(),)*
                    requests_by_api: std::array::from_fn(|key| self.requests_by_api[key].get()),
                }
            }
        }

        impl CountersSnapshot {
            /// Adds another shard's counts to these.
            pub fn merge(&mut self, other: &CountersSnapshot) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
                for (mine, theirs) in self.requests_by_api.iter_mut().zip(&other.requests_by_api) {
                    *mine = mine.wrapping_add(*theirs);
                }
            }

            /// Name and count of each counter, in the order of the struct, without the counts by API key.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Connections taken over since the start.
    connections,
    /// Connections open now: a gauge.
    connections_open,
    /// Connections closed for being idle.
    connections_idle_closed,
    /// Connections refused because of `max.connections` or `max.connections.per.ip`.
    connections_refused,
    /// Connections closed because of what they sent: a bad frame or header.
    connections_bad,
    /// Connections closed by `min.request.progress`.
    connections_slow_closed,
    /// Requests whose API key is unknown or not served.
    requests_unknown,
    /// Requests that wait or are served now: a gauge.
    requests_now,
    /// Bytes read from clients, frame lengths included.
    bytes_in,
    /// Bytes written to clients, frame lengths included.
    bytes_out,
    /// Record batches appended.
    produce_batches,
    /// Records appended.
    produce_records,
    /// Bytes of record batches appended.
    produce_bytes,
    /// Record batches refused by validation or by a failed write.
    produce_errors,
    /// Bytes of record batches returned by fetches.
    fetch_bytes,
    /// Fetches that had to wait for records.
    fetch_waits,
    /// Reads of one partition that the cache answered alone.
    fetch_cache_reads,
    /// Reads of one partition that went to the disk.
    fetch_cold_reads,
    /// Bytes that fetches read from the disk, ahead of readers too.
    fetch_cold_bytes,
    /// Fetches of a session that were answered with what is new.
    fetch_incremental,
    /// Fetch sessions made.
    fetch_sessions_made,
    /// Writes to segments.
    writes,
    /// Bytes of those writes, padding included.
    write_bytes,
    /// Flushes of partitions.
    flushes,
    /// Segments rolled.
    segment_rolls,
    /// Segments removed by retention and DeleteRecords.
    removed_segments,
    /// Bytes of batches in those segments.
    removed_bytes,
    /// Rounds of compaction that ended well.
    compaction_rounds,
    /// Rounds of compaction that failed.
    compaction_failures,
    /// Rounds of compaction under way: a gauge.
    compaction_rounds_now,
    /// Microseconds of the rounds that ended, well or not.
    compaction_micros,
    /// Bytes that those which ended well read.
    compaction_read_bytes,
    /// Bytes that they wrote.
    compaction_written_bytes,
    /// Records that they removed.
    compaction_removed_records,
    /// By how many bytes they made logs smaller.
    compaction_removed_bytes,
    /// Sealed segments that the scrubber re-read to their end.
    scrub_segments,
    /// Bytes that it re-read.
    scrub_bytes,
    /// Passes over all partitions of a shard that it completed.
    scrub_passes,
    /// Batches that it read wrong once, and right at the second read.
    scrub_rereads,
    /// Segments whose indexes it rebuilt.
    scrub_indexes_rebuilt,
    /// Damaged segments that it found.
    scrub_damaged,
    /// Partitions loaded since the start, or tried.
    recovery_partitions,
    /// Bytes that loads read of what was written since the last checkpoint.
    recovery_scanned_bytes,
    /// Bytes that loads read again because what was stored of them could not be used.
    recovery_rebuilt_bytes,
    /// Bytes that loads read at the ends of sealed segments.
    recovery_ends_bytes,
    /// Bytes that loads cut or removed.
    recovery_truncated_bytes,
    /// Segment files that loads opened.
    recovery_segments_opened,
    /// Segments whose indexes loads rebuilt.
    recovery_indexes_rebuilt,
    /// Bytes of segments that recovery scans were to read, as far as they have begun.
    recovery_due_bytes,
    /// Those of scans that have ended.
    recovery_done_bytes,
    /// Times a request waited for request memory.
    memory_waits,
    /// Requests sent to another shard.
    mesh_requests,
}

impl Counters {
    /// Counts a request by its API key.
    pub fn request(&self, api_key: i16) {
        match usize::try_from(api_key)
            .ok()
            .and_then(|key| self.requests_by_api.get(key))
        {
            Some(count) => count.add(1),
            None => self.requests_unknown.add(1),
        }
    }
}

/// One count.
#[derive(Debug, Default)]
pub struct Count(Cell<u64>);

impl Count {
    /// Adds `n`. Wraps, which at a billion a second takes five centuries.
    pub fn add(&self, n: u64) {
        self.0.set(self.0.get().wrapping_add(n));
    }

    /// Takes `n` from a gauge. More than it holds is a bug of the caller; the gauge then stays at 0.
    pub fn sub(&self, n: u64) {
        debug_assert!(self.0.get() >= n, "a gauge went below 0");
        self.0.set(self.0.get().saturating_sub(n));
    }

    /// The count now.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_two_shards_then_their_snapshots_add_up() {
        let (a, b) = (Counters::default(), Counters::default());
        a.produce_records.add(3);
        b.produce_records.add(4);
        b.connections_open.add(2);
        b.connections_open.sub(1);
        a.request(18);
        b.request(18);
        for unknown in [-1, API_KEYS as i16, i16::MAX, i16::MIN] {
            b.request(unknown);
        }
        let mut sum = a.snapshot();
        sum.merge(&b.snapshot());
        assert_eq!(sum.produce_records, 7);
        assert_eq!(sum.connections_open, 1);
        assert_eq!(sum.requests_by_api[18], 2);
        assert_eq!(sum.requests_unknown, 4);
        let named = sum.named();
        assert!(named.contains(&("produce_records", 7)));
        assert_eq!(named.iter().map(|(_, count)| count).sum::<u64>(), 7 + 1 + 4);
    }
}
