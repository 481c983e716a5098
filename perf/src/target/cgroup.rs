//! A memory cgroup for the processes of one target: what they allocate and their page cache count together.

use anyhow::{bail, Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Removed on drop, when its processes have ended.
pub struct Cgroup {
    dir: PathBuf,
    kind: &'static str,
}

impl Cgroup {
    /// An error says why no limit can be held.
    pub fn make(name: &str, bytes: u64) -> Result<Cgroup> {
        Cgroup::make_below(Path::new(ROOT), name, bytes)
    }

    fn make_below(root: &Path, name: &str, bytes: u64) -> Result<Cgroup> {
        let (parent, kind, limit) = if root.join("cgroup.controllers").exists() {
            (root.to_owned(), "cgroup v2", "memory.max")
        } else if root.join("memory").join(V1_LIMIT).exists() {
            (root.join("memory"), "cgroup v1", V1_LIMIT)
        } else {
            bail!("{} has no memory controller", root.display());
        };
        let dir = parent.join(format!("perf-{}-{name}", std::process::id()));
        fs::create_dir(&dir)
            .with_context(|| format!("{} can't be made (root may)", dir.display()))?;
        let cgroup = Cgroup { dir, kind };
        if !cgroup.dir.join(limit).exists() {
            bail!(
                "the memory controller is not in {}",
                parent.join("cgroup.subtree_control").display()
            );
        }
        fs::write(cgroup.dir.join(limit), bytes.to_string())
            .with_context(|| format!("{limit} can't be set to {bytes}"))?;
        Ok(cgroup)
    }

    /// `cgroup v1` or `cgroup v2`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// A process enters by writing its id to this file.
    pub fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        const STEP: Duration = Duration::from_millis(10);
        const STEPS: usize = 200;
        // Busy for a moment after its last process has ended.
        for _ in 0..STEPS {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(STEP);
        }
        eprintln!("{} can't be removed: do it by rmdir", self.dir.display());
    }
}

const ROOT: &str = "/sys/fs/cgroup";
const V1_LIMIT: &str = "memory.limit_in_bytes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_controller_the_reason_is_told() {
        let root = tempfile::tempdir().unwrap();
        let error = Cgroup::make_below(root.path(), "x", 1 << 30).err().unwrap();
        assert!(
            error.to_string().ends_with("has no memory controller"),
            "{error}"
        );
    }

    #[test]
    fn a_v2_root_that_does_not_hand_memory_down_is_refused_and_left_clean() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu io memory").unwrap();
        let error = Cgroup::make_below(root.path(), "x", 1 << 30).err().unwrap();
        assert!(error.to_string().contains("subtree_control"), "{error}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
