//! Committed offsets against the process: commits, fetches, refusals, restarts.

use super::client::{create_topic, delete_topic, text};
use super::group_client::{
    commit_ok, commit_request, committed, connect, ok, run, Member, PATIENCE,
};
use super::{data_dir, launch};
use highwater::client::BrokerConnection;
use highwater::protocol::messages::*;
use highwater::protocol::ErrorCode;
use std::time::{Duration, Instant};

/// Answered commits are there after every kind of end.
#[test]
fn given_answered_commits_when_the_broker_ends_then_they_are_there() {
    const GROUPS: usize = 60;
    let dir = data_dir();
    let launch = launch(dir.path());
    for (round, end) in ["KILL", "TERM", "KILL", "TERM"].into_iter().enumerate() {
        let broker = launch.start();
        let addr = broker.addr();
        run(move |rt| async move {
            let c = connect(&rt, addr).await;
            if round == 0 {
                create_topic(&c, "t", 3, &[]).await;
            }
            let round = round as i64;
            for n in 0..GROUPS {
                let group = format!("group-{n}");
                let at = 1000 * round + n as i64;
                let mut expected = Vec::new();
                if round > 0 {
                    let place = |partition, offset| ("t".to_string(), partition, offset);
                    expected = vec![place(0, at - 1000), place(1, n as i64), place(2, i64::MAX)];
                }
                assert_eq!(committed(&c, &group).await, expected, "round {round}");
                let mut offsets = vec![(0, at)];
                if round == 0 {
                    offsets.extend([(1, at), (2, i64::MAX)]);
                }
                commit_ok(&c, &group, "t", &offsets).await;
            }
        });
        let (status, stderr) = broker.end_by(end);
        assert_eq!(status.success(), end == "TERM", "{stderr}");
    }
}

#[test]
fn given_commits_that_cannot_be_then_each_partition_gets_its_code_and_the_rest_is_committed() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .set("offset.metadata.max.bytes=100")
        .start();
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        create_topic(&c, "t", 2, &[]).await;
        let mut request = commit_request("g", "t", &[(0, 5), (1, 6), (2, 7), (-1, 8)]);
        request.topics[0].partitions[1].committed_metadata = Some(text(&"x".repeat(101)));
        request
            .topics
            .extend(commit_request("g", "gone", &[(0, 1), (1, 1)]).topics);
        request
            .topics
            .extend(commit_request("g", "", &[(0, 1)]).topics);
        let answer = c.call(&request).await.expect("an answer");
        let mut codes = Vec::new();
        for topic in &answer.topics {
            for partition in &topic.partitions {
                let place = (topic.name.to_string(), partition.partition_index);
                codes.push((place.0, place.1, ok(partition.error_code).err()));
            }
        }
        codes.sort_by_key(|(topic, partition, _)| (topic.clone(), *partition));
        let unknown = Some(ErrorCode::UnknownTopicOrPartition);
        let expected = [
            ("", 0, unknown),
            ("gone", 0, unknown),
            ("gone", 1, unknown),
            ("t", -1, unknown),
            ("t", 0, None),
            ("t", 1, Some(ErrorCode::OffsetMetadataTooLarge)),
            ("t", 2, unknown),
        ];
        let expected =
            expected.map(|(topic, partition, code)| (topic.to_string(), partition, code));
        assert_eq!(codes, expected);
        assert_eq!(answer.topics.len(), 3, "each topic once");
        assert_eq!(committed(&c, "g").await, [("t".to_string(), 0, 5)]);

        // Nothing is left to ask the group for, and nothing was asked at all.
        let answer = c.call(&commit_request("g", "gone", &[(0, 1)])).await;
        let code = answer.expect("an answer").topics[0].partitions[0].error_code;
        assert_eq!(ok(code).err(), unknown);
        let request = OffsetCommitRequest::default();
        let answer = c.call(&request).await.expect("an answer");
        assert!(answer.topics.is_empty());
        // What goes on in the group matters only for what exists.
        let mut request = commit_request("none", "t", &[(0, 1), (9, 1)]);
        (request.generation_id_or_member_epoch, request.member_id) = (4, "m".into());
        for (version, code) in [
            (8, ErrorCode::IllegalGeneration),
            (9, ErrorCode::GroupIdNotFound),
        ] {
            let wait = c.start_as(&request, version).await.expect("it is sent");
            let answer = wait.await.expect("an answer");
            let partitions = answer.topics[0].partitions.iter();
            let codes: Vec<_> = partitions.map(|p| ok(p.error_code).err()).collect();
            assert_eq!(codes, [unknown, Some(code)]);
        }
    });
    broker.stop();
}

