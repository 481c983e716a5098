//! How far a long command is, on standard error, and only where that is a terminal.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::runtime::Mono;

/// One line that is written over itself.
pub(super) struct Progress {
    is_shown: bool,
    has_line: bool,
    next: Mono,
}

impl Progress {
    /// Nothing is told within the first second, and never if it is not `wanted`.
    pub fn new(now: Mono, wanted: bool) -> Progress {
        Progress {
            is_shown: wanted && std::io::stderr().is_terminal(),
            has_line: false,
            next: now + PERIOD,
        }
    }

    /// Shows how far it is, once a second.
    pub fn tell(&mut self, now: Mono, text: impl FnOnce() -> String) {
        if self.is_shown && now >= self.next {
            self.next = now + PERIOD;
            self.has_line = true;
            write(&format!("\r\x1b[K{}", text()));
        }
    }

    /// Takes the line away.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.has_line) {
            write("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

fn write(text: &str) {
    let mut out = std::io::stderr().lock();
    // A terminal that cannot be written to shows no progress.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

const PERIOD: Duration = Duration::from_secs(1);
