//! What an admin client asks of a cluster, answered by one broker.

use super::client::{batch_of, create_topic, produce_ok, text, with};
use super::{data_dir, launch};
use highwater::client::{BrokerConnection, Call};
use highwater::protocol::messages::*;
use highwater::protocol::{ApiKey, Str};

const NONE: i16 = 0;
const UNKNOWN: i16 = 3;
const INVALID_REQUEST: i16 = 42;

/// The answer in one version.
async fn ask<Q: Call>(c: &BrokerConnection, request: &Q, version: i16) -> Q::Response {
    let wait = c.start_as(request, version).await.expect("sent");
    wait.await.expect("an answer")
}

#[test]
fn given_topics_then_the_log_directory_shows_their_real_sizes_and_the_room() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    let path = dir.path().display().to_string();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "a", 3, &[]).await;
        create_topic(&c, "b", 1, &[]).await;
        let batch = batch_of("value");
        let bytes = batch.len() as i64;
        produce_ok(&c, "a", 1, batch).await;
        let sizes = |answer: &DescribeLogDirsResponse| -> Vec<(String, i32, i64)> {
            let [one] = &answer.results[..] else {
                panic!("{answer:?}");
            };
            assert_eq!((answer.error_code, one.error_code), (NONE, NONE));
            assert_eq!(*one.log_dir, *path);
            let all = one.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|partition| {
                    assert_eq!((partition.offset_lag, partition.is_future_key), (0, false));
                    (
                        topic.name.to_string(),
                        partition.partition_index,
                        partition.partition_size,
                    )
                })
            });
            all.collect()
        };
        let size = |topic: &str, partition, bytes| (topic.to_owned(), partition, bytes);
        let everything = vec![
            size("a", 0, 0),
            size("a", 1, bytes),
            size("a", 2, 0),
            size("b", 0, 0),
        ];
        for version in ApiKey::DescribeLogDirs.served_versions() {
            let all = ask(&c, &DescribeLogDirsRequest { topics: None }, version).await;
            assert_eq!(sizes(&all), everything);
            let (total, usable) = (all.results[0].total_bytes, all.results[0].usable_bytes);
            match version {
                4.. => assert!(0 < usable && usable <= total, "{usable} of {total}"),
                _ => assert_eq!((total, usable), (-1, -1)),
            }
            let topic = |topic, partitions: &[i32]| DescribableLogDirTopic {
                topic: text(topic),
                partitions: partitions.to_vec(),
            };
            let topics = Some(vec![
                topic("b", &[0, 7, -1]),
                topic("a", &[1, 1]),
                topic("a", &[1]),
                topic("none", &[0]),
            ]);
            let some = ask(&c, &DescribeLogDirsRequest { topics }, version).await;
            assert_eq!(sizes(&some), [size("a", 1, bytes), size("b", 0, 0)]);
            let topics = Some(Vec::new());
            let none = ask(&c, &DescribeLogDirsRequest { topics }, version).await;
            assert_eq!(sizes(&none), []);
        }
        let moves = |to: &str, topic: &str, partition| AlterReplicaLogDirsRequest {
            dirs: vec![AlterReplicaLogDir {
                path: text(to),
                topics: vec![AlterReplicaLogDirTopic {
                    name: text(topic),
                    partitions: vec![partition],
                }],
            }],
        };
        for version in ApiKey::AlterReplicaLogDirs.served_versions() {
            for (to, topic, partition, code) in [
                (&*path, "a", 1, NONE),
                (&*path, "a", 9, UNKNOWN),
                (&*path, "none", 0, UNKNOWN),
                ("/elsewhere", "a", 1, 57),
            ] {
                let answer = ask(&c, &moves(to, topic, partition), version).await;
                assert_eq!(&*answer.results[0].topic_name, topic);
                let result = &answer.results[0].partitions[0];
                assert_eq!(
                    (result.partition_index, result.error_code),
                    (partition, code)
                );
            }
        }
    });
    broker.stop();
}

