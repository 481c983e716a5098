//! The lean Kafka client: an event loop for each CPU, so that the client does not hide the broker.
//!
//! Connections of producers and consumers are spread over the threads; each thread measures for itself, and what they
//! measured is merged at the end. `turns.rs` is the loop, `producer.rs` and `fetcher.rs` are what it runs, `conn.rs` a
//! connection, `batch.rs` and `messages.rs` the bytes.
//!
//! **What counts.** A latency counts if its record was due (at saturation: sent) within the measured time, however late
//! its answer comes: for five seconds after the measured time answers are waited for and records that were due are still
//! sent. What is not acknowledged then is told as such. Records and bytes count if their answer arrives within the
//! measured time. At saturation a record's value carries the time at which its batch was made.
//!
//! **Consumers** start at the end of the log, which they learn before the producers start. In a drain they start with
//! the measured time, `backlog_s` after the producers and where the log ended before these; the time until each
//! partition was read up to its high watermark is what it took to drain. With a rate the producers go on meanwhile, and
//! the measured time is `measure_s` as ever. At saturation they stop when the consumers start (earlier once `bytes_max`
//! are produced), and the measurement ends when the consumers have caught up, after `measure_s` at the latest; then it
//! is not known how long it would have taken.
//!
//! **Limits.** `bytes_max` ends a measurement early when so many bytes of values were acknowledged within the measured
//! time. A batch of up to 1 MiB of values has as many records as fit `max.message.bytes` by default. A leader other than the broker that was asked is connected to where it advertises itself.

mod batch;
mod cluster;
mod conn;
mod cursor;
mod fetcher;
mod messages;
mod producer;
mod shared;
#[cfg(test)]
mod tests;
mod turns;
mod work;

use super::records::{Clock, Keys, Partitioner, Schedule};
use super::{Driver, Edge, Job};
use crate::measure::{Measured, Moved};
use crate::stop::Stop;
use crate::target::Endpoint;
use crate::workload::{Acks, Burst, ConsumerPlan, ProducerPlan, RecordPlan};
use anyhow::{ensure, Result};
use batch::{batch_records, Templates};
use cluster::{Cluster, End};
use conn::{Closed, Conn};
use fetcher::{Fetcher, Reading};
use highwater::runtime::native::raise_nofile_limit;
use producer::{Pace, Producer};
use shared::{Goal, Limits, Load, Phases, Shared};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;
use turns::{Clients, Turns};
use work::Work;

/// The driver of the native client.
pub struct Native {
    /// How long answers are waited for after the measured time.
    pub grace: Duration,
    /// How long one answer may take.
    pub answer_max: Duration,
}

impl Default for Native {
    fn default() -> Native {
        Native {
            grace: Duration::from_secs(5),
            answer_max: Duration::from_secs(60),
        }
    }
}

impl Driver for Native {
    fn run(&self, job: &Job<'_>) -> Result<Measured> {
        explained(job.endpoint.addr, self.measure(job))
    }
}

