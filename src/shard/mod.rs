//! What one core owns: its partitions, its copy of the routing table, its memory
//! budgets, and its seat in the mesh.
//!
//! A [`Shard`] is a cheap handle within one executor. Work for a partition of this
//! shard is a function call; work for another's is one message that carries the
//! refcounted bytes, and one reply. The handler of incoming messages never waits:
//! it does what is quick (a produce is validated and queued) and gives the rest to
//! tasks.
//!
//! What it is not: it knows nothing of frames and API versions (`server/`), nor of
//! how a partition keeps its records (`partition/`).

mod background;
mod checkpoints;
mod compaction;
mod control;
mod directories;
mod epochs;
mod fetch;
#[cfg(test)]
mod fetch_tests;
mod groups;
mod handler;
mod incoming;
mod log_sizes;
mod memory;
mod messages;
mod metrics;
mod offsets;
mod owners;
mod partitions;
mod place;
mod produce;
#[cfg(test)]
mod produce_tests;
mod producers;
mod retention;
mod scrape;
mod scrub;
mod space;
mod watch;

pub use compaction::CompactionFigures;
pub use control::{Control, ControlError, ControlOptions};
pub use fetch::{FetchPlan, Fetched, Hurry};
pub use handler::ConnectionHost;
pub use incoming::{Counted, Incoming};
pub use log_sizes::LogSize;
pub use memory::{Memory, SMALL_FRAME_BYTES};
pub use messages::{
    CheckpointLine, CloseSummary, DeleteRecordsPart, EpochEndPart, FetchPart, ListOffsetsPart,
    LoadSummary, PartitionKey, Pong, ProduceFault, ProducePart, Produced, QuorumState, Reply,
    Request,
};
pub use metrics::{
    CommittedFigures, GroupFigures, MetricsOrder, PartitionFigures, PartitionStates, ShardMetrics,
    TopicFigures,
};
pub use scrape::LoadStatus;
pub use space::SpaceFigures;

use crate::config::BrokerConfig;
use crate::controller::{
    ConfigsAlteration, ControllerFault, CreatedTopic, MorePartitions, NewTopic, TopicSelector,
};
use crate::metadata::{owner_shard, Image};
use crate::observe::Counters;
use crate::protocol::ErrorCode;
use crate::runtime::local::{Budget, Event};
use crate::runtime::{Mesh, MeshSeat, Rt};
use crate::storage::{Storage, StorageLimits};
use compaction::Compaction;
use groups::Groups;
use partitions::Partitions;
use producers::ProducerIds;
use space::Spaces;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;
use watch::Watches;

/// The seat of one executor: shards have the places `0..shards`, the control
/// executor the last.
pub type Seat = MeshSeat<Request, Reply>;

/// One shard. Cheap to clone, `!Send`.
#[derive(Clone)]
pub struct Shard(Rc<Inner>);

struct Inner {
    rt: Rt,
    /// What the broker started with.
    started: Arc<BrokerConfig>,
    /// The same under what was changed while it runs.
    config: RefCell<Arc<BrokerConfig>>,
    mesh: RefCell<Option<Mesh<Request, Reply>>>,
    me: usize,
    shards: usize,
    image: RefCell<Option<Image>>,
    partitions: Partitions,
    watches: Watches,
    producer_ids: ProducerIds,
    groups: Groups,
    compaction: Compaction,
    memory: Memory,
    storage: Storage,
    spaces: Spaces,
    write_budget: Budget,
    /// One order of batches is validated and queued at a time.
    produce_turns: Budget,
    counters: Rc<Counters>,
    stopping: Cell<bool>,
    stop: Event,
    left: Cell<bool>,
    leave: Event,
}

