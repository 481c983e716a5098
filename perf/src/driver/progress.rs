//! What the threads of a client share while they measure, and what each of them counts; as the native client does it:
//!
//! A latency counts if its record was due (at saturation: sent) within the measured time, however late its answer comes:
//! for some seconds after the measured time answers are waited for, and records that were due are still sent. Records
//! and bytes count if their answer arrives within the measured time.
//!
//! In a drain the measured time, and the consumers, start `backlog_s` after the producers. With a rate the producers go
//! on meanwhile. At saturation they stop, and the measured time ends when all consumers have caught up.

use super::records::{between, Clock, Schedule};
use super::{Edge, Job};
use crate::measure::Measured;
use anyhow::{ensure, Context, Result};
use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The times of a measurement and what all threads have moved so far. Times are nanoseconds on [`Clock`].
pub struct Progress<'a> {
    pub job: &'a Job<'a>,
    pub clock: Clock,
    /// When the schedule starts; [`UNKNOWN`] before.
    start: AtomicU64,
    /// The end of the measured time; earlier when enough bytes were produced.
    end: AtomicU64,
    failed: AtomicBool,
    /// Nothing is sent, or due, from then on.
    produce_until: AtomicU64,
    /// Of record values, acknowledged before and within the measured time.
    bytes_before: AtomicU64,
    bytes: AtomicU64,
    /// Records, warm-up included.
    acknowledged: AtomicU64,
    sets: Vec<Set>,
    /// Whether the start and the end of the measured time were told.
    has_begun: AtomicBool,
    has_ended: AtomicBool,
}

/// A set of consumers.
#[derive(Default)]
struct Set {
    /// Records, warm-up included.
    consumed: AtomicU64,
    /// Nanoseconds from the start of late consumers to the moment at which they had caught up; 0: not yet.
    drained_after: AtomicU64,
}

const UNKNOWN: u64 = u64::MAX;