impl Native {
    fn measure(&self, job: &Job<'_>) -> Result<Measured> {
        let case = job.case;
        let cluster = Cluster::discover(
            job.endpoint.addr,
            job.topics,
            case.topic.partitions,
            job.stop,
        )?;
        let consumers = &case.consumers;
        let offsets = match case.has_consumers() {
            true => cluster.offsets(End::Latest)?,
            false => Vec::new(),
        };
        let fetchers = fetchers(&cluster, consumers, consumers.sets, &offsets, None)?;
        let producers = producers(
            &cluster,
            &case.records,
            &case.producers,
            |producer| match job.rate {
                Some(rate) => open(rate, job.load.burst, producer, case.producers.count),
                None => Pace::Saturate { left: u64::MAX },
            },
        )?;
        let drain = job.load.drain;
        let load = Load {
            records: &case.records,
            producers: &case.producers,
            consumers,
            is_open: job.rate.is_some(),
            is_alone: !job.cpus.is_empty(),
            is_stamped: case.has_consumers(),
            batch_records: batch_records(&case.records, case.producers.batch_bytes),
            goal: match drain {
                Some(_) if job.rate.is_none() => Goal::CaughtUp,
                _ => Goal::Time,
            },
        };
        let limits = Limits {
            grace: self.grace,
            answer_max: self.answer_max,
            bytes_max: job.timing.bytes_max,
        };
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let before = drain.map_or(job.timing.warmup_s, |drain| drain.backlog_s);
        let phases = |start: u64| {
            let measured = start + ns(before);
            let end = measured + ns(job.timing.measure_s);
            Phases {
                start,
                measured,
                end,
                consume: if drain.is_some() { measured } else { 0 },
                produce_until: match drain {
                    Some(_) if job.rate.is_none() => measured,
                    _ => end,
                },
            }
        };
        let setup = Setup {
            cluster: &cluster,
            load,
            limits,
            cpus: job.cpus,
            stop: job.stop,
            on_measure: job.on_measure,
        };
        let (mut measured, caught_up) = setup.run(producers, fetchers, phases)?;
        measured.drained_after_s = caught_up.filter(|_| drain.is_some());
        Ok(measured)
    }
}

/// Reads every partition from its log start to the end that it has now, with `plan.sets` (at least one) sets of
/// consumers.
///
/// `consumed` is what was read; `acknowledged` the time of each fetch that found something, from the request to the
/// whole answer.
pub fn read_all(
    endpoint: &Endpoint,
    topics: &[String],
    partitions: u32,
    plan: &ConsumerPlan,
    cpus: &[usize],
    stop: &Stop,
) -> Result<Measured> {
    let read = || {
        let cluster = Cluster::discover(endpoint.addr, topics, partitions, stop)?;
        let start = cluster.offsets(End::Start)?;
        let end = cluster.offsets(End::Latest)?;
        let fetchers = fetchers(&cluster, plan, plan.sets.max(1), &start, Some(&end))?;
        let setup = Setup {
            cluster: &cluster,
            load: Load {
                records: &RecordPlan::default(),
                producers: &ProducerPlan::default(),
                consumers: plan,
                is_open: false,
                is_alone: !cpus.is_empty(),
                is_stamped: false,
                batch_records: 1,
                goal: Goal::Work,
            },
            limits: Limits::whole(),
            cpus,
            stop,
            on_measure: &|_| (),
        };
        let (measured, _) = setup.run(Vec::new(), fetchers, Phases::whole)?;
        Ok(measured)
    };
    explained(endpoint.addr, read())
}

/// Produces records with so many bytes of values, to the next batch, as fast as one connection to each leader can: five
/// batches in flight. What was acknowledged.
#[allow(clippy::too_many_arguments)]
pub fn fill(
    endpoint: &Endpoint,
    topics: &[String],
    partitions: u32,
    records: &RecordPlan,
    bytes: u64,
    batch_bytes: usize,
    acks: Acks,
    stop: &Stop,
) -> Result<Moved> {
    let plan = ProducerPlan {
        acks,
        batch_bytes,
        in_flight: 5,
        ..Default::default()
    };
    let left = bytes.div_ceil(records.bytes as u64);
    let write = || {
        let cluster = Cluster::discover(endpoint.addr, topics, partitions, stop)?;
        let producers = producers(&cluster, records, &plan, |_| Pace::Saturate { left })?;
        let setup = Setup {
            cluster: &cluster,
            load: Load {
                records,
                producers: &plan,
                consumers: &ConsumerPlan::default(),
                is_open: false,
                is_alone: false,
                is_stamped: false,
                batch_records: batch_records(records, batch_bytes),
                goal: Goal::Work,
            },
            limits: Limits::whole(),
            cpus: &[],
            stop,
            on_measure: &|_| (),
        };
        let (measured, _) = setup.run(producers, Vec::new(), Phases::whole)?;
        Ok(measured.produced)
    };
    explained(endpoint.addr, write())
}

