//! Kafka's protocol through librdkafka: what users of it, and of the clients that are built on it, see.
//!
//! A producer is a librdkafka client with two threads beside librdkafka's own: one sends what is due, the other takes
//! delivery reports. A consumer is a client with one; it is assigned its partitions and is in no group. All threads run
//! on the CPUs of the client, wherever the kernel likes there.
//!
//! **What is different from the native client.** Records that are due wait in librdkafka's queue, not in the schedule,
//! so the schedule delay is that of the sending thread only. At saturation a producer keeps one batch more than its
//! window of requests in the queue; with single records as many as the window. A request holds one partition. Of
//! fetches it is not known which found something, so they are not counted. Settings that a case does not name are
//! librdkafka's.

mod config;

#[cfg(test)]
mod tests;

use super::progress::{bind, worse, Progress, Tally};
use super::records::{due_of, Keys, Partitioner, Schedule, Values};
use super::{Driver, Job};
use crate::measure::Measured;
use anyhow::{bail, ensure, Context, Result};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::statistics::Statistics;
use rdkafka::{ClientContext, Message, Offset, TopicPartitionList};
use std::collections::HashMap;
use std::fs;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// See [`super::librdkafka`].
pub struct LibrdkafkaDriver;

impl Driver for LibrdkafkaDriver {
    fn run(&self, job: &Job<'_>) -> Result<Measured> {
        let (producers, consumers) = (&job.case.producers, &job.case.consumers);
        let clients = producers.count + consumers.sets * consumers.per_set;
        ensure!(
            clients <= CLIENTS_MAX,
            "librdkafka is measured with at most {CLIENTS_MAX} clients, for each has threads of its own, and this \
             case has {clients}"
        );
        // librdkafka itself would try for long.
        let addr = job.endpoint.addr;
        TcpStream::connect_timeout(&addr, PATIENCE)
            .with_context(|| format!("{addr} can't be connected to"))?;
        let progress = Progress::new(job)?;
        // Threads inherit the CPUs of the one that starts them, librdkafka's too.
        thread::scope(|scope| {
            let all = scope.spawn(|| {
                bind(job.cpus)?;
                Run::prepare(&progress)?.run()
            });
            all.join()
                .unwrap_or_else(|_| bail!("a thread of the client panicked"))
        })
    }
}

/// The clients of one measurement.
struct Run<'a> {
    progress: &'a Progress<'a>,
    producers: Vec<BaseProducer<Reports<'a>>>,
    /// Set, client, and what it reads.
    consumers: Vec<(usize, BaseConsumer, TopicPartitionList)>,
    /// Senders that still send or wait for reports.
    sending: AtomicUsize,
}

