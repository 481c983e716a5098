//! What stays: the rules for each batch and each record, without any I/O.

use super::offset_map::OffsetMap;
use crate::protocol::batch::{BatchHeader, Record};
use crate::storage::ProducerStates;
use std::collections::HashMap;

/// The rules of one round.
pub(super) struct Retention<'a> {
    /// The last offset of each key of the dirty part, below `end`.
    pub(super) map: &'a OffsetMap,
    /// Records at or above it are not judged.
    pub(super) end: i64,
    pub(super) now_ms: i64,
    pub(super) delete_retention_ms: i64,
    pub(super) live: LiveProducers,
}

/// The producers that may go on, each with the offset of its last record, if it has one, and
/// its epoch.
#[derive(Debug, Default)]
pub(super) struct LiveProducers(HashMap<i64, (Option<i64>, i16)>);

/// What becomes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchFate {
    /// It stays as it is.
    Untouched,
    /// Its records are judged one by one.
    Judged {
        /// It stays even without a record.
        keep_empty: bool,
    },
    /// All of its records go.
    Emptied {
        /// It stays without them.
        keep_empty: bool,
    },
}

/// What is known of a batch beside its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BatchFacts {
    /// It is the round's last batch.
    pub(super) is_last: bool,
    /// Its transaction was aborted (data).
    pub(super) is_aborted: bool,
    /// It ends a transaction of which no data is left (a marker).
    pub(super) is_empty_marker: bool,
}

impl LiveProducers {
    pub(super) fn of(states: &ProducerStates) -> LiveProducers {
        let each = states.iter().map(|producer| {
            let last = producer.last.map(|batch| batch.last_offset);
            (producer.id, (last, producer.epoch))
        });
        LiveProducers(each.collect())
    }

    /// Whether the batch is what is known of a producer that may go on.
    fn needs(&self, header: &BatchHeader) -> bool {
        match self.0.get(&header.producer_id) {
            Some((Some(last), _)) => *last == header.last_offset(),
            Some((None, epoch)) => {
                header.attributes.is_control() && *epoch == header.producer_epoch
            }
            None => false,
        }
    }
}

impl Retention<'_> {
    /// What becomes of a batch as a whole.
    pub(super) fn fate(&self, header: &BatchHeader, facts: BatchFacts) -> BatchFate {
        if header.base_offset >= self.end {
            return BatchFate::Untouched;
        }
        let keep_empty = facts.is_last || self.live.needs(header);
        if header.attributes.is_control() {
            return match facts.is_empty_marker && self.horizon_passed(header) {
                true => BatchFate::Emptied { keep_empty },
                false => BatchFate::Untouched,
            };
        }
        match facts.is_aborted {
            true => BatchFate::Emptied { keep_empty },
            false => BatchFate::Judged { keep_empty },
        }
    }

    /// Whether a record stays.
    pub(super) fn keeps(&self, header: &BatchHeader, record: &Record<'_>) -> bool {
        let offset = header.base_offset + i64::from(record.offset_delta);
        if offset >= self.end {
            return true;
        }
        let Some(key) = record.key else {
            return false;
        };
        let is_superseded = self.map.get(key).is_some_and(|last| last > offset);
        let is_due = record.value.is_none() && self.horizon_passed(header);
        !is_superseded && !is_due
    }

    /// The delete horizon that a batch gets which has deletion markers, or ends a transaction
    /// of which nothing is left, and has none yet.
    pub(super) fn horizon_for(&self, header: &BatchHeader, wants_one: bool) -> Option<i64> {
        let wants = wants_one && header.last_offset() < self.end;
        (wants && !header.attributes.has_delete_horizon())
            .then(|| self.now_ms.saturating_add(self.delete_retention_ms))
    }

    fn horizon_passed(&self, header: &BatchHeader) -> bool {
        header.attributes.has_delete_horizon() && header.base_timestamp <= self.now_ms
    }
}
