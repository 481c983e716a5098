//! `highwater produce`: records from lines to a topic.
//!
//! Records are validated by the broker and counted by its answers: what is not acknowledged is a failure, and one
//! failure makes the exit code 1. A line that is no record is told with its number, and the others go on.

mod input;
mod partitioner;
mod sender;

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, Read};
use std::path::PathBuf;
use std::pin::Pin;

use clap::{Args, ValueEnum};
use serde_json::{json, Value};

use super::progress::Progress;
use super::remote::{pair, RemoteArgs};
use super::render::{count, print_json};
use super::CliError;
use crate::client::{ClientError, Cluster};
use crate::protocol::batch::Compression;
use crate::protocol::{ErrorCode, Str};
use crate::runtime::{native, Panicked, Rt};
use futures_lite::FutureExt;
use input::{Chunk, InputFormat, InputHeader, Parser, Source};
use partitioner::Partitioner;
use sender::{Dispatch, SendOptions, Sent, ACKS_ALL};

/// What is produced, and how.
#[derive(Debug, Clone, Args)]
pub(super) struct ProduceArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The topic; created by the broker if it does that (auto.create.topics.enable).
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// Read this file instead of standard input.
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How records stand in the input.
    #[arg(long, value_enum, default_value = "lines")]
    format: InputFormat,
    /// What stands between key and value in a line; without it a line is a value.
    #[arg(long, short = 'K', value_name = "TEXT")]
    key_separator: Option<String>,
    /// The key of records that have none.
    #[arg(long, short, value_name = "TEXT")]
    key: Option<String>,
    /// A key or a value of just this text is null.
    #[arg(long, value_name = "TEXT")]
    null: Option<String>,
    /// A header of every record; may be repeated.
    #[arg(long, short = 'H', value_name = "NAME=VALUE", value_parser = pair)]
    header: Vec<(String, String)>,
    /// The partition of every record; without it by the key's hash as Java's producer has it, or sticky.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// When the broker acknowledges; with `all` the producer is idempotent where the broker offers it.
    #[arg(long, value_enum, default_value = "all", allow_hyphen_values = true)]
    acks: Acks,
    /// How batches are compressed.
    #[arg(long, short = 'z', value_enum, default_value = "none")]
    compression: Codec,
    /// Largest batch before compression.
    #[arg(long, value_name = "BYTES", default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    batch_bytes: u32,
    /// Stop after so many records.
    #[arg(long, short = 'c', value_name = "N")]
    count: Option<u64>,
    /// No summary on standard error.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Acks {
    /// No answer at all.
    #[value(name = "0")]
    None,
    /// The leader has it.
    #[value(name = "1")]
    Leader,
    /// All in-sync replicas have it.
    #[value(name = "all", alias = "-1")]
    All,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    fn compression(self) -> Compression {
        match self {
            Codec::None => Compression::None,
            Codec::Gzip => Compression::Gzip,
            Codec::Snappy => Compression::Snappy,
            Codec::Lz4 => Compression::Lz4,
            Codec::Zstd => Compression::Zstd,
        }
    }
}

pub(super) fn run(args: ProduceArgs) -> Result<(), CliError> {
    let reader: Box<dyn Read + Send> = match &args.file {
        None => Box::new(std::io::stdin()),
        Some(path) => Box::new(std::fs::File::open(path).map_err(|error| CliError::Read {
            path: path.clone(),
            error,
        })?),
    };
    let source = Source::new(reader, args.format == InputFormat::Raw);
    let remote = args.remote.clone();
    remote.run(|rt, cluster| async move {
        let partitioner = find_partitions(&rt, &cluster, &args).await?;
        let mut producing = Producing::new(rt, cluster, partitioner, args)?;
        let is_interrupted = producing.run(source).await?;
        let finished = producing.finish();
        if is_interrupted {
            // The helper thread may wait for a line that nobody types.
            std::process::exit(i32::from(super::tell(finished)));
        }
        finished
    })
}

/// The topic's partitions, once it has a leader: a topic that is created now has none at first.
async fn find_partitions(
    rt: &Rt,
    cluster: &Cluster,
    args: &ProduceArgs,
) -> Result<Partitioner, CliError> {
    let names = [Str::from(args.topic.clone())];
    let deadline = rt.now() + args.remote.timeout().min(TOPIC_WAIT_MAX);
    let topic = loop {
        let found = cluster
            .metadata(Some(&names), true)
            .await?
            .topics
            .into_iter()
            .next();
        let topic = found.unwrap_or_default();
        let code = ErrorCode::from_code(topic.error_code);
        let is_led = topic.partitions.iter().all(|p| p.leader_id >= 0);
        let may_come = code.is_some_and(ErrorCode::is_retriable) || !is_led;
        if !may_come || rt.now() >= deadline {
            break topic;
        }
        rt.sleep(TOPIC_PAUSE).await;
    };
    if topic.error_code == ErrorCode::UnknownTopicOrPartition.code() {
        return Err(CliError::Found(format!(
            "there is no topic {0}, and the broker does not create it by itself; run `highwater topic create {0}`",
            args.topic
        )));
    }
    ClientError::check(topic.error_code, None, || {
        format!("produce to topic {}", args.topic)
    })?;
    let led = topic.partitions.iter().filter(|p| p.leader_id >= 0);
    let available: Vec<i32> = led.map(|p| p.partition_index).collect();
    let count = topic.partitions.len() as i32;
    if available.is_empty() {
        ClientError::check(ErrorCode::LeaderNotAvailable.code(), None, || {
            format!("produce to topic {}", args.topic)
        })?;
    }
    let partitioner = Partitioner::new(count, available, rt.random_u64());
    match args.partition {
        Some(partition) if !partitioner.has(partition) => Err(CliError::Found(format!(
            "topic {} has no partition {partition}; it has {count}",
            args.topic
        ))),
        _ => Ok(partitioner),
    }
}

