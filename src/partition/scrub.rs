//! Re-reading what is at rest.

use super::{Partition, PartitionState};
use crate::storage::{ReadError, Scrubbed, Throttle};
use std::time::Duration;

impl Partition {
    /// Re-reads the first sealed segment whose base offset is at or above `from`; `None` if
    /// there is none, or the partition serves nothing. May be dropped.
    ///
    /// # Errors
    /// Damage, found twice, and a device that fails have taken the partition offline;
    /// anything else may be tried again.
    pub async fn scrub_next(
        &self,
        from: i64,
        throttle: &Throttle,
    ) -> Result<Option<Scrubbed>, ReadError> {
        let inner = &self.0;
        if inner.check_serving().is_err() || inner.state.get() != PartitionState::Online {
            return Ok(None);
        }
        match inner.log().scrub_next(from, throttle).await {
            Err(ReadError::Closed | ReadError::OutOfRange { .. }) => Ok(None),
            Err(error) => {
                // The reader is this, and there is nobody to answer.
                let _code = inner.on_read_error(&error);
                Err(error)
            }
            done => done,
        }
    }

    /// For how long the sealed segment that waits longest has not been re-read, at the wall
    /// clock's `now_ms`. Zero where nothing can be re-read.
    pub fn scrub_age(&self, now_ms: i64) -> Duration {
        match self.0.state.get() {
            PartitionState::Online => self.0.log().scrub_age(now_ms),
            PartitionState::Fenced | PartitionState::Offline => Duration::ZERO,
        }
    }
}
