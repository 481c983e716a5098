//! Zstandard, with contexts that a thread keeps from batch to batch: they take 100 KiB
//! to some MiB, and setting them up costs more than a small batch. Each is reset before
//! its use, so that it carries nothing over but memory, and one that has grown beyond
//! [`KEPT_BYTES_MAX`] is given back.

use super::compress::{Bounded, CompressError, SLICE_BYTES};
use super::{malformed, Compression, DecompressError, Pieces};
use std::cell::Cell;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective as End;
use zstd::zstd_safe::{
    self, CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective,
};

/// Decompresses frame after frame.
pub(super) struct ZstdFrames<'a> {
    context: Option<DCtx<'static>>,
    rest: &'a [u8],
    /// Whether the last frame goes on.
    is_open: bool,
    limit: usize,
}

impl<'a> ZstdFrames<'a> {
    pub(super) fn new(input: &'a [u8], limit: usize) -> Self {
        Self {
            context: None,
            rest: input,
            is_open: false,
            limit,
        }
    }

    /// Decompresses to the front of `out`; how much, 0 at the end.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, DecompressError> {
        let context = match &mut self.context {
            Some(context) => context,
            none => none.insert(decompression_context(self.limit)?),
        };
        while self.is_open || !self.rest.is_empty() {
            let mut input = InBuffer::around(self.rest);
            let mut output = OutBuffer::around(&mut *out);
            let hint = context
                .decompress_stream(&mut output, &mut input)
                .map_err(|code| malformed(Compression::Zstd, zstd_safe::get_error_name(code)))?;
            let (taken, made) = (input.pos(), output.pos());
            self.is_open = hint != 0;
            self.rest = &self.rest[taken..];
            if made > 0 {
                return Ok(made);
            }
            if self.is_open && taken == 0 {
                return Err(malformed(Compression::Zstd, "the frame is cut off"));
            }
        }
        Ok(0)
    }
}

impl Drop for ZstdFrames<'_> {
    fn drop(&mut self) {
        if let Some(context) = self.context.take() {
            if context.sizeof() <= KEPT_BYTES_MAX {
                DECOMPRESSION.set(Some(context));
            }
        }
    }
}

fn decompression_context(limit: usize) -> Result<DCtx<'static>, DecompressError> {
    let limit_log = usize::BITS - limit.leading_zeros();
    let window_log_max = limit_log.clamp(WINDOW_LOG_MIN, WINDOW_LOG_MAX);
    let mut context = DECOMPRESSION.take().unwrap_or_default();
    // What a batch before this one left behind, in the middle of a frame perhaps.
    context
        .reset(ResetDirective::SessionAndParameters)
        .and_then(|_| context.set_parameter(DParameter::WindowLogMax(window_log_max)))
        .map_err(|code| malformed(Compression::Zstd, zstd_safe::get_error_name(code)))?;
    Ok(context)
}

/// Compresses pieces of `bytes` bytes together to one frame at `level` (any number:
/// the nearest that there is).
///
/// The size is told beforehand, as the tables of a level are made to measure then: a
/// small batch is spared tables of some MiB, and the highest levels, which would take
/// hundreds of MiB otherwise, are bounded by the batch.
pub(super) async fn compress_zstd(
    level: i32,
    pieces: &mut Pieces<'_>,
    bytes: usize,
    to: &mut Bounded<'_>,
    pause: impl AsyncFn(),
) -> Result<(), CompressError> {
    let mut context = COMPRESSION.take().unwrap_or_default();
    let done = compress_frame(&mut context, level, pieces, bytes, to, pause).await;
    if context.sizeof() <= KEPT_BYTES_MAX {
        COMPRESSION.set(Some(context));
    }
    done
}

async fn compress_frame(
    context: &mut CCtx<'static>,
    level: i32,
    pieces: &mut Pieces<'_>,
    bytes: usize,
    to: &mut Bounded<'_>,
    pause: impl AsyncFn(),
) -> Result<(), CompressError> {
    let level = level.clamp(zstd_safe::min_c_level(), zstd_safe::max_c_level());
    context
        .reset(ResetDirective::SessionAndParameters)
        .and_then(|_| context.set_parameter(CParameter::CompressionLevel(level)))
        .and_then(|_| context.set_parameter(CParameter::WindowLog(WINDOW_LOG_MIN)))
        .and_then(|_| context.set_pledged_src_size(Some(bytes as u64)))
        .map_err(failed)?;
    loop {
        let piece = pieces.next_piece()?;
        if piece.is_empty() {
            return compress_slice(context, &[], End::ZSTD_e_end, to);
        }
        for (n, slice) in piece.chunks(SLICE_BYTES).enumerate() {
            if n > 0 {
                pause().await;
            }
            compress_slice(context, slice, End::ZSTD_e_continue, to)?;
        }
        if pieces.total_bytes() > SLICE_BYTES {
            pause().await;
        }
    }
}

fn compress_slice(
    context: &mut CCtx<'static>,
    slice: &[u8],
    end: End,
    to: &mut Bounded<'_>,
) -> Result<(), CompressError> {
    let mut input = InBuffer::around(slice);
    loop {
        let remaining = to.fill(COMPRESSED_PIECE_BYTES, |room| {
            let mut output = OutBuffer::around(room);
            let remaining = context.compress_stream2(&mut output, &mut input, end);
            remaining.map(|remaining| (output.pos(), remaining))
        });
        let remaining = remaining?.map_err(failed)?;
        let is_taken = match end {
            End::ZSTD_e_end => remaining == 0,
            _ => input.pos() == slice.len(),
        };
        if is_taken {
            return Ok(());
        }
    }
}

fn failed(code: zstd_safe::ErrorCode) -> CompressError {
    CompressError::Failed(zstd_safe::get_error_name(code).to_owned())
}

thread_local! {
    static DECOMPRESSION: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
    static COMPRESSION: Cell<Option<CCtx<'static>>> = const { Cell::new(None) };
}

/// Encoders use windows up to 8 MiB below level 20, also for little data, and every
/// decoder should take them (RFC 8878, 3.1.1.1.2): neither less is taken nor more made.
const WINDOW_LOG_MIN: u32 = 23;
/// The largest window that zstd takes without being told to.
const WINDOW_LOG_MAX: u32 = 27;
/// A context is kept for the next batch only up to this size.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Room for compressed bytes that is made at a time.
const COMPRESSED_PIECE_BYTES: usize = 32 << 10;
