//! Any file of a data directory may be missing, empty, short, of another version, garbage,
//! or no file at all, after a kill and after a clean stop.
//!
//! Every record that a partition answers with is held against a ledger; what is not physically
//! destroyed must be there; what was done is said in a line that names the file.

use super::broker::{Broker, Launch};
use super::client::{batch_of, create_topic, fetch, list_offset, produce, produce_ok, with};
use super::files::files_of;
use super::{data_dir, launch};
use highwater::protocol::batch::Batches;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TOPIC: &str = "bad";
const RECORDS: i64 = 40;
const MARKER: &str = ".kafka_cleanshutdown";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Missing,
    Empty,
    Halved,
    OtherVersion,
    Garbage,
    Longer,
    Directory,
    Fifo,
    DanglingLink,
}

use Damage::*;

const DAMAGES: [Damage; 9] = [
    Missing,
    Empty,
    Halved,
    OtherVersion,
    Garbage,
    Longer,
    Directory,
    Fifo,
    DanglingLink,
];

impl Damage {
    /// Does it, and proves that it is done.
    fn apply(self, path: &Path) {
        let before = fs::read(path).unwrap_or_default();
        if path.exists() {
            fs::remove_file(path).expect("it can be removed");
        }
        let noise = |len: usize| (0..len).map(|n| (n * 31 + 7) as u8 | 1).collect::<Vec<_>>();
        let content = match self {
            Missing => return assert!(!path.exists()),
            Directory => {
                fs::create_dir(path).expect("a directory");
                return fs::write(path.join("kept"), b"x").expect("a file in it");
            }
            Fifo => {
                let made = Command::new("mkfifo").arg(path).status();
                return assert!(made.expect("mkfifo can be run").success());
            }
            DanglingLink => {
                return std::os::unix::fs::symlink("nowhere", path).expect("a link");
            }
            Empty => Vec::new(),
            Halved => before[..before.len() / 2].to_vec(),
            OtherVersion => {
                let mut other = before.clone();
                // Of the text files the digit, of a snapshot the number, of an index its first entry.
                let digit = other.iter().position(|byte| byte.is_ascii_digit());
                match digit.filter(|_| before.is_ascii()) {
                    Some(at) => other[at] = b'9',
                    None if other.len() > 1 => other[1] ^= 0x55,
                    None => {}
                }
                other
            }
            Garbage => noise(before.len().max(64)),
            Longer => [before.clone(), noise(777)].concat(),
        };
        fs::write(path, &content).expect("it can be written");
        assert_eq!(fs::read(path).expect("it can be read"), content);
    }
}

fn value(partition: i32, n: i64) -> String {
    format!("{partition}-{n}-{}", "x".repeat(1500))
}

fn launch_small(data_dir: &Path) -> Launch {
    launch(data_dir)
        .set("log.segment.bytes=20000")
        .set("replica.high.watermark.checkpoint.interval.ms=100")
}

/// A broker whose partitions have records from before its last clean stop and after it, and
/// whose checkpoint files name all of them; then stopped.
fn prepare(data_dir: &Path, partitions: i32, clean: bool) {
    let launch = launch_small(data_dir);
    let broker = launch.start();
    with(broker.addr(), move |c| async move {
        assert_eq!(create_topic(&c, TOPIC, partitions, &[]).await.error_code, 0);
        for partition in 0..partitions {
            for n in 0..RECORDS - 3 {
                produce_ok(&c, TOPIC, partition, batch_of(&value(partition, n))).await;
            }
        }
    });
    broker.stop();
    let broker = launch.start();
    with(broker.addr(), move |c| async move {
        for partition in 0..partitions {
            for n in RECORDS - 3..RECORDS {
                produce_ok(&c, TOPIC, partition, batch_of(&value(partition, n))).await;
            }
        }
    });
    match clean {
        true => drop(broker.stop()),
        false => broker.kill(),
    }
    assert_eq!(data_dir.join(MARKER).exists(), clean);
}

