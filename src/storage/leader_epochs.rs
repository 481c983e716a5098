//! The leader epochs of one log: which epoch wrote from which offset on (KIP-101,
//! KIP-279), in memory and as Kafka's `leader-epoch-checkpoint` file.
//!
//! Epochs and start offsets both increase strictly; every change keeps that. The
//! file holds nothing that the batches do not (each carries its epoch), so a file
//! that is missing or malformed is rebuilt from them (`epochs_of_batches.rs`).

use super::checkpoint_file::{encode_lines, parse_lines, CheckpointFileError};

/// The file's name in a partition's directory.
pub const LEADER_EPOCH_FILE: &str = "leader-epoch-checkpoint";

/// The first offset that a leader epoch wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEntry {
    /// The leader epoch.
    pub epoch: i32,
    /// Its first offset.
    pub start_offset: i64,
}

/// The epochs of one log, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochs {
    /// No epochs.
    pub fn new() -> LeaderEpochs {
        LeaderEpochs::default()
    }

    /// Records that `epoch` writes from `start_offset` on. Entries that contradict it
    /// (a later epoch, or the same start) go. True if anything changed; a negative
    /// epoch (a batch without one) changes nothing.
    pub fn assign(&mut self, epoch: i32, start_offset: i64) -> bool {
        let needed = match self.entries.last() {
            _ if epoch < 0 => false,
            Some(last) => epoch != last.epoch || start_offset < last.start_offset,
            None => true,
        };
        if needed {
            let keep = self
                .entries
                .partition_point(|e| e.epoch < epoch && e.start_offset < start_offset);
            self.entries.truncate(keep);
            self.entries.push(EpochEntry {
                epoch,
                start_offset,
            });
        }
        needed
    }

    /// The latest epoch.
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// All entries, oldest first.
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The epoch that wrote `offset`.
    pub fn epoch_for_offset(&self, offset: i64) -> Option<i32> {
        let after = self.entries.partition_point(|e| e.start_offset <= offset);
        after.checked_sub(1).map(|i| self.entries[i].epoch)
    }

    /// Where `epoch` ended, as OffsetForLeaderEpoch answers it: the greatest epoch at
    /// or below it, and the start of the next one (`log_end_offset` for the latest).
    /// `None` (undefined) for an epoch above the latest, or without any epochs. An
    /// epoch below the oldest ends where the oldest starts.
    pub fn end_offset_for(&self, epoch: i32, log_end_offset: i64) -> Option<EpochEnd> {
        let latest = self.latest()?;
        if epoch < 0 || epoch > latest.epoch {
            return None;
        }
        let higher = self.entries.partition_point(|e| e.epoch <= epoch);
        Some(EpochEnd {
            epoch: match higher.checked_sub(1) {
                Some(i) => self.entries[i].epoch,
                None => epoch,
            },
            end_offset: match self.entries.get(higher) {
                Some(next) => next.start_offset,
                None => log_end_offset,
            },
        })
    }

    /// The log now ends at `end_offset`: epochs that start there or later go. True if
    /// anything changed.
    pub fn truncate_from_end(&mut self, end_offset: i64) -> bool {
        let keep = self
            .entries
            .partition_point(|e| e.start_offset < end_offset);
        let changed = keep < self.entries.len();
        self.entries.truncate(keep);
        changed
    }

    /// The log now starts at `start_offset`: epochs that ended before go, and the one
    /// that holds it starts there. True if anything changed.
    pub fn truncate_from_start(&mut self, start_offset: i64) -> bool {
        let after = self
            .entries
            .partition_point(|e| e.start_offset <= start_offset);
        let Some(holder) = after.checked_sub(1) else {
            return false;
        };
        let changed = holder > 0 || self.entries[0].start_offset != start_offset;
        self.entries.drain(..holder);
        self.entries[0].start_offset = start_offset;
        changed
    }

    /// The file's content.
    pub fn encode(&self) -> Vec<u8> {
        encode_lines(
            self.entries
                .iter()
                .map(|e| format!("{} {}", e.epoch, e.start_offset)),
        )
    }

    /// Reads a file's content.
    pub fn parse(bytes: &[u8]) -> Result<LeaderEpochs, CheckpointFileError> {
        let mut entries: Vec<EpochEntry> = Vec::new();
        for line in parse_lines::<2>(bytes)? {
            let [epoch, start_offset] = line.fields;
            let entry = EpochEntry {
                epoch: line.non_negative(epoch)?,
                start_offset: line.non_negative(start_offset)?,
            };
            if entries.last().is_some_and(|last| {
                entry.epoch <= last.epoch || entry.start_offset <= last.start_offset
            }) {
                return Err(line.malformed());
            }
            entries.push(entry);
        }
        Ok(LeaderEpochs { entries })
    }
}

/// An answer of [`LeaderEpochs::end_offset_for`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    /// The greatest epoch at or below the one asked for.
    pub epoch: i32,
    /// The first offset that it did not write.
    pub end_offset: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::new();
        for (epoch, start) in entries {
            assert!(epochs.assign(*epoch, *start));
        }
        epochs
    }

    #[test]
    fn assignment_keeps_both_columns_increasing() {
        let mut e = epochs(&[(0, 0), (2, 10), (3, 20)]);
        assert!(!e.assign(3, 25), "the same epoch goes on");
        assert!(!e.assign(-1, 30), "no epoch");
        assert!(e.assign(4, 20), "epoch 3 wrote nothing");
        assert_eq!(e, epochs(&[(0, 0), (2, 10), (4, 20)]));
        assert!(e.assign(2, 5), "a lower epoch drops what contradicts it");
        assert_eq!(e, epochs(&[(0, 0), (2, 5)]));
    }

    #[test]
    fn the_end_of_an_epoch_is_the_start_of_the_next() {
        let e = epochs(&[(1, 5), (3, 10), (4, 20)]);
        let end = |epoch| e.end_offset_for(epoch, 99).map(|x| (x.epoch, x.end_offset));
        assert_eq!(end(4), Some((4, 99)));
        assert_eq!(end(5), None);
        assert_eq!(end(3), Some((3, 20)));
        assert_eq!(end(2), Some((1, 10)));
        assert_eq!(end(0), Some((0, 5)), "below the oldest");
        assert_eq!(end(-1), None);
        assert_eq!(LeaderEpochs::new().end_offset_for(0, 0), None);
    }

    #[test]
    fn truncation_from_both_ends() {
        let mut e = epochs(&[(1, 5), (3, 10), (4, 20)]);
        assert!(!e.truncate_from_end(21));
        assert!(e.truncate_from_end(20));
        assert_eq!(e, epochs(&[(1, 5), (3, 10)]));
        assert!(!e.truncate_from_start(4));
        assert!(e.truncate_from_start(12));
        assert_eq!(e, epochs(&[(3, 12)]));
        assert_eq!(e.epoch_for_offset(11), None);
        assert_eq!(e.epoch_for_offset(12), Some(3));
    }

    #[test]
    fn the_file_is_kafkas_and_damage_is_refused() {
        let e = epochs(&[(1, 5), (3, 10)]);
        assert_eq!(e.encode(), b"0\n2\n1 5\n3 10\n");
        assert_eq!(LeaderEpochs::parse(&e.encode()), Ok(e));
        for bad in [
            "",
            "0\n1\n",
            "0\n1\n1\n",
            "0\n2\n3 10\n1 20\n",
            "0\n2\n1 10\n2 10\n",
            "0\n1\n-1 3\n",
        ] {
            assert!(LeaderEpochs::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
