//! The one task that writes the metadata log.
//!
//! It takes what is queued as a group, decides each call against the *working* image
//! (all calls before it done), appends the group's batches, flushes once, and then
//! publishes the working image and answers, in order of arrival. Calls that change
//! nothing are answered with their group too: what they saw of it must be durable
//! before they speak of it.
//!
//! Callers only wait for an answer, so one that goes away changes nothing here.

use super::journal::{Journal, JournalBatch, Mark};
use super::options::{ControllerError, SnapshotInterval};
use super::plan::{
    check_partitions_per_request, times_altered, times_found, times_grown, times_named,
    ConfigRules, Limits, Plan,
};
use super::request::{
    ConfigsAlteration, ControllerFault, CreatedTopic, MorePartitions, NewTopic, TopicSelector,
};
use super::snapshot::SnapshotStore;
use super::{Published, TopicAnswer};
use crate::metadata::{records, Change, Delta, Image, TopicId};
use crate::protocol::ErrorCode;
use crate::runtime::local::{OneshotSender, Receiver};
use crate::runtime::Rt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// How many calls may wait; a caller past that waits to wait.
pub(super) const CALLS_QUEUED_MAX: usize = 256;
/// A group takes no further call past this many.
const GROUP_CALLS_MAX: usize = 64;
/// A group takes no further call past this many records.
const GROUP_RECORDS_MAX: usize = 10_000;

/// How many topics of a request are decided before other tasks get a turn.
const TOPICS_PER_SLICE: usize = 64;

/// A call, with the way to answer it.
pub(super) enum Call {
    Create {
        topics: Vec<NewTopic>,
        validate_only: bool,
        reply: OneshotSender<TopicAnswer<CreatedTopic>>,
    },
    Delete {
        topics: Vec<TopicSelector>,
        reply: OneshotSender<TopicAnswer<(Uuid, String)>>,
    },
    AlterConfigs {
        alterations: Vec<ConfigsAlteration>,
        validate_only: bool,
        reply: OneshotSender<TopicAnswer<()>>,
    },
    CreatePartitions {
        topics: Vec<MorePartitions>,
        validate_only: bool,
        reply: OneshotSender<TopicAnswer<()>>,
    },
    ProducerIds {
        count: i32,
        reply: OneshotSender<Result<Range<i64>, ControllerFault>>,
    },
    Close {
        reply: OneshotSender<Result<i64, ControllerError>>,
    },
}

/// An answer that waits for its group's flush.
enum Answer {
    Create(
        TopicAnswer<CreatedTopic>,
        OneshotSender<TopicAnswer<CreatedTopic>>,
    ),
    Delete(
        TopicAnswer<(Uuid, String)>,
        OneshotSender<TopicAnswer<(Uuid, String)>>,
    ),
    /// AlterConfigs or CreatePartitions.
    Changed(TopicAnswer<()>, OneshotSender<TopicAnswer<()>>),
    ProducerIds(
        Result<Range<i64>, ControllerFault>,
        OneshotSender<Result<Range<i64>, ControllerFault>>,
    ),
}

/// The task's state.
pub(super) struct Committer {
    pub rt: Rt,
    pub journal: Journal,
    pub snapshots: SnapshotStore,
    pub limits: Limits,
    pub rules: Arc<dyn ConfigRules>,
    pub published: Rc<Published>,
    /// The offset that the last snapshot written or read goes up to, and the log's
    /// size when it was.
    pub snapshot_mark: Mark,
    /// Up to where a checkpoint of the log was last tried.
    pub proof_tried_at: i64,
    pub snapshot_interval: SnapshotInterval,
}

/// A group in the making.
pub(super) struct Group {
    pub working: Image,
    pub next_offset: i64,
    pub batches: Vec<JournalBatch>,
    answers: Vec<Answer>,
}

