//! `perf run` as a person runs it: the real binary, with Highwater's, in a directory of its own.

mod support;

use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::highwater;

const TINY: &str = r#"
    name = "tiny"
    title = "A few records"
    [case]
    topic = { flush = true }
    records = { bytes = 100 }
    producers = { count = 2 }
    consumers = { sets = 1 }
    timing = { warmup_s = 0.05, measure_s = 1.0, settle_s = 0.05, repeats = 2, bytes_max = 10_000_000 }
    loads = [
        { name = "capacity", saturate = true, once = true },
        { name = "half", share = 0.5 },
    ]
"#;

/// With a small file, so that it is soon written.
const FLOOR: &str = "floor=floor:,window-bytes=16777216";
const TARGETS: &[&str] = &["--target", "highwater", "--target", FLOOR];

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_run_measures_reports_resumes_and_leaves_nothing_behind() {
    let place = Place::new(TINY);
    let first = place.run(TARGETS);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let table = text(&first.stdout);
    assert!(
        table.contains("highwater") && table.contains("floor"),
        "{table}"
    );
    let results = place.results();
    let keys: Vec<String> = results.iter().map(key).collect();
    let expected = [
        "capacity highwater 1",
        "capacity floor 1",
        "half highwater 1",
        "half floor 1",
        "half highwater 2",
        "half floor 2",
    ];
    assert_eq!(sorted(keys), sorted(expected.map(str::to_owned).to_vec()));
    for measurement in &results {
        assert_eq!(measurement["missing"], Value::Null, "{measurement}");
        let measured = &measurement["measured"];
        assert!(
            measured["produced"]["records"].as_u64().unwrap() > 0,
            "{measured}"
        );
        assert!(
            measured["acknowledged"]["samples"].as_u64().unwrap() > 0,
            "{measured}"
        );
        assert!(
            measured["delivered"]["samples"].as_u64().unwrap() > 0,
            "{measured}"
        );
        assert!(
            measurement["cost"]["seconds"].as_f64().unwrap() > 0.0,
            "{measurement}"
        );
    }
    // Half of what the only broker can do, for both.
    let rates: Vec<f64> = results.iter().filter_map(|m| m["rate"].as_f64()).collect();
    assert_eq!(rates.len(), 4);
    assert!(rates.iter().all(|rate| *rate == rates[0]), "{rates:?}");
    assert!(place.read("report.html").contains("</svg>"));
    place.assert_clean();

    // Again: nothing is left to measure.
    let before = place.read("results.json");
    let again = place.run(TARGETS);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(
        text(&again.stderr).contains("nothing is left"),
        "{}",
        text(&again.stderr)
    );
    assert_eq!(place.read("results.json"), before);

    // With other targets it is another run.
    let other = place.run(&["--target", FLOOR]);
    assert_error(&other, "was measured with targets");
    assert_eq!(place.read("results.json"), before);

    // A load that is defined anew is measured anew, and only that one.
    place.write_workload(&TINY.replace("share = 0.5", "share = 0.4"));
    let changed = place.run(TARGETS);
    assert!(changed.status.success(), "{}", text(&changed.stderr));
    assert!(
        text(&changed.stderr).contains("4 of 6 measurements"),
        "{}",
        text(&changed.stderr)
    );
    place.assert_clean();
}

#[test]
fn ctrl_c_keeps_the_results_and_the_next_run_goes_on() {
    let slow = TINY.replace("repeats = 2", "repeats = 1");
    let place = Place::new(&slow);
    let mut running = place.start(TARGETS);
    place.wait_for(&mut running, |place| {
        place.dir.join("out/results.json").exists() && place.results().len() >= 2
    });
    assert!(!children(running.id()).is_empty(), "a broker runs");
    // Nobody else may measure there meanwhile.
    assert_error(&place.run(TARGETS), "another run is going on in");
    signal(&running, "INT");
    signal(&running, "INT");
    let stopped = finish(running);
    let kept = place.results().len();
    assert!((2..4).contains(&kept), "{kept}");
    let says = format!("stopped by a signal: {kept} of 4 measurements are in");
    assert_error(&stopped, &says);
    place.assert_clean();

    let rest = place.run(TARGETS);
    assert!(rest.status.success(), "{}", text(&rest.stderr));
    assert!(
        text(&rest.stderr).contains(&format!("{} of 4 measurements", 4 - kept)),
        "{}",
        text(&rest.stderr)
    );
    assert_eq!(place.results().len(), 4);
}

