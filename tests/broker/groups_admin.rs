//! What operators ask about groups: where, which, in what state, and away with them.

use super::client::{create_topic, text};
use super::group_client::{
    commit_ok, commit_request, committed, connect, describe, ok, run, subscription, Member,
    CLIENT_ID,
};
use super::{data_dir, launch};
use highwater::client::BrokerConnection;
use highwater::protocol::messages::*;
use highwater::protocol::ErrorCode;

#[test]
fn given_keys_of_all_types_when_a_coordinator_is_asked_for_then_groups_have_one() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        let node = (1, addr.ip().to_string(), i32::from(addr.port()));
        for version in FindCoordinatorRequest::VERSIONS {
            let types: &[(i8, Option<ErrorCode>)] = &[
                (0, None),
                (1, Some(ErrorCode::TransactionalIdAuthorizationFailed)),
                (2, Some(ErrorCode::InvalidRequest)),
                (3, Some(ErrorCode::InvalidRequest)),
                (-1, Some(ErrorCode::InvalidRequest)),
            ];
            let types = if version == 0 { &types[..1] } else { types };
            for &(key_type, refusal) in types {
                let is_batch = version >= 4;
                let keys: &[&'static str] = if is_batch { &["g", "", "g"] } else { &["g"] };
                let request = FindCoordinatorRequest {
                    key: if is_batch { "".into() } else { keys[0].into() },
                    key_type,
                    coordinator_keys: match is_batch {
                        true => keys.iter().map(|&key| key.into()).collect(),
                        false => Vec::new(),
                    },
                };
                let wait = c.start_as(&request, version).await.expect("it is sent");
                let answer = wait.await.expect("an answer");
                let found = match is_batch {
                    true => answer.coordinators,
                    false => vec![Coordinator {
                        key: keys[0].into(),
                        node_id: answer.node_id,
                        host: answer.host,
                        port: answer.port,
                        error_code: answer.error_code,
                        error_message: answer.error_message,
                    }],
                };
                let what = format!("version {version}, type {key_type}");
                assert_eq!(found.len(), keys.len(), "{what}");
                for (one, key) in found.into_iter().zip(keys) {
                    assert_eq!(
                        (&*one.key, ok(one.error_code).err()),
                        (*key, refusal),
                        "{what}"
                    );
                    let at = (one.node_id, one.host.to_string(), one.port);
                    match refusal {
                        None => assert_eq!(at, node, "{what}"),
                        Some(_) => assert_eq!(at, (-1, String::new(), -1), "{what}"),
                    }
                }
            }
        }
        let request = FindCoordinatorRequest::default();
        let answer = c.call(&request).await.expect("an answer");
        assert!(answer.coordinators.is_empty());
    });
    broker.stop();
}

async fn described(c: &BrokerConnection, version: i16, group: &str) -> DescribedGroup {
    let request = DescribeGroupsRequest {
        groups: vec![text(group)],
        include_authorized_operations: version >= 3,
    };
    let wait = c.start_as(&request, version).await.expect("it is sent");
    wait.await.expect("an answer").groups.remove(0)
}

/// Read, delete, describe, describe and alter configs.
const OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

