//! Many seeds of the random scenario.
//!
//! `HIGHWATER_SIM_SEEDS` is how many (default 300); `HIGHWATER_SIM_SEED` repeats one.

use super::scenario::{self, Tally};

#[test]
fn what_was_acknowledged_survives_power_cuts_and_kills() {
    let one = env_number("HIGHWATER_SIM_SEED");
    let count = env_number("HIGHWATER_SIM_SEEDS").unwrap_or(300);
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    };
    let mut total = Tally::default();
    for seed in seeds {
        match scenario::run(seed, None) {
            Ok(tally) => total.add(&tally),
            Err(breach) => panic!("{breach}\nrepeat with HIGHWATER_SIM_SEED={seed}"),
        }
    }
    println!("{total:?}");
    if one.is_none() && count >= 100 {
        // The faults happened, otherwise the test says nothing.
        assert!(total.cut_while_opening > 0 && total.truncated_bytes > 0);
        assert!(total.unflushed_lost > 0 && total.segments_max > 3);
        assert!(total.opened_clean > 0 && total.cuts > 0);
        assert!(total.starts_moved > 0 && total.segments_removed > 0);
        assert!(total.removals_cut_short > 0);
    }
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.lives += other.lives;
        self.opened += other.opened;
        self.opened_clean += other.opened_clean;
        self.cut_while_opening += other.cut_while_opening;
        self.truncated_bytes += other.truncated_bytes;
        self.segments_max = self.segments_max.max(other.segments_max);
        self.batches_checked += other.batches_checked;
        self.unflushed_lost += other.unflushed_lost;
        self.cuts += other.cuts;
        self.starts_moved += other.starts_moved;
        self.segments_removed += other.segments_removed;
        self.removals_cut_short += other.removals_cut_short;
    }
}

/// A number from the environment. Anything else there fails the test.
pub(super) fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}
