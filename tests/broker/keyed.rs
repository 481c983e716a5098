//! Records with keys: what compacted topics hold, and how it is read and waited for.

use super::broker::{Broker, Launch};
use super::client::{create_topic, fetch, list_offset};
use super::launch;
use super::open_metrics::{Scrape, PATIENCE};
use bytes::Bytes;
use highwater::client::BrokerConnection;
use highwater::protocol::batch::{BatchBuilder, Batches, Compression, RecordIter};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A topic that is compacted as soon as a segment of it is full.
pub const COMPACTED: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", "16384"),
    ("min.cleanable.dirty.ratio", "0.01"),
    ("file.delete.delay.ms", "0"),
];
/// Rounds that ended.
pub const ROUNDS: &str = "highwater_compaction_rounds_total";
/// Rounds under way.
pub const RUNNING: &str = "highwater_compaction_rounds_in_progress";
/// Records that rounds have removed.
pub const REMOVED: &str = "highwater_compaction_removed_records_total";

/// Key and value; no value deletes the key.
pub type Keyed = (String, Option<String>);

/// A record as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub offset: i64,
    pub key: String,
    pub value: Option<String>,
}

/// A broker that looks for logs to compact all the time.
pub fn diligent(data_dir: &Path) -> Launch {
    launch(data_dir)
        .with_admin()
        .set("log.cleaner.backoff.ms=50")
}

pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is right").as_millis() as i64
}

pub fn keyed(key: impl Into<String>, value: impl Into<String>) -> Keyed {
    (key.into(), Some(value.into()))
}

/// The batch of some records, from now.
pub fn batch_of(records: &[Keyed], codec: Compression) -> Bytes {
    filled(BatchBuilder::new().compression(codec), records)
}

/// The same by an idempotent producer; the sequence is the first record's.
pub fn batch_by(id: i64, sequence: i32, records: &[Keyed]) -> Bytes {
    filled(BatchBuilder::new().producer(id, 0, sequence), records)
}

fn filled(mut batch: BatchBuilder, records: &[Keyed]) -> Bytes {
    for (key, value) in records {
        let value = value.as_ref().map(String::as_bytes);
        batch.push(now_ms(), Some(key.as_bytes()), value);
    }
    batch.build()
}

pub async fn create(c: &BrokerConnection, topic: &str, configs: &[(&str, &str)]) {
    let created = create_topic(c, topic, 1, configs).await;
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
}

/// The high watermark.
pub async fn end_of(c: &BrokerConnection, topic: &str) -> i64 {
    list_offset(c, topic, 0, -1).await.offset
}

/// Every record from `from` up to the high watermark of the start. Offsets rise, batches are whole, CRCs are right.
pub async fn read_all(c: &BrokerConnection, topic: &str, from: i64) -> Vec<Read> {
    let end = end_of(c, topic).await;
    let mut records: Vec<Read> = Vec::new();
    let mut offset = from;
    while offset < end {
        let answer = fetch(c, topic, 0, offset, 0, 64 << 10).await;
        assert_eq!(answer.error_code, 0, "fetch at {offset}");
        let bytes = answer.records.map(|r| r.to_bytes()).unwrap_or_default();
        let before = offset;
        for batch in Batches::new(bytes) {
            let batch = batch.expect("whole batches are returned");
            batch.validate_crc().expect("the CRC is right");
            let header = batch.header();
            let content = batch.decompressed(64 << 20).expect("sound data");
            for record in RecordIter::new(&content, header.record_count) {
                let record = record.expect("a sound record");
                let at = header.base_offset + i64::from(record.offset_delta);
                assert!(at <= header.last_offset(), "{at} is within its batch");
                if at < offset {
                    continue;
                }
                assert!(records.last().is_none_or(|last| last.offset < at));
                records.push(Read {
                    offset: at,
                    key: text(record.key.expect("every record has a key")),
                    value: record.value.map(text),
                });
            }
            offset = offset.max(header.next_offset());
        }
        assert!(offset > before, "nothing is read at {before} of {end}");
    }
    records
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it was text when it was sent")
}

/// What a reader knows at the end: the last value of each key that is not deleted.
pub fn table(records: &[Read]) -> BTreeMap<String, String> {
    let mut table = BTreeMap::new();
    for record in records {
        match &record.value {
            Some(value) => table.insert(record.key.clone(), value.clone()),
            None => table.remove(&record.key),
        };
    }
    table
}

/// Waits until a page of metrics is as wanted, and returns it.
pub fn wait_for(broker: &Broker, what: &str, wanted: impl Fn(&Scrape) -> bool) -> Scrape {
    let begun = Instant::now();
    loop {
        let scrape = Scrape::of(broker);
        if wanted(&scrape) {
            return scrape;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{what}: {:?}",
            broker.said().lines().rev().take(20).collect::<Vec<_>>()
        );
        std::thread::sleep(PAUSE);
    }
}

/// Waits until the logs of a topic have no more than so many bytes.
pub fn wait_for_bytes(broker: &Broker, topic: &str, bytes: f64) -> Scrape {
    let what = format!("{topic} has at most {bytes} bytes");
    wait_for(broker, &what, |scrape| {
        let labels = [("topic", topic)];
        let mut found = scrape.find("highwater_topic_log_bytes", &labels);
        found.next().is_some_and(|sample| sample.value <= bytes)
    })
}

/// `highwater log verify` finds nothing wrong.
pub fn verify(data_dir: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_highwater"))
        .args(["log", "verify"])
        .arg(data_dir)
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {said}", output.status);
}

const PAUSE: Duration = Duration::from_millis(20);
