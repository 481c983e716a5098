//! Credits, order, ends, and the proof that two busy members never stall.

use crate::runtime::local::Event;
use crate::runtime::sim::{mesh, SimNode, World};
use crate::runtime::{Mesh, MeshError, MeshSeat, Queue, ReplyTo};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

type TestMesh = Mesh<u64, u64>;
type OwnerQueue = Vec<(u64, ReplyTo<u64>)>;
type TestHandler = Rc<dyn Fn(usize, u64, ReplyTo<u64>)>;

/// Joins `members` executors of a node, each with the handler that `handler` makes.
fn joined(
    world: &World,
    node: &SimNode,
    members: usize,
    window: usize,
    handler: impl Fn(usize) -> TestHandler,
) -> Vec<TestMesh> {
    let joined: Rc<RefCell<Vec<Option<TestMesh>>>> = Rc::default();
    joined.borrow_mut().resize_with(members, || None);
    for (me, seat) in mesh::<u64, u64>(members, window).into_iter().enumerate() {
        let (rt, handler, joined) = (node.rt_shard(me), handler(me), joined.clone());
        rt.clone().spawn(Queue::Latency, async move {
            let mesh = seat.join(&rt, handler).await;
            joined.borrow_mut()[me] = Some(mesh);
        });
    }
    world.run_for(Duration::from_secs(1));
    let meshes: Option<Vec<TestMesh>> = joined.borrow_mut().drain(..).collect();
    meshes.expect("all have joined")
}

fn adds_one() -> TestHandler {
    Rc::new(|_, request, reply| reply.send(request + 1))
}

#[test]
fn a_seat_is_send() {
    fn check<T: Send>() {}
    check::<MeshSeat<u64, u64>>();
}

#[test]
fn two_members_with_windows_of_two_saturated_both_ways_never_stall() {
    for seed in 0..4 {
        let seconds = if seed == 0 { 60 } else { 5 };
        let world = World::new(seed);
        let node = world.node("a");
        // Requests are queued and answered by a task, as an owner shard does.
        let queues: Rc<Vec<RefCell<OwnerQueue>>> =
            Rc::new((0..2).map(|_| RefCell::default()).collect());
        let events = [Event::new(), Event::new()];
        let meshes = joined(&world, &node, 2, 2, |me| {
            let (queues, event) = (queues.clone(), events[me].clone());
            Rc::new(move |_, request, reply| {
                let mut queue = queues[me].borrow_mut();
                queue.push((request, reply));
                assert!(queue.len() <= 2, "a window of two");
                event.notify_all();
            })
        });
        for (me, event) in events.iter().enumerate() {
            let (rt, queues, event) = (node.rt_shard(me), queues.clone(), event.clone());
            rt.clone().spawn(Queue::Latency, async move {
                loop {
                    event.wait_until(|| !queues[me].borrow().is_empty()).await;
                    let next = queues[me].borrow_mut().pop();
                    if let Some((request, reply)) = next {
                        rt.sleep(Duration::from_micros(rt.random_u64() % 5_000))
                            .await;
                        reply.send(request + 1);
                    }
                }
            });
        }
        let last_reply_at: Rc<Vec<Cell<Duration>>> = Rc::new(vec![Cell::default(); 16]);
        let replies = Rc::new(Cell::new(0_u64));
        for caller in 0..16 {
            let (me, rt) = (caller % 2, node.rt_shard(caller % 2));
            let (mesh, last, replies) =
                (meshes[me].clone(), last_reply_at.clone(), replies.clone());
            rt.clone().spawn(Queue::Latency, async move {
                for request in 0.. {
                    assert_eq!(mesh.call(1 - me, request).await, Ok(request + 1));
                    last[caller].set(Duration::from_nanos(rt.now().0));
                    replies.set(replies.get() + 1);
                }
            });
        }
        let mut before = replies.get();
        for _ in 0..seconds {
            world.run_for(Duration::from_secs(1));
            assert!(replies.get() > before + 100, "stalled, seed {seed}");
            before = replies.get();
        }
        let end = world.now();
        for last in last_reply_at.iter() {
            assert!(end - last.get() < Duration::from_secs(1), "seed {seed}");
        }
    }
}

