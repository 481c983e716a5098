//! The real binary's command line: what it prints, where, and with which exit code.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use highwater::protocol::batch::BatchBuilder;

/// Exit code of a failed command.
const FAILED: Option<i32> = Some(1);
/// Exit code of a command line that cannot be read.
const USAGE: Option<i32> = Some(2);
/// Exit code of a broker whose settings can't be used (EX_CONFIG of sysexits.h).
const BAD_SETTING: Option<i32> = Some(78);

fn highwater(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary runs")
}

fn command(arguments: &[&str]) -> Command {
    // A broker that starts where it should refuse to must not hang the test.
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_highwater")]);
    command
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HIGHWATER_") {
            command.env_remove(name);
        }
    }
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("the output is UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("errors are UTF-8")
}

/// The command failed with one sentence, on one line, without a backtrace.
fn assert_fails_with(output: &Output, sentence: &str) {
    assert_ends_with(output, FAILED, sentence);
}

/// The same, because of a setting: a service manager need not try again.
fn assert_refuses_setting(output: &Output, sentence: &str) {
    assert_ends_with(output, BAD_SETTING, sentence);
}

fn assert_ends_with(output: &Output, code: Option<i32>, sentence: &str) {
    let stderr = stderr(output);
    assert_eq!(stderr, format!("highwater: {sentence}\n"));
    assert_eq!(output.status.code(), code);
    assert_eq!(stdout(output), "");
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory for the test")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

#[test]
fn help_names_every_command_and_flag() {
    let help = highwater(&["--help"]);
    assert!(help.status.success());
    for command in [
        "serve", "log", "config", "doctor", "topic", "group", "produce", "consume",
    ] {
        assert!(
            stdout(&help).contains(&format!("\n  {command} ")),
            "{}",
            stdout(&help)
        );
    }
    let help = stdout(&highwater(&["serve", "--help"]));
    for flag in [
        "config",
        "set",
        "data-dir",
        "listener",
        "advertised-listener",
        "shards",
        "node-id",
    ] {
        assert!(help.contains(&format!("--{flag} <")), "{help}");
    }
}

#[test]
fn a_command_line_that_cannot_be_read_is_a_usage_error() {
    for arguments in [
        &["serve", "--port", "1"][..],
        &["nonsense"],
        &[],
        &["log", "verify"],
        &["log", "dump"],
    ] {
        let output = highwater(arguments);
        assert_eq!(
            output.status.code(),
            USAGE,
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains("Usage: highwater"),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

#[test]
fn a_bad_value_names_its_flag() {
    assert_refuses_setting(
        &highwater(&["serve", "--shards", "many"]),
        "--shards: shards=many: must be a whole number, 0 to 1024",
    );
    assert_refuses_setting(
        &highwater(&["serve", "--listener", "0.0.0.0:0"]),
        "--listener: listeners=0.0.0.0:0: listens on every interface, so advertised.listeners must \
         say which address clients are to use",
    );
}

#[test]
fn an_unknown_setting_gets_a_suggestion() {
    assert_refuses_setting(
        &highwater(&["serve", "--set", "num.partition=3"]),
        "--set: there is no setting 'num.partition' (did you mean 'num.partitions'?)",
    );
}

#[test]
fn a_file_is_read_and_its_errors_name_the_line() {
    let dir = temporary();
    let file = dir.path().join("broker.properties");
    std::fs::write(
        &file,
        "# the broker\nnode.id=7\nlog.cleanup.policy=compacted\n",
    )
    .unwrap();
    assert_refuses_setting(
        &highwater(&["serve", "--config", text(&file)]),
        &format!(
            "{}:3: log.cleanup.policy=compacted: must be a list of compact, delete",
            text(&file)
        ),
    );
    let missing = dir.path().join("missing.properties");
    assert_fails_with(
        &highwater(&["serve", "--config", text(&missing)]),
        &format!(
            "cannot read {}: No such file or directory (os error 2)",
            text(&missing)
        ),
    );
}

#[test]
fn the_environment_is_read() {
    assert_refuses_setting(
        &command(&["serve"]).env("HIGHWATER_NODE_ID", "-7").output().unwrap(),
        "environment variable HIGHWATER_NODE_ID: node.id=-7: must be a whole number, 0 to 2147483647",
    );
    let output = command(&["serve"])
        .env("HIGHWATER_LOG", "highwater=loud")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), FAILED);
    let stderr = stderr(&output);
    assert!(
        stderr.starts_with("highwater: HIGHWATER_LOG=highwater=loud: "),
        "{stderr}"
    );
    assert!(
        stderr.ends_with(" or directives like info,highwater::storage=debug\n"),
        "{stderr}"
    );
}

/// A partition's directory with one segment of two batches.
fn partition() -> (tempfile::TempDir, PathBuf) {
    let dir = temporary();
    let partition = dir.path().join("topic-0");
    std::fs::create_dir(&partition).unwrap();
    let mut first = BatchBuilder::new();
    first.push(1000, Some(b"key"), Some(b"one"));
    first.push(1001, None, Some(b"two"));
    let mut second = BatchBuilder::new().base_offset(2);
    second.push(1002, None, Some(b"three"));
    let bytes = [first.build(), second.build()].concat();
    let segment = partition.join("00000000000000000000.log");
    std::fs::write(&segment, bytes).unwrap();
    (dir, segment)
}

#[test]
fn log_dump_prints_a_line_for_each_batch_and_each_record() {
    let (_dir, segment) = partition();
    let folder = text(segment.parent().unwrap());
    for path in [text(&segment), folder] {
        let output = highwater(&["log", "dump", path]);
        assert!(output.status.success(), "{}", stderr(&output));
        let printed = stdout(&output);
        assert_eq!(
            printed.lines().next(),
            Some(format!("Dumping {}", text(&segment)).as_str())
        );
        let batches = printed
            .lines()
            .filter(|line| line.starts_with("baseOffset: "));
        assert_eq!(batches.count(), 2, "{printed}");
        assert!(
            printed.contains("baseOffset: 0 lastOffset: 1 count: 2 "),
            "{printed}"
        );
        assert!(printed.contains("\n2 batches, 3 records, "), "{printed}");
        assert!(!printed.contains("payload"), "{printed}");
    }
    let output = highwater(&["log", "dump", folder, "--records"]);
    let printed = stdout(&output);
    let records: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    assert_eq!(records.len(), 3, "{printed}");
    assert!(records[0].ends_with(" key: key payload: one"), "{printed}");
    assert!(
        records[2].starts_with("| offset: 2 CreateTime: 1002 "),
        "{printed}"
    );
}

#[test]
fn log_verify_says_that_a_good_log_has_no_problems() {
    let empty = temporary();
    let output = highwater(&["log", "verify", text(empty.path())]);
    assert!(output.status.success(), "{}", stderr(&output));
    let nothing = "0 partitions, 0 segments, 0 batches, 0 records, 0 bytes, no problems";
    assert_eq!(
        stdout(&output),
        format!("{}: {nothing}\n", text(empty.path()))
    );

    let (dir, segment) = partition();
    let folder = text(segment.parent().unwrap());
    let output = highwater(&["log", "verify", folder]);
    assert!(
        output.status.success(),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    assert!(
        stdout(&output).contains("1 segment, 2 batches, 3 records, "),
        "{}",
        stdout(&output)
    );
    let output = highwater(&["log", "verify", text(dir.path())]);
    assert!(
        stdout(&output).contains("1 segment, 2 batches, 3 records, "),
        "{}",
        stdout(&output)
    );
}

#[test]
fn log_tools_fail_when_a_byte_is_wrong_and_say_where() {
    let (_dir, segment) = partition();
    let mut bytes = std::fs::read(&segment).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    for command in ["dump", "verify"] {
        let output = highwater(&["log", command, text(segment.parent().unwrap())]);
        assert_eq!(
            output.status.code(),
            FAILED,
            "{command}: {}",
            stdout(&output)
        );
        let stderr = stderr(&output);
        assert!(stderr.contains(text(&segment)), "{command}: {stderr}");
        assert!(
            stderr.ends_with("highwater: 1 problem was found\n"),
            "{command}: {stderr}"
        );
    }
}

#[test]
fn log_tools_fail_on_what_is_not_there() {
    let dir = temporary();
    let missing = dir.path().join("missing");
    assert_fails_with(
        &highwater(&["log", "verify", text(&missing)]),
        &format!("there is no directory {}", text(&missing)),
    );
    assert_fails_with(
        &highwater(&["log", "dump", text(dir.path())]),
        &format!(
            "there is no .log file in {}; name a partition's directory",
            text(dir.path())
        ),
    );
    let output = highwater(&[
        "log",
        "dump",
        text(&missing.join("00000000000000000000.log")),
    ]);
    assert_eq!(output.status.code(), FAILED);
    assert!(
        stderr(&output).contains("No such file"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn metrics_docs_prints_a_table_of_the_metrics() {
    let docs = highwater(&["metrics", "docs"]);
    assert!(docs.status.success(), "{}", stderr(&docs));
    assert_eq!(stdout(&docs), highwater::observe::markdown());
}

#[test]
fn config_docs_prints_a_table_of_the_settings() {
    let docs = highwater(&["config", "docs"]);
    assert!(docs.status.success(), "{}", stderr(&docs));
    for setting in highwater::config::SETTINGS {
        assert!(
            stdout(&docs).contains(&format!("\n| `{}` | ", setting.name)),
            "{}",
            setting.name
        );
    }
}