impl Committer {
    /// Serves calls until one closes the controller or every handle is gone.
    pub async fn run(mut self, mut calls: Receiver<Call>) {
        loop {
            let first = match calls.try_recv() {
                Some(first) => first,
                None => {
                    self.prove().await;
                    let Some(first) = calls.recv().await else {
                        return;
                    };
                    first
                }
            };
            let (group, close) = self.decide(first, &mut calls).await;
            self.commit(group).await;
            if let Some(reply) = close {
                // Whoever closed may be gone; the log is closed all the same.
                let _ = reply.send(self.close().await);
                return;
            }
            self.snapshot_if_due().await;
        }
    }

    /// Registers a broker, if no record does.
    pub async fn register_broker(&mut self, id: i32) -> Result<(), ControllerError> {
        let mut group = self.new_group();
        let mut plan = self.plan(&group);
        plan.register_broker(id, group.next_offset);
        if group.take(plan).is_some() {
            self.journal.commit(&group.batches).await?;
            self.published.set_image(group.working);
        }
        Ok(())
    }

    fn new_group(&self) -> Group {
        Group::new(self.published.image(), self.journal.next_offset())
    }

    /// Takes calls until the queue is empty, the group is full, or one closes.
    async fn decide(
        &self,
        first: Call,
        calls: &mut Receiver<Call>,
    ) -> (Group, Option<OneshotSender<Result<i64, ControllerError>>>) {
        let mut group = self.new_group();
        let mut next = Some(first);
        while let Some(call) = next {
            match call {
                Call::Close { reply } => return (group, Some(reply)),
                Call::Create {
                    topics,
                    validate_only,
                    reply,
                } => {
                    let answer = self.create(&mut group, &topics, validate_only).await;
                    group.answers.push(Answer::Create(answer, reply));
                }
                Call::Delete { topics, reply } => {
                    let answer = self.delete(&mut group, &topics).await;
                    group.answers.push(Answer::Delete(answer, reply));
                }
                Call::AlterConfigs {
                    alterations,
                    validate_only,
                    reply,
                } => {
                    let answer = self.alter(&mut group, &alterations, validate_only).await;
                    group.answers.push(Answer::Changed(answer, reply));
                }
                Call::CreatePartitions {
                    topics,
                    validate_only,
                    reply,
                } => {
                    let answer = self.grow(&mut group, &topics, validate_only).await;
                    group.answers.push(Answer::Changed(answer, reply));
                }
                Call::ProducerIds { count, reply } => {
                    let mut plan = self.plan(&group);
                    let range = plan.allocate_producer_ids(count);
                    group.take(plan);
                    group.answers.push(Answer::ProducerIds(range, reply));
                }
            }
            let full =
                group.answers.len() >= GROUP_CALLS_MAX || group.record_count() >= GROUP_RECORDS_MAX;
            next = if full { None } else { calls.try_recv() };
        }
        (group, None)
    }

    async fn create(
        &self,
        group: &mut Group,
        topics: &[NewTopic],
        validate_only: bool,
    ) -> TopicAnswer<CreatedTopic> {
        let counts = topics.iter().map(|topic| match topic.assignments.len() {
            0 if topic.num_partitions == -1 => i64::from(self.limits.num_partitions),
            0 => i64::from(topic.num_partitions),
            assigned => assigned as i64,
        });
        if let Err(fault) = check_partitions_per_request(counts, "partitions") {
            return (refused(topics.len(), &fault), None);
        }
        let times_named = times_named(topics);
        let mut plan = self.plan(group);
        let mut results = Vec::with_capacity(topics.len());
        for part in topics.chunks(TOPICS_PER_SLICE) {
            let fresh_id = || fresh_topic_id(&self.rt);
            results.extend(plan.create_topics(part, &times_named, fresh_id));
            self.rt.yield_if_needed().await;
        }
        if validate_only {
            for created in results.iter_mut().flatten() {
                created.id = Uuid::nil();
            }
            return (results, None);
        }
        (results, group.take(plan))
    }

