//! The native side against the real kernel: files on the disk under `target/`, TCP
//! on the loopback, executors on threads.

use super::*;
use crate::runtime::{
    local, Dir, File, IoErrorKind, OpenMode, Queue, Rt, Side, SyncSite, BLOCK_BYTES,
};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

fn scratch() -> tempfile::TempDir {
    let target = concat!(env!("CARGO_MANIFEST_DIR"), "/target");
    tempfile::tempdir_in(target).expect("target/ exists while tests run")
}

pub(super) fn plan(name: &str) -> ExecutorPlan {
    ExecutorPlan {
        abort_on_panic: false,
        ..ExecutorPlan::new(name)
    }
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Bytes that tell their own position.
fn pattern(pos: usize, len: usize) -> Vec<u8> {
    (pos..pos + len).map(|n| (n / 7 % 251) as u8).collect()
}

async fn written_file(rt: &Rt, dir: &Dir, name: &str, blocks: usize) -> File {
    let file = dir.open(name, OpenMode::CreateNew).await.unwrap();
    let mut buf = rt.write_buf(blocks * BLOCK_BYTES);
    let len = buf.len();
    buf.as_mut_slice().copy_from_slice(&pattern(0, len));
    file.write_at(&buf.freeze(), 0).await.unwrap();
    file.sync_data(SyncSite::SegmentFlush).await.unwrap();
    file
}

#[test]
fn given_a_written_file_when_any_range_is_read_then_just_the_bytes_that_exist_come() {
    let temp = scratch();
    let path = temp.path().to_owned();
    run(|rt| async move {
        let dir = rt.dir(&path);
        let file = written_file(&rt, &dir, "a", 25).await;
        let size = 25 * BLOCK_BYTES;
        assert_eq!(file.size().await.unwrap(), size as u64);
        let ranges = [
            (0, size),
            (0, 1),
            (1, 1),
            (4095, 2),
            (4096, 4096),
            (5000, 70_000),
            (size - 1, 1),
            (size - 10, 4000),
            (size - 5000, 100_000),
            (size, 10),
            (size + 9000, 10),
            (17, 0),
        ];
        for (pos, len) in ranges {
            let got = file.read_at(pos as u64, len).await.unwrap();
            let exist = size.saturating_sub(pos).min(len);
            assert_eq!(got, pattern(pos, exist), "{len} bytes at {pos}");
        }
        // An end that is not aligned.
        file.truncate(10_001).await.unwrap();
        assert_eq!(file.size().await.unwrap(), 10_001);
        for (pos, len) in [
            (0, 20_000),
            (10_000, 10),
            (9999, 1),
            (10_001, 1),
            (8000, 2001),
        ] {
            let got = file.read_at(pos as u64, len).await.unwrap();
            let exist = 10_001usize.saturating_sub(pos).min(len);
            assert_eq!(got, pattern(pos, exist), "{len} bytes at {pos}");
        }
    })
    .unwrap();
}

#[test]
fn given_a_file_when_preallocated_then_it_only_grows_and_keeps_its_bytes() {
    let temp = scratch();
    let path = temp.path().to_owned();
    run(|rt| async move {
        let dir = rt.dir(&path);
        let file = written_file(&rt, &dir, "a", 2).await;
        file.pre_allocate(100_000).await.unwrap();
        assert_eq!(file.size().await.unwrap(), 100_000);
        assert_eq!(file.read_at(0, 8192).await.unwrap(), pattern(0, 8192));
        let rest = file.read_at(8192, 200_000).await.unwrap();
        assert_eq!(rest.len(), 100_000 - 8192);
        assert!(rest.iter().all(|b| *b == 0));
        file.pre_allocate(4096).await.unwrap();
        assert_eq!(file.size().await.unwrap(), 100_000);
        file.pre_allocate(0).await.unwrap();
        assert_eq!(file.read_at(0, 8192).await.unwrap(), pattern(0, 8192));
    })
    .unwrap();
}

#[test]
fn given_open_modes_then_absent_and_present_files_are_told_apart() {
    let temp = scratch();
    let path = temp.path().to_owned();
    run(|rt| async move {
        let dir = rt.dir(&path);
        for mode in [OpenMode::Read, OpenMode::ReadWrite] {
            let refused = dir.open("absent", mode).await.err().unwrap();
            assert_eq!(refused.kind, IoErrorKind::NotFound);
            assert_eq!(refused.errno, Some(libc::ENOENT));
        }
        let file = written_file(&rt, &dir, "a", 1).await;
        assert_eq!(file.path(), path.join("a"));
        let refused = dir.open("a", OpenMode::CreateNew).await.err().unwrap();
        assert_eq!(refused.kind, IoErrorKind::AlreadyExists);

        let mut permissions = std::fs::metadata(path.join("a")).unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(path.join("a"), permissions).unwrap();
        let read = dir.open("a", OpenMode::Read).await.unwrap();
        assert_eq!(read.read_at(3, 10).await.unwrap(), pattern(3, 10));
        let refused = read.write_at(&rt.write_buf(1).freeze(), 0).await;
        assert_eq!(refused.err().unwrap().errno, Some(libc::EBADF));
    })
    .unwrap();
}

#[test]
fn given_a_file_whose_name_is_removed_then_its_clones_still_work_and_it_closes_at_last() {
    let temp = scratch();
    let path = temp.path().to_owned();
    run(|rt| async move {
        let dir = rt.dir(&path);
        let file = written_file(&rt, &dir, "a", 1).await;
        let clone = file.clone();
        dir.remove_file("a").await.unwrap();
        drop(file);
        assert_eq!(clone.read_at(0, 5).await.unwrap(), pattern(0, 5));
        let open = || open_files_below(&path);
        assert_eq!(open(), 1);
        drop(clone);
        for _ in 0..1000 {
            if open() == 0 {
                return;
            }
            rt.sleep(Duration::from_millis(5)).await;
        }
        panic!("the descriptor was never closed");
    })
    .unwrap();
}

fn open_files_below(dir: &std::path::Path) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter(|target| target.starts_with(dir))
        .count()
}

