//! What the drill does with its broker: topics, producers and a consumer, and the reading back. All of it is told to the
//! ledgers: what is sent before it is sent, an acknowledgement when it is here.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Duration;

use super::ledger::{Entry, Policy, ReadBack};
use super::ledgers::Ledgers;
use crate::cli::consume::fetch::{FetchOptions, FetchedBatch, Fetcher};
use crate::cli::{remote, CliError};
use crate::client::{ClientError, Cluster, PartitionKey, EARLIEST, LATEST};
use crate::protocol::batch::{BatchBuilder, RecordIter};
use crate::protocol::messages::*;
use crate::protocol::{ErrorCode, Records, Str};
use crate::runtime::local::{channel, Receiver};
use crate::runtime::sim::SimRng;
use crate::runtime::{Mono, Queue};

/// A topic that was made for the drill.
#[derive(Debug, Clone)]
pub(super) struct Topic {
    pub name: Str,
    pub partitions: i32,
    pub policy: Policy,
    pub promised: bool,
}

/// How topics are made.
#[derive(Debug, Clone)]
pub(super) struct TopicPlan {
    /// What their names begin with.
    pub prefix: String,
    /// Each acknowledgement is judged as a promise that holds.
    pub all_promised: bool,
    /// Those whose acknowledgements are promises wait for the flush, whatever the broker does by default.
    pub sets_flush: bool,
}

/// What topics there are. The first must be there; one that the broker refuses is left out and told.
struct Kind {
    /// Behind the prefix.
    name: &'static str,
    partitions: i32,
    policy: Policy,
    promised: bool,
    settings: &'static [(&'static str, &'static str)],
}

const KINDS: &[Kind] = &[
    Kind {
        name: "-kept",
        partitions: 3,
        policy: Policy::Keep,
        promised: true,
        settings: &[("segment.bytes", "1048576"), ("retention.ms", "-1")],
    },
    Kind {
        name: "-retention",
        partitions: 2,
        policy: Policy::Delete,
        promised: true,
        settings: &[
            ("segment.bytes", "262144"),
            ("retention.bytes", "1048576"),
            ("file.delete.delay.ms", "1000"),
        ],
    },
    Kind {
        name: "-compacted",
        partitions: 1,
        policy: Policy::Compact,
        promised: true,
        settings: &[
            ("cleanup.policy", "compact"),
            ("segment.bytes", "262144"),
            ("min.cleanable.dirty.ratio", "0.01"),
        ],
    },
    Kind {
        name: UNFLUSHED,
        partitions: 1,
        policy: Policy::Keep,
        promised: false,
        settings: &[
            ("flush.on.ack", "none"),
            ("segment.bytes", "1048576"),
            ("retention.ms", "-1"),
        ],
    },
];
const UNFLUSHED: &str = "-unflushed";

/// The records of a batch that were asked for.
fn entries_of(batch: &FetchedBatch) -> Vec<(i64, Entry)> {
    let records = RecordIter::new(&batch.records, batch.header.record_count);
    // The fetcher has looked at every record.
    let records = records.flatten().map(|record| {
        let offset = batch.header.base_offset + i64::from(record.offset_delta);
        (offset, Entry::of(record.key, record.value))
    });
    records
        .filter(|(offset, _)| (batch.from..batch.until).contains(offset))
        .collect()
}

/// A batch on its way.
struct Batch {
    key: PartitionKey,
    entries: Vec<Entry>,
    bytes: bytes::Bytes,
}

/// A producer, which outlives the brokers.
pub(super) struct Producer {
    number: u64,
    rng: SimRng,
    counter: u64,
    is_idempotent: bool,
    identity: Option<(i64, i16)>,
    sequences: HashMap<PartitionKey, i32>,
    /// Sent by an idempotent producer, and of unknown fate.
    pending: Option<Batch>,
}

/// How a load is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadPlan {
    /// Bytes and records that are sent in a millisecond, so that a drill stays within its bounds.
    pub pace: (f64, f64),
    /// There are times in which nothing is flushed.
    pub has_calm: bool,
    /// The end of one producer stops all.
    pub stops_together: bool,
}

