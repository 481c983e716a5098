//! Flushing what the policy wants flushed, or what is much (`flush.messages`) or old
//! (`flush.ms`): one flush under way per partition, beside the next write.
//!
//! A flush covers what was written before it began; what was written meanwhile is
//! covered by the next, which follows at once. How files of one shard are flushed
//! together is the log's business.

use super::inner::{Inner, Single, Stopping};
use super::PartitionState;
use crate::replication::ReplicaEvent;
use crate::runtime::Queue;
use std::rc::Rc;
use std::time::Duration;

impl Inner {
    /// Starts flushing unless it is under way.
    pub(super) fn start_flush(self: &Rc<Self>) {
        if self.flush_is_wanted() && self.claim(Single::Flush) {
            let inner = self.clone();
            let rt = self.storage.rt().clone();
            rt.spawn(Queue::Latency, async move {
                inner.flush_all().await;
                inner.release(Single::Flush);
            });
        }
    }

    async fn flush_all(self: &Rc<Self>) {
        while self.flush_is_wanted() {
            let began = self.storage.rt().now();
            match self.log().flush().await {
                Ok(offset) => {
                    let took = self.storage.rt().now().nanos_since(began);
                    self.storage.counters().latencies.flush.record(took);
                    // What is still unflushed was written after that.
                    if self.unflushed_since.get().is_some() {
                        self.unflushed_since.set(Some(began));
                    }
                    self.on_flushed(offset);
                }
                Err(error) => {
                    self.on_flush_error(&error);
                    return;
                }
            }
        }
    }

    /// Takes in a flush. The log may know of a later write than the replica, whose
    /// word on the LEO comes from the appender.
    pub(super) fn on_flushed(self: &Rc<Self>, offset: i64) {
        if self.state.get() != PartitionState::Offline {
            let offset = offset.min(self.replica.borrow().end_offset());
            self.on(ReplicaEvent::Flushed { offset });
            if !self.has_unflushed() {
                self.unflushed_since.set(None);
            }
        }
    }

    /// Begins to count the age of what is written and not flushed (`flush.ms`).
    pub(super) fn note_unflushed(&self) {
        let counts = self.config.borrow().flush_ms != i64::MAX;
        if counts && self.unflushed_since.get().is_none() && self.has_unflushed() {
            self.unflushed_since.set(Some(self.storage.rt().now()));
        }
    }

    /// Starts a flush if something written is as old as `flush.ms`.
    pub(super) fn flush_old(self: &Rc<Self>) {
        let Some(since) = self.unflushed_since.get() else {
            return;
        };
        let age_max = Duration::from_millis(self.config.borrow().flush_ms.max(0) as u64);
        if self.storage.rt().now().since(since) >= age_max {
            self.on(ReplicaEvent::FlushDue);
        }
    }

    fn has_unflushed(&self) -> bool {
        let replica = self.replica.borrow();
        replica.flushed_offset() < replica.end_offset()
    }

    /// A fenced partition flushes on, since its written batches have waiters; one that
    /// is offline or being deleted does not.
    fn flush_is_wanted(&self) -> bool {
        self.state.get() != PartitionState::Offline
            && self.stopping.get() != Some(Stopping::Delete)
            && self.replica.borrow().wants_flush()
    }
}
