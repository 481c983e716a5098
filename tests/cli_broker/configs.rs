//! `highwater config get` and `set`.

use super::{cells, Bench};
use serde_json::json;

#[test]
fn a_topics_settings_are_shown_and_changed() {
    let bench = Bench::start();
    bench.out(&["topic", "create", "t"]);
    let set = bench.out(&[
        "config",
        "set",
        "topic",
        "t",
        "retention.ms=5000",
        "segment.bytes=20000",
    ]);
    assert_eq!(set, "topic t: altered\n");
    let table = bench.out(&["config", "get", "topic", "t", "--overridden"]);
    let rows = cells(&table);
    assert_eq!(rows[0], ["SETTING", "VALUE", "SOURCE", "DEFAULT"]);
    assert_eq!(rows[1][..3], ["retention.ms", "5000", "topic"]);
    assert_eq!(
        rows[2],
        [
            "segment.bytes",
            "20000",
            "topic",
            "1073741824",
            "(log.segment.bytes)"
        ]
    );
    assert_eq!(rows.len(), 3);

    bench.out(&[
        "config",
        "set",
        "topic",
        "t",
        "--unset",
        "segment.bytes",
        "max.message.bytes=100",
        "--validate-only",
    ]);
    let document = bench.json(&[
        "config",
        "get",
        "topic",
        "t",
        "segment.bytes",
        "max.message.bytes",
        "--json",
    ]);
    assert_eq!(document[0]["source"], "DEFAULT_CONFIG");
    assert_eq!(
        document[1],
        json!({
            "name": "segment.bytes", "value": "20000", "source": "DYNAMIC_TOPIC_CONFIG", "default": "1073741824",
            "default_name": "log.segment.bytes", "sensitive": false, "read_only": false,
        })
    );
    bench.out(&["config", "set", "topic", "t", "--unset", "segment.bytes"]);
    let document = bench.json(&["config", "get", "topic", "t", "segment.bytes", "--json"]);
    assert_eq!(document[0]["value"], "1073741824");
}

#[test]
fn a_brokers_settings_are_shown() {
    let bench = Bench::with(&["num.partitions=7"]);
    let document = bench.json(&["config", "get", "broker", "1", "num.partitions", "--json"]);
    assert_eq!(document[0]["value"], "7");
    assert_eq!(document[0]["source"], "STATIC_BROKER_CONFIG");
    assert_eq!(document[0]["default"], "1");
    let overridden = bench.json(&["config", "get", "broker", "1", "--overridden", "--json"]);
    let of_name = |it: &&serde_json::Value| it["name"] == "num.partitions";
    assert!(
        overridden.as_array().unwrap().iter().any(|it| of_name(&it)),
        "{overridden}"
    );
    let is_default = |it: &serde_json::Value| it["source"] == "DEFAULT_CONFIG";
    assert!(
        !overridden.as_array().unwrap().iter().any(is_default),
        "{overridden}"
    );
}

#[test]
fn what_is_not_there_or_not_allowed_says_so() {
    let bench = Bench::start();
    bench.out(&["topic", "create", "t"]);
    bench
        .run(&["config", "set", "topic", "t", "retention.ms=soon"])
        .fails_with("cannot change the settings of topic t: INVALID_CONFIG (40): ");
    bench
        .run(&["config", "get", "topic", "nope"])
        .fails_with("cannot read the settings of topic nope: UNKNOWN_TOPIC_OR_PARTITION (3): ");
    bench
        .run(&["config", "get", "topic", "t", "no.such"])
        .fails_with("topic t has no setting no.such");
    bench
        .run(&["config", "get", "broker", "9"])
        .fails_with("there is no broker 9; there are [1]");
    bench
        .run(&["config", "get", "broker", "x"])
        .is_usage_error();
    bench.run(&["config", "set", "topic", "t"]).is_usage_error();
    bench
        .run(&["config", "get", "planet", "t"])
        .is_usage_error();
}
