//! Members of groups against the process: joins, rebalances, refusals, static members.

use super::client::text;
use super::group_client::{connect, describe, ok, run, Member, PATIENCE, SHORT_MS};
use super::{data_dir, launch};
use highwater::protocol::messages::*;
use highwater::protocol::ErrorCode;
use highwater::runtime::Rt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A broker whose groups begin at once and may have short sessions.
fn quick(dir: &std::path::Path) -> super::broker::Launch {
    launch(dir)
        .set("group.initial.rebalance.delay.ms=0")
        .set(format!("group.min.session.timeout.ms={SHORT_MS}"))
}

async fn members<const N: usize>(rt: &Rt, addr: SocketAddr, group: &str) -> [Member; N] {
    let mut members = Vec::new();
    for _ in 0..N {
        members.push(Member::new(rt, addr, group, &["t"]).await);
    }
    members.try_into().ok().expect("as many as were made")
}

/// All join the next generation and take their assignments, `part 0` and so on.
async fn rebalance(members: &mut [&mut Member]) -> i32 {
    let mut joins = Vec::new();
    for member in members.iter_mut() {
        joins.push(member.start_join().await);
    }
    let mut leader = None;
    for (place, join) in joins.into_iter().enumerate() {
        let member = &mut members[place];
        let joined = member.joined(join.await);
        if joined.leader == member.id {
            leader = Some((place, joined.members));
        } else {
            assert!(joined.members.is_empty(), "the leader alone is told of all");
        }
    }
    let (leader, listed) = leader.expect("there is a leader");
    let generation = members[0].generation;
    assert!(members.iter().all(|m| m.generation == generation));
    assert_eq!(listed.len(), members.len());
    let parts: Vec<String> = (0..members.len()).map(|n| format!("part {n}")).collect();
    let mut syncs = Vec::new();
    for (place, member) in members.iter().enumerate() {
        let of_all = members.iter().zip(&parts);
        let assignments: Vec<_> = match place == leader {
            true => of_all.map(|(m, part)| (&m.id, part.as_str())).collect(),
            false => Vec::new(),
        };
        syncs.push(member.start_sync(&assignments).await);
    }
    for (sync, part) in syncs.into_iter().zip(&parts) {
        assert_eq!(sync.await.as_ref(), Ok(part));
    }
    generation
}

/// Members join one after another, so that each is in a group that is stable.
async fn settled<const N: usize>(rt: &Rt, addr: SocketAddr, group: &str) -> [Member; N] {
    let mut all: [Member; N] = members(rt, addr, group).await;
    all[0].settle_alone().await;
    for n in 1..N {
        let join = all[n].start_join().await;
        for member in &all[..n] {
            member.until_rebalance().await;
        }
        let mut others: Vec<&mut Member> = all[..n].iter_mut().collect();
        let mut joins = Vec::new();
        for member in &mut others {
            joins.push(member.start_join().await);
        }
        for (member, join) in others.iter_mut().zip(joins) {
            member.joined(join.await);
        }
        all[n].joined(join.await);
        let assignments: Vec<_> = all[..=n].iter().map(|m| (&m.id, "part")).collect();
        let mut syncs = Vec::new();
        for member in &all[..=n] {
            syncs.push(member.start_sync(&assignments).await);
        }
        for sync in syncs {
            assert_eq!(sync.await.as_deref(), Ok("part"));
        }
    }
    all
}

#[test]
fn given_three_members_when_one_leaves_then_the_others_share_what_it_had() {
    let dir = data_dir();
    let broker = quick(dir.path()).start();
    let addr = broker.addr();
    run(move |rt| async move {
        let [mut a, mut b, mut c] = settled::<3>(&rt, addr, "g").await;
        assert_eq!(a.generation, 3);
        let described = describe(&a.connection, "g").await;
        assert_eq!(
            (&*described.group_state, described.members.len()),
            ("Stable", 3)
        );
        for member in [&a, &b, &c] {
            assert_eq!(member.heartbeat().await, Ok(()));
        }
        let left = b.leave().await;
        assert_eq!((left.error_code, left.members[0].error_code), (0, 0));
        assert_eq!(left.members[0].member_id, b.id);
        assert_eq!(b.heartbeat().await, Err(ErrorCode::UnknownMemberId));
        a.until_rebalance().await;
        assert_eq!(rebalance(&mut [&mut a, &mut c]).await, 4);
        // It comes back as somebody else.
        let before = std::mem::take(&mut b.id);
        let join = b.start_join().await;
        a.until_rebalance().await;
        let (again_a, again_c) = (a.start_join().await, c.start_join().await);
        a.joined(again_a.await);
        c.joined(again_c.await);
        b.joined(join.await);
        assert_ne!(b.id, before);
        assert_eq!([a.generation, b.generation, c.generation], [5; 3]);
    });
    broker.stop();
}

