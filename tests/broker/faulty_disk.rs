//! Real disks that are full, fail or lose power. Root, loop devices and, for the device that
//! fails, FUSE and nbdkit are needed; where they are missing a test says so and is skipped.

use super::broker::Broker;
use super::client::{
    batch_of, create_topic, fetch_all, list_offset, produce, produce_request, text, with,
};
use super::launch;
use super::loop_disk::LoopDisk;
use super::open_metrics::{ask, Scrape};
use highwater::cli::drill::{BlockStack, BlockStackError};
use highwater::client::BrokerConnection;
use highwater::protocol::messages::DeleteTopicsRequest;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) const STORAGE: i16 = 56;
const PARTITIONS: i32 = 3;
const BALLAST_BYTES: usize = 16 << 20;
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What was acknowledged, by partition and offset: the numbers in the records.
pub(super) type Ledger = BTreeMap<(i32, i64), u64>;

/// A record of 60 KB that its number tells from others.
pub(super) fn record(number: u64) -> String {
    format!("{number:020}").repeat(3_000)
}

/// Produces to the partitions in turn until none has taken a record for some rounds; why.
async fn fill(c: &BrokerConnection, topic: &str, ledger: &mut Ledger) -> String {
    let mut refused = 0;
    for number in ledger.len() as u64.. {
        let partition = (number % PARTITIONS as u64) as i32;
        let answer = produce(c, topic, partition, -1, batch_of(&record(number))).await;
        match answer.error_code {
            0 => {
                refused = 0;
                let before = ledger.insert((partition, answer.base_offset), number);
                assert_eq!(before, None, "an offset is given once");
            }
            STORAGE => {
                refused += 1;
                if refused == 10 * PARTITIONS {
                    let message = answer.error_message;
                    return message.map_or_else(String::new, |text| text.to_string());
                }
            }
            other => panic!("error {other}: {:?}", answer.error_message),
        }
        assert!(number < 100_000, "it never refuses");
    }
    unreachable!("the numbers do not end")
}

