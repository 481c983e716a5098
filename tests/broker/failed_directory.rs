//! Two data directories on real disks, of which the second is full, fails, or cannot be read.
//! What is needed, and what happens where it is missing, is as in `faulty_disk.rs`.

use super::broker::{Broker, Launch};
use super::client::{batch_of, create_topic, fetch, fetch_all, produce, with};
use super::faulty_disk::{
    block_stack, record, short_dir, write_ballast, Ledger, PATIENCE, STORAGE,
};
use super::loop_disk::LoopDisk;
use super::open_metrics::{ask, Scrape};
use super::{data_dir, launch};
use highwater::client::BrokerConnection;
use highwater::protocol::messages::DescribeLogDirsRequest;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PARTITIONS: i32 = 6;
const TOPIC: &str = "t";

/// A broker's two directories; the metadata log is in the first.
#[derive(Clone)]
struct Two {
    first: PathBuf,
    second: PathBuf,
}

impl Two {
    fn launch(&self) -> Launch {
        let both = format!("{},{}", self.first.display(), self.second.display());
        launch(Path::new(&both)).with_admin()
    }

    /// Which partitions of a topic lie in the first, and which in the second.
    fn split(&self, topic: &str, partitions: i32) -> (Vec<i32>, Vec<i32>) {
        let has = |dir: &Path, p: &i32| dir.join(format!("{topic}-{p}")).is_dir();
        let all = 0..partitions;
        let first = all.clone().filter(|p| has(&self.first, p)).collect();
        (first, all.filter(|p| has(&self.second, p)).collect())
    }

    /// The metric of each directory, the first one's first.
    fn metric(&self, broker: &Broker, name: &str) -> (f64, f64) {
        let scrape = Scrape::of(broker);
        let of = |dir: &Path| scrape.one(name, &[("dir", &dir.display().to_string())]);
        (of(&self.first), of(&self.second))
    }

    /// What DescribeLogDirs says of each.
    fn described(&self, broker: &Broker) -> (i16, i16) {
        let codes = with(broker.addr(), |c| async move {
            let request = DescribeLogDirsRequest { topics: None };
            let answer = c.call(&request).await.expect("an answer");
            let codes = answer.results.iter();
            let codes = codes.map(|r| (PathBuf::from(r.log_dir.to_string()), r.error_code));
            codes.collect::<BTreeMap<_, _>>()
        });
        (codes[&self.first], codes[&self.second])
    }
}

/// Produces some records to each of these, all of which are taken.
async fn give(c: &BrokerConnection, partitions: &[i32], count: u64, ledger: &mut Ledger) {
    for _ in 0..count {
        for partition in partitions {
            let number = ledger.len() as u64;
            let answer = produce(c, TOPIC, *partition, -1, batch_of(&record(number))).await;
            assert_eq!(
                answer.error_code, 0,
                "{partition}: {:?}",
                answer.error_message
            );
            let before = ledger.insert((*partition, answer.base_offset), number);
            assert_eq!(before, None, "an offset is given once");
        }
    }
}

