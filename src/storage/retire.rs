//! Giving a directory up to another [`Log`]: the rebuild after a failed write.
//!
//! A rebuilt log is loaded from the directory of the one that failed, while readers
//! still use the old one. Two logs that write there would cut and overwrite each
//! other's files (they even share the names of temporary ones). So the old log is
//! retired first: appends, flushes, checkpoints, sealing and truncation are refused
//! from then on, also those that wait for their turn, and all I/O under way has ended.
//!
//! What it is not: a close. Nothing is flushed or written, and reads go on.

use super::{FlushError, Log};

/// Why the directory of a log may not be loaded again by this process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RetireError {
    /// The future of an append was dropped while its write may have been under way:
    /// nobody learns when that write ends, and it could land on what is written next.
    #[error("an append was dropped before it ended, and its write may still come; restart the broker to load the partition again")]
    WriteLost,
    /// The log was closed or deleted.
    #[error("the log is closed")]
    Closed,
}

impl Log {
    /// Sees to it that this log never writes again, and waits until all its I/O has
    /// ended. Reads below LEO go on, until the last clone is dropped. May be repeated.
    ///
    /// # Errors
    /// No other log may be loaded from the directory.
    pub async fn retire(&self) -> Result<(), RetireError> {
        let log = &*self.0;
        log.recycler.end();
        log.storage.0.recycling.note_retired(&self.0);
        // Whoever enters from here on finds the fence.
        log.fence_off(FlushError::Fenced("the log is being rebuilt".to_owned()));
        let alone = log.gate.exclusive().await;
        drop(alone.map_err(|_| RetireError::Closed)?);
        match log.write_lost.get() {
            true => Err(RetireError::WriteLost),
            false => Ok(()),
        }
    }
}
