//! The event loop of one thread of a client.

use super::{Event, Place, Producer, Protocol, Session};
use crate::driver::progress::{Progress, Tally};
use crate::driver::records::{Partitioner, Schedule, Values};
use anyhow::{bail, Context, Result};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

pub(super) struct Worker<'a> {
    place: Place<'a>,
    progress: &'a Progress<'a>,
    poll: Poll,
    links: Vec<Link>,
    /// Consumers that start late.
    late: Vec<Role>,
    /// The producers that may send, by the time at which their next record is due: time and link.
    sendable: BinaryHeap<Reverse<(u64, usize)>>,
    values: Values,
    scratch: Vec<u8>,
    events: Vec<Event>,
    tally: Tally,
    /// Records without an answer, of all producers.
    unanswered: usize,
    /// Time of the last answer, or at which the first of the unanswered was sent.
    answered_at: u64,
    /// Nanoseconds of the measured time without work.
    idle: u64,
}

/// A connection.
struct Link {
    stream: TcpStream,
    role: Role,
    is_ready: bool,
    /// The start of what is not whole yet.
    input: Vec<u8>,
    out: Vec<u8>,
    /// Bytes of `out` that are sent.
    sent: usize,
}

enum Role {
    Producer(ProducerState),
    Consumer {
        set: usize,
        session: Box<dyn Session>,
    },
}

struct ProducerState {
    session: Box<dyn Producer>,
    /// `None` at saturation.
    schedule: Option<Schedule>,
    partitioner: Partitioner,
    /// The number of the next record.
    next: u64,
    /// Number and due time of what is unanswered.
    window: VecDeque<(u64, u64)>,
}

impl<'a> Worker<'a> {
    /// Makes this thread's part of the connections; every `threads`-th is its own.
    pub fn new(place: Place<'a>, protocol: &dyn Protocol) -> Result<Worker<'a>> {
        let (job, case) = (place.progress.job, place.progress.job.case);
        let is_mine = |n: u32| n as usize % place.threads == place.thread;
        let mut worker = Worker {
            place,
            progress: place.progress,
            poll: Poll::new()?,
            links: Vec::new(),
            late: Vec::new(),
            sendable: BinaryHeap::new(),
            values: Values::new(&case.records, place.thread as u64 + 1),
            scratch: vec![0; SCRATCH_BYTES],
            events: Vec::new(),
            tally: Tally::default(),
            unanswered: 0,
            answered_at: 0,
            idle: 0,
        };
        let partitions = case.topic.topics * case.topic.partitions;
        let producers = case.producers.count;
        for n in (0..producers).filter(|n| is_mine(*n)) {
            let state = ProducerState {
                session: protocol.producer(n),
                schedule: job
                    .rate
                    .map(|rate| Schedule::new(rate, job.load.burst, n, producers)),
                partitioner: Partitioner::new(partitions, n),
                next: 0,
                window: VecDeque::new(),
            };
            worker.connect(Role::Producer(state))?;
        }
        let per_set = case.consumers.per_set;
        for n in (0..case.consumers.sets * per_set).filter(|n| is_mine(producers + *n)) {
            let member = n % per_set;
            let mine: Vec<u32> = (member..partitions).step_by(per_set as usize).collect();
            let role = Role::Consumer {
                set: (n / per_set) as usize,
                session: protocol.consumer(&mine),
            };
            if job.load.drain.is_some() {
                worker.late.push(role);
            } else {
                worker.connect(role)?;
            }
        }
        Ok(worker)
    }

    pub fn run(mut self) -> Result<Tally> {
        self.make_ready()?;
        self.place.wait_for_start()?;
        for link in 0..self.links.len() {
            self.make_sendable(link);
        }
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            let now = self.progress.clock.now();
            self.progress.check()?;
            self.progress.tell(now);
            if self.progress.is_over(now, self.is_answered(now)) {
                break;
            }
            self.connect_late(now)?;
            let has_sent = self.send(now)?;
            self.wait(&mut events, now, has_sent)?;
            self.read_all(&events)?;
            self.check_answers()?;
        }
        Ok(self.settle())
    }

