//! Committed offsets: tables, and a model in which whatever is written, done or failed
//! gives the same state as a replay of the log.

use super::*;
use crate::coordinator::records::{Entry, OffsetsRecord};
use crate::protocol::messages::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
};
use proptest::prelude::*;
use std::collections::VecDeque;

const GROUP: Str = Str::from_static("g");
const TERMS: CommitTerms = CommitTerms {
    now_ms: 1_000,
    retention_time_ms: -1,
    metadata_bytes_max: 4,
};

fn committing(topic: &str, partitions: &[(i32, i64, &str)]) -> Vec<OffsetCommitRequestTopic> {
    let partitions = partitions.iter();
    let of = |(partition, offset, metadata): &(i32, i64, &str)| OffsetCommitRequestPartition {
        partition_index: *partition,
        committed_offset: *offset,
        committed_leader_epoch: 3,
        committed_metadata: Some(Str::from(metadata.to_string())),
    };
    vec![OffsetCommitRequestTopic {
        name: Str::from(topic.to_owned()),
        partitions: partitions.map(of).collect(),
    }]
}

fn deleting(topic: &str, partitions: &[i32]) -> Vec<OffsetDeleteRequestTopic> {
    let partitions = partitions.iter();
    vec![OffsetDeleteRequestTopic {
        name: Str::from(topic.to_owned()),
        partitions: partitions
            .map(|index| OffsetDeleteRequestPartition {
                partition_index: *index,
            })
            .collect(),
    }]
}

/// Topic, partition, offset, leader epoch, metadata, commit and expire timestamp.
type Row = (String, i32, i64, i32, String, i64, Option<i64>);

fn rows(offsets: &GroupOffsets) -> Vec<Row> {
    let row = |(topic, partition, it): (&str, i32, &CommittedOffset)| {
        let (topic, metadata) = (topic.to_owned(), it.metadata.to_string());
        let times = (it.commit_timestamp_ms, it.expire_timestamp_ms);
        (
            topic,
            partition,
            it.offset,
            it.leader_epoch,
            metadata,
            times.0,
            times.1,
        )
    };
    offsets.iter().map(row).collect()
}

fn replay_record(
    offsets: &mut GroupOffsets,
    at: i64,
    transaction: Option<i64>,
    record: OffsetsRecord,
) {
    match Entry::decode(record.key, record.value) {
        Ok(Entry::Offset { key, value }) => {
            assert_eq!(key.group, GROUP);
            offsets.replay(at, transaction, &key.topic, key.partition, value.as_ref());
        }
        other => panic!("no offset: {other:?}"),
    }
}

fn offset_of(offsets: &GroupOffsets, topic: &str, partition: i32) -> i64 {
    offsets.get(topic, partition).map_or(-1, |it| it.offset)
}

#[test]
fn a_commit_is_seen_once_it_is_durable() {
    let mut offsets = GroupOffsets::default();
    let (answer, first) =
        offsets.commit(&GROUP, &committing("t", &[(0, 5, "m"), (1, 6, "")]), TERMS);
    assert!(answer[0].partitions.iter().all(|it| it.error_code == 0));
    let (_, second) = offsets.commit(&GROUP, &committing("t", &[(0, 7, "n")]), TERMS);
    assert_eq!((rows(&offsets), offsets.is_empty()), (vec![], false));
    offsets.done(first.unwrap().change);
    assert_eq!(offset_of(&offsets, "t", 0), 5);
    offsets.failed(second.unwrap().change);
    let expected = ("t".to_owned(), 0, 5, 3, "m".to_owned(), 1_000, None);
    assert_eq!(rows(&offsets)[0], expected);
    assert_eq!(offsets.len(), 2);
    assert!(offsets.in_flight.is_empty());
}

