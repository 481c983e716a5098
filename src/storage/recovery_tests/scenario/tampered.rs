//! Faults that were reported against brokers of this kind, on random logs. Between two lives the
//! files are changed behind the machine's back by the recipe of a report, at random places; then
//! the log must be what the model knows, go on at its end, and survive the same again.

use super::{failed, Checked, Ended, Life, Scenario};
use crate::protocol::batch::BatchBuilder;
use crate::runtime::sim::{PowerCut, SimDisk};
use crate::storage::batch::BatchHeader;
use crate::storage::log_tests::stamped;
use crate::storage::segment::file_name;
use crate::storage::{Log, LogBatch};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const DIR: &str = "/data/topic-0";
const RECOVERY_POINTS: &str = "/data/recovery-point-offset-checkpoint";
const MARKER: &str = "/data/.kafka_cleanshutdown";

/// What is done to the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::storage) enum Recipe {
    /// fluss#2941: something that is no batch stands behind the last one, the index is whole.
    TornTail,
    /// KAFKA-10471, KAFKA-15375: a load after a clean stop is cut short; then a tail is torn.
    LoadCutShort,
    /// KAFKA-10101: the recovery point's file says more than there is; then a tail is torn.
    PointBeyondTheEnd,
    /// KAFKA-2012, KAFKA-1112: index files hold something else.
    BadIndexes,
    /// KAFKA-12520: two segments were merged, and the replacement was cut short.
    SwapCutShort,
    /// KAFKA-5747, KAFKA-9892: producer snapshots hold something else.
    BadSnapshots,
}

/// What was done to the files, and how often.
pub(in crate::storage) type Tampered = BTreeMap<&'static str, u64>;

/// What the load after a recipe must have done.
#[derive(Default)]
struct Expected {
    /// Something was cut.
    cut: bool,
    /// How many segments there are, where nothing but the recipe changes that.
    segments: Option<usize>,
}

/// Runs one seed to its end: what was done, and the promise that was broken, if one was.
pub(in crate::storage) fn run(seed: u64, recipe: Recipe) -> (Tampered, Option<String>) {
    let mut scenario = Scenario::new(seed, false);
    scenario.model.borrow_mut().compresses = true;
    let mut tampering = Tampering {
        scenario: &mut scenario,
        recipe,
        done: Tampered::new(),
    };
    let result = tampering.run();
    (tampering.done, result.err())
}

struct Tampering<'a> {
    scenario: &'a mut Scenario,
    recipe: Recipe,
    done: Tampered,
}

