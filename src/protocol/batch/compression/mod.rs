//! Bounded compression and decompression of a batch's records.
//!
//! Safe because nothing is made in one go: [`Pieces`] decompresses a piece at a time
//! and stops at the caller's limit, and [`compress_into`] stops where its output
//! would exceed one. Memory grows with what was really decompressed, never with what a
//! header claims: a piece of 64 KiB, a block of LZ4 (at most 4 MiB), and the window of
//! zstd (at most 8 MiB, or the limit if larger). The one exception is snappy without
//! framing, which is one block: it comes in one piece, at most 22 times its input and
//! within the limit. A thread keeps its buffer and the state of a decompressor from batch
//! to batch, so that a small batch does not pay for them.
//!
//! What it is not: the records inside are not looked at.

mod compress;
mod decompress;
mod gzip;
mod lz4;
mod snappy;
mod zstd_context;

#[cfg(test)]
mod tests;

pub use compress::{compress, Encoding};
pub use decompress::{decompress, Pieces};

pub(super) use compress::{compress_into, CompressError};

/// How the records of a batch are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    None = 0,
    /// gzip.
    Gzip = 1,
    /// Snappy, raw or in the framing of Java's snappy library ("xerial").
    Snappy = 2,
    /// LZ4 frames.
    Lz4 = 3,
    /// Zstandard (KIP-110).
    Zstd = 4,
}

/// Records that cannot be decompressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// More than the limit comes out, or is claimed to.
    #[error("the records decompress to more than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The bytes are not what the batch says they are.
    #[error("the records are not valid {codec:?} data: {reason}")]
    Malformed {
        /// The compression that the batch names.
        codec: Compression,
        /// The decompressor's words.
        reason: String,
    },
}

impl Compression {
    /// All of them, in the order of their codes.
    pub const ALL: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    /// The number in a batch's attributes.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The compression of a number in a batch's attributes.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Compression::None,
            1 => Compression::Gzip,
            2 => Compression::Snappy,
            3 => Compression::Lz4,
            4 => Compression::Zstd,
            _ => return None,
        })
    }
}

#[cold]
fn malformed(codec: Compression, reason: &(impl ToString + ?Sized)) -> DecompressError {
    DecompressError::Malformed {
        codec,
        reason: reason.to_string(),
    }
}

#[cold]
fn cut_off(codec: Compression) -> DecompressError {
    malformed(codec, "it is cut off")
}

/// Takes `N` bytes off the front; none if there are fewer.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*bytes)
}

/// Takes that many bytes off the front; none if there are fewer.
fn take_slice<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(bytes)
}

/// Makes `out` have at least that many bytes, and no spare ones beside.
fn grow(out: &mut Vec<u8>, length: usize) {
    if out.len() < length {
        out.reserve_exact(length - out.len());
        out.resize(length, 0);
    }
}