    async fn delete(
        &self,
        group: &mut Group,
        topics: &[TopicSelector],
    ) -> TopicAnswer<(Uuid, String)> {
        let mut plan = self.plan(group);
        let mut found = Vec::with_capacity(topics.len());
        for part in topics.chunks(TOPICS_PER_SLICE) {
            found.extend(plan.find_topics(part));
            self.rt.yield_if_needed().await;
        }
        let times_found = times_found(&found);
        let mut results = Vec::with_capacity(topics.len());
        for part in found.chunks(TOPICS_PER_SLICE) {
            results.extend(plan.delete_topics(part, &times_found));
            self.rt.yield_if_needed().await;
        }
        (results, group.take(plan))
    }

    async fn alter(
        &self,
        group: &mut Group,
        alterations: &[ConfigsAlteration],
        validate_only: bool,
    ) -> TopicAnswer<()> {
        let times_altered = times_altered(alterations);
        let mut plan = self.plan(group);
        let mut results = Vec::with_capacity(alterations.len());
        for part in alterations.chunks(TOPICS_PER_SLICE) {
            results.extend(plan.alter_configs(part, &times_altered));
            self.rt.yield_if_needed().await;
        }
        let delta = match validate_only {
            true => None,
            false => group.take(plan),
        };
        (results, delta)
    }

    async fn grow(
        &self,
        group: &mut Group,
        topics: &[MorePartitions],
        validate_only: bool,
    ) -> TopicAnswer<()> {
        let counts = topics.iter().filter_map(|topic| {
            let there = group.working.topic(&topic.name)?.partitions.len();
            Some(i64::from(topic.count) - there as i64)
        });
        if let Err(fault) = check_partitions_per_request(counts, "additional partitions") {
            return (refused(topics.len(), &fault), None);
        }
        let times_grown = times_grown(topics);
        let mut plan = self.plan(group);
        let mut results = Vec::with_capacity(topics.len());
        for part in topics.chunks(TOPICS_PER_SLICE) {
            results.extend(plan.create_partitions(part, &times_grown));
            self.rt.yield_if_needed().await;
        }
        let delta = match validate_only {
            true => None,
            false => group.take(plan),
        };
        (results, delta)
    }

    fn plan(&self, group: &Group) -> Plan<'_> {
        Plan::new(group.working.clone(), &self.limits, &*self.rules)
            .in_directories(self.published.directories.borrow().clone())
    }

    /// Makes the group durable, publishes its image, and answers.
    async fn commit(&mut self, group: Group) {
        let outcome = match self.published.failure() {
            Some(reason) => Err(reason),
            None if group.batches.is_empty() => Ok(()),
            None => self.write(&group).await,
        };
        match outcome {
            Ok(()) => self.published.set_image(group.working),
            Err(reason) => {
                let fault = ControllerFault::new(ErrorCode::KafkaStorageError, reason);
                for answer in group.answers {
                    answer.fail(&fault);
                }
                return;
            }
        }
        for answer in group.answers {
            answer.send();
        }
    }

    async fn write(&mut self, group: &Group) -> Result<(), String> {
        let written = self.journal.commit(&group.batches).await;
        written.map_err(|error| {
            if error.is_want_of_space() {
                tracing::warn!("a change was not stored: {error}");
                return format!("{error}; try again once there is space");
            }
            let reason = ControllerError::Failed(error.to_string()).to_string();
            tracing::error!("{reason}");
            self.published.fail(reason.clone());
            reason
        })
    }

    /// Checkpoints the log while nobody waits: damage to what was committed is then known for
    /// that, and a load refuses it instead of taking it for the end of the log.
    async fn prove(&mut self) {
        let next_offset = self.journal.next_offset();
        let is_tried = self.proof_tried_at >= next_offset;
        if is_tried || self.published.failure().is_some() {
            return;
        }
        // Also before a failure: the next change brings the next try.
        self.proof_tried_at = next_offset;
        if let Err(error) = self.journal.checkpoint().await {
            self.note_failure(error.into());
        }
    }

    /// Writes a snapshot, and checkpoints the log, if enough was logged since the last
    /// one. That it fails takes nothing away (the log has all of it), so it is reported
    /// and tried again later, except when the device failed.
    async fn snapshot_if_due(&mut self) {
        let now = self.journal.mark();
        let due = self.snapshot_mark.is_due(&now, self.snapshot_interval);
        if !due || self.published.failure().is_some() {
            return;
        }
        // Also before a failure: the next try is a full interval away.
        self.snapshot_mark = now;
        if let Err(error) = self.snapshot().await {
            self.note_failure(error);
        }
    }

    /// The log has all of it; but a device that failed takes no more changes.
    fn note_failure(&self, error: ControllerError) {
        tracing::error!("{error}");
        if error.is_device_failure() {
            let reason = ControllerError::Failed(error.to_string()).to_string();
            self.published.fail(reason);
        }
    }

    async fn snapshot(&self) -> Result<(), ControllerError> {
        self.write_snapshot().await?;
        self.journal.checkpoint().await?;
        Ok(())
    }

    async fn write_snapshot(&self) -> Result<(), ControllerError> {
        let image = self.published.image();
        let offset = self.journal.next_offset();
        Ok(self.snapshots.write(&self.rt, &image, offset).await?)
    }

    async fn close(&mut self) -> Result<i64, ControllerError> {
        if let Some(reason) = self.published.failure() {
            return Err(ControllerError::Failed(reason));
        }
        if self.journal.next_offset() > self.snapshot_mark.offset {
            // The log has all of it: for want of space a start only takes longer.
            if let Err(error) = self.write_snapshot().await {
                tracing::error!("{error}");
                if error.is_device_failure() {
                    return Err(error);
                }
            }
        }
        Ok(self.journal.close().await?)
    }
}

