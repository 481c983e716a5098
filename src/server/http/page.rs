//! From the figures of the shards to the page of metrics.

use super::gather::Gathered;
use super::Admin;
use crate::observe::family::*;
use crate::observe::{CountersSnapshot, Family, LatenciesSnapshot, Page, TrafficSnapshot};
use crate::protocol::ApiKey;
use crate::shard::{MetricsOrder, PartitionFigures, PartitionStates, SpaceFigures, TopicFigures};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use uuid::Uuid;

/// The label of what is summed. No topic can have the name: it has parentheses.
const OTHER: &str = "(other)";

impl Admin {
    /// The page without [`long_parts`].
    pub(super) fn page(&self, gathered: &Gathered) -> Page {
        let inner = &*self.0;
        let mut page = Page::default();
        page.info(&BUILD, &[env!("CARGO_PKG_VERSION")]);
        let uptime = inner.rt.now().since(inner.began);
        page.seconds(&UPTIME, &[], uptime.as_secs_f64());
        page.gauge(&READY, &[], self.seems_ready().into());
        page.seconds(&SCRAPE, &[], gathered.took.as_secs_f64());
        process(&mut page, gathered);
        shards(&mut page, gathered);
        let mut sum = inner.control.counters().snapshot();
        for shard in &gathered.shards {
            sum.merge(&shard.counters);
        }
        counters(&mut page, &sum);
        let topics_all = inner.control.image().topics().count();
        page.gauge(&TOPICS, &[], gauge(topics_all as u64));
        let mut kept = inner.gatherer.topics.borrow_mut();
        topics(
            &mut page,
            gathered,
            &mut kept,
            inner.config.metrics_topics_max,
        );
        page
    }
}

/// What there may be a hundred thousand rows of, and the histograms of every shard. Blocks for as long as that takes: not for
/// an executor's thread.
pub(super) fn long_parts(page: &mut Page, gathered: &Gathered, order: MetricsOrder) {
    let mut latencies: Option<LatenciesSnapshot> = None;
    for shard in &gathered.shards {
        match &mut latencies {
            Some(all) => all.merge(&shard.latencies),
            None => latencies = Some(shard.latencies.clone()),
        }
    }
    if let Some(latencies) = latencies {
        times(page, &latencies);
    }
    partitions(page, gathered, order.partitions_max);
    groups(page, gathered);
}

fn process(page: &mut Page, gathered: &Gathered) {
    let process = &gathered.process;
    let gauges = [
        (&RESIDENT, process.resident_bytes),
        (&VIRTUAL, process.virtual_bytes),
        (&OPEN_FDS, process.open_fds),
        (&MAX_FDS, process.max_fds),
        (&THREADS, process.threads),
    ];
    for (family, value) in gauges {
        if let Some(value) = value {
            page.gauge(family, &[], gauge(value));
        }
    }
    if let Some(seconds) = process.cpu_seconds {
        page.seconds(&CPU, &[], seconds);
    }
    for (executor, total) in &gathered.stalls {
        page.count(&STALLS, &[executor], total.count);
        page.seconds(&STALLED, &[executor], total.lasted.as_secs_f64());
    }
}

fn shards(page: &mut Page, gathered: &Gathered) {
    let mut memory: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut states = PartitionStates::default();
    for (number, shard) in gathered.shards.iter().enumerate() {
        let label = number.to_string();
        let counters = &shard.counters;
        let open = gauge(counters.connections_open);
        page.gauge(&SHARD_CONNECTIONS, &[&label], open);
        page.gauge(&SHARD_PARTITIONS, &[&label], gauge(shard.states.online));
        let requests: u64 = counters.requests_by_api.iter().sum();
        let requests = requests + counters.requests_unknown;
        page.count(&SHARD_REQUESTS, &[&label], requests);
        for (budget, used, limit) in &shard.memory {
            let sum = memory.entry(budget).or_default();
            *sum = (sum.0 + used, sum.1 + limit);
        }
        states.online += shard.states.online;
        states.fenced += shard.states.fenced;
        states.offline += shard.states.offline;
    }
    for (budget, (used, limit)) in memory {
        page.gauge(&MEMORY_USED, &[budget], gauge(used));
        page.gauge(&MEMORY_LIMIT, &[budget], gauge(limit));
    }
    for (dir, offline) in &gathered.dirs {
        page.gauge(&DIR_OFFLINE, &[dir], i64::from(offline.is_some()));
    }
    for space in spaces(gathered) {
        if let Some(usable) = space.usable_bytes {
            page.gauge(&DIR_USABLE, &[&space.dir], gauge(usable));
        }
        page.gauge(&DIR_REFUSES, &[&space.dir], i64::from(space.refuses));
        page.count(&DIR_REFUSED, &[&space.dir], space.refused);
    }
    let states = [
        ("online", states.online),
        ("fenced", states.fenced),
        ("offline", states.offline),
    ];
    for (state, count) in states {
        page.gauge(&PARTITIONS, &[state], gauge(count));
    }
    compaction(page, gathered);
    let ages = gathered.shards.iter().map(|shard| shard.scrub_age);
    let oldest = ages.max().unwrap_or_default();
    page.seconds(&SCRUB_OLDEST_AGE, &[], oldest.as_secs_f64());
}

