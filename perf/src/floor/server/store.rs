//! Topics, and where each batch is: in memory while it is among the latest, and on the disk until it is overwritten.
//!
//! What it is not: it does no I/O. A batch's *place* counts bytes that its file was ever given; see `log.rs`.

use bytes::Bytes;
use highwater::protocol::Str;
use std::collections::{HashMap, VecDeque};

/// Batches whose places are kept, of all partitions.
const BATCHES_MAX: usize = 2_000_000;
/// Batches in memory, however small.
const WINDOW_BATCHES_MAX: usize = 1_000_000;

pub struct Store {
    names: HashMap<Str, u32>,
    /// By id; ids are not used again.
    topics: Vec<Option<Topic>>,
    /// The batches in memory, oldest first: topic and partition.
    window: VecDeque<(u32, u32)>,
    window_bytes: usize,
    window_bytes_max: usize,
    batches: usize,
}

pub struct Topic {
    pub name: Str,
    /// Whether its acknowledgements wait for a flush.
    pub flush: bool,
    pub partitions: Vec<Partition>,
}

#[derive(Default)]
pub struct Partition {
    /// The offset of the next record.
    pub next: i64,
    /// Records below this offset are given to consumers: they are acknowledged.
    pub visible: i64,
    batches: VecDeque<Batch>,
    /// How many of them, from the front, are no longer in memory.
    evicted: usize,
    /// Fetches that wait for a record.
    pub waiters: Vec<u64>,
}

pub struct Batch {
    pub base: i64,
    pub next: i64,
    pub place: u64,
    pub len: u32,
    pub bytes: Option<Bytes>,
}

/// What a fetch finds.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// Nothing at or above the offset yet.
    Nothing,
    /// Whole batches.
    Memory(Vec<Bytes>),
    /// Whole batches, one after another in the topic's file.
    Disk {
        place: u64,
        len: usize,
    },
    OutOfRange,
}

impl Store {
    pub fn new(window_bytes_max: usize) -> Store {
        Store {
            names: HashMap::new(),
            topics: Vec::new(),
            window: VecDeque::new(),
            window_bytes: 0,
            window_bytes_max,
            batches: 0,
        }
    }

    /// `None` if it is there already.
    pub fn create(&mut self, name: Str, partitions: usize, flush: bool) -> Option<u32> {
        let name = name.detached();
        if self.names.contains_key(&name) {
            return None;
        }
        let id = self.topics.len() as u32;
        self.names.insert(name.clone(), id);
        self.topics.push(Some(Topic {
            name,
            flush,
            partitions: (0..partitions).map(|_| Partition::default()).collect(),
        }));
        Some(id)
    }

    pub fn delete(&mut self, name: &str) -> Option<Topic> {
        let id = self.names.remove(name)?;
        let topic = self.topics[id as usize].take()?;
        for partition in &topic.partitions {
            self.batches -= partition.batches.len();
            let in_memory = partition.batches.iter().skip(partition.evicted);
            self.window_bytes -= in_memory.map(|batch| batch.len as usize).sum::<usize>();
        }
        Some(topic)
    }

    pub fn id(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.topics.iter().flatten()
    }

    pub fn topic(&self, id: u32) -> Option<&Topic> {
        self.topics.get(id as usize)?.as_ref()
    }

    pub fn partition(&self, id: u32, partition: i32) -> Option<&Partition> {
        self.topic(id)?.partitions.get(partition as usize)
    }

    pub fn partition_mut(&mut self, id: u32, partition: i32) -> Option<&mut Partition> {
        let topic = self.topics.get_mut(id as usize)?.as_mut()?;
        topic.partitions.get_mut(partition as usize)
    }

