//! Several data directories: what is placed where, and one that is away, swapped or new.

use super::broker::{Broker, Launch};
use super::client::{batch_of, create_topic, fetch, fetch_all, produce, produce_ok, text, with};
use super::{data_dir, launch};
use highwater::client::BrokerConnection;
use highwater::protocol::messages::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const STORAGE: i16 = 56;
const UNKNOWN: i16 = 3;
const TOPIC: &str = "spread";
const PARTITIONS: i32 = 6;
const RECORDS: i64 = 8;
const MARKER: &str = ".kafka_cleanshutdown";
const METADATA_LOG: &str = "__cluster_metadata-0";

/// A broker on these directories below `root`, in that order.
fn on(root: &Path, dirs: &[&str]) -> Launch {
    let paths: Vec<String> = dirs
        .iter()
        .map(|dir| root.join(dir).display().to_string())
        .collect();
    launch(Path::new(&paths.join(",")))
}

fn rename(root: &Path, from: &str, to: &str) {
    std::fs::rename(root.join(from), root.join(to)).expect("it can be renamed");
    assert!(!root.join(from).exists(), "it is away");
}

/// The partitions of a topic that have a directory in there.
fn held(dir: &Path, topic: &str) -> BTreeSet<i32> {
    let entries = std::fs::read_dir(dir).expect("the data directory is there");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .filter_map(|name| {
            let name = name.to_str()?.to_owned();
            let (of, index) = name.rsplit_once('-')?;
            (of == topic).then(|| index.parse().ok())?
        })
        .collect()
}

/// Every file and directory at or below a path.
fn all_below(dir: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).expect("it can be listed") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_dir() {
                left.push(entry.path());
            }
            found.insert(entry.path());
        }
    }
    found
}

fn value(partition: i32, offset: i64) -> String {
    format!("{partition}-{offset}")
}

/// A topic over both directories, with its records, and "doomed", also over both.
fn make(broker: &Broker) {
    with(broker.addr(), |c| async move {
        create_topic(&c, TOPIC, PARTITIONS, &[]).await;
        create_topic(&c, "doomed", 4, &[]).await;
        grow(&c, 0..PARTITIONS, 0).await;
        for partition in 0..4 {
            produce_ok(&c, "doomed", partition, batch_of("x")).await;
        }
    });
}

/// Produces the next records, the first of which gets the offset `from`.
async fn grow(c: &BrokerConnection, partitions: impl IntoIterator<Item = i32>, from: i64) {
    for partition in partitions {
        for offset in from..from + RECORDS {
            let batch = batch_of(&value(partition, offset));
            assert_eq!(produce_ok(c, TOPIC, partition, batch).await, offset);
        }
    }
}

/// A partition holds exactly so many of its records.
async fn check(c: &BrokerConnection, partition: i32, end: i64) {
    let found = fetch_all(c, TOPIC, partition, 0).await;
    let wanted: Vec<(i64, String)> = (0..end)
        .map(|offset| (offset, value(partition, offset)))
        .collect();
    assert_eq!(found, wanted, "partition {partition}");
}

async fn check_all(c: &BrokerConnection) {
    for partition in 0..PARTITIONS {
        check(c, partition, RECORDS).await;
    }
}

/// Takes no records and gives none.
async fn check_offline(c: &BrokerConnection, partition: i32) {
    let answer = produce(c, TOPIC, partition, -1, batch_of("lost")).await;
    assert_eq!(answer.error_code, STORAGE, "partition {partition}");
    let answer = fetch(c, TOPIC, partition, 0, 0, 1 << 20).await;
    assert_eq!(answer.error_code, STORAGE, "partition {partition}");
}

/// Those without a leader; `None`: there is no such topic.
async fn leaderless(c: &BrokerConnection, topic: &str) -> Option<BTreeSet<i32>> {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(text(topic)),
            ..Default::default()
        }]),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    let answer = c.call(&request).await.expect("an answer");
    let topic = &answer.topics[0];
    if topic.error_code == UNKNOWN {
        return None;
    }
    assert_eq!(topic.error_code, 0);
    let partitions = topic.partitions.iter();
    let without = partitions.filter(|partition| {
        let none = partition.leader_id == -1;
        assert_eq!(none, !partition.offline_replicas.is_empty());
        none
    });
    Some(without.map(|partition| partition.partition_index).collect())
}

