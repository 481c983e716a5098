//! Fetch: finds out what is asked for (`fetch_sessions.rs`), reads it, and answers what
//! is new.
//!
//! What it is not: it waits for nothing but its turn; long polls and byte limits are the
//! shard's (`shard/fetch.rs`).

use super::fetch_list::{Answered, PartitionList, Told, TopicLabel};
use super::fetch_sessions::{FetchContext, FetchSessions};
use super::lookup::Topics;
use super::respond::{Answer, Asked, Backlog, UNSENT_BYTES_MAX};
use crate::partition::{FetchOutcome, Reader};
use crate::protocol::messages::{
    EpochEndOffset, FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData,
};
use crate::protocol::{ErrorCode, Records};
use crate::runtime::local::{oneshot, OneshotReceiver, OneshotSender, Permit};
use crate::shard::{FetchPart, FetchPlan, Hurry, Shard};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The fetches of one connection get memory for their answers in the order of the
/// requests. Otherwise a later one could hold the memory that an earlier one waits
/// for, and could not be sent before it. Nor is an answer read while the peer has not
/// taken many bytes of those before it: one that reads nothing holds little more than one.
#[derive(Default)]
pub(super) struct Turns {
    last: RefCell<Option<OneshotReceiver<()>>>,
}

/// One fetch's place among its connection's.
pub(super) struct Turn {
    before: Option<OneshotReceiver<()>>,
    /// Dropped when the next one may go on.
    _after: OneshotSender<()>,
    backlog: Backlog,
}

impl Turns {
    /// Takes the place after all that were taken.
    pub fn next(&self, backlog: &Backlog) -> Turn {
        let (after, next) = oneshot();
        Turn {
            before: self.last.borrow_mut().replace(next),
            _after: after,
            backlog: backlog.clone(),
        }
    }
}

impl Turn {
    async fn come(&mut self) {
        if let Some(before) = self.before.take() {
            // Resolves when the turn before it is dropped; nothing is ever sent.
            before.await;
        }
        self.backlog.below(UNSENT_BYTES_MAX).await;
    }
}

/// Reads and answers; `None` closes the connection.
pub(super) async fn run(
    shard: Shard,
    sessions: Rc<RefCell<FetchSessions>>,
    asked: Asked,
    request: FetchRequest,
    mut turn: Turn,
    hurry: Hurry,
) -> Option<Answer> {
    turn.come().await;
    let by_id = asked.api_version >= FIRST_VERSION_BY_ID;
    let reader = match reader_of(&request) {
        Ok(reader) => reader,
        Err(code) => return asked.answer_or_close(&refusal(by_id, &request, code)),
    };
    let now = shard.rt().now();
    let begun = sessions.borrow_mut().begin(now, by_id, &request);
    let context = match begun {
        Ok(context) => context,
        // As in Kafka: no partition is answered, and there is no session.
        Err(code) => return asked.answer_or_close(&failed(code)),
    };
    let listed = match &context {
        FetchContext::Incremental { session, .. } => listed(&shard, session.borrow().list.len()),
        FetchContext::Sessionless(_) | FetchContext::Full(_) => Some(None),
    };
    let Some(listed) = listed else {
        // Without the session the client names all of its partitions, and the frame's
        // memory stands for them.
        sessions.borrow_mut().remove(request.session_id);
        return asked.answer_or_close(&failed(ErrorCode::FetchSessionIdNotFound));
    };
    let _holding = listed.is_some().then(|| hurry.holding());
    let (parts, places) = context.with_list(|list| plan_of(&Topics::now(&shard), list));
    let bytes_max = clamp(request.max_bytes).min(shard.config().fetch_max_bytes as usize);
    // A connection that waits looks idle to the network between, too.
    let wait_ms =
        u64::from(request.max_wait_ms.max(0) as u32).min(shard.config().connections_max_idle_ms);
    let plan = FetchPlan {
        parts,
        bytes_max,
        bytes_min: clamp(request.min_bytes).min(bytes_max),
        wait_max: Duration::from_millis(wait_ms),
        reader,
        hurry,
    };
    drop(request);
    let fetched = shard.fetch(plan).await?;
    let answers = Answers {
        reader,
        places,
        outcomes: fetched.outcomes,
    };
    let response = match context {
        FetchContext::Sessionless(list) => answers.all(&list),
        FetchContext::Full(mut list) => {
            let mut response = answers.note_all(&mut list);
            let now = shard.rt().now();
            let random = || shard.rt().random_u64();
            response.session_id = sessions.borrow_mut().keep(now, by_id, list, random);
            if response.session_id != 0 {
                shard.counters().fetch_sessions_made.add(1);
            }
            response
        }
        FetchContext::Incremental { session, epoch } => {
            let mut session = session.borrow_mut();
            if session.epoch() == epoch {
                shard.counters().fetch_incremental.add(1);
                let mut response = answers.note_new(&mut session.list);
                response.session_id = session.id();
                response
            } else {
                // Another request has moved the session meanwhile.
                failed(ErrorCode::InvalidFetchSessionEpoch)
            }
        }
    };
    let returned = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions);
    let bytes = returned.map(|partition| partition.records.as_ref().map_or(0, Records::len));
    shard
        .counters()
        .fetch_bytes
        .add(bytes.sum::<usize>() as u64);
    let mut answer = asked.answer_or_close(&response)?;
    answer.charge = Some(fetched.charge);
    answer.waited_nanos = fetched.waited_nanos;
    answer.lists = listed;
    Some(answer)
}

