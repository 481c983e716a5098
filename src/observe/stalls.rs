//! Stalls: tasks that held a core too long (`stall.threshold.ms`), and what they worked on.
//!
//! Whoever watches the executors reports here; that is a thread of its own (`runtime/native/watch.rs`), so a stalled core
//! reports itself. The last [`STALLS_MAX`] are kept, each is logged once when it has ended and once if it lasts, within a
//! limit of lines, and all are counted.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a task works on, as far as it has said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// The API of the request.
    pub api_key: Option<i16>,
    /// The connection that asked.
    pub peer: Option<SocketAddr>,
    /// The partition: its topic's id and its number.
    pub partition: Option<(u128, i32)>,
}

/// One stall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// Counts up from 1.
    pub number: u64,
    /// Whose core was held: `shard-0`, `control`.
    pub executor: String,
    /// When it began, milliseconds since the Unix epoch.
    pub began_ms: i64,
    /// How long it has lasted.
    pub lasted: Duration,
    /// How much of that the thread had a CPU; the rest it waited for one, or was blocked. `None`: unknown.
    pub ran: Option<Duration>,
    /// It had ended when it was last looked at.
    pub ended: bool,
    /// Where the task was started: `src/shard/background.rs:38`.
    pub task: String,
    /// What it worked on.
    pub work: Work,
}

/// The stalls of one process. Cheap to clone; all clones are the same record.
#[derive(Debug, Clone)]
pub struct Stalls {
    recorded: Arc<Mutex<Recorded>>,
    api_name: fn(i16) -> Option<&'static str>,
}

#[derive(Debug, Default)]
struct Recorded {
    latest: VecDeque<Stall>,
    totals: BTreeMap<String, Total>,
    number: u64,
    /// When the span of [`LOG_SPAN`] began, and lines since.
    lines: (Duration, u32),
}

/// All the stalls of one executor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// How many, those that still last included.
    pub count: u64,
    /// How long all that have ended lasted.
    pub lasted: Duration,
}

impl Stalls {
    /// An empty record. `api_name` names APIs in the log.
    pub fn new(api_name: fn(i16) -> Option<&'static str>) -> Stalls {
        Stalls {
            recorded: Arc::default(),
            api_name,
        }
    }

    /// Records a stall that still lasts; its number is filled in and returned.
    pub fn begun(&self, mut stall: Stall) -> u64 {
        let mut recorded = self.lock();
        recorded.number += 1;
        stall.number = recorded.number;
        let total = recorded.totals.entry(stall.executor.clone());
        total.or_default().count += 1;
        if recorded.latest.len() == STALLS_MAX {
            recorded.latest.pop_front();
        }
        recorded.latest.push_back(stall);
        recorded.number
    }

    /// Says how a stall goes on. `now` is any clock that rises, for the limit of the log.
    pub fn lasts(
        &self,
        number: u64,
        lasted: Duration,
        ran: Option<Duration>,
        ended: bool,
        now: Duration,
    ) {
        let mut recorded = self.lock();
        let found = recorded.latest.iter_mut().rev();
        let Some(stall) = found.into_iter().find(|stall| stall.number == number) else {
            return;
        };
        let is_long_now = lasted >= LONG && stall.lasted < LONG;
        stall.lasted = lasted;
        stall.ran = ran;
        stall.ended = ended;
        if !ended && !is_long_now {
            return;
        }
        let stall = stall.clone();
        if ended {
            let total = recorded.totals.entry(stall.executor.clone());
            total.or_default().lasted += lasted;
        }
        let is_told = recorded.may_log(now);
        drop(recorded);
        if is_told {
            self.log(&stall);
        }
    }

    /// The latest, oldest first. Blocks for as long as a copy of them takes: not for an executor's thread.
    pub fn latest(&self) -> Vec<Stall> {
        self.lock().latest.iter().cloned().collect()
    }

    /// The totals by executor. Blocks as [`Stalls::latest`] does.
    pub fn totals(&self) -> BTreeMap<String, Total> {
        self.lock().totals.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        // Nothing that runs under this lock panics half-way.
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, stall: &Stall) {
        let Work {
            api_key,
            peer,
            partition,
        } = stall.work;
        let api = api_key.map(|key| match (self.api_name)(key) {
            Some(name) => name.to_owned(),
            None => key.to_string(),
        });
        let partition = partition.map(|(topic, index)| format!("{topic:032x}-{index}"));
        tracing::warn!(
            executor = stall.executor,
            lasted_ms = stall.lasted.as_millis() as u64,
            ran_ms = stall.ran.map(|ran| ran.as_millis() as u64),
            task = stall.task,
            api,
            peer = peer.map(tracing::field::display),
            partition,
            "{}",
            what_happened(stall)
        );
    }
}

