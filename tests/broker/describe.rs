//! What the broker says of its cluster and its topics.

use super::client::{create_topic, text, with};
use super::{data_dir, launch};
use highwater::protocol::messages::*;
use highwater::protocol::ApiKey;

/// Kafka's numbers for all operations on a topic and on the cluster.
const TOPIC_OPERATIONS: i32 = 3576;
const CLUSTER_OPERATIONS: i32 = 8096;

#[test]
fn given_every_version_then_the_cluster_is_this_broker() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    let addr = broker.addr();
    with(addr, move |c| async move {
        let metadata = c
            .call(&MetadataRequest::default())
            .await
            .expect("an answer");
        for version in ApiKey::DescribeCluster.decoded_versions() {
            for asks in [false, true] {
                let request = DescribeClusterRequest {
                    include_cluster_authorized_operations: asks,
                    include_fenced_brokers: version >= 2,
                    ..Default::default()
                };
                let wait = c.start_as(&request, version).await.expect("sent");
                let answer = wait.await.expect("an answer");
                assert_eq!((answer.error_code, answer.error_message), (0, None));
                assert_eq!(answer.endpoint_type, 1);
                assert_eq!(Some(answer.cluster_id), metadata.cluster_id);
                assert_eq!(answer.controller_id, metadata.controller_id);
                let expected = if asks { CLUSTER_OPERATIONS } else { i32::MIN };
                assert_eq!(answer.cluster_authorized_operations, expected);
                let [one] = &answer.brokers[..] else {
                    panic!("{:?}", answer.brokers);
                };
                assert_eq!(one.broker_id, metadata.brokers[0].node_id);
                assert_eq!(
                    (&*one.host, one.port),
                    ("127.0.0.1", i32::from(addr.port()))
                );
                assert_eq!((one.is_fenced, one.rack.clone()), (false, None));
            }
        }
        for (endpoint_type, code) in [(2, 114), (9, 115)] {
            let request = DescribeClusterRequest {
                endpoint_type,
                ..Default::default()
            };
            let answer = c.call(&request).await.expect("an answer");
            assert_eq!(answer.error_code, code);
            assert!(answer.error_message.is_some() && answer.brokers.is_empty());
        }
    });
    broker.stop();
}

#[test]
fn given_more_partitions_than_a_page_holds_then_cursors_lead_through_all_of_them() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .set("max.request.partition.size.limit=4")
        .start();
    with(broker.addr(), move |c| async move {
        let mut ids = Vec::new();
        for (topic, partitions) in [("b", 5), ("a", 3), ("c", 1)] {
            ids.push((
                topic,
                create_topic(&c, topic, partitions, &[]).await.topic_id,
            ));
        }
        for limit in [1, 2, 2000] {
            let mut cursor = None;
            let mut seen = Vec::new();
            loop {
                let request = DescribeTopicPartitionsRequest {
                    response_partition_limit: limit,
                    cursor,
                    ..Default::default()
                };
                let answer = c.call(&request).await.expect("an answer");
                let mut count = 0;
                for topic in &answer.topics {
                    let name = topic.name.as_deref().expect("a name");
                    let id = ids.iter().find(|(known, _)| *known == name).expect(name).1;
                    assert_eq!((topic.error_code, topic.topic_id), (0, id));
                    assert_eq!(topic.topic_authorized_operations, TOPIC_OPERATIONS);
                    for p in &topic.partitions {
                        assert_eq!((p.error_code, p.leader_id), (0, 1));
                        assert_eq!(
                            (&p.replica_nodes[..], &p.isr_nodes[..]),
                            (&[1][..], &[1][..])
                        );
                        assert_eq!(p.eligible_leader_replicas, Some(vec![]));
                        assert_eq!(p.last_known_elr, Some(vec![]));
                        seen.push((name.to_owned(), p.partition_index));
                        count += 1;
                    }
                }
                assert!(count <= limit.min(4), "{count} partitions on a page");
                cursor = answer.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            let all = [("a", 3), ("b", 5), ("c", 1)];
            let all = all
                .iter()
                .flat_map(|(name, n)| (0..*n).map(|p| ((*name).to_owned(), p)));
            assert_eq!(seen, all.collect::<Vec<_>>(), "limit {limit}");
        }
        let request = DescribeTopicPartitionsRequest {
            topics: vec![DescribeTopicPartitionsTopic { name: text("none") }],
            cursor: Some(DescribeTopicPartitionsCursor {
                topic_name: text("a"),
                partition_index: -1,
            }),
            ..Default::default()
        };
        let answer = c.call(&request).await.expect("an answer");
        assert_eq!(answer.topics[0].error_code, 42);
        let request = DescribeTopicPartitionsRequest {
            cursor: None,
            ..request
        };
        let answer = c.call(&request).await.expect("an answer");
        assert_eq!((answer.topics.len(), answer.topics[0].error_code), (1, 3));
        // Described only: no topic comes to be.
        let answer = c.call(&request).await.expect("an answer");
        assert_eq!(answer.topics[0].error_code, 3);
    });
    broker.stop();
}

#[test]
fn given_a_client_that_asks_what_it_may_do_then_metadata_says_everything() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "t", 1, &[]).await;
        for version in 8..=13 {
            for asks in [false, true] {
                let request = MetadataRequest {
                    topics: Some(vec![MetadataRequestTopic {
                        name: Some(text("t")),
                        ..Default::default()
                    }]),
                    include_cluster_authorized_operations: asks && version <= 10,
                    include_topic_authorized_operations: asks,
                    ..Default::default()
                };
                let wait = c.start_as(&request, version).await.expect("sent");
                let answer = wait.await.expect("an answer");
                let of = |known: i32, there: bool| if asks && there { known } else { i32::MIN };
                let topic = answer.topics[0].topic_authorized_operations;
                assert_eq!(topic, of(TOPIC_OPERATIONS, true), "v{version}");
                let cluster = answer.cluster_authorized_operations;
                assert_eq!(cluster, of(CLUSTER_OPERATIONS, version <= 10), "v{version}");
            }
        }
    });
    broker.stop();
}