    /// Appends a batch to a partition that is there; one with bytes displaces the oldest from memory.
    pub fn append(&mut self, id: u32, index: i32, batch: Batch) {
        let mut batches = self.batches;
        let Some(partition) = self.partition_mut(id, index) else {
            return;
        };
        if batches >= BATCHES_MAX {
            batches -= partition.forget_first() as usize;
        }
        let is_in_memory = batch.bytes.is_some();
        let len = batch.len as usize;
        partition.next = batch.next;
        partition.evicted += usize::from(!is_in_memory);
        partition.batches.push_back(batch);
        self.batches = batches + 1;
        if is_in_memory {
            self.window.push_back((id, index as u32));
            self.window_bytes += len;
            while self.window_bytes > self.window_bytes_max
                || self.window.len() > WINDOW_BATCHES_MAX
            {
                let Some((id, index)) = self.window.pop_front() else {
                    break;
                };
                let partition = self.partition_mut(id, index as i32);
                let evicted = partition.and_then(Partition::evict);
                self.window_bytes -= evicted.unwrap_or(0);
            }
        }
    }

    /// Finds batches from the one with `offset` on: at least one, and more up to `bytes_max`. `is_on_disk` says whether
    /// a place still holds what was written there.
    pub fn find(
        &mut self,
        id: u32,
        index: i32,
        offset: i64,
        bytes_max: usize,
        is_on_disk: impl Fn(u64) -> bool,
    ) -> Found {
        let mut forgotten = 0;
        let Some(partition) = self.partition_mut(id, index) else {
            return Found::OutOfRange;
        };
        while partition.first_is_lost(&is_on_disk) {
            forgotten += partition.forget_first() as usize;
        }
        let found = partition.find(offset, bytes_max);
        self.batches -= forgotten;
        found
    }
}

impl Partition {
    /// The offset of the first record that can be read.
    pub fn start(&self) -> i64 {
        self.batches.front().map_or(self.next, |batch| batch.base)
    }

    /// All batches whose records are acknowledged.
    pub fn batches(&self) -> impl Iterator<Item = &Batch> {
        let visible = self.visible;
        self.batches
            .iter()
            .take_while(move |batch| batch.next <= visible)
    }

    /// Bytes of batches from `offset` on that are acknowledged; stops counting at `enough`.
    pub fn available(&self, offset: i64, enough: usize) -> usize {
        if offset >= self.visible {
            return 0;
        }
        let mut bytes = 0;
        for batch in self.batches.range(self.position(offset)..) {
            if batch.next > self.visible || bytes >= enough {
                break;
            }
            bytes += batch.len as usize;
        }
        bytes
    }

    fn position(&self, offset: i64) -> usize {
        // Consumers that keep up ask for the last ones.
        match self.batches.back() {
            Some(last) if last.base <= offset && offset < last.next => self.batches.len() - 1,
            _ => self.batches.partition_point(|batch| batch.next <= offset),
        }
    }

    fn find(&self, offset: i64, bytes_max: usize) -> Found {
        if offset < self.start() || offset > self.visible {
            return Found::OutOfRange;
        }
        let mut batches = self
            .batches
            .range(self.position(offset)..)
            .take_while(|batch| batch.next <= self.visible);
        let Some(first) = batches.next() else {
            return Found::Nothing;
        };
        let mut len = first.len as usize;
        if let Some(bytes) = &first.bytes {
            let mut found = vec![bytes.clone()];
            for batch in batches {
                len += batch.len as usize;
                match &batch.bytes {
                    Some(bytes) if len <= bytes_max => found.push(bytes.clone()),
                    _ => break,
                }
            }
            return Found::Memory(found);
        }
        let place = first.place;
        for batch in batches {
            let is_next = batch.place == place + len as u64 && batch.bytes.is_none();
            if !is_next || len + batch.len as usize > bytes_max {
                break;
            }
            len += batch.len as usize;
        }
        Found::Disk { place, len }
    }

    /// Takes the oldest that is in memory out of it; its bytes.
    fn evict(&mut self) -> Option<usize> {
        let batch = self.batches.get_mut(self.evicted)?;
        batch.bytes = None;
        self.evicted += 1;
        Some(batch.len as usize)
    }

