//! Starting executors, and ending them in the order that keeps buffers sound.
//!
//! The order at the end: the main future has finished; what registered is told (a
//! mesh closes its lanes); I/O in flight lands; the buffers that came home are freed;
//! glommio's executor and its ring are dropped; last the home is closed, so that a
//! buffer that comes later is freed by whoever holds it. All on one thread.
//!
//! A start that fails says what to change on the machine.

use super::buf::Home;
use super::rt::{panic_text, NativeRt};
use super::watch::StallWatch;
use crate::runtime::Rt;
use futures_lite::FutureExt;
use glommio::{GlommioError, LocalExecutor, LocalExecutorBuilder, Placement, PoolPlacement};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc;
use std::time::Duration;

/// How one executor is set up.
#[derive(Debug, Clone)]
pub struct ExecutorPlan {
    /// Names its thread and its log lines: `shard-0`, `control`.
    pub name: String,
    /// The CPU it is pinned to; `None` leaves it to the scheduler.
    pub cpu: Option<usize>,
    /// Entries of its rings. More executors fit under RLIMIT_MEMLOCK with fewer.
    pub ring_depth: usize,
    /// How long it looks for work before it sleeps. Needs a `cpu`. It costs that much
    /// CPU after every burst of work.
    pub spin: Duration,
    /// The longest slice of tasks between two looks for I/O.
    pub preempt_timer: Duration,
    /// A panic of a task stops the whole process at once. Otherwise it ends this
    /// executor, and [`ExecutorHandle::join`] reports it.
    pub abort_on_panic: bool,
    /// Where tasks that hold the core too long are recorded, if they are.
    pub stalls: Option<StallWatch>,
}

impl ExecutorPlan {
    /// An unpinned executor with the usual figures.
    pub fn new(name: impl Into<String>) -> ExecutorPlan {
        ExecutorPlan {
            name: name.into(),
            cpu: None,
            ring_depth: 128,
            spin: Duration::ZERO,
            preempt_timer: Duration::from_millis(1),
            abort_on_panic: true,
            stalls: None,
        }
    }

    /// The same, pinned to a CPU of [`cpus`].
    pub fn pinned(mut self, cpu: usize) -> ExecutorPlan {
        self.cpu = Some(cpu);
        self
    }
}

/// Why an executor could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The kernel or a sandbox refuses io_uring.
    #[error(
        "executor {name}: the system refuses io_uring ({detail}). Allow it: `sysctl -w \
         kernel.io_uring_disabled=0`, and in a container a seccomp profile that lets \
         io_uring_setup, io_uring_enter and io_uring_register through (docker and podman: \
         --security-opt seccomp=FILE, as Highwater's scripts/deploy/seccomp.json)"
    )]
    IoUringRefused {
        /// The executor's name.
        name: String,
        /// The system's words.
        detail: String,
    },
    /// The locked memory that the rings need is not allowed.
    #[error(
        "executor {name}: too little locked memory for the rings of io_uring ({detail}). \
         Raise RLIMIT_MEMLOCK: `LimitMEMLOCK=infinity` in the systemd unit, `ulimit -l` \
         in a shell, `--ulimit memlock=-1` for docker; or run fewer shards"
    )]
    LockedMemory {
        /// The executor's name.
        name: String,
        /// The system's words.
        detail: String,
    },
    /// The CPU is not one that this process may use.
    #[error(
        "executor {name}: cannot run on CPU {cpu} ({detail}). The CPUs that this process \
         may use are {allowed:?} (taskset, cpusets and containers restrict them)"
    )]
    Cpu {
        /// The executor's name.
        name: String,
        /// The CPU asked for.
        cpu: usize,
        /// What may be used.
        allowed: Vec<usize>,
        /// The system's words.
        detail: String,
    },
    /// Too many open files.
    #[error(
        "executor {name}: too many open files ({detail}). Raise RLIMIT_NOFILE: \
         `LimitNOFILE=` in the systemd unit, `ulimit -n` in a shell"
    )]
    TooManyFiles {
        /// The executor's name.
        name: String,
        /// The system's words.
        detail: String,
    },
    /// Anything else.
    #[error("executor {name}: cannot start: {detail}")]
    Other {
        /// The executor's name.
        name: String,
        /// The system's words.
        detail: String,
    },
}

/// An executor ended by a panic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("executor {name} died of a panic: {panic}")]
pub struct ExecutorDied {
    /// The executor's name.
    pub name: String,
    /// The panic's text.
    pub panic: String,
}

/// An executor on a thread of its own.
#[must_use = "an executor that nobody joins is cut off when the process ends"]
pub struct ExecutorHandle<T> {
    name: String,
    thread: std::thread::JoinHandle<Result<T, ExecutorDied>>,
}