#[test]
fn given_a_tmpfs_when_a_file_is_opened_then_direct_io_is_refused_and_nothing_is_left() {
    let shm = std::path::Path::new("/dev/shm");
    let Ok(temp) = tempfile::tempdir_in(shm) else {
        eprintln!("no /dev/shm here: not tested");
        return;
    };
    let path = temp.path().to_owned();
    run(|rt| async move {
        let dir = rt.dir(&path);
        let refused = dir.open("a", OpenMode::CreateNew).await.err().unwrap();
        assert_eq!(refused.kind, IoErrorKind::DirectIoRefused);
        assert!(refused.detail.contains("log.dirs"), "{refused}");
        assert_eq!(dir.list().await.unwrap(), []);
    })
    .unwrap();
}

#[test]
fn given_buffers_dropped_on_other_threads_then_all_come_home_while_the_executor_runs() {
    let temp = scratch();
    let path = temp.path().to_owned();
    run(|rt| async move {
        let Side::Native(native) = &rt.0 else {
            unreachable!()
        };
        let home = native.home().clone();
        let dir = rt.dir(&path);
        let file = written_file(&rt, &dir, "a", 8).await;
        let (send, receive) = std::sync::mpsc::channel::<Bytes>();
        let other = std::thread::spawn(move || receive.into_iter().map(|b| b.len()).sum::<usize>());
        for n in 0..300u64 {
            let buf = rt.write_buf(BLOCK_BYTES).freeze();
            send.send(buf.slice(0..100)).unwrap();
            send.send(buf.slice(50..150)).unwrap();
            send.send(file.read_at(n, 5000).await.unwrap()).unwrap();
        }
        drop(send);
        assert_eq!(other.join().unwrap(), 300 * 5200);
        for _ in 0..1000 {
            if home.outstanding() == 0 {
                return;
            }
            rt.sleep(Duration::from_millis(5)).await;
        }
        panic!("{} buffers never came home", home.outstanding());
    })
    .unwrap();
}

