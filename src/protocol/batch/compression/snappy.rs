//! Snappy: one block, or blocks in the framing of Java's snappy library ("xerial"): a
//! magic, two i32 versions, then each block after an i32 length.

use super::{grow, malformed, Compression, DecompressError};
use std::io::{self, Write};

/// Decompresses block after block.
pub(super) struct Blocks<'a> {
    state: State<'a>,
}

enum State<'a> {
    Raw(&'a [u8]),
    Xerial(&'a [u8]),
    CutHeader,
    End,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        let state = match input.strip_prefix(&MAGIC) {
            None => State::Raw(input),
            Some(_) => match input.get(HEADER_BYTES..) {
                Some(blocks) => State::Xerial(blocks),
                None => State::CutHeader,
            },
        };
        Self { state }
    }

    /// Decompresses the next block that is not empty to the front of `out`, which grows to hold it;
    /// its length, 0 at the end. More than `room` bytes exceed the `limit`.
    pub(super) fn next_block(
        &mut self,
        out: &mut Vec<u8>,
        room: usize,
        limit: usize,
    ) -> Result<usize, DecompressError> {
        loop {
            let block = match std::mem::replace(&mut self.state, State::End) {
                State::End => return Ok(0),
                State::CutHeader => return Err(refused("the xerial header is cut off")),
                State::Raw(block) => block,
                State::Xerial([]) => return Ok(0),
                State::Xerial(rest) => {
                    let (block, rest) = take_block(rest)?;
                    self.state = State::Xerial(rest);
                    block
                }
            };
            let len = decompress_block(block, out, room, limit)?;
            if len > 0 {
                return Ok(len);
            }
        }
    }
}

fn take_block(rest: &[u8]) -> Result<(&[u8], &[u8]), DecompressError> {
    let Some((length, after)) = rest.split_first_chunk::<4>() else {
        return Err(refused("a block length is cut off"));
    };
    let length = i32::from_be_bytes(*length);
    match usize::try_from(length) {
        Ok(length) if length <= after.len() => Ok(after.split_at(length)),
        _ => {
            let remain = after.len();
            let reason = format!("a block of {length} bytes where {remain} remain");
            Err(malformed(Compression::Snappy, &reason))
        }
    }
}

fn decompress_block(
    block: &[u8],
    out: &mut Vec<u8>,
    room: usize,
    limit: usize,
) -> Result<usize, DecompressError> {
    let claimed =
        snap::raw::decompress_len(block).map_err(|e| malformed(Compression::Snappy, &e))?;
    // Three bytes make at most 64: a larger claim cannot come true and is not reserved.
    if claimed / 22 > block.len() {
        let reason = format!("{claimed} bytes are claimed of a block of {}", block.len());
        return Err(malformed(Compression::Snappy, &reason));
    }
    if claimed > room {
        return Err(DecompressError::TooLarge { limit });
    }
    grow(out, claimed);
    snap::raw::Decoder::new()
        .decompress(block, &mut out[..claimed])
        .map_err(|e| malformed(Compression::Snappy, &e))
}

#[cold]
fn refused(reason: &str) -> DecompressError {
    malformed(Compression::Snappy, reason)
}

/// Compresses what is written into xerial blocks.
pub(super) struct XerialWriter<W> {
    to: W,
    block: Vec<u8>,
    packed: Vec<u8>,
    encoder: snap::raw::Encoder,
}

impl<W: Write> XerialWriter<W> {
    pub(super) fn new(mut to: W) -> io::Result<Self> {
        to.write_all(&MAGIC)?;
        to.write_all(&1i32.to_be_bytes())?;
        to.write_all(&1i32.to_be_bytes())?;
        Ok(Self {
            to,
            block: Vec::with_capacity(BLOCK_BYTES),
            packed: vec![0; snap::raw::max_compress_len(BLOCK_BYTES)],
            encoder: snap::raw::Encoder::new(),
        })
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.write_block()
    }

    fn write_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let len = self
            .encoder
            .compress(&self.block, &mut self.packed)
            .map_err(io::Error::other)?;
        self.block.clear();
        self.to.write_all(&(len as i32).to_be_bytes())?;
        self.to.write_all(&self.packed[..len])
    }
}

impl<W: Write> Write for XerialWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(BLOCK_BYTES - self.block.len());
        self.block.extend_from_slice(&bytes[..len]);
        if self.block.len() == BLOCK_BYTES {
            self.write_block()?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER_BYTES: usize = 16;
const BLOCK_BYTES: usize = 32 * 1024;
