//! The head of a log: which segments go, and how they go.
//!
//! Whole segments go, from the first one on: those that lie below the log start
//! offset, those that `retention.bytes` has no room for, those whose largest timestamp
//! is older than `retention.ms` (where a segment has no timestamps, the time of its
//! file's last change). Never one that holds offsets at or above the caller's bound
//! (the high watermark), and the active one only after a roll. [`HeadRules`] decides,
//! without any I/O.
//!
//! Why a crash at any point is safe: the owner records the new log start offset
//! durably (`log-start-offset-checkpoint`) *before* it tells the log of it
//! ([`Log::set_log_start`]), and only then are files removed. What the files alone can
//! tell is made durable before the record ([`Log::settle_below`]). So a segment that is
//! missing at the head is always explained by the record, and one that comes back (the
//! renames are not synced) lies below it and is removed by the load (`load.rs`).
//!
//! Files are renamed to `.deleted` and unlinked later (`file.delete.delay.ms`). Readers
//! that hold a file or a buffer go on; one that comes to open a file that is gone is
//! told that its offset is out of range.
//!
//! What it is not: it records nothing and wakes nobody; the partition does.

use super::log::LogShared;
use super::log_files::{remove_if_there, LOG, SNAPSHOT};
use super::segment::{Segment, SegmentPhase};
use super::{CheckpointError, FlushError, Log, ReadError};
use crate::runtime::{IoError, IoErrorKind, Queue};
use futures_lite::future::or;
use std::rc::Rc;
use std::time::Duration;

/// What expires the head of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionRules {
    /// `retention.ms`, milliseconds; negative: age expires nothing.
    pub retention_ms: i64,
    /// `retention.bytes`; negative: size expires nothing.
    pub retention_bytes: i64,
    /// No segment goes that holds offsets at or above it: the high watermark.
    pub bound: i64,
    /// The wall clock, milliseconds since the Unix epoch.
    pub now_ms: i64,
}

/// What [`Log::remove_head`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemovedHead {
    /// Segments.
    pub segments: u64,
    /// Bytes of their batches.
    pub bytes: u64,
}

/// Why the head of a log could not be looked at or removed. The work may be tried
/// again.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RetentionError {
    /// The age of a segment could not be found out.
    #[error("the age of a segment could not be read: {0}")]
    Read(#[from] ReadError),
    /// A file could not be created or renamed.
    #[error("files of expired segments could not be removed: {0}")]
    Io(#[from] IoError),
    /// What is to go had to be sealed first, and that failed.
    #[error("expired segments could not be sealed: {0}")]
    Seal(#[from] CheckpointError),
    /// The new log start offset could not be recorded.
    #[error("the log start offset could not be recorded: {0}")]
    Record(String),
    /// The log is fenced, closed or deleted.
    #[error("the log takes no changes: {0}")]
    Closed(String),
}

/// What is known of one segment at the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeadSegment {
    /// The offset after its last batch.
    next_offset: i64,
    /// Bytes of its batches.
    len: u64,
    active: bool,
}

/// What becomes of the first segment that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It goes.
    Goes,
    /// It stays, and with it all that follow.
    Stays,
    /// It goes if [`HeadRules::is_old`] says so of its largest timestamp.
    ByAge,
}

/// The decisions, segment by segment from the first one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeadRules {
    rules: RetentionRules,
    log_start_offset: i64,
    /// By how many bytes the segments that are left exceed `retention.bytes`.
    bytes_over: i64,
}

impl HeadRules {
    fn new(rules: RetentionRules, log_start_offset: i64, log_bytes: u64) -> HeadRules {
        let log_bytes = i64::try_from(log_bytes).unwrap_or(i64::MAX);
        let bytes_over = match rules.retention_bytes {
            unlimited if unlimited < 0 => -1,
            limit => log_bytes.saturating_sub(limit),
        };
        HeadRules {
            rules,
            log_start_offset,
            bytes_over,
        }
    }

    fn judge(&self, segment: &HeadSegment) -> Verdict {
        let is_empty_active = segment.active && segment.len == 0;
        if is_empty_active || segment.next_offset > self.rules.bound {
            return Verdict::Stays;
        }
        let below_start = !segment.active && segment.next_offset <= self.log_start_offset;
        let over_size = i64::try_from(segment.len).is_ok_and(|len| self.bytes_over >= len);
        match (below_start || over_size, self.rules.retention_ms) {
            (true, _) => Verdict::Goes,
            (false, forever) if forever < 0 => Verdict::Stays,
            (false, _) => Verdict::ByAge,
        }
    }

    /// Whether a segment with this largest timestamp is older than `retention.ms`.
    fn is_old(&self, largest_timestamp: i64) -> bool {
        self.rules.now_ms.saturating_sub(largest_timestamp) > self.rules.retention_ms
    }

