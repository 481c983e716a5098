//! The rules one by one, then random producers against a model that keeps everything.

use super::*;
use crate::storage::producer_snapshot;
use proptest::prelude::*;
use std::collections::HashMap;

fn batch(id: i64, epoch: i16, base_sequence: i32, records: i32) -> BatchProducer {
    BatchProducer {
        id,
        epoch,
        base_sequence,
        last_sequence: sequence_after(base_sequence, records - 1),
        is_transactional: false,
    }
}

/// A log of one partition: what is fresh is appended.
#[derive(Default)]
struct Log {
    states: ProducerStates,
    end: i64,
    now_ms: i64,
}

impl Log {
    fn send(&mut self, batch: BatchProducer) -> Check {
        let check = self.states.check(&batch);
        if check == Check::Fresh {
            let records = sequence_after(batch.last_sequence, -batch.base_sequence) + 1;
            let (base, last) = (self.end, self.end + i64::from(records) - 1);
            let (timestamp, now_ms) = (1_000 + base, self.now_ms);
            self.states.append(&batch, base, last, timestamp, now_ms);
            self.end = last + 1;
        }
        check
    }

    fn duplicate_offset(&mut self, batch: BatchProducer) -> Option<(i64, i64)> {
        match self.send(batch) {
            Check::Duplicate(original) => Some((original.base_offset(), original.last_offset)),
            _ => None,
        }
    }
}

#[test]
fn each_of_the_last_five_batches_is_a_duplicate_with_its_original_offset_and_an_older_one_is_out_of_order(
) {
    let mut log = Log::default();
    for n in 0..7 {
        assert_eq!(log.send(batch(1, 0, n * 3, 3)), Check::Fresh);
    }
    for n in 2..7 {
        let base = i64::from(n) * 3;
        let found = log.duplicate_offset(batch(1, 0, n * 3, 3));
        assert_eq!(found, Some((base, base + 2)));
    }
    let older = log.send(batch(1, 0, 3, 3));
    assert_eq!(older, Check::OutOfOrder { expected: 21 });
    assert_eq!(log.end, 21, "nothing was appended");
}

#[test]
fn a_batch_that_only_overlaps_a_known_one_is_no_duplicate() {
    let mut log = Log::default();
    log.send(batch(1, 0, 0, 5));
    for (base, records) in [(0, 4), (1, 4), (0, 6), (4, 2)] {
        let check = log.send(batch(1, 0, base, records));
        assert_eq!(check, Check::OutOfOrder { expected: 5 }, "{base} {records}");
    }
}

#[test]
fn a_gap_is_refused_and_the_next_sequence_is_taken() {
    let mut log = Log::default();
    log.send(batch(1, 0, 0, 2));
    assert_eq!(
        log.send(batch(1, 0, 3, 1)),
        Check::OutOfOrder { expected: 2 }
    );
    assert_eq!(log.send(batch(1, 0, 2, 1)), Check::Fresh);
}

#[test]
fn sequences_wrap_to_zero_between_batches_and_within_one() {
    let mut log = Log::default();
    assert_eq!(log.send(batch(1, 0, i32::MAX - 1, 2)), Check::Fresh);
    assert_eq!(log.send(batch(1, 0, 0, 2)), Check::Fresh);
    assert_eq!(log.send(batch(2, 0, i32::MAX, 3)), Check::Fresh);
    assert_eq!(log.send(batch(2, 0, 2, 1)), Check::Fresh);
    assert_eq!(
        log.duplicate_offset(batch(2, 0, i32::MAX, 3)),
        Some((4, 6)),
        "one that wraps is known again"
    );
    assert_eq!(
        log.send(batch(1, 0, 1, 1)),
        Check::OutOfOrder { expected: 2 }
    );
}

