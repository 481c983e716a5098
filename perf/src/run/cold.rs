//! Reading what is on the disk only: the topic is filled, the broker restarted, the page cache emptied of its files.

use super::session::{Outcome, Turn};
use super::stream::{self, Watch};
use crate::driver::{Driver, Job};
use crate::measure::{Measured, Moved};
use crate::stop::Stop;
use crate::target::{cold, Protocol, Share, Target};
use crate::wire;
use crate::workload::{Case, ConsumerPlan, Timing};
use anyhow::{bail, ensure, Context, Result};
use highwater::protocol::batch::Batches;
use highwater::protocol::messages::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use highwater::protocol::Str;
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::TimeValLike;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub fn measure(turn: &Turn<'_>, target: &mut dyn Target, share: &Share) -> Result<Outcome> {
    let endpoint = target.endpoint()?;
    ensure!(
        endpoint.protocol == Protocol::Kafka,
        "a cold read is measured by Kafka's protocol only"
    );
    ensure!(
        target.data_dir().is_some(),
        "its files cannot be seen from here, so the page cache cannot be emptied of them"
    );
    let topics = stream::names(turn.case.topic.topics);
    for topic in &topics {
        target.create_topic(topic, &turn.case.topic)?;
    }
    fill(turn, target, &topics)?;
    target.stop()?;
    turn.stop.check()?;
    let dir = target.data_dir().context("it was there")?;
    cold::evict(dir)?;
    target.start(share)?;
    let watch = Watch::new(target);
    let addr = target.endpoint()?.addr;
    let measured = read_all(turn, addr, &topics, &watch)?;
    let cost = watch.cost()?;
    for topic in &topics {
        target.delete_topic(topic)?;
    }
    let mut notes = Vec::new();
    if measured.client_busy.is_some_and(|busy| busy > 0.9) {
        notes.push("the client was busy nearly all the time and may be the limit".to_owned());
    }
    Ok(Outcome {
        measured: Some(measured),
        cost,
        notes,
        ..Outcome::default()
    })
}

/// Produces until there are as many bytes as the case says.
fn fill(turn: &Turn<'_>, target: &dyn Target, topics: &[String]) -> Result<()> {
    let case = Case {
        consumers: ConsumerPlan::default(),
        ..turn.case.clone()
    };
    let timing = Timing {
        warmup_s: 0.0,
        ..case.timing.clone()
    };
    let endpoint = target.endpoint()?;
    let driver = turn.world.driver(endpoint.protocol, case.producers.driver)?;
    let filled = driver.run(&Job {
        endpoint: &endpoint,
        case: &case,
        load: &stream::saturation(turn.load),
        rate: None,
        topics,
        timing: &timing,
        cpus: turn.client_cpus,
        stop: turn.stop,
        on_measure: &|_| (),
    })?;
    // A tenth less may be in flight at the end.
    let enough = timing.bytes_max / 10 * 9;
    ensure!(
        filled.produced.bytes >= enough,
        "{} of {} MB could be produced within timing.measure_s",
        filled.produced.bytes / 1_000_000,
        timing.bytes_max / 1_000_000
    );
    Ok(())
}

