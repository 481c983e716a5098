//! What the partition knows and a round of compaction needs: the bound, the topic's
//! settings, and what an error says of the partition.
//!
//! What it is not: it does not decide when (`shard/compaction.rs`), nor what stays
//! (`storage/compaction/`).

use super::inner::Inner;
use super::{Partition, PartitionState};
use crate::config::Ratio;
use crate::storage::{CompactionError, CompactionNeed, CompactionRules};
use std::rc::Rc;

impl Partition {
    /// `min.cleanable.dirty.ratio` of the topic, if its `cleanup.policy` has `compact`.
    pub fn compacted_from(&self) -> Option<Ratio> {
        let config = self.0.config.borrow();
        (config.cleanup_compact).then_some(config.min_cleanable_dirty_ratio)
    }

    /// How much there is to compact now.
    ///
    /// # Errors
    /// [`CompactionError::Closed`] where the partition takes no writes. A failed device has
    /// taken the partition offline; any other error leaves the partition as it is.
    pub async fn compaction_need(&self) -> Result<CompactionNeed, CompactionError> {
        let inner = &self.0;
        let rules = inner.compaction_rules()?;
        let need = inner.log().compaction_need(&rules).await;
        need.inspect_err(|error| inner.on_compaction_error(error))
    }
}

impl Inner {
    fn compaction_rules(&self) -> Result<CompactionRules, CompactionError> {
        if self.check_serving().is_err() || self.state.get() != PartitionState::Online {
            return Err(CompactionError::Closed(self.why_refused()));
        }
        let config = self.config.borrow();
        let high_watermark = self.replica.borrow().high_watermark();
        Ok(CompactionRules {
            bound: high_watermark.min(self.last_stable_offset()),
            first_dirty: self.log().cleaned_to().unwrap_or(0),
            now_ms: self.storage.rt().wall_clock_ms(),
            delete_retention_ms: config.delete_retention_ms,
            min_lag_ms: config.min_compaction_lag_ms,
            max_lag_ms: config.max_compaction_lag_ms,
        })
    }

    /// Only a failed device says anything about the partition. Damage that a round met is
    /// told by the round's owner; who reads there is told by the read.
    fn on_compaction_error(self: &Rc<Self>, error: &CompactionError) {
        if let CompactionError::Device(io) = error {
            self.on_checkpoint_io_error(io);
        }
    }
}
