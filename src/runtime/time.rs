//! Monotonic time.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in monotonic time: nanoseconds since an arbitrary origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub u64);

impl Mono {
    /// Nanoseconds from `earlier` until `self`; zero if `earlier` is later.
    pub fn nanos_since(self, earlier: Mono) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Time from `earlier` until `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;
    fn add(self, d: Duration) -> Mono {
        Mono(
            self.0
                .saturating_add(d.as_nanos().min(u64::MAX as u128) as u64),
        )
    }
}

impl Sub<Mono> for Mono {
    type Output = Duration;
    fn sub(self, earlier: Mono) -> Duration {
        self.since(earlier)
    }
}
