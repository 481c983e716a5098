//! Damage at rest, from the flipped byte to the repaired partition.

use super::client::{batch_of, create_topic, fetch_all, produce, produce_ok, with};
use super::files::{files_of, len_of, scribble};
use super::open_metrics::{Scrape, PATIENCE};
use super::{data_dir, launch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const RECORDS: i64 = 100;

fn value(n: i64) -> String {
    format!("{n:01000}")
}

fn repair(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.args(["log", "repair"]).arg(dir).args(arguments);
    command.output().expect("the binary runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Every file below a directory with its bytes.
fn content(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => all.extend(content(&path)),
            false => drop(all.insert(path.clone(), std::fs::read(&path).expect("a file"))),
        }
    }
    all
}

#[test]
fn given_a_flipped_byte_when_scrubbed_and_repaired_then_the_log_ends_there_and_serves() {
    let dir = data_dir();
    let broker = launch(dir.path())
        .set("log.scrub.max.bytes.per.second=0")
        .start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "rest", 2, &[("segment.bytes", "20000")]).await;
        for n in 0..RECORDS {
            for partition in 0..2 {
                produce_ok(&c, "rest", partition, batch_of(&value(n))).await;
            }
        }
    });
    broker.stop();
    let segments = files_of(dir.path(), "rest-0", "log");
    assert!(segments.len() > 4);
    let mut bytes = std::fs::read(&segments[1]).expect("a segment");
    let base: i64 = segments[1]
        .file_stem()
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    let batch_bytes = u64::from(u32::from_be_bytes(bytes[8..12].try_into().unwrap())) + 12;
    let (cut, at) = (base + 2, 2 * batch_bytes + 500);
    bytes[at as usize] ^= 1;
    scribble(&segments[1], at, &bytes[at as usize..=at as usize]);

    let broker = launch(dir.path())
        .set("log.initial.task.delay.ms=0")
        .set("log.scrub.max.bytes.per.second=1000000000")
        .with_admin()
        .start();
    let addr = broker.addr();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let code = with(addr, |c| async move {
            produce(&c, "rest", 0, 1, batch_of("late")).await.error_code
        });
        match code {
            56 => break,
            0 => assert!(Instant::now() < deadline, "the scrubber found nothing"),
            other => panic!("error {other}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    with(addr, |c| async move {
        assert_eq!(fetch_all(&c, "rest", 1, 0).await.len() as i64, RECORDS);
        assert_eq!(produce_ok(&c, "rest", 1, batch_of("on")).await, RECORDS);
    });
    let said = broker.said();
    let name = segments[1].file_name().unwrap().to_str().unwrap();
    let line = said
        .lines()
        .find(|line| line.contains("the partition is offline"));
    let line = line.expect("one line says so");
    for part in [
        name,
        &format!("byte {}", 2 * batch_bytes),
        "highwater log repair",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let in_use = repair(dir.path(), &["--dry-run"]);
    assert!(String::from_utf8_lossy(&in_use.stderr).contains("in use"));
    let page = Scrape::of(&broker);
    assert_eq!(page.sum("highwater_scrub_damaged_segments_total", &[]), 1.0);
    broker.kill();

    let before = content(dir.path());
    for arguments in [&["--dry-run", "--truncate"][..], &["--dry-run"], &[]] {
        let ran = repair(dir.path(), arguments);
        assert_eq!(ran.status.code(), Some(1), "{arguments:?}");
        assert!(out(&ran).contains(&format!(
            "rest-0: would be cut at offset {cut}; lost: offsets {cut} to "
        )));
        assert!(out(&ran).contains("rest-1: no damage"));
        assert!(
            content(dir.path()) == before,
            "{arguments:?} changed something"
        );
    }
    let other = repair(
        dir.path(),
        &["--truncate", "--topic", "rest", "--partition", "1"],
    );
    assert_eq!(other.status.code(), Some(0));
    assert!(
        content(dir.path()) == before,
        "only the other partition was asked for"
    );
    let ran = repair(dir.path(), &["--truncate", "--json"]);
    assert_eq!(
        ran.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let rows: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let row = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["topic"] == "rest" && row["partition"] == 0);
    let row = row.expect("the partition's row");
    assert_eq!(
        (&row["outcome"], &row["cut"]["end_offset"]),
        (&"repaired".into(), &cut.into())
    );
    assert_eq!(len_of(&segments[1]), 2 * batch_bytes);
    assert_eq!(files_of(dir.path(), "rest-0", "log").len(), 2);
    let again = repair(dir.path(), &["--truncate"]);
    assert_eq!(again.status.code(), Some(0));
    assert!(
        out(&again)
            .lines()
            .all(|line| line.ends_with(": no damage")),
        "{}",
        out(&again)
    );

    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        let left = fetch_all(&c, "rest", 0, 0).await;
        let expected: Vec<_> = (0..cut).map(|n| (n, value(n))).collect();
        assert!(left == expected, "{} records are left", left.len());
        assert_eq!(produce_ok(&c, "rest", 0, batch_of("new")).await, cut);
        assert_eq!(fetch_all(&c, "rest", 1, 0).await.len() as i64, RECORDS + 1);
    });
    broker.stop();
}

#[test]
fn given_checked_reads_when_a_batch_is_damaged_then_it_is_not_served() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "read", 1, &[("segment.bytes", "20000")]).await;
        for n in 0..RECORDS {
            produce_ok(&c, "read", 0, batch_of(&value(n))).await;
        }
    });
    broker.stop();
    let segment = files_of(dir.path(), "read-0", "log").remove(0);
    scribble(&segment, 500, b"!");
    let broker = launch(dir.path())
        .set("log.read.check.crcs=true")
        .set("log.scrub.max.bytes.per.second=0")
        .start();
    with(broker.addr(), |c| async move {
        let answer = super::client::fetch(&c, "read", 0, 0, 0, 1 << 20).await;
        assert_eq!(answer.error_code, 56);
    });
    assert!(broker.said().contains("highwater log repair"));
    broker.kill();
}

/// A stop in mid-work is no damage; the same bytes below a clean stop's word are.
#[test]
fn given_a_torn_tail_after_a_kill_when_verified_then_it_is_told_apart_from_damage() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), |c| async move {
        create_topic(&c, "torn", 1, &[]).await;
        for n in 0..10 {
            produce_ok(&c, "torn", 0, batch_of(&value(n))).await;
        }
    });
    broker.kill();
    let log = super::files::active_log(dir.path(), "torn-0");
    let end = super::files::end_of_batches(&log);
    scribble(&log, end, &batch_of("half")[..40]);
    let verify = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.args(["log", "verify"]).arg(dir.path());
        command.output().expect("the binary runs")
    };
    let ran = verify();
    assert_eq!(
        ran.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    assert!(out(&ran).contains("unfinished for the next start"));
    assert_eq!(repair(dir.path(), &["--truncate"]).status.code(), Some(0));
    launch(dir.path()).start().stop();
    scribble(&log, 500, b"!");
    let ran = verify();
    assert_eq!(ran.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(said.contains("torn-0") && said.contains("CRC"), "{said}");
}
