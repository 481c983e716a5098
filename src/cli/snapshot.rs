//! The lines of a producer snapshot, as `highwater log dump` prints them.

use std::fmt;

use crate::storage::producer_snapshot::ProducerEntry;
use crate::storage::ProducedBatch;

/// One producer, in the words of Kafka's dump tool; then a line for each batch before its
/// last one, which only our own files have.
pub(super) struct ProducerLines<'a>(pub(super) &'a ProducerEntry);

impl fmt::Display for ProducerLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.0;
        write!(
            f,
            "producerId: {} producerEpoch: {} coordinatorEpoch: {} ",
            entry.producer_id, entry.producer_epoch, entry.coordinator_epoch
        )?;
        match entry.current_txn_first_offset {
            -1 => f.write_str("currentTxnFirstOffset: OptionalLong.empty ")?,
            offset => write!(f, "currentTxnFirstOffset: OptionalLong[{offset}] ")?,
        }
        write!(f, "lastTimestamp: {}", entry.timestamp)?;
        if entry.last_sequence >= 0 {
            let last = ProducedBatch {
                last_sequence: entry.last_sequence,
                offset_delta: entry.offset_delta,
                last_offset: entry.last_offset,
                timestamp: entry.timestamp,
            };
            write!(f, " {}", BatchWords(&last))?;
        }
        for batch in entry.earlier.iter().rev() {
            write!(f, "\n  before it: {}", BatchWords(batch))?;
        }
        Ok(())
    }
}

struct BatchWords<'a>(&'a ProducedBatch);

impl fmt::Display for BatchWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batch = self.0;
        write!(
            f,
            "firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
            batch.base_sequence(),
            batch.last_sequence,
            batch.last_offset,
            batch.offset_delta,
            batch.timestamp
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first line is what `kafka-dump-log.sh` prints for the same entry.
    #[test]
    fn a_producer_is_printed_as_kafkas_tool_prints_it_with_the_earlier_batches_below() {
        let earlier = ProducedBatch {
            last_sequence: 1,
            offset_delta: 1,
            last_offset: 4,
            timestamp: 900,
        };
        let mut entry = ProducerEntry {
            producer_id: 7,
            producer_epoch: 0,
            last_sequence: 3,
            last_offset: 6,
            offset_delta: 1,
            timestamp: 1_000,
            coordinator_epoch: -1,
            current_txn_first_offset: -1,
            active_ms: None,
            earlier: [earlier].into_iter().collect(),
        };
        let line = "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty \
                    lastTimestamp: 1000 firstSequence: 2 lastSequence: 3 lastOffset: 6 offsetDelta: 1 timestamp: 1000";
        let before = "\n  before it: firstSequence: 0 lastSequence: 1 lastOffset: 4 offsetDelta: 1 timestamp: 900";
        let printed = ProducerLines(&entry).to_string();
        assert_eq!(printed, format!("{line}{before}"));
        entry.last_sequence = -1;
        entry.earlier.clear();
        let printed = ProducerLines(&entry).to_string();
        assert!(printed.ends_with("lastTimestamp: 1000"), "{printed}");
    }
}
