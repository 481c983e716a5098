//! The floor's programs from outside: what they print, how they end, and what they leave behind.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn perf() -> Command {
    Command::new(env!("CARGO_BIN_EXE_perf"))
}

fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("cargo makes the directory")
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args(["-s", name, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn the_parts_that_are_asked_for_are_measured_and_written_as_json() {
    let dir = temp_dir();
    let json = dir.path().join("floor.json");
    let output = perf()
        .args([
            "floor",
            "--quick",
            "--seconds",
            "0.01",
            "--only",
            "echo,send",
            "--json",
        ])
        .arg(&json)
        .output()
        .unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}");
    assert!(table.contains("64 B, back to back"), "{table}");
    assert!(!table.contains("direct write"), "{table}");
    let figures = std::fs::read_to_string(&json).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    let cells = figures["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 16);
    for cell in cells {
        assert!(cell["operations"].as_u64().unwrap() > 0, "{cell}");
        assert_eq!(cell["operations"], cell["latency"]["samples"]);
    }
}

#[test]
fn a_signal_ends_the_measuring_and_leaves_no_file() {
    let dir = temp_dir();
    let mut child = perf()
        .args(["floor", "--seconds", "30", "--only", "write", "--dir"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("direct write") {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "it goes on");
    }
    assert!(!is_empty(dir.path()));
    signal(&child, "INT");
    let mut error = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut error)
        .unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(error.contains("stopped by a signal"), "{error}");
    assert!(is_empty(dir.path()));
}

#[test]
fn what_is_wrong_is_said_in_one_sentence_before_anything_is_measured() {
    for (args, said) in [
        (&["--dir", "/nowhere/at/all"][..], "is no directory"),
        (&["--cpus", "0"], "two CPUs, as in 0/1"),
        (&["--cpus", "0/1023"], "CPU 1023"),
        (&["--seconds", "0"], "--seconds is above 0"),
        (&["--only", "nothing"], "invalid value 'nothing'"),
        (&["--json", "/nowhere/at/all.json"], "can't be written"),
    ] {
        let output = perf()
            .args(["floor", "--quick"])
            .args(args)
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{args:?}");
        assert!(error.contains(said), "{args:?}: {error}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn the_server_says_where_it_listens_and_ends_by_a_signal() {
    let dir = temp_dir();
    let mut child = perf()
        .args(["floor-server", "--dir"])
        .arg(dir.path().join("data"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let addr = line
        .trim()
        .strip_prefix("listening ")
        .expect("where it listens");
    let mut socket = TcpStream::connect(addr).unwrap();
    signal(&child, "TERM");
    assert!(child.wait().unwrap().success());
    assert_eq!(socket.read(&mut [0; 1]).unwrap(), 0);
}
