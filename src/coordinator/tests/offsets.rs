//! Commits, deletions and the end of groups.

use super::harness::*;
use crate::coordinator::{GroupRequest, GroupResponse, GroupSettings};
use crate::protocol::messages::*;
use crate::protocol::ErrorCode;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn a_commit_is_answered_and_seen_when_it_is_durable() {
    let mut bench = Bench::new();
    let members = bench.stable(1);
    bench.holds = true;
    let commit = bench.commit(&members[0], 1, 5);
    assert!(bench.waits(commit));
    assert_eq!(bench.offset(), -1);
    bench.land();
    assert_eq!(bench.committed(commit), ErrorCode::None);
    assert_eq!(bench.offset(), 5);
    bench.fails = Some(ErrorCode::CoordinatorNotAvailable);
    let commit = bench.commit(&members[0], 1, 6);
    bench.land();
    assert_eq!(bench.committed(commit), ErrorCode::CoordinatorNotAvailable);
    assert_eq!(bench.offset(), 5);
    assert_eq!(bench.restarted().offset(), 5);
}

#[test]
fn commits_are_held_against_member_generation_and_state() {
    let mut bench = Bench::new();
    let refused = |bench: &mut Bench, member: &str, generation| {
        let ticket = bench.commit(member, generation, 1);
        bench.committed(ticket)
    };
    // No group: with a generation it was deleted, or never was.
    assert_eq!(refused(&mut bench, "x", 1), ErrorCode::GroupIdNotFound);
    let older = bench.call(8, GroupRequest::CommitOffsets(committing("x", 1, 1)));
    assert_eq!(bench.committed(older), ErrorCode::IllegalGeneration);
    let members = bench.stable(2);
    let member = &members[1];
    assert_eq!(refused(&mut bench, member, 1), ErrorCode::None);
    assert_eq!(refused(&mut bench, member, 0), ErrorCode::IllegalGeneration);
    assert_eq!(
        refused(&mut bench, member, -1),
        ErrorCode::IllegalGeneration
    );
    assert_eq!(
        refused(&mut bench, "unknown", 1),
        ErrorCode::UnknownMemberId
    );
    assert_eq!(refused(&mut bench, "", -1), ErrorCode::UnknownMemberId);
    // While the others join it may commit what it has read.
    let rejoin = bench.join_as(&members[0]);
    assert_eq!(refused(&mut bench, member, 1), ErrorCode::None);
    let other = bench.join_as(member);
    assert_eq!(bench.joined(rejoin).generation_id, 2);
    bench.joined(other);
    assert_eq!(
        refused(&mut bench, member, 2),
        ErrorCode::RebalanceInProgress
    );
    assert_eq!(refused(&mut bench, member, 1), ErrorCode::IllegalGeneration);
    let leaving = bench.leave(&[(&members[0], None), (member, None)]);
    bench.left(leaving);
    assert_eq!(bench.state(), "Empty");
    assert_eq!(refused(&mut bench, "", -1), ErrorCode::None);
    assert_eq!(refused(&mut bench, member, 2), ErrorCode::UnknownMemberId);
}

#[test]
fn a_commit_is_a_sign_of_life() {
    let mut bench = Bench::new();
    let members = bench.stable(1);
    for offset in 0..5 {
        bench.pass(Duration::from_millis(SESSION_MS as u64 - 1));
        let commit = bench.commit(&members[0], 1, offset);
        assert_eq!(bench.committed(commit), ErrorCode::None);
    }
}

