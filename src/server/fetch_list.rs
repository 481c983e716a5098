//! The partitions that a fetch reads, in the order in which it reads them: those of one
//! request, or those that a fetch session (KIP-227) remembers.
//!
//! Topics are numbered within the list, so that a partition is three numbers and no name
//! is cloned for it. A partition is in the list once: named again, its new parameters
//! count and its place stays. One whose records were returned goes to the back, so that
//! the first ones cannot use up the byte limit for ever.
//!
//! What it is not: it looks nothing up. A topic that does not exist is kept like any
//! other: it may be created later.

use crate::protocol::messages::{FetchPartition, FetchTopic};
use crate::protocol::Str;
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// What the request's version calls a topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum TopicLabel {
    /// Before version 13.
    Name(Str),
    /// From version 13 on (KIP-516).
    Id(Uuid),
}

/// What a client wants of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The topic's number in the list.
    pub topic: u32,
    /// The partition's number in its topic.
    pub index: i32,
    /// The first offset wanted.
    pub offset: i64,
    /// -1 if the client does not know it.
    pub current_leader_epoch: i32,
    /// The epoch of the last record that the client has; -1 if it does not say.
    pub last_fetched_epoch: i32,
    /// Bytes of this partition.
    pub bytes_max: usize,
    told: Told,
}

/// The numbers of an answer that an incremental one leaves out unless they moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
}

impl Told {
    /// What a client was told that was told nothing, or an error.
    pub const NOTHING: Told = Told {
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
    };
}

/// The answer for one partition, as far as the list has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answered {
    pub told: Told,
    /// It carries records.
    pub has_records: bool,
    /// It carries an error or a diverging epoch.
    pub is_exceptional: bool,
}

/// The partitions of a request or of a session.
#[derive(Debug, Default)]
pub(super) struct PartitionList {
    /// Labels are copied out of the frame: the list outlives it.
    is_kept: bool,
    topics: Vec<TopicSlot>,
    topics_free: Vec<u32>,
    numbers: HashMap<TopicLabel, u32>,
    label_bytes: usize,
    /// By place; the lowest is read first.
    order: BTreeMap<u64, Wanted>,
    places: HashMap<(u32, i32), u64>,
    next_place: u64,
}

#[derive(Debug)]
struct TopicSlot {
    label: TopicLabel,
    partitions: usize,
}

impl PartitionList {
    /// The partitions that a request names.
    pub fn of(by_id: bool, topics: &[FetchTopic]) -> PartitionList {
        let mut list = PartitionList::default();
        list.add(by_id, topics);
        list
    }

    /// Adds what a request names, or changes what is there already.
    pub fn add(&mut self, by_id: bool, topics: &[FetchTopic]) {
        for topic in topics {
            if topic.partitions.is_empty() {
                continue;
            }
            let number = self.number(TopicLabel::of(by_id, &topic.topic, topic.topic_id));
            for partition in &topic.partitions {
                self.set(number, partition);
            }
        }
    }

    /// Takes a partition out; nothing happens if it is not there.
    pub fn forget(&mut self, label: &TopicLabel, index: i32) {
        let Some(topic) = self.numbers.get(label).copied() else {
            return;
        };
        let Some(place) = self.places.remove(&(topic, index)) else {
            return;
        };
        self.order.remove(&place);
        let slot = &mut self.topics[topic as usize];
        slot.partitions -= 1;
        if slot.partitions == 0 {
            slot.label = TopicLabel::Id(Uuid::nil());
            self.numbers.remove(label);
            self.label_bytes -= label.bytes();
            self.topics_free.push(topic);
        }
        let sparse = |room: usize, len: usize| room > 4 * (len + SPARE);
        if sparse(self.topics.len(), self.numbers.len())
            || sparse(self.numbers.capacity(), self.numbers.len())
            || sparse(self.places.capacity(), self.places.len())
        {
            self.compact();
        }
    }

    /// Gives back the memory of what was forgotten: [`PartitionList::bytes`] counts what
    /// is there, and budgets rely on it. Topics get new numbers, places stay.
    fn compact(&mut self) {
        let mut numbers = vec![0; self.topics.len()];
        let mut topics = Vec::with_capacity(self.numbers.len());
        for (old, slot) in std::mem::take(&mut self.topics).into_iter().enumerate() {
            if slot.partitions > 0 {
                numbers[old] = topics.len() as u32;
                topics.push(slot);
            }
        }
        self.topics = topics;
        self.topics_free = Vec::new();
        for number in self.numbers.values_mut() {
            *number = numbers[*number as usize];
        }
        self.numbers.shrink_to_fit();
        self.places = HashMap::with_capacity(self.order.len());
        for (place, wanted) in &mut self.order {
            wanted.topic = numbers[wanted.topic as usize];
            self.places.insert((wanted.topic, wanted.index), *place);
        }
    }

