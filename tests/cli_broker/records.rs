//! `highwater produce` and `highwater consume`.

use super::{feed, Bench};
use serde_json::{json, Value};

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn what_is_produced_is_consumed_with_every_codec_and_acks() {
    let bench = Bench::start();
    let lines: String = (0..5000).map(|n| format!("line {n}\n")).collect();
    for (codec, acks) in [
        ("none", "0"),
        ("gzip", "1"),
        ("snappy", "all"),
        ("lz4", "-1"),
        ("zstd", "all"),
    ] {
        bench.out(&["topic", "create", codec, "-p", "3"]);
        let produce = [
            "produce",
            codec,
            "-z",
            codec,
            "--acks",
            acks,
            "--batch-bytes",
            "2000",
        ];
        let produced = bench.feed(&produce, &lines);
        assert!(
            produced.err.starts_with("produced 5000 records ("),
            "{}",
            produced.err
        );
        produced.success();
        let mut consumed = bench.out(&["consume", codec]);
        // What waits for no flush is visible only after it, even so.
        let begun = std::time::Instant::now();
        while consumed.lines().count() < 5000 && acks != "all" && begun.elapsed().as_secs() < 60 {
            consumed = bench.out(&["consume", codec]);
        }
        assert_eq!(sorted(&consumed), sorted(&lines), "{codec}");
    }
}

#[test]
fn the_order_of_a_partition_holds_and_the_document_tells_the_offsets() {
    let bench = Bench::start();
    bench.out(&["topic", "create", "t", "-p", "2"]);
    let lines: String = (0..3000).map(|n| format!("{n}\n")).collect();
    let ran = bench.feed(
        &["produce", "t", "-p", "1", "--batch-bytes", "1000", "--json"],
        &lines,
    );
    let document: Value = serde_json::from_str(&ran.success()).unwrap();
    assert_eq!(
        (&document["records"], &document["failed"]),
        (&json!(3000), &json!(0))
    );
    assert_eq!(
        document["partitions"],
        json!([{ "partition": 1, "records": 3000, "first_offset": 0, "last_offset": 2999 }])
    );
    assert_eq!(bench.out(&["consume", "t"]), lines);
    assert_eq!(
        bench.out(&["consume", "t:1", "--from", "-2"]),
        "2998\n2999\n"
    );
    assert_eq!(
        bench.out(&["consume", "t", "-p", "1", "--from", "17", "-c", "2"]),
        "17\n18\n"
    );
    assert_eq!(bench.out(&["consume", "t", "--from", "end"]), "");
    assert_eq!(
        bench.out(&["consume", "t", "--from", "-1h", "-c", "1"]),
        "0\n"
    );
    assert_eq!(bench.out(&["consume", "t", "--from", "2126-01-01"]), "");
    let beyond = bench.run(&["consume", "t:1", "--from", "5000"]);
    assert!(
        beyond
            .err
            .contains("offset 5000 is not in the log (0 to 3000); beginning at 3000"),
        "{}",
        beyond.err
    );
}

#[test]
fn keys_headers_nulls_and_bytes_survive_the_way_through_json() {
    let bench = Bench::start();
    bench.out(&["topic", "create", "a", "-p", "4"]);
    bench.out(&["topic", "create", "b", "-p", "4"]);
    let produce = [
        "produce", "a", "-K", "=", "--null", "NULL", "-H", "h=1", "-q",
    ];
    bench
        .feed(&produce, "foobar=one\nNULL=two\nk=NULL\n")
        .success();
    bench
        .feed(
            &["produce", "a", "--format", "hex", "-k", "foobar", "-q"],
            "00ff\n",
        )
        .success();
    bench
        .feed(&["produce", "a", "--format", "raw", "-q"], "two\nlines\n")
        .success();
    let json = bench.out(&["consume", "a", "--json"]);
    bench
        .feed(&["produce", "b", "--format", "json", "-q"], &json)
        .success();
    let again = bench.out(&["consume", "b", "--json"]);
    assert_eq!(sorted(&again.replace("\"b\"", "\"a\"")), sorted(&json));

    let rows: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 5);
    let one = rows.iter().find(|row| row["value"] == "one").unwrap();
    assert_eq!(one["headers"], json!([{ "key": "h", "value": "1" }]));
    // murmur2("foobar") & 0x7fffffff, modulo 4.
    assert_eq!(
        (&one["partition"], &one["key"]),
        (&json!(2), &json!("foobar"))
    );
    let bytes = rows
        .iter()
        .find(|row| row["value_base64"] == "AP8=")
        .unwrap();
    assert_eq!(bytes["partition"], 2);
    assert!(rows
        .iter()
        .any(|row| row["value"] == "two\nlines\n" && row["key"].is_null()));
    assert!(rows
        .iter()
        .any(|row| row["value"].is_null() && row["key"] == "k"));

    let printed = bench.out(&[
        "consume",
        "a:2",
        "-c",
        "1",
        "-F",
        "%t/%p/%o %k=%v [%h] %K,%V\\n",
        "--null",
        "-",
    ]);
    assert_eq!(printed, "a/2/0 foobar=one [h=1] 6,3\n");
}