/// How far the partition answers, every record as the ledger has it.
fn readable(broker: &Broker, partition: i32, from: i64) -> (i64, i16) {
    with(broker.addr(), move |c| async move {
        let mut offset = from;
        loop {
            let answer = fetch(&c, TOPIC, partition, offset, 0, 1 << 20).await;
            if answer.error_code != 0 {
                return (offset, answer.error_code);
            }
            let bytes = answer.records.map(|r| r.to_bytes()).unwrap_or_default();
            if bytes.is_empty() {
                return (offset, 0);
            }
            for batch in Batches::new(bytes) {
                let batch = batch.expect("whole batches are returned");
                batch.validate_crc().expect("the CRC is right");
                let base = batch.header().base_offset;
                for record in batch.records().expect("no compression") {
                    let record = record.expect("a whole record");
                    let at = base + i64::from(record.offset_delta);
                    let got = record.value.unwrap_or_default();
                    let right = value(partition, at);
                    assert_eq!(got, right.as_bytes(), "partition {partition} offset {at}");
                }
                offset = offset.max(batch.header().next_offset());
            }
        }
    })
}

fn check_whole(broker: &Broker, partition: i32, what: &str) {
    let got = readable(broker, partition, 0);
    assert_eq!(got, (RECORDS, 0), "{what}");
    with(broker.addr(), move |c| async move {
        let latest = list_offset(&c, TOPIC, partition, -1).await;
        assert_eq!(latest.offset, RECORDS);
    });
    let what = what.to_owned();
    with(broker.addr(), move |c| async move {
        let batch = batch_of(&value(partition, RECORDS));
        let answer = produce(&c, TOPIC, partition, -1, batch).await;
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (0, RECORDS),
            "{what}"
        );
    });
}

/// Everything beside the segments can be found again from them.
#[test]
fn given_any_damage_to_a_file_beside_the_segments_then_every_record_is_served_and_a_line_says_so() {
    const KINDS: [&str; 6] = [
        "index",
        "timeindex",
        "snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "leader-epoch-checkpoint.tmp",
    ];
    for clean in [true, false] {
        let dir = data_dir();
        let cases: Vec<(&str, Damage)> = KINDS
            .iter()
            .flat_map(|kind| DAMAGES.map(|damage| (*kind, damage)))
            .collect();
        prepare(dir.path(), cases.len() as i32, clean);
        for (partition, (kind, damage)) in cases.iter().enumerate() {
            let name = format!("{TOPIC}-{partition}");
            let files = match kind.contains(['-', '.']) {
                true => vec![dir.path().join(&name).join(kind)],
                false => files_of(dir.path(), &name, kind),
            };
            assert!(!files.is_empty(), "{kind}");
            for file in files {
                damage.apply(&file);
            }
        }
        let broker = launch_small(dir.path()).start();
        for (partition, (kind, damage)) in cases.iter().enumerate() {
            let what = format!("{kind} {damage:?} clean {clean} (partition {partition})");
            check_whole(&broker, partition as i32, &what);
        }
        let said = broker.stop();
        for (partition, (kind, damage)) in cases.iter().enumerate() {
            let place = format!("/{TOPIC}-{partition}/");
            let told = said.lines().any(|line| line.contains(&place));
            // What is left of a replacement goes without a word; a file that is not there
            // may never have been, and a snapshot of which more is there holds all the same.
            let may_be_silent = kind.ends_with(".tmp")
                || *kind == "snapshot"
                || *kind == "index"
                || *kind == "timeindex";
            let is_file = !matches!(damage, Directory | Fifo | DanglingLink);
            assert!(
                told || (may_be_silent && is_file),
                "{kind} {damage:?} clean {clean}: {said}"
            );
        }
        let broker = launch_small(dir.path()).start();
        for partition in 0..cases.len() as i32 {
            let got = readable(&broker, partition, 0);
            assert_eq!(got, (RECORDS + 1, 0));
        }
        broker.stop();
    }
}

