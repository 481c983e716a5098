//! A record's format, and the records of a batch read in place.
//!
//! Safe because each record is first cut out by its own checked length and then read
//! within it; nothing is reserved. The format is written down once, for any
//! [`Fields`]: bytes in memory here, decompressed pieces in `scan.rs`.
//!
//! What it is not: it decompresses nothing; give it decompressed bytes.

use super::varint::{take_varint, take_varlong};

/// One record; its slices point into the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset, less the batch's base offset.
    pub offset_delta: i32,
    /// Timestamp, less the batch's base timestamp, ms; see [`super::BatchHeader::timestamp`].
    pub timestamp_delta: i64,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null: a tombstone.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: Headers<'a>,
}

/// The headers of a record: an iterator over what is already checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    count: usize,
}

/// One header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The key; UTF-8 by convention, and not checked.
    pub key: &'a [u8],
    /// The value, or null.
    pub value: Option<&'a [u8]>,
}

/// A record that is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("record {index} of the batch: {kind}")]
pub struct RecordError {
    /// Which record, from 0.
    pub index: usize,
    /// What is wrong with it.
    pub kind: RecordErrorKind,
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordErrorKind {
    /// A varint that is cut off or too long.
    #[error("the {0} is not a varint")]
    Varint(&'static str),
    /// A length that is negative, or larger than what remains.
    #[error("the {what} has a length of {length} where {remaining} bytes remain")]
    Length {
        /// Of what.
        what: &'static str,
        /// The length that is claimed.
        length: i32,
        /// Bytes that remain.
        remaining: usize,
    },
    /// Bytes after the last header.
    #[error("{0} bytes follow the last header")]
    TrailingInRecord(usize),
    /// Fewer records than the batch claims.
    #[error("the bytes end before it")]
    Missing,
    /// Fewer bytes than the record claims.
    #[error("the bytes end inside it")]
    CutOff,
    /// Bytes after the last record.
    #[error("bytes follow the last record")]
    Trailing,
    /// An offset that is not the next one.
    #[error("its offset delta is {0}, not its place in the batch")]
    OffsetDelta(i32),
}

/// Iterates over the (decompressed) records of a batch: exactly as many as it claims,
/// with nothing after the last. Ends after the first error.
#[derive(Debug, Clone)]
pub struct RecordIter<'a> {
    rest: &'a [u8],
    index: usize,
    count: usize,
    is_done: bool,
}

impl<'a> RecordIter<'a> {
    /// Over `bytes`, which should hold `count` records. A negative count is none.
    pub fn new(bytes: &'a [u8], count: i32) -> Self {
        Self {
            rest: bytes,
            index: 0,
            count: usize::try_from(count).unwrap_or(0),
            is_done: false,
        }
    }

    /// Bytes behind the record that was given last.
    pub(super) fn rest_bytes(&self) -> usize {
        self.rest.len()
    }

    fn take_record(&mut self) -> Result<Record<'a>, RecordErrorKind> {
        if self.rest.is_empty() {
            return Err(RecordErrorKind::Missing);
        }
        let length = take_varint(&mut self.rest).ok_or(RecordErrorKind::Varint("record"))?;
        let length = match usize::try_from(length) {
            Ok(n @ 1..) if n <= self.rest.len() => n,
            _ => return Err(bad_record_length(length, self.rest.len())),
        };
        let (mut body, rest) = self.rest.split_at(length);
        self.rest = rest;
        let front = take_front(&mut body)?;
        let count = take_header_count(&mut body)?;
        let bytes = body;
        take_headers(&mut body, count)?;
        Ok(Record {
            offset_delta: front.offset_delta,
            timestamp_delta: front.timestamp_delta,
            key: front.key,
            value: front.value,
            headers: Headers { bytes, count },
        })
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let index = self.index;
        let got = if index == self.count {
            self.is_done = true;
            if self.rest.is_empty() {
                return None;
            }
            Err(RecordErrorKind::Trailing)
        } else {
            self.index += 1;
            self.take_record()
        };
        self.is_done |= got.is_err();
        Some(got.map_err(|kind| RecordError { index, kind }))
    }
}

impl Headers<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.count = self.count.checked_sub(1)?;
        let (key, value) = take_header(&mut self.bytes).ok()?;
        Some(Header { key, value })
    }
}

