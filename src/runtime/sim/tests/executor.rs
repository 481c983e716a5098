//! Tasks, time, determinism, the ends of runs.

use crate::runtime::local::{oneshot, Event};
use crate::runtime::sim::{SimNode, World};
use crate::runtime::{Panicked, Queue, Rt};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Runs tasks that sleep, yield, draw numbers and use the disk; the order of what
/// they did, and the fingerprint of the run.
fn busy_run(seed: u64) -> (Vec<u64>, u64) {
    let world = World::new(seed);
    let node = world.node("a");
    let log = Rc::new(RefCell::new(Vec::new()));
    for task in 0..5_u64 {
        let rt = node.rt_shard(task as usize % 2);
        let log = log.clone();
        rt.clone().spawn(Queue::Latency, async move {
            let dir = rt.dir("/d").subdir(&format!("{task}"));
            for step in 0..5 {
                rt.yield_if_needed().await;
                log.borrow_mut().push(task * 10 + step);
                dir.create_all(crate::runtime::SyncSite::PartitionCreate)
                    .await
                    .unwrap();
                rt.sleep(Duration::from_nanos(rt.random_u64() % 1_000_000))
                    .await;
            }
        });
    }
    world.run_for(Duration::from_secs(1));
    let log = log.borrow().clone();
    assert_eq!(log.len(), 25);
    (log, world.trace_hash())
}

#[test]
fn the_same_seed_gives_the_same_run_and_others_differ() {
    let mut orders = BTreeSet::new();
    for seed in 0..20 {
        let run = busy_run(seed);
        assert_eq!(run, busy_run(seed), "seed {seed}");
        orders.insert(run.0);
    }
    assert!(orders.len() > 15, "only {} orders", orders.len());
}

#[test]
fn timers_fire_in_order_and_time_jumps() {
    let world = World::new(3);
    let node = world.node("a");
    let rt = node.rt();
    let log = Rc::new(RefCell::new(Vec::new()));
    for ms in [30_u32, 10, 20, 10_000_000] {
        let (rt, log) = (rt.clone(), log.clone());
        rt.clone().spawn(Queue::Latency, async move {
            rt.sleep(MS * ms).await;
            log.borrow_mut().push((ms, rt.now().0));
        });
    }
    world.run_for(Duration::from_secs(20_000));
    let expected = [10, 20, 30, 10_000_000].map(|ms: u32| (ms, u64::from(ms) * 1_000_000));
    assert_eq!(*log.borrow(), expected);
    assert_eq!(world.now(), Duration::from_secs(20_000));
}

#[test]
fn a_timeout_drops_the_future_and_leaves_no_timer_behind() {
    let world = World::new(3);
    let rt = world.node("a").rt();
    let slow = world.block_on(&rt, rt.timeout(MS, rt.sleep(MS * 100)));
    assert!(slow.is_err());
    assert_eq!(world.now(), MS);
    let fast = world.block_on(&rt, rt.timeout(MS * 100, rt.sleep(MS)));
    assert!(fast.is_ok());
    // Neither the long sleep nor the long timeout is left to move the clock.
    let stuck = catch_unwind(AssertUnwindSafe(|| {
        world.block_on(&rt, std::future::pending::<()>())
    }));
    assert!(stuck.is_err());
    assert_eq!(world.now(), MS * 2);
}

#[test]
fn a_deadlock_panics_with_the_seed_and_what_waits() {
    let world = World::new(4711);
    let rt = world.node("lonely").rt();
    let event = Event::new();
    let waits = event.clone();
    rt.spawn(Queue::Background, async move {
        waits.wait_until(|| false).await
    });
    let panic = catch_unwind(AssertUnwindSafe(|| {
        world.block_on(&rt, event.wait_until(|| false))
    }));
    let text = *panic.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("seed 4711"), "{text}");
    assert!(text.contains("lonely/0 (Background)"), "{text}");
    assert!(text.contains("tests/executor.rs"), "{text}");
}

#[test]
fn a_task_that_spins_does_not_stop_time() {
    let world = World::new(5);
    let rt = world.node("a").rt();
    let done = Rc::new(Cell::new(false));
    let (timer, set) = (rt.clone(), done.clone());
    rt.spawn(Queue::Latency, async move {
        timer.sleep(MS).await;
        set.set(true);
    });
    world.block_on(&rt, async {
        while !done.get() {
            rt.yield_if_needed().await;
            futures_lite::future::yield_now().await;
        }
    });
}

#[test]
fn blocking_work_gives_its_value_or_its_panic() {
    let world = World::new(6);
    let rt = world.node("a").rt();
    let value = world.block_on(&rt, rt.spawn_blocking(|| 7));
    assert_eq!(value, Ok(7));
    let panicked = world.block_on(&rt, rt.spawn_blocking(|| panic!("no luck")));
    assert_eq!(panicked, Err::<(), _>(Panicked("no luck".into())));
}