type Reading = Pin<Box<dyn Future<Output = Result<(Source, io::Result<Chunk>), Panicked>>>>;

enum Event {
    Read(Result<(Source, io::Result<Chunk>), Panicked>),
    Sent(Sent),
    Interrupted,
}

/// One run of the command.
struct Producing {
    rt: Rt,
    args: ProduceArgs,
    parser: Parser,
    headers: Vec<InputHeader>,
    partitioner: Partitioner,
    dispatch: Dispatch,
    lines: u64,
    tally: Tally,
    /// Why the input ended before its end.
    unreadable: Option<CliError>,
    progress: Progress,
}

impl Producing {
    fn new(
        rt: Rt,
        cluster: Cluster,
        partitioner: Partitioner,
        args: ProduceArgs,
    ) -> Result<Producing, CliError> {
        if args.key_separator.as_deref() == Some("") {
            return Err(CliError::Usage(
                "the key separator is empty; give a text".to_owned(),
            ));
        }
        let options = SendOptions {
            topic: Str::from(args.topic.clone()),
            acks: match args.acks {
                Acks::None => 0,
                Acks::Leader => 1,
                Acks::All => ACKS_ALL,
            },
            compression: args.compression.compression(),
            batch_bytes: args.batch_bytes as usize,
            timeout: args.remote.timeout(),
        };
        let header =
            |(key, value): &(String, String)| (key.clone(), Some(value.clone().into_bytes()));
        Ok(Producing {
            parser: Parser {
                format: args.format,
                key_separator: args.key_separator.clone(),
                null: args.null.clone(),
            },
            headers: args.header.iter().map(header).collect(),
            dispatch: Dispatch::new(cluster, options),
            progress: Progress::new(rt.now(), true),
            partitioner,
            lines: 0,
            tally: Tally::default(),
            unreadable: None,
            rt,
            args,
        })
    }

    /// Sends all that there is to read. True if a signal ended the reading.
    async fn run(&mut self, source: Source) -> Result<bool, CliError> {
        let signals = native::signals().map_err(CliError::Output)?;
        let mut reading = (self.args.count != Some(0)).then(|| self.read(source));
        let mut is_interrupted = false;
        while reading.is_some() && !is_interrupted || !self.dispatch.is_idle() {
            let has_room = self.dispatch.has_room() && !is_interrupted;
            let read = async {
                match &mut reading {
                    Some(reading) if has_room => Event::Read(reading.await),
                    _ => std::future::pending().await,
                }
            };
            let sent = async { Event::Sent(self.dispatch.next().await) };
            let interrupted = async {
                match is_interrupted {
                    true => std::future::pending::<i32>().await,
                    false => signals.recv().await,
                };
                Event::Interrupted
            };
            match sent.or(read).or(interrupted).await {
                Event::Sent(sent) => self.tally.sent(sent),
                Event::Interrupted => is_interrupted = true,
                Event::Read(read) => {
                    let (source, chunk) =
                        read.map_err(|panicked| CliError::Found(panicked.to_string()))?;
                    reading = None;
                    match chunk {
                        Ok(chunk) => {
                            let is_last = chunk.is_last;
                            let is_enough = self.take(chunk);
                            reading = (!is_last && !is_enough).then(|| self.read(source));
                        }
                        // What was read before is sent, and told.
                        Err(error) => self.unreadable = Some(self.unreadable(error)),
                    }
                }
            }
            self.dispatch.flush();
            let tally = &self.tally;
            self.progress.tell(self.rt.now(), || {
                format!("{} records, {} bytes", tally.records, tally.bytes)
            });
        }
        self.dispatch.settle().await?;
        self.progress.end();
        Ok(is_interrupted)
    }

    fn read(&self, mut source: Source) -> Reading {
        let rt = self.rt.clone();
        Box::pin(async move {
            rt.spawn_blocking(move || {
                let chunk = source.read();
                (source, chunk)
            })
            .await
        })
    }

