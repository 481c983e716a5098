//! Works through a plan: starts the targets of a workload, measures one after the other, and keeps each result.

use super::capacity::Found;
use super::plan::{self, Step};
use super::progress::Progress;
use super::{cold, lifecycle, stream};
use crate::driver::Driver;
use crate::measure::Measured;
use crate::results::{Cost, Figure, Measurement, Results};
use crate::stop::Stop;
use crate::target::{Protocol, Share, Target};
use crate::workload::{Case, DriverName, Kind, LoadPoint, Workload};
use anyhow::{Context, Result};

/// What a session is made of; a test has one of its own.
pub trait World {
    /// A target of the run, not started.
    fn target(&self, n: usize) -> Result<Box<dyn Target>>;

    fn driver(&self, protocol: Protocol, name: DriverName) -> Result<Box<dyn Driver>>;

    /// Whether a target is a broker, and not the machine's floor.
    fn is_broker(&self, n: usize) -> bool;

    /// Keeps the results where the next run finds them.
    fn save(&self, results: &Results) -> Result<()>;

    /// The place of a workload in the report.
    fn rank(&self, workload: &str) -> usize;
}

pub struct Session<'a> {
    pub world: &'a dyn World,
    pub workloads: &'a [Workload],
    /// Everything, measured or not.
    pub steps: &'a [Step],
    pub share: &'a Share,
    pub client_cpus: &'a [usize],
    pub stop: &'a Stop,
    pub progress: &'a mut Progress,
    pub results: &'a mut Results,
    /// Of each target one that is never started.
    pub models: &'a [Box<dyn Target>],
}

/// What one turn gave.
#[derive(Default)]
pub struct Outcome {
    pub measured: Option<Measured>,
    pub figures: Vec<Figure>,
    pub cost: Option<Cost>,
    pub notes: Vec<String>,
}

/// One turn of one target.
pub struct Turn<'a> {
    pub case: &'a Case,
    pub load: &'a LoadPoint,
    /// Records a second; `None` at saturation.
    pub rate: Option<f64>,
    pub client_cpus: &'a [usize],
    pub stop: &'a Stop,
    pub world: &'a dyn World,
}

/// A target during a workload.
#[derive(Default)]
struct Slot {
    running: Option<Box<dyn Target>>,
    /// Whether it had its time of saturation since it was started.
    is_settled: bool,
    /// Starts that failed, one after another.
    failures: u32,
}