/// Each takes a record, sooner or later.
async fn give_again(c: &BrokerConnection, partitions: &[i32], ledger: &mut Ledger) {
    for partition in partitions {
        let begun = Instant::now();
        let number = ledger.len() as u64;
        loop {
            let answer = produce(c, TOPIC, *partition, -1, batch_of(&record(number))).await;
            if answer.error_code == 0 {
                ledger.insert((*partition, answer.base_offset), number);
                break;
            }
            assert_eq!(answer.error_code, STORAGE, "{:?}", answer.error_message);
            assert!(begun.elapsed() < PATIENCE, "{:?}", answer.error_message);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Every acknowledged record of these is there, whole, and offsets have no hole.
async fn check(c: &BrokerConnection, partitions: &[i32], ledger: &Ledger) {
    for partition in partitions {
        let found = fetch_all(c, TOPIC, *partition, 0).await;
        for (place, (offset, _)) in found.iter().enumerate() {
            assert_eq!(*offset, place as i64, "partition {partition} has no hole");
        }
        for ((_, offset), number) in ledger.range((*partition, 0)..(*partition + 1, 0)) {
            let value = found.get(*offset as usize).map(|(_, value)| value);
            assert!(
                value == Some(&record(*number)),
                "partition {partition} offset {offset} is not record {number}"
            );
        }
    }
}

/// Takes no records and gives none.
async fn check_offline(c: &BrokerConnection, partitions: &[i32]) {
    for partition in partitions {
        let answer = produce(c, TOPIC, *partition, -1, batch_of("lost")).await;
        assert_eq!(answer.error_code, STORAGE, "partition {partition}");
        let answer = fetch(c, TOPIC, *partition, 0, 0, 1 << 20).await;
        assert_eq!(answer.error_code, STORAGE, "partition {partition}");
    }
}

/// Runs with a connection and what was acknowledged, which the work may add to.
fn working<W>(broker: &Broker, ledger: &mut Ledger, work: W)
where
    W: AsyncFnOnce(&BrokerConnection, &mut Ledger) + Send + 'static,
{
    let mut mine = std::mem::take(ledger);
    *ledger = with(broker.addr(), |c| async move {
        work(&c, &mut mine).await;
        mine
    });
}

/// Starts a broker with a topic that lies in both; the partitions in each.
fn begin(two: &Two, launch: &Launch) -> (Broker, Vec<i32>, Vec<i32>) {
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        create_topic(&c, TOPIC, PARTITIONS, &[]).await;
    });
    let (first, second) = two.split(TOPIC, PARTITIONS);
    assert!(
        first.len() == 3 && second.len() == 3,
        "{first:?} {second:?}"
    );
    assert!(two.first.join("__cluster_metadata-0").is_dir());
    (broker, first, second)
}

fn is_healthy(broker: &Broker) {
    let health = ask(broker.admin(), "GET", "/healthz");
    assert_eq!(health.status, 200, "{}", health.body);
}

/// C7 of the field's cases (KAFKA-10778): the second directory fills.
fn fills(name: &str, guarded: bool) {
    let Some(disk) = LoopDisk::new(name, 64 << 20) else {
        return;
    };
    write_ballast(&disk.path().join("ballast"));
    let root = data_dir();
    let two = Two {
        first: root.path().join("first"),
        second: disk.path().join("second"),
    };
    let launch = match guarded {
        // 2 MiB would be too little for the first one's disk to matter.
        true => two.launch().set("log.dir.min.free.bytes=2097152"),
        false => two.launch().set("log.dir.min.free.bytes=0"),
    };
    let (broker, first, second) = begin(&two, &launch);
    let mut ledger = Ledger::new();
    let all = second.clone();
    working(&broker, &mut ledger, async move |c, ledger| {
        let mut refused = 0;
        while refused < 30 {
            let number = ledger.len() as u64;
            let partition = all[(number as usize + refused) % all.len()];
            let answer = produce(c, TOPIC, partition, -1, batch_of(&record(number))).await;
            match answer.error_code {
                0 => {
                    refused = 0;
                    let before = ledger.insert((partition, answer.base_offset), number);
                    assert_eq!(before, None, "an offset is given once");
                }
                STORAGE => refused += 1,
                other => panic!("error {other}: {:?}", answer.error_message),
            }
        }
    });
    let free = disk.free_bytes();
    println!("{name}: {} records taken, {free} bytes left", ledger.len());
    assert!(ledger.len() > 300, "{} records fit", ledger.len());
    let said = broker.said();
    match guarded {
        true => {
            let refuses = two.metric(&broker, "highwater_log_dir_refuses_records");
            assert_eq!(refuses, (0.0, 1.0));
            assert!(free >= 1 << 20, "{free} bytes are left");
        }
        false => assert!(said.contains("No space left"), "{said}"),
    }
    // The other directory serves on.
    let (f, s) = (first.clone(), second.clone());
    working(&broker, &mut ledger, async move |c, ledger| {
        give(c, &f, 20, ledger).await;
        check(c, &f, ledger).await;
        check(c, &s, ledger).await;
    });
    is_healthy(&broker);
    assert_eq!(two.metric(&broker, "highwater_log_dir_offline"), (0.0, 0.0));
    assert_eq!(two.described(&broker), (0, 0));
    std::fs::remove_file(disk.path().join("ballast")).expect("the ballast goes");
    broker.kill();
    let broker = launch.start();
    let everywhere: Vec<i32> = (0..PARTITIONS).collect();
    working(&broker, &mut ledger, async move |c, ledger| {
        check(c, &everywhere, ledger).await;
        give_again(c, &everywhere, ledger).await;
        check(c, &everywhere, ledger).await;
    });
    broker.stop();
}

#[test]
fn given_a_second_directory_that_is_full_then_the_first_serves_on_and_nothing_is_lost() {
    let name = "given_a_second_directory_that_is_full_then_the_first_serves_on_and_nothing_is_lost";
    fills(name, false);
}

#[test]
fn given_a_second_directory_short_of_space_then_it_alone_refuses() {
    fills(
        "given_a_second_directory_short_of_space_then_it_alone_refuses",
        true,
    );
}

#[test]
fn given_a_second_directory_that_fails_then_it_alone_is_offline_until_a_restart() {
    let dir = short_dir();
    let name = "given_a_second_directory_that_fails_then_it_alone_is_offline_until_a_restart";
    let Some(mut stack) = block_stack(name, dir.path()) else {
        return;
    };
    let root = data_dir();
    let two = Two {
        first: root.path().join("first"),
        second: stack.mount_point().join("second"),
    };
    let launch = two.launch();
    let (broker, first, second) = begin(&two, &launch);
    let mut ledger = Ledger::new();
    let everywhere: Vec<i32> = (0..PARTITIONS).collect();
    let all = everywhere.clone();
    working(&broker, &mut ledger, async move |c, ledger| {
        give(c, &all, 10, ledger).await;
        check(c, &all, ledger).await;
    });
    assert_eq!(two.metric(&broker, "highwater_log_dir_offline"), (0.0, 0.0));
    assert_eq!(two.described(&broker), (0, 0));

    stack.fail_io(true).expect("the trigger is made");
    let begun = Instant::now();
    let tried = second[0];
    with(broker.addr(), move |c| async move {
        let answer = produce(&c, TOPIC, tried, -1, batch_of("lost")).await;
        assert_eq!(answer.error_code, STORAGE, "{:?}", answer.error_message);
    });
    // The others of that directory learn it by a message.
    while two.metric(&broker, "highwater_log_dir_offline") != (0.0, 1.0) {
        assert!(begun.elapsed() < PATIENCE, "{}", broker.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    while two.described(&broker) != (0, STORAGE) {
        assert!(begun.elapsed() < PATIENCE, "{}", broker.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = broker.said();
    assert!(
        said.contains("os error 5") || said.contains("os error 30"),
        "{said}"
    );
    assert_eq!(
        said.matches("a data directory is offline until a restart")
            .count(),
        1,
        "{said}"
    );
    let (f, s) = (first.clone(), second.clone());
    working(&broker, &mut ledger, async move |c, ledger| {
        give(c, &f, 20, ledger).await;
        check(c, &f, ledger).await;
        check_offline(c, &s).await;
        let created = create_topic(c, "later", 4, &[]).await;
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    });
    assert_eq!(two.split("later", 4).0, [0, 1, 2, 3]);
    is_healthy(&broker);

    // The device is well again, and nobody takes it for clean.
    stack.fail_io(false).expect("the trigger is removed");
    let (f, s) = (first, second);
    working(&broker, &mut ledger, async move |c, ledger| {
        for _ in 0..5 {
            check_offline(c, &s).await;
            give(c, &f, 1, ledger).await;
            std::thread::sleep(Duration::from_millis(300));
        }
        for partition in 0..4 {
            let answer = produce(c, "later", partition, -1, batch_of("new")).await;
            assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
        }
    });
    assert_eq!(two.metric(&broker, "highwater_log_dir_offline"), (0.0, 1.0));
    println!(
        "{name}: {} records were acknowledged, {} of them in the directory that failed",
        ledger.len(),
        ledger
            .keys()
            .filter(|(p, _)| !two.split(TOPIC, PARTITIONS).0.contains(p))
            .count()
    );
    let (status, said) = broker.end_by("TERM");
    assert!(said.contains("is offline"), "{status}: {said}");

    // What the file system holds in memory is not what is on the device.
    stack.cut_power().expect("the power is cut");
    stack.restore().expect("it is mounted again");
    let broker = launch.start();
    assert_eq!(two.metric(&broker, "highwater_log_dir_offline"), (0.0, 0.0));
    assert_eq!(two.described(&broker), (0, 0));
    working(&broker, &mut ledger, async move |c, ledger| {
        check(c, &everywhere, ledger).await;
        give(c, &everywhere, 1, ledger).await;
        check(c, &everywhere, ledger).await;
        for partition in 0..4 {
            assert_eq!(fetch_all(c, "later", partition, 0).await.len(), 1);
        }
    });
    broker.stop();
}

#[test]
fn given_records_that_cannot_be_read_then_their_replica_alone_is_offline() {
    let dir = short_dir();
    let name = "given_records_that_cannot_be_read_then_their_replica_alone_is_offline";
    let Some(mut stack) = block_stack(name, dir.path()) else {
        return;
    };
    let root = data_dir();
    let two = Two {
        first: root.path().join("first"),
        second: stack.mount_point().join("second"),
    };
    let launch = two.launch();
    let (broker, first, second) = begin(&two, &launch);
    let mut ledger = Ledger::new();
    let everywhere: Vec<i32> = (0..PARTITIONS).collect();
    let all = everywhere.clone();
    working(&broker, &mut ledger, async move |c, ledger| {
        give(c, &all, 20, ledger).await;
    });
    // So that neither the broker nor the kernel has them in memory.
    broker.stop();
    stack.cut_power().expect("the power is cut");
    stack.restore().expect("it is mounted again");
    let broker = launch.start();
    let (unread, others) = (second[0], second[1..].to_vec());
    let s = second.clone();
    working(&broker, &mut ledger, async move |c, ledger| {
        // A write finds all it needs of the file system in memory then.
        give(c, &s, 1, ledger).await;
    });
    stack.fail_reads(true).expect("the trigger is made");
    let (f, o) = (first, others);
    working(&broker, &mut ledger, async move |c, ledger| {
        let answer = fetch(c, TOPIC, unread, 0, 0, 1 << 20).await;
        assert_eq!(answer.error_code, STORAGE);
        check_offline(c, &[unread]).await;
        // Others serve, in the same directory as well.
        give(c, &f, 5, ledger).await;
        check(c, &f, ledger).await;
        give(c, &o, 1, ledger).await;
    });
    let said = broker.said();
    assert!(said.contains("os error 5"), "{said}");
    let states = Scrape::of(&broker);
    let offline = states.one("highwater_partitions", &[("state", "offline")]);
    assert_eq!(offline, 1.0);
    assert_eq!(two.metric(&broker, "highwater_log_dir_offline"), (0.0, 0.0));
    assert_eq!(two.described(&broker), (0, 0));
    is_healthy(&broker);
    stack.fail_reads(false).expect("the trigger is removed");
    working(&broker, &mut ledger, async move |c, _| {
        check_offline(c, &[unread]).await;
    });
    let (status, said) = broker.end_by("TERM");
    println!("{name}: {} records, then {status}: {said}", ledger.len());
    let broker = launch.start();
    working(&broker, &mut ledger, async move |c, ledger| {
        check(c, &everywhere, ledger).await;
        give(c, &everywhere, 1, ledger).await;
    });
    broker.stop();
}
