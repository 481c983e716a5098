//! Groups under power cuts and stops: committed offsets that were answered are there,
//! whatever the number of shards, and a rebalance does not hold up a stop.

use super::settings::{create_with, produce_one, text};
use super::*;

const COUNT: i32 = 3;
const GROUPS: usize = 6;

/// What is known of one group's offset of one partition.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Of the last commit that was answered.
    acknowledged: i64,
    /// Of the last that was sent.
    asked: i64,
}

type AllKnown = Rc<RefCell<BTreeMap<(usize, i32), Known>>>;

#[test]
fn given_power_cuts_when_offsets_are_committed_then_what_was_answered_is_there() {
    let mut acknowledged = 0;
    for seed in seeds() {
        let story = Story::new(seed);
        let known = AllKnown::default();
        let clients = story.client.rt();
        for life in 0..4 {
            if life > 0 {
                let after = 1 + story.world.random_below(400);
                let disk = story.broker.disk();
                disk.cut_power_after_ops(after, PowerCut::Mixed);
            }
            if let Some(running) = story.boot() {
                let rt = story.broker.rt();
                let work = async {
                    let Ok(connection) = connect(&clients, running.addr).await else {
                        return;
                    };
                    if life == 0 {
                        create_with(&connection, "t", COUNT, &[]).await;
                    }
                    check(&connection, &known).await;
                    for group in 0..GROUPS {
                        let (rt, known) = (clients.clone(), known.clone());
                        clients.spawn(Queue::Latency, async move {
                            // An error is the power cut.
                            let _ = commit_for_ever(&rt, running.addr, group, &known).await;
                        });
                    }
                    let life = 200 + story.world.random_below(1_000);
                    clients.sleep(Duration::from_millis(life)).await;
                };
                story.world.block_on_until_crash(&rt, work);
            }
            if story.broker.is_up() {
                story.broker.crash();
            }
            story.broker.restart();
        }
        let running = story.boot().expect("no power cut is ordered");
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            check(&connection, &known).await;
            assert!(running.stop.send(()).is_ok(), "it waits for the stop");
            let ended = running.ended.await.expect("the control executor ends");
            ended.expect("a clean stop");
        });
        story.broker.kill();
        story.broker.restart();
        let running = story.boot().expect("no power cut is ordered");
        assert_eq!(running.start, StartKind::Clean);
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            check(&connection, &known).await;
        });
        let known = known.borrow();
        acknowledged += known.values().map(|it| it.acknowledged).sum::<i64>();
    }
    assert!(acknowledged > 20, "{acknowledged} commits were answered");
}

#[test]
fn given_members_that_wait_for_others_when_it_stops_then_it_does_not_wait_for_them() {
    for seed in 0..6 {
        let story = Story::new(seed);
        let running = story.boot().expect("no power cut is ordered");
        let clients = story.client.rt();
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let mut joins = Vec::new();
            for group in 0..GROUPS {
                let connection = connect(&clients, running.addr).await.expect("it serves");
                let join = start_join(&connection, group, 0).await;
                joins.push((connection, join));
            }
            // One whose peer goes.
            let gone = joins.pop();
            clients.sleep(Duration::from_millis(50)).await;
            drop(gone);
            clients.sleep(Duration::from_millis(50)).await;
            let began = clients.now();
            assert!(running.stop.send(()).is_ok(), "it waits for the stop");
            let ended = running.ended.await.expect("the control executor ends");
            ended.expect("a clean stop");
            let took = clients.now().since(began);
            assert!(took < Duration::from_millis(1_500), "it took {took:?}");
            for (_, join) in joins {
                let answer = join.await.expect("it is answered");
                assert_eq!(answer.error_code, ErrorCode::NotCoordinator.code());
            }
        });
    }
}

#[test]
fn given_members_with_more_metadata_than_frames_may_hold_then_they_come_together() {
    // One shard's small frames may hold 128 KiB.
    const MEMBERS: usize = 8;
    const METADATA_BYTES: usize = 20_000;
    for seed in 0..8 {
        let story = Story::new(seed);
        let running = story.boot().expect("no power cut is ordered");
        let (clients, rt) = (story.client.rt(), story.broker.rt());
        story.world.block_on(&rt, async {
            // Before that, what one shard has may be news to another.
            let connection = connect(&clients, running.addr).await.expect("it serves");
            let found = start_find(&connection, 0).await.await.expect("an answer");
            assert_eq!(found.coordinators[0].error_code, 0);
            let mut joins = Vec::new();
            for _ in 0..MEMBERS {
                let connection = connect(&clients, running.addr).await.expect("it serves");
                let join = start_join(&connection, 0, METADATA_BYTES).await;
                joins.push((connection, join));
            }
            let mut listed = 0;
            for (_connection, join) in joins {
                let answer = join.await.expect("it is answered");
                assert_eq!((answer.error_code, answer.generation_id), (0, 1));
                listed += answer.members.len();
            }
            assert_eq!(listed, MEMBERS, "the leader is told of all");
        });
    }
}

