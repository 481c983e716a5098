//! Long polls across shards: one coalesced notice when a visible bound moves.
//!
//! The asker names the bound that it has seen. The owner listens first and looks
//! second, so a bound that moves in between is not missed: it answers `Moved` at
//! once. Nothing here holds a credit of the mesh while it waits.

use super::fetch::Hurry;
use super::messages::{PartitionKey, Reply, Request, WatchOrder};
use super::Shard;
use crate::runtime::local::{Event, Listen};
use crate::runtime::{Mono, Queue};
use futures_lite::future::or;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Both ends of this shard's watches.
#[derive(Default)]
pub(super) struct Watches {
    next: Cell<u64>,
    /// Watches that this shard asked of others: notified by their notice.
    asked: RefCell<HashMap<u64, Event>>,
    /// Watches that others asked of this shard, by asker: notified when given up.
    held: RefCell<HashMap<(usize, u64), Event>>,
}

/// Resolves when any of several listens does.
struct Any(Vec<Listen>);

impl Future for Any {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let ready = self
            .0
            .iter_mut()
            .any(|listen| Pin::new(listen).poll(cx).is_ready());
        if ready {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Shard {
    /// Waits until the visible bound of one of these partitions passes what was
    /// seen, until the deadline, until the shard is stopped, or until nobody wants to
    /// wait any longer.
    pub(super) async fn wait_for_bounds(
        &self,
        parts: Vec<(PartitionKey, i64)>,
        deadline: Mono,
        hurry: &Hurry,
    ) {
        let stop = self.stop_event().listen();
        let hurried = hurry.listen();
        if self.is_stopping() || hurry.ends_waits() {
            return;
        }
        let watch = self.0.watches.next.get();
        self.0.watches.next.set(watch + 1);
        let noticed = Event::new();
        let notice = noticed.listen();
        self.0.watches.asked.borrow_mut().insert(watch, noticed);
        let mut listens = vec![stop, hurried, notice];
        let mut peers = Vec::new();
        let mut moved = false;
        for (owner, _, parts) in self.by_owner(parts, |part| part.0) {
            moved = if owner == self.0.me {
                self.listen_to(&parts, &mut listens)
            } else {
                let order = WatchOrder {
                    watch,
                    parts,
                    wait_max: deadline.since(self.rt().now()),
                };
                peers.push(owner);
                !matches!(
                    self.call(owner, Request::Watch(order)).await,
                    Ok(Reply::Done)
                )
            };
            if moved {
                break;
            }
        }
        if !moved {
            let left = deadline.since(self.rt().now());
            or(Any(listens), self.rt().sleep(left)).await;
        }
        self.0.watches.asked.borrow_mut().remove(&watch);
        for peer in peers {
            let shard = self.clone();
            self.rt().spawn(Queue::Latency, async move {
                // A peer that has stopped holds no watch any more.
                let _ = shard.call(peer, Request::Unwatch(watch)).await;
            });
        }
    }

    /// Adds a listen for each partition; true if one has passed what was seen, or
    /// can't be read any more, which the next read will tell.
    fn listen_to(&self, parts: &[(PartitionKey, i64)], listens: &mut Vec<Listen>) -> bool {
        parts
            .iter()
            .any(|(key, seen)| match self.0.partitions.online(key) {
                Ok(partition) => {
                    listens.push(partition.bound_moved().listen());
                    partition.numbers().high_watermark > *seen
                }
                Err(_) => true,
            })
    }

    pub(super) fn watch_here(&self, from: usize, order: WatchOrder) -> Reply {
        let given_up = Event::new();
        let mut listens = vec![given_up.listen()];
        if self.listen_to(&order.parts, &mut listens) {
            return Reply::Moved;
        }
        let name = (from, order.watch);
        self.0.watches.held.borrow_mut().insert(name, given_up);
        let shard = self.clone();
        self.rt().spawn(Queue::Latency, async move {
            let over = shard.rt().sleep(order.wait_max);
            or(Any(listens), over).await;
            if shard.0.watches.held.borrow_mut().remove(&name).is_some() {
                // If the asker has stopped, nobody waits for this notice.
                let _ = shard.call(from, Request::Notice(order.watch)).await;
            }
        });
        Reply::Done
    }

    pub(super) fn unwatch_here(&self, from: usize, watch: u64) {
        let given_up = self.0.watches.held.borrow_mut().remove(&(from, watch));
        if let Some(given_up) = given_up {
            given_up.notify_all();
        }
    }

    pub(super) fn noticed(&self, watch: u64) {
        let event = self.0.watches.asked.borrow().get(&watch).cloned();
        if let Some(event) = event {
            event.notify_all();
        }
    }
}
