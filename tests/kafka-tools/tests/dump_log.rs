//! Apache Kafka's dump tool reads what Highwater wrote, record by record, and finds nothing wrong.

use highwater::protocol::batch::Compression;
use highwater::protocol::messages::InitProducerIdRequest;
use kafka_tools_tests::broker::Launch;
use kafka_tools_tests::dump::{self, BatchFields, Dump};
use kafka_tools_tests::records::{batch, record_lines, Sent, Sequence, Source, CODECS};
use kafka_tools_tests::{client, data_dir, files, highwater, highwater_log, kafka};
use std::path::{Path, PathBuf};

/// What one batch of a partition must look like.
struct Expected {
    base_offset: i64,
    codec: &'static str,
    producer: Option<Sequence>,
    records: Vec<Sent>,
}

/// A topic of one partition, and what was produced to it.
struct Topic {
    name: String,
    codec: (Compression, &'static str),
    source: Source,
    /// Idempotent producers that write in turns, with their next sequences.
    producers: Vec<Sequence>,
    batches: Vec<Expected>,
}

impl Topic {
    fn new(name: &str, codec: (Compression, &'static str)) -> Topic {
        Topic {
            name: format!("dump-{name}"),
            codec,
            producers: Vec::new(),
            source: Source::new(u64::from(codec.0.code()), 200),
            batches: Vec::new(),
        }
    }

    fn partition(&self, data: &Path) -> PathBuf {
        data.join(format!("{}-0", self.name))
    }

    fn end_offset(&self) -> i64 {
        self.batches
            .last()
            .map_or(0, |last| last.base_offset + last.records.len() as i64)
    }

    /// Produces batches of all sizes from one record on.
    fn produce(&mut self, addr: std::net::SocketAddr, batches: usize) {
        let sent: Vec<Vec<Sent>> = (0..batches)
            .map(|n| self.source.records(1 + n % 30))
            .collect();
        let sequences: Vec<Option<Sequence>> = (sent.iter().enumerate())
            .map(|(n, records)| self.sequence(n, records.len()))
            .collect();
        let encoded: Vec<_> = (sent.iter().zip(&sequences))
            .map(|(records, producer)| batch(records, self.codec.0, *producer))
            .collect();
        let name = self.name.clone();
        let offsets = client::with(addr, move |connection| async move {
            let mut offsets = Vec::new();
            for batch in encoded {
                offsets.push(client::produce_ok(&connection, &name, 0, batch).await);
            }
            offsets
        });
        for ((records, producer), base_offset) in sent.into_iter().zip(sequences).zip(offsets) {
            assert_eq!(base_offset, self.end_offset());
            self.batches.push(Expected {
                base_offset,
                codec: self.codec.1,
                producer,
                records,
            });
        }
    }

    /// The sequence of the next batch, if it has a producer.
    fn sequence(&mut self, n: usize, records: usize) -> Option<Sequence> {
        let producers = self.producers.len();
        (producers > 0).then(|| {
            let (_, _, next) = &mut self.producers[n % producers];
            let first = *next;
            *next += records as i32;
            let (id, epoch, _) = self.producers[n % producers];
            (id, epoch, first)
        })
    }
}

enum End {
    Stop,
    Kill,
}

#[test]
fn what_several_starts_and_stops_wrote_is_read_record_by_record() {
    let dir = data_dir();
    let data = dir.path();
    let mut topics: Vec<Topic> = CODECS
        .into_iter()
        .map(|codec| Topic::new(codec.1, codec))
        .collect();
    let idempotent = topics.len();
    topics.push(Topic::new("idempotent", CODECS[4]));
    let launch = Launch::new(highwater(), data).set("log.segment.bytes=16384");
    // The first start creates the topics; what a killed broker left is recovered by the next.
    for (n, end) in [End::Stop, End::Kill, End::Stop].into_iter().enumerate() {
        let broker = launch.start();
        if n == 0 {
            let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
            client::with(broker.addr(), move |connection| async move {
                for name in names {
                    let created = client::create_topic(
                        &connection,
                        &name,
                        1,
                        &[("index.interval.bytes", "1024")],
                    );
                    assert_eq!(created.await.error_code, 0);
                }
            });
        }
        if n == 0 {
            topics[idempotent].producers = producers(broker.addr());
        }
        for topic in &mut topics {
            topic.produce(broker.addr(), 60);
        }
        match end {
            End::Stop => drop(broker.stop()),
            End::Kill => broker.kill(),
        }
    }

    let mut paths = Vec::new();
    for topic in &topics {
        let segments = files::files_of(data, &format!("{}-0", topic.name), "log");
        assert!(
            segments.len() > 3,
            "{}: several segments rolled",
            topic.name
        );
        paths.extend(dump::files_of_partition(&topic.partition(data)));
    }
    let dump = Dump::parse(&kafka::dump_log(&paths));
    assert_eq!(dump.complaints, [""; 0]);
    assert_eq!(dump.files.len(), paths.len(), "every file was read");
    assert!(dump.entries("index") > 50 && dump.entries("timeindex") > 50);
    for topic in &topics {
        compare(topic, &dump.log_lines(&topic.partition(data)));
        lengths(&dump, &topic.partition(data));
        snapshot(topic, &dump, &topic.partition(data));
        let ours = highwater_log(&["dump", "--records"], &topic.partition(data));
        assert_eq!(
            dump::highwater_lines(&ours),
            dump.log_lines(&topic.partition(data)),
            "both tools print the same"
        );
    }
    let indexes: Vec<PathBuf> = paths
        .into_iter()
        .filter(|path| {
            path.extension()
                .is_some_and(|e| e == "index" || e == "timeindex")
        })
        .collect();
    for line in kafka::check_indexes(&indexes).lines() {
        let sound = line.starts_with("Dumping ")
            || line.ends_with(" passed sanity check.")
            || line.ends_with(" is empty.");
        assert!(sound, "{line}");
    }
    highwater_log(&["verify"], data);
}

/// The lines of a partition are those of the batches that were acknowledged, and no more.
fn compare(topic: &Topic, lines: &[&str]) {
    let mut lines = lines.iter();
    for expected in &topic.batches {
        let line = lines.next().expect("a line for each batch");
        let fields = BatchFields::parse(line);
        let count = expected.records.len() as i64;
        let last = expected.base_offset + count - 1;
        assert_eq!(fields.number("baseOffset"), expected.base_offset, "{line}");
        assert_eq!(fields.number("lastOffset"), last, "{line}");
        assert_eq!(fields.number("count"), count, "{line}");
        assert_eq!(fields.text("compresscodec"), expected.codec, "{line}");
        assert_eq!(fields.text("isvalid"), "true", "{line}");
        assert_eq!(fields.text("magic"), "2", "{line}");
        let (id, epoch, sequence) = expected.producer.unwrap_or((-1, -1, -1));
        assert_eq!(fields.number("producerId"), id, "{line}");
        assert_eq!(fields.number("producerEpoch"), i64::from(epoch), "{line}");
        assert_eq!(fields.number("baseSequence"), i64::from(sequence), "{line}");
        let latest = expected.records.iter().map(|record| record.timestamp).max();
        assert_eq!(Some(fields.number("CreateTime")), latest, "{line}");
        for record in record_lines(&expected.records, expected.base_offset, expected.producer) {
            assert_eq!(lines.next(), Some(&record.as_str()), "in {line}");
        }
    }
    assert_eq!(lines.next(), None, "{}: nothing else is there", topic.name);
}

/// Two producer ids.
fn producers(addr: std::net::SocketAddr) -> Vec<Sequence> {
    client::with(addr, |connection| async move {
        let mut producers = Vec::new();
        for _ in 0..2 {
            let request = InitProducerIdRequest {
                transactional_id: None,
                ..Default::default()
            };
            let answer = connection.call(&request).await.expect("an answer");
            assert_eq!(answer.error_code, 0);
            producers.push((answer.producer_id, answer.producer_epoch, 0));
        }
        assert_ne!(producers[0].0, producers[1].0);
        producers
    })
}

/// The newest snapshot says of each producer what it wrote last.
fn snapshot(topic: &Topic, dump: &Dump, partition: &Path) {
    let newest = partition.join(format!("{:020}.snapshot", topic.end_offset()));
    let entries = &dump.files[&newest].entries;
    assert_eq!(entries.len(), topic.producers.len(), "{entries:?}");
    for (id, epoch, next) in &topic.producers {
        let mut of_producer = topic.batches.iter().rev();
        let last = of_producer
            .find(|batch| batch.producer.is_some_and(|(of, _, _)| of == *id))
            .expect("it produced");
        let count = last.records.len() as i64;
        let latest = last.records.iter().map(|record| record.timestamp).max();
        let expected = format!(
            "producerId: {id} producerEpoch: {epoch} coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty \
             lastTimestamp: {latest} firstSequence: {first} lastSequence: {sequence} lastOffset: {offset} \
             offsetDelta: {delta} timestamp: {latest}",
            first = i64::from(*next) - count,
            sequence = next - 1,
            offset = last.base_offset + count - 1,
            delta = count - 1,
            latest = latest.expect("a record"),
        );
        assert!(
            entries.contains(&expected),
            "{expected}\nis not in {entries:?}"
        );
    }
}

/// The batches of each segment adjoin and fill the file.
fn lengths(dump: &Dump, partition: &Path) {
    for (file, printed) in &dump.files {
        if file.parent() != Some(partition) || file.extension().is_none_or(|e| e != "log") {
            continue;
        }
        let mut position = 0;
        for line in printed.log.iter().filter(|line| !line.starts_with('|')) {
            let fields = BatchFields::parse(line);
            assert_eq!(fields.number("position"), position, "{}", file.display());
            position += fields.number("size");
        }
        let len = files::len_of(file);
        assert_eq!(
            position as u64,
            len,
            "{}: no reserve is left",
            file.display()
        );
    }
}

/// Java's codecs and its idempotent producer, against the broker and its files.
#[test]
fn what_kafkas_own_producer_sent_is_stored_with_its_sequences() {
    const RECORDS: usize = 2000;
    let dir = data_dir();
    let data = dir.path();
    let broker = Launch::new(highwater(), data)
        .set("log.segment.bytes=16384")
        .start();
    for (_, codec) in CODECS {
        let compression = format!("compression.type={codec}");
        kafka::produce(
            broker.addr(),
            codec,
            RECORDS,
            &[&compression, "batch.size=2000"],
        );
    }
    broker.stop();
    let partition = |codec: &str| data.join(format!("{codec}-0"));
    let paths: Vec<PathBuf> = CODECS
        .iter()
        .flat_map(|(_, codec)| dump::files_of_partition(&partition(codec)))
        .collect();
    let dump = Dump::parse(&kafka::dump_log(&paths));
    assert_eq!(dump.complaints, [""; 0]);
    for (_, codec) in CODECS {
        let (mut next, mut records) = (0, 0);
        for line in dump.log_lines(&partition(codec)) {
            if line.starts_with('|') {
                records += 1;
                continue;
            }
            let fields = BatchFields::parse(line);
            assert_eq!(fields.text("compresscodec"), codec, "{line}");
            assert_eq!(fields.text("isvalid"), "true", "{line}");
            assert!(fields.number("producerId") >= 0, "{line}");
            assert_eq!(fields.number("baseSequence"), next, "{line}");
            next = fields.number("lastSequence") + 1;
        }
        assert_eq!((next, records), (RECORDS as i64, RECORDS), "{codec}");
        let ours = highwater_log(&["dump", "--records"], &partition(codec));
        assert_eq!(
            dump::highwater_lines(&ours),
            dump.log_lines(&partition(codec))
        );
    }
    highwater_log(&["verify"], data);
}

/// Proves that this crate would notice: the tool's complaints are seen.
#[test]
fn damage_is_reported_by_the_tool_and_seen_here() {
    let dir = data_dir();
    let data = dir.path();
    let mut topic = Topic::new("damaged", CODECS[0]);
    let broker = Launch::new(highwater(), data).start();
    let name = topic.name.clone();
    client::with(broker.addr(), move |connection| async move {
        let created =
            client::create_topic(&connection, &name, 1, &[("index.interval.bytes", "1024")]);
        assert_eq!(created.await.error_code, 0);
    });
    topic.produce(broker.addr(), 30);
    broker.stop();
    let partition = format!("{}-0", topic.name);
    let index = files::files_of(data, &partition, "index").remove(0);
    assert!(files::len_of(&index) >= 8, "it has an entry");
    // The offset of the first entry, one too high.
    let entry = std::fs::read(&index).expect("it can be read");
    files::scribble(&index, 3, &[entry[3] + 1]);
    let paths = dump::files_of_partition(&topic.partition(data));
    let dump = Dump::parse(&kafka::dump_log(&paths));
    let seen = dump.complaints.join("\n");
    assert!(seen.contains("Mismatches in :"), "{seen}");
}