impl<T> ExecutorHandle<T> {
    /// The executor's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True once its main future has returned and all is torn down.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until it has ended, with what its main future returned. Blocks the
    /// calling thread.
    pub fn join(self) -> Result<T, ExecutorDied> {
        let name = self.name;
        self.thread.join().unwrap_or_else(|panic| {
            Err(ExecutorDied {
                name,
                panic: panic_text(&*panic),
            })
        })
    }
}

/// The CPUs that this process may run on, by sched_getaffinity; empty if the system
/// does not say.
pub fn cpus() -> Vec<usize> {
    core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .map(|core| core.id)
        .collect()
}

/// Raises RLIMIT_NOFILE to its hard limit. Returns the soft and the hard limit in
/// force afterwards.
#[allow(unsafe_code)]
pub fn raise_nofile_limit() -> (u64, u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        let error = std::io::Error::last_os_error();
        tracing::warn!(%error, "cannot read RLIMIT_NOFILE");
        return (0, 0);
    }
    let before = limit.rlim_cur;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the structure outlives the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
            let error = std::io::Error::last_os_error();
            tracing::warn!(%error, before, hard = limit.rlim_max, "cannot raise RLIMIT_NOFILE");
            limit.rlim_cur = before;
        }
    }
    (limit.rlim_cur, limit.rlim_max)
}

/// Runs `f` on an executor on a thread of its own. Returns once the executor has been
/// set up, or with the reason why it could not.
pub fn spawn_executor<T, F, Fut>(plan: ExecutorPlan, f: F) -> Result<ExecutorHandle<T>, StartError>
where
    F: FnOnce(Rt) -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let name = plan.name.clone();
    let (started, starts) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(name.clone())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let executor = match make(&plan) {
                Ok(executor) => {
                    let _ = started.send(Ok(()));
                    executor
                }
                Err(error) => {
                    let died = ExecutorDied {
                        name: plan.name.clone(),
                        panic: "it was never started".to_owned(),
                    };
                    let _ = started.send(Err(error));
                    return Err(died);
                }
            };
            run_to_end(executor, &plan, f)
        })
        .map_err(|error| StartError::Other {
            name: name.clone(),
            detail: format!("no thread: {error}"),
        })?;
    match starts.recv() {
        Ok(Ok(())) => Ok(ExecutorHandle { name, thread }),
        Ok(Err(error)) => Err(error),
        Err(mpsc::RecvError) => {
            let detail = match thread.join() {
                Err(panic) => panic_text(&*panic),
                Ok(_) => "its thread ended".to_owned(),
            };
            Err(StartError::Other { name, detail })
        }
    }
}

/// Runs `f` on an unpinned executor on the calling thread, for tools and tests. A
/// panic in it or in one of its tasks goes on in the caller.
pub fn run<T, F, Fut>(f: F) -> Result<T, StartError>
where
    F: FnOnce(Rt) -> Fut + 'static,
    Fut: Future<Output = T> + 'static,
    T: 'static,
{
    let mut plan = ExecutorPlan::new("main");
    plan.abort_on_panic = false;
    let executor = make(&plan)?;
    match run_to_end(executor, &plan, f) {
        Ok(value) => Ok(value),
        Err(died) => std::panic::resume_unwind(Box::new(died.to_string())),
    }
}

/// The memory that is registered with the ring for small reads, in bytes. Larger
/// figures gain little and count against RLIMIT_MEMLOCK.
const IO_MEMORY_BYTES: usize = 64 * 1024;
/// The preemption timer while none of our queues runs, which is the very first turn:
/// long, because the fault of `nudge.rs` must not hit before the executor can be nudged.
/// Our queues have [`ExecutorPlan::preempt_timer`].
const START_PREEMPT_TIMER: Duration = Duration::from_secs(1);
/// Address space only; deep futures of a debug build need more than the usual 2 MiB.
const STACK_BYTES: usize = 8 << 20;
/// Threads for what blocks. Unpinned and several, so that unlinking a large file delays
/// neither the shard's core nor the next segment's creation. As many as there are syncs of
/// small files under way where many logs are closed or checkpointed at once: the file system
/// takes syncs that come together into one commit, and with 8 such a stop takes about half as
/// long as with 2.
const HELPER_THREADS: usize = 8;

fn make(plan: &ExecutorPlan) -> Result<LocalExecutor, StartError> {
    let placement = match plan.cpu {
        Some(cpu) => {
            let allowed = cpus();
            if !allowed.contains(&cpu) {
                return Err(StartError::Cpu {
                    name: plan.name.clone(),
                    cpu,
                    allowed,
                    detail: "not among them".to_owned(),
                });
            }
            Placement::Fixed(cpu)
        }
        None => Placement::Unbound,
    };
    let builder = LocalExecutorBuilder::new(placement)
        .name(&plan.name)
        .io_memory(IO_MEMORY_BYTES)
        .ring_depth(plan.ring_depth.max(1))
        .preempt_timer(START_PREEMPT_TIMER)
        .blocking_thread_pool_placement(PoolPlacement::Unbound(HELPER_THREADS));
    let builder = if plan.spin.is_zero() {
        builder
    } else {
        builder.spin_before_park(plan.spin)
    };
    builder.make().map_err(|error| start_error(plan, &error))
}

