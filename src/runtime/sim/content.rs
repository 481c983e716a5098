//! What a file holds: sparse blocks, and the changes that are not durable yet.
//!
//! A block that was never written costs nothing, so a preallocated segment is as
//! cheap as an empty one. Written blocks are refcounted slices of the write.

use super::rng::SimRng;
use super::PowerCut;
use crate::runtime::BLOCK_BYTES;
use bytes::Bytes;
use std::collections::BTreeMap;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What a power cut tears: a sector is written whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// Bytes of a file. What lies within the size and in no block is zero.
#[derive(Clone, Default)]
pub(super) struct Content {
    size: u64,
    blocks: BTreeMap<u64, Bytes>,
}

/// A change to a file.
#[derive(Clone)]
pub(super) enum Change {
    /// `data` is padded to whole blocks; the file reaches at least `pos + len`.
    Write { pos: u64, data: Bytes, len: u64 },
    /// The size becomes exactly this.
    Resize(u64),
    /// The size becomes at least this.
    Extend(u64),
}

/// A file as the running system sees it, and what of it would survive.
#[derive(Default)]
pub(super) struct FileContent {
    pub live: Content,
    pub durable: Content,
    /// Changes of `live` that no flush has covered, in order.
    pending: Vec<(u64, Change)>,
}

impl FileContent {
    /// Changes the file for readers; the change is not durable.
    pub fn change(&mut self, seq: u64, change: Change) {
        self.live.apply(&change);
        self.pending.push((seq, change));
    }

    /// Makes the changes up to `seq` durable.
    pub fn flush(&mut self, seq: u64) {
        for change in self.take_until(seq) {
            self.durable.apply(&change);
        }
    }

    /// A flush that failed: what it covered may be durable or not, and no later
    /// flush will try again (the system has marked its pages clean).
    pub fn fail_flush(&mut self, seq: u64, rng: &SimRng) {
        let covered = self.take_until(seq);
        self.durable.survive(&covered, PowerCut::Mixed, rng);
    }

    /// Power is cut while `in_flight` is being written.
    pub fn power_cut(&mut self, in_flight: Vec<Change>, mode: PowerCut, rng: &SimRng) {
        let mut unflushed = self.take_until(u64::MAX);
        unflushed.extend(in_flight);
        self.durable.survive(&unflushed, mode, rng);
        self.live = self.durable.clone();
    }

    /// Makes all that is there durable, for set-up by tests.
    pub fn settle(&mut self) {
        self.pending.clear();
        self.durable = self.live.clone();
    }

    fn take_until(&mut self, seq: u64) -> Vec<Change> {
        let count = self.pending.partition_point(|(s, _)| *s <= seq);
        self.pending.drain(..count).map(|(_, c)| c).collect()
    }
}

impl Content {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn read(&self, pos: u64, len: usize) -> Bytes {
        let end = self.size.min(pos.saturating_add(len as u64));
        if pos >= end {
            return Bytes::new();
        }
        let mut out = vec![0; (end - pos) as usize];
        for (index, block) in self.blocks.range(pos / BLOCK..end.div_ceil(BLOCK)) {
            let start = index * BLOCK;
            let from = pos.max(start);
            let to = end.min(start + BLOCK);
            out[(from - pos) as usize..(to - pos) as usize]
                .copy_from_slice(&block[(from - start) as usize..(to - start) as usize]);
        }
        Bytes::from(out)
    }

    /// Overwrites bytes anywhere, extending the file if need be.
    pub fn patch(&mut self, pos: u64, bytes: &[u8]) {
        self.size = self.size.max(pos + bytes.len() as u64);
        let mut done = 0;
        while done < bytes.len() {
            let at = pos + done as u64;
            let offset = (at % BLOCK) as usize;
            let count = (BLOCK_BYTES - offset).min(bytes.len() - done);
            self.edit_block(at / BLOCK, |block| {
                block[offset..offset + count].copy_from_slice(&bytes[done..done + count])
            });
            done += count;
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { pos, data, len } => {
                for i in 0..data.len() / BLOCK_BYTES {
                    let slice = data.slice(i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES);
                    self.blocks.insert(pos / BLOCK + i as u64, slice);
                }
                self.size = self.size.max(pos + len);
            }
            Change::Resize(size) => {
                self.size = *size;
                self.clip();
            }
            Change::Extend(size) => self.size = self.size.max(*size),
        }
    }

