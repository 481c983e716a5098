//! What a crash leaves on disk, and what the next start makes of it.

use super::client::{
    batch_at, batch_of, create_topic, delete_topic, fetch_all, list_offset, produce, produce_ok,
    with,
};
use super::files::{active_log, end_of_batches, files_of, len_of, scribble, set_len};
use super::{data_dir, launch};
use highwater::protocol::batch::BatchBuilder;
use std::path::Path;

const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const MARKER: &str = ".kafka_cleanshutdown";

/// C1 of the field's cases (fluss#2941): a torn tail behind an intact index.
#[test]
fn given_a_torn_tail_when_started_then_it_is_cut_and_offsets_go_on() {
    let tails: [(&str, Vec<u8>); 5] = [
        ("half a batch", {
            let batch = batch_of("half");
            batch[..batch.len() / 2].to_vec()
        }),
        ("5 bytes", vec![0x5a; 5]),
        ("a bare header", batch_of("header")[..61].to_vec()),
        ("4 KiB of zeros", vec![0; 4096]),
        (
            "4 KiB of noise",
            (0..4096).map(|n| (n % 251) as u8 | 1).collect(),
        ),
    ];
    for at_end_of_file in [false, true] {
        let dir = data_dir();
        let broker = launch(dir.path()).start();
        let count = tails.len() as i32;
        with(broker.addr(), move |c| async move {
            create_topic(&c, "torn", count, &[]).await;
            for partition in 0..count {
                for n in 0..100 {
                    produce_ok(&c, "torn", partition, batch_of(&n.to_string())).await;
                }
            }
        });
        broker.kill();
        let mut ends = Vec::new();
        for (partition, (_, tail)) in tails.iter().enumerate() {
            let log = active_log(dir.path(), &format!("torn-{partition}"));
            let end = end_of_batches(&log);
            let position = if at_end_of_file { len_of(&log) } else { end };
            scribble(&log, position, tail);
            ends.push((log, end));
        }
        let broker = launch(dir.path()).start();
        for ((what, _), (log, end)) in tails.iter().zip(&ends) {
            assert_eq!(len_of(log), *end, "{what}: the file is trimmed");
        }
        with(broker.addr(), move |c| async move {
            for partition in 0..count {
                assert_eq!(list_offset(&c, "torn", partition, -1).await.offset, 100);
                assert_eq!(
                    produce_ok(&c, "torn", partition, batch_of("100")).await,
                    100
                );
                let records = fetch_all(&c, "torn", partition, 0).await;
                let expected: Vec<(i64, String)> = (0..=100).map(|n| (n, n.to_string())).collect();
                assert_eq!(records, expected);
            }
        });
        broker.stop();
    }
}

/// C2 (KAFKA-10471, 15375): a crash while loading is not a clean stop.
#[test]
fn given_a_kill_while_loading_when_a_tail_is_torn_then_it_is_found() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "many", 200, &[]).await;
        for n in 0..10 {
            produce_ok(&c, "many", 0, batch_of(&n.to_string())).await;
        }
    });
    broker.stop();
    assert!(dir.path().join(MARKER).exists());
    kill_while_loading(dir.path());
    let log = active_log(dir.path(), "many-0");
    let end = end_of_batches(&log);
    scribble(&log, end, &[0x77; 40]);
    let broker = launch(dir.path()).start();
    assert_eq!(len_of(&log), end, "the tail is cut");
    with(broker.addr(), move |c| async move {
        assert_eq!(produce_ok(&c, "many", 0, batch_of("10")).await, 10);
        assert_eq!(fetch_all(&c, "many", 0, 0).await.len(), 11);
    });
    broker.stop();
}

/// Starts the broker and kills it as soon as it has taken the clean marker away.
fn kill_while_loading(data_dir: &Path) {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_highwater"))
        .args([
            "serve",
            "--listener",
            "127.0.0.1:0",
            "--shards",
            "3",
            "--data-dir",
        ])
        .arg(data_dir)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the broker can be started");
    let start = std::time::Instant::now();
    while data_dir.join(MARKER).exists() {
        assert!(start.elapsed().as_secs() < 30, "the marker stays");
        std::hint::spin_loop();
    }
    child.kill().expect("it can be killed");
    let status = child.wait().expect("it can be waited for");
    assert!(status.code().is_none(), "it was killed: {status}");
    assert!(!data_dir.join(MARKER).exists());
}

/// C3 (KAFKA-10101): a recovery point beyond what was flushed.
#[test]
fn given_a_recovery_point_beyond_the_log_then_torn_tails_are_still_cut() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "beyond", 1, &[]).await;
        for n in 0..20 {
            produce_ok(&c, "beyond", 0, batch_of(&n.to_string())).await;
        }
    });
    broker.kill();
    let log = active_log(dir.path(), "beyond-0");
    let end = end_of_batches(&log);
    std::fs::write(dir.path().join(RECOVERY_POINTS), "0\n1\nbeyond 0 1020\n")
        .expect("the checkpoint can be written");
    for _ in 0..2 {
        scribble(&log, end, &[0x33; 100]);
        let broker = launch(dir.path()).start();
        assert_eq!(len_of(&log), end, "the tail is cut");
        let latest = with(broker.addr(), move |c| async move {
            list_offset(&c, "beyond", 0, -1).await.offset
        });
        assert_eq!(latest, 20);
        broker.kill();
    }
    let broker = launch(dir.path()).start();
    broker.stop();
    let points = std::fs::read_to_string(dir.path().join(RECOVERY_POINTS)).expect("a checkpoint");
    assert!(points.lines().any(|line| line == "beyond 0 20"), "{points}");
}