fn start_error(plan: &ExecutorPlan, error: &GlommioError<()>) -> StartError {
    let name = plan.name.clone();
    let detail = error.to_string();
    // glommio tells these two by words only, once they have passed through an I/O error.
    if detail.contains("MemLockLimit") || is_memlock_limit(error) {
        return StartError::LockedMemory { name, detail };
    }
    if matches!(error, GlommioError::IoError(io) if io.kind() == std::io::ErrorKind::Unsupported) {
        return StartError::IoUringRefused { name, detail };
    }
    match (error.raw_os_error(), plan.cpu) {
        (Some(libc::EPERM | libc::EACCES | libc::ENOSYS), _) => {
            StartError::IoUringRefused { name, detail }
        }
        (Some(libc::ENOMEM), _) => StartError::LockedMemory { name, detail },
        // glommio's own check reaches us as text.
        _ if detail.contains("MemLockLimit") => StartError::LockedMemory { name, detail },
        (Some(libc::EMFILE | libc::ENFILE), _) => StartError::TooManyFiles { name, detail },
        (Some(libc::EINVAL), Some(cpu)) => StartError::Cpu {
            name,
            cpu,
            allowed: cpus(),
            detail,
        },
        _ => StartError::Other { name, detail },
    }
}

fn is_memlock_limit(error: &GlommioError<()>) -> bool {
    use glommio::ReactorErrorKind::MemLockLimit;
    matches!(error, GlommioError::ReactorError(MemLockLimit(..)))
}

fn run_to_end<T, F, Fut>(
    executor: LocalExecutor,
    plan: &ExecutorPlan,
    f: F,
) -> Result<T, ExecutorDied>
where
    F: FnOnce(Rt) -> Fut + 'static,
    Fut: Future<Output = T> + 'static,
    T: 'static,
{
    let home = Home::new();
    let here = home.enter();
    let result = executor.run({
        let (plan, home) = (plan.clone(), home.clone());
        async move {
            let rt = NativeRt::start(&plan, home);
            rt.take_nap().await;
            let result = run_main(&rt, f).await;
            rt.end().await;
            result
        }
    });
    drop(executor);
    home.close();
    drop(here);
    let left = home.outstanding();
    if left > 0 {
        tracing::warn!(executor = %plan.name, left, "ended while buffers of it are still held");
    }
    result.map_err(|panic| {
        let died = ExecutorDied {
            name: plan.name.clone(),
            panic,
        };
        tracing::error!("{died}");
        died
    })
}

/// The main future, in the queue of what clients wait for, until it returns or
/// something panics.
async fn run_main<T, F, Fut>(rt: &NativeRt, f: F) -> Result<T, String>
where
    F: FnOnce(Rt) -> Fut + 'static,
    Fut: Future<Output = T> + 'static,
    T: 'static,
{
    let handle = Rt::from(rt.clone());
    let main = AssertUnwindSafe(async move { f(handle).await }).catch_unwind();
    let task = glommio::spawn_local_into(main, rt.latency_queue())
        .expect("the queue lives as long as the executor")
        .detach();
    let finished = async {
        match task.await {
            Some(Ok(value)) => Ok(value),
            Some(Err(panic)) => Err(panic_text(&*panic)),
            None => Err("the main task was cancelled".to_owned()),
        }
    };
    let result = finished.or(async { Err(rt.fatal().await) }).await;
    if let Err(panic) = &result {
        rt.main_panicked(panic);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_refusal_of_the_system_then_the_sentence_says_what_to_change() {
        let plan = ExecutorPlan::new("shard-3").pinned(1);
        let says = |errno: i32| {
            let error = std::io::Error::from_raw_os_error(errno);
            start_error(&plan, &GlommioError::IoError(error)).to_string()
        };
        for errno in [libc::EPERM, libc::ENOSYS, libc::EACCES] {
            assert!(says(errno).contains("kernel.io_uring_disabled=0"));
            assert!(says(errno).contains("seccomp"));
        }
        assert!(says(libc::ENOMEM).contains("LimitMEMLOCK="));
        assert!(says(libc::ENOMEM).contains("ulimit -l"));
        assert!(says(libc::EMFILE).contains("LimitNOFILE="));
        assert!(says(libc::EINVAL).contains("CPU 1"));
        assert!(says(libc::EIO).contains("shard-3"));
        let low = glommio::ReactorErrorKind::MemLockLimit(65_536, 524_288);
        let low = start_error(&plan, &GlommioError::ReactorError(low)).to_string();
        assert!(low.contains("LimitMEMLOCK="), "{low}");
        assert!(low.contains("65536"), "{low}");
        let low = std::io::Error::other("MemLockLimit(65536/524288)");
        let low = start_error(&plan, &GlommioError::IoError(low)).to_string();
        assert!(low.contains("LimitMEMLOCK="), "{low}");
    }
}
