//! A random life of one partition under power cuts, kills and disk faults, against a model.
//!
//! The model stands outside the machine. It knows every batch that was handed to the
//! log, what was acknowledged by a completed flush, what a consumer has read, and what may
//! have been cut. After each crash the log must hold exactly a prefix of the batches, with
//! everything acknowledged in it, but for what compaction may remove (`compaction.rs`). Any breach is an `Err` with a sentence, so that a test can
//! ask whether a breach is noticed where one is provoked.
//!
//! A power cut comes at a moment of the clock, or right after the n-th operation of the disk.

mod compaction;
mod faulty;
mod model;
mod opening;
mod probe;
mod reading;
mod steps;
mod tally;
mod tampered;

pub(in crate::storage) use faulty::run as run_faulty;
pub(in crate::storage) use tally::Tally;
pub(in crate::storage) use tampered::{run as run_tampered, Recipe, Tampered};

use super::power_cut::env_number;
use crate::runtime::sim::{PowerCut, SimDisk, SimNode, World};
use crate::runtime::{Queue, Rt, SyncSite};
use crate::storage::{DataDir, Log, LogConfig, ReadCheck, ReadError, ReadSlices};
use futures_lite::future::zip;
use model::Model;
use std::cell::RefCell;
use std::fmt::Display;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

struct Scenario {
    world: World,
    node: SimNode,
    model: Rc<RefCell<Model>>,
    config: LogConfig,
    /// What its readers demand.
    check: ReadCheck,
}

/// One run of the machine, from a start to whatever ends it. Cheap to clone.
#[derive(Clone)]
struct Life {
    rt: Rt,
    disk: SimDisk,
    model: Rc<RefCell<Model>>,
    config: LogConfig,
    check: ReadCheck,
}

/// Why a life ended before its time.
#[derive(Debug)]
enum Ended {
    /// A promise was broken.
    Breach(String),
    /// The log said that something failed.
    Failed(String),
}

type Checked<T> = Result<T, Ended>;

impl From<String> for Ended {
    fn from(breach: String) -> Ended {
        Ended::Breach(breach)
    }
}

impl From<&str> for Ended {
    fn from(breach: &str) -> Ended {
        Ended::Breach(breach.to_owned())
    }
}

impl Ended {
    /// What it is where nothing was made to fail.
    fn breach(self) -> String {
        match self {
            Ended::Breach(breach) => breach,
            Ended::Failed(error) => format!("without a fault: {error}"),
        }
    }
}

/// What the log says of a failure.
fn failed(error: impl Display) -> Ended {
    Ended::Failed(error.to_string())
}

/// Runs one seed to its end: what happened, and the promise that was broken, if one was.
pub(in crate::storage) fn run(seed: u64, disabled: Option<SyncSite>) -> (Tally, Option<String>) {
    let mut scenario = Scenario::new(seed, seed % 4 == 3);
    if let Some(site) = disabled {
        scenario.node.disk().disable_sync(site);
        scenario.model.borrow_mut().probes = false;
    }
    let result = scenario.run();
    let mut tally = scenario.model.borrow().tally;
    tally.site_syncs = disabled.map_or(0, |site| scenario.node.disk().sync_count(site));
    (tally, result.err())
}