#[test]
fn metadata_that_is_too_long_refuses_its_partition_alone() {
    let mut offsets = GroupOffsets::default();
    let asked = committing(
        "t",
        &[
            (0, 1, "12345"),
            (1, 2, "1234"),
            (2, 3, "\u{e4}\u{f6}\u{fc}\u{df}"),
        ],
    );
    let (answer, prepared) = offsets.commit(&GROUP, &asked, TERMS);
    let codes: Vec<i16> = answer[0]
        .partitions
        .iter()
        .map(|it| it.error_code)
        .collect();
    assert_eq!(codes, [12, 0, 0], "units are counted, not bytes");
    assert_eq!(prepared.unwrap().records.len(), 2);
    let (answer, prepared) = offsets.commit(&GROUP, &committing("t", &[(0, 1, "12345")]), TERMS);
    assert_eq!(
        (answer[0].partitions[0].error_code, prepared.is_none()),
        (12, true)
    );
    let long = Str::from("g".repeat(40_000));
    let (answer, prepared) = offsets.commit(&long, &committing("t", &[(0, 1, "")]), TERMS);
    let code = ErrorCode::InvalidGroupId.code();
    assert_eq!(
        (answer[0].partitions[0].error_code, prepared.is_none()),
        (code, true)
    );
}

#[test]
fn an_earlier_commit_never_replaces_a_later_one() {
    let mut offsets = GroupOffsets::default();
    let (_, first) = offsets.commit(&GROUP, &committing("t", &[(0, 5, "")]), TERMS);
    let (_, second) = offsets.commit(&GROUP, &committing("t", &[(0, 6, "")]), TERMS);
    offsets.done(second.unwrap().change);
    offsets.done(first.unwrap().change);
    assert_eq!(offset_of(&offsets, "t", 0), 6);
}

#[test]
fn what_is_not_there_is_fetched_as_minus_one_and_null_fetches_all() {
    let mut offsets = GroupOffsets::default();
    let (_, prepared) = offsets.commit(&GROUP, &committing("t", &[(0, 5, "m"), (2, 6, "")]), TERMS);
    offsets.done(prepared.unwrap().change);
    let asked = OffsetFetchRequestTopics {
        name: "t".into(),
        partition_indexes: vec![1, 0],
    };
    let absent = OffsetFetchRequestTopics {
        name: "u".into(),
        partition_indexes: vec![9],
    };
    let answer = offsets.fetch(Some(&[asked, absent]), false);
    let all: Vec<_> = answer.iter().flat_map(|topic| &topic.partitions).collect();
    let got = |it: &OffsetFetchResponsePartitions| {
        (
            it.partition_index,
            it.committed_offset,
            it.committed_leader_epoch,
            it.error_code,
        )
    };
    let got: Vec<_> = all.iter().map(|it| got(it)).collect();
    assert_eq!(got, [(1, -1, -1, 0), (0, 5, 3, 0), (9, -1, -1, 0)]);
    assert_eq!(all[0].metadata, Some(Str::default()));
    assert_eq!(all[1].metadata, Some("m".into()));
    let all = offsets.fetch(None, false);
    assert_eq!((all.len(), all[0].partitions.len()), (1, 2));
    assert_eq!(GroupOffsets::default().fetch(None, true), []);
}

#[test]
fn a_deletion_takes_what_is_there_and_not_what_is_subscribed() {
    let mut offsets = GroupOffsets::default();
    let (_, there) = offsets.commit(&GROUP, &committing("t", &[(0, 5, ""), (1, 6, "")]), TERMS);
    offsets.done(there.unwrap().change);
    let (_, coming) = offsets.commit(&GROUP, &committing("t", &[(2, 7, "")]), TERMS);
    let subscribed = |topic: &str| topic == "t";
    let (answer, prepared) = offsets.delete(&GROUP, &deleting("t", &[0]), &subscribed);
    let code = ErrorCode::GroupSubscribedToTopic.code();
    assert_eq!(
        (answer[0].partitions[0].error_code, prepared.is_none()),
        (code, true)
    );
    let (answer, prepared) = offsets.delete(&GROUP, &deleting("t", &[0, 2, 8]), &|_| false);
    assert!(answer[0].partitions.iter().all(|it| it.error_code == 0));
    let prepared = prepared.unwrap();
    assert_eq!(prepared.records.len(), 2, "one of them is still in flight");
    assert_eq!(offset_of(&offsets, "t", 0), 5, "until it is durable");
    offsets.done(coming.unwrap().change);
    offsets.done(prepared.change);
    let left: Vec<i32> = offsets.iter().map(|(_, partition, _)| partition).collect();
    assert_eq!(left, [1]);
    assert!(offsets.topics_deleted(&GROUP, &["u"]).is_empty());
    for gone in offsets.topics_deleted(&GROUP, &["u", "t"]) {
        offsets.done(gone.change);
    }
    assert!(offsets.is_empty() && offsets.delete_some(&GROUP).0.is_none());
}

