//! Fetch sessions against the rules of KIP-227, and against a client that believes
//! every answer.

use super::fetch_list::{Answered, Told, TopicLabel};
use super::fetch_sessions::{FetchContext, FetchSessions, SessionLimits};
use crate::protocol::messages::{FetchPartition, FetchRequest, FetchTopic, ForgottenTopic};
use crate::protocol::{ErrorCode, Str};
use crate::runtime::Mono;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(121);

fn sessions(sessions_max: usize, bytes_max: usize) -> FetchSessions {
    FetchSessions::new(SessionLimits {
        sessions_max,
        bytes_max,
        shard: (0, 1),
    })
}

/// Numbers that differ, as random as a test wants them.
fn numbers() -> impl FnMut() -> u64 {
    let mut next = 0u64;
    move || {
        next = next.wrapping_add(0x9e37_79b9_7f4a_7c15);
        next
    }
}

fn request(session_id: i32, session_epoch: i32, named: &[(u128, i32, i64)]) -> FetchRequest {
    FetchRequest {
        session_id,
        session_epoch,
        topics: named
            .iter()
            .map(|(topic, partition, fetch_offset)| FetchTopic {
                topic: Str::from(format!("topic-{topic}")),
                topic_id: Uuid::from_u128(*topic),
                partitions: vec![FetchPartition {
                    partition: *partition,
                    fetch_offset: *fetch_offset,
                    partition_max_bytes: 100,
                    ..Default::default()
                }],
            })
            .collect(),
        ..Default::default()
    }
}

fn forgetting(mut request: FetchRequest, forgotten: &[(u128, i32)]) -> FetchRequest {
    request.forgotten_topics_data = forgotten
        .iter()
        .map(|(topic, partition)| ForgottenTopic {
            topic: Str::from(format!("topic-{topic}")),
            topic_id: Uuid::from_u128(*topic),
            partitions: vec![*partition],
        })
        .collect();
    request
}

/// What a request reads, in order: topic, partition, offset.
fn reads(context: &FetchContext) -> Vec<(u128, i32, i64)> {
    context.with_list(|list| {
        list.iter()
            .map(|(_, wanted)| {
                let topic = match list.label(wanted.topic) {
                    TopicLabel::Id(id) => id.as_u128(),
                    TopicLabel::Name(name) => name["topic-".len()..].parse().expect("a number"),
                };
                (topic, wanted.index, wanted.offset)
            })
            .collect()
    })
}

/// Begins a full fetch and keeps its session.
fn make(sessions: &mut FetchSessions, now: Mono, named: &[(u128, i32, i64)]) -> i32 {
    let Ok(FetchContext::Full(list)) = sessions.begin(now, true, &request(0, 0, named)) else {
        panic!("a full fetch");
    };
    let mut random = numbers();
    let skip = sessions.len() as u64;
    sessions.keep(now, true, list, move || random().wrapping_add(skip))
}

#[test]
fn given_a_session_then_only_changes_are_named_and_all_is_read() {
    let mut all = sessions(10, 1 << 20);
    let now = Mono(1);
    let id = make(&mut all, now, &[(1, 0, 5), (1, 1, 6), (2, 0, 7)]);
    assert_ne!(id, 0);
    let context = all.begin(now, true, &request(id, 1, &[])).expect("epoch 1");
    assert_eq!(reads(&context), [(1, 0, 5), (1, 1, 6), (2, 0, 7)]);
    let changed = request(id, 2, &[(1, 1, 60), (3, 0, 8)]);
    let changed = forgetting(changed, &[(1, 0), (9, 9)]);
    let context = all.begin(now, true, &changed).expect("epoch 2");
    assert_eq!(reads(&context), [(1, 1, 60), (2, 0, 7), (3, 0, 8)]);
    assert!(matches!(
        context,
        FetchContext::Incremental { epoch: 3, .. }
    ));
}

