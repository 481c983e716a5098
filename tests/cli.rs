//! The real binary's command line: what it prints, where, and with which exit code.

use std::path::Path;
use std::process::{Command, Output};

/// Exit code of a failed command.
const FAILED: Option<i32> = Some(1);
/// Exit code of a command line that cannot be read.
const USAGE: Option<i32> = Some(2);

fn highwater(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary runs")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
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
    let stderr = stderr(output);
    assert_eq!(stderr, format!("highwater: {sentence}\n"));
    assert_eq!(output.status.code(), FAILED);
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
    for command in ["serve", "log", "config"] {
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
    assert_fails_with(
        &highwater(&["serve", "--shards", "many"]),
        "--shards: shards=many: must be a whole number, 0 to 1024",
    );
    assert_fails_with(
        &highwater(&["serve", "--listener", "0.0.0.0:0"]),
        "--listener: listeners=0.0.0.0:0: listens on every interface, so advertised.listeners must \
         say which address clients are to use",
    );
}

#[test]
fn an_unknown_setting_gets_a_suggestion() {
    assert_fails_with(
        &highwater(&["serve", "--set", "num.partition=3"]),
        "--set: there is no setting 'num.partition' (did you mean 'num.partitions'?)",
    );
}

#[test]
fn a_file_is_read_and_its_errors_name_the_line() {
    let dir = temporary();
    let file = dir.path().join("broker.properties");
    std::fs::write(&file, "# the broker\nnode.id=7\nlog.retention.hours=168\n").unwrap();
    assert_fails_with(
        &highwater(&["serve", "--config", text(&file)]),
        &format!(
            "{}:3: log.retention.hours=168 is not supported yet \
             (records are kept until the topic is deleted, so only '-1' is accepted)",
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
    assert_fails_with(
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