impl Tampering<'_> {
    fn run(&mut self) -> Result<(), String> {
        let mut expected = Expected::default();
        let rounds = 3 + self.draw(3);
        for round in 0..rounds {
            let told = |breach: String| format!("round {round}: {breach}");
            let stop = self.stop();
            let found = self.live(stop, round == 0, &expected).map_err(told)?;
            expected = match found {
                true => self.tamper(stop).map_err(told)?,
                // The load was cut short: it goes on with what is there.
                false => Expected::default(),
            };
        }
        let last = self.scenario.start();
        let ended = self
            .scenario
            .world
            .block_on(&last.rt, last.work(Stop::Clean, 40, &expected));
        ended.map_err(Ended::breach)?;
        self.count("lives to the end");
        self.scenario.end_life(false);
        let last = self.scenario.start();
        let check = self
            .scenario
            .world
            .block_on(&last.rt, last.open_and_check());
        check.map(drop).map_err(Ended::breach)
    }

    /// How the next life ends.
    fn stop(&self) -> Stop {
        match (self.recipe, self.draw(4)) {
            (Recipe::LoadCutShort, _) => Stop::Clean,
            // What is torn behind a clean stop's back is another fault.
            (Recipe::TornTail | Recipe::PointBeyondTheEnd, 0) => Stop::InMidWork,
            (Recipe::TornTail | Recipe::PointBeyondTheEnd, _) => Stop::Kill,
            // Its parts are whole segments.
            (Recipe::SwapCutShort, 0..2) => Stop::Clean,
            (Recipe::SwapCutShort, _) => Stop::Kill,
            (_, 0) => Stop::InMidWork,
            (_, 1) => Stop::Kill,
            (_, _) => Stop::Clean,
        }
    }

    /// One life, to its end. False if the load did not end.
    fn live(&mut self, stop: Stop, is_first: bool, expected: &Expected) -> Result<bool, String> {
        // Some end right after the load: what was made good is to be made good again.
        let steps = match self.draw(3) {
            0 if !is_first => 0,
            _ => 15 + self.draw(60),
        };
        let living = self.scenario.start();
        let life = living.work(stop, steps, expected);
        let ended = match stop {
            Stop::InMidWork => self.scenario.run_for_a_while(life),
            Stop::Kill | Stop::Clean => Some(self.scenario.world.block_on(&living.rt, life)),
        };
        let in_mid_work = ended.is_none();
        ended.unwrap_or(Ok(())).map_err(Ended::breach)?;
        let opened = self.scenario.model.borrow().opened;
        if opened && (expected.cut || expected.segments.is_some()) {
            self.count("loads that were looked at");
        }
        match stop {
            Stop::InMidWork => self.scenario.end_life(false),
            Stop::Kill | Stop::Clean => self.scenario.kill(),
        }
        self.scenario.check_background()?;
        self.count(match (stop, in_mid_work) {
            (Stop::Clean, _) => "clean stops",
            (_, true) => "ends in mid-work",
            (_, false) => "kills",
        });
        Ok(opened)
    }

    fn tamper(&mut self, stop: Stop) -> Result<Expected, String> {
        match self.recipe {
            Recipe::TornTail => self.tear(),
            Recipe::LoadCutShort => {
                self.cut_loads_short()?;
                self.tear()
            }
            Recipe::PointBeyondTheEnd => {
                // Where it is not written again, the file says what the last load left of it.
                if self.draw(3) > 0 {
                    self.raise_recovery_point()?;
                }
                self.tear()
            }
            Recipe::BadIndexes => self.damage_indexes(),
            Recipe::SwapCutShort => self.cut_swap_short(stop),
            Recipe::BadSnapshots => self.damage_snapshots(),
        }
    }

    /// Writes something that is no next batch behind the last batch, or at the file's end.
    fn tear(&mut self) -> Result<Expected, String> {
        let active = Active::of(&self.disk())?;
        let (kind, bytes) = self.tail(&active);
        let at = match self.draw(5) {
            0 => active.size,
            _ => active.len,
        };
        self.disk().corrupt(&active.path, at as u64, &bytes);
        let found = self.read(&active.path)?;
        if found.get(at..at + bytes.len()) != Some(&bytes[..]) {
            return Err(format!(
                "the tail of {} was not torn",
                active.path.display()
            ));
        }
        self.count(kind);
        if at > active.len {
            self.count("at the end of the file");
        }
        // What stands behind zeros is cut with them, and is not counted.
        Ok(Expected {
            cut: kind != ZEROS && at == active.len,
            segments: None,
        })
    }

    fn tail(&self, active: &Active) -> (&'static str, Vec<u8>) {
        let next = |offset: i64| {
            let mut builder = BatchBuilder::new();
            let value = vec![0x5a; 1 + self.draw(3_000) as usize];
            builder.push(10_000, None, Some(&value));
            stamped(&LogBatch {
                bytes: builder.build(),
                base_offset: offset,
                last_offset: offset,
                leader_epoch: 0,
                max_timestamp: 10_000,
                producer: None,
            })
            .to_vec()
        };
        match self.draw(8) {
            0 => {
                let mut half = next(active.next_offset);
                let len = 1 + self.draw(half.len() as u64 - 1) as usize;
                half.truncate(len);
                // Its last byte tells it from what was merely preallocated.
                half[len - 1] |= 1;
                ("part of a batch", half)
            }
            1 => ("some bytes", self.noise(1 + self.draw(16))),
            2 => ("a bare header", next(active.next_offset)[..61].to_vec()),
            3 => (ZEROS, vec![0; 1 + self.draw(9_000) as usize]),
            4 => ("noise", self.noise(1 + self.draw(9_000))),
            5 => {
                let mut batch = next(active.next_offset);
                let at = 21 + self.draw(batch.len() as u64 - 21) as usize;
                batch[at] ^= 1 << self.draw(8);
                ("a batch with a wrong bit", batch)
            }
            6 => {
                let offset = active.next_offset + 1 + self.draw(50) as i64;
                ("a batch of a later offset", next(offset))
            }
            _ => match &active.first_batch {
                Some(first) => ("an earlier batch again", first.clone()),
                None => ("noise", self.noise(777)),
            },
        }
    }

    /// Starts after a clean stop, and ends each start while it loads.
    fn cut_loads_short(&mut self) -> Result<(), String> {
        if self.disk().read_raw(MARKER).is_none() {
            return Err("a clean stop leaves no marker".into());
        }
        // Until one of them has taken the marker away.
        for start in 0.. {
            let living = self.scenario.start();
            let load = living.open_and_check();
            let ended = match self.draw(3) {
                0 => {
                    let ops = 1 + self.draw(40);
                    self.disk().cut_power_after_ops(ops, PowerCut::Mixed);
                    self.scenario.world.block_on_until_crash(&living.rt, load)
                }
                _ => {
                    let time = Duration::from_micros(self.draw(60_000));
                    self.scenario.world.block_on_for(&living.rt, time, load)
                }
            };
            let loaded = ended.is_some();
            ended.map_or(Ok(()), |ended| ended.map(drop).map_err(Ended::breach))?;
            self.scenario.end_life(false);
            if self.disk().read_raw(MARKER).is_none() {
                self.count(match loaded {
                    true => "loads that ended",
                    false => "loads cut short",
                });
                if self.draw(3) > 0 {
                    break;
                }
            }
            if start > 200 {
                return Err("no start takes the marker away".into());
            }
        }
        Ok(())
    }

    fn raise_recovery_point(&mut self) -> Result<(), String> {
        let end = Active::of(&self.disk())?.next_offset;
        let point = match self.draw(4) {
            0 => i64::MAX,
            1 => end + 1,
            2 => end + 1_000,
            _ => end + 1 + self.draw(100_000) as i64,
        };
        let content = format!("0\n1\ntopic 0 {point}\n");
        self.disk().write_raw(RECOVERY_POINTS, content.as_bytes());
        if self.disk().read_raw(RECOVERY_POINTS) != Some(content.into_bytes()) {
            return Err("the recovery point was not changed".into());
        }
        self.count("recovery points beyond the end");
        self.scenario.model.borrow_mut().recorded = None;
        Ok(())
    }

    fn damage_indexes(&mut self) -> Result<Expected, String> {
        let mut files = self.files("index");
        files.extend(self.files("timeindex"));
        files.retain(|path| self.disk().read_raw(path).is_some_and(|b| !b.is_empty()));
        let all = self.draw(3) == 0;
        let mut padded = false;
        for path in files {
            if !all && self.draw(2) == 0 {
                continue;
            }
            let before = self.read(&path)?;
            let kind = self.draw(7);
            let mut bytes = before.clone();
            let told = match kind {
                0 => {
                    // As the recipe has it; and once in a log, because it is large.
                    let len = if padded { before.len() + 64 } else { 10 << 20 };
                    padded = true;
                    bytes.resize(len, 0);
                    "indexes padded with zeros"
                }
                1 => {
                    let entry = if path.extension().is_some_and(|e| e == "index") {
                        8
                    } else {
                        12
                    };
                    let at = bytes.len().saturating_sub(entry);
                    bytes[at..].fill(0xff);
                    "last entries of 0xff"
                }
                2 => {
                    bytes.truncate(3);
                    "indexes cut to 3 bytes"
                }
                3 => {
                    bytes.clear();
                    "empty indexes"
                }
                4 => {
                    bytes.fill(0);
                    "indexes of zeros"
                }
                5 => {
                    bytes = self.noise(before.len() as u64);
                    "indexes of noise"
                }
                _ => {
                    if !self.disk().remove_raw(&path) || self.disk().read_raw(&path).is_some() {
                        return Err(format!("{} was not removed", path.display()));
                    }
                    self.count("removed indexes");
                    continue;
                }
            };
            self.replace(&path, &before, &bytes, told)?;
        }
        self.forget_bounds();
        Ok(Expected::default())
    }

    /// Merges two complete segments beside the originals, with strays of more.
    fn cut_swap_short(&mut self, stop: Stop) -> Result<Expected, String> {
        let logs = self.files("log");
        if logs.len() < 3 {
            return Ok(Expected::default());
        }
        let at = self.draw(logs.len() as u64 - 2) as usize;
        let mut merged = Vec::new();
        for path in &logs[at..at + 2] {
            let bytes = self.read(path)?;
            let (len, _) = whole_batches(&bytes, base_of(path)?);
            merged.extend(&bytes[..len]);
        }
        let base = base_of(&logs[at])?;
        let second = base_of(&logs[at + 1])?;
        let (len, end) = whole_batches(&merged, base);
        let after = base_of(&logs[at + 2])?;
        if (len, end) != (merged.len(), after) {
            return Err(format!("the merged segment ends at {end}, not {after}"));
        }
        let swap = format!("{DIR}/{}.swap", file_name(base, "log"));
        self.put(&swap, &merged)?;
        for extension in ["log", "index", "timeindex"] {
            if self.draw(2) == 0 {
                let deleted = format!("{DIR}/{}.deleted", file_name(second, extension));
                self.put(&deleted, &self.noise(40))?;
            }
        }
        self.count("merged segments");
        self.forget_bounds();
        let merges = match self.draw(3) {
            0 => {
                let cleaned = format!("{DIR}/{}.cleaned", file_name(base, "log"));
                let len = self.draw(merged.len() as u64) as usize;
                self.put(&cleaned, &merged[..len])?;
                self.count("with a part that is still to be cleaned");
                false
            }
            _ => true,
        };
        // Where the head of the log, or the end of it, may also change at the load, it is
        // not known how many there will be.
        let known = stop == Stop::Clean && self.scenario.model.borrow().log_start == 0;
        Ok(Expected {
            cut: false,
            segments: known.then(|| logs.len() - usize::from(merges)),
        })
    }

    fn damage_snapshots(&mut self) -> Result<Expected, String> {
        let files = self.files("snapshot");
        let from = match self.draw(3) {
            0 => 0,
            1 => self.draw(files.len() as u64 + 1) as usize,
            _ => files.len().saturating_sub(1),
        };
        for path in &files[from.min(files.len())..] {
            let before = self.read(path)?;
            let bytes = match self.draw(6) {
                0 | 1 => vec![0; before.len()],
                2 => before[..self.draw(before.len() as u64 + 1) as usize].to_vec(),
                3 => Vec::new(),
                4 => self.noise(before.len() as u64),
                _ => {
                    let mut other = before.clone();
                    // The version of the file.
                    if let Some(version) = other.get_mut(1) {
                        *version ^= 1 << self.draw(8);
                    }
                    other
                }
            };
            self.replace(path, &before, &bytes, "bad snapshots")?;
        }
        if from == 0 && !files.is_empty() {
            self.count("logs without a good snapshot");
            let model = &mut *self.scenario.model.borrow_mut();
            // What is left is read from the log's start on.
            model.forgotten_below = model.forgotten_below.max(model.log_start);
        }
        self.forget_bounds();
        Ok(Expected::default())
    }

    /// What a load reads is no longer bounded by what the last checkpoint left.
    fn forget_bounds(&self) {
        self.scenario.model.borrow_mut().checkpointed = None;
    }

    /// The partition's files of this extension, in the order of their offsets.
    fn files(&self, extension: &str) -> Vec<PathBuf> {
        files(&self.disk(), extension)
    }

    fn read(&self, path: &PathBuf) -> Result<Vec<u8>, String> {
        let bytes = self.disk().read_raw(path);
        bytes.ok_or_else(|| format!("{} is not there", path.display()))
    }

    fn put(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        self.disk().write_raw(path, bytes);
        match self.disk().read_raw(path).as_deref() == Some(bytes) {
            true => Ok(()),
            false => Err(format!("{path} was not written")),
        }
    }

    fn replace(
        &mut self,
        path: &PathBuf,
        before: &[u8],
        bytes: &[u8],
        told: &'static str,
    ) -> Result<(), String> {
        self.disk().write_raw(path, bytes);
        let now = self.read(path)?;
        if now != bytes {
            return Err(format!("{} was not changed", path.display()));
        }
        // Zeros over an entry of zeros change nothing.
        if now != before {
            self.count(told);
        }
        Ok(())
    }

    /// Bytes none of which is zero.
    fn noise(&self, len: u64) -> Vec<u8> {
        (0..len).map(|_| 1 + self.draw(255) as u8).collect()
    }

    fn count(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    fn draw(&self, bound: u64) -> u64 {
        self.scenario.world.random_below(bound)
    }

    fn disk(&self) -> SimDisk {
        self.scenario.node.disk()
    }
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// A power cut or a kill at any moment, also while it loads.
    InMidWork,
    /// A kill when nothing is in flight.
    Kill,
    Clean,
}