/// Counts how many of its kind were dropped.
struct CountsDrop(Rc<Cell<u32>>, Rt);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
        // What a careless destructor might do: it is refused, and harms nothing.
        let count = self.0.clone();
        let late = async move { count.set(100) };
        self.1.spawn(Queue::Latency, late);
    }
}

fn end_runs_drop_tasks(end: fn(&SimNode)) {
    let world = World::new(7);
    let (a, b) = (world.node("a"), world.node("b"));
    let ran = Rc::new(Cell::new(0));
    let dropped = Rc::new(Cell::new(0));
    for rt in [a.rt(), a.rt_shard(1)] {
        let (ran, guard) = (ran.clone(), CountsDrop(dropped.clone(), rt.clone()));
        rt.clone().spawn(Queue::Latency, async move {
            let _guard = guard;
            loop {
                rt.sleep(MS).await;
                ran.set(ran.get() + 1);
            }
        });
    }
    let alive = Rc::new(Cell::new(0));
    let (rt_b, count) = (b.rt(), alive.clone());
    rt_b.clone().spawn(Queue::Latency, async move {
        loop {
            rt_b.sleep(MS).await;
            count.set(count.get() + 1);
        }
    });
    world.run_for(MS * 10);
    assert_eq!(ran.get(), 20);
    let old = a.rt();
    end(&a);
    assert!(!a.is_up());
    assert_eq!(dropped.get(), 2);
    world.run_for(MS * 10);
    assert_eq!((ran.get(), alive.get()), (20, 20));
    let rt = a.restart();
    let refused = world.block_on(&rt, async { old.dir("/").list().await });
    assert!(refused.is_err());
    world.block_on(&rt, async { rt.dir("/").list().await.unwrap() });
    assert_eq!(dropped.get(), 2);
}

#[test]
fn a_crash_drops_the_tasks_of_its_node_only() {
    end_runs_drop_tasks(SimNode::crash);
}

#[test]
fn a_kill_drops_the_tasks_of_its_node_only() {
    end_runs_drop_tasks(SimNode::kill);
}

#[test]
fn a_crash_from_within_ends_what_runs() {
    let world = World::new(8);
    let node = world.node("a");
    let rt = node.rt();
    let victim = node.clone();
    let clock = rt.clone();
    rt.spawn(Queue::Latency, async move {
        clock.sleep(MS).await;
        victim.crash();
        clock.sleep(MS).await;
        unreachable!("a crashed task runs no further");
    });
    let (_keep, never) = oneshot::<()>();
    assert_eq!(world.block_on_until_crash(&rt, never), None);
    world.run_for(MS * 10);
}

#[test]
fn a_clock_may_be_skewed() {
    let world = World::new(9);
    let (a, b) = (world.node("a"), world.node("b"));
    b.set_clock_skew_ms(-250);
    assert_eq!(a.rt().wall_clock_ms() - b.rt().wall_clock_ms(), 250);
    world.run_for(MS * 42);
    assert_eq!(a.rt().wall_clock_ms() - b.rt().wall_clock_ms(), 250);
    assert_eq!(a.rt().now(), b.rt().now());
}

#[test]
fn a_panic_in_a_task_reaches_the_test() {
    let world = World::new(10);
    let rt = world.node("a").rt();
    rt.spawn(Queue::Background, async { panic!("a broken invariant") });
    let panic = catch_unwind(AssertUnwindSafe(|| world.run_for(MS)));
    let text = *panic.unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(text, "a broken invariant");
    // The world can still be looked at.
    assert_eq!(world.block_on(&rt, async { 5 }), 5);
}

#[test]
fn the_end_of_a_world_drops_its_tasks_whatever_their_destructors_do() {
    let world = World::new(11);
    let node = world.node("a");
    let dropped = Rc::new(Cell::new(0));
    let guard = CountsDrop(dropped.clone(), node.rt());
    node.rt().spawn(Queue::Latency, async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    world.run_for(MS);
    let lock = world.block_on(&node.rt(), async { node.rt().dir("/").lock("l").await });
    let sleeping = Box::pin(async move {
        let rt = node.rt();
        rt.sleep(MS).await;
    });
    drop(world);
    assert_eq!(dropped.get(), 1);
    drop((lock, sleeping));
}

#[test]
fn tasks_of_a_world_cannot_run_it() {
    let world = Rc::new(World::new(12));
    let rt = world.node("a").rt();
    let inner = world.clone();
    let nested = async move { inner.run_for(MS) };
    let refused = catch_unwind(AssertUnwindSafe(|| world.block_on(&rt, nested)));
    assert!(refused.is_err());
}
