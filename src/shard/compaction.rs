//! When which log is compacted, and what becomes of it.
//!
//! One task of a shard, in the background queue, compacts one log after the other: the
//! one that needs it most ([`Urgency`]), as long as there is one; then it looks again
//! after `log.cleaner.backoff.ms`. Why it disturbs nobody: it gives way wherever it
//! works for long, its bytes are paid for by the shard's share of
//! `log.cleaner.io.max.bytes.per.second`, and its one large piece of memory, the map of
//! keys, is the shard's share of `log.cleaner.dedupe.buffer.size`.
//!
//! A round ends early when the shard stops, when its topic's settings change, when its
//! topic is deleted and when a data directory becomes short of space. One whose log's
//! directory has no room for it does not begin ([`bytes_wanted`]). A log whose round
//! failed is left alone, longer and longer, and counted until a round of it ends well.
//!
//! What it is not: what a round keeps and how it replaces files is the storage's.

use super::messages::{PartitionKey, Request};
use super::partitions::Named;
use super::Shard;
use crate::config::Ratio;
use crate::runtime::local::Event;
use crate::runtime::{Mono, Queue};
use crate::storage::{Compacted, CompactionError, CompactionMeans, CompactionNeed, Recorder};
use futures_lite::future::or;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What a shard's compaction is at.
#[derive(Default)]
pub(super) struct Compaction {
    /// The round under way.
    round: RefCell<Option<(PartitionKey, Event)>>,
    failed: RefCell<BTreeMap<PartitionKey, Failed>>,
    /// Those whose round would find no room now.
    put_off: RefCell<BTreeSet<PartitionKey>>,
    dirty_percent_max: Cell<u64>,
    map_bytes: Cell<u64>,
}

/// The figures of one shard's compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionFigures {
    /// The dirty part of the dirtiest log at the latest look, percent.
    pub dirty_percent_max: u64,
    /// Memory of the map of keys in the latest round, bytes.
    pub map_bytes: u64,
    /// Partitions whose latest round failed.
    pub uncleanable: u64,
}

/// A partition whose latest round failed.
struct Failed {
    /// How often in a row.
    times: u32,
    again_at: Mono,
}

/// Why a log is to be compacted, the more urgent the greater.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Urgency {
    /// Nothing is dirty, and deletion markers have had their time.
    Deletes,
    /// So much of it is dirty, from 0 to 1, which is more than its topic allows.
    Dirty(f64),
    /// A record has reached `max.compaction.lag.ms`; so much of it is dirty.
    Overdue(f64),
}

impl Urgency {
    /// Kafka's rules; `None`: it can wait.
    fn of(need: &CompactionNeed, ratio_min: Ratio) -> Option<Urgency> {
        let ratio = need.dirty_ratio();
        match need.dirty_bytes > 0 {
            true if need.overdue => Some(Urgency::Overdue(ratio)),
            true if ratio > ratio_min.get() => Some(Urgency::Dirty(ratio)),
            _ => need.deletes_due.then_some(Urgency::Deletes),
        }
    }
}

/// The free bytes that a round over a log takes at most until the old segments are
/// gone, which is after `file.delete.delay.ms`: where space is short all that it reads.
/// Elsewhere one segment's worth is enough to begin: a round ends when space gets short.
fn bytes_wanted(need: &CompactionNeed, is_low: bool, segment_bytes: u32) -> u64 {
    let all = need.clean_bytes + need.dirty_bytes;
    match is_low {
        true => all,
        false => all.min(u64::from(segment_bytes)),
    }
}

/// Starts the shard's compaction, unless it is disabled.
pub(super) fn start(shard: &Shard) {
    shard.limit_compaction();
    if !shard.config().log_cleaner_enable {
        return;
    }
    let shard_ = shard.clone();
    shard
        .rt()
        .spawn(Queue::Background, async move { run(shard_).await });
}

async fn run(shard: Shard) {
    loop {
        let stop = shard.stop_event().listen();
        if shard.is_stopping() {
            return;
        }
        let went_on = match shard.most_urgent().await {
            Some((named, need)) => shard.compact(&named, &need).await,
            None => false,
        };
        if !went_on {
            let backoff = Duration::from_millis(shard.config().log_cleaner_backoff_ms);
            or(stop, shard.rt().sleep(backoff.max(BACKOFF_MIN))).await;
        }
    }
}