    /// The segment goes.
    fn take(&mut self, segment: &HeadSegment) {
        let len = i64::try_from(segment.len).unwrap_or(i64::MAX);
        self.bytes_over = self.bytes_over.saturating_sub(len).max(-1);
    }
}

impl Log {
    /// Where the log should start, by `rules`: the current log start offset or the
    /// base offset of a later segment. Where even the active segment has expired, it is
    /// rolled, and the log should start at its end. Changes nothing else; the caller
    /// records the result durably before [`Log::set_log_start`].
    pub async fn expired_up_to(&self, rules: RetentionRules) -> Result<i64, RetentionError> {
        let log = &*self.0;
        let (segments, start) = {
            let state = log.state.borrow();
            (state.segments.clone(), state.log_start_offset)
        };
        let mut head = HeadRules::new(rules, start, self.size_bytes());
        let mut expired = start;
        for (at, segment) in segments.iter().enumerate() {
            let facts = HeadSegment {
                next_offset: segment.next_offset(),
                len: segment.len(),
                active: at + 1 == segments.len(),
            };
            let goes = match head.judge(&facts) {
                Verdict::Goes => true,
                Verdict::Stays => false,
                Verdict::ByAge => head.is_old(log.age_of(segment).await?),
            };
            let goes = match goes && facts.active {
                true => log.roll_expired(segment, facts.next_offset).await?,
                false => goes,
            };
            if !goes {
                break;
            }
            head.take(&facts);
            expired = expired.max(facts.next_offset);
            log.storage.rt().yield_if_needed().await;
        }
        Ok(expired)
    }

    /// Seals the segments that lie wholly below `offset`, which is to be recorded as the
    /// log start next. From then on a load removes them without reading them, so what
    /// only they could tell (leader epochs, producers) must be durable elsewhere.
    pub async fn settle_below(&self, offset: i64) -> Result<(), RetentionError> {
        let below = self.0.complete_below(offset);
        if below.iter().any(|s| s.phase() != SegmentPhase::Sealed) {
            self.checkpoint().await?;
        }
        Ok(())
    }

    /// Moves the log start offset up to `offset`, at most LEO; never down. The caller
    /// has recorded it durably. Readers below it are refused from now on; the files go
    /// with [`Log::remove_head`].
    pub fn set_log_start(&self, offset: i64) {
        let mut state = self.0.state.borrow_mut();
        let offset = offset.min(state.end_offset);
        if offset > state.log_start_offset {
            state.log_start_offset = offset;
            state.epochs.truncate_from_start(offset);
            self.0.storage.0.cache.remove_below(self.0.id, offset);
        }
    }

    /// Removes the segments that lie wholly below the log start offset: their files are
    /// renamed now and unlinked later. What is not sealed yet is sealed first. After an
    /// error some may be gone; the rest goes next time.
    pub async fn remove_head(&self) -> Result<RemovedHead, RetentionError> {
        let log = &*self.0;
        self.settle_below(self.log_start_offset()).await?;
        let _io = log.gate.enter().await.map_err(|_| closed("it is closed"))?;
        // No index and no snapshot of these segments is written meanwhile.
        let _side_files = log.side_files.acquire(1).await;
        if let Some(reason) = log.fence() {
            return Err(closed(&reason));
        }
        let mut removed = RemovedHead::default();
        let mut renamed = Vec::new();
        let mut outcome = Ok(());
        for segment in log.complete_below(self.log_start_offset()) {
            if segment.phase() != SegmentPhase::Sealed {
                break;
            }
            outcome = log.rename_away(&segment, &mut renamed).await;
            if outcome.is_err() {
                break;
            }
            removed.segments += 1;
            removed.bytes += segment.len();
            segment.close();
        }
        log.state
            .borrow_mut()
            .segments
            .drain(..removed.segments as usize);
        log.unlink_later(renamed);
        outcome?;
        if removed.segments > 0 {
            log.remove_snapshots_below_first().await?;
        }
        Ok(removed)
    }
}

impl LogShared {
    /// The segments that lie wholly below `offset`. Never the active one.
    fn complete_below(&self, offset: i64) -> Vec<Rc<Segment>> {
        let state = self.state.borrow();
        let complete = &state.segments[..state.segments.len() - 1];
        let below = complete.iter().take_while(|s| s.next_offset() <= offset);
        below.cloned().collect()
    }

