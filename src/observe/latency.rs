//! Latencies of one shard: how long the stages of a produce take, and each API.
//!
//! One [`Latency`] is an HDR histogram from 1 us to a minute with two significant digits, so a value is off by less than
//! 1 %; what takes longer counts as a minute. It is 2,560 counts of 8 bytes, 20 KiB. A shard has six for its stages, and
//! one more for each API from its first request on (the one allocation): 120 KiB, and 1 MiB if clients ask for
//! every API there is.
//!
//! Recording is for the shard's own thread: no lock, no atomic, no allocation; about 5 ns, beside the clock,
//! which is read where it was read before wherever that could be (`src/README.md`, "What is measured").
//! Histograms of several shards are merged by adding their counts. Nothing is ever averaged.

use super::API_KEYS;
use hdrhistogram::Histogram;
use std::cell::{Cell, OnceCell, RefCell};

/// What one shard measures.
#[derive(Debug, Default)]
pub struct Latencies {
    /// A batch at its owner, validated, until its write begins: the write before it, and write memory.
    pub queue: Latency,
    /// An order of batches from the connection's shard to the owner, where that is another.
    pub mesh: Latency,
    /// One direct write of all that was queued.
    pub write: Latency,
    /// One flush of a partition, the wait for the flusher included.
    pub flush: Latency,
    /// A produce from its outcome to the last byte of its answer, behind the answers before it.
    pub reply: Latency,
    /// A fetch's wait for records: its long poll, not its work.
    pub fetch_wait: Latency,
    /// From the last byte of a request to the last byte of its answer, without what a fetch waited, by API key.
    apis: Apis,
}

#[derive(Debug)]
struct Apis([OnceCell<Box<Latency>>; API_KEYS]);

impl Default for Apis {
    fn default() -> Apis {
        Apis(std::array::from_fn(|_| OnceCell::new()))
    }
}

impl Latencies {
    /// Records a request that was answered. Keys that are not counted by key are passed over.
    pub fn request(&self, api_key: i16, nanos: u64) {
        let place = usize::try_from(api_key).ok();
        if let Some(api) = place.and_then(|key| self.apis.0.get(key)) {
            api.get_or_init(Box::default).record(nanos);
        }
    }

    /// What was measured until now.
    pub fn snapshot(&self) -> LatenciesSnapshot {
        let apis = self.apis.0.iter().enumerate();
        LatenciesSnapshot {
            stages: Stage::ALL.map(|stage| self.stage(stage).snapshot()),
            fetch_wait: self.fetch_wait.snapshot(),
            apis: apis
                .filter_map(|(key, api)| Some((key as i16, api.get()?.snapshot())))
                .collect(),
        }
    }

    fn stage(&self, stage: Stage) -> &Latency {
        match stage {
            Stage::Mesh => &self.mesh,
            Stage::Queue => &self.queue,
            Stage::Write => &self.write,
            Stage::Flush => &self.flush,
            Stage::Reply => &self.reply,
        }
    }
}

/// The stages of a produce, in the order in which it goes through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// [`Latencies::mesh`].
    Mesh,
    /// [`Latencies::queue`].
    Queue,
    /// [`Latencies::write`].
    Write,
    /// [`Latencies::flush`].
    Flush,
    /// [`Latencies::reply`].
    Reply,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 5] = [
        Stage::Mesh,
        Stage::Queue,
        Stage::Write,
        Stage::Flush,
        Stage::Reply,
    ];

    /// Its name as a label.
    pub fn label(self) -> &'static str {
        match self {
            Stage::Mesh => "mesh",
            Stage::Queue => "queue",
            Stage::Write => "write",
            Stage::Flush => "flush",
            Stage::Reply => "reply",
        }
    }
}

/// One histogram. `!Sync`: only its own thread records.
#[derive(Debug)]
pub struct Latency {
    micros: RefCell<Histogram<u64>>,
    /// The histogram knows buckets only; the sum is exact. Wraps after five centuries.
    sum_nanos: Cell<u64>,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            micros: RefCell::new(empty()),
            sum_nanos: Cell::new(0),
        }
    }
}

impl Latency {
    /// Records one.
    pub fn record(&self, nanos: u64) {
        self.micros.borrow_mut().saturating_record(nanos / 1_000);
        self.sum_nanos.set(self.sum_nanos.get().wrapping_add(nanos));
    }

    /// What was recorded until now.
    pub fn snapshot(&self) -> LatencySnapshot {
        LatencySnapshot {
            micros: self.micros.borrow().clone(),
            sum_nanos: self.sum_nanos.get(),
        }
    }
}

/// One histogram at one moment, or several merged.
#[derive(Debug, Clone)]
pub struct LatencySnapshot {
    micros: Histogram<u64>,
    sum_nanos: u64,
}