#[test]
fn given_a_slice_that_outlives_its_executor_then_its_bytes_stay_valid() {
    let slice = run(|rt| async move {
        let mut buf = rt.write_buf(BLOCK_BYTES);
        buf.as_mut_slice().fill(5);
        buf.freeze().slice(1..4000)
    })
    .unwrap();
    std::thread::spawn(move || assert!(slice.iter().all(|b| *b == 5)))
        .join()
        .unwrap();
}

#[test]
fn given_directories_then_they_are_made_listed_renamed_and_removed() {
    let temp = scratch();
    let path = temp.path().to_owned();
    run(|rt| async move {
        let root = rt.dir(&path);
        let deep = root.subdir("a").subdir("b");
        assert!(!deep.exists().await.unwrap());
        deep.create_all(SyncSite::PartitionCreate).await.unwrap();
        deep.create_all(SyncSite::PartitionCreate).await.unwrap();
        assert!(deep.exists().await.unwrap());
        let site = SyncSite::PartitionDir;
        deep.replace_small("z", b"one".to_vec(), site)
            .await
            .unwrap();
        deep.replace_small("z", b"second".to_vec(), site)
            .await
            .unwrap();
        deep.subdir("c").create_all(site).await.unwrap();
        deep.sync(site).await.unwrap();
        let listed = deep.list().await.unwrap();
        let names: Vec<_> = listed.iter().map(|e| (&*e.name, e.is_dir, e.len)).collect();
        assert_eq!(names, [("c", true, 0), ("z", false, 6)]);
        assert!(listed[1].modified_ms > 1_600_000_000_000);

        assert_eq!(deep.read_small("z", 6).await.unwrap(), b"second");
        let large = deep.read_small("z", 5).await.err().unwrap();
        assert_eq!(large.kind, IoErrorKind::Unusable);
        let absent = deep.read_small("y", 5).await.err().unwrap();
        assert_eq!(absent.kind, IoErrorKind::NotFound);

        deep.rename("z", "y").await.unwrap();
        deep.remove_file("y").await.unwrap();
        let twice = deep.remove_file("y").await.err().unwrap();
        assert_eq!(twice.kind, IoErrorKind::NotFound);
        root.remove_dir_all("a").await.unwrap();
        assert!(!deep.exists().await.unwrap());
        // A file in the way is no directory.
        root.replace_small("f", vec![], site).await.unwrap();
        let refused = root.subdir("f").subdir("g").create_all(site).await;
        assert_eq!(refused.err().unwrap().errno, Some(libc::ENOTDIR));
    })
    .unwrap();
}

#[test]
fn given_a_lock_that_is_held_then_it_is_refused_until_it_is_dropped() {
    let temp = scratch();
    let path = temp.path().to_owned();
    run(|rt| async move {
        let dir = rt.dir(&path);
        let held = dir.lock(".lock").await.unwrap();
        let refused = dir.lock(".lock").await.err().unwrap();
        assert_eq!(refused.kind, IoErrorKind::AlreadyExists);
        drop(held);
        dir.lock(".lock").await.unwrap();
    })
    .unwrap();
}

#[test]
fn given_a_blocking_closure_that_panics_then_the_caller_is_told_and_helpers_live_on() {
    run(|rt| async move {
        for n in 0..4 {
            let panicked = rt
                .spawn_blocking(move || -> u32 { panic!("number {n}") })
                .await;
            assert_eq!(panicked.err().unwrap().0, format!("number {n}"));
        }
        assert_eq!(rt.spawn_blocking(|| 6 * 7).await.unwrap(), 42);
    })
    .unwrap();
}

#[test]
fn given_a_task_that_panics_then_the_executor_ends_and_says_which() {
    let handle = spawn_executor(plan("shard-7"), |rt| async move {
        let task = rt.clone();
        rt.spawn(Queue::Background, async move {
            task.sleep(Duration::from_millis(1)).await;
            panic!("broken invariant");
        });
        std::future::pending::<()>().await
    })
    .unwrap();
    let died = handle.join().err().unwrap();
    assert_eq!(died.name, "shard-7");
    assert_eq!(died.panic, "broken invariant");
}

