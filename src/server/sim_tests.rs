//! The whole broker in the simulator: shards, control executor and clients under
//! seeded orders of events and power cuts.
//!
//! Checked in each life: what was acknowledged with acks=all, and what a consumer has
//! seen, is there with its offset after any power cut; no fetch shows what lies beyond
//! its high watermark; what an idempotent producer sends again after a power cut is there
//! once; each partition is served whatever the number of shards. Each
//! run ends with a clean stop and a start that finds the marker.

mod admin_http;
mod bad_files;
mod compaction;
mod data_dirs;
mod full_disk;
mod group_members;
mod groups;
mod idempotent;
mod log_starts;
mod scrub;
mod settings;
mod successors;

use super::run::ServeError;
use super::simulated::{start_simulated, Simulated, SimulatedPlan};
use crate::client::{BrokerConnection, ClientError, ConnectionOptions};
use crate::config::{BrokerConfig, HostPort};
use crate::protocol::batch::{BatchBuilder, Batches};
use crate::protocol::messages::*;
use crate::protocol::{ErrorCode, Records, Str};
use crate::runtime::local::{OneshotReceiver, OneshotSender};
use crate::runtime::sim::{PowerCut, SimNode, World};
use crate::runtime::{Queue, Rt, SyncSite};
use crate::shard::ShardSizes;
use crate::storage::StartKind;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const TOPIC: &str = "orders";
const CHURN: &str = "churn";
const PARTITIONS: i32 = 5;
const PRODUCERS: usize = 4;
const SEEDS: u64 = 20;

#[test]
fn given_power_cuts_then_nothing_acknowledged_or_seen_is_lost() {
    let (mut cuts, mut acknowledged, mut seen, mut deleted) = (0, 0, 0, 0);
    let (mut retried, mut duplicates) = (0, 0);
    for seed in seeds() {
        let story = Story::new(seed);
        story.run();
        cuts += story.cuts.get();
        acknowledged += story.known.acknowledged.get();
        seen += story.known.seen.get();
        deleted += story.known.deleted.get();
        retried += story.known.outbox.retried.get();
        duplicates += story.known.outbox.duplicates.get();
    }
    println!("{cuts} power cuts, {acknowledged} acknowledged, {seen} seen, {deleted} deleted");
    println!("{retried} batches sent again, {duplicates} of them seen before");
    if std::env::var_os(SEED_VARIABLE).is_none() {
        assert!(cuts > SEEDS, "{cuts} power cuts");
        assert!(acknowledged > 20 * SEEDS && seen > 20 * SEEDS);
        assert!(deleted > SEEDS, "{deleted} deleted");
        assert!(retried > SEEDS && duplicates > 0);
    }
}

#[test]
fn given_a_lying_flush_then_this_test_notices() {
    let noticed = (0..SEEDS).any(|seed| {
        let run = std::panic::catch_unwind(move || {
            let story = Story::new(seed);
            story.broker.disk().disable_sync(SyncSite::SegmentFlush);
            story.run();
        });
        run.is_err()
    });
    assert!(
        noticed,
        "flushes that do nothing lose what was acknowledged"
    );
}

#[test]
fn given_the_same_seed_then_the_run_is_the_same() {
    let hash = |seed| {
        let story = Story::new(seed);
        story.run();
        story.world.trace_hash()
    };
    assert_eq!(hash(3), hash(3));
}

#[test]
fn given_a_device_that_fails_then_the_broker_stops_and_says_so_and_leaves_no_marker() {
    for seed in 0..10 {
        for topic_exists in [true, false] {
            let story = Story::new(seed);
            let running = story.boot().expect("no power cut is ordered");
            let (clients, rt) = (story.client.rt(), story.broker.rt());
            let disk = story.broker.disk();
            story.world.block_on(&rt, async {
                let connection = connect(&clients, running.addr).await.expect("it serves");
                if topic_exists {
                    assert!(create(&connection).await);
                }
                disk.fail_syncs(Some(SyncSite::SegmentFlush), EIO);
                if topic_exists {
                    let known = Known::default();
                    let ended = produce(&clients, running.addr, 0, &known).await;
                    assert!(ended.is_err(), "its connection is closed by the stop");
                    assert_eq!(known.acknowledged.get(), 0);
                } else {
                    assert!(!create(&connection).await, "it is not acknowledged");
                }
                match running.ended.await.expect("the control executor ends") {
                    Err(ServeError::Failed(reason)) => assert!(!reason.is_empty()),
                    other => panic!("not a failed device: {other:?}"),
                }
            });
            assert!(disk.faults_fired() > 0);
            disk.clear_faults();
            story.broker.kill();
            story.broker.restart();
            let running = story.boot().expect("no power cut is ordered");
            assert_eq!(running.start, StartKind::Unclean);
        }
    }
}