/// C4 (KAFKA-12520 and its kind): indexes that hold garbage.
#[test]
fn given_corrupt_indexes_after_any_stop_then_every_offset_and_time_is_found() {
    type Corrupt = fn(&Path);
    let faults: [(&str, Corrupt); 4] = [
        ("padded with zeros to 10 MB", |path| set_len(path, 10 << 20)),
        ("last entry 0xff", |path| {
            let len = len_of(path).max(12);
            scribble(path, len - 12, &[0xff; 12]);
        }),
        ("cut to 3 bytes", |path| set_len(path, 3)),
        ("deleted", |path| {
            std::fs::remove_file(path).expect("the index can be deleted");
        }),
    ];
    const RECORDS: i64 = 60;
    for clean in [true, false] {
        let dir = data_dir();
        let launch = launch(dir.path()).set("log.segment.bytes=20000");
        let broker = launch.start();
        let partitions = faults.len() as i32 * 2;
        with(broker.addr(), move |c| async move {
            create_topic(&c, "index", partitions, &[]).await;
            for partition in 0..partitions {
                for n in 0..RECORDS {
                    let value = format!("{n}-{}", "x".repeat(1500));
                    produce_ok(&c, "index", partition, batch_at(1000 + n * 10, &value)).await;
                }
            }
        });
        if clean {
            broker.stop();
        } else {
            broker.kill();
        }
        let mut hit = 0;
        for (n, (_, corrupt)) in faults.iter().enumerate() {
            for (m, extension) in ["index", "timeindex"].iter().enumerate() {
                let partition = format!("index-{}", n * 2 + m);
                for file in files_of(dir.path(), &partition, extension) {
                    corrupt(&file);
                    hit += 1;
                }
            }
        }
        assert!(hit > faults.len() * 4, "{hit} index files were corrupted");
        let broker = launch.start();
        with(broker.addr(), move |c| async move {
            for partition in 0..partitions {
                assert_eq!(
                    list_offset(&c, "index", partition, -1).await.offset,
                    RECORDS
                );
                for from in 0..RECORDS {
                    let records = fetch_all(&c, "index", partition, from).await;
                    assert_eq!(records.len() as i64, RECORDS - from, "from {from}");
                    assert_eq!(records[0].0, from);
                }
                for n in 0..RECORDS {
                    let found = list_offset(&c, "index", partition, 1000 + n * 10 - 5).await;
                    assert_eq!((found.offset, found.timestamp), (n, 1000 + n * 10));
                }
                let none = list_offset(&c, "index", partition, 1_000_000).await;
                assert_eq!(none.offset, -1);
            }
        });
        broker.stop();
    }
}

/// C5 (KAFKA-12520): a compaction that was cut short between its renames.
#[test]
fn given_an_interrupted_swap_then_it_wins_once_unless_a_cleaned_file_says_otherwise() {
    const RECORDS: i32 = 40;
    for with_cleaned in [false, true] {
        let dir = data_dir();
        let launch = launch(dir.path()).set("log.segment.bytes=20000");
        let broker = launch.start();
        with(broker.addr(), move |c| async move {
            create_topic(&c, "swap", 1, &[]).await;
            for n in 0..RECORDS {
                produce_ok(&c, "swap", 0, numbered(n)).await;
            }
        });
        broker.kill();
        let logs = files_of(dir.path(), "swap-0", "log");
        assert!(logs.len() > 3, "the first two are sealed");
        let mut merged = Vec::new();
        for log in &logs[..2] {
            merged.extend(std::fs::read(log).expect("the segment can be read"));
        }
        let beside = |name: &str| dir.path().join("swap-0").join(name);
        let base = "00000000000000000000";
        std::fs::write(beside(&format!("{base}.log.swap")), &merged).expect("a swap");
        let deleted = format!("{base}.timeindex.deleted");
        std::fs::write(beside(&deleted), b"stray").expect("a stray");
        if with_cleaned {
            std::fs::write(beside(&format!("{base}.log.cleaned")), b"half").expect("a cleaned");
        }
        let broker = launch.start();
        let left = files_of(dir.path(), "swap-0", "log");
        assert_eq!(left.len(), logs.len() - usize::from(!with_cleaned));
        for end in ["swap", "cleaned", "deleted"] {
            assert!(files_of(dir.path(), "swap-0", end).is_empty(), "{end}");
        }
        with(broker.addr(), move |c| async move {
            let records = fetch_all(&c, "swap", 0, 0).await;
            let offsets: Vec<i64> = records.iter().map(|(offset, _)| *offset).collect();
            assert_eq!(offsets, (0..i64::from(RECORDS)).collect::<Vec<_>>());
            for n in RECORDS - 5..RECORDS {
                let again = produce_ok(&c, "swap", 0, numbered(n)).await;
                assert_eq!(again, i64::from(n), "a retry gets its original offset");
            }
            let next = produce_ok(&c, "swap", 0, numbered(RECORDS)).await;
            assert_eq!(next, i64::from(RECORDS));
        });
        broker.stop();
    }
}