    fn connect(&mut self, role: Role) -> Result<()> {
        let addr = self.progress.job.endpoint.addr;
        let stream = std::net::TcpStream::connect_timeout(&addr, CONNECT_MAX)
            .with_context(|| format!("{addr} can't be connected to"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        let index = self.links.len();
        self.poll.registry().register(
            &mut stream,
            Token(index),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        let mut link = Link {
            stream,
            role,
            is_ready: false,
            input: Vec::new(),
            out: Vec::new(),
            sent: 0,
        };
        let (session, out) = link.session();
        session.greet(out);
        link.flush()?;
        self.links.push(link);
        Ok(())
    }

    /// Waits until every connection is ready.
    fn make_ready(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let give_up = self.progress.clock.now() + ANSWER_MAX;
        while !self.links.iter().all(|link| link.is_ready) {
            self.progress.check()?;
            if self.progress.clock.now() > give_up {
                bail!(
                    "{} did not answer for a minute when a connection was made",
                    self.progress.job.endpoint.addr
                );
            }
            self.poll_for(&mut events, POLL_MAX)?;
            self.read_all(&events)?;
        }
        Ok(())
    }

    fn connect_late(&mut self, now: u64) -> Result<()> {
        if now < self.progress.begin() {
            return Ok(());
        }
        for role in std::mem::take(&mut self.late) {
            self.connect(role)?;
        }
        Ok(())
    }

    /// Whether nothing is to be sent any more, and what was sent is answered.
    fn is_answered(&self, now: u64) -> bool {
        self.unanswered == 0 && self.next_due(now).is_none()
    }

    /// When the next record is due of those that may be sent.
    fn next_due(&self, now: u64) -> Option<u64> {
        let until = self.progress.produce_until();
        let may_send = match self.progress.job.rate {
            Some(_) => now < self.progress.give_up(),
            None => now < until,
        };
        let Reverse((due, _)) = self.sendable.peek()?;
        Some(*due).filter(|due| may_send && *due < until)
    }

    /// A producer whose window has room waits for its next record's time.
    fn make_sendable(&mut self, index: usize) {
        if let Role::Producer(producer) = &self.links[index].role {
            let schedule = producer.schedule.as_ref();
            let due = self.progress.due(schedule, producer.next, 0);
            self.sendable.push(Reverse((due, index)));
        }
    }

    /// Sends what is due; whether anything was.
    fn send(&mut self, mut now: u64) -> Result<bool> {
        let in_flight = self.progress.job.case.producers.in_flight as usize;
        let mut has_sent = false;
        while self.next_due(now).is_some_and(|due| due <= now) {
            let Some(Reverse((_, index))) = self.sendable.pop() else {
                break;
            };
            // At saturation a window is filled at once; in an open loop with what is due.
            while self.append(index, now) {}
            self.links[index].flush()?;
            has_sent = true;
            // The next one is not sent at the time at which the turn began.
            now = self.progress.clock.now();
            let Role::Producer(producer) = &self.links[index].role else {
                continue;
            };
            if producer.window.len() < in_flight {
                self.make_sendable(index);
            }
        }
        Ok(has_sent)
    }

    /// Appends a producer's next record if it is due and the window has room; whether it did.
    fn append(&mut self, index: usize, now: u64) -> bool {
        let Link { role, out, .. } = &mut self.links[index];
        let Role::Producer(producer) = role else {
            return false;
        };
        if producer.window.len() >= self.progress.job.case.producers.in_flight as usize {
            return false;
        }
        let schedule = producer.schedule.as_ref();
        let due = self.progress.due(schedule, producer.next, now);
        if due > now || due >= self.progress.produce_until() {
            return false;
        }
        let number = producer.next;
        let partition = producer.partitioner.next_batch();
        let value = self.values.next(due);
        producer.session.append(partition, number, value, out);
        producer.window.push_back((number, due));
        producer.next += 1;
        self.tally.sent(self.progress, due, now);
        if self.unanswered == 0 {
            self.answered_at = now;
        }
        self.unanswered += 1;
        true
    }

    /// Waits for the broker or for the next record's time, and counts how long there was nothing to do.
    fn wait(&mut self, events: &mut Events, now: u64, has_sent: bool) -> Result<()> {
        let told = self.progress.told_next(now).max(now + END_STEP);
        let next = self.next_due(now).map_or(told, |due| due.min(told));
        // Whole milliseconds, as the kernel counts them; the rest is waited for without sleeping.
        let left = Duration::from_millis(next.saturating_sub(now) / 1_000_000);
        let before = self.progress.clock.now();
        self.poll_for(events, left.min(POLL_MAX))?;
        let after = self.progress.clock.now();
        let from = if has_sent || !events.is_empty() {
            before
        } else {
            now
        };
        let from = from.max(self.progress.begin());
        self.idle += after.min(self.progress.end()).saturating_sub(from);
        Ok(())
    }

    fn poll_for(&mut self, events: &mut Events, time: Duration) -> Result<()> {
        match self.poll.poll(events, Some(time)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            other => Ok(other?),
        }
    }

    fn read_all(&mut self, events: &Events) -> Result<()> {
        for event in events {
            let index = event.token().0;
            if event.is_writable() {
                self.links[index].flush()?;
            }
            if event.is_readable() {
                self.read(index, event.is_read_closed())?;
            }
        }
        Ok(())
    }

    /// Reads all that a socket has; of a closed one until its end.
    fn read(&mut self, index: usize, is_closed: bool) -> Result<()> {
        loop {
            let link = &mut self.links[index];
            let count = match link.stream.read(&mut self.scratch) {
                Ok(0) => bail!("the broker closed a connection"),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("a connection to the broker ended"),
            };
            let now = self.progress.clock.now();
            link.take(&self.scratch[..count], &mut self.events)?;
            link.flush()?;
            self.apply(index, now);
            // Fewer bytes than there was room for: the socket is empty, see epoll(7).
            if count < self.scratch.len() && !is_closed {
                return Ok(());
            }
        }
    }

    fn apply(&mut self, index: usize, now: u64) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                Event::Ready => self.links[index].is_ready = true,
                Event::Acknowledged(number) => self.acknowledged(index, number, now),
                Event::Record { due, bytes } => self.consumed(index, due, bytes, now),
                Event::Fetched => self.tally.fetched(self.progress, now),
            }
        }
        self.events = events;
    }

