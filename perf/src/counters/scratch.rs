//! A directory that goes away, and commands that end when they should.

use crate::stop::Stop;
use anyhow::{bail, Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A directory for this process, removed when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(parent: &Path) -> Result<Scratch> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = parent.join(format!("perf-counters-{}-{n}", std::process::id()));
        let made = fs::create_dir(&path);
        made.with_context(|| format!("{} can't be made: name another --dir", path.display()))?;
        // Commands may run in other directories.
        Ok(Scratch(fs::canonicalize(path)?))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} can't be removed: {error}", self.0.display());
        }
    }
}

/// A child that is killed when dropped.
pub struct Guarded(Child);

impl Guarded {
    pub fn spawn(command: &mut Command) -> Result<Guarded> {
        let name = command.get_program().to_string_lossy().into_owned();
        // Numbers and messages as they are read here.
        let child = command.env("LC_ALL", "C").stdin(Stdio::null()).spawn();
        Ok(Guarded(
            child.with_context(|| format!("{name} can't be run"))?,
        ))
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Waits for its end; an error when it takes longer than `limit`, or a stop is asked for.
    pub fn wait(&mut self, limit: Duration, stop: &Stop) -> Result<std::process::ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > limit {
                bail!("process {} did not end within {limit:?}", self.0.id());
            }
            stop.sleep(Duration::from_millis(10))?;
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command to its end; what it printed is part of the error.
pub fn run(command: &mut Command, scratch: &Scratch, limit: Duration, stop: &Stop) -> Result<()> {
    let path = scratch.file("output");
    let output = File::create(&path)?;
    command.stdout(output.try_clone()?).stderr(output);
    let status = Guarded::spawn(command)?.wait(limit, stop)?;
    if !status.success() {
        let printed = fs::read_to_string(&path).unwrap_or_default();
        let name = command.get_program().to_string_lossy().into_owned();
        bail!("{name} ended with {status}:\n{}", printed.trim());
    }
    Ok(())
}

/// Whether a program is in the search path.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