/// Produces one record until it is taken.
async fn until_taken(c: &BrokerConnection, topic: &str, partition: i32, ledger: &mut Ledger) {
    let number = 1_000_000 + ledger.len() as u64;
    let begun = Instant::now();
    loop {
        let answer = produce(c, topic, partition, -1, batch_of(&record(number))).await;
        if answer.error_code == 0 {
            ledger.insert((partition, answer.base_offset), number);
            return;
        }
        assert_eq!(answer.error_code, STORAGE, "{:?}", answer.error_message);
        assert!(begun.elapsed() < PATIENCE, "{:?}", answer.error_message);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every acknowledged record is there, whole, and offsets have no hole.
async fn check(c: &BrokerConnection, topic: &str, ledger: &Ledger) {
    for partition in 0..PARTITIONS {
        let found = fetch_all(c, topic, partition, 0).await;
        for (place, (offset, _)) in found.iter().enumerate() {
            assert_eq!(*offset, place as i64, "partition {partition} has no hole");
        }
        let found: BTreeMap<i64, String> = found.into_iter().collect();
        let mine = ledger.range((partition, 0)..(partition + 1, 0));
        for ((_, offset), number) in mine {
            let value = found.get(offset).map(String::as_str);
            assert!(
                value == Some(&record(*number)),
                "partition {partition} offset {offset} is not record {number}: {:?}",
                value.map(|value| &value[..40.min(value.len())])
            );
        }
    }
}

async fn delete_topic_code(c: &BrokerConnection, topic: &str) -> i16 {
    let request = DeleteTopicsRequest {
        topic_names: vec![text(topic)],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let sent = c.start_as(&request, 5).await.expect("it is sent");
    sent.await.expect("an answer").responses[0].error_code
}

pub(super) fn write_ballast(path: &Path) {
    let mut file = File::create(path).expect("the ballast");
    file.write_all(&vec![1; BALLAST_BYTES]).expect("it fits");
    file.sync_all().expect("it is on the disk");
}

/// Fills the disk, frees space, and leaves the ledger with which to look after a restart.
fn fill_and_free(broker: &Broker, disk: &LoopDisk, guarded: bool) -> (Ledger, String) {
    let (ledger, why) = with(broker.addr(), |c| async move {
        create_topic(&c, "t", PARTITIONS, &[]).await;
        create_topic(&c, "doomed", 1, &[]).await;
        let mut ledger = Ledger::new();
        let why = fill(&c, "t", &mut ledger).await;
        check(&c, "t", &ledger).await;
        (ledger, why)
    });
    assert!(ledger.len() > 300, "{} records fit", ledger.len());
    let free = disk.free_bytes();
    println!(
        "{} records taken, {free} bytes left, then: {why}",
        ledger.len()
    );
    let scrape = Scrape::of(broker);
    let refuses = scrape.one("highwater_log_dir_refuses_records", &[]);
    let said = broker.said();
    if guarded {
        assert!(free >= disk.total_bytes() / 40, "{free} bytes are left");
        assert!(why.contains(&disk.path().display().to_string()), "{why}");
        assert!(why.contains("log.dir.min.free.bytes"), "{why}");
        assert_eq!(refuses, 1.0);
        let refused = scrape.one("highwater_log_dir_refused_batches_total", &[]);
        assert!(refused >= f64::from(10 * PARTITIONS), "{refused}");
        assert!(!said.contains("No space left"), "{said}");
        assert_eq!(
            said.matches("it takes no records until").count(),
            1,
            "{said}"
        );
    } else {
        assert!(free < 1 << 20, "{free} bytes are left");
        assert_eq!(refuses, 0.0);
        assert!(said.contains("No space left"), "{said}");
        assert!(
            said.contains("takes no writes until it is rebuilt"),
            "{said}"
        );
    }
    let health = ask(broker.admin(), "GET", "/healthz");
    assert_eq!(health.status, 200, "{}", health.body);
    // What is free on a full disk by deleting, can be deleted.
    let deleted = with(broker.addr(), |c| async move {
        delete_topic_code(&c, "doomed").await
    });
    assert_eq!(deleted, 0);

    std::fs::remove_file(disk.path().join("ballast")).expect("the ballast goes");
    let ledger = with(broker.addr(), |c| async move {
        let mut ledger = ledger;
        for partition in 0..PARTITIONS {
            until_taken(&c, "t", partition, &mut ledger).await;
        }
        create_topic(&c, "later", 1, &[]).await;
        check(&c, "t", &ledger).await;
        ledger
    });
    let refuses = Scrape::of(broker).one("highwater_log_dir_refuses_records", &[]);
    assert_eq!(refuses, 0.0);
    (ledger, broker.said())
}

/// C7 of the field's cases (KAFKA-10778), with the guard.
#[test]
fn given_a_disk_that_fills_then_records_are_refused_before_it_is_full() {
    let name = "given_a_disk_that_fills_then_records_are_refused_before_it_is_full";
    let Some(disk) = LoopDisk::new(name, 64 << 20) else {
        return;
    };
    write_ballast(&disk.path().join("ballast"));
    let launch = launch(&disk.path().join("data")).with_admin();
    let broker = launch.start();
    let (ledger, said) = fill_and_free(&broker, &disk, true);
    assert!(said.contains("takes records again"), "{said}");
    broker.stop();
    let broker = launch.start();
    let ledger = with(broker.addr(), |c| async move {
        check(&c, "t", &ledger).await;
        ledger
    });
    broker.kill();
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        check(&c, "t", &ledger).await;
    });
    broker.stop();
}

/// C7 of the field's cases (KAFKA-10778), on a disk that is full.
#[test]
fn given_a_full_disk_then_56_and_it_recovers_by_itself_and_nothing_acknowledged_is_lost() {
    let name =
        "given_a_full_disk_then_56_and_it_recovers_by_itself_and_nothing_acknowledged_is_lost";
    let Some(disk) = LoopDisk::new(name, 64 << 20) else {
        return;
    };
    write_ballast(&disk.path().join("ballast"));
    let launch = launch(&disk.path().join("data"))
        .set("log.dir.min.free.bytes=0")
        .with_admin();
    let broker = launch.start();
    let (ledger, _) = fill_and_free(&broker, &disk, false);
    broker.kill();
    let broker = launch.start();
    let ledger = with(broker.addr(), |c| async move {
        check(&c, "t", &ledger).await;
        ledger
    });
    broker.stop();
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        check(&c, "t", &ledger).await;
    });
    broker.stop();
}