impl Scenario {
    fn new(seed: u64, compacted: bool) -> Scenario {
        let world = World::new(seed);
        let node = world.node("a");
        node.disk()
            .set_verbose(env_number("HIGHWATER_SIM_VERBOSE").is_some());
        let segment_bytes_more = [6_000, 150_000][world.random_below(2) as usize];
        let segment_bytes = 8_000 + world.random_below(segment_bytes_more) as u32;
        let index_interval_bytes = [0, 500, 4_096][world.random_below(3) as usize];
        let check = [ReadCheck::Crcs, ReadCheck::Headers][world.random_below(2) as usize];
        let mut config = LogConfig {
            segment_bytes,
            index_interval_bytes,
            recycle_segments: world.random_below(2) == 0,
            file_delete_delay_ms: [0, 60_000][world.random_below(2) as usize],
            ..LogConfig::default()
        };
        let mut model = Model::new();
        if compacted {
            config.compacted = true;
            config.segment_bytes = 1_200 + world.random_below(2_500) as u32;
            model.markers_stay = world.random_below(3) == 0;
        }
        Scenario {
            world,
            node,
            model: Rc::new(RefCell::new(model)),
            config,
            check,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        // Compaction needs some past to work on.
        let more = if self.config.compacted { 6 } else { 0 };
        let lives = 2 + more + self.world.random_below(5);
        for life in 0..lives {
            let living = self.start();
            if let Some(result) = self.run_for_a_while(living.live(false)) {
                result.map_err(|ended| format!("life {life}: {}", ended.breach()))?;
            }
            self.end_life(false);
            self.check_background()?;
        }
        let last = self.start();
        let ended = self.world.block_on(&last.rt, last.live(true));
        ended.map_err(Ended::breach)?;
        self.end_life(false);
        let last = self.start();
        let check = self.world.block_on(&last.rt, last.open_and_check());
        check.map(drop).map_err(Ended::breach)
    }

    fn start(&self) -> Life {
        let mut model = self.model.borrow_mut();
        model.tally.lives += 1;
        model.opened = false;
        Life {
            rt: match self.node.is_up() {
                true => self.node.rt(),
                false => self.node.restart(),
            },
            disk: self.node.disk(),
            model: self.model.clone(),
            config: self.config,
            check: self.check,
        }
    }

    /// Runs a life until the power is cut right after some operation, or for some time, after
    /// which the caller ends it.
    fn run_for_a_while<T>(&self, living: impl Future<Output = T>) -> Option<T> {
        let rt = self.node.rt();
        if self.world.random_below(3) == 0 {
            let most = [20, 150, 800][self.world.random_below(3) as usize];
            let ops = 1 + self.world.random_below(most);
            self.node.disk().cut_power_after_ops(ops, PowerCut::Mixed);
            return self.world.block_on_until_crash(&rt, living);
        }
        let life_ms = match self.world.random_below(3) {
            0 => 1 + self.world.random_below(30),
            1 => 1 + self.world.random_below(300),
            _ => 1 + self.world.random_below(2_000),
        };
        let step_micros = if self.config.compacted { 800 } else { 200 };
        let life_time = Duration::from_micros(life_ms * step_micros);
        self.world.block_on_for(&rt, life_time, living)
    }

    /// A power cut (if it did not come already), or a kill.
    fn end_life(&self, power_cut: bool) {
        let kill = self.node.is_up() && !power_cut && self.world.random_below(2) == 0;
        let mut model = self.model.borrow_mut();
        model.tally.cuts_at_operations += u64::from(!self.node.is_up());
        model.tally.power_cuts += u64::from(!kill);
        model.tally.kills += u64::from(kill);
        if !model.opened {
            model.tally.cut_while_opening += 1;
        }
        model.flushes = 0;
        model.rounds.running = None;
        model.tally.removals_cut_short += u64::from(std::mem::take(&mut model.removing));
        model.floor = match (kill, model.opened) {
            (true, true) => model.written,
            (true, false) => model.floor,
            (false, _) => model.acked,
        };
        drop(model);
        match kill {
            true => self.node.kill(),
            false => self.node.crash(),
        }
    }

    fn check_background(&self) -> Result<(), String> {
        let ended = self.model.borrow_mut().background.take();
        ended.map_or(Ok(()), |ended| Err(ended.breach()))
    }
}

impl Life {
    /// Opens the partition, checks it, and works on it until the life ends; or, in the
    /// last life, for a while and then to a clean stop.
    async fn live(&self, to_clean_stop: bool) -> Checked<()> {
        let (data_dir, mut log) = self.open_and_check().await?;
        let data_dir = Rc::new(data_dir);
        if !to_clean_stop && self.draw(3) == 0 {
            // The life ends right after the load.
            return Ok(());
        }
        let mut steps = 0;
        loop {
            steps += 1;
            if (to_clean_stop && steps > 30) || self.draw(200) == 0 {
                return self.stop_cleanly(&data_dir, &log).await;
            }
            if self.step(&data_dir, &mut log).await? == Step::EndsLife {
                return Ok(());
            }
            if let Some(ended) = self.model.borrow_mut().background.take() {
                return Err(ended);
            }
        }
    }