#[test]
fn given_a_topic_that_is_deleted_then_its_committed_offsets_are_gone_and_stay_gone() {
    for seed in 0..6 {
        let story = Story::new(seed);
        let clients = story.client.rt();
        let running = story.boot().expect("no power cut is ordered");
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            create_with(&connection, "t", COUNT, &[]).await;
            create_with(&connection, "kept", COUNT, &[]).await;
            for group in 0..GROUPS {
                for topic in ["t", "kept"] {
                    let code = commit(&connection, group, topic, 0, 5).await;
                    assert_eq!(code.expect("an answer"), 0);
                }
            }
            let request = DeleteTopicsRequest {
                topic_names: vec![text("t")],
                timeout_ms: 10_000,
                ..Default::default()
            };
            let answer = connection.start_as(&request, 5).await.expect("it is sent");
            let answer = answer.await.expect("an answer");
            assert_eq!(answer.responses[0].error_code, 0);
            create_with(&connection, "t", COUNT, &[]).await;
            // The tombstones are written behind the answer.
            while fetch(&connection, 0, "t", 0).await.expect("an answer") != -1 {
                clients.sleep(Duration::from_millis(5)).await;
            }
        });
        // Whether all tombstones were written before this or not.
        story.broker.crash_with(PowerCut::AllLost);
        story.broker.restart();
        let running = story.boot().expect("no power cut is ordered");
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, running.addr).await.expect("it serves");
            for group in 0..GROUPS {
                let found = fetch(&connection, group, "kept", 0).await;
                assert_eq!(found.expect("an answer"), 5);
            }
        });
    }
}

#[test]
fn given_many_who_ask_first_then_the_topic_is_created_once_and_only_the_broker_writes_it() {
    for seed in 0..6 {
        let story = Story::new(seed);
        let running = story.boot().expect("no power cut is ordered");
        let clients = story.client.rt();
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let mut asked = Vec::new();
            for group in 0..8 {
                let connection = connect(&clients, running.addr).await.expect("it serves");
                let answer = start_find(&connection, group).await;
                asked.push((connection, answer));
            }
            for (_, answer) in asked {
                let answer = answer.await.expect("an answer");
                assert_eq!(answer.coordinators[0].error_code, 0);
            }
            let connection = connect(&clients, running.addr).await.expect("it serves");
            let request = MetadataRequest {
                topics: None,
                ..Default::default()
            };
            let answer = connection.call(&request).await.expect("an answer");
            assert_eq!(answer.topics.len(), 1);
            let topic = &answer.topics[0];
            assert_eq!(topic.name, Some(text("__consumer_offsets")));
            assert_eq!((topic.is_internal, topic.partitions.len()), (true, 5));
            let refused = produce_one(&connection, "__consumer_offsets", 0).await;
            assert_eq!(refused, Err(ErrorCode::InvalidTopicException.code()));
        });
    }
}

/// Every offset is between what was answered and what was sent.
async fn check(connection: &BrokerConnection, known: &AllKnown) {
    let all = known.borrow().clone();
    for (
        (group, partition),
        Known {
            acknowledged,
            asked,
        },
    ) in all
    {
        let Ok(offset) = fetch(connection, group, "t", partition).await else {
            // The power was cut meanwhile.
            return;
        };
        let found = offset.max(0);
        assert!(
            (acknowledged..=asked).contains(&found),
            "group {group} partition {partition}: {found} is not in {acknowledged}..={asked}"
        );
    }
}

async fn commit_for_ever(
    rt: &Rt,
    addr: SocketAddr,
    group: usize,
    known: &AllKnown,
) -> Result<(), ClientError> {
    let connection = connect(rt, addr).await?;
    loop {
        let partition = (rt.random_u64() % COUNT as u64) as i32;
        let offset = {
            let mut known = known.borrow_mut();
            let known = known.entry((group, partition)).or_default();
            known.asked += 1;
            known.asked
        };
        if commit(&connection, group, "t", partition, offset).await? == 0 {
            let mut known = known.borrow_mut();
            known.entry((group, partition)).or_default().acknowledged = offset;
        }
        rt.sleep(Duration::from_micros(rt.random_u64() % 20_000))
            .await;
    }
}

/// The code of a commit, once the group's coordinator has loaded.
async fn commit(
    connection: &BrokerConnection,
    group: usize,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<i16, ClientError> {
    let request = OffsetCommitRequest {
        group_id: name(group),
        topics: vec![OffsetCommitRequestTopic {
            name: text(topic),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: offset,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    loop {
        let answer = connection.call(&request).await?;
        let code = answer.topics[0].partitions[0].error_code;
        if code != ErrorCode::CoordinatorLoadInProgress.code() {
            return Ok(code);
        }
    }
}

/// The committed offset, once the group's coordinator has loaded.
async fn fetch(
    connection: &BrokerConnection,
    group: usize,
    topic: &str,
    partition: i32,
) -> Result<i64, ClientError> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: name(group),
            topics: Some(vec![OffsetFetchRequestTopics {
                name: text(topic),
                partition_indexes: vec![partition],
            }]),
            ..Default::default()
        }],
        ..Default::default()
    };
    loop {
        let answer = connection.call(&request).await?;
        let group = &answer.groups[0];
        if group.error_code == 0 {
            let found = &group.topics[0].partitions[0];
            assert_eq!(found.error_code, 0);
            return Ok(found.committed_offset);
        }
        // The coordinator loads, or the disk fails and the broker with it.
    }
}

async fn start_join(
    connection: &BrokerConnection,
    group: usize,
    metadata_bytes: usize,
) -> impl std::future::Future<Output = Result<JoinGroupResponse, ClientError>> + 'static {
    let request = JoinGroupRequest {
        group_id: name(group),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: vec![0; metadata_bytes].into(),
        }],
        ..Default::default()
    };
    // In a version that does not ask the member to come again with its id.
    connection.start_as(&request, 3).await.expect("it is sent")
}

/// Asks for the group's coordinator; the topic of the groups is there with the answer.
async fn start_find(
    connection: &BrokerConnection,
    group: usize,
) -> impl std::future::Future<Output = Result<FindCoordinatorResponse, ClientError>> + 'static {
    let request = FindCoordinatorRequest {
        coordinator_keys: vec![name(group)],
        ..Default::default()
    };
    connection.start_as(&request, 4).await.expect("it is sent")
}

fn name(group: usize) -> Str {
    Str::from(format!("group-{group}"))
}