#[test]
fn given_a_cpu_that_does_not_exist_then_the_start_says_which_may_be_used() {
    let refused = spawn_executor(plan("shard-0").pinned(100_000), |_| async {});
    match refused.err().unwrap() {
        StartError::Cpu { cpu, allowed, .. } => {
            assert_eq!(cpu, 100_000);
            assert_eq!(allowed, cpus());
        }
        other => panic!("{other}"),
    }
    let cpu = *cpus().last().unwrap();
    let ran = spawn_executor(plan("shard-0").pinned(cpu), |_| async { cpus() }).unwrap();
    assert_eq!(ran.join().unwrap(), [cpu]);
}

#[test]
fn given_two_executors_then_their_randomness_differs_and_their_clock_is_shared() {
    let draw = |rt: Rt| async move { (rt.random_u64(), rt.random_u64(), rt.now()) };
    let before = run(draw).unwrap();
    let after = run(draw).unwrap();
    assert_ne!(before.0, before.1);
    assert_ne!(before.0, after.0);
    assert!(before.2 <= after.2);
    let (soft, hard) = raise_nofile_limit();
    assert_eq!(soft, hard);
}

#[test]
fn given_a_port_that_is_taken_then_a_second_listener_is_refused_until_it_closes() {
    run(|rt| async move {
        let first = rt.listen(any_port()).await.unwrap();
        let addr = first.local_addr();
        let refused = rt.listen(addr).await.err().unwrap();
        assert_eq!(refused.kind, IoErrorKind::AlreadyExists);
        assert!(refused.detail.contains("another port"), "{refused}");

        let first = Rc::new(first);
        let outcome = Rc::new(RefCell::new(None));
        let waits = {
            let (first, outcome) = (first.clone(), outcome.clone());
            let (done, finished) = local::oneshot();
            rt.spawn(Queue::Latency, async move {
                *outcome.borrow_mut() = first.accept().await.err();
                let _ = done.send(());
            });
            finished
        };
        rt.sleep(Duration::from_millis(20)).await;
        assert!(outcome.borrow().is_none(), "accept did not wait");
        first.close();
        waits.await.unwrap();
        let ended = outcome.borrow_mut().take().unwrap();
        assert_eq!(ended.kind, IoErrorKind::Disconnected);
        let again = first.accept().await.err().unwrap();
        assert_eq!(again.kind, IoErrorKind::Disconnected);
        rt.listen(addr).await.unwrap();
    })
    .unwrap();
}

#[test]
fn given_a_slow_reader_when_vectors_of_a_mebibyte_are_sent_then_all_arrives_in_order() {
    const ROUNDS: usize = 8;
    const ROUND_BYTES: usize = 1 << 20;
    run(|rt| async move {
        let listener = rt.listen(any_port()).await.unwrap();
        let addr = listener.local_addr();
        let (done, finished) = local::oneshot();
        let client = rt.clone();
        rt.spawn(Queue::Latency, async move {
            let conn = client.connect(addr).await.unwrap();
            let (mut reader, _writer) = conn.split();
            let mut got = Vec::new();
            let mut buf = vec![0; 30_000];
            loop {
                let read = reader.read(&mut buf).await.unwrap();
                if read == 0 {
                    break;
                }
                got.extend_from_slice(&buf[..read]);
                client.sleep(Duration::from_micros(200)).await;
            }
            let _ = done.send(got);
        });
        let accepted = listener.accept().await.unwrap();
        let conn = rt.adopt(accepted).unwrap();
        let (reader, mut writer) = conn.split();
        let content = Bytes::from(pattern(0, ROUND_BYTES));
        for round in 0..ROUNDS {
            // More slices than one system call takes, empty ones among them.
            let step = 301 + round;
            let mut slices: Vec<Bytes> = (0..ROUND_BYTES)
                .step_by(step)
                .flat_map(|at| {
                    let end = (at + step).min(ROUND_BYTES);
                    [content.slice(at..end), Bytes::new()]
                })
                .collect();
            assert!(slices.len() > 2048);
            writer.write_all(&mut slices).await.unwrap();
            assert!(slices.is_empty());
        }
        drop((reader, writer));
        let got = finished.await.unwrap();
        assert_eq!(got.len(), ROUNDS * ROUND_BYTES);
        for part in got.chunks(ROUND_BYTES) {
            assert_eq!(part, content);
        }
    })
    .unwrap();
}

