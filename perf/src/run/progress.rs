//! What a person sees while a run goes on: a bar on a terminal, a line for each measurement elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

pub struct Progress {
    /// On a terminal.
    bar: Option<ProgressBar>,
    total: usize,
    done: usize,
    time: Time,
}

impl Progress {
    /// `planned`: about how many seconds all of it takes.
    pub fn new(total: usize, planned: f64) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total as u64);
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {prefix}  {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        });
        Progress {
            bar,
            total,
            done: 0,
            time: Time::new(planned),
        }
    }

    /// Something begins that takes a while.
    pub fn begin(&self, what: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_prefix(format!("{} left", clock(self.time.left(Instant::now()))));
                bar.set_message(what.to_owned());
            }
            None => eprintln!("{what}"),
        }
    }

    /// A measurement has its result, or none; `planned` is what it was expected to take.
    pub fn end(&mut self, what: &str, outcome: &str, planned: f64) {
        self.done += 1;
        self.time.end(planned);
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                bar.set_message(format!("{what}: {outcome}"));
            }
            None => eprintln!(
                "[{}/{}, {} left] {what}: {outcome}",
                self.done,
                self.total,
                clock(self.time.left(Instant::now()))
            ),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Time left, from what was planned and how far off the plan was so far.
struct Time {
    started: Instant,
    planned: f64,
    planned_done: f64,
}

impl Time {
    fn new(planned: f64) -> Time {
        Time {
            started: Instant::now(),
            planned,
            planned_done: 0.0,
        }
    }

    fn end(&mut self, planned: f64) {
        self.planned_done += planned;
    }

    fn left(&self, now: Instant) -> f64 {
        /// Seconds of the plan that count as if they had been right, so that the first measurements do not make the
        /// rest jump.
        const TRUSTED: f64 = 20.0;
        let took = now.saturating_duration_since(self.started).as_secs_f64();
        let factor = if self.planned_done > 0.0 {
            (took + TRUSTED) / (self.planned_done + TRUSTED)
        } else {
            1.0
        };
        (self.planned - self.planned_done).max(0.0) * factor
    }
}

/// `12 s`, `3 min`, `1 h 5 min`.
pub fn clock(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        _ if minutes < 60 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_what_the_measurements_really_took() {
        let mut time = Time::new(1000.0);
        let start = time.started;
        assert_eq!(time.left(start), 1000.0);
        time.end(480.0);
        // 480 s were planned, 980 s it took: twice as slow, with what is trusted.
        let left = time.left(start + Duration::from_secs(980));
        assert!((left - 520.0 * 2.0).abs() < 1e-6, "{left}");
    }

    #[test]
    fn times_are_short() {
        assert_eq!(clock(12.4), "12 s");
        assert_eq!(clock(180.0), "3 min");
        assert_eq!(clock(3900.0), "1 h 5 min");
    }
}