#[test]
fn given_a_group_in_each_state_then_it_is_described_and_listed_so() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .set("group.initial.rebalance.delay.ms=0")
        .start();
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        create_topic(&c, "t", 1, &[]).await;
        // Nobody's.
        for version in DescribeGroupsRequest::VERSIONS {
            let dead = described(&c, version, "none").await;
            assert_eq!((&*dead.group_id, &*dead.group_state), ("none", "Dead"));
            let is_error = version >= 6;
            let code = is_error.then_some(ErrorCode::GroupIdNotFound);
            assert_eq!(ok(dead.error_code).err(), code, "version {version}");
            assert_eq!(dead.error_message.is_some(), is_error);
            let operations = match version {
                3..=5 => OPERATIONS,
                _ => i32::MIN,
            };
            assert_eq!(dead.authorized_operations, operations, "version {version}");
        }
        commit_ok(&c, "offsets-only", "t", &[(0, 1)]).await;
        let mut a = Member::new(&rt, addr, "g", &["t"]).await.named("one");
        a.join().await;
        let completing = described(&c, 6, "g").await;
        assert_eq!(
            (ok(completing.error_code), &*completing.group_state),
            (Ok(()), "CompletingRebalance")
        );
        a.start_sync(&[(&a.id, "all")])
            .await
            .await
            .expect("it is the leader");
        for version in DescribeGroupsRequest::VERSIONS {
            let group = described(&c, version, "g").await;
            let said = (
                &*group.group_state,
                &*group.protocol_type,
                &*group.protocol_data,
            );
            assert_eq!(said, ("Stable", "consumer", "range"));
            let [member] = &group.members[..] else {
                panic!("one member: {group:?}")
            };
            assert_eq!(
                (&*member.member_id, &*member.client_id),
                (&*a.id, CLIENT_ID)
            );
            assert_eq!(&*member.client_host, "/127.0.0.1");
            let instance = (version >= 4).then_some("one");
            assert_eq!(member.group_instance_id.as_deref(), instance);
            assert_eq!(member.member_metadata, subscription(&["t"]));
            assert_eq!(&member.member_assignment[..], b"all");
            let operations = if version >= 3 { OPERATIONS } else { i32::MIN };
            assert_eq!(group.authorized_operations, operations);
        }
        let mut b = Member::new(&rt, addr, "g", &["t"]).await;
        let join = b.start_join().await;
        a.until_rebalance().await;
        assert_eq!(&*describe(&c, "g").await.group_state, "PreparingRebalance");
        assert_eq!(listed(&c, &["preparingREBALANCE"], &[]).await, ["g"]);
        let again = a.start_join().await;
        a.joined(again.await);
        b.joined(join.await);
        assert_eq!(
            listed(&c, &["CompletingRebalance"], &["Classic"]).await,
            ["g"]
        );
        a.connection
            .call(&LeaveGroupRequest {
                group_id: "g".into(),
                members: [(&a.id, Some("one".into())), (&b.id, None)]
                    .map(|(id, instance)| MemberIdentity {
                        member_id: id.clone(),
                        group_instance_id: instance,
                        reason: None,
                    })
                    .into(),
                ..Default::default()
            })
            .await
            .expect("an answer");
        let empty = describe(&c, "g").await;
        assert_eq!(
            (
                &*empty.group_state,
                &*empty.protocol_type,
                empty.members.len()
            ),
            ("Empty", "consumer", 0)
        );
        assert_eq!(&*describe(&c, "offsets-only").await.group_state, "Empty");

        assert_eq!(listed(&c, &[], &[]).await, ["g", "offsets-only"]);
        assert_eq!(
            listed(&c, &["Stable", "Empty"], &[]).await,
            ["g", "offsets-only"]
        );
        assert!(listed(&c, &["Stable"], &[]).await.is_empty());
        assert!(listed(&c, &["nonsense"], &[]).await.is_empty());
        assert!(listed(&c, &[], &["consumer", "share"]).await.is_empty());
        for version in ListGroupsRequest::VERSIONS {
            let wait = c
                .start_as(&ListGroupsRequest::default(), version)
                .await
                .expect("it is sent");
            let mut groups = wait.await.expect("an answer").groups;
            groups.sort_by_key(|group| group.group_id.to_string());
            let said: Vec<_> = groups
                .iter()
                .map(|g| {
                    (
                        &*g.group_id,
                        &*g.protocol_type,
                        &*g.group_state,
                        &*g.group_type,
                    )
                })
                .collect();
            let state = if version >= 4 { "Empty" } else { "" };
            let kind = if version >= 5 { "classic" } else { "" };
            assert_eq!(
                said,
                [
                    ("g", "consumer", state, kind),
                    ("offsets-only", "", state, kind)
                ]
            );
        }
    });
    broker.stop();
}

/// The names of the groups that pass, in order.
async fn listed(c: &BrokerConnection, states: &[&str], types: &[&str]) -> Vec<String> {
    let request = ListGroupsRequest {
        states_filter: states.iter().map(|state| text(state)).collect(),
        types_filter: types.iter().map(|kind| text(kind)).collect(),
    };
    let answer = c.call(&request).await.expect("an answer");
    assert_eq!(ok(answer.error_code), Ok(()));
    let mut names: Vec<String> = answer
        .groups
        .iter()
        .map(|g| g.group_id.to_string())
        .collect();
    names.sort();
    names
}

async fn delete(
    c: &BrokerConnection,
    version: i16,
    groups: &[&str],
) -> Vec<(String, Option<ErrorCode>)> {
    let request = DeleteGroupsRequest {
        groups_names: groups.iter().map(|group| text(group)).collect(),
    };
    let wait = c.start_as(&request, version).await.expect("it is sent");
    let answer = wait.await.expect("an answer");
    let results = answer.results.iter();
    results
        .map(|r| (r.group_id.to_string(), ok(r.error_code).err()))
        .collect()
}