/// One after another each consumer of each set reads its partitions to their ends; sets and their consumers at the
/// same time.
fn read_all(
    turn: &Turn<'_>,
    addr: SocketAddr,
    topics: &[String],
    watch: &Watch,
) -> Result<Measured> {
    let plan = &turn.case.consumers;
    let consumers = plan.sets.max(1) * plan.per_set;
    let readers = (0..consumers).map(|n| {
        let partitions = turn.case.topic.partitions as i32;
        let mine = |partition: &i32| *partition as u32 % plan.per_set == n % plan.per_set;
        Reader::connect(turn, addr, topics, (0..partitions).filter(mine).collect())
    });
    let readers: Vec<Reader<'_>> = readers.collect::<Result<_>>()?;
    let mut measured = Measured::default();
    watch.see();
    let parts: Vec<Result<Measured>> = std::thread::scope(|threads| {
        let threads: Vec<_> = readers
            .into_iter()
            .enumerate()
            .map(|(n, reader)| {
                let cpu = turn.client_cpus.get(n % turn.client_cpus.len().max(1)).copied();
                threads.spawn(move || match cpu {
                    Some(cpu) => crate::target::spawn::on_cpus(&[cpu], || reader.run())?,
                    None => reader.run(),
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    });
    watch.see();
    for part in parts {
        measured.merge(&part?)?;
    }
    ensure!(measured.consumed.records > 0, "nothing could be read");
    Ok(measured)
}

struct Reader<'a> {
    socket: TcpStream,
    stop: &'a Stop,
    plan: &'a ConsumerPlan,
    record_bytes: u64,
    parts: Vec<Part<'a>>,
}

/// A partition, and how far it was read.
struct Part<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    is_done: bool,
}

impl<'a> Reader<'a> {
    fn connect(
        turn: &Turn<'a>,
        addr: SocketAddr,
        topics: &'a [String],
        partitions: Vec<i32>,
    ) -> Result<Reader<'a>> {
        let part = |topic: &'a String, partition| Part {
            topic,
            partition,
            offset: 0,
            is_done: false,
        };
        let of_topic = |topic| partitions.iter().map(move |partition| part(topic, *partition));
        Ok(Reader {
            socket: wire::connect(&addr.to_string())?,
            stop: turn.stop,
            plan: &turn.case.consumers,
            record_bytes: turn.case.records.bytes as u64,
            parts: topics.iter().flat_map(of_topic).collect(),
        })
    }

    fn run(mut self) -> Result<Measured> {
        let mut moved = Moved::default();
        let start = Instant::now();
        let busy = thread_time()?;
        while self.parts.iter().any(|part| !part.is_done) {
            self.stop.check()?;
            self.fetch(&mut moved)?;
            // The next request begins where this one was cut off.
            self.parts.rotate_left(1);
        }
        moved.seconds = start.elapsed().as_secs_f64();
        let busy = thread_time()?.saturating_sub(busy).as_secs_f64();
        Ok(Measured {
            consumed: moved,
            client_busy: Some((busy / moved.seconds.max(1e-9)).min(1.0)),
            ..Measured::default()
        })
    }

    fn fetch(&mut self, moved: &mut Moved) -> Result<()> {
        let wanted = self.parts.iter().filter(|part| !part.is_done);
        let topics = wanted.map(|part| FetchTopic {
            topic: Str::from(part.topic.to_owned()),
            partitions: vec![FetchPartition {
                partition: part.partition,
                fetch_offset: part.offset,
                partition_max_bytes: i32::try_from(self.plan.fetch_bytes).unwrap_or(i32::MAX),
                ..Default::default()
            }],
            ..Default::default()
        });
        let request = FetchRequest {
            max_wait_ms: i32::try_from(self.plan.wait_ms).unwrap_or(i32::MAX),
            min_bytes: 0,
            max_bytes: FETCH_BYTES_MAX,
            session_epoch: -1,
            topics: topics.collect(),
            ..Default::default()
        };
        let answer: FetchResponse = wire::call(&mut self.socket, wire::FETCH_VERSION, &request)?;
        let mut found = 0;
        for topic in answer.responses {
            for partition in topic.partitions {
                if partition.error_code != 0 {
                    bail!("the broker answered error {}", partition.error_code);
                }
                let is_it = |part: &&mut Part<'_>| {
                    part.partition == partition.partition_index && part.topic == &*topic.topic
                };
                let part = self.parts.iter_mut().find(is_it);
                let part = part.context("the broker answered for another partition")?;
                for batch in partition.records.iter().flat_map(|r| Batches::new(r.to_bytes())) {
                    let batch = batch?;
                    let header = batch.header();
                    found += header.record_count as u64;
                    part.offset = header.next_offset();
                }
                part.is_done = part.offset >= partition.high_watermark;
            }
        }
        moved.records += found;
        moved.bytes += found * self.record_bytes;
        moved.requests += u64::from(found > 0);
        Ok(())
    }
}

/// CPU time of this thread.
fn thread_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let both = usage.user_time() + usage.system_time();
    Ok(Duration::from_micros(u64::try_from(both.num_microseconds())?))
}

/// Kafka's default of `fetch.max.bytes`.
const FETCH_BYTES_MAX: i32 = 52_428_800;