#[test]
fn given_a_group_with_members_then_only_they_commit_in_their_generation() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .set("group.initial.rebalance.delay.ms=0")
        .start();
    let addr = broker.addr();
    run(move |rt| async move {
        let mut a = Member::new(&rt, addr, "g", &["t"]).await;
        create_topic(&a.connection, "t", 1, &[]).await;
        a.join().await;
        assert_eq!(a.commit("t", 1).await, Err(ErrorCode::RebalanceInProgress));
        let got = a.start_sync(&[(&a.id, "all")]).await.await;
        assert_eq!(got.as_deref(), Ok("all"));
        assert_eq!(a.commit("t", 2).await, Ok(()));
        let stranger = commit_request("g", "t", &[(0, 9)]);
        let answer = a.connection.call(&stranger).await.expect("an answer");
        let code = answer.topics[0].partitions[0].error_code;
        assert_eq!(ok(code), Err(ErrorCode::UnknownMemberId));
        a.generation -= 1;
        assert_eq!(a.commit("t", 3).await, Err(ErrorCode::IllegalGeneration));
        a.generation += 1;
        let id = std::mem::replace(&mut a.id, "nobody".into());
        assert_eq!(a.commit("t", 4).await, Err(ErrorCode::UnknownMemberId));
        a.id = id;
        assert_eq!(
            committed(&a.connection, "g").await,
            [("t".to_string(), 0, 2)]
        );
        // It has left: whoever is no member may commit now.
        a.leave().await;
        commit_ok(&a.connection, "g", "t", &[(0, 9)]).await;
        assert_eq!(
            committed(&a.connection, "g").await,
            [("t".to_string(), 0, 9)]
        );
    });
    broker.stop();
}

#[test]
fn given_offsets_when_fetched_in_every_version_then_all_say_the_same() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        create_topic(&c, "t", 3, &[]).await;
        let mut request = commit_request("g", "t", &[(1, 42)]);
        let partition = &mut request.topics[0].partitions[0];
        partition.committed_leader_epoch = 3;
        partition.committed_metadata = Some("note".into());
        c.call(&request).await.expect("an answer");
        commit_ok(&c, "other", "t", &[(0, 1)]).await;
        for version in OffsetFetchRequest::VERSIONS {
            let named = Some(vec![("t", vec![0, 1]), ("none", vec![0])]);
            let expected = vec![("none", 0, -1, ""), ("t", 0, -1, ""), ("t", 1, 42, "note")];
            assert_eq!(
                fetched(&c, version, named).await,
                owned(&expected),
                "version {version}"
            );
            assert!(fetched(&c, version, Some(vec![])).await.is_empty());
            if version >= 2 {
                let all = fetched(&c, version, None).await;
                assert_eq!(all, owned(&[("t", 1, 42, "note")]), "version {version}");
            }
        }
        // Several groups at once, one of them twice, and none at all.
        let group = |name: &'static str| OffsetFetchRequestGroup {
            group_id: name.into(),
            topics: None,
            ..Default::default()
        };
        let mut request = OffsetFetchRequest {
            groups: ["g", "none", "other", "g"].map(group).into(),
            ..Default::default()
        };
        let answer = c.call(&request).await.expect("an answer");
        let said: Vec<_> = answer
            .groups
            .iter()
            .map(|g| (&*g.group_id, g.topics.len(), g.error_code))
            .collect();
        assert_eq!(
            said,
            [("g", 1, 0), ("none", 0, 0), ("other", 1, 0), ("g", 1, 0)]
        );
        request.groups.clear();
        let answer = c.call(&request).await.expect("an answer");
        assert!(answer.groups.is_empty());
    });
    broker.stop();
}

type Place = (String, i32, i64, String);

fn owned(places: &[(&str, i32, i64, &str)]) -> Vec<Place> {
    let places = places.iter();
    places
        .map(|&(topic, partition, offset, note)| (topic.into(), partition, offset, note.into()))
        .collect()
}

/// What group `g` has, in order.
async fn fetched(
    c: &BrokerConnection,
    version: i16,
    named: Option<Vec<(&str, Vec<i32>)>>,
) -> Vec<Place> {
    let mut request = OffsetFetchRequest::default();
    if version < 8 {
        request.group_id = "g".into();
        request.topics = named.map(|topics| {
            let topics =
                topics
                    .into_iter()
                    .map(|(name, partition_indexes)| OffsetFetchRequestTopic {
                        name: text(name),
                        partition_indexes,
                    });
            topics.collect()
        });
    } else {
        let topics = named.map(|topics| {
            let topics =
                topics
                    .into_iter()
                    .map(|(name, partition_indexes)| OffsetFetchRequestTopics {
                        name: text(name),
                        partition_indexes,
                    });
            topics.collect()
        });
        request.groups = vec![OffsetFetchRequestGroup {
            group_id: "g".into(),
            topics,
            ..Default::default()
        }];
    }
    let wait = c.start_as(&request, version).await.expect("it is sent");
    let answer = wait.await.expect("an answer");
    assert_eq!(answer.error_code, 0);
    let mut all = Vec::new();
    macro_rules! take {
        ($topics:expr, $epochs_since:literal) => {
            for topic in $topics {
                for p in topic.partitions {
                    assert_eq!(p.error_code, 0);
                    let epoch = if p.committed_offset >= 0 && version >= $epochs_since {
                        3
                    } else {
                        -1
                    };
                    assert_eq!(p.committed_leader_epoch, epoch);
                    let note = p.metadata.unwrap_or_default().to_string();
                    all.push((
                        topic.name.to_string(),
                        p.partition_index,
                        p.committed_offset,
                        note,
                    ));
                }
            }
        };
    }
    take!(answer.topics, 5);
    for group in answer.groups {
        assert_eq!((&*group.group_id, group.error_code), ("g", 0));
        take!(group.topics, 5);
    }
    all.sort();
    all
}