#[test]
fn a_broker_that_runs_already_is_measured_by_its_address_and_left_as_it_was() {
    let place = Place::new(TINY);
    let mut broker = Broker::start(&place.dir.join("its-own"));
    let outcome = place.run(&["--target", &format!("mine={}", broker.addr)]);
    assert!(outcome.status.success(), "{}", text(&outcome.stderr));
    let results = place.results();
    assert_eq!(results.len(), 3);
    assert!(
        results.iter().all(|m| m["missing"] == Value::Null),
        "{results:?}"
    );
    assert!(broker.child.try_wait().unwrap().is_none(), "it still runs");
    place.assert_clean();
}

#[test]
fn what_is_wrong_is_one_sentence_before_anything_starts() {
    let place = Place::new(TINY);
    let nobody = unused_addr();
    assert_error(&place.run(&["--target", &nobody]), &nobody);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let mut some = [0; 64];
            // It may have gone.
            let _ = socket.read(&mut some);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    assert_error(
        &place.run(&["--target", &addr]),
        "does not answer as a Kafka broker",
    );

    assert_error(
        &place.run(&["--target", "x=highwater:/no/such/binary"]),
        "/no/such/binary can't be run",
    );
    assert_error(&place.run(&["--target", "rabbit"]), "rabbit is no target");
    let twice = ["--target", "highwater", "--target", "highwater"];
    assert_error(&place.run(&twice), "two targets are named highwater");
    assert_error(
        &place.run(&["--target", "highwater", "--broker-cpus", "4000"]),
        "--broker-cpus",
    );
    place.assert_nothing_made();

    place.write_workload(&TINY.replace("10_000_000", "9_000_000_000_000_000_000"));
    assert_error(&place.run(&["--target", "highwater"]), "are needed");
    place.write_workload(&TINY.replace("bytes = 100", "bytes = 1"));
    assert_error(&place.run(&["--target", "highwater"]), "records.bytes");
    fs::remove_file(place.workload()).unwrap();
    assert_error(
        &place.run(&["--target", "highwater"]),
        "there is no workload",
    );
    place.assert_nothing_made();

    place.write_workload(TINY);
    fs::write(place.dir.join("out"), "a file").unwrap();
    assert_error(&place.run(&["--target", "highwater"]), "out");
    assert_eq!(fs::read_to_string(place.dir.join("out")).unwrap(), "a file");
}

#[test]
fn a_target_that_does_not_start_fails_the_run_with_its_reason() {
    let place = Place::new(TINY);
    // Of a run that was killed: it goes.
    fs::create_dir_all(place.dir.join("out/data-1/x")).unwrap();
    let outcome = place.run(&["--target", "x=highwater:,nosuch=1"]);
    assert_eq!(outcome.status.code(), Some(1));
    let error = text(&outcome.stderr);
    assert!(error.contains("there is no setting 'nosuch'"), "{error}");
    let last = error.lines().last().unwrap();
    assert!(
        last.starts_with("perf: 3 of 3 measurements have no result"),
        "{error}"
    );
    place.assert_clean();
}

#[test]
fn results_that_cannot_be_read_are_not_overwritten() {
    let place = Place::new(TINY);
    fs::create_dir(place.dir.join("out")).unwrap();
    fs::write(place.dir.join("out/results.json"), "{").unwrap();
    assert_error(
        &place.run(&["--target", "highwater"]),
        "results.json is not JSON",
    );
    assert_eq!(place.read("results.json"), "{");
}

