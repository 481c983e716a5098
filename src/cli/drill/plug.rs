//! A drill of a broker on another machine, whose plug the user pulls.
//!
//! ```text
//! this machine: load, ledger file  ->  the broker, on the machine under test   ... its plug is pulled, it starts again
//! this machine: --check, ledger file ->  the broker: everything is read back and judged
//! ```
//! The topics are the drill's own, by a name that nobody else has. Acknowledgements of all but one wait for the flush;
//! those of the last one do not, and what is lost of it shows that the cut was real.
//!
//! What it is not: a witness. Whether a plug was pulled, or a switch reset, the user knows alone.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use futures_lite::FutureExt;

use super::ledger::PartitionLedger;
use super::ledger_file::{Header, LedgerRead, LedgerTopic, LedgerWriter};
use super::ledgers::{self, Ledgers};
use super::plug_report::{Checked, Ended, Loaded};
use super::report::Round;
use super::run::{BYTES_MAX, RECORDS_MAX};
use super::workload::{self, LoadPlan, Producer, Running, TopicPlan};
use crate::cli::render::{count, print, print_json, shown};
use crate::cli::CliError;
use crate::client::{ClientError, Cluster, ConnectionOptions};
use crate::protocol::messages::MetadataResponse;
use crate::protocol::{ErrorCode, Str};
use crate::runtime::native::{self, Signals};
use crate::runtime::Rt;

/// What is to be done.
#[derive(Debug, Clone)]
pub(super) struct PlugPlan {
    pub broker: String,
    pub ledger: PathBuf,
    /// The longest load.
    pub duration: Duration,
    pub clients: u32,
    pub seed: Option<u64>,
    pub as_json: bool,
}

/// Runs the load until the connection is lost, and says what is next.
pub(super) fn load(plan: PlugPlan) -> Result<(), CliError> {
    if plan.ledger.exists() {
        return Err(CliError::Usage(format!(
            "{} is there already: compare by it with --check, or name another file for a new drill",
            plan.ledger.display()
        )));
    }
    let signals = native::signals()?;
    let as_json = plan.as_json;
    let loaded = native::run(move |rt| async move {
        let prepared = interruptible(&signals, Load::prepare(&rt, &plan)).await?;
        prepared.run(&signals).await
    })??;
    match as_json {
        true => print_json(&loaded.json())?,
        false => print(&loaded.text())?,
    }
    match loaded.ended {
        Ended::Refused(why) => Err(CliError::Found(format!("the broker refused: {why}"))),
        _ => Ok(()),
    }
}

/// Compares what is there with the ledger.
pub(super) fn check(plan: PlugPlan) -> Result<(), CliError> {
    let path = plan.ledger.clone();
    let unreadable = |error| CliError::Read {
        path: plan.ledger.clone(),
        error,
    };
    let file = File::open(&path).map_err(unreadable)?;
    let ledger = LedgerRead::read(BufReader::new(file))
        .map_err(|error| CliError::Found(format!("the ledger {}: {error}", path.display())))?;
    if ledger.promised_records + ledger.unpromised_records == 0 {
        return Err(CliError::Found(format!(
            "the ledger {} tells of nothing that was acknowledged: there is nothing to compare",
            path.display()
        )));
    }
    let signals = native::signals()?;
    let as_json = plan.as_json;
    let checked = native::run(move |rt| async move {
        interruptible(&signals, compared(&rt, &plan, ledger)).await
    })??;
    match as_json {
        true => print_json(&checked.json())?,
        false => print(&checked.text())?,
    }
    match checked.is_lost() {
        false => Ok(()),
        true => Err(CliError::Found(
            "the drill found losses; keep the ledger and the broker's data".to_owned(),
        )),
    }
}

async fn interruptible<T>(
    signals: &Signals,
    work: impl std::future::Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let interrupted = async {
        signals.recv().await;
        Err(CliError::Found("interrupted".to_owned()))
    };
    work.or(interrupted).await
}