/// What the segments held and hold no more cannot be repaired: that partition alone stops, or
/// answers with what is left; never with something else.
#[test]
fn given_any_damage_to_a_segment_then_no_wrong_record_is_served_and_the_others_are() {
    for clean in [true, false] {
        let dir = data_dir();
        let cases: Vec<(bool, Damage)> = [true, false]
            .into_iter()
            .flat_map(|last| DAMAGES.map(|damage| (last, damage)))
            .collect();
        let good = cases.len() as i32;
        prepare(dir.path(), good + 1, clean);
        for (partition, (last, damage)) in cases.iter().enumerate() {
            let logs = files_of(dir.path(), &format!("{TOPIC}-{partition}"), "log");
            assert!(logs.len() > 2, "there is one in the middle");
            let log = if *last {
                &logs[logs.len() - 1]
            } else {
                &logs[1]
            };
            damage.apply(log);
        }
        let broker = launch_small(dir.path()).start();
        check_whole(&broker, good, "untouched");
        let mut whole = BTreeSet::new();
        for (partition, (last, damage)) in cases.iter().enumerate() {
            let partition = partition as i32;
            let what = format!("last {last} {damage:?} clean {clean} (partition {partition})");
            let (end, code) = readable(&broker, partition, 0);
            match (last, damage) {
                // All of its batches stand before what was added.
                (true, Longer) => check_whole(&broker, partition, &what),
                (true, Empty | Missing) | (_, Directory | Fifo | DanglingLink) => {
                    assert_eq!((end, code), (0, 56), "{what}");
                }
                // What was flushed is gone, or read and found wrong.
                _ if clean => assert!(end < RECORDS && code == 56, "{what}: {end} {code}"),
                _ => assert!(end <= RECORDS, "{what}: {end} {code}"),
            }
            if (end, code) == (RECORDS, 0) {
                whole.insert(partition as usize);
            }
            for from in [RECORDS / 2, RECORDS - 4, RECORDS - 1] {
                let code = readable(&broker, partition, from).1;
                assert!([0, 1, 56].contains(&code), "{what}: {code}");
            }
        }
        let (_, said) = broker.end_by("TERM");
        for (partition, (last, damage)) in cases.iter().enumerate() {
            let place = format!("/{TOPIC}-{partition}/");
            let told = said.lines().any(|line| line.contains(&place));
            // After a kill the last segment is longer than its records, by zeros that nobody
            // reads: what is cut from them or put behind them is no damage.
            let reserved = *last && !clean && matches!(damage, Halved | Longer);
            let untouched = reserved && whole.contains(&partition);
            assert!(
                told || untouched,
                "last {last} {damage:?} clean {clean}: {said}"
            );
        }
    }
}

/// The files of the directory itself: each gets each damage once, a different one beside it.
#[test]
fn given_any_damage_to_the_checkpoints_marker_and_lock_then_every_record_is_served() {
    const FILES: [&str; 6] = [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
        MARKER,
        ".lock",
    ];
    for clean in [true, false] {
        let base = data_dir();
        prepare(base.path(), 2, clean);
        for round in 0..DAMAGES.len() {
            let dir = data_dir();
            copy(base.path(), dir.path());
            for (n, name) in FILES.iter().enumerate() {
                let damage = DAMAGES[(round + n) % DAMAGES.len()];
                damage.apply(&dir.path().join(name));
            }
            let broker = launch_small(dir.path()).start();
            for partition in 0..2 {
                check_whole(&broker, partition, &format!("round {round} clean {clean}"));
            }
            let said = broker.stop();
            let recovered = said.contains("unclean stop");
            assert!(recovered, "no damaged marker is believed: {said}");
            for (n, name) in FILES.iter().enumerate() {
                let damage = DAMAGES[(round + n) % DAMAGES.len()];
                if matches!(damage, Directory | Fifo | DanglingLink) {
                    let aside = format!("{name} is not used and was renamed");
                    assert!(said.contains(&aside), "{name} {damage:?}: {said}");
                }
            }
            let broker = launch_small(dir.path()).start();
            for partition in 0..2 {
                assert_eq!(readable(&broker, partition, 0), (RECORDS + 1, 0));
            }
            let said = broker.stop();
            assert!(said.contains("after a clean stop"), "{said}");
        }
    }
}