/// A consumer that dies is not waited for longer than its session.
#[test]
fn given_members_that_vanish_in_a_join_or_a_sync_then_the_rest_goes_on_without_them() {
    let dir = data_dir();
    let broker = quick(dir.path()).start();
    let addr = broker.addr();
    run(move |rt| async move {
        let [mut a] = members::<1>(&rt, addr, "g").await;
        a.settle_alone().await;
        // While it waits for the others to join.
        let mut b = Member::new(&rt, addr, "g", &["t"]).await.short_lived();
        let join = b.start_join().await;
        a.until_rebalance().await;
        drop((join, b));
        a.join().await;
        let got = a.start_sync(&[(&a.id, "all")]).await.await;
        assert!(
            got.is_ok() || got == Err(ErrorCode::RebalanceInProgress),
            "{got:?}"
        );
        a.until_rebalance().await;
        a.settle_alone().await;
        // While it waits for the leader's assignments.
        let mut b = Member::new(&rt, addr, "g", &["t"]).await.short_lived();
        let join = b.start_join().await;
        a.until_rebalance().await;
        a.join().await;
        b.joined(join.await);
        let sync = b.start_sync(&[]).await;
        // It is sent, and nothing tells when it has come.
        rt.sleep(Duration::from_millis(100)).await;
        drop((sync, b));
        let got = a.start_sync(&[(&a.id, "all")]).await.await;
        assert!(
            got.is_ok() || got == Err(ErrorCode::RebalanceInProgress),
            "{got:?}"
        );
        a.until_rebalance().await;
        a.settle_alone().await;
        assert_eq!(describe(&a.connection, "g").await.members.len(), 1);
    });
    broker.stop();
}

#[test]
fn given_requests_that_do_not_fit_the_group_then_each_gets_kafkas_code() {
    let dir = data_dir();
    let broker = quick(dir.path()).start();
    let addr = broker.addr();
    run(move |rt| async move {
        let [mut a, b] = settled::<2>(&rt, addr, "g").await;
        let (id, generation) = (a.id.clone(), a.generation);
        a.generation += 1;
        assert_eq!(a.heartbeat().await, Err(ErrorCode::IllegalGeneration));
        let synced = a.start_sync(&[]).await.await;
        assert_eq!(synced, Err(ErrorCode::IllegalGeneration));
        assert_eq!(
            a.commit("none", 1).await,
            Err(ErrorCode::UnknownTopicOrPartition)
        );
        a.generation = generation;
        a.id = "nobody".into();
        assert_eq!(a.heartbeat().await, Err(ErrorCode::UnknownMemberId));
        let synced = a.start_sync(&[]).await.await;
        assert_eq!(synced, Err(ErrorCode::UnknownMemberId));
        let left = a.leave().await;
        assert_eq!(ok(left.error_code), Ok(()));
        assert_eq!(
            ok(left.members[0].error_code),
            Err(ErrorCode::UnknownMemberId)
        );
        a.id = id;
        let mut sync = a.sync_request(&[]);
        sync.protocol_name = Some("roundrobin".into());
        let answer = a.connection.call(&sync).await.expect("an answer");
        let inconsistent = Err(ErrorCode::InconsistentGroupProtocol);
        assert_eq!(ok(answer.error_code), inconsistent);
        sync.protocol_name = None;
        let answer = a.connection.call(&sync).await.expect("an answer");
        assert_eq!(ok(answer.error_code), inconsistent);
        // The group is as it was.
        assert_eq!(a.heartbeat().await, Ok(()));
        assert_eq!(b.heartbeat().await, Ok(()));

        let c = connect(&rt, addr).await;
        type Change = fn(&mut JoinGroupRequest);
        let cases: [(Change, ErrorCode); 9] = [
            (|r| r.group_id = "".into(), ErrorCode::InvalidGroupId),
            (
                |r| r.session_timeout_ms = SHORT_MS - 1,
                ErrorCode::InvalidSessionTimeout,
            ),
            (
                |r| r.session_timeout_ms = 1_800_001,
                ErrorCode::InvalidSessionTimeout,
            ),
            (
                |r| r.session_timeout_ms = -1,
                ErrorCode::InvalidSessionTimeout,
            ),
            (
                |r| r.member_id = "nobody".into(),
                ErrorCode::UnknownMemberId,
            ),
            (
                |r| r.protocol_type = "connect".into(),
                ErrorCode::InconsistentGroupProtocol,
            ),
            (
                |r| r.protocols[0].name = "other".into(),
                ErrorCode::InconsistentGroupProtocol,
            ),
            (
                |r| r.protocols.clear(),
                ErrorCode::InconsistentGroupProtocol,
            ),
            (
                |r| r.protocol_type = "".into(),
                ErrorCode::InconsistentGroupProtocol,
            ),
        ];
        for (n, (change, code)) in cases.into_iter().enumerate() {
            let mut request = a.asks.clone();
            request.member_id = "".into();
            change(&mut request);
            let answer = c.call(&request).await.expect("an answer");
            assert_eq!(ok(answer.error_code), Err(code), "case {n}");
        }
        assert_eq!(a.heartbeat().await, Ok(()));
    });
    broker.stop();
}