/// The device whose power can be cut, or a line on standard error.
pub(super) fn block_stack(test: &str, dir: &Path) -> Option<BlockStack> {
    match BlockStack::start(dir, 64 << 20) {
        Ok(stack) => Some(stack),
        Err(missing @ BlockStackError::Missing { .. }) => {
            eprintln!("SKIPPED {test}: {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A folder with a path that is short enough for a socket below it.
pub(super) fn short_dir() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("d")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("a temporary directory can be made")
}

async fn produce_some(c: &BrokerConnection, topic: &str, from: u64, ledger: &mut Ledger) {
    for number in from..from + 60 {
        let partition = (number % PARTITIONS as u64) as i32;
        let answer = produce(c, topic, partition, -1, batch_of(&record(number))).await;
        assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
        ledger.insert((partition, answer.base_offset), number);
    }
}

#[test]
fn given_a_device_that_fails_then_its_directory_is_offline_until_a_restart() {
    let dir = short_dir();
    let name = "given_a_device_that_fails_then_its_directory_is_offline_until_a_restart";
    let Some(mut stack) = block_stack(name, dir.path()) else {
        return;
    };
    let launch = launch(&stack.mount_point().join("data"));
    let mut broker = launch.start();
    let ledger = with(broker.addr(), |c| async move {
        let mut ledger = Ledger::new();
        create_topic(&c, "t", PARTITIONS, &[]).await;
        produce_some(&c, "t", 0, &mut ledger).await;
        ledger
    });
    stack.fail_io(true).expect("the trigger is made");
    with(broker.addr(), |c| async move {
        for partition in 0..PARTITIONS {
            let request = produce_request("t", partition, -1, batch_of("lost"));
            // The broker ends with its only directory, and may have done so by now.
            let Ok(sent) = c.start_as(&request, 12).await else {
                return;
            };
            if let Ok(answer) = sent.await {
                let code = answer.responses[0].partition_responses[0].error_code;
                assert_eq!(code, STORAGE);
            }
        }
    });
    // It does not come back by itself, not even when the device does.
    stack.fail_io(false).expect("the trigger is removed");
    let status = broker.wait();
    let said = broker.said();
    assert!(!status.success(), "{status}: {said}");
    assert!(said.contains("the data directory is offline"), "{said}");
    assert!(
        said.contains("os error 5") || said.contains("os error 30"),
        "{said}"
    );
    drop(broker);
    // What the file system holds in memory is not what is on the device.
    stack.cut_power().expect("the power is cut");
    stack.restore().expect("it is mounted again");
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        let mut ledger = ledger;
        check(&c, "t", &ledger).await;
        produce_some(&c, "t", 2_000, &mut ledger).await;
        check(&c, "t", &ledger).await;
    });
    broker.stop();
}

#[test]
fn given_a_power_cut_below_the_file_system_then_what_was_flushed_is_there() {
    let dir = short_dir();
    let name = "given_a_power_cut_below_the_file_system_then_what_was_flushed_is_there";
    let Some(mut stack) = block_stack(name, dir.path()) else {
        return;
    };
    let launch = launch(&stack.mount_point().join("data"));
    let mut ledger = Ledger::new();
    for round in 0..3 {
        let broker = launch.start();
        let acknowledged = std::mem::take(&mut ledger);
        ledger = with(broker.addr(), move |c| async move {
            let mut ledger = acknowledged;
            if round == 0 {
                create_topic(&c, "t", PARTITIONS, &[]).await;
                create_topic(&c, "lossy", 1, &[("flush.on.ack", "none")]).await;
            }
            check(&c, "t", &ledger).await;
            let end = list_offset(&c, "lossy", 0, -1).await.offset;
            println!("round {round}: {end} records that were not flushed are there");
            produce_some(&c, "t", round * 100, &mut ledger).await;
            for number in 0..20 {
                let answer = produce(&c, "lossy", 0, -1, batch_of(&record(number))).await;
                assert_eq!(answer.error_code, 0);
            }
            ledger
        });
        let unflushed = stack.mount_point().join("unflushed");
        std::fs::write(&unflushed, "lost").expect("it is written");
        stack.cut_power().expect("the power is cut");
        broker.kill();
        stack.restore().expect("it is mounted again");
        assert!(!unflushed.exists(), "the cut loses what was not flushed");
    }
    let broker = launch.start();
    with(broker.addr(), |c| async move {
        check(&c, "t", &ledger).await;
    });
    broker.stop();
}
