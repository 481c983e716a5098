//! Lives on a disk that fails by seed: the log says that something failed, or it is right.
//!
//! After a failed flush nothing more is acknowledged from that log; after a full disk or a
//! short write the log is rebuilt in place, as the partition's owner does it, and has all that
//! was acknowledged; a bit that is wrong for once costs no flushed record.
//!
//! After a failed flush the power is cut, and the broker not merely killed: the machine has
//! forgotten what the flush covered, so what a new process reads is not what the disk has.

use super::model::Presence;
use super::{failed, Checked, Ended, Life, Scenario, Step, Tally};
use crate::runtime::sim::{FaultKind, FaultRates};
use crate::storage::{DataDir, Log};
use std::rc::Rc;

/// Runs one seed to its end: what happened, and the promise that was broken, if one was.
pub(in crate::storage) fn run(seed: u64) -> (Tally, Option<String>) {
    let mut scenario = Scenario::new(seed, false);
    scenario.model.borrow_mut().faulty = true;
    let result = scenario.run_faulty();
    let mut tally = scenario.model.borrow().tally;
    for (count, kind) in tally.faults.iter_mut().zip(FaultKind::ALL) {
        *count = scenario.node.disk().planned_faults(kind);
    }
    (tally, result.err())
}

/// What stops a broker for good, where the data directory is given up.
const ENDS_THE_DIRECTORY: [FaultKind; 3] = [
    FaultKind::WriteError,
    FaultKind::FlushError,
    FaultKind::DirSyncError,
];

impl Scenario {
    fn run_faulty(&mut self) -> Result<(), String> {
        for life in 0..2 + self.world.random_below(4) {
            let living = self.start();
            let given_up = living.given_up();
            let rates = self.rates();
            let told = format!("life {life} with {rates:?}");
            let ended = self.run_for_a_while(living.live_with(rates));
            self.node.disk().clear_faults();
            self.model.borrow_mut().rates = None;
            if let Some(Err(Ended::Breach(breach))) = ended {
                return Err(format!("{told}: {breach}"));
            }
            if let Some(Ended::Breach(breach)) = self.model.borrow_mut().background.take() {
                return Err(format!("{told}: {breach}"));
            }
            self.end_life(living.given_up() > given_up);
            if self.node.disk().planned_faults(FaultKind::LastingBitFlip) > 0 {
                return self.after_lasting_damage();
            }
        }
        let last = self.start();
        let ended = self.world.block_on(&last.rt, last.live(true));
        ended.map_err(Ended::breach)
    }

    /// One to three kinds for the next life.
    fn rates(&self) -> FaultRates {
        let mut rates = FaultRates::none().on_paths("/data/topic-0/0");
        for _ in 0..1 + self.world.random_below(3) {
            let at = self.world.random_below(FaultKind::ALL.len() as u64) as usize;
            let kind = FaultKind::ALL[at];
            let often = match kind {
                FaultKind::SlowFlush | FaultKind::ShortRead => 4,
                _ => 30,
            };
            rates = rates.with(kind, often);
            if kind == FaultKind::DirSyncError {
                rates = rates.on_paths("/data/topic-0");
            }
        }
        rates
    }

    /// The medium has changed: what was there may be gone, but nothing else is given back.
    fn after_lasting_damage(&self) -> Result<(), String> {
        let living = self.start();
        let opened = self.world.block_on(&living.rt, living.open_damaged());
        match opened {
            Err(Ended::Breach(breach)) => Err(format!("on a damaged medium: {breach}")),
            Ok(()) | Err(Ended::Failed(_)) => Ok(()),
        }
    }
}

impl Life {
    /// How many faults there were after which a broker gives its data directory up.
    fn given_up(&self) -> u64 {
        let count = |kind: FaultKind| self.disk.planned_faults(kind);
        ENDS_THE_DIRECTORY.into_iter().map(count).sum()
    }

