//! `highwater drill`: the real binary, a broker of its own, real cuts.

use super::{command, data_dir, told, Ran, BINARY};
use highwater::cli::drill::{BlockStack, BlockStackError};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

fn drill(dir: &Path, arguments: &[&str]) -> Ran {
    let nobody = "127.0.0.1:1".parse().unwrap();
    let mut command = command(nobody, &["drill", "--dir", dir.to_str().unwrap()]);
    Ran::of(command.args(arguments).output().unwrap())
}

/// Whether the power of a block device can be cut here; told, if not.
fn can_cut(test: &str) -> bool {
    match BlockStack::check() {
        Ok(()) => true,
        Err(missing @ BlockStackError::Missing { .. }) => {
            eprintln!("SKIPPED {test}: {missing}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_killed_broker_loses_nothing_and_no_flush_is_claimed() {
    let dir = data_dir();
    let text = drill(
        dir.path(),
        &[
            "--cut",
            "kill",
            "--rounds",
            "2",
            "--duration",
            "2",
            "--seed",
            "7",
        ],
    )
    .success();
    assert!(text.starts_with("verdict  kept: all "), "{text}");
    assert!(
        text.contains("after 2 x SIGKILL; flush not proven: the page cache survived"),
        "{text}"
    );
    assert!(text.contains("\nseed     7\n"), "{text}");
    assert_eq!(names(dir.path()), [""; 0], "it leaves nothing");
}

#[test]
fn what_is_kept_can_be_looked_at_and_does_not_hinder_the_next() {
    let dir = data_dir();
    let arguments = [
        "--cut",
        "kill",
        "--rounds",
        "1",
        "--duration",
        "1",
        "--keep",
        "--json",
    ];
    let ran: Value = serde_json::from_str(&drill(dir.path(), &arguments).success()).unwrap();
    assert_eq!(ran["verdict"], "flush_not_proven");
    assert_eq!(ran["fault"], "kill");
    let round = &ran["rounds"][0];
    assert!(round["compared"].as_u64().unwrap() > 0, "{ran}");
    assert!(round["acknowledged"].as_u64() <= round["sent"].as_u64());
    let kept = Path::new(ran["kept_at"].as_str().unwrap());
    let ledger = fs::read_to_string(kept.join("ledger.log")).unwrap();
    let told = |what: &str| ledger.lines().filter(|line| line.starts_with(what)).count();
    assert!(told("sent drill-") > 0 && told("acknowledged drill-") > 0);
    assert!(kept.join("data").is_dir() && kept.join("broker.log").is_file());
    drill(
        dir.path(),
        &["--cut", "kill", "--rounds", "1", "--duration", "1"],
    )
    .success();
    assert_eq!(names(dir.path()).len(), 1, "the kept one");
}

#[test]
fn a_cut_below_the_file_system_loses_nothing_and_is_proven_to_be_one() {
    if !can_cut("a_cut_below_the_file_system_loses_nothing_and_is_proven_to_be_one") {
        return;
    }
    let dir = data_dir();
    let arguments = [
        "--cut",
        "block",
        "--rounds",
        "2",
        "--duration",
        "2",
        "--json",
    ];
    let ran: Value = serde_json::from_str(&drill(dir.path(), &arguments).success()).unwrap();
    assert_eq!(ran["verdict"], "flush_proven", "{ran}");
    assert!(ran["real_cuts"].as_u64().unwrap() > 0, "{ran}");
    assert!(ran["rounds"][1]["compared"].as_u64().unwrap() > 0, "{ran}");
    assert_eq!(names(dir.path()), [""; 0], "it leaves nothing");
}

#[test]
fn a_broker_that_does_not_flush_loses_and_the_drill_notices() {
    if !can_cut("a_broker_that_does_not_flush_loses_and_the_drill_notices") {
        return;
    }
    let dir = data_dir();
    let text = drill(
        dir.path(),
        &["--self-test", "--rounds", "3", "--duration", "2"],
    )
    .success();
    assert!(text.starts_with("verdict  LOST: "), "{text}");
    assert!(text.contains("acknowledged, and gone"), "{text}");
    // The same broker in a drill that judges it by its word.
    let ran = drill(
        dir.path(),
        &[
            "--cut",
            "block",
            "--rounds",
            "3",
            "--duration",
            "2",
            "--set",
            "flush.on.ack=none",
        ],
    );
    ran.fails_with("the drill found losses; run it again with --seed ");
    assert!(ran.out.starts_with("verdict  LOST: "), "{}", ran.out);
    let kept = ran
        .out
        .lines()
        .find_map(|line| line.strip_prefix("kept at  "));
    let kept = Path::new(kept.unwrap().split(" (").next().unwrap());
    for name in ["ledger.log", "broker.log", "data"] {
        assert!(kept.join(name).exists(), "{name}: {}", ran.out);
    }
    assert!(!kept.join("block-stack").exists());
}

#[test]
fn what_is_no_drills_is_not_touched() {
    let dir = data_dir();
    fs::write(dir.path().join("meta.properties"), "precious").unwrap();
    let ran = drill(dir.path(), &["--cut", "kill"]);
    ran.is_usage_error();
    assert!(
        ran.err
            .contains("holds meta.properties, which is no drill's"),
        "{}",
        ran.err
    );
    assert_eq!(names(dir.path()), ["meta.properties"]);
    let file = dir.path().join("meta.properties");
    drill(&file, &["--cut", "kill"]).is_usage_error();
    assert_eq!(fs::read_to_string(file).unwrap(), "precious");
}

#[test]
fn bad_arguments_are_refused() {
    let dir = data_dir();
    let bad: [&[&str]; 7] = [
        &["--rounds", "0"],
        &["--duration", "x"],
        &["--clients", "65"],
        &["--cut", "hard"],
        &["--set", "log.dirs=/var/lib"],
        &["--set", "nothing"],
        &["--self-test", "--cut", "kill"],
    ];
    for arguments in bad {
        drill(dir.path(), arguments).is_usage_error();
    }
    // One that the broker refuses: its words are told.
    let ran = drill(dir.path(), &["--cut", "kill", "--set", "no.such.setting=1"]);
    ran.fails_with("the broker did not start ");
    assert!(ran.err.contains("no.such.setting"), "{}", ran.err);
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn an_interrupted_drill_leaves_nothing() {
    let dir = data_dir();
    let place = dir.path().join("new");
    let nobody = "127.0.0.1:1".parse().unwrap();
    let arguments = ["drill", "--duration", "1", "--rounds", "10000", "--dir"];
    let mut child = told(Command::new(BINARY), nobody, &arguments)
        .arg(&place)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("round 1: ") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    assert_eq!(names(&place).len(), 1);
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
    assert!(
        rest.ends_with("interrupted; the broker is stopped and the drill's folder removed\n"),
        "{rest}"
    );
    assert!(
        !place.exists(),
        "neither the folder nor the directory that it made"
    );
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(place.to_str().unwrap()), "{mounts}");
}