/// A batch of an idempotent producer.
fn numbered(sequence: i32) -> bytes::Bytes {
    let mut batch = BatchBuilder::new().producer(7, 0, sequence);
    let value = "x".repeat(1_500);
    batch.push(1_700_000_000_000, None, Some(value.as_bytes()));
    batch.build()
}

#[test]
fn given_another_topics_id_then_the_partition_is_offline_and_its_records_stay() {
    offline_until_restored("partition.metadata", |_, id| {
        let other = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ";
        std::fs::write(id, other).expect("the file can be written");
    });
}

/// Whose records they are nobody knows then: perhaps those of a deleted topic.
#[test]
fn given_a_lost_topic_id_and_no_checkpoint_then_the_partition_is_offline_and_its_records_stay() {
    offline_until_restored("may be of an older topic", |dir, id| {
        std::fs::remove_file(id).expect("the file can be removed");
        let checkpoints = [
            RECOVERY_POINTS,
            "replication-offset-checkpoint",
            "log-start-offset-checkpoint",
        ];
        for name in checkpoints {
            std::fs::write(dir.join(name), "0\n0\n").expect("it can be written");
        }
    });
}

/// A partition whose `partition.metadata` is damaged: its topic is not served, `why` is said, and
/// with the file as it was its record is there.
fn offline_until_restored(why: &str, damage: impl Fn(&Path, &Path)) {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "kept", 1, &[]).await;
        produce_ok(&c, "kept", 0, batch_of("x")).await;
    });
    broker.stop();
    let id = dir.path().join("kept-0/partition.metadata");
    let saved = std::fs::read(&id).expect("the file is there");
    damage(dir.path(), &id);
    assert_ne!(std::fs::read(&id).ok().as_ref(), Some(&saved));
    let broker = launch(dir.path()).start();
    let code = with(broker.addr(), move |c| async move {
        produce(&c, "kept", 0, -1, batch_of("y")).await.error_code
    });
    assert_eq!(code, 56);
    let (status, stderr) = broker.end_by("TERM");
    assert!(!status.success(), "no clean stop of an offline partition");
    assert!(stderr.contains(why), "{stderr}");
    std::fs::write(&id, saved).expect("the file can be restored");
    let broker = launch(dir.path()).start();
    let records = with(broker.addr(), move |c| async move {
        fetch_all(&c, "kept", 0, 0).await
    });
    assert_eq!(records, [(0, "x".to_string())]);
    broker.stop();
}

#[test]
fn given_lines_of_a_deleted_topic_then_a_new_topic_of_its_name_does_not_inherit_them() {
    let dir = data_dir();
    launch(dir.path()).start().kill();
    // As after a crash between a topic's deletion and the next checkpoint.
    let points = dir.path().join(RECOVERY_POINTS);
    std::fs::write(&points, "0\n1\ngone 0 1000\n").expect("the file can be written");
    let broker = launch(dir.path()).start();
    let kept = std::fs::read_to_string(&points).expect("the file is there");
    assert!(!kept.contains("gone"), "{kept}");
    with(broker.addr(), move |c| async move {
        create_topic(&c, "gone", 1, &[]).await;
    });
    broker.kill();
    let broker = launch(dir.path()).start();
    let offset = with(broker.addr(), move |c| async move {
        produce_ok(&c, "gone", 0, batch_of("new")).await
    });
    assert_eq!(offset, 0);
    broker.stop();
}

#[test]
fn given_metadata_changes_then_an_unclean_start_does_not_lose_their_recovery_point() {
    let dir = data_dir();
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        create_topic(&c, "t", 1, &[]).await;
    });
    broker.stop();
    let points = dir.path().join(RECOVERY_POINTS);
    let point = || -> i64 {
        let text = std::fs::read_to_string(&points).expect("the file is there");
        let mut points = text
            .lines()
            .filter_map(|line| line.strip_prefix("__cluster_metadata 0 "));
        let point = points.next().and_then(|point| point.parse().ok());
        point.unwrap_or_else(|| panic!("no line of the metadata log: {text}"))
    };
    let before = point();
    assert_ne!(before, 0);
    // A deletion writes the files at once.
    let broker = launch(dir.path()).start();
    with(broker.addr(), move |c| async move {
        delete_topic(&c, "t").await
    });
    broker.kill();
    // The log is checkpointed after the change, once nobody waits.
    assert!(point() >= before, "{} after {before}", point());
    launch(dir.path()).start().stop();
}
