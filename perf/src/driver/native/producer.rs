//! A producer: sends what is due as soon as its window of requests has room.
//!
//! Records that are due and cannot be sent are no memory, only numbers in the schedule. With several leaders a producer
//! has a connection to each, with a window each; it waits for the leader whose turn it is. With keys, a request holds
//! the batches of all partitions that its records' keys ask for, `batch_bytes` in all.

use super::conn::{Conn, Written};
use super::messages::{produce_head, produce_request, read_produced};
use super::shared::Shared;
use super::work::Work;
use crate::driver::records::{Keys, Partitioner, Schedule};
use anyhow::{bail, ensure, Context, Result};
use std::collections::VecDeque;

pub struct Producer {
    /// By leader.
    pub lanes: Vec<Lane>,
    pace: Pace,
    keys: Keys,
    partitioner: Partitioner,
    /// Where the next batch without keys goes.
    partition: Option<u32>,
    is_done: bool,
}

/// A connection and what is not answered on it.
pub struct Lane {
    pub conn: Conn,
    in_flight: VecDeque<InFlight>,
    correlation: i32,
}

/// A request without an answer.
struct InFlight {
    correlation: i32,
    /// When it was handed to the socket.
    sent: u64,
    batches: usize,
    records: Sent,
}

/// The records of a request.
enum Sent {
    /// So many, at saturation.
    Count(u64),
    /// Of the producer's schedule, from a number on.
    Scheduled { first: u64, count: u64 },
    /// With these due times.
    Due(Vec<u64>),
}

/// When records are due.
pub enum Pace {
    Open {
        schedule: Schedule,
        next: u64,
    },
    /// Always, while so many are left.
    Saturate {
        left: u64,
    },
}

/// What is to be done.
enum Due {
    /// So many records may be sent.
    Now(usize),
    /// Not before that time.
    At(u64),
    Never,
}

/// What became of a request that should be sent.
enum Attempt {
    Sent,
    /// The window is full, or the socket is: an answer or the socket wakes the producer.
    Full,
    /// No template is free.
    Starved,
}

impl Producer {
    pub fn new(conns: Vec<Conn>, pace: Pace, keys: Keys, partitioner: Partitioner) -> Producer {
        let lane = |conn| Lane {
            conn,
            in_flight: VecDeque::new(),
            correlation: 0,
        };
        Producer {
            lanes: conns.into_iter().map(lane).collect(),
            pace,
            keys,
            partitioner,
            partition: None,
            is_done: false,
        }
    }

    /// Sends what is due; when to ask again, unless an answer comes before.
    pub fn pump(&mut self, work: &mut Work<'_>, mut now: u64) -> Result<u64> {
        loop {
            let count = match self.pace.due(work.shared, now) {
                Due::Now(count) => count,
                Due::At(time) => return Ok(time),
                Due::Never => {
                    self.finish(work);
                    return Ok(u64::MAX);
                }
            };
            let attempt = if self.keys.any() {
                self.send_keyed(work, count)?
            } else {
                self.send_batch(work, count)?
            };
            match attempt {
                Attempt::Sent => now = work.now(),
                Attempt::Full => return Ok(u64::MAX),
                Attempt::Starved => return Ok(now + STARVED_NS),
            }
        }
    }

    /// Without keys: one batch.
    fn send_batch(&mut self, work: &mut Work<'_>, count: usize) -> Result<Attempt> {
        let shared = work.shared;
        let partitioner = &mut self.partitioner;
        let partition = *self
            .partition
            .get_or_insert_with(|| partitioner.next_batch());
        let lane = &mut self.lanes[shared.cluster.leader_of(partition)];
        if !lane.has_room(shared) {
            return Ok(Attempt::Full);
        }
        let place = shared.cluster.place(partition);
        let acks = shared.load.producers.acks;
        let correlation = lane.next_correlation();
        let stamp = work.now();
        let due = self.pace.due_times(shared, stamp);
        let (count, body) = if work.uses_templates() {
            let Some(mut template) = work.templates.take() else {
                return Ok(Attempt::Starved);
            };
            let (count, bytes) = work.prepare(&mut template, count, due);
            produce_head(lane.conn.head(), correlation, acks, place, bytes);
            (count, Some((template, bytes)))
        } else {
            for n in 0..count {
                work.group(partition, due(n), None);
            }
            let batches = work.take_groups();
            let (_, batch) = batches.first().context("a batch was made")?;
            let batch: &[u8] = batch;
            produce_request(
                lane.conn.head(),
                correlation,
                acks,
                &[(place.0, place.1, batch)],
            );
            (count, None)
        };
        lane.in_flight.push_back(InFlight {
            correlation,
            sent: work.now(),
            batches: 1,
            records: self.pace.take(count as u64),
        });
        if let Written::All(Some(template)) = lane.conn.send(body)? {
            work.templates.give(template);
        }
        self.partition = None;
        Ok(Attempt::Sent)
    }