#[test]
fn given_offsets_when_deleted_then_those_that_nobody_reads_are_gone() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .set("group.initial.rebalance.delay.ms=0")
        .start();
    let addr = broker.addr();
    run(move |rt| async move {
        let mut a = Member::new(&rt, addr, "g", &["read"]).await;
        let c = connect(&rt, addr).await;
        create_topic(&c, "read", 1, &[]).await;
        create_topic(&c, "left", 2, &[]).await;
        commit_ok(&c, "g", "read", &[(0, 1)]).await;
        commit_ok(&c, "g", "left", &[(0, 2), (1, 3)]).await;
        a.settle_alone().await;
        let topic = |name: &'static str, partitions: &[i32]| OffsetDeleteRequestTopic {
            name: name.into(),
            partitions: partitions
                .iter()
                .map(|&partition_index| OffsetDeleteRequestPartition { partition_index })
                .collect(),
        };
        let mut request = OffsetDeleteRequest {
            group_id: "g".into(),
            topics: vec![
                topic("read", &[0]),
                topic("left", &[0, 7]),
                topic("none", &[0]),
            ],
        };
        let answer = c.call(&request).await.expect("an answer");
        assert_eq!(ok(answer.error_code), Ok(()));
        let mut codes = Vec::new();
        for topic in &answer.topics {
            for partition in &topic.partitions {
                let code = ok(partition.error_code).err();
                codes.push((&*topic.name, partition.partition_index, code));
            }
        }
        codes.sort_by_key(|(topic, partition, _)| (*topic, *partition));
        let unknown = Some(ErrorCode::UnknownTopicOrPartition);
        let expected = [
            ("left", 0, None),
            ("left", 7, unknown),
            ("none", 0, unknown),
            ("read", 0, Some(ErrorCode::GroupSubscribedToTopic)),
        ];
        assert_eq!(codes, expected);
        let left = [("left".to_string(), 1, 3), ("read".to_string(), 0, 1)];
        assert_eq!(committed(&c, "g").await, left);

        request.group_id = "nobody".into();
        let answer = c.call(&request).await.expect("an answer");
        assert_eq!(ok(answer.error_code), Err(ErrorCode::GroupIdNotFound));
        assert!(answer.topics.is_empty());

        // With the topic its offsets go.
        delete_topic(&c, "left").await;
        let start = Instant::now();
        while committed(&c, "g").await.len() > 1 {
            assert!(start.elapsed() < PATIENCE, "they stay");
            rt.sleep(Duration::from_millis(20)).await;
        }
    });
    broker.stop();
}

#[test]
fn given_an_offset_that_is_named_without_end_then_it_is_answered_once_in_little_memory() {
    const TIMES: usize = 100_000;
    const GROWTH_MAX: u64 = 128 << 20;
    let dir = data_dir();
    let broker = launch(dir.path()).set("cache.bytes=4194304").start();
    let addr = broker.addr();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        create_topic(&c, "t", 1, &[]).await;
        let mut request = commit_request("g", "t", &[(0, 5)]);
        let note = Some(text(&"x".repeat(4000)));
        request.topics[0].partitions[0].committed_metadata = note;
        let answer = c.call(&request).await.expect("an answer");
        assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    });
    let before = broker.resident_bytes();
    run(move |rt| async move {
        let c = connect(&rt, addr).await;
        for version in [1, 7, 9] {
            for times in [10, TIMES] {
                let mut request = OffsetFetchRequest::default();
                let partition_indexes = vec![0; times];
                if version < 8 {
                    request.group_id = "g".into();
                    request.topics = Some(vec![OffsetFetchRequestTopic {
                        name: "t".into(),
                        partition_indexes,
                    }]);
                } else {
                    request.groups = vec![OffsetFetchRequestGroup {
                        group_id: "g".into(),
                        topics: Some(vec![OffsetFetchRequestTopics {
                            name: "t".into(),
                            partition_indexes,
                        }]),
                        ..Default::default()
                    }];
                }
                let wait = c.start_as(&request, version).await.expect("it is sent");
                let answer = wait.await.expect("an answer");
                let said = match version {
                    1 | 7 => {
                        let partitions = &answer.topics[0].partitions;
                        (partitions.len(), partitions[0].committed_offset)
                    }
                    _ => {
                        let partitions = &answer.groups[0].topics[0].partitions;
                        (partitions.len(), partitions[0].committed_offset)
                    }
                };
                assert_eq!(said, (1, 5), "version {version}, {times} times");
            }
        }
    });
    let grown = broker.resident_bytes().saturating_sub(before);
    println!("memory grew by {grown} bytes");
    assert!(grown < GROWTH_MAX, "memory grew by {grown} bytes");
    broker.stop();
}
