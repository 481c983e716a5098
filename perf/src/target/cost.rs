//! What the kernel says that a process took between two moments.

use crate::results::Cost;
use anyhow::{Context, Result};
use nix::sys::stat::{major, minor};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Counters of a process, and of the machine, at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    at: Instant,
    cpu: Duration,
    resident_bytes: u64,
    /// By thread: those that run.
    switches: HashMap<u32, Switches>,
    written_bytes: u64,
    device_written_bytes: Option<u64>,
    steal: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Switches {
    voluntary: u64,
    involuntary: u64,
}

impl Sample {
    /// Reads them. An error if the process has ended, or is another user's.
    pub fn take(pid: u32, data_dir: Option<&Path>) -> Result<Sample> {
        Ok(Sample {
            at: Instant::now(),
            cpu: cpu_time(pid)?,
            resident_bytes: resident_bytes(pid)?,
            switches: thread_switches(pid)?,
            written_bytes: written_bytes(pid)?,
            device_written_bytes: data_dir.and_then(device_written_bytes),
            steal: steal()?,
        })
    }

    /// From this moment to a later one.
    ///
    /// Context switches of threads that ended meanwhile are not seen: the kernel forgets them with the thread.
    pub fn until(&self, end: &Sample) -> Cost {
        let mut switches = Switches::default();
        for (thread, now) in &end.switches {
            let before = self.switches.get(thread).copied().unwrap_or_default();
            switches.voluntary += now.voluntary.saturating_sub(before.voluntary);
            switches.involuntary += now.involuntary.saturating_sub(before.involuntary);
        }
        let device = self.device_written_bytes.zip(end.device_written_bytes);
        Cost {
            seconds: end.at.saturating_duration_since(self.at).as_secs_f64(),
            cpu_seconds: end.cpu.saturating_sub(self.cpu).as_secs_f64(),
            resident_bytes: end.resident_bytes,
            voluntary_switches: switches.voluntary,
            involuntary_switches: switches.involuntary,
            written_bytes: end.written_bytes.saturating_sub(self.written_bytes),
            device_written_bytes: device.map(|(before, now)| now.saturating_sub(before)),
            steal_seconds: end.steal.saturating_sub(self.steal).as_secs_f64(),
        }
    }
}

/// Resident memory, bytes.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let kib = number_after(&read(pid, "status")?, "VmRSS:")
        .with_context(|| format!("/proc/{pid}/status tells no VmRSS"))?;
    Ok(kib * 1024)
}

/// CPU time that a process has taken, user and system, with that of threads that have ended.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    cpu_time_of(&read(pid, "stat")?).with_context(|| format!("/proc/{pid}/stat tells no CPU time"))
}

fn cpu_time_of(stat: &str) -> Option<Duration> {
    // The name, in parentheses, may hold spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(ticks(user + system))
}

/// What the process caused to be written to storage. Writes to the page cache count when the page becomes dirty.
fn written_bytes(pid: u32) -> Result<u64> {
    // Not `cancelled_write_bytes:`.
    number_after(&read(pid, "io")?, "write_bytes:")
        .with_context(|| format!("/proc/{pid}/io tells no write_bytes"))
}

fn thread_switches(pid: u32) -> Result<HashMap<u32, Switches>> {
    let dir = format!("/proc/{pid}/task");
    let mut switches = HashMap::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("no process {pid}"))? {
        let name = entry?.file_name();
        let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A thread may have ended meanwhile.
        let status = fs::read_to_string(format!("{dir}/{thread}/status"));
        if let Some(of_thread) = status.ok().as_deref().and_then(switches_of) {
            switches.insert(thread, of_thread);
        }
    }
    Ok(switches)
}

fn switches_of(status: &str) -> Option<Switches> {
    Some(Switches {
        voluntary: number_after(status, "voluntary_ctxt_switches:")?,
        involuntary: number_after(status, "nonvoluntary_ctxt_switches:")?,
    })
}

/// Of all CPUs, since the machine's start.
fn steal() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat").context("/proc/stat can't be read")?;
    steal_of(&stat).context("/proc/stat tells no steal time")
}

fn steal_of(stat: &str) -> Option<Duration> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    all.split_whitespace().nth(7)?.parse().ok().map(ticks)
}

