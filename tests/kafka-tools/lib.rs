//! What the tests of this crate share: Apache Kafka's programs, the records that are produced, and the lines that a
//! dump tool prints for them.
//!
//! The broker's binary is named by `HIGHWATER_BIN`, the directory of Kafka's jars by `KAFKA_JARS`; `scripts/test` sets
//! both.

#[path = "../harness/broker.rs"]
pub mod broker;
#[allow(dead_code)] // It serves other crates too.
#[path = "../broker/client.rs"]
pub mod client;
pub mod dump;
#[path = "../harness/files.rs"]
pub mod files;
pub mod kafka;
pub mod records;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The binary under test.
pub fn highwater() -> PathBuf {
    std::env::var("HIGHWATER_BIN")
        .expect("HIGHWATER_BIN names the broker's binary (scripts/test sets it)")
        .into()
}

/// A directory for data, on the file system of the build, where direct I/O works.
pub fn data_dir() -> tempfile::TempDir {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::fs::create_dir_all(&target).expect("the target directory can be made");
    let target = target
        .canonicalize()
        .expect("the target directory is there");
    tempfile::Builder::new()
        .prefix("kafka-tools-test-")
        .tempdir_in(target)
        .expect("a temporary directory can be made")
}

/// Runs a `highwater log` command, insists that it found nothing wrong, and returns what it printed.
pub fn highwater_log(arguments: &[&str], dir: &Path) -> String {
    let output = Command::new(highwater())
        .arg("log")
        .args(arguments)
        .arg(dir)
        .output()
        .expect("the binary runs");
    let stdout = String::from_utf8(output.stdout).expect("the output is UTF-8");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stderr.is_empty(),
        "highwater log {} {}: {}\n{stdout}\n{stderr}",
        arguments.join(" "),
        dir.display(),
        output.status
    );
    stdout
}
