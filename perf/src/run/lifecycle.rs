//! Start on an empty directory, idle, stop, start, kill, start: each time until the first record is acknowledged.

use super::session::{Outcome, Turn};
use super::stream;
use crate::groups;
use crate::results::{Better, Figure};
use crate::target::cost::Sample;
use crate::target::{Protocol, Share, Target};
use crate::wire;
use anyhow::{ensure, Context, Result};
use bytes::Bytes;
use highwater::protocol::batch::BatchBuilder;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Requests in flight while the partitions are filled.
const IN_FLIGHT: usize = 64;
/// A broker that has started answers within this time.
const PATIENCE: Duration = Duration::from_secs(120);
/// Before an idle broker is watched.
const CALM: Duration = Duration::from_secs(1);

pub fn measure(turn: &Turn<'_>, target: &mut dyn Target, share: &Share) -> Result<Outcome> {
    let topics = stream::names(turn.case.topic.topics);
    let batch = batch(turn.case.records.bytes);
    let plan = &turn.case.lifecycle;
    let mut figures = Figures::default();

    let listens = target.start(share)?;
    ensure!(
        target.endpoint()?.protocol == Protocol::Kafka,
        "starts and restarts are measured by Kafka's protocol only"
    );
    figures.ms("listens on an empty directory", listens);
    let made = Instant::now();
    for topic in &topics {
        turn.stop.check()?;
        target.create_topic(topic, &turn.case.topic)?;
    }
    figures.ms("topics made", made.elapsed());
    let life = Life {
        turn,
        topics: &topics,
        batch: &batch,
    };
    life.fill(target, 1)?;
    if plan.groups > 0 {
        let address = target.endpoint()?.addr.to_string();
        groups::ready(&address)?;
        groups::commit(&address, &topics[0], plan.groups as usize)?;
    }
    let cost = life.idle(target, &mut figures)?;

    figures.ms("stops cleanly", target.stop()?);
    life.start(target, share, "after a clean stop", &mut figures)?;
    life.fill(target, plan.records)?;
    target.kill()?;
    life.start(target, share, "after SIGKILL", &mut figures)?;
    Ok(Outcome {
        figures: figures.0,
        cost,
        ..Outcome::default()
    })
}

/// A partition of a topic.
type Place<'a> = (&'a String, i32);

struct Life<'a> {
    turn: &'a Turn<'a>,
    topics: &'a [String],
    /// Of one record.
    batch: &'a Bytes,
}

