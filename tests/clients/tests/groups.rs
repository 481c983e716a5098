//! librdkafka's consumer groups: members share a topic, commit, come, go and resume.

use client_tests::broker::Broker;
use client_tests::{config, create_topic, data_dir, launch, produce, PATIENCE};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const PARTITIONS: i32 = 6;
const TOPIC: &str = "shared";

fn member(broker: &Broker, group: &str) -> BaseConsumer {
    let consumer: BaseConsumer = config(broker)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "200")
        .create()
        .expect("a consumer");
    consumer.subscribe(&[TOPIC]).expect("a subscription");
    consumer
}

/// Takes what comes within a moment, and commits it.
fn take(consumer: &BaseConsumer, read: &mut BTreeSet<(i32, i64)>) {
    let Some(message) = consumer.poll(Duration::from_millis(50)) else {
        return;
    };
    let message = message.expect("a record");
    let is_new = read.insert((message.partition(), message.offset()));
    assert!(is_new, "it was committed, but came again");
    consumer
        .commit_message(&message, CommitMode::Sync)
        .expect("it is committed");
}

fn owned(consumer: &BaseConsumer) -> usize {
    consumer.assignment().expect("an assignment").count()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
    }
}

#[test]
fn given_two_consumers_when_one_leaves_and_the_broker_is_killed_then_each_record_is_read_once() {
    let dir = data_dir();
    let launch = launch(dir.path()).set("group.initial.rebalance.delay.ms=0");
    let broker = launch.start();
    create_topic(&broker, TOPIC, PARTITIONS, &[]);
    let mut read = BTreeSet::new();
    let (a, b) = (member(&broker, "g"), member(&broker, "g"));
    until("they do not share", || {
        take(&a, &mut read);
        take(&b, &mut read);
        (owned(&a), owned(&b)) == (3, 3)
    });
    produce(&broker, TOPIC, PARTITIONS, "all", 60);
    until("not all is read by both", || {
        take(&a, &mut read);
        take(&b, &mut read);
        read.len() == 60
    });
    drop(b);
    until("the other does not take all", || {
        take(&a, &mut read);
        owned(&a) == PARTITIONS as usize
    });
    produce(&broker, TOPIC, PARTITIONS, "all", 60);
    until("not all is read by the one", || {
        take(&a, &mut read);
        read.len() == 120
    });
    drop(a);
    broker.kill();
    let broker = launch.start();
    produce(&broker, TOPIC, PARTITIONS, "all", 60);
    let c = member(&broker, "g");
    until("it does not resume", || {
        take(&c, &mut read);
        read.len() == 180
    });
    drop(c);
    broker.stop();
}
