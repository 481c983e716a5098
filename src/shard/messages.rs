//! What travels between executors: one request type and one reply type for the
//! whole mesh. Everything in them is owned and `Send`; record bytes are refcounted.

use super::log_sizes::LogSize;
use super::metrics::{MetricsOrder, ShardMetrics};
use super::Incoming;
use crate::controller::{
    ConfigsAlteration, ControllerFault, CreatedTopic, MorePartitions, NewTopic, TopicSelector,
};
use crate::coordinator::{GroupCall, GroupOverview, GroupResponse, Ticket};
use crate::metadata::{Delta, Image};
use crate::partition::{Acks, FetchOutcome, ListedOffset, Reader, RecordRefusal};
use crate::protocol::ErrorCode;
use crate::runtime::Mono;
use crate::storage::leader_epochs::EpochEnd;
use crate::storage::ProducerStates;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Names a partition wherever its topic's name is not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey {
    /// The topic's id.
    pub topic_id: Uuid,
    /// The partition's number in its topic.
    pub index: i32,
}

/// A request from one executor to another.
pub enum Request {
    /// Control to shard, once: load these partitions.
    Load(Box<LoadOrder>),
    /// Control to shard: a metadata change to apply.
    Apply(Delta),
    /// Control to shard: a connection to serve.
    Connection(Incoming),
    /// Control to shard: answer what is in flight, then end every connection.
    Drain,
    /// Control to shard: flush, write indexes, close every partition.
    Close,
    /// Control to shard: the executor may end.
    Leave,
    /// Control to shard: answer, to show that the executor runs.
    Ping,
    /// Shard to owner.
    Produce(ProduceOrder),
    /// Shard to owner.
    Fetch(FetchOrder),
    /// Shard to owner.
    ListOffsets(Vec<ListOffsetsPart>),
    /// Shard to owner.
    DeleteRecords(Vec<DeleteRecordsPart>),
    /// Shard to owner.
    EpochEnds(Vec<EpochEndPart>),
    /// Shard to owner: send one [`Request::Notice`] when a bound moves.
    Watch(WatchOrder),
    /// Shard to owner: the watch is no longer wanted.
    Unwatch(u64),
    /// Owner to shard: something that the watch names has moved.
    Notice(u64),
    /// Shard to owner: a call to a group's coordinator.
    Group(Box<GroupOrder>),
    /// Owner to shard: the answer to a call that was told [`Reply::Later`].
    GroupAnswered {
        /// The call.
        ticket: Ticket,
        /// Its answer.
        answer: Box<GroupResponse>,
    },
    /// Shard to owner: nobody waits for the call's answer any more.
    GroupGone {
        /// Whose coordinator was called.
        key: PartitionKey,
        /// The call.
        ticket: Ticket,
    },
    /// Shard to shard: the groups that it coordinates.
    ListGroups,
    /// Shard to control.
    CreateTopics {
        /// What to create.
        topics: Vec<NewTopic>,
        /// Check only.
        validate_only: bool,
    },
    /// Shard to control.
    DeleteTopics(Vec<TopicSelector>),
    /// Shard to control.
    AlterConfigs {
        /// What to alter.
        alterations: Vec<ConfigsAlteration>,
        /// Check only.
        validate_only: bool,
    },
    /// Shard to control.
    CreatePartitions {
        /// Which topics, and how many partitions they are to have.
        topics: Vec<MorePartitions>,
        /// Check only.
        validate_only: bool,
    },
    /// Shard to control: a block of so many producer ids.
    AllocateProducerIds(i32),
    /// Shard to owner: what these partitions know of producers.
    DescribeProducers(Vec<PartitionKey>),
    /// Control to shard: its figures.
    Metrics(MetricsOrder),
    /// Shard to owner: how large these logs are.
    LogSizes(Vec<PartitionKey>),
    /// Shard to control: how far the metadata log is.
    DescribeQuorum,
    /// Shard to control: new numbers for the checkpoint files.
    Checkpointed(Vec<CheckpointLine>),
    /// Shard to control: a new log start, which holds once it is on the disk. Answered then.
    RecordLogStart(CheckpointLine),
    /// Shard to control: how far a log was compacted. Answered once it is on the disk.
    RecordCleaned(CheckpointLine),
    /// Shard to control: a data directory failed; nothing more may be written there.
    DataDirFailed {
        /// Which, by its place in `log.dirs`.
        dir: usize,
        /// What happened.
        reason: String,
    },
    /// Control to shard: a data directory is offline, and with it its partitions.
    DirectoryOffline {
        /// Which, by its place in `log.dirs`.
        dir: usize,
        /// What happened.
        reason: String,
    },
}