#[test]
fn given_one_voter_then_the_quorum_shows_how_far_the_metadata_log_is() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    let addr = broker.addr();
    let meta = std::fs::read_to_string(dir.path().join("meta.properties")).expect("a file");
    with(addr, move |c| async move {
        let request = |topic: &str, partition| DescribeQuorumRequest {
            topics: vec![DescribeQuorumTopic {
                topic_name: text(topic),
                partitions: vec![DescribeQuorumPartition {
                    partition_index: partition,
                }],
            }],
        };
        let mut end_before = 0;
        for version in ApiKey::DescribeQuorum.served_versions() {
            create_topic(&c, &format!("t{version}"), 1, &[]).await;
            let answer = ask(&c, &request("__cluster_metadata", 0), version).await;
            let partition = &answer.topics[0].partitions[0];
            assert_eq!((answer.error_code, partition.error_code), (NONE, NONE));
            assert_eq!((partition.leader_id, partition.leader_epoch), (1, 1));
            let [voter] = &partition.current_voters[..] else {
                panic!("{partition:?}");
            };
            assert_eq!((voter.replica_id, partition.observers.len()), (1, 0));
            assert!(voter.log_end_offset > end_before, "it grows with topics");
            assert_eq!(partition.high_watermark, voter.log_end_offset);
            end_before = voter.log_end_offset;
            assert_eq!(voter.last_fetch_timestamp > 1_600_000_000_000, version >= 1);
            assert_eq!(voter.last_fetch_timestamp, voter.last_caught_up_timestamp);
            if version >= 2 {
                let id = highwater::storage::uuid_text::encode(voter.replica_directory_id);
                assert!(meta.contains(&format!("directory.id={id}")), "{id}: {meta}");
                let listener = &answer.nodes[0].listeners[0];
                assert_eq!((&*listener.host, listener.port), ("127.0.0.1", addr.port()));
            }
            for (topic, partition) in [("__cluster_metadata", 1), ("t0", 0)] {
                let answer = ask(&c, &request(topic, partition), version).await;
                assert_eq!(answer.error_code, NONE);
                assert_eq!(answer.topics[0].partitions[0].error_code, UNKNOWN);
            }
            let nothing = DescribeQuorumRequest { topics: vec![] };
            assert_eq!(ask(&c, &nothing, version).await.topics, []);
        }
    });
    broker.stop();
}

#[test]
fn given_one_replica_then_no_election_is_needed_and_no_reassignment_is_under_way() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "a", 2, &[]).await;
        elections(&c).await;
        reassignments(&c).await;
    });
    broker.stop();
}

#[test]
fn given_a_long_name_or_very_many_partitions_then_answered_in_little_memory() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        let long = "x".repeat(32_767);
        for (count, has_messages) in [(2, true), (100_000, false)] {
            let election = ElectLeadersRequest {
                topic_partitions: Some(vec![ElectLeadersTopic {
                    topic: text(&long),
                    partitions: (0..count).collect(),
                }]),
                ..Default::default()
            };
            for version in ApiKey::ElectLeaders.served_versions() {
                let mut answer = ask(&c, &election, version).await;
                let results = answer.replica_election_results.remove(0).partition_result;
                assert_eq!(results.len(), count as usize);
                for one in results {
                    assert_eq!(one.error_code, UNKNOWN);
                    assert_eq!(one.error_message.is_some(), has_messages);
                }
            }
            let partition = |partition_index| ReassignablePartition {
                partition_index,
                replicas: None,
            };
            let reassignment = AlterPartitionReassignmentsRequest {
                topics: vec![ReassignableTopic {
                    name: text(&long),
                    partitions: (0..count).map(partition).collect(),
                }],
                ..Default::default()
            };
            let mut answer = ask(&c, &reassignment, 0).await;
            let results = answer.responses.remove(0).partitions;
            assert_eq!(results.len(), count as usize);
            for one in results {
                assert_eq!(one.error_code, UNKNOWN);
                assert_eq!(one.error_message.is_some(), has_messages);
            }
        }
    });
    let resident = broker.resident_bytes();
    assert!(resident < 512 << 20, "{resident} bytes");
    broker.stop();
}

async fn elections(c: &BrokerConnection) {
    for version in ApiKey::ElectLeaders.served_versions() {
        for election_type in [0, 1, 2] {
            if version == 0 && election_type != 0 {
                continue;
            }
            let request = |topics| ElectLeadersRequest {
                election_type,
                topic_partitions: topics,
                timeout_ms: 1000,
            };
            let topic = |topic, partitions: &[i32]| ElectLeadersTopic {
                topic: text(topic),
                partitions: partitions.to_vec(),
            };
            let topics = Some(vec![topic("a", &[1, 2]), topic("none", &[0])]);
            let answer = ask(c, &request(topics), version).await;
            let results = answer.replica_election_results.iter();
            let codes: Vec<_> = results
                .flat_map(|topic| topic.partition_result.iter())
                .map(|one| {
                    (
                        one.error_code,
                        one.error_message.clone().unwrap_or_default(),
                    )
                })
                .collect();
            let expected = match election_type {
                2 => [
                    (INVALID_REQUEST, "Unknown election type 2."),
                    (INVALID_REQUEST, "Unknown election type 2."),
                    (INVALID_REQUEST, "Unknown election type 2."),
                ],
                _ => [
                    (84, "Leader election not needed for topic partition."),
                    (UNKNOWN, "No such partition as a-2"),
                    (UNKNOWN, "No such topic as none"),
                ],
            };
            assert_eq!(codes, expected.map(|(code, why)| (code, text(why))));
            let all = ask(c, &request(None), version).await;
            assert_eq!(all.replica_election_results, []);
            let is_bad = election_type == 2;
            assert_eq!(all.error_code, if is_bad { INVALID_REQUEST } else { NONE });
        }
    }
}