#[test]
fn an_unknown_producer_may_begin_anywhere_and_a_new_epoch_only_at_zero() {
    let mut log = Log::default();
    assert_eq!(log.send(batch(1, 3, 77, 1)), Check::Fresh);
    assert_eq!(
        log.send(batch(1, 4, 78, 1)),
        Check::OutOfOrder { expected: 0 }
    );
    assert_eq!(log.send(batch(1, 4, 0, 1)), Check::Fresh);
    assert_eq!(log.send(batch(1, 3, 77, 1)), Check::OldEpoch { current: 4 });
    assert_eq!(log.duplicate_offset(batch(1, 4, 0, 1)), Some((1, 1)));
}

#[test]
fn epochs_below_zero_are_taken_as_kafka_takes_them() {
    let mut log = Log::default();
    // -1 stands for "no epoch": nothing is known, so anything follows.
    assert_eq!(log.send(batch(1, -1, 5, 1)), Check::Fresh);
    assert_eq!(log.send(batch(1, -1, 50, 1)), Check::Fresh);
    assert_eq!(log.duplicate_offset(batch(1, -1, 50, 1)), Some((1, 1)));
    assert_eq!(
        log.send(batch(2, -2, 0, 1)),
        Check::OldEpoch { current: -1 }
    );
}

#[test]
fn a_transaction_marker_raises_the_epoch_and_the_next_batch_begins_at_zero() {
    let mut log = Log::default();
    log.send(batch(1, 0, 0, 1));
    let marker = BatchProducer {
        base_sequence: -1,
        last_sequence: -1,
        ..batch(1, 1, 0, 1)
    };
    log.states.append(&marker, 1, 1, 0, 0);
    assert_eq!(log.states.batches_of(1), Some((1, &[][..])));
    assert_eq!(
        log.send(batch(1, 1, 1, 1)),
        Check::OutOfOrder { expected: 0 }
    );
    assert_eq!(log.send(batch(1, 1, 0, 1)), Check::Fresh);
}

#[test]
fn given_many_made_up_ids_then_the_longest_inactive_are_forgotten_and_the_rest_are_known() {
    let mut log = Log::default();
    let ids = 100_000;
    log.send(batch(0, 0, 0, 1));
    for id in 1..ids {
        // A real producer, at work all the time.
        if id % 1_000 == 0 {
            let sequence = (id / 1_000) as i32;
            assert_eq!(log.send(batch(0, 0, sequence, 1)), Check::Fresh);
        }
        log.send(batch(id, 0, 9, 1));
        assert!(log.states.len() <= PRODUCERS_MAX + TIDY_AFTER);
    }
    assert!(log.states.len() >= PRODUCERS_MAX);
    assert!(
        log.states.batches_of(0).is_some(),
        "the one at work is known"
    );
    assert!(
        log.states.batches_of(1).is_none(),
        "the oldest is forgotten"
    );
    for id in ids - PRODUCERS_MAX as i64 + 100..ids {
        assert!(log.states.batches_of(id).is_some(), "{id}");
    }
}

#[test]
fn producers_expire_by_the_brokers_clock() {
    let mut log = Log {
        now_ms: 1_000,
        ..Log::default()
    };
    log.send(batch(1, 0, 0, 1));
    log.now_ms = 2_000;
    log.send(batch(2, 0, 0, 1));
    assert_eq!(log.states.expire(10_999, 10_000), 0);
    assert_eq!(log.states.expire(11_000, 10_000), 1);
    let left: Vec<i64> = log.states.iter().map(|p| p.id).collect();
    assert_eq!(left, [2]);
    assert_eq!(log.send(batch(1, 0, 55, 1)), Check::Fresh, "it is unknown");
}

#[test]
fn a_clone_is_not_changed_by_what_follows() {
    let mut log = Log::default();
    log.send(batch(1, 0, 0, 1));
    let before = log.states.clone();
    log.send(batch(1, 0, 1, 1));
    log.send(batch(2, 0, 0, 1));
    assert_eq!(before.len(), 1);
    assert_eq!(before.batches_of(1).unwrap().1.len(), 1);
}