/// The answer to a [`Request`].
pub enum Reply {
    /// Done, nothing to say.
    Done,
    /// The answer to [`Request::Load`].
    Loaded(LoadSummary),
    /// The answer to [`Request::Produce`], in the order of its parts.
    Produced(Vec<Result<Produced, ProduceFault>>),
    /// The answer to [`Request::Fetch`].
    Fetched(FetchedParts),
    /// The answer to [`Request::ListOffsets`], in the order of its parts.
    Listed(Vec<Result<ListedOffset, ErrorCode>>),
    /// The answer to [`Request::DeleteRecords`], in the order of its parts.
    RecordsDeleted(Vec<Result<i64, ErrorCode>>),
    /// The answer to [`Request::EpochEnds`], in the order of its parts.
    EpochEnds(Vec<Result<Option<EpochEnd>, ErrorCode>>),
    /// The answer to [`Request::Watch`]: a bound had moved already.
    Moved,
    /// The answer to [`Request::Group`], if it is known at once.
    Group(Box<GroupResponse>),
    /// The answer to [`Request::Group`] comes as [`Request::GroupAnswered`].
    Later,
    /// The answer to [`Request::ListGroups`].
    Groups(Result<Vec<GroupOverview>, ErrorCode>),
    /// The answer to [`Request::CreateTopics`].
    TopicsCreated(Vec<Result<CreatedTopic, ControllerFault>>),
    /// The answer to [`Request::DeleteTopics`].
    TopicsDeleted(Vec<Result<(Uuid, String), ControllerFault>>),
    /// The answer to [`Request::AlterConfigs`] and to [`Request::CreatePartitions`], in
    /// the order of the request.
    Changed(Vec<Result<(), ControllerFault>>),
    /// The answer to [`Request::AllocateProducerIds`]: ids that nobody else gets.
    ProducerIdsAllocated(Result<Range<i64>, ControllerFault>),
    /// The answer to [`Request::DescribeProducers`], in the order of its partitions.
    ProducersDescribed(Vec<Result<ProducerStates, ErrorCode>>),
    /// The answer to [`Request::LogSizes`], in the order of its partitions, in bytes.
    LogSizes(Vec<Result<LogSize, ErrorCode>>),
    /// The answer to [`Request::DescribeQuorum`].
    Quorum(QuorumState),
    /// The answer to [`Request::Close`].
    Closed(CloseSummary),
    /// The answer to [`Request::Ping`].
    Pong(Pong),
    /// The answer to [`Request::Metrics`].
    Metrics(Box<ShardMetrics>),
    /// The receiver is not in a state to do this (it is loading or has closed).
    Busy,
}

/// How far a shard is with its load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pong {
    /// Partitions that it has loaded since the start, those included that are offline.
    pub loaded: usize,
    /// Partitions that it is to load; 0 until it was told.
    pub to_load: usize,
    /// Bytes that its recovery scans have read.
    pub scanned_bytes: u64,
    /// Bytes that the scans which have begun are to read.
    pub to_scan_bytes: u64,
    /// How long it has been loading.
    pub took: Duration,
}

/// How far the metadata log is on its one voter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuorumState {
    /// The term.
    pub leader_epoch: i32,
    /// The LEO.
    pub end_offset: i64,
    /// What is flushed, and so can't be lost.
    pub high_watermark: i64,
    /// The voter's data directory.
    pub directory_id: Uuid,
    /// When it was so, milliseconds since the Unix epoch.
    pub now_ms: i64,
}

