//! A thread's event loop: turn by turn, what is due is sent and what has arrived is read.
//!
//! While a record is due soon the loop polls without waiting, since the kernel wakes a thread too late; in an open loop
//! on CPUs of its own it never waits. That is not counted as work.

use super::fetcher::Fetcher;
use super::producer::Producer;
use super::shared::{Goal, Shared};
use super::work::Work;
use crate::measure::Measured;
use anyhow::{Context, Result};
use mio::{Events, Poll};
use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use std::time::Duration;

/// The clients of a thread.
#[derive(Default)]
pub struct Clients {
    pub producers: Vec<Producer>,
    pub fetchers: Vec<Fetcher>,
}

pub struct Turns<'a> {
    poll: Poll,
    clients: Clients,
    /// Connections of each producer.
    lanes: usize,
    work: Work<'a>,
    /// When each client has something to do without an event; producers first.
    wake: Vec<u64>,
    /// Nanoseconds of the measured time in which there was work.
    busy: u64,
    /// Whether the producers were told that their time is over.
    is_told: bool,
    checked: u64,
}

impl<'a> Turns<'a> {
    pub fn new(shared: &'a Shared<'a>, work: Work<'a>, mut clients: Clients) -> Result<Turns<'a>> {
        let poll = Poll::new()?;
        let lanes = shared.cluster.leaders().len();
        let conns = clients
            .producers
            .iter_mut()
            .flat_map(|producer| &mut producer.lanes);
        let conns = conns.map(|lane| &mut lane.conn);
        let fetching = clients.fetchers.iter_mut().map(|fetcher| &mut fetcher.conn);
        for (token, conn) in conns.chain(fetching).enumerate() {
            conn.register(poll.registry(), token)?;
        }
        Ok(Turns {
            poll,
            lanes,
            wake: vec![0; clients.producers.len() + clients.fetchers.len()],
            clients,
            work,
            busy: 0,
            is_told: false,
            checked: 0,
        })
    }

    /// Runs to the end of the measurement.
    pub fn run(mut self) -> Result<Measured> {
        self.run_turns()?;
        Ok(self.finish())
    }

    fn run_turns(&mut self) -> Result<()> {
        let shared = self.work.shared;
        let mut events = Events::with_capacity(1024);
        loop {
            shared.stop.check()?;
            let mut began = self.work.now();
            if self.is_over(began) {
                return Ok(());
            }
            self.wait(&mut events, Duration::ZERO)?;
            if events.is_empty() {
                if let Some(time) = self.idle(self.work.now()) {
                    self.wait(&mut events, time)?;
                    began = self.work.now();
                }
            }
            let mut worked = !events.is_empty();
            for event in &events {
                let drain = event.is_read_closed() || event.is_error();
                self.ready(event.token().0, drain)?;
            }
            worked |= self.pump()?;
            let now = self.work.now();
            if worked {
                let from = began.max(shared.phases.measured);
                self.busy += now.min(shared.end()).saturating_sub(from);
            }
            if now.saturating_sub(self.checked) > CHECK_NS {
                self.checked = now;
                self.check_times(now)?;
            }
        }
    }

    fn wait(&mut self, events: &mut Events, time: Duration) -> Result<()> {
        match self.poll.poll(events, Some(time)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            polled => polled.context("the sockets can't be waited for"),
        }
    }

    /// How long there is nothing to do; `None` if there is, or will be so soon that waiting would be too long.
    fn idle(&self, now: u64) -> Option<Duration> {
        let shared = self.work.shared;
        if shared.load.is_open && shared.load.is_alone {
            return None;
        }
        let mut next = self.wake.iter().copied().min().unwrap_or(u64::MAX);
        for edge in [shared.produce_until(), shared.end()] {
            if edge > now {
                next = next.min(edge);
            }
        }
        let left = next.saturating_sub(now);
        // The kernel counts in milliseconds.
        let ms = left.saturating_sub(SPIN_NS) / 1_000_000;
        (ms > 0).then(|| Duration::from_millis(ms.min(WAIT_MS_MAX)))
    }

    fn ready(&mut self, token: usize, drain: bool) -> Result<()> {
        let producers = self.clients.producers.len();
        if token < producers * self.lanes {
            let number = token / self.lanes;
            self.wake[number] = 0;
            let producer = &mut self.clients.producers[number];
            producer.ready(token % self.lanes, drain, &mut self.work)
        } else {
            let fetcher = &mut self.clients.fetchers[token - producers * self.lanes];
            fetcher.ready(drain, &mut self.work)
        }
    }

    /// Lets those act whose time has come; whether there were any.
    fn pump(&mut self) -> Result<bool> {
        let now = self.work.now();
        if !self.is_told && now >= self.work.shared.produce_until() {
            self.is_told = true;
            self.wake.fill(0);
        }
        let mut worked = false;
        let producers = self.clients.producers.len();
        for (number, wake) in self.wake.iter_mut().enumerate() {
            if *wake > now {
                continue;
            }
            worked = true;
            *wake = match self.clients.producers.get_mut(number) {
                Some(producer) => producer.pump(&mut self.work, now)?,
                None => self.clients.fetchers[number - producers].pump(&mut self.work, now)?,
            };
        }
        Ok(worked)
    }

    fn is_over(&self, now: u64) -> bool {
        let shared = self.work.shared;
        if shared.has_failed() {
            return true;
        }
        if shared.load.goal != Goal::Work && now < shared.end() {
            return false;
        }
        let is_late = now >= shared.end().saturating_add(shared.grace);
        let producers = &self.clients.producers;
        let fetchers = &self.clients.fetchers;
        is_late
            || (producers.iter().all(Producer::is_done)
                && fetchers.iter().all(|fetcher| fetcher.is_done(shared)))
    }

    fn check_times(&self, now: u64) -> Result<()> {
        let shared = self.work.shared;
        for producer in &self.clients.producers {
            producer.check_time(shared, now)?;
        }
        for fetcher in &self.clients.fetchers {
            fetcher.check_time(shared, now)?;
        }
        Ok(())
    }

    fn finish(self) -> Measured {
        let shared = self.work.shared;
        let mut measured = self.work.measured;
        let producers = self.clients.producers.iter();
        measured.unacknowledged = producers
            .map(|producer| producer.unacknowledged(shared))
            .sum();
        let end = shared.end().min(shared.clock.now());
        let ns = end.saturating_sub(shared.phases.measured);
        measured.produced.seconds = ns as f64 / 1e9;
        measured.consumed.seconds = ns as f64 / 1e9;
        measured.client_busy = (ns > 0).then(|| self.busy.min(ns) as f64 / ns as f64);
        measured
    }
}

/// Pins the calling thread to a CPU.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .with_context(|| format!("a thread of the client can't be pinned to CPU {cpu}"))
}

/// Closer than this to a record's time, the loop does not wait.
const SPIN_NS: u64 = 1_000_000;
/// The longest wait, so that a stop is noticed.
const WAIT_MS_MAX: u64 = 50;
const CHECK_NS: u64 = 100_000_000;
