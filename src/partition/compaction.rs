//! Compaction of one partition: what its rules are, and what a failure means.
//!
//! What it is not: it does not decide when (`shard/compaction.rs`) nor how
//! (`storage/compaction/`).

use super::inner::Inner;
use super::{Partition, PartitionState};
use crate::config::Ratio;
use crate::storage::{
    Compacted, CompactionError, CompactionMeans, CompactionNeed, CompactionRules,
};

impl Partition {
    /// The part of the log that is to be dirty before it is compacted
    /// (`min.cleanable.dirty.ratio`); `None` where `cleanup.policy` lacks `compact`.
    pub fn compacted_from(&self) -> Option<Ratio> {
        let config = self.0.config.borrow();
        config
            .cleanup_compact
            .then_some(config.min_cleanable_dirty_ratio)
    }

    /// The size that its segments are limited to (`segment.bytes`).
    pub fn segment_bytes(&self) -> u32 {
        self.0.config.borrow().segment_bytes
    }

    /// What of the log is to be compacted. `None` where nothing may be: `cleanup.policy` lacks
    /// `compact`, the partition takes no writes at the moment, or damage was found in it.
    ///
    /// # Errors
    /// As [`Partition::compact`].
    pub async fn compaction_need(&self) -> Result<Option<CompactionNeed>, CompactionError> {
        let inner = &self.0;
        let Some(rules) = inner.compaction_rules() else {
            return Ok(None);
        };
        let log = inner.log();
        match log.compaction_need(&rules).await {
            Ok(need) => Ok(Some(need)),
            Err(error) => inner.sort_compaction_error(&log, error),
        }
    }

    /// Compacts the log. `None` as with [`Partition::compaction_need`], and where the partition
    /// was stopped or rebuilt meanwhile.
    ///
    /// # Errors
    /// A failed device, and one that cannot be read, has taken the partition offline. After damage it serves on, and is not
    /// compacted until a restart. Anything else may be tried again.
    pub async fn compact(
        &self,
        means: &CompactionMeans,
    ) -> Result<Option<Compacted>, CompactionError> {
        let inner = &self.0;
        let Some(rules) = inner.compaction_rules() else {
            return Ok(None);
        };
        let log = inner.log();
        match log.compact(&rules, means).await {
            Ok(done) => Ok(Some(done)),
            Err(error) => inner.sort_compaction_error(&log, error),
        }
    }
}

impl Inner {
    fn compaction_rules(&self) -> Option<CompactionRules> {
        let is_online = self.check_serving().is_ok() && self.state.get() == PartitionState::Online;
        let config = self.config.borrow();
        if !is_online || !config.cleanup_compact || self.is_uncleanable.get() {
            return None;
        }
        let high_watermark = self.replica.borrow().high_watermark();
        Some(CompactionRules {
            bound: high_watermark.min(self.last_stable_offset()),
            first_dirty: self.log().cleaned_to().unwrap_or(0),
            now_ms: self.storage.rt().wall_clock_ms(),
            delete_retention_ms: config.delete_retention_ms,
            min_lag_ms: config.min_compaction_lag_ms,
            max_lag_ms: config.max_compaction_lag_ms,
        })
    }
}