impl Limits {
    /// Of work that goes on until it is done.
    fn whole() -> Limits {
        let Native { grace, answer_max } = Native::default();
        Limits {
            grace,
            answer_max,
            bytes_max: u64::MAX,
        }
    }
}

impl Phases {
    /// Everything is measured, to the end.
    fn whole(start: u64) -> Phases {
        Phases {
            start,
            measured: start,
            end: u64::MAX,
            consume: start,
            produce_until: u64::MAX,
        }
    }
}

fn open(rate: f64, burst: Option<Burst>, producer: u32, producers: u32) -> Pace {
    Pace::Open {
        schedule: Schedule::new(rate, burst, producer, producers),
        next: 0,
    }
}

fn producers(
    cluster: &Cluster,
    records: &RecordPlan,
    plan: &ProducerPlan,
    pace: impl Fn(u32) -> Pace,
) -> Result<Vec<Producer>> {
    check_files(plan.count as usize * cluster.leaders().len())?;
    let producer = |number: u32| {
        let leaders = cluster.leaders().iter();
        let conns = leaders.map(|addr| Conn::open(*addr, PRODUCER_READ_BYTES));
        Ok(Producer::new(
            conns.collect::<Result<_>>()?,
            pace(number),
            Keys::new(records, u64::from(number) + 1),
            Partitioner::new(cluster.partitions(), number),
        ))
    };
    (0..plan.count).map(producer).collect()
}

/// The consumers of all sets: the partitions of a set take turns among its consumers.
fn fetchers(
    cluster: &Cluster,
    plan: &ConsumerPlan,
    sets: u32,
    from: &[i64],
    until: Option<&[i64]>,
) -> Result<Vec<Fetcher>> {
    check_files(sets as usize * plan.per_set as usize * cluster.leaders().len())?;
    let mut fetchers = Vec::new();
    for consumer in (0..sets).flat_map(|_| 0..plan.per_set) {
        for (leader, addr) in cluster.leaders().iter().enumerate() {
            let readings: Vec<Reading> = (consumer..cluster.partitions())
                .step_by(plan.per_set.max(1) as usize)
                .filter(|partition| cluster.leader_of(*partition) == leader)
                .map(|partition| {
                    let place = partition as usize;
                    Reading::new(partition, from[place], until.map(|until| until[place]))
                })
                .collect();
            if !readings.is_empty() {
                fetchers.push(Fetcher::new(
                    Conn::open(*addr, FETCHER_READ_BYTES)?,
                    readings,
                ));
            }
        }
    }
    Ok(fetchers)
}

/// Raises the limit of open files; an error if so many connections are more than it allows.
fn check_files(connections: usize) -> Result<()> {
    let (_, files_max) = raise_nofile_limit();
    let needed = connections as u64 + FILES_ELSE;
    ensure!(
        needed <= files_max,
        "{connections} connections need an open files limit of {needed}, and it is {files_max}: raise it with ulimit -n"
    );
    Ok(())
}

/// What threads are started with.
struct Setup<'a> {
    cluster: &'a Cluster,
    load: Load<'a>,
    limits: Limits,
    cpus: &'a [usize],
    stop: &'a Stop,
    on_measure: &'a (dyn Fn(Edge) + Sync),
}