    fn unreadable(&self, error: io::Error) -> CliError {
        match &self.args.file {
            Some(path) => CliError::Read {
                path: path.clone(),
                error,
            },
            None => CliError::Found(format!("cannot read standard input: {error}")),
        }
    }

    /// Queues the records of the lines. True if there are as many as were asked for.
    fn take(&mut self, chunk: Chunk) -> bool {
        for line in chunk.lines {
            self.lines += 1;
            match self.parser.parse(line) {
                Ok(None) => continue,
                Ok(Some(record)) => self.push(record),
                Err(problem) => self
                    .tally
                    .failed(1, format!("line {}: {problem}", self.lines)),
            }
            if self
                .args
                .count
                .is_some_and(|count| self.tally.seen >= count)
            {
                return true;
            }
        }
        false
    }

    fn push(&mut self, mut record: input::InputRecord) {
        record.headers.extend(self.headers.iter().cloned());
        if record.key.is_none() {
            record.key = self.args.key.clone().map(String::into_bytes);
        }
        let asked = self.args.partition.or(record.partition);
        if let Some(partition) = asked.filter(|partition| !self.partitioner.has(*partition)) {
            let sentence = format!("line {}: there is no partition {partition}", self.lines);
            return self.tally.failed(1, sentence);
        }
        if record.size_bytes() > RECORD_BYTES_MAX {
            let sentence = format!(
                "line {}: a record of {} bytes is too large for any broker",
                self.lines,
                record.size_bytes()
            );
            return self.tally.failed(1, sentence);
        }
        let partition = asked.unwrap_or_else(|| self.partitioner.choose(record.key.as_deref()));
        let timestamp = record.timestamp.unwrap_or_else(|| self.rt.wall_clock_ms());
        self.tally.seen += 1;
        if self.dispatch.push(partition, &record, timestamp) {
            self.partitioner.batch_is_full(self.rt.random_u64());
        }
    }

    fn finish(self) -> Result<(), CliError> {
        let tally = self.tally;
        if self.args.remote.json {
            print_json(&tally.json(&self.args.topic))?;
        } else if !self.args.quiet {
            let records = count(tally.records, "record", "records");
            let partitions = count(tally.partitions.len() as u64, "partition", "partitions");
            let (bytes, topic) = (tally.bytes, &self.args.topic);
            eprintln!("produced {records} ({bytes} bytes) to {partitions} of {topic}");
        }
        match (self.unreadable, tally.failures) {
            (Some(error), _) => Err(error),
            (None, 0) => Ok(()),
            (None, failures) => Err(CliError::Found(format!(
                "{failures} of {} could not be produced",
                count(failures + tally.records, "record", "records")
            ))),
        }
    }
}

/// What became of the records.
#[derive(Default)]
struct Tally {
    /// Records that were read and queued, and lines that are none.
    seen: u64,
    records: u64,
    bytes: u64,
    failures: u64,
    partitions: BTreeMap<i32, Produced>,
    errors: Vec<String>,
}

/// What one partition took.
#[derive(Default)]
struct Produced {
    records: u64,
    /// First and last offset, as far as the broker says.
    offsets: Option<(i64, i64)>,
}

impl Tally {
    fn sent(&mut self, sent: Sent) {
        let records = sent.records as u64;
        let offset = match sent.result {
            Ok(offset) => offset,
            Err(error) => {
                // Those were counted when they were queued.
                self.seen -= records;
                let advice = match error.code() {
                    Some(ErrorCode::MessageTooLarge) if records > 1 => " (--batch-bytes)",
                    _ => "",
                };
                return self.failed(records, format!("{error}{advice}"));
            }
        };
        self.records += records;
        self.bytes += sent.bytes as u64;
        let partition = self.partitions.entry(sent.partition).or_default();
        partition.records += records;
        if offset >= 0 {
            let last = offset + records as i64 - 1;
            let first = partition.offsets.map_or(offset, |(first, _)| first);
            partition.offsets = Some((first, last));
        }
    }

    fn failed(&mut self, records: u64, problem: String) {
        self.seen += records;
        self.failures += records;
        if self.errors.len() < ERRORS_TOLD {
            eprintln!("highwater: {problem}");
            self.errors.push(problem);
        }
    }

    fn json(&self, topic: &str) -> Value {
        let partition = |(partition, produced): (&i32, &Produced)| {
            json!({
                "partition": partition,
                "records": produced.records,
                "first_offset": produced.offsets.map(|(first, _)| first),
                "last_offset": produced.offsets.map(|(_, last)| last),
            })
        };
        json!({
            "topic": topic,
            "records": self.records,
            "bytes": self.bytes,
            "failed": self.failures,
            "partitions": self.partitions.iter().map(partition).collect::<Vec<_>>(),
            "errors": self.errors,
        })
    }
}

/// How long a topic that is created now may be without a leader.
const TOPIC_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(3);
const TOPIC_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// Larger ones do not fit into a request.
const RECORD_BYTES_MAX: usize = 100 << 20;
/// Failures that are told one by one.
const ERRORS_TOLD: usize = 10;
