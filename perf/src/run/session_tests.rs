//! The order of turns, capacities, failures and stops, without a broker.

use super::plan;
use super::progress::Progress;
use super::session::{Session, World};
use crate::driver::{Driver, Edge, Job};
use crate::measure::{Measured, Moved};
use crate::results::{Machine, Measurement, Results, Settings, VERSION};
use crate::stop::Stop;
use crate::target::{Endpoint, Protocol, Share, Target};
use crate::workload::{parse, Case, DriverName, TopicPlan, Workload};
use anyhow::{bail, Result};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// What happened, in order.
type Log = Rc<RefCell<Vec<String>>>;

/// A world of targets by name; records a second of each, 0 for one that fails in its measurements.
struct Fakes {
    targets: Vec<(&'static str, u64)>,
    log: Log,
    stop: Stop,
    /// Asks for a stop during this run of a driver, from 1.
    stop_at: usize,
    runs: Rc<Cell<usize>>,
    saved: Cell<usize>,
    /// Does not start.
    broken: &'static str,
    /// Cannot do anything.
    lacking: &'static str,
}

impl Fakes {
    fn new(targets: &[(&'static str, u64)]) -> Fakes {
        Fakes {
            targets: targets.to_vec(),
            log: Log::default(),
            stop: Stop::default(),
            stop_at: 0,
            runs: Rc::default(),
            saved: Cell::new(0),
            broken: "",
            lacking: "",
        }
    }

    fn names(&self) -> Vec<String> {
        self.targets
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect()
    }

    fn logged(&self, what: &str) -> Vec<String> {
        let log = self.log.borrow();
        let lines = log.iter().filter_map(|line| line.strip_prefix(what));
        lines.map(|line| line.trim().to_owned()).collect()
    }

    /// Runs what is left of a workload.
    fn run(&self, workloads: &[Workload], results: &mut Results) -> Result<()> {
        let steps = plan::whole(workloads, &self.names())?;
        let models: Vec<Box<dyn Target>> = (0..self.targets.len())
            .map(|n| self.target(n))
            .collect::<Result<_>>()?;
        let lacks = |step: &plan::Step| {
            models[step.target].lacks(&workloads[step.workload].cases[step.case])
        };
        let left = plan::remaining(&steps, &results.measurements, lacks);
        let share = Share {
            dir: "/nowhere".into(),
            cpus: vec![],
            memory: 0,
        };
        Session {
            world: self,
            workloads,
            steps: &steps,
            share: &share,
            client_cpus: &[],
            stop: &self.stop,
            progress: &mut Progress::new(left.len(), 1.0),
            results,
            models: &models,
        }
        .run(&left)
    }
}

impl World for Fakes {
    fn target(&self, n: usize) -> Result<Box<dyn Target>> {
        let (name, rate) = self.targets[n];
        Ok(Box::new(FakeTarget {
            name,
            rate,
            log: self.log.clone(),
            is_broken: name == self.broken,
            is_lacking: name == self.lacking,
            is_started: false,
        }))
    }

    fn driver(&self, _: Protocol, _: DriverName) -> Result<Box<dyn Driver>> {
        Ok(Box::new(FakeDriver {
            log: self.log.clone(),
            stop: self.stop.clone(),
            stop_at: self.stop_at,
            runs: self.runs.clone(),
        }))
    }

    fn is_broker(&self, n: usize) -> bool {
        self.targets[n].0 != "floor"
    }

    fn save(&self, _: &Results) -> Result<()> {
        self.saved.set(self.saved.get() + 1);
        Ok(())
    }

    fn rank(&self, _: &str) -> usize {
        0
    }
}

struct FakeTarget {
    name: &'static str,
    rate: u64,
    log: Log,
    is_broken: bool,
    is_lacking: bool,
    is_started: bool,
}

impl FakeTarget {
    fn log(&self, what: &str) {
        self.log.borrow_mut().push(format!("{what} {}", self.name));
    }
}

impl Target for FakeTarget {
    fn name(&self) -> &str {
        self.name
    }

    fn describe(&self) -> String {
        String::new()
    }

    fn lacks(&self, _: &Case) -> Option<String> {
        self.is_lacking.then(|| "has none".to_owned())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn start(&mut self, _: &Share) -> Result<Duration> {
        self.log("start");
        if self.is_broken {
            bail!("no memory");
        }
        self.is_started = true;
        Ok(Duration::ZERO)
    }

    fn endpoint(&self) -> Result<Endpoint> {
        // The port is the rate, for the driver.
        Ok(Endpoint {
            protocol: Protocol::Kafka,
            addr: SocketAddr::from(([127, 0, 0, 1], self.rate as u16)),
        })
    }

    fn pid(&self) -> Option<u32> {
        None
    }

    fn data_dir(&self) -> Option<&Path> {
        None
    }

    fn create_topic(&self, _: &str, _: &TopicPlan) -> Result<()> {
        self.log("create");
        Ok(())
    }

    fn delete_topic(&self, _: &str) -> Result<()> {
        self.log("delete");
        Ok(())
    }

    fn stop(&mut self) -> Result<Duration> {
        bail!("nobody stops a fake")
    }

    fn kill(&mut self) -> Result<()> {
        bail!("nobody kills a fake")
    }
}

impl Drop for FakeTarget {
    fn drop(&mut self) {
        if self.is_started {
            self.log("drop");
        }
    }
}

struct FakeDriver {
    log: Log,
    stop: Stop,
    stop_at: usize,
    runs: Rc<Cell<usize>>,
}

impl Driver for FakeDriver {
    fn run(&self, job: &Job<'_>) -> Result<Measured> {
        let capacity = u64::from(job.endpoint.addr.port());
        self.runs.set(self.runs.get() + 1);
        if self.runs.get() == self.stop_at {
            self.stop.ask();
        }
        job.stop.check()?;
        let rate = job.rate.map_or("all".to_owned(), |rate| rate.to_string());
        let what = if job.timing.measure_s == SETTLE_S {
            "settle"
        } else {
            "run"
        };
        self.log
            .borrow_mut()
            .push(format!("{what} {capacity} at {rate}"));
        if capacity == 0 {
            bail!("the connection ended");
        }
        (job.on_measure)(Edge::Start);
        (job.on_measure)(Edge::End);
        let records = job
            .rate
            .map_or(capacity, |rate| (rate as u64).min(capacity));
        let unacknowledged = job.rate.map_or(0, |rate| rate as u64 - records);
        let moved = |records| Moved {
            records,
            seconds: 1.0,
            ..Moved::default()
        };
        // Of two sets of consumers one falls behind with the producers.
        let sets = if unacknowledged > 0 { 1 } else { 2 };
        Ok(Measured {
            produced: moved(records),
            consumed: moved(records * sets),
            unacknowledged,
            ..Measured::default()
        })
    }
}

const SETTLE_S: f64 = 77.0;

fn workloads() -> Vec<Workload> {
    let file = format!(
        r#"
        name = "w"
        title = ""
        [case]
        timing = {{ repeats = 2, settle_s = {SETTLE_S} }}
        consumers = {{ sets = 2 }}
        loads = [
            {{ name = "capacity", saturate = true }},
            {{ name = "half", share = 0.5, of = "slowest" }},
        ]
        "#
    );
    vec![parse(&file, "w", false).unwrap()]
}

fn none() -> Results {
    Results {
        version: VERSION,
        started_at: 0,
        machine: Machine {
            cpu: String::new(),
            cpus: 1,
            memory_bytes: 0,
            kernel: String::new(),
            file_system: String::new(),
        },
        settings: Settings {
            quick: false,
            broker_cpus: vec![],
            client_cpus: vec![],
            broker_memory_bytes: 0,
            memory_limit: String::new(),
            targets: vec![],
        },
        measurements: Vec::new(),
    }
}

fn of<'a>(results: &'a Results, target: &str) -> Vec<&'a Measurement> {
    let all = results.measurements.iter();
    all.filter(|measurement| measurement.key.target == target)
        .collect()
}

#[test]
fn targets_start_together_take_turns_and_settle_once() {
    let world = Fakes::new(&[("a", 100), ("b", 40), ("floor", 10)]);
    let mut results = none();
    world.run(&workloads(), &mut results).unwrap();
    assert_eq!(world.logged("start"), ["a", "b", "floor"]);
    assert_eq!(
        world.logged("settle"),
        ["100 at all", "40 at all", "10 at all"]
    );
    let runs = world.logged("run");
    let capacity = ["100", "40", "10", "40", "10", "100"].map(|rate| format!("{rate} at all"));
    assert_eq!(runs[..6], capacity);
    // Half of the slowest broker's; the floor is none.
    let half = ["100", "40", "10", "40", "10", "100"].map(|rate| format!("{rate} at 20"));
    assert_eq!(runs[6..], half);
    assert_eq!(results.measurements.len(), 12);
    assert_eq!(world.saved.get(), 12);
    assert_eq!(world.logged("create").len(), world.logged("delete").len());
    assert_eq!(world.logged("drop"), ["a", "b", "floor"]);
    let slow = of(&results, "floor");
    assert_eq!(slow[2].rate, Some(20.0));
    let notes = [
        "the rate was not kept: 10 of 20 records/s",
        "10 records were not acknowledged",
        "the consumers fell behind: 10 of 20 records/s",
    ];
    assert_eq!(slow[2].notes.len(), notes.len(), "{:?}", slow[2].notes);
    for (note, begin) in slow[2].notes.iter().zip(notes) {
        assert!(note.starts_with(begin), "{note}");
    }
    assert!(of(&results, "a").iter().all(|kept| kept.notes.is_empty()));
}

#[test]
fn a_target_that_fails_is_missing_with_the_reason_and_the_others_go_on() {
    let world = Fakes::new(&[("a", 100), ("b", 0)]);
    let mut results = none();
    world.run(&workloads(), &mut results).unwrap();
    for failed in of(&results, "b") {
        assert_eq!(failed.missing.as_deref(), Some("the connection ended"));
    }
    for good in of(&results, "a") {
        assert_eq!(good.missing, None);
    }
    // The slowest is the one that has a capacity.
    assert_eq!(of(&results, "a")[2].rate, Some(50.0));
    assert_eq!(world.logged("create").len(), world.logged("delete").len());
    // One that failed is started anew.
    assert_eq!(world.logged("start b").len(), 4);
}

#[test]
fn a_target_that_does_not_start_is_left_alone_after_three_times() {
    let mut world = Fakes::new(&[("a", 100), ("b", 50)]);
    world.broken = "b";
    let mut results = none();
    world.run(&workloads(), &mut results).unwrap();
    assert_eq!(world.logged("start b").len(), 3);
    let reasons: Vec<_> = of(&results, "b")
        .iter()
        .map(|failed| failed.missing.clone())
        .collect();
    assert_eq!(reasons[0].as_deref(), Some("no memory"));
    assert_eq!(reasons[3].as_deref(), Some("it did not start"));
    assert_eq!(
        of(&results, "a")
            .iter()
            .filter(|good| good.missing.is_none())
            .count(),
        4
    );
}

#[test]
fn what_a_target_lacks_is_said_and_not_started() {
    let mut world = Fakes::new(&[("a", 100), ("b", 50)]);
    world.lacking = "b";
    let mut results = none();
    world.run(&workloads(), &mut results).unwrap();
    assert_eq!(world.logged("start"), ["a"]);
    assert_eq!(of(&results, "b")[3].missing.as_deref(), Some("has none"));
    // Nor is it tried again.
    let again = Fakes {
        lacking: "b",
        ..Fakes::new(&[("a", 100), ("b", 50)])
    };
    again.run(&workloads(), &mut results).unwrap();
    assert!(again.log.borrow().is_empty());
}

#[test]
fn a_stop_ends_the_turn_and_the_next_run_goes_on() {
    let mut world = Fakes::new(&[("a", 100), ("b", 40)]);
    // Two runs of settling are among them.
    world.stop_at = 5;
    let mut results = none();
    let error = world.run(&workloads(), &mut results).unwrap_err();
    assert!(error.to_string().contains("stopped"), "{error}");
    assert_eq!(results.measurements.len(), 2);
    assert_eq!(world.logged("drop").len(), 2);
    assert_eq!(world.logged("create").len(), world.logged("delete").len());

    let next = Fakes::new(&[("a", 100), ("b", 40)]);
    next.run(&workloads(), &mut results).unwrap();
    assert_eq!(results.measurements.len(), 8);
    assert_eq!(next.logged("run").len(), 6);
    assert_eq!(of(&results, "a")[3].rate, Some(20.0));
}