fn compaction(page: &mut Page, gathered: &Gathered) {
    let figures = || gathered.shards.iter().map(|shard| shard.compaction);
    let map = figures().map(|one| one.map_bytes).max().unwrap_or(0);
    page.gauge(&COMPACTION_MAP, &[], gauge(map));
    let dirty = figures()
        .map(|one| one.dirty_percent_max)
        .max()
        .unwrap_or(0);
    page.gauge(&COMPACTION_DIRTY, &[], gauge(dirty));
    let uncleanable = figures().map(|one| one.uncleanable).sum();
    page.gauge(&COMPACTION_UNCLEANABLE, &[], gauge(uncleanable));
}

/// The data directories, over all shards.
fn spaces(gathered: &Gathered) -> Vec<SpaceFigures> {
    let mut all: Vec<SpaceFigures> = Vec::new();
    for space in gathered.shards.iter().flat_map(|shard| &shard.spaces) {
        match all.iter_mut().find(|known| known.dir == space.dir) {
            None => all.push(space.clone()),
            Some(known) => {
                known.usable_bytes = match (known.usable_bytes, space.usable_bytes) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, other) => one.or(other),
                };
                known.refuses |= space.refuses;
                known.refused += space.refused;
            }
        }
    }
    all
}

fn counters(page: &mut Page, sum: &CountersSnapshot) {
    let plain = [
        (&CONNECTIONS, sum.connections),
        (&CONNECTIONS_REFUSED, sum.connections_refused),
        (&REQUESTS_UNKNOWN, sum.requests_unknown),
        (&RECEIVED, sum.bytes_in),
        (&SENT, sum.bytes_out),
        (&PRODUCED_BATCHES, sum.produce_batches),
        (&PRODUCED_RECORDS, sum.produce_records),
        (&PRODUCED, sum.produce_bytes),
        (&PRODUCE_ERRORS, sum.produce_errors),
        (&FETCHED, sum.fetch_bytes),
        (&FETCH_WAITS, sum.fetch_waits),
        (&FETCH_COLD, sum.fetch_cold_bytes),
        (&FETCH_INCREMENTAL, sum.fetch_incremental),
        (&FETCH_SESSIONS, sum.fetch_sessions_made),
        (&WRITES, sum.writes),
        (&WRITTEN, sum.write_bytes),
        (&FLUSHES, sum.flushes),
        (&ROLLS, sum.segment_rolls),
        (&REMOVED_SEGMENTS, sum.removed_segments),
        (&REMOVED, sum.removed_bytes),
        (&COMPACTION_ROUNDS, sum.compaction_rounds),
        (&COMPACTION_FAILURES, sum.compaction_failures),
        (&COMPACTION_READ, sum.compaction_read_bytes),
        (&COMPACTION_WRITTEN, sum.compaction_written_bytes),
        (&COMPACTION_RECORDS, sum.compaction_removed_records),
        (&COMPACTION_REMOVED, sum.compaction_removed_bytes),
        (&SCRUB_SEGMENTS, sum.scrub_segments),
        (&SCRUB, sum.scrub_bytes),
        (&SCRUB_PASSES, sum.scrub_passes),
        (&SCRUB_REREADS, sum.scrub_rereads),
        (&SCRUB_INDEXES, sum.scrub_indexes_rebuilt),
        (&SCRUB_DAMAGED, sum.scrub_damaged),
        (&RECOVERY_PARTITIONS, sum.recovery_partitions),
        (&RECOVERY_SCANNED, sum.recovery_scanned_bytes),
        (&RECOVERY_REBUILT, sum.recovery_rebuilt_bytes),
        (&RECOVERY_ENDS, sum.recovery_ends_bytes),
        (&RECOVERY_TRUNCATED, sum.recovery_truncated_bytes),
        (&RECOVERY_SEGMENTS, sum.recovery_segments_opened),
        (&RECOVERY_INDEXES, sum.recovery_indexes_rebuilt),
        (&MEMORY_WAITS, sum.memory_waits),
        (&MESH_REQUESTS, sum.mesh_requests),
    ];
    for (family, count) in plain {
        page.count(family, &[], count);
    }
    let labelled = [
        (&CONNECTIONS_CLOSED, "idle", sum.connections_idle_closed),
        (&CONNECTIONS_CLOSED, "slow", sum.connections_slow_closed),
        (&CONNECTIONS_CLOSED, "bad", sum.connections_bad),
        (&FETCH_READS, "cache", sum.fetch_cache_reads),
        (&FETCH_READS, "disk", sum.fetch_cold_reads),
    ];
    for (family, label, count) in labelled {
        page.count(family, &[label], count);
    }
    page.gauge(&CONNECTIONS_OPEN, &[], gauge(sum.connections_open));
    page.gauge(&REQUESTS_NOW, &[], gauge(sum.requests_now));
    let rounds = gauge(sum.compaction_rounds_now);
    page.gauge(&COMPACTION_NOW, &[], rounds);
    let busy = Duration::from_micros(sum.compaction_micros);
    page.seconds(&COMPACTION_TIME, &[], busy.as_secs_f64());
    for (key, count) in sum.requests_by_api.iter().enumerate() {
        if *count > 0 {
            page.count(&REQUESTS, &[&api_label(key as i16)], *count);
        }
    }
}

