//! `highwater consume`: records of topics, printed.
//!
//! It reads up to the end as it is at the start, or on with `--follow`. With `--group` it begins where the group has
//! committed, and commits what it has printed: as a member that shares the topics with the group's other members, or,
//! where partitions are named, alone for just these.

pub(in crate::cli) mod fetch;
mod format;
mod member;
mod span;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::time::Duration;

use clap::Args;
use futures_lite::FutureExt;

use super::place::Place;
use super::progress::Progress;
use super::remote::{merged, partitions, topic_partitions, RemoteArgs};
use super::render::count;
use super::CliError;
use crate::client::{Cluster, GroupClient, Membership, PartitionKey};
use crate::protocol::batch::RecordIter;
use crate::protocol::Str;
use crate::runtime::native::Signals;
use crate::runtime::{native, Mono, Rt};
use fetch::{Answer, FetchOptions, FetchedBatch, Fetcher};
use format::{Format, Placed};
use member::{Member, Pulse, HEARTBEAT_PERIOD};
use span::{spans, Ends};

/// What is consumed, and how it is printed.
#[derive(Debug, Clone, Args)]
pub(super) struct ConsumeArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The topics, each with all of its partitions or with those that are named.
    #[arg(value_name = "TOPIC[:PARTITION,...]", required = true, value_parser = topic_partitions)]
    topics: Vec<(String, Option<Vec<i32>>)>,
    /// Only these partitions, of every topic that names none.
    #[arg(long, short, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(0..))]
    partition: Vec<i32>,
    /// Where to begin: beginning, end, an offset, -N for the last N, a time (2026-11-30T18:00:00Z, -2h, @MS); with a group
    /// only where it has committed nothing.
    #[arg(
        long,
        short = 'o',
        value_name = "PLACE",
        default_value = "beginning",
        allow_hyphen_values = true
    )]
    from: String,
    /// Wait for more at the end, until Ctrl-C.
    #[arg(long, short)]
    follow: bool,
    /// Stop after so many records.
    #[arg(long, short = 'c', value_name = "N")]
    count: Option<u64>,
    /// Begin where this group has committed, and commit.
    #[arg(long, short, value_name = "GROUP")]
    group: Option<String>,
    /// value, key-value, json, hex, base64, or a template: %t topic, %p partition, %o offset, %T timestamp, %D its date, %h
    /// headers, %k key, %v value, %K and %V their lengths, \n \t \xFF.
    #[arg(long, short = 'F', value_name = "FORMAT")]
    format: Option<String>,
    /// What to print between key and value; for value, hex and base64 this prints the key.
    #[arg(long, short = 'K', value_name = "TEXT")]
    key_separator: Option<String>,
    /// What to print for null.
    #[arg(long, value_name = "TEXT", default_value = "")]
    null: String,
    /// Leave out records of transactions that are open or aborted.
    #[arg(long)]
    read_committed: bool,
    /// No summary on standard error.
    #[arg(long, short)]
    quiet: bool,
}

impl ConsumeArgs {
    fn format(&self) -> Result<Format, CliError> {
        let name = match (&self.format, self.remote.json) {
            (None, true) => "json",
            (None, false) => "value",
            (Some(name), false) => name,
            (Some(_), true) => {
                return Err(CliError::Usage(
                    "give --json or --format, not both".to_owned(),
                ));
            }
        };
        Format::parse(name, self.key_separator.as_deref(), &self.null).map_err(CliError::Usage)
    }

    fn ends(&self) -> Ends {
        Ends {
            follow: self.follow,
            read_committed: self.read_committed,
            patience: self.remote.timeout(),
        }
    }
}

pub(super) fn run(args: ConsumeArgs) -> Result<(), CliError> {
    let format = args.format()?;
    if args.group.as_deref() == Some("") {
        return Err(CliError::Usage("the group's name is empty".to_owned()));
    }
    let remote = args.remote.clone();
    remote.run_patient(member::ANSWER_TIME_MIN, |rt, cluster| async move {
        let from = Place::parse(&args.from, rt.wall_clock_ms()).map_err(CliError::Usage)?;
        let mut consuming = Consuming::new(rt, cluster, args, format, from).await?;
        let read = consuming.run().await;
        consuming.finish(read).await
    })
}

/// What the command reads for.
enum Reader {
    /// Nobody.
    Alone,
    /// A group, without being a member.
    Committer(GroupClient),
    /// A group, as one of its members.
    Member(Member),
}

enum Event {
    Answer(Option<Answer>),
    Interrupted,
    Tick,
}

struct Consuming {
    rt: Rt,
    cluster: Cluster,
    args: ConsumeArgs,
    format: Format,
    from: Place,
    reader: Reader,
    /// What is read if it is no member.
    keys: Vec<PartitionKey>,
    fetcher: Fetcher,
    signals: Signals,
    out: BufWriter<Stdout>,
    /// The next offset of each partition whose records were printed, or passed over.
    consumed: BTreeMap<PartitionKey, i64>,
    /// As it was committed last.
    committed: BTreeMap<PartitionKey, i64>,
    next_heartbeat: Mono,
    next_commit: Mono,
    printed: u64,
    touched: BTreeSet<PartitionKey>,
    progress: Progress,
}

