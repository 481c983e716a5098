//! Bounded decompression (and compression) of a batch's records.
//!
//! Safe because the output is capped while it is made: memory grows with what was
//! really decompressed, never with what a header claims, save for the fixed windows
//! of LZ4 (at most 4 MiB blocks) and zstd (at most 8 MiB, or the limit if larger).
//!
//! What it is not: the records inside are not looked at.

use std::cell::Cell;
use std::io::{self, Read, Write};

use zstd::zstd_safe::{self, DCtx, ResetDirective};

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

/// Decompresses all of `input` to at most `limit` bytes.
pub fn decompress(
    codec: Compression,
    input: &[u8],
    limit: usize,
) -> Result<Vec<u8>, DecompressError> {
    match codec {
        Compression::None if input.len() > limit => Err(DecompressError::TooLarge { limit }),
        Compression::None => Ok(input.to_vec()),
        Compression::Gzip => {
            read_bounded(codec, flate2::bufread::MultiGzDecoder::new(input), limit)
        }
        Compression::Snappy => decompress_snappy(input, limit),
        Compression::Lz4 => decompress_lz4(input, limit),
        Compression::Zstd => decompress_zstd(input, limit),
    }
}

/// Compresses `input`, as a client would: snappy in xerial framing, LZ4 in independent
/// blocks (Java refuses linked ones).
pub fn compress(codec: Compression, input: &[u8]) -> io::Result<Vec<u8>> {
    match codec {
        Compression::None => Ok(input.to_vec()),
        Compression::Gzip => {
            let mut w = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            w.write_all(input)?;
            w.finish()
        }
        Compression::Snappy => compress_xerial(input),
        Compression::Lz4 => {
            let info = lz4_flex::frame::FrameInfo::new()
                .block_mode(lz4_flex::frame::BlockMode::Independent)
                .block_size(lz4_flex::frame::BlockSize::Max64KB);
            let mut w = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            w.write_all(input)?;
            w.finish().map_err(io::Error::other)
        }
        Compression::Zstd => zstd::stream::encode_all(input, 0),
    }
}

fn decompress_lz4(input: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut input = WholeInput {
        rest: input,
        is_cut_off: false,
    };
    let decoder = lz4_flex::frame::FrameDecoder::new(&mut input);
    let out = read_bounded(Compression::Lz4, decoder, limit)?;
    if input.is_cut_off {
        Err(malformed(Compression::Lz4, "the frame is cut off"))
    } else if !input.rest.is_empty() {
        Err(malformed(Compression::Lz4, "bytes follow the frame"))
    } else {
        Ok(out)
    }
}

/// Notes whether more was asked for than there was: the LZ4 decoder takes the end of its
/// input for the end of the frame.
struct WholeInput<'a> {
    rest: &'a [u8],
    is_cut_off: bool,
}

impl Read for WholeInput<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let n = self.rest.read(piece)?;
        self.is_cut_off |= n == 0 && !piece.is_empty();
        Ok(n)
    }
}

fn decompress_zstd(input: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let error = |e: io::Error| malformed(Compression::Zstd, &e);
    let limit_log = usize::BITS - limit.leading_zeros();
    let window_log_max = limit_log.clamp(ZSTD_WINDOW_LOG_MIN, ZSTD_WINDOW_LOG_MAX);
    let mut context = ZSTD_CONTEXT.take().unwrap_or_default();
    // What a batch before this one left behind, in the middle of a frame perhaps.
    context
        .reset(ResetDirective::SessionAndParameters)
        .map_err(|code| malformed(Compression::Zstd, zstd_safe::get_error_name(code)))?;
    let mut r = zstd::stream::read::Decoder::with_context(input, &mut context);
    r.window_log_max(window_log_max).map_err(error)?;
    let out = read_bounded(Compression::Zstd, r, limit);
    if context.sizeof() <= ZSTD_CONTEXT_BYTES_MAX {
        ZSTD_CONTEXT.set(Some(context));
    }
    out
}

