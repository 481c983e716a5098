//! Writing a compacted segment, which is no part of the log yet.

use super::pace::{Buffer, Halt, Pace};
use super::CompactionError;
use crate::protocol::batch::BatchView;
use crate::runtime::{File, OpenMode, SyncSite, BLOCK_BYTES};
use crate::storage::assemble::LoadedSegment;
use crate::storage::index::{OffsetIndex, TimeIndex};
use crate::storage::log_files::{file_name, remove_if_there, INDEX, LOG, TIME_INDEX};
use crate::storage::segment::Extent;
use crate::storage::LogBatch;

/// A `.cleaned` segment that grows.
pub(super) struct Target<'a> {
    pace: &'a Pace<'a>,
    base_offset: i64,
    file: File,
    extent: Extent,
    index: OffsetIndex,
    time_index: TimeIndex,
    /// What is not written yet, from a block boundary on.
    pending: Vec<u8>,
    /// Bytes that are written: whole blocks.
    written: u64,
}

impl<'a> Target<'a> {
    /// Begins the segment at `base_offset`. What an earlier round left there goes.
    pub(super) async fn create(pace: &'a Pace<'a>, base_offset: i64) -> Result<Self, Halt> {
        let _io = pace.enter().await?;
        let dir = &pace.log.dir;
        for extension in [INDEX, TIME_INDEX, LOG] {
            remove_if_there(dir, &cleaned_name(base_offset, extension)).await?;
        }
        let name = cleaned_name(base_offset, LOG);
        Ok(Target {
            pace,
            base_offset,
            file: dir.open(&name, OpenMode::CreateNew).await?,
            extent: Extent::empty(base_offset),
            index: OffsetIndex::new(base_offset),
            time_index: TimeIndex::new(base_offset),
            pending: Vec::new(),
            written: 0,
        })
    }

    /// Adds a batch, whose offsets are above all before it.
    pub(super) async fn add(&mut self, view: &BatchView) -> Result<(), Halt> {
        let header = view.header();
        if self.extent.len > i32::MAX as u64 {
            return Err(Halt::Failed(CompactionError::Unfit(format!(
                "compressed anew, the segment {} does not fit in 2 GiB",
                file_name(self.base_offset, LOG)
            ))));
        }
        let batch = LogBatch {
            bytes: view.bytes().clone(),
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            leader_epoch: header.leader_epoch,
            // As the scan that builds an index anew has it.
            max_timestamp: match header.record_count {
                0 => -1,
                _ => header.max_timestamp,
            },
            producer: None,
        };
        let interval = self.pace.log.config.get().index_interval_bytes;
        if let Some(entry) = self.extent.add(&batch, interval) {
            self.index.append(entry.last_offset, entry.position);
            self.time_index
                .maybe_append(entry.max_timestamp, entry.max_timestamp_offset);
        }
        let mut rest = &view.bytes()[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(WRITE_BYTES - self.pending.len()));
            self.pending.extend_from_slice(now);
            rest = later;
            if self.pending.len() == WRITE_BYTES {
                self.write().await?;
            }
        }
        Ok(())
    }

    /// Writes what is pending; the last write may end within a block.
    async fn write(&mut self) -> Result<(), Halt> {
        let len = self.pending.len();
        // The copy that is written, beside what it is a copy of.
        let padded = len.next_multiple_of(BLOCK_BYTES);
        self.pace.holds(Buffer::Write, len + padded);
        {
            let _io = self.pace.enter().await?;
            let _permit = self.pace.permit(padded as u64).await;
            let mut buf = self.pace.log.storage.rt().write_buf(len);
            buf.as_mut_slice()[..len].copy_from_slice(&self.pending);
            self.file.write_at(&buf.freeze(), self.written).await?;
        }
        self.written += len as u64;
        self.pending.clear();
        self.pace.holds(Buffer::Write, self.pending.capacity());
        let bytes = &self.pace.bytes_written;
        bytes.set(bytes.get() + len as u64);
        self.pace.moved(len as u64).await;
        Ok(())
    }

    /// Makes all of it durable under its `.cleaned` names: the segment, which reaches up to
    /// `next_offset`.
    pub(super) async fn finish(mut self, next_offset: i64) -> Result<LoadedSegment, Halt> {
        if !self.pending.is_empty() {
            self.write().await?;
        }
        self.pace.holds(Buffer::Write, 0);
        let extent = self.extent;
        self.time_index
            .maybe_append(extent.max_timestamp, extent.max_timestamp_offset);
        let _io = self.pace.enter().await?;
        self.file.truncate(extent.len).await?;
        let site = SyncSite::CompactedSegment;
        self.file.sync_data(site).await?;
        let dir = &self.pace.log.dir;
        for (extension, content) in [
            (INDEX, self.index.encode()),
            (TIME_INDEX, self.time_index.encode()),
        ] {
            let name = cleaned_name(self.base_offset, extension);
            dir.replace_small(&name, content, site).await?;
        }
        dir.sync(site).await?;
        Ok(LoadedSegment {
            base_offset: self.base_offset,
            next_offset,
            len: extent.len,
            allocated: extent.len,
            first_batch_timestamp: extent.first_batch_timestamp,
            max_timestamp: (extent.max_timestamp, extent.max_timestamp_offset),
            open: Some((self.file, self.index, self.time_index)),
        })
    }
}

/// The name of a file of a segment that is being written.
pub(super) fn cleaned_name(base_offset: i64, extension: &str) -> String {
    format!("{}.cleaned", file_name(base_offset, extension))
}

/// The size of a write: whole blocks.
const WRITE_BYTES: usize = 512 << 10;