#[test]
fn given_a_wrong_id_epoch_or_kind_of_topic_then_the_session_stays_as_it_is() {
    let mut all = sessions(10, 1 << 20);
    let now = Mono(1);
    let id = make(&mut all, now, &[(1, 0, 5)]);
    let mut refused = |by_id, id, epoch| {
        let change = request(id, epoch, &[(4, 4, 4)]);
        all.begin(now, by_id, &change).err().expect("refused")
    };
    assert_eq!(refused(true, id ^ 1, 1), ErrorCode::FetchSessionIdNotFound);
    assert_eq!(refused(true, 0, 1), ErrorCode::FetchSessionIdNotFound);
    for epoch in [2, 5, -2, i32::MIN, i32::MAX] {
        let code = refused(true, id, epoch);
        assert_eq!(code, ErrorCode::InvalidFetchSessionEpoch, "{epoch}");
    }
    let code = refused(false, id, 1);
    assert_eq!(code, ErrorCode::FetchSessionTopicIdError);
    let context = all.begin(now, true, &request(id, 1, &[])).expect("epoch 1");
    assert_eq!(reads(&context), [(1, 0, 5)]);
}

#[test]
fn given_epoch_0_or_the_final_one_then_the_named_session_is_closed() {
    for epoch in [0, -1] {
        let mut all = sessions(10, 1 << 20);
        let now = Mono(1);
        let id = make(&mut all, now, &[(1, 0, 5)]);
        let context = all.begin(now, true, &request(id, epoch, &[(2, 0, 1)]));
        let context = context.expect("a full fetch");
        assert_eq!(reads(&context), [(2, 0, 1)]);
        match context {
            FetchContext::Full(_) => assert_eq!(epoch, 0),
            FetchContext::Sessionless(_) => assert_eq!(epoch, -1),
            FetchContext::Incremental { .. } => panic!("a full fetch"),
        }
        assert_eq!((all.len(), all.bytes()), (0, 0));
        let gone = all.begin(now, true, &request(id, 1, &[])).err();
        assert_eq!(gone, Some(ErrorCode::FetchSessionIdNotFound));
    }
}

#[test]
fn given_a_session_that_forgets_everything_then_it_is_closed() {
    let mut all = sessions(10, 1 << 20);
    let id = make(&mut all, Mono(1), &[(1, 0, 5)]);
    let last = forgetting(request(id, 1, &[]), &[(1, 0)]);
    let context = all.begin(Mono(1), true, &last).expect("epoch 1");
    assert!(matches!(context, FetchContext::Sessionless(_)));
    assert_eq!((reads(&context), all.len(), all.bytes()), (vec![], 0, 0));
}

/// What waits knows places of the list that are gone by then.
#[test]
fn given_a_fetch_that_waits_when_another_ends_the_session_then_the_first_sees_it_moved() {
    let more: Vec<(u128, i32, i64)> = (0..10).map(|index| (2, index, 0)).collect();
    for (changed, code) in [
        (forgetting(request(0, 2, &[]), &[(1, 0)]), None),
        (
            forgetting(request(0, 2, &more), &[(1, 0)]),
            Some(ErrorCode::FetchSessionIdNotFound),
        ),
    ] {
        let mut all = sessions(10, 1_000);
        let id = make(&mut all, Mono(1), &[(1, 0, 5)]);
        let waiting = all.begin(Mono(1), true, &request(id, 1, &[]));
        let Ok(FetchContext::Incremental { session, epoch }) = waiting else {
            panic!("an incremental fetch");
        };
        assert_eq!(session.borrow().epoch(), epoch);
        let changed = FetchRequest {
            session_id: id,
            ..changed
        };
        assert_eq!(all.begin(Mono(1), true, &changed).err(), code);
        assert_eq!((all.len(), all.bytes()), (0, 0));
        assert_ne!(session.borrow().epoch(), epoch);
    }
}

#[test]
fn given_a_session_of_nothing_then_partitions_can_join_it() {
    let mut all = sessions(10, 1 << 20);
    let id = make(&mut all, Mono(1), &[]);
    assert_ne!(id, 0);
    let context = all.begin(Mono(1), true, &request(id, 1, &[(1, 0, 5)]));
    assert_eq!(reads(&context.expect("epoch 1")), [(1, 0, 5)]);
}