    /// Applies what chance lets through of unflushed changes. Data that lands
    /// beyond the size that survives is lost.
    fn survive(&mut self, changes: &[Change], mode: PowerCut, rng: &SimRng) {
        let mode = match mode {
            PowerCut::Mixed => PowerCut::draw(rng),
            fixed => fixed,
        };
        let whole = match mode {
            PowerCut::AllLost => return,
            PowerCut::AllKept => changes.len(),
            PowerCut::Prefix => rng.below(changes.len() as u64 + 1) as usize,
            PowerCut::Sectors | PowerCut::Stale | PowerCut::Mixed => 0,
        };
        for change in &changes[..whole] {
            self.apply(change);
        }
        match mode {
            PowerCut::Prefix => {
                if let Some(Change::Write { pos, data, len }) = changes.get(whole) {
                    let sectors = (data.len() / SECTOR_BYTES) as u64;
                    let kept = rng.below(sectors + 1) as usize;
                    self.write_sectors(*pos, data, |i| i < kept);
                    if kept > 0 {
                        let reached = (*len).min((kept * SECTOR_BYTES) as u64);
                        self.size = self.size.max(pos + reached);
                    }
                }
            }
            PowerCut::Sectors | PowerCut::Stale => {
                for change in changes {
                    match change {
                        Change::Write { pos, data, len } => {
                            // A chance of its own for each write: mostly kept,
                            // mostly lost, or torn in the middle.
                            let odds = rng.below(5);
                            if mode == PowerCut::Stale {
                                self.show_stale(*pos, data.len());
                            }
                            self.write_sectors(*pos, data, |_| rng.below(4) < odds);
                            if !rng.one_in(3) {
                                self.size = self.size.max(pos + len);
                            }
                        }
                        other => {
                            if !rng.one_in(2) {
                                self.apply(other);
                            }
                        }
                    }
                }
            }
            _ => {}
        }
        self.clip();
    }

    fn write_sectors(&mut self, pos: u64, data: &Bytes, mut kept: impl FnMut(usize) -> bool) {
        let per_block = BLOCK_BYTES / SECTOR_BYTES;
        for i in 0..data.len() / BLOCK_BYTES {
            let keeps: Vec<usize> = (i * per_block..(i + 1) * per_block)
                .filter(|sector| kept(*sector))
                .collect();
            if keeps.is_empty() {
                continue;
            }
            self.edit_block(pos / BLOCK + i as u64, |block| {
                for sector in &keeps {
                    let from = (sector % per_block) * SECTOR_BYTES;
                    let source = sector * SECTOR_BYTES;
                    block[from..from + SECTOR_BYTES]
                        .copy_from_slice(&data[source..source + SECTOR_BYTES]);
                }
            });
        }
    }

    /// Fills blocks that were never written with what a deleted file left.
    fn show_stale(&mut self, pos: u64, len: usize) {
        for index in pos / BLOCK..(pos + len as u64) / BLOCK {
            let fresh = || Bytes::from_static(&[STALE_BYTE; BLOCK_BYTES]);
            self.blocks.entry(index).or_insert_with(fresh);
        }
    }

    /// Drops what lies beyond the size, so that a later extension shows zeros.
    fn clip(&mut self) {
        self.blocks.split_off(&self.size.div_ceil(BLOCK));
        let tail = (self.size % BLOCK) as usize;
        if tail != 0 && self.blocks.contains_key(&(self.size / BLOCK)) {
            self.edit_block(self.size / BLOCK, |block| block[tail..].fill(0));
        }
    }

    fn edit_block(&mut self, index: u64, edit: impl FnOnce(&mut [u8])) {
        let mut block = match self.blocks.get(&index) {
            Some(old) => old.to_vec(),
            None => vec![0; BLOCK_BYTES],
        };
        edit(&mut block);
        self.blocks.insert(index, Bytes::from(block));
    }
}

/// What stale sectors hold.
pub(super) const STALE_BYTE: u8 = 0xa5;
