//! Watching executors for tasks that hold their core too long.
//!
//! An executor says what it does in a few atomics of its own ([`Beat`]): a number that is odd while a task is polled,
//! where that task was started, and what it works on. Saying it costs a handful of plain stores at each poll; no clock
//! is read and nothing is shared but one cache line pair. The nudging thread (`nudge.rs`) looks at it each 10 ms: an odd number
//! that is still the same has been one poll all the time. So a stall is measured to about 10 ms, and it
//! is seen while the core is held, by a thread that is not.
//!
//! What it is not: a profiler. A main future, which only starts tasks, is not watched; nor is the executor's own work
//! between polls. A process that was stopped, or whose machine stood still, looks stalled: [`Stall::ran`] tells.
//!
//! What is read beside the number may belong to the moment before or after it; it is taken only when two
//! readings agree and the number is still the same.

use super::nudge;
use crate::observe::{Stall, Stalls, Work};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{fence, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where stalls of an executor are recorded, and what counts as one.
#[derive(Debug, Clone)]
pub struct StallWatch {
    /// The record.
    pub stalls: Stalls,
    /// A poll longer than this is one.
    pub threshold: Duration,
}

/// What one executor does at the moment. Only its own thread writes, at each poll: no other thread's data may lie on the
/// same pair of cache lines, least of all another executor's beat.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Beat {
    /// Odd while a task is polled.
    turn: AtomicU64,
    /// Where that task was started.
    task: AtomicPtr<Location<'static>>,
    /// 0: none; else [`REQUEST`], [`PEER`] and the API key above the port.
    request: AtomicU64,
    peer: [AtomicU64; 2],
    /// The partition's number + 1; 0: none.
    partition: AtomicU32,
    topic: [AtomicU64; 2],
    /// The clock of the thread's CPU time; 0: not known.
    cpu_clock: AtomicI32,
}

/// `request` holds an API key.
const REQUEST: u64 = 1 << 63;
/// `request` holds a port, and `peer` its address.
const PEER: u64 = 1 << 62;