impl Scenario {
    /// A process that ends with nothing in flight.
    fn kill(&self) {
        let model = &mut *self.model.borrow_mut();
        model.tally.kills += 1;
        model.floor = model.written;
        self.node.kill();
    }
}

impl Life {
    /// Opens the partition, holds the load against what is expected of it, works for some
    /// steps, and stops cleanly if it is to.
    async fn work(&self, stop: Stop, steps: u64, expected: &Expected) -> Checked<()> {
        let cut_before = self.model.borrow().tally.truncated_bytes;
        let (data_dir, log) = self.open_and_check().await?;
        let cut = self.model.borrow().tally.truncated_bytes - cut_before;
        self.check_load(&log, cut, expected)?;
        for _ in 0..steps {
            match self.draw(16) {
                0..=6 => self.append(&log).await?,
                7..=9 => self.flush(&log).await?,
                10..=11 => self.checkpoint(&data_dir, &log).await?,
                12 => self.model.borrow_mut().epoch += 1,
                13 if self.draw(4) == 0 => self.truncate(&data_dir, &log).await?,
                14 if self.draw(4) == 0 => self.move_start(&data_dir, &log).await?,
                15 if self.draw(4) == 0 => self.check_content(&log).await?,
                _ => {
                    let time = Duration::from_micros(self.draw(300));
                    self.rt.sleep(time).await;
                }
            }
            self.check_durable(&log)?;
        }
        if steps > 0 {
            // It goes on where it ended, whatever the steps were.
            self.append(&log).await?;
            self.flush(&log).await?;
            self.check_content(&log).await?;
        }
        match stop {
            Stop::Clean => self.stop_cleanly(&data_dir, &log).await,
            Stop::InMidWork | Stop::Kill => Ok(()),
        }
    }