/// One that had no CPU most of the time is not the task's fault.
fn what_happened(stall: &Stall) -> &'static str {
    let has_run = stall.ran.is_none_or(|ran| ran * 2 >= stall.lasted);
    match (has_run, stall.ended) {
        (true, true) => "a task held its core too long (stall.threshold.ms)",
        (true, false) => "a task holds its core, and goes on (stall.threshold.ms)",
        (false, true) => "a task lasted too long (stall.threshold.ms), mostly without running: its thread had no CPU, or was blocked",
        (false, false) => "a task goes on, mostly without running: its thread has no CPU, or is blocked (stall.threshold.ms)",
    }
}

impl Recorded {
    fn may_log(&mut self, now: Duration) -> bool {
        let (since, lines) = &mut self.lines;
        if now.saturating_sub(*since) >= LOG_SPAN {
            if *lines > LOG_LINES_MAX {
                let left_out = *lines - LOG_LINES_MAX;
                tracing::warn!(left_out, "more tasks held their cores too long");
            }
            (*since, *lines) = (now, 0);
        }
        *lines = lines.saturating_add(1);
        *lines <= LOG_LINES_MAX
    }
}

/// Stalls that are kept.
pub const STALLS_MAX: usize = 128;
/// A stall that is told of while it lasts.
const LONG: Duration = Duration::from_secs(1);
/// Lines in a span.
const LOG_LINES_MAX: u32 = 10;
const LOG_SPAN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(executor: &str) -> Stall {
        Stall {
            number: 0,
            executor: executor.to_owned(),
            began_ms: 0,
            lasted: Duration::from_millis(50),
            ran: None,
            ended: false,
            task: "a.rs:1".to_owned(),
            work: Work::default(),
        }
    }

    #[test]
    fn the_latest_are_kept_and_all_are_counted() {
        let stalls = Stalls::new(|_| None);
        let numbers: Vec<u64> = (0..STALLS_MAX + 10)
            .map(|_| stalls.begun(stall("shard-0")))
            .collect();
        stalls.begun(stall("shard-1"));
        // The first is forgotten; that it ended is no news then.
        let second = Duration::from_secs(1);
        stalls.lasts(numbers[0], second, None, true, second);
        stalls.lasts(numbers[100], second, Some(second), true, second);
        let latest = stalls.latest();
        assert_eq!(latest.len(), STALLS_MAX);
        let ended: Vec<&Stall> = latest.iter().filter(|stall| stall.ended).collect();
        assert_eq!(ended.len(), 1);
        assert_eq!((ended[0].lasted, ended[0].ran), (second, Some(second)));
        let totals = stalls.totals();
        assert_eq!(totals["shard-0"].count as usize, STALLS_MAX + 10);
        assert_eq!(totals["shard-0"].lasted, second);
        assert_eq!(totals["shard-1"].count, 1);
    }

    #[test]
    fn one_that_had_no_cpu_is_told_from_one_that_ran() {
        let told = |ran_ms: Option<u64>, ended| {
            let ran = ran_ms.map(Duration::from_millis);
            let stall = Stall {
                ran,
                ended,
                ..stall("shard-0")
            };
            what_happened(&stall).contains("without running")
        };
        for ended in [true, false] {
            assert!(!told(None, ended) && !told(Some(25), ended));
            assert!(told(Some(24), ended) && told(Some(0), ended));
        }
    }

    #[test]
    fn the_log_is_limited() {
        let mut recorded = Recorded::default();
        let told = |recorded: &mut Recorded, second| {
            let now = Duration::from_secs(second);
            (0..100).filter(|_| recorded.may_log(now)).count() as u32
        };
        assert_eq!(told(&mut recorded, 1), LOG_LINES_MAX);
        assert_eq!(told(&mut recorded, 2), 0);
        assert_eq!(told(&mut recorded, 12), LOG_LINES_MAX);
    }
}
