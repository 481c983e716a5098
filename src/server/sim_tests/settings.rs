//! Settings that change and topics that grow, under power cuts.

use super::*;

/// What was asked for and what was answered.
#[derive(Default)]
struct Asked {
    partitions: Cell<i32>,
    partitions_acknowledged: Cell<i32>,
    segment_ms: Cell<i64>,
    segment_ms_acknowledged: Cell<i64>,
}

#[test]
fn given_flush_ms_then_what_no_acknowledgement_waited_for_survives_a_power_cut() {
    let survives = |flush_ms: &str| {
        let story = Story::new(1);
        let running = story.boot().expect("no power cut is ordered");
        let (rt, clients) = (story.broker.rt(), story.client.rt());
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            let configs = [("flush.on.ack", "none"), ("flush.ms", flush_ms)];
            create_with(&connection, "t", 3, &configs).await;
            for partition in 0..3 {
                produce_one(&connection, "t", partition)
                    .await
                    .expect("it is written");
            }
            rt.sleep(Duration::from_secs(10)).await;
        });
        story.broker.crash_with(PowerCut::AllLost);
        story.broker.restart();
        let running = story.boot().expect("no power cut is ordered");
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            let mut ends = Vec::new();
            for partition in 0..3 {
                ends.push(
                    produce_one(&connection, "t", partition)
                        .await
                        .expect("it is written"),
                );
            }
            ends
        })
    };
    assert_eq!(survives("2000"), [1, 1, 1]);
    // Without it nothing is flushed: the test above could fail.
    assert_eq!(survives("9223372036854775807"), [0, 0, 0]);
}

#[test]
fn given_power_cuts_when_a_topic_grows_and_is_altered_then_what_was_answered_is_there_and_every_partition_serves(
) {
    let mut cut_within = 0;
    for seed in 0..SEEDS {
        let story = Story::new(seed);
        let running = story.boot().expect("no power cut is ordered");
        let clients = story.client.rt();
        let asked = Rc::new(Asked::default());
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            create_with(&connection, "t", 1, &[("segment.ms", "1000")]).await;
        });
        asked.partitions.set(1);
        asked.partitions_acknowledged.set(1);
        asked.segment_ms.set(1000);
        asked.segment_ms_acknowledged.set(1000);
        let after = 1 + story.world.random_below(200);
        story
            .broker
            .disk()
            .cut_power_after_ops(after, PowerCut::Mixed);
        let work = change_for_ever(&clients, running.addr, asked.clone());
        story.world.block_on_until_crash(&rt, async {
            // An error is the power cut.
            let _ = work.await;
        });
        if story.broker.is_up() {
            story.broker.crash();
        }
        story.broker.restart();
        let running = story.boot().expect("no power cut is ordered");
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            let partitions = partitions_of(&connection, "t").await;
            let known = asked.partitions_acknowledged.get()..=asked.partitions.get();
            assert!(known.contains(&partitions), "{partitions} of {known:?}");
            let ms = segment_ms_of(&connection, "t").await;
            let either = [asked.segment_ms_acknowledged.get(), asked.segment_ms.get()];
            assert!(either.contains(&ms), "{ms} of {either:?}");
            for partition in 0..partitions {
                let produced = produce_one(&connection, "t", partition).await;
                assert!(produced.is_ok(), "partition {partition}: {produced:?}");
            }
        });
        cut_within += u64::from(asked.partitions_acknowledged.get() > 1);
    }
    assert!(
        cut_within > SEEDS / 2,
        "{cut_within} runs got on before the cut"
    );
}

/// Grows a topic and alters a setting, by turns, until the connection ends.
async fn change_for_ever(rt: &Rt, addr: SocketAddr, asked: Rc<Asked>) -> Result<(), ClientError> {
    let connection = connect(rt, addr).await?;
    loop {
        let count = asked.partitions_acknowledged.get() + 3;
        asked.partitions.set(count);
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: text("t"),
                count,
                assignments: None,
            }],
            timeout_ms: 10_000,
            validate_only: false,
        };
        let answer = connection.call(&request).await?;
        if answer.results[0].error_code != ErrorCode::None.code() {
            return Ok(());
        }
        asked.partitions_acknowledged.set(count);
        let ms = asked.segment_ms_acknowledged.get() + 1;
        asked.segment_ms.set(ms);
        let request = IncrementalAlterConfigsRequest {
            resources: vec![IncrementalAlterConfigsResource {
                resource_type: 2,
                resource_name: text("t"),
                configs: vec![IncrementalAlterableConfig {
                    name: text("segment.ms"),
                    config_operation: 0,
                    value: Some(text(&ms.to_string())),
                }],
            }],
            validate_only: false,
        };
        let answer = connection.call(&request).await?;
        if answer.responses[0].error_code != ErrorCode::None.code() {
            return Ok(());
        }
        asked.segment_ms_acknowledged.set(ms);
    }
}

pub(super) async fn create_with(
    connection: &BrokerConnection,
    topic: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) {
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: text(topic),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs
                .iter()
                .map(|(name, value)| CreatableTopicConfig {
                    name: text(name),
                    value: Some(text(value)),
                })
                .collect(),
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let answer = connection.call(&request).await.expect("an answer");
    assert_eq!(answer.topics[0].error_code, 0, "{answer:?}");
}

/// One record with acks=all; its offset, or the error code.
pub(super) async fn produce_one(
    connection: &BrokerConnection,
    topic: &str,
    partition: i32,
) -> Result<i64, i16> {
    let mut batch = BatchBuilder::new();
    batch.push(1_700_000_000_000, None, Some(b"x"));
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: text(topic),
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Records::from(batch.build())),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let sent = connection.start_as(&request, 12).await.expect("it is sent");
    let answer = sent.await.expect("an answer");
    let partition = &answer.responses[0].partition_responses[0];
    match partition.error_code {
        0 => Ok(partition.base_offset),
        code => Err(code),
    }
}

async fn partitions_of(connection: &BrokerConnection, topic: &str) -> i32 {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(text(topic)),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let answer = connection.call(&request).await.expect("an answer");
    answer.topics[0].partitions.len() as i32
}

async fn segment_ms_of(connection: &BrokerConnection, topic: &str) -> i64 {
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: 2,
            resource_name: text(topic),
            configuration_keys: Some(vec![text("segment.ms")]),
        }],
        ..Default::default()
    };
    let answer = connection.call(&request).await.expect("an answer");
    let value = answer.results[0].configs[0].value.clone();
    value.expect("a value").parse().expect("a number")
}

pub(super) fn text(text: &str) -> Str {
    Str::from(text.to_owned())
}
