//! One measurement of producers and consumers at the same time.

use super::session::{Outcome, Turn};
use crate::driver::{Edge, Job};
use crate::measure::Measured;
use crate::results::Cost;
use crate::target::cost::Sample;
use crate::target::Target;
use crate::workload::{LoadPoint, Timing};
use anyhow::{bail, Context, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Saturates a target for a while, and throws the result away.
pub fn settle(turn: &Turn<'_>, target: &dyn Target) -> Result<()> {
    let seconds = turn.case.timing.settle_s;
    if seconds <= 0.0 {
        return Ok(());
    }
    let timing = Timing {
        warmup_s: 0.0,
        measure_s: seconds,
        ..turn.case.timing.clone()
    };
    let load = saturation(turn.load);
    let ends = |_: Edge| ();
    with_topics(turn, target, |topics| {
        drive(turn, target, &load, None, topics, &timing, &ends)
    })?;
    Ok(())
}

pub fn measure(turn: &Turn<'_>, target: &dyn Target) -> Result<Outcome> {
    let (measured, cost) = with_topics(turn, target, |topics| {
        // Not before: the topics may have restarted it.
        let watch = Watch::new(target);
        let ends = |_: Edge| watch.see();
        let timing = &turn.case.timing;
        let measured = drive(turn, target, turn.load, turn.rate, topics, timing, &ends)?;
        Ok((measured, watch.cost()?))
    })?;
    if measured.produced.records == 0 {
        bail!("nothing was acknowledged within the measured time");
    }
    let notes = notes(turn, &measured, cost.as_ref());
    Ok(Outcome {
        measured: Some(measured),
        cost,
        notes,
        ..Outcome::default()
    })
}

/// The load as saturation, without bursts and drains.
pub fn saturation(load: &LoadPoint) -> LoadPoint {
    LoadPoint {
        saturate: true,
        rate: None,
        share: None,
        burst: None,
        drain: None,
        ..load.clone()
    }
}

fn drive(
    turn: &Turn<'_>,
    target: &dyn Target,
    load: &LoadPoint,
    rate: Option<f64>,
    topics: &[String],
    timing: &Timing,
    on_measure: &(dyn Fn(Edge) + Sync),
) -> Result<Measured> {
    let endpoint = target.endpoint()?;
    let driver = turn
        .world
        .driver(endpoint.protocol, turn.case.producers.driver)?;
    driver.run(&Job {
        endpoint: &endpoint,
        case: turn.case,
        load,
        rate,
        topics,
        timing,
        cpus: turn.client_cpus,
        stop: turn.stop,
        on_measure,
    })
}

/// Makes the topics of the case, and deletes them whatever comes of it. Afterwards what was deleted is gone from the
/// disk, so that one target's dirty pages do not burden the next.
pub fn with_topics<T>(
    turn: &Turn<'_>,
    target: &dyn Target,
    work: impl FnOnce(&[String]) -> Result<T>,
) -> Result<T> {
    let before = target.data_dir().map(disk_bytes);
    let names = names(turn.case.topic.topics);
    let mut made = 0;
    let result = names
        .iter()
        .try_for_each(|name| {
            turn.stop.check()?;
            // What was begun may be there although it failed.
            made += 1;
            target.create_topic(name, &turn.case.topic)
        })
        .and_then(|()| work(&names));
    let deleted = delete(target, &names[..made]);
    let result = result?;
    deleted.context("what was measured can't be deleted")?;
    if let (Some(dir), Some(before)) = (target.data_dir(), before) {
        wait_until_gone(turn, dir, before)?;
    }
    Ok(result)
}

/// Deletes each of them, whatever comes of the others.
pub fn delete(target: &dyn Target, topics: &[String]) -> Result<()> {
    let each = topics.iter().map(|topic| target.delete_topic(topic));
    each.fold(Ok(()), Result::and)
}

/// Names that nobody else has: the broker may be one that others use.
pub fn names(count: u32) -> Vec<String> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_micros());
    let id = format!("perf-{:x}-{now:x}", std::process::id());
    (0..count).map(|n| format!("{id}-{n}")).collect()
}