#[test]
fn given_the_last_epoch_then_the_next_is_1() {
    let mut all = sessions(10, 1 << 20);
    let id = make(&mut all, Mono(1), &[(1, 0, 5)]);
    let context = all.begin(Mono(1), true, &request(id, 1, &[]));
    let Ok(FetchContext::Incremental { session, .. }) = context else {
        panic!("an incremental fetch");
    };
    session.borrow_mut().set_epoch(i32::MAX);
    let context = all.begin(Mono(1), true, &request(id, i32::MAX, &[]));
    assert!(matches!(
        context,
        Ok(FetchContext::Incremental { epoch: 1, .. })
    ));
    assert!(all.begin(Mono(1), true, &request(id, 1, &[])).is_ok());
}

#[test]
fn given_no_room_then_a_session_is_made_only_if_an_old_one_gives_way() {
    let mut all = sessions(2, 1 << 20);
    let start = Mono(1);
    let small = make(&mut all, start, &[(1, 0, 0)]);
    let large = make(&mut all, start, &[(1, 0, 0), (1, 1, 0), (1, 2, 0)]);
    assert!(small != 0 && large != 0);
    let two = [(7, 0, 0), (7, 1, 0)];
    assert_eq!(make(&mut all, start, &two), 0, "both are new");
    // Both are old now, and both in use.
    let later = start + LONG;
    for id in [small, large] {
        assert!(all.begin(later, true, &request(id, 1, &[])).is_ok());
    }
    let one = [(7, 0, 0)];
    assert_eq!(make(&mut all, later, &one), 0, "none is smaller");
    let third = make(&mut all, later, &two);
    assert_ne!(third, 0);
    assert!(all.begin(later, true, &request(small, 2, &[])).is_err());
    assert!(all.begin(later, true, &request(large, 2, &[])).is_ok());
    // Unused for long: gives way to any.
    let much_later = later + LONG;
    assert!(all.begin(much_later, true, &request(third, 1, &[])).is_ok());
    assert_ne!(make(&mut all, much_later, &one), 0);
    assert!(all
        .begin(much_later, true, &request(large, 3, &[]))
        .is_err());
    assert!(all.begin(much_later, true, &request(third, 2, &[])).is_ok());
    assert_eq!(all.len(), 2);
}

#[test]
fn given_no_slots_or_no_memory_then_there_is_no_session() {
    assert_eq!(make(&mut sessions(0, 1 << 20), Mono(1), &[(1, 0, 0)]), 0);
    assert_eq!(make(&mut sessions(5, 200), Mono(1), &[(1, 0, 0)]), 0);
}

#[test]
fn given_memory_for_few_partitions_then_growth_beyond_it_closes_the_session() {
    let mut all = sessions(10, 4_000);
    let now = Mono(1);
    let named: Vec<(u128, i32, i64)> = (0..10).map(|index| (1, index, 0)).collect();
    let first = make(&mut all, now, &named);
    let second = make(&mut all, now, &named);
    assert!(first != 0 && second != 0);
    assert_eq!(make(&mut all, now, &named), 0, "the memory is used up");
    let more: Vec<(u128, i32, i64)> = (0..10).map(|index| (2, index, 0)).collect();
    let refused = all.begin(now, true, &request(first, 1, &more)).err();
    assert_eq!(refused, Some(ErrorCode::FetchSessionIdNotFound));
    assert_eq!(all.len(), 1);
    assert!(all.bytes() <= 4_000);
    assert_ne!(make(&mut all, now, &named), 0, "its memory is free");
}

#[test]
fn given_several_shards_then_their_ids_differ_and_none_is_0_or_in_use() {
    let mut seen = std::collections::HashSet::new();
    for place in 0..3 {
        let mut all = FetchSessions::new(SessionLimits {
            sessions_max: 500,
            bytes_max: 1 << 20,
            shard: (place, 3),
        });
        // Each number comes twice, and 0 comes up first.
        let mut next = 0;
        for _ in 0..500 {
            let context = all.begin(Mono(1), true, &request(0, 0, &[(1, 0, 0)]));
            let Ok(FetchContext::Full(list)) = context else {
                panic!("a full fetch");
            };
            let id = all.keep(Mono(1), true, list, || {
                next += 1;
                next / 2
            });
            assert!(id > 0 && id % 3 == place as i32);
            assert!(seen.insert(id), "{id} is in use");
        }
    }
    assert_eq!(seen.len(), 1_500);
}

