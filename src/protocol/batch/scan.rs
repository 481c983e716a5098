//! [`RecordScan`]: reads every record of a batch, compressed or not, a piece at a time.
//!
//! For what needs a record's numbers and not its content: keys, values and headers are
//! checked and passed over. Memory is that of [`Pieces`], whatever the batch claims and
//! whatever it decompresses to. A record that lies within one piece, as nearly all do, is read in
//! place; one that straddles pieces is read field by field.

use super::record::{
    bad_record_length, take_front, take_header_count, take_headers, Fields, Front,
};
use super::varint::{take_varint, take_varlong};
use super::{BatchError, DecompressError, Pieces, RecordError, RecordErrorKind};

/// Iterates over the records of a batch: exactly as many as it claims, with nothing
/// after the last, and the compressed data whole and sound. Ends after the first error.
pub struct RecordScan<'a> {
    bytes: Unread<'a>,
    index: usize,
    count: usize,
    is_done: bool,
}

/// What a scan tells of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScannedRecord {
    /// Offset, less the batch's base offset.
    pub offset_delta: i32,
    /// Timestamp, less the batch's base timestamp, ms; see [`super::BatchHeader::timestamp`].
    pub timestamp_delta: i64,
    /// Whether it has a key, as a compacted topic demands.
    pub has_key: bool,
}

/// The decompressed bytes that were not read yet.
struct Unread<'a> {
    pieces: Pieces<'a>,
    /// How much of the current piece was read.
    at: usize,
}

impl<'a> RecordScan<'a> {
    /// Over `pieces`, which should hold `count` records. A negative count is none.
    pub(super) fn new(pieces: Pieces<'a>, count: i32) -> Self {
        Self {
            bytes: Unread { pieces, at: 0 },
            index: 0,
            count: usize::try_from(count).unwrap_or(0),
            is_done: false,
        }
    }

    /// Decompressed bytes so far: all of them once the scan has ended.
    pub fn total_bytes(&self) -> usize {
        self.bytes.pieces.total_bytes()
    }

    fn take_record(&mut self) -> Result<ScannedRecord, ScanError> {
        if self.bytes.is_at_end()? {
            return Err(RecordErrorKind::Missing.into());
        }
        let length = StraddlingRecord::of(&mut self.bytes, usize::MAX)
            .varint()?
            .ok_or(RecordErrorKind::Varint("record"))?;
        let length = match usize::try_from(length) {
            Ok(n @ 1..) => n,
            _ => return Err(bad_record_length(length, self.bytes.window().len()).into()),
        };
        if let Some(mut body) = self.bytes.window().get(..length) {
            let record = take_fields(&mut body)?;
            self.bytes.at += length;
            return Ok(record);
        }
        take_fields(&mut StraddlingRecord::of(&mut self.bytes, length))
    }

    fn take_end(&mut self) -> Result<(), ScanError> {
        match self.bytes.is_at_end()? {
            true => Ok(()),
            false => Err(RecordErrorKind::Trailing.into()),
        }
    }
}

impl Iterator for RecordScan<'_> {
    type Item = Result<ScannedRecord, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let index = self.index;
        let got = if index == self.count {
            self.is_done = true;
            self.take_end().err().map(Err)
        } else {
            self.index += 1;
            Some(self.take_record())
        };
        self.is_done |= matches!(got, Some(Err(_)));
        got.map(|got| got.map_err(|error| error.of_record(index)))
    }
}

fn take_fields<F: Fields>(fields: &mut F) -> Result<ScannedRecord, F::Error> {
    let Front {
        offset_delta,
        timestamp_delta,
        key,
        ..
    } = take_front(fields)?;
    let count = take_header_count(fields)?;
    take_headers(fields, count)?;
    Ok(ScannedRecord {
        offset_delta,
        timestamp_delta,
        has_key: key.is_some(),
    })
}

impl Unread<'_> {
    /// What is left of the current piece.
    fn window(&self) -> &[u8] {
        &self.pieces.piece()[self.at..]
    }

    /// Makes the window hold a byte, unless nothing is left at all.
    fn is_at_end(&mut self) -> Result<bool, DecompressError> {
        if !self.window().is_empty() {
            return Ok(false);
        }
        self.at = 0;
        Ok(!self.pieces.advance()?)
    }
}

/// The fields of a record that reaches into the next piece.
struct StraddlingRecord<'s, 'a> {
    bytes: &'s mut Unread<'a>,
    /// Bytes that the record still has.
    left: usize,
}

impl<'s, 'a> StraddlingRecord<'s, 'a> {
    fn of(bytes: &'s mut Unread<'a>, left: usize) -> Self {
        Self { bytes, left }
    }

    fn pass(&mut self, length: usize) {
        self.bytes.at += length;
        self.left -= length;
    }

    /// Takes what `take` finds at the front of some bytes, wherever the pieces end.
    fn number<T>(
        &mut self,
        take: impl Fn(&mut &[u8]) -> Option<T>,
    ) -> Result<Option<T>, ScanError> {
        let window = self.bytes.window();
        let here = &window[..window.len().min(self.left)];
        let mut rest = here;
        if let Some(number) = take(&mut rest) {
            let length = here.len() - rest.len();
            self.pass(length);
            return Ok(Some(number));
        }
        let mut bytes = [0; VARINT_BYTES_MAX];
        let mut length = 0;
        while length < bytes.len() && self.left > 0 {
            if self.bytes.is_at_end()? {
                return Err(RecordErrorKind::CutOff.into());
            }
            bytes[length] = self.bytes.window()[0];
            self.pass(1);
            length += 1;
            if bytes[length - 1] < 0x80 {
                break;
            }
        }
        Ok(take(&mut &bytes[..length]))
    }
}

impl Fields for StraddlingRecord<'_, '_> {
    type Run = ();
    type Error = ScanError;

    fn remaining(&self) -> usize {
        self.left
    }

    fn varint(&mut self) -> Result<Option<i32>, ScanError> {
        self.number(take_varint)
    }

    fn varlong(&mut self) -> Result<Option<i64>, ScanError> {
        self.number(take_varlong)
    }

    fn run(&mut self, mut length: usize) -> Result<(), ScanError> {
        if length > self.left {
            return Err(RecordErrorKind::CutOff.into());
        }
        while length > 0 {
            if self.bytes.is_at_end()? {
                return Err(RecordErrorKind::CutOff.into());
            }
            let here = length.min(self.bytes.window().len());
            self.pass(here);
            length -= here;
        }
        Ok(())
    }
}

enum ScanError {
    Record(RecordErrorKind),
    Decompress(DecompressError),
}

impl ScanError {
    fn of_record(self, index: usize) -> BatchError {
        match self {
            ScanError::Record(kind) => RecordError { index, kind }.into(),
            ScanError::Decompress(error) => error.into(),
        }
    }
}

impl From<RecordErrorKind> for ScanError {
    fn from(kind: RecordErrorKind) -> Self {
        ScanError::Record(kind)
    }
}

impl From<DecompressError> for ScanError {
    fn from(error: DecompressError) -> Self {
        ScanError::Decompress(error)
    }
}

/// The longest varint, of 64 bits.
const VARINT_BYTES_MAX: usize = 10;
