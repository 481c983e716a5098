//! What the process takes of the machine, by /proc.

/// Figures of the process; `None` where the system does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessFigures {
    /// Memory in RAM, bytes.
    pub resident_bytes: Option<u64>,
    /// Address space, bytes.
    pub virtual_bytes: Option<u64>,
    /// CPU time, user and system, seconds.
    pub cpu_seconds: Option<f64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Open descriptors.
    pub open_fds: Option<u64>,
    /// The limit of open descriptors.
    pub max_fds: Option<u64>,
}

/// The figures now. Reads files: call it on a helper thread.
#[allow(unsafe_code)]
pub fn process_figures() -> ProcessFigures {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let limit = super::limits::nofile_limit().ok();
    let mut used = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure outlives the call.
    let timed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut used) } == 0;
    ProcessFigures {
        resident_bytes: number("VmRSS:").map(|kib| kib * 1024),
        virtual_bytes: number("VmSize:").map(|kib| kib * 1024),
        cpu_seconds: timed.then(|| used.tv_sec as f64 + used.tv_nsec as f64 / 1e9),
        threads: number("Threads:"),
        open_fds: std::fs::read_dir("/proc/self/fd")
            .ok()
            // The directory itself is open while it is read.
            .map(|fds| (fds.count() as u64).saturating_sub(1)),
        max_fds: limit.and_then(|limit| limit.soft),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_figures() {
        let figures = process_figures();
        assert!(figures.resident_bytes > Some(1 << 20), "{figures:?}");
        assert!(figures.virtual_bytes > figures.resident_bytes);
        assert!(figures.cpu_seconds > Some(0.0));
        assert!(figures.threads >= Some(1));
        assert!(figures.open_fds >= Some(3) && figures.open_fds < figures.max_fds);
    }
}
