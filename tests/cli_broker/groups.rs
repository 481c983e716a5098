//! `highwater group`, and `consume --group`.

use super::{cells, Bench};
use serde_json::{json, Value};

/// A topic with ten records in each of two partitions.
fn bench() -> Bench {
    let bench = Bench::with(&["group.initial.rebalance.delay.ms=0"]);
    bench.out(&["topic", "create", "t", "-p", "2"]);
    for partition in ["0", "1"] {
        let lines: String = (0..10).map(|n| format!("{partition}-{n}\n")).collect();
        bench
            .feed(&["produce", "t", "-p", partition, "-q"], &lines)
            .success();
    }
    bench
}

fn described(bench: &Bench, group: &str) -> Value {
    bench.json(&["group", "describe", group, "--json"])[0].clone()
}

/// Waits until the group is as the test wants it.
fn until(bench: &Bench, group: &str, what: impl Fn(&Value) -> bool) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let ran = bench.run(&["group", "describe", group, "--json"]);
        if ran.code == Some(0) {
            let document: Value = serde_json::from_str(&ran.out).unwrap();
            if what(&document[0]) {
                return document[0].clone();
            }
        }
        assert!(begun.elapsed().as_secs() < 60, "{}{}", ran.out, ran.err);
    }
}

#[test]
fn a_group_goes_on_where_it_stopped() {
    let bench = bench();
    let first = bench.run(&["consume", "t", "-g", "g", "-c", "12"]);
    assert!(
        first
            .err
            .starts_with("consumed 12 records from 2 partitions, offsets of "),
        "{}",
        first.err
    );
    let mut all: Vec<String> = first.success().lines().map(str::to_owned).collect();
    assert_eq!(all.len(), 12);
    let document = described(&bench, "g");
    assert_eq!(
        (&document["state"], &document["total_lag"]),
        (&json!("Empty"), &json!(8))
    );
    let rest = bench.out(&["consume", "t", "-g", "g"]);
    all.extend(rest.lines().map(str::to_owned));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 20);
    assert_eq!(bench.out(&["consume", "t", "-g", "g"]), "");

    let text = bench.out(&["group", "describe", "g"]);
    let rows = cells(&text);
    assert!(
        rows.contains(&vec!["t", "0", "10", "10", "0", "-"]),
        "{text}"
    );
    let listed = bench.out(&["group", "list"]);
    assert_eq!(cells(&listed)[1][..2], ["g", "Empty"]);
    assert_eq!(
        bench.json(&["group", "list", "--json"])[0]["protocol_type"],
        "consumer"
    );
}

#[test]
fn two_members_share_the_partitions_and_one_that_leaves_gives_its_own_back() {
    let bench = bench();
    let one = bench.spawn(&["consume", "t", "-g", "g", "--follow", "-F", "%v\\n"]);
    until(&bench, "g", |group| {
        group["members"].as_array().unwrap().len() == 1 && group["state"] == "Stable"
    });
    let two = bench.spawn(&["consume", "t", "-g", "g", "--follow"]);
    let shared = until(&bench, "g", |group| {
        let members = group["members"].as_array().unwrap();
        group["state"] == "Stable" && members.len() == 2 && group["total_lag"] == 0
    });
    for member in shared["members"].as_array().unwrap() {
        assert_eq!(
            member["partitions"].as_array().unwrap().len(),
            1,
            "{shared}"
        );
    }
    bench
        .run(&[
            "group",
            "reset-offsets",
            "g",
            "t",
            "--to",
            "earliest",
            "--execute",
        ])
        .fails_with(
            "group g is active (Stable, 2 members): stop its consumers, then reset its offsets",
        );
    bench
        .run(&["group", "delete", "g"])
        .fails_with("cannot delete group g: NON_EMPTY_GROUP (68): ");

    let first = one.interrupt();
    assert!(first.err.contains("consumed "), "{}", first.err);
    until(&bench, "g", |group| {
        let members = group["members"].as_array().unwrap();
        members.len() == 1 && members[0]["partitions"].as_array().unwrap().len() == 2
    });
    bench
        .feed(&["produce", "t", "-p", "0", "-q"], "last\n")
        .success();
    bench
        .feed(&["produce", "t", "-p", "1", "-q"], "last\n")
        .success();
    until(&bench, "g", |group| group["total_lag"] == 0);
    let second = two.interrupt();
    // Together they printed every record, and none twice: each change was committed before.
    let lines = first.success().lines().count() + second.success().lines().count();
    assert_eq!(lines, 22);
    assert_eq!(described(&bench, "g")["state"], "Empty");
}