#[test]
fn requests_of_one_member_arrive_in_the_order_of_their_calls() {
    for seed in 0..50 {
        let world = World::new(seed);
        let node = world.node("a");
        let seen: Rc<RefCell<Vec<u64>>> = Rc::default();
        let meshes = joined(&world, &node, 3, 4, |_| {
            let seen = seen.clone();
            Rc::new(move |_, request, reply| {
                seen.borrow_mut().push(request);
                reply.send(request);
            })
        });
        let called: Rc<RefCell<Vec<u64>>> = Rc::default();
        for request in 0..40 {
            let (mesh, called) = (meshes[0].clone(), called.clone());
            node.rt().spawn(Queue::Latency, async move {
                called.borrow_mut().push(request);
                assert_eq!(mesh.call(1, request).await, Ok(request));
            });
        }
        world.run_for(Duration::from_secs(1));
        assert_eq!(seen.borrow().len(), 40, "seed {seed}");
        assert_eq!(*seen.borrow(), *called.borrow(), "seed {seed}");
    }
}

#[test]
fn a_call_to_oneself_calls_the_own_handler() {
    let world = World::new(1);
    let node = world.node("a");
    let meshes = joined(&world, &node, 2, 1, |_| adds_one());
    let reply = world.block_on(&node.rt(), meshes[0].call(0, 41));
    assert_eq!(reply, Ok(42));
    assert_eq!((meshes[1].me(), meshes[1].members()), (1, 2));
}

#[test]
fn a_reply_that_is_dropped_fails_the_caller_and_returns_the_credit() {
    let world = World::new(2);
    let node = world.node("a");
    let meshes = joined(&world, &node, 2, 1, |_| {
        Rc::new(|_, request, reply| match request {
            0 => drop(reply),
            _ => reply.send(request),
        })
    });
    world.block_on(&node.rt(), async {
        for _ in 0..3 {
            assert_eq!(meshes[0].call(1, 0).await, Err(MeshError { peer: 1 }));
            assert_eq!(meshes[0].call(1, 5).await, Ok(5));
            assert_eq!(meshes[0].call(0, 0).await, Err(MeshError { peer: 0 }));
        }
    });
}

#[test]
fn a_caller_that_gives_up_does_not_lose_the_credit() {
    let world = World::new(3);
    let node = world.node("a");
    let rt = node.rt();
    let meshes = joined(&world, &node, 2, 1, |_| adds_one());
    world.block_on(&rt, async {
        for _ in 0..50 {
            let given_up = rt
                .timeout(Duration::from_nanos(100), meshes[0].call(1, 1))
                .await;
            assert!(given_up.is_err());
        }
        assert_eq!(meshes[0].call(1, 7).await, Ok(8));
    });
}

#[test]
fn a_close_fails_what_waits_for_the_member_and_what_it_waits_for() {
    for seed in 0..20 {
        let world = World::new(seed);
        let node = world.node("a");
        let kept: Rc<RefCell<Vec<ReplyTo<u64>>>> = Rc::default();
        let meshes = joined(&world, &node, 3, 2, |_| {
            let kept = kept.clone();
            Rc::new(move |_, _, reply| kept.borrow_mut().push(reply))
        });
        let failed = Rc::new(RefCell::new(Vec::new()));
        // More calls than credits: some wait for a credit, not for a reply.
        for (from, to) in [(0, 1), (0, 1), (0, 1), (0, 1), (1, 2), (1, 2), (1, 2)] {
            let (mesh, failed) = (meshes[from].clone(), failed.clone());
            node.rt_shard(from).spawn(Queue::Latency, async move {
                let result = mesh.call(to, 1).await;
                failed.borrow_mut().push(result);
            });
        }
        world.run_for(Duration::from_secs(1));
        assert_eq!((kept.borrow().len(), failed.borrow().len()), (4, 0));
        meshes[1].close();
        world.run_for(Duration::from_secs(1));
        let (first, second) = (Err(MeshError { peer: 1 }), Err(MeshError { peer: 2 }));
        assert_eq!(failed.borrow().iter().filter(|r| **r == first).count(), 4);
        assert_eq!(failed.borrow().iter().filter(|r| **r == second).count(), 3);
        let later = world.block_on(&node.rt(), async {
            (meshes[0].call(1, 1).await, meshes[1].call(1, 1).await)
        });
        assert_eq!(later, (first, first), "seed {seed}");
        let waits = meshes[2].call(0, 1);
        let open = world.block_on_for(&node.rt(), Duration::from_secs(1), waits);
        assert!(open.is_none(), "the others still talk");
    }
}