/// A load that is about to begin.
struct Load {
    rt: Rt,
    plan: PlugPlan,
    cluster: Cluster,
    ledgers: Rc<RefCell<Ledgers>>,
    topics: Vec<String>,
    left_out: Vec<String>,
    seed: u64,
}

impl Load {
    /// Makes the topics and the ledger.
    async fn prepare(rt: &Rt, plan: &PlugPlan) -> Result<Load, CliError> {
        let (cluster, id) = connect(rt, &plan.broker).await.map_err(|error| {
            let advice = "start a broker there, or name another with --broker HOST:PORT";
            CliError::Found(format!("{error}; {advice}"))
        })?;
        let seed = plan.seed.unwrap_or_else(|| rt.random_u64() >> 32);
        let header = Header {
            cluster: id,
            prefix: format!("drill-{:08x}", rt.random_u64() >> 32),
            seed,
        };
        let cannot = |error: std::io::Error| {
            CliError::Found(format!(
                "the ledger {} cannot be made: {error}",
                plan.ledger.display()
            ))
        };
        let writer = LedgerWriter::create(&plan.ledger, true).map_err(cannot)?;
        let made = Load::begin(rt, plan, cluster, writer, header).await;
        if made.is_err() {
            // Nothing was sent of which it would tell.
            fs::remove_file(&plan.ledger).map_err(cannot)?;
        }
        made
    }

    async fn begin(
        rt: &Rt,
        plan: &PlugPlan,
        cluster: Cluster,
        writer: LedgerWriter,
        header: Header,
    ) -> Result<Load, CliError> {
        writer.line(&header.line());
        let topic_plan = TopicPlan {
            prefix: header.prefix.clone(),
            all_promised: false,
            sets_flush: true,
        };
        let (topics, left_out) = workload::create_topics(&cluster, &topic_plan)
            .await
            .map_err(told)?;
        let names: Vec<Str> = topics.iter().map(|topic| topic.name.clone()).collect();
        cluster.metadata(Some(&names), false).await.map_err(told)?;
        let mut ledgers = Ledgers::new(writer);
        for topic in topics {
            let topic = LedgerTopic {
                id: cluster.topic_id(&topic.name).to_string(),
                name: topic.name,
                partitions: topic.partitions,
                policy: topic.policy,
                promised: topic.promised,
            };
            ledgers.file.line(&topic.line());
            for partition in 0..topic.partitions {
                let ledger = PartitionLedger::new(topic.policy, topic.promised);
                let key = (topic.name.clone(), partition);
                ledgers.partitions.insert(key, ledger);
            }
        }
        ledgers.file.secure(rt).await?;
        sync_name(rt, &plan.ledger).await?;
        Ok(Load {
            rt: rt.clone(),
            plan: plan.clone(),
            cluster,
            ledgers: Rc::new(RefCell::new(ledgers)),
            topics: names.iter().map(ToString::to_string).collect(),
            left_out,
            seed: header.seed,
        })
    }