/// Whose directory it is, and which topics there are, stands nowhere else.
#[test]
fn given_damage_to_the_identity_or_the_metadata_log_then_the_start_is_refused_or_nothing_is_lost() {
    for clean in [true, false] {
        let base = data_dir();
        prepare(base.path(), 1, clean);
        let log = "__cluster_metadata-0/00000000000000000000.log";
        let index = "__cluster_metadata-0/00000000000000000000.index";
        for name in ["meta.properties", log, index, "__cluster_metadata-0"] {
            for damage in DAMAGES {
                let dir = data_dir();
                copy(base.path(), dir.path());
                let path = dir.path().join(name);
                if path.is_dir() {
                    if damage != Missing {
                        continue;
                    }
                    fs::remove_dir_all(&path).expect("it can be removed");
                } else {
                    damage.apply(&path);
                }
                let what = format!("{name} {damage:?} clean {clean}");
                let stayed = name == index || (damage == Longer && name == log);
                match launch_small(dir.path()).try_start("127.0.0.1:0") {
                    Ok(broker) => {
                        assert!(stayed, "{what}: it started");
                        check_whole(&broker, 0, &what);
                        broker.stop();
                    }
                    Err(refused) => {
                        assert!(!stayed, "{what}: {}", refused.stderr);
                        assert_eq!(refused.status.code(), Some(1), "{what}");
                        let place = name.split('/').next().unwrap_or(name);
                        let last = refused.stderr.lines().last().unwrap_or_default();
                        assert!(last.contains(place), "{what}: {}", refused.stderr);
                        // Nothing was touched: with the file back it is all there.
                        remove(&path);
                        copy(&base.path().join(name), &path);
                        let broker = launch_small(dir.path()).start();
                        check_whole(&broker, 0, &what);
                        broker.stop();
                    }
                }
            }
        }
    }
}

/// What an interrupted replacement of a segment leaves, and an index of transactions, which only
/// another broker writes. What was to replace a segment may be all that is left of others: with
/// damage in it, that partition alone is offline, and nothing is changed.
#[test]
fn given_any_damage_to_what_stands_beside_a_whole_segment_then_every_record_stays() {
    const KINDS: [&str; 6] = [
        "txnindex",
        "log.swap",
        "log.cleaned",
        "log.deleted",
        "index.swap",
        "timeindex.cleaned",
    ];
    for clean in [true, false] {
        let dir = data_dir();
        let cases: Vec<(&str, Damage)> = KINDS
            .iter()
            .flat_map(|kind| DAMAGES.map(|damage| (*kind, damage)))
            .collect();
        prepare(dir.path(), cases.len() as i32, clean);
        for (partition, (kind, damage)) in cases.iter().enumerate() {
            let name = format!("{TOPIC}-{partition}");
            let log = &files_of(dir.path(), &name, "log")[1];
            let source = match kind.split_once('.') {
                Some((extension, _)) => log.with_extension(extension),
                None => log.clone(),
            };
            let beside = log.with_extension(kind);
            fs::copy(source, &beside).expect("it can be copied");
            damage.apply(&beside);
        }
        let is_file =
            |damage: &Damage| !matches!(damage, Missing | Directory | Fifo | DanglingLink);
        let is_refused = |case: &(&str, Damage)| case.0 == "log.swap" && is_file(&case.1);
        let broker = launch_small(dir.path()).start();
        for (partition, case) in cases.iter().enumerate() {
            let what = format!("{case:?} clean {clean} (partition {partition})");
            match is_refused(case) {
                true => assert_eq!(readable(&broker, partition as i32, 0), (0, 56), "{what}"),
                false => check_whole(&broker, partition as i32, &what),
            }
        }
        let (status, said) = broker.end_by("TERM");
        assert!(!status.success(), "some are offline: {said}");
        for (partition, case) in cases.iter().enumerate() {
            let place = format!("/{TOPIC}-{partition}/");
            let told = said.lines().any(|line| line.contains(&place));
            let is_silent = case.1 == Missing || (is_file(&case.1) && !is_refused(case));
            assert!(told || is_silent, "{case:?} clean {clean}: {said}");
            if is_refused(case) {
                let swaps = files_of(dir.path(), &format!("{TOPIC}-{partition}"), "swap");
                assert_eq!(swaps.len(), 1, "{case:?}");
                remove(&swaps[0]);
            }
        }
        let broker = launch_small(dir.path()).start();
        for (partition, case) in cases.iter().enumerate() {
            let end = RECORDS + i64::from(!is_refused(case));
            let found = readable(&broker, partition as i32, 0);
            assert_eq!(found, (end, 0), "{case:?} clean {clean}");
        }
        broker.stop();
    }
}