/// What the tasks of one round share.
pub(super) struct Load {
    pub ledgers: Rc<RefCell<Ledgers>>,
    pub stop: Cell<bool>,
    cluster: Cluster,
    keys: Vec<PartitionKey>,
    /// Those whose acknowledgements wait for no flush.
    unflushed: Vec<PartitionKey>,
    begun: Mono,
    plan: LoadPlan,
    /// What the broker answered last that was no acknowledgement.
    pub last_refusal: RefCell<Option<String>>,
    /// Each producer's share of it.
    pace: (f64, f64),
}

impl Load {
    /// Where a producer may send at the moment.
    fn targets(&self) -> &[PartitionKey] {
        // A flush of one partition flushes the whole disk. So that a cut finds something that is not flushed, there are
        // times without any.
        let cycle = BUSY + CALM;
        let since = self.cluster.rt().now().since(self.begun);
        let is_calm = since.as_millis() % cycle.as_millis() >= BUSY.as_millis();
        match self.plan.has_calm && is_calm && !self.unflushed.is_empty() {
            true => &self.unflushed,
            false => &self.keys,
        }
    }
}

impl Producer {
    pub fn new(number: u64, seed: u64) -> Producer {
        Producer {
            number,
            rng: SimRng::new(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9))),
            counter: 0,
            is_idempotent: number.is_multiple_of(2),
            identity: None,
            sequences: HashMap::new(),
            pending: None,
        }
    }

    /// Produces until it is told to stop, or the broker is gone.
    async fn run(&mut self, load: &Load) -> Result<(), ClientError> {
        let rt = load.cluster.rt().clone();
        let (begun, mut bytes, mut records) = (rt.now(), 0.0, 0.0);
        while !load.stop.get() {
            let batch = match self.pending.take() {
                Some(batch) => batch,
                None => self.next_batch(load).await?,
            };
            bytes += batch.bytes.len() as f64;
            records += batch.entries.len() as f64;
            let ledger = load.ledgers.borrow().file.clone();
            if ledger.secure(&rt).await.is_err() {
                // The file remembers why, and nothing more may be sent.
                load.stop.set(true);
                return Ok(());
            }
            if !self.send(load, batch).await? {
                rt.sleep(RETRY_PAUSE).await;
            }
            let due_ms = (bytes / load.pace.0).max(records / load.pace.1);
            let due = begun + Duration::from_millis(due_ms as u64);
            while rt.now() < due && !load.stop.get() {
                rt.sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(())
    }

    async fn next_batch(&mut self, load: &Load) -> Result<Batch, ClientError> {
        let targets = load.targets();
        let key = targets[self.rng.below(targets.len() as u64) as usize].clone();
        // What may be lost would leave gaps in the sequences.
        let is_idempotent = self.is_idempotent && !key.0.ends_with(UNFLUSHED);
        if is_idempotent && self.identity.is_none() {
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: 60_000,
                ..Default::default()
            };
            let answer = load.cluster.any().await?.call(&request).await?;
            ClientError::check(answer.error_code, None, || "get a producer id".to_owned())?;
            self.identity = Some((answer.producer_id, answer.producer_epoch));
        }
        let count = match self.rng.one_in(2) {
            true => 1,
            false => self.rng.within(2..40),
        };
        let now_ms = load.cluster.rt().wall_clock_ms();
        let (mut builder, mut entries) = (BatchBuilder::new(), Vec::new());
        for _ in 0..count {
            self.counter += 1;
            let record_key = format!("k{}", self.rng.below(KEYS));
            let mut value = format!("drill {} {} ", self.number, self.counter).into_bytes();
            for _ in 0..self.rng.within(1..VALUE_WORDS_MAX) {
                value.extend(self.rng.next_u64().to_be_bytes());
            }
            builder.push(now_ms, Some(record_key.as_bytes()), Some(&value));
            entries.push(Entry::of(Some(record_key.as_bytes()), Some(&value)));
        }
        if let Some((id, epoch)) = self.identity.filter(|_| is_idempotent) {
            let sequence = self.sequences.entry(key.clone()).or_insert(0);
            builder = builder.producer(id, epoch, *sequence);
            *sequence += count as i32;
        }
        let batch = Batch {
            key,
            entries,
            bytes: builder.build(),
        };
        let mut ledgers = load.ledgers.borrow_mut();
        ledgers.sending(&batch.key, &batch.entries);
        Ok(batch)
    }

    /// Sends a batch. False if it is to be sent again: an idempotent producer's whose fate is not known.
    async fn send(&mut self, load: &Load, batch: Batch) -> Result<bool, ClientError> {
        let (topic, partition) = batch.key.clone();
        let doing = || format!("produce to {topic} partition {partition}");
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: topic.clone(),
                topic_id: load.cluster.topic_id(&topic),
                partition_data: vec![PartitionProduceData {
                    index: partition,
                    records: Some(Records::from(batch.bytes.clone())),
                }],
            }],
            ..Default::default()
        };
        let answered = async {
            let leader = load.cluster.leader(&batch.key).unwrap_or(-1);
            let answer = load.cluster.node(leader).await?.call(&request).await?;
            let mut found = answer.responses.into_iter();
            let found = found
                .next()
                .and_then(|topic| topic.partition_responses.into_iter().next());
            let (code, base) = found.map_or((ErrorCode::UnknownServerError.code(), -1), |found| {
                (found.error_code, found.base_offset)
            });
            ClientError::check(code, None, doing)?;
            Ok(base)
        };
        let answered: Result<i64, ClientError> = answered.await;
        let is_sequenced = self.is_idempotent && !topic.ends_with(UNFLUSHED);
        match answered {
            Ok(base) if base >= 0 => {
                let mut ledgers = load.ledgers.borrow_mut();
                ledgers.acknowledged(&batch.key, base, &batch.entries);
                Ok(true)
            }
            // Taken before, and so long ago that its offset is not known any more.
            Ok(_) => Ok(true),
            Err(error) if error.code().is_some_and(|code| !code.is_retriable()) => {
                if is_sequenced {
                    load.ledgers.borrow_mut().refused(error.to_string());
                }
                Err(error)
            }
            Err(error) => {
                if is_sequenced {
                    self.pending = Some(batch);
                }
                match error.code() {
                    Some(_) => {
                        *load.last_refusal.borrow_mut() = Some(error.to_string());
                        Ok(false)
                    }
                    None => Err(error),
                }
            }
        }
    }
}

