//! Fetching: the visible bound first, then the data.
//!
//! The bound is read before the log, so a reader never sees beyond the high
//! watermark of the moment it asked, and a rise that comes later is announced by
//! [`Partition::bound_moved`], for which the caller listens before it fetches.

use super::inner::{Counted, Inner};
use super::Partition;
use crate::protocol::batch::HEADER_BYTES;
use crate::protocol::ErrorCode;
use crate::storage::leader_epochs::EpochEnd;
use crate::storage::ReadCheck;
use bytes::Bytes;

/// Who reads, which decides how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A consumer with `isolation.level` = read_uncommitted: up to the high
    /// watermark.
    Consumer,
    /// A consumer with `isolation.level` = read_committed: up to the last stable
    /// offset.
    ReadCommitted,
    /// A replica, or a consumer that debugs one: up to the LEO.
    Replica,
}

/// One partition's share of a fetch request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchSpec {
    /// The first offset wanted.
    pub offset: i64,
    /// The leader epoch that the client knows, -1 if none.
    pub current_leader_epoch: i32,
    /// The epoch of the last record that the client has, -1 if it does not say.
    pub last_fetched_epoch: i32,
    /// Bytes of whole batches to return at most.
    pub bytes_max: usize,
    /// Return the first batch whatever its size, so that a reader gets on.
    pub whole_first_batch: bool,
    /// Who reads.
    pub reader: Reader,
    /// Look at the CRCs of what comes from the disk even where `log.read.check.crcs` does not
    /// say so; for a replica that is always done.
    pub check_crc: bool,
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
    /// Where the client's log parts from this one: then nothing is read. (KIP-595)
    pub diverging: Option<EpochEnd>,
    /// Nothing visible is left behind what was read.
    pub reaches_bound: bool,
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
    /// OFFSET_OUT_OF_RANGE below the log start offset or above the LEO, and for an
    /// epoch last fetched that this log can't know;
    /// FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH for another leader epoch;
    /// KAFKA_STORAGE_ERROR when offline or when the read failed;
    /// NOT_LEADER_OR_FOLLOWER once closed.
    pub async fn fetch(&self, spec: FetchSpec) -> Result<FetchOutcome, ErrorCode> {
        let inner = &self.0;
        let traffic = &inner.traffic;
        let refused = |code| {
            traffic.out_errors.add(1);
            code
        };
        let (mut outcome, bound) = inner.look(&spec).map_err(refused)?;
        let has_room = spec.whole_first_batch || spec.bytes_max >= HEADER_BYTES;
        if outcome.diverging.is_some() || spec.offset >= bound || !has_room {
            return Ok(outcome);
        }
        let _running = inner.count(Counted::Read);
        let log = inner.log();
        let (bytes_max, whole) = (spec.bytes_max, spec.whole_first_batch);
        let read = log
            .read_checked(
                spec.offset,
                bound,
                bytes_max,
                whole,
                inner.read_check(&spec),
            )
            .await
            .map_err(|error| refused(inner.on_read_error(&error)))?;
        debug_assert!(read.next_offset <= bound);
        outcome.log_start_offset = inner.replica.borrow().log_start_offset();
        outcome.slices = read.slices;
        outcome.batch_bytes = read.batch_bytes;
        outcome.bytes = read.bytes;
        outcome.next_offset = read.next_offset;
        outcome.reaches_bound = read.next_offset >= bound;
        traffic.out_bytes.add(outcome.bytes as u64);
        traffic.out_batches.add(outcome.batch_bytes.len() as u64);
        let records = outcome.next_offset - spec.offset;
        traffic.out_records.add(records.max(0) as u64);
        Ok(outcome)
    }

    /// What [`Partition::fetch`] would say, its errors included, without reading.
    pub fn look(&self, spec: &FetchSpec) -> Result<FetchOutcome, ErrorCode> {
        self.0.look(spec).map(|(outcome, _)| outcome)
    }
}

impl Inner {
    /// An outcome without records, and how far the reader sees.
    fn look(&self, spec: &FetchSpec) -> Result<(FetchOutcome, i64), ErrorCode> {
        self.check_serving()?;
        self.check_leader_epoch(spec.current_leader_epoch)?;
        let bound = self.visible_bound(spec.reader);
        let diverging = self.diverging_epoch(spec)?;
        if diverging.is_none() {
            self.check_in_log(spec.offset)?;
        }
        let replica = self.replica.borrow();
        let outcome = FetchOutcome {
            high_watermark: replica.high_watermark(),
            last_stable_offset: self.last_stable_offset(),
            log_start_offset: replica.log_start_offset(),
            diverging,
            reaches_bound: spec.offset >= bound,
            slices: Vec::new(),
            batch_bytes: Vec::new(),
            bytes: 0,
            next_offset: spec.offset,
        };
        Ok((outcome, bound))
    }

    fn read_check(&self, spec: &FetchSpec) -> ReadCheck {
        let demanded = spec.check_crc || spec.reader == Reader::Replica;
        match demanded || self.config.borrow().check_crc_on_read {
            true => ReadCheck::Crcs,
            false => ReadCheck::Headers,
        }
    }

    /// How far a reader sees at this moment.
    pub(super) fn visible_bound(&self, reader: Reader) -> i64 {
        match reader {
            Reader::Consumer => self.replica.borrow().high_watermark(),
            Reader::ReadCommitted => self.last_stable_offset(),
            Reader::Replica => self.replica.borrow().end_offset(),
        }
    }

    /// About the bytes between `offset` and what the reader sees.
    pub(super) fn bytes_available(&self, offset: i64, reader: Reader) -> Result<u64, ErrorCode> {
        self.check_serving()?;
        self.check_in_log(offset)?;
        let bound = self.visible_bound(reader);
        if offset >= bound {
            return Ok(0);
        }
        Ok(self.log.borrow().bytes_between(offset, bound))
    }

    /// Where the client's log parts from this one, if the epoch of its last record
    /// says that it does.
    fn diverging_epoch(&self, spec: &FetchSpec) -> Result<Option<EpochEnd>, ErrorCode> {
        if spec.last_fetched_epoch < 0 {
            return Ok(None);
        }
        let end = self
            .end_of_epoch(spec.last_fetched_epoch)
            .ok_or(ErrorCode::OffsetOutOfRange)?;
        let parts = end.epoch < spec.last_fetched_epoch || end.end_offset < spec.offset;
        Ok(parts.then_some(end))
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
