//! SyncGroup, heartbeats, leaving, timeouts and static members.

use super::harness::*;
use crate::coordinator::{GroupRequest, GroupSettings};
use crate::protocol::messages::*;
use crate::protocol::{ErrorCode, Str};
use std::time::Duration;

const SESSION: Duration = Duration::from_millis(SESSION_MS as u64);

/// A group whose members have joined and not synced; the leader first.
fn completing(bench: &mut Bench, count: usize) -> Vec<Str> {
    let joins: Vec<_> = (0..count).map(|_| bench.join_new()).collect();
    bench.pass_until_answered(joins[0].1);
    let answers: Vec<_> = joins.into_iter().map(|it| bench.joined(it.1)).collect();
    let leader = answers[0].leader.clone();
    let mut members: Vec<_> = answers.into_iter().map(|it| it.member_id).collect();
    members.sort_by_key(|member| *member != leader);
    members
}

fn sync_with(bench: &mut Bench, request: SyncGroupRequest) -> ErrorCode {
    let ticket = bench.call(5, GroupRequest::Sync(request));
    code(bench.synced(ticket).error_code)
}

#[test]
fn followers_wait_for_the_leader_whose_assignments_are_durable_first() {
    let mut bench = Bench::new();
    let members = completing(&mut bench, 3);
    let follower = bench.sync(&members[1], 1, &[]);
    assert!(bench.waits(follower));
    bench.holds = true;
    // Who is no member gets nothing, and who is given nothing an empty assignment.
    let given = [
        (&members[1], "one"),
        (&Str::from("nobody"), "x"),
        (&members[0], "zero"),
    ];
    let leader = bench.sync(&members[0], 1, &given);
    assert!(bench.waits(leader) && bench.waits(follower));
    assert_eq!(bench.state(), "CompletingRebalance");
    // A second sync of the leader changes nothing.
    let again = bench.sync(&members[0], 1, &[(&members[1], "other")]);
    assert_eq!(
        code(bench.synced(leader).error_code),
        ErrorCode::RebalanceInProgress
    );
    assert_eq!(bench.held.len(), 1);
    bench.land();
    assert_eq!(&bench.synced(again).assignment[..], b"zero");
    let answer = bench.synced(follower);
    assert_eq!(&answer.assignment[..], b"one");
    assert_eq!(answer.protocol_name.as_deref(), Some("range"));
    assert_eq!(answer.protocol_type.as_deref(), Some("consumer"));
    let last = bench.sync(&members[2], 1, &[]);
    assert_eq!(&bench.synced(last).assignment[..], b"");
    assert_eq!(bench.state(), "Stable");
}

