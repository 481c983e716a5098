//! Ctrl-C: everything asks [`Stop`] whether to go on, so that what was made can be taken away.

use anyhow::{bail, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asked for by SIGINT, SIGTERM and SIGHUP.
    pub fn on_signals() -> Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.0.clone())?;
        }
        Ok(stop)
    }

    /// Asks for a stop, as a signal does.
    #[cfg(test)]
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once a stop is asked for.
    pub fn check(&self) -> Result<()> {
        if self.is_asked() {
            bail!("stopped by a signal");
        }
        Ok(())
    }

    /// Sleeps; an error as soon as a stop is asked for.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        const STEP: Duration = Duration::from_millis(20);
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(STEP));
        }
    }
}