impl<'a> Run<'a> {
    fn prepare(progress: &'a Progress<'a>) -> Result<Run<'a>> {
        let job = progress.job;
        let mut producers = Vec::new();
        for _ in 0..job.case.producers.count {
            let reports = Reports::new(progress);
            let producer: BaseProducer<Reports<'_>> = config::producer(job)?
                .create_with_context(reports)
                .map_err(|error| config::explain("a producer", &error))?;
            producers.push(producer);
        }
        for topic in job.topics {
            let Some(first) = producers.first() else {
                break;
            };
            let metadata = first.client().fetch_metadata(Some(topic), PATIENCE);
            let metadata = metadata
                .with_context(|| format!("{} tells librdkafka no metadata", job.endpoint.addr))?;
            let there = metadata.topics().iter().find(|found| found.name() == topic);
            let there = there.map_or(0, |found| found.partitions().len());
            let partitions = job.case.topic.partitions;
            ensure!(
                there == partitions as usize,
                "topic {topic} has {there} partitions, and {partitions} were made"
            );
        }
        Ok(Run {
            progress,
            sending: AtomicUsize::new(producers.len()),
            producers,
            consumers: consumers(job)?,
        })
    }

    fn run(&self) -> Result<Measured> {
        let progress = self.progress;
        let mut busy = None;
        let tally = thread::scope(|scope| -> Result<Tally> {
            let mut running = Vec::new();
            progress.start_in(START_NS);
            for (number, producer) in (0..).zip(&self.producers) {
                let done = &producer.context().is_done;
                // Reports are taken until the sender has all that it waits for.
                scope.spawn(move || {
                    while !done.load(Relaxed) {
                        producer.poll(STEP);
                    }
                });
                running.push(scope.spawn(move || {
                    let result = self.send(number, producer);
                    done.store(true, Relaxed);
                    self.sending.fetch_sub(1, Relaxed);
                    result.inspect_err(|_| progress.fail())
                }));
            }
            for (set, consumer, partitions) in &self.consumers {
                running.push(scope.spawn(move || {
                    let result = self.consume(*set, consumer, partitions);
                    result.inspect_err(|_| progress.fail())
                }));
            }
            let mut failure = self.watch(&mut busy).err();
            let mut whole = Tally::default();
            for thread in running {
                match thread.join() {
                    Ok(Ok(part)) => whole.merge(&part)?,
                    Ok(Err(error)) => failure = Some(worse(failure, error)),
                    Err(_) => bail!("a thread of the client panicked"),
                }
            }
            failure.map_or(Ok(whole), Err)
        })?;
        let mut whole = tally;
        for producer in &self.producers {
            let reports = producer.context();
            whole.merge(&lock(&reports.tally))?;
            whole.measured.produced.requests += reports.requests();
        }
        if self.progress.job.case.batch_records() == 1 {
            // Each record is a request.
            whole.measured.produced.requests = whole.measured.produced.records;
        }
        whole.measured.client_busy = busy;
        progress.finish(whole)
    }

    /// Waits for the end of the measured time; sets how busy the client was in it.
    fn watch(&self, busy: &mut Option<f64>) -> Result<()> {
        let progress = self.progress;
        let mut at_begin = None;
        loop {
            let now = progress.clock.now();
            progress.tell(now);
            if now >= progress.begin() && at_begin.is_none() {
                at_begin = Some((now, thread_times()?));
            }
            if now >= progress.end() {
                if let Some((begin, times)) = at_begin {
                    let seconds = now.saturating_sub(begin) as f64 / 1e9;
                    *busy = busy_part(&times, &thread_times()?, seconds, progress.job.cpus.len());
                }
                return Ok(());
            }
            progress.check()?;
            let left = progress.told_next(now).saturating_sub(now);
            thread::sleep(Duration::from_nanos(left).min(STEP));
        }
    }

    /// A producer's records, from the first to the last report.
    fn send(&self, number: u32, producer: &BaseProducer<Reports<'a>>) -> Result<Tally> {
        let progress = self.progress;
        let job = progress.job;
        let reports = producer.context();
        // To be woken when the window has room.
        let _ = reports.sender.set(thread::current());
        let count = job.case.producers.count;
        let schedule = job
            .rate
            .map(|rate| Schedule::new(rate, job.load.burst, number, count));
        let batch_records = job.case.batch_records();
        let window = match job.rate {
            Some(_) => usize::MAX,
            None => config::window(job.case),
        };
        let partitions = job.case.topic.partitions;
        let mut maker = Maker {
            values: Values::new(&job.case.records, u64::from(number) + 1),
            keys: Keys::new(&job.case.records, u64::from(number) + 1),
            partitioner: Partitioner::new(partitions * job.case.topic.topics, number),
            partition: 0,
            left: 0,
            batch_records,
        };
        let mut tally = Tally::default();
        let mut next = 0;
        loop {
            self.check(reports)?;
            let now = progress.clock.now();
            let due = progress.due(schedule.as_ref(), next, now);
            if due >= progress.produce_until() || now >= progress.give_up() {
                break;
            }
            if reports.unanswered.load(Relaxed) >= window {
                thread::park_timeout(STEP);
                continue;
            }
            if due > now {
                thread::sleep(Duration::from_nanos(due - now).min(STEP));
                continue;
            }
            let (partition, key, value) = maker.next(due);
            let topic = &job.topics[(partition / partitions) as usize];
            let record = BaseRecord::with_opaque_to(topic, due as usize)
                .partition((partition % partitions) as i32)
                .payload(value);
            let record = match &key {
                Some(key) => record.key(&key[..]),
                None => record,
            };
            reports.unanswered.fetch_add(1, Relaxed);
            match producer.send::<[u8], [u8]>(record) {
                Ok(()) => {
                    tally.sent(progress, due, now);
                    next += 1;
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    reports.unanswered.fetch_sub(1, Relaxed);
                    maker.put_back();
                    thread::park_timeout(QUEUE_FULL);
                }
                Err((error, _)) => bail!("librdkafka takes no record: {error}"),
            }
        }
        while reports.unanswered.load(Relaxed) > 0 && progress.clock.now() < progress.give_up() {
            self.check(reports)?;
            thread::park_timeout(STEP);
        }
        self.check(reports)?;
        tally.ended(progress, schedule.as_ref(), next);
        Ok(tally)
    }

    fn check(&self, reports: &Reports<'_>) -> Result<()> {
        if let Some(error) = lock(&reports.error).as_ref() {
            bail!("librdkafka: {error}");
        }
        self.progress.check()
    }

    fn consume(
        &self,
        set: usize,
        consumer: &BaseConsumer,
        partitions: &TopicPartitionList,
    ) -> Result<Tally> {
        let progress = self.progress;
        if progress.job.load.drain.is_some() {
            while progress.clock.now() < progress.begin() {
                progress.check()?;
                let left = progress.begin().saturating_sub(progress.clock.now());
                thread::sleep(Duration::from_nanos(left).min(STEP));
            }
        }
        consumer
            .assign(partitions)
            .context("librdkafka assigns no partitions")?;
        let mut tally = Tally::default();
        loop {
            progress.check()?;
            let message = consumer.poll(STEP);
            let now = progress.clock.now();
            match message {
                None => {}
                Some(Ok(message)) => {
                    let value = message.payload().unwrap_or_default();
                    let due = due_of(value).context("a record is too short to be of this run")?;
                    tally.consumed(progress, set, due, value.len(), now);
                }
                Some(Err(error)) => bail!("librdkafka consumes nothing: {error}"),
            }
            if progress.is_over(now, self.sending.load(Relaxed) == 0) {
                return Ok(tally);
            }
        }
    }
}