/// A partition of the model broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Truth {
    told: Told,
    failed: bool,
}

const SOUND: Truth = Truth {
    told: Told {
        high_watermark: 0,
        last_stable_offset: 0,
        log_start_offset: 0,
    },
    failed: false,
};

/// A client that names what changed and believes what it is told.
#[derive(Default)]
struct Client {
    session: i32,
    epoch: i32,
    /// What it wants: offset by topic and partition.
    wants: BTreeMap<(u128, i32), i64>,
    /// What it has told the broker.
    told: BTreeMap<(u128, i32), i64>,
    /// What it believes.
    believes: BTreeMap<(u128, i32), Truth>,
}

#[derive(Debug, Clone)]
enum Step {
    Want(u128, i32),
    Drop(u128, i32),
    Seek(u128, i32, i64),
    Produce(u128, i32, i64),
    MoveStart(u128, i32),
    MoveStable(u128, i32),
    Fail(u128, i32),
    Heal(u128, i32),
    Fetch,
    /// Another client takes the room: the session is gone.
    Evict,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = || (1..4u128, 0..3i32);
    prop::collection::vec(
        prop_oneof![
            3 => at().prop_map(|(t, p)| Step::Want(t, p)),
            1 => at().prop_map(|(t, p)| Step::Drop(t, p)),
            1 => (at(), 0..9i64).prop_map(|((t, p), o)| Step::Seek(t, p, o)),
            4 => (at(), 1..5i64).prop_map(|((t, p), n)| Step::Produce(t, p, n)),
            1 => at().prop_map(|(t, p)| Step::MoveStart(t, p)),
            1 => at().prop_map(|(t, p)| Step::MoveStable(t, p)),
            1 => at().prop_map(|(t, p)| Step::Fail(t, p)),
            1 => at().prop_map(|(t, p)| Step::Heal(t, p)),
            6 => Just(Step::Fetch),
            1 => Just(Step::Evict),
        ],
        1..80,
    )
}

