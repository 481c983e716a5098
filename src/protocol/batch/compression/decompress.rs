//! [`Pieces`]: records decompressed a piece at a time.

use super::zstd_context::ZstdFrames;
use super::{grow, gzip, lz4, snappy, Compression, DecompressError};
use std::cell::Cell;

/// Decompressed bytes, one piece after the other: a lending iterator. What is not
/// compressed comes as it is, in one piece.
pub struct Pieces<'a> {
    source: Source<'a>,
    /// What the source decompresses into; kept for the thread's next batch.
    buf: Vec<u8>,
    /// Bytes of the current piece in `buf`.
    len: usize,
    total: usize,
    limit: usize,
}

enum Source<'a> {
    /// The current piece, and whether it was given out.
    Plain(&'a [u8], bool),
    Gzip(gzip::Members<'a>),
    Snappy(snappy::Blocks<'a>),
    Lz4(lz4::Blocks<'a>),
    Zstd(ZstdFrames<'a>),
}

impl<'a> Pieces<'a> {
    /// Over `input`, up to `limit` bytes; more are an error.
    pub fn new(codec: Compression, input: &'a [u8], limit: usize) -> Self {
        let source = match codec {
            Compression::None => Source::Plain(input, false),
            Compression::Gzip => Source::Gzip(gzip::Members::new(input)),
            Compression::Snappy => Source::Snappy(snappy::Blocks::new(input)),
            Compression::Lz4 => Source::Lz4(lz4::Blocks::new(input)),
            Compression::Zstd => Source::Zstd(ZstdFrames::new(input, limit)),
        };
        let mut buf = match codec {
            Compression::None => Vec::new(),
            _ => PIECE.take(),
        };
        if codec != Compression::None {
            grow(&mut buf, PIECE_BYTES);
        }
        Self {
            source,
            buf,
            len: 0,
            total: 0,
            limit,
        }
    }

    /// The next piece; an empty one at the end, which is reached only by whole and
    /// sound input.
    pub fn next_piece(&mut self) -> Result<&[u8], DecompressError> {
        self.advance()?;
        Ok(self.piece())
    }

    /// Moves to the next piece; false at the end.
    pub(in super::super) fn advance(&mut self) -> Result<bool, DecompressError> {
        self.len = 0;
        let room = self.limit - self.total;
        let len = match &mut self.source {
            Source::Plain(bytes, is_given) => {
                if std::mem::replace(is_given, true) {
                    *bytes = &[];
                }
                bytes.len()
            }
            Source::Gzip(members) => members.read(&mut self.buf[..PIECE_BYTES])?,
            Source::Snappy(blocks) => blocks.next_block(&mut self.buf, room, self.limit)?,
            Source::Lz4(blocks) => blocks.next_block(&mut self.buf)?,
            Source::Zstd(frames) => frames.read(&mut self.buf[..PIECE_BYTES])?,
        };
        if len > room {
            return Err(DecompressError::TooLarge { limit: self.limit });
        }
        self.len = len;
        self.total += len;
        Ok(len > 0)
    }

    /// The current piece; empty before the first and after the last.
    pub(in super::super) fn piece(&self) -> &[u8] {
        match &self.source {
            Source::Plain(_, false) => &[],
            Source::Plain(bytes, true) => bytes,
            _ => &self.buf[..self.len],
        }
    }

    /// Bytes of all pieces so far.
    pub fn total_bytes(&self) -> usize {
        self.total
    }
}

impl Drop for Pieces<'_> {
    fn drop(&mut self) {
        let is_kept = (PIECE_BYTES..=KEPT_PIECE_BYTES_MAX).contains(&self.buf.capacity());
        if is_kept {
            PIECE.set(std::mem::take(&mut self.buf));
        }
    }
}

/// Decompresses all of `input` to at most `limit` bytes.
pub fn decompress(
    codec: Compression,
    input: &[u8],
    limit: usize,
) -> Result<Vec<u8>, DecompressError> {
    let mut pieces = Pieces::new(codec, input, limit);
    let mut out = Vec::new();
    loop {
        let piece = pieces.next_piece()?;
        if piece.is_empty() {
            return Ok(out);
        }
        if piece.len() > out.capacity() - out.len() {
            // Doubled, but never beyond the limit.
            let more = out.capacity().min(limit - out.len());
            out.reserve_exact(more.max(piece.len()));
        }
        out.extend_from_slice(piece);
    }
}

thread_local! {
    /// The buffer of the last batch's pieces.
    static PIECE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes of a piece: large enough that few records straddle two, and within a core's
/// second-level cache.
const PIECE_BYTES: usize = 64 << 10;
/// A buffer is kept for the next batch only up to this size: that of the largest LZ4 block.
const KEPT_PIECE_BYTES_MAX: usize = 4 << 20;
