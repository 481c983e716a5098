//! [`Pieces`]: records decompressed a piece at a time.

use super::zstd_context::ZstdFrames;
use super::{malformed, snappy, Compression, DecompressError};
use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use std::cell::Cell;
use std::io::{self, Read};

/// Decompressed bytes, one piece after the other: a lending iterator. What is not
/// compressed comes as it is, in one piece.
pub struct Pieces<'a> {
    source: Source<'a>,
    codec: Compression,
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
    Gzip(Box<MultiGzDecoder<&'a [u8]>>),
    Snappy(snappy::Blocks<'a>),
    Lz4(Box<FrameDecoder<WholeInput<'a>>>),
    Zstd(ZstdFrames<'a>),
}

impl<'a> Pieces<'a> {
    /// Over `input`, up to `limit` bytes; more are an error.
    pub fn new(codec: Compression, input: &'a [u8], limit: usize) -> Self {
        let source = match codec {
            Compression::None => Source::Plain(input, false),
            Compression::Gzip => Source::Gzip(Box::new(MultiGzDecoder::new(input))),
            Compression::Snappy => Source::Snappy(snappy::Blocks::new(input)),
            Compression::Lz4 => Source::Lz4(Box::new(FrameDecoder::new(WholeInput {
                rest: input,
                is_cut_off: false,
            }))),
            Compression::Zstd => Source::Zstd(ZstdFrames::new(input, limit)),
        };
        let mut buf = match codec {
            Compression::None => Vec::new(),
            _ => PIECE.take(),
        };
        if codec != Compression::None && buf.len() < PIECE_BYTES {
            buf.resize(PIECE_BYTES, 0);
        }
        Self {
            source,
            codec,
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
            Source::Gzip(decoder) => read(self.codec, decoder, &mut self.buf)?,
            Source::Snappy(blocks) => blocks.next_block(&mut self.buf, room, self.limit)?,
            Source::Lz4(decoder) => match read(self.codec, decoder, &mut self.buf)? {
                0 => decoder.get_ref().check_end().map(|()| 0)?,
                len => len,
            },
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

fn read(
    codec: Compression,
    reader: &mut impl Read,
    buf: &mut [u8],
) -> Result<usize, DecompressError> {
    loop {
        match reader.read(buf) {
            Ok(len) => return Ok(len),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(malformed(codec, &e)),
        }
    }
}

/// Notes whether more was asked for than there was: the LZ4 decoder takes the end of its
/// input for the end of the frame.
struct WholeInput<'a> {
    rest: &'a [u8],
    is_cut_off: bool,
}

impl WholeInput<'_> {
    fn check_end(&self) -> Result<(), DecompressError> {
        if self.is_cut_off {
            Err(malformed(Compression::Lz4, "the frame is cut off"))
        } else if !self.rest.is_empty() {
            Err(malformed(Compression::Lz4, "bytes follow the frame"))
        } else {
            Ok(())
        }
    }
}

impl Read for WholeInput<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let n = self.rest.read(piece)?;
        self.is_cut_off |= n == 0 && !piece.is_empty();
        Ok(n)
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
/// A buffer is kept for the next batch only up to this size.
const KEPT_PIECE_BYTES_MAX: usize = 1 << 20;