async fn delete_code(c: &BrokerConnection, topic: &str) -> i16 {
    let request = DeleteTopicsRequest {
        topic_names: vec![text(topic)],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let sent = c.start_as(&request, 5).await.expect("it is sent");
    sent.await.expect("an answer").responses[0].error_code
}

/// By path: the error, and the partitions of [`TOPIC`].
async fn log_dirs(c: &BrokerConnection) -> BTreeMap<PathBuf, (i16, BTreeSet<i32>)> {
    let request = DescribeLogDirsRequest { topics: None };
    let answer = c.call(&request).await.expect("an answer");
    let results = answer.results.iter().map(|result| {
        let topics = result.topics.iter();
        let topics = topics.filter(|topic| topic.name.as_str() == TOPIC);
        let partitions = topics.flat_map(|topic| &topic.partitions);
        let partitions = partitions.map(|partition| partition.partition_index);
        let told = (result.error_code, partitions.collect());
        (PathBuf::from(result.log_dir.as_str()), told)
    });
    results.collect()
}

/// Refused, with what it said.
fn refused(launch: &Launch) -> String {
    match launch.try_start("127.0.0.1:0") {
        Ok(_) => panic!("it started"),
        Err(refused) => {
            assert!(!refused.status.success());
            refused.stderr
        }
    }
}

#[test]
fn given_two_directories_then_partitions_are_spread_and_told_and_found_again() {
    let root = data_dir();
    let launch = on(root.path(), &["a", "b"]);
    let broker = launch.start();
    make(&broker);
    let [a, b] = ["a", "b"].map(|dir| root.path().join(dir));
    assert_eq!(held(&a, TOPIC).len(), 3);
    assert_eq!(held(&b, TOPIC).len(), 3);
    assert!(a.join(METADATA_LOG).exists() && !b.join(METADATA_LOG).exists());
    let told = with(broker.addr(), |c| async move { log_dirs(&c).await });
    assert_eq!(told[&a], (0, held(&a, TOPIC)));
    assert_eq!(told[&b], (0, held(&b, TOPIC)));
    broker.kill();
    let broker = launch.start();
    with(broker.addr(), |c| async move { check_all(&c).await });
    broker.stop();
    assert!(a.join(MARKER).exists() && b.join(MARKER).exists());
    // The order is of no account, nor is where the metadata log is in it.
    let broker = on(root.path(), &["b", "a"]).start();
    assert!(!b.join(METADATA_LOG).exists());
    with(broker.addr(), |c| async move {
        check_all(&c).await;
        grow(&c, 0..PARTITIONS, RECORDS).await;
    });
    broker.stop();
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        for partition in 0..PARTITIONS {
            check(&c, partition, 2 * RECORDS).await;
        }
    });
    broker.stop();
}

#[test]
fn given_a_file_where_the_second_directory_was_then_its_partitions_wait_for_its_return() {
    let root = data_dir();
    let launch = on(root.path(), &["a", "b"]);
    let broker = launch.start();
    make(&broker);
    broker.stop();
    let [a, b, away] = ["a", "b", "away"].map(|dir| root.path().join(dir));
    let (first, second) = (held(&a, TOPIC), held(&b, TOPIC));
    rename(root.path(), "b", "away");
    std::fs::write(&b, "not a directory").expect("the file can be written");
    let before = all_below(&away);
    let broker = launch.start();
    let (offline, online) = (second.clone(), first.clone());
    let told = with(broker.addr(), |c| async move {
        for partition in &offline {
            check_offline(&c, *partition).await;
        }
        for partition in &online {
            check(&c, *partition, RECORDS).await;
        }
        grow(&c, online, RECORDS).await;
        assert_eq!(leaderless(&c, TOPIC).await, Some(offline));
        let created = create_topic(&c, "later", 3, &[]).await;
        assert_eq!(created.error_code, 0);
        for partition in 0..3 {
            produce_ok(&c, "later", partition, batch_of("x")).await;
        }
        assert_eq!(delete_code(&c, "doomed").await, 0);
        log_dirs(&c).await
    });
    assert_eq!(told[&a], (0, first.clone()));
    assert_eq!(told[&b], (STORAGE, BTreeSet::new()));
    assert_eq!(held(&a, "later").len(), 3);
    assert!(held(&a, TOPIC).is_disjoint(&second), "none is created anew");
    let (status, said) = broker.end_by("TERM");
    assert!(!status.success(), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("not a clean stop"), "{said}");
    assert!(last.contains(&b.display().to_string()), "{said}");
    assert!(last.contains("offline"), "{said}");
    assert!(a.join(MARKER).exists(), "all was well there");
    assert_eq!(std::fs::read(&b).expect("the file"), b"not a directory");
    assert_eq!(all_below(&away), before);

    std::fs::remove_file(&b).expect("the file can be removed");
    rename(root.path(), "away", "b");
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        for partition in first {
            check(&c, partition, 2 * RECORDS).await;
        }
        for partition in second {
            check(&c, partition, RECORDS).await;
        }
        assert_eq!(leaderless(&c, TOPIC).await, Some(BTreeSet::new()));
        assert_eq!(leaderless(&c, "doomed").await, None, "it is deleted");
        create_topic(&c, "doomed", 4, &[]).await;
        for partition in 0..4 {
            let offset = produce_ok(&c, "doomed", partition, batch_of("y")).await;
            assert_eq!(offset, 0, "it inherits nothing");
        }
    });
    broker.stop();
}

