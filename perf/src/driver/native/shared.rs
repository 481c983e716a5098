//! What the threads of one measurement share: the times of its phases, and counts that end it.

use super::cluster::Cluster;
use crate::driver::records::Clock;
use crate::stop::Stop;
use crate::workload::{ConsumerPlan, ProducerPlan, RecordPlan};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What the clients do.
pub struct Load<'a> {
    pub records: &'a RecordPlan,
    pub producers: &'a ProducerPlan,
    pub consumers: &'a ConsumerPlan,
    /// Records a second are given, and each is due at its time; else as many as the window of requests lets through.
    pub is_open: bool,
    /// The threads have CPUs of their own, so in an open loop they never sleep: to be woken takes time that would be
    /// taken for the broker's.
    pub is_alone: bool,
    /// Consumers want to know when records were due.
    pub is_stamped: bool,
    /// Records of a full batch.
    pub batch_records: usize,
    pub goal: Goal,
}

/// What ends it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// The time.
    Time,
    /// The producers have sent so many records each, or the consumers have read up to an end.
    Work,
    /// The time, or earlier when nothing is produced any more and the consumers have caught up.
    CaughtUp,
}

/// Times on the clock, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Phases {
    /// The schedule begins.
    pub start: u64,
    /// The measured time begins.
    pub measured: u64,
    /// It ends, at the latest.
    pub end: u64,
    /// The consumers begin.
    pub consume: u64,
    /// The producers end, at the latest.
    pub produce_until: u64,
}

pub struct Shared<'a> {
    pub clock: Clock,
    pub cluster: &'a Cluster,
    pub load: Load<'a>,
    pub stop: &'a Stop,
    pub phases: Phases,
    /// How long answers are waited for after the end, nanoseconds.
    pub grace: u64,
    /// How long one answer may take, nanoseconds.
    pub answer_max: u64,
    /// Bytes of values that end the measured time.
    pub bytes_max: u64,
    end: AtomicU64,
    produce_until: AtomicU64,
    /// Bytes of values acknowledged before the measured time, and within.
    before: AtomicU64,
    within: AtomicU64,
    /// By partition, an offset that was acknowledged, plus 1.
    acknowledged: Vec<AtomicI64>,
    /// Producers that are not done, and consumers' connections that have not caught up.
    producing: AtomicUsize,
    behind: AtomicUsize,
    /// When the last one caught up; 0 before that.
    caught_up_at: AtomicU64,
    failed: AtomicBool,
}

/// What a run of either kind may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub grace: Duration,
    pub answer_max: Duration,
    pub bytes_max: u64,
}

impl<'a> Shared<'a> {
    pub fn new(
        cluster: &'a Cluster,
        load: Load<'a>,
        stop: &'a Stop,
        phases: Phases,
        limits: Limits,
        (producers, fetchers): (usize, usize),
    ) -> Shared<'a> {
        let ns = |time: Duration| time.as_nanos() as u64;
        let offsets = (0..cluster.partitions()).map(|_| AtomicI64::new(0));
        Shared {
            clock: Clock::of_process(),
            cluster,
            load,
            stop,
            phases,
            grace: ns(limits.grace),
            answer_max: ns(limits.answer_max),
            bytes_max: limits.bytes_max,
            end: AtomicU64::new(phases.end),
            produce_until: AtomicU64::new(phases.produce_until),
            before: AtomicU64::new(0),
            within: AtomicU64::new(0),
            acknowledged: offsets.collect(),
            producing: AtomicUsize::new(producers),
            behind: AtomicUsize::new(fetchers),
            caught_up_at: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// When the measured time ends, as far as is known.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    pub fn produce_until(&self) -> u64 {
        self.produce_until.load(Ordering::Relaxed)
    }

    /// Whether a time lies in the measured time.
    pub fn counts(&self, time: u64) -> bool {
        time >= self.phases.measured && time < self.end()
    }

    /// That values of so many bytes are acknowledged; ends what has moved enough.
    pub fn acknowledge(&self, bytes: u64, now: u64) {
        let add = |sum: &AtomicU64| sum.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if now >= self.phases.measured {
            if add(&self.within) >= self.bytes_max {
                self.end_by(now);
            }
        } else if add(&self.before) >= self.bytes_max && self.load.goal == Goal::CaughtUp {
            // The backlog is large enough.
            self.produce_until.fetch_min(now, Ordering::Relaxed);
        }
    }

    /// Ends the measured time, unless it has ended.
    pub fn end_by(&self, now: u64) {
        self.end.fetch_min(now, Ordering::Relaxed);
        self.produce_until.fetch_min(now, Ordering::Relaxed);
    }

    /// That a partition's log goes beyond an offset.
    pub fn reach(&self, partition: u32, offset: i64) {
        self.acknowledged[partition as usize].fetch_max(offset + 1, Ordering::Relaxed);
    }

    /// How far a partition must be read to have all that was acknowledged.
    pub fn reached(&self, partition: u32) -> i64 {
        self.acknowledged[partition as usize].load(Ordering::Relaxed)
    }

    pub fn producer_is_done(&self) {
        self.producing.fetch_sub(1, Ordering::Release);
    }

    pub fn producers_are_done(&self) -> bool {
        self.producing.load(Ordering::Acquire) == 0
    }

    /// That a consumer's connection has caught up, for the first time.
    pub fn catch_up(&self, now: u64) {
        if self.behind.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.caught_up_at.store(now, Ordering::Relaxed);
            if self.load.goal == Goal::CaughtUp {
                self.end_by(now);
            }
        }
    }

    pub fn caught_up_at(&self) -> Option<u64> {
        Some(self.caught_up_at.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// That a thread has failed: the others end too.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}
