//! Which partition a record goes to, as Java's producer chooses by default: by the key's hash, and without a key one
//! partition for a whole batch (KIP-480).

use crate::client::murmur2;

/// Chooses partitions of one topic.
#[derive(Debug)]
pub(super) struct Partitioner {
    /// Partitions of the topic.
    count: i32,
    /// Those with a leader, for records without a key.
    available: Vec<i32>,
    sticky: i32,
}

impl Partitioner {
    /// `available` are the partitions that have a leader; `random` chooses the first of them.
    pub fn new(count: i32, available: Vec<i32>, random: u64) -> Partitioner {
        let mut partitioner = Partitioner {
            count,
            available,
            sticky: 0,
        };
        partitioner.batch_is_full(random);
        partitioner
    }

    /// Whether the topic has this partition.
    pub fn has(&self, partition: i32) -> bool {
        (0..self.count).contains(&partition)
    }

    pub fn choose(&self, key: Option<&[u8]>) -> i32 {
        match key {
            Some(key) => (murmur2(key) & 0x7fff_ffff) as i32 % self.count,
            None => self.sticky,
        }
    }

    /// Records without a key go elsewhere from now on.
    pub fn batch_is_full(&mut self, random: u64) {
        let others: Vec<i32> = self
            .available
            .iter()
            .copied()
            .filter(|p| *p != self.sticky)
            .collect();
        let among = if others.is_empty() {
            &self.available
        } else {
            &others
        };
        if let Some(chosen) = among.get(random as usize % among.len().max(1)) {
            self.sticky = *chosen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_javas() {
        // The vectors of Kafka's own test.
        let cases: [(&str, i32); 6] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ];
        for (text, expected) in cases {
            assert_eq!(murmur2(text.as_bytes()) as i32, expected, "{text}");
        }
    }

    #[test]
    fn a_key_always_goes_to_the_same_partition_and_no_key_to_one_until_the_batch_is_full() {
        let mut partitioner = Partitioner::new(5, vec![1, 3], 0);
        let first = partitioner.choose(Some(b"foobar"));
        assert_eq!(first, ((-790_332_482i32) & 0x7fff_ffff) % 5);
        let sticky = partitioner.choose(None);
        assert_eq!(sticky, partitioner.choose(None));
        partitioner.batch_is_full(7);
        assert_ne!(sticky, partitioner.choose(None));
        assert!([1, 3].contains(&partitioner.choose(None)));
        assert_eq!(first, partitioner.choose(Some(b"foobar")));
        assert!(
            partitioner.has(0) && partitioner.has(4) && !partitioner.has(5) && !partitioner.has(-1)
        );
    }

    #[test]
    fn one_partition_is_always_chosen() {
        let mut partitioner = Partitioner::new(1, vec![0], 9);
        partitioner.batch_is_full(3);
        assert_eq!(
            (partitioner.choose(None), partitioner.choose(Some(b""))),
            (0, 0)
        );
    }
}
