//! Two data directories, and what becomes of the broker when the second fails.

use super::settings::{create_with, text};
use super::*;
use crate::runtime::sim::WriteFault;
use crate::shard::ControlError;
use std::collections::BTreeSet;

const FIRST: &str = "/first";
const SECOND: &str = "/second";
const MARKER: &str = ".kafka_cleanshutdown";
const LEADER_NONE: i32 = -1;

/// What was acknowledged, by partition, in order of offsets.
pub(super) type Ledger = BTreeMap<i32, Vec<String>>;

/// A broker on both directories, whatever of it is offline.
fn boot(story: &Story) -> Result<Simulated, ServeError> {
    boot_on(story, &[FIRST, SECOND])
}

pub(super) fn boot_on(story: &Story, dirs: &[&str]) -> Result<Simulated, ServeError> {
    let shards = 1 + story.world.random_below(3) as usize;
    let config = BrokerConfig {
        listener: HostPort {
            host: story.broker.ip().to_string(),
            port: 9092,
        },
        data_dirs: dirs.iter().map(Into::into).collect(),
        log_segment_bytes: 4_000,
        log_flush_offset_checkpoint_interval_ms: 500,
        replica_high_watermark_checkpoint_interval_ms: 300,
        offsets_topic_num_partitions: 5,
        ..BrokerConfig::default()
    };
    let plan = SimulatedPlan {
        config,
        shards,
        sizes: ShardSizes {
            response_bytes: 1 << 20,
            ..SIZES
        },
        mesh_window: 4,
        admin: None,
    };
    let rt = story.broker.rt_shard(shards);
    let started = start_simulated(story.broker.clone(), plan);
    story.world.block_on(&rt, started)
}

/// Ends the process, however it is, and starts the next.
fn boot_again(story: &Story) -> Result<Simulated, ServeError> {
    story.broker.kill();
    story.broker.restart();
    boot(story)
}

pub(super) async fn stop(running: Simulated) -> Result<(), ServeError> {
    running.stop.send(()).expect("it waits for that");
    running.ended.await.expect("it ends")
}

/// Stops and insists on the sentence that names the second directory and `why`.
async fn stop_not_clean(running: Simulated, why: &str) {
    match stop(running).await {
        Err(ServeError::Control(ControlError::NotClean(reasons))) => {
            let said = reasons.join("\n");
            assert!(said.contains(SECOND) && said.contains(why), "{said}");
        }
        other => panic!("an offline directory is told of: {other:?}"),
    }
}

/// The partitions of a topic that have files in a directory.
fn held(story: &Story, dir: &str, topic: &str) -> BTreeSet<i32> {
    let files = story.broker.disk().list_raw(dir);
    let of_topic = |path: &std::path::Path| {
        let path = path.strip_prefix(dir).expect("it was listed there");
        let first = path.components().next()?.as_os_str().to_str()?;
        let (name, index) = first.rsplit_once('-')?;
        (name == topic).then(|| index.parse().ok())?
    };
    files
        .iter()
        .filter_map(|(path, _)| of_topic(path))
        .collect()
}

fn marked(story: &Story, dir: &str) -> bool {
    let disk = story.broker.disk();
    disk.read_raw(format!("{dir}/{MARKER}")).is_some()
}

pub(super) async fn produce_to(
    connection: &BrokerConnection,
    topic: &str,
    partition: i32,
    value: &str,
) -> Result<i64, i16> {
    let produced = full_disk::produce_record(connection, topic, partition, value.as_bytes());
    produced.await.map_err(|(code, _)| code)
}

/// Produces `rounds` records to each of the partitions; all are taken.
pub(super) async fn fill(
    connection: &BrokerConnection,
    partitions: impl IntoIterator<Item = i32>,
    rounds: usize,
    ledger: &mut Ledger,
) {
    for partition in partitions {
        let taken = ledger.entry(partition).or_default();
        for _ in 0..rounds {
            let value = format!("{partition}-{}", taken.len());
            let offset = produce_to(connection, TOPIC, partition, &value).await;
            assert_eq!(offset, Ok(taken.len() as i64), "partition {partition}");
            taken.push(value);
        }
    }
}

/// Every record of a partition, or the error.
pub(super) async fn read_all(
    connection: &BrokerConnection,
    partition: i32,
) -> Result<Vec<String>, i16> {
    let mut values = Vec::new();
    loop {
        let from = [(partition, values.len() as i64)];
        let answer = fetch(connection, None, &from, 0).await.expect("an answer");
        let (answer, records) = answer.into_iter().next().expect("one was asked for");
        if answer.error_code != 0 {
            return Err(answer.error_code);
        }
        if records.is_empty() {
            assert_eq!(answer.high_watermark, values.len() as i64);
            return Ok(values);
        }
        for (offset, value) in records {
            assert_eq!(offset, values.len() as i64, "no hole");
            values.push(value);
        }
    }
}