/// A directory with a workload, on the disk that the build is on.
struct Place {
    dir: PathBuf,
    _guard: tempfile::TempDir,
}

impl Place {
    fn new(workload: &str) -> Place {
        let guard = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let place = Place {
            dir: guard.path().to_owned(),
            _guard: guard,
        };
        place.write_workload(workload);
        place
    }

    fn workload(&self) -> PathBuf {
        self.dir.join("tiny.toml")
    }

    fn write_workload(&self, text: &str) {
        fs::write(self.workload(), text).unwrap();
    }

    fn start(&self, arguments: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_perf"))
            .arg("run")
            .args(arguments)
            .arg("--workload")
            .arg(self.workload())
            .arg("--binary")
            .arg(highwater())
            .arg("--out")
            .arg(self.dir.join("out"))
            .args(["--memory", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        finish(self.start(arguments))
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.dir.join("out").join(file)).unwrap()
    }

    fn results(&self) -> Vec<Value> {
        let whole: Value = serde_json::from_str(&self.read("results.json")).unwrap();
        whole["measurements"].as_array().unwrap().clone()
    }

    fn wait_for(&self, child: &mut Child, done: impl Fn(&Place) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert_eq!(child.try_wait().unwrap(), None, "it ended early");
            assert!(start.elapsed() < PATIENCE, "it takes too long");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Results and report only, and no process that works here.
    fn assert_clean(&self) {
        let entries = fs::read_dir(self.dir.join("out")).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|name| name != "results.json" && name != "report.html");
        assert!(names.is_empty(), "{names:?}");
        let out = self.dir.join("out");
        let here: Vec<String> = command_lines()
            .into_iter()
            .filter(|line| line.contains(out.to_str().unwrap()))
            .collect();
        assert!(here.is_empty(), "{here:?}");
    }

    fn assert_nothing_made(&self) {
        assert!(!self.dir.join("out").exists());
    }
}

/// Highwater, started beside the run.
struct Broker {
    child: Child,
    addr: String,
}

impl Broker {
    fn start(dir: &Path) -> Broker {
        use std::io::{BufRead, BufReader};
        let mut child = Command::new(highwater())
            .args([
                "serve",
                "--listener",
                "127.0.0.1:0",
                "--admin-listener",
                "",
                "--data-dir",
            ])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let addr = lines
            .find_map(|line| {
                let rest = line
                    .trim_start()
                    .strip_prefix("listening")?
                    .trim()
                    .to_owned();
                Some(rest.split([',', ' ']).next()?.to_owned())
            })
            .expect("it says where it listens");
        Broker { child, addr }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The binary under test, as scripts/test names it, or the one beside perf's.
fn finish(mut child: Child) -> Output {
    // Read beside the waiting, so that a full pipe stops nobody.
    let stdout = reader(child.stdout.take().unwrap());
    let stderr = reader(child.stderr.take().unwrap());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("perf does not end: {}", text(&stderr.join().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Output {
        status,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

fn reader(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

fn assert_error(output: &Output, says: &str) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    let last = error.lines().last().unwrap_or_default();
    assert!(last.starts_with("perf: ") && last.contains(says), "{error}");
    assert_eq!(text(&output.stdout), "");
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([format!("-{name}"), child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Of all processes that this user may see.
fn command_lines() -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let line = |entry: fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    };
    entries.filter_map(line).collect()
}

fn children(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let child = |entry: fs::DirEntry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        let parent: u32 = parent.trim().parse().ok()?;
        (parent == pid).then(|| entry.file_name().to_str()?.parse().ok())?
    };
    entries.filter_map(child).collect()
}

/// Where nobody listens.
fn unused_addr() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn key(measurement: &Value) -> String {
    let key = &measurement["key"];
    let part = |name: &str| key[name].as_str().unwrap().to_owned();
    format!("{} {} {}", part("load"), part("target"), key["repeat"])
}

fn sorted(mut of: Vec<String>) -> Vec<String> {
    of.sort();
    of
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