#[test]
fn each_line_that_fails_is_told_and_the_others_go_on() {
    let bench = Bench::start();
    bench.out(&["topic", "create", "t", "-c", "max.message.bytes=200"]);
    let large = "x".repeat(500);
    let ran = bench.feed(
        &["produce", "t", "-K", ":", "--batch-bytes", "1"],
        &format!("a:1\nnone\nb:{large}\nc:2\n"),
    );
    ran.fails_with("2 of 4 records could not be produced");
    assert!(
        ran.err
            .contains("highwater: line 2: there is no key separator \":\"\n"),
        "{}",
        ran.err
    );
    assert!(
        ran.err
            .contains("highwater: cannot produce to t partition 0: MESSAGE_TOO_LARGE (10): "),
        "{}",
        ran.err
    );
    assert_eq!(bench.out(&["consume", "t", "-K", ":"]), "a:1\nc:2\n");
    let ran = bench.feed(
        &["produce", "t", "--format", "json"],
        "{\"value\":\"a\",\"partition\":9}\n{\n",
    );
    ran.fails_with("2 of 2 records could not be produced");
    assert!(
        ran.err.contains("line 1: there is no partition 9\n"),
        "{}",
        ran.err
    );
}

#[test]
fn a_count_stops_and_a_missing_topic_is_created_only_if_the_broker_does_that() {
    let bench = Bench::start();
    bench
        .feed(&["produce", "new", "-c", "2", "-q"], "a\nb\nc\n")
        .success();
    assert_eq!(bench.out(&["consume", "new"]), "a\nb\n");
    let strict = Bench::with(&["auto.create.topics.enable=false"]);
    strict.feed(&["produce", "new"], "a\n").fails_with(
        "there is no topic new, and the broker does not create it by itself; run `highwater topic create new`",
    );
    strict
        .run(&["consume", "new"])
        .fails_with("there is no topic new; see `highwater topic list`");
}

#[test]
fn following_prints_what_comes_until_it_is_interrupted() {
    let bench = Bench::start();
    bench.out(&["topic", "create", "t", "-p", "2"]);
    bench.produce("t", "first\n");
    let mut following = bench.spawn(&["consume", "t", "--follow"]);
    assert_eq!(following.line(), "first");
    bench.produce("t", "second\n");
    assert_eq!(following.line(), "second");
    let ran = following.interrupt();
    assert_eq!(ran.err, "consumed 2 records from 2 partitions\n");
    ran.success();
}

#[test]
fn an_interrupted_producer_sends_what_it_has_read() {
    use std::io::Write;
    let bench = Bench::start();
    bench.out(&["topic", "create", "t"]);
    let mut producing = bench.spawn(&["produce", "t"]);
    producing
        .child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"typed\n")
        .unwrap();
    // It is sent at once, though the input goes on.
    while bench.out(&["consume", "t", "-q"]) != "typed\n" {}
    let stdin = producing.child.stdin.take();
    let ran = producing.interrupt();
    drop(stdin);
    assert!(ran.err.starts_with("produced 1 record ("), "{}", ran.err);
    ran.success();
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let bench = Bench::start();
    bench.out(&["topic", "create", "t"]);
    let lines: String = (0..50_000)
        .map(|n| format!("a line that fills the pipe {n}\n"))
        .collect();
    bench.produce("t", &lines);
    let mut reading = bench.spawn(&["consume", "t"]);
    assert_eq!(reading.line(), "a line that fills the pipe 0");
    drop(reading.stdout);
    let ran = super::Ran::of(reading.child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}

#[test]
fn deleted_records_are_passed_over_and_told() {
    let bench = Bench::with(&["log.retention.check.interval.ms=100"]);
    bench.out(&[
        "topic",
        "create",
        "t",
        "-c",
        "segment.bytes=16384",
        "-c",
        "retention.bytes=16384",
    ]);
    let lines: String = (0..200)
        .map(|n| format!("{n} {}\n", "x".repeat(1000)))
        .collect();
    bench
        .feed(&["produce", "t", "-q", "--batch-bytes", "4000"], &lines)
        .success();
    let start = || {
        let document = bench.json(&["topic", "describe", "t", "--json"]);
        document[0]["partitions"][0]["start_offset"]
            .as_i64()
            .unwrap()
    };
    let begun = std::time::Instant::now();
    while start() == 0 {
        assert!(begun.elapsed().as_secs() < 60, "nothing was deleted");
    }
    let ran = bench.run(&["consume", "t", "--from", "0", "-F", "%o\\n", "-c", "1"]);
    assert!(
        ran.err
            .contains("t partition 0: offset 0 is not in the log ("),
        "{}",
        ran.err
    );
    assert!(ran.success().trim().parse::<i64>().unwrap() > 0);
}

#[test]
fn what_was_read_before_the_input_failed_is_produced_and_told() {
    let bench = Bench::start();
    let mut lines = "short\n".repeat(1000);
    lines.push_str(&"x".repeat((100 << 20) + 1));
    let ran = bench.feed(&["produce", "t"], &lines);
    assert!(ran.err.starts_with("produced 1000 records "), "{}", ran.err);
    ran.fails_with("cannot read standard input: a line is longer than 104857600 bytes");
    assert_eq!(bench.out(&["consume", "t", "-q"]), "short\n".repeat(1000));
}

#[test]
fn options_that_contradict_each_other_are_usage_errors() {
    let nobody = "127.0.0.1:1".parse().unwrap();
    for arguments in [
        &["consume", "t", "--json", "-F", "value"][..],
        &["consume", "t", "-F", "%q"],
        &["consume", "t", "-F", "nonsense"],
        &["consume", "t", "-g", ""],
        &["consume", "t:x"],
        &["consume"],
        &["produce"],
        &["produce", "t", "-z", "brotli"],
        &["produce", "t", "--acks", "2"],
    ] {
        feed(nobody, arguments, "").is_usage_error();
    }
    feed(nobody, &["produce", "t", "-f", "/no/such"], "")
        .fails_with("cannot read /no/such: No such file or directory (os error 2)");
}