/// Exactly what was acknowledged is there.
pub(super) async fn check(connection: &BrokerConnection, ledger: &Ledger) {
    for (partition, values) in ledger {
        let found = read_all(connection, *partition).await;
        assert_eq!(found.as_ref(), Ok(values), "partition {partition}");
    }
}

/// Leaders of a topic's partitions, in order of index; `None`: there is no such topic. One
/// without a leader has its replica offline, and no other has.
async fn leaders(connection: &BrokerConnection, topic: &str) -> Option<Vec<i32>> {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(text(topic)),
            ..Default::default()
        }]),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    let answer = connection.call(&request).await.expect("an answer");
    let topic = &answer.topics[0];
    if topic.error_code == ErrorCode::UnknownTopicOrPartition.code() {
        return None;
    }
    assert_eq!(topic.error_code, 0);
    let mut partitions: Vec<_> = topic.partitions.iter().collect();
    partitions.sort_by_key(|partition| partition.partition_index);
    for partition in &partitions {
        let offline = match partition.leader_id {
            LEADER_NONE => partition.replica_nodes.clone(),
            _ => Vec::new(),
        };
        assert_eq!(partition.offline_replicas, offline);
    }
    Some(partitions.iter().map(|p| p.leader_id).collect())
}

/// Those of a topic's partitions that have no leader.
async fn leaderless(connection: &BrokerConnection, topic: &str) -> BTreeSet<i32> {
    let leaders = leaders(connection, topic).await.expect("the topic exists");
    let leaders = (0..).zip(leaders);
    leaders
        .filter(|(_, leader)| *leader == LEADER_NONE)
        .map(|(index, _)| index)
        .collect()
}

/// By directory: its error, and how many partitions it is told to hold.
async fn log_dirs(connection: &BrokerConnection) -> BTreeMap<String, (i16, usize)> {
    let request = DescribeLogDirsRequest { topics: None };
    let answer = connection.call(&request).await.expect("an answer");
    let results = answer.results.iter().map(|result| {
        let partitions = result.topics.iter().map(|topic| topic.partitions.len());
        let told = (result.error_code, partitions.sum());
        (result.log_dir.to_string(), told)
    });
    results.collect()
}