impl<'a> Progress<'a> {
    pub fn new(job: &'a Job<'a>) -> Result<Progress<'a>> {
        let case = job.case;
        ensure!(
            job.topics.len() == case.topic.topics as usize,
            "a measurement has {} topics and {} names of them",
            case.topic.topics,
            job.topics.len()
        );
        Ok(Progress {
            job,
            clock: Clock::of_process(),
            start: AtomicU64::new(UNKNOWN),
            end: AtomicU64::new(UNKNOWN),
            failed: AtomicBool::new(false),
            produce_until: AtomicU64::new(UNKNOWN),
            bytes_before: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            sets: (0..case.consumers.sets).map(|_| Set::default()).collect(),
            has_begun: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        })
    }

    /// Starts the schedule `delay` nanoseconds from now.
    pub fn start_in(&self, delay: u64) {
        let start = self.clock.now() + delay;
        let begin = start + self.before();
        let end = begin + nanoseconds(self.job.timing.measure_s);
        let produce_until = if self.ends_when_drained() { begin } else { end };
        self.end.store(end, Relaxed);
        self.produce_until.store(produce_until, Relaxed);
        // Last: who sees the start sees the others.
        self.start.store(start, Release);
    }

    /// When the schedule starts, once that is known.
    pub fn start(&self) -> Option<u64> {
        Some(self.start.load(Acquire)).filter(|start| *start != UNKNOWN)
    }

    /// The start of the measured time; only after [`Progress::start`] is known.
    pub fn begin(&self) -> u64 {
        self.start.load(Acquire).saturating_add(self.before())
    }

    pub fn end(&self) -> u64 {
        self.end.load(Relaxed)
    }

    pub fn produce_until(&self) -> u64 {
        self.produce_until.load(Relaxed)
    }

    /// Whether a time is of the measured time.
    fn counts(&self, time: u64) -> bool {
        (self.begin()..self.end()).contains(&time)
    }

    /// Whether a client may end: what it sent is answered, and all is consumed, or it was waited for long enough.
    pub fn is_over(&self, now: u64, is_answered: bool) -> bool {
        let end = self.end();
        let is_done = is_answered && self.is_consumed();
        now >= end && (is_done || now >= end + GRACE)
    }

    /// When records that were due are given up.
    pub fn give_up(&self) -> u64 {
        self.end().saturating_add(GRACE)
    }

    /// Tells the caller when the measured time begins and ends; each of them once. To be asked all the time.
    pub fn tell(&self, now: u64) {
        let is_first = |told: &AtomicBool| !told.load(Relaxed) && !told.swap(true, Relaxed);
        if now >= self.begin() && is_first(&self.has_begun) {
            (self.job.on_measure)(Edge::Start);
        }
        if now >= self.end() && is_first(&self.has_ended) {
            (self.job.on_measure)(Edge::End);
        }
    }

    /// When there is something to tell next.
    pub fn told_next(&self, now: u64) -> u64 {
        if now < self.begin() {
            self.begin()
        } else {
            self.end()
        }
    }

    /// From the start of the schedule to that of the measured time.
    fn before(&self) -> u64 {
        let drain = self.job.load.drain;
        nanoseconds(drain.map_or(self.job.timing.warmup_s, |drain| drain.backlog_s))
    }

    fn ends_when_drained(&self) -> bool {
        self.job.load.drain.is_some() && self.job.rate.is_none()
    }

    fn end_by(&self, now: u64) {
        self.end.fetch_min(now, Relaxed);
        self.produce_until.fetch_min(now, Relaxed);
    }

    /// Tells the other threads to end.
    pub fn fail(&self) {
        self.failed.store(true, Relaxed);
    }

    /// An error if a stop is asked for or another thread failed.
    pub fn check(&self) -> Result<()> {
        self.job.stop.check()?;
        ensure!(!self.failed.load(Relaxed), OtherFailed);
        Ok(())
    }

    /// When a producer's record is due; at saturation, at once.
    pub fn due(&self, schedule: Option<&Schedule>, number: u64, now: u64) -> u64 {
        match schedule {
            Some(schedule) => self.start.load(Relaxed) + schedule.due(number),
            None => now,
        }
    }

    /// Whether every set has all that was acknowledged.
    fn is_consumed(&self) -> bool {
        let acknowledged = self.acknowledged.load(Relaxed);
        let has_all = |set: &Set| set.consumed.load(Relaxed) >= acknowledged;
        self.sets.iter().all(has_all)
    }

    /// What all threads counted together.
    pub fn finish(&self, tally: Tally) -> Result<Measured> {
        let (begin, end) = (self.begin(), self.end());
        let mut measured = tally.measured;
        measured.unacknowledged = tally.unsent + tally.due.saturating_sub(tally.acknowledged);
        let seconds = end.saturating_sub(begin) as f64 / 1e9;
        measured.produced.seconds = seconds;
        if self.job.case.has_consumers() {
            measured.consumed.seconds = seconds;
        }
        measured.drained_after_s = self.drained_after().map(|after| after as f64 / 1e9);
        Ok(measured)
    }

    /// Nanoseconds from the start of late consumers until the last set had caught up; `None` if one has not.
    fn drained_after(&self) -> Option<u64> {
        let after = |set: &Set| Some(set.drained_after.load(Relaxed)).filter(|after| *after > 0);
        let all: Option<Vec<u64>> = self.sets.iter().map(after).collect();
        all?.into_iter().max()
    }

    fn count_acknowledged(&self, bytes: u64, now: u64) {
        self.acknowledged.fetch_add(1, Relaxed);
        let max = self.job.timing.bytes_max;
        let add = |sum: &AtomicU64| sum.fetch_add(bytes, Relaxed) + bytes;
        if now >= self.begin() {
            if add(&self.bytes) >= max {
                self.end_by(now);
            }
        } else if add(&self.bytes_before) >= max && self.ends_when_drained() {
            // The backlog is large enough.
            self.produce_until.fetch_min(now, Relaxed);
        }
    }

    fn count_consumed(&self, set: usize, now: u64) {
        let set = &self.sets[set];
        let consumed = set.consumed.fetch_add(1, Relaxed) + 1;
        if self.job.load.drain.is_none() || consumed < self.acknowledged.load(Relaxed) {
            return;
        }
        let after = now.saturating_sub(self.begin()).max(1);
        // The first time counts.
        let first = set
            .drained_after
            .compare_exchange(0, after, Relaxed, Relaxed);
        if first.is_ok() && self.ends_when_drained() && self.drained_after().is_some() {
            self.end_by(now);
        }
    }
}

