//! [`Reader`]: one frame, read once from front to back, within bounds.
//!
//! Safe because every read goes through [`Reader::take`], which checks the bytes
//! that remain; counts are checked by [`Reader::reserve`] before anything is
//! allocated; memory is charged to a budget that is a multiple of the frame's
//! length. Slices share the frame's allocation.
//!
//! What it is not: it does not copy, and so whatever outlives the request should
//! be copied out of the frame by its keeper (see [`Str::detached`](super::Str::detached)).

use bytes::Bytes;

use super::error::{DecodeError, DecodeErrorKind};

/// A frame may take this many times its own length in memory when decoded...
pub const BUDGET_FACTOR: usize = 16;
/// ... and this much besides.
pub const BUDGET_BASE_BYTES: usize = 64 * 1024;
/// How deep structs may be nested.
pub const DEPTH_MAX: u8 = 16;

/// Reads one frame.
#[derive(Debug)]
pub struct Reader {
    frame: Bytes,
    position: usize,
    /// Where reading stops: the frame's end, or the end of the tagged field inside.
    end: usize,
    /// Bytes of memory that may still be reserved.
    budget: usize,
    depth: u8,
}

impl Reader {
    /// A reader at the start of `frame`, with the usual budget.
    pub fn new(frame: Bytes) -> Self {
        let budget = Reader::decoded_bytes_max(frame.len());
        Self {
            end: frame.len(),
            frame,
            position: 0,
            budget,
            depth: 0,
        }
    }

    /// The most memory that a frame of `frame_bytes` may take when decoded, in bytes.
    pub fn decoded_bytes_max(frame_bytes: usize) -> usize {
        frame_bytes
            .saturating_mul(BUDGET_FACTOR)
            .saturating_add(BUDGET_BASE_BYTES)
    }

    /// The memory that what was decoded so far takes, in bytes.
    pub fn decoded_bytes(&self) -> usize {
        Reader::decoded_bytes_max(self.frame.len()).saturating_sub(self.budget)
    }

    /// Bytes that have not been read.
    pub fn remaining(&self) -> usize {
        self.end - self.position
    }

