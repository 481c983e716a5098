//! From a case to librdkafka's settings.

use crate::driver::Job;
use crate::workload::{Acks, Case, CodecName};
use anyhow::{anyhow, bail, Error, Result};
use rdkafka::error::KafkaError;
use rdkafka::ClientConfig;

/// Bytes that librdkafka counts for a record beside its value, at most; with a key of 8 bytes.
const RECORD_OVERHEAD: usize = 128;
/// What librdkafka takes.
const BATCH_BYTES_MAX: usize = 1_000_000_000;
const BATCH_RECORDS_MAX: usize = 1_000_000;

/// Records of a producer that are not reported yet, at saturation.
pub fn window(case: &Case) -> usize {
    let in_flight = case.producers.in_flight as usize;
    match case.batch_records() {
        1 => in_flight,
        records => (in_flight + 1) * records,
    }
}

pub fn producer(job: &Job<'_>) -> Result<ClientConfig> {
    let case = job.case;
    let plan = &case.producers;
    let records = case.batch_records().min(BATCH_RECORDS_MAX);
    let bytes = records * (case.records.bytes + RECORD_OVERHEAD);
    let bytes = bytes.min(BATCH_BYTES_MAX);
    let acks = match plan.acks {
        Acks::Leader => "1",
        Acks::All => "all",
    };
    let codec = match case.records.codec {
        CodecName::None => "none",
        CodecName::Gzip => "gzip",
        CodecName::Snappy => "snappy",
        CodecName::Lz4 => "lz4",
        CodecName::Zstd => bail!("the librdkafka of this program is built without zstd"),
    };
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", job.endpoint.addr.to_string())
        .set("client.id", "perf")
        .set("acks", acks)
        .set("enable.idempotence", "false")
        .set("max.in.flight", plan.in_flight.to_string())
        .set("linger.ms", format!("{}", plan.linger_us as f64 / 1e3))
        .set("batch.num.messages", records.to_string())
        .set("batch.size", bytes.to_string())
        .set("message.max.bytes", bytes.max(1_000_000).to_string())
        .set("compression.codec", codec)
        // The largest latency, and an error that ends the measurement: nothing is sent twice.
        .set("message.send.max.retries", "0")
        .set("message.timeout.ms", "60000")
        .set("queue.buffering.max.messages", queue(case).to_string())
        .set("queue.buffering.max.kbytes", "1048576");
    if records > 1 {
        config.set("statistics.interval.ms", "200");
    }
    Ok(config)
}

/// Records that wait in librdkafka's queue: its default, if the window is not larger.
fn queue(case: &Case) -> usize {
    window(case).max(100_000)
}

pub fn consumer(job: &Job<'_>) -> ClientConfig {
    let plan = &job.case.consumers;
    let fetch = plan.fetch_bytes as usize;
    let whole = fetch.clamp(50 << 20, BATCH_BYTES_MAX);
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", job.endpoint.addr.to_string())
        .set("client.id", "perf")
        // Asked for by librdkafka; the group is never joined.
        .set("group.id", "perf")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set(
            "max.partition.fetch.bytes",
            fetch.min(BATCH_BYTES_MAX).to_string(),
        )
        .set("fetch.max.bytes", whole.to_string())
        .set("receive.message.max.bytes", (whole + (1 << 20)).to_string())
        .set(
            "fetch.min.bytes",
            plan.min_bytes.clamp(1, 100_000_000).to_string(),
        )
        .set("fetch.wait.max.ms", plan.wait_ms.min(300_000).to_string());
    config
}

pub fn explain(what: &str, error: &KafkaError) -> Error {
    anyhow!(
        "librdkafka makes no {}: {error}",
        what.trim_start_matches("a ")
    )
}
