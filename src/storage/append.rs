//! Appending.
use super::{AppendError, Log, LogBatch};

impl Log {
    /// Appends batches, whose offsets follow the end of the log, in one write (more
    /// where a roll falls between them). LEO rises once all are written; on an error
    /// it does not move. One caller at a time.
    pub async fn append(&self, batches: &[LogBatch]) -> Result<(), AppendError> {
        todo!()
    }
}