#[test]
fn a_consumer_without_a_group_commits_and_its_group_is_simple() {
    let mut bench = Bench::new();
    let commit = bench.commit("", -1, 7);
    assert_eq!(bench.committed(commit), ErrorCode::None);
    let group = bench.described();
    assert_eq!((&*group.group_state, &*group.protocol_type), ("Empty", ""));
    let overview: Vec<_> = bench.coordinator.groups().collect();
    assert_eq!(overview.len(), 1);
    assert_eq!(
        (overview[0].state, overview[0].group_type),
        ("Empty", "classic")
    );
    let all: Vec<_> = bench.coordinator.committed().collect();
    assert_eq!((all.len(), all[0].topic, all[0].offset), (1, TOPIC, 7));
    assert_eq!(bench.restarted().offset(), 7);
    // One that can't be recorded leaves nothing.
    let mut bench = Bench::new();
    bench.fails = Some(ErrorCode::CoordinatorNotAvailable);
    let commit = bench.commit("", -1, 7);
    assert_eq!(bench.committed(commit), ErrorCode::CoordinatorNotAvailable);
    assert_eq!(bench.coordinator.groups().count(), 0);
}

#[test]
fn an_empty_group_is_deleted_with_its_offsets_in_one_append() {
    let mut bench = Bench::new();
    let missing = bench.delete();
    assert_eq!(bench.deleted(missing), ErrorCode::GroupIdNotFound);
    let members = bench.stable(1);
    let commit = bench.commit(&members[0], 1, 5);
    bench.committed(commit);
    let refused = bench.delete();
    assert_eq!(bench.deleted(refused), ErrorCode::NonEmptyGroup);
    let leaving = bench.leave(&[(&members[0], None)]);
    bench.left(leaving);

    bench.holds = true;
    bench.fails = Some(ErrorCode::NotCoordinator);
    let failing = bench.delete();
    assert_eq!(bench.held.len(), 1);
    bench.land();
    assert_eq!(bench.deleted(failing), ErrorCode::NotCoordinator);
    assert_eq!((bench.state().as_str(), bench.offset()), ("Empty", 5));

    bench.fails = None;
    // A commit on its way goes, too.
    let commit = bench.commit("", -1, 6);
    let deleting = bench.delete();
    assert_eq!(bench.state(), "Dead");
    let twice = bench.delete();
    assert_eq!(bench.deleted(twice), ErrorCode::GroupIdNotFound);
    let late = bench.commit("", -1, 8);
    assert_eq!(bench.committed(late), ErrorCode::CoordinatorNotAvailable);
    let late = bench.join(joining(""));
    assert_eq!(
        code(bench.joined(late).error_code),
        ErrorCode::CoordinatorNotAvailable
    );
    bench.land();
    assert_eq!(bench.committed(commit), ErrorCode::None);
    bench.land();
    assert_eq!(bench.deleted(deleting), ErrorCode::None);
    assert_eq!(bench.coordinator.groups().count(), 0);
    let gone = bench.described();
    assert_eq!(&*gone.group_state, "Dead");
    assert_eq!(code(gone.error_code), ErrorCode::GroupIdNotFound);
    let mut restarted = bench.restarted();
    assert_eq!(restarted.coordinator.groups().count(), 0);
    assert_eq!(restarted.offset(), -1);
}

#[test]
fn a_group_that_is_not_there_is_dead_and_from_version_6_on_not_found() {
    let mut bench = Bench::new();
    let ticket = bench.call(5, GroupRequest::Describe(GROUP.into()));
    let Some(GroupResponse::Described(group)) = bench.answer(ticket) else {
        panic!("no description");
    };
    assert_eq!((group.error_code, group.error_message), (0, None));
    assert_eq!(&*group.group_state, "Dead");
    let group = bench.described();
    assert_eq!(code(group.error_code), ErrorCode::GroupIdNotFound);
    assert_eq!(
        group.error_message.as_deref(),
        Some("Group group not found.")
    );
}

fn delete_offsets(bench: &mut Bench, topic: &'static str) -> OffsetDeleteResponse {
    let request = OffsetDeleteRequest {
        group_id: GROUP.into(),
        topics: vec![OffsetDeleteRequestTopic {
            name: topic.into(),
            partitions: vec![OffsetDeleteRequestPartition::default()],
        }],
    };
    let ticket = bench.call(0, GroupRequest::DeleteOffsets(request));
    match bench.answer(ticket) {
        Some(GroupResponse::OffsetsDeleted(answer)) => answer,
        other => panic!("no answer to a deletion: {other:?}"),
    }
}

