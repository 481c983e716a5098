//! What a client may rely on: visibility, long polls, limits, topics.

use super::client::{
    batch_of, create_topic, fetch, fetch_all, list_offset, produce, produce_ok, produce_request,
    text, with,
};
use super::{data_dir, launch};
use highwater::protocol::batch::Batches;
use highwater::protocol::messages::*;
use highwater::protocol::{ApiKey, Records};

#[test]
fn given_a_long_poll_when_records_come_then_it_answers_with_them() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "poll", 6, &[]).await;
        for partition in 0..6 {
            // All partitions, so some of them belong to other shards than the connection.
            let empty = fetch(&c, "poll", partition, 0, 50, 1000).await;
            assert_eq!((empty.error_code, empty.high_watermark), (0, 0));
            let request = FetchRequest {
                max_wait_ms: 30_000,
                min_bytes: 1,
                max_bytes: 1 << 20,
                session_epoch: -1,
                topics: vec![FetchTopic {
                    topic: text("poll"),
                    partitions: vec![FetchPartition {
                        partition,
                        fetch_offset: 0,
                        partition_max_bytes: 1 << 20,
                        ..Default::default()
                    }],
                    ..Default::default()
                }],
                ..Default::default()
            };
            let waiting = c.start_as(&request, 12).await.expect("sent");
            // Behind the long poll on the same connection: started at once, answered
            // after it.
            let produced = c
                .start_as(&produce_request("poll", partition, -1, batch_of("x")), 12)
                .await
                .expect("sent");
            let fetched = waiting.await.expect("an answer");
            let records = fetched.responses[0].partitions[0].records.clone();
            assert!(
                records.is_some_and(|r| !r.is_empty()),
                "partition {partition}"
            );
            assert_eq!(
                produced.await.expect("an answer").responses[0].partition_responses[0].error_code,
                0
            );
        }
    });
    broker.stop();
}

#[test]
fn given_every_version_of_produce_and_fetch_then_the_record_comes_back() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let topic_id = create_topic(&c, "versions", 1, &[]).await.topic_id;
        let mut expected = 0;
        for version in ApiKey::Produce.decoded_versions() {
            let mut request = produce_request("versions", 0, -1, batch_of("v"));
            if version >= 13 {
                request.topic_data[0].name = Default::default();
                request.topic_data[0].topic_id = topic_id;
            }
            let wait = c.start_as(&request, version).await.expect("sent");
            let answer = wait.await.expect("an answer");
            let partition = &answer.responses[0].partition_responses[0];
            assert_eq!(
                (partition.error_code, partition.base_offset),
                (0, expected),
                "v{version}"
            );
            expected += 1;
        }
        for version in ApiKey::Fetch.decoded_versions() {
            let mut topic = FetchTopic {
                partitions: vec![FetchPartition {
                    partition_max_bytes: 1 << 20,
                    ..Default::default()
                }],
                ..Default::default()
            };
            if version >= 13 {
                topic.topic_id = topic_id;
            } else {
                topic.topic = text("versions");
            }
            let mut request = FetchRequest {
                max_wait_ms: 100,
                min_bytes: 1,
                max_bytes: 1 << 20,
                topics: vec![topic],
                ..Default::default()
            };
            if version >= 7 {
                request.session_epoch = -1;
            }
            let wait = c.start_as(&request, version).await.expect("sent");
            let answer = wait.await.expect("an answer");
            let partition = &answer.responses[0].partitions[0];
            assert_eq!(partition.error_code, 0, "v{version}");
            assert_eq!(partition.high_watermark, expected, "v{version}");
            let records = partition.records.as_ref().map(Records::to_bytes);
            let batches = Batches::new(records.expect("records")).count();
            assert_eq!(batches as i64, expected, "v{version}");
        }
    });
    broker.stop();
}

#[test]
fn given_byte_limits_then_whole_batches_are_returned_and_the_first_always_is() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "limits", 1, &[]).await;
        let batch = batch_of(&"x".repeat(1000));
        let size = batch.len() as i32;
        for _ in 0..10 {
            produce_ok(&c, "limits", 0, batch.clone()).await;
        }
        for (limit, batches) in [
            (1, 1),
            (size, 1),
            (2 * size - 1, 1),
            (2 * size, 2),
            (3 * size + 5, 3),
        ] {
            let answer = fetch(&c, "limits", 0, 4, 0, limit).await;
            let bytes = answer.records.expect("records").to_bytes();
            assert_eq!(bytes.len() as i32, batches * size, "limit {limit}");
        }
    });
    broker.stop();
}

#[test]
fn given_acks_1_alone_then_the_high_watermark_still_follows() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        for policy in ["all", "any", "none"] {
            let topic = format!("leader-{policy}");
            create_topic(&c, &topic, 1, &[("flush.on.ack", policy)]).await;
            assert_eq!(produce(&c, &topic, 0, 1, batch_of("x")).await.error_code, 0);
            let answer = fetch(&c, &topic, 0, 0, 10_000, 1000).await;
            assert_eq!(answer.high_watermark, 1, "{policy}");
        }
    });
    broker.stop();
}

