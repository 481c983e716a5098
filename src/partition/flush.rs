//! Flushing what the policy wants flushed: one flush under way per partition,
//! beside the next write.
//!
//! A flush covers what was written before it began; what was written meanwhile is
//! covered by the next, which follows at once. How files of one shard are flushed
//! together is the log's business.

use super::inner::{Inner, Single, Stopping};
use super::PartitionState;
use crate::replication::ReplicaEvent;
use crate::runtime::Queue;
use std::rc::Rc;

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
            match self.log().flush().await {
                Ok(offset) => self.on_flushed(offset),
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
        }
    }

    /// A fenced partition flushes on, since its written batches have waiters; one that
    /// is offline or being deleted does not.
    fn flush_is_wanted(&self) -> bool {
        self.state.get() != PartitionState::Offline
            && self.stopping.get() != Some(Stopping::Delete)
            && self.replica.borrow().wants_flush()
    }
}