/// Of the block device, or its partition, that a directory lies on; none where there is none, as with tmpfs or btrfs.
fn device_written_bytes(dir: &Path) -> Option<u64> {
    let device = fs::metadata(dir).ok()?.dev();
    let (major, minor) = (major(device), minor(device));
    device_written_of(&fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
}

fn device_written_of(stat: &str) -> Option<u64> {
    /// Whatever the device's own sectors are.
    const SECTOR_BYTES: u64 = 512;
    let sectors: u64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * SECTOR_BYTES)
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| {
        format!("{path} can't be read: the process has ended, or is another user's")
    })
}

/// The number in the line that begins with a name.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Ticks in which the kernel tells times; 100 a second on every machine that Linux supports today.
fn ticks(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(10))
}

#[cfg(test)]
mod tests {
    use super::super::fake::beside_the_tests;
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_name_of_any_shape() {
        let stat =
            "17 (a) b (c)) S 1 17 17 0 -1 4194560 100 0 2 0 250 50 7 7 20 0 4 0 5000 1000 200";
        assert_eq!(cpu_time_of(stat), Some(Duration::from_secs(3)));
        for bad in [
            "",
            "17 (a",
            "17 (a) S 1 17",
            "17 (a) S 1 2 3 4 5 6 7 8 9 10 x y",
        ] {
            assert_eq!(cpu_time_of(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn switches_are_told_apart() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        let expected = Switches {
            voluntary: 150,
            involuntary: 545,
        };
        assert_eq!(switches_of(status), Some(expected));
        assert_eq!(switches_of("voluntary_ctxt_switches:\t150\n"), None);
    }

    #[test]
    fn steal_is_the_eighth_figure_of_all_cpus() {
        let stat = "cpu  1 2 3 4 5 6 7 850 9 10\ncpu0 1 2 3 4 5 6 7 400 9 10\n";
        assert_eq!(steal_of(stat), Some(Duration::from_millis(8500)));
        assert_eq!(steal_of("cpu  1 2 3 4\n"), None);
        assert_eq!(steal_of("cpu0 1 2 3 4 5 6 7 8\n"), None);
    }

    #[test]
    fn a_devices_writes_are_told_in_sectors_of_512_bytes() {
        let stat = "  100  5  800  20  300  7  4096  90  0  80  110\n";
        assert_eq!(device_written_of(stat), Some(4096 * 512));
        assert_eq!(device_written_of("1 2 3"), None);
    }

    #[test]
    fn a_name_that_another_one_ends_with_is_not_taken_for_it() {
        let io = "rchar: 5\nread_bytes: 7\ncancelled_write_bytes: 9\nwrite_bytes: 4096\n";
        assert_eq!(number_after(io, "write_bytes:"), Some(4096));
        assert_eq!(number_after("write_bytes: many\n", "write_bytes:"), None);
    }

    #[test]
    fn this_process_costs_what_it_does() {
        let dir = tempfile::tempdir_in(beside_the_tests()).unwrap();
        let start = Sample::take(std::process::id(), Some(dir.path())).unwrap();
        let busy = Instant::now();
        while busy.elapsed() < Duration::from_millis(50) {
            std::hint::black_box(cpu_time_of(&"x".repeat(1000)));
        }
        std::thread::sleep(Duration::from_millis(1));
        let end = Sample::take(std::process::id(), Some(dir.path())).unwrap();
        let cost = start.until(&end);
        assert!(cost.seconds >= 0.05, "{cost:?}");
        assert!(cost.cpu_seconds > 0.0, "{cost:?}");
        assert!(cost.resident_bytes > 1 << 20, "{cost:?}");
        assert!(cost.voluntary_switches > 0, "{cost:?}");
    }

    #[test]
    fn threads_that_begin_count_and_those_that_end_do_not() {
        let sample = |threads: &[(u32, u64)]| Sample {
            at: Instant::now(),
            cpu: Duration::ZERO,
            resident_bytes: 0,
            switches: threads
                .iter()
                .map(|&(thread, voluntary)| {
                    let switches = Switches {
                        voluntary,
                        involuntary: 0,
                    };
                    (thread, switches)
                })
                .collect(),
            written_bytes: 0,
            device_written_bytes: None,
            steal: Duration::ZERO,
        };
        let cost = sample(&[(1, 10), (2, 20)]).until(&sample(&[(1, 15), (3, 7)]));
        assert_eq!(cost.voluntary_switches, 12);
        assert_eq!(cost.device_written_bytes, None);
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        let error = Sample::take(u32::MAX, None).unwrap_err();
        assert!(error.to_string().contains("has ended"), "{error}");
    }
}