/// Memory for the lists of an incremental fetch, whose frame does not stand for them. A
/// few partitions need none, and `None`: there is no memory.
fn listed(shard: &Shard, partitions: usize) -> Option<Option<Permit>> {
    if partitions <= LISTED_FREELY {
        return Some(None);
    }
    let permit = shard.memory().try_decoded(partitions * LISTED_BYTES)?;
    Some(Some(permit))
}

fn reader_of(request: &FetchRequest) -> Result<Reader, ErrorCode> {
    let replica = request.replica_id.max(request.replica_state.replica_id);
    if replica >= 0 {
        // Follower fetches come with replication.
        return Err(ErrorCode::InvalidRequest);
    }
    match request.isolation_level {
        0 => Ok(Reader::Consumer),
        1 => Ok(Reader::ReadCommitted),
        _ => Err(ErrorCode::InvalidRequest),
    }
}

/// An error for all: older clients look for it at each partition.
fn refusal(by_id: bool, request: &FetchRequest, code: ErrorCode) -> FetchResponse {
    let refused = |index: i32| PartitionData {
        error_code: code.code(),
        ..unanswered(index)
    };
    let mut response = failed(code);
    if !by_id {
        let topics = request.topics.iter().map(|topic| FetchableTopicResponse {
            topic: topic.topic.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| refused(partition.partition))
                .collect(),
        });
        response.responses = topics.collect();
    }
    response
}

fn failed(code: ErrorCode) -> FetchResponse {
    FetchResponse {
        error_code: code.code(),
        ..Default::default()
    }
}

/// Where a partition of the list is among the outcomes, or why it is not read.
struct Place {
    place: u64,
    topic: u32,
    index: i32,
    absent: Option<ErrorCode>,
}

fn plan_of(topics: &Topics, list: &PartitionList) -> (Vec<FetchPart>, Vec<Place>) {
    let mut parts = Vec::with_capacity(list.len());
    let mut places = Vec::with_capacity(list.len());
    let mut last = None;
    for (place, wanted) in list.iter() {
        let found = match last {
            Some((topic, found)) if topic == wanted.topic => found,
            _ => match list.label(wanted.topic) {
                TopicLabel::Name(name) => topics.by_name(name),
                TopicLabel::Id(id) => topics.by_id(id),
            },
        };
        last = Some((wanted.topic, found));
        let key = found.partition(wanted.index);
        places.push(Place {
            place,
            topic: wanted.topic,
            index: wanted.index,
            absent: key.err(),
        });
        if let Ok(key) = key {
            parts.push(FetchPart {
                key,
                offset: wanted.offset,
                current_leader_epoch: wanted.current_leader_epoch,
                last_fetched_epoch: wanted.last_fetched_epoch,
                bytes_max: wanted.bytes_max,
                counted: None,
            });
        }
    }
    (parts, places)
}