impl Beat {
    /// Notes the calling thread, which must be the executor's.
    #[allow(unsafe_code)]
    pub(super) fn begin(&self) {
        let mut clock = 0;
        // SAFETY: the calling thread lives, and `clock` outlives the call.
        if unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) } == 0 {
            self.cpu_clock.store(clock, Ordering::Relaxed);
        }
    }

    /// Runs one poll of the task that was started at `task`.
    pub(super) fn poll<T>(&self, task: &'static Location<'static>, poll: impl FnOnce() -> T) -> T {
        let turn = self.turn.load(Ordering::Relaxed);
        self.request.store(0, Ordering::Relaxed);
        self.partition.store(0, Ordering::Relaxed);
        self.task
            .store(ptr::from_ref(task).cast_mut(), Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(1), Ordering::Release);
        let result = poll();
        self.turn.store(turn.wrapping_add(2), Ordering::Release);
        result
    }

    /// What the rest of this poll works on. The partition is said separately.
    pub(super) fn working_on(&self, work: &Work) {
        let mut request = match work.api_key {
            Some(key) => REQUEST | u64::from(key as u16) << 16,
            None => 0,
        };
        if let Some(peer) = work.peer {
            request |= PEER | u64::from(peer.port());
            let [high, low] = halves(match peer.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
                IpAddr::V6(ip) => ip.to_bits(),
            });
            self.peer[0].store(high, Ordering::Relaxed);
            self.peer[1].store(low, Ordering::Relaxed);
        }
        self.request.store(request, Ordering::Relaxed);
        if let Some((topic, index)) = work.partition {
            self.working_at(topic, index);
        }
    }

    /// The partition that the rest of this poll works on.
    pub(super) fn working_at(&self, topic: u128, index: i32) {
        let [high, low] = halves(topic);
        self.topic[0].store(high, Ordering::Relaxed);
        self.topic[1].store(low, Ordering::Relaxed);
        let number = (index as u32).wrapping_add(1);
        self.partition.store(number, Ordering::Relaxed);
    }

    fn work(&self) -> Work {
        let request = self.request.load(Ordering::Relaxed);
        let peer = join(&self.peer);
        let partition = self.partition.load(Ordering::Relaxed);
        let topic = join(&self.topic);
        Work {
            api_key: (request & REQUEST != 0).then_some((request >> 16) as u16 as i16),
            peer: (request & PEER != 0).then(|| {
                let ip = IpAddr::V6(Ipv6Addr::from_bits(peer)).to_canonical();
                SocketAddr::new(ip, request as u16)
            }),
            partition: (partition != 0).then_some((topic, partition.wrapping_sub(1) as i32)),
        }
    }

    #[allow(unsafe_code)]
    fn task(&self) -> String {
        let task = self.task.load(Ordering::Relaxed);
        // SAFETY: null, or made of a reference that is never dropped.
        match unsafe { task.as_ref() } {
            Some(at) => format!("{}:{}", at.file(), at.line()),
            None => "unknown".to_owned(),
        }
    }

    /// The thread's CPU time.
    #[allow(unsafe_code)]
    fn cpu(&self) -> Option<Duration> {
        let clock = self.cpu_clock.load(Ordering::Relaxed);
        if clock == 0 {
            return None;
        }
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` outlives the call. The clock of a thread that has ended is an error.
        let failed = unsafe { libc::clock_gettime(clock, &mut time) } != 0;
        (!failed).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

/// The watch over one executor: the nudging thread's.
#[derive(Debug)]
pub(super) struct Watch {
    name: String,
    beat: Arc<Beat>,
    plan: StallWatch,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    turn: u64,
    since: Instant,
    cpu: Option<Duration>,
    /// The number of the stall that lasts.
    stall: Option<u64>,
}

impl Watch {
    pub(super) fn new(name: String, beat: Arc<Beat>, plan: StallWatch) -> Watch {
        Watch {
            name,
            beat,
            plan,
            seen: Mutex::new(Seen {
                turn: 0,
                since: Instant::now(),
                cpu: None,
                stall: None,
            }),
        }
    }

    /// Looks once. True while a task is polled.
    pub(super) fn look(&self) -> bool {
        let mut seen = nudge::locked(&self.seen);
        let turn = self.beat.turn.load(Ordering::Acquire);
        let now = Instant::now();
        let is_polling = turn % 2 == 1;
        let lasted = now.duration_since(seen.since);
        let cpu_then = seen.cpu;
        let ran = || Some(self.beat.cpu()?.saturating_sub(cpu_then?));
        if turn != seen.turn || !is_polling {
            if let Some(number) = seen.stall.take() {
                self.tell(number, lasted, ran(), true);
            }
            *seen = Seen {
                turn,
                since: now,
                cpu: is_polling.then(|| self.beat.cpu()).flatten(),
                stall: None,
            };
        } else if let Some(number) = seen.stall {
            self.tell(number, lasted, ran(), false);
        } else if lasted >= self.plan.threshold {
            let ran = ran();
            seen.stall = self.begun(turn, lasted, ran);
        }
        is_polling
    }

    /// Records a stall, with what can be told of it for sure.
    fn begun(&self, turn: u64, lasted: Duration, ran: Option<Duration>) -> Option<u64> {
        let (work, task) = (self.beat.work(), self.beat.task());
        let work = match self.beat.work() == work {
            true => work,
            false => Work::default(),
        };
        // What was read above was read before the number is.
        fence(Ordering::Acquire);
        if self.beat.turn.load(Ordering::Relaxed) != turn {
            // It has just ended, and what was read may be the next one's.
            return None;
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let began = wall.unwrap_or_default().saturating_sub(lasted);
        Some(self.plan.stalls.begun(Stall {
            number: 0,
            executor: self.name.clone(),
            began_ms: began.as_millis() as i64,
            lasted,
            ran,
            ended: false,
            task,
            work,
        }))
    }

    fn tell(&self, number: u64, lasted: Duration, ran: Option<Duration>, ended: bool) {
        let now = nudge::since_start();
        self.plan.stalls.lasts(number, lasted, ran, ended, now);
    }
}

fn halves(whole: u128) -> [u64; 2] {
    [(whole >> 64) as u64, whole as u64]
}

fn join(halves: &[AtomicU64; 2]) -> u128 {
    let [high, low] = halves.each_ref().map(|half| half.load(Ordering::Relaxed));
    u128::from(high) << 64 | u128::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::native::{spawn_executor, ExecutorPlan};
    use crate::runtime::Queue;

    #[test]
    fn beats_share_no_cache_lines() {
        let beats: Vec<Arc<Beat>> = (0..8).map(|_| Arc::default()).collect();
        let mut lines: Vec<usize> = beats
            .iter()
            .flat_map(|beat| {
                let first = ptr::from_ref::<Beat>(beat) as usize / 128;
                first..first + size_of::<Beat>().div_ceil(128)
            })
            .collect();
        let all = lines.len();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), all);
        assert!(beats
            .iter()
            .all(|beat| (ptr::from_ref::<Beat>(beat) as usize).is_multiple_of(128)));
    }

    #[test]
    fn what_is_said_is_what_is_read() {
        let beat = Beat::default();
        assert_eq!(beat.work(), Work::default());
        for peer in ["127.0.0.1:9092", "[2001:db8::7]:65535"] {
            for (api_key, partition) in [(0, (u128::MAX - 5, 0)), (-1, (7, i32::MAX - 1))] {
                let work = Work {
                    api_key: Some(api_key),
                    peer: Some(peer.parse().unwrap()),
                    partition: Some(partition),
                };
                beat.working_on(&work);
                assert_eq!(beat.work(), work);
            }
        }
        // A new poll has said nothing yet.
        beat.poll(Location::caller(), || {
            assert_eq!(beat.work(), Work::default());
        });
    }

    /// A task holds its core for as long as it takes to be seen; others, which give way, are not blamed.
    #[test]
    fn a_task_that_holds_its_core_is_named() {
        let stalls = Stalls::new(|_| None);
        let plan = ExecutorPlan {
            stalls: Some(StallWatch {
                stalls: stalls.clone(),
                threshold: Duration::from_millis(30),
            }),
            ..ExecutorPlan::new("stalled")
        };
        let work = Work {
            api_key: Some(1),
            peer: Some("10.0.0.7:4711".parse().unwrap()),
            partition: Some((0xabc, 3)),
        };
        let (seen, line) = (stalls.clone(), line!() + 6);
        let executor = spawn_executor(plan, move |rt| async move {
            // An executor that sleeps holds nothing.
            rt.sleep(Duration::from_millis(100)).await;
            let (done, ended) = crate::runtime::local::oneshot();
            let holder = rt.clone();
            rt.spawn(Queue::Latency, async move {
                holder.yield_if_needed().await;
                holder.working_on(&work);
                let began = Instant::now();
                while began.elapsed() < Duration::from_secs(30) {
                    let lasted = seen.latest().first().map(|stall| stall.lasted);
                    if lasted >= Some(Duration::from_millis(100)) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                let _ = done.send(());
            });
            ended.await;
        })
        .unwrap();
        executor.join().unwrap();
        let all = stalls.latest();
        let [stall] = all.as_slice() else {
            panic!("{all:?}")
        };
        assert_eq!(stall.executor, "stalled");
        assert_eq!(stall.work, work);
        assert_eq!(
            stall.task,
            format!("{}:{line}", file!()),
            "where it was started"
        );
        assert!(stall.lasted >= Duration::from_millis(100));
        // It slept nearly all of the time.
        assert!(stall.ran.unwrap() < stall.lasted);
    }
}
