//! kcat, the command-line client, as a user would run it.

use client_tests::{broker::Broker, data_dir, launch};
use std::io::Write;
use std::process::{Command, Stdio};

fn kcat(broker: &Broker, args: &[&str], stdin: &str) -> String {
    let mut child = Command::new("kcat")
        // Cargo names the librdkafka that was built for the tests; kcat has its own.
        .env_remove("LD_LIBRARY_PATH")
        .args(["-b", &broker.addr().to_string()])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kcat is installed (scripts/test installs it)");
    child
        .stdin
        .take()
        .expect("stdin is piped")
        .write_all(stdin.as_bytes())
        .expect("kcat reads its input");
    let output = child.wait_with_output().expect("kcat ends");
    assert!(
        output.status.success(),
        "kcat {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn given_a_fresh_broker_when_kcat_produces_then_kcat_consumes() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    for acks in ["0", "1", "all"] {
        let topic = format!("kcat-{acks}");
        let input = "one\ntwo\nthree\n";
        // -t creates the topic by the metadata request.
        kcat(
            &broker,
            &["-P", "-t", &topic, "-X", &format!("acks={acks}")],
            input,
        );
        let args = ["-C", "-t", &topic, "-o", "beginning", "-c", "3", "-q"];
        assert_eq!(kcat(&broker, &args, ""), input, "acks {acks}");
    }
    broker.stop();
}

#[test]
fn given_an_idempotent_producer_when_it_produces_then_each_line_is_there_once() {
    let dir = data_dir();
    let launch = launch(dir.path());
    let mut all = String::new();
    for round in 0..2 {
        let broker = launch.start();
        let line = |n| format!("{round}-{n}\n");
        let input: String = (0..500).map(line).collect();
        let args = ["-P", "-t", "idempotent", "-X", "enable.idempotence=true"];
        let small = ["-X", "batch.num.messages=20", "-X", "linger.ms=1"];
        kcat(&broker, &[&args[..], &small].concat(), &input);
        all += &input;
        let args = ["-C", "-t", "idempotent", "-o", "beginning", "-e", "-q"];
        assert_eq!(kcat(&broker, &args, ""), all);
        broker.stop();
    }
}

#[test]
fn given_each_codec_when_kcat_produces_then_kcat_consumes() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    for codec in ["gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("codec-{codec}");
        let input = "a compressible line, a compressible line\n".repeat(100);
        kcat(&broker, &["-P", "-t", &topic, "-z", codec], &input);
        let args = ["-C", "-t", &topic, "-o", "beginning", "-c", "100", "-q"];
        assert_eq!(kcat(&broker, &args, ""), input, "{codec}");
    }
    broker.stop();
}

#[test]
fn given_topics_when_kcat_lists_then_brokers_and_partitions_are_named() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    kcat(&broker, &["-P", "-t", "listed"], "x\n");
    let listing = kcat(&broker, &["-L"], "");
    assert!(
        listing.contains(&format!("broker 1 at {}", broker.addr())),
        "{listing}"
    );
    assert!(
        listing.contains("topic \"listed\" with 1 partitions"),
        "{listing}"
    );
    broker.stop();
}

#[test]
fn given_timestamps_when_kcat_queries_then_the_offset_is_the_first_at_or_after() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    kcat(&broker, &["-P", "-t", "times"], "a\nb\n");
    let at_zero = kcat(&broker, &["-Q", "-t", "times:0:0"], "");
    assert!(at_zero.contains("offset 0"), "{at_zero}");
    let latest = kcat(&broker, &["-Q", "-t", "times:0:-1"], "");
    assert!(latest.contains("offset 2"), "{latest}");
    broker.stop();
}

#[test]
fn given_a_group_when_kcat_consumes_again_then_it_resumes_where_it_was() {
    let dir = data_dir();
    let launch = launch(dir.path()).set("group.initial.rebalance.delay.ms=0");
    for input in ["one\ntwo\nthree\n", "four\nfive\n", "six\n"] {
        let broker = launch.start();
        kcat(&broker, &["-P", "-t", "resumed"], input);
        let count = input.lines().count().to_string();
        let args = [
            "-G",
            "g",
            "-q",
            "-c",
            &count,
            "-X",
            "auto.offset.reset=earliest",
        ];
        assert_eq!(
            kcat(&broker, &[&args[..], &["resumed"]].concat(), ""),
            input
        );
        broker.stop();
    }
}
