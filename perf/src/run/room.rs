//! The machine: what it is, and whether it has the room that a run needs.

use crate::results::Machine;
use anyhow::{bail, Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub fn machine(dir: &Path) -> Result<Machine> {
    let cpuinfo = read("/proc/cpuinfo")?;
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown", |(_, model)| model.trim());
    Ok(Machine {
        cpu: model.to_owned(),
        cpus: cpus()?.len(),
        memory_bytes: memory("MemTotal:")?,
        kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        file_system: file_system(dir)?,
    })
}

/// The CPUs on which this process may run.
pub fn cpus() -> Result<Vec<usize>> {
    let status = read("/proc/self/status")?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    cpu_list(list.context("/proc/self/status tells no CPUs")?.trim())
}

/// `0-3,8`.
pub fn cpu_list(text: &str) -> Result<Vec<usize>> {
    let parse = |text: &str| -> Option<BTreeSet<usize>> {
        let mut cpus = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) =
                (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if first > last || last > 4096 {
                return None;
            }
            cpus.extend(first..=last);
        }
        Some(cpus)
    };
    match parse(text) {
        Some(cpus) => Ok(cpus.into_iter().collect()),
        None => bail!("{text:?} is no list of CPUs such as 0-3,8"),
    }
}

/// The CPUs of the broker and of the client: those that are asked for, else half of them each.
pub fn split_cpus(
    all: &[usize],
    broker: Option<&str>,
    client: Option<&str>,
) -> Result<(Vec<usize>, Vec<usize>)> {
    let asked = |option: &str, list: &str| {
        let cpus = cpu_list(list).with_context(|| option.to_owned())?;
        if let Some(cpu) = cpus.iter().find(|cpu| !all.contains(cpu)) {
            bail!("{option} {list}: this process may not run on CPU {cpu}, only on {all:?}");
        }
        Ok(cpus)
    };
    let broker = broker
        .map(|list| asked("--broker-cpus", list))
        .transpose()?;
    let client = client
        .map(|list| asked("--client-cpus", list))
        .transpose()?;
    let others = |taken: &[usize]| -> Vec<usize> {
        let others: Vec<usize> = all
            .iter()
            .copied()
            .filter(|cpu| !taken.contains(cpu))
            .collect();
        if others.is_empty() {
            all.to_vec()
        } else {
            others
        }
    };
    Ok(match (broker, client) {
        (Some(broker), Some(client)) => (broker, client),
        (Some(broker), None) => {
            let client = others(&broker);
            (broker, client)
        }
        (None, Some(client)) => (others(&client), client),
        (None, None) => {
            let half = &all[..all.len().div_ceil(2)];
            (half.to_vec(), others(half))
        }
    })
}

/// The limit of each broker's memory unless another is asked for: a quarter of the machine's, at most 4 GiB.
pub fn default_memory() -> Result<u64> {
    Ok((memory("MemTotal:")? / 4).min(4 << 30))
}

/// Makes the directory if it is not there, and sees that it can be written to.
pub fn writable(dir: &Path) -> Result<()> {
    let probe = dir.join(format!(".perf-{}", std::process::id()));
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(&probe, b"x"))
        .and_then(|()| fs::remove_file(&probe))
        .with_context(|| format!("--out {}: nothing can be written there", dir.display()))
}

/// `ext4 on /dev/vda1`.
fn file_system(dir: &Path) -> Result<String> {
    let dir = fs::canonicalize(dir).with_context(|| format!("{} is not there", dir.display()))?;
    let mounts = read("/proc/self/mountinfo")?;
    let of_dir = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        let mut kind = kind.split(' ');
        let name = format!("{} on {}", kind.next()?, kind.next()?);
        dir.starts_with(point).then_some((point.len(), name))
    });
    // The innermost one; of two at the same place, the later one.
    Ok(of_dir
        .max_by_key(|(length, _)| *length)
        .map_or("unknown".to_owned(), |(_, name)| name))
}

/// A line of /proc/meminfo, bytes.
fn memory(name: &str) -> Result<u64> {
    let text = read("/proc/meminfo")?;
    let kib = text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
    });
    Ok(kib.with_context(|| format!("/proc/meminfo tells no {name}"))? * 1024)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{path} can't be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_list("0").unwrap(), [0]);
        assert_eq!(cpu_list("2,0-1").unwrap(), [0, 1, 2]);
        for bad in ["", "a", "3-1", "0-", "0-99999999"] {
            assert!(cpu_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_side_gets_half_unless_told_otherwise() {
        let split = |all: &[usize], broker, client| split_cpus(all, broker, client).unwrap();
        assert_eq!(split(&[0, 1], None, None), (vec![0], vec![1]));
        assert_eq!(split(&[0, 1, 2, 3], None, None), (vec![0, 1], vec![2, 3]));
        assert_eq!(
            split(&[0, 1, 2, 3], None, Some("3")),
            (vec![0, 1, 2], vec![3])
        );
        assert_eq!(split(&[0, 1], Some("0-1"), None), (vec![0, 1], vec![0, 1]));
        assert_eq!(split(&[0], None, None), (vec![0], vec![0]));
        assert!(split_cpus(&[0, 1], Some("7"), None).is_err());
    }

    #[test]
    fn the_machine_is_told() {
        let machine = machine(Path::new(".")).unwrap();
        assert!(machine.memory_bytes > 0 && machine.cpus > 0);
        assert!(
            machine.file_system.contains(" on "),
            "{}",
            machine.file_system
        );
    }

    #[test]
    fn a_file_is_no_place_to_write_to() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = format!("{:#}", writable(file.path()).unwrap_err());
        assert!(error.contains("--out"), "{error}");
    }
}
