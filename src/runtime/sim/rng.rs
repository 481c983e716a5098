//! The one source of chance in a simulated world.

use std::cell::Cell;
use std::ops::Range;

/// A seeded generator (SplitMix64). It lives in a `Cell`, so that drawing from it
/// never conflicts with a borrow. Not for secrets.
pub struct SimRng(Cell<u64>);

impl SimRng {
    /// One whose draws depend on `seed` alone.
    pub fn new(seed: u64) -> SimRng {
        SimRng(Cell::new(seed ^ 0x5851_f42d_4c95_7f2d))
    }

    /// The next number.
    pub fn next_u64(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        self.next_u64() % bound
    }

    /// A number within a range that is not empty.
    pub fn within(&self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// True once in `n` draws, on average.
    pub fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }
}