#[test]
fn given_a_connection_carried_to_another_executor_then_both_halves_work_there() {
    let (send, receive) = std::sync::mpsc::channel();
    let (accepts, accepted) = std::sync::mpsc::channel();
    let acceptor = spawn_executor(plan("acceptor"), |rt| async move {
        let listener = rt.listen(any_port()).await.unwrap();
        send.send(listener.local_addr()).unwrap();
        accepts.send(listener.accept().await.unwrap()).unwrap();
        // Accepted and then dropped by nobody's owner: the peer sees the end.
        drop(listener.accept().await.unwrap());
    })
    .unwrap();
    let addr = receive.recv().unwrap();
    let owner = spawn_executor(plan("owner"), move |rt| async move {
        let accepted = rt.spawn_blocking(move || accepted.recv().unwrap()).await;
        let conn = rt.adopt(accepted.unwrap()).unwrap();
        let (mut reader, mut writer) = conn.split();
        let mut buf = [0; 4096];
        loop {
            let read = reader.read(&mut buf).await.unwrap();
            if read == 0 {
                return;
            }
            let mut back = vec![Bytes::copy_from_slice(&buf[..read])];
            writer.write_all(&mut back).await.unwrap();
        }
    })
    .unwrap();
    run(move |rt| async move {
        let (mut reader, mut writer) = rt.connect(addr).await.unwrap().split();
        for n in 0..100u8 {
            writer
                .write_all(&mut vec![Bytes::copy_from_slice(&[n; 10])])
                .await
                .unwrap();
            let mut got = Vec::new();
            while got.len() < 10 {
                let mut buf = [0; 10];
                let read = reader.read(&mut buf).await.unwrap();
                assert!(read > 0);
                got.extend_from_slice(&buf[..read]);
            }
            assert_eq!(got, [n; 10]);
        }
        let (mut dropped, _writer) = rt.connect(addr).await.unwrap().split();
        assert_eq!(dropped.read(&mut [0; 10]).await.unwrap(), 0);
    })
    .unwrap();
    acceptor.join().unwrap();
    owner.join().unwrap();
}

#[test]
fn given_a_pending_read_and_write_when_the_closer_closes_then_both_end() {
    run(|rt| async move {
        let listener = rt.listen(any_port()).await.unwrap();
        let other_end = rt.connect(listener.local_addr()).await.unwrap();
        let conn = rt.adopt(listener.accept().await.unwrap()).unwrap();
        let closer = conn.closer();
        let (mut reader, mut writer) = conn.split();
        let (read_done, read_end) = local::oneshot();
        let (write_done, write_end) = local::oneshot();
        let ended = Rc::new(Cell::new(0));
        let (r, w) = (ended.clone(), ended.clone());
        rt.spawn(Queue::Latency, async move {
            let got = reader.read(&mut [0; 10]).await;
            r.set(r.get() + 1);
            let _ = read_done.send(got);
        });
        rt.spawn(Queue::Latency, async move {
            // Nobody reads: far more than the socket's buffers hold.
            let content = Bytes::from(vec![1; 1 << 20]);
            let got = writer.write_all(&mut vec![content; 64]).await;
            w.set(w.get() + 1);
            let _ = write_done.send(got);
        });
        rt.sleep(Duration::from_millis(50)).await;
        assert_eq!(ended.get(), 0, "both should wait");
        closer.close();
        closer.close();
        match read_end.await.unwrap() {
            Ok(read) => assert_eq!(read, 0),
            Err(e) => assert_eq!(e.kind, IoErrorKind::Disconnected),
        }
        let failed = write_end.await.unwrap().err().unwrap();
        assert_eq!(failed.kind, IoErrorKind::Disconnected);
        closer.close();
        drop(other_end);
    })
    .unwrap();
}

