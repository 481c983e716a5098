//! What a block device was given and has not flushed: a disk without power keeps some of it and not the rest.
//!
//! The device's cache is as long as its image. A block that was written and not flushed is another in the cache than in
//! the image; one that was never written is all zeros there. So those that survive are copied from the one to the other,
//! while nobody writes.
//!
//! What it cannot know: a block of zeros that was written over something else is taken for one that was never written, and
//! so is always lost.

use std::io::{self, Read, Seek, SeekFrom, Write};

/// What a cut did to the blocks that were written and not flushed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutBlocks {
    /// Bytes of those that are on the disk all the same.
    pub kept_bytes: u64,
    /// Bytes of those that are not.
    pub lost_bytes: u64,
}

/// Copies those blocks of the cache into the image that were not flushed and that `keeps` chooses, one after the other.
pub(super) fn settle(
    mut cache: impl Read,
    mut image: impl Read + Write + Seek,
    mut keeps: impl FnMut() -> bool,
) -> io::Result<CutBlocks> {
    let mut cut = CutBlocks::default();
    let (mut chunk, mut on_disk) = (Vec::with_capacity(CHUNK_BYTES), [0; BLOCK_BYTES]);
    let mut position = 0;
    loop {
        chunk.clear();
        (&mut cache)
            .take(CHUNK_BYTES as u64)
            .read_to_end(&mut chunk)?;
        if chunk.is_empty() {
            return Ok(cut);
        }
        for (number, block) in chunk.chunks(BLOCK_BYTES).enumerate() {
            if block == &NEVER_WRITTEN[..block.len()] {
                continue;
            }
            let at = SeekFrom::Start(position + (number * BLOCK_BYTES) as u64);
            let on_disk = &mut on_disk[..block.len()];
            image.seek(at)?;
            image.read_exact(on_disk)?;
            if block == on_disk {
                continue;
            }
            if keeps() {
                image.seek(at)?;
                image.write_all(block)?;
                cut.kept_bytes += block.len() as u64;
            } else {
                cut.lost_bytes += block.len() as u64;
            }
        }
        position += chunk.len() as u64;
    }
}

/// What the device's cache keeps account of.
const BLOCK_BYTES: usize = 4096;
const NEVER_WRITTEN: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
const CHUNK_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    const BLOCKS: usize = CHUNK_BYTES / BLOCK_BYTES + 4;

    fn fill(disk: &mut [u8], block: usize, byte: u8) {
        disk[block * BLOCK_BYTES..][..BLOCK_BYTES].fill(byte);
    }

    #[test]
    fn what_differs_and_is_chosen_gets_onto_the_disk() {
        let mut image = vec![0; BLOCKS * BLOCK_BYTES];
        let mut cache = image.clone();
        fill(&mut image, 0, 1);
        // Flushed; written over and not flushed; written and not flushed, here and beyond the first chunk.
        fill(&mut image, 1, 2);
        fill(&mut cache, 1, 2);
        fill(&mut image, 2, 3);
        fill(&mut cache, 2, 4);
        fill(&mut cache, 3, 5);
        fill(&mut cache, BLOCKS - 1, 6);
        let settled = |choice: [bool; 3]| {
            let mut disk = image.clone();
            let mut choice = choice.into_iter();
            let keeps = || choice.next().expect("three blocks are unflushed");
            let cut = settle(&cache[..], Cursor::new(&mut disk), keeps).unwrap();
            assert_eq!(choice.next(), None);
            let first = [0, 1, 2, 3, BLOCKS - 1].map(|block| disk[block * BLOCK_BYTES]);
            let block = BLOCK_BYTES as u64;
            (first, cut.kept_bytes / block, cut.lost_bytes / block)
        };
        assert_eq!(settled([false; 3]), ([1, 2, 3, 0, 0], 0, 3));
        assert_eq!(settled([true; 3]), ([1, 2, 4, 5, 6], 3, 0));
        assert_eq!(settled([false, true, false]), ([1, 2, 3, 5, 0], 1, 2));
        assert_eq!(settled([true, false, true]), ([1, 2, 4, 0, 6], 2, 1));
    }

    #[test]
    fn an_image_that_is_too_short_is_an_error() {
        let cache = vec![1; 2 * BLOCK_BYTES];
        let mut image = vec![0; BLOCK_BYTES];
        let settled = settle(&cache[..], Cursor::new(&mut image), || false);
        assert_eq!(settled.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