    fn check_load(&self, log: &Log, cut: u64, expected: &Expected) -> Checked<()> {
        if expected.cut && cut == 0 {
            return Err("a tail was torn, and nothing was cut".into());
        }
        let segments = log.segment_count();
        if expected.segments.is_some_and(|count| count != segments) {
            let wanted = expected.segments;
            return Err(format!("{segments} segments are left, expected {wanted:?}").into());
        }
        let of_log = log.0.state.borrow().segments.clone();
        for segment in of_log {
            let path = format!("{DIR}/{}", segment.file_name("log"));
            let size = self.disk.read_raw(&path).map(|b| b.len() as u64);
            if size != Some(segment.len()) {
                let len = segment.len();
                return Err(format!("{path} has {size:?} bytes, {len} of batches").into());
            }
        }
        for suffix in ["swap", "cleaned", "deleted", "tmp"] {
            if let Some(stray) = files(&self.disk, suffix).first() {
                return Err(failed(format!("{} was left", stray.display())));
            }
        }
        Ok(())
    }
}

/// The last segment.
struct Active {
    path: PathBuf,
    size: usize,
    /// The bytes of its whole batches.
    len: usize,
    next_offset: i64,
    first_batch: Option<Vec<u8>>,
}

impl Active {
    fn of(disk: &SimDisk) -> Result<Active, String> {
        let path = files(disk, "log").pop().ok_or("there is no segment")?;
        let bytes = disk.read_raw(&path).ok_or("it cannot be read")?;
        let (len, next_offset) = whole_batches(&bytes, base_of(&path)?);
        let first = BatchHeader::parse(&bytes).map(|header| header.len as usize);
        Ok(Active {
            path,
            size: bytes.len(),
            len,
            next_offset,
            first_batch: first
                .ok()
                .filter(|l| *l <= len)
                .map(|l| bytes[..l].to_vec()),
        })
    }
}

/// The bytes of the whole batches from `base` on that a segment begins with, and the offset
/// after them.
fn whole_batches(bytes: &[u8], base: i64) -> (usize, i64) {
    let (mut at, mut next) = (0, base);
    while let Ok(header) = BatchHeader::parse(&bytes[at..]) {
        let end = at + header.len as usize;
        let is_whole = end <= bytes.len() && header.base_offset == next;
        if !is_whole || !BatchHeader::crc_matches(&bytes[at..end]) {
            break;
        }
        (at, next) = (end, header.last_offset + 1);
    }
    (at, next)
}

fn files(disk: &SimDisk, extension: &str) -> Vec<PathBuf> {
    let all = disk.list_raw(DIR).into_iter().map(|(path, _)| path);
    all.filter(|p| p.extension().is_some_and(|e| e == extension))
        .collect()
}

fn base_of(path: &std::path::Path) -> Result<i64, String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let base = stem.and_then(|stem| stem.parse().ok());
    base.ok_or_else(|| format!("{} is no segment", path.display()))
}

const ZEROS: &str = "zeros";
