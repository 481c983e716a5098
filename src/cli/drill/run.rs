//! The rounds of a drill: load, cut, start, compare.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use super::ledger::PartitionLedger;
use super::ledger_file::LedgerWriter;
use super::ledgers::{self, Ledgers};
use super::own_broker::{Launch, OwnBroker};
use super::report::{Report, Round};
use super::workload::{self, LoadPlan, Producer, Running, TopicPlan};
use super::{BlockStack, BlockStackError};
use crate::cli::CliError;
use crate::client::{ClientError, Cluster, ConnectionOptions, PartitionKey};
use crate::runtime::sim::SimRng;
use crate::runtime::Rt;
use crate::storage::inspect;

/// What is to be done.
pub(super) struct Plan {
    pub seed: u64,
    pub rounds: u32,
    /// The longest load of a round.
    pub duration: Duration,
    pub clients: u32,
    pub settings: Vec<String>,
    pub is_self_test: bool,
}

/// A drill that goes on. What it has set up is taken down in the order of the fields.
struct Drill<'a> {
    rt: &'a Rt,
    plan: &'a Plan,
    broker: Option<OwnBroker>,
    stack: Option<BlockStack>,
    folder: &'a Path,
    launch: Launch,
    rng: SimRng,
    ledgers: Rc<RefCell<Ledgers>>,
    keys: Vec<PartitionKey>,
    producers: Vec<Producer>,
    report: Report,
}

/// Runs all rounds, or up to the first with a loss.
pub(super) async fn run(
    rt: &Rt,
    plan: &Plan,
    stack: Option<BlockStack>,
    folder: &Path,
) -> Result<Report, CliError> {
    let below = stack.as_ref().map_or(folder, BlockStack::mount_point);
    let ledger = folder.join("ledger.log");
    let file = LedgerWriter::create(&ledger, false).map_err(|error| {
        CliError::Found(format!(
            "the ledger {} cannot be made: {error}",
            ledger.display()
        ))
    })?;
    let mut settings: Vec<String> = SETTINGS.iter().map(|&set| set.to_owned()).collect();
    settings.extend(plan.settings.iter().cloned());
    if plan.is_self_test {
        settings.push("flush.on.ack=none".to_owned());
    }
    let clients = u64::from(plan.clients);
    let mut drill = Drill {
        rt,
        plan,
        broker: None,
        launch: Launch {
            data_dir: below.join("data"),
            log: folder.join("broker.log"),
            settings,
        },
        folder,
        rng: SimRng::new(plan.seed),
        ledgers: Rc::new(RefCell::new(Ledgers::new(file))),
        keys: Vec::new(),
        producers: (0..clients).map(|n| Producer::new(n, plan.seed)).collect(),
        report: Report {
            seed: plan.seed,
            is_block_cut: stack.is_some(),
            ..Default::default()
        },
        stack,
    };
    drill.prepare().await?;
    for number in 1..=plan.rounds {
        let round = drill.round(number).await?;
        eprintln!("{}", round.line());
        drill.report.rounds.push(round);
        if drill.report.is_lost() {
            drill.rescue();
            break;
        }
    }
    Ok(drill.report.clone())
}