/// What one thread counts.
#[derive(Default)]
pub struct Tally {
    pub measured: Measured,
    /// Records that were due, and sent, within the measured time.
    due: u64,
    /// Those of them that were acknowledged.
    acknowledged: u64,
    /// Records that were due within the measured time and never sent.
    unsent: u64,
}

impl Tally {
    /// A record leaves at `now`.
    pub fn sent(&mut self, progress: &Progress<'_>, due: u64, now: u64) {
        let begin = progress.begin();
        if due < begin {
            return;
        }
        self.due += 1;
        if progress.job.rate.is_some() {
            let delay = between(due, now);
            self.measured
                .schedule_delay
                .record(between(begin, due), delay);
        }
    }

    /// A record is kept.
    pub fn acknowledged(&mut self, progress: &Progress<'_>, due: u64, now: u64) {
        let bytes = progress.job.case.records.bytes as u64;
        progress.count_acknowledged(bytes, now);
        if progress.counts(now) {
            self.measured.produced.records += 1;
            self.measured.produced.bytes += bytes;
        }
        let begin = progress.begin();
        if due >= begin {
            self.acknowledged += 1;
        }
        if progress.counts(due) {
            self.measured
                .acknowledged
                .record(between(begin, due), between(due, now));
        }
    }

    /// A consumer of a set has a record that was due then, of so many bytes.
    pub fn consumed(
        &mut self,
        progress: &Progress<'_>,
        set: usize,
        due: u64,
        bytes: usize,
        now: u64,
    ) {
        if progress.counts(now) {
            self.measured.consumed.records += 1;
            self.measured.consumed.bytes += bytes as u64;
        }
        if progress.counts(due) {
            self.measured
                .delivered
                .record(between(progress.begin(), due), between(due, now));
        }
        progress.count_consumed(set, now);
    }

    /// An answer to a consumer had records.
    pub fn fetched(&mut self, progress: &Progress<'_>, now: u64) {
        if progress.counts(now) {
            self.measured.consumed.requests += 1;
        }
    }

    /// A producer sends no more; `next` is the number of its next record.
    pub fn ended(&mut self, progress: &Progress<'_>, schedule: Option<&Schedule>, next: u64) {
        if let (Some(schedule), Some(start)) = (schedule, progress.start()) {
            let due = schedule.due_before(progress.produce_until().saturating_sub(start));
            let sent = next.max(schedule.due_before(progress.before()));
            self.unsent += due.saturating_sub(sent);
        }
    }

    /// Adds what another thread counted.
    pub fn merge(&mut self, other: &Tally) -> Result<()> {
        self.due += other.due;
        self.acknowledged += other.acknowledged;
        self.unsent += other.unsent;
        self.measured.merge(&other.measured)
    }
}

/// Why a thread ended whose own connections are well.
#[derive(Debug)]
pub struct OtherFailed;

impl std::fmt::Display for OtherFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "another thread of the client failed")
    }
}

impl std::error::Error for OtherFailed {}

/// The one error that tells why a client ended: not that of a thread which only followed another.
pub fn worse(one: Option<anyhow::Error>, other: anyhow::Error) -> anyhow::Error {
    match one {
        Some(error) if !error.is::<OtherFailed>() => error,
        _ => other,
    }
}

/// Binds the calling thread, and those that it starts, to these CPUs; to none: anywhere.
pub fn bind(cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    let bound = cpus
        .iter()
        .try_for_each(|cpu| set.set(*cpu))
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    bound.with_context(|| format!("the client can't be bound to the CPUs {cpus:?}"))
}

/// Nanoseconds after the measured time for answers and consumers, as the native client gives them.
const GRACE: u64 = 5_000_000_000;

pub fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