#[test]
fn a_transactions_offsets_hold_when_it_is_committed_and_later_ones_stay() {
    for committed in [true, false] {
        let mut offsets = GroupOffsets::default();
        let value = |offset| OffsetCommitValue {
            offset,
            ..Default::default()
        };
        offsets.replay(10, None, "t", 0, Some(&value(1)));
        offsets.replay(11, Some(7), "t", 0, Some(&value(2)));
        offsets.replay(12, Some(7), "t", 1, Some(&value(3)));
        offsets.replay(13, None, "t", 1, Some(&value(4)));
        offsets.replay(14, Some(8), "t", 2, Some(&value(5)));
        offsets.replay(15, None, "t", 2, None);
        assert_eq!(offset_of(&offsets, "t", 0), 1);
        let fetched = &offsets.fetch(None, true)[0].partitions;
        let code = ErrorCode::UnstableOffsetCommit.code();
        assert!(fetched
            .iter()
            .all(|it| (it.error_code, it.committed_offset) == (code, -1)));
        let fetched = &offsets.fetch(None, false)[0].partitions;
        assert!(fetched
            .iter()
            .all(|it| it.error_code == 0 && it.committed_offset > 0));
        let expired = offsets.expire(&GROUP, i64::MAX, 1, RetentionFrom::Commit, &|_| false);
        assert!(
            expired.prepared.is_none() && !expired.is_all,
            "they are unstable"
        );
        assert!(offsets.is_unstable("t", 0));
        offsets.end_transaction(7, committed);
        offsets.end_transaction(8, true);
        offsets.end_transaction(9, true);
        let expected = if committed { 2 } else { 1 };
        assert_eq!(
            (offset_of(&offsets, "t", 0), offset_of(&offsets, "t", 1)),
            (expected, 4)
        );
        assert_eq!(offset_of(&offsets, "t", 2), -1, "the tombstone was later");
        assert!(offsets.transactions.is_empty());
        // A live commit is later than all that was replayed.
        let (_, live) = offsets.commit(&GROUP, &committing("t", &[(1, 9, "")]), TERMS);
        offsets.done(live.unwrap().change);
        assert_eq!(offset_of(&offsets, "t", 1), 9);
    }
}

#[test]
fn offsets_expire_as_kip_211_says() {
    let (day, retention) = (86_400_000, 7 * 86_400_000);
    let fresh = || {
        let mut offsets = GroupOffsets::default();
        for (partition, retention_time_ms) in [(0, -1), (1, day)] {
            let asked = committing("t", &[(partition, 5, "")]);
            let terms = CommitTerms {
                retention_time_ms,
                ..TERMS
            };
            let (_, prepared) = offsets.commit(&GROUP, &asked, terms);
            offsets.done(prepared.unwrap().change);
        }
        offsets
    };
    let own = 1_000 + day;
    let by_commit = 1_000 + retention;
    let by_empty = 500 + retention + day;
    let empty = RetentionFrom::Empty(500 + day);
    for (now, from, subscribed, expected) in [
        (own - 1, RetentionFrom::Commit, false, 0),
        (own, RetentionFrom::Commit, false, 1),
        (own, RetentionFrom::Commit, true, 0),
        (by_commit - 1, RetentionFrom::Commit, false, 1),
        (by_commit, RetentionFrom::Commit, false, 2),
        (by_commit, RetentionFrom::Commit, true, 0),
        (by_commit, empty, false, 1),
        (by_empty - 1, empty, false, 1),
        (by_empty, empty, false, 2),
    ] {
        let mut offsets = fresh();
        let expired = offsets.expire(&GROUP, now, retention, from, &|_| subscribed);
        let gone = expired.prepared.as_ref().map_or(0, |it| it.records.len());
        let what = format!("{now} {from:?} {subscribed}");
        assert_eq!((gone, expired.is_all), (expected, expected == 2), "{what}");
        if let Some(prepared) = expired.prepared {
            offsets.done(prepared.change);
        }
        assert_eq!(offsets.len(), 2 - expected, "{what}");
    }
    let mut offsets = fresh();
    let (_, again) = offsets.commit(&GROUP, &committing("t", &[(0, 6, "")]), TERMS);
    let expired = offsets.expire(&GROUP, by_commit, retention, RetentionFrom::Commit, &|_| {
        false
    });
    let gone = expired.prepared.unwrap();
    assert_eq!(
        (gone.records.len(), expired.is_all),
        (1, false),
        "one is being committed"
    );
    offsets.done(again.unwrap().change);
    offsets.done(gone.change);
    assert_eq!(offset_of(&offsets, "t", 0), 6);
    assert!(
        GroupOffsets::default()
            .expire(&GROUP, 0, 0, empty, &|_| false)
            .is_all
    );
}