impl Setup<'_> {
    /// Runs the clients; what they measured, and the seconds after which the consumers had caught up, if they had.
    fn run(
        self,
        producers: Vec<Producer>,
        fetchers: Vec<Fetcher>,
        phases: impl Fn(u64) -> Phases,
    ) -> Result<(Measured, Option<f64>)> {
        let clock = Clock::of_process();
        let counts = (producers.len(), fetchers.len());
        ensure!(
            counts != (0, 0),
            "no producer and no consumer to measure with"
        );
        let threads = self.cpus.len().max(1);
        let mut clients: Vec<Clients> = Vec::new();
        clients.resize_with(threads, Clients::default);
        for (number, producer) in producers.into_iter().enumerate() {
            clients[number % threads].producers.push(producer);
        }
        // From the other end, so that one producer and one consumer have a thread each.
        for (number, fetcher) in fetchers.into_iter().enumerate() {
            clients[threads - 1 - number % threads]
                .fetchers
                .push(fetcher);
        }
        let (records, batch_records) = (self.load.records, self.load.batch_records);
        let templates = |thread: usize| Templates::new(records, batch_records, thread as u64 + 1);
        let templates: Vec<Templates> = (0..threads).map(templates).collect();
        let shared = Shared::new(
            self.cluster,
            self.load,
            self.stop,
            phases(clock.now() + START_NS),
            self.limits,
            counts,
        );
        let shared = &shared;
        let run = |thread: usize, clients: Clients, templates: Templates| {
            if let Some(cpu) = self.cpus.get(thread) {
                turns::pin(*cpu)?;
            }
            Turns::new(shared, Work::new(shared, templates), clients)?.run()
        };
        let run = |thread, clients, templates| {
            // One thread that fails ends the others.
            run(thread, clients, templates).inspect_err(|_| shared.fail())
        };
        let results: Vec<Result<Measured>> = std::thread::scope(|scope| {
            let run = &run;
            let started: Vec<_> = clients
                .into_iter()
                .zip(templates)
                .enumerate()
                .map(|(thread, (clients, templates))| {
                    scope.spawn(move || run(thread, clients, templates))
                })
                .collect();
            tell_edges(shared, self.on_measure, || {
                started.iter().all(|thread| thread.is_finished())
            });
            let joined = started.into_iter().map(|thread| {
                let panicked = |_| Err(anyhow::anyhow!("a thread of the client panicked"));
                thread.join().unwrap_or_else(panicked)
            });
            joined.collect()
        });
        let mut whole = Measured::default();
        for measured in results {
            whole.merge(&measured?)?;
        }
        let seconds = |at: u64| at.saturating_sub(shared.phases.consume) as f64 / 1e9;
        Ok((whole, shared.caught_up_at().map(seconds)))
    }
}

/// Tells when the measured time begins and ends, a few milliseconds late at most; nothing more once all is done.
fn tell_edges(shared: &Shared<'_>, tell: &dyn Fn(Edge), is_done: impl Fn() -> bool) {
    /// The end may come earlier than it seems.
    const STEP_NS: u64 = 5_000_000;
    let wait = |until: &dyn Fn() -> u64| loop {
        let left = until().saturating_sub(shared.clock.now());
        if left == 0 || is_done() {
            return;
        }
        std::thread::sleep(Duration::from_nanos(left.min(STEP_NS)));
    };
    wait(&|| shared.phases.measured);
    tell(Edge::Start);
    wait(&|| shared.end());
    tell(Edge::End);
}

/// Says of a connection that was closed what the broker does not serve, if it is that.
fn explained<T>(addr: SocketAddr, done: Result<T>) -> Result<T> {
    done.map_err(|error| {
        let io = error.root_cause().downcast_ref::<std::io::Error>();
        let is_closed = error.is::<Closed>()
            || io.is_some_and(|io| {
                matches!(
                    io.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                )
            });
        match is_closed.then(|| cluster::unserved(addr)).flatten() {
            Some(unserved) => error.context(unserved),
            None => error,
        }
    })
}

/// Files that are open for something else.
const FILES_ELSE: u64 = 100;
/// Room for answers to begin with.
const PRODUCER_READ_BYTES: usize = 4 << 10;
const FETCHER_READ_BYTES: usize = 256 << 10;
/// From the start of the threads to that of the schedule, nanoseconds.
const START_NS: u64 = 50_000_000;
