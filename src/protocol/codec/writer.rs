//! [`Writer`]: the bytes of one frame, with record bytes pushed as slices.
//!
//! All that is small goes into one growing buffer; record slices are remembered
//! with the place where they belong, and [`Writer::finish`] cuts the buffer there.
//! So a frame costs one buffer, its length is known at any time, and it can be
//! written into the first four bytes at the end.
//!
//! What it is not: it checks no version and no null; the message's encode does.

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::error::EncodeError;
use super::records::Records;

/// Writes one frame.
#[derive(Debug, Default)]
pub struct Writer {
    small: BytesMut,
    /// Slices, each with the length of `small` when it was pushed; ascending.
    slices: SmallVec<[(usize, Bytes); 4]>,
    sliced_bytes: usize,
}

impl Writer {
    /// A writer whose buffer starts out with `bytes` of room.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            small: BytesMut::with_capacity(bytes),
            ..Self::default()
        }
    }

    /// A writer with the buffer of a usual small answer.
    pub fn new() -> Self {
        Self::with_capacity(256)
    }

    /// Bytes written so far, slices included.
    pub fn len(&self) -> usize {
        self.small.len() + self.sliced_bytes
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, in order: pieces of the small buffer and the slices between them.
    pub fn finish(self) -> Vec<Bytes> {
        let mut small = self.small.freeze();
        let mut chunks = Vec::with_capacity(self.slices.len() * 2 + 1);
        let mut cut = 0;
        for (place, slice) in self.slices {
            if place > cut {
                chunks.push(small.split_to(place - cut));
                cut = place;
            }
            chunks.push(slice);
        }
        if !small.is_empty() {
            chunks.push(small);
        }
        chunks
    }

    /// Overwrites the four bytes at `place`, counted in small bytes: only sound before the
    /// first slice, which is where a frame's length is.
    pub(in crate::protocol) fn patch_i32(&mut self, place: usize, value: i32) {
        self.small[place..place + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// One byte, 0 or 1.
    pub fn put_bool(&mut self, value: bool) {
        self.small.put_u8(u8::from(value));
    }

    /// A big-endian integer.
    pub fn put_i8(&mut self, value: i8) {
        self.small.put_i8(value);
    }

    /// A big-endian integer.
    pub fn put_i16(&mut self, value: i16) {
        self.small.put_i16(value);
    }

    /// A big-endian integer.
    pub fn put_u16(&mut self, value: u16) {
        self.small.put_u16(value);
    }

    /// A big-endian integer.
    pub fn put_i32(&mut self, value: i32) {
        self.small.put_i32(value);
    }

    /// A big-endian integer.
    pub fn put_u32(&mut self, value: u32) {
        self.small.put_u32(value);
    }

    /// A big-endian integer.
    pub fn put_i64(&mut self, value: i64) {
        self.small.put_i64(value);
    }

    /// A big-endian IEEE 754 number.
    pub fn put_f64(&mut self, value: f64) {
        self.small.put_f64(value);
    }

    /// Sixteen bytes, the most significant first.
    pub fn put_uuid(&mut self, value: uuid::Uuid) {
        self.small.put_slice(value.as_bytes());
    }

    /// An unsigned varint.
    pub fn put_uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.small.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.small.put_u8(value as u8);
    }

    /// Bytes, copied.
    pub fn put_slice(&mut self, bytes: &[u8]) {
        self.small.put_slice(bytes);
    }

    /// Record bytes, without a length; not copied.
    pub fn put_records(&mut self, records: &Records) {
        for slice in records.slices() {
            if !slice.is_empty() {
                self.sliced_bytes += slice.len();
                self.slices.push((self.small.len(), slice.clone()));
            }
        }
    }

    /// The length of a byte field, string or array: compact (length + 1, 0 is null) or i32.
    pub(super) fn put_length(
        &mut self,
        length: Option<usize>,
        flexible: bool,
    ) -> Result<(), EncodeError> {
        let max = i32::MAX as usize;
        match length {
            Some(length) if length > max => Err(too_long(length, max)),
            Some(length) if flexible => {
                self.put_uvarint(length as u32 + 1);
                Ok(())
            }
            Some(length) => {
                self.put_i32(length as i32);
                Ok(())
            }
            None if flexible => {
                self.put_uvarint(0);
                Ok(())
            }
            None => {
                self.put_i32(-1);
                Ok(())
            }
        }
    }

    /// The length of a string: compact or i16.
    pub(super) fn put_length_short(
        &mut self,
        length: Option<usize>,
        flexible: bool,
    ) -> Result<(), EncodeError> {
        let max = i16::MAX as usize;
        match length {
            // The longest string is the same in all versions, as it is in Kafka.
            Some(length) if length > max => Err(too_long(length, max)),
            length if flexible => self.put_length(length, true),
            Some(length) => {
                self.put_i16(length as i16);
                Ok(())
            }
            None => {
                self.put_i16(-1);
                Ok(())
            }
        }
    }

    /// A tagged field: its tag, its size, and what `value` writes.
    pub fn put_tag(
        &mut self,
        tag: u32,
        value: impl FnOnce(&mut Writer) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let mut inner = Writer::with_capacity(64);
        value(&mut inner)?;
        let max = i32::MAX as usize;
        if inner.len() > max {
            return Err(too_long(inner.len(), max));
        }
        self.put_uvarint(tag);
        self.put_uvarint(inner.len() as u32);
        let start = self.small.len();
        self.small.put_slice(&inner.small);
        self.sliced_bytes += inner.sliced_bytes;
        self.slices.extend(
            inner
                .slices
                .into_iter()
                .map(|(place, slice)| (start + place, slice)),
        );
        Ok(())
    }
}

#[cold]
fn too_long(length: usize, max: usize) -> EncodeError {
    EncodeError::TooLong {
        field: None,
        length,
        max,
    }
}
