//! The commands for a running broker: the real binary against the real broker. Tables, JSON, and each error.

#[path = "../harness/broker.rs"]
mod broker;
mod configs;
mod doctor;
mod drill;
mod drill_plug;
mod errors;
#[path = "../harness/files.rs"]
mod files;
mod groups;
mod records;
mod topics;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use broker::{Broker, Launch};
use serde_json::Value;

/// A broker on a directory of its own, and the tool that is told its address.
struct Bench {
    broker: Broker,
    _dir: tempfile::TempDir,
}

/// What a run of the tool left.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Bench {
    fn start() -> Bench {
        Bench::with(&[])
    }

    fn with(settings: &[&str]) -> Bench {
        let dir = data_dir();
        let launch = Launch::new(BINARY, dir.path()).shards(2);
        let launch = settings
            .iter()
            .fold(launch, |launch, setting| launch.set(*setting));
        Bench {
            broker: launch.start(),
            _dir: dir,
        }
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.feed(arguments, "")
    }

    /// Runs the tool with this on its standard input.
    fn feed(&self, arguments: &[&str], input: &str) -> Ran {
        feed(self.broker.addr(), arguments, input)
    }

    /// Runs what must succeed, and gives its output.
    fn out(&self, arguments: &[&str]) -> String {
        self.run(arguments).success()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let out = self.out(arguments);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// Produces lines to a topic.
    fn produce(&self, topic: &str, lines: &str) {
        self.feed(&["produce", topic, "--quiet"], lines).success();
    }

    /// Starts the tool, and does not wait for its end.
    fn spawn(&self, arguments: &[&str]) -> Running {
        // Signals go to it, not to one that watches it.
        let mut child = told(Command::new(BINARY), self.broker.addr(), arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the tool starts");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Running { child, stdout }
    }
}

/// A tool that runs.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Waits for a line of its output.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout
            .read_line(&mut line)
            .expect("stdout can be read");
        line.trim_end().to_owned()
    }

    /// SIGINT, and what it said by its end.
    fn interrupt(self) -> Ran {
        let sent = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        assert!(sent.expect("kill can be run").success());
        self.end()
    }

    fn end(mut self) -> Ran {
        let mut out = String::new();
        while self.stdout.read_line(&mut out).expect("stdout can be read") > 0 {}
        let mut ran = Ran::of(self.child.wait_with_output().expect("the tool ends"));
        ran.out = out;
        ran
    }
}

impl Ran {
    fn of(output: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).expect("the output is UTF-8");
        Ran {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    #[track_caller]
    fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// It failed with one sentence, which is or begins with this.
    #[track_caller]
    fn fails_with(&self, sentence: &str) {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        let last = self.err.lines().last().unwrap_or_default();
        assert!(
            last.starts_with(&format!("highwater: {sentence}")),
            "{}",
            self.err
        );
    }

    #[track_caller]
    fn is_usage_error(&self) {
        assert_eq!(self.code, Some(2), "{}{}", self.out, self.err);
        assert!(!self.err.is_empty());
        assert_eq!(self.out, "");
    }
}

fn feed(broker: SocketAddr, arguments: &[&str], input: &str) -> Ran {
    let mut child = command(broker, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_owned();
    // Beside it, as it may answer before it has read everything.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let ran = Ran::of(child.wait_with_output().expect("the tool ends"));
    // One that ends early leaves a broken pipe.
    let _ = writer.join().expect("the writer does not panic");
    ran
}

/// A run that must not hang a test.
fn command(broker: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["120", BINARY]);
    told(command, broker, arguments)
}

fn told(mut command: Command, broker: SocketAddr, arguments: &[&str]) -> Command {
    command
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HIGHWATER_") {
            command.env_remove(name);
        }
    }
    command.env("HIGHWATER_BROKER", broker.to_string());
    command
}

fn data_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory can be made")
}

/// The rows of a table, each as its cells.
fn cells(table: &str) -> Vec<Vec<&str>> {
    table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect()
}

const BINARY: &str = env!("CARGO_BIN_EXE_highwater");
