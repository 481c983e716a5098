//! gzip members, one after the other (RFC 1952), with an inflate state that a thread
//! keeps from batch to batch: it takes some 40 KiB, and making it costs more than a small
//! batch. It is reset before each member, so that it carries nothing over but memory.

use super::{cut_off, malformed, take, take_slice, Compression, DecompressError};
use flate2::{Decompress, FlushDecompress, Status};
use std::cell::Cell;

/// Decompresses member after member.
pub(super) struct Members<'a> {
    inflate: Option<Decompress>,
    /// Of the member that is read; none between two.
    open: Option<Member>,
    is_first: bool,
    rest: &'a [u8],
}

#[derive(Default)]
struct Member {
    crc: crc32fast::Hasher,
    /// Bytes that it has made, modulo 2^32.
    made: u32,
}

impl<'a> Members<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self {
            inflate: None,
            open: None,
            is_first: true,
            rest: input,
        }
    }

    /// Decompresses to the front of `out`; how much, 0 at the end.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, DecompressError> {
        let inflate = self
            .inflate
            .get_or_insert_with(|| INFLATE.take().unwrap_or_else(|| Decompress::new(false)));
        loop {
            let member = match &mut self.open {
                Some(member) => member,
                None if self.rest.is_empty() && !self.is_first => return Ok(0),
                none => {
                    take_header(&mut self.rest)?;
                    inflate.reset(false);
                    self.is_first = false;
                    none.insert(Member::default())
                }
            };
            let (in_before, out_before) = (inflate.total_in(), inflate.total_out());
            let status = inflate
                .decompress(self.rest, out, FlushDecompress::None)
                .map_err(|error| malformed(Compression::Gzip, &error))?;
            let taken = (inflate.total_in() - in_before) as usize;
            let made = (inflate.total_out() - out_before) as usize;
            self.rest = &self.rest[taken..];
            member.crc.update(&out[..made]);
            member.made = member.made.wrapping_add(made as u32);
            if status == Status::StreamEnd {
                let member = std::mem::take(&mut self.open).unwrap_or_default();
                member.take_trailer(&mut self.rest)?;
            } else if taken == 0 && made == 0 {
                return Err(cut_off(Compression::Gzip));
            }
            if made > 0 {
                return Ok(made);
            }
        }
    }
}

impl Member {
    fn take_trailer(self, rest: &mut &[u8]) -> Result<(), DecompressError> {
        let (crc, made) = match (take(rest), take(rest)) {
            (Some(crc), Some(made)) => (u32::from_le_bytes(crc), u32::from_le_bytes(made)),
            _ => return Err(cut_off(Compression::Gzip)),
        };
        if crc != self.crc.finalize() || made != self.made {
            return Err(refused("the checksum or the size at the end is wrong"));
        }
        Ok(())
    }
}

impl Drop for Members<'_> {
    fn drop(&mut self) {
        if let Some(inflate) = self.inflate.take() {
            INFLATE.set(Some(inflate));
        }
    }
}

fn take_header(rest: &mut &[u8]) -> Result<(), DecompressError> {
    let from_header = *rest;
    let cut_off = || cut_off(Compression::Gzip);
    let flags = match take(rest).ok_or_else(cut_off)? {
        [0x1f, 0x8b, DEFLATE, flags, _, _, _, _, _, _] => flags,
        _ => return Err(refused("a member has no gzip header")),
    };
    if flags & UNKNOWN_FLAGS != 0 {
        return Err(refused("a gzip header has unknown flags"));
    }
    if flags & EXTRA != 0 {
        let length = take(rest).map(u16::from_le_bytes).ok_or_else(cut_off)?;
        take_slice(rest, usize::from(length)).ok_or_else(cut_off)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|byte| *byte == 0);
            *rest = &rest[end.ok_or_else(cut_off)? + 1..];
        }
    }
    if flags & HEADER_CRC != 0 {
        let header = &from_header[..from_header.len() - rest.len()];
        let crc = take(rest).map(u16::from_le_bytes).ok_or_else(cut_off)?;
        if crc != crc32fast::hash(header) as u16 {
            return Err(refused("the checksum of a gzip header is wrong"));
        }
    }
    Ok(())
}

#[cold]
fn refused(reason: &str) -> DecompressError {
    malformed(Compression::Gzip, reason)
}

thread_local! {
    static INFLATE: Cell<Option<Decompress>> = const { Cell::new(None) };
}

const DEFLATE: u8 = 8;
const HEADER_CRC: u8 = 1 << 1;
const EXTRA: u8 = 1 << 2;
const NAME: u8 = 1 << 3;
const COMMENT: u8 = 1 << 4;
const UNKNOWN_FLAGS: u8 = 0b1110_0000;
