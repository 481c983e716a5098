//! Finding an offset by timestamp, or one of the special ones (ListOffsets).

use super::inner::{Counted, Inner};
use super::{Partition, Reader};
use crate::protocol::ErrorCode;
use crate::storage::TimestampOffset;

/// Asks for the offset after the last visible record.
pub const LATEST: i64 = -1;
/// Asks for the log start offset.
pub const EARLIEST: i64 = -2;
/// Asks for the record with the largest timestamp (KIP-734).
pub const MAX_TIMESTAMP: i64 = -3;
/// Asks for the first offset on local disks (KIP-405): the log start offset, since
/// nothing is tiered.
pub const EARLIEST_LOCAL: i64 = -4;
/// Asks for the last tiered offset (KIP-1005): none.
pub const LATEST_TIERED: i64 = -5;

/// An answer to ListOffsets. Fields that do not apply are -1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedOffset {
    /// The timestamp of the record found, milliseconds.
    pub timestamp: i64,
    /// The offset, -1 if there is none.
    pub offset: i64,
    /// The leader epoch of the record found, where one is known.
    pub leader_epoch: i32,
}

impl Partition {
    /// Finds the offset that `timestamp` asks for: one of the constants of this
    /// module, else the first record that the reader sees whose timestamp is at or
    /// after it.
    ///
    /// # Errors
    /// UNSUPPORTED_VERSION for an unknown negative timestamp; OFFSET_NOT_AVAILABLE for
    /// a consumer while the high watermark is below the start of this leader's epoch
    /// and the answer could be there; otherwise those of [`Partition::fetch`], but for
    /// the range.
    pub async fn list_offset(
        &self,
        timestamp: i64,
        current_leader_epoch: i32,
        reader: Reader,
    ) -> Result<ListedOffset, ErrorCode> {
        let inner = &self.0;
        inner.check_serving()?;
        inner.check_leader_epoch(current_leader_epoch)?;
        let (log_start_offset, leader_epoch) = {
            let replica = inner.replica.borrow();
            (replica.log_start_offset(), replica.leader_epoch())
        };
        let bound = inner.visible_bound(reader);
        let lags = reader != Reader::Replica && inner.high_watermark_lags();
        let log = inner.log();
        let _running = inner.count(Counted::Read);
        let found = match timestamp {
            LATEST if lags => return Err(ErrorCode::OffsetNotAvailable),
            LATEST => return Ok(ListedOffset::special(bound, leader_epoch)),
            EARLIEST | EARLIEST_LOCAL => {
                let epoch = log.epoch_of(log_start_offset).unwrap_or(-1);
                return Ok(ListedOffset::special(log_start_offset, epoch));
            }
            LATEST_TIERED => return Ok(ListedOffset::NONE),
            MAX_TIMESTAMP => log.offset_of_max_timestamp(bound).await,
            target if target >= 0 => log.offset_for_timestamp(target, bound).await,
            _ => return Err(ErrorCode::UnsupportedVersion),
        };
        match found {
            Ok(Some(found)) => Ok(ListedOffset::from(found)),
            Ok(None) if lags => Err(ErrorCode::OffsetNotAvailable),
            Ok(None) => Ok(ListedOffset::NONE),
            Err(error) => Err(inner.on_read_error(&error)),
        }
    }
}

impl Inner {
    /// True while a leader does not know yet how much of what its predecessors wrote
    /// was visible.
    fn high_watermark_lags(&self) -> bool {
        let replica = self.replica.borrow();
        let latest = self.log.borrow().latest_epoch();
        latest.is_some_and(|latest| {
            latest.epoch == replica.leader_epoch() && latest.start_offset > replica.high_watermark()
        })
    }
}

impl ListedOffset {
    /// Nothing was found.
    pub const NONE: ListedOffset = ListedOffset::special(-1, -1);

    const fn special(offset: i64, leader_epoch: i32) -> ListedOffset {
        ListedOffset {
            timestamp: -1,
            offset,
            leader_epoch,
        }
    }
}

impl From<TimestampOffset> for ListedOffset {
    fn from(found: TimestampOffset) -> ListedOffset {
        ListedOffset {
            timestamp: found.timestamp,
            offset: found.offset,
            leader_epoch: found.leader_epoch,
        }
    }
}