/// What a producer sends.
struct Maker {
    values: Values,
    keys: Keys,
    partitioner: Partitioner,
    /// Of the batch that is being filled, and how many records it still takes.
    partition: u32,
    left: usize,
    batch_records: usize,
}

impl Maker {
    /// Partition, key and value of the next record.
    fn next(&mut self, due: u64) -> (u32, Option<[u8; 8]>, &[u8]) {
        let key = self.keys.next();
        let partition = match &key {
            Some(key) => self.partitioner.of_key(key),
            None => {
                if self.left == 0 {
                    self.partition = self.partitioner.next_batch();
                    self.left = self.batch_records;
                }
                self.left -= 1;
                self.partition
            }
        };
        (partition, key, self.values.next(due))
    }

    /// The record was not taken: another one goes in its place.
    fn put_back(&mut self) {
        if !self.keys.any() {
            self.left += 1;
        }
    }
}

/// Where a producer's delivery reports go.
struct Reports<'a> {
    progress: &'a Progress<'a>,
    tally: Mutex<Tally>,
    /// Records.
    unanswered: AtomicUsize,
    sender: OnceLock<Thread>,
    is_done: AtomicBool,
    error: Mutex<Option<String>>,
    /// Produce requests so far, when the measured time began and when it ended.
    requests_at_begin: AtomicU64,
    requests_at_end: AtomicU64,
}

impl<'a> Reports<'a> {
    fn new(progress: &'a Progress<'a>) -> Reports<'a> {
        Reports {
            progress,
            tally: Mutex::default(),
            unanswered: AtomicUsize::new(0),
            sender: OnceLock::new(),
            is_done: AtomicBool::new(false),
            error: Mutex::default(),
            requests_at_begin: AtomicU64::new(0),
            requests_at_end: AtomicU64::new(0),
        }
    }

    fn fail(&self, error: String) {
        lock(&self.error).get_or_insert(error);
        self.wake();
    }

    fn wake(&self) {
        if let Some(sender) = self.sender.get() {
            sender.unpark();
        }
    }

    fn requests(&self) -> u64 {
        let end = self.requests_at_end.load(Relaxed);
        end.saturating_sub(self.requests_at_begin.load(Relaxed))
    }
}