impl Shard {
    /// The log that is to be compacted next.
    async fn most_urgent(&self) -> Option<(Named, CompactionNeed)> {
        // Not while the rest is loaded.
        self.image()?;
        let state = &self.0.compaction;
        let (mut first, mut dirty_max) = (None, 0.0_f64);
        let partitions = self.0.partitions.all_online();
        state
            .failed
            .borrow_mut()
            .retain(|key, _| self.0.partitions.online(key).is_ok());
        let put_off = |key: &PartitionKey| self.0.partitions.online(key).is_ok();
        state.put_off.borrow_mut().retain(put_off);
        for named in partitions {
            if self.is_stopping() {
                return None;
            }
            let Some(ratio_min) = named.partition.compacted_from() else {
                continue;
            };
            if !self.may_try(&named.key) {
                continue;
            }
            match named.partition.compaction_need().await {
                Ok(Some(need)) => {
                    dirty_max = dirty_max.max(need.dirty_ratio());
                    let urgency = Urgency::of(&need, ratio_min);
                    if let Some(urgency) = urgency.filter(|_| self.has_room(&named, &need)) {
                        let more = |(before, ..): &(Urgency, _, _)| urgency > *before;
                        if first.as_ref().is_none_or(more) {
                            first = Some((urgency, named, need));
                        }
                    }
                }
                Ok(None) => {}
                Err(error) => self.compaction_failed(&named, &error),
            }
            self.rt().yield_if_needed().await;
        }
        state.dirty_percent_max.set((dirty_max * 100.0) as u64);
        first.map(|(_, named, need)| (named, need))
    }

    fn may_try(&self, key: &PartitionKey) -> bool {
        let failed = self.0.compaction.failed.borrow();
        let now = self.rt().now();
        failed.get(key).is_none_or(|failed| failed.again_at <= now)
    }

    /// Whether a round over the log has room on its disk. Told once for each time that it
    /// has none.
    fn has_room(&self, named: &Named, need: &CompactionNeed) -> bool {
        let mut put_off = self.0.compaction.put_off.borrow_mut();
        let is_low = self.0.partitions.dirs.room(named.dir).is_low();
        let wanted = bytes_wanted(need, is_low, named.partition.segment_bytes());
        // Where nobody knows what is free, the round will tell.
        let usable = self.usable_bytes(named.dir).unwrap_or(u64::MAX);
        if wanted <= usable {
            put_off.remove(&named.key);
            return true;
        }
        if put_off.insert(named.key) {
            tracing::warn!(
                partition = %named.name(),
                wanted_bytes = wanted,
                usable_bytes = usable,
                "compaction is put off until its data directory has room for the compacted segments beside the old ones: free space on it"
            );
        }
        false
    }

    /// Puts in force the shard's share of `log.cleaner.io.max.bytes.per.second`, also for
    /// the round under way.
    pub(super) fn limit_compaction(&self) {
        let bytes_per_second = match self.config().log_cleaner_io_max_bytes_per_second {
            u64::MAX => 0,
            limit => limit.div_ceil(self.0.shards.max(1) as u64),
        };
        let throttle = self.0.storage.background();
        throttle.set_bytes_per_second(bytes_per_second);
    }

    /// Makes it durable how far a partition's log is compacted.
    pub(super) fn cleaned_recorder(
        &self,
        key: PartitionKey,
        topic: Arc<str>,
        dir: usize,
    ) -> Recorder {
        self.recorder(key, topic, dir, |line, offset| {
            line.cleaned_to = Some(offset);
            Request::RecordCleaned
        })
    }

    /// One round over a log. Whether there may be more to do at once.
    async fn compact(&self, named: &Named, need: &CompactionNeed) -> bool {
        if self.is_stopping() {
            return false;
        }
        let (state, counters, config) = (&self.0.compaction, self.counters(), self.config());
        let shards = self.0.shards as u64;
        let stop = Event::new();
        let means = CompactionMeans {
            throttle: self.0.storage.background().clone(),
            map_bytes: (config.log_cleaner_dedupe_buffer_size / shards) as usize,
            record: self.cleaned_recorder(named.key, named.topic.clone(), named.dir),
            stop: stop.clone(),
        };
        state.round.replace(Some((named.key, stop)));
        counters.compaction_rounds_now.add(1);
        let began = self.rt().now();
        let outcome = named.partition.compact(&means).await;
        let took = self.rt().now().since(began);
        counters.compaction_rounds_now.sub(1);
        counters.compaction_micros.add(took.as_micros() as u64);
        state.round.replace(None);
        match outcome {
            Ok(Some(done)) => {
                self.compaction_ended(named, &done);
                done.cleaned_to > need.first_dirty
            }
            // It was stopped or rebuilt meanwhile.
            Ok(None) => false,
            Err(error) => {
                self.compaction_failed(named, &error);
                // Others may have their turn, unless it is the log that came and went.
                !matches!(error, CompactionError::Closed(_))
            }
        }
    }

    fn compaction_ended(&self, named: &Named, done: &Compacted) {
        let (state, counters) = (&self.0.compaction, self.counters());
        counters.compaction_rounds.add(1);
        counters.compaction_read_bytes.add(done.bytes_read);
        counters.compaction_written_bytes.add(done.bytes_written);
        counters
            .compaction_removed_records
            .add(done.records_before.saturating_sub(done.records_after));
        counters
            .compaction_removed_bytes
            .add(done.bytes_before.saturating_sub(done.bytes_after));
        state.map_bytes.set(done.map_bytes as u64);
        state.failed.borrow_mut().remove(&named.key);
        tracing::info!(
            partition = %named.name(),
            segments_before = done.segments_before,
            segments_after = done.segments_after,
            bytes_before = done.bytes_before,
            bytes_after = done.bytes_after,
            records_before = done.records_before,
            records_after = done.records_after,
            map_bytes = done.map_bytes,
            cleaned_to = done.cleaned_to,
            buffer_bytes = done.buffer_bytes_max,
            ms = done.took.as_millis() as u64,
            ended_early = done.ended_early,
            "a log was compacted"
        );
    }