#[test]
fn given_a_group_that_is_full_then_nobody_else_gets_in() {
    let dir = data_dir();
    let broker = quick(dir.path()).set("group.max.size=2").start();
    let addr = broker.addr();
    run(move |rt| async move {
        let [a, b] = settled::<2>(&rt, addr, "g").await;
        let c = connect(&rt, addr).await;
        let mut third = a.asks.clone();
        third.member_id = "".into();
        for version in [3, 9] {
            let wait = c.start_as(&third, version).await.expect("it is sent");
            let code = wait.await.expect("an answer").error_code;
            assert_eq!(ok(code), Err(ErrorCode::GroupMaxSizeReached));
        }
        assert_eq!(a.heartbeat().await, Ok(()));
        assert_eq!(b.heartbeat().await, Ok(()));
    });
    broker.stop();
}

#[test]
fn given_a_static_member_that_restarts_then_nobody_rebalances_and_the_old_one_is_fenced() {
    let dir = data_dir();
    let broker = quick(dir.path()).start();
    let addr = broker.addr();
    run(move |rt| async move {
        let mut a = Member::new(&rt, addr, "g", &["t"]).await.named("one");
        a.settle_alone().await;
        let mut b = Member::new(&rt, addr, "g", &["t"]).await.named("two");
        let join = b.start_join().await;
        a.until_rebalance().await;
        let again = a.start_join().await;
        a.joined(again.await);
        b.joined(join.await);
        let part = [(&a.id, "first"), (&b.id, "second")];
        let (of_a, of_b) = (a.start_sync(&part).await, b.start_sync(&part).await);
        assert_eq!(of_a.await.as_deref(), Ok("first"));
        assert_eq!(of_b.await.as_deref(), Ok("second"));

        let generation = b.generation;
        let mut restarted = Member::new(&rt, addr, "g", &["t"]).await.named("two");
        let joined = restarted.join().await;
        assert_ne!(restarted.id, b.id);
        assert_eq!(joined.generation_id, generation);
        let got = restarted.start_sync(&[]).await.await;
        assert_eq!(got.as_deref(), Ok("second"));
        assert_eq!(a.heartbeat().await, Ok(()), "nobody rebalances");

        let fenced = Err(ErrorCode::FencedInstanceId);
        assert_eq!(b.heartbeat().await, fenced);
        assert_eq!(
            b.start_sync(&[]).await.await,
            Err(ErrorCode::FencedInstanceId)
        );
        assert_eq!(ok(b.start_join().await.await.error_code), fenced);
        let left = b.leave().await;
        assert_eq!(ok(left.members[0].error_code), fenced);
        assert_eq!(restarted.heartbeat().await, Ok(()));
        // An operator removes one by its name alone.
        b.id = "".into();
        let left = b.leave().await;
        assert_eq!((left.error_code, left.members[0].error_code), (0, 0));
        let gone = restarted.heartbeat().await;
        assert_eq!(gone, Err(ErrorCode::UnknownMemberId));
        a.until_rebalance().await;
    });
    broker.stop();
}

/// The members that a group had are there after a restart, and go on without a rebalance.
#[test]
fn given_a_stable_group_when_the_broker_restarts_then_its_members_go_on() {
    let dir = data_dir();
    let launch = quick(dir.path());
    let mut known: Option<(highwater::protocol::Str, i32)> = None;
    for end in ["TERM", "KILL", "KILL"] {
        let broker = launch.start();
        let addr = broker.addr();
        let before = known.take();
        known = Some(run(move |rt| async move {
            let mut a = Member::new(&rt, addr, "g", &["t"]).await;
            match before {
                None => a.settle_alone().await,
                Some((id, generation)) => {
                    (a.id, a.generation) = (id, generation);
                    assert_eq!(a.heartbeat().await, Ok(()));
                    let got = a.start_sync(&[]).await.await;
                    assert_eq!(got.as_deref(), Ok("all"));
                }
            }
            (a.id, a.generation)
        }));
        let (status, stderr) = broker.end_by(end);
        assert_eq!(status.success(), end == "TERM", "{stderr}");
    }
}

