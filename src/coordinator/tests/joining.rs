//! JoinGroup and the way to a generation.

use super::harness::*;
use crate::coordinator::*;
use crate::protocol::messages::*;
use crate::protocol::ErrorCode;
use crate::runtime::local::Budget;
use bytes::Bytes;
use std::time::Duration;

#[test]
fn given_new_members_when_the_delay_is_over_then_one_leads_and_each_gets_its_assignment() {
    let mut bench = Bench::new();
    let (a, join_a) = bench.join_new();
    assert_eq!(bench.state(), "PreparingRebalance");
    bench.pass(Duration::from_millis(2_999));
    let (b, join_b) = bench.join_new();
    // b came during the first delay, which is followed by another.
    bench.pass(Duration::from_millis(3_000));
    assert!(bench.waits(join_a) && bench.waits(join_b));
    bench.pass(Duration::from_millis(1));
    let (joined_a, joined_b) = (bench.joined(join_a), bench.joined(join_b));
    assert_eq!(bench.state(), "CompletingRebalance");
    assert_eq!(joined_a.leader, a);
    assert_eq!(joined_a.protocol_type.as_deref(), Some("consumer"));
    assert_eq!(joined_a.protocol_name.as_deref(), Some("range"));
    let mut members: Vec<_> = joined_a.members.iter().map(|it| &it.member_id).collect();
    members.sort();
    assert_eq!(members, [&a, &b]);
    let follower = JoinGroupResponse {
        members: Vec::new(),
        member_id: b.clone(),
        ..joined_a.clone()
    };
    assert_eq!(joined_b, follower);
    bench.sync_all(&[a, b], 1);
}