fn times(page: &mut Page, latencies: &LatenciesSnapshot) {
    for (stage, latency) in latencies.stages() {
        page.histogram(&PRODUCE_STAGE, &[stage.label()], latency);
    }
    page.histogram(&FETCH_WAIT, &[], &latencies.fetch_wait);
    for (key, latency) in &latencies.apis {
        page.histogram(&REQUEST_DURATION, &[&api_label(*key)], latency);
    }
}

/// Its name in Kafka; the number of one that we do not know.
fn api_label(key: i16) -> String {
    match ApiKey::declared(key) {
        Some(api) => api.name().to_owned(),
        None => key.to_string(),
    }
}

/// What is known of topics from one scrape to the next.
#[derive(Default)]
pub(super) struct Topics {
    /// Those with metrics of their own. One that has them keeps them as long as it lives, so that no counter comes and goes.
    shown: BTreeSet<Uuid>,
    /// What each of the others had done at the last scrape.
    others: BTreeMap<Uuid, TrafficSnapshot>,
    /// What all have done while they were among the others: it stays when one goes, or gets metrics of its own.
    other: TrafficSnapshot,
}

fn topics(page: &mut Page, gathered: &Gathered, kept: &mut Topics, max: usize) {
    let mut all: BTreeMap<Uuid, TopicFigures> = BTreeMap::new();
    for figures in gathered.shards.iter().flat_map(|shard| &shard.topics) {
        let sum = all.entry(figures.id).and_modify(|sum| {
            sum.traffic.merge(&figures.traffic);
            sum.log_bytes += figures.log_bytes;
        });
        sum.or_insert_with(|| figures.clone());
    }
    choose(&mut kept.shown, &all, max);
    let before = std::mem::take(&mut kept.others);
    let mut other_bytes = 0;
    for topic in all.values() {
        if kept.shown.contains(&topic.id) {
            traffic(page, &topic.name, &topic.traffic, topic.log_bytes);
            continue;
        }
        let then = before.get(&topic.id).copied().unwrap_or_default();
        kept.other.merge(&topic.traffic.since(&then));
        kept.others.insert(topic.id, topic.traffic);
        other_bytes += topic.log_bytes;
    }
    if !kept.others.is_empty() || kept.other != TrafficSnapshot::default() {
        traffic(page, OTHER, &kept.other, other_bytes);
    }
    page.gauge(&LEFT_OUT, &["topics"], gauge(kept.others.len() as u64));
}

/// Those that are shown stay; while there is room, others join them in the order of their names.
fn choose(shown: &mut BTreeSet<Uuid>, all: &BTreeMap<Uuid, TopicFigures>, max: usize) {
    shown.retain(|id| all.contains_key(id));
    if shown.len() >= max {
        return;
    }
    let mut others: Vec<&TopicFigures> = all.values().filter(|t| !shown.contains(&t.id)).collect();
    others.sort_unstable_by_key(|topic| &topic.name);
    let room = max - shown.len();
    shown.extend(others.iter().take(room).map(|topic| topic.id));
}

