//! Many seeds of the random scenario.
//!
//! `HIGHWATER_SIM_SEEDS` is how many (default 200); `HIGHWATER_SIM_SEED` repeats one, and with
//! `HIGHWATER_SIM_VERBOSE=1` every operation of the disk is printed as it completes.

use super::scenario::{self, Tally};
use crate::runtime::sim::FaultKind;

/// Runs all seeds and adds up what happened; a breach ends the test. The flag says that there
/// were enough to have met everything.
fn run_all(one: impl Fn(u64) -> (Tally, Option<String>)) -> (Tally, bool) {
    let repeated = env_number("HIGHWATER_SIM_SEED");
    let count = env_number("HIGHWATER_SIM_SEEDS").unwrap_or(200);
    let seeds = match repeated {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    };
    let mut total = Tally::default();
    for seed in seeds.clone() {
        let (tally, breach) = one(seed);
        total.add(&tally);
        if let Some(breach) = breach {
            panic!("{breach}\nrepeat with HIGHWATER_SIM_SEED={seed}");
        }
    }
    println!("{} seeds:\n{total}", seeds.end - seeds.start);
    (total, repeated.is_none() && count >= 100)
}

#[test]
fn what_was_acknowledged_survives_power_cuts_and_kills() {
    let (total, many) = run_all(|seed| scenario::run(seed, None));
    if many {
        // The faults happened, otherwise the test says nothing.
        assert!(total.power_cuts > 0 && total.cuts_at_operations > 0 && total.kills > 0);
        assert!(total.cut_while_opening > 0 && total.truncated_bytes > 0);
        assert!(total.unflushed_lost > 0 && total.segments_max > 3);
        assert!(total.opened_clean > 0 && total.truncations > 0);
        assert!(total.starts_moved > 0 && total.segments_removed > 0);
        assert!(total.removals_cut_short > 0);
        assert!(total.partitions_deleted > 0 && total.deletions_cut_short > 0);
        assert!(total.batches_consumed > 0 && total.producers_expired > 0);
        assert!(total.index_entries_checked > 0 && total.timestamps_checked > 0);
        assert!(total.durable_checks > 0);
        assert!(total.rounds > 0 && total.rounds_cut_short > 0);
        assert!(total.records_compacted > 0 && total.segments_merged > 0);
    }
}

#[test]
fn on_a_disk_that_fails_the_log_says_so_or_is_right() {
    let (total, many) = run_all(scenario::run_faulty);
    if many {
        for kind in FaultKind::ALL {
            assert!(total.faults_of(kind) > 0, "{kind:?} never happened");
        }
        assert!(total.failures_met > 0 && total.loads_refused > 0);
        assert!(total.rebuilt_in_place > 0);
    }
}

/// A number from the environment. Anything else there fails the test.
pub(crate) fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}