/// Where the fields of one record are taken from: no more than its length says.
pub(super) trait Fields {
    /// A key, a value: taken, or passed over.
    type Run;
    /// A bad record, or worse.
    type Error: From<RecordErrorKind>;

    /// Bytes of the record that are not taken yet.
    fn remaining(&self) -> usize;
    /// Takes a varint; none if it is not one.
    fn varint(&mut self) -> Result<Option<i32>, Self::Error>;
    /// Takes a varint of up to 64 bits; none if it is not one.
    fn varlong(&mut self) -> Result<Option<i64>, Self::Error>;
    /// Takes that many bytes, at most what remains.
    fn run(&mut self, length: usize) -> Result<Self::Run, Self::Error>;
}

/// A record's fields before its headers.
pub(super) struct Front<R> {
    pub(super) offset_delta: i32,
    pub(super) timestamp_delta: i64,
    pub(super) key: Option<R>,
    pub(super) value: Option<R>,
}

pub(super) fn bad_record_length(length: i32, remaining: usize) -> RecordErrorKind {
    RecordErrorKind::Length {
        what: "record",
        length,
        remaining,
    }
}

/// Takes the fields before the headers from the start of a record.
pub(super) fn take_front<F: Fields>(fields: &mut F) -> Result<Front<F::Run>, F::Error> {
    // The attributes of a record have no meaning yet.
    fields.run(1)?;
    let timestamp_delta = fields
        .varlong()?
        .ok_or(RecordErrorKind::Varint("timestamp delta"))?;
    let offset_delta = fields
        .varint()?
        .ok_or(RecordErrorKind::Varint("offset delta"))?;
    Ok(Front {
        offset_delta,
        timestamp_delta,
        key: take_nullable(fields, "key")?,
        value: take_nullable(fields, "value")?,
    })
}

/// Takes the number of headers.
pub(super) fn take_header_count<F: Fields>(fields: &mut F) -> Result<usize, F::Error> {
    let raw = fields
        .varint()?
        .ok_or(RecordErrorKind::Varint("header count"))?;
    // Two lengths of a byte each are the least that a header takes.
    match usize::try_from(raw) {
        Ok(count) if count <= fields.remaining() / 2 => Ok(count),
        _ => Err(RecordErrorKind::Length {
            what: "list of headers",
            length: raw,
            remaining: fields.remaining(),
        }
        .into()),
    }
}

/// Takes the headers, which are all that remains.
pub(super) fn take_headers<F: Fields>(fields: &mut F, count: usize) -> Result<(), F::Error> {
    for _ in 0..count {
        take_header(fields)?;
    }
    match fields.remaining() {
        0 => Ok(()),
        behind => Err(RecordErrorKind::TrailingInRecord(behind).into()),
    }
}

type KeyAndValue<F> = (<F as Fields>::Run, Option<<F as Fields>::Run>);

fn take_header<F: Fields>(fields: &mut F) -> Result<KeyAndValue<F>, F::Error> {
    let remaining = fields.remaining();
    let key = take_nullable(fields, "header key")?.ok_or(RecordErrorKind::Length {
        what: "header key",
        length: -1,
        remaining,
    })?;
    Ok((key, take_nullable(fields, "header value")?))
}

fn take_nullable<F: Fields>(
    fields: &mut F,
    what: &'static str,
) -> Result<Option<F::Run>, F::Error> {
    let length = fields.varint()?.ok_or(RecordErrorKind::Varint(what))?;
    match usize::try_from(length) {
        Ok(n) if n <= fields.remaining() => Ok(Some(fields.run(n)?)),
        Err(_) if length == -1 => Ok(None),
        _ => Err(RecordErrorKind::Length {
            what,
            length,
            remaining: fields.remaining(),
        }
        .into()),
    }
}

/// The bytes of a record.
impl<'a> Fields for &'a [u8] {
    type Run = &'a [u8];
    type Error = RecordErrorKind;

    fn remaining(&self) -> usize {
        self.len()
    }

    fn varint(&mut self) -> Result<Option<i32>, RecordErrorKind> {
        Ok(take_varint(self))
    }

    fn varlong(&mut self) -> Result<Option<i64>, RecordErrorKind> {
        Ok(take_varlong(self))
    }

    fn run(&mut self, length: usize) -> Result<&'a [u8], RecordErrorKind> {
        let (bytes, rest) = self
            .split_at_checked(length)
            .ok_or(RecordErrorKind::CutOff)?;
        *self = rest;
        Ok(bytes)
    }
}
