//! Fetches: those that are answered, and those that wait for records.

use super::broker::{Asker, ConnId, Seen};
use super::inbox::FRAME_BYTES_MAX;
use super::store::Store;
use anyhow::Result;
use highwater::protocol::messages::{
    FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse, PartitionData,
};
use highwater::protocol::{ErrorCode, Records};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// No fetch waits longer.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub struct Fetch {
    pub asker: Asker,
    min_bytes: usize,
    max_bytes: usize,
    deadline: Instant,
    /// Each with the topic's id, if it is there.
    topics: Vec<(Option<u32>, FetchTopic)>,
}

impl Fetch {
    pub fn new(asker: Asker, request: FetchRequest, store: &Store, now: Instant) -> Fetch {
        let wait = Duration::from_millis(request.max_wait_ms.max(0) as u64).min(WAIT_MAX);
        let with_id = |topic: FetchTopic| (store.id(&topic.topic), topic);
        Fetch {
            asker,
            // More than can be sent would never be there.
            min_bytes: (request.min_bytes.max(0) as usize).min(FRAME_BYTES_MAX / 2),
            max_bytes: (request.max_bytes.max(0) as usize).min(FRAME_BYTES_MAX),
            deadline: now + wait,
            topics: request.topics.into_iter().map(with_id).collect(),
        }
    }

    /// Whether it is answered at once: enough is there, something is wrong, or it does not wait.
    pub fn is_ready(&self, store: &Store) -> bool {
        let mut bytes = 0;
        if self.min_bytes == 0 {
            return true;
        }
        for (id, topic) in &self.topics {
            for wanted in &topic.partitions {
                let partition = id.and_then(|id| store.partition(id, wanted.partition));
                let Some(partition) = partition else {
                    return true;
                };
                let offset = wanted.fetch_offset;
                if offset < partition.start() || offset > partition.visible {
                    return true;
                }
                bytes += partition.available(offset, self.min_bytes);
                if bytes >= self.min_bytes {
                    return true;
                }
            }
        }
        false
    }

    /// The answer, with what `find` gives for each partition.
    pub fn answer(&self, mut find: impl FnMut(Wanted) -> Result<Seen>) -> Result<FetchResponse> {
        let mut left = self.max_bytes;
        let mut is_first = true;
        let mut responses = Vec::with_capacity(self.topics.len());
        for (id, topic) in &self.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for wanted in &topic.partitions {
                let bytes_max = left.min(wanted.partition_max_bytes.max(0) as usize);
                let mut seen = match id {
                    Some(id) => find(Wanted {
                        topic: *id,
                        partition: wanted.partition,
                        offset: wanted.fetch_offset,
                        bytes_max,
                        at_least_one: is_first,
                    })?,
                    None => Seen::nothing(ErrorCode::UnknownTopicOrPartition),
                };
                let bytes: usize = seen.records.iter().map(|bytes| bytes.len()).sum();
                if bytes > bytes_max && !is_first {
                    seen.records.clear();
                } else if bytes > 0 {
                    is_first = false;
                    left = left.saturating_sub(bytes);
                }
                partitions.push(PartitionData {
                    partition_index: wanted.partition,
                    error_code: seen.error.code(),
                    high_watermark: seen.visible,
                    last_stable_offset: seen.visible,
                    log_start_offset: seen.start,
                    records: Some(Records::from_iter(seen.records)),
                    ..Default::default()
                });
            }
            responses.push(FetchableTopicResponse {
                topic: topic.topic.clone(),
                partitions,
                ..Default::default()
            });
        }
        Ok(FetchResponse {
            responses,
            ..Default::default()
        })
    }
}

/// What a fetch asks of one partition.
pub struct Wanted {
    pub topic: u32,
    pub partition: i32,
    pub offset: i64,
    pub bytes_max: usize,
    /// A batch, even if it is larger than `bytes_max`: only for the first of a whole answer.
    pub at_least_one: bool,
}

/// Fetches that wait. Their partitions list them by id; an id that is here no more was answered.
#[derive(Default)]
pub struct Waiting {
    fetches: HashMap<u64, Fetch>,
    deadlines: BTreeSet<(Instant, u64)>,
    ids: u64,
}

impl Waiting {
    pub fn add(&mut self, fetch: Fetch, store: &mut Store) {
        self.ids += 1;
        for (id, topic) in &fetch.topics {
            for wanted in &topic.partitions {
                if let Some(id) = id {
                    self.list(self.ids, *id, wanted.partition, store);
                }
            }
        }
        self.deadlines.insert((fetch.deadline, self.ids));
        self.fetches.insert(self.ids, fetch);
    }

    fn list(&self, id: u64, topic: u32, partition: i32, store: &mut Store) {
        const CLEAN_AT: usize = 16;
        if let Some(partition) = store.partition_mut(topic, partition) {
            // Each time that the list has doubled, so that those that were answered do not pile up.
            let listed = partition.waiters.len();
            if listed >= CLEAN_AT && listed.is_power_of_two() {
                partition.waiters.retain(|id| self.fetches.contains_key(id));
            }
            partition.waiters.push(id);
        }
    }

    /// A partition has taken a fetch from its list: the fetch, if it is to be answered now; else it is listed again.
    pub fn wake(
        &mut self,
        id: u64,
        topic: u32,
        partition: i32,
        store: &mut Store,
    ) -> Option<Fetch> {
        let fetch = self.fetches.get(&id)?;
        if !fetch.is_ready(store) {
            self.list(id, topic, partition, store);
            return None;
        }
        self.remove(id)
    }

    /// One whose time is over.
    pub fn expired(&mut self, now: Instant) -> Option<Fetch> {
        let (deadline, id) = *self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.remove(id)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    pub fn remove_conn(&mut self, conn: ConnId) {
        let of_conn = |(id, fetch): (&u64, &Fetch)| (fetch.asker.conn == conn).then_some(*id);
        let ids: Vec<u64> = self.fetches.iter().filter_map(of_conn).collect();
        for id in ids {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: u64) -> Option<Fetch> {
        let fetch = self.fetches.remove(&id)?;
        self.deadlines.remove(&(fetch.deadline, id));
        Some(fetch)
    }
}
