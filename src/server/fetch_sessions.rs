//! Fetch sessions (KIP-227): a client names its partitions once and from then on only
//! what changes; an answer holds only what is new.
//!
//! A session belongs to the shard of the connection that made it, and any connection of
//! that shard finds it. Elsewhere, and after it was evicted, it is unknown, and the
//! client starts again with a full fetch: losing a session costs one longer request.
//! Ids of different shards differ, so that no client is ever taken for another.
//!
//! A session moves by one request at a time: each names the epoch that the one before
//! it left. A request that finds its session moved on by another while it waited is
//! answered with an error, since what it would leave out could be unknown to the client.
//!
//! Bounded: by the number of sessions (`max.incremental.fetch.session.cache.slots`) and
//! by the memory of what they remember. Beyond that a fetch is served without a session.
//!
//! What it is not: it reads nothing and knows no connection. Time and randomness come
//! in as values.

use super::fetch_list::{PartitionList, TopicLabel};
use crate::protocol::messages::FetchRequest;
use crate::protocol::ErrorCode;
use crate::runtime::Mono;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

/// What the sessions of one shard may take, and which ids are the shard's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionLimits {
    /// Sessions at once.
    pub sessions_max: usize,
    /// Memory of all sessions, bytes.
    pub bytes_max: usize,
    /// This shard's place and the number of shards: its ids leave the first when
    /// divided by the second.
    pub shard: (usize, usize),
}

/// The sessions of one shard.
pub(super) struct FetchSessions {
    limits: SessionLimits,
    by_id: HashMap<i32, Rc<RefCell<FetchSession>>>,
    by_last_use: BTreeSet<(Mono, i32)>,
    /// Sessions old enough to give way to a larger one: partitions, id.
    evictable: BTreeSet<(usize, i32)>,
    bytes: usize,
}

/// One session.
#[derive(Debug)]
pub(super) struct FetchSession {
    id: i32,
    /// What the next request has to name.
    epoch: i32,
    by_id: bool,
    pub list: PartitionList,
    created: Mono,
    last_used: Mono,
    /// What the cache counts it as: partitions and bytes.
    counted: (usize, usize),
}

/// How a request is to be answered.
pub(super) enum FetchContext {
    /// All that it names, and no session.
    Sessionless(PartitionList),
    /// All that it names; a session is made with the answer if there is room.
    Full(PartitionList),
    /// Of all that the session remembers, what is new.
    Incremental {
        session: Rc<RefCell<FetchSession>>,
        /// The session's epoch, unless another request moves it.
        epoch: i32,
    },
}