/// Waits until a directory is about as small as it was, or stays as it is, and everything in it is on the disk.
fn wait_until_gone(turn: &Turn<'_>, dir: &Path, before: u64) -> Result<()> {
    /// What may stay: segments that are kept for the next topic.
    const STAYS: u64 = 256 << 20;
    /// Brokers are told to delete a second after they are asked to. What has not gone some time later was not meant to.
    const QUIET: Duration = Duration::from_millis(2500);
    const PATIENCE: Duration = Duration::from_secs(30);
    let start = Instant::now();
    let (mut bytes, mut since) = (disk_bytes(dir), start);
    while bytes > before + STAYS && since.elapsed() < QUIET && start.elapsed() < PATIENCE {
        turn.stop.sleep(Duration::from_millis(50))?;
        let now = disk_bytes(dir);
        if now != bytes {
            (bytes, since) = (now, Instant::now());
        }
    }
    let dir = std::fs::File::open(dir)?;
    nix::unistd::syncfs(dir)?;
    Ok(())
}

/// What the files below a directory take on the disk. Files come and go meanwhile.
fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => disk_bytes(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}

/// Reads what the target's process took in the measured time, and not before or after it.
pub struct Watch {
    /// Of a target that can be seen from here.
    process: Option<(u32, Option<PathBuf>)>,
    samples: Mutex<Vec<Result<Sample>>>,
}

impl Watch {
    pub fn new(target: &dyn Target) -> Watch {
        let dir = target.data_dir().map(Path::to_owned);
        Watch {
            process: target.pid().map(|pid| (pid, dir)),
            samples: Mutex::default(),
        }
    }

    pub fn see(&self) {
        if let Some((pid, dir)) = &self.process {
            let sample = Sample::take(*pid, dir.as_deref());
            let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
            samples.push(sample);
        }
    }

    /// From the first look to the last; none for a target that cannot be seen.
    pub fn cost(self) -> Result<Option<Cost>> {
        if self.process.is_none() {
            return Ok(None);
        }
        let samples = self
            .samples
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let samples: Vec<Sample> = samples.into_iter().collect::<Result<_>>()?;
        match &samples[..] {
            [start, end] => Ok(Some(start.until(end))),
            _ => bail!(
                "the driver told {} ends of its measured time, not 2",
                samples.len()
            ),
        }
    }
}

/// What keeps the figures from being what they seem.
pub fn notes(turn: &Turn<'_>, measured: &Measured, cost: Option<&Cost>) -> Vec<String> {
    const BUSY: f64 = 0.9;
    const KEPT: f64 = 0.98;
    const STEAL: f64 = 0.05;
    let mut notes = Vec::new();
    if let Some(busy) = measured.client_busy.filter(|busy| *busy > BUSY) {
        notes.push(format!(
            "the client was busy {:.0} % of the time and may be the limit",
            busy * 100.0
        ));
    }
    if let Some(rate) = turn.rate {
        let achieved = measured.produced.records_per_second();
        if achieved < rate * KEPT {
            notes.push(format!(
                "the rate was not kept: {achieved:.0} of {rate:.0} records/s"
            ));
        }
    }
    if measured.unacknowledged > 0 {
        notes.push(format!(
            "{} records were not acknowledged when the client gave up waiting: they are in no latency, and those that \
             are shown are too good",
            measured.unacknowledged
        ));
    }
    let sets = f64::from(turn.case.consumers.sets);
    let wanted = measured.produced.records_per_second() * sets;
    let consumed = measured.consumed.records_per_second();
    if consumed < wanted * KEPT {
        notes.push(format!(
            "the consumers fell behind: {consumed:.0} of {wanted:.0} records/s"
        ));
    }
    if let Some(cost) = cost {
        let share = cost.steal_seconds / cost.seconds.max(1e-9);
        if share > STEAL {
            notes.push(format!(
                "the hypervisor gave {:.0} % of a CPU to others",
                share * 100.0
            ));
        }
    }
    notes
}
