//! The machine's own floor: what a broker's work costs here if nobody does more than that work.
//!
//! `raw/` measures the parts one by one (`perf floor`), `server/` is a server of Kafka's protocol that does the least
//! that a broker must do, so that the same client can be run against it in turns with brokers. `ring.rs` is io_uring
//! for both, and the one place with unsafe code.

pub mod raw;
pub mod ring;
pub mod server;

use anyhow::{Context, Result};
use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::Pid;

/// Says in one sentence what this machine lacks.
pub fn check() -> Result<()> {
    ring::Ring::new(1).map(drop)
}

/// Pins the calling thread; `None` leaves it as it is.
fn pin(cpu: Option<usize>) -> Result<()> {
    let Some(cpu) = cpu else {
        return Ok(());
    };
    let mut set = CpuSet::new();
    set.set(cpu)
        .with_context(|| format!("CPU {cpu}: no such CPU"))?;
    sched_setaffinity(Pid::from_raw(0), &set)
        .with_context(|| format!("CPU {cpu}: not there, or not for this process"))
}

#[cfg(test)]
mod tests {
    /// On the file system of the build, since a temporary one may be in memory.
    pub fn temp_dir() -> tempfile::TempDir {
        tempfile::tempdir_in(crate::target::fake::beside_the_tests())
            .expect("tests can write there")
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error_that_names_it() {
        let error = super::pin(Some(1023)).unwrap_err();
        assert!(error.to_string().contains("1023"), "{error}");
        super::pin(None).unwrap();
    }
}