/// Makes the topics; those that the broker took, and why it refused others.
pub(super) async fn create_topics(
    cluster: &Cluster,
    plan: &TopicPlan,
) -> Result<(Vec<Topic>, Vec<String>), ClientError> {
    let (mut made, mut refused) = (Vec::new(), Vec::new());
    for kind in KINDS {
        let name = Str::from(format!("{}{}", plan.prefix, kind.name));
        let flush = (plan.sets_flush && kind.promised).then_some(("flush.on.ack", "all"));
        let settings = kind.settings.iter().copied().chain(flush);
        let configs = settings.map(|(name, value)| CreatableTopicConfig {
            name: Str::from(name),
            value: Some(Str::from(value)),
        });
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: name.clone(),
                num_partitions: kind.partitions,
                replication_factor: 1,
                assignments: Vec::new(),
                configs: configs.collect(),
            }],
            ..Default::default()
        };
        let answer = cluster.any().await?.call(&request).await?;
        let Some(result) = answer.topics.into_iter().next() else {
            continue;
        };
        let doing = || format!("create topic {name}");
        let checked = ClientError::check(result.error_code, result.error_message.as_deref(), doing);
        match checked {
            Ok(()) => made.push(Topic {
                name,
                partitions: kind.partitions,
                policy: kind.policy,
                promised: kind.promised || plan.all_promised,
            }),
            Err(error) if made.is_empty() => return Err(error),
            Err(error) => refused.push(error.to_string()),
        }
    }
    Ok((made, refused))
}

/// A load that runs.
pub(super) struct Running {
    pub load: Rc<Load>,
    ended: Receiver<Ended>,
    tasks: usize,
}

enum Ended {
    Producer(Box<Producer>, Result<(), ClientError>),
    Consumer,
}

