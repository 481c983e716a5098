//! What is measured, in which order, and what of it is there already.
//!
//! The targets take turns within a repeat, and each repeat begins with another one: A B C, B C A, C A B. So none of
//! them always has the warm disk, or the busy neighbour. A load's repeats are all done before the next load begins,
//! since that may be a share of what this one finds.

use crate::results::{Key, Measurement};
use crate::workload::{Case, Kind, LoadPoint, Workload};
use anyhow::Result;
use std::collections::{HashMap, HashSet};

/// One turn of one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub key: Key,
    /// Where its workload, case, load and target are in what was planned.
    pub workload: usize,
    pub case: usize,
    pub load: usize,
    pub target: usize,
    pub definition: String,
}

/// Everything, in the order in which it is measured.
pub fn whole(workloads: &[Workload], targets: &[String]) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (w, workload) in workloads.iter().enumerate() {
        for (c, case) in workload.cases.iter().enumerate() {
            for (l, load) in case.loads.iter().enumerate() {
                let definition = definition(case, l)?;
                let repeats = if load.once { 1 } else { case.timing.repeats };
                for repeat in 1..=repeats {
                    for turn in 0..targets.len() {
                        let target = (turn + repeat as usize - 1) % targets.len();
                        steps.push(Step {
                            key: Key {
                                workload: workload.name.clone(),
                                case: case.name.clone(),
                                load: load.name.clone(),
                                target: targets[target].clone(),
                                repeat,
                            },
                            workload: w,
                            case: c,
                            load: l,
                            target,
                            definition: definition.clone(),
                        });
                    }
                }
            }
        }
    }
    Ok(steps)
}

/// Takes away what was measured of these workloads by another definition: it would be mixed with what is measured now.
/// How many those were.
pub fn drop_outdated(steps: &[Step], measurements: &mut Vec<Measurement>) -> usize {
    let planned: HashSet<&str> = steps.iter().map(|step| &*step.key.workload).collect();
    let defined: HashMap<_, _> = steps
        .iter()
        .map(|step| {
            (
                (&*step.key.workload, &*step.key.case, &*step.key.load),
                &*step.definition,
            )
        })
        .collect();
    let before = measurements.len();
    measurements.retain(|measurement| {
        let key = &measurement.key;
        let now = defined.get(&(&*key.workload, &*key.case, &*key.load));
        !planned.contains(&*key.workload) || now == Some(&&*measurement.definition)
    });
    before - measurements.len()
}

/// The steps without a result. One that failed is tried again; one that the target cannot do is not.
pub fn remaining(
    steps: &[Step],
    measurements: &[Measurement],
    lacks: impl Fn(&Step) -> Option<String>,
) -> Vec<Step> {
    let held: HashMap<&Key, &Measurement> =
        measurements.iter().map(|held| (&held.key, held)).collect();
    let is_missing = |step: &&Step| match held.get(&step.key) {
        None => true,
        Some(held) => held.missing.is_some() && held.missing != lacks(step),
    };
    steps.iter().filter(is_missing).cloned().collect()
}

/// Puts a measurement in the place of an earlier one, and all in the order of the plan; those that are not in it stay
/// behind the others of their workload. `rank` orders workloads.
pub fn put(
    measurements: &mut Vec<Measurement>,
    new: Measurement,
    steps: &[Step],
    rank: impl Fn(&str) -> usize,
) {
    measurements.retain(|held| held.key != new.key);
    measurements.push(new);
    let places: HashMap<&Key, usize> = steps
        .iter()
        .enumerate()
        .map(|(n, step)| (&step.key, n))
        .collect();
    measurements.sort_by_key(|held| {
        let place = places.get(&held.key).copied().unwrap_or(usize::MAX);
        (rank(&held.key.workload), place)
    });
}

/// A checksum of everything that a result of this load depends on.
fn definition(case: &Case, load: usize) -> Result<String> {
    let mut of = case.clone();
    // More repeats are more of the same.
    of.timing.repeats = 1;
    let is_base = |base: &LoadPoint| base.saturate && case.loads[load].share.is_some();
    let before = case.loads[..load].iter().filter(|base| is_base(base));
    of.loads = before.chain([&case.loads[load]]).cloned().collect();
    for load in &mut of.loads {
        load.once = false;
    }
    Ok(format!(
        "{:08x}",
        crc32fast::hash(&serde_json::to_vec(&of)?)
    ))
}