    /// The same list, keeping no frame alive.
    pub fn into_kept(mut self) -> PartitionList {
        for slot in &mut self.topics {
            slot.label = slot.label.detached();
        }
        let numbers = std::mem::take(&mut self.numbers);
        self.numbers = numbers
            .into_values()
            .map(|number| (self.topics[number as usize].label.clone(), number))
            .collect();
        self.is_kept = true;
        self
    }

    /// How many partitions there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// About the memory that the list holds, for budgets.
    pub fn bytes(&self) -> usize {
        self.order.len() * PARTITION_BYTES + self.numbers.len() * TOPIC_BYTES + self.label_bytes
    }

    /// The partitions in the order in which they are to be read, each with its place.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Wanted)> {
        self.order.iter().map(|(place, wanted)| (*place, wanted))
    }

    /// What the requests call the topic of this number.
    pub fn label(&self, topic: u32) -> &TopicLabel {
        &self.topics[topic as usize].label
    }

    /// Notes the answer for the partition at `place`, and says whether an incremental
    /// answer has to hold it.
    pub fn note(&mut self, place: u64, answered: &Answered) -> bool {
        let is_only = self.order.len() == 1;
        let wanted = self.order.get_mut(&place).expect("the place is the list's");
        let must_answer =
            answered.has_records || answered.is_exceptional || wanted.told != answered.told;
        wanted.told = if answered.is_exceptional {
            // So that it is answered once more when it is well again.
            Told::NOTHING
        } else {
            answered.told
        };
        if answered.has_records && !is_only {
            self.move_to_back(place);
        }
        must_answer
    }

    fn move_to_back(&mut self, place: u64) {
        let wanted = self.order.remove(&place).expect("the place is the list's");
        self.places
            .insert((wanted.topic, wanted.index), self.next_place);
        self.order.insert(self.next_place, wanted);
        self.next_place += 1;
    }

    fn number(&mut self, label: TopicLabel) -> u32 {
        if let Some(number) = self.numbers.get(&label) {
            return *number;
        }
        let label = if self.is_kept {
            label.detached()
        } else {
            label
        };
        self.label_bytes += label.bytes();
        let slot = TopicSlot {
            label: label.clone(),
            partitions: 0,
        };
        let number = match self.topics_free.pop() {
            Some(free) => {
                self.topics[free as usize] = slot;
                free
            }
            None => {
                self.topics.push(slot);
                (self.topics.len() - 1) as u32
            }
        };
        self.numbers.insert(label, number);
        number
    }

    fn set(&mut self, topic: u32, partition: &FetchPartition) {
        let mut wanted = Wanted {
            topic,
            index: partition.partition,
            offset: partition.fetch_offset,
            current_leader_epoch: partition.current_leader_epoch.max(-1),
            last_fetched_epoch: partition.last_fetched_epoch.max(-1),
            bytes_max: partition.partition_max_bytes.max(0) as usize,
            told: Told::NOTHING,
        };
        let next_place = self.next_place;
        let place = *self
            .places
            .entry((topic, partition.partition))
            .or_insert(next_place);
        if place == next_place {
            self.next_place += 1;
            self.topics[topic as usize].partitions += 1;
        } else {
            wanted.told = self.order[&place].told;
        }
        self.order.insert(place, wanted);
    }
}

impl TopicLabel {
    /// The label that a request's version uses.
    pub fn of(by_id: bool, name: &Str, id: Uuid) -> TopicLabel {
        if by_id {
            TopicLabel::Id(id)
        } else {
            TopicLabel::Name(name.clone())
        }
    }

    fn detached(&self) -> TopicLabel {
        match self {
            TopicLabel::Name(name) => TopicLabel::Name(name.detached()),
            TopicLabel::Id(id) => TopicLabel::Id(*id),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            TopicLabel::Name(name) => name.len(),
            TopicLabel::Id(_) => 0,
        }
    }
}