async fn reassignments(c: &BrokerConnection) {
    let cases: [(&str, i32, Option<&[i32]>, i16); 8] = [
        ("a", 0, Some(&[1]), NONE),
        ("a", 0, Some(&[7]), 39),
        ("a", 0, Some(&[1, 1]), 39),
        ("a", 0, Some(&[]), 39),
        ("a", 0, None, 85),
        ("a", 2, Some(&[1]), UNKNOWN),
        ("a", -1, None, UNKNOWN),
        ("none", 0, Some(&[1]), UNKNOWN),
    ];
    for version in ApiKey::AlterPartitionReassignments.served_versions() {
        let request = AlterPartitionReassignmentsRequest {
            topics: cases
                .iter()
                .map(|(topic, partition_index, replicas, _)| ReassignableTopic {
                    name: text(topic),
                    partitions: vec![ReassignablePartition {
                        partition_index: *partition_index,
                        replicas: replicas.map(<[i32]>::to_vec),
                    }],
                })
                .collect(),
            ..Default::default()
        };
        let answer = ask(c, &request, version).await;
        assert_eq!((answer.error_code, &answer.error_message), (NONE, &None));
        for ((topic, partition, _, code), result) in cases.iter().zip(&answer.responses) {
            let [one] = &result.partitions[..] else {
                panic!("{result:?}");
            };
            assert_eq!((&*result.name, one.partition_index), (*topic, *partition));
            assert_eq!(one.error_code, *code, "{one:?}");
            assert_eq!(one.error_message.is_some(), *code != NONE);
        }
    }
    let asks_about_one = vec![ListPartitionReassignmentsTopics {
        name: text("a"),
        partition_indexes: vec![0],
    }];
    for topics in [None, Some(asks_about_one)] {
        let request = ListPartitionReassignmentsRequest {
            timeout_ms: 1000,
            topics,
        };
        let answer = ask(c, &request, 0).await;
        assert_eq!((answer.error_code, answer.topics), (NONE, vec![]));
    }
}

#[test]
fn given_no_quotas_users_or_acls_then_that_is_said() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        let filter = |entity_type| ClientQuotaFilter {
            entity_type: text(entity_type),
            match_type: 2,
            _match: None,
        };
        for version in ApiKey::DescribeClientQuotas.served_versions() {
            for (entity_type, code) in [("user", NONE), ("", INVALID_REQUEST), ("else", 35)] {
                let request = DescribeClientQuotasRequest {
                    components: vec![filter(entity_type)],
                    strict: false,
                };
                let answer = ask(&c, &request, version).await;
                assert_eq!(answer.error_code, code, "{answer:?}");
                let expected = (code == NONE).then(Vec::new);
                assert_eq!(answer.entries, expected);
            }
        }
        let all = DescribeUserScramCredentialsRequest { users: None };
        assert_eq!(ask(&c, &all, 0).await.results, []);
        let user = |name| ScramUserName { name: text(name) };
        let users = Some(vec![user("one"), user("two"), user("two")]);
        let answer = ask(&c, &DescribeUserScramCredentialsRequest { users }, 0).await;
        let results = answer.results.iter();
        let codes: Vec<_> = results.map(|r| (&*r.user, r.error_code)).collect();
        assert_eq!(codes, [("one", 91), ("two", 92)]);
        for version in ApiKey::DescribeAcls.served_versions() {
            let described = ask(&c, &DescribeAclsRequest::default(), version).await;
            let why = Str::from_static("No Authorizer is configured on the broker");
            assert_eq!(
                (described.error_code, described.error_message),
                (54, Some(why))
            );
            let creations = vec![AclCreation::default(); 2];
            let created = ask(&c, &CreateAclsRequest { creations }, version).await;
            let codes: Vec<_> = created.results.iter().map(|r| r.error_code).collect();
            assert_eq!(codes, [54, 54]);
            let filters = vec![DeleteAclsFilter::default()];
            let deleted = ask(&c, &DeleteAclsRequest { filters }, version).await;
            assert_eq!(deleted.filter_results[0].error_code, 54);
        }
    });
    broker.stop();
}

#[test]
fn given_topics_then_they_and_the_broker_are_listed_as_what_has_settings() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "b", 1, &[]).await;
        create_topic(&c, "a", 1, &[]).await;
        let old = ListConfigResourcesRequest::default();
        assert_eq!(ask(&c, &old, 0).await.config_resources, []);
        for (types, expected) in [
            (vec![], &[(2, "a"), (2, "b"), (4, "1"), (8, "1")][..]),
            (vec![2], &[(2, "a"), (2, "b")]),
            (vec![4, 16, 32], &[(4, "1")]),
        ] {
            let request = ListConfigResourcesRequest {
                resource_types: types,
            };
            let answer = ask(&c, &request, 1).await;
            assert_eq!(answer.error_code, NONE);
            let listed = answer.config_resources.iter();
            let listed: Vec<_> = listed
                .map(|one| (one.resource_type, &*one.resource_name))
                .collect();
            assert_eq!(listed, expected);
        }
        let request = ListConfigResourcesRequest {
            resource_types: vec![2, 3],
        };
        let answer = ask(&c, &request, 1).await;
        assert_eq!((answer.error_code, answer.config_resources), (35, vec![]));
    });
    broker.stop();
}
