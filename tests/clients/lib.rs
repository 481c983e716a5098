//! What the tests of this crate share: the broker under test and librdkafka clients.
//!
//! The broker's binary is named by `HIGHWATER_BIN`; `scripts/test` sets it.

#[path = "../harness/broker.rs"]
pub mod broker;
#[path = "../harness/files.rs"]
pub mod files;

use broker::{Broker, Launch};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use rdkafka::producer::{DeliveryResult, ProducerContext};
use rdkafka::{ClientConfig, ClientContext, Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Nothing a test waits for takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A directory for a broker's data, on the file system of the build.
pub fn data_dir() -> tempfile::TempDir {
    let target = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::fs::create_dir_all(&target).expect("the target directory can be made");
    tempfile::Builder::new()
        .prefix("client-test-")
        .tempdir_in(target)
        .expect("a temporary directory can be made")
}

/// How the broker under test is started on a directory.
pub fn launch(data_dir: &std::path::Path) -> Launch {
    let binary = std::env::var("HIGHWATER_BIN")
        .expect("HIGHWATER_BIN names the broker's binary (scripts/test sets it)");
    Launch::new(binary, data_dir)
}

/// A configuration that points at the broker.
pub fn config(broker: &Broker) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", broker.addr().to_string())
        .set("reconnect.backoff.ms", "10")
        .set("reconnect.backoff.max.ms", "100");
    config
}

/// Creates a topic and insists that it worked.
pub fn create_topic(broker: &Broker, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> = config(broker).create().expect("a client");
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (name, value) in settings {
        new = new.set(name, value);
    }
    let results = block_on(admin.create_topics([&new], &AdminOptions::new())).expect("an answer");
    for result in results {
        result.expect("the topic is created");
    }
}

/// Deletes a topic and insists that it worked.
pub fn delete_topic(broker: &Broker, topic: &str) {
    let admin: AdminClient<DefaultClientContext> = config(broker).create().expect("a client");
    let results = block_on(admin.delete_topics(&[topic], &AdminOptions::new())).expect("an answer");
    for result in results {
        result.expect("the topic is deleted");
    }
}

/// What a producer was told: partition and offset of each acknowledged value.
#[derive(Clone, Default)]
pub struct Acknowledged(pub Arc<Mutex<Vec<(i32, i64, String)>>>);

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Ok(message) = result {
            let value = String::from_utf8_lossy(message.payload().unwrap_or_default());
            self.0.lock().expect("no panic holds it").push((
                message.partition(),
                message.offset(),
                value.into_owned(),
            ));
        }
    }
}

/// A producer that records what was acknowledged.
pub fn producer(broker: &Broker, acks: &str) -> (ThreadedProducer<Acknowledged>, Acknowledged) {
    let acknowledged = Acknowledged::default();
    let producer = config(broker)
        .set("acks", acks)
        .set("linger.ms", "1")
        .set("message.timeout.ms", "20000")
        .create_with_context(acknowledged.clone())
        .expect("a producer");
    (producer, acknowledged)
}

/// Sends `count` values, spread over `partitions`, and waits until all have an answer.
pub fn produce(
    broker: &Broker,
    topic: &str,
    partitions: i32,
    acks: &str,
    count: usize,
) -> Acknowledged {
    let (producer, acknowledged) = producer(broker, acks);
    for n in 0..count {
        let value = format!("{acks}-{n}");
        let key = n.to_string();
        let record = BaseRecord::to(topic)
            .partition(n as i32 % partitions)
            .key(&key)
            .payload(&value);
        producer
            .send(record)
            .map_err(|(error, _)| error)
            .expect("room in the producer's queue");
    }
    producer.flush(PATIENCE).expect("everything is answered");
    acknowledged
}

/// Reads every partition from its start to the high watermark: offset to value.
pub fn consume_all(broker: &Broker, topic: &str, partitions: i32) -> Vec<BTreeMap<i64, String>> {
    let consumer: BaseConsumer = config(broker)
        .set("group.id", "unused")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "false")
        .set("check.crcs", "true")
        .create()
        .expect("a consumer");
    let mut all = vec![BTreeMap::new(); partitions as usize];
    let mut ends = Vec::new();
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        let (low, high) = consumer
            .fetch_watermarks(topic, partition, PATIENCE)
            .expect("watermarks");
        assert_eq!(low, 0);
        ends.push(high);
        assignment
            .add_partition_offset(topic, partition, Offset::Beginning)
            .expect("an assignment");
    }
    consumer.assign(&assignment).expect("an assignment");
    let expected: i64 = ends.iter().sum();
    let start = Instant::now();
    let mut read = 0;
    while read < expected {
        assert!(
            start.elapsed() < PATIENCE,
            "{read} of {expected} records came"
        );
        match consumer.poll(Duration::from_millis(200)) {
            None => {}
            Some(Ok(message)) => {
                let value = String::from_utf8_lossy(message.payload().unwrap_or_default());
                let place = &mut all[message.partition() as usize];
                let old = place.insert(message.offset(), value.into_owned());
                assert!(old.is_none(), "offset {} came twice", message.offset());
                read += 1;
            }
            Some(Err(error)) => panic!("consuming failed: {error}"),
        }
    }
    for (partition, (records, end)) in all.iter().zip(&ends).enumerate() {
        let offsets: Vec<i64> = records.keys().copied().collect();
        let without_holes: Vec<i64> = (0..*end).collect();
        assert_eq!(offsets, without_holes, "partition {partition} has a hole");
    }
    all
}

/// Insists that every acknowledged record is where its producer was told.
pub fn assert_kept(all: &[BTreeMap<i64, String>], acknowledged: &Acknowledged) {
    for (partition, offset, value) in acknowledged.0.lock().expect("no panic holds it").iter() {
        assert_eq!(
            all[*partition as usize].get(offset),
            Some(value),
            "partition {partition} offset {offset} was acknowledged"
        );
    }
}

/// Runs a future of librdkafka's, which its own threads drive.
pub fn block_on<T>(future: impl std::future::Future<Output = T>) -> T {
    use std::task::{Context, Poll, Wake, Waker};
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