impl Client {
    /// Fetches once, and checks its view against the truth.
    fn fetch(
        &mut self,
        all: &mut FetchSessions,
        broker: &mut BTreeMap<(u128, i32), Truth>,
        by_id: bool,
        random: &mut impl FnMut() -> u64,
    ) {
        let is_full = self.session == 0;
        if is_full {
            self.told.clear();
        }
        let changed: Vec<(u128, i32, i64)> = self
            .wants
            .iter()
            .filter(|(key, offset)| self.told.get(key) != Some(offset))
            .map(|((topic, partition), offset)| (*topic, *partition, *offset))
            .collect();
        let forgotten: Vec<(u128, i32)> = self
            .told
            .keys()
            .filter(|key| !self.wants.contains_key(key))
            .copied()
            .collect();
        self.told = self.wants.clone();
        self.believes.retain(|key, _| self.wants.contains_key(key));
        let epoch = if is_full { 0 } else { self.epoch };
        let asked = forgetting(request(self.session, epoch, &changed), &forgotten);
        let begun = all.begin(Mono(1), by_id, &asked);
        let context = match begun {
            Ok(context) => context,
            Err(code) => {
                assert_eq!(code, ErrorCode::FetchSessionIdNotFound);
                self.session = 0;
                return self.fetch(all, broker, by_id, random);
            }
        };
        let mut read: Vec<(u128, i32, i64)> = reads(&context);
        read.sort_unstable();
        let wanted: Vec<(u128, i32, i64)> = self
            .wants
            .iter()
            .map(|((topic, partition), offset)| (*topic, *partition, *offset))
            .collect();
        assert_eq!(
            read, wanted,
            "what the broker reads is what the client wants"
        );
        // Answers all; notes what the broker would send.
        let mut sent = Vec::new();
        let mut answer = |list: &mut super::fetch_list::PartitionList, all_of_it: bool| {
            let places: Vec<_> = list
                .iter()
                .map(|(place, wanted)| {
                    let topic = match list.label(wanted.topic) {
                        TopicLabel::Id(id) => id.as_u128(),
                        TopicLabel::Name(name) => name["topic-".len()..].parse().unwrap(),
                    };
                    (place, (topic, wanted.index), wanted.offset)
                })
                .collect();
            for (place, key, offset) in places {
                let truth = *broker.get(&key).unwrap_or(&SOUND);
                let records = !truth.failed && offset < truth.told.high_watermark;
                let answered = Answered {
                    told: if truth.failed {
                        Told::NOTHING
                    } else {
                        truth.told
                    },
                    has_records: records,
                    is_exceptional: truth.failed,
                };
                if list.note(place, &answered) || all_of_it {
                    sent.push((key, truth, records));
                }
            }
        };
        match context {
            FetchContext::Full(mut list) => {
                answer(&mut list, true);
                self.session = all.keep(Mono(1), by_id, list, random);
                self.epoch = 1;
            }
            FetchContext::Sessionless(mut list) => {
                answer(&mut list, true);
                self.session = 0;
            }
            FetchContext::Incremental { session, epoch } => {
                answer(&mut session.borrow_mut().list, false);
                self.epoch = epoch;
            }
        }
        for (key, truth, records) in sent {
            self.believes.insert(key, truth);
            if records {
                self.wants.insert(key, truth.told.high_watermark);
            }
        }
        // The view of a full fetch.
        for key in self.wants.keys() {
            let truth = *broker.get(key).unwrap_or(&SOUND);
            assert_eq!(self.believes.get(key), Some(&truth), "{key:?}");
            if !truth.failed {
                let at = self.wants[key];
                assert!(at >= truth.told.high_watermark, "all records were returned");
            }
        }
    }
}

proptest! {
    #[test]
    fn given_any_changes_then_the_clients_view_is_that_of_a_full_fetch(
        steps in steps(),
        by_id: bool,
    ) {
        let mut all = sessions(1, 1 << 20);
        let mut broker: BTreeMap<(u128, i32), Truth> = BTreeMap::new();
        let mut client = Client::default();
        let mut random = numbers();
        for step in steps {
            let truth = |broker: &mut BTreeMap<(u128, i32), Truth>, t, p, change: &dyn Fn(&mut Truth)| {
                change(broker.entry((t, p)).or_insert(SOUND));
            };
            match step {
                Step::Want(t, p) => {
                    client.wants.entry((t, p)).or_insert(0);
                }
                Step::Drop(t, p) => {
                    client.wants.remove(&(t, p));
                }
                Step::Seek(t, p, offset) => {
                    client.wants.entry((t, p)).and_modify(|at| *at = offset);
                }
                Step::Produce(t, p, n) => truth(&mut broker, t, p, &|truth| {
                    truth.told.high_watermark += n;
                    truth.told.last_stable_offset = truth.told.high_watermark;
                }),
                Step::MoveStart(t, p) => truth(&mut broker, t, p, &|truth| {
                    truth.told.log_start_offset = truth.told.high_watermark;
                }),
                Step::MoveStable(t, p) => truth(&mut broker, t, p, &|truth| {
                    truth.told.last_stable_offset -= 1;
                }),
                Step::Fail(t, p) => truth(&mut broker, t, p, &|truth| truth.failed = true),
                Step::Heal(t, p) => truth(&mut broker, t, p, &|truth| truth.failed = false),
                Step::Fetch => client.fetch(&mut all, &mut broker, by_id, &mut random),
                Step::Evict => {
                    all.begin(Mono(1), by_id, &request(client.session, -1, &[])).expect("final");
                }
            }
            prop_assert!(all.len() <= 1);
        }
        client.fetch(&mut all, &mut broker, by_id, &mut random);
    }
}