#[test]
fn given_groups_when_deleted_then_only_those_without_members_go_and_stay_away() {
    let dir = data_dir();
    let launch = launch(dir.path()).set("group.initial.rebalance.delay.ms=0");
    let broker = launch.start();
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        create_topic(&c, "t", 1, &[]).await;
        let mut a = Member::new(&rt, addr, "busy", &["t"]).await;
        a.settle_alone().await;
        a.commit("t", 5).await.expect("a member commits");
        for version in DeleteGroupsRequest::VERSIONS {
            commit_ok(&c, "idle", "t", &[(0, 1)]).await;
            let results = delete(&c, version, &["busy", "idle", "none", "busy", "idle", ""]).await;
            let expected = [
                ("busy", Some(ErrorCode::NonEmptyGroup)),
                ("idle", None),
                ("none", Some(ErrorCode::GroupIdNotFound)),
                ("", Some(ErrorCode::GroupIdNotFound)),
            ];
            assert_eq!(
                results,
                expected.map(|(group, code)| (group.to_string(), code))
            );
            assert!(committed(&c, "idle").await.is_empty());
            assert!(delete(&c, version, &[]).await.is_empty());
        }
        assert_eq!(listed(&c, &[], &[]).await, ["busy"]);
        assert_eq!(a.heartbeat().await, Ok(()));
        a.leave().await;
    });
    broker.kill();
    let broker = launch.start();
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        assert_eq!(listed(&c, &[], &[]).await, ["busy"]);
        assert_eq!(committed(&c, "busy").await, [("t".to_string(), 0, 5)]);
        assert_eq!(delete(&c, 2, &["busy"]).await, [("busy".to_string(), None)]);
        assert!(listed(&c, &[], &[]).await.is_empty());
    });
    broker.stop();
}

/// As many as a busy cluster has, asked for at once.
#[test]
fn given_ten_thousand_groups_then_all_are_listed_described_and_deleted_in_little_memory() {
    const GROUPS: usize = 10_000;
    /// About 2 KiB for each group and its record, and what the answers take.
    const GROWTH_MAX: u64 = 96 << 20;
    let dir = data_dir();
    let broker = launch(dir.path())
        .set("flush.on.ack=none")
        .set("cache.bytes=4194304")
        .start();
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        create_topic(&c, "t", 1, &[]).await;
        commit_ok(&c, "first", "t", &[(0, 1)]).await;
    });
    let before = broker.resident_bytes();
    run(move |rt| async move {
        let mut connections = Vec::new();
        for _ in 0..20 {
            connections.push(connect(&rt, addr).await);
        }
        let name = |n: usize| format!("a-group-of-many-{n:05}");
        for first in (0..GROUPS).step_by(1000) {
            let mut waits = Vec::new();
            for n in first..first + 1000 {
                let request = commit_request(&name(n), "t", &[(0, n as i64)]);
                let c = &connections[n % connections.len()];
                waits.push(c.start(&request).await.expect("it is sent"));
            }
            for wait in waits {
                let answer = wait.await.expect("an answer");
                assert_eq!(ok(answer.topics[0].partitions[0].error_code), Ok(()));
            }
        }
        let c = &connections[0];
        let all = listed(c, &[], &[]).await;
        assert_eq!(all.len(), GROUPS + 1);
        let names: Vec<_> = all.iter().map(|name| text(name)).collect();
        for request in [
            DescribeGroupsRequest {
                groups: names.clone(),
                ..Default::default()
            },
            DescribeGroupsRequest {
                groups: vec!["first".into(); 3 * GROUPS],
                ..Default::default()
            },
        ] {
            let answer = c.call(&request).await.expect("an answer");
            let asked: Vec<_> = answer.groups.iter().map(|g| g.group_id.clone()).collect();
            assert!(asked == request.groups, "each is described, in their order");
            assert!(answer.groups.iter().all(|g| &*g.group_state == "Empty"));
        }
        let groups = names.iter().map(|name| OffsetFetchRequestGroup {
            group_id: name.clone(),
            topics: None,
            ..Default::default()
        });
        let request = OffsetFetchRequest {
            groups: groups.collect(),
            ..Default::default()
        };
        let answer = c.call(&request).await.expect("an answer");
        assert!(answer.groups.iter().all(|g| g.topics.len() == 1));
        let request = DeleteGroupsRequest {
            groups_names: names[1..].to_vec(),
        };
        let answer = c.call(&request).await.expect("an answer");
        assert_eq!(answer.results.len(), GROUPS);
        assert!(answer.results.iter().all(|result| result.error_code == 0));
        assert_eq!(listed(c, &[], &[]).await, all[..1]);
    });
    let grown = broker.resident_bytes().saturating_sub(before);
    println!("memory grew by {grown} bytes");
    assert!(grown < GROWTH_MAX, "memory grew by {grown} bytes");
    broker.stop();
}