    async fn run(self, signals: &Signals) -> Result<Loaded, CliError> {
        let duration_ms = self.plan.duration.as_millis() as f64;
        let load_plan = LoadPlan {
            pace: (BYTES_MAX / duration_ms, RECORDS_MAX / duration_ms),
            has_calm: true,
            stops_together: true,
        };
        let producers = (0..u64::from(self.plan.clients))
            .map(|number| Producer::new(number, self.seed))
            .collect();
        let begun = self.rt.now();
        eprintln!(
            "load on {} for at most {} s; pull its plug when you like; the ledger is {}",
            self.plan.broker,
            self.plan.duration.as_secs(),
            self.plan.ledger.display()
        );
        let running = Running::start(&self.cluster, &self.ledgers, producers, load_plan)
            .await
            .map_err(told_cli)?;
        let watched = self.watch(&running, signals).await;
        let refusal = running.load.last_refusal.take();
        let (_, why) = running.end().await;
        let load_s = self.rt.now().since(begun).as_secs();
        let ended = match (why, watched) {
            (Some(why), _) if why.code().is_none() && why.is_retriable() => {
                Ended::Lost(why.to_string())
            }
            (Some(why), _) => Ended::Refused(why.to_string()),
            (None, Watched::Silent) => Ended::Refused(format!(
                "nothing was acknowledged for {} s; its last word: {}",
                SILENCE_MAX.as_secs(),
                refusal.unwrap_or("none".to_owned())
            )),
            (None, Watched::Interrupted) => Ended::Interrupted,
            (None, Watched::Over | Watched::Stopped) => Ended::Complete,
        };
        let file = self.ledgers.borrow().file.clone();
        let last: String = shown(&ended.sentence()).chars().take(500).collect();
        file.line(&format!("end {last}"));
        let secured = file.secure(&self.rt).await;
        let ledgers = self.ledgers.borrow();
        if ledgers.acknowledged_records == 0 {
            // It tells of nothing.
            let removed = fs::remove_file(&self.plan.ledger);
            secured?;
            removed?;
            return Err(CliError::Found(format!(
                "nothing was acknowledged, and no ledger is left: {}",
                ended.sentence()
            )));
        }
        secured?;
        Ok(Loaded {
            ended,
            load_s,
            broker: self.plan.broker.clone(),
            ledger: self.plan.ledger.display().to_string(),
            topics: self.topics.clone(),
            sent: ledgers.sent_records,
            acknowledged: ledgers.acknowledged_records,
            unflushed: ledgers.unpromised_records,
            left_out: self.left_out.clone(),
        })
    }

    /// Waits for an end, and tells how far it is.
    async fn watch(&self, running: &Running, signals: &Signals) -> Watched {
        let begun = self.rt.now();
        let (mut told, mut progressed, mut known) = (begun, begun, 0);
        while !running.load.stop.get() {
            let slept = async {
                self.rt.sleep(WATCH_PAUSE).await;
                false
            };
            let interrupted = async {
                signals.recv().await;
                true
            };
            if slept.or(interrupted).await {
                return Watched::Interrupted;
            }
            let now = self.rt.now();
            let (acknowledged, unflushed) = {
                let ledgers = self.ledgers.borrow();
                (ledgers.acknowledged_records, ledgers.unpromised_records)
            };
            if acknowledged > known {
                (known, progressed) = (acknowledged, now);
            }
            if now.since(begun) >= self.plan.duration {
                return Watched::Over;
            }
            if now.since(progressed) >= SILENCE_MAX {
                return Watched::Silent;
            }
            if now.since(told) >= TELL_PAUSE {
                told = now;
                eprintln!(
                    "after {} s: {} acknowledged, {unflushed} of these without a flush",
                    now.since(begun).as_secs(),
                    count(acknowledged, "record", "records")
                );
            }
        }
        Watched::Stopped
    }
}

/// Why a load is no longer waited for.
enum Watched {
    Interrupted,
    /// The time is over.
    Over,
    /// The connection stands, and nothing is acknowledged.
    Silent,
    /// A producer has ended.
    Stopped,
}