    /// The largest timestamp of a segment, or the time of its file's last change if it
    /// has none. A sealed segment that was not opened since the load is opened once: only
    /// an index that was held against its segment is believed where data is to go.
    pub(super) async fn age_of(&self, segment: &Rc<Segment>) -> Result<i64, RetentionError> {
        if segment.extent().is_max_timestamp_unknown() {
            let gate = self.gate.enter().await;
            let _io = gate.map_err(|_| closed("it is closed"))?;
            match self.open_file(segment).await {
                // What is in its place is judged the next time.
                Err(_) if segment.is_replaced() => return Ok(i64::MAX),
                opened => opened?,
            };
        }
        let largest = segment.extent().max_timestamp;
        if largest >= 0 {
            return Ok(largest);
        }
        let name = segment.file_name(LOG);
        let entries = self.dir.list().await?;
        let entry = entries.into_iter().find(|entry| entry.name == name);
        // A file that is not there is no reason to call it old.
        Ok(entry.map_or(i64::MAX, |entry| entry.modified_ms))
    }

    /// Makes the active segment a complete one, if it still ends at `end`. False if an
    /// append came first, or the log takes no changes.
    async fn roll_expired(&self, segment: &Rc<Segment>, end: i64) -> Result<bool, RetentionError> {
        let alone = self.gate.exclusive().await;
        let _alone = alone.map_err(|_| closed("it is closed"))?;
        if let Some(reason) = self.fence() {
            return Err(closed(&reason));
        }
        if segment.phase() != SegmentPhase::Active || segment.next_offset() != end {
            return Ok(false);
        }
        let created = self.create_segment(end).await;
        // Its name may be there, and nothing may be appended to the segment before it then.
        let next = created.inspect_err(|error| {
            let mut state = self.state.borrow_mut();
            state.append_fence.get_or_insert_with(|| error.to_string());
        })?;
        let next = Rc::new(next);
        let mut state = self.state.borrow_mut();
        segment.roll(state.producers.clone());
        state.segments.push(next);
        state.tail.clear();
        Ok(true)
    }

