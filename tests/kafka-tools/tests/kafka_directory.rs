//! `highwater log` reads the data directory of a real Apache Kafka and finds what Kafka's own tool finds there.

use bytes::Bytes;
use highwater::protocol::batch::Compression;
use kafka_tools_tests::dump::{self, BatchFields, Dump};
use kafka_tools_tests::kafka::{self, Kafka};
use kafka_tools_tests::records::{batch, record_lines, Sent, Source, CODECS};
use kafka_tools_tests::{client, data_dir, files, highwater_log};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A topic of one partition on Kafka.
struct Topic {
    name: String,
    settings: Vec<(&'static str, String)>,
    /// The codec of the batches that are sent.
    sent_as: Compression,
    /// The codec of the batches that are stored, as dump tools name it.
    stored_as: &'static str,
    records: Vec<Sent>,
}

impl Topic {
    fn new(name: String, settings: &[(&'static str, &str)]) -> Topic {
        let mut all = vec![("internal.segment.bytes", "32768".to_owned())];
        all.extend(
            settings
                .iter()
                .map(|(name, value)| (*name, value.to_string())),
        );
        Topic {
            name,
            settings: all,
            sent_as: Compression::None,
            stored_as: "none",
            records: Vec::new(),
        }
    }

    fn partition(&self, data: &Path) -> PathBuf {
        data.join(format!("{}-0", self.name))
    }

    /// Creates it and waits until its leader serves it, which is a moment later.
    fn create(&self, kafka: &Kafka) {
        let addr = kafka.addr();
        let (name, settings) = (self.name.clone(), self.settings.clone());
        client::with(addr, move |connection| async move {
            let settings: Vec<(&str, &str)> = settings
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            let created = client::create_topic(&connection, &name, 1, &settings).await;
            assert_eq!(created.error_code, 0, "{name}: {:?}", created.error_message);
        });
        kafka.wait_until("a leader", || {
            let name = self.name.clone();
            client::with(addr, move |connection| async move {
                let earliest = client::list_offset(&connection, &name, 0, -2).await;
                earliest.error_code == 0
            })
        });
    }

    fn produce(&mut self, addr: SocketAddr, mut source: Source) {
        let name = self.name.clone();
        let batches: Vec<Vec<Sent>> = (0..100).map(|n| source.records(1 + n % 30)).collect();
        let encoded: Vec<Bytes> = batches
            .iter()
            .map(|records| batch(records, self.sent_as, None))
            .collect();
        self.records = batches.concat();
        client::with(addr, move |connection| async move {
            let mut next = None;
            for batch in encoded {
                let offset = client::produce_ok(&connection, &name, 0, batch).await;
                assert!(offset == 0 || next < Some(offset));
                next = Some(offset);
            }
        });
    }
}

#[test]
fn a_directory_of_kafka_is_read_as_kafkas_tool_reads_it() {
    let dir = data_dir();
    let kafka = Kafka::start(
        dir.path(),
        &["log.cleaner.backoff.ms=100", "log.retention.ms=-1"],
    );
    let mut topics = Vec::new();
    for (codec, name) in CODECS {
        // Kafka stores what it was sent, or compresses it itself.
        topics.push(Topic {
            sent_as: codec,
            stored_as: name,
            ..Topic::new(format!("sent-{name}"), &[])
        });
        let compression = if name == "none" { "uncompressed" } else { name };
        topics.push(Topic {
            sent_as: if name == "none" {
                Compression::Lz4
            } else {
                Compression::None
            },
            stored_as: name,
            ..Topic::new(format!("made-{name}"), &[("compression.type", compression)])
        });
    }
    for (n, topic) in topics.iter_mut().enumerate() {
        topic.create(&kafka);
        topic.produce(kafka.addr(), Source::new(n as u64, 200));
    }
    let mut append_time = Topic::new(
        "append-time".to_owned(),
        &[("message.timestamp.type", "LogAppendTime")],
    );
    append_time.create(&kafka);
    append_time.produce(kafka.addr(), Source::new(100, 200));
    let compacted = compact(&kafka);
    let transactions = transactions(&kafka);

    // What lies there while Kafka runs is what a kill would leave.
    highwater_log(&["verify"], &kafka.data_dir());
    let data = kafka.stop();
    let mut partitions: Vec<PathBuf> = std::fs::read_dir(&data)
        .expect("the data directory can be read")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .collect();
    partitions.sort();
    // The metadata of the cluster and the coordinator of transactions come on top.
    assert_eq!(partitions.len(), topics.len() + 3 + 2, "{partitions:?}");

    let paths: Vec<PathBuf> = partitions
        .iter()
        .flat_map(|partition| dump::files_of_partition(partition))
        .collect();
    let dump = Dump::parse(&kafka::dump_log(&paths));
    for partition in &partitions {
        same_lines(partition, &dump);
    }
    let report = highwater_log(&["verify"], &data);
    assert_eq!(report, expected_report(&data, &partitions, &dump));
    for topic in &topics {
        assert_stored(topic, &data, &dump);
    }
    let lines = dump.log_lines(&append_time.partition(&data));
    assert!(lines[0].contains(" LogAppendTime: "));
    let lines = dump.log_lines(&compacted.partition(&data));
    let records = lines.iter().filter(|line| line.starts_with('|')).count();
    assert!(
        records < compacted.records.len(),
        "the cleaner removed records"
    );
    let lines = dump.log_lines(&transactions.partition(&data)).join("\n");
    assert!(lines.contains("isTransactional: true isControl: false"));
    assert!(lines.contains("endTxnMarker: COMMIT"));
}

/// A topic with few keys that Kafka's cleaner has been over.
fn compact(kafka: &Kafka) -> Topic {
    let mut topic = Topic::new(
        "compacted".to_owned(),
        &[
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("file.delete.delay.ms", "100"),
        ],
    );
    topic.create(kafka);
    topic.produce(kafka.addr(), Source::new(101, 200).all_keyed());
    let checkpoint = kafka.data_dir().join("cleaner-offset-checkpoint");
    let line = format!("{} 0 ", topic.name);
    kafka.wait_until("a first cleaning", || {
        let text = std::fs::read_to_string(&checkpoint).unwrap_or_default();
        text.lines().any(|entry| entry.starts_with(&line))
    });
    let partition = topic.partition(&kafka.data_dir());
    kafka.wait_until("the end of what the cleaner replaced", || {
        files::files_of(&partition, "", "deleted").is_empty()
    });
    topic
}

/// A topic to which Kafka's own producer wrote in transactions.
fn transactions(kafka: &Kafka) -> Topic {
    let topic = Topic::new("transactions".to_owned(), &[]);
    topic.create(kafka);
    let settings = ["compression.type=zstd", "transactional.id=transactions"];
    kafka::produce(kafka.addr(), &topic.name, 2000, &settings);
    topic
}

/// `highwater log dump` prints of a partition what Kafka's tool prints.
fn same_lines(partition: &Path, dump: &Dump) {
    // Their keys and values are binary, which each tool prints in its own way.
    let internal = partition
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("__"));
    let ours = highwater_log(&["dump", "--records"], partition);
    let of_batches = |line: &&str| !internal || !line.starts_with('|');
    let ours: Vec<&str> = dump::highwater_lines(&ours)
        .into_iter()
        .filter(of_batches)
        .collect();
    let theirs: Vec<&str> = dump
        .log_lines(partition)
        .into_iter()
        .filter(of_batches)
        .collect();
    assert!(!ours.is_empty());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{}", partition.display());
    }
    assert_eq!(ours.len(), theirs.len(), "{}", partition.display());
}

/// What `highwater log verify` must print, by what Kafka's tool printed.
fn expected_report(data: &Path, partitions: &[PathBuf], dump: &Dump) -> String {
    let mut segments = 0;
    let (mut batches, mut records, mut bytes) = (0, 0, 0);
    for partition in partitions {
        segments += files::files_of(partition, "", "log").len();
        let lines = dump.log_lines(partition).into_iter();
        for fields in lines
            .filter(|line| !line.starts_with('|'))
            .map(BatchFields::parse)
        {
            batches += 1;
            records += fields.number("count");
            bytes += fields.number("size");
        }
    }
    format!(
        "{}: {} partitions, {segments} segments, {batches} batches, {records} records, {bytes} bytes, no problems\n",
        data.display(),
        partitions.len(),
    )
}

/// Kafka stored what it was sent, in the codec that was wanted, over several segments.
fn assert_stored(topic: &Topic, data: &Path, dump: &Dump) {
    let partition = topic.partition(data);
    assert!(
        files::files_of(&partition, "", "log").len() > 1,
        "{} rolled",
        topic.name
    );
    let (records, batches): (Vec<&str>, Vec<&str>) = dump
        .log_lines(&partition)
        .into_iter()
        .partition(|line| line.starts_with('|'));
    for line in batches {
        let fields = BatchFields::parse(line);
        assert_eq!(fields.text("compresscodec"), topic.stored_as, "{line}");
    }
    assert_eq!(
        records,
        record_lines(&topic.records, 0, None),
        "{}",
        topic.name
    );
}
