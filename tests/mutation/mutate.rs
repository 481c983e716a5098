//! Seeded damage: bits, lengths, cuts, splices.

/// SplitMix64: small, and good enough to choose damage.
pub struct Rng(u64);

impl Rng {
    /// One stream for each seed and index.
    pub fn new(seed: u64, index: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ index);
        rng.word();
        rng
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if `end` is.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 {
            0
        } else {
            (self.word() % end as u64) as usize
        }
    }
}

/// `frame`, damaged once to three times, with pieces of `other`.
pub fn damaged(frame: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    for _ in 0..=rng.below(3) {
        match rng.below(7) {
            0 => flip(&mut bytes, rng),
            1 => bytes.truncate(rng.below(bytes.len() + 1)),
            2 | 3 => rewrite_number(&mut bytes, rng),
            4 => splice(&mut bytes, other, rng),
            5 => {
                let same = bytes.clone();
                splice(&mut bytes, &same, rng);
            }
            _ => {
                let byte = rng.word() as u8;
                bytes.resize(bytes.len() + rng.below(20), byte);
            }
        }
    }
    bytes
}

fn flip(bytes: &mut [u8], rng: &mut Rng) {
    let place = rng.below(bytes.len());
    if let Some(byte) = bytes.get_mut(place) {
        *byte ^= 1 << rng.below(8);
    }
}

/// Overwrites what may be a length or a count, of any width, with one that tells.
fn rewrite_number(bytes: &mut [u8], rng: &mut Rng) {
    let place = rng.below(bytes.len());
    let remaining = (bytes.len() - place) as i32;
    let number = [
        -1,
        -2,
        0,
        1,
        127,
        128,
        remaining - 4,
        remaining,
        remaining + 1,
        remaining * 4,
        0x7fff,
        0x00ff_ffff,
        i32::MAX,
        i32::MIN,
    ][rng.below(14)];
    let encoded: Vec<u8> = match rng.below(4) {
        0 => number.to_be_bytes().to_vec(),
        1 => (number as i16).to_be_bytes().to_vec(),
        2 => uvarint(number as u32),
        _ => uvarint((number << 1 ^ number >> 31) as u32),
    };
    for (byte, new) in bytes[place..].iter_mut().zip(encoded) {
        *byte = new;
    }
}

/// Puts a piece of `other` in, over or instead of what is there.
fn splice(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let start = rng.below(other.len() + 1);
    let end = start + rng.below(other.len() - start + 1).min(200);
    let from = rng.below(bytes.len() + 1);
    let to = from + rng.below(bytes.len() - from + 1).min(200);
    bytes.splice(from..to, other[start..end].iter().copied());
}

fn uvarint(mut value: u32) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}