    fn acknowledged(&mut self, index: usize, number: u64, now: u64) {
        let Role::Producer(producer) = &mut self.links[index].role else {
            return;
        };
        // Nearly always the first.
        let Some(place) = producer.window.iter().position(|sent| sent.0 == number) else {
            return;
        };
        let Some((_, due)) = producer.window.remove(place) else {
            return;
        };
        self.unanswered -= 1;
        self.answered_at = now;
        let in_flight = self.progress.job.case.producers.in_flight as usize;
        if producer.window.len() + 1 == in_flight {
            self.make_sendable(index);
        }
        self.tally.acknowledged(self.progress, due, now);
    }

    fn consumed(&mut self, index: usize, due: u64, bytes: usize, now: u64) {
        let Role::Consumer { set, .. } = self.links[index].role else {
            return;
        };
        self.tally.consumed(self.progress, set, due, bytes, now);
    }

    fn check_answers(&self) -> Result<()> {
        if self.unanswered > 0 && self.progress.clock.now() > self.answered_at + ANSWER_MAX {
            bail!(
                "{} answered nothing for a minute",
                self.progress.job.endpoint.addr
            );
        }
        Ok(())
    }

    /// What is known at the end.
    fn settle(mut self) -> Tally {
        for link in &self.links {
            if let Role::Producer(producer) = &link.role {
                let schedule = producer.schedule.as_ref();
                self.tally.ended(self.progress, schedule, producer.next);
            }
        }
        let measured = &mut self.tally.measured;
        // Each record is a request.
        measured.produced.requests = measured.produced.records;
        let time = self.progress.end().saturating_sub(self.progress.begin());
        if time > 0 {
            let idle = self.idle as f64 / time as f64;
            measured.client_busy = Some((1.0 - idle).clamp(0.0, 1.0));
        }
        self.tally
    }
}

impl Link {
    fn session(&mut self) -> (&mut dyn Session, &mut Vec<u8>) {
        match &mut self.role {
            Role::Producer(producer) => (&mut *producer.session, &mut self.out),
            Role::Consumer { session, .. } => (&mut **session, &mut self.out),
        }
    }

    /// Gives the session what came; keeps what is not whole.
    fn take(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<()> {
        let mut input = std::mem::take(&mut self.input);
        let (session, out) = self.session();
        if input.is_empty() {
            let used = session.read(bytes, out, events)?;
            input.extend_from_slice(&bytes[used..]);
        } else {
            input.extend_from_slice(bytes);
            let used = session.read(&input, out, events)?;
            input.drain(..used);
        }
        self.input = input;
        Ok(())
    }

    /// Sends what the socket takes; the rest when it is writable again.
    fn flush(&mut self) -> Result<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => bail!("the broker closed a connection"),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("a connection to the broker ended"),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }
}

const SCRATCH_BYTES: usize = 256 << 10;
const EVENTS_MAX: usize = 1024;
const POLL_MAX: Duration = Duration::from_millis(50);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Nanoseconds without an answer that end a measurement.
const ANSWER_MAX: u64 = 60_000_000_000;
/// Nanoseconds between looks at what is still to come.
const END_STEP: u64 = 1_000_000;
