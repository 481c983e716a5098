//! Which data batches belong to aborted transactions, and which markers end nothing.
//!
//! A transaction's data of one producer stands before its marker, so one pass over the headers
//! of the log, in order, tells all: a marker that says *abort* decides the batches of its
//! producer since that producer's marker before. What is below the last stable offset is
//! decided. It is asked only of logs that have such batches at all.

use std::collections::HashMap;

/// What the pass found.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// First data batch of the producers' open transactions.
    open: HashMap<i64, i64>,
    /// By producer, in order: (first data offset, offset of the marker).
    aborted: HashMap<i64, Vec<(i64, i64)>>,
    /// How many there are of both.
    count: usize,
}

/// More producers or aborted transactions than a round keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMany;

impl Transactions {
    /// Takes in a data batch of a transaction.
    pub(super) fn data(&mut self, producer: i64, base_offset: i64) -> Result<(), TooMany> {
        if self.open.len() >= NOTED_MAX {
            return Err(TooMany);
        }
        self.open.entry(producer).or_insert(base_offset);
        Ok(())
    }

    /// Takes in a marker.
    pub(super) fn marker(
        &mut self,
        producer: i64,
        offset: i64,
        commits: bool,
    ) -> Result<(), TooMany> {
        let first = self.open.remove(&producer);
        if let Some(first) = first.filter(|_| !commits) {
            if self.count >= NOTED_MAX {
                return Err(TooMany);
            }
            self.count += 1;
            let aborted = self.aborted.entry(producer).or_default();
            aborted.push((first, offset));
        }
        Ok(())
    }

    /// Whether a data batch belongs to a transaction that was aborted.
    pub(super) fn is_aborted(&self, producer: i64, base_offset: i64) -> bool {
        let Some(aborted) = self.aborted.get(&producer) else {
            return false;
        };
        let at = aborted.partition_point(|(_, marker)| *marker < base_offset);
        aborted
            .get(at)
            .is_some_and(|(first, _)| *first <= base_offset)
    }
}

/// Transactions that are kept in memory at most, 16 bytes each and some.
const NOTED_MAX: usize = 1 << 20;

/// Whether the one record of a control batch is a marker that ends a transaction: `Some(true)`
/// for a commit. Its key is a version and a type, 16 bits each.
pub(super) fn marker_commits(key: &[u8]) -> Option<bool> {
    match key {
        [_, _, 0, 0, ..] => Some(false),
        [_, _, 0, 1, ..] => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_batch_is_aborted_if_its_producers_next_marker_says_so(
            log in prop::collection::vec((0i64..3, 0u8..4), 0..60)
        ) {
            // 0 and 1: data; 2: commit; 3: abort.
            let mut transactions = Transactions::default();
            for (offset, (producer, what)) in log.iter().enumerate() {
                match what {
                    2 | 3 => transactions.marker(*producer, offset as i64, *what == 2).unwrap(),
                    _ => transactions.data(*producer, offset as i64).unwrap(),
                }
            }
            for (offset, (producer, what)) in log.iter().enumerate() {
                if *what < 2 {
                    let next = log[offset..].iter().find(|(p, w)| p == producer && *w >= 2);
                    let expected = next.is_some_and(|(_, w)| *w == 3);
                    prop_assert_eq!(transactions.is_aborted(*producer, offset as i64), expected);
                }
            }
        }
    }
}