#[test]
fn offsets_of_topics_that_are_not_subscribed_are_deleted() {
    let mut bench = Bench::new();
    let missing = delete_offsets(&mut bench, TOPIC);
    assert_eq!(code(missing.error_code), ErrorCode::GroupIdNotFound);
    let members = bench.stable(1);
    let commit = bench.commit(&members[0], 1, 5);
    bench.committed(commit);
    let answer = delete_offsets(&mut bench, "subscribed");
    let error = code(answer.topics[0].partitions[0].error_code);
    assert_eq!(
        (answer.error_code, error),
        (0, ErrorCode::GroupSubscribedToTopic)
    );
    let answer = delete_offsets(&mut bench, TOPIC);
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    assert_eq!(bench.offset(), -1);
    assert_eq!(bench.restarted().offset(), -1);
}

#[test]
fn of_a_group_that_is_not_of_consumers_offsets_are_deleted_when_it_is_empty() {
    let mut bench = Bench::new();
    let request = JoinGroupRequest {
        protocol_type: "connect".into(),
        ..joining("")
    };
    let join = bench.call(3, GroupRequest::Join(request));
    bench.pass(DELAY);
    let member = bench.joined(join).member_id;
    let refused = delete_offsets(&mut bench, TOPIC);
    assert_eq!(code(refused.error_code), ErrorCode::NonEmptyGroup);
    let leaving = bench.leave(&[(&member, None)]);
    bench.left(leaving);
    assert_eq!(delete_offsets(&mut bench, TOPIC).error_code, 0);
}

#[test]
fn an_empty_groups_offsets_expire_and_the_group_goes_with_them() {
    let mut bench = Bench::new();
    let members = bench.stable(1);
    let commit = bench.commit(&members[0], 1, 5);
    bench.committed(commit);
    // The topic is not subscribed; but it was committed while the group lives.
    for _ in 0..6 * 24 * 3_600 / 9 {
        bench.pass(Duration::from_secs(9));
        bench.heartbeat(&members[0], 1);
    }
    assert_eq!(bench.offset(), 5);
    let leaving = bench.leave(&[(&members[0], None)]);
    bench.left(leaving);
    // Seven days count from when it became empty.
    bench.pass(6 * DAY);
    assert_eq!(bench.offset(), 5);
    bench.pass(DAY + Duration::from_secs(600));
    assert_eq!(bench.coordinator.groups().count(), 0);
    assert_eq!(bench.restarted().coordinator.groups().count(), 0);
}

#[test]
fn a_stable_groups_offsets_expire_where_it_is_not_subscribed() {
    let mut bench = Bench::with(GroupSettings {
        offsets_retention_ms: 60_000,
        offsets_retention_check_interval: Duration::from_secs(30),
        ..Default::default()
    });
    let members = bench.stable(1);
    let commit = bench.commit(&members[0], 1, 5);
    bench.committed(commit);
    for _ in 0..20 {
        bench.pass(Duration::from_secs(5));
        bench.heartbeat(&members[0], 1);
    }
    assert_eq!(bench.offset(), -1);
    assert_eq!(bench.state(), "Stable");
}

#[test]
fn a_simple_groups_offsets_expire_by_their_commits() {
    let mut bench = Bench::new();
    let commit = bench.commit("", -1, 1);
    bench.committed(commit);
    bench.pass(6 * DAY);
    let commit = bench.commit("", -1, 2);
    bench.committed(commit);
    bench.pass(6 * DAY);
    assert_eq!(bench.offset(), 2);
    bench.pass(2 * DAY);
    assert_eq!(bench.coordinator.groups().count(), 0);
}

/// A group with more offsets than a batch can hold.
fn with_many_offsets() -> Bench {
    let mut bench = Bench::new();
    let partitions = (0..30_000).map(|partition_index| OffsetCommitRequestPartition {
        partition_index,
        committed_offset: 1,
        ..Default::default()
    });
    let mut request = committing("", -1, 1);
    request.topics[0].partitions = partitions.collect();
    let commit = bench.call(9, GroupRequest::CommitOffsets(request));
    assert_eq!(bench.committed(commit), ErrorCode::None);
    bench
}