#[test]
fn given_an_empty_or_no_second_directory_then_its_partitions_are_not_created_anew() {
    for listed in [&["a", "b"][..], &["a"][..]] {
        let root = data_dir();
        let both = on(root.path(), &["a", "b"]);
        let broker = both.start();
        make(&broker);
        broker.stop();
        let [a, b, away] = ["a", "b", "away"].map(|dir| root.path().join(dir));
        let (first, second) = (held(&a, TOPIC), held(&b, TOPIC));
        let meta = std::fs::read_to_string(b.join("meta.properties")).expect("it is formatted");
        let id = meta
            .lines()
            .find_map(|line| line.strip_prefix("directory.id="))
            .expect("it has an id")
            .to_owned();
        rename(root.path(), "b", "away");
        let before = all_below(&away);
        // The second time everything is formatted already.
        for _ in 0..2 {
            let broker = on(root.path(), listed).start();
            let (offline, online) = (second.clone(), first.clone());
            with(broker.addr(), |c| async move {
                for partition in &offline {
                    check_offline(&c, *partition).await;
                }
                for partition in online {
                    check(&c, partition, RECORDS).await;
                }
                let topic = create_topic(&c, "later", 2, &[]).await;
                assert!([0, 36].contains(&topic.error_code), "{}", topic.error_code);
                produce_ok(&c, "later", 0, batch_of("x")).await;
                produce_ok(&c, "later", 1, batch_of("x")).await;
                assert_eq!(leaderless(&c, TOPIC).await, Some(offline));
            });
            assert!(held(&a, TOPIC).is_disjoint(&second));
            if listed.len() == 2 {
                assert_eq!(held(&b, TOPIC), BTreeSet::new());
                let now = std::fs::read_to_string(b.join("meta.properties"));
                assert!(!now.expect("it is formatted").contains(&id));
            }
            let (status, said) = broker.end_by("TERM");
            assert!(!status.success(), "{said}");
            assert!(said.contains(&format!("directory.id={id}")), "{said}");
            assert!(said.contains("bring that directory back"), "{said}");
        }
        assert_eq!(all_below(&away), before);
        if listed.len() == 2 {
            // The swapped disk becomes a third directory, and keeps what it has taken.
            rename(root.path(), "b", "c");
        }
        rename(root.path(), "away", "b");
        let dirs = match listed.len() {
            2 => &["a", "b", "c"][..],
            _ => &["a", "b"][..],
        };
        let broker = on(root.path(), dirs).start();
        with(broker.addr(), |c| async move {
            check_all(&c).await;
            for partition in 0..2 {
                let later = fetch_all(&c, "later", partition, 0).await;
                assert_eq!(later.len(), 2, "one of each start");
            }
        });
        broker.stop();
    }
}