#[test]
fn given_nobody_listens_when_connecting_then_the_error_keeps_its_number() {
    run(|rt| async move {
        let gone = rt.listen(any_port()).await.unwrap();
        let addr = gone.local_addr();
        gone.close();
        let refused = rt.connect(addr).await.err().unwrap();
        assert_eq!(refused.errno, Some(libc::ECONNREFUSED));
    })
    .unwrap();
}

#[test]
fn given_an_executor_that_ends_with_waits_on_sockets_then_peers_see_it_and_the_port_is_free() {
    let (send, receive) = std::sync::mpsc::channel();
    let (end, until) = std::sync::mpsc::channel::<()>();
    let server = spawn_executor(plan("server"), |rt| async move {
        let listener = rt.listen(any_port()).await.unwrap();
        send.send(listener.local_addr()).unwrap();
        let acceptor = rt.clone();
        rt.spawn(Queue::Latency, async move {
            while let Ok(accepted) = listener.accept().await {
                let conn = acceptor.adopt(accepted).unwrap();
                acceptor.spawn(Queue::Latency, async move {
                    let (mut reader, _writer) = conn.split();
                    while reader.read(&mut [0; 10]).await.is_ok_and(|read| read > 0) {}
                });
            }
        });
        rt.spawn_blocking(move || until.recv()).await.unwrap().ok();
    })
    .unwrap();
    let addr = receive.recv().unwrap();
    run(move |rt| async move {
        let (mut reader, mut writer) = rt.connect(addr).await.unwrap().split();
        let mut slices = vec![Bytes::from_static(b"hello")];
        writer.write_all(&mut slices).await.unwrap();
        rt.sleep(Duration::from_millis(20)).await;
        drop(end);
        assert_eq!(reader.read(&mut [0; 10]).await.unwrap(), 0);
        rt.spawn_blocking(move || server.join().unwrap())
            .await
            .unwrap();
        rt.listen(addr).await.unwrap();
    })
    .unwrap();
}

#[test]
fn given_a_wait_that_is_polled_very_often_then_it_still_wakes() {
    run(|rt| async move {
        let listener = rt.listen(any_port()).await.unwrap();
        let (_r, mut other) = rt.connect(listener.local_addr()).await.unwrap().split();
        let conn = rt.adopt(listener.accept().await.unwrap()).unwrap();
        let (mut reader, _w) = conn.split();
        let mut buf = [0; 8];
        {
            let mut read = std::pin::pin!(reader.read(&mut buf));
            for _ in 0..1000 {
                let pending = futures_lite::future::poll_once(read.as_mut()).await;
                assert!(pending.is_none());
                rt.yield_if_needed().await;
            }
            let mut slices = vec![Bytes::from_static(b"late")];
            other.write_all(&mut slices).await.unwrap();
            assert_eq!(read.await.unwrap(), 4);
        }
        assert_eq!(&buf[..4], b"late");
    })
    .unwrap();
}

#[test]
fn given_a_connection_that_times_out_while_reading_then_later_reads_work() {
    run(|rt| async move {
        let listener = rt.listen(any_port()).await.unwrap();
        let (_r, mut other) = rt.connect(listener.local_addr()).await.unwrap().split();
        let conn = rt.adopt(listener.accept().await.unwrap()).unwrap();
        let (mut reader, _w) = conn.split();
        let mut buf = [0; 8];
        let nothing = rt
            .timeout(Duration::from_millis(5), reader.read(&mut buf))
            .await;
        assert!(nothing.is_err());
        let mut slices = vec![Bytes::from_static(b"late")];
        other.write_all(&mut slices).await.unwrap();
        assert_eq!(reader.read(&mut buf).await.unwrap(), 4);
    })
    .unwrap();
}