#[test]
fn given_an_unknown_topic_when_metadata_names_it_then_it_is_created_only_if_allowed() {
    let dir = data_dir();
    let broker = launch(dir.path()).set("num.partitions=4").start();
    with(broker.addr(), move |c| async move {
        let ask = |allow: bool, name: &str| MetadataRequest {
            topics: Some(vec![MetadataRequestTopic {
                name: Some(text(name)),
                ..Default::default()
            }]),
            allow_auto_topic_creation: allow,
            ..Default::default()
        };
        let refused = c.call(&ask(false, "auto")).await.expect("an answer");
        assert_eq!(refused.topics[0].error_code, 3);
        let invalid = c.call(&ask(true, "not/valid")).await.expect("an answer");
        assert_eq!(invalid.topics[0].error_code, 17);
        let created = c.call(&ask(true, "auto")).await.expect("an answer");
        assert_eq!(created.topics[0].error_code, 0);
        assert_eq!(created.topics[0].partitions.len(), 4);
        assert_eq!(produce_ok(&c, "auto", 3, batch_of("x")).await, 0);
    });
    broker.stop();
}

#[test]
fn given_a_deleted_topic_then_it_is_gone_and_its_name_is_free() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        for version in ApiKey::DeleteTopics.decoded_versions() {
            create_topic(&c, "gone", 5, &[]).await;
            produce_ok(&c, "gone", 2, batch_of("old")).await;
            let mut request = DeleteTopicsRequest {
                timeout_ms: 10_000,
                ..Default::default()
            };
            if version >= 6 {
                request.topics = vec![DeleteTopicState {
                    name: Some(text("gone")),
                    ..Default::default()
                }];
            } else {
                request.topic_names = vec![text("gone")];
            }
            let wait = c.start_as(&request, version).await.expect("sent");
            let answer = wait.await.expect("an answer");
            assert_eq!(answer.responses[0].error_code, 0, "v{version}");
            assert_eq!(list_offset(&c, "gone", 2, -1).await.error_code, 3);
        }
        create_topic(&c, "gone", 5, &[]).await;
        assert_eq!(fetch_all(&c, "gone", 2, 0).await, []);
        assert_eq!(produce_ok(&c, "gone", 2, batch_of("new")).await, 0);
    });
    broker.stop();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let records = fetch_all(&c, "gone", 2, 0).await;
        assert_eq!(records, [(0, "new".to_string())]);
    });
    broker.stop();
}

#[test]
fn given_every_version_of_the_other_apis_then_each_is_answered() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        for version in ApiKey::CreateTopics.decoded_versions() {
            let name = format!("created-{version}");
            let request = CreateTopicsRequest {
                topics: vec![CreatableTopic {
                    name: text(&name),
                    num_partitions: 2,
                    replication_factor: 1,
                    ..Default::default()
                }],
                timeout_ms: 10_000,
                ..Default::default()
            };
            for code in [0, 36] {
                let wait = c.start_as(&request, version).await.expect("sent");
                let answer = wait.await.expect("an answer");
                assert_eq!(answer.topics[0].error_code, code, "CreateTopics v{version}");
            }
            produce_ok(&c, &name, 1, batch_of("x")).await;
        }
        for version in ApiKey::Metadata.decoded_versions() {
            for name in ["created-2", "absent"] {
                let mut request = MetadataRequest {
                    topics: Some(vec![MetadataRequestTopic {
                        name: Some(text(name)),
                        ..Default::default()
                    }]),
                    ..Default::default()
                };
                if version >= 4 {
                    request.allow_auto_topic_creation = false;
                } else if name == "absent" {
                    // Before version 4 every request allows it.
                    continue;
                }
                let wait = c.start_as(&request, version).await.expect("sent");
                let answer = wait.await.expect("an answer");
                assert_eq!(answer.brokers.len(), 1, "Metadata v{version}");
                let expected = if name == "absent" { (3, 0) } else { (0, 2) };
                let topic = &answer.topics[0];
                assert_eq!(
                    (topic.error_code, topic.partitions.len()),
                    expected,
                    "Metadata v{version}"
                );
            }
        }
        for version in ApiKey::ListOffsets.decoded_versions() {
            for (timestamp, offset) in [(-1, 1), (-2, 0), (0, 0)] {
                let request = ListOffsetsRequest {
                    replica_id: -1,
                    topics: vec![ListOffsetsTopic {
                        name: text("created-2"),
                        partitions: vec![ListOffsetsPartition {
                            partition_index: 1,
                            current_leader_epoch: -1,
                            timestamp,
                        }],
                    }],
                    ..Default::default()
                };
                let wait = c.start_as(&request, version).await.expect("sent");
                let answer = wait.await.expect("an answer");
                let partition = &answer.topics[0].partitions[0];
                assert_eq!(
                    (partition.error_code, partition.offset),
                    (0, offset),
                    "ListOffsets v{version}"
                );
            }
        }
        for version in ApiKey::ApiVersions.decoded_versions() {
            let mut request = ApiVersionsRequest::default();
            if version >= 3 {
                request.client_software_name = text("test");
                request.client_software_version = text("1");
            }
            let wait = c.start_as(&request, version).await.expect("sent");
            let answer = wait.await.expect("an answer");
            assert_eq!(answer.error_code, 0, "ApiVersions v{version}");
            assert_eq!(answer.api_keys.len(), ApiKey::ALL.len());
        }
    });
    broker.stop();
}