async fn delete_code(connection: &BrokerConnection, topic: &str) -> i16 {
    let request = DeleteTopicsRequest {
        topic_names: vec![text(topic)],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let sent = connection.start_as(&request, 5).await.expect("it is sent");
    sent.await.expect("an answer").responses[0].error_code
}

#[test]
fn given_two_directories_then_partitions_are_spread_evenly_however_they_are_created() {
    let story = Story::new(0);
    let running = boot(&story).expect("it starts");
    let (rt, clients, addr) = (story.broker.rt(), story.client.rt(), running.ready.listen);
    let sizes = |topic: &str| [FIRST, SECOND].map(|dir| held(&story, dir, topic).len());
    story.world.block_on(&rt, async {
        let connection = connect(&clients, addr).await.expect("it serves");
        create_with(&connection, TOPIC, 7, &[]).await;
        assert_eq!(sizes(TOPIC), [4, 3]);
        // One topic after the other: the first goes where there was one less.
        for n in 0..9 {
            create_with(&connection, &format!("single{n}"), 1, &[]).await;
        }
        let singles = (0..9).map(|n| sizes(&format!("single{n}")));
        let singles = singles.fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
        assert_eq!(singles, [4, 5]);
        create_with(&connection, "wide", 1_000, &[]).await;
        assert_eq!(sizes("wide"), [500, 500]);
        let [first, second] = [FIRST, SECOND].map(|dir| held(&story, dir, "wide"));
        assert!(first.is_disjoint(&second));
        for index in (0..1_000).step_by(250) {
            assert_eq!(produce_to(&connection, "wide", index, "x").await, Ok(0));
        }
        let told = log_dirs(&connection).await;
        assert_eq!(told[FIRST], (0, 508));
        assert_eq!(told[SECOND], (0, 508));
        stop(running).await.expect("a clean stop");
    });
    assert!(marked(&story, FIRST) && marked(&story, SECOND));
    let running = boot_again(&story).expect("it starts");
    assert_eq!(running.ready.start, StartKind::Clean);
    assert_eq!(running.ready.loaded.offline, []);
    assert_eq!(running.ready.loaded.online, 1_016);
}

#[test]
fn given_a_directory_that_fails_then_its_partitions_are_offline_and_the_other_serves_on() {
    for seed in 0..12 {
        let story = Story::new(seed);
        let running = boot(&story).expect("it starts");
        let (rt, clients, disk) = (story.broker.rt(), story.client.rt(), story.broker.disk());
        let addr = running.ready.listen;
        let mut ledger = Ledger::new();
        let second = story.world.block_on(&rt, async {
            let connection = connect(&clients, addr).await.expect("it serves");
            create_with(&connection, TOPIC, 6, &[]).await;
            create_with(&connection, "doomed", 4, &[]).await;
            let (first, second) = (held(&story, FIRST, TOPIC), held(&story, SECOND, TOPIC));
            assert_eq!((first.len(), second.len()), (3, 3));
            fill(&connection, 0..6, 5, &mut ledger).await;
            for partition in 0..4 {
                let offset = produce_to(&connection, "doomed", partition, "x").await;
                assert_eq!(offset, Ok(0));
            }
            match seed % 3 {
                0 => disk.fail_writes(SECOND, WriteFault::Errno(EIO)),
                1 => disk.fail_ops("fdatasync", SECOND, EIO),
                _ => {
                    for op in ["open", "write", "fdatasync", "fsync", "rename", "list"] {
                        disk.fail_ops(op, SECOND, EIO);
                    }
                }
            }
            for partition in &second {
                let refused = produce_to(&connection, TOPIC, *partition, "lost").await;
                assert_eq!(refused, Err(STORAGE), "partition {partition}");
            }
            assert!(disk.faults_fired() > 0, "the disk failed");
            // The news is carried to every shard.
            rt.sleep(Duration::from_secs(1)).await;
            for partition in &second {
                assert_eq!(read_all(&connection, *partition).await, Err(STORAGE));
            }
            assert_eq!(leaderless(&connection, TOPIC).await, second);
            let told = log_dirs(&connection).await;
            assert_eq!(told[FIRST], (0, 5), "three and two");
            assert_eq!(told[SECOND], (STORAGE, 0));
            fill(&connection, first.clone(), 3, &mut ledger).await;
            // A device that comes back is not trusted before a restart.
            if seed % 2 == 0 {
                disk.clear_faults();
            }
            create_with(&connection, "later", 3, &[]).await;
            assert_eq!(held(&story, FIRST, "later").len(), 3);
            assert_eq!(held(&story, SECOND, "later").len(), 0);
            for partition in 0..3 {
                let offset = produce_to(&connection, "later", partition, "x").await;
                assert_eq!(offset, Ok(0));
            }
            assert_eq!(delete_code(&connection, "doomed").await, 0);
            assert_eq!(leaders(&connection, "doomed").await, None);
            let refused = produce_to(&connection, TOPIC, second.first().copied().unwrap(), "lost");
            assert_eq!(refused.await, Err(STORAGE), "not before a restart");
            for partition in &first {
                let found = read_all(&connection, *partition).await;
                assert_eq!(found.as_ref(), Ok(&ledger[partition]));
            }
            second
        });
        let stopped = seed % 4 < 2;
        if stopped {
            story
                .world
                .block_on(&rt, stop_not_clean(running, "offline"));
            assert!(marked(&story, FIRST), "all was well there");
            assert!(!marked(&story, SECOND));
        }
        disk.clear_faults();
        let running = boot_again(&story).expect("it starts");
        assert_eq!(running.ready.start, StartKind::Unclean);
        assert_eq!(running.ready.loaded.offline, []);
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, addr).await.expect("it serves");
            assert_eq!(leaders(&connection, "doomed").await, None, "it is deleted");
            assert_eq!(leaderless(&connection, TOPIC).await, BTreeSet::new());
            // What was refused may be there all the same: it was not acknowledged.
            for partition in 0..6 {
                let found = read_all(&connection, partition)
                    .await
                    .expect("it is online");
                let kept = &ledger[&partition];
                assert!(found.starts_with(kept), "partition {partition}: {found:?}");
                let more = &found[kept.len()..];
                assert!(more.iter().all(|value| value == "lost"), "{more:?}");
                assert!(more.is_empty() || second.contains(&partition));
            }
            // The name is free, and its successor inherits nothing.
            create_with(&connection, "doomed", 4, &[]).await;
            for partition in 0..4 {
                let offset = produce_to(&connection, "doomed", partition, "y").await;
                assert_eq!(offset, Ok(0));
            }
            stop(running).await.expect("a clean stop");
        });
        assert!(marked(&story, FIRST) && marked(&story, SECOND));
        let running = boot_again(&story).expect("it starts");
        assert_eq!(running.ready.start, StartKind::Clean);
        assert_eq!(running.ready.loaded.offline, []);
    }
}

