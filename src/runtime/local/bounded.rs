//! Several futures at a time, in one task.
//!
//! What it is not: it spawns nothing. Dropping it drops the futures that run.

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::task::Poll;

/// Runs the futures, at most `limit` (at least 1) at a time, started in their order, and
/// gives their results in their order. A wake-up polls all that run, so `limit` is small.
pub async fn join_bounded<F: Future>(
    limit: usize,
    futures: impl IntoIterator<Item = F>,
) -> Vec<F::Output> {
    let limit = limit.max(1);
    let mut waiting = futures.into_iter();
    let mut running: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut done: Vec<Option<F::Output>> = Vec::new();
    poll_fn(|cx| loop {
        while running.len() < limit {
            let Some(future) = waiting.next() else { break };
            running.push((done.len(), Box::pin(future)));
            done.push(None);
        }
        let before = running.len();
        running.retain_mut(|(place, future)| match future.as_mut().poll(cx) {
            Poll::Ready(result) => {
                done[*place] = Some(result);
                false
            }
            Poll::Pending => true,
        });
        if before == 0 {
            return Poll::Ready(());
        }
        if running.len() == before {
            return Poll::Pending;
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::sim::World;
    use std::cell::Cell;
    use std::time::Duration;

    #[test]
    fn given_a_limit_then_no_more_run_and_the_results_are_in_order() {
        let world = World::new(1);
        let rt = world.node("a").rt();
        for (limit, expected_most) in [(0, 1), (1, 1), (3, 3), (100, 20)] {
            let (now, most) = (Cell::new(0), Cell::new(0));
            let one = |i: u64| {
                let (now, most, rt) = (&now, &most, &rt);
                async move {
                    now.set(now.get() + 1);
                    most.set(now.get().max(most.get()));
                    rt.sleep(Duration::from_millis(50 - i * 7 % 20)).await;
                    now.set(now.get() - 1);
                    i
                }
            };
            let results = world.block_on(&rt, join_bounded(limit, (0..20).map(one)));
            assert_eq!(results, (0..20).collect::<Vec<_>>());
            assert_eq!((now.get(), most.get()), (0, expected_most));
        }
        let none: Vec<std::future::Ready<()>> = Vec::new();
        assert!(world.block_on(&rt, join_bounded(3, none)).is_empty());
        let ready = (0..50).map(std::future::ready);
        assert_eq!(world.block_on(&rt, join_bounded(4, ready)).len(), 50);
    }
}
