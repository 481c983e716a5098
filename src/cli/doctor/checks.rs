//! The checks: from what the machine says to a verdict.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::disk::DiskSpeed;
use super::mount::Mount;
use super::{shown, size, Check, Measured};
use crate::runtime::native::{self, ExecutorPlan, ProcessLimit};
use crate::runtime::{IoErrorKind, Space};

pub(super) fn kernel() -> Check {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    judged_kernel(release.trim())
}

fn judged_kernel(release: &str) -> Check {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    let check = Check::new(
        "kernel",
        format!("Linux {release}"),
        json!({ "release": release }),
    );
    match version {
        Some(version) if version >= KERNEL_MIN => check,
        Some(_) => check.fail("io_uring needs Linux 5.8 or later: upgrade the kernel"),
        None => check.warn("the version cannot be read; Linux 5.8 or later is needed"),
    }
}

/// Starts as many executors as a broker with the default settings has: the shards, pinned, and the control executor.
pub(super) fn io_uring(cpus: &[usize]) -> Check {
    let control = std::iter::once(ExecutorPlan::new("control"));
    let shards = cpus
        .iter()
        .map(|cpu| ExecutorPlan::new(format!("shard-{cpu}")).pinned(*cpu));
    let mut started = Vec::new();
    let mut refused = None;
    for plan in control.chain(shards) {
        let hold = |rt: crate::runtime::Rt| async move { rt.sleep(EXECUTORS_HELD).await };
        match native::spawn_executor(plan, hold) {
            Ok(executor) => started.push(executor),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let count = started.len();
    for executor in started {
        if let Err(died) = executor.join() {
            let check = Check::new("io_uring", died.to_string(), json!({ "executors": count }));
            return check.fail("report this with the kernel's version");
        }
    }
    let wanted = cpus.len() + 1;
    let check = Check::new(
        "io_uring",
        format!(
            "{count} of {wanted} executors started (a shard for each CPU, and one for control)"
        ),
        json!({ "executors": count, "wanted": wanted }),
    );
    match refused {
        None => check,
        // Fewer shards would run.
        Some(error) if count >= 2 => check.warn(format!("{error}; or set shards={}", count - 1)),
        Some(error) => check.fail(error.to_string()),
    }
}

pub(super) fn memlock(limit: io::Result<ProcessLimit>) -> Check {
    let limit = match limit {
        Ok(limit) => limit,
        Err(error) => return unreadable("memlock", "RLIMIT_MEMLOCK", &error),
    };
    let found = limit.soft.map_or("no limit".to_owned(), size);
    let check = Check::new(
        "memlock",
        format!("RLIMIT_MEMLOCK: {found}"),
        limit_json(limit),
    );
    match limit.soft {
        Some(soft) if soft < MEMLOCK_MIN => check.fail(format!(
            "an executor needs {}: set LimitMEMLOCK=infinity in the systemd unit, `ulimit -l`, or docker's --ulimit memlock=-1",
            size(MEMLOCK_MIN)
        )),
        _ => check,
    }
}

pub(super) fn nofile(limit: io::Result<ProcessLimit>) -> Check {
    let limit = match limit {
        Ok(limit) => limit,
        Err(error) => return unreadable("nofile", "RLIMIT_NOFILE", &error),
    };
    let hard = limit
        .hard
        .map_or("no limit".to_owned(), |hard| hard.to_string());
    let found =
        format!("RLIMIT_NOFILE: {hard} open files (the broker raises its limit to the hard one)");
    let check = Check::new("nofile", found, limit_json(limit));
    let advice = "a connection takes one file and a partition several: set LimitNOFILE=524288 in the systemd unit, `ulimit -Hn`, \
                  or docker's --ulimit nofile=524288";
    match limit.hard {
        Some(hard) if hard < NOFILE_MIN => check.fail(advice),
        Some(hard) if hard < NOFILE_WANTED => check.warn(advice),
        _ => check,
    }
}

fn limit_json(limit: ProcessLimit) -> serde_json::Value {
    json!({ "soft": limit.soft, "hard": limit.hard })
}

fn unreadable(name: &'static str, what: &str, error: &io::Error) -> Check {
    let check = Check::new(name, format!("{what} cannot be read: {error}"), json!({}));
    check.warn("nothing is known about it")
}

/// CPUs' worth of time that the control group allows, of `cpu.max` up to the root.
pub(super) fn cpu_quota() -> Option<f64> {
    let group = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = group.lines().find_map(|line| line.strip_prefix("0::"))?;
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(group.trim_start_matches('/'));
    let levels = own.ancestors().take_while(|level| level.starts_with(root));
    let quotas =
        levels.filter_map(|level| quota(&std::fs::read_to_string(level.join("cpu.max")).ok()?));
    quotas.reduce(f64::min)
}

/// `150000 100000` is one and a half CPUs; `max` is no limit.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

pub(super) fn cpu(cpus: &[usize], quota: Option<f64>) -> Check {
    let allowed = quota.map_or(String::new(), |quota| {
        format!(", and the control group allows the time of {quota:.1}")
    });
    let check = Check::new(
        "cpu",
        format!("{} usable CPUs {cpus:?}{allowed}", cpus.len()),
        json!({ "cpus": cpus, "quota": quota }),
    );
    match quota {
        _ if cpus.is_empty() => check.warn("the CPUs cannot be told; shards will not be pinned"),
        Some(quota) if quota < cpus.len() as f64 => check.warn(format!(
            "a shard is stopped in the middle of its work when the time is used up: set shards={}, or give the container whole CPUs (a cpuset) and no quota",
            (quota as usize).max(1)
        )),
        _ => check,
    }
}

pub(super) fn memory(bytes: u64) -> Check {
    let check = Check::new(
        "memory",
        format!("{} that the broker may use", size(bytes)),
        json!({ "bytes": bytes }),
    );
    match bytes < MEMORY_WANTED {
        true => check.warn("give it at least 1 GiB, or few requests fit into memory at a time"),
        false => check,
    }
}

/// The directory itself, or what is there of the way to it.
pub(super) fn nearest_directory(path: &Path) -> PathBuf {
    // A relative path has the current directory above it.
    let above = std::iter::once(Path::new("."));
    let mut levels = path
        .ancestors()
        .filter(|level| !level.as_os_str().is_empty())
        .chain(above);
    let found = levels.find_map(|level| {
        std::fs::canonicalize(level)
            .ok()
            .filter(|found| found.is_dir())
    });
    found.unwrap_or_else(|| PathBuf::from("/"))
}

pub(super) fn mount_of(dir: &Path) -> Option<Mount> {
    Mount::of(&mountinfo(), dir)
}

/// The mounts; nothing where they cannot be read.
pub(super) fn mountinfo() -> String {
    let bytes = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn file_system(asked: &Path, dir: &Path, mount: Option<&Mount>) -> Check {
    let place = match asked.is_dir() {
        true => format!("{}", asked.display()),
        false => format!(
            "{} (not there yet; looked at {})",
            asked.display(),
            dir.display()
        ),
    };
    if asked.exists() && !asked.is_dir() {
        let found = format!("{} is not a directory", asked.display());
        return Check::new("file_system", found, json!({}))
            .fail("name a directory with --data-dir");
    }
    let Some(mount) = mount else {
        let check = Check::new(
            "file_system",
            format!("{place}: the mount cannot be told"),
            json!({}),
        );
        return check.warn("nothing is known about it");
    };
    let found = format!(
        "{place}: {} of {} on {}, {}",
        mount.file_system,
        mount.source,
        mount.point.display(),
        mount.options.join(",")
    );
    let figures = json!({
        "type": mount.file_system,
        "source": mount.source,
        "mount_point": mount.point.display().to_string(),
        "options": mount.options,
    });
    let check = Check::new("file_system", found, figures);
    match mount.file_system.as_str() {
        _ if mount.has("ro") => check.fail("it is mounted read-only: mount it rw, or name another --data-dir"),
        _ if mount.unflushed_by().is_some() => {
            let option = mount.unflushed_by().unwrap_or_default();
            check.warn(format!(
                "with {option} a power cut takes what was acknowledged as flushed: mount it without"
            ))
        }
        "ext4" | "ext3" if mount.has("data=writeback") => check.warn(
            "with data=writeback a power cut may leave old content of the disk where unflushed records were; checksums find it, and what was flushed stays: mount it with data=ordered",
        ),
        "ext4" | "xfs" => check,
        "tmpfs" | "ramfs" => check.warn("it is memory: nothing outlives a restart of the machine; name a directory on a disk"),
        "overlay" => check.warn("it is a container's own layer, slow and deleted with it: put the data on a volume"),
        "btrfs" if mount.has("nodatasum") || mount.has("nodatacow") => check.warn(
            "without its checksums nothing tells which of two mirrors is right after a power cut: ext4 or xfs are what the broker is made for",
        ),
        "btrfs" | "zfs" | "bcachefs" => {
            check.warn("it copies on write, which makes flushes slow: ext4 or xfs are what the broker is made for")
        }
        _ => check.warn("ext4 and xfs on a local disk are what the broker is made and tested for"),
    }
}

pub(super) fn space(space: io::Result<Space>) -> Check {
    let space = match space {
        Ok(space) => space,
        Err(error) => return unreadable("space", "the free space", &error),
    };
    let check = Check::new(
        "space",
        format!(
            "{} free of {}",
            size(space.usable_bytes),
            size(space.total_bytes)
        ),
        json!({ "free_bytes": space.usable_bytes, "total_bytes": space.total_bytes }),
    );
    match space.usable_bytes {
        free if free < SPACE_MIN => check.fail("make room, or name another --data-dir"),
        free if free < SPACE_WANTED => {
            check.warn("a segment alone takes up to log.segment.bytes (1 GiB): make room, or set retention.bytes")
        }
        _ => check,
    }
}

/// Whether the file system takes direct writes at all.
pub(super) fn direct_io(measured: &Measured) -> Option<Check> {
    let error = match measured {
        Ok(Ok(_)) => {
            return Some(Check::new(
                "direct_io",
                "direct writes and fdatasync work",
                json!({}),
            ))
        }
        // The check of io_uring has told it.
        Err(_) => return None,
        Ok(Err(error)) => error,
    };
    let advice = match error.kind {
        IoErrorKind::DirectIoRefused => {
            "the file system refuses direct I/O: put the data on ext4 or xfs"
        }
        IoErrorKind::Denied => {
            "let the user of the broker write there (chown), or name another --data-dir"
        }
        IoErrorKind::NoSpace => "make room, or name another --data-dir",
        IoErrorKind::Device => {
            "the disk fails, or its file system is read-only: look into the kernel's log (dmesg)"
        }
        _ => "name another --data-dir",
    };
    Some(Check::new("direct_io", error.to_string(), json!({})).fail(advice))
}

/// How long a flush takes. Whether that can be true, `honesty.rs` judges.
/// `write_cache`: what the kernel thinks the device does with writes, `write back` or `write through`; none if it is no
/// block device, or does not say.
pub(super) fn flush(speed: &DiskSpeed, write_cache: Option<&str>) -> Check {
    let us = |time: Duration| time.as_micros() as u64;
    let cache = match write_cache {
        Some("write back") => "the disk says that it has a cache which flushes empty",
        Some("write through") => {
            "the disk says that it has no cache that forgets, so the kernel sends it no flushes"
        }
        _ => "the kernel does not say whether the disk has a cache",
    };
    let found = format!(
        "fdatasync of 4 KiB: p50 {}, p99 {}, longest {} ({} writes); {cache}",
        shown(speed.flush.p50),
        shown(speed.flush.p99),
        shown(speed.flush.max),
        speed.rounds
    );
    let figures = json!({
        "rounds": speed.rounds,
        "write_p50_us": us(speed.write.p50),
        "write_p99_us": us(speed.write.p99),
        "fdatasync_p50_us": us(speed.flush.p50),
        "fdatasync_p99_us": us(speed.flush.p99),
        "fdatasync_max_us": us(speed.flush.max),
        "write_cache": write_cache,
    });
    let check = Check::new("flush", found, figures);
    match speed.flush.p50 {
        p50 if p50 > FLUSH_SLOW => check.warn(
            "every acks=all answer waits for one: a disk with power-loss protection flushes in well under 1 ms; or let producers batch more (linger.ms)",
        ),
        _ => check,
    }
}

const KERNEL_MIN: (u32, u32) = (5, 8);
/// How long the executors of the check live, so that all live at once.
const EXECUTORS_HELD: Duration = Duration::from_millis(100);
/// What glommio asks for.
const MEMLOCK_MIN: u64 = 512 << 10;
const NOFILE_MIN: u64 = 256;
const NOFILE_WANTED: u64 = 65_536;
const MEMORY_WANTED: u64 = 1 << 30;
const SPACE_MIN: u64 = 64 << 20;
const SPACE_WANTED: u64 = 5 << 30;
const FLUSH_SLOW: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::super::disk::Percentiles;
    use super::super::Verdict;
    use super::*;

    #[test]
    fn kernels_are_compared_by_number() {
        let verdict = |release| judged_kernel(release).verdict;
        assert_eq!(verdict("5.8.0"), Verdict::Ok);
        assert_eq!(verdict("5.10.0-21-amd64"), Verdict::Ok);
        assert_eq!(verdict("6.1"), Verdict::Ok);
        assert_eq!(verdict("5.4.0-100"), Verdict::Fail);
        assert_eq!(verdict("4.19.0"), Verdict::Fail);
        assert_eq!(verdict("unknown"), Verdict::Warn);
    }

    #[test]
    fn limits_have_verdicts() {
        let limit = |hard| Ok(ProcessLimit { soft: hard, hard });
        assert_eq!(memlock(limit(None)).verdict, Verdict::Ok);
        assert_eq!(memlock(limit(Some(8 << 20))).verdict, Verdict::Ok);
        assert_eq!(memlock(limit(Some(64 << 10))).verdict, Verdict::Fail);
        assert_eq!(nofile(limit(Some(1 << 20))).verdict, Verdict::Ok);
        assert_eq!(nofile(limit(Some(4096))).verdict, Verdict::Warn);
        assert_eq!(nofile(limit(Some(100))).verdict, Verdict::Fail);
        assert_eq!(nofile(Err(io::Error::other("x"))).verdict, Verdict::Warn);
    }

    #[test]
    fn a_quota_below_the_cpus_is_told() {
        assert_eq!(quota("150000 100000\n"), Some(1.5));
        assert_eq!(quota("max 100000\n"), None);
        assert_eq!(cpu(&[0, 1], None).verdict, Verdict::Ok);
        assert_eq!(cpu(&[0, 1], Some(2.0)).verdict, Verdict::Ok);
        let tight = cpu(&[0, 1, 2], Some(1.5));
        assert!(tight.verdict == Verdict::Warn && tight.advice.unwrap().contains("shards=1"));
    }

    #[test]
    fn file_systems_have_verdicts() {
        let mount = |file_system: &str, options: &[&str]| Mount {
            point: "/".into(),
            file_system: file_system.to_owned(),
            source: "x".to_owned(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            device: "0:0".to_owned(),
        };
        let verdict =
            |mount: Mount| file_system(Path::new("/"), Path::new("/"), Some(&mount)).verdict;
        assert_eq!(verdict(mount("ext4", &["rw"])), Verdict::Ok);
        assert_eq!(verdict(mount("ext4", &["ro"])), Verdict::Fail);
        let a_file = file_system(Path::new("Cargo.toml"), Path::new("."), None);
        assert_eq!(a_file.verdict, Verdict::Fail);
        for (name, option) in [
            ("xfs", "nobarrier"),
            ("ext4", "barrier=0"),
            ("ext4", "data=writeback"),
            ("btrfs", "nodatacow"),
        ] {
            assert_eq!(
                verdict(mount(name, &["rw", option])),
                Verdict::Warn,
                "{option}"
            );
        }
        assert_eq!(verdict(mount("ext4", &["rw", "data=ordered"])), Verdict::Ok);
        for odd in ["tmpfs", "overlay", "btrfs", "nfs4"] {
            assert_eq!(verdict(mount(odd, &["rw"])), Verdict::Warn, "{odd}");
        }
        let free = |usable_bytes| {
            space(Ok(Space {
                total_bytes: 1 << 40,
                usable_bytes,
            }))
            .verdict
        };
        assert_eq!(
            (free(1 << 39), free(1 << 30), free(1 << 20)),
            (Verdict::Ok, Verdict::Warn, Verdict::Fail)
        );
    }

    #[test]
    fn a_slow_flush_is_told() {
        let verdict = |us: u64, cache| {
            let time = Duration::from_micros(us);
            let times = Percentiles {
                p50: time,
                p99: time,
                max: time,
            };
            let speed = DiskSpeed {
                rounds: 1,
                write: times,
                flush: times,
                both: times,
            };
            flush(&speed, cache).verdict
        };
        assert_eq!(verdict(300, Some("write back")), Verdict::Ok);
        assert_eq!(verdict(10, Some("write through")), Verdict::Ok);
        assert_eq!(verdict(20_000, None), Verdict::Warn);
    }

    #[test]
    fn the_nearest_directory_is_above_what_is_not_there() {
        let here = std::fs::canonicalize(".").unwrap();
        assert_eq!(nearest_directory(Path::new("no-such/directory")), here);
        assert_eq!(
            nearest_directory(Path::new("./src/no-such")),
            here.join("src")
        );
        assert_eq!(nearest_directory(Path::new("/no-such")), Path::new("/"));
    }
}