fn traffic(page: &mut Page, topic: &str, traffic: &TrafficSnapshot, log_bytes: u64) {
    let counts: [(&'static Family, u64); 8] = [
        (&TOPIC_IN, traffic.in_bytes),
        (&TOPIC_IN_RECORDS, traffic.in_records),
        (&TOPIC_IN_BATCHES, traffic.in_batches),
        (&TOPIC_IN_ERRORS, traffic.in_errors),
        (&TOPIC_OUT, traffic.out_bytes),
        (&TOPIC_OUT_RECORDS, traffic.out_records),
        (&TOPIC_OUT_BATCHES, traffic.out_batches),
        (&TOPIC_OUT_ERRORS, traffic.out_errors),
    ];
    for (family, count) in counts {
        page.count(family, &[topic], count);
    }
    page.gauge(&TOPIC_SIZE, &[topic], gauge(log_bytes));
}

fn partitions(page: &mut Page, gathered: &Gathered, max: usize) {
    let shards = gathered.shards.iter();
    let mut first: Vec<&PartitionFigures> = shards.flat_map(|shard| &shard.partitions).collect();
    first.sort_unstable_by(|a, b| (&a.topic, a.key.index).cmp(&(&b.topic, b.key.index)));
    first.truncate(max);
    for figures in &first {
        let labels = [&*figures.topic, &figures.key.index.to_string()];
        let numbers = &figures.numbers;
        let values = [
            (&LOG_START, numbers.log_start_offset),
            (&HIGH_WATERMARK, numbers.high_watermark),
            (&END_OFFSET, numbers.end_offset),
            (&PARTITION_SIZE, gauge(figures.log_bytes)),
            (&SEGMENTS, gauge(figures.segments)),
        ];
        for (family, value) in values {
            page.gauge(family, &labels, value);
        }
    }
    let opened = gathered.shards.iter().map(|shard| shard.opened as usize);
    let left_out = opened.sum::<usize>().saturating_sub(first.len());
    page.gauge(&LEFT_OUT, &["partitions"], gauge(left_out as u64));
}

fn groups(page: &mut Page, gathered: &Gathered) {
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    let mut offsets_all = 0;
    for groups in gathered.shards.iter().map(|shard| &shard.groups) {
        for (state, count) in &groups.states {
            *states.entry(state).or_default() += count;
        }
        offsets_all += groups.offsets_all;
    }
    for (state, count) in states {
        page.gauge(&GROUPS, &[state], gauge(count));
    }
    for (offset, high_watermark) in &gathered.offsets {
        let labels = [
            &*offset.group,
            &*offset.topic,
            &offset.partition.to_string(),
        ];
        page.gauge(&COMMITTED, &labels, offset.offset);
        if let Some(high_watermark) = high_watermark {
            let lag = high_watermark.saturating_sub(offset.offset).max(0);
            page.gauge(&LAG, &labels, lag);
        }
    }
    let left_out = offsets_all.saturating_sub(gathered.offsets.len());
    page.gauge(&LEFT_OUT, &["group_offsets"], gauge(left_out as u64));
}

/// Gauges are signed in the library.
fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Str;
    use crate::shard::{CommittedFigures, GroupFigures, ShardMetrics};
    use std::sync::Arc;

    fn topic(id: u128, name: &str) -> (Uuid, TopicFigures) {
        let id = Uuid::from_u128(id);
        let figures = TopicFigures {
            id,
            name: Arc::from(name),
            traffic: TrafficSnapshot::default(),
            log_bytes: 0,
        };
        (id, figures)
    }

    #[test]
    fn topics_that_are_shown_stay_and_room_goes_to_the_first_by_name() {
        let mut shown = BTreeSet::new();
        let mut all = BTreeMap::from([topic(1, "d"), topic(2, "c"), topic(3, "b")]);
        let mut choose = |all: &BTreeMap<_, _>, max| {
            choose(&mut shown, all, max);
            shown.iter().map(Uuid::as_u128).collect::<Vec<_>>()
        };
        assert_eq!(choose(&all, 2), [2, 3]);
        all.extend([topic(4, "a")]);
        assert_eq!(choose(&all, 2), [2, 3]);
        all.remove(&Uuid::from_u128(3));
        assert_eq!(choose(&all, 2), [2, 4]);
        assert_eq!(
            choose(&all, 0),
            [2, 4],
            "settings do not change while it runs"
        );
        assert_eq!(choose(&BTreeMap::new(), 2), []);
    }

    fn shard(states: &[(&'static str, u64)], offsets_all: usize) -> ShardMetrics {
        let counters = crate::observe::Counters::default();
        ShardMetrics {
            counters: counters.snapshot(),
            latencies: counters.latencies.snapshot(),
            memory: Vec::new(),
            spaces: Vec::new(),
            states: PartitionStates::default(),
            topics: Vec::new(),
            opened: 0,
            partitions: Vec::new(),
            compaction: Default::default(),
            scrub_age: Duration::ZERO,
            groups: GroupFigures {
                states: states.iter().copied().collect(),
                offsets: Vec::new(),
                offsets_all,
            },
        }
    }

    /// Else a deleted topic, or one that gets metrics of its own, looks like a restart, and a rate like a flood.
    #[test]
    fn the_sum_of_the_other_topics_only_rises() {
        let mut kept = Topics::default();
        let mut shown = |topics_now: &[(u128, &str, u64)]| {
            let mut metrics = shard(&[], 0);
            metrics.topics = topics_now
                .iter()
                .map(|(id, name, records)| {
                    let (_, mut figures) = topic(*id, name);
                    figures.traffic.in_records = *records;
                    figures
                })
                .collect();
            let mut page = Page::default();
            topics(&mut page, &gathered(vec![metrics]), &mut kept, 1);
            let text = page.render();
            let of = |topic: &str| -> Option<u64> {
                let line =
                    format!("\nhighwater_topic_produced_records_total{{topic=\"{topic}\"}} ");
                let (_, rest) = text.split_once(&line)?;
                rest.lines().next()?.parse().ok()
            };
            (of("a"), of("b"), of("(other)"))
        };
        let first = shown(&[(1, "a", 5), (2, "b", 100), (3, "c", 10)]);
        assert_eq!(first, (Some(5), None, Some(110)));
        // One of the others is deleted.
        let second = shown(&[(1, "a", 6), (2, "b", 101)]);
        assert_eq!(second, (Some(6), None, Some(111)));
        // The last of them gets the room of one that is deleted.
        assert_eq!(shown(&[(2, "b", 105)]), (None, Some(105), Some(111)));
        // One comes again by its name; it has another id.
        let last = shown(&[(2, "b", 105), (4, "a", 3)]);
        assert_eq!(last, (None, Some(105), Some(114)));
    }

    fn gathered(shards: Vec<ShardMetrics>) -> Gathered {
        Gathered {
            shards,
            offsets: Vec::new(),
            dirs: Vec::new(),
            process: Default::default(),
            stalls: BTreeMap::new(),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn lag_is_what_lies_between_the_commit_and_the_high_watermark() {
        let offset = |group: &str, topic: &str, offset, high_watermark: Option<i64>| {
            let figures = CommittedFigures {
                group: Str::from(group.to_owned()),
                topic: Str::from(topic.to_owned()),
                partition: 3,
                offset,
            };
            (figures, high_watermark)
        };
        let shards = vec![
            shard(&[("Stable", 2), ("Empty", 1)], 5),
            shard(&[("Stable", 1)], 7),
        ];
        let gathered = Gathered {
            offsets: vec![
                offset("g\"1\n", "t", 10, Some(15)),
                offset("g2", "t", 10, Some(10)),
                // Committed beyond the end, as a client may.
                offset("g3", "t", 99, Some(15)),
                // The topic was deleted.
                offset("g4", "gone", 7, None),
            ],
            ..gathered(shards)
        };
        let mut page = Page::default();
        groups(&mut page, &gathered);
        let text = page.render();
        let has = |line: &str| assert!(text.contains(&format!("\n{line}\n")), "{line}\n{text}");
        has("highwater_group_lag_records{group=\"g\\\"1\\n\",topic=\"t\",partition=\"3\"} 5");
        has("highwater_group_lag_records{group=\"g2\",topic=\"t\",partition=\"3\"} 0");
        has("highwater_group_lag_records{group=\"g3\",topic=\"t\",partition=\"3\"} 0");
        assert!(!text.contains("lag_records{group=\"g4\""));
        has("highwater_group_committed_offset{group=\"g4\",topic=\"gone\",partition=\"3\"} 7");
        has("highwater_groups{state=\"Stable\"} 3");
        has("highwater_groups{state=\"Empty\"} 1");
        has("highwater_metrics_left_out{kind=\"group_offsets\"} 8");
    }
}
