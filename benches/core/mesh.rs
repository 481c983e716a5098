//! A call to another executor and its answer.

use criterion::Criterion;
use futures_lite::future::poll_once;
use highwater::runtime::native::{self, spawn_executor, ExecutorPlan};
use highwater::runtime::{MeshSeat, ReplyTo};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Each on a thread of its own, pinned where there are two CPUs. One call at a time: the
/// wake-up of a sleeping executor, there and back.
pub fn round_trip(c: &mut Criterion) {
    let mut group = c.benchmark_group("mesh");
    group
        .sample_size(20)
        .measurement_time(Duration::from_secs(3));
    group.bench_function("round trip", |b| b.iter_custom(|rounds| calls(rounds, 1)));
    group.bench_function("round trip, 64 in flight", |b| {
        b.iter_custom(|rounds| calls(rounds, 64))
    });
    group.finish();
}

type Seat = MeshSeat<u64, u64>;

fn echo() -> Rc<dyn Fn(usize, u64, ReplyTo<u64>)> {
    Rc::new(|_, request, reply_to| reply_to.send(request + 1))
}

fn plan(name: &str, cpu: usize) -> ExecutorPlan {
    let plan = ExecutorPlan::new(name);
    match native::cpus().as_slice() {
        cpus if cpus.len() > 1 => plan.pinned(cpus[cpu]),
        _ => plan,
    }
}

/// `rounds` calls, that many at a time.
fn calls(rounds: u64, at_a_time: u64) -> Duration {
    let mut seats = native::mesh(2, at_a_time as usize).into_iter();
    let (a, b): (Seat, Seat) = (seats.next().unwrap(), seats.next().unwrap());
    let (end, until) = std::sync::mpsc::channel::<()>();
    let other = spawn_executor(plan("echo", 1), move |rt| async move {
        let _mesh = b.join(&rt, echo()).await;
        // Until the other side has dropped its end.
        drop(rt.spawn_blocking(move || until.recv()).await);
    })
    .expect("an executor");
    let caller = spawn_executor(plan("caller", 0), move |rt| async move {
        let mesh = a.join(&rt, echo()).await;
        let start = Instant::now();
        let mut done = 0;
        while done < rounds {
            let now = at_a_time.min(rounds - done);
            let mut waits = Vec::with_capacity(now as usize);
            for n in 0..now {
                let mut wait = Box::pin(mesh.call(1, n));
                // The first poll sends.
                if poll_once(&mut wait).await.is_none() {
                    waits.push(wait);
                }
            }
            for wait in waits {
                wait.await.expect("an answer");
            }
            done += now;
        }
        let took = start.elapsed();
        drop(end);
        took
    })
    .expect("an executor");
    let took = caller.join().expect("the caller ends");
    other.join().expect("the other ends");
    took
}