/// The metadata log holds all that its snapshots do.
#[test]
fn given_any_damage_to_a_metadata_snapshot_then_nothing_is_lost_or_a_later_version_is_named() {
    for clean in [true, false] {
        let base = data_dir();
        prepare(base.path(), 2, clean);
        let snapshots = files_of(base.path(), "__cluster_metadata-0", "checkpoint");
        let newest = snapshots.last().expect("the clean stop wrote one");
        let name = newest.strip_prefix(base.path()).expect("it is in there");
        for damage in DAMAGES {
            let dir = data_dir();
            copy(base.path(), dir.path());
            let path = dir.path().join(name);
            damage.apply(&path);
            let what = format!("{damage:?} clean {clean}");
            match launch_small(dir.path()).try_start("127.0.0.1:0") {
                Ok(broker) => {
                    for partition in 0..2 {
                        check_whole(&broker, partition, &what);
                    }
                    let said = broker.stop();
                    let file = name.file_name().expect("a name").to_string_lossy();
                    let told = said.lines().any(|line| line.contains(&*file));
                    assert!(told || damage == Missing, "{what}: {said}");
                }
                Err(refused) => {
                    assert_eq!(damage, OtherVersion, "{what}: {}", refused.stderr);
                    let last = refused.stderr.lines().last().unwrap_or_default();
                    assert!(last.contains("a later version"), "{what}: {last}");
                    remove(&path);
                    copy(newest, &path);
                    let broker = launch_small(dir.path()).start();
                    check_whole(&broker, 0, &what);
                    broker.stop();
                }
            }
        }
    }
}

/// Nobody knows what was in it: that partition alone is offline, and the file stays.
#[test]
fn given_a_file_or_nothing_where_a_partitions_directory_was_then_it_alone_is_offline() {
    for clean in [true, false] {
        let dir = data_dir();
        prepare(dir.path(), 4, clean);
        let place = |partition: i32| dir.path().join(format!("{TOPIC}-{partition}"));
        let aside = data_dir();
        for (partition, damage) in [(0, Garbage), (1, Fifo), (2, DanglingLink)] {
            let kept = aside.path().join(partition.to_string());
            fs::rename(place(partition), kept).expect("it can be moved");
            damage.apply(&place(partition));
        }
        let broker = launch_small(dir.path()).start();
        check_whole(&broker, 3, "untouched");
        for partition in 0..3 {
            assert_eq!(readable(&broker, partition, 0), (0, 56), "{partition}");
        }
        let (status, said) = broker.end_by("TERM");
        assert!(!status.success(), "no clean stop: {said}");
        for partition in 0..3 {
            let name = format!("{TOPIC}-{partition}");
            let told = said.lines().any(|line| line.contains(&name));
            assert!(told, "{name}: {said}");
            let found = fs::symlink_metadata(place(partition));
            assert!(!found.expect("it stays").is_dir(), "{name}");
            remove(&place(partition));
            let kept = aside.path().join(partition.to_string());
            fs::rename(kept, place(partition)).expect("it can be moved back");
        }
        let broker = launch_small(dir.path()).start();
        for partition in 0..3 {
            check_whole(&broker, partition, "restored");
        }
        assert_eq!(readable(&broker, 3, 0), (RECORDS + 1, 0));
        broker.stop();
    }
}

fn remove(path: &Path) {
    let gone = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    };
    gone.expect("it can be removed");
}

/// Copies a file, or a directory with all that it holds.
fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).expect("it can be copied");
        return;
    }
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("it can be listed") {
        let entry: PathBuf = entry.expect("an entry").path();
        copy(&entry, &to.join(entry.file_name().expect("a name")));
    }
}

/// Names that are not the broker's are left alone.
#[test]
fn given_stray_names_then_they_are_left_alone_and_named() {
    let dir = data_dir();
    prepare(dir.path(), 1, true);
    let strays = [
        "notes.txt",
        "lost+found/x",
        "bad-0/readme",
        "bad-0/backup/00000000000000000000.log",
        "bad-0/7.log",
    ];
    for name in strays {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, b"mine").expect("a file");
    }
    let broker = launch_small(dir.path()).start();
    check_whole(&broker, 0, "strays");
    let said = broker.stop();
    assert!(said.contains("lost+found in the data directory"), "{said}");
    for name in strays {
        let path = dir.path().join(name);
        assert_eq!(fs::read(path).expect("it is there"), b"mine", "{name}");
    }
}
