//! Values of records that compress as data does: a stated part of each is random.

/// Of a value that is made by itself.
const RECORD_BYTES: usize = 1024;
/// Bytes that are either random or text.
const CELL_BYTES: usize = 16;

/// splitmix64: the same bytes in each run.
pub struct Random(pub u64);

impl Random {
    /// A value of 1 KiB, as [`Random::fill`] makes it.
    pub fn value(&mut self, random_part: f64) -> Vec<u8> {
        let mut value = vec![0; RECORD_BYTES];
        self.fill(&mut value, random_part);
        value
    }

    /// Fills a value: cells of random bytes among cells of text. The last one may be cut off.
    pub fn fill(&mut self, value: &mut [u8], random_part: f64) {
        const TEXT: &[u8; CELL_BYTES] = b"{\"field\":\"value\"";
        for cell in value.chunks_mut(CELL_BYTES) {
            if self.unit() < random_part {
                let mut bytes = [0; CELL_BYTES];
                bytes[..8].copy_from_slice(&self.next().to_be_bytes());
                bytes[8..].copy_from_slice(&self.next().to_be_bytes());
                cell.copy_from_slice(&bytes[..cell.len()]);
            } else {
                cell.copy_from_slice(&TEXT[..cell.len()]);
            }
        }
    }

    /// From 0 up to, not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
