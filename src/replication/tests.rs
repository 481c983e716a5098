//! The replica's rules, one by one and over random sequences of events.

use super::{Replica, ReplicaEffect, ReplicaEvent, ReplicaStart};
use crate::config::FlushOnAck;
use proptest::prelude::*;

fn start(flush_on_ack: FlushOnAck) -> ReplicaStart {
    ReplicaStart {
        leader_epoch: 0,
        flush_on_ack,
        min_insync_replicas: 1,
        flush_messages: i64::MAX,
        replication_factor: 1,
        log_start_offset: 0,
        end_offset: 0,
        flushed_offset: 0,
        high_watermark: 0,
    }
}

fn policy(flush_on_ack: FlushOnAck) -> ReplicaEvent {
    ReplicaEvent::PolicyChanged {
        flush_on_ack,
        min_insync_replicas: 1,
        flush_messages: i64::MAX,
    }
}

fn moved(high_watermark: i64) -> ReplicaEffect {
    ReplicaEffect::HighWatermarkMoved { high_watermark }
}

#[test]
fn under_all_and_any_the_hw_waits_for_the_flush() {
    for flush_on_ack in [FlushOnAck::All, FlushOnAck::Any] {
        let mut replica = Replica::new(start(flush_on_ack));
        let effects = replica.on(ReplicaEvent::Written { end_offset: 10 });
        assert_eq!(effects.as_slice(), [ReplicaEffect::FlushWanted]);
        assert_eq!(replica.high_watermark(), 0);
        let effects = replica.on(ReplicaEvent::Flushed { offset: 4 });
        assert_eq!(effects.as_slice(), [moved(4), ReplicaEffect::FlushWanted]);
        let effects = replica.on(ReplicaEvent::Flushed { offset: 10 });
        assert_eq!(effects.as_slice(), [moved(10)]);
        assert!(replica.on(ReplicaEvent::Flushed { offset: 10 }).is_empty());
    }
}

#[test]
fn under_none_the_hw_follows_the_write_and_no_flush_is_wanted() {
    let mut replica = Replica::new(start(FlushOnAck::None));
    let effects = replica.on(ReplicaEvent::Written { end_offset: 10 });
    assert_eq!(effects.as_slice(), [moved(10)]);
    assert!(!replica.wants_flush());
    assert!(replica.on(ReplicaEvent::Flushed { offset: 10 }).is_empty());
}

#[test]
fn under_none_a_flush_is_wanted_once_so_many_records_are_unflushed() {
    let mut replica = Replica::new(ReplicaStart {
        flush_messages: 10,
        ..start(FlushOnAck::None)
    });
    let effects = replica.on(ReplicaEvent::Written { end_offset: 9 });
    assert_eq!(effects.as_slice(), [moved(9)]);
    let effects = replica.on(ReplicaEvent::Written { end_offset: 11 });
    assert_eq!(effects.as_slice(), [moved(11), ReplicaEffect::FlushWanted]);
    // What comes while it is flushed waits for its own turn.
    let effects = replica.on(ReplicaEvent::Flushed { offset: 11 });
    assert!(effects.is_empty());
    let effects = replica.on(ReplicaEvent::Written { end_offset: 20 });
    assert_eq!(effects.as_slice(), [moved(20)]);
    let fewer = ReplicaEvent::PolicyChanged {
        flush_on_ack: FlushOnAck::None,
        min_insync_replicas: 1,
        flush_messages: 9,
    };
    assert_eq!(replica.on(fewer).as_slice(), [ReplicaEffect::FlushWanted]);
}

#[test]
fn under_none_what_is_due_is_flushed_and_no_more() {
    let mut replica = Replica::new(start(FlushOnAck::None));
    assert!(replica.on(ReplicaEvent::FlushDue).is_empty());
    replica.on(ReplicaEvent::Written { end_offset: 5 });
    let effects = replica.on(ReplicaEvent::FlushDue);
    assert_eq!(effects.as_slice(), [ReplicaEffect::FlushWanted]);
    replica.on(ReplicaEvent::Written { end_offset: 7 });
    assert!(replica.on(ReplicaEvent::Flushed { offset: 5 }).is_empty());
    assert!(!replica.wants_flush());
}

#[test]
fn when_the_policy_is_tightened_the_hw_waits_and_never_falls() {
    let mut replica = Replica::new(start(FlushOnAck::None));
    replica.on(ReplicaEvent::Written { end_offset: 10 });
    let effects = replica.on(policy(FlushOnAck::All));
    assert_eq!(effects.as_slice(), [ReplicaEffect::FlushWanted]);
    assert_eq!(replica.high_watermark(), 10);
    assert_eq!(replica.durable_offset(), 0);
    replica.on(ReplicaEvent::Written { end_offset: 20 });
    replica.on(ReplicaEvent::Flushed { offset: 5 });
    assert_eq!(replica.high_watermark(), 10);
    let effects = replica.on(ReplicaEvent::Flushed { offset: 20 });
    assert_eq!(effects.as_slice(), [moved(20)]);
}

#[test]
fn when_the_policy_is_loosened_the_hw_rises_to_the_leo() {
    let mut replica = Replica::new(start(FlushOnAck::All));
    replica.on(ReplicaEvent::Written { end_offset: 10 });
    let effects = replica.on(policy(FlushOnAck::None));
    assert_eq!(effects.as_slice(), [moved(10)]);
}