#[test]
fn given_a_topic_created_anew_while_a_directory_is_dead_then_the_old_records_do_not_come_back() {
    for seed in 0..6 {
        let story = Story::new(seed);
        let running = boot(&story).expect("it starts");
        let (rt, clients, disk) = (story.broker.rt(), story.client.rt(), story.broker.disk());
        let addr = running.ready.listen;
        let mut ledger = Ledger::new();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, addr).await.expect("it serves");
            create_with(&connection, TOPIC, 4, &[]).await;
            fill(&connection, 0..4, 5, &mut ledger).await;
            assert_eq!(held(&story, SECOND, TOPIC).len(), 2);
            disk.fail_writes(SECOND, WriteFault::Errno(EIO));
            for partition in held(&story, SECOND, TOPIC) {
                let refused = produce_to(&connection, TOPIC, partition, "lost").await;
                assert_eq!(refused, Err(STORAGE));
            }
            assert!(disk.faults_fired() > 0);
            rt.sleep(Duration::from_secs(1)).await;
            assert_eq!(delete_code(&connection, TOPIC).await, 0);
            create_with(&connection, TOPIC, 4, &[]).await;
            ledger.clear();
            fill(&connection, 0..4, 2, &mut ledger).await;
            check(&connection, &ledger).await;
        });
        disk.clear_faults();
        for _ in 0..2 {
            let running = boot_again(&story).expect("it starts");
            assert_eq!(running.ready.loaded.offline, []);
            let rt = story.broker.rt();
            story.world.block_on(&rt, async {
                let connection = connect(&clients, addr).await.expect("it serves");
                check(&connection, &ledger).await;
                fill(&connection, 0..4, 1, &mut ledger).await;
                stop(running).await.expect("a clean stop");
            });
        }
    }
}

/// Bytes that a start scans after a clean stop, if some directories lose their markers.
fn scanned_without_markers(unclean: &[&str]) -> u64 {
    let story = Story::new(1);
    let running = boot(&story).expect("it starts");
    let (rt, clients, disk) = (story.broker.rt(), story.client.rt(), story.broker.disk());
    let mut ledger = Ledger::new();
    let addr = running.ready.listen;
    story.world.block_on(&rt, async {
        let connection = connect(&clients, addr).await.expect("it serves");
        create_with(&connection, TOPIC, 6, &[]).await;
        fill(&connection, 0..6, 120, &mut ledger).await;
        stop(running).await.expect("a clean stop");
    });
    for dir in [FIRST, SECOND] {
        let logs = disk.list_raw(dir).into_iter();
        let logs = logs.filter(|(path, _)| path.extension().is_some_and(|e| e == "log"));
        assert!(logs.count() > 6, "there are segments before the last");
        // Without what proves a flush, everything is read where a log is recovered.
        let points = format!("{dir}/recovery-point-offset-checkpoint");
        assert!(disk.remove_raw(points));
        let files = disk.list_raw(dir).into_iter().map(|(path, _)| path);
        let snapshots = files.filter(|path| path.extension().is_some_and(|e| e == "snapshot"));
        let removed = snapshots.filter(|path| path.to_string_lossy().contains(TOPIC));
        assert!(removed.filter(|path| disk.remove_raw(path)).count() >= 3);
    }
    for dir in unclean {
        assert!(disk.remove_raw(format!("{dir}/{MARKER}")));
    }
    let running = boot_again(&story).expect("it starts");
    let start = match unclean {
        [] => StartKind::Clean,
        _ => StartKind::Unclean,
    };
    assert_eq!(running.ready.start, start);
    let loaded = running.ready.loaded;
    assert_eq!((&loaded.offline[..], loaded.truncated_bytes), (&[][..], 0));
    let rt = story.broker.rt();
    story.world.block_on(&rt, async {
        let connection = connect(&clients, addr).await.expect("it serves");
        check(&connection, &ledger).await;
    });
    loaded.scanned_bytes
}

#[test]
fn given_one_marker_that_is_missing_then_only_the_partitions_there_are_recovered() {
    // After a clean stop the end of the last segment is read.
    let none = scanned_without_markers(&[]);
    let first = scanned_without_markers(&[FIRST]);
    let second = scanned_without_markers(&[SECOND]);
    let both = scanned_without_markers(&[FIRST, SECOND]);
    assert!(first > none && second > none, "{none}, {first}, {second}");
    assert_eq!(first - none + (second - none), both - none);
}

