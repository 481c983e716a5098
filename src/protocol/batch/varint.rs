//! Zigzag varints, as records have them.

/// Takes a varint of at most 32 bits off the front; none if it is cut off or too long.
pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<i32> {
    // A single byte is by far the most common.
    if let [byte @ 0..=0x7f, rest @ ..] = bytes {
        let raw = u32::from(*byte);
        *bytes = rest;
        return Some((raw >> 1) as i32 ^ -((raw & 1) as i32));
    }
    let raw = take_uvarlong(bytes, 32)? as u32;
    Some((raw >> 1) as i32 ^ -((raw & 1) as i32))
}

/// Takes a varint of at most 64 bits off the front; none if it is cut off or too long.
pub(super) fn take_varlong(bytes: &mut &[u8]) -> Option<i64> {
    let raw = take_uvarlong(bytes, 64)?;
    Some((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

fn take_uvarlong(bytes: &mut &[u8], bits: u32) -> Option<u64> {
    let mut value = 0u64;
    let mut shift = 0;
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let low = u64::from(byte & 0x7f);
        if shift + 7 > bits && low >> (bits - shift) != 0 {
            return None;
        }
        value |= low << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
        if shift >= bits {
            return None;
        }
    }
}

/// Appends a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_uvarlong(out, u64::from(((value << 1) ^ (value >> 31)) as u32));
}

/// Appends a varint of up to 64 bits.
pub(super) fn put_varlong(out: &mut Vec<u8>, value: i64) {
    put_uvarlong(out, ((value << 1) ^ (value >> 63)) as u64);
}

fn put_uvarlong(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive() {
        for value in [0, 1, -1, 63, 64, -64, -65, 300, i32::MAX, i32::MIN] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut rest = out.as_slice();
            assert_eq!(take_varint(&mut rest), Some(value));
            assert!(rest.is_empty());
        }
        for value in [0, -1, 1 << 40, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_varlong(&mut out, value);
            let mut rest = out.as_slice();
            assert_eq!(take_varlong(&mut rest), Some(value));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn too_many_bits_or_too_few_bytes_are_refused() {
        assert_eq!(take_varint(&mut &[0x80, 0x80, 0x80, 0x80, 0x10][..]), None);
        assert_eq!(
            take_varint(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0][..]),
            None
        );
        assert_eq!(take_varint(&mut &[0x80][..]), None);
        assert_eq!(take_varint(&mut &[][..]), None);
        assert_eq!(take_varlong(&mut &[0xff; 11][..]), None);
        let mut ten = [0xff; 10];
        ten[9] = 2;
        assert_eq!(take_varlong(&mut &ten[..]), None);
        ten[9] = 1;
        assert_eq!(take_varlong(&mut &ten[..]), Some(i64::MIN));
    }
}