/// What was read, on its way into the answer.
struct Answers {
    reader: Reader,
    places: Vec<Place>,
    outcomes: Vec<Result<FetchOutcome, ErrorCode>>,
}

impl Answers {
    /// Answers every partition.
    fn all(self, list: &PartitionList) -> FetchResponse {
        let mut response = FetchResponse::default();
        self.each(|place, data| push(&mut response, list.label(place.topic), data));
        response
    }

    /// Answers every partition, and notes in the list what the client now knows.
    fn note_all(self, list: &mut PartitionList) -> FetchResponse {
        let mut response = FetchResponse::default();
        self.each(|place, data| {
            list.note(place.place, &answered(&data));
            push(&mut response, list.label(place.topic), data);
        });
        response
    }

    /// Answers the partitions of which there is something new.
    fn note_new(self, list: &mut PartitionList) -> FetchResponse {
        let mut response = FetchResponse::default();
        self.each(|place, data| {
            if list.note(place.place, &answered(&data)) {
                push(&mut response, list.label(place.topic), data);
            }
        });
        response
    }

    fn each(self, mut take: impl FnMut(&Place, PartitionData)) {
        let mut outcomes = self.outcomes.into_iter();
        for place in &self.places {
            let outcome = match place.absent {
                Some(code) => Err(code),
                None => outcomes
                    .next()
                    .unwrap_or(Err(ErrorCode::UnknownServerError)),
            };
            take(place, data_of(place.index, outcome, self.reader));
        }
    }
}

fn data_of(index: i32, outcome: Result<FetchOutcome, ErrorCode>, reader: Reader) -> PartitionData {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(code) => {
            return PartitionData {
                error_code: code.code(),
                ..unanswered(index)
            }
        }
    };
    let mut data = PartitionData {
        high_watermark: outcome.high_watermark,
        last_stable_offset: outcome.last_stable_offset,
        log_start_offset: outcome.log_start_offset,
        records: Some(outcome.slices.into_iter().collect()),
        ..unanswered(index)
    };
    if reader == Reader::ReadCommitted {
        data.aborted_transactions = Some(Vec::new());
    }
    if let Some(end) = outcome.diverging {
        data.diverging_epoch = EpochEndOffset {
            epoch: end.epoch,
            end_offset: end.end_offset,
        };
    }
    data
}

/// An answer that tells nothing.
fn unanswered(index: i32) -> PartitionData {
    PartitionData {
        partition_index: index,
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
        aborted_transactions: None,
        records: Some(Records::default()),
        ..Default::default()
    }
}

fn answered(data: &PartitionData) -> Answered {
    Answered {
        told: Told {
            high_watermark: data.high_watermark,
            last_stable_offset: data.last_stable_offset,
            log_start_offset: data.log_start_offset,
        },
        has_records: data.records.as_ref().is_some_and(|r| !r.is_empty()),
        is_exceptional: data.error_code != 0 || data.diverging_epoch.epoch >= 0,
    }
}

/// Adds a partition; consecutive ones of a topic share its entry.
fn push(response: &mut FetchResponse, label: &TopicLabel, data: PartitionData) {
    let is_last = response.responses.last().is_some_and(|topic| match label {
        TopicLabel::Name(name) => topic.topic == *name,
        TopicLabel::Id(id) => topic.topic_id == *id,
    });
    if !is_last {
        let mut topic = FetchableTopicResponse::default();
        match label {
            TopicLabel::Name(name) => topic.topic = name.clone(),
            TopicLabel::Id(id) => topic.topic_id = *id,
        }
        response.responses.push(topic);
    }
    let topic = response.responses.last_mut().expect("one was pushed");
    topic.partitions.push(data);
}

fn clamp(bytes: i32) -> usize {
    bytes.max(0) as usize
}

/// Partitions that an incremental fetch may read without counting their memory.
const LISTED_FREELY: usize = 64;
/// About what a partition takes as it is read, found and answered.
const LISTED_BYTES: usize = 600;
/// How often a fetch holds its list of partitions at most, in the sizes of the decoded
/// request: as named, as read, as found, as answered.
pub(super) const LISTS: u64 = 4;
/// From this version on topics are named by their ids (KIP-516).
const FIRST_VERSION_BY_ID: i16 = 13;
