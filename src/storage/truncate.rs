//! Cutting a log's end. (Signatures; the rest follows.)

use super::{LoadError, Log};

impl Log {
    /// Cuts the log so that it ends at or below `offset`, at a batch boundary.
    /// Returns the new LEO.
    pub async fn truncate_to(&self, offset: i64) -> Result<i64, LoadError> {
        todo!()
    }
}