#[test]
fn many_tombstones_are_several_batches_and_many_expire_bit_by_bit() {
    const COUNT: i32 = 30_000;
    let mut offsets = GroupOffsets::default();
    for partition in 0..COUNT {
        let value = OffsetCommitValue::default();
        offsets.replay(i64::from(partition), None, "t", partition, Some(&value));
    }
    let mut sizes = Vec::new();
    while !offsets.is_empty() {
        let expired = offsets.expire(&GROUP, 10, 1, RetentionFrom::Commit, &|_| false);
        let prepared = expired.prepared.unwrap();
        sizes.push(prepared.records.len());
        offsets.done(prepared.change);
        assert_eq!(expired.is_all, offsets.is_empty());
    }
    assert_eq!((sizes.len(), sizes.iter().sum()), (2, COUNT as usize));
    for partition in 0..COUNT {
        let value = OffsetCommitValue::default();
        offsets.replay(i64::from(partition), None, "t", partition, Some(&value));
    }
    let gone = offsets.topics_deleted(&GROUP, &["t"]);
    let those: Vec<usize> = gone.iter().map(|it| it.records.len()).collect();
    assert_eq!(those, sizes);
    for prepared in gone {
        offsets.done(prepared.change);
    }
    assert!(offsets.is_empty());
}