#[test]
fn the_checkpointed_hw_is_brought_between_log_start_and_leo() {
    let loaded = |high_watermark| {
        Replica::new(ReplicaStart {
            log_start_offset: 5,
            end_offset: 9,
            flushed_offset: 9,
            high_watermark,
            ..start(FlushOnAck::All)
        })
    };
    assert_eq!(loaded(0).high_watermark(), 5);
    assert_eq!(loaded(7).high_watermark(), 7);
    assert_eq!(loaded(12).high_watermark(), 9);
    let mut replica = loaded(7);
    let effects = replica.on(ReplicaEvent::BecameLeader { epoch: 3 });
    assert_eq!(effects.as_slice(), [moved(9)]);
    assert_eq!(replica.leader_epoch(), 3);
}

#[test]
fn with_too_few_in_sync_acks_all_is_refused_and_the_hw_stands() {
    let mut replica = Replica::new(ReplicaStart {
        min_insync_replicas: 2,
        replication_factor: 3,
        ..start(FlushOnAck::None)
    });
    assert!(!replica.has_enough_in_sync());
    assert!(replica
        .on(ReplicaEvent::Written { end_offset: 10 })
        .is_empty());
    let effects = replica.on(policy(FlushOnAck::None));
    assert_eq!(effects.as_slice(), [moved(10)]);
}

#[test]
fn min_insync_replicas_counts_only_up_to_the_replication_factor() {
    let replica = Replica::new(ReplicaStart {
        min_insync_replicas: 2,
        replication_factor: 1,
        ..start(FlushOnAck::All)
    });
    assert_eq!(replica.in_sync_replicas_min(), 1);
    assert!(replica.has_enough_in_sync());
}

#[test]
fn a_log_start_beyond_the_hw_lifts_it() {
    let mut replica = Replica::new(start(FlushOnAck::All));
    replica.on(ReplicaEvent::Written { end_offset: 10 });
    let effects = replica.on(ReplicaEvent::LogStartMoved { offset: 6 });
    assert_eq!(effects.as_slice(), [moved(6), ReplicaEffect::FlushWanted]);
    assert_eq!(replica.log_start_offset(), 6);
}

#[derive(Debug, Clone)]
enum Step {
    Write(i64),
    /// Flushes this many thousandths of what is not flushed.
    Flush(i64),
    Policy(FlushOnAck, usize),
    LogStart(i64),
    FlushDue,
    Lead,
}

fn any_policy() -> impl Strategy<Value = FlushOnAck> {
    prop_oneof![
        Just(FlushOnAck::All),
        Just(FlushOnAck::Any),
        Just(FlushOnAck::None)
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..50i64).prop_map(Step::Write),
        4 => (0..=1000i64).prop_map(Step::Flush),
        1 => (any_policy(), 1..4usize).prop_map(|(p, min)| Step::Policy(p, min)),
        1 => (0..=1000i64).prop_map(Step::LogStart),
        1 => Just(Step::FlushDue),
        1 => Just(Step::Lead),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn over_random_events_the_invariants_hold(
        first in any_policy(),
        replication_factor in 1..4usize,
        steps in prop::collection::vec(any_step(), 0..200),
    ) {
        let mut replica = Replica::new(ReplicaStart {
            replication_factor,
            ..start(first)
        });
        let mut epoch = 0;
        for step in steps {
            let before = replica.clone();
            let share = |of: i64, from: i64| from + (replica.end_offset() - from) * of / 1000;
            let event = match step {
                Step::Write(count) => ReplicaEvent::Written { end_offset: replica.end_offset() + count },
                Step::Flush(of) => ReplicaEvent::Flushed { offset: share(of, replica.flushed_offset()) },
                Step::Policy(flush_on_ack, min_insync_replicas) =>
                    ReplicaEvent::PolicyChanged {
                        flush_on_ack,
                        min_insync_replicas,
                        flush_messages: 1 + 20 * min_insync_replicas as i64,
                    },
                Step::FlushDue => ReplicaEvent::FlushDue,
                Step::LogStart(of) => ReplicaEvent::LogStartMoved { offset: share(of, replica.log_start_offset()) },
                Step::Lead => {
                    epoch += 1;
                    ReplicaEvent::BecameLeader { epoch }
                }
            };
            let effects = replica.on(event);
            let hw = replica.high_watermark();
            prop_assert!(hw >= before.high_watermark(), "the HW fell");
            prop_assert!(hw >= replica.log_start_offset());
            prop_assert!(hw <= replica.end_offset());
            prop_assert!(replica.flushed_offset() <= replica.end_offset());
            prop_assert!(replica.durable_offset() <= replica.end_offset());
            if hw > before.high_watermark() {
                prop_assert!(
                    hw <= replica.durable_offset().max(replica.log_start_offset()),
                    "the HW moved beyond what is durable"
                );
            }
            if replica.has_enough_in_sync() {
                prop_assert!(hw >= replica.durable_offset(), "the HW lags what is durable");
            }
            let said_moved = effects.iter().any(|e| matches!(e, ReplicaEffect::HighWatermarkMoved { high_watermark } if *high_watermark == hw));
            prop_assert_eq!(said_moved, hw != before.high_watermark());
            prop_assert_eq!(effects.contains(&ReplicaEffect::FlushWanted), replica.wants_flush());
        }
    }
}