/// Sizes that one shard works within.
#[derive(Debug, Clone)]
pub struct ShardSizes {
    /// Memory for requests, bytes.
    pub request_bytes: u64,
    /// Memory for responses until they are sent, bytes.
    pub response_bytes: u64,
    /// The largest frame, bytes.
    pub frame_bytes_max: usize,
    /// Memory for batches queued to be written, bytes.
    pub write_bytes: u64,
    /// Memory of the buffer cache, bytes.
    pub cache_bytes: u64,
    /// Memory of direct reads under way, bytes.
    pub cold_read_bytes: u64,
    /// Descriptors that sealed segments may hold.
    pub open_segments_max: usize,
}

impl Shard {
    /// Takes the seat `me` of `shards` + 1. Resolves when every executor has joined;
    /// partitions are loaded later, by a message of the control executor.
    pub async fn start(
        rt: Rt,
        seat: Seat,
        me: usize,
        shards: usize,
        config: Arc<BrokerConfig>,
        sizes: &ShardSizes,
        host: impl FnOnce(&Shard) -> Rc<dyn ConnectionHost>,
    ) -> Shard {
        let storage = Storage::new(
            rt.clone(),
            StorageLimits {
                cache_bytes: sizes.cache_bytes,
                cold_read_bytes: sizes.cold_read_bytes,
                write_bytes: sizes.write_bytes,
                flushes_in_flight_max: FLUSHES_IN_FLIGHT_MAX,
                open_segments_max: sizes.open_segments_max,
            },
        );
        let counters = storage.counters().clone();
        let shard = Shard(Rc::new(Inner {
            rt: rt.clone(),
            started: config.clone(),
            config: RefCell::new(config),
            mesh: RefCell::new(None),
            me,
            shards,
            image: RefCell::new(None),
            partitions: Partitions::default(),
            watches: Watches::default(),
            producer_ids: ProducerIds::default(),
            groups: Groups::default(),
            compaction: Compaction::default(),
            memory: Memory::new(
                sizes.request_bytes,
                sizes.response_bytes,
                sizes.frame_bytes_max,
            ),
            storage,
            spaces: Spaces::default(),
            write_budget: Budget::new(sizes.write_bytes),
            produce_turns: Budget::new(1),
            counters,
            stopping: Cell::new(false),
            stop: Event::new(),
            left: Cell::new(false),
            leave: Event::new(),
        }));
        let host = host(&shard);
        let mesh = seat.join(&rt, handler::handler(shard.clone(), host)).await;
        *shard.0.mesh.borrow_mut() = Some(mesh);
        background::start(&shard);
        retention::start(&shard);
        compaction::start(&shard);
        scrub::start(&shard);
        groups::start(&shard);
        shard
    }

    /// The runtime handle of this shard's executor.
    pub fn rt(&self) -> &Rt {
        &self.0.rt
    }

    /// The broker's settings as they are in force now: those that can change while it runs
    /// are asked for at each use.
    pub fn config(&self) -> Arc<BrokerConfig> {
        self.0.config.borrow().clone()
    }

    /// Puts in force what an image says of the broker's settings.
    fn adopt_configs(&self, image: &Image) {
        *self.0.config.borrow_mut() = configs_in_force(&self.0.started, image);
        self.limit_compaction();
    }

    /// This shard's memory budgets.
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// This shard's counters.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// This shard's place.
    pub fn me(&self) -> usize {
        self.0.me
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.0.shards
    }

    /// The cluster image as this shard has it; `None` until it has loaded.
    pub fn image(&self) -> Option<Image> {
        self.0.image.borrow().clone()
    }

    /// True once the shard is being stopped: long polls answer at once.
    pub fn is_stopping(&self) -> bool {
        self.0.stopping.get()
    }

    /// Notified when the shard is asked to stop.
    pub fn stop_event(&self) -> &Event {
        &self.0.stop
    }

    /// Resolves when the control executor has released this shard: its executor may
    /// end.
    pub async fn released(&self) {
        self.0.leave.wait_until(|| self.0.left.get()).await;
        self.mesh().close();
    }