/// The number of an I/O error.
const EIO: i32 = 5;
/// Repeats one seed.
const SEED_VARIABLE: &str = "HIGHWATER_SIM_SEED";

fn seeds() -> std::ops::Range<u64> {
    match std::env::var(SEED_VARIABLE).map(|seed| seed.parse::<u64>()) {
        Ok(Ok(seed)) => seed..seed + 1,
        Ok(Err(error)) => panic!("{SEED_VARIABLE}: {error}"),
        Err(_) => 0..SEEDS,
    }
}

/// What the clients know to be there.
#[derive(Default)]
struct Known {
    /// By partition and offset.
    records: RefCell<BTreeMap<(i32, i64), String>>,
    acknowledged: Cell<u64>,
    seen: Cell<u64>,
    next_value: Cell<u64>,
    /// Topics that were deleted under requests that waited for them.
    deleted: Cell<u64>,
    outbox: idempotent::Outbox,
}

impl Known {
    fn learn(&self, partition: i32, offset: i64, value: String) {
        let mut records = self.records.borrow_mut();
        let before = records.entry((partition, offset)).or_insert(value.clone());
        assert_eq!(*before, value, "partition {partition} offset {offset}");
    }
}

struct Story {
    world: World,
    broker: SimNode,
    client: SimNode,
    known: Rc<Known>,
    cuts: Cell<u64>,
    /// Where its admin HTTP listens.
    admin: Cell<Option<SocketAddr>>,
    /// `log.dir.min.free.bytes`.
    min_free: Cell<i64>,
}

/// A broker that serves.
struct Running {
    addr: SocketAddr,
    start: StartKind,
    stop: OneshotSender<()>,
    ended: OneshotReceiver<Result<(), ServeError>>,
}

impl Story {
    fn new(seed: u64) -> Story {
        println!("seed {seed}");
        let world = World::new(seed);
        let (broker, client) = (world.node("broker"), world.node("client"));
        Story {
            world,
            broker,
            client,
            known: Rc::default(),
            cuts: Cell::new(0),
            admin: Cell::new(None),
            min_free: Cell::new(-1),
        }
    }

    fn run(&self) {
        for _ in 0..4 {
            if self.world.random_below(4) > 0 {
                let after = 1 + self.world.random_below(600);
                self.broker
                    .disk()
                    .cut_power_after_ops(after, PowerCut::Mixed);
            }
            if let Some(running) = self.boot() {
                let clients = self.client.rt();
                self.world
                    .block_on_until_crash(&self.broker.rt(), self.life(clients, running.addr));
            }
            if self.broker.is_up() {
                self.broker.crash();
            }
            self.cuts.set(self.cuts.get() + 1);
            self.broker.restart();
        }
        let running = self.boot().expect("no power cut is ordered");
        let rt = self.broker.rt();
        let clients = self.client.rt();
        self.world.block_on(&rt, async {
            self.check(&clients, running.addr).await;
            let told = running.stop.send(());
            assert!(told.is_ok(), "it waits for the stop");
            let ended = running.ended.await.expect("the control executor ends");
            ended.expect("a clean stop");
        });
        // The process ends, and its lock with it.
        self.broker.kill();
        let rt = self.broker.restart();
        let running = self.boot().expect("no power cut is ordered");
        assert_eq!(running.start, StartKind::Clean);
        self.world.block_on(&rt, self.check(&clients, running.addr));
    }