/// What a shard loads at start.
pub struct LoadOrder {
    /// The whole cluster image; the shard opens the partitions that it owns.
    pub image: Image,
    /// The data directories, in the order of `log.dirs`.
    pub dirs: Vec<LoadDir>,
    /// This shard's partitions.
    pub partitions: Vec<PlacedPartition>,
    /// Every partition that is not in the directory that is recorded for it.
    pub elsewhere: Arc<Elsewhere>,
}

/// Partitions that are not where they are recorded: in the data directory at that place in
/// `log.dirs`, or, `None`, in none that can be used.
pub type Elsewhere = BTreeMap<PartitionKey, Option<usize>>;

/// A data directory at the start.
#[derive(Debug, Clone)]
pub struct LoadDir {
    /// Its `directory.id`; nil if it could not be read.
    pub id: Uuid,
    /// Where it is.
    pub path: PathBuf,
    /// Its last stop was clean.
    pub clean: bool,
    /// Why it is offline, if it is.
    pub offline: Option<String>,
}

/// A partition at the start.
#[derive(Debug, Clone)]
pub struct PlacedPartition {
    /// What the checkpoint files say of it.
    pub line: CheckpointLine,
    /// The data directory that it is in, by its place in `log.dirs`.
    pub home: Result<usize, Homeless>,
    /// Whether what is not there may be created, and what is of another topic removed: only
    /// where the partition can be nowhere else.
    pub may_create: bool,
}

/// Why a partition can't be opened anywhere.
#[derive(Debug, Clone)]
pub struct Homeless {
    /// The directory that it is in, where that is known.
    pub dir: Option<usize>,
    /// In words.
    pub reason: String,
}

/// The numbers of one partition that the checkpoint files hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointLine {
    /// The partition; the id tells a topic from a later one of the same name.
    pub key: PartitionKey,
    /// The topic's name, as the files have it.
    pub topic: String,
    /// The data directory of the files, by its place in `log.dirs`.
    pub dir: usize,
    /// Recovery point; `None` leaves the recorded one.
    pub recovery_point: Option<i64>,
    /// High watermark; `None` leaves the recorded one.
    pub high_watermark: Option<i64>,
    /// Log start offset; `None` leaves the recorded one.
    pub log_start: Option<i64>,
    /// The first offset that was not compacted; `None` leaves the recorded one, if any.
    pub cleaned_to: Option<i64>,
}

impl CheckpointLine {
    /// A line that leaves everything as it is recorded.
    pub fn of_nothing(key: PartitionKey, topic: String, dir: usize) -> CheckpointLine {
        CheckpointLine {
            key,
            topic,
            dir,
            recovery_point: None,
            high_watermark: None,
            log_start: None,
            cleaned_to: None,
        }
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        let said = [self.recovery_point, self.high_watermark, self.log_start];
        said.iter().all(Option::is_none) && self.cleaned_to.is_none()
    }

    /// Topic and partition, as the files have them.
    pub fn name(&self) -> (String, i32) {
        (self.topic.clone(), self.key.index)
    }
}

/// What loading found, summed over a shard's partitions.
#[derive(Debug, Clone, Default)]
pub struct LoadSummary {
    /// Partitions that are online.
    pub online: usize,
    /// Why the others are offline: partition and reason.
    pub offline: Vec<(String, String)>,
    /// Bytes read because nothing proved them flushed.
    pub scanned_bytes: u64,
    /// Bytes read again because what was stored of them could not be used.
    pub rebuilt_bytes: u64,
    /// Bytes cut from torn tails.
    pub truncated_bytes: u64,
}

/// What closing left.
#[derive(Debug, Clone, Default)]
pub struct CloseSummary {
    /// Final numbers of every partition that closed.
    pub lines: Vec<CheckpointLine>,
    /// Partitions that could not be flushed or closed: a clean marker would lie.
    /// The data directory, if it is known, partition, and reason.
    pub failed: Vec<(Option<usize>, String, String)>,
}

/// Records for several partitions of one owner, from one produce request.
pub struct ProduceOrder {
    /// The batches.
    pub parts: Vec<ProducePart>,
    /// When to answer.
    pub acks: Acks,
    /// How long acks=all may wait.
    pub timeout: Duration,
    /// When it left for another shard.
    pub sent_at: Option<Mono>,
}