#[test]
fn given_joins_and_syncs_that_wait_when_the_broker_is_stopped_then_it_ends_cleanly() {
    /// Longer than any stop may take.
    const DELAY_MS: i32 = 600_000;
    let dir = data_dir();
    let broker = launch(dir.path())
        .set(format!("group.initial.rebalance.delay.ms={DELAY_MS}"))
        .start();
    let addr = broker.addr();
    let (waits, all_wait) = std::sync::mpsc::channel();
    let clients = std::thread::spawn(move || {
        run(move |rt| async move {
            let mut joins = Vec::new();
            let mut all = Vec::new();
            for n in 0..9 {
                let mut member = Member::new(&rt, addr, &format!("g{n}"), &["t"]).await;
                member.asks.rebalance_timeout_ms = DELAY_MS;
                let request = member.start_join().await;
                joins.push(request);
                let start = Instant::now();
                let c = connect(&rt, addr).await;
                let state = |group: DescribedGroup| group.group_state;
                while state(describe(&c, &member.asks.group_id).await) != "PreparingRebalance" {
                    assert!(start.elapsed() < PATIENCE, "it does not join");
                    rt.sleep(Duration::from_millis(20)).await;
                }
                all.push(member);
            }
            waits.send(()).expect("the test waits");
            for join in joins {
                let answer = join.await;
                let code = ok(answer.error_code).expect_err("it did not become a member");
                assert!(code.is_retriable(), "{code:?}");
            }
        });
    });
    all_wait.recv_timeout(PATIENCE).expect("all wait");
    let stderr = broker.stop();
    assert!(stderr.contains("stopped cleanly"), "{stderr}");
    clients.join().expect("each was answered");
}

/// Clients of all ages: each API in each version.
#[test]
fn given_clients_of_every_version_then_each_can_join_sync_beat_commit_and_leave() {
    let dir = data_dir();
    let broker = quick(dir.path()).start();
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        super::client::create_topic(&c, "t", 1, &[]).await;
        macro_rules! call {
            ($request:expr, $version:expr) => {
                c.start_as(&$request, $version)
                    .await
                    .expect("it is sent")
                    .await
                    .expect("an answer")
            };
        }
        for join_version in JoinGroupRequest::VERSIONS {
            let version = |last: i16| join_version.min(last);
            let group = text(&format!("g{join_version}"));
            let mut join = Member::new(&rt, addr, &group, &["t"]).await.asks;
            if join_version == 0 {
                join.rebalance_timeout_ms = -1;
            }
            let mut joined = call!(join, join_version);
            if join_version >= 4 {
                assert_eq!(ok(joined.error_code), Err(ErrorCode::MemberIdRequired));
                join.member_id = joined.member_id;
                joined = call!(join, join_version);
            }
            assert_eq!(ok(joined.error_code), Ok(()), "version {join_version}");
            assert_eq!((joined.generation_id, joined.members.len()), (1, 1));
            assert_eq!(joined.protocol_name.as_deref(), Some("range"));
            let kind = (join_version >= 7).then_some("consumer");
            assert_eq!(joined.protocol_type.as_deref(), kind);
            let id = joined.member_id;
            let sync = SyncGroupRequest {
                group_id: group.clone(),
                generation_id: 1,
                member_id: id.clone(),
                protocol_type: Some("consumer".into()),
                protocol_name: Some("range".into()),
                assignments: vec![SyncGroupRequestAssignment {
                    member_id: id.clone(),
                    assignment: "all".into(),
                }],
                ..Default::default()
            };
            let synced = call!(sync, version(5));
            assert_eq!(
                (synced.error_code, &synced.assignment[..]),
                (0, &b"all"[..])
            );
            let beat = HeartbeatRequest {
                group_id: group.clone(),
                generation_id: 1,
                member_id: id.clone(),
                ..Default::default()
            };
            assert_eq!(call!(beat, version(4)).error_code, 0);
            let mut commit = super::group_client::commit_request(&group, "t", &[(0, 7)]);
            (commit.generation_id_or_member_epoch, commit.member_id) = (1, id.clone());
            let committed = call!(commit, version(9).max(2));
            assert_eq!(committed.topics[0].partitions[0].error_code, 0);
            let names_one = join_version < 3;
            let leave = LeaveGroupRequest {
                group_id: group.clone(),
                member_id: if names_one { id.clone() } else { "".into() },
                members: match names_one {
                    true => Vec::new(),
                    false => vec![MemberIdentity {
                        member_id: id.clone(),
                        ..Default::default()
                    }],
                },
            };
            let left = call!(leave, version(5));
            assert_eq!(left.error_code, 0);
            assert!(left.members.iter().all(|m| m.error_code == 0));
            let again = call!(leave, version(5));
            let code = match names_one {
                true => again.error_code,
                false => again.members[0].error_code,
            };
            assert_eq!(ok(code), Err(ErrorCode::UnknownMemberId));
        }
    });
    broker.stop();
}