impl Consuming {
    async fn new(
        rt: Rt,
        cluster: Cluster,
        args: ConsumeArgs,
        format: Format,
        from: Place,
    ) -> Result<Consuming, CliError> {
        let (keys, is_whole) = select(&cluster, &args).await?;
        let reader = match &args.group {
            None => Reader::Alone,
            Some(group) => {
                let group = GroupClient::new(cluster.clone(), group, args.remote.timeout());
                let names: BTreeSet<Str> = keys.iter().map(|key| key.0.clone()).collect();
                match is_whole {
                    true => Reader::Member(Member::new(
                        cluster.clone(),
                        group,
                        names.into_iter().collect(),
                    )),
                    false => Reader::Committer(group),
                }
            }
        };
        let options = FetchOptions {
            read_committed: args.read_committed,
            patience: args.remote.timeout(),
        };
        let now = rt.now();
        Ok(Consuming {
            fetcher: Fetcher::new(cluster.clone(), options),
            signals: native::signals()?,
            out: BufWriter::with_capacity(OUTPUT_BYTES, io::stdout()),
            consumed: BTreeMap::new(),
            committed: BTreeMap::new(),
            next_heartbeat: now + HEARTBEAT_PERIOD,
            next_commit: now + COMMIT_PERIOD,
            printed: 0,
            touched: BTreeSet::new(),
            // Records on the same terminal are progress enough.
            progress: Progress::new(now, !io::stdout().is_terminal()),
            rt,
            cluster,
            args,
            format,
            from,
            reader,
            keys,
        })
    }

    /// Reads and prints to the end, or until a signal.
    async fn run(&mut self) -> Result<(), CliError> {
        if !self.begin().await? {
            return Ok(());
        }
        while !self.has_enough() {
            self.fetcher.start();
            let is_done = self.fetcher.is_done();
            if is_done && !self.args.follow {
                break;
            }
            let tick_at = match self.reader {
                Reader::Alone => None,
                Reader::Committer(_) => Some(self.next_commit),
                Reader::Member(_) => Some(self.next_commit.min(self.next_heartbeat)),
            };
            let answer = async {
                match is_done {
                    true => std::future::pending().await,
                    false => Event::Answer(self.fetcher.answer().await),
                }
            };
            let tick = async {
                match tick_at {
                    Some(at) => self.rt.sleep(at.since(self.rt.now())).await,
                    None => std::future::pending().await,
                }
                Event::Tick
            };
            let interrupted = async {
                self.signals.recv().await;
                Event::Interrupted
            };
            match interrupted.or(tick).or(answer).await {
                Event::Interrupted => break,
                Event::Tick => {
                    if !self.tick().await? {
                        break;
                    }
                }
                Event::Answer(answer) => {
                    let batches = self.fetcher.take(answer).await?;
                    self.fetcher.start();
                    self.print(&batches)?;
                }
            }
        }
        Ok(())
    }

    fn has_enough(&self) -> bool {
        self.args.count.is_some_and(|count| self.printed >= count)
    }

    /// Finds what to read, and from where. False if a signal came first.
    async fn begin(&mut self) -> Result<bool, CliError> {
        let keys = match &mut self.reader {
            Reader::Alone | Reader::Committer(_) => self.keys.clone(),
            Reader::Member(member) => {
                let joined = async { Some(member.join().await) };
                let interrupted = async {
                    self.signals.recv().await;
                    None
                };
                match joined.or(interrupted).await {
                    Some(joined) => joined?,
                    None => return Ok(false),
                }
            }
        };
        let group = match &self.reader {
            Reader::Alone => None,
            Reader::Committer(group) => Some(group),
            Reader::Member(member) => Some(member.group()),
        };
        let committed = match group {
            Some(group) if !keys.is_empty() => group.committed(Some(&keys)).await?,
            _ => BTreeMap::new(),
        };
        // Topics that only another member's subscription named are not known yet.
        let names: BTreeSet<Str> = keys.iter().map(|key| key.0.clone()).collect();
        let names: Vec<Str> = names.into_iter().collect();
        self.cluster.metadata(Some(&names), false).await?;
        let spans = spans(
            &self.cluster,
            &keys,
            self.from,
            &committed,
            self.args.ends(),
        )
        .await?;
        self.consumed.clear();
        self.committed.clear();
        self.touched.extend(keys);
        self.fetcher.assign(spans);
        self.next_heartbeat = self.rt.now() + HEARTBEAT_PERIOD;
        Ok(true)
    }

    /// What the group asks for from time to time. False if a signal ended a join.
    async fn tick(&mut self) -> Result<bool, CliError> {
        let now = self.rt.now();
        let mut pulse = Pulse::Steady;
        if now >= self.next_commit {
            self.next_commit = now + COMMIT_PERIOD;
            pulse = self.commit().await?;
        }
        if let Reader::Member(member) = &mut self.reader {
            if now >= self.next_heartbeat {
                self.next_heartbeat = now + HEARTBEAT_PERIOD;
                if pulse == Pulse::Steady {
                    pulse = member.heartbeat().await?;
                }
            }
        }
        match pulse {
            Pulse::Steady => return Ok(true),
            // If this cannot be committed, who gets the partitions reads the records again.
            Pulse::Rebalance => drop(self.commit().await?),
            Pulse::Lost => {
                if let Reader::Member(member) = &mut self.reader {
                    member.forget();
                }
                eprintln!("highwater: the group went on without this member; it joins again");
            }
        }
        self.begin().await
    }