/// Records for one partition.
pub struct ProducePart {
    /// Where they go.
    pub key: PartitionKey,
    /// The records field of the request.
    pub records: Bytes,
}

/// A batch that was accepted and acknowledged as its `acks` asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Produced {
    /// The offset of its first record.
    pub base_offset: i64,
    /// Milliseconds since the Unix epoch under LogAppendTime; -1 otherwise.
    pub log_append_time_ms: i64,
    /// The partition's log start offset.
    pub log_start_offset: i64,
}

/// Why a batch was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProduceFault {
    /// The protocol's code.
    pub code: ErrorCode,
    /// For a person; empty when the code says it all.
    pub message: String,
    /// The records that are to blame, where single records are: the first of them.
    pub record_errors: Vec<RecordRefusal>,
}

/// Reads from several partitions of one owner.
pub struct FetchOrder {
    /// What to read, in order.
    pub parts: Vec<FetchPart>,
    /// Bytes over all parts; the first non-empty part may exceed it by one batch.
    pub bytes_max: usize,
    /// Read nothing, and only look, while fewer bytes than this are there; unless a
    /// part has something to tell that can't wait.
    pub bytes_least: usize,
    /// Who reads: sets the visible bound.
    pub reader: Reader,
}

/// What an owner read, or saw where it only looked.
pub struct FetchedParts {
    /// In the order of the order's parts.
    pub outcomes: Vec<Result<FetchOutcome, ErrorCode>>,
    /// About the bytes that could have been read, each part up to its limit; 0 if it
    /// was not asked to look.
    pub bytes_available: usize,
}

/// A read from one partition.
#[derive(Debug, Clone, Copy)]
pub struct FetchPart {
    /// Where to read.
    pub key: PartitionKey,
    /// From this offset on.
    pub offset: i64,
    /// What the reader believes the leader epoch is; -1 if it does not know.
    pub current_leader_epoch: i32,
    /// The epoch of the last record that the reader has; -1 if it does not say.
    pub last_fetched_epoch: i32,
    /// Bytes of this part.
    pub bytes_max: usize,
    /// What an earlier read of the same fetch found, and where it ended: only what
    /// lies behind has to be estimated.
    pub counted: Option<(usize, i64)>,
}

/// A question about offsets.
#[derive(Debug, Clone, Copy)]
pub struct ListOffsetsPart {
    /// Where.
    pub key: PartitionKey,
    /// A time in milliseconds, or one of Kafka's negative marks.
    pub timestamp: i64,
    /// What the asker believes the leader epoch is; -1 if it does not know.
    pub current_leader_epoch: i32,
    /// Who asks: sets the visible bound.
    pub reader: Reader,
}

/// A call to a group's coordinator.
pub struct GroupOrder {
    /// The partition of `__consumer_offsets` that coordinates the group.
    pub key: PartitionKey,
    /// The call's name.
    pub ticket: Ticket,
    /// The call.
    pub call: GroupCall,
}

/// A question about where a leader epoch ended.
#[derive(Debug, Clone, Copy)]
pub struct EpochEndPart {
    /// Where.
    pub key: PartitionKey,
    /// The epoch.
    pub leader_epoch: i32,
    /// What the asker believes the leader epoch is now; -1 if it does not know.
    pub current_leader_epoch: i32,
}

/// Asks for the records of a partition below an offset to be deleted.
#[derive(Debug, Clone, Copy)]
pub struct DeleteRecordsPart {
    /// Where.
    pub key: PartitionKey,
    /// The new log start offset; -1: the high watermark.
    pub offset: i64,
}

/// Asks for one notice when any of these partitions' visible bounds passes what
/// the asker has seen.
pub struct WatchOrder {
    /// Named by the asker; unique among its open watches.
    pub watch: u64,
    /// Partitions and the visible bound that was seen.
    pub parts: Vec<(PartitionKey, i64)>,
    /// The watch ends by itself after this time.
    pub wait_max: Duration,
}
