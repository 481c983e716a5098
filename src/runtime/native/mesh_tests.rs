//! The mesh between executors on real threads.

use super::tests::plan;
use super::*;
use crate::runtime::{local, Mesh, MeshError, MeshSeat, Queue, ReplyTo};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

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