impl ClientContext for Reports<'_> {
    /// As often as the statistics come, so the requests of the measured time are known up to two intervals.
    fn stats(&self, statistics: Statistics) {
        let of = |broker: &rdkafka::statistics::Broker| broker.req.get("Produce").copied();
        let count: i64 = statistics.brokers.values().filter_map(of).sum();
        let count = u64::try_from(count).unwrap_or(0);
        let now = self.progress.clock.now();
        if now < self.progress.begin() {
            self.requests_at_begin.store(count, Relaxed);
        }
        if now < self.progress.end() {
            self.requests_at_end.store(count, Relaxed);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.fail(format!("{error}: {reason}"));
    }
}

impl ProducerContext for Reports<'_> {
    /// When the record was due, nanoseconds.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, due: usize) {
        let now = self.progress.clock.now();
        match result {
            Ok(_) => lock(&self.tally).acknowledged(self.progress, due as u64, now),
            Err((error, _)) => self.fail(format!("a record was not acknowledged: {error}")),
        }
        self.unanswered.fetch_sub(1, Relaxed);
        self.wake();
    }
}

/// The consumers, with where they begin: at the end of what is there now.
fn consumers(job: &Job<'_>) -> Result<Vec<(usize, BaseConsumer, TopicPartitionList)>> {
    let plan = &job.case.consumers;
    let mut consumers = Vec::new();
    let mut ends = Vec::new();
    for n in 0..plan.sets * plan.per_set {
        let consumer: BaseConsumer = config::consumer(job)
            .create()
            .map_err(|error| config::explain("a consumer", &error))?;
        if ends.is_empty() {
            for topic in job.topics {
                for partition in 0..job.case.topic.partitions as i32 {
                    job.stop.check()?;
                    let (_, end) = consumer
                        .fetch_watermarks(topic, partition, PATIENCE)
                        .with_context(|| format!("the end of {topic}-{partition} is unknown"))?;
                    ends.push((topic, partition, end));
                }
            }
        }
        let mut mine = TopicPartitionList::new();
        let member = (n % plan.per_set) as usize;
        for (topic, partition, end) in ends.iter().skip(member).step_by(plan.per_set as usize) {
            mine.add_partition_offset(topic, *partition, Offset::Offset(*end))?;
        }
        consumers.push(((n / plan.per_set) as usize, consumer, mine));
    }
    Ok(consumers)
}

/// CPU time of each thread of this process, in ticks.
fn thread_times() -> Result<HashMap<String, u64>> {
    let mut times = HashMap::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let path = entry?.path();
        // It may have ended meanwhile.
        let Ok(stat) = fs::read_to_string(path.join("stat")) else {
            continue;
        };
        let fields = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        times.insert(path.to_string_lossy().into_owned(), ticks);
    }
    Ok(times)
}

/// The part of the time in which the busiest thread had work, or all CPUs of the client together had.
fn busy_part(
    before: &HashMap<String, u64>,
    after: &HashMap<String, u64>,
    seconds: f64,
    cpus: usize,
) -> Option<f64> {
    const TICKS: f64 = 100.0;
    let took = |(thread, ticks): (&String, &u64)| {
        let before = before.get(thread).copied().unwrap_or(0);
        ticks.saturating_sub(before) as f64 / TICKS
    };
    let times: Vec<f64> = after.iter().map(took).collect();
    let busiest = times.iter().copied().fold(0.0, f64::max);
    let together = match cpus {
        0 => 0.0,
        cpus => times.iter().sum::<f64>() / cpus as f64,
    };
    (seconds > 0.0).then(|| (busiest.max(together) / seconds).min(1.0))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const CLIENTS_MAX: u32 = 64;
const PATIENCE: Duration = Duration::from_secs(30);
/// Between looks at whether to go on.
const STEP: Duration = Duration::from_millis(20);
const QUEUE_FULL: Duration = Duration::from_millis(1);
/// For consumers to find their place, nanoseconds.
const START_NS: u64 = 200_000_000;
