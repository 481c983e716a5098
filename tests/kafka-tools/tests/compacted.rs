//! Apache Kafka's dump tool reads what Highwater's compaction left: gaps, emptied batches, delete horizons.

use highwater::protocol::batch::Compression;
use kafka_tools_tests::broker::Launch;
use kafka_tools_tests::dump::{self, BatchFields, Dump};
use kafka_tools_tests::records::{batch, Sent, Source, CODECS};
use kafka_tools_tests::{client, data_dir, files, highwater, highwater_log, kafka};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CONFIGS: [(&str, &str); 5] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", "16384"),
    ("min.cleanable.dirty.ratio", "0.01"),
    ("file.delete.delay.ms", "0"),
    ("index.interval.bytes", "1024"),
];
const PATIENCE: Duration = Duration::from_secs(120);

/// What a topic holds for who reads all of it.
type Table = BTreeMap<String, Option<String>>;

fn partition(data: &Path, codec: &str) -> PathBuf {
    data.join(format!("compacted-{codec}-0"))
}

/// Produces to a topic and returns what its keys have in the end, and how many records it took.
fn produce(addr: std::net::SocketAddr, codec: (Compression, &'static str)) -> (Table, usize) {
    let mut source = Source::new(u64::from(codec.0.code()), 200).all_keyed();
    let batches: Vec<Vec<Sent>> = (0..120).map(|n| source.records(1 + n % 30)).collect();
    let sent = batches.concat();
    let encoded: Vec<_> = (batches.iter().enumerate())
        .map(|(n, records)| {
            // Half of them by one producer without gaps in its sequence.
            let before = batches[..n].iter().step_by(2).map(Vec::len).sum::<usize>();
            let producer = (n % 2 == 0).then_some((PRODUCER, 0, before as i32));
            batch(records, codec.0, producer)
        })
        .collect();
    client::with(addr, move |connection| async move {
        let topic = format!("compacted-{}", codec.1);
        let created = client::create_topic(&connection, &topic, 1, &CONFIGS).await;
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
        for batch in encoded {
            client::produce_ok(&connection, &topic, 0, batch).await;
        }
    });
    let pairs = sent.iter().map(|record| {
        let key = record.key.clone().expect("every record has one");
        (key, record.value.clone())
    });
    (pairs.collect(), sent.len())
}

/// A producer's id; who gave it is of no interest to a broker that sees it first.
const PRODUCER: i64 = 4_711;

/// Key and value of a record's line.
fn pair_of(line: &str) -> (String, Option<String>) {
    let (_, payload) = line.split_once(" key: ").expect("the line has a key");
    match payload.split_once(" payload: ") {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (payload.trim().to_owned(), None),
    }
}

/// Whether all that is complete of a topic's log was compacted, as the checkpoint says.
fn is_compacted(data: &Path, codec: &str) -> bool {
    let logs = files::files_of(data, &format!("compacted-{codec}-0"), "log");
    let active = logs.last().and_then(|path| path.file_stem()?.to_str());
    let active: i64 = active
        .and_then(|stem| stem.parse().ok())
        .expect("a segment");
    let lines = std::fs::read_to_string(data.join("cleaner-offset-checkpoint"));
    let lines = lines.expect("a checkpoint of the cleaner");
    let start = format!("compacted-{codec} 0 ");
    let cleaned_to = lines.lines().find_map(|line| line.strip_prefix(&start));
    active > 0 && cleaned_to.is_some_and(|offset| offset.parse() == Ok(active))
}

#[test]
fn what_compaction_left_is_read_by_kafkas_tool_and_by_ours_alike() {
    let dir = data_dir();
    let data = dir.path();
    let launch = Launch::new(highwater(), data).set("log.cleaner.backoff.ms=50");
    let broker = launch.start();
    let mut expected = BTreeMap::new();
    for codec in CODECS {
        expected.insert(codec.1, produce(broker.addr(), codec));
    }
    let begun = Instant::now();
    for (_, codec) in CODECS {
        while !is_compacted(data, codec) {
            assert!(begun.elapsed() < PATIENCE, "{codec} is compacted");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    broker.stop();

    let partitions: Vec<PathBuf> = CODECS.map(|(_, codec)| partition(data, codec)).into();
    let paths: Vec<PathBuf> = (partitions.iter())
        .flat_map(|partition| dump::files_of_partition(partition))
        .collect();
    let dump = Dump::parse(&kafka::dump_log(&paths));
    assert_eq!(dump.files.len(), paths.len(), "every file was read");
    let mut horizons = 0;
    for (_, codec) in CODECS {
        let lines = dump.log_lines(&partition(data, codec));
        let (records, batches): (Vec<&str>, Vec<&str>) =
            lines.iter().partition(|line| line.starts_with('|'));
        let (table, sent) = &expected[codec];
        assert!(
            records.len() < sent / 2,
            "{codec}: {} of {sent}",
            records.len()
        );
        let found: Table = records.iter().map(|line| pair_of(line)).collect();
        assert_eq!(&found, table, "{codec}");
        for line in batches {
            let fields = BatchFields::parse(line);
            assert_eq!(fields.text("isvalid"), "true", "{line}");
            if fields.number("count") > 0 {
                assert_eq!(fields.text("compresscodec"), codec, "{line}");
            }
            horizons += usize::from(fields.text("deleteHorizonMs") != "OptionalLong.empty");
        }
        let ours = highwater_log(&["dump", "--records"], &partition(data, codec));
        assert_eq!(
            dump::highwater_lines(&ours),
            lines,
            "both tools print the same"
        );
    }
    assert!(horizons > 0, "deletion markers have a delete horizon");
    let indexes: Vec<PathBuf> = (paths.into_iter())
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