impl Life<'_> {
    fn start(
        &self,
        target: &mut dyn Target,
        share: &Share,
        when: &str,
        figures: &mut Figures,
    ) -> Result<()> {
        self.turn.stop.check()?;
        let listens = target.start(share)?;
        let after = Instant::now();
        self.first_ack(target)?;
        figures.ms(&format!("listens {when}"), listens);
        figures.ms(&format!("first ack {when}"), listens + after.elapsed());
        self.fill(target, 1)?;
        figures.ms(
            &format!("ack of every partition {when}"),
            listens + after.elapsed(),
        );
        let groups = self.turn.case.lifecycle.groups as usize;
        if groups > 0 {
            let address = target.endpoint()?.addr.to_string();
            groups::ready(&address)?;
            figures.ms(&format!("all groups {when}"), listens + after.elapsed());
            let there = groups::count(&address)?;
            ensure!(
                there == groups,
                "{there} of {groups} groups are there {when}"
            );
        }
        Ok(())
    }

    /// A broker that listens may not lead its partitions yet.
    fn first_ack(&self, target: &dyn Target) -> Result<()> {
        let addr = target.endpoint()?.addr.to_string();
        let frame = wire::produce_frame(&self.topics[0], 0, -1, self.batch.clone())?;
        let start = Instant::now();
        loop {
            let try_once = || -> Result<()> {
                let mut socket = wire::connect(&addr)?;
                socket.write_all(&frame)?;
                wire::check_produced(wire::read_frame(&mut socket)?)
            };
            match try_once() {
                Err(error) if start.elapsed() > PATIENCE => {
                    return Err(error.context(format!("no record is taken within {PATIENCE:?}")));
                }
                Err(_) => self.turn.stop.sleep(Duration::from_millis(1))?,
                Ok(()) => return Ok(()),
            }
        }
    }

    /// So many records to each partition, one after another. A partition that does not take them yet is asked again.
    fn fill(&self, target: &dyn Target, records: u32) -> Result<()> {
        let partitions = i32::try_from(self.turn.case.topic.partitions)?;
        let places = |topic| (0..partitions).map(move |partition| (topic, partition));
        let mut left: Vec<Place<'_>> = Vec::new();
        for _ in 0..records {
            left.extend(self.topics.iter().flat_map(places));
        }
        let start = Instant::now();
        loop {
            let (refused, why) = self.send(target, &left)?;
            let Some(why) = why else {
                return Ok(());
            };
            if start.elapsed() > PATIENCE {
                return Err(why.context(format!("not all records are taken within {PATIENCE:?}")));
            }
            self.turn.stop.sleep(Duration::from_millis(5))?;
            left = refused;
        }
    }

    /// A record to each place: those that were refused, and why the last one was.
    fn send<'p>(
        &self,
        target: &dyn Target,
        places: &[Place<'p>],
    ) -> Result<(Vec<Place<'p>>, Option<anyhow::Error>)> {
        let mut socket = wire::connect(&target.endpoint()?.addr.to_string())?;
        let mut refused = Vec::new();
        let mut why = None;
        let mut answer = |socket: &mut TcpStream, place| -> Result<()> {
            if let Err(error) = wire::check_produced(wire::read_frame(socket)?) {
                refused.push(place);
                why = Some(error);
            }
            Ok(())
        };
        for (n, (topic, partition)) in places.iter().enumerate() {
            self.turn.stop.check()?;
            if n >= IN_FLIGHT {
                answer(&mut socket, places[n - IN_FLIGHT])?;
            }
            let frame = wire::produce_frame(topic, *partition, -1, self.batch.clone())?;
            socket.write_all(&frame)?;
        }
        for place in &places[places.len().saturating_sub(IN_FLIGHT)..] {
            answer(&mut socket, *place)?;
        }
        Ok((refused, why))
    }

    fn idle(
        &self,
        target: &dyn Target,
        figures: &mut Figures,
    ) -> Result<Option<crate::results::Cost>> {
        let Some(pid) = target.pid() else {
            return Ok(None);
        };
        self.turn.stop.sleep(CALM)?;
        let start = Sample::take(pid, target.data_dir())?;
        let seconds = Duration::try_from_secs_f64(self.turn.case.lifecycle.idle_s);
        self.turn.stop.sleep(seconds.context("lifecycle.idle_s")?)?;
        let cost = start.until(&Sample::take(pid, target.data_dir())?);
        figures.lower(
            "idle CPU",
            cost.cpu_seconds / cost.seconds * 100.0,
            "% of a CPU",
        );
        figures.lower(
            "idle memory",
            cost.resident_bytes as f64 / f64::from(1 << 20),
            "MiB",
        );
        Ok(Some(cost))
    }
}

#[derive(Default)]
struct Figures(Vec<Figure>);

impl Figures {
    fn ms(&mut self, name: &str, time: Duration) {
        self.lower(name, time.as_secs_f64() * 1e3, "ms");
    }

    fn lower(&mut self, name: &str, value: f64, unit: &str) {
        self.0.push(Figure {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            better: Better::Lower,
        });
    }
}

/// One record.
fn batch(bytes: usize) -> Bytes {
    let mut batch = BatchBuilder::new();
    batch.push(wire::now_ms(), None, Some(&vec![b'x'; bytes]));
    batch.build()
}