    /// Starts the broker with some number of shards. `None`: the power was cut.
    fn boot(&self) -> Option<Running> {
        let shards = 1 + self.world.random_below(4) as usize;
        let addr = SocketAddr::new(self.broker.ip(), 9092);
        let config = BrokerConfig {
            listener: HostPort {
                host: self.broker.ip().to_string(),
                port: 9092,
            },
            data_dirs: vec!["/data".into()],
            log_dir_min_free_bytes: self.min_free.get(),
            checkpoint_bytes: 2_000,
            log_segment_bytes: 4_000,
            log_flush_offset_checkpoint_interval_ms: 500,
            replica_high_watermark_checkpoint_interval_ms: 300,
            log_cleaner_backoff_ms: 100,
            offsets_topic_num_partitions: 5,
            offsets_topic_segment_bytes: 16 << 10,
            ..BrokerConfig::default()
        };
        let plan = SimulatedPlan {
            config,
            shards,
            sizes: SIZES,
            // Small windows, so that credits run out.
            mesh_window: 4,
            admin: self.admin.get(),
        };
        let broker = self.broker.clone();
        let started = async move {
            let started = start_simulated(broker, plan).await.expect("it starts");
            let Simulated { ready, stop, ended } = started;
            assert_eq!(ready.loaded.offline, [], "every partition is online");
            Running {
                addr,
                start: ready.start,
                stop,
                ended,
            }
        };
        let rt = self.broker.rt_shard(shards);
        self.world.block_on_until_crash(&rt, started)
    }

    /// Checks what is known, then produces and consumes for a while.
    async fn life(&self, rt: Rt, addr: SocketAddr) {
        let connection = connect(&rt, addr).await;
        let Ok(connection) = connection else { return };
        if !create(&connection).await {
            return;
        }
        self.check(&rt, addr).await;
        for producer in 0..PRODUCERS {
            let (known, rt_) = (self.known.clone(), rt.clone());
            rt.spawn(Queue::Latency, async move {
                // An error is the power cut: what was not answered may be lost.
                let _ = produce(&rt_, addr, producer as i32, &known).await;
            });
        }
        let life = &self.known.outbox.life;
        life.set(life.get() + 1);
        let (known, rt_) = (self.known.clone(), rt.clone());
        rt.spawn(Queue::Latency, async move {
            // An error is the power cut: the next life gets what was not answered.
            let _ = idempotent::produce(&rt_, addr, &known).await;
        });
        let (known, rt_) = (self.known.clone(), rt.clone());
        rt.spawn(Queue::Latency, async move {
            let _ = consume(&rt_, addr, &known).await;
        });
        for _ in 0..2 {
            let (known, rt_) = (self.known.clone(), rt.clone());
            rt.spawn(Queue::Latency, async move {
                let _ = churn(&rt_, addr, &known).await;
            });
        }
        let life = 300 + self.world.random_below(2_000);
        rt.sleep(Duration::from_millis(life)).await;
    }

    /// Reads everything and compares it with what is known.
    async fn check(&self, rt: &Rt, addr: SocketAddr) {
        let Ok(connection) = connect(rt, addr).await else {
            return;
        };
        let known = self.known.records.borrow().clone();
        for partition in 0..PARTITIONS {
            let mut found = BTreeMap::new();
            let mut next = 0;
            loop {
                let Ok(answer) = fetch(&connection, None, &[(partition, next)], 0).await else {
                    // The power was cut meanwhile.
                    return;
                };
                let Some((answer, records)) = answer.into_iter().next() else {
                    panic!("one partition was asked for");
                };
                if answer.error_code == ErrorCode::UnknownTopicOrPartition.code() {
                    break;
                }
                assert_eq!(answer.error_code, 0, "partition {partition} at {next}");
                if records.is_empty() {
                    assert_eq!(next, answer.high_watermark);
                    break;
                }
                for (offset, value) in records {
                    assert!(offset >= next);
                    found.insert((partition, offset), value);
                    next = offset + 1;
                }
            }
            idempotent::check(partition, found.values());
            for (place, value) in known.range((partition, 0)..(partition + 1, 0)) {
                assert_eq!(found.get(place), Some(value), "{place:?} was known");
            }
        }
    }
}

async fn connect(rt: &Rt, addr: SocketAddr) -> Result<BrokerConnection, ClientError> {
    let options = ConnectionOptions {
        request_timeout: Duration::from_secs(600),
        ..ConnectionOptions::default()
    };
    BrokerConnection::connect(rt, addr, options).await
}

/// False: the power was cut.
async fn create(connection: &BrokerConnection) -> bool {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: Str::from(TOPIC),
            num_partitions: PARTITIONS,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let Ok(response) = connection.call(&request).await else {
        return false;
    };
    let code = response.topics[0].error_code;
    let exists = ErrorCode::TopicAlreadyExists.code();
    // A failing disk's last words, or the topic.
    code == 0 || code == exists
}