impl LatencySnapshot {
    /// Adds another's counts to these.
    pub fn merge(&mut self, other: &LatencySnapshot) {
        self.micros
            .add(&other.micros)
            .expect("all have the same range");
        self.sum_nanos = self.sum_nanos.wrapping_add(other.sum_nanos);
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.micros.len()
    }

    /// Their sum, seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_nanos as f64 / 1e9
    }

    /// The counts between one bound and the next; the last bound is `f64::MAX`, for all the rest.
    ///
    /// The bounds are powers of two, in microseconds, and the middles between them, so each lies between two counts of the histogram
    /// and the buckets are exact.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = BOUNDS_LOG2.flat_map(|log2| [1_u64 << log2, 3 << (log2 - 1)]);
        let mut buckets = Vec::with_capacity(2 * BOUNDS_LOG2.len() + 1);
        let mut recorded = self.micros.iter_recorded().peekable();
        for bound in bounds {
            let mut count = 0;
            while let Some(step) = recorded.next_if(|step| step.value_iterated_to() < bound) {
                count += step.count_since_last_iteration();
            }
            buckets.push((bound as f64 / 1e6, count));
        }
        let rest = recorded.map(|step| step.count_since_last_iteration()).sum();
        buckets.push((f64::MAX, rest));
        buckets
    }
}

/// What one shard measured until one moment, or several merged.
#[derive(Debug, Clone)]
pub struct LatenciesSnapshot {
    stages: [LatencySnapshot; Stage::ALL.len()],
    /// See [`Latencies::fetch_wait`].
    pub fetch_wait: LatencySnapshot,
    /// By API key, in their order; those that were asked for.
    pub apis: Vec<(i16, LatencySnapshot)>,
}

impl LatenciesSnapshot {
    /// Adds another shard's.
    pub fn merge(&mut self, other: &LatenciesSnapshot) {
        for (mine, theirs) in self.stages.iter_mut().zip(&other.stages) {
            mine.merge(theirs);
        }
        self.fetch_wait.merge(&other.fetch_wait);
        for (key, theirs) in &other.apis {
            match self.apis.binary_search_by_key(key, |(mine, _)| *mine) {
                Ok(at) => self.apis[at].1.merge(theirs),
                Err(at) => self.apis.insert(at, (*key, theirs.clone())),
            }
        }
    }

    /// The stages of a produce.
    pub fn stages(&self) -> impl Iterator<Item = (Stage, &LatencySnapshot)> {
        Stage::ALL.into_iter().zip(&self.stages)
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MICROS_MAX, SIGNIFICANT_DIGITS).expect("the bounds are in order")
}

/// The longest that is told from longer ones.
const MICROS_MAX: u64 = 60_000_000;
const SIGNIFICANT_DIGITS: u8 = 2;
/// The bounds that are shown: from 16 us to 25 s.
const BOUNDS_LOG2: std::ops::Range<u32> = 4..25;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_histogram_takes_20_kib() {
        assert_eq!(empty().distinct_values() * size_of::<u64>(), 20 << 10);
    }

    #[test]
    fn what_is_longer_than_the_range_counts_as_the_longest() {
        let latency = Latency::default();
        latency.record(u64::MAX);
        let snapshot = latency.snapshot();
        assert_eq!(snapshot.count(), 1);
        assert_eq!(snapshot.buckets().last(), Some(&(f64::MAX, 1)));
    }

    #[test]
    fn shards_are_merged_by_adding() {
        let (a, b) = (Latencies::default(), Latencies::default());
        a.write.record(1_000_000);
        b.write.record(3_000_000);
        a.request(3, 5_000);
        b.request(0, 7_000);
        b.request(3, 9_000);
        for unknown in [-1, API_KEYS as i16, i16::MAX] {
            b.request(unknown, 1);
        }
        let mut all = a.snapshot();
        all.merge(&b.snapshot());
        let write = all.stages().find(|(stage, _)| *stage == Stage::Write);
        let (_, write) = write.unwrap();
        assert_eq!((write.count(), write.sum_seconds()), (2, 0.004));
        let apis: Vec<_> = all.apis.iter().map(|(key, l)| (*key, l.count())).collect();
        assert_eq!(apis, [(0, 1), (3, 2)]);
    }

    proptest! {
        /// A bucket's count is that of the values below its bound, to the microsecond.
        #[test]
        fn buckets_are_exact(micros in proptest::collection::vec(0..40_000_000_u64, 1..200)) {
            let latency = Latency::default();
            for value in &micros {
                latency.record(value * 1_000 + 999);
            }
            let snapshot = latency.snapshot();
            let mut below = 0;
            for (bound, count) in snapshot.buckets() {
                below += count;
                let expected = micros.iter().filter(|value| (**value as f64) < bound * 1e6);
                prop_assert_eq!(below, expected.count() as u64, "below {}", bound);
            }
            prop_assert_eq!(below, snapshot.count());
        }
    }
}
