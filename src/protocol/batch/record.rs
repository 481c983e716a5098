//! The records of a batch, read in place.
//!
//! Safe because each record is first cut out by its own checked length and then read
//! within it; nothing is reserved.
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
    /// Bytes after the last record.
    #[error("{0} bytes follow the last record")]
    Trailing(usize),
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

    fn take_record(&mut self) -> Result<Record<'a>, RecordErrorKind> {
        if self.rest.is_empty() {
            return Err(RecordErrorKind::Missing);
        }
        let mut body = take_bytes(&mut self.rest, "record")?;
        // The attributes of a record have no meaning yet.
        if body.is_empty() {
            return Err(RecordErrorKind::Length {
                what: "record",
                length: 0,
                remaining: self.rest.len(),
            });
        }
        body = &body[1..];
        let timestamp_delta =
            take_varlong(&mut body).ok_or(RecordErrorKind::Varint("timestamp delta"))?;
        let offset_delta = take_varint(&mut body).ok_or(RecordErrorKind::Varint("offset delta"))?;
        let key = take_nullable(&mut body, "key")?;
        let value = take_nullable(&mut body, "value")?;
        let headers = take_headers(&mut body)?;
        if !body.is_empty() {
            return Err(RecordErrorKind::TrailingInRecord(body.len()));
        }
        Ok(Record {
            offset_delta,
            timestamp_delta,
            key,
            value,
            headers,
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
            Err(RecordErrorKind::Trailing(self.rest.len()))
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
        take_header(&mut self.bytes).ok()
    }
}

fn take_headers<'a>(body: &mut &'a [u8]) -> Result<Headers<'a>, RecordErrorKind> {
    let raw = take_varint(body).ok_or(RecordErrorKind::Varint("header count"))?;
    // Two lengths of a byte each are the least that a header takes.
    let count = match usize::try_from(raw) {
        Ok(count) if count <= body.len() / 2 => count,
        _ => {
            return Err(RecordErrorKind::Length {
                what: "list of headers",
                length: raw,
                remaining: body.len(),
            })
        }
    };
    let bytes = *body;
    for _ in 0..count {
        take_header(body)?;
    }
    Ok(Headers { bytes, count })
}

fn take_header<'a>(body: &mut &'a [u8]) -> Result<Header<'a>, RecordErrorKind> {
    Ok(Header {
        key: take_bytes(body, "header key")?,
        value: take_nullable(body, "header value")?,
    })
}

fn take_bytes<'a>(body: &mut &'a [u8], what: &'static str) -> Result<&'a [u8], RecordErrorKind> {
    let remaining = body.len();
    take_nullable(body, what)?.ok_or(RecordErrorKind::Length {
        what,
        length: -1,
        remaining,
    })
}

fn take_nullable<'a>(
    body: &mut &'a [u8],
    what: &'static str,
) -> Result<Option<&'a [u8]>, RecordErrorKind> {
    let length = take_varint(body).ok_or(RecordErrorKind::Varint(what))?;
    match usize::try_from(length) {
        Ok(n) if n <= body.len() => {
            let (bytes, rest) = body.split_at(n);
            *body = rest;
            Ok(Some(bytes))
        }
        Err(_) if length == -1 => Ok(None),
        _ => Err(RecordErrorKind::Length {
            what,
            length,
            remaining: body.len(),
        }),
    }
}