/// Produces one batch after the other, some of them pipelined, until an error.
async fn produce(
    rt: &Rt,
    addr: SocketAddr,
    producer: i32,
    known: &Known,
) -> Result<(), ClientError> {
    let connection = connect(rt, addr).await?;
    loop {
        let mut waits = Vec::new();
        for _ in 0..1 + rt.random_u64() % 3 {
            let partition = (rt.random_u64() % PARTITIONS as u64) as i32;
            let value = format!("{producer}-{}", known.next_value.get());
            known.next_value.set(known.next_value.get() + 1);
            let mut batch = BatchBuilder::new();
            batch.push(rt.wall_clock_ms(), None, Some(value.as_bytes()));
            let acks = if rt.random_u64().is_multiple_of(4) {
                1
            } else {
                -1
            };
            let request = ProduceRequest {
                acks,
                timeout_ms: 60_000,
                topic_data: vec![TopicProduceData {
                    name: Str::from(TOPIC),
                    partition_data: vec![PartitionProduceData {
                        index: partition,
                        records: Some(Records::from(batch.build())),
                    }],
                    ..Default::default()
                }],
                ..Default::default()
            };
            let wait = connection.start_as(&request, 12).await?;
            waits.push((partition, acks, value, wait));
        }
        for (partition, acks, value, wait) in waits {
            let answer = wait.await?;
            let answer = &answer.responses[0].partition_responses[0];
            if answer.error_code == 0 && acks == -1 {
                known.learn(partition, answer.base_offset, value);
                known.acknowledged.set(known.acknowledged.get() + 1);
            }
        }
        rt.sleep(Duration::from_micros(rt.random_u64() % 5_000))
            .await;
    }
}

/// Follows all partitions with the long polls of a fetch session until an error.
async fn consume(rt: &Rt, addr: SocketAddr, known: &Known) -> Result<(), ClientError> {
    let connection = connect(rt, addr).await?;
    let mut next: Vec<(i32, i64)> = (0..PARTITIONS).map(|p| (p, 0)).collect();
    let mut bounds = vec![0; PARTITIONS as usize];
    let mut session = Session::default();
    loop {
        let answers = fetch(&connection, Some(&mut session), &next, 500).await?;
        for (answer, records) in answers {
            let partition = answer.partition_index;
            if answer.error_code != 0 {
                continue;
            }
            let bound = &mut bounds[partition as usize];
            assert!(answer.high_watermark >= *bound, "it never falls");
            *bound = answer.high_watermark;
            for (offset, value) in records {
                assert!(offset < answer.high_watermark, "beyond the high watermark");
                next[partition as usize].1 = offset + 1;
                known.learn(partition, offset, value);
                known.seen.set(known.seen.get() + 1);
            }
        }
    }
}

