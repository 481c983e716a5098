//! The native side against the real kernel: files on the disk under `target/`, TCP
//! on the loopback, executors on threads.

use super::*;
use crate::runtime::{
    local, Dir, File, IoErrorKind, Mesh, MeshError, MeshSeat, OpenMode, Queue, ReplyTo, Rt, Side,
    SyncSite, BLOCK_BYTES,
};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

fn scratch() -> tempfile::TempDir {
    let target = concat!(env!("CARGO_MANIFEST_DIR"), "/target");
    tempfile::tempdir_in(target).expect("target/ exists while tests run")
}

fn plan(name: &str) -> ExecutorPlan {
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
        assert_eq!(large.kind, IoErrorKind::Other);
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
        assert!(refused.detail.contains("listeners"), "{refused}");

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

// Mesh.

type TestSeat = MeshSeat<u64, u64>;

fn echo() -> Rc<dyn Fn(usize, u64, ReplyTo<u64>)> {
    Rc::new(|_, request, reply_to| reply_to.send(request + 1))
}

fn pair(window: usize) -> (TestSeat, TestSeat) {
    let mut seats = mesh(2, window).into_iter();
    (seats.next().unwrap(), seats.next().unwrap())
}

/// A member that answers until told to end.
fn spawn_echo(
    name: &str,
    seat: TestSeat,
    until: std::sync::mpsc::Receiver<()>,
) -> ExecutorHandle<()> {
    spawn_executor(plan(name), move |rt| async move {
        let _mesh = seat.join(&rt, echo()).await;
        rt.spawn_blocking(move || until.recv()).await.unwrap().ok();
    })
    .unwrap()
}

#[test]
fn given_two_members_when_they_call_then_answers_come_back_also_from_oneself() {
    let (a, b) = pair(4);
    let (end, until) = std::sync::mpsc::channel();
    let other = spawn_echo("b", b, until);
    run(move |rt| async move {
        let mesh = a.join(&rt, echo()).await;
        assert_eq!((mesh.me(), mesh.members()), (0, 2));
        for n in 0..2000 {
            assert_eq!(mesh.call(1, n).await, Ok(n + 1));
        }
        assert_eq!(mesh.call(0, 10).await, Ok(11));
        drop(end);
    })
    .unwrap();
    other.join().unwrap();
}

#[test]
fn given_many_callers_of_a_small_window_then_requests_arrive_in_order_of_first_poll() {
    const CALLS: u64 = 500;
    let (a, b) = pair(3);
    let receiver = spawn_executor(plan("b"), move |rt| async move {
        let got = Rc::new(RefCell::new(Vec::new()));
        let (full, done) = local::oneshot();
        let full = RefCell::new(Some(full));
        let later = Rc::new(RefCell::new(Vec::new()));
        let (seen, waiting) = (got.clone(), later.clone());
        let handler = Rc::new(move |from: usize, request: u64, reply_to: ReplyTo<u64>| {
            assert_eq!(from, 0);
            seen.borrow_mut().push(request);
            waiting.borrow_mut().push((request, reply_to));
            if request + 1 == CALLS {
                let _ = full.borrow_mut().take().unwrap().send(());
            }
        });
        let mesh = b.join(&rt, handler).await;
        // Answered later, by a task, newest first.
        let answering = rt.clone();
        rt.spawn(Queue::Latency, async move {
            let mut answered = 0;
            while answered < CALLS {
                let batch = std::mem::take(&mut *later.borrow_mut());
                assert!(batch.len() <= 3, "more in flight than the window");
                for (request, reply_to) in batch.into_iter().rev() {
                    reply_to.send(request);
                    answered += 1;
                }
                answering.sleep(Duration::from_micros(50)).await;
            }
        });
        done.await.unwrap();
        // Until the caller has all its answers and leaves.
        while mesh.call(0, 0).await.is_ok() {
            rt.sleep(Duration::from_millis(1)).await;
        }
        got.take()
    })
    .unwrap();
    run(move |rt| async move {
        let mesh = a.join(&rt, echo()).await;
        let (send, mut answers) = local::channel(CALLS as usize);
        for n in 0..CALLS {
            let (mesh, send) = (mesh.clone(), send.clone());
            rt.spawn(Queue::Latency, async move {
                let answer = mesh.call(1, n).await;
                assert_eq!(answer, Ok(n));
                send.try_send(n).unwrap();
            });
        }
        for _ in 0..CALLS {
            answers.recv().await.unwrap();
        }
    })
    .unwrap();
    let got = receiver.join().unwrap();
    assert_eq!(got, (0..CALLS).collect::<Vec<_>>());
}

#[test]
fn given_a_reply_that_is_dropped_then_its_caller_fails_and_the_credit_comes_back() {
    let (a, b) = pair(1);
    let (end, until) = std::sync::mpsc::channel::<()>();
    let other = spawn_executor(plan("b"), move |rt| async move {
        let odd: Rc<dyn Fn(usize, u64, ReplyTo<u64>)> = Rc::new(|_, request, reply_to| {
            if request % 2 == 1 {
                reply_to.send(request);
            }
        });
        let _mesh = b.join(&rt, odd).await;
        rt.spawn_blocking(move || until.recv()).await.unwrap().ok();
    })
    .unwrap();
    run(move |rt| async move {
        let mesh = a.join(&rt, echo()).await;
        for n in 0..20 {
            let want = if n % 2 == 1 {
                Ok(n)
            } else {
                Err(MeshError { peer: 1 })
            };
            assert_eq!(mesh.call(1, n).await, want);
        }
        drop(end);
    })
    .unwrap();
    other.join().unwrap();
}

#[test]
fn given_a_peer_that_ends_or_closes_then_pending_waiting_and_later_calls_fail() {
    for closes in [false, true] {
        let (a, b) = pair(2);
        let (asked, when_asked) = std::sync::mpsc::channel();
        let (end, until) = std::sync::mpsc::channel::<()>();
        let other = spawn_executor(plan("b"), move |rt| async move {
            // Keeps what it is asked and never answers.
            let kept = RefCell::new(Vec::new());
            let keep: Rc<dyn Fn(usize, u64, ReplyTo<u64>)> = Rc::new(move |_, _, reply_to| {
                kept.borrow_mut().push(reply_to);
                asked.send(()).unwrap();
            });
            let mesh = b.join(&rt, keep.clone()).await;
            rt.spawn_blocking(move || {
                when_asked.recv().unwrap();
                when_asked.recv().unwrap();
            })
            .await
            .unwrap();
            if closes {
                mesh.close();
                assert_eq!(mesh.call(0, 1).await, Err(MeshError { peer: 0 }));
                assert_eq!(mesh.call(1, 1).await, Err(MeshError { peer: 1 }));
                rt.spawn_blocking(move || until.recv()).await.unwrap().ok();
            }
            drop(keep);
        })
        .unwrap();
        run(move |rt| async move {
            let mesh = a.join(&rt, echo()).await;
            let (send, mut outcomes) = local::channel(5);
            // Two are sent, three wait for a credit.
            for n in 0..5 {
                let (mesh, send) = (mesh.clone(), send.clone());
                rt.spawn(Queue::Latency, async move {
                    send.try_send(mesh.call(1, n).await).unwrap();
                });
            }
            for _ in 0..5 {
                assert_eq!(outcomes.recv().await, Some(Err(MeshError { peer: 1 })));
            }
            assert_eq!(mesh.call(1, 9).await, Err(MeshError { peer: 1 }));
            assert_eq!(mesh.call(0, 9).await, Ok(10));
            drop(end);
        })
        .unwrap();
        other.join().unwrap();
    }
}

#[test]
fn given_a_seat_that_is_dropped_then_the_others_still_join_and_calls_to_it_fail() {
    let mut seats: Vec<TestSeat> = mesh(3, 2);
    drop(seats.pop());
    let b = seats.pop().unwrap();
    let a = seats.pop().unwrap();
    let (end, until) = std::sync::mpsc::channel();
    let other = spawn_echo("b", b, until);
    run(move |rt| async move {
        let mesh = a.join(&rt, echo()).await;
        assert_eq!(mesh.call(2, 1).await, Err(MeshError { peer: 2 }));
        assert_eq!(mesh.call(1, 1).await, Ok(2));
        drop(end);
    })
    .unwrap();
    other.join().unwrap();
}

#[test]
fn given_a_caller_that_gives_up_then_its_credit_comes_back_with_the_answer() {
    let (a, b) = pair(1);
    let (end, until) = std::sync::mpsc::channel();
    let other = spawn_echo("b", b, until);
    run(move |rt| async move {
        let mesh = a.join(&rt, echo()).await;
        for n in 0..200 {
            let once = futures_lite::future::poll_once(mesh.call(1, n)).await;
            assert!(once.is_none(), "a call cannot be done at once");
            assert_eq!(mesh.call(1, n).await, Ok(n + 1));
        }
        drop(end);
    })
    .unwrap();
    other.join().unwrap();
}

/// Two members, windows of 2, many callers on both sides that ask each other without
/// a pause for five seconds: both go on to the end.
#[test]
fn given_windows_of_two_saturated_both_ways_then_nothing_stalls() {
    const CALLERS: u64 = 16;
    let (a, b) = pair(2);
    let counts: Arc<[AtomicU64; 2]> = Arc::default();
    let done: Arc<AtomicU64> = Arc::default();
    let both: Vec<ExecutorHandle<()>> = [a, b]
        .into_iter()
        .enumerate()
        .map(|(me, seat)| {
            let (counts, done) = (counts.clone(), done.clone());
            spawn_executor(plan(&format!("member-{me}")), move |rt| async move {
                let mesh: Mesh<u64, u64> = seat.join(&rt, echo()).await;
                let until = rt.now() + Duration::from_secs(5);
                let (send, mut ended) = local::channel(CALLERS as usize);
                for caller in 0..CALLERS {
                    let (rt, mesh, counts, send) =
                        (rt.clone(), mesh.clone(), counts.clone(), send.clone());
                    let task = rt.clone();
                    rt.spawn(Queue::Latency, async move {
                        while task.now() < until {
                            assert_eq!(mesh.call(1 - me, caller).await, Ok(caller + 1));
                            counts[me].fetch_add(1, Ordering::Relaxed);
                            task.yield_if_needed().await;
                        }
                        send.try_send(()).unwrap();
                    });
                }
                for _ in 0..CALLERS {
                    ended.recv().await.unwrap();
                }
                // Not before the other is done too: it still needs answers.
                done.fetch_add(1, Ordering::Relaxed);
                while done.load(Ordering::Relaxed) < 2 {
                    rt.sleep(Duration::from_millis(1)).await;
                }
            })
            .unwrap()
        })
        .collect();
    // Progress in every half second, on both sides.
    let mut before = [0, 0];
    for _ in 0..9 {
        std::thread::sleep(Duration::from_millis(500));
        for me in 0..2 {
            let now = counts[me].load(Ordering::Relaxed);
            assert!(now > before[me], "member {me} stalled at {now}");
            before[me] = now;
        }
    }
    for member in both {
        member.join().unwrap();
    }
}