#[test]
fn the_first_delay_grows_up_to_the_rebalance_timeout() {
    let mut bench = Bench::new();
    let asked = bench.join(JoinGroupRequest {
        rebalance_timeout_ms: 7_000,
        ..joining("")
    });
    let first = bench.joined(asked).member_id;
    let first = bench.join(JoinGroupRequest {
        rebalance_timeout_ms: 7_000,
        ..joining(&first)
    });
    for _ in 0..7 {
        assert!(bench.waits(first));
        bench.call(
            3,
            GroupRequest::Join(JoinGroupRequest {
                rebalance_timeout_ms: 7_000,
                ..joining("")
            }),
        );
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(bench.joined(first).generation_id, 1);
}

#[test]
fn without_a_delay_the_first_member_begins_at_once() {
    let mut bench = Bench::with(GroupSettings {
        initial_rebalance_delay: Duration::ZERO,
        ..Default::default()
    });
    let (_, join) = bench.join_new();
    assert_eq!(bench.joined(join).generation_id, 1);
}

#[test]
fn joins_that_break_a_rule_are_refused() {
    let mut bench = Bench::new();
    let refused = |bench: &mut Bench, request: JoinGroupRequest| {
        let ticket = bench.join(request);
        code(bench.joined(ticket).error_code)
    };
    for (request, error) in [
        (
            JoinGroupRequest {
                group_id: "".into(),
                ..joining("")
            },
            ErrorCode::InvalidGroupId,
        ),
        (
            JoinGroupRequest {
                session_timeout_ms: 5_999,
                ..joining("")
            },
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            JoinGroupRequest {
                session_timeout_ms: 1_800_001,
                ..joining("")
            },
            ErrorCode::InvalidSessionTimeout,
        ),
        (joining("unknown"), ErrorCode::UnknownMemberId),
        (
            JoinGroupRequest {
                protocols: Vec::new(),
                ..joining("")
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinGroupRequest {
                protocols: protocols(&["p"; 1_001]),
                ..joining("")
            },
            ErrorCode::InvalidRequest,
        ),
        (
            JoinGroupRequest {
                protocol_type: "".into(),
                ..joining("")
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinGroupRequest {
                protocols: protocols(&[&"x".repeat(40_000)]),
                ..joining("")
            },
            ErrorCode::InvalidRequest,
        ),
        (
            JoinGroupRequest {
                group_id: "x".repeat(40_000).into(),
                ..joining("")
            },
            ErrorCode::InvalidGroupId,
        ),
    ] {
        assert_eq!(refused(&mut bench, request), error);
    }
    assert_eq!(
        bench.coordinator.groups().count(),
        0,
        "a refused join leaves a group"
    );
    bench.stable(2);
    for (request, error) in [
        (
            JoinGroupRequest {
                protocols: protocols(&["roundrobin"]),
                ..joining("")
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinGroupRequest {
                protocol_type: "connect".into(),
                ..joining("")
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (joining("unknown"), ErrorCode::UnknownMemberId),
        (
            JoinGroupRequest {
                group_instance_id: Some("unknown".into()),
                ..joining("unknown")
            },
            ErrorCode::UnknownMemberId,
        ),
    ] {
        assert_eq!(refused(&mut bench, request), error);
    }
    assert_eq!(bench.state(), "Stable");
}

#[test]
fn before_version_4_a_member_joins_without_an_id() {
    let mut bench = Bench::new();
    let ticket = bench.call(3, GroupRequest::Join(joining("")));
    bench.pass(DELAY);
    let joined = bench.joined(ticket);
    assert_eq!(joined.error_code, 0);
    assert_eq!(joined.leader, joined.member_id);
    assert!(joined.member_id.starts_with("client-"));
}

#[test]
fn an_id_that_is_not_joined_with_is_forgotten_after_the_session_timeout() {
    let mut bench = Bench::new();
    let asked = bench.join(joining(""));
    let id = bench.joined(asked).member_id;
    bench.pass(Duration::from_millis(SESSION_MS as u64));
    assert_eq!(bench.coordinator.groups().count(), 0);
    let ticket = bench.join_as(&id);
    assert_eq!(
        code(bench.joined(ticket).error_code),
        ErrorCode::UnknownMemberId
    );
}

#[test]
fn a_rebalance_waits_for_ids_that_were_given_out() {
    let mut bench = Bench::new();
    let members = bench.stable(1);
    let asked = bench.join(joining(""));
    let pending = bench.joined(asked).member_id;
    let rejoin = bench.join_as(&members[0]);
    assert!(bench.waits(rejoin), "the new member is on its way");
    let join = bench.join_as(&pending);
    assert_eq!(bench.joined(rejoin).generation_id, 2);
    assert_eq!(bench.joined(join).generation_id, 2);
    bench.sync_all(&[members[0].clone(), pending.clone()], 2);
    // One that never comes holds the others up for its session timeout.
    let asked = bench.join(joining(""));
    bench.joined(asked);
    let rejoins = [&members[0], &pending].map(|id| bench.join_as(id));
    bench.pass(Duration::from_millis(SESSION_MS as u64 - 1));
    assert!(bench.waits(rejoins[0]));
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.joined(rejoins[0]).generation_id, 3);
    assert_eq!(bench.joined(rejoins[1]).generation_id, 3);
}

#[test]
fn the_protocol_is_what_most_prefer_of_those_that_all_know() {
    let select = |members: &[&[&str]]| {
        let mut bench = Bench::new();
        let tickets: Vec<_> = (members.iter())
            .map(|names| {
                bench.call(
                    3,
                    GroupRequest::Join(JoinGroupRequest {
                        protocols: protocols(names),
                        ..joining("")
                    }),
                )
            })
            .collect();
        bench.pass_until_answered(tickets[0]);
        let answers: Vec<_> = tickets.into_iter().map(|it| bench.joined(it)).collect();
        answers[0].protocol_name.clone().unwrap().to_string()
    };
    assert_eq!(select(&[&["a", "b"]]), "a");
    assert_eq!(select(&[&["a", "b"], &["b"]]), "b");
    assert_eq!(select(&[&["a", "b"], &["b", "a"], &["b", "a"]]), "b");
    assert_eq!(select(&[&["a", "b"], &["b", "a"]]), "a");
    assert_eq!(
        select(&[&["x", "a", "b"], &["b", "a", "y"], &["b", "a"]]),
        "b"
    );
    assert_eq!(select(&[&["a", "a", "b"], &["a", "b"]]), "a");
}

#[test]
fn in_a_stable_group_a_follower_with_the_same_metadata_gets_the_generation() {
    let mut bench = Bench::new();
    let members = bench.stable(3);
    let ticket = bench.join_as(&members[1]);
    let joined = bench.joined(ticket);
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    assert_eq!(joined.leader, members[0]);
    assert!(joined.members.is_empty());
    assert_eq!(bench.state(), "Stable");
    // With other metadata, or as the leader, it begins a rebalance.
    let ticket = bench.join(JoinGroupRequest {
        protocols: protocols(&["range", "other"]),
        ..joining(&members[1])
    });
    assert!(bench.waits(ticket));
    assert_eq!(bench.state(), "PreparingRebalance");
}

#[test]
fn in_a_stable_group_the_leader_begins_a_rebalance() {
    let mut bench = Bench::new();
    let members = bench.stable(2);
    let leader = bench.join_as(&members[0]);
    assert_eq!(
        bench.heartbeat(&members[1], 1),
        ErrorCode::RebalanceInProgress
    );
    let follower = bench.join_as(&members[1]);
    assert_eq!(bench.joined(leader).generation_id, 2);
    assert_eq!(bench.joined(follower).generation_id, 2);
    bench.sync_all(&members, 2);
}

#[test]
fn while_the_leader_assigns_a_join_with_the_same_metadata_is_answered_again() {
    let mut bench = Bench::new();
    let joins: Vec<_> = (0..2).map(|_| bench.join_new()).collect();
    bench.pass_until_answered(joins[0].1);
    let first: Vec<_> = joins.iter().map(|(_, it)| bench.joined(*it)).collect();
    for ((id, _), before) in joins.iter().zip(&first) {
        let ticket = bench.join_as(id);
        assert_eq!(&bench.joined(ticket), before);
    }
    // With other metadata, those that wait for their assignment join again.
    let waiting = bench.sync(&joins[1].0, 1, &[]);
    let ticket = bench.join(JoinGroupRequest {
        protocols: protocols(&["range", "other"]),
        ..joining(&joins[0].0)
    });
    assert!(bench.waits(ticket));
    let told = bench.synced(waiting).error_code;
    assert_eq!(code(told), ErrorCode::RebalanceInProgress);
}

#[test]
fn members_that_do_not_join_in_time_are_left_behind_and_a_new_leader_is_chosen() {
    let mut bench = Bench::new();
    let members = bench.stable(3);
    let (d, join_d) = bench.join_new();
    let rejoin = bench.join_as(&members[2]);
    // The others stay alive, but do not join.
    for _ in 0..12 {
        for member in &members[..2] {
            assert_eq!(bench.heartbeat(member, 1), ErrorCode::RebalanceInProgress);
        }
        assert!(bench.waits(rejoin));
        bench.pass(Duration::from_secs(5));
    }
    let joined = bench.joined(rejoin);
    assert_eq!(joined.generation_id, 2);
    assert!([&members[2], &d].contains(&&joined.leader));
    assert_eq!(bench.joined(join_d).leader, joined.leader);
    assert_eq!(bench.heartbeat(&members[0], 1), ErrorCode::UnknownMemberId);
    assert_eq!(bench.described().members.len(), 2);
}

#[test]
fn a_group_has_no_more_members_than_group_max_size() {
    let mut bench = Bench::with(GroupSettings {
        members_max: 2,
        initial_rebalance_delay: DELAY,
        ..Default::default()
    });
    let joins: Vec<_> = (0..3)
        .map(|_| bench.call(3, GroupRequest::Join(joining(""))))
        .collect();
    let third = bench.joined(joins[2]);
    assert_eq!(code(third.error_code), ErrorCode::GroupMaxSizeReached);
    bench.pass_until_answered(joins[0]);
    let members = [bench.joined(joins[0]), bench.joined(joins[1])].map(|it| it.member_id);
    bench.sync_all(&members, 1);
    let refused = bench.call(3, GroupRequest::Join(joining("")));
    let refused = bench.joined(refused);
    assert_eq!(code(refused.error_code), ErrorCode::GroupMaxSizeReached);
    assert_eq!(bench.state(), "Stable");
}

#[test]
fn after_group_max_size_was_lowered_the_last_to_join_again_are_removed() {
    let mut bench = Bench::new();
    let members = bench.stable(3);
    let mut bench = Bench::over(
        GroupSettings {
            members_max: 2,
            ..Default::default()
        },
        bench.log,
    );
    assert_eq!(bench.state(), "PreparingRebalance");
    assert_eq!(
        bench.heartbeat(&members[0], 1),
        ErrorCode::RebalanceInProgress
    );
    let joins: Vec<_> = members.iter().map(|member| bench.join_as(member)).collect();
    let third = bench.joined(joins[2]);
    assert_eq!(code(third.error_code), ErrorCode::GroupMaxSizeReached);
    assert_eq!(bench.joined(joins[0]).generation_id, 2);
    assert_eq!(bench.joined(joins[1]).generation_id, 2);
    assert_eq!(bench.described().members.len(), 2);
}

#[test]
fn a_new_member_whose_join_waits_too_long_is_removed() {
    let mut bench = Bench::with(GroupSettings {
        initial_rebalance_delay: Duration::from_secs(900),
        ..Default::default()
    });
    let (_, join) = bench.join_new();
    bench.pass(Duration::from_secs(300));
    let refused = bench.joined(join);
    assert_eq!(code(refused.error_code), ErrorCode::UnknownMemberId);
}

#[test]
fn a_join_that_is_overtaken_by_another_of_its_member_is_told_so() {
    let mut bench = Bench::new();
    let members = bench.stable(2);
    let first = bench.join_as(&members[0]);
    let second = bench.join_as(&members[0]);
    let told = bench.joined(first).error_code;
    assert_eq!(code(told), ErrorCode::RebalanceInProgress);
    bench.join_as(&members[1]);
    assert_eq!(bench.joined(second).generation_id, 2);
}

#[test]
fn members_hold_no_more_memory_than_they_may() {
    let memory = Budget::new(100_000);
    let mut bench = Bench::with(GroupSettings {
        members_memory: memory.clone(),
        initial_rebalance_delay: DELAY,
        ..Default::default()
    });
    let large = |bytes| JoinGroupRequest {
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: Bytes::from(vec![0; bytes]),
        }],
        ..joining("")
    };
    let first = bench.call(3, GroupRequest::Join(large(60_000)));
    let refused = bench.call(3, GroupRequest::Join(large(60_000)));
    let refused = bench.joined(refused).error_code;
    assert_eq!(code(refused), ErrorCode::CoordinatorNotAvailable);
    // An id that is given out is charged, without metadata that is not kept.
    let before = memory.available();
    let named = bench.join(large(30_000));
    let named = bench.joined(named).error_code;
    assert_eq!(code(named), ErrorCode::MemberIdRequired);
    assert!((1..5_000).contains(&(before - memory.available())));
    bench.pass_until_answered(first);
    let member = bench.joined(first).member_id;
    // Nor have assignments, while they are appended.
    let sync = bench.sync(&member, 1, &[(&member, &"x".repeat(40_000))]);
    let refused = bench.synced(sync).error_code;
    assert_eq!(code(refused), ErrorCode::CoordinatorNotAvailable);
    bench.sync_all(&[member], 1);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.state(), "Empty");
    assert_eq!(memory.available(), memory.total());
}