#[test]
fn names_and_metadata_keep_no_frame_alive() {
    let frame = bytes::Bytes::from(vec![b'x'; 1 << 20]);
    let text = Str::try_from(frame.slice(..3)).unwrap();
    let asked = vec![OffsetCommitRequestTopic {
        name: text.clone(),
        partitions: vec![OffsetCommitRequestPartition {
            committed_metadata: Some(text.clone()),
            ..Default::default()
        }],
    }];
    let mut offsets = GroupOffsets::default();
    let (answer, prepared) = offsets.commit(&text, &asked, TERMS);
    drop((answer, asked, text));
    assert!(frame.is_unique(), "a pending commit holds no frame");
    offsets.done(prepared.unwrap().change);
    assert_eq!(offset_of(&offsets, "xxx", 0), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Commit {
        topic: u8,
        partitions: Vec<(i32, i64)>,
        retention: i64,
    },
    Delete {
        topic: u8,
        partitions: Vec<i32>,
    },
    DeleteTopic(u8),
    Expire {
        now: i64,
        subscribed: u8,
    },
    DeleteAll,
    Transact {
        producer: i64,
        topic: u8,
        partition: i32,
        offset: i64,
    },
    End {
        producer: i64,
        committed: bool,
    },
    Land {
        succeeds: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let partition = 0..3i32;
    prop_oneof![
        6 => (0..3u8, prop::collection::vec((partition.clone(), 0..100i64), 1..4), prop_oneof![Just(-1), 0..50i64])
            .prop_map(|(topic, partitions, retention)| Step::Commit { topic, partitions, retention }),
        2 => (0..3u8, prop::collection::vec(partition.clone(), 1..3))
            .prop_map(|(topic, partitions)| Step::Delete { topic, partitions }),
        1 => (0..3u8).prop_map(Step::DeleteTopic),
        1 => (0..200i64, 0..4u8).prop_map(|(now, subscribed)| Step::Expire { now, subscribed }),
        1 => Just(Step::DeleteAll),
        2 => (0..2i64, 0..3u8, partition, 0..100i64)
            .prop_map(|(producer, topic, partition, offset)| Step::Transact { producer, topic, partition, offset }),
        1 => (0..2i64, any::<bool>()).prop_map(|(producer, committed)| Step::End { producer, committed }),
        8 => prop::bool::weighted(0.8).prop_map(|succeeds| Step::Land { succeeds }),
    ]
}

enum Logged {
    Record(Option<i64>, OffsetsRecord),
    End(i64, bool),
}

proptest! {
    #[test]
    fn a_replay_of_what_was_written_gives_the_state(steps in prop::collection::vec(step(), 0..60)) {
        let name = |topic: u8| format!("t{topic}");
        let mut live = GroupOffsets::default();
        let mut log = Vec::new();
        let mut in_flight: VecDeque<Prepared> = VecDeque::new();
        let land = |live: &mut GroupOffsets, log: &mut Vec<Logged>, prepared: Prepared, succeeds: bool| {
            if succeeds {
                log.extend(prepared.records.into_iter().map(|it| Logged::Record(None, it)));
                live.done(prepared.change);
            } else {
                live.failed(prepared.change);
            }
        };
        for (now, step) in steps.into_iter().enumerate() {
            let prepared = match step {
                Step::Commit { topic, partitions, retention } => {
                    let all: Vec<_> = partitions.into_iter().map(|(p, offset)| (p, offset, "m")).collect();
                    let terms = CommitTerms { now_ms: now as i64, retention_time_ms: retention, metadata_bytes_max: 9 };
                    live.commit(&GROUP, &committing(&name(topic), &all), terms).1
                }
                Step::Delete { topic, partitions } => {
                    live.delete(&GROUP, &deleting(&name(topic), &partitions), &|_| false).1
                }
                Step::DeleteTopic(topic) => live.topics_deleted(&GROUP, &[&name(topic)]).pop(),
                Step::Expire { now, subscribed } => {
                    let subscribed = |topic: &str| topic == name(subscribed);
                    live.expire(&GROUP, now, 20, RetentionFrom::Commit, &subscribed).prepared
                }
                Step::DeleteAll => live.delete_some(&GROUP).0,
                // Transactions are served nowhere yet: what they write lands at once.
                Step::Transact { producer, topic, partition, offset } if in_flight.is_empty() => {
                    let value = OffsetCommitValue { offset, ..Default::default() };
                    let topic = Str::from(name(topic));
                    let record = OffsetsRecord::offset(&GROUP, &topic, partition, Some(&value)).unwrap();
                    let at = live.next_order;
                    replay_record(&mut live, at, Some(producer), record.clone());
                    log.push(Logged::Record(Some(producer), record));
                    None
                }
                Step::End { producer, committed } if in_flight.is_empty() => {
                    live.end_transaction(producer, committed);
                    log.push(Logged::End(producer, committed));
                    None
                }
                Step::Transact { .. } | Step::End { .. } => None,
                Step::Land { succeeds } => {
                    if let Some(prepared) = in_flight.pop_front() {
                        land(&mut live, &mut log, prepared, succeeds);
                    }
                    None
                }
            };
            in_flight.extend(prepared);
        }
        for prepared in in_flight {
            land(&mut live, &mut log, prepared, true);
        }
        let mut replayed = GroupOffsets::default();
        for (at, logged) in log.into_iter().enumerate() {
            match logged {
                Logged::Record(transaction, record) => {
                    replay_record(&mut replayed, at as i64, transaction, record);
                }
                Logged::End(producer, committed) => replayed.end_transaction(producer, committed),
            }
        }
        prop_assert_eq!(rows(&live), rows(&replayed));
        let open = |offsets: &GroupOffsets| {
            let rows = |pending: &ByTopic<Box<CommittedOffset>>| {
                let rows = pending.iter();
                rows.map(|(t, p, it)| (t.to_owned(), p, it.offset)).collect::<Vec<_>>()
            };
            let open = offsets.transactions.iter();
            let open = open.map(|(producer, pending)| (*producer, rows(pending)));
            // One whose offsets were all deleted says nothing any more.
            open.filter(|(_, rows)| !rows.is_empty()).collect::<Vec<_>>()
        };
        prop_assert_eq!(open(&live), open(&replayed));
        prop_assert!(live.in_flight.is_empty());
    }
}