    /// Creates topics through the controller; answers after every shard has them.
    pub async fn create_topics(
        &self,
        topics: Vec<NewTopic>,
        validate_only: bool,
    ) -> Result<Vec<Result<CreatedTopic, ControllerFault>>, ErrorCode> {
        let request = Request::CreateTopics {
            topics,
            validate_only,
        };
        match self.call_control(request).await? {
            Reply::TopicsCreated(results) => Ok(results),
            _ => Err(ErrorCode::BrokerNotAvailable),
        }
    }

    /// Deletes topics through the controller; answers after every shard has
    /// forgotten them.
    pub async fn delete_topics(
        &self,
        topics: Vec<TopicSelector>,
    ) -> Result<Vec<Result<(Uuid, String), ControllerFault>>, ErrorCode> {
        match self.call_control(Request::DeleteTopics(topics)).await? {
            Reply::TopicsDeleted(results) => Ok(results),
            _ => Err(ErrorCode::BrokerNotAvailable),
        }
    }

    /// Alters topics' configs through the controller; answers after every shard has put
    /// them in force.
    pub async fn alter_configs(
        &self,
        alterations: Vec<ConfigsAlteration>,
        validate_only: bool,
    ) -> Result<Vec<Result<(), ControllerFault>>, ErrorCode> {
        let request = Request::AlterConfigs {
            alterations,
            validate_only,
        };
        match self.call_control(request).await? {
            Reply::Changed(results) => Ok(results),
            _ => Err(ErrorCode::BrokerNotAvailable),
        }
    }

    /// Adds partitions to topics through the controller; answers after every shard has
    /// them.
    pub async fn create_partitions(
        &self,
        topics: Vec<MorePartitions>,
        validate_only: bool,
    ) -> Result<Vec<Result<(), ControllerFault>>, ErrorCode> {
        let request = Request::CreatePartitions {
            topics,
            validate_only,
        };
        match self.call_control(request).await? {
            Reply::Changed(results) => Ok(results),
            _ => Err(ErrorCode::BrokerNotAvailable),
        }
    }

    /// How far the metadata log is.
    pub async fn quorum(&self) -> Result<QuorumState, ErrorCode> {
        match self.call_control(Request::DescribeQuorum).await? {
            Reply::Quorum(state) => Ok(state),
            _ => Err(ErrorCode::BrokerNotAvailable),
        }
    }

    fn owner(&self, key: &PartitionKey) -> usize {
        owner_shard(&key.topic_id, key.index, self.0.shards)
    }

    fn mesh(&self) -> Mesh<Request, Reply> {
        self.0
            .mesh
            .borrow()
            .clone()
            .expect("a shard works only after it has joined the mesh")
    }

    async fn call(&self, peer: usize, request: Request) -> Result<Reply, ErrorCode> {
        if peer != self.0.me {
            self.0.counters.mesh_requests.add(1);
        }
        self.mesh()
            .call(peer, request)
            .await
            .map_err(|_| ErrorCode::BrokerNotAvailable)
    }

    async fn call_control(&self, request: Request) -> Result<Reply, ErrorCode> {
        self.call(self.0.shards, request).await
    }
}

/// The settings of a broker that started with `started`, under those that the image gives
/// it. One that does not hold here although the controller has checked it (the broker's file
/// is another one now, or its version) is told of in the log and left out.
fn configs_in_force(started: &BrokerConfig, image: &Image) -> Arc<BrokerConfig> {
    let none = Default::default();
    let layer = |broker| image.broker_configs(broker).unwrap_or(&none);
    let own = layer(Some(started.node_id));
    let (config, faults) = started.with_dynamic_that_holds(layer(None), own);
    for fault in faults {
        tracing::error!(%fault, "a changed broker setting is not in force: it is not valid here; delete or change it");
    }
    Arc::new(config)
}

/// fdatasyncs that one shard may have under way at once.
const FLUSHES_IN_FLIGHT_MAX: usize = 64;
