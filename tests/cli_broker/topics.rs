//! `highwater topic`.

use super::{cells, Bench};
use serde_json::json;

#[test]
fn topics_are_created_listed_described_altered_and_deleted() {
    let bench = Bench::start();
    let created = bench.out(&[
        "topic",
        "create",
        "b",
        "a",
        "-p",
        "3",
        "-c",
        "retention.ms=1000",
    ]);
    assert_eq!(
        created,
        "topic b: created, partitions 3, replication factor 1\ntopic a: created, partitions 3, replication factor 1\n"
    );
    let listed = bench.out(&["topic", "list"]);
    assert_eq!(
        cells(&listed),
        [
            vec!["TOPIC", "PARTITIONS", "REPLICATION"],
            vec!["a", "3", "1"],
            vec!["b", "3", "1"]
        ]
    );

    bench
        .feed(&["produce", "a", "-p", "1", "-q"], "x\ny\n")
        .success();
    let described = bench.out(&["topic", "describe", "a"]);
    let rows = cells(&described);
    assert_eq!(rows[0], ["topic", "a"]);
    assert!(
        described.contains("\n  config       retention.ms=1000\n"),
        "{described}"
    );
    assert!(
        rows.contains(&vec!["1", "1", "0", "1", "1", "0", "2", "2"]),
        "{described}"
    );

    let altered = bench.out(&[
        "topic",
        "alter",
        "a",
        "-p",
        "5",
        "-c",
        "max.message.bytes=9999",
        "--unset",
        "retention.ms",
    ]);
    assert_eq!(altered, "topic a: altered, partitions 5\n");
    let document = bench.json(&["topic", "describe", "a", "--json"]);
    assert_eq!(
        document[0]["configs"],
        json!({ "max.message.bytes": "9999" })
    );
    assert_eq!(document[0]["partitions"].as_array().unwrap().len(), 5);
    assert_eq!(document[0]["partitions"][1]["end_offset"], 2);
    assert_eq!(document[0]["partitions"][1]["leader"], 1);

    let deleted = bench.json(&["topic", "delete", "a", "b", "--json"]);
    assert_eq!(
        deleted,
        json!([
            { "topic": "a", "outcome": "deleted", "error": null },
            { "topic": "b", "outcome": "deleted", "error": null },
        ])
    );
    assert_eq!(bench.json(&["topic", "list", "--json"]), json!([]));
}

#[test]
fn what_exists_or_is_missing_is_an_error_unless_it_is_allowed() {
    let bench = Bench::start();
    bench.out(&["topic", "create", "a"]);
    bench
        .run(&["topic", "create", "a"])
        .fails_with("cannot create topic a: TOPIC_ALREADY_EXISTS (36): ");
    assert_eq!(
        bench.out(&["topic", "create", "a", "--if-not-exists"]),
        "topic a: exists\n"
    );
    let partly = bench.run(&["topic", "delete", "nope", "a", "--json"]);
    partly.fails_with("cannot delete topic nope: UNKNOWN_TOPIC_OR_PARTITION (3): ");
    let document: serde_json::Value = serde_json::from_str(&partly.out).unwrap();
    let outcomes: Vec<&str> = document
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| **outcome == "failed")
            .count(),
        1
    );
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| **outcome == "deleted")
            .count(),
        1
    );
    assert_eq!(
        bench.out(&["topic", "delete", "a", "--if-exists"]),
        "topic a: absent\n"
    );
    assert_eq!(
        bench.out(&["topic", "alter", "a", "-p", "2", "--if-exists"]),
        "topic a: absent\n"
    );
    for command in [
        &["topic", "describe", "a"][..],
        &["topic", "alter", "a", "-p", "2"],
    ] {
        bench
            .run(command)
            .fails_with("there is no topic a; see `highwater topic list`");
    }
}

#[test]
fn what_is_only_validated_is_not_done_and_what_is_refused_says_why() {
    let bench = Bench::start();
    assert_eq!(
        bench.out(&["topic", "create", "a", "-p", "2", "--validate-only"]),
        "topic a: valid, partitions 2, replication factor 1\n"
    );
    assert_eq!(bench.json(&["topic", "list", "--json"]), json!([]));
    bench
        .run(&["topic", "create", "a", "-r", "3"])
        .fails_with("cannot create topic a: INVALID_REPLICATION_FACTOR (38): ");
    bench
        .run(&["topic", "create", "a", "-c", "no.such=1"])
        .fails_with("cannot create topic a: INVALID_CONFIG (40): ");
    bench.out(&["topic", "create", "a", "-p", "2"]);
    bench
        .run(&["topic", "alter", "a", "-p", "1"])
        .fails_with("cannot give topic a 1 partitions: INVALID_PARTITIONS (37): ");
    bench.out(&[
        "topic",
        "alter",
        "a",
        "-p",
        "4",
        "-c",
        "retention.ms=5",
        "--validate-only",
    ]);
    let document = bench.json(&["topic", "describe", "a", "--json"]);
    assert_eq!(document[0]["partitions"].as_array().unwrap().len(), 2);
    assert_eq!(document[0]["configs"], json!({}));
    bench.run(&["topic", "alter", "a"]).is_usage_error();
    bench
        .run(&["topic", "create", "a", "-c", "nothing"])
        .is_usage_error();
}