/// Two of these create and delete one topic under each other, on purpose: every request
/// is answered, those that wait for a partition that goes as well, and no later topic of
/// the name inherits anything (a start would find its partitions offline).
async fn churn(rt: &Rt, addr: SocketAddr, known: &Known) -> Result<(), ClientError> {
    let connection = connect(rt, addr).await?;
    loop {
        let metadata = MetadataRequest {
            topics: Some(vec![MetadataRequestTopic {
                name: Some(Str::from(CHURN)),
                ..Default::default()
            }]),
            allow_auto_topic_creation: true,
            ..Default::default()
        };
        let answer = connection.call(&metadata).await?;
        let code = answer.topics[0].error_code;
        let gone = ErrorCode::UnknownTopicOrPartition.code();
        assert!(code == 0 || code == gone || code == STORAGE, "{code}");
        let value = Bytes::from(vec![b'x'; 200]);
        let mut produced = Vec::new();
        for _ in 0..1 + rt.random_u64() % 4 {
            let mut batch = BatchBuilder::new();
            batch.push(rt.wall_clock_ms(), None, Some(&value));
            let request = ProduceRequest {
                acks: -1,
                timeout_ms: 60_000,
                topic_data: vec![TopicProduceData {
                    name: Str::from(CHURN),
                    partition_data: vec![PartitionProduceData {
                        index: 0,
                        records: Some(Records::from(batch.build())),
                    }],
                    ..Default::default()
                }],
                ..Default::default()
            };
            produced.push(connection.start_as(&request, 12).await?);
        }
        let poll = FetchRequest {
            max_wait_ms: 500_000,
            min_bytes: 1 << 20,
            max_bytes: 1 << 20,
            session_epoch: -1,
            topics: vec![FetchTopic {
                topic: Str::from(CHURN),
                partitions: vec![FetchPartition {
                    partition: 0,
                    partition_max_bytes: 1 << 20,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let polled = connection.start_as(&poll, 12).await?;
        rt.sleep(Duration::from_micros(rt.random_u64() % 20_000))
            .await;
        let other = connect(rt, addr).await?;
        let delete = DeleteTopicsRequest {
            topic_names: vec![Str::from(CHURN)],
            timeout_ms: 30_000,
            ..Default::default()
        };
        let deleted = other.start_as(&delete, 5).await?.await?;
        let code = deleted.responses[0].error_code;
        assert!(code == 0 || code == gone || code == STORAGE, "{code}");
        let before = rt.now();
        for wait in produced {
            let answer = wait.await?;
            let code = answer.responses[0].partition_responses[0].error_code;
            assert!(code == 0 || code == gone || code == STORAGE, "{code}");
        }
        let answer = polled.await?;
        let code = answer.responses[0].partitions[0].error_code;
        if code == gone {
            known.deleted.set(known.deleted.get() + 1);
            let waited = rt.now().since(before);
            assert!(waited < Duration::from_secs(100), "it waited {waited:?}");
        }
    }
}

type Found = (PartitionData, Vec<(i64, String)>);

/// A client's side of a fetch session.
#[derive(Default)]
struct Session {
    id: i32,
    epoch: i32,
    /// What the broker was told: partitions and offsets.
    told: Vec<(i32, i64)>,
}

impl Session {
    /// What the broker has to be told.
    fn changes(&mut self, from: &[(i32, i64)]) -> Vec<(i32, i64)> {
        let changed = |place: &&(i32, i64)| !self.told.contains(place);
        let changes = from.iter().filter(changed).copied().collect();
        self.told = from.to_vec();
        changes
    }

    fn answered(&mut self, id: i32) {
        assert!(id != 0 && (self.id == 0 || self.id == id), "one session");
        self.id = id;
        self.epoch += 1;
    }
}

async fn fetch(
    connection: &BrokerConnection,
    mut session: Option<&mut Session>,
    from: &[(i32, i64)],
    max_wait_ms: i32,
) -> Result<Vec<Found>, ClientError> {
    let (id, epoch, named) = match &mut session {
        Some(session) => (session.id, session.epoch, session.changes(from)),
        None => (0, -1, from.to_vec()),
    };
    let request = FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        max_bytes: 2_000,
        session_id: id,
        session_epoch: epoch,
        topics: vec![FetchTopic {
            topic: Str::from(TOPIC),
            partitions: named
                .iter()
                .map(|(partition, offset)| FetchPartition {
                    partition: *partition,
                    fetch_offset: *offset,
                    partition_max_bytes: 1_000,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = connection.start_as(&request, 12).await?.await?;
    assert_eq!(response.error_code, 0);
    if let Some(session) = session {
        session.answered(response.session_id);
    }
    let topics = response.responses.into_iter();
    let partitions = topics.flat_map(|topic| topic.partitions);
    let found = |answer: PartitionData| {
        let bytes: Bytes = answer
            .records
            .as_ref()
            .map(|r| r.to_bytes())
            .unwrap_or_default();
        let from = from
            .iter()
            .find(|(partition, _)| *partition == answer.partition_index)
            .map_or(0, |(_, offset)| *offset);
        let mut records = Vec::new();
        for batch in Batches::new(bytes) {
            let batch = batch.expect("whole batches are returned");
            batch.validate_crc().expect("the CRC is right");
            let base = batch.header().base_offset;
            for record in batch.records().expect("no compression") {
                let record = record.expect("a whole record");
                let offset = base + i64::from(record.offset_delta);
                if offset >= from {
                    let value = String::from_utf8_lossy(record.value.unwrap_or_default());
                    records.push((offset, value.into_owned()));
                }
            }
        }
        (answer, records)
    };
    Ok(partitions.map(found).collect())
}

/// The answer of a disk whose power is being cut.
const STORAGE: i16 = ErrorCode::KafkaStorageError.code();

/// Little of everything, so that limits are met.
const SIZES: ShardSizes = ShardSizes {
    request_bytes: 1 << 20,
    response_bytes: 4_000,
    frame_bytes_max: 1 << 17,
    write_bytes: 64 << 10,
    cache_bytes: 16 << 10,
    cold_read_bytes: 64 << 10,
    open_segments_max: 4,
};
