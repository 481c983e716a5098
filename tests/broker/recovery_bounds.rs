//! What a start reads, by the broker's own counters.

use super::broker::Broker;
use super::client::{batch_of, create_topic, fetch_all, list_offset, produce_ok, with};
use super::files::{files_of, len_of, scribble};
use super::open_metrics::Scrape;
use super::{data_dir, launch};
use std::path::Path;

const TOPIC: &str = "bound";
const PARTITION: &str = "bound-0";
const VALUE_BYTES: usize = 60_000;
/// The default of `index.interval.bytes`.
const INDEX_INTERVAL_BYTES: u64 = 4096;

/// What loading counted.
struct Counted {
    scanned: u64,
    rebuilt: u64,
    ends: u64,
    segments: u64,
    partitions: u64,
}

impl Counted {
    fn of(broker: &Broker) -> Counted {
        let scrape = Scrape::of(broker);
        let count =
            |name: &str| scrape.sum(&format!("highwater_recovery_{name}_total"), &[]) as u64;
        Counted {
            scanned: count("scanned_bytes"),
            rebuilt: count("rebuilt_bytes"),
            ends: count("ends_bytes"),
            segments: count("segments_opened"),
            partitions: count("partitions"),
        }
    }
}

/// Produces so many large records.
fn fill(broker: &Broker, records: i64) {
    with(broker.addr(), move |c| async move {
        for n in 0..records {
            let value = format!("{n:0VALUE_BYTES$}");
            produce_ok(&c, TOPIC, 0, batch_of(&value)).await;
        }
    });
}

fn create(broker: &Broker) {
    with(broker.addr(), |c| async move {
        assert_eq!(create_topic(&c, TOPIC, 1, &[]).await.error_code, 0);
    });
}

fn end_offset(broker: &Broker) -> i64 {
    with(broker.addr(), |c| async move {
        list_offset(&c, TOPIC, 0, -1).await.offset
    })
}

/// The offset of the newest checkpoint, by its snapshot.
fn checkpointed(data_dir: &Path) -> i64 {
    let newest = files_of(data_dir, PARTITION, "snapshot").pop();
    newest.map_or(0, |path| {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        stem.and_then(|stem| stem.parse().ok())
            .expect("its name is an offset")
    })
}

#[test]
fn given_a_kill_at_the_default_segment_bytes_then_only_what_the_checkpoint_left_is_read() {
    let dir = data_dir();
    let launch = launch(dir.path())
        .shards(1)
        .with_admin()
        .set("checkpoint.bytes=1048576");
    let broker = launch.start();
    create(&broker);
    fill(&broker, 500);
    // Until a checkpoint has come, however slow the machine; then some more.
    while checkpointed(dir.path()) == 0 {
        fill(&broker, 20);
    }
    fill(&broker, 30);
    broker.kill();
    assert_eq!(files_of(dir.path(), PARTITION, "log").len(), 1);
    let point = checkpointed(dir.path());

    let broker = launch.start();
    let counted = Counted::of(&broker);
    let end = end_offset(&broker);
    assert!(end >= 530, "about 32 MB are there");
    let batch_bytes = batch_of(&"0".repeat(VALUE_BYTES)).len() as u64;
    let since = (end - point) as u64 * batch_bytes;
    let all = end as u64 * batch_bytes;
    assert!(since < all, "a checkpoint at {point} of {end}");
    // Each batch is larger than the interval, so an index entry is one batch away at most.
    let most = since + INDEX_INTERVAL_BYTES + 2 * batch_bytes;
    assert!(counted.scanned <= most, "{} of {since}", counted.scanned);
    assert!(counted.scanned >= since, "{} of {since}", counted.scanned);
    assert_eq!((counted.rebuilt, counted.ends), (0, 0));
    assert_eq!(counted.segments, counted.partitions);
    broker.stop();

    // An index that leads nowhere costs its segment, and that is counted apart.
    let broker = launch.start();
    fill(&broker, 5);
    broker.kill();
    for index in files_of(dir.path(), PARTITION, "index") {
        assert!(len_of(&index) > 64, "there are entries to damage");
        scribble(&index, 0, &[0xff; 64]);
    }
    let broker = launch.start();
    let counted = Counted::of(&broker);
    assert!(counted.rebuilt >= all, "{} of {all}", counted.rebuilt);
    assert_eq!(counted.scanned, 0);
    assert_eq!(end_offset(&broker), end + 5);
    let records = with(broker.addr(), move |c| async move {
        fetch_all(&c, TOPIC, 0, end).await
    });
    assert_eq!(records.len(), 5);
    broker.stop();
}

#[test]
fn given_many_segments_then_any_start_opens_the_same_few_of_them() {
    let dir = data_dir();
    let launch = launch(dir.path())
        .shards(1)
        .with_admin()
        .set("log.segment.bytes=130000");
    let broker = launch.start();
    create(&broker);
    fill(&broker, 60);
    broker.stop();
    assert!(files_of(dir.path(), PARTITION, "log").len() >= 30);
    for clean in [true, false] {
        let broker = launch.start();
        let counted = Counted::of(&broker);
        assert!(counted.segments <= 3, "{} of 30 opened", counted.segments);
        let batch_bytes = batch_of(&"0".repeat(VALUE_BYTES)).len() as u64;
        assert!(counted.ends <= 3 * batch_bytes, "{}", counted.ends);
        assert_eq!(counted.rebuilt, 0);
        assert_eq!(end_offset(&broker), if clean { 60 } else { 62 });
        if clean {
            fill(&broker, 2);
            broker.kill();
        } else {
            broker.stop();
        }
    }
}

/// The hole is named when it is read, and no record behind it is taken for one before it.
#[test]
fn given_a_middle_segment_that_is_gone_then_the_load_notices_by_the_names_alone() {
    for clean in [true, false] {
        let dir = data_dir();
        let launch = launch(dir.path()).set("log.segment.bytes=130000");
        let broker = launch.start();
        create(&broker);
        fill(&broker, 20);
        broker.stop();
        if !clean {
            let broker = launch.start();
            fill(&broker, 1);
            broker.kill();
        }
        let logs = files_of(dir.path(), PARTITION, "log");
        std::fs::remove_file(&logs[4]).expect("a segment in the middle");
        let broker = launch.start();
        let (status, stderr) = broker.end_by("TERM");
        assert!(!status.success(), "the partition is offline");
        assert!(stderr.contains("are missing"), "{stderr}");
    }
}