/// Room for so many entries is kept whatever is forgotten.
const SPARE: usize = 16;
/// About what a partition takes in both maps.
const PARTITION_BYTES: usize = 160;
/// About what a topic takes beside its name.
const TOPIC_BYTES: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, partitions: &[(i32, i64)]) -> FetchTopic {
        FetchTopic {
            topic: Str::from(name.to_owned()),
            partitions: partitions
                .iter()
                .map(|(partition, fetch_offset)| FetchPartition {
                    partition: *partition,
                    fetch_offset: *fetch_offset,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }
    }

    fn wanted(list: &PartitionList) -> Vec<(String, i32, i64)> {
        list.iter()
            .map(|(_, wanted)| {
                let TopicLabel::Name(name) = list.label(wanted.topic) else {
                    panic!("the list is by name");
                };
                (name.to_string(), wanted.index, wanted.offset)
            })
            .collect()
    }

    #[test]
    fn given_a_partition_named_twice_then_the_last_parameters_count_at_the_first_place() {
        let list = PartitionList::of(
            false,
            &[topic("a", &[(0, 1), (1, 1)]), topic("a", &[(0, 7)])],
        );
        assert_eq!(
            wanted(&list),
            [("a".to_owned(), 0, 7), ("a".to_owned(), 1, 1)]
        );
    }

    #[test]
    fn given_partitions_forgotten_then_their_topics_slots_are_used_again() {
        let mut list = PartitionList::of(false, &[topic("a", &[(0, 1)]), topic("b", &[(0, 2)])]);
        list = list.into_kept();
        let empty = PartitionList::default().bytes();
        for round in 0..100 {
            let name = format!("topic-{round}");
            list.add(false, &[topic(&name, &[(3, round)])]);
            list.forget(&TopicLabel::Name(Str::from(name)), 3);
        }
        assert!(list.topics.len() <= 3);
        for name in ["a", "b"] {
            list.forget(&TopicLabel::Name(Str::from_static(name)), 9);
            list.forget(&TopicLabel::Name(Str::from_static(name)), 0);
        }
        assert_eq!((list.len(), list.bytes()), (0, empty));
    }

    #[test]
    fn given_many_forgotten_then_their_memory_is_given_back_and_the_rest_stays() {
        let many: Vec<FetchTopic> = (0..3_000)
            .map(|i| topic(&format!("topic-{i}"), &[(0, i), (1, i), (2, i)]))
            .collect();
        let mut list = PartitionList::of(false, &many).into_kept();
        for (i, topic) in many.iter().enumerate() {
            let label = TopicLabel::Name(topic.topic.clone());
            let indexes = if i % 1000 == 999 { 1..2 } else { 0..3 };
            indexes.for_each(|index| list.forget(&label, index));
        }
        let left: Vec<(String, i32, i64)> = [999, 1999, 2999]
            .into_iter()
            .flat_map(|i| [0, 2].map(|index| (format!("topic-{i}"), index, i)))
            .collect();
        assert_eq!(wanted(&list), left);
        let room = [
            list.topics.len(),
            list.numbers.capacity(),
            list.places.capacity(),
        ];
        assert!(room.iter().all(|room| *room <= 200), "{room:?}");
        assert!(
            list.topics.iter().map(|t| t.label.bytes()).sum::<usize>() <= list.label_bytes,
            "names of forgotten topics are kept"
        );
        // It works on: known topics are found again, and places are where they were.
        list.add(
            false,
            &[topic("topic-999", &[(2, 7)]), topic("new", &[(0, 8)])],
        );
        let mut expected = left;
        expected[1].2 = 7;
        expected.push(("new".to_owned(), 0, 8));
        assert_eq!(wanted(&list), expected);
        let first = list.iter().next().expect("seven").0;
        let records = Answered {
            told: Told::NOTHING,
            has_records: true,
            is_exceptional: false,
        };
        assert!(list.note(first, &records));
        list.forget(&TopicLabel::Name(Str::from_static("topic-999")), 0);
        expected.remove(0);
        assert_eq!(wanted(&list), expected);
    }

    #[test]
    fn given_records_returned_then_the_partition_goes_to_the_back() {
        let mut list = PartitionList::of(false, &[topic("a", &[(0, 0), (1, 0), (2, 0)])]);
        let told = Told {
            high_watermark: 5,
            ..Told::NOTHING
        };
        let first = list.iter().next().expect("three").0;
        let records = Answered {
            told,
            has_records: true,
            is_exceptional: false,
        };
        assert!(list.note(first, &records));
        let order: Vec<i32> = list.iter().map(|(_, wanted)| wanted.index).collect();
        assert_eq!(order, [1, 2, 0]);
        let back = list.iter().last().expect("three").0;
        let nothing_new = Answered {
            has_records: false,
            ..records
        };
        assert!(!list.note(back, &nothing_new));
        let failed = Answered {
            told: Told::NOTHING,
            is_exceptional: true,
            ..nothing_new
        };
        assert!(list.note(back, &failed));
        assert!(list.note(back, &failed), "an error is always answered");
        assert!(list.note(back, &nothing_new), "it is well again");
        assert!(!list.note(back, &nothing_new));
    }
}