#[test]
fn a_group_with_more_offsets_than_a_batch_can_hold_is_deleted_bit_by_bit() {
    let mut bench = with_many_offsets();
    bench.holds = true;
    let deletion = bench.delete();
    bench.land();
    assert!(bench.waits(deletion), "more is to be deleted");
    let commit = bench.commit("", -1, 1);
    let refused = bench.committed(commit);
    assert_eq!(refused, ErrorCode::CoordinatorNotAvailable);
    bench.fails = Some(ErrorCode::NotCoordinator);
    bench.land();
    assert_eq!(bench.deleted(deletion), ErrorCode::NotCoordinator);
    assert!(bench.held.is_empty());
    assert_eq!(bench.state(), "Empty");
    bench.fails = None;
    let deletion = bench.delete();
    let mut appends = 0;
    while let Some(append) = bench.held.front() {
        let bytes: usize = append.records.iter().map(|it| it.key.len()).sum();
        assert!(bytes < 1_000_000, "{bytes} bytes at once");
        assert!(bench.waits(deletion));
        bench.land();
        appends += 1;
    }
    assert!(appends > 1);
    assert_eq!(bench.deleted(deletion), ErrorCode::None);
    assert_eq!(bench.coordinator.groups().count(), 0);
    assert_eq!(bench.restarted().coordinator.groups().count(), 0);
}

#[test]
fn more_offsets_than_a_batch_can_hold_expire_bit_by_bit() {
    let mut bench = with_many_offsets();
    let before = bench.log.len();
    bench.now.wall_ms += bench.settings.offsets_retention_ms;
    bench.pass(Duration::from_secs(600));
    let first = bench.log.len() - before;
    assert!(first > 0 && first < 20_000, "{first} at once");
    bench.pass(3 * Duration::from_secs(600));
    assert_eq!(bench.coordinator.groups().count(), 0);
    assert_eq!(bench.log.len(), before + 30_000 + 1);
}

#[test]
fn an_empty_group_without_offsets_goes_at_the_next_look() {
    let mut bench = Bench::new();
    let members = bench.stable(1);
    let leaving = bench.leave(&[(&members[0], None)]);
    bench.left(leaving);
    bench.fails = Some(ErrorCode::CoordinatorNotAvailable);
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.state(), "Empty");
    bench.fails = None;
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.coordinator.groups().count(), 0);
}

#[test]
fn a_deleted_topics_offsets_go() {
    let mut bench = Bench::new();
    let commit = bench.commit("", -1, 1);
    bench.committed(commit);
    bench.topics_deleted(&["other"]);
    assert_eq!(bench.offset(), 1);
    bench.topics_deleted(&["other", TOPIC]);
    assert_eq!(bench.offset(), -1);
    assert_eq!(bench.restarted().offset(), -1);
}

#[test]
fn a_topic_that_is_deleted_while_its_group_is_takes_its_offsets_even_if_that_fails() {
    let mut bench = Bench::new();
    let commit = bench.commit("", -1, 1);
    bench.committed(commit);
    bench.holds = true;
    let deletion = bench.delete();
    bench.topics_deleted(&[TOPIC]);
    bench.fails = Some(ErrorCode::CoordinatorNotAvailable);
    bench.land();
    assert_eq!(bench.deleted(deletion), ErrorCode::CoordinatorNotAvailable);
    assert_eq!(bench.offset(), 1);
    bench.fails = None;
    bench.land();
    assert_eq!(bench.offset(), -1);
    assert_eq!(bench.restarted().offset(), -1);
}

#[test]
fn the_empty_group_id_can_commit_and_nothing_else() {
    let mut bench = Bench::new();
    let commit = OffsetCommitRequest {
        group_id: "".into(),
        ..committing("", -1, 3)
    };
    let ticket = bench.call(9, GroupRequest::CommitOffsets(commit));
    assert_eq!(bench.committed(ticket), ErrorCode::None);
}