impl Drill<'_> {
    /// The first start, and the topics.
    async fn prepare(&mut self) -> Result<(), CliError> {
        let cluster = self.start().await.map_err(CliError::Found)?;
        // What is written survives a SIGKILL, flushed or not; and a self-test judges as if everything were flushed.
        let all_promised = self.plan.is_self_test || self.stack.is_none();
        let plan = TopicPlan {
            prefix: "drill".to_owned(),
            all_promised,
            // What a user sets for the broker is drilled.
            sets_flush: false,
        };
        let (topics, refused) = workload::create_topics(&cluster, &plan).await?;
        self.report.left_out = refused;
        let mut ledgers = self.ledgers.borrow_mut();
        for topic in topics {
            for partition in 0..topic.partitions {
                let ledger = PartitionLedger::new(topic.policy, topic.promised);
                let key = (topic.name.clone(), partition);
                ledgers.partitions.insert(key, ledger);
            }
        }
        self.keys = ledgers.partitions.keys().cloned().collect();
        Ok(())
    }

    /// Starts the broker and connects.
    async fn start(&mut self) -> Result<Cluster, String> {
        let broker = self.launch.start(self.rt).await?;
        let address = broker.address.clone();
        self.broker = Some(broker);
        self.connect(&address)
            .await
            .map_err(|error| error.to_string())
    }

    async fn connect(&self, address: &str) -> Result<Cluster, ClientError> {
        let options = ConnectionOptions {
            client_id: "highwater-drill".to_owned(),
            ..Default::default()
        };
        let cluster = Cluster::connect(self.rt, address, options).await?;
        cluster.metadata(None, false).await?;
        Ok(cluster)
    }

    async fn round(&mut self, number: u32) -> Result<Round, CliError> {
        let mut round = Round {
            number,
            ..Default::default()
        };
        let address = match &self.broker {
            Some(broker) => broker.address.clone(),
            None => return Err(CliError::Found("the drill's broker is gone".to_owned())),
        };
        let cluster = self.connect(&address).await?;
        let round_ms = self.plan.duration.as_millis() as f64;
        let share = f64::from(self.plan.rounds) * round_ms;
        let load_plan = LoadPlan {
            pace: (BYTES_MAX / share, RECORDS_MAX / share),
            has_calm: self.rng.one_in(2),
            stops_together: false,
        };
        let producers = std::mem::take(&mut self.producers);
        let acknowledged_before = self.ledgers.borrow().acknowledged_records;
        let running = Running::start(&cluster, &self.ledgers, producers, load_plan).await?;
        let longest = self.plan.duration.as_millis() as u64;
        round.load_ms = self.rng.within(longest / 4..longest);
        self.rt.sleep(Duration::from_millis(round.load_ms)).await;

        let canary = self.cut(number, &mut round)?;
        let (producers, ended) = running.end().await;
        self.producers = producers;
        drop(cluster);
        if self.ledgers.borrow().acknowledged_records == acknowledged_before {
            let why = ended.map_or("nobody said why".to_owned(), |error| error.to_string());
            return Err(CliError::Found(format!(
                "nothing was acknowledged before the cut: {why}; the broker's last words: {}",
                super::own_broker::last_words(&self.launch.log)
            )));
        }
        let file = self.ledgers.borrow().file.clone();
        file.secure(self.rt).await?;
        if let Some(stack) = &mut self.stack {
            stack.restore().map_err(of_stack)?;
        }
        round.canary_lost = canary.map(|canary| canary.is_lost());
        self.compare(&mut round).await?;
        let ledgers = self.ledgers.borrow();
        (round.sent, round.acknowledged) = (ledgers.sent_records, ledgers.acknowledged_records);
        let seen = ledgers.partitions.values().map(PartitionLedger::seen_count);
        round.seen = seen.sum();
        Ok(round)
    }

    /// Cuts the broker off: at once, whatever it does. Of what was not flushed, the disk keeps a part: nothing, all, or
    /// any blocks between.
    fn cut(&mut self, number: u32, round: &mut Round) -> Result<Option<Canary>, CliError> {
        // How many blocks there are is not the seed's to say, so that these draws are apart.
        let blocks = SimRng::new(self.rng.next_u64());
        let kept_of_8 = self.rng.below(9);
        let canary = match &mut self.stack {
            Some(stack) => {
                let canary = Canary::write(stack.mount_point(), number, self.rng.next_u64());
                let canary = canary.map_err(|error| {
                    CliError::Found(format!("the canary cannot be written: {error}"))
                })?;
                let cut = stack.cut_power_keeping(|| blocks.below(8) < kept_of_8);
                round.blocks = Some(cut.map_err(of_stack)?);
                Some(canary)
            }
            None => None,
        };
        if let Some(mut broker) = self.broker.take() {
            broker.kill().map_err(|error| {
                CliError::Found(format!("the broker cannot be killed: {error}"))
            })?;
        }
        Ok(canary)
    }

    /// Starts the broker again, and compares. What the broker does wrong is a loss of the round; an error is the drill's.
    async fn compare(&mut self, round: &mut Round) -> Result<(), CliError> {
        for refusal in std::mem::take(&mut self.ledgers.borrow_mut().refusals) {
            round.loss(format!("an idempotent producer was refused: {refusal}"));
        }
        let cluster = match self.start().await {
            Ok(cluster) => cluster,
            Err(why) => {
                round.loss(why);
                return Ok(());
            }
        };
        let read = match workload::read_back(&cluster, &self.keys).await {
            Ok(read) => read,
            Err(why) => {
                round.loss(format!("it cannot be read back: {why}"));
                return Ok(());
            }
        };
        drop(cluster);
        ledgers::compare(&mut self.ledgers.borrow_mut().partitions, &read, round);
        if round.loss_count > 0 {
            return Ok(());
        }
        if let Some(mut broker) = self.broker.take() {
            if let Err(why) = broker.stop(self.rt).await {
                round.loss(why);
                return Ok(());
            }
        }
        match inspect::verify_dir(self.rt, &self.launch.data_dir).await {
            Ok(found) => {
                for problem in found.problems {
                    round.loss(format!(
                        "log verify: {}: {}",
                        problem.file.display(),
                        problem.detail
                    ));
                }
            }
            Err(error) => round.loss(format!("log verify: {error}")),
        }
        if let Err(why) = self.start().await {
            round.loss(format!("after a clean stop: {why}"));
        }
        Ok(())
    }

    /// Takes the data off the device of the drill, which goes with it.
    fn rescue(&mut self) {
        self.broker = None;
        if self.stack.is_none() || self.plan.is_self_test {
            return;
        }
        let to: PathBuf = self.folder.join("data");
        let copied = Command::new("cp")
            .arg("-a")
            .arg(&self.launch.data_dir)
            .arg(&to)
            .status();
        match copied {
            Ok(status) if status.success() => {}
            Ok(status) => eprintln!(
                "highwater: the data could not be copied to {}: {status}",
                to.display()
            ),
            Err(error) => eprintln!("highwater: cp cannot be run: {error}"),
        }
    }
}