thread_local! {
    /// The decompression context of the last batch, to save its 100 KiB and its window from
    /// being allocated for each batch. It carries nothing over but memory.
    static ZSTD_CONTEXT: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
}

/// Reads to the end, growing with what really comes, to at most `limit` bytes.
fn read_bounded(
    codec: Compression,
    mut r: impl Read,
    limit: usize,
) -> Result<Vec<u8>, DecompressError> {
    let mut out = Vec::new();
    let mut piece = [0; 8 * 1024];
    loop {
        let n = match r.read(&mut piece) {
            Ok(0) => return Ok(out),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(malformed(codec, &e)),
        };
        if n > limit - out.len() {
            return Err(DecompressError::TooLarge { limit });
        }
        if n > out.capacity() - out.len() {
            // Doubled, but never beyond the limit.
            let more = out.capacity().max(piece.len()).min(limit - out.len());
            out.reserve_exact(more.max(n));
        }
        out.extend_from_slice(&piece[..n]);
    }
}

/// The framing of Java's snappy library: this magic, two i32 versions, then blocks, each with an i32 length.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;

fn decompress_snappy(input: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut out = Vec::new();
    if !input.starts_with(&XERIAL_MAGIC) {
        append_snappy_block(&mut out, input, limit)?;
        return Ok(out);
    }
    let Some(mut rest) = input.get(XERIAL_HEADER_BYTES..) else {
        return Err(malformed(
            Compression::Snappy,
            "the xerial header is cut off",
        ));
    };
    while !rest.is_empty() {
        let Some((length, after)) = rest.split_first_chunk::<4>() else {
            return Err(malformed(Compression::Snappy, "a block length is cut off"));
        };
        let length = i32::from_be_bytes(*length);
        match usize::try_from(length) {
            Ok(length) if length <= after.len() => {
                let (block, next) = after.split_at(length);
                append_snappy_block(&mut out, block, limit)?;
                rest = next;
            }
            _ => {
                let reason = format!("a block of {length} bytes where {} remain", after.len());
                return Err(malformed(Compression::Snappy, &reason));
            }
        }
    }
    Ok(out)
}

fn append_snappy_block(
    out: &mut Vec<u8>,
    block: &[u8],
    limit: usize,
) -> Result<(), DecompressError> {
    let claimed =
        snap::raw::decompress_len(block).map_err(|e| malformed(Compression::Snappy, &e))?;
    if claimed > limit - out.len() {
        return Err(DecompressError::TooLarge { limit });
    }
    // Three bytes make at most 64: a larger claim cannot come true and is not reserved.
    if claimed / 22 > block.len() {
        let reason = format!("{claimed} bytes are claimed of a block of {}", block.len());
        return Err(malformed(Compression::Snappy, &reason));
    }
    let start = out.len();
    out.resize(start + claimed, 0);
    let written = snap::raw::Decoder::new()
        .decompress(block, &mut out[start..])
        .map_err(|e| malformed(Compression::Snappy, &e))?;
    out.truncate(start + written);
    Ok(())
}

fn compress_xerial(input: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = XERIAL_MAGIC.to_vec();
    out.extend(1i32.to_be_bytes());
    out.extend(1i32.to_be_bytes());
    for block in input.chunks(XERIAL_BLOCK_BYTES) {
        let packed = snap::raw::Encoder::new()
            .compress_vec(block)
            .map_err(io::Error::other)?;
        out.extend((packed.len() as i32).to_be_bytes());
        out.extend(packed);
    }
    Ok(out)
}

/// Encoders use windows up to 8 MiB below level 20, also for little data, and every
/// decoder should take them (RFC 8878, 3.1.1.1.2).
const ZSTD_WINDOW_LOG_MIN: u32 = 23;
/// A context is kept for the next batch only up to this size.
const ZSTD_CONTEXT_BYTES_MAX: usize = 16 << 20;
/// The largest window that zstd takes without being told to.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

#[cold]
fn malformed(codec: Compression, reason: &(impl ToString + ?Sized)) -> DecompressError {
    DecompressError::Malformed {
        codec,
        reason: reason.to_string(),
    }
}
