//! Reads an answer in place, field by field.
//!
//! What it is not: it knows no message; that is `messages.rs`.

use anyhow::{Context, Result};

pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).context(CUT)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().context(CUT)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub fn uvarint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        anyhow::bail!("a varint of more than ten bytes")
    }

    /// A zigzag varint.
    pub fn varint(&mut self) -> Result<i64> {
        let raw = self.uvarint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// The count of a compact array, or the length of compact bytes; `None` if they are null.
    pub fn compact(&mut self) -> Result<Option<usize>> {
        let raw = self.uvarint()?;
        Ok(raw.checked_sub(1).map(|count| count as usize))
    }

    /// Compact bytes or text; `None` if null.
    pub fn compact_bytes(&mut self) -> Result<Option<&'a [u8]>> {
        match self.compact()? {
            Some(length) => self.take(length).map(Some),
            None => Ok(None),
        }
    }

    pub fn skip_tags(&mut self) -> Result<()> {
        for _ in 0..self.uvarint()? {
            self.uvarint()?;
            let length = self.uvarint()?;
            self.take(length as usize)?;
        }
        Ok(())
    }
}

const CUT: &str = "an answer of the broker is shorter than it says";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_is_an_error() {
        assert!(Cursor::new(&[0; 7]).i64().is_err());
        assert!(Cursor::new(&[0x80]).uvarint().is_err());
        assert!(Cursor::new(&[0xff; 11]).uvarint().is_err());
        // Ten bytes are announced, two follow.
        assert!(Cursor::new(&[11, 1, 2]).compact_bytes().is_err());
        // A tag that is longer than what is left.
        assert!(Cursor::new(&[1, 0, 9]).skip_tags().is_err());
    }

    #[test]
    fn varints_are_zigzag() {
        let read = |bytes: &[u8]| Cursor::new(bytes).varint().unwrap();
        assert_eq!(
            [read(&[0]), read(&[1]), read(&[2]), read(&[0xac, 2])],
            [0, -1, 1, 150]
        );
    }
}