impl FetchSessions {
    /// No sessions yet.
    pub fn new(limits: SessionLimits) -> FetchSessions {
        FetchSessions {
            limits,
            by_id: HashMap::new(),
            by_last_use: BTreeSet::new(),
            evictable: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// Finds out what a request asks for. `by_id`: its version names topics by id.
    ///
    /// # Errors
    /// FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
    /// FETCH_SESSION_TOPIC_ID_ERROR.
    pub fn begin(
        &mut self,
        now: Mono,
        by_id: bool,
        request: &FetchRequest,
    ) -> Result<FetchContext, ErrorCode> {
        if matches!(request.session_epoch, EPOCH_INITIAL | EPOCH_FINAL) {
            // A full fetch closes the session that it names.
            self.remove(request.session_id);
            let list = PartitionList::of(by_id, &request.topics);
            return Ok(match request.session_epoch {
                EPOCH_FINAL => FetchContext::Sessionless(list),
                _ => FetchContext::Full(list),
            });
        }
        let found = self.by_id.get(&request.session_id).cloned();
        let found = found.ok_or(ErrorCode::FetchSessionIdNotFound)?;
        let mut session = found.borrow_mut();
        if session.epoch != request.session_epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        // First of all, and also if the session ends below: another request that still
        // waits must see that the list is no longer the one whose places it knows.
        session.epoch = next_epoch(session.epoch);
        session.list.add(by_id, &request.topics);
        for topic in &request.forgotten_topics_data {
            let label = TopicLabel::of(by_id, &topic.topic, topic.topic_id);
            for index in &topic.partitions {
                session.list.forget(&label, *index);
            }
        }
        let is_empty = session.list.len() == 0;
        let others_bytes = self.bytes - session.counted.1;
        let fits = others_bytes + session.list.bytes() <= self.limits.bytes_max;
        if is_empty || !fits {
            drop(session);
            self.remove(request.session_id);
            if !fits {
                // The client starts again, without a session this time.
                return Err(ErrorCode::FetchSessionIdNotFound);
            }
            let list = PartitionList::of(by_id, &request.topics);
            return Ok(FetchContext::Sessionless(list));
        }
        let epoch = session.epoch;
        self.touch(&mut session, now);
        drop(session);
        Ok(FetchContext::Incremental {
            session: found,
            epoch,
        })
    }

    /// Makes a session of what a full fetch named and was answered. Its id, or 0 if
    /// there is no room.
    pub fn keep(
        &mut self,
        now: Mono,
        by_id: bool,
        list: PartitionList,
        random: impl FnMut() -> u64,
    ) -> i32 {
        let (partitions, bytes) = (list.len(), list.bytes());
        if self.limits.sessions_max == 0 || bytes > self.limits.bytes_max {
            return 0;
        }
        while self.by_id.len() >= self.limits.sessions_max
            || self.bytes + bytes > self.limits.bytes_max
        {
            if !self.evict_one_for(partitions, now) {
                return 0;
            }
        }
        let id = self.new_id(random);
        let mut session = FetchSession {
            id,
            epoch: next_epoch(EPOCH_INITIAL),
            by_id,
            list: list.into_kept(),
            created: now,
            last_used: now,
            counted: (0, 0),
        };
        self.touch(&mut session, now);
        self.by_id.insert(id, Rc::new(RefCell::new(session)));
        id
    }

    /// How many sessions there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// About the memory that they hold.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts the session as used now, with the size that it has now.
    fn touch(&mut self, session: &mut FetchSession, now: Mono) {
        self.by_last_use.remove(&(session.last_used, session.id));
        self.evictable.remove(&(session.counted.0, session.id));
        self.bytes -= session.counted.1;
        session.last_used = now;
        session.counted = (session.list.len(), session.list.bytes());
        self.by_last_use.insert((now, session.id));
        if now.since(session.created) > EVICTION {
            self.evictable.insert((session.counted.0, session.id));
        }
        self.bytes += session.counted.1;
    }

    /// Closes a session, if there is one of this id.
    pub fn remove(&mut self, id: i32) {
        if let Some(session) = self.by_id.remove(&id) {
            let session = session.borrow();
            self.by_last_use.remove(&(session.last_used, id));
            self.evictable.remove(&(session.counted.0, id));
            self.bytes -= session.counted.1;
        }
    }

    /// Evicts the session unused for longest, if that is long; otherwise the smallest
    /// of the old ones, if the new one is larger. False if none has to give way.
    fn evict_one_for(&mut self, partitions: usize, now: Mono) -> bool {
        let stale = self
            .by_last_use
            .first()
            .filter(|(last_used, _)| now.since(*last_used) > EVICTION)
            .map(|(_, id)| *id);
        let smaller = || {
            let (other, id) = self.evictable.first()?;
            (*other < partitions).then_some(*id)
        };
        let given_up = stale.or_else(smaller);
        if let Some(id) = given_up {
            self.remove(id);
        }
        given_up.is_some()
    }

    /// A random id of this shard that is not in use.
    fn new_id(&self, mut random: impl FnMut() -> u64) -> i32 {
        let (place, shards) = self.limits.shard;
        let (place, shards) = (place as u64, shards as u64);
        loop {
            let multiples = (i32::MAX as u64 - place) / shards + 1;
            let id = (random() % multiples * shards + place) as i32;
            if id != 0 && !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }
}

impl FetchContext {
    /// Looks at the partitions to read.
    pub fn with_list<T>(&self, look: impl FnOnce(&PartitionList) -> T) -> T {
        match self {
            FetchContext::Sessionless(list) | FetchContext::Full(list) => look(list),
            FetchContext::Incremental { session, .. } => look(&session.borrow().list),
        }
    }
}

impl FetchSession {
    /// Its id.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// What the next request has to name.
    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    #[cfg(test)]
    pub fn set_epoch(&mut self, epoch: i32) {
        self.epoch = epoch;
    }
}

fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        i32::MAX => 1,
        epoch => epoch + 1,
    }
}

/// Asks for a full fetch and a new session.
const EPOCH_INITIAL: i32 = 0;
/// Asks for a full fetch without a session.
const EPOCH_FINAL: i32 = -1;
/// A session unused for this long gives way to any other, one that exists for this long
/// to a larger one (Kafka's `min.incremental.fetch.session.eviction.ms`).
const EVICTION: Duration = Duration::from_secs(120);