    async fn live_with(&self, rates: FaultRates) -> Checked<()> {
        let given_up = self.given_up();
        let while_loading = self.draw(2) == 0;
        if while_loading {
            self.disk.faults_by_seed(rates.clone());
        }
        self.model.borrow_mut().rates = Some(self.while_working(rates));
        let opened = self.open_and_check().await;
        let (data_dir, mut log) = match opened {
            Err(Ended::Failed(error)) => {
                let mut model = self.model.borrow_mut();
                model.tally.loads_refused += 1;
                return Err(Ended::Failed(error));
            }
            opened => opened?,
        };
        let data_dir = Rc::new(data_dir);
        for _ in 0..60 {
            let ended = match self.step(&data_dir, &mut log).await {
                Ok(Step::EndsLife) => return Ok(()),
                Ok(Step::GoesOn) => self.model.borrow_mut().background.take(),
                Err(ended) => Some(ended),
            };
            match ended {
                None => {}
                Some(Ended::Breach(breach)) => return Err(breach.into()),
                Some(Ended::Failed(error)) => {
                    self.model.borrow_mut().tally.failures_met += 1;
                    if self.model.borrow().presence != Presence::Made {
                        // The old one was deleted, the new one is not there.
                        return Err(Ended::Failed(error));
                    }
                    self.after_failure(&log).await?;
                    if self.given_up() > given_up {
                        return Err(Ended::Failed(error));
                    }
                    log = self.rebuild(&data_dir, log).await?;
                }
            }
        }
        Ok(())
    }

    /// What is read without a look at its CRC may be wrong: there only the load meets wrong bits.
    fn while_working(&self, rates: FaultRates) -> FaultRates {
        match self.checks_crcs() {
            true => rates,
            false => rates
                .without(FaultKind::BitFlip)
                .without(FaultKind::LastingBitFlip),
        }
    }

    /// Something failed: what the log says it takes no more, it does not take; and what it still
    /// gives is right.
    async fn after_failure(&self, log: &Log) -> Checked<()> {
        let (flushed, end) = (log.flushed_offset(), log.end_offset());
        let (no_flush, no_append) = {
            let state = log.0.state.borrow();
            (state.flush_fence.is_some(), state.append_fence.is_some())
        };
        if no_flush {
            if log.flush().await.is_ok() {
                return Err("a flush succeeds after one that failed".into());
            }
            if log.checkpoint().await.is_ok() {
                return Err("a checkpoint succeeds after a flush that failed".into());
            }
            if log.flushed_offset() != flushed {
                return Err("more is flushed after a flush that failed".into());
            }
        }
        if no_append {
            let batch = self.model.borrow().batches.last().cloned();
            if let Some(mut batch) = batch {
                batch.last_offset += end - batch.base_offset;
                batch.base_offset = end;
                if log.append(&[batch]).await.is_ok() {
                    return Err("an append succeeds after one that failed".into());
                }
            }
            if log.end_offset() != end {
                return Err("LEO moves after an append that failed".into());
            }
        }
        self.check_durable(log)
    }

    /// The log is loaded again while the broker runs, without faults: space is back.
    async fn rebuild(&self, data_dir: &DataDir, old: Log) -> Checked<Log> {
        while self.model.borrow().flushes > 0 {
            self.rt.sleep(std::time::Duration::from_millis(1)).await;
        }
        self.model.borrow_mut().background = None;
        old.retire().await.map_err(failed)?;
        let mode = {
            let mut model = self.model.borrow_mut();
            // What is being loaded is what the running system sees.
            model.floor = old.end_offset();
            let mut mode = data_dir.load_mode("topic", 0);
            mode.clean = false;
            mode.recovery_point = model.recorded;
            mode.log_start = Some(model.log_start);
            mode.cleaned_to = None;
            mode
        };
        let dir = self.rt.dir("/data/topic-0");
        let opened = crate::storage::Log::open(&self.storage(), dir, self.config, mode).await;
        let (log, report) = opened.map_err(failed)?;
        self.check_report(&log, report, false)?;
        self.check_opened(&log).await?;
        self.model.borrow_mut().tally.rebuilt_in_place += 1;
        Ok(log)
    }

    /// Opens a log some of whose bits have changed for good. It refuses, or what it gives back
    /// is what was written.
    async fn open_damaged(&self) -> Checked<()> {
        self.model.borrow_mut().floor = 0;
        self.open_and_check().await.map(drop)
    }
}