impl Group {
    /// A group on top of `image`, whose first record gets `next_offset`.
    pub fn new(image: Image, next_offset: i64) -> Group {
        Group {
            working: image,
            next_offset,
            batches: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Takes over what a plan changed: one batch for each change.
    pub fn take(&mut self, plan: Plan<'_>) -> Option<Delta> {
        let (changes, working) = plan.into_parts();
        if changes.is_empty() {
            return None;
        }
        let previous = self.working.version();
        let mut version = previous;
        for change in &changes {
            let batch = JournalBatch {
                base_offset: self.next_offset,
                records: records::records_of(change),
            };
            self.next_offset += batch.records.len() as i64;
            if !matches!(change, Change::ProducerIdsAllocated { .. }) {
                version = self.next_offset - 1;
            }
            self.batches.push(batch);
        }
        self.working = working.at_version(version);
        (version > previous).then_some(Delta {
            previous,
            offset: version,
            changes,
        })
    }

    fn record_count(&self) -> usize {
        self.batches.iter().map(|batch| batch.records.len()).sum()
    }
}

impl Answer {
    /// Sends it. Nobody may wait any more; the change stands all the same.
    fn send(self) {
        match self {
            Answer::Create(answer, reply) => drop(reply.send(answer)),
            Answer::Delete(answer, reply) => drop(reply.send(answer)),
            Answer::Changed(answer, reply) => drop(reply.send(answer)),
            Answer::ProducerIds(answer, reply) => drop(reply.send(answer)),
        }
    }

    /// Answers `fault` in its place.
    fn fail(self, fault: &ControllerFault) {
        match self {
            Answer::Create((results, _), reply) => {
                drop(reply.send((refused(results.len(), fault), None)))
            }
            Answer::Delete((results, _), reply) => {
                drop(reply.send((refused(results.len(), fault), None)))
            }
            Answer::Changed((results, _), reply) => {
                drop(reply.send((refused(results.len(), fault), None)))
            }
            Answer::ProducerIds(_, reply) => drop(reply.send(Err(fault.clone()))),
        }
    }
}

/// The same fault for each of `count` topics.
pub(super) fn refused<T>(count: usize, fault: &ControllerFault) -> Vec<Result<T, ControllerFault>> {
    (0..count).map(|_| Err(fault.clone())).collect()
}

/// A random topic id that Kafka does not reserve.
fn fresh_topic_id(rt: &Rt) -> Uuid {
    loop {
        if let Some(TopicId(id)) = TopicId::from_random(rt.random_u64(), rt.random_u64()) {
            return id;
        }
    }
}
