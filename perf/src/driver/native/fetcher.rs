//! A consumer's connection to one leader: one fetch after the other.
//!
//! At saturation all records of a batch were sent at the same time, so the first one's says it for all. Values of a
//! case have all one size, so a batch's bytes are its first record's, times its records.

use super::batch::{take_batch, Seen};
use super::conn::Conn;
use super::messages::{fetch_request, read_fetched};
use super::shared::{Goal, Shared};
use super::work::Work;
use crate::driver::records::between;
use anyhow::{bail, ensure, Context, Result};
use std::collections::HashMap;

pub struct Fetcher {
    pub conn: Conn,
    readings: Vec<Reading>,
    /// By partition.
    places: HashMap<u32, usize>,
    /// The fetch without an answer, and when it was sent.
    asked: Option<u64>,
    fetches: i32,
    behind: usize,
    is_done: bool,
}

/// A partition that is read.
pub struct Reading {
    pub partition: u32,
    /// The next record's offset.
    pub offset: i64,
    /// Where it ends, if it does.
    pub until: Option<i64>,
    was_caught_up: bool,
}

impl Reading {
    pub fn new(partition: u32, offset: i64, until: Option<i64>) -> Reading {
        Reading {
            partition,
            offset,
            until,
            was_caught_up: false,
        }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| self.offset >= until)
    }
}

impl Fetcher {
    /// `readings`: in the order of their partitions.
    pub fn new(conn: Conn, readings: Vec<Reading>) -> Fetcher {
        let places = readings.iter().enumerate();
        Fetcher {
            conn,
            places: places
                .map(|(place, reading)| (reading.partition, place))
                .collect(),
            behind: readings.len(),
            readings,
            asked: None,
            fetches: 0,
            is_done: false,
        }
    }

    /// Sends the first fetch when it is time for it; when to ask again.
    pub fn pump(&mut self, work: &mut Work<'_>, now: u64) -> Result<u64> {
        let consume = work.shared.phases.consume;
        if now < consume {
            return Ok(consume);
        }
        if self.asked.is_none() && !self.is_done {
            self.ask(work)?;
        }
        Ok(u64::MAX)
    }

    fn ask(&mut self, work: &mut Work<'_>) -> Result<()> {
        let shared = work.shared;
        let mut topics: Vec<(&str, Vec<(i32, i64)>)> = Vec::new();
        for reading in self.readings.iter().filter(|reading| !reading.is_over()) {
            let (topic, index) = shared.cluster.place(reading.partition);
            match topics.last_mut() {
                Some((last, partitions)) if *last == topic => {
                    partitions.push((index, reading.offset))
                }
                _ => topics.push((topic, vec![(index, reading.offset)])),
            }
        }
        if topics.is_empty() {
            self.is_done = true;
            return Ok(());
        }
        self.fetches = self.fetches.wrapping_add(1);
        let turn = self.fetches as usize;
        let plan = shared.load.consumers;
        fetch_request(self.conn.head(), self.fetches, plan, &topics, turn);
        self.asked = Some(work.now());
        self.conn.send(None)?;
        Ok(())
    }

    /// Writes on, reads answers, and asks for more.
    pub fn ready(&mut self, drain: bool, work: &mut Work<'_>) -> Result<()> {
        if self.conn.is_writing() {
            self.conn.write()?;
        }
        let mut is_more = true;
        while is_more {
            is_more = self.conn.read(drain)?;
            if self.take_answer(work)? {
                self.ask(work)?;
            }
        }
        Ok(())
    }

    /// Whether there was a whole answer.
    fn take_answer(&mut self, work: &mut Work<'_>) -> Result<bool> {
        let Some(answer) = self.conn.next_answer()? else {
            return Ok(false);
        };
        let now = work.now();
        let shared = work.shared;
        let asked = self.asked.take();
        let asked = asked.context("the broker answered a fetch that was not sent")?;
        let mut total = Total::default();
        let mut caught_up = false;
        let (readings, places, behind) = (&mut self.readings, &self.places, &mut self.behind);
        let (correlation, code) = read_fetched(answer, |fetched| {
            let partition = shared.cluster.number(fetched.topic, fetched.partition)?;
            if fetched.code != 0 {
                return Err(shared.cluster.failed(partition, fetched.code, None));
            }
            let place = places.get(&partition);
            let place =
                place.context("the broker answered for a partition that was not asked for")?;
            let reading = &mut readings[*place];
            total.read(reading, fetched.records, work, now)?;
            if !reading.was_caught_up && reading.offset >= fetched.high_watermark {
                reading.was_caught_up = true;
                *behind -= 1;
                caught_up = *behind == 0;
            }
            Ok(())
        })?;
        if code != 0 {
            bail!(
                "a fetch: the broker answered {}",
                super::cluster::code_text(code)
            );
        }
        ensure!(
            correlation == self.fetches,
            "the broker's answer to a fetch is not of that fetch"
        );
        work.count_consumed(total.records, total.bytes, now);
        if caught_up {
            // Only now: this may be the end of the measured time.
            shared.catch_up(now);
        }
        if shared.load.goal == Goal::Work && total.records > 0 {
            let at = between(shared.phases.measured, asked);
            work.measured.acknowledged.record(at, between(asked, now));
        }
        Ok(true)
    }

    /// An error if an answer is missing for too long.
    pub fn check_time(&self, shared: &Shared<'_>, now: u64) -> Result<()> {
        let wait = u64::from(shared.load.consumers.wait_ms) * 1_000_000;
        match self.asked {
            Some(asked) if now.saturating_sub(asked) > shared.answer_max + wait => bail!(
                "the broker has not answered a fetch for {} s",
                shared.answer_max / 1_000_000_000
            ),
            _ => Ok(()),
        }
    }

    /// Whether all is read that has to be.
    pub fn is_done(&self, shared: &Shared<'_>) -> bool {
        let has_all = |reading: &Reading| reading.offset >= shared.reached(reading.partition);
        self.is_done
            || (shared.load.goal != Goal::Work
                && shared.producers_are_done()
                && self.readings.iter().all(has_all))
    }
}

/// What an answer held.
#[derive(Default)]
struct Total {
    records: u64,
    bytes: u64,
}

impl Total {
    fn read(
        &mut self,
        reading: &mut Reading,
        mut records: &[u8],
        work: &mut Work<'_>,
        now: u64,
    ) -> Result<()> {
        let load = &work.shared.load;
        let (is_open, is_stamped) = (load.is_open, load.is_stamped);
        while let Some(batch) = take_batch(&mut records)? {
            let next = batch.header.next_offset();
            // One that was read before, at whose middle or end this fetch began.
            if next <= reading.offset {
                continue;
            }
            reading.offset = next;
            if batch.is_control() || batch.header.record_count <= 0 {
                continue;
            }
            let count = batch.header.record_count as u64;
            let first = batch.first()?;
            self.records += count;
            self.bytes += count * first.bytes as u64;
            if is_open {
                batch.each(|Seen { due, .. }| work.sample_delivered(due, now, 1))?;
            } else if is_stamped {
                work.sample_delivered(first.due, now, count);
            }
        }
        Ok(())
    }
}
