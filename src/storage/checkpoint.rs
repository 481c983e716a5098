//! A log's own checkpoint.
use super::{CheckpointError, Log};

impl Log {
    /// Flushes, then writes what an unclean load starts from (index prefix, time
    /// index, producer snapshot, epochs), durably. Returns the recovery point that
    /// may be recorded now.
    pub async fn checkpoint(&self) -> Result<i64, CheckpointError> {
        todo!()
    }

    /// Stops the log cleanly: refuses new work, waits for I/O in flight, flushes, cuts
    /// the active segment to its exact length, writes everything a clean load needs.
    /// Returns the final recovery point, which is LEO.
    pub async fn close(&self) -> Result<i64, CheckpointError> {
        todo!()
    }
}