#[test]
fn given_a_directory_that_cannot_be_read_at_the_start_then_its_partitions_wait_for_its_return() {
    for (seed, op) in (0..).zip(["list", "lock", "read"]) {
        let story = Story::new(seed);
        let running = boot(&story).expect("it starts");
        let (rt, clients, disk) = (story.broker.rt(), story.client.rt(), story.broker.disk());
        let mut ledger = Ledger::new();
        let addr = running.ready.listen;
        story.world.block_on(&rt, async {
            let connection = connect(&clients, addr).await.expect("it serves");
            create_with(&connection, TOPIC, 6, &[]).await;
            create_with(&connection, "doomed", 4, &[]).await;
            fill(&connection, 0..6, 5, &mut ledger).await;
            stop(running).await.expect("a clean stop");
        });
        let (first, second) = (held(&story, FIRST, TOPIC), held(&story, SECOND, TOPIC));
        assert_eq!(second.len(), 3);
        let before = disk.list_raw(SECOND);
        let fired = disk.faults_fired();
        disk.fail_ops(op, SECOND, EIO);
        let running = boot_again(&story).expect("the first directory serves");
        assert!(disk.faults_fired() > fired, "{op} failed");
        assert_eq!(running.ready.loaded.offline.len(), 5, "three and two");
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, addr).await.expect("it serves");
            assert_eq!(leaderless(&connection, TOPIC).await, second);
            for partition in &second {
                let refused = produce_to(&connection, TOPIC, *partition, "lost").await;
                assert_eq!(refused, Err(STORAGE));
                assert_eq!(read_all(&connection, *partition).await, Err(STORAGE));
            }
            assert_eq!(log_dirs(&connection).await[SECOND], (STORAGE, 0));
            fill(&connection, first, 2, &mut ledger).await;
            create_with(&connection, "later", 2, &[]).await;
            assert_eq!(held(&story, FIRST, "later").len(), 2);
            assert_eq!(delete_code(&connection, "doomed").await, 0);
            stop_not_clean(running, "offline").await;
        });
        assert!(marked(&story, FIRST));
        disk.clear_faults();
        let names = |files: &[(std::path::PathBuf, u64)]| -> Vec<std::path::PathBuf> {
            let of_topics = files.iter().filter(|(path, _)| {
                let parent = path.parent().expect("a file is somewhere");
                parent != std::path::Path::new(SECOND)
            });
            of_topics.map(|(path, _)| path.clone()).collect()
        };
        let after = disk.list_raw(SECOND);
        assert_eq!(names(&after), names(&before), "nothing is made or removed");
        let running = boot_again(&story).expect("it starts");
        assert_eq!(running.ready.loaded.offline, []);
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, addr).await.expect("it serves");
            check(&connection, &ledger).await;
            assert_eq!(leaders(&connection, "doomed").await, None);
            fill(&connection, 0..6, 2, &mut ledger).await;
            check(&connection, &ledger).await;
            stop(running).await.expect("a clean stop");
        });
    }
}

#[test]
fn given_a_second_directory_in_time_then_all_is_kept_and_it_takes_new_partitions() {
    let story = Story::new(3);
    let running = boot_on(&story, &[FIRST]).expect("it starts");
    let (rt, clients) = (story.broker.rt(), story.client.rt());
    let mut ledger = Ledger::new();
    let addr = running.ready.listen;
    story.world.block_on(&rt, async {
        let connection = connect(&clients, addr).await.expect("it serves");
        create_with(&connection, TOPIC, 4, &[]).await;
        fill(&connection, 0..4, 5, &mut ledger).await;
        stop(running).await.expect("a clean stop");
    });
    for dirs in [[FIRST, SECOND], [SECOND, FIRST]] {
        story.broker.kill();
        story.broker.restart();
        let running = boot_on(&story, &dirs).expect("it starts");
        assert_eq!(running.ready.loaded.offline, []);
        let rt = story.broker.rt();
        story.world.block_on(&rt, async {
            let connection = connect(&clients, addr).await.expect("it serves");
            check(&connection, &ledger).await;
            let name = format!("new{}", dirs[0].len());
            create_with(&connection, &name, 2, &[]).await;
            assert!(!held(&story, SECOND, &name).is_empty());
            fill(&connection, 0..4, 2, &mut ledger).await;
            stop(running).await.expect("a clean stop");
        });
    }
    assert_eq!(held(&story, FIRST, TOPIC).len(), 4);
}