/// Reads everything back and judges it.
async fn compared(rt: &Rt, plan: &PlugPlan, mut ledger: LedgerRead) -> Result<Checked, CliError> {
    let (cluster, id) = connect(rt, &plan.broker).await.map_err(|error| {
        CliError::Found(format!(
            "{error}; nothing is compared: check again when the broker runs"
        ))
    })?;
    if id != ledger.header.cluster {
        return Err(CliError::Found(format!(
            "the ledger is of cluster {}, and {} is of cluster {id}: nothing is compared; name the broker that was drilled",
            ledger.header.cluster, plan.broker
        )));
    }
    let names: Vec<Str> = ledger
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    let metadata = cluster.metadata(Some(&names), false).await.map_err(told)?;
    let mut found = Round::default();
    for topic in &ledger.topics {
        if let Some(why) = gone(topic, &metadata, &cluster)? {
            let (mut acknowledged, mut unflushed) = (0, 0);
            ledger.partitions.retain(|(name, _), partition| {
                let is_it = *name == topic.name;
                match (is_it, partition.is_promised()) {
                    (true, true) => acknowledged += partition.acknowledged_count(),
                    (true, false) => unflushed += partition.acknowledged_count(),
                    _ => {}
                }
                !is_it
            });
            found.unflushed_lost += unflushed;
            found.loss(format!(
                "topic {} {why}: {} acknowledged and gone",
                topic.name,
                count(acknowledged + unflushed, "record", "records")
            ));
        }
    }
    let keys: Vec<_> = ledger.partitions.keys().cloned().collect();
    let read = workload::read_back(&cluster, &keys)
        .await
        .map_err(|error| match told_cli(error) {
            CliError::Found(why) => CliError::Found(format!("nothing is compared: {why}")),
            error => error,
        })?;
    ledgers::compare(&mut ledger.partitions, &read, &mut found);
    Ok(Checked {
        found,
        unflushed: ledger.unpromised_records,
        torn_bytes: ledger.torn_bytes,
        load_end: ledger.end,
        cluster: id,
        topics: names.iter().map(ToString::to_string).collect(),
        seed: ledger.header.seed,
    })
}

/// Why a topic is not there as the ledger knows it.
fn gone(
    topic: &LedgerTopic,
    metadata: &MetadataResponse,
    cluster: &Cluster,
) -> Result<Option<&'static str>, CliError> {
    let mut answers = metadata.topics.iter();
    let answer = answers.find(|answer| answer.name.as_ref() == Some(&topic.name));
    let code = answer.map_or(ErrorCode::UnknownTopicOrPartition.code(), |answer| {
        answer.error_code
    });
    if code == ErrorCode::UnknownTopicOrPartition.code() {
        return Ok(Some(
            "is not there (unless somebody deleted it, it was lost)",
        ));
    }
    ClientError::check(code, None, || format!("look up topic {}", topic.name)).map_err(told)?;
    let is_other = cluster.topic_id(&topic.name).to_string() != topic.id;
    Ok(is_other.then_some("is another one of that name"))
}

/// Connects; the cluster, and its id.
async fn connect(rt: &Rt, broker: &str) -> Result<(Cluster, String), ClientError> {
    let options = ConnectionOptions {
        client_id: "highwater-drill".to_owned(),
        connect_timeout: ANSWER_MAX,
        request_timeout: ANSWER_MAX,
        ..Default::default()
    };
    let cluster = Cluster::connect(rt, broker, options).await?;
    let metadata = cluster.metadata(Some(&[]), false).await?;
    let id = shown(metadata.cluster_id.as_deref().unwrap_or_default());
    Ok((cluster, id.replace(char::is_whitespace, "_")))
}

/// Makes sure that the ledger's name outlives a crash of this machine.
async fn sync_name(rt: &Rt, ledger: &Path) -> Result<(), CliError> {
    let dir = match ledger.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    };
    let synced = rt.spawn_blocking(move || File::open(dir)?.sync_all()).await;
    let failed = match synced {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(panicked) => panicked.to_string(),
    };
    Err(CliError::Found(format!(
        "the directory of the ledger {} cannot be flushed: {failed}",
        ledger.display()
    )))
}

/// The advice of other commands does not fit here.
fn told(error: ClientError) -> CliError {
    CliError::Found(error.to_string())
}

fn told_cli(error: CliError) -> CliError {
    match error {
        CliError::Client { error } => told(error),
        error => error,
    }
}

/// A machine without power does not answer, and says so to nobody.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A broker that answers, and acknowledges nothing for so long, does not drill.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const WATCH_PAUSE: Duration = Duration::from_millis(100);
const TELL_PAUSE: Duration = Duration::from_secs(5);