#[test]
fn syncs_that_break_a_rule_are_refused() {
    let mut bench = Bench::new();
    let members = completing(&mut bench, 1);
    let member = &members[0];
    let valid = || syncing(member, 1, &[]);
    for (request, error) in [
        (
            SyncGroupRequest {
                group_id: "".into(),
                ..valid()
            },
            ErrorCode::InvalidGroupId,
        ),
        (
            SyncGroupRequest {
                group_id: "unknown".into(),
                ..valid()
            },
            ErrorCode::UnknownMemberId,
        ),
        (
            syncing(&"unknown".into(), 1, &[]),
            ErrorCode::UnknownMemberId,
        ),
        (syncing(member, 0, &[]), ErrorCode::IllegalGeneration),
        (syncing(member, 2, &[]), ErrorCode::IllegalGeneration),
        (
            SyncGroupRequest {
                protocol_type: Some("connect".into()),
                ..valid()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            SyncGroupRequest {
                protocol_name: Some("other".into()),
                ..valid()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            SyncGroupRequest {
                protocol_name: None,
                ..valid()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            SyncGroupRequest {
                group_instance_id: Some("unknown".into()),
                ..valid()
            },
            ErrorCode::UnknownMemberId,
        ),
    ] {
        assert_eq!(sync_with(&mut bench, request), error);
    }
    // Before version 5 the names are not sent.
    let unnamed = SyncGroupRequest {
        protocol_type: None,
        protocol_name: None,
        ..valid()
    };
    let ticket = bench.call(4, GroupRequest::Sync(unnamed));
    assert_eq!(bench.synced(ticket).error_code, 0);
    let leader = bench.join_as(member);
    bench.joined(leader);
    bench.join_new();
    let late = sync_with(&mut bench, syncing(member, 2, &[]));
    assert_eq!(late, ErrorCode::RebalanceInProgress);
}

#[test]
fn when_the_assignments_cannot_be_appended_the_members_join_again() {
    for error in [
        ErrorCode::CoordinatorNotAvailable,
        ErrorCode::UnknownServerError,
    ] {
        let mut bench = Bench::new();
        let members = completing(&mut bench, 2);
        let follower = bench.sync(&members[1], 1, &[]);
        bench.fails = Some(error);
        let leader = bench.sync(&members[0], 1, &[(&members[1], "one")]);
        assert_eq!(code(bench.synced(follower).error_code), error);
        assert_eq!(code(bench.synced(leader).error_code), error);
        assert_eq!(bench.state(), "PreparingRebalance");
        bench.fails = None;
        let joins = [&members[0], &members[1]].map(|it| bench.join_as(it));
        assert_eq!(joins.map(|it| bench.joined(it).generation_id), [2, 2]);
        bench.sync_all(&members, 2);
    }
}

#[test]
fn assignments_that_become_durable_too_late_are_nobodys() {
    let mut bench = Bench::new();
    let members = completing(&mut bench, 2);
    bench.holds = true;
    let leader = bench.sync(&members[0], 1, &[(&members[1], "one")]);
    let rejoin = bench.join(JoinGroupRequest {
        protocols: protocols(&["range", "other"]),
        ..joining(&members[1])
    });
    assert_eq!(
        code(bench.synced(leader).error_code),
        ErrorCode::RebalanceInProgress
    );
    bench.land();
    assert_eq!(bench.state(), "PreparingRebalance");
    let second = bench.join_as(&members[0]);
    assert_eq!(bench.joined(rejoin).generation_id, 2);
    assert_eq!(bench.joined(second).generation_id, 2);
    let waiting = bench.sync(&members[1], 2, &[]);
    assert!(bench.waits(waiting));
}

#[test]
fn members_that_do_not_sync_are_removed_after_the_rebalance_timeout() {
    let mut bench = Bench::new();
    let members = completing(&mut bench, 3);
    let syncs = [&members[1], &members[2]].map(|it| bench.sync(it, 1, &[]));
    // The leader sends heartbeats and no assignments.
    for _ in 0..11 {
        bench.pass(Duration::from_secs(5));
        assert_eq!(bench.heartbeat(&members[0], 1), ErrorCode::None);
    }
    assert!(bench.waits(syncs[0]));
    bench.pass(Duration::from_secs(5));
    for sync in syncs {
        assert_eq!(
            code(bench.synced(sync).error_code),
            ErrorCode::RebalanceInProgress
        );
    }
    assert_eq!(bench.heartbeat(&members[0], 1), ErrorCode::UnknownMemberId);
    assert_eq!(bench.state(), "PreparingRebalance");
    assert_eq!(bench.described().members.len(), 2);
}

#[test]
fn a_follower_that_never_syncs_is_removed_though_the_group_is_stable() {
    let mut bench = Bench::new();
    let members = completing(&mut bench, 2);
    let leader = bench.sync(&members[0], 1, &[]);
    bench.synced(leader);
    for _ in 0..12 {
        assert_eq!(bench.state(), "Stable");
        bench.pass(Duration::from_secs(5));
        bench.heartbeat(&members[0], 1);
        bench.heartbeat(&members[1], 1);
    }
    assert_eq!(bench.state(), "PreparingRebalance");
    assert_eq!(bench.described().members.len(), 1);
}

#[test]
fn heartbeats_are_held_against_member_and_generation() {
    let mut bench = Bench::new();
    assert_eq!(bench.heartbeat("unknown", 1), ErrorCode::UnknownMemberId);
    let members = completing(&mut bench, 2);
    assert_eq!(bench.heartbeat(&members[1], 1), ErrorCode::None);
    bench.sync_all(&members, 1);
    assert_eq!(bench.heartbeat(&members[1], 1), ErrorCode::None);
    assert_eq!(
        bench.heartbeat(&members[1], 0),
        ErrorCode::IllegalGeneration
    );
    assert_eq!(
        bench.heartbeat(&members[1], 2),
        ErrorCode::IllegalGeneration
    );
    assert_eq!(bench.heartbeat("unknown", 1), ErrorCode::UnknownMemberId);
    bench.join_as(&members[0]);
    assert_eq!(
        bench.heartbeat(&members[1], 1),
        ErrorCode::RebalanceInProgress
    );
    let error = bench.heartbeat_with(HeartbeatRequest {
        group_id: "".into(),
        ..Default::default()
    });
    assert_eq!(error, ErrorCode::InvalidGroupId);
}

#[test]
fn a_member_that_is_not_heard_from_is_removed_and_the_others_rebalance() {
    let mut bench = Bench::new();
    let members = bench.stable(2);
    bench.pass(SESSION - Duration::from_millis(1));
    assert_eq!(bench.heartbeat(&members[1], 1), ErrorCode::None);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.state(), "PreparingRebalance");
    assert_eq!(bench.heartbeat(&members[0], 1), ErrorCode::UnknownMemberId);
    let rejoin = bench.join_as(&members[1]);
    let joined = bench.joined(rejoin);
    assert_eq!((joined.generation_id, &joined.leader), (2, &members[1]));
}

#[test]
fn when_nobody_is_heard_from_the_group_is_empty_and_that_is_recorded() {
    let mut bench = Bench::new();
    bench.stable(2);
    let records = bench.log.len();
    bench.pass(SESSION);
    let group = bench.described();
    assert_eq!((&*group.group_state, group.members.len()), ("Empty", 0));
    assert_eq!(&*group.protocol_type, "consumer");
    assert_eq!(bench.log.len(), records + 1);
    assert_eq!(bench.restarted().described(), group);
}

#[test]
fn a_member_that_waits_for_its_assignment_does_not_time_out() {
    let mut bench = Bench::new();
    let members = completing(&mut bench, 2);
    let follower = bench.sync(&members[1], 1, &[]);
    for _ in 0..10 {
        bench.pass(Duration::from_secs(5));
        bench.heartbeat(&members[0], 1);
    }
    assert!(bench.waits(follower));
    bench.holds = true;
    let leader = bench.sync(&members[0], 1, &[]);
    bench.pass(Duration::from_secs(100));
    bench.land();
    assert_eq!(bench.synced(follower).error_code, 0);
    assert_eq!(bench.synced(leader).error_code, 0);
    // The session begins with the answer.
    bench.pass(SESSION - Duration::from_millis(1));
    assert_eq!(bench.heartbeat(&members[1], 1), ErrorCode::None);
}

#[test]
fn members_leave_together_and_each_is_told() {
    let mut bench = Bench::new();
    let members = bench.stable(3);
    let asked = bench.join(joining(""));
    let pending = bench.joined(asked).member_id;
    let leaving = bench.leave(&[
        (&members[0], None),
        ("unknown", None),
        ("", Some("unknown")),
        (&members[1], Some("unknown")),
        (&pending, None),
    ]);
    let unknown = ErrorCode::UnknownMemberId;
    let expected = vec![ErrorCode::None, unknown, unknown, unknown, ErrorCode::None];
    assert_eq!(bench.left(leaving), (ErrorCode::None, expected));
    assert_eq!(bench.state(), "PreparingRebalance");
    assert_eq!(
        bench.heartbeat(&members[1], 1),
        ErrorCode::RebalanceInProgress
    );
    let leaving = bench.call(
        5,
        GroupRequest::Leave(LeaveGroupRequest {
            group_id: "unknown".into(),
            members: vec![MemberIdentity::default()],
            ..Default::default()
        }),
    );
    assert_eq!(bench.left(leaving), (ErrorCode::None, vec![unknown]));
}

#[test]
fn the_leave_of_the_last_member_is_answered_when_it_is_durable() {
    let mut bench = Bench::new();
    let members = bench.stable(1);
    bench.holds = true;
    let leaving = bench.leave(&[(&members[0], None)]);
    assert!(bench.waits(leaving));
    bench.land();
    assert_eq!(
        bench.left(leaving),
        (ErrorCode::None, vec![ErrorCode::None])
    );
    assert_eq!(bench.state(), "Empty");

    let mut bench = Bench::new();
    let members = bench.stable(1);
    bench.fails = Some(ErrorCode::NotCoordinator);
    let leaving = bench.leave(&[(&members[0], None)]);
    assert_eq!(bench.left(leaving), (ErrorCode::NotCoordinator, vec![]));
}

#[test]
fn before_version_3_one_member_leaves_and_the_answer_has_its_error() {
    let mut bench = Bench::new();
    let members = bench.stable(2);
    for (member, error) in [
        ("unknown", ErrorCode::UnknownMemberId),
        (&*members[0], ErrorCode::None),
    ] {
        let request = LeaveGroupRequest {
            group_id: GROUP.into(),
            member_id: member.to_owned().into(),
            ..Default::default()
        };
        let ticket = bench.call(2, GroupRequest::Leave(request));
        assert_eq!(bench.left(ticket), (error, vec![]));
    }
}

#[test]
fn a_member_that_leaves_while_it_waits_is_answered() {
    let mut bench = Bench::new();
    let members = completing(&mut bench, 2);
    let sync = bench.sync(&members[1], 1, &[]);
    bench.leave(&[(&members[1], None)]);
    assert_eq!(
        code(bench.synced(sync).error_code),
        ErrorCode::UnknownMemberId
    );
    let (new, join) = bench.join_new();
    bench.leave(&[(&new, None)]);
    assert_eq!(
        code(bench.joined(join).error_code),
        ErrorCode::UnknownMemberId
    );
}

/// A stable group of static members `a` and `b`, the leader first.
fn stable_static(bench: &mut Bench) -> [Str; 2] {
    let joins = ["a", "b"].map(|instance| bench.join_static(instance));
    bench.pass_until_answered(joins[0]);
    let answers = joins.map(|it| bench.joined(it));
    assert_eq!(answers[0].leader, answers[0].member_id);
    let members = answers.map(|it| it.member_id);
    assert!(members[0].starts_with("a-") && members[1].starts_with("b-"));
    bench.sync_all(&members, 1);
    members
}

#[test]
fn a_static_follower_that_comes_again_takes_its_place_without_a_rebalance() {
    let mut bench = Bench::new();
    let [a, b] = stable_static(&mut bench);
    bench.holds = true;
    let ticket = bench.join_static("b");
    assert!(bench.waits(ticket), "it is recorded first");
    bench.land();
    let joined = bench.joined(ticket);
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    assert_eq!((&joined.leader, joined.skip_assignment), (&a, false));
    assert!(joined.members.is_empty() && joined.member_id != b);
    assert_eq!(bench.state(), "Stable");
    let sync = bench.sync(&joined.member_id, 1, &[]);
    assert_eq!(&bench.synced(sync).assignment[..], b"1");
    // The one before is fenced, by its instance, or unknown.
    assert_eq!(bench.heartbeat(&b, 1), ErrorCode::UnknownMemberId);
    let fenced = |group_instance_id: &str| HeartbeatRequest {
        group_id: GROUP.into(),
        generation_id: 1,
        member_id: b.clone(),
        group_instance_id: Some(group_instance_id.to_owned().into()),
    };
    assert_eq!(
        bench.heartbeat_with(fenced("b")),
        ErrorCode::FencedInstanceId
    );
    assert_eq!(
        bench.heartbeat_with(fenced("c")),
        ErrorCode::UnknownMemberId
    );
    assert_eq!(bench.restarted().described(), bench.described());
}

#[test]
fn a_static_leader_that_comes_again_skips_the_assignment() {
    let mut bench = Bench::new();
    let [a, b] = stable_static(&mut bench);
    let ticket = bench.join_static("a");
    let joined = bench.joined(ticket);
    assert!(joined.skip_assignment);
    assert_eq!(joined.leader, joined.member_id);
    let mut members: Vec<_> = joined
        .members
        .iter()
        .map(|it| it.member_id.clone())
        .collect();
    members.sort();
    assert_eq!(members, [joined.member_id.clone(), b]);
    // A client that does not know this takes itself for a follower.
    let old = joined.member_id;
    let ticket = bench.call(
        8,
        GroupRequest::Join(JoinGroupRequest {
            group_instance_id: Some("a".into()),
            ..joining("")
        }),
    );
    let joined = bench.joined(ticket);
    assert_eq!(joined.leader, old);
    assert_ne!(joined.member_id, old);
    assert!(!joined.skip_assignment && joined.members.is_empty());
    assert_ne!(a, old);
    assert_eq!(bench.state(), "Stable");
    // When it comes with its id, it is the leader, and there is a rebalance.
    let rejoin = bench.join(JoinGroupRequest {
        group_instance_id: Some("a".into()),
        ..joining(&joined.member_id)
    });
    assert!(bench.waits(rejoin));
    assert_eq!(bench.state(), "PreparingRebalance");
}

#[test]
fn a_static_member_that_cannot_be_recorded_is_what_it_was() {
    let mut bench = Bench::new();
    let [_, b] = stable_static(&mut bench);
    let before = bench.described();
    bench.fails = Some(ErrorCode::CoordinatorNotAvailable);
    let ticket = bench.join_static("b");
    let refused = bench.joined(ticket);
    assert_eq!(code(refused.error_code), ErrorCode::CoordinatorNotAvailable);
    assert_eq!(&*refused.member_id, "");
    assert_eq!(bench.described(), before);
    assert_eq!(bench.heartbeat(&b, 1), ErrorCode::None);
}

#[test]
fn a_static_member_that_comes_again_with_another_protocol_means_a_rebalance() {
    let mut bench = Bench::new();
    let both = protocols(&["range", "other"]);
    let with = |instance: &'static str, protocols: &[JoinGroupRequestProtocol]| JoinGroupRequest {
        group_instance_id: Some(instance.into()),
        protocols: protocols.to_vec(),
        ..joining("")
    };
    let joins = ["a", "b"].map(|instance| bench.join(with(instance, &both)));
    bench.pass_until_answered(joins[0]);
    let members = joins.map(|it| bench.joined(it).member_id);
    bench.sync_all(&members, 1);
    let ticket = bench.join(with("b", &protocols(&["other"])));
    assert!(bench.waits(ticket));
    assert_eq!(bench.state(), "PreparingRebalance");
    let leader = bench.join(JoinGroupRequest {
        member_id: members[0].clone(),
        ..with("a", &both)
    });
    assert_eq!(bench.joined(leader).protocol_name.as_deref(), Some("other"));
    assert_eq!(bench.joined(ticket).generation_id, 2);
}

#[test]
fn a_static_member_that_comes_again_during_a_rebalance_fences_the_one_before() {
    let mut bench = Bench::new();
    let [a, _] = stable_static(&mut bench);
    let leader = bench.join(JoinGroupRequest {
        group_instance_id: Some("a".into()),
        ..joining(&a)
    });
    let again = bench.join_static("a");
    assert_eq!(
        code(bench.joined(leader).error_code),
        ErrorCode::FencedInstanceId
    );
    let b = bench.join_static("b");
    let answers = [again, b].map(|it| bench.joined(it));
    assert_eq!(answers[0].leader, answers[0].member_id);
    assert_eq!(answers[1].generation_id, 2);
    // While the leader assigns: all join again.
    let waiting = bench.sync(&answers[1].member_id, 2, &[]);
    let once_more = bench.join_static("b");
    assert_eq!(
        code(bench.synced(waiting).error_code),
        ErrorCode::FencedInstanceId
    );
    assert!(bench.waits(once_more));
    assert_eq!(
        bench.heartbeat(&answers[0].member_id, 2),
        ErrorCode::RebalanceInProgress
    );
}

#[test]
fn static_members_stay_when_they_do_not_join_and_leave_with_their_session() {
    let mut bench = Bench::new();
    let [a, b] = stable_static(&mut bench);
    let rejoin = bench.join(JoinGroupRequest {
        group_instance_id: Some("a".into()),
        session_timeout_ms: 30_000,
        ..joining(&a)
    });
    for _ in 0..12 {
        bench.pass(Duration::from_secs(5));
        bench.heartbeat(&b, 1);
    }
    let joined = bench.joined(rejoin);
    assert_eq!((joined.generation_id, joined.members.len()), (2, 2));
    // An operator removes one by its instance.
    let leaving = bench.leave(&[("", Some("b"))]);
    assert_eq!(
        bench.left(leaving),
        (ErrorCode::None, vec![ErrorCode::None])
    );
    assert_eq!(bench.described().members.len(), 1);
}

#[test]
fn a_rebalance_that_no_static_member_joins_waits_for_their_sessions() {
    let mut bench = Bench::new();
    stable_static(&mut bench);
    let (new, join) = bench.join_new();
    bench.leave(&[(&new, None)]);
    bench.joined(join);
    assert_eq!(bench.state(), "PreparingRebalance");
    bench.pass(SESSION);
    assert_eq!(bench.state(), "Empty");
}

#[test]
fn after_a_restart_members_have_a_fresh_session_and_go_on() {
    let mut bench = Bench::new();
    let members = bench.stable(2);
    let mut bench = bench.restarted();
    bench.pass(SESSION - Duration::from_millis(1));
    for member in &members {
        assert_eq!(bench.heartbeat(member, 1), ErrorCode::None);
    }
    let sync = bench.sync(&members[1], 1, &[]);
    assert_eq!(&bench.synced(sync).assignment[..], b"1");
    bench.pass(SESSION);
    assert_eq!(bench.state(), "Empty");
}

#[test]
fn when_it_stops_everything_that_waits_is_answered() {
    let mut bench = Bench::new();
    let members = bench.stable(2);
    bench.holds = true;
    let commit = bench.commit(&members[0], 1, 5);
    let join = bench.join_as(&members[0]);
    bench.stop();
    assert_eq!(
        code(bench.joined(join).error_code),
        ErrorCode::NotCoordinator
    );
    assert_eq!(bench.committed(commit), ErrorCode::NotCoordinator);
    assert_eq!(bench.heartbeat(&members[0], 1), ErrorCode::NotCoordinator);
    assert_eq!(bench.coordinator.next_deadline(), None);
    // What ends after the stop is nobody's.
    bench.land();
}

#[test]
fn who_went_away_is_not_answered_and_its_member_stays() {
    let mut bench = Bench::new();
    let members = bench.stable(2);
    let gone = bench.join_as(&members[0]);
    bench.coordinator.gone(gone);
    let join = bench.join_as(&members[1]);
    assert_eq!(bench.joined(join).generation_id, 2);
    assert!(bench.waits(gone));
    assert_eq!(bench.described().members.len(), 2);
    bench.coordinator.gone(gone);
    bench.stop();
}

#[test]
fn a_heartbeat_puts_the_deadline_off_without_moving_it() {
    let mut bench = Bench::with(GroupSettings::default());
    let members = bench.stable(1);
    let before = bench.coordinator.next_deadline();
    bench.pass(Duration::from_secs(1));
    bench.heartbeat(&members[0], 1);
    assert_eq!(bench.coordinator.next_deadline(), before);
    bench.pass(Duration::from_secs(9));
    assert_eq!(bench.state(), "Stable");
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.state(), "Empty");
}
