//! What the threads of a client share while they measure, and what each of them counts.

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
    /// Of record values, acknowledged, warm-up included.
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
        let measured = nanoseconds(self.job.timing.measure_s);
        self.end.store(start + self.warmup() + measured, Relaxed);
        // Last: who sees the start sees the end.
        self.start.store(start, Release);
    }

    /// When the schedule starts, once that is known.
    pub fn start(&self) -> Option<u64> {
        Some(self.start.load(Acquire)).filter(|start| *start != UNKNOWN)
    }

    /// The start of the measured time; only after [`Progress::start`] is known.
    pub fn begin(&self) -> u64 {
        self.start.load(Acquire).saturating_add(self.warmup())
    }

    pub fn end(&self) -> u64 {
        self.end.load(Relaxed)
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

    fn warmup(&self) -> u64 {
        nanoseconds(self.job.timing.warmup_s)
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
    pub fn is_consumed(&self) -> bool {
        let acknowledged = self.acknowledged.load(Relaxed);
        let has_all = |set: &Set| set.consumed.load(Relaxed) >= acknowledged;
        self.sets.iter().all(has_all)
    }

    /// What all threads counted together.
    pub fn finish(&self, tally: Tally) -> Result<Measured> {
        let (begin, end) = (self.begin(), self.end());
        ensure!(
            end > begin,
            "{} bytes were produced within the warm-up: raise timing.bytes_max or shorten timing.warmup_s",
            self.job.timing.bytes_max
        );
        let mut measured = tally.measured;
        measured.unacknowledged = tally.unsent + tally.due.saturating_sub(tally.acknowledged);
        let seconds = (end - begin) as f64 / 1e9;
        measured.produced.seconds = seconds;
        if self.job.case.has_consumers() {
            measured.consumed.seconds = seconds;
        }
        if self.job.load.drain.is_some() {
            let drained = |set: &Set| match set.drained_after.load(Relaxed) {
                0 => None,
                after => Some(after),
            };
            // None if one set has not caught up.
            let all: Option<Vec<u64>> = self.sets.iter().map(drained).collect();
            let last = all.and_then(|all| all.into_iter().max());
            measured.drained_after_s = last.map(|after| after as f64 / 1e9);
        }
        Ok(measured)
    }

    fn count_acknowledged(&self, bytes: u64, now: u64) {
        self.acknowledged.fetch_add(1, Relaxed);
        let before = self.bytes.fetch_add(bytes, Relaxed);
        let max = self.job.timing.bytes_max;
        if before < max && before + bytes >= max {
            self.end.fetch_min(now, Relaxed);
        }
    }

    fn count_consumed(&self, set: usize, late: Option<u64>, now: u64) {
        let set = &self.sets[set];
        let consumed = set.consumed.fetch_add(1, Relaxed) + 1;
        if let Some(late) = late {
            if consumed >= self.acknowledged.load(Relaxed) {
                let after = now.saturating_sub(late).max(1);
                // The first time counts.
                let _ = set
                    .drained_after
                    .compare_exchange(0, after, Relaxed, Relaxed);
            }
        }
    }
}

/// What one thread counts.
#[derive(Default)]
pub struct Tally {
    pub measured: Measured,
    /// Records that were due, and sent, within the measured time.
    due: u64,
    /// Those of them that were acknowledged within it.
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
        let (begin, end) = (progress.begin(), progress.end());
        progress.count_acknowledged(bytes, now);
        if (begin..end).contains(&now) {
            self.measured.produced.records += 1;
            self.measured.produced.bytes += bytes;
        }
        if due >= begin {
            self.measured
                .acknowledged
                .record(between(begin, due), between(due, now));
            if now < end {
                self.acknowledged += 1;
            }
        }
    }

    /// A consumer of a set has a record; `late` is when late consumers started.
    pub fn consumed(
        &mut self,
        progress: &Progress<'_>,
        set: usize,
        late: Option<u64>,
        record: (u64, usize),
        now: u64,
    ) {
        let (due, bytes) = record;
        let (begin, end) = (progress.begin(), progress.end());
        progress.count_consumed(set, late, now);
        if (begin..end).contains(&now) {
            self.measured.consumed.records += 1;
            self.measured.consumed.bytes += bytes as u64;
        }
        if (begin..end).contains(&due) {
            self.measured
                .delivered
                .record(between(begin, due), between(due, now));
        }
    }

    /// A producer sends no more; `next` is the number of its next record.
    pub fn ended(&mut self, progress: &Progress<'_>, schedule: Option<&Schedule>, next: u64) {
        if let (Some(schedule), Some(start)) = (schedule, progress.start()) {
            let due = schedule.due_before(progress.end().saturating_sub(start));
            let sent = next.max(schedule.due_before(progress.warmup()));
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

pub fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
