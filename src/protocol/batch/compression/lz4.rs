//! LZ4 frames, a block at a time, from the batch itself into the thread's buffer.
//!
//! Not by the frame decoder of `lz4_flex`: that one makes and fills two buffers of the
//! largest block (64 KiB to 4 MiB) for every batch, which costs a small batch more than
//! all the rest of it. A block gets room for what its bytes could make at most, never for
//! what the frame claims, and `lz4_flex`'s block decoder checks every copy against it.
//!
//! What is refused is what Kafka refuses, so that any consumer can read what was taken:
//! above all linked blocks and dictionaries, which Java does not know.

use super::{cut_off, grow, malformed, take, take_slice, Compression, DecompressError};
use std::hash::Hasher;
use twox_hash::XxHash32;

/// Decompresses block after block of the one frame that the input is.
pub(super) struct Blocks<'a> {
    state: State,
    rest: &'a [u8],
}

enum State {
    Start,
    Open(Frame),
    End,
}

struct Frame {
    block_bytes_max: usize,
    has_block_checksums: bool,
    content_size: Option<u64>,
    content_hasher: Option<XxHash32>,
    made: u64,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self {
            state: State::Start,
            rest: input,
        }
    }

    /// Decompresses the next block that is not empty to the front of `out`, which grows
    /// to hold it (to at most 4 MiB); its length, 0 at the end.
    pub(super) fn next_block(&mut self, out: &mut Vec<u8>) -> Result<usize, DecompressError> {
        if let State::Start = self.state {
            self.state = State::Open(Frame::take(&mut self.rest)?);
        }
        let State::Open(frame) = &mut self.state else {
            return Ok(0);
        };
        loop {
            let word = take_u32(&mut self.rest)?;
            if word == END_MARK {
                frame.take_end(&mut self.rest)?;
                self.state = State::End;
                return Ok(0);
            }
            let made = frame.take_block(word, &mut self.rest, out)?;
            if made > 0 {
                return Ok(made);
            }
        }
    }
}

impl Frame {
    fn take(rest: &mut &[u8]) -> Result<Self, DecompressError> {
        if take_u32(rest)? != MAGIC {
            return Err(refused("it does not start with an LZ4 frame"));
        }
        let from_descriptor = *rest;
        let [flags, block_size] = take(rest).ok_or_else(|| cut_off(Compression::Lz4))?;
        if flags & VERSION_MASK != VERSION {
            return Err(refused("the version of the frame is not known"));
        }
        if flags & UNKNOWN_FLAGS != 0 || block_size & !BLOCK_SIZE_MASK != 0 {
            return Err(refused("the frame needs a dictionary or has unknown flags"));
        }
        if flags & INDEPENDENT_BLOCKS == 0 {
            return Err(refused(
                "the blocks are linked, which Java's consumers cannot read; make the producer write independent blocks",
            ));
        }
        let block_bytes_max = match block_size >> BLOCK_SIZE_SHIFT {
            size @ 4..=7 => 1 << (8 + 2 * size),
            _ => return Err(refused("the block size is not known")),
        };
        let content_size = match flags & CONTENT_SIZE {
            0 => None,
            _ => Some(take(rest).ok_or_else(|| cut_off(Compression::Lz4))?),
        };
        let descriptor = &from_descriptor[..from_descriptor.len() - rest.len()];
        let [checksum] = take(rest).ok_or_else(|| cut_off(Compression::Lz4))?;
        if checksum != (XxHash32::oneshot(SEED, descriptor) >> 8) as u8 {
            return Err(refused("the checksum of the frame's header is wrong"));
        }
        Ok(Self {
            block_bytes_max,
            has_block_checksums: flags & BLOCK_CHECKSUMS != 0,
            content_size: content_size.map(u64::from_le_bytes),
            content_hasher: (flags & CONTENT_CHECKSUM != 0).then(|| XxHash32::with_seed(SEED)),
            made: 0,
        })
    }

    fn take_block(
        &mut self,
        word: u32,
        rest: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize, DecompressError> {
        let length = (word & !NOT_COMPRESSED) as usize;
        if length > self.block_bytes_max {
            return Err(refused("a block is larger than the frame says"));
        }
        let block = take_slice(rest, length).ok_or_else(|| cut_off(Compression::Lz4))?;
        if self.has_block_checksums && take_u32(rest)? != XxHash32::oneshot(SEED, block) {
            return Err(refused("the checksum of a block is wrong"));
        }
        let made = if word & NOT_COMPRESSED != 0 {
            grow(out, length);
            out[..length].copy_from_slice(block);
            length
        } else {
            let made_max = self.block_bytes_max.min(length * GROWTH_MAX);
            grow(out, made_max);
            lz4_flex::block::decompress_into(block, &mut out[..made_max])
                .map_err(|error| malformed(Compression::Lz4, &error))?
        };
        if let Some(hasher) = &mut self.content_hasher {
            hasher.write(&out[..made]);
        }
        self.made += made as u64;
        Ok(made)
    }

    fn take_end(&self, rest: &mut &[u8]) -> Result<(), DecompressError> {
        if self.content_size.is_some_and(|size| size != self.made) {
            return Err(refused("the frame has not the size that it says"));
        }
        if let Some(hasher) = &self.content_hasher {
            if take_u32(rest)? != hasher.finish_32() {
                return Err(refused("the checksum of the frame is wrong"));
            }
        }
        match rest {
            [] => Ok(()),
            _ => Err(refused("bytes follow the frame")),
        }
    }
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, DecompressError> {
    take(rest)
        .map(u32::from_le_bytes)
        .ok_or_else(|| cut_off(Compression::Lz4))
}

#[cold]
fn refused(reason: &str) -> DecompressError {
    malformed(Compression::Lz4, reason)
}

const MAGIC: u32 = 0x184d_2204;
const END_MARK: u32 = 0;
/// In a block's length: its bytes are as they were.
const NOT_COMPRESSED: u32 = 1 << 31;
const SEED: u32 = 0;

const VERSION_MASK: u8 = 0b1100_0000;
const VERSION: u8 = 0b0100_0000;
const INDEPENDENT_BLOCKS: u8 = 1 << 5;
const BLOCK_CHECKSUMS: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
/// A bit without a meaning, and a dictionary.
const UNKNOWN_FLAGS: u8 = 0b11;
const BLOCK_SIZE_MASK: u8 = 0b0111_0000;
const BLOCK_SIZE_SHIFT: u32 = 4;

/// No byte of a block makes more bytes than this.
const GROWTH_MAX: usize = 255;