/// About how long a step takes, seconds, beside the settling after a start.
pub fn seconds(case: &Case) -> f64 {
    const BESIDE: f64 = 0.8;
    /// What a disk and a client move in a second at least, in most cases.
    const BYTES_PER_SECOND: f64 = 3e8;
    match case.kind {
        Kind::Stream => case.timing.warmup_s + case.timing.measure_s + BESIDE,
        Kind::ColdRead => 2.0 * case.timing.bytes_max as f64 / BYTES_PER_SECOND + 3.0,
        Kind::Lifecycle => case.lifecycle.idle_s + 5.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::parse;

    const FILE: &str = r#"
        name = "w"
        title = ""
        [case]
        loads = [
            { name = "capacity", saturate = true },
            { name = "half", share = 0.5 },
            { name = "curve", share = 0.9, once = true },
        ]
    "#;

    fn targets() -> Vec<String> {
        ["a", "b", "c"].map(str::to_owned).to_vec()
    }

    fn workload(file: &str) -> Vec<Workload> {
        vec![parse(file, "w", false).unwrap()]
    }

    fn steps(file: &str) -> Vec<Step> {
        whole(&workload(file), &targets()).unwrap()
    }

    fn result(step: &Step) -> Measurement {
        Measurement {
            key: step.key.clone(),
            letter: None,
            title: String::new(),
            definition: step.definition.clone(),
            rate: None,
            measured: None,
            figures: Vec::new(),
            cost: None,
            notes: Vec::new(),
            missing: None,
        }
    }

    fn turns(steps: &[Step], load: &str) -> String {
        let of_load = steps.iter().filter(|step| step.key.load == load);
        of_load.map(|step| step.key.target.as_str()).collect()
    }

    #[test]
    fn targets_take_turns_and_another_one_comes_first_each_time() {
        let steps = steps(FILE);
        assert_eq!(turns(&steps, "capacity"), "abcbcacab");
        assert_eq!(turns(&steps, "half"), "abcbcacab");
        assert_eq!(turns(&steps, "curve"), "abc");
        let last_capacity = steps.iter().rposition(|step| step.key.load == "capacity");
        let first_half = steps.iter().position(|step| step.key.load == "half");
        assert!(last_capacity < first_half);
    }

    #[test]
    fn what_is_held_is_not_measured_again_and_what_failed_is() {
        let steps = steps(FILE);
        let mut held: Vec<Measurement> = steps[..5].iter().map(result).collect();
        held[1].missing = Some("it died".to_owned());
        held[2].missing = Some("has no topics".to_owned());
        let lacks = |step: &Step| (step.key.target == "c").then(|| "has no topics".to_owned());
        let left = remaining(&steps, &held, lacks);
        assert_eq!(left[0], steps[1]);
        assert_eq!(left[1..], steps[5..]);
    }

    #[test]
    fn a_share_depends_on_the_capacity_before_it_and_not_on_repeats() {
        let before = steps(FILE);
        let of = |steps: &[Step], load: &str| {
            let step = steps.iter().find(|step| step.key.load == load);
            step.unwrap().definition.clone()
        };
        let more = steps(&FILE.replace("[case]", "[case]\ntiming = { repeats = 5 }"));
        assert_eq!(of(&before, "half"), of(&more, "half"));
        let other = steps(&FILE.replace("0.5", "0.6"));
        assert_ne!(of(&before, "half"), of(&other, "half"));
        assert_eq!(of(&before, "capacity"), of(&other, "capacity"));
        let renamed = steps(&FILE.replace("name = \"capacity\"", "name = \"most\""));
        assert_ne!(of(&before, "half"), of(&renamed, "half"));
        let bytes = steps(&FILE.replace("[case]", "[case]\nrecords = { bytes = 100 }"));
        for load in ["capacity", "half", "curve"] {
            assert_ne!(of(&before, load), of(&bytes, load));
        }
    }

    #[test]
    fn results_of_another_definition_are_taken_away_and_other_workloads_stay() {
        let steps = steps(FILE);
        let mut held: Vec<Measurement> = steps[..3].iter().map(result).collect();
        held[0].definition = "other".to_owned();
        held[1].key.load = "gone".to_owned();
        let mut foreign = result(&steps[0]);
        foreign.key.workload = "another".to_owned();
        foreign.definition = "its own".to_owned();
        held.push(foreign);
        assert_eq!(drop_outdated(&steps, &mut held), 2);
        let names: Vec<&str> = held.iter().map(|held| &*held.key.workload).collect();
        assert_eq!(names, ["w", "another"]);
    }

    #[test]
    fn results_are_in_the_order_of_the_plan_and_replaced() {
        let steps = steps(FILE);
        let mut held = Vec::new();
        let rank = |name: &str| usize::from(name != "w");
        let mut foreign = result(&steps[0]);
        foreign.key.workload = "another".to_owned();
        put(&mut held, foreign, &steps, rank);
        for n in [2, 0, 1, 0] {
            put(&mut held, result(&steps[n]), &steps, rank);
        }
        let keys: Vec<&Key> = held.iter().map(|held| &held.key).collect();
        assert_eq!(keys[..3], [&steps[0].key, &steps[1].key, &steps[2].key]);
        assert_eq!((keys.len(), &*keys[3].workload), (4, "another"));
    }
}