    /// Told once for each time that it begins to fail.
    fn compaction_failed(&self, named: &Named, error: &CompactionError) {
        if matches!(error, CompactionError::Closed(_)) {
            // It was stopped, deleted or rebuilt meanwhile, which says nothing of it.
            return;
        }
        self.counters().compaction_failures.add(1);
        let mut failed = self.0.compaction.failed.borrow_mut();
        let times = failed.get(&named.key).map_or(0, |failed| failed.times);
        let wait = (AGAIN_MIN * 2u32.pow(times.min(16))).min(AGAIN_MAX);
        if times == 0 {
            tracing::error!(
                partition = %named.name(),
                %error,
                again_in_seconds = wait.as_secs(),
                "compaction failed: the log is not compacted until it succeeds; it is tried ever more seldom, and again after a restart"
            );
        }
        let failure = Failed {
            times: times + 1,
            again_at: self.rt().now() + wait,
        };
        failed.insert(named.key, failure);
    }

    /// Ends the round under way early: the shard stops, or space is short.
    pub(super) fn stop_compaction(&self) {
        self.0.compaction.end_round(|_| true);
    }

    /// Ends the round over this partition early, if there is one.
    pub(super) fn interrupt_compaction(&self, key: &PartitionKey) {
        self.0.compaction.end_round(|running| running == key);
    }
}

impl Compaction {
    fn end_round(&self, is_meant: impl Fn(&PartitionKey) -> bool) {
        let round = self.round.borrow().clone();
        if let Some((_, stop)) = round.filter(|(key, _)| is_meant(key)) {
            stop.notify_all();
        }
    }

    /// The figures now.
    pub(super) fn figures(&self) -> CompactionFigures {
        CompactionFigures {
            dirty_percent_max: self.dirty_percent_max.get(),
            map_bytes: self.map_bytes.get(),
            uncleanable: self.failed.borrow().len() as u64,
        }
    }
}

/// The shortest pause where nothing is to be compacted.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// How long a log is left alone after its first failure; twice as long after each further.
const AGAIN_MIN: Duration = Duration::from_secs(60);
/// The longest that it is.
const AGAIN_MAX: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BrokerConfig, TopicConfig};

    fn ratio(text: &str) -> Ratio {
        let overrides = [("min.cleanable.dirty.ratio", text)];
        let config = TopicConfig::resolve(&BrokerConfig::default(), overrides);
        config.expect("a ratio").min_cleanable_dirty_ratio
    }

    fn need(clean_bytes: u64, dirty_bytes: u64) -> CompactionNeed {
        CompactionNeed {
            first_dirty: 10,
            end: 20,
            clean_bytes,
            dirty_bytes,
            overdue: false,
            deletes_due: false,
        }
    }

    #[test]
    fn a_log_is_compacted_above_its_ratio_or_when_it_is_overdue() {
        let half = ratio("0.5");
        assert_eq!(Urgency::of(&need(50, 50), half), None);
        assert_eq!(Urgency::of(&need(49, 51), half), Some(Urgency::Dirty(0.51)));
        let overdue = |need| CompactionNeed {
            overdue: true,
            ..need
        };
        let urgency = Urgency::of(&overdue(need(90, 10)), half);
        assert_eq!(urgency, Some(Urgency::Overdue(0.1)));
        assert_eq!(Urgency::of(&overdue(need(90, 0)), half), None);
        assert_eq!(Urgency::of(&need(0, 0), ratio("0")), None);
        assert_eq!(Urgency::of(&need(0, 1), ratio("1")), None, "as in Kafka");
    }

    #[test]
    fn a_round_wants_a_segment_and_where_space_is_short_all_that_it_reads() {
        let round = need(3_000, 4_000);
        assert_eq!(bytes_wanted(&round, false, 1_000), 1_000);
        assert_eq!(bytes_wanted(&round, false, 10_000), 7_000);
        assert_eq!(bytes_wanted(&round, true, 1_000), 7_000);
    }

    #[test]
    fn deletion_markers_alone_come_last_and_what_is_overdue_first() {
        let deletes = CompactionNeed {
            deletes_due: true,
            ..need(100, 1)
        };
        let urgency = Urgency::of(&deletes, ratio("0.5"));
        assert_eq!(urgency, Some(Urgency::Deletes));
        let rising = [
            Urgency::Deletes,
            Urgency::Dirty(0.1),
            Urgency::Dirty(0.9),
            Urgency::Overdue(0.05),
            Urgency::Overdue(0.5),
        ];
        assert!(rising.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