    /// With keys: a request to each leader.
    fn send_keyed(&mut self, work: &mut Work<'_>, count: usize) -> Result<Attempt> {
        let shared = work.shared;
        if !self.lanes.iter().all(|lane| lane.has_room(shared)) {
            return Ok(Attempt::Full);
        }
        let is_open = shared.load.is_open;
        let mut records: Vec<Sent> = self.lanes.iter().map(|_| Sent::none(is_open)).collect();
        let stamp = work.now();
        let due = self.pace.due_times(shared, stamp);
        for n in 0..count {
            let key = self.keys.next().context("there are keys")?;
            let partition = self.partitioner.of_key(&key);
            let due = due(n);
            work.group(partition, due, Some(&key));
            records[shared.cluster.leader_of(partition)].add(due);
        }
        self.pace.take(count as u64);
        let made = work.take_groups();
        for ((leader, lane), records) in self.lanes.iter_mut().enumerate().zip(records) {
            let led = made
                .iter()
                .filter(|(partition, _)| shared.cluster.leader_of(*partition) == leader)
                .map(|(partition, batch)| {
                    let (topic, index) = shared.cluster.place(*partition);
                    (topic, index, batch.as_ref())
                });
            let batches: Vec<_> = led.collect();
            if batches.is_empty() {
                continue;
            }
            let correlation = lane.next_correlation();
            let acks = shared.load.producers.acks;
            produce_request(lane.conn.head(), correlation, acks, &batches);
            lane.in_flight.push_back(InFlight {
                correlation,
                sent: work.now(),
                batches: batches.len(),
                records,
            });
            lane.conn.send(None)?;
        }
        Ok(Attempt::Sent)
    }

    /// Writes on, and reads answers.
    pub fn ready(&mut self, lane: usize, drain: bool, work: &mut Work<'_>) -> Result<()> {
        let lane = &mut self.lanes[lane];
        if lane.conn.is_writing() {
            if let Written::All(Some(template)) = lane.conn.write()? {
                work.templates.give(template);
            }
        }
        let mut is_more = true;
        while is_more {
            is_more = lane.conn.read(drain)?;
            let now = work.now();
            lane.take_answers(&self.pace, work, now)?;
        }
        Ok(())
    }

    /// An error if an answer is missing for too long.
    pub fn check_time(&self, shared: &Shared<'_>, now: u64) -> Result<()> {
        let oldest = self.lanes.iter().filter_map(|lane| lane.in_flight.front());
        for request in oldest {
            if now.saturating_sub(request.sent) > shared.answer_max {
                bail!(
                    "the broker has not answered a produce request for {} s",
                    shared.answer_max / 1_000_000_000
                );
            }
        }
        Ok(())
    }

    /// Whether nothing is to be sent and nothing is in flight.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    fn finish(&mut self, work: &Work<'_>) {
        let is_done = self.lanes.iter().all(|lane| lane.in_flight.is_empty());
        if is_done && !self.is_done {
            self.is_done = true;
            work.shared.producer_is_done();
        }
    }

    /// Records that were due within the measured time and have no acknowledgement.
    pub fn unacknowledged(&self, shared: &Shared<'_>) -> u64 {
        let mut records = self.pace.unsent(shared);
        for request in self.lanes.iter().flat_map(|lane| &lane.in_flight) {
            let counts = |due: &u64| shared.counts(*due);
            records += match &request.records {
                Sent::Count(count) if shared.counts(request.sent) => *count,
                Sent::Count(_) => 0,
                Sent::Due(due) => due.iter().filter(|due| counts(due)).count() as u64,
                Sent::Scheduled { first, count } => {
                    let due = (*first..first + count).map(|n| self.pace.due_at(shared, n));
                    due.filter(counts).count() as u64
                }
            };
        }
        records
    }
}

impl Lane {
    fn has_room(&self, shared: &Shared<'_>) -> bool {
        self.in_flight.len() < shared.load.producers.in_flight as usize && !self.conn.is_writing()
    }

    fn next_correlation(&mut self) -> i32 {
        self.correlation = self.correlation.wrapping_add(1);
        self.correlation
    }

