//! Apache Kafka's programs as child processes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No program and no start takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A Java program with Kafka's jars.
fn java(heap: &str) -> Command {
    let jars = std::env::var("KAFKA_JARS")
        .expect("KAFKA_JARS names the directory of Kafka's jars (scripts/test sets it)");
    let mut command = Command::new("java");
    command
        .arg(format!("-Xmx{heap}"))
        // They start faster, and what they run is short.
        .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args(["-cp", &format!("{jars}/*")])
        .stdin(Stdio::null());
    command
}

/// Runs one of Kafka's programs to its end, insists that it did not fail, and returns what it printed: its output, then
/// its complaints.
pub fn run(class: &str, arguments: &[&str]) -> String {
    let (status, said) = run_to_its_end(class, arguments);
    assert!(status.success(), "{class}: {status}\n{said}");
    said
}

/// The same of one that must fail.
pub fn run_refused(class: &str, arguments: &[&str]) -> String {
    let (status, said) = run_to_its_end(class, arguments);
    assert_eq!(status.code(), Some(1), "{class}: {status}\n{said}");
    said
}

fn run_to_its_end(class: &str, arguments: &[&str]) -> (ExitStatus, String) {
    let child = java("256m")
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        .arg(class)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("java: {error} (scripts/test --prepare installs it)"));
    let mut child = Killed(child);
    let text = read_all(child.0.stdout.take().expect("stdout is piped"));
    let complaints = read_all(child.0.stderr.take().expect("stderr is piped"));
    let status = child.wait();
    let text = text.join().expect("the reader does not panic");
    (
        status,
        text + &complaints.join().expect("the reader does not panic"),
    )
}

/// Reads a program's output beside it, so that a full pipe does not stop it and one that hangs is ended in time.
fn read_all(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("UTF-8 output");
        text
    })
}

/// Kafka's dump tool over files, each with its records.
pub fn dump_log(files: &[PathBuf]) -> String {
    run(
        DUMP_LOG,
        &[
            "--deep-iteration",
            "--print-data-log",
            "--files",
            &list(files),
        ],
    )
}

/// Kafka's dump tool over files of `__consumer_offsets`, each record as what it means.
pub fn dump_offsets(files: &[PathBuf]) -> String {
    run(DUMP_LOG, &["--offsets-decoder", "--files", &list(files)])
}

/// The check that Kafka does with an index before it uses it.
pub fn check_indexes(files: &[PathBuf]) -> String {
    run(DUMP_LOG, &["--index-sanity-check", "--files", &list(files)])
}

/// Records of 100 bytes from Kafka's own producer, which is idempotent by default.
pub fn produce(addr: SocketAddr, topic: &str, records: usize, settings: &[&str]) {
    let bootstrap = format!("bootstrap.servers={addr}");
    let count = records.to_string();
    let mut arguments = vec!["--topic", topic, "--num-records", &count];
    arguments.extend(["--record-size", "100", "--throughput", "-1"]);
    arguments.extend(["--command-property", &bootstrap]);
    arguments.extend(settings);
    let said = run("org.apache.kafka.tools.ProducerPerformance", &arguments);
    assert!(said.contains(&format!("{count} records sent")), "{said}");
}

fn list(files: &[PathBuf]) -> String {
    let names: Vec<&str> = files
        .iter()
        .map(|file| file.to_str().expect("paths of tests are UTF-8"))
        .collect();
    names.join(",")
}

const DUMP_LOG: &str = "org.apache.kafka.tools.DumpLogSegments";

/// A running Apache Kafka, broker and controller in one process. Killed when dropped.
pub struct Kafka {
    process: Killed,
    addr: SocketAddr,
    log: PathBuf,
}

impl Kafka {
    /// Formats a data directory in `dir` and starts Kafka on it.
    pub fn start(dir: &Path, settings: &[&str]) -> Kafka {
        // A port that was free may be taken before Kafka binds it.
        for _ in 0..3 {
            let attempt = dir.join(format!("kafka-{}", free_port()));
            if let Some(kafka) = Kafka::try_start(&attempt, settings) {
                return kafka;
            }
        }
        panic!("Kafka did not start, three times: see {}", dir.display());
    }

    fn try_start(dir: &Path, settings: &[&str]) -> Option<Kafka> {
        let (broker, controller) = (free_port(), free_port());
        std::fs::create_dir_all(dir).expect("a directory can be made");
        let properties = dir.join("server.properties");
        let text = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             log.dirs={}/data\n\
             offsets.topic.replication.factor=1\n\
             offsets.topic.num.partitions=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=1\n\
             {}\n",
            dir.display(),
            settings.join("\n")
        );
        std::fs::write(&properties, text).expect("a file can be written");
        let properties = properties.to_str().expect("paths of tests are UTF-8");
        run(
            "kafka.tools.StorageTool",
            &["format", "--standalone", "-t", CLUSTER_ID, "-c", properties],
        );
        let log = dir.join("kafka.log");
        let output = File::create(&log).expect("a file can be written");
        let child = java("512m")
            .args(["kafka.Kafka", properties])
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output)
            .spawn()
            .expect("java runs");
        let mut kafka = Kafka {
            process: Killed(child),
            addr: SocketAddr::from(([127, 0, 0, 1], broker)),
            log,
        };
        let start = Instant::now();
        while !kafka.has_said("Kafka Server started") {
            if kafka.process.0.try_wait().expect("a status").is_some() {
                eprintln!("Kafka ended: {}", kafka.log_text());
                return None;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "Kafka does not get ready:\n{}",
                kafka.log_text()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        TcpStream::connect(kafka.addr).expect("Kafka listens");
        Some(kafka)
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn data_dir(&self) -> PathBuf {
        self.log.with_file_name("data")
    }

    /// SIGTERM, and wait for the end.
    pub fn stop(mut self) -> PathBuf {
        let sent = Command::new("kill")
            .arg(self.process.0.id().to_string())
            .status()
            .expect("kill can be run");
        assert!(sent.success());
        // Java ends with 128 + 15 after a clean stop too.
        let status = self.process.wait();
        assert!(
            [Some(0), Some(143)].contains(&status.code()) && self.has_said("shut down completed"),
            "{status}: {}",
            self.log_text()
        );
        self.data_dir()
    }

    /// Waits until something is so, which Kafka does in its own time.
    pub fn wait_until(&self, what: &str, mut so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !so() {
            assert!(
                start.elapsed() < PATIENCE,
                "{what} does not come about:\n{}",
                self.log_text()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn has_said(&self, words: &str) -> bool {
        let log = File::open(&self.log).expect("the log is there");
        BufReader::new(log)
            .lines()
            .map_while(Result::ok)
            .any(|line| line.contains(words))
    }

    /// The last lines of its log.
    fn log_text(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(50)..].join("\n")
    }
}

/// A child that does not outlive its owner.
struct Killed(Child);

impl Killed {
    fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("a status") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the program does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qk";
