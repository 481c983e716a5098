//! From the hash of a key to the last offset that has it, in fixed memory.
//!
//! Open addressing over [`ENTRY_BYTES`] an entry: 16 of the hash, 8 of the offset. The hash has
//! 128 bits and is keyed by two random numbers of the round, so that nobody can make up two
//! keys of which one would supersede the other. All memory is taken at the start.
//!
//! What it is not: it holds no keys.

use std::hash::{DefaultHasher, Hasher};

/// The map.
pub(super) struct OffsetMap {
    /// Both halves of the hash, and the offset and 1; all zeros where there is no entry.
    slots: Vec<[u64; 3]>,
    used: usize,
    used_max: usize,
    seeds: [u64; 2],
}

/// The map takes no more keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl OffsetMap {
    /// A map of at most `bytes_max` bytes that need not hold more than `keys_max` keys.
    pub(super) fn new(bytes_max: usize, keys_max: u64, seeds: [u64; 2]) -> OffsetMap {
        let wanted = keys_max.saturating_mul(LOAD_DEN) / LOAD_NUM + 2;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let slots = wanted.min(bytes_max / ENTRY_BYTES);
        OffsetMap {
            used_max: (slots as u64 * LOAD_NUM / LOAD_DEN) as usize,
            slots: vec![[0; 3]; slots],
            used: 0,
            seeds,
        }
    }

    /// Notes that `key` is at `offset`. The greatest offset of a key counts.
    pub(super) fn put(&mut self, key: &[u8], offset: i64) -> Result<(), Full> {
        let hash = self.hash(key);
        let Some(at) = self.find(hash) else {
            return Err(Full);
        };
        let slot = &mut self.slots[at];
        if slot[2] == 0 {
            if self.used == self.used_max {
                return Err(Full);
            }
            self.used += 1;
            *slot = [hash[0], hash[1], 0];
        }
        slot[2] = slot[2].max(offset as u64 + 1);
        Ok(())
    }

    /// The last offset of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Option<i64> {
        let slot = self.slots[self.find(self.hash(key))?];
        (slot[2] > 0).then(|| slot[2] as i64 - 1)
    }

    /// The memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * ENTRY_BYTES
    }

    /// The slot that has this hash, or the free one where it belongs.
    fn find(&self, hash: [u64; 2]) -> Option<usize> {
        let count = self.slots.len();
        if count == 0 {
            return None;
        }
        let start = ((u128::from(hash[0]) * count as u128) >> 64) as usize;
        (0..count).map(|n| (start + n) % count).find(|at| {
            let slot = &self.slots[*at];
            slot[2] == 0 || slot[..2] == hash
        })
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        self.seeds.map(|seed| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(seed);
            hasher.write(key);
            hasher.finish()
        })
    }
}

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 24;

/// How full it may be, as Kafka's `log.cleaner.io.buffer.load.factor` has it by default.
const LOAD_NUM: u64 = 9;
const LOAD_DEN: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn it_is_full_at_nine_tenths_of_its_memory() {
        let mut map = OffsetMap::new(100 * ENTRY_BYTES + 5, u64::MAX, [1, 2]);
        assert_eq!(map.bytes(), 100 * ENTRY_BYTES);
        for n in 0..90u32 {
            map.put(&n.to_be_bytes(), i64::from(n)).unwrap();
        }
        assert_eq!(map.put(b"one more", 90), Err(Full));
        map.put(&7u32.to_be_bytes(), 91).unwrap();
        assert_eq!(
            map.get(&7u32.to_be_bytes()),
            Some(91),
            "a key that is there"
        );
        assert_eq!(map.get(b"one more"), None);
    }

    #[test]
    fn it_takes_no_more_memory_than_its_keys_need() {
        let map = OffsetMap::new(1 << 30, 900, [1, 2]);
        assert!(map.bytes() < 1_010 * ENTRY_BYTES, "{}", map.bytes());
        let mut none = OffsetMap::new(ENTRY_BYTES - 1, 900, [1, 2]);
        assert_eq!((none.bytes(), none.put(b"k", 0)), (0, Err(Full)));
        assert_eq!(none.get(b"k"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_says_what_a_map_of_keys_says(
            puts in prop::collection::vec((0u8..60, 0i64..1_000), 0..200),
            seeds in any::<[u64; 2]>(),
        ) {
            let mut map = OffsetMap::new(60 * ENTRY_BYTES, u64::MAX, seeds);
            let mut model: HashMap<u8, i64> = HashMap::new();
            for (key, offset) in puts {
                let is_full = model.len() == 54 && !model.contains_key(&key);
                let put = map.put(&[key], offset);
                prop_assert_eq!(put.is_err(), is_full);
                if !is_full {
                    let last = model.entry(key).or_insert(offset);
                    *last = (*last).max(offset);
                }
            }
            for key in 0..60 {
                prop_assert_eq!(map.get(&[key]), model.get(&key).copied());
            }
        }
    }
}