    /// Commits what was printed since the last time.
    async fn commit(&mut self) -> Result<Pulse, CliError> {
        let none = Membership::none();
        let (group, membership) = match &self.reader {
            Reader::Alone => return Ok(Pulse::Steady),
            Reader::Committer(group) => (group, &none),
            Reader::Member(member) => (member.group(), member.membership()),
        };
        let is_new =
            |(key, offset): &(&PartitionKey, &i64)| self.committed.get(*key) != Some(*offset);
        let new: BTreeMap<PartitionKey, i64> = self
            .consumed
            .iter()
            .filter(is_new)
            .map(|(key, offset)| (key.clone(), *offset))
            .collect();
        if new.is_empty() {
            return Ok(Pulse::Steady);
        }
        match group.commit(membership, &new).await {
            Ok(()) => {
                self.committed.extend(new);
                Ok(Pulse::Steady)
            }
            Err(error) => match (Pulse::of(&error), &self.reader) {
                (Some(pulse), Reader::Member(_)) => Ok(pulse),
                _ => Err(error.into()),
            },
        }
    }

    fn print(&mut self, batches: &[FetchedBatch]) -> Result<(), CliError> {
        for batch in batches {
            if !self.print_batch(batch)? {
                break;
            }
        }
        if !self.has_enough() {
            // Behind markers, and gaps that compaction left, too.
            self.consumed.extend(self.fetcher.moved());
        }
        self.out.flush()?;
        let printed = self.printed;
        self.progress
            .tell(self.rt.now(), || format!("{printed} records"));
        Ok(())
    }

    /// False if no more is wanted.
    fn print_batch(&mut self, batch: &FetchedBatch) -> Result<bool, CliError> {
        let FetchedBatch { key, header, .. } = batch;
        let mut next = None;
        for record in RecordIter::new(&batch.records, header.record_count) {
            if self.has_enough() {
                break;
            }
            // All were looked at when they came.
            let Ok(record) = record else { break };
            let offset = header
                .base_offset
                .saturating_add(i64::from(record.offset_delta));
            if !(batch.from..batch.until).contains(&offset) {
                continue;
            }
            let placed = Placed {
                topic: &key.0,
                partition: key.1,
                offset,
                timestamp: header.timestamp(record.timestamp_delta),
                timestamp_type: header.attributes.timestamp_type(),
                record,
            };
            self.format.print(&mut self.out, &placed)?;
            self.printed += 1;
            next = Some(offset + 1);
        }
        self.consumed.extend(next.map(|next| (key.clone(), next)));
        Ok(!self.has_enough())
    }

    /// Commits, leaves the group, and says what was read.
    async fn finish(mut self, read: Result<(), CliError>) -> Result<(), CliError> {
        self.progress.end();
        let read = read.and_then(|()| Ok(self.out.flush()?));
        // What the reader of a broken pipe has seen is not known, so it is not committed.
        let ended = match read {
            Ok(()) => self.commit().await.and_then(|pulse| match pulse {
                Pulse::Steady => Ok(()),
                Pulse::Rebalance | Pulse::Lost => Err(CliError::Found(
                    "the last offsets were not committed, because the group is rebalancing; their records will be read again".to_owned(),
                )),
            }),
            failed => failed,
        };
        if let Reader::Member(member) = &mut self.reader {
            let left = member.leave().await;
            if ended.is_ok() {
                left?;
            }
        }
        if ended.is_ok() && !self.args.quiet {
            let committed = match (&self.reader, self.committed.len()) {
                (Reader::Alone, _) => String::new(),
                (_, 0) => ", nothing to commit".to_owned(),
                (_, partitions) => {
                    let partitions = count(partitions as u64, "partition", "partitions");
                    format!(", offsets of {partitions} committed")
                }
            };
            let records = count(self.printed, "record", "records");
            let partitions = count(self.touched.len() as u64, "partition", "partitions");
            eprintln!("consumed {records} from {partitions}{committed}");
        }
        ended
    }
}

/// The partitions that the command line names, and whether it is all of its topics'.
async fn select(
    cluster: &Cluster,
    args: &ConsumeArgs,
) -> Result<(Vec<PartitionKey>, bool), CliError> {
    let mut wanted = merged(&args.topics);
    if !args.partition.is_empty() {
        for partitions in wanted.values_mut() {
            partitions.get_or_insert_with(|| args.partition.clone());
        }
    }
    let keys = partitions(cluster, &wanted).await?;
    Ok((keys, wanted.values().all(Option::is_none)))
}

/// Time between two commits.
const COMMIT_PERIOD: Duration = Duration::from_secs(5);
const OUTPUT_BYTES: usize = 64 << 10;
