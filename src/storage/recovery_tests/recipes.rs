//! Many seeds of the faults that were reported against brokers of this kind.
//!
//! `HIGHWATER_SIM_SEEDS` is how many (default 100); `HIGHWATER_SIM_SEED` repeats one.

use super::power_cut::env_number;
use super::scenario::{run_tampered, Recipe, Tampered};

/// Runs all seeds, and proves that everything in `kinds` was done.
fn run_all(recipe: Recipe, kinds: &[&str]) {
    let repeated = env_number("HIGHWATER_SIM_SEED");
    let count = env_number("HIGHWATER_SIM_SEEDS").unwrap_or(100);
    let seeds = match repeated {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    };
    let mut total = Tampered::new();
    for seed in seeds {
        let told = Told(seed);
        let (done, breach) = run_tampered(seed, recipe);
        for (what, count) in done {
            *total.entry(what).or_default() += count;
        }
        if let Some(breach) = breach {
            panic!("{breach}");
        }
        drop(told);
    }
    println!("{recipe:?}: {total:#?}");
    if repeated.is_none() && count >= 100 {
        for kind in kinds.iter().chain(&["lives to the end"]) {
            assert!(total.contains_key(kind), "{kind}: never");
        }
    }
}

/// Says on the way of a panic which seed it is.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("repeat with HIGHWATER_SIM_SEED={}", self.0);
        }
    }
}

const TAILS: [&str; 8] = [
    "part of a batch",
    "some bytes",
    "a bare header",
    "zeros",
    "noise",
    "a batch with a wrong bit",
    "a batch of a later offset",
    "an earlier batch again",
];

fn with_tails<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&TAILS, more, &["loads that were looked at"]].concat()
}

/// fluss#2941.
#[test]
fn given_a_torn_tail_behind_a_random_log_when_it_loads_again_and_again_then_it_is_cut() {
    let kinds = with_tails(&["kills", "ends in mid-work", "at the end of the file"]);
    run_all(Recipe::TornTail, &kinds);
}

/// KAFKA-10471, KAFKA-15375.
#[test]
fn given_loads_cut_short_after_a_clean_stop_then_a_torn_tail_is_found() {
    let kinds = with_tails(&["clean stops", "loads cut short", "loads that ended"]);
    run_all(Recipe::LoadCutShort, &kinds);
}

/// KAFKA-10101.
#[test]
fn given_a_recovery_point_beyond_a_random_log_then_torn_tails_are_cut_and_it_comes_down() {
    let kinds = with_tails(&[
        "kills",
        "ends in mid-work",
        "recovery points beyond the end",
    ]);
    run_all(Recipe::PointBeyondTheEnd, &kinds);
}

/// KAFKA-2012, KAFKA-1112.
#[test]
fn given_bad_indexes_of_a_random_log_after_any_stop_then_all_is_found() {
    let kinds = [
        "kills",
        "ends in mid-work",
        "clean stops",
        "indexes padded with zeros",
        "last entries of 0xff",
        "indexes cut to 3 bytes",
        "empty indexes",
        "indexes of zeros",
        "indexes of noise",
        "removed indexes",
    ];
    run_all(Recipe::BadIndexes, &kinds);
}

/// KAFKA-12520.
#[test]
fn given_an_interrupted_swap_in_a_random_log_then_nothing_is_there_twice() {
    let kinds = [
        "kills",
        "clean stops",
        "merged segments",
        "with a part that is still to be cleaned",
        "loads that were looked at",
    ];
    run_all(Recipe::SwapCutShort, &kinds);
}

/// KAFKA-5747, KAFKA-9892.
#[test]
fn given_bad_snapshots_of_a_random_log_after_any_stop_then_its_producers_are_known() {
    let kinds = [
        "kills",
        "ends in mid-work",
        "clean stops",
        "bad snapshots",
        "logs without a good snapshot",
    ];
    run_all(Recipe::BadSnapshots, &kinds);
}
