//! Compressing to an output that is bounded.

use super::snappy::XerialWriter;
use super::zstd_context::compress_zstd;
use super::{Compression, DecompressError, Pieces};
use futures_lite::future::block_on;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use std::io::{self, Write};

/// A compression to write, and how hard to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    /// The compression.
    pub compression: Compression,
    /// Kafka's level: `compression.gzip.level` (-1, the default, or 1 to 9) or
    /// `compression.zstd.level`. `compression.lz4.level` changes nothing: there is one way to
    /// write LZ4, the fast one, which any reader takes. Snappy has no levels.
    pub level: i32,
}

impl Encoding {
    /// At Kafka's default level.
    pub const fn of(compression: Compression) -> Self {
        let level = match compression {
            Compression::Zstd => 3,
            Compression::Lz4 => 9,
            _ => -1,
        };
        Self { compression, level }
    }
}

/// Why records were not compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum CompressError {
    /// The output would exceed its bound.
    TooLarge,
    /// The compressor's words.
    Failed(String),
    /// The input cannot be decompressed.
    Decompress(DecompressError),
}

/// Compresses all pieces, of `bytes` bytes together, to the end of `out`, as a client
/// would: snappy in xerial framing, LZ4 in independent blocks (Java refuses linked
/// ones). `out` grows to at most `bytes_max`. `pause` is awaited between slices of the
/// work, each of which takes milliseconds at the highest levels.
pub(in super::super) async fn compress_into(
    encoding: Encoding,
    pieces: &mut Pieces<'_>,
    bytes: usize,
    out: &mut Vec<u8>,
    bytes_max: usize,
    pause: impl AsyncFn(),
) -> Result<(), CompressError> {
    let mut to = Bounded {
        out,
        bytes_max,
        is_exceeded: false,
    };
    let written = match encoding.compression {
        Compression::Zstd => {
            return compress_zstd(encoding.level, pieces, bytes, &mut to, pause).await
        }
        Compression::None => write_all(pieces, &mut to, pause).await,
        Compression::Gzip => gzip(encoding.level, pieces, &mut to, pause).await,
        Compression::Snappy => snappy(pieces, &mut to, pause).await,
        Compression::Lz4 => lz4(pieces, &mut to, pause).await,
    };
    match written {
        Err(CompressError::Failed(_)) if to.is_exceeded => Err(CompressError::TooLarge),
        other => other,
    }
}

async fn gzip(
    level: i32,
    pieces: &mut Pieces<'_>,
    to: &mut Bounded<'_>,
    pause: impl AsyncFn(),
) -> Result<(), CompressError> {
    let level = match u32::try_from(level) {
        Ok(level) => flate2::Compression::new(level.min(9)),
        Err(_) => flate2::Compression::default(),
    };
    let mut encoder = flate2::write::GzEncoder::new(to, level);
    write_all(pieces, &mut encoder, pause).await?;
    encoder.finish()?;
    Ok(())
}

async fn snappy(
    pieces: &mut Pieces<'_>,
    to: &mut Bounded<'_>,
    pause: impl AsyncFn(),
) -> Result<(), CompressError> {
    let mut encoder = XerialWriter::new(to)?;
    write_all(pieces, &mut encoder, pause).await?;
    Ok(encoder.finish()?)
}

async fn lz4(
    pieces: &mut Pieces<'_>,
    to: &mut Bounded<'_>,
    pause: impl AsyncFn(),
) -> Result<(), CompressError> {
    let info = FrameInfo::new()
        .block_mode(BlockMode::Independent)
        .block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, to);
    write_all(pieces, &mut encoder, pause).await?;
    encoder
        .finish()
        .map_err(|error| CompressError::Failed(error.to_string()))?;
    Ok(())
}

async fn write_all(
    pieces: &mut Pieces<'_>,
    to: &mut impl Write,
    pause: impl AsyncFn(),
) -> Result<(), CompressError> {
    loop {
        match pieces.next_piece()? {
            [] => return Ok(()),
            piece => {
                for (n, slice) in piece.chunks(SLICE_BYTES).enumerate() {
                    if n > 0 {
                        pause().await;
                    }
                    to.write_all(slice)?;
                }
            }
        }
        if pieces.total_bytes() > SLICE_BYTES {
            pause().await;
        }
    }
}

/// Bytes that are compressed without a pause.
pub(super) const SLICE_BYTES: usize = 64 << 10;

/// Compresses `input` at the default level.
pub fn compress(codec: Compression, input: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut pieces = Pieces::new(Compression::None, input, input.len());
    let done = compress_into(
        Encoding::of(codec),
        &mut pieces,
        input.len(),
        &mut out,
        usize::MAX,
        async || {},
    );
    match block_on(done) {
        Ok(()) => Ok(out),
        Err(error) => Err(io::Error::other(format!("{error:?}"))),
    }
}

/// Output up to a bound.
pub(super) struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    bytes_max: usize,
    is_exceeded: bool,
}

impl Bounded<'_> {
    /// Lets `write` fill up to `len` bytes at the end. It tells how many it wrote, and
    /// its result.
    pub(super) fn fill<T, E>(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(usize, T), E>,
    ) -> Result<Result<T, E>, CompressError> {
        let start = self.out.len();
        let len = len.min(self.bytes_max.saturating_sub(start));
        if len == 0 {
            return Err(CompressError::TooLarge);
        }
        self.out.resize(start + len, 0);
        let done = write(&mut self.out[start..]);
        let written = done.as_ref().map_or(0, |(written, _)| *written);
        self.out.truncate(start + written);
        Ok(done.map(|(_, result)| result))
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.bytes_max.saturating_sub(self.out.len()) {
            self.is_exceeded = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<io::Error> for CompressError {
    fn from(error: io::Error) -> Self {
        CompressError::Failed(error.to_string())
    }
}

impl From<DecompressError> for CompressError {
    fn from(error: DecompressError) -> Self {
        CompressError::Decompress(error)
    }
}
