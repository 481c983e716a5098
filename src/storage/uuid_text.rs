//! Kafka's text form of a uuid: base64url of its 16 bytes, without padding.

use crate::runtime::Rt;
use uuid::Uuid;

/// The 22 characters of a uuid.
pub fn encode(uuid: Uuid) -> String {
    let bits = uuid.as_u128();
    (0..22)
        .map(|i| {
            // The last character holds the last 2 bits, and 4 zeros.
            let six = match i {
                21 => (bits << 4) & 63,
                _ => (bits >> (122 - 6 * i)) & 63,
            };
            ALPHABET[six as usize] as char
        })
        .collect()
}

/// Reads the text form; `None` if it is anything else.
pub fn decode(text: &str) -> Option<Uuid> {
    if text.len() != 22 {
        return None;
    }
    let mut bits: u128 = 0;
    for (i, c) in text.bytes().enumerate() {
        let six = ALPHABET.iter().position(|a| *a == c)? as u128;
        match i {
            21 if six & 15 != 0 => return None,
            21 => bits = bits << 2 | six >> 4,
            _ => bits = bits << 6 | six,
        }
    }
    Some(Uuid::from_u128(bits))
}

/// A random (version 4) uuid whose text does not begin with `-`, so that it can be
/// an argument on a command line, as Kafka's are.
pub fn random(rt: &Rt) -> Uuid {
    loop {
        let bits = u128::from(rt.random_u64()) << 64 | u128::from(rt.random_u64());
        let uuid = uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid();
        if !encode(uuid).starts_with('-') {
            return uuid;
        }
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_base64url() {
        assert_eq!(encode(Uuid::from_u128(1)), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(encode(Uuid::from_u128(u128::MAX)), "_____________________w");
        for bits in [
            0,
            1,
            2,
            u128::MAX,
            0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210,
        ] {
            let uuid = Uuid::from_u128(bits);
            assert_eq!(decode(&encode(uuid)), Some(uuid));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "AAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAAA+",
            "AAAAAAAAAAAAAAAAAAAAAB",
        ] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