#[test]
fn given_kafkas_snapshot_then_the_last_batch_is_known_and_the_producer_counts_as_active() {
    let mut log = Log::default();
    for n in 0..3 {
        log.send(batch(1, 2, n, 1));
    }
    let mut entries = log.states.entries();
    entries[0].earlier.clear();
    entries[0].active_ms = None;
    let mut states = ProducerStates::of_entries(&entries, 5_000);
    assert!(matches!(
        states.check(&batch(1, 2, 2, 1)),
        Check::Duplicate(_)
    ));
    assert_eq!(
        states.check(&batch(1, 2, 1, 1)),
        Check::OutOfOrder { expected: 3 }
    );
    assert_eq!(states.expire(5_999, 1_000), 0);
    assert_eq!(states.expire(6_000, 1_000), 1);
}

/// Everything that was appended by one producer under its newest epoch.
type Known = (i16, Vec<(i64, i64, BatchProducer)>);

/// The rules once more, on whole histories and wide numbers.
fn expected(known: Option<&Known>, batch: &BatchProducer) -> Check {
    let Some((epoch, history)) = known else {
        return Check::Fresh;
    };
    let window = &history[history.len().saturating_sub(5)..];
    let same = |b: &&(i64, i64, BatchProducer)| b.2 == *batch;
    if let Some((base, last, _)) = window.iter().find(same) {
        return Check::Duplicate(ProducedBatch {
            last_sequence: batch.last_sequence,
            offset_delta: (last - base) as i32,
            last_offset: *last,
            timestamp: 1_000 + base,
        });
    }
    if batch.epoch < *epoch {
        return Check::OldEpoch { current: *epoch };
    }
    let next = match (batch.epoch == *epoch, history.last()) {
        (true, Some((_, _, last))) if last.last_sequence == i32::MAX => 0,
        (true, Some((_, _, last))) => last.last_sequence + 1,
        _ => 0,
    };
    match batch.base_sequence == next {
        true => Check::Fresh,
        false => Check::OutOfOrder { expected: next },
    }
}

fn step() -> impl Strategy<Value = (i64, u8, usize, i32, i32)> {
    (0i64..4, 0u8..20, 0usize..8, 1i32..4, 0i32..5)
}

proptest! {
    #[test]
    fn random_producers_get_what_the_rules_say(
        start in prop_oneof![Just(0), Just(i32::MAX - 10), Just(500)],
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut log = Log::default();
        let mut model: HashMap<i64, Known> = HashMap::new();
        for (id, kind, back, records, skip) in steps {
            let known = model.get(&id);
            let (epoch, last) = match known {
                Some((epoch, history)) => (*epoch, history.last().map(|b| b.2.last_sequence)),
                None => (0, Some(sequence_after(start, -1))),
            };
            let next = last.map_or(0, |last| sequence_after(last, 1));
            let sent = match kind {
                0 => batch(id, epoch + 1, 0, records),
                1 => batch(id, epoch + 1, skip, records),
                2 if epoch > 0 => batch(id, epoch - 1, next, records),
                3 => batch(id, epoch, sequence_after(next, skip), records),
                4..=9 => {
                    let history = known.map_or(&[][..], |k| &k.1);
                    match history.len().checked_sub(back + 1) {
                        Some(at) => history[at].2,
                        None => batch(id, epoch, next, records),
                    }
                }
                10 => {
                    // A restart: the state goes through its file.
                    let file = producer_snapshot::encode(&log.states.entries());
                    let entries = producer_snapshot::decode(&file).unwrap();
                    prop_assert_eq!(&entries, &log.states.entries());
                    log.states = ProducerStates::of_entries(&entries, 77);
                    prop_assert_eq!(entries, log.states.entries());
                    continue;
                }
                _ => batch(id, epoch, next, records),
            };
            let base = log.end;
            let wanted = expected(model.get(&id), &sent);
            prop_assert_eq!(log.send(sent), wanted, "{:?}", sent);
            if wanted == Check::Fresh {
                let known = model.entry(id).or_insert((sent.epoch, Vec::new()));
                if known.0 != sent.epoch {
                    *known = (sent.epoch, Vec::new());
                }
                known.1.push((base, log.end - 1, sent));
            } else {
                prop_assert_eq!(log.end, base);
            }
        }
    }
}