    fn take_answers(&mut self, pace: &Pace, work: &mut Work<'_>, now: u64) -> Result<()> {
        let shared = work.shared;
        while let Some(answer) = self.conn.next_answer()? {
            let request = self.in_flight.pop_front();
            let request = request.context("the broker answered a request that was not sent")?;
            let mut batches = 0;
            let correlation = read_produced(answer, |answered| {
                let partition = shared.cluster.number(answered.topic, answered.partition)?;
                if answered.code != 0 {
                    let failed = &shared.cluster;
                    return Err(failed.failed(partition, answered.code, answered.message));
                }
                batches += 1;
                shared.reach(partition, answered.base_offset);
                Ok(())
            })?;
            ensure!(
                correlation == request.correlation && batches == request.batches,
                "the broker's answer to a produce request is not of that request"
            );
            let count = match request.records {
                Sent::Count(count) => {
                    work.sample_sent(request.sent, now, count);
                    count
                }
                Sent::Scheduled { first, count } => {
                    for n in first..first + count {
                        work.sample_due(pace.due_at(shared, n), request.sent, now);
                    }
                    count
                }
                Sent::Due(due) => {
                    for due in &due {
                        work.sample_due(*due, request.sent, now);
                    }
                    due.len() as u64
                }
            };
            work.count_produced(count, now);
        }
        Ok(())
    }
}

impl Pace {
    fn due(&self, shared: &Shared<'_>, now: u64) -> Due {
        let load = &shared.load;
        let (schedule, next) = match self {
            Pace::Saturate { left } => {
                return if now < shared.phases.start {
                    Due::At(shared.phases.start)
                } else if *left == 0 || now >= shared.produce_until() {
                    Due::Never
                } else {
                    Due::Now((*left).min(load.batch_records as u64) as usize)
                };
            }
            Pace::Open { schedule, next } => (schedule, *next),
        };
        let start = shared.phases.start;
        let last = schedule.due_before(shared.produce_until().saturating_sub(start));
        if next >= last {
            return Due::Never;
        }
        let first_due = start + schedule.due(next);
        if now < first_due {
            return Due::At(first_due);
        }
        let due = schedule.due_before(now - start + 1).min(last) - next;
        let batch = load.batch_records as u64;
        let linger = load.producers.linger_us.saturating_mul(1000);
        let linger_end = first_due.saturating_add(linger);
        if due >= batch || now >= linger_end {
            return Due::Now(due.min(batch) as usize);
        }
        let full = start + schedule.due(next + batch - 1);
        Due::At(linger_end.min(full))
    }

    /// When the n-th of the next records is due; at saturation, all now.
    fn due_times(&self, shared: &Shared<'_>, now: u64) -> impl Fn(usize) -> u64 {
        let start = shared.phases.start;
        let open = match self {
            Pace::Saturate { .. } => None,
            Pace::Open { schedule, next } => Some((*schedule, *next)),
        };
        move |n| match &open {
            None => now,
            Some((schedule, next)) => start + schedule.due(next + n as u64),
        }
    }

    /// When a record of the schedule is due.
    fn due_at(&self, shared: &Shared<'_>, n: u64) -> u64 {
        match self {
            Pace::Saturate { .. } => shared.phases.start,
            Pace::Open { schedule, .. } => shared.phases.start + schedule.due(n),
        }
    }

    /// Counts records as sent.
    fn take(&mut self, count: u64) -> Sent {
        match self {
            Pace::Saturate { left } => {
                *left = left.saturating_sub(count);
                Sent::Count(count)
            }
            Pace::Open { next, .. } => {
                let first = *next;
                *next += count;
                Sent::Scheduled { first, count }
            }
        }
    }

    /// Records of the measured time that were not sent.
    fn unsent(&self, shared: &Shared<'_>) -> u64 {
        let Pace::Open { schedule, next } = self else {
            return 0;
        };
        let before = |time: u64| schedule.due_before(time.saturating_sub(shared.phases.start));
        let (from, to) = (before(shared.phases.measured), before(shared.end()));
        to.saturating_sub(from.max(*next))
    }
}

impl Sent {
    fn none(is_open: bool) -> Sent {
        match is_open {
            true => Sent::Due(Vec::new()),
            false => Sent::Count(0),
        }
    }

    fn add(&mut self, record_due: u64) {
        match self {
            Sent::Count(count) => *count += 1,
            Sent::Due(due) => due.push(record_due),
            Sent::Scheduled { count, .. } => *count += 1,
        }
    }
}

/// After so long a producer without a template asks again, nanoseconds.
const STARVED_NS: u64 = 100_000;