#[test]
fn given_a_partition_moved_by_hand_then_it_is_found_and_goes_on() {
    let root = data_dir();
    let launch = on(root.path(), &["a", "b"]);
    let broker = launch.start();
    make(&broker);
    broker.stop();
    let [a, b] = ["a", "b"].map(|dir| root.path().join(dir));
    let moved = *held(&b, TOPIC).first().expect("it has some");
    let name = format!("{TOPIC}-{moved}");
    std::fs::rename(b.join(&name), a.join(&name)).expect("it can be moved");
    for start in 1..3 {
        let broker = launch.start();
        let told = with(broker.addr(), move |c| async move {
            for partition in 0..PARTITIONS {
                check(&c, partition, start * RECORDS).await;
            }
            grow(&c, 0..PARTITIONS, start * RECORDS).await;
            assert_eq!(leaderless(&c, TOPIC).await, Some(BTreeSet::new()));
            log_dirs(&c).await
        });
        assert!(told[&a].1.contains(&moved));
        assert!(!b.join(&name).exists(), "it is not created there again");
        // The first stop is clean, the second is none.
        match start {
            1 => drop(broker.stop()),
            _ => broker.kill(),
        }
    }
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        for partition in 0..PARTITIONS {
            check(&c, partition, 3 * RECORDS).await;
        }
        assert_eq!(delete_code(&c, TOPIC).await, 0);
    });
    broker.stop();
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        assert_eq!(leaderless(&c, TOPIC).await, None);
    });
    assert_eq!(held(&a, TOPIC), BTreeSet::new());
    assert_eq!(held(&b, TOPIC), BTreeSet::new());
    broker.stop();
}

#[test]
fn given_the_directory_of_the_metadata_log_is_missing_then_the_start_is_refused() {
    for order in [["a", "b"], ["b", "a"]] {
        let root = data_dir();
        let broker = on(root.path(), &["a", "b"]).start();
        make(&broker);
        broker.stop();
        rename(root.path(), "a", "away");
        let before = all_below(root.path());
        let said = refused(&on(root.path(), &order));
        assert!(said.contains("metadata log"), "{said}");
        let a = root.path().join("a").display().to_string();
        let b = root.path().join("b").display().to_string();
        assert!(said.contains(&a) || said.contains(&b), "{said}");
        assert_eq!(all_below(root.path()), before, "nothing is formatted");
        rename(root.path(), "away", "a");
        let broker = on(root.path(), &order).start();
        with(broker.addr(), |c| async move { check_all(&c).await });
        broker.stop();
    }
}

#[test]
fn given_two_paths_to_one_directory_then_the_start_is_refused() {
    for used in [false, true] {
        let root = data_dir();
        std::fs::create_dir(root.path().join("a")).expect("it can be made");
        std::os::unix::fs::symlink(root.path().join("a"), root.path().join("link"))
            .expect("a link can be made");
        if used {
            on(root.path(), &["a"]).start().stop();
        }
        for dirs in [["a", "link"], ["link", "a"], ["a", "link/../a"]] {
            let said = refused(&on(root.path(), &dirs));
            assert!(said.contains("log.dirs"), "{said}");
            assert!(said.contains(&root.path().join("a").display().to_string()));
            assert!(!said.contains("another process"), "{said}");
        }
        on(root.path(), &["a"]).start().stop();
    }
}

#[test]
fn given_a_copy_of_a_directory_then_the_start_is_refused() {
    let root = data_dir();
    let broker = on(root.path(), &["a", "b"]).start();
    make(&broker);
    broker.stop();
    std::fs::create_dir(root.path().join("copy")).expect("it can be made");
    let meta = ["b", "copy"].map(|dir| root.path().join(dir).join("meta.properties"));
    std::fs::copy(&meta[0], &meta[1]).expect("it can be copied");
    let said = refused(&on(root.path(), &["a", "b", "copy"]));
    assert!(said.contains("same directory.id"), "{said}");
    assert!(said.contains("copy"), "{said}");
}

#[test]
fn given_one_directory_and_then_two_then_all_is_kept() {
    let root = data_dir();
    let broker = on(root.path(), &["a"]).start();
    make(&broker);
    broker.stop();
    let [a, b] = ["a", "b"].map(|dir| root.path().join(dir));
    let both = on(root.path(), &["a", "b"]);
    let broker = both.start();
    with(broker.addr(), |c| async move {
        check_all(&c).await;
        assert_eq!(create_topic(&c, "later", 4, &[]).await.error_code, 0);
        for partition in 0..4 {
            produce_ok(&c, "later", partition, batch_of("x")).await;
        }
        grow(&c, 0..PARTITIONS, RECORDS).await;
    });
    assert_eq!(held(&a, TOPIC).len(), PARTITIONS as usize);
    assert!(!held(&b, "later").is_empty());
    broker.kill();
    let broker = both.start();
    with(broker.addr(), |c| async move {
        for partition in 0..PARTITIONS {
            check(&c, partition, 2 * RECORDS).await;
        }
        for partition in 0..4 {
            assert_eq!(fetch_all(&c, "later", partition, 0).await.len(), 1);
        }
    });
    broker.stop();
}