impl Session<'_> {
    /// Measures what is left. An error ends the run: a stop, or results that can't be saved. A target's failure is a
    /// result.
    pub fn run(&mut self, left: &[Step]) -> Result<()> {
        for steps in left.chunk_by(|one, other| one.workload == other.workload) {
            self.workload(steps)?;
        }
        Ok(())
    }

    fn workload(&mut self, steps: &[Step]) -> Result<()> {
        let mut slots: Vec<Slot> = self.models.iter().map(|_| Slot::default()).collect();
        self.start_all(steps, &mut slots)?;
        for step in steps {
            self.stop.check()?;
            let what = describe(step);
            self.progress.begin(&what);
            let measurement = self.step(step, &mut slots[step.target]);
            // A turn that was broken off has no result.
            self.stop.check()?;
            self.progress
                .end(&what, &brief(&measurement), plan::seconds(self.case(step)));
            let rank = |name: &str| self.world.rank(name);
            plan::put(
                &mut self.results.measurements,
                measurement,
                self.steps,
                rank,
            );
            self.world.save(self.results)?;
        }
        Ok(())
    }

    fn case(&self, step: &Step) -> &Case {
        &self.workloads[step.workload].cases[step.case]
    }

    /// The targets run side by side, idle but for the one whose turn it is. One that does not start is tried once more
    /// at its turn.
    fn start_all(&mut self, steps: &[Step], slots: &mut [Slot]) -> Result<()> {
        for (n, slot) in slots.iter_mut().enumerate() {
            let needs = |step: &&Step| {
                let case = self.case(step);
                step.target == n
                    && case.kind != Kind::Lifecycle
                    && self.models[n].lacks(case).is_none()
            };
            if steps.iter().any(|step| needs(&step)) {
                self.stop.check()?;
                self.progress
                    .begin(&format!("starting {}", self.models[n].name()));
                // Told at its turn, if it fails again.
                if self.start(n, slot).is_err() {
                    self.stop.check()?;
                }
            }
        }
        Ok(())
    }

    fn start(&self, n: usize, slot: &mut Slot) -> Result<()> {
        let mut target = self.world.target(n)?;
        slot.is_settled = false;
        slot.failures += 1;
        target.start(self.share)?;
        slot.failures = 0;
        slot.running = Some(target);
        Ok(())
    }

    fn step(&self, step: &Step, slot: &mut Slot) -> Measurement {
        let workload = &self.workloads[step.workload];
        let mut measurement = Measurement {
            key: step.key.clone(),
            letter: workload.letter.clone(),
            title: workload.title.clone(),
            definition: step.definition.clone(),
            rate: None,
            measured: None,
            figures: Vec::new(),
            cost: None,
            notes: Vec::new(),
            missing: self.models[step.target].lacks(self.case(step)),
        };
        if measurement.missing.is_some() {
            return measurement;
        }
        match self.turn(step, slot, &mut measurement) {
            Ok(outcome) => {
                measurement.measured = outcome.measured;
                measurement.figures = outcome.figures;
                measurement.cost = outcome.cost;
                measurement.notes.extend(outcome.notes);
            }
            Err(error) => {
                measurement.missing = Some(format!("{error:#}"));
                // It may have died, or be in a state that nobody knows.
                *slot = Slot {
                    failures: slot.failures,
                    ..Slot::default()
                };
            }
        }
        measurement
    }

    fn turn(&self, step: &Step, slot: &mut Slot, kept: &mut Measurement) -> Result<Outcome> {
        let case = self.case(step);
        let load = &case.loads[step.load];
        let brokers = (0..self.models.len()).filter(|n| self.world.is_broker(*n));
        let mut brokers: Vec<String> = brokers.map(|n| self.models[n].name().to_owned()).collect();
        if brokers.is_empty() {
            brokers = self
                .models
                .iter()
                .map(|model| model.name().to_owned())
                .collect();
        }
        let rate = Found {
            workload: &step.key.workload,
            case,
            measurements: &self.results.measurements,
            brokers: &brokers,
        }
        .rate(load, &step.key.target)?;
        kept.rate = rate.per_second;
        kept.notes.extend(rate.note);
        let turn = Turn {
            case,
            load,
            rate: rate.per_second,
            client_cpus: self.client_cpus,
            stop: self.stop,
            world: self.world,
        };
        if case.kind == Kind::Lifecycle {
            let mut target = self.world.target(step.target)?;
            return lifecycle::measure(&turn, target.as_mut(), self.share);
        }
        if slot.running.is_none() {
            anyhow::ensure!(slot.failures < STARTS_MAX, "it did not start");
            self.start(step.target, slot)?;
        }
        let target = slot.running.as_mut().context("it was started")?;
        if case.kind == Kind::ColdRead {
            return cold::measure(&turn, target.as_mut(), self.share);
        }
        if !slot.is_settled {
            stream::settle(&turn, target.as_ref())?;
            slot.is_settled = true;
        }
        stream::measure(&turn, target.as_ref())
    }
}

/// Starts that may fail in a workload before a target is left alone.
const STARTS_MAX: u32 = 3;

/// `flush-16k-batches, capacity: kafka, turn 2`.
fn describe(step: &Step) -> String {
    let key = &step.key;
    let parts = [&key.workload, &key.case, &key.load];
    let parts: Vec<&str> = parts
        .into_iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    format!("{}: {}, turn {}", parts.join(", "), key.target, key.repeat)
}

/// A result in a few words.
fn brief(measurement: &Measurement) -> String {
    if let Some(missing) = &measurement.missing {
        return format!("no result: {missing}");
    }
    let mut parts = Vec::new();
    if let Some(measured) = &measurement.measured {
        if measured.produced.records > 0 {
            let rate = measured.produced.records_per_second();
            parts.push(format!("{rate:.0} records/s"));
        } else {
            parts.push(format!(
                "{:.0} MB/s read",
                measured.consumed.mb_per_second()
            ));
        }
        if let Some(median) = measured.acknowledged.percentile_us(50.0) {
            parts.push(format!("half acknowledged in {:.3} ms", median / 1e3));
        }
    }
    for figure in measurement.figures.iter().take(3) {
        parts.push(format!(
            "{} {:.1} {}",
            figure.name, figure.value, figure.unit
        ));
    }
    parts.extend(measurement.notes.iter().cloned());
    parts.join("; ")
}