    fn first_is_lost(&self, is_on_disk: &impl Fn(u64) -> bool) -> bool {
        let first = self.batches.front();
        first.is_some_and(|batch| batch.bytes.is_none() && !is_on_disk(batch.place))
    }

    /// Forgets the first batch, unless it is in memory.
    fn forget_first(&mut self) -> bool {
        let can_go = self.evicted > 0;
        if can_go {
            self.batches.pop_front();
            self.evicted -= 1;
        }
        can_go
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base: i64, records: i64, place: u64, byte: u8) -> Batch {
        Batch {
            base,
            next: base + records,
            place,
            len: 100,
            bytes: Some(Bytes::from(vec![byte; 100])),
        }
    }

    /// Ten batches of two records and 100 bytes; memory for four.
    fn filled() -> (Store, u32) {
        let mut store = Store::new(400);
        let id = store.create(Str::from("t"), 2, false).unwrap();
        for n in 0..10 {
            store.append(id, 0, batch(n * 2, 2, n as u64 * 100, n as u8));
        }
        store.partition_mut(id, 0).unwrap().visible = 18;
        (store, id)
    }

    fn memory(bytes: &[u8]) -> Found {
        Found::Memory(
            bytes
                .iter()
                .map(|&byte| Bytes::from(vec![byte; 100]))
                .collect(),
        )
    }

    #[test]
    fn the_latest_are_in_memory_and_older_ones_on_the_disk() {
        let (mut store, id) = filled();
        let all = |_| true;
        assert_eq!(store.find(id, 0, 13, 1000, all), memory(&[6, 7, 8]));
        assert_eq!(store.find(id, 0, 12, 250, all), memory(&[6, 7]));
        assert_eq!(store.find(id, 0, 12, 1, all), memory(&[6]));
        let disk = |place, len| Found::Disk { place, len };
        assert_eq!(store.find(id, 0, 3, 1000, all), disk(100, 500));
        assert_eq!(store.find(id, 0, 3, 299, all), disk(100, 200));
        // The last is written and not acknowledged.
        assert_eq!(store.find(id, 0, 18, 1000, all), Found::Nothing);
        assert_eq!(store.find(id, 0, 19, 1000, all), Found::OutOfRange);
        assert_eq!(store.find(id, 0, -1, 1000, all), Found::OutOfRange);
        assert_eq!(store.find(id, 1, 0, 1000, all), Found::Nothing);
        assert_eq!(store.find(id, 2, 0, 1000, all), Found::OutOfRange);
        let partition = store.partition(id, 0).unwrap();
        assert_eq!(partition.available(0, 250), 300);
        assert_eq!(partition.available(14, 1000), 200);
        assert_eq!(partition.available(18, 1000), 0);
    }

    #[test]
    fn what_is_overwritten_moves_the_start() {
        let (mut store, id) = filled();
        let from_300 = |place| place >= 300;
        assert_eq!(store.find(id, 0, 5, 1000, from_300), Found::OutOfRange);
        assert_eq!(store.partition(id, 0).unwrap().start(), 6);
        let disk = Found::Disk {
            place: 300,
            len: 300,
        };
        assert_eq!(store.find(id, 0, 6, 1000, from_300), disk);
        // What is in memory does not need the disk.
        assert_eq!(store.find(id, 0, 12, 100, |_| false), memory(&[6]));
    }

    #[test]
    fn a_deleted_topic_leaves_nothing() {
        let (mut store, id) = filled();
        assert!(store.create(Str::from("t"), 1, false).is_none());
        assert!(store.delete("t").is_some());
        assert!(store.delete("t").is_none());
        assert_eq!((store.window_bytes, store.batches), (0, 0));
        assert_eq!(store.find(id, 0, 0, 1, |_| true), Found::OutOfRange);
        let again = store.create(Str::from("t"), 1, false).unwrap();
        assert_ne!(again, id);
        for n in 0..10 {
            store.append(again, 0, batch(n * 2, 2, n as u64 * 100, 1));
        }
        assert_eq!((store.window_bytes, store.window.len()), (400, 4));
    }
}