impl Running {
    /// Starts the producers, and a consumer that begins at the ends.
    pub async fn start(
        cluster: &Cluster,
        ledgers: &Rc<RefCell<Ledgers>>,
        producers: Vec<Producer>,
        plan: LoadPlan,
    ) -> Result<Running, CliError> {
        let keys: Vec<PartitionKey> = ledgers.borrow().partitions.keys().cloned().collect();
        let ends = offsets(cluster, &keys, LATEST).await?;
        let share = producers.len().max(1) as f64;
        let load = Rc::new(Load {
            ledgers: ledgers.clone(),
            stop: Cell::new(false),
            cluster: cluster.clone(),
            unflushed: keys
                .iter()
                .filter(|key| key.0.ends_with(UNFLUSHED))
                .cloned()
                .collect(),
            keys,
            begun: cluster.rt().now(),
            plan,
            last_refusal: RefCell::default(),
            pace: (plan.pace.0 / share, plan.pace.1 / share),
        });
        let tasks = producers.len() + 1;
        let (report, ended) = channel(tasks);
        for mut producer in producers {
            let (load, report) = (load.clone(), report.clone());
            cluster.rt().spawn(Queue::Latency, async move {
                let result = producer.run(&load).await;
                if load.plan.stops_together {
                    load.stop.set(true);
                }
                // Nobody waits for it once the drill ends.
                let _ = report
                    .send(Ended::Producer(Box::new(producer), result))
                    .await;
            });
        }
        let (of_consumer, rt) = (load.clone(), cluster.rt().clone());
        rt.spawn(Queue::Latency, async move {
            consume(&of_consumer, ends).await;
            let _ = report.send(Ended::Consumer).await;
        });
        Ok(Running { load, ended, tasks })
    }

    /// Waits until all have ended, as they do when they are told to or the broker is gone; the producers, in their
    /// order, and why the first of them ended.
    pub async fn end(mut self) -> (Vec<Producer>, Option<ClientError>) {
        self.load.stop.set(true);
        let (mut producers, mut why) = (Vec::new(), None);
        for _ in 0..self.tasks {
            match self.ended.recv().await {
                Some(Ended::Producer(producer, result)) => {
                    producers.push(*producer);
                    why = why.or(result.err());
                }
                Some(Ended::Consumer) => {}
                None => break,
            }
        }
        producers.sort_by_key(|producer| producer.number);
        (producers, why)
    }
}

/// Reads what comes, until it is told to stop or the broker is gone.
async fn consume(load: &Load, ends: BTreeMap<PartitionKey, i64>) {
    let mut fetcher = Fetcher::new(load.cluster.clone(), NO_PATIENCE);
    fetcher.assign(ends.into_iter().map(|(key, end)| (key, end, i64::MAX)));
    while !load.stop.get() {
        fetcher.start();
        let answer = fetcher.answer().await;
        let Ok(batches) = fetcher.take(answer).await else {
            return;
        };
        let mut ledgers = load.ledgers.borrow_mut();
        for batch in &batches {
            ledgers.seen(&batch.key, &entries_of(batch));
        }
    }
}

/// Reads everything back.
pub(super) async fn read_back(
    cluster: &Cluster,
    keys: &[PartitionKey],
) -> Result<BTreeMap<PartitionKey, ReadBack>, CliError> {
    let starts = offsets(cluster, keys, EARLIEST).await?;
    let ends = offsets(cluster, keys, LATEST).await?;
    let mut read: BTreeMap<PartitionKey, ReadBack> = BTreeMap::new();
    let mut fetcher = Fetcher::new(cluster.clone(), NO_PATIENCE);
    let places = keys.iter().map(|key| (key.clone(), starts[key], ends[key]));
    fetcher.assign(places);
    while !fetcher.is_done() {
        fetcher.start();
        let answer = fetcher.answer().await;
        for batch in fetcher.take(answer).await? {
            let part = read.entry(batch.key.clone()).or_default();
            part.records.extend(entries_of(&batch));
        }
    }
    let starts = offsets(cluster, keys, EARLIEST).await?;
    for key in keys {
        let part = read.entry(key.clone()).or_default();
        (part.log_start, part.end) = (starts[key], ends[key]);
    }
    Ok(read)
}

/// An offset of each; a leader that is still loading is waited for.
async fn offsets(
    cluster: &Cluster,
    keys: &[PartitionKey],
    mark: i64,
) -> Result<BTreeMap<PartitionKey, i64>, CliError> {
    let queries: Vec<_> = keys.iter().map(|key| (key.clone(), mark)).collect();
    remote::offsets(cluster, &queries, false, OFFSETS_PATIENCE).await
}

const NO_PATIENCE: FetchOptions = FetchOptions {
    read_committed: false,
    patience: Duration::ZERO,
};
const OFFSETS_PATIENCE: Duration = Duration::from_secs(30);
/// How long records go everywhere, and then to topics without flushes only. A file system commits what it has changed
/// after some 5 s, flush or none.
const BUSY: Duration = Duration::from_secs(1);
const CALM: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Keys of records; few, so that compaction has something to do.
const KEYS: u64 = 200;
/// Eight bytes each.
const VALUE_WORDS_MAX: u64 = 100;
