//! `perf recovery` as a person runs it, with little data.

mod support;

use serde_json::Value;
use std::process::Command;
use support::highwater;

const MIB: u64 = 1 << 20;

#[test]
fn each_part_starts_what_it_says_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let json = dir.path().join("starts.json");
    let output = Command::new(env!("CARGO_BIN_EXE_perf"))
        .args(["recovery", "--log-mib", "12", "--tail-mib", "4"])
        .args(["--partitions", "5", "--clean-partitions", "7"])
        .arg("--binary")
        .arg(highwater())
        .arg("--dir")
        .arg(dir.path())
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let starts: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let starts = starts.as_array().unwrap();
    let parts: Vec<&str> = starts.iter().map(|s| s["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["log", "scan", "partitions", "clean"]);
    let count = |start: usize, name: &str| starts[start]["read"][name].as_u64().unwrap();
    let tail = count(0, "scanned_bytes");
    assert!((4 * MIB..8 * MIB).contains(&tail), "{tail}");
    let all = count(1, "scanned_bytes");
    assert!(all >= 12 * MIB, "{all}");
    assert!(starts[1]["raw_bytes_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(count(2, "segments_opened"), 5);
    assert_eq!(count(3, "segments_opened"), 7);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
