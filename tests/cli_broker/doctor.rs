//! `highwater doctor`.

use super::{command, data_dir, Ran};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn doctor(arguments: &[&str]) -> Ran {
    let nobody = "127.0.0.1:1".parse().unwrap();
    let mut command = command(nobody, &["doctor"]);
    Ran::of(command.args(arguments).output().unwrap())
}

#[test]
fn a_machine_that_can_run_the_broker_is_told_so() {
    let dir = data_dir();
    let path = dir.path().to_str().unwrap();
    let text = doctor(&["--data-dir", path]).success();
    for check in [
        "kernel",
        "io_uring",
        "memlock",
        "nofile",
        "cpu",
        "memory",
        "file_system",
        "space",
        "direct_io",
        "flush",
        "durability",
    ] {
        assert!(
            text.lines()
                .any(|line| line.split_whitespace().nth(1) == Some(check)),
            "{check}: {text}"
        );
    }
    assert!(
        text.contains("\nExpect acks=all answers in about "),
        "{text}"
    );
    assert!(text.contains("What cannot be told from here: "), "{text}");

    let below = format!("{path}/not/there");
    let document: Value =
        serde_json::from_str(&doctor(&["--data-dir", &below, "--json"]).success()).unwrap();
    assert_ne!(document["verdict"], "fail");
    let flush = document["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["check"] == "flush")
        .unwrap();
    assert!(
        flush["figures"]["fdatasync_p50_us"].as_u64().unwrap() > 0,
        "{flush}"
    );
    let durability = document["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["check"] == "durability")
        .unwrap();
    let state = durability["figures"]["state"].as_str().unwrap();
    let states = ["honoured", "plausible", "not proven", "suspicious"];
    assert!(states.contains(&state), "{durability}");
    assert!(
        document["expected_ack_us"]["all_p99"].as_u64()
            >= document["expected_ack_us"]["all_p50"].as_u64()
    );
    // Nothing is left behind, and nothing made.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_keeps_the_broker_from_running_fails() {
    if Path::new("/dev/shm").is_dir() {
        let ran = doctor(&["--data-dir", "/dev/shm"]);
        // A container may have little room there, too.
        ran.fails_with("the broker could not run here; ");
        assert!(ran.out.contains("\nfail  direct_io "), "{}", ran.out);
        assert!(
            ran.out
                .contains("-> the file system refuses direct I/O: put the data on ext4 or xfs"),
            "{}",
            ran.out
        );
    }
    let limited = format!("ulimit -l 64 && exec {} doctor --data-dir .", super::BINARY);
    let ran = Ran::of(
        Command::new("sh")
            .args(["-c", &limited])
            .current_dir(env!("CARGO_TARGET_TMPDIR"))
            .output()
            .unwrap(),
    );
    // A privileged process has no such limit in effect; one that has it must fail and say what to change.
    if ran.code == Some(1) {
        assert!(ran.out.contains("LimitMEMLOCK=infinity"), "{}", ran.out);
    } else {
        ran.success();
    }
}