/// A file that is written and not flushed just before a cut. A real cut takes it.
struct Canary {
    path: PathBuf,
    content: Vec<u8>,
}

impl Canary {
    fn write(dir: &Path, number: u32, chance: u64) -> std::io::Result<Canary> {
        let path = dir.join(format!("canary-{number}"));
        let content = chance.to_be_bytes().repeat(CANARY_BYTES / 8);
        File::create_new(&path)?.write_all(&content)?;
        Ok(Canary { path, content })
    }

    fn is_lost(&self) -> bool {
        // One that is there as a name only, without its content, is lost as well.
        fs::read(&self.path).ok().as_ref() != Some(&self.content)
    }
}

fn of_stack(error: BlockStackError) -> CliError {
    CliError::Found(format!("the block device of the drill: {error}"))
}

/// The user's come after these.
const SETTINGS: &[&str] = &[
    "auto.create.topics.enable=false",
    "log.segment.bytes=4194304",
    "log.retention.check.interval.ms=500",
    "log.initial.task.delay.ms=500",
];
/// All values that are sent, over all rounds.
pub(super) const BYTES_MAX: f64 = (256 << 20) as f64;
/// All records; about 200 bytes of memory each.
pub(super) const RECORDS_MAX: f64 = 600_000.0;
/// The block device; it takes no more of the disk than is written to it.
pub(super) const DEVICE_BYTES: u64 = 768 << 20;
pub(super) const SPACE_BYTES_MIN: u64 = 1 << 30;
const CANARY_BYTES: usize = 4096;