    /// Renames a segment's files. The log goes last: what an error leaves is tried again.
    pub(super) async fn rename_away(
        &self,
        segment: &Segment,
        renamed: &mut Vec<String>,
    ) -> Result<(), IoError> {
        for extension in ["index", "timeindex", "txnindex", LOG] {
            let name = segment.file_name(extension);
            let gone = format!("{name}.deleted");
            match self.dir.rename(&name, &gone).await {
                Ok(()) => renamed.push(gone),
                Err(error) if error.kind == IoErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Unlinks files after `file.delete.delay.ms`, in the background, or keeps them to become
    /// new segments (`recycle.rs`). A log that is closed before leaves them to the next load.
    pub(super) fn unlink_later(&self, names: Vec<String>) {
        if names.is_empty() {
            return;
        }
        let config = self.config.get();
        let delay = Duration::from_millis(config.file_delete_delay_ms);
        let recycler = self.recycler.clone();
        let (rt, dir, gate) = (
            self.storage.rt().clone(),
            self.dir.clone(),
            self.gate.clone(),
        );
        let task = async move {
            or(rt.sleep(delay), gate.closed()).await;
            for name in names {
                if gate.is_closed() {
                    return;
                }
                if name.ends_with(".log.deleted") {
                    match recycler.keep(&dir, &gate, &config, &name).await {
                        Ok(true) => continue,
                        Ok(false) => {}
                        Err(error) => tracing::warn!("{error}; the file is not used again"),
                    }
                    if gate.is_closed() {
                        return;
                    }
                }
                match dir.remove_file(&name).await {
                    Err(error) if error.kind != IoErrorKind::NotFound => {
                        tracing::warn!("{error}; the file stays until the next start");
                    }
                    _ => {}
                }
                rt.yield_if_needed().await;
            }
        };
        self.storage.rt().spawn(Queue::Background, task);
    }

    /// Removes the producer snapshots below the first segment, but for the newest one of
    /// all, from which a recovery starts. The one at the segment's base offset holds the
    /// producers of what is gone. Not made durable: one that comes back is as true as it
    /// was.
    async fn remove_snapshots_below_first(&self) -> Result<(), IoError> {
        let first = self.state.borrow().segments[0].base_offset;
        let start = super::segment::file_name(first, SNAPSHOT);
        let entries = self.dir.list().await?;
        let mut names: Vec<String> = entries
            .into_iter()
            .map(|entry| entry.name)
            .filter(|name| name.ends_with(".snapshot"))
            .collect();
        names.sort_unstable();
        names.pop();
        for name in names.into_iter().filter(|name| *name < start) {
            remove_if_there(&self.dir, &name).await?;
        }
        Ok(())
    }
}

fn closed(reason: &str) -> RetentionError {
    RetentionError::Closed(reason.to_owned())
}

impl From<FlushError> for RetentionError {
    fn from(error: FlushError) -> RetentionError {
        RetentionError::Seal(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FOREVER: RetentionRules = RetentionRules {
        retention_ms: -1,
        retention_bytes: -1,
        bound: i64::MAX,
        now_ms: 1_000_000,
    };

    /// A log: (records, bytes, largest timestamp) of each segment, the last one active.
    type Shape = Vec<(i64, u64, i64)>;

    fn facts(shape: &Shape) -> Vec<(HeadSegment, i64)> {
        let mut next_offset = 0;
        let last = shape.len() - 1;
        let each = shape.iter().enumerate();
        each.map(|(at, (records, len, largest))| {
            next_offset += records;
            let segment = HeadSegment {
                next_offset,
                len: *len,
                active: at == last,
            };
            (segment, *largest)
        })
        .collect()
    }

    /// How many segments go.
    fn going(shape: &Shape, rules: RetentionRules, log_start: i64) -> usize {
        let bytes = shape.iter().map(|(_, bytes, _)| bytes).sum();
        let mut head = HeadRules::new(rules, log_start, bytes);
        let mut count = 0;
        for (segment, largest) in facts(shape) {
            let goes = match head.judge(&segment) {
                Verdict::Goes => true,
                Verdict::Stays => false,
                Verdict::ByAge => head.is_old(largest),
            };
            if !goes {
                break;
            }
            head.take(&segment);
            count += 1;
        }
        count
    }

    fn four() -> Shape {
        vec![
            (10, 100, 10),
            (10, 200, 30),
            (10, 100, 20),
            (10, 50, 900_000),
        ]
    }

    #[test]
    fn without_limits_nothing_goes() {
        assert_eq!(going(&four(), FOREVER, 0), 0);
    }

    #[test]
    fn what_lies_wholly_below_the_log_start_goes_but_never_the_active_segment() {
        for (log_start, expected) in [(9, 0), (10, 1), (19, 1), (20, 2), (40, 3)] {
            assert_eq!(going(&four(), FOREVER, log_start), expected, "{log_start}");
        }
    }

    #[test]
    fn size_takes_segments_while_what_is_left_reaches_the_limit() {
        let sized = |retention_bytes| RetentionRules {
            retention_bytes,
            ..FOREVER
        };
        for (limit, expected) in [
            (450, 0),
            (351, 0),
            (350, 1),
            (150, 2),
            (50, 3),
            (1, 3),
            (0, 4),
        ] {
            assert_eq!(going(&four(), sized(limit), 0), expected, "{limit}");
        }
    }

    #[test]
    fn age_takes_segments_up_to_the_first_that_is_young() {
        let aged = |retention_ms| RetentionRules {
            retention_ms,
            ..FOREVER
        };
        // The second one's largest timestamp is the largest of the first three.
        for (ms, expected) in [(999_990, 0), (999_989, 1), (999_970, 1), (999_969, 3)] {
            assert_eq!(going(&four(), aged(ms), 0), expected, "{ms}");
        }
        assert_eq!(going(&four(), aged(0), 0), 4, "the active one too");
        let future = vec![(10, 100, 2_000_000), (10, 1, 0)];
        assert_eq!(going(&future, aged(0), 0), 0, "a timestamp in the future");
    }

    #[test]
    fn an_empty_active_segment_stays() {
        let all = RetentionRules {
            retention_ms: 0,
            retention_bytes: 0,
            ..FOREVER
        };
        assert_eq!(going(&vec![(10, 100, 5), (0, 0, -1)], all, 10), 1);
    }

    fn any_shape() -> impl Strategy<Value = Shape> {
        prop::collection::vec((1..50i64, 1..500u64, 0..2_000_000i64), 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_the_limits_what_goes_had_to_and_what_must_stay_stays(
            shape in any_shape(),
            retention_ms in -1..1_500_000i64,
            retention_bytes in -1..4_000i64,
            bound_part in 0..=1000i64,
            start_part in 0..=1000i64,
        ) {
            let end = facts(&shape).last().unwrap().0.next_offset;
            let bound = end * bound_part / 1000;
            let log_start = bound * start_part / 1000;
            let rules = RetentionRules { retention_ms, retention_bytes, bound, ..FOREVER };
            let count = going(&shape, rules, log_start);
            let facts = facts(&shape);
            let left = |from: usize| facts[from..].iter().map(|(s, _)| s.len as i64).sum::<i64>();
            let reason = |at: usize| {
                let (segment, largest) = facts[at];
                let below = !segment.active && segment.next_offset <= log_start;
                let size = retention_bytes >= 0 && left(at + 1) >= retention_bytes;
                let age = retention_ms >= 0 && 1_000_000 - largest > retention_ms;
                below || size || age
            };
            for (at, (segment, _)) in facts[..count].iter().enumerate() {
                prop_assert!(segment.next_offset <= bound, "beyond the bound");
                prop_assert!(reason(at), "segment {at} goes without a reason");
            }
            if count < facts.len() {
                let stays = facts[count].0.next_offset > bound || !reason(count);
                prop_assert!(stays, "segment {count} should go");
            }
        }
    }
}