#[test]
fn offsets_are_reset_only_when_it_is_asked_for() {
    let bench = bench();
    bench.out(&["consume", "t", "-g", "g", "-q"]);
    let plan = bench.run(&["group", "reset-offsets", "g", "t", "--to", "earliest"]);
    assert_eq!(plan.err, "nothing was changed; add --execute to do it\n");
    let table = plan.success();
    assert_eq!(
        cells(&table),
        [
            vec!["TOPIC", "PARTITION", "CURRENT", "NEW", "END"],
            vec!["t", "0", "10", "0", "10"],
            vec!["t", "1", "10", "0", "10"],
        ]
    );
    assert_eq!(described(&bench, "g")["total_lag"], 0);
    let offset = |to: &[&str], partition: usize| {
        let mut arguments = vec!["group", "reset-offsets", "g"];
        arguments.extend(to);
        arguments.extend(["--execute", "--json"]);
        let document = bench.json(&arguments);
        assert_eq!(document["executed"], true);
        described(&bench, "g")["partitions"][partition]["committed_offset"]
            .as_i64()
            .unwrap()
    };
    assert_eq!(offset(&["t:1", "--to", "earliest"], 1), 0);
    assert_eq!(
        described(&bench, "g")["partitions"][0]["committed_offset"],
        10
    );
    assert_eq!(offset(&["t:1", "--to", "4"], 1), 4);
    assert_eq!(offset(&["t", "--shift", "-3"], 1), 1);
    assert_eq!(offset(&["--all-topics", "--shift", "100"], 0), 10);
    assert_eq!(offset(&["t", "--to", "-2"], 0), 8);
    assert_eq!(offset(&["t", "--to", "-1h"], 0), 0);
    assert_eq!(offset(&["t", "--to", "2126-01-01"], 1), 10);
    assert_eq!(offset(&["t:0", "--to", "earliest"], 0), 0);
    assert_eq!(
        bench.out(&["consume", "t:0", "-g", "g", "-c", "1"]),
        "0-0\n"
    );

    bench
        .run(&["group", "reset-offsets", "g", "t:7", "--to", "1"])
        .fails_with("topic t has no partition 7; it has 2");
    bench
        .run(&["group", "reset-offsets", "other", "t:0", "--shift", "1"])
        .fails_with("group other has committed nothing for t partition 0, so there is nothing to shift; use --to");
    bench
        .run(&["group", "reset-offsets", "g", "t", "--to", "somewhere"])
        .is_usage_error();
    bench
        .run(&["group", "reset-offsets", "g", "t"])
        .is_usage_error();
}

#[test]
fn partitions_that_are_named_are_read_without_joining() {
    let bench = bench();
    assert_eq!(
        bench.out(&["consume", "t:1", "-g", "solo", "-c", "2"]),
        "1-0\n1-1\n"
    );
    let document = described(&bench, "solo");
    assert_eq!(document["partitions"].as_array().unwrap().len(), 1);
    assert_eq!(document["partitions"][0]["committed_offset"], 2);
    assert_eq!(
        bench.out(&["consume", "t:1", "-g", "solo", "-c", "1"]),
        "1-2\n"
    );
    assert_eq!(
        bench.out(&["group", "delete", "solo"]),
        "group solo: deleted\n"
    );
    bench
        .run(&["group", "describe", "solo"])
        .fails_with("there is no group solo; see `highwater group list`");
    bench
        .run(&["group", "delete", "solo"])
        .fails_with("cannot delete group solo: GROUP_ID_NOT_FOUND (69): ");
    bench.run(&["group", "describe"]).is_usage_error();
}
