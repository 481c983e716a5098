//! Clients of protocols in which each record is a request of its own: the connections, the schedule and the
//! measuring. NATS and Redis bring the bytes, each as a [`Protocol`].
//!
//! One event loop for each CPU of the client, each with its part of the connections. All loops start at the same time,
//! once every connection is ready. In an open loop a record leaves when it is due, or as soon after as its producer
//! may send; what is still unanswered at the end of the measured time is waited for, so that slow answers count.

#[cfg(test)]
mod tests;
mod worker;

use super::progress::{bind, nanoseconds, worse, Progress, Tally};
use super::Job;
use crate::measure::Measured;
use anyhow::{bail, Result};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use worker::Worker;

/// Makes the sessions of one measurement.
pub trait Protocol: Sync {
    /// `producer` counts from 0.
    fn producer(&self, producer: u32) -> Box<dyn Producer>;

    /// A consumer of these partitions, numbered through all topics. It reads what is appended after the protocol was
    /// made ready for this measurement.
    fn consumer(&self, partitions: &[u32]) -> Box<dyn Session>;
}

/// One connection's side of a protocol, without its socket.
pub trait Session {
    /// What is sent first. [`Event::Ready`] follows when it was answered.
    fn greet(&mut self, out: &mut Vec<u8>);

    /// Takes all that is whole in `input` and returns how many bytes that was; `out` gets what is to be sent.
    ///
    /// An error is one that the broker answered, or that its bytes are not the protocol's.
    fn read(&mut self, input: &[u8], out: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<usize>;
}

pub trait Producer: Session {
    /// Appends a record; `number` counts this producer's records from 0. [`Event::Acknowledged`] tells it again.
    fn append(&mut self, partition: u32, number: u64, value: &[u8], out: &mut Vec<u8>);
}

/// What a broker's bytes mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Ready,
    /// The record of this number is kept.
    Acknowledged(u64),
    /// A consumer has a record: when it was due, and the bytes of its value.
    Record {
        due: u64,
        bytes: usize,
    },
    /// The end of an answer that had records.
    Fetched,
}

/// Puts the load of a job on its target.
pub fn run(job: &Job<'_>, protocol: &dyn Protocol) -> Result<Measured> {
    let progress = Progress::new(job)?;
    let case = job.case;
    let connections = case.producers.count + case.consumers.sets * case.consumers.per_set;
    let threads = job.cpus.len().clamp(1, connections.max(1) as usize);
    let ready = AtomicUsize::new(0);
    let tally = std::thread::scope(|scope| -> Result<Tally> {
        let mut running = Vec::new();
        for thread in 0..threads {
            let place = Place {
                progress: &progress,
                ready: &ready,
                thread,
                threads,
            };
            let work = move || {
                let cpus = job.cpus.get(thread).map_or(&[][..], std::slice::from_ref);
                let result = bind(cpus)
                    .and_then(|()| Worker::new(place, protocol))
                    .and_then(Worker::run);
                if result.is_err() {
                    place.progress.fail();
                }
                result
            };
            let started = std::thread::Builder::new()
                .name(format!("client-{thread}"))
                .spawn_scoped(scope, work);
            running.push(started.inspect_err(|_| progress.fail())?);
        }
        let mut whole = Tally::default();
        let mut failure = None;
        for thread in running {
            match thread.join() {
                Ok(Ok(part)) => whole.merge(&part)?,
                Ok(Err(error)) => failure = Some(worse(failure, error)),
                Err(_) => bail!("a thread of the client panicked"),
            }
        }
        failure.map_or(Ok(whole), Err)
    })?;
    progress.finish(tally)
}

/// A thread among the others.
#[derive(Clone, Copy)]
struct Place<'a> {
    progress: &'a Progress<'a>,
    /// Threads whose connections are all ready.
    ready: &'a AtomicUsize,
    thread: usize,
    threads: usize,
}

impl Place<'_> {
    /// Waits until all threads are ready. The schedule starts then.
    fn wait_for_start(&self) -> Result<()> {
        if self.ready.fetch_add(1, Relaxed) + 1 == self.threads {
            self.progress.start_in(nanoseconds(0.01));
        }
        loop {
            self.progress.check()?;
            if self.progress.start().is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
