//! Fetching: the visible bound first, then the data.
//!
//! The bound is read before the log, so a reader never sees beyond the high
//! watermark of the moment it asked, and a rise that comes later is announced by
//! [`Partition::bound_moved`], for which the caller listens before it fetches.

use super::inner::{Counted, Inner};
use super::Partition;
use crate::protocol::ErrorCode;
use crate::storage::ReadSlices;
use bytes::Bytes;

/// Who reads, which decides how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A consumer with `isolation.level` = read_uncommitted: up to the high
    /// watermark.
    Consumer,
    /// A consumer with `isolation.level` = read_committed: up to the last stable
    /// offset, which is the high watermark while there are no transactions.
    ReadCommitted,
}

/// One partition's share of a fetch request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchSpec {
    /// The first offset wanted.
    pub offset: i64,
    /// The leader epoch that the client knows, -1 if none.
    pub current_leader_epoch: i32,
    /// Bytes of whole batches to return at most.
    pub bytes_max: usize,
    /// Return the first batch whatever its size, so that a reader gets on.
    pub whole_first_batch: bool,
    /// Who reads.
    pub reader: Reader,
}

/// What a fetch found.
#[derive(Debug, Clone)]
pub struct FetchOutcome {
    /// The high watermark that bounded the read.
    pub high_watermark: i64,
    /// The last stable offset at that moment.
    pub last_stable_offset: i64,
    /// The log start offset.
    pub log_start_offset: i64,
    /// Whole batches, in order; a slice may hold several.
    pub slices: Vec<Bytes>,
    /// The length of each batch, in order.
    pub batch_bytes: Vec<u32>,
    /// The sum of the lengths.
    pub bytes: usize,
    /// Where to read on.
    pub next_offset: i64,
}

impl Partition {
    /// Reads whole batches from the one that holds `spec.offset` on. Empty between
    /// the visible bound and the LEO.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE below the log start offset or above the LEO;
    /// FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH for another leader epoch;
    /// KAFKA_STORAGE_ERROR when offline or when the read failed;
    /// NOT_LEADER_OR_FOLLOWER once closed.
    pub async fn fetch(&self, spec: FetchSpec) -> Result<FetchOutcome, ErrorCode> {
        let inner = &self.0;
        inner.check_serving()?;
        inner.check_leader_epoch(spec.current_leader_epoch)?;
        let high_watermark = inner.replica.borrow().high_watermark();
        let last_stable_offset = high_watermark;
        let bound = match spec.reader {
            Reader::Consumer => high_watermark,
            Reader::ReadCommitted => last_stable_offset,
        };
        inner.check_in_log(spec.offset)?;
        let read = if spec.offset < bound {
            let _running = inner.count(Counted::Read);
            let log = inner.log();
            log.read(spec.offset, bound, spec.bytes_max, spec.whole_first_batch)
                .await
                .map_err(|error| inner.on_read_error(&error))?
        } else {
            ReadSlices {
                next_offset: spec.offset,
                ..ReadSlices::default()
            }
        };
        debug_assert!(read.next_offset <= bound.max(spec.offset));
        Ok(FetchOutcome {
            high_watermark,
            last_stable_offset,
            log_start_offset: inner.replica.borrow().log_start_offset(),
            slices: read.slices,
            batch_bytes: read.batch_bytes,
            bytes: read.bytes,
            next_offset: read.next_offset,
        })
    }
}

impl Inner {
    /// About the bytes between `offset` and the high watermark.
    pub(super) fn bytes_available(&self, offset: i64) -> Result<u64, ErrorCode> {
        self.check_serving()?;
        self.check_in_log(offset)?;
        let bound = self.replica.borrow().high_watermark();
        if offset >= bound {
            return Ok(0);
        }
        Ok(self.log.borrow().bytes_between(offset, bound))
    }

    fn check_in_log(&self, offset: i64) -> Result<(), ErrorCode> {
        let replica = self.replica.borrow();
        if (replica.log_start_offset()..=replica.end_offset()).contains(&offset) {
            Ok(())
        } else {
            Err(ErrorCode::OffsetOutOfRange)
        }
    }
}
