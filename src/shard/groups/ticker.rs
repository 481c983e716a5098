//! One task for each shard that wakes its coordinators in time.

use super::{Held, Shard};
use crate::runtime::{Mono, Queue};
use futures_lite::future::or;

/// Starts it.
pub(in crate::shard) fn start(shard: &Shard) {
    let shard_ = shard.clone();
    shard
        .rt()
        .spawn(Queue::Latency, async move { run(shard_).await });
}

async fn run(shard: Shard) {
    let groups = &shard.0.groups;
    loop {
        let stop = shard.stop_event().listen();
        let earlier = groups.earlier.listen();
        if shard.is_stopping() {
            return;
        }
        let now = shard.rt().now();
        let deadlines = shard.coordinators().into_iter();
        let next = deadlines.filter_map(|held| held.next_deadline()).min();
        groups.wakes_at.set(next);
        let woken = or(stop, earlier);
        match next {
            Some(at) if at <= now => {}
            Some(at) => or(woken, shard.rt().sleep(at.since(now))).await,
            None => woken.await,
        }
        for held in shard.coordinators() {
            if shard.is_stopping() {
                return;
            }
            let now = shard.group_time();
            if held.next_deadline().is_some_and(|at| at <= now.mono) {
                let effects = held.coordinator.borrow_mut().tick(now);
                shard.carry_out(&held, effects, None);
            }
            shard.rt().yield_if_needed().await;
        }
    }
}

impl Held {
    fn next_deadline(&self) -> Option<Mono> {
        self.coordinator.borrow().next_deadline()
    }
}

impl Shard {
    /// Wakes the ticker if it would sleep past what this coordinator has to do.
    pub(super) fn note_deadline(&self, held: &Held) {
        let groups = &self.0.groups;
        let Some(at) = held.next_deadline() else {
            return;
        };
        if groups.wakes_at.get().is_none_or(|wakes_at| at < wakes_at) {
            groups.wakes_at.set(Some(at));
            groups.earlier.notify_all();
        }
    }
}