    /// A read as this life's readers have it.
    async fn read(
        &self,
        log: &Log,
        from: i64,
        bound: i64,
        bytes_max: usize,
    ) -> Result<ReadSlices, ReadError> {
        log.read_checked(from, bound, bytes_max, true, self.check)
            .await
    }

    async fn step(&self, data_dir: &Rc<DataDir>, log: &mut Log) -> Checked<Step> {
        if self.config.compacted {
            if let Some(step) = self.compaction_step(data_dir, log).await? {
                self.check_durable(log)?;
                return Ok(step);
            }
        }
        match self.draw(22) {
            0..=7 => self.append(log).await?,
            8..=9 => self.flush(log).await?,
            10..=12 => {
                self.model.borrow_mut().flushes += 1;
                let (life, log) = (self.clone(), log.clone());
                self.spawn(async move {
                    let flushed = life.flush(&log).await;
                    life.model.borrow_mut().flushes -= 1;
                    flushed
                });
            }
            13 => self.checkpoint(data_dir, log).await?,
            14 => {
                let both = zip(self.append(log), self.checkpoint(data_dir, log));
                let (appended, checkpointed) = both.await;
                appended.and(checkpointed)?;
            }
            15 if self.draw(4) == 0 => self.truncate(data_dir, log).await?,
            15 if self.draw(4) == 0 => {
                // The life ends during the truncation, or right after it.
                let (life, data_dir, log) = (self.clone(), data_dir.clone(), log.clone());
                self.spawn(async move { life.truncate(&data_dir, &log).await });
                let time = Duration::from_micros(self.draw(60_000));
                self.rt.sleep(time).await;
                return Ok(Step::EndsLife);
            }
            16 if self.draw(3) == 0 => self.move_start(data_dir, log).await?,
            16 if self.draw(6) == 0 => {
                // The life ends while the head is removed, or right after.
                let (life, data_dir, log) = (self.clone(), data_dir.clone(), log.clone());
                self.spawn(async move { life.move_start(&data_dir, &log).await });
                let time = Duration::from_micros(self.draw(20_000));
                self.rt.sleep(time).await;
                return Ok(Step::EndsLife);
            }
            16 => self.model.borrow_mut().epoch += 1,
            17 => self.check_content(log).await?,
            18 => self.consume(log).await?,
            19 if self.draw(3) == 0 => self.expire_producers(log)?,
            19 if self.draw(4) == 0 => self.delete_and_create(data_dir, log).await?,
            19 if self.draw(4) == 0 => {
                // The life ends while the partition is deleted and made again, or right after.
                let (life, data_dir, mut log) = (self.clone(), data_dir.clone(), log.clone());
                self.spawn(async move { life.delete_and_create(&data_dir, &mut log).await });
                let time = Duration::from_micros(self.draw(20_000));
                self.rt.sleep(time).await;
                return Ok(Step::EndsLife);
            }
            _ => {
                let time = Duration::from_micros(self.draw(300));
                self.rt.sleep(time).await;
            }
        }
        self.check_durable(log)?;
        Ok(Step::GoesOn)
    }

    /// Runs something beside the life; what ends it is looked at by the life.
    fn spawn(&self, work: impl Future<Output = Checked<()>> + 'static) {
        let model = self.model.clone();
        self.rt.spawn(Queue::Latency, async move {
            if let Err(ended) = work.await {
                model.borrow_mut().background.get_or_insert(ended);
            }
        });
    }

    fn draw(&self, bound: u64) -> u64 {
        self.rt.random_u64() % bound
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    GoesOn,
    EndsLife,
}