    /// Bytes from the frame's start to the next byte.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Fails if bytes are left.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(self.error(DecodeErrorKind::Trailing(left))),
        }
    }

    /// An error at the current position.
    #[cold]
    pub fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        self.error_at(self.position, kind)
    }

    #[cold]
    fn error_at(&self, position: usize, kind: DecodeErrorKind) -> DecodeError {
        DecodeError {
            kind,
            position,
            field: None,
        }
    }

    /// The next `n` bytes.
    #[inline]
    fn take(&mut self, n: usize) -> Result<&[u8], DecodeError> {
        let remaining = self.remaining();
        if n > remaining {
            return Err(self.error(DecodeErrorKind::Truncated {
                needed: n,
                remaining,
            }));
        }
        let start = self.position;
        self.position += n;
        Ok(&self.frame[start..start + n])
    }

    #[inline]
    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// The next `n` bytes as a slice that shares the frame's memory.
    pub fn read_slice(&mut self, n: usize) -> Result<Bytes, DecodeError> {
        let start = self.position;
        self.take(n)?;
        Ok(self.frame.slice(start..start + n))
    }

    /// Passes over `n` bytes.
    pub fn skip(&mut self, n: usize) -> Result<(), DecodeError> {
        self.take(n).map(|_| ())
    }

    /// One byte; anything but 0 is true.
    pub fn read_bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.take_array::<1>()?[0] != 0)
    }

    /// A big-endian integer.
    pub fn read_i8(&mut self) -> Result<i8, DecodeError> {
        Ok(i8::from_be_bytes(self.take_array()?))
    }

    /// A big-endian integer.
    #[inline]
    pub fn read_i16(&mut self) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.take_array()?))
    }

    /// A big-endian integer.
    pub fn read_u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.take_array()?))
    }

    /// A big-endian integer.
    #[inline]
    pub fn read_i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.take_array()?))
    }

    /// A big-endian integer.
    pub fn read_u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.take_array()?))
    }

    /// A big-endian integer.
    #[inline]
    pub fn read_i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.take_array()?))
    }

    /// A big-endian IEEE 754 number.
    pub fn read_f64(&mut self) -> Result<f64, DecodeError> {
        Ok(f64::from_be_bytes(self.take_array()?))
    }

    /// Sixteen bytes, the most significant first.
    pub fn read_uuid(&mut self) -> Result<uuid::Uuid, DecodeError> {
        Ok(uuid::Uuid::from_bytes(self.take_array()?))
    }

    /// An unsigned varint of at most 32 bits.
    #[inline]
    pub fn read_uvarint(&mut self) -> Result<u32, DecodeError> {
        let start = self.position;
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let byte = self.take_array::<1>()?[0];
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.error_at(start, DecodeErrorKind::VarintOverflow))
    }

    /// The length of a byte field or string: compact (length + 1, 0 is null) or i32.
    pub(super) fn read_length(&mut self, flexible: bool) -> Result<Option<usize>, DecodeError> {
        if flexible {
            let raw = self.read_uvarint()?;
            return Ok(raw.checked_sub(1).map(|length| length as usize));
        }
        let start = self.position;
        let raw = self.read_i32()?;
        self.length_from(start, i64::from(raw))
    }

    /// The length of a string that is not compact: i16.
    pub(super) fn read_length_short(&mut self) -> Result<Option<usize>, DecodeError> {
        let start = self.position;
        let raw = self.read_i16()?;
        self.length_from(start, i64::from(raw))
    }

    fn length_from(&self, start: usize, raw: i64) -> Result<Option<usize>, DecodeError> {
        match usize::try_from(raw) {
            Ok(length) => Ok(Some(length)),
            Err(_) if raw == -1 => Ok(None),
            Err(_) => Err(self.error_at(start, DecodeErrorKind::NegativeLength(raw))),
        }
    }

    /// Room for `count` elements of `T` that take at least `size_min` bytes each on
    /// the wire: checked against the bytes that remain, then charged, then reserved.
    pub(super) fn reserve<T>(
        &mut self,
        count: usize,
        size_min: usize,
    ) -> Result<Vec<T>, DecodeError> {
        let size_min = size_min.max(1);
        let remaining = self.remaining();
        if count > remaining / size_min {
            return Err(self.error(DecodeErrorKind::CountTooLarge {
                count,
                size_min,
                remaining,
            }));
        }
        self.charge(count.saturating_mul(std::mem::size_of::<T>()))?;
        Ok(Vec::with_capacity(count))
    }

    /// Takes `bytes` of memory off the frame's budget.
    pub fn charge(&mut self, bytes: usize) -> Result<(), DecodeError> {
        match self.budget.checked_sub(bytes) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(self.error(DecodeErrorKind::OverBudget {
                needed: bytes,
                left: self.budget,
            })),
        }
    }

    /// Steps into a struct.
    pub fn enter(&mut self) -> Result<(), DecodeError> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(DecodeErrorKind::TooDeep { max: DEPTH_MAX }));
        }
        self.depth += 1;
        Ok(())
    }

    /// Steps out of a struct.
    pub fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Reads the tagged fields of a struct (KIP-482). `known` reads the value of a
    /// tag that it knows and answers true; any other is passed over.
    pub fn read_tags(
        &mut self,
        mut known: impl FnMut(&mut Self, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        for _ in 0..self.read_uvarint()? {
            let tag = self.read_uvarint()?;
            let claimed = self.read_uvarint()? as usize;
            let remaining = self.remaining();
            if claimed > remaining {
                return Err(self.error(DecodeErrorKind::Truncated {
                    needed: claimed,
                    remaining,
                }));
            }
            let start = self.position;
            let outer_end = std::mem::replace(&mut self.end, start + claimed);
            if known(self, tag)? && self.position != self.end {
                let used = self.position - start;
                return Err(self.error(DecodeErrorKind::TagSize { tag, claimed, used }));
            }
            self.position = self.end;
            self.end = outer_end;
        }
        Ok(())
    }
}
